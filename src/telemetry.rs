//! What radiosonde emits: series, spans and logs. Their names exist here and nowhere else.

pub mod metrics;
pub mod spans;
pub mod labels;
pub mod exposition;
pub mod otlp;
pub mod log;
