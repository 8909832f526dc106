//! How to choose the next token and when to stop: SGLang's names and defaults, checked once on the way in.

use serde::{Deserialize, Serialize};

use super::{Grammar, TokenId};

/// Checked sampling parameters. Build them with the APIs' request types, which refuse what is out of range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// The most output tokens. 0 is legal: the prompt is run and nothing is said.
    pub max_new_tokens: u32,
    /// Stop tokens do not end the request before this many output tokens.
    pub min_new_tokens: u32,
    /// 0 is greedy; below 1e-6 counts as 0.
    pub temperature: f32,
    /// In (0, 1].
    pub top_p: f32,
    /// `None`: the whole vocabulary.
    pub top_k: Option<u32>,
    /// In [0, 1].
    pub min_p: f32,
    /// In [-2, 2].
    pub frequency_penalty: f32,
    /// In [-2, 2].
    pub presence_penalty: f32,
    /// In (0, 2].
    pub repetition_penalty: f32,
    /// Text that ends the output, at most 32 strings.
    pub stop: Vec<String>,
    /// Tokens that end the output, beside the model's own.
    pub stop_token_ids: Vec<TokenId>,
    /// The model's own stop tokens do not end the output.
    pub ignore_eos: bool,
    /// Leave control tokens out of the text.
    pub skip_special_tokens: bool,
    /// Keep the stop string in the text.
    pub no_stop_trim: bool,
    /// Added to the logits before everything else.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Same seed, same prompt, same parameters: same text, whatever else runs.
    pub sampling_seed: Option<u64>,
    /// What the output must look like. Its end is the end of the output, whatever `min_new_tokens` and `ignore_eos` say.
    pub grammar: Option<Grammar>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            max_new_tokens: 128,
            min_new_tokens: 0,
            temperature: 1.0,
            top_p: 1.0,
            top_k: None,
            min_p: 0.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repetition_penalty: 1.0,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            skip_special_tokens: true,
            no_stop_trim: false,
            logit_bias: Vec::new(),
            sampling_seed: None,
            grammar: None,
        }
    }
}

/// Temperatures below this are greedy, as in SGLang.
pub const GREEDY_BELOW: f32 = 1e-6;

impl SamplingParams {
    /// What a probe asks for: one token, the likeliest.
    #[must_use]
    pub fn probe() -> Self {
        Self { max_new_tokens: 1, temperature: 0.0, ignore_eos: true, ..Self::default() }
    }

    /// The likeliest token is taken, whatever top_p and top_k say.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature < GREEDY_BELOW
    }
}
