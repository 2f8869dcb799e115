//! A request and its answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json;
use axum::body::BodyDataStream;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde_json::json;
use tidemill_block::clock;
use tidemill_format::compression::Compression;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::answer::Refusal;
use super::body::{self, Kind, Payload};
use super::inbox::{Body, Counts, Inbox, Refused, Room};
use super::listener::{Peer, Shared};
use super::options::Answer;
use crate::headers;

/// A body up to this size is opened where it is read; a longer one on a thread of its own, so that
/// others are served meanwhile. About 0.1 ms.
const OPENED_HERE_BYTES: usize = 64 << 10;
/// Room for a body whose length nobody has announced is taken in steps of so many bytes.
const ROOM_STEP_BYTES: usize = 256 << 10;
/// How much is set aside at once for a body of an announced length.
const ANNOUNCED_BYTES_MAX: usize = 1 << 20;
/// Before any of it has come no body holds more room than this part of the queue, lest one that never comes keep all others waiting.
/// Of 64 MB that is 2 MB, so usual bodies get theirs at once.
const AHEAD_PART: usize = 32;
/// The same for small queues, of which a step may be more.
const AHEAD_PART_OF_SMALL: usize = 4;
/// So much of a refused body is read before the answer, and for so long.
const DISCARDED_BYTES_MAX: usize = 1 << 20;
const DISCARD_PATIENCE: Duration = Duration::from_millis(200);

/// Bodies opened at once on threads of their own; each may take its size twice for a while.
static OPENED_AT_ONCE: Semaphore = Semaphore::const_new(4);

/// Takes the rows of a request.
pub async fn take(State(shared): State<Arc<Shared>>, ConnectInfo(peer): ConnectInfo<Peer>, request: Request) -> Response {
    let _busy = peer.busy();
    let (parts, body) = request.into_parts();
    let mut chunks = body.into_data_stream();
    // Whoever waits to be asked for the body sends none before.
    let mut comes = !parts.headers.contains_key(header::EXPECT);
    match accept(&shared, &peer, &parts, &mut chunks, &mut comes).await {
        Ok(response) => response,
        Err(refusal) => {
            shared.count_refused();
            if comes {
                discard(&mut chunks).await;
            }
            refusal.into_response()
        }
    }
}

/// Reads the beginning of a body that nobody wants: if its connection were closed with bytes unread, the
/// sender would see it break and not the answer.
async fn discard(chunks: &mut BodyDataStream) {
    let all = async {
        let mut left = DISCARDED_BYTES_MAX;
        while let Some(Ok(chunk)) = chunks.next().await {
            let Some(rest) = left.checked_sub(chunk.len()) else { return };
            left = rest;
        }
    };
    // Whoever takes longer is not waited for.
    let _ = timeout(DISCARD_PATIENCE, all).await;
}

/// Says in `comes` that the body is asked for.
async fn accept(shared: &Shared, peer: &Peer, parts: &Parts, chunks: &mut BodyDataStream, comes: &mut bool) -> Result<Response, Refusal> {
    let path = parts.uri.path();
    let inbox = shared
        .table(path)
        .ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, format!("no table reads the path '{path}'")).help("see 'path' of the table"))?;
    if inbox.options.token.as_ref().is_some_and(|token| !headers::brings(&parts.headers, token)) {
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, "a token is needed").help("send 'Authorization: Bearer <token>'"));
    }
    if parts.method != Method::POST && parts.method != Method::PUT {
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, format!("{} brings no rows; use POST or PUT", parts.method)));
    }
    let answer = asked(parts.uri.query(), inbox.options.answer)?;
    let (kind, packing) = described(&parts.headers, &inbox)?;
    let mut room = inbox.room();
    let announced = parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > inbox.options.body_max.0) {
        return Err(Refusal::too_large(inbox.options.body_max.0));
    }
    let announced = announced.map(|bytes| bytes as usize);
    let (ahead, mut early) = (ahead_bytes(&inbox), inbox.early());
    let begun = match announced {
        Some(bytes) if bytes <= ahead => room.grow(bytes).await,
        Some(_) => early.grow(ahead).await,
        None => Ok(()),
    };
    begun.map_err(|why| refused(why, &inbox))?;
    *comes = true;
    let bytes = read(chunks, announced, &mut room, early, &inbox).await?;
    let arrival_ns = clock::now_ns();
    let (payload, bytes) = open(kind, packing, bytes, &inbox).await?;
    room.grow(bytes).await.map_err(|why| refused(why, &inbox))?;
    let counts = (answer == Answer::Commit).then(Arc::<Counts>::default);
    let place = peer.address.to_string();
    let body = Body { number: 0, payload, bytes: bytes as u64, place, arrival_ns, counts: counts.clone(), room };
    let number = inbox.push(body).map_err(|why| refused(why, &inbox))?;
    let Some(counts) = counts else {
        return Ok((StatusCode::ACCEPTED, Json(json!({"queued": bytes}))).into_response());
    };
    if inbox.safe(number).await.is_err() {
        return Err(Refusal::unavailable("the job has ended before the rows were committed", 1).help("send them again when it runs"));
    }
    let (rows, bad) = (counts.rows.load(Ordering::Acquire), counts.bad.load(Ordering::Acquire));
    Ok((StatusCode::OK, Json(json!({"committed": bytes, "rows": rows, "bad_records": bad}))).into_response())
}

