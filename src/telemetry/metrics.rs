//! The series: name, help, labels and buckets; one struct for each station, whose methods say what happened.

pub mod probe;
pub mod request;
pub mod engine;
pub mod vitals;
pub mod process;
pub mod info;
pub mod http;
pub mod exports;
pub mod catalogue;
mod declare;

use std::sync::Arc;

use prometheus::proto::MetricFamily;
use prometheus::{Error, Registry};

pub use catalogue::{LabelInfo, SeriesInfo, catalogue};
pub use declare::InFlight;
pub use engine::{EngineMetrics, StepEnd};
pub use exports::ExportMetrics;
pub use http::{HttpExchange, HttpMetrics};
pub use info::ServedInfo;
pub use probe::{ProbeEnd, ProbeMetrics};
pub use process::ProcessStats;
pub use request::RequestMetrics;
pub use vitals::{Limits, ReadVitals, Vitals};

/// Every series of a frontend.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// What became of the probes.
    pub probes: ProbeMetrics,
    /// What became of the requests.
    pub requests: RequestMetrics,
    /// What became of the HTTP exchanges.
    pub http: HttpMetrics,
    /// What the engine reported, and what the server concluded from it.
    pub engine: EngineMetrics,
    /// What became of the spans.
    pub exports: ExportMetrics,
}

impl Metrics {
    /// Declares every series but the vital signs, each legal combination of labels at zero.
    ///
    /// # Errors
    /// A name is declared twice or is not a legal one.
    pub fn new() -> Result<Self, Error> {
        let registry = Registry::new();
        process::register(&registry)?;
        info::register(&registry)?;
        Ok(Self {
            probes: ProbeMetrics::register(&registry)?,
            requests: RequestMetrics::register(&registry)?,
            http: HttpMetrics::register(&registry)?,
            engine: EngineMetrics::register(&registry)?,
            exports: ExportMetrics::register(&registry)?,
            registry,
        })
    }

    /// Adds the vital signs, read from `source` at every scrape. Once.
    ///
    /// # Errors
    /// They are being watched already.
    pub fn watch(&self, source: Arc<dyn ReadVitals>) -> Result<(), Error> {
        vitals::register(&self.registry, source)
    }

    /// Every family with its present values, sorted by name. Never waits for anybody.
    #[must_use]
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}
