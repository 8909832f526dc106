//! What waits for its root, and what there is no room for.

use opentelemetry::InstrumentationScope;
use opentelemetry::time::now;
use opentelemetry::trace::{SpanContext, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{SpanEvents, SpanLinks};

use super::*;

fn id(id: u64) -> SpanId {
    SpanId::from_bytes(id.to_be_bytes())
}

fn span(number: u64) -> SpanData {
    let (trace, flags) = (TraceId::from_bytes([1; 16]), TraceFlags::default());
    SpanData {
        span_context: SpanContext::new(trace, id(number), flags, false, TraceState::default()),
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: "hop".into(),
        start_time: now(),
        end_time: now(),
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::default(),
    }
}

fn undecided(traces: usize, spans: usize, decided: usize) -> Undecided {
    Undecided::new(Limits { traces, spans, decided })
}

fn end(undecided: &Undecided, number: u64) -> &'static str {
    match undecided.end(Side::Engine, span(number)) {
        Fate::Waits => "waits",
        Fate::Kept(_) => "kept",
        Fate::LeftOut => "left out",
        Fate::NoRoom => "no room",
    }
}

fn decide(undecided: &Undecided, root: u64, kept: bool) -> Vec<u64> {
    let ids = undecided.decide(id(root), kept).into_iter();
    ids.map(|(_, span)| u64::from_be_bytes(span.span_context.span_id().to_bytes())).collect()
}

#[test]
fn spans_wait_for_their_own_root_and_share_its_fate_afterwards() {
    let undecided = undecided(9, 9, 9);
    undecided.begin(id(1));
    undecided.begin(id(2));
    undecided.join(id(11), id(1));
    undecided.join(id(12), id(11));
    undecided.join(id(13), id(11));
    undecided.join(id(21), id(2));
    assert_eq!([11, 12, 21].map(|number| end(&undecided, number)), ["waits"; 3]);
    assert_eq!(decide(&undecided, 1, true), [11, 12]);
    assert_eq!(end(&undecided, 13), "kept", "it ended after its root");
    undecided.join(id(14), id(13));
    assert_eq!(end(&undecided, 14), "kept", "it even began after its root");
    assert_eq!(decide(&undecided, 2, false), [21]);
    undecided.join(id(22), id(2));
    assert_eq!(end(&undecided, 22), "left out");
    assert_eq!(end(&undecided, 99), "no room", "nobody knows it");
}

#[test]
fn what_waits_is_bounded() {
    let undecided = undecided(2, 3, 1);
    [1, 2, 3].into_iter().for_each(|root| undecided.begin(id(root)));
    for (root, span) in [(1, 11), (1, 12), (2, 21), (2, 22), (3, 31)] {
        undecided.join(id(span), id(root));
    }
    assert_eq!([11, 12, 21].map(|number| end(&undecided, number)), ["waits"; 3]);
    assert_eq!(end(&undecided, 22), "no room", "a fourth span");
    assert_eq!(end(&undecided, 31), "no room", "of a third trace");
    assert_eq!(decide(&undecided, 3, true), [0; 0]);
    assert_eq!(decide(&undecided, 1, false), [11, 12]);
    undecided.begin(id(4));
    undecided.join(id(41), id(4));
    assert_eq!(end(&undecided, 41), "waits", "there is room again");
    assert_eq!(undecided.abandon(), 2, "21 and 41");
    assert_eq!(undecided.abandon(), 0);
}

#[test]
fn of_what_was_decided_the_last_are_remembered() {
    let undecided = undecided(9, 9, 1);
    for root in [1, 2] {
        undecided.begin(id(root));
        undecided.join(id(root + 10), id(root));
        undecided.join(id(root + 20), id(root));
        assert_eq!(end(&undecided, root + 10), "waits");
        assert_eq!(decide(&undecided, root, true), [root + 10]);
    }
    assert_eq!((end(&undecided, 21), end(&undecided, 22)), ("no room", "kept"));
    let book = undecided.book();
    assert_eq!((book.traces.len(), book.root_of.len(), book.held), (1, 2, 0), "nothing else is left");
}
