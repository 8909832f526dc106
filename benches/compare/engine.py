"""Forward passes without a server: engines in turn, case by case, round by round."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from child import Missing

PROMPTS = ["prefill:128", "prefill:512", "prefill:2048"]
STREAMS = ["decode:1:128", "decode:8:128", "decode:32:128"]
LONG = ["decode:8:2048", "decode:32:2048", "decode:1:6000"]
CASES = [*PROMPTS, *STREAMS, *LONG]
FORMAT_CASES = ["prefill:512", "decode:1:128"]
OURS = "radiosonde"
OURS_INT8 = "radiosonde, int8 KV"


@dataclass
class Contestant:
    """An engine on a file, under the name that the table gives it."""

    name: str
    start: Callable  # (threads) -> Child
    cases: list[str]


def kv_tokens(cases: list[str]) -> int:
    """The KV pool that these cases need."""
    return max(streams * (context + 16) for streams, context in map(shape, cases))


def shape(case: str) -> tuple[int, int]:
    """Streams, and tokens of each."""
    name, *numbers = case.split(":")
    return (int(numbers[0]), int(numbers[1])) if name == "decode" else (1, int(numbers[0]))


def compare(contestants: list[Contestant], threads: list[int], rounds: int) -> dict:
    """Tokens per second of each round: `{threads: {case: {name: [..]}}}`, and what each engine said when it started."""
    found, hellos, missing = {}, {}, {}
    for turn in range(rounds):
        for count in threads:
            children = start(contestants, count, hellos, missing)
            try:
                one_round(children, found.setdefault(count, {}), turn)
            finally:
                for child, _ in children.values():
                    child.close()
            say(f"round {turn + 1} of {rounds}, {count} threads: done")
    return {"threads": found, "hellos": hellos, "missing": missing}


def start(contestants: list[Contestant], count: int, hellos: dict, missing: dict) -> dict:
    """Those that start; the others are said once, and left out."""
    children = {}
    for contestant in contestants:
        if contestant.name in missing:
            continue
        try:
            child = contestant.start(count)
        except Missing as error:
            missing[contestant.name] = str(error)
            say(f"{contestant.name} is left out: {error}")
            continue
        children[contestant.name] = (child, contestant.cases)
        hellos.setdefault(contestant.name, []).append(child.hello)
    return children


def one_round(children: dict, found: dict, turn: int) -> None:
    """Each case on each engine; who begins changes from case to case and from round to round."""
    cases = [case for case in CASES if any(case in cases for _, cases in children.values())]
    for number, case in enumerate(cases):
        names = [name for name, (_, cases) in children.items() if case in cases]
        first = (number + turn) % len(names)
        for name in names[first:] + names[:first]:
            answer = attempt(children[name][0], case)
            if "error" in answer:
                say(f"{name}, {case}: {answer['error']}")
            else:
                rate = answer["units"] / median(answer["seconds"])
                found.setdefault(case, {}).setdefault(name, []).append(rate)


def attempt(child, case: str) -> dict:
    """The answer; an engine that fails or dies is no reason to lose the others' figures."""
    try:
        return child.measure(case)
    except Missing as error:
        return {"error": str(error)}


def roofline(child, model_bytes: int) -> dict:
    """Peaks of the machine: bytes per second from memory and out of a buffer as large as the model, and int8
    multiply-adds per second."""
    cases = {"memory": "bandwidth:1024", "model_sized": f"bandwidth:{max(model_bytes >> 20, 1)}", "int8": "int8"}
    peaks = {}
    for name, case in cases.items():
        answer = child.measure(case)
        peaks[name] = answer["units"] / min(answer["seconds"])
    return peaks


def shares(hello: dict, peaks: dict, case: str, tokens_per_second: float) -> dict:
    """How much of the peaks a case uses: what a pass must read and multiply at least, over what the machine could."""
    streams, context = shape(case)
    if case.startswith("decode"):
        steps = tokens_per_second / streams
        read = hello["weight_bytes"] + streams * context * hello["kv_bytes_per_token"]
        return {"bytes_per_second": steps * read, "of_bandwidth": steps * read / peaks["memory"]}
    macs = tokens_per_second * (hello["layer_macs"] + hello["head_macs"] / context)
    return {"macs_per_second": macs, "of_int8": macs / peaks["int8"]}


def built_forward(messages: str) -> Path:
    """Where cargo put our half, by what it printed."""
    built = [json.loads(line) for line in messages.splitlines() if line.startswith("{")]
    ours = [line for line in built if line.get("target", {}).get("name") == "forward" and line.get("executable")]
    return Path(ours[-1]["executable"])


def say(text: str) -> None:
    """Progress, for whoever waits."""
    print(text, file=sys.stderr, flush=True)
