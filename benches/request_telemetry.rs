//! What the trace of one user request costs the frontend: root span, ledger and hops, without the export.
//!
//! `cargo bench --bench request_telemetry` prints one line for each kind of request. The time is that of one thread, and
//! the best of several rounds: noise only adds to it.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and fails loudly")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::header::{HOST, USER_AGENT};
use axum::http::{HeaderMap, HeaderValue, Uri, Version};
use radiosonde::clock::MonoNanos;
use radiosonde::io_struct::{EngineEvent, PrefillChunk, Purpose, Rid, StepInfo};
use radiosonde::probe_ledger::ProbeLedger;
use radiosonde::telemetry::labels::{Hop, RequestEndpoint, RequestOutcome, StepPhase};
use radiosonde::telemetry::spans::{self, CallAttributes, Caller, RequestAttributes, StreamSpan};
use radiosonde::telemetry::{LogConfig, LogExport, Metrics, OtlpConfig, OtlpProtocol, SamplingConfig, Tracers, log};

const ROUNDS: u32 = 20;
const REQUESTS: u32 = 500;

fn headers() -> HeaderMap {
    HeaderMap::from_iter([
        (HOST, HeaderValue::from_static("127.0.0.1:8080")),
        (USER_AGENT, HeaderValue::from_static("python-requests/2.32")),
    ])
}

/// From submit to the last byte, as the stations tell it.
fn request(ledger: &ProbeLedger, chunks: u64) {
    let (headers, uri) = (headers(), Uri::from_static("/generate"));
    let span = spans::server_span("POST", "/generate", "/generate", &headers);
    let peer = Some(SocketAddr::from(([127, 0, 0, 1], 4711)));
    spans::record_caller(&span, &Caller { peer, version: Version::HTTP_11, uri: &uri, headers: &headers });
    let rid = Rid::random();
    spans::name_request(&span, rid.as_str());
    spans::record_call(
        &span,
        &CallAttributes {
            endpoint: RequestEndpoint::Generate,
            model: "m",
            response_id: rid.as_str(),
            choices: 1,
            stream: true,
            max_tokens: Some(128),
            temperature: 0.7,
            top_p: 1.0,
            seed: Some(1),
            grammar: None,
        },
    );
    let now = MonoNanos::now;
    let entered = |hop| ledger.note(&EngineEvent::HopEntered { rid: rid.clone(), serial: 1, hop }, now());
    let left = |hop| ledger.note(&EngineEvent::HopLeft { rid: rid.clone(), serial: 1, hop }, now());
    ledger.begin(&rid, 1, Purpose::Serve, spans::context(&span), now());
    ledger.enter(&rid, Hop::Submit, now());
    ledger.leave(&rid, Hop::Submit, now());
    ledger.enter(&rid, Hop::IpcToEngine, now());
    entered(Hop::Inbox);
    left(Hop::Inbox);
    entered(Hop::ProcessInput);
    left(Hop::ProcessInput);
    entered(Hop::Queue);
    left(Hop::Queue);
    entered(Hop::Prefill);
    for number in 1..=chunks {
        let step = StepInfo { number, phase: StepPhase::Prefill, tokens: 512, requests: 1 };
        ledger.note(&EngineEvent::StepBegan(step), now());
        ledger.note(&EngineEvent::PrefillChunks(vec![PrefillChunk { rid: rid.clone(), tokens: 512 }]), now());
    }
    left(Hop::Prefill);
    entered(Hop::Decode);
    left(Hop::Decode);
    ledger.answer_received(&rid, now(), now());
    ledger.enter(&rid, Hop::Detokenizer, now());
    ledger.detokenized(&rid, now(), now(), Duration::ZERO);
    ledger.enter(&rid, Hop::Receive, now());
    ledger.leave(&rid, Hop::Receive, now());
    ledger.end(&rid, 1, RequestOutcome::Length, now()).unwrap();
    spans::record_request(
        &span,
        &RequestAttributes {
            model: "m",
            prompt_tokens: 6000,
            cached_tokens: 0,
            completion_tokens: 128,
            retractions: 0,
            first_news: Some(Duration::from_millis(20)),
            finish_reason: "length",
            outcome: RequestOutcome::Length,
            error: None,
            broken: None,
        },
    );
    spans::record_status(&span, 200);
    StreamSpan::begin(&span).sent(1000);
}

fn measure(what: &str, ledger: &ProbeLedger, chunks: u64) {
    let round = || {
        let began = Instant::now();
        (0..REQUESTS).for_each(|_| request(ledger, chunks));
        began.elapsed() / REQUESTS
    };
    let best = (0..ROUNDS).map(|_| round()).min().unwrap_or(Duration::MAX);
    println!("{what:<44} {:8.1} us", best.as_secs_f64() * 1e6);
}

/// Spans go nowhere, or to a collector that is not there: then they are recorded and queued as for one that is.
fn run(name: &str, endpoint: Option<String>) {
    let metrics = Metrics::new().unwrap();
    let config = OtlpConfig { endpoint, protocol: Some(OtlpProtocol::HttpProtobuf) };
    let tracers = Arc::new(Tracers::new(&config, &SamplingConfig::default(), metrics.exports.clone()).unwrap());
    let logs = LogExport::new(&OtlpConfig::default(), metrics.logs.clone()).unwrap();
    tracers.engine_started(4711);
    let subscriber = log::subscriber(
        &LogConfig { filter: "off".to_owned(), ..LogConfig::default() },
        tracers.frontend(),
        &logs,
        &metrics.logs,
        std::io::sink,
    );
    let ledger = ProbeLedger::new(Arc::clone(&tracers));
    tracing::subscriber::with_default(subscriber.unwrap().0, || {
        measure(&format!("{name}, 1 prefill chunk"), &ledger, 1);
        measure(&format!("{name}, 12 prefill chunks"), &ledger, 12);
    });
    tracers.shutdown(Duration::from_secs(1));
}

fn main() {
    run("not exported", None);
    run("exported", Some("http://127.0.0.1:9".to_owned()));
}
