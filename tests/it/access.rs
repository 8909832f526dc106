//! Keys, https, other origins, and requests that take too long.

use std::fs;
use std::time::{Duration, Instant};

use radiosonde::http_server::endpoints::ENDPOINTS;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::support::{Server, eventually};

const MOMENT: Duration = Duration::from_secs(20);

/// Status of a request with the key.
async fn status(server: &Server, method: Method, url: &str, key: Option<&str>) -> u16 {
    let request = server.client().request(method.clone(), url);
    let request = if method == Method::GET { request } else { request.json(&json!({"text": "a", "rid": "nosuch"})) };
    let request = match key {
        Some(key) => request.bearer_auth(key),
        None => request,
    };
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn without_a_key_only_health_is_open() {
    let server = Server::start_with(&["--model=scripted"], &[("RADIOSONDE_API_KEY", "k")]).await;
    for path in ["/health", "/health_generate", "/metrics", "/readyz", "/debug/probes"] {
        assert_eq!(status(&server, Method::GET, &server.url(path), None).await, 200, "{path}");
        assert_eq!(status(&server, Method::GET, &server.admin_url(path), None).await, 200, "{path}");
    }
    for (method, path) in [
        (Method::POST, "/generate"),
        (Method::POST, "/v1/completions"),
        (Method::POST, "/v1/chat/completions"),
        (Method::GET, "/v1/models"),
        (Method::GET, "/v1/models/default"),
        (Method::GET, "/server_info"),
        (Method::GET, "/get_model_info"),
        (Method::POST, "/abort_request"),
        (Method::GET, "/nosuch"),
        (Method::GET, "/flush_cach"),
    ] {
        for key in [None, Some("x"), Some("kk"), Some("K")] {
            assert_eq!(status(&server, method.clone(), &server.url(path), key).await, 401, "{path} {key:?}");
        }
        assert_ne!(status(&server, method, &server.url(path), Some("k")).await, 401, "{path}");
    }
    let refused = server.client().post(server.url("/generate")).json(&json!({"text": "a"})).send().await.unwrap();
    assert_eq!(refused.headers()["www-authenticate"], "Bearer");
    let error: Value = refused.json().await.unwrap();
    assert_eq!((&error["error"]["code"], &error["error"]["param"]), (&json!("invalid_api_key"), &Value::Null));
    assert!(!server.log().contains("\"k\""), "the key is in no line");
}

#[tokio::test]
async fn the_admin_key_opens_what_changes_the_server() {
    let server = Server::start(&["--model=scripted", "--api-key=k", "--admin-api-key=a", "--enable-drills"]).await;
    for (method, path) in [
        (Method::POST, "/abort_request"),
        (Method::GET, "/debug/fault"),
        (Method::POST, "/continue_generation"),
        (Method::GET, "/set_trace_level?level=1"),
    ] {
        for (key, want) in [(None, 401), (Some("k"), 401), (Some("a"), 200)] {
            assert_eq!(status(&server, method.clone(), &server.url(path), key).await, want, "{path} {key:?}");
        }
    }
    for (key, want) in [(None, 401), (Some("k"), 200), (Some("a"), 200)] {
        assert_eq!(status(&server, Method::POST, &server.url("/generate"), key).await, want, "{key:?}");
    }
    assert_eq!(status(&server, Method::GET, &server.admin_url("/debug/fault"), None).await, 401);

    let alone = Server::start(&["--model=scripted", "--admin-api-key=a"]).await;
    assert_eq!(status(&alone, Method::POST, &alone.url("/generate"), None).await, 200);
    assert_eq!(status(&alone, Method::POST, &alone.url("/abort_request"), None).await, 401);
}

#[tokio::test]
async fn health_is_guarded_if_somebody_says_so() {
    let mut server = Server::start_unready(&["--model=scripted", "--api-key=k", "--guard-health"], &[]).await;
    eventually(MOMENT, async || status(&server, Method::GET, &server.url("/health"), Some("k")).await == 200).await;
    for endpoint in ENDPOINTS.iter().filter(|endpoint| endpoint.methods.contains(&"GET")) {
        let path = endpoint.path.replace("{*model}", "x").replace("{probe_id}", "x");
        assert_eq!(status(&server, Method::GET, &server.url(&path), None).await, 401, "{path}");
    }
    assert_eq!(status(&server, Method::GET, &server.admin_url("/metrics"), None).await, 401);
    assert_eq!(status(&server, Method::GET, &server.admin_url("/metrics"), Some("k")).await, 200);
    let healthcheck = |env: Vec<(&'static str, &'static str)>| {
        let url = server.url("/health");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_radiosonde"));
        command.args(["healthcheck", "--timeout=20s", "--url", &url]).envs(env).output().unwrap().status.code()
    };
    assert_eq!(healthcheck(vec![]), Some(1));
    assert_eq!(healthcheck(vec![("RADIOSONDE_API_KEY", "k")]), Some(0));
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.wait_exit(MOMENT).await.code(), Some(0));
}

