//! The table of SGLang's names: what each of them is here.

use crate::telemetry::metrics::THROUGHPUT_WINDOW_SECONDS;

/// One series of SGLang's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias {
    /// Its name there.
    pub name: &'static str,
    /// What it is made of here.
    pub source: Source,
    /// Which of SGLang's label sets it has.
    pub scope: Scope,
    /// Labels that it alone has.
    pub extra: &'static [(&'static str, &'static str)],
}

/// What an alias is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The only sample of a family.
    Same(&'static str),
    /// The samples of a family, added up over labels that SGLang does not have.
    Sum(&'static str),
    /// A family whose labels are its values.
    Info(&'static str),
    /// The value of a label, as a number.
    Label {
        /// An info family.
        family: &'static str,
        /// The label.
        label: &'static str,
    },
    /// One counter as a part of another.
    Ratio {
        /// The part.
        part: &'static str,
        /// What it is a part of.
        whole: &'static str,
    },
    /// Output tokens a second.
    Throughput,
}

impl Source {
    /// What the alias says, in a sentence.
    #[must_use]
    pub fn meaning(self) -> String {
        match self {
            Self::Same(name) | Self::Info(name) => format!("The same as {name}."),
            Self::Sum(name) => format!("{name}, added up over its labels."),
            Self::Label { family, label } => format!("The label {label} of {family}."),
            Self::Ratio { part, whole } => format!("{part} divided by {whole}, since the start."),
            Self::Throughput => format!("Output tokens a second, over the last {THROUGHPUT_WINDOW_SECONDS} seconds."),
        }
    }

    /// The families that it needs.
    #[must_use]
    pub fn families(self) -> Vec<&'static str> {
        match self {
            Self::Same(name) | Self::Sum(name) | Self::Info(name) | Self::Label { family: name, .. } => vec![name],
            Self::Ratio { part, whole } => vec![part, whole],
            Self::Throughput => Vec::new(),
        }
    }
}

/// SGLang's label sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Its scheduler's, with the ranks of the one process that there is here.
    Scheduler,
    /// Its tokenizer manager's.
    Tokenizer,
}

impl Scope {
    /// The labels beside `model_name`.
    #[must_use]
    pub const fn labels(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Scheduler => &[("engine_type", "unified"), ("tp_rank", "0"), ("pp_rank", "0"), ("moe_ep_rank", "0")],
            Self::Tokenizer => &[("engine_type", "unified")],
        }
    }
}

const fn scheduler(name: &'static str, source: Source) -> Alias {
    Alias { name, source, scope: Scope::Scheduler, extra: &[] }
}

const fn tokenizer(name: &'static str, source: Source) -> Alias {
    Alias { name, source, scope: Scope::Tokenizer, extra: &[] }
}

const CACHED_TOKENS: &str = "radiosonde_cached_tokens_total";
const PROMPT_TOKENS: &str = "radiosonde_prompt_tokens_total";
const CACHE_CONFIG: &str = "radiosonde_cache_config_info";

/// Every alias. `num_requests_total` counts requests that ended, as SGLang's does.
pub const ALIASES: &[Alias] = &[
    scheduler("sglang:num_running_reqs", Source::Same("radiosonde_num_running_reqs")),
    scheduler("sglang:num_queue_reqs", Source::Same("radiosonde_num_queue_reqs")),
    scheduler("sglang:token_usage", Source::Same("radiosonde_token_usage")),
    scheduler("sglang:num_used_tokens", Source::Same("radiosonde_kv_used_tokens")),
    scheduler("sglang:kv_used_tokens", Source::Same("radiosonde_kv_used_tokens")),
    scheduler("sglang:kv_evictable_tokens", Source::Same("radiosonde_kv_evictable_tokens")),
    scheduler("sglang:evicted_tokens_total", Source::Same("radiosonde_kv_evicted_tokens_total")),
    scheduler("sglang:max_total_num_tokens", Source::Same("radiosonde_max_total_num_tokens")),
    scheduler("sglang:gen_throughput", Source::Throughput),
    scheduler("sglang:cache_hit_rate", Source::Ratio { part: CACHED_TOKENS, whole: PROMPT_TOKENS }),
    scheduler("sglang:queue_time_seconds", Source::Same("radiosonde_queue_time_seconds")),
    scheduler("sglang:cache_config_info", Source::Info(CACHE_CONFIG)),
    scheduler("sglang:page_size", Source::Label { family: CACHE_CONFIG, label: "page_size" }),
    scheduler("sglang:num_pages", Source::Label { family: CACHE_CONFIG, label: "num_pages" }),
    tokenizer("sglang:num_requests_total", Source::Sum("radiosonde_requests_finished_total")),
    tokenizer("sglang:num_aborted_requests_total", Source::Same("radiosonde_num_aborted_requests_total")),
    tokenizer("sglang:prompt_tokens_total", Source::Same(PROMPT_TOKENS)),
    tokenizer("sglang:generation_tokens_total", Source::Same("radiosonde_generation_tokens_total")),
    Alias {
        name: "sglang:cached_tokens_total",
        source: Source::Same(CACHED_TOKENS),
        scope: Scope::Tokenizer,
        extra: &[("cache_source", "device")],
    },
    tokenizer("sglang:time_to_first_token_seconds", Source::Same("radiosonde_time_to_first_token_seconds")),
    tokenizer("sglang:inter_token_latency_seconds", Source::Same("radiosonde_inter_token_latency_seconds")),
    tokenizer("sglang:e2e_request_latency_seconds", Source::Same("radiosonde_e2e_request_latency_seconds")),
];
