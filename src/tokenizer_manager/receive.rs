//! Station 6: `handle_loop` stamps `last_receive_tstamp` and wakes the waiter.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::TokenizerManager;
use super::request::{GenerateOutput, RequestState, Usage};
use super::table::{Entry, Epoch};
use crate::clock::MonoNanos;
use crate::detokenizer::{BatchStrOutput, StrOutput};
use crate::io_struct::{
    AbortKind, BatchEmbeddingOutput, BatchTokenIdOutput, EmbeddingOutput, EngineEvent, EngineOutput, Envelope,
    FinishReason, HealthCheckOutput, Purpose, Rid, StepInfo, ToEngine,
};
use crate::telemetry::labels::{Hop, RequestOutcome};
use crate::telemetry::metrics::StepEnd;
use crate::telemetry::otlp::Ending;

/// An output, ready for its waiter.
#[derive(Debug)]
pub enum Received {
    /// Has its text.
    BatchStr(BatchStrOutput),
    /// Has no text.
    BatchEmbedding(BatchEmbeddingOutput),
    /// Needs none.
    HealthCheck(HealthCheckOutput),
}

impl TokenizerManager {
    /// Notes that an output came from the socket, and where it goes next.
    pub fn accept(&self, output: &EngineOutput, sent_at: MonoNanos) {
        let now = MonoNanos::now();
        let note = |rid: &Rid, next: Hop| {
            self.inner.ledger.answer_received(rid, sent_at, now);
            self.inner.ledger.enter(rid, next, now);
        };
        match output {
            EngineOutput::BatchTokenId(batch) => {
                for news in batch.outputs.iter().filter(|news| news.finish_reason.is_some()) {
                    note(&news.rid, Hop::Detokenizer);
                }
            }
            EngineOutput::BatchEmbedding(batch) => {
                batch.outputs.iter().for_each(|news| note(&news.rid, Hop::Detokenizer));
            }
            EngineOutput::HealthCheck(answer) => note(&answer.rid, Hop::Receive),
        }
    }

    /// Station 5: ids of the engine of `epoch` to text.
    #[must_use]
    pub fn detokenize(&self, batch: BatchTokenIdOutput, epoch: Epoch) -> BatchStrOutput {
        let Some(model) = self.inner.model.get() else { return BatchStrOutput { outputs: Vec::new() } };
        let began = MonoNanos::now();
        let decoded = self.inner.detokenizer.detokenize(&model.tokenizer, batch, epoch);
        let now = MonoNanos::now();
        for news in decoded.outputs.iter().filter(|news| news.output.finish_reason.is_some()) {
            self.inner.ledger.detokenized(&news.output.rid, began, now, news.spent);
            self.inner.ledger.enter(&news.output.rid, Hop::Receive, now);
        }
        decoded
    }

    /// Station 5 for embeddings: there is no text to make, but they take the same way.
    pub fn pass_on(&self, batch: &BatchEmbeddingOutput) {
        let now = MonoNanos::now();
        for news in &batch.outputs {
            self.inner.ledger.detokenized(&news.rid, now, now, Duration::ZERO);
            self.inner.ledger.enter(&news.rid, Hop::Receive, now);
        }
    }

    /// Handles what is received until the connection ends. Only what is fully handled moves `last_receive_tstamp`.
    ///
    /// The stamp moves before the waiters wake: whoever probes again at once must not take this output for news.
    pub async fn handle_loop(&self, mut received: mpsc::Receiver<Received>) {
        while let Some(output) = received.recv().await {
            let waiters = match output {
                Received::BatchStr(batch) => self.handle_batch_output(batch),
                Received::BatchEmbedding(batch) => self.handle_embeddings(batch),
                Received::HealthCheck(answer) => self.handle_health_check(&answer).into_iter().collect(),
            };
            self.inner.liveness.received();
            for waiter in waiters {
                waiter.ring();
            }
        }
    }

    /// Notes what the engine says of its work. It never counts as a sign of life.
    pub fn note(&self, event: Envelope<EngineEvent>) {
        let Envelope { msg, sent_at } = event;
        self.inner.ledger.note(&msg, sent_at);
        self.inner.incidents.note(&msg, sent_at);
        match msg {
            EngineEvent::Heartbeat(heartbeat) => self.inner.engine.heartbeat(heartbeat, sent_at),
            EngineEvent::Paused(paused) => self.inner.engine.set_paused(paused),
            EngineEvent::CacheFlushed { id, outcome } => self.inner.flushes.answer(id, outcome),
            EngineEvent::StepBegan(step) => self.inner.engine.step_began(step, sent_at),
            EngineEvent::StepEnded(step) => {
                if let Some(took) = self.inner.engine.step_ended(step, sent_at) {
                    let StepInfo { phase, tokens, requests, .. } = step;
                    self.inner.metrics.engine.step_ended(StepEnd { phase, tokens, requests, took });
                }
            }
            EngineEvent::HopEntered { rid, serial, hop: Hop::Queue } => self.admitted(&rid, serial, sent_at),
            EngineEvent::HopLeft { rid, serial, hop: Hop::Queue } => self.placed(&rid, serial, sent_at),
            EngineEvent::HopEntered { .. }
            | EngineEvent::HopLeft { .. }
            | EngineEvent::ProbeBranch { .. }
            | EngineEvent::Retracted { .. }
            | EngineEvent::PrefillChunks(_) => {}
        }
    }

