//! What is sent, and how the specification calls what is said about it.

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// Spans: wherever any endpoint is known.
    Traces,
    /// Log records: only where an endpoint is meant for them, or `OTEL_LOGS_EXPORTER` is `otlp`.
    Logs,
}

/// A variable of one signal, then the one of all signals: the first that is set wins.
type Pair = [&'static str; 2];

/// The names of a signal, from the specifications of OTLP exporters and of the SDK.
pub(super) struct Names {
    /// The path that OTLP/HTTP appends to a base endpoint.
    pub http_path: &'static str,
    /// Whether it is sent, and how.
    pub exporter: &'static str,
    /// Where to.
    pub endpoint: Pair,
    /// How to speak.
    pub protocol: Pair,
    /// How long an export may take.
    pub timeout: Pair,
    /// How it is compressed.
    pub compression: Pair,
    /// Which scheme an endpoint without one has.
    pub insecure: Pair,
    /// Who may vouch for the collector.
    pub certificate: Pair,
    /// Who we are.
    pub client_certificate: Pair,
    /// Its key.
    pub client_key: Pair,
    /// How long an export may take, as the processor calls it.
    pub processor_timeout: &'static str,
    /// How many may wait, and the words for what is legal.
    pub queue: (&'static str, &'static str),
    /// How many go at once, and the words for what is legal.
    pub batch: (&'static str, &'static str),
    /// How long one waits for company.
    pub delay: &'static str,
}

impl Signal {
    /// Its names.
    pub const fn names(self) -> &'static Names {
        match self {
            Self::Traces => &TRACES,
            Self::Logs => &LOGS,
        }
    }
}

const TRACES: Names = Names {
    http_path: "/v1/traces",
    exporter: "OTEL_TRACES_EXPORTER",
    endpoint: ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"],
    protocol: ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"],
    timeout: ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"],
    compression: ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"],
    insecure: ["OTEL_EXPORTER_OTLP_TRACES_INSECURE", "OTEL_EXPORTER_OTLP_INSECURE"],
    certificate: ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"],
    client_certificate: ["OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"],
    client_key: ["OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY"],
    processor_timeout: "OTEL_BSP_EXPORT_TIMEOUT",
    queue: ("OTEL_BSP_MAX_QUEUE_SIZE", "a number of spans from 1 to 65536"),
    batch: ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "a number of spans from 1 to OTEL_BSP_MAX_QUEUE_SIZE"),
    delay: "OTEL_BSP_SCHEDULE_DELAY",
};

const LOGS: Names = Names {
    http_path: "/v1/logs",
    exporter: "OTEL_LOGS_EXPORTER",
    endpoint: ["OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"],
    protocol: ["OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"],
    timeout: ["OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"],
    compression: ["OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"],
    insecure: ["OTEL_EXPORTER_OTLP_LOGS_INSECURE", "OTEL_EXPORTER_OTLP_INSECURE"],
    certificate: ["OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"],
    client_certificate: ["OTEL_EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"],
    client_key: ["OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY"],
    processor_timeout: "OTEL_BLRP_EXPORT_TIMEOUT",
    queue: ("OTEL_BLRP_MAX_QUEUE_SIZE", "a number of records from 1 to 65536"),
    batch: ("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "a number of records from 1 to OTEL_BLRP_MAX_QUEUE_SIZE"),
    delay: "OTEL_BLRP_SCHEDULE_DELAY",
};
