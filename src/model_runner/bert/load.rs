//! From a folder to a runner. Everything is checked before anything is used: a bad file is refused, by name.

use std::path::Path;

use super::layer::Layer;
use super::{BertParts, EncoderError, config, tensors};
use crate::clock::MonoNanos;
use crate::io_struct::{KernelBackend, ModelInfo, ModelSource, ModelTask};
use crate::model_runner::ModelRunner;
use crate::model_runner::kernels::Team;
use crate::model_runner::kernels::backend::{self, with_lanes};
use crate::model_runner::kernels::team::cores::physical_cores;

/// What may be chosen about an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncoderOptions {
    /// The most tokens of a text; `None`: what the model was made for.
    pub context_length: Option<u32>,
    /// Numbers in which it computes.
    pub precision: Precision,
    /// Threads of a forward pass; `None`: one for each physical core that this process may use.
    pub threads: Option<usize>,
    /// Instructions; `None`: the fastest that this machine has.
    pub kernels: Option<KernelBackend>,
}

/// Numbers in which an encoder multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// As it was trained.
    F32,
    /// 8 bits a weight and an activation, in blocks of 32.
    Int8,
}

/// Loads the model in `folder`.
///
/// # Errors
/// A file is refused; nothing of the model has been used.
pub fn load(folder: &Path, options: &EncoderOptions) -> Result<Box<dyn ModelRunner>, EncoderError> {
    let kernels = options.kernels.unwrap_or_else(backend::detect);
    if !backend::is_supported(kernels) {
        return Err(EncoderError::Kernels(kernels));
    }
    let began = MonoNanos::now();
    let config = config::read(folder, options.context_length)?;
    let (embeddings, layers) = tensors::read(folder, &config, options.precision)?;
    let task = ModelTask::Embed { dimensions: number(config.hidden_size), normalised: config.pooling.normalise };
    let info = ModelInfo {
        source: ModelSource::Folder(folder.to_owned()),
        name: folder_name(folder),
        architecture: "bert".to_owned(),
        task,
        vocab_size: number(config.vocab_size),
        context_length: number(config.context_length),
        eos_token_ids: Vec::new(),
        max_total_tokens: 0,
        kernels: Some(kernels),
        kv_cache_dtype: None,
        weight_bytes: (embeddings.bytes() + layers.iter().map(Layer::bytes).sum::<usize>()) as u64,
        load_seconds: began.elapsed().as_secs_f64(),
    };
    let team = Team::new(options.threads.unwrap_or_else(physical_cores));
    Ok(with_lanes(kernels, BertParts { info, config, embeddings, layers, team }))
}

/// What the folder is called; a folder that is called `model` says less than the one around it.
pub(in crate::model_runner) fn folder_name(folder: &Path) -> String {
    let names = folder.ancestors().filter_map(|path| path.file_name()).filter_map(|name| name.to_str());
    names.into_iter().find(|name| *name != "model").unwrap_or("model").to_owned()
}

fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (folder, want) in [("/a/all-MiniLM/model", "all-MiniLM"), ("bge", "bge"), ("/", "model")] {
            assert_eq!(folder_name(Path::new(folder)), want);
        }
    }
}
