//! Which models there are: one, by its name and by `default`.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::reply::unix_seconds_now;
use crate::http_server::address::Name;
use crate::http_server::error::ApiError;
use crate::http_server::generate::ApiState;
use crate::tokenizer_manager::ServedModel;

/// A name that every server of ours answers to.
pub const DEFAULT: &str = "default";

/// `GET /v1/models`
///
/// # Errors
/// Nothing is served yet.
pub async fn list(State(state): State<ApiState>) -> Result<Json<Value>, ApiError> {
    let model = state.tokenizer_manager.model()?;
    Ok(Json(json!({"object": "list", "data": [object(&model)]})))
}

/// `GET /v1/models/{model}`
///
/// # Errors
/// No such model, or nothing is served yet.
pub async fn one(State(state): State<ApiState>, Name(name): Name) -> Result<Json<Value>, ApiError> {
    let model = state.tokenizer_manager.model()?;
    check(Some(&name), &model)?;
    Ok(Json(object(&model)))
}

/// Is `name` the served model? A request that names none means it.
///
/// # Errors
/// 404
pub fn check(name: Option<&str>, model: &ServedModel) -> Result<(), ApiError> {
    match name {
        None | Some(DEFAULT) => Ok(()),
        Some(name) if name == model.served_name => Ok(()),
        Some(name) => Err(ApiError::model_not_found(name, &model.served_name)),
    }
}

fn object(model: &ServedModel) -> Value {
    json!({
        "id": model.served_name,
        "object": "model",
        "created": unix_seconds_now(),
        "owned_by": "radiosonde",
        "root": model.info.name,
        "max_model_len": model.info.context_length,
        "is_generation": model.info.task.is_generation(),
    })
}
