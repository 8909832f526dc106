//! The server's own runner, without a server around it.

use std::path::Path;
use std::time::{Duration, Instant};

use radiosonde::io_struct::{KernelBackend, KvCacheDtype, TokenId};
use radiosonde::model_runner::attention::KvShape;
use radiosonde::model_runner::weights::gguf::GgufFile;
use radiosonde::model_runner::weights::{LoadOptions, load};
use radiosonde::model_runner::{Logits, ModelRunner, PAGE_SIZE, PageId, SequenceSlice};
use serde_json::{Value, json};

use super::{Case, Outcome, Passes, resident_bytes, tokens};

/// Prompt tokens of one pass; longer prompts take several. What llama.cpp has by default (`--ubatch-size`).
const CHUNK: usize = 512;

/// Sequences of one pass while memory is written for the first time.
const TOUCHED_AT_ONCE: usize = 64;

pub struct Ours {
    runner: Box<dyn ModelRunner>,
    work: Work,
    threads: usize,
    /// Pages of the pool that have been written.
    touched: usize,
    logits: Logits,
}

/// What a pass must do at least, from the header of the file.
struct Work {
    /// Multiply-adds of one token in all matrices but the head.
    layer_macs: usize,
    /// Multiply-adds of one row of logits.
    head_macs: usize,
    /// Bytes of keys and values that one token of context has.
    kv_bytes: usize,
}

impl Work {
    fn read(path: &Path, kv_cache_dtype: KvCacheDtype) -> Outcome<Self> {
        let file = GgufFile::open(path)?;
        let prefix = file.string("general.architecture")?;
        let number = |key: &str| file.integer(&format!("{prefix}.{key}"));
        let need = |key: &str| -> Outcome<usize> { Ok(number(key)?.ok_or(format!("{prefix}.{key} is missing"))?) };
        let infos = &file.content().tensor_infos;
        let matrices = infos.iter().filter(|(name, info)| name.starts_with("blk.") && info.shape.rank() == 2);
        let head = file.tensor_info("output.weight").or_else(|| file.tensor_info("token_embd.weight"));
        let head_dim = match number("attention.key_length")? {
            Some(dim) => dim,
            None => need("embedding_length")? / need("attention.head_count")?,
        };
        let kv_heads = number("attention.head_count_kv")?.map_or_else(|| need("attention.head_count"), Ok)?;
        let shape = KvShape { kv_heads, queries_per_head: 1, head_dim, dtype: kv_cache_dtype };
        Ok(Self {
            layer_macs: matrices.map(|(_, info)| info.shape.elem_count()).sum(),
            head_macs: head.map_or(0, |info| info.shape.elem_count()),
            kv_bytes: need("block_count")? * shape.page_bytes() / PAGE_SIZE,
        })
    }
}

impl Ours {
    pub fn load(path: &Path, threads: usize, options: &LoadOptions) -> Outcome<Self> {
        Ok(Self {
            runner: load(path, options)?,
            work: Work::read(path, options.kv_cache_dtype)?,
            threads,
            touched: 0,
            logits: Logits::default(),
        })
    }

    /// Writes the pool's first pages: memory that has never been written is one page of zeros, and reads too fast.
    fn touch(&mut self, pages: usize) -> Outcome<()> {
        let fresh: Vec<_> = (self.touched..pages).map(|page| [PageId(page as u32)]).collect();
        let tokens = tokens(1);
        for pages in fresh.chunks(TOUCHED_AT_ONCE) {
            let slice = |pages| SequenceSlice { tokens: &tokens, start: 0, pages, wants_logits: false };
            self.runner.forward(&pages.iter().map(|page| slice(page)).collect::<Vec<_>>())?;
        }
        self.touched = self.touched.max(pages);
        Ok(())
    }

    fn prefill(&mut self, tokens: &[TokenId], start: usize, pages: &[PageId]) -> Outcome<Duration> {
        let began = Instant::now();
        let last = tokens.len().div_ceil(CHUNK) - 1;
        for (chunk, tokens) in tokens.chunks(CHUNK).enumerate() {
            let start = start + chunk * CHUNK;
            let slice = SequenceSlice { tokens, start, pages, wants_logits: chunk == last };
            self.runner.forward_into(&[slice], &mut self.logits)?;
        }
        Ok(began.elapsed())
    }

    /// One pass: a chunk after `context` tokens, if it is not empty, and one token for each stream.
    fn mixed(&mut self, chunk: &[TokenId], streams: &[Vec<PageId>], context: usize) -> Outcome<Duration> {
        let newest = tokens(streams.len());
        let slice = |tokens, pages| SequenceSlice { tokens, start: context, pages, wants_logits: true };
        let streams = newest.chunks(1).zip(streams);
        let mut slices: Vec<_> = streams.map(|(token, pages)| slice(token, pages.as_slice())).collect();
        let pages = pages(0, context + chunk.len());
        if !chunk.is_empty() {
            slices.push(slice(chunk, pages.as_slice()));
        }
        let began = Instant::now();
        self.runner.forward_into(&slices, &mut self.logits)?;
        Ok(began.elapsed())
    }
}

impl Passes for Ours {
    fn describe(&self) -> Outcome<Value> {
        Ok(json!({
            "engine": "radiosonde",
            "threads": self.threads,
            "kernels": self.runner.info().kernels.map(KernelBackend::as_str),
            "load_seconds": self.runner.info().load_seconds,
            "resident_bytes": resident_bytes()?,
            "weight_bytes": self.runner.info().weight_bytes,
            "kv_bytes_per_token": self.work.kv_bytes,
            "layer_macs": self.work.layer_macs,
            "head_macs": self.work.head_macs,
        }))
    }

    fn prepare<'a>(&'a mut self, case: &Case) -> Outcome<Box<dyn FnMut() -> Outcome<Duration> + 'a>> {
        match *case {
            Case::Prefill { tokens: len, start } => {
                let (tokens, pages) = (tokens(len), pages(0, start + len));
                self.touch(pages.len())?;
                Ok(Box::new(move || self.prefill(&tokens, start, &pages)))
            }
            Case::Decode { streams, context } => {
                let each = (context + 1).div_ceil(PAGE_SIZE);
                let streams: Vec<_> = (0..streams).map(|stream| pages(stream * each, context + 1)).collect();
                self.touch(streams.len() * each)?;
                Ok(Box::new(move || self.mixed(&[], &streams, context)))
            }
            // The streams share the chunk's pages: only the chunk's own work is of interest.
            Case::Mixed { chunk, streams, context } => {
                let (tokens, streams) = (tokens(chunk), vec![pages(0, context + 1); streams]);
                self.touch((context + chunk).div_ceil(PAGE_SIZE))?;
                Ok(Box::new(move || self.mixed(&tokens, &streams, context)))
            }
            Case::Bandwidth { .. } | Case::Int8 => Err("not a forward pass".into()),
        }
    }
}

fn pages(first: usize, tokens: usize) -> Vec<PageId> {
    (first..first + tokens.div_ceil(PAGE_SIZE)).map(|page| PageId(page as u32)).collect()
}
