//! The scheduler's way out: each message leaves at once, so that what is said before a step arrives although the step
//! never ends.

use crate::io_struct::{FromEngine, HttpWorkerIpc};

/// Where the scheduler's messages go; whoever implements it stamps them with the time.
pub trait Outbox {
    /// To one frontend. A frontend that is gone gets nothing, and nothing fails.
    fn send(&mut self, worker: &HttpWorkerIpc, msg: FromEngine);

    /// To every frontend.
    fn broadcast(&mut self, msg: FromEngine);
}
