//! A sequence gets bitwise the same logits alone, in any batch, at any chunk size and with any number of threads.

use std::hash::{DefaultHasher, Hash, Hasher};

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use radiosonde::io_struct::{KvCacheDtype, TokenId};
use radiosonde::model_runner::weights::{LoadOptions, load};
use radiosonde::model_runner::{Logits, ModelRunner, PAGE_SIZE, PageId, SequenceSlice};

use crate::prompts::{PROMPTS, long};
use crate::tiny::Tiny;
use crate::{greedy, model_path, options, runner};

/// Tokens that each sequence generates.
const STEPS: usize = 64;

/// A sequence that generates greedily.
struct Sequence {
    tokens: Vec<TokenId>,
    prompt: usize,
    /// Tokens whose keys and values are in the pool.
    done: usize,
    /// Most tokens that it runs at once.
    chunk: usize,
    pages: Vec<PageId>,
    /// A fingerprint of each row of logits.
    logits: Vec<u64>,
}

impl Sequence {
    /// Its pages are neither in order nor next to each other.
    fn new(prompt: &[u32], chunk: usize, number: usize) -> Self {
        let count = (prompt.len() + STEPS).div_ceil(PAGE_SIZE);
        let pages = (0..count).rev().map(|page| PageId(u32::try_from(page * 8 + number).expect("a small pool")));
        Self {
            tokens: prompt.iter().copied().map(TokenId).collect(),
            prompt: prompt.len(),
            done: 0,
            chunk,
            pages: pages.collect(),
            logits: Vec::new(),
        }
    }

    fn is_over(&self) -> bool {
        self.logits.len() == STEPS
    }

    fn slice(&self) -> SequenceSlice<'_> {
        let end = self.tokens.len().min(self.done + self.chunk);
        let wants_logits = end == self.tokens.len();
        SequenceSlice { tokens: &self.tokens[self.done..end], start: self.done, pages: &self.pages, wants_logits }
    }

    fn result(self) -> (Vec<TokenId>, Vec<u64>) {
        (self.tokens[self.prompt..].to_vec(), self.logits)
    }
}

