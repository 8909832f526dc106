#!/usr/bin/env python3
"""Makes files of other formats from one GGUF file, for `run.py --formats`: quantize.py MODEL FOLDER [FORMAT..]

With llama.cpp's `llama-quantize` (`--llama-quantize PATH`), else with llama-cpp-python. A format of few bits is made from
another one of few bits here, so the models speak a little worse than well-made ones. They compute the same, which is what
is compared.
"""

import argparse
import ctypes
import subprocess
import sys
from pathlib import Path

FORMATS = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_M": 17, "Q6_K": 18}
DEFAULT = ["Q4_0", "Q8_0", "Q4_K_M"]


def with_library(source: Path, target: Path, name: str, threads: int) -> None:
    """By llama-cpp-python, in this process."""
    import llama_cpp.llama_cpp as api

    silent = api.llama_log_callback(lambda level, text, data: None)
    api.llama_log_set(silent, None)
    params = api.llama_model_quantize_default_params()
    params.ftype, params.nthread, params.allow_requantize = FORMATS[name], threads, True
    code = api.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params))
    if code != 0:
        raise SystemExit(f"llama_model_quantize returned {code} for {name}")


def with_program(program: Path, source: Path, target: Path, name: str, threads: int) -> None:
    """By llama.cpp's own program."""
    command = [program, "--allow-requantize", source, target, name, threads]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{program} ended with code {done.returncode}: {done.stderr.strip()[-300:]}")


def main() -> None:
    """Makes what is not there yet, and prints the paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"default: {' '.join(DEFAULT)}")
    parser.add_argument("--llama-quantize", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    names = args.formats or DEFAULT
    if unknown := [name for name in names if name not in FORMATS]:
        parser.error(f"unknown format {unknown[0]}; known: {', '.join(FORMATS)}")
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        target = args.folder / f"{args.model.name.split('.')[0]}.{name}.gguf"
        part = target.with_suffix(".part")
        if not target.exists():
            if args.llama_quantize:
                with_program(args.llama_quantize, args.model, part, name, args.threads)
            else:
                with_library(args.model, part, name, args.threads)
            part.rename(target)
        print(target)


if __name__ == "__main__":
    sys.exit(main())
