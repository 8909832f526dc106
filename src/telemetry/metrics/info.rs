//! What is served, and by which build: series whose value is always 1 and whose labels tell.

use prometheus::core::{Desc, Describer};
use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Error, Opts, Registry};

use super::declare::gauge_vec;
use super::vitals::{family, gauge};

/// What the engine serves, once it is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedInfo {
    /// The name under which users ask for the model.
    pub model: String,
    /// Its architecture, as its file says.
    pub architecture: String,
    /// Tokens in one page of the KV pool.
    pub page_size: u32,
    /// Pages in the KV pool.
    pub num_pages: u32,
    /// Instructions that the kernels use, `none` without kernels.
    pub kernels: &'static str,
}

/// Declares what is known from the start.
///
/// # Errors
/// A name is declared twice.
pub(super) fn register(registry: &Registry) -> Result<(), Error> {
    let build = gauge_vec(registry, "radiosonde_build_info", "Always 1; the version is in the label.", &["version"])?;
    build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
    Ok(())
}

/// One series of which there is one sample, or none.
struct Info {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    values: fn(&ServedInfo) -> Vec<String>,
}

const INFOS: &[Info] = &[
    Info {
        name: "radiosonde_model_info",
        help: "Always 1; the model's name for users, its architecture and the instructions of its kernels are in the \
               labels. Absent until the engine is ready.",
        labels: &["architecture", "kernels", "model"],
        values: |info| vec![info.architecture.clone(), info.kernels.to_owned(), info.model.clone()],
    },
    Info {
        name: "radiosonde_cache_config_info",
        help: "Always 1; the KV pool's pages and the tokens in each are in the labels. Absent until the engine is \
               ready.",
        labels: &["num_pages", "page_size"],
        values: |info| vec![info.num_pages.to_string(), info.page_size.to_string()],
    },
];

/// The declarations.
pub(super) fn descs() -> Result<Vec<Desc>, Error> {
    let describe = |info: &Info| {
        let opts = Opts::new(info.name, info.help);
        info.labels.iter().fold(opts, |opts, label| opts.variable_label(*label)).describe()
    };
    INFOS.iter().map(describe).collect()
}

/// The series as they are now; nothing is served, nothing is told.
pub(super) fn families(served: Option<&ServedInfo>) -> Vec<MetricFamily> {
    let Some(served) = served else { return Vec::new() };
    INFOS.iter().map(|info| info.family(served)).collect()
}

impl Info {
    fn family(&self, served: &ServedInfo) -> MetricFamily {
        let pair = |(name, value): (&&str, String)| {
            let mut label = LabelPair::default();
            label.set_name((*name).to_owned());
            label.set_value(value);
            label
        };
        let mut metric = Metric::from_label(self.labels.iter().zip((self.values)(served)).map(pair).collect());
        metric.set_gauge(gauge(1.0));
        family(self.name, self.help, MetricType::GAUGE, vec![metric])
    }
}
