//! Texts per second of an embedding model's forward pass: all-MiniLM-L6-v2, in batches of 32.
//!
//! `RADIOSONDE_BENCH_THREADS` are our threads. `benches/embeddings_onnx.py` measures onnxruntime on the same batches.

use std::error::Error;
use std::time::{Duration, Instant};

use radiosonde::io_struct::TokenId;
use radiosonde::model_runner::bert::{EncoderOptions, Precision, load};
use radiosonde::model_runner::{ModelRunner, SequenceSlice};
use rustix::time::{ClockId, clock_gettime};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A measurement is repeated for this long, and the fastest run counts: the machine may be shared. CPU time is shown too:
/// with one thread, it is what the run would take alone.
const PATIENCE: Duration = Duration::from_secs(2);

/// Lengths of the texts of a batch.
const BATCHES: [(&str, fn(usize) -> usize); 4] = [
    ("32 texts of 16 tokens", |_| 16),
    ("32 texts of 128 tokens", |_| 128),
    ("32 texts of 256 tokens", |_| 256),
    ("32 texts of 8 to 194 tokens", |text| 8 + 6 * text),
];

fn main() -> Outcome<()> {
    // `cargo test --benches` asks for a quick pass only.
    if !std::env::args().any(|arg| arg == "--bench") {
        return Ok(());
    }
    let folder = radiosonde::model_hub::embedding_model()?;
    let threads = std::env::var("RADIOSONDE_BENCH_THREADS").ok().map(|text| text.parse()).transpose()?;
    for precision in [Precision::F32, Precision::Int8] {
        let mut runner = load(&folder, &EncoderOptions { context_length: None, precision, threads, kernels: None })?;
        for (what, length) in BATCHES {
            let texts: Vec<Vec<TokenId>> = (0..32).map(|text| tokens(text, length(text))).collect();
            let time = fastest(|| embed(&mut *runner, &texts))?;
            report(&format!("{precision:?} {what}"), &texts, time);
        }
        let text = [tokens(1, 16)];
        let time = fastest(|| embed(&mut *runner, &text))?;
        report(&format!("{precision:?} 1 text of 16 tokens"), &text, time);
    }
    Ok(())
}

/// The text of that number: no token is special, and none is twice in a row.
fn tokens(text: usize, length: usize) -> Vec<TokenId> {
    (0..length)
        .map(|place| TokenId(u32::try_from(1000 + (text * 7919 + place * 104_729) % 28_000).unwrap_or(1000)))
        .collect()
}

fn embed(runner: &mut dyn ModelRunner, texts: &[Vec<TokenId>]) -> Outcome<()> {
    let slice = |tokens| SequenceSlice { tokens, start: 0, pages: &[], wants_logits: true };
    let batch: Vec<SequenceSlice<'_>> = texts.iter().map(|text| slice(text.as_slice())).collect();
    runner.forward(&batch)?;
    Ok(())
}

/// The shortest time, and the least CPU time of the process.
fn fastest(mut run: impl FnMut() -> Outcome<()>) -> Outcome<[Duration; 2]> {
    run()?;
    let began = Instant::now();
    let mut times = Vec::new();
    while began.elapsed() < PATIENCE || times.len() < 5 {
        let (begin, cpu) = (Instant::now(), cpu_time());
        run()?;
        times.push([begin.elapsed(), cpu_time().saturating_sub(cpu)]);
    }
    Ok([0, 1].map(|kind| times.iter().map(|time| time[kind]).min().unwrap_or_default()))
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[expect(clippy::print_stdout, reason = "the result")]
fn report(what: &str, texts: &[Vec<TokenId>], [time, cpu]: [Duration; 2]) {
    let tokens: usize = texts.iter().map(Vec::len).sum();
    let per_second = |count: usize| count as f64 / time.as_secs_f64();
    let [ms, cpu] = [time, cpu].map(|time| time.as_secs_f64() * 1e3);
    println!(
        "{what:36} {ms:8.2} ms, cpu {cpu:8.2} ms {:7.0} texts/s {:7.0} tokens/s",
        per_second(texts.len()),
        per_second(tokens)
    );
}
