//! The body of `/generate` and what becomes of it.

use std::collections::HashSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::body::unreadable;
use super::logprobs::LogprobFields;
use crate::http_server::error::ApiError;
use crate::http_server::sampling::{self, OneOrMany, Sampling, SamplingFields};
use crate::io_struct::Rid;
use crate::telemetry::labels::RequestEndpoint;
use crate::tokenizer_manager::ServedModel;
use crate::tokenizer_manager::submit::{GenerateReqInput, Prompt};

/// The body of `/generate`, by SGLang's names. `null` is absent, and unknown fields are ignored.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(missing_docs, reason = "the names are the API's own")]
pub struct GenerateBody {
    pub text: Option<OneOrMany<String>>,
    pub input_ids: Option<Ids>,
    #[schemars(with = "Option<OneOrMany<SamplingFields>>")]
    pub sampling_params: Option<Value>,
    pub rid: Option<OneOrMany<String>>,
    pub stream: Option<bool>,
    pub return_logprob: Option<OneOrMany<bool>>,
    pub top_logprobs_num: Option<OneOrMany<i64>>,
    pub logprob_start_len: Option<OneOrMany<i64>>,
    pub return_text_in_logprobs: Option<bool>,
    pub priority: Option<i64>,
    pub return_prompt_token_ids: Option<bool>,
    pub token_ids_logprob: Option<Ids>,
    pub input_embeds: Option<Value>,
    pub image_data: Option<Value>,
    pub video_data: Option<Value>,
    pub audio_data: Option<Value>,
    pub lora_path: Option<Value>,
    pub session_params: Option<Value>,
    pub custom_logit_processor: Option<Value>,
    pub return_hidden_states: Option<Value>,
}

/// Token ids of one prompt or of several.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a list of token ids, or a list of such lists")]
#[schemars(inline)]
pub enum Ids {
    /// One prompt.
    One(Vec<i64>),
    /// Several.
    Many(Vec<Vec<i64>>),
}

/// The most requests of one body, each prompt counted as often as it is sampled: they are all on their way at once.
pub const MAX_REQUESTS: usize = 2048;

/// Requests that one body asks for.
#[derive(Debug)]
pub struct Plan {
    /// In the order of the answer: all samples of the first prompt, then of the second, ...
    pub requests: Vec<GenerateReqInput>,
    /// The answer is a list.
    pub shape: Shape,
}

/// The shape of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One object.
    Single,
    /// A list, or a stream whose events carry `index`.
    List,
}

impl GenerateBody {
    /// Checks everything that can be checked without the engine.
    ///
    /// # Errors
    /// The first field that is to blame.
    pub fn plan(self, model: &ServedModel) -> Result<Plan, ApiError> {
        self.refuse_unsupported()?;
        let vocab_size = model.info.vocab_size;
        let logprobs = LogprobFields {
            return_logprob: self.return_logprob,
            logprob_start_len: self.logprob_start_len,
            top_logprobs_num: self.top_logprobs_num,
            token_ids_logprob: self.token_ids_logprob,
        };
        let (name, prompts, mut shape) = prompts(self.text, self.input_ids, vocab_size)?;
        let samplings = samplings(self.sampling_params, prompts.len(), vocab_size)?;
        let rids = rids(self.rid, prompts.len(), shape)?;
        let logprobs = logprobs.of_each(prompts.len(), vocab_size)?;
        let mut requests = Vec::new();
        for (((prompt, sampling), rid), logprobs) in prompts.into_iter().zip(samplings).zip(rids).zip(logprobs) {
            refuse_empty(name, &prompt, model)?;
            if sampling.n > 1 {
                shape = Shape::List;
            }
            let request = GenerateReqInput {
                rid,
                prompt: Arc::new(prompt),
                sampling_params: sampling.params,
                max_new_tokens: sampling.max_new_tokens,
                logprobs,
                priority: self.priority,
                endpoint: RequestEndpoint::Generate,
            };
            samples(request, sampling.n, &mut requests)?;
        }
        refuse_duplicates(&requests)?;
        Ok(Plan { requests, shape })
    }

    fn refuse_unsupported(&self) -> Result<(), ApiError> {
        sampling::refuse([
            ("input_embeds", &self.input_embeds),
            ("image_data", &self.image_data),
            ("video_data", &self.video_data),
            ("audio_data", &self.audio_data),
            ("lora_path", &self.lora_path),
            ("session_params", &self.session_params),
            ("custom_logit_processor", &self.custom_logit_processor),
            ("return_hidden_states", &self.return_hidden_states),
        ])
    }
}

/// Adds `n` requests like `request`, with rids `rid-0`, `rid-1`, ... and each with a seed of its own.
///
/// # Errors
/// The rid leaves no room for its number, or there are more than [`MAX_REQUESTS`] in all.
pub fn samples(request: GenerateReqInput, n: u32, requests: &mut Vec<GenerateReqInput>) -> Result<(), ApiError> {
    if requests.len() + n as usize > MAX_REQUESTS {
        return Err(ApiError::invalid(
            "n",
            format!("prompts times n is more than {MAX_REQUESTS}, the limit of one call"),
        ));
    }
    if n == 1 {
        requests.push(request);
        return Ok(());
    }
    for sample in 0..n {
        let mut request = request.clone();
        request.rid = numbered(&request.rid, sample as usize)?;
        let seed = &mut request.sampling_params.sampling_seed;
        *seed = seed.map(|seed| seed.wrapping_add(sample.into()));
        requests.push(request);
    }
    Ok(())
}

