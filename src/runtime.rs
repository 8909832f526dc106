//! Builds, spawns, supervises and drains all stations: the only module that knows them all.

pub mod serve;
pub mod frontend;
pub mod public;
pub mod admin;
pub mod engine_link;
pub mod engine;
pub mod engine_ipc;
pub mod supervisor;
pub mod restarts;
pub mod drain;
pub mod canary;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;

use axum_server::tls_rustls::RustlsConfig;

use crate::config::{self, DrillArgs, HttpArgs, LogArgs, Ratio, TelemetryArgs};
use crate::drills::Drills;
use crate::telemetry::otlp::Share;
use crate::telemetry::{self, LogConfig, OtlpConfig, SamplingConfig, TelemetryConfig};

/// Why a command ends with a failure.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The port cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// https cannot be served.
    #[error("{flag} {}: {why}", path.display())]
    Tls {
        /// Who named the file.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The engine's socket cannot be had.
    #[error("cannot listen for frontends")]
    EngineSocket(#[source] io::Error),
    /// No model.
    #[error(transparent)]
    Model(#[from] crate::model_hub::HubError),
    /// Telemetry cannot start.
    #[error(transparent)]
    Telemetry(#[from] telemetry::TelemetryError),
    /// Logging cannot start.
    #[error(transparent)]
    Log(#[from] telemetry::LogError),
    /// The model cannot be loaded.
    #[error("cannot load the model: {0}")]
    Load(String),
    /// The engine is gone.
    #[error("the engine is gone: {0}")]
    EngineGone(String),
    /// The operating system refused something that never fails.
    #[error(transparent)]
    Os(#[from] io::Error),
}

/// The listeners of a frontend.
#[derive(Debug)]
pub struct Listeners {
    /// For everybody.
    pub public: TcpListener,
    /// For those who watch: served by a thread of its own.
    pub admin: TcpListener,
    /// For everybody by https.
    pub tls: Option<RustlsConfig>,
}

impl Listeners {
    /// Listens before anything is loaded, so that a taken port is known at once.
    ///
    /// # Errors
    /// An address is in use or not ours, or https cannot be served.
    pub fn bind(args: &HttpArgs) -> Result<Self, RuntimeError> {
        let (admin_host, admin_port) = args.admin_address();
        let tls = public::tls(&args.access)?;
        Ok(Self { public: listen(args.host, args.port)?, admin: listen(admin_host, admin_port)?, tls })
    }

    /// Where everybody asks.
    ///
    /// # Errors
    /// The listener has no address.
    pub fn url(&self) -> io::Result<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}", self.public.local_addr()?))
    }
}

fn listen(host: IpAddr, port: u16) -> Result<TcpListener, RuntimeError> {
    let address = SocketAddr::new(host, port);
    let listener = TcpListener::bind(address).map_err(|source| RuntimeError::Listen { address, source })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What may go wrong on purpose.
fn drills(args: &DrillArgs) -> Drills {
    if args.enable_drills { Drills::enabled(&args.fault) } else { Drills::default() }
}

/// Workers of the frontend's runtime.
const FRONTEND_WORKERS: usize = 2;

/// For the drill that blocks the frontend: one task for each worker.
#[expect(clippy::disallowed_methods, reason = "the runtime spawns; without drills there is nothing to spawn")]
fn drill_workers(drills: &Drills) {
    for _ in 0..if drills.is_enabled() { FRONTEND_WORKERS } else { 0 } {
        tokio::spawn(drills.clone().block_workers());
    }
}

/// The log section in telemetry's terms.
fn log_config(args: &LogArgs) -> LogConfig {
    let format = match args.log_format {
        config::LogFormat::Human => telemetry::LogFormat::Human,
        config::LogFormat::Json => telemetry::LogFormat::Json,
    };
    LogConfig { format, filter: args.log_level.clone() }
}

/// The telemetry section in telemetry's terms.
fn telemetry_config(args: &TelemetryArgs) -> TelemetryConfig {
    let protocol = |protocol| match protocol {
        config::OtlpProtocol::Grpc => telemetry::OtlpProtocol::Grpc,
        config::OtlpProtocol::HttpProtobuf => telemetry::OtlpProtocol::HttpProtobuf,
    };
    let sampling = SamplingConfig {
        probes: share(args.trace_probes),
        slow_probe: args.trace_slow_probe,
        requests: args.trace_ratio.map(share),
        slow_request: args.trace_slow_request,
    };
    let to = |endpoint: &Option<String>, how: Option<_>| OtlpConfig {
        endpoint: endpoint.clone(),
        protocol: how.map(protocol),
    };
    let otlp = to(&args.otlp_traces_endpoint, args.otlp_traces_protocol);
    let otlp_logs = to(&args.otlp_logs_endpoint, args.otlp_logs_protocol);
    let metrics_alias = args.metrics_alias.map(|alias| match alias {
        config::MetricsAlias::Sglang => telemetry::MetricsAlias::Sglang,
    });
    TelemetryConfig { otlp, sampling, otlp_logs, log: log_config(&args.log), metrics_alias }
}

/// A ratio was checked when it was read.
fn share(ratio: Ratio) -> Share {
    Share::new(ratio.get()).unwrap_or(Share::ALL)
}
