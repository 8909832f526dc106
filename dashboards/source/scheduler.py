"""Why it is slow or full: loop, steps, batches, KV pool, processes."""

from .board import board, dashboard, document, runbook
from .panels import RED, Json, Panel, Query, dashed, heatmap, lines, table
from .promql import increase, mean, quantile, rate, series, sum_by

PATH = board("radiosonde-probe-path", "Probe path")


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "radiosonde-scheduler", "radiosonde: Scheduler and runtime",
        "Why is it slow, or full? Steps first, since everything waits for them; then what fills them, then the processes "
        "below.",
        [
            ("Does it turn?", _loop()),
            ("Steps", _steps()),
            ("Load", _load()),
            ("Processes", _processes()),
            ("What runs", [_versions(), _models()]),
        ],
    )


def _loop() -> list[Panel]:
    return [
        lines("Loop turns and batches", "Does the scheduler turn, and does it form batches? Turns at zero while requests "
              "run or wait: stuck in a step. Turns go on and batches stand still while requests wait: it forms no batch "
              "(not_scheduling), often for want of KV pages.",
              "short", Query(sum_by("instance", rate("radiosonde_scheduler_loop_iterations_total")),
                             "{{instance}} turns/s"),
              Query(sum_by("instance", rate("radiosonde_scheduler_batches_total")), "{{instance}} batches/s"), log=True,
              links=[PATH, runbook("RadiosondeSchedulerWedged")]),
        lines("Engine restarts", "How near is the end? At the dashed budget within ten minutes the server gives up and exits "
              "with 1. Each restart has a report with exit status and last words at /debug/incidents.",
              "short", Query(f"increase({series('radiosonde_engine_restarts_total')}[10m])", "{{instance}} in 10 min"),
              Query(f"min({series('radiosonde_engine_restarts_limit')})", "budget"), overrides=[dashed("budget")],
              links=[runbook("RadiosondeEngineRestartLoop"), document("Orchestration", "orchestration.md")]),
    ]


def _steps() -> list[Panel]:
    duration = "radiosonde_scheduler_step_duration_seconds"
    size, tokens = "radiosonde_scheduler_batch_size", "radiosonde_scheduler_step_tokens"
    return [
        heatmap("Step durations", "How long do steps take? Two bands are normal: decode below, prefill above. A new band "
                "higher up: longer prompts or a starved CPU. The slowest step is the slowest healthy probe.",
                "s", Query(sum_by("le", increase(f"{duration}_bucket")), "{{le}}", heatmap=True), width=8),
        lines("Step duration, p99 by phase", "Which phase is slow, on which instance? Prefill and mixed stay "
              "near the dashed --max-step-time; decode follows the batch size below. One instance alone: its host.",
              "s", Query(quantile(0.99, "instance, phase", duration), "{{instance}} {{phase}}", exemplar=True),
              Query(f"min({series('radiosonde_max_step_time_seconds')})", "limit"), overrides=[dashed("limit")], log=True,
              width=8, links=[runbook("RadiosondeProbeSlow")]),
        lines("Step in flight", "Is one step taking too long just now? A saw-tooth below the p99 is normal; a line that "
              "climbs is a forward pass that hangs, and every probe and request waits for it.",
              "s", Query(series("radiosonde_scheduler_step_age_seconds"), "{{instance}}"), width=8,
              links=[PATH, runbook("RadiosondeSchedulerWedged")]),
        lines("Sequences in a step, mean", "How well are batches filled? More is better throughput and longer decode steps. "
              "One while many wait: the KV pool or --max-running-requests holds them back.",
              "short", Query(mean("instance, phase", size), "{{instance}} {{phase}}")),
        lines("Tokens in a step, mean", "How much work is one step? Prefill stays at or below the dashed budget: what fits "
              "into --max-step-time, as learnt from the steps before. One page of 16: this CPU is too slow for the limit.",
              "short", Query(mean("instance, phase", tokens), "{{instance}} {{phase}}"),
              Query(f"min({series('radiosonde_prefill_budget_tokens')})", "budget"), overrides=[dashed("budget")]),
    ]


