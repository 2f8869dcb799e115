//! One connection of a subscriber.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::datatypes::SchemaRef;
use tidemill_connect::Waker;

use crate::contents::ContentsReader;
use crate::delivery::{Delivery, Received};
use crate::error::HubError;
use crate::log::{self, SegmentReader};
use crate::outlet::{Begin, Ending, Found, Mailbox, Outlet};
use crate::stream::{Stream, SubscribeRequest};

/// Gets the rows of a stream. Dropped, it is unsubscribed.
pub struct Subscriber {
    stream: Arc<Stream>,
    outlet: Arc<Outlet>,
    mailbox: Arc<Mailbox>,
    feed: Feed,
}

/// Where its rows come from.
enum Feed {
    /// These, then the mailbox.
    Live {
        first: VecDeque<Arc<Delivery>>,
        /// The number of the next row.
        offset: u64,
    },
    Log(LogCursor),
}

/// A place in the log.
struct LogCursor {
    contents: Option<ContentsReader>,
    /// The number of the next row.
    offset: u64,
    open: Option<SegmentReader>,
}

impl Subscriber {
    pub(crate) fn open(stream: &Arc<Stream>, outlet: Arc<Outlet>, request: SubscribeRequest, waker: Waker) -> Result<Self, HubError> {
        let bound = request.queue_bytes.unwrap_or(outlet.queue_bytes()).max(1);
        let mailbox = Arc::new(Mailbox::new(waker, request.slow, bound, request.name.clone()));
        let feed = match outlet.subscribe(&mailbox, &request)? {
            Begin::Live(first, offset) => Feed::Live { first, offset },
            Begin::Log(contents, offset) => Feed::Log(LogCursor { contents, offset, open: None }),
        };
        Ok(Subscriber { stream: stream.clone(), outlet, mailbox, feed })
    }

    /// The columns of the rows.
    pub fn schema(&self) -> SchemaRef {
        self.outlet.wire.clone()
    }

    /// The number of the next row: behind those handed over so far, in the beginning that of the first.
    /// Contents have no numbers; with them it is that of the first change.
    pub fn offset(&self) -> u64 {
        match &self.feed {
            Feed::Live { offset, .. } => *offset,
            Feed::Log(cursor) => cursor.offset,
        }
    }

    /// Whether it acknowledges rows and has not acknowledged all that it was handed.
    pub fn owes(&self) -> bool {
        match (&self.outlet.log, &self.mailbox.name) {
            (Some(log), Some(name)) => log.acknowledged_by(name) < self.offset(),
            _ => false,
        }
    }

    /// Whether the next rows are read from a file.
    pub fn reads_file(&self) -> bool {
        match (&self.feed, &self.outlet.log) {
            (Feed::Log(cursor), Some(log)) => cursor.contents.is_some() || cursor.open.is_some() || !log.is_at_hand(cursor.offset),
            _ => false,
        }
    }

    /// The next rows. Never waits for the job, but may read a file ([`Subscriber::reads_file`]).
    ///
    /// # Errors
    /// [`HubError::TooSlow`]; [`HubError::Gone`] if the job that writes the stream was stopped, has
    /// failed or restarts; [`HubError::Replaced`] if another subscriber took the name;
    /// [`HubError::Refused`] if rows are no longer kept; a file that cannot be read. Nothing follows.
    pub fn try_next(&mut self) -> Result<Received, HubError> {
        let received = match &mut self.feed {
            Feed::Live { first, .. } => match first.pop_front() {
                Some(delivery) => Received::Rows(delivery),
                None => {
                    let (found, room) = self.mailbox.take();
                    if room {
                        self.outlet.made_room();
                    }
                    match found {
                        Found::Rows(delivery) => Received::Rows(delivery),
                        Found::Nothing => Received::Pending,
                        Found::Ended(Ending::Over) => Received::End,
                        Found::Ended(ending) => return Err(ended(&self.stream, &self.mailbox, ending)),
                    }
                }
            },
            Feed::Log(cursor) => match self.mailbox.ending() {
                Some(ending @ (Ending::TooSlow | Ending::Replaced)) => return Err(ended(&self.stream, &self.mailbox, ending)),
                // What is committed still arrives.
                _ => cursor.next(&self.stream, &self.outlet, &self.mailbox)?,
            },
        };
        if let Received::Rows(delivery) = &received {
            if let Feed::Live { offset, .. } = &mut self.feed {
                *offset = delivery.next_offset;
            }
            let counters = &self.stream.counters;
            counters.delivered_rows.fetch_add(delivery.batch.num_rows() as u64, Ordering::Relaxed);
            counters.delivered_bytes.fetch_add(delivery.bytes, Ordering::Relaxed);
        }
        Ok(received)
    }

