//! A BPE tokenizer, byte-level or of pieces with scores, rebuilt from GGUF metadata.

pub mod metadata;
mod pieces;
pub mod pre_tokenizer;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::{AddedToken, Tokenizer as HfTokenizer};

use super::control::{ControlTokenFinder, Piece};
use super::{ControlTokens, TokenizerError, Vocabulary};
use crate::io_struct::TokenId;
use metadata::Metadata;
use pieces::Front;
use pre_tokenizer::PreTokenization;

/// A BPE tokenizer rebuilt from GGUF metadata.
///
/// The BPE half does not know the control tokens, so whatever it is given it cannot yield one. Bytes that the model
/// has no token for are left out, as the reference tokenizer does.
pub struct GgufTokenizer {
    bpe: HfTokenizer,
    /// How a text is written for a vocabulary of pieces; `None`: it is byte-level.
    front: Option<Front>,
    control: ControlTokenFinder,
    bytes: TokenBytes,
    begin_of_text: Option<TokenId>,
}

impl GgufTokenizer {
    /// Reads the metadata of `path`.
    ///
    /// # Errors
    /// The file cannot be read, or names a tokenizer that is not supported.
    pub fn open(path: &Path) -> Result<Self, TokenizerError> {
        let metadata = Metadata::read(path)?;
        match metadata.required_text("tokenizer.ggml.model")? {
            "gpt2" => Self::byte_level(&metadata),
            "llama" => Self::pieces(&metadata),
            other => {
                let message = format!(
                    "tokenizer.ggml.model is '{other}'; only byte-level BPE ('gpt2') and pieces with scores ('llama') \
                     are supported"
                );
                Err(TokenizerError::Unsupported(message))
            }
        }
    }

    fn byte_level(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let pre = PreTokenization::named(metadata.required_text("tokenizer.ggml.pre")?)?;
        let tokens = tokens(metadata)?;
        let merges = metadata.texts("tokenizer.ggml.merges")?;
        let adds_bos = metadata.flag("tokenizer.ggml.add_bos_token")?.unwrap_or(pre.adds_bos);
        let alphabet: HashMap<char, u8> = byte_alphabet().zip(0..=u8::MAX).collect();
        let bytes = TokenBytes::new(&tokens, |token| spelled(token, &alphabet));
        Self::new(metadata, &tokens, adds_bos, bytes, bpe(&tokens, &merges, pre)?)
    }

    fn pieces(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let tokens = tokens(metadata)?;
        let adds_bos = metadata.flag("tokenizer.ggml.add_bos_token")?.unwrap_or(true);
        let bytes = TokenBytes::new(&tokens, pieces::spelled);
        let front = Some(Front::of(metadata)?);
        Ok(Self { front, ..Self::new(metadata, &tokens, adds_bos, bytes, pieces::bpe(metadata, &tokens)?)? })
    }

    fn new(
        metadata: &Metadata,
        tokens: &[Token<'_>],
        adds_bos: bool,
        bytes: TokenBytes,
        bpe: HfTokenizer,
    ) -> Result<Self, TokenizerError> {
        let control = tokens.iter().filter(|token| token.kind == TokenKind::Control);
        Ok(Self {
            begin_of_text: if adds_bos { Some(begin_of_text(metadata, tokens)?) } else { None },
            control: ControlTokenFinder::new(control.map(|token| (token.text.to_owned(), token.id))),
            front: None,
            bytes,
            bpe,
        })
    }

    fn encode_text(&self, text: &str, ids: &mut Vec<TokenId>) -> Result<(), TokenizerError> {
        let text = self.front.map_or(Cow::Borrowed(text), |front| Cow::Owned(front.write(text)));
        let encoding = self.bpe.encode_fast(text, false).map_err(|error| TokenizerError::Encode(error.to_string()))?;
        ids.extend(encoding.get_ids().iter().copied().map(TokenId));
        Ok(())
    }
}

impl Vocabulary for GgufTokenizer {
    fn encode(&self, text: &str, control: ControlTokens) -> Result<Vec<TokenId>, TokenizerError> {
        let mut ids = Vec::new();
        match control {
            ControlTokens::AsText => self.encode_text(text, &mut ids)?,
            ControlTokens::Parse => {
                for piece in self.control.split(text) {
                    match piece {
                        Piece::Control(id) => ids.push(id),
                        Piece::Text(text) => self.encode_text(text, &mut ids)?,
                    }
                }
            }
        }
        Ok(ids)
    }

    fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.bytes.get(id)
    }

    fn control_tokens(&self) -> &[(String, TokenId)] {
        self.control.tokens()
    }

    fn begin_of_text(&self) -> Option<TokenId> {
        self.begin_of_text
    }
}

/// What a row of the vocabulary is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    /// Written in the byte-level alphabet.
    Normal,
    /// Never text.
    Control,
    /// Plain text that is always matched as a whole.
    UserDefined,
    /// One byte, among pieces.
    Byte,
}

struct Token<'m> {
    id: TokenId,
    text: &'m str,
    kind: TokenKind,
}

