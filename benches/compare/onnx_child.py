"""An encoder in onnxruntime, a case at a time: `embeddings:<texts>`. Needs onnxruntime, tokenizers and numpy."""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy
import onnxruntime
from texts import texts
from tokenizers import Tokenizer


class Encoder:
    """Tokenises, runs the model, takes the mean over each text's tokens: what a server of embeddings does."""

    def __init__(self, model: Path, tokenizer: Path, threads: int):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.inputs = {value.name for value in self.session.get_inputs()}
        self.tokenizer = Tokenizer.from_file(str(tokenizer))
        self.tokenizer.enable_padding()
        self.tokenizer.enable_truncation(max_length=512)

    def run(self, batch: list[str]) -> float:
        """Seconds for a batch."""
        began = time.perf_counter()
        encoded = self.tokenizer.encode_batch(batch)
        mask = numpy.array([text.attention_mask for text in encoded], dtype=numpy.int64)
        ids = numpy.array([text.ids for text in encoded], dtype=numpy.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        hidden = self.session.run(None, {name: feed[name] for name in self.inputs})[0]
        if hidden.ndim == 3:
            weights = mask[:, :, None].astype(hidden.dtype)
            hidden = (hidden * weights).sum(1) / weights.sum(1)
        hidden /= numpy.linalg.norm(hidden, axis=1, keepdims=True)
        return time.perf_counter() - began


def main() -> None:
    """Loads, then answers a line for each line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    encoder = Encoder(args.model, args.tokenizer, args.threads)
    print(json.dumps({"engine": "onnxruntime", "version": onnxruntime.__version__}), flush=True)
    for line in sys.stdin:
        batch = texts(int(line.strip().removeprefix("embeddings:")))
        encoder.run(batch)
        seconds, began = [], time.perf_counter()
        while not seconds or time.perf_counter() - began < args.seconds:
            seconds.append(encoder.run(batch))
        print(json.dumps({"case": line.strip(), "units": len(batch), "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
