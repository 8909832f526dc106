//! How tool calls and reasoning are found in what a model writes.

use clap::{Args, ValueEnum};

/// What is read out of an output.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Tools and reasoning")]
pub struct ParserArgs {
    /// How the model writes tool calls. Default: as its chat template does, if that is one of these.
    #[arg(long, value_enum, value_name = "FORMAT", env = "RADIOSONDE_TOOL_CALL_PARSER")]
    pub tool_call_parser: Option<ToolCallParser>,
    /// How the model writes what it thinks before it answers. Default: it is part of the answer.
    #[arg(long, value_enum, value_name = "FORMAT", env = "RADIOSONDE_REASONING_PARSER")]
    pub reasoning_parser: Option<ReasoningParser>,
}

/// How a model writes tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ToolCallParser {
    /// `<tool_call>{"name": .., "arguments": ..}</tool_call>`: Hermes, Qwen 2.5 and Qwen 3.
    #[value(alias = "qwen", alias = "qwen25")]
    Hermes,
    /// `{"name": .., "parameters": ..}`: Llama 3.1 and later.
    #[value(name = "llama3")]
    Llama3,
}

/// How a model writes what it thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReasoningParser {
    /// `<think>..</think>`, or nothing.
    Qwen3,
    /// `..</think>`: the chat template has begun it.
    #[value(name = "qwen3-thinking")]
    Qwen3Thinking,
    /// `..</think>`: the model always thinks.
    #[value(name = "deepseek-r1")]
    DeepseekR1,
}

/// Reads the name of a format, as on the command line.
///
/// # Errors
/// The names that there are.
pub fn parse_name<T: ValueEnum>(name: &str) -> Result<T, String> {
    T::from_str(name, false).map_err(|_| {
        let names = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
        format!("'{}' is not one of {}", name.chars().take(40).collect::<String>(), names.join(", "))
    })
}
