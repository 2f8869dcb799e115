//! JSON lines and documents to batches.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use tidemill_block::RowKind;

use super::change::{ChangeFormat, Envelope};
use super::column::{Context, Record};
use super::scan::{Fault, Scan};
use super::split::{self, Splitter, Step};
use super::{JsonForm, JsonOptions};
use crate::buffer::TextBuffer;
use crate::{BadRecord, Decoded, Decoder, FormatError, RECORD_BYTES_MAX};

/// After so many bytes of records a batch is full, whatever its rows: with one more record of the
/// greatest size its strings still have 32-bit offsets.
const BATCH_BYTES_MAX: usize = 128 << 20;

/// Reads one JSON object a line, blank lines skipped, or the objects of a document.
///
/// Values are read as Flink reads them: a STRING column takes numbers, booleans, arrays and objects
/// as their text; numbers, booleans and decimals may stand in quotes; BYTES are base64. Only the
/// projected columns are built, all else is checked to be JSON and passed over.
pub struct JsonDecoder {
    schema: SchemaRef,
    record: Record,
    context: Context,
    /// What the objects are if they are not rows but changes of rows.
    envelope: Option<Envelope>,
    /// The kinds of the rows so far, of changes.
    kinds: Vec<RowKind>,
    input: Input,
    form: Form,
    /// The first byte pushed is the first of the text.
    at_start: bool,
    finished: bool,
    records: u64,
    /// The mean length of a record so far, bytes: how many rows are worth reserving for.
    record_bytes: usize,
}

/// What decides where a record ends.
enum Form {
    /// Not known before more of the text is there.
    Undecided,
    /// Line ends.
    Lines,
    /// Brackets.
    Document(Splitter),
}

impl Form {
    /// Of a text that is read from its beginning, or from somewhere in the middle.
    fn new(form: JsonForm, at_start: bool) -> Self {
        match form {
            JsonForm::Auto => Form::Undecided,
            JsonForm::Lines => Form::Lines,
            JsonForm::Document => Form::Document(if at_start { Splitter::default() } else { Splitter::in_the_middle() }),
        }
    }
}

/// The text not yet decoded.
struct Input {
    bytes: TextBuffer,
    /// Where the next record begins.
    at: usize,
    /// No line end lies between `at` and here.
    searched: usize,
    /// All bytes between `at` and here are UTF-8.
    checked: usize,
}

impl JsonDecoder {
    /// A decoder that makes the columns `projection` of the columns `physical`.
    ///
    /// # Errors
    /// A column type that JSON cannot hold.
    pub fn new(options: &JsonOptions, physical: &SchemaRef, projection: &[usize]) -> Result<Self, FormatError> {
        let fields: Vec<_> = projection.iter().map(|i| physical.fields()[*i].clone()).collect();
        Ok(JsonDecoder {
            record: Record::new("", fields.iter())?,
            schema: Arc::new(Schema::new(fields)),
            context: Context { scratch: Vec::new(), fail_on_missing: options.fail_on_missing_field },
            envelope: None,
            kinds: Vec::new(),
            input: Input::new(),
            form: Form::new(options.form, true),
            at_start: true,
            finished: false,
            records: 0,
            record_bytes: 256,
        })
    }

    /// For text that goes on behind a record, and does not begin.
    pub fn in_the_middle(mut self) -> Self {
        self.at_start = false;
        if let Form::Document(splitter) = &mut self.form {
            *splitter = Splitter::in_the_middle();
        }
        self
    }

    /// A decoder of changes, an envelope a line, whose rows have the columns `projection` of `physical`.
    ///
    /// # Errors
    /// As [`JsonDecoder::new`].
    pub fn of_changes(format: &ChangeFormat, physical: &SchemaRef, projection: &[usize]) -> Result<Self, FormatError> {
        Ok(JsonDecoder { envelope: Some(format.envelope), ..JsonDecoder::new(&format.rows, physical, projection)? })
    }
}

impl Input {
    fn new() -> Self {
        Input { bytes: TextBuffer::without_mark(), at: 0, searched: 0, checked: 0 }
    }

    fn compact(&mut self) {
        // Moving what is left costs no more than what was consumed before it, so it is paid for.
        if self.at > 0 && self.at >= self.bytes.len() - self.at {
            self.bytes.discard(self.at);
            self.searched = self.searched.saturating_sub(self.at);
            self.checked = self.checked.saturating_sub(self.at);
            self.at = 0;
        }
    }

    /// The next line: its range without the line end, and where the line behind it begins.
    #[inline]
    fn line(&mut self, finished: bool) -> Result<Option<(usize, usize, usize)>, FormatError> {
        let from = self.searched.max(self.at);
        let found = memchr::memchr(b'\n', &self.bytes[from..]);
        let (mut end, next) = match found {
            Some(n) => (from + n, from + n + 1),
            None => {
                self.searched = self.bytes.len();
                (self.bytes.len(), self.bytes.len())
            }
        };
        if end - self.at > RECORD_BYTES_MAX {
            let offset = self.bytes.offset(self.at);
            return Err(FormatError::data(format!(
                "the record at byte {offset} is longer than {} MB; is this one JSON object a line?",
                RECORD_BYTES_MAX >> 20
            )));
        }
        if found.is_none() && !(finished && self.at < end) {
            return Ok(None);
        }
        if end > self.at && self.bytes[end - 1] == b'\r' {
            end -= 1;
        }
        Ok(Some((self.at, end, next)))
    }

