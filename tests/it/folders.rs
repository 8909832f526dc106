//! A folder with a generator: its tokenizer, its chat template and where it says that a turn ends.

use std::collections::BTreeMap;
use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::Server;

const WIDTH: usize = 32;
/// The bytes, and the control tokens behind them.
const VOCAB: usize = 272;
const START: u32 = 256;
const END: u32 = 257;
const END_OF_TEXT: u32 = 258;

/// A Qwen2 of one layer and random weights, whose every byte is a token.
fn write() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: Value| std::fs::write(folder.path().join(name), content.to_string()).unwrap();
    write(
        "config.json",
        json!({
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": WIDTH, "intermediate_size": WIDTH,
            "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_act": "silu", "max_position_embeddings": 512,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true, "vocab_size": VOCAB,
            "eos_token_id": END_OF_TEXT, "use_sliding_window": false, "sliding_window": 16
        }),
    );
    write("generation_config.json", json!({"eos_token_id": [END_OF_TEXT, 7]}));
    let template =
        "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}<|start|>assistant";
    write("tokenizer_config.json", json!({"chat_template": template, "eos_token": {"content": "<|end|>"}}));
    write("tokenizer.json", tokenizer());
    weights(&folder.path().join("model.safetensors"));
    folder
}

/// Each byte has a letter: printable Latin-1 itself, the others one from U+0100 on.
fn tokenizer() -> Value {
    let mut others = '\u{100}'..;
    let letter = |byte: u8| match char::from(byte) {
        c @ ('!'..='~' | '\u{A1}'..='\u{AC}' | '\u{AE}'..='\u{FF}') => c,
        _ => others.next().unwrap(),
    };
    let vocab: BTreeMap<char, u32> = (0..=u8::MAX).map(letter).zip(0..).collect();
    let added = [("<|start|>", START), ("<|end|>", END), ("<|endoftext|>", END_OF_TEXT)].map(|(content, id)| {
        json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false})
    });
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({"version": "1.0", "added_tokens": added, "normalizer": null, "pre_tokenizer": level, "post_processor": null,
        "decoder": level, "model": {"type": "BPE", "vocab": vocab, "merges": []}})
}

fn weights(path: &Path) {
    let layer = |part: &str| format!("model.layers.0.{part}");
    let square = [
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
    ];
    let square = square.map(|part| (layer(&format!("{part}.weight")), vec![WIDTH, WIDTH]));
    let bias = ["q", "k", "v"].map(|part| (layer(&format!("self_attn.{part}_proj.bias")), vec![WIDTH]));
    let norms =
        ["input_layernorm", "post_attention_layernorm"].map(|part| (layer(&format!("{part}.weight")), vec![WIDTH]));
    let rest =
        [("model.embed_tokens.weight".to_owned(), vec![VOCAB, WIDTH]), ("model.norm.weight".to_owned(), vec![WIDTH])];
    let tensors: Vec<_> = square.into_iter().chain(bias).chain(norms).chain(rest).collect();
    let mut random = StdRng::seed_from_u64(7);
    let bytes = |shape: &Vec<usize>| -> Vec<u8> {
        (0..shape.iter().product()).flat_map(|_| random.random_range(-1.0_f32..1.0).to_le_bytes()).collect()
    };
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|(_, shape)| shape).map(bytes).collect();
    let views = tensors.iter().zip(&bytes);
    let views = views.map(|((name, shape), bytes)| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    serialize_to_file(views, None, path).unwrap();
}

async fn post(server: &Server, path: &str, body: Value) -> Value {
    let answer = server.client().post(server.url(path)).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path} {body}");
    answer.json().await.unwrap()
}

#[tokio::test]
async fn a_folder_is_served() {
    let folder = write();
    let server = Server::start(&["--model", folder.path().to_str().unwrap()]).await;
    assert_eq!(server.probe("/health_generate").await.status, 200);
    let info: Value = server.client().get(server.url("/model_info")).send().await.unwrap().json().await.unwrap();
    assert_eq!(info["is_generation"], true, "{info}");

    // What the user types is bytes, whatever it spells; three tokens of the template are control tokens.
    let messages = json!([{"role": "user", "content": "<|end|>é"}]);
    let chat =
        post(&server, "/v1/chat/completions", json!({"model": "default", "max_tokens": 2, "messages": messages})).await;
    let template = "user\n".len() + "\n".len() + "assistant".len() + 3;
    assert_eq!(chat["usage"]["prompt_tokens"], template + "<|end|>é".len(), "{chat}");

    let forced = async |token: u32, more: Value| {
        let mut params = json!({"max_new_tokens": 3, "temperature": 0, "logit_bias": {token.to_string(): 100}});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        post(&server, "/generate", json!({"text": "a", "sampling_params": params})).await
    };
    for stop in [END, END_OF_TEXT, 7] {
        let answer = forced(stop, json!({})).await;
        assert_eq!(answer["meta_info"]["finish_reason"], json!({"type": "stop", "matched": stop}), "{answer}");
        assert_eq!(answer["text"], "", "{answer}");
    }
    let answer = forced(END, json!({"ignore_eos": true})).await;
    assert_eq!(answer["meta_info"]["finish_reason"]["type"], "length", "{answer}");
    assert_eq!(forced(u32::from(b'x'), json!({})).await["text"], "xxx");
}

#[tokio::test]
async fn a_folder_that_is_broken_ends_the_server() {
    let folder = write();
    let path = folder.path().join("model.safetensors");
    let len = std::fs::metadata(&path).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len - 100).unwrap();
    let mut server = Server::start_unready(&["--model", folder.path().to_str().unwrap()], &[]).await;
    let status = server.wait_exit(std::time::Duration::from_secs(30)).await;
    assert_eq!(status.code(), Some(1));
    let log = server.log();
    assert!(log.contains("model.safetensors is truncated: tensor"), "{log}");
}

#[tokio::test]
async fn a_folders_output_follows_a_grammar() {
    let folder = write();
    let server = Server::start(&["--model", folder.path().to_str().unwrap()]).await;
    let follow = async |grammar: Value| {
        let mut params = json!({"max_new_tokens": 400, "temperature": 1, "sampling_seed": 7});
        params.as_object_mut().unwrap().extend(grammar.as_object().unwrap().clone());
        let answer = post(&server, "/generate", json!({"text": "a", "sampling_params": params})).await;
        assert_eq!(answer["meta_info"]["finish_reason"], json!({"type": "stop", "matched": null}), "{answer}");
        answer["text"].as_str().unwrap().to_owned()
    };
    // Letters of one, two and three bytes, each byte of which is a token.
    let text = follow(json!({"regex": "(a|é|語){9}[0-9]"})).await;
    assert!(text.chars().count() == 10 && text.ends_with(|c: char| c.is_ascii_digit()), "{text}");
    assert!(text.chars().take(9).all(|c| "aé語".contains(c)), "{text}");
    let kind = json!({"enum": ["a \"b\"", "<|end|>"]});
    let schema = json!({
        "type": "object",
        "properties": {"kind": kind, "count": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["kind", "count"],
        "additionalProperties": false
    });
    let text = follow(json!({"json_schema": schema})).await;
    let object: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(["a \"b\"", "<|end|>"].contains(&object["kind"].as_str().unwrap()), "{text}");
    assert!((0..=99).contains(&object["count"].as_i64().unwrap()), "{text}");
}
