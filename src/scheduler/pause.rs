//! A pause: the loop turns, takes requests in and aborts them, and runs no batch.

use super::outbox::Outbox;
use super::schedule_policy::enqueue;
use super::{Purpose, Scheduler, request};
use crate::io_struct::{AbortKind, EngineEvent, FromEngine, PauseMode};

/// Why a request ends that a pause finds.
const ABORTED: &str = "generation was paused and its requests aborted (mode abort)";

impl Scheduler {
    /// Holds every batch from now on.
    pub(super) fn pause(&mut self, mode: PauseMode, out: &mut dyn Outbox) {
        match mode {
            PauseMode::Abort => self.abort_all(out),
            PauseMode::Retract => {
                while !self.running.is_empty() {
                    self.vitals.retracted();
                    self.retract_last(out);
                }
            }
            PauseMode::InPlace => {}
        }
        self.set_paused(true, out);
    }

    /// Runs batches again.
    pub(super) fn resume(&mut self, out: &mut dyn Outbox) {
        self.set_paused(false, out);
    }

    fn set_paused(&mut self, paused: bool, out: &mut dyn Outbox) {
        self.paused = paused;
        self.publish_vitals();
        tracing::info!(paused, "generation paused or continued");
        out.broadcast(FromEngine::Event(EngineEvent::Paused(paused)));
    }

    /// Ends every user's request; a probe's verdict is its frontend's business.
    fn abort_all(&mut self, out: &mut dyn Outbox) {
        self.embeddings.abort_all(ABORTED, out);
        let (running, waiting) = (std::mem::take(&mut self.running), std::mem::take(&mut self.waiting));
        for mut request in running.into_iter().chain(waiting) {
            self.kv_pool.release(&mut request.pages);
            if request.purpose == Purpose::Serve {
                let ended = request::ended(&mut request, AbortKind::Requested, ABORTED.to_owned());
                out.send(&request.worker, ended);
            } else {
                enqueue(&mut self.waiting, request);
            }
        }
    }
}
