//! Tiny models of every family against transformers: several sequences at once, in chunks of random sizes.
//!
//! `families/goldens.py` has written what they are compared with; it says how the weights come about.

#[path = "families/configurations.rs"]
mod configurations;
#[path = "families/files.rs"]
mod files;
#[path = "families/refusals.rs"]
mod refusals;

use std::fs;
use std::path::Path;

use radiosonde::io_struct::TokenId;
use radiosonde::model_runner::weights::{load, load_folder};
use radiosonde::model_runner::{ModelRunner, PAGE_SIZE, PageId, SequenceSlice};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{greedy, options};
use files::{GgufModel, Names};

/// What the script has written of one model.
#[derive(Deserialize)]
pub(crate) struct Golden {
    pub(crate) config: Value,
    pub(crate) files: Names,
    texts: Vec<Text>,
}

/// A prompt, and what transformers makes of it.
#[derive(Deserialize)]
struct Text {
    prompt: Vec<u32>,
    greedy: Vec<u32>,
    /// Logits after the prompt.
    first: Vec<f32>,
    /// Logits before the last of `greedy`.
    last: Vec<f32>,
}

/// Those of the last line have no width that is a multiple of 16.
pub(crate) const FAMILIES: [&str; 10] = [
    "llama",
    "llama3",
    "llama_linear",
    "mistral",
    "qwen2",
    "qwen3",
    "qwen3_yarn",
    "llama_odd",
    "qwen2_odd",
    "qwen3_odd",
];

pub(crate) fn golden(family: &str) -> Golden {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parity/families").join(family).with_extension("json");
    let text = fs::read_to_string(path).expect("the golden is here");
    serde_json::from_str(&text).expect("the script has written it")
}

/// One text on its way.
struct Sequence<'a> {
    text: &'a Text,
    tokens: Vec<TokenId>,
    /// Tokens whose keys and values are in the pool.
    done: usize,
    pages: Vec<PageId>,
    rows: Vec<Vec<f32>>,
}

impl Sequence<'_> {
    fn is_over(&self) -> bool {
        self.rows.len() == self.text.greedy.len()
    }
}

/// The rows of logits of each text, one for each token that follows greedily.
fn run<'a>(runner: &mut dyn ModelRunner, texts: &'a [Text], random: &mut StdRng) -> Vec<Vec<Vec<f32>>> {
    let mut pages: Vec<PageId> = (0..64).map(PageId).collect();
    pages.shuffle(random);
    let sequence = |text: &'a Text| {
        let Text { prompt, greedy, .. } = text;
        let pages = pages.split_off(pages.len() - (prompt.len() + greedy.len()).div_ceil(PAGE_SIZE));
        let tokens = prompt.iter().copied().map(TokenId).collect();
        Sequence { text, tokens, done: 0, pages, rows: Vec::new() }
    };
    let mut sequences: Vec<_> = texts.iter().map(sequence).collect();
    while !sequences.iter().all(Sequence::is_over) {
        let mut live: Vec<_> =
            sequences.iter_mut().filter(|sequence| !sequence.is_over() && random.random_bool(0.8)).collect();
        let ends: Vec<_> = live.iter().map(|it| it.tokens.len().min(it.done + random.random_range(1..40))).collect();
        let slices = live.iter().zip(&ends).map(|(it, end)| SequenceSlice {
            tokens: &it.tokens[it.done..*end],
            start: it.done,
            pages: &it.pages,
            wants_logits: *end == it.tokens.len(),
        });
        let logits = runner.forward(&slices.collect::<Vec<_>>()).expect("a sound batch");
        let mut rows = logits.rows();
        for (sequence, end) in live.iter_mut().zip(ends) {
            sequence.done = end;
            if end == sequence.tokens.len() {
                let row = rows.next().expect("a row for each that wants one");
                sequence.tokens.push(greedy(row));
                sequence.rows.push(row.to_vec());
            }
        }
    }
    sequences.into_iter().map(|sequence| sequence.rows).collect()
}

