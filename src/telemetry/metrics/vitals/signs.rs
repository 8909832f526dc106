//! The vital signs without labels: one entry each, in the order in which an incident asks for them.

use std::time::{Duration, UNIX_EPOCH};

use prometheus::proto::MetricType;

use super::Vitals;

/// One series without labels.
pub(super) struct Sign {
    pub name: &'static str,
    pub help: &'static str,
    pub kind: MetricType,
    pub read: fn(&Vitals) -> f64,
}

/// Every vital sign but the status.
pub(super) const SIGNS: &[Sign] = &[
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
        read: |vitals| vitals.health_check_timeout.as_secs_f64(),
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
        help: "Part of the KV pool in use, 0 to 1. Near 1, requests wait or are retracted.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.kv_used_tokens) / count(vitals.max_total_num_tokens.max(1)),
    },
    Sign {
        name: "radiosonde_kv_used_tokens",
        help: "KV pool tokens in use.",
        kind: MetricType::GAUGE,
        read: |vitals| count(vitals.kv_used_tokens),
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
];

fn seconds(age: Option<Duration>) -> f64 {
    age.unwrap_or_default().as_secs_f64()
}

/// Counts are exact in a float up to 2^53, which no count here reaches.
fn count(value: u64) -> f64 {
    value as f64
}
