//! The page that a scrape reads, in the format that it asks for.

pub mod negotiate;
pub mod text;
pub mod openmetrics;
pub mod sglang;
pub mod loads;

use prometheus::proto::MetricFamily;

pub use negotiate::Format;

use super::Metrics;
use super::metrics::MetricsAlias;

/// The content type and body of a scrape that asked for `format`.
#[must_use]
pub fn page(metrics: &Metrics, format: Format) -> (&'static str, String) {
    let families = families(metrics);
    let body = match format {
        Format::Text => text::encode(&families),
        Format::OpenMetrics => openmetrics::encode(&families, &metrics.exemplars()),
    };
    (format.content_type(), body)
}

/// The page for those who ask for nothing in particular.
#[must_use]
pub fn text(metrics: &Metrics) -> (&'static str, String) {
    page(metrics, Format::Text)
}

/// Every family, and those that have another name too.
fn families(metrics: &Metrics) -> Vec<MetricFamily> {
    let mut families = metrics.gather();
    match (metrics.alias(), metrics.model_name()) {
        (Some(MetricsAlias::Sglang), Some(model)) => {
            let aliases = sglang::families(&families, model, metrics.requests.generation_throughput());
            families.extend(aliases);
        }
        (None, _) | (_, None) => {}
    }
    families
}
