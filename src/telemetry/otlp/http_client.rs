//! The HTTP client of the exporter. It blocks: the thread that exports has nothing else to do.

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response, ResponseBodyTooLarge};
use ureq::Agent;

use super::OtlpError;
use super::settings::Destination;

/// The most bytes of an answer; a collector says little.
const LONGEST_ANSWER: u64 = 4 << 20;

/// Connections to one collector.
#[derive(Debug)]
pub(super) struct BlockingClient(Agent);

impl BlockingClient {
    /// A client that gives up after the destination's timeout and follows no redirect: headers may hold secrets.
    pub fn new(destination: &Destination) -> Result<Self, OtlpError> {
        let config = Agent::config_builder()
            .timeout_global(Some(destination.timeout))
            .tls_config(destination.tls.for_http()?)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .build();
        Ok(Self(config.into()))
    }
}

#[tonic::async_trait]
impl HttpClient for BlockingClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let (head, mut answer) = self.0.run(Request::from_parts(head, &body[..]))?.into_parts();
        let body = answer.with_config().limit(LONGEST_ANSWER).read_to_vec().map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(_) => HttpError::from(ResponseBodyTooLarge::new()),
            error => error.into(),
        })?;
        Ok(Response::from_parts(head, body.into()))
    }
}
