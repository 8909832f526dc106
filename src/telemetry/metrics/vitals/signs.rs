//! The vital signs without labels: one entry each, in the order in which an incident asks for them.

use std::time::{Duration, UNIX_EPOCH};

use prometheus::core::{Desc, Describer};
use prometheus::proto::MetricType;
use prometheus::{Error, Opts};

use super::Vitals;

/// One series without labels, read from a `T`.
pub(in crate::telemetry::metrics) struct Sign<T> {
    pub name: &'static str,
    pub help: &'static str,
    pub kind: MetricType,
    pub read: fn(&T) -> f64,
}

/// The declarations of `signs`.
pub(in crate::telemetry::metrics) fn descs<T>(signs: &[Sign<T>]) -> Result<Vec<Desc>, Error> {
    signs.iter().map(|sign| Opts::new(sign.name, sign.help).describe()).collect()
}

/// Every vital sign but the status.
pub(super) const SIGNS: &[Sign<Vitals>] = &[
    Sign {
        name: "radiosonde_last_receive_age_seconds",
        help: "Since the engine's last output. Grows on an idle server too; it means trouble while probes or requests \
               are in flight.",
        kind: MetricType::GAUGE,
        read: |vitals| vitals.last_receive_age.as_secs_f64(),
    },
    Sign {
        name: "radiosonde_last_receive_timestamp_seconds",
        help: "Unix time of the engine's last output. Survives the death of the server in the database, as an age \
               does not.",
        kind: MetricType::GAUGE,
        read: |vitals| vitals.last_receive_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
    },
    Sign {
        name: "radiosonde_health_check_timeout_seconds",
        help: "The configured limit of a health probe: compare ages with it.",
        kind: MetricType::GAUGE,
        read: |vitals| vitals.limits.health_check_timeout.as_secs_f64(),
    },
    Sign {
        name: "radiosonde_ready",
        help: "1 if /readyz would answer 200 now, else 0. 0 with server_status up: the last verdict is bad or too old, \
               or generation is paused.",
        kind: MetricType::GAUGE,
        read: |vitals| f64::from(u8::from(vitals.ready)),
    },
    Sign {
        name: "radiosonde_health_verdict_age_seconds",
        help: "Age of the verdict that /readyz answers from; before the first, since the end of the start. Grows on a \
               busy server, where outputs spare the probes; with neither, beyond \
               radiosonde_self_probe_interval_seconds and a probe's limit, nobody judges this server.",
        kind: MetricType::GAUGE,
        read: |vitals| vitals.verdict_age.as_secs_f64(),
    },
    Sign {
        name: "radiosonde_last_batch_result_age_seconds",
        help: "Since a batch of the engine last ended with a result, as of its last heartbeat; before the first, since \
               it connected. The second proof beside radiosonde_last_receive_age_seconds: small while that one grows, \
               the way back is broken.",
        kind: MetricType::GAUGE,
        read: |vitals| vitals.last_batch_result_age.as_secs_f64(),
    },
    Sign {
        name: "radiosonde_scheduler_loop_age_seconds",
        help: "Since the scheduler's loop last turned, as of the last heartbeat. A loop without work sleeps until a \
               message comes, so it grows on an idle or paused server too; while requests run or wait it is the age \
               of the step in flight, or the loop is stuck.",
        kind: MetricType::GAUGE,
        read: |vitals| vitals.loop_age.as_secs_f64(),
    },
    Sign {
        name: "radiosonde_health_check_outputs_sent_total",
        help: "Dedicated answers to probes that the engine has sent to this frontend, as of its last heartbeat; begins \
               again with each engine. Rising away from radiosonde_health_check_outputs_received_total: answers are \
               lost on the way back.",
        kind: MetricType::COUNTER,
        read: |vitals| count(vitals.health_check_outputs_sent),
    },
    Sign {
        name: "radiosonde_return_health_check_ipcs_depth",
        help: "Probes that met a busy scheduler and wait for its next batch result. Never back at zero means that no \
               batch ends.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.return_health_check_ipcs),
    },
    Sign {
        name: "radiosonde_return_health_check_ipcs_oldest_age_seconds",
        help: "How long the oldest of the waiting probes has waited; 0 if none waits. The better signal: a depth \
               between two scrapes goes unseen.",
        kind: MetricType::GAUGE,
        read: |vitals| seconds(vitals.return_health_check_oldest),
    },
    Sign {
        name: "radiosonde_scheduler_inbox_depth",
        help: "Messages that reached the engine and that its scheduler has not seen: it is in a long step, or stuck.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.scheduler_inbox),
    },
    Sign {
        name: "radiosonde_num_running_reqs",
        help: "Requests in the batch, probes left out.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.running),
    },
    Sign {
        name: "radiosonde_num_queue_reqs",
        help: "Requests that wait for a place in the batch. Scale out on this.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.queued),
    },
    Sign {
        name: "radiosonde_token_usage",
        help: "Part of the KV pool in use, 0 to 1; what is only kept for requests to come is not. Near 1, requests wait \
               or are retracted.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.kv_used_tokens) / count(vitals.max_total_num_tokens.max(1)),
    },
    Sign {
        name: "radiosonde_kv_used_tokens",
        help: "KV pool tokens in use by requests that run.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.kv_used_tokens),
    },
    Sign {
        name: "radiosonde_kv_evictable_tokens",
        help: "KV pool tokens that the prefix cache keeps and that no request uses: they make room when it is needed.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.kv_evictable_tokens),
    },
    Sign {
        name: "radiosonde_kv_evicted_tokens_total",
        help: "Tokens that the prefix cache gave up to make room, the longest unused first. Fast, with a low hit rate: \
               the pool is too small for the prompts that come back.",
        kind: MetricType::COUNTER,
        read: |vitals| count(vitals.kv_evicted_tokens),
    },
    Sign {
        name: "radiosonde_max_total_num_tokens",
        help: "Size of the KV pool in tokens; 0 until the engine is ready.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.max_total_num_tokens),
    },
    Sign {
        name: "radiosonde_scheduler_loop_iterations_total",
        help: "Turns of the scheduler's loop. Standing still while requests run or wait: the scheduler is stuck in a \
               step.",
        kind: MetricType::COUNTER,
        read: |vitals| count(vitals.loop_iterations),
    },
    Sign {
        name: "radiosonde_scheduler_batches_total",
        help: "Batches that ended. Standing still while the loop turns and requests wait: the scheduler forms no \
               batch.",
        kind: MetricType::COUNTER,
        read: |vitals| count(vitals.batches),
    },
    Sign {
        name: "radiosonde_scheduler_step_age_seconds",
        help: "How long the step in flight has run; 0 if none runs. Beyond the usual duration of a step: the forward \
               pass hangs.",
        kind: MetricType::GAUGE,
        read: |vitals| seconds(vitals.step_age),
    },
    Sign {
        name: "radiosonde_engine_heartbeat_age_seconds",
        help: "Since the engine's last heartbeat, one every 250 ms from a thread of its own. Above a few seconds: the \
               process is stopped or starved, not only its scheduler.",
        kind: MetricType::GAUGE,
        read: |vitals| vitals.heartbeat_age.as_secs_f64(),
    },
    Sign {
        name: "radiosonde_engine_up",
        help: "1 if the engine is connected and ready, else 0.",
        kind: MetricType::GAUGE,
        read: |vitals| f64::from(u8::from(vitals.engine_up)),
    },
    Sign {
        name: "radiosonde_ipc_to_engine_depth",
        help: "Messages that wait in this frontend in front of the socket to the engine.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.ipc_to_engine),
    },
    Sign {
        name: "radiosonde_ipc_to_frontend_depth",
        help: "Messages that wait in the engine in front of the socket to this frontend, as of the last heartbeat.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.ipc_to_frontend),
    },
    Sign {
        name: "radiosonde_num_retractions_total",
        help: "Requests that had to give their KV pages back and to start again. Often: the pool is too small for the \
               load.",
        kind: MetricType::COUNTER,
        read: |vitals| count(vitals.retractions),
    },
    Sign {
        name: "radiosonde_num_preemptions_total",
        help: "Requests that had to give their places to others of higher priority, and go on later \
               (--enable-priority-scheduling).",
        kind: MetricType::COUNTER,
        read: |vitals| count(vitals.preemptions),
    },
    Sign {
        name: "radiosonde_grammar_wait_time_seconds_total",
        help: "Time that the scheduler waited for a grammar's token mask after a forward pass, or for a grammar to be \
               compiled. Masks are made while the model computes; above a percent of the time, they hold every request up.",
        kind: MetricType::COUNTER,
        read: |vitals| vitals.grammar_wait.as_secs_f64(),
    },
    Sign {
        name: "radiosonde_request_table_size",
        help: "Requests and probes that this frontend waits for.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.request_table),
    },
    Sign {
        name: "radiosonde_ledger_flights",
        help: "Requests and probes whose hops this frontend keeps. Follows radiosonde_request_table_size; above it for \
               long, something was never written.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.flights),
    },
    Sign {
        name: "radiosonde_paused",
        help: "1 while generation is paused (POST /pause_generation), else 0. Probes then say so, with 200.",
        kind: MetricType::GAUGE,
        read: |vitals| f64::from(u8::from(vitals.paused)),
    },
    Sign {
        name: "radiosonde_runtime_lag_seconds",
        help: "By how much a task of the frontend's main runtime is late that is to run every 100 ms. Grows while the \
               runtime's workers are blocked: nothing is served then, and the engine is not to blame.",
        kind: MetricType::GAUGE,
        read: |vitals| vitals.runtime_lag.as_secs_f64(),
    },
    Sign {
        name: "radiosonde_process_lag_seconds",
        help: "The same for a thread of its own. Grows only if the frontend's process gets no CPU, or is stopped.",
        kind: MetricType::GAUGE,
        read: |vitals| vitals.process_lag.as_secs_f64(),
    },
    Sign {
        name: "radiosonde_engine_cpu_seconds_total",
        help: "User and system CPU time of the engine's process; 0 without an engine. Standing still while requests \
               run: it is stopped or waits for something.",
        kind: MetricType::COUNTER,
        read: |vitals| vitals.engine_process.cpu_seconds,
    },
    Sign {
        name: "radiosonde_engine_resident_memory_bytes",
        help: "Resident memory of the engine's process: weights, KV pool and what else it holds; 0 without an engine.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.engine_process.resident_bytes),
    },
    Sign {
        name: "radiosonde_engine_threads",
        help: "Threads of the engine's process; 0 without an engine.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.engine_process.threads),
    },
    Sign {
        name: "radiosonde_engine_open_fds",
        help: "File descriptors that the engine's process has open; 0 without an engine.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.engine_process.open_fds),
    },
    Sign {
        name: "radiosonde_engine_start_time_seconds",
        help: "Unix time at which the engine's process started; 0 without an engine. A change is a restart.",
        kind: MetricType::GAUGE,
        read: |vitals| vitals.engine_process.started_at,
    },
    Sign {
        name: "radiosonde_engine_restarts_limit",
        help: "How often the engine may be started again within ten minutes (--engine-restarts); beyond it the server \
               ends. 0 for a frontend without a supervisor.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.limits.engine_restarts),
    },
    Sign {
        name: "radiosonde_max_running_requests",
        help: "The most requests in the batch (--max-running-requests); 0 until the engine is ready.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.limits.max_running_requests),
    },
    Sign {
        name: "radiosonde_max_queued_requests",
        help: "The most requests that wait (--max-queued-requests); beyond it they are refused. 0 until the engine is \
               ready.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.limits.max_queued_requests),
    },
    Sign {
        name: "radiosonde_chunked_prefill_size",
        help: "The most prompt tokens of one step (--chunked-prefill-size), whatever there is time for; 0 until the \
               engine is ready.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.limits.chunked_prefill_size),
    },
    Sign {
        name: "radiosonde_max_step_time_seconds",
        help: "How long a step should last at most (--max-step-time): busy probes wait for one. 0: bounded by \
               radiosonde_chunked_prefill_size alone, or the engine is not ready.",
        kind: MetricType::GAUGE,
        read: |vitals| vitals.limits.max_step_time.as_secs_f64(),
    },
    Sign {
        name: "radiosonde_prefill_budget_tokens",
        help: "Prompt tokens that a step can take within --max-step-time, as learnt from the steps before. One page, and \
               steps that last longer: this machine is too slow for the limit.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.prefill_budget),
    },
    Sign {
        name: "radiosonde_context_length",
        help: "The most tokens of one request, prompt and output together, that the model takes; 0 until the engine is \
               ready.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.limits.context_length),
    },
    Sign {
        name: "radiosonde_self_probe_interval_seconds",
        help: "Without a verdict and an output for so long, the server probes itself (--self-probe-interval); 0: never.",
        kind: MetricType::GAUGE,
        read: |vitals| vitals.limits.self_probe_interval.as_secs_f64(),
    },
    Sign {
        name: "radiosonde_drain_timeout_seconds",
        help: "How long a drain may take before running requests are cut off (--drain-timeout).",
        kind: MetricType::GAUGE,
        read: |vitals| vitals.limits.drain_timeout.as_secs_f64(),
    },
];

fn seconds(age: Option<Duration>) -> f64 {
    age.unwrap_or_default().as_secs_f64()
}

/// Counts are exact in a float up to 2^53, which no count here reaches.
pub(in crate::telemetry::metrics) fn count(value: u64) -> f64 {
    value as f64
}
