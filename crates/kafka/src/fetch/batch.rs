//! Batches of records as brokers keep and send them (format 2, of Kafka 0.11 and later), and their records by column.
//!
//! ```text
//! batch:   base offset i64 | bytes behind this i32 | leader epoch i32 | format i8 | CRC-32C u32 of all behind it
//!          attributes i16 | last offset − base i32 | first time i64 | greatest time i64
//!          producer i64 | its epoch i16 | sequence i32 | records i32 | the records, compressed as the attributes say
//! record:  bytes behind this v | attributes i8 | time − first time v | offset − base v
//!          key bytes v, key | value bytes v, value | headers v, each: name bytes v, name, value bytes v, value
//! ```
//!
//! `v` is a zigzag number of variable length; a length of −1 is a null. Everything is checked before it is believed, and
//! no memory is taken for a number that the bytes do not bear out. What becomes of batches, which are passed over and
//! which are given out in parts, is the affair of `pieces`.

use tidemill_format::message::Place;

use super::bytes::Cursor;
use super::compress::Codec;
use super::crc::crc32c;

/// Bytes of a batch in front of its records.
pub const HEAD_BYTES: usize = 61;
/// Bytes in front of those that a batch's length counts.
const LENGTH_END: usize = 12;
/// Where the format's number is, in every format there was.
const FORMAT_AT: usize = 16;
/// Where the bytes begin that the checksum is of.
const SUMMED_AT: usize = 21;
/// Bytes of the shortest record.
const RECORD_BYTES_MIN: usize = 7;

/// What was found in place of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A format older than 2.
    Old,
    /// Something that no broker sends.
    Damaged(String),
}

impl Fault {
    #[cold]
    fn new(why: impl Into<String>) -> Self {
        Fault::Damaged(why.into())
    }
}

/// What stands in front of a batch's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the whole batch.
    pub bytes: usize,
    /// The offset that those of records count from.
    pub base: i64,
    /// The offset of the last record that the batch was written with, which may have been compacted away.
    pub last: i64,
    /// The epoch of the leader that wrote it.
    pub leader_epoch: i32,
    /// How the records are compressed.
    pub codec: Codec,
    /// Times are of when the broker took it.
    pub append_time: bool,
    /// Part of a transaction.
    pub transactional: bool,
    /// A mark of a transaction, no message.
    pub control: bool,
    /// The time that those of records count from.
    pub first_time: i64,
    /// The greatest time; the broker's own where times are its.
    pub max_time: i64,
    /// The producer, for transactions.
    pub producer: i64,
    /// How many records follow.
    pub records: usize,
    /// The checksum.
    crc: u32,
}

impl Head {
    /// Of the batch that `bytes` begins with; none where it breaks off before its end, as the last of an answer may.
    ///
    /// # Errors
    /// It is of an older format, or cannot be a batch.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Fault> {
        let mut cursor = Cursor::new(bytes, 0);
        let (Some(base), Some(length)) = (cursor.i64(), cursor.i32()) else { return Ok(None) };
        let Some(format) = bytes.get(FORMAT_AT) else { return Ok(None) };
        match format {
            0 | 1 => return Err(Fault::Old),
            2 => {}
            other => return Err(Fault::new(format!("a batch of the unknown format {other}"))),
        }
        let length = usize::try_from(length).ok().filter(|length| *length >= HEAD_BYTES - LENGTH_END);
        let Some(length) = length else { return Err(Fault::new("a batch shorter than its head")) };
        let all = length + LENGTH_END;
        if all > bytes.len() {
            return Ok(None);
        }
        Self::fields(cursor, base, all).ok_or_else(|| Fault::new("a batch whose head contradicts itself"))?.map(Some)
    }

    /// The rest of the head, once it is known to be there; none where numbers cannot be.
    fn fields(mut cursor: Cursor<'_>, base: i64, all: usize) -> Option<Result<Self, Fault>> {
        let leader_epoch = cursor.i32()?;
        let _format = cursor.take(1)?;
        let crc = cursor.i32()? as u32;
        let attributes = cursor.i16()?;
        let last_delta = cursor.i32().filter(|delta| *delta >= 0)?;
        let (first_time, max_time, producer) = (cursor.i64()?, cursor.i64()?, cursor.i64()?);
        let _epoch_and_sequence = cursor.take(6)?;
        let records = usize::try_from(cursor.i32()?).ok()?;
        let last = base.checked_add(i64::from(last_delta)).filter(|_| base >= 0)?;
        let Some(codec) = Codec::of(attributes) else {
            return Some(Err(Fault::new(format!("a batch compressed in the unknown way {}", attributes & 7))));
        };
        Some(Ok(Head {
            bytes: all,
            base,
            last,
            leader_epoch,
            codec,
            append_time: attributes & 8 != 0,
            transactional: attributes & 16 != 0,
            control: attributes & 32 != 0,
            first_time,
            max_time,
            producer,
            records,
            crc,
        }))
    }

    /// Checks the sum of the batch, which `bytes` begins with.
    ///
    /// # Errors
    /// It is another one.
    pub fn check(&self, bytes: &[u8]) -> Result<(), Fault> {
        match crc32c(&bytes[SUMMED_AT..self.bytes]) == self.crc {
            true => Ok(()),
            false => Err(Fault::new("a batch whose checksum (CRC-32C) is wrong")),
        }
    }
}

