//! A server under test: a real process with a real engine, its log, its metrics, and signals to both.

pub mod metrics;
pub mod collector;
pub mod process_tree;
pub mod probe;
pub mod rig;
pub mod tiny;
mod tests;

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub use probe::Answer;
pub use process_tree::{is_running, is_stopped};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;
use tokio::time::{self, Instant};

const LISTENING: &str = "radiosonde listening on ";
const ADMIN: &str = "radiosonde admin on ";
const START_LIMIT: Duration = Duration::from_secs(60);

/// A server that runs. Dropping it kills it, and whatever it has started.
pub struct Server {
    child: Child,
    url: String,
    admin: String,
    log: Arc<Mutex<String>>,
    client: reqwest::Client,
    _incidents: tempfile::TempDir,
}

impl Server {
    /// Starts `radiosonde` with `args` on a free port and waits until it is healthy.
    pub async fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[]).await
    }

    /// [`Server::start`], with additions to its environment.
    pub async fn start_with(args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut server = Self::start_unready(args, env).await;
        server.wait_healthy().await;
        server
    }

    /// Starts with the real model.
    pub async fn start_default() -> Self {
        Self::start_default_with(&[]).await
    }

    /// [`Server::start_default`], with further arguments.
    pub async fn start_default_with(args: &[&str]) -> Self {
        let model = real_model().await;
        Self::start(&[&["--model", model.to_str().unwrap()], args].concat()).await
    }

    /// Starts with the model in `folder`.
    pub async fn start_folder(folder: &tempfile::TempDir, args: &[&str]) -> Self {
        Self::start(&[&["--model", folder.path().to_str().unwrap()], args].concat()).await
    }

    /// Starts and waits only until it listens.
    pub async fn start_unready(args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_radiosonde"));
        command.args(["--port", "0", "--log-format", "json"]).args(args).envs(env.iter().copied());
        Self::spawn(command).await
    }

    /// Starts any program that says where it listens as `radiosonde` does.
    pub async fn spawn(mut command: Command) -> Self {
        let incidents = tempfile::tempdir().unwrap();
        command.env("RADIOSONDE_INCIDENTS", incidents.path());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (url_sender, mut url) = mpsc::unbounded_channel();
        collect(child.stderr.take().unwrap(), log.clone(), |_| {});
        collect(child.stdout.take().unwrap(), log.clone(), move |line| {
            if let Some(url) = line.strip_prefix(LISTENING).or_else(|| line.strip_prefix(ADMIN)) {
                url_sender.send(url.to_owned()).ok();
            }
        });
        let (client, admin) = (reqwest::Client::new(), String::new());
        let mut server = Self { child, url: String::new(), admin, log, client, _incidents: incidents };
        let both = async { Some((url.recv().await?, url.recv().await?)) };
        match time::timeout(START_LIMIT, both).await {
            Ok(Some(urls)) => (server.url, server.admin) = urls,
            _ => panic!("the server does not listen\n{}", server.log()),
        }
        server
    }

    /// Waits until `GET /health` is 200.
    pub async fn wait_healthy(&mut self) {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let answer = self.client.get(self.url("/health")).timeout(START_LIMIT).send().await;
            if answer.is_ok_and(|answer| answer.status() == 200) {
                return;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server ended before it was healthy: {status}\n{}", self.log());
            }
            assert!(Instant::now() < deadline, "the server does not become healthy\n{}", self.log());
            time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// The address of `path`, which begins with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// The address of `path` on the admin listener.
    pub fn admin_url(&self, path: &str) -> String {
        format!("{}{path}", self.admin)
    }

    /// A client without a time limit. Cheap to clone; connections are shared.
    pub fn client(&self) -> reqwest::Client {
        self.client.clone()
    }

    /// Everything on standard output and standard error so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Process id of the frontend.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Process id of the engine that the frontend has started.
    pub fn engine_pid(&self) -> u32 {
        process_tree::engine_of(self.pid()).unwrap_or_else(|| panic!("there is no engine\n{}", self.log()))
    }

    /// Sends `signal` to the frontend.
    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Stops the engine, and returns when it stands: a signal takes a moment to reach every thread.
    pub async fn stop_engine(&self) {
        self.signal_engine(Signal::STOP);
        eventually(START_LIMIT, async || is_stopped(self.engine_pid())).await;
    }

    /// Sends `signal` to the engine.
    pub fn signal_engine(&self, signal: Signal) {
        send(self.engine_pid(), signal);
    }

    /// Waits for the frontend's end.
    pub async fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server still runs after {limit:?}\n{}", self.log());
            time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// SIGTERM, then the frontend's end.
    pub async fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_exit(START_LIMIT).await
    }

    /// One probe.
    pub async fn probe(&self, path: &str) -> Answer {
        probe::ask(self.client.get(self.url(path))).await
    }

    /// Waits until nothing is left of what happened: no request, no probe, no flight, no page of the KV pool.
    pub async fn at_rest(&self, limit: Duration) {
        eventually(limit, async || metrics::is_at_rest(&self.metrics().await)).await;
    }

    /// The page at `/metrics`.
    pub async fn metrics(&self) -> String {
        self.client.get(self.url("/metrics")).send().await.unwrap().text().await.unwrap()
    }

    /// Sum of all samples `name`; its family must exist.
    pub async fn metric(&self, name: &str) -> f64 {
        self.metric_with(name, &[]).await
    }

    /// Sum of the samples `name` that bear all of `labels`; its family must exist.
    pub async fn metric_with(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        metrics::sum(&self.metrics().await, name, labels)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for pid in process_tree::descendants(self.pid()) {
            send(pid, Signal::KILL);
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Waits until `condition` holds.
pub async fn eventually(limit: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < deadline, "did not come true within {limit:?}");
        time::sleep(Duration::from_millis(10)).await;
    }
}

/// The default model's file, fetched if need be.
pub async fn real_model() -> PathBuf {
    tokio::task::spawn_blocking(radiosonde::model_hub::default_model).await.unwrap().unwrap()
}

/// Appends each line to `log`, in the background, until the pipe ends.
fn collect(pipe: impl Read + Send + 'static, log: Arc<Mutex<String>>, mut on_line: impl FnMut(&str) + Send + 'static) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            on_line(&line);
            let mut log = log.lock().unwrap();
            log.push_str(&line);
            log.push('\n');
        }
    });
}

/// A process that has ended meanwhile needs no signal.
fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        kill_process(pid, signal).ok();
    }
}

/// Goes on with `work` while the test does something else.
#[expect(clippy::disallowed_methods, reason = "a test is its own supervisor")]
pub fn in_background<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    tokio::spawn(work)
}
