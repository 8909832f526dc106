//! The one place where sampling fields of a body become checked [`SamplingParams`].

pub mod grammar;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::error::ApiError;
use super::openapi::requests::TextOrObject;
use crate::io_struct::{SamplingParams, TokenId};
use crate::telemetry::labels::RequestEndpoint;
use grammar::ResponseFormat;

/// The most stop strings of one request.
pub const MAX_STOP_STRINGS: usize = 32;
/// The most bytes of all stop strings of one request: they are looked for at each token.
pub const MAX_STOP_BYTES: usize = 4096;
/// The most token ids of one field that each token, or each place of an output, is compared with.
pub const MAX_TOKEN_IDS: usize = 1024;
/// The most entries of `logit_bias`.
pub const MAX_LOGIT_BIAS: usize = 4096;
/// The most samples of one prompt.
pub const MAX_SAMPLES: u32 = 128;
/// The most likeliest rivals that are reported for a token.
pub const MAX_TOP_LOGPROBS: u32 = 20;

/// One value or a list of them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected one value or a list of values of the right type")]
#[schemars(inline)]
pub enum OneOrMany<T> {
    /// One.
    One(T),
    /// A list.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// As a list.
    pub fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

/// Sampling fields as they come, by SGLang's and OpenAI's names. `null` is absent, and unknown fields are ignored.
#[derive(Debug, Default, Clone, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(missing_docs, reason = "the names are the APIs' own; SamplingParams describes them")]
pub struct SamplingFields {
    #[schemars(range(min = 0, max = u32::MAX))]
    pub max_new_tokens: Option<i64>,
    #[schemars(range(min = 0, max = u32::MAX))]
    pub max_tokens: Option<i64>,
    #[schemars(range(min = 0, max = u32::MAX))]
    pub max_completion_tokens: Option<i64>,
    #[schemars(range(min = 0, max = u32::MAX))]
    pub min_new_tokens: Option<i64>,
    #[schemars(range(min = 0, max = u32::MAX))]
    pub min_tokens: Option<i64>,
    #[schemars(range(min = 0))]
    pub temperature: Option<f64>,
    #[schemars(range(min = 0, max = 1))]
    pub top_p: Option<f64>,
    #[schemars(range(min = -1))]
    pub top_k: Option<i64>,
    #[schemars(range(min = 0, max = 1))]
    pub min_p: Option<f64>,
    #[schemars(range(min = -2, max = 2))]
    pub frequency_penalty: Option<f64>,
    #[schemars(range(min = -2, max = 2))]
    pub presence_penalty: Option<f64>,
    #[schemars(range(min = 0, max = 2))]
    pub repetition_penalty: Option<f64>,
    pub stop: Option<OneOrMany<String>>,
    pub stop_token_ids: Option<OneOrMany<i64>>,
    pub ignore_eos: Option<bool>,
    pub skip_special_tokens: Option<bool>,
    pub no_stop_trim: Option<bool>,
    pub logit_bias: Option<BTreeMap<String, f64>>,
    pub sampling_seed: Option<i64>,
    pub seed: Option<i64>,
    #[schemars(range(min = 1, max = MAX_SAMPLES))]
    pub n: Option<i64>,
    #[schemars(with = "Option<TextOrObject>")]
    pub json_schema: Option<Value>,
    #[schemars(with = "Option<String>")]
    pub regex: Option<Value>,
    #[schemars(with = "Option<String>")]
    pub ebnf: Option<Value>,
    #[schemars(with = "Option<TextOrObject>")]
    pub structural_tag: Option<Value>,
    pub stop_regex: Option<Value>,
    pub beam_width: Option<Value>,
    pub use_beam_search: Option<Value>,
    pub guided_json: Option<Value>,
    pub guided_regex: Option<Value>,
    pub guided_grammar: Option<Value>,
    pub guided_choice: Option<Value>,
    pub structured_outputs: Option<Value>,
    pub response_format: Option<ResponseFormat>,
}

/// Checked fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Ready for the engine. Its `max_new_tokens` is the API's default if the caller gave none: then it is the most
    /// that may be generated, but the room in the context comes first.
    pub params: SamplingParams,
    /// The output length that the caller asked for.
    pub max_new_tokens: Option<u32>,
    /// Samples of each prompt.
    pub n: u32,
}

