//! The standard environment variables of OpenTelemetry: which are read, and how.

use std::ops::RangeInclusive;

use serde::Serialize;

use super::OtlpError;

/// One variable, or a group with one meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VariableInfo {
    /// Its name; `(TRACES_)` may be left out or not, and the variable with it wins.
    pub name: &'static str,
    /// What it does here; if it does nothing, why.
    pub meaning: &'static str,
    /// Whether it does anything.
    pub is_honoured: bool,
}

const fn honoured(name: &'static str, meaning: &'static str) -> VariableInfo {
    VariableInfo { name, meaning, is_honoured: true }
}

const fn ignored(name: &'static str, meaning: &'static str) -> VariableInfo {
    VariableInfo { name, meaning, is_honoured: false }
}

/// What the specification names for traces and logs. A value that cannot be used ends the start with an error that says which
/// can; an empty one counts as unset.
pub const VARIABLES: &[VariableInfo] = &[
    honoured(
        "OTEL_EXPORTER_OTLP_(TRACES_)ENDPOINT",
        "Where spans go, if `--otlp-traces-endpoint` does not say it. Over HTTP, `/v1/traces` is added to the general \
         one.",
    ),
    honoured(
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
        "Where log records go, if `--otlp-logs-endpoint` does not say it. The general one is for them only with \
         `OTEL_LOGS_EXPORTER=otlp`; over HTTP, `/v1/logs` is added to it.",
    ),
    honoured(
        "OTEL_EXPORTER_OTLP_(TRACES_)PROTOCOL, OTEL_EXPORTER_OTLP_LOGS_PROTOCOL",
        "`grpc` or `http/protobuf`, if `--otlp-traces-protocol` or `--otlp-logs-protocol` does not say it. Neither said: \
         HTTP for port 4318, else gRPC.",
    ),
    honoured(
        "OTEL_EXPORTER_OTLP_(TRACES_)HEADERS, OTEL_EXPORTER_OTLP_LOGS_HEADERS",
        "`key=value` pairs, separated by commas, sent with each export: the place for tokens. A pair that cannot be read is \
         left out.",
    ),
    honoured(
        "OTEL_EXPORTER_OTLP_(TRACES_)TIMEOUT, OTEL_EXPORTER_OTLP_LOGS_TIMEOUT",
        "Milliseconds, 1 to 600000, that an export may take, retries included; 10000 by default.",
    ),
    honoured(
        "OTEL_EXPORTER_OTLP_(TRACES_)COMPRESSION, OTEL_EXPORTER_OTLP_LOGS_COMPRESSION",
        "`gzip` or `none`, the default.",
    ),
    honoured(
        "OTEL_EXPORTER_OTLP_(TRACES_)CERTIFICATE, OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE",
        "A PEM file with the authorities that an `https` collector is checked against, in the place of the system's.",
    ),
    honoured(
        "OTEL_EXPORTER_OTLP_(TRACES_)CLIENT_CERTIFICATE, OTEL_EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE",
        "A PEM file with the certificate, and what it hangs on, that the server shows to an `https` collector. With a \
         key.",
    ),
    honoured(
        "OTEL_EXPORTER_OTLP_(TRACES_)CLIENT_KEY, OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY",
        "A PEM file with its private key.",
    ),
    honoured(
        "OTEL_EXPORTER_OTLP_(TRACES_)INSECURE, OTEL_EXPORTER_OTLP_LOGS_INSECURE",
        "For a gRPC endpoint without a scheme: `true` means `http`, `false` `https`. Unset, such an endpoint is an \
         error.",
    ),
    honoured("OTEL_SDK_DISABLED", "`true`: nothing is exported."),
    honoured("OTEL_TRACES_EXPORTER", "`otlp`, the default, or `none`."),
    honoured(
        "OTEL_LOGS_EXPORTER",
        "`otlp` or `none`. Not said: log records go only to an endpoint that is meant for them. `otlp` without any \
         endpoint: to `http://localhost:4317`.",
    ),
    honoured(
        "OTEL_TRACES_SAMPLER",
        "If `--trace-ratio` does not say it: `parentbased_always_on` (the default), `parentbased_always_off`, \
         `parentbased_traceidratio`, or the three without `parentbased_`, which do not ask what the caller decided. \
         Never about probes; failed and slow requests are kept all the same.",
    ),
    honoured("OTEL_TRACES_SAMPLER_ARG", "The ratio of the two that have one, 0 to 1; 1 by default."),
    honoured(
        "OTEL_PROPAGATORS",
        "`tracecontext` among others, the default, continues the caller's trace; `baggage` alone or `none` do not. \
         Others are not spoken.",
    ),
    honoured("OTEL_BSP_MAX_QUEUE_SIZE", "Spans that may wait for export, 1 to 65536; 4096 by default."),
    honoured("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "Spans of one export, at most those of the queue; 512 by default."),
    honoured(
        "OTEL_BSP_SCHEDULE_DELAY",
        "Milliseconds, 1 to 600000, that a span waits for company; 250 by default, because somebody waits for the \
         trace.",
    ),
    honoured("OTEL_BLRP_MAX_QUEUE_SIZE", "Log records that may wait for export, 1 to 65536; 2048 by default."),
    honoured("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "Records of one export, at most those of the queue; 512 by default."),
    honoured("OTEL_BLRP_SCHEDULE_DELAY", "Milliseconds, 1 to 600000, that a record waits for company; 500 by default."),
    honoured(
        "OTEL_BSP_EXPORT_TIMEOUT, OTEL_BLRP_EXPORT_TIMEOUT",
        "As `OTEL_EXPORTER_OTLP_TIMEOUT`, of spans and of records; the shorter one holds.",
    ),
    honoured(
        "OTEL_(SPAN_)ATTRIBUTE_VALUE_LENGTH_LIMIT",
        "Bytes of a text in a span; at most, and by default, 512. The variable with `SPAN_` wins.",
    ),
    honoured(
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, OTEL_SPAN_EVENT_COUNT_LIMIT, OTEL_SPAN_LINK_COUNT_LIMIT",
        "Attributes, events and links of one span; 128 by default, which none of ours reaches but by its events.",
    ),
    honoured("OTEL_SERVICE_NAME", "The frontend's `service.name`; the engine's is the same with `-engine`."),
    honoured("OTEL_RESOURCE_ATTRIBUTES", "More about the process, on every span and record."),
    ignored("OTEL_LOG_LEVEL", "`--log-level` says it."),
    ignored("OTEL_METRICS_EXPORTER, OTEL_EXPORTER_OTLP_METRICS_*", "Metrics are scraped from `/metrics`."),
    ignored("OTEL_EXPORTER_ZIPKIN_*, OTEL_EXPORTER_JAEGER_*", "OTLP only; both take it."),
    ignored("OTEL_CONFIG_FILE", "There is no configuration file."),
    ignored(
        "OTEL_ATTRIBUTE_COUNT_LIMIT, OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT, OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
        "The library does not read them; no span of ours has so many.",
    ),
    ignored(
        "OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT, OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT",
        "The library does not read them.",
    ),
];

/// Milliseconds that may be waited for anything.
pub(super) const MILLISECONDS: (RangeInclusive<usize>, &str) = (1..=600_000, "milliseconds from 1 to 600000");

/// A variable that is set, and its value.
pub(super) type Setting = (&'static str, String);

/// Where variables are looked up. An empty value counts as unset, as the specification wants.
pub(super) struct Env<'a>(pub &'a dyn Fn(&str) -> Option<String>);

impl Env<'_> {
    /// The first of `names` that is set.
    pub fn first<const N: usize>(&self, names: [&'static str; N]) -> Option<Setting> {
        names.into_iter().find_map(|name| Some((name, (self.0)(name).filter(|value| !value.is_empty())?)))
    }

    /// [`Self::first`] as a whole number within a range, which comes with its words.
    pub fn number<const N: usize>(
        &self,
        names: [&'static str; N],
        (range, legal): &(RangeInclusive<usize>, &'static str),
    ) -> Result<Option<usize>, OtlpError> {
        let Some((variable, value)) = self.first(names) else { return Ok(None) };
        match value.trim().parse() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(OtlpError::Variable { variable, value, legal }),
        }
    }

    /// [`Self::first`] as one of the words of `legal`, in any case of letters.
    pub fn choice<const N: usize, T: Copy>(
        &self,
        names: [&'static str; N],
        choices: &[(&str, T)],
        legal: &'static str,
    ) -> Result<Option<T>, OtlpError> {
        let Some((variable, value)) = self.first(names) else { return Ok(None) };
        let chosen = choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(value.trim()));
        match chosen {
            Some((_, choice)) => Ok(Some(*choice)),
            None => Err(OtlpError::Variable { variable, value, legal }),
        }
    }
}
