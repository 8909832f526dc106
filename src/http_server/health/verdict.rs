//! How a probe ends: once, in every case, with trace, metrics, autopsy and answer telling the same.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header::CACHE_CONTROL};
use axum::response::{IntoResponse, Response};
use tracing::Span;

use super::HealthState;
use crate::clock::{MonoNanos, WallAnchor};
use crate::engine_view::EngineSnapshot;
use crate::io_struct::ProbeId;
use crate::probe_ledger::Flight;
use crate::probe_ledger::autopsy::{Autopsy, Scene, millis, timeline};
use crate::probe_ledger::cause::{Diagnosis, HEARTBEAT_LATE, diagnose};
use crate::server_status::StatusEvent;
use crate::server_status::last_verdict::LastVerdict;
use crate::telemetry::labels::{Cause, Hop, ProbeBranch, ProbeEndpoint, ProbeEvidence, ProbeOutcome};
use crate::telemetry::metrics::{InFlight, ProbeEnd, TraceRef};
use crate::telemetry::otlp::Ending;
use crate::telemetry::spans::{self, ProbeAttributes};

/// How a probe ended, and why in a sentence.
#[derive(Debug)]
pub struct Verdict {
    outcome: ProbeOutcome,
    evidence: ProbeEvidence,
    reason: String,
}

impl Verdict {
    /// Something was received in time.
    pub fn alive(evidence: ProbeEvidence) -> Self {
        let reason = match evidence {
            ProbeEvidence::OwnAnswer => "the probe's own answer was received",
            ProbeEvidence::OtherTraffic => "an output of the engine was received after the probe was sent",
            ProbeEvidence::None => "nothing was received",
        };
        Self { outcome: ProbeOutcome::Ok, evidence, reason: reason.to_owned() }
    }

    /// Nothing was received, or nothing had to be.
    pub fn without_answer(outcome: ProbeOutcome, reason: String) -> Self {
        Self { outcome, evidence: ProbeEvidence::None, reason }
    }

    /// While generation is paused, there is nothing to prove: `None` if `engine` is not, or says nothing.
    pub fn paused(engine: &EngineSnapshot) -> Option<Self> {
        let reason = "generation is paused (POST /continue_generation ends it)".to_owned();
        (engine.paused && engine.heartbeat_age <= HEARTBEAT_LATE)
            .then(|| Self::without_answer(ProbeOutcome::Paused, reason))
    }

    /// Nothing was received, and `engine` says at the end that it is paused: it was silent when the pause began.
    fn or_paused(self, engine: &EngineSnapshot) -> Self {
        match self.outcome {
            ProbeOutcome::Timeout => Self::paused(engine).unwrap_or(self),
            _ => self,
        }
    }

    fn is_good(&self) -> bool {
        matches!(self.outcome, ProbeOutcome::Ok | ProbeOutcome::Shortcut | ProbeOutcome::Paused)
    }
}

/// A probe under way. Dropped before its end, its client has hung up.
pub struct Probe {
    /// What the handler holds.
    pub state: HealthState,
    /// Its id.
    pub id: ProbeId,
    /// When the handler began.
    pub began: MonoNanos,
    /// How long it may wait.
    pub limit: Duration,
    /// Where it came in.
    pub endpoint: ProbeEndpoint,
    span: Span,
    in_flight: Option<InFlight>,
}

impl Probe {
    /// A probe begins, in the server's span.
    pub fn begin(state: HealthState, endpoint: ProbeEndpoint, limit: Duration) -> Self {
        let (id, span) = (ProbeId::random(), Span::current());
        spans::name_probe(&span, &id.to_string());
        let in_flight = Some(state.metrics.probes.began());
        Self { state, id, began: MonoNanos::now(), limit, endpoint, span, in_flight }
    }

