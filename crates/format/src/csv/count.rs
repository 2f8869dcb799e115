//! Counts the records of CSV text of which no column is wanted, as `SELECT COUNT(*)` needs them.
//!
//! What counts as a record, and which ones are bad, is decided exactly as [`super::decode`] does it, but no
//! position is kept: 64 bytes at a time are looked at, and a record costs a few instructions. Bytes near a
//! quote go through the automaton of [`super::index`], one by one.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};

use super::index::{State, masks};
use super::{CsvDecoder, CsvOptions, ENCODING, Header};
use crate::buffer::TextBuffer;
use crate::{BadRecord, Decoded, Decoder, FormatError, RECORD_BYTES_MAX};

/// Counts records; its batches have rows and no columns.
pub struct CsvCounter {
    options: CsvOptions,
    delimiter: u8,
    quote: Option<u8>,
    escape: Option<u8>,
    /// Fields a record should have.
    expected: u64,
    /// Whether a record of exactly that many fields needs no further look: it cannot be blank or a comment.
    even_is_good: bool,
    physical: SchemaRef,
    schema: SchemaRef,
    header: Header,
    buffer: TextBuffer,
    /// Where the record begins that is being looked at, and what of it was seen.
    cursor: usize,
    scanned: usize,
    delimiters: u64,
    state: State,
    records: u64,
    finished: bool,
}

/// What one call of [`Decoder::next`] has found.
#[derive(Default)]
struct Found {
    /// Records, good and bad.
    records: u64,
    /// Line ends, those of blank lines too.
    lines: u64,
    bad: Vec<BadRecord>,
}

impl CsvCounter {
    /// A counter for text that begins where a file begins.
    ///
    /// # Errors
    /// A delimiter, quote or escape character outside ASCII.
    pub fn new(options: &CsvOptions, physical: &SchemaRef) -> Result<Self, FormatError> {
        // Checks the options, with the messages that users get everywhere else.
        CsvDecoder::new(options, physical, &[])?;
        let expected = physical.fields().len() as u64;
        Ok(CsvCounter {
            delimiter: options.field_delimiter as u8,
            quote: (!options.disable_quote_character).then_some(options.quote_character as u8),
            escape: options.escape_character.map(|c| c as u8),
            expected,
            even_is_good: expected > 1 && !options.allow_comments,
            physical: physical.clone(),
            schema: Arc::new(Schema::empty()),
            header: options.header,
            buffer: TextBuffer::new(),
            cursor: 0,
            scanned: 0,
            delimiters: 0,
            state: State::FieldStart,
            records: 0,
            finished: false,
            options: options.clone(),
        })
    }

    /// Says that the text begins in the middle of a file, where no header line stands.
    pub fn without_header(mut self) -> Self {
        self.header = Header::No;
        self.buffer = TextBuffer::without_mark();
        self
    }

    /// Forgets what was counted.
    fn compact(&mut self) {
        if self.cursor > 0 {
            self.buffer.discard(self.cursor);
            self.scanned -= self.cursor;
            self.cursor = 0;
        }
    }

    /// Looks at bytes until `records_max` records or `lines_max` lines were found or none are left.
    fn scan(&mut self, found: &mut Found, records_max: u64, lines_max: u64) {
        while self.scanned < self.buffer.len() && found.records < records_max && found.lines < lines_max {
            let Some(chunk) = self.buffer[self.scanned..].first_chunk::<64>() else {
                self.step(found, self.buffer.len(), records_max, lines_max);
                continue;
            };
            let masks = masks(chunk, self.delimiter, self.quote.unwrap_or(b'\n'));
            let calm = matches!(self.state, State::FieldStart | State::Unquoted) && (self.quote.is_none() || masks.quotes == 0);
            let lines = u64::from(masks.newlines.count_ones());
            if !calm || found.records + lines > records_max || found.lines + lines > lines_max {
                self.step(found, self.scanned + 64, records_max, lines_max);
                continue;
            }
            let (base, mut newlines, mut delimiters) = (self.scanned, masks.newlines, masks.delimiters);
            while newlines != 0 {
                let bit = newlines.trailing_zeros();
                let before = (1u64 << bit) - 1;
                self.delimiters += u64::from((delimiters & before).count_ones());
                delimiters &= !before;
                newlines &= newlines - 1;
                self.line(found, base + bit as usize);
            }
            self.delimiters += u64::from(delimiters.count_ones());
            let separates = (masks.delimiters | masks.newlines) >> 63 == 1;
            self.state = if separates { State::FieldStart } else { State::Unquoted };
            self.scanned = base + 64;
        }
    }

    /// Looks at the bytes up to `until` one by one.
    fn step(&mut self, found: &mut Found, until: usize, records_max: u64, lines_max: u64) {
        while self.scanned < until && found.records < records_max && found.lines < lines_max {
            let byte = self.buffer[self.scanned];
            self.scanned += 1;
            self.state = self.state.behind(byte, self.quote, self.escape);
            // Inside quotes nothing separates; outside, the state is that of an ordinary byte.
            if self.state != State::Unquoted {
                continue;
            }
            if byte == self.delimiter {
                self.delimiters += 1;
                self.state = State::FieldStart;
            } else if byte == b'\n' {
                self.state = State::FieldStart;
                self.line(found, self.scanned - 1);
            }
        }
    }

