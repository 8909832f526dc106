//! Traces over the wire, in both protocols, and log lines with their ids.

#[path = "it/support/collector.rs"]
mod collector;
#[path = "telemetry/sampling.rs"]
mod sampling;

use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use axum::http::HeaderMap;
use collector::Collector;
use expect_test::expect;
use flate2::{Compression, write::GzEncoder};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use radiosonde::clock::{MonoNanos, WallAnchor};
use radiosonde::telemetry::labels::{Cause, Hop, ProbeBranch, ProbeEvidence, ProbeOutcome, RequestOutcome, StepPhase};
use radiosonde::telemetry::spans::{
    HopSpan, ProbeAttributes, RequestAttributes, StepAttributes, context, name_probe, name_request, record_probe,
    record_request, record_status, server_span, trace_id, write_hops,
};
use radiosonde::telemetry::{
    LogConfig, LogExport, LogFormat, Metrics, OtlpConfig, OtlpProtocol, SamplingConfig, Tracers, exposition, log,
};
use tracing_subscriber::fmt::MakeWriter;

const REMOTE: &str = "00-11111111111111111111111111111111-2222222222222222-01";
const PROTOCOLS: [OtlpProtocol; 2] = [OtlpProtocol::Grpc, OtlpProtocol::HttpProtobuf];

/// Everything that emits, with log lines kept.
struct Emitter {
    metrics: Metrics,
    tracers: Tracers,
    logs: LogExport,
    lines: Lines,
}

impl Emitter {
    fn new(endpoint: Option<String>, protocol: OtlpProtocol) -> Self {
        Self::sampling(endpoint, protocol, SamplingConfig::default())
    }

    fn sampling(endpoint: Option<String>, protocol: OtlpProtocol, sampling: SamplingConfig) -> Self {
        let metrics = Metrics::new().expect("the series are sound");
        let config = OtlpConfig { endpoint, protocol: Some(protocol) };
        let tracers = Tracers::new(&config, &sampling, metrics.exports.clone()).expect("the settings are sound");
        tracers.engine_started(4711);
        let logs = LogExport::new(&OtlpConfig::default(), metrics.logs.clone()).expect("the settings are sound");
        Self { metrics, tracers, logs, lines: Lines::default() }
    }

    fn run<T>(&self, format: LogFormat, emit: impl FnOnce() -> T) -> T {
        let config = LogConfig { format, filter: "warn,telemetry=info".to_owned() };
        let subscriber =
            log::subscriber(&config, self.tracers.frontend(), &self.logs, &self.metrics.logs, self.lines.clone());
        let (subscriber, _) = subscriber.expect("a sound filter");
        tracing::subscriber::with_default(subscriber, emit)
    }

