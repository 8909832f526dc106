//! Why a probe failed: one pure decision over what is known at the moment of the verdict.

use std::time::Duration;

use crate::io_struct::StepInfo;
use crate::telemetry::labels::{Cause, Hop};

/// A heartbeat comes every 250 ms; an engine that missed three is stopped or starved.
pub const HEARTBEAT_LATE: Duration = Duration::from_millis(750);

/// One missed heartbeat is enough if the engine has not even taken the probe from the socket.
pub const HEARTBEAT_DOUBTFUL: Duration = Duration::from_millis(375);

/// What is known when a probe fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The hop that never finished; `None` if every known hop did.
    pub stalled_at: Option<Hop>,
    /// The engine is gone, and how that was noticed.
    pub engine_dead: Option<String>,
    /// Age of the last heartbeat.
    pub heartbeat_age: Duration,
    /// The step in flight and its age.
    pub step: Option<(StepInfo, Duration)>,
    /// Requests without a place in the batch.
    pub waiting: u32,
    /// Messages received and not seen by the scheduler.
    pub inbox: u32,
    /// Messages that wait in front of the socket to the engine.
    pub to_engine_depth: usize,
    /// Turns of the loop since the probe was sent.
    pub turns: u64,
}

/// The cause, and the evidence for it in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The cause.
    pub cause: Cause,
    /// For people.
    pub detail: String,
}

/// Decides. The order matters: what explains more comes first.
#[must_use]
pub fn diagnose(evidence: &Evidence) -> Diagnosis {
    if let Some(reason) = &evidence.engine_dead {
        return Diagnosis { cause: Cause::EngineDead, detail: reason.clone() };
    }
    let silent = evidence.heartbeat_age;
    let untaken = evidence.stalled_at == Some(Hop::IpcToEngine) && evidence.to_engine_depth == 0;
    if silent > HEARTBEAT_LATE || (untaken && silent > HEARTBEAT_DOUBTFUL) {
        let detail = format!("no heartbeat for {} ms: the engine is stopped or starved", silent.as_millis());
        return Diagnosis { cause: Cause::EngineFrozen, detail };
    }
    match evidence.stalled_at {
        Some(Hop::Http | Hop::Submit | Hop::Receive) => Diagnosis {
            cause: Cause::FrontendStalled,
            detail: "the frontend itself did not get on with the probe".to_owned(),
        },
        Some(Hop::IpcToEngine) => Diagnosis {
            cause: Cause::IpcBackpressure,
            detail: format!("{} messages wait in front of the engine's socket", evidence.to_engine_depth),
        },
        Some(Hop::IpcToFrontend) => Diagnosis {
            cause: Cause::ReturnPathLost,
            detail: "the engine sent the answer, it was never received".to_owned(),
        },
        Some(Hop::Detokenizer) => Diagnosis {
            cause: Cause::DetokenizerStuck,
            detail: "the detokenizer received the answer and did not hand it on".to_owned(),
        },
        Some(_) => diagnose_scheduler(evidence),
        None => Diagnosis { cause: Cause::Unknown, detail: "every known hop has finished".to_owned() },
    }
}

/// Heartbeats come and the probe is with the scheduler.
fn diagnose_scheduler(evidence: &Evidence) -> Diagnosis {
    match evidence.step {
        Some((step, age)) => Diagnosis {
            cause: Cause::StepStuck,
            detail: format!(
                "step {} ({}, {} tokens, {} requests) has been running for {} ms",
                step.number,
                step.phase,
                step.tokens,
                step.requests,
                age.as_millis()
            ),
        },
        None if evidence.turns > 0 => Diagnosis {
            cause: Cause::NotScheduling,
            detail: format!(
                "the loop turned {} times, {} requests wait, no batch was formed",
                evidence.turns, evidence.waiting
            ),
        },
        None => Diagnosis {
            cause: Cause::StepStuck,
            detail: format!("no step is in flight and the loop does not turn; {} messages wait for it", evidence.inbox),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::labels::StepPhase;

    #[test]
    fn causes() {
        let calm = Evidence {
            stalled_at: Some(Hop::Inbox),
            engine_dead: None,
            heartbeat_age: Duration::from_millis(100),
            step: None,
            waiting: 0,
            inbox: 1,
            to_engine_depth: 0,
            turns: 0,
        };
        let ms = Duration::from_millis;
        let step = StepInfo { number: 7, phase: StepPhase::Prefill, tokens: 128, requests: 1 };
        let check = |change: &dyn Fn(&mut Evidence), want: Cause| {
            let mut evidence = calm.clone();
            change(&mut evidence);
            assert_eq!(diagnose(&evidence).cause, want, "{evidence:?}");
        };
        check(&|e| e.engine_dead = Some("killed by signal 9".to_owned()), Cause::EngineDead);
        check(&|e| (e.engine_dead, e.heartbeat_age) = (Some(String::new()), ms(9000)), Cause::EngineDead);
        check(&|e| e.heartbeat_age = ms(800), Cause::EngineFrozen);
        check(&|e| (e.heartbeat_age, e.step) = (ms(800), Some((step, ms(900)))), Cause::EngineFrozen);
        check(&|e| (e.stalled_at, e.heartbeat_age) = (Some(Hop::IpcToEngine), ms(400)), Cause::EngineFrozen);
        check(&|e| (e.stalled_at, e.to_engine_depth) = (Some(Hop::IpcToEngine), 40), Cause::IpcBackpressure);
        check(&|e| e.step = Some((step, ms(900))), Cause::StepStuck);
        check(&|e| (e.stalled_at, e.step) = (Some(Hop::Forward), Some((step, ms(900)))), Cause::StepStuck);
        check(&|_| (), Cause::StepStuck);
        check(&|e| (e.turns, e.waiting) = (50, 1), Cause::NotScheduling);
        check(&|e| e.stalled_at = Some(Hop::IpcToFrontend), Cause::ReturnPathLost);
        check(&|e| e.stalled_at = Some(Hop::Detokenizer), Cause::DetokenizerStuck);
        check(&|e| e.stalled_at = Some(Hop::Submit), Cause::FrontendStalled);
        check(&|e| e.stalled_at = Some(Hop::Receive), Cause::FrontendStalled);
    }

    #[test]
    fn the_detail_names_the_step() {
        let evidence = Evidence {
            stalled_at: Some(Hop::Inbox),
            engine_dead: None,
            heartbeat_age: Duration::ZERO,
            step: Some((
                StepInfo { number: 7, phase: StepPhase::Decode, tokens: 3, requests: 3 },
                Duration::from_secs(2),
            )),
            waiting: 0,
            inbox: 1,
            to_engine_depth: 0,
            turns: 0,
        };
        let want = "step 7 (decode, 3 tokens, 3 requests) has been running for 2000 ms";
        assert_eq!(diagnose(&evidence).detail, want);
    }
}
