//! Why a folder cannot be served as an embedding model.

use std::io;
use std::path::{Path, PathBuf};

use crate::io_struct::KernelBackend;

/// A folder that cannot be served.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts name the fields")]
pub enum EncoderError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A file is not what its name says.
    #[error("{}: {message}", path.display())]
    Json { path: PathBuf, message: String },
    /// A value makes no sense.
    #[error("{}: {key} {message}", path.display())]
    Config { path: PathBuf, key: &'static str, message: String },
    /// A feature that is not implemented.
    #[error("{} needs {feature}, which is not supported", path.display())]
    Unsupported { path: PathBuf, feature: String },
    /// The file of the weights cannot be read as one.
    #[error("{} is not a safetensors file that can be read: {message}", path.display())]
    Weights { path: PathBuf, message: String },
    /// A tensor is missing or has the wrong shape.
    #[error("{}: tensor {tensor} {message}", path.display())]
    Tensor { path: PathBuf, tensor: String, message: String },
    /// More context was asked for than the model has learnt.
    #[error("a context length of {asked} was asked for, {} has {available} positions", path.display())]
    ContextLength { path: PathBuf, asked: usize, available: usize },
    /// The machine lacks the instructions.
    #[error("--kernels {} is beyond this machine", .0.as_str())]
    Kernels(KernelBackend),
}

impl EncoderError {
    pub(super) fn missing(path: &Path) -> Self {
        Self::Io { path: path.to_owned(), source: io::ErrorKind::NotFound.into() }
    }
}
