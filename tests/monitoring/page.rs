//! The way of a page with real tools: a step sticks, Prometheus and Alertmanager as shipped call a webhook, the fault ends.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::it::support::{Server, eventually};
use crate::paging::Stack;
use crate::root;

/// What is promised at default settings, from the fault to the page.
const PROMISED: Duration = Duration::from_secs(60);

/// Whatever is to happen happens within this time, or never.
const LONG: Duration = Duration::from_secs(180);

const MODEL: [&str; 2] = ["--enable-drills", "--model=scripted:step_ms=20"];

async fn post_fault(server: &Server, fault: &Value) {
    let answer = server.client().post(server.url("/debug/fault")).json(fault).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
}

/// Who was woken up can work with nothing but this.
fn check_page(page: &Value, server: &Server) {
    let instance = server.admin_url("").trim_start_matches("http://").to_owned();
    let want = json!({
        "alertname": "RadiosondeStepStuck", "severity": "critical", "job": "radiosonde", "instance": instance,
        "hop": "model_runner.forward", "cause": "step_stuck",
    });
    assert_eq!(page["labels"], want);
    let annotation = |name: &str| page["annotations"][name].as_str().unwrap_or_default().to_owned();
    let runbook = annotation("runbook_url");
    let runbook = runbook.split_once("/blob/main/").map(|(_, path)| path).unwrap_or_default();
    assert!(root().join(runbook).is_file(), "{runbook:?} is no file");
    let dashboard = annotation("dashboard_url");
    assert_eq!(dashboard, format!("http://localhost:3000/d/radiosonde-probe-path?var-instance={instance}"));
    for part in [&instance, "model_runner.forward", "step_stuck"] {
        assert!(annotation("description").contains(part), "{part} is not in {}", annotation("description"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_step_pages_and_the_page_ends_with_it() {
    let server =
        Server::start(&[&MODEL[..], &["--health-check-timeout=2s", "--self-probe-interval=1s"]].concat()).await;
    // An alert is held for a while, so that a fault that comes and goes is one page. The test need not wait so long.
    let held = [("keep_firing_for: 2m", "keep_firing_for: 5s"), ("keep_firing_for: 1m", "keep_firing_for: 1s")];
    let mut stack = Stack::start(&server, "1s", &held).await;
    stack.wait_scraped().await;
    post_fault(&server, &json!({"fault": "slow_steps", "ms": 600_000})).await;
    let page = stack.next_alert("pager", "firing", LONG).await;
    check_page(&page, &server);

    let answer = server.client().delete(server.url("/debug/fault")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let health = server.url("/health");
    eventually(LONG, async || server.client().get(&health).send().await.is_ok_and(|answer| answer.status() == 200))
        .await;
    let end = stack.next_alert("pager", "resolved", LONG).await;
    assert_eq!(end["labels"], page["labels"]);
    assert_eq!(stack.named("pager"), ["RadiosondeStepStuck"], "the cause was paged, and no symptom beside or after it");
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "the measured time is a result")]
async fn at_default_settings_a_page_comes_within_a_minute() {
    let server = Server::start(&MODEL).await;
    let mut stack = Stack::start(&server, "5s", &[]).await;
    stack.wait_scraped().await;
    post_fault(&server, &json!({"fault": "slow_steps", "ms": 600_000})).await;
    let fault = Instant::now();
    let page = stack.next_alert("pager", "firing", LONG).await;
    let took = fault.elapsed();
    check_page(&page, &server);
    eprintln!("from fault to page: {:.1} s", took.as_secs_f64());
    assert!(took <= PROMISED, "the page took {took:?}");
}
