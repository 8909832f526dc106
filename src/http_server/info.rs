//! What is served, how it is configured and how busy it is, as SGLang tells it; nothing here waits for the engine.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::address::ApiQuery;
use super::admin::AdminState;
use super::endpoints::aliases;
use super::error::ApiError;
use crate::engine_view::Link;
use crate::io_struct::{Heartbeat, KernelBackend, KvCacheDtype, ModelSource};
use crate::telemetry::exposition::loads::{Load, timestamp};
use crate::tokenizer_manager::ServedModel;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The paths, and the older names of some of them.
pub fn routes() -> Router<AdminState> {
    Router::new()
        .route("/", get(root))
        .route("/model_info", get(model_info))
        .route(aliases::MODEL_INFO, get(model_info))
        .route("/server_info", get(server_info))
        .route(aliases::SERVER_INFO, get(server_info))
        .route("/v1/loads", get(loads))
}

async fn root() -> Json<Value> {
    Json(json!({"name": "radiosonde", "version": VERSION, "health": "/health"}))
}

/// `GET /model_info`
async fn model_info(State(state): State<AdminState>) -> Result<Json<Value>, ApiError> {
    let model = state.tokenizer_manager.model()?;
    let path = path(&model.info.source);
    Ok(Json(json!({
        "model_path": path,
        "tokenizer_path": path,
        "served_model_name": model.served_name,
        "is_generation": model.info.task.is_generation(),
        "embedding_dimensions": model.info.task.dimensions(),
        "preferred_sampling_params": null,
        "weight_version": "default",
        "has_image_understanding": false,
        "has_audio_understanding": false,
        "model_type": model.info.architecture,
        "architectures": [model.info.architecture],
        "vocab_size": model.info.vocab_size,
        "context_length": model.info.context_length,
        "eos_token_ids": model.info.eos_token_ids,
        "has_chat_template": model.chat_template.is_some(),
    })))
}

/// `GET /server_info`
async fn server_info(State(state): State<AdminState>) -> Result<Json<Value>, ApiError> {
    let model = state.tokenizer_manager.model()?;
    Ok(Json(json!({
        "version": VERSION,
        "status": state.tokenizer_manager.status().report().status,
        "model_path": path(&model.info.source),
        "served_model_name": model.served_name,
        "context_length": model.info.context_length,
        "max_total_num_tokens": model.info.max_total_tokens,
        "max_running_requests": model.limits.max_running_requests,
        "max_queued_requests": model.limits.max_queued_requests,
        "chunked_prefill_size": model.limits.chunked_prefill_size,
        "max_step_time_seconds": model.limits.max_step_time.as_secs_f64(),
        "prefill_budget_tokens": state.tokenizer_manager.engine().snapshot().heartbeat.prefill_budget,
        "enable_priority_scheduling": model.limits.priority_scheduling,
        "page_size": model.limits.page_size,
        "kernels": model.info.kernels.map(KernelBackend::as_str),
        "kv_cache_dtype": model.info.kv_cache_dtype.map(KvCacheDtype::as_str),
        "tp_size": 1,
        "dp_size": 1,
        "pp_size": 1,
        "load_seconds": model.info.load_seconds,
        "health_check_timeout_seconds": state.timeout.as_secs_f64(),
        "internal_states": [load(&state, &model)],
    })))
}

/// What a caller of `/v1/loads` can choose.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct LoadsQuery {
    /// `0`, the only one.
    dp_rank: Option<String>,
    /// Some of core, memory, queues, all; with commas.
    include: Option<String>,
    /// `json` (default) or `prometheus`.
    format: Option<String>,
}

/// Sections of SGLang's; those without anything to say here are left out of the answer.
const SECTIONS: [&str; 7] = ["core", "memory", "spec", "lora", "disagg", "queues", "all"];

