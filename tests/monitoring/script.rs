//! What happens in the incident. The first instance is healthy for 20 minutes, then a step is stuck for 5, then somebody
//! restarts it, and it recovers. The second is healthy, but its engine dies once, and is started again.

use crate::incident::BEGIN;

/// Who is scraped.
pub const INSTANCES: &[&str] = &["srv-0:30001", "srv-1:30001"];

const MINUTE: u64 = 60;
const STUCK_FROM: u64 = BEGIN + 20 * MINUTE;
const STUCK_TO: u64 = BEGIN + 25 * MINUTE;
const UP_AGAIN: u64 = STUCK_TO + 45;
const DEATH: u64 = BEGIN + 32 * MINUTE;
const REBORN: u64 = DEATH + 30;
/// What the server is configured with.
const LIMIT: f64 = 20.0;
/// How often each endpoint is probed, per second: `/health`, `/health_generate`, the server itself.
const PROBED: [f64; 3] = [0.2, 0.14, 0.02];
/// All of these.
const PROBES: f64 = PROBED[0] + PROBED[1] + PROBED[2];
/// The part of the probes that meets a busy scheduler.
const BUSY: f64 = 0.7;

/// One scrape of one instance.
#[derive(Clone, Copy)]
pub struct Moment {
    /// Who.
    pub instance: &'static str,
    /// When, in Unix seconds.
    pub time: u64,
}

impl Moment {
    fn is_first(&self) -> bool {
        self.instance == INSTANCES[0]
    }

    /// A step of this instance is stuck.
    pub fn is_stuck(&self) -> bool {
        self.is_first() && (STUCK_FROM..STUCK_TO).contains(&self.time)
    }

    /// Its engine is gone, or not there yet.
    pub fn is_starting(&self) -> bool {
        let down = if self.is_first() { STUCK_TO..UP_AGAIN } else { DEATH..REBORN };
        down.contains(&self.time)
    }

    /// It answers scrapes: it does not for one scrape while it is restarted.
    pub fn is_scraped(&self) -> bool {
        !self.is_fresh()
    }

    /// It has just been started again, so all counters begin anew.
    pub fn is_fresh(&self) -> bool {
        self.is_first() && self.time == STUCK_TO
    }

    fn serves(&self) -> bool {
        !self.is_stuck() && !self.is_starting()
    }

    /// Since `from`, in seconds.
    fn since(&self, from: u64) -> f64 {
        self.time.saturating_sub(from) as f64
    }

    /// Load comes and goes, between 0.4 and 1.
    fn load(&self) -> f64 {
        let phase = if self.is_first() { 0.0 } else { 1.5 };
        0.7 + 0.3 * (self.since(BEGIN) / 400.0 + phase).sin()
    }
}

/// The value of a gauge.
pub fn gauge(name: &str, labels: &str, at: &Moment) -> f64 {
    let choose = |healthy: f64, stuck: f64| if at.is_stuck() { stuck } else { healthy };
    let served = |healthy: f64, stuck: f64| if at.is_starting() { 0.0 } else { choose(healthy, stuck) };
    let silent = at.since(STUCK_FROM);
    match name.trim_start_matches("radiosonde_") {
        "server_status" => f64::from(u8::from(labels.contains(status(at)))),
        "ready" => f64::from(u8::from(at.serves())),
        "engine_up" => f64::from(u8::from(!at.is_starting())),
        "paused" => 0.0,
        "build_info" => 1.0,
        "process_start_time_seconds" => {
            (if at.is_first() && at.time > STUCK_TO { STUCK_TO } else { BEGIN - 86_400 }) as f64
        }
        "engine_start_time_seconds" => served((BEGIN - 86_400) as f64, (BEGIN - 86_400) as f64),
        "last_receive_timestamp_seconds" => at.time as f64 - choose(0.4, silent),
        "last_receive_age_seconds" | "last_batch_result_age_seconds" => choose(0.4, silent),
        "scheduler_loop_age_seconds" | "scheduler_step_age_seconds" => served(0.03, silent),
        "engine_heartbeat_age_seconds" => choose(0.12, 0.14),
        "health_verdict_age_seconds" => choose(3.0, silent.min(LIMIT)),
        "health_probes_in_flight" => choose(0.0, 3.0),
        "return_health_check_ipcs_depth" => choose(1.0, 2.0),
        "return_health_check_ipcs_oldest_age_seconds" => choose(0.05, silent.min(LIMIT)),
        "scheduler_inbox_depth" => choose(0.0, (silent / 5.0).ceil()),
        "requests_in_flight" | "request_table_size" | "ledger_flights" => served(8.0 * at.load(), 8.0 + silent / 2.0),
        "http_requests_in_flight" if labels.contains("/v1/") => served(8.0 * at.load(), 8.0 + silent / 2.0),
        "num_running_reqs" => served(8.0 * at.load(), 8.0),
        "num_queue_reqs" => served(0.0, silent / 2.0),
        "token_usage" => served(0.6 * at.load(), 0.6),
        "kv_used_tokens" => served(9_800.0 * at.load(), 9_800.0),
        "runtime_lag_seconds" | "process_lag_seconds" => 0.002,
        "health_check_timeout_seconds" => LIMIT,
        "self_probe_interval_seconds" => 10.0,
        "drain_timeout_seconds" => 30.0,
        "engine_restarts_limit" => 3.0,
        "max_total_num_tokens" => 16_384.0,
        "max_running_requests" => 32.0,
        "max_queued_requests" => 256.0,
        "chunked_prefill_size" => 512.0,
        "max_step_time_seconds" => 0.1,
        "prefill_budget_tokens" => served(140.0, 140.0),
        "kv_evictable_tokens" => served(4_200.0, 4_200.0),
        "context_length" => 2_048.0,
        "process_max_fds" => 65_536.0,
        "process_open_fds" | "engine_open_fds" => served(24.0, 60.0),
        "process_threads" | "engine_threads" => served(9.0, 9.0),
        "process_resident_memory_bytes" => 90e6,
        "process_virtual_memory_bytes" => 900e6,
        "engine_resident_memory_bytes" => served(410e6, 410e6),
        _ => 0.0,
    }
}

