//! Where everybody is: each probe's and request's hops, kept where they cannot hang, written when it ends in any way.
//!
//! The engine opens no spans: a span that a hung process holds is never exported, exactly when it is needed. It says
//! what it does, before and after; the ledger notes it and the survivor writes the trace.

pub mod timeline;
mod flight;
pub mod cause;
pub mod autopsy;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry::Context;

use crate::clock::{MonoNanos, WallAnchor};
use crate::io_struct::{EngineEvent, Purpose, Rid, StepInfo};
use crate::telemetry::labels::{Hop, RequestOutcome};
use crate::telemetry::metrics::TraceRef;
use crate::telemetry::otlp::{Ending, Tracers};
use crate::telemetry::spans;
use crate::telemetry::spans::names::MAX_LINKS;
use autopsy::Autopsy;
pub use flight::Flight;
use flight::Holder;
use timeline::Moment;

/// So many autopsies are kept.
pub const KEPT_AUTOPSIES: usize = 256;

/// All flights under way, and the autopsies of the last probes.
pub struct ProbeLedger {
    flights: Mutex<Flights>,
    autopsies: Mutex<VecDeque<Arc<Autopsy>>>,
    tracers: Arc<Tracers>,
    anchor: WallAnchor,
}

/// What is under way. Nothing here is done for each token, and for a step only what the probes in the engine need.
#[derive(Debug, Default)]
struct Flights {
    by_rid: HashMap<Rid, Flight>,
    /// Flights whose rid was free again, and taken, before their end was told: a caller may use a rid twice.
    displaced: Vec<Flight>,
    /// Requests that were in the batch when they were last heard of.
    running: Vec<Rid>,
    /// Probes that have reached the engine.
    probes: Vec<Rid>,
    /// The number of the newest step.
    step: u64,
}

impl ProbeLedger {
    /// An empty ledger that writes its spans with `tracers`.
    #[must_use]
    pub fn new(tracers: Arc<Tracers>) -> Self {
        Self { flights: Mutex::default(), autopsies: Mutex::default(), tracers, anchor: WallAnchor::now() }
    }

    /// A flight begins under the span of `root`. Its end is told with its `serial`, which no other has.
    pub fn begin(&self, rid: &Rid, serial: u64, purpose: Purpose, root: Context, began: MonoNanos) {
        let mut flights = self.flights();
        if let Some(before) = flights.land(rid) {
            flights.displaced.push(before);
        }
        flights.by_rid.insert(rid.clone(), Flight::new(serial, purpose, root, began));
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
        let mut flights = self.flights();
        let moment = Moment { at, engine: self.tracers.engine_pid(), step: flights.step };
        match event {
            EngineEvent::HopEntered { rid, serial, hop } => flights.entered(rid, *serial, *hop, moment),
            EngineEvent::HopLeft { rid, serial, hop } => {
                if let Some(flight) = flights.sent(rid, *serial) {
                    flight.timeline.engine_left(*hop, moment);
                }
            }
            EngineEvent::ProbeBranch { rid, branch } => flights.with(rid, |flight| flight.branch = *branch),
            EngineEvent::Retracted { rid } => {
                flights.with(rid, |flight| flight.timeline.retracted(at));
                flights.running.retain(|running| running != rid);
            }
            EngineEvent::PrefillChunks(chunks) => {
                for chunk in chunks {
                    flights.with(&chunk.rid, |flight| flight.timeline.chunk(chunk.tokens, moment));
                }
            }
            EngineEvent::StepBegan(step) => flights.step_began(*step),
            EngineEvent::StepEnded(_)
            | EngineEvent::Paused(_)
            | EngineEvent::CacheFlushed { .. }
            | EngineEvent::Heartbeat(_) => {}
        }
    }

    /// The engine is gone, at `at`; the requests that are still under way wait for another one. A probe's verdict says
    /// where it was.
    pub fn engine_lost(&self, at: MonoNanos) {
        let mut flights = self.flights();
        flights.running.clear();
        flights.step = 0;
        for flight in flights.by_rid.values_mut().filter(|flight| flight.purpose == Purpose::Serve) {
            flight.timeline.engine_lost(at);
        }
    }

    /// Another engine is sent the flight, at `at`.
    pub fn resent(&self, rid: &Rid, at: MonoNanos) {
        self.with(rid, |flight| flight.timeline.resent(at));
    }

    /// The flight's answer, sent at `sent_at`, has come at `at`.
    pub fn answer_received(&self, rid: &Rid, sent_at: MonoNanos, at: MonoNanos) {
        self.with(rid, |flight| flight.timeline.answered(sent_at, at));
    }

