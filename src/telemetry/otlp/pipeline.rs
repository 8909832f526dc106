//! A span's way after its end: judged with its trace, counted, cut to size and queued. Never waits for anybody.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::{Span as _, SpanContext, SpanId, TraceContextExt};
use opentelemetry::{Array, Context, KeyValue, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanProcessor};

use super::account::Account;
use super::sampling::Policy;
use super::undecided::{Fate, Undecided};
use crate::telemetry::labels::SpanLoss;
use crate::telemetry::spans::bounded;
use crate::telemetry::spans::names::Side;

/// Both services' way to the collector. One for both, because a trace is kept or left out as a whole.
#[derive(Debug)]
pub(super) struct Pipeline {
    /// Which traces are kept.
    pub policy: Arc<Policy>,
    /// Where each span is.
    pub account: Arc<Account>,
    /// Spans of traces that have not ended.
    pub undecided: Undecided,
    /// The most bytes of a text.
    pub longest_text: usize,
    /// A queue and a thread for each service.
    pub frontend: BatchSpanProcessor,
    /// The engine's.
    pub engine: BatchSpanProcessor,
}

impl Pipeline {
    fn root_ended(&self, side: Side, root: SpanData) {
        let keep = self.policy.at_end(&root);
        if root.span_context.is_sampled() {
            return self.queue(side, root);
        }
        let below = self.undecided.decide(root.span_context.span_id(), keep);
        if !keep {
            return self.account.unsampled(below.len() + 1);
        }
        for (side, span) in below.into_iter().chain([(side, root)]) {
            self.queue(side, sampled(span));
        }
    }

    fn ended_below_a_root(&self, side: Side, span: SpanData) {
        if span.span_context.is_sampled() {
            return self.queue(side, span);
        }
        match self.undecided.end(side, span) {
            Fate::Waits => {}
            Fate::Kept(span) => self.queue(side, sampled(*span)),
            Fate::LeftOut => self.account.unsampled(1),
            Fate::NoRoom => self.account.lost(SpanLoss::BufferFull, 1),
        }
    }

    fn queue(&self, side: Side, mut span: SpanData) {
        // The batch processor drops silently when its queue is full, so it is never given more than it can hold.
        if self.account.admit() {
            cut(&mut span, self.longest_text);
            self.batches(side).on_end(span);
        }
    }

    fn batches(&self, side: Side) -> &BatchSpanProcessor {
        match side {
            Side::Frontend => &self.frontend,
            Side::Engine => &self.engine,
        }
    }
}

/// One service's entrance to the pipeline.
#[derive(Debug)]
pub(super) struct Entrance {
    /// Whose spans come in here.
    pub side: Side,
    /// Where they go.
    pub pipeline: Arc<Pipeline>,
}

impl SpanProcessor for Entrance {
    fn on_start(&self, span: &mut Span, context: &Context) {
        if span.span_context().is_sampled() {
            return; // kept in any case: nothing to remember
        }
        let id = span.span_context().span_id();
        let parent = context.span().span_context().clone();
        if !parent.is_valid() || parent.is_remote() {
            self.pipeline.undecided.begin(id);
        } else {
            self.pipeline.undecided.join(id, parent.span_id());
        }
    }

    fn on_end(&self, span: SpanData) {
        if span.parent_span_id == SpanId::INVALID || span.parent_span_is_remote {
            self.pipeline.root_ended(self.side, span);
        } else {
            self.pipeline.ended_below_a_root(self.side, span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.pipeline.batches(self.side).force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.pipeline.batches(self.side).shutdown_with_timeout(timeout)
    }
}

/// The span as one that was sampled from the start: what follows knows no other reason to export it.
fn sampled(mut span: SpanData) -> SpanData {
    let context = &span.span_context;
    span.span_context = SpanContext::new(
        context.trace_id(),
        context.span_id(),
        context.trace_flags().with_sampled(true),
        context.is_remote(),
        context.trace_state().clone(),
    );
    span
}

/// No text is longer than `limit` bytes, whoever wrote it.
fn cut(span: &mut SpanData, limit: usize) {
    cut_values(&mut span.attributes, limit);
    for event in &mut span.events.events {
        if event.name.len() > limit {
            event.name = bounded(&event.name, limit).to_owned().into();
        }
        cut_values(&mut event.attributes, limit);
    }
}

fn cut_values(attributes: &mut [KeyValue], limit: usize) {
    for KeyValue { value, .. } in attributes {
        match value {
            Value::String(text) if text.as_str().len() > limit => {
                *text = bounded(text.as_str(), limit).to_owned().into();
            }
            Value::Array(Array::String(texts)) => {
                for text in texts.iter_mut().filter(|text| text.as_str().len() > limit) {
                    *text = bounded(text.as_str(), limit).to_owned().into();
                }
            }
            _ => {}
        }
    }
}
