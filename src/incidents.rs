//! What is written down when something went wrong: one report for each death of an engine and for each cause of failed
//! probes, for those who come hours later.

pub mod journal;
mod store;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::clock::{MonoNanos, WallAnchor};
use crate::io_struct::{EngineEvent, Heartbeat};
use crate::probe_ledger::autopsy::Autopsy;
use crate::telemetry::labels::{Cause, Hop};
use journal::{Entry, Journal};
use store::Store;

/// So many reports are kept.
pub const KEPT_INCIDENTS: usize = 32;

/// So many lines of the engine's standard error go into a report.
pub const STDERR_LINES: usize = 60;

/// One report.
#[derive(Debug, Clone, Serialize)]
pub struct Incident {
    /// `<milliseconds since the Unix epoch>-<cause>`, also the name of its file.
    pub id: String,
    /// Seconds since the Unix epoch.
    pub at: f64,
    /// What it is about.
    pub cause: Cause,
    /// The sick hop, as far as a probe has shown it.
    pub stalled_at: Option<Hop>,
    /// In a sentence.
    pub reason: String,
    /// Failed probes with this cause until a probe succeeded again; 0 if only a death was seen.
    pub failed_probes: u64,
    /// The engine's end: exit code or signal, for a death.
    pub exit_status: Option<String>,
    /// Requests that ended with an error by it.
    pub requests_failed: usize,
    /// Requests without output that another engine is sent.
    pub requests_kept: usize,
    /// The engine's last heartbeat.
    pub heartbeat: Option<Heartbeat>,
    /// What the engine said last, oldest first.
    pub last_events: Vec<Entry>,
    /// The last steps, oldest first.
    pub last_steps: Vec<Entry>,
    /// The last lines of the engine's standard error.
    pub stderr_tail: Vec<String>,
    /// The first probe that failed.
    pub probe: Option<Autopsy>,
}

/// An engine's end, as its supervisor saw it.
#[derive(Debug, Clone, Default)]
pub struct Death {
    /// In a sentence.
    pub reason: String,
    /// Exit code or signal.
    pub exit_status: Option<String>,
    /// Requests that ended with an error.
    pub requests_failed: usize,
    /// Requests that another engine is sent.
    pub requests_kept: usize,
    /// The last lines of its standard error.
    pub stderr_tail: Vec<String>,
}

/// All reports, and what goes into the next one.
pub struct IncidentLog {
    journal: Mutex<Journal>,
    inner: Mutex<Inner>,
    anchor: WallAnchor,
    on_report: OnReport,
}

/// Called with the cause of each new report.
type OnReport = Box<dyn Fn(Cause) + Send + Sync>;

struct Inner {
    store: Store,
    /// The reports of the present episode: probes have failed and none has succeeded since.
    episode: Vec<Cause>,
}

impl IncidentLog {
    /// Reports go into `folder`, where those of earlier runs are; `None` keeps them in memory alone. `on_report` hears of
    /// each new one.
    pub fn new(folder: Option<PathBuf>, on_report: impl Fn(Cause) + Send + Sync + 'static) -> Self {
        Self {
            journal: Mutex::default(),
            inner: Mutex::new(Inner { store: Store::open(folder), episode: Vec::new() }),
            anchor: WallAnchor::now(),
            on_report: Box::new(on_report),
        }
    }

    /// The engine said something, at `at`.
    pub fn note(&self, event: &EngineEvent, at: MonoNanos) {
        self.journal().note(event, at);
    }

    /// An engine is gone.
    pub fn engine_died(&self, death: Death) {
        let incident = Incident {
            exit_status: death.exit_status,
            requests_failed: death.requests_failed,
            requests_kept: death.requests_kept,
            stderr_tail: death.stderr_tail,
            ..self.blank(Cause::EngineDead, death.reason)
        };
        self.inner().store.add(incident);
        (self.on_report)(Cause::EngineDead);
    }

    /// A probe failed. The first of its cause in an episode is reported, the others are counted there. Whoever probes
    /// while the engine is dead adds to the report of its death.
    pub fn probe_failed(&self, autopsy: &Autopsy) {
        let Some(cause) = autopsy.cause else { return };
        let report = Incident {
            stalled_at: autopsy.stalled_at,
            failed_probes: 1,
            probe: Some(autopsy.clone()),
            ..self.blank(cause, autopsy.cause_detail.clone().unwrap_or_default())
        };
        let mut inner = self.inner();
        let known = inner.episode.contains(&cause) || cause == Cause::EngineDead;
        if !known || !inner.store.count_probe(&report) {
            inner.store.add(report);
            (self.on_report)(cause);
        }
        if !known {
            inner.episode.push(cause);
        }
    }

    /// A probe succeeded: the next failure is a new incident.
    pub fn probe_succeeded(&self) {
        self.inner().episode.clear();
    }

    /// The reports, newest first.
    #[must_use]
    pub fn recent(&self) -> Vec<Arc<serde_json::Value>> {
        self.inner().store.recent()
    }

    fn blank(&self, cause: Cause, reason: String) -> Incident {
        let (now, journal) = (MonoNanos::now(), self.journal());
        let at = self.anchor.unix_seconds(now);
        Incident {
            id: format!("{:.0}-{cause}", at * 1e3),
            at,
            cause,
            stalled_at: None,
            reason,
            failed_probes: 0,
            exit_status: None,
            requests_failed: 0,
            requests_kept: 0,
            heartbeat: journal.heartbeat,
            last_events: journal.events(now),
            last_steps: journal.steps(now),
            stderr_tail: Vec::new(),
            probe: None,
        }
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
