//! What being watched costs: throughput with everything on next to everything off, and the CPU time of one probe.
//!
//! `cargo bench --bench telemetry` runs two servers with the default model, one round on each in turn, and prints the
//! ratio of the medians. Everything on: traces of every request to a live collector, JSON logs, a scrape each second.
//! Everything off: no traces, no logs, no scrapes. `RADIOSONDE_ROUNDS=20` asks for more than the default 10.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a bench prints, and fails loudly")]

#[path = "../tests/it"]
#[expect(dead_code, unused_imports, reason = "shared with tests/it, whose own tests a bench does not run")]
mod it {
    pub mod support;
}

use std::time::{Duration, Instant};

use futures::future::join_all;
use it::support::collector::Collector;
use it::support::{Server, real_model};
use radiosonde::telemetry::OtlpProtocol;
use serde_json::json;

const STREAMS: usize = 8;
const TOKENS: usize = 128;
const PROBES: usize = 2000;

/// Tokens per second of [`STREAMS`] streams.
async fn round(server: &Server) -> f64 {
    let body = json!({
        "input_ids": (100..132).collect::<Vec<_>>(), "stream": true,
        "sampling_params": {"max_new_tokens": TOKENS, "ignore_eos": true, "temperature": 0},
    });
    let stream = async || {
        let answer = server.client().post(server.url("/generate")).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.bytes().await.unwrap();
    };
    let began = Instant::now();
    join_all((0..STREAMS).map(|_| stream())).await;
    (STREAMS * TOKENS) as f64 / began.elapsed().as_secs_f64()
}

/// [`round`], scraped once a second.
async fn watched_round(server: &Server) -> f64 {
    let scrape = async {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        loop {
            ticks.tick().await;
            server.metrics().await;
        }
    };
    tokio::select! {
        tokens = round(server) => tokens,
        () = scrape => unreachable!(),
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(what: &str, values: &mut [f64]) -> f64 {
    let middle = median(values);
    let (low, high) = (values[0], values[values.len() - 1]);
    println!("{what:<44} median {middle:8.1} tokens/s   {low:.1} to {high:.1}");
    middle
}

async fn throughput() {
    let model = real_model().await;
    let model = model.to_str().unwrap();
    let collector = Collector::start(OtlpProtocol::Grpc);
    let endpoint = format!("--otlp-traces-endpoint={}", collector.endpoint());
    let on = Server::start(&["--model", model, "--otlp-traces-protocol=grpc", &endpoint]).await;
    let off = Server::start(&["--model", model, "--log-level=off"]).await;
    let rounds = std::env::var("RADIOSONDE_ROUNDS").map_or(10, |text| text.parse().unwrap());
    let (mut with, mut without) = (Vec::new(), Vec::new());
    round(&off).await;
    watched_round(&on).await;
    for turn in 0..rounds {
        // Whoever comes second in a round finds a warmer machine: they take turns.
        if turn % 2 == 0 {
            without.push(round(&off).await);
            with.push(watched_round(&on).await);
        } else {
            with.push(watched_round(&on).await);
            without.push(round(&off).await);
        }
    }
    let without = report("8 streams, everything off", &mut without);
    let with = report("8 streams, everything on", &mut with);
    println!("{:<44} {:.3}", "  on / off, medians", with / without);
}

/// CPU seconds of a process so far.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// CPU microseconds of both processes for one probe.
async fn probe_cost(server: &Server) -> f64 {
    let both = || cpu_seconds(server.pid()) + cpu_seconds(server.engine_pid());
    let before = both();
    for _ in 0..PROBES {
        let answer = server.client().get(server.url("/health_generate")).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.bytes().await.unwrap();
    }
    (both() - before) / PROBES as f64 * 1e6
}

async fn probes() {
    let collector = Collector::start(OtlpProtocol::Grpc);
    let endpoint = format!("--otlp-traces-endpoint={}", collector.endpoint());
    let scripted = "--model=scripted";
    let on = Server::start(&[scripted, "--otlp-traces-protocol=grpc", &endpoint]).await;
    let off = Server::start(&[scripted, "--log-level=off"]).await;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        with.push(probe_cost(&on).await);
        without.push(probe_cost(&off).await);
    }
    let (with, without) = (median(&mut with), median(&mut without));
    println!("{:<44} {without:8.1} us", "CPU of one probe, no collector, no logs");
    println!("{:<44} {with:8.1} us", "CPU of one probe, traced and logged");
    println!("{:<44} {:8.1} us", "  difference", with - without);
}

#[tokio::main]
async fn main() {
    probes().await;
    throughput().await;
}
