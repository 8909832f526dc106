//! A GGUF file whose header has been read and whose tensors are known to lie inside of it.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::QTensor;
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value};

use super::LoadError;
use super::tensors::TensorFile;

/// An open file with a checked header.
pub struct GgufFile {
    path: PathBuf,
    content: Content,
    reader: BufReader<File>,
}

impl GgufFile {
    /// Opens and checks `path`.
    ///
    /// # Errors
    /// It cannot be read, is no GGUF file, or is shorter than its tensors.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let io_error = |source| LoadError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io_error)?;
        let present = file.metadata().map_err(io_error)?.len();
        let mut reader = HeaderReader { inner: BufReader::new(file), value: Watched::Nothing };
        let content = Content::read(&mut reader).map_err(|error| {
            let ends_early = ends_early(&error).then(|| format!("it ends too early, after {present} bytes"));
            LoadError::NotGguf { path: path.to_owned(), message: ends_early.unwrap_or_else(|| plain(error)) }
        })?;
        let file = Self { path: path.to_owned(), content, reader: reader.inner };
        file.check_lengths(present)?;
        Ok(file)
    }

    /// The header.
    #[must_use]
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// A text that must be there.
    ///
    /// # Errors
    /// It is not there, or no text.
    pub fn string(&self, key: &str) -> Result<String, LoadError> {
        match self.content.metadata.get(key) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(self.bad_metadata(key, "is not a text")),
            None => Err(self.bad_metadata(key, "is missing")),
        }
    }

    /// A whole number, if it is there.
    ///
    /// # Errors
    /// It is something else.
    pub fn integer(&self, key: &str) -> Result<Option<usize>, LoadError> {
        let Some(value) = self.content.metadata.get(key) else { return Ok(None) };
        let wide = match value {
            Value::I8(v) => u64::try_from(*v).ok(),
            Value::I16(v) => u64::try_from(*v).ok(),
            Value::I32(v) => u64::try_from(*v).ok(),
            Value::I64(v) => u64::try_from(*v).ok(),
            Value::Bool(_) => None,
            other => other.to_u64().ok(),
        };
        // No count in a model comes near 2^32, so what is larger is a mistake, and products of two cannot overflow.
        let narrow = wide.and_then(|wide| u32::try_from(wide).ok());
        narrow.map(|narrow| Some(narrow as usize)).ok_or_else(|| self.bad_metadata(key, "is not a count below 2^32"))
    }

    /// A fraction, if it is there.
    ///
    /// # Errors
    /// It is something else.
    pub fn float(&self, key: &str) -> Result<Option<f32>, LoadError> {
        match self.content.metadata.get(key) {
            None => Ok(None),
            Some(Value::F32(v)) if v.is_finite() => Ok(Some(*v)),
            Some(Value::F64(v)) if v.is_finite() => Ok(Some(*v as f32)),
            Some(_) => Err(self.bad_metadata(key, "is not a finite number")),
        }
    }

    /// Where a tensor is, if it is there.
    #[must_use]
    pub fn tensor_info(&self, name: &str) -> Option<&TensorInfo> {
        self.content.tensor_infos.get(name)
    }

    /// Reads one tensor of the expected shape, rows first.
    ///
    /// # Errors
    /// It is missing, of another shape, or cannot be read.
    pub fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<QTensor, LoadError> {
        let info = self.tensor_info(name).ok_or_else(|| self.bad_tensor(name, "is missing"))?;
        if info.shape.dims() != shape {
            let message = format!("has the shape {:?}, expected {shape:?}", info.shape.dims());
            return Err(self.bad_tensor(name, message));
        }
        let tensor = self.content.tensor(&mut self.reader, name, &Device::Cpu);
        tensor.map_err(|error| self.bad_tensor(name, plain(error)))
    }

    /// The name of the file without its ending.
    #[must_use]
    pub fn stem(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// A refusal that names a key.
    pub fn bad_metadata(&self, key: &str, message: impl Into<String>) -> LoadError {
        LoadError::Metadata { path: self.path.clone(), key: key.to_owned(), message: message.into() }
    }

    /// A refusal that names a tensor.
    pub fn bad_tensor(&self, tensor: &str, message: impl Into<String>) -> LoadError {
        LoadError::Tensor { path: self.path.clone(), tensor: tensor.to_owned(), message: message.into() }
    }

    /// A refusal that names a feature.
    pub fn unsupported(&self, feature: impl Into<String>) -> LoadError {
        LoadError::Unsupported { path: self.path.clone(), feature: feature.into() }
    }

    /// A refusal that names two context lengths.
    #[must_use]
    pub fn context_too_long(&self, asked: u32, available: usize) -> LoadError {
        let available = u32::try_from(available).unwrap_or(u32::MAX);
        LoadError::ContextLength { path: self.path.clone(), asked, available }
    }

    /// Every tensor lies inside of the file. In order of their places, so that the first that does not fit is named.
    fn check_lengths(&self, present: u64) -> Result<(), LoadError> {
        let mut tensors: Vec<_> = self.content.tensor_infos.iter().collect();
        tensors.sort_by_key(|(name, info)| (info.offset, name.as_str()));
        for (tensor, info) in tensors {
            let bytes = tensor_bytes(info).map_err(|message| self.bad_tensor(tensor, message))?;
            let start = self.content.tensor_data_offset.checked_add(info.offset);
            let needed = start.and_then(|start| start.checked_add(bytes)).unwrap_or(u64::MAX);
            if needed > present {
                return Err(LoadError::Truncated { path: self.path.clone(), tensor: tensor.clone(), needed, present });
            }
        }
        Ok(())
    }
}