/// What a broker answered for a partition, by the heads of its batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Bytes of whole batches.
    pub bytes: usize,
    /// The offset behind the last of them; none without any.
    pub next: Option<i64>,
    /// Records in them, at most.
    pub records: u64,
    /// The epoch of the leader that wrote the last of them.
    pub epoch: i32,
    /// Something stands behind them that is none, and no beginning of one.
    pub fault: bool,
}

impl Survey {
    /// Of an answer.
    pub fn of(bytes: &[u8]) -> Self {
        let mut survey = Survey::default();
        loop {
            match Head::read(&bytes[survey.bytes..]) {
                Ok(Some(head)) => {
                    survey.bytes += head.bytes;
                    survey.next = Some(head.last.saturating_add(1));
                    survey.records += head.records as u64;
                    survey.epoch = head.leader_epoch;
                }
                Ok(None) => return survey,
                Err(_) => return Survey { fault: true, ..survey },
            }
        }
    }
}

/// Whether a control batch with these records says that its producer's transaction was aborted.
pub fn is_abort(records: &[u8]) -> bool {
    let mut cursor = Cursor::new(records, 0);
    let mut read = || {
        let _length = cursor.varint()?;
        let _attributes = cursor.take(1)?;
        let (_time, _offset, key) = (cursor.varlong()?, cursor.varint()?, cursor.varint()?);
        let _version = cursor.i16().filter(|_| key >= 4)?;
        cursor.i16()
    };
    read() == Some(0)
}

/// Where a batch that is being read stands.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Its head.
    pub head: Head,
    /// Its records are in the buffer of what was decompressed.
    pub unpacked: bool,
    /// Where the next record is.
    at: usize,
    /// Where the last one ends.
    end: usize,
    /// Records to come.
    left: usize,
    /// The least offset that the next may have.
    least: i64,
}

impl Open {
    /// A batch whose records have these places in their buffer.
    ///
    /// # Errors
    /// There cannot be as many as it says.
    pub fn new(head: Head, unpacked: bool, place: std::ops::Range<usize>) -> Result<Self, Fault> {
        if head.records > place.len() / RECORD_BYTES_MIN {
            return Err(Fault::new(format!("a batch of {} records in {} bytes", head.records, place.len())));
        }
        Ok(Open { head, unpacked, at: place.start, end: place.end, left: head.records, least: head.base })
    }

    /// Whether all of its records were read.
    pub fn done(&self) -> bool {
        self.left == 0
    }
}

/// Records by column; values and keys lie in a buffer of somebody else's.
#[derive(Debug, Default)]
pub struct Columns {
    /// Offsets.
    pub offsets: Vec<i64>,
    /// Milliseconds since 1970; −1 for none.
    pub times: Vec<i64>,
    /// Keys.
    pub keys: Vec<Place>,
    /// Values.
    pub values: Vec<Place>,
    /// Where the headers begin: their number, then the headers.
    pub headers: Vec<u32>,
    /// From which record on which batch is the one: the leader's epoch, and whether times are the broker's.
    pub batches: Vec<(usize, i32, bool)>,
    /// They lie in the buffer of what was decompressed.
    pub in_unpacked: bool,
}

impl Columns {
    /// How many records.
    #[inline]
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Forgets them and keeps the memory.
    pub fn clear(&mut self) {
        self.offsets.clear();
        self.times.clear();
        self.keys.clear();
        self.values.clear();
        self.headers.clear();
        self.batches.clear();
    }

    /// Makes room for so many more.
    pub fn reserve(&mut self, count: usize) {
        self.offsets.reserve(count);
        self.times.reserve(count);
        self.keys.reserve(count);
        self.values.reserve(count);
        self.headers.reserve(count);
    }

