//! Two processes: how they begin, how they end, and that nothing is left of them.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Server, eventually, in_background, is_running, real_model};

const MOMENT: Duration = Duration::from_secs(10);

fn radiosonde(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_radiosonde"));
    command.args(args).stdin(Stdio::null());
    command
}

/// The path on which the engine of `server` listens, as the kernel has it.
fn engine_socket(server: &Server) -> PathBuf {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let inode = std::fs::read_link(format!("/proc/{}/fd/0", server.engine_pid())).unwrap();
    let inode = inode.to_str().unwrap().trim_start_matches("socket:[").trim_end_matches(']').to_owned();
    let line = sockets.lines().find(|line| line.split_whitespace().nth(6) == Some(&inode)).unwrap();
    PathBuf::from(line.split_whitespace().nth(7).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_frontend_takes_its_engine_along() {
    for stopped in [false, true] {
        let mut server = Server::start(&["--model=scripted:step_ms=1000"]).await;
        let (engine, socket) = (server.engine_pid(), engine_socket(&server));
        assert!(socket.ends_with("engine.sock") && !socket.parent().unwrap().exists(), "{socket:?}");
        if stopped {
            server.stop_engine().await;
        }
        server.signal(Signal::KILL);
        server.wait_exit(MOMENT).await;
        eventually(MOMENT, async || !is_running(engine)).await;
    }
}

#[test]
fn a_taken_port_is_known_before_anything_is_loaded() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let began = Instant::now();
    let ended = radiosonde(&["--port", &port, "--model=scripted:load_ms=60000"]).output().unwrap();
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1));
    assert!(complaint.contains(&format!("127.0.0.1:{port}: Address already in use")), "{complaint}");
    assert_eq!(complaint.matches("in use").count(), 1, "{complaint}");
    assert!(began.elapsed() < Duration::from_secs(2), "the model would take a minute");
}

