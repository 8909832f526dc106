//! What became of the HTTP exchanges, on both listeners: rate, errors and durations by route.

use std::time::Instant;

use prometheus::{Error, Histogram, HistogramVec, IntCounterVec, IntGaugeVec, Registry};

use super::declare::{InFlight, counter_vec, gauge_vec, histogram_vec};
use crate::telemetry::labels::{HttpCode, HttpRoute};

/// Bucket edges in seconds: from a cached answer over the default limit of a probe, 20 s, to a long stream.
const DURATION_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 300.0];

/// The series of HTTP.
#[derive(Debug)]
pub struct HttpMetrics {
    requests: IntCounterVec,
    duration: HistogramVec,
    in_flight: IntGaugeVec,
}

impl HttpMetrics {
    /// Declares the series.
    ///
    /// # Errors
    /// A name is declared twice.
    pub fn register(registry: &Registry) -> Result<Self, Error> {
        let metrics = Self {
            requests: counter_vec(
                registry,
                "radiosonde_http_requests_total",
                "HTTP exchanges that ended, on both listeners, by matched route. code=none: the client left before an \
                 answer. unmatched: nothing is there. Scrapes of /metrics are not counted: reading changes nothing.",
                &["route", "code"],
            )?,
            duration: histogram_vec(
                registry,
                "radiosonde_http_request_duration_seconds",
                "From the head of an HTTP request to the last byte of its answer, or to the client's leaving. A \
                 stream counts whole.",
                DURATION_BUCKETS,
                &["route"],
            )?,
            in_flight: gauge_vec(
                registry,
                "radiosonde_http_requests_in_flight",
                "HTTP exchanges whose last byte has not been sent, streams included.",
                &["route"],
            )?,
        };
        metrics.initialise();
        Ok(metrics)
    }

    /// The head of a request has been read.
    pub fn began(&self, route: HttpRoute) -> HttpExchange {
        HttpExchange {
            requests: self.requests.clone(),
            duration: self.duration.with_label_values(&[route.as_str()]),
            route,
            began: Instant::now(),
            code: HttpCode::None,
            _in_flight: InFlight::enter(&self.in_flight.with_label_values(&[route.as_str()])),
        }
    }

    fn initialise(&self) {
        for &route in HttpRoute::ALL {
            self.duration.with_label_values(&[route.as_str()]);
            self.in_flight.with_label_values(&[route.as_str()]);
            for &code in HttpCode::ALL {
                self.requests.with_label_values(&[route.as_str(), code.as_str()]);
            }
        }
    }
}

/// One exchange under way. It ends, and is counted, when this is dropped: hold it until the last byte is sent.
#[derive(Debug)]
#[must_use = "the exchange ends when this is dropped"]
pub struct HttpExchange {
    requests: IntCounterVec,
    duration: Histogram,
    route: HttpRoute,
    began: Instant,
    code: HttpCode,
    _in_flight: InFlight,
}

impl HttpExchange {
    /// There is an answer, with this HTTP status.
    pub fn answered(&mut self, status: u16) {
        self.code = match status {
            ..300 => HttpCode::Success,
            300..400 => HttpCode::Redirection,
            400..500 => HttpCode::ClientError,
            500.. => HttpCode::ServerError,
        };
    }
}

impl Drop for HttpExchange {
    fn drop(&mut self) {
        self.requests.with_label_values(&[self.route.as_str(), self.code.as_str()]).inc();
        self.duration.observe(self.began.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_counts_once_however_it_ends() {
        let metrics = HttpMetrics::register(&Registry::new()).unwrap();
        let route = HttpRoute::Generate;
        let count = |code: HttpCode| metrics.requests.with_label_values(&[route.as_str(), code.as_str()]).get();
        let ends = [
            (None, HttpCode::None),
            (Some(200), HttpCode::Success),
            (Some(304), HttpCode::Redirection),
            (Some(429), HttpCode::ClientError),
            (Some(503), HttpCode::ServerError),
        ];
        for (status, code) in ends {
            let mut exchange = metrics.began(route);
            assert_eq!(metrics.in_flight.with_label_values(&[route.as_str()]).get(), 1);
            status.into_iter().for_each(|status| exchange.answered(status));
            drop(exchange);
            assert_eq!(
                (count(code), metrics.in_flight.with_label_values(&[route.as_str()]).get()),
                (1, 0),
                "{status:?}"
            );
        }
        assert_eq!(metrics.duration.with_label_values(&[route.as_str()]).get_sample_count(), ends.len() as u64);
    }
}
