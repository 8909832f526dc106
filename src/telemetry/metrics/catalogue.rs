//! The list of all series, read from a fresh registry: the single source of their documentation.

use std::collections::BTreeSet;
use std::sync::Arc;

use prometheus::Error;
use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

use super::{Metrics, ReadVitals, ServedInfo, Vitals};

/// One series as it is declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesInfo {
    /// Its name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// What it means.
    pub help: String,
    /// Its labels, in order.
    pub labels: Vec<LabelInfo>,
}

/// One label of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelInfo {
    /// Its name.
    pub name: String,
    /// The values that exist from the start, sorted; those of an `_info` series are examples.
    pub values: Vec<String>,
}

/// Every series that a frontend exports, sorted by name.
///
/// # Errors
/// A name is declared twice or is not a legal one.
pub fn catalogue() -> Result<Vec<SeriesInfo>, Error> {
    let metrics = Metrics::new()?;
    metrics.watch(Arc::new(Nobody))?;
    Ok(metrics.gather().iter().map(describe).collect())
}

struct Nobody;

/// Ready, so that nothing is absent.
impl ReadVitals for Nobody {
    fn read(&self) -> Vitals {
        let (model, architecture) = ("model".to_owned(), "architecture".to_owned());
        Vitals { served: Some(ServedInfo { model, architecture, page_size: 1, num_pages: 1 }), ..Vitals::default() }
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
        help: family.help().to_owned(),
        labels: labels(family),
    }
}

fn labels(family: &MetricFamily) -> Vec<LabelInfo> {
    let first = family.get_metric().first();
    let names = first.map_or(&[][..], Metric::get_label).iter().map(|label| label.name().to_owned());
    names
        .map(|name| {
            let all = family.get_metric().iter().flat_map(Metric::get_label);
            let values: BTreeSet<_> = all.filter(|label| label.name() == name).map(LabelPair::value).collect();
            LabelInfo { values: values.into_iter().map(str::to_owned).collect(), name }
        })
        .collect()
}
