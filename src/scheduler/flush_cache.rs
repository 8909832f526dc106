//! Forgetting what has been computed, when somebody asks for it.

use super::outbox::Outbox;
use super::{Purpose, Scheduler};
use crate::io_struct::{EngineEvent, FlushId, FlushOutcome, FromEngine, HttpWorkerIpc};

impl Scheduler {
    /// Empties the prefix cache, if no user's request runs or waits; `worker` hears what came of it.
    pub(super) fn flush_cache(&mut self, worker: &HttpWorkerIpc, id: FlushId, out: &mut dyn Outbox) {
        let served = |purpose: Purpose| purpose == Purpose::Serve; // a probe holds nothing of the cache
        let [embeds_waiting, embeds] = self.embeddings.served();
        let running = embeds + self.running.iter().filter(|request| served(request.purpose)).count();
        let waiting = embeds_waiting + self.waiting.iter().filter(|request| served(request.purpose)).count();
        let outcome = if running + waiting == 0 {
            let tokens = self.kv_pool.flush() as u64;
            tracing::info!(tokens, "prefix cache flushed");
            FlushOutcome::Flushed { tokens }
        } else {
            let count = |requests| u32::try_from(requests).unwrap_or(u32::MAX);
            FlushOutcome::Busy { running: count(running), waiting: count(waiting) }
        };
        out.send(worker, FromEngine::Event(EngineEvent::CacheFlushed { id, outcome }));
    }
}
