//! What the ledger tells of several flights together.

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};

use super::*;
use crate::io_struct::ProbeId;
use crate::telemetry::labels::StepPhase;
use crate::telemetry::{Metrics, OtlpConfig, SamplingConfig};

fn ledger() -> ProbeLedger {
    let metrics = Metrics::new().unwrap();
    let (to, sampling) = (OtlpConfig::default(), SamplingConfig::default());
    ProbeLedger::new(Arc::new(Tracers::new(&to, &sampling, metrics.exports.clone()).unwrap()))
}

fn root(id: u64) -> Context {
    let (trace, span) = (TraceId::from(u128::from(id)), SpanId::from(id));
    let context = SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::default());
    Context::new().with_remote_span_context(context)
}

/// A ledger and its clock.
struct Bench {
    ledger: ProbeLedger,
    now: u64,
}

impl Bench {
    fn note(&mut self, event: &EngineEvent) {
        self.now += 1;
        self.ledger.note(event, MonoNanos(self.now));
    }

    fn enter(&mut self, rid: &Rid, hop: Hop) {
        let serial = self.serial(rid);
        self.note(&EngineEvent::HopEntered { rid: rid.clone(), serial, hop });
    }

    fn leave(&mut self, rid: &Rid, hop: Hop) {
        let serial = self.serial(rid);
        self.note(&EngineEvent::HopLeft { rid: rid.clone(), serial, hop });
    }

    /// Of the flight that has the rid now.
    fn serial(&self, rid: &Rid) -> u64 {
        self.ledger.peek(rid).unwrap().serial
    }

    fn request(&mut self, name: &str, id: u64) -> Rid {
        let rid = Rid::from_caller(name).unwrap();
        self.ledger.begin(&rid, id, Purpose::Serve, root(id), MonoNanos(0));
        rid
    }

    fn step(&mut self, number: u64) {
        self.note(&EngineEvent::StepBegan(StepInfo { number, phase: StepPhase::Mixed, tokens: 1, requests: 1 }));
    }
}

#[test]
fn a_probe_knows_which_requests_held_it_up() {
    let mut bench = Bench { ledger: ledger(), now: 0 };
    let [long, done, late, queued] =
        ["long", "done", "late", "queued"].map(|name| bench.request(name, name.len() as u64));
    for rid in [&long, &done] {
        bench.enter(rid, Hop::Prefill);
    }
    bench.enter(&queued, Hop::Queue);
    bench.leave(&done, Hop::Prefill);
    bench.step(1);
    let probe = ProbeId::random();
    bench.ledger.begin(&probe.rid(), 99, Purpose::HealthCheck(probe), root(99), MonoNanos(0));
    bench.enter(&probe.rid(), Hop::Inbox);
    bench.leave(&probe.rid(), Hop::Inbox);
    bench.enter(&probe.rid(), Hop::ReturnHealthCheckIpcs);
    bench.enter(&late, Hop::Prefill);
    bench.step(2);
    bench.leave(&probe.rid(), Hop::ReturnHealthCheckIpcs);
    bench.enter(&queued, Hop::Prefill);
    bench.step(3);
    let flight = bench.ledger.land(&probe.rid()).unwrap();
    assert_eq!(flight.waited_for(), ["long", "late"], "each once; not those that had ended, waited or came later");
    let spans = flight.spans(&WallAnchor::now(), 3);
    let linked: Vec<_> = spans.iter().filter(|span| !span.links.is_empty()).collect();
    assert_eq!((linked.len(), linked[0].hop), (1, Hop::ReturnHealthCheckIpcs));
    let parked = |id: u64| root(id).span().span_context().clone();
    assert_eq!((&linked[0].links[0].root, &*linked[0].links[1].rid), (&parked(4), "late"));
}

#[test]
fn links_are_bounded_and_nothing_is_left_of_who_has_landed() {
    let mut bench = Bench { ledger: ledger(), now: 0 };
    let rids: Vec<_> = (0..100).map(|i| bench.request(&format!("r{i}"), i + 1)).collect();
    for rid in &rids {
        bench.enter(rid, Hop::Prefill);
    }
    let probe = ProbeId::random();
    bench.ledger.begin(&probe.rid(), 999, Purpose::HealthCheck(probe), root(999), MonoNanos(0));
    bench.enter(&probe.rid(), Hop::Inbox);
    for number in 1..100 {
        bench.step(number);
    }
    let flight = bench.ledger.land(&probe.rid()).unwrap();
    assert_eq!(flight.waited_for().len(), MAX_LINKS);
    assert!(flight.spans(&WallAnchor::now(), 99)[0].links.len() == MAX_LINKS, "stuck in the inbox, it is linked there");
    for (rid, serial) in rids.iter().zip(1..) {
        bench.ledger.end(rid, serial, RequestOutcome::Length, MonoNanos(900)).unwrap();
    }
    let flights = bench.ledger.flights();
    assert!(flights.by_rid.is_empty() && flights.running.is_empty() && flights.probes.is_empty());
}

/// Between a request's end for its caller and its end here, the caller may have sent another one with the same rid.
#[test]
fn a_rid_that_is_used_again_ends_the_flight_that_had_it() {
    let mut bench = Bench { ledger: ledger(), now: 0 };
    let rid = bench.request("again", 1);
    bench.enter(&rid, Hop::Prefill);
    assert_eq!(bench.request("again", 2), rid);
    bench.enter(&rid, Hop::Queue);
    let late = [
        EngineEvent::HopLeft { rid: rid.clone(), serial: 1, hop: Hop::Queue },
        EngineEvent::HopEntered { rid: rid.clone(), serial: 1, hop: Hop::Decode },
    ];
    late.iter().for_each(|event| bench.note(event));
    assert_eq!(bench.ledger.peek(&rid).unwrap().timeline.stalled_at(), Some(Hop::Queue), "it has not left the queue");
    assert_eq!(bench.ledger.under_way(), 2);
    let hops = |flight: &Flight| flight.timeline.hops().iter().map(|record| record.hop).collect::<Vec<_>>();
    let end = |serial| bench.ledger.end(&rid, serial, RequestOutcome::Abort, MonoNanos(900));
    assert_eq!(hops(&end(1).unwrap()), [Hop::Prefill]);
    assert!(end(1).is_none(), "it has ended");
    assert_eq!(hops(&end(2).unwrap()), [Hop::Queue]);
    let flights = bench.ledger.flights();
    assert!(flights.by_rid.is_empty() && flights.displaced.is_empty() && flights.running.is_empty());
}
