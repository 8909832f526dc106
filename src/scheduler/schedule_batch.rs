//! Which tokens run in the next step: every decoding request, and prompt chunks first come, first served.

use super::kv_pool::KvPool;
use super::outbox::Outbox;
use super::request::Request;
use super::{Purpose, Scheduler};
use crate::io_struct::{EngineEvent, FromEngine, StepInfo};
use crate::model_runner::{PAGE_SIZE, SequenceSlice};
use crate::telemetry::labels::{Hop, StepPhase};

/// The most rows of logits that a step computes for logprobs of prompts: a row is as long as the vocabulary.
const SCORED_ROWS: usize = 64;

/// One request's part of the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Its place among the running requests.
    pub index: usize,
    /// How many of its tokens run.
    pub tokens: usize,
}

impl Scheduler {
    /// Plans the next step; empty if there is nothing to run.
    pub(super) fn schedule_batch(&mut self, out: &mut dyn Outbox) -> Vec<Slot> {
        self.kv_pool.withhold(self.drills.withholds_kv());
        self.make_room_for_decodes(out);
        self.admit_waiting(out);
        let mut budget = self.config.chunked_prefill_size;
        let mut rows = SCORED_ROWS;
        let mut slots = Vec::with_capacity(self.running.len());
        for (index, request) in self.running.iter().enumerate() {
            let missing = request.tokens.len() - request.computed;
            let scores = !request.is_decoding() && request.scores_from().is_some();
            let room = if scores { budget.min(rows) } else { budget };
            let tokens = if request.is_decoding() { 1 } else { missing.min(room) };
            if scores {
                rows -= tokens;
            }
            if tokens > 0 {
                slots.push(Slot { index, tokens });
            }
            if !request.is_decoding() {
                budget -= tokens;
            }
        }
        slots
    }

    /// Each decoding request needs a place for one more token. When the pool is full, the youngest request gives its
    /// pages back; the oldest never does, so there is always progress.
    fn make_room_for_decodes(&mut self, out: &mut dyn Outbox) {
        let mut index = 0;
        while index < self.running.len() {
            let request = &mut self.running[index];
            let needed = request.tokens.len();
            if self.kv_pool.grow(&mut request.pages, needed) {
                index += 1;
            } else {
                self.retract_youngest(out);
            }
        }
    }

    pub(super) fn retract_youngest(&mut self, out: &mut dyn Outbox) {
        let Some(mut request) = self.running.pop() else { return };
        self.kv_pool.release(&mut request.pages);
        request.retract();
        self.vitals.retracted();
        if request.purpose == Purpose::Serve {
            for event in [
                EngineEvent::Retracted { rid: request.rid.clone() },
                EngineEvent::HopEntered { rid: request.rid.clone(), hop: Hop::Queue },
            ] {
                out.send(&request.worker, FromEngine::Event(event));
            }
        }
        self.waiting.push_front(request);
    }

    /// Fcfs: the head of the queue gets a place as soon as its whole prompt fits, with one page of slack for each
    /// running request, so that it is not retracted at once.
    fn admit_waiting(&mut self, out: &mut dyn Outbox) {
        while self.running.len() < self.config.max_running_requests {
            let fits = self.kv_lacking_tokens() == 0 || self.running.is_empty();
            let Some(request) = self.waiting.front_mut() else { return };
            if !fits || !self.kv_pool.grow(&mut request.pages, request.tokens.len()) {
                return;
            }
            let Some(request) = self.waiting.pop_front() else { return };
            let hops = match request.purpose {
                Purpose::Serve => {
                    let left = EngineEvent::HopLeft { rid: request.rid.clone(), hop: Hop::Queue };
                    [left, EngineEvent::HopEntered { rid: request.rid.clone(), hop: Hop::Prefill }]
                }
                Purpose::HealthCheck(_) => {
                    if request.queued {
                        let left = EngineEvent::HopLeft { rid: request.rid.clone(), hop: Hop::Queue };
                        out.send(&request.worker, FromEngine::Event(left));
                    }
                    let entered = EngineEvent::HopEntered { rid: request.rid.clone(), hop: Hop::RunBatch };
                    [entered, EngineEvent::HopEntered { rid: request.rid.clone(), hop: Hop::Forward }]
                }
            };
            for event in hops {
                out.send(&request.worker, FromEngine::Event(event));
            }
            self.running.push(request);
        }
    }

    /// What the pool lacks for the head of the queue, with one page of slack for each running request.
    pub(super) fn kv_lacking_tokens(&self) -> usize {
        let Some(head) = self.waiting.front() else { return 0 };
        let needed = KvPool::pages_for(head.tokens.len() + 1) + self.running.len();
        needed.saturating_sub(self.kv_pool.free_pages()) * PAGE_SIZE
    }

    /// What the step works on, for events.
    pub(super) fn step_info(&self, slots: &[Slot]) -> StepInfo {
        let decodes = slots.iter().filter(|slot| self.running[slot.index].is_decoding()).count();
        let phase = match decodes {
            0 => StepPhase::Prefill,
            n if n == slots.len() => StepPhase::Decode,
            _ => StepPhase::Mixed,
        };
        let tokens: usize = slots.iter().map(|slot| slot.tokens).sum();
        StepInfo {
            number: self.steps,
            phase,
            tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
            requests: u32::try_from(slots.len()).unwrap_or(u32::MAX),
        }
    }
}

/// The runner's view of `slot`: one slice, or more, where logits in the middle of the prompt are wanted.
pub(super) fn slices<'a>(request: &'a Request, slot: &Slot) -> impl Iterator<Item = SequenceSlice<'a>> {
    let (start, end) = (request.computed, request.computed + slot.tokens);
    let wants_last = end == request.tokens.len() && request.params.max_new_tokens > 0;
    let scored = request.scored(slot.tokens);
    let before = if scored.is_empty() { start..start } else { start..scored.start };
    let behind = if scored.is_empty() { start..end } else { scored.end..end };
    let each = scored.map(|place| (place..place + 1, true));
    let all = [(before, false)].into_iter().chain(each).chain([(behind, wants_last)]);
    all.filter(|(places, _)| !places.is_empty()).map(|(places, wants_logits)| SequenceSlice {
        tokens: &request.tokens[places.clone()],
        start: places.start,
        pages: &request.pages,
        wants_logits,
    })
}