/// Runs all texts of a golden, and compares them.
fn check(runner: &mut dyn ModelRunner, golden: &Golden, what: &str) {
    for seed in 0..3 {
        let rows = run(runner, &golden.texts, &mut StdRng::seed_from_u64(seed));
        for (rows, text) in rows.iter().zip(&golden.texts) {
            let place = format!("{what}, prompt of {}, seed {seed}", text.prompt.len());
            let ids: Vec<u32> = rows.iter().map(|row| greedy(row).0).collect();
            assert_eq!(ids, text.greedy, "{place}");
            for (row, theirs) in [(&rows[0], &text.first), (&rows[rows.len() - 1], &text.last)] {
                let largest = row.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(row.len() == theirs.len() && largest < 1e-3, "{place}: off by {largest}");
            }
        }
    }
}

#[test]
fn folders_give_the_logits_of_transformers() {
    for family in FAMILIES {
        let golden = golden(family);
        let folder = files::write_folder(&golden);
        let mut runner = load_folder(folder.path(), &options(2)).expect("a sound folder");
        check(runner.as_mut(), &golden, family);
    }
}

#[test]
fn gguf_files_give_them_too() {
    for family in FAMILIES {
        let golden = golden(family);
        // Their factors stand in the file as numbers, which the script does not write.
        if family != "llama3" {
            let file = GgufModel::new(&golden).write();
            check(load(file.path(), &options(2)).expect("a sound file").as_mut(), &golden, &format!("{family}, GGUF"));
        }
    }
}

/// Older files name base and scaling by keys of their own, and leave out what is as usual.
#[test]
fn old_keys_of_rotation_are_read() {
    for family in ["llama3", "llama_linear", "qwen3_yarn"] {
        let mut golden = golden(family);
        let mut rope = golden.config["rope_parameters"].take();
        golden.config["rope_theta"] = rope["rope_theta"].take();
        rope["type"] = rope["rope_type"].take();
        let rope = rope.as_object().expect("an object").clone();
        golden.config["rope_scaling"] = rope.into_iter().filter(|(_, value)| !value.is_null()).collect();
        golden.config.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
        let folder = files::write_folder(&golden);
        check(load_folder(folder.path(), &options(2)).expect("a sound folder").as_mut(), &golden, family);
    }
}

#[test]
fn a_folder_says_what_it_is() {
    let golden = golden("mistral");
    let folder = files::write_folder(&golden);
    let info = |file: &str, content: Value| {
        fs::write(folder.path().join(file), content.to_string()).expect("a small file");
        load_folder(folder.path(), &options(1)).expect("a sound folder").info().clone()
    };
    let ids = |ids: &[u32]| ids.iter().copied().map(TokenId).collect::<Vec<_>>();
    let mistral = info("generation_config.json", json!({"eos_token_id": [5, 2, 9]}));
    assert_eq!((mistral.architecture.as_str(), mistral.vocab_size), ("mistral", 128));
    assert_eq!(mistral.context_length, 200, "the sliding window");
    assert_eq!(mistral.eos_token_ids, ids(&[2, 5, 9]));
    let tokens = json!({"eos_token": {"content": "<e>"}, "added_tokens_decoder": {"7": {"content": "<e>"}}});
    assert_eq!(info("tokenizer_config.json", tokens).eos_token_ids, ids(&[2, 5, 7, 9]));
    fs::write(folder.path().join("tokenizer.json"), json!({"added_tokens": [{"id": 3, "content": "<e>"}]}).to_string())
        .expect("a small file");
    assert_eq!(info("tokenizer_config.json", json!({"eos_token": "<e>"})).eos_token_ids, ids(&[2, 3, 5, 9]));
    let template = json!([{"name": "default", "template": "{{ messages[0].content }}<|im_end|>"}]);
    let tokens = json!({"chat_template": template, "added_tokens_decoder": {"6": {"content": "<|im_end|>"}}});
    assert_eq!(info("tokenizer_config.json", tokens.clone()).eos_token_ids, ids(&[2, 5, 6, 9]));
    fs::write(folder.path().join("chat_template.jinja"), "{{ messages[0].content }}<|eot_id|>").expect("a small file");
    let added = json!({"added_tokens": [{"id": 3, "content": "<|eot_id|>"}]});
    assert_eq!(info("tokenizer.json", added).eos_token_ids, ids(&[2, 3, 5, 9]), "the file of its own goes first");
    let yarn = files::write_folder(&golden_of_yarn());
    assert_eq!(load_folder(yarn.path(), &options(1)).expect("a sound folder").info().context_length, 256);
}

fn golden_of_yarn() -> Golden {
    let mut golden = golden("qwen3_yarn");
    golden.config["max_position_embeddings"] = json!(64);
    golden
}
