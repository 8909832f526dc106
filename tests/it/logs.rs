//! Log lines of real processes: with the ids of the caller's trace, bounded, and as records at a collector.

use std::net::TcpListener;
use std::time::Duration;

use radiosonde::telemetry::OtlpProtocol;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::collector::Collector;
use crate::support::{Server, eventually};

const MOMENT: Duration = Duration::from_secs(20);
const REMOTE: &str = "00-11111111111111111111111111111111-2222222222222222-01";
const TRACE: &str = "11111111111111111111111111111111";
const ARGS: [&str; 2] = ["--model=scripted:step_ms=20", "--health-check-timeout=1s"];
const SUPPRESSED: &str = "lines were suppressed: too many of one kind";

/// The lines of `server` with the text `message`.
fn lines(server: &Server, message: &str) -> Vec<Value> {
    let log = server.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == message).collect()
}

async fn line(server: &Server, message: &str) -> Value {
    eventually(MOMENT, async || !lines(server, message).is_empty()).await;
    lines(server, message).remove(0)
}

async fn probe(server: &Server, path: &str) -> Value {
    let answer = server.client().get(server.url(path)).header("traceparent", REMOTE).send().await.unwrap();
    answer.json().await.unwrap()
}

async fn generate(server: &Server, body: &Value) -> u16 {
    let request = server.client().post(server.url("/generate")).header("traceparent", REMOTE).json(body);
    request.send().await.unwrap().status().as_u16()
}

