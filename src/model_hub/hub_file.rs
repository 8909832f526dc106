//! A file of a hub repository, fetched over HTTP and resumed where an earlier try ended.

use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ureq::http::{Response, StatusCode, header};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use super::part::{Leftover, Part};
use super::progress::Progress;
use super::{Artifact, Expected, Hub, HubError};

/// A closed network must not hold up the start: another origin may be near.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
/// Between two pieces of the body.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A file of a hub repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubFile {
    /// `owner/name`.
    pub repo: String,
    /// A commit, a tag or a branch.
    pub revision: String,
    /// Path in the repository.
    pub file: String,
}

impl fmt::Display for HubFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf:{}@{}/{}", self.repo, self.revision, self.file)
    }
}

impl HubFile {
    /// Fetches the file into its place. A cut connection is taken up again as long as each try brings it further.
    pub(super) fn fetch(&self, hub: &Hub, artifact: &Artifact) -> Result<(), HubError> {
        let remote = Remote {
            agent: agent(),
            url: format!("{}/{}/resolve/{}/{}", hub.endpoint, self.repo, self.revision, self.file),
            authorization: hub.token.as_ref().map(|token| format!("Bearer {token}")),
        };
        let expected = match &artifact.expected {
            Expected { sha256: Some(_), .. } => artifact.expected.clone(),
            Expected { sha256: None, .. } => remote.describe()?,
        };
        let leftover = if expected.sha256.is_some() { Leftover::Keep } else { Leftover::Discard };
        let mut part = Part::open(&artifact.path, leftover)?;
        loop {
            let before = part.len();
            match remote.append_to(&mut part, &expected) {
                Ok(()) => return part.publish(&expected),
                Err(error @ HubError::Interrupted { .. }) if part.len() > before => {
                    tracing::warn!(%error, "taking the transfer up again");
                }
                Err(error) => return Err(error),
            }
        }
    }
}

struct Remote {
    agent: Agent,
    url: String,
    authorization: Option<String>,
}

impl Remote {
    /// What the hub says of a large file before it redirects to the bytes: `X-Linked-Etag` is its SHA-256 and
    /// `X-Linked-Size` its size. A small file has neither.
    fn describe(&self) -> Result<Expected, HubError> {
        let mut request = self.agent.head(&self.url).config().max_redirects(0).max_redirects_will_error(false).build();
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let response = request.call().map_err(|error| self.unreachable(error))?;
        if response.status().is_client_error() || response.status().is_server_error() {
            return Err(self.refused(response.status()));
        }
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let is_sha256 = |etag: &&str| etag.len() == 64 && etag.bytes().all(|byte| byte.is_ascii_hexdigit());
        let etag = text("x-linked-etag").map(|etag| etag.trim_matches('"')).filter(is_sha256);
        Ok(Expected {
            bytes: text("x-linked-size").and_then(|size| size.parse().ok()),
            sha256: etag.map(str::to_ascii_lowercase),
        })
    }

    /// One request for what is missing.
    fn append_to(&self, part: &mut Part, expected: &Expected) -> Result<(), HubError> {
        match expected.bytes {
            Some(bytes) if bytes == part.len() => return Ok(()),
            Some(bytes) if bytes < part.len() => part.restart()?,
            _ => {}
        }
        let mut response = self.open(part)?;
        let total = response.body().content_length().map(|rest| part.len() + rest).or(expected.bytes);
        let mut progress = Progress::of_bytes(total, part.len());
        part.fill(&mut response.body_mut().as_reader(), &mut progress)?;
        match total {
            Some(total) if part.len() < total => {
                Err(HubError::Interrupted { got: part.len(), source: io::ErrorKind::UnexpectedEof.into() })
            }
            _ => Ok(()),
        }
    }

    /// A response whose body begins where `part` ends; `part` is emptied if the server cannot give that.
    fn open(&self, part: &mut Part) -> Result<Response<Body>, HubError> {
        let response = self.get(part.len())?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT if range_start(&response) == Some(part.len()) => Ok(response),
            StatusCode::OK => part.restart().map(|()| response),
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                part.restart()?;
                let whole = self.get(0)?;
                if whole.status() == StatusCode::OK { Ok(whole) } else { Err(self.refused(whole.status())) }
            }
            status => Err(self.refused(status)),
        }
    }

    fn get(&self, start: u64) -> Result<Response<Body>, HubError> {
        let mut request = self.agent.get(&self.url);
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        if start > 0 {
            request = request.header(header::RANGE, format!("bytes={start}-"));
        }
        request.call().map_err(|error| self.unreachable(error))
    }

    fn unreachable(&self, source: ureq::Error) -> HubError {
        HubError::Unreachable { url: self.url.clone(), source: Box::new(source) }
    }

    fn refused(&self, status: StatusCode) -> HubError {
        HubError::Status { url: self.url.clone(), status: status.as_u16() }
    }
}

/// The first byte of `Content-Range: bytes 40-99/100`.
fn range_start(response: &Response<Body>) -> Option<u64> {
    let range = response.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}

fn agent() -> Agent {
    let config = Agent::config_builder()
        .user_agent(concat!("radiosonde/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .timeout_resolve(Some(CONNECT_TIMEOUT))
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_recv_response(Some(RESPONSE_TIMEOUT))
        .timeout_per_read(Some(READ_TIMEOUT))
        .tls_config(TlsConfig::builder().root_certs(root_certs()).build());
    config.build().new_agent()
}

/// The roots in `SSL_CERT_FILE`, as OpenSSL's users expect: closed networks have their own. Else the public ones.
fn root_certs() -> RootCerts {
    let Some(path) = env::var_os("SSL_CERT_FILE") else { return RootCerts::WebPki };
    match fs::read(&path) {
        Ok(pem) => {
            let roots = parse_pem(&pem).filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            });
            RootCerts::Specific(Arc::new(roots.collect()))
        }
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "the file of SSL_CERT_FILE cannot be read; using the public roots");
            RootCerts::WebPki
        }
    }
}