/// `GET /v1/loads`
async fn loads(State(state): State<AdminState>, ApiQuery(query): ApiQuery<LoadsQuery>) -> Result<Response, ApiError> {
    let model = state.tokenizer_manager.model()?;
    let sections = sections(query.include.as_deref())?;
    if let Some(rank) = query.dp_rank.filter(|rank| rank != "0") {
        let rank: String = rank.chars().take(40).collect();
        return Err(ApiError::invalid("dp_rank", format!("dp_rank is '{rank}'; there is only rank 0")));
    }
    let load = load(&state, &model);
    match query.format.as_deref() {
        None | Some("json") => Ok(Json(document(&state, &load, &sections)).into_response()),
        Some("prometheus") => {
            Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], load.prometheus()).into_response())
        }
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            Err(ApiError::invalid("format", format!("format is '{other}'; it must be json or prometheus")))
        }
    }
}

fn sections(include: Option<&str>) -> Result<Vec<&str>, ApiError> {
    let asked: Vec<&str> = include.unwrap_or("all").split(',').map(str::trim).collect();
    match asked.iter().find(|section| !SECTIONS.contains(section)) {
        Some(unknown) => {
            let unknown: String = unknown.chars().take(40).collect();
            let message = format!("include holds '{unknown}'; it must be some of {}", SECTIONS.join(", "));
            Err(ApiError::invalid("include", message))
        }
        None => Ok(asked),
    }
}

fn document(state: &AdminState, load: &Load, sections: &[&str]) -> Value {
    let wanted = |section: &str| sections.contains(&section) || sections.contains(&"all");
    let mut of_rank = json!(load);
    of_rank["dp_rank"] = json!(0);
    if wanted("memory") {
        of_rank["memory"] = json!({ "token_capacity": load.max_total_num_tokens });
    }
    if wanted("queues") {
        let held = if state.tokenizer_manager.engine().snapshot().paused { load.num_total_reqs } else { 0 };
        of_rank["queues"] = json!({"waiting": load.num_waiting_reqs, "grammar": 0, "paused": held});
    }
    json!({
        "timestamp": timestamp(),
        "version": VERSION,
        "dp_rank_count": 1,
        "loads": [of_rank],
        "aggregate": {
            "total_running_reqs": load.num_running_reqs,
            "total_waiting_reqs": load.num_waiting_reqs,
            "total_reqs": load.num_total_reqs,
            "avg_token_usage": load.token_usage,
            "avg_throughput": load.gen_throughput,
            "avg_utilization": load.utilization,
        }
    })
}

fn load(state: &AdminState, model: &ServedModel) -> Load {
    let engine = state.tokenizer_manager.engine().snapshot();
    // A dead engine holds nothing, whatever it said last.
    let dead = matches!(engine.link, Link::Dead { .. });
    let heartbeat = if dead { Heartbeat::default() } else { engine.heartbeat };
    let (running, waiting) = (heartbeat.running, heartbeat.waiting);
    let share = |part: u32, whole: u32| f64::from(part) / f64::from(whole.max(1));
    Load {
        num_running_reqs: running.into(),
        num_waiting_reqs: waiting.into(),
        num_total_reqs: u64::from(running) + u64::from(waiting),
        num_used_tokens: heartbeat.kv_used_tokens.into(),
        max_total_num_tokens: model.info.max_total_tokens.into(),
        token_usage: share(heartbeat.kv_used_tokens, model.info.max_total_tokens),
        gen_throughput: state.metrics.requests.generation_throughput(),
        cache_hit_rate: state.metrics.requests.cache_hit_rate(),
        utilization: share(running, model.limits.max_running_requests),
        max_running_requests: model.limits.max_running_requests.into(),
    }
}

fn path(source: &ModelSource) -> String {
    match source {
        ModelSource::Gguf(path) | ModelSource::Folder(path) => path.display().to_string(),
        ModelSource::Scripted(script) if script.is_empty() => "scripted".to_owned(),
        ModelSource::Scripted(script) => format!("scripted:{script}"),
    }
}
