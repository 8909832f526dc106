//! `/v1/embeddings`

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::completions::body::Prompts;
use super::models;
use crate::http_server::embed::body::{check_dimensions, check_prompts};
use crate::http_server::embed::{embed_all, tell};
use crate::http_server::error::ApiError;
use crate::http_server::generate::ApiState;
use crate::http_server::generate::body::ApiJson;
use crate::http_server::generate::request::{caller_rid, numbered};
use crate::http_server::sampling;
use crate::io_struct::Rid;
use crate::telemetry::labels::RequestEndpoint;
use crate::tokenizer_manager::ServedModel;
use crate::tokenizer_manager::embed::{EmbeddingReqInput, TooLong};
use crate::tokenizer_manager::request::GenerateOutput;
use crate::tokenizer_manager::submit::Prompt;

/// The body of `/v1/embeddings`. `null` is absent, and unknown fields are ignored.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(missing_docs, reason = "the names are the API's own")]
pub struct EmbeddingsBody {
    pub model: Option<String>,
    pub input: Option<Prompts>,
    pub encoding_format: Option<String>,
    pub dimensions: Option<i64>,
    pub rid: Option<String>,
    pub truncate_prompt_tokens: Option<i64>,
}

/// How a vector is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// A list of numbers.
    Float,
    /// The numbers' bytes, little-endian `f32`, in base64.
    Base64,
}

/// The answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EmbeddingList")]
pub struct List<'a> {
    object: &'static str,
    data: Vec<Embedding>,
    model: &'a str,
    usage: EmbeddingUsage,
}

#[derive(Serialize, JsonSchema)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum Vector {
    Float(Vec<f32>),
    Base64(String),
}

#[derive(Serialize, JsonSchema)]
struct EmbeddingUsage {
    prompt_tokens: u64,
    total_tokens: u64,
}

/// Embeds one text or several. The response carries the call's [`Rid`] as an extension.
///
/// # Errors
/// Bad input, a model that does not embed, or a server that does not serve.
pub async fn embeddings(
    State(state): State<ApiState>,
    ApiJson(body): ApiJson<EmbeddingsBody>,
) -> Result<Response, ApiError> {
    let model = state.tokenizer_manager.model()?;
    models::check(body.model.as_deref(), &model)?;
    let encoding = body.encoding()?;
    let rid = caller_rid(body.rid.as_deref())?;
    let inputs = body.inputs(&rid, &model)?;
    tell(&model, RequestEndpoint::Embeddings, Some(&rid));
    let outputs = embed_all(&state.tokenizer_manager, &model, inputs).await?;
    let answer = Json(list(&model.served_name, outputs, encoding)).into_response();
    Ok((Extension(rid), answer).into_response())
}

impl EmbeddingsBody {
    fn encoding(&self) -> Result<Encoding, ApiError> {
        match self.encoding_format.as_deref() {
            None | Some("float") => Ok(Encoding::Float),
            Some("base64") => Ok(Encoding::Base64),
            Some(_) => Err(ApiError::invalid("encoding_format", "encoding_format must be 'float' or 'base64'")),
        }
    }

    /// `-1` is as much as the context has.
    fn too_long(&self, model: &ServedModel) -> Result<TooLong, ApiError> {
        Ok(match self.truncate_prompt_tokens {
            None => TooLong::Refuse,
            Some(-1) => TooLong::Truncate(None),
            Some(tokens) => {
                let range = 1..=i64::from(model.info.context_length);
                TooLong::Truncate(Some(sampling::whole("truncate_prompt_tokens", tokens, range)?))
            }
        })
    }

    fn inputs(self, rid: &Rid, model: &ServedModel) -> Result<Vec<EmbeddingReqInput>, ApiError> {
        check_dimensions(self.dimensions, model)?;
        let too_long = self.too_long(model)?;
        let ids = |ids| sampling::token_ids("input", Some(ids), model.info.vocab_size).map(Prompt::Ids);
        let prompts = match self.input {
            None => return Err(ApiError::invalid("input", "input is missing")),
            Some(Prompts::Text(text)) => vec![Prompt::Text(text)],
            Some(Prompts::Texts(texts)) => texts.into_iter().map(Prompt::Text).collect(),
            Some(Prompts::Ids(list)) => vec![ids(list)?],
            Some(Prompts::IdLists(lists)) => lists.into_iter().map(ids).collect::<Result<_, _>>()?,
        };
        check_prompts("input", &prompts)?;
        let is_one = prompts.len() == 1;
        let input = |(number, input)| {
            let rid = if is_one { rid.clone() } else { numbered(rid, number)? };
            Ok(EmbeddingReqInput { rid, input, too_long, endpoint: RequestEndpoint::Embeddings })
        };
        prompts.into_iter().enumerate().map(input).collect()
    }
}

fn list(model: &str, outputs: Vec<GenerateOutput>, encoding: Encoding) -> List<'_> {
    let tokens = outputs.iter().map(|output| u64::from(output.usage.prompt_tokens)).sum();
    let embedding = |(index, output): (usize, GenerateOutput)| Embedding {
        object: "embedding",
        index,
        embedding: match encoding {
            Encoding::Float => Vector::Float(output.embedding),
            Encoding::Base64 => Vector::Base64(base64_of(&output.embedding)),
        },
    };
    let data = outputs.into_iter().enumerate().map(embedding).collect();
    let usage = EmbeddingUsage { prompt_tokens: tokens, total_tokens: tokens };
    List { object: "list", data, model, usage }
}

fn base64_of(values: &[f32]) -> String {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::tokenizer_manager::request::Usage;

    #[test]
    fn both_encodings() {
        let output = |embedding: &[f32], prompt_tokens| GenerateOutput {
            embedding: embedding.to_vec(),
            usage: Usage { prompt_tokens, ..Usage::default() },
            ..GenerateOutput::default()
        };
        let outputs = || vec![output(&[0.1, -1.0], 3), output(&[1e-9, 0.0], 2)];
        let text = |encoding| serde_json::to_string(&list("m", outputs(), encoding)).unwrap();
        expect![[r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-1.0]},{"object":"embedding","index":1,"embedding":[1e-9,0.0]}],"model":"m","usage":{"prompt_tokens":5,"total_tokens":5}}"#]]
        .assert_eq(&text(Encoding::Float));
        expect![[r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":"zczMPQAAgL8="},{"object":"embedding","index":1,"embedding":"X3CJMAAAAAA="}],"model":"m","usage":{"prompt_tokens":5,"total_tokens":5}}"#]]
        .assert_eq(&text(Encoding::Base64));
    }
}
