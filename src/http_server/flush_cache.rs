//! `POST /flush_cache`, as SGLang has it; `GET` is allowed there too.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;

use super::error::ApiError;
use super::generate::ApiState;
use crate::io_struct::FlushOutcome;

/// The path.
pub fn routes() -> Router<ApiState> {
    Router::new().route("/flush_cache", post(flush).get(flush))
}

/// SGLang's clients look at the status: 400 while requests run or wait.
async fn flush(State(state): State<ApiState>) -> Result<String, ApiError> {
    match state.tokenizer_manager.flush_cache().await? {
        FlushOutcome::Flushed { tokens } => Ok(format!("Cache flushed. It held {tokens} tokens.\n")),
        FlushOutcome::Busy { running, waiting } => {
            let message = format!(
                "the cache was not flushed: {running} requests run and {waiting} wait; it is flushed when there are none"
            );
            Err(ApiError::plain(StatusCode::BAD_REQUEST, "invalid_request_error", message))
        }
    }
}
