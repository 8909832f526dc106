//! The end, in phases: readiness off, running requests to their end, bounded.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::RuntimeError;
use crate::server_status::StatusEvent;
use crate::tokenizer_manager::TokenizerManager;

/// Returns when the process is asked to end (SIGTERM, SIGINT).
///
/// # Errors
/// The signals cannot be had.
pub async fn asked_to_end() -> Result<(), RuntimeError> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    tracing::info!(signal = name, "graceful exit begins");
    Ok(())
}

/// Refuses new work and waits for the running requests, at most `limit`.
pub async fn drain(manager: &TokenizerManager, limit: Duration) {
    manager.status().apply(StatusEvent::Drain);
    let running = manager.streams_under_way();
    if running > 0 {
        tracing::info!(running, limit_seconds = limit.as_secs_f64(), "waiting for running requests");
    }
    if tokio::time::timeout(limit, manager.all_streams_ended()).await.is_err() {
        let running = manager.streams_under_way();
        tracing::warn!(running, "the drain limit has passed, running requests are cut off (--drain-timeout)");
    }
}
