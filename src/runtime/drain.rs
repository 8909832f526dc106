//! The end, in phases with one budget: readiness off, settle, refuse new work, running requests to their end.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time;

use crate::server_status::StatusEvent;
use crate::tokenizer_manager::TokenizerManager;

/// How the process was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndSignal {
    /// What orchestrators send.
    Terminate,
    /// What Ctrl-C sends.
    Interrupt,
}

impl EndSignal {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }

    /// The exit code when it forces the end: 128 and the signal's number, as shells have it.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Terminate => 143,
            Self::Interrupt => 130,
        }
    }
}

/// How often the process was asked to end so far, and how the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Not yet.
    No,
    /// It drains.
    Once,
    /// It ends at once.
    Again(EndSignal),
}

/// Tells everybody of the signals that ask the process to end: once to drain, again to end at once. Returns after the
/// second; the readiness is off from the first on. Without a time to `settle`, new work is refused from then on too.
///
/// # Errors
/// The signals cannot be had.
pub async fn hear_signals(
    asked: &watch::Sender<Asked>,
    manager: &TokenizerManager,
    settle: Duration,
) -> std::io::Result<EndSignal> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut next = async || {
        tokio::select! {
            _ = terminate.recv() => EndSignal::Terminate,
            _ = interrupt.recv() => EndSignal::Interrupt,
        }
    };
    let first = next().await;
    tracing::info!(signal = first.as_str(), "graceful exit begins");
    manager.status().apply(StatusEvent::Drain);
    if settle.is_zero() {
        manager.status().apply(StatusEvent::RefuseWork); // at once, not when the main runtime gets round to it
    }
    asked.send_replace(Asked::Once);
    let again = next().await;
    tracing::warn!(signal = again.as_str(), "asked again: the server ends at once");
    asked.send_replace(Asked::Again(again));
    Ok(again)
}

/// How long each phase of the drain may take.
#[derive(Debug, Clone, Copy)]
pub struct DrainBudget {
    /// New work is still served for so long, while readiness is off.
    pub settle: Duration,
    /// All phases together.
    pub whole: Duration,
}

/// After the first signal: serves on until load balancers know, then refuses new work and waits for what runs. What still runs when the budget
/// is spent is cut off.
pub async fn drain(manager: &TokenizerManager, budget: DrainBudget) {
    let spent = time::Instant::now() + budget.whole;
    let settled = time::Instant::now() + budget.settle.min(budget.whole);
    if !manager.status().report().refuses_work {
        // A phase is a span of time: nobody says that load balancers have looked.
        let _ = time::timeout_at(settled, std::future::pending::<()>()).await;
    }
    manager.status().apply(StatusEvent::RefuseWork);
    let running = manager.streams_under_way();
    if running > 0 {
        let limit_seconds = spent.saturating_duration_since(time::Instant::now()).as_secs_f64();
        tracing::info!(running, limit_seconds, "waiting for running requests");
    }
    if time::timeout_at(spent, manager.all_streams_ended()).await.is_err() {
        let running = manager.streams_under_way();
        tracing::warn!(running, "the drain limit has passed, running requests are cut off (--drain-timeout)");
        manager.cut_off("the server ends, and its time to drain has passed");
    }
}
