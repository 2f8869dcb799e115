//! Fixed-width text to record batches. Where a block of lines is ASCII, a column is a slice of each; otherwise characters
//! are counted in those lines that are not.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef};

use super::layout::{Layout, Place};
use super::{ENCODING, FixedOptions, Trim, trim_end, trim_start};
use crate::buffer::TextBuffer;
use crate::csv::Header;
use crate::csv::field::{Field, Kind, build, unfit};
use crate::types::type_name;
use crate::{BadRecord, Decoded, Decoder, FormatError, RECORD_BYTES_MAX};

/// Consumed bytes are cut off the buffer when there are more of them than this.
const COMPACT_BYTES: usize = 1 << 20;
/// Lines that memory is kept for before they are there.
const LINES: usize = 1024;

/// Decodes fixed-width text, parsing only the columns asked for.
pub struct FixedDecoder {
    layout: Layout,
    /// Characters that a line needs.
    needed: usize,
    names: Vec<String>,
    columns: Vec<Column>,
    schema: SchemaRef,
    header: Header,
    allow_short: bool,
    buffer: TextBuffer,
    /// Where the next line begins, and how far no line end was found behind that.
    cursor: usize,
    scanned: usize,
    records: u64,
    finished: bool,
}

struct Column {
    name: String,
    place: Place,
    kind: Kind,
    trim: Trim,
    /// What a field must be for NULL, as [`Trim::told`] gives it: nothing if a blank one is.
    null: Vec<u8>,
}

/// A line in the buffer, without its end.
#[derive(Clone, Copy)]
struct Line {
    start: usize,
    end: usize,
}

/// The bytes of columns in lines that are not ASCII.
#[derive(Default)]
struct Wide {
    /// For each row: 0 if its line is ASCII, otherwise the number of its entry in `bounds`, from 1. Empty if all are.
    of_row: Vec<u32>,
    /// For each such line where each column begins and ends, bytes from the line's beginning.
    bounds: Vec<(usize, usize)>,
}

impl FixedDecoder {
    /// A decoder of the columns `projection` of `physical`, for text that begins where a file begins.
    ///
    /// # Errors
    /// A column type that text cannot express; a place that is none.
    pub fn new(options: &FixedOptions, physical: &SchemaRef, projection: &[usize]) -> Result<Self, FormatError> {
        let names: Vec<&str> = physical.fields().iter().map(|f| f.name().as_str()).collect();
        let layout = Layout::of(&options.widths, &names)?;
        let null = options.null_literal.as_deref().unwrap_or_default().as_bytes();
        let columns = projection.iter().map(|&at| -> Result<Column, FormatError> {
            let field = physical.field(at);
            let kind = Kind::of(field.name(), field.data_type()).map_err(|_| unsupported(field.name(), &type_name(field.data_type())))?;
            let trim = if kind.is_text() { options.trim } else { Trim::Both };
            Ok(Column { name: field.name().clone(), place: layout.places[at], kind, trim, null: trim.told(null).to_vec() })
        });
        Ok(FixedDecoder {
            columns: columns.collect::<Result<_, FormatError>>()?,
            needed: layout.length(),
            layout,
            names: names.into_iter().map(String::from).collect(),
            schema: Arc::new(Schema::new(projection.iter().map(|i| physical.fields()[*i].clone()).collect::<Vec<_>>())),
            header: options.header,
            allow_short: options.allow_short_lines,
            buffer: TextBuffer::new(),
            cursor: 0,
            scanned: 0,
            records: 0,
            finished: false,
        })
    }

    /// Says that the text begins in the middle of a file, where no header line stands.
    pub fn without_header(mut self) -> Self {
        self.header = Header::No;
        self.buffer = TextBuffer::without_mark();
        self
    }

    /// Cuts off what was consumed.
    fn compact(&mut self) {
        if self.cursor >= COMPACT_BYTES || (self.cursor > 0 && self.cursor == self.buffer.len()) {
            self.buffer.discard(self.cursor);
            self.scanned = self.scanned.saturating_sub(self.cursor);
            self.cursor = 0;
        }
    }

