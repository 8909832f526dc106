//! Histograms whose buckets remember a trace: the way from a slow bucket to the request that fell into it.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry::trace::TraceId;
use prometheus::HistogramVec;
use prometheus::proto::LabelPair;

/// A trace that is kept somewhere, and when it was met: what an observation may point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRef {
    /// Its id.
    pub id: TraceId,
    /// The time of the observation.
    pub at: SystemTime,
}

/// What a bucket points to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exemplar {
    /// The trace.
    pub trace_id: TraceId,
    /// What was observed.
    pub value: f64,
    /// When, in seconds since the Unix epoch.
    pub unix_seconds: f64,
}

/// The newest exemplar of each bucket of one family: one slot for each label set and bucket, so their number is bounded
/// as that of the series is.
///
/// Nobody waits here: who finds the slots taken, scrape or observation, goes on without exemplars.
#[derive(Debug)]
pub struct Exemplars {
    family: &'static str,
    edges: &'static [f64],
    /// From the order in which labels are declared to that in which a scrape has them.
    sorted: Vec<usize>,
    slots: Mutex<Vec<LabelSet>>,
}

#[derive(Debug)]
struct LabelSet {
    values: Vec<&'static str>,
    /// One for each edge, and the last for what lies beyond.
    buckets: Vec<Option<Exemplar>>,
}

impl Exemplars {
    pub(super) fn new(family: &'static str, edges: &'static [f64], labels: &[&str]) -> Self {
        let mut sorted: Vec<usize> = (0..labels.len()).collect();
        sorted.sort_by_key(|&index| labels[index]);
        Self { family, edges, sorted, slots: Mutex::default() }
    }

    /// The name of the histogram.
    #[must_use]
    pub fn family(&self) -> &str {
        self.family
    }

    /// The exemplars of the series with `labels`, which are sorted by name: one entry for each bucket, the last one
    /// for what lies beyond all edges. Empty if there are none.
    #[must_use]
    pub fn of(&self, labels: &[LabelPair]) -> Vec<Option<Exemplar>> {
        let Ok(slots) = self.slots.try_lock() else { return Vec::new() };
        let mine = slots.iter().find(|set| set.values.iter().copied().eq(labels.iter().map(LabelPair::value)));
        mine.map(|set| set.buckets.clone()).unwrap_or_default()
    }

    fn keep(&self, labels: &[&'static str], value: f64, trace: TraceRef) {
        let Ok(mut slots) = self.slots.try_lock() else { return };
        let values: Vec<_> = self.sorted.iter().map(|&index| labels[index]).collect();
        let place = slots.iter().position(|set| set.values == values).unwrap_or_else(|| {
            slots.push(LabelSet { values, buckets: vec![None; self.edges.len() + 1] });
            slots.len() - 1
        });
        let bucket = self.edges.partition_point(|&edge| edge < value);
        let unix_seconds = trace.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        slots[place].buckets[bucket] = Some(Exemplar { trace_id: trace.id, value, unix_seconds });
    }
}

/// A histogram whose buckets have exemplars. Label values are of closed sets.
#[derive(Debug, Clone)]
pub struct ExemplarHistogram {
    series: HistogramVec,
    exemplars: Arc<Exemplars>,
}

impl ExemplarHistogram {
    pub(super) fn new(series: HistogramVec, exemplars: Exemplars) -> Self {
        Self { series, exemplars: Arc::new(exemplars) }
    }

    /// Makes the series with `labels` exist, at zero.
    pub fn initialise(&self, labels: &[&'static str]) {
        self.series.with_label_values(labels);
    }

    /// Counts `value`. `trace` is the trace that it came from, if that is kept.
    pub fn observe(&self, labels: &[&'static str], value: f64, trace: Option<TraceRef>) {
        self.series.with_label_values(labels).observe(value);
        if let Some(trace) = trace {
            self.exemplars.keep(labels, value, trace);
        }
    }

    /// What its buckets point to.
    #[must_use]
    pub fn exemplars(&self) -> &Exemplars {
        &self.exemplars
    }

    #[cfg(test)]
    pub(super) fn count(&self, labels: &[&'static str]) -> u64 {
        self.series.with_label_values(labels).get_sample_count()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus::Registry;
    use prometheus::core::Collector;
    use prometheus::proto::Metric;

    use super::*;
    use crate::telemetry::metrics::declare::exemplar_histogram;

    fn trace(id: u128) -> Option<TraceRef> {
        Some(TraceRef { id: TraceId::from(id), at: UNIX_EPOCH + Duration::from_millis(1500) })
    }

    /// The ids of the buckets of each series, in the order of a scrape; 0: no exemplar.
    fn ids(histogram: &ExemplarHistogram) -> Vec<Vec<u128>> {
        let families = histogram.series.collect();
        let mut series: Vec<_> = families[0].get_metric().iter().map(Metric::get_label).collect();
        series.sort_by_key(|labels| labels.iter().map(|label| label.value().to_owned()).collect::<Vec<_>>());
        let id = |slot: Option<Exemplar>| slot.map_or(0, |slot| u128::from_be_bytes(slot.trace_id.to_bytes()));
        series.iter().map(|labels| histogram.exemplars().of(labels).into_iter().map(id).collect()).collect()
    }

    #[test]
    fn each_bucket_keeps_the_newest_of_its_own_series() {
        let registry = Registry::new();
        let labels = &["way", "end"];
        let histogram = exemplar_histogram(&registry, "t_seconds", "A test.", &[0.5, 1.0], labels).unwrap();
        histogram.initialise(&["idle", "ok"]);
        assert_eq!(ids(&histogram), [vec![]]);
        histogram.observe(&["idle", "ok"], 0.5, trace(1)); // an edge belongs to its bucket
        histogram.observe(&["idle", "ok"], 0.7, trace(2));
        histogram.observe(&["idle", "ok"], 0.8, trace(3));
        histogram.observe(&["idle", "ok"], 0.9, None);
        histogram.observe(&["busy", "ok"], 7.0, trace(4));
        assert_eq!(ids(&histogram), [vec![0, 0, 4], vec![1, 3, 0]], "sorted by end, then by way");
        let slots = histogram.exemplars().of(histogram.series.collect()[0].get_metric()[0].get_label());
        assert!(slots.iter().flatten().all(|slot| slot.unix_seconds == 1.5), "{slots:?}");
    }

    #[test]
    fn nobody_waits_for_the_slots() {
        let histogram = exemplar_histogram(&Registry::new(), "t_seconds", "A test.", &[1.0], &[]).unwrap();
        histogram.observe(&[], 0.2, trace(1));
        {
            let _taken = histogram.exemplars.slots.lock().unwrap();
            histogram.observe(&[], 0.3, trace(2));
            assert_eq!(ids(&histogram), [vec![]]);
        }
        assert_eq!(ids(&histogram), [vec![1, 0]]);
        assert_eq!(histogram.count(&[]), 2, "an observation counts with or without its exemplar");
    }
}
