//! The frontend's stations, built and wired; and `radiosonde frontend`, which uses an engine that runs already.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum_server::tls_rustls::RustlsConfig;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::admin::{Admin, PublicServer};
use super::drain::{self, DrainBudget};
use super::engine_link::EngineLink;
use super::{Listeners, RuntimeError, canary, public, telemetry_config};
use crate::config::{FrontendArgs, HttpArgs};
use crate::http_server::admin::{AdminState, FrontendVitals};
use crate::http_server::health::HealthState;
use crate::http_server::levels::Levels;
use crate::http_server::{self, Policy};
use crate::incidents::IncidentLog;
use crate::io_struct::{EngineInfo, ModelInfo, ModelSource, ModelTask};
use crate::ipc::IpcError;
use crate::probe_ledger::ProbeLedger;
use crate::server_status::{StatusBoard, StatusEvent};
use crate::telemetry::{self, Telemetry};
use crate::tokenizer::Tokenizer;
use crate::tokenizer::chat_template::ChatTemplate;
use crate::tokenizer_manager::{ServedModel, ToEngineQueue, TokenizerManager};

/// How long a dead engine can still be asked about before the process ends, so that probes, scrapes and the trace
/// exporter see the cause.
pub const DEATH_LINGER: Duration = Duration::from_secs(5);

/// How long the reason of an engine's death may take, once the drain is over.
const LAST_REASON: Duration = Duration::from_secs(1);

/// How long the last spans may take to leave.
pub const TELEMETRY_FLUSH: Duration = Duration::from_secs(3);

/// What a frontend has to know of its engine's supervisor.
#[derive(Debug, Clone, Default)]
pub struct Supervision {
    /// Where incident reports are written.
    pub incidents: Option<PathBuf>,
    /// How often the engine may be started again; 0 without a supervisor.
    pub engine_restarts: usize,
}

/// A frontend whose HTTP server runs, with or without an engine.
pub struct Frontend {
    /// What HTTP holds.
    pub manager: TokenizerManager,
    /// Series and tracers.
    pub telemetry: Telemetry,
    args: HttpArgs,
    url: String,
    http: JoinHandle<std::io::Result<()>>,
    public: PublicServer,
    /// The thread that answers whatever happens here.
    pub admin: Admin,
}

impl Frontend {
    /// Builds the stations and serves HTTP on `listeners`; everything answers 503 until an engine is ready.
    ///
    /// # Errors
    /// Telemetry or a listener refuses.
    pub fn start(
        listeners: Listeners,
        args: &HttpArgs,
        supervision: Supervision,
        telemetry: Telemetry,
    ) -> Result<(Self, ToEngineQueue), RuntimeError> {
        let url = listeners.url()?;
        let (transitions, reports) = (telemetry.clone(), Arc::clone(&telemetry.metrics));
        let status = Arc::new(StatusBoard::new(move |from, to, reason| {
            transitions.metrics.engine.status_changed(from, to, reason);
            transitions.tracers.status_changed();
        }));
        let ledger = Arc::new(ProbeLedger::new(Arc::clone(&telemetry.tracers)));
        let drills = super::drills(&args.drills);
        super::drill_workers(&drills);
        let on_report = move |cause| reports.engine.incident_reported(cause);
        let incidents = IncidentLog::new(supervision.incidents.or_else(incident_folder), on_report);
        let metrics = Arc::clone(&telemetry.metrics);
        let limit = args.access.request_limit();
        let (manager, queue) = TokenizerManager::new(ledger, incidents, status, metrics, drills, limit);
        canary::start(manager.lag())?;
        let health = HealthState {
            tokenizer_manager: manager.clone(),
            metrics: Arc::clone(&telemetry.metrics),
            timeout: args.health_check_timeout,
            health_generation: !args.disable_health_generation,
            self_probe_interval: args.self_probe(),
        };
        let vitals = FrontendVitals::new(AdminState::from(&health), args.drain_timeout, supervision.engine_restarts);
        telemetry.metrics.watch(Arc::new(vitals)).map_err(telemetry::TelemetryError::from)?;
        let public = PublicServer {
            settle: args.drain_settle,
            idle_limit: args.access.keep_alive_timeout,
            ..PublicServer::default()
        };
        let policy = Policy::new(args);
        let levels = Levels { manager: manager.clone(), telemetry: telemetry.clone() };
        let router = http_server::router(health.clone(), levels, policy.clone());
        let http = serve_public(listeners.public, router, listeners.tls, &public);
        let admin = Admin::start(listeners.admin, health, policy, public.clone())?;
        Ok((Self { manager, telemetry, args: args.clone(), url, http, public, admin }, queue))
    }

