//! The hops of one flight, in the order in which they were entered.

use crate::clock::MonoNanos;
use crate::telemetry::labels::{Hop, RequestOutcome};
use crate::telemetry::spans::HopEvent;
use crate::telemetry::spans::names::MAX_EVENTS;

/// So many retractions of a request are told in full; those after them are counted, so that a thrashing pool makes no
/// endless trace.
const TOLD_RETRACTIONS: u32 = 8;

/// When an engine said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    /// The time.
    pub at: MonoNanos,
    /// The engine's process.
    pub engine: Option<u32>,
    /// The newest step that began; 0 before the first.
    pub step: u64,
}

/// One station of a flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopRecord {
    /// Which.
    pub hop: Hop,
    /// When it was entered.
    pub entered: MonoNanos,
    /// When it was left; `None` while the flight is there.
    pub left: Option<MonoNanos>,
    /// It ended because its engine did.
    pub cut: bool,
    /// The hop that this one is a part of, as an index.
    pub parent: Option<usize>,
    /// The engine's process, where it is known.
    pub engine: Option<u32>,
    /// The first step that can have been a part of it, and the last that was. `None`: not counted in steps.
    pub steps: Option<(u64, Option<u64>)>,
    /// Chunks of the prompt.
    pub chunks: u32,
    /// Interruptions by a retraction.
    pub retractions: u32,
    /// What happened meanwhile.
    pub events: Vec<(MonoNanos, HopEvent)>,
}

/// The hops so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    hops: Vec<HopRecord>,
}

impl Timeline {
    /// The hops so far.
    #[must_use]
    pub fn hops(&self) -> &[HopRecord] {
        &self.hops
    }

    /// The innermost hop that was entered and not left.
    #[must_use]
    pub fn stalled_at(&self) -> Option<Hop> {
        self.hops.iter().rev().find(|record| record.left.is_none()).map(|record| record.hop)
    }

    /// It has entered `hop` and not left.
    #[must_use]
    pub fn is_at(&self, hop: Hop) -> bool {
        self.position(hop).is_some()
    }

    /// The request is in the batch.
    #[must_use]
    pub fn runs(&self) -> bool {
        matches!(self.stalled_at(), Some(Hop::Prefill | Hop::Decode))
    }

    /// Where the flight is: at [`Self::stalled_at`], or on its way from the last hop that it left. `None` before the
    /// first.
    #[must_use]
    pub fn whereabouts(&self) -> Option<Hop> {
        self.stalled_at().or_else(|| {
            let last = self.hops.iter().max_by_key(|record| record.left)?;
            Some(match last.hop {
                Hop::Submit => Hop::IpcToEngine,
                Hop::IpcToEngine => Hop::Inbox,
                Hop::Inbox => Hop::ProcessInput,
                Hop::ProcessInput => Hop::Queue,
                Hop::Queue | Hop::Prefill => Hop::RunBatch,
                Hop::ReturnHealthCheckIpcs | Hop::Forward | Hop::RunBatch | Hop::Decode => Hop::IpcToFrontend,
                Hop::IpcToFrontend | Hop::Detokenizer => Hop::Receive,
                Hop::Receive | Hop::Http => Hop::Http,
            })
        })
    }

    /// The verdict names `hop`: if it is not open, it is entered where the flight was last seen, so that the trace
    /// shows what the verdict says. The root stands for [`Hop::Http`].
    pub fn name_stall(&mut self, hop: Hop, began: MonoNanos) {
        if hop != Hop::Http && self.open(hop).is_none() {
            let last_seen = self.hops.iter().map(|record| record.left.unwrap_or(record.entered)).max();
            self.enter(hop, last_seen.unwrap_or(began));
        }
    }

    /// A hop is entered.
    pub fn enter(&mut self, hop: Hop, at: MonoNanos) {
        self.push(hop, Moment { at, ..Moment::default() }, None);
    }

    /// A hop is left; ignored if it is not open.
    pub fn leave(&mut self, hop: Hop, at: MonoNanos) {
        if let Some(record) = self.open(hop) {
            record.left = Some(at.max(record.entered));
        }
    }