impl SamplingFields {
    /// Checks every field; ids are below `vocab_size`.
    ///
    /// # Errors
    /// The first field that is out of range, or that asks for what is not supported.
    pub fn check(self, endpoint: RequestEndpoint, vocab_size: u32) -> Result<Sampling, ApiError> {
        self.refuse_unsupported()?;
        let names = Names::of(endpoint);
        let max_new_tokens = self.max_new_tokens(endpoint)?;
        let grammar = self.grammar()?;
        let defaults = SamplingParams::default();
        let real = |name, value: Option<f64>, default, range| value.map_or(Ok(default), |v| real(name, v, range));
        let min_new_tokens = match self.min_new_tokens.or(self.min_tokens) {
            Some(least) => whole(names.min_new_tokens, least, 0..=max_new_tokens.map_or(u32::MAX.into(), i64::from))?,
            None => 0,
        };
        let params = SamplingParams {
            max_new_tokens: max_new_tokens.unwrap_or(names.default_max_new_tokens),
            min_new_tokens,
            temperature: real("temperature", self.temperature, defaults.temperature, 0.0..=f32::MAX)?,
            top_p: top_p(self.top_p)?,
            top_k: top_k(self.top_k)?,
            min_p: real("min_p", self.min_p, defaults.min_p, 0.0..=1.0)?,
            frequency_penalty: real("frequency_penalty", self.frequency_penalty, 0.0, -2.0..=2.0)?,
            presence_penalty: real("presence_penalty", self.presence_penalty, 0.0, -2.0..=2.0)?,
            repetition_penalty: repetition_penalty(self.repetition_penalty)?,
            stop: stop(self.stop)?,
            stop_token_ids: few_token_ids("stop_token_ids", self.stop_token_ids.map(OneOrMany::into_vec), vocab_size)?,
            ignore_eos: self.ignore_eos.unwrap_or(defaults.ignore_eos),
            skip_special_tokens: self.skip_special_tokens.unwrap_or(defaults.skip_special_tokens),
            no_stop_trim: self.no_stop_trim.unwrap_or(defaults.no_stop_trim),
            logit_bias: logit_bias(self.logit_bias, vocab_size)?,
            sampling_seed: self.sampling_seed.or(self.seed).map(i64::cast_unsigned),
            grammar,
        };
        let n = whole("n", self.n.unwrap_or(1), 1..=MAX_SAMPLES.into())?;
        Ok(Sampling { params, max_new_tokens, n })
    }

    fn max_new_tokens(&self, endpoint: RequestEndpoint) -> Result<Option<u32>, ApiError> {
        let by_name = match endpoint {
            RequestEndpoint::Generate | RequestEndpoint::Embeddings | RequestEndpoint::Encode => {
                [("max_new_tokens", self.max_new_tokens), ("max_new_tokens", None)]
            }
            RequestEndpoint::Completions | RequestEndpoint::ChatCompletions => {
                [("max_completion_tokens", self.max_completion_tokens), ("max_tokens", self.max_tokens)]
            }
        };
        let asked = by_name.into_iter().find_map(|(name, value)| Some((name, value?)));
        asked.map(|(name, value)| whole(name, value, 0..=u32::MAX.into())).transpose()
    }

    fn refuse_unsupported(&self) -> Result<(), ApiError> {
        refuse([
            ("stop_regex", &self.stop_regex),
            ("beam_width", &self.beam_width),
            ("use_beam_search", &self.use_beam_search),
            ("guided_json", &self.guided_json),
            ("guided_regex", &self.guided_regex),
            ("guided_grammar", &self.guided_grammar),
            ("guided_choice", &self.guided_choice),
            ("structured_outputs", &self.structured_outputs),
        ])
    }
}

/// Refuses the first field that asks for something: unsupported is said, never ignored.
///
/// # Errors
/// Its name. `null`, `false` and what is empty ask for nothing.
pub fn refuse<'f>(fields: impl IntoIterator<Item = (&'static str, &'f Option<Value>)>) -> Result<(), ApiError> {
    let asks = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    };
    match fields.into_iter().find(|(_, value)| value.as_ref().is_some_and(asks)) {
        Some((name, _)) => Err(ApiError::invalid(name, format!("{name} is not supported"))),
        None => Ok(()),
    }
}

/// Ids below `vocab_size`; none if the field is absent.
///
/// # Errors
/// The first id that is not.
pub fn token_ids(name: &str, ids: Option<Vec<i64>>, vocab_size: u32) -> Result<Vec<TokenId>, ApiError> {
    let id = |id| whole(name, id, 0..=i64::from(vocab_size) - 1).map(TokenId);
    ids.unwrap_or_default().into_iter().map(id).collect()
}

/// [`token_ids`], at most [`MAX_TOKEN_IDS`] of them.
///
/// # Errors
/// There are more, or one is out of range.
pub fn few_token_ids(name: &str, ids: Option<Vec<i64>>, vocab_size: u32) -> Result<Vec<TokenId>, ApiError> {
    let count = ids.as_ref().map_or(0, Vec::len);
    if count > MAX_TOKEN_IDS {
        return Err(ApiError::invalid(name, format!("{name} has {count} ids; the limit is {MAX_TOKEN_IDS}")));
    }
    token_ids(name, ids, vocab_size)
}

