//! How a series is declared: name, help and labels once, and known to the registry from then on.

use prometheus::core::Collector;
use prometheus::{
    Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use super::exemplar::{ExemplarHistogram, Exemplars};

/// Counts one thing as long as it lives.
#[derive(Debug)]
#[must_use = "what is in flight is counted as long as this lives"]
pub struct InFlight(IntGauge);

impl InFlight {
    pub(super) fn enter(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

pub(super) fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, Error> {
    known(registry, IntCounter::new(name, help)?)
}

pub(super) fn counter_vec(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, Error> {
    known(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
}

pub(super) fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge, Error> {
    known(registry, IntGauge::new(name, help)?)
}

pub(super) fn gauge_vec(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, Error> {
    known(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
}

pub(super) fn histogram(registry: &Registry, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, Error> {
    known(registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?)
}

pub(super) fn histogram_vec(
    registry: &Registry,
    name: &str,
    help: &str,
    buckets: &[f64],
    labels: &[&str],
) -> Result<HistogramVec, Error> {
    known(registry, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?)
}

/// A histogram whose buckets have exemplars.
pub(in crate::telemetry) fn exemplar_histogram(
    registry: &Registry,
    name: &'static str,
    help: &str,
    buckets: &'static [f64],
    labels: &[&str],
) -> Result<ExemplarHistogram, Error> {
    let series = histogram_vec(registry, name, help, buckets, labels)?;
    Ok(ExemplarHistogram::new(series, Exemplars::new(name, buckets, labels)))
}

fn known<C: Collector + Clone + 'static>(registry: &Registry, series: C) -> Result<C, Error> {
    registry.register(Box::new(series.clone()))?;
    Ok(series)
}
