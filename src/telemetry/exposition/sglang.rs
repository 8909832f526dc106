//! SGLang's names for our series: for dashboards, gateways and endpoint pickers that ask for those.
//!
//! They are made at the scrape, and off by default: a colon in a name belongs to recording rules.

mod names;

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

pub use names::{ALIASES, Alias, Scope, Source};

/// What SGLang serves of `families`, for the model that is called `model` and makes `throughput` tokens a second. What
/// has no source is left out.
#[must_use]
pub fn families(families: &[MetricFamily], model: &str, throughput: f64) -> Vec<MetricFamily> {
    let present = Present { families, throughput };
    ALIASES.iter().filter_map(|alias| alias.family(&present, model)).collect()
}

/// What aliases are made of.
struct Present<'a> {
    families: &'a [MetricFamily],
    throughput: f64,
}

impl Present<'_> {
    fn family(&self, name: &str) -> Option<&MetricFamily> {
        self.families.iter().find(|family| family.name() == name)
    }

    /// The sum of a counter over its labels.
    fn count(&self, name: &str) -> Option<f64> {
        Some(self.family(name)?.get_metric().iter().map(|metric| metric.get_counter().get_value()).sum())
    }
}

impl Alias {
    fn family(&self, present: &Present<'_>, model: &str) -> Option<MetricFamily> {
        let mut family = MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(self.source.meaning());
        let (kind, metrics) = self.source.metrics(present)?;
        family.set_field_type(kind);
        family.set_metric(metrics.into_iter().map(|metric| self.labelled(metric, model)).collect());
        Some(family)
    }

    /// `metric` with SGLang's labels beside its own, sorted by name.
    fn labelled(&self, mut metric: Metric, model: &str) -> Metric {
        let given = self.scope.labels().iter().chain(self.extra).copied().chain([("model_name", model)]);
        let mut labels: Vec<_> = metric.take_label().into_iter().chain(given.map(pair)).collect();
        labels.sort_by(|a, b| a.name().cmp(b.name()));
        metric.set_label(labels);
        metric
    }
}

impl Source {
    /// Kind and samples of the alias; `None` if there is nothing to make them of.
    fn metrics(self, present: &Present<'_>) -> Option<(MetricType, Vec<Metric>)> {
        match self {
            Self::Same(name) | Self::Sum(name) => {
                let family = present.family(name)?;
                let kind = family.get_field_type();
                Some((kind, vec![added_up(kind, family.get_metric())]))
            }
            Self::Info(name) => {
                let family = present.family(name)?;
                Some((family.get_field_type(), family.get_metric().to_vec()))
            }
            Self::Label { family, label } => {
                let labels = present.family(family)?.get_metric().first()?.get_label();
                let value = labels.iter().find(|pair| pair.name() == label)?.value().parse().ok()?;
                Some((MetricType::GAUGE, vec![gauge(value)]))
            }
            Self::Ratio { part, whole } => {
                let ratio = present.count(part)? / present.count(whole)?.max(1.0);
                Some((MetricType::GAUGE, vec![gauge(ratio)]))
            }
            Self::Throughput => Some((MetricType::GAUGE, vec![gauge(present.throughput)])),
        }
    }
}

/// One sample without labels for all of `metrics`.
fn added_up(kind: MetricType, metrics: &[Metric]) -> Metric {
    let mut sum = Metric::from_label(Vec::new());
    match kind {
        MetricType::COUNTER => {
            let mut counter = Counter::default();
            counter.set_value(metrics.iter().map(|metric| metric.get_counter().get_value()).sum());
            sum.set_counter(counter);
        }
        MetricType::HISTOGRAM => sum.set_histogram(merged(metrics.iter().map(Metric::get_histogram))),
        MetricType::GAUGE | MetricType::SUMMARY | MetricType::UNTYPED => {
            return gauge(metrics.iter().map(|metric| metric.get_gauge().get_value()).sum());
        }
    }
    sum
}

