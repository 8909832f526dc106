"""Tables of a run, as markdown."""

from pathlib import Path
from statistics import median

import goals
from engine import CASES, FORMAT_CASES, OURS, OURS_INT8, shares
from figures import quantile, ratio, summary

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
# What a system at rest needs for itself.
BUSY = 0.1
LLAMA, REPACKED = "llama.cpp", "llama.cpp, Q4_0"


def markdown(run: dict) -> str:
    """All that was measured, a table for each part."""
    parts = [conditions(run)]
    for threads, cases in run.get("engine", {}).get("threads", {}).items():
        parts.append(engine(int(threads), cases))
    if "roofline" in run:
        parts.append(roofline(run))
    for threads, files in run.get("formats", {}).items():
        parts.append(formats(int(threads), files))
    if "http" in run:
        parts += [load(run["http"]), probes(run["http"]), memory(run["http"])]
    if "embeddings" in run:
        parts.append(embeddings(run["embeddings"]))
    return "\n\n".join(part for part in parts if part) + "\n"


def conditions(run: dict) -> str:
    """What, when, where, and who could not take part."""
    machine = run["machine"]
    lines = [
        f"Measured {run['when']} at commit {run['commit']}, rounds: {run['rounds']}. {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, {machine['busy_before']:.0%} busy before. Model: `{run['model']}`."
    ]
    if run["peers"]:
        lines.append("Peers: " + "; ".join(f"{name} {version}" for name, version in run["peers"].items()) + ".")
    if machine["busy_before"] > BUSY:
        lines.append("The machine was busy: take the ratios, not the figures.")
    lines += [f"{name} did not take part: {why}" for name, why in run["missing"].items()]
    return "\n\n".join(lines)


def table(title: str, head: list[str], rows: list[list[str]]) -> str:
    """One table; nothing without rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return f"### {title}\n\n" + "\n".join("| " + " | ".join(row) + " |" for row in lines)


def spread(values: list[float], form: str = ".0f") -> str:
    """`median (min to max)`."""
    found = summary(values)
    if len(values) == 1:
        return f"{found['median']:{form}}"
    return f"{found['median']:{form}} ({found['min']:{form}} to {found['max']:{form}})"


def name_of(case: str) -> str:
    """A case in words."""
    kind, first, *rest = case.split(":")
    if kind == "prefill":
        return f"prefill {first}"
    alone = f"decode, context {rest[0]}" if rest else kind
    return alone if first == "1" else f"{alone}, {first} streams"


def engine(threads: int, cases: dict) -> str:
    """Tokens per second of each engine, and ours over theirs."""
    peers = sorted({name for rates in cases.values() for name in rates if name not in (OURS, OURS_INT8)})
    rows = []
    for case in (case for case in CASES if OURS in cases.get(case, {})):
        rates = cases[case]
        row = [name_of(case), spread(rates[OURS]), spread(rates[OURS_INT8]) if OURS_INT8 in rates else ""]
        for peer in peers:
            row += against(rates, peer)
        rows.append([*row, "; ".join(filter(None, [goal(case, rates), against_repacked(case, rates)]))])
    head = ["case", OURS, OURS_INT8, *(cell for peer in peers for cell in (peer, "ratio")), f"goal against {LLAMA}"]
    title = f"Engine, {threads} thread{'s' * (threads > 1)}, tokens/s"
    return "\n\n".join(filter(None, [table(title, head, rows), long_context(cases)]))


def against(rates: dict, peer: str) -> list[str]:
    """A peer's speed, and ours over it."""
    if peer not in rates:
        return ["", ""]
    return [spread(rates[peer]), spread(ratio(rates[OURS], rates[peer])["rounds"], ".2f")]


def goal(case: str, rates: dict) -> str:
    """The goal on the same file."""
    if LLAMA not in rates:
        return ""
    return goals.at_least(ratio(rates[OURS], rates[LLAMA])["median"], goals.ENGINE.get(case))


def against_repacked(case: str, rates: dict) -> str:
    """The goal against the peer's fastest form of the model."""
    if REPACKED not in rates or case != "prefill:512":
        return ""
    value = ratio(rates[OURS], rates[REPACKED])["median"]
    return f"{goals.at_least(value, goals.PREFILL_AGAINST_REPACKED)} on Q4_0"


