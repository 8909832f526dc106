//! Checks one PromQL expression against the series that the server exports: names, labels and label values.

use std::collections::{BTreeMap, BTreeSet};

use promql_parser::label::{MatchOp, Matcher, Matchers};
use promql_parser::parser::token::{T_EQL, T_EQL_REGEX};
use promql_parser::parser::{self, AggregateExpr, Call, Expr, LabelModifier, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use radiosonde::telemetry::metrics::{LabelInfo, SeriesInfo, catalogue};

/// What Prometheus, Alertmanager, Grafana's data sources and the span metrics of Jaeger add to our own series.
const OF_OTHERS: &[&str] = &["up", "ALERTS", "ALERTS_FOR_STATE"];
const PREFIXES_OF_OTHERS: &[&str] = &["scrape_", "prometheus_", "alertmanager_", "traces_span_metrics_"];

/// Labels that each series has once it is scraped.
const OF_THE_TARGET: &[&str] = &["job", "instance"];

/// Labels whose values are not ours to list.
const OPEN_LABELS: &[&str] = &["le", "version", "model", "architecture", "page_size", "num_pages"];

/// Functions that take the growth of a counter.
const OF_COUNTERS: &[&str] = &["rate", "increase", "irate", "resets"];

/// Functions under which a counter is not read as if it were a level.
const COUNTER_IS_FINE: &[&str] =
    &["rate", "increase", "irate", "resets", "changes", "absent", "absent_over_time", "count_over_time", "timestamp"];

/// Series that expressions may name.
pub struct Series {
    known: BTreeMap<String, SeriesInfo>,
    recorded: BTreeSet<String>,
}

impl Series {
    /// Those of the server, and those that `recorded` rules make.
    pub fn new(recorded: impl IntoIterator<Item = String>) -> Self {
        let series = catalogue().expect("the series are sound");
        let known = series.into_iter().map(|series| (series.name.clone(), series)).collect();
        Self { known, recorded: recorded.into_iter().collect() }
    }

    /// What is wrong with `expression`, in sentences; empty: nothing. Grafana's `$__` variables may stand for durations.
    pub fn breaches(&self, expression: &str) -> Vec<String> {
        let tree = match parser::parse(&without_durations(expression)) {
            Ok(tree) => tree,
            Err(error) => return vec![format!("does not parse: {error}: {expression}")],
        };
        let mut visit = Visit { series: self, breaches: Vec::new(), functions: Vec::new() };
        walk_expr(&mut visit, &tree).expect("a visit never fails");
        visit.breaches.into_iter().map(|breach| format!("{breach}: {expression}")).collect()
    }

    /// What is wrong with one series as a scrape would store it, in sentences.
    pub fn sample_breaches(&self, sample: &str) -> Vec<String> {
        let parsed = parser::parse(sample).map_err(|error| error.to_string());
        let Ok(Expr::VectorSelector(selector)) = parsed else { return vec![format!("not a series: {sample}")] };
        let name = selector.name.clone().unwrap_or_default();
        let Some(family) = self.family(&name) else {
            let is_known = Self::is_of_others(&name) || self.recorded.contains(&name);
            return if is_known { Vec::new() } else { vec![format!("{name} does not exist: {sample}")] };
        };
        let has = |label: &LabelInfo| matchers(&selector.matchers).any(|matcher| matcher.name == label.name);
        let missing = family.labels.iter().filter(|label| !has(label));
        let missing = missing.map(|label| format!("the label {} is missing: {sample}", label.name));
        let is_bucket = name.ends_with("_bucket");
        let wrong = matchers(&selector.matchers).filter_map(|matcher| mismatch(matcher, family, is_bucket));
        missing.chain(wrong).collect()
    }

    /// The series behind a sample's name: itself, or the histogram that it is a part of.
    fn family(&self, name: &str) -> Option<&SeriesInfo> {
        let histogram = |suffix| self.known.get(name.strip_suffix(suffix)?).filter(|series| series.kind == "histogram");
        let itself = self.known.get(name).filter(|series| series.kind != "histogram");
        itself.or_else(|| ["_bucket", "_sum", "_count"].into_iter().find_map(histogram))
    }

    /// Samples that only grow.
    fn is_counter(&self, name: &str) -> bool {
        self.family(name).is_some_and(|series| series.kind != "gauge")
    }

    fn is_of_others(name: &str) -> bool {
        OF_OTHERS.contains(&name) || PREFIXES_OF_OTHERS.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// The metrics that `expression` reads, by name; empty if it does not parse.
pub fn names(expression: &str) -> BTreeSet<String> {
    struct Names(BTreeSet<String>);
    impl ExprVisitor for Names {
        type Error = ();
        fn pre_visit(&mut self, expr: &Expr) -> Result<bool, ()> {
            self.0.extend(selector(expr).and_then(|selector| selector.name.clone()));
            Ok(true)
        }
    }
    let mut names = Names(BTreeSet::new());
    if let Ok(tree) = parser::parse(&without_durations(expression)) {
        walk_expr(&mut names, &tree).expect("a visit never fails");
    }
    names.0
}

/// Grafana fills these in with durations; any will do for the parser.
fn without_durations(expression: &str) -> String {
    ["$__rate_interval", "$__interval", "$__range"]
        .iter()
        .fold(expression.to_owned(), |text, variable| text.replace(variable, "5m"))
}

fn selector(expr: &Expr) -> Option<&VectorSelector> {
    match expr {
        Expr::VectorSelector(selector) => Some(selector),
        Expr::MatrixSelector(matrix) => Some(&matrix.vs),
        _ => None,
    }
}

struct Visit<'a> {
    series: &'a Series,
    breaches: Vec<String>,
    functions: Vec<&'static str>,
}

impl ExprVisitor for Visit<'_> {
    type Error = std::convert::Infallible;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Self::Error> {
        match expr {
            Expr::Call(Call { func, .. }) => self.functions.push(func.name),
            Expr::Aggregate(aggregate) => self.grouping(aggregate),
            _ => {}
        }
        if let Some(selector) = selector(expr) {
            self.selector(selector);
        }
        Ok(true)
    }

    fn post_visit(&mut self, expr: &Expr) -> Result<bool, Self::Error> {
        if matches!(expr, Expr::Call(_)) {
            self.functions.pop();
        }
        Ok(true)
    }
}

impl Visit<'_> {
    fn selector(&mut self, selector: &VectorSelector) {
        let Some(name) = selector.name.as_deref() else {
            return self.breaches.push("a selector without a name".to_owned());
        };
        if Series::is_of_others(name) || self.series.recorded.contains(name) {
            return;
        }
        let Some(family) = self.series.family(name) else {
            return self.breaches.push(format!("{name} does not exist"));
        };
        let is_bucket = name.ends_with("_bucket");
        let breaches = matchers(&selector.matchers).filter_map(|matcher| mismatch(matcher, family, is_bucket));
        self.breaches.extend(breaches);
        self.kind(name);
    }

    /// A counter is read through its growth, and a gauge never is.
    fn kind(&mut self, name: &str) {
        let within = |functions: &[&str]| self.functions.iter().any(|function| functions.contains(function));
        if self.series.is_counter(name) && !within(COUNTER_IS_FINE) {
            self.breaches.push(format!("{name} is a counter: take its rate() or increase()"));
        }
        if !self.series.is_counter(name) && within(OF_COUNTERS) {
            self.breaches.push(format!("{name} is a gauge: it has no rate"));
        }
    }

    /// What an aggregation groups by must exist on something below it.
    fn grouping(&mut self, aggregate: &AggregateExpr) {
        let Some(LabelModifier::Include(by)) = &aggregate.modifier else { return };
        let below = names(&aggregate.expr.to_string());
        if below.iter().any(|name| Series::is_of_others(name) || self.series.recorded.contains(name)) {
            return;
        }
        let families = below.iter().filter_map(|name| self.series.family(name));
        let labels: BTreeSet<&str> =
            families.flat_map(|family| &family.labels).map(|label| label.name.as_str()).collect();
        let has_buckets = below.iter().any(|name| name.ends_with("_bucket"));
        let exists =
            |label: &str| labels.contains(label) || OF_THE_TARGET.contains(&label) || (label == "le" && has_buckets);
        let missing = by.labels.iter().filter(|label| !exists(label));
        self.breaches.extend(missing.map(|label| format!("nothing below has the label {label}")));
    }
}

