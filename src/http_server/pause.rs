//! `POST /pause_generation` and `POST /continue_generation`, as SGLang has them.

use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::ApiError;
use super::generate::ApiState;
use super::generate::body::parse;
use crate::io_struct::PauseMode;

/// Both paths.
pub fn routes() -> Router<ApiState> {
    Router::new().route("/pause_generation", post(pause)).route("/continue_generation", post(resume))
}

/// The body of `/pause_generation`, by SGLang's names.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PauseBody {
    mode: PauseMode,
}

/// An empty body means SGLang's default mode, `abort`.
async fn pause(State(state): State<ApiState>, body: Bytes) -> Result<Json<Value>, ApiError> {
    let PauseBody { mode } = if body.is_empty() { PauseBody::default() } else { parse(&body)? };
    state.tokenizer_manager.pause_generation(mode).await?;
    Ok(Json(json!({ "message": "Generation paused successfully.", "status": "ok" })))
}

/// The body, if any, says nothing.
async fn resume(State(state): State<ApiState>) -> Result<Json<Value>, ApiError> {
    state.tokenizer_manager.continue_generation().await?;
    Ok(Json(json!({ "message": "Generation continued successfully.", "status": "ok" })))
}
