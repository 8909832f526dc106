//! Requests whose output follows a grammar: nothing waits for its compilation but they themselves.

use std::sync::Arc;
use std::time::Duration;

use super::Scheduler;
use super::request::Request;
use crate::clock::MonoNanos;
use crate::io_struct::{AbortKind, FinishReason, TokenId};
use crate::model_runner::LogitsRow;
use crate::model_runner::sampler::{self, Sampled};
use crate::structured::worker::{Constraint, GrammarWorkers};
use crate::structured::{GrammarError, Progress, TokenMask};

/// A schema of usual size is compiled within this time.
const COMPILE_WAIT: Duration = Duration::from_millis(5);

impl Scheduler {
    /// With threads that compile grammars; without them, whoever asks for one gets an error.
    #[must_use]
    pub fn with_grammars(self, workers: Arc<GrammarWorkers>) -> Self {
        Self { grammars: Some(workers), ..self }
    }

    /// Lets a thread begin with the grammar of a request that has just arrived.
    pub(super) fn begin_grammar(&self, mut request: Request) -> Request {
        if request.params.max_new_tokens > 0
            && let (Some(workers), Some(grammar)) = (&self.grammars, &request.params.grammar)
        {
            request.constraint = Some(workers.begin(grammar.clone()));
        }
        request
    }

    /// The head of the queue gets a place when its grammar is compiled: those who run go on meanwhile. If nobody runs, it
    /// is waited for, but not so long that the loop would seem to stand still.
    pub(super) fn head_is_compiled(&mut self) -> bool {
        let Some(head) = self.waiting.front_mut() else { return true };
        let Some(constraint) = &mut head.constraint else { return true };
        if self.running.is_empty() {
            let began = MonoNanos::now();
            let ready = constraint.is_ready_within(COMPILE_WAIT);
            self.vitals.grammar_waited(began.elapsed());
            return ready;
        }
        constraint.is_ready()
    }
}

fn await_mask(constraint: &mut Constraint) -> Duration {
    let began = MonoNanos::now();
    let _ = constraint.wait(); // an error is told where the mask is needed
    began.elapsed()
}

impl Request {
    /// Waits until it is known which tokens may come next, and says for how long.
    pub(super) fn await_mask(&mut self) -> Duration {
        self.constraint.as_mut().map_or(Duration::ZERO, await_mask)
    }

    /// How a request ends whose grammar cannot be followed to its end: the grammar is to blame, as far as there is one.
    pub(super) fn grammar_failed(&self, error: &GrammarError) -> FinishReason {
        let (name, kind) = match &self.params.grammar {
            Some(grammar) => (grammar.field.as_str(), AbortKind::Grammar(grammar.field)),
            None => ("the grammar", AbortKind::StepFailed),
        };
        FinishReason::Abort { message: format!("{name} cannot be followed: {error}"), kind }
    }

    /// Chooses the next token from `row` and appends it. If the output ends with it, says why: a grammar that allows
    /// nothing more ends it, and so does a model that ends what its grammar lets end.
    ///
    /// # Errors
    /// The grammar cannot be followed.
    pub(super) fn choose(
        &mut self,
        row: LogitsRow<'_>,
        eos: &[TokenId],
    ) -> Result<(Sampled, Option<FinishReason>), GrammarError> {
        match &mut self.constraint {
            Some(constraint) => _ = constraint.wait()?,
            None if self.params.grammar.is_some() => return Err(GrammarError::new("this engine follows no grammars")),
            None => {}
        }
        let mask = self.constraint.as_ref().and_then(Constraint::mask).map(TokenMask::words);
        let sampled = sampler::sample(row, &self.sampling_input(mask));
        self.tokens.push(sampled.token);
        self.decoding = true;
        let ends = self.finish_reason(sampled.token, eos);
        let progress = self.constraint.as_mut().map(|constraint| constraint.take(sampled.token)).transpose()?;
        let ends = match (progress, ends) {
            (Some(Progress::Complete), None | Some(FinishReason::Length(_))) if eos.contains(&sampled.token) => {
                Some(FinishReason::StopToken(sampled.token))
            }
            (Some(Progress::Complete), None | Some(FinishReason::Length(_))) => Some(FinishReason::Grammar),
            (_, ends) => ends,
        };
        Ok((sampled, ends))
    }
}

#[cfg(test)]
mod tests;
