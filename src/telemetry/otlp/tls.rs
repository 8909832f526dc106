//! Certificates and keys for `https` collectors, read once at the start.

use std::fs;
use std::sync::Arc;

use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use ureq::tls::{ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use super::OtlpError;
use super::signal::Names;
use super::variables::{Env, Setting};

/// PEM texts; what is not given is the system's business, or nobody's.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    /// Who may vouch for the collector.
    authorities: Option<Pem>,
    /// Who we are.
    identity: Option<(Pem, Pem)>,
}

impl std::fmt::Debug for TlsFiles {
    /// Without a word of what is in them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (authorities, identity) = (self.authorities.is_some(), self.identity.is_some());
        f.debug_struct("TlsFiles").field("authorities", &authorities).field("identity", &identity).finish()
    }
}

/// A file's text, and the variable that named it.
#[derive(Clone, PartialEq, Eq)]
struct Pem {
    variable: &'static str,
    path: String,
    text: Vec<u8>,
}

/// Reads the files that the variables name.
pub(super) fn files(names: &Names, env: &Env<'_>) -> Result<TlsFiles, OtlpError> {
    let authorities = env.first(names.certificate).map(read).transpose()?;
    let identity = match (env.first(names.client_certificate), env.first(names.client_key)) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        (Some((given, _)), None) => return Err(OtlpError::Alone { given, missing: "OTEL_EXPORTER_OTLP_CLIENT_KEY" }),
        (None, Some((given, _))) => {
            return Err(OtlpError::Alone { given, missing: "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE" });
        }
    };
    let files = TlsFiles { authorities, identity };
    files.for_http()?; // what cannot be used is found now, in both protocols
    Ok(files)
}

fn read((variable, path): Setting) -> Result<Pem, OtlpError> {
    match fs::read(&path) {
        Ok(text) => Ok(Pem { variable, path, text }),
        Err(source) => Err(OtlpError::File { variable, path, source }),
    }
}

impl TlsFiles {
    /// For gRPC.
    pub fn for_grpc(&self) -> ClientTlsConfig {
        let config = match &self.authorities {
            Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&pem.text)),
            None => ClientTlsConfig::new().with_enabled_roots(),
        };
        match &self.identity {
            Some((certificate, key)) => config.identity(Identity::from_pem(&certificate.text, &key.text)),
            None => config,
        }
    }

    /// For HTTP.
    pub fn for_http(&self) -> Result<TlsConfig, OtlpError> {
        let roots = match &self.authorities {
            Some(pem) => certificates(pem)?,
            None => systems(),
        };
        let client = self.identity.as_ref().map(|(certificate, key)| {
            let chain = certificates(certificate)?;
            let key_pem = PrivateKey::from_pem(&key.text).map_err(|_| key.holds_no("private key"))?;
            Ok::<_, OtlpError>(ClientCert::new_with_certs(&chain, key_pem))
        });
        Ok(TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .client_cert(client.transpose()?)
            .build())
    }
}

impl Pem {
    fn holds_no(&self, what: &'static str) -> OtlpError {
        OtlpError::Pem { variable: self.variable, path: self.path.clone(), what }
    }
}

fn certificates(pem: &Pem) -> Result<Vec<ureq::tls::Certificate<'static>>, OtlpError> {
    let certificates: Vec<_> = parse_pem(&pem.text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() { Err(pem.holds_no("certificate")) } else { Ok(certificates) }
}

/// What the machine trusts; none if it trusts nobody, and then no collector either.
fn systems() -> Vec<ureq::tls::Certificate<'static>> {
    let found = rustls_native_certs::load_native_certs().certs;
    found.iter().map(|certificate| ureq::tls::Certificate::from_der(certificate).to_owned()).collect()
}
