//! What the settings make of flags and variables.

use super::*;

type Variables<'a> = &'a [(&'a str, &'a str)];

/// Asks for one setting in an environment of `variables`.
fn with<T>(variables: Variables<'_>, ask: impl FnOnce(&Env<'_>) -> T) -> T {
    let look_up = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    ask(&Env(&look_up))
}

fn check(flag: Option<&str>, protocol: Option<OtlpProtocol>, variables: Variables<'_>, want: &str) {
    check_signal(Signal::Traces, flag, protocol, variables, want);
}

fn check_signal(
    signal: Signal,
    flag: Option<&str>,
    protocol: Option<OtlpProtocol>,
    variables: Variables<'_>,
    want: &str,
) {
    let config = OtlpConfig { endpoint: flag.map(str::to_owned), protocol };
    let got = match with(variables, |env| destination(signal, &config, env)) {
        Ok(None) => "nowhere".to_owned(),
        Ok(Some(to)) => format!("{:?} {}", to.protocol, to.endpoint),
        Err(error) => error.to_string(),
    };
    assert_eq!(got, want, "flag {flag:?}, protocol {protocol:?}, environment {variables:?}");
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
    let check = |flag, variables: Variables<'_>, want| check_signal(Signal::Logs, flag, None, variables, want);
    check(None, &[], "nowhere");
    check(None, &[(ALL, "http://c:4317"), (TRACES, "http://t:4317")], "nowhere");
    check(None, &[(ALL, "http://c:4318"), (EXPORTER, "otlp")], "HttpProtobuf http://c:4318/v1/logs");
    check(None, &[(EXPORTER, "otlp")], "Grpc http://localhost:4317");
    check(None, &[(LOGS, "http://l:4317"), (ALL, "http://c:4317")], "Grpc http://l:4317");
    check(None, &[(LOGS, "http://l:4318/own/path")], "HttpProtobuf http://l:4318/own/path");
    check(Some("http://f:4318"), &[(LOGS, "http://l:4317")], "HttpProtobuf http://f:4318/v1/logs");
    check(Some("http://f:4317"), &[(EXPORTER, "none")], "nowhere");
    check(Some("http://f:4317"), &[("OTEL_SDK_DISABLED", "true")], "nowhere");
    check(Some("http://f:4317"), &[("OTEL_TRACES_EXPORTER", "none")], "Grpc http://f:4317");
    let refused = "OTEL_LOGS_EXPORTER='console' is not supported: use otlp or none";
    check(Some("http://f:4317"), &[(EXPORTER, "console")], refused);
}

