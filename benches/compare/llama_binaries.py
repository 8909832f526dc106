"""llama.cpp's own benchmark programs as an engine, where llama-cpp-python is not installed."""

import json
import subprocess
from pathlib import Path

from child import Missing

STEPS = 8


class LlamaBinaries:
    """Looks like a `Child`, but starts a program for each case: prompts and single streams by `llama-bench`, several
    streams by `llama-batched-bench` where that is given too."""

    def __init__(self, bench: Path, batched: Path | None, model: Path, threads: int):
        self.bench, self.batched, self.model, self.threads = bench, batched, model, threads
        self.hello = {"engine": "llama.cpp", "threads": threads}
        if not bench.exists():
            raise Missing(f"{bench} does not exist")

    def measure(self, case: str) -> dict:
        """Runs a case: `units` done in each of `seconds`, or an `error`."""
        name, *numbers = case.split(":")
        numbers = [int(number) for number in numbers]
        if name == "prefill" and len(numbers) == 1:
            found = self.alone("-p", numbers[0], "-n", 0)
        elif name == "decode" and numbers[0] == 1:
            found = self.alone("-p", 0, "-n", STEPS, "-d", numbers[1])
        elif name == "decode" and self.batched:
            found = self.together(*numbers)
        else:
            found = {"error": "not measured with these programs"}
        return {"case": case, **found}

    def alone(self, *flags) -> dict:
        """One stream."""
        command = [self.bench, "-m", self.model, "-t", self.threads, "-r", 3, "-ngl", 0, "-o", "json", *flags]
        row = json.loads(run(command))[-1]
        tokens = row["n_prompt"] + row["n_gen"]
        return {"units": tokens, "seconds": [nanos / 1e9 for nanos in row["samples_ns"]]}

    def together(self, streams: int, context: int) -> dict:
        """Several streams with a prompt of their own each, copied from one."""
        cells = streams * (context + STEPS + 256)
        command = [self.batched, "-m", self.model, "-t", self.threads, "-tb", self.threads, "-ngl", 0, "-c", cells]
        command += ["-npp", context, "-ntg", STEPS, "-npl", streams, "-pps", "--output-format", "jsonl"]
        lines = [line for line in run(command).splitlines() if line.startswith("{")]
        return {"units": streams * STEPS, "seconds": [json.loads(lines[-1])["t_tg"]]}

    def close(self) -> None:
        """Nothing is running."""


def run(command: list) -> str:
    """What a program prints."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"{command[0]} ended with code {done.returncode}: {done.stderr.strip()[-200:]}")
    return done.stdout
