//! From a GGUF file or a folder to a runner. Everything is checked before anything is used: a bad file is refused, by
//! name.

mod error;
mod family;
pub mod folder;
pub mod gguf;
mod hparams;
mod memory;
pub mod safetensors;
mod tensors;
mod turn_ends;

use std::path::Path;

pub use error::LoadError;

use super::ModelRunner;
use super::decoder::rope::RopeScaling;
use super::decoder::{DecoderConfig, DecoderParts, DecoderWeights};
use super::kernels::team::cores::{one_of_each, physical_cores};
use super::kernels::{Team, backend};
use crate::clock::MonoNanos;
use crate::io_struct::{KernelBackend, KvCacheDtype, ModelInfo, ModelSource, ModelTask, TokenId};
use family::Family;
use folder::Folder;
use gguf::GgufFile;
use safetensors::Shards;

/// What may be chosen about a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOptions {
    /// The most tokens of a sequence; `None`: what the file says.
    pub context_length: Option<u32>,
    /// Size of the KV pool in tokens, rounded up to whole pages.
    pub max_total_tokens: u32,
    /// Threads of a forward pass; `None`: one for each physical core that this process may use.
    pub threads: Option<usize>,
    /// Each of them stays on a core of its own.
    pub pin_threads: bool,
    /// How keys and values are held.
    pub kv_cache_dtype: KvCacheDtype,
    /// Kernels; `None`: the fastest that this machine has.
    pub kernels: Option<KernelBackend>,
}

/// Loads the GGUF file in `path`.
///
/// # Errors
/// The file is refused; nothing of it has been used.
pub fn load(path: &Path, options: &LoadOptions) -> Result<Box<dyn ModelRunner>, LoadError> {
    let loading = Loading::begin(options)?;
    let mut file = GgufFile::open(path)?;
    let architecture = file.string("general.architecture")?;
    let family = Family::of_gguf(&architecture).ok_or_else(|| LoadError::UnknownArchitecture {
        path: path.to_owned(),
        architecture: architecture.clone(),
        known: Family::gguf_names(),
    })?;
    let mut config = hparams::read(&file, &architecture, family, options)?;
    memory::check_kv_pool(&config, options.max_total_tokens)?;
    let (weights, factors) = tensors::read_gguf(&mut file, &config, family)?;
    if let Some(factors) = factors {
        if config.rope.scaling != RopeScaling::None {
            return Err(file.unsupported("rope_freqs.weight on top of a rope scaling"));
        }
        config.rope.scaling = RopeScaling::Factors(factors);
    }
    let source = ModelSource::Gguf(path.to_owned());
    let identity = Identity { source, name: hparams::name(&file), architecture, stops: hparams::eos_token_ids(&file) };
    loading.finish(identity, config, weights)
}

/// Loads the model in `folder`: `config.json` and weights in safetensors.
///
/// # Errors
/// The folder is refused; nothing of it has been used.
pub fn load_folder(folder: &Path, options: &LoadOptions) -> Result<Box<dyn ModelRunner>, LoadError> {
    let loading = Loading::begin(options)?;
    let Folder { family, config, vocab_size, head, stops } = folder::read(folder, options)?;
    memory::check_kv_pool(&config, options.max_total_tokens)?;
    let mut shards = Shards::open(folder)?;
    let weights = tensors::read_folder(&mut shards, &config, family, vocab_size, head)?;
    let source = ModelSource::Folder(folder.to_owned());
    let (name, architecture) = (super::bert::folder_name(folder), family.name().to_owned());
    loading.finish(Identity { source, name, architecture, stops }, config, weights)
}

/// A model on its way.
struct Loading<'a> {
    options: &'a LoadOptions,
    kernels: KernelBackend,
    began: MonoNanos,
}

/// What a model says of itself.
struct Identity {
    source: ModelSource,
    name: String,
    architecture: String,
    stops: Vec<TokenId>,
}

impl<'a> Loading<'a> {
    fn begin(options: &'a LoadOptions) -> Result<Self, LoadError> {
        Ok(Self { options, kernels: choose(options.kernels)?, began: MonoNanos::now() })
    }

    fn finish(
        self,
        identity: Identity,
        config: DecoderConfig,
        mut weights: DecoderWeights,
    ) -> Result<Box<dyn ModelRunner>, LoadError> {
        let tokens = self.options.max_total_tokens;
        weights.gather();
        let info = ModelInfo {
            source: identity.source,
            name: identity.name,
            architecture: identity.architecture,
            task: ModelTask::Generate,
            vocab_size: number(weights.embedding.outputs()),
            context_length: number(config.context_length),
            eos_token_ids: identity.stops,
            max_total_tokens: tokens,
            kernels: Some(self.kernels),
            kv_cache_dtype: Some(self.options.kv_cache_dtype),
            weight_bytes: weights.bytes() as u64,
            load_seconds: self.began.elapsed().as_secs_f64(),
        };
        let processors = if self.options.pin_threads { one_of_each() } else { Vec::new() };
        let team = Team::on(self.options.threads.unwrap_or_else(physical_cores), &processors);
        let parts = DecoderParts { info, config, weights, team };
        parts.assemble(self.kernels).map_err(|source| LoadError::KvMemory { tokens, source })
    }
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
