//! Keyed state on disk: rows that left memory, in immutable runs sorted by hash.
//!
//! ```text
//!  put, delete                                  maybe, read
//!      │                                             │
//!      ▼            full                             ▼
//!  ┌────────┐    ┌────────┐   thread    ┌─────┐   filter of the whole store: seen at all?
//!  │ buffer │ ─▶ │ frozen │ ──────────▶ │ run │   then, the newest first: buffer, frozen buffer,
//!  └────────┘    └────────┘  sort,write ├─────┤   and of each run filter, index, pages
//!                                       │  …  │
//!                                       └─────┘
//!                                 thread │ merges eight of a size
//!                                        ▼
//!                                     ┌─────┐
//!                                     │ run │ … and so on; the oldest run is the largest
//!                                     └─────┘
//! ```
//!
//! A run is a file of pages of 8 KB (`run.rs`, `page.rs`), each with a checksum; its index and its filter are in memory.
//! Rows are bytes (`row.rs`). Newer runs hide rows of the same key in older ones; a deletion is a row that is a key
//! only, and vanishes when it is merged into the oldest run. All that lies on disk was written once from front to
//! end; there is no log, since what was not in a checkpoint is computed again.
//!
//! Nothing asks a disk for what is not there: a hash that was never put is refused by one look into one word of memory
//! (`filter.rs`); before a part of that filter is full, a thread makes one half as large again out of the runs. After a
//! restart the runs' own filters serve until it is complete. All filters have a share of memory: where it is used up, those
//! of large runs are halved and at last left on disk, and that of the store errs more often.
//!
//! # Costs
//!
//! For a row of 130 bytes, about: 60 ns to make it bytes, 40 ns for the index of the buffer, 10 ns for the filter, 100 ns
//! to sort and copy it, 60 ns to write it; each merge another 150 ns, and a row is merged once for each eightfold
//! of the number of runs; while hardly anything is read, since keys are new, for each thirty-twofold: of 800 runs
//! then once instead of two to three times. A hash that is not there: 10 ns. A row that is read: a page from the
//! kernel's cache, 1 to 2 µs, for each run that has a version of it. Memory: 1.5 bytes a key for the filter of its run,
//! 1.4 to 2.2 for the store's, 16 bytes a page for the index, two buffers of `run_bytes`.
//!
//! Pages are not compressed: that would cost more than all the rest, for rows that are mostly numbers.
//!
//! # Files
//!
//! A file, once written, never changes, and its name is never given again, so a checkpoint is a list of hard links
//! ([`ColdStore::files`], `list.rs`). The store removes a run when it has been merged away and the last list does not
//! name it. What a crash leaves behind is removed when a store of the same name is opened.
//!
//! What does not live here: which rows leave memory and when they come back (the operators), and the directories
//! of checkpoints (`checkpoint.rs`).

mod background;
mod buffer;
mod error;
mod filter;
mod list;
mod merge;
mod page;
mod place;
mod ranges;
mod read;
mod row;
mod run;
pub(crate) mod system;
mod writer;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

pub use error::ColdError;
pub use list::StateFile;

use background::{Files, Growth, Shared, heaviest};
use buffer::Buffer;
use filter::StoreFilter;
use merge::{Cursor, merge};
use place::{Place, SharedMine};
use ranges::Ranges;
use row::Prepared;
use run::{Keep, Run};

use crate::removal;

/// Rows made bytes at once, so that they stay in the caches.
const PIECE_ROWS: usize = 1024;
/// Rows and bytes of a piece of a scan.
const SCAN_ROWS: usize = 8192;
const SCAN_BYTES: usize = 4 << 20;
/// Counters need no order among themselves.
const RELAXED: Ordering = Ordering::Relaxed;

/// Where a store is and how it behaves.
#[derive(Clone, Debug)]
pub struct ColdOptions {
    /// The directory of its files; made if it is not there. Several stores may share it.
    pub directory: PathBuf,
    /// The begin of its files' names; no other store may have it at the same time.
    pub name: String,
    /// Bytes of rows gathered in memory before they are written as a run. Up to twice as many are held.
    pub run_bytes: usize,
    /// Bytes of memory for filters and indexes, about; a few MB at least. With less, filters err more often, and those of runs
    /// stay on disk at last; an index takes 16 bytes a page of 8 KB, however little is given.
    pub memory: usize,
}

static ON_DURABLE: OnceLock<fn()> = OnceLock::new();

