//! What is documented is what is emitted, and what is emitted is legal.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use expect_test::expect_file;
use radiosonde::telemetry::exposition::sglang::{ALIASES, Scope};
use radiosonde::telemetry::labels::{
    Cause, Hop, HttpRoute, ProbeBranch, ProbeEndpoint, ProbeEvidence, ProbeOutcome, RequestEndpoint, RequestOutcome,
    ServerStatus, StatusReason, StepPhase,
};
use radiosonde::telemetry::metrics::{
    ProbeEnd, ProcessStats, ReadVitals, SeriesInfo, ServedInfo, StepEnd, Vitals, catalogue,
};
use radiosonde::telemetry::otlp::variables::{VARIABLES, VariableInfo};
use radiosonde::telemetry::spans::names::{ATTRIBUTES, EVENTS, NameInfo, OTHER_SPANS, Side, meaning};
use radiosonde::telemetry::{Metrics, exposition};

const METRICS_OPENING: &str = "# Metrics

You are on call and a panel or an alert brought you here: look its series up below and read what it means and what its
values tell. Start with `radiosonde_server_status`, then `radiosonde_health_probe_failures_total`, whose `hop` says
where to look and whose `cause` says what to do.

Every series is there from the first scrape, with each legal combination of labels at zero; only the probe duration
begins with `ok` and `timeout` and grows the other outcomes when they happen, and `radiosonde_model_info` and
`radiosonde_cache_config_info` come with the engine. Ages and depths are computed at the
scrape, so they go on growing while their owner is stuck. Histograms have the usual `_bucket`, `_sum` and `_count`. This file is generated: `UPDATE_EXPECT=1 cargo test --test contract`.

`GET /metrics` answers in OpenMetrics 1.0 to those whose `Accept` prefers it, as Prometheus' does, else in the text
format 0.0.4. Only OpenMetrics has exemplars: buckets of `radiosonde_health_probe_duration_seconds`,
`radiosonde_time_to_first_token_seconds` and `radiosonde_e2e_request_latency_seconds` carry the `trace_id` of their newest
observation whose trace was sampled and goes to a collector. Prometheus stores them with
`--enable-feature=exemplar-storage`. A bucket's edge is `1.0` in OpenMetrics and `1` in text: match `le=~\"1(\\\\.0)?\"`.

";

const SGLANG_OPENING: &str = "
## SGLang names

`--metrics-alias sglang` serves the names below too, made at the scrape from the series above, for dashboards, gateways
and endpoint pickers that ask for those. Off by default: a colon in a name belongs to recording rules. They begin when the
model is loaded, all with `model_name` and `engine_type=\"unified\"`; those of the scheduler also have `tp_rank`, `pp_rank`
and `moe_ep_rank`, each `0`. SGLang's `is_streaming` is missing. One whose source is not there is left out.

| SGLang name | labels of | what it is here |
|---|---|---|
";

const TRACES_OPENING: &str = "# Traces

You are on call and have opened a trace: the span in red with the message `unfinished` is the hop that never ended, and
`probe.cause` on the root says why. A probe's trace is whole even if the engine is gone, because the frontend writes all
of it when the probe ends, in any way.

The root is named after the method and the route, as in `GET /health`; its time and its status are those of the HTTP
answer. That of a probe which the server sent by itself is `self_probe`. Below it are the hops, in the order in which they were crossed. `scheduler.run_batch` and
`model_runner.forward` belong to a probe of an idle scheduler, `scheduler.return_health_check_ipcs` to one of a busy
scheduler, `scheduler.prefill` and `scheduler.decode` to user requests. Prompts and outputs are never in a trace.

*Which request held my probe up?* A busy scheduler's probe is linked to the root spans of the requests in the batches that
it waited for, at most 32, and its JSON body names them as `waited_for`. The requests of other frontends of the same
engine are not among them. A request's `scheduler.prefill` and `scheduler.decode` say which steps they took.

A request has one `scheduler.prefill` and one `scheduler.decode`, whatever happens to it: a retraction is an event there,
and waiting and computing again lie inside. Nothing is written for each token. If the engine dies and the request is sent
to the next one, the hop that it died in is `unfinished`, and the second `ipc.to_engine` lasts until the next engine reads.

What is an error: 500 and above, a request that the runtime failed (the message says why), a failed probe. Bad input (400)
is none, nor is a client that leaves: then `request.outcome` is `abort`, and the hop where it was has the event `abort`.

This file is generated: `UPDATE_EXPECT=1 cargo test --test contract`.

## Which traces are kept

All of them, unless you say less. What is said is about good traces; whether one is good is known when its root ends,
and then the whole of it is exported or none:

| trace | always kept | else |
|---|---|---|
| of a probe | it failed (`timeout`, `engine_dead`, `error`), took `--trace-slow-probe` (1s), or is the first after a change of the server's status | `--trace-probes`: `all` (default), `failures`, or a ratio |
| of any other request | its status is 500 or above, its span is an error, or it took `--trace-slow-request` (30s) to the last byte | `--trace-ratio` (default 1), or `OTEL_TRACES_SAMPLER` |

A ratio goes by the trace id, as `traceidratio` does everywhere, so services with the same ratio keep the same traces. A
caller that sends a `traceparent` has decided already: its `sampled` flag stands in the place of the ratio. Where it says
no, a trace that failed or was slow is kept all the same, since it tells of this server and the caller could not know; its
parent is then missing. Probes that only wait for a start or a drain are asked again every few
seconds and say the same each time: they count as good.

