//! Forward passes and the machine's limits, measured case by case: the engine's half of `benches/compare`.
//!
//! `cargo bench --bench forward -- --threads 2 prefill:512 decode:8:128` prints one JSON line for the model and one for each
//! case; without cases they come from standard input, a line each, so that a driver can alternate between engines. The
//! model is the default one, fetched if need be. `--engine candle` runs candle-transformers' `quantized_llama` instead.

#[path = "forward/candle.rs"]
mod candle;
#[path = "forward/case.rs"]
mod case;
#[path = "forward/ours.rs"]
mod ours;
#[path = "forward/roofline.rs"]
mod roofline;

use std::error::Error;
use std::io::BufRead;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use candle::Candle;
use case::Case;
use clap::{Parser, ValueEnum};
use ours::Ours;
use radiosonde::io_struct::{KernelBackend, KvCacheDtype, TokenId};
use radiosonde::model_runner::weights::LoadOptions;
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

#[derive(Debug, Parser)]
struct Args {
    /// `prefill:<tokens>[:<start>]`, `decode:<streams>:<context>`, `mixed:<chunk>:<streams>:<context>`, `bandwidth:<MiB>`
    /// or `int8`. Default: one a line from standard input.
    cases: Vec<Case>,
    /// A GGUF file. Default: the server's default model.
    #[arg(long)]
    model: Option<PathBuf>,
    /// Default: one for each core that this process may use.
    #[arg(long)]
    threads: Option<usize>,
    #[arg(long, value_enum, default_value = "radiosonde")]
    engine: Engine,
    /// Size of the KV pool in tokens.
    #[arg(long, default_value_t = 16_384)]
    max_total_tokens: u32,
    /// How keys and values are held.
    #[arg(long, value_enum, default_value = "f16")]
    kv_cache_dtype: KvCacheDtype,
    /// Default: the fastest that this machine has.
    #[arg(long, env = "RADIOSONDE_KERNELS")]
    kernels: Option<KernelBackend>,
    /// How long a case is repeated.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Set by cargo; without it (`cargo test --benches`) nothing is measured.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    Radiosonde,
    Candle,
}

/// What runs the passes.
trait Passes {
    /// What was loaded, for the first line.
    fn describe(&self) -> Outcome<Value>;

    /// Gets the case ready, then returns one pass, to be repeated, that says how long it took.
    fn prepare<'a>(&'a mut self, case: &Case) -> Outcome<Box<dyn FnMut() -> Outcome<Duration> + 'a>>;
}

fn main() -> Outcome<()> {
    let args = Args::parse();
    if !args.bench {
        return Ok(());
    }
    let model = args.model.clone().map_or_else(radiosonde::model_hub::default_model, Ok)?;
    let threads = args.threads.map_or_else(|| std::thread::available_parallelism().map(Into::into), Ok)?;
    let mut engine: Box<dyn Passes> = match args.engine {
        Engine::Radiosonde => Box::new(Ours::load(&model, threads, &options(&args, threads))?),
        Engine::Candle => Box::new(Candle::load(&model)?),
    };
    say(&engine.describe()?);
    let patience = Duration::from_secs_f64(args.seconds);
    let mut run = |case: &Case| say(&answer(case, measure(engine.as_mut(), case, threads, patience)));
    if !args.cases.is_empty() {
        args.cases.iter().for_each(run);
        return Ok(());
    }
    for line in std::io::stdin().lock().lines() {
        run(&line?.parse()?);
    }
    Ok(())
}

fn options(args: &Args, threads: usize) -> LoadOptions {
    LoadOptions {
        context_length: None,
        max_total_tokens: args.max_total_tokens,
        threads: Some(threads),
        pin_threads: false,
        kv_cache_dtype: args.kv_cache_dtype,
        kernels: args.kernels,
    }
}

#[expect(clippy::print_stdout, reason = "the result")]
fn say(line: &Value) {
    println!("{line}");
}

fn answer(case: &Case, times: Outcome<Vec<f64>>) -> Value {
    match times {
        Ok(seconds) => json!({"case": case.to_string(), "units": case.units(), "seconds": seconds}),
        Err(error) => json!({"case": case.to_string(), "error": error.to_string()}),
    }
}

/// Seconds of each repetition. The first one warms up, unless it takes all the time by itself.
fn measure(engine: &mut dyn Passes, case: &Case, threads: usize, patience: Duration) -> Outcome<Vec<f64>> {
    let mut pass: Box<dyn FnMut() -> Outcome<Duration>> = match *case {
        Case::Bandwidth { mib } => roofline::bandwidth(mib, threads),
        Case::Int8 => roofline::int8(threads),
        ref forward => engine.prepare(forward)?,
    };
    let first = pass()?;
    let mut seconds = Vec::new();
    let began = Instant::now();
    while first < patience && (seconds.is_empty() || began.elapsed() < patience) {
        seconds.push(pass()?.as_secs_f64());
    }
    if seconds.is_empty() {
        seconds.push(first.as_secs_f64());
    }
    Ok(seconds)
}

fn tokens(len: usize) -> Vec<TokenId> {
    (0..len).map(|i| TokenId(1000 + (i * 7919 % 40_000) as u32)).collect()
}

/// Memory of this process in use, in bytes.
fn resident_bytes() -> Outcome<u64> {
    let status = procfs::process::Process::myself()?.status()?;
    Ok(status.vmrss.unwrap_or(0) * 1024)
}
