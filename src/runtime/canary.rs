//! Two canaries: a task on the main runtime and a thread, to tell a blocked runtime from a starved process.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;

use tokio::time::MissedTickBehavior;

use crate::clock::MonoNanos;
use crate::runtime_lag::{CANARY_INTERVAL, RuntimeLag};

/// Starts both; they end with `lag`.
///
/// # Errors
/// The thread cannot be made.
pub fn start(lag: &Arc<RuntimeLag>) -> io::Result<()> {
    let (task, thread) = (Arc::downgrade(lag), Arc::downgrade(lag));
    thread::Builder::new().name("canary".to_owned()).spawn(move || beat_on_thread(&thread))?;
    #[expect(clippy::disallowed_methods, reason = "the runtime spawns; it ends with what it measures")]
    tokio::spawn(beat_in_task(task));
    Ok(())
}

async fn beat_in_task(lag: Weak<RuntimeLag>) {
    let mut interval = tokio::time::interval(CANARY_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(lag) = lag.upgrade() else { return };
        lag.task.beat(MonoNanos::now());
    }
}

fn beat_on_thread(lag: &Weak<RuntimeLag>) {
    while let Some(lag) = lag.upgrade() {
        lag.thread.beat(MonoNanos::now());
        drop(lag);
        thread::park_timeout(CANARY_INTERVAL);
    }
}