fn written(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path.into_os_string().into_string().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn https_is_served_with_the_given_certificate() {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let certificate = written(&folder, "cert.pem", &cert.pem());
    let key = written(&folder, "key.pem", &signing_key.serialize_pem());
    let args = ["--model=scripted:step_ms=50", "--ssl-certfile", &certificate, "--ssl-keyfile", &key];
    let mut server = Server::start_unready(&args, &[]).await;
    assert!(server.url("/").starts_with("https://"), "{}", server.url("/"));
    assert!(server.admin_url("/").starts_with("http://"));
    eventually(MOMENT, async || status(&server, Method::GET, &server.admin_url("/health"), None).await == 200).await;

    let authority = Certificate::from_pem(cert.pem().as_bytes()).unwrap();
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[authority])).build();
    let trusting = Agent::new_with_config(Agent::config_builder().tls_config(tls).build());
    let (url, health) = (server.url("/generate"), server.url("/health"));
    let asked = tokio::task::spawn_blocking({
        let trusting = trusting.clone();
        move || (trusting.get(&health).call().is_ok(), Agent::new_with_defaults().get(&health).call().is_ok())
    });
    assert_eq!(asked.await.unwrap(), (true, false), "whoever does not know the certificate does not speak to it");
    let body = json!({"text": "a", "stream": true, "sampling_params": {"max_new_tokens": 40, "ignore_eos": true}});
    let stream = tokio::task::spawn_blocking(move || {
        let mut answer = trusting.post(&url).content_type("application/json").send(body.to_string()).unwrap();
        answer.body_mut().read_to_string().unwrap()
    });
    eventually(MOMENT, async || {
        let page = server.client().get(server.admin_url("/metrics")).send().await.unwrap().text().await.unwrap();
        crate::support::metrics::sum(&page, "radiosonde_num_running_reqs", &[]) == 1.0
    })
    .await;
    server.signal(rustix::process::Signal::TERM);
    let text = stream.await.unwrap();
    assert!(text.ends_with("data: [DONE]\n\n") && !text.contains("\"error\""), "the drain lets it end: {text}");
    assert_eq!(server.wait_exit(MOMENT).await.code(), Some(0));
}

#[tokio::test]
async fn certificates_that_cannot_serve_end_the_start_and_say_which() {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = generate_simple_self_signed(["localhost".to_owned()]).unwrap().signing_key;
    let folder = tempfile::tempdir().unwrap();
    let certificate = written(&folder, "cert.pem", &cert.pem());
    let key = written(&folder, "key.pem", &signing_key.serialize_pem());
    let strange = written(&folder, "other.pem", &other.serialize_pem());
    let empty = written(&folder, "empty.pem", "");
    let start = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_radiosonde"));
        let out = command.args(["--model=scripted", "--port=0"]).args(args).output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let both = |certificate: &str, key: &str| start(&["--ssl-certfile", certificate, "--ssl-keyfile", key]);
    for (certificate, key, flag) in [
        (empty.as_str(), key.as_str(), "--ssl-certfile"),
        ("/nosuch.pem", &key, "--ssl-certfile"),
        (&certificate, &empty, "--ssl-keyfile"),
        (&certificate, "/nosuch.pem", "--ssl-keyfile"),
        (&certificate, &strange, "--ssl-keyfile"),
    ] {
        let (code, text) = both(certificate, key);
        assert!(code == Some(1) && text.contains(flag), "{certificate} {key}: {code:?} {text}");
    }
    assert_eq!(start(&["--ssl-certfile", &certificate]).0, Some(2), "one without the other");
    assert_eq!(start(&["--guard-health"]).0, Some(2), "a guard without a key");
    assert_eq!(start(&["--api-key="]).0, Some(2), "a key without a letter");
    assert_eq!(start(&["--cors-allow-origin=example.org"]).0, Some(2), "an origin without a scheme");
}

