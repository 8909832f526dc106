//! What fuzzing has kept, read again: `fuzz/run` makes more of it.

#[path = "../../fuzz/readers.rs"]
mod readers;

use std::fs;
use std::path::Path;

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
