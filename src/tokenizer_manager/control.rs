//! What is asked of the engine as a whole: pauses, flushes, drills and what it logs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use super::TokenizerManager;
use super::submit::SubmitError;
use super::table::MAX_LIVE_REQUESTS;
use crate::io_struct::{Fault, FaultSide, FlushOutcome, PauseMode, ToEngine};

/// A pause begins after the step in flight; longer than this is no step.
const CONFIRMATION_LIMIT: Duration = Duration::from_secs(10);

/// The most messages of this kind that wait in front of the socket. Nobody calls more of them at once for a good reason,
/// and an engine that is stuck would let them pile up.
pub const MAX_WAITING_CONTROLS: usize = 64;

/// With more messages in front of the socket, no request is taken: requests whose callers have left would pile up there,
/// with the aborts behind them.
pub const MAX_WAITING_MESSAGES: usize = 2 * MAX_LIVE_REQUESTS;

/// Room for one message, taken before anything is done so that what is refused has changed nothing.
#[derive(Debug)]
pub struct ControlPlace(OwnedSemaphorePermit);

impl TokenizerManager {
    /// A place in front of the socket to the engine.
    ///
    /// # Errors
    /// [`MAX_WAITING_CONTROLS`] are taken.
    pub fn control_place(&self) -> Result<ControlPlace, SubmitError> {
        let place = Arc::clone(&self.inner.control_places).try_acquire_owned();
        place.map(ControlPlace).map_err(|_| {
            let message = format!(
                "the engine does not read: {MAX_WAITING_CONTROLS} control calls wait for it already; see /health_generate"
            );
            SubmitError::NotServing(message)
        })
    }

    /// Refuses a request while the engine reads nothing.
    ///
    /// # Errors
    /// [`MAX_WAITING_MESSAGES`] wait.
    pub(super) fn refuse_if_unread(&self) -> Result<(), SubmitError> {
        if self.to_engine_depth() < MAX_WAITING_MESSAGES {
            return Ok(());
        }
        let message = format!("the engine does not read: {MAX_WAITING_MESSAGES} messages wait for it; try again later");
        Err(SubmitError::QueueFull(message))
    }

    /// Sends what concerns the present engine alone.
    fn tell_engine(&self, place: ControlPlace, msg: ToEngine) {
        self.send_from(Some(place.0), msg, self.epoch());
    }

    /// Pauses generation; returns when the scheduler holds its batches.
    ///
    /// # Errors
    /// Nothing is served, too many calls wait, or the scheduler does not confirm it in time.
    pub async fn pause_generation(&self, mode: PauseMode) -> Result<(), SubmitError> {
        self.model()?;
        self.tell_engine(self.control_place()?, ToEngine::Pause(mode));
        self.confirmed(true).await
    }

    /// Continues generation; returns when the scheduler forms batches again.
    ///
    /// # Errors
    /// No engine, too many calls wait, or the scheduler does not confirm it in time.
    pub async fn continue_generation(&self) -> Result<(), SubmitError> {
        if self.engine().is_dead() {
            return Err(SubmitError::EngineDead);
        }
        self.tell_engine(self.control_place()?, ToEngine::Continue);
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
    /// Nothing is served, too many calls wait, the engine dies meanwhile, or the scheduler does not answer in time.
    pub async fn flush_cache(&self) -> Result<FlushOutcome, SubmitError> {
        self.model()?;
        let place = self.control_place()?;
        let (id, outcome) = self.inner.flushes.begin();
        self.tell_engine(place, ToEngine::FlushCache(id));
        let answered = tokio::time::timeout(CONFIRMATION_LIMIT, outcome).await;
        answered.map_err(|_| unconfirmed())?.map_err(|_| SubmitError::EngineDead)
    }

    /// Has the engine log what `filter` lets through.
    pub fn set_engine_log(&self, place: ControlPlace, filter: String) {
        if !self.engine().is_dead() {
            self.tell_engine(place, ToEngine::LogFilter(filter));
        }
    }

    /// Switches a fault on, here or in the engine. Without `--enable-drills`, nothing happens.
    ///
    /// # Errors
    /// Too many calls wait; nothing is switched on.
    pub fn drill(&self, fault: Fault) -> Result<(), SubmitError> {
        let for_engine = fault.side() == FaultSide::Engine && self.drills().is_enabled();
        let place = for_engine.then(|| self.control_place()).transpose()?;
        self.drills().switch_on(fault); // the engine's too: so that it is known what was asked for
        if let Some(place) = place {
            self.tell_engine(place, ToEngine::Fault(fault));
        }
        Ok(())
    }

    /// Switches all faults off, here and in the engine.
    ///
    /// # Errors
    /// Too many calls wait; those of the engine stay on.
    pub fn end_drills(&self) -> Result<(), SubmitError> {
        self.drills().switch_off();
        if self.drills().is_enabled() && !self.engine().is_dead() {
            self.tell_engine(self.control_place()?, ToEngine::FaultsOff);
        }
        Ok(())
    }
}

fn unconfirmed() -> SubmitError {
    let message = format!("the engine has not confirmed it within {CONFIRMATION_LIMIT:?}; see /health_generate");
    SubmitError::NotServing(message)
}
