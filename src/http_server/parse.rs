//! `POST /parse_function_call` and `/separate_reasoning`: what is read out of a text that a model wrote elsewhere.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::apart::apart;
use super::error::ApiError;
use super::generate::ApiState;
use super::generate::body::ApiJson;
use super::openai::reasoning::{ReasoningStream, Telling};
use super::openai::tools::calls::{CallFormat, CallStream, Piece};
use super::openai::tools::{Tool, ToolFields};
use crate::config::parsers::parse_name;
use crate::config::{ReasoningParser, ToolCallParser};

/// The longest text in which calls are looked for: each of them costs a look at all that follows.
const MAX_CALL_TEXT_BYTES: usize = 1 << 20;

/// The paths.
pub fn routes() -> Router<ApiState> {
    Router::new()
        .route("/parse_function_call", post(parse_function_call))
        .route("/separate_reasoning", post(separate_reasoning))
}

/// SGLang's `ParseFunctionCallReq`.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are the API's own")]
pub struct FunctionCallBody {
    pub text: String,
    pub tools: Vec<Tool>,
    #[serde(default)]
    pub tool_call_parser: Option<String>,
}

/// SGLang's `SeparateReasoningReqInput`.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are the API's own")]
pub struct ReasoningBody {
    pub text: String,
    #[serde(default)]
    pub reasoning_parser: Option<String>,
}

async fn parse_function_call(
    State(state): State<ApiState>,
    ApiJson(body): ApiJson<FunctionCallBody>,
) -> Result<Response, ApiError> {
    let invalid = |message| ApiError::invalid("tool_call_parser", format!("tool_call_parser: {message}"));
    let named = body.tool_call_parser.as_deref().map(parse_name::<ToolCallParser>).transpose().map_err(invalid)?;
    let parser = named.or(state.parsers.tool_call_parser).map(CallFormat::from);
    let tools = ToolFields { tools: Some(body.tools), ..ToolFields::default() }.check()?;
    let tools = tools.ok_or_else(|| ApiError::invalid("tools", "tools must hold at least one tool"))?;
    let format = parser.ok_or_else(|| invalid("name one, or start the server with --tool-call-parser".to_owned()))?;
    if body.text.len() > MAX_CALL_TEXT_BYTES {
        let message = format!("text has {} bytes; the limit is {MAX_CALL_TEXT_BYTES}", body.text.len());
        return Err(ApiError::invalid("text", message));
    }
    apart(move || Ok(Json(calls(tools.stream(format), &body.text)).into_response())).await
}

fn calls(mut stream: CallStream, text: &str) -> Value {
    let mut pieces = stream.push(text);
    pieces.extend(stream.finish());
    let (mut text, mut calls) = (String::new(), Vec::<(String, String)>::new());
    for piece in pieces {
        match piece {
            Piece::Text(more) => text.push_str(&more),
            Piece::Call { name, .. } => calls.push((name, String::new())),
            Piece::Arguments { text: more, .. } => {
                calls.last_mut().into_iter().for_each(|(_, arguments)| arguments.push_str(&more));
            }
        }
    }
    let call = |(index, (name, arguments))| json!({"tool_index": index, "name": name, "parameters": arguments});
    let calls: Vec<Value> = calls.into_iter().enumerate().map(call).collect();
    json!({"normal_text": text, "calls": calls})
}

async fn separate_reasoning(
    State(state): State<ApiState>,
    ApiJson(body): ApiJson<ReasoningBody>,
) -> Result<Response, ApiError> {
    let invalid = |message| ApiError::invalid("reasoning_parser", format!("reasoning_parser: {message}"));
    let named = body.reasoning_parser.as_deref().map(parse_name::<ReasoningParser>).transpose().map_err(invalid)?;
    let parser = named.or(state.parsers.reasoning_parser);
    let parser = parser.ok_or_else(|| invalid("name one, or start the server with --reasoning-parser".to_owned()))?;
    apart(move || {
        let mut stream = ReasoningStream::new(parser, Telling::AtOnce);
        let (first, last) = (stream.push(&body.text), stream.finish());
        let answer = json!({"reasoning_text": first.reasoning + &last.reasoning, "text": first.answer + &last.answer});
        Ok(Json(answer).into_response())
    })
    .await
}
