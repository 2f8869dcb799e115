//! `/v1/streams/{name}/ws`: a stream over a WebSocket, in both directions. What a job writes comes as
//! text messages of JSON lines; what is sent, JSON lines too, is published if a job reads the stream.
//! `{"ack": n}` acknowledges rows.
//!
//! Closing: 1000 the stream has ended, 1008 a wrong message or no right, 1011 our fault, 1012 the job
//! restarts, 1013 too slow. The reason is sent as a message `{"error": …}` before.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tidemill_block::clock::now_ns;
use tidemill_hub::{Delivery, Incoming, Refusal, Stream};
use tokio::time::{Instant, interval_at, timeout};

use super::json::JsonLines;
use super::publish::{DECODED_AT_ONCE, DECODED_HERE_BYTES};
use super::text::{self, TextKind};
use super::{Feed, FeedQuery, Inlet, KEEP_ALIVE, Shared, Watch, find};
use crate::auth::Access;
use crate::error::ApiError;
use crate::limits::NAME_BYTES_MAX;
use crate::room::Room;
use crate::state::Counts;
use crate::waiting::waiting;

/// How long a message may take to leave: a peer that takes nothing for so long is gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// A peer from which nothing has come for so long, not even an answer to a ping, is gone.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// What is written together before it must reach the socket.
const WRITE_BUFFER_BYTES: usize = 16 << 10;

/// The longest reason that fits into a closing frame.
const REASON_BYTES_MAX: usize = 123;

/// Opens the socket.
pub(super) async fn open(
    State(state): Shared,
    Extension(access): Extension<Access>,
    Path(name): Path<String>,
    query: Result<Query<FeedQuery>, QueryRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|e| {
        ApiError::new(e.status(), format!("this address speaks WebSocket: {}", e.body_text()))
            .with_help("server-sent events are at …/events")
    })?;
    let mut query = FeedQuery::taken(query)?;
    let publisher = query.publisher.take();
    if publisher.as_ref().is_some_and(|p| p.len() > NAME_BYTES_MAX) {
        return Err(ApiError::bad_request(format!("the publisher's name is longer than {NAME_BYTES_MAX} bytes")));
    }
    let (reads, writes) = (access.may_read(&name), access.may_write(&name));
    if !writes {
        access.require_read(&name)?;
    }
    let stream = find(&state, &name)?;
    let subscribes = reads && stream.outlet_schema().is_some();
    let publishes = writes && stream.inlet_schema().is_some();
    if !subscribes && !publishes {
        let why = format!("no running job writes stream '{name}', or reads it for you to publish");
        return Err(state.no_job(why, "does, and connect again"));
    }
    let outlet = match subscribes {
        false => None,
        true => {
            let feed = Feed::open(&state, &access, query.request(name.clone())?)?;
            let json = JsonLines::new(&feed.schema(), feed.info().updating).map_err(|e| ApiError::bad_request(e.to_string()))?;
            Some(Outlet { feed, json })
        }
    };
    let inlet = match publishes {
        false => None,
        true => Some(Inlet::open(&state, &stream, publisher.as_deref().unwrap_or_default())?),
    };
    let limit = state.limits.block_bytes;
    let upgrade = upgrade.max_message_size(limit).max_frame_size(limit).write_buffer_size(WRITE_BUFFER_BYTES);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let (sink, messages) = socket.split();
        let told = inlet.as_ref().and_then(|i| i.acknowledged().ok()).unwrap_or(0);
        let (named, watch) = (publisher.is_some(), Watch::new(access));
        let mut room = state.pending.room();
        room.of_stream(&name);
        let connection = Connection { sink, outlet, inlet, named, told, watch, name, stream, room, counts: state.counts.clone() };
        connection.run(messages).await;
    }))
}

/// The rows that go out.
struct Outlet {
    feed: Feed,
    json: JsonLines,
}

