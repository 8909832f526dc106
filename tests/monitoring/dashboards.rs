//! Our lint of the dashboards: each panel says what it answers, selects by job and instance, and links to what exists.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use promql_parser::parser::{self, Call, Expr, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::{Value, json};

use crate::boards::{Board, text, variables_filled};
use crate::promql::Series;
use crate::rule_files;
use crate::{check, files, root};

const UIDS: &[&str] = &[
    "radiosonde-overview",
    "radiosonde-probe-path",
    "radiosonde-requests",
    "radiosonde-scheduler",
    "radiosonde-telemetry",
];

/// Units of Grafana that we use; a misspelt one is shown as text and goes unnoticed.
const UNITS: &[&str] = &["s", "percentunit", "reqps", "short", "bytes", "none"];

const KINDS: &[&str] = &["timeseries", "stat", "table", "state-timeline", "heatmap"];

/// The span of a rate: what the picture's resolution asks for, or all that is shown. The restart budget is counted over
/// ten minutes, so its panel is too.
const SPANS: &[&str] = &["$__rate_interval", "$__range", "10m"];

/// Series of Prometheus itself have its job and instance, not those of a server of ours.
const NOT_PER_INSTANCE: &[&str] = &["prometheus_", "alertmanager_"];

/// The columns of Grafana's grid.
const COLUMNS: u64 = 24;

#[test]
fn the_dashboards_are_what_their_source_says() {
    let output = Command::new("python3").arg("-B").arg(root().join("dashboards/generate.py")).arg("--check").output();
    let output = output.expect("python3 is needed to compare the dashboards with their source");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_dashboards_keep_the_conventions() {
    let series = rule_files::series();
    let boards = Board::all();
    let uids: Vec<_> = boards.iter().map(Board::uid).collect();
    assert_eq!(uids, UIDS);
    check(&boards.iter().flat_map(|board| breaches(board, &series)).collect::<Vec<_>>());
}

/// Everything that is wrong with a board.
fn breaches(board: &Board, series: &Series) -> Vec<String> {
    let mut all = of_the_board(board);
    all.extend(of_variables(board));
    all.extend(of_the_layout(board));
    for panel in board.panels() {
        let mut wrong = of_panel(panel);
        wrong.extend(of_links(panel));
        for query in panel["targets"].as_array().into_iter().flatten() {
            wrong.extend(of_query(panel, query, series));
        }
        all.extend(wrong.into_iter().map(|breach| format!("{}: {}: {breach}", board.uid(), text(panel, "/title"))));
    }
    for annotation in board.json["annotations"]["list"].as_array().into_iter().flatten() {
        let expression = text(annotation, "/expr");
        if !expression.is_empty() {
            all.extend(series.breaches(expression));
            all.extend(of_selectors(expression));
        }
    }
    all
}

fn of_the_board(board: &Board) -> Vec<String> {
    let json = &board.json;
    let stem = Path::new(&board.file).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let rules = [
        (board.uid() == stem, "the file is not named after the uid"),
        (json.get("id").is_none_or(Value::is_null), "an id ties it to one Grafana"),
        (json["editable"] == false, "it is edited in its source, not in Grafana"),
        (json["schemaVersion"].as_u64().is_some_and(|version| (39..=41).contains(&version)), "schemaVersion"),
        (json["graphTooltip"] == 1, "panels do not share their crosshair"),
        (json["refresh"] == "30s", "it does not refresh"),
        (json["tags"] == json!(["radiosonde"]), "the tag that links the boards is missing"),
        (
            json["links"][0]["keepTime"] == true && json["links"][0]["includeVars"] == true,
            "links lose time or variables",
        ),
        (json.get("__inputs").is_none(), "__inputs break provisioning"),
        (text(json, "/description").len() > 60, "it does not say what it is for"),
    ];
    rules.into_iter().filter(|(holds, _)| !holds).map(|(_, breach)| format!("{}: {breach}", board.uid())).collect()
}

fn of_variables(board: &Board) -> Vec<String> {
    let variable = |name: &str| {
        let mut list = board.json["templating"]["list"].as_array().into_iter().flatten();
        list.find(|variable| variable["name"] == name).cloned().unwrap_or_default()
    };
    let mut all = Vec::new();
    if variable("datasource")["type"] != "datasource" {
        all.push(format!("{}: no variable for the data source", board.uid()));
    }
    for name in ["job", "instance"] {
        let it = variable(name);
        let holds = it["refresh"] == 2 && it["multi"] == true && it["includeAll"] == true && it["allValue"] == ".+";
        if !holds {
            all.push(format!("{}: the variable {name} is not what it should be: {it}", board.uid()));
        }
    }
    all
}

fn of_the_layout(board: &Board) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let (mut ids, mut titles) = (BTreeSet::new(), BTreeSet::new());
    let mut all = Vec::new();
    for panel in board.everything() {
        let title = text(panel, "/title");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap_or(u64::MAX / 4);
        if !ids.insert(panel["id"].as_u64()) || !titles.insert(title) {
            all.push(format!("{}: {title}: id or title is there twice", board.uid()));
        }
        if at("x") + at("w") > COLUMNS {
            all.push(format!("{}: {title}: it is wider than the page", board.uid()));
            continue;
        }
        let cells = (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)));
        if cells.filter(|&cell| !taken.insert(cell)).count() > 0 {
            all.push(format!("{}: {title}: it lies on another panel", board.uid()));
        }
    }
    all
}

