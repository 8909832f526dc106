"""What users get: rates, errors, durations, and how much of the promise is used up."""

from .board import board, dashboard, document, runbook, traces
from .panels import AMBER, BLUE, GREEN, GREY, RED, Json, Panel, Query, dashed, lines, shades, stat, steps
from .promql import quantile, rate, series, sum_by

SCHEDULER = board("radiosonde-scheduler", "Scheduler and runtime")
FAILED = traces("Failed requests in Jaeger", request__outcome="error")


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "radiosonde-requests", "radiosonde: Requests and SLO",
        "What do users get? The promise and what is left of it, then rate, errors and durations of requests, then HTTP "
        "as clients see it. Probes are in none of these but the last row.",
        [("The promise", _promise()), ("Requests", _requests()), ("Durations", _durations()), ("HTTP", _http())],
    )


# Recorded ratio, part of events that may be bad, what they are, and what to do: as in alerts/slo.rules.yml, docs/slo.md.
OBJECTIVES = [
    ("instance:radiosonde_health_probe_errors", 0.001, "probes", "RadiosondeProbeBudgetBurn"),
    ("instance:radiosonde_request_errors", 0.005, "requests", "RadiosondeErrorBudgetBurn"),
    ("instance:radiosonde_request_waits", 0.01, "waits", "RadiosondeWaitBudgetBurn"),
]


def _promise() -> list[Panel]:
    return [_left(*objective) for objective in OBJECTIVES] + [_burn(*objective) for objective in OBJECTIVES]


def _left(ratio: str, allowed: float, events: str, alert: str) -> Panel:
    return stat(
        f"Budget left for {events}, three days",
        "What is left of the promise? 100 %: nothing went wrong in three days. 0 %: as much went wrong as the objective "
        "allows for them. Below zero: users got less than was promised, so reliability goes before features. A server that "
        "has been up for an hour is judged by that hour, so a short fault weighs much. What is counted is in docs/slo.md.",
        "percentunit", Query(f"1 - {series(f'{ratio}:ratio_rate3d')} / {allowed}", "{{instance}}"),
        thresholds=steps((None, RED), (0, AMBER), (0.25, GREEN)), decimals=1, width=8, height=5,
        links=[document("Objectives", "slo.md"), runbook(f"{alert}Slow")])


def _burn(ratio: str, allowed: float, events: str, alert: str) -> Panel:
    return lines(
        f"Burn rate for {events}, an hour",
        "How fast is the budget used? At 1 it lasts exactly as long as it should. At 14.4 (dashed) a month's budget is gone "
        "in two days: that pages, if the last five minutes agree.",
        "none", Query(f"{series(f'{ratio}:ratio_rate1h')} / {allowed}", "{{instance}}"), Query("vector(14.4)", "pages"),
        overrides=[dashed("pages")], width=8, links=[runbook(f"{alert}Fast")])


def _requests() -> list[Panel]:
    ended = rate("radiosonde_requests_finished_total")
    refused = rate("radiosonde_requests_rejected_total")
    return [
        lines("Requests by endpoint", "What is asked for? A sudden change of the mix explains most changes of latency.",
              "reqps", Query(f"{sum_by('instance, endpoint', rate('radiosonde_num_requests_total'))} > 0",
                             "{{instance}} {{endpoint}}"), stacked=True, width=8),
        lines("How requests end", "Do they end well? stop and length are good. abort: clients leave, often because it is too "
              "slow. error: the runtime failed them; the probe path says why.",
              "reqps", Query(f"{sum_by('instance, outcome', ended)} > 0", "{{instance}} {{outcome}}"), stacked=True,
              bars=True, width=8,
              overrides=[shades(GREEN, ".* (stop|length)"), shades(AMBER, ".* abort"), shades(RED, ".* error")],
              links=[FAILED, runbook("RadiosondeErrorBudgetBurnFast")]),
        lines("Requests refused", "Whom do we turn away? invalid is the clients' business. queue_full: scale out. "
              "not_serving: routed to a server that starts, drains or is dead; does the router ask /readyz?",
              "reqps", Query(f"{sum_by('instance, reason', refused)} > 0", "{{instance}} {{reason}}"), stacked=True,
              bars=True, width=8,
              overrides=[shades(GREY, ".* invalid"), shades(AMBER, ".* queue_full"), shades(RED, ".* not_serving")],
              links=[runbook("RadiosondeQueueNearlyFull")]),
        lines("Requests in flight", "How many are being served? Rising while tokens stand still: they wait for an engine that "
              "says nothing.",
              "short", Query(series("radiosonde_requests_in_flight"), "{{instance}}"), width=12),
        lines("Books of the frontend", "Do the books agree? Table and flights follow each other and fall to zero when idle; "
              "one that stays up is a leak: report it.",
              "short", Query(series("radiosonde_request_table_size"), "{{instance}} table"),
              Query(series("radiosonde_ledger_flights"), "{{instance}} flights"), width=12),
    ]


def _durations() -> list[Panel]:
    def quantiles(title: str, description: str, histogram: str, width: int = 8) -> Panel:
        queries = [
            Query(quantile(q, "instance", histogram), f"{{{{instance}}}} p{q * 100:g}", exemplar=q == 0.95)
            for q in (0.5, 0.95, 0.99)
        ]
        return lines(title, description, "s", *queries, log=True, width=width,
                     links=[SCHEDULER, runbook("RadiosondeWaitBudgetBurnFast"), traces("Requests in Jaeger")])

    return [
        quantiles("Time to first token", "How long until the first word? Queue, prefill and one step. Dots open traces: the "
                  "longest hop there is the answer to why.", "radiosonde_time_to_first_token_seconds"),
        quantiles("Time between tokens", "Does the text flow? Above 0.2 s readers notice. Follows the decode step; spikes "
                  "are prefill chunks of others in the same batch.", "radiosonde_inter_token_latency_seconds"),
        quantiles("Time to the end", "How long does a whole request take? Mostly the number of output tokens: compare it with "
                  "the time between tokens before you worry.", "radiosonde_e2e_request_latency_seconds"),
    ]


def _http() -> list[Panel]:
    answered = rate("radiosonde_http_requests_total")
    failed = rate("radiosonde_http_requests_total", 'code="5xx"')
    return [
        lines("Answers by class", "What do clients see? 5xx is ours, 4xx theirs, none: they left before an answer. Health "
              "endpoints are in it: their 503 are verdicts, not errors.",
              "reqps", Query(f"{sum_by('instance, code', answered)} > 0", "{{instance}} {{code}}"), stacked=True,
              bars=True, width=8,
              overrides=[shades(GREEN, ".* 2xx"), shades(BLUE, ".* 3xx"), shades(AMBER, ".* 4xx"),
                         shades(RED, ".* 5xx"), shades(GREY, ".* none")],
              links=[FAILED]),
        lines("5xx by route", "Which route fails? /health and /readyz: the server says that it is sick. Only one API route: a "
              "defect of it, report it with a trace.",
              "reqps", Query(f"{sum_by('instance, route', failed)} > 0",
                             "{{instance}} {{route}}"), stacked=True, bars=True, color=RED, width=8,
              links=[FAILED, runbook("RadiosondeErrorBudgetBurnFast")]),
        lines("Duration by route, p95", "Which route is slow, to the last byte? /readyz, /livez and /metrics take "
              "milliseconds whatever happens; if they do not, the host is starved.",
              "s", Query(f"{quantile(0.95, 'instance, route', 'radiosonde_http_request_duration_seconds')} > 0",
                         "{{instance}} {{route}}"), log=True, width=8),
    ]
