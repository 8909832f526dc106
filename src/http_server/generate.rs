//! `/generate`, SGLang's own API.

pub mod body;
pub mod request;
pub mod response;
pub mod exchange;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use serde_json::Value;

use super::error::ApiError;
use crate::clock::MonoNanos;
use crate::io_struct::Rid;
use crate::tokenizer_manager::TokenizerManager;
use body::ApiJson;
use exchange::{Call, abort_error, collect, stream_response, submit};
use request::{GenerateBody, Shape};
use response::{Answer, Cumulative, Logprobs};

/// What the request APIs hold.
#[derive(Clone)]
pub struct ApiState {
    /// Takes requests to the engine.
    pub tokenizer_manager: TokenizerManager,
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
    let plan = body.plan(&model)?;
    let top = plan.requests.first().and_then(|request| request.top_logprobs);
    let answer = Answer { model, arrived, logprobs: Logprobs { top, text } };
    let rids: Vec<Rid> = plan.requests.iter().map(|request| request.rid.clone()).collect();
    let id = rids.first().map_or("", Rid::as_str);
    let call = Call { model: &answer.model, id, stream: streaming };
    let mut streams = submit(&state.tokenizer_manager, &call, plan.requests).await?;
    let rid = rids.first().cloned().map(Extension);
    if streaming {
        return Ok((rid, stream_response(streams, Cumulative::new(answer, plan.shape, rids))).into_response());
    }
    let outputs = collect(&mut streams, |stream, output| match abort_error(output.finish_reason.as_ref()) {
        Some(error) => Err(error),
        None => Ok(answer.object(stream.rid(), &output)),
    });
    let outputs: Result<Vec<Value>, ApiError> = outputs.await.into_iter().collect();
    let answer = match plan.shape {
        Shape::Single => outputs?.into_iter().next().unwrap_or_default(),
        Shape::List => Value::Array(outputs?),
    };
    Ok((rid, Json(answer)).into_response())
}