    /// Says what start waits for.
    pub fn still_starting(&self, reason: &str) {
        self.manager.status().apply(StatusEvent::StillStarting(reason.to_owned()));
    }

    /// Serves an engine that is connected, until its connection ends; says why it did.
    pub async fn serve(&self, link: EngineLink, queue: &mut ToEngineQueue) -> IpcError {
        self.manager.engine().connected(link.engine_pid);
        self.telemetry.tracers.engine_started(link.engine_pid);
        self.still_starting("the engine loads the model");
        let (manager, url) = (self.manager.clone(), self.url.clone());
        let served_name = self.args.served_model_name.clone();
        let (refuse, refused) = oneshot::channel();
        let on_ready = move |info: EngineInfo| {
            if manager.loaded_model().is_some() {
                let requests = manager.resend();
                tracing::info!(requests, "the new engine is ready, requests without output were sent again");
                return manager.status().apply(StatusEvent::Ready);
            }
            // Reading the vocabulary takes a fraction of a second, too long for a task.
            tokio::task::spawn_blocking(move || match served_model(info, served_name) {
                Ok(model) => {
                    print_banner(&url, &model);
                    manager.serve(model);
                    manager.status().apply(StatusEvent::Ready);
                }
                Err(reason) => {
                    tracing::error!(%reason, "the frontend cannot serve the engine's model");
                    manager.status().apply(StatusEvent::EngineDied(reason.clone()));
                    let _ = refuse.send(reason); // nobody listens any more if the engine is gone
                }
            });
        };
        tokio::select! {
            ended = link.run(self.manager.clone(), queue, on_ready) => ended,
            Ok(reason) = refused => IpcError::Unservable(reason),
        }
    }

    /// The engine is gone: everybody hears so at once.
    pub fn engine_died(&self, reason: &str) {
        tracing::error!(reason, "the engine is dead");
        self.manager.engine_died(reason);
        self.manager.status().apply(StatusEvent::EngineDied(reason.to_owned()));
    }

    /// Lets `attending`, which serves an engine, go on until it ends or the process is asked to end; then refuses new
    /// work and lets the running requests end, for which the engine is still needed.
    ///
    /// # Errors
    /// The engine is gone.
    pub async fn attend_until_asked(&self, attending: impl Future<Output = RuntimeError>) -> Result<(), RuntimeError> {
        let mut attending = std::pin::pin!(attending);
        tokio::select! {
            error = &mut attending => return Err(error),
            () = self.admin.asked_to_end() => {}
        }
        let budget = DrainBudget { settle: self.args.drain_settle, whole: self.args.drain_timeout };
        tokio::select! {
            error = &mut attending => return Err(error),
            () = drain::drain(&self.manager, budget) => {}
        }
        if !self.manager.engine().is_dead() {
            return Ok(());
        }
        // A dead engine ends all requests, and so the drain, before it is known how it died.
        tokio::time::timeout(LAST_REASON, attending).await.map_or(Ok(()), Err)
    }

    /// Stays for probes and scrapes to see what happened, unless it is asked to end, then ends.
    pub async fn linger(self) {
        let _ = tokio::time::timeout(DEATH_LINGER, self.admin.asked_to_end()).await;
        self.close().await;
    }

    /// Closes the listener and flushes telemetry.
    pub async fn close(self) {
        self.public.stop.cancel();
        if tokio::time::timeout(Duration::from_secs(1), self.http).await.is_err() {
            tracing::warn!("connections were still open");
        }
        self.admin.stop_probing();
        let telemetry = self.telemetry.clone();
        let _ = tokio::task::spawn_blocking(move || telemetry.shutdown(TELEMETRY_FLUSH)).await;
        self.admin.give_way_to_a_forced_end().await;
    }
}

/// Serves the public listener until `public` stops.
fn serve_public(
    listener: TcpListener,
    router: Router,
    tls: Option<RustlsConfig>,
    public: &PublicServer,
) -> JoinHandle<std::io::Result<()>> {
    let (stop, stopped) = (public.stop.clone(), public.stopped.clone().drop_guard());
    let idle_limit = public.idle_limit;
    #[expect(clippy::disallowed_methods, reason = "the runtime spawns, and waits for it when it closes")]
    tokio::spawn(async move {
        let _stopped = stopped;
        public::serve(listener, router, tls, idle_limit, stop).await
    })
}

