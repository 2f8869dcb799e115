//! `GET /v1/streams/{name}/events`: the rows of a stream as server-sent events, for browsers
//! (`EventSource`) and `curl`. The data of an event is a row as JSON, its id the number of the next row,
//! so that a browser that connects again goes on where it was, if the stream keeps its rows.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::Stream;
use tidemill_hub::{Delivery, DeliveryMode, From as Start};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::json::{self, JsonLines};
use super::{Feed, FeedQuery, KEEP_ALIVE, Shared};
use crate::auth::Access;
use crate::error::ApiError;

/// Answers with events until the stream ends or the peer goes.
pub(super) async fn events(
    State(state): Shared,
    Extension(access): Extension<Access>,
    Path(name): Path<String>,
    query: Result<Query<FeedQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let mut request = FeedQuery::taken(query)?.request(name)?;
    // Of a live stream no rows of earlier are kept: there a browser that comes again begins as it did.
    let keeps = || {
        let outlet = state.hub.stream(&request.stream).and_then(|s| s.outlet_info());
        outlet.is_some_and(|o| o.delivery == DeliveryMode::ExactlyOnce)
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.trim().parse().ok());
    if let Some(last) = last
        && keeps()
    {
        request.from = Start::Offset(last);
    }
    let feed = Feed::open(&state, &access, request)?;
    let json = JsonLines::new(&feed.schema(), feed.info().updating).map_err(|e| ApiError::bad_request(e.to_string()))?;
    let mut keep_alive = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // A first comment, so that the peer sees at once that it is connected.
    let events = Events { feed, json, keep_alive, first: Some(Bytes::from_static(b":\n\n")), ended: false };
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // Some proxies hold back what comes in small pieces.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(events)).into_response())
}

/// The events of one delivery; a type of its own for [`Delivery::cached`].
struct Encoded(Result<Bytes, String>);

/// The body of the answer.
struct Events {
    feed: Feed,
    json: JsonLines,
    keep_alive: Interval,
    first: Option<Bytes>,
    ended: bool,
}

impl Events {
    /// The events of a delivery; empty if the filter leaves nothing.
    fn encode(&mut self, delivery: &Delivery) -> Result<Bytes, String> {
        if self.feed.filter().is_identity() {
            let begin = delivery.next_offset.saturating_sub(delivery.batch.num_rows() as u64);
            // Rows of contents have no numbers: whoever breaks off in them begins with them again.
            let ids = (!delivery.snapshot).then_some(begin + 1);
            let json = &mut self.json;
            let encoded: Arc<Encoded> = delivery.cached(|rows| {
                let mut lines = Vec::new();
                let written = json.encode(rows, &mut lines).map_err(|e| e.to_string());
                Encoded(written.map(|()| {
                    let mut out = Vec::with_capacity(lines.len() + rows.num_rows() * 24);
                    json::events(&lines, ids, &mut out);
                    out.into()
                }))
            });
            return encoded.0.clone();
        }
        let rows = self.feed.filter().apply(&delivery.batch)?;
        let mut lines = Vec::new();
        self.json.encode(&rows, &mut lines).map_err(|e| e.to_string())?;
        let mut out = Vec::with_capacity(lines.len() + rows.num_rows() * 24);
        json::events(&lines, None, &mut out);
        // Only behind the last row it is known how far the subscriber has come.
        if !delivery.snapshot && !out.is_empty() {
            out.truncate(out.len() - 1);
            out.extend_from_slice(format!("id: {}\n\n", delivery.next_offset).as_bytes());
        }
        Ok(out.into())
    }

    /// The last event: why there is no more.
    fn last(&mut self, event: &str, data: &str) -> Bytes {
        self.ended = true;
        format!("event: {event}\ndata: {data}\n\n").into()
    }
}

impl Stream for Events {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if this.ended {
            return Poll::Ready(None);
        }
        loop {
            let text = match this.feed.poll_next(context) {
                Poll::Ready(Some(Ok(delivery))) => match this.encode(&delivery) {
                    Ok(text) if text.is_empty() => continue,
                    Ok(text) => text,
                    Err(why) => {
                        let error = ApiError::internal(format!("stream '{}': {why}", this.feed.stream()));
                        this.feed.counts().refuse(error.status());
                        this.last("error", &error.to_json().to_string())
                    }
                },
                Poll::Ready(Some(Err(error))) => {
                    this.feed.counts().refuse(error.status());
                    this.last("error", &error.to_json().to_string())
                }
                Poll::Ready(None) => this.last("end", "{}"),
                Poll::Pending => {
                    if this.keep_alive.poll_tick(context).is_pending() {
                        return Poll::Pending;
                    }
                    return Poll::Ready(Some(Ok(Bytes::from_static(b":\n\n"))));
                }
            };
            this.keep_alive.reset();
            return Poll::Ready(Some(Ok(text)));
        }
    }
}
