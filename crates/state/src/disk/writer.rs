//! Writes a run, row by row in the order of the hashes.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::ColdError;
use super::filter::RunFilter;
use super::page::{PageBuilder, ROW_BYTES_MAX, ROW_EXTRA};
use super::place::Place;
use super::run::{self, CONTINUES, Counts, Run, TRAILER, Written};
use super::system::{begin_writing, wait_written};
use crate::checksum::Checksum;
use crate::hash::mix;

/// A page ends before it would be larger; a row that is larger has a page of its own.
pub(crate) const PAGE_BYTES: usize = 8 << 10;
/// Bytes written at once.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes of a file that must be safe that are on their way to the disk at most: who reads meanwhile waits behind them.
const UNDERWAY_BYTES: u64 = 4 << 20;
/// Bytes between two syncs of such a file: a sync of all of a large file at its end would hold up other writes to the disk for long.
const SYNC_BYTES: u64 = 64 << 20;

/// The filter of a run in the making is for at most as many keys as this part of the memory for filters has bytes; it then takes
/// a fifth of that.
const FILTER_PART: usize = 8;

/// What is known of a run before it is written.
pub(crate) struct Plan {
    /// At most so many rows.
    pub rows: usize,
    /// No hash is less.
    pub first: u64,
    /// No hash is greater.
    pub last: u64,
    pub sequence: u64,
    /// Whether the file must be safe on disk before it counts.
    pub sync: bool,
}

/// A run in the making. Its file is removed if it is not finished.
pub(crate) struct RunWriter<'a> {
    place: &'a Place,
    plan: Plan,
    path: PathBuf,
    name: String,
    /// Taken when the run is finished.
    file: Option<File>,
    page: PageBuilder,
    out: Vec<u8>,
    /// Bytes in the file.
    written: u64,
    unsynced: u64,
    /// Where the bytes begin that are on their way to the disk.
    underway: u64,
    firsts: Vec<u64>,
    offsets: Vec<u64>,
    filter: RunFilter,
    counts: Counts,
    /// A checksum of the checksums of the pages.
    content: u64,
    /// Told to end early.
    stop: &'a AtomicBool,
}

impl<'a> RunWriter<'a> {
    /// Creates the file.
    ///
    /// # Errors
    /// The file system's.
    pub fn create(place: &'a Place, plan: Plan, stop: &'a AtomicBool) -> Result<Self, ColdError> {
        let name = place.file_name("run");
        let path = place.directory.join(&name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|e| ColdError::io("creating the state file", &path, &e))?;
        let filter = RunFilter::new(plan.rows.min(place.memory / FILTER_PART), plan.first, plan.last);
        let counts = Counts { sequence: plan.sequence, ..Counts::default() };
        let mut out = Vec::with_capacity(WRITE_BYTES + 2 * PAGE_BYTES);
        out.extend_from_slice(&run::head(place));
        Ok(RunWriter {
            place,
            plan,
            path,
            name,
            file: Some(file),
            page: PageBuilder::default(),
            out,
            written: 0,
            unsynced: 0,
            underway: 0,
            firsts: Vec::new(),
            offsets: Vec::new(),
            filter,
            counts,
            content: 0,
            stop,
        })
    }

    /// Whether the store is ending, so that the run will not be needed.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Appends a row, or a deletion of the key that `row` then is.
    ///
    /// # Errors
    /// The file system's; a row of more than 2 GB.
    #[inline]
    pub fn push(&mut self, hash: u64, row: &[u8], deleted: bool) -> Result<(), ColdError> {
        if !self.page.is_empty() && self.page.bytes(&self.out) + row.len() + ROW_EXTRA > PAGE_BYTES {
            self.end_page()?;
        }
        if row.len() > ROW_BYTES_MAX {
            return Err(ColdError::new(format!(
                "the state of one key has {} bytes; no more than {ROW_BYTES_MAX} can be kept on disk: give the query a bound, or fewer \
                 distinct values a key",
                row.len()
            )));
        }
        self.page.push(hash, row, deleted, &mut self.out);
        self.filter.insert(hash);
        self.counts.rows += 1;
        self.counts.deletions += u64::from(deleted);
        Ok(())
    }