def long_context(cases: dict) -> str:
    """What is left of the speed far into a text."""
    near, far = cases.get("decode:1:128", {}), cases.get("decode:1:6000", {})
    kept = {name: ratio(far[name], near[name])["median"] for name in far if name in near}
    if OURS not in kept:
        return ""
    said = [f"{name} {share:.0%}" for name, share in kept.items() if name not in (OURS, OURS_INT8)]
    for name in (name for name in (OURS, OURS_INT8) if name in kept):
        said.append(f"{name} {kept[name]:.0%} ({goals.at_least(100 * kept[name], 100 * goals.LONG_CONTEXT, ' %')})")
    return f"Decode at 6,000 tokens as a share of decode at 128: {', '.join(said)}."


def roofline(run: dict) -> str:
    """The machine's limits, and how near we are."""
    rows = []
    for threads, peaks in run["roofline"].items():
        hello = next(hello for hello in run["engine"]["hellos"][OURS] if str(hello["threads"]) == threads)
        cases = run["engine"]["threads"][threads]
        for case in (case for case in CASES if OURS in cases.get(case, {})):
            found = shares(hello, peaks, case, median(cases[case][OURS]))
            cells = of_int8(found, peaks) if "of_int8" in found else of_bandwidth(found, peaks, case, int(threads))
            rows.append([threads, name_of(case), *cells])
    return table("Share of what the machine can do", ["threads", "case", "used", "measured peak", "share", "goal"], rows)


def of_int8(found: dict, peaks: dict) -> list[str]:
    """Of a prompt."""
    used, peak = found["macs_per_second"] / 1e9, peaks["int8"] / 1e9
    return [f"{used:.0f} G", f"{peak:.0f} G multiply-adds/s", f"{found['of_int8']:.0%}", ""]


def of_bandwidth(found: dict, peaks: dict, case: str, threads: int) -> list[str]:
    """Of decode."""
    memory, buffer = peaks["memory"] / 1e9, peaks["model_sized"] / 1e9
    wanted = 100 * goals.BANDWIDTH if case == "decode:1:128" and threads > 1 else None
    verdict = goals.at_least(100 * found["of_bandwidth"], wanted, " %")
    used = f"{found['bytes_per_second'] / 1e9:.1f} GB/s"
    return [used, f"{memory:.1f} GB/s ({buffer:.1f} in a buffer like the model)", f"{found['of_bandwidth']:.0%}", verdict]


def formats(threads: int, files: dict) -> str:
    """The same model in other formats: each engine on the same file."""
    rows = []
    for file, cases in files.items():
        for case in (case for case in FORMAT_CASES if OURS in cases.get(case, {})):
            rates = cases[case]
            row = [f"`{file}`", name_of(case), spread(rates[OURS])]
            if LLAMA in rates:
                ours = ratio(rates[OURS], rates[LLAMA])
                row += [*against(rates, LLAMA), goals.at_least(ours["median"], goals.FORMATS[case])]
            rows.append(row + [""] * (6 - len(row)))
    title = f"Formats, {threads} thread{'s' * (threads > 1)}, tokens/s"
    return table(title, ["file", "case", OURS, LLAMA, "ratio", "goal"], rows)


def ms(values: list[float]) -> str:
    """Seconds as milliseconds."""
    return spread([1e3 * value for value in values])


def load(http: dict) -> str:
    """Streaming clients."""
    rows = []
    for level, servers in http["levels"].items():
        for name, rounds in ours_first(servers):
            column = {key: [row[key] for row in rounds] for key in ("tokens_per_second", "ttft_p50", "ttft_p95")}
            row = [level, name, spread(column["tokens_per_second"]), ms(column["ttft_p50"]), ms(column["ttft_p95"])]
            rows.append([*row, against_server(level, column, servers) if name == OURS else ""])
    head = ["clients", "server", "tokens/s", "TTFT p50, ms", "TTFT p95, ms", "against llama-server"]
    return table("Streaming clients over HTTP", head, rows)


