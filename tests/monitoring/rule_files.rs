//! The rule files of Prometheus and their unit tests, as both Prometheus 2.42 and 3 read them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::promql::Series;
use crate::{files, read};

/// A file of rules. Keys that only one of the two versions knows are refused, as in its parts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleFile {
    /// Evaluated side by side.
    pub groups: Vec<Group>,
}

/// Rules that are evaluated one after the other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// How often. Always given: the default is up to whoever runs Prometheus.
    pub interval: String,
    /// In order.
    pub rules: Vec<Rule>,
}

/// Makes a series or an alert.
#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The series that it makes.
    pub record: Option<String>,
    /// The alert that it makes.
    pub alert: Option<String>,
    /// From what.
    pub expr: String,
    /// For how long it must hold.
    #[serde(rename = "for")]
    pub wait: Option<String>,
    /// For how long the alert stays when it no longer holds.
    pub keep_firing_for: Option<String>,
    /// What Alertmanager routes by.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What people read.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// An alert.
pub struct Alert {
    /// Its name.
    pub name: String,
    /// The rest.
    pub rule: Rule,
}

/// A file of unit tests for promtool.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestFile {
    /// The files under test.
    pub rule_files: Vec<String>,
    /// How often rules are evaluated.
    pub evaluation_interval: String,
    /// Scenarios.
    pub tests: Vec<Scenario>,
}

/// Series that somebody made up, and what must come of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What happens.
    pub name: String,
    /// Time between two samples.
    pub interval: String,
    /// The samples.
    pub input_series: Vec<InputSeries>,
    /// Who fires when.
    #[serde(default)]
    pub alert_rule_test: Vec<AlertTest>,
    /// Who fired at any time.
    #[serde(default)]
    pub promql_expr_test: Vec<serde::de::IgnoredAny>,
}

/// One series of a scenario.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputSeries {
    /// Name and labels.
    pub series: String,
    /// Samples in promtool's notation.
    pub values: String,
}

/// What fires at one time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertTest {
    /// When.
    pub eval_time: String,
    /// Which alert.
    pub alertname: String,
    /// With which labels and annotations; none: it is silent.
    #[serde(default)]
    pub exp_alerts: Vec<serde::de::IgnoredAny>,
}

/// All files of rules with their paths.
pub fn rule_files() -> Vec<(String, RuleFile)> {
    files("alerts", ".rules.yml").into_iter().map(|path| (path.clone(), parse(&path))).collect()
}

/// All files of unit tests with their paths.
pub fn test_files() -> Vec<(String, TestFile)> {
    files("alerts/tests", ".yml").into_iter().map(|path| (path.clone(), parse(&path))).collect()
}

/// Every rule, in order.
pub fn rules() -> Vec<Rule> {
    let groups = rule_files().into_iter().flat_map(|(_, file)| file.groups);
    groups.flat_map(|group| group.rules).collect()
}

/// Every alert, in order.
pub fn alerts() -> Vec<Alert> {
    let alerts = rules().into_iter().filter_map(|rule| Some(Alert { name: rule.alert.clone()?, rule }));
    alerts.collect()
}

/// What may be asked for: the server's series, and those that rules record.
pub fn series() -> Series {
    let recorded: BTreeSet<_> = rules().into_iter().filter_map(|rule| rule.record).collect();
    Series::new(recorded)
}

fn parse<T: serde::de::DeserializeOwned>(path: &str) -> T {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