    fn end_page(&mut self) -> Result<(), ColdError> {
        let Some((first, last)) = self.page.span() else { return Ok(()) };
        let continues = self.counts.last == first && !self.firsts.is_empty();
        if self.firsts.is_empty() {
            self.counts.first = first;
        }
        self.counts.last = last;
        let offset = self.written + self.page.start() as u64;
        let sum = self.page.finish(offset, &mut self.out);
        self.content = mix(self.content.rotate_left(17) ^ sum);
        self.firsts.push(first);
        self.offsets.push(offset | if continues { CONTINUES } else { 0 });
        if self.out.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), ColdError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(&self.out).map_err(|e| ColdError::io("writing the state file", &self.path, &e))?;
        let bytes = self.out.len() as u64;
        self.out.clear();
        self.written += bytes;
        self.unsynced += bytes;
        self.place.counters.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        if !self.plan.sync {
            return Ok(());
        }
        let syncing = |e| ColdError::io("syncing the state file", &self.path, &e);
        begin_writing(file, self.written - bytes, bytes);
        let settled = self.written.saturating_sub(UNDERWAY_BYTES);
        if settled > self.underway {
            wait_written(file, self.underway, settled - self.underway).map_err(syncing)?;
            self.underway = settled;
        }
        if self.unsynced >= SYNC_BYTES {
            self.unsynced = 0;
            file.sync_data().map_err(syncing)?;
        }
        Ok(())
    }

    /// Ends the run. `None` if there was no row: then there is no file.
    ///
    /// # Errors
    /// The file system's.
    pub fn finish(mut self) -> Result<Option<Run>, ColdError> {
        self.end_page()?;
        if self.counts.rows == 0 {
            return Ok(None);
        }
        self.write()?;
        let footer = self.written;
        self.offsets.push(footer);
        let (firsts, offsets) = (std::mem::take(&mut self.firsts), std::mem::take(&mut self.offsets));
        let mut filter = std::mem::replace(&mut self.filter, RunFilter::new(0, 0, 0));
        filter.fit(self.counts.rows as usize);
        let (words, [base, shift, scale]) = filter.parts();
        let mut sum = Checksum::new();
        for numbers in [firsts.as_slice(), offsets.as_slice(), words].into_iter().flat_map(|all| all.chunks(WRITE_BYTES / 8)) {
            numbers.iter().for_each(|n| self.out.extend_from_slice(&n.to_le_bytes()));
            sum.update(&self.out);
            self.write()?;
        }
        let (pages, words) = (firsts.len() as u64, words.len() as u64);
        let Counts { rows, deletions, first, last, sequence } = self.counts;
        let numbers: [u64; TRAILER - 1] =
            [footer, pages, words, rows, deletions, first, last, sequence, base, shift, scale, self.content, sum.finish()];
        let trailer: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let checksum = Checksum::of(&trailer);
        self.out.extend_from_slice(&trailer);
        self.out.extend_from_slice(&checksum.to_le_bytes());
        self.write()?;
        if let Some(file) = self.file.as_ref().filter(|_| self.plan.sync) {
            file.sync_all().map_err(|e| ColdError::io("syncing the state file", &self.path, &e))?;
        }
        let file = self.file.take().expect("finished once");
        Ok(Some(Run::from(Written {
            path: std::mem::take(&mut self.path),
            name: std::mem::take(&mut self.name),
            file,
            counts: self.counts,
            bytes: self.written,
            checksum,
            firsts,
            offsets,
            filter,
            synced: self.plan.sync,
        })))
    }
}

impl Drop for RunWriter<'_> {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // What remains is removed when the store is opened the next time.
            let _ = fs::remove_file(&self.path);
        }
    }
}
