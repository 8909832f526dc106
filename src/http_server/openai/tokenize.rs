//! `POST /v1/tokenize` and `/v1/detokenize`: what a text is to the model, and back.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::chat::body::{ChatBody, Message};
use super::chat::render;
use super::models;
use crate::http_server::apart::apart;
use crate::http_server::error::ApiError;
use crate::http_server::generate::ApiState;
use crate::http_server::generate::body::ApiJson;
use crate::http_server::generate::request::Ids;
use crate::http_server::sampling::{self, OneOrMany};
use crate::io_struct::TokenId;
use crate::tokenizer::{ControlTokens, PromptPart, TokenizerError};
use crate::tokenizer_manager::ServedModel;

/// The body of `/v1/tokenize`: a prompt, several, or a chat.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(missing_docs, reason = "the names are the API's own")]
pub struct TokenizeBody {
    pub model: Option<String>,
    pub prompt: Option<OneOrMany<String>>,
    pub messages: Option<Vec<Message>>,
    pub chat_template_kwargs: Option<Map<String, Value>>,
    pub add_special_tokens: Option<bool>,
}

/// The body of `/v1/detokenize`: the tokens of one text, or of several.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(missing_docs, reason = "the names are the API's own")]
pub struct DetokenizeBody {
    pub model: Option<String>,
    pub tokens: Option<Ids>,
    pub skip_special_tokens: Option<bool>,
}

/// The tokens of a prompt as the model would see it.
///
/// # Errors
/// Bad input, or nothing is served yet.
pub async fn tokenize(
    State(state): State<ApiState>,
    ApiJson(body): ApiJson<TokenizeBody>,
) -> Result<Response, ApiError> {
    let model = state.tokenizer_manager.model()?;
    models::check(body.model.as_deref(), &model)?;
    let special = body.add_special_tokens.unwrap_or(true);
    let tokens = match (body.prompt, body.messages) {
        (Some(OneOrMany::One(text)), None) => {
            OneOrMany::One(encode_all(Arc::clone(&model), vec![text], special).await?.remove(0))
        }
        (Some(OneOrMany::Many(texts)), None) => OneOrMany::Many(encode_all(Arc::clone(&model), texts, special).await?),
        (None, Some(messages)) => {
            let chat = ChatBody { messages: Some(messages), ..ChatBody::default() };
            let extra = body.chat_template_kwargs.unwrap_or_default();
            let parts = render(Arc::clone(&model), chat.messages()?, Vec::new(), extra).await?;
            let of_chat = Arc::clone(&model);
            let tokens = move || chat_tokens(&of_chat, &parts).map_err(|error| unencodable("messages", &error));
            OneOrMany::One(apart(tokens).await?)
        }
        (Some(_), Some(_)) => return Err(ApiError::invalid("prompt", "give prompt or messages, not both")),
        (None, None) => return Err(ApiError::invalid("prompt", "give prompt or messages")),
    };
    apart(move || {
        let (tokens, count) = match tokens {
            OneOrMany::One(tokens) => (json!(tokens), json!(tokens.len())),
            OneOrMany::Many(lists) => (json!(lists), lists.iter().map(Vec::len).collect()),
        };
        let answer = json!({"tokens": tokens, "count": count, "max_model_len": model.info.context_length});
        Ok(Json(answer).into_response())
    })
    .await
}

/// The text of tokens.
///
/// # Errors
/// A token that the model does not have, or nothing is served yet.
pub async fn detokenize(
    State(state): State<ApiState>,
    ApiJson(body): ApiJson<DetokenizeBody>,
) -> Result<Response, ApiError> {
    let model = state.tokenizer_manager.model()?;
    models::check(body.model.as_deref(), &model)?;
    let skip = body.skip_special_tokens.unwrap_or(true);
    let text = move |ids: Vec<i64>| {
        let mut ids = sampling::token_ids("tokens", Some(ids), model.info.vocab_size)?;
        ids.retain(|id| !(skip && model.tokenizer.is_control(*id)));
        Ok::<_, ApiError>(model.tokenizer.decode(&ids))
    };
    let Some(tokens) = body.tokens else {
        return Err(ApiError::invalid("tokens", "give tokens: a list of token ids, or a list of such lists"));
    };
    apart(move || {
        let text = match tokens {
            Ids::One(ids) => json!(text(ids)?),
            Ids::Many(lists) => json!(lists.into_iter().map(text).collect::<Result<Vec<_>, _>>()?),
        };
        Ok(Json(json!({ "text": text })).into_response())
    })
    .await
}

async fn encode_all(model: Arc<ServedModel>, texts: Vec<String>, special: bool) -> Result<Vec<Vec<TokenId>>, ApiError> {
    let encode = move |text: &String| match special {
        true => model.tokenizer.encode_prompt(text),
        false => model.tokenizer.encode(text, ControlTokens::Parse),
    };
    let encoded = move || texts.iter().map(encode).collect::<Result<_, _>>();
    apart(move || encoded().map_err(|error| unencodable("prompt", &error))).await
}

fn chat_tokens(model: &ServedModel, parts: &[PromptPart]) -> Result<Vec<TokenId>, TokenizerError> {
    let mut tokens = Vec::new();
    for part in parts {
        match part {
            PromptPart::Control(id) => tokens.push(*id),
            PromptPart::Text(text) => tokens.extend(model.tokenizer.encode(text, ControlTokens::AsText)?),
        }
    }
    Ok(tokens)
}

fn unencodable(field: &str, error: &TokenizerError) -> ApiError {
    ApiError::invalid(field, error.to_string())
}