    /// The next line that is whole; it counts as consumed.
    #[inline]
    fn line(&mut self) -> Option<Line> {
        let from = self.scanned.max(self.cursor);
        let (start, end) = match memchr::memchr(b'\n', &self.buffer[from..]) {
            Some(n) => {
                let end = from + n;
                (std::mem::replace(&mut self.cursor, end + 1), end)
            }
            None => {
                let end = self.buffer.len();
                self.scanned = end;
                if !self.finished || self.cursor == end {
                    return None;
                }
                (std::mem::replace(&mut self.cursor, end), end)
            }
        };
        let end = if end > start && self.buffer[end - 1] == b'\r' { end - 1 } else { end };
        Some(Line { start, end })
    }

    /// Passes over the header line if it is there, and over empty lines above it.
    fn take_header(&mut self) -> Result<(), FormatError> {
        while self.header != Header::No {
            let Some(Line { start, end }) = self.line() else { return Ok(()) };
            if start == end {
                continue;
            }
            if self.header == Header::Checked {
                self.check_header(&self.buffer[start..end])?;
            }
            self.header = Header::No;
        }
        Ok(())
    }

    fn check_header(&self, line: &[u8]) -> Result<(), FormatError> {
        let line: Vec<char> = String::from_utf8_lossy(line).chars().collect();
        let name = |place: &Place| {
            let text: String = line[place.start.min(line.len())..place.end.min(line.len())].iter().collect();
            text.trim().to_string()
        };
        let found: Vec<String> = self.layout.places.iter().map(name).collect();
        if found.iter().zip(&self.names).all(|(a, b)| a.eq_ignore_ascii_case(b)) {
            return Ok(());
        }
        Err(FormatError::data(format!(
            "at the columns' places the header line has ({}), but the table declares ({}); correct 'fixed.widths', or set 'fixed.header' = 'skip'",
            found.join(", "),
            self.names.join(", ")
        )))
    }

    /// Looks at lines that are not ASCII: where their columns are, and which are not UTF-8.
    #[cold]
    fn wide(&self, lines: &[Line], bad: &mut Vec<(usize, String)>) -> Wide {
        let mut wide = Wide { of_row: vec![0; lines.len()], bounds: Vec::new() };
        let mut starts: Vec<usize> = Vec::new();
        let mut entries = 0;
        for (row, line) in lines.iter().enumerate() {
            let bytes = &self.buffer[line.start..line.end];
            if bytes.is_ascii() {
                continue;
            }
            entries += 1;
            wide.of_row[row] = entries;
            starts.clear();
            match std::str::from_utf8(bytes) {
                Ok(text) => {
                    starts.extend(text.char_indices().map(|(at, _)| at));
                    let beyond = |places: usize| starts.get(places).map_or(b"".as_slice(), |from| &bytes[*from..]);
                    self.check_length(row, starts.len(), beyond, bad);
                }
                Err(e) => {
                    let at = e.valid_up_to() + 1;
                    let hint = format!("if the text is in another encoding, say it by '{ENCODING}'");
                    bad.push((row, format!("byte {at} of the line is not UTF-8, so its characters cannot be counted; {hint}")));
                }
            }
            let at = |place: usize| starts.get(place).copied().unwrap_or(if starts.is_empty() { 0 } else { bytes.len() });
            wide.bounds.extend(self.columns.iter().map(|column| (at(column.place.start), at(column.place.end))));
        }
        wide
    }

