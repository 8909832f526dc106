"""Where and with what a run was made."""

import os
import platform
import re
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

from servers import cores

DEFAULT_MODEL = "models/SmolLM2-135M-Instruct.Q4_1.gguf"


def conditions(root: Path, args) -> dict:
    """Date, commit, machine, and what was asked for."""
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(root),
        "machine": {
            "cpu": processor(),
            "cores": cores(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "busy_before": busy(),
            "kernel": platform.release(),
        },
        "model": Path(args.model).name,
        "rounds": args.rounds,
        "seconds": args.seconds,
        "plan": args.plan,
        "missing": {},
    }


def commit(root: Path) -> str:
    """The commit that was built, and whether it was changed."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def processor() -> str:
    """What the kernel calls it, and the instructions that matter here."""
    info = Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
    flags = set(re.search(r"^flags\s*: (.*)$", info, re.MULTILINE).group(1).split()) if "flags" in info else set()
    wanted = ["avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8"]
    return f"{name.group(1) if name else platform.machine()} ({', '.join(flag for flag in wanted if flag in flags)})"


def busy(seconds: float = 2.0) -> float:
    """The share of the processors' time that others use right now, the hypervisor's other guests among them."""

    def times() -> tuple[int, int]:
        fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return fields[3] + fields[4], sum(fields)

    idle, total = times()
    time.sleep(seconds)
    idle_after, total_after = times()
    return 1 - (idle_after - idle) / max(total_after - total, 1)


def default_model() -> Path:
    """The server's default model, where the server keeps it."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "radiosonde"
    path = Path(os.environ.get("RADIOSONDE_CACHE") or home) / DEFAULT_MODEL
    if not path.exists():
        raise SystemExit(f"{path} does not exist: start the server once, it fetches it; or name a file with --model")
    return path


def versions(args, found: dict) -> dict:
    """The peers that took part, as they call themselves."""
    made = {}
    if "llama.cpp" in found.get("engine", {}).get("hellos", {}):
        hello = found["engine"]["hellos"]["llama.cpp"][0]
        made["llama.cpp"] = hello.get("version", str(args.llama_bench))
    if "llama-server" in found.get("http", {}).get("memory", {}):
        done = subprocess.run([args.llama_server, "--version"], capture_output=True, text=True, check=False)
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("version")]
        made["llama-server"] = lines[0].removeprefix("version: ") if lines else "unknown"
    return made
