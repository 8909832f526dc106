//! `/encode`, SGLang's own API of embedding models, and what it shares with OpenAI's.

pub mod body;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use futures::stream::{self, StreamExt, TryStreamExt};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::error::ApiError;
use super::generate::ApiState;
use super::generate::body::ApiJson;
use super::generate::exchange::collect;
use super::generate::request::Shape;
use super::generate::response::finish_reason;
use crate::clock::MonoNanos;
use crate::io_struct::{AbortKind, FinishReason, Rid};
use crate::telemetry::labels::RequestEndpoint;
use crate::telemetry::spans::{self, EmbeddingCall};
use crate::tokenizer_manager::embed::EmbeddingReqInput;
use crate::tokenizer_manager::request::GenerateOutput;
use crate::tokenizer_manager::{ServedModel, TokenizerManager};
use body::EncodeBody;

/// Texts of one call that are on their way at once: enough to fill the next step while one runs.
const WINDOW: u32 = 64;

/// `POST` and `PUT /encode`.
pub fn routes() -> Router<ApiState> {
    Router::new().route("/encode", post(encode).put(encode))
}

/// One answer of `/encode`.
#[derive(Serialize, JsonSchema)]
pub struct Encoded {
    embedding: Vec<f32>,
    #[schemars(with = "serde_json::Map<String, Value>")]
    meta_info: Value,
}

/// Embeds one text or several. The response carries the first text's [`Rid`] as an extension.
///
/// # Errors
/// Bad input, a model that does not embed, or a server that does not serve.
pub async fn encode(State(state): State<ApiState>, ApiJson(body): ApiJson<EncodeBody>) -> Result<Response, ApiError> {
    let arrived = MonoNanos::now();
    let model = state.tokenizer_manager.model()?;
    let (inputs, shape) = body.inputs(&model)?;
    let rid = inputs.first().map(|input| input.rid.clone());
    tell(&model, RequestEndpoint::Encode, rid.as_ref());
    let rids: Vec<Rid> = inputs.iter().map(|input| input.rid.clone()).collect();
    let outputs = embed_all(&state.tokenizer_manager, &model, inputs).await?;
    let answer = |(rid, output): (Rid, GenerateOutput)| Encoded {
        meta_info: json!({
            "id": rid,
            "finish_reason": output.finish_reason.as_ref().map(finish_reason),
            "prompt_tokens": output.usage.prompt_tokens,
            "cached_tokens": output.usage.cached_tokens,
            "e2e_latency": arrived.elapsed().as_secs_f64(),
        }),
        embedding: output.embedding,
    };
    let mut answers: Vec<Encoded> = rids.into_iter().zip(outputs).map(answer).collect();
    let answer = match (shape, answers.pop()) {
        (Shape::Single, Some(answer)) => Json(answer).into_response(),
        (_, last) => {
            answers.extend(last);
            Json(answers).into_response()
        }
    };
    Ok((rid.map(Extension), answer).into_response())
}

/// Says on the root span what is asked for.
pub fn tell(model: &ServedModel, endpoint: RequestEndpoint, rid: Option<&Rid>) {
    let response_id = rid.map_or("", Rid::as_str);
    spans::record_embedding_call(
        &tracing::Span::current(),
        &EmbeddingCall { endpoint, model: &model.served_name, response_id },
    );
}

/// Embeds all texts, in their order. They do not all wait in the scheduler's queue at once, so that a long list neither
/// fills it nor is refused by it.
///
/// # Errors
/// One was refused or failed; the others are given up.
pub async fn embed_all(
    manager: &TokenizerManager,
    model: &ServedModel,
    inputs: Vec<EmbeddingReqInput>,
) -> Result<Vec<GenerateOutput>, ApiError> {
    let limits = model.limits;
    let places = limits.max_running_requests.saturating_add(limits.max_queued_requests);
    let window = WINDOW.min(limits.max_running_requests.saturating_mul(2)).min(places).max(1);
    let outputs = inputs.into_iter().enumerate().map(async |(index, input)| {
        let mut stream = manager.embed_request(input).await?;
        if index > 0 {
            stream.leave_root_to_first();
        }
        stream.admitted().await?;
        let output = collect(std::slice::from_mut(&mut stream)).await?.pop().unwrap_or_default();
        match given_up(output.finish_reason.as_ref()) {
            Some(error) => Err(error),
            None => Ok(output),
        }
    });
    stream::iter(outputs).buffered(window as usize).try_collect().await
}

/// The error of a text that was aborted on request. Of a generation some text may be there; of a text nothing is left.
fn given_up(finish_reason: Option<&FinishReason>) -> Option<ApiError> {
    match finish_reason {
        Some(FinishReason::Abort { message, kind: AbortKind::Requested }) => {
            Some(ApiError::not_serving(message.clone()).of_accepted())
        }
        _ => None,
    }
}

/// Refuses what the model is not made for, before the body is read: an embedding model generates nothing, and the
/// reverse.
///
/// # Errors
/// 400
pub async fn fits_the_model(
    State(manager): State<TokenizerManager>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let endpoint = RequestEndpoint::ALL.iter().find(|endpoint| Some(endpoint.as_str()) == path);
    if let (Some(endpoint), Some(model)) = (endpoint, manager.loaded_model()) {
        model.check_task(*endpoint)?;
    }
    Ok(next.run(request).await)
}
