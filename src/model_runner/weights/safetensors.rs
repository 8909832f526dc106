//! Safetensors files: their headers are read and checked, their tensors are read when they are asked for.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::ggml_file::qtensor_from_ggml;
use candle_core::quantized::{GgmlDType, QTensor};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;

use super::LoadError;
use super::gguf::plain;
use super::tensors::TensorFile;

/// The file of a model that is in one piece.
const WHOLE: &str = "model.safetensors";
/// Which tensor is in which file of a model that is not.
const INDEX: &str = "model.safetensors.index.json";
/// Bytes in front of the header: its length.
const LENGTH: u64 = 8;
/// The longest header, as the library of the format has it.
const MAX_HEADER: u64 = 100_000_000;

/// All files of a model.
pub struct Shards {
    files: Vec<Shard>,
    /// In which file a tensor is, and where.
    tensors: HashMap<String, (usize, TensorInfo)>,
}

/// One file, open.
struct Shard {
    path: PathBuf,
    file: File,
    /// Where the tensors begin.
    data: u64,
}

#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

impl Shards {
    /// Opens `model.safetensors`, or the files that `model.safetensors.index.json` names.
    ///
    /// # Errors
    /// One of them cannot be read, is no safetensors file, is shorter than its tensors, or lacks one that the index has
    /// in it.
    pub fn open(folder: &Path) -> Result<Self, LoadError> {
        let index = folder.join(INDEX);
        let mut shards = Self { files: Vec::new(), tensors: HashMap::new() };
        let text = match fs::read_to_string(&index) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                shards.add(folder.join(WHOLE))?;
                return Ok(shards);
            }
            Err(source) => return Err(LoadError::Io { path: index, source }),
            Ok(text) => text,
        };
        let bad = |message: String| LoadError::Json { path: index.clone(), message };
        let Index { weight_map } = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
        let mut names: Vec<&String> = weight_map.values().collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(bad(format!("{name:?} is not a file of this folder")));
            }
            shards.add(folder.join(name))?;
        }
        match shards.misplaced(folder, &weight_map) {
            Some((path, tensor)) => Err(LoadError::Tensor { path, tensor, message: "is missing".to_owned() }),
            None => Ok(shards),
        }
    }

    /// The first tensor that is not where the index has it.
    fn misplaced(&self, folder: &Path, weight_map: &HashMap<String, String>) -> Option<(PathBuf, String)> {
        let is_there =
            |name: &String, path: &Path| self.tensors.get(name).is_some_and(|(file, _)| self.files[*file].path == path);
        let places = weight_map.iter().map(|(name, file)| (folder.join(file), name.clone()));
        places.filter(|(path, name)| !is_there(name, path)).min()
    }

    fn add(&mut self, path: PathBuf) -> Result<(), LoadError> {
        let io_error = |source| LoadError::Io { path: path.clone(), source };
        let mut file = File::open(&path).map_err(io_error)?;
        let present = file.metadata().map_err(io_error)?.len();
        let (header, metadata) = header(&mut file, &path, present)?;
        let data = LENGTH + header;
        for (name, info) in metadata.tensors() {
            let needed = data.saturating_add(info.data_offsets.1 as u64);
            if needed > present {
                return Err(truncated(path, &metadata, data, present));
            }
            self.tensors.insert(name, (self.files.len(), info.clone()));
        }
        self.files.push(Shard { path, file, data });
        Ok(())
    }

    /// The file in which a tensor is, or else the first.
    fn path_of(&self, name: &str) -> PathBuf {
        let file = self.tensors.get(name).map_or(0, |(file, _)| *file);
        self.files.get(file).map(|shard| shard.path.clone()).unwrap_or_default()
    }
}

/// Length and content of the header. What it says of the tensors is checked: they fill the file from one end to the
/// other, each with as many bytes as its shape needs.
fn header(file: &mut File, path: &Path, present: u64) -> Result<(u64, Metadata), LoadError> {
    let bad = |message: String| LoadError::NotSafetensors { path: path.to_owned(), message };
    let mut length = [0; LENGTH as usize];
    file.read_exact(&mut length).map_err(|_| bad(format!("it has {present} bytes, {LENGTH} are the least")))?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER || length > present.saturating_sub(LENGTH) {
        let most = MAX_HEADER.min(present.saturating_sub(LENGTH));
        return Err(bad(format!("its header is said to have {length} bytes, {most} are the most that it can have")));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text).map_err(|source| LoadError::Io { path: path.to_owned(), source })?;
    let metadata = serde_json::from_slice(&text).map_err(|error| bad(format!("its header: {error}")))?;
    Ok((length, metadata))
}

/// Names the first tensor that does not fit.
fn truncated(path: PathBuf, metadata: &Metadata, data: u64, present: u64) -> LoadError {
    let end = |name: &String| metadata.info(name).map_or(0, |info| data.saturating_add(info.data_offsets.1 as u64));
    let tensor = metadata.offset_keys().into_iter().find(|name| end(name) > present).unwrap_or_default();
    LoadError::Truncated { path, needed: end(&tensor), tensor, present }
}

impl TensorFile for Shards {
    fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|(_, info)| info.shape.as_slice())
    }

    fn read(&mut self, name: &str, shape: &[usize]) -> Result<QTensor, LoadError> {
        let Some((file, info)) = self.tensors.get(name) else { return Err(self.bad(name, "is missing".to_owned())) };
        if info.shape != shape {
            return Err(self.bad(name, format!("has the shape {:?}, expected {shape:?}", info.shape)));
        }
        let dtype = match info.dtype {
            Dtype::F32 => GgmlDType::F32,
            Dtype::F16 => GgmlDType::F16,
            Dtype::BF16 => GgmlDType::BF16,
            other => return Err(self.bad(name, format!("has the type {other:?}; known: F32, F16, BF16"))),
        };
        let (begin, end) = info.data_offsets;
        let shard = &mut self.files[*file];
        // Words, so that whatever the numbers are, they are aligned.
        let mut words = vec![0u32; (end - begin).div_ceil(size_of::<u32>())];
        let bytes = &mut bytemuck::cast_slice_mut::<u32, u8>(&mut words)[..end - begin];
        let read = shard.file.seek(SeekFrom::Start(shard.data + begin as u64));
        let read = read.and_then(|_| shard.file.read_exact(bytes));
        read.map_err(|source| LoadError::Io { path: shard.path.clone(), source })?;
        let tensor = qtensor_from_ggml(dtype, bytes, shape.to_vec(), &Device::Cpu);
        tensor.map_err(|error| self.bad(name, plain(error)))
    }

    fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    fn bad(&self, name: &str, message: String) -> LoadError {
        LoadError::Tensor { path: self.path_of(name), tensor: name.to_owned(), message }
    }

    fn refuse(&self, feature: String) -> LoadError {
        LoadError::Unsupported { path: self.path_of(""), feature }
    }
}