    /// The engine is gone. Probes, and requests that have output already, hear so; the others wait for the next one.
    /// Returns how many ended and how many wait.
    pub fn engine_lost(&self, reason: &str) -> (usize, usize) {
        self.inner.engine.died(reason.to_owned());
        self.inner.flushes.give_up();
        let ended = self.inner.table.end_epoch();
        for (rid, entry) in &ended {
            self.end(rid, entry, RequestOutcome::Error);
            entry.state.push(engine_dead(reason, entry));
        }
        self.inner.ledger.engine_lost(MonoNanos::now());
        (ended.iter().filter(|(_, entry)| entry.purpose == Purpose::Serve).count(), self.inner.table.len())
    }

    /// Another engine is ready: it is sent what the one before left without output. Returns how many requests.
    ///
    /// Output that was on its way here when that one died may have become text already, or may do so later; it reaches
    /// nobody, and the text begins anew.
    pub fn resend(&self) -> usize {
        self.inner.table.resend(|rid, input, epoch| {
            if let ToEngine::Generate(input) = input {
                self.inner.detokenizer.register(rid, input.serial, epoch, &input.sampling_params);
            }
            self.inner.ledger.resent(rid, MonoNanos::now());
            self.send(input.clone(), epoch);
        })
    }

    /// There will be no engine any more: everybody who waits for one hears so.
    pub fn engine_died(&self, reason: &str) {
        self.inner.engine.died(reason.to_owned());
        for (rid, entry) in self.inner.table.drain() {
            self.end(&rid, &entry, RequestOutcome::Error);
            entry.state.push(engine_dead(reason, &entry));
        }
    }

    /// The server ends: the requests of users that still run end with an explicit error, here and in the engine.
    pub fn cut_off(&self, reason: &str) {
        for (rid, entry) in self.inner.table.take_served(|_| true) {
            self.send_abort(&rid, entry.serial);
            self.end(&rid, &entry, RequestOutcome::Error);
            entry.state.push(aborted(reason.to_owned(), AbortKind::CutOff, &entry));
        }
    }

    /// Ends one request that has taken too long, here and in the engine.
    pub(super) fn time_out(&self, rid: &Rid, serial: u64, limit: Duration) {
        if let Some(entry) = self.inner.table.remove(rid, serial) {
            self.send_abort(rid, serial);
            self.end(rid, &entry, RequestOutcome::Error);
            let message = format!("the request has taken longer than {limit:?} (--request-timeout)");
            entry.state.push(aborted(message, AbortKind::TimedOut, &entry));
        }
    }

    /// Ends one request because the engine is gone.
    pub(super) fn fail(&self, rid: &Rid, serial: u64, reason: &str) {
        if let Some(entry) = self.inner.table.remove(rid, serial) {
            self.end(rid, &entry, RequestOutcome::Error);
            entry.state.push(engine_dead(reason, &entry));
        }
    }

    /// The caller is gone, or has heard the end. A request that has not ended is aborted everywhere.
    pub(super) fn release(&self, rid: &Rid, serial: u64) {
        if let Some(entry) = self.inner.table.remove(rid, serial) {
            self.send_abort(rid, serial);
            self.end(rid, &entry, RequestOutcome::Abort);
        }
    }

    fn admitted(&self, rid: &Rid, serial: u64, at: MonoNanos) {
        let entry = self.inner.table.update_sent(rid, serial, |entry| {
            if let (None, Some(endpoint)) = (&entry.admitted, entry.endpoint) {
                let in_flight = self.inner.metrics.requests.accepted(endpoint, entry.prompt_tokens);
                entry.admitted = Some(Arc::new(in_flight));
                entry.queued = Some(at);
            }
        });
        if let Some(entry) = entry {
            entry.state.admit();
        }
    }

    /// A request leaves the queue. Only the first time counts: later it gave its place back.
    fn placed(&self, rid: &Rid, serial: u64, at: MonoNanos) {
        let mut queued = None;
        self.inner.table.update_sent(rid, serial, |entry| queued = entry.queued.take());
        if let Some(queued) = queued {
            self.inner.metrics.requests.placed(at.since(queued));
        }
    }

    fn handle_batch_output(&self, batch: BatchStrOutput) -> Vec<Arc<RequestState>> {
        let mut waiters = Vec::with_capacity(batch.outputs.len());
        for StrOutput { text, output, ends_early, .. } in batch.outputs {
            let rid = output.rid.clone();
            let news = GenerateOutput {
                text,
                usage: Usage {
                    prompt_tokens: output.prompt_tokens,
                    completion_tokens: output.completion_tokens,
                    cached_tokens: output.cached_tokens,
                    num_retractions: output.num_retractions,
                },
                output_ids: output.output_ids,
                logprobs: output.logprobs,
                input_logprobs: output.input_logprobs,
                finish_reason: output.finish_reason,
                ..GenerateOutput::default()
            };
            if ends_early {
                self.send_abort(&rid, output.serial); // a stop string: the engine does not know yet
            }
            waiters.extend(self.deliver_or_orphan(&rid, output.serial, output.purpose, news));
        }
        waiters
    }