    /// Notes it if a line of so many characters is too short or too long; `beyond` gives what stands behind a place.
    #[inline]
    fn check_length<'a>(&self, row: usize, length: usize, beyond: impl Fn(usize) -> &'a [u8], bad: &mut Vec<(usize, String)>) {
        if length < self.needed && !self.allow_short {
            let s = if length == 1 { "" } else { "s" };
            bad.push((row, format!("has {length} character{s}, the table's columns end at {}", self.needed)));
        }
        if let Some(exact) = self.layout.exact
            && length > exact
            && !beyond(exact).iter().all(|byte| *byte == b' ')
        {
            bad.push((row, format!("has {length} characters, 'fixed.widths' ends at {exact}")));
        }
    }

    fn column(&self, at: usize, lines: &[Line], ascii: bool, wide: &Wide, failed: &mut Vec<(usize, String)>) -> ArrayRef {
        let column = &self.columns[at];
        let field = |row: usize| {
            let text = self.text(at, row, lines[row], wide);
            let Some(text) = text else { return Field::Null };
            // The others have no blanks any more that count.
            let told = if column.trim == Trim::None { trim_end(text) } else { text };
            let null = told == column.null || (told.is_empty() && !column.kind.is_text());
            if null { Field::Null } else { Field::Text(text) }
        };
        build(&column.kind, lines.len(), ascii, field, |row| {
            let text = self.text(at, row, lines[row], wide).unwrap_or_default();
            failed.push((row, unfit(&column.name, &column.kind, text, ENCODING)));
        })
    }

    /// The text of a field without the blanks around it; none if the line ends before it.
    #[inline]
    fn text(&self, at: usize, row: usize, line: Line, wide: &Wide) -> Option<&[u8]> {
        let column = &self.columns[at];
        let bytes = &self.buffer[line.start..line.end];
        let (from, to) = match wide.of_row.get(row) {
            None | Some(0) => (column.place.start.min(bytes.len()), column.place.end.min(bytes.len())),
            Some(entry) => wide.bounds[(*entry as usize - 1) * self.columns.len() + at],
        };
        // The rest of a line that ends where it begins is there, and empty.
        if from == to && (self.allow_short || !column.place.is_rest()) {
            return None;
        }
        let text = &bytes[from..to];
        Some(match column.trim {
            Trim::None => text,
            Trim::End => trim_end(text),
            Trim::Both => trim_start(trim_end(text)),
        })
    }
}

#[cold]
pub(super) fn unsupported(name: &str, kind: &str) -> FormatError {
    FormatError::unsupported(format!("column '{name}': the fixed format has no {kind}"))
}

impl Decoder for FixedDecoder {
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
        self.take_header()?;
        let begin = self.cursor;
        let mut lines: Vec<Line> = Vec::with_capacity(rows_max.min(LINES));
        if self.header == Header::No {
            while lines.len() < rows_max {
                match self.line() {
                    Some(line) if line.start < line.end => lines.push(line),
                    Some(_) => {}
                    None => break,
                }
            }
        }
        if self.cursor == begin {
            if self.buffer.len() - self.cursor > RECORD_BYTES_MAX {
                return Err(FormatError::data(format!(
                    "the line at byte {} is longer than {} MB: no line end was found; is this text?",
                    self.buffer.offset(self.cursor),
                    RECORD_BYTES_MAX >> 20
                )));
            }
            return Ok(None);
        }
        let ascii = self.buffer[begin..self.cursor].is_ascii();
        let mut bad: Vec<(usize, String)> = Vec::new();
        let wide = if ascii { Wide::default() } else { self.wide(&lines, &mut bad) };
        for (row, line) in lines.iter().enumerate() {
            if matches!(wide.of_row.get(row), None | Some(0)) {
                let bytes = &self.buffer[line.start..line.end];
                self.check_length(row, bytes.len(), |from| &bytes[from..], &mut bad);
            }
        }
        let mut arrays = Vec::with_capacity(self.columns.len());
        for at in 0..self.columns.len() {
            arrays.push(self.column(at, &lines, ascii, &wide, &mut bad));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(lines.len()));
        let mut batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?;
        let mut records = Vec::new();
        if !bad.is_empty() {
            bad.sort_by_key(|(row, _)| *row);
            bad.dedup_by_key(|(row, _)| *row);
            let mut good = vec![true; lines.len()];
            for (row, reason) in bad {
                good[row] = false;
                let Line { start, end } = lines[row];
                let (record, offset) = (self.records + row as u64, self.buffer.offset(start));
                records.push(BadRecord { record, offset, reason, raw: self.buffer[start..end].to_vec() });
            }
            batch = filter_record_batch(&batch, &BooleanArray::from(good))?;
        }
        self.records += lines.len() as u64;
        Ok(Some(Decoded { batch, kinds: None, offset: self.buffer.offset(self.cursor), records: self.records, bad: records }))
    }

    fn buffered(&self) -> usize {
        self.buffer.len() - self.cursor
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
