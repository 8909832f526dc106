//! The events of an answer that streams, from the first byte to the last.

use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::names::{HTTP_RESPONSE_BODY_SIZE, HTTP_STREAM};

/// The span of an answer whose first byte is about to leave, below `root`. It ends when it is dropped.
#[derive(Debug)]
pub struct StreamSpan {
    span: Span,
    bytes: u64,
}

impl StreamSpan {
    /// Begins now.
    #[must_use]
    pub fn begin(root: &Span) -> Self {
        // At error level, as the root: a log level is no reason for a hole in the trace.
        let span = tracing::error_span!(parent: root, "stream", otel.name = HTTP_STREAM, otel.kind = "internal");
        let _started = span.context();
        Self { span, bytes: 0 }
    }

    /// So many bytes were handed to the connection.
    pub fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

impl Drop for StreamSpan {
    fn drop(&mut self) {
        self.span.set_attribute(HTTP_RESPONSE_BODY_SIZE, i64::try_from(self.bytes).unwrap_or(i64::MAX));
    }
}