    /// The verdict falls.
    pub fn end(mut self, verdict: Verdict) -> Response {
        let autopsy = self.conclude(verdict);
        let status = if autopsy.healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let mut response = (status, Json(&*autopsy)).into_response();
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    /// The verdict falls, and nobody waits for an answer.
    pub fn close(mut self, verdict: Verdict) {
        self.conclude(verdict);
    }

    /// Writes the end into every book, in one order: status, ledger and trace, metrics, ring.
    fn conclude(&mut self, verdict: Verdict) -> std::sync::Arc<Autopsy> {
        self.in_flight = None;
        let manager = self.state.tokenizer_manager.clone();
        let now = MonoNanos::now();
        let scene = manager.scene(self.began);
        let verdict = verdict.or_paused(&scene.engine);
        let mut flight = manager.ledger().land(&self.id.rid());
        let diagnosis = judge(&verdict, &scene, flight.as_ref());
        if let Some(flight) = &mut flight {
            if let Some(diagnosis) = &diagnosis {
                flight.timeline.name_stall(diagnosis.stalled_at, self.began);
            }
            manager.ledger().write(flight, now);
            for record in flight.timeline.hops() {
                self.state.metrics.probes.crossed(record.hop, record.left.unwrap_or(now).since(record.entered));
            }
        }
        if let Some(event) = status_event(&verdict, diagnosis.as_ref()) {
            manager.status().apply(event);
        }
        let mut autopsy = Autopsy {
            status: manager.status().report().status,
            healthy: verdict.is_good(),
            reason: verdict.reason,
            probe_id: self.id.to_string(),
            endpoint: self.endpoint,
            branch: flight.as_ref().map_or(ProbeBranch::None, |flight| flight.branch),
            evidence: verdict.evidence,
            outcome: verdict.outcome,
            duration_ms: millis(now.since(self.began)),
            limit_ms: millis(self.limit),
            started_at: WallAnchor::now().unix_seconds(self.began),
            trace_id: spans::trace_id(&self.span),
            stalled_at: None,
            cause: None,
            cause_detail: None,
            timeline: flight.as_ref().map(|flight| timeline(flight, self.began)).unwrap_or_default(),
            waited_for: flight.as_ref().map(Flight::waited_for).unwrap_or_default(),
            step: None,
            queues: None,
            ages: None,
        };
        if let Some(diagnosis) = diagnosis {
            autopsy = autopsy.failed(&scene, diagnosis);
        }
        match autopsy.outcome {
            ProbeOutcome::Ok => manager.incidents().probe_succeeded(),
            _ => manager.incidents().probe_failed(&autopsy),
        }
        if LastVerdict::counts(autopsy.outcome) {
            manager.status().conclude(last_verdict(&autopsy, now));
        }
        self.publish(&autopsy, now.since(self.began));
        manager.ledger().keep(autopsy)
    }

    /// Its trace, for the metrics to point to.
    fn trace(&self, at: MonoNanos, outcome: ProbeOutcome) -> Option<TraceRef> {
        let (ledger, root) = (self.state.tokenizer_manager.ledger(), spans::context(&self.span));
        ledger.trace(&root, self.began, at, Ending::Probe(outcome))
    }

    fn publish(&self, autopsy: &Autopsy, duration: Duration) {
        spans::record_probe(
            &self.span,
            &ProbeAttributes {
                branch: autopsy.branch,
                outcome: autopsy.outcome,
                evidence: autopsy.evidence,
                stalled_at: autopsy.stalled_at,
                cause: autopsy.cause,
                detail: autopsy.cause_detail.as_deref(),
                limit: self.limit,
            },
        );
        self.state.metrics.probes.ended(&ProbeEnd {
            endpoint: autopsy.endpoint,
            branch: autopsy.branch,
            outcome: autopsy.outcome,
            evidence: autopsy.evidence,
            stalled_at: autopsy.stalled_at,
            cause: autopsy.cause,
            duration,
            trace: self.trace(self.began.after(duration), autopsy.outcome),
        });
        let (stalled_at, cause) = (autopsy.stalled_at.map(Hop::as_str), autopsy.cause.map(Cause::as_str));
        match autopsy.outcome {
            ProbeOutcome::Timeout | ProbeOutcome::EngineDead | ProbeOutcome::Error => tracing::warn!(
                outcome = %autopsy.outcome,
                stalled_at,
                cause,
                detail = autopsy.cause_detail,
                duration_ms = autopsy.duration_ms,
                "health probe failed"
            ),
            outcome => tracing::debug!(%outcome, branch = %autopsy.branch, "health probe ended"),
        }
    }
}

/// Why and where the probe failed, if it did.
fn judge(verdict: &Verdict, scene: &Scene, flight: Option<&Flight>) -> Option<Diagnosis> {
    match (verdict.outcome, flight) {
        (ProbeOutcome::Timeout | ProbeOutcome::EngineDead, flight) => Some(diagnose(&scene.evidence(flight))),
        (ProbeOutcome::Error, Some(flight)) => {
            let stalled_at = flight.timeline.stalled_at().unwrap_or(Hop::Forward);
            Some(Diagnosis { stalled_at, cause: Cause::StepFailed, detail: verdict.reason.clone() })
        }
        (ProbeOutcome::Error, None) => {
            let (stalled_at, cause) = (Hop::Submit, Cause::FrontendStalled); // its table is full
            Some(Diagnosis { stalled_at, cause, detail: verdict.reason.clone() })
        }
        _ => None,
    }
}

/// What the verdict means for the server as a whole.
fn status_event(verdict: &Verdict, diagnosis: Option<&Diagnosis>) -> Option<StatusEvent> {
    match (verdict.outcome, diagnosis.map(|diagnosis| diagnosis.cause)) {
        (ProbeOutcome::Ok, _) => Some(StatusEvent::ProbeOk),
        (ProbeOutcome::Timeout | ProbeOutcome::Error | ProbeOutcome::EngineDead, Some(cause)) => {
            Some(StatusEvent::ProbeFailed(format!("{cause}: {}", verdict.reason)))
        }
        _ => None,
    }
}

/// What is kept for those who cannot wait for a probe.
fn last_verdict(autopsy: &Autopsy, at: MonoNanos) -> LastVerdict {
    LastVerdict {
        healthy: autopsy.healthy,
        outcome: autopsy.outcome,
        reason: autopsy.reason.clone(),
        stalled_at: autopsy.stalled_at,
        cause: autopsy.cause,
        at,
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if self.in_flight.is_some() {
            let reason = "the client hung up before the verdict".to_owned();
            self.conclude(Verdict::without_answer(ProbeOutcome::ClientGone, reason));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine_view::EngineView;

    /// A pause that begins while the engine is silent is heard of when the engine speaks again: too late to answer the
    /// probe, but in time for its verdict.
    #[test]
    fn a_limit_that_passes_in_a_pause_is_no_failure() {
        let check = |outcome, paused, heartbeat_age, want| {
            let engine = EngineSnapshot { paused, heartbeat_age, ..EngineView::default().snapshot() };
            let verdict = Verdict::without_answer(outcome, "why".to_owned()).or_paused(&engine);
            assert_eq!(verdict.outcome, want, "{engine:?}");
        };
        let (fresh, late) = (HEARTBEAT_LATE, HEARTBEAT_LATE + Duration::from_millis(1));
        check(ProbeOutcome::Timeout, true, fresh, ProbeOutcome::Paused);
        check(ProbeOutcome::Timeout, true, late, ProbeOutcome::Timeout);
        check(ProbeOutcome::Timeout, false, fresh, ProbeOutcome::Timeout);
        check(ProbeOutcome::EngineDead, true, fresh, ProbeOutcome::EngineDead);
        check(ProbeOutcome::Ok, true, fresh, ProbeOutcome::Ok);
    }
}
