//! What is generated does not depend on who else is served, nor on how a prompt is cut.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::Server;

const PROMPTS: [&str; 8] = [
    "The capital of France is",
    "Water boils at",
    "def fibonacci(n):",
    "1, 2, 3, 5, 8, 13,",
    "Once upon a time, in a village by the sea, there lived a fisherman who",
    "Die Hauptstadt von Deutschland ist",
    "A radiosonde is an instrument that flies through the atmosphere and radios back what it meets. It measures",
    "😀 means",
];

async fn greedy(server: &Server, text: &str) -> Value {
    let body = json!({"text": text, "sampling_params": {"temperature": 0, "max_new_tokens": 64, "ignore_eos": true}});
    let answer = server.client().post(server.url("/generate")).json(&body).send().await.unwrap();
    let mut answer: Value = answer.json().await.unwrap();
    answer["output_ids"].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn greedy_text_is_the_same_alone_together_and_in_any_chunks() {
    let server = Server::start_default().await;
    let mut alone = Vec::new();
    for prompt in PROMPTS {
        alone.push(greedy(&server, prompt).await);
    }
    assert!(alone.iter().all(|ids| ids.as_array().is_some_and(|ids| ids.len() == 64)), "{alone:?}");
    assert_eq!(join_all(PROMPTS.iter().map(|prompt| greedy(&server, prompt))).await, alone);
    let model = crate::support::real_model().await;
    let model = model.to_str().unwrap();
    // A pool that cannot hold all eight makes some of them start again in the middle.
    let tight = ["--model", model, "--chunked-prefill-size=5", "--max-total-tokens=320"];
    let server = Server::start(&tight).await;
    assert_eq!(join_all(PROMPTS.iter().map(|prompt| greedy(&server, prompt))).await, alone);
    assert!(server.metric("radiosonde_num_retractions_total").await > 0.0, "the pool was meant to be too small");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_is_answered_in_a_sentence() {
    let server = Server::start_default().await;
    let body = json!({
        "model": "default", "temperature": 0, "max_tokens": 60,
        "messages": [{"role": "user", "content": "What is 2+2?"}],
    });
    let answer = server.client().post(server.url("/v1/chat/completions")).json(&body).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.contains(" 4") && text.ends_with('.'), "{answer}");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_comes_back_is_answered_from_the_cache_and_alike() {
    let server = Server::start_default().await;
    let ask = async |prompt: &str| {
        let sampling = json!({"temperature": 0, "max_new_tokens": 40, "ignore_eos": true});
        let body = json!({"text": prompt, "sampling_params": sampling, "return_logprob": true, "top_logprobs_num": 3});
        let answer = server.client().post(server.url("/generate")).json(&body).send().await.unwrap();
        let mut answer: Value = answer.json().await.unwrap();
        let meta = &mut answer["meta_info"];
        let (cached, logprobs) = (meta["cached_tokens"].as_u64().unwrap(), meta["output_token_logprobs"].take());
        (cached, answer["output_ids"].take(), logprobs)
    };
    let prompt = PROMPTS.join(" ");
    let (none, ids, logprobs) = ask(&prompt).await;
    let (most, again, again_logprobs) = ask(&prompt).await;
    assert_eq!(none, 0);
    assert!(most > 48 && most.is_multiple_of(16), "{most}");
    assert_eq!((again, again_logprobs), (ids, logprobs), "to the last digit");
    assert_eq!(server.metric("radiosonde_cached_tokens_total").await, most as f64);
    server.at_rest(std::time::Duration::from_secs(10)).await;
    assert!(server.metric("radiosonde_kv_evictable_tokens").await >= most as f64, "kept, and not in use");
}
