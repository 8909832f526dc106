//! Requests whose output follows a grammar: nothing waits for its compilation but they themselves.

use std::sync::Arc;
use std::time::Duration;

use super::Scheduler;
use super::request::Request;
use crate::clock::MonoNanos;
use crate::io_struct::{AbortKind, FinishReason, TokenId};
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

    /// The tokens that its grammar allows next, if that is known.
    pub(super) fn mask(&self) -> Option<&[u32]> {
        self.constraint.as_ref().and_then(Constraint::mask).map(TokenMask::words)
    }

    /// Appends `token`. If the output ends with it, says why: a grammar that allows nothing more ends it, and so does a
    /// model that ends what its grammar lets end.
    ///
    /// # Errors
    /// The grammar cannot be followed.
    pub(super) fn append(&mut self, token: TokenId, eos: &[TokenId]) -> Result<Option<FinishReason>, GrammarError> {
        match &mut self.constraint {
            Some(constraint) => _ = constraint.wait()?,
            None if self.params.grammar.is_some() => return Err(GrammarError::new("this engine follows no grammars")),
            None => {}
        }
        self.tokens.push(token);
        self.decoding = true;
        let ends = self.finish_reason(token, eos);
        let progress = self.constraint.as_mut().map(|constraint| constraint.take(token)).transpose()?;
        Ok(match (progress, ends) {
            (Some(Progress::Complete), None | Some(FinishReason::Length(_))) if eos.contains(&token) => {
                Some(FinishReason::StopToken(token))
            }
            (Some(Progress::Complete), None | Some(FinishReason::Length(_))) => Some(FinishReason::Grammar),
            (_, ends) => ends,
        })
    }
}

#[cfg(test)]
mod tests;
