//! Tokens per second of a forward pass, as a ratio against candle-transformers' `quantized_llama` in the same run.
//!
//! The model is the default one, fetched if need be; `RADIOSONDE_BENCH_THREADS` are our threads,
//! `RADIOSONDE_BENCH_ALONE=1` leaves candle out.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use radiosonde::io_struct::TokenId;
use radiosonde::model_runner::weights::{LoadOptions, load};
use radiosonde::model_runner::{ModelRunner, PAGE_SIZE, PageId, SequenceSlice};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A measurement is repeated for this long, and the fastest run counts: the machine may be shared.
const PATIENCE: Duration = Duration::from_secs(2);

const POOL_TOKENS: u32 = 16_384;

fn main() -> Outcome<()> {
    // `cargo test --benches` asks for a quick pass only.
    if !std::env::args().any(|arg| arg == "--bench") {
        return Ok(());
    }
    let path = model_path()?;
    let threads = std::env::var("RADIOSONDE_BENCH_THREADS").ok().map(|text| text.parse()).transpose()?;
    let options = LoadOptions { context_length: None, max_total_tokens: POOL_TOKENS, threads, kernels: None };
    let mut ours = load(&path, &options)?;
    say(&format!("load {:.2} s, weights {} MB", ours.info().load_seconds, ours.info().weight_bytes / 1_000_000));
    say(&format!("resident {} MB", resident_mb()));
    let mut candle = match std::env::var_os("RADIOSONDE_BENCH_ALONE") {
        Some(_) => None,
        None => Some(Candle::load(&path)?),
    };
    for len in [128, 512] {
        let theirs = candle.as_mut().map(|candle| candle.prefill(len)).transpose()?;
        report(&format!("prefill {len}"), len, prefill(ours.as_mut(), len, 0)?, theirs);
    }
    for streams in [1, 8, 32] {
        let time = decode(ours.as_mut(), streams, 128)?;
        let alone = candle.as_mut().filter(|_| streams == 1);
        let theirs = alone.map(|candle| candle.decode(128)).transpose()?;
        report(&format!("decode {streams} at context 128"), streams, time, theirs);
    }
    fill(ours.as_mut(), 8192)?;
    say(&format!("resident {} MB, candle counted, with a KV pool of 8192 tokens filled", resident_mb()));
    for (len, start) in [(128, 0), (32, 6000), (64, 6000), (128, 6000)] {
        report(&format!("chunk of {len} at context {start}"), len, prefill(ours.as_mut(), len, start)?, None);
    }
    report("decode 1 at context 6000", 1, decode(ours.as_mut(), 1, 6000)?, None);
    for (len, context) in [(32, 6000), (64, 6000), (128, 6000), (32, 8000), (64, 8000)] {
        let what = format!("chunk of {len} and 8 decodes at {context}");
        report(&what, len + 8, mixed(ours.as_mut(), len, 8, context)?, None);
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the result")]
fn say(line: &str) {
    println!("{line}");
}

fn report(what: &str, tokens: usize, ours: Duration, theirs: Option<Duration>) {
    let rate = |time: Duration| tokens as f64 / time.as_secs_f64();
    let against = theirs.map(|theirs| {
        let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
        format!(", candle {:8.1} tokens/s, ratio {ratio:.1}", rate(theirs))
    });
    let ms = ours.as_secs_f64() * 1e3;
    say(&format!("{what:34} {:8.1} tokens/s {ms:8.2} ms{}", rate(ours), against.unwrap_or_default()));
}

fn model_path() -> Outcome<PathBuf> {
    Ok(radiosonde::model_hub::default_model()?)
}

fn fastest(mut run: impl FnMut() -> Outcome<Duration>) -> Outcome<Duration> {
    let began = Instant::now();
    let mut best = run()?;
    while began.elapsed() < PATIENCE {
        best = best.min(run()?);
    }
    Ok(best)
}

fn tokens(len: usize) -> Vec<TokenId> {
    (0..len).map(|i| TokenId(1000 + (i * 7919 % 40_000) as u32)).collect()
}

fn pages(first: usize, tokens: usize) -> Vec<PageId> {
    (first..first + tokens.div_ceil(PAGE_SIZE)).map(|page| PageId(page as u32)).collect()
}

/// Writes the pool up to `len` tokens: memory that has never been written is one page of zeros, and reads too fast.
fn fill(runner: &mut dyn ModelRunner, len: usize) -> Outcome<()> {
    let (tokens, pages) = (tokens(len), pages(0, len));
    for (chunk, tokens) in tokens.chunks(64).enumerate() {
        runner.forward(&[SequenceSlice { tokens, start: chunk * 64, pages: &pages, wants_logits: false }])?;
    }
    Ok(())
}

/// One chunk of `len` tokens after `start` others.
fn prefill(runner: &mut dyn ModelRunner, len: usize, start: usize) -> Outcome<Duration> {
    let (tokens, pages) = (tokens(len), pages(0, start + len));
    fastest(|| {
        let began = Instant::now();
        runner.forward(&[SequenceSlice { tokens: &tokens, start, pages: &pages, wants_logits: true }])?;
        Ok(began.elapsed())
    })
}

/// One token for each of `streams` sequences of `context` tokens.
fn decode(runner: &mut dyn ModelRunner, streams: usize, context: usize) -> Outcome<Duration> {
    let tokens = tokens(streams);
    let pages: Vec<_> = (0..streams).map(|stream| pages(stream * (context / PAGE_SIZE + 1), context + 1)).collect();
    let slices: Vec<_> = tokens.chunks(1).zip(&pages).collect();
    let slices: Vec<_> = slices
        .iter()
        .map(|(tokens, pages)| SequenceSlice { tokens, start: context, pages, wants_logits: true })
        .collect();
    fastest(|| {
        let began = Instant::now();
        runner.forward(&slices)?;
        Ok(began.elapsed())
    })
}

/// One chunk of `len` tokens and one token of each of `streams` sequences, all after the same `context` tokens.
fn mixed(runner: &mut dyn ModelRunner, len: usize, streams: usize, context: usize) -> Outcome<Duration> {
    let (tokens, pages) = (tokens(len), pages(0, context + len));
    let chunk = SequenceSlice { tokens: &tokens, start: context, pages: &pages, wants_logits: true };
    let stream = SequenceSlice { tokens: &tokens[..1], ..chunk };
    let mut slices = vec![stream; streams];
    slices.push(chunk);
    fastest(|| {
        let began = Instant::now();
        runner.forward(&slices)?;
        Ok(began.elapsed())
    })
}

struct Candle(ModelWeights);

impl Candle {
    fn load(path: &Path) -> Outcome<Self> {
        let mut file = std::fs::File::open(path)?;
        let content = Content::read(&mut file)?;
        Ok(Self(ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?))
    }

    fn run(&mut self, tokens: &[TokenId], start: usize) -> Outcome<Duration> {
        let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        let input = Tensor::new(ids.as_slice(), &Device::Cpu)?.unsqueeze(0)?;
        let began = Instant::now();
        self.0.forward(&input, start)?;
        Ok(began.elapsed())
    }

    fn prefill(&mut self, len: usize) -> Outcome<Duration> {
        let tokens = tokens(len);
        fastest(|| self.run(&tokens, 0))
    }

    fn decode(&mut self, context: usize) -> Outcome<Duration> {
        self.run(&tokens(context), 0)?;
        let mut position = context;
        fastest(|| {
            position += 1;
            self.run(&tokens(1), position - 1)
        })
    }
}

/// Memory of this process in use, in MB of 10^6 bytes.
fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024 / 1_000_000
}
