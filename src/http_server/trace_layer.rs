//! Incoming `traceparent` to server span, which lives as long as the answer's last byte.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, MatchedPath, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use tracing::{Instrument, Span};

use crate::io_struct::Rid;
use crate::telemetry::spans::{self, Caller, StreamSpan};

const EVENT_STREAM: &str = "text/event-stream";
/// The rid of what is answered.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Runs the handler in a server span. Handlers name their request by a [`Rid`] in the response's extensions.
pub async fn trace(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str);
    let span = spans::server_span(request.method().as_str(), route, request.uri().path(), request.headers());
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| *peer);
    let caller = Caller { peer, version: request.version(), uri: request.uri(), headers: request.headers() };
    spans::record_caller(&span, &caller);
    let mut response = next.run(request).instrument(span.clone()).await;
    spans::record_status(&span, response.status().as_u16());
    if let Some(rid) = response.extensions().get::<Rid>() {
        spans::name_request(&span, rid.as_str());
        if let Ok(rid) = HeaderValue::from_str(rid.as_str()) {
            response.headers_mut().insert(X_REQUEST_ID, rid);
        }
    }
    let streams = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == EVENT_STREAM);
    let stream = if streams { Stream::Awaited } else { Stream::None };
    response.map(|body| Body::new(SpannedBody { body, stream, root: Root(span) }))
}

/// A body that keeps the server span open. Its parts are dropped in order: whoever ends with the body still finds the
/// span open.
struct SpannedBody {
    body: Body,
    stream: Stream,
    root: Root,
}

/// The server span, which ends with the body: with its last byte, or when the client leaves.
struct Root(Span);

impl Drop for Root {
    fn drop(&mut self) {
        spans::end(&self.0);
    }
}

/// The events of an answer.
enum Stream {
    /// It is no stream of events.
    None,
    /// None has come yet.
    Awaited,
    /// They leave.
    Begun(StreamSpan),
}

impl Stream {
    fn sent(&mut self, bytes: usize, root: &Span) {
        match self {
            Self::None => {}
            Self::Awaited => {
                let mut stream = StreamSpan::begin(root);
                stream.sent(bytes);
                *self = Self::Begun(stream);
            }
            Self::Begun(stream) => stream.sent(bytes),
        }
    }
}

impl HttpBody for SpannedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let _entered = this.root.0.enter();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                this.stream.sent(frame.data_ref().map_or(0, Bytes::len), &this.root.0);
            }
            Poll::Ready(_) => this.stream = Stream::None, // the last byte has left
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
