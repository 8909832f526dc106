//! Paths and methods that are not served, in the one shape of an error.

use axum::http::{Method, StatusCode, Uri};

use crate::http_server::error::ApiError;

/// 404: no such path.
pub async fn not_found(uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::plain(StatusCode::NOT_FOUND, "not_found_error", format!("there is nothing at {path}"))
}

/// 405: the path is there, with other methods.
pub async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    let message = format!("{path} does not take {method}");
    ApiError::plain(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
}
