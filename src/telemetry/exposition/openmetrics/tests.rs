//! The page as text, one family of each kind.

use std::time::{Duration, UNIX_EPOCH};

use expect_test::expect;
use opentelemetry::trace::TraceId;
use prometheus::{Counter, Gauge, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::encode;
use crate::telemetry::exposition::text;
use crate::telemetry::metrics::TraceRef;
use crate::telemetry::metrics::declare::exemplar_histogram;

fn registry() -> Registry {
    let registry = Registry::new();
    let counter = IntCounterVec::new(Opts::new("t_requests_total", "Requests \\ by \"route\"."), &["route"]).unwrap();
    counter.with_label_values(&["/a\"b\\c\nd"]).inc_by(3);
    registry.register(Box::new(counter)).unwrap();
    let cpu = Counter::new("t_cpu_seconds_total", "CPU time.").unwrap();
    cpu.inc_by(1.5);
    registry.register(Box::new(cpu)).unwrap();
    let info = IntGaugeVec::new(Opts::new("t_build_info", "Always 1."), &["version"]).unwrap();
    info.with_label_values(&["1.2"]).set(1);
    registry.register(Box::new(info)).unwrap();
    for (name, value) in [("t_age_seconds", 0.25), ("t_limit", f64::INFINITY), ("t_kilobytes", 7.0)] {
        let gauge = Gauge::new(name, "A gauge.").unwrap();
        gauge.set(value);
        registry.register(Box::new(gauge)).unwrap();
    }
    registry
}

#[test]
fn every_kind_of_family() {
    let registry = registry();
    let wait = exemplar_histogram(&registry, "t_wait_seconds", "Waiting.", &[0.5, 1.0, 20.0], &["way"]).unwrap();
    let trace = TraceRef { id: TraceId::from(0xabc_u128), at: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123) };
    wait.observe(&["idle"], 0.75, Some(trace));
    wait.observe(&["idle"], 30.0, Some(trace));
    wait.observe(&["idle"], 2.0, None);
    expect![[r##"
        # TYPE t_age_seconds gauge
        # UNIT t_age_seconds seconds
        # HELP t_age_seconds A gauge.
        t_age_seconds 0.25
        # TYPE t_build info
        # HELP t_build Always 1.
        t_build_info{version="1.2"} 1
        # TYPE t_cpu_seconds counter
        # UNIT t_cpu_seconds seconds
        # HELP t_cpu_seconds CPU time.
        t_cpu_seconds_total 1.5
        # TYPE t_kilobytes gauge
        # HELP t_kilobytes A gauge.
        t_kilobytes 7
        # TYPE t_limit gauge
        # HELP t_limit A gauge.
        t_limit +Inf
        # TYPE t_requests counter
        # HELP t_requests Requests \\ by \"route\".
        t_requests_total{route="/a\"b\\c\nd"} 3
        # TYPE t_wait_seconds histogram
        # UNIT t_wait_seconds seconds
        # HELP t_wait_seconds Waiting.
        t_wait_seconds_bucket{way="idle",le="0.5"} 0
        t_wait_seconds_bucket{way="idle",le="1.0"} 1 # {trace_id="00000000000000000000000000000abc"} 0.75 1700000000.123
        t_wait_seconds_bucket{way="idle",le="20.0"} 2
        t_wait_seconds_bucket{way="idle",le="+Inf"} 3 # {trace_id="00000000000000000000000000000abc"} 30 1700000000.123
        t_wait_seconds_sum{way="idle"} 32.75
        t_wait_seconds_count{way="idle"} 3
        # EOF
    "##]]
    .assert_eq(&encode(&registry.gather(), &[wait.exemplars()]));
}

#[test]
fn the_other_format_has_no_exemplars() {
    let registry = Registry::new();
    let wait = exemplar_histogram(&registry, "t_wait_seconds", "Waiting.", &[1.0], &[]).unwrap();
    wait.observe(&[], 0.75, Some(TraceRef { id: TraceId::from(1_u128), at: UNIX_EPOCH }));
    expect![[r#"
        # HELP t_wait_seconds Waiting.
        # TYPE t_wait_seconds histogram
        t_wait_seconds_bucket{le="1"} 1
        t_wait_seconds_bucket{le="+Inf"} 1
        t_wait_seconds_sum 0.75
        t_wait_seconds_count 1
    "#]]
    .assert_eq(&text::encode(&registry.gather()));
}