/// A whole number in `range`, which must lie within `u32`.
///
/// # Errors
/// It is out of range.
pub fn whole(name: &str, value: i64, range: RangeInclusive<i64>) -> Result<u32, ApiError> {
    let in_range = range.contains(&value).then_some(value).and_then(|value| u32::try_from(value).ok());
    in_range.ok_or_else(|| {
        ApiError::invalid(name, format!("{name} is {value}; it must be from {} to {}", range.start(), range.end()))
    })
}

/// What an API calls things, and what it means by leaving one out.
struct Names {
    min_new_tokens: &'static str,
    default_max_new_tokens: u32,
}

impl Names {
    fn of(endpoint: RequestEndpoint) -> Self {
        match endpoint {
            RequestEndpoint::Generate | RequestEndpoint::Embeddings | RequestEndpoint::Encode => Self {
                min_new_tokens: "min_new_tokens",
                default_max_new_tokens: SamplingParams::default().max_new_tokens,
            },
            // OpenAI's completions have always stopped after 16 tokens; its chats go on as far as they can.
            RequestEndpoint::Completions => Self { min_new_tokens: "min_tokens", default_max_new_tokens: 16 },
            RequestEndpoint::ChatCompletions => Self { min_new_tokens: "min_tokens", default_max_new_tokens: u32::MAX },
        }
    }
}

fn real(name: &str, value: f64, range: RangeInclusive<f32>) -> Result<f32, ApiError> {
    let narrow = value as f32;
    if range.contains(&narrow) {
        return Ok(narrow);
    }
    let limit = if *range.end() == f32::MAX {
        format!("a number of at least {}", range.start())
    } else {
        format!("from {} to {}", range.start(), range.end())
    };
    Err(ApiError::invalid(name, format!("{name} is {value}; it must be {limit}")))
}

fn top_p(value: Option<f64>) -> Result<f32, ApiError> {
    let value = value.unwrap_or(1.0);
    match real("top_p", value, f32::MIN_POSITIVE..=1.0) {
        Ok(value) => Ok(value),
        Err(_) => Err(ApiError::invalid("top_p", format!("top_p is {value}; it must be above 0 and at most 1"))),
    }
}

fn repetition_penalty(value: Option<f64>) -> Result<f32, ApiError> {
    let value = value.unwrap_or(1.0);
    real("repetition_penalty", value, f32::MIN_POSITIVE..=2.0).map_err(|_| {
        let message = format!("repetition_penalty is {value}; it must be above 0 and at most 2");
        ApiError::invalid("repetition_penalty", message)
    })
}

fn top_k(value: Option<i64>) -> Result<Option<u32>, ApiError> {
    match value {
        None | Some(-1) => Ok(None),
        Some(value) => u32::try_from(value).ok().filter(|k| *k > 0).map(Some).ok_or_else(|| {
            let message = format!("top_k is {value}; it must be -1, the whole vocabulary, or at least 1");
            ApiError::invalid("top_k", message)
        }),
    }
}

fn stop(value: Option<OneOrMany<String>>) -> Result<Vec<String>, ApiError> {
    let stop = value.map(OneOrMany::into_vec).unwrap_or_default();
    if stop.len() > MAX_STOP_STRINGS {
        let message = format!("stop has {} strings; the limit is {MAX_STOP_STRINGS}", stop.len());
        return Err(ApiError::invalid("stop", message));
    }
    let bytes: usize = stop.iter().map(String::len).sum();
    if bytes > MAX_STOP_BYTES {
        let message = format!("the strings of stop have {bytes} bytes in all; the limit is {MAX_STOP_BYTES}");
        return Err(ApiError::invalid("stop", message));
    }
    if stop.iter().any(String::is_empty) {
        return Err(ApiError::invalid("stop", "stop holds an empty string, which would end the output at once"));
    }
    Ok(stop)
}

fn logit_bias(value: Option<BTreeMap<String, f64>>, vocab_size: u32) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let value = value.unwrap_or_default();
    if value.len() > MAX_LOGIT_BIAS {
        let message = format!("logit_bias has {} entries; the limit is {MAX_LOGIT_BIAS}", value.len());
        return Err(ApiError::invalid("logit_bias", message));
    }
    let entry = |(key, bias): (String, f64)| {
        let id = key.parse::<u32>().ok().filter(|id| *id < vocab_size).ok_or_else(|| {
            let key: String = key.chars().take(40).collect();
            let message = format!("logit_bias has the key '{key}'; keys are token ids from 0 to {}", vocab_size - 1);
            ApiError::invalid("logit_bias", message)
        })?;
        Ok((TokenId(id), real("logit_bias", bias, -100.0..=100.0)?))
    };
    value.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests;
