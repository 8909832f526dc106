//! candle-transformers' `quantized_llama`: one sequence at a time.

use std::path::Path;
use std::time::{Duration, Instant};

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use serde_json::{Value, json};

use super::{Case, Outcome, Passes, resident_bytes, tokens};

pub struct Candle {
    weights: ModelWeights,
    load_seconds: f64,
}

impl Candle {
    pub fn load(path: &Path) -> Outcome<Self> {
        let began = Instant::now();
        let mut file = std::fs::File::open(path)?;
        let content = Content::read(&mut file)?;
        let weights = ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?;
        Ok(Self { weights, load_seconds: began.elapsed().as_secs_f64() })
    }

    fn run(&mut self, ids: &[u32], start: usize) -> Outcome<Duration> {
        let input = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
        let began = Instant::now();
        self.weights.forward(&input, start)?;
        Ok(began.elapsed())
    }
}

impl Passes for Candle {
    fn describe(&self) -> Outcome<Value> {
        Ok(json!({"engine": "candle", "load_seconds": self.load_seconds, "resident_bytes": resident_bytes()?}))
    }

    fn prepare<'a>(&'a mut self, case: &Case) -> Outcome<Box<dyn FnMut() -> Outcome<Duration> + 'a>> {
        let ids = |len| tokens(len).iter().map(|token| token.0).collect::<Vec<_>>();
        match *case {
            Case::Prefill { tokens, start: 0 } => {
                let ids = ids(tokens);
                Ok(Box::new(move || self.run(&ids, 0)))
            }
            Case::Decode { streams: 1, context } => {
                self.run(&ids(context), 0)?;
                let mut position = context;
                Ok(Box::new(move || {
                    position += 1;
                    self.run(&[1000], position - 1)
                }))
            }
            _ => Err("candle runs one sequence at a time, from its beginning".into()),
        }
    }
}
