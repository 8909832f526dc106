//! What is documented is what is emitted, and what is emitted is legal.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use expect_test::expect_file;
use radiosonde::telemetry::docs::{self, Section};
use radiosonde::telemetry::exposition::sglang::ALIASES;
use radiosonde::telemetry::labels::{
    Cause, Hop, HttpRoute, ProbeBranch, ProbeEndpoint, ProbeEvidence, ProbeOutcome, RequestEndpoint, RequestOutcome,
    ServerStatus, StatusReason, StepPhase,
};
use radiosonde::telemetry::metrics::{
    ProbeEnd, ProcessStats, ReadVitals, SeriesInfo, ServedInfo, StepEnd, Vitals, catalogue,
};
use radiosonde::telemetry::spans::names::ATTRIBUTES;
use radiosonde::telemetry::{Metrics, exposition};

struct Steady(Vitals);

impl ReadVitals for Steady {
    fn read(&self) -> Vitals {
        self.0.clone()
    }
}

fn served() -> ServedInfo {
    ServedInfo {
        model: "m".to_owned(),
        architecture: "a".to_owned(),
        page_size: 16,
        num_pages: 1024,
        kernels: "portable",
    }
}

fn fresh(vitals: Vitals) -> Metrics {
    let metrics = Metrics::new().expect("the series are sound");
    metrics.watch(Arc::new(Steady(vitals))).expect("nobody watches so far");
    metrics
}

#[test]
fn the_documentation_is_what_the_registry_prints() {
    let printed = |section| docs::markdown(&[section]).expect("the series are sound");
    expect_file!["../docs/metrics.md"].assert_eq(&printed(Section::Metrics));
    expect_file!["../docs/traces.md"].assert_eq(&printed(Section::Traces));
    expect_file!["../docs/logs.md"].assert_eq(&printed(Section::Logs));
}

#[test]
fn aliases_stand_for_series_that_exist() {
    let known: HashSet<_> = catalogue().expect("the series are sound").into_iter().map(|series| series.name).collect();
    let mut names = HashSet::new();
    for alias in ALIASES {
        assert!(names.insert(alias.name) && alias.name.starts_with("sglang:"), "{}", alias.name);
        let served = alias.source.families().iter().all(|family| known.contains(*family));
        assert!(served, "{}: {:?}", alias.name, alias.source);
    }
}

#[test]
fn names_are_legal() {
    let mut seen = HashSet::new();
    for series in catalogue().expect("the series are sound") {
        let name = &series.name;
        assert!(seen.insert(name.clone()), "{name} exists twice");
        assert!(is_name(name), "{name} is not [a-z_][a-z0-9_]*");
        assert_eq!(series.kind == "counter", name.ends_with("_total"), "{name} is a {}", series.kind);
        assert!(name.starts_with("radiosonde_") || name.starts_with("process_"), "{name} has no prefix of ours");
        assert!(series.help.len() > 20 && series.help.ends_with('.'), "{name} has no sentence for a help");
        assert!(!series.help.contains('|'), "{name}: its help would break the table");
        assert!(series.labels.iter().all(|label| is_name(&label.name)), "{name}: {:?}", series.labels);
    }
    let keys: HashSet<_> = ATTRIBUTES.iter().map(|attribute| attribute.key).collect();
    assert_eq!(keys.len(), ATTRIBUTES.len(), "an attribute is described twice");
}

#[test]
fn units_are_in_the_names() {
    let time = ["age", "cpu", "duration", "interval", "lag", "latency", "time", "timeout", "timestamp"];
    for SeriesInfo { name, kind, .. } in catalogue().expect("the series are sound") {
        let says = |words: &[&str]| name.split('_').any(|word| words.contains(&word));
        let unit = name.strip_suffix("_total").unwrap_or(&name);
        assert_eq!(says(&time), unit.ends_with("_seconds"), "{name} is a time, or it is none");
        assert_eq!(says(&["memory"]), unit.ends_with("_bytes"), "{name} is memory, or it is none");
        let other = ["_ms", "_millis", "_nanos", "_percent", "_mib", "_kb", "_count", "_sum", "_bucket"];
        assert!(!other.iter().any(|suffix| name.ends_with(suffix)), "{name} has no base unit");
        assert!(kind == "gauge" || !name.ends_with("_info"), "{name} is a {kind}");
    }
}

