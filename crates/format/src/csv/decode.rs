//! CSV text to record batches.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;
use tidemill_block::ascii::Ascii;

use super::field::{Field, Kind, build, unfit};
use super::index::Index;
use super::plain::{self, Long};
use super::{CsvOptions, ENCODING, Header};
use crate::buffer::TextBuffer;
use crate::{BadRecord, Decoded, Decoder, FormatError, RECORD_BYTES_MAX};

/// Decodes CSV text, parsing only the columns asked for.
pub struct CsvDecoder {
    options: CsvOptions,
    quote: Option<u8>,
    /// The names of all physical columns, to check a header line by.
    physical: Vec<String>,
    columns: Vec<Column>,
    schema: SchemaRef,
    header: Header,
    buffer: TextBuffer,
    index: Index,
    /// Records of the index that were handed out, and the position and separator behind them.
    taken: usize,
    cursor: usize,
    records: u64,
    finished: bool,
    /// The text ends inside quotes.
    unclosed: bool,
    /// In the latest rows that were plain, those texts given as views that do not stand in them were at least half of the text, columns that
    /// are not asked for included.
    mostly_long: bool,
}

struct Column {
    /// Which field of a record it is.
    field: usize,
    name: String,
    kind: Kind,
    empty_is_null: bool,
}

impl CsvDecoder {
    /// A decoder of the columns `projection` of `physical`, for text that begins where a file
    /// begins.
    ///
    /// # Errors
    /// A column type that CSV cannot express, a delimiter outside ASCII.
    pub fn new(options: &CsvOptions, physical: &SchemaRef, projection: &[usize]) -> Result<Self, FormatError> {
        let byte = |c: char, what: &str| {
            u8::try_from(c)
                .ok()
                .filter(u8::is_ascii)
                .ok_or_else(|| FormatError::option(format!("the {what} '{c}' is not an ASCII character")))
        };
        let quote = (!options.disable_quote_character).then(|| byte(options.quote_character, "csv.quote-character")).transpose()?;
        let escape = options.escape_character.map(|c| byte(c, "csv.escape-character")).transpose()?;
        let delimiter = byte(options.field_delimiter, "csv.field-delimiter")?;
        let columns = projection
            .iter()
            .map(|&field| {
                let column = physical.field(field);
                let kind = Kind::of(column.name(), column.data_type())?;
                let empty_is_null = !kind.is_text() || options.empty_string_as_null;
                Ok(Column { field, name: column.name().clone(), kind, empty_is_null })
            })
            .collect::<Result<Vec<_>, FormatError>>()?;
        Ok(CsvDecoder {
            quote,
            physical: physical.fields().iter().map(|f| f.name().clone()).collect(),
            columns,
            schema: Arc::new(Schema::new(projection.iter().map(|i| physical.fields()[*i].clone()).collect::<Vec<_>>())),
            header: options.header,
            buffer: TextBuffer::new(),
            index: Index::new(delimiter, quote, escape),
            taken: 0,
            cursor: 0,
            records: 0,
            finished: false,
            unclosed: false,
            mostly_long: false,
            options: options.clone(),
        })
    }

    /// Says that the text begins in the middle of a file, where no header line stands.
    pub fn without_header(mut self) -> Self {
        self.header = Header::No;
        self.buffer = TextBuffer::without_mark();
        self
    }

