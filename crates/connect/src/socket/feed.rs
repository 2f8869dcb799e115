//! The bytes of one peer, cut anywhere, become its rows; its bad records get their places.

use arrow::array::RecordBatch;
use tidemill_format::{BadRecord, Decoder, FormatError};

use crate::Rows;

/// What one peer sends. Keeps, besides the decoder's own buffer, the bytes of the record that is
/// not complete yet, to show them if it never will be.
pub struct Feed {
    decoder: Box<dyn Decoder>,
    /// `host:port` or `stdin`.
    place: String,
    /// The beginning of the unfinished record, as of when the decoder had no more records.
    tail: Vec<u8>,
    /// What was pushed since.
    chunks: Vec<Vec<u8>>,
    /// Bytes and records decoded so far.
    offset: u64,
    records: u64,
    /// When the oldest byte not yet decoded came.
    arrival_ns: u64,
    /// Why nothing will follow an unfinished record, once that is so.
    cut: Option<String>,
    record_bytes_max: usize,
}

impl Feed {
    /// What comes from `place`. Records longer than `record_bytes_max` are refused.
    pub fn new(decoder: Box<dyn Decoder>, place: String, record_bytes_max: usize) -> Self {
        Feed { decoder, place, tail: Vec::new(), chunks: Vec::new(), offset: 0, records: 0, arrival_ns: 0, cut: None, record_bytes_max }
    }

    /// Bytes that have come.
    pub fn push(&mut self, bytes: Vec<u8>, arrival_ns: u64) {
        debug_assert!(self.cut.is_none(), "nothing follows the end");
        if self.chunks.is_empty() {
            self.arrival_ns = arrival_ns;
        }
        self.decoder.push(&bytes);
        self.chunks.push(bytes);
    }

    /// `host:port` or `stdin`.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Bytes pushed and not decoded.
    pub fn buffered(&self) -> usize {
        self.decoder.buffered()
    }

    /// Nothing follows. `unfinished` is the fault of a record that lacks its line end; without it
    /// such a record counts as complete.
    pub fn end(&mut self, unfinished: Option<String>) {
        match unfinished {
            None => self.decoder.finish(),
            cut => self.cut = cut,
        }
    }

    /// Up to `rows_max` rows; `None` when there is no complete record left.
    ///
    /// # Errors
    /// A record is too long. Whatever else comes from this peer cannot be told apart from it; what
    /// there was of it is in the answer of [`Feed::refuse`].
    pub fn next(&mut self, rows_max: usize) -> Result<Option<Rows>, FormatError> {
        if let Some(decoded) = self.decoder.next(rows_max)? {
            let bytes = decoded.offset - self.offset;
            (self.offset, self.records) = (decoded.offset, decoded.records);
            let places = decoded.bad.iter().map(|b| self.record_place(b.record)).collect();
            let rows = Rows { batch: decoded.batch, kinds: decoded.kinds, arrival_ns: self.arrival_ns, bytes, bad: decoded.bad, places };
            return Ok(Some(rows));
        }
        self.keep_tail();
        if self.tail.len() > self.record_bytes_max {
            return Err(FormatError::data(format!("a record is longer than {} bytes ('max-record-size')", self.record_bytes_max)));
        }
        if let Some(reason) = self.cut.take() {
            return Ok((!self.tail.trim_ascii().is_empty()).then(|| self.refuse(reason)));
        }
        Ok(None)
    }

    /// The record that is not complete, as a bad one.
    pub fn refuse(&mut self, reason: String) -> Rows {
        self.keep_tail();
        let raw = std::mem::take(&mut self.tail);
        let bytes = raw.len() as u64;
        let bad = BadRecord { record: self.records, offset: self.offset, reason, raw };
        let places = vec![self.record_place(bad.record)];
        let batch = RecordBatch::new_empty(self.decoder.schema());
        Rows { batch, kinds: None, arrival_ns: self.arrival_ns, bytes, bad: vec![bad], places }
    }

    /// Records are counted from 1 for people.
    fn record_place(&self, record: u64) -> String {
        format!("{} record {}", self.place, record + 1)
    }

    /// Makes `tail` what the decoder still holds and forgets the chunks.
    fn keep_tail(&mut self) {
        let held = self.tail.len() + self.chunks.iter().map(Vec::len).sum::<usize>();
        let mut gone = held.saturating_sub(self.decoder.buffered());
        // A long record costs one copy of its bytes, not one with every chunk.
        let from_tail = gone.min(self.tail.len());
        self.tail.drain(..from_tail);
        gone -= from_tail;
        for chunk in self.chunks.drain(..) {
            let skip = gone.min(chunk.len());
            gone -= skip;
            self.tail.extend_from_slice(&chunk[skip..]);
        }
        if self.tail.is_empty() && self.tail.capacity() > 1 << 20 {
            self.tail = Vec::new();
        }
    }
}