    /// The next record of a document, as [`Input::line`] gives lines.
    fn object(&mut self, splitter: &mut Splitter, finished: bool) -> Result<Option<(usize, usize, usize)>, FormatError> {
        match splitter.next(&self.bytes[self.at..], finished) {
            Step::Record { start, end } => Ok(Some((self.at + start, self.at + end, self.at + end))),
            Step::More(passed) => {
                self.at += passed;
                Ok(None)
            }
            Step::TooLong(passed) => {
                self.at += passed;
                let (offset, bound) = (self.bytes.offset(self.at), RECORD_BYTES_MAX >> 20);
                let why = format!("the object at byte {offset} is longer than {bound} MB; is a quote or a bracket of it missing?");
                Err(FormatError::data(why))
            }
            Step::Unclosed(passed) => {
                self.at += passed;
                let offset = self.bytes.offset(self.at);
                let why = format!("the array is not closed at byte {offset}, where the text ends; it was cut, or is still being written");
                Err(FormatError::data(why))
            }
        }
    }

    /// Whether `bytes[..end]`, from the last line consumed on, is UTF-8. Checks all complete characters
    /// at hand at once, so that small batches do not pay for it again and again.
    #[inline]
    fn is_utf8(&mut self, end: usize, finished: bool) -> bool {
        if end <= self.checked {
            return true;
        }
        let from = self.checked.max(self.at);
        // An ASCII byte is the end of a character.
        let whole = || self.bytes[end..].iter().rposition(u8::is_ascii).map_or(end, |n| end + n + 1);
        let to = if finished { self.bytes.len() } else { whole() };
        self.checked = match std::str::from_utf8(&self.bytes[from..to]) {
            Ok(_) => to,
            Err(e) => from + e.valid_up_to(),
        };
        end <= self.checked
    }
}

impl Decoder for JsonDecoder {
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        debug_assert!(!self.finished, "bytes behind the end of the stream");
        self.input.compact();
        self.input.bytes.room(bytes)
    }

    fn filled(&mut self, bytes: usize) {
        self.input.bytes.filled(bytes);
    }

    fn finish(&mut self) {
        self.finished = true;
    }

    fn next(&mut self, rows_max: usize) -> Result<Option<Decoded>, FormatError> {
        if let Form::Undecided = self.form {
            let bytes = &self.input.bytes[self.input.at..];
            let form = if self.at_start { split::form(bytes, self.finished) } else { split::form_behind(bytes, self.finished) };
            let Some(form) = form else { return Ok(None) };
            self.form = Form::new(form, self.at_start);
        }
        let mut bad = Vec::new();
        let (mut rows, mut taken, mut consumed) = (0usize, 0usize, 0usize);
        let mut offset = self.input.bytes.offset(self.input.at);
        // An update is two rows of one record, so of changes there may be one row more than asked for.
        while taken.max(rows) < rows_max && consumed < BATCH_BYTES_MAX {
            let found = match &mut self.form {
                Form::Document(splitter) => self.input.object(splitter, self.finished),
                Form::Lines | Form::Undecided => self.input.line(self.finished),
            };
            let (mut from, end, next) = match found {
                Ok(Some(record)) => record,
                Ok(None) => break,
                // The good rows in front of it come first; the next call fails.
                Err(_) if taken > 0 => break,
                Err(e) => return Err(e),
            };
            if self.input.bytes.offset(from) == 0 && self.input.bytes.starts_with(b"\xEF\xBB\xBF") {
                from = 3; // a byte order mark in front of the first record
            }
            let utf8 = self.input.is_utf8(end, self.finished);
            let line = &self.input.bytes[from..end];
            if line.trim_ascii().is_empty() {
                self.input.at = next;
                continue;
            }
            if taken == 0 {
                let at_hand = (self.input.bytes.len() - from) / self.record_bytes + 1;
                self.record.reserve(rows_max.min(at_hand));
            }
            let read = if utf8 {
                read(&mut self.record, line, &mut self.context, self.envelope, &mut self.kinds)
            } else {
                Err("the record is not valid UTF-8".into())
            };
            match read {
                Ok(more) => rows += more,
                Err(reason) => {
                    self.record.truncate(rows);
                    self.kinds.truncate(rows);
                    bad.push(BadRecord {
                        record: self.records,
                        offset: self.input.bytes.offset(from),
                        reason: reason.into(),
                        raw: line.to_vec(),
                    });
                    // What was found invalid must not be looked at again by the line behind it.
                    self.input.checked = self.input.checked.max(next);
                }
            }
            consumed += next - self.input.at;
            self.input.at = next;
            offset = self.input.bytes.offset(next);
            self.records += 1;
            taken += 1;
        }
        if taken == 0 {
            return Ok(None);
        }
        self.record_bytes = (consumed / taken).max(1);
        let columns = self.record.build()?;
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &RecordBatchOptions::new().with_row_count(Some(rows)))?;
        let kinds = self.envelope.is_some().then(|| std::mem::take(&mut self.kinds));
        Ok(Some(Decoded { batch, kinds, offset, records: self.records, bad }))
    }

    fn buffered(&self) -> usize {
        self.input.bytes.len() - self.input.at
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// Appends the row of one record, or the rows of one change; gives how many they are.
#[inline]
fn read(
    record: &mut Record,
    line: &[u8],
    context: &mut Context,
    envelope: Option<Envelope>,
    kinds: &mut Vec<RowKind>,
) -> Result<usize, Fault> {
    let mut scan = Scan::new(line);
    scan.blanks();
    let rows = match envelope {
        None => record.read(&mut scan, context).map(|()| 1)?,
        Some(envelope) => envelope.read(record, &mut scan, context, kinds)?,
    };
    scan.blanks();
    if scan.at < line.len() {
        return Err(scan.expected("nothing more"));
    }
    Ok(rows)
}
