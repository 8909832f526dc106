//! May traffic be sent here? Answered at once, from the last verdict: `/readyz`, `/startupz`, `/ready`, `/ping`.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header::CACHE_CONTROL};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use super::admin::AdminState;
use crate::clock::MonoNanos;
use crate::probe_ledger::autopsy::millis;
use crate::server_status::last_verdict::LastVerdict;
use crate::server_status::{ServerStatus, StatusReport};
use crate::telemetry::labels::{Cause, Hop, ProbeOutcome};

/// The last probe may have begun a second late.
const SELF_PROBE_SLACK: Duration = Duration::from_secs(1);

/// What is known when somebody asks.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The server's status.
    pub report: StatusReport,
    /// What the last probe concluded.
    pub verdict: Option<LastVerdict>,
    /// When the last output was received.
    pub last_receive: MonoNanos,
    /// Whether generation is paused.
    pub paused: bool,
    /// How old the last sign of life may be; `None`: any age.
    pub fresh_for: Option<Duration>,
    /// The connection to the engine has ended; the status follows when it is known how.
    pub engine_gone: bool,
}

/// The answer, as it is sent.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Readiness {
    /// May traffic be sent here?
    pub ready: bool,
    /// The server's status.
    pub status: ServerStatus,
    /// Why, in a sentence.
    pub reason: String,
    /// Age of the last sign of life: a good verdict, an output, or the end of the start.
    pub age_ms: f64,
    /// How old it may be; null: any age, since self-probes are off.
    pub fresh_for_ms: Option<f64>,
    /// What the last probe concluded; null before the first.
    pub verdict: Option<Verdict>,
}

/// The last verdict, as it is sent.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Verdict {
    healthy: bool,
    outcome: ProbeOutcome,
    reason: String,
    age_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stalled_at: Option<Hop>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<Cause>,
}

impl Standing {
    /// How it stands now.
    #[must_use]
    pub fn of(state: &AdminState) -> Self {
        let manager = &state.tokenizer_manager;
        Self {
            report: manager.status().report(),
            verdict: manager.status().last_verdict(),
            last_receive: manager.liveness().last_receive_tstamp(),
            paused: *manager.engine().watch_paused().borrow(),
            fresh_for: state.self_probe_interval.map(|interval| interval + state.timeout + SELF_PROBE_SLACK),
            engine_gone: manager.engine().is_dead(),
        }
    }

    /// When the last verdict fell. Before the first, the end of the start stands for it.
    #[must_use]
    pub fn verdict_at(&self) -> MonoNanos {
        self.verdict.as_ref().map_or(self.report.since, |verdict| verdict.at)
    }

    /// The last sign of life. An output is one as good as a verdict: a server that is always busy need not probe.
    fn newest(&self) -> MonoNanos {
        self.verdict_at().max(self.last_receive)
    }

    /// The answer at `now`.
    #[must_use]
    pub fn judge(&self, now: MonoNanos) -> Readiness {
        let age = now.since(self.newest());
        let against = self.objection(age);
        let ready = against.is_none();
        Readiness {
            ready,
            status: self.report.status,
            reason: against.unwrap_or_else(|| self.verdict.as_ref().unwrap_or(&self.start()).reason.clone()),
            age_ms: millis(age),
            fresh_for_ms: self.fresh_for.map(millis),
            verdict: self.verdict.as_ref().map(|verdict| Verdict::at(verdict, now)),
        }
    }

    /// Before the first probe, the end of the start stands for it: the model has run once.
    fn start(&self) -> LastVerdict {
        LastVerdict {
            healthy: true,
            outcome: ProbeOutcome::Ok,
            reason: self.report.reason.clone(),
            stalled_at: None,
            cause: None,
            at: self.report.since,
        }
    }

    /// Up, at any age of the verdict.
    fn is_up(&self) -> bool {
        self.report.status == ServerStatus::Up && !self.engine_gone
    }

    fn objection(&self, age: Duration) -> Option<String> {
        if self.report.status != ServerStatus::Up {
            return Some(self.report.reason.clone());
        }
        if self.engine_gone {
            return Some("the connection to the engine has ended".to_owned());
        }
        if let Some(bad) = self.verdict.as_ref().filter(|verdict| !verdict.healthy) {
            return Some(bad.reason.clone());
        }
        if self.paused {
            return Some("generation is paused".to_owned());
        }
        let limit = self.fresh_for.filter(|limit| age > *limit)?;
        Some(format!("the last sign of life is {} ms old, at most {} are allowed", age.as_millis(), limit.as_millis()))
    }
}

