//! A server that is broken on purpose, and a check that answer, metrics, books and trace tell the same story.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use radiosonde::telemetry::OtlpProtocol;
use serde_json::{Value, json};

use super::collector::{Collector, Seen};
use super::probe::{self, Answer};
use super::{Server, eventually, in_background, metrics, process_tree};

/// Whatever is to happen happens within this time, or never.
const MOMENT: Duration = Duration::from_secs(20);

/// A server with drills, and the collector of its traces.
pub struct Rig {
    /// The server.
    pub server: Server,
    collector: Collector,
    client: reqwest::Client,
    descriptors: usize,
    children: BTreeSet<u32>,
}

impl Rig {
    /// Starts one and waits until it is healthy and at rest.
    pub async fn start(args: &[&str]) -> Self {
        let mut rig = Self::start_unready(args).await;
        rig.server.wait_healthy().await;
        rig.remember_rest().await;
        rig
    }

    /// Starts one and waits only until it listens.
    pub async fn start_unready(args: &[&str]) -> Self {
        let collector = Collector::start(OtlpProtocol::Grpc);
        let endpoint = format!("--otlp-traces-endpoint={}", collector.endpoint());
        // What is counted is the rig's own doing: no probes of the server's, no second engine.
        let ours = [
            "--enable-drills",
            "--self-probe-interval=0",
            "--engine-restarts=0",
            "--otlp-traces-protocol=grpc",
            &endpoint,
        ];
        let server = Server::start_unready(&[&ours, args].concat(), &[]).await;
        // Without a pool: what is open in the server is then open for a reason.
        let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
        Self { server, collector, client, descriptors: 0, children: BTreeSet::new() }
    }

    async fn remember_rest(&mut self) {
        self.probe("/health").await; // opens what is opened once: each service has its own way to the collector
        let of = |seen: &Seen, service: &str| seen.resource["service.name"] == service;
        let both =
            |seen: &[Seen]| ["radiosonde", "radiosonde-engine"].iter().all(|it| seen.iter().any(|one| of(one, it)));
        self.collector.wait(MOMENT, both).await;
        eventually(MOMENT, async || metrics::is_at_rest(&self.page().await)).await;
        let mut before = 0;
        eventually(MOMENT, async || {
            let now = self.open_descriptors();
            std::mem::replace(&mut before, now) == now
        })
        .await;
        self.descriptors = before;
        self.children = process_tree::descendants(self.server.pid()).into_iter().collect();
    }

    /// Switches a fault on.
    pub async fn fault(&self, fault: &Value) {
        let answer = self.client.post(self.server.url("/debug/fault")).json(fault).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{fault}: {}", answer.text().await.unwrap());
    }

    /// Lets the scheduler panic, and returns when the engine is gone: first it writes its last words, for as long as a
    /// backtrace with symbols takes.
    pub async fn scheduler_panics(&self) {
        let engine = self.server.engine_pid();
        self.fault(&json!({"fault": "scheduler_panic"})).await;
        eventually(MOMENT, async || !process_tree::is_running(engine)).await;
    }

    /// Switches all faults off.
    pub async fn end_faults(&self) {
        let answer = self.client.delete(self.server.url("/debug/fault")).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }

    /// `POST` with a JSON body; the status.
    pub async fn post(&self, path: &str, body: &Value) -> u16 {
        self.client.post(self.server.url(path)).json(body).send().await.unwrap().status().as_u16()
    }

    /// Requests of `prompt` tokens that ask for `output` tokens, and that begin differently; they are given up when the
    /// task is aborted.
    pub fn requests(&self, count: usize, prompt: usize, output: u32) -> tokio::task::JoinHandle<Vec<Option<u16>>> {
        let body = |first: usize| {
            let ids: Vec<usize> = std::iter::once(first).chain(vec![65; prompt.saturating_sub(1)]).collect();
            json!({"input_ids": ids, "sampling_params": {"max_new_tokens": output, "ignore_eos": true}})
        };
        let send = |number| self.client.post(self.server.url("/generate")).json(&body(number)).send();
        let sends = (0..count).map(send);
        let sends = futures::future::join_all(sends);
        in_background(async {
            let answers = sends.await.into_iter();
            answers.map(|answer| answer.ok().map(|answer| answer.status().as_u16())).collect()
        })
    }

    /// Waits until so many requests run and wait.
    pub async fn busy_with(&self, running: usize, queued: usize) {
        eventually(MOMENT, async || {
            let page = self.page().await;
            let sum = |name| metrics::sum(&page, name, &[]) as usize;
            (sum("radiosonde_num_running_reqs"), sum("radiosonde_num_queue_reqs")) == (running, queued)
        })
        .await;
    }