/// Has `call` called, again and again, when checkpoints are made of state on disk: for whoever decides if the process has large
/// pages. To clear one stops a thread for milliseconds, and several do at once where tables of many keys grow. The first one stays.
pub fn on_durable_state(call: fn()) {
    let _ = ON_DURABLE.set(call);
}

/// Rows that left memory. See the module.
pub struct ColdStore {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    run_bytes: usize,
    active: Buffer,
    /// The filter that answers, and the one that will.
    filter: Option<Arc<StoreFilter>>,
    growing: Option<Arc<StoreFilter>>,
    scratch: read::Scratch,
}

/// What a store holds and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColdStats {
    /// Rows, about: versions that are hidden but not merged away yet count, too.
    pub rows: u64,
    /// Bytes of the runs.
    pub disk_bytes: u64,
    /// Bytes of filters, indices and buffers.
    pub memory_bytes: u64,
    /// Different hashes asked for by `read`, summed over its calls.
    pub reads: u64,
    /// Bytes read for them.
    pub read_bytes: u64,
    /// Bytes written, by merges, too.
    pub written_bytes: u64,
    /// Hashes refused by `maybe`.
    pub filter_negatives: u64,
    /// Hashes read of which there was nothing.
    pub filter_false: u64,
    /// Number of runs.
    pub runs: u64,
    /// Merges done.
    pub compactions: u64,
}

impl ColdStore {
    /// An empty store. `types`: of the columns of a row: key columns (`keys` of them) first, then state columns.
    ///
    /// # Errors
    /// The directory cannot be made or written to; a type that has no form on disk.
    pub fn create(options: ColdOptions, types: Vec<DataType>, keys: usize) -> Result<Self, ColdError> {
        Self::open(options, types, keys, Vec::new(), |_| true)
    }