    /// The sum of a series over its labels, or one sample of it.
    fn sample(&self, name: &str) -> String {
        let (_, text) = exposition::text(&self.metrics);
        let samples = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix([' ', '{']));
        let values: Vec<f64> = samples
            .map(|rest| rest.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a sample has a value"))
            .collect();
        assert!(!values.is_empty(), "there is no {name}");
        values.iter().sum::<f64>().to_string()
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("nobody panics with it").clone()).expect("lines are UTF-8")
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics with it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn headers(traceparent: Option<&str>) -> HeaderMap {
    let parent = traceparent.map(|value| ("traceparent".parse().expect("a name"), value.parse().expect("a value")));
    parent.into_iter().collect()
}

/// A hop from the `from`th to the `to`th tenth of a millisecond of the probe.
fn hop(start: SystemTime, hop: Hop, from: u32, to: Option<u32>) -> HopSpan {
    let at = |tenths: u32| start + Duration::from_micros(100) * tenths;
    HopSpan::new(hop, at(from), to.map(at))
}

fn now() -> SystemTime {
    WallAnchor::now().wall(MonoNanos::now())
}

fn good_probe(tracers: &Tracers, headers: &HeaderMap) -> Option<String> {
    let span = server_span("GET", "/health_generate", "/health_generate", headers);
    name_probe(&span, "p-1");
    let (root, start) = (context(&span), now());
    let step = StepAttributes { number: 7, phase: StepPhase::Prefill, tokens: 1, requests: 1 };
    let hops = [
        hop(start, Hop::Submit, 0, Some(1)),
        hop(start, Hop::IpcToEngine, 1, Some(2)),
        hop(start, Hop::Inbox, 2, Some(3)),
        HopSpan { branch: Some(ProbeBranch::Idle), ..hop(start, Hop::ProcessInput, 3, Some(4)) },
        HopSpan { step: Some(step), ..hop(start, Hop::RunBatch, 4, Some(8)) },
        HopSpan { parent: Some(4), ..hop(start, Hop::Forward, 5, Some(7)) },
        hop(start, Hop::IpcToFrontend, 8, Some(9)),
        hop(start, Hop::Detokenizer, 9, Some(10)),
        hop(start, Hop::Receive, 10, Some(11)),
    ];
    write_hops(tracers, &root, &hops, start + Duration::from_micros(1100));
    let verdict = ProbeAttributes {
        branch: ProbeBranch::Idle,
        outcome: ProbeOutcome::Ok,
        evidence: ProbeEvidence::OwnAnswer,
        stalled_at: None,
        cause: None,
        detail: None,
        limit: Duration::from_secs(20),
    };
    record_probe(&span, &verdict);
    record_status(&span, 200);
    trace_id(&span)
}

fn failed_probe(tracers: &Tracers) -> Option<String> {
    let span = server_span("GET", "/health", "/health", &HeaderMap::new());
    name_probe(&span, "p-2");
    let (root, start) = (context(&span), now());
    let hops = [
        hop(start, Hop::Submit, 0, Some(1)),
        hop(start, Hop::IpcToEngine, 1, Some(2)),
        hop(start, Hop::Inbox, 2, None),
    ];
    write_hops(tracers, &root, &hops, start + Duration::from_micros(500));
    record_status(&span, 503);
    let detail = "x".repeat(511) + "\u{e9}";
    let verdict = ProbeAttributes {
        branch: ProbeBranch::None,
        outcome: ProbeOutcome::Timeout,
        evidence: ProbeEvidence::None,
        stalled_at: Some(Hop::Inbox),
        cause: Some(Cause::StepStuck),
        detail: Some(&detail),
        limit: Duration::from_secs(20),
    };
    record_probe(&span, &verdict);
    trace_id(&span)
}

#[tokio::test]
async fn a_probe_in_the_callers_trace() {
    for protocol in PROTOCOLS {
        let collector = Collector::start(protocol);
        let emitter = Emitter::new(Some(collector.endpoint()), protocol);
        let id = emitter.run(LogFormat::Human, || good_probe(&emitter.tracers, &headers(Some(REMOTE))));
        assert_eq!(id.as_deref(), Some("11111111111111111111111111111111"));
        let id = id.expect("it has one");
        let spans = collector.wait(Duration::from_secs(10), |spans| spans.len() >= 10).await;
        collector.well_formed(&id, Some("2222222222222222"));
        let keys = ["http.response.status_code", "probe.outcome", "probe.branch", "probe.evidence"];
        expect![[r#"
            GET /health_generate http.response.status_code=200 probe.outcome=ok probe.branch=idle probe.evidence=own_answer
              tokenizer_manager.submit
              ipc.to_engine
              scheduler.inbox
              scheduler.process_input_requests probe.branch=idle
              scheduler.run_batch
                model_runner.forward
              ipc.to_frontend
              detokenizer
              tokenizer_manager.receive
        "#]]
        .assert_eq(&collector.tree(&id, &keys));
        for seen in &spans {
            let of_engine = ["scheduler.", "model_runner."].iter().any(|start| seen.span.name.starts_with(start));
            let service = if of_engine { "radiosonde-engine" } else { "radiosonde" };
            assert_eq!(seen.resource["service.name"], service, "{}", seen.span.name);
            assert_eq!(seen.resource["service.version"], env!("CARGO_PKG_VERSION"));
            assert!(!seen.resource["service.instance.id"].is_empty());
            assert_eq!(seen.attributes.get("process.pid").map(String::as_str), of_engine.then_some("4711"));
        }
        let batch = spans.iter().find(|seen| seen.span.name == "scheduler.run_batch").expect("it came");
        assert_eq!(
            (&*batch.attributes["scheduler.step.number"], &*batch.attributes["scheduler.step.phase"]),
            ("7", "prefill")
        );
        emitter.tracers.shutdown(Duration::from_secs(3));
        assert_eq!(emitter.sample("radiosonde_trace_spans_exported_total"), "10");
        assert_eq!(emitter.sample("radiosonde_trace_spans_dropped_total"), "0");
    }
}

#[tokio::test]
async fn a_failed_probe_says_where_and_why() {
    let collector = Collector::start(OtlpProtocol::Grpc);
    let emitter = Emitter::new(Some(collector.endpoint()), OtlpProtocol::Grpc);
    let id = emitter.run(LogFormat::Human, || failed_probe(&emitter.tracers)).expect("spans have ids");
    let spans = collector.wait(Duration::from_secs(10), |spans| spans.len() >= 4).await;
    collector.well_formed(&id, None);
    let keys = ["probe.id", "probe.outcome", "probe.stalled_at", "probe.cause", "probe.limit_seconds", "error.type"];
    expect![[r#"
        GET /health probe.id=p-2 probe.outcome=timeout probe.stalled_at=scheduler.inbox probe.cause=step_stuck probe.limit_seconds=20 error.type=503 ERROR timeout at scheduler.inbox: step_stuck
          tokenizer_manager.submit
          ipc.to_engine
          scheduler.inbox ERROR unfinished
    "#]]
    .assert_eq(&collector.tree(&id, &keys));
    let detail = spans.iter().find_map(|seen| seen.attributes.get("probe.cause_detail")).expect("it has one");
    assert_eq!(detail, &"x".repeat(511), "cut between characters");
}

#[tokio::test]
async fn requests_end_in_their_own_words() {
    let collector = Collector::start(OtlpProtocol::HttpProtobuf);
    let emitter = Emitter::new(Some(collector.endpoint()), OtlpProtocol::HttpProtobuf);
    let request = |outcome, finish_reason, error, status| {
        let span = server_span("POST", "/generate", "/generate", &HeaderMap::new());
        name_request(&span, "r-1");
        let end = RequestAttributes {
            model: "m",
            prompt_tokens: 3,
            cached_tokens: 0,
            completion_tokens: 2,
            retractions: 0,
            first_news: None,
            finish_reason,
            outcome,
            error,
            broken: None,
        };
        record_request(&span, &end);
        if let Some(status) = status {
            record_status(&span, status);
        }
        trace_id(&span).expect("spans have ids")
    };
    let ids = emitter.run(LogFormat::Human, || {
        [
            request(RequestOutcome::Stop, "stop", None, Some(200)),
            request(RequestOutcome::Abort, "abort", None, None),
            request(RequestOutcome::Error, "abort", Some("the forward pass failed"), Some(500)),
        ]
    });
    collector.wait(Duration::from_secs(10), |spans| spans.len() >= 3).await;
    let keys = ["request.rid", "request.outcome", "gen_ai.usage.output_tokens", "gen_ai.response.finish_reasons"];
    let trees: String = ids.iter().map(|id| collector.tree(id, &keys)).collect();
    expect![[r#"
        POST /generate request.rid=r-1 request.outcome=stop gen_ai.usage.output_tokens=2 gen_ai.response.finish_reasons=[stop]
        POST /generate request.rid=r-1 request.outcome=abort gen_ai.usage.output_tokens=2 gen_ai.response.finish_reasons=[abort]
        POST /generate request.rid=r-1 request.outcome=error gen_ai.usage.output_tokens=2 gen_ai.response.finish_reasons=[abort] ERROR the forward pass failed
    "#]]
    .assert_eq(&trees);
}

#[tokio::test]
async fn a_caller_that_does_not_sample_is_heard() {
    let collector = Collector::start(OtlpProtocol::Grpc);
    let emitter = Emitter::new(Some(collector.endpoint()), OtlpProtocol::Grpc);
    let unsampled = REMOTE.replace("-01", "-00");
    let sampled = emitter.run(LogFormat::Human, || {
        assert!(good_probe(&emitter.tracers, &headers(Some(&unsampled))).is_some(), "logs need the id all the same");
        failed_probe(&emitter.tracers)
    });
    emitter.tracers.shutdown(Duration::from_secs(3));
    let ids: Vec<_> = collector.spans().iter().map(|seen| Some(seen.trace_id())).collect();
    assert_eq!(ids, vec![sampled; 4]);
}

#[test]
#[should_panic(expected = "the parent of GET /health_generate")]
fn a_trace_with_a_strange_parent_is_not_well_formed() {
    let collector = Collector::start(OtlpProtocol::Grpc);
    let emitter = Emitter::new(Some(collector.endpoint()), OtlpProtocol::Grpc);
    let id = emitter.run(LogFormat::Human, || good_probe(&emitter.tracers, &headers(Some(REMOTE))));
    emitter.tracers.shutdown(Duration::from_secs(3));
    collector.well_formed(&id.expect("it has one"), None);
}

#[tokio::test]
async fn the_collector_takes_gzip() {
    let collector = Collector::start(OtlpProtocol::HttpProtobuf);
    let span = Span { trace_id: vec![1; 16], span_id: vec![2; 8], name: "packed".to_owned(), ..Span::default() };
    let of_scope = ScopeSpans { spans: vec![span], ..ScopeSpans::default() };
    let of_process = ResourceSpans { scope_spans: vec![of_scope], ..ResourceSpans::default() };
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    let request = ExportTraceServiceRequest { resource_spans: vec![of_process] };
    packer.write_all(&request.encode_to_vec()).expect("a vector takes all");
    let post = reqwest::Client::new().post(format!("{}/v1/traces", collector.endpoint()));
    let post = post.header("content-type", "application/x-protobuf").header("content-encoding", "gzip");
    let answer = post.body(packer.finish().expect("a vector takes all")).send().await.expect("it answers");
    assert_eq!(answer.status(), 200);
    assert_eq!(collector.tree(&"01".repeat(16), &[]), "packed\n");
}

#[test]
fn spans_queued_at_the_end_are_sent() {
    for protocol in PROTOCOLS {
        let collector = Collector::start(protocol);
        let emitter = Emitter::new(Some(collector.endpoint()), protocol);
        emitter.run(LogFormat::Human, || (0..50).for_each(|_| drop(failed_probe(&emitter.tracers))));
        emitter.tracers.shutdown(Duration::from_secs(3));
        let roots = collector.spans().iter().filter(|seen| seen.span.parent_span_id.is_empty()).count();
        assert_eq!((roots, collector.spans().len()), (50, 200));
    }
}

#[test]
fn a_collector_that_never_answers_does_not_hold_the_exit() {
    for protocol in PROTOCOLS {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a free port exists");
        let address = silent.local_addr().expect("a bound listener has an address");
        let emitter = Emitter::new(Some(format!("http://{address}")), protocol);
        emitter.run(LogFormat::Human, || {
            (0..10).for_each(|_| drop(failed_probe(&emitter.tracers)));
            let began = Instant::now();
            emitter.tracers.shutdown(Duration::from_secs(1));
            assert!(began.elapsed() < Duration::from_secs(5), "{protocol:?}: {:?}", began.elapsed());
        });
        let text = emitter.lines.text();
        let warnings: Vec<_> = text.lines().filter(|line| line.contains("WARN")).collect();
        assert_eq!(warnings.len(), 1, "{protocol:?}: {text}");
        assert!(warnings[0].contains("spans were lost") && warnings[0].contains(" spans=40"), "{protocol:?}: {text}");
        assert_eq!(emitter.sample("radiosonde_trace_spans_dropped_total"), "40", "{protocol:?}");
    }
}

#[test]
fn a_collector_that_never_answers_delays_nobody() {
    for protocol in PROTOCOLS {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a free port exists");
        let address = silent.local_addr().expect("a bound listener has an address");
        let emitter = Emitter::new(Some(format!("http://{address}")), protocol);
        emitter.run(LogFormat::Human, || (0..2000).for_each(|_| drop(failed_probe(&emitter.tracers))));
        let number = |name: &str| emitter.sample(name).parse::<usize>().expect("a whole number");
        let waiting = number("radiosonde_trace_spans_queued");
        assert!(waiting <= 4096, "{protocol:?}: {waiting} wait");
        let full = number("radiosonde_trace_spans_dropped_total{reason=\"queue_full\"}");
        assert!(full > 0 && number("radiosonde_trace_spans_exported_total") == 0, "{protocol:?}: {full}");
        emitter.run(LogFormat::Human, || emitter.tracers.shutdown(Duration::from_millis(100)));
        assert_eq!(number("radiosonde_trace_spans_dropped_total"), 8000, "{protocol:?}: each is accounted for");
        assert_eq!(number("radiosonde_trace_spans_queued"), 0, "{protocol:?}");
        let text = emitter.lines.text();
        assert!(text.contains(&format!(" spans=8000 queue_full={full} export_failed=")), "{protocol:?}: {text}");
    }
}

#[test]
fn a_collector_that_is_not_there_costs_the_spans_and_no_more() {
    for protocol in PROTOCOLS {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port exists");
        let address = free.local_addr().expect("a bound listener has an address");
        drop(free);
        let emitter = Emitter::new(Some(format!("http://{address}")), protocol);
        emitter.run(LogFormat::Human, || drop(failed_probe(&emitter.tracers)));
        emitter.tracers.shutdown(Duration::from_secs(3));
        assert_eq!(emitter.sample("radiosonde_trace_spans_dropped_total"), "4", "{protocol:?}");
        assert_eq!(emitter.sample("radiosonde_trace_spans_exported_total"), "0", "{protocol:?}");
    }
}

#[test]
fn without_an_endpoint_there_are_ids_and_no_export() {
    let emitter = Emitter::new(None, OtlpProtocol::Grpc);
    let ids = emitter.run(LogFormat::Human, || [failed_probe(&emitter.tracers), failed_probe(&emitter.tracers)]);
    assert!(ids[0].is_some() && ids[0] != ids[1], "{ids:?}");
    emitter.tracers.shutdown(Duration::from_secs(3));
    // An attempt to export would be counted, whether it succeeds or fails.
    for name in ["radiosonde_trace_spans_exported_total", "radiosonde_trace_spans_dropped_total"] {
        assert_eq!(emitter.sample(name), "0", "{name}");
    }
    assert_eq!(emitter.lines.text(), "");
}

#[test]
fn log_lines_lead_to_the_trace() {
    let emitter = Emitter::new(None, OtlpProtocol::Grpc);
    let line = |format| {
        let before = emitter.lines.text().len();
        emitter.run(format, || {
            let span = server_span("GET", "/health", "/health", &headers(Some(REMOTE)));
            name_probe(&span, "p-9");
            span.in_scope(|| tracing::info!(waited = 1.5, tokens = 3_u32, why = "a b", "probe failed"));
        });
        emitter.lines.text()[before..].to_owned()
    };
    let json: serde_json::Value = serde_json::from_str(&line(LogFormat::Json)).expect("one JSON object");
    assert_eq!(json["trace_id"], "11111111111111111111111111111111");
    assert_eq!(json["span_id"].as_str().map(str::len), Some(16));
    assert_ne!(json["span_id"], "2222222222222222");
    assert_eq!(
        (&json["message"], &json["level"], &json["target"]),
        (&"probe failed".into(), &"INFO".into(), &"telemetry".into())
    );
    assert_eq!((&json["probe_id"], &json["waited"], &json["tokens"]), (&"p-9".into(), &1.5.into(), &3.into()));
    let human = line(LogFormat::Human);
    let told = "INFO telemetry: probe failed waited=1.5 tokens=3 why=\"a b\" probe_id=p-9 \
                trace_id=11111111111111111111111111111111 span_id=";
    assert!(human.contains(told), "{human}");
}