/// The histograms of one family have the same edges.
fn merged<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Histogram {
    let (mut count, mut total, mut buckets) = (0, 0.0, Vec::new());
    for histogram in histograms {
        count += histogram.get_sample_count();
        total += histogram.get_sample_sum();
        if buckets.is_empty() {
            buckets = histogram.get_bucket().to_vec();
            continue;
        }
        for (bucket, more) in buckets.iter_mut().zip(histogram.get_bucket()) {
            Bucket::set_cumulative_count(bucket, bucket.cumulative_count() + more.cumulative_count());
        }
    }
    let mut merged = Histogram::default();
    merged.set_sample_count(count);
    merged.set_sample_sum(total);
    merged.set_bucket(buckets);
    merged
}

fn gauge(value: f64) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = Metric::from_label(Vec::new());
    metric.set_gauge(gauge);
    metric
}

fn pair((name, value): (&str, &str)) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};

    use super::*;
    use crate::telemetry::exposition::text;

    /// The aliases of what `registry` has, without their comments.
    fn samples(registry: &Registry) -> String {
        let page = text::encode(&families(&registry.gather(), "a \"model\"", 12.5));
        page.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn without_sources_there_is_only_the_rate() {
        expect![[r#"
            sglang:gen_throughput{engine_type="unified",model_name="a \"model\"",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 12.5
        "#]]
        .assert_eq(&samples(&Registry::new()));
    }

    #[test]
    fn every_kind_of_source() {
        let registry = Registry::new();
        let finished =
            IntCounterVec::new(Opts::new("radiosonde_requests_finished_total", "Ended."), &["outcome"]).unwrap();
        finished.with_label_values(&["stop"]).inc_by(3);
        finished.with_label_values(&["abort"]).inc_by(2);
        let (cached, prompt) = ("radiosonde_cached_tokens_total", "radiosonde_prompt_tokens_total");
        let [cached, prompt] = [cached, prompt].map(|name| IntCounter::new(name, "Tokens.").unwrap());
        cached.inc_by(10);
        prompt.inc_by(40);
        let opts = Opts::new("radiosonde_cache_config_info", "The pool.");
        let pool = IntGaugeVec::new(opts, &["page_size", "num_pages"]).unwrap();
        pool.with_label_values(&["16", "1024"]).set(1);
        let opts = HistogramOpts::new("radiosonde_queue_time_seconds", "Waiting.").buckets(vec![0.5, 1.0]);
        let waiting = HistogramVec::new(opts, &["way"]).unwrap();
        waiting.with_label_values(&["a"]).observe(0.25);
        waiting.with_label_values(&["b"]).observe(0.75);
        waiting.with_label_values(&["b"]).observe(5.0);
        registry.register(Box::new(finished)).unwrap();
        registry.register(Box::new(cached)).unwrap();
        registry.register(Box::new(prompt)).unwrap();
        registry.register(Box::new(pool)).unwrap();
        registry.register(Box::new(waiting)).unwrap();
        expect![[r#"
            sglang:gen_throughput{engine_type="unified",model_name="a \"model\"",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 12.5
            sglang:cache_hit_rate{engine_type="unified",model_name="a \"model\"",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.25
            sglang:queue_time_seconds_bucket{engine_type="unified",model_name="a \"model\"",moe_ep_rank="0",pp_rank="0",tp_rank="0",le="0.5"} 1
            sglang:queue_time_seconds_bucket{engine_type="unified",model_name="a \"model\"",moe_ep_rank="0",pp_rank="0",tp_rank="0",le="1"} 2
            sglang:queue_time_seconds_bucket{engine_type="unified",model_name="a \"model\"",moe_ep_rank="0",pp_rank="0",tp_rank="0",le="+Inf"} 3
            sglang:queue_time_seconds_sum{engine_type="unified",model_name="a \"model\"",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 6
            sglang:queue_time_seconds_count{engine_type="unified",model_name="a \"model\"",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 3
            sglang:cache_config_info{engine_type="unified",model_name="a \"model\"",moe_ep_rank="0",num_pages="1024",page_size="16",pp_rank="0",tp_rank="0"} 1
            sglang:page_size{engine_type="unified",model_name="a \"model\"",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 16
            sglang:num_pages{engine_type="unified",model_name="a \"model\"",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 1024
            sglang:num_requests_total{engine_type="unified",model_name="a \"model\""} 5
            sglang:prompt_tokens_total{engine_type="unified",model_name="a \"model\""} 40
            sglang:cached_tokens_total{cache_source="device",engine_type="unified",model_name="a \"model\""} 10
        "#]]
        .assert_eq(&samples(&registry));
    }
}
