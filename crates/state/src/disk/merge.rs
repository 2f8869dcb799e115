//! Rows of several runs and buffers in the order of their hashes, hidden versions left out.

use std::ops::Range;
use std::sync::Arc;

use super::buffer::Buffer;
use super::error::ColdError;
use super::page::Page;
use super::place::Place;
use super::run::Run;

/// Bytes read at once from a run.
const READ_BYTES: u64 = 256 << 10;

/// Goes through the rows of a run or a buffer.
pub(crate) enum Cursor<'a> {
    Run(RunCursor),
    Buffer { buffer: &'a Buffer, rows: Vec<u32>, at: usize },
}

/// Goes through the rows of a run that count.
pub(crate) struct RunCursor {
    run: Arc<Run>,
    /// No page is read that begins behind this hash.
    last: u64,
    /// Some pages, read and checked.
    bytes: Vec<u8>,
    /// Which.
    pages: Range<usize>,
    page: usize,
    /// Where the page is in `bytes`.
    place: Range<usize>,
    rows: usize,
    row: usize,
    hash: u64,
}

impl RunCursor {
    /// At the first row that counts of a page, or of one behind that does not begin after the hash `last`; `None` if there is none.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn new(run: Arc<Run>, page: usize, last: u64) -> Result<Option<Self>, ColdError> {
        let mut cursor = RunCursor { run, last, bytes: Vec::new(), pages: 0..0, page: 0, place: 0..0, rows: 0, row: 0, hash: 0 };
        Ok(cursor.load(page)?.then_some(cursor))
    }

    /// Goes to the first row of a page that counts, or of one behind.
    fn load(&mut self, page: usize) -> Result<bool, ColdError> {
        self.page = page;
        loop {
            if self.page >= self.run.pages() || self.run.first(self.page) > self.last {
                return Ok(false);
            }
            if !self.pages.contains(&self.page) {
                self.fill()?;
            }
            let start = self.run.offset(self.pages.start);
            self.place = (self.run.offset(self.page) - start) as usize..(self.run.offset(self.page + 1) - start) as usize;
            self.rows = self.view().len();
            self.row = 0;
            if self.settle() {
                return Ok(true);
            }
            self.page += 1;
        }
    }

    /// Reads some pages from the current one on.
    fn fill(&mut self) -> Result<(), ColdError> {
        let run = &self.run;
        let limit = run.offset(self.page) + READ_BYTES;
        let mut end = self.page + 1;
        while end < run.pages() && run.offset(end + 1) <= limit {
            end += 1;
        }
        let bytes = run.read(self.page..end, &mut self.bytes)?;
        for page in self.page..end {
            run.page(page, self.page, bytes)?;
        }
        self.pages = self.page..end;
        Ok(())
    }

    #[inline]
    fn view(&self) -> Page<'_> {
        Page::view(&self.bytes[self.place.clone()])
    }

    /// Goes on to a row of this page that counts, if there is one.
    #[inline]
    fn settle(&mut self) -> bool {
        while self.row < self.rows {
            self.hash = self.view().hash(self.row);
            if self.run.keeps(self.hash) {
                return true;
            }
            self.row += 1;
        }
        false
    }

    /// The hash of the row.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether the row is a deletion.
    pub fn is_deletion(&self) -> bool {
        self.view().row(self.row).1
    }

    /// Goes to the next row.
    ///
    /// # Errors
    /// What cannot be read.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, ColdError> {
        self.row += 1;
        if self.settle() { Ok(true) } else { self.load(self.page + 1) }
    }
}

impl<'a> Cursor<'a> {
    /// At the first row of a run; `None` if no row counts.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn run(run: &Arc<Run>) -> Result<Option<Self>, ColdError> {
        Ok(RunCursor::new(run.clone(), 0, u64::MAX)?.map(Cursor::Run))
    }

    /// At the first row of a buffer; `None` if there is none.
    pub fn buffer(buffer: &'a Buffer) -> Option<Self> {
        let rows = buffer.sorted();
        (!rows.is_empty()).then_some(Cursor::Buffer { buffer, rows, at: 0 })
    }

    /// The hash of the row.
    #[inline]
    fn hash(&self) -> u64 {
        match self {
            Cursor::Run(cursor) => cursor.hash(),
            Cursor::Buffer { buffer, rows, at } => buffer.hashes()[rows[*at] as usize],
        }
    }

    /// The row, and whether it is a deletion.
    #[inline]
    fn row(&self) -> (&[u8], bool) {
        match self {
            Cursor::Run(cursor) => cursor.view().row(cursor.row),
            Cursor::Buffer { buffer, rows, at } => buffer.row(rows[*at]),
        }
    }

    /// Goes to the next row, if there is one.
    #[inline]
    fn advance(&mut self) -> Result<bool, ColdError> {
        match self {
            Cursor::Run(cursor) => cursor.advance(),
            Cursor::Buffer { rows, at, .. } => {
                *at += 1;
                Ok(*at < rows.len())
            }
        }
    }
}

/// The newest version of each key, in the order of hashes. The newest of `cursors` comes first. `bottom`: nothing is
/// older than these, so deletions have nothing to delete and are left out. `emit` gets hash, row, and whether it
/// is a deletion; it ends the merge by `false`.
///
/// # Errors
/// What cannot be read; what `emit` says.
pub(crate) fn merge(
    place: &Place,
    mut cursors: Vec<Cursor>,
    bottom: bool,
    mut emit: impl FnMut(u64, &[u8], bool) -> Result<bool, ColdError>,
) -> Result<(), ColdError> {
    let mut heads: Vec<u64> = cursors.iter().map(Cursor::hash).collect();
    // Keys seen of the hash in hand, if several cursors have it.
    let (mut seen, mut ends): (Vec<u8>, Vec<usize>) = (Vec::new(), Vec::new());
    while let Some(hash) = heads.iter().copied().min() {
        let newest = heads.iter().position(|h| *h == hash).expect("the least is one of them");
        let alone = !heads[newest + 1..].contains(&hash);
        seen.clear();
        ends.clear();
        let mut at = newest;
        while at < cursors.len() {
            if heads[at] != hash {
                at += 1;
                continue;
            }
            // Within one cursor keys differ.
            let cursor = &mut cursors[at];
            let more = loop {
                let (row, deleted) = cursor.row();
                let fresh = alone || {
                    let key = place.codec.key(row);
                    let starts = std::iter::once(&0).chain(&ends);
                    let fresh = !starts.zip(&ends).any(|(start, end)| &seen[*start..*end] == key);
                    if fresh {
                        seen.extend_from_slice(key);
                        ends.push(seen.len());
                    }
                    fresh
                };
                if fresh && !(deleted && bottom) && !emit(hash, row, deleted)? {
                    return Ok(());
                }
                if !cursor.advance()? {
                    break false;
                }
                let next = cursor.hash();
                if next != hash {
                    heads[at] = next;
                    break true;
                }
            };
            if more {
                at += 1;
            } else {
                cursors.remove(at);
                heads.remove(at);
            }
            if alone {
                break;
            }
        }
    }
    Ok(())
}
