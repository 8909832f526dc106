//! A folder with a generator: its tokenizer, its chat template and where it says that a turn ends.

use serde_json::{Value, json};

use crate::support::Server;
use crate::support::tiny::{END, END_OF_TEXT, folder};

async fn post(server: &Server, path: &str, body: Value) -> Value {
    let answer = server.client().post(server.url(path)).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path} {body}");
    answer.json().await.unwrap()
}

#[tokio::test]
async fn a_folder_is_served() {
    let folder = folder();
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
    let folder = folder();
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
    let folder = folder();
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