    /// A store on the files of a checkpoint, those of any number of former shards: all files that each of these
    /// gave, lists included. Rows of hashes that `mine` refuses are not there; the hashes that it takes are to be a
    /// few ranges, as those of [`crate::hash::shard`] are. Files elsewhere are linked into the directory, or
    /// copied. Reads all but the pages.
    ///
    /// # Errors
    /// As [`ColdStore::create`]; a file that is missing, damaged, of another version or of other columns.
    pub fn open(
        options: ColdOptions,
        types: Vec<DataType>,
        keys: usize,
        runs: Vec<StateFile>,
        mine: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> Result<Self, ColdError> {
        let ColdOptions { directory, name, run_bytes, memory } = options;
        fs::create_dir_all(&directory).map_err(|e| ColdError::io("making the directory for state", &directory, &e))?;
        let mut place = Place::new(directory, name, &types, keys)?;
        let ours = Ranges::of(&mine);
        let pairs = ours.iter().flat_map(Ranges::pairs);
        place.bounds = pairs.copied().reduce(|(first, _), (_, last)| (first, last)).unwrap_or((0, u64::MAX));
        place.memory = memory;
        writable(&place)?;
        let opened = if runs.is_empty() { Vec::new() } else { open_runs(&place, &runs, ours.as_ref(), &(Arc::new(mine) as SharedMine))? };
        let given = runs.iter().map(|file| file.path.as_path());
        let keep: Vec<&Path> = opened.iter().map(|run| run.path.as_path()).chain(given).collect();
        list::clean(&place, &keep)?;
        // What was given elsewhere, a checkpoint's own files, is not the store's to remove.
        let is_here = |file: &&StateFile| file.path.parent() == Some(place.directory.as_path());
        let listed = runs.iter().filter(is_here).map(|file| file.path.clone()).collect();
        let shared = Arc::new(Shared::new(place, opened, listed));
        let threads = shared.start()?;
        let filter = shared.lock().filter.clone();
        let (active, scratch) = (Buffer::default(), read::Scratch::default());
        Ok(ColdStore { shared, threads, run_bytes, active, filter, growing: None, scratch })
    }

    /// Tells the store that checkpoints will be made: from now on merged runs are made safe on disk at once, and others are begun
    /// to be, so that not even the first [`ColdStore::files`] has to wait for much. A store that was opened on files knows.
    pub fn durable(&mut self) {
        self.shared.durable.store(true, RELAXED);
        if let Some(call) = ON_DURABLE.get() {
            call();
        }
    }

    /// Takes rows that leave memory, each key at most once; a newer version of a key hides older ones. Rows need no
    /// order.
    ///
    /// # Errors
    /// What the threads of the store could not do since the last call, such as writing to a full disk. Rows may have been
    /// taken or not; putting them again is right. The store stays usable and tries again.
    pub fn put(&mut self, hashes: &[u64], columns: &[ArrayRef]) -> Result<(), ColdError> {
        let shared = self.shared.clone();
        let rows = shared.place.codec.prepare(columns, hashes.len(), false)?;
        self.take(hashes, &rows, false)
    }

    /// Deletes keys of which an older version may lie here.
    ///
    /// # Errors
    /// As [`ColdStore::put`].
    pub fn delete(&mut self, hashes: &[u64], keys: &[ArrayRef]) -> Result<(), ColdError> {
        let shared = self.shared.clone();
        let rows = shared.place.codec.prepare(keys, hashes.len(), true)?;
        self.take(hashes, &rows, true)
    }

    fn take(&mut self, hashes: &[u64], rows: &Prepared, deleted: bool) -> Result<(), ColdError> {
        self.begin()?;
        self.shared.place.counters.rows.fetch_add(rows.rows() as u64, RELAXED);
        for start in (0..rows.rows()).step_by(PIECE_ROWS) {
            let some = start..rows.rows().min(start + PIECE_ROWS);
            for filter in self.filter.iter().chain(&self.growing) {
                filter.insert(&hashes[some.clone()]);
                if deleted {
                    filter.deleted(hashes[some.clone()].iter().copied());
                }
            }
            self.active.append(&self.shared.place, hashes, rows, some, deleted);
            if self.active.bytes() >= self.run_bytes {
                self.freeze()?;
            }
        }
        Ok(())
    }

    /// Whether the buffer is nearly full and there is no room for it yet, the one before being written or too many runs to be
    /// merged: some more rows may have to wait for a disk. For those who can do something else meanwhile.
    ///
    /// # Errors
    /// What the threads of the store could not do: nobody would have to wait for that.
    pub fn may_wait(&self) -> Result<bool, ColdError> {
        if self.active.bytes() < self.run_bytes / 4 * 3 {
            return Ok(false);
        }
        let mut state = self.shared.lock();
        self.shared.surface(&mut state)?;
        Ok(!state.has_room())
    }

    /// Hears of what the threads did meanwhile, and does the store's part in making filters.
    fn begin(&mut self) -> Result<(), ColdError> {
        let mut state = self.shared.lock();
        self.shared.surface(&mut state)?;
        self.filter.clone_from(&state.filter);
        match &state.growth {
            Growth::None => {
                self.growing = None;
                let rows = self.shared.place.counters.rows.load(RELAXED);
                if self.filter.as_ref().is_some_and(|filter| !filter.is_full() || rows < state.grows_from) {
                    return Ok(());
                }
                state.growth = Growth::Wanted(self.active.len());
            }
            Growth::Offered(filter) => {
                let filter = filter.clone();
                filter.insert(self.active.hashes());
                filter.deleted(self.active.deletions());
                self.growing = Some(filter.clone());
                state.growth = Growth::Scan(filter, state.runs.clone(), state.frozen.clone());
            }
            Growth::Wanted(_) | Growth::Scan(..) | Growth::Scanning => return Ok(()),
        }
        drop(state);
        self.shared.changed();
        Ok(())
    }

    /// Gives the buffer to the thread that writes, as soon as it has written the one before.
    fn freeze(&mut self) -> Result<(), ColdError> {
        let mut state = self.shared.lock();
        loop {
            self.shared.surface(&mut state)?;
            if state.has_room() {
                break;
            }
            state = self.shared.wait(state);
        }
        // One that grew for a few large rows is not kept.
        let spare = state.spare.take().filter(|buffer| buffer.memory() <= 4 * self.run_bytes);
        let next = spare.unwrap_or_else(|| self.active.like(self.run_bytes));
        state.frozen = Some(Arc::new(std::mem::replace(&mut self.active, next)));
        drop(state);
        self.shared.changed();
        Ok(())
    }

    /// Which of these hashes may be here, by filters only: appends indices into `hashes`. Where memory for them is short, that
    /// reads some words from disk.
    pub fn maybe(&self, hashes: &[u64], into: &mut Vec<u32>) {
        let (runs, frozen, filter) = {
            let state = self.shared.lock();
            (state.runs.clone(), state.frozen.clone(), state.filter.clone())
        };
        let before = into.len();
        match &filter {
            Some(filter) => filter.probe(hashes, into),
            None => into.extend(0..hashes.len() as u32),
        }
        let mut kept = before;
        for at in before..into.len() {
            let hash = hashes[into[at] as usize];
            let buffered = self.active.has(hash) || frozen.as_ref().is_some_and(|buffer| buffer.has(hash));
            if buffered || runs.iter().rev().any(|run| run.may_have(hash)) {
                into[kept] = into[at];
                kept += 1;
            }
        }
        into.truncate(kept);
        let refused = hashes.len() - (kept - before);
        self.shared.place.counters.filter_negatives.fetch_add(refused as u64, RELAXED);
    }

    /// Gives every live row, in pieces, in the order of their hashes.
    ///
    /// # Errors
    /// What cannot be read; what `piece` says.
    pub fn scan(&self, piece: &mut dyn FnMut(&[u64], &[ArrayRef]) -> Result<(), ColdError>) -> Result<(), ColdError> {
        let (runs, frozen) = {
            let state = self.shared.lock();
            (state.runs.clone(), state.frozen.clone())
        };
        let buffers = std::iter::once(&self.active).chain(frozen.as_deref());
        let mut cursors: Vec<Cursor> = buffers.filter_map(Cursor::buffer).collect();
        for run in runs.iter().rev() {
            cursors.extend(Cursor::run(run)?);
        }
        let codec = &self.shared.place.codec;
        let (mut hashes, mut arena, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mut give = |hashes: &mut Vec<u64>, arena: &mut Vec<u8>, ends: &mut Vec<usize>| -> Result<(), ColdError> {
            if !hashes.is_empty() {
                let starts = std::iter::once(&0).chain(&*ends);
                let rows: Vec<&[u8]> = starts.zip(&*ends).map(|(start, end)| &arena[*start..*end]).collect();
                piece(hashes, &codec.columns(&rows)?)?;
            }
            hashes.clear();
            arena.clear();
            ends.clear();
            Ok(())
        };
        merge(&self.shared.place, cursors, true, |hash, row, _| {
            hashes.push(hash);
            arena.extend_from_slice(row);
            ends.push(arena.len());
            if hashes.len() >= SCAN_ROWS || arena.len() >= SCAN_BYTES {
                give(&mut hashes, &mut arena, &mut ends)?;
            }
            Ok(true)
        })?;
        give(&mut hashes, &mut arena, &mut ends)
    }

    /// Everything put so far is in files, safe on disk: the files that make up the store now, a list that says how
    /// included; none if nothing is there. They stay until the next call of this. Their directory is not synced:
    /// whoever links them into another one syncs that.
    ///
    /// # Errors
    /// As [`ColdStore::put`]; a list that cannot be written.
    pub fn files(&mut self) -> Result<Vec<StateFile>, ColdError> {
        loop {
            if let Some(files) = self.poll_files(true)? {
                return Ok(files);
            }
        }
    }

    /// As [`ColdStore::files`], but does not wait for the disk: to be called again, with nothing put or deleted meanwhile, until
    /// it gives the files.
    ///
    /// # Errors
    /// As [`ColdStore::files`].
    pub fn try_files(&mut self) -> Result<Option<Vec<StateFile>>, ColdError> {
        self.poll_files(false)
    }

    fn poll_files(&mut self, wait: bool) -> Result<Option<Vec<StateFile>>, ColdError> {
        self.durable();
        self.begin()?;
        if !self.active.is_empty() {
            if !wait && !self.shared.lock().has_room() {
                return Ok(None);
            }
            self.freeze()?;
        }
        let mut state = self.shared.lock();
        loop {
            if let Err(error) = self.shared.surface(&mut state) {
                state.files = Files::None;
                return Err(error);
            }
            match std::mem::replace(&mut state.files, Files::None) {
                Files::Written(files) => return Ok(Some(files)),
                Files::None => {
                    state.asked += 1;
                    state.files = Files::Wanted(state.asked);
                    self.shared.changed();
                }
                wanted => state.files = wanted,
            }
            if !wait {
                return Ok(None);
            }
            state = self.shared.wait(state);
        }
    }

    /// Waits until the threads have nothing to do: for measurements and tests.
    ///
    /// # Errors
    /// What they could not do.
    pub fn settle(&mut self) -> Result<(), ColdError> {
        loop {
            self.begin()?;
            let mut state = self.shared.lock();
            self.shared.surface(&mut state)?;
            if state.idle(&self.shared.place) {
                return Ok(());
            }
            if !matches!(state.growth, Growth::Offered(_)) {
                drop(self.shared.wait(state));
            }
        }
    }

    /// What the store holds and did.
    pub fn stats(&self) -> ColdStats {
        let state = self.shared.lock();
        let counters = &self.shared.place.counters;
        let frozen = state.frozen.as_deref();
        let live = |run: &Arc<Run>| {
            let rows = run.counts.rows.saturating_sub(run.counts.deletions * 2);
            // Of a run that other stores have, too, only a part is ours.
            (rows as f64 * run.part()).round() as u64
        };
        let filters = self.filter.iter().chain(&self.growing).map(|f| f.memory()).sum::<usize>();
        let buffers = self.active.memory() + frozen.or(state.spare.as_ref()).map_or(0, Buffer::memory);
        let indices = state.runs.iter().map(|run| run.memory()).sum::<usize>();
        ColdStats {
            rows: state.runs.iter().map(live).sum::<u64>() + (self.active.len() + frozen.map_or(0, Buffer::len)) as u64,
            disk_bytes: state.runs.iter().map(|run| run.bytes).sum(),
            memory_bytes: (filters + buffers + indices) as u64,
            reads: counters.reads.load(RELAXED),
            read_bytes: counters.read_bytes.load(RELAXED),
            written_bytes: counters.written_bytes.load(RELAXED),
            filter_negatives: counters.filter_negatives.load(RELAXED),
            filter_false: counters.filter_false.load(RELAXED),
            runs: state.runs.len() as u64,
            compactions: counters.compactions.load(RELAXED),
        }
    }
}

impl Drop for ColdStore {
    /// Ends the threads, and removes the runs that no checkpoint knows.
    fn drop(&mut self) {
        self.shared.end();
        for thread in self.threads.drain(..) {
            // Its panic was caught and told.
            let _ = thread.join();
        }
        let state = self.shared.lock();
        for run in state.runs.iter().filter(|run| !state.listed.contains(&run.path)) {
            // What remains is removed when the store is opened the next time.
            let _ = removal::file(&run.path);
        }
    }
}

impl StateFile {
    /// Reads the file and compares what it holds with what was written. Opening a store does so for all but the pages of a
    /// run; this does it for them, too.
    ///
    /// # Errors
    /// The file is missing or damaged; the message names it and the page.
    pub fn verify(&self, types: &[DataType], keys: usize) -> Result<(), ColdError> {
        if self.name.ends_with(".list") {
            return list::check(self);
        }
        let place = Place::new(PathBuf::new(), "verify".into(), types, keys)?;
        let run = Run::open(&place, self.path.clone(), self.name.clone(), Some((self.bytes, self.checksum.as_str())))?;
        let mut bytes = Vec::new();
        (0..run.pages()).try_for_each(|page| run.page(page, page, run.read(page..page + 1, &mut bytes)?).map(|_| ()))
    }
}

/// Finds out at once whether files can be made in the directory.
fn writable(place: &Place) -> Result<(), ColdError> {
    let path = place.directory.join(place.file_name("list"));
    let tried = fs::File::create_new(&path).and_then(|_| fs::remove_file(&path));
    tried.map_err(|e| ColdError::io("writing to the directory for state", &place.directory, &e))
}

/// The runs among the files of a checkpoint that have rows of ours, the oldest first.
fn open_runs(place: &Place, files: &[StateFile], ours: Option<&Ranges>, mine: &SharedMine) -> Result<Vec<Arc<Run>>, ColdError> {
    let mut runs = Vec::new();
    for (file, valid) in list::valid(files)? {
        // What is no set of ranges is asked hash by hash.
        let ranges = ours.map_or_else(|| valid.clone(), |ours| valid.and(ours));
        if ranges.is_empty() {
            continue;
        }
        let mut run = Run::open(place, file.path.clone(), file.name.clone(), Some((file.bytes, file.checksum.as_str())))?;
        let (first, last) = (run.counts.first, run.counts.last);
        if ours.is_none() || !ranges.covers(first, last) {
            if ranges.and(&Ranges::new(vec![(first, last)])).is_empty() {
                continue;
            }
            run.keep = Some(Keep { ranges, mine: mine.clone() });
        }
        list::adopt(place, file, &mut run)?;
        runs.push(Arc::new(run));
        // Their filters must not all be in memory first.
        while let Some(at) = heaviest(&runs, place.memory - place.filter_memory()) {
            let Some(light) = runs[at].lighter() else { break };
            runs[at] = Arc::new(light);
        }
    }
    runs.sort_by_key(|run| run.counts.sequence);
    Ok(runs)
}

#[cfg(test)]
mod tests;
