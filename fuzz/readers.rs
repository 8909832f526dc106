//! What is fuzzed: each reader takes any bytes, and may refuse them, but neither fail nor run away.

use std::fs;
use std::path::Path;

use bytes::BytesMut;
use radiosonde::io_struct::{Envelope, FromEngine, Hello, KvCacheDtype, ModelSource, ToEngine};
use radiosonde::ipc;
use radiosonde::model_runner::bert::{self, EncoderOptions, Precision};
use radiosonde::model_runner::weights::{self, LoadOptions};
use radiosonde::tokenizer::Tokenizer;
use radiosonde::tokenizer::chat_template::ChatTemplate;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::codec::Decoder;

/// A GGUF file: header, metadata, vocabulary, template and tensors.
pub fn gguf(data: &[u8]) {
    let folder = room();
    let path = folder.path().join("model.gguf");
    fs::write(&path, data).expect("a file can be written");
    let _ = weights::load(&path, &small());
    let source = ModelSource::Gguf(path);
    let _ = Tokenizer::for_source(&source).map(|tokenizer| tokenizer.encode_prompt("Grüße, 42 <|im_end|>"));
    let _ = ChatTemplate::for_source(&source);
}

/// A folder: `config.json` up to the first NUL, then `tokenizer.json` up to the next, then `model.safetensors`.
pub fn folder(data: &[u8]) {
    let folder = room();
    let mut parts = data.splitn(3, |byte| *byte == 0);
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        write(folder.path(), name, parts.next().unwrap_or_default());
    }
    let options = EncoderOptions { context_length: None, precision: Precision::F32, threads: Some(1), kernels: None };
    let _ = bert::load(folder.path(), &options);
    let _ = Tokenizer::for_source(&ModelSource::Folder(folder.path().to_owned()));
}

/// The bytes of a connection between the processes.
pub fn frames(data: &[u8]) {
    let (mut codec, mut bytes) = (ipc::codec(), BytesMut::from(data));
    while let Ok(Some(frame)) = codec.decode(&mut bytes) {
        let _ = ipc::decode::<Hello>(&frame);
        let _ = ipc::decode::<Envelope<ToEngine>>(&frame);
        let _ = ipc::decode::<Envelope<FromEngine>>(&frame);
    }
}

/// A chat template up to the first NUL, then the messages as JSON.
pub fn chat(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0).map(String::from_utf8_lossy);
    let (source, messages) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Ok(template) = ChatTemplate::compile(&source, Some("<s>".to_owned()), Some("</s>".to_owned())) else { return };
    let Ok(messages) = serde_json::from_str::<Vec<Value>>(&messages) else { return };
    let tokenizer = Tokenizer::for_source(&ModelSource::Scripted(String::new())).expect("it is built in");
    let _ = template.render(&messages, &tokenizer);
}

/// A pool that a small machine has.
pub fn small() -> LoadOptions {
    LoadOptions {
        context_length: Some(64),
        max_total_tokens: 64,
        threads: Some(1),
        pin_threads: false,
        kernels: None,
        kv_cache_dtype: KvCacheDtype::default(),
    }
}

fn room() -> TempDir {
    // In memory, where there is such a place.
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() }.expect("a folder can be made")
}

fn write(folder: &Path, name: &str, data: &[u8]) {
    fs::write(folder.join(name), data).expect("a file can be written");
}
