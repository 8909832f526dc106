//! Faults on purpose, for drills and tests: what is on, and the hooks by which it happens.
//!
//! The hooks are ours and not the `fail` crate's: its failpoints live in one global table, sleep without an end when
//! they are switched off, and know no async tasks.

mod waits;
mod runner;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

pub use runner::DrilledRunner;

use crate::clock::MonoNanos;
use crate::io_struct::Fault;

/// The faults of one process. Cheap to clone; without `--enable-drills` there is nothing in it and nothing goes in.
#[derive(Debug, Clone, Default)]
pub struct Drills {
    board: Option<Arc<Board>>,
}

#[derive(Debug, Default)]
struct Board {
    active: Mutex<Vec<Active>>,
    /// For threads that stand.
    changed: Condvar,
    /// For tasks that stand; counts the changes.
    version: watch::Sender<u64>,
}

/// A fault that is on.
#[derive(Debug, Clone, Copy)]
struct Active {
    fault: Fault,
    until: Option<MonoNanos>,
    /// Steps until it happens, for [`Fault::FailStep`].
    steps_left: u64,
}

/// A fault that is on, and for how much longer.
pub type Remaining = (Fault, Option<Duration>);

impl Drills {
    /// With `faults` on from the start.
    #[must_use]
    pub fn enabled(faults: &[Fault]) -> Self {
        let drills = Self { board: Some(Arc::default()) };
        for fault in faults {
            drills.switch_on(*fault);
        }
        drills
    }

    /// Whether `--enable-drills` was given.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.board.is_some()
    }

    /// The fault happens from now on; one of its kind that is on already ends.
    pub fn switch_on(&self, fault: Fault) {
        let Some(board) = &self.board else { return };
        let until = fault.lasts().map(|lasts| MonoNanos::now().after(lasts));
        let steps_left = if let Fault::FailStep { nth } = fault { nth } else { 0 };
        board.change(|active| {
            active.retain(|other| std::mem::discriminant(&other.fault) != std::mem::discriminant(&fault));
            active.push(Active { fault, until, steps_left });
        });
    }

    /// All faults end.
    pub fn switch_off(&self) {
        if let Some(board) = &self.board {
            board.change(Vec::clear);
        }
    }

    /// What is on.
    #[must_use]
    pub fn on(&self) -> Vec<Remaining> {
        let Some(board) = &self.board else { return Vec::new() };
        let now = MonoNanos::now();
        let active = board.active();
        active.iter().filter(|active| active.is_on(now)).map(|active| (active.fault, active.rest(now))).collect()
    }

    /// The scheduler's loop, before each turn.
    ///
    /// # Panics
    /// If the drill says so.
    #[expect(clippy::panic, reason = "a panic is what the drill is for")]
    pub fn before_turn(&self) {
        if self.rest(|fault| matches!(fault, Fault::SchedulerPanic)).is_some() {
            panic!("a drill: scheduler_panic");
        }
        self.stand(|fault| matches!(fault, Fault::LoopFrozen { .. }));
    }

    /// Whether the scheduler may form a batch.
    #[must_use]
    pub fn forbids_batches(&self) -> bool {
        self.rest(|fault| matches!(fault, Fault::NoBatches { .. })).is_some()
    }

    /// Whether the KV pool hands out nothing.
    #[must_use]
    pub fn withholds_kv(&self) -> bool {
        self.rest(|fault| matches!(fault, Fault::OutOfKv { .. })).is_some()
    }

    /// The detokenizer, before each batch.
    pub fn before_detokenizing(&self) {
        self.stand(|fault| matches!(fault, Fault::DetokenizerStuck { .. }));
    }

    /// The engine, before it reads from a frontend's socket.
    pub async fn before_engine_reads(&self) {
        self.wait(|fault| matches!(fault, Fault::EngineStopsReading { .. })).await;
    }

    /// The frontend, before it reads from the engine's socket.
    pub async fn before_frontend_reads(&self) {
        self.wait(|fault| matches!(fault, Fault::FrontendStopsReading { .. })).await;
    }

    /// What becomes of a busy scheduler's answer to a probe.
    #[must_use]
    pub fn health_check_output(&self) -> Passage {
        if self.rest(|fault| matches!(fault, Fault::DropHealthCheckOutput)).is_some() {
            return Passage::Lost;
        }
        match self.find(|fault| matches!(fault, Fault::DelayHealthCheckOutput { .. })) {
            Some(Fault::DelayHealthCheckOutput { ms }) => Passage::Late(ms),
            _ => Passage::Free,
        }
    }

    /// Blocks the worker that polls it, whenever and as long as the drill says so. One for each worker of the runtime.
    pub async fn block_workers(self) {
        loop {
            self.until_on(|fault| matches!(fault, Fault::FrontendBlocked { .. })).await;
            self.stand(|fault| matches!(fault, Fault::FrontendBlocked { .. }));
        }
    }
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// It goes its way.
    Free,
    /// It goes its way later.
    Late(Duration),
    /// It is lost.
    Lost,
}

impl Active {
    fn is_on(&self, now: MonoNanos) -> bool {
        self.until.is_none_or(|until| until > now)
    }

    fn rest(&self, now: MonoNanos) -> Option<Duration> {
        self.until.map(|until| until.since(now))
    }
}

impl Board {
    fn change(&self, change: impl FnOnce(&mut Vec<Active>)) {
        change(&mut self.active());
        self.changed.notify_all();
        self.version.send_modify(|version| *version += 1);
    }

    fn active(&self) -> MutexGuard<'_, Vec<Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
