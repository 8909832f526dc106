//! What became of the health probes: the series that an orchestrator's restarts can be explained with.

use std::time::Duration;

use prometheus::{Error, HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry};

use super::declare::{InFlight, counter, counter_vec, exemplar_histogram, gauge, histogram_vec};
use super::exemplar::{ExemplarHistogram, Exemplars, TraceRef};
use crate::telemetry::labels::{Cause, Hop, ProbeBranch, ProbeEndpoint, ProbeEvidence, ProbeOutcome};

/// Bucket edges in seconds. The default limit of a probe, 20 s, is an edge: without it a p99 near the limit is a guess.
const DURATION_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0];

/// Bucket edges in seconds: most hops take microseconds, a sick one lasts until the limit.
const HOP_BUCKETS: &[f64] = &[0.0001, 0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0];

/// The hops at which a probe can stall; the other hops belong to user requests.
const PROBE_HOPS: &[Hop] = &[
    Hop::Http,
    Hop::Submit,
    Hop::IpcToEngine,
    Hop::Inbox,
    Hop::ProcessInput,
    Hop::Queue,
    Hop::ReturnHealthCheckIpcs,
    Hop::RunBatch,
    Hop::Forward,
    Hop::IpcToFrontend,
    Hop::Detokenizer,
    Hop::Receive,
];

/// How one probe ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeEnd {
    /// Where it came in.
    pub endpoint: ProbeEndpoint,
    /// Which way the scheduler took.
    pub branch: ProbeBranch,
    /// How it ended.
    pub outcome: ProbeOutcome,
    /// What proved life to it.
    pub evidence: ProbeEvidence,
    /// The sick hop, if it failed.
    pub stalled_at: Option<Hop>,
    /// What made it sick, if it failed.
    pub cause: Option<Cause>,
    /// From the arrival of the HTTP request to the verdict.
    pub duration: Duration,
    /// Its trace, if that is kept.
    pub trace: Option<TraceRef>,
}

/// The series of the probes.
#[derive(Debug)]
pub struct ProbeMetrics {
    total: IntCounterVec,
    duration: ExemplarHistogram,
    evidence: IntCounterVec,
    failures: IntCounterVec,
    hop_duration: HistogramVec,
    coalesced: IntCounter,
    orphaned: IntCounter,
    in_flight: IntGauge,
}

impl ProbeMetrics {
    /// Declares the series.
    ///
    /// # Errors
    /// A name is declared twice.
    pub fn register(registry: &Registry) -> Result<Self, Error> {
        let metrics = Self {
            total: counter_vec(
                registry,
                "radiosonde_health_probe_total",
                "Health probes that ended. outcome=ok, shortcut and paused are 200, client_gone has no answer, the others are \
                 503. endpoint=self are the server's own, sent when nobody else asked. branch says what the scheduler \
                 did: idle ran the probe as a real request, busy answered it after a batch, none never decided.",
                &["endpoint", "branch", "outcome"],
            )?,
            duration: exemplar_histogram(
                registry,
                "radiosonde_health_probe_duration_seconds",
                "From the arrival of a health probe, or the start of a self-probe, to its verdict. Read idle and busy apart: idle is the time of one \
                 token, busy the rest of the step in flight.",
                DURATION_BUCKETS,
                &["endpoint", "branch", "outcome"],
            )?,
            evidence: counter_vec(
                registry,
                "radiosonde_health_probe_evidence_total",
                "What proved life to the probes that ended. other_traffic is as good as own_answer for the verdict, \
                 but says nothing about the way that the probe itself took.",
                &["evidence"],
            )?,
            failures: counter_vec(
                registry,
                "radiosonde_health_probe_failures_total",
                "Failed health probes by the hop that never ended and by its cause. Start here: the hop says where to \
                 look, the cause says what to do.",
                &["hop", "cause"],
            )?,
            hop_duration: histogram_vec(
                registry,
                "radiosonde_health_probe_hop_duration_seconds",
                "Time that health probes spent at each hop. A hop that never ended counts up to the verdict, so the \
                 sick hop stands out.",
                HOP_BUCKETS,
                &["hop"],
            )?,
            coalesced: counter(
                registry,
                "radiosonde_health_probes_coalesced_total",
                "Health probes that a batch result answered together with an earlier one: of n at once, n-1. Grows if \
                 several probe while one step runs.",
            )?,
            orphaned: counter(
                registry,
                "radiosonde_health_probes_orphaned_total",
                "Answers to health probes that came after their verdict. Usual with evidence=other_traffic, which \
                 comes first; together with outcome=timeout the runtime answers, but too late.",
            )?,
            in_flight: gauge(
                registry,
                "radiosonde_health_probes_in_flight",
                "Health probes without a verdict so far. Stays above zero only if probes arrive faster than the \
                 runtime answers, or if it does not answer.",
            )?,
        };
        metrics.initialise();
        Ok(metrics)
    }

