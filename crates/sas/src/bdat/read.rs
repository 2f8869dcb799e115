//! From page to page: runs of pages into memory, their rows into batches.

use std::ops::Range;

use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;

use super::meta::{self, Packing};
use super::page::{Page, PageKind, RowRef};
use super::{HEAD_BYTES, SasFile, rdc, rle};
use crate::column::Wanted;
use crate::decode::{Batches, Numbers, Rows};
use crate::{SasError, pages};

/// Bytes read at once, unless a page is longer: they stay in a processor's own cache until they are decoded.
const RUN_BYTES: usize = 256 << 10;
/// Compressed rows are unpacked into so many bytes before they are decoded, unless a row is longer.
const UNPACKED_BYTES: usize = 256 << 10;

/// Rows that are looked at without one being chosen before a batch is given all the same, empty, so that whoever asks sees that
/// it goes on.
const LOOKED_ROWS: usize = 64 << 10;

/// Says of rows of some columns which are chosen, those for which it is true; `None` means all.
pub type Choose = Box<dyn FnMut(&RecordBatch) -> Result<Option<BooleanArray>, SasError> + Send>;

/// Where a row is: so many rows behind the first of a page. Rows that were deleted do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the page, from 0.
    pub page: u64,
    /// How many rows come before it from the beginning of that page; they may reach into later pages.
    pub skip: u64,
}

/// The rows of some pages, in batches. After an error there are no more.
pub struct SasRows {
    file: SasFile,
    batches: Batches,
    /// The next page to read and the one to stop before.
    next: u64,
    end: u64,
    /// The page that `buffer` begins with.
    run: u64,
    buffer: Vec<u8>,
    /// The rows in `buffer`, and the first of them that was not decoded.
    refs: Vec<RowRef>,
    cursor: usize,
    /// Rows to pass over.
    skip: u64,
    /// Unpacked rows.
    unpacked: Vec<u8>,
    /// Where rows begin, for the decoder.
    starts: Vec<usize>,
    /// Rows seen so far, if the file is read from its first page to its last.
    seen: Option<u64>,
    choice: Option<Choice>,
    done: bool,
}

/// Which rows are given.
struct Choice {
    /// The columns that tell.
    batches: Batches,
    choose: Choose,
    /// Rows looked at since the last batch was given.
    looked: usize,
}

impl Choice {
    /// Takes out of `starts`, where rows in `bytes` begin, those that are not chosen.
    fn apply(&mut self, bytes: &[u8], starts: &mut Vec<usize>) -> Result<(), SasError> {
        self.batches.push(&Rows { bytes, starts: starts.as_slice() });
        let rows = self.batches.finish()?;
        self.looked += starts.len();
        let Some(chosen) = (self.choose)(&rows)? else { return Ok(()) };
        assert_eq!(chosen.len(), starts.len(), "an answer for each row");
        let mut row = 0..chosen.len();
        starts.retain(|_| row.next().is_some_and(|row| chosen.is_valid(row) && chosen.value(row)));
        Ok(())
    }
}

impl SasRows {
    pub(super) fn new(file: SasFile, pages: Range<u64>, skip: u64, wanted: &[Wanted], batch_rows: usize) -> Result<Self, SasError> {
        let inner = &file.inner;
        let count = inner.header.pages;
        if pages.start > pages.end || pages.end > count {
            return Err(SasError::data(format!("pages {} to {} were asked for, but the file has {count}", pages.start, pages.end)));
        }
        let numbers = if inner.header.words.big { Numbers::Big } else { Numbers::Little };
        let batches = Batches::new(&inner.columns, wanted, numbers, inner.charset, inner.row_bytes, batch_rows)?;
        let seen = (pages == (0..count)).then_some(0);
        Ok(SasRows {
            batches,
            next: pages.start,
            end: pages.end,
            run: pages.start,
            buffer: Vec::new(),
            refs: Vec::new(),
            cursor: 0,
            skip,
            unpacked: Vec::new(),
            starts: Vec::new(),
            seen,
            choice: None,
            done: false,
            file,
        })
    }