impl Verdict {
    fn at(verdict: &LastVerdict, now: MonoNanos) -> Self {
        Self {
            healthy: verdict.healthy,
            outcome: verdict.outcome,
            reason: verdict.reason.clone(),
            age_ms: millis(now.since(verdict.at)),
            stalled_at: verdict.stalled_at,
            cause: verdict.cause,
        }
    }
}

/// `GET /readyz`: 200 if the server is up and a good verdict is fresh.
pub async fn readyz(State(state): State<AdminState>) -> Response {
    let readiness = Standing::of(&state).judge(MonoNanos::now());
    answer(readiness.ready, readiness)
}

/// `GET /startupz`: 200 once the server has been up, for good.
pub async fn startupz(State(state): State<AdminState>) -> Response {
    let standing = Standing::of(&state);
    answer(standing.report.been_up, standing.judge(MonoNanos::now()))
}

/// `GET /ready`, as SGLang has it: up and not paused, at any age of the verdict.
pub async fn ready(State(state): State<AdminState>) -> Response {
    let standing = Standing::of(&state);
    answer(standing.is_up() && !standing.paused, standing.judge(MonoNanos::now()))
}

/// `GET /ping`, as SGLang has it: up.
pub async fn ping(State(state): State<AdminState>) -> Response {
    let standing = Standing::of(&state);
    answer(standing.is_up(), standing.judge(MonoNanos::now()))
}

/// The status code is this path's answer; the body is the same on all paths.
fn answer(yes: bool, body: Readiness) -> Response {
    let status = if yes { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut response = (status, Json(body)).into_response();
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn standing() -> Standing {
        let report = StatusReport {
            status: ServerStatus::Up,
            reason: "the model is loaded".to_owned(),
            since: MonoNanos(10 * SECOND),
            engine_dead: false,
            been_up: true,
            refuses_work: false,
        };
        let (last_receive, fresh_for) = (MonoNanos(5 * SECOND), Some(Duration::from_secs(31)));
        Standing { report, verdict: None, last_receive, paused: false, fresh_for, engine_gone: false }
    }

    fn verdict(healthy: bool, at: u64) -> Option<LastVerdict> {
        let outcome = if healthy { ProbeOutcome::Ok } else { ProbeOutcome::Timeout };
        let at = MonoNanos(at * SECOND);
        Some(LastVerdict {
            healthy,
            outcome,
            reason: "the probe's reason".to_owned(),
            stalled_at: None,
            cause: None,
            at,
        })
    }

    #[test]
    fn readiness() {
        let check = |change: &dyn Fn(&mut Standing), now: u64, want: Result<&str, &str>| {
            let mut standing = standing();
            change(&mut standing);
            let got = standing.judge(MonoNanos(now * SECOND));
            let got = if got.ready { Ok(got.reason) } else { Err(got.reason) };
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{standing:?} at {now} s");
        };
        let loaded = Ok("the model is loaded");
        let stale = Err("the last sign of life is 32000 ms old, at most 31000 are allowed");
        check(&|_| (), 41, loaded);
        check(&|_| (), 42, stale);
        check(&|s| s.fresh_for = None, 9999, loaded);
        check(&|s| s.last_receive = MonoNanos(20 * SECOND), 51, loaded);
        check(&|s| s.last_receive = MonoNanos(20 * SECOND), 52, stale);
        check(&|s| s.verdict = verdict(true, 20), 51, Ok("the probe's reason"));
        check(&|s| s.verdict = verdict(true, 20), 52, stale);
        check(&|s| s.verdict = verdict(false, 20), 21, Err("the probe's reason"));
        check(&|s| s.paused = true, 11, Err("generation is paused"));
        check(&|s| s.engine_gone = true, 11, Err("the connection to the engine has ended"));
        for status in [ServerStatus::Starting, ServerStatus::UnHealthy, ServerStatus::Draining] {
            let change = move |s: &mut Standing| {
                s.report.status = status;
                s.verdict = verdict(true, 20);
            };
            check(&change, 21, Err("the model is loaded"));
        }
    }
}
