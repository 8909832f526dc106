//! What a live server emits is what is declared: series, spans, attributes and log lines, through every branch.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use radiosonde::telemetry::OtlpProtocol;
use radiosonde::telemetry::exposition::sglang::ALIASES;
use radiosonde::telemetry::labels::{
    GrammarOutcome, ProbeBranch, ProbeEvidence, ProbeOutcome, RejectReason, RequestOutcome,
};
use radiosonde::telemetry::log::events::EVENTS;
use radiosonde::telemetry::metrics::{SeriesInfo, catalogue};
use radiosonde::telemetry::otlp::variables::VARIABLES;
use radiosonde::telemetry::spans::names::{self, ATTRIBUTES, SERVER_SPAN, spans};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::collector::{Collector, Seen};
use crate::support::{Server, eventually, in_background};

const MOMENT: Duration = Duration::from_secs(20);
/// What each line may have beside its own fields.
const LINE: [&str; 8] = ["timestamp", "level", "target", "message", "rid", "probe_id", "trace_id", "span_id"];

/// What is there only once the engine has announced its model.
const OF_THE_ENGINE: [&str; 2] = ["radiosonde_cache_config_info", "radiosonde_model_info"];

/// A server, and all label values that it has counted something for.
struct Live {
    server: Server,
    counted: BTreeSet<(String, String)>,
    /// All families that were on a page.
    families: BTreeSet<String>,
}

impl Live {
    async fn start(collector: &Collector, args: &[&str]) -> Self {
        let traces = format!("--otlp-traces-endpoint={}", collector.endpoint());
        let logs = format!("--otlp-logs-endpoint={}", collector.endpoint());
        let ours = ["--enable-drills", "--log-level=radiosonde=debug", "--otlp-traces-protocol=grpc", &traces];
        let ours = [&ours[..], &["--otlp-logs-protocol=grpc", &logs]].concat();
        let server = Server::start_unready(&[&ours, args].concat(), &[]).await;
        Self { server, counted: BTreeSet::new(), families: BTreeSet::new() }
    }

    /// Compares a page with the catalogue, and remembers what it counts.
    fn check_page(&mut self, page: &str) {
        let declared = catalogue().unwrap();
        let names: BTreeSet<_> = declared.iter().map(|series| series.name.as_str()).collect();
        let families = families(page);
        let on_the_page: BTreeSet<_> = families.keys().copied().collect();
        let missing: Vec<_> = names.difference(&on_the_page).copied().collect();
        assert!(on_the_page.is_subset(&names), "declared: {names:?}; on the page: {on_the_page:?}");
        assert!(missing.is_empty() || missing == OF_THE_ENGINE, "declared, and not on the page: {missing:?}");
        for series in &declared {
            let Some(family) = families.get(series.name.as_str()) else { continue };
            self.families.insert(series.name.clone());
            assert_eq!((family.kind, family.help), (series.kind, series.help.as_str()), "{}", series.name);
            for (labels, value) in &family.samples {
                check_labels(series, labels);
                if *value > 0.0 {
                    self.counted.extend(labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
                }
            }
        }
    }

    async fn check_metrics(&mut self) {
        let page = self.server.client().get(self.server.admin_url("/metrics")).send().await.unwrap();
        self.check_page(&page.text().await.unwrap());
    }

    fn has_counted(&self, label: &str, value: &str) -> bool {
        self.counted.contains(&(label.to_owned(), value.to_owned()))
    }

    /// The outcome of a probe.
    async fn probe(&self, path: &str) -> String {
        let answer = self.server.client().get(self.server.url(path)).send().await.unwrap();
        let body: Value = answer.json().await.unwrap();
        body["outcome"].as_str().unwrap().to_owned()
    }

    async fn until_probe(&self, path: &str, outcome: &str) {
        eventually(MOMENT, async || self.probe(path).await == outcome).await;
    }

    async fn post(&self, path: &str, body: &Value) -> u16 {
        let request = self.server.client().post(self.server.url(path)).json(body);
        request.send().await.unwrap().status().as_u16()
    }

    /// A request that goes on until the returned task is aborted. A probe may have the only place for a moment.
    async fn keep_busy(&self) -> tokio::task::JoinHandle<()> {
        let mut body = tokens(4000);
        body["stream"] = json!(true);
        let taken_in = async {
            loop {
                let request = self.server.client().post(self.server.url("/generate")).json(&body);
                let answer = request.send().await.unwrap();
                if answer.status().as_u16() == 200 {
                    break answer;
                }
            }
        };
        let mut answer = tokio::time::timeout(MOMENT, taken_in).await.expect("it is taken in");
        assert!(answer.chunk().await.unwrap().is_some(), "it runs");
        in_background(async move { while let Ok(Some(_)) = answer.chunk().await {} })
    }

    async fn at_rest(&self) {
        eventually(MOMENT, async || self.server.metric("radiosonde_request_table_size").await == 0.0).await;
    }

    /// Each line of ours is in the table, with that level and no other fields.
    fn check_lines(&self) {
        for line in self.server.log().lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            if !line["target"].as_str().unwrap().starts_with("radiosonde") {
                continue;
            }
            let event = EVENTS.iter().find(|event| event.message == line["message"]);
            let event = event.unwrap_or_else(|| panic!("not declared: {line}"));
            assert_eq!(line["level"].as_str().unwrap().to_lowercase(), event.level, "{line}");
            for field in line.as_object().unwrap().keys() {
                assert!(LINE.contains(&&**field) || event.fields.contains(&&**field), "{field} in {line}");
            }
        }
    }
}

