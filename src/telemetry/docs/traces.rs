//! The spans and their attributes, described from the names.

use serde_json::{Value, json};

use super::{code, table};
use crate::telemetry::spans::names::{ATTRIBUTES, spans};

const OPENING: &str = "# Traces

You are on call and have opened a trace: the span in red with the message `unfinished` is the hop that never ended, and
`probe.cause` on the root says why. A probe's trace is whole even if the engine is gone, because the frontend writes all
of it when the probe ends, in any way.

The root is named after the method and the route, as in `GET /health`; its time and its status are those of the HTTP
answer. That of a probe which the server sent by itself is `self_probe`. Below it are the hops, in the order in which
they were crossed. `scheduler.run_batch` and `model_runner.forward` belong to a probe of an idle scheduler,
`scheduler.return_health_check_ipcs` to one of a busy scheduler, `scheduler.prefill` and `scheduler.decode` to user
requests. Prompts and outputs are never in a trace.

`radiosonde telemetry --section traces` prints this page, with `--format json` for programs.

";

pub(super) fn markdown() -> String {
    let spans = spans().into_iter().map(|span| [code(span.name), span.service.to_owned(), span.meaning.to_owned()]);
    let spans = table(["span", "service", "what it tells"], spans);
    let attributes =
        ATTRIBUTES.iter().map(|attribute| [code(attribute.key), attribute.on.to_owned(), attribute.meaning.to_owned()]);
    let attributes = table(["attribute", "on", "what it says"], attributes);
    format!("{OPENING}{spans}\n## Attributes\n\n{attributes}")
}

pub(super) fn json() -> Value {
    json!({ "spans": spans(), "attributes": ATTRIBUTES })
}
