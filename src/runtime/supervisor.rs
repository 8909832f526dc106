//! The engine as a child: spawned from this binary, watched until it exits, never outliving its parent.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use crate::config::ServeArgs;
use crate::io_struct::ModelSource;

/// A running engine.
pub struct Engine {
    /// Its process.
    pub pid: u32,
    /// How it ends.
    pub exited: oneshot::Receiver<io::Result<ExitStatus>>,
}

impl Engine {
    /// Starts the engine. It inherits `listener` as its standard input, so it serves before any path is looked up; this
    /// process's copy is closed, so a dead engine refuses connections.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn spawn(args: &ServeArgs, model: &ModelSource, listener: UnixListener) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("engine").args(engine_args(args, model));
        command.stdin(Stdio::from(OwnedFd::from(listener)));
        command.process_group(0); // a Ctrl-C is for the frontend alone: it drains, then ends the engine
        let (started, child_started) = std::sync::mpsc::channel();
        let (exit, exited) = oneshot::channel();
        // The kernel sends the death signal of a child when the *thread* that made it ends, so that thread waits for it.
        thread::Builder::new().name("supervisor".to_owned()).spawn(move || match command.spawn() {
            Ok(mut child) => {
                drop(command); // and with it the listener
                let _ = started.send(Ok(child.id()));
                let _ = exit.send(wait(&mut child));
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        })?;
        let pid = child_started.recv().map_err(|_| io::Error::other("the supervisor ended"))??;
        Ok(Self { pid, exited })
    }

    /// Asks the engine to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT); // a stopped process hears nothing else
    }

    /// Ends the engine.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal); // it may have ended by itself
        }
    }
}

fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    child.wait()
}

fn engine_args(args: &ServeArgs, model: &ModelSource) -> Vec<String> {
    let model = match model {
        ModelSource::Gguf(path) => path.display().to_string(),
        ModelSource::Scripted(script) => format!("scripted:{script}"),
    };
    let scheduler = &args.scheduler;
    let log = &args.telemetry.log;
    let log_format = match log.log_format {
        crate::config::LogFormat::Human => "human",
        crate::config::LogFormat::Json => "json",
    };
    let mut all = vec![
        format!("--supervised={}", std::process::id()),
        format!("--model={model}"),
        format!("--chunked-prefill-size={}", scheduler.chunked_prefill_size),
        format!("--max-running-requests={}", scheduler.max_running_requests),
        format!("--max-queued-requests={}", scheduler.max_queued_requests),
        format!("--max-total-tokens={}", scheduler.max_total_tokens),
        format!("--log-format={log_format}"),
        format!("--log-level={}", log.log_level),
    ];
    all.extend(args.model.context_length.map(|tokens| format!("--context-length={tokens}")));
    if args.http.drills.enable_drills {
        all.push("--enable-drills".to_owned());
        all.extend(args.http.drills.fault.iter().map(|fault| format!("--fault={fault}")));
    }
    all.extend(args.model.threads.map(|threads| format!("--threads={threads}")));
    all
}

/// `exited with code 1`, `was killed by signal 9 (SIGKILL)`.
#[must_use]
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => {
            let name =
                signal_hook::low_level::signal_name(signal).map_or_else(String::new, |name| format!(" ({name})"));
            format!("was killed by signal {signal}{name}")
        }
        (None, None) => "ended".to_owned(),
    }
}
