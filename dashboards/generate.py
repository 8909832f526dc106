#!/usr/bin/env python3
"""Writes the dashboards. `generate.py --check` writes nothing and fails if a file is not what it should be."""

import json
import sys
from pathlib import Path

from source import overview, probe_path, requests, scheduler, telemetry

HERE = Path(__file__).resolve().parent
BOARDS = [overview, probe_path, scheduler, requests, telemetry]


def main() -> int:
    """Writes or compares every dashboard, and names those that differ."""
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        print("usage: generate.py [--check]", file=sys.stderr)
        return 2
    stale = []
    for module in BOARDS:
        board = module.build()
        path = HERE / f"{board['uid']}.json"
        text = json.dumps(board, indent=2, ensure_ascii=False) + "\n"
        if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            stale.append(path.name)
        elif not check:
            path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"dashboards/{name} is not what its source says: run dashboards/generate.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main())
