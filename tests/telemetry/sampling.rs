//! Which traces reach the collector: a share of the good ones, and each that failed, was slow, or told of a change.

use std::time::Duration;

use axum::http::HeaderMap;
use radiosonde::telemetry::labels::{ProbeBranch, ProbeEvidence, ProbeOutcome, RequestOutcome};
use radiosonde::telemetry::otlp::{Ending, SamplingConfig, Share};
use radiosonde::telemetry::spans::{
    ProbeAttributes, context, record_probe, record_status, self_probe_span, server_span,
};
use radiosonde::telemetry::{LogFormat, OtlpProtocol};

use super::collector::{Collector, Seen};
use super::{Emitter, REMOTE, failed_probe, good_probe, headers};

/// So long that no trace of a test is slow, however busy the machine.
const NEVER: Duration = Duration::from_secs(3600);

fn shares(probes: f64, requests: f64) -> SamplingConfig {
    let share = |share| Share::new(share).expect("a share");
    SamplingConfig { probes: share(probes), slow_probe: NEVER, requests: Some(share(requests)), slow_request: NEVER }
}

/// Emits with `sampling`; what the collector has in the end.
fn exported(sampling: SamplingConfig, emit: impl FnOnce(&Emitter)) -> (Emitter, Collector) {
    let collector = Collector::start(OtlpProtocol::Grpc);
    let emitter = Emitter::sampling(Some(collector.endpoint()), OtlpProtocol::Grpc, sampling);
    emitter.run(LogFormat::Human, || emit(&emitter));
    emitter.tracers.shutdown(Duration::from_secs(20));
    (emitter, collector)
}

fn count(collector: &Collector, is_one: impl Fn(&Seen) -> bool) -> usize {
    collector.spans().iter().filter(|seen| is_one(seen)).count()
}

/// A request without hops that ends with `status`.
fn request(path: &str, status: u16) {
    record_status(&server_span("POST", path, path, &HeaderMap::new()), status);
}

/// A probe without hops.
fn bare_probe(outcome: ProbeOutcome, status: u16) {
    let span = server_span("GET", "/health", "/health", &HeaderMap::new());
    let (branch, evidence) = (ProbeBranch::None, ProbeEvidence::None);
    let limit = Duration::from_secs(20);
    let verdict = ProbeAttributes { branch, outcome, evidence, stalled_at: None, cause: None, detail: None, limit };
    record_probe(&span, &verdict);
    record_status(&span, status);
}

#[test]
fn of_many_good_probes_a_share_is_exported_and_every_failed_one() {
    let none = HeaderMap::new();
    let (emitter, collector) = exported(shares(0.01, 0.01), |emitter| {
        for nth in 0..1000 {
            good_probe(&emitter.tracers, &none);
            if nth % 300 == 150 {
                failed_probe(&emitter.tracers);
            }
        }
    });
    let is_root = |seen: &Seen, outcome| seen.attributes.get("probe.outcome").is_some_and(|have| have == outcome);
    assert_eq!(count(&collector, |seen| is_root(seen, "timeout")), 3);
    let good = count(&collector, |seen| is_root(seen, "ok"));
    assert!(good < 100, "{good} of 1000: a hundredth was asked for");
    assert_eq!(collector.spans().len(), 10 * good + 3 * 4, "whole traces, of both services");
    assert!(collector.spans().iter().all(|seen| seen.span.flags & 1 == 1), "what is exported is sampled");
    assert_eq!(emitter.sample("radiosonde_trace_spans_unsampled_total"), (10 * (1000 - good)).to_string());
    assert_eq!(emitter.sample("radiosonde_trace_spans_dropped_total"), "0");
}

#[test]
fn the_share_follows_the_trace_id() {
    // The ids are drawn: of two hundred, both halves are seen.
    let (_, collector) = exported(shares(0.5, 1.0), |emitter| {
        (0..200).for_each(|_| drop(good_probe(&emitter.tracers, &HeaderMap::new())));
    });
    let spans = collector.spans();
    assert!(!spans.is_empty() && spans.len() < 2000, "{} of 2000", spans.len());
    for seen in spans {
        assert!(seen.span.trace_id[8] < 0x80, "{}: the lower half of ids is kept", seen.trace_id());
    }
}

