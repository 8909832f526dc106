//! The spans, their events and their attributes, described from the names; and how their export is set up.

use serde_json::{Value, json};

use super::{code, codes, table};
use crate::telemetry::otlp::variables::VARIABLES;
use crate::telemetry::spans::names::{ATTRIBUTES, EVENTS, spans};

const OPENING: &str = "# Traces

You are on call and have opened a trace: the span in red with the message `unfinished` is the hop that never ended, and
`probe.cause` on the root says why. A probe's trace is whole even if the engine is gone, because the frontend writes all
of it when the probe ends, in any way.

The root is named after the method and the route, as in `GET /health`; its time and its status are those of the HTTP
answer. That of a probe which the server sent by itself is `self_probe`. Below it are the hops, in the order in which
they were crossed. `scheduler.run_batch` and `model_runner.forward` belong to a probe of an idle scheduler,
`scheduler.return_health_check_ipcs` to one of a busy scheduler, `scheduler.prefill` and `scheduler.decode` to user
requests. Prompts and outputs are never in a trace.

*Which request held my probe up?* A busy scheduler's probe is linked to the root spans of the requests in the batches that
it waited for, at most 32, and its JSON body names them as `waited_for`. The requests of other frontends of the same
engine are not among them. A request's `scheduler.prefill` and `scheduler.decode` say which steps they took.

A request has one `scheduler.prefill` and one `scheduler.decode`, whatever happens to it: a retraction is an event there,
and waiting and computing again lie inside. Nothing is written for each token. If the engine dies and the request is sent
to the next one, the hop that it died in is `unfinished`, and the second `ipc.to_engine` lasts until the next engine reads.

What is an error: 500 and above, a request that the runtime failed (the message says why), a failed probe. Bad input (400)
is none, nor is a client that leaves: then `request.outcome` is `abort`, and the hop where it was has the event `abort`.

`radiosonde telemetry --section traces` prints this page, with `--format json` for programs.

## Which traces are kept

All of them, unless you say less. What is said is about good traces; whether one is good is known when its root ends,
and then the whole of it is exported or none:

| trace | always kept | else |
|---|---|---|
| of a probe | it failed (`timeout`, `engine_dead`, `error`), took `--trace-slow-probe` (1s), or is the first after a change of the server's status | `--trace-probes`: `all` (default), `failures`, or a ratio |
| of any other request | its status is 500 or above, its span is an error, or it took `--trace-slow-request` (30s) to the last byte | `--trace-ratio` (default 1), or `OTEL_TRACES_SAMPLER` |

A ratio goes by the trace id, as `traceidratio` does everywhere, so services with the same ratio keep the same traces. A
caller that sends a `traceparent` has decided already: its `sampled` flag stands in the place of the ratio. Where it says
no, a trace that failed or was slow is kept all the same, since it tells of this server and the caller could not know; its
parent is then missing. Probes that only wait for a start or a drain are asked again every few
seconds and say the same each time: they count as good.

*Other shares, now, without a restart*: `/set_trace_level?level=`, by `GET` or `POST`, changes what stands in the last column
for the traces that begin from then on: `0` keeps none, whatever callers decided, `1` goes by the flags again, `2` and `3`
keep each trace that no caller decided about. What is always kept is kept at each level. SGLang's levels are degrees of
detail; a trace here is always whole. The answer says whether there is a collector (`exported`).

Until it is known, spans wait in a buffer of at most 2048 traces and 16384 spans. When that is full, failed and slow
traces keep their root alone, and `radiosonde_trace_spans_dropped_total{reason=\"buffer_full\"}` counts the rest. What is
left out on purpose is in `radiosonde_trace_spans_unsampled_total`. Metrics, logs and `/debug/probes` know of every probe,
traced or not.

The collector is never waited for. What it does not take in time is dropped, and counted by reason; a change for the worse
or the better is one line of the log.

## Spans

";

const SETTINGS: &str = "
## Environment variables

What OpenTelemetry's standard variables do here, for traces and for [logs](logs.md). A value that cannot
be used ends the start with an error that names it; an empty one counts as unset.

";

pub(super) fn markdown() -> String {
    let spans = spans().into_iter().map(|span| [code(span.name), span.service.to_owned(), span.meaning.to_owned()]);
    let spans = table(["span", "service", "what it tells"], spans);
    let events = EVENTS.iter().map(|event| [code(event.name), event.on.to_owned(), event.meaning.to_owned()]);
    let events = table(["event", "on", "what it says"], events);
    let attributes =
        ATTRIBUTES.iter().map(|attribute| [code(attribute.key), attribute.on.to_owned(), attribute.meaning.to_owned()]);
    let attributes = table(["attribute", "on", "what it says"], attributes);
    let variables = VARIABLES.iter().map(|variable| {
        let honoured = if variable.is_honoured { "yes" } else { "no" };
        [codes(variable.name.split(", ")), honoured.to_owned(), variable.meaning.to_owned()]
    });
    let variables = table(["variable", "honoured", "what it does"], variables);
    format!("{OPENING}{spans}\n## Events\n\n{events}\n## Attributes\n\n{attributes}{SETTINGS}{variables}")
}

pub(super) fn json() -> Value {
    json!({ "spans": spans(), "events": EVENTS, "attributes": ATTRIBUTES, "variables": VARIABLES })
}
