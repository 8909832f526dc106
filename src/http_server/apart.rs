//! Work that can take its time, away from the threads that answer probes.

use axum::http::StatusCode;

use super::error::ApiError;

/// Does `work` on a thread of its own: with a text or a list as large as a body it can take seconds.
///
/// # Errors
/// Those of `work`, and 500 if it panics.
pub async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(ApiError::plain(StatusCode::INTERNAL_SERVER_ERROR, "server_error", error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use axum::http::header::CONTENT_TYPE;
    use serde_json::{Value, json};
    use tokio::task::spawn_blocking;
    use tower::ServiceExt;

    use crate::config::ParserArgs;
    use crate::http_server::generate::ApiState;
    use crate::http_server::{openai, parse};
    use crate::io_struct::ModelTask;
    use crate::tokenizer_manager::tests::frontend;

    /// The only thread for long work is taken. What the thread of the handlers could do alone would be done at the first
    /// look; it waits instead, and so somebody else has his turn.
    async fn waits(state: &ApiState, path: &str, body: String) -> (u16, Value) {
        let (release, held) = mpsc::channel::<()>();
        let holder = spawn_blocking(move || held.recv());
        let router = openai::routes().merge(parse::routes()).with_state(state.clone());
        let request = Request::post(path).header(CONTENT_TYPE, "application/json").body(Body::from(body)).unwrap();
        let mut answer = Box::pin(router.oneshot(request));
        assert!(futures::poll!(answer.as_mut()).is_pending(), "{path}");
        drop(release);
        assert!(holder.await.unwrap().is_err());
        let answer = answer.await.unwrap();
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[test]
    fn long_work_leaves_the_thread_of_the_handlers_to_others() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (tokenizer_manager, _queue) = frontend(ModelTask::Generate);
            let state = ApiState { tokenizer_manager, parsers: ParserArgs::default() };
            let ask = async |path, body: Value| waits(&state, path, body.to_string()).await;
            let text = ask("/v1/detokenize", json!({"tokens": [[97], [98, 99]]})).await;
            assert_eq!(text, (200, json!({"text": ["a", "bc"]})));
            let tokens = ask("/v1/tokenize", json!({"prompt": ["a", "bc"]})).await.1;
            assert_eq!((&tokens["tokens"], &tokens["count"]), (&json!([[97], [98, 99]]), &json!([1, 2])));
            let thought = json!({"text": "<think>a</think>b", "reasoning_parser": "qwen3"});
            let parts = ask("/separate_reasoning", thought).await;
            assert_eq!(parts, (200, json!({"reasoning_text": "a", "text": "b"})));
            let tools = json!([{"type": "function", "function": {"name": "f"}}]);
            let written = r#"a<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>"#;
            let body = json!({"text": written, "tools": tools, "tool_call_parser": "hermes"});
            let calls = json!([{"tool_index": 0, "name": "f", "parameters": "{\"x\": 1}"}]);
            assert_eq!(ask("/parse_function_call", body).await, (200, json!({"normal_text": "a", "calls": calls})));
            let long = format!(r#"{{"prompt": "{}", "n": "x"}}"#, "a".repeat(1 << 17));
            let (status, refused) = waits(&state, "/v1/completions", long).await;
            assert_eq!((status, &refused["error"]["param"]), (400, &json!("n")), "read, and by another thread");
        });
    }
}
