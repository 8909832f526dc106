//! `docs/api.md`, written from the tables.

use std::fmt::Write as _;

use super::{ELSEWHERE, ENDPOINTS, Family};

const OPENING: &str = "# The HTTP API

This file is generated: `UPDATE_EXPECT=1 cargo test --release --lib endpoints`. A test asks a running server for each line.

Any path can also answer 401 (no key, or a wrong one, where keys are asked for), 404 (nothing is there), 405 (not with this
method) and 500 (the handler failed). Errors have one shape, `{\"error\": {\"message\", \"type\", \"param\", \"code\"}}`; a 503
of theirs comes with `Retry-After`. A probe's 503 is a verdict instead ([the probe](probe.md)). In a stream that has begun an
error is the last event before `data: [DONE]`. `GET` answers `HEAD` too.

A request is known by its `rid`: the caller's own, which no other live request may have, or a fresh one. It is
`meta_info.id` of `/generate`, stands behind the dash of OpenAI's `id`, and is the header `X-Request-Id` of each answer.
Several prompts or samples of one call are `<rid>-0`, `<rid>-1`, and so on. `POST /abort_request` takes any of these. One
call of `/generate` or `/v1/completions` has at most 2048 of them.

Limits of one request: `stop` has at most 32 strings with 4096 bytes in all, `stop_token_ids` and `token_ids_logprob` 1024
ids, `logit_bias` 4096 entries; a schema, regular expression or grammar has at most 1 MiB, and those of all requests of one
call 64 MiB. What is beyond a limit is a 400 that names field and limit. Control calls that the engine has not read are at
most 64; the next is a 503.

Fields that nobody here knows are ignored. Fields that are known and cannot be honoured are refused with 400 and their
name, never ignored: the older `functions`, images, audio, adapters. What an output must look like, tools
and reasoning: [structured output](structured.md).

Log-probabilities are the model's own, before bias, penalties and temperature, over the tokens that a grammar allows.
Those of the prompt are had with `logprob_start_len` at `/generate`, or with `echo` and `logprobs` at `/v1/completions`;
the first token has none.
";

const ELSEWHERE_OPENING: &str = "
## Not here

SGLang or others have these paths. They answer 501 and say why.

| path | why |
|---|---|
";

/// The page.
#[must_use]
pub fn markdown() -> String {
    let mut text = OPENING.to_owned();
    for family in Family::ALL {
        let _ = write!(text, "\n## {}\n\n| method | path | what | answers |\n|---|---|---|---|\n", title(family));
        for endpoint in ENDPOINTS.iter().filter(|endpoint| endpoint.family == family) {
            let methods = endpoint.methods.join(", ");
            let statuses: Vec<String> = endpoint.statuses.iter().map(ToString::to_string).collect();
            let what = match endpoint.alias_of {
                Some(first) => format!("`{first}`, by its older name."),
                None => endpoint.what.to_owned(),
            };
            let path = endpoint.path.replace("{*", "{");
            let _ = writeln!(text, "| {methods} | `{path}` | {what} | {} |", statuses.join(", "));
        }
    }
    text.push_str(ELSEWHERE_OPENING);
    for elsewhere in ELSEWHERE {
        let _ = writeln!(text, "| `{}` | {} |", elsewhere.path, elsewhere.why);
    }
    text
}

/// The heading of a family.
#[must_use]
pub const fn title(family: Family) -> &'static str {
    match family {
        Family::OpenAi => "OpenAI",
        Family::Native => "SGLang",
        Family::Info => "What is served",
        Family::Control => "Control (admin key)",
        Family::Health => "Health (open, unless --guard-health)",
    }
}
