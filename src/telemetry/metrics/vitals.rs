//! The vital signs: gauges computed at every scrape, so that an age goes on growing while its owner is stuck.

pub(super) mod signs;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::core::{Collector, Desc, Describer};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Error, Opts, Registry};
use signs::{SIGNS, Sign};

use super::info;
use super::{ProcessStats, ServedInfo};
use crate::telemetry::labels::ServerStatus;

/// Reads the vital signs. Must neither wait for the engine nor for the main runtime: it is called at every scrape.
pub trait ReadVitals: Send + Sync {
    /// How it stands now.
    fn read(&self) -> Vitals;
}

/// What is configured. Those of the engine are 0 until it is ready: it says them itself.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// How long a probe may wait.
    pub health_check_timeout: Duration,
    /// Without a verdict for so long, the server probes itself; zero: never.
    pub self_probe_interval: Duration,
    /// How long a drain may take.
    pub drain_timeout: Duration,
    /// How often the engine may be started again; 0 without a supervisor.
    pub engine_restarts: u64,
    /// The engine: the most requests in the batch.
    pub max_running_requests: u64,
    /// The engine: the most requests that wait.
    pub max_queued_requests: u64,
    /// The engine: the most prompt tokens of one step.
    pub chunked_prefill_size: u64,
    /// The engine: how long a step should last at most; zero: as long as it takes.
    pub max_step_time: Duration,
    /// The model: the most tokens of one request.
    pub context_length: u64,
}

/// How the server stands at one instant.
#[derive(Debug, Clone, PartialEq)]
pub struct Vitals {
    /// The server's status.
    pub status: ServerStatus,
    /// Since the last output of the engine; before the first one, since the start of the frontend.
    pub last_receive_age: Duration,
    /// When that was; before the first output, the start of the frontend.
    pub last_receive_at: SystemTime,
    /// What is configured.
    pub limits: Limits,
    /// What is served; `None` until the engine is ready.
    pub served: Option<ServedInfo>,
    /// The engine's process; all zero without one.
    pub engine_process: ProcessStats,
    /// What `/readyz` would answer.
    pub ready: bool,
    /// Age of the verdict that it would answer from; before the first one, since the end of the start.
    pub verdict_age: Duration,
    /// Since a batch last ended with a result; before the first one, since the engine connected.
    pub last_batch_result_age: Duration,
    /// Since the scheduler's loop last turned, as far as is known; before that, since the engine connected.
    pub loop_age: Duration,
    /// Dedicated answers to probes that the engine has sent to this frontend, since it connected.
    pub health_check_outputs_sent: u64,
    /// Probes that wait in the scheduler for a batch result.
    pub return_health_check_ipcs: u64,
    /// How long the oldest of them has waited.
    pub return_health_check_oldest: Option<Duration>,
    /// Messages received by the engine and not yet seen by its scheduler.
    pub scheduler_inbox: u64,
    /// Requests in the batch.
    pub running: u64,
    /// Requests without a place in the batch.
    pub queued: u64,
    /// KV pool tokens in use.
    pub kv_used_tokens: u64,
    /// KV pool tokens that are kept and that no request uses.
    pub kv_evictable_tokens: u64,
    /// Kept tokens that had to make room, since the start of the engine.
    pub kv_evicted_tokens: u64,
    /// Prompt tokens that a step can take.
    pub prefill_budget: u64,
    /// KV pool size in tokens; 0 until the engine is ready.
    pub max_total_num_tokens: u64,
    /// Turns of the scheduler's loop, since the start of the engine.
    pub loop_iterations: u64,
    /// Batches that ended, since the start of the engine.
    pub batches: u64,
    /// How long the step in flight has run.
    pub step_age: Option<Duration>,
    /// Since the engine's last heartbeat; since the start of the frontend if there was none.
    pub heartbeat_age: Duration,
    /// Whether the engine is connected and ready.
    pub engine_up: bool,
    /// Messages that wait in front of the socket to the engine.
    pub ipc_to_engine: u64,
    /// Messages that wait in the engine, in front of the socket to this frontend.
    pub ipc_to_frontend: u64,
    /// Requests that had to give their KV pages back, since the start of the engine.
    pub retractions: u64,
    /// Requests that had to give their places to others of higher priority, since the start of the engine.
    pub preemptions: u64,
    /// How long the scheduler has waited for grammars and their masks, since the start of the engine.
    pub grammar_wait: Duration,
    /// Requests and probes that this frontend waits for.
    pub request_table: u64,
    /// Requests and probes whose hops are being kept.
    pub flights: u64,
    /// Generation is paused.
    pub paused: bool,
    /// By how much the beat of the main runtime's canary is late.
    pub runtime_lag: Duration,
    /// By how much the beat of the canary on a thread of its own is late.
    pub process_lag: Duration,
}

