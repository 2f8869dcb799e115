//! `POST /v1/streams/{name}`: rows as JSON, CSV or an Arrow IPC stream.
//!
//! A text is taken whole or not at all. An Arrow stream is taken message by message as it comes, so that
//! it may be endless; an error says how many of its rows were taken. There is room for the bytes of either before they are kept
//! ([`crate::room`]).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::{Extension, Json};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tidemill_block::clock::now_ns;
use tidemill_hub::{Incoming, Refusal, Stream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::ipc::StreamBody;
use super::text::{self, TextKind};
use super::{BatchDecoder, Inlet, Shared, Watch, find};
use crate::auth::Access;
use crate::error::ApiError;
use crate::limits::{BODY_SILENCE, NAME_BYTES_MAX};
use crate::room::Room;
use crate::state::AppState;

/// A text up to this size is decoded where it is read; a longer one on a thread of its own, or while another thread sees to
/// the tasks of this one, so that others are served meanwhile. About 0.2 ms.
pub(super) const DECODED_HERE_BYTES: usize = 64 << 10;

/// Longer texts decoded at once; each takes memory for its rows beside its own.
pub(super) static DECODED_AT_ONCE: Semaphore = Semaphore::const_new(4);

/// So much of a refused body is read before the answer, and for so long: a connection that is closed with bytes unread breaks, and
/// the answer with it.
const DISCARDED_BYTES_MAX: usize = 1 << 20;
const DISCARD_PATIENCE: Duration = Duration::from_millis(200);

/// The query of [`publish`].
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PublishQuery {
    /// The publisher's name: its rows are counted, and none is taken twice.
    publisher: String,
    /// The number of the first row.
    offset: Option<u64>,
    /// When to answer.
    wait: Wait,
}

/// When a publisher is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Wait {
    /// When the stream has the rows.
    #[default]
    Taken,
    /// When a checkpoint has made them safe.
    Ack,
}

/// What a body holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text(TextKind),
    Arrow,
}

/// Takes the rows of a request.
pub(super) async fn publish(
    State(state): Shared,
    Extension(access): Extension<Access>,
    Path(name): Path<String>,
    query: Result<Query<PublishQuery>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    access.require_write(&name)?;
    let Query(query) = query.map_err(|e| {
        ApiError::bad_request(format!("reading the query: {}", e.body_text())).with_help("known are: publisher, offset, wait=ack")
    })?;
    if query.publisher.len() > NAME_BYTES_MAX {
        return Err(ApiError::bad_request(format!("the publisher's name is longer than {NAME_BYTES_MAX} bytes")));
    }
    let kind = kind(&headers)?;
    let stream = find(&state, &name)?;
    let mut body = Incomings { body: body.into_data_stream(), watch: Watch::new(access) };
    let mut taken = Taken { rows: 0, offset: query.offset };
    // Given back when the stream has the rows.
    let mut room = state.pending.room();
    room.of_stream(&name);
    let published = match kind {
        _ if stream.inlet_schema().is_none() => Err(state.no_reader(&name)),
        Kind::Text(kind) => take_text(kind, &mut body, &stream, &query, &state, &mut taken, &mut room).await,
        Kind::Arrow => take_arrow(&mut body, &stream, &query, &state, &mut taken, &mut room).await,
    };
    drop(room);
    if published.is_err() {
        body.discard().await;
    }
    let told = |e: ApiError| match taken.rows {
        0 => e,
        rows => e.with_help(format!(
            "{rows} rows before were taken; publish under a name (?publisher=…&offset=…) to go on without repeating them"
        )),
    };
    let inlet = published.inspect_err(|e| e.count_in(&stream)).map_err(told)?;
    let mut answer = json!({"rows": taken.rows, "offset": inlet.end()});
    if query.wait == Wait::Ack {
        answer["acknowledged"] = body.watch.during(inlet.safe()).await.map_err(told)?.into();
    }
    Ok(Json(answer))
}

