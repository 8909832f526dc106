//! Which tokens run in the next step: every decoding request, and prompt chunks by rank.

use super::kv_pool::KvPool;
use super::outbox::Outbox;
use super::request::Request;
use super::step_budget::{StepBudget, StepWork};
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
    /// Plans the next step, and what it will have to do; empty if there is nothing to run.
    pub(super) fn schedule_batch(&mut self, out: &mut dyn Outbox) -> (Vec<Slot>, StepWork) {
        self.kv_pool.withhold(self.drills.withholds_kv());
        self.make_room_for_decodes(out);
        self.admit_waiting(out);
        let mut work = StepWork::default();
        let mut rows = SCORED_ROWS;
        let mut slots = Vec::with_capacity(self.running.len());
        for request in self.running.iter().filter(|request| request.decoding) {
            work.add_decode(request.tokens.len());
        }
        self.prefill_budget = self.step_budget.chunk(&work, self.first_prefill_start());
        for (index, request) in self.running.iter_mut().enumerate() {
            let tokens = if request.decoding {
                1
            } else {
                request.share(&mut self.kv_pool); // what others have computed meanwhile: one does the work for all
                chunk(request, &self.step_budget, &mut work, &mut rows)
            };
            if tokens > 0 {
                slots.push(Slot { index, tokens });
            }
        }
        (slots, work)
    }

    /// How far the first prompt is that is not computed yet.
    fn first_prefill_start(&self) -> usize {
        self.running.iter().find(|request| !request.decoding).map_or(0, |request| request.computed)
    }

    /// Each decoding request needs a place for one more token. When the pool is full, the last in rank gives its pages
    /// back; the first never does, so there is always progress.
    fn make_room_for_decodes(&mut self, out: &mut dyn Outbox) {
        let mut index = 0;
        while index < self.running.len() {
            let request = &mut self.running[index];
            let needed = request.tokens.len();
            if self.kv_pool.grow(&mut request.pages, needed) {
                index += 1;
            } else {
                self.vitals.retracted();
                self.retract_last(out);
            }
        }
    }

    /// The head of the queue gets a place as soon as its whole prompt fits, with one page of slack for each running
    /// request, so that it is not retracted at once.
    fn admit_waiting(&mut self, out: &mut dyn Outbox) {
        self.order_waiting();
        while !self.waiting.is_empty() {
            if !self.head_is_compiled() {
                return;
            }
            if !self.head_fits() {
                self.preempt_for_head(out);
            }
            let fits = self.head_fits();
            let Some(mut request) = self.waiting.pop_front_if(|_| fits) else { return };
            request.share(&mut self.kv_pool);
            let grown = self.kv_pool.grow(&mut request.pages, request.tokens.len());
            debug_assert!(grown, "it was asked before whether there is room");
            let hops = match request.purpose {
                Purpose::Serve => {
                    let left =
                        EngineEvent::HopLeft { rid: request.rid.clone(), serial: request.serial, hop: Hop::Queue };
                    [
                        left,
                        EngineEvent::HopEntered { rid: request.rid.clone(), serial: request.serial, hop: Hop::Prefill },
                    ]
                }
                Purpose::HealthCheck(_) => {
                    if request.queued {
                        let left =
                            EngineEvent::HopLeft { rid: request.rid.clone(), serial: request.serial, hop: Hop::Queue };
                        out.send(&request.worker, FromEngine::Event(left));
                    }
                    let entered = EngineEvent::HopEntered {
                        rid: request.rid.clone(),
                        serial: request.serial,
                        hop: Hop::RunBatch,
                    };
                    [
                        entered,
                        EngineEvent::HopEntered { rid: request.rid.clone(), serial: request.serial, hop: Hop::Forward },
                    ]
                }
            };
            for event in hops {
                out.send(&request.worker, FromEngine::Event(event));
            }
            let place = self.running.partition_point(|other| other.rank < request.rank);
            self.running.insert(place, request);
        }
    }

    /// The slack is for the others: alone, a request may have the pool to itself.
    fn head_fits(&self) -> bool {
        if self.running.len() >= self.config.max_running_requests {
            return false;
        }
        let alone = |head: &Request| {
            let pages = KvPool::pages_for(head.tokens.len());
            self.running.is_empty() && self.kv_pool.lacking_pages(head.shareable(), pages) == 0
        };
        self.kv_lacking_tokens() == 0 || self.waiting.front().is_some_and(alone)
    }

    /// What the pool lacks for the head of the queue, with one page of slack for each running request.
    pub(super) fn kv_lacking_tokens(&self) -> usize {
        let Some(head) = self.waiting.front() else { return 0 };
        let needed = KvPool::pages_for(head.tokens.len() + 1) + self.running.len();
        self.kv_pool.lacking_pages(head.shareable(), needed) * PAGE_SIZE
    }

    /// What the step works on, for events.
    pub(super) fn step_info(&self, slots: &[Slot]) -> StepInfo {
        let decodes = slots.iter().filter(|slot| self.running[slot.index].decoding).count();
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

/// The next chunk of a prompt, added to `work`; it takes its part of the scored `rows` that are left.
fn chunk(request: &Request, budget: &StepBudget, work: &mut StepWork, rows: &mut usize) -> usize {
    let missing = request.tokens.len() - request.computed;
    let mut tokens = budget.chunk(work, request.computed).min(missing);
    if request.scores_from().is_some() {
        tokens = tokens.min(*rows);
        *rows -= tokens;
    }
    work.add_prefill(request.computed, tokens);
    tokens
}

/// The runner's view of `slot`: one slice, or more, where logits in the middle of the prompt are wanted.
pub(super) fn slices<'a>(request: &'a Request, slot: &Slot) -> impl Iterator<Item = SequenceSlice<'a>> {
    let (start, end) = (request.computed, request.computed + slot.tokens);
    let wants_last = request.samples_after(slot.tokens);
    let scored = request.scored(slot.tokens);
    let before = if scored.is_empty() { start..start } else { start..scored.start };
    let behind = if scored.is_empty() { start..end } else { scored.end..end };
    let each = scored.map(|place| (place..place + 1, true));
    let all = [(before, false)].into_iter().chain(each).chain([(behind, wants_last)]);
    all.filter(|(places, _)| !places.is_empty()).map(|(places, wants_logits)| SequenceSlice {
        tokens: &request.tokens[places.clone()],
        start: places.start,
        pages: request.pages.pages(),
        wants_logits,
    })
}
