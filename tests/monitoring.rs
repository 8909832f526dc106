//! What is shipped for those on call says only what is true: rules, runbooks and dashboards use series that exist.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail as the test does")]

#[path = "monitoring/boards.rs"]
mod boards;
#[path = "monitoring/dashboards.rs"]
mod dashboards;
#[path = "monitoring/incident.rs"]
mod incident;
#[path = "monitoring/prometheus_process.rs"]
mod prometheus_process;
#[path = "monitoring/page.rs"]
mod page;
#[path = "monitoring/paging.rs"]
mod paging;
#[path = "monitoring/promql.rs"]
mod promql;
#[path = "monitoring/replay.rs"]
mod replay;
#[path = "monitoring/rule_files.rs"]
mod rule_files;
#[path = "monitoring/rules.rs"]
mod rules;
#[path = "monitoring/runbooks.rs"]
mod runbooks;
#[path = "monitoring/script.rs"]
mod script;
#[path = "monitoring/stack.rs"]
mod stack;
#[path = "it"]
#[expect(dead_code, reason = "shared with tests/it; each binary uses its part")]
mod it {
    pub mod support;
}

use std::path::PathBuf;

/// The repository.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file of the repository.
fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files of a folder of the repository whose names end with `suffix`, as paths from the root, sorted.
fn files(folder: &str, suffix: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> =
        names.filter(|name| name.ends_with(suffix)).map(|name| format!("{folder}/{name}")).collect();
    files.sort();
    assert!(!files.is_empty(), "{folder} has no file that ends with {suffix}");
    files
}

/// Fails with every breach.
fn check(breaches: &[String]) {
    assert!(breaches.is_empty(), "\n  {}\n", breaches.join("\n  "));
}
