//! Which path goes to which handler, on which listener.

pub mod health;
pub mod address;
pub mod apart;
pub mod endpoints;
pub mod openapi;
pub mod auth;
pub mod generate;
pub mod embed;
pub mod openai;
pub mod parse;
pub mod sampling;
pub mod pause;
pub mod flush_cache;
pub mod abort_request;
pub mod levels;
pub mod info;
pub mod admin;
pub mod drills;
pub mod readiness;
pub mod livez;
pub mod grpc_health;
pub mod trace_layer;
pub mod measure;
pub mod error;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use tower::util::option_layer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::config::{HttpArgs, Origin, ParserArgs};
use crate::telemetry::labels::{RejectReason, RequestEndpoint};
use crate::telemetry::metrics::Metrics;
use admin::AdminState;
use auth::Keys;
use error::ApiError;
use generate::ApiState;
use generate::body::BodyLimit;
use health::HealthState;
use levels::Levels;

/// What is asked of those who ask.
#[derive(Debug, Clone)]
pub struct Policy {
    /// How much is read of a request.
    pub max_body_bytes: usize,
    /// What they must bring.
    pub keys: Keys,
    /// Where their pages may come from.
    pub origins: Vec<Origin>,
    /// What is read out of outputs.
    pub parsers: ParserArgs,
}

impl Policy {
    /// That of the command line.
    #[must_use]
    pub fn new(args: &HttpArgs) -> Self {
        Self {
            max_body_bytes: args.max_body_mib as usize * (1 << 20),
            keys: Keys::new(&args.access),
            origins: args.access.cors_allow_origin.clone(),
            parsers: args.parsers,
        }
    }
}

/// Every path of the public listener.
pub fn router(health: HealthState, levels: Levels, policy: Policy) -> Router {
    let (metrics, all) = (Arc::clone(&health.metrics), Arc::clone(&health.metrics));
    let manager = health.tokenizer_manager.clone();
    let api = ApiState { tokenizer_manager: health.tokenizer_manager.clone(), parsers: policy.parsers };
    let requests = generate::routes()
        .merge(embed::routes())
        .merge(openai::routes())
        .merge(pause::routes())
        .merge(flush_cache::routes())
        .merge(abort_request::routes())
        .merge(parse::routes())
        .with_state(api)
        .layer(DefaultBodyLimit::max(policy.max_body_bytes))
        .layer(Extension(BodyLimit(policy.max_body_bytes)))
        .route_layer(middleware::from_fn_with_state(manager, embed::fits_the_model))
        .route_layer(middleware::from_fn_with_state(metrics, count_refusals))
        .route_layer(middleware::from_fn(trace_layer::trace));
    let levels = levels::routes()
        .with_state(levels)
        .layer(DefaultBodyLimit::max(policy.max_body_bytes))
        .layer(Extension(BodyLimit(policy.max_body_bytes)));
    let info = info::routes().with_state(AdminState::from(&health)).merge(openapi::routes()).merge(levels);
    guarded(requests.merge(info).merge(about_health(health)), policy, all)
}

/// Every path of the admin listener: what describes health, and health as gRPC has it.
pub fn admin_router(health: HealthState, policy: Policy) -> Router {
    let (grpc, all) = (grpc_health::service(AdminState::from(&health)), Arc::clone(&health.metrics));
    guarded(about_health(health).route_service(grpc_health::PATH, grpc), policy, all)
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

/// What no handler does: keys, unknown paths, wrong methods, panics; and all of it is counted.
fn guarded(router: Router, policy: Policy, metrics: Arc<Metrics>) -> Router {
    let panics = CatchPanicLayer::custom(|_| {
        ApiError::plain(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "the handler failed").into_response()
    });
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(panics)
        .layer(middleware::from_fn_with_state(Arc::new(policy.keys), auth::check))
        .layer(option_layer(cors(&policy.origins)))
        .layer(middleware::from_fn_with_state(metrics, measure::measure))
}

/// What browsers are told, if pages of somebody may call.
fn cors(origins: &[Origin]) -> Option<CorsLayer> {
    let allowed = match origins {
        [] => return None,
        some if some.contains(&Origin::Any) => AllowOrigin::any(),
        some => AllowOrigin::list(some.iter().filter_map(|origin| match origin {
            Origin::Any => None,
            Origin::Of(origin) => HeaderValue::from_str(origin).ok(),
        })),
    };
    let methods = [Method::GET, Method::POST, Method::PUT, Method::DELETE];
    let exposed = [trace_layer::X_REQUEST_ID, RETRY_AFTER];
    let layer = CorsLayer::new().allow_origin(allowed).allow_methods(methods).expose_headers(exposed);
    Some(layer.allow_headers(AllowHeaders::mirror_request()))
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
    if let Some(elsewhere) = endpoints::elsewhere(request.uri().path()) {
        return ApiError::not_implemented(elsewhere);
    }
    let path: String = request.uri().path().chars().take(200).collect();
    ApiError::plain(StatusCode::NOT_FOUND, "not_found_error", format!("there is nothing at {path}"))
}

async fn method_not_allowed(request: Request) -> ApiError {
    let message = format!("{} is not allowed at {}", request.method(), request.uri().path());
    ApiError::plain(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
}
