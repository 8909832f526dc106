//! One probe or request under way, and its hops as spans.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt};

use super::timeline::{HopRecord, Timeline};
use crate::clock::{MonoNanos, WallAnchor};
use crate::io_struct::{Purpose, Rid, StepInfo};
use crate::telemetry::labels::{Hop, ProbeBranch};
use crate::telemetry::spans::names::MAX_LINKS;
use crate::telemetry::spans::{HopSpan, RequestLink, StepAttributes};

/// A probe waits for the step in flight and perhaps for the next; who waits longer waits for the same requests.
const MAX_BATCHES: usize = 4;

/// One probe or request under way.
#[derive(Debug, Clone)]
pub struct Flight {
    /// What it is known by, beside its rid.
    pub(super) serial: u64,
    /// Why it exists.
    pub purpose: Purpose,
    /// The span that its hops are children of.
    pub(super) root: Context,
    /// When it was submitted.
    pub began: MonoNanos,
    /// Its hops so far.
    pub timeline: Timeline,
    /// The scheduler's decision, if it is a probe and the decision is known.
    pub branch: ProbeBranch,
    /// The step that ran it.
    pub step: Option<StepInfo>,
    /// The batches that it waited for, if it is a probe.
    held_by: Vec<Arc<[Holder]>>,
    /// How long its output took to become text.
    detokenizing: Option<Duration>,
}

/// A request that a probe waits for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Holder {
    root: SpanContext,
    rid: Rid,
}

impl Flight {
    /// One that begins.
    pub(super) fn new(serial: u64, purpose: Purpose, root: Context, began: MonoNanos) -> Self {
        Self {
            serial,
            purpose,
            root,
            began,
            timeline: Timeline::default(),
            branch: ProbeBranch::None,
            step: None,
            held_by: Vec::new(),
            detokenizing: None,
        }
    }

    /// The rids of the requests that a probe waited for: those in the batch that was in flight when it arrived, and in
    /// those that began before it was answered. The requests of other frontends are not known here.
    #[must_use]
    pub fn waited_for(&self) -> Vec<String> {
        self.holders().into_iter().map(|holder| holder.rid.to_string()).collect()
    }

    pub(super) fn as_holder(&self, rid: &Rid) -> Holder {
        Holder { root: self.root.span().span_context().clone(), rid: rid.clone() }
    }

    pub(super) fn held_by(&mut self, holders: &Arc<[Holder]>) {
        if !holders.is_empty() && self.held_by.len() < MAX_BATCHES {
            self.held_by.push(Arc::clone(holders));
        }
    }

    /// A stop string is found here: then nobody has said before that this is the last of the output.
    pub(super) fn detokenized(&mut self, began: MonoNanos, at: MonoNanos, spent: Duration) {
        if !self.timeline.is_at(Hop::Detokenizer) {
            self.timeline.enter(Hop::Detokenizer, began);
        }
        self.timeline.leave(Hop::Detokenizer, at);
        self.detokenizing = (self.purpose == Purpose::Serve).then_some(spent);
    }

    /// The hops as spans; what is under way has come as far as step `newest_step`.
    pub(super) fn spans(&self, anchor: &WallAnchor, newest_step: u64) -> Vec<HopSpan> {
        let hops = self.timeline.hops();
        let waiting = |hop| hops.iter().rposition(|record| record.hop == hop);
        let linked = waiting(Hop::ReturnHealthCheckIpcs).or_else(|| waiting(Hop::Inbox));
        let spans = hops.iter().enumerate().map(|(index, record)| HopSpan {
            cut: record.cut,
            branch: (record.hop == Hop::ProcessInput && self.branch != ProbeBranch::None).then_some(self.branch),
            parent: record.parent,
            step: self.step.filter(|_| record.hop == Hop::Forward).map(step_attributes),
            steps: steps(record, newest_step),
            chunks: (record.hop == Hop::Prefill).then_some(record.chunks),
            spent: self.detokenizing.filter(|_| record.hop == Hop::Detokenizer),
            events: record.events.iter().map(|(at, event)| (anchor.wall(*at), *event)).collect(),
            links: if linked == Some(index) { self.links() } else { Vec::new() },
            engine_pid: record.engine,
            ..HopSpan::new(record.hop, anchor.wall(record.entered), record.left.map(|left| anchor.wall(left)))
        });
        spans.collect()
    }

    fn links(&self) -> Vec<RequestLink> {
        let link = |holder: &Holder| RequestLink { root: holder.root.clone(), rid: holder.rid.to_string() };
        self.holders().into_iter().map(link).collect()
    }

    /// Each once, at most [`MAX_LINKS`].
    fn holders(&self) -> Vec<&Holder> {
        let mut once: Vec<&Holder> = Vec::new();
        for holder in self.held_by.iter().flat_map(|batch| batch.iter()) {
            if once.len() < MAX_LINKS && !once.contains(&holder) {
                once.push(holder);
            }
        }
        once
    }
}

/// First and last; `None` if no step had begun before it ended.
fn steps(record: &HopRecord, newest_step: u64) -> Option<(u64, u64)> {
    let (first, last) = record.steps?;
    let last = last.unwrap_or(newest_step);
    (first <= last).then_some((first, last))
}

fn step_attributes(step: StepInfo) -> StepAttributes {
    StepAttributes { number: step.number, phase: step.phase, tokens: step.tokens, requests: step.requests }
}
