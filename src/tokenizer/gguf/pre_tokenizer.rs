//! How a text is cut into words before the merges: one row for each name that GGUF files give it.

use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

use crate::tokenizer::TokenizerError;

/// Everything that `tokenizer.ggml.pre` decides.
pub struct PreTokenization {
    /// Cuts into words and writes each byte as a letter of the byte-level alphabet.
    pub words: PreTokenizerWrapper,
    /// Text is brought into Unicode's NFC first.
    pub nfc: bool,
    /// A word that is a token as a whole is not merged from its parts.
    pub ignore_merges: bool,
    /// A raw prompt begins with the begin-of-text token, unless the file says otherwise.
    pub adds_bos: bool,
}

/// The word pattern of Llama 3, from its tokenizer.json: numbers in groups of up to three digits.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The word pattern of Qwen 2, from its tokenizer.json: each digit alone.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

impl PreTokenization {
    /// The row of `name`, a value of `tokenizer.ggml.pre`.
    ///
    /// # Errors
    /// No such row: a guess would give wrong ids without a sign of it.
    pub fn named(name: &str) -> Result<Self, TokenizerError> {
        let plain = |words| Self { words, nfc: false, ignore_merges: false, adds_bos: false };
        let gpt2 = ByteLevel::new(false, true, true);
        Ok(match name {
            "gpt-2" => plain(gpt2.into()),
            "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" => {
                plain(Sequence::new(vec![Digits::new(true).into(), gpt2.into()]).into())
            }
            "llama-bpe" | "llama3" | "llama-v3" => {
                Self { words: pattern(LLAMA3)?, nfc: false, ignore_merges: true, adds_bos: true }
            }
            "qwen2" | "deepseek-r1-qwen" => {
                Self { words: pattern(QWEN2)?, nfc: true, ignore_merges: false, adds_bos: false }
            }
            unknown => {
                let message = format!(
                    "tokenizer.ggml.pre is '{unknown}'; known are gpt-2, smollm, starcoder, refact, command-r, \
                     codeshell, llama-bpe, llama3, llama-v3, qwen2 and deepseek-r1-qwen"
                );
                return Err(TokenizerError::Unsupported(message));
            }
        })
    }
}

fn pattern(regex: &str) -> Result<PreTokenizerWrapper, TokenizerError> {
    let split = Split::new(SplitPattern::Regex(regex.to_owned()), SplitDelimiterBehavior::Isolated, false)
        .map_err(|error| TokenizerError::Unsupported(error.to_string()))?;
    Ok(Sequence::new(vec![split.into(), ByteLevel::new(false, true, false).into()]).into())
}
