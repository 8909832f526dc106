//! Reads a JSON body, and says what is wrong with it in the one shape of an error.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::http_server::apart::apart;
use crate::http_server::error::ApiError;
use crate::http_server::sampling::SamplingFields;

/// How many bytes of a body are read; what a refusal says.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimit(pub usize);

/// Longer bodies are read on a thread of their own: a megabyte takes some hundredths of a second.
const INLINE_BODY_BYTES: usize = 1 << 16;

/// A body, read.
pub struct ApiJson<T>(pub T);

/// A body whose sampling fields stand among its own, read.
pub struct SampledJson<T>(pub T, pub SamplingFields);

impl<T: DeserializeOwned + Send + 'static, S: Send + Sync> FromRequest<S> for ApiJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        read(bytes(request, state).await?, |bytes| parse(bytes).map(Self)).await
    }
}

impl<T: DeserializeOwned + Send + 'static, S: Send + Sync> FromRequest<S> for SampledJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        read(bytes(request, state).await?, |bytes| Ok(Self(parse(bytes)?, parse(bytes)?))).await
    }
}

/// Reads short bodies here, and long ones where that may take its time.
async fn read<T: Send + 'static>(
    bytes: Bytes,
    parse: impl FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match bytes.len() {
        ..=INLINE_BODY_BYTES => parse(&bytes),
        _ => apart(move || parse(&bytes)).await,
    }
}

/// Reads `bytes` as JSON.
///
/// # Errors
/// 400, with the field that is to blame where there is one.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    if bytes.trim_ascii_start().first().is_some_and(|byte| *byte != b'{') {
        // The deserializer would take a list for the fields in their order.
        return Err(ApiError { param: None, ..ApiError::invalid("", "the body is not JSON, or not a JSON object") });
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        unreadable(&path, error.inner())
    })?;
    json.end().map_err(|error| unreadable(".", &error))?;
    Ok(value)
}

/// `error` of the field at `path`; `.` is the body as a whole.
pub fn unreadable(path: &str, error: &serde_json::Error) -> ApiError {
    match error.classify() {
        Category::Data if path == "." => {
            ApiError { param: None, ..ApiError::invalid("", format!("the body is not right: {error}")) }
        }
        Category::Data => ApiError::invalid(path, format!("{path}: {error}")),
        Category::Syntax | Category::Eof | Category::Io => {
            ApiError { param: None, ..ApiError::invalid("", format!("the body is not JSON: {error}")) }
        }
    }
}

async fn bytes<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ApiError> {
    if !is_json(request.headers()) {
        let message = "the body must be JSON, with the header Content-Type: application/json";
        return Err(ApiError::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", message));
    }
    let limit = request.extensions().get().map_or(usize::MAX, |BodyLimit(bytes)| *bytes);
    Bytes::from_request(request, state).await.map_err(|rejection| {
        let message = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                format!("the body is larger than {} MiB, the limit of --max-body-mib", limit >> 20)
            }
            _ => rejection.body_text(),
        };
        ApiError::plain(rejection.status(), "invalid_request_error", message)
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only whether it can be read matters")]
    struct Outer {
        list: Vec<Inner>,
        name: Option<String>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only whether it can be read matters")]
    struct Inner {
        number: i64,
    }

    #[test]
    fn a_body_that_cannot_be_read_says_where() {
        let check = |body: &str, param: Option<&str>, message: &str| {
            let error = parse::<Outer>(body.as_bytes()).unwrap_err();
            assert_eq!((error.status.as_u16(), error.kind), (400, "invalid_request_error"));
            assert_eq!(error.param.as_deref(), param, "{body}: {}", error.message);
            assert!(error.message.contains(message), "{body}: {}", error.message);
        };
        check("", None, "not JSON");
        check(r#"{"list":"#, None, "not JSON");
        check(r#"{"list":[]} x"#, None, "not JSON");
        check("{}", None, "missing field `list`");
        check("[1]", None, "not a JSON object");
        check("null", None, "not a JSON object");
        check(r#"{"list":[{"number":1},{"number":"x"}]}"#, Some("list[1].number"), "invalid type: string");
        check(r#"{"list":[{"number":1.5}]}"#, Some("list[0].number"), "invalid type: floating point");
        check(r#"{"list":[],"name":3}"#, Some("name"), "expected a string");
        check(r#"{"list":[],"list":[]}"#, None, "duplicate field");
        assert!(parse::<Outer>(br#"{"list":[],"name":null,"nosuch":1}"#).is_ok());
        let deep = "[".repeat(100_000);
        assert!(parse::<Outer>(format!("{{\"list\":{deep}").as_bytes()).is_err());
        assert!(parse::<Outer>(format!("{{\"nosuch\":{deep}").as_bytes()).is_err());
        assert!(parse::<Outer>(b"{\"list\":[],\"name\":\"\xff\"}").is_err());
    }
}
