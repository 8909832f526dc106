//! The harness itself, tried on a stand-in for the server.

use std::os::unix::process::ExitStatusExt;

use super::*;

/// Listens as the server does, has a child named `engine`, and is healthy from the third question on.
const STAND_IN: &str = r##"
import http.server, signal, subprocess, sys
if sys.argv[1:] == ["engine"]:
    signal.pause()
engine = subprocess.Popen([sys.executable, "-c", open("/proc/self/cmdline").read().split("\0")[2], "engine"])
asked = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global asked
        asked += 1
        body = b"# TYPE t counter\nt{a=\"x\"} 1\nt{a=\"y\"} %d\n" % asked
        self.send_response(200 if asked > 2 else 503)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(f"radiosonde listening on http://127.0.0.1:{server.server_port}", flush=True)
print(f"radiosonde admin on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"##;

fn stand_in(program: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", program]);
    command
}

#[tokio::test]
async fn a_server_is_awaited_asked_and_signalled() {
    let mut server = Server::spawn(stand_in(STAND_IN)).await;
    server.wait_healthy().await;
    assert_eq!(server.metric_with("t", &[("a", "x")]).await, 1.0);
    assert_eq!(server.metric("t").await, 6.0, "three questions for health, one above, and this");
    assert!(server.log().contains("GET /health"), "{}", server.log());

    let engine = server.engine_pid();
    server.signal_engine(Signal::KILL);
    eventually(Duration::from_secs(5), async || !is_running(engine)).await;
    server.signal(Signal::TERM);
    assert_eq!(server.wait_exit(Duration::from_secs(5)).await.signal(), Some(15));
}

#[tokio::test]
async fn nothing_outlives_the_server() {
    let server = Server::spawn(stand_in(STAND_IN)).await;
    let (pid, engine) = (server.pid(), server.engine_pid());
    drop(server);
    eventually(Duration::from_secs(5), async || !is_running(pid) && !is_running(engine)).await;
}

#[tokio::test]
#[should_panic(expected = "no model, no server")]
async fn a_server_that_ends_shows_its_log() {
    Server::spawn(stand_in("import sys; sys.exit('no model, no server')")).await;
}

#[tokio::test]
#[should_panic(expected = "did not come true")]
async fn conditions_have_a_limit() {
    eventually(Duration::from_millis(30), async || false).await;
}
