//! The last probe's verdict, kept for those who cannot wait for a probe.

use crate::clock::MonoNanos;
use crate::telemetry::labels::{Cause, Hop, ProbeOutcome};

/// What the last probe that tried the runtime concluded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastVerdict {
    /// The verdict.
    pub healthy: bool,
    /// How the probe ended.
    pub outcome: ProbeOutcome,
    /// Why, for people.
    pub reason: String,
    /// A failed probe: the hop that never finished.
    pub stalled_at: Option<Hop>,
    /// A failed probe: why.
    pub cause: Option<Cause>,
    /// When it fell.
    pub at: MonoNanos,
}

impl LastVerdict {
    /// Does a probe that ended so say something of the runtime? Short cuts never asked it, and a client that left did
    /// not wait for the answer.
    #[must_use]
    pub const fn counts(outcome: ProbeOutcome) -> bool {
        match outcome {
            ProbeOutcome::Ok | ProbeOutcome::Timeout | ProbeOutcome::EngineDead | ProbeOutcome::Error => true,
            ProbeOutcome::Starting
            | ProbeOutcome::Draining
            | ProbeOutcome::Shortcut
            | ProbeOutcome::Paused
            | ProbeOutcome::ClientGone => false,
        }
    }
}