    /// A record, or a blank line, ends before `end`, where its line end stands.
    #[inline]
    fn line(&mut self, found: &mut Found, end: usize) {
        let fields = self.delimiters + 1;
        self.delimiters = 0;
        found.lines += 1;
        if fields == self.expected && self.even_is_good {
            found.records += 1;
        } else {
            self.odd(found, end, fields);
        }
        self.cursor = end + 1;
    }

    /// A line that may be blank, or lack fields, or have too many.
    #[inline(never)]
    fn odd(&mut self, found: &mut Found, end: usize, fields: u64) {
        let text = &self.buffer[self.cursor..end];
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.is_empty() || (self.options.allow_comments && text[0] == b'#') {
            return;
        }
        let trailing = fields == self.expected + 1 && self.options.allow_trailing_comma && text.last() == Some(&self.delimiter);
        let too_many = fields > self.expected && !trailing && !self.options.ignore_trailing_unmappable;
        let too_few = fields < self.expected && self.options.fail_on_missing_columns;
        if too_many || too_few {
            found.bad.push(BadRecord {
                record: self.records + found.records,
                offset: self.buffer.offset(self.cursor),
                reason: super::decode::wrong_width(fields as usize, self.expected as usize),
                raw: text.to_vec(),
            });
        }
        found.records += 1;
    }

    /// Passes over the header line once it is whole, and over blank lines and comments above it; false if it is not.
    fn take_header(&mut self) -> Result<bool, FormatError> {
        loop {
            // Whatever the line says, it is neither a record nor bad.
            let (begin, mut found) = (self.cursor, Found::default());
            self.scan(&mut found, u64::MAX, 1);
            if found.lines == 0 && !(self.finished && begin < self.buffer.len()) {
                return Ok(false);
            }
            let end = if found.lines == 0 { self.buffer.len() } else { self.cursor };
            // Otherwise those counted are the first record's: 64 bytes are looked at at once, beyond the line's end too.
            if found.lines == 0 {
                self.delimiters = 0;
            }
            self.cursor = end;
            let line = &self.buffer[begin..end];
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            if text.is_empty() || text == b"\r" || (self.options.allow_comments && text[0] == b'#') {
                continue;
            }
            if self.header == Header::Checked {
                let mut checker = CsvDecoder::new(&self.options, &self.physical, &[])?;
                checker.push(line);
                checker.finish();
                checker.next(1)?;
            }
            self.header = Header::No;
            return Ok(true);
        }
    }

    /// A last record ends in quotes that were never closed.
    #[cold]
    fn unclosed(&self, found: &mut Found) {
        let raw = &self.buffer[self.cursor..];
        found.bad.push(BadRecord {
            record: self.records + found.records,
            offset: self.buffer.offset(self.cursor),
            reason: super::decode::UNCLOSED.to_string(),
            raw: raw.strip_suffix(b"\r").unwrap_or(raw).to_vec(),
        });
        found.records += 1;
    }
}

impl Decoder for CsvCounter {
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        self.compact();
        self.buffer.room(bytes)
    }

    fn filled(&mut self, bytes: usize) {
        self.buffer.filled(bytes);
    }

    fn finish(&mut self) {
        if !self.finished {
            self.finished = true;
            self.buffer.finish();
        }
    }

    fn next(&mut self, rows_max: usize) -> Result<Option<Decoded>, FormatError> {
        self.buffer.check(ENCODING)?;
        let mut found = Found::default();
        let past_header = self.header == Header::No || self.take_header()?;
        let begin = self.cursor;
        if past_header {
            self.scan(&mut found, rows_max as u64, u64::MAX);
        }
        let rest = self.buffer.len() - self.cursor;
        if self.finished && self.scanned == self.buffer.len() && rest > 0 && found.records < rows_max as u64 {
            // A last record without a line end, or with a quote that was never closed.
            let comment = self.options.allow_comments && self.buffer[self.cursor] == b'#';
            if matches!(self.state, State::Quoted | State::Escaped) && !comment {
                self.unclosed(&mut found);
            } else {
                self.line(&mut found, self.buffer.len());
            }
            self.cursor = self.buffer.len();
        }
        if self.cursor == begin {
            if rest > RECORD_BYTES_MAX {
                let in_quotes = matches!(self.state, State::Quoted | State::Escaped);
                return Err(super::decode::too_long(self.buffer.offset(self.cursor), in_quotes));
            }
            return Ok(None);
        }
        self.records += found.records;
        let rows = found.records as usize - found.bad.len();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), Vec::new(), &options)?;
        Ok(Some(Decoded { batch, kinds: None, offset: self.buffer.offset(self.cursor), records: self.records, bad: found.bad }))
    }

    fn buffered(&self) -> usize {
        self.buffer.len() - self.cursor
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

#[cfg(test)]
mod tests;