#[test]
fn what_is_slow_is_exported() {
    let instant = Duration::from_nanos(1);
    let slow_probes = SamplingConfig { slow_probe: instant, ..shares(0.0, 0.0) };
    let slow_requests = SamplingConfig { slow_request: instant, ..shares(0.0, 0.0) };
    for (sampling, probe, requests) in [(slow_probes, 10, 0), (slow_requests, 0, 1), (shares(0.0, 0.0), 0, 0)] {
        let (_, collector) = exported(sampling, |emitter| {
            good_probe(&emitter.tracers, &HeaderMap::new());
            request("/generate", 200);
        });
        assert_eq!(count(&collector, |seen| seen.span.name == "POST /generate"), requests);
        assert_eq!(count(&collector, |seen| seen.span.name != "POST /generate"), probe);
    }
}

#[test]
fn requests_that_fail_are_exported_and_probes_that_only_wait_are_not() {
    let (_, collector) = exported(shares(0.0, 0.0), |_| {
        [200, 400, 503, 500].into_iter().for_each(|status| request("/generate", status));
        [200, 503].into_iter().for_each(|status| request("/readyz", status));
        bare_probe(ProbeOutcome::Starting, 503);
        bare_probe(ProbeOutcome::Draining, 503);
        bare_probe(ProbeOutcome::EngineDead, 503);
        bare_probe(ProbeOutcome::Error, 503);
        bare_probe(ProbeOutcome::ClientGone, 200);
        drop(self_probe_span());
    });
    let mut told: Vec<_> = collector
        .spans()
        .iter()
        .map(|seen| {
            let why = seen.attributes.get("probe.outcome").unwrap_or(&seen.attributes["http.response.status_code"]);
            format!("{} {why}", seen.span.name)
        })
        .collect();
    told.sort();
    let want = ["GET /health engine_dead", "GET /health error", "POST /generate 500", "POST /generate 503"];
    assert_eq!(told, [&want[..], &["POST /readyz 503"]].concat());
}

#[test]
fn shares_of_probes_and_of_requests_are_two() {
    for (probes, requests) in [(0.0, 1.0), (1.0, 0.0)] {
        let (_, collector) = exported(shares(probes, requests), |_| {
            bare_probe(ProbeOutcome::Ok, 200);
            drop(self_probe_span());
            request("/v1/completions", 200);
        });
        let of_requests = count(&collector, |seen| seen.span.name == "POST /v1/completions");
        let of_probes = count(&collector, |seen| ["GET /health", "self_probe"].contains(&&*seen.span.name));
        assert_eq!((of_probes as f64, of_requests as f64), (2.0 * probes, requests));
    }
}

#[test]
fn the_first_probe_after_a_change_of_status_is_exported() {
    let (_, collector) = exported(shares(0.0, 0.0), |emitter| {
        bare_probe(ProbeOutcome::Ok, 200);
        emitter.tracers.status_changed();
        request("/generate", 200);
        drop(good_probe(&emitter.tracers, &headers(Some(&REMOTE.replace("-01", "-00")))));
        good_probe(&emitter.tracers, &HeaderMap::new());
        good_probe(&emitter.tracers, &HeaderMap::new());
    });
    assert_eq!(collector.spans().len(), 10, "one whole trace");
    assert!(collector.spans().iter().all(|seen| seen.trace_id() != "1".repeat(32)), "not against the caller's word");
}

