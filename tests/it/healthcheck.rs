//! `radiosonde healthcheck`: one line and an exit code.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use futures::future::join_all;

use crate::support::{Server, eventually};

const MOMENT: Duration = Duration::from_secs(10);

/// Exit code and what was said.
async fn healthcheck(args: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_radiosonde"));
    command.arg("healthcheck").args(args).envs(env.iter().copied()).stdin(Stdio::null());
    let ended = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8(said).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_tells_health_in_one_line() {
    let server = Server::start(&["--model=scripted", "--health-check-timeout=1s"]).await;
    let url = format!("--url={}", server.url("/health"));
    let well = (Some(0), "healthy: the probe's own answer was received\n".to_owned());
    assert_eq!(healthcheck(&[&url], &[]).await, well);
    let port = server.url("").rsplit(':').next().unwrap().to_owned();
    assert_eq!(healthcheck(&[], &[("RADIOSONDE_PORT", &port)]).await, well);
    assert_eq!(healthcheck(&["--url", &server.admin_url("/readyz")], &[]).await.0, Some(0));

    server.stop_engine().await;
    let (code, line) = healthcheck(&[&url], &[("http_proxy", "http://127.0.0.1:1")]).await;
    assert_eq!(code, Some(1));
    assert!(line.starts_with("unhealthy (503): engine_frozen at ipc.to_engine: "), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    let (code, line) = healthcheck(&["--url", &server.admin_url("/readyz")], &[]).await;
    assert!(code == Some(1) && line.starts_with("unhealthy (503): "), "{line}");
    let (code, line) = healthcheck(&["--url", &server.url("/nothing")], &[]).await;
    assert!(code == Some(1) && line.starts_with("unhealthy (404): there is nothing at /nothing"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_does_not_wait_for_ever() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/health", silent.local_addr().unwrap());
    let (code, line) = healthcheck(&["--url", &url, "--timeout=200ms"], &[]).await;
    assert_eq!((code, line.as_str()), (Some(1), format!("unhealthy: no answer from {url} within 200ms\n").as_str()));
    drop(silent);
    let (code, line) = healthcheck(&["--url", &url], &[]).await;
    assert!(code == Some(1) && line.starts_with(&format!("unreachable: {url}: ")), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_arguments_are_no_verdict() {
    for args in [&["--url=not-a-url"][..], &["--timeout=soon"], &["--timeout=0"], &["--no-such-flag"]] {
        assert_eq!(healthcheck(args, &[]).await.0, Some(2), "{args:?}");
    }
    assert_eq!(healthcheck(&[], &[("RADIOSONDE_PORT", "x")]).await.0, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_has_no_children_but_its_engine() {
    let server = Server::start(&["--model=scripted"]).await;
    for _ in 0..50 {
        let ten = (0..10).map(async |_| healthcheck(&["--url", &server.url("/health")], &[]).await.0);
        assert_eq!(join_all(ten).await, [Some(0); 10]);
    }
    let children = || {
        let path = format!("/proc/{0}/task/{0}/children", server.pid());
        std::fs::read_to_string(path).unwrap().split_whitespace().count()
    };
    eventually(MOMENT, async || children() <= 1).await;
}
