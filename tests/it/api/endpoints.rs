//! The table of paths, asked one by one, and what they say of the server.

use radiosonde::http_server::endpoints::{ELSEWHERE, ENDPOINTS, aliases};
use reqwest::Method;
use serde_json::{Value, json};

use super::{error, get, ok, post, refused, send};
use crate::support::Server;

#[tokio::test]
async fn every_line_of_the_table_is_true() {
    let server = Server::start(&["--model", "scripted"]).await;
    let filled =
        |path: &str| path.replace("{*model}", "default").replace("{probe_id}", "nosuch").replace("{method}", "x");
    for endpoint in ENDPOINTS {
        for method in endpoint.methods {
            let method: Method = method.parse().unwrap();
            let request = server.client().request(method.clone(), server.url(&filled(endpoint.path)));
            let request = if method == Method::GET { request } else { request.json(&json!({})) };
            let status = request.send().await.unwrap().status().as_u16();
            assert!(endpoint.statuses.contains(&status), "{method} {} answers {status}", endpoint.path);
        }
        let (status, answer) = get(&server, Method::PATCH, &filled(endpoint.path)).await;
        assert_eq!(status, 405, "{}", endpoint.path);
        error(&answer);
        if endpoint.methods.contains(&"GET") {
            let head = server.client().head(server.url(&filled(endpoint.path))).send().await.unwrap();
            assert_ne!(head.status(), 405, "{}", endpoint.path);
        }
    }
    for elsewhere in ELSEWHERE {
        let path = elsewhere.path.replace("{method}", "x").replace("{id}", "x");
        for method in [Method::GET, Method::POST] {
            let (status, answer) = get(&server, method, &path).await;
            assert_eq!((status, &error(&answer)["code"]), (501, &json!("not_implemented")), "{path}");
            assert!(answer["error"]["message"].as_str().unwrap().contains(elsewhere.why), "{path}: {answer}");
        }
    }
}

#[tokio::test]
async fn older_names_say_the_same() {
    let server = Server::start(&["--model", "scripted", "--context-length", "64"]).await;
    for (older, path) in [(aliases::MODEL_INFO, "/model_info"), (aliases::SERVER_INFO, "/server_info")] {
        let (mut old, mut new) = (get(&server, Method::GET, older).await, get(&server, Method::GET, path).await);
        for answer in [&mut old.1, &mut new.1] {
            answer["internal_states"].take(); // as of now
        }
        assert_eq!(old, new);
    }
    let (_, info) = get(&server, Method::GET, "/model_info").await;
    assert_eq!((&info["is_generation"], &info["vocab_size"]), (&json!(true), &json!(257)));
    assert_eq!((&info["context_length"], &info["model_path"]), (&json!(64), &json!("scripted")));
    let (_, info) = get(&server, Method::GET, "/server_info").await;
    assert_eq!((&info["status"], &info["max_running_requests"]), (&json!("up"), &json!(32)));
    let counted = server.metric_with("radiosonde_http_requests_total", &[("route", "/model_info")]).await;
    assert_eq!(counted, 3.0, "a path is counted under its first name");
}

#[tokio::test]
async fn nothing_is_known_of_a_model_that_is_not_loaded() {
    let server = Server::start_unready(&["--model", "scripted:load_ms=60000"], &[]).await;
    for path in ["/model_info", "/server_info", "/v1/loads", "/v1/models"] {
        assert_eq!(get(&server, Method::GET, path).await.0, 503, "{path}");
    }
    assert_eq!(get(&server, Method::GET, "/").await.0, 200);
}