fn status(at: &Moment) -> &'static str {
    if at.is_starting() {
        "\"starting\""
    } else if at.is_stuck() && at.since(STUCK_FROM) >= LIMIT {
        "\"unhealthy\""
    } else {
        "\"up\""
    }
}

/// How fast a counter or a histogram's count grows, per second.
pub fn rate(name: &str, labels: &str, at: &Moment) -> f64 {
    let has = |all: &[&str]| all.iter().all(|text| labels.contains(text));
    let when = |is: bool, rate: f64| if is { rate } else { 0.0 };
    let died = !at.is_first() && at.time == DEATH;
    let users = when(at.serves(), at.load());
    match name.trim_start_matches("radiosonde_") {
        "health_probe_total" | "health_probe_duration_seconds" => {
            let endpoint =
                ["\"/health\"", "\"/health_generate\"", "\"self\""].iter().position(|text| labels.contains(text));
            let often = PROBED[endpoint.unwrap_or(2)];
            let busy = when(at.serves() && has(&["\"busy\"", "\"ok\""]), BUSY * often);
            let idle = when(at.serves() && has(&["\"idle\"", "\"ok\""]), (1.0 - BUSY) * often);
            busy + idle
                + when(at.is_stuck() && has(&["\"none\"", "\"timeout\""]), often)
                + when(at.is_starting() && has(&["\"none\"", "\"starting\""]), often)
                + when(died && has(&["\"busy\"", "\"engine_dead\""]), often)
        }
        "health_probe_failures_total" => {
            when(at.is_stuck() && has(&["\"scheduler.inbox\"", "\"step_stuck\""]), PROBES)
                + when(died && has(&["\"scheduler.return_health_check_ipcs\"", "\"engine_dead\""]), PROBES)
        }
        "health_probe_evidence_total" if has(&["own_answer"]) => when(at.serves(), PROBES),
        "health_probe_evidence_total" if has(&["\"none\""]) => when(!at.serves(), PROBES),
        "health_probe_hop_duration_seconds" => {
            when(at.serves(), passed_by(labels) * PROBES) + when(at.is_stuck() && has(&["scheduler.inbox"]), PROBES)
        }
        "health_check_outputs_sent_total" | "health_check_outputs_received_total" => when(at.serves(), BUSY * PROBES),
        "health_probes_coalesced_total" => when(at.serves(), 0.05),
        "health_probes_orphaned_total" => when(died, 0.1),
        "incidents_total" => {
            when(at.time == STUCK_FROM && at.is_stuck() && has(&["step_stuck"]), 0.07)
                + when(died && has(&["engine_dead"]), 0.07)
        }
        "engine_restarts_total" => when(died, 0.07),
        "server_status_transitions_total" if has(&["from=\"up\"", "to=\"unhealthy\"", "probe_failed"]) => {
            when(at.time == STUCK_FROM + 30 && at.is_stuck(), 0.07)
        }
        "scheduler_loop_iterations_total" | "scheduler_batches_total" => users * 45.0,
        "scheduler_step_duration_seconds" | "scheduler_batch_size" | "scheduler_step_tokens" => users * 15.0,
        "requests_finished_total" if has(&["/v1/chat/completions", "\"stop\""]) => users,
        "requests_finished_total" if has(&["/v1/chat/completions", "\"error\""]) => when(died, 0.3),
        "num_requests_total" if has(&["/v1/chat/completions"]) => users + when(at.is_stuck(), 0.5),
        "requests_rejected_total" if has(&["\"not_serving\"", "/v1/chat"]) => when(at.is_starting(), 0.5),
        "http_requests_total" if has(&["/v1/chat/completions", "\"2xx\""]) => users,
        "http_requests_total" if has(&["route=\"/health\"", "\"5xx\""]) => when(!at.serves(), 0.2),
        "http_request_duration_seconds" if has(&["/v1/chat/completions"]) => users,
        "prompt_tokens_total" => users * 60.0,
        "cached_tokens_total" => users * 20.0,
        "generation_tokens_total" | "inter_token_latency_seconds" => users * 90.0,
        "time_to_first_token_seconds" | "e2e_request_latency_seconds" | "queue_time_seconds" => users,
        "num_retractions_total" => when(users > 0.95, 0.05),
        "process_cpu_seconds_total" => 0.1,
        "engine_cpu_seconds_total" => users * 2.0,
        "trace_spans_exported_total" => 4.0,
        "trace_spans_unsampled_total" => users * 8.0,
        "trace_spans_dropped_total" if labels.is_empty() || has(&["export_failed"]) => when(at.is_stuck(), 0.5),
        "log_records_exported_total" => 1.0,
        "log_records_dropped_total" if has(&["export_failed"]) => when(at.is_stuck(), 0.1),
        "log_lines_suppressed_total" => when(at.is_stuck(), 2.0),
        _ => 0.0,
    }
}

