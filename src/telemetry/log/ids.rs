//! Remembers on each span which request or probe it belongs to, for the log lines inside it.

use std::fmt::Debug;

use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::{LookupSpan, Scope};

use crate::telemetry::spans::names::{PROBE_ID, REQUEST_RID};

/// What a span is about.
#[derive(Debug, Clone, Default)]
pub(super) struct SpanIds {
    /// The request.
    pub rid: Option<String>,
    /// The probe.
    pub probe_id: Option<String>,
}

impl Visit for SpanIds {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            REQUEST_RID => self.rid = Some(value.to_owned()),
            PROBE_ID => self.probe_id = Some(value.to_owned()),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// Keeps [`SpanIds`] in the extensions of each span that has any.
pub(super) struct RememberIds;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for RememberIds {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut ids = SpanIds::default();
        attributes.record(&mut ids);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(ids);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(ids) = span.extensions_mut().get_mut::<SpanIds>()
        {
            values.record(ids);
        }
    }
}

/// The ids of the innermost span of `scope`, else those of the spans around it.
pub(super) fn of_scope<S: for<'a> LookupSpan<'a>>(scope: Option<Scope<'_, S>>) -> SpanIds {
    let mut ids = SpanIds::default();
    for span in scope.into_iter().flatten() {
        if let Some(found) = span.extensions().get::<SpanIds>() {
            ids.rid = ids.rid.or_else(|| found.rid.clone());
            ids.probe_id = ids.probe_id.or_else(|| found.probe_id.clone());
        }
    }
    ids
}
