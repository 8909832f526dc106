//! The first half of the decision, when a span begins: surely kept, or to be judged by how its trace ends.

use std::sync::Arc;

use opentelemetry::trace::{Link, SpanContext, SpanKind, TraceContextExt, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, ShouldSample};

use super::sampling::{Kind, Policy};

/// Records everything: a trace that is not sampled yet may still fail. Spans below ours share the root's fate.
#[derive(Debug, Clone)]
pub(super) struct RecordAll(pub Arc<Policy>);

impl ShouldSample for RecordAll {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        _kind: &SpanKind,
        attributes: &[KeyValue],
        _links: &[Link],
    ) -> SamplingResult {
        let parent = parent.map(|context| context.span().span_context().clone()).filter(SpanContext::is_valid);
        let sure = match &parent {
            Some(ours) if !ours.is_remote() => ours.is_sampled(),
            caller => {
                self.0.at_start(Kind::of(name, attributes), trace_id, caller.as_ref().map(SpanContext::is_sampled))
            }
        };
        SamplingResult {
            decision: if sure { SamplingDecision::RecordAndSample } else { SamplingDecision::RecordOnly },
            attributes: Vec::new(),
            trace_state: parent.map(|parent| parent.trace_state().clone()).unwrap_or_default(),
        }
    }
}