    /// Gives only the rows that `choose` chooses by their columns `of`, whether or not those are wanted besides: of other rows
    /// nothing else is decoded. Batches may then be empty, and have no more rows than before.
    ///
    /// # Errors
    /// A column that the file does not have.
    pub fn choosing(mut self, of: &[Wanted], choose: Choose) -> Result<Self, SasError> {
        let inner = &self.file.inner;
        let batches = self.batches.of_others(&inner.columns, of)?;
        self.choice = Some(Choice { batches, choose, looked: 0 });
        Ok(self)
    }

    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.batches.schema()
    }

    /// Where the first row of the next batch is; a reader that begins at this page and passes over these rows
    /// continues exactly there.
    pub fn place(&self) -> Place {
        if self.cursor < self.refs.len() {
            Place { page: self.run, skip: self.cursor as u64 }
        } else {
            Place { page: self.next, skip: self.skip }
        }
    }

    /// Passes over pages by their heads, as long as those tell that all of their rows are to be passed over.
    fn skip_pages(&mut self) -> Result<(), SasError> {
        let inner = &self.file.inner;
        while self.skip > 0 && self.next < self.end {
            let mut head = [0; HEAD_BYTES];
            pages::fill_all(inner.file.as_ref(), inner.header.page_at(self.next), &mut head, &format!("the head of page {}", self.next))?;
            match Page::new(&head, inner.header.words, self.next)?.rows_told() {
                Some(rows) if rows <= self.skip => {
                    self.skip -= rows;
                    self.next += 1;
                    if let Some(seen) = &mut self.seen {
                        *seen += rows;
                    }
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// Reads the next run of pages and finds their rows.
    fn load(&mut self) -> Result<(), SasError> {
        self.skip_pages()?;
        if self.next == self.end {
            return Ok(());
        }
        let inner = &self.file.inner;
        let page_bytes = inner.header.page_bytes;
        let count = ((RUN_BYTES / page_bytes).max(1) as u64).min(self.end - self.next);
        self.buffer.resize(count as usize * page_bytes, 0);
        let at = inner.header.page_at(self.next);
        pages::fill_all(inner.file.as_ref(), at, &mut self.buffer, &format!("what begins with page {}", self.next))?;
        self.refs.clear();
        (self.run, self.cursor) = (self.next, 0);
        let (words, packed) = (inner.header.words, inner.packing != Packing::None);
        for (index, bytes) in self.buffer.chunks_exact(page_bytes).enumerate() {
            let number = self.run + index as u64;
            let page = Page::new(bytes, words, number)?;
            let metadata = number < inner.front || page.kind == PageKind::Amendment;
            let plain_row = |bytes: &[u8]| !metadata || meta::signature(words, bytes).is_none();
            page.rows(inner.row_bytes, packed, index * page_bytes, plain_row, &mut self.refs)?;
        }
        self.next += count;
        if let Some(seen) = &mut self.seen {
            *seen += self.refs.len() as u64;
        }
        self.cursor = self.refs.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
        self.skip -= self.cursor as u64;
        Ok(())
    }

    /// Decodes up to as many rows as the batch has room for.
    fn decode(&mut self) -> Result<(), SasError> {
        let inner = &self.file.inner;
        let row_bytes = inner.row_bytes;
        let mut take = self.batches.room().min(self.refs.len() - self.cursor);
        self.starts.clear();
        let bytes = if inner.packing == Packing::None {
            self.starts.extend(self.refs[self.cursor..self.cursor + take].iter().map(|row| row.at));
            &self.buffer
        } else {
            take = take.min((UNPACKED_BYTES / row_bytes.max(1)).max(1));
            self.unpacked.resize(take * row_bytes, 0);
            for (index, row) in self.refs[self.cursor..self.cursor + take].iter().enumerate() {
                let from = &self.buffer[row.at..row.at + row.length];
                let to = &mut self.unpacked[index * row_bytes..(index + 1) * row_bytes];
                let sound = if row.length == row_bytes {
                    to.copy_from_slice(from);
                    true
                } else if inner.packing == Packing::Rle {
                    rle::unpack(from, to)
                } else {
                    rdc::unpack(from, to)
                };
                if !sound {
                    let page = self.run + (row.at / inner.header.page_bytes) as u64;
                    let what = format!("a compressed row on page {page} does not unpack to {row_bytes} bytes: the file is damaged");
                    return Err(SasError::data(what));
                }
                self.starts.push(index * row_bytes);
            }
            &self.unpacked
        };
        if let Some(choice) = &mut self.choice {
            choice.apply(bytes, &mut self.starts)?;
        }
        self.batches.push(&Rows { bytes, starts: &self.starts });
        self.cursor += take;
        Ok(())
    }

    /// Whether a batch is to be given. Where rows are chosen it need not be full: the last ones would be looked for a few at once.
    fn is_due(&self) -> bool {
        match &self.choice {
            None => self.batches.room() == 0,
            Some(choice) => self.batches.room() < self.batches.len().max(1) || choice.looked >= LOOKED_ROWS,
        }
    }

    /// The batch of what was decoded.
    fn give(&mut self) -> Result<Option<RecordBatch>, SasError> {
        if let Some(choice) = &mut self.choice {
            choice.looked = 0;
        }
        self.batches.finish().map(Some)
    }

    /// What is wrong at the end of the pages, if something is.
    fn check_end(&self) -> Result<(), SasError> {
        if self.skip > 0 {
            return Err(SasError::data(format!(
                "there are {} rows fewer than before: the file was replaced; put it back, or start the job without its checkpoint",
                self.skip
            )));
        }
        match self.seen {
            Some(seen) if seen != self.file.rows() => Err(SasError::data(format!(
                "its pages have {seen} rows, but its metadata says {}: the file is damaged, or is being written",
                self.file.rows()
            ))),
            _ => Ok(()),
        }
    }

    fn advance(&mut self) -> Result<Option<RecordBatch>, SasError> {
        loop {
            if self.cursor < self.refs.len() {
                self.decode()?;
                if self.is_due() {
                    return self.give();
                }
            } else if self.next < self.end {
                self.load()?;
            } else {
                self.done = true;
                self.check_end()?;
                let looked = self.choice.as_ref().is_some_and(|choice| choice.looked > 0);
                return if self.batches.is_empty() && !looked { Ok(None) } else { self.give() };
            }
        }
    }
}

impl Iterator for SasRows {
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
