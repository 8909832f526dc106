//! A real Prometheus reads both listeners, and leads from a bucket to the trace of a probe.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use radiosonde::telemetry::OtlpProtocol;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::{Value, json};

use crate::support::collector::{Collector, Seen};
use crate::support::{Server, eventually};

const LIMIT: Duration = Duration::from_secs(60);
const OPENMETRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";

/// A Prometheus that scrapes `targets` every 200 ms. It ends when this is dropped.
struct Prometheus {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Prometheus {
    async fn start(targets: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        let scrape = json!({
            "global": {"scrape_interval": "200ms"},
            "scrape_configs": [{"job_name": "radiosonde", "static_configs": [{"targets": targets}]}],
        });
        std::fs::write(&config, scrape.to_string()).unwrap(); // JSON is YAML
        let mut child = Command::new("prometheus")
            .arg("--enable-feature=exemplar-storage")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("tsdb").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("this test needs `prometheus` on the PATH (Debian: prometheus): {error}"));
        let (sender, address) = mpsc::channel();
        let log = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                if let Some((_, address)) = line.split_once("msg=\"Listening on\" address=") {
                    sender.send(address.trim_matches('"').to_owned()).ok();
                }
            }
        });
        let address = address.recv_timeout(LIMIT).expect("Prometheus does not say where it listens");
        let prometheus = Self { child, url: format!("http://{address}"), _folder: folder };
        let ready = format!("{}/-/ready", prometheus.url);
        eventually(LIMIT, async || reqwest::get(&ready).await.is_ok_and(|answer| answer.status() == 200)).await;
        prometheus
    }

    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Value {
        let url = reqwest::Url::parse_with_params(&format!("{}{path}", self.url), query).unwrap();
        let answer: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
        assert_eq!(answer["status"], "success", "{answer}");
        answer["data"].clone()
    }

    /// The instances for which `expression` gives a sample.
    async fn instances(&self, expression: &str) -> BTreeSet<String> {
        let data = self.get("/api/v1/query", &[("query", expression)]).await;
        let samples = data["result"].as_array().unwrap().iter();
        samples.map(|sample| sample["metric"]["instance"].as_str().unwrap().to_owned()).collect()
    }

    /// The traces that the exemplars of `series` point to.
    async fn traces(&self, series: &str) -> BTreeSet<String> {
        let whenever = [("query", series), ("start", "0"), ("end", "9999999999")];
        let data = self.get("/api/v1/query_exemplars", &whenever).await;
        let exemplars = data.as_array().unwrap().iter().flat_map(|series| series["exemplars"].as_array().unwrap());
        exemplars.map(|exemplar| exemplar["labels"]["trace_id"].as_str().unwrap().to_owned()).collect()
    }
}

/// The traces of the last probes.
async fn probes(server: &Server) -> BTreeSet<String> {
    let answer = server.client().get(server.url("/debug/probes")).send().await.unwrap();
    let body: Value = answer.json().await.unwrap();
    let probes = body["probes"].as_array().unwrap().iter();
    probes.map(|probe| probe["trace_id"].as_str().unwrap().to_owned()).collect()
}

/// The page of a listener for those who ask for `accept`, with its content type.
async fn page(server: &Server, url: &str, accept: &str) -> (String, String) {
    let answer = server.client().get(url).header(ACCEPT, accept).send().await.unwrap();
    let content_type = answer.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
    (content_type, answer.text().await.unwrap())
}

