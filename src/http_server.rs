//! Which path goes to which handler, on which listener.

pub mod health;
pub mod generate;
pub mod openai;
pub mod sampling;
pub mod pause;
pub mod flush_cache;
pub mod admin;
pub mod drills;
pub mod readiness;
pub mod livez;
pub mod grpc_health;
pub mod trace_layer;
pub mod measure;
pub mod error;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower_http::catch_panic::CatchPanicLayer;

use crate::telemetry::labels::{RejectReason, RequestEndpoint};
use crate::telemetry::metrics::Metrics;
use admin::AdminState;
use error::ApiError;
use generate::ApiState;
use health::HealthState;

/// Every path of the public listener. `max_body_bytes` bounds what is read of a request.
pub fn router(health: HealthState, max_body_bytes: usize) -> Router {
    let (metrics, all) = (Arc::clone(&health.metrics), Arc::clone(&health.metrics));
    let api = ApiState { tokenizer_manager: health.tokenizer_manager.clone() };
    let requests = generate::routes()
        .merge(openai::routes())
        .merge(pause::routes())
        .merge(flush_cache::routes())
        .with_state(api)
        .layer(DefaultBodyLimit::max(max_body_bytes))
        .route_layer(middleware::from_fn_with_state(metrics, count_refusals))
        .route_layer(middleware::from_fn(trace_layer::trace));
    guarded(requests.merge(about_health(health)), all)
}

/// Every path of the admin listener: what describes health, and health as gRPC has it.
pub fn admin_router(health: HealthState) -> Router {
    let (grpc, all) = (grpc_health::service(AdminState::from(&health)), Arc::clone(&health.metrics));
    guarded(about_health(health).route_service(grpc_health::PATH, grpc), all)
}

/// The probes and what else describes health. Nothing here but the probes waits for anybody.
fn about_health(health: HealthState) -> Router {
    let admin = AdminState::from(&health);
    let probes = Router::new()
        .route("/health", get(health::health))
        .route("/health_generate", get(health::health_generate))
        .with_state(health)
        .route_layer(middleware::from_fn(trace_layer::trace));
    let untraced = Router::new()
        .route("/livez", get(livez::livez))
        .route("/readyz", get(readiness::readyz))
        .route("/startupz", get(readiness::startupz))
        .route("/ready", get(readiness::ready))
        .route("/ping", get(readiness::ping))
        .route("/metrics", get(admin::metrics))
        .route("/debug/probes", get(admin::probes))
        .route("/debug/probes/{probe_id}", get(admin::probe))
        .route("/debug/incidents", get(admin::incidents))
        .route("/debug/fault", drills::route())
        .with_state(admin);
    probes.merge(untraced)
}

/// What no handler does: unknown paths, wrong methods, panics; and all of it is counted.
fn guarded(router: Router, metrics: Arc<Metrics>) -> Router {
    let panics = CatchPanicLayer::custom(|_| {
        ApiError::plain(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "the handler failed").into_response()
    });
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(panics)
        .layer(middleware::from_fn_with_state(metrics, measure::measure))
}

/// Counts the answers that carry a refusal.
async fn count_refusals(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let endpoint = request
        .extensions()
        .get::<MatchedPath>()
        .and_then(|path| RequestEndpoint::ALL.iter().copied().find(|endpoint| endpoint.as_str() == path.as_str()));
    let response = next.run(request).await;
    if let (Some(endpoint), Some(reason)) = (endpoint, response.extensions().get::<RejectReason>()) {
        metrics.requests.rejected(endpoint, *reason);
        let status = response.status().as_u16();
        match reason {
            RejectReason::Invalid => tracing::debug!(%endpoint, %reason, status, "request not accepted"),
            RejectReason::QueueFull | RejectReason::NotServing => {
                tracing::warn!(%endpoint, %reason, status, "request refused");
            }
        }
    }
    response
}

async fn not_found(request: Request) -> ApiError {
    let path: String = request.uri().path().chars().take(200).collect();
    ApiError::plain(StatusCode::NOT_FOUND, "not_found_error", format!("there is nothing at {path}"))
}

async fn method_not_allowed(request: Request) -> ApiError {
    let message = format!("{} is not allowed at {}", request.method(), request.uri().path());
    ApiError::plain(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
}
