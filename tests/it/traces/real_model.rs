//! The same pictures with the real model, so that they are not only those of the scripted one.

use expect_test::expect;
use radiosonde::telemetry::OtlpProtocol;
use serde_json::json;

use super::Traced;
use crate::support::real_model;

async fn start() -> Traced {
    let model = real_model().await;
    Traced::start(
        OtlpProtocol::Grpc,
        &["--model", model.to_str().unwrap(), "--max-step-time=0", "--chunked-prefill-size=64"],
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_probe() {
    let traced = start().await;
    assert_eq!(traced.probe("/health_generate").await.status, 200);
    traced
        .check(
            10,
            &expect![[r#"
                GET /health_generate probe.branch=idle probe.outcome=ok probe.evidence=own_answer
                  tokenizer_manager.submit
                  ipc.to_engine
                  scheduler.inbox
                  scheduler.process_input_requests probe.branch=idle
                  scheduler.run_batch
                    model_runner.forward scheduler.step.phase=prefill scheduler.step.tokens=1
                  ipc.to_frontend
                  detokenizer
                  tokenizer_manager.receive
            "#]],
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_probe_that_a_long_prefill_holds_up() {
    let traced = start().await;
    let busy = traced.keep_busy("long-prefill", 4000, 1).await;
    let answer = traced.probe("/health_generate?evidence=own").await;
    assert_eq!((answer.status, &answer.body["waited_for"]), (200, &json!(["long-prefill"])), "{}", answer.body);
    traced
        .check(
            8,
            &expect![[r#"
                GET /health_generate probe.branch=busy probe.outcome=ok probe.evidence=own_answer
                  tokenizer_manager.submit
                  ipc.to_engine
                  scheduler.inbox
                  scheduler.process_input_requests probe.branch=busy
                  scheduler.return_health_check_ipcs links=1
                  ipc.to_frontend
                  tokenizer_manager.receive
            "#]],
        )
        .await;
    busy.await.unwrap();
    traced.assert_linked("long-prefill").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat() {
    let traced = start().await;
    let body = json!({
        "messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 4, "ignore_eos": true, "stream": true,
    });
    let answer = traced.post("/v1/chat/completions", &body).send().await.unwrap();
    assert!(answer.text().await.unwrap().ends_with("data: [DONE]\n\n"));
    traced
        .check(
            12,
            &expect![[r#"
                POST /v1/chat/completions request.outcome=length request.retractions=0
                  tokenizer_manager.submit
                  ipc.to_engine
                  scheduler.inbox
                  scheduler.process_input_requests
                  scheduler.waiting_queue
                  scheduler.prefill prefill.chunks=1 [prefill.chunk]
                  scheduler.decode [first_token]
                  http.stream
                  ipc.to_frontend
                  detokenizer
                  tokenizer_manager.receive
            "#]],
        )
        .await;
    assert_eq!(traced.root().await.attributes["gen_ai.operation.name"], "chat");
}