/// What is said of one signal is not said of the other.
#[test]
fn signals_have_variables_of_their_own() {
    const KEY: &str = "OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY";
    let logs = |variables: Variables<'_>| details(Signal::Logs, variables);
    assert_eq!(logs(&[("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "700"), ("OTEL_BSP_EXPORT_TIMEOUT", "400")]), "10s None");
    assert_eq!(
        logs(&[("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "700"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "500")]),
        "700ms None"
    );
    assert_eq!(logs(&[("OTEL_BLRP_EXPORT_TIMEOUT", "400")]), "400ms None");
    assert_eq!(logs(&[("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "gzip")]), "10s Gzip");
    let http = [("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"), ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/protobuf")];
    check_signal(Signal::Logs, Some("http://c:9"), None, &http, "HttpProtobuf http://c:9/v1/logs");
    let insecure = [("OTEL_EXPORTER_OTLP_LOGS_INSECURE", "true")];
    check_signal(Signal::Logs, Some("c:4317"), None, &insecure, "Grpc http://c:4317");
    let alone =
        format!("{KEY} is set and OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is not: a client certificate needs both");
    check_signal(Signal::Logs, Some("https://c:4317"), None, &[(KEY, "/nowhere")], &alone);
    check(Some("https://c:4317"), None, &[(KEY, "/nowhere")], "Grpc https://c:4317");
}

#[test]
fn a_scheme_that_is_not_said() {
    const INSECURE: &str = "OTEL_EXPORTER_OTLP_INSECURE";
    check(None, None, &[(ALL, "c:4317"), (INSECURE, "true")], "Grpc http://c:4317");
    check(None, None, &[(ALL, "c:4317"), (INSECURE, "False")], "Grpc https://c:4317");
    check(None, None, &[(ALL, "https://c:4317"), (INSECURE, "true")], "Grpc https://c:4317");
    let refused = |endpoint| format!("'{endpoint}' is no OTLP endpoint: write http://host:port or https://host:port");
    check(None, None, &[(ALL, "c:4318"), (INSECURE, "true")], &refused("c:4318"));
    check(None, None, &[(ALL, "ftp://c"), (INSECURE, "true")], &refused("ftp://c"));
    let legal = "OTEL_EXPORTER_OTLP_INSECURE='1' is not supported: use true or false";
    check(None, None, &[(ALL, "c:4317"), (INSECURE, "1")], legal);
}

/// The whole of what else a destination has, or the error.
fn details(signal: Signal, variables: Variables<'_>) -> String {
    let config = OtlpConfig { endpoint: Some("http://c:4317".to_owned()), protocol: None };
    match with(variables, |env| destination(signal, &config, env)) {
        Ok(to) => to.map(|to| format!("{:?} {:?}", to.timeout, to.compression)).unwrap_or_default(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn timeouts_and_compression() {
    let details = |variables: Variables<'_>| details(Signal::Traces, variables);
    assert_eq!(details(&[]), "10s None");
    assert_eq!(details(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "500")]), "500ms None");
    let both = [("OTEL_EXPORTER_OTLP_TIMEOUT", "500"), ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "700")];
    assert_eq!(details(&both), "700ms None", "the narrower name wins");
    assert_eq!(details(&[("OTEL_BSP_EXPORT_TIMEOUT", "30000")]), "10s None", "the shorter one holds");
    assert_eq!(details(&[("OTEL_BSP_EXPORT_TIMEOUT", "400")]), "400ms None");
    assert_eq!(details(&[("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")]), "10s Gzip");
    let off = [("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"), ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none")];
    assert_eq!(details(&off), "10s None");
    for (variable, value, legal) in [
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "gzip or none"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "milliseconds from 1 to 600000"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "milliseconds from 1 to 600000"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "600001", "milliseconds from 1 to 600000"),
    ] {
        assert_eq!(details(&[(variable, value)]), format!("{variable}='{value}' is not supported: use {legal}"));
    }
}

fn queue_of(signal: Signal, variables: Variables<'_>) -> String {
    match with(variables, |env| queue(signal, env)) {
        Ok(Queue { capacity, batch, delay }) => format!("{capacity} {batch} {delay:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn queues() {
    const SIZE: &str = "OTEL_BSP_MAX_QUEUE_SIZE";
    const EXPORT: &str = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE";
    assert_eq!(queue_of(Signal::Traces, &[]), "4096 512 250ms");
    assert_eq!(queue_of(Signal::Traces, &[(SIZE, "100")]), "100 100 250ms", "a batch is no larger than the queue");
    assert_eq!(
        queue_of(Signal::Traces, &[(SIZE, "100"), (EXPORT, "7"), ("OTEL_BSP_SCHEDULE_DELAY", "5000")]),
        "100 7 5s"
    );
    let sizes = "a number of spans from 1 to 65536";
    assert_eq!(queue_of(Signal::Traces, &[(SIZE, "0")]), format!("{SIZE}='0' is not supported: use {sizes}"));
    assert_eq!(queue_of(Signal::Traces, &[(SIZE, "65537")]), format!("{SIZE}='65537' is not supported: use {sizes}"));
    assert_eq!(queue_of(Signal::Logs, &[(SIZE, "0")]), "2048 512 500ms", "what is said of spans");
    const RECORDS: &str = "OTEL_BLRP_MAX_QUEUE_SIZE";
    let own = [(RECORDS, "100"), ("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "7"), ("OTEL_BLRP_SCHEDULE_DELAY", "5000")];
    assert_eq!(queue_of(Signal::Logs, &own), "100 7 5s");
    let wrong = format!("{RECORDS}='0' is not supported: use a number of records from 1 to 65536");
    assert_eq!(queue_of(Signal::Logs, &[(RECORDS, "0")]), wrong);
    let batches = format!("a number of spans from 1 to {SIZE}");
    assert_eq!(
        queue_of(Signal::Traces, &[(SIZE, "10"), (EXPORT, "11")]),
        format!("{EXPORT}='11' is not supported: use {batches}")
    );
}

#[test]
fn texts_and_callers() {
    const SPAN: &str = "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT";
    const ANY: &str = "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT";
    for (variables, want) in
        [(&[][..], MAX_TEXT), (&[(SPAN, "10"), (ANY, "20")], 10), (&[(ANY, "20")], 20), (&[(SPAN, "100000")], MAX_TEXT)]
    {
        assert_eq!(with(variables, longest_text).unwrap(), want, "{variables:?}");
    }
    for (value, want) in [
        ("", "Ok(true)"),
        ("tracecontext,baggage,b3", "Ok(true)"),
        ("baggage", "Ok(false)"),
        ("none", "Ok(false)"),
        ("b3", "Err(OTEL_PROPAGATORS='b3' is not supported: use tracecontext, baggage or none)"),
    ] {
        let got = match with(&[("OTEL_PROPAGATORS", value)], continues_traces) {
            Ok(continues) => format!("Ok({continues})"),
            Err(error) => format!("Err({error})"),
        };
        assert_eq!(got, want, "{value}");
    }
}

#[test]
fn samplers() {
    const LEGAL: &str = "always_on, always_off or traceidratio, or one of them after parentbased_";
    let of = |name, ratio| match with(&[("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", ratio)], sampler) {
        Ok(found) => format!("{found:?}"),
        Err(error) => error.to_string(),
    };
    for (name, ratio, want) in [
        ("", "0.5", "None"),
        ("always_on", "", "Some((Share(1.0), Ignored))"),
        ("always_off", "", "Some((Share(0.0), Ignored))"),
        ("traceidratio", "0.25", "Some((Share(0.25), Ignored))"),
        ("traceidratio", "", "Some((Share(1.0), Ignored))"),
        ("parentbased_always_on", "", "Some((Share(1.0), Obeyed))"),
        ("parentbased_always_off", "", "Some((Share(0.0), Obeyed))"),
        ("parentbased_traceidratio", "0.01", "Some((Share(0.01), Obeyed))"),
    ] {
        assert_eq!(of(name, ratio), want, "{name} {ratio}");
    }
    let wrong = "OTEL_TRACES_SAMPLER_ARG='2' is not supported: use a ratio from 0 to 1";
    assert_eq!(of("traceidratio", "2"), wrong);
    let unknown = |name| format!("OTEL_TRACES_SAMPLER='{name}' is not supported: use {LEGAL}");
    assert_eq!(of("jaeger_remote", ""), unknown("jaeger_remote"));
}

#[test]
fn certificates() {
    const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
    const KEY: &str = "OTEL_EXPORTER_OTLP_CLIENT_KEY";
    let secure = Some("https://c:4317");
    check(Some("http://c:4317"), None, &[(CERTIFICATE, "/nowhere")], "Grpc http://c:4317");
    check(secure, None, &[(CERTIFICATE, "/nowhere")], &format!("{CERTIFICATE}: cannot read '/nowhere'"));
    let garbage = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let none = format!("{CERTIFICATE}: there is no certificate in '{garbage}', or it is not in PEM");
    check(secure, None, &[(CERTIFICATE, garbage)], &none);
    let alone =
        format!("{KEY} is set and OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is not: a client certificate needs both");
    check(secure, None, &[(KEY, garbage)], &alone);
}

/// What is looked up is documented.
#[test]
fn no_variable_is_read_in_secret() {
    use std::cell::RefCell;
    let asked = RefCell::new(std::collections::BTreeSet::new());
    let look_up = |name: &str| {
        asked.borrow_mut().insert(name.to_owned());
        None
    };
    let env = Env(&look_up);
    for signal in [Signal::Traces, Signal::Logs] {
        destination(signal, &OtlpConfig::default(), &env).unwrap();
        let to = |endpoint: &str| OtlpConfig { endpoint: Some(endpoint.to_owned()), protocol: None };
        destination(signal, &to("https://c:1"), &env).unwrap();
        destination(signal, &to("c:1"), &env).unwrap_err();
        queue(signal, &env).unwrap();
    }
    policy(&SamplingConfig::default(), &env).unwrap();
    longest_text(&env).unwrap();
    continues_traces(&env).unwrap();
    let documented = |name: &str| {
        let general = |name: &str| name.replace("TRACES_", "").replace("SPAN_", "");
        let listed = super::super::variables::VARIABLES.iter().filter(|variable| variable.is_honoured);
        listed.flat_map(|variable| variable.name.split(", ")).any(|listed| {
            listed == name || (listed.contains('(') && general(&listed.replace(['(', ')'], "")) == general(name))
        })
    };
    let secret: Vec<_> = asked.into_inner().into_iter().filter(|name| !documented(name)).collect();
    assert_eq!(secret, Vec::<String>::new());
}
