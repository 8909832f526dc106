//! Runs the planned step and hands out what came of it.

use std::collections::BTreeMap;

use super::outbox::Outbox;
use super::request::Request;
use super::schedule_batch::{Slot, slices};
use super::{Purpose, Scheduler};
use crate::io_struct::{
    AbortKind, BatchTokenIdOutput, EngineEvent, EngineOutput, FinishReason, FromEngine, HttpWorkerIpc, PrefillChunk,
    TokenIdOutput,
};
use crate::model_runner::sampler::Sampled;
use crate::model_runner::{ForwardError, Logits, SequenceSlice};
use crate::telemetry::labels::{Hop, StepPhase};

/// What the requests of each frontend got.
type News = BTreeMap<HttpWorkerIpc, Vec<TokenIdOutput>>;

impl Scheduler {
    /// Runs at most one batch. True if one ran and its result is good.
    pub(super) fn run_batch(&mut self, out: &mut dyn Outbox) -> bool {
        if self.paused || self.drills.forbids_batches() {
            return false;
        }
        if !self.runner.info().task.is_generation() {
            return self.run_embedding_batch(out);
        }
        let (slots, work) = self.schedule_batch(out);
        if slots.is_empty() {
            return false;
        }
        self.steps += 1;
        let info = self.step_info(&slots);
        self.publish_vitals();
        out.broadcast(FromEngine::Event(EngineEvent::StepBegan(info)));
        if info.phase != StepPhase::Decode {
            self.tell_chunks(&slots, out);
        }
        let running = &self.running;
        let slices: Vec<SequenceSlice<'_>> = slots.iter().flat_map(|slot| slices(&running[slot.index], slot)).collect();
        let mut logits = std::mem::take(&mut self.logits);
        let result = self.runner.forward_into(&slices, &mut logits);
        out.broadcast(FromEngine::Event(EngineEvent::StepEnded(info)));
        self.leave_forward(out);
        match result {
            Ok(()) => {
                self.vitals.batch_result();
                self.process_batch_result(&slots, &logits, out);
                (self.logits, self.last_work) = (logits, Some(work));
                true
            }
            Err(error) => {
                self.tell_failed_step(info.number, &error);
                self.fail_batch(&slots, &error.to_string(), out);
                false
            }
        }
    }

    pub(super) fn tell_failed_step(&self, step: u64, error: &ForwardError) {
        tracing::warn!(step, %error, "step failed, its requests end");
    }

    /// Tells each frontend which chunks of its requests' prompts are about to run, in one message.
    fn tell_chunks(&self, slots: &[Slot], out: &mut dyn Outbox) {
        let mut chunks: BTreeMap<&HttpWorkerIpc, Vec<PrefillChunk>> = BTreeMap::new();
        for slot in slots {
            let request = &self.running[slot.index];
            if request.purpose == Purpose::Serve && !request.decoding {
                let tokens = u32::try_from(slot.tokens).unwrap_or(u32::MAX);
                chunks.entry(&request.worker).or_default().push(PrefillChunk { rid: request.rid.clone(), tokens });
            }
        }
        for (worker, chunks) in chunks {
            out.send(worker, FromEngine::Event(EngineEvent::PrefillChunks(chunks)));
        }
    }

