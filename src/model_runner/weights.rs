//! From a GGUF file to a runner. Everything is checked before anything is used: a bad file is refused, by name.

pub mod gguf;
mod hparams;
mod memory;
mod tensors;

use std::path::{Path, PathBuf};

use super::ModelRunner;
use super::kernels::team::cores::physical_cores;
use super::kernels::{Team, backend};
use super::llama::LlamaParts;
use crate::clock::MonoNanos;
use crate::io_struct::{KernelBackend, KvCacheDtype, ModelInfo, ModelSource, ModelTask};
use gguf::GgufFile;

/// Architectures that this crate can run, as `general.architecture` names them.
pub const KNOWN_ARCHITECTURES: &[&str] = &["llama"];

/// What may be chosen about a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOptions {
    /// The most tokens of a sequence; `None`: what the file says.
    pub context_length: Option<u32>,
    /// Size of the KV pool in tokens, rounded up to whole pages.
    pub max_total_tokens: u32,
    /// Threads of a forward pass; `None`: one for each physical core that this process may use.
    pub threads: Option<usize>,
    /// How keys and values are held.
    pub kv_cache_dtype: KvCacheDtype,
    /// Kernels; `None`: the fastest that this machine has.
    pub kernels: Option<KernelBackend>,
}

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
    #[error("{path} has the unknown architecture {architecture:?}; known: {}", KNOWN_ARCHITECTURES.join(", "))]
    UnknownArchitecture {
        /// The file.
        path: PathBuf,
        /// What it calls itself.
        architecture: String,
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
    /// More context was asked for than the model has learnt.
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

/// Loads the model in `path`.
///
/// # Errors
/// The file is refused; nothing of it has been used.
pub fn load(path: &Path, options: &LoadOptions) -> Result<Box<dyn ModelRunner>, LoadError> {
    let kernels = choose(options.kernels)?;
    let began = MonoNanos::now();
    let mut file = GgufFile::open(path)?;
    let architecture = file.string("general.architecture")?;
    if !KNOWN_ARCHITECTURES.contains(&architecture.as_str()) {
        return Err(LoadError::UnknownArchitecture { path: path.to_owned(), architecture });
    }
    let config = hparams::read(&file, options)?;
    memory::check_kv_pool(&config, options.max_total_tokens)?;
    let team = Team::new(options.threads.unwrap_or_else(physical_cores));
    let mut weights = tensors::read(&mut file, &config)?;
    weights.gather();
    let info = ModelInfo {
        source: ModelSource::Gguf(path.to_owned()),
        name: hparams::name(&file),
        architecture,
        task: ModelTask::Generate,
        vocab_size: number(weights.embedding.outputs()),
        context_length: number(config.context_length),
        eos_token_ids: hparams::eos_token_ids(&file),
        max_total_tokens: options.max_total_tokens,
        kernels: Some(kernels),
        kv_cache_dtype: Some(options.kv_cache_dtype),
        weight_bytes: weights.bytes() as u64,
        load_seconds: began.elapsed().as_secs_f64(),
    };
    let tokens = options.max_total_tokens;
    let parts = LlamaParts { info, config, weights, team };
    parts.assemble(kernels).map_err(|source| LoadError::KvMemory { tokens, source })
}

fn choose(asked: Option<KernelBackend>) -> Result<KernelBackend, LoadError> {
    let asked = asked.unwrap_or_else(backend::detect);
    if backend::is_supported(asked) {
        return Ok(asked);
    }
    Err(LoadError::Kernels { asked, present: backend::supported().into_iter().map(KernelBackend::as_str).collect() })
}

fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
