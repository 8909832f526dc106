//! The rules ask for series that exist, and the alerts keep the conventions that make a page readable.

use std::collections::BTreeSet;

use radiosonde::telemetry::metrics::catalogue;

use crate::rule_files::{Alert, alerts, rule_files, rules, series, test_files};
use crate::{check, promql, read};

/// Where runbooks are read.
const RUNBOOKS: &str = "https://github.com/radiosonde/radiosonde/blob/main/docs/runbooks/";

/// One prefix for all links, so that one `sed` moves them to another Grafana.
pub const GRAFANA: &str = "http://localhost:3000/d/";

/// Causes that hold nothing back: a pause is an order and no illness, and who does not know the cause knows no better.
const HOLD_NOTHING_BACK: &[&str] = &["paused", "unknown"];

/// They are about no instance.
const OF_NO_INSTANCE: &[&str] = &["RadiosondeAbsent", "RadiosondeWatchdog"];

#[test]
fn rules_use_series_that_exist() {
    let series = series();
    let breaches: Vec<_> = rules().iter().flat_map(|rule| series.breaches(&rule.expr)).collect();
    check(&breaches);
}

#[test]
fn groups_say_how_often_they_are_evaluated() {
    let mut breaches = Vec::new();
    let mut names = BTreeSet::new();
    for (path, file) in rule_files() {
        for group in file.groups {
            if !["5s", "15s", "30s", "1m"].contains(&group.interval.as_str()) {
                breaches.push(format!("{path}: {}: interval {}", group.name, group.interval));
            }
            if !names.insert(group.name.clone()) {
                breaches.push(format!("{path}: {} is there twice", group.name));
            }
        }
    }
    check(&breaches);
}

/// A recorded series is a rule's own work of the same evaluation, or of a slower one before it: never of another file.
#[test]
fn what_is_recorded_is_recorded_before_it_is_read() {
    let mut breaches = Vec::new();
    for (path, file) in rule_files() {
        let mut recorded = BTreeSet::new();
        for rule in file.groups.into_iter().flat_map(|group| group.rules) {
            let reads = promql::names(&rule.expr);
            let unknown = reads.iter().filter(|name| name.contains(':') && !recorded.contains(*name));
            breaches.extend(unknown.map(|name| format!("{path}: {name} is read before it is recorded")));
            let Some(record) = rule.record else { continue };
            if record.split(':').count() != 3 || !rule.annotations.is_empty() {
                breaches.push(format!("{path}: {record}: a recorded series is level:metric:operations"));
            }
            if !recorded.insert(record.clone()) {
                breaches.push(format!("{path}: {record} is recorded twice"));
            }
        }
    }
    check(&breaches);
}

#[test]
fn a_rule_is_an_alert_or_a_recording() {
    let both_or_none = |rule: &crate::rule_files::Rule| rule.alert.is_some() == rule.record.is_some();
    let breaches: Vec<_> = rules().into_iter().filter(both_or_none).map(|rule| rule.expr).collect();
    check(&breaches);
}

#[test]
fn alerts_keep_the_conventions() {
    let mut names = BTreeSet::new();
    let mut breaches = Vec::new();
    for alert in alerts() {
        let found = [name(&alert), labels(&alert), texts(&alert), links(&alert), expression(&alert)];
        breaches.extend(found.into_iter().flatten().map(|breach| format!("{}: {breach}", alert.name)));
        if !names.insert(alert.name.clone()) {
            breaches.push(format!("{} is there twice", alert.name));
        }
    }
    check(&breaches);
}

fn breach(is_one: bool, what: &str) -> Option<String> {
    is_one.then(|| what.to_owned())
}

fn name(alert: &Alert) -> Vec<String> {
    let rest = alert.name.strip_prefix("Radiosonde").unwrap_or_default();
    let pascal = rest.starts_with(|first: char| first.is_ascii_uppercase())
        && rest.chars().all(|character| character.is_ascii_alphanumeric());
    breach(!pascal, "a name is RadiosondeInPascalCase").into_iter().collect()
}

/// A value in a label would make each value an alert of its own.
fn labels(alert: &Alert) -> Vec<String> {
    let labels = &alert.rule.labels;
    let severity = labels.get("severity").map(String::as_str);
    let known = matches!(severity, Some("critical" | "warning" | "none"));
    let breaches = [
        breach(labels.len() != 1, "its one label is severity"),
        breach(!known, "severity is critical, warning or none"),
    ];
    breaches.into_iter().flatten().collect()
}

fn texts(alert: &Alert) -> Vec<String> {
    let annotations = &alert.rule.annotations;
    let text = |key: &str| annotations.get(key).map(String::as_str).unwrap_or_default();
    let keys: Vec<_> = annotations.keys().map(String::as_str).collect();
    let (summary, description) = (text("summary"), text("description"));
    let nameless = !OF_NO_INSTANCE.contains(&alert.name.as_str()) && !description.contains("{{ $labels.instance }}");
    let reads = promql::names(&alert.rule.expr);
    let has_hop = reads.iter().any(|name| name.starts_with("instance_hop_cause:"));
    let mute = has_hop && !(description.contains("{{ $labels.hop }}") && summary.contains("{{ $labels.cause }}"));
    let breaches = [
        breach(
            keys != ["dashboard_url", "description", "runbook_url", "summary"],
            "annotations are summary, description, runbook_url, dashboard_url",
        ),
        breach(summary.is_empty() || summary.len() > 120 || summary.contains('\n'), "a summary is one short line"),
        breach(summary.contains("$value"), "a summary has no value: it would change while the alert fires"),
        breach(nameless, "the description names the instance"),
        breach(mute, "the summary names the cause, the description the hop"),
    ];
    breaches.into_iter().flatten().collect()
}