def _load() -> list[Panel]:
    cached = rate("radiosonde_cached_tokens_total")
    return [
        lines("Running requests", "How many sequences share a step? At the dashed limit, further requests wait however much "
              "KV is free.",
              "short", Query(series("radiosonde_num_running_reqs"), "{{instance}}"),
              Query(f"min({series('radiosonde_max_running_requests')})", "limit"), overrides=[dashed("limit")], width=8),
        lines("Waiting requests", "Is there a queue? At the dashed limit new requests get 503. Scale out on this. Waiting "
              "with nothing running: the scheduler is stuck.",
              "short", Query(series("radiosonde_num_queue_reqs"), "{{instance}}"),
              Query(f"min({series('radiosonde_max_queued_requests')})", "limit"), overrides=[dashed("limit")], width=8,
              links=[runbook("RadiosondeQueueNearlyFull")]),
        lines("Time in the queue, p95", "How long does a request wait for its first step? It is the part of the time to "
              "first token that more instances would remove.",
              "s", Query(quantile(0.95, "instance", "radiosonde_queue_time_seconds"), "{{instance}}"), width=8),
        lines("KV pool in use", "Is the pool full? Near 100 % requests wait or are retracted. What is only kept "
              "for prompts that come back makes room when it is needed.",
              "percentunit", Query(series("radiosonde_token_usage"), "{{instance}}"),
              Query(f"{series('radiosonde_kv_evictable_tokens')} / {series('radiosonde_max_total_num_tokens')}",
                    "{{instance}} kept"), highest=1, width=8),
        lines("Retractions", "Do requests lose their place? Each gave its KV pages back and starts again: work done twice. "
              "More than now and then: lower --max-running-requests, shorten contexts, or scale out.",
              "short", Query(sum_by("instance", increase("radiosonde_num_retractions_total")), "{{instance}}"), bars=True,
              width=8, links=[runbook("RadiosondeKvPressure")]),
        lines("Tokens", "What throughput do we have? Prompt tokens cost prefill, output tokens cost decode; the share found "
              "in the prefix cache costs nothing.",
              "short", Query(sum_by("instance", rate("radiosonde_generation_tokens_total")), "{{instance}} output/s"),
              Query(sum_by("instance", rate("radiosonde_prompt_tokens_total")), "{{instance}} prompt/s"),
              Query(sum_by("instance", cached), "{{instance}} cached/s"), width=8),
    ]


def _processes() -> list[Panel]:
    return [
        lines("CPU", "Who burns CPU? The engine uses the cores of its compute threads while it works. Frontend as high as the "
              "engine: something is wrong with it. Engine at zero while a step is in flight: it waits or is stopped.",
              "short", Query(sum_by("instance", rate("radiosonde_engine_cpu_seconds_total")), "{{instance}} engine cores"),
              Query(sum_by("instance", rate("process_cpu_seconds_total")), "{{instance}} frontend cores"), width=8),
        lines("Resident memory", "Does memory grow? The engine's is model plus KV pool and should be flat after the start; a "
              "drop to zero is its death.",
              "bytes", Query(series("radiosonde_engine_resident_memory_bytes"), "{{instance}} engine"),
              Query(series("process_resident_memory_bytes"), "{{instance}} frontend"), width=8),
        lines("Lag of the frontend", "Is the frontend itself late? Runtime lag alone: its workers are blocked. Both: the "
              "process gets no CPU, look at limits and neighbours. Above a second probes fail as frontend_stalled.",
              "s", Query(series("radiosonde_runtime_lag_seconds"), "{{instance}} runtime"),
              Query(series("radiosonde_process_lag_seconds"), "{{instance}} process"), width=8,
              links=[runbook("RadiosondeFrontendStalled")]),
        lines("Threads", "Do threads leak? Both lines are flat after the start; one that climbs with the requests is a defect, report it.",
              "short", Query(series("radiosonde_engine_threads"), "{{instance}} engine"),
              Query(series("process_threads"), "{{instance}} frontend"), width=8),
        lines("Open files", "Do sockets leak, or is the limit near? At the dashed limit no connection is accepted any more.",
              "short", Query(series("radiosonde_engine_open_fds"), "{{instance}} engine"),
              Query(series("process_open_fds"), "{{instance}} frontend"),
              Query(f"min({series('process_max_fds')})", "limit of the frontend"), log=True,
              overrides=[dashed("limit.*")], width=8),
        lines("Incidents", "Which reports were written? One for each death of an engine and each cause of failed probes: "
              "read them at /debug/incidents.",
              "short", Query(f"{sum_by('instance, cause', increase('radiosonde_incidents_total'))} > 0",
                             "{{instance}} {{cause}}"), stacked=True, bars=True, color=RED, width=8),
    ]


def _versions() -> Panel:
    return table("Versions", "Do all instances run the same version? More than one during a rollout is normal, afterwards "
                 "not.", "none", Query(series("radiosonde_build_info")), columns=["instance", "version"],
                 empty="nothing is scraped", width=8, height=6)


def _models() -> Panel:
    return table("Models", "Do all instances serve the same model? Different ones behind one address give different answers "
                 "to the same question.", "none", Query(series("radiosonde_model_info")),
                 columns=["instance", "model", "architecture", "kernels"], empty="no engine is ready", width=16, height=6)
