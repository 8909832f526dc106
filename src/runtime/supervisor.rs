//! The engine as a child: spawned from this binary, watched until it exits, never outliving its parent.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use crate::config::ServeArgs;
use crate::incidents::STDERR_LINES;
use crate::io_struct::ModelSource;
use crate::telemetry::LogControl;

/// The pipe ends with the engine; longer than this is somebody else who holds it.
const LAST_WORDS_LIMIT: Duration = Duration::from_millis(100);

/// A running engine.
pub struct Engine {
    /// Its process.
    pub pid: u32,
    exited: oneshot::Receiver<io::Result<ExitStatus>>,
    exit_status: Option<String>,
    /// What it said last on standard error.
    pub stderr: StderrTail,
    /// Ends when all of that is passed on.
    last_words: Option<oneshot::Receiver<()>>,
}

/// The newest lines of an engine's standard error, which are passed on to ours as they come.
#[derive(Debug, Clone, Default)]
pub struct StderrTail(Arc<Mutex<VecDeque<String>>>);

impl StderrTail {
    /// The lines, oldest first.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Passes `stderr` on, line by line, until the engine closes it; then `heard` ends.
    fn follow(&self, stderr: ChildStderr, heard: oneshot::Sender<()>) -> io::Result<()> {
        let tail = self.clone();
        thread::Builder::new().name("engine-stderr".to_owned()).spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                let _ = writeln!(io::stderr().lock(), "{line}"); // ours may be closed
                let mut kept = tail.0.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == STDERR_LINES {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
            drop(heard);
        })?;
        Ok(())
    }
}

impl Engine {
    /// Starts the engine. It inherits `listener` as its standard input, so it serves before any path is looked up; this
    /// process's copy is closed, so a dead engine refuses connections.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn spawn(args: &ServeArgs, model: &ModelSource, log: &LogControl, listener: UnixListener) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("engine").args(engine_args(args, model, &log.chosen().directives()));
        command.stdin(Stdio::from(OwnedFd::from(listener)));
        command.stderr(Stdio::piped());
        command.process_group(0); // a Ctrl-C is for the frontend alone: it drains, then ends the engine
        let (started, child_started) = std::sync::mpsc::channel();
        let (exit, exited) = oneshot::channel();
        // The kernel sends the death signal of a child when the *thread* that made it ends, so that thread waits for it.
        thread::Builder::new().name("supervisor".to_owned()).spawn(move || match command.spawn() {
            Ok(mut child) => {
                drop(command); // and with it the listener
                let _ = started.send(Ok((child.id(), child.stderr.take())));
                let _ = exit.send(wait(&mut child));
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        })?;
        let (pid, pipe) = child_started.recv().map_err(|_| io::Error::other("the supervisor ended"))??;
        let (stderr, (sender, last_words)) = (StderrTail::default(), oneshot::channel());
        if let Some(pipe) = pipe {
            stderr.follow(pipe, sender)?;
        }
        Ok(Self { pid, exited, exit_status: None, stderr, last_words: Some(last_words) })
    }

    /// Waits for the engine's end: `exited with code 1`, `was killed by signal 9 (SIGKILL)`. Can be given up and taken
    /// up again.
    pub async fn exit_status(&mut self) -> String {
        let status = match self.exit_status.take() {
            Some(known) => known,
            None => match (&mut self.exited).await {
                Ok(Ok(status)) => describe(status),
                Ok(Err(error)) => format!("ended: {error}"),
                Err(_) => "ended: its supervisor is gone".to_owned(),
            },
        };
        self.exit_status = Some(status.clone());
        if let Some(last_words) = &mut self.last_words {
            let _ = tokio::time::timeout(LAST_WORDS_LIMIT, last_words).await; // why it ended is among them
            self.last_words = None;
        }
        status
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

    /// Never to a process that has ended: its number may be another's by now.
    fn signal(&self, signal: Signal) {
        if self.exit_status.is_some() {
            return;
        }
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal); // it may have ended by itself
        }
    }
}

fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    child.wait()
}

fn engine_args(args: &ServeArgs, model: &ModelSource, log_filter: &str) -> Vec<String> {
    let model = match model {
        ModelSource::Gguf(path) | ModelSource::Folder(path) => path.display().to_string(),
        ModelSource::Scripted(script) => format!("scripted:{script}"),
    };
    let log_format = match args.telemetry.log.log_format {
        crate::config::LogFormat::Human => "human",
        crate::config::LogFormat::Json => "json",
    };
    let mut all = vec![
        format!("--supervised={}", std::process::id()),
        format!("--model={model}"),
        format!("--encoder-precision={}", args.model.encoder_precision.as_str()),
        format!("--kv-cache-dtype={}", args.model.kv_cache_dtype.as_str()),
        format!("--log-format={log_format}"),
        format!("--log-level={log_filter}"),
    ];
    all.extend(args.scheduler.flags());
    all.extend(args.model.context_length.map(|tokens| format!("--context-length={tokens}")));
    if args.http.drills.enable_drills {
        all.push("--enable-drills".to_owned());
        all.extend(args.http.drills.fault.iter().map(|fault| format!("--fault={fault}")));
    }
    all.extend(args.model.pin_threads.then(|| "--pin-threads".to_owned()));
    all.extend(args.model.threads.map(|threads| format!("--threads={threads}")));
    all.extend(args.model.kernels.map(|kernels| format!("--kernels={}", kernels.as_str())));
    all
}

fn describe(status: ExitStatus) -> String {
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
