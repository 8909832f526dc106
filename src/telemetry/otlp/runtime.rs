//! A runtime for the gRPC connection alone, so that traces leave even while the main runtime is blocked.

use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, EnterGuard, Handle};
use tokio::sync::oneshot;

/// One thread that drives one connection; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct ExportRuntime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ExportRuntime {
    /// Starts the thread.
    pub fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        // The runtime is dropped by its own thread: dropping one inside async code would panic.
        let drive = move || drop(runtime.block_on(stopped));
        let thread = thread::Builder::new().name("otlp-export".to_owned()).spawn(drive)?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Makes what is built while the guard lives belong to this runtime.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }
}

impl Drop for ExportRuntime {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It panicked or it ended: either way it is gone.
            let _ = thread.join();
        }
    }
}