    /// Appends a message, which is whole: a line end behind it need not be there. Gives how many records
    /// it holds.
    ///
    /// # Errors
    /// A quote that is never closed would take the next message with it, so this one is left out.
    pub(super) fn push_message(&mut self, message: &[u8]) -> Result<usize, &'static str> {
        self.compact();
        let (bytes, records, separators) = (self.buffer.len(), self.index.record_ends.len(), self.index.separators.len());
        self.buffer.append(message);
        if !message.ends_with(b"\n") {
            self.buffer.append(b"\n");
        }
        self.index.scan(&self.buffer);
        if self.index.in_quotes() {
            self.buffer.truncate(bytes);
            self.index.truncate(separators, records, bytes);
            return Err(UNCLOSED);
        }
        let mut start = bytes;
        let mut count = 0;
        for end in &self.index.record_ends[records..] {
            let end = self.index.separators[*end as usize] as usize;
            count += usize::from(!self.is_blank(start, end));
            start = end + 1;
        }
        Ok(count)
    }

    /// Separators of record `record` (an index into the index) as a range.
    fn separators(&self, record: usize) -> std::ops::Range<usize> {
        let first = if record == 0 { 0 } else { self.index.record_ends[record - 1] as usize + 1 };
        first..self.index.record_ends[record] as usize + 1
    }

    /// Passes over the header line if it is there, and over blank lines and comments above it.
    fn take_header(&mut self) -> Result<(), FormatError> {
        while self.header != Header::No && self.taken < self.index.record_ends.len() {
            let separators = self.separators(self.taken);
            let (start, end) = (self.cursor, self.index.separators[separators.end - 1] as usize);
            if !self.is_blank(start, end) {
                if self.header == Header::Checked {
                    self.check_header(start, separators)?;
                }
                self.header = Header::No;
            }
            self.taken += 1;
            self.cursor = end + 1;
        }
        Ok(())
    }

    /// Compares the names in the line at `start` with the table's.
    fn check_header(&self, mut start: usize, separators: std::ops::Range<usize>) -> Result<(), FormatError> {
        let mut names = Vec::new();
        for s in separators {
            let end = self.index.separators[s] as usize;
            let name = self.buffer[start..end].trim_ascii();
            names.push(String::from_utf8_lossy(&self.unquote(name)).trim().to_string());
            start = end + 1;
        }
        if names.len() == self.physical.len() && names.iter().zip(&self.physical).all(|(a, b)| a.eq_ignore_ascii_case(b)) {
            return Ok(());
        }
        Err(FormatError::data(format!(
            "the header line names the columns ({}), but the table declares ({}); declare the columns as the file has them, or set 'csv.header' = 'skip'",
            names.join(", "),
            self.physical.join(", ")
        )))
    }

    /// The content of a field: quotes taken off and doubled ones halved.
    fn unquote<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(quote) = self.quote else { return Cow::Borrowed(text) };
        let [first, inner @ ..] = text else { return Cow::Borrowed(text) };
        if *first != quote {
            return Cow::Borrowed(text);
        }
        let inner = inner.strip_suffix(&[quote]).unwrap_or(inner);
        let escape = self.options.escape_character.map(|c| c as u8);
        if memchr::memchr2(quote, escape.unwrap_or(quote), inner).is_none() {
            return Cow::Borrowed(inner);
        }
        let mut out = Vec::with_capacity(inner.len());
        let mut bytes = inner.iter().copied().peekable();
        while let Some(b) = bytes.next() {
            if (b == quote && bytes.peek() == Some(&quote)) || Some(b) == escape {
                out.extend(bytes.next());
            } else {
                out.push(b);
            }
        }
        Cow::Owned(out)
    }

    /// Whether the line `start..end` is to be passed over in silence.
    fn is_blank(&self, start: usize, end: usize) -> bool {
        match &self.buffer[start..end] {
            [] | [b'\r'] => true,
            [b'#', ..] => self.options.allow_comments,
            _ => false,
        }
    }

    /// Cuts off what was consumed where that is no less than what must be moved then, or where the text goes on in other memory anyhow.
    fn compact(&mut self) {
        // Behind the end is who has taken a last record without a line end: nothing comes any more.
        let Some(rest) = self.buffer.len().checked_sub(self.cursor) else { return };
        if self.cursor > 0 && (self.cursor >= rest || self.buffer.is_shared()) {
            self.index.discard(self.taken, self.cursor);
            self.buffer.discard(self.cursor);
            self.taken = 0;
            self.cursor = 0;
        }
    }
}

