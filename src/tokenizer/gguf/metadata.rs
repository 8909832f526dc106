//! The header of a GGUF file: what it says about its tokenizer.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::panic::catch_unwind;
use std::path::Path;

use candle_core::quantized::gguf_file::{Content, Value};

use crate::tokenizer::TokenizerError;

/// Keys and values of a file's header; the tensors are not read.
pub struct Metadata {
    values: HashMap<String, Value>,
}

impl Metadata {
    /// Reads the header of `path`.
    ///
    /// # Errors
    /// The file cannot be read, or is not a sound GGUF file.
    pub fn read(path: &Path) -> Result<Self, TokenizerError> {
        let failed = |message: String| TokenizerError::File { path: path.display().to_string(), message };
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        // candle checks every length against the file, but divides by `general.alignment`, which may be 0.
        let content = catch_unwind(|| Content::read(&mut BufReader::new(file)))
            .map_err(|_| failed("the header is malformed".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { values: content.metadata })
    }

    /// The text under `key`, if the key is there.
    ///
    /// # Errors
    /// It is not a text.
    pub fn text(&self, key: &str) -> Result<Option<&str>, TokenizerError> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(TokenizerError::Unsupported(format!("{key} is not a string"))),
        }
    }

    /// The text under `key`.
    ///
    /// # Errors
    /// It is missing or not a text.
    pub fn required_text(&self, key: &str) -> Result<&str, TokenizerError> {
        self.text(key)?.ok_or_else(|| missing(key))
    }

    /// The list of texts under `key`.
    ///
    /// # Errors
    /// It is missing, or something in it is not a text.
    pub fn texts(&self, key: &str) -> Result<Vec<&str>, TokenizerError> {
        let mut texts = Vec::new();
        for value in self.list(key)? {
            let Value::String(text) = value else {
                return Err(TokenizerError::Unsupported(format!("{key} holds something that is not a string")));
            };
            texts.push(text.as_str());
        }
        Ok(texts)
    }

    /// The list of whole numbers under `key`.
    ///
    /// # Errors
    /// It is missing, or something in it is not a whole number.
    pub fn integers(&self, key: &str) -> Result<Vec<i64>, TokenizerError> {
        self.list(key)?.iter().map(|value| integer(key, value)).collect()
    }

    /// The list of fractions under `key`.
    ///
    /// # Errors
    /// It is missing, or something in it is not a fraction.
    pub fn floats(&self, key: &str) -> Result<Vec<f32>, TokenizerError> {
        let float = |value: &Value| match *value {
            Value::F32(n) => Ok(n),
            Value::F64(n) => Ok(n as f32),
            _ => Err(TokenizerError::Unsupported(format!("{key} holds something that is not a fraction"))),
        };
        self.list(key)?.iter().map(float).collect()
    }

    /// The whole number under `key`, if the key is there.
    ///
    /// # Errors
    /// It is not a whole number.
    pub fn integer(&self, key: &str) -> Result<Option<i64>, TokenizerError> {
        self.values.get(key).map(|value| integer(key, value)).transpose()
    }

    /// The truth value under `key`, if the key is there.
    ///
    /// # Errors
    /// It is not a truth value.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, TokenizerError> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(TokenizerError::Unsupported(format!("{key} is not a truth value"))),
        }
    }

    fn list(&self, key: &str) -> Result<&[Value], TokenizerError> {
        match self.values.get(key) {
            None => Err(missing(key)),
            Some(Value::Array(values)) => Ok(values),
            Some(_) => Err(TokenizerError::Unsupported(format!("{key} is not a list"))),
        }
    }
}

fn missing(key: &str) -> TokenizerError {
    TokenizerError::Unsupported(format!("the file has no {key}"))
}

fn integer(key: &str, value: &Value) -> Result<i64, TokenizerError> {
    match *value {
        Value::U8(n) => Ok(n.into()),
        Value::I8(n) => Ok(n.into()),
        Value::U16(n) => Ok(n.into()),
        Value::I16(n) => Ok(n.into()),
        Value::U32(n) => Ok(n.into()),
        Value::I32(n) => Ok(n.into()),
        Value::I64(n) => Ok(n),
        _ => Err(TokenizerError::Unsupported(format!("{key} holds something that is not a whole number"))),
    }
}
