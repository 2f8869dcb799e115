//! Subscribers over Flight: the stream of messages that a call answers with. It is polled as fast as
//! HTTP/2 has room for more; what comes meanwhile waits in the stream's queue, whose bound decides.
//!
//! What stands in `app_metadata`, as JSON:
//!
//! - with the schema `{"offset": n}`, the number of the first row; behind the contents, if the subscriber
//!   begins with them. A `live` stream's has also a text `"count"`: numbers of different texts are of
//!   different servers and say nothing about each other.
//! - with rows `{"offset": n, "snapshot": bool}`, the number of the row behind them, and whether they are
//!   contents. A batch without rows says no more than that: how far the subscriber has come, or that the
//!   contents are complete.
//! - of a subscriber that acknowledges (`DoExchange` with a name) and has not acknowledged everything
//!   when the stream ends, a last batch without rows has `"end": true`. The call ends when all is
//!   acknowledged, or [`LAST_ACK_MAX`] later: an acknowledgement has no other way when the job is over.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow_flight::FlightData;
use futures::Stream;
use serde::Deserialize;
use serde_json::json;
use tidemill_hub::Delivery;
use tokio::time::{Sleep, sleep};
use tonic::{Status, Streaming};

use super::encode::{Encoded, filtered_messages, messages, schema_message};
use crate::error::ApiError;
use crate::streams::{Feed, FeedRequest};

/// After so many deliveries of which the filter left nothing, the subscriber is told how far it has come,
/// so that it can acknowledge. It is also told when it has caught up.
const SILENT_MAX: u32 = 1024;

/// How long the call of a subscriber that acknowledges stays open for that behind the stream's end.
const LAST_ACK_MAX: Duration = Duration::from_secs(5);

/// Reads a ticket: a stream's name, or a request as JSON.
pub(super) fn ticket(ticket: &[u8]) -> Result<FeedRequest, ApiError> {
    let wrong = |why: String| {
        ApiError::bad_request(format!("the ticket cannot be read: {why}"))
            .with_help(r#"a ticket is the name of a stream, or JSON such as {"stream":"trades","from":"snapshot","filter":"price > 10"}"#)
    };
    if ticket.trim_ascii_start().starts_with(b"{") {
        let request: FeedRequest = serde_json::from_slice(ticket).map_err(|e| wrong(e.to_string()))?;
        return if request.stream.is_empty() { Err(wrong("it names no stream".to_string())) } else { Ok(request) };
    }
    let name = std::str::from_utf8(ticket).map_err(|_| wrong("it is not UTF-8".to_string()))?;
    if name.is_empty() { Err(wrong("it is empty".to_string())) } else { Ok(FeedRequest { stream: name.to_string(), ..Default::default() }) }
}

/// Reads the metadata of an exchange's first message: a ticket that need not name the stream.
pub(super) fn request_for(stream: &str, metadata: &[u8]) -> Result<FeedRequest, ApiError> {
    let mut request = match metadata.is_empty() {
        true => FeedRequest::default(),
        false => serde_json::from_slice(metadata)
            .map_err(|e| ApiError::bad_request(format!("the metadata of the first message is not a subscription: {e}")))?,
    };
    if !request.stream.is_empty() && request.stream != stream {
        let other = &request.stream;
        return Err(ApiError::bad_request(format!("the descriptor names stream '{stream}', the metadata '{other}'")));
    }
    request.stream = stream.to_string();
    Ok(request)
}

/// What a subscriber that acknowledges sends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ack {
    ack: u64,
}

/// The messages that a subscriber gets.
pub(super) struct Deliveries {
    feed: Feed,
    /// What is ready to go.
    ready: Ready,
    /// Acknowledgements, if the subscriber sends any.
    acks: Option<Streaming<FlightData>>,
    /// How far deliveries have brought it of which nothing was left, and how many there were; or the
    /// contents, whose rows do not say whether more of them follow.
    silent: Option<(u64, u32)>,
    /// The stream has ended; acknowledgements are waited for until then.
    last: Option<Pin<Box<Sleep>>>,
    /// Nothing comes any more.
    ended: bool,
}

/// Messages that were made and not yet sent.
enum Ready {
    Own(VecDeque<FlightData>),
    /// Of a delivery that others get, too, from this one on.
    Shared(Arc<Encoded>, usize),
}

impl Ready {
    fn next(&mut self) -> Option<FlightData> {
        match self {
            Ready::Own(messages) => messages.pop_front(),
            Ready::Shared(encoded, at) => {
                let message = encoded.0.as_ref().ok()?.get(*at)?.clone();
                *at += 1;
                Some(message)
            }
        }
    }
}

impl Deliveries {
    /// Begins with the schema.
    pub fn new(feed: Feed, acks: Option<Streaming<FlightData>>) -> Self {
        let mut about = json!({"offset": feed.offset()});
        if let Some(count) = feed.count() {
            about["count"] = count.into();
        }
        let first = schema_message(&feed.schema()).with_app_metadata(about.to_string());
        Deliveries { feed, ready: Ready::Own(VecDeque::from([first])), acks, silent: None, last: None, ended: false }
    }

