//! The one shape of an error, and the one place where an HTTP status is chosen.

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::endpoints::{Access, Elsewhere};
use crate::telemetry::labels::RejectReason;
use crate::tokenizer_manager::submit::SubmitError;

/// An error as the APIs show it: `{"error": {"message", "type", "param", "code"}}`, the shape that OpenAI's clients
/// read; `/generate` uses it too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ApiError {
    /// The HTTP status.
    #[serde(skip)]
    pub status: StatusCode,
    /// What is wrong, which field, and the limit.
    pub message: String,
    /// `invalid_request_error`, `not_found_error`, `server_error`, ...
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The field, where one is to blame.
    pub param: Option<String>,
    /// A stable name of the error, for programs.
    pub code: Option<&'static str>,
    /// Why it counts as a refusal; `None` where a request was accepted and failed later.
    #[serde(skip)]
    pub reason: Option<RejectReason>,
}

/// Seconds after which a refused client may try again.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

impl ApiError {
    /// 400: `param` is to blame.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            message: message.into(),
            kind: "invalid_request_error",
            param: Some(param.into()),
            code: None,
            reason: Some(RejectReason::Invalid),
        }
    }

    /// 400: prompt and asked output do not fit into the context.
    pub fn context_length(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: Some("context_length_exceeded"), ..Self::invalid(param, message) }
    }

    /// Any status, nobody's field.
    pub fn plain(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), kind, param: None, code: None, reason: Some(RejectReason::Invalid) }
    }

    /// 404: no such model.
    pub fn model_not_found(model: &str, served: &str) -> Self {
        let model: String = model.chars().take(80).collect();
        let message = format!("model '{model}' is not served here; use '{served}' or 'default'");
        Self {
            code: Some("model_not_found"),
            param: Some("model".to_owned()),
            ..Self::plain(StatusCode::NOT_FOUND, "not_found_error", message)
        }
    }

    /// 401: no key, or a wrong one.
    pub fn unauthorized(access: Access) -> Self {
        let which = if access == Access::Admin { "the admin key" } else { "the API key" };
        let message = format!("this path needs {which}, as in 'Authorization: Bearer <key>'");
        Self { code: Some("invalid_api_key"), ..Self::plain(StatusCode::UNAUTHORIZED, "authentication_error", message) }
    }

    /// 503: `--request-timeout`.
    pub fn timed_out(message: impl Into<String>) -> Self {
        Self { code: Some("request_timeout"), ..Self::not_serving(message) }
    }

    /// 501: another server has it.
    pub fn not_implemented(elsewhere: &Elsewhere) -> Self {
        let message = format!("{} is not implemented. {}", elsewhere.path, elsewhere.why);
        Self {
            code: Some("not_implemented"),
            ..Self::plain(StatusCode::NOT_IMPLEMENTED, "not_implemented_error", message)
        }
    }

    /// 503: come back later.
    pub fn not_serving(message: impl Into<String>) -> Self {
        Self {
            reason: Some(RejectReason::NotServing),
            code: Some("not_serving"),
            ..Self::plain(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable_error", message)
        }
    }

    /// 503: the queue is full.
    pub fn queue_full(message: impl Into<String>) -> Self {
        Self { reason: Some(RejectReason::QueueFull), code: Some("queue_full"), ..Self::not_serving(message) }
    }

    /// The same for a request that had been accepted.
    #[must_use]
    pub fn of_accepted(self) -> Self {
        Self { reason: None, ..self }
    }

    /// The JSON body; also what goes into a stream that has begun.
    #[must_use]
    pub fn body(&self) -> Value {
        json!({ "error": self })
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        let message = error.to_string();
        match error {
            SubmitError::Invalid { param, .. } => Self::invalid(param, message),
            SubmitError::ContextLength { param, .. } => Self::context_length(param, message),
            SubmitError::QueueFull(_) => Self::queue_full(message),
            SubmitError::NotServing(_) | SubmitError::EngineDead => Self::not_serving(message),
            SubmitError::TimedOut(_) => Self::timed_out(message),
            SubmitError::Failed(_) => {
                Self::plain(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message).of_accepted()
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(reason) = self.reason {
            response.extensions_mut().insert(reason);
        }
        response
    }
}
