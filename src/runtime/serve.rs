//! `radiosonde serve`: a frontend and its engine.

use std::time::{Duration, Instant};

use super::engine_link::EngineLink;
use super::frontend::{Frontend, Supervision, announce, runtime};
use super::restarts::RestartBudget;
use super::supervisor::Engine;
use super::{Listeners, RuntimeError, restarts, telemetry_config};
use crate::config::ServeArgs;
use crate::incidents::Death;
use crate::io_struct::ModelSource;
use crate::ipc::PrivateSocket;
use crate::model_hub;
use crate::server_status::{ServerStatus, StatusEvent};
use crate::telemetry;
use crate::tokenizer_manager::ToEngineQueue;

/// A connection that ended is usually an engine that did; its exit status says more and comes within a moment.
const EXIT_STATUS_GRACE: Duration = Duration::from_millis(200);

/// How long an engine that was told to end may take.
const ENGINE_END_LIMIT: Duration = Duration::from_secs(2);

/// Serves until asked to end.
///
/// # Errors
/// The port or the model cannot be had, or the engine is gone.
pub fn run(args: &ServeArgs) -> Result<(), RuntimeError> {
    let listeners = Listeners::bind(&args.http)?; // before anything is loaded
    announce(&listeners)?;
    let telemetry = telemetry::init(&telemetry_config(&args.telemetry))?;
    runtime()?.block_on(async {
        let (incidents, engine_restarts) = (args.telemetry.incidents.clone(), args.supervision.engine_restarts);
        let supervision = Supervision { incidents, engine_restarts };
        let (frontend, queue) = Frontend::start(listeners, &args.http, supervision, telemetry)?;
        let fetched = tokio::select! {
            fetched = fetch(&frontend, args) => fetched,
            () = frontend.admin.asked_to_end() => return close(frontend, Ok(())).await,
        };
        match fetched {
            Ok(source) => serve(frontend, queue, args, &source).await,
            Err(error) => close(frontend, Err(error)).await,
        }
    })
}

async fn close(frontend: Frontend, outcome: Result<(), RuntimeError>) -> Result<(), RuntimeError> {
    frontend.close().await;
    outcome
}

/// Starts the engine, and others after it, and serves them to the end.
async fn serve(
    frontend: Frontend,
    mut queue: ToEngineQueue,
    args: &ServeArgs,
    source: &ModelSource,
) -> Result<(), RuntimeError> {
    frontend.still_starting("the engine starts");
    let mut engine = None;
    let outcome = frontend.attend_until_asked(supervise(&frontend, &mut queue, args, source, &mut engine)).await;
    if let Some(engine) = &mut engine {
        end(engine).await;
    }
    let Err(reason) = outcome else { return close(frontend, Ok(())).await };
    let was_starting = frontend.manager.loaded_model().is_none();
    frontend.engine_died(&reason.to_string());
    if was_starting {
        frontend.close().await;
    } else {
        frontend.linger().await;
    }
    Err(reason)
}

/// Keeps an engine running, as far as the budget goes; returns why there is none any more. `present` is the engine.
async fn supervise(
    frontend: &Frontend,
    queue: &mut ToEngineQueue,
    args: &ServeArgs,
    source: &ModelSource,
    present: &mut Option<Engine>,
) -> RuntimeError {
    let (mut budget, log) = (RestartBudget::new(args.supervision.engine_restarts), &frontend.telemetry.log_control);
    loop {
        let started = PrivateSocket::listen()
            .and_then(|(socket, listener)| Ok((socket, Engine::spawn(args, source, log, listener)?)));
        let death = match started {
            Ok((socket, engine)) => {
                let engine = present.insert(engine);
                let death = attend(frontend, socket, queue, engine).await;
                engine.kill(); // it may hang where it cannot answer any more
                death
            }
            Err(error) => Death { reason: format!("the engine cannot be started: {error}"), ..Death::default() },
        };
        let reason = death.reason.clone();
        bury(frontend, death);
        let was_ready = frontend.manager.loaded_model().is_some();
        let drains = frontend.manager.status().report().status == ServerStatus::Draining;
        if !was_ready || drains {
            return RuntimeError::EngineGone(reason); // what has never worked, or ends anyway, is not started again
        }
        let Some(backoff) = budget.take(Instant::now()) else { return RuntimeError::EngineGone(reason) };
        let why = format!("{} of the engine in {backoff:?}, for {reason}", budget.describe());
        tracing::warn!(reason = why, "the engine is started again");
        frontend.manager.status().apply(StatusEvent::EngineLost(why));
        restarts::wait(backoff).await;
        frontend.telemetry.metrics.engine.restarted();
    }
}

/// What an engine leaves behind: who waited for it hears so or waits for the next, and a report is written.
fn bury(frontend: &Frontend, mut death: Death) {
    let (failed, kept) = frontend.manager.engine_lost(&death.reason);
    (death.requests_failed, death.requests_kept) = (death.requests_failed + failed, kept);
    frontend.manager.incidents().engine_died(death);
}

/// The model's file, fetched if need be, on a thread of its own.
async fn fetch(frontend: &Frontend, args: &ServeArgs) -> Result<ModelSource, RuntimeError> {
    frontend.still_starting("the model is looked up or fetched");
    let spec = args.model.model.clone();
    let resolved = tokio::task::spawn_blocking(move || model_hub::resolve(spec.as_deref())).await;
    Ok(resolved.map_err(std::io::Error::other)??)
}

/// Serves the engine until it is gone, and says how it ended.
async fn attend(frontend: &Frontend, socket: PrivateSocket, queue: &mut ToEngineQueue, engine: &mut Engine) -> Death {
    let connected = async {
        let link = EngineLink::connect(&socket.path()).await;
        drop(socket); // nobody else needs the path, and what is gone cannot be left behind
        match link {
            Ok(link) => frontend.serve(link, queue).await,
            Err(error) => error,
        }
    };
    let pid = engine.pid;
    let mut death = Death::default();
    let exit_status = tokio::select! {
        status = engine.exit_status() => status,
        ended = connected => {
            let broken = ended.to_string();
            (death.requests_failed, _) = frontend.manager.engine_lost(&broken); // at once; the exit status may follow
            let status = tokio::time::timeout(EXIT_STATUS_GRACE, engine.exit_status()).await;
            status.unwrap_or_else(|_| format!("did not exit: {broken}"))
        }
    };
    death.reason = format!("engine process {pid} {exit_status}");
    death.exit_status = Some(exit_status);
    death.stderr_tail = engine.stderr.lines();
    death
}

/// Ends the engine and waits for it, so that no child is left.
async fn end(engine: &mut Engine) {
    engine.terminate();
    if tokio::time::timeout(ENGINE_END_LIMIT, engine.exit_status()).await.is_err() {
        engine.kill();
        let _ = tokio::time::timeout(ENGINE_END_LIMIT, engine.exit_status()).await;
    }
}