    /// Epoch of the leader and kind of the time of a record.
    pub fn batch(&self, index: usize) -> (i32, bool) {
        let behind = self.batches.partition_point(|(from, ..)| *from <= index);
        let (_, epoch, append_time) = self.batches[behind - 1];
        (epoch, append_time)
    }

    /// Reads on in a batch until there are `most` records here or none are left there; those below the offset `from` are
    /// passed over. Gives whether all below `stop` were read.
    ///
    /// # Errors
    /// A record that is none. Those in front of it are there.
    pub fn read(&mut self, buffer: &[u8], open: &mut Open, from: i64, stop: i64, most: usize) -> Result<bool, Fault> {
        let Head { base, last, first_time, max_time, append_time, leader_epoch, .. } = open.head;
        let buffer = &buffer[..open.end];
        self.batches.push((self.len(), leader_epoch, append_time));
        self.reserve(open.left.min(most.saturating_sub(self.len())));
        while open.left > 0 && self.len() < most {
            let record = Record::read(buffer, open.at).ok_or_else(|| Fault::new("a record that breaks off or contradicts itself"))?;
            let offset = base.checked_add(i64::from(record.offset)).filter(|offset| (open.least..=last).contains(offset));
            let offset = offset.ok_or_else(|| Fault::new("a record whose offset is none of its batch"))?;
            open.at = record.end;
            open.left -= 1;
            open.least = offset.saturating_add(1);
            if offset < from {
                continue;
            }
            if offset >= stop {
                return Ok(true);
            }
            self.offsets.push(offset);
            self.times.push(if append_time { max_time } else { first_time.wrapping_add(record.time) });
            self.keys.push(record.key);
            self.values.push(record.value);
            self.headers.push(record.headers);
            if open.least >= stop {
                return Ok(true);
            }
        }
        if open.left == 0 && open.at != open.end {
            return Err(Fault::new("a batch with more bytes than its records have"));
        }
        Ok(false)
    }
}

/// A record.
struct Record {
    time: i64,
    offset: i32,
    key: Place,
    value: Place,
    headers: u32,
    end: usize,
}

impl Record {
    /// The record at a place; none where it is none.
    #[inline]
    fn read(buffer: &[u8], at: usize) -> Option<Self> {
        let mut cursor = Cursor::new(buffer, at);
        let length = usize::try_from(cursor.varint()?).ok()?;
        let end = cursor.at().checked_add(length).filter(|end| *end <= buffer.len())?;
        // Nothing of it is read from the record behind it.
        let mut cursor = Cursor::new(&buffer[..end], cursor.at());
        let _attributes = cursor.take(1)?;
        let (time, offset) = (cursor.varlong()?, cursor.varint().filter(|delta| *delta >= 0)?);
        let (key, value) = (place(&mut cursor)?, place(&mut cursor)?);
        // Buffers have less than 2 GB.
        let headers = u32::try_from(cursor.at()).ok()?;
        let count = cursor.varint()?;
        if count != 0 {
            each_header(&mut cursor, count, |_, _| {})?;
        }
        (cursor.at() == end).then_some(Record { time, offset, key, value, headers, end })
    }
}

/// Where bytes lie whose length stands in front.
#[inline]
fn place(cursor: &mut Cursor<'_>) -> Option<Place> {
    let length = cursor.varint()?;
    let from = u32::try_from(cursor.at()).ok()?;
    match usize::try_from(length) {
        Ok(count) => {
            cursor.take(count)?;
            Some(Place { from, length })
        }
        Err(_) => (length == -1).then_some(Place { from, length }),
    }
}

/// Name and value of so many headers; none where they are none.
fn each_header<'a>(cursor: &mut Cursor<'a>, count: i32, mut each: impl FnMut(&'a [u8], Option<&'a [u8]>)) -> Option<()> {
    for _ in 0..usize::try_from(count).ok()? {
        let length = usize::try_from(cursor.varint()?).ok()?;
        let name = cursor.take(length)?;
        let value = match cursor.varint()? {
            -1 => None,
            length => Some(cursor.take(usize::try_from(length).ok()?)?),
        };
        each(name, value);
    }
    Some(())
}

/// Name and value of the headers at a place that [`Columns::headers`] has.
pub fn headers<'a>(buffer: &'a [u8], at: u32, each: impl FnMut(&'a [u8], Option<&'a [u8]>)) {
    let mut cursor = Cursor::new(buffer, at as usize);
    if let Some(count) = cursor.varint() {
        // They were looked at when the record was read: it cannot break off.
        let _ = each_header(&mut cursor, count, each);
    }
}

#[cfg(test)]
mod tests;
