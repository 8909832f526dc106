//! Log calls as they stand in the sources: level, text and fields.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use radiosonde::telemetry::log::events::EVENTS;
use syn::buffer::{Cursor, TokenBuffer};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, Ident, LitStr, Token};

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// One call of a macro of `tracing`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogCall {
    pub level: String,
    /// Empty if it has none.
    pub message: String,
    pub fields: BTreeSet<String>,
}

impl LogCall {
    /// Why this is no line of the table, if it is none.
    pub fn breach(&self) -> Option<String> {
        let Self { level, message, fields } = self;
        let Some(event) = EVENTS.iter().find(|event| event.message == message) else {
            return Some(format!("{level}!({message:?}) is not in the table"));
        };
        let declared: BTreeSet<String> = event.fields.iter().map(|&field| field.to_owned()).collect();
        if event.level != level || &declared != fields {
            return Some(format!("{level}!({message:?}) with {fields:?} is not what the table says"));
        }
        None
    }
}

/// The log calls in one macro call: itself, or those inside of it, which the compiler's parser does not see.
pub fn calls(call: &syn::Macro) -> Vec<LogCall> {
    let level = call.path.segments.last().expect("a path has a segment").ident.to_string();
    if LEVELS.contains(&level.as_str()) {
        return vec![parse(level, call.tokens.clone())];
    }
    let mut found = Vec::new();
    let tokens = TokenBuffer::new2(call.tokens.clone());
    search(tokens.begin(), &mut found);
    found
}

/// Finds `warn!(..)` at any depth.
fn search(mut at: Cursor<'_>, found: &mut Vec<LogCall>) {
    while !at.eof() {
        if let Some((name, rest)) = at.ident()
            && let Some((bang, rest)) = rest.punct()
            && let Some((inside, _, _, rest)) = rest.any_group()
            && bang.as_char() == '!'
            && LEVELS.contains(&name.to_string().as_str())
        {
            found.push(parse(name.to_string(), inside.token_stream()));
            at = rest;
        } else if let Some((inside, _, _, rest)) = at.any_group() {
            search(inside, found);
            at = rest;
        } else {
            at = at.token_tree().expect("it is not at the end").1;
        }
    }
}

fn parse(level: String, tokens: TokenStream) -> LogCall {
    let parts = Punctuated::<Part, Token![,]>::parse_terminated.parse2(tokens).expect("a log call");
    let mut call = LogCall { level, message: String::new(), fields: BTreeSet::new() };
    for part in parts {
        match part {
            Part::Message(text) => call.message = text,
            Part::Field(name) => drop(call.fields.insert(name)),
            Part::Setting => {}
        }
    }
    call
}

/// What stands between two commas of a log call.
enum Part {
    Message(String),
    Field(String),
    /// `target: ..` or `parent: ..`
    Setting,
}

impl Parse for Part {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(LitStr) {
            return Ok(Self::Message(input.parse::<LitStr>()?.value()));
        }
        if input.peek(Ident) && input.peek2(Token![:]) && !input.peek2(Token![::]) {
            input.parse::<Ident>()?;
            input.parse::<Token![:]>()?;
            input.parse::<Expr>()?;
            return Ok(Self::Setting);
        }
        sigil(input)?;
        let path = Punctuated::<Ident, Token![.]>::parse_separated_nonempty_with(input, Ident::parse_any)?;
        if input.parse::<Option<Token![=]>>()?.is_some() {
            sigil(input)?;
            input.parse::<Expr>()?;
        }
        Ok(Self::Field(path.iter().map(Ident::to_string).collect::<Vec<_>>().join(".")))
    }
}

/// `%` or `?`: how the value is written.
fn sigil(input: ParseStream<'_>) -> syn::Result<()> {
    input.parse::<Option<Token![%]>>()?;
    input.parse::<Option<Token![?]>>()?;
    Ok(())
}

#[test]
fn log_calls_are_found_and_read() {
    let source: syn::File = syn::parse_str(
        r#"
        fn f() {
            tokio::select! {
                x = y => match x { Err(error) => { tracing::warn!(%error, n = a.len(), "inside") } },
            }
            tracing::info!(target: "t", id = ?self.id, self.name, why = a == b, "outside",);
        }
        "#,
    )
    .expect("a source");
    struct Calls(Vec<LogCall>);
    impl<'ast> syn::visit::Visit<'ast> for Calls {
        fn visit_macro(&mut self, call: &'ast syn::Macro) {
            self.0.extend(calls(call));
        }
    }
    let mut found = Calls(Vec::new());
    syn::visit::Visit::visit_file(&mut found, &source);
    let call = |level: &str, message: &str, fields: &[&str]| LogCall {
        level: level.to_owned(),
        message: message.to_owned(),
        fields: fields.iter().map(|&field| field.to_owned()).collect(),
    };
    let want = [call("warn", "inside", &["error", "n"]), call("info", "outside", &["id", "self.name", "why"])];
    assert_eq!(found.0, want);
}