#[tokio::test]
async fn pages_of_other_origins_may_call_only_if_they_are_named() {
    let server = Server::start(&["--model=scripted", "--api-key=k", "--cors-allow-origin=https://a.example"]).await;
    let preflight = async |server: &Server, origin: &str| {
        let request = server.client().request(Method::OPTIONS, server.url("/v1/completions"));
        let request = request.header("origin", origin).header("access-control-request-method", "POST");
        let request = request.header("access-control-request-headers", "authorization, content-type");
        let answer = request.send().await.unwrap();
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        (answer.status(), header("access-control-allow-origin"), header("access-control-allow-headers"))
    };
    let (status, origin, headers) = preflight(&server, "https://a.example").await;
    assert_eq!((status, origin.as_deref()), (StatusCode::OK, Some("https://a.example")), "without a key");
    assert!(headers.unwrap().contains("authorization"));
    assert_eq!(preflight(&server, "https://b.example").await.1, None);
    let models = server.client().get(server.url("/v1/models")).header("origin", "https://a.example").bearer_auth("k");
    let answer = models.send().await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["access-control-allow-origin"]),
        (200, &"https://a.example".parse().unwrap())
    );

    let closed = Server::start(&["--model=scripted"]).await;
    assert_eq!(preflight(&closed, "https://a.example").await, (StatusCode::METHOD_NOT_ALLOWED, None, None));
}

#[tokio::test]
async fn a_request_that_takes_too_long_ends_with_an_error() {
    let args = ["--model=scripted:step_ms=50", "--request-timeout=2s", "--max-running-requests=1"];
    let server = Server::start(&args).await;
    let idle = server.metric("radiosonde_kv_used_tokens").await;
    let ask = |stream: bool| {
        let body = json!({
            "text": "a", "stream": stream, "sampling_params": {"max_new_tokens": 200, "ignore_eos": true}
        });
        server.client().post(server.url("/generate")).json(&body).send()
    };
    let asked = Instant::now();
    let (streamed, waiting) = tokio::join!(async { ask(true).await.unwrap().text().await.unwrap() }, ask(false));
    assert!(asked.elapsed() >= Duration::from_secs(2));
    let events: Vec<&str> = streamed.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let [.., error, done] = events[..] else { panic!("{streamed}") };
    let error: Value = serde_json::from_str(error).unwrap();
    assert_eq!((&error["error"]["code"], done), (&json!("request_timeout"), "[DONE]"));
    let waiting = waiting.unwrap();
    assert_eq!((waiting.status().as_u16(), waiting.headers().contains_key("retry-after")), (503, true));
    assert_eq!(waiting.json::<Value>().await.unwrap()["error"]["code"], "request_timeout");
    eventually(MOMENT, async || {
        server.metric("radiosonde_num_running_reqs").await == 0.0
            && server.metric("radiosonde_kv_used_tokens").await == idle
            && server.metric("radiosonde_request_table_size").await == 0.0
            && server.metric_with("radiosonde_requests_finished_total", &[("outcome", "error")]).await == 2.0
    })
    .await;
    let short = json!({"text": "a", "sampling_params": {"max_new_tokens": 1}});
    let answer = server.client().post(server.url("/generate")).json(&short).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
}

/// Over each of them the server would wait for ever; what goes on takes as long as it takes.
#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let server = Server::start(&["--model=scripted:step_ms=50", "--keep-alive-timeout=300ms"]).await;
    let whole = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
    for url in [server.url(""), server.admin_url("")] {
        let address = url.strip_prefix("http://").unwrap().to_owned();
        for (sent, answered) in [("", false), ("GET /livez HTTP/1.1\r\nHo", false), (whole, true)] {
            let mut connection = TcpStream::connect(&address).await.unwrap();
            connection.write_all(sent.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            tokio::time::timeout(MOMENT, connection.read_to_end(&mut answer)).await.expect("it is closed").unwrap();
            assert_eq!(answer.starts_with(b"HTTP/1.1 200"), answered, "{sent:?}: {}", answer.escape_ascii());
        }
    }
    let long = json!({"text": "a", "sampling_params": {"max_new_tokens": 20, "ignore_eos": true}});
    let answer: Value =
        server.client().post(server.url("/generate")).json(&long).send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["meta_info"]["completion_tokens"], 20);
}
