//! The vital signs of a frontend, read for each scrape from what is known already.

use std::time::Duration;

use super::AdminState;
use crate::clock::{MonoNanos, WallAnchor};
use crate::engine_view::{EngineSnapshot, Link};
use crate::http_server::readiness::Standing;
use crate::io_struct::{Heartbeat, KernelBackend};
use crate::telemetry::metrics::{Limits, ProcessStats, ReadVitals, ServedInfo, Vitals};
use crate::tokenizer_manager::ServedModel;

/// Reads the vital signs for each scrape.
pub struct FrontendVitals {
    state: AdminState,
    drain_timeout: Duration,
    engine_restarts: usize,
    anchor: WallAnchor,
}

impl FrontendVitals {
    /// Of `state`; the others are `--drain-timeout`, and `--engine-restarts` where there is a supervisor.
    #[must_use]
    pub fn new(state: AdminState, drain_timeout: Duration, engine_restarts: usize) -> Self {
        Self { state, drain_timeout, engine_restarts, anchor: WallAnchor::now() }
    }

    fn limits(&self, model: Option<&ServedModel>) -> Limits {
        let of_engine = model.map(|model| model.limits).unwrap_or_default();
        Limits {
            health_check_timeout: self.state.timeout,
            self_probe_interval: self.state.self_probe_interval.unwrap_or_default(),
            drain_timeout: self.drain_timeout,
            engine_restarts: self.engine_restarts as u64,
            max_running_requests: of_engine.max_running_requests.into(),
            max_queued_requests: of_engine.max_queued_requests.into(),
            chunked_prefill_size: of_engine.chunked_prefill_size.into(),
            max_step_time: of_engine.max_step_time,
            context_length: model.map_or(0, |model| model.info.context_length.into()),
        }
    }
}

impl ReadVitals for FrontendVitals {
    fn read(&self) -> Vitals {
        let manager = &self.state.tokenizer_manager;
        let standing = Standing::of(&self.state);
        let engine = manager.engine().snapshot();
        let (now, last) = (MonoNanos::now(), standing.last_receive);
        let heartbeat = engine.heartbeat;
        let present = present(&engine);
        let model = manager.loaded_model();
        Vitals {
            status: standing.report.status,
            last_receive_age: now.since(last),
            last_receive_at: self.anchor.wall(last),
            limits: self.limits(model.as_deref()),
            served: model.as_deref().map(served),
            engine_process: process(&engine),
            ready: standing.judge(now).ready,
            verdict_age: now.since(standing.verdict_at()),
            last_batch_result_age: engine.last_batch_result_age,
            loop_age: engine.loop_age,
            health_check_outputs_sent: heartbeat.health_check_outputs,
            return_health_check_ipcs: present.return_health_check_ipcs.into(),
            return_health_check_oldest: present.return_health_check_oldest.map(|oldest| now.since(oldest)),
            scheduler_inbox: present.inbox.into(),
            running: present.running.into(),
            queued: present.waiting.into(),
            kv_used_tokens: present.kv_used_tokens.into(),
            kv_evictable_tokens: present.kv_evictable_tokens.into(),
            kv_evicted_tokens: heartbeat.kv_evicted_tokens,
            prefill_budget: present.prefill_budget.into(),
            max_total_num_tokens: model.as_ref().map_or(0, |model| model.info.max_total_tokens.into()),
            loop_iterations: heartbeat.loop_iterations,
            batches: heartbeat.batches,
            step_age: engine.step.filter(|_| !is_dead(&engine)).map(|(_, age)| age),
            heartbeat_age: engine.heartbeat_age,
            engine_up: matches!(engine.link, Link::Connected { .. }) && model.is_some(),
            ipc_to_engine: manager.to_engine_depth() as u64,
            ipc_to_frontend: present.outbox.into(),
            retractions: heartbeat.retractions,
            preemptions: heartbeat.preemptions,
            grammar_wait: heartbeat.grammar_wait,
            request_table: manager.table_len() as u64,
            flights: manager.ledger().under_way() as u64,
            paused: engine.paused,
            runtime_lag: manager.lag().task.overdue(now),
            process_lag: manager.lag().thread.overdue(now),
        }
    }
}

fn served(model: &ServedModel) -> ServedInfo {
    let page_size = model.limits.page_size;
    ServedInfo {
        model: model.served_name.clone(),
        architecture: model.info.architecture.clone(),
        page_size,
        num_pages: model.info.max_total_tokens / page_size.max(1),
        kernels: model.info.kernels.map_or("none", KernelBackend::as_str),
    }
}

/// What the engine holds. A dead one holds nothing, whatever it said last.
fn present(engine: &EngineSnapshot) -> Heartbeat {
    if is_dead(engine) { Heartbeat::default() } else { engine.heartbeat }
}

fn is_dead(engine: &EngineSnapshot) -> bool {
    matches!(engine.link, Link::Dead { .. })
}

/// The kernel tells, whatever the engine does.
fn process(engine: &EngineSnapshot) -> ProcessStats {
    match engine.link {
        Link::Connected { pid } => ProcessStats::of(pid).unwrap_or_default(),
        Link::Connecting | Link::Dead { .. } => ProcessStats::default(),
    }
}
