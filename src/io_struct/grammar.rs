//! What an output must look like: a JSON schema, a regular expression or a grammar, as text.

use serde::{Deserialize, Serialize};

use crate::telemetry::labels::GrammarField;

/// A grammar that the output of a request follows. The frontend has compiled it once, so the engine can.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grammar {
    /// The field of the request that asked for it, which an error names.
    pub field: GrammarField,
    /// How to read `text`.
    pub syntax: GrammarSyntax,
    /// The grammar.
    pub text: String,
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
