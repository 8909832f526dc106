//! What is asked of the engine as a whole: pauses, flushes, drills and what it logs.

use std::time::Duration;

use super::TokenizerManager;
use super::submit::SubmitError;
use crate::io_struct::{Fault, FaultSide, FlushOutcome, PauseMode, ToEngine};

/// A pause begins after the step in flight; longer than this is no step.
const CONFIRMATION_LIMIT: Duration = Duration::from_secs(10);

impl TokenizerManager {
    /// Pauses generation; returns when the scheduler holds its batches.
    ///
    /// # Errors
    /// Nothing is served, or the scheduler does not confirm it in time.
    pub async fn pause_generation(&self, mode: PauseMode) -> Result<(), SubmitError> {
        self.model()?;
        self.tell_engine(ToEngine::Pause(mode));
        self.confirmed(true).await
    }

    /// Continues generation; returns when the scheduler forms batches again.
    ///
    /// # Errors
    /// No engine, or the scheduler does not confirm it in time.
    pub async fn continue_generation(&self) -> Result<(), SubmitError> {
        if self.engine().is_dead() {
            return Err(SubmitError::EngineDead);
        }
        self.tell_engine(ToEngine::Continue);
        self.confirmed(false).await
    }

    async fn confirmed(&self, paused: bool) -> Result<(), SubmitError> {
        let mut watch = self.engine().watch_paused();
        let confirmed = tokio::time::timeout(CONFIRMATION_LIMIT, watch.wait_for(|now| *now == paused)).await;
        confirmed.map(|_| ()).map_err(|_| unconfirmed())
    }

    /// Empties the engine's prefix cache, if no user's request runs or waits.
    ///
    /// # Errors
    /// Nothing is served, the engine dies meanwhile, or the scheduler does not answer in time.
    pub async fn flush_cache(&self) -> Result<FlushOutcome, SubmitError> {
        self.model()?;
        let (id, outcome) = self.inner.flushes.begin();
        self.tell_engine(ToEngine::FlushCache(id));
        let answered = tokio::time::timeout(CONFIRMATION_LIMIT, outcome).await;
        answered.map_err(|_| unconfirmed())?.map_err(|_| SubmitError::EngineDead)
    }

    /// Has the engine log what `filter` lets through.
    pub fn set_engine_log(&self, filter: String) {
        if !self.engine().is_dead() {
            self.tell_engine(ToEngine::LogFilter(filter));
        }
    }

    /// Switches a fault on, here or in the engine. Without `--enable-drills`, nothing happens.
    pub fn drill(&self, fault: Fault) {
        self.drills().switch_on(fault); // the engine's too: so that it is known what was asked for
        if fault.side() == FaultSide::Engine && self.drills().is_enabled() {
            self.tell_engine(ToEngine::Fault(fault));
        }
    }

    /// Switches all faults off, here and in the engine.
    pub fn end_drills(&self) {
        self.drills().switch_off();
        if self.drills().is_enabled() && !self.engine().is_dead() {
            self.tell_engine(ToEngine::FaultsOff);
        }
    }
}

fn unconfirmed() -> SubmitError {
    let message = format!("the engine has not confirmed it within {CONFIRMATION_LIMIT:?}; see /health_generate");
    SubmitError::NotServing(message)
}
