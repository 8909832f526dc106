"""The first page: is it alive, are users served, is it full?"""

from .board import board, dashboard, runbook, traces
from .panels import AMBER, GREEN, RED, Json, Query, dashed, lines, stat, steps
from .promql import quantile, rate, series, sum_by
from .shared import failures_over_time, firing_alerts, probe_success, status_timeline

PATH = board("radiosonde-probe-path", "Probe path")
REQUESTS = board("radiosonde-requests", "Requests and SLO")
SCHEDULER = board("radiosonde-scheduler", "Scheduler and runtime")


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "radiosonde-overview", "radiosonde: Overview",
        "Start here. From top to bottom: is each instance alive, are users served, is there room. Every panel is per "
        "instance first, because a sum hides one bad replica. Its links go to the page that explains it.",
        [("Is it alive?", _alive()), ("Are users served?", _served()), ("Is there room?", _room())],
    )


def _alive() -> list:
    ready = stat(
        "Ready for traffic",
        "What does /readyz of each instance answer now? 'not ready' takes it out of the rotation. If it is not ready but "
        "up, the verdict is old: nobody probes it.",
        "none", Query(series("radiosonde_ready"), "{{instance}}"),
        thresholds=steps((None, RED), (1, GREEN)),
        mappings=[{"type": "value", "options": {"0": {"text": "not ready", "index": 0},
                                                "1": {"text": "ready", "index": 1}}}],
        width=8, height=6, links=[PATH],
    )
    age = stat(
        "Age of the verdict",
        "How old is what /readyz says? Self-probes keep it below about 10 s. Beyond 30 s nobody probes, or every probe "
        "waits: open the probe path.",
        "s", Query(series("radiosonde_health_verdict_age_seconds"), "{{instance}}"),
        thresholds=steps((None, GREEN), (15, AMBER), (31, RED)), width=8, height=6,
        links=[PATH, runbook("RadiosondeVerdictStale")],
    )
    return [status_timeline(), probe_success(), ready, age, firing_alerts(), failures_over_time()]


def _served() -> list:
    finished = rate("radiosonde_requests_finished_total")
    failed = rate("radiosonde_requests_finished_total", 'outcome="error"')
    ours = rate("radiosonde_requests_rejected_total", 'reason!="invalid"')
    errors = f"({sum_by('instance', failed)} + {sum_by('instance', ours)})"
    whole = f"({sum_by('instance', finished)} + {sum_by('instance', ours)})"
    return [
        lines("Requests accepted", "How much is asked of each instance? One line much lower than the others: the router "
              "avoids it. All lines at zero: nobody reaches us, look in front of us.",
              "reqps", Query(sum_by("instance", rate("radiosonde_num_requests_total")), "{{instance}}"),
              width=8, links=[REQUESTS]),
        lines("Requests that we failed", "What share did we fail or refuse? Runtime errors, full queue and 'not serving'; "
              "what clients did wrong is left out. Above 1 % look at 'How requests end' on Requests and SLO.",
              "percentunit", Query(f"{errors} / ({whole} > 0)", "{{instance}}"), highest=1, width=8,
              links=[REQUESTS, runbook("RadiosondeErrorBudgetBurnFast"), traces("Failed requests in Jaeger", request__outcome="error")]),
        lines("Time to first token, p95", "How long do users wait for the first word? Dots are single requests: click one "
              "to open its trace. Rising with the queue below: there are too few instances. Rising alone: prompts became "
              "longer, or steps slower (Scheduler and runtime).",
              "s", Query(quantile(0.95, "instance", "radiosonde_time_to_first_token_seconds"), "{{instance}}",
                         exemplar=True), width=8, links=[REQUESTS, runbook("RadiosondeWaitBudgetBurnFast")]),
    ]


def _room() -> list:
    return [
        lines("Requests waiting", "Is there a queue? Beyond a few for some minutes: scale out, or expect 503 at the dashed "
              "limit. Waiting while nothing runs (next panel): the scheduler is stuck, see the probe path.",
              "short", Query(series("radiosonde_num_queue_reqs"), "{{instance}}"),
              Query(f"min({series('radiosonde_max_queued_requests')})", "limit"), overrides=[dashed("limit")],
              width=8, links=[SCHEDULER, runbook("RadiosondeQueueNearlyFull")]),
        lines("KV pool in use", "Is the cache full? Near 100 % requests wait or are retracted and start again: see "
              "retractions on Scheduler and runtime; scale out or shorten contexts.",
              "percentunit", Query(series("radiosonde_token_usage"), "{{instance}}"), highest=1, width=8,
              links=[SCHEDULER, runbook("RadiosondeKvPressure")]),
        lines("Output tokens", "Does the model write? Zero while requests are in flight is the surest sign of a stuck "
              "runtime. Lower than usual at the same number of running requests: steps became slower.",
              "short", Query(sum_by("instance", rate("radiosonde_generation_tokens_total")), "{{instance}} tokens/s"),
              width=8, links=[SCHEDULER]),
    ]
