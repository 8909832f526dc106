//! The load of the server by SGLang's names, for gateways that choose among servers: `/v1/loads`.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// The load at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Load {
    /// Requests in the batch.
    pub num_running_reqs: u64,
    /// Requests without a place in the batch.
    pub num_waiting_reqs: u64,
    /// Both.
    pub num_total_reqs: u64,
    /// KV pool tokens in use.
    pub num_used_tokens: u64,
    /// Size of the KV pool in tokens.
    pub max_total_num_tokens: u64,
    /// The share of the KV pool that is in use.
    pub token_usage: f64,
    /// Output tokens a second.
    pub gen_throughput: f64,
    /// The share of all prompt tokens that were found in the prefix cache.
    pub cache_hit_rate: f64,
    /// The share of the places in the batch that are taken.
    pub utilization: f64,
    /// Places in the batch.
    pub max_running_requests: u64,
}

impl Load {
    /// Name, meaning and value of each number, in order.
    fn numbers(&self) -> [(&'static str, &'static str, f64); 10] {
        [
            ("num_running_reqs", "Requests in the batch.", self.num_running_reqs as f64),
            ("num_waiting_reqs", "Requests without a place in the batch.", self.num_waiting_reqs as f64),
            ("num_total_reqs", "Requests in the batch and without a place.", self.num_total_reqs as f64),
            ("num_used_tokens", "KV pool tokens in use.", self.num_used_tokens as f64),
            ("max_total_num_tokens", "Size of the KV pool in tokens.", self.max_total_num_tokens as f64),
            ("token_usage", "The share of the KV pool that is in use.", self.token_usage),
            ("gen_throughput", "Output tokens a second.", self.gen_throughput),
            ("cache_hit_rate", "The share of prompt tokens from the prefix cache.", self.cache_hit_rate),
            ("utilization", "The share of the places in the batch that are taken.", self.utilization),
            ("max_running_requests", "Places in the batch.", self.max_running_requests as f64),
        ]
    }

    /// As Prometheus text, with the label that SGLang gives them.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        for (name, help, value) in self.numbers() {
            // Writing into a string cannot fail.
            let _ = writeln!(text, "# HELP sglang_{name} {help}\n# TYPE sglang_{name} gauge");
            let _ = writeln!(text, "sglang_{name}{{dp_rank=\"0\"}} {value}");
        }
        text
    }
}

/// Now, as in RFC 3339.
#[must_use]
pub fn timestamp() -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_tell_the_same() {
        let load = Load {
            num_running_reqs: 1,
            num_waiting_reqs: 2,
            num_total_reqs: 3,
            num_used_tokens: 4,
            max_total_num_tokens: 5,
            token_usage: 0.8,
            gen_throughput: 6.5,
            cache_hit_rate: 0.25,
            utilization: 0.5,
            max_running_requests: 7,
        };
        let json = serde_json::to_value(load).unwrap();
        let text = load.prometheus();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples.len(), json.as_object().unwrap().len());
        for sample in samples {
            let (name, value) = sample.split_once("{dp_rank=\"0\"} ").unwrap();
            let value: f64 = value.parse().unwrap();
            assert_eq!(json[name.strip_prefix("sglang_").unwrap()].as_f64(), Some(value), "{sample}");
        }
    }

    #[test]
    fn a_timestamp_has_its_form() {
        let text = timestamp();
        assert!(text.ends_with('Z') && text.as_bytes()[10] == b'T' && text.starts_with("20"), "{text}");
    }
}
