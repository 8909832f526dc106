//! A listener, plain or with TLS, until it is told to stop.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use axum_server::{Handle, Server, from_tcp};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::sync::CancellationToken;

use super::RuntimeError;
use crate::config::AccessArgs;

/// What https needs, read and checked; `None` where it is not asked for.
///
/// # Errors
/// A file cannot be read, or the two do not belong together.
pub fn tls(args: &AccessArgs) -> Result<Option<RustlsConfig>, RuntimeError> {
    let Some((certificates, key)) = args.tls() else { return Ok(None) };
    let chain: Vec<_> = CertificateDer::pem_file_iter(&certificates)
        .and_then(Iterator::collect)
        .map_err(|error| refused("--ssl-certfile", &certificates, &error))?;
    if chain.is_empty() {
        return Err(refused("--ssl-certfile", &certificates, &"it holds no certificate"));
    }
    let private = PrivateKeyDer::from_pem_file(&key).map_err(|error| refused("--ssl-keyfile", &key, &error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| refused("--ssl-keyfile", &key, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(RustlsConfig::from_config(Arc::new(config))))
}

fn refused(flag: &'static str, path: &Path, why: &dyn std::fmt::Display) -> RuntimeError {
    RuntimeError::Tls { flag, path: path.to_owned(), why: why.to_string() }
}

/// Serves `router` on `listener` until `stop`, and then what is under way to its end. A connection over which no whole
/// head of a request comes for `idle_limit` is closed, unless an answer is under way.
///
/// # Errors
/// The operating system refuses the listener.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<RustlsConfig>,
    idle_limit: Duration,
    stop: CancellationToken,
) -> io::Result<()> {
    let handle = Handle::new();
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let serving = async {
        let server = limited(from_tcp(listener)?, &handle, idle_limit);
        // A token is a small packet: it is not to wait until the one before it is acknowledged.
        let at_once = NoDelayAcceptor::new();
        match tls {
            Some(tls) => server.acceptor(RustlsAcceptor::new(tls).acceptor(at_once)).serve(service).await,
            None => server.acceptor(at_once).serve(service).await,
        }
    };
    let stopping = async {
        stop.cancelled().await;
        handle.graceful_shutdown(None);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        served = serving => served,
        () = stopping => Ok(()),
    }
}

fn limited<A>(server: Server<SocketAddr, A>, handle: &Handle<SocketAddr>, idle: Duration) -> Server<SocketAddr, A> {
    let mut server = server.handle(handle.clone()).first_request_timeout(idle);
    server.http_builder().http1().header_read_timeout(idle);
    server
}
