//! How the outputs of one chat are read: which tools may be called, and whether reasoning stands apart.

use serde_json::Value;

use super::body::ChatBody;
use super::parts::Parts;
use crate::config::{ParserArgs, ReasoningParser};
use crate::http_server::error::ApiError;
use crate::http_server::openai::reasoning::{ReasoningStream, Telling};
use crate::http_server::openai::tools::Tools;
use crate::http_server::openai::tools::calls::CallFormat;
use crate::io_struct::SamplingParams;
use crate::tokenizer_manager::ServedModel;

/// How the outputs of one chat are read.
#[derive(Debug, Default)]
pub struct Plan {
    tools: Option<(Tools, CallFormat)>,
    reasoning: Option<(ReasoningParser, Telling)>,
}

impl Plan {
    /// Of what `body` asks for. A call that is forced becomes the grammar of `params`; what a grammar shapes has no
    /// reasoning in front.
    ///
    /// # Errors
    /// The field that is to blame.
    pub fn new(
        body: &mut ChatBody,
        params: &mut SamplingParams,
        model: &ServedModel,
        parsers: ParserArgs,
    ) -> Result<Self, ApiError> {
        let tools = match body.take_tools()? {
            None => None,
            Some(tools) => {
                let flag = parsers.tool_call_parser.map(CallFormat::from);
                let format = tools.format(flag, model.chat_template.as_ref())?;
                let forced = tools.grammar()?;
                if let (Some(grammar), Some(_)) = (&params.grammar, &forced) {
                    let message = format!("tool_choice forces a call and {} is given; leave one out", grammar.field);
                    return Err(ApiError::invalid("tool_choice", message));
                }
                params.grammar = params.grammar.take().or(forced);
                params.skip_special_tokens = false; // the marks of some formats are control tokens
                Some((tools, format))
            }
        };
        let separate = body.separate_reasoning.unwrap_or(true) && params.grammar.is_none();
        let telling = if body.stream_reasoning.unwrap_or(true) { Telling::AtOnce } else { Telling::Whole };
        let reasoning = parsers.reasoning_parser.filter(|_| separate).map(|parser| (parser, telling));
        Ok(Self { tools, reasoning })
    }

    /// What the chat template is told of tools.
    #[must_use]
    pub fn tools_for_template(&self) -> Vec<Value> {
        self.tools.as_ref().map(|(tools, _)| tools.for_template()).unwrap_or_default()
    }

    /// Takes one output apart.
    #[must_use]
    pub fn parts(&self) -> Parts {
        Parts {
            reasoning: self.reasoning.map(|(parser, telling)| ReasoningStream::new(parser, telling)),
            calls: self.tools.as_ref().map(|(tools, format)| tools.stream(*format)),
        }
    }
}
