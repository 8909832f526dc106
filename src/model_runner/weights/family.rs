//! What the families of decoders differ in, beyond their sizes.

use crate::model_runner::decoder::rope::Pairs;

/// A family of decoders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Llama 2 and 3, SmolLM, and whatever else is a llama by another name.
    Llama,
    /// Llama with a sliding window.
    Mistral,
    /// Qwen 2 and 2.5: queries, keys and values have a bias.
    Qwen2,
    /// Qwen 3: queries and keys have norms.
    Qwen3,
}

impl Family {
    const ALL: [Self; 4] = [Self::Llama, Self::Mistral, Self::Qwen2, Self::Qwen3];

    /// As `config.json` calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }

    /// By the `model_type` of a `config.json`.
    pub(super) fn of_folder(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.name() == name)
    }

    /// By the `general.architecture` of a GGUF file; in these a Mistral is a llama.
    pub(super) fn of_gguf(name: &str) -> Option<Self> {
        Self::of_folder(name).filter(|family| *family != Self::Mistral)
    }

    /// What [`of_folder`](Self::of_folder) knows.
    pub(super) fn folder_names() -> Vec<&'static str> {
        Self::ALL.into_iter().map(Self::name).collect()
    }

    /// What [`of_gguf`](Self::of_gguf) knows.
    pub(super) fn gguf_names() -> Vec<&'static str> {
        Self::folder_names().into_iter().filter(|name| Self::of_gguf(name).is_some()).collect()
    }

    /// Which dimensions a GGUF file of the family pairs. Its queries and keys were reordered for the llamas alone.
    pub(super) fn gguf_pairs(self) -> Pairs {
        match self {
            Self::Llama | Self::Mistral => Pairs::Neighbours,
            Self::Qwen2 | Self::Qwen3 => Pairs::Halves,
        }
    }

    /// Queries, keys and values always have a bias; the other families may have one.
    pub(super) fn has_bias(self) -> bool {
        self == Self::Qwen2
    }

    /// Queries and keys have norms over each head.
    pub(super) fn has_head_norms(self) -> bool {
        self == Self::Qwen3
    }
}
