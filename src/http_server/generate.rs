//! `/generate`, SGLang's own API.

pub mod body;
pub mod request;
pub mod logprobs;
pub mod response;
pub mod exchange;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};

use super::error::ApiError;
use crate::clock::MonoNanos;
use crate::config::ParserArgs;
use crate::io_struct::Rid;
use crate::tokenizer_manager::TokenizerManager;
use body::ApiJson;
use exchange::{Call, collect, stream_response, submit};
use logprobs::Shown;
use request::{GenerateBody, Shape};
use response::{Answer, Cumulative, Teller};

/// What the request APIs hold.
#[derive(Clone)]
pub struct ApiState {
    /// Takes requests to the engine.
    pub tokenizer_manager: TokenizerManager,
    /// How tool calls and reasoning are found in outputs.
    pub parsers: ParserArgs,
}

/// `POST` and `PUT /generate`.
pub fn routes() -> Router<ApiState> {
    Router::new().route("/generate", post(generate).put(generate))
}

/// Continues one prompt or several. A response carries the first request's [`Rid`] as an extension.
///
/// # Errors
/// Bad input, or a server that does not serve.
pub async fn generate(
    State(state): State<ApiState>,
    ApiJson(body): ApiJson<GenerateBody>,
) -> Result<Response, ApiError> {
    let arrived = MonoNanos::now();
    let model = state.tokenizer_manager.model()?;
    let streaming = body.stream.unwrap_or(false);
    let text = body.return_text_in_logprobs.unwrap_or(false);
    let with_prompt = body.return_prompt_token_ids.unwrap_or(false);
    let plan = body.plan(&model)?;
    let shape = plan.shape;
    let shown: Vec<Shown> =
        plan.requests.iter().map(|request| Shown { wanted: request.logprobs.clone(), text }).collect();
    let answer = Answer { model, arrived, with_prompt };
    let rid = plan.requests.first().map(|request| request.rid.clone());
    let call = Call { model: &answer.model, id: rid.as_ref().map_or("", Rid::as_str), stream: streaming };
    let mut streams = submit(&state.tokenizer_manager, &call, plan.requests).await?;
    let tellers: Vec<Teller> = streams.iter().zip(shown).map(|(stream, shown)| answer.teller(stream, shown)).collect();
    let rid = rid.map(Extension);
    if streaming {
        return Ok((rid, stream_response(streams, Cumulative::new(tellers, shape))).into_response());
    }
    let outputs = collect(&mut streams).await?;
    let mut outputs = tellers.iter().zip(&outputs).map(|(teller, output)| teller.object(output));
    let answer = match shape {
        Shape::Single => outputs.next().unwrap_or_default(),
        Shape::List => outputs.collect(),
    };
    Ok((rid, Json(answer)).into_response())
}
