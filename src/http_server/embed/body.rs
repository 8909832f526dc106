//! The body of `/encode`, and what both APIs of embedding models ask of a text.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::http_server::error::ApiError;
use crate::http_server::generate::request::{Ids, Shape, rids};
use crate::http_server::sampling::{self, OneOrMany};
use crate::telemetry::labels::RequestEndpoint;
use crate::tokenizer_manager::ServedModel;
use crate::tokenizer_manager::embed::{EmbeddingReqInput, TooLong};
use crate::tokenizer_manager::submit::Prompt;

/// The most texts of one call, as OpenAI has it.
pub const MAX_INPUTS: usize = 2048;

/// The body of `/encode`, by SGLang's names. `null` is absent, and unknown fields are ignored.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(missing_docs, reason = "the names are the API's own")]
pub struct EncodeBody {
    pub text: Option<OneOrMany<String>>,
    pub input_ids: Option<Ids>,
    pub rid: Option<OneOrMany<String>>,
    pub dimensions: Option<i64>,
    pub image_data: Option<Value>,
    pub video_data: Option<Value>,
    pub audio_data: Option<Value>,
    pub lora_path: Option<Value>,
    pub input_embeds: Option<Value>,
}

impl EncodeBody {
    /// Checks everything that can be checked without the engine.
    ///
    /// # Errors
    /// The first field that is to blame.
    pub fn inputs(self, model: &ServedModel) -> Result<(Vec<EmbeddingReqInput>, Shape), ApiError> {
        sampling::refuse([
            ("image_data", &self.image_data),
            ("video_data", &self.video_data),
            ("audio_data", &self.audio_data),
            ("lora_path", &self.lora_path),
            ("input_embeds", &self.input_embeds),
        ])?;
        check_dimensions(self.dimensions, model)?;
        let ids = |ids| sampling::token_ids("input_ids", Some(ids), model.info.vocab_size).map(Prompt::Ids);
        let (name, prompts, shape) = match (self.text, self.input_ids) {
            (Some(_), Some(_)) => return Err(ApiError::invalid("text", "give text or input_ids, not both")),
            (None, None) => return Err(ApiError::invalid("text", "give text or input_ids")),
            (Some(OneOrMany::One(text)), None) => ("text", vec![Prompt::Text(text)], Shape::Single),
            (Some(OneOrMany::Many(texts)), None) => {
                ("text", texts.into_iter().map(Prompt::Text).collect(), Shape::List)
            }
            (None, Some(Ids::One(list))) => ("input_ids", vec![ids(list)?], Shape::Single),
            (None, Some(Ids::Many(lists))) => {
                ("input_ids", lists.into_iter().map(ids).collect::<Result<_, _>>()?, Shape::List)
            }
        };
        check_prompts(name, &prompts)?;
        let rids = rids(self.rid, prompts.len(), shape)?;
        let mut seen = HashSet::new();
        if let Some(twice) = rids.iter().find(|rid| !seen.insert(*rid)) {
            return Err(ApiError::invalid("rid", format!("rid '{twice}' is given twice")));
        }
        let endpoint = RequestEndpoint::Encode;
        let input = |(input, rid)| EmbeddingReqInput { rid, input, too_long: TooLong::Refuse, endpoint };
        Ok((prompts.into_iter().zip(rids).map(input).collect(), shape))
    }
}

/// Refuses vectors of another length than the model's: it was not trained for shorter ones.
///
/// # Errors
/// `dimensions` is to blame.
pub fn check_dimensions(asked: Option<i64>, model: &ServedModel) -> Result<(), ApiError> {
    let dimensions = model.info.task.dimensions();
    match asked {
        Some(asked) if dimensions.is_none_or(|dimensions| i64::from(dimensions) != asked) => {
            let has = dimensions.unwrap_or(0);
            let message = format!("dimensions is {asked}, and this model's vectors have {has}; they are not shortened");
            Err(ApiError::invalid("dimensions", message))
        }
        _ => Ok(()),
    }
}

/// Refuses a call without texts, with too many, or with an empty one.
///
/// # Errors
/// `name` is to blame.
pub fn check_prompts(name: &str, prompts: &[Prompt]) -> Result<(), ApiError> {
    let is_empty = |prompt: &Prompt| match prompt {
        Prompt::Text(text) => text.is_empty(),
        Prompt::Ids(ids) => ids.is_empty(),
        Prompt::Rendered(parts) => parts.is_empty(),
    };
    let count = prompts.len();
    if count == 0 || prompts.iter().any(is_empty) {
        return Err(ApiError::invalid(name, format!("{name} must not be empty, and no text in it")));
    }
    if count > MAX_INPUTS {
        return Err(ApiError::invalid(name, format!("{name} has {count} texts, the limit is {MAX_INPUTS}")));
    }
    Ok(())
}
