//! Which traces are kept: a share of the good ones, and every one that failed, was slow, or told of a change. Decided
//! here alone.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use opentelemetry::trace::{Status, TraceId};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample, SpanData};

use crate::telemetry::labels::{ProbeEndpoint, ProbeOutcome, RequestOutcome};
use crate::telemetry::spans::names::{HTTP_ROUTE, PROBE_OUTCOME, SELF_PROBE};

/// A share of traces.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share(f64);

impl Share {
    /// Each of them.
    pub const ALL: Self = Self(1.0);
    /// None of them.
    pub const NONE: Self = Self(0.0);

    /// From 0, none, to 1, all. `None` for anything else.
    #[must_use]
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self(share))
    }

    /// Whether the trace is among them. Each service that asks with the same share gets the same answer.
    fn contains(self, trace_id: TraceId) -> bool {
        let sampler = Sampler::TraceIdRatioBased(self.0);
        let result = sampler.should_sample(None, trace_id, "", &opentelemetry::trace::SpanKind::Server, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }
}

/// Which good traces are kept, and from when on one counts as slow, as the command line says it.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingConfig {
    /// Probes.
    pub probes: Share,
    /// Probes that take so long are kept all.
    pub slow_probe: Duration,
    /// Every other request; `None`: as `OTEL_TRACES_SAMPLER` says, else all.
    pub requests: Option<Share>,
    /// Requests that take so long are kept all.
    pub slow_request: Duration,
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self {
            probes: Share::ALL,
            slow_probe: Duration::from_secs(1),
            requests: None,
            slow_request: Duration::from_secs(30),
        }
    }
}

/// What a caller's own decision, in the flags of `traceparent`, is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Callers {
    /// It stands in the place of the share.
    Obeyed,
    /// The share alone decides.
    Ignored,
}

/// How a trace ended, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// A probe.
    Probe(ProbeOutcome),
    /// A user request.
    Request(RequestOutcome),
}

impl Ending {
    fn failed(self) -> bool {
        match self {
            // Starting and draining servers are asked again and again, and say the same each time.
            Self::Probe(outcome) => {
                matches!(outcome, ProbeOutcome::Timeout | ProbeOutcome::EngineDead | ProbeOutcome::Error)
            }
            Self::Request(outcome) => outcome == RequestOutcome::Error,
        }
    }
}

/// What a trace is about, known from its first moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Probe,
    Request,
}

impl Kind {
    /// From the root span.
    pub fn of(name: &str, attributes: &[KeyValue]) -> Self {
        let is_probe = |route: &str| ProbeEndpoint::ALL.iter().any(|endpoint| endpoint.as_str() == route);
        match text(attributes, HTTP_ROUTE) {
            Some(route) if is_probe(route) => Self::Probe,
            None if name == SELF_PROBE => Self::Probe,
            _ => Self::Request,
        }
    }
}

/// What holds for one kind of traces.
#[derive(Debug)]
pub(super) struct Rule {
    pub share: Share,
    pub slow: Duration,
    pub callers: Callers,
}

/// How many of the good traces are kept, changed while the server runs. Failed and slow ones are kept at each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum TraceLevel {
    /// None, whatever callers decided.
    Off,
    /// The shares of the command line.
    Shares,
    /// Each, where no caller decided otherwise.
    All,
}

/// The rules, and what they must remember.
#[derive(Debug)]
pub(super) struct Policy {
    probes: Rule,
    requests: Rule,
    /// A [`TraceLevel`] as a number.
    level: AtomicU8,
    /// The server's status has changed, and no probe has told of it so far.
    changed: AtomicBool,
}

impl Policy {
    pub fn new(probes: Rule, requests: Rule) -> Self {
        Self { probes, requests, level: AtomicU8::new(TraceLevel::Shares as u8), changed: AtomicBool::new(false) }
    }

    /// Changes how many good traces are kept, of those that begin from now on.
    pub fn set_level(&self, level: TraceLevel) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// The server's status has changed: the next probe tells what it is like now.
    pub fn status_changed(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Whether a trace will be kept in any case. `caller_keeps`: what a remote parent decided, if there is one.
    pub fn at_start(&self, kind: Kind, trace_id: TraceId, caller_keeps: Option<bool>) -> bool {
        let (rule, level) = (self.rule(kind), self.level.load(Ordering::Relaxed));
        match caller_keeps {
            _ if level == TraceLevel::Off as u8 => false,
            Some(keeps) if rule.callers == Callers::Obeyed => keeps,
            _ => level == TraceLevel::All as u8 || rule.share.contains(trace_id),
        }
    }

    /// Whether a trace is kept, now that its root has ended. A caller that said no is overruled by a failure or by
    /// slowness, which are about this server; a change of status is not reason enough.
    pub fn at_end(&self, root: &SpanData) -> bool {
        let kind = Kind::of(&root.name, &root.attributes);
        let sure = root.span_context.is_sampled();
        let may_tell = kind == Kind::Probe && (sure || !root.parent_span_is_remote);
        let tells = may_tell && self.changed.swap(false, Ordering::Relaxed);
        let took = root.end_time.duration_since(root.start_time).unwrap_or_default();
        sure || tells || failed(root) || took >= self.rule(kind).slow
    }

    /// [`Self::at_end`], for somebody who knows the end before the root does.
    pub fn foresees(&self, is_sampled: bool, ending: Ending, took: Duration) -> bool {
        let rule = match ending {
            Ending::Probe(_) => &self.probes,
            Ending::Request(_) => &self.requests,
        };
        is_sampled || ending.failed() || took >= rule.slow
    }

    fn rule(&self, kind: Kind) -> &Rule {
        match kind {
            Kind::Probe => &self.probes,
            Kind::Request => &self.requests,
        }
    }
}

/// A probe by its outcome, anything else by the status of its span, which is an error from 500 on.
fn failed(root: &SpanData) -> bool {
    let outcome = text(&root.attributes, PROBE_OUTCOME)
        .and_then(|text| ProbeOutcome::ALL.iter().find(|outcome| outcome.as_str() == text));
    match outcome {
        Some(outcome) => Ending::Probe(*outcome).failed(),
        None => matches!(root.status, Status::Error { .. }),
    }
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let value = attributes.iter().find(|attribute| attribute.key.as_str() == key).map(|attribute| &attribute.value);
    match value {
        Some(Value::String(text)) => Some(text.as_str()),
        _ => None,
    }
}
