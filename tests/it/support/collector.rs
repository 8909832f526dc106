//! An OTLP collector inside a test: gRPC or HTTP on a free port, a wait for what must come, and the trace as text.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::Event;
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode as SpanStatus};
use prost::Message;
use radiosonde::telemetry::OtlpProtocol;
use radiosonde::telemetry::spans::names::EVENTS;
use tokio::sync::{oneshot, watch};
use tonic::codec::CompressionEncoding;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Clocks of one process are read one after the other: how far a child may seem to reach beyond its parent.
const TOLERANCE_NANOS: u64 = 5_000_000;

/// One span as it came over the wire.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Attributes of the process that it tells of.
    pub resource: BTreeMap<String, String>,
    /// Its own attributes.
    pub attributes: BTreeMap<String, String>,
    /// The rest.
    pub span: Span,
}

impl Seen {
    /// The trace id in hexadecimal.
    pub fn trace_id(&self) -> String {
        hex(&self.span.trace_id)
    }

    /// The parent's id in hexadecimal; empty for a root.
    pub fn parent_id(&self) -> String {
        hex(&self.span.parent_span_id)
    }

    /// The message of an error status.
    pub fn error(&self) -> Option<&str> {
        let status = self.span.status.as_ref().filter(|status| status.code == SpanStatus::Error as i32)?;
        Some(&status.message)
    }
}

/// A running collector; it stops when this is dropped.
pub struct Collector {
    address: SocketAddr,
    seen: watch::Receiver<Vec<Seen>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// Starts one that speaks `protocol`, on a thread of its own.
    pub fn start(protocol: OtlpProtocol) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port exists");
        let address = listener.local_addr().expect("a bound listener has an address");
        listener.set_nonblocking(true).expect("tokio wants a non-blocking socket");
        let (sender, seen) = watch::channel(Vec::new());
        let store = Store(Arc::new(sender));
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("the listener is non-blocking");
                match protocol {
                    OtlpProtocol::Grpc => serve_grpc(listener, store, stopped).await,
                    OtlpProtocol::HttpProtobuf => serve_http(listener, store, stopped).await,
                }
            });
        });
        Self { address, seen, stop: Some(stop), thread: Some(thread) }
    }

    /// Its URL, without a path.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    /// Waits until `enough` holds for all spans so far; after `timeout` the test fails with the names that came.
    pub async fn wait(&self, timeout: Duration, enough: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        let mut seen = self.seen.clone();
        let waited = tokio::time::timeout(timeout, seen.wait_for(|spans| enough(spans))).await.is_ok();
        let spans = self.spans();
        let names: Vec<_> = spans.iter().map(|seen| &seen.span.name).collect();
        assert!(waited, "not enough after {timeout:?}; {} spans came: {names:?}", names.len());
        spans
    }

    /// The trace as an indented tree, siblings by their start; of the attributes, those named by `keys`, then links and
    /// events.
    pub fn tree(&self, trace_id: &str, keys: &[&str]) -> String {
        let spans = self.trace(trace_id);
        let known: HashSet<_> = spans.iter().map(|seen| hex(&seen.span.span_id)).collect();
        let mut text = String::new();
        for top in spans.iter().filter(|seen| !known.contains(&seen.parent_id())) {
            draw(&spans, top, 0, keys, &mut text);
        }
        text
    }

    /// Fails unless the trace is one tree below one root, or below `remote_parent`, and each child lies inside its
    /// parent's time.
    pub fn well_formed(&self, trace_id: &str, remote_parent: Option<&str>) {
        let spans = self.trace(trace_id);
        let by_id: HashMap<_, _> = spans.iter().map(|seen| (hex(&seen.span.span_id), seen)).collect();
        assert_eq!(by_id.len(), spans.len(), "span ids repeat in trace {trace_id}");
        let mut tops = Vec::new();
        for child in &spans {
            match by_id.get(&child.parent_id()) {
                None => tops.push(child),
                Some(parent) => inside(&child.span, &parent.span),
            }
        }
        let parents: Vec<_> = tops.iter().map(|seen| (seen.span.name.as_str(), seen.parent_id())).collect();
        assert_eq!(parents.len(), 1, "one span has its parent outside of the trace: {parents:?}");
        assert_eq!(parents[0].1, remote_parent.unwrap_or_default(), "the parent of {}", parents[0].0);
    }

    fn trace(&self, trace_id: &str) -> Vec<Seen> {
        let mut spans: Vec<_> = self.spans().into_iter().filter(|seen| seen.trace_id() == trace_id).collect();
        assert!(!spans.is_empty(), "no span of trace {trace_id} came");
        spans.sort_by_key(|seen| (seen.span.start_time_unix_nano, seen.span.end_time_unix_nano));
        spans
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there has failed the test already.
            let _ = thread.join();
        }
    }
}

