//! A Prometheus that runs on a database of ours and scrapes nobody.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::Value;

/// What it says when it answers queries, in 2.42 as in 3.
const READY: &str = "Server is ready to receive web requests";

/// A server that runs. Dropping it ends it.
pub struct Prometheus {
    child: Child,
    url: String,
}

impl Prometheus {
    /// Starts one on `database` and waits until it answers; `folder` is for its configuration.
    pub fn start(folder: &Path, database: &Path) -> Self {
        let config = folder.join("prometheus.yml");
        std::fs::write(&config, "global: {}\n").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", database.display()))
            .arg(format!("--web.listen-address={address}"))
            // The incident lies wherever its script says, not just before now.
            .arg("--storage.tsdb.retention.time=100y")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("prometheus is needed (apt install prometheus): {error}"));
        let mut prometheus = Self { child, url: format!("http://{address}") };
        prometheus.wait_ready();
        prometheus
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The series of an expression over time.
    pub fn range(&self, expression: &str, start: u64, end: u64, step: u64) -> Vec<Value> {
        let form = [
            ("query", expression.to_owned()),
            ("start", start.to_string()),
            ("end", end.to_string()),
            ("step", step.to_string()),
        ];
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
        let agent = ureq::Agent::new_with_config(config);
        let mut answer = agent.post(format!("{}/api/v1/query_range", self.url)).send_form(form).unwrap();
        let answer: Value = serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
        assert_eq!(answer["status"], "success", "{expression}: {}", answer["error"]);
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    fn wait_ready(&mut self) {
        let mut lines = BufReader::new(self.child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = Vec::new();
        while !said.last().is_some_and(|line: &String| line.contains(READY)) {
            let line = lines.next().unwrap_or_else(|| panic!("prometheus did not start\n{}", said.join("\n")));
            said.push(line);
        }
        // Nobody reads the rest, but the pipe must not fill.
        thread::spawn(move || lines.count());
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