fn tokens(output: u32) -> Value {
    json!({"input_ids": [65, 66], "sampling_params": {"max_new_tokens": output, "ignore_eos": true}})
}

struct Family<'a> {
    kind: &'a str,
    help: &'a str,
    samples: Vec<(Vec<(&'a str, &'a str)>, f64)>,
}

fn families(page: &str) -> BTreeMap<&str, Family<'_>> {
    let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    let mut name = "";
    for line in page.lines() {
        if let Some((of, help)) = line.strip_prefix("# HELP ").and_then(|line| line.split_once(' ')) {
            name = of;
            families.insert(name, Family { kind: "", help, samples: Vec::new() });
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            families.get_mut(name).unwrap().kind = kind;
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let labels = series.split_once('{').map_or("", |(_, labels)| labels.strip_suffix('}').unwrap());
            let labels = labels.split(',').filter_map(|label| label.split_once('='));
            let labels = labels.map(|(key, value)| (key, value.trim_matches('"'))).filter(|(key, _)| *key != "le");
            families.get_mut(name).unwrap().samples.push((labels.collect(), value.parse().unwrap()));
        }
    }
    families
}

fn check_labels(series: &SeriesInfo, labels: &[(&str, &str)]) {
    let names: Vec<_> = series.labels.iter().map(|label| label.name.as_str()).collect();
    assert_eq!(labels.iter().map(|(key, _)| *key).collect::<Vec<_>>(), names, "{}", series.name);
    for ((_, value), label) in labels.iter().zip(&series.labels) {
        let is_declared = !label.closed || label.values.iter().any(|declared| declared == value);
        assert!(is_declared, "{} {}={value}", series.name, label.name);
    }
}

/// Each span, event and attribute is declared, and each declared one came.
fn check_spans(seen: &[Seen]) {
    let declared: BTreeSet<_> = spans().iter().map(|span| span.name).collect();
    let keys: BTreeSet<_> = ATTRIBUTES.iter().map(|attribute| attribute.key).collect();
    let (mut names_seen, mut keys_seen, mut events_seen) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for span in seen {
        let is_root = span.span.kind == SpanKind::Server as i32;
        let name = if is_root { SERVER_SPAN } else { span.span.name.as_str() };
        if is_root {
            let part = |key: &str| span.attributes[key].as_str();
            assert_eq!(span.span.name, format!("{} {}", part("http.request.method"), part("http.route")));
        }
        names_seen.insert(name);
        keys_seen.extend(span.attributes.keys().map(String::as_str));
        for event in &span.span.events {
            let is_line = EVENTS.iter().any(|line| line.message == event.name);
            let declared = names::EVENTS.iter().find(|declared| declared.name == event.name);
            assert!(is_line || declared.is_some(), "{}", event.name);
            if declared.is_some() {
                events_seen.insert(event.name.as_str());
                keys_seen.extend(event.attributes.iter().map(|attribute| attribute.key.as_str()));
            }
        }
    }
    let events: BTreeSet<_> = names::EVENTS.iter().map(|event| event.name).collect();
    assert_eq!(names_seen, declared, "spans that came and declared ones");
    assert_eq!(events_seen, events, "events that came and declared ones");
    assert_eq!(keys_seen, keys, "attributes that came and declared ones");
}

