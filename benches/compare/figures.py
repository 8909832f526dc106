"""Medians, spreads and ratios of rounds."""

from statistics import median


def quantile(values: list[float], q: float) -> float:
    """The value below which a share of `q` lies; one that was measured, none in between."""
    ordered = sorted(values)
    return ordered[round((len(ordered) - 1) * q)]


def summary(rounds: list[float]) -> dict:
    """The median of some rounds, and how far they lie apart."""
    return {"median": median(rounds), "min": min(rounds), "max": max(rounds), "rounds": rounds}


def ratio(ours: list[float], theirs: list[float]) -> dict:
    """Ours over theirs, round by round, so that what a machine does meanwhile is in both; then the median.

    A peer that died in a later round has fewer.
    """
    return summary([our / their for our, their in zip(ours, theirs, strict=False)])
