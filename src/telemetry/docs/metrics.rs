//! The series, described from a fresh registry.

use serde_json::Value;

use super::{code, codes, table, to_value};
use crate::telemetry::metrics::catalogue;

const OPENING: &str = "# Metrics

You are on call and a panel or an alert brought you here: look its series up below and read what it means and what its
values tell. Start with `radiosonde_server_status`, then `radiosonde_health_probe_failures_total`, whose `hop` says
where to look and whose `cause` says what to do.

Every series is there from the first scrape, with each legal combination of labels at zero; only the probe duration
begins with `ok` and `timeout` and grows the other outcomes when they happen. Ages and depths are computed at the
scrape, so they go on growing while their owner is stuck. Histograms have the usual `_bucket`, `_sum` and `_count`.

`radiosonde telemetry --section metrics` prints this page, with `--format json` for programs.

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
    Ok(format!("{OPENING}{series}\n## Label values\n\n{values}"))
}

pub(super) fn json() -> Result<Value, prometheus::Error> {
    Ok(to_value(&catalogue()?))
}