async fn drive_probes(live: &mut Live) {
    assert_eq!(live.probe("/health").await, "starting");
    assert_eq!(live.post("/generate", &tokens(1)).await, 503);
    live.check_metrics().await;
    live.server.wait_healthy().await;
    assert_eq!(live.probe("/health_generate?evidence=own").await, "ok");
    let busy = live.keep_busy().await;
    assert_eq!(live.probe("/health_generate?evidence=own").await, "ok");
    eventually(MOMENT, async || {
        live.probe("/health").await;
        live.server.metric_with("radiosonde_health_probe_evidence_total", &[("evidence", "other_traffic")]).await > 0.0
    })
    .await;
    busy.abort();
    live.at_rest().await;
    assert_eq!(live.post("/pause_generation", &json!({"mode": "in_place"})).await, 200);
    live.until_probe("/health", "paused").await;
    assert_eq!(live.post("/continue_generation", &json!({})).await, 200);
    live.at_rest().await;
    live.post("/debug/fault", &json!({"fault": "fail_step", "nth": 1})).await;
    live.until_probe("/health", "error").await;
    live.post("/debug/fault", &json!({"fault": "loop_frozen", "seconds": 60})).await;
    live.until_probe("/health", "timeout").await;
    let path = live.server.url("/health");
    let gone = live.server.client().get(path).timeout(Duration::from_millis(100)).send().await;
    assert!(gone.is_err(), "nobody answers while the loop is frozen");
    let ended = live.server.client().delete(live.server.url("/debug/fault")).send().await.unwrap();
    assert_eq!(ended.status().as_u16(), 200);
    live.until_probe("/health", "ok").await;
    live.check_metrics().await;
}

async fn drive_requests(live: &mut Live) {
    live.at_rest().await;
    assert_eq!(live.post("/generate", &tokens(3)).await, 200);
    let shaped = |regex: &str| json!({"text": "a", "sampling_params": {"regex": regex}});
    assert_eq!(live.post("/generate", &shaped("[0-9]{3}")).await, 200);
    assert_eq!(live.post("/generate", &shaped("(")).await, 400);
    live.at_rest().await;
    let stopped = json!({"text": "a", "sampling_params": {"max_new_tokens": 400, "stop": ["a", "e", " ", "t"]}});
    assert_eq!(live.post("/generate", &stopped).await, 200);
    let chat = json!({"model": "default", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2});
    live.post("/v1/chat/completions", &chat).await;
    assert_eq!(live.post("/v1/completions", &json!({"model": "default", "prompt": "a", "max_tokens": 2})).await, 200);
    let twice = json!({"model": "default", "prompt": "a", "max_tokens": 2, "n": 2});
    live.post("/v1/completions", &twice).await; // refused or not: there is one place
    live.at_rest().await;
    let whole = json!({
        "model": "default", "prompt": "a", "max_tokens": 2, "temperature": 0.5, "top_p": 0.9, "seed": 1, "stream": true,
    });
    let request = live.server.client().post(live.server.url("/v1/completions")).header("user-agent", "contract");
    let streamed = request.json(&whole).send().await.unwrap();
    assert_eq!(streamed.status().as_u16(), 200);
    streamed.bytes().await.unwrap();
    live.at_rest().await;
    let busy = live.keep_busy().await;
    assert_eq!(live.post("/pause_generation", &json!({"mode": "retract"})).await, 200);
    // Counted by a heartbeat, which comes after the event itself.
    eventually(MOMENT, async || live.server.metric("radiosonde_num_retractions_total").await > 0.0).await;
    assert_eq!(live.post("/continue_generation", &json!({})).await, 200);
    busy.abort();
    live.at_rest().await;
    assert_eq!(live.post("/generate", &json!({"input_ids": [-1]})).await, 400);
    let busy = live.keep_busy().await;
    assert_eq!(live.post("/generate", &tokens(1)).await, 503, "the queue has no place");
    live.post("/debug/fault", &json!({"fault": "fail_step", "nth": 3})).await;
    busy.await.unwrap();
    live.keep_busy().await.abort();
    live.at_rest().await;
    live.check_metrics().await;
}

async fn drive_death(live: &mut Live) {
    live.until_probe("/health", "ok").await;
    live.post("/debug/fault", &json!({"fault": "slow_steps", "ms": 5000})).await;
    let again = live.server.client().post(live.server.url("/generate")).json(&tokens(1));
    let again = in_background(async move { again.send().await.unwrap().status().as_u16() });
    eventually(MOMENT, async || live.server.metric("radiosonde_scheduler_step_age_seconds").await > 0.0).await;
    let kill = async {
        let (exchanges, health) = ("radiosonde_http_requests_in_flight", [("route", "/health")]);
        eventually(MOMENT, async || live.server.metric_with(exchanges, &health).await > 0.0).await;
        live.server.signal_engine(Signal::KILL);
    };
    let (outcome, ()) = tokio::join!(live.probe("/health?timeout=800ms"), kill);
    assert_eq!(outcome, "engine_dead");
    assert_eq!(again.await.unwrap(), 200, "what had no output is sent again");
    live.check_metrics().await;
    live.until_probe("/health", "ok").await;
}

