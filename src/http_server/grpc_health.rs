//! `grpc.health.v1`: readiness for those who speak gRPC.

use std::pin::Pin;

use futures::stream::{self, Stream};
use tokio::time;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::admin::AdminState;
use super::readiness::Standing;
use crate::clock::MonoNanos;
use crate::telemetry::labels::HttpRoute;

/// Where gRPC has it.
pub const PATH: &str = HttpRoute::GrpcHealth.as_str();

/// The names that are answered: the whole server, and the server by its name.
const SERVICES: [&str; 2] = ["", "radiosonde"];

/// The service over `state`.
#[must_use]
pub fn service(state: AdminState) -> HealthServer<impl Health> {
    HealthServer::new(GrpcHealth(state))
}

struct GrpcHealth(AdminState);

type Answers = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Health for GrpcHealth {
    type WatchStream = Answers;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        if !SERVICES.contains(&service.as_str()) {
            return Err(Status::not_found("there is no service of this name; ask for \"\" or \"radiosonde\""));
        }
        Ok(Response::new(answer(Standing::of(&self.0).serving())))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Answers>, Status> {
        let service = request.into_inner().service;
        if !SERVICES.contains(&service.as_str()) {
            let unknown = stream::iter([Ok(answer(ServingStatus::ServiceUnknown))]);
            return Ok(Response::new(Box::pin(stream::StreamExt::chain(unknown, stream::pending()))));
        }
        let answers = stream::unfold(Watch::new(self.0.clone()), |mut watch| async move {
            let serving = watch.next().await?;
            Some((Ok(answer(serving)), watch))
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

impl Standing {
    fn serving(&self) -> ServingStatus {
        if self.judge(MonoNanos::now()).ready { ServingStatus::Serving } else { ServingStatus::NotServing }
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

/// One watcher: what it was told last, and what may change that.
struct Watch {
    state: AdminState,
    told: Option<ServingStatus>,
}

impl Watch {
    fn new(state: AdminState) -> Self {
        Self { state, told: None }
    }

    /// The next answer that differs from the last one; the first at once.
    async fn next(&mut self) -> Option<ServingStatus> {
        let status = self.state.tokenizer_manager.status();
        let (mut report, mut verdict) = (status.watch(), status.watch_verdict());
        loop {
            report.mark_unchanged();
            verdict.mark_unchanged();
            let serving = Standing::of(&self.state).serving();
            if self.told != Some(serving) {
                self.told = Some(serving);
                return self.told;
            }
            // A verdict goes stale without anybody saying so: look again after a while, too.
            let stale = self.state.self_probe_interval.unwrap_or(self.state.timeout);
            tokio::select! {
                changed = report.changed() => changed.ok()?,
                changed = verdict.changed() => changed.ok()?,
                _ = time::timeout(stale, std::future::pending::<()>()) => {}
            }
        }
    }
}
