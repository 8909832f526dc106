//! Where traces and logs go: the command line first, then the standard variables of OpenTelemetry, else nowhere.

use super::{OtlpConfig, OtlpError, OtlpProtocol};

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// Spans: wherever any endpoint is known.
    Traces,
    /// Log records: only where an endpoint is meant for them, or `OTEL_LOGS_EXPORTER` is `otlp`.
    Logs,
}

/// The names of a signal in the specification of OTLP exporters.
struct Names {
    /// The path that OTLP/HTTP appends to a base endpoint.
    http_path: &'static str,
    endpoint: &'static str,
    protocol: &'static str,
    exporter: &'static str,
}

impl Signal {
    const fn names(self) -> Names {
        match self {
            Self::Traces => Names {
                http_path: "/v1/traces",
                endpoint: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                protocol: "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
                exporter: "OTEL_TRACES_EXPORTER",
            },
            Self::Logs => Names {
                http_path: "/v1/logs",
                endpoint: "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
                protocol: "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL",
                exporter: "OTEL_LOGS_EXPORTER",
            },
        }
    }
}

/// What the specification takes for the collector if nothing is said.
const DEFAULT_ENDPOINT: &str = "http://localhost:4317";
/// The port on which collectors speak HTTP.
const HTTP_PORT: u16 = 4318;

/// A collector, fully resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Destination {
    /// The URL to export to, path included.
    pub endpoint: String,
    /// How to speak to it.
    pub protocol: OtlpProtocol,
}

