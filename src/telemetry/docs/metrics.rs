//! The series, described from a fresh registry, and the names that they have elsewhere.

use serde_json::{Map, Value};

use super::{code, codes, table, to_value};
use crate::telemetry::exposition::sglang::{ALIASES, Alias, Scope};
use crate::telemetry::metrics::catalogue;

const OPENING: &str = "# Metrics

You are on call and a panel or an alert brought you here: look its series up below and read what it means and what its
values tell. Start with `radiosonde_server_status`, then `radiosonde_health_probe_failures_total`, whose `hop` says
where to look and whose `cause` says what to do.

Every series is there from the first scrape, with each legal combination of labels at zero; only the probe duration
begins with `ok` and `timeout` and grows the other outcomes when they happen, and `radiosonde_model_info` and
`radiosonde_cache_config_info` come with the engine. Ages and depths are computed at the scrape, so they go on growing
while their owner is stuck. Histograms have the usual `_bucket`, `_sum` and `_count`.

`GET /metrics` answers in OpenMetrics 1.0 to those whose `Accept` prefers it, as Prometheus' does, else in the text
format 0.0.4. Only OpenMetrics has exemplars: buckets of `radiosonde_health_probe_duration_seconds`,
`radiosonde_time_to_first_token_seconds` and `radiosonde_e2e_request_latency_seconds` carry the `trace_id` of their newest
observation whose trace was sampled and goes to a collector. Prometheus stores them with
`--enable-feature=exemplar-storage`. A bucket's edge is `1.0` in OpenMetrics and `1` in text: match `le=~\"1(\\\\.0)?\"`.

`radiosonde telemetry --section metrics` prints this page, with `--format json` for programs.

";

const SGLANG: &str = "
## SGLang names

`--metrics-alias sglang` serves the names below too, made at the scrape from the series above, for dashboards, gateways
and endpoint pickers that ask for those. Off by default: a colon in a name belongs to recording rules. They begin when the
model is loaded, all with `model_name` and `engine_type=\"unified\"`; those of the scheduler also have `tp_rank`, `pp_rank`
and `moe_ep_rank`, each `0`. SGLang's `is_streaming` is missing. One whose source is not there is left out.

";

pub(super) fn markdown() -> Result<String, prometheus::Error> {
    let all = catalogue()?;
    let series = all.iter().map(|series| {
        let labels = codes(series.labels.iter().map(|label| &*label.name));
        [code(&series.name), series.kind.to_owned(), series.unit.to_owned(), labels, series.help.clone()]
    });
    let series = table(["series", "kind", "unit", "labels", "meaning"], series);
    let labels = all.iter().flat_map(|series| series.labels.iter().map(move |label| (&series.name, label)));
    let values = labels
        .filter(|(_, label)| label.closed)
        .map(|(name, label)| [code(name), code(&label.name), codes(label.values.iter().map(String::as_str))]);
    let values = table(["series", "label", "values"], values);
    let aliases = ALIASES.iter().map(|alias| [code(alias.name), owner(alias).to_owned(), alias.source.meaning()]);
    let aliases = table(["SGLang name", "labels of", "what it is here"], aliases);
    Ok(format!("{OPENING}{series}\n## Label values\n\n{values}{SGLANG}{aliases}"))
}

pub(super) fn json() -> Result<Map<String, Value>, prometheus::Error> {
    let series = to_value(&catalogue()?);
    Ok(Map::from_iter([("series".to_owned(), series), ("aliases".to_owned(), ALIASES.iter().map(in_json).collect())]))
}

fn in_json(alias: &Alias) -> Value {
    let extra = alias.extra.iter().chain(alias.scope.labels());
    let labels: Map<_, _> = extra.map(|&(name, value)| (name.to_owned(), value.into())).collect();
    serde_json::json!({ "name": alias.name, "labels": labels, "meaning": alias.source.meaning() })
}

/// The station that serves it there.
fn owner(alias: &Alias) -> &'static str {
    match alias.scope {
        Scope::Scheduler => "scheduler",
        Scope::Tokenizer => "tokenizer manager",
    }
}
