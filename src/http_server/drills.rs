//! `/debug/fault`: faults on purpose, if `--enable-drills` allows them.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{MethodRouter, get};
use serde_json::{Value, json};

use super::admin::AdminState;
use super::error::ApiError;
use crate::io_struct::Fault;

/// `GET`, `POST` and `DELETE`.
pub fn route() -> MethodRouter<AdminState> {
    get(list).post(switch_on).delete(switch_off)
}

/// What is on, as far as this frontend asked for it.
async fn list(State(state): State<AdminState>) -> Result<Json<Value>, ApiError> {
    allowed(&state)?;
    let faults = state.tokenizer_manager.drills().on();
    let show = |(fault, rest): &(Fault, Option<std::time::Duration>)| {
        let mut shown = json!(fault);
        shown["ends_in_seconds"] = json!(rest.map(|rest| rest.as_secs_f64()));
        shown
    };
    Ok(Json(json!({ "on": faults.iter().map(show).collect::<Vec<_>>() })))
}

/// `{"fault": "loop_frozen", "seconds": 2}`
async fn switch_on(state: State<AdminState>, body: Bytes) -> Result<Json<Value>, ApiError> {
    allowed(&state)?;
    let fault: Fault = serde_json::from_slice(&body).map_err(|error| ApiError::invalid("fault", error.to_string()))?;
    if matches!(fault, Fault::SlowLoad { .. }) {
        let message = "slow_load happens at the start alone: --fault slow_load:seconds=20";
        return Err(ApiError::invalid("fault", message));
    }
    tracing::warn!(%fault, "a drill begins");
    state.tokenizer_manager.drill(fault)?;
    list(state).await
}

async fn switch_off(state: State<AdminState>) -> Result<Json<Value>, ApiError> {
    allowed(&state)?;
    tracing::warn!("all drills end");
    state.tokenizer_manager.end_drills()?;
    list(state).await
}

fn allowed(state: &AdminState) -> Result<(), ApiError> {
    if state.tokenizer_manager.drills().is_enabled() {
        return Ok(());
    }
    let message = "drills are switched off; they need --enable-drills";
    Err(ApiError::plain(StatusCode::FORBIDDEN, "permission_error", message))
}