Until it is known, spans wait in a buffer of at most 2048 traces and 16384 spans. When that is full, failed and slow
traces keep their root alone, and `radiosonde_trace_spans_dropped_total{reason=\"buffer_full\"}` counts the rest. What is
left out on purpose is in `radiosonde_trace_spans_unsampled_total`. Metrics, logs and `/debug/probes` know of every probe,
traced or not.

The collector is never waited for. What it does not take in time is dropped, and counted by reason; a change for the worse
or the better is one line of the log.

## Spans

";

const VARIABLES_OPENING: &str = "
## Environment variables

What OpenTelemetry's standard variables do here. A value that cannot be used ends the start with an error that names it;
an empty one counts as unset.

| variable | honoured | |
|---|---|---|
";

struct Steady(Vitals);

impl ReadVitals for Steady {
    fn read(&self) -> Vitals {
        self.0.clone()
    }
}

fn served() -> ServedInfo {
    ServedInfo { model: "m".to_owned(), architecture: "a".to_owned(), page_size: 16, num_pages: 1024 }
}

fn fresh(vitals: Vitals) -> Metrics {
    let metrics = Metrics::new().expect("the series are sound");
    metrics.watch(Arc::new(Steady(vitals))).expect("nobody watches so far");
    metrics
}

#[test]
fn the_series_are_documented() {
    let mut text = METRICS_OPENING.to_owned();
    text.push_str("| series | kind | labels | meaning |\n|---|---|---|---|\n");
    for series in catalogue().expect("the series are sound") {
        let labels: Vec<_> = series.labels.iter().map(|label| format!("`{}`", label.name)).collect();
        let SeriesInfo { name, kind, help, .. } = &series;
        writeln!(text, "| `{name}` | {kind} | {} | {help} |", labels.join(" ")).expect("a string takes all");
    }
    text.push_str("\n## Label values\n\n| series | label | values |\n|---|---|---|\n");
    for series in catalogue().expect("the series are sound") {
        for label in series.labels.iter().filter(|_| !series.name.ends_with("_info")) {
            let values: Vec<_> = label.values.iter().map(|value| format!("`{value}`")).collect();
            writeln!(text, "| `{}` | `{}` | {} |", series.name, label.name, values.join(" "))
                .expect("a string takes all");
        }
    }
    text.push_str(SGLANG_OPENING);
    for alias in ALIASES {
        let scope = match alias.scope {
            Scope::Scheduler => "scheduler",
            Scope::Tokenizer => "tokenizer manager",
        };
        writeln!(text, "| `{}` | {scope} | {} |", alias.name, alias.source.meaning()).expect("a string takes all");
    }
    expect_file!["../docs/metrics.md"].assert_eq(&text);
}

/// Aliases that will be served as soon as their sources are.
const WITHOUT_SOURCE: &[&str] = &[
    "sglang:cache_hit_rate",
    "sglang:queue_time_seconds",
    "sglang:cache_config_info",
    "sglang:page_size",
    "sglang:num_pages",
    "sglang:cached_tokens_total",
];

#[test]
fn aliases_stand_for_series_that_exist() {
    let known: HashSet<_> = catalogue().expect("the series are sound").into_iter().map(|series| series.name).collect();
    let mut names = HashSet::new();
    for alias in ALIASES {
        assert!(names.insert(alias.name) && alias.name.starts_with("sglang:"), "{}", alias.name);
        let served = alias.source.families().iter().all(|family| known.contains(*family));
        assert_eq!(served, !WITHOUT_SOURCE.contains(&alias.name), "{}: {:?}", alias.name, alias.source);
    }
}

#[test]
fn the_spans_are_documented() {
    let mut text = TRACES_OPENING.to_owned();
    text.push_str("| span | service | what it tells |\n|---|---|---|\n");
    for &hop in Hop::ALL.iter().filter(|&&hop| hop != Hop::Http) {
        writeln!(text, "| `{hop}` | {} | {} |", Side::of(hop).service(), meaning(hop)).expect("a string takes all");
    }
    for NameInfo { name, on, meaning } in OTHER_SPANS {
        writeln!(text, "| `{name}` | {on} | {meaning} |").expect("a string takes all");
    }
    text.push_str("\n## Events\n\n| event | on | what it says |\n|---|---|---|\n");
    for NameInfo { name, on, meaning } in EVENTS {
        writeln!(text, "| `{name}` | {on} | {meaning} |").expect("a string takes all");
    }
    text.push_str("\n## Attributes\n\n| attribute | on | what it says |\n|---|---|---|\n");
    for attribute in ATTRIBUTES {
        writeln!(text, "| `{}` | {} | {} |", attribute.key, attribute.on, attribute.meaning)
            .expect("a string takes all");
    }
    text.push_str(VARIABLES_OPENING);
    for VariableInfo { name, meaning, is_honoured } in VARIABLES {
        let names: Vec<_> = name.split(", ").map(|name| format!("`{name}`")).collect();
        let honoured = if *is_honoured { "yes" } else { "no" };
        writeln!(text, "| {} | {honoured} | {meaning} |", names.join(" ")).expect("a string takes all");
    }
    expect_file!["../docs/traces.md"].assert_eq(&text);
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
    const CEILING: usize = 1600;
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
        "radiosonde_model_info{architecture=\"a\",model=\"m\"} 1",
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
