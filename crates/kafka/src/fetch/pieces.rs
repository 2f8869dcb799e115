//! From what brokers answer for a partition to messages by column: batches that are no messages (marks of transactions,
//! transactions that were aborted) are passed over, compressed ones unpacked, and what is begun is gone on with.
//!
//! A call gives messages out of one buffer only, the answer itself or what was unpacked of it, so that key and value are
//! a place in it. Several compressed batches are unpacked into one, since producers make them small.

use tidemill_format::message::MessageDecoder;

use super::batch::{Columns, Fault, HEAD_BYTES, Head, Open, headers, is_abort};
use super::compress::{BATCH_BYTES_MAX, Codec};
use crate::taken::{Message, Taken};

/// No further batch is unpacked into a buffer of so many bytes.
const UNPACKED_BYTES: usize = 1 << 20;

/// What a broker answered for a partition.
#[derive(Debug, Default)]
pub struct Piece {
    /// Batches; the last one may break off.
    pub bytes: Vec<u8>,
    /// The offset that was asked for: what is below is passed over.
    pub from: i64,
    /// First offset and producer of the transactions in it that were aborted, in this order.
    pub aborted: Vec<(i64, i64)>,
}

/// Reads pieces of a partition, one after the other.
#[derive(Debug, Default)]
pub struct Pieces {
    piece: Piece,
    /// Where the next batch begins.
    at: usize,
    open: Option<Open>,
    /// Aborted transactions of the piece that have begun.
    begun: usize,
    /// The producers of those that have not ended.
    aborting: Vec<i64>,
    unpacked: Vec<u8>,
    columns: Columns,
}

/// What a piece had.
#[derive(Debug)]
pub struct Given {
    /// The offset behind everything that was read.
    pub next: i64,
    /// It came to the offset where reading ends.
    pub stopped: bool,
    /// What came behind the messages, and is none.
    pub fault: Option<Fault>,
}

impl Pieces {
    /// Whether there is nothing more to be read.
    pub fn done(&self) -> bool {
        self.open.is_none() && self.at >= self.piece.bytes.len()
    }

    /// Reads the next piece; gives the memory of the one before.
    pub fn put(&mut self, piece: Piece) -> Vec<u8> {
        (self.at, self.begun, self.open) = (0, 0, None);
        self.aborting.clear();
        std::mem::replace(&mut self.piece, piece).bytes
    }

    /// Gives back the memory that is used again and again.
    pub fn release(&mut self) {
        (self.unpacked, self.columns) = (Vec::new(), Columns::default());
    }

    /// Up to `most` messages below `stop`, which [`Pieces::messages`] then has. `next`: the offset behind what was read before.
    pub fn read(&mut self, most: usize, next: i64, stop: i64) -> Given {
        self.columns.clear();
        if self.open.is_none() {
            self.unpacked.clear();
        }
        let mut given = Given { next, stopped: next >= stop, fault: None };
        while !given.stopped && given.fault.is_none() && self.columns.len() < most {
            let step = match self.open {
                Some(open) if self.columns.is_empty() || self.columns.in_unpacked == open.unpacked => {
                    self.go_on(open, most, stop, &mut given)
                }
                Some(_) => break,
                None => match self.begin(stop, &mut given) {
                    Ok(false) => break,
                    other => other.map(|_| ()),
                },
            };
            given.fault = step.err();
        }
        if given.fault.is_some() {
            self.drop_rest();
        }
        given
    }

    fn drop_rest(&mut self) {
        (self.at, self.open) = (self.piece.bytes.len(), None);
    }

    /// Reads on in the batch that is open.
    fn go_on(&mut self, mut open: Open, most: usize, stop: i64, given: &mut Given) -> Result<(), Fault> {
        self.columns.in_unpacked = open.unpacked;
        let buffer = if open.unpacked { &self.unpacked } else { &self.piece.bytes };
        let read = self.columns.read(buffer, &mut open, self.piece.from, stop, most);
        // What was given is behind us, whatever follows it.
        let last = self.columns.offsets.last();
        given.next = given.next.max(last.map_or(given.next, |last| last.saturating_add(1)));
        if read? {
            (given.next, given.stopped) = (stop, true);
        } else if open.done() {
            // What of it was compacted away is behind us, too.
            self.open = None;
            Self::behind(&open.head, stop, given);
        } else {
            self.open = Some(open);
        }
        Ok(())
    }

    /// A batch is read to its end.
    fn behind(head: &Head, stop: i64, given: &mut Given) {
        // An answer may begin with batches that lie before what was asked for.
        given.next = given.next.max(head.last.saturating_add(1)).min(stop);
        given.stopped = given.next >= stop;
    }