fn matchers(matchers: &Matchers) -> impl Iterator<Item = &Matcher> {
    matchers.matchers.iter().chain(matchers.or_matchers.iter().flatten())
}

/// What is wrong with one matcher on a series of ours.
fn mismatch(matcher: &Matcher, family: &SeriesInfo, is_bucket: bool) -> Option<String> {
    let Matcher { name, value, .. } = matcher;
    if OF_THE_TARGET.contains(&name.as_str()) || name == "__name__" || (name == "le" && is_bucket) {
        return None;
    }
    let Some(label) = family.labels.iter().find(|label| label.name == *name) else {
        return Some(format!("{} has no label {name}", family.name));
    };
    if OPEN_LABELS.contains(&name.as_str()) || value.contains('$') {
        return None;
    }
    let strange: Vec<_> = parts(matcher).into_iter().filter(|part| !exists(label, &matcher.op, part)).collect();
    (!strange.is_empty()).then(|| format!("{}: {name} is never {}", family.name, strange.join(" or ")))
}

/// The values that a matcher names: of a regular expression, each of its alternatives.
fn parts(matcher: &Matcher) -> Vec<&str> {
    match matcher.op {
        MatchOp::Re(_) | MatchOp::NotRe(_) => matcher.value.split('|').collect(),
        _ => vec![&matcher.value],
    }
}