fn of_panel(panel: &Value) -> Vec<String> {
    let (kind, description) = (text(panel, "/type"), text(panel, "/description"));
    let rules = [
        (KINDS.contains(&kind), "unknown kind of panel"),
        (!text(panel, "/title").is_empty(), "no title"),
        (description.contains('?') && description.len() > 60, "the description asks no question or gives no answer"),
        (UNITS.contains(&text(panel, "/fieldConfig/defaults/unit")), "unknown unit"),
        (panel["datasource"]["uid"] == "${datasource}", "the data source is not the variable"),
        (panel.get("repeat").is_none() || panel["gridPos"]["w"] == COLUMNS, "its copies would lie on its neighbours"),
        (panel["targets"].as_array().is_some_and(|targets| !targets.is_empty()), "no query"),
    ];
    rules.into_iter().filter(|(holds, _)| !holds).map(|(_, breach)| breach.to_owned()).collect()
}

fn of_query(panel: &Value, query: &Value, series: &Series) -> Vec<String> {
    let expression = text(query, "/expr");
    let mut all = series.breaches(expression);
    all.extend(of_selectors(expression));
    if query["datasource"]["uid"] != "${datasource}" {
        all.push("the data source of a query is not the variable".to_owned());
    }
    let has_dots = query["exemplar"] == true;
    if has_dots && (panel["type"] != "timeseries" || !expression.contains("_bucket{")) {
        all.push(format!("exemplars come from buckets in a time series: {expression}"));
    }
    all.extend(of_legend(text(query, "/legendFormat"), expression));
    all
}

/// A legend names labels that the result has.
fn of_legend(legend: &str, expression: &str) -> Vec<String> {
    let names = legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
    let is_target = |name: &str| ["instance", "job"].contains(&name) && !expression.starts_with("sum(");
    let is_grouped = |name: &str| {
        let groups = expression.split(" by (").skip(1).filter_map(|rest| rest.split(')').next());
        groups.flat_map(|labels| labels.split(", ")).any(|label| label == name)
    };
    names
        .filter(|name| if expression.contains(" by (") { !is_grouped(name) } else { !is_target(name) })
        .map(|name| format!("the legend names {name}, which {expression} does not have"))
        .collect()
}

/// Selectors choose by job and instance; rates take their span from the picture.
fn of_selectors(expression: &str) -> Vec<String> {
    struct Selectors(Vec<String>);
    impl Selectors {
        fn look(&mut self, selector: &VectorSelector) {
            let name = selector.name.as_deref().unwrap_or_default();
            let is_watchdog = selector.matchers.matchers.iter().any(|matcher| matcher.value.ends_with("Watchdog"));
            if is_watchdog || NOT_PER_INSTANCE.iter().any(|prefix| name.starts_with(prefix)) {
                return;
            }
            for label in ["job", "instance"] {
                let wanted = format!("{label}=~\"${label}\"");
                if !selector.matchers.matchers.iter().any(|matcher| matcher.to_string() == wanted) {
                    self.0.push(format!("{name} is not selected by {wanted}"));
                }
            }
        }
    }
    impl ExprVisitor for Selectors {
        type Error = ();
        fn pre_visit(&mut self, expr: &Expr) -> Result<bool, ()> {
            match expr {
                Expr::VectorSelector(selector) => self.look(selector),
                Expr::MatrixSelector(matrix) => self.look(&matrix.vs),
                Expr::Call(Call { func, .. }) if func.name == "irate" => self.0.push("irate shows noise".to_owned()),
                _ => {}
            }
            Ok(true)
        }
    }
    let mut selectors = Selectors(Vec::new());
    if let Ok(tree) = parser::parse(&variables_filled(expression)) {
        walk_expr(&mut selectors, &tree).expect("a visit never fails");
    }
    let spans = expression.split('[').skip(1).filter_map(|rest| rest.split(']').next());
    let wrong = spans.filter(|span| !SPANS.contains(span)).map(|span| format!("[{span}] is not $__rate_interval"));
    selectors.0.into_iter().chain(wrong).collect()
}

