"""Whole servers under streaming clients, one server after the other, level by level and round by round."""

import time

from child import Missing
from engine import say
from figures import quantile
from load import Beat, clients, get

LEVELS = [1, 4, 16, 32]
PROBE_EVERY = 0.1
SCRAPE_EVERY = 1.0
IDLE_PROBES = 50


def compare(starters: dict, plan: dict, rounds: int) -> dict:
    """What each round found: `{"levels": {clients: {server: [..]}}, "idle": .., "memory": .., "missing": ..}`."""
    found = {"levels": {}, "idle": {}, "memory": {}, "missing": {}}
    for turn in range(rounds):
        servers = start(starters, found["missing"])
        try:
            for server in servers:
                idle(server, found["idle"])
            for number, level in enumerate(plan["levels"]):
                first = (number + turn) % max(len(servers), 1)
                for server in servers[first:] + servers[:first]:
                    row = under_load(server, level, plan, turn)
                    found["levels"].setdefault(level, {}).setdefault(server.name, []).append(row)
            for server in servers:
                memory = {"ready_seconds": server.ready_seconds, "at_rest": server.at_rest}
                memory["after_load"] = server.resident_bytes()
                found["memory"].setdefault(server.name, []).append(memory)
        finally:
            for server in servers:
                server.stop()
        say(f"round {turn + 1} of {rounds} over HTTP: done")
    return found


def start(starters: dict, missing: dict) -> list:
    """Those that start, one after the other, so that none disturbs another's start."""
    servers = []
    for name, starter in starters.items():
        if name in missing:
            continue
        try:
            server = starter()
        except Missing as error:
            missing[name] = str(error)
            say(f"{name} is left out: {error}")
            continue
        server.at_rest = server.resident_bytes()
        servers.append(server)
    return servers


def idle(server, found: dict) -> None:
    """Probes of a server that has nothing else to do."""
    for path in server.probes:
        for _ in range(IDLE_PROBES):
            began = time.perf_counter()
            status, body = get(server.port, path)
            if status != 200:
                raise RuntimeError(f"{server.name}{path} answered {status}: {body[:200]}")
            found.setdefault(server.name, {}).setdefault(path, []).append(time.perf_counter() - began)


def under_load(server, level: int, plan: dict, turn: int) -> dict:
    """Clients, probes and scrapes at the same time."""
    each = max(1, min(plan["requests"], plan["slots"] // level))
    steps = getattr(server, "steps", dict)
    before = steps()
    with Beat(server.port, "/health", PROBE_EVERY) as probes, Beat(server.port, "/metrics", SCRAPE_EVERY):
        seed = 1 + turn * 10_000 + level * 100
        done = clients(server, level, each, plan, seed)
    seconds = max(request["ended"] for request in done) - min(request["sent"] for request in done)
    first = [request["first"] - request["sent"] for request in done]
    return {
        "tokens_per_second": sum(request["tokens"] for request in done) / seconds,
        "ttft_p50": quantile(first, 0.5),
        "ttft_p95": quantile(first, 0.95),
        "probes": probes.seconds,
        "probe_failures": probes.failures,
        "longest_step": longest(before, steps()),
    }


def longest(before: dict, after: dict) -> float | None:
    """The upper edge of the bucket of the longest step between two scrapes."""
    counts = {edge: after[edge] - before.get(edge, 0) for edge in sorted(after)}
    total = max(counts.values(), default=0)
    return next((edge for edge, count in counts.items() if total and count == total), None)
