//! `radiosonde healthcheck`: one question to a server, for exec probes and compose, without curl.

use serde_json::Value;
use ureq::Agent;

use crate::config::HealthcheckArgs;

/// No answer of ours is longer.
const MAX_BODY: u64 = 1 << 20;

/// What the server answered, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// 200.
    pub healthy: bool,
    /// Why, or why not.
    pub line: String,
}

/// Asks the server. Whatever goes wrong is an answer too: nobody healthy is there.
#[must_use]
pub fn run(args: &HealthcheckArgs) -> Answer {
    let url = args.url.clone().unwrap_or_else(|| format!("http://127.0.0.1:{}/health", args.port));
    match ask(&url, args) {
        Ok((200, body)) => Answer { healthy: true, line: format!("healthy: {}", explain(&body)) },
        Ok((status, body)) => Answer { healthy: false, line: format!("unhealthy ({status}): {}", explain(&body)) },
        Err(ureq::Error::Timeout(_)) => {
            let line = format!("unhealthy: no answer from {url} within {:?}", args.timeout);
            Answer { healthy: false, line }
        }
        Err(error) => Answer { healthy: false, line: format!("unreachable: {url}: {error}") },
    }
}

fn ask(url: &str, args: &HealthcheckArgs) -> Result<(u16, Value), ureq::Error> {
    let config = Agent::config_builder()
        .timeout_global(Some(args.timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None) // whoever asks about health wants this server's answer
        .build();
    let mut question = Agent::new_with_config(config).get(url);
    if let Some(key) = &args.api_key {
        question = question.header("authorization", format!("Bearer {}", key.reveal()));
    }
    let mut answer = question.call()?;
    let status = answer.status().as_u16();
    let body = answer.body_mut().with_config().limit(MAX_BODY).read_to_vec()?;
    Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
}

/// `step_stuck at scheduler.inbox: step 7 has been running for 3012 ms`, as far as the body says it.
fn explain(body: &Value) -> String {
    let text = |field: &str| body.get(field).and_then(Value::as_str);
    let place = text("stalled_at").map_or_else(String::new, |hop| format!(" at {hop}"));
    let why = text("cause_detail").or_else(|| text("reason"));
    let why = why.or_else(|| body.pointer("/error/message").and_then(Value::as_str));
    let why = why.unwrap_or("the answer says no more");
    let line = text("cause").map_or_else(|| why.to_owned(), |cause| format!("{cause}{place}: {why}"));
    line.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_line() {
        for (body, want) in [
            (json!({"reason": "the probe's own answer was received"}), "the probe's own answer was received"),
            (
                json!({"cause": "step_stuck", "stalled_at": "scheduler.inbox", "cause_detail": "step 7\nhangs"}),
                "step_stuck at scheduler.inbox: step 7 hangs",
            ),
            (json!({"cause": "engine_dead", "reason": "killed"}), "engine_dead: killed"),
            (json!({"error": {"message": "there is nothing"}}), "there is nothing"),
            (Value::Null, "the answer says no more"),
        ] {
            assert_eq!(explain(&body), want, "{body}");
        }
    }
}
