//! Trace and log export: two services, one for each process, written by the frontend and sent to one collector.

pub mod variables;
mod signal;
mod settings;
mod tls;
mod sampling;
mod sampler;
mod undecided;
mod pipeline;
mod account;
mod exporter;
mod http_client;
pub mod logs;
mod runtime;
mod resource;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry::propagation::TextMapCompositePropagator;
use opentelemetry::trace::{TraceContextExt, TraceId, TracerProvider};
use opentelemetry::{Context, global};
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider, SpanProcessor as _,
};

use super::labels::SpanLoss;
use super::metrics::ExportMetrics;
use super::spans::names::{SCOPE, Side};
use account::Account;
use exporter::Health;
use pipeline::{Entrance, Pipeline};
use resource::resource;
use runtime::ExportRuntime;
use sampler::RecordAll;
use sampling::Policy;
pub use sampling::{Ending, SamplingConfig, Share, TraceLevel};
use settings::{Destination, Queue};
use signal::Signal;
use undecided::{Limits, Undecided};
use variables::Env;

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

/// Why the export of traces or logs could not be set up.
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
    /// A file that a variable names cannot be read.
    #[error("{variable}: cannot read '{path}'")]
    File {
        /// The variable.
        variable: &'static str,
        /// Its value.
        path: String,
        /// What is wrong.
        source: std::io::Error,
    },
    /// A file that a variable names holds something else.
    #[error("{variable}: there is no {what} in '{path}', or it is not in PEM")]
    Pem {
        /// The variable.
        variable: &'static str,
        /// Its value.
        path: String,
        /// What should be in it.
        what: &'static str,
    },
    /// A variable makes sense only with another one.
    #[error("{given} is set and {missing} is not: a client certificate needs both")]
    Alone {
        /// The one that is set.
        given: &'static str,
        /// The one that is not.
        missing: &'static str,
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
    policy: Arc<Policy>,
    /// `None`: nothing is exported.
    pipeline: Option<Arc<Pipeline>>,
    /// Last, so that it is there as long as anybody exports.
    _runtime: Option<ExportRuntime>,
}

impl Tracers {
    /// Sets up export of what `sampling` keeps to where `config` and the environment say; without an endpoint, spans get ids and go nowhere.
    ///
    /// # Errors
    /// An endpoint or a variable is wrong, or the export thread cannot start.
    pub fn new(config: &OtlpConfig, sampling: &SamplingConfig, metrics: ExportMetrics) -> Result<Self, OtlpError> {
        let env = Env(&|name| std::env::var(name).ok());
        let destination = settings::destination(Signal::Traces, config, &env)?;
        let policy = Arc::new(settings::policy(sampling, &env)?);
        propagate(settings::continues_traces(&env)?);
        let runtime = match &destination {
            Some(Destination { protocol: OtlpProtocol::Grpc, .. }) => Some(ExportRuntime::start()?),
            _ => None,
        };
        let pipeline = match &destination {
            Some(destination) => {
                let _inside = runtime.as_ref().map(ExportRuntime::enter);
                Some(Arc::new(pipeline(destination, &env, Arc::clone(&policy), metrics)?))
            }
            None => None,
        };
        let providers = [Side::Frontend, Side::Engine].map(|side| provider(side, pipeline.as_ref()));
        Ok(Self {
            frontend: providers[0].tracer(SCOPE),
            engine: providers[1].tracer(SCOPE),
            engine_pid: AtomicU32::new(0),
            providers,
            policy,
            pipeline,
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

    /// Changes how many good traces are kept.
    pub fn set_level(&self, level: TraceLevel) {
        self.policy.set_level(level);
    }

    /// Whether traces go to a collector.
    #[must_use]
    pub fn are_exported(&self) -> bool {
        self.pipeline.is_some()
    }

    /// The server's status has changed: the trace of the next probe is kept.
    pub fn status_changed(&self) {
        self.policy.status_changed();
    }

    /// The trace below `root`, if it is kept when it ends so after `took`, asked before its root span has ended: what an
    /// exemplar may point to. What is kept may still be lost on its way.
    #[must_use]
    pub fn kept(&self, root: &Context, ending: Ending, took: Duration) -> Option<TraceId> {
        let root = root.span().span_context().clone();
        let keeps = root.is_valid() && self.pipeline.is_some() && self.policy.foresees(root.is_sampled(), ending, took);
        keeps.then(|| root.trace_id())
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
        if let Some(pipeline) = &self.pipeline {
            pipeline.account.lost(SpanLoss::Shutdown, pipeline.undecided.abandon());
            pipeline.account.close();
        }
    }
}

/// Incoming `traceparent` headers are read, or are not.
fn propagate(continues_traces: bool) {
    if continues_traces {
        global::set_text_map_propagator(TraceContextPropagator::new());
    } else {
        global::set_text_map_propagator(TextMapCompositePropagator::new(Vec::new()));
    }
}

fn pipeline(
    destination: &Destination,
    env: &Env<'_>,
    policy: Arc<Policy>,
    metrics: ExportMetrics,
) -> Result<Pipeline, OtlpError> {
    let Queue { capacity, batch, delay } = settings::queue(Signal::Traces, env)?;
    let account = Arc::new(Account::new(capacity, metrics));
    let health = Arc::new(Health::default());
    let batches = |side| -> Result<BatchSpanProcessor, OtlpError> {
        let exporter = exporter::build(destination, Arc::clone(&account), Arc::clone(&health))?;
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(capacity)
            .with_max_export_batch_size(batch)
            .with_scheduled_delay(delay);
        let mut batches = BatchSpanProcessor::new(exporter, config.build());
        batches.set_resource(&resource(side));
        Ok(batches)
    };
    Ok(Pipeline {
        policy,
        undecided: Undecided::new(Limits::default()),
        longest_text: settings::longest_text(env)?,
        frontend: batches(Side::Frontend)?,
        engine: batches(Side::Engine)?,
        account,
    })
}

fn provider(side: Side, pipeline: Option<&Arc<Pipeline>>) -> SdkTracerProvider {
    let builder = SdkTracerProvider::builder();
    let Some(pipeline) = pipeline else { return builder.build() };
    let entrance = Entrance { side, pipeline: Arc::clone(pipeline) };
    builder.with_sampler(RecordAll(Arc::clone(&pipeline.policy))).with_span_processor(entrance).build()
}
