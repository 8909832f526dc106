//! Every format of weights gives candle's answer, and a tied head is a head.

use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::{GgmlDType, QTensor};
use radiosonde::io_struct::TokenId;
use radiosonde::model_runner::kernels::backend::supported;
use radiosonde::model_runner::weights::{LoadOptions, load};
use radiosonde::model_runner::{ModelRunner, PageId, SequenceSlice};

use crate::candle::Candle;
use crate::tiny::{Tiny, VOCAB};
use crate::{greedy, options, runner};

/// Rounding activations and weights to 8 bits moves a logit by a percent or so of a typical one.
const OF_BYTES: f32 = 0.05;

/// Where nothing is rounded, only the keys and values in half precision are left.
const OF_FLOATS: f32 = 1e-3;

fn prompt() -> Vec<u32> {
    (0..41).map(|i| i * 37 % VOCAB as u32).collect()
}

fn write(model: &Tiny) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a place for a file");
    std::fs::write(file.path(), model.bytes()).expect("a small file");
    file
}

fn logits(model: &Tiny) -> Vec<f32> {
    logits_of(runner(write(model).path(), 2).as_mut())
}

fn logits_of(runner: &mut dyn ModelRunner) -> Vec<f32> {
    let tokens: Vec<_> = prompt().into_iter().map(TokenId).collect();
    let pages = [PageId(5), PageId(3), PageId(4)];
    let slice = SequenceSlice { tokens: &tokens, start: 0, pages: &pages, wants_logits: true };
    let logits = runner.forward(&[slice]).expect("a sound batch");
    assert_eq!((logits.vocab_size, logits.values.len()), (VOCAB, VOCAB));
    logits.values
}

/// What follows a prompt greedily, token by token: the rows of a decoding step are computed apart from those of a prompt.
fn text_of(model: &Tiny) -> Vec<TokenId> {
    let mut runner = runner(write(model).path(), 2);
    let mut tokens: Vec<_> = prompt().into_iter().map(TokenId).collect();
    let (prompt, pages, mut start) = (tokens.len(), [0, 1, 2, 3].map(PageId), 0);
    while tokens.len() < prompt + 16 {
        let slice = SequenceSlice { tokens: &tokens[start..], start, pages: &pages, wants_logits: true };
        let logits = runner.forward(&[slice]).expect("a sound batch");
        start = tokens.len();
        tokens.push(greedy(&logits.values));
    }
    tokens.split_off(prompt)
}

fn norm(values: impl Iterator<Item = f32>) -> f32 {
    values.map(|value| value * value).sum::<f32>().sqrt()
}

#[test]
fn every_format_gives_candles_logits() {
    use GgmlDType::{BF16, F16, F32, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
    for dtype in [F32, F16, BF16, Q8_0, Q5_1, Q5_0, Q4_1, Q4_0, Q6K, Q5K, Q4K, Q3K, Q2K] {
        let model = Tiny::new(dtype);
        let theirs = Candle::load(write(&model).path()).forward(&prompt(), 0);
        let ours = logits(&model);
        let error = norm(ours.iter().zip(&theirs).map(|(a, b)| a - b)) / norm(theirs.iter().copied());
        let tolerance = if matches!(dtype, F32 | F16 | BF16) { OF_FLOATS } else { OF_BYTES };
        assert!(error < tolerance, "{dtype:?}: relative error {error}");
    }
}

/// A machine with AVX-512 and one without give the same text.
#[test]
fn every_backend_gives_the_same_bits() {
    for dtype in [GgmlDType::Q4_1, GgmlDType::Q5_0, GgmlDType::Q8_0, GgmlDType::F16] {
        let file = write(&Tiny::new(dtype));
        let mut of_backends = supported().into_iter().map(|backend| {
            let options = LoadOptions { kernels: Some(backend), ..options(2) };
            let mut runner = load(file.path(), &options).expect("a sound file");
            assert_eq!(runner.info().kernels, Some(backend));
            logits_of(runner.as_mut()).into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        let portable = of_backends.next().expect("there is always the portable one");
        assert!(of_backends.all(|other| other == portable), "{dtype:?}");
    }
}

#[test]
fn a_tied_head_is_the_embedding_written_out() {
    for dtype in [GgmlDType::Q8_0, GgmlDType::Q4_1, GgmlDType::F16] {
        let tied = Tiny::new(dtype);
        let mut written_out = Tiny::new(dtype);
        let embedding = &tied.tensors["token_embd.weight"];
        let copy = embedding.dequantize(&candle_core::Device::Cpu).expect("on the CPU");
        let copy = QTensor::quantize(&copy, dtype).expect("a known format");
        assert_eq!(copy.data().expect("on the CPU"), embedding.data().expect("on the CPU"), "not a copy");
        written_out.tensors.insert("output.weight".to_owned(), copy);
        assert_eq!(logits(&tied), logits(&written_out), "{dtype:?}");
        assert_eq!(text_of(&tied), text_of(&written_out), "{dtype:?}");
    }
}

#[test]
fn info_is_what_the_file_says() {
    let runner = runner(write(&Tiny::new(GgmlDType::Q4_1)).path(), 1);
    let info = runner.info();
    assert_eq!((info.name.as_str(), info.architecture.as_str()), ("Tiny", "llama"));
    assert_eq!((info.vocab_size, info.context_length), (VOCAB as u32, 512));
    assert_eq!(info.eos_token_ids, [TokenId(1), TokenId(2)]);
}

/// Files whose keys name the end of a text alone, and whose template ends a turn with another token: mistral.rs#1012,
/// mlx-vlm#2112, llama.cpp#9606.
#[test]
fn a_turn_ends_as_the_template_ends_it() {
    let texts = |texts: &[&str]| Value::Array(texts.iter().map(|text| Value::String((*text).to_owned())).collect());
    let tokens = texts(&["<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|end|>"]);
    let template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}";
    let ends = |template: Value| {
        let model = Tiny::new(GgmlDType::Q8_0).without("tokenizer.ggml.eot_token_id");
        let model = model.set("tokenizer.ggml.tokens", tokens.clone()).set("tokenizer.chat_template", template);
        runner(write(&model).path(), 1).info().eos_token_ids.clone()
    };
    assert_eq!(ends(Value::String(template.to_owned())), [TokenId(2), TokenId(4)]);
    assert_eq!(ends(Value::String(String::new())), [TokenId(2)], "what no template writes is a token like others");
}