fn draw(spans: &[Seen], top: &Seen, depth: usize, keys: &[&str], text: &mut String) {
    let indent = "  ".repeat(depth);
    write!(text, "{indent}{}", top.span.name).expect("a string takes all");
    for key in keys {
        if let Some(value) = top.attributes.get(*key) {
            write!(text, " {key}={value}").expect("a string takes all");
        }
    }
    if !top.span.links.is_empty() {
        write!(text, " links={}", top.span.links.len()).expect("a string takes all");
    }
    let events = events(&top.span);
    if !events.is_empty() {
        write!(text, " [{events}]").expect("a string takes all");
    }
    if let Some(message) = top.error() {
        write!(text, " ERROR{}{message}", if message.is_empty() { "" } else { " " }).expect("a string takes all");
    }
    text.push('\n');
    for child in spans.iter().filter(|seen| seen.span.parent_span_id == top.span.span_id) {
        draw(spans, child, depth + 1, keys, text);
    }
}

/// `prefill.chunk*3, retraction`; the log lines of a span are events too, and left out.
fn events(span: &Span) -> String {
    let ours = |event: &&Event| EVENTS.iter().any(|known| known.name == event.name);
    let names: Vec<&str> = span.events.iter().filter(ours).map(|event| event.name.as_str()).collect();
    let run = |run: &[&str]| if run.len() == 1 { run[0].to_owned() } else { format!("{}*{}", run[0], run.len()) };
    names.chunk_by(|a, b| a == b).map(run).collect::<Vec<_>>().join(", ")
}

fn inside(child: &Span, parent: &Span) {
    let (name, around) = (&child.name, &parent.name);
    assert!(child.start_time_unix_nano <= child.end_time_unix_nano, "{name} ends before it begins");
    let early = parent.start_time_unix_nano.saturating_sub(child.start_time_unix_nano);
    let late = child.end_time_unix_nano.saturating_sub(parent.end_time_unix_nano);
    assert!(early <= TOLERANCE_NANOS, "{name} begins {early} ns before {around}");
    assert!(late <= TOLERANCE_NANOS, "{name} ends {late} ns after {around}");
}

#[derive(Clone)]
struct Store(Arc<watch::Sender<Vec<Seen>>>);

impl Store {
    fn keep(&self, request: ExportTraceServiceRequest) {
        self.0.send_modify(|all| {
            for of_process in request.resource_spans {
                let resource = attributes(of_process.resource.map(|resource| resource.attributes).unwrap_or_default());
                for span in of_process.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans) {
                    all.push(Seen {
                        resource: resource.clone(),
                        attributes: attributes(span.attributes.clone()),
                        span,
                    });
                }
            }
        });
    }
}

#[tonic::async_trait]
impl TraceService for Store {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.keep(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn serve_grpc(listener: tokio::net::TcpListener, store: Store, stopped: oneshot::Receiver<()>) {
    let service = TraceServiceServer::new(store).accept_compressed(CompressionEncoding::Gzip);
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::select! {
        served = server.serve_with_incoming(TcpIncoming::from(listener)) => served.expect("gRPC is served"),
        _ = stopped => {}
    }
}

async fn serve_http(listener: tokio::net::TcpListener, store: Store, stopped: oneshot::Receiver<()>) {
    let take = move |headers: HeaderMap, body: Bytes| async move { take_http(&store, &headers, &body) };
    let app = axum::Router::new().route("/v1/traces", post(take));
    tokio::select! {
        served = axum::serve(listener, app) => served.expect("HTTP is served"),
        _ = stopped => {}
    }
}

fn take_http(store: &Store, headers: &HeaderMap, body: &[u8]) -> HttpResponse {
    const PROTOBUF: &str = "application/x-protobuf";
    if headers.get(CONTENT_TYPE).is_none_or(|kind| kind != PROTOBUF) {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let mut plain = Vec::new();
    let body = if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip") {
        flate2::read::GzDecoder::new(body).read_to_end(&mut plain).expect("the body is gzip");
        &plain
    } else {
        body
    };
    match ExportTraceServiceRequest::decode(body) {
        Ok(request) => {
            store.keep(request);
            ([(CONTENT_TYPE, PROTOBUF)], ExportTraceServiceResponse::default().encode_to_vec()).into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    let mut map = BTreeMap::new();
    for pair in pairs {
        let before = map.insert(pair.key.clone(), text(pair.value));
        assert!(before.is_none(), "attribute {} is set twice", pair.key);
    }
    map
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::BoolValue(value)) => value.to_string(),
        Some(Value::IntValue(value)) => value.to_string(),
        Some(Value::DoubleValue(value)) => value.to_string(),
        Some(Value::ArrayValue(array)) => {
            let values: Vec<_> = array.values.into_iter().map(|value| text(Some(value))).collect();
            format!("[{}]", values.join(","))
        }
        other => format!("{other:?}"),
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

/// Each test binary uses its part of this file; here is a use of all of it, so that none is called dead.
const _: fn(&Collector, &Seen) = |collector, seen| {
    let _ = (collector.endpoint(), collector.tree("", &[]), &seen.resource);
    collector.well_formed("", None);
    drop(collector.wait(Duration::ZERO, |_| true));
};
