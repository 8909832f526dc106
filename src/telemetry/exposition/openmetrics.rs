//! OpenMetrics 1.0: the text format that has units and exemplars.

use std::fmt::Write as _;

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

use crate::telemetry::metrics::{Exemplar, Exemplars};

/// Units that a name of ours can end with.
const UNITS: &[&str] = &["seconds", "bytes", "tokens"];

/// The page of `families`, with those of `exemplars` that belong to them.
#[must_use]
pub fn encode(families: &[MetricFamily], exemplars: &[&Exemplars]) -> String {
    let mut page = Page(String::new());
    for family in families {
        page.family(family, exemplars.iter().copied().find(|exemplars| exemplars.family() == family.name()));
    }
    page.0.push_str("# EOF\n");
    page.0
}

/// A label beside those of the metric.
type Extra<'a> = Option<(&'a str, &'a str)>;

struct Page(String);

impl Page {
    fn family(&mut self, family: &MetricFamily, exemplars: Option<&Exemplars>) {
        let name = family.name();
        match family.get_field_type() {
            MetricType::COUNTER => {
                let name = name.strip_suffix("_total").unwrap_or(name);
                self.head(name, "counter", family.help());
                for metric in family.get_metric() {
                    self.sample(name, "_total", metric.get_label(), None, metric.get_counter().get_value());
                    self.0.push('\n');
                }
            }
            MetricType::GAUGE => {
                let (name, kind, suffix) = match name.strip_suffix("_info") {
                    Some(name) => (name, "info", "_info"),
                    None => (name, "gauge", ""),
                };
                self.head(name, kind, family.help());
                for metric in family.get_metric() {
                    self.sample(name, suffix, metric.get_label(), None, metric.get_gauge().get_value());
                    self.0.push('\n');
                }
            }
            MetricType::HISTOGRAM => {
                self.head(name, "histogram", family.help());
                for metric in family.get_metric() {
                    let slots = exemplars.map(|exemplars| exemplars.of(metric.get_label())).unwrap_or_default();
                    self.histogram(name, metric, &slots);
                }
            }
            MetricType::SUMMARY | MetricType::UNTYPED => {} // we declare none
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(&["# TYPE ", name, " ", kind]);
        let is_unit = |unit: &&&str| name.strip_suffix(**unit).is_some_and(|rest| rest.ends_with('_'));
        if let Some(unit) = UNITS.iter().find(is_unit) {
            self.line(&["# UNIT ", name, " ", unit]);
        }
        self.0.push_str("# HELP ");
        self.0.push_str(name);
        self.0.push(' ');
        self.escaped(help);
        self.0.push('\n');
    }

    fn histogram(&mut self, name: &str, metric: &Metric, slots: &[Option<Exemplar>]) {
        let (labels, histogram) = (metric.get_label(), metric.get_histogram());
        let beyond = (f64::INFINITY, histogram.get_sample_count());
        let finite = histogram.get_bucket().iter().map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
        for (index, (edge, count)) in finite.filter(|(edge, _)| edge.is_finite()).chain([beyond]).enumerate() {
            // An edge is a float, 1.0 and not 1: the same bucket must not have two names.
            let edge = if edge.is_finite() { format!("{edge:?}") } else { "+Inf".to_owned() };
            self.sample(name, "_bucket", labels, Some(("le", &edge)), count as f64);
            if let Some(exemplar) = slots.get(index).copied().flatten() {
                self.exemplar(&exemplar);
            }
            self.0.push('\n');
        }
        self.sample(name, "_sum", labels, None, histogram.get_sample_sum());
        self.0.push('\n');
        self.sample(name, "_count", labels, None, histogram.get_sample_count() as f64);
        self.0.push('\n');
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: &[LabelPair], extra: Extra<'_>, value: f64) {
        self.0.push_str(name);
        self.0.push_str(suffix);
        let mut separator = '{';
        for (name, value) in labels.iter().map(|label| (label.name(), label.value())).chain(extra) {
            self.0.push(separator);
            self.0.push_str(name);
            self.0.push_str("=\"");
            self.escaped(value);
            self.0.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.0.push('}');
        }
        self.number(value);
    }

    fn exemplar(&mut self, exemplar: &Exemplar) {
        let Exemplar { trace_id, value, unix_seconds } = exemplar;
        // Writing to a string cannot fail, here and below.
        let _ = write!(self.0, " # {{trace_id=\"{trace_id}\"}} {value} {unix_seconds:.3}");
    }

    /// With a space before it.
    fn number(&mut self, value: f64) {
        let _ = match value {
            f64::INFINITY => self.0.write_str(" +Inf"),
            f64::NEG_INFINITY => self.0.write_str(" -Inf"),
            value => write!(self.0, " {value}"),
        };
    }

    fn escaped(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.find(['\\', '"', '\n']) {
            let (plain, special) = rest.split_at(at);
            self.0.push_str(plain);
            self.0.push('\\');
            self.0.push(if special.starts_with('\n') { 'n' } else { char::from(special.as_bytes()[0]) });
            rest = &special[1..];
        }
        self.0.push_str(rest);
    }

    fn line(&mut self, parts: &[&str]) {
        parts.iter().for_each(|part| self.0.push_str(part));
        self.0.push('\n');
    }
}

#[cfg(test)]
mod tests;
