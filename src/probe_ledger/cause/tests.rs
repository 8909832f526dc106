//! Evidence to hop and cause, one case a line.

use super::*;
use crate::telemetry::labels::StepPhase;

const STEP: StepInfo = StepInfo { number: 7, phase: StepPhase::Prefill, tokens: 128, requests: 1 };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The probe is in the inbox, and nothing else is known.
fn calm() -> Evidence {
    Evidence {
        whereabouts: Some(Hop::Inbox),
        lived: ms(1000),
        engine_dead: None,
        engine_stopped: false,
        runtime_lag: ms(0),
        process_lag: ms(0),
        away_from_socket: None,
        heartbeat_age: ms(100),
        step: None,
        loop_stood: ms(5),
        waiting: 0,
        parked: 0,
        kv_lacking_tokens: 0,
        kv_used_tokens: 0,
        inbox: 1,
        to_engine_depth: 0,
    }
}

fn check(hop: impl Into<Option<Hop>>, change: impl FnOnce(&mut Evidence), stalled_at: Hop, cause: Cause) -> String {
    let mut evidence = Evidence { whereabouts: hop.into(), ..calm() };
    change(&mut evidence);
    let diagnosis = diagnose(&evidence);
    assert_eq!((diagnosis.stalled_at, diagnosis.cause), (stalled_at, cause), "{evidence:?}");
    diagnosis.detail
}

#[test]
fn the_engine_as_a_whole() {
    use Cause::{EngineDead, EngineFrozen, IpcBackpressure};
    use Hop::{Detokenizer, Forward, Inbox, IpcToEngine};
    check(None, |e| e.engine_dead = Some("killed".to_owned()), IpcToEngine, EngineDead);
    check(Forward, |e| (e.engine_dead, e.heartbeat_age) = (Some(String::new()), ms(9000)), Forward, EngineDead);
    check(Forward, |e| (e.engine_dead, e.runtime_lag) = (Some(String::new()), ms(900)), Forward, EngineDead);
    check(IpcToEngine, |e| e.engine_stopped = true, IpcToEngine, EngineFrozen);
    check(Forward, |e| (e.engine_stopped, e.step) = (true, Some((STEP, ms(90)))), Forward, EngineFrozen);
    check(Inbox, |e| e.heartbeat_age = ms(800), Inbox, EngineFrozen);
    check(Inbox, |e| (e.heartbeat_age, e.step) = (ms(800), Some((STEP, ms(900)))), Inbox, EngineFrozen);
    check(IpcToEngine, |e| e.heartbeat_age = ms(400), IpcToEngine, EngineFrozen);
    check(IpcToEngine, |e| e.heartbeat_age = ms(240), IpcToEngine, IpcBackpressure);
    check(IpcToEngine, |e| (e.heartbeat_age, e.to_engine_depth) = (ms(400), 40), IpcToEngine, IpcBackpressure);
    check(Detokenizer, |e| e.heartbeat_age = ms(9000), Detokenizer, Cause::DetokenizerStuck);
}

#[test]
fn the_scheduler() {
    use Cause::{LoopFrozen, NotScheduling, StepStuck};
    use Hop::{Forward, Inbox, ProcessInput, Queue, ReturnHealthCheckIpcs, RunBatch};
    for hop in [Inbox, ProcessInput, Queue, ReturnHealthCheckIpcs, RunBatch, Forward] {
        let detail = check(hop, |e| e.step = Some((STEP, ms(900))), hop, StepStuck);
        assert_eq!(detail, "step 7 (prefill, 128 tokens, 1 requests) has been running for 900 ms");
    }
    for hop in [Inbox, ProcessInput, RunBatch, Forward] {
        check(hop, |_| (), hop, LoopFrozen);
    }
    for hop in [Queue, ReturnHealthCheckIpcs] {
        check(hop, |e| e.loop_stood = ms(300), hop, LoopFrozen);
        check(hop, |e| e.waiting = 1, hop, NotScheduling);
    }
    let detail = check(Queue, |e| (e.kv_lacking_tokens, e.waiting) = (64, 3), Queue, NotScheduling);
    assert_eq!(
        detail,
        "the KV pool lacks 64 tokens for the head of the queue (0 are in use); 3 requests and 0 probes wait"
    );
}

#[test]
fn the_way_back_and_the_frontend() {
    use Cause::{DetokenizerStuck, FrontendStalled, ReturnPathLost};
    use Hop::{Detokenizer, Forward, Http, IpcToEngine, IpcToFrontend, Receive, Submit};
    check(IpcToFrontend, |_| (), IpcToFrontend, ReturnPathLost);
    check(Detokenizer, |_| (), Detokenizer, DetokenizerStuck);
    check(Receive, |_| (), Receive, FrontendStalled);
    check(Submit, |_| (), Submit, FrontendStalled);
    for hop in [IpcToEngine, Forward, IpcToFrontend] {
        check(hop, |e| (e.runtime_lag, e.heartbeat_age) = (ms(600), ms(900)), Http, FrontendStalled);
        let away = Some((IpcToFrontend, ms(800)));
        check(hop, |e| (e.away_from_socket, e.heartbeat_age) = (away, ms(900)), IpcToFrontend, FrontendStalled);
    }
    let blocked = check(Submit, |e| e.runtime_lag = ms(600), Http, FrontendStalled);
    assert_eq!(blocked, "the frontend's runtime was blocked for 600 of the probe's 1000 ms");
    let starved = check(Submit, |e| (e.runtime_lag, e.process_lag) = (ms(600), ms(550)), Http, FrontendStalled);
    assert_eq!(starved, "the frontend's process got no CPU for 600 of the probe's 1000 ms");
    check(IpcToFrontend, |e| e.runtime_lag = ms(400), IpcToFrontend, ReturnPathLost);
    check(Forward, |e| e.away_from_socket = Some((Detokenizer, ms(90))), Detokenizer, DetokenizerStuck);
    check(IpcToFrontend, |e| e.away_from_socket = Some((Detokenizer, ms(9))), IpcToFrontend, ReturnPathLost);
}

/// Every hop at which a probe can be, with nothing else known, has a cause.
#[test]
fn there_is_always_a_cause() {
    for hop in Hop::ALL.iter().copied().map(Some).chain([None]) {
        assert_ne!(diagnose(&Evidence { whereabouts: hop, ..calm() }).cause, Cause::Unknown, "{hop:?}");
    }
}
