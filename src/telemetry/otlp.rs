//! Trace and log export: two services, one for each process, written by the frontend and sent to one collector.

mod exporter;
pub mod logs;
mod processor;
mod runtime;
mod settings;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, ResourceDetector};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use opentelemetry_semantic_conventions::attribute::{SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION};

use super::metrics::ExportMetrics;
use super::spans::names::{SCOPE, Side};
use exporter::Health;
use processor::{Account, CountingProcessor};
use runtime::ExportRuntime;
use settings::{Destination, Signal};

/// Where traces or logs go, as the command line says it. The standard environment variables fill in what is not said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtlpConfig {
    /// The collector's URL.
    pub endpoint: Option<String>,
    /// How to speak to it.
    pub protocol: Option<OtlpProtocol>,
}

/// Wire protocols of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// gRPC, usually port 4317.
    Grpc,
    /// HTTP with protobuf bodies, usually port 4318.
    HttpProtobuf,
}

/// Why trace export could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The endpoint is no URL with a scheme.
    #[error("'{0}' is no OTLP endpoint: write http://host:port or https://host:port")]
    Endpoint(String),
    /// An environment variable has a value that is not supported.
    #[error("{variable}='{value}' is not supported: use {legal}")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// What it says.
        value: String,
        /// What it may say.
        legal: &'static str,
    },
    /// The exporter refused its settings.
    #[error("cannot build the exporter")]
    Exporter(#[from] ExporterBuildError),
    /// The thread of the exporter could not start.
    #[error("cannot start the export thread")]
    Thread(#[from] std::io::Error),
}

/// The writers of spans: one for each service, so that each span carries the process that it tells of.
#[derive(Debug)]
pub struct Tracers {
    frontend: SdkTracer,
    engine: SdkTracer,
    /// 0 as long as no engine has started.
    engine_pid: AtomicU32,
    providers: [SdkTracerProvider; 2],
    account: Arc<Account>,
    /// Last, so that it is there as long as anybody exports.
    _runtime: Option<ExportRuntime>,
}

impl Tracers {
    /// Sets up export to where `config` and the environment say; without an endpoint, spans get ids and go nowhere.
    ///
    /// # Errors
    /// An endpoint or a variable is wrong, or the export thread cannot start.
    pub fn new(config: &OtlpConfig, metrics: ExportMetrics) -> Result<Self, OtlpError> {
        let destination = settings::resolve(Signal::Traces, config, &|name| std::env::var(name).ok())?;
        let runtime = match &destination {
            Some(Destination { protocol: OtlpProtocol::Grpc, .. }) => Some(ExportRuntime::start()?),
            _ => None,
        };
        let account = Arc::new(Account::new(metrics));
        let health = Arc::new(Health::default());
        let provider = |side| -> Result<SdkTracerProvider, OtlpError> {
            let builder = SdkTracerProvider::builder().with_resource(resource(side));
            let Some(destination) = &destination else { return Ok(builder.build()) };
            let _inside = runtime.as_ref().map(ExportRuntime::enter);
            let exporter = exporter::build(destination, Arc::clone(&account), Arc::clone(&health))?;
            Ok(builder.with_span_processor(CountingProcessor::new(exporter, Arc::clone(&account))).build())
        };
        let providers = [provider(Side::Frontend)?, provider(Side::Engine)?];
        Ok(Self {
            frontend: providers[0].tracer(SCOPE),
            engine: providers[1].tracer(SCOPE),
            engine_pid: AtomicU32::new(0),
            providers,
            account,
            _runtime: runtime,
        })
    }

    /// Writes spans of the frontend.
    #[must_use]
    pub fn frontend(&self) -> &SdkTracer {
        &self.frontend
    }

    /// Writes spans of the engine.
    #[must_use]
    pub fn engine(&self) -> &SdkTracer {
        &self.engine
    }

    /// An engine started; spans of it carry its process id from now on.
    pub fn engine_started(&self, pid: u32) {
        self.engine_pid.store(pid, Ordering::Relaxed);
    }

    /// The process id of the engine that started last.
    #[must_use]
    pub fn engine_pid(&self) -> Option<u32> {
        Some(self.engine_pid.load(Ordering::Relaxed)).filter(|&pid| pid != 0)
    }

    /// Sends what is queued and stops, within `deadline`, whatever the collector does. Blocks the calling thread, so
    /// not for an async one. What could not be sent is counted and told in one warning.
    pub fn shutdown(&self, deadline: Duration) {
        let ends_at = Instant::now() + deadline;
        let (done, all_done) = mpsc::channel();
        for provider in self.providers.clone() {
            let done = done.clone();
            // On a thread of its own, which is left behind if the collector holds it: the process ends anyway.
            let flush = move || drop(done.send(provider.shutdown_with_timeout(deadline)));
            if let Err(error) = thread::Builder::new().name("otlp-shutdown".to_owned()).spawn(flush) {
                tracing::warn!(%error, "spans cannot be flushed");
            }
        }
        drop(done);
        for _ in &self.providers {
            // An early error means that the other end is gone, which is an answer too.
            let _ = all_done.recv_timeout(ends_at.saturating_duration_since(Instant::now()));
        }
        let lost = self.account.close();
        if lost > 0 {
            tracing::warn!(spans = lost, "spans were lost: the collector did not take them");
        }
    }
}

/// Of each side, for the life of this process: its traces and its logs name the same one.
static INSTANCES: LazyLock<[String; 2]> = LazyLock::new(|| [(); 2].map(|()| uuid::Uuid::new_v4().to_string()));

/// What the spans of `side` carry: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` win over the defaults, and the
/// engine's name follows the frontend's.
fn resource(side: Side) -> Resource {
    let given = EnvResourceDetector::new().detect();
    let given = |key: &'static str| given.get(&Key::from_static_str(key)).map(|value| value.to_string());
    let named = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    let name = match (named.or_else(|| given(SERVICE_NAME)), side) {
        (None, side) => side.service().to_owned(),
        (Some(name), Side::Frontend) => name,
        (Some(name), Side::Engine) => format!("{name}-engine"),
    };
    let version = given(SERVICE_VERSION).unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    let instance = given(SERVICE_INSTANCE_ID).unwrap_or_else(|| INSTANCES[side as usize].clone());
    Resource::builder()
        .with_service_name(name)
        .with_attribute(KeyValue::new(SERVICE_VERSION, version))
        .with_attribute(KeyValue::new(SERVICE_INSTANCE_ID, instance))
        .build()
}
