//! Rows of the requests to one path: one split, whose position is the number of bodies given.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use serde_json::{Value, json};
use tidemill_connect::socket::feed::Feed;
use tidemill_connect::{ConnectError, Polled, ReadRequest, Reader, ReaderContext, Rows, Source, Split};
use tidemill_format::text::TextFormat;

use super::Format;
use super::body::Payload;
use super::inbox::{Body, Counts, Inbox, Room};
use super::listener::{Lease, lease};
use super::options::HttpOptions;

/// Bodies of fewer rows are joined with those behind them that are at hand.
const ROWS_ENOUGH: usize = 1024;
/// Bytes that a decoder gets before its rows are taken out.
const DECODE_BYTES: usize = 1 << 20;

/// The source.
pub struct HttpSource {
    options: HttpOptions,
    format: Format,
    owner: String,
    address: SocketAddr,
    /// Of the reader that was opened last.
    inbox: Mutex<Option<Arc<Inbox>>>,
}

impl HttpSource {
    /// The source of the table `owner`.
    ///
    /// # Errors
    /// The host has no address.
    pub fn new(options: HttpOptions, format: Format, owner: &str) -> Result<Self, ConnectError> {
        let port = options.port.unwrap_or_default();
        let addresses = (options.hostname.as_str(), port).to_socket_addrs();
        let address = addresses.as_ref().ok().and_then(|all| all.as_slice().first().copied()).ok_or_else(|| {
            let why = addresses.err().map_or("it has none".to_string(), |e| e.to_string());
            ConnectError::new(format!("option 'hostname' = '{}': finding the address to listen on: {why}", options.hostname))
        })?;
        Ok(HttpSource { options, format, owner: owner.to_string(), address, inbox: Mutex::default() })
    }

    fn inbox(&self) -> MutexGuard<'_, Option<Arc<Inbox>>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the split, listening on `socket` if it is given and nobody listens there yet.
    pub(super) fn read(&self, split: &Split, context: ReaderContext, socket: Option<TcpListener>) -> Result<HttpReader, ConnectError> {
        // A split that nobody opens keeps its position, so numbers go on where they stood.
        let last = split.position.as_ref().and_then(taken).unwrap_or(0);
        let ReaderContext { waker, request, .. } = context;
        let inbox = Arc::new(Inbox::new(self.options.clone(), self.format.clone(), request, self.owner.clone(), last, waker));
        let lease = lease(self.address, inbox.clone(), socket)?;
        if let Some(earlier) = self.inbox().replace(inbox.clone()) {
            earlier.end();
        }
        Ok(HttpReader { inbox, current: None, taken: last, _lease: lease })
    }
}

/// The number in a position.
fn taken(position: &Value) -> Option<u64> {
    position.get("requests")?.as_u64()
}

impl Source for HttpSource {
    fn bounded(&self) -> bool {
        false
    }

    fn listens(&self) -> bool {
        true
    }

    fn splits(&self, _parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        Ok(vec![Split::new(format!("{}{}", self.address, self.options.path))])
    }

    fn open(&self, split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError> {
        Ok(Box::new(self.read(split, context, None)?))
    }

    /// Whoever was answered does not send again.
    fn replays(&self) -> Option<bool> {
        Some(false)
    }

    fn committed(&self, positions: &[Value]) {
        if let (Some(inbox), Some(number)) = (&*self.inbox(), positions.iter().filter_map(taken).max()) {
            inbox.committed(number);
        }
    }

    fn wants_checkpoint(&self) -> bool {
        self.inbox().as_ref().is_some_and(|inbox| inbox.wants_checkpoint())
    }
}

impl Drop for HttpSource {
    /// No checkpoint follows: who waits for one is told.
    fn drop(&mut self) {
        if let Some(inbox) = self.inbox().take() {
            inbox.end();
        }
    }
}

/// Reads what requests bring.
pub struct HttpReader {
    inbox: Arc<Inbox>,
    current: Option<Current>,
    /// The number of the last body given as a whole.
    taken: u64,
    /// Dropped last: then the port is free.
    _lease: Lease,
}

impl Drop for HttpReader {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

impl Reader for HttpReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let rows_max = rows_max.max(1);
        let (mut parts, mut count): (Vec<Rows>, usize) = (Vec::new(), 0);
        while count < rows_max.min(ROWS_ENOUGH) {
            let current = match &mut self.current {
                Some(current) => current,
                none => match self.inbox.pop() {
                    Some(body) => none.insert(Current::new(body, &self.inbox.format, &self.inbox.request)?),
                    None => break,
                },
            };
            match current.next(rows_max - count) {
                Some(rows) => {
                    count += rows.batch.num_rows() + rows.bad.len();
                    parts.push(rows);
                }
                None => {
                    self.taken = current.number;
                    if current.counts.is_some() {
                        self.inbox.taken(current.number);
                    }
                    self.current = None;
                }
            }
        }
        Ok(Rows::merge(parts)?.map_or(Polled::Pending, Polled::Rows))
    }

