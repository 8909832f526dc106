//! What became of the user requests: rate, errors, durations and tokens. Health probes are not in here.

use std::time::Duration;

use prometheus::{Error, Histogram, IntCounter, IntCounterVec, IntGauge, Registry};

use super::declare::{InFlight, counter, counter_vec, exemplar_histogram, gauge, histogram};
use super::exemplar::{ExemplarHistogram, Exemplars, TraceRef};
use super::throughput::Throughput;
use crate::telemetry::labels::{RejectReason, RequestEndpoint, RequestOutcome};

/// Bucket edges in seconds: from a cached prompt on an idle server to a long prompt behind a long queue.
const FIRST_TOKEN_BUCKETS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0];
/// Bucket edges in seconds: from a small model alone to a big batch with prefill chunks in between.
const INTER_TOKEN_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Bucket edges in seconds: the last one holds what a CPU needs for a full context.
const END_TO_END_BUCKETS: &[f64] =
    &[0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0];

/// Bucket edges in seconds: from a free place in the batch to a long queue.
const QUEUE_BUCKETS: &[f64] =
    &[0.001, 0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0];

/// The series of the user requests.
#[derive(Debug)]
pub struct RequestMetrics {
    accepted: IntCounterVec,
    rejected: IntCounterVec,
    finished: IntCounterVec,
    aborted: IntCounter,
    prompt_tokens: IntCounter,
    generation_tokens: IntCounter,
    cached_tokens: IntCounter,
    queue_time: Histogram,
    throughput: Throughput,
    time_to_first_token: ExemplarHistogram,
    inter_token_latency: Histogram,
    end_to_end: ExemplarHistogram,
    in_flight: IntGauge,
}

impl RequestMetrics {
    /// Declares the series.
    ///
    /// # Errors
    /// A name is declared twice.
    pub fn register(registry: &Registry) -> Result<Self, Error> {
        let metrics = Self {
            accepted: counter_vec(
                registry,
                "radiosonde_num_requests_total",
                "Requests accepted. Each ends exactly once in radiosonde_requests_finished_total.",
                &["endpoint"],
            )?,
            rejected: counter_vec(
                registry,
                "radiosonde_requests_rejected_total",
                "Requests refused before they were accepted. invalid is the client's business (400, 404, 413); \
                 queue_full and not_serving are ours (503 with Retry-After).",
                &["endpoint", "reason"],
            )?,
            finished: counter_vec(
                registry,
                "radiosonde_requests_finished_total",
                "Accepted requests that ended. error means that the runtime failed them; abort means that the client \
                 left or asked for the end.",
                &["endpoint", "outcome"],
            )?,
            aborted: counter(
                registry,
                "radiosonde_num_aborted_requests_total",
                "Accepted requests that ended with outcome=abort, over all endpoints.",
            )?,
            prompt_tokens: counter(
                registry,
                "radiosonde_prompt_tokens_total",
                "Prompt tokens of accepted requests, counted when they are accepted, however they end.",
            )?,
            generation_tokens: counter(
                registry,
                "radiosonde_generation_tokens_total",
                "Output tokens received from the engine, those of requests that are aborted later included.",
            )?,
            cached_tokens: counter(
                registry,
                "radiosonde_cached_tokens_total",
                "Prompt tokens that were found in the prefix cache, counted with a request's first output. Divided by \
                 radiosonde_prompt_tokens_total: the hit rate.",
            )?,
            queue_time: histogram(
                registry,
                "radiosonde_queue_time_seconds",
                "From the moment when the scheduler took a request in to its first place in a batch. Grows before \
                 anything else when there is more work than room.",
                QUEUE_BUCKETS,
            )?,
            throughput: Throughput::default(),
            time_to_first_token: exemplar_histogram(
                registry,
                "radiosonde_time_to_first_token_seconds",
                "From the arrival of a request to its first output token: queue, prefill and one step.",
                FIRST_TOKEN_BUCKETS,
                &[],
            )?,
            inter_token_latency: histogram(
                registry,
                "radiosonde_inter_token_latency_seconds",
                "Time between two output tokens of one request, one observation for each token after the first.",
                INTER_TOKEN_BUCKETS,
            )?,
            end_to_end: exemplar_histogram(
                registry,
                "radiosonde_e2e_request_latency_seconds",
                "From the arrival of a request to its end, however it ended.",
                END_TO_END_BUCKETS,
                &[],
            )?,
            in_flight: gauge(
                registry,
                "radiosonde_requests_in_flight",
                "Requests accepted and not yet ended. If this is above zero and \
                 radiosonde_last_receive_age_seconds grows, somebody waits for an engine that says nothing.",
            )?,
        };
        metrics.initialise();
        Ok(metrics)
    }

    /// A request was refused.
    pub fn rejected(&self, endpoint: RequestEndpoint, reason: RejectReason) {
        self.rejected.with_label_values(&[endpoint.as_str(), reason.as_str()]).inc();
    }