    /// The engine says that a hop is entered. What it receives has left the socket.
    ///
    /// A request has one prefill and one decode. A retraction interrupts them, and they go on after it: what a request
    /// does meanwhile, waiting and computing again, lies inside of the one that was interrupted.
    pub fn engine_entered(&mut self, hop: Hop, moment: Moment) {
        if hop == Hop::Inbox {
            self.leave(Hop::IpcToEngine, moment.at);
        }
        self.hops.retain(|record| record.hop != Hop::IpcToFrontend || record.left.is_some());
        let parent = match hop {
            Hop::Forward => self.hops.iter().rposition(|record| record.hop == Hop::RunBatch),
            Hop::Queue => self.position(Hop::Decode).or_else(|| self.position(Hop::Prefill)),
            Hop::Prefill => self.position(Hop::Decode),
            _ => None,
        };
        let goes_on = matches!(hop, Hop::Prefill | Hop::Decode) && self.position(hop).is_some();
        let is_told = !matches!(hop, Hop::Queue | Hop::Prefill)
            || parent.is_none_or(|parent| self.hops[parent].retractions <= TOLD_RETRACTIONS);
        if goes_on || !is_told {
            return;
        }
        self.push(hop, moment, parent);
        if hop == Hop::Decode {
            self.mark(Hop::Decode, moment.at, HopEvent::FirstToken);
        }
    }

    /// The engine says that a hop is left. A probe that leaves its last hop is on the way back.
    pub fn engine_left(&mut self, hop: Hop, moment: Moment) {
        if let Some(record) = self.open(hop) {
            record.left = Some(moment.at.max(record.entered));
            if let Some((_, last)) = &mut record.steps {
                *last = Some(moment.step);
            }
        }
        if matches!(hop, Hop::ReturnHealthCheckIpcs | Hop::RunBatch) {
            self.enter(Hop::IpcToFrontend, moment.at);
        }
    }

    /// A chunk of the prompt is about to run.
    pub fn chunk(&mut self, tokens: u32, moment: Moment) {
        if let Some(record) = self.open(Hop::Prefill) {
            record.chunks += 1;
            let step = moment.step;
            push_event(record, moment.at, HopEvent::PrefillChunk { step, tokens });
        }
    }

    /// The KV pages are given back.
    pub fn retracted(&mut self, at: MonoNanos) {
        let interrupted = self.position(Hop::Decode).map_or(Hop::Prefill, |_| {
            self.leave(Hop::Prefill, at); // it computed again, and in vain
            Hop::Decode
        });
        if let Some(record) = self.open(interrupted) {
            record.retractions += 1;
            push_event(record, at, HopEvent::Retraction);
        }
    }

    /// The engine is gone and the flight waits for another one: whatever it was in there is cut off, and it is before
    /// the socket again.
    pub fn engine_lost(&mut self, at: MonoNanos) {
        if matches!(self.stalled_at(), Some(Hop::Submit | Hop::IpcToEngine)) {
            return; // it has not been there
        }
        for record in self.hops.iter_mut().filter(|record| record.left.is_none()) {
            record.left = Some(at.max(record.entered));
            record.cut = true;
        }
        self.enter(Hop::IpcToEngine, at);
    }

    /// Another engine is sent it.
    pub fn resent(&mut self, at: MonoNanos) {
        self.mark(Hop::IpcToEngine, at, HopEvent::EngineRestart);
    }

    /// The answer has come.
    pub fn answered(&mut self, sent_at: MonoNanos, at: MonoNanos) {
        if self.open(Hop::IpcToFrontend).is_none() {
            self.enter(Hop::IpcToFrontend, sent_at);
        }
        self.leave(Hop::IpcToFrontend, at);
    }

    /// A request ends. What is open has ended with it, unless it ends because of that.
    pub fn close(&mut self, outcome: RequestOutcome, at: MonoNanos) {
        if outcome == RequestOutcome::Error {
            return;
        }
        if let (RequestOutcome::Abort, Some(hop)) = (outcome, self.stalled_at()) {
            self.mark(hop, at, HopEvent::Abort);
        }
        for record in self.hops.iter_mut().filter(|record| record.left.is_none()) {
            record.left = Some(at.max(record.entered));
        }
    }

    fn push(&mut self, hop: Hop, moment: Moment, parent: Option<usize>) {
        self.hops.push(HopRecord {
            hop,
            entered: moment.at,
            left: None,
            cut: false,
            parent,
            engine: moment.engine,
            steps: matches!(hop, Hop::Prefill | Hop::Decode).then_some((moment.step + 1, None)),
            chunks: 0,
            retractions: 0,
            events: Vec::new(),
        });
    }

    fn mark(&mut self, hop: Hop, at: MonoNanos, event: HopEvent) {
        if let Some(record) = self.open(hop) {
            push_event(record, at, event);
        }
    }

    fn position(&self, hop: Hop) -> Option<usize> {
        self.hops.iter().rposition(|record| record.hop == hop && record.left.is_none())
    }

    fn open(&mut self, hop: Hop) -> Option<&mut HopRecord> {
        self.hops.iter_mut().rev().find(|record| record.hop == hop && record.left.is_none())
    }
}

fn push_event(record: &mut HopRecord, at: MonoNanos, event: HopEvent) {
    if record.events.len() < MAX_EVENTS {
        record.events.push((at.max(record.entered), event));
    }
}

#[cfg(test)]
mod tests;