/// The message of one delivery; a type of its own for [`Delivery::cached`].
struct Encoded(Result<Utf8Bytes, String>);

impl Outlet {
    /// The message of a delivery; empty if the filter leaves nothing.
    fn encode(&mut self, delivery: &Delivery) -> Result<Utf8Bytes, String> {
        let json = &mut self.json;
        let mut encode = |rows: &arrow::array::RecordBatch| {
            let mut lines = Vec::new();
            json.encode(rows, &mut lines).map_err(|e| e.to_string())?;
            Utf8Bytes::try_from(lines).map_err(|e| e.to_string())
        };
        if self.feed.filter().is_identity() {
            let encoded: Arc<Encoded> = delivery.cached(|rows| Encoded(encode(rows)));
            return encoded.0.clone();
        }
        encode(&self.feed.filter().apply(&delivery.batch)?)
    }
}

/// Why a connection ends.
enum Ending {
    /// The peer wants it so, or is gone.
    Peer,
    /// The stream has ended.
    Over,
    /// Something is wrong.
    Error(ApiError),
}

impl From<ApiError> for Ending {
    fn from(error: ApiError) -> Self {
        Ending::Error(error)
    }
}

/// How long a peer has said nothing. Time in which nobody listens does not count: a publisher that the job keeps waiting,
/// or a subscriber that takes its rows slowly, is not silent.
struct Silence {
    /// When something came last, and as much later as nobody has listened since.
    since: Instant,
    /// Nobody listens any more since then.
    away: Option<Instant>,
}

impl Silence {
    fn new(now: Instant) -> Self {
        Silence { since: now, away: None }
    }

    /// Something came; it is dealt with first.
    fn hear(&mut self, now: Instant) {
        (self.since, self.away) = (now, Some(now));
    }

    /// Something else is to be done.
    fn look_away(&mut self, now: Instant) {
        self.away = Some(now);
    }

    /// Somebody listens again.
    fn listen(&mut self, now: Instant) {
        if let Some(away) = self.away.take() {
            self.since += now.duration_since(away);
        }
    }

    fn lasts(&self, now: Instant) -> Duration {
        now.duration_since(self.since)
    }
}

/// One connection.
struct Connection {
    sink: SplitSink<WebSocket, Message>,
    outlet: Option<Outlet>,
    inlet: Option<Inlet>,
    /// The publisher gave a name, so it is told how far its rows have come.
    named: bool,
    /// The acknowledgement that it was told last.
    told: u64,
    watch: Watch,
    name: String,
    stream: Arc<Stream>,
    /// For the message whose rows wait for the job.
    room: Room,
    counts: Arc<Counts>,
}

impl Connection {
    async fn run(mut self, mut messages: SplitStream<WebSocket>) {
        let ending = match self.converse(&mut messages).await {
            Ok(()) => Ending::Over,
            Err(ending) => ending,
        };
        // Others need not wait for a peer that is slow to take what it is told.
        self.room.empty();
        let (code, reason) = match &ending {
            Ending::Peer => return,
            Ending::Over => (1000, "the stream has ended".to_string()),
            Ending::Error(error) => (close_code(error), error.message().to_string()),
        };
        if let Ending::Error(error) = &ending {
            self.counts.refuse(error.status());
            error.count_in(&self.stream);
            let text = Message::text(error.to_json().to_string());
            if self.send(text).await.is_err() {
                return;
            }
        }
        let end = reason.floor_char_boundary(REASON_BYTES_MAX);
        let frame = CloseFrame { code, reason: reason[..end].into() };
        if self.send(Message::Close(Some(frame))).await.is_ok() {
            // The peer answers with a close of its own; until then the reason may be on its way.
            let rest = async { while let Some(Ok(_)) = messages.next().await {} };
            let _ = timeout(Duration::from_secs(2), rest).await;
        }
    }

