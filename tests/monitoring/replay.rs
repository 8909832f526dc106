//! The scripted incident in a real Prometheus: every panel of every dashboard, and every rule, must find data there.

use std::path::{Path, PathBuf};
use std::process::Command;

use promql_parser::parser::{self, Expr};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;

use crate::boards::{Board, all_selected, text};
use crate::incident::{BEGIN, END, SCRAPE, openmetrics};
use crate::prometheus_process::Prometheus;
use crate::{check, files, root, rule_files};

/// Rates, and what is made of them.
const LAYERS_OF_RULES: usize = 2;

#[test]
fn every_panel_and_every_rule_finds_data() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    // tools/dash-shot draws the boards from the same database.
    let kept = std::env::var_os("RADIOSONDE_INCIDENT").map(PathBuf::from);
    let folder = kept.as_deref().unwrap_or(temporary.path());
    std::fs::write(folder.join("times"), format!("BEGIN={BEGIN}\nEND={END}\n")).expect("the folder takes it");
    let database = folder.join("database");
    store_incident(folder, &database);
    // Rules read what other rules have made, which a database takes up only when it is opened.
    for _ in 0..LAYERS_OF_RULES {
        store_recorded(&Prometheus::start(folder, &database), &database);
    }
    let prometheus = Prometheus::start(folder, &database);
    let mut dry = dry_rules(&prometheus);
    for board in Board::all() {
        dry.extend(dry_panels(&board, &prometheus));
    }
    check(&dry);
    assert!(!has_data(&prometheus, "radiosonde_ready{instance=\"nobody\"}"), "nobody has data");
}

/// Turns the text into blocks of a database.
fn store_incident(folder: &Path, database: &Path) {
    let text = folder.join("incident.om");
    std::fs::write(&text, openmetrics()).expect("the folder takes it");
    let mut command = promtool();
    command.args(["tsdb", "create-blocks-from", "openmetrics", "--quiet"]).args([&text, database]);
    succeed(command);
}

/// Adds what the recording rules would have made.
fn store_recorded(prometheus: &Prometheus, database: &Path) {
    let mut command = promtool();
    command.args(["tsdb", "create-blocks-from", "rules"]);
    command.args([format!("--start={BEGIN}"), format!("--end={END}"), format!("--eval-interval={SCRAPE}s")]);
    command.arg(format!("--url={}", prometheus.url())).arg("--output-dir").arg(database);
    command.args(files("alerts", ".rules.yml").iter().map(|file| root().join(file)));
    succeed(command);
}

fn promtool() -> Command {
    Command::new("promtool")
}

fn succeed(mut command: Command) {
    let output =
        command.output().unwrap_or_else(|error| panic!("promtool is needed (apt install prometheus): {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The queries that find nothing, as sentences.
fn dry_panels(board: &Board, prometheus: &Prometheus) -> Vec<String> {
    let mut dry = Vec::new();
    for panel in board.panels() {
        for query in panel["targets"].as_array().into_iter().flatten() {
            let expression = all_selected(text(query, "/expr"));
            if !has_data(prometheus, &expression) {
                dry.push(format!("{}: {}: no data for {expression}", board.uid(), text(panel, "/title")));
            }
        }
    }
    let annotations = board.json["annotations"]["list"].as_array().into_iter().flatten();
    let expressions = annotations.map(|annotation| all_selected(text(annotation, "/expr")));
    let empty = expressions.filter(|expression| !expression.is_empty() && !has_data(prometheus, expression));
    dry.extend(empty.map(|expression| format!("{}: the annotation finds nothing: {expression}", board.uid())));
    dry
}

/// Recording rules that make nothing, and alerts that look at something which is not there.
fn dry_rules(prometheus: &Prometheus) -> Vec<String> {
    let mut dry = Vec::new();
    for rule in rule_files::rules() {
        let looked_at = selectors(&rule.expr).into_iter().map(recorded_as_a_whole).chain(rule.record.clone());
        let missing = looked_at.filter(|one| !has_data(prometheus, one));
        let name = rule.record.or(rule.alert).expect("a rule has a name");
        dry.extend(missing.map(|selector| format!("{name}: no data for {selector}")));
    }
    dry
}

/// Not every cause comes up in one incident: of what rules have made, all is looked at, whatever its labels.
fn recorded_as_a_whole(selector: String) -> String {
    let name = selector.split('{').next().unwrap_or_default();
    if name.contains(':') { name.to_owned() } else { selector }
}

/// Every selector of an expression, as an expression of its own.
fn selectors(expression: &str) -> Vec<String> {
    struct Selectors(Vec<String>);
    impl ExprVisitor for Selectors {
        type Error = ();
        fn pre_visit(&mut self, expr: &Expr) -> Result<bool, ()> {
            match expr {
                Expr::VectorSelector(selector) => self.0.push(selector.to_string()),
                Expr::MatrixSelector(matrix) => self.0.push(matrix.vs.to_string()),
                _ => {}
            }
            Ok(true)
        }
    }
    let tree = parser::parse(expression).unwrap_or_else(|error| panic!("{error}: {expression}"));
    let mut selectors = Selectors(Vec::new());
    walk_expr(&mut selectors, &tree).expect("a visit never fails");
    selectors.0
}

/// Some series has a number at some time of the incident.
fn has_data(prometheus: &Prometheus, expression: &str) -> bool {
    let series = prometheus.range(expression, BEGIN, END, SCRAPE);
    let is_number = |sample: &Value| sample[1].as_str().is_some_and(|value| value != "NaN");
    let mut samples = series.iter().flat_map(|series| series["values"].as_array().into_iter().flatten());
    samples.any(is_number)
}
