//! A model whose steps are slow or fail when a drill says so.

use super::Drills;
use crate::io_struct::{Fault, ModelInfo};
use crate::model_runner::{ForwardError, Logits, ModelRunner, SequenceSlice};

/// Any model, with the drills before its forward pass.
pub struct DrilledRunner {
    model: Box<dyn ModelRunner>,
    drills: Drills,
}

impl DrilledRunner {
    /// `model`, unless there are no drills: then it is left alone.
    #[must_use]
    pub fn around(model: Box<dyn ModelRunner>, drills: &Drills) -> Box<dyn ModelRunner> {
        if drills.is_enabled() { Box::new(Self { model, drills: drills.clone() }) } else { model }
    }
}

impl ModelRunner for DrilledRunner {
    fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    fn forward_into(&mut self, batch: &[SequenceSlice<'_>], logits: &mut Logits) -> Result<(), ForwardError> {
        self.drills.before_step()?;
        self.model.forward_into(batch, logits)
    }

    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        self.model.for_each(count, work);
    }
}

impl Drills {
    /// The model, before it is loaded.
    pub fn before_load(&self) {
        if let Some(Fault::SlowLoad { seconds }) = self.find(|fault| matches!(fault, Fault::SlowLoad { .. })) {
            self.hold(seconds, |fault| matches!(fault, Fault::SlowLoad { .. }));
        }
    }

    /// The model, before each forward pass.
    fn before_step(&self) -> Result<(), ForwardError> {
        if let Some(Fault::SlowSteps { ms }) = self.find(|fault| matches!(fault, Fault::SlowSteps { .. })) {
            self.hold(ms, |fault| matches!(fault, Fault::SlowSteps { .. }));
        }
        if self.step_fails() { Err(ForwardError::Drill) } else { Ok(()) }
    }

    /// Counts down to the step that fails; that one uses the fault up.
    fn step_fails(&self) -> bool {
        let Some(board) = &self.board else { return false };
        let mut active = board.active();
        let Some(place) = active.iter().position(|active| matches!(active.fault, Fault::FailStep { .. })) else {
            return false;
        };
        active[place].steps_left = active[place].steps_left.saturating_sub(1);
        let fails = active[place].steps_left == 0;
        if fails {
            active.remove(place);
        }
        fails
    }
}
