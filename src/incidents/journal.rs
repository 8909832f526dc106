//! The engine's last words: its events and steps, the newest of each.

use std::collections::VecDeque;

use serde::Serialize;

use crate::clock::MonoNanos;
use crate::io_struct::{EngineEvent, FlushOutcome, Heartbeat};
use crate::probe_ledger::autopsy::millis;

const KEPT_EVENTS: usize = 48;
const KEPT_STEPS: usize = 16;

/// The newest events and steps of an engine.
#[derive(Debug, Default)]
pub struct Journal {
    /// The last heartbeat.
    pub heartbeat: Option<Heartbeat>,
    events: VecDeque<(MonoNanos, String)>,
    steps: VecDeque<(MonoNanos, String)>,
}

/// One line of the journal.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// How long before the report.
    pub ms_before: f64,
    /// What was said.
    pub what: String,
}

impl Journal {
    /// Notes what the engine said at `at`.
    pub fn note(&mut self, event: &EngineEvent, at: MonoNanos) {
        match event {
            EngineEvent::Heartbeat(heartbeat) => self.heartbeat = Some(*heartbeat),
            EngineEvent::HopEntered { rid, hop, .. } => self.event(at, format!("{rid} entered {hop}")),
            EngineEvent::HopLeft { rid, hop, .. } => self.event(at, format!("{rid} left {hop}")),
            EngineEvent::ProbeBranch { rid, branch } => self.event(at, format!("{rid} takes the {branch} branch")),
            EngineEvent::Paused(paused) => {
                self.event(at, if *paused { "paused".to_owned() } else { "goes on".to_owned() });
            }
            EngineEvent::CacheFlushed { outcome: FlushOutcome::Flushed { tokens }, .. } => {
                self.event(at, format!("prefix cache flushed: {tokens} tokens"));
            }
            EngineEvent::CacheFlushed { .. } => {} // nothing was done
            EngineEvent::Retracted { rid } => self.event(at, format!("{rid} was retracted")),
            EngineEvent::PrefillChunks(_) => {} // the step says how many tokens it has
            EngineEvent::StepBegan(step) => {
                let (number, phase) = (step.number, step.phase);
                let what = format!("step {number} began: {phase}, {} tokens, {} requests", step.tokens, step.requests);
                push(&mut self.steps, KEPT_STEPS, (at, what));
            }
            EngineEvent::StepEnded(step) => {
                push(&mut self.steps, KEPT_STEPS, (at, format!("step {} ended", step.number)));
            }
        }
    }

    /// The events, oldest first.
    #[must_use]
    pub fn events(&self, now: MonoNanos) -> Vec<Entry> {
        entries(&self.events, now)
    }

    /// The steps, oldest first.
    #[must_use]
    pub fn steps(&self, now: MonoNanos) -> Vec<Entry> {
        entries(&self.steps, now)
    }

    fn event(&mut self, at: MonoNanos, what: String) {
        push(&mut self.events, KEPT_EVENTS, (at, what));
    }
}

fn push<T>(kept: &mut VecDeque<T>, limit: usize, newest: T) {
    if kept.len() == limit {
        kept.pop_front();
    }
    kept.push_back(newest);
}

fn entries(kept: &VecDeque<(MonoNanos, String)>, now: MonoNanos) -> Vec<Entry> {
    kept.iter().map(|(at, what)| Entry { ms_before: millis(now.since(*at)), what: what.clone() }).collect()
}
