//! An OTLP collector inside a test: gRPC or HTTP on a free port, a wait for what must come, and the trace as text.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::span::Event;
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode as SpanStatus};
use radiosonde::telemetry::OtlpProtocol;
use radiosonde::telemetry::spans::names::EVENTS;
use tokio::sync::{oneshot, watch};

// The path is written out because other test binaries take this file in by its path.
#[path = "collector/wire.rs"]
mod wire;

use wire::{Store, serve_grpc, serve_http, text};

/// Clocks of one process are read one after the other: how far a child may seem to reach beyond its parent.
const TOLERANCE_NANOS: u64 = 5_000_000;

/// One span as it came over the wire.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Attributes of the process that it tells of.
    pub resource: BTreeMap<String, String>,
    /// Its own attributes.
    pub attributes: BTreeMap<String, String>,
    /// Headers of the export that it came with.
    pub headers: BTreeMap<String, String>,
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

/// Certificates in PEM, for a collector that is spoken to by TLS.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The collector's, and its key.
    pub identity: (String, String),
    /// Who vouches for its clients; one without a certificate of theirs is turned away.
    pub client_authority: String,
}

/// What a collector is like.
#[derive(Debug, Clone)]
pub struct Setup {
    /// What it speaks.
    pub protocol: OtlpProtocol,
    /// Where it listens.
    pub address: SocketAddr,
    /// Whether the connection is secured.
    pub tls: Option<Tls>,
    /// Whether it answers; if not, only after [`Collector::open`].
    pub is_open: bool,
}

impl Setup {
    /// On a free port, in plain text, and open.
    pub fn of(protocol: OtlpProtocol) -> Self {
        Self { protocol, address: SocketAddr::from(([127, 0, 0, 1], 0)), tls: None, is_open: true }
    }
}

/// One log record as it came over the wire.
#[derive(Debug, Clone)]
pub struct SeenRecord {
    /// Attributes of the process that wrote it.
    pub resource: BTreeMap<String, String>,
    /// Its own attributes.
    pub attributes: BTreeMap<String, String>,
    /// Headers of the export that it came with.
    pub headers: BTreeMap<String, String>,
    /// The rest.
    pub record: LogRecord,
}

impl SeenRecord {
    /// Its text.
    pub fn message(&self) -> String {
        text(self.record.body.clone())
    }

    /// The trace id in hexadecimal; empty outside of any span.
    pub fn trace_id(&self) -> String {
        hex(&self.record.trace_id)
    }

    /// The id of the span that it was written in.
    pub fn span_id(&self) -> String {
        hex(&self.record.span_id)
    }
}

/// A running collector; it stops when this is dropped.
pub struct Collector {
    address: SocketAddr,
    gate: watch::Sender<bool>,
    seen: watch::Receiver<Vec<Seen>>,
    records: watch::Receiver<Vec<SeenRecord>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// Starts one that speaks `protocol`, on a thread of its own.
    pub fn start(protocol: OtlpProtocol) -> Self {
        Self::start_as(Setup::of(protocol))
    }

    /// Starts one on a thread of its own.
    pub fn start_as(setup: Setup) -> Self {
        let listener = TcpListener::bind(setup.address).expect("the port is free");
        let address = listener.local_addr().expect("a bound listener has an address");
        listener.set_nonblocking(true).expect("tokio wants a non-blocking socket");
        let (sender, seen) = watch::channel(Vec::new());
        let (gate, is_open) = watch::channel(setup.is_open);
        let (record_sender, records) = watch::channel(Vec::new());
        let store = Store { spans: Arc::new(sender), records: Arc::new(record_sender), is_open };
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("the listener is non-blocking");
                match setup.protocol {
                    OtlpProtocol::Grpc => serve_grpc(listener, setup.tls, store, stopped).await,
                    OtlpProtocol::HttpProtobuf => serve_http(listener, setup.tls, store, stopped).await,
                }
            });
        });
        Self { address, gate, seen, records, stop: Some(stop), thread: Some(thread) }
    }

    /// Answers from now on, also what waits for an answer.
    pub fn open(&self) {
        self.gate.send_replace(true);
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, without a path.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    /// All log records so far.
    pub fn records(&self) -> Vec<SeenRecord> {
        self.records.borrow().clone()
    }

    /// Waits until `enough` holds for all log records so far; after `timeout` the test fails with the texts that came.
    pub async fn wait_records(&self, timeout: Duration, enough: impl Fn(&[SeenRecord]) -> bool) -> Vec<SeenRecord> {
        let mut records = self.records.clone();
        let waited = tokio::time::timeout(timeout, records.wait_for(|records| enough(records))).await.is_ok();
        let records = self.records();
        let texts: Vec<_> = records.iter().map(SeenRecord::message).collect();
        assert!(waited, "not enough after {timeout:?}; {} records came: {texts:?}", texts.len());
        records
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

/// `prefill.chunk*3, retraction`; log lines are left out.
fn events(span: &Span) -> String {
    let declared = |event: &&Event| EVENTS.iter().any(|known| known.name == event.name);
    let names: Vec<_> = span.events.iter().filter(declared).map(|event| event.name.as_str()).collect();
    let run = |run: &[&str]| match run.len() {
        1 => run[0].to_owned(),
        many => format!("{}*{many}", run[0]),
    };
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

fn hex(id: &[u8]) -> String {
    id.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

/// Each test binary uses its part of this file; here is a use of all of it, so that none is called dead.
const _: fn(&Collector, &Seen, &SeenRecord) = |collector, seen, record| {
    let _ = (collector.endpoint(), collector.address(), collector.tree("", &[]), &seen.resource, &seen.headers);
    let tls = Tls { identity: (String::new(), String::new()), client_authority: String::new() };
    drop(Collector::start_as(Setup { tls: Some(tls), ..Setup::of(OtlpProtocol::Grpc) }));
    collector.open();
    let _ = (collector.records(), &record.resource, &record.attributes, &record.headers);
    let _ = (record.trace_id(), record.span_id());
    drop(collector.wait_records(Duration::ZERO, |_| true));
    collector.well_formed("", None);
    drop(collector.wait(Duration::ZERO, |_| true));
};