/// Links lead to runbooks, documents and boards of this repository, or to Jaeger.
fn of_links(panel: &Value) -> Vec<String> {
    let mut links = Vec::new();
    collect_links(panel, &mut links);
    let exists = |path: String| root().join(path).exists();
    links.retain(|url| {
        let leads = if let Some(runbook) = url.strip_prefix("${runbooks}/") {
            runbook.contains("${") || exists(format!("docs/runbooks/{runbook}"))
        } else if let Some(uid) = url.strip_prefix("/d/") {
            uid.split('?').next().is_some_and(|uid| UIDS.contains(&uid)) && uid.contains("${__url_time_range}")
        } else if let Some((_, document)) = url.split_once("/blob/main/") {
            exists(document.to_owned())
        } else {
            url.starts_with("${jaeger}/search?service=radiosonde&start=${__from}000&end=${__to}000")
        };
        !leads
    });
    links.iter().map(|url| format!("the link {url} leads nowhere")).collect()
}

fn collect_links(value: &Value, links: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            links.extend(fields.get("url").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| collect_links(value, links));
        }
        Value::Array(items) => items.iter().for_each(|value| collect_links(value, links)),
        _ => {}
    }
}

/// A breach that the lint is there to find is found.
#[test]
fn the_lint_finds_what_it_looks_for() {
    let series = rule_files::series();
    let boards = Board::all();
    let good = boards.iter().find(|board| board.uid() == "radiosonde-probe-path").expect("it is there");
    let first = good.json["panels"].as_array().expect("panels").iter().position(|panel| panel["type"] != "row");
    let at = format!("/panels/{}", first.expect("there is a panel"));
    let expr = format!("{at}/targets/0/expr");
    let cases: &[(&str, Value, &str)] = &[
        ("/uid", json!("another"), "named after the uid"),
        ("/editable", json!(true), "edited in its source"),
        ("/templating/list/1/allValue", json!(".*"), "variable job"),
        (&format!("{at}/description"), json!("Status."), "asks no question"),
        (&format!("{at}/fieldConfig/defaults/unit"), json!("seconds"), "unknown unit"),
        (&format!("{at}/datasource/uid"), json!("prometheus"), "not the variable"),
        (&format!("{at}/gridPos/x"), json!(20), "wider than the page"),
        (&format!("{at}/gridPos/h"), json!(99), "lies on another"),
        (&format!("{at}/links/0/url"), json!("${runbooks}/RadiosondeNobody.md"), "leads nowhere"),
        (&format!("{at}/targets/0/legendFormat"), json!("{{hop}}"), "the legend names hop"),
        (&expr, json!("radiosonde_ready"), "not selected by job"),
        (&expr, json!("rate(radiosonde_ready"), "does not parse"),
        (&expr, json!("sum(radiosonde_nobody{job=~\"$job\", instance=~\"$instance\"})"), "radiosonde_nobody"),
        (
            &expr,
            json!("sum(rate(radiosonde_health_probe_total{job=~\"$job\", instance=~\"$instance\"}[5m]))"),
            "not $__rate_interval",
        ),
    ];
    for (pointer, value, breach) in cases {
        let mut bad = Board { file: good.file.clone(), json: good.json.clone() };
        *bad.json.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} is not there")) = value.clone();
        let found = breaches(&bad, &series);
        assert!(found.iter().any(|found| found.contains(breach)), "{pointer} = {value}: {found:?}");
    }
    assert_eq!(files("dashboards", ".json").len(), boards.len());
}