/// How far a request has come.
struct Taken {
    rows: u64,
    /// The number of the next row, if the publisher counts them.
    offset: Option<u64>,
}

impl Taken {
    fn count(&mut self, rows: usize) {
        self.rows += rows as u64;
        self.offset = self.offset.map(|offset| offset + rows as u64);
    }
}

/// The bytes of a request as they come, while its token is good.
struct Incomings {
    body: axum::body::BodyDataStream,
    watch: Watch,
}

impl Incomings {
    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        tokio::select! {
            chunk = self.body.next() => match chunk {
                None => Ok(None),
                Some(Ok(chunk)) => Ok(Some(chunk)),
                Some(Err(e)) => Err(ApiError::bad_request(format!("reading the body: {e}"))),
            },
            expired = self.watch.expired() => Err(expired),
        }
    }

    /// Reads on for a moment what nobody wants.
    async fn discard(&mut self) {
        let all = async {
            let mut left = DISCARDED_BYTES_MAX;
            while let Ok(Some(chunk)) = self.next().await {
                let Some(rest) = left.checked_sub(chunk.len()) else { return };
                left = rest;
            }
        };
        // Whoever takes longer is not waited for.
        let _ = timeout(DISCARD_PATIENCE, all).await;
    }
}

async fn take_text(
    kind: TextKind,
    body: &mut Incomings,
    stream: &Arc<Stream>,
    query: &PublishQuery,
    state: &AppState,
    taken: &mut Taken,
    room: &mut Room,
) -> Result<Inlet, ApiError> {
    let limit = state.limits.block_bytes;
    let mut all = BytesMut::new();
    // What has come is held in memory until the rest is there.
    while let Some(chunk) = timeout(BODY_SILENCE, body.next()).await.unwrap_or_else(|_| Err(too_late()))? {
        if all.len() + chunk.len() > limit {
            return Err(ApiError::too_large(format!("the body is longer than {limit} bytes"))
                .with_help("send fewer records at once, or an Arrow IPC stream, which may be endless"));
        }
        room.grow(all.len() + chunk.len()).await?;
        all.extend_from_slice(&chunk);
    }
    let arrival_ns = now_ns();
    // Before the publisher is opened, which ends an earlier one of its name.
    let schema = stream.inlet_schema().ok_or_else(|| state.no_reader(stream.name()))?;
    let bytes = all.len();
    let batches = if bytes <= DECODED_HERE_BYTES {
        text::decode(kind, &all, &schema)?
    } else {
        let schema = schema.clone();
        let turn = DECODED_AT_ONCE.acquire().await;
        // Who gives up does not end the decoding, which goes on with its turn.
        let decode = move || {
            let _turn = turn;
            text::decode(kind, &all, &schema)
        };
        let decoded = Handle::current().spawn_blocking(decode).await;
        decoded.unwrap_or_else(|e| Err(ApiError::internal(format!("internal error: {e}"))))?
    };
    let mut inlet = connect(state, stream, query)?;
    if inlet.schema() != schema {
        return Err(replaced(stream));
    }
    let rows: usize = batches.iter().map(|b| b.num_rows()).sum();
    for batch in batches {
        let count = batch.num_rows();
        let share = (bytes as u64 * count as u64).checked_div(rows as u64).unwrap_or(0);
        let incoming = Incoming { batch, offset: taken.offset, position: None, bytes: share, arrival_ns };
        body.watch.during(inlet.send(incoming)).await?;
        taken.count(count);
    }
    Ok(inlet)
}

