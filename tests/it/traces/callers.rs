//! What the root says of who asked, and for what.

use expect_test::expect;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{MOMENT, Traced, tokens};
use crate::support::collector::Seen;
use crate::support::eventually;

/// The attributes of `root` that begin with one of `prefixes`, one a line.
fn attributes(root: &Seen, prefixes: &[&str]) -> String {
    let named = root.attributes.iter().filter(|(key, _)| prefixes.iter().any(|prefix| key.starts_with(prefix)));
    named.map(|(key, value)| format!("{key}={value}\n")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_and_its_parameters() {
    let traced = Traced::scripted("step_ms=1", &["--served-model-name=sonde"]).await;
    let body = json!({
        "rid": "r1", "model": "default", "prompt": "abc", "max_tokens": 5, "temperature": 0.7, "top_p": 0.9, "seed": 42,
        "ignore_eos": true,
    });
    assert_eq!(traced.post("/v1/completions", &body).send().await.unwrap().status().as_u16(), 200);
    let mut root = traced.root().await;
    let first = root.attributes.remove("gen_ai.response.time_to_first_chunk").unwrap();
    assert!(first.parse::<f64>().unwrap() > 0.0, "{first}");
    expect![[r#"
        gen_ai.operation.name=text_completion
        gen_ai.provider.name=radiosonde
        gen_ai.request.max_tokens=5
        gen_ai.request.model=sonde
        gen_ai.request.seed=42
        gen_ai.request.stream=false
        gen_ai.request.temperature=0.7
        gen_ai.request.top_p=0.9
        gen_ai.response.finish_reasons=[length]
        gen_ai.response.id=cmpl-r1
        gen_ai.response.model=sonde
        gen_ai.usage.cache_read.input_tokens=0
        gen_ai.usage.input_tokens=3
        gen_ai.usage.output_tokens=5
    "#]]
    .assert_eq(&attributes(&root, &["gen_ai."]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_over_http() {
    let traced = Traced::scripted("step_ms=1", &[]).await;
    let agent = "x".repeat(600);
    let request = traced.post("/generate", &tokens(1, 1)).header("user-agent", &agent);
    assert_eq!(request.send().await.unwrap().status().as_u16(), 200);
    let mut root = traced.root().await;
    let port = root.attributes.remove("server.port").unwrap();
    assert!(traced.server.url("/").ends_with(&format!(":{port}/")));
    assert_eq!(root.attributes.remove("user_agent.original").as_deref(), Some(&agent[..512]));
    expect![[r#"
        client.address=127.0.0.1
        http.request.method=POST
        http.response.status_code=200
        http.route=/generate
        network.protocol.version=1.1
        server.address=127.0.0.1
        url.path=/generate
        url.scheme=http
    "#]]
    .assert_eq(&attributes(&root, &["client.", "server.", "network.", "user_agent.", "url.", "http.", "error."]));
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_of_probers_are_marked_as_such() {
    let traced = Traced::scripted("step_ms=1", &["--self-probe-interval=300ms"]).await;
    let synthetic = "user_agent.synthetic.type";
    let kubelet = traced.get("/health").header("user-agent", "kube-probe/1.34");
    assert_eq!(kubelet.send().await.unwrap().status().as_u16(), 200);
    assert_eq!(traced.root().await.attributes[synthetic], "test");
    let is_own = |seen: &Seen| seen.span.name == "self_probe";
    let spans = traced.collector.wait(MOMENT, |seen| seen.iter().any(is_own)).await;
    assert_eq!(spans.iter().find(|seen| is_own(seen)).unwrap().attributes[synthetic], "test");
    let by_hand = |seen: &Seen| seen.span.name == "GET /health" && !seen.attributes.contains_key("user_agent.original");
    assert!(spans.iter().filter(|seen| by_hand(seen)).all(|seen| !seen.attributes.contains_key(synthetic)));
}

#[tokio::test(flavor = "multi_thread")]
async fn how_much_is_traced_is_changed_while_the_server_runs() {
    let traced = Traced::scripted("", &["--trace-ratio=0", "--trace-probes=failures"]).await;
    let set = async |query: &str| {
        let url = traced.server.url(&format!("/set_trace_level{query}"));
        let answer = traced.server.client().get(url).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let request = async |rid: &str, caller: Option<&str>| {
        let body = json!({"text": "a", "rid": rid, "sampling_params": {"max_new_tokens": 1}});
        let request = traced.untraced("/generate", &body);
        let request = caller.map_or(request.try_clone().unwrap(), |parent| request.header("traceparent", parent));
        assert_eq!(request.send().await.unwrap().status(), 200, "{rid}");
    };
    request("by the flags", None).await;
    assert_eq!(set("?level=3").await, (200, json!({"level": 3, "exported": true})));
    eventually(MOMENT, async || traced.server.log().contains("\"trace_level\":3")).await;
    request("all", None).await;
    assert_eq!(set("?level=1").await.0, 200);
    request("by the flags again", None).await;
    for wrong in ["", "?level=", "?level=4", "?level=-1", "?level=1.5", "?level=off"] {
        let (status, answer) = set(wrong).await;
        assert_eq!((status, &answer["error"]["param"]), (400, &json!("level")), "{wrong}");
    }
    const SAMPLED: &str = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-2222222222222222-01";
    request("a caller's", Some(SAMPLED)).await;
    assert_eq!(set("?level=0").await.0, 200);
    request("off", None).await;
    request("a caller's, off", Some(SAMPLED)).await;
    traced.server.stop_engine().await;
    assert_eq!(traced.probe("/health?timeout=300ms").await.status, 503);
    traced.root().await; // it failed
    let rids = traced.collector.spans().into_iter().filter_map(|seen| seen.attributes.get("request.rid").cloned());
    let mut rids: Vec<String> = rids.collect();
    rids.sort();
    rids.dedup();
    assert_eq!(rids, ["a caller's", "all"]);
    traced.server.signal_engine(Signal::CONT);
}