def ours_first(servers: dict) -> list[tuple]:
    """In the order of the other tables, not in that in which they ran."""
    return sorted(servers.items(), key=lambda item: item[0] != OURS)


def against_server(level: str, ours: dict, servers: dict) -> str:
    """Ratios, with goals at 16 clients."""
    theirs = servers.get("llama-server")
    if not theirs:
        return ""
    rate = ratio(ours["tokens_per_second"], [row["tokens_per_second"] for row in theirs])["median"]
    first = ratio(ours["ttft_p95"], [row["ttft_p95"] for row in theirs])["median"]
    said = [f"{rate:.2f}x tokens/s", f"{first:.2f}x TTFT p95"]
    if int(level) == 16:
        said[0] += f" ({goals.at_least(rate, goals.TOKENS_PER_SECOND_AT_16)})"
        said[1] += f" ({goals.at_most(first, goals.TTFT_P95_AT_16)})"
    return ", ".join(said)


def probes(http: dict) -> str:
    """How long probes take, at rest and under load."""
    rows = []
    for name, paths in http["idle"].items():
        rows += [[name, path, "idle", *latencies(seconds), "", ""] for path, seconds in paths.items()]
    for level, servers in http["levels"].items():
        rows += [busy_probes(level, name, rounds) for name, rounds in ours_first(servers)]
    made = table("Probes", ["server", "path", "load", "p50, ms", "p99, ms", "longest step, ms", "goal"], rows)
    return f"{made}\n\nllama-server's `/health` says that its HTTP thread lives; radiosonde's went through the runtime."


def busy_probes(level: str, name: str, rounds: list[dict]) -> list[str]:
    """Probes beside some clients, of all rounds together."""
    seconds = [second for row in rounds for second in row["probes"]]
    steps = [row["longest_step"] for row in rounds if row["longest_step"]]
    failed = sum(row["probe_failures"] for row in rounds)
    step, verdict = f"≤ {1e3 * max(steps):.0f}" if steps else "", ""
    if steps and int(level) == 16:
        limit = 1e3 * max(steps) + goals.PROBE_ABOVE_STEP_MS
        verdict = goals.at_most(1e3 * quantile(seconds, 0.99), limit, " ms")
    clients = f"{level} clients" + (f", {failed} failed" if failed else "")
    return [name, "/health", clients, *latencies(seconds), step, verdict]


def latencies(seconds: list[float]) -> list[str]:
    """p50 and p99 in milliseconds."""
    return [f"{1e3 * quantile(seconds, 0.5):.1f}", f"{1e3 * quantile(seconds, 0.99):.1f}"] if seconds else ["", ""]


def memory(http: dict) -> str:
    """Memory and start."""
    rows = []
    theirs = http["memory"].get("llama-server")
    for name, rounds in http["memory"].items():
        row = [name, spread([1e3 * found["ready_seconds"] for found in rounds])]
        row += [spread([found[key] / 1e6 for found in rounds]) for key in ("at_rest", "after_load")]
        verdict = ""
        if name == OURS and theirs:
            found = ratio([row["after_load"] for row in rounds], [row["after_load"] for row in theirs])["median"]
            verdict = f"{found:.2f}x, {goals.at_most(found, goals.RESIDENT)}"
        rows.append([*row, verdict])
    return table("Start and memory", ["server", "ready after, ms", "resident when ready, MB", "after the load, MB", "goal"], rows)


def embeddings(found: dict) -> str:
    """Texts per second."""
    rates = found["rates"]
    rows = [[name, spread(values)] for name, values in rates.items()]
    made = table(f"Embeddings, batches of {found['texts']} texts", ["engine", "texts/s"], rows)
    if OURS in rates and "onnxruntime" in rates:
        value = ratio(rates[OURS], rates["onnxruntime"])["median"]
        made += f"\n\nRatio {value:.2f} ({goals.at_least(value, goals.EMBEDDINGS)})."
    return made


def write(path: Path, text: str) -> None:
    """Puts `text` between the markers of a page."""
    page = path.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n{text}{END}{after}", encoding="utf-8")