/// A page is read and stored every few seconds for each replica, so it must not grow unnoticed: labels multiply. Whoever
/// adds series raises the ceiling here, and sees what they cost.
#[test]
fn a_page_has_a_ceiling() {
    const CEILING: usize = 1900;
    let (_, text) = exposition::text(&fresh(Vitals { served: Some(served()), ..Vitals::default() }));
    let samples = parse(&text);
    assert!(samples <= CEILING, "{samples} samples, {} bytes", text.len());
}

/// Whoever asks for a p99 gets a number and not an edge: the edges reach as far as what is measured does.
#[test]
fn edges_reach_far_enough() {
    let (_, text) = exposition::text(&fresh(Vitals::default()));
    let edges = |name: &str| -> Vec<f64> {
        let bucket = format!("{name}_bucket{{");
        let lines = text.lines().filter(|line| line.starts_with(&bucket));
        let edges = lines.filter_map(|line| line.split_once("le=\"")?.1.split_once('"')?.0.parse().ok());
        edges.filter(|edge: &f64| edge.is_finite()).collect()
    };
    for (name, first, last) in [
        ("radiosonde_e2e_request_latency_seconds", 0.1, 600.0),
        ("radiosonde_time_to_first_token_seconds", 0.01, 100.0),
        ("radiosonde_inter_token_latency_seconds", 0.01, 5.0),
        ("radiosonde_queue_time_seconds", 0.01, 100.0),
        ("radiosonde_health_probe_duration_seconds", 0.005, 20.0),
        ("radiosonde_health_probe_hop_duration_seconds", 0.001, 20.0),
        ("radiosonde_http_request_duration_seconds", 0.005, 60.0),
    ] {
        let edges = edges(name);
        assert!(edges.iter().any(|edge| *edge <= first) && edges.iter().any(|edge| *edge >= last), "{name}: {edges:?}");
    }
    assert!(edges("radiosonde_health_probe_duration_seconds").contains(&20.0), "the default limit is an edge");
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[test]
fn a_fresh_server_exposes_text_that_parses() {
    let (content_type, text) = exposition::text(&fresh(Vitals::default()));
    assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
    let samples = parse(&text);
    assert!(samples > 100, "{samples} samples");
}

#[test]
fn a_used_server_exposes_text_that_parses() {
    let metrics = fresh(Vitals {
        status: ServerStatus::Up,
        return_health_check_oldest: Some(Duration::from_millis(1500)),
        kv_used_tokens: 4096,
        max_total_num_tokens: 16384,
        step_age: Some(Duration::from_secs(3)),
        engine_up: true,
        served: Some(served()),
        engine_process: ProcessStats { cpu_seconds: 0.75, ..ProcessStats::default() },
        ..Vitals::default()
    });
    let in_flight = (metrics.probes.began(), metrics.requests.accepted(RequestEndpoint::Generate, 12));
    metrics.probes.ended(&ProbeEnd {
        endpoint: ProbeEndpoint::Health,
        branch: ProbeBranch::Busy,
        outcome: ProbeOutcome::EngineDead,
        evidence: ProbeEvidence::None,
        stalled_at: Some(Hop::ReturnHealthCheckIpcs),
        cause: Some(Cause::EngineDead),
        duration: Duration::from_millis(30),
        trace: None,
    });
    metrics.requests.first_tokens(1, Duration::from_millis(20), None);
    metrics.requests.further_tokens(2, Duration::from_millis(8));
    metrics.engine.step_ended(StepEnd {
        phase: StepPhase::Mixed,
        tokens: 10_000,
        requests: 3,
        took: Duration::from_secs(100),
    });
    metrics.engine.status_changed(ServerStatus::Starting, ServerStatus::Up, StatusReason::EngineReady);
    metrics.http.began(HttpRoute::Unmatched).answered(404);
    let (_, text) = exposition::text(&metrics);
    parse(&text);
    for line in [
        "radiosonde_server_status{status=\"up\"} 1",
        "radiosonde_server_status{status=\"starting\"} 0",
        "radiosonde_token_usage 0.25",
        "radiosonde_return_health_check_ipcs_oldest_age_seconds 1.5",
        "radiosonde_scheduler_step_age_seconds 3",
        "radiosonde_engine_up 1",
        "radiosonde_health_probes_in_flight 1",
        "radiosonde_requests_in_flight 1",
        "radiosonde_prompt_tokens_total 12",
        "radiosonde_generation_tokens_total 3",
        "radiosonde_health_probe_total{branch=\"busy\",endpoint=\"/health\",outcome=\"engine_dead\"} 1",
        "radiosonde_health_probe_failures_total{cause=\"engine_dead\",hop=\"scheduler.return_health_check_ipcs\"} 1",
        "radiosonde_server_status_transitions_total{from=\"starting\",reason=\"engine_ready\",to=\"up\"} 1",
        "radiosonde_scheduler_batch_size_sum{phase=\"mixed\"} 3",
        "radiosonde_http_requests_total{code=\"4xx\",route=\"unmatched\"} 1",
        "radiosonde_model_info{architecture=\"a\",kernels=\"portable\",model=\"m\"} 1",
        "radiosonde_cache_config_info{num_pages=\"1024\",page_size=\"16\"} 1",
        "radiosonde_engine_cpu_seconds_total 0.75",
    ] {
        assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
    }
    drop(in_flight);
    metrics.requests.ended(RequestEndpoint::Generate, RequestOutcome::Abort, Duration::from_secs(1), None);
    let (_, after) = exposition::text(&metrics);
    assert!(
        after.contains("\nradiosonde_requests_in_flight 0\n")
            && after.contains("\nradiosonde_num_aborted_requests_total 1\n")
    );
}

#[test]
fn reading_changes_nothing() {
    let metrics = fresh(Vitals::default());
    let steady = |text: String| -> Vec<String> {
        // The process goes on using CPU time and memory between two scrapes.
        text.lines().filter(|line| !line.starts_with("process_")).map(str::to_owned).collect()
    };
    assert_eq!(steady(exposition::text(&metrics).1), steady(exposition::text(&metrics).1));
}

/// Checks each line of the text format; returns the number of samples.
fn parse(text: &str) -> usize {
    assert!(text.ends_with('\n'), "the last line has no end");
    let mut families = HashSet::new();
    let mut series = HashSet::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let help = line.strip_prefix("# HELP ").unwrap_or_default();
        let (name, _) = help.split_once(' ').unwrap_or_default();
        assert!(families.insert(name.to_owned()), "{name:?} begins twice, or a family has no help: {line}");
        let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE ")?.strip_prefix(name)?.strip_prefix(' '));
        assert!(matches!(kind, Some("counter" | "gauge" | "histogram")), "{name} is of kind {kind:?}");
        let mut buckets = Buckets::default();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (labelled, value) = line.rsplit_once(' ').unwrap_or_default();
            let value: f64 = value.parse().unwrap_or(f64::NAN);
            assert!(value.is_finite(), "no number: {line}");
            assert!(series.insert(labelled.to_owned()), "twice: {labelled}");
            let (sample, labels) = split(labelled);
            let part = sample.strip_prefix(name).unwrap_or("another");
            let legal = if kind == Some("histogram") { &["_bucket", "_sum", "_count"][..] } else { &[""] };
            assert!(legal.contains(&part), "{sample} does not belong to {name}");
            buckets.check(part, &labels, value);
        }
    }
    series.len()
}

