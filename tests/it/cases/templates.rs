//! Chat templates and tokenizers that both want to begin a text, and templates that refuse.

use serde_json::{Value, json};

use crate::api::{ok, refused};
use crate::support::Server;
use crate::support::tiny::{BeginsTexts, END, START, TEMPLATE, VOCAB, folder, folder_with};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const GENERATE: &str = "/generate";

/// The tokens that the model is given for `text`.
async fn prompt_of(server: &Server, text: &str) -> Value {
    let body = json!({"text": text, "return_prompt_token_ids": true, "sampling_params": {"max_new_tokens": 1}});
    let answer = ok(server, GENERATE, body).await;
    let ids = answer["prompt_token_ids"].clone();
    assert_eq!(answer["meta_info"]["prompt_tokens"], ids.as_array().unwrap().len(), "{answer}");
    ids
}

/// vllm#27515, vllm#4688, MakazhanAlpamys/Soup#890
#[tokio::test]
async fn a_chat_begins_once_and_a_text_as_its_tokenizer_says() {
    let template = "{{ bos_token }}{% for m in messages %}{{ m.content }}<|end|>{% endfor %}";
    let folder = folder_with(template, BeginsTexts::WithStart);
    let server = Server::start_folder(&folder, &[]).await;
    let messages = json!([{"role": "user", "content": "ab"}]);
    let rendered = json!([START, b'a', b'b', END]);
    assert_eq!(ok(&server, "/v1/tokenize", json!({"messages": messages})).await["tokens"], rendered);
    let chat = ok(&server, CHAT, json!({"messages": messages, "max_tokens": 1})).await;
    assert_eq!(chat["usage"]["prompt_tokens"], 4, "{chat}");
    assert_eq!(prompt_of(&server, "ab").await, json!([START, b'a', b'b']));

    // An empty text is a beginning to such a tokenizer: sglang#4481, vllm#7283, vllm#7746.
    assert_eq!(prompt_of(&server, "").await, json!([START]));
    for prompt in [json!(""), json!([""])] {
        let answer = ok(&server, COMPLETIONS, json!({"prompt": prompt, "max_tokens": 1})).await;
        assert_eq!(answer["usage"]["prompt_tokens"], 1, "{answer}");
    }
    assert_eq!(refused(&server, GENERATE, json!({"input_ids": []})).await.0, 400);
}

/// sglang#892, mistral.rs#506, mistral.rs#45
#[tokio::test]
async fn a_chat_that_the_template_refuses_is_a_400_in_its_words() {
    let template = format!(
        "{{% if messages[0].role == 'system' %}}{{{{ raise_exception('System role not supported') }}}}{{% endif %}}\
         {{% for m in messages %}}{{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}}\
         {{{{ raise_exception('Conversation roles must alternate') }}}}{{% endif %}}{{% endfor %}}{TEMPLATE}"
    );
    let folder = folder_with(&template, BeginsTexts::No);
    let server = Server::start_folder(&folder, &[]).await;
    let of = |roles: &[&str]| roles.iter().map(|role| json!({"role": role, "content": "a"})).collect::<Vec<_>>();
    for (roles, words) in [
        (&["system", "user"][..], "System role not supported"),
        (&["user", "user"], "Conversation roles must alternate"),
        (&["assistant"], "Conversation roles must alternate"),
    ] {
        for stream in [false, true] {
            let body = json!({"messages": of(roles), "max_tokens": 1, "stream": stream});
            let (status, error) = refused(&server, CHAT, body).await;
            assert_eq!((status, &error["message"], &error["param"]), (400, &json!(words), &json!("messages")));
        }
    }
    ok(&server, CHAT, json!({"messages": of(&["user", "assistant", "user"]), "max_tokens": 1})).await;
}

/// What counts is the embedding, which may have more rows than the tokenizer has tokens: vllm#9634, vllm#51795,
/// vllm#35231.
#[tokio::test]
async fn every_row_of_the_embedding_is_a_token_and_nothing_else_is() {
    let folder = folder();
    let server = Server::start_folder(&folder, &[]).await;
    let rows = json!(VOCAB);
    let last = json!([VOCAB - 1]);
    ok(&server, GENERATE, json!({"input_ids": last, "sampling_params": {"max_new_tokens": 1}})).await;
    ok(&server, COMPLETIONS, json!({"prompt": last, "max_tokens": 1})).await;
    for ids in [json!([rows]), json!([[1, 2], [rows]]), json!([-1]), json!([1_u64 << 40]), json!([1.5])] {
        for (path, field) in [(GENERATE, "input_ids"), (COMPLETIONS, "prompt")] {
            let (status, error) = refused(&server, path, json!({field: ids})).await;
            assert_eq!((status, &error["param"]), (400, &json!(field)), "{ids}");
        }
    }
    assert_eq!(server.metric("radiosonde_num_requests_total").await, 2.0, "a list is refused as a whole");
    assert_eq!(server.probe("/health").await.status, 200);
}