    /// The first probe that is not 200. Until the fault has reached its place, probes succeed, and what they say may be
    /// true no longer when it is compared.
    pub async fn failing_probe(&self, path: &str) -> Answer {
        let mut failed = None;
        eventually(MOMENT, async || {
            let before = self.page().await;
            let answer = self.bare_probe(path).await;
            failed = (answer.status != 200).then_some((before, answer));
            failed.is_some()
        })
        .await;
        let (before, answer) = failed.expect("it is there when the wait ends");
        self.agree(&before, &answer).await;
        answer
    }

    /// One probe. Metrics, `/debug/probes`, status and trace must say what the answer says.
    pub async fn probe(&self, path: &str) -> Answer {
        let before = self.page().await;
        let answer = self.bare_probe(path).await;
        self.agree(&before, &answer).await;
        answer
    }

    /// One probe, without a look into the books.
    pub async fn bare_probe(&self, path: &str) -> Answer {
        probe::ask(self.client.get(self.server.url(path))).await
    }

    /// The books after `answer`, whose probe was the only one since `before`.
    pub async fn agree(&self, before: &str, answer: &Answer) {
        let (body, after) = (&answer.body, self.page().await);
        let text = |name: &str| body[name].as_str().unwrap_or_default();
        let grown =
            |name, labels: &[(&str, &str)]| metrics::sum(&after, name, labels) - metrics::sum(before, name, labels);
        let labels = [("endpoint", text("endpoint")), ("branch", text("branch")), ("outcome", text("outcome"))];
        assert_eq!(grown("radiosonde_health_probe_total", &labels), 1.0, "{body}");
        assert_eq!(grown("radiosonde_health_probe_evidence_total", &[("evidence", text("evidence"))]), 1.0, "{body}");
        let failures = "radiosonde_health_probe_failures_total";
        let failed = f64::from(u8::from(body["cause"].is_string()));
        assert_eq!(grown(failures, &[]), failed, "{body}");
        if failed > 0.0 {
            let labels = [("hop", text("stalled_at")), ("cause", text("cause"))];
            assert_eq!(grown(failures, &labels), 1.0, "{body}");
        }
        assert_eq!(metrics::sum(&after, "radiosonde_server_status", &[("status", text("status"))]), 1.0, "{body}");
        let kept = self.server.url(&format!("/debug/probes/{}", text("probe_id")));
        let kept: Value = self.client.get(kept).send().await.unwrap().json().await.unwrap();
        assert_eq!(&kept, body);
        self.trace_agrees(body).await;
    }

    async fn trace_agrees(&self, body: &Value) {
        let trace_id = body["trace_id"].as_str().unwrap();
        let named = body["stalled_at"].as_str().filter(|_| body["timeline"].is_array());
        let is_root = |seen: &Seen| seen.trace_id() == trace_id && seen.attributes.contains_key("probe.outcome");
        let is_named = |seen: &Seen, hop: &str| seen.trace_id() == trace_id && seen.span.name == hop;
        let spans = self
            .collector
            .wait(MOMENT, |seen| {
                let hop_came = named.is_none_or(|hop| hop == "http" || seen.iter().any(|seen| is_named(seen, hop)));
                hop_came && seen.iter().any(is_root)
            })
            .await;
        let root = spans.iter().find(|seen| is_root(seen)).unwrap();
        for (attribute, field) in [
            ("probe.outcome", "outcome"),
            ("probe.branch", "branch"),
            ("probe.evidence", "evidence"),
            ("probe.stalled_at", "stalled_at"),
            ("probe.cause", "cause"),
        ] {
            assert_eq!(root.attributes.get(attribute).map(String::as_str), body[field].as_str(), "{field}: {body}");
        }
        if let Some(hop) = named.filter(|hop| *hop != "http") {
            let unfinished = |seen: &Seen| is_named(seen, hop) && seen.error() == Some("unfinished");
            assert!(spans.iter().any(unfinished), "{hop} is named, and not unfinished in the trace: {body}");
        }
        self.collector.well_formed(trace_id, None);
    }

    /// Waits until nothing is left of what happened: no request, no flight, no page, no descriptor, no child more than
    /// before; and a probe succeeds.
    pub async fn back_at_rest(&self) {
        eventually(MOMENT, async || self.bare_probe("/health_generate?evidence=own").await.status == 200).await;
        let answer = self.probe("/health_generate?evidence=own").await;
        assert_eq!(answer.story(), "200 ok", "{}", answer.body);
        assert_eq!(answer.body["status"], "up");
        eventually(MOMENT, async || metrics::is_at_rest(&self.page().await)).await;
        eventually(MOMENT, async || self.open_descriptors() <= self.descriptors).await;
        let children: BTreeSet<_> = process_tree::descendants(self.server.pid()).into_iter().collect();
        assert_eq!(children, self.children);
    }

    /// Of both processes.
    fn open_descriptors(&self) -> usize {
        let count = |pid: u32| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        count(self.server.pid()) + count(self.server.engine_pid())
    }

    /// `/metrics`, over a connection that is closed again.
    pub async fn page(&self) -> String {
        self.client.get(self.server.url("/metrics")).send().await.unwrap().text().await.unwrap()
    }
}