fn fingerprint(logits: &[f32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    logits.iter().for_each(|logit| logit.to_bits().hash(&mut hasher));
    hasher.finish()
}

/// Runs all sequences to their end, each from its own step on.
fn generate(runner: &mut dyn ModelRunner, sequences: &mut [(usize, Sequence)]) {
    for step in 0.. {
        let mut live: Vec<_> = sequences.iter_mut().filter(|(join, seq)| *join <= step && !seq.is_over()).collect();
        if live.is_empty() {
            return;
        }
        let slices: Vec<_> = live.iter().map(|(_, sequence)| sequence.slice()).collect();
        let logits = runner.forward(&slices).expect("a sound batch");
        let ran: Vec<_> = slices.iter().map(|slice| (slice.tokens.len(), slice.wants_logits)).collect();
        let mut rows = logits.rows();
        for ((_, sequence), (tokens, wants_logits)) in live.iter_mut().zip(ran) {
            sequence.done += tokens;
            if wants_logits {
                let row = rows.next().expect("a row for each that wants one");
                sequence.logits.push(fingerprint(row));
                sequence.tokens.push(greedy(row));
            }
        }
    }
}

fn alone(runner: &mut dyn ModelRunner, prompt: &[u32], chunk: usize) -> (Vec<TokenId>, Vec<u64>) {
    let mut sequences = [(0, Sequence::new(prompt, chunk, 0))];
    generate(runner, &mut sequences);
    let [(_, sequence)] = sequences;
    sequence.result()
}

#[test]
fn company_changes_nothing() {
    for dtype in [KvCacheDtype::F16, KvCacheDtype::Int8] {
        let mut runner = holding(dtype);
        let expected: Vec<_> = PROMPTS.iter().map(|prompt| alone(runner.as_mut(), prompt, 512)).collect();
        // Each joins five steps after the one before, its prompt in chunks of its own size beside the others' tokens.
        let join = |(number, prompt): (usize, &&[u32])| (5 * number, Sequence::new(prompt, 3 + 4 * number, number));
        let mut sequences: Vec<_> = PROMPTS.iter().enumerate().map(join).collect();
        generate(runner.as_mut(), &mut sequences);
        for ((number, (_, sequence)), expected) in sequences.into_iter().enumerate().zip(expected) {
            assert_eq!(sequence.result(), expected, "prompt {number}, {dtype:?}");
        }
    }
}

fn holding(kv_cache_dtype: KvCacheDtype) -> Box<dyn ModelRunner> {
    load(&model_path(), &LoadOptions { kv_cache_dtype, ..options(2) }).expect("a sound file")
}

/// Log-probability of the token that comes next, after each so many tokens.
fn logprobs(runner: &mut dyn ModelRunner, tokens: &[TokenId], every: usize) -> Vec<f64> {
    let pages: Vec<_> = (0..u32::try_from(tokens.len().div_ceil(PAGE_SIZE)).expect("few")).map(PageId).collect();
    let ends = (every..tokens.len()).step_by(every);
    let one = |end: usize| {
        let start = end - every;
        let slice = SequenceSlice { tokens: &tokens[start..end], start, pages: &pages, wants_logits: true };
        let logits = runner.forward(&[slice]).expect("a sound batch").values;
        let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        f64::from(logits[tokens[end].index()]) - total.ln()
    };
    ends.map(one).collect()
}

#[test]
fn eight_bits_are_a_little_off() {
    let (mut halves, mut bytes) = (holding(KvCacheDtype::F16), holding(KvCacheDtype::Int8));
    let mut tokens: Vec<_> = long(600).into_iter().map(TokenId).collect();
    tokens.extend(PROMPTS.iter().flat_map(|prompt| prompt.iter().copied().map(TokenId)));
    let expected = logprobs(halves.as_mut(), &tokens, 5);
    let got = logprobs(bytes.as_mut(), &tokens, 5);
    let off: f64 = expected.iter().zip(&got).map(|(expected, got)| (expected - got).abs()).sum();
    let off = off / expected.len() as f64;
    assert!(off > 0.0, "the flag does something");
    assert!(off < 0.05, "{off} on average, of {expected:?} and {got:?}");
}

#[test]
fn chunk_size_and_threads_change_nothing() {
    let path = model_path();
    let prompt = long(700);
    let expected = alone(runner(&path, 2).as_mut(), &prompt, 700);
    for (chunk, threads) in [(1, 2), (7, 3), (16, 1), (64, 2), (512, 2)] {
        let got = alone(runner(&path, threads).as_mut(), &prompt, chunk);
        assert_eq!(got, expected, "chunks of {chunk}, {threads} threads");
    }
}

/// Counted on the calling thread, so one thread does it all.
#[test]
fn a_pass_takes_no_memory_once_it_has_had_one_of_its_size() {
    let mut model = Tiny::new(GgmlDType::Q4_1);
    model.metadata.insert("llama.context_length".to_owned(), Value::U32(2048));
    let file = tempfile::NamedTempFile::new().expect("a place for a file");
    std::fs::write(file.path(), model.bytes()).expect("a small file");
    for kv_cache_dtype in [KvCacheDtype::F16, KvCacheDtype::Int8] {
        let mut runner = load(file.path(), &LoadOptions { kv_cache_dtype, ..options(1) }).expect("a sound file");
        let prompt: Vec<_> = (0..1100).map(|place| TokenId(place % 7)).collect();
        let (pages, mut logits) = ((0..512).map(PageId).collect::<Vec<_>>(), Logits::default());
        // A prompt that goes over several segments; pieces of prompts of others beside single tokens; one token.
        let whole = [slice(&prompt, 0, &pages[..80])];
        let single = |number: usize| slice(&prompt[40..41], 40, &pages[80 + 4 * number..][..4]);
        let mixed: Vec<_> = (0..32).map(single).chain([slice(&prompt[..77], 0, &pages[300..310])]).collect();
        let mut taken = |batch: &[_]| {
            let pass = || runner.forward_into(batch, &mut logits).expect("a sound batch");
            allocation_counter::measure(pass).count_total
        };
        assert!(taken(&whole) > 0, "the first pass makes room for itself");
        for batch in [&whole[..], &mixed, &mixed[..1]] {
            taken(batch);
            assert_eq!(taken(batch), 0, "{} sequences, {kv_cache_dtype:?}", batch.len());
        }
    }
}

fn slice<'a>(tokens: &'a [TokenId], start: usize, pages: &'a [PageId]) -> SequenceSlice<'a> {
    SequenceSlice { tokens, start, pages, wants_logits: true }
}
