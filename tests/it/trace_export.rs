//! The way to the collector, whatever that does: absent, silent, slow, late, secured. Nobody waits for it.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use radiosonde::telemetry::OtlpProtocol;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::process::Signal;
use serde_json::json;

use crate::support::collector::{Collector, Seen, Setup, Tls};
use crate::support::{Server, eventually};

const PROTOCOLS: [(OtlpProtocol, &str); 2] =
    [(OtlpProtocol::Grpc, "grpc"), (OtlpProtocol::HttpProtobuf, "http/protobuf")];
const MOMENT: Duration = Duration::from_secs(20);
const LOST: &str = "radiosonde_trace_spans_dropped_total";
const UNREACHED: &str = "traces do not reach the collector";
const REACHED_AGAIN: &str = "traces reach the collector again";

/// A server with a scripted model that exports to `address`. It does not probe itself, so that what is exported is the
/// test's own doing.
async fn exporting(address: SocketAddr, protocol: &str, env: &[(&str, &str)]) -> Server {
    let endpoint = format!("http://{address}");
    let ours = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)];
    Server::start_with(&["--model=scripted", "--self-probe-interval=0"], &[&ours, env].concat()).await
}

async fn probe(server: &Server) -> u16 {
    server.client().get(server.url("/health_generate")).send().await.unwrap().status().as_u16()
}

async fn request(server: &Server) -> u16 {
    let body = json!({"input_ids": [65], "sampling_params": {"max_new_tokens": 1}});
    server.client().post(server.url("/generate")).json(&body).send().await.unwrap().status().as_u16()
}

