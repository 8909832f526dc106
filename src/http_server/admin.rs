//! What describes health: `/metrics` and `/debug/probes`. Nothing here waits for the engine.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::error::ApiError;
use super::health::HealthState;
use crate::clock::{MonoNanos, WallAnchor};
use crate::engine_view::Link;
use crate::incidents::KEPT_INCIDENTS;
use crate::probe_ledger::KEPT_AUTOPSIES;
use crate::telemetry::exposition::{self, Format};
use crate::telemetry::metrics::{Metrics, ReadVitals, Vitals};
use crate::tokenizer_manager::TokenizerManager;

/// What the admin handlers hold.
#[derive(Clone)]
pub struct AdminState {
    /// Whose probes and vital signs are shown.
    pub tokenizer_manager: TokenizerManager,
    /// The series.
    pub metrics: Arc<Metrics>,
    /// `--health-check-timeout`
    pub timeout: Duration,
    /// `--self-probe-interval`; `None`: off.
    pub self_probe_interval: Option<Duration>,
}

impl From<&HealthState> for AdminState {
    fn from(health: &HealthState) -> Self {
        Self {
            tokenizer_manager: health.tokenizer_manager.clone(),
            metrics: Arc::clone(&health.metrics),
            timeout: health.timeout,
            self_probe_interval: health.self_probe_interval,
        }
    }
}

/// `GET /metrics`, as text or as OpenMetrics: what the caller prefers.
pub async fn metrics(State(state): State<AdminState>, headers: HeaderMap) -> Response {
    let accept = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    let (content_type, page) = exposition::page(&state.metrics, Format::negotiate(accept));
    ([(CONTENT_TYPE, content_type), (VARY, "accept")], page).into_response()
}

/// `GET /debug/probes`: the last probes, newest first.
pub async fn probes(State(state): State<AdminState>) -> Json<Value> {
    let probes = state.tokenizer_manager.ledger().autopsies();
    Json(json!({ "kept": KEPT_AUTOPSIES, "probes": probes.iter().map(|probe| json!(**probe)).collect::<Vec<_>>() }))
}

/// `GET /debug/probes/{probe_id}`
///
/// # Errors
/// 404: never seen, or forgotten.
pub async fn probe(State(state): State<AdminState>, Path(probe_id): Path<String>) -> Result<Json<Value>, ApiError> {
    let probes = state.tokenizer_manager.ledger().autopsies();
    let found = probes.iter().find(|probe| probe.probe_id == probe_id);
    found.map(|probe| Json(json!(**probe))).ok_or_else(|| {
        let message = format!("no probe with this id among the last {KEPT_AUTOPSIES}");
        ApiError::plain(StatusCode::NOT_FOUND, "not_found_error", message)
    })
}

/// `GET /debug/incidents`: the last reports, newest first.
pub async fn incidents(State(state): State<AdminState>) -> Json<Value> {
    let incidents = state.tokenizer_manager.incidents().recent();
    Json(
        json!({ "kept": KEPT_INCIDENTS, "incidents": incidents.iter().map(|one| (**one).clone()).collect::<Vec<_>>() }),
    )
}

/// Reads the vital signs for each scrape.
pub struct FrontendVitals {
    tokenizer_manager: TokenizerManager,
    health_check_timeout: Duration,
    anchor: WallAnchor,
}

impl FrontendVitals {
    /// Of `tokenizer_manager`.
    #[must_use]
    pub fn new(tokenizer_manager: TokenizerManager, health_check_timeout: Duration) -> Self {
        Self { tokenizer_manager, health_check_timeout, anchor: WallAnchor::now() }
    }
}

impl ReadVitals for FrontendVitals {
    fn read(&self) -> Vitals {
        let manager = &self.tokenizer_manager;
        let report = manager.status().report();
        let engine = manager.engine().snapshot();
        let (now, last) = (MonoNanos::now(), manager.liveness().last_receive_tstamp());
        let heartbeat = engine.heartbeat;
        let model = manager.loaded_model();
        Vitals {
            status: report.status,
            last_receive_age: now.since(last),
            last_receive_at: self.anchor.wall(last),
            health_check_timeout: self.health_check_timeout,
            return_health_check_ipcs: heartbeat.return_health_check_ipcs.into(),
            return_health_check_oldest: heartbeat.return_health_check_oldest.map(|oldest| now.since(oldest)),
            scheduler_inbox: heartbeat.inbox.into(),
            running: heartbeat.running.into(),
            queued: heartbeat.waiting.into(),
            kv_used_tokens: heartbeat.kv_used_tokens.into(),
            max_total_num_tokens: model.as_ref().map_or(0, |model| model.info.max_total_tokens.into()),
            loop_iterations: heartbeat.loop_iterations,
            batches: heartbeat.batches,
            step_age: engine.step.map(|(_, age)| age),
            heartbeat_age: engine.heartbeat_age,
            engine_up: matches!(engine.link, Link::Connected { .. }) && model.is_some(),
            ipc_to_engine: manager.to_engine_depth() as u64,
            ipc_to_frontend: heartbeat.outbox.into(),
            retractions: heartbeat.retractions,
            request_table: manager.table_len() as u64,
            flights: manager.ledger().under_way() as u64,
            paused: engine.paused,
            runtime_lag: manager.lag().task.overdue(now),
            process_lag: manager.lag().thread.overdue(now),
        }
    }
}