    /// Rows before number `offset` are not needed again. This can still be said after the end, as long as
    /// no later run of the job has begun.
    ///
    /// # Errors
    /// [`HubError::Refused`]: the stream is `live`, or the subscriber has no name. There are not so many
    /// rows; it cannot be written down.
    pub fn acknowledge(&self, offset: u64) -> Result<(), HubError> {
        if self.note(offset)? { self.save() } else { Ok(()) }
    }

    /// As [`Subscriber::acknowledge`], but nothing is written. Whether [`Subscriber::save`] is to be called, which waits for the
    /// disk; that is ten times a second at most, for all subscribers of the stream.
    ///
    /// # Errors
    /// As [`Subscriber::acknowledge`].
    pub fn note(&self, offset: u64) -> Result<bool, HubError> {
        let refused = |why: &str| Err(HubError::Refused(format!("rows of stream '{}' cannot be acknowledged: {why}", self.stream.name())));
        match (&self.outlet.log, &self.mailbox.name) {
            (None, _) => refused("it is 'live' and keeps none; declare its table with 'stream.delivery' = 'exactly-once'"),
            (_, None) => refused("the subscriber has no name; give it one"),
            (Some(log), Some(name)) => log.acknowledge(name, offset),
        }
    }

    /// Whether [`Subscriber::save`] has anything to write.
    pub fn unsaved(&self) -> bool {
        self.outlet.log.as_ref().is_some_and(|log| log.has_unsaved_acks())
    }

    /// Writes down what was acknowledged, as is done in the end anyway.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self) -> Result<(), HubError> {
        self.outlet.log.as_ref().map_or(Ok(()), |log| log.save_acks())
    }
}

/// The error that ends a subscription.
fn ended(stream: &Stream, mailbox: &Mailbox, ending: Ending) -> HubError {
    match ending {
        Ending::TooSlow => HubError::TooSlow(format!(
            "the subscriber is too slow for stream '{}': its queue ran over; subscribe again, with a larger queue, to fewer rows, or so that the job waits",
            stream.name()
        )),
        Ending::Left | Ending::Over => HubError::Gone(format!(
            "the job that writes stream '{}' was stopped, has failed or restarts; subscribe again and go on behind the last row",
            stream.name()
        )),
        Ending::Replaced => HubError::Replaced(format!(
            "another subscriber has connected to stream '{}' as '{}', and there is one of each name",
            stream.name(),
            mailbox.name.as_deref().unwrap_or_default()
        )),
    }
}

impl LogCursor {
    fn next(&mut self, stream: &Stream, outlet: &Outlet, mailbox: &Mailbox) -> Result<Received, HubError> {
        if let Some(contents) = &mut self.contents {
            match contents.rows()? {
                Some(rows) => return Ok(Received::Rows(Arc::new(outlet.wire_contents(&rows, self.offset)?))),
                None => self.contents = None,
            }
        }
        let log = outlet.log.as_ref().expect("a log subscriber's outlet has one");
        loop {
            if let Some(open) = &mut self.open {
                match open.next(self.offset)? {
                    Some(delivery) => {
                        self.offset = delivery.next_offset;
                        return Ok(Received::Rows(Arc::new(delivery)));
                    }
                    None => self.open = None,
                }
            }
            match log.find(self.offset)? {
                log::Found::Recent(delivery) => {
                    self.offset = delivery.next_offset;
                    return Ok(Received::Rows(delivery));
                }
                log::Found::Segment(reader) => self.open = Some(reader),
                log::Found::End => {
                    // The mailbox is marked as waiting before the log is looked at again: a commit
                    // either is seen here or wakes it.
                    let (found, _) = mailbox.take();
                    if log.range().1 > self.offset {
                        continue;
                    }
                    return match found {
                        Found::Ended(Ending::Over) => Ok(Received::End),
                        Found::Ended(ending) => Err(ended(stream, mailbox, ending)),
                        // Nobody puts rows into the mailbox of a subscriber of a log.
                        Found::Nothing | Found::Rows(_) => Ok(Received::Pending),
                    };
                }
            }
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.outlet.unsubscribe(&self.mailbox);
        // What is not written down costs rows sent twice, no more; the next commit tries again. Without anything to write nobody
        // is waited for who writes.
        if self.unsaved() {
            let _ = self.save();
        }
    }
}
