//! A file on its way into the cache. It has a name of its own until it is whole, checked and on the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::artifact::{beside, hash_into, hex};
use super::progress::Progress;
use super::{Expected, HubError};

/// What to do with what an earlier try has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leftover {
    /// Go on from there: the hash of the whole will tell if it belongs to another file.
    Keep,
    /// Start anew.
    Discard,
}

/// A file that is being written, and the hash of what is in it. The owner holds the artifact's lock.
pub(super) struct Part {
    file: File,
    path: PathBuf,
    target: PathBuf,
    len: u64,
    hasher: Sha256,
}

impl Part {
    /// Opens `<target>.part`.
    pub(super) fn open(target: &Path, leftover: Leftover) -> Result<Self, HubError> {
        let path = beside(target, "part");
        let opened = || {
            let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
            if leftover == Leftover::Discard {
                file.set_len(0)?;
            }
            let mut hasher = Sha256::new();
            let len = hash_into(&mut hasher, &mut file)?;
            Ok((file, len, hasher))
        };
        match opened() {
            Ok((file, len, hasher)) => Ok(Self { file, path, target: target.to_owned(), len, hasher }),
            Err(source) => Err(HubError::Cache { path, source }),
        }
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Forgets what came so far.
    pub(super) fn restart(&mut self) -> Result<(), HubError> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(|source| self.cache_error(source))?;
        self.len = 0;
        self.hasher = Sha256::new();
        Ok(())
    }

    /// Appends all that `reader` has.
    pub(super) fn fill(&mut self, reader: &mut impl Read, progress: &mut Progress) -> Result<(), HubError> {
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(HubError::Interrupted { got: self.len, source }),
            };
            let bytes = &buffer[..count];
            self.file.write_all(bytes).map_err(|source| self.cache_error(source))?;
            self.hasher.update(bytes);
            self.len += count as u64;
            progress.at(self.len);
        }
    }

    /// Checks the whole, puts it on the disk and gives it its name. A wrong file is removed.
    pub(super) fn publish(self, expected: &Expected) -> Result<(), HubError> {
        if let Err(wrong) = check(expected, self.len, hex(self.hasher.clone())) {
            fs::remove_file(&self.path).map_err(|source| self.cache_error(source))?;
            return Err(wrong);
        }
        let published = || {
            self.file.sync_all()?;
            fs::rename(&self.path, &self.target)?;
            // Without it a power cut may take the name away again.
            File::open(self.target.parent().unwrap_or(Path::new(".")))?.sync_all()
        };
        published().map_err(|source| self.cache_error(source))
    }

    fn cache_error(&self, source: io::Error) -> HubError {
        HubError::Cache { path: self.path.clone(), source }
    }
}

/// An empty part is nothing to go on from.
impl Drop for Part {
    fn drop(&mut self) {
        if self.len == 0 {
            // A leftover does no harm, and there may be none: an empty file can be published too.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn check(expected: &Expected, len: u64, hash: String) -> Result<(), HubError> {
    match expected {
        Expected { bytes: Some(want), .. } if *want != len => Err(HubError::WrongSize { want: *want, got: len }),
        Expected { sha256: Some(want), .. } if *want != hash => {
            Err(HubError::WrongHash { want: want.clone(), got: hash })
        }
        _ => Ok(()),
    }
}
