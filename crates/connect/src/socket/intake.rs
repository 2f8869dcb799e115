//! Rows from what other threads have read: the common reader of `socket` and `stdin`.
//!
//! The threads hand over chunks of bytes through a bounded channel, so that a slow job holds them
//! back and they in turn the peers. Each peer has its own decoder; rows of several peers leave in
//! one batch, in the order in which their bytes came.

use std::collections::HashMap;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use tidemill_format::RECORD_BYTES_MAX;
use tidemill_format::text::TextFormat;

use super::feed::Feed;
use crate::{ConnectError, Polled, ReadRequest, Reader, ReaderContext, Rows};

/// The most that a thread reads at once, bytes.
pub const CHUNK_BYTES: usize = 64 << 10;
/// Chunks in the channel: 2 MiB at most.
const CHUNKS_MAX: usize = 32;
/// Bytes that a decoder gets before its rows are taken out.
const DECODE_BYTES: usize = 1 << 20;

/// What a reading thread has to tell.
pub enum Event {
    /// A peer is there.
    Opened { peer: u64, place: String },
    /// Bytes of a peer.
    Bytes { peer: u64, bytes: Vec<u8>, arrival_ns: u64 },
    /// A peer is gone; `unfinished` as for [`Feed::end`].
    Closed { peer: u64, unfinished: Option<String> },
    /// Nothing follows, from any peer.
    Ended,
    /// Reading has failed.
    Failed(ConnectError),
}

/// The reader. See the module.
pub struct Intake {
    events: Receiver<Event>,
    /// An event taken from the channel and not yet dealt with.
    ahead: Option<Event>,
    feeds: HashMap<u64, Feed>,
    /// The peer whose feed may still have complete records, and whether it is gone.
    current: Option<(u64, bool)>,
    ended: bool,
    format: TextFormat,
    request: ReadRequest,
    record_bytes_max: usize,
    /// Called with a peer that must be cut off; without it such a peer is an error.
    refuse: Option<Box<dyn Fn(u64) + Send>>,
    /// Kept alive as long as the reader: its drop stops the threads.
    guard: Option<Box<dyn Send>>,
}

impl Intake {
    /// A reader and where its threads send their events. The waker must be called after each event.
    pub fn new(format: TextFormat, context: ReaderContext) -> (Sender<Event>, Self) {
        let (sender, events) = bounded(CHUNKS_MAX);
        let intake = Intake {
            events,
            ahead: None,
            feeds: HashMap::new(),
            current: None,
            ended: false,
            format,
            request: context.request,
            record_bytes_max: RECORD_BYTES_MAX,
            refuse: None,
            guard: None,
        };
        (sender, intake)
    }

    /// Limits the length of records.
    pub fn limit(mut self, record_bytes_max: usize) -> Self {
        self.record_bytes_max = record_bytes_max;
        self
    }

    /// Lets a peer whose records cannot be told apart cost only that peer: it is given to `refuse`.
    pub fn refusing(mut self, refuse: impl Fn(u64) + Send + 'static) -> Self {
        self.refuse = Some(Box::new(refuse));
        self
    }

    /// Ties something to the life of the reader; it is dropped after the channel.
    pub fn guarded(mut self, guard: impl Send + 'static) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }

    fn event(&mut self) -> Option<Event> {
        self.ahead.take().or_else(|| match self.events.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Empty) => None,
            // All threads are gone without a word (they have panicked).
            Err(TryRecvError::Disconnected) => Some(Event::Ended),
        })
    }

    /// Rows of the current peer; `None` if it has none left.
    fn drain(&mut self, rows_max: usize) -> Option<Rows> {
        let (peer, gone) = self.current?;
        if let Some(feed) = self.feeds.get_mut(&peer) {
            match feed.next(rows_max) {
                Ok(Some(rows)) => return Some(rows),
                Ok(None) => {}
                Err(error) => {
                    self.current = None;
                    let Some(refuse) = &self.refuse else {
                        self.ahead = Some(Event::Failed(ConnectError::from(error).at(format_args!("reading from {}", feed.place()))));
                        return None;
                    };
                    let rows = feed.refuse(error.to_string());
                    // Its further bytes find no feed and are dropped, until the thread notices.
                    refuse(peer);
                    self.feeds.remove(&peer);
                    return Some(rows);
                }
            }
            if gone {
                self.feeds.remove(&peer);
            }
        }
        self.current = None;
        None
    }

    /// Gives a feed its bytes and those that are waiting behind them.
    fn push(&mut self, peer: u64, bytes: Vec<u8>, arrival_ns: u64) {
        let mut next = Some((bytes, arrival_ns));
        while let Some((bytes, arrival_ns)) = next.take() {
            let Some(feed) = self.feeds.get_mut(&peer) else { return };
            let enough = bytes.len() >= DECODE_BYTES || feed.buffered() >= DECODE_BYTES;
            feed.push(bytes, arrival_ns);
            if enough {
                break;
            }
            match self.event() {
                Some(Event::Bytes { peer: same, bytes, arrival_ns }) if same == peer => next = Some((bytes, arrival_ns)),
                other => self.ahead = other,
            }
        }
        self.current = Some((peer, false));
    }
}

impl Reader for Intake {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let rows_max = rows_max.max(1);
        let (mut parts, mut count): (Vec<Rows>, usize) = (Vec::new(), 0);
        while count < rows_max {
            if let Some(rows) = self.drain(rows_max - count) {
                count += rows.batch.num_rows() + rows.bad.len();
                parts.push(rows);
                continue;
            }
            if self.ended {
                break;
            }
            match self.event() {
                None => break,
                Some(Event::Opened { peer, place }) => {
                    let decoder = self.format.decoder(&self.request.physical, &self.request.projection)?;
                    self.feeds.insert(peer, Feed::new(decoder, place, self.record_bytes_max));
                }
                Some(Event::Bytes { peer, bytes, arrival_ns }) => self.push(peer, bytes, arrival_ns),
                Some(Event::Closed { peer, unfinished }) => {
                    if let Some(feed) = self.feeds.get_mut(&peer) {
                        feed.end(unfinished);
                        self.current = Some((peer, true));
                    }
                }
                Some(Event::Ended) => self.ended = true,
                Some(Event::Failed(error)) if parts.is_empty() => return Err(error),
                Some(failed) => {
                    // First the rows that came before.
                    self.ahead = Some(failed);
                    break;
                }
            }
        }
        match (Rows::merge(parts)?, self.ended) {
            (Some(rows), _) => Ok(Polled::Rows(rows)),
            (None, true) => Ok(Polled::End),
            (None, false) => Ok(Polled::Pending),
        }
    }

    /// Nothing can be read again.
    fn position(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}