/// The part of the good probes that come by a hop.
fn passed_by(labels: &str) -> f64 {
    let on_the_way = |hops: &[&str]| hops.iter().any(|hop| labels.contains(hop));
    if on_the_way(&["return_health"]) {
        BUSY
    } else if on_the_way(&["waiting_queue", "run_batch", "forward", "detokenizer"]) {
        1.0 - BUSY
    } else {
        1.0
    }
}

/// The value of a label that only a server with an engine knows.
pub fn known_by_the_engine(label: &str) -> &str {
    match label {
        "model" => "SmolLM2-135M-Instruct",
        "architecture" => "llama",
        other => other,
    }
}

/// The value near which most observations of a histogram lie.
pub fn typical(name: &str, labels: &str, at: &Moment) -> f64 {
    let has = |text: &str| labels.contains(text);
    match name.trim_start_matches("radiosonde_") {
        _ if has("\"timeout\"") => LIMIT,
        "health_probe_hop_duration_seconds" if has("scheduler.inbox") && at.is_stuck() => LIMIT,
        "health_probe_duration_seconds" if has("\"busy\"") => 0.07,
        "health_probe_duration_seconds" => 0.03,
        "health_probe_hop_duration_seconds" if has("return_health") => 0.066,
        "health_probe_hop_duration_seconds" if has("forward") => 0.026,
        "health_probe_hop_duration_seconds" => 0.0005,
        "scheduler_step_duration_seconds" if has("decode") => 0.02,
        "scheduler_step_duration_seconds" => 0.06,
        "scheduler_batch_size" => 6.0,
        "scheduler_step_tokens" if has("decode") => 6.0,
        "scheduler_step_tokens" => 60.0,
        "time_to_first_token_seconds" => 0.15,
        "inter_token_latency_seconds" => 0.025,
        "queue_time_seconds" => 0.02,
        "e2e_request_latency_seconds" | "http_request_duration_seconds" => 2.2,
        _ => 0.05,
    }
}

/// A value of somebody else at a moment; `None` where there is no sample.
type Other = fn(&Moment) -> Option<f64>;

/// Series that Prometheus adds: name, kind, labels, value. Labels that begin with a comma stand beside job and instance
/// of each target.
pub const OF_OTHERS: &[(&str, &str, &str, Other)] = &[
    ("up", "gauge", "", |at| Some(f64::from(u8::from(at.is_scraped())))),
    ("scrape_duration_seconds", "gauge", "", |_| Some(0.004)),
    ("scrape_samples_scraped", "gauge", "", |at| Some(if at.is_scraped() { 900.0 } else { 0.0 })),
    (
        "ALERTS",
        "gauge",
        ",alertname=\"RadiosondeStepStuck\",alertstate=\"firing\",severity=\"critical\",\
         hop=\"scheduler.inbox\",cause=\"step_stuck\"",
        |at| (at.is_stuck() && at.since(STUCK_FROM) >= 45.0).then_some(1.0),
    ),
    ("ALERTS", "gauge", "alertname=\"RadiosondeWatchdog\",alertstate=\"firing\",severity=\"none\"", |_| Some(1.0)),
    ("prometheus_rule_evaluation_failures_total", "counter", "job=\"prometheus\",instance=\"localhost:9090\"", |_| {
        Some(0.0)
    }),
    ("prometheus_notifications_dropped_total", "counter", "job=\"prometheus\",instance=\"localhost:9090\"", |_| {
        Some(0.0)
    }),
];
