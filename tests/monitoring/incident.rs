//! An incident that never happened, as OpenMetrics text: every series of the registry on two instances, one of which
//! falls ill. The names, labels and buckets are the registry's own, so this cannot drift from what a server exports.

use std::fmt::Write as _;
use std::sync::Arc;

use prometheus::proto::{Bucket, LabelPair, Metric, MetricFamily, MetricType};
use radiosonde::telemetry::Metrics;
use radiosonde::telemetry::metrics::{ReadVitals, SeriesInfo, Vitals, catalogue};

use crate::script::{self, Moment};

/// Between two scrapes.
pub const SCRAPE: u64 = 15;
/// When it begins, in Unix seconds: the start of a block of Prometheus, so that all of it is in one.
pub const BEGIN: u64 = 1_790_000_000 / 7_200 * 7_200;
/// When it ends.
pub const END: u64 = BEGIN + 40 * 60;

/// The text.
pub fn openmetrics() -> String {
    let metrics = Metrics::new().expect("the series are sound");
    metrics.watch(Arc::new(Nobody)).expect("nobody watches so far");
    let families = metrics.gather();
    let mut text = String::new();
    for family in &families {
        write_family(&mut text, family);
    }
    let has = |series: &SeriesInfo| families.iter().any(|family| family.name() == series.name);
    for series in catalogue().expect("the series are sound").iter().filter(|series| !has(series)) {
        write_info(&mut text, series);
    }
    for (name, kind, labels, value) in script::OF_OTHERS {
        write_other(&mut text, name, kind, labels, *value);
    }
    text.push_str("# EOF\n");
    text
}

struct Nobody;

impl ReadVitals for Nobody {
    fn read(&self) -> Vitals {
        Vitals::default()
    }
}

/// Every instance at every scrape.
fn moments() -> impl Iterator<Item = Moment> {
    let times = (BEGIN..=END).step_by(usize::try_from(SCRAPE).expect("small"));
    script::INSTANCES.iter().flat_map(move |&instance| times.clone().map(move |time| Moment { instance, time }))
}

fn write_family(text: &mut String, family: &MetricFamily) {
    let name = family.name();
    let kind = match family.get_field_type() {
        MetricType::COUNTER => "counter",
        MetricType::HISTOGRAM => "histogram",
        _ => "gauge",
    };
    writeln!(text, "# TYPE {} {kind}", name.strip_suffix("_total").unwrap_or(name)).expect("a string takes all");
    for metric in family.get_metric() {
        let labels = labels(metric.get_label());
        match kind {
            "counter" => write_counter(text, name, &labels),
            "histogram" => write_histogram(text, name, &labels, metric),
            _ => write_gauge(text, name, &labels),
        }
    }
}

fn labels(pairs: &[LabelPair]) -> String {
    pairs.iter().fold(String::new(), |text, pair| format!("{text},{}=\"{}\"", pair.name(), pair.value()))
}

fn write_gauge(text: &mut String, name: &str, labels: &str) {
    for moment in moments().filter(Moment::is_scraped) {
        write_sample(text, name, &moment, labels, script::gauge(name, labels, &moment));
    }
}

fn write_counter(text: &mut String, name: &str, labels: &str) {
    let mut total = 0.0;
    for moment in moments() {
        total = if moment.is_fresh() { 0.0 } else { total } + script::rate(name, labels, &moment) * SCRAPE as f64;
        if moment.is_scraped() {
            write_sample(text, name, &moment, labels, total);
        }
    }
}

fn write_histogram(text: &mut String, name: &str, labels: &str, metric: &Metric) {
    let mut edges: Vec<_> = metric.get_histogram().get_bucket().iter().map(Bucket::upper_bound).collect();
    edges.retain(|edge| edge.is_finite());
    let mut counts = vec![0.0; edges.len() + 1];
    let mut sum = 0.0;
    let bucket = format!("{name}_bucket");
    for moment in moments() {
        if moment.is_fresh() {
            counts.fill(0.0);
            sum = 0.0;
        }
        let seen = script::rate(name, labels, &moment) * SCRAPE as f64;
        let typical = script::typical(name, labels, &moment);
        for (count, edge) in counts.iter_mut().zip(edges.iter().chain([&f64::INFINITY])) {
            *count += seen * part_below(*edge, typical);
        }
        sum += seen * typical;
        if !moment.is_scraped() {
            continue;
        }
        let ends = edges.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (count, edge) in counts.iter().zip(ends) {
            write_sample(text, &bucket, &moment, &format!("{labels},le=\"{edge}\""), *count);
        }
        write_sample(text, &format!("{name}_sum"), &moment, labels, sum);
        write_sample(text, &format!("{name}_count"), &moment, labels, counts[edges.len()]);
    }
}

/// The part of the observations at or below `edge`, if most lie near `typical` (a log-logistic distribution).
fn part_below(edge: f64, typical: f64) -> f64 {
    1.0 / (1.0 + (typical / edge).powi(6))
}

/// A series that exists only once an engine is ready.
fn write_info(text: &mut String, series: &SeriesInfo) {
    writeln!(text, "# TYPE {} gauge", series.name).expect("a string takes all");
    let labels = series.labels.iter().fold(String::new(), |text, label| {
        format!("{text},{}=\"{}\"", label.name, script::known_by_the_engine(&label.name))
    });
    for moment in moments().filter(|moment| moment.is_scraped() && !moment.is_starting()) {
        write_sample(text, &series.name, &moment, &labels, 1.0);
    }
}

/// What others add to our series: Prometheus about its scrapes and itself.
fn write_other(text: &mut String, name: &str, kind: &str, labels: &str, value: fn(&Moment) -> Option<f64>) {
    writeln!(text, "# TYPE {} {kind}", name.strip_suffix("_total").unwrap_or(name)).expect("a string takes all");
    for moment in moments() {
        let Some(value) = value(&moment) else { continue };
        if labels.is_empty() || labels.starts_with(',') {
            write_sample(text, name, &moment, labels, value);
        } else if moment.instance == script::INSTANCES[0] {
            writeln!(text, "{name}{{{labels}}} {value} {}", moment.time).expect("a string takes all");
        }
    }
}

fn write_sample(text: &mut String, name: &str, moment: &Moment, labels: &str, value: f64) {
    let Moment { instance, time } = moment;
    writeln!(text, "{name}{{job=\"radiosonde\",instance=\"{instance}\"{labels}}} {value} {time}")
        .expect("a string takes all");
}
