"""The command line of `run.py`."""

import argparse
import shutil
import sys
from pathlib import Path

from engine import CASES
from report import BEGIN, END
from servers import cores
from serving import LEVELS

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["engine", "formats", "http", "embeddings"]
QUICK_CASES = ["prefill:128", "prefill:512", "decode:1:128", "decode:8:128", "decode:32:128"]


def parse(description: str) -> argparse.Namespace:
    """Arguments, checked and completed."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    what(parser.add_argument_group("what is measured"))
    peers(parser.add_argument_group("engines and servers"))
    results(parser.add_argument_group("results"))
    args = parser.parse_args()
    if args.rounds < 1 or args.seconds <= 0 or min(args.threads) < 1:
        parser.error("--rounds, --seconds and --threads must be above 0")
    if unknown := [part for part in args.parts if part not in PARTS]:
        parser.error(f"unknown part {unknown[0]}; known: {', '.join(PARTS)}")
    if unknown := [case for case in args.cases if case not in CASES]:
        parser.error(f"unknown case {unknown[0]}; known: {', '.join(CASES)}")
    for path in [args.model, args.repacked, *args.formats, args.embedding_model, args.onnx_model, args.onnx_tokenizer]:
        if path and not path.exists():
            parser.error(f"{path} does not exist")
    if args.write and not has_place(args.write):
        parser.error(f"{args.write} has no place for figures: {BEGIN} and {END}")
    complete(args)
    return args


def has_place(page: Path) -> bool:
    """Asked before anything is measured."""
    return page.exists() and BEGIN in (text := page.read_text(encoding="utf-8")) and END in text.partition(BEGIN)[2]


def what(group) -> None:
    """Parts, cases, repetitions."""
    group.add_argument("--model", type=Path, help="a GGUF file; default: the server's default model, from its cache")
    group.add_argument("--parts", type=comma, default=PARTS, help=f"default: {','.join(PARTS)}")
    group.add_argument("--cases", type=comma, default=CASES, help=f"of the engine; default: {','.join(CASES)}")
    group.add_argument("--threads", type=numbers, default=sorted({1, cores()}), help="default: 1 and all cores; servers: most")
    group.add_argument("--rounds", type=int, default=3, help="default: 3; servers: at most 2")
    group.add_argument("--seconds", type=float, default=1.0, help="how long a case is repeated in a round; default: 1")
    group.add_argument("--repacked", type=Path, metavar="FILE", help="the same model as Q4_0, for llama.cpp's fastest kernels")
    group.add_argument("--formats", type=Path, nargs="*", default=[], metavar="FILE", help="see quantize.py")
    group.add_argument("--quick", action="store_true", help="one short round, without long contexts")
    group.add_argument("--smoke", action="store_true", help="only whether it works: one round over HTTP, without a model")


def peers(group) -> None:
    """Where everybody is."""
    found = shutil.which("llama-server")
    group.add_argument("--radiosonde", type=Path, help="default: built")
    group.add_argument("--forward", type=Path, help="the program of benches/forward.rs; default: built")
    group.add_argument("--llama-python", default=sys.executable, help="a Python with llama-cpp-python; default: this one")
    group.add_argument("--states", type=Path, default=ROOT / "target/compare/states", help="where llama.cpp's contexts are kept")
    group.add_argument("--llama-bench", type=Path, help="instead of --llama-python")
    group.add_argument("--llama-batched-bench", type=Path, help="with --llama-bench: for several streams")
    group.add_argument("--llama-server", type=Path, default=Path(found or "llama-server"), help="default: from PATH")
    group.add_argument("--candle", action="store_true", help="candle-transformers too")
    group.add_argument("--embedding-model", type=Path, help="an encoder that radiosonde serves")
    group.add_argument("--onnx-model", type=Path, help="the same encoder for onnxruntime")
    group.add_argument("--onnx-tokenizer", type=Path, help="its tokenizer.json")
    group.add_argument("--onnx-python", default=sys.executable, help="a Python with onnxruntime; default: this one")


def results(group) -> None:
    """Where figures go."""
    group.add_argument("--json", type=Path, default=ROOT / "target/compare/last.json")
    group.add_argument("--write", type=Path, metavar="PAGE", help="put the tables between the markers of this page too")
    group.add_argument("--read", type=Path, metavar="JSON", help="measure nothing, show this")


def complete(args: argparse.Namespace) -> None:
    """What follows from the short forms."""
    args.plan = {"levels": LEVELS, "requests": 4, "prompt": 128, "output": 64, "ids": [1000, 41_000], "rounds": 2}
    args.plan |= {"kv": 16_384, "slots": 32}
    if args.quick:
        args.rounds, args.seconds = 1, min(args.seconds, 0.5)
        args.cases = [case for case in args.cases if case in QUICK_CASES]
        args.plan |= {"levels": [1, 16], "requests": 2, "output": 32}
    if args.smoke:
        args.parts, args.rounds, args.model = ["http"], 1, "scripted:step_ms=1"
        args.json = args.json.with_name("smoke.json")
        args.plan |= {"levels": [2], "requests": 1, "prompt": 16, "output": 8, "ids": [32, 127]}
    if not args.formats:
        args.parts = [part for part in args.parts if part != "formats"]
    if not args.embedding_model:
        args.parts = [part for part in args.parts if part != "embeddings"]


def comma(text: str) -> list[str]:
    """A list."""
    return [part for part in text.split(",") if part]


def numbers(text: str) -> list[int]:
    """A list of numbers."""
    return sorted({int(part) for part in comma(text)})
