//! `POST /abort_request`, as SGLang has it: ends one call, or all.

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::ApiError;
use super::generate::ApiState;
use super::generate::body::ApiJson;
use crate::tokenizer_manager::abort::AbortTarget;

/// The path.
pub fn routes() -> Router<ApiState> {
    Router::new().route("/abort_request", post(abort_request))
}

/// Whom the abort means, by SGLang's names.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AbortBody {
    /// The call's rid, or the id of its answer.
    pub rid: Option<String>,
    /// All requests of this frontend, whatever `rid` says.
    pub abort_all: Option<bool>,
}

impl AbortBody {
    fn target(&self) -> Result<AbortTarget<'_>, ApiError> {
        if self.abort_all.unwrap_or(false) {
            return Ok(AbortTarget::All);
        }
        match self.rid.as_deref().unwrap_or_default() {
            "" => Err(ApiError::invalid("rid", "give the rid of a request, or abort_all: true")),
            rid => {
                Ok(AbortTarget::Call(["chatcmpl-", "cmpl-"].iter().find_map(|of| rid.strip_prefix(of)).unwrap_or(rid)))
            }
        }
    }
}

/// What is not live is no error: it may have ended a moment ago. The answer says how many requests were ended.
async fn abort_request(
    State(state): State<ApiState>,
    ApiJson(body): ApiJson<AbortBody>,
) -> Result<Json<Value>, ApiError> {
    let target = body.target()?;
    let aborted = state.tokenizer_manager.abort_request(target);
    if target == AbortTarget::All {
        tracing::info!(requests = aborted, "all requests were aborted");
    }
    Ok(Json(json!({ "status": "ok", "aborted": aborted })))
}
