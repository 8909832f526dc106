//! The collector's end of the wire: services, certificates, and the store that everything is kept in.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message;
use tokio::sync::{oneshot, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use tonic::codec::CompressionEncoding;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};
use tonic::{Request, Response, Status};

use super::{Seen, SeenRecord, Tls};

/// So many spans, and so many records, at least are kept: more than any test looks back at, and few enough for a run of an hour.
const KEPT: usize = 50_000;

/// Where everything that arrives is kept.
#[derive(Clone)]
pub struct Store {
    pub spans: Arc<watch::Sender<Vec<Seen>>>,
    pub records: Arc<watch::Sender<Vec<SeenRecord>>>,
    pub is_open: watch::Receiver<bool>,
}

impl Store {
    async fn wait_until_open(&self) {
        // An early error means that the test is over.
        let _ = self.is_open.clone().wait_for(|is_open| *is_open).await;
    }

    fn keep(&self, request: ExportTraceServiceRequest, headers: &HeaderMap) {
        let headers = texts(headers);
        self.spans.send_modify(|all| {
            if all.len() > 2 * KEPT {
                all.drain(..all.len() - KEPT);
            }
            for of_process in request.resource_spans {
                let resource = attributes(of_process.resource.map(|resource| resource.attributes).unwrap_or_default());
                for span in of_process.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans) {
                    all.push(Seen {
                        resource: resource.clone(),
                        attributes: attributes(span.attributes.clone()),
                        headers: headers.clone(),
                        span,
                    });
                }
            }
        });
    }
}

impl Store {
    fn keep_records(&self, request: ExportLogsServiceRequest, headers: &HeaderMap) {
        let headers = texts(headers);
        self.records.send_modify(|all| {
            if all.len() > 2 * KEPT {
                all.drain(..all.len() - KEPT);
            }
            for of_process in request.resource_logs {
                let resource = attributes(of_process.resource.map(|resource| resource.attributes).unwrap_or_default());
                for record in of_process.scope_logs.into_iter().flat_map(|of_scope| of_scope.log_records) {
                    all.push(SeenRecord {
                        resource: resource.clone(),
                        attributes: attributes(record.attributes.clone()),
                        headers: headers.clone(),
                        record,
                    });
                }
            }
        });
    }
}

fn texts(headers: &HeaderMap) -> BTreeMap<String, String> {
    let name_and_text = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    headers.iter().map(name_and_text).collect()
}

#[tonic::async_trait]
impl LogsService for Store {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.wait_until_open().await;
        let (metadata, _, message) = request.into_parts();
        self.keep_records(message, &metadata.into_headers());
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl TraceService for Store {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.wait_until_open().await;
        let (metadata, _, message) = request.into_parts();
        self.keep(message, &metadata.into_headers());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// Speaks gRPC until it is stopped.
pub async fn serve_grpc(
    listener: tokio::net::TcpListener,
    tls: Option<Tls>,
    store: Store,
    stopped: oneshot::Receiver<()>,
) {
    let traces = TraceServiceServer::new(store.clone()).accept_compressed(CompressionEncoding::Gzip);
    let logs = LogsServiceServer::new(store).accept_compressed(CompressionEncoding::Gzip);
    let mut builder = tonic::transport::Server::builder();
    if let Some(Tls { identity: (certificate, key), client_authority }) = tls {
        let config = ServerTlsConfig::new()
            .identity(Identity::from_pem(certificate, key))
            .client_ca_root(Certificate::from_pem(client_authority));
        builder = builder.tls_config(config).expect("the certificates are sound");
    }
    let server = builder.add_service(traces).add_service(logs);
    tokio::select! {
        served = server.serve_with_incoming(TcpIncoming::from(listener)) => served.expect("gRPC is served"),
        _ = stopped => {}
    }
}

/// Speaks HTTP until it is stopped.
pub async fn serve_http(
    listener: tokio::net::TcpListener,
    tls: Option<Tls>,
    store: Store,
    stopped: oneshot::Receiver<()>,
) {
    let logs = store.clone();
    let take_traces = move |headers: HeaderMap, body: Bytes| async move {
        store.wait_until_open().await;
        take_http(&headers, &body, &ExportTraceServiceResponse::default(), |request| store.keep(request, &headers))
    };
    let take_logs = move |headers: HeaderMap, body: Bytes| async move {
        logs.wait_until_open().await;
        take_http(&headers, &body, &ExportLogsServiceResponse::default(), |request| {
            logs.keep_records(request, &headers);
        })
    };
    let app = axum::Router::new().route("/v1/traces", post(take_traces)).route("/v1/logs", post(take_logs));
    let serve = async {
        match tls {
            Some(tls) => axum::serve(TlsListener { listener, acceptor: acceptor(&tls) }, app).await,
            None => axum::serve(listener, app).await,
        }
    };
    tokio::select! {
        served = serve => served.expect("HTTP is served"),
        _ = stopped => {}
    }
}

/// Connections whose handshake has succeeded; the others are turned away.
struct TlsListener {
    listener: tokio::net::TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<tokio::net::TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.expect("connections come");
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

fn acceptor(tls: &Tls) -> TlsAcceptor {
    let (certificate, key) = &tls.identity;
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let mut authorities = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(tls.client_authority.as_bytes()).expect("a certificate");
    authorities.add(authority).expect("it is an authority's");
    let clients = WebPkiClientVerifier::builder(Arc::new(authorities)).build().expect("there is an authority");
    let config = ServerConfig::builder().with_client_cert_verifier(clients);
    TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key).expect("the key fits")))
}

fn take_http<T: Message + Default>(
    headers: &HeaderMap,
    body: &[u8],
    answer: &impl Message,
    keep: impl FnOnce(T),
) -> HttpResponse {
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
    match T::decode(body) {
        Ok(request) => {
            keep(request);
            ([(CONTENT_TYPE, PROTOBUF)], answer.encode_to_vec()).into_response()
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

/// The value as text, whatever its type.
pub fn text(value: Option<AnyValue>) -> String {
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
