//! What can be measured, by the names that the driver uses too.

use std::fmt;
use std::str::FromStr;

/// One thing to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Case {
    /// `tokens` of one prompt after `start` others.
    Prefill { tokens: usize, start: usize },
    /// One token for each of `streams` sequences of `context` tokens.
    Decode { streams: usize, context: usize },
    /// A chunk of a prompt and one token for each of `streams`, all after `context` tokens.
    Mixed { chunk: usize, streams: usize, context: usize },
    /// Reading a buffer of `mib` MiB with all threads.
    Bandwidth { mib: usize },
    /// Multiply-adds of bytes in registers, with all threads.
    Int8,
}

impl Case {
    /// What one repetition gets done: tokens, bytes, or multiply-adds.
    pub fn units(&self) -> usize {
        match *self {
            Self::Prefill { tokens, .. } => tokens,
            Self::Decode { streams, .. } => streams,
            Self::Mixed { chunk, streams, .. } => chunk + streams,
            Self::Bandwidth { mib } => mib << 20,
            Self::Int8 => super::roofline::MULTIPLY_ADDS,
        }
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.trim().split(':');
        let name = parts.next().unwrap_or_default();
        let numbers: Result<Vec<usize>, _> = parts.map(str::parse).collect();
        let numbers = numbers.map_err(|error| format!("{text:?}: {error}"))?;
        let case = match (name, numbers.as_slice()) {
            ("prefill", &[tokens]) => Self::Prefill { tokens, start: 0 },
            ("prefill", &[tokens, start]) => Self::Prefill { tokens, start },
            ("decode", &[streams, context]) => Self::Decode { streams, context },
            ("mixed", &[chunk, streams, context]) => Self::Mixed { chunk, streams, context },
            ("bandwidth", &[mib]) => Self::Bandwidth { mib },
            ("int8", []) => Self::Int8,
            _ => return Err(format!("{text:?} is no case, see --help")),
        };
        if numbers.first() == Some(&0) {
            return Err(format!("{text:?}: nothing to measure"));
        }
        Ok(case)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefill { tokens, start: 0 } => write!(f, "prefill:{tokens}"),
            Self::Prefill { tokens, start } => write!(f, "prefill:{tokens}:{start}"),
            Self::Decode { streams, context } => write!(f, "decode:{streams}:{context}"),
            Self::Mixed { chunk, streams, context } => write!(f, "mixed:{chunk}:{streams}:{context}"),
            Self::Bandwidth { mib } => write!(f, "bandwidth:{mib}"),
            Self::Int8 => f.write_str("int8"),
        }
    }
}
