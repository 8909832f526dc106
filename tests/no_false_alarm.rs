//! Load of every kind, and no false alarm: whatever users do, a server that works says so.
//!
//! `RADIOSONDE_LOAD_SECONDS=3600` asks for more than the default half a minute, `RADIOSONDE_SEED` for another order.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail as the test does")]

#[path = "it"]
#[expect(dead_code, reason = "shared with tests/it; each binary uses its part")]
mod it {
    pub mod support;
}

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use it::support::rig::Rig;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;

/// A step takes 20 ms and a probe waits for one: the limit leaves room for a machine that is busy with other tests, and
/// is far below what a queue behind all this load would cost.
const ARGS: [&str; 6] = [
    "--model=scripted:step_ms=20",
    "--health-check-timeout=2s",
    "--chunked-prefill-size=32",
    "--max-running-requests=8",
    "--max-queued-requests=16",
    "--max-total-tokens=2048", // so small that eight streams do not fit: requests are retracted all the time
];

/// What users do for a while.
#[derive(Debug, Clone, Copy)]
enum Deed {
    /// Long prompts, one after the other.
    LongPrefills,
    /// More at once than there are places and queue.
    Burst,
    /// Streams that outgrow the pool.
    Retraction,
    /// Streams that are given up.
    Aborts,
    /// Generation is paused and continued.
    Pause(&'static str),
    /// Nothing.
    Silence,
}

const DEEDS: [Deed; 8] = [
    Deed::LongPrefills,
    Deed::Burst,
    Deed::Retraction,
    Deed::Aborts,
    Deed::Pause("in_place"),
    Deed::Pause("retract"),
    Deed::Pause("abort"),
    Deed::Silence,
];

#[tokio::test]
async fn every_probe_is_good() {
    let number = |variable: &str, default| std::env::var(variable).map_or(default, |text| text.parse().unwrap());
    let (seed, seconds) = (number("RADIOSONDE_SEED", 1), number("RADIOSONDE_LOAD_SECONDS", 30));
    let mut random = StdRng::seed_from_u64(seed);
    let rig = Rig::start(&ARGS).await;
    let end = Instant::now() + Duration::from_secs(seconds);
    let load = async {
        while Instant::now() < end {
            let deed = *DEEDS.choose(&mut random).unwrap();
            act(&rig, deed, &mut random).await;
        }
    };
    let probes = async {
        let mut outcomes = BTreeMap::new();
        while Instant::now() < end {
            for path in ["/health", "/health_generate", "/health?evidence=own"] {
                let answer = rig.bare_probe(path).await;
                assert_eq!(answer.status, 200, "seed {seed}: {}", answer.body);
                assert_eq!(answer.body["status"], "up", "seed {seed}: {}", answer.body);
                *outcomes.entry(answer.body["outcome"].as_str().unwrap().to_owned()).or_insert(0) += 1;
            }
        }
        outcomes
    };
    let ((), outcomes) = tokio::join!(load, probes);
    assert_eq!(outcomes.keys().collect::<Vec<_>>(), ["ok", "paused"], "seed {seed}");
    assert!(rig.server.metric("radiosonde_num_retractions_total").await > 0.0, "the pool was to be too small");
    let alarms = [("from", "up"), ("to", "unhealthy")];
    assert_eq!(rig.server.metric_with("radiosonde_server_status_transitions_total", &alarms).await, 0.0);
    rig.back_at_rest().await;
    report(seconds, &outcomes);
}

/// Does `deed`, for a second or two.
async fn act(rig: &Rig, deed: Deed, random: &mut StdRng) {
    match deed {
        Deed::LongPrefills => served(rig.requests(2, 900, 4).await.unwrap()),
        Deed::Burst => {
            let answers = rig.requests(40, 50, 5).await.unwrap();
            let refused = answers.iter().filter(|status| **status == Some(503)).count();
            assert!(refused <= 16, "24 have a place or wait: {answers:?}");
        }
        Deed::Retraction => served(rig.requests(8, 200, 80).await.unwrap()),
        Deed::Aborts => {
            let streams = rig.requests(8, 20, 1000);
            rig.busy_with(8, 0).await;
            streams.abort();
            rig.busy_with(0, 0).await;
        }
        Deed::Pause(mode) => {
            let streams = rig.requests(random.random_range(1..8), 20, 20);
            assert_eq!(rig.post("/pause_generation", &json!({"mode": mode})).await, 200);
            tokio::time::sleep(Duration::from_millis(random.random_range(1..1000))).await; // how long it is paused
            assert_eq!(rig.post("/continue_generation", &json!({})).await, 200);
            served(streams.await.unwrap());
        }
        Deed::Silence => tokio::time::sleep(Duration::from_millis(random.random_range(1..1000))).await, // its length
    }
}

fn served(answers: Vec<Option<u16>>) {
    assert!(answers.iter().all(|status| *status == Some(200)), "{answers:?}");
}

#[expect(clippy::print_stdout, reason = "shown with --nocapture")]
fn report(seconds: u64, outcomes: &BTreeMap<String, u64>) {
    println!("{seconds} s of load, probes: {outcomes:?}");
}
