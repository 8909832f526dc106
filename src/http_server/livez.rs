//! Would a restart help? `/livez` says no unless the process is beyond hope.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header::CACHE_CONTROL};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::admin::AdminState;
use crate::clock::MonoNanos;

const MEANING: &str = "503 here may restart the process; a failing /readyz only takes it out of the rotation";

/// `GET /livez`: 503 only if nothing but a restart can help.
pub async fn livez(State(state): State<AdminState>) -> Response {
    let report = state.tokenizer_manager.status().report();
    let lag = state.tokenizer_manager.lag().task.overdue(MonoNanos::now());
    let beyond_hope = beyond_hope(report.engine_dead.then_some(&report.reason), lag, state.timeout);
    let status = if beyond_hope.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let reason = beyond_hope.as_deref().unwrap_or("the process is not beyond hope");
    let body = json!({ "alive": status == StatusCode::OK, "reason": reason, "meaning": MEANING });
    let mut response = (status, Json(body)).into_response();
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A sick engine is none of this: it may come back, and a restart costs a load. A dead one that stays dead, or a
/// frontend that stands still for longer than any probe may take, will not.
fn beyond_hope(engine_dead: Option<&String>, lag: Duration, limit: Duration) -> Option<String> {
    if let Some(reason) = engine_dead {
        return Some(format!("the engine is dead and is not started again: {reason}"));
    }
    (lag > limit).then(|| format!("the main runtime has stood still for {} ms", lag.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hope() {
        let second = Duration::from_secs(1);
        assert_eq!(beyond_hope(None, second, second), None);
        assert_eq!(
            beyond_hope(None, 2 * second, second).as_deref(),
            Some("the main runtime has stood still for 2000 ms")
        );
        assert!(beyond_hope(Some(&"killed".to_owned()), Duration::ZERO, second).is_some());
    }
}
