//! Prometheus' text format, version 0.0.4: what every scraper understands.

use prometheus::TextEncoder;
use prometheus::proto::MetricFamily;

/// The page of `families`.
#[must_use]
pub fn encode(families: &[MetricFamily]) -> String {
    let mut page = String::new();
    for family in families {
        let whole = page.len();
        // Each family on its own, so that one bad family could never hide the others.
        if let Err(error) = TextEncoder::new().encode_utf8(std::slice::from_ref(family), &mut page) {
            tracing::warn!(%error, "a series cannot be encoded");
            page.truncate(whole);
        }
    }
    page
}
