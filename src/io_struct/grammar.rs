//! What an output must look like: a JSON schema, a regular expression or a grammar, as text.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::telemetry::labels::GrammarField;

/// The longest grammar in bytes: a schema of this size is a hundred pages.
pub const MAX_GRAMMAR_BYTES: usize = 1 << 20;

/// A grammar that the output of a request follows. The frontend has compiled it once, so the engine can.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grammar {
    /// The field of the request that asked for it, which an error names.
    pub field: GrammarField,
    /// How to read `text`.
    pub syntax: GrammarSyntax,
    /// The grammar. It may be long, and all requests of a call share it.
    pub text: Arc<str>,
}

/// How a grammar is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GrammarSyntax {
    /// JSON that this JSON schema describes.
    JsonSchema,
    /// Text that this regular expression matches as a whole.
    Regex,
    /// GBNF (`root ::= ..`) or Lark (`start: ..`).
    Ebnf,
    /// Free text with tags in it: SGLang's JSON of `structures` and `triggers`, or of a `format`.
    StructuralTag,
}