async fn generate(server: &Server) {
    let body = json!({"text": "a", "sampling_params": {"max_new_tokens": 3, "ignore_eos": true}});
    assert_eq!(server.client().post(server.url("/generate")).json(&body).send().await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_leads_from_a_bucket_to_the_probe() {
    let collector = Collector::start(OtlpProtocol::Grpc);
    let endpoint = format!("--otlp-traces-endpoint={}", collector.endpoint());
    let server = Server::start(&["--model=scripted", &endpoint]).await;
    generate(&server).await;
    let host = |url: String| url.strip_prefix("http://").unwrap().to_owned();
    let targets = [host(server.url("")), host(server.admin_url(""))];
    let prometheus = Prometheus::start(&targets).await;
    let both: BTreeSet<String> = targets.into();
    eventually(LIMIT, async || prometheus.instances("up == 1").await == both).await;
    for series in ["radiosonde_engine_up == 1", "process_cpu_seconds_total > 0", "radiosonde_build_info"] {
        eventually(LIMIT, async || prometheus.instances(series).await == both).await;
    }

    let found = async |series| prometheus.traces(series).await;
    let duration = "radiosonde_health_probe_duration_seconds_bucket";
    eventually(LIMIT, async || !found(duration).await.is_empty()).await;
    let (pointed_to, known) = (found(duration).await, probes(&server).await);
    assert!(pointed_to.is_subset(&known), "{pointed_to:?} of {known:?}");
    for series in ["radiosonde_time_to_first_token_seconds_bucket", "radiosonde_e2e_request_latency_seconds_bucket"] {
        eventually(LIMIT, async || found(series).await.len() == 1).await;
    }
    let kept = |seen: &[Seen]| pointed_to.iter().all(|trace| seen.iter().any(|seen| seen.trace_id() == *trace));
    collector.wait(LIMIT, kept).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_listeners_serve_both_formats() {
    let server = Server::start(&["--model=scripted"]).await;
    for url in [server.url("/metrics"), server.admin_url("/metrics")] {
        let (content_type, text) = page(&server, &url, "*/*").await;
        assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
        assert!(text.contains("\nprocess_cpu_seconds_total ") && !text.contains("# EOF") && !text.contains("# {"));
        let (content_type, text) = page(&server, &url, OPENMETRICS).await;
        assert_eq!(content_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
        assert!(text.contains("# TYPE process_cpu_seconds counter\n# UNIT process_cpu_seconds seconds\n"), "{text}");
        assert!(text.contains(",le=\"1.0\"} ") && text.ends_with("\n# EOF\n"), "{text}");
        assert!(!text.contains("# {"), "nobody takes the traces of this server: there is nothing to point to");
        let head = server.client().head(&url).header(ACCEPT, OPENMETRICS).send().await.unwrap();
        assert_eq!(head.status().as_u16(), 200);
        assert_eq!(head.headers()[CONTENT_TYPE], content_type.as_str());
        assert!(head.bytes().await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sglang_names_are_there_for_those_who_want_them() {
    let mut server = Server::start_unready(&["--model=scripted:load_ms=1000", "--metrics-alias=sglang"], &[]).await;
    assert!(!server.metrics().await.contains("sglang:"), "without a model there is nothing to name them after");
    server.wait_healthy().await;
    generate(&server).await;
    let text = server.metrics().await;
    let tokenizer = "engine_type=\"unified\",model_name=\"scripted\"";
    let scheduler = format!("{tokenizer},moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"");
    for sample in [
        format!("sglang:num_running_reqs{{{scheduler}}} 0"),
        format!("sglang:token_usage{{{scheduler}}} 0"),
        format!("sglang:max_total_num_tokens{{{scheduler}}} 16384"),
        format!("sglang:num_requests_total{{{tokenizer}}} 1"),
        format!("sglang:generation_tokens_total{{{tokenizer}}} 3"),
        format!("sglang:time_to_first_token_seconds_count{{{tokenizer}}} 1"),
        format!("sglang:inter_token_latency_seconds_count{{{tokenizer}}} 2"),
    ] {
        assert!(text.contains(&format!("\n{sample}\n")), "{sample} is not in\n{text}");
    }
    eventually(LIMIT, async || server.metric("sglang:gen_throughput").await > 0.0).await;
    let (_, text) = page(&server, &server.url("/metrics"), OPENMETRICS).await;
    let line = format!("\nsglang:generation_tokens_total{{{tokenizer}}} 3\n");
    assert!(text.contains("\n# TYPE sglang:generation_tokens counter\n") && text.contains(&line), "{text}");

    let usual = Server::start(&["--model=scripted"]).await.metrics().await;
    assert!(!usual.lines().any(|line| !line.starts_with('#') && line.split(['{', ' ']).next().unwrap().contains(':')));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_sampled_traces_are_pointed_to() {
    let collector = Collector::start(OtlpProtocol::Grpc);
    let endpoint = format!("--otlp-traces-endpoint={}", collector.endpoint());
    let server = Server::start(&["--model=scripted", &endpoint]).await;
    let (kept, dropped) = ("1".repeat(32), "2".repeat(32));
    for (trace, flags) in [(&kept, "01"), (&dropped, "00")] {
        let parent = format!("00-{trace}-3333333333333333-{flags}");
        let probe = server.client().get(server.url("/health_generate")).header("traceparent", parent);
        assert_eq!(probe.send().await.unwrap().status(), 200);
    }
    let (_, text) = page(&server, &server.admin_url("/metrics"), OPENMETRICS).await;
    assert!(text.contains(&format!("# {{trace_id=\"{kept}\"}} ")) && !text.contains(&dropped), "{text}");
    let durations = [("endpoint", "/health_generate"), ("outcome", "ok")];
    let counted = server.metric_with("radiosonde_health_probe_duration_seconds_count", &durations).await;
    assert_eq!(counted, 2.0, "both are counted");
}
