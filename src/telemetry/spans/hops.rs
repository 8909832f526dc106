//! The hops of a probe or request, written from records by whoever survived: the trace is whole even if the engine is
//! not.

use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Event, Link, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;

use super::names::{
    CHUNK_TOKENS, DETOKENIZER_SECONDS, EVENT_ABORT, EVENT_ENGINE_RESTART, EVENT_FIRST_TOKEN, EVENT_PREFILL_CHUNK,
    EVENT_RETRACTION, PREFILL_CHUNKS, PROBE_BRANCH, PROCESS_PID, REQUEST_RID, STEP_FIRST, STEP_LAST, STEP_NUMBER,
    STEP_PHASE, STEP_REQUESTS, STEP_TOKENS, Side, UNFINISHED,
};
use super::{MAX_TEXT, bounded};
use crate::telemetry::labels::{Hop, ProbeBranch, StepPhase};
use crate::telemetry::otlp::Tracers;

/// One hop as it was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct HopSpan {
    /// Which.
    pub hop: Hop,
    /// When it began.
    pub entered: SystemTime,
    /// When it ended; `None` if it had not when the verdict fell.
    pub left: Option<SystemTime>,
    /// It ended with its engine, not by itself: as unfinished as one without an end.
    pub cut: bool,
    /// The scheduler's decision, on the hop that made it.
    pub branch: Option<ProbeBranch>,
    /// The index of an earlier hop that this one is inside of; `None` for the root.
    pub parent: Option<usize>,
    /// The step that did it, where there was one.
    pub step: Option<StepAttributes>,
    /// The first and the last step of a hop that takes several.
    pub steps: Option<(u64, u64)>,
    /// How many prompt chunks it took, those beyond its events counted.
    pub chunks: Option<u32>,
    /// How much of the whole output's time was spent there, where only the last part of it is the hop.
    pub spent: Option<Duration>,
    /// What happened meanwhile.
    pub events: Vec<(SystemTime, HopEvent)>,
    /// The requests that it waited for.
    pub links: Vec<RequestLink>,
    /// The engine's process; `None`: that of the engine that started last.
    pub engine_pid: Option<u32>,
}

impl HopSpan {
    /// A hop of which nothing but its time is known.
    #[must_use]
    pub fn new(hop: Hop, entered: SystemTime, left: Option<SystemTime>) -> Self {
        Self {
            hop,
            entered,
            left,
            cut: false,
            branch: None,
            parent: None,
            step: None,
            steps: None,
            chunks: None,
            spent: None,
            events: Vec::new(),
            links: Vec::new(),
            engine_pid: None,
        }
    }
}

/// Something that happened inside a hop. Chunks are events and no spans: a chunk takes as long as its step, which it
/// shares with others, so a span would say nothing about the request, and a long prompt would be a hundred of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HopEvent {
    /// The step with a chunk of the prompt begins.
    PrefillChunk {
        /// The step's number.
        step: u64,
        /// Tokens of the chunk.
        tokens: u32,
    },
    /// The first token is there.
    FirstToken,
    /// The KV pages were given back, to be computed again.
    Retraction,
    /// The request was sent to another engine.
    EngineRestart,
    /// Nobody wants the rest.
    Abort,
}

/// A request in another trace.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestLink {
    /// Its root span.
    pub root: SpanContext,
    /// Its id.
    pub rid: String,
}

/// What a step worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepAttributes {
    /// Its number, from 1.
    pub number: u64,
    /// What it worked on.
    pub phase: StepPhase,
    /// Tokens in the batch.
    pub tokens: u32,
    /// Sequences in the batch.
    pub requests: u32,
}

/// Writes `hops` as spans below `root`. One that had not ended is an error and reaches to the verdict.
pub fn write_hops(tracers: &Tracers, root: &Context, hops: &[HopSpan], verdict_at: SystemTime) {
    let mut written: Vec<(Context, SystemTime)> = Vec::with_capacity(hops.len());
    for hop in hops {
        let parent = hop.parent.and_then(|index| written.get(index)).map_or(root, |(context, _)| context);
        let ends_at = hop.left.unwrap_or(verdict_at).max(hop.entered);
        let unfinished = hop.cut || hop.left.is_none();
        let context = start(tracers, parent, hop);
        if unfinished {
            context.span().set_status(Status::error(UNFINISHED));
        }
        written.push((context, ends_at));
    }
    for (context, ends_at) in written {
        context.span().end_with_timestamp(ends_at);
    }
}

fn start(tracers: &Tracers, parent: &Context, hop: &HopSpan) -> Context {
    let builder = SpanBuilder::from_name(hop.hop.as_str())
        .with_kind(SpanKind::Internal)
        .with_start_time(hop.entered)
        .with_attributes(attributes(tracers, hop))
        .with_events(hop.events.iter().map(|(at, what)| event(*at, *what)).collect())
        .with_links(hop.links.iter().map(link).collect());
    let tracer: &SdkTracer = match Side::of(hop.hop) {
        Side::Frontend => tracers.frontend(),
        Side::Engine => tracers.engine(),
    };
    parent.with_span(tracer.build_with_context(builder, parent))
}

fn attributes(tracers: &Tracers, hop: &HopSpan) -> Vec<KeyValue> {
    let mut attributes = Vec::new();
    if let Some(branch) = hop.branch {
        attributes.push(KeyValue::new(PROBE_BRANCH, branch.as_str()));
    }
    if let Some(step) = hop.step {
        attributes.push(KeyValue::new(STEP_NUMBER, int(step.number)));
        attributes.push(KeyValue::new(STEP_PHASE, step.phase.as_str()));
        attributes.push(KeyValue::new(STEP_TOKENS, i64::from(step.tokens)));
        attributes.push(KeyValue::new(STEP_REQUESTS, i64::from(step.requests)));
    }
    if let Some((first, last)) = hop.steps {
        attributes.push(KeyValue::new(STEP_FIRST, int(first)));
        attributes.push(KeyValue::new(STEP_LAST, int(last)));
    }
    if let Some(chunks) = hop.chunks {
        attributes.push(KeyValue::new(PREFILL_CHUNKS, i64::from(chunks)));
    }
    if let Some(spent) = hop.spent {
        attributes.push(KeyValue::new(DETOKENIZER_SECONDS, spent.as_secs_f64()));
    }
    if let (Side::Engine, Some(pid)) = (Side::of(hop.hop), hop.engine_pid.or_else(|| tracers.engine_pid())) {
        attributes.push(KeyValue::new(PROCESS_PID, i64::from(pid)));
    }
    attributes
}

fn event(at: SystemTime, what: HopEvent) -> Event {
    let (name, attributes) = match what {
        HopEvent::PrefillChunk { step, tokens } => {
            let attributes =
                vec![KeyValue::new(STEP_NUMBER, int(step)), KeyValue::new(CHUNK_TOKENS, i64::from(tokens))];
            (EVENT_PREFILL_CHUNK, attributes)
        }
        HopEvent::FirstToken => (EVENT_FIRST_TOKEN, Vec::new()),
        HopEvent::Retraction => (EVENT_RETRACTION, Vec::new()),
        HopEvent::EngineRestart => (EVENT_ENGINE_RESTART, Vec::new()),
        HopEvent::Abort => (EVENT_ABORT, Vec::new()),
    };
    Event::new(name, at, attributes, 0)
}

fn link(request: &RequestLink) -> Link {
    let rid = KeyValue::new(REQUEST_RID, bounded(&request.rid, MAX_TEXT).to_owned());
    Link::new(request.root.clone(), vec![rid], 0)
}

fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