#[tokio::test]
async fn a_model_that_cannot_be_loaded_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.gguf");
    let whole = std::fs::read(real_model().await).unwrap();
    std::fs::write(&broken, &whole[..whole.len() - 1000]).unwrap();
    let broken = broken.to_str().unwrap();
    let template = folder.path().join("template.gguf");
    let begins = whole.windows(7).position(|bytes| bytes == b"{% for ").unwrap();
    std::fs::write(&template, [&whole[..begins], b"{% fur ", &whole[begins + 7..]].concat()).unwrap();
    let architecture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpora/gguf/architecture");
    let missing = folder.path().join("missing.gguf");
    for (model, wants) in [
        (broken, [broken, "bytes"]),
        (missing.to_str().unwrap(), ["missing.gguf", "scripted"]),
        (template.to_str().unwrap(), ["chat template", "fur"]),
        (architecture.to_str().unwrap(), ["nosucharch", "llama"]),
        ("scripted:nosuch=1", ["nosuch", "step_ms"]),
    ] {
        let ended = radiosonde(&["--port=0", "--model", model]).output().unwrap();
        let complaint = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{model}: {complaint}");
        assert!(wants.iter().all(|want| complaint.contains(want)), "{model}: {complaint}");
        assert!(!complaint.contains("panicked"), "{complaint}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_a_stream_end_and_refuses_new_work() {
    let mut server = Server::start(&["--model=scripted:step_ms=30"]).await;
    let body = json!({
        "model": "default", "prompt": "a", "max_tokens": 50, "ignore_eos": true, "stream": true,
        "stream_options": {"include_usage": true},
    });
    let stream = server.client().post(server.url("/v1/completions")).json(&body).send().await.unwrap();
    server.signal(Signal::TERM);
    eventually(Duration::from_secs(1), async || {
        server.client().get(server.url("/health")).send().await.unwrap().status().as_u16() == 503
    })
    .await;
    let refused = server.client().post(server.url("/v1/completions")).json(&body).send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(server.metric_with("radiosonde_server_status", &[("status", "draining")]).await, 1.0);
    let text = stream.text().await.unwrap();
    assert!(text.contains("\"completion_tokens\":50") && text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(server.wait_exit(MOMENT).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_drain_has_a_limit() {
    let mut server = Server::start(&["--model=scripted:step_ms=100", "--drain-timeout=500ms"]).await;
    let body = json!({"text": "a", "stream": true, "sampling_params": {"max_new_tokens": 4000, "ignore_eos": true}});
    let _stream = server.client().post(server.url("/generate")).json(&body).send().await.unwrap();
    server.signal(Signal::TERM);
    assert_eq!(server.wait_exit(MOMENT).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_a_start() {
    let mut server = Server::start_unready(&["--model=scripted:load_ms=60000"], &[]).await;
    eventually(MOMENT, async || server.log().contains("frontend connected")).await;
    let engine = server.engine_pid();
    server.signal(Signal::TERM);
    assert_eq!(server.wait_exit(MOMENT).await.code(), Some(0));
    assert!(!is_running(engine));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_frontends_share_an_engine_and_each_gets_its_own_answers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("private/engine.sock");
    let socket = path.to_str().unwrap();
    let mut engine = radiosonde(&["engine", "--listen", socket, "--model=scripted:step_ms=2"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually(MOMENT, async || path.exists()).await;
    assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    let mut frontends = Vec::new();
    for _ in 0..2 {
        let mut server =
            Server::spawn(radiosonde(&["frontend", "--engine", socket, "--port=0", "--log-format=json"])).await;
        server.wait_healthy().await;
        frontends.push(server);
    }
    for i in 0..40 {
        let server = &frontends[i % 2];
        let answer = server.client().get(server.url("/health_generate?evidence=own")).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
    }
    let body = json!({
        "rid": "same", "input_ids": [65],
        "sampling_params": {"max_new_tokens": 20, "temperature": 0, "ignore_eos": true},
    });
    let generate = |server: &Server| server.client().post(server.url("/generate")).json(&body).send();
    let (a, b) = tokio::join!(generate(&frontends[0]), generate(&frontends[1]));
    let (a, b): (serde_json::Value, serde_json::Value) =
        (a.unwrap().json().await.unwrap(), b.unwrap().json().await.unwrap());
    assert_eq!(a["output_ids"].as_array().unwrap().len(), 20, "{a}");
    assert_eq!(a["text"], b["text"]);
    for server in &frontends {
        assert_eq!(server.metric("radiosonde_num_requests_total").await, 1.0);
    }

    let long = json!({"input_ids": [65], "sampling_params": {"max_new_tokens": 8000, "ignore_eos": true}});
    let request = frontends[0].client().post(frontends[0].url("/generate")).json(&long).send();
    let lost = in_background(request);
    eventually(MOMENT, async || frontends[1].metric("radiosonde_num_running_reqs").await == 1.0).await;
    frontends[0].signal(Signal::KILL);
    eventually(MOMENT, async || frontends[1].metric("radiosonde_num_running_reqs").await == 0.0).await;
    assert_eq!(frontends[1].metric("radiosonde_kv_used_tokens").await, 0.0);
    assert!(lost.await.unwrap().is_err());
    engine.kill().unwrap();
    engine.wait().unwrap();
    assert_eq!(frontends[1].wait_exit(MOMENT).await.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_frees_its_place() {
    let server = Server::start(&["--model=scripted:step_ms=100", "--max-running-requests=1"]).await;
    for stream in [false, true] {
        let body = json!({
            "text": "a", "stream": stream, "sampling_params": {"max_new_tokens": 4000, "ignore_eos": true},
        });
        let aborted = server.metric("radiosonde_num_aborted_requests_total").await;
        let requests = (0..2).map(|_| server.client().post(server.url("/generate")).json(&body).send());
        let both = in_background(futures::future::join_all(requests));
        eventually(MOMENT, async || {
            let waits = server.metric("radiosonde_num_queue_reqs").await;
            (server.metric("radiosonde_num_running_reqs").await, waits) == (1.0, 1.0)
        })
        .await;
        both.abort();
        assert!(both.await.is_err() || stream);
        eventually(MOMENT, async || {
            let waits = server.metric("radiosonde_num_queue_reqs").await;
            let used = server.metric("radiosonde_kv_used_tokens").await;
            (server.metric("radiosonde_num_running_reqs").await, waits, used) == (0.0, 0.0, 0.0)
        })
        .await;
        assert_eq!(server.metric("radiosonde_num_aborted_requests_total").await, aborted + 2.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_uses_no_cpu() {
    let server = Server::start_default().await;
    let ticks = |pid: u32| -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let both = || ticks(server.pid()) + ticks(server.engine_pid());
    let before = both();
    tokio::time::sleep(Duration::from_secs(5)).await; // what is measured is the use of time itself
    let used = both() - before;
    assert!(used <= 5, "{used} hundredths of a second of CPU in 5 s; 1 % of a core would be 5");
}
