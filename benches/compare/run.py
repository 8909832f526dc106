#!/usr/bin/env -S python3 -B
"""Compares radiosonde with its peers on this machine: same file, same threads, in turn, several rounds.

A peer that is missing is said and left out. docs/performance.md explains every figure.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import embeddings
import engine
import report
import serving
from child import Child, Missing
from engine import Contestant, say
from llama_binaries import LlamaBinaries
from load import Sink
from machine import conditions, default_model, versions
from options import ROOT, parse
from servers import LlamaServer, Radiosonde, cores

# The allocator then asks for large pages, as a good engine does for its weights.
LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class Run:
    """One comparison: what was asked for, where logs go, and what was found."""

    def __init__(self, args: argparse.Namespace, folder: Path):
        self.args, self.folder = args, folder
        self.found = conditions(ROOT, args)

    def forward(self, model: Path, threads: int, kv: int, *flags: str, env: dict | None = None) -> Child:
        """Our half of an engine comparison."""
        command = [str(self.args.forward), "--bench", f"--model={model}", f"--threads={threads}"]
        command += [f"--max-total-tokens={kv}", f"--seconds={self.args.seconds}", *flags]
        return Child(command, self.folder / "forward.log", env)

    def llama(self, model: Path, threads: int) -> Child | LlamaBinaries:
        """The peer's half: its library, or else its programs."""
        if self.args.llama_bench:
            return LlamaBinaries(self.args.llama_bench, self.args.llama_batched_bench, model, threads)
        script = Path(__file__).with_name("llama_child.py")
        command = [self.args.llama_python, str(script), f"--model={model}", f"--threads={threads}", f"--cores={cores()}"]
        return Child([*command, f"--seconds={self.args.seconds}", f"--states={self.args.states}"], self.folder / "llama.log")

    def contestants(self, model: Path, cases: list[str]) -> list[Contestant]:
        """Ours and llama.cpp on one file."""
        kv = engine.kv_tokens(cases)
        return [
            Contestant(engine.OURS, lambda threads: self.forward(model, threads, kv), cases),
            Contestant(report.LLAMA, lambda threads: self.llama(model, threads), cases),
        ]

    def engine(self) -> None:
        """Forward passes, and how near they come to what the machine can do."""
        args, cases = self.args, self.args.cases
        contestants = self.contestants(args.model, cases)
        decodes = [case for case in cases if case.startswith("decode")]
        if decodes:
            kv, flag = engine.kv_tokens(decodes), "--kv-cache-dtype=int8"
            ours = Contestant(engine.OURS_INT8, lambda threads: self.forward(args.model, threads, kv, flag), decodes)
            contestants.insert(1, ours)
        if args.repacked:
            contestants.append(Contestant(report.REPACKED, lambda threads: self.llama(args.repacked, threads), cases))
        if args.candle:
            alone = [case for case in cases if case in engine.FORMAT_CASES]
            contestants.append(Contestant("candle", self.candle, alone))
        self.found["engine"] = engine.compare(contestants, args.threads, args.rounds)
        self.found["missing"] |= self.found["engine"]["missing"]
        if engine.OURS not in self.found["missing"]:
            self.found["roofline"] = {threads: self.roofline(threads) for threads in args.threads}

    def candle(self, threads: int) -> Child:
        """The tensor library's own model; its threads are told by a variable."""
        return self.forward(self.args.model, threads, 16, "--engine=candle", env={"RAYON_NUM_THREADS": str(threads)})

    def roofline(self, threads: int) -> dict:
        """The machine's peaks, measured with large pages."""
        child = self.forward(self.args.model, threads, 16, env=LARGE_PAGES)
        try:
            return engine.roofline(child, child.hello["weight_bytes"])
        finally:
            child.close()

    def formats(self) -> None:
        """The same model in other formats."""
        self.found["formats"] = {}
        for file in self.args.formats:
            part = engine.compare(self.contestants(file, engine.FORMAT_CASES), self.args.threads, self.args.rounds)
            self.found["missing"] |= {f"{name} on {file.name}": why for name, why in part["missing"].items()}
            for threads, cases in part["threads"].items():
                self.found["formats"].setdefault(threads, {})[file.name] = cases

    def http(self) -> None:
        """Whole servers."""
        args, threads, plan = self.args, max(self.args.threads), self.args.plan
        with Sink() as sink:
            common = (threads, plan["kv"], plan["slots"])
            starters = {
                engine.OURS: lambda: Radiosonde(args.radiosonde, args.model, *common, sink.url, self.folder),
            }
            if not args.smoke:
                starters["llama-server"] = lambda: LlamaServer(args.llama_server, args.model, *common, self.folder)
            self.found["http"] = serving.compare(starters, plan, min(args.rounds, plan["rounds"]))
        self.found["missing"] |= self.found["http"]["missing"]

    def embeddings(self) -> None:
        """An encoder."""
        args, threads = self.args, max(self.args.threads)

        def ours():
            if not args.embedding_model:
                raise Missing("no --embedding-model was given")
            server = Radiosonde(args.radiosonde, args.embedding_model, threads, 16_384, 32, sink.url, self.folder)
            return embeddings.OverHttp(server, args.seconds)

        def onnxruntime():
            if not args.onnx_model or not args.onnx_tokenizer:
                raise Missing("no --onnx-model with --onnx-tokenizer was given")
            script = Path(__file__).with_name("onnx_child.py")
            command = [args.onnx_python, str(script), f"--model={args.onnx_model}", f"--tokenizer={args.onnx_tokenizer}"]
            return Child([*command, f"--threads={threads}", f"--seconds={args.seconds}"], self.folder / "onnx.log")

        with Sink() as sink:
            starters = {engine.OURS: ours, "onnxruntime": onnxruntime}
            self.found["embeddings"] = embeddings.compare(starters, args.rounds)
        self.found["missing"] |= {f"{name} (embeddings)": why for name, why in self.found["embeddings"]["missing"].items()}


def build(args: argparse.Namespace) -> None:
    """Builds what was not given."""
    if not args.forward and {"engine", "formats"} & set(args.parts):
        args.forward = engine.built_forward(cargo("bench", "--no-run", "--bench", "forward", "--message-format=json"))
    if not args.radiosonde and {"http", "embeddings"} & set(args.parts):
        cargo("build", "--release")
        args.radiosonde = ROOT / "target/release/radiosonde"


def cargo(command: str, *flags: str) -> str:
    """What cargo prints; its complaints go where ours go."""
    done = subprocess.run(["cargo", command, "--locked", *flags], cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"cargo {command} ended with code {done.returncode}")
    return done.stdout


def measure(args: argparse.Namespace) -> dict:
    """Runs all parts."""
    build(args)
    with tempfile.TemporaryDirectory(prefix="radiosonde-compare-") as folder:
        run = Run(args, Path(folder))
        for part in args.parts:
            say(f"== {part}")
            getattr(run, part)()
        run.found["peers"] = versions(args, run.found)
    # As it will be read back: keys of JSON are texts.
    return json.loads(json.dumps(run.found))


def main() -> int:
    """Measures, or reads what was measured; prints, and writes where that was asked for."""
    args = parse(__doc__)
    # So that servers are stopped when somebody stops this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    if args.read:
        found = json.loads(args.read.read_text(encoding="utf-8"))
    else:
        args.model = args.model or default_model()
        found = measure(args)
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        say(f"written: {args.json}")
    text = report.markdown(found)
    print(text)
    if args.write:
        report.write(args.write, text)
    # A peer may be missing. Who is compared with them may not.
    return 1 if engine.OURS in found["missing"] else 0


if __name__ == "__main__":
    sys.exit(main())
