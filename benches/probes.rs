//! What a probe costs, idle and busy, next to what it stands for: a one-token request, and a step of the scheduler.
//!
//! `cargo bench --bench probes` starts a server with the default model and prints one line for each figure. The figures
//! are compared within one run only: a machine's noise is in both.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a bench prints, and fails loudly")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::Client;
use serde_json::{Value, json};

struct Server {
    child: Child,
    url: String,
    client: Client,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_radiosonde"));
        let mut child = command.args(["--port", "0"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let url = first.strip_prefix("radiosonde listening on ").unwrap().to_owned();
        lines.next().unwrap().unwrap(); // the banner comes when the model is ready
        Self { child, url, client: Client::new() }
    }

    async fn probe(&self) -> (Duration, Value) {
        let began = Instant::now();
        let answer = self.client.get(format!("{}/health_generate", self.url)).send().await.unwrap();
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["healthy"], true, "{body}");
        (began.elapsed(), body)
    }

    /// How long a request takes.
    async fn generate(&self, prompt: usize, output: u32) -> Duration {
        let body = json!({
            "input_ids": (0..prompt).map(|i| i % 1000 + 100).collect::<Vec<_>>(),
            "sampling_params": {"max_new_tokens": output, "ignore_eos": true, "temperature": 0},
        });
        let began = Instant::now();
        let answer = self.client.post(format!("{}/generate", self.url)).json(&body).send().await.unwrap();
        assert!(answer.status().is_success());
        answer.bytes().await.unwrap();
        began.elapsed()
    }

    async fn metric(&self, name: &str) -> f64 {
        let page = self.client.get(format!("{}/metrics", self.url)).send().await.unwrap().text().await.unwrap();
        let line = page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }
}

fn quantile(times: &mut [Duration], q: f64) -> f64 {
    times.sort_unstable();
    let index = ((times.len() - 1) as f64 * q).round() as usize;
    times[index].as_secs_f64() * 1e3
}

fn report(what: &str, times: &mut [Duration]) {
    let (p50, p95, max) = (quantile(times, 0.5), quantile(times, 0.95), quantile(times, 1.0));
    println!("{what:<44} p50 {p50:8.1} ms   p95 {p95:8.1} ms   max {max:8.1} ms");
}

async fn idle(server: &Server) {
    let (mut probes, mut requests) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        let (took, body) = server.probe().await;
        assert_eq!(body["branch"], "idle");
        probes.push(took);
        requests.push(server.generate(1, 1).await);
    }
    report("idle probe", &mut probes);
    report("one-token request, interleaved", &mut requests);
    println!("{:<44} {:.2}", "  probe / request, medians", quantile(&mut probes, 0.5) / quantile(&mut requests, 0.5));
}

/// Probes during one long prefill, against the longest step in the same time.
async fn busy(server: &Server) {
    let prefill = server.generate(6000, 1);
    let watch = async {
        while server.metric("radiosonde_num_running_reqs").await < 1.0 {}
        let (mut probes, mut ages, mut step) = (Vec::new(), Vec::new(), 0.0f64);
        for _ in 0..20 {
            let (took, body) = server.probe().await;
            assert_eq!(body["branch"], "busy", "{body}");
            probes.push(took);
            for _ in 0..8 {
                step = step.max(server.metric("radiosonde_scheduler_step_age_seconds").await);
                ages.push(Duration::from_secs_f64(server.metric("radiosonde_last_receive_age_seconds").await));
                tokio::time::sleep(Duration::from_millis(15)).await; // spreads the scrapes over the steps
            }
        }
        report("busy probe, prefill of 6,000 tokens", &mut probes);
        report("age of last_receive_tstamp meanwhile", &mut ages);
        println!("{:<44} max {:8.1} ms", "longest age of a step seen", step * 1e3);
    };
    let (took, ()) = tokio::join!(prefill, watch);
    println!("{:<44} {:8.1} tokens/s", "prefill of 6,000 tokens, probed", 6000.0 / took.as_secs_f64());
}

async fn throughput(server: &Server) {
    let alone = server.generate(32, 128).await;
    println!("{:<44} {:8.1} tokens/s", "alone: 128 tokens after 32", 128.0 / alone.as_secs_f64());
    let began = Instant::now();
    join_all((0..8).map(|_| server.generate(32, 128))).await;
    println!("{:<44} {:8.1} tokens/s", "8 streams: 128 tokens after 32 each", 1024.0 / began.elapsed().as_secs_f64());
}

fn resident_mib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

fn engine_of(pid: u32) -> u32 {
    let children = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let all: String = tasks.map(|task| children(task.unwrap())).collect();
    all.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let began = Instant::now();
    let server = Server::start();
    println!("{:<44} {:8.1} ms", "start to ready", began.elapsed().as_secs_f64() * 1e3);
    let (frontend, engine) = (server.child.id(), engine_of(server.child.id()));
    let memory = |when: &str| {
        let (frontend, engine) = (resident_mib(frontend), resident_mib(engine));
        println!("{:<44} frontend {frontend:6.0} MiB   engine {engine:6.0} MiB", format!("resident, {when}"));
    };
    memory("ready");
    idle(&server).await;
    throughput(&server).await;
    busy(&server).await;
    memory("after all this");
}
