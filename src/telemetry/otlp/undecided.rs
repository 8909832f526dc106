//! Spans of traces that are kept or not by how they end, until they have.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::SpanData;

use crate::telemetry::spans::names::Side;

/// How much may wait, and for how many traces the decision is remembered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Traces that have not ended.
    pub traces: usize,
    /// Their spans.
    pub spans: usize,
    /// Traces that have ended, for spans that come after their root.
    pub decided: usize,
}

impl Default for Limits {
    /// A few megabytes, and more requests at once than one machine serves.
    fn default() -> Self {
        Self { traces: 2048, spans: 16_384, decided: 1024 }
    }
}

/// What becomes of a span that has ended below its root.
#[derive(Debug)]
pub(super) enum Fate {
    /// It waits for the root.
    Waits,
    /// The root has ended before, and was kept.
    Kept(Box<SpanData>),
    /// The root has ended before, and was not kept.
    LeftOut,
    /// There is no room for it, or there was none for its trace.
    NoRoom,
}

/// The traces. Each is known by its root in this process: a caller may send several requests in one trace, and each is
/// judged by its own end.
#[derive(Debug)]
pub(super) struct Undecided {
    limits: Limits,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    traces: HashMap<SpanId, Trace>,
    root_of: HashMap<SpanId, SpanId>,
    /// Roots of those that have ended, oldest first.
    decided: VecDeque<SpanId>,
    held: usize,
}

#[derive(Debug, Default)]
struct Trace {
    members: Vec<SpanId>,
    held: Vec<(Side, SpanData)>,
    kept: Option<bool>,
}

impl Undecided {
    pub fn new(limits: Limits) -> Self {
        Self { limits, book: Mutex::default() }
    }

    /// A trace begins, unless too many are under way.
    pub fn begin(&self, root: SpanId) {
        let mut book = self.book();
        if book.traces.len() - book.decided.len() < self.limits.traces {
            book.traces.insert(root, Trace::default());
        }
    }

    /// A span begins below another one.
    pub fn join(&self, span: SpanId, parent: SpanId) {
        let mut book = self.book();
        let root = book.root_of.get(&parent).copied().unwrap_or(parent);
        if let Some(trace) = book.traces.get_mut(&root) {
            trace.members.push(span);
            book.root_of.insert(span, root);
        }
    }

    /// A span below a root has ended.
    pub fn end(&self, side: Side, span: SpanData) -> Fate {
        let mut book = self.book();
        let has_room = book.held < self.limits.spans;
        let Some(root) = book.root_of.get(&span.span_context.span_id()).copied() else { return Fate::NoRoom };
        let Some(trace) = book.traces.get_mut(&root) else { return Fate::NoRoom };
        match trace.kept {
            Some(true) => Fate::Kept(Box::new(span)),
            Some(false) => Fate::LeftOut,
            None if has_room => {
                trace.held.push((side, span));
                book.held += 1;
                Fate::Waits
            }
            None => Fate::NoRoom,
        }
    }

    /// The root has ended and is kept or not; the spans below it so far.
    pub fn decide(&self, root: SpanId, kept: bool) -> Vec<(Side, SpanData)> {
        let mut book = self.book();
        let Some(trace) = book.traces.get_mut(&root) else { return Vec::new() };
        trace.kept = Some(kept);
        let held = std::mem::take(&mut trace.held);
        book.held -= held.len();
        book.decided.push_back(root);
        if book.decided.len() > self.limits.decided {
            book.forget_oldest();
        }
        held
    }

    /// The server ends before these traces do: nothing waits any more. How many spans did.
    pub fn abandon(&self) -> usize {
        let mut book = self.book();
        book.traces.values_mut().for_each(|trace| trace.held.clear());
        std::mem::take(&mut book.held)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn forget_oldest(&mut self) {
        let Some(trace) = self.decided.pop_front().and_then(|root| self.traces.remove(&root)) else { return };
        for member in trace.members {
            self.root_of.remove(&member);
        }
    }
}

#[cfg(test)]
mod tests;
