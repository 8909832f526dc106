"""Panels that stand on more than one dashboard."""

from .board import board, runbook, traces
from .panels import AMBER, BLUE, GREEN, GREY, RED, Panel, Query, lines, stat, steps, table, timeline, values
from .promql import equals, increase, rate, series, share, sum_by

# What a probe's end says about health: the others are nobody's fault (draining, starting) or say nothing.
GOOD = 'outcome="ok"'
JUDGED = 'outcome=~"ok|timeout|engine_dead|error"'

STATUS = values(starting=(1, BLUE), up=(2, GREEN), draining=(3, GREY), unhealthy=(4, RED), not_scraped=(5, "purple"))
# The text of the cell that was clicked.
CLICKED = "${__value.text}"

SUCCESS = steps((None, RED), (0.95, AMBER), (0.99, GREEN))


def status_timeline(width: int = 24) -> Panel:
    """What every server says of itself, and whether it says anything at all."""
    codes = [("starting", 1), ("up", 2), ("draining", 3), ("unhealthy", 4)]
    said = [f"{code} * {series('radiosonde_server_status', equals('status', status))}" for status, code in codes]
    silent = f"5 * (1 - {series('up')})"
    return timeline(
        "Status of each instance",
        "Is it alive? Red: the last probe failed or the engine is dead, so traffic should be elsewhere; look at "
        "'Failures by hop and cause' next. Purple: Prometheus cannot scrape it, so the process or the network is gone. "
        "Blue for longer than the model takes to load: read the log. Grey is a drain that somebody asked for.",
        "short",
        Query(f"max by (instance) ({' or '.join([*said, silent])})", "{{instance}}"),
        thresholds=steps((None, GREY)), mappings=STATUS, width=width, height=6,
        links=[runbook("RadiosondeUnhealthy"), runbook("RadiosondeDown")],
    )


def probe_success(width: int = 8, height: int = 6) -> Panel:
    """The share of good verdicts, one tile for each instance."""
    good = rate("radiosonde_health_probe_total", GOOD)
    judged = rate("radiosonde_health_probe_total", JUDGED)
    return stat(
        "Probes that succeed",
        "Which instance fails its probes? One tile each; starting, draining and paused servers are left out. Anything "
        "below 99 % for more than a minute is an incident of that instance, however good the others look. No tile: "
        "nobody probes it.",
        "percentunit", Query(share("instance", good, judged), "{{instance}}"),
        thresholds=SUCCESS, width=width, height=height,
        links=[runbook("RadiosondeProbesFailing"), traces("Probes that timed out, in Jaeger", probe__outcome="timeout")],
    )


def failures_table(width: int = 12, height: int = 7) -> Panel:
    """Where and why probes failed in the time that is shown."""
    failed = "increase(" + series("radiosonde_health_probe_failures_total") + "[$__range])"
    return table(
        "Failures by hop and cause",
        "Which hop is sick, and why? Failed probes in the time shown. The hop says where to look, the cause what to do: "
        "docs/runbooks has a table. Empty is good. Counts are extrapolated, so they can be fractions.",
        "none", Query(f"{sum_by('instance, hop, cause', failed)} > 0.5"),
        columns=["instance", "hop", "cause"], value="failed probes", empty="no probe failed",
        column_links={
            "instance": [board("radiosonde-probe-path", "Probe path of this instance", "__value.text")],
            "hop": [traces("Traces that stalled here", probe__stalled_at=CLICKED)],
            "cause": [traces("Traces with this cause", probe__cause=CLICKED)],
        },
        width=width, height=height, links=[runbook("RadiosondeProbesFailing")],
    )


def failures_over_time(width: int = 12, height: int = 7) -> Panel:
    """When probes failed."""
    failed = increase("radiosonde_health_probe_failures_total")
    return lines(
        "Failed probes over time",
        "When did it begin, and did the cause change? A first step_stuck that turns into engine_dead is a restart that "
        "did not help. Bars at the same moment on all instances: look for what they share (host, storage, deployment).",
        "short", Query(f"{sum_by('instance, hop, cause', failed)} > 0", "{{instance}} {{hop}} {{cause}}"),
        stacked=True, bars=True, color=RED, width=width, height=height, links=[runbook("RadiosondeProbesFailing")],
    )


def firing_alerts(width: int = 12, height: int = 7) -> Panel:
    """What pages somebody at this moment."""
    alerts = series("ALERTS", 'alertstate="firing"', 'alertname=~"Radiosonde.+"', 'severity!="none"')
    open_runbook = {"title": "Runbook", "url": "${runbooks}/${__value.text}.md", "targetBlank": True}
    return table(
        "Firing alerts",
        "What has Prometheus concluded? A click on the name opens its runbook, a click on the instance its probe path. "
        "Empty while you see red elsewhere: the alert is still waiting for its time, or the rules are not loaded (see "
        "Telemetry health).",
        "none", Query(alerts),
        columns=["alertname", "severity", "instance", "hop", "cause"], empty="nothing fires",
        column_links={
            "alertname": [open_runbook],
            "instance": [board("radiosonde-probe-path", "Probe path of this instance", "__value.text")],
        },
        width=width, height=height,
    )
