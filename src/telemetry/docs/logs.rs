//! The log lines, described from their table.

use serde_json::{Value, json};

use super::{code, codes, table};
use crate::telemetry::log::events::EVENTS;

const OPENING: &str = "# Logs

You are on call and have a line: search for its text below. One line tells one thing that happened, on standard error;
its text is always the same, and what differs is in its fields. `--log-format json` writes one object a line, with
`timestamp`, `level`, `target`, `message` and the fields.

A line that was written inside a probe or a request also has `trace_id` and `span_id`, which are those of its trace, and
`rid` or `probe_id`, which are those of its answer. Prompts and outputs are never in a line.

* `error`: somebody must act now; the server has ended or is about to.
* `warn`: something failed, and the server goes on by itself. Alerts stand on metrics, which count all of it.
* `info`: what happened to this server, few lines an hour.
* `debug`: what is ordinary, for those who look for something (`--log-level radiosonde=debug`).

*More lines, now, without a restart*: `POST /configure_logging` with `{\"log_level\": \"radiosonde=debug\"}`, or with
`{\"log_requests\": true}` for a line about each finished request, `request ended`, whatever the level (its target is
`radiosonde::requests`). It holds for this frontend, its engine, and engines that replace it, until somebody changes it
again or the server ends. The answer says what is logged now. As in SGLang, an admin's key is needed where there is one.

Of one kind of line, at most 20 are written at once and 10 a second for long, errors and `debug` excepted. Suppressed
ones are counted in `radiosonde_log_lines_suppressed_total` and told in one line when it is over.

`--otlp-logs-endpoint` or `OTEL_EXPORTER_OTLP_LOGS_ENDPOINT` also sends the frontend's lines to a collector, as records
with the same trace and span, `request.rid` and `probe.id`. `OTEL_EXPORTER_OTLP_ENDPOINT` alone does not, since whoever
reads standard error would have each line twice: it needs `OTEL_LOGS_EXPORTER=otlp` beside it. The engine's lines are on
standard error alone. What is not delivered is in `radiosonde_log_records_dropped_total`. The other variables
(`OTEL_EXPORTER_OTLP_LOGS_*`, `OTEL_BLRP_*`) are in the table of [traces](traces.md#environment-variables).

`radiosonde telemetry --section logs` prints this page, with `--format json` for programs.

";

pub(super) fn markdown() -> String {
    let events = EVENTS.iter().map(|event| {
        let fields = codes(event.fields.iter().copied());
        [event.level.to_owned(), code(event.message), fields, event.meaning.to_owned()]
    });
    format!("{OPENING}{}", table(["level", "message", "fields", "what it means"], events))
}

pub(super) fn json() -> Value {
    json!({ "events": EVENTS })
}
