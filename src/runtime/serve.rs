//! `radiosonde serve`: a frontend and its engine.

use std::time::Duration;

use super::engine_link::EngineLink;
use super::frontend::{Frontend, announce, runtime};
use super::supervisor::{Engine, describe};
use super::{Listeners, RuntimeError, telemetry_config};
use crate::config::ServeArgs;
use crate::io_struct::ModelSource;
use crate::ipc::PrivateSocket;
use crate::model_hub;
use crate::server_status::ServerStatus;
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
        let (frontend, queue) = Frontend::start(listeners, &args.http, telemetry)?;
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

/// Starts the engine and serves it to the end.
async fn serve(
    frontend: Frontend,
    queue: ToEngineQueue,
    args: &ServeArgs,
    source: &ModelSource,
) -> Result<(), RuntimeError> {
    frontend.still_starting("the engine starts");
    let (socket, listener) = PrivateSocket::listen().map_err(RuntimeError::EngineSocket)?;
    let mut engine = Engine::spawn(args, source, listener)?;
    let outcome = frontend.attend_until_asked(attend(&frontend, socket, queue, &mut engine)).await;
    let Err(reason) = outcome else {
        end(&mut engine).await;
        return close(frontend, Ok(())).await;
    };
    engine.kill(); // it may hang where it cannot answer any more
    let was_starting = frontend.manager.status().report().status == ServerStatus::Starting;
    frontend.engine_died(&reason.to_string());
    if was_starting {
        frontend.close().await;
    } else {
        frontend.linger().await;
    }
    Err(reason)
}

/// The model's file, fetched if need be, on a thread of its own.
async fn fetch(frontend: &Frontend, args: &ServeArgs) -> Result<ModelSource, RuntimeError> {
    frontend.still_starting("the model is looked up or fetched");
    let spec = args.model.model.clone();
    let resolved = tokio::task::spawn_blocking(move || model_hub::resolve(spec.as_deref())).await;
    Ok(resolved.map_err(std::io::Error::other)??)
}

/// Serves the engine until it is gone, and says why it is.
async fn attend(frontend: &Frontend, socket: PrivateSocket, queue: ToEngineQueue, engine: &mut Engine) -> RuntimeError {
    let connected = async {
        let link = EngineLink::connect(&socket.path()).await;
        drop(socket); // nobody else needs the path, and what is gone cannot be left behind
        match link {
            Ok(link) => frontend.serve(link, queue).await,
            Err(error) => error,
        }
    };
    let pid = engine.pid;
    let reason = tokio::select! {
        status = &mut engine.exited => exit_reason(pid, status),
        ended = connected => {
            let broken = ended.to_string();
            frontend.manager.engine_died(&broken); // at once; the exit status may follow
            match tokio::time::timeout(EXIT_STATUS_GRACE, &mut engine.exited).await {
                Ok(status) => exit_reason(pid, status),
                Err(_) => format!("engine process {pid}: {broken}"),
            }
        }
    };
    RuntimeError::EngineGone(reason)
}

type Exited = Result<std::io::Result<std::process::ExitStatus>, tokio::sync::oneshot::error::RecvError>;

fn exit_reason(pid: u32, status: Exited) -> String {
    match status {
        Ok(Ok(status)) => format!("engine process {pid} {}", describe(status)),
        Ok(Err(error)) => format!("engine process {pid}: {error}"),
        Err(_) => format!("engine process {pid}: its supervisor ended"),
    }
}

/// Ends the engine and waits for it, so that no child is left.
async fn end(engine: &mut Engine) {
    engine.terminate();
    if tokio::time::timeout(ENGINE_END_LIMIT, &mut engine.exited).await.is_err() {
        engine.kill();
        let _ = tokio::time::timeout(ENGINE_END_LIMIT, &mut engine.exited).await;
    }
}
