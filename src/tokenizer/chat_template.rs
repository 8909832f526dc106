//! The model's own chat template, rendered with minijinja.

use crate::io_struct::ModelSource;
use crate::tokenizer::{Tokenizer, TokenizerError};
use crate::tokenizer_manager::submit::PromptPart;

/// A chat template, compiled.
pub struct ChatTemplate {}

impl ChatTemplate {
    /// The template of `source`; `None` if it has none.
    ///
    /// # Errors
    /// The file cannot be read, or the template does not compile.
    pub fn for_source(_source: &ModelSource) -> Result<Option<Self>, TokenizerError> {
        Ok(None)
    }

    /// Renders `messages` (objects with `role` and `content`) into a prompt that asks for the assistant's turn.
    ///
    /// # Errors
    /// The template's own text, if it refuses the messages.
    pub fn render(&self, _messages: &[serde_json::Value], _tokenizer: &Tokenizer) -> Result<Vec<PromptPart>, String> {
        Ok(Vec::new())
    }
}