/// Name and labels of a sample. No label value of ours needs an escape.
fn split(labelled: &str) -> (&str, Vec<(&str, &str)>) {
    let Some((name, labels)) = labelled.split_once('{') else { return (labelled, Vec::new()) };
    let labels = labels.strip_suffix('}').unwrap_or("broken").split(',');
    let pair = |label: &'_ str| -> Option<(usize, usize)> {
        let (key, value) = label.split_once('=')?;
        let value = value.strip_prefix('"')?.strip_suffix('"')?;
        (is_name(key) && !value.contains(['"', '\\'])).then_some((key.len(), value.len()))
    };
    let pairs = labels.map(|label| {
        let (key, value) = pair(label).unwrap_or_default();
        assert!(key > 0, "not a label: {label} in {labelled}");
        (&label[..key], &label[key + 2..key + 2 + value])
    });
    (name, pairs.collect())
}

/// The edges of one histogram rise and its counts never fall; the last bucket holds all.
#[derive(Default)]
struct Buckets {
    last: Option<(f64, f64)>,
}

impl Buckets {
    fn check(&mut self, part: &str, labels: &[(&str, &str)], value: f64) {
        let edge = labels.iter().find(|(key, _)| *key == "le").map(|(_, edge)| edge.parse().unwrap_or(f64::NAN));
        match (part, edge, self.last) {
            ("_bucket", Some(edge), None) => self.last = Some((edge, value)),
            ("_bucket", Some(edge), Some((edge_before, before))) => {
                assert!(edge > edge_before && value >= before, "bucket {edge} after {edge_before}: {value} {before}");
                self.last = Some((edge, value));
            }
            ("_count", None, last) => {
                assert_eq!(last, Some((f64::INFINITY, value)), "the last bucket holds all");
                self.last = None;
            }
            _ => assert!(edge.is_none() && part != "_bucket", "an edge is out of place"),
        }
    }
}
