//! What a scrape costs: in both formats, on an idle server, and with a stopped engine while every core is busy.
//!
//! `cargo bench --bench scrape` prints one line for each figure. The client is on the same machine, with the highest
//! priority that it may have: its own waits for a core are not the server's.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and fails loudly")]

use std::hint::{black_box, spin_loop};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use radiosonde::telemetry::exposition::{self, Format};
use radiosonde::telemetry::metrics::{Metrics, MetricsAlias, ReadVitals, Vitals};
use reqwest::Client;
use reqwest::header::ACCEPT;
use rustix::process::{Pid, Signal, kill_process, setpriority_process};

const FORMATS: [(Format, &str, &str); 2] = [
    (Format::Text, "text", "text/plain"),
    (Format::OpenMetrics, "openmetrics", "application/openmetrics-text;version=1.0.0"),
];
const SCRAPES: u32 = 300;
/// Twenty a second.
const INTERVAL: Duration = Duration::from_millis(50);

struct Server {
    child: Child,
    public: String,
    admin: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    async fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_radiosonde"));
        command.args(["--port=0", "--model=scripted", "--metrics-alias=sglang", "--self-probe-interval=0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut url = |prefix| lines.next().unwrap().unwrap().strip_prefix(prefix).unwrap().to_owned();
        let (public, admin) = (url("radiosonde listening on "), url("radiosonde admin on "));
        lines.next().unwrap().unwrap(); // the banner comes when the model is ready
        Self { child, public, admin }
    }

    fn stop_engine(&self) {
        let engine = engine_of(self.child.id());
        kill_process(Pid::from_raw(engine.try_into().unwrap()).unwrap(), Signal::STOP).unwrap();
    }
}

fn engine_of(pid: u32) -> u32 {
    let children = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let all: String = tasks.map(|task| children(task.unwrap())).collect();
    all.split_whitespace().next().unwrap().parse().unwrap()
}

/// Latencies of [`SCRAPES`] scrapes, one every [`INTERVAL`].
async fn scrape(url: &str, accept: &str) -> Vec<Duration> {
    let client = Client::new();
    let mut beat = tokio::time::interval(INTERVAL);
    let mut times = Vec::new();
    for _ in 0..SCRAPES {
        beat.tick().await;
        let began = Instant::now();
        let answer = client.get(url).header(ACCEPT, accept).send().await.unwrap();
        black_box(answer.bytes().await.unwrap());
        times.push(began.elapsed());
    }
    times
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |q: f64| times[((times.len() - 1) as f64 * q).round() as usize].as_secs_f64() * 1e3;
    println!("{what:<44} p50 {:8.2} ms   p99 {:8.2} ms   max {:8.2} ms", at(0.5), at(0.99), at(1.0));
}

async fn listeners(server: &Server, when: &str) {
    for (listener, url) in [("admin", &server.admin), ("public", &server.public)] {
        for (_, name, accept) in FORMATS {
            let times = scrape(&format!("{url}/metrics"), accept).await;
            report(&format!("{when}, {listener}, {name}"), times);
        }
    }
}

/// Threads that keep every core busy until `done`, once the barrier opens.
fn spinners(done: &Arc<AtomicBool>) -> Arc<Barrier> {
    let cores = thread::available_parallelism().unwrap().get();
    let barrier = Arc::new(Barrier::new(cores + 1));
    for _ in 0..cores {
        let (done, barrier) = (Arc::clone(done), Arc::clone(&barrier));
        thread::spawn(move || {
            barrier.wait();
            while !done.load(Relaxed) {
                spin_loop();
            }
        });
    }
    barrier
}

struct Steady;

impl ReadVitals for Steady {
    fn read(&self) -> Vitals {
        Vitals::default()
    }
}

/// The mean of many runs, in microseconds.
fn mean_micros<T>(mut run: impl FnMut() -> T) -> f64 {
    const RUNS: u32 = 500;
    let began = Instant::now();
    for _ in 0..RUNS {
        black_box(run());
    }
    began.elapsed().as_secs_f64() * 1e6 / f64::from(RUNS)
}

/// Where the time goes, without a server around it.
fn parts() {
    let metrics = |alias| {
        let metrics = Metrics::new().unwrap().with_alias(alias);
        metrics.watch(Arc::new(Steady)).unwrap();
        metrics.serves("a model");
        metrics
    };
    let (own, aliased) = (metrics(None), metrics(Some(MetricsAlias::Sglang)));
    println!("{:<44} {:8.1} us", "gather", mean_micros(|| own.gather()));
    for (format, name, _) in FORMATS {
        for (metrics, names) in [(&own, "our names"), (&aliased, "and SGLang's")] {
            let (_, page) = exposition::page(metrics, format);
            let samples = page.lines().filter(|line| !line.starts_with('#')).count();
            let micros = mean_micros(|| exposition::page(metrics, format));
            let what = format!("gather and encode, {name}, {names}");
            println!("{what:<44} {micros:8.1} us   {samples:6} samples   {:8} bytes", page.len());
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    parts();
    let (server, done) = (Server::start().await, Arc::new(AtomicBool::new(false)));
    // Of this thread alone, and after the others began: threads inherit it.
    let spinners_may_start = spinners(&done);
    let raised = setpriority_process(None, -20).is_ok();
    println!("{:<44} {raised}", "client has a higher priority");
    listeners(&server, "idle").await;
    server.stop_engine();
    spinners_may_start.wait();
    listeners(&server, "stopped, cores busy").await;
    done.store(true, Relaxed);
}