    /// Takes the acknowledgements that have come.
    fn take_acks(&mut self, context: &mut Context<'_>) -> Result<(), ApiError> {
        while let Some(acks) = &mut self.acks {
            match Pin::new(acks).poll_next(context) {
                Poll::Pending => break,
                // It may go on to listen.
                Poll::Ready(None) => self.acks = None,
                // The connection broke, or bytes came that are no message: the call is over either way.
                Poll::Ready(Some(Err(status))) => return Err(ApiError::bad_request(status.message())),
                Poll::Ready(Some(Ok(message))) if message.app_metadata.is_empty() => {}
                Poll::Ready(Some(Ok(message))) => {
                    let ack: Ack = serde_json::from_slice(&message.app_metadata)
                        .map_err(|e| ApiError::bad_request(format!(r#"an acknowledgement is {{"ack": number of the next row}}: {e}"#)))?;
                    self.feed.acknowledge(ack.ack)?;
                }
            }
        }
        Ok(())
    }

    /// Makes the messages of a delivery.
    fn prepare(&mut self, delivery: &Delivery) -> Result<(), String> {
        let behind = delivery.snapshot.then_some((delivery.next_offset, 0));
        if self.feed.filter().is_identity() {
            let encoded = Encoded::shared(delivery);
            if let Err(why) = &encoded.0 {
                return Err(why.clone());
            }
            self.ready = Ready::Shared(encoded, 0);
            self.silent = behind;
            return Ok(());
        }
        let messages = filtered_messages(delivery, &|rows| self.feed.filter().apply(rows))?;
        if !messages.is_empty() {
            self.ready = Ready::Own(messages.into());
            self.silent = behind;
            return Ok(());
        }
        let count = self.silent.map_or(0, |(_, count)| count) + 1;
        self.silent = Some((delivery.next_offset, count));
        if count >= SILENT_MAX && !delivery.snapshot { self.speak() } else { Ok(()) }
    }

    /// Says how far the subscriber has come, with a batch without rows, which every client understands.
    fn speak(&mut self) -> Result<(), String> {
        if let Some((offset, _)) = self.silent.take() {
            self.ready = Ready::Own(messages(&RecordBatch::new_empty(self.feed.schema()), offset, false)?.into());
        }
        Ok(())
    }

    /// Whether the subscriber may still acknowledge something. One that has half closed does not.
    fn owes(&self) -> bool {
        self.acks.is_some() && self.feed.owes()
    }

    /// Says that nothing follows, and that acknowledgements are waited for.
    fn speak_last(&mut self) -> Result<(), String> {
        let about = json!({"offset": self.feed.offset(), "snapshot": false, "end": true}).to_string();
        let last = messages(&RecordBatch::new_empty(self.feed.schema()), 0, false)?;
        self.ready = Ready::Own(last.into_iter().map(|message| message.with_app_metadata(about.clone())).collect());
        self.last = Some(Box::pin(sleep(LAST_ACK_MAX)));
        Ok(())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<FlightData, ApiError>>> {
        loop {
            if let Some(message) = self.ready.next() {
                return Poll::Ready(Some(Ok(message)));
            }
            self.take_acks(context)?;
            let waits = self.last.is_some() && self.owes();
            if let Some(last) = &mut self.last {
                return if waits && last.as_mut().poll(context).is_pending() { Poll::Pending } else { Poll::Ready(None) };
            }
            let made = match self.feed.poll_next(context) {
                Poll::Ready(Some(Ok(delivery))) => self.prepare(&delivery),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) if self.owes() => self.speak_last(),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending if self.silent.is_some() => self.speak(),
                Poll::Pending => return Poll::Pending,
            };
            made.map_err(|why| ApiError::internal(format!("stream '{}': {why}", self.feed.stream())))?;
        }
    }
}

impl Stream for Deliveries {
    type Item = Result<FlightData, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        let next = this.poll(context).map_err(|error| {
            this.feed.counts().refuse(error.status());
            Status::from(error)
        });
        this.ended = matches!(next, Poll::Ready(None | Some(Err(_))));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_hub::From as Start;

    #[test]
    fn tickets() {
        assert_eq!(ticket(b"trades").unwrap().stream, "trades");
        let all = br#" {"stream":"t","from":{"offset":12},"name":"me","slow":"wait","columns":["a"],"filter":"a > 1"}"#;
        let request = ticket(all).unwrap();
        assert_eq!((request.stream.as_str(), request.from, request.name.as_deref()), ("t", Start::Offset(12), Some("me")));
        assert_eq!(ticket(br#"{"stream":"t","from":"earliest"}"#).unwrap().from, Start::Earliest);
        assert_eq!(request_for("t", br#"{"name":"me"}"#).unwrap().stream, "t");
        assert!(request_for("t", br#"{"stream":"u"}"#).is_err());
        for wrong in [&b""[..], b"\xff", b"{}", br#"{"stream":"t","form":"now"}"#, b"{\"stream\":"] {
            assert!(ticket(wrong).unwrap_err().to_string().starts_with("the ticket cannot be read"));
        }
    }
}
