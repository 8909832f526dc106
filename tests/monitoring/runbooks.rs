//! Every alert has a runbook, and what a runbook asks for exists: series, dashboards, traces, faults.

use std::collections::BTreeSet;

use radiosonde::io_struct::Fault;

use crate::rule_files::{Alert, alerts, series};
use crate::rules::GRAFANA;
use crate::{check, files, read};

const FOLDER: &str = "docs/runbooks";

/// What somebody who was woken up looks for, in this order.
const HEADINGS: &[&str] =
    &["Meaning", "Impact", "First 60 seconds", "Reading the trace", "Decide", "Do not", "Rehearse"];

/// Where traces are searched.
const JAEGER: &str = "http://localhost:16686/search?service=radiosonde";

/// There is no server, or nothing wrong with one, that a trace could show.
const WITHOUT_A_TRACE: &[&str] = &["RadiosondeAbsent", "RadiosondeWatchdog"];

struct Runbook {
    name: String,
    text: String,
}

impl Runbook {
    /// What stands in fenced blocks of this language.
    fn blocks(&self, language: &str) -> Vec<&str> {
        let fence = format!("```{language}\n");
        self.text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
    }

    /// One query a line.
    fn queries(&self) -> Vec<&str> {
        let lines = self.blocks("promql").into_iter().flat_map(str::lines);
        lines.map(str::trim).filter(|line| !line.is_empty()).collect()
    }

    /// The bodies that are sent to `/debug/fault`.
    fn faults(&self) -> Vec<&str> {
        let bodies = self.text.split("/debug/fault -d '").skip(1);
        bodies.map(|rest| rest.split('\'').next().unwrap_or_default()).collect()
    }
}

fn runbooks() -> Vec<Runbook> {
    let name = |path: &str| path.trim_start_matches(FOLDER).trim_matches('/').trim_end_matches(".md").to_owned();
    let books = files(FOLDER, ".md").into_iter().map(|path| Runbook { name: name(&path), text: read(&path) });
    books.filter(|book| book.name != "README").collect()
}

#[test]
fn alerts_and_runbooks_belong_together() {
    let alerts: BTreeSet<_> = alerts().into_iter().map(|alert| alert.name).collect();
    let books: BTreeSet<_> = runbooks().into_iter().map(|book| book.name).collect();
    let index = read("docs/runbooks/README.md");
    let unlisted = alerts.iter().filter(|name| !index.contains(&format!("]({name}.md)")));
    let mut breaches: Vec<_> = unlisted.map(|name| format!("{name} is not in {FOLDER}/README.md")).collect();
    breaches.extend(alerts.difference(&books).map(|name| format!("{name} has no runbook")));
    breaches.extend(books.difference(&alerts).map(|name| format!("{name} is no alert")));
    check(&breaches);
}

#[test]
fn a_runbook_has_its_parts() {
    let mut breaches = Vec::new();
    for book in runbooks() {
        let headings: Vec<_> = book.text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        if headings != HEADINGS {
            breaches.push(format!("{}: its headings are {headings:?}", book.name));
        }
        if book.text.lines().next() != Some(&format!("# {}", book.name)) {
            breaches.push(format!("{}: its first line is its name", book.name));
        }
        if !book.text.contains("| you see |") {
            breaches.push(format!("{}: it has no table to decide by", book.name));
        }
        let has_trace = book.text.contains(JAEGER);
        if has_trace == WITHOUT_A_TRACE.contains(&book.name.as_str()) {
            breaches.push(format!("{}: one search in Jaeger begins with {JAEGER}", book.name));
        }
    }
    check(&breaches);
}

#[test]
fn a_runbook_asks_for_series_that_exist() {
    let series = series();
    let mut breaches = Vec::new();
    for book in runbooks() {
        let queries = book.queries();
        if queries.len() < 3 {
            breaches.push(format!("{}: three queries at least", book.name));
        }
        let wrong = queries.into_iter().flat_map(|query| series.breaches(query));
        breaches.extend(wrong.map(|breach| format!("{}: {breach}", book.name)));
    }
    check(&breaches);
}

#[test]
fn a_runbook_opens_the_dashboard_of_its_alert() {
    let books = runbooks();
    let text = |alert: &Alert| books.iter().find(|book| book.name == alert.name).map(|book| book.text.clone());
    let is_missing = |alert: &Alert| {
        let url = alert.rule.annotations["dashboard_url"].split('?').next().unwrap_or_default().to_owned();
        !text(alert).is_some_and(|text| url.len() > GRAFANA.len() && text.contains(&url))
    };
    let missing: Vec<_> = alerts().into_iter().filter(is_missing).map(|alert| alert.name).collect();
    check(&missing);
}

#[test]
fn faults_to_rehearse_with_exist() {
    let mut breaches = Vec::new();
    for book in runbooks() {
        for body in book.faults() {
            if let Err(error) = serde_json::from_str::<Fault>(body) {
                breaches.push(format!("{}: {body}: {error}", book.name));
            }
        }
    }
    check(&breaches);
}
