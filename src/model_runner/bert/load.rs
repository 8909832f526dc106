//! From a folder to a runner. Everything is checked before anything is used: a bad file is refused, by name.

use std::path::Path;

use super::layer::Scratch;
use super::{BertRunner, EncoderError, config, tensors};
use crate::clock::MonoNanos;
use crate::io_struct::{ModelInfo, ModelSource, ModelTask};
use crate::model_runner::kernels::Team;

/// What may be chosen about an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncoderOptions {
    /// The most tokens of a text; `None`: what the model was made for.
    pub context_length: Option<u32>,
    /// Numbers in which it computes.
    pub precision: Precision,
    /// Threads of a forward pass; `None`: one for each core that this process may use.
    pub threads: Option<usize>,
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
pub fn load(folder: &Path, options: &EncoderOptions) -> Result<BertRunner, EncoderError> {
    let began = MonoNanos::now();
    let config = config::read(folder, options.context_length)?;
    let (embeddings, layers) = tensors::read(folder, &config, options.precision)?;
    let task = ModelTask::Embed { dimensions: number(config.hidden_size), normalised: config.pooling.normalise };
    let info = ModelInfo {
        source: ModelSource::Folder(folder.to_owned()),
        name: name(folder),
        architecture: "bert".to_owned(),
        task,
        vocab_size: number(config.vocab_size),
        context_length: number(config.context_length),
        eos_token_ids: Vec::new(),
        max_total_tokens: 0,
        load_seconds: began.elapsed().as_secs_f64(),
    };
    let threads = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    Ok(BertRunner { info, config, embeddings, layers, team: Team::new(threads), scratch: Scratch::default() })
}

/// What the folder is called; a folder that is called `model` says less than the one around it.
fn name(folder: &Path) -> String {
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
            assert_eq!(name(Path::new(folder)), want);
        }
    }
}
