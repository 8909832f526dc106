//! Output that follows a grammar: compiled by llguidance, and asked token by token what may come next.

mod gbnf;
mod tags;
mod vocabulary;
pub mod worker;

use std::sync::Arc;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::io_struct::grammar::MAX_GRAMMAR_BYTES;
use crate::io_struct::{Grammar, GrammarSyntax, ModelInfo, TokenId};
use crate::tokenizer::Tokenizer;
use vocabulary::ModelVocabulary;

/// The most white space between two tokens of JSON, in characters: a small model would go on with it for ever.
const MAX_JSON_SPACE: u32 = 40;
/// Longer messages of the compiler are cut: they quote the grammar.
const MAX_MESSAGE_CHARS: usize = 400;

/// Why a grammar cannot be compiled or followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GrammarError(String);

impl GrammarError {
    /// Cut to a length that can be shown.
    #[must_use]
    pub fn new(message: impl ToString) -> Self {
        let message =
            message.to_string().replace("<non-verbose/>", "").replace("NoExtensionBias", "no output follows it");
        let first = message.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
        Self(first.take(MAX_MESSAGE_CHARS).collect())
    }
}

/// Compiles grammars for the vocabulary of one model.
pub struct Grammars {
    factory: ParserFactory,
}

impl Grammars {
    /// To find out whether grammars can be compiled for the model that `info` describes.
    ///
    /// # Errors
    /// The model names no token that ends its output.
    pub fn to_check(tokenizer: &Tokenizer, info: &ModelInfo) -> Result<Self, GrammarError> {
        Self::of(&(Arc::new(ApproximateTokEnv::new(vocabulary::trie(tokenizer, info)?)) as TokEnv))
    }

    /// To follow grammars. Text that a grammar leaves no choice about is tokenized as the model is used to.
    ///
    /// # Errors
    /// The model names no token that ends its output.
    pub fn to_follow(tokenizer: Tokenizer, info: &ModelInfo) -> Result<Self, GrammarError> {
        let trie = vocabulary::trie(&tokenizer, info)?;
        Self::of(&(Arc::new(ModelVocabulary { trie, tokenizer }) as TokEnv))
    }

    fn of(env: &TokEnv) -> Result<Self, GrammarError> {
        let capabilities = InferenceCapabilities { ff_tokens: false, ..InferenceCapabilities::default() };
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(env, capabilities, &slices).map_err(GrammarError::new)?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits { verbose_errors: false, ..ParserLimits::default() };
        Ok(Self { factory })
    }

    /// An output that follows `grammar` and has no token yet.
    ///
    /// # Errors
    /// The grammar is wrong, too large, or needs what is not supported.
    pub fn follow(&self, grammar: &Grammar) -> Result<Follower, GrammarError> {
        if grammar.text.len() > MAX_GRAMMAR_BYTES {
            let message = format!("it has {} bytes; the limit is {MAX_GRAMMAR_BYTES}", grammar.text.len());
            return Err(GrammarError(message));
        }
        let grammar = top_level(grammar)?;
        let mut matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(message) => Err(GrammarError::new(message)),
            None if matcher.is_stopped() && !matcher.is_accepting().unwrap_or(false) => {
                Err(GrammarError::new("nothing follows this grammar"))
            }
            None => Ok(Follower { matcher }),
        }
    }
}

fn top_level(grammar: &Grammar) -> Result<TopLevelGrammar, GrammarError> {
    let text = &grammar.text;
    match grammar.syntax {
        GrammarSyntax::JsonSchema => {
            let schema = serde_json::from_str(text).map_err(|error| GrammarError::new(format!("not JSON: {error}")))?;
            Ok(TopLevelGrammar::from_json_schema(with_bounded_space(schema)?))
        }
        GrammarSyntax::Regex => Ok(TopLevelGrammar::from_regex(text)),
        GrammarSyntax::Ebnf if gbnf::is_gbnf(text) => {
            Ok(TopLevelGrammar::from_lark(gbnf::to_lark(text).map_err(GrammarError::new)?))
        }
        GrammarSyntax::Ebnf => Ok(TopLevelGrammar::from_lark(text.to_string())),
        GrammarSyntax::StructuralTag => Ok(TopLevelGrammar::from_lark(tags::to_lark(text)?)),
    }
}

/// `schema`, with options of the compiler that it does not give itself.
fn with_bounded_space(schema: Value) -> Result<Value, GrammarError> {
    let options = json!({ "whitespace_pattern": format!(r"[\x20\x0A\x0D\x09]{{1,{MAX_JSON_SPACE}}}") });
    match schema {
        Value::Object(mut fields) => {
            fields.entry("x-guidance").or_insert(options);
            Ok(Value::Object(fields))
        }
        Value::Bool(true) => Ok(json!({ "x-guidance": options })),
        _ => Err(GrammarError::new("a JSON schema is an object")),
    }
}

/// An output, as far as its grammar is concerned.
pub struct Follower {
    matcher: Matcher,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").finish_non_exhaustive()
    }
}

/// The tokens that may come next.
#[derive(Debug, Clone)]
pub struct TokenMask(SimpleVob);

impl TokenMask {
    /// The bit of each token, lowest first, 32 in a word.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        self.0.as_slice()
    }
}

/// What a token has done to an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Something more can come, or must.
    Open,
    /// Nothing more can come.
    Complete,
}

impl Follower {
    /// Which tokens may come next; at least one.
    ///
    /// # Errors
    /// The grammar takes too much work at this place.
    pub fn mask(&mut self) -> Result<TokenMask, GrammarError> {
        let mask = self.matcher.compute_mask_or_eos().map_err(GrammarError::new)?;
        if mask.is_zero() { Err(GrammarError::new("its grammar leaves no token")) } else { Ok(TokenMask(mask)) }
    }

    /// `token` has come.
    ///
    /// # Errors
    /// It was not allowed, or the grammar takes too much work at this place.
    pub fn take(&mut self, token: TokenId) -> Result<Progress, GrammarError> {
        self.matcher.consume_token(token.0).map_err(GrammarError::new)?;
        Ok(if self.matcher.is_stopped() { Progress::Complete } else { Progress::Open })
    }
}

#[cfg(test)]
pub(crate) mod tests;
