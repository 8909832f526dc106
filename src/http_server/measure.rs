//! Counts each HTTP exchange by its matched route, from the head of the request to the last byte of the answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};

use super::endpoints;
use crate::telemetry::labels::HttpRoute;
use crate::telemetry::metrics::{HttpExchange, Metrics};

/// Reading the series must not change them.
const UNCOUNTED: &str = "/metrics";

/// Counts the exchange. A handler that is dropped before its answer is one whose client has left.
pub async fn measure(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    if matched == Some(UNCOUNTED) {
        return next.run(request).await;
    }
    let mut exchange = metrics.http.began(route(matched));
    let response = next.run(request).await;
    exchange.answered(response.status().as_u16());
    response.map(|body| Body::new(MeasuredBody { body, _exchange: exchange }))
}

/// The label of a matched path. What the client wrote is never a label.
fn route(matched: Option<&str>) -> HttpRoute {
    let first_name = matched.map(endpoints::first_name);
    let known = HttpRoute::ALL.iter().find(|route| Some(route.as_str()) == first_name);
    known.copied().unwrap_or(HttpRoute::Unmatched)
}

/// A body that ends its exchange when it ends.
struct MeasuredBody {
    body: Body,
    _exchange: HttpExchange,
}

impl HttpBody for MeasuredBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
