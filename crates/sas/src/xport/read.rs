//! The rows of a data set in an XPORT file.
//!
//! Nothing says how many rows there are. The data set ends with the file or where a record begins the next data
//! set, and the blanks that fill its last record may look like short rows: rows of nothing but blanks within that
//! record are no rows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::head::{self, Head};
use super::{RECORD, header_name, next_record};
use crate::column::{self, Column, Wanted};
use crate::decode::{Batches, Numbers, Rows};
use crate::pages::{self, Pages};
use crate::{Charset, SasError};

/// Bytes read at once: a multiple of the length of a record.
const RUN_BYTES: usize = RECORD * (1 << 14);

/// An open XPORT file: one data set of it.
#[derive(Clone)]
pub struct XportFile {
    inner: Arc<Inner>,
}

struct Inner {
    file: Arc<dyn Pages>,
    head: Head,
    schema: SchemaRef,
    charset: Charset,
    /// Whether the data set was asked for by name; otherwise it must be the only one.
    named: bool,
}

impl XportFile {
    /// Opens the data set of the name `member` (in letters of either case), or the first one. Text is read in that
    /// character set; without one it is UTF-8 where it can be that, and otherwise Windows-1252.
    ///
    /// # Errors
    /// The file cannot be read, is none of this format or damaged, has no such data set.
    pub fn open(file: Arc<dyn Pages>, member: Option<&str>, charset: Option<Charset>) -> Result<XportFile, SasError> {
        head::check_library(file.as_ref())?;
        // Three records describe the library.
        let mut head = head::read(file.as_ref(), 3 * RECORD as u64)?;
        if let Some(member) = member {
            let mut others = Vec::new();
            while !head.name.eq_ignore_ascii_case(member) {
                let Some(next) = next_member(file.as_ref(), head.rows_at)? else {
                    others.push(head.name);
                    return Err(SasError::data(format!("there is no data set '{member}' in it; there are: {}", others.join(", "))));
                };
                let found = head::read(file.as_ref(), next)?;
                others.push(std::mem::replace(&mut head, found).name);
            }
        }
        let schema = column::schema(&head.columns);
        let charset = charset.unwrap_or(Charset::Guess);
        Ok(XportFile { inner: Arc::new(Inner { file, head, schema, charset, named: member.is_some() }) })
    }

    /// The columns as fields, all nullable, with their labels and formats as metadata.
    pub fn schema(&self) -> SchemaRef {
        self.inner.schema.clone()
    }

    /// The columns as the file describes them.
    pub fn columns(&self) -> &[Column] {
        &self.inner.head.columns
    }

    /// The name of the data set.
    pub fn name(&self) -> &str {
        &self.inner.head.name
    }

    /// Its label.
    pub fn label(&self) -> &str {
        &self.inner.head.label
    }

    /// The version of the format: 5 or 8.
    pub fn version(&self) -> u8 {
        if self.inner.head.long { 8 } else { 5 }
    }

    /// Length of a row, bytes.
    pub fn row_bytes(&self) -> usize {
        self.inner.head.row_bytes
    }

    /// Reads the rows from row `start` (from 0) on: the columns `wanted`, in batches of up to `batch_rows` rows (fewer
    /// where rows are very long). Nothing is decoded of other columns.
    ///
    /// # Errors
    /// A column that the file does not have, a row beyond its end.
    pub fn read(&self, start: u64, wanted: &[Wanted], batch_rows: usize) -> Result<XportRows, SasError> {
        let Inner { head, charset, file, .. } = &*self.inner;
        let batches = Batches::new(&head.columns, wanted, Numbers::Ibm, *charset, head.row_bytes, batch_rows)?;
        let at = start.checked_mul(head.row_bytes as u64).and_then(|bytes| bytes.checked_add(head.rows_at));
        let Some(at) = at.filter(|at| *at <= file.size()) else {
            return Err(SasError::data(format!(
                "it has fewer than {start} rows, but had them before: the file was replaced; put it back, or start the job without \
                 its checkpoint"
            )));
        };
        Ok(XportRows {
            file: self.clone(),
            batches,
            next: at,
            buffer: Vec::new(),
            buffer_at: at,
            cursor: 0,
            checked: next_record(at),
            end: None,
            another: None,
            starts: Vec::new(),
            rows: start,
            done: head.row_bytes == 0,
        })
    }
}

/// Where the next data set begins behind byte `from`, which begins a record; reads all of what lies between.
fn next_member(file: &dyn Pages, from: u64) -> Result<Option<u64>, SasError> {
    let mut buffer = vec![0; RUN_BYTES];
    let mut at = from;
    loop {
        let length = pages::fill(file, at, &mut buffer)?;
        if let Some(found) = member_in(&buffer[..length]) {
            return Ok(Some(at + found as u64));
        }
        if length < buffer.len() {
            return Ok(None);
        }
        at += length as u64;
    }
}

/// The place of the first record that begins a data set, in bytes that begin with a record.
fn member_in(bytes: &[u8]) -> Option<usize> {
    let found = bytes.chunks_exact(RECORD).position(|record| {
        // Nearly every record is told by its first byte.
        record[0] == b'H' && matches!(header_name(record), Some("MEMBER" | "MEMBV8"))
    });
    found.map(|index| index * RECORD)
}