/// When the request wants to be answered.
fn asked(query: Option<&str>, default: Answer) -> Result<Answer, Refusal> {
    match query {
        None | Some("") => Ok(default),
        Some("wait=commit") => Ok(Answer::Commit),
        Some("wait=queued") => Ok(Answer::Queued),
        Some(other) => Err(Refusal::new(StatusCode::BAD_REQUEST, format!("the query '{other}' is not understood"))
            .help("'?wait=commit' or '?wait=queued' say when to answer; there is nothing else to ask for")),
    }
}

/// What the request says that its body is.
fn described(headers: &HeaderMap, inbox: &Inbox) -> Result<(Kind, Compression), Refusal> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let (given, encoding) = (text(header::CONTENT_TYPE), text(header::CONTENT_ENCODING));
    let Some(kind) = given.and_then(Kind::of).filter(|kind| kind.fits(&inbox.format)) else {
        let given = given.map_or("without Content-Type it".to_string(), |given| format!("Content-Type '{given}'"));
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("{given} is not what this table takes"))
            .help(format!("send {}", body::accepted(&inbox.format))));
    };
    let Some(packing) = body::packing(encoding.unwrap_or_default()) else {
        let given = encoding.unwrap_or_default();
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("Content-Encoding '{given}' is not taken"))
            .help("pack the body with gzip or zstd, or not at all"));
    };
    Ok((kind, packing))
}

/// The whole body; room is taken before its bytes are kept. A large body takes it for its beginning (`early`), and once that has
/// come for all of it at once, when it is its turn: bodies that have come in part do not wait for each other. One of unknown
/// length takes it little by little, and keeps its turn until it is there. Only the wait for bytes counts as the sender's.
async fn read(
    chunks: &mut BodyDataStream,
    announced: Option<usize>,
    room: &mut Room,
    mut early: Room,
    inbox: &Inbox,
) -> Result<Vec<u8>, Refusal> {
    let (bytes_max, patience) = (inbox.options.body_max.0, inbox.options.request_timeout);
    let ahead = ahead_bytes(inbox);
    let beginning = ahead.min(ROOM_STEP_BYTES);
    let (mut reserved, mut turn) = (announced.map_or(0, |bytes| bytes.min(ahead)), None);
    let full = |why| refused(why, inbox);
    let mut all = Vec::with_capacity(announced.unwrap_or(0).min(ANNOUNCED_BYTES_MAX));
    let mut left = patience;
    loop {
        let begun = Instant::now();
        let next = timeout(left, chunks.next()).await.map_err(|_| {
            Refusal::new(StatusCode::REQUEST_TIMEOUT, format!("the body did not come within {} ms", patience.as_millis()))
                .help("nothing of it was taken; send fewer rows at once, or raise 'request.timeout' of the table")
        })?;
        left = left.saturating_sub(begun.elapsed());
        let Some(chunk) = next else {
            // A short one of unknown length has none in the queue yet.
            room.grow(all.len()).await.map_err(full)?;
            return Ok(all);
        };
        let chunk = chunk.map_err(|e| Refusal::unreadable(format_args!("it broke off ({e})")))?;
        let bytes = all.len() + chunk.len();
        if bytes as u64 > bytes_max {
            return Err(Refusal::too_large(bytes_max));
        }
        if announced.is_none() && bytes > reserved && bytes <= beginning {
            reserved = beginning;
            early.grow(reserved).await.map_err(full)?;
        } else if bytes > reserved {
            if turn.is_none() {
                turn = Some(inbox.turn().await.map_err(full)?);
            }
            reserved = announced.unwrap_or_else(|| bytes.next_multiple_of(ROOM_STEP_BYTES)).max(bytes);
            room.grow(reserved).await.map_err(full)?;
            early.leave();
            if announced.is_some() {
                turn = None;
            }
        }
        all.extend_from_slice(&chunk);
    }
}

/// How much room a body of an announced length may hold ahead of its bytes.
fn ahead_bytes(inbox: &Inbox) -> usize {
    let queue = inbox.options.queue.0 as usize;
    (queue / AHEAD_PART).max(ROOM_STEP_BYTES.min(queue / AHEAD_PART_OF_SMALL)).max(1)
}

/// Opens a body here or on a thread of its own.
async fn open(kind: Kind, packing: Compression, bytes: Vec<u8>, inbox: &Arc<Inbox>) -> Result<(Payload, usize), Refusal> {
    let inbox = inbox.clone();
    let work = packing != Compression::None || matches!(kind, Kind::Json | Kind::Arrow);
    let here = !work || (packing == Compression::None && bytes.len() <= OPENED_HERE_BYTES);
    let open = move || body::open(kind, packing, bytes, inbox.options.body_max.0, &inbox.format, &inbox.request);
    if here {
        return open();
    }
    let _turn = OPENED_AT_ONCE.acquire().await;
    let opened = Handle::current().spawn_blocking(open).await;
    opened.unwrap_or_else(|e| Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("internal error: {e}"))))
}

/// What a full or closed queue means for a sender.
fn refused(why: Refused, inbox: &Inbox) -> Refusal {
    match why {
        Refused::Full => {
            let waited = inbox.options.queue_timeout;
            let text = format!(
                "the queue of the table has been full for {} ms: the job does not keep up, or other bodies have come in part",
                waited.as_millis()
            );
            Refusal::unavailable(text, waited.as_secs().max(1)).help("nothing of the body was taken; send it again later")
        }
        Refused::Gone => Refusal::unavailable("the job that reads the table has ended", 1)
            .help("nothing of the body was taken; send it again when it runs"),
    }
}
