//! Grammars are compiled before anything is scheduled, so that a bad one is a refusal.

use super::submit::SubmitError;
use super::{ServedModel, TokenizerManager};
use crate::io_struct::Grammar;
use crate::structured::Grammars;
use crate::telemetry::labels::GrammarOutcome;

impl TokenizerManager {
    /// Finds out whether outputs can follow `grammar`, on a thread where that may take its time. The first time, the
    /// vocabulary is read.
    ///
    /// # Errors
    /// It is wrong, too large, or needs what is not supported; its field is to blame.
    pub async fn check_grammar(&self, grammar: &Grammar) -> Result<(), SubmitError> {
        let (model, manager, asked) = (self.model()?, self.clone(), grammar.clone());
        let checked = tokio::task::spawn_blocking(move || {
            let ServedModel { tokenizer, info, .. } = &*model;
            let grammars = manager.inner.grammars.get_or_init(|| Grammars::to_check(tokenizer, info));
            let mut follower = grammars.as_ref().map_err(Clone::clone)?.follow(&asked)?;
            follower.mask().map(drop) // what can never begin, or takes too much work to, is refused too
        });
        let checked = checked.await.map_err(|error| SubmitError::Failed(error.to_string()))?;
        let outcome = if checked.is_ok() { GrammarOutcome::Ok } else { GrammarOutcome::Refused };
        self.inner.metrics.grammars.compiled(grammar.field, outcome);
        checked.map_err(|error| {
            let param = grammar.field.as_str().to_owned();
            SubmitError::Invalid { message: format!("{param} cannot be followed: {error}"), param }
        })
    }
}
