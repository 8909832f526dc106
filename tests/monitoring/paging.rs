//! Prometheus with the shipped rules and Alertmanager with the shipped configuration, in front of a server under test.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::extract::{Path as Segment, State};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::it::support::{Server, eventually, in_background};
use crate::{files, read};

/// Where the shipped configuration sends notifications.
const RECEIVER: &str = "http://localhost:9095";

/// How long both may take to listen.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A receiver's name and what it was sent.
type Notification = (String, Value);

/// Both tools and the receiver of their notifications. Dropping it ends them.
pub struct Stack {
    children: Vec<Child>,
    prometheus: String,
    notifications: mpsc::UnboundedReceiver<Notification>,
    heard: BTreeSet<(String, String)>,
    _folder: TempDir,
}

impl Stack {
    /// Starts both for `server`, which is scraped every `interval`; in the rules, `changes` are made.
    pub async fn start(server: &Server, interval: &str, changes: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (receiver, notifications) = receive().await;
        let [prometheus, alertmanager] = [free_address(), free_address()];
        let target = server.admin_url("").trim_start_matches("http://").to_owned();
        write_rules(folder.path(), changes);
        let config = prometheus_config(&target, &alertmanager, interval);
        std::fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let config = read("alerts/alertmanager.yml");
        assert!(config.contains(RECEIVER), "the receivers are elsewhere");
        std::fs::write(folder.path().join("alertmanager.yml"), config.replace(RECEIVER, &receiver)).unwrap();
        let children = vec![run_alertmanager(folder.path(), &alertmanager), run_prometheus(folder.path(), &prometheus)];
        let url = format!("http://{prometheus}");
        let stack = Self { children, prometheus: url, notifications, heard: BTreeSet::new(), _folder: folder };
        let ready = [format!("http://{prometheus}/-/ready"), format!("http://{alertmanager}/-/ready")];
        for url in &ready {
            eventually(START_LIMIT, async || reqwest::get(url).await.is_ok_and(|answer| answer.status() == 200)).await;
        }
        stack
    }

    /// Returns when the server's counters have been stored: a counter's growth needs a sample before it.
    pub async fn wait_scraped(&self) {
        let url = format!("{}/api/v1/query?query=radiosonde_health_probe_failures_total", self.prometheus);
        eventually(START_LIMIT, async || {
            let answer: Value = reqwest::get(&url).await.unwrap().json().await.unwrap();
            answer["data"]["result"].as_array().is_some_and(|series| !series.is_empty())
        })
        .await;
    }

    /// The names of all alerts of which `receiver` was told that they fire, so far.
    pub fn named(&self, receiver: &str) -> Vec<&str> {
        self.heard.iter().filter(|(name, _)| name == receiver).map(|(_, alert)| alert.as_str()).collect()
    }

    /// The first alert that `receiver` is told about with this status from now on.
    pub async fn next_alert(&mut self, receiver: &str, status: &str, limit: Duration) -> Value {
        let wanted = async {
            loop {
                let (name, body) = self.notifications.recv().await.expect("the receiver lives as long as the test");
                let alerts = body["alerts"].as_array().cloned().unwrap_or_default();
                let fires = alerts.iter().filter(|alert| alert["status"] == "firing");
                let names = fires.filter_map(|alert| alert["labels"]["alertname"].as_str());
                self.heard.extend(names.map(|alert| (name.clone(), alert.to_owned())));
                let found = alerts.into_iter().find(|alert| alert["status"] == status);
                if let Some(alert) = found.filter(|_| name == receiver) {
                    return alert;
                }
            }
        };
        timeout(limit, wanted).await.unwrap_or_else(|_| panic!("{receiver} hears of nothing {status} within {limit:?}"))
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        for child in &mut self.children {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// A webhook on a free port, and what it is told.
async fn receive() -> (String, mpsc::UnboundedReceiver<Notification>) {
    let (sender, notifications) = mpsc::unbounded_channel();
    let take = async |State(sender): State<mpsc::UnboundedSender<Notification>>,
                      Segment(name): Segment<String>,
                      Json(body): Json<Value>| {
        sender.send((name, body)).ok();
    };
    let app = Router::new().route("/{receiver}", post(take)).with_state(sender);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    in_background(async move { axum::serve(listener, app).await });
    (url, notifications)
}

/// Nobody listens here; somebody else may take it before we do, and the start then fails.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn write_rules(folder: &Path, changes: &[(&str, &str)]) {
    for path in files("alerts", ".rules.yml") {
        let text = changes.iter().fold(read(&path), |text, (from, to)| text.replace(from, to));
        std::fs::write(folder.join(path.trim_start_matches("alerts/")), text).unwrap();
    }
}

fn prometheus_config(target: &str, alertmanager: &str, interval: &str) -> String {
    format!(
        "global: {{ scrape_interval: {interval}, scrape_timeout: 1s }}\n\
         rule_files: ['*.rules.yml']\n\
         alerting: {{ alertmanagers: [{{ static_configs: [{{ targets: ['{alertmanager}'] }}] }}] }}\n\
         scrape_configs: [{{ job_name: radiosonde, static_configs: [{{ targets: ['{target}'] }}] }}]\n"
    )
}

fn run_prometheus(folder: &Path, address: &str) -> Child {
    let mut command = Command::new("prometheus");
    command.arg("--config.file=prometheus.yml").arg("--storage.tsdb.path=prometheus");
    command.arg(format!("--web.listen-address={address}"));
    spawn(&mut command, folder).expect("prometheus is needed (apt install prometheus)")
}

/// Debian gives it another name.
fn run_alertmanager(folder: &Path, address: &str) -> Child {
    let run = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--config.file=alertmanager.yml").arg("--storage.path=alertmanager");
        command.arg(format!("--web.listen-address={address}")).arg("--cluster.listen-address=");
        spawn(&mut command, folder)
    };
    let child = run("alertmanager").or_else(|_| run("prometheus-alertmanager"));
    child.expect("alertmanager is needed (apt install prometheus-alertmanager)")
}

/// `NotFound` if there is no such program.
fn spawn(command: &mut Command, folder: &Path) -> Result<Child, ErrorKind> {
    let command = command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|error| error.kind())
}
