//! What fuzzing has kept, read again: `fuzz/run` makes more of it.

#[path = "../../fuzz/readers.rs"]
mod readers;

use std::fs;
use std::path::Path;

use radiosonde::io_struct::ModelSource;
use radiosonde::model_runner::weights::{self, LoadOptions};
use radiosonde::tokenizer::Tokenizer;
use radiosonde::tokenizer::chat_template::ChatTemplate;

/// By the name of its corpus.
type Reader = (&'static str, fn(&[u8]));

const READERS: [Reader; 4] =
    [("gguf", readers::gguf), ("folder", readers::folder), ("frames", readers::frames), ("chat", readers::chat)];

#[test]
fn what_was_found_is_read_without_a_failure() {
    for (name, reader) in READERS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpora").join(name);
        let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty(), "{} is empty", folder.display());
        for file in files {
            reader(&fs::read(file).unwrap());
        }
    }
}

/// Or the fuzzer would never come behind the checks.
#[test]
fn one_file_of_the_corpus_is_a_model() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpora/gguf/whole");
    let options = LoadOptions { context_length: Some(64), max_total_tokens: 64, threads: Some(1), kernels: None };
    if let Err(error) = weights::load(&path, &options) {
        panic!("{error}");
    }
    let source = ModelSource::Gguf(path);
    assert!(!Tokenizer::for_source(&source).unwrap().encode_prompt("ab").unwrap().is_empty());
    assert!(ChatTemplate::for_source(&source).unwrap().is_some());
}
