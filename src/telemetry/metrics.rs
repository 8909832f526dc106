//! The series: name, help, labels and buckets; one struct for each station, whose methods say what happened.

pub mod probe;
pub mod request;
pub mod grammar;
pub mod engine;
pub mod vitals;
pub mod process;
pub mod info;
pub mod http;
pub mod exports;
pub mod logs;
pub mod catalogue;
pub mod exemplar;
pub mod throughput;
pub(in crate::telemetry) mod declare;

use std::sync::{Arc, OnceLock};

use prometheus::proto::MetricFamily;
use prometheus::{Error, Registry};

pub use catalogue::{LabelInfo, SeriesInfo, catalogue};
pub use declare::InFlight;
pub use engine::{EngineMetrics, StepEnd};
pub use exemplar::{Exemplar, ExemplarHistogram, Exemplars, TraceRef};
pub use exports::ExportMetrics;
pub use grammar::GrammarMetrics;
pub use http::{HttpExchange, HttpMetrics};
pub use info::ServedInfo;
pub use logs::LogMetrics;
pub use probe::{ProbeEnd, ProbeMetrics};
pub use process::ProcessStats;
pub use request::RequestMetrics;
pub use throughput::WINDOW_SECONDS as THROUGHPUT_WINDOW_SECONDS;
pub use vitals::{Limits, ReadVitals, Vitals};

/// Names beside our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsAlias {
    /// SGLang's.
    Sglang,
}

/// Every series of a frontend.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    alias: Option<MetricsAlias>,
    model_name: OnceLock<String>,
    /// What became of the probes.
    pub probes: ProbeMetrics,
    /// What became of the requests.
    pub requests: RequestMetrics,
    /// What became of their grammars.
    pub grammars: GrammarMetrics,
    /// What became of the HTTP exchanges.
    pub http: HttpMetrics,
    /// What the engine reported, and what the server concluded from it.
    pub engine: EngineMetrics,
    /// What became of the spans.
    pub exports: ExportMetrics,
    /// What became of the log lines.
    pub logs: LogMetrics,
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
            grammars: GrammarMetrics::register(&registry)?,
            http: HttpMetrics::register(&registry)?,
            engine: EngineMetrics::register(&registry)?,
            exports: ExportMetrics::register(&registry)?,
            logs: LogMetrics::register(&registry)?,
            registry,
            alias: None,
            model_name: OnceLock::new(),
        })
    }

    /// The same, served under the names of `alias` too.
    #[must_use]
    pub fn with_alias(self, alias: Option<MetricsAlias>) -> Self {
        Self { alias, ..self }
    }

    /// The names beside our own.
    #[must_use]
    pub fn alias(&self) -> Option<MetricsAlias> {
        self.alias
    }

    /// A model is served, under this name. The first one counts.
    pub fn serves(&self, model_name: &str) {
        self.model_name.get_or_init(|| model_name.to_owned());
    }

    /// The model that is served; `None` until it is loaded.
    #[must_use]
    pub fn model_name(&self) -> Option<&str> {
        self.model_name.get().map(String::as_str)
    }

    /// What the buckets of some families point to.
    #[must_use]
    pub fn exemplars(&self) -> Vec<&Exemplars> {
        self.requests.exemplars().into_iter().chain([self.probes.exemplars()]).collect()
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
