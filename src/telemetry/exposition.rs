//! The text that a Prometheus scrape reads.

use prometheus::TextEncoder;

use super::Metrics;

/// The media type of the text exposition format, version 0.0.4.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The content type and body of a scrape.
#[must_use]
pub fn text(metrics: &Metrics) -> (&'static str, String) {
    let mut body = String::new();
    for family in metrics.gather() {
        let whole = body.len();
        // Each family on its own, so that one bad family could never hide the others.
        if let Err(error) = TextEncoder::new().encode_utf8(&[family], &mut body) {
            tracing::warn!(%error, "a series cannot be encoded");
            body.truncate(whole);
        }
    }
    (CONTENT_TYPE, body)
}