async fn drive_end(live: &mut Live) {
    let busy = live.keep_busy().await;
    live.server.signal(Signal::TERM);
    let path = live.server.admin_url("/health");
    eventually(MOMENT, async || {
        let answer = live.server.client().get(&path).send().await.unwrap();
        answer.json::<Value>().await.unwrap()["outcome"] == "draining"
    })
    .await;
    live.check_metrics().await;
    busy.abort();
    assert_eq!(live.server.wait_exit(MOMENT).await.code(), Some(0), "{}", live.server.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_emitted_is_declared_and_what_is_declared_is_emitted() {
    let collector = Collector::start(OtlpProtocol::Grpc);
    let args = ["--model=scripted:step_ms=20", "--health-check-timeout=800ms", "--max-running-requests=1"];
    let more = ["--max-queued-requests=0", "--self-probe-interval=300ms", "--fault=slow_load:seconds=1.5"];
    let mut live = Live::start(&collector, &[&args[..], &more].concat()).await;
    drive_probes(&mut live).await;
    drive_requests(&mut live).await;
    eventually(MOMENT, async || collector.spans().iter().any(|seen| seen.span.name == "self_probe")).await;
    drive_death(&mut live).await;
    drive_end(&mut live).await;
    live.check_lines();
    assert_eq!(live.families.len(), catalogue().unwrap().len(), "families that were on a page, and declared ones");

    let mut short = Live::start(&collector, &["--model=scripted", "--disable-health-generation"]).await;
    short.server.wait_healthy().await;
    assert_eq!(short.probe("/health").await, "shortcut");
    short.check_metrics().await;
    short.check_lines();
    live.counted.append(&mut short.counted);

    let mut embeds = Live::start(&collector, &["--model=scripted:dimensions=8"]).await;
    embeds.server.wait_healthy().await;
    assert_eq!(embeds.probe("/health_generate?evidence=own").await, "ok");
    assert_eq!(embeds.post("/v1/embeddings", &json!({"input": ["a", "b"]})).await, 200);
    assert_eq!(embeds.post("/encode", &json!({"text": "a"})).await, 200);
    assert_eq!(embeds.post("/generate", &tokens(1)).await, 400);
    embeds.check_metrics().await;
    embeds.check_lines();
    assert!(["/v1/embeddings", "/encode"].iter().all(|path| embeds.has_counted("endpoint", path)));
    live.counted.append(&mut embeds.counted);

    check_spans(&collector.spans());
    for record in collector.records() {
        let message = record.message();
        assert!(EVENTS.iter().any(|event| event.message == message), "{message}");
    }
    let outcomes = ProbeOutcome::ALL.iter().map(|it| ("outcome", it.as_str()));
    let branches = ProbeBranch::ALL.iter().map(|it| ("branch", it.as_str()));
    let evidence = ProbeEvidence::ALL.iter().map(|it| ("evidence", it.as_str()));
    let ends = RequestOutcome::ALL.iter().map(|it| ("outcome", it.as_str()));
    let refusals = RejectReason::ALL.iter().map(|it| ("reason", it.as_str()));
    let grammars = GrammarOutcome::ALL.iter().map(|it| ("outcome", it.as_str()));
    for (label, value) in outcomes.chain(grammars).chain(branches).chain(evidence).chain(ends).chain(refusals) {
        assert!(live.has_counted(label, value), "{label}={value} was not reached");
    }
}

#[test]
fn the_command_prints_the_documentation() {
    let run = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_radiosonde")).arg("telemetry").args(args).output().unwrap();
        assert!(out.status.success(), "{args:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    let mut pages = Vec::new();
    for section in ["metrics", "traces", "logs"] {
        let page = std::fs::read_to_string(format!("{}/docs/{section}.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(run(&["--section", section]) == page, "docs/{section}.md is not what the command prints");
        pages.push(page);
    }
    assert!(run(&[]) == pages.join("\n"), "everything is the three pages");
    let all: Value = serde_json::from_str(&run(&["--format", "json"])).unwrap();
    let count = |section: &str, of: &str| all[section][of].as_array().unwrap().len();
    assert_eq!(count("metrics", "series"), catalogue().unwrap().len());
    assert_eq!(count("metrics", "aliases"), ALIASES.len());
    assert_eq!(count("traces", "spans"), spans().len());
    assert_eq!(count("traces", "events"), names::EVENTS.len());
    assert_eq!(count("traces", "attributes"), ATTRIBUTES.len());
    assert_eq!(count("traces", "variables"), VARIABLES.len());
    assert_eq!(all["logs"]["events"][0]["level"], "error");
    let logs: Value = serde_json::from_str(&run(&["--format", "json", "--section", "logs"])).unwrap();
    assert_eq!(logs.as_object().unwrap().keys().collect::<Vec<_>>(), ["logs"]);
}
