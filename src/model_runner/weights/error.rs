//! Why a file cannot be served.

use std::path::PathBuf;

use crate::io_struct::KernelBackend;

/// A file that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The header makes no sense.
    #[error("{path} is not a GGUF file that can be read: {message}")]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The header makes no sense.
    #[error("{path} is not a safetensors file that can be read: {message}")]
    NotSafetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A file of the folder is not what its name says.
    #[error("{path}: {message}")]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The file ends before its tensors do: an interrupted download, most likely.
    #[error("{path} is truncated: tensor {tensor} needs {needed} bytes of file, {present} are present")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The first tensor that does not fit.
        tensor: String,
        /// Length that the file must have at least; `u64::MAX` stands for a length beyond all files.
        needed: u64,
        /// Length that it has.
        present: u64,
    },
    /// A model of another family.
    #[error("{path} has the unknown architecture {architecture:?}; known: {}", known.join(", "))]
    UnknownArchitecture {
        /// The file.
        path: PathBuf,
        /// What it calls itself.
        architecture: String,
        /// What can be run.
        known: Vec<&'static str>,
    },
    /// A feature of the family that is not implemented.
    #[error("{path} needs {feature}, which is not supported")]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What is missing here.
        feature: String,
    },
    /// A key is missing or has a value that makes no sense.
    #[error("{path}: metadata {key}: {message}")]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What is wrong.
        message: String,
    },
    /// A tensor is missing or has the wrong shape.
    #[error("{path}: tensor {tensor}: {message}")]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What is wrong.
        message: String,
    },
    /// More context was asked for than the model has learnt, or than its sliding window.
    #[error("a context length of {asked} was asked for, {path} has {available}")]
    ContextLength {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        asked: u32,
        /// What the file says.
        available: u32,
    },
    /// This machine lacks the instructions of the kernels that were asked for.
    #[error("--kernels {} is beyond this machine; it has: {}", asked.as_str(), present.join(", "))]
    Kernels {
        /// What was asked for.
        asked: KernelBackend,
        /// What there is.
        present: Vec<&'static str>,
    },
    /// The system does not give memory for the KV pool.
    #[error("no memory for a KV pool of {tokens} tokens: {source}")]
    KvMemory {
        /// What was asked for.
        tokens: u32,
        /// Why.
        source: std::io::Error,
    },
    /// The KV pool is larger than the machine.
    #[error("a KV pool of {tokens} tokens needs {needed} bytes, this machine has {present} bytes of memory")]
    KvPool {
        /// What was asked for.
        tokens: u32,
        /// Bytes of all keys and values.
        needed: u64,
        /// Bytes of physical memory.
        present: u64,
    },
}
