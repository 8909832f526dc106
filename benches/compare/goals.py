"""What the figures are held against: ratios to llama.cpp on the same file, the same threads and the same machine."""

ENGINE = {
    "prefill:512": 7.0,
    "decode:1:128": 2.0,
    "decode:8:128": 5.0,
    "decode:32:128": 7.0,
}
PREFILL_AGAINST_REPACKED = 2.5
FORMATS = {"prefill:512": 1.5, "decode:1:128": 1.2}
TOKENS_PER_SECOND_AT_16 = 5.0
TTFT_P95_AT_16 = 0.3
PROBE_ABOVE_STEP_MS = 20
RESIDENT = 1.2
BANDWIDTH = 0.7
LONG_CONTEXT = 0.5
EMBEDDINGS = 1.0


def at_least(value: float, goal: float | None, unit: str = "x") -> str:
    """A goal and whether it is met; nothing where there is none."""
    return "" if goal is None else f"≥ {goal:g}{unit}: {'met' if value >= goal else 'missed'}"


def at_most(value: float, goal: float | None, unit: str = "x") -> str:
    """A goal and whether it is met; nothing where there is none."""
    return "" if goal is None else f"≤ {goal:g}{unit}: {'met' if value <= goal else 'missed'}"
