//! A file in the cache: what it must be, and who may fetch it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{HubError, folder};

/// What is known of a file before it is here. What is not known is not checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expected {
    /// Its size.
    pub bytes: Option<u64>,
    /// Its SHA-256 in lowercase hex.
    pub sha256: Option<String>,
}

/// A file in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Where it is kept. Only whole, checked files ever bear this name.
    pub path: PathBuf,
    /// What it must be.
    pub expected: Expected,
}

impl Artifact {
    /// The file, or else the folder, if it is here.
    pub(super) fn cached(&self) -> Result<Option<PathBuf>, HubError> {
        let folder = self.folder();
        if folder::is_model(&folder) {
            return Ok(Some(folder));
        }
        Ok(self.is_cached()?.then(|| self.path.clone()))
    }

    /// Where a model that turns out to be a folder is kept.
    pub(super) fn folder(&self) -> PathBuf {
        let is_gguf = self.path.extension().is_some_and(|extension| extension == "gguf");
        if is_gguf { self.path.with_extension("") } else { self.path.clone() }
    }

    /// Is the right file here? It is hashed each time: somebody may have placed it by hand, and a wrong model is worse
    /// than the tenth of a second.
    fn is_cached(&self) -> Result<bool, HubError> {
        let bytes = match fs::metadata(&self.path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(self.cache_error(source)),
        };
        let is_right = self.expected.bytes.is_none_or(|want| want == bytes)
            && match &self.expected.sha256 {
                Some(want) => *want == self.hash()?,
                None => true,
            };
        if !is_right {
            tracing::warn!(path = %self.path.display(), "the cached model is not the expected file; fetching it again");
        }
        Ok(is_right)
    }

    /// Waits until no other process fetches this file. The lock ends with the handle, so a killed process leaves none.
    pub(super) fn lock(&self) -> Result<File, HubError> {
        let path = beside(&self.path, "lock");
        let locked = || {
            fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            let file = File::create(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    tracing::info!(path = %path.display(), "another process fetches this model; waiting for it");
                    file.lock()?;
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
            Ok(file)
        };
        locked().map_err(|source| HubError::Cache { path: path.clone(), source })
    }

    pub(super) fn cache_error(&self, source: io::Error) -> HubError {
        HubError::Cache { path: self.path.clone(), source }
    }

    fn hash(&self) -> Result<String, HubError> {
        let hashed = || {
            let mut hasher = Sha256::new();
            hash_into(&mut hasher, &mut File::open(&self.path)?)?;
            Ok(hex(hasher))
        };
        hashed().map_err(|source| self.cache_error(source))
    }
}

/// `path` with `.suffix` added to its name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Feeds all that `reader` has to `hasher`; the number of bytes.
pub(super) fn hash_into(hasher: &mut Sha256, reader: &mut impl Read) -> io::Result<u64> {
    let mut buffer = vec![0; 256 * 1024];
    let mut total = 0;
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                total += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The digest in lowercase hex.
pub(super) fn hex(hasher: Sha256) -> String {
    format!("{:x}", hasher.finalize())
}