/// Resolves the destination. `env` looks up a variable; an empty one counts as unset, as the specification wants.
pub(super) fn resolve(
    signal: Signal,
    config: &OtlpConfig,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Destination>, OtlpError> {
    let env = |name: &str| env(name).filter(|value| !value.is_empty());
    let names = signal.names();
    let switch = switch(&names, &env)?;
    if switch == Some(Switch::Off) {
        return Ok(None);
    }
    let is_general = signal == Signal::Traces || switch == Some(Switch::On);
    let (endpoint, is_base) = if let Some(flag) = &config.endpoint {
        (flag.clone(), without_path(flag))
    } else if let Some(exact) = env(names.endpoint) {
        (exact, false)
    } else if let Some(base) = env("OTEL_EXPORTER_OTLP_ENDPOINT").filter(|_| is_general) {
        (base, true)
    } else if (signal, switch) == (Signal::Logs, Some(Switch::On)) {
        (DEFAULT_ENDPOINT.to_owned(), true)
    } else {
        return Ok(None);
    };
    if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
        return Err(OtlpError::Endpoint(endpoint));
    }
    let protocol = match config.protocol {
        Some(protocol) => protocol,
        None => protocol_of(&endpoint, names.protocol, &env)?,
    };
    let endpoint = match protocol {
        OtlpProtocol::HttpProtobuf if is_base => format!("{}{}", endpoint.trim_end_matches('/'), names.http_path),
        OtlpProtocol::HttpProtobuf | OtlpProtocol::Grpc => endpoint,
    };
    Ok(Some(Destination { endpoint, protocol }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Switch {
    On,
    Off,
}

/// `OTEL_SDK_DISABLED` and `OTEL_(TRACES|LOGS)_EXPORTER`, which the SDK leaves to the application.
fn switch(names: &Names, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Switch>, OtlpError> {
    if env("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(Some(Switch::Off));
    }
    match env(names.exporter).as_deref() {
        None => Ok(None),
        Some("otlp") => Ok(Some(Switch::On)),
        Some("none") => Ok(Some(Switch::Off)),
        Some(other) => {
            Err(OtlpError::Variable { variable: names.exporter, value: other.to_owned(), legal: "otlp or none" })
        }
    }
}

fn protocol_of(
    endpoint: &str,
    of_signal: &'static str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<OtlpProtocol, OtlpError> {
    for variable in [of_signal, "OTEL_EXPORTER_OTLP_PROTOCOL"] {
        match env(variable).as_deref() {
            None => {}
            Some("grpc") => return Ok(OtlpProtocol::Grpc),
            Some("http/protobuf") => return Ok(OtlpProtocol::HttpProtobuf),
            Some(other) => {
                let legal = "grpc or http/protobuf";
                return Err(OtlpError::Variable { variable, value: other.to_owned(), legal });
            }
        }
    }
    let port = authority(endpoint).rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    Ok(if port == Some(HTTP_PORT) { OtlpProtocol::HttpProtobuf } else { OtlpProtocol::Grpc })
}

/// `host:port` of a URL.
fn authority(endpoint: &str) -> &str {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

fn without_path(endpoint: &str) -> bool {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    rest.split_once('/').is_none_or(|(_, path)| path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flag: Option<&str>, protocol: Option<OtlpProtocol>, env: &[(&str, &str)], want: &str) {
        check_signal(Signal::Traces, flag, protocol, env, want);
    }

    fn check_signal(
        signal: Signal,
        flag: Option<&str>,
        protocol: Option<OtlpProtocol>,
        env: &[(&str, &str)],
        want: &str,
    ) {
        let config = OtlpConfig { endpoint: flag.map(str::to_owned), protocol };
        let look_up = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let got = match resolve(signal, &config, &look_up) {
            Ok(None) => "nowhere".to_owned(),
            Ok(Some(to)) => format!("{:?} {}", to.protocol, to.endpoint),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, want, "flag {flag:?}, protocol {protocol:?}, environment {env:?}");
    }

    const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

    #[test]
    fn endpoints() {
        check(None, None, &[], "nowhere");
        check(None, None, &[(ALL, "")], "nowhere");
        check(Some("http://c:4317"), None, &[], "Grpc http://c:4317");
        check(Some("http://c:4318"), None, &[], "HttpProtobuf http://c:4318/v1/traces");
        check(Some("http://c:4318/"), None, &[], "HttpProtobuf http://c:4318/v1/traces");
        check(Some("http://c:4318/own/path"), None, &[], "HttpProtobuf http://c:4318/own/path");
        check(Some("http://c:4318"), None, &[(ALL, "http://x:1")], "HttpProtobuf http://c:4318/v1/traces");
        check(None, None, &[(ALL, "http://c:4318/base/")], "HttpProtobuf http://c:4318/base/v1/traces");
        check(None, None, &[(TRACES, "http://c:4318"), (ALL, "http://x:1")], "HttpProtobuf http://c:4318");
        check(None, None, &[(ALL, "https://c")], "Grpc https://c");
        check(Some("c:4317"), None, &[], "'c:4317' is no OTLP endpoint: write http://host:port or https://host:port");
    }

    #[test]
    fn protocols() {
        const ONE: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
        const EVERY: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
        let c = Some("http://c:4318");
        check(c, Some(OtlpProtocol::Grpc), &[(ONE, "http/protobuf")], "Grpc http://c:4318");
        check(c, None, &[(ONE, "grpc"), (EVERY, "http/protobuf")], "Grpc http://c:4318");
        check(Some("http://c:9"), None, &[(EVERY, "http/protobuf")], "HttpProtobuf http://c:9/v1/traces");
        check(
            c,
            None,
            &[(EVERY, "http/json")],
            &format!("{EVERY}='http/json' is not supported: use grpc or http/protobuf"),
        );
    }

    #[test]
    fn switches() {
        let c = Some("http://c:4317");
        check(c, None, &[("OTEL_SDK_DISABLED", "TRUE")], "nowhere");
        check(c, None, &[("OTEL_SDK_DISABLED", "false")], "Grpc http://c:4317");
        check(c, None, &[("OTEL_TRACES_EXPORTER", "none")], "nowhere");
        check(c, None, &[("OTEL_TRACES_EXPORTER", "otlp")], "Grpc http://c:4317");
        let refused = "OTEL_TRACES_EXPORTER='zipkin' is not supported: use otlp or none";
        check(c, None, &[("OTEL_TRACES_EXPORTER", "zipkin")], refused);
    }

    #[test]
    fn logs_are_sent_only_where_they_are_meant_to_be() {
        const LOGS: &str = "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT";
        const EXPORTER: &str = "OTEL_LOGS_EXPORTER";
        let check = |flag, env: &[(&str, &str)], want| check_signal(Signal::Logs, flag, None, env, want);
        check(None, &[], "nowhere");
        check(None, &[(ALL, "http://c:4317"), (TRACES, "http://t:4317")], "nowhere");
        check(None, &[(ALL, "http://c:4318"), (EXPORTER, "otlp")], "HttpProtobuf http://c:4318/v1/logs");
        check(None, &[(EXPORTER, "otlp")], "Grpc http://localhost:4317");
        check(None, &[(LOGS, "http://l:4317"), (ALL, "http://c:4317")], "Grpc http://l:4317");
        check(Some("http://f:4318"), &[(LOGS, "http://l:4317")], "HttpProtobuf http://f:4318/v1/logs");
        check(Some("http://f:4317"), &[(EXPORTER, "none")], "nowhere");
        check(Some("http://f:4317"), &[("OTEL_TRACES_EXPORTER", "none")], "Grpc http://f:4317");
        let refused = "OTEL_LOGS_EXPORTER='console' is not supported: use otlp or none";
        check(Some("http://f:4317"), &[(EXPORTER, "console")], refused);
    }
}