    /// Begins the next batch, or passes over it; whether there was one that this buffer takes.
    fn begin(&mut self, stop: i64, given: &mut Given) -> Result<bool, Fault> {
        let rest = &self.piece.bytes[self.at.min(self.piece.bytes.len())..];
        let Some(head) = Head::read(rest)? else {
            self.drop_rest();
            return Ok(false);
        };
        if head.base >= stop {
            (given.next, given.stopped) = (stop, true);
            return Ok(false);
        }
        let packed = head.codec != Codec::None;
        let other_buffer = !self.columns.is_empty() && (packed != self.columns.in_unpacked || self.unpacked.len() >= UNPACKED_BYTES);
        if other_buffer && !head.control {
            return Ok(false);
        }
        head.check(rest)?;
        let records = &rest[HEAD_BYTES..head.bytes];
        let from = self.at;
        self.at += head.bytes;
        while let Some((_, producer)) = self.piece.aborted.get(self.begun).filter(|(first, _)| *first <= head.last) {
            self.aborting.push(*producer);
            self.begun += 1;
        }
        if head.control {
            if is_abort(records) {
                self.aborting.retain(|producer| *producer != head.producer);
            }
            Self::behind(&head, stop, given);
            return Ok(true);
        }
        let aborted = head.transactional && self.aborting.contains(&head.producer);
        if aborted || head.last < self.piece.from {
            Self::behind(&head, stop, given);
            return Ok(true);
        }
        let place = if packed {
            let start = self.unpacked.len();
            head.codec.decompress(records, &mut self.unpacked, BATCH_BYTES_MAX).map_err(Fault::Damaged)?;
            start..self.unpacked.len()
        } else {
            from + HEAD_BYTES..from + head.bytes
        };
        self.open = Some(Open::new(head, packed, place)?);
        Ok(true)
    }

    /// The messages that were read last, of a partition of a topic.
    pub fn messages<'a>(&'a self, topic: &'a str, partition: i32) -> Fetched<'a> {
        let bytes = if self.columns.in_unpacked { &self.unpacked } else { &self.piece.bytes };
        Fetched { topic, partition, bytes, columns: &self.columns }
    }
}

/// Messages of a partition by column.
#[derive(Clone, Copy, Debug)]
pub struct Fetched<'a> {
    topic: &'a str,
    partition: i32,
    /// Where keys, values and headers lie.
    pub bytes: &'a [u8],
    /// The rest of them.
    pub columns: &'a Columns,
}

impl Fetched<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Taken for Fetched<'_> {
    type Entry<'b>
        = Record<'b>
    where
        Self: 'b;

    #[inline]
    fn get(&self, index: usize) -> Record<'_> {
        Record { of: *self, index }
    }

    fn push(&self, numbers: &[u32], values: &mut dyn MessageDecoder, keys: Option<&mut (dyn MessageDecoder + '_)>) -> usize {
        // Readers take all that there is, in order.
        assert_eq!(numbers.len(), self.len(), "all messages are taken");
        let Columns { keys: of_keys, values: of_values, .. } = self.columns;
        values.push_all(self.bytes, of_values);
        if let Some(keys) = keys {
            keys.push_all(self.bytes, of_keys);
        }
        of_keys.iter().chain(of_values).map(|place| place.length.max(0) as usize).sum()
    }
}

/// A message among them.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    of: Fetched<'a>,
    index: usize,
}

impl<'a> Message<'a> for Record<'a> {
    fn topic(&self) -> &'a str {
        self.of.topic
    }

    fn partition(&self) -> i32 {
        self.of.partition
    }

    fn offset(&self) -> i64 {
        self.of.columns.offsets[self.index]
    }

    fn value(&self) -> Option<&'a [u8]> {
        self.of.columns.values[self.index].of(self.of.bytes)
    }

    fn key(&self) -> Option<&'a [u8]> {
        self.of.columns.keys[self.index].of(self.of.bytes)
    }

    fn timestamp(&self) -> (Option<i64>, &'static str) {
        match (self.of.columns.times[self.index], self.of.columns.batch(self.index).1) {
            (ms, _) if ms < 0 => (None, "NoTimestampType"),
            (ms, true) => (Some(ms), "LogAppendTime"),
            (ms, false) => (Some(ms), "CreateTime"),
        }
    }

    fn leader_epoch(&self) -> Option<i32> {
        Some(self.of.columns.batch(self.index).0).filter(|epoch| *epoch >= 0)
    }

    fn headers(&self, each: impl FnMut(&'a [u8], Option<&'a [u8]>)) {
        headers(self.of.bytes, self.of.columns.headers[self.index], each);
    }
}

#[cfg(test)]
mod tests;
