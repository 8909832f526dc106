//! The list of all series, read from a fresh registry: the single source of their documentation.

use std::collections::BTreeSet;
use std::sync::Arc;

use prometheus::Error;
use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};
use serde::Serialize;

use super::{Metrics, ReadVitals, ServedInfo, Vitals};

/// One series as it is declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SeriesInfo {
    /// Its name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// What one of it is: `seconds`, `bytes`, `tokens`, `ratio`, or nothing where things are counted.
    pub unit: &'static str,
    /// What it means.
    pub help: String,
    /// Its labels, in order.
    pub labels: Vec<LabelInfo>,
}

/// One label of a series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabelInfo {
    /// Its name.
    pub name: String,
    /// The values that it can take, sorted.
    pub values: Vec<String>,
    /// Whether `values` are all that it can ever take; else they are an example.
    pub closed: bool,
}

/// Every series that a frontend exports, sorted by name.
///
/// # Errors
/// A name is declared twice or is not a legal one.
pub fn catalogue() -> Result<Vec<SeriesInfo>, Error> {
    let metrics = Metrics::new()?;
    metrics.watch(Arc::new(Nobody))?;
    metrics.probes.declare_all();
    Ok(metrics.gather().iter().map(describe).collect())
}

struct Nobody;

/// Ready, so that nothing is absent.
impl ReadVitals for Nobody {
    fn read(&self) -> Vitals {
        let (model, architecture) = ("model".to_owned(), "architecture".to_owned());
        Vitals {
            served: Some(ServedInfo { model, architecture, page_size: 1, num_pages: 1, kernels: "none" }),
            ..Vitals::default()
        }
    }
}

fn describe(family: &MetricFamily) -> SeriesInfo {
    SeriesInfo {
        name: family.name().to_owned(),
        kind: match family.get_field_type() {
            MetricType::COUNTER => "counter",
            MetricType::HISTOGRAM => "histogram",
            MetricType::GAUGE | MetricType::SUMMARY | MetricType::UNTYPED => "gauge",
        },
        unit: unit(family.name()),
        help: family.help().to_owned(),
        labels: labels(family),
    }
}

/// The unit is in the name, where Prometheus' conventions want it.
fn unit(name: &str) -> &'static str {
    const UNITS: &[(&str, &str)] = &[
        ("_seconds", "seconds"),
        ("_bytes", "bytes"),
        ("_tokens", "tokens"),
        ("_usage", "ratio"),
        ("_ratio", "ratio"),
    ];
    let name = name.strip_suffix("_total").unwrap_or(name);
    UNITS.iter().find(|(suffix, _)| name.ends_with(suffix)).map_or("", |(_, unit)| unit)
}

fn labels(family: &MetricFamily) -> Vec<LabelInfo> {
    let first = family.get_metric().first();
    let names = first.map_or(&[][..], Metric::get_label).iter().map(|label| label.name().to_owned());
    names
        .map(|name| {
            let all = family.get_metric().iter().flat_map(Metric::get_label);
            let values: BTreeSet<_> = all.filter(|label| label.name() == name).map(LabelPair::value).collect();
            let values = values.into_iter().map(str::to_owned).collect();
            // What an info says is not known beforehand.
            LabelInfo { values, closed: !family.name().ends_with("_info"), name }
        })
        .collect()
}