fn tokens(metadata: &Metadata) -> Result<Vec<Token<'_>>, TokenizerError> {
    let texts = metadata.texts("tokenizer.ggml.tokens")?;
    let kinds = metadata.integers("tokenizer.ggml.token_type")?;
    if texts.len() != kinds.len() {
        let message = format!("tokenizer.ggml has {} tokens and {} token types", texts.len(), kinds.len());
        return Err(TokenizerError::Unsupported(message));
    }
    let token = |(id, (text, kind))| Token {
        id: TokenId(id),
        text,
        // Numbers of llama.cpp's `llama_token_type`; unknown and unused tokens have nothing special here.
        kind: match kind {
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            6 => TokenKind::Byte,
            _ => TokenKind::Normal,
        },
    };
    Ok((0..).zip(texts.into_iter().zip(kinds)).map(token).collect())
}

fn begin_of_text(metadata: &Metadata, tokens: &[Token<'_>]) -> Result<TokenId, TokenizerError> {
    let id = metadata.integer("tokenizer.ggml.bos_token_id")?;
    let token = id.and_then(|id| usize::try_from(id).ok()).and_then(|id| tokens.get(id));
    let message = "prompts begin with tokenizer.ggml.bos_token_id, which is missing or outside of the vocabulary";
    token.map(|token| token.id).ok_or_else(|| TokenizerError::Unsupported(message.to_owned()))
}

fn bpe(tokens: &[Token<'_>], merges: &[&str], pre: PreTokenization) -> Result<HfTokenizer, TokenizerError> {
    let words = tokens.iter().filter(|token| token.kind != TokenKind::Control);
    let vocab: Vocab = words.map(|token| (token.text.to_owned(), token.id.0)).collect();
    let merges = checked_merges(tokens, merges, &vocab)?;
    let model = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(pre.ignore_merges);
    let mut bpe = HfTokenizer::new(model.build().map_err(unsupported)?);
    if pre.nfc {
        bpe.with_normalizer(Some(NFC)).map_err(unsupported)?;
    }
    bpe.with_pre_tokenizer(Some(pre.words));
    let user_defined = tokens.iter().filter(|token| token.kind == TokenKind::UserDefined);
    bpe.add_tokens(user_defined.map(|token| AddedToken::from(token.text, false).normalized(false)))
        .map_err(unsupported)?;
    Ok(bpe)
}

fn unsupported(error: tokenizers::Error) -> TokenizerError {
    TokenizerError::Unsupported(error.to_string())
}

/// Merges in order of rank. Each must make a token: the BPE builder relies on it. Those that make a control token are
/// left out.
fn checked_merges(tokens: &[Token<'_>], merges: &[&str], vocab: &Vocab) -> Result<Merges, TokenizerError> {
    let control = tokens.iter().filter(|token| token.kind == TokenKind::Control);
    let control: HashSet<&str> = control.map(|token| token.text).collect();
    let mut checked = Vec::with_capacity(merges.len());
    for merge in merges {
        let pair =
            merge.split_once(' ').filter(|(left, right)| vocab.contains_key(*left) && vocab.contains_key(*right));
        let Some((left, right)) = pair else {
            return Err(TokenizerError::Unsupported(format!("merge {merge:?} is not a pair of tokens")));
        };
        let merged = format!("{left}{right}");
        if vocab.contains_key(&merged) {
            checked.push((left.to_owned(), right.to_owned()));
        } else if !control.contains(merged.as_str()) {
            return Err(TokenizerError::Unsupported(format!("merge {merge:?} does not make a token")));
        }
    }
    Ok(checked)
}

/// The bytes of every token, end to end.
struct TokenBytes {
    bytes: Vec<u8>,
    /// Token `i` ends here and the next begins.
    ends: Vec<usize>,
}

impl TokenBytes {
    fn new(tokens: &[Token<'_>], spelled: impl Fn(&Token<'_>) -> Vec<u8>) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(tokens.len()));
        for token in tokens {
            bytes.extend(spelled(token));
            ends.push(bytes.len());
        }
        Self { bytes, ends }
    }

    fn get(&self, id: TokenId) -> &[u8] {
        let Some(end) = self.ends.get(id.index()) else { return &[] };
        let begin = id.index().checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin..*end]
    }
}

/// The bytes of one token of a byte-level vocabulary.
fn spelled(token: &Token<'_>, alphabet: &HashMap<char, u8>) -> Vec<u8> {
    let spelled = token.text.chars().map(|letter| alphabet.get(&letter).copied()).collect::<Option<Vec<u8>>>();
    match spelled {
        Some(spelled) if matches!(token.kind, TokenKind::Normal | TokenKind::Byte) => spelled,
        _ => token.text.as_bytes().to_vec(),
    }
}

/// The letter of each byte in GPT-2's byte-level alphabet: printable Latin-1 stands for itself, the others follow
/// from U+0100 on.
pub(super) fn byte_alphabet() -> impl Iterator<Item = char> {
    let mut others = '\u{100}'..;
    (0..=u8::MAX).map(move |byte| match char::from(byte) {
        c @ ('!'..='~' | '\u{A1}'..='\u{AC}' | '\u{AE}'..='\u{FF}') => c,
        _ => others.next().expect("there are 68 others"),
    })
}

#[cfg(test)]
pub(crate) mod tests;
