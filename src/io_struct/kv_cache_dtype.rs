//! How keys and values are held.

use serde::{Deserialize, Serialize};

/// Numbers of the KV pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
pub enum KvCacheDtype {
    /// Half precision.
    #[default]
    #[value(name = "f16", alias = "auto")]
    F16,
    /// Eight bits, with a scale for each token and head: about half the memory, faster over long contexts, a little off.
    #[value(name = "int8")]
    Int8,
}

impl KvCacheDtype {
    /// As on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Int8 => "int8",
        }
    }
}