    /// The last of the flight's output became text between `began` and `at`; all of it took `spent`.
    pub fn detokenized(&self, rid: &Rid, began: MonoNanos, at: MonoNanos, spent: std::time::Duration) {
        self.with(rid, |flight| flight.detokenized(began, at, spent));
    }

    /// The flight as it is.
    #[must_use]
    pub fn peek(&self, rid: &Rid) -> Option<Flight> {
        self.flights().by_rid.get(rid).cloned()
    }

    /// A request ends, at `at`: its hops become spans. If it failed, what is unfinished is marked so. `None` if it has
    /// ended before.
    pub fn end(&self, rid: &Rid, serial: u64, outcome: RequestOutcome, at: MonoNanos) -> Option<Flight> {
        let mut flight = self.flights().land_request(rid, serial)?;
        flight.timeline.close(outcome, at);
        self.write(&flight, at);
        Some(flight)
    }

    /// The probe's flight is over, and not yet written: what is heard of it from now on comes too late.
    #[must_use]
    pub fn land(&self, rid: &Rid) -> Option<Flight> {
        self.flights().land(rid)
    }

    /// Writes the hops of a flight that has landed; what is unfinished is marked so.
    pub fn write(&self, flight: &Flight, at: MonoNanos) {
        let newest_step = self.flights().step;
        let spans = flight.spans(&self.anchor, newest_step);
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
    pub fn trace_of(&self, rid: &Rid, serial: u64, at: MonoNanos, ending: Ending) -> Option<TraceRef> {
        let (root, began) = self.flights().find(rid, serial).map(|flight| (flight.root.clone(), flight.began))?;
        self.trace(&root, began, at, ending)
    }

    /// Flights under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        let flights = self.flights();
        flights.by_rid.len() + flights.displaced.len()
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

    fn with(&self, rid: &Rid, change: impl FnOnce(&mut Flight)) {
        self.flights().with(rid, change);
    }

    fn flights(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flights {
    fn with(&mut self, rid: &Rid, change: impl FnOnce(&mut Flight)) {
        if let Some(flight) = self.by_rid.get_mut(rid) {
            change(flight);
        }
    }

    /// The flight that the engine knows by `serial`, unless another has its rid by now.
    fn sent(&mut self, rid: &Rid, serial: u64) -> Option<&mut Flight> {
        self.by_rid.get_mut(rid).filter(|flight| flight.serial == serial)
    }

    fn entered(&mut self, rid: &Rid, serial: u64, hop: Hop, moment: Moment) {
        let Some(flight) = self.sent(rid, serial) else { return };
        flight.timeline.engine_entered(hop, moment);
        match (hop, flight.purpose) {
            (Hop::Prefill, Purpose::Serve) => self.running.push(rid.clone()),
            (Hop::Inbox, Purpose::HealthCheck(_)) => {
                self.probes.push(rid.clone());
                let holders = self.holders(); // of the step in flight, if there is one
                self.with(rid, |probe| probe.held_by(&holders));
            }
            _ => {}
        }
    }

    fn step_began(&mut self, step: StepInfo) {
        self.step = step.number;
        if self.probes.is_empty() {
            return;
        }
        let holders = self.holders();
        for rid in &self.probes {
            if let Some(probe) = self.by_rid.get_mut(rid) {
                match probe.timeline.stalled_at() {
                    Some(Hop::Forward) => probe.step = Some(step),
                    Some(Hop::Inbox | Hop::ReturnHealthCheckIpcs) => probe.held_by(&holders),
                    _ => {}
                }
            }
        }
    }

    /// The requests in the batch.
    fn holders(&self) -> Arc<[Holder]> {
        let flights = self.running.iter().filter_map(|rid| Some((rid, self.by_rid.get(rid)?)));
        let running = flights.filter(|(_, flight)| flight.timeline.runs());
        running.take(MAX_LINKS).map(|(rid, flight)| flight.as_holder(rid)).collect()
    }

    fn find(&self, rid: &Rid, serial: u64) -> Option<&Flight> {
        let is_it = |flight: &&Flight| flight.serial == serial;
        self.by_rid.get(rid).filter(is_it).or_else(|| self.displaced.iter().find(is_it))
    }

    fn land_request(&mut self, rid: &Rid, serial: u64) -> Option<Flight> {
        if self.by_rid.get(rid).is_some_and(|flight| flight.serial == serial) {
            return self.land(rid);
        }
        let place = self.displaced.iter().position(|flight| flight.serial == serial)?;
        Some(self.displaced.swap_remove(place))
    }

    fn land(&mut self, rid: &Rid) -> Option<Flight> {
        let flight = self.by_rid.remove(rid)?;
        let list = if flight.purpose == Purpose::Serve { &mut self.running } else { &mut self.probes };
        list.retain(|listed| listed != rid);
        Some(flight)
    }
}

#[cfg(test)]
mod tests;