    /// A probe began; it counts as in flight until the guard is dropped.
    pub fn began(&self) -> InFlight {
        InFlight::enter(&self.in_flight)
    }

    /// A probe that has ended was at `hop` for so long.
    pub fn crossed(&self, hop: Hop, took: Duration) {
        self.hop_duration.with_label_values(&[hop.as_str()]).observe(took.as_secs_f64());
    }

    /// A batch result answered a probe, and an earlier one with it.
    pub fn coalesced(&self) {
        self.coalesced.inc();
    }

    /// The answer to a probe came after its verdict.
    pub fn orphaned(&self) {
        self.orphaned.inc();
    }

    /// A probe has its verdict.
    pub fn ended(&self, end: &ProbeEnd) {
        let labels = [end.endpoint.as_str(), end.branch.as_str(), end.outcome.as_str()];
        self.total.with_label_values(&labels).inc();
        self.duration.observe(&labels, end.duration.as_secs_f64(), end.trace);
        self.evidence.with_label_values(&[end.evidence.as_str()]).inc();
        if let (Some(hop), Some(cause)) = (end.stalled_at, end.cause) {
            self.failures.with_label_values(&[hop.as_str(), cause.as_str()]).inc();
        }
    }

    /// What the buckets of the probes' durations point to.
    #[must_use]
    pub fn exemplars(&self) -> &Exemplars {
        self.duration.exemplars()
    }

    /// Every combination of labels that can ever occur, those included that are left out until they do.
    pub(super) fn declare_all(&self) {
        for labels in combinations() {
            self.duration.initialise(&labels);
        }
    }

    fn initialise(&self) {
        for labels in combinations() {
            self.total.with_label_values(&labels);
            if [ProbeOutcome::Ok.as_str(), ProbeOutcome::Timeout.as_str()].contains(&labels[2]) {
                // A histogram is eighteen lines at every scrape: only those that are always asked for.
                self.duration.initialise(&labels);
            }
        }
        for &evidence in ProbeEvidence::ALL {
            self.evidence.with_label_values(&[evidence.as_str()]);
        }
        for &hop in PROBE_HOPS.iter().filter(|&&hop| hop != Hop::Http) {
            self.hop_duration.with_label_values(&[hop.as_str()]);
        }
        for &hop in PROBE_HOPS {
            for &cause in Cause::ALL {
                self.failures.with_label_values(&[hop.as_str(), cause.as_str()]);
            }
        }
    }
}

/// Endpoint, branch and outcome of every probe that there can be.
fn combinations() -> impl Iterator<Item = [&'static str; 3]> {
    let ends = ProbeEndpoint::ALL
        .iter()
        .flat_map(|&endpoint| ProbeOutcome::ALL.iter().map(move |&outcome| (endpoint, outcome)));
    ends.flat_map(|(endpoint, outcome)| {
        let labels = move |branch: &ProbeBranch| [endpoint.as_str(), branch.as_str(), outcome.as_str()];
        branches(endpoint, outcome).iter().map(labels)
    })
}

/// The branches on which a probe of `endpoint` can end with `outcome`.
fn branches(endpoint: ProbeEndpoint, outcome: ProbeOutcome) -> &'static [ProbeBranch] {
    match (outcome, endpoint) {
        (ProbeOutcome::Shortcut, ProbeEndpoint::HealthGenerate | ProbeEndpoint::SelfProbe) => &[],
        (ProbeOutcome::Shortcut | ProbeOutcome::Starting | ProbeOutcome::Draining, _) => &[ProbeBranch::None],
        _ => ProbeBranch::ALL,
    }
}
