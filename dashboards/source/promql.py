"""Pieces of PromQL, so that no panel forgets the job, the instance or the rate interval."""

SELECTED = 'job=~"$job", instance=~"$instance"'
PER_INSTANCE = "job, instance"


def equals(label: str, value: str) -> str:
    """A matcher for one value of a label."""
    return f'{label}="{value}"'


def series(name: str, *matchers: str) -> str:
    """The series of the selected instances."""
    return f"{name}{{{', '.join((SELECTED, *matchers))}}}"


def rate(name: str, *matchers: str) -> str:
    """How fast a counter grows, per second."""
    return f"rate({series(name, *matchers)}[$__rate_interval])"


def increase(name: str, *matchers: str) -> str:
    """By how much a counter grew in one step of the picture."""
    return f"increase({series(name, *matchers)}[$__rate_interval])"


def sum_by(labels: str, expr: str) -> str:
    """`sum by (labels) (expr)`."""
    return f"sum by ({labels}) ({expr})"


def max_by(labels: str, expr: str) -> str:
    """`max by (labels) (expr)`."""
    return f"max by ({labels}) ({expr})"


def quantile(q: float, labels: str, histogram: str, *matchers: str) -> str:
    """A quantile of a classic histogram, apart for each value of `labels`."""
    return f"histogram_quantile({q}, {sum_by(f'{labels}, le', rate(f'{histogram}_bucket', *matchers))})"


def mean(labels: str, histogram: str, *matchers: str) -> str:
    """The mean of a histogram, apart for each value of `labels`; nothing where nothing was observed."""
    total = sum_by(labels, rate(f"{histogram}_sum", *matchers))
    count = sum_by(labels, rate(f"{histogram}_count", *matchers))
    return f"{total} / ({count} > 0)"


def share(labels: str, part: str, whole: str) -> str:
    """`part` of `whole`, apart for each value of `labels`; nothing where there is no whole."""
    return f"{sum_by(labels, part)} / ({sum_by(labels, whole)} > 0)"
