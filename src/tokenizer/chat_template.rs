//! The model's own chat template, rendered with minijinja.

mod date;
mod folder;
mod json;
mod shield;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde_json::{Map, Value};

use crate::io_struct::ModelSource;
use crate::tokenizer::PromptPart;
use crate::tokenizer::control::{ControlTokenFinder, Piece};
use crate::tokenizer::gguf::metadata::Metadata;
use crate::tokenizer::{Tokenizer, TokenizerError};
use shield::Shield;

/// A chat template, compiled.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    bos_token: Option<String>,
    eos_token: Option<String>,
}

/// Roles that a message may have. Templates make control tokens of them, so no other text is let through.
pub const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

const NAME: &str = "chat";

/// Work that any template may do, in minijinja's fuel: one instruction, or 64 bytes written.
const FUEL: u64 = 1_000_000;
/// Work on top for each byte of the messages, so that a long chat is refused for its length and not for its work.
const FUEL_PER_BYTE: u64 = 2;

impl ChatTemplate {
    /// The template of `source`; `None` if it has none.
    ///
    /// # Errors
    /// The file cannot be read, or the template does not compile.
    pub fn for_source(source: &ModelSource) -> Result<Option<Self>, TokenizerError> {
        match source {
            ModelSource::Gguf(path) => Self::from_metadata(&Metadata::read(path)?),
            ModelSource::Folder(path) => {
                let Some(source) = folder::read(path)? else { return Ok(None) };
                Self::compile(&source.template, source.bos_token, source.eos_token).map(Some)
            }
            ModelSource::Scripted(_) => Ok(None),
        }
    }

    fn from_metadata(metadata: &Metadata) -> Result<Option<Self>, TokenizerError> {
        let Some(source) = metadata.text("tokenizer.chat_template")? else { return Ok(None) };
        let token = |key| -> Result<Option<String>, TokenizerError> {
            let Some(id) = metadata.integer(key)? else { return Ok(None) };
            let tokens = metadata.texts("tokenizer.ggml.tokens")?;
            let text = usize::try_from(id).ok().and_then(|id| tokens.get(id).copied());
            text.map(|text| Some(text.to_owned()))
                .ok_or_else(|| TokenizerError::Unsupported(format!("{key} is {id}, outside of the vocabulary")))
        };
        let (bos, eos) = (token("tokenizer.ggml.bos_token_id")?, token("tokenizer.ggml.eos_token_id")?);
        Self::compile(source, bos, eos).map(Some)
    }

    /// The template `source`, which may name the texts of two tokens.
    ///
    /// # Errors
    /// It does not compile.
    pub fn compile(source: &str, bos_token: Option<String>, eos_token: Option<String>) -> Result<Self, TokenizerError> {
        let environment = environment(source)
            .map_err(|error| TokenizerError::Unsupported(format!("the chat template does not compile: {error}")))?;
        Ok(Self { environment, source: source.to_owned(), bos_token, eos_token })
    }

    /// Does the template itself hold `text`?
    #[must_use]
    pub fn holds(&self, text: &str) -> bool {
        self.source.contains(text)
    }

    /// Renders `messages` (objects with `role` and `content`) into a prompt that asks for the assistant's turn.
    ///
    /// Only the template can write control tokens: those that stand in a message stay text.
    ///
    /// # Errors
    /// The template's own text, if it refuses the messages.
    pub fn render(&self, messages: &[Value], tokenizer: &Tokenizer) -> Result<Vec<PromptPart>, String> {
        self.render_with(messages, &[], &Map::new(), tokenizer)
    }

    /// [`Self::render`] with the `tools` that may be called, and with `extra` variables, as `enable_thinking` of some
    /// templates. They write no control tokens either, and the variables that every template gets win over them.
    ///
    /// # Errors
    /// The template's own text, if it refuses the messages.
    pub fn render_with(
        &self,
        messages: &[Value],
        tools: &[Value],
        extra: &Map<String, Value>,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<PromptPart>, String> {
        // A control token of one character cannot be told from the text of a message, so in a chat it is text.
        let control = tokenizer.control_tokens().iter().filter(|(text, _)| text.chars().nth(1).is_some());
        let control = ControlTokenFinder::new(control.cloned());
        let others = [Value::Array(tools.to_vec()), Value::Object(extra.clone())];
        let typed: Vec<Value> = messages.iter().cloned().chain(others).collect();
        let shield = Shield::new(&control, &self.source, &typed)
            .ok_or("the messages hold every Unicode noncharacter; leave one of them out")?;
        let mut messages: Vec<Value> = typed.iter().map(|message| shield.message(message)).collect();
        let (extra, tools) = (messages.pop().unwrap_or_default(), messages.pop().unwrap_or_default());
        let rendered = self.render_text(&messages, &tools, &extra)?;
        let pieces = control.split(&rendered).into_iter();
        let parts = pieces.map(|piece| match piece {
            Piece::Control(id) => PromptPart::Control(id),
            Piece::Text(text) => PromptPart::Text(shield.lift(text)),
        });
        Ok(parts.filter(|part| *part != PromptPart::Text(String::new())).collect())
    }

    fn render_text(&self, messages: &[Value], tools: &Value, extra: &Value) -> Result<String, String> {
        let mut environment = self.environment.clone();
        let bytes: usize = messages.iter().chain([tools, extra]).map(|message| message.to_string().len()).sum();
        environment.set_fuel(Some(FUEL.saturating_add(FUEL_PER_BYTE.saturating_mul(bytes as u64))));
        let some_tools = tools.as_array().is_some_and(|tools| !tools.is_empty());
        let context = context! {
            messages => minijinja::Value::from(Serde(messages)),
            add_generation_prompt => true,
            bos_token => self.bos_token.as_deref(),
            eos_token => self.eos_token.as_deref(),
            tools => some_tools.then(|| minijinja::Value::from(Serde(tools))),
            documents => (),
            ..minijinja::Value::from(Serde(extra))
        };
        environment.get_template(NAME).and_then(|template| template.render(context)).map_err(|error| refusal(&error))
    }
}

/// What Hugging Face's `apply_chat_template` gives to templates, as far as chat needs it.
fn environment(source: &str) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_filter("tojson", |value: minijinja::Value, options: Kwargs| json::tojson(&value, &options));
    environment.add_function("strftime_now", |format: &str| date::Date::today().format(format));
    environment.add_template_owned(NAME, source.to_owned())?;
    Ok(environment)
}

fn refusal(error: &Error) -> String {
    match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "the chat template takes too much work for these messages".to_owned(),
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_owned(),
        _ => format!("the chat template fails: {error}"),
    }
}

#[cfg(test)]
mod tests;