impl Default for Vitals {
    fn default() -> Self {
        Self {
            status: ServerStatus::Starting,
            last_receive_age: Duration::ZERO,
            last_receive_at: UNIX_EPOCH,
            limits: Limits::default(),
            served: None,
            engine_process: ProcessStats::default(),
            ready: false,
            verdict_age: Duration::ZERO,
            last_batch_result_age: Duration::ZERO,
            loop_age: Duration::ZERO,
            health_check_outputs_sent: 0,
            return_health_check_ipcs: 0,
            return_health_check_oldest: None,
            scheduler_inbox: 0,
            running: 0,
            queued: 0,
            kv_used_tokens: 0,
            kv_evictable_tokens: 0,
            kv_evicted_tokens: 0,
            prefill_budget: 0,
            max_total_num_tokens: 0,
            loop_iterations: 0,
            batches: 0,
            step_age: None,
            heartbeat_age: Duration::ZERO,
            engine_up: false,
            ipc_to_engine: 0,
            ipc_to_frontend: 0,
            retractions: 0,
            preemptions: 0,
            grammar_wait: Duration::ZERO,
            request_table: 0,
            flights: 0,
            paused: false,
            runtime_lag: Duration::ZERO,
            process_lag: Duration::ZERO,
        }
    }
}

/// Declares the vital signs, to be read from `source` at every scrape.
///
/// # Errors
/// They are declared already.
pub fn register(registry: &Registry, source: Arc<dyn ReadVitals>) -> Result<(), Error> {
    let status = Opts::new(STATUS_NAME, STATUS_HELP).variable_label("status").describe()?;
    let mut descs = vec![status];
    descs.extend(signs::descs(SIGNS)?);
    descs.extend(info::descs()?);
    registry.register(Box::new(VitalSigns { source, descs }))
}

struct VitalSigns {
    source: Arc<dyn ReadVitals>,
    descs: Vec<Desc>,
}

impl Collector for VitalSigns {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let vitals = self.source.read();
        let mut families = vec![status(vitals.status)];
        families.extend(SIGNS.iter().map(|sign| sign.family(&vitals)));
        families.extend(info::families(vitals.served.as_ref()));
        families
    }
}

const STATUS_NAME: &str = "radiosonde_server_status";
const STATUS_HELP: &str = "1 for the present status, 0 for the others. unhealthy: the last probe failed or the engine is \
                           dead; the next good probe makes it up again.";

/// A state set: every status is always there, so that a query never meets a hole.
fn status(present: ServerStatus) -> MetricFamily {
    let metric = |&status: &ServerStatus| {
        let mut label = LabelPair::default();
        label.set_name("status".to_owned());
        label.set_value(status.as_str().to_owned());
        let mut metric = Metric::from_label(vec![label]);
        metric.set_gauge(gauge(f64::from(u8::from(status == present))));
        metric
    };
    let metrics = ServerStatus::ALL.iter().map(metric).collect();
    family(STATUS_NAME, STATUS_HELP, MetricType::GAUGE, metrics)
}

impl<T> Sign<T> {
    /// As it is in `source`.
    pub(super) fn family(&self, source: &T) -> MetricFamily {
        let value = (self.read)(source);
        let mut metric = Metric::from_label(Vec::new());
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            metric.set_gauge(gauge(value));
        }
        family(self.name, self.help, self.kind, vec![metric])
    }
}

pub(super) fn gauge(value: f64) -> Gauge {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    gauge
}

pub(super) fn family(name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}
