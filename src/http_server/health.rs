//! Station 1: `/health` and `/health_generate`. Short cuts, submit, wait, verdict.

mod verdict;
pub mod self_probe;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use futures::FutureExt;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time;

use super::address::ApiQuery;
use super::error::ApiError;
use crate::config::parse_duration;
use crate::engine_view::{EngineView, Link};
use crate::io_struct::{AbortKind, FinishReason};
use crate::server_status::ServerStatus;
use crate::telemetry::labels::{ProbeEndpoint, ProbeEvidence, ProbeOutcome};
use crate::telemetry::metrics::Metrics;
use crate::tokenizer_manager::TokenizerManager;
use crate::tokenizer_manager::request::GenerateOutput;
use verdict::{Probe, Verdict};

/// What the probe handlers hold.
#[derive(Clone)]
pub struct HealthState {
    /// The way to the runtime.
    pub tokenizer_manager: TokenizerManager,
    /// Where probes are counted.
    pub metrics: Arc<Metrics>,
    /// `--health-check-timeout`
    pub timeout: Duration,
    /// `/health` probes like `/health_generate`; off: it answers from the server's state alone.
    pub health_generation: bool,
    /// `--self-probe-interval`; `None`: the server does not probe by itself.
    pub self_probe_interval: Option<Duration>,
}

/// `?timeout=800ms&evidence=own`
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ProbeQuery {
    /// How long to wait, as `800ms`; at most `--health-check-timeout`.
    timeout: Option<String>,
    /// `any` (default): any output proves life; `own`: the probe's own answer alone.
    evidence: Option<String>,
}

/// Which sign of life a caller accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accepts {
    /// Anything received after the probe was sent, as SGLang does.
    AnyOutput,
    /// The probe's own answer alone.
    OwnAnswer,
}

/// `GET /health`
///
/// # Errors
/// 400 for a query that cannot be read.
pub async fn health(
    State(state): State<HealthState>,
    ApiQuery(query): ApiQuery<ProbeQuery>,
) -> Result<Response, ApiError> {
    probe(state, ProbeEndpoint::Health, &query).await
}

/// `GET /health_generate`
///
/// # Errors
/// 400 for a query that cannot be read.
pub async fn health_generate(
    State(state): State<HealthState>,
    ApiQuery(query): ApiQuery<ProbeQuery>,
) -> Result<Response, ApiError> {
    probe(state, ProbeEndpoint::HealthGenerate, &query).await
}

async fn probe(state: HealthState, endpoint: ProbeEndpoint, query: &ProbeQuery) -> Result<Response, ApiError> {
    let limit = limit(query, state.timeout)?;
    let accepts = accepts(query)?;
    let probe = Probe::begin(state, endpoint, limit);
    let verdict = run(&probe, accepts).await;
    Ok(probe.end(verdict))
}

/// The whole of a probe, whoever asks for it.
async fn run(probe: &Probe, accepts: Accepts) -> Verdict {
    let generation_is_off = !probe.state.health_generation && probe.endpoint == ProbeEndpoint::Health;
    match short_cut(&probe.state.tokenizer_manager, generation_is_off) {
        Some(verdict) => verdict,
        None => fly(probe, accepts).await,
    }
}

/// The checks that need no engine, in SGLang's order.
fn short_cut(manager: &TokenizerManager, generation_is_off: bool) -> Option<Verdict> {
    let report = manager.status().report();
    match report.status {
        ServerStatus::Draining => Some(Verdict::without_answer(ProbeOutcome::Draining, report.reason)),
        _ if report.engine_dead || manager.engine().is_dead() => {
            Some(Verdict::without_answer(ProbeOutcome::EngineDead, report.reason))
        }
        ServerStatus::Starting => Some(Verdict::without_answer(ProbeOutcome::Starting, report.reason)),
        _ if generation_is_off => {
            let reason = "generation on /health is switched off (--disable-health-generation)".to_owned();
            Some(Verdict::without_answer(ProbeOutcome::Shortcut, reason))
        }
        ServerStatus::Up | ServerStatus::UnHealthy => Verdict::paused(&manager.engine().snapshot()),
    }
}

/// Sends the probe and waits for the first sign of life, the engine's death or the limit.
async fn fly(probe: &Probe, accepts: Accepts) -> Verdict {
    let manager = &probe.state.tokenizer_manager;
    let mut anything = manager.liveness().listen(); // before submitting: only what arrives from here on counts
    let mut own = match manager.submit_probe(probe.id, probe.began) {
        Ok(own) => own,
        Err(error) => return Verdict::without_answer(ProbeOutcome::Error, error.to_string()),
    };
    let sign_of_life = async {
        tokio::select! {
        answer = own.next() => answered(answer),
        // The own answer is in place before the bell rings: it counts as what it is.
        () = anything.heard(), if accepts == Accepts::AnyOutput => match own.next().now_or_never() {
            Some(answer) => answered(answer),
            None => Verdict::alive(ProbeEvidence::OtherTraffic),
        },
        reason = death(manager.engine()) => Verdict::without_answer(ProbeOutcome::EngineDead, reason),
        verdict = pause(manager.engine()) => verdict,
        }
    };
    let left = probe.limit.saturating_sub(probe.began.elapsed());
    time::timeout(left, sign_of_life).await.unwrap_or_else(|_| {
        let reason = format!("nothing was received within {:?}", probe.limit);
        Verdict::without_answer(ProbeOutcome::Timeout, reason)
    })
}

/// The probe's own request has ended.
fn answered(answer: Option<GenerateOutput>) -> Verdict {
    match answer.and_then(|news| news.finish_reason) {
        Some(FinishReason::Abort { message, kind: AbortKind::EngineDead }) => {
            Verdict::without_answer(ProbeOutcome::EngineDead, message)
        }
        Some(FinishReason::Abort { message, .. }) => Verdict::without_answer(ProbeOutcome::Error, message),
        _ => Verdict::alive(ProbeEvidence::OwnAnswer),
    }
}

/// Returns when the engine is dead, with the reason.
async fn death(engine: &EngineView) -> String {
    let mut link = engine.watch_link();
    let dead = link.wait_for(|link| matches!(link, Link::Dead { .. })).await;
    match dead.as_deref() {
        Ok(Link::Dead { reason }) => reason.clone(),
        _ => "the frontend ends".to_owned(),
    }
}

/// Returns when generation is paused while the probe waits.
async fn pause(engine: &EngineView) -> Verdict {
    let mut paused = engine.watch_paused();
    loop {
        if paused.wait_for(|paused| *paused).await.is_err() {
            std::future::pending::<()>().await;
        }
        if let Some(verdict) = Verdict::paused(&engine.snapshot()) {
            return verdict;
        }
        let _ = paused.changed().await; // paused, and silent: what it says when the limit passes decides
    }
}

fn limit(query: &ProbeQuery, configured: Duration) -> Result<Duration, ApiError> {
    let Some(asked) = &query.timeout else { return Ok(configured) };
    let asked = parse_duration(asked).map_err(|why| ApiError::invalid("timeout", format!("timeout: {why}")))?;
    Ok(asked.min(configured))
}

fn accepts(query: &ProbeQuery) -> Result<Accepts, ApiError> {
    match query.evidence.as_deref() {
        None | Some("any") => Ok(Accepts::AnyOutput),
        Some("own") => Ok(Accepts::OwnAnswer),
        Some(_) => Err(ApiError::invalid("evidence", "evidence must be 'any' (the default) or 'own'")),
    }
}