/// Why a record is bad that ends in quotes.
pub(super) const UNCLOSED: &str = "a quote was opened and never closed";

/// Why a record of `count` fields is bad.
pub(super) fn wrong_width(count: usize, expected: usize) -> String {
    let s = |n: usize| if n == 1 { "" } else { "s" };
    format!("has {count} field{}, the table has {expected} column{}", s(count), s(expected))
}

/// The error about a record that goes on and on.
pub(super) fn too_long(at: u64, in_quotes: bool) -> FormatError {
    let why = if in_quotes { UNCLOSED } else { "no line end was found" };
    FormatError::data(format!(
        "the record at byte {at} is longer than {} MB: {why}; if quotes mean nothing here, set 'csv.disable-quote-character' = 'true'",
        RECORD_BYTES_MAX >> 20
    ))
}

/// A record chosen for decoding.
#[derive(Clone, Copy)]
struct Record {
    start: u32,
    end: u32,
    /// Its first separator.
    first: u32,
}

impl Decoder for CsvDecoder {
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        self.compact();
        self.buffer.room(bytes)
    }

    fn filled(&mut self, bytes: usize) {
        self.buffer.filled(bytes);
        self.index.scan(&self.buffer);
    }

    fn finish(&mut self) {
        if !self.finished {
            self.finished = true;
            self.buffer.finish();
            self.index.scan(&self.buffer);
            let last = self.index.record_ends.last().map_or(0, |&r| self.index.separators[r as usize] as usize + 1).max(self.cursor);
            if last < self.buffer.len() {
                self.unclosed = self.index.in_quotes();
                self.index.end(self.buffer.len());
            }
        }
    }

    fn next(&mut self, rows_max: usize) -> Result<Option<Decoded>, FormatError> {
        self.buffer.check(ENCODING)?;
        self.take_header()?;
        let available = self.index.record_ends.len();
        if self.taken == available {
            let waiting = self.buffer.len() - self.cursor.min(self.buffer.len());
            if waiting > RECORD_BYTES_MAX {
                return Err(too_long(self.buffer.offset(self.cursor), self.index.in_quotes()));
            }
            return Ok(None);
        }
        let mut records: Vec<Record> = Vec::with_capacity(rows_max.min(available - self.taken));
        let mut bad: Vec<(usize, String)> = Vec::new();
        let expected = self.physical.len();
        let first_record = self.records;
        let mut uneven = false;
        let begin = self.cursor;
        let mut first = self.separators(self.taken).start as u32;
        let ends = &self.index.record_ends[self.taken..available];
        for &last in ends {
            if records.len() == rows_max {
                break;
            }
            let (start, end) = (self.cursor, self.index.separators[last as usize] as usize);
            self.taken += 1;
            self.cursor = end + 1;
            if !self.is_blank(start, end) {
                uneven |= (last - first) as usize + 1 != expected;
                records.push(Record { start: start as u32, end: end as u32, first });
            }
            first = last + 1;
        }
        self.records += records.len() as u64;
        // Only the last record there is can end with the text.
        if self.unclosed && records.last().is_some_and(|record| record.end as usize == self.buffer.len()) {
            bad.push((records.len() - 1, UNCLOSED.to_string()));
        }
        let counts: Vec<u32> = if uneven { records.iter().map(|r| self.fields_of(r)).collect() } else { Vec::new() };
        if uneven {
            for (row, &count) in counts.iter().enumerate() {
                let count = count as usize;
                let record = records[row];
                let trailing = count == expected + 1 && self.options.allow_trailing_comma && self.ends_with_delimiter(&record);
                if (count > expected && !trailing && !self.options.ignore_trailing_unmappable)
                    || (count < expected && self.options.fail_on_missing_columns)
                {
                    bad.push((row, wrong_width(count, expected)));
                }
            }
        }
        let end = self.cursor.min(self.buffer.len());
        let text = &self.buffer[begin.min(end)..end];
        let seen_plain = self.index.is_plain_from(begin);
        let ascii = seen_plain || text.is_ascii();
        let options = &self.options;
        let plain = ascii
            && !uneven
            && !options.trim_spaces
            && options.null_literal.is_none()
            && (seen_plain || self.quote.is_none_or(|quote| memchr::memchr(quote, text).is_none()));
        // Views point into the text itself where they keep little else alive by it.
        let shares = plain && self.mostly_long && text.len() >= self.buffer.kept() / 2;
        let shared = shares.then(|| (Buffer::from(Bytes::from_owner(Ascii::new(self.buffer.share(begin..end)))), begin));
        let mut long = Long { shared, bytes: 0 };
        let mut arrays = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let mut failed: Vec<usize> = Vec::new();
            let usual = if plain { self.plain_column(column, &records, &mut long, &mut failed) } else { None };
            arrays.push(usual.unwrap_or_else(|| self.column(column, &records, &counts, ascii, &mut failed)));
            for row in failed {
                let text = self.raw_field(&records[row], column.field);
                bad.push((row, unfit(&column.name, &column.kind, text, ENCODING)));
            }
        }
        if plain {
            self.mostly_long = long.bytes >= text.len() / 2 && long.bytes > 0;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(records.len()));
        let mut batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?;
        let mut bad_records = Vec::new();
        if !bad.is_empty() {
            bad.sort_by_key(|(row, _)| *row);
            bad.dedup_by_key(|(row, _)| *row);
            let mut good = vec![true; records.len()];
            for (row, reason) in bad {
                good[row] = false;
                let record = records[row];
                let raw = &self.buffer[record.start as usize..record.end as usize];
                bad_records.push(BadRecord {
                    record: first_record + row as u64,
                    offset: self.buffer.offset(record.start as usize),
                    reason,
                    raw: raw.strip_suffix(b"\r").unwrap_or(raw).to_vec(),
                });
            }
            batch = filter_record_batch(&batch, &BooleanArray::from(good))?;
        }
        Ok(Some(Decoded { batch, kinds: None, offset: self.buffer.offset(end), records: self.records, bad: bad_records }))
    }

    fn buffered(&self) -> usize {
        self.buffer.len() - self.cursor.min(self.buffer.len())
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl CsvDecoder {
    /// How many fields a record has.
    fn fields_of(&self, record: &Record) -> u32 {
        let first = record.first as usize;
        let within = self.index.separators[first..].iter().take_while(|s| **s < record.end).count();
        within as u32 + 1
    }

    fn ends_with_delimiter(&self, record: &Record) -> bool {
        let text = &self.buffer[record.start as usize..record.end as usize];
        text.strip_suffix(b"\r").unwrap_or(text).last() == Some(&(self.options.field_delimiter as u8))
    }

    /// The bytes of a field as they stand in the text, the carriage return of a line end left out.
    #[inline]
    fn raw_field(&self, record: &Record, field: usize) -> &[u8] {
        let first = record.first as usize;
        let start = if field == 0 { record.start as usize } else { self.index.separators[first + field - 1] as usize + 1 };
        let end = self.index.separators[first + field] as usize;
        let text = &self.buffer[start..end];
        if end == record.end as usize { text.strip_suffix(b"\r").unwrap_or(text) } else { text }
    }

    /// A column of records that have all their fields and no quotes, if its type has a faster way.
    fn plain_column(&self, column: &Column, records: &[Record], long: &mut Long, failed: &mut Vec<usize>) -> Option<ArrayRef> {
        let (buffer, separators) = (&*self.buffer, self.index.separators.as_slice());
        let field = column.field;
        let begin = |r: &Record| if field == 0 { r.start as usize } else { separators[r.first as usize + field - 1] as usize + 1 };
        let (rows, empty_is_null) = (records.len(), column.empty_is_null);
        let mut bad = |row| failed.push(row);
        if field + 1 < self.physical.len() {
            let spans = records.iter().map(|r| (begin(r), separators[r.first as usize + field] as usize));
            plain::build(&column.kind, buffer, rows, spans, empty_is_null, long, &mut bad)
        } else {
            let spans = records.iter().map(|r| {
                let (from, to) = (begin(r), r.end as usize);
                (from, to - usize::from(to > from && buffer[to - 1] == b'\r'))
            });
            plain::build(&column.kind, buffer, rows, spans, empty_is_null, long, &mut bad)
        }
    }

    fn column(&self, column: &Column, records: &[Record], counts: &[u32], ascii: bool, failed: &mut Vec<usize>) -> ArrayRef {
        let trim = self.options.trim_spaces;
        let null_literal = self.options.null_literal.as_deref().map(str::as_bytes);
        // Fields with doubled quotes need memory of their own; they are rare, so they are kept
        // apart and looked up by row.
        let mut rewritten: Vec<(usize, Vec<u8>)> = Vec::new();
        if let Some(quote) = self.quote {
            for (row, record) in records.iter().enumerate() {
                if counts.get(row).is_some_and(|c| column.field >= *c as usize) {
                    continue;
                }
                let text = self.raw_field(record, column.field);
                if text.first() == Some(&quote)
                    && let Cow::Owned(text) = self.unquote(text)
                {
                    rewritten.push((row, text));
                }
            }
        }
        let field = |row: usize| {
            if counts.get(row).is_some_and(|c| column.field >= *c as usize) {
                return Field::Null;
            }
            let raw = self.raw_field(&records[row], column.field);
            let quoted = self.quote.is_some() && raw.first() == self.quote.as_ref();
            let text = match quoted {
                true if !rewritten.is_empty() => match rewritten.binary_search_by_key(&row, |r| r.0) {
                    Ok(at) => rewritten[at].1.as_slice(),
                    Err(_) => strip_quotes(raw),
                },
                true => strip_quotes(raw),
                false if trim => raw.trim_ascii(),
                false => raw,
            };
            let is_null = match null_literal {
                Some(literal) => text == literal || (text.is_empty() && column.empty_is_null),
                None => text.is_empty() && (column.empty_is_null && !(quoted && column.kind.is_text())),
            };
            if is_null { Field::Null } else { Field::Text(text) }
        };
        build(&column.kind, records.len(), ascii, field, |row| failed.push(row))
    }
}

/// A quoted field without anything doubled or escaped inside.
#[inline]
fn strip_quotes(raw: &[u8]) -> &[u8] {
    let inner = &raw[1..];
    inner.strip_suffix(&raw[..1]).unwrap_or(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::feed;
    use crate::options::{OptionSet, RawOptions};
    use arrow::array::{Array, AsArray, StringViewArray};
    use arrow::datatypes::{DataType, Field as ArrowField, TimeUnit};
    use tidemill_block::ascii::is_known;
    use tidemill_block::{Block, text};

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            ArrowField::new("s", DataType::Utf8, true),
            ArrowField::new("n", DataType::Int64, true),
            ArrowField::new("f", DataType::Float64, true),
            ArrowField::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        ]))
    }

    fn decoder(options: &[(&str, &str)], projection: &[usize]) -> CsvDecoder {
        let mut raw = RawOptions::new("t", options.iter().map(|(k, v)| (k.to_string(), v.to_string())));
        CsvDecoder::new(&CsvOptions::take(&mut raw).unwrap(), &schema(), projection).unwrap()
    }

    /// Decodes `input` pushed in pieces of `cut` bytes, `rows` rows at a time.
    fn decode(mut decoder: CsvDecoder, input: &[u8], cut: usize, rows: usize) -> (String, Vec<(u64, String)>, u64) {
        let mut out = String::new();
        let mut bad = Vec::new();
        let mut offset = 0;
        let mut drain = |decoder: &mut CsvDecoder| {
            while let Some(decoded) = decoder.next(rows).unwrap() {
                out += &text::format(&Block::inserts(decoded.batch, 0));
                bad.extend(decoded.bad.into_iter().map(|b| (b.record, b.reason)));
                offset = decoded.offset;
            }
        };
        for (number, piece) in input.chunks(cut.max(1)).enumerate() {
            feed(&mut decoder, piece, number);
            drain(&mut decoder);
        }
        decoder.finish();
        drain(&mut decoder);
        (out, bad, offset)
    }

    #[track_caller]
    fn check(options: &[(&str, &str)], input: &str, expect: &str, expect_bad: &[(u64, &str)]) {
        for (cut, rows) in [(usize::MAX, 1000), (1, 1), (7, 3), (usize::MAX, 1), (64, 1000)] {
            let (out, bad, offset) = decode(decoder(options, &[0, 1, 2, 3]), input.as_bytes(), cut, rows);
            let lines: Vec<_> = out.lines().collect();
            let expect: Vec<_> = expect.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
            assert_eq!(lines, expect, "cut {cut}, rows {rows}");
            let expect_bad: Vec<_> = expect_bad.iter().map(|(n, r)| (*n, r.to_string())).collect();
            assert_eq!(bad, expect_bad, "cut {cut}, rows {rows}");
            assert_eq!(offset, input.len() as u64, "cut {cut}, rows {rows}");
        }
    }

    #[test]
    fn plain_rows() {
        check(
            &[],
            "a,1,2.5,2024-01-02 03:04:05.678\nb,-7,1e3,2024-01-02 00:00:00\r\n",
            "+I a 1 2.5 2024-01-02T03:04:05.678\n+I b -7 1000.0 2024-01-02T00:00:00",
            &[],
        );
    }

    #[test]
    fn the_last_line_may_lack_its_end() {
        check(&[], "a,1,2.5,\nb,2,,", "+I a 1 2.5 NULL\n+I b 2 NULL NULL", &[]);
    }

    #[test]
    fn quotes_hold_delimiters_line_ends_and_quotes() {
        check(&[], "\"a,b\",1,1,\n\"c\"\"d\",\"2\",1,\n\"e\nf\",3,1,\n", "+I a,b 1 1.0 NULL\n+I c\"d 2 1.0 NULL\n+I e\nf 3 1.0 NULL", &[]);
    }

    #[test]
    fn bad_records_leave_their_neighbours_alone() {
        check(
            &[],
            "a,1,1,\nb,x,1,\nc,3\nd,99999999999999999999,1,\ne,5,1,,,\nf,6,1,\n",
            "+I a 1 1.0 NULL\n+I f 6 1.0 NULL",
            &[
                (1, "column 'n': 'x' is not a BIGINT"),
                (2, "has 2 fields, the table has 4 columns"),
                (3, "column 'n': '99999999999999999999' is not a BIGINT"),
                (4, "has 6 fields, the table has 4 columns"),
            ],
        );
    }

    #[test]
    fn options_change_what_is_read() {
        check(&[("csv.field-delimiter", ";")], "a;1;2;\n", "+I a 1 2.0 NULL", &[]);
        check(&[("csv.null-literal", "NA")], "NA,NA,2,\n,1,1,\n", "+I NULL NULL 2.0 NULL\n+I  1 1.0 NULL", &[]);
        check(&[("csv.allow-comments", "true")], "#x\na,1,2,\n\n\n", "+I a 1 2.0 NULL", &[]);
        check(&[("csv.fail-on-missing-columns", "false")], "a,1\n", "+I a 1 NULL NULL", &[]);
        check(&[("csv.ignore-trailing-unmappable", "true")], "a,1,2,,x,y\n", "+I a 1 2.0 NULL", &[]);
        check(&[("csv.header", "true")], "S,n,\"f\",t\na,1,2,\n", "+I a 1 2.0 NULL", &[]);
        check(&[("csv.escape-character", "\\")], "\"a\\\"b\",1,2,\n", "+I a\"b 1 2.0 NULL", &[]);
        check(&[("csv.disable-quote-character", "true")], "\"a,1,2,\n", "+I \"a 1 2.0 NULL", &[]);
    }

    #[test]
    fn what_stands_above_the_records() {
        check(&[], "\u{feff}\"a,b\",1,1,\n", "+I a,b 1 1.0 NULL", &[]);
        check(&[("csv.header", "true"), ("csv.allow-comments", "true")], "\n# x,y\nS,n,f,t\na,1,2,\n", "+I a 1 2.0 NULL", &[]);
        let mut utf16 = decoder(&[], &[0]);
        utf16.push(b"\xff\xfea\0,\0");
        let error = utf16.next(10).unwrap_err().to_string();
        assert!(error.contains("byte order mark of UTF-16LE, but is read as UTF-8; say 'csv.encoding' = 'UTF-16'"), "{error}");
    }

    #[test]
    fn open_quotes_and_zero_bytes_are_named() {
        let unclosed = "a quote was opened and never closed";
        check(&[], "a,1,2,\n\"b,2,3,\nc,3,4,\n", "+I a 1 2.0 NULL", &[(1, unclosed)]);
        check(&[], "a,1,2,\nb,2,3,\"\n", "+I a 1 2.0 NULL", &[(1, unclosed)]);
        let zeros = "column 'n': '2\\0' is not a BIGINT; it has zero bytes: if the text is UTF-16, say so by 'csv.encoding'";
        check(&[], "a,1,2,\nb,2\0,3,\n", "+I a 1 2.0 NULL", &[(1, zeros)]);
    }

    #[test]
    fn a_wrong_header_is_an_error() {
        let mut decoder = decoder(&[("csv.header", "true")], &[0]);
        decoder.push(b"s,n,t,f\na,1,2,\n");
        let error = decoder.next(10).unwrap_err().to_string();
        assert!(error.starts_with("the header line names the columns (s, n, t, f), but the table declares (s, n, f, t)"), "{error}");
    }

    #[test]
    fn bytes_that_are_not_utf8_are_a_bad_record_only_where_they_are_asked_for() {
        let input = b"a\xff,1,2,\nb,2,3,\n";
        let (out, bad, _) = decode(decoder(&[], &[0, 1]), input, usize::MAX, 10);
        assert_eq!((out.as_str(), bad.len()), ("+I b 2\n", 1));
        let (out, bad, _) = decode(decoder(&[], &[1]), input, usize::MAX, 10);
        assert_eq!((out.as_str(), bad.len()), ("+I 1\n+I 2\n", 0));
    }

    #[test]
    fn a_projection_may_be_empty_or_reordered() {
        let (out, _, _) = decode(decoder(&[], &[2, 0]), b"a,1,2,\n", usize::MAX, 10);
        assert_eq!(out, "+I 2.0 a\n");
        let mut none = decoder(&[], &[]);
        none.push(b"a,1,2,\nb,1,2,\n");
        assert_eq!(none.next(10).unwrap().unwrap().batch.num_rows(), 2);
    }

    /// Views keep their texts while the decoder goes on, whether they point into what it read or not.
    #[test]
    fn views_stay_as_they_are() {
        let columns = |texts: DataType| {
            let column = |name: &str| ArrowField::new(name, texts.clone(), true);
            Arc::new(Schema::new(vec![column("a"), ArrowField::new("n", DataType::Int64, true), column("b")]))
        };
        let long = |n: usize| "abcdefghijklmnopqrstuvwxyz0123456789".repeat(8)[n % 7..n % 250 + 7].to_string();
        // Long texts, with short ones, quotes and texts that are not ASCII now and then, many short ones, long ones again, and a bad
        // record. The last line has no end.
        let odd = |n: usize| match n % 997 {
            5 => "short".to_string(),
            117 => format!("\"{}, \"\"quoted\"\"\"", long(n)),
            640 => format!("{}ä", long(n)),
            _ => long(n),
        };
        let mut input: String = (0..3000).map(|n| format!("{},{n},{}\n", long(n), odd(n))).collect();
        input.extend((0..5000).map(|n| format!("x{n},{n},\n")));
        input.extend((0..900).map(|n| format!("{},{},{}\n", long(n), if n == 850 { "bad" } else { "7" }, long(n + 9))));
        input.pop();
        for (cut, rows, whole) in [(usize::MAX, 100, true), (30_000, 8192, false), (5000, 8192, false), (700, 3, false)] {
            // All rows, how many records are bad, and how many batches point into what was read.
            let decode = |texts: DataType, keep: bool| {
                let mut raw = RawOptions::new("t", std::iter::empty());
                let mut decoder = CsvDecoder::new(&CsvOptions::take(&mut raw).unwrap(), &columns(texts), &[0, 1, 2]).unwrap();
                let (mut batches, mut shown, mut bad, mut shared) = (Vec::new(), String::new(), 0, 0);
                let show = |batch: &RecordBatch| text::format(&Block::inserts(batch.clone(), 0));
                let mut pieces = input.as_bytes().chunks(cut.min(input.len())).enumerate();
                loop {
                    let piece = pieces.next();
                    match piece {
                        Some((number, piece)) => feed(&mut decoder, piece, number),
                        None => decoder.finish(),
                    }
                    while let Some(decoded) = decoder.next(rows).unwrap() {
                        bad += decoded.bad.len();
                        if let Some(first) = decoded.batch.column(0).as_any().downcast_ref::<StringViewArray>()
                            && let (Some(buffer), Some(last)) =
                                (first.data_buffers().first(), decoded.batch.column(2).as_string_view().data_buffers().first())
                            && buffer.as_ptr() == last.as_ptr()
                        {
                            assert!(is_known(buffer));
                            shared += 1;
                        }
                        shown += &show(&decoded.batch);
                        if keep {
                            batches.push(decoded.batch);
                        }
                    }
                    if piece.is_none() {
                        break;
                    }
                }
                // What was kept is what it was.
                assert!(!keep || batches.iter().map(show).collect::<String>() == shown);
                (shown, bad, shared)
            };
            let texts = decode(DataType::Utf8, true);
            for keep in [true, false] {
                let views = decode(DataType::Utf8View, keep);
                assert!(texts.0 == views.0, "cut {cut}, rows {rows}");
                assert_eq!((texts.1, views.1), (1, 1), "cut {cut}, rows {rows}");
                // Of a text that comes as a whole each batch is a small part.
                assert_eq!(views.2 == 0, whole, "cut {cut}, rows {rows}");
                let bytes = input.len() - 5000 * 12;
                assert!(whole || views.2 >= bytes / cut.max(500) / 2, "cut {cut}, rows {rows}: {} shared", views.2);
            }
        }
    }

    #[test]
    fn random_text_gives_the_same_however_it_is_cut() {
        let mut seed = 7u64;
        let mut next = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize
        };
        let alphabet = b"a1,\"\n\r -.";
        for _ in 0..500 {
            let input: Vec<u8> = (0..next() % 200).map(|_| alphabet[next() % alphabet.len()]).collect();
            let whole = decode(decoder(&[], &[0, 1, 2, 3]), &input, usize::MAX, 1000);
            for (cut, rows) in [(1, 1), (3, 1000), (65, 2)] {
                let pieces = decode(decoder(&[], &[0, 1, 2, 3]), &input, cut, rows);
                assert_eq!((&pieces.0, &pieces.1), (&whole.0, &whole.1), "{:?}", String::from_utf8_lossy(&input));
            }
        }
    }
}
