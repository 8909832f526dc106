"""The heart: which hop of the probe's path is sick, on which instance."""

from .board import board, dashboard, document, runbook, traces
from .panels import AMBER, BLUE, GREEN, GREY, RANKED, RED, Json, Panel, Query, dashed, lines, shades, steps, timeline
from .promql import increase, quantile, rate, series, share, sum_by
from .shared import failures_over_time, failures_table, probe_success, status_timeline

LIMIT = Query(f"min({series('radiosonde_health_check_timeout_seconds')})", "limit of a probe")
FAILED = traces("Probes that timed out, in Jaeger", probe__outcome="timeout")
DRILLS = document("Rehearse it: drills", "drills.md")


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "radiosonde-probe-path", "radiosonde: Probe path",
        "Which hop is sick? Read the first two rows: status, failures by hop and cause, then the ages that say whether "
        "the engine moves. The rows below follow a probe through the runtime.",
        [
            ("Is it alive?", [status_timeline(16), _success(), failures_table(), failures_over_time()]),
            ("Does the engine move?", _ages()),
            ("What became of the probes", _probes()),
            ("Where a probe spends its time", [_hops(), *_queues()]),
            ("Do the signals disagree?", [_disagreement(), *_return_path()]),
        ],
    )


def _success() -> Panel:
    return probe_success(width=8, height=6)


def _ages() -> list[Panel]:
    return [
        lines("Since the last output", "Does anything come back? Growing up to the dashed limit while somebody waits "
              "('Waiting for an answer') means that this instance is silent. Growing on an idle server is normal: the "
              "next self-probe resets it.",
              "s", Query(series("radiosonde_last_receive_age_seconds"), "{{instance}}"), LIMIT,
              overrides=[dashed("limit.*")], width=8,
              links=[runbook("RadiosondeReceiveStalled"), FAILED]),
        lines("Waiting for an answer", "Is somebody waiting? Probes and requests without their end. The age on the left "
              "is only bad while this is above zero. Rising without end: nothing is answered any more.",
              "short", Query(f"{series('radiosonde_health_probes_in_flight')}", "{{instance}} probes"),
              Query(f"{series('radiosonde_requests_in_flight')}", "{{instance}} requests"), width=8),
        lines("The engine's signs of life", "Which proof is missing? Heartbeat grows: the process is stopped or starved "
              "(engine_frozen). Heartbeat fine, step grows: a forward pass hangs (step_stuck). Heartbeat fine, loop "
              "grows: the scheduler's loop stands (loop_frozen). Only batch grows: it forms no batch (not_scheduling), "
              "or nobody asks.",
              "s", Query(series("radiosonde_engine_heartbeat_age_seconds"), "{{instance}} heartbeat"),
              Query(series("radiosonde_scheduler_loop_age_seconds"), "{{instance}} loop"),
              Query(series("radiosonde_scheduler_step_age_seconds"), "{{instance}} step in flight"),
              Query(series("radiosonde_last_batch_result_age_seconds"), "{{instance}} batch"), width=8,
              links=[board("radiosonde-scheduler", "Scheduler and runtime"), runbook("RadiosondeSchedulerWedged")]),
    ]


def _probes() -> list[Panel]:
    ended = rate("radiosonde_health_probe_total")
    duration = "radiosonde_health_probe_duration_seconds"
    answered = ('outcome="ok"', 'branch=~"idle|busy"')
    return [
        lines("Probes by branch and outcome", "What did the probes meet? idle ran as a real request, busy was answered "
              "after a batch, none never reached a decision. Any timeout or engine_dead is a failure; the table above "
              "says where. No bars: nobody probes, and self-probes are off.",
              "reqps", Query(f"{sum_by('instance, branch, outcome', ended)} > 0",
                             "{{instance}} {{branch}} {{outcome}}"), stacked=True, bars=True, width=8,
              overrides=[shades(GREEN, ".* ok"), shades(RED, ".* (timeout|engine_dead|error)"),
                         shades(BLUE, ".* starting"), shades(GREY, ".* (draining|paused|shortcut|client_gone)")],
              links=[runbook("RadiosondeNotProbed")]),
        lines("Good probes, duration by branch", "How slow is a healthy probe? idle is the time of one token, busy the rest "
              "of the step in flight. Busy near the dashed limit: steps are too long, lower --max-step-time before "
              "healthy servers fail their probes. Dots open traces.",
              "s", Query(quantile(0.99, "instance, branch", duration, *answered), "{{instance}} {{branch}} p99",
                         exemplar=True),
              Query(quantile(0.5, "instance, branch", duration, *answered), "{{instance}} {{branch}} p50"), LIMIT,
              log=True, overrides=[dashed("limit.*")], width=8,
              links=[runbook("RadiosondeProbeSlow"), traces("Probes in Jaeger", probe__outcome="ok")]),
        lines("Evidence", "What proved life? own_answer is the probe's own way through the runtime. other_traffic is as "
              "good for the verdict, but says nothing about the probe's way: much of it with failing strict probes "
              "(?evidence=own) points at the return path. none: nothing did, or nothing was tried.",
              "reqps", Query(f"{sum_by('instance, evidence', rate('radiosonde_health_probe_evidence_total'))} > 0",
                             "{{instance}} {{evidence}}"), stacked=True, bars=True, width=8,
              overrides=[shades(GREEN, ".* own_answer"), shades(BLUE, ".* other_traffic"), shades(RED, ".* none")]),
    ]