/// Runs a frontend for the engine at `--engine`.
///
/// # Errors
/// The port or the engine cannot be had, or the engine is gone.
pub fn run(args: &FrontendArgs) -> Result<(), RuntimeError> {
    let listeners = Listeners::bind(&args.http)?;
    announce(&listeners)?;
    let telemetry = telemetry::init(&telemetry_config(&args.telemetry))?;
    runtime()?.block_on(async {
        let supervision = Supervision { incidents: args.telemetry.incidents.clone(), engine_restarts: 0 };
        let (frontend, queue) = Frontend::start(listeners, &args.http, supervision, telemetry)?;
        let outcome = frontend.attend_until_asked(attend(&frontend, &args.engine, queue)).await;
        match outcome {
            Ok(()) => {
                frontend.close().await;
                Ok(())
            }
            Err(error) => {
                frontend.engine_died(&error.to_string());
                frontend.linger().await;
                Err(error)
            }
        }
    })
}

/// Connects and serves; returns why it ended.
async fn attend(frontend: &Frontend, engine: &Path, mut queue: ToEngineQueue) -> RuntimeError {
    let ended = match EngineLink::connect(engine).await {
        Ok(link) => frontend.serve(link, &mut queue).await,
        Err(error) => error,
    };
    RuntimeError::EngineGone(format!("{}: {ended}", engine.display()))
}

/// `radiosonde/incidents` in the user's state folder.
fn incident_folder() -> Option<PathBuf> {
    dirs::state_dir().or_else(dirs::cache_dir).map(|folder| folder.join("radiosonde").join("incidents"))
}

/// The frontend's runtime: two workers are enough for I/O and leave the cores to the model.
///
/// # Errors
/// The operating system refuses threads.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(super::FRONTEND_WORKERS)
        .thread_name("frontend")
        .enable_all()
        .build()
}

/// Says on standard output where the server listens, as soon as it does.
///
/// # Errors
/// A listener has no address.
pub fn announce(listeners: &Listeners) -> std::io::Result<()> {
    let (public, admin) = (listeners.url()?, listeners.admin.local_addr()?);
    say(&format!("radiosonde listening on {public}\nradiosonde admin on http://{admin}"));
    Ok(())
}

fn print_banner(url: &str, model: &ServedModel) {
    let (name, limit) = (&model.served_name, model.token_limit());
    let (what, path, body) = match model.info.task {
        ModelTask::Generate => {
            let body = r#"{"model":"default","messages":[{"role":"user","content":"What is a radiosonde?"}]}"#;
            ("chat      ", "/v1/chat/completions", body)
        }
        ModelTask::Embed { .. } => {
            ("embeddings", "/v1/embeddings", r#"{"model":"default","input":"What is a radiosonde?"}"#)
        }
    };
    say(&format!(
        "radiosonde serves {name} (context {limit} tokens)
  {what} curl -s {url}{path} -H 'content-type: application/json' \\
              -d '{body}'
  health     {url}/health             a probe that crosses the whole runtime
  probes     {url}/debug/probes       the last probes, hop by hop
  metrics    {url}/metrics"
    ));
}

/// Standard output may be closed; the server does not care.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn served_model(engine: EngineInfo, served_name: Option<String>) -> Result<ServedModel, String> {
    let EngineInfo { model: info, limits } = engine;
    let tokenizer = Tokenizer::for_source(&info.source).map_err(|error| error.to_string())?;
    let chat_template = ChatTemplate::for_source(&info.source).map_err(|error| error.to_string())?;
    let served_name = served_name.unwrap_or_else(|| file_name(&info));
    Ok(ServedModel { info, limits, served_name, tokenizer, chat_template })
}

/// What the file is called, without its extension: `general.name` inside is often an internal one. A folder's model has
/// the name that its files give it.
fn file_name(info: &ModelInfo) -> String {
    let stem = match &info.source {
        ModelSource::Gguf(path) => path.file_stem().and_then(|stem| stem.to_str()),
        ModelSource::Folder(_) | ModelSource::Scripted(_) => None,
    };
    stem.unwrap_or(&info.name).to_owned()
}
