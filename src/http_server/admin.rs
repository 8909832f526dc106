//! What describes health: `/metrics` and `/debug/probes`. Nothing here waits for the engine.

mod vitals;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::address::Name;
use super::error::ApiError;
use super::health::HealthState;
use crate::incidents::KEPT_INCIDENTS;
use crate::probe_ledger::KEPT_AUTOPSIES;
use crate::telemetry::exposition::{self, Format};
use crate::telemetry::metrics::Metrics;
use crate::tokenizer_manager::TokenizerManager;

pub use vitals::FrontendVitals;

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
pub async fn probe(State(state): State<AdminState>, Name(probe_id): Name) -> Result<Json<Value>, ApiError> {
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