    /// Nothing can be asked for again; it says which requests may be told that their rows are safe.
    fn position(&self) -> Value {
        json!({"requests": self.taken})
    }
}

/// A body that is being given.
struct Current {
    number: u64,
    content: Content,
    arrival_ns: u64,
    counts: Option<Arc<Counts>>,
    /// Given back with it.
    _room: Room,
}

enum Content {
    Text(Text),
    /// Batches; and the bytes that are not counted yet.
    Rows(VecDeque<RecordBatch>, u64),
}

/// A text on its way through the decoder.
struct Text {
    feed: Feed,
    text: Vec<u8>,
    /// How much of it the decoder has.
    at: usize,
    /// The decoder knows that nothing follows.
    ended: bool,
    /// Nothing more can be told apart.
    failed: bool,
}

impl Current {
    fn new(body: Body, format: &Format, request: &ReadRequest) -> Result<Self, ConnectError> {
        let Body { number, payload, bytes, place, arrival_ns, counts, room } = body;
        let content = match (payload, format) {
            (Payload::Text(text), Format::Text(format)) => Content::Text(Text::new(text, format, request, place, number)?),
            (Payload::Rows(batches), _) => Content::Rows(batches.into(), bytes),
            (Payload::Text(_), Format::Arrow) => return Err(ConnectError::new("internal error: a text for a table that takes none")),
        };
        Ok(Current { number, content, arrival_ns, counts, _room: room })
    }

    /// Up to `rows_max` rows; `None` when all are given.
    fn next(&mut self, rows_max: usize) -> Option<Rows> {
        let rows = match &mut self.content {
            Content::Text(text) => text.next(rows_max, self.arrival_ns)?,
            Content::Rows(batches, bytes) => {
                let batch = batches.front_mut()?;
                let rows = batch.num_rows();
                let part = if rows > rows_max {
                    let part = batch.slice(0, rows_max);
                    *batch = batch.slice(rows_max, rows - rows_max);
                    part
                } else {
                    batches.pop_front()?
                };
                // A body counts when its first rows are given.
                Rows::good(part, self.arrival_ns, std::mem::take(bytes))
            }
        };
        if let Some(counts) = &self.counts {
            counts.rows.fetch_add(rows.batch.num_rows() as u64, Ordering::AcqRel);
            counts.bad.fetch_add(rows.bad.len() as u64, Ordering::AcqRel);
        }
        Some(rows)
    }
}

impl Text {
    fn new(text: Vec<u8>, format: &TextFormat, request: &ReadRequest, place: String, number: u64) -> Result<Self, ConnectError> {
        let decoder = format.decoder(&request.physical, &request.projection)?;
        // The decoder itself knows how long a record can be.
        let feed = Feed::new(decoder, format!("{place} request {number}"), usize::MAX);
        Ok(Text { feed, text, at: 0, ended: false, failed: false })
    }

    fn next(&mut self, rows_max: usize, arrival_ns: u64) -> Option<Rows> {
        while !self.failed {
            match self.feed.next(rows_max) {
                Ok(Some(rows)) => return Some(rows),
                Ok(None) if self.ended => return None,
                Ok(None) => {
                    let end = self.text.len().min(self.at + DECODE_BYTES);
                    if end > self.at {
                        self.feed.push(self.text[self.at..end].to_vec(), arrival_ns);
                    }
                    self.at = end;
                    if end == self.text.len() {
                        self.feed.end(None);
                        self.ended = true;
                    }
                }
                // What is left of this body cannot be told apart; others are not harmed by it.
                Err(error) => {
                    let mut rows = self.feed.refuse(error.to_string());
                    let rest = &self.text[self.at..];
                    rows.bytes += rest.len() as u64;
                    if let Some(bad) = rows.bad.first_mut() {
                        bad.raw.extend_from_slice(rest);
                    }
                    self.failed = true;
                    return Some(rows);
                }
            }
        }
        None
    }
}