def _hops() -> Panel:
    spent = sum_by("instance, hop", rate("radiosonde_health_probe_hop_duration_seconds_sum"))
    probes = sum_by("instance", rate("radiosonde_health_probe_duration_seconds_count"))
    return lines(
        "Time of a probe by hop: $instance",
        "At which hop does the time go? The height is the mean duration of a probe, the colours are its hops; a hop that "
        "never ended counts up to the verdict. scheduler.inbox: a long or stuck step. waiting_queue: no batch forms. "
        "ipc: a side does not read. model_runner.forward: the model itself.",
        "s", Query(f"{spent} / on (instance) group_left () ({probes} > 0)", "{{hop}}"),
        stacked=True, legend=RANKED, repeat="instance", width=24, height=10,
        links=[FAILED, document("What each hop is", "traces.md")],
    )


def _queues() -> list[Panel]:
    waits = [
        ("radiosonde_ipc_to_engine_depth", "to the engine"),
        ("radiosonde_scheduler_inbox_depth", "scheduler's inbox"),
        ("radiosonde_ipc_to_frontend_depth", "to the frontend"),
    ]
    return [
        lines("return_health_check_ipcs", "Do busy probes get their answer? Depth returns to zero after every batch; never "
              "back at zero means that no batch ends. It counts only probes that the scheduler has seen: later ones wait "
              "in its inbox (on the right).",
              "short", Query(series("radiosonde_return_health_check_ipcs_depth"), "{{instance}} depth"), width=8,
              links=[runbook("RadiosondeProbesParked")]),
        lines("Oldest probe in return_health_check_ipcs", "How long has a busy probe waited? As long as one step at most. "
              "The better signal of the two: a depth between two scrapes goes unseen, an age does not.",
              "s", Query(series("radiosonde_return_health_check_ipcs_oldest_age_seconds"), "{{instance}}"), LIMIT,
              overrides=[dashed("limit.*")], width=8, links=[runbook("RadiosondeProbesParked")]),
        lines("Messages that wait between stations", "In front of which door do messages queue? To the engine: it does not "
              "read (ipc_backpressure). Inbox: its scheduler is in a long step, or stuck. To the frontend: this process "
              "does not read; its figures are as old as the last heartbeat.",
              "short", *(Query(series(name), f"{{{{instance}}}} {text}") for name, text in waits), width=8),
    ]


def _disagreement() -> Panel:
    def answers(endpoint: str) -> str:
        good = rate("radiosonde_health_probe_total", f'endpoint="{endpoint}"', 'outcome=~"ok|shortcut|paused"')
        return share("instance", good, rate("radiosonde_health_probe_total", f'endpoint="{endpoint}"'))

    tokens = sum_by("instance", rate("radiosonde_generation_tokens_total"))
    waiting = f"max by (instance) (max_over_time({series('radiosonde_requests_in_flight')}[$__rate_interval]))"
    return timeline(
        "/health, /health_generate, /readyz and tokens side by side",
        "Do the signals tell one story? Green: all good, red: none, amber: some; a gap: nobody asked. /health green and "
        "/health_generate red: --disable-health-generation hides the fault. Probes red and tokens green: the probe's "
        "limit is shorter than a step, or its return path is broken. Probes green and tokens red: requests wait, but not "
        "for the model: look at the frontend. /readyz red and probes green: the verdict is old, nobody probes often "
        "enough.",
        "percentunit",
        Query(answers("/health"), "{{instance}} /health"),
        Query(answers("/health_generate"), "{{instance}} /health_generate"),
        Query(answers("self"), "{{instance}} self-probe"),
        Query(f"max by (instance) ({series('radiosonde_ready')})", "{{instance}} /readyz"),
        Query(f"({tokens} > bool 0) unless on (instance) ({waiting} == 0 and on (instance) {tokens} == 0)",
              "{{instance}} tokens"),
        thresholds=steps((None, RED), (0.01, AMBER), (0.99, GREEN)), width=24, height=9, links=[FAILED, DRILLS],
    )


def _return_path() -> list[Panel]:
    sent = increase("radiosonde_health_check_outputs_sent_total")
    received = increase("radiosonde_health_check_outputs_received_total")
    return [
        lines("HealthCheckOutputs, sent and received", "Do answers get lost on the way back? Both lines of an instance lie "
              "on each other. Sent without received: return_path_lost, the frontend never saw what the engine answered. "
              "Received lags by a moment around restarts.",
              "short", Query(sum_by("instance", sent), "{{instance}} sent"),
              Query(sum_by("instance", received), "{{instance}} received"),
              width=12, links=[runbook("RadiosondeAnswersLost")]),
        lines("Answers shared, answers too late", "How do probes meet batches? Shared: one batch result answered several "
              "parked probes; much of it means that probers are many or steps are long. Too late: the answer came after "
              "the verdict, so the caller's limit is shorter than a step.",
              "short", Query(sum_by("instance", increase("radiosonde_health_probes_coalesced_total")),
                             "{{instance}} shared"),
              Query(sum_by("instance", increase("radiosonde_health_probes_orphaned_total")), "{{instance}} too late"),
              width=12, links=[runbook("RadiosondeProbeSlow")]),
    ]