fn links(alert: &Alert) -> Vec<String> {
    let annotation = |key: &str| alert.rule.annotations.get(key).cloned().unwrap_or_default();
    let dashboard = annotation("dashboard_url");
    let instance = "?var-instance={{ $labels.instance }}";
    let needs_instance = !OF_NO_INSTANCE.contains(&alert.name.as_str());
    let breaches = [
        breach(annotation("runbook_url") != format!("{RUNBOOKS}{}.md", alert.name), "runbook_url is that of its name"),
        breach(!dashboard.starts_with(GRAFANA), "dashboard_url begins as all do"),
        breach(needs_instance != dashboard.ends_with(instance), "dashboard_url ends with the instance, if it has one"),
    ];
    breaches.into_iter().flatten().collect()
}

fn expression(alert: &Alert) -> Vec<String> {
    let expr = &one_line(&alert.rule.expr);
    let compares = [" > ", " < ", " == ", " >= ", " <= ", " != "].iter().any(|operator| expr.contains(operator));
    let is_absence = expr.contains("absent(");
    let watchdog = alert.name == "RadiosondeWatchdog";
    let waits = alert.rule.wait.is_some();
    // Without labels to match on, a label that only one side has makes the other side vanish.
    let sets =
        [" and ", " unless "].iter().any(|operator| expr.replace(&format!("{operator}on ("), "").contains(operator));
    let breaches = [
        breach(!(compares || is_absence || watchdog), "it compares"),
        breach(is_absence && !waits, "absence is confirmed by waiting"),
        breach(expr.contains("topk") || expr.contains("bottomk"), "who is the worst changes all the time"),
        breach(is_absence && alert.rule.keep_firing_for.is_some(), "what is back is back"),
        breach(expr.contains("irate"), "irate sees two samples only"),
        breach(sets, "`and` and `unless` say on which labels"),
        breach(expr.contains("le=\""), "the text of a bucket's edge differs between versions: le=~\"5(\\\\.0)?\""),
    ];
    breaches.into_iter().flatten().collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A cause that is added to the server needs an alert, and its symptoms must not page beside it.
#[test]
fn every_cause_has_an_alert_that_holds_symptoms_back() {
    let series = catalogue().expect("the series are sound");
    let failures = series.iter().find(|series| series.name == "radiosonde_health_probe_failures_total");
    let causes =
        failures.expect("it is there").labels.iter().find(|label| label.name == "cause").expect("it has causes");
    let (routes, budgets) = (read("alerts/alertmanager.yml"), read("alerts/slo.rules.yml"));
    let names: BTreeSet<_> = alerts().into_iter().map(|alert| alert.name).collect();
    let mut breaches = Vec::new();
    for cause in &causes.values {
        let name = pascal(cause);
        let holds_back = |text: &str| text.split(['(', ')', '|']).any(|word| word == name);
        let need_not = HOLD_NOTHING_BACK.contains(&cause.as_str());
        let rules = [
            (names.iter().any(|alert| alert.starts_with(&format!("Radiosonde{name}"))), "has no alert"),
            (need_not || holds_back(&routes), "holds no symptom back in alerts/alertmanager.yml"),
            (need_not || holds_back(&budgets), "burns the probes' budget a second time in alerts/slo.rules.yml"),
        ];
        breaches.extend(rules.iter().filter(|(holds, _)| !holds).map(|(_, breach)| format!("{cause} {breach}")));
    }
    check(&breaches);
}

/// `step_stuck` is `StepStuck`.
fn pascal(cause: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    cause.split('_').map(capital).collect()
}

#[test]
fn every_alert_is_tested_both_ways() {
    let mut loud = BTreeSet::new();
    let mut silent = BTreeSet::new();
    let mut breaches = Vec::new();
    for (path, file) in test_files() {
        for scenario in file.tests {
            for test in &scenario.alert_rule_test {
                if test.eval_time.starts_with('0') {
                    breaches.push(format!("{path}: {}: at the start nothing has happened", scenario.name));
                }
                (if test.exp_alerts.is_empty() { &mut silent } else { &mut loud }).insert(test.alertname.clone());
            }
            let asks = !scenario.alert_rule_test.is_empty() || !scenario.promql_expr_test.is_empty();
            if scenario.input_series.is_empty() || scenario.interval.is_empty() || !asks {
                breaches.push(format!("{path}: {}: nothing happens", scenario.name));
            }
        }
        if file.rule_files.is_empty() || file.evaluation_interval.is_empty() {
            breaches.push(format!("{path}: it tests nothing"));
        }
    }
    let names: BTreeSet<_> = alerts().into_iter().map(|alert| alert.name).collect();
    let cannot_be_silent = |name: &String| name == "RadiosondeWatchdog";
    breaches.extend(names.difference(&loud).map(|name| format!("no test lets {name} fire")));
    let noisy = names.difference(&silent).filter(|name| !cannot_be_silent(name));
    breaches.extend(noisy.map(|name| format!("no test has {name} silent")));
    let tested: BTreeSet<_> = loud.union(&silent).collect();
    breaches.extend(tested.into_iter().filter(|name| !names.contains(*name)).map(|name| format!("{name} is no alert")));
    check(&breaches);
}

/// A made-up scenario must be made of what a server exports.
#[test]
fn tests_feed_series_that_exist() {
    let series = series();
    let mut breaches = BTreeSet::new();
    for (path, file) in test_files() {
        for input in file.tests.iter().flat_map(|scenario| &scenario.input_series) {
            let wrong = series.sample_breaches(&input.series);
            breaches.extend(wrong.into_iter().map(|breach| format!("{path}: {breach}")));
            assert!(!input.values.is_empty(), "{path}: {} has no values", input.series);
        }
    }
    check(&breaches.into_iter().collect::<Vec<_>>());
}
