//! One probe: how it is asked for, and what it answers.

use serde_json::Value;

/// A probe's answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The autopsy.
    pub body: Value,
}

impl Answer {
    /// `503 timeout scheduler.inbox loop_frozen`, without what is not there.
    pub fn story(&self) -> String {
        let field = |name: &str| self.body[name].as_str().map(|text| format!(" {text}")).unwrap_or_default();
        format!("{}{}{}{}", self.status, field("outcome"), field("stalled_at"), field("cause"))
    }

    /// By how much the verdict was later than the limit.
    pub fn late_by_ms(&self) -> f64 {
        self.body["duration_ms"].as_f64().unwrap() - self.body["limit_ms"].as_f64().unwrap()
    }
}

/// Sends `request`, which is to be answered with JSON.
pub async fn ask(request: reqwest::RequestBuilder) -> Answer {
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    Answer { status, body: answer.json().await.unwrap() }
}
