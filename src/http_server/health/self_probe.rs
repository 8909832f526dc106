//! The probe that the server sends by itself when nobody else asks, so that there is always a fresh verdict.

use std::time::Duration;

use tokio::time;
use tracing::Instrument;

use super::verdict::Probe;
use super::{Accepts, HealthState, run};
use crate::clock::MonoNanos;
use crate::server_status::{ServerStatus, StatusReport};
use crate::telemetry::labels::ProbeEndpoint;
use crate::telemetry::spans;

/// An output may be the answer to somebody else's probe, whose verdict falls in a moment and spares ours.
const OTHERS_FIRST: Duration = Duration::from_millis(50);

/// What to do until the next look.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Not serving: only a new status changes that.
    AwaitStatus,
    /// Good so far: look again then, unless the status changes.
    AwaitTime(Duration),
    /// The last probe failed: look again then, or as soon as an output arrives.
    AwaitTimeOrOutput(Duration),
    /// Now.
    Probe,
}

/// Sends a probe whenever `interval` has passed without a verdict and without an output. Never returns.
pub async fn keep_probing(state: HealthState, interval: Duration) {
    let manager = state.tokenizer_manager.clone();
    let mut status = manager.status().watch();
    let mut last_own = MonoNanos::default(); // whatever came of it, the next one is an interval away
    loop {
        let mut output = manager.liveness().listen(); // before looking: what arrives from here on is news
        let report = status.borrow_and_update().clone();
        let last_verdict = manager.status().last_verdict().map_or(report.since, |verdict| verdict.at);
        let last_output = manager.liveness().last_receive_tstamp();
        let next = next(&report, last_verdict.max(last_own), last_output, MonoNanos::now(), interval);
        let changed = async {
            if status.changed().await.is_err() {
                std::future::pending::<()>().await; // the server ends
            }
        };
        match next {
            Next::AwaitStatus => changed.await,
            Next::AwaitTime(left) => _ = time::timeout(left, changed).await,
            Next::AwaitTimeOrOutput(left) => {
                let mut changed = std::pin::pin!(changed);
                tokio::select! {
                    _ = time::timeout(left, &mut changed) => {}
                    () = output.heard() => if time::timeout(OTHERS_FIRST, changed).await.is_err() {
                        last_own = probe(&state).await;
                    }
                }
            }
            Next::Probe => last_own = probe(&state).await,
        }
    }
}

/// A timer that outputs push back: it is set again when it has run down, not at each output.
fn next(
    report: &StatusReport,
    last_verdict: MonoNanos,
    last_output: MonoNanos,
    now: MonoNanos,
    interval: Duration,
) -> Next {
    let last_verdict = last_verdict.max(report.since);
    let newest = match report.status {
        ServerStatus::Starting | ServerStatus::Draining => return Next::AwaitStatus,
        _ if report.engine_dead => return Next::AwaitStatus,
        ServerStatus::Up => last_verdict.max(last_output),
        ServerStatus::UnHealthy => last_verdict, // now an output is a reason to look again, not a reason to wait
    };
    match interval.checked_sub(now.since(newest)) {
        None | Some(Duration::ZERO) => Next::Probe,
        Some(left) if report.status == ServerStatus::UnHealthy => Next::AwaitTimeOrOutput(left),
        Some(left) => Next::AwaitTime(left),
    }
}

/// One probe of our own, on the same path and in the same books as everybody's; when it ended.
async fn probe(state: &HealthState) -> MonoNanos {
    let span = spans::self_probe_span();
    let begin = || Probe::begin(state.clone(), ProbeEndpoint::SelfProbe, state.timeout);
    let probe = span.in_scope(begin);
    async move {
        let verdict = run(&probe, Accepts::AnyOutput).await;
        probe.close(verdict);
        MonoNanos::now()
    }
    .instrument(span)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn when_to_probe() {
        let interval = Duration::from_secs(10);
        let seconds = Duration::from_secs;
        let check = |status, verdict: u64, output: u64, now: u64, want: Next| {
            let report = StatusReport {
                status,
                reason: String::new(),
                since: MonoNanos(100 * SECOND),
                engine_dead: false,
                been_up: true,
                refuses_work: false,
            };
            let [verdict, output, now] = [verdict, output, now].map(|seconds| MonoNanos(seconds * SECOND));
            assert_eq!(next(&report, verdict, output, now, interval), want, "{status} {verdict:?} {output:?} {now:?}");
        };
        use ServerStatus::{Draining, Starting, UnHealthy, Up};
        check(Starting, 0, 0, 999, Next::AwaitStatus);
        check(Draining, 100, 100, 999, Next::AwaitStatus);
        check(Up, 0, 0, 103, Next::AwaitTime(seconds(7)));
        check(Up, 0, 0, 110, Next::Probe);
        check(Up, 105, 0, 110, Next::AwaitTime(seconds(5)));
        check(Up, 105, 109, 110, Next::AwaitTime(seconds(9)));
        check(Up, 105, 109, 119, Next::Probe);
        check(UnHealthy, 105, 109, 110, Next::AwaitTimeOrOutput(seconds(5)));
        check(UnHealthy, 105, 114, 115, Next::Probe);
    }
}
