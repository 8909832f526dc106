"""Writes what llama.cpp makes of the default model: ids of texts, and log-probabilities of prompts.

    pip install llama-cpp-python==0.3.36
    python tests/parity/llama_cpp/goldens.py ~/.cache/radiosonde/models/SmolLM2-135M-Instruct.Q4_1.gguf

ids.jsonl: a line for each text: the text, its ids with control tokens parsed, and its ids with them as text where these
are others.
logprobs.jsonl: a line for each prompt: its ids, those that follow greedily, and the log-probability of each of all these
but the first after those before it; and these again with all weights unpacked to F32, and keys and values in F32 too.
"""
import ctypes
import json
import random
import sys
import tempfile
from pathlib import Path

import numpy
from llama_cpp import Llama, llama_cpp as api

HERE = Path(__file__).parent
GREEDY = 24

PIECES = [
    "radio", "Sonde", " the", " of ", "’s", "'s", "'LL", "n't", "don’t", "naïve", "Straße", "ΑΘΗΝΑ", "привет", "שלום", "مرحبا",
    "नमस्ते", "สวัสดี", "한국어", "日本語", "かな", "カナ", "漢字", "你好", "世界", "，", "。", "「", "」", "😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "👍🏽", "❤️",
    "☃", "0", "7", "42", "2026", "3.14159", "1,000,000", "0x1F", "１２３", "٣٤٥", "½", "Ⅷ", "10^-3", "50%", "$9.99", "€", " ", "  ", "   ",
    "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u200b", "\u3000", "\ufeff", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>",
    "<|im_", "im_end|>", "<", ">", "|", "{\"a\":[1,2]}", "fn main() {", "}", "// x", "def f(x):", "    return x", "a_b", "camelCase",
    "https://example.org/a?b=c#d", "me@example.org", "...", "!?", "--", "—", "*", "**bold**", "`code`", "#", "~", "\\n", "\x00", "\x07",
    "e\u0301", "é", "Å", "ﬁ", "ǅ", "𝔘𝔫𝔦", "𐍈", "\ufffd", "\u0336",
]

PROMPTS = [
    "A radiosonde is a small instrument that is carried into the atmosphere by a balloon and sends back what it measures.",
    "Once upon a time, in a village by the sea, there lived an old fisherman who had never learned to swim.",
    "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n",
    "The capital of France is Paris. The capital of Germany is Berlin. The capital of Italy is Rome.",
    "<|im_start|>user\nWhat is the capital of Japan?<|im_end|>\n<|im_start|>assistant\nThe capital of Japan is Tokyo.<|im_end|>\n",
    "<|im_start|>system\nYou are terse.<|im_end|>\n<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\nRed, green, blue.",
    "SELECT name, COUNT(*) FROM orders WHERE created_at > '2026-01-01' GROUP BY name ORDER BY 2 DESC LIMIT 10;",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16",
    "Water boils at 100 degrees Celsius at sea level, but at high altitude it boils at a lower temperature.",
    "Photosynthesis is the process by which plants turn light, water and carbon dioxide into sugar and oxygen.",
    "Dear Sir or Madam,\n\nI am writing to apply for the position of engineer that was advertised last week.\n\nYours faithfully,",
    "{\"name\": \"probe\", \"status\": 200, \"hops\": [\"http\", \"scheduler\", \"model_runner\"], \"ok\": true}",
    "To make bread you need flour, water, salt and yeast. Mix them, let the dough rise, and bake it.",
    "If all men are mortal, and Socrates is a man, then Socrates is mortal.",
    "The quick brown fox jumps over the lazy dog. The dog, it must be said, did not mind at all.",
    "In 1969 the first people walked on the Moon. Neil Armstrong was the first of them, and Buzz Aldrin the second.",
    "Le chat est assis sur le tapis et regarde par la fenêtre.",
    "Shall I compare thee to a summer's day? Thou art more lovely and more temperate.",
    "Q: What is 12 times 12?\nA: 144\nQ: What is 9 times 9?\nA: 81\nQ: What is 7 times 8?\nA: 56",
    "for (let i = 0; i < items.length; i++) {\n  console.log(items[i].name);\n}\n",
]


def texts() -> list[str]:
    """Every piece alone, and others put together at random."""
    dice = random.Random(7)
    mixed = ("".join(dice.choices(PIECES, k=dice.randint(2, 9))) for _ in range(10_000))
    return [*dict.fromkeys([*PIECES, *mixed])][:400]


def ids(model: Llama, text: str, special: bool) -> list[int]:
    return model.tokenize(text.encode(), add_bos=False, special=special)


def logprobs(model: Llama, prompt: list[int]) -> list:
    model.reset()
    model.eval(prompt)
    greedy = []
    for _ in range(GREEDY):
        greedy.append(int(numpy.argmax(model.scores[model.n_tokens - 1])))
        model.eval(greedy[-1:])
    return [prompt, greedy, of_scores(model, prompt + greedy)]


def of_scores(model: Llama, tokens: list[int]) -> list[float]:
    rows = numpy.array(model.scores[: len(tokens) - 1], dtype=numpy.float64)
    rows -= rows.max(axis=1, keepdims=True)
    rows -= numpy.log(numpy.exp(rows).sum(axis=1, keepdims=True))
    return [round(float(row[token]), 4) for row, token in zip(rows, tokens[1:])]


def unpack(source: str, target: str) -> None:
    params = api.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = api.LLAMA_FTYPE_ALL_F32, True
    if code := api.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)):
        raise SystemExit(f"llama_model_quantize returned {code}")


def in_floats(source: str, found: list) -> list:
    """`found`, and the log-probabilities of the same ids in single precision."""
    with tempfile.TemporaryDirectory() as folder:
        unpack(source, f"{folder}/f32.gguf")
        kv = {"type_k": api.GGML_TYPE_F32, "type_v": api.GGML_TYPE_F32}
        model = Llama(f"{folder}/f32.gguf", n_ctx=512, logits_all=True, verbose=False, **kv)
        for line in found:
            model.reset()
            model.eval(line[0] + line[1])
            line.append(of_scores(model, line[0] + line[1]))
    return found


def lines(name: str, values: list) -> None:
    text = "".join(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n" for value in values)
    (HERE / name).write_text(text)


def text_line(model: Llama, text: str) -> list:
    parsed, plain = ids(model, text, True), ids(model, text, False)
    return [text, parsed] if parsed == plain else [text, parsed, plain]


if __name__ == "__main__":
    model = Llama(sys.argv[1], n_ctx=512, logits_all=True, verbose=False)
    lines("ids.jsonl", [text_line(model, text) for text in texts()])
    found = [logprobs(model, ids(model, prompt, True)) for prompt in PROMPTS]
    lines("logprobs.jsonl", in_floats(sys.argv[1], found))
