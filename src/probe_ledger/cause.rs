//! Why a probe failed, and where: one pure decision over what is known at the moment of the verdict.

use std::time::Duration;

use crate::io_struct::StepInfo;
use crate::telemetry::labels::{Cause, Hop};

/// A heartbeat comes every 250 ms; an engine that missed three is stopped or starved.
pub const HEARTBEAT_LATE: Duration = Duration::from_millis(750);

/// One missed heartbeat is enough if the engine has not even taken the probe from the socket.
pub const HEARTBEAT_DOUBTFUL: Duration = Duration::from_millis(375);

/// A loop that waits for a batch looks again every 10 ms; one that has not turned for so long stands.
pub const LOOP_STANDS: Duration = Duration::from_millis(250);

/// What is read from the socket is handed on within microseconds; longer than this is a stall.
pub const HANDING_ON_LATE: Duration = Duration::from_millis(50);

/// What is known when a probe fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Where the probe was last known to be; `None` if it was never sent.
    pub whereabouts: Option<Hop>,
    /// How long the probe has lived.
    pub lived: Duration,
    /// The engine is gone, and how that was noticed.
    pub engine_dead: Option<String>,
    /// The kernel says that the engine's process is stopped.
    pub engine_stopped: bool,
    /// For how long of the probe's life the frontend's main runtime stood.
    pub runtime_lag: Duration,
    /// For how long of it the frontend's process got no CPU.
    pub process_lag: Duration,
    /// Since when the frontend has not been back at the engine's socket, and what keeps it.
    pub away_from_socket: Option<(Hop, Duration)>,
    /// Age of the last heartbeat.
    pub heartbeat_age: Duration,
    /// The step in flight and its age.
    pub step: Option<(StepInfo, Duration)>,
    /// How long the scheduler's loop had not turned when the last heartbeat was sent.
    pub loop_stood: Duration,
    /// Requests without a place in the batch.
    pub waiting: u32,
    /// Probes that wait for a batch result.
    pub parked: u32,
    /// What the head of the queue lacks in the KV pool, in tokens.
    pub kv_lacking_tokens: u32,
    /// KV pool tokens in use.
    pub kv_used_tokens: u32,
    /// Messages received and not seen by the scheduler.
    pub inbox: u32,
    /// Messages that wait in front of the socket to the engine.
    pub to_engine_depth: usize,
}

/// The sick hop, the cause, and the evidence for it in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The hop that never finished.
    pub stalled_at: Hop,
    /// The cause.
    pub cause: Cause,
    /// For people.
    pub detail: String,
}

/// Decides. The order matters: what explains more comes first, and what was seen comes before what was not heard.
#[must_use]
pub fn diagnose(evidence: &Evidence) -> Diagnosis {
    let hop = evidence.whereabouts.unwrap_or(Hop::IpcToEngine); // nobody was there to send it to
    let diagnosis = |stalled_at, cause, detail| Diagnosis { stalled_at, cause, detail };
    if let Some(reason) = &evidence.engine_dead {
        return diagnosis(hop, Cause::EngineDead, reason.clone());
    }
    if evidence.engine_stopped {
        let detail = "the kernel says that the engine's process is stopped (SIGSTOP or a debugger)".to_owned();
        return diagnosis(hop, Cause::EngineFrozen, detail);
    }
    if let Some(frontend) = diagnose_frontend(evidence, hop) {
        return frontend;
    }
    let silent = evidence.heartbeat_age;
    let untaken = hop == Hop::IpcToEngine && evidence.to_engine_depth == 0;
    if silent > HEARTBEAT_LATE || (untaken && silent > HEARTBEAT_DOUBTFUL) {
        let detail = format!("no heartbeat for {} ms: the engine is stopped or starved", silent.as_millis());
        return diagnosis(hop, Cause::EngineFrozen, detail);
    }
    match hop {
        Hop::IpcToEngine => diagnosis(hop, Cause::IpcBackpressure, backpressure(evidence)),
        Hop::IpcToFrontend => {
            let detail = "the engine sent the answer, it was never received".to_owned();
            diagnosis(hop, Cause::ReturnPathLost, detail)
        }
        _ => {
            let (cause, detail) = diagnose_scheduler(evidence, hop);
            diagnosis(hop, cause, detail)
        }
    }
}

/// The frontend's own part, if that is to blame.
fn diagnose_frontend(evidence: &Evidence, hop: Hop) -> Option<Diagnosis> {
    let (lag, lived) = (evidence.runtime_lag, evidence.lived);
    if !lag.is_zero() && lag * 2 >= lived {
        let who = if evidence.process_lag * 2 >= lag { "process got no CPU" } else { "runtime was blocked" };
        let detail = format!("the frontend's {who} for {} of the probe's {} ms", lag.as_millis(), lived.as_millis());
        return Some(Diagnosis { stalled_at: Hop::Http, cause: Cause::FrontendStalled, detail });
    }
    if let Some((stalled_at, away)) = evidence.away_from_socket.filter(|(_, away)| *away > HANDING_ON_LATE) {
        let (cause, what) = match stalled_at {
            Hop::Detokenizer => (Cause::DetokenizerStuck, "the detokenizer takes no more"),
            _ => (Cause::FrontendStalled, "the frontend does not read"),
        };
        let detail = format!("{what}: nothing was taken from the engine's socket for {} ms", away.as_millis());
        return Some(Diagnosis { stalled_at, cause, detail });
    }
    let (cause, detail) = match hop {
        Hop::Http | Hop::Submit | Hop::Receive => {
            (Cause::FrontendStalled, "the frontend itself did not get on with the probe")
        }
        Hop::Detokenizer => (Cause::DetokenizerStuck, "the detokenizer received the answer and did not hand it on"),
        _ => return None,
    };
    Some(Diagnosis { stalled_at: hop, cause, detail: detail.to_owned() })
}

fn backpressure(evidence: &Evidence) -> String {
    let (depth, silent) = (evidence.to_engine_depth, evidence.heartbeat_age.as_millis());
    format!("the engine lives (heartbeat {silent} ms ago) and takes nothing from its socket; {depth} messages wait")
}

/// Heartbeats come and the probe is with the scheduler.
fn diagnose_scheduler(evidence: &Evidence, hop: Hop) -> (Cause, String) {
    if let Some((step, age)) = evidence.step {
        let StepInfo { number, phase, tokens, requests } = step;
        let age = age.as_millis();
        let detail =
            format!("step {number} ({phase}, {tokens} tokens, {requests} requests) has been running for {age} ms");
        return (Cause::StepStuck, detail);
    }
    let waits_for_a_batch = matches!(hop, Hop::Queue | Hop::ReturnHealthCheckIpcs);
    if !waits_for_a_batch || evidence.loop_stood > LOOP_STANDS {
        let inbox = evidence.inbox;
        let detail = format!("no step is in flight and the loop does not turn; {inbox} messages wait for it");
        return (Cause::LoopFrozen, detail);
    }
    let (waiting, parked) = (evidence.waiting, evidence.parked);
    let why = match evidence.kv_lacking_tokens {
        0 => "the loop turns and forms no batch".to_owned(),
        lacking => {
            let used = evidence.kv_used_tokens;
            format!("the KV pool lacks {lacking} tokens for the head of the queue ({used} are in use)")
        }
    };
    (Cause::NotScheduling, format!("{why}; {waiting} requests and {parked} probes wait"))
}

#[cfg(test)]
mod tests;