impl TensorFile for GgufFile {
    fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensor_info(name).map(|info| info.shape.dims())
    }

    fn read(&mut self, name: &str, shape: &[usize]) -> Result<QTensor, LoadError> {
        self.tensor(name, shape)
    }

    fn names(&self) -> Vec<&str> {
        self.content.tensor_infos.keys().map(String::as_str).collect()
    }

    fn bad(&self, name: &str, message: String) -> LoadError {
        self.bad_tensor(name, message)
    }

    fn refuse(&self, feature: String) -> LoadError {
        self.unsupported(feature)
    }
}

/// What is wrong, without the stack that candle adds when `RUST_BACKTRACE` is set.
pub(super) fn plain(error: candle_core::Error) -> String {
    match error {
        candle_core::Error::WithBacktrace { inner, .. } => plain(*inner),
        error if ends_early(&error) => "it ends too early".to_owned(),
        other => other.to_string(),
    }
}

/// The file ended while it was read.
fn ends_early(error: &candle_core::Error) -> bool {
    match error {
        candle_core::Error::WithBacktrace { inner, .. } => ends_early(inner),
        candle_core::Error::Io(error) => error.kind() == io::ErrorKind::UnexpectedEof,
        _ => false,
    }
}

/// Bytes of a tensor in the file.
fn tensor_bytes(info: &TensorInfo) -> Result<u64, String> {
    let dims = info.shape.dims();
    let too_large = || format!("the shape {dims:?} is beyond all files");
    let elements = dims.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim)).ok_or_else(too_large)?;
    let block = info.ggml_dtype.block_size();
    if dims.last().is_none_or(|width| width % block != 0) {
        return Err(format!("rows of the shape {dims:?} are not whole blocks of {block}"));
    }
    let bytes = (elements / block).checked_mul(info.ggml_dtype.type_size()).ok_or_else(too_large)?;
    Ok(bytes as u64)
}

/// Hands the header to candle's parser, which takes care of everything hostile but one: it divides by
/// `general.alignment`, whatever that is.
struct HeaderReader<R> {
    inner: R,
    value: Watched,
}

/// What the parser reads next, as far as that is of interest.
enum Watched {
    Nothing,
    /// The type of the alignment.
    Type,
    /// The alignment itself.
    Alignment,
}

const ALIGNMENT_KEY: &[u8] = b"general.alignment";

impl<R: Read> Read for HeaderReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer)
    }

    /// The parser asks for each field by one call.
    fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(buffer)?;
        self.value = match self.value {
            Watched::Alignment if buffer.iter().all(|byte| *byte == 0) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "general.alignment is 0"));
            }
            Watched::Type => Watched::Alignment,
            Watched::Nothing if buffer == ALIGNMENT_KEY => Watched::Type,
            Watched::Nothing | Watched::Alignment => Watched::Nothing,
        };
        Ok(())
    }
}

impl<R: Seek> Seek for HeaderReader<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }

    fn stream_position(&mut self) -> io::Result<u64> {
        self.inner.stream_position()
    }
}