async fn take_arrow(
    body: &mut Incomings,
    stream: &Arc<Stream>,
    query: &PublishQuery,
    state: &AppState,
    taken: &mut Taken,
    room: &mut Room,
) -> Result<Inlet, ApiError> {
    let limit = state.limits.block_bytes;
    let target = stream.inlet_schema().ok_or_else(|| state.no_reader(stream.name()))?;
    let mut messages = StreamBody::default();
    let mut open: Option<(BatchDecoder, Inlet)> = None;
    while let Some(chunk) = body.next().await? {
        let arrival_ns = now_ns();
        room.grow(messages.buffered() + chunk.len()).await?;
        messages.push(&chunk);
        while let Some((header, block)) = messages.next(limit)? {
            let Some((decoder, inlet)) = &mut open else {
                let decoder = BatchDecoder::new(&header, target.clone(), limit)?;
                let inlet = connect(state, stream, query)?;
                if inlet.schema() != target {
                    return Err(replaced(stream));
                }
                open = Some((decoder, inlet));
                continue;
            };
            let bytes = (header.len() + block.len()) as u64;
            if let Some(batch) = decoder.decode(&header, block)? {
                let (count, bytes) = (batch.num_rows(), bytes.max(decoder.unpacked()));
                let incoming = Incoming { batch, offset: taken.offset, position: None, bytes, arrival_ns };
                body.watch.during(inlet.send(incoming)).await?;
                taken.count(count);
            }
        }
        // An endless one holds no more than the message that has begun.
        room.empty();
        let _ = room.try_grow(messages.buffered());
    }
    messages.finish()?;
    let (_, inlet) = open.ok_or_else(|| {
        ApiError::bad_request("the body is empty: an Arrow IPC stream begins with its schema").because(Refusal::Malformed)
    })?;
    Ok(inlet)
}

/// Connects who publishes. One that counts its rows is not told where to go on, and is away until its next request.
fn connect(state: &AppState, stream: &Arc<Stream>, query: &PublishQuery) -> Result<Inlet, ApiError> {
    let inlet = Inlet::open(state, stream, &query.publisher)?;
    if query.offset.is_some() {
        inlet.keep_name();
    }
    Ok(inlet)
}

fn replaced(stream: &Stream) -> ApiError {
    ApiError::unavailable(format!("the job that reads stream '{}' was just replaced", stream.name())).with_help("publish again")
}

fn too_late() -> ApiError {
    let error = format!("nothing more of the body has come for {} seconds", BODY_SILENCE.as_secs());
    ApiError::too_late(error)
        .with_help("nothing was taken; send what is there as a body of its own, or an Arrow IPC stream, which may pause")
}

/// What the request says that its body is.
fn kind(headers: &HeaderMap) -> Result<Kind, ApiError> {
    let given = headers.get(header::CONTENT_TYPE).map(|v| v.to_str().unwrap_or("?"));
    let bare = given.map(|g| g.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
    Ok(match bare.as_deref() {
        Some("application/json") => Kind::Text(TextKind::Json),
        Some("application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/x-jsonlines") => {
            Kind::Text(TextKind::JsonLines)
        }
        Some("text/csv" | "application/csv") => Kind::Text(TextKind::Csv),
        Some("application/vnd.apache.arrow.stream") => Kind::Arrow,
        _ => {
            let given = given.map_or("no Content-Type".to_string(), |g| format!("Content-Type '{g}'"));
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(ApiError::new(status, format!("{given} does not say how the rows are written")).with_help(
                "application/json, application/x-ndjson, text/csv (with a header line) or application/vnd.apache.arrow.stream",
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_bodies() {
        let of = |text: &'static str| kind(&HeaderMap::from_iter([(header::CONTENT_TYPE, text.parse().unwrap())]));
        assert_eq!(of("application/json; charset=utf-8").unwrap(), Kind::Text(TextKind::Json));
        assert_eq!(of("application/x-ndjson").unwrap(), Kind::Text(TextKind::JsonLines));
        assert_eq!(of("TEXT/CSV").unwrap(), Kind::Text(TextKind::Csv));
        assert_eq!(of("application/vnd.apache.arrow.stream").unwrap(), Kind::Arrow);
        assert_eq!(of("text/plain").unwrap_err().status(), 415);
        assert_eq!(kind(&HeaderMap::new()).unwrap_err().status(), 415);
    }
}
