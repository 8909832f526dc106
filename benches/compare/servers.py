"""The servers under comparison: how each is started, asked and measured."""

import http.client
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

from child import Missing, last_line
from load import get

READY_WITHIN = 120


class Server:
    """A server's process; made by starting it. `ready_seconds` is from there to its first healthy answer."""

    name: str
    probes: list[str]

    def __init__(self, command: list, log: Path):
        if not Path(command[0]).exists():
            raise Missing(f"{command[0]} does not exist")
        began = time.perf_counter()
        with log.open("wb") as errors:
            # Nobody reads its words while it is measured, so they go to a file and never fill a pipe.
            self.process = subprocess.Popen([str(part) for part in command], stdout=errors, stderr=errors)
        try:
            self.port = self.find_port(log)
            self.wait(self.healthy, log)
        except Missing:
            self.stop()
            raise
        self.ready_seconds = time.perf_counter() - began

    def wait(self, ready, log: Path):
        """What `ready` returns, as soon as it is something."""
        until = time.perf_counter() + READY_WITHIN
        while time.perf_counter() < until:
            if self.process.poll() is not None:
                raise Missing(f"{self.name} ended with code {self.process.returncode}: {last_line(log)}")
            if found := ready():
                return found
            time.sleep(0.005)
        raise Missing(f"{self.name} was not ready within {READY_WITHIN} s: {last_line(log)}")

    def healthy(self) -> bool:
        """It says that it can serve."""
        try:
            return get(self.port, "/health")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def resident_bytes(self) -> int:
        """Memory in use, of all its processes."""
        pids, total = [self.process.pid], 0
        while pids:
            pid = pids.pop()
            total += int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1)) * 1024
            for task in Path(f"/proc/{pid}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
        return total

    def stop(self) -> None:
        """Asks it to end, and sees to it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Radiosonde(Server):
    """Ours, with everything on: probes, traces of every request, JSON logs."""

    name = "radiosonde"
    probes = ["/health", "/health_generate"]

    def __init__(self, binary: Path, model: Path | str, threads: int, kv: int, slots: int, sink: str, folder: Path):
        command = [binary, "--port=0", f"--model={model}", f"--threads={threads}", f"--max-total-tokens={kv}"]
        command += [f"--max-running-requests={slots}", f"--otlp-traces-endpoint={sink}", "--log-format=json"]
        command += ["--otlp-traces-protocol=http/protobuf", f"--incidents={folder / 'incidents'}"]
        super().__init__(command, folder / "radiosonde.log")

    def find_port(self, log: Path) -> int:
        """It takes a free one and prints it."""
        pattern = r"radiosonde listening on http://127\.0\.0\.1:(\d+)"
        return int(self.wait(lambda: re.search(pattern, log.read_text(errors="replace")), log).group(1))

    def request(self, ids: list[int], max_tokens: int) -> tuple[str, dict]:
        """Path and body of a streaming request."""
        sampling = {"max_new_tokens": max_tokens, "ignore_eos": True, "temperature": 0}
        return "/generate", {"input_ids": ids, "stream": True, "sampling_params": sampling}

    def count_tokens(self, event: dict) -> int:
        """Tokens of the answer, by its last event."""
        return event["meta_info"]["completion_tokens"]

    def steps(self) -> dict[float, int]:
        """How many steps took at most so long, by the upper edges of the histogram's buckets."""
        pattern = r"^radiosonde_scheduler_step_duration_seconds_bucket\{(.*)\} (\d+)"
        page, found = get(self.port, "/metrics")[1].decode(), {}
        for labels, count in re.findall(pattern, page, re.MULTILINE):
            edge = float(re.search(r'le="([^"]+)"', labels).group(1))
            found[edge] = found.get(edge, 0) + int(count)
        return found


class LlamaServer(Server):
    """llama.cpp's server. Its `/health` says that the HTTP thread lives and the model was loaded; it has no other."""

    name = "llama-server"
    probes = ["/health"]

    def __init__(self, binary: Path, model: Path, threads: int, kv: int, slots: int, folder: Path):
        self.chosen = free_port()
        command = [binary, "-m", model, "-t", threads, "-tb", threads, "-np", slots, "-c", kv, "-cb"]
        command += ["--port", self.chosen, "--host", "127.0.0.1", "-ngl", 0]
        super().__init__(command, folder / "llama-server.log")

    def find_port(self, _log: Path) -> int:
        """It was told which."""
        return self.chosen

    def request(self, ids: list[int], max_tokens: int) -> tuple[str, dict]:
        """Path and body of a streaming request."""
        body = {"prompt": ids, "n_predict": max_tokens, "ignore_eos": True, "temperature": 0, "stream": True}
        return "/completion", body | {"cache_prompt": False}

    def count_tokens(self, event: dict) -> int:
        """Tokens of the answer, by its last event."""
        return event["tokens_predicted"]


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
