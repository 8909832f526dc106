//! Memory does not grow with the number of requests, scraped or not, with a collector that answers or not.
//!
//! `RADIOSONDE_REQUESTS=200000` asks for more than the default 20,000.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test's helpers fail as the test does")]

#[path = "it"]
#[expect(dead_code, reason = "shared with tests/it; each binary uses its part")]
mod it {
    pub mod support;
}

use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::join_all;
use it::support::Server;
use serde_json::json;

/// What a request leaves behind is seen from here on: before, pools and caches fill.
const WARM_UP: u64 = 2_000;
const LIMIT_MIB: f64 = 20.0;

/// `VmRSS` of a process, in MiB.
fn resident_mib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap() / 1024.0
}

/// Sends `count` requests, eight at a time.
async fn send(server: &Server, count: u64) {
    let left = AtomicU64::new(count);
    let client = server.client();
    let body = json!({"text": "a", "sampling_params": {"max_new_tokens": 1}});
    let worker = async || {
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            let answer = client.post(server.url("/generate")).json(&body).send().await.unwrap();
            assert_eq!(answer.status(), 200);
            answer.bytes().await.unwrap();
        }
    };
    join_all((0..8).map(|_| worker())).await;
}

async fn does_not_grow(server: Server) {
    let asked = std::env::var("RADIOSONDE_REQUESTS").ok().map(|text| text.parse::<u64>().unwrap());
    let both = || [resident_mib(server.pid()), resident_mib(server.engine_pid())];
    send(&server, WARM_UP).await;
    let before = both();
    send(&server, asked.unwrap_or(20_000) - WARM_UP).await;
    let after = both();
    let grown = [after[0] - before[0], after[1] - before[1]];
    println!("{grown:.1?} MiB more in frontend and engine");
    assert!(grown.iter().all(|grown| *grown < LIMIT_MIB), "frontend, engine: {before:?} MiB, then {after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector() {
    does_not_grow(Server::start(&["--model=scripted"]).await).await;
}

/// The collector accepts connections and never says a word.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_collector_that_never_answers() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("--otlp-traces-endpoint=http://{}", silent.local_addr().unwrap());
    let server = Server::start(&["--model=scripted", &endpoint]).await;
    does_not_grow(server).await;
    drop(silent);
}
