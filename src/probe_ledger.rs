//! Where everybody is: each probe's and request's hops, kept where they cannot hang, written when it ends in any way.
//!
//! The engine opens no spans: a span that a hung process holds is never exported, exactly when it is needed. It says
//! what it does, before and after; the ledger notes it and the survivor writes the trace.

pub mod timeline;
pub mod cause;
pub mod autopsy;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry::Context;

use crate::clock::{MonoNanos, WallAnchor};
use crate::io_struct::{EngineEvent, Rid, StepInfo};
use crate::telemetry::labels::{Hop, ProbeBranch};
use crate::telemetry::metrics::TraceRef;
use crate::telemetry::otlp::{Ending, Tracers};
use crate::telemetry::spans::{self, HopSpan, StepAttributes};
use autopsy::Autopsy;
use timeline::Timeline;

/// So many autopsies are kept.
pub const KEPT_AUTOPSIES: usize = 256;

/// One probe or request under way.
#[derive(Debug, Clone)]
pub struct Flight {
    /// The span that its hops are children of.
    root: Context,
    /// When it was submitted.
    pub began: MonoNanos,
    /// Its hops so far.
    pub timeline: Timeline,
    /// The scheduler's decision, if it is a probe and the decision is known.
    pub branch: ProbeBranch,
    /// The step that ran it.
    pub step: Option<StepInfo>,
}

/// All flights under way, and the autopsies of the last probes.
pub struct ProbeLedger {
    flights: Mutex<HashMap<Rid, Flight>>,
    autopsies: Mutex<VecDeque<Arc<Autopsy>>>,
    tracers: Arc<Tracers>,
    anchor: WallAnchor,
}

impl ProbeLedger {
    /// An empty ledger that writes its spans with `tracers`.
    #[must_use]
    pub fn new(tracers: Arc<Tracers>) -> Self {
        Self { flights: Mutex::default(), autopsies: Mutex::default(), tracers, anchor: WallAnchor::now() }
    }

    /// A flight begins under the span of `root`.
    pub fn begin(&self, rid: &Rid, root: Context, began: MonoNanos) {
        let timeline = Timeline::default();
        let flight = Flight { root, began, timeline, branch: ProbeBranch::None, step: None };
        self.flights().insert(rid.clone(), flight);
    }

    /// It reached `hop`. Unknown flights are ignored: they have ended.
    pub fn enter(&self, rid: &Rid, hop: Hop, at: MonoNanos) {
        self.with(rid, |flight| flight.timeline.enter(hop, at));
    }

    /// It left `hop`.
    pub fn leave(&self, rid: &Rid, hop: Hop, at: MonoNanos) {
        self.with(rid, |flight| flight.timeline.leave(hop, at));
    }

    /// What the engine said, at `at` on the common clock.
    pub fn note(&self, event: &EngineEvent, at: MonoNanos) {
        match event {
            EngineEvent::HopEntered { rid, hop } => self.with(rid, |flight| flight.timeline.engine_entered(*hop, at)),
            EngineEvent::HopLeft { rid, hop } => self.with(rid, |flight| flight.timeline.engine_left(*hop, at)),
            EngineEvent::ProbeBranch { rid, branch } => self.with(rid, |flight| flight.branch = *branch),
            EngineEvent::StepBegan(step) => {
                for flight in self.flights().values_mut() {
                    if flight.timeline.stalled_at() == Some(Hop::Forward) {
                        flight.step = Some(*step);
                    }
                }
            }
            EngineEvent::StepEnded(_) | EngineEvent::Paused(_) | EngineEvent::Heartbeat(_) => {}
        }
    }

    /// The engine that had the flight is gone, at `at`; the flight waits for another one.
    pub fn engine_lost(&self, rid: &Rid, at: MonoNanos) {
        self.with(rid, |flight| flight.timeline.leave_all(at));
    }

    /// The flight's answer, sent at `sent_at`, has come at `at`.
    pub fn answer_received(&self, rid: &Rid, sent_at: MonoNanos, at: MonoNanos) {
        self.with(rid, |flight| flight.timeline.answered(sent_at, at));
    }

    /// The flight as it is.
    #[must_use]
    pub fn peek(&self, rid: &Rid) -> Option<Flight> {
        self.flights().get(rid).cloned()
    }

    /// The flight ends, at `at`, in whatever way: its hops become spans, what is unfinished is marked so. `None` if it
    /// has ended before.
    pub fn end(&self, rid: &Rid, at: MonoNanos) -> Option<Flight> {
        let flight = self.land(rid)?;
        self.write(&flight, at);
        Some(flight)
    }

    /// The flight is over, and not yet written: what is heard of it from now on comes too late.
    #[must_use]
    pub fn land(&self, rid: &Rid) -> Option<Flight> {
        self.flights().remove(rid)
    }

    /// The second half of [`Self::end`].
    pub fn write(&self, flight: &Flight, at: MonoNanos) {
        let spans = self.hop_spans(flight);
        spans::write_hops(&self.tracers, &flight.root, &spans, self.anchor.wall(at));
    }

    /// The trace below `root`, which began at `began` and ends so at `at`; `None` if nobody keeps it.
    #[must_use]
    pub fn trace(&self, root: &Context, began: MonoNanos, at: MonoNanos, ending: Ending) -> Option<TraceRef> {
        let id = self.tracers.kept(root, ending, at.since(began))?;
        Some(TraceRef { id, at: self.anchor.wall(at) })
    }

    /// The trace of a flight under way, if it ends so at `at`; `None` if nobody keeps it.
    #[must_use]
    pub fn trace_of(&self, rid: &Rid, at: MonoNanos, ending: Ending) -> Option<TraceRef> {
        let (root, began) = self.flights().get(rid).map(|flight| (flight.root.clone(), flight.began))?;
        self.trace(&root, began, at, ending)
    }

    /// Flights under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.flights().len()
    }

    /// Keeps an autopsy; the oldest makes room.
    pub fn keep(&self, autopsy: Autopsy) -> Arc<Autopsy> {
        let autopsy = Arc::new(autopsy);
        let mut kept = self.autopsies.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT_AUTOPSIES {
            kept.pop_front();
        }
        kept.push_back(Arc::clone(&autopsy));
        autopsy
    }

    /// The last autopsies, newest first.
    #[must_use]
    pub fn autopsies(&self) -> Vec<Arc<Autopsy>> {
        let kept = self.autopsies.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().cloned().collect()
    }

    fn hop_spans(&self, flight: &Flight) -> Vec<HopSpan> {
        let spans = flight.timeline.hops().iter().map(|record| HopSpan {
            hop: record.hop,
            entered: self.anchor.wall(record.entered),
            left: record.left.map(|left| self.anchor.wall(left)),
            branch: (record.hop == Hop::ProcessInput && flight.branch != ProbeBranch::None).then_some(flight.branch),
            parent: record.parent,
            step: flight.step.filter(|_| record.hop == Hop::Forward).map(|step| StepAttributes {
                number: step.number,
                phase: step.phase,
                tokens: step.tokens,
                requests: step.requests,
            }),
        });
        spans.collect()
    }

    fn with(&self, rid: &Rid, change: impl FnOnce(&mut Flight)) {
        if let Some(flight) = self.flights().get_mut(rid) {
            change(flight);
        }
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<Rid, Flight>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