#[tokio::test]
async fn loads_tell_what_runs_in_both_forms() {
    let args = ["--model", "scripted:step_ms=20", "--max-running-requests", "1", "--max-total-tokens", "4096"];
    let server = Server::start(&args).await;
    let busy = json!({"text": "a", "sampling_params": {"max_new_tokens": 3000, "ignore_eos": true}}).to_string();
    let loaded = async {
        crate::support::eventually(std::time::Duration::from_secs(10), || async {
            let (_, loads) = get(&server, Method::GET, "/v1/loads").await;
            let load = &loads["loads"][0];
            load["num_running_reqs"] == 1 && load["num_waiting_reqs"] == 1
        })
        .await;
        let (status, loads) = get(&server, Method::GET, "/v1/loads?include=core,queues&format=json&dp_rank=0").await;
        let load = &loads["loads"][0];
        assert_eq!((status, &loads["dp_rank_count"], &load["dp_rank"]), (200, &json!(1), &json!(0)));
        assert_eq!((&load["num_total_reqs"], &load["utilization"]), (&json!(2), &json!(1.0)));
        assert_eq!((&load["max_total_num_tokens"], &load["queues"]["waiting"]), (&json!(4096), &json!(1)));
        assert_eq!((&loads["aggregate"]["total_reqs"], load.get("memory")), (&json!(2), None));
        let used = load["num_used_tokens"].as_f64().unwrap();
        assert_eq!(load["token_usage"].as_f64().unwrap(), used / 4096.0);
        let page = server.client().get(server.url("/v1/loads?format=prometheus")).send().await.unwrap();
        assert!(page.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
        let page = page.text().await.unwrap();
        assert!(page.contains("\nsglang_num_waiting_reqs{dp_rank=\"0\"} 1\n"), "{page}");
    };
    tokio::select! {
        () = loaded => {}
        _ = async { tokio::join!(send(&server, "/generate", busy.clone()), send(&server, "/generate", busy.clone())) } =>
            panic!("both run on"),
    }
    for (query, param) in [("format=xml", "format"), ("dp_rank=1", "dp_rank"), ("include=core,nosuch", "include")] {
        let (status, answer) = get(&server, Method::GET, &format!("/v1/loads?{query}")).await;
        assert_eq!((status, &error(&answer)["param"]), (400, &json!(param)));
    }
}

#[tokio::test]
async fn texts_become_tokens_and_tokens_texts() {
    let server = Server::start_default().await;
    for path in ["/v1/tokenize", aliases::TOKENIZE] {
        let one = ok(&server, path, json!({"model": "default", "prompt": "Hello<|im_end|>"})).await;
        let tokens = one["tokens"].as_array().unwrap();
        assert_eq!((&one["count"], tokens.last()), (&json!(tokens.len()), Some(&json!(2))));
        assert!(one["max_model_len"].as_u64().unwrap() >= 2048);
        let several = ok(&server, path, json!({"prompt": ["Hello<|im_end|>", "", "Grüße 🙂"]})).await;
        assert_eq!((&several["tokens"][0], &several["count"][1]), (&one["tokens"], &json!(0)));
        for back in ["/v1/detokenize", aliases::DETOKENIZE] {
            let texts = ok(&server, back, json!({"tokens": several["tokens"]})).await;
            assert_eq!(texts["text"], json!(["Hello", "", "Grüße 🙂"]));
            let text = ok(&server, back, json!({"tokens": tokens, "skip_special_tokens": false})).await;
            assert_eq!(text["text"], "Hello<|im_end|>");
        }
    }
    let messages = json!([{"role": "user", "content": "a <|im_end|>"}]);
    let chat = ok(&server, "/v1/tokenize", json!({"messages": messages})).await;
    let asked = json!({"model": "default", "messages": messages, "max_tokens": 1});
    let answer = ok(&server, "/v1/chat/completions", asked).await;
    assert_eq!(chat["count"], answer["usage"]["prompt_tokens"], "the tokens are those of the chat");
    for (path, wrong, param) in [
        ("/v1/tokenize", json!({}), "prompt"),
        ("/v1/tokenize", json!({"prompt": "a", "messages": messages}), "prompt"),
        ("/v1/tokenize", json!({"prompt": 1}), "prompt"),
        ("/v1/detokenize", json!({}), "tokens"),
        ("/v1/detokenize", json!({"tokens": [-1]}), "tokens"),
        ("/v1/detokenize", json!({"tokens": [[1], [1 << 30]]}), "tokens"),
    ] {
        let (status, error) = refused(&server, path, wrong.clone()).await;
        assert_eq!((status, &error["param"]), (400, &json!(param)), "{path} {wrong}");
    }
    assert_eq!(post(&server, "/v1/tokenize", json!({"model": "nope", "prompt": "a"})).await.0, 404);
}

#[tokio::test]
async fn tools_that_cannot_be_called_are_refused_by_name() {
    let server = Server::start_default().await;
    let ask = |fields: Value| {
        let mut body = json!({"model": "default", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
    for (fields, param) in [
        (json!({"tools": tools}), "tools"),
        (json!({"tools": tools, "tool_choice": "auto", "parallel_tool_calls": true}), "tools"),
        (json!({"functions": [{"name": "f"}]}), "functions"),
        (json!({"tool_choice": "required"}), "tool_choice"),
    ] {
        let (status, error) = refused(&server, "/v1/chat/completions", ask(fields.clone())).await;
        assert_eq!((status, &error["param"]), (400, &json!(param)), "{fields}");
    }
    ok(&server, "/v1/chat/completions", ask(json!({"tools": tools, "tool_choice": "none"}))).await;
    ok(&server, "/v1/chat/completions", ask(json!({"tools": [], "tool_choice": "auto", "user": "u"}))).await;
}