fn tokens(output: u32) -> Value {
    json!({"input_ids": [65, 66], "sampling_params": {"max_new_tokens": output, "ignore_eos": true}, "rid": "mine"})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_inside_a_request_has_the_callers_trace() {
    let collector = Collector::start(OtlpProtocol::Grpc);
    let endpoint = format!("--otlp-traces-endpoint={}", collector.endpoint());
    let args = ["--model=scripted:step_ms=20,fail_step=8", "--health-check-timeout=1s", "--engine-restarts=0"];
    let args = [&args[..], &[&endpoint, "--otlp-traces-protocol=grpc"]].concat();
    let server = Server::start(&args).await;
    assert_eq!(generate(&server, &tokens(20)).await, 500);
    let failed = line(&server, "request failed").await;
    assert_eq!((&failed["level"], &failed["rid"]), (&json!("WARN"), &json!("mine")), "{failed}");
    server.stop_engine().await;
    let answer = probe(&server, "/health").await;
    let sick = line(&server, "health probe failed").await;
    assert_eq!((&sick["level"], &sick["probe_id"]), (&json!("WARN"), &answer["probe_id"]), "{sick}");
    assert_eq!((&sick["cause"], &sick["trace_id"]), (&answer["cause"], &answer["trace_id"]), "{sick}");
    let changed = lines(&server, "server status changed").pop().unwrap();
    assert_eq!((&changed["to"], &changed["probe_id"]), (&json!("unhealthy"), &answer["probe_id"]), "{changed}");
    server.signal_engine(Signal::KILL);
    eventually(MOMENT, async || server.metric("radiosonde_engine_up").await == 0.0).await;
    assert_eq!(generate(&server, &tokens(1)).await, 503);
    let refused = line(&server, "request refused").await;
    assert_eq!((&refused["reason"], &refused["status"]), (&json!("not_serving"), &json!(503)), "{refused}");
    let of_trace = |spans: &[crate::support::collector::Seen]| {
        spans.iter().filter(|seen| seen.trace_id() == TRACE).map(|seen| seen.span.span_id.clone()).collect::<Vec<_>>()
    };
    for line in [failed, sick, changed, refused] {
        assert_eq!(line["trace_id"], TRACE, "{line}");
        let span_id = line["span_id"].as_str().unwrap().to_owned();
        let is_there = |spans: &[_]| of_trace(spans).iter().any(|id| hex(id) == span_id);
        collector.wait(MOMENT, is_there).await;
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_failed_probes_is_bounded_and_told() {
    let server = Server::start(&ARGS).await;
    server.stop_engine().await;
    const PROBES: usize = 300;
    let began = Instant::now();
    let probes = (0..PROBES).map(|_| probe(&server, "/health?timeout=200ms"));
    let outcomes = futures::future::join_all(probes).await;
    assert!(outcomes.iter().all(|answer| answer["outcome"] == "timeout"));
    let took = began.elapsed().as_secs_f64();
    let told = line(&server, SUPPRESSED).await;
    let written = lines(&server, "health probe failed").len();
    assert!(written >= 20 && written as f64 <= 20.0 + 10.0 * (took + 1.0), "{written} lines in {took} s");
    assert_eq!((&told["line"], &told["level"]), (&json!("health probe failed"), &json!("WARN")), "{told}");
    let suppressed: u64 = lines(&server, SUPPRESSED).iter().map(|line| line["lines"].as_u64().unwrap()).sum();
    assert_eq!(written as u64 + suppressed, PROBES as u64);
    assert_eq!(server.metric("radiosonde_log_lines_suppressed_total").await, suppressed as f64);
    server.signal_engine(Signal::CONT);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_reach_a_collector() {
    for protocol in [OtlpProtocol::Grpc, OtlpProtocol::HttpProtobuf] {
        let collector = Collector::start(protocol);
        let name = if protocol == OtlpProtocol::Grpc { "grpc" } else { "http/protobuf" };
        let endpoint = format!("--otlp-logs-endpoint={}", collector.endpoint());
        let protocol = format!("--otlp-logs-protocol={name}");
        let args = [&ARGS[..], &[&endpoint, &protocol]].concat();
        let server = Server::start(&args).await;
        server.stop_engine().await;
        let answer = probe(&server, "/health").await;
        let is_failure = |record: &crate::support::collector::SeenRecord| record.message() == "health probe failed";
        let records = collector.wait_records(MOMENT, |records| records.iter().any(is_failure)).await;
        let failure = records.iter().find(|record| is_failure(record)).unwrap();
        assert_eq!((failure.trace_id().as_str(), &*failure.record.severity_text), (TRACE, "WARN"));
        assert_eq!(json!(failure.attributes["probe.id"]), answer["probe_id"]);
        assert_eq!(json!(failure.attributes["cause"]), answer["cause"]);
        assert_eq!(failure.resource["service.name"], "radiosonde");
        assert_eq!(line(&server, "health probe failed").await["span_id"], failure.span_id());
        server.signal_engine(Signal::CONT);
        let exported = async || server.metric("radiosonde_log_records_exported_total").await;
        eventually(MOMENT, async || exported().await >= records.len() as f64).await;
        assert_eq!(server.metric("radiosonde_log_records_dropped_total").await, 0.0);
        assert_eq!(collector.spans().len(), 0, "traces were not asked for");
        assert_eq!(server.stop().await.code(), Some(0));
        let last = collector.records().iter().any(|record| record.message() == "graceful exit begins");
        assert!(last, "what is queued at the end is sent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_leave_only_if_they_are_meant_to() {
    let collector = Collector::start(OtlpProtocol::Grpc);
    let endpoint = collector.endpoint();
    let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str());
    let protocol = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    for logs in [false, true] {
        let env = [all, protocol, ("OTEL_LOGS_EXPORTER", "otlp")];
        let server = Server::start_with(&ARGS, &env[..if logs { 3 } else { 2 }]).await;
        probe(&server, "/health").await;
        assert_eq!(server.stop().await.code(), Some(0));
        assert!(!collector.spans().is_empty());
        assert_eq!(collector.records().is_empty(), !logs);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_is_in_nobodys_way() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("--otlp-logs-endpoint=http://{}", silent.local_addr().unwrap());
    let args = [&ARGS[..], &[&endpoint, "--otlp-logs-protocol=grpc"]].concat();
    let mut server = Server::start(&args).await;
    assert_eq!(probe(&server, "/health").await["outcome"], "ok");
    server.signal(Signal::TERM);
    let began = Instant::now();
    assert_eq!(server.wait_exit(MOMENT).await.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    let lost = line(&server, "log records were lost: the collector did not take them").await;
    assert!(lost["records"].as_u64().unwrap() >= 3, "{lost}");
}

async fn configure(server: &Server, body: &Value) -> (u16, Value) {
    let answer = server.client().post(server.url("/configure_logging")).json(body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_logged_is_changed_while_the_server_runs() {
    let server = Server::start(&["--model=scripted", "--log-level=warn"]).await;
    let of_request =
        |rid: &str| json!({"text": "a", "rid": rid, "sampling_params": {"max_new_tokens": 3, "ignore_eos": true}});
    assert_eq!(generate(&server, &of_request("before")).await, 200);
    let (_, answer) = configure(&server, &json!({"log_requests": true, "log_requests_level": 0})).await;
    assert_eq!(answer, json!({"log_level": "warn", "log_requests": true}));
    assert_eq!(generate(&server, &of_request("on")).await, 200);
    let (_, answer) = configure(&server, &json!({"log_requests": false, "log_level": "radiosonde=debug"})).await;
    assert_eq!(answer, json!({"log_level": "radiosonde=debug", "log_requests": false}));
    assert_eq!(generate(&server, &of_request("off")).await, 200);
    let (_, answer) = configure(&server, &json!({"log_requests": true, "dump_requests_folder": null})).await;
    assert_eq!(answer, json!({"log_level": "radiosonde=debug", "log_requests": true}));
    assert_eq!(generate(&server, &of_request("again")).await, 200);

    eventually(MOMENT, async || lines(&server, "request ended").iter().any(|line| line["rid"] == "again")).await;
    let ended = lines(&server, "request ended");
    assert_eq!(ended.iter().map(|line| &line["rid"]).collect::<Vec<_>>(), ["on", "again"]);
    let first = &ended[0];
    assert_eq!((&first["target"], &first["trace_id"]), (&json!("radiosonde::requests"), &json!(TRACE)));
    assert_eq!((&first["outcome"], &first["completion_tokens"]), (&json!("length"), &json!(3)), "{first}");
    assert!(first["first_output_ms"].as_f64().unwrap() <= first["duration_ms"].as_f64().unwrap(), "{first}");
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_log_what_was_asked_for_too() {
    let server = Server::start(&["--model=scripted"]).await;
    assert_eq!(configure(&server, &json!({"log_level": "debug"})).await.0, 200);
    // One of each process.
    eventually(MOMENT, async || lines(&server, "what is logged changes").len() == 2).await;
    server.signal_engine(Signal::TERM);
    eventually(MOMENT, async || lines(&server, "engine ends").len() == 1).await;
    eventually(MOMENT, async || server.metric("radiosonde_engine_restarts_total").await == 1.0).await;
    eventually(MOMENT, async || generate(&server, &tokens(1)).await == 200).await; // by the next engine
    server.signal_engine(Signal::TERM);
    eventually(MOMENT, async || lines(&server, "engine ends").len() == 2).await;
}

#[tokio::test]
async fn a_wrong_order_to_log_changes_nothing() {
    let server = Server::start(&["--model=scripted"]).await;
    for (field, value) in [
        ("log_level", json!("loud")),
        ("log_level", json!("info,radiosonde=verbose")),
        ("log_level", json!(3)),
        ("log_requests", json!("yes")),
        ("log_requests_level", json!(1)),
        ("log_requests_level", json!(-1)),
        ("log_requests_format", json!("json")),
        ("dump_requests_folder", json!("/tmp")),
        ("dump_requests_threshold", json!(1)),
        ("dump_requests_exclude_meta_keys", json!([])),
        ("crash_dump_folder", json!("/tmp")),
    ] {
        let body = json!({"log_level": "error", "log_requests": true, field: value});
        let (status, answer) = configure(&server, &body).await;
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(field)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(field), "{answer}");
    }
    assert_eq!(configure(&server, &json!({"loglevel": "error"})).await.0, 400);
    let (_, answer) = configure(&server, &json!({})).await;
    assert_eq!(answer, json!({"log_level": "info", "log_requests": null}));
}
