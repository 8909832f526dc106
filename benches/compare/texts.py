"""Texts to embed: from a few words to a paragraph, the same in every run."""

WORDS = (
    "the balloon rises through cloud and ice while a small radio tells the ground what it meets layer by layer pressure "
    "temperature humidity wind and nobody has to guess which one of them was wrong when the forecast failed"
).split()
SHORTEST, LONGEST = 8, 128


def texts(count: int) -> list[str]:
    """`count` texts of `SHORTEST` to `LONGEST` words, evenly spread and mixed."""
    spread = LONGEST - SHORTEST
    lengths = [SHORTEST + (i * 7 % count) * spread // max(count - 1, 1) for i in range(count)]
    return [" ".join(WORDS[(i * 5 + j) % len(WORDS)] for j in range(length)) for i, length in enumerate(lengths)]