/// A part of a regular expression is anchored at both ends, as Prometheus does it.
fn exists(label: &LabelInfo, op: &MatchOp, part: &str) -> bool {
    let is_regex = matches!(op, MatchOp::Re(_) | MatchOp::NotRe(_));
    let pattern = Matcher::new_matcher(if is_regex { T_EQL_REGEX } else { T_EQL }, label.name.clone(), part.to_owned());
    part.is_empty() || pattern.is_ok_and(|pattern| label.values.iter().any(|value| pattern.is_match(value)))
}

#[test]
fn an_expression_is_read_as_prometheus_reads_it() {
    let series = Series::new(["instance:recorded:ratio".to_owned()]);
    for sound in [
        "sum by (job, instance, cause) (increase(radiosonde_health_probe_failures_total{hop=\"detokenizer\"}[2m])) > 0",
        "histogram_quantile(0.99, sum by (le, branch) (rate(radiosonde_health_probe_duration_seconds_bucket[5m])))",
        "up{job=\"radiosonde\"} == 0 unless on (job, instance) radiosonde_server_status{status=~\"draining|starting\"} == 1",
        "instance:recorded:ratio > 0.1",
        "rate(radiosonde_health_probe_total{job=~\"$job\", outcome=~\"$outcome\"}[$__rate_interval])",
    ] {
        assert_eq!(series.breaches(sound), Vec::<String>::new());
    }
    for (wrong, want) in [
        ("rate(radiosonde_health_probe_total[5m]", "does not parse"),
        ("radiosonde_no_such_thing > 0", "does not exist"),
        ("radiosonde_health_probe_duration_seconds > 0", "does not exist"),
        ("radiosonde_server_status{status=\"asleep\"}", "status is never asleep"),
        ("radiosonde_server_status{status=~\"up|asleep\"}", "status is never asleep"),
        ("radiosonde_server_status{mood=\"up\"}", "has no label mood"),
        ("radiosonde_health_probe_total > 0", "is a counter"),
        ("rate(radiosonde_engine_up[5m])", "is a gauge"),
        ("sum by (job, hop) (radiosonde_engine_up)", "has the label hop"),
        ("{job=\"radiosonde\"}", "without a name"),
    ] {
        let breaches = series.breaches(wrong).join("\n");
        assert!(breaches.contains(want), "{wrong}: {breaches:?}");
    }
}