    /// Appends what is sampled, and sends each frontend its news in one message.
    fn process_batch_result(&mut self, slots: &[Slot], logits: &Logits, out: &mut dyn Outbox) {
        let eos = self.runner.info().eos_token_ids.clone();
        let mut sampled = self.sample(slots, logits);
        let mut news = News::new();
        for slot in slots {
            let request = &mut self.running[slot.index];
            let was_decoding = request.decoding;
            let scored = sampled.by_ref().take(request.scored(slot.tokens).len());
            request.input_logprobs.extend(scored.filter_map(|sampled| sampled.logprob));
            request.computed(slot.tokens, &mut self.kv_pool);
            if request.computed < request.tokens.len() {
                continue; // a chunk in the middle of its prompt
            }
            let output = if request.params.max_new_tokens == 0 {
                request.output(None, Vec::new(), Some(FinishReason::Length(0)))
            } else {
                let Sampled { token, logprob } =
                    sampled.next().expect("the runner returns a row for each slice that wants one");
                match request.append(token, &eos) {
                    Ok(ends) => request.output(Some(token), logprob.into_iter().collect(), ends),
                    Err(error) => request.output(None, Vec::new(), Some(request.grammar_failed(&error))),
                }
            };
            send_hops(request, was_decoding, output.finish_reason.is_some(), out);
            news.entry(request.worker.clone()).or_default().push(output);
        }
        self.release_finished(&news);
        send_news(news, out);
    }

    fn fail_batch(&mut self, slots: &[Slot], message: &str, out: &mut dyn Outbox) {
        let mut news = News::new();
        for slot in slots {
            let request = &mut self.running[slot.index];
            let reason = FinishReason::Abort { message: message.to_owned(), kind: AbortKind::StepFailed };
            news.entry(request.worker.clone()).or_default().push(request.output(None, Vec::new(), Some(reason)));
        }
        self.release_finished(&news);
        send_news(news, out);
    }

    /// Takes the finished requests out of the batch and their pages back.
    fn release_finished(&mut self, news: &News) {
        let finished = |request: &Request| {
            news.get(&request.worker).is_some_and(|outputs| {
                outputs.iter().any(|output| output.rid == request.rid && output.finish_reason.is_some())
            })
        };
        let kv_pool = &mut self.kv_pool;
        self.running.retain_mut(|request| {
            let done = finished(request);
            if done {
                kv_pool.release(&mut request.pages);
            }
            !done
        });
    }

    /// A probe is in the batch for its first and only step.
    fn leave_forward(&self, out: &mut dyn Outbox) {
        for request in self.running.iter().filter(|request| request.purpose != Purpose::Serve) {
            let left = EngineEvent::HopLeft { rid: request.rid.clone(), serial: request.serial, hop: Hop::Forward };
            out.send(&request.worker, FromEngine::Event(left));
        }
    }
}

/// Prefill ends with the first token, decode with the last; a probe's batch ends at once. A retracted request computes
/// its tokens again in a prefill of its own, and its decode goes on.
fn send_hops(request: &Request, was_decoding: bool, finished: bool, out: &mut dyn Outbox) {
    let (rid, serial) = (|| request.rid.clone(), request.serial);
    let mut event = |event| out.send(&request.worker, FromEngine::Event(event));
    if request.purpose != Purpose::Serve {
        event(EngineEvent::HopLeft { rid: rid(), serial, hop: Hop::RunBatch });
        return;
    }
    if !was_decoding {
        event(EngineEvent::HopLeft { rid: rid(), serial, hop: Hop::Prefill });
        if !finished {
            event(EngineEvent::HopEntered { rid: rid(), serial, hop: Hop::Decode });
        }
    }
    if finished && request.output_len() > 1 {
        event(EngineEvent::HopLeft { rid: rid(), serial, hop: Hop::Decode });
    }
}

fn send_news(news: News, out: &mut dyn Outbox) {
    let send = |out: &mut dyn Outbox, worker: &HttpWorkerIpc, outputs| {
        let output = EngineOutput::BatchTokenId(BatchTokenIdOutput { outputs });
        out.send(worker, FromEngine::Output(output));
    };
    for (worker, mut outputs) in news {
        // The logprobs of a prompt fill a good part of a frame, so they travel alone.
        for large in outputs.extract_if(.., |output| !output.input_logprobs.is_empty()).collect::<Vec<_>>() {
            send(out, &worker, vec![large]);
        }
        if !outputs.is_empty() {
            send(out, &worker, outputs);
        }
    }
}
