//! The admin thread: answers, probes and hears signals, even if the main runtime does not.

use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use axum::Router;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::drain::{self, Asked, EndSignal};
use super::public;
use crate::http_server::health::HealthState;
use crate::http_server::health::self_probe;
use crate::http_server::{self, Policy};
use crate::server_status::StatusEvent;
use crate::tokenizer_manager::TokenizerManager;

/// How long a forced end waits for the last error events to leave.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Of this thread alone: Linux gives each thread its own.
const NICENESS: i32 = -10;

/// The server failed, as in `main`.
const EXIT_FAILURE: u8 = 1;

/// The thread, which lives as long as the process.
pub struct Admin {
    asked: watch::Receiver<Asked>,
    stop_probing: CancellationToken,
}

/// The public HTTP server, as far as a forced end has to do with it.
#[derive(Debug, Clone, Default)]
pub struct PublicServer {
    /// Tells it to stop.
    pub stop: CancellationToken,
    /// It has stopped.
    pub stopped: CancellationToken,
    /// New work is still served for so long after the first signal.
    pub settle: Duration,
    /// `--keep-alive-timeout`, of both listeners.
    pub idle_limit: Duration,
}

impl Admin {
    /// Starts the thread, which serves what describes `health` on `listener`.
    ///
    /// # Errors
    /// The operating system refuses the thread or its runtime.
    pub fn start(
        listener: TcpListener,
        health: HealthState,
        policy: Policy,
        public: PublicServer,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (asked, hear) = watch::channel(Asked::No);
        let stop_probing = CancellationToken::new();
        let router = http_server::admin_router(health.clone(), policy);
        let work = attend(listener, router, health, public, asked, stop_probing.clone());
        thread::Builder::new().name("admin".to_owned()).spawn(move || {
            // Best effort, for where the process may: a turn of its own when every core is taken.
            let _ = rustix::process::setpriority_process(None, NICENESS);
            // Without this thread no signal would be heard: rather end than go on deaf.
            let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(work)));
            std::process::exit(ended.unwrap_or(EXIT_FAILURE).into());
        })?;
        Ok(Self { asked: hear, stop_probing })
    }

    /// Returns when the process has been asked to end.
    pub async fn asked_to_end(&self) {
        let mut asked = self.asked.clone();
        if asked.wait_for(|asked| *asked != Asked::No).await.is_err() {
            std::future::pending::<()>().await; // the thread ends the process
        }
    }

    /// Never returns if the process was asked to end at once: the thread ends it, with the exit code of that.
    pub async fn give_way_to_a_forced_end(&self) {
        if matches!(*self.asked.borrow(), Asked::Again(_)) {
            std::future::pending::<()>().await;
        }
    }

    /// No more self-probes; one that is under way ends as cut off.
    pub fn stop_probing(&self) {
        self.stop_probing.cancel();
    }
}

/// Returns the exit code of a forced end, or of a failure of its own.
async fn attend(
    listener: TcpListener,
    router: Router,
    health: HealthState,
    public: PublicServer,
    asked: watch::Sender<Asked>,
    stop_probing: CancellationToken,
) -> u8 {
    let probing = async {
        if let Some(interval) = health.self_probe_interval {
            stop_probing.run_until_cancelled(self_probe::keep_probing(health.clone(), interval)).await;
        }
    };
    let serving = public::serve(listener, router, None, public.idle_limit, CancellationToken::new());
    let background = async {
        let ((), served) = tokio::join!(probing, serving);
        tracing::error!(error = ?served.err(), "the admin listener has ended");
        EXIT_FAILURE
    };
    let manager = &health.tokenizer_manager;
    tokio::select! {
        code = background => code,
        heard = drain::hear_signals(&asked, manager, public.settle) => match heard {
            Ok(signal) => force(manager, &public, signal).await,
            Err(error) => {
                tracing::error!(%error, "signals cannot be heard");
                EXIT_FAILURE
            }
        },
    }
}

/// Ends what runs with an error event, and waits a moment for it to leave.
async fn force(manager: &TokenizerManager, public: &PublicServer, signal: EndSignal) -> u8 {
    manager.status().apply(StatusEvent::RefuseWork);
    manager.cut_off("the server was told to end at once");
    public.stop.cancel();
    let _ = tokio::time::timeout(LAST_WORDS, public.stopped.cancelled()).await;
    signal.exit_code()
}