    /// Talks until the stream is over.
    async fn converse(&mut self, messages: &mut SplitStream<WebSocket>) -> Result<(), Ending> {
        if self.named
            && let Some(inlet) = &self.inlet
        {
            let mark = inlet.mark();
            let welcome = json!({"offset": mark.offset, "acknowledged": self.told, "position": mark.position});
            self.send(Message::text(welcome.to_string())).await?;
        }
        let mut ping = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
        let mut silence = Silence::new(Instant::now());
        loop {
            self.tell().await?;
            silence.listen(Instant::now());
            tokio::select! {
                delivery = next(&mut self.outlet) => {
                    silence.look_away(Instant::now());
                    match delivery {
                        None => return Ok(()),
                        Some(delivery) => {
                            let delivery = delivery?;
                            self.deliver(&delivery).await?
                        }
                    }
                }
                message = messages.next() => {
                    silence.hear(Instant::now());
                    match message {
                        Some(Ok(Message::Text(text))) => self.take(text.into()).await?,
                        Some(Ok(Message::Binary(bytes))) => self.take(bytes).await?,
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                        Some(Ok(Message::Close(_))) | None => return Err(Ending::Peer),
                        // A message beyond the limit, a text that is not UTF-8, a frame that is none.
                        Some(Err(e)) => return Err(unreadable(&e).into()),
                    }
                }
                () = woken(&self.inlet) => silence.look_away(Instant::now()),
                error = self.watch.expired() => return Err(error.into()),
                _ = ping.tick() => {
                    silence.look_away(Instant::now());
                    if silence.lasts(Instant::now()) >= SILENCE_MAX {
                        Counts::add(&self.counts.broken);
                        return Err(Ending::Peer);
                    }
                    self.send(Message::Ping(Bytes::new())).await?;
                }
            }
        }
    }

    /// Sends a message; a peer that does not take it in time is gone.
    async fn send(&mut self, message: Message) -> Result<(), Ending> {
        match timeout(SEND_TIMEOUT, self.sink.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Ending::Peer),
        }
    }

    /// Sends rows.
    async fn deliver(&mut self, delivery: &Delivery) -> Result<(), Ending> {
        let Some(outlet) = &mut self.outlet else { return Ok(()) };
        let text = outlet.encode(delivery).map_err(|why| ApiError::internal(format!("stream '{}': {why}", self.name)))?;
        if text.is_empty() { Ok(()) } else { self.send(Message::Text(text)).await }
    }

    /// Takes a message of the peer: rows, or an acknowledgement.
    async fn take(&mut self, text: Bytes) -> Result<(), Ending> {
        let arrival_ns = now_ns();
        if let Some(offset) = self.acknowledgement(&text) {
            let Some(outlet) = &self.outlet else {
                return Err(ApiError::bad_request(format!("there are no rows of stream '{}' to acknowledge", self.name)).into());
            };
            return Ok(outlet.feed.acknowledge(offset)?);
        }
        let Some(inlet) = &mut self.inlet else {
            return Err(ApiError::forbidden(format!("nothing can be published into stream '{}' on this connection", self.name))
                .with_help("a job must read it, and the token must give the right to write")
                .into());
        };
        // Counted when it is there, since the library that reads messages does not tell before how long they are. While there is no
        // room, no other is read.
        if !self.room.try_grow(text.len()) {
            let more = tokio::select! {
                more = self.room.more(text.len()) => more,
                error = self.watch.expired() => return Err(error.into()),
            };
            self.room.keep(more);
        }
        let schema = inlet.schema();
        let batches = if text.len() <= DECODED_HERE_BYTES {
            text::decode(TextKind::JsonLines, &text, &schema)?
        } else {
            let _turn = DECODED_AT_ONCE.acquire().await;
            waiting(|| text::decode(TextKind::JsonLines, &text, &schema))?
        };
        let rows: usize = batches.iter().map(|b| b.num_rows()).sum();
        for batch in batches {
            let bytes = (text.len() as u64 * batch.num_rows() as u64).checked_div(rows as u64).unwrap_or(0);
            let mut rows = Incoming { batch, offset: None, position: None, bytes, arrival_ns };
            while let Some(back) = inlet.try_send(rows)? {
                tokio::select! {
                    () = inlet.woken() => {}
                    error = self.watch.expired() => return Err(error.into()),
                }
                rows = back;
            }
        }
        self.room.empty();
        Ok(())
    }

    /// The number in `{"ack": n}`, unless the stream itself has a column of that name.
    fn acknowledgement(&self, text: &[u8]) -> Option<u64> {
        if text.len() > 64 || !text.trim_ascii_start().starts_with(b"{") {
            return None;
        }
        if self.inlet.as_ref().is_some_and(|i| i.schema().field_with_name("ack").is_ok()) {
            return None;
        }
        let value: Value = serde_json::from_slice(text).ok()?;
        value.as_object().filter(|o| o.len() == 1)?.get("ack")?.as_u64()
    }

    /// Tells a publisher with a name of a new acknowledgement.
    async fn tell(&mut self) -> Result<(), Ending> {
        let Some(inlet) = &self.inlet else { return Ok(()) };
        let acknowledged = inlet.acknowledged()?;
        if !self.named || acknowledged <= self.told {
            return Ok(());
        }
        self.told = acknowledged;
        self.send(Message::text(json!({"acknowledged": acknowledged}).to_string())).await
    }
}