/// The rows of a data set, in batches. After an error there are no more.
pub struct XportRows {
    file: XportFile,
    batches: Batches,
    /// Where the next bytes are read.
    next: u64,
    buffer: Vec<u8>,
    /// Where `buffer` begins in the file, and the first byte in it that was not decoded.
    buffer_at: u64,
    cursor: usize,
    /// Up to here, a record's beginning, no data set begins.
    checked: u64,
    /// Where the data set ends, once that was seen.
    end: Option<u64>,
    /// The name of the data set behind it, if there is one.
    another: Option<String>,
    starts: Vec<usize>,
    /// The number of the next row, from 0.
    rows: u64,
    done: bool,
}

impl XportRows {
    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.batches.schema()
    }

    /// The number of the first row of the next batch, from 0.
    pub fn row(&self) -> u64 {
        self.rows
    }

    /// Reads more bytes behind those that were not decoded, and looks for the end in them.
    fn load(&mut self) -> Result<(), SasError> {
        let inner = &self.file.inner;
        self.buffer.drain(..self.cursor);
        self.buffer_at += self.cursor as u64;
        self.cursor = 0;
        let kept = self.buffer.len();
        let left = inner.file.size().saturating_sub(self.next);
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(RUN_BYTES.max(inner.head.row_bytes));
        self.buffer.resize(kept + want, 0);
        let got = pages::fill(inner.file.as_ref(), self.next, &mut self.buffer[kept..])?;
        self.buffer.truncate(kept + got);
        self.next += got as u64;
        // The file may have become shorter since it was opened; it ends where nothing more is read.
        let last = got == 0 || self.next >= inner.file.size();
        let unchecked = usize::try_from(self.checked.saturating_sub(self.buffer_at)).unwrap_or(usize::MAX).min(self.buffer.len());
        if let Some(found) = member_in(&self.buffer[unchecked..]) {
            let end = self.checked + found as u64;
            if !inner.named {
                self.another = Some(head::read(inner.file.as_ref(), end)?.name);
            }
            self.end = Some(end);
            self.buffer.truncate(unchecked + found);
            return Ok(());
        }
        self.checked += ((self.buffer.len() - unchecked) / RECORD * RECORD) as u64;
        if last {
            self.end = Some(self.next);
        }
        Ok(())
    }

    /// How many whole rows in the buffer may be decoded.
    fn whole_rows(&self) -> Result<usize, SasError> {
        let row_bytes = self.file.inner.head.row_bytes;
        let bytes = &self.buffer[self.cursor..];
        if self.end.is_none() {
            // The last records may turn out to be filled with blanks, or to begin something else.
            let safe = self.checked.saturating_sub(self.buffer_at + self.cursor as u64).saturating_sub(RECORD as u64);
            return Ok(usize::try_from(safe).unwrap_or(usize::MAX).min(bytes.len()) / row_bytes);
        }
        let blank = |bytes: &[u8]| bytes.iter().all(|b| *b == b' ');
        let mut rows = bytes.len() / row_bytes;
        while rows > 0 && bytes.len() - (rows - 1) * row_bytes < RECORD && blank(&bytes[(rows - 1) * row_bytes..rows * row_bytes]) {
            rows -= 1;
        }
        let rest = &bytes[rows * row_bytes..];
        if !blank(rest) || rest.len() >= RECORD {
            return Err(SasError::data(format!(
                "the file is cut short: row {} has {row_bytes} bytes, of which {} are there",
                self.rows + self.batches.len() as u64 + rows as u64 + 1,
                rest.len()
            )));
        }
        Ok(rows)
    }

    fn advance(&mut self) -> Result<Option<RecordBatch>, SasError> {
        let row_bytes = self.file.inner.head.row_bytes;
        loop {
            let whole = self.whole_rows()?;
            if whole > 0 {
                let take = whole.min(self.batches.room());
                self.starts.clear();
                self.starts.extend((0..take).map(|row| self.cursor + row * row_bytes));
                self.batches.push(&Rows { bytes: &self.buffer, starts: &self.starts });
                self.cursor += take * row_bytes;
                if self.batches.room() == 0 {
                    return self.finish();
                }
            } else if self.end.is_none() {
                self.load()?;
            } else if !self.batches.is_empty() {
                return self.finish();
            } else {
                self.done = true;
                let Some(another) = &self.another else { return Ok(None) };
                return Err(SasError::data(format!(
                    "it has more than one data set: behind '{}' stands '{another}'; name one, 'xport.member' = '{another}'",
                    self.file.name()
                )));
            }
        }
    }

    fn finish(&mut self) -> Result<Option<RecordBatch>, SasError> {
        let batch = self.batches.finish()?;
        self.rows += batch.num_rows() as u64;
        Ok(Some(batch))
    }
}

impl Iterator for XportRows {
    type Item = Result<RecordBatch, SasError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.advance().transpose();
        self.done |= matches!(next, Some(Err(_)));
        next
    }
}
