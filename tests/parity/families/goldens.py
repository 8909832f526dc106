"""Writes what the tests of the families of decoders compare with, by transformers.

    pip install torch==2.15.0 transformers==5.24.0
    python tests/parity/families/goldens.py

<family>.json holds the config.json that transformers writes, names, shapes and files of the tensors, and for a few
prompts logits and what follows greedily. Weights are not stored: both sides compute them from the tensors' names.
"""
import json
import tempfile
from pathlib import Path

import numpy
import torch
from safetensors import safe_open
from transformers import (
    AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config,
)

HERE = Path(__file__).parent
VOCAB = 128
GREEDY = 32
SIZES = dict(
    vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2,
)
LLAMA3 = dict(
    rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=4.0)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64)
# No width is a multiple of 16.
ODD = dict(hidden_size=45, intermediate_size=77, num_attention_heads=3, num_key_value_heads=1, head_dim=12)
FAMILIES = {
    "llama": (LlamaConfig(**SIZES, tie_word_embeddings=True), torch.float16),
    "llama3": (LlamaConfig(**SIZES, rope_parameters=LLAMA3, tie_word_embeddings=False), torch.float32),
    "llama_linear": (
        LlamaConfig(**SIZES | dict(num_key_value_heads=4), rope_parameters=LINEAR, tie_word_embeddings=False),
        torch.float32,
    ),
    "mistral": (
        MistralConfig(**SIZES, head_dim=32, sliding_window=200, tie_word_embeddings=False), torch.bfloat16,
    ),
    "qwen2": (Qwen2Config(**SIZES, tie_word_embeddings=True), torch.float32),
    "qwen3": (Qwen3Config(**SIZES, head_dim=48, tie_word_embeddings=False), torch.float32),
    "qwen3_yarn": (Qwen3Config(**SIZES, head_dim=32, rope_parameters=YARN, tie_word_embeddings=True), torch.float32),
    "llama_odd": (LlamaConfig(**SIZES | ODD, tie_word_embeddings=False), torch.float32),
    "qwen2_odd": (
        Qwen2Config(**SIZES | dict(hidden_size=44, num_attention_heads=2, num_key_value_heads=1), tie_word_embeddings=True),
        torch.float16,
    ),
    "qwen3_odd": (
        Qwen3Config(**SIZES | ODD | dict(num_key_value_heads=3, head_dim=20), tie_word_embeddings=False), torch.bfloat16,
    ),
}
# In several files.
SHARDED = {"llama3"}


def weights(name: str, shape: torch.Size) -> torch.Tensor:
    """Numbers from a hash of name and place: tables in [-1/16, 1/16), other matrices in [-1/4, 1/4), norms around 1, biases in
    [-1, 1). So logits are about 1 at most, and what follows greedily is varied."""
    state = 2166136261
    for byte in name.encode():
        state = ((state ^ byte) * 16777619) & 0xFFFFFFFF
    x = (numpy.arange(shape.numel(), dtype=numpy.uint64) * 2654435761 + state).astype(numpy.uint32)
    x = (x ^ (x >> 16)) * numpy.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * numpy.uint32(0x846CA68B)
    x = x ^ (x >> 16)
    values = ((x >> 24).astype(numpy.float32) - 128) / 128
    if name.endswith("norm.weight"):
        values = 1 + values / 4
    elif name.endswith(("embed_tokens.weight", "lm_head.weight")):
        values = values / 16
    elif not name.endswith("bias"):
        values = values / 4
    return torch.from_numpy(values.reshape(tuple(shape)))


def follow(model: torch.nn.Module, prompt: list[int]) -> dict | None:
    """Logits after the prompt and after all, and what follows; `None` if a choice is so close that luck decides it."""
    ids, rows = list(prompt), []
    for _ in range(GREEDY):
        row = model(torch.tensor([ids])).logits[0, -1]
        best = torch.topk(row, 2).values
        if best[0] - best[1] < 0.005:
            return None
        rows.append(row)
        ids.append(int(row.argmax()))
    kept = {"first": rows[0], "last": rows[-1]}
    return {"prompt": prompt, "greedy": ids[len(prompt):]} | {
        name: [round(value, 5) for value in row.tolist()] for name, row in kept.items()
    }


def texts(model: torch.nn.Module) -> list[dict]:
    """For each length the first prompt after which every choice is clear."""
    kept = []
    for length in (3, 41, 120):
        tries = ([(7 * place * place + 13 * place + seed) % VOCAB for place in range(length)] for seed in range(VOCAB))
        kept.append(next(text for prompt in tries if (text := follow(model, prompt))))
    return kept


def files(folder: Path) -> dict:
    """Name of a file -> name of a tensor -> its shape."""
    shapes = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as tensors:
            shapes[path.name] = {name: list(tensors.get_slice(name).get_shape()) for name in tensors.keys()}
    return shapes


def write(family: str, config, dtype: torch.dtype) -> None:
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights(name, parameter.shape))
    model = model.to(dtype)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model.save_pretrained(folder, max_shard_size="100KB" if family in SHARDED else "1GB")
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        golden = {
            "config": json.loads((folder / "config.json").read_text()),
            "files": files(folder),
            "texts": texts(model),
        }
    (HERE / f"{family}.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    for family, (config, dtype) in FAMILIES.items():
        write(family, config, dtype)
        print(family)