/// The caller's rid, or a fresh one.
///
/// # Errors
/// It is empty or too long.
pub fn caller_rid(rid: Option<&str>) -> Result<Rid, ApiError> {
    match rid {
        Some(rid) => Rid::from_caller(rid).map_err(|error| ApiError::invalid("rid", error.to_string())),
        None => Ok(Rid::random()),
    }
}

/// `rid-number`
///
/// # Errors
/// Too long.
pub fn numbered(rid: &Rid, number: usize) -> Result<Rid, ApiError> {
    caller_rid(Some(&format!("{rid}-{number}")))
}

/// Refuses a prompt without tokens, which no model can continue.
///
/// # Errors
/// `name` is to blame.
pub fn refuse_empty(name: &str, prompt: &Prompt, model: &ServedModel) -> Result<(), ApiError> {
    let empty = match prompt {
        Prompt::Text(text) => text.is_empty() && model.tokenizer.encode_prompt(text).is_ok_and(|ids| ids.is_empty()),
        Prompt::Ids(ids) => ids.is_empty(),
        Prompt::Rendered(parts) => parts.is_empty(),
    };
    if empty { Err(ApiError::invalid(name, format!("{name} must not be empty"))) } else { Ok(()) }
}

/// Refuses more prompts than one body may have, before anything is made of them.
///
/// # Errors
/// `name` is to blame.
pub fn refuse_many(name: &str, count: usize) -> Result<(), ApiError> {
    if count <= MAX_REQUESTS {
        return Ok(());
    }
    Err(ApiError::invalid(name, format!("{name} has {count} prompts, the limit of one call is {MAX_REQUESTS}")))
}

/// Refuses requests of one body that have the same rid.
fn refuse_duplicates(requests: &[GenerateReqInput]) -> Result<(), ApiError> {
    let mut seen = HashSet::new();
    match requests.iter().find(|request| !seen.insert(&request.rid)) {
        Some(twice) => Err(ApiError::invalid("rid", format!("rid '{}' is given twice", twice.rid))),
        None => Ok(()),
    }
}

fn prompts(
    text: Option<OneOrMany<String>>,
    input_ids: Option<Ids>,
    vocab_size: u32,
) -> Result<(&'static str, Vec<Prompt>, Shape), ApiError> {
    let ids = |ids| sampling::token_ids("input_ids", Some(ids), vocab_size).map(Prompt::Ids);
    let (name, prompts, shape) = match (text, input_ids) {
        (Some(_), Some(_)) => return Err(ApiError::invalid("text", "give text or input_ids, not both")),
        (None, None) => return Err(ApiError::invalid("text", "give text or input_ids")),
        (Some(OneOrMany::One(text)), None) => ("text", vec![Prompt::Text(text)], Shape::Single),
        (Some(OneOrMany::Many(texts)), None) => ("text", texts.into_iter().map(Prompt::Text).collect(), Shape::List),
        (None, Some(Ids::One(list))) => ("input_ids", vec![ids(list)?], Shape::Single),
        (None, Some(Ids::Many(lists))) => {
            ("input_ids", lists.into_iter().map(ids).collect::<Result<_, _>>()?, Shape::List)
        }
    };
    if prompts.is_empty() {
        return Err(ApiError::invalid(name, format!("{name} must not be empty")));
    }
    refuse_many(name, prompts.len())?;
    Ok((name, prompts, shape))
}

/// The sampling of each of `count` prompts: one object for all, or a list with one for each.
fn samplings(params: Option<Value>, count: usize, vocab_size: u32) -> Result<Vec<Sampling>, ApiError> {
    let sampling = |path: &str, value: Value| {
        if !value.is_object() {
            return Err(ApiError::invalid(path, format!("{path} must be an object")));
        }
        let fields: SamplingFields = serde_path_to_error::deserialize(value).map_err(|error| {
            let path = format!("{path}.{}", error.path());
            unreadable(path.trim_end_matches('.'), error.inner())
        })?;
        fields.check(RequestEndpoint::Generate, vocab_size)
    };
    match params {
        None | Some(Value::Null) => {
            let sampling = SamplingFields::default().check(RequestEndpoint::Generate, vocab_size)?;
            Ok(vec![sampling; count])
        }
        Some(Value::Array(list)) if list.len() == count => {
            let list = list.into_iter().enumerate();
            list.map(|(i, value)| sampling(&format!("sampling_params[{i}]"), value)).collect()
        }
        Some(Value::Array(list)) => {
            let message = format!("sampling_params has {} entries for {count} prompts", list.len());
            Err(ApiError::invalid("sampling_params", message))
        }
        Some(value) => Ok(vec![sampling("sampling_params", value)?; count]),
    }
}

/// The rid of each of `count` prompts: a list with one for each, or one that is numbered if the answer is a list.
///
/// # Errors
/// One is empty or too long, or their number is not that of the prompts.
pub fn rids(rid: Option<OneOrMany<String>>, count: usize, shape: Shape) -> Result<Vec<Rid>, ApiError> {
    match rid {
        None => Ok((0..count).map(|_| Rid::random()).collect()),
        Some(OneOrMany::One(rid)) => {
            let rid = caller_rid(Some(&rid))?;
            match shape {
                Shape::Single => Ok(vec![rid]),
                Shape::List => (0..count).map(|number| numbered(&rid, number)).collect(),
            }
        }
        Some(OneOrMany::Many(rids)) if rids.len() == count => rids.iter().map(|rid| caller_rid(Some(rid))).collect(),
        Some(OneOrMany::Many(rids)) => {
            Err(ApiError::invalid("rid", format!("rid has {} entries for {count} prompts", rids.len())))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