/// What a peer is told of a message that is none.
fn unreadable(error: &axum::Error) -> ApiError {
    let told = ApiError::bad_request(format!("reading a message: {error}"));
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(reason) = cause {
        // A peer that has gone has sent nothing wrong.
        if reason.is::<std::io::Error>() || reason.to_string().contains("without closing handshake") {
            return told;
        }
        cause = reason.source();
    }
    told.because(Refusal::Malformed)
}

/// The next delivery; never, if the connection only publishes.
async fn next(outlet: &mut Option<Outlet>) -> Option<Result<Arc<Delivery>, ApiError>> {
    match outlet {
        Some(outlet) => poll_fn(|context| outlet.feed.poll_next(context)).await,
        None => std::future::pending().await,
    }
}

/// Waits for something new of the inlet; for ever, if the connection only subscribes.
async fn woken(inlet: &Option<Inlet>) {
    match inlet {
        Some(inlet) => inlet.woken().await,
        None => std::future::pending().await,
    }
}

/// How a connection is closed for this reason.
fn close_code(error: &ApiError) -> u16 {
    match error.status() {
        StatusCode::TOO_MANY_REQUESTS => 1013,
        StatusCode::SERVICE_UNAVAILABLE => 1012,
        status if status.is_server_error() => 1011,
        _ => 1008,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A publisher that a job kept waiting for longer than silence may last was taken for gone, and lost its connection.
    #[test]
    fn who_is_kept_waiting_is_not_silent() {
        let begin = Instant::now();
        let at = |second| begin + Duration::from_secs(second);
        let mut silence = Silence::new(begin);
        silence.hear(at(10));
        silence.listen(at(200));
        assert_eq!(silence.lasts(at(201)), Duration::from_secs(1));
        silence.look_away(at(230));
        silence.listen(at(300));
        silence.listen(at(301));
        assert_eq!(silence.lasts(at(310)), Duration::from_secs(40));
        silence.hear(at(310));
        assert_eq!(silence.lasts(at(310)), Duration::ZERO);
    }

    #[test]
    fn codes() {
        for (error, code) in [
            (ApiError::exhausted("too slow"), 1013),
            (ApiError::unavailable("restarts"), 1012),
            (ApiError::internal("ours"), 1011),
            (ApiError::bad_request("yours"), 1008),
            (ApiError::unauthenticated("expired"), 1008),
        ] {
            assert_eq!(close_code(&error), code, "{error}");
        }
    }
}