fn lines(server: &Server, text: &str) -> usize {
    server.log().lines().filter(|line| line.contains(text)).count()
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn roots<'a>(seen: &'a [Seen], name: &str) -> Vec<&'a Seen> {
    seen.iter().filter(|seen| seen.span.name == name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_comes_later_gets_what_is_new() {
    for (protocol, name) in PROTOCOLS {
        let address = free_address();
        let server = exporting(address, name, &[]).await;
        for lost_before in [0.0, 1.0] {
            assert_eq!(probe(&server).await, 200, "{name}");
            let reason = [("reason", "export_failed")];
            eventually(MOMENT, async || server.metric_with(LOST, &reason).await > lost_before).await;
        }
        assert_eq!((lines(&server, UNREACHED), lines(&server, REACHED_AGAIN)), (1, 0), "{name}: {}", server.log());
        let collector = Collector::start_as(Setup { address, ..Setup::of(protocol) });
        eventually(MOMENT, async || {
            assert_eq!(probe(&server).await, 200, "{name}");
            lines(&server, REACHED_AGAIN) > 0
        })
        .await;
        collector.wait(MOMENT, |seen| !roots(seen, "GET /health_generate").is_empty()).await;
        assert_eq!((lines(&server, UNREACHED), lines(&server, REACHED_AGAIN)), (1, 1), "{name}: {}", server.log());
        assert_eq!(lines(&server, "panicked"), 0, "{name}: {}", server.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_takes_its_time_loses_nothing_and_delays_nobody() {
    for (protocol, name) in PROTOCOLS {
        let collector = Collector::start_as(Setup { is_open: false, ..Setup::of(protocol) });
        let server = exporting(collector.address(), name, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "60000")]).await;
        for _ in 0..20 {
            assert_eq!((probe(&server).await, request(&server).await), (200, 200), "{name}");
        }
        assert!(server.metric("radiosonde_trace_spans_queued").await >= 20.0 * 20.0, "{name}: it has answered nothing");
        collector.open();
        let all = |seen: &[Seen]| roots(seen, "POST /generate").len() == 20;
        collector.wait(MOMENT, all).await;
        eventually(MOMENT, async || server.metric("radiosonde_trace_spans_queued").await < 12.0).await;
        assert_eq!(server.metric(LOST).await, 0.0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_collector_does_not_hold_the_exit() {
    for (_, name) in PROTOCOLS {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut server = exporting(silent.local_addr().unwrap(), name, &[]).await;
        for _ in 0..10 {
            assert_eq!(request(&server).await, 200, "{name}");
        }
        server.signal(Signal::TERM);
        assert_eq!(server.wait_exit(MOMENT).await.code(), Some(0), "{name}");
        let log = server.log();
        let told: Vec<_> = log.lines().filter(|line| line.contains("spans were lost")).collect();
        assert_eq!(told.len(), 1, "{name}: {log}");
        let told: serde_json::Value = serde_json::from_str(told[0]).unwrap();
        assert!(told["spans"].as_u64().unwrap() >= 100, "{name}: {told}");
        assert!(told["shutdown"].as_u64().unwrap() > 0, "{name}: {told}");
    }
}

/// An authority, and what it has vouched for: the collector and its client.
struct Certified {
    authority: String,
    collector: (String, String),
    client: (String, String),
}

fn certified() -> Certified {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let sign = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    Certified { authority, collector: sign("127.0.0.1"), client: sign("client") }
}

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.into_os_string().into_string().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secured_collector_is_spoken_to_and_a_strange_one_is_not() {
    let (certified, folder) = (certified(), tempfile::tempdir().unwrap());
    let authority = written(folder.path(), "ca.pem", &certified.authority);
    let certificate = written(folder.path(), "client.pem", &certified.client.0);
    let key = written(folder.path(), "client.key", &certified.client.1);
    let tls = Tls { identity: certified.collector.clone(), client_authority: certified.authority.clone() };
    for (protocol, name) in PROTOCOLS {
        let collector = Collector::start_as(Setup { tls: Some(tls.clone()), ..Setup::of(protocol) });
        let endpoint = format!("https://{}", collector.address());
        let open = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", name),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2000"),
        ];
        let trusting = [
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", &*authority),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &certificate),
            ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", &key),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc,x-tenant=7"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ];
        let stranger = Server::start_with(&["--model=scripted"], &open).await;
        eventually(MOMENT, async || stranger.metric(LOST).await > 0.0).await;
        assert_eq!((lines(&stranger, UNREACHED), collector.spans().len()), (1, 0), "{name}: {}", stranger.log());

        let server = Server::start_with(&["--model=scripted"], &[&open[..], &trusting].concat()).await;
        let spans = collector.wait(MOMENT, |seen| !roots(seen, "GET /health").is_empty()).await;
        let headers = &roots(&spans, "GET /health")[0].headers;
        assert_eq!((&*headers["authorization"], &*headers["x-tenant"]), ("Bearer abc", "7"), "{name}");
        let encoding = match protocol {
            OtlpProtocol::Grpc => "grpc-encoding",
            OtlpProtocol::HttpProtobuf => "content-encoding",
        };
        assert_eq!(headers[encoding], "gzip", "{name}");
        assert_eq!(server.metric(LOST).await, 0.0, "{name}: {}", server.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_standard_variables_say_who_and_where_and_how_much() {
    for (protocol, name) in PROTOCOLS {
        let collector = Collector::start(protocol);
        let env = [("OTEL_TRACES_SAMPLER", "always_off")];
        let server = exporting(collector.address(), name, &env).await;
        assert_eq!((probe(&server).await, request(&server).await), (200, 200));
        let bad = server.client().post(server.url("/generate")).json(&json!({"input_ids": [-1]})).send().await.unwrap();
        assert_eq!(bad.status(), 400);
        assert_eq!(server.stop().await.code(), Some(0));
        let spans = collector.spans();
        assert_eq!(roots(&spans, "GET /health_generate").len(), 1, "{name}: the sampler is about requests");
        assert_eq!(roots(&spans, "POST /generate").len(), 0, "{name}");
        let services: Vec<_> = spans.iter().map(|seen| seen.resource["service.name"].as_str()).collect();
        assert!(services.iter().all(|name| ["radiosonde", "radiosonde-engine"].contains(name)), "{services:?}");

        let collector = Collector::start(protocol);
        let env = [
            ("OTEL_SERVICE_NAME", "abc"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=not.this,deployment.environment.name=test"),
            ("OTEL_PROPAGATORS", "none"),
            ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "5"),
        ];
        let server = exporting(collector.address(), name, &env).await;
        let traceparent = "00-11111111111111111111111111111111-2222222222222222-01";
        let sent = server.client().get(server.url("/health_generate")).header("traceparent", traceparent).send();
        assert_eq!(sent.await.unwrap().status(), 200);
        let of_engine = |seen: &Seen| seen.resource["service.name"] == "abc-engine";
        let both = |seen: &[Seen]| !roots(seen, "GET /health_generate").is_empty() && seen.iter().any(of_engine);
        let spans = collector.wait(MOMENT, both).await;
        let root = roots(&spans, "GET /health_generate")[0];
        assert_eq!(root.resource["service.name"], "abc");
        assert_eq!(root.resource["deployment.environment.name"], "test");
        assert!(!root.resource["service.instance.id"].is_empty() && !root.resource["service.version"].is_empty());
        assert_eq!(root.parent_id(), "", "{name}: the caller's trace is not continued");
        assert_eq!(root.attributes["url.path"], "/heal", "{name}: cut to five bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_prompts_and_refused_requests_leave_small_spans() {
    let collector = Collector::start(OtlpProtocol::Grpc);
    let server = exporting(collector.address(), "grpc", &[]).await;
    let prompt = "secret ".repeat(1_500_000 / 7);
    let send = |text: &str| server.client().post(server.url("/generate")).json(&json!({"text": text})).send();
    assert_eq!(send(&prompt).await.unwrap().status(), 400, "longer than the context");
    assert_eq!(send("short secret").await.unwrap().status(), 200);
    let spans = collector.wait(MOMENT, |seen| roots(seen, "POST /generate").len() == 2).await;
    let mut statuses: Vec<_> = roots(&spans, "POST /generate")
        .iter()
        .map(|seen| seen.attributes["http.response.status_code"].clone())
        .collect();
    statuses.sort();
    assert_eq!(statuses, ["200", "400"], "refused requests have a span too");
    for seen in &spans {
        let events = seen.span.events.iter();
        let texts: Vec<String> = events.map(|event| format!("{} {:?}", event.name, event.attributes)).collect();
        for text in texts.iter().chain(seen.attributes.values()).chain([&seen.span.name]) {
            assert!(text.len() <= 4096, "{}: {} bytes", seen.span.name, text.len());
            assert!(!text.contains("secret"), "{}: {text}", seen.span.name);
        }
    }
    assert_eq!(server.metric(LOST).await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_setting_ends_the_start_and_is_named() {
    for (variable, value, legal) in [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many", "a number of spans from 1 to 65536"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote", "always_on, always_off or traceidratio"),
        ("RADIOSONDE_TRACE_RATIO", "2", "a number from 0 to 1"),
        ("RADIOSONDE_TRACE_PROBES", "some", "'all', 'failures' and a ratio"),
    ] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_radiosonde"));
        command
            .args(["--model=scripted", "--port=0", "--otlp-traces-endpoint=http://127.0.0.1:1"])
            .env(variable, value);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{variable}");
        assert!(text.contains(value) && text.contains(legal), "{variable}: {text}");
    }
}
