//! Finds control tokens that are written out in a text.

use crate::io_struct::TokenId;

/// A stretch of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'t> {
    /// A control token, written out.
    Control(TokenId),
    /// Everything between two of them; never empty.
    Text(&'t str),
}

/// The control tokens of a vocabulary, ready to be looked for.
pub struct ControlTokenFinder {
    /// Longest first, so that the longest of several that begin at one place is found.
    tokens: Vec<(String, TokenId)>,
    /// Bytes that a control token begins with.
    first: [bool; 256],
}

impl ControlTokenFinder {
    /// Looks for `tokens`; those without text are never found.
    pub fn new(tokens: impl IntoIterator<Item = (String, TokenId)>) -> Self {
        let mut tokens: Vec<_> = tokens.into_iter().filter(|(text, _)| !text.is_empty()).collect();
        tokens.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        let mut first = [false; 256];
        for (text, _) in &tokens {
            first[usize::from(text.as_bytes()[0])] = true;
        }
        Self { tokens, first }
    }

    /// The tokens that are looked for.
    #[must_use]
    pub fn tokens(&self) -> &[(String, TokenId)] {
        &self.tokens
    }

    /// The longest control token that `text` begins with.
    #[must_use]
    pub fn at_start(&self, text: &[u8]) -> Option<&(String, TokenId)> {
        let first = *text.first()?;
        if !self.first[usize::from(first)] {
            return None;
        }
        self.tokens.iter().find(|(token, _)| text.starts_with(token.as_bytes()))
    }

    /// Cuts `text` at its control tokens, left to right.
    #[must_use]
    pub fn split<'t>(&self, text: &'t str) -> Vec<Piece<'t>> {
        let mut pieces = Vec::new();
        let (mut begin, mut at) = (0, 0);
        while at < text.len() {
            let Some((token, id)) = self.at_start(&text.as_bytes()[at..]) else {
                at += 1;
                continue;
            };
            if begin < at {
                pieces.push(Piece::Text(&text[begin..at]));
            }
            pieces.push(Piece::Control(*id));
            at += token.len();
            begin = at;
        }
        if begin < text.len() {
            pieces.push(Piece::Text(&text[begin..]));
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finder() -> ControlTokenFinder {
        let tokens = [("<|a|>", 0), ("<|a|>b", 1), ("é", 2), ("", 3)];
        ControlTokenFinder::new(tokens.map(|(text, id)| (text.to_owned(), TokenId(id))))
    }

    #[test]
    fn texts_are_cut_at_control_tokens() {
        let check = |text: &str, want: &[Piece<'_>]| assert_eq!(finder().split(text), want, "{text:?}");
        check("", &[]);
        check("plain", &[Piece::Text("plain")]);
        check("<|a|>", &[Piece::Control(TokenId(0))]);
        check("x<|a|><|a|>", &[Piece::Text("x"), Piece::Control(TokenId(0)), Piece::Control(TokenId(0))]);
        check("<|a|>bc", &[Piece::Control(TokenId(1)), Piece::Text("c")]);
        check("<|<|a|>|a|>", &[Piece::Text("<|"), Piece::Control(TokenId(0)), Piece::Text("|a|>")]);
        check("èéê", &[Piece::Text("è"), Piece::Control(TokenId(2)), Piece::Text("ê")]);
        check("<|a", &[Piece::Text("<|a")]);
    }
}