#[test]
fn a_caller_decides_by_its_flag() {
    let flags = |flags: &str| headers(Some(&REMOTE.replace("-01", flags)));
    for (flag, share, spans) in
        [("-00", 1.0, 0), ("-01", 0.0, 10), ("-03", 0.0, 10), ("-02", 1.0, 0), ("-ff", 0.0, 10), ("-fe", 1.0, 0)]
    {
        let (_, collector) = exported(shares(share, share), |emitter| {
            assert_eq!(good_probe(&emitter.tracers, &flags(flag)), Some("1".repeat(32)), "{flag}");
        });
        assert_eq!(collector.spans().len(), spans, "{flag}, against a share of {share}");
    }
    for broken in ["", "-0x", "-01-00", "-FF"] {
        let (_, collector) = exported(shares(1.0, 1.0), |emitter| {
            assert_ne!(good_probe(&emitter.tracers, &flags(broken)), Some("1".repeat(32)), "{broken}");
        });
        assert_eq!(collector.spans().len(), 10, "{broken}: a trace of its own");
    }
}

#[test]
fn a_failure_is_exported_even_if_the_caller_does_not_sample() {
    let (_, collector) = exported(shares(1.0, 1.0), |_| {
        let span = server_span("POST", "/generate", "/generate", &headers(Some(&REMOTE.replace("-01", "-00"))));
        record_status(&span, 500);
    });
    let spans = collector.spans();
    assert_eq!(spans.len(), 1);
    assert_eq!((spans[0].trace_id(), spans[0].span.flags & 1), ("1".repeat(32), 1));
}

#[test]
fn two_requests_of_one_trace_are_judged_one_by_one() {
    let (_, collector) = exported(shares(0.0, 0.0), |emitter| {
        let unsampled = headers(Some(&REMOTE.replace("-01", "-00")));
        let open = server_span("POST", "/generate", "/generate", &unsampled);
        good_probe(&emitter.tracers, &unsampled);
        record_status(&open, 500);
    });
    let names: Vec<_> = collector.spans().iter().map(|seen| seen.span.name.clone()).collect();
    assert_eq!(names, ["POST /generate"]);
}

#[test]
fn with_too_many_traces_under_way_a_failed_one_keeps_its_root() {
    let (emitter, collector) = exported(shares(0.0, 0.0), |emitter| {
        let open: Vec<_> =
            (0..2048).map(|_| server_span("POST", "/generate", "/generate", &HeaderMap::new())).collect();
        failed_probe(&emitter.tracers);
        drop(open);
        failed_probe(&emitter.tracers);
    });
    let roots = count(&collector, |seen| seen.attributes.contains_key("probe.outcome"));
    assert_eq!((roots, collector.spans().len()), (2, 1 + 4), "then there is room again");
    assert_eq!(emitter.sample("radiosonde_trace_spans_dropped_total{reason=\"buffer_full\"}"), "3");
    assert_eq!(emitter.sample("radiosonde_trace_spans_unsampled_total"), "2048");
}

#[test]
fn what_will_be_kept_can_be_asked_before_the_end() {
    let (second, probe) = (Duration::from_secs(1), Ending::Probe);
    exported(SamplingConfig { slow_probe: second, ..shares(0.0, 0.0) }, |emitter| {
        let span = server_span("GET", "/health", "/health", &HeaderMap::new());
        let keeps = |ending, took| emitter.tracers.kept(&context(&span), ending, took).is_some();
        assert!(!keeps(probe(ProbeOutcome::Ok), Duration::ZERO));
        assert!(keeps(probe(ProbeOutcome::Ok), second), "slow");
        assert!(keeps(probe(ProbeOutcome::Timeout), Duration::ZERO), "failed");
        assert!(!keeps(Ending::Request(RequestOutcome::Stop), second), "requests may take longer");
        assert!(keeps(Ending::Request(RequestOutcome::Error), Duration::ZERO));
        let sampled = server_span("GET", "/health", "/health", &headers(Some(REMOTE)));
        assert!(
            emitter.tracers.kept(&context(&sampled), probe(ProbeOutcome::Ok), Duration::ZERO).is_some(),
            "the caller says so"
        );
    });
    let nowhere = Emitter::new(None, OtlpProtocol::Grpc);
    nowhere.run(LogFormat::Human, || {
        let span = server_span("GET", "/health", "/health", &HeaderMap::new());
        assert_eq!(nowhere.tracers.kept(&context(&span), probe(ProbeOutcome::Timeout), Duration::ZERO), None);
    });
}