    /// A request was accepted; it counts as in flight until the guard is dropped.
    pub fn accepted(&self, endpoint: RequestEndpoint, prompt_tokens: u32) -> InFlight {
        self.accepted.with_label_values(&[endpoint.as_str()]).inc();
        self.prompt_tokens.inc_by(u64::from(prompt_tokens));
        InFlight::enter(&self.in_flight)
    }

    /// A request got its first place in a batch, after waiting for so long.
    pub fn placed(&self, waited: Duration) {
        self.queue_time.observe(waited.as_secs_f64());
    }

    /// Of a request's prompt, `tokens` tokens had been computed before.
    pub fn cached(&self, tokens: u32) {
        self.cached_tokens.inc_by(u64::from(tokens));
    }

    /// The share of all prompt tokens so far that were found in the prefix cache.
    #[must_use]
    pub fn cache_hit_rate(&self) -> f64 {
        self.cached_tokens.get() as f64 / self.prompt_tokens.get().max(1) as f64
    }

    /// The first output of a request came, with `tokens` tokens, `since_arrival` after the request. `trace`: its trace,
    /// if that is kept.
    pub fn first_tokens(&self, tokens: u32, since_arrival: Duration, trace: Option<TraceRef>) {
        if tokens > 0 {
            self.time_to_first_token.observe(&[], since_arrival.as_secs_f64(), trace);
            self.generated(tokens);
        }
    }

    /// `tokens` more tokens of a request came, `since_last` after the ones before.
    pub fn further_tokens(&self, tokens: u32, since_last: Duration) {
        let each = since_last.as_secs_f64() / f64::from(tokens.max(1));
        for _ in 0..tokens {
            self.inter_token_latency.observe(each);
        }
        self.generated(tokens);
    }

    /// An accepted request ended, `since_arrival` after it came. `trace`: its trace, if that is kept.
    pub fn ended(
        &self,
        endpoint: RequestEndpoint,
        outcome: RequestOutcome,
        since_arrival: Duration,
        trace: Option<TraceRef>,
    ) {
        self.finished.with_label_values(&[endpoint.as_str(), outcome.as_str()]).inc();
        self.end_to_end.observe(&[], since_arrival.as_secs_f64(), trace);
        if outcome == RequestOutcome::Abort {
            self.aborted.inc();
        }
    }

    /// Output tokens a second, over the last seconds.
    #[must_use]
    pub fn generation_throughput(&self) -> f64 {
        self.throughput.per_second()
    }

    /// What the buckets of the requests' durations point to.
    #[must_use]
    pub fn exemplars(&self) -> [&Exemplars; 2] {
        [self.time_to_first_token.exemplars(), self.end_to_end.exemplars()]
    }

    fn generated(&self, tokens: u32) {
        self.generation_tokens.inc_by(u64::from(tokens));
        self.throughput.add(tokens);
    }

    fn initialise(&self) {
        self.time_to_first_token.initialise(&[]);
        self.end_to_end.initialise(&[]);
        for &endpoint in RequestEndpoint::ALL {
            self.accepted.with_label_values(&[endpoint.as_str()]);
            for &reason in RejectReason::ALL {
                self.rejected.with_label_values(&[endpoint.as_str(), reason.as_str()]);
            }
            for &outcome in RequestOutcome::ALL {
                self.finished.with_label_values(&[endpoint.as_str(), outcome.as_str()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_ends_once_and_leaves_the_gauge_at_zero() {
        let metrics = RequestMetrics::register(&Registry::new()).unwrap();
        for outcome in [RequestOutcome::Abort, RequestOutcome::Length] {
            let in_flight = metrics.accepted(RequestEndpoint::Generate, 7);
            assert_eq!(metrics.in_flight.get(), 1);
            metrics.first_tokens(1, Duration::from_millis(20), None);
            metrics.further_tokens(2, Duration::from_millis(30));
            metrics.further_tokens(0, Duration::from_millis(30));
            metrics.ended(RequestEndpoint::Generate, outcome, Duration::from_millis(50), None);
            drop(in_flight);
        }
        assert_eq!(metrics.in_flight.get(), 0);
        assert_eq!((metrics.prompt_tokens.get(), metrics.generation_tokens.get()), (14, 6));
        assert_eq!((metrics.aborted.get(), metrics.end_to_end.count(&[])), (1, 2));
        assert_eq!(metrics.inter_token_latency.get_sample_count(), 4);
        assert!((metrics.inter_token_latency.get_sample_sum() - 0.06).abs() < 1e-9);
    }

    #[test]
    fn edges_rise() {
        for edges in [FIRST_TOKEN_BUCKETS, INTER_TOKEN_BUCKETS, END_TO_END_BUCKETS, QUEUE_BUCKETS] {
            assert!(edges.is_sorted_by(|a, b| a < b), "{edges:?}");
        }
        assert!(END_TO_END_BUCKETS.last() >= Some(&600.0) && FIRST_TOKEN_BUCKETS.last() >= Some(&100.0));
        assert!(INTER_TOKEN_BUCKETS.first() <= Some(&0.01));
    }
}
