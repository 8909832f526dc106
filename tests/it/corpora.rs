//! What fuzzing has kept, read again, whole and damaged: `fuzz/run` looks for more.

#[path = "../../fuzz/readers.rs"]
mod readers;

use std::fs;
use std::path::{Path, PathBuf};

use radiosonde::io_struct::ModelSource;
use radiosonde::model_runner::weights;
use radiosonde::tokenizer::Tokenizer;
use radiosonde::tokenizer::chat_template::ChatTemplate;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// By the name of its corpus.
type Reader = (&'static str, fn(&[u8]));

const READERS: [Reader; 4] =
    [("gguf", readers::gguf), ("folder", readers::folder), ("frames", readers::frames), ("chat", readers::chat)];

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpora").join(name)
}

/// In the order of their names.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<_> = fs::read_dir(corpus(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

#[test]
fn what_was_kept_is_read_without_a_failure() {
    for (name, reader) in READERS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no corpus");
        seeds.iter().for_each(|seed| reader(seed));
    }
}

/// As often as `RADIOSONDE_DAMAGES` says. What fails is left in the folder of test data, by the name of its reader.
#[test]
fn what_is_damaged_is_read_without_a_failure() {
    let number = |variable, default| std::env::var(variable).map_or(default, |text| text.parse().unwrap());
    let (times, seed) = (number("RADIOSONDE_DAMAGES", 200), number("RADIOSONDE_SEED", 7));
    for (name, reader) in READERS {
        let (mut random, seeds) = (StdRng::seed_from_u64(seed), seeds(name));
        let last = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        for _ in 0..times {
            let mut bytes = seeds[random.random_range(0..seeds.len())].clone();
            for _ in 0..random.random_range(1..6) {
                damage(&mut bytes, &mut random);
            }
            fs::write(&last, &bytes).unwrap();
            reader(&bytes);
        }
        fs::remove_file(last).unwrap();
    }
}

/// Numbers at the edges, which lengths and offsets are compared with.
const EDGES: [u64; 8] = [0, 1, 0xff, 0x7fff_ffff, 0xffff_ffff, 1 << 32, i64::MAX as u64, u64::MAX];

fn damage(bytes: &mut Vec<u8>, random: &mut StdRng) {
    let at = random.random_range(0..=bytes.len());
    let to = random.random_range(at..=bytes.len().min(at + 64));
    match random.random_range(0..6) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..to)),
        2 => bytes.extend_from_within(at..to),
        3 => bytes.insert(at, random.random()),
        4 => bytes[at..to].iter_mut().take(1).for_each(|byte| *byte ^= 1 << random.random_range(0..8)),
        _ => {
            let edge = EDGES[random.random_range(0..EDGES.len())].to_le_bytes();
            let width = [1, 4, 8][random.random_range(0..3)];
            bytes[at..].iter_mut().zip(&edge[..width]).for_each(|(byte, edge)| *byte = *edge);
        }
    }
}

/// Or the damage would never come behind the checks.
#[test]
fn one_file_of_the_corpus_is_a_model() {
    let path = corpus("gguf").join("whole");
    if let Err(error) = weights::load(&path, &readers::small()) {
        panic!("{error}");
    }
    let source = ModelSource::Gguf(path);
    assert!(!Tokenizer::for_source(&source).unwrap().encode_prompt("ab").unwrap().is_empty());
    assert!(ChatTemplate::for_source(&source).unwrap().is_some());
}
