//! `/configure_logging` and `/set_trace_level`, as SGLang has them: how much is told, changed while the server runs.

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::address::ApiQuery;
use super::error::ApiError;
use super::generate::body::ApiJson;
use crate::telemetry::Telemetry;
use crate::telemetry::otlp::TraceLevel;
use crate::tokenizer_manager::TokenizerManager;

/// What these handlers hold.
#[derive(Clone)]
pub struct Levels {
    /// The way to the engine, which logs too.
    pub manager: TokenizerManager,
    /// What is changed.
    pub telemetry: Telemetry,
}

/// Both paths.
pub fn routes() -> Router<Levels> {
    Router::new()
        .route("/configure_logging", post(configure_logging))
        .route("/set_trace_level", get(set_trace_level).post(set_trace_level))
}

/// SGLang's `ConfigureLoggingReq`. What is left out or null stays as it is.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoggingBody {
    /// A level, or targets with levels as in `radiosonde=debug,warn`.
    log_level: Option<String>,
    /// A line for each finished request, whatever the level: its id, sizes and times.
    log_requests: Option<bool>,
    /// `0`, the only one: no text and no parameter of a request is ever logged.
    log_requests_level: Option<i64>,
    /// Refused, as all that follow.
    log_requests_format: Option<Value>,
    dump_requests_folder: Option<Value>,
    dump_requests_threshold: Option<Value>,
    dump_requests_exclude_meta_keys: Option<Value>,
    crash_dump_folder: Option<Value>,
}

/// What is logged from now on.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Logging {
    /// A level, or targets with levels.
    pub log_level: String,
    /// Whether each finished request has a line; null: as `log_level` says.
    pub log_requests: Option<bool>,
}

impl LoggingBody {
    fn check(&self) -> Result<(), ApiError> {
        let no_texts = "texts of requests are never written anywhere";
        let refused = [
            ("log_requests_format", &self.log_requests_format, "the shape of lines is decided at start: --log-format"),
            ("dump_requests_folder", &self.dump_requests_folder, no_texts),
            ("dump_requests_threshold", &self.dump_requests_threshold, no_texts),
            ("dump_requests_exclude_meta_keys", &self.dump_requests_exclude_meta_keys, no_texts),
            ("crash_dump_folder", &self.crash_dump_folder, "reports of crashes are at /debug/incidents: --incidents"),
        ];
        if let Some((field, _, why)) = refused.iter().find(|(_, given, _)| given.is_some()) {
            return Err(ApiError::invalid(*field, format!("{field} is not supported: {why}")));
        }
        match self.log_requests_level {
            None | Some(0) => Ok(()),
            Some(level) => {
                let message =
                    format!("log_requests_level is {level}; it must be 0: a line holds sizes and times alone");
                Err(ApiError::invalid("log_requests_level", message))
            }
        }
    }
}

async fn configure_logging(
    State(levels): State<Levels>,
    ApiJson(body): ApiJson<LoggingBody>,
) -> Result<Json<Logging>, ApiError> {
    body.check()?;
    let place = levels.manager.control_place()?;
    let changed = levels.telemetry.log_control.change(body.log_level.as_deref(), body.log_requests);
    let chosen = changed.map_err(|error| ApiError::invalid("log_level", format!("log_level: {error}")))?;
    levels.manager.set_engine_log(place, chosen.directives());
    Ok(Json(Logging { log_level: chosen.filter, log_requests: chosen.requests }))
}

/// What `/set_trace_level` is asked for.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct TraceLevelQuery {
    /// `0` to `3`.
    level: Option<String>,
}

/// What is traced from now on.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Tracing {
    /// As it was asked for.
    pub level: u8,
    /// Whether there is a collector that traces go to.
    pub exported: bool,
}

/// SGLang's levels are degrees of detail. A trace is whole here, so they are degrees of how many are kept.
async fn set_trace_level(
    State(levels): State<Levels>,
    ApiQuery(query): ApiQuery<TraceLevelQuery>,
) -> Result<Json<Tracing>, ApiError> {
    let (level, kept) = match query.level.as_deref() {
        Some("0") => (0, TraceLevel::Off),
        Some("1") => (1, TraceLevel::Shares),
        Some("2") => (2, TraceLevel::All),
        Some("3") => (3, TraceLevel::All),
        other => {
            let given = other.map_or_else(String::new, |level| level.chars().take(40).collect());
            return Err(ApiError::invalid("level", format!("level is '{given}'; it must be 0, 1, 2 or 3")));
        }
    };
    levels.telemetry.tracers.set_level(kept);
    tracing::info!(trace_level = level, "how much is traced has changed");
    Ok(Json(Tracing { level, exported: levels.telemetry.tracers.are_exported() }))
}
