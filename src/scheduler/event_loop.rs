//! Turns the scheduler on its own thread: sleeps when there is nothing to do, never spins.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;

use super::outbox::Outbox;
use super::vitals::VitalsPage;
use super::{Inbox, Scheduler, SchedulerInput, Turn};
use crate::clock::MonoNanos;
use crate::drills::Drills;

/// A loop that cannot form a batch looks again after this time; it must not spin on a core that the model needs.
const BLOCKED_PAUSE: Duration = Duration::from_millis(10);

/// The receiving end of the ipc thread's channel.
pub struct ChannelInbox {
    receiver: Receiver<SchedulerInput>,
    /// What was received while waiting.
    first: Option<SchedulerInput>,
    vitals: Arc<VitalsPage>,
}

impl ChannelInbox {
    /// Takes from `receiver` and counts on `vitals` what it takes.
    #[must_use]
    pub fn new(receiver: Receiver<SchedulerInput>, vitals: Arc<VitalsPage>) -> Self {
        Self { receiver, first: None, vitals }
    }

    /// Waits for input. False if no one can send any more.
    fn wait(&mut self) -> bool {
        self.first = self.receiver.blocking_recv();
        self.first.is_some()
    }

    /// Waits a moment. False if no one can send any more.
    fn pause(&mut self) -> bool {
        std::thread::park_timeout(BLOCKED_PAUSE);
        match self.receiver.try_recv() {
            Ok(input) => self.first = Some(input),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return false,
        }
        true
    }
}

impl Inbox for ChannelInbox {
    fn take(&mut self) -> Vec<SchedulerInput> {
        let mut taken: Vec<SchedulerInput> = self.first.take().into_iter().collect();
        while let Ok(input) = self.receiver.try_recv() {
            taken.push(input);
        }
        self.vitals.inbox_taken(taken.len());
        taken
    }
}

/// Turns `scheduler` until no one can send any more.
pub fn event_loop(
    scheduler: &mut Scheduler,
    inbox: &mut ChannelInbox,
    out: &mut dyn Outbox,
    vitals: &VitalsPage,
    drills: &Drills,
) {
    loop {
        drills.before_turn();
        let began = MonoNanos::now();
        let turn = scheduler.step(inbox, out);
        scheduler.step_took(began.elapsed());
        vitals.loop_turned();
        let goes_on = match turn {
            Turn::Worked => true,
            Turn::Idle | Turn::Paused => inbox.wait(),
            Turn::Blocked => inbox.pause(),
        };
        if !goes_on {
            return;
        }
    }
}
