//! What must come of a case: the only answer that is true.

use std::time::Duration;

use radiosonde::io_struct::Fault;
use radiosonde::telemetry::labels::{Cause, Hop, ProbeOutcome};
use rustix::process::Signal;

use crate::case::{Breakage, Case, Load};

/// The verdict that a case must end with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// Every probe is 200.
    Healthy,
    /// Every probe is 200 and says that generation is paused.
    Paused,
    /// 503 without a look at the engine.
    NotServing(ProbeOutcome),
    /// 503, at one of these hops (empty: any), for this cause.
    Sick(ProbeOutcome, &'static [Hop], Cause),
}

/// Steps that take so long let no probe through.
const TOO_SLOW: Duration = Duration::from_secs(1);

/// The truth about `case`.
pub fn truth(case: &Case) -> Truth {
    use Truth::{Healthy, NotServing, Paused, Sick};
    match (case.load, case.breakage) {
        (Load::Starting, _) => NotServing(ProbeOutcome::Starting),
        (Load::Draining, _) => NotServing(ProbeOutcome::Draining),
        (_, Breakage::Nothing) => Healthy,
        (_, Breakage::Pause(_)) => Paused,
        (_, Breakage::Drill(fault)) => truth_of_drill(case, fault),
        (_, Breakage::EngineSignal(Signal::STOP)) => {
            Sick(ProbeOutcome::Timeout, &[Hop::IpcToEngine], Cause::EngineFrozen)
        }
        (_, Breakage::EngineSignal(_) | Breakage::EngineKilledUnderWay(_)) => {
            Sick(ProbeOutcome::EngineDead, &[], Cause::EngineDead)
        }
        (_, Breakage::FrontendStopped | Breakage::FrontendBlocked) => {
            Sick(ProbeOutcome::Timeout, &[Hop::Http], Cause::FrontendStalled)
        }
    }
}

fn truth_of_drill(case: &Case, fault: Fault) -> Truth {
    use Load::{Idle, Prefill};
    let timeout = |hops, cause| Truth::Sick(ProbeOutcome::Timeout, hops, cause);
    let streams = !matches!(case.load, Idle | Prefill); // their tokens prove life to whoever accepts it
    match (fault, case.load) {
        (Fault::SchedulerPanic, _) => Truth::Sick(ProbeOutcome::EngineDead, &[], Cause::EngineDead),
        (Fault::LoopFrozen { .. }, _) => timeout(&[Hop::Inbox], Cause::LoopFrozen),
        (Fault::OutOfKv { .. }, Prefill) => Truth::Healthy, // it has all its pages already
        (Fault::NoBatches { .. } | Fault::OutOfKv { .. }, Idle) => timeout(&[Hop::Queue], Cause::NotScheduling),
        (Fault::NoBatches { .. } | Fault::OutOfKv { .. }, _) => {
            timeout(&[Hop::ReturnHealthCheckIpcs], Cause::NotScheduling)
        }
        (Fault::SlowSteps { ms }, _) if ms < TOO_SLOW => Truth::Healthy,
        (Fault::SlowSteps { .. }, Idle) => timeout(&[Hop::Forward], Cause::StepStuck),
        (Fault::SlowSteps { .. }, _) => timeout(&[Hop::Inbox, Hop::ReturnHealthCheckIpcs], Cause::StepStuck),
        (Fault::FailStep { .. }, Idle) => Truth::Sick(ProbeOutcome::Error, &[Hop::RunBatch], Cause::StepFailed),
        (Fault::FailStep { .. }, _) => Truth::Healthy, // somebody else's step
        (Fault::DelayHealthCheckOutput { ms }, _) if ms < TOO_SLOW => Truth::Healthy,
        (Fault::DropHealthCheckOutput | Fault::DelayHealthCheckOutput { .. }, Idle) => Truth::Healthy,
        (Fault::DropHealthCheckOutput | Fault::DelayHealthCheckOutput { .. } | Fault::EngineStopsReading { .. }, _)
            if streams && !case.probe.own =>
        {
            Truth::Healthy
        }
        (Fault::DropHealthCheckOutput | Fault::DelayHealthCheckOutput { .. }, _) => {
            timeout(&[Hop::IpcToFrontend], Cause::ReturnPathLost)
        }
        (Fault::EngineStopsReading { .. }, _) => timeout(&[Hop::IpcToEngine], Cause::IpcBackpressure),
        (Fault::FrontendStopsReading { .. }, _) => timeout(&[Hop::IpcToFrontend], Cause::FrontendStalled),
        (Fault::DetokenizerStuck { .. }, Idle) => timeout(&[Hop::Detokenizer], Cause::DetokenizerStuck),
        (Fault::DetokenizerStuck { .. }, _) => Truth::Healthy, // a busy scheduler's answer needs no text
        (Fault::FrontendBlocked { .. }, _) => timeout(&[Hop::Http], Cause::FrontendStalled),
        (Fault::SlowLoad { .. }, _) => Truth::Healthy,
    }
}
