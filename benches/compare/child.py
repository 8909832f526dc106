"""Engines in processes of their own, which are given cases one by one and answer each with a line of JSON."""

import contextlib
import json
import os
import subprocess
from pathlib import Path


class Missing(Exception):
    """A peer that is not on this machine, or does not start; the message says why."""


class Child:
    """A process that prints what it loaded, then reads a case a line and prints what came of it."""

    def __init__(self, command: list[str], log: Path, env: dict[str, str] | None = None):
        """Starts `command`, whose complaints go to `log`, and waits until its model is loaded."""
        env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | (env or {})
        with log.open("ab") as errors:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            self.process = subprocess.Popen(command, **pipes, text=True, env=env)
        try:
            self.hello = self.read()
        except Missing as error:
            raise Missing(f"{error}: {last_line(log)}") from None

    def read(self) -> dict:
        """The next line."""
        line = self.process.stdout.readline()
        if not line:
            raise Missing(f"{Path(self.process.args[0]).name} ended with code {self.process.wait()}")
        return json.loads(line)

    def measure(self, case: str) -> dict:
        """Runs a case: `units` done in each of `seconds`, or an `error`."""
        # Where it has ended, reading says it better.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(case + "\n")
            self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        """Lets it end."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def last_line(log: Path) -> str:
    """The last words of a process."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
