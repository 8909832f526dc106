//! Who waits for the engine's word on a flush of its prefix cache.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::io_struct::{FlushId, FlushOutcome};

/// The flushes under way. One that is given up by its caller stays until the engine answers or dies.
#[derive(Debug, Default)]
pub(super) struct Flushes(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    newest: u64,
    callers: HashMap<FlushId, oneshot::Sender<FlushOutcome>>,
}

impl Flushes {
    /// A new one, and where its outcome will be told.
    pub(super) fn begin(&self) -> (FlushId, oneshot::Receiver<FlushOutcome>) {
        let (caller, outcome) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.newest += 1;
        let id = FlushId(waiting.newest);
        waiting.callers.insert(id, caller);
        (id, outcome)
    }

    /// The engine says what became of `id`.
    pub(super) fn answer(&self, id: FlushId, outcome: FlushOutcome) {
        if let Some(caller) = self.lock().callers.remove(&id) {
            let _ = caller.send(outcome); // whoever asked may have left
        }
    }

    /// The engine is gone, and will answer none of them.
    pub(super) fn give_up(&self) {
        self.lock().callers.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
