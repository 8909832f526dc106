//! The hops of a probe or request, written from records by whoever survived: the trace is whole even if the engine is
//! not.

use std::time::SystemTime;

use opentelemetry::trace::{SpanBuilder, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;

use super::names::{PROBE_BRANCH, PROCESS_PID, STEP_NUMBER, STEP_PHASE, STEP_REQUESTS, STEP_TOKENS, Side, UNFINISHED};
use crate::telemetry::labels::{Hop, ProbeBranch, StepPhase};
use crate::telemetry::otlp::Tracers;

/// One hop as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopSpan {
    /// Which.
    pub hop: Hop,
    /// When it began.
    pub entered: SystemTime,
    /// When it ended; `None` if it had not when the verdict fell.
    pub left: Option<SystemTime>,
    /// The scheduler's decision, on the hop that made it.
    pub branch: Option<ProbeBranch>,
    /// The index of an earlier hop that this one is inside of; `None` for the root.
    pub parent: Option<usize>,
    /// The step that did it, where there was one.
    pub step: Option<StepAttributes>,
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
    let mut written: Vec<Context> = Vec::with_capacity(hops.len());
    for hop in hops {
        let parent = hop.parent.and_then(|index| written.get(index)).unwrap_or(root);
        let context = start(tracers, parent, hop);
        written.push(context);
    }
    for (context, hop) in written.iter().zip(hops) {
        if hop.left.is_none() {
            context.span().set_status(Status::error(UNFINISHED));
        }
        context.span().end_with_timestamp(hop.left.unwrap_or(verdict_at).max(hop.entered));
    }
}

fn start(tracers: &Tracers, parent: &Context, hop: &HopSpan) -> Context {
    let builder = SpanBuilder::from_name(hop.hop.as_str())
        .with_kind(SpanKind::Internal)
        .with_start_time(hop.entered)
        .with_attributes(attributes(tracers, hop));
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
        attributes.push(KeyValue::new(STEP_NUMBER, i64::try_from(step.number).unwrap_or(i64::MAX)));
        attributes.push(KeyValue::new(STEP_PHASE, step.phase.as_str()));
        attributes.push(KeyValue::new(STEP_TOKENS, i64::from(step.tokens)));
        attributes.push(KeyValue::new(STEP_REQUESTS, i64::from(step.requests)));
    }
    if let (Side::Engine, Some(pid)) = (Side::of(hop.hop), tracers.engine_pid()) {
        attributes.push(KeyValue::new(PROCESS_PID, i64::from(pid)));
    }
    attributes
}