    fn handle_embeddings(&self, batch: BatchEmbeddingOutput) -> Vec<Arc<RequestState>> {
        let waiter = |output: EmbeddingOutput| {
            let EmbeddingOutput { rid, serial, purpose, embedding, finish_reason, prompt_tokens } = output;
            let usage = Usage { prompt_tokens, ..Usage::default() };
            let news =
                GenerateOutput { embedding, usage, finish_reason: Some(finish_reason), ..GenerateOutput::default() };
            self.deliver_or_orphan(&rid, serial, purpose, news)
        };
        batch.outputs.into_iter().filter_map(waiter).collect()
    }

    fn deliver_or_orphan(
        &self,
        rid: &Rid,
        serial: u64,
        purpose: Purpose,
        news: GenerateOutput,
    ) -> Option<Arc<RequestState>> {
        let waiter = self.deliver(rid, serial, news, MonoNanos::now());
        if waiter.is_none() && purpose != Purpose::Serve {
            self.inner.metrics.probes.orphaned();
        }
        waiter
    }

    fn deliver(&self, rid: &Rid, serial: u64, news: GenerateOutput, now: MonoNanos) -> Option<Arc<RequestState>> {
        let usage = news.usage;
        let mut newest_before = None;
        let entry = self.inner.table.update_sent(rid, serial, |entry| {
            newest_before = entry.newest.replace((now, usage));
            entry.input = None; // what has begun is never begun again
        })?;
        if entry.purpose == Purpose::Serve {
            self.measure(rid, &entry, newest_before, now, usage);
        }
        if let Some(reason) = &news.finish_reason {
            self.inner.ledger.leave(rid, Hop::Receive, now);
            self.inner.table.remove(rid, serial); // from here on, another request may have the rid
            self.end(rid, &entry, reason.outcome());
        }
        entry.state.put(news);
        Some(entry.state)
    }

    fn measure(&self, rid: &Rid, entry: &Entry, before: Option<(MonoNanos, Usage)>, now: MonoNanos, usage: Usage) {
        let metrics = &self.inner.metrics.requests;
        match before {
            None => {
                metrics.cached(usage.cached_tokens);
                let ending = Ending::Request(RequestOutcome::Stop); // as far as is known
                let trace = self.inner.ledger.trace_of(rid, entry.serial, now, ending);
                metrics.first_tokens(usage.completion_tokens, now.since(entry.submitted), trace);
            }
            Some((at, before)) => {
                let tokens = usage.completion_tokens.saturating_sub(before.completion_tokens);
                metrics.further_tokens(tokens, now.since(at));
            }
        }
    }

    fn handle_health_check(&self, answer: &HealthCheckOutput) -> Option<Arc<RequestState>> {
        self.inner.metrics.engine.health_check_output_received();
        self.inner.ledger.leave(&answer.rid, Hop::Receive, MonoNanos::now());
        if answer.place > 0 {
            self.inner.metrics.probes.coalesced();
        }
        let Some(entry) = self.inner.table.remove_probe(&answer.rid) else {
            self.inner.metrics.probes.orphaned();
            return None;
        };
        self.inner.detokenizer.forget(&answer.rid, entry.serial);
        entry.state.put(GenerateOutput { finish_reason: Some(FinishReason::Length(0)), ..GenerateOutput::default() });
        Some(entry.state)
    }

    /// The end of a request in the books. A probe's trace is written by whoever gives its verdict.
    pub(super) fn end(&self, rid: &Rid, entry: &Entry, outcome: RequestOutcome) {
        let now = MonoNanos::now();
        self.inner.detokenizer.forget(rid, entry.serial);
        if entry.purpose != Purpose::Serve {
            self.inner.ledger.leave(rid, Hop::Receive, now);
            return;
        }
        let trace = self.inner.ledger.trace_of(rid, entry.serial, now, Ending::Request(outcome));
        self.inner.ledger.end(rid, entry.serial, outcome, now);
        if let Some(endpoint) = entry.endpoint.filter(|_| entry.admitted.is_some()) {
            self.inner.metrics.requests.ended(endpoint, outcome, now.since(entry.submitted), trace);
        }
    }
}

fn engine_dead(reason: &str, entry: &Entry) -> GenerateOutput {
    aborted(format!("the engine is dead: {reason}"), AbortKind::EngineDead, entry)
}

/// The end of a request without result, with the counts so far.
pub(super) fn aborted(message: String, kind: AbortKind, entry: &Entry) -> GenerateOutput {
    let nothing_yet = Usage { prompt_tokens: entry.prompt_tokens, ..Usage::default() };
    GenerateOutput {
        finish_reason: Some(FinishReason::Abort { message, kind }),
        usage: entry.newest.map_or(nothing_yet, |(_, usage)| usage),
        ..GenerateOutput::default()
    }
}
