//! Keyed state larger than memory: which keys stay, which leave for the disk, and which come back.
//!
//! An operator keeps its state by slot, as ever, and works on slots only. Before a block is worked on,
//! [`Spill::enter`] is told which keys were new to the table: only those can lie on disk, and of them only
//! those that the filters of the [`ColdStore`] let through are read, all at once. When memory has used its share,
//! [`Spill::make_room`] lets the keys go that were not touched lately (second chance, Corbató 1968): a hand
//! goes round the slots, spares once those that were touched since it last came by, and those that have
//! changed since they were written are written. A byte a slot says all of this; it is looked at once a row,
//! and not at all before something was ever written.
//!
//! At a checkpoint nothing is copied: what has changed is marked ([`Spill::begin_snapshot`]), and written in
//! pieces between blocks ([`Spill::write_snapshot`]). A marked key that a block is about to change is
//! written before. Until all are written, the files safe on disk and taken, what changed after the barrier stays in memory,
//! and keys that were deleted stay as empty ones.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{cast, take};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use tidemill_state::disk::{ColdOptions, ColdStore, StateFile};
use tidemill_state::runs::{HashRange, StateRuns};
use tidemill_state::{KeyTable, SlotVec, Slots, StateTable};

use crate::memory_share::MemoryShare;
use crate::{OperatorError, SnapshotFiles};

/// Where an operator instance may keep state that does not fit in memory, and when.
#[derive(Clone, Debug)]
pub struct SpillPlace {
    /// A folder of its own, which need not exist.
    pub directory: PathBuf,
    /// With what the names of its files begin: unique among operators, shards and runs.
    pub name: String,
    /// The hashes of the keys that it owns.
    pub hashes: HashRange,
    /// Memory that it may use; without it state comes back from the disk and does not go there.
    pub share: Option<Arc<MemoryShare>>,
    /// Checkpoints will ask for the files.
    pub durable: bool,
}

/// Counts of an operator whose state lies partly on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Bytes of files.
    pub bytes: u64,
    /// Keys read back.
    pub reads: u64,
    /// Keys written, those of checkpoints too.
    pub writes: u64,
    /// Bytes read and written, compaction too.
    pub read_bytes: u64,
    /// As above.
    pub written_bytes: u64,
    /// Rows whose key was in memory.
    pub hits: u64,
    /// Rows whose key had to be read.
    pub misses: u64,
}

/// Rows of a checkpoint taken back at once, so that keys can leave meanwhile.
const RESTORE_ROWS: usize = 8192;

/// State by slot that can leave memory.
pub(crate) trait Resident {
    /// The keys.
    fn table(&self) -> &KeyTable;

    /// How many columns a key has.
    fn key_columns(&self) -> usize;

    /// Finds the slots of keys; new ones get an empty state.
    fn intern(&mut self, keys: &[ArrayRef], rows: usize, into: &mut Slots) -> Result<(), OperatorError>;

    /// The keys at slots, and behind them their state, always in columns of the same types.
    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError>;

    /// Gives slots whose state is empty the state that was saved.
    fn load(&mut self, slots: &[u32], state: &[ArrayRef]) -> Result<(), OperatorError>;

    /// Empties slots; their keys stay.
    fn clear(&mut self, slots: &[u32]) -> Result<(), OperatorError>;

    /// Empties slots and forgets their keys.
    fn forget(&mut self, slots: &[u32]) -> Result<(), OperatorError>;

    /// Whether a key has no state (any more) and need not be kept.
    fn is_empty(&self, slot: u32) -> bool;

    /// What it takes in memory, the keys included.
    fn memory(&self) -> Memory;

    /// Whether saving and forgetting a few slots costs a pass over all of the state: then many leave at once.
    fn scans(&self) -> bool {
        false
    }
}

/// Bytes of memory: all, and of these what is kept by slot and so stays when keys leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub all: usize,
    pub by_slot: usize,
}

/// The slot has a key.
const LIVE: u8 = 1;
/// Touched since the hand last came by.
const USED: u8 = 2;
/// Changed since it was written.
const DIRTY: u8 = 4;
/// A version of it may lie on disk.
const COLD: u8 = 8;
/// To be written for a checkpoint, as it is.
const PENDING: u8 = 16;
/// Came with this block, and its state may have to be read.
const NEW: u8 = 32;

/// The most keys that leave at once: some milliseconds.
const BATCH_KEYS_MAX: usize = 16_384;
/// Of the keys in memory one in so many leaves at once where each time costs a pass over all of them.
const BATCH_SCAN: usize = 16;
/// After so many new keys at the least memory is measured again.
const MEASURE_KEYS: usize = 4096;
/// And after so many rows: what is kept of a key may grow without new keys, as sets of values do.
const MEASURE_ROWS: usize = 1 << 16;
/// Keys written at once for a checkpoint: a millisecond or two between two blocks.
const SNAPSHOT_KEYS: usize = 2048;
/// State that is written at once has about so many bytes, so that texts fit a column and no second copy of much is made.
const WRITE_BYTES_MAX: usize = 256 << 20;
/// The least bytes that a key is taken to need.
const KEY_BYTES_MIN: usize = 16;
/// Bytes that a store gathers before it writes them: an eighth of the share, within these bounds.
const RUN_BYTES_MIN: usize = 256 << 10;
/// A checkpoint waits until the last of it is written: at the upper bound some 30 ms.
const RUN_BYTES_MAX: usize = 8 << 20;
/// A store's buffers have so many times as many bytes: two of them, and what is beside the rows.
const STORE_BUFFERS: usize = 3;
/// Beside these it has at least this part of the share.
const STORE_LEAST: usize = 8;
/// Keys have at least this part of the share, as its divisor, however much filters and indexes take; and since what is kept by slot
/// does not shrink, this part of the slots, below which there is little to be had.
const KEYS_LEAST: usize = 4;
/// The same where some of the share is withheld: then little is much.
const KEYS_LEAST_SHORT: usize = 16;

/// Bytes that a store with this share gathers.
fn run_bytes(share: usize) -> usize {
    (share / 8).clamp(RUN_BYTES_MIN, RUN_BYTES_MAX)
}

/// How memory stands.
struct Room {
    /// How many more keys fit.
    fits: usize,
    /// How many should.
    wanted: usize,
    /// How many are too many, a quarter at most.
    over: usize,
    /// Bytes in use.
    all: usize,
}

/// A checkpoint that is being written.
struct Writing {
    /// Keys that are still to be written.
    left: usize,
    /// The first slot not yet looked at.
    hand: usize,
}

/// What decides who stays in memory.
#[derive(Default)]
pub(crate) struct Spill {
    place: Option<SpillPlace>,
    store: Option<ColdStore>,
    /// Of the columns that are saved.
    types: Vec<DataType>,
    /// By slot.
    flags: SlotVec<u8>,
    /// So many keys fit before memory has to be looked at again.
    calm: usize,
    /// Rows since memory was looked at.
    since: usize,
    /// Bytes that were in use then.
    settled: usize,
    /// Bytes that were withheld of the share then.
    withheld: usize,
    hand: usize,
    writing: Option<Writing>,
    /// The files of a checkpoint, not yet asked for.
    written: Option<Vec<StateRuns>>,
    /// Slots whose keys were deleted while a checkpoint is being written.
    emptied: Vec<u32>,
    /// Keys in memory and on disk.
    entries: u64,
    stats: DiskStats,
    /// Scratch.
    hashes: Vec<u64>,
    maybe: Vec<u32>,
    loaded: Slots,
}

/// Whether rows of these columns can be written to the disk.
pub(crate) fn can_leave(columns: &[ArrayRef]) -> bool {
    RowConverter::supports_fields(&columns.iter().map(|c| SortField::new(c.data_type().clone())).collect::<Vec<_>>())
}

impl Spill {
    /// From now on state may leave for the disk.
    pub fn place(&mut self, place: SpillPlace) {
        self.place = Some(place);
    }

    /// Whether some state has left memory, or could come from there.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.store.is_some()
    }

    /// Whether [`Spill::make_room`] must be asked before `incoming` rows are taken in.
    #[inline]
    pub fn is_crowded(&mut self, keys: usize, incoming: usize) -> bool {
        let Some(place) = &self.place else { return false };
        let withheld = place.share.as_ref().map_or(0, |share| share.withheld());
        if withheld > self.withheld {
            // Keys that fitted do so no longer.
            self.calm = 0;
        }
        self.withheld = withheld;
        self.since += incoming;
        keys + incoming > self.calm || self.since > MEASURE_ROWS
    }

    /// Keys in memory and on disk, if any are there.
    pub fn entries(&self) -> Option<u64> {
        self.store.as_ref().map(|_| self.entries)
    }

    /// Bytes of memory beside those of the operator.
    pub fn memory(&self) -> usize {
        self.flags.memory() + self.store.as_ref().map_or(0, |store| store.stats().memory_bytes as usize)
    }

    /// What was done, if anything was.
    pub fn stats(&self) -> Option<DiskStats> {
        let store = self.store.as_ref()?.stats();
        Some(DiskStats { bytes: store.disk_bytes, read_bytes: store.read_bytes, written_bytes: store.written_bytes, ..self.stats })
    }

    /// Takes back the files of a checkpoint.
    pub fn restore_files<R: Resident>(&mut self, runs: Vec<StateRuns>, rows: &mut R) -> Result<(), OperatorError> {
        if runs.is_empty() {
            return Ok(());
        }
        self.open(runs, rows)?;
        self.entries += self.store.as_ref().map_or(0, |store| store.stats().rows);
        Ok(())
    }

    /// Takes back the tables of a checkpoint: behind the hashes the columns that [`Resident::save`] gave.
    pub fn restore<R: Resident>(&mut self, tables: Vec<StateTable>, rows: &mut R, scratch: &mut Slots) -> Result<(), OperatorError> {
        for table in tables {
            let all = table.batch.num_rows();
            for from in (0..all).step_by(RESTORE_ROWS) {
                let piece = table.batch.slice(from, RESTORE_ROWS.min(all - from));
                let (keys, state) = piece.columns()[1..].split_at(rows.key_columns());
                if self.is_crowded(rows.table().len(), piece.num_rows()) {
                    self.make_room(piece.num_rows(), rows)?;
                }
                rows.intern(keys, piece.num_rows(), scratch)?;
                rows.load(&scratch.slots, state)?;
                self.restored(scratch, rows);
            }
        }
        Ok(())
    }

    /// Told of keys that came from a checkpoint with their state.
    pub fn restored<R: Resident>(&mut self, slots: &Slots, rows: &R) {
        if self.store.is_some() {
            self.flags.resize(rows.table().capacity(), 0);
            slots.slots.iter().for_each(|slot| self.flags[*slot as usize] = LIVE | DIRTY);
            self.entries += slots.fresh.len() as u64;
        }
    }

    fn open<R: Resident>(&mut self, runs: Vec<StateRuns>, rows: &mut R) -> Result<(), OperatorError> {
        let Some(place) = &self.place else {
            return Err(OperatorError::new("internal error: state on disk, and no place for it"));
        };
        self.types = rows.save(&[])?.iter().map(|c| c.data_type().clone()).collect();
        let share = place.share.as_ref().map(|share| share.bytes());
        let run_bytes = share.map_or(RUN_BYTES_MAX, run_bytes);
        // Keys in memory have a quarter of the share, or what they have already and cannot give back.
        let keys = |share: usize| rows.memory().by_slot.max(share / KEYS_LEAST);
        let options = ColdOptions {
            directory: place.directory.clone(),
            name: place.name.clone(),
            run_bytes,
            memory: share
                .map_or(usize::MAX, |share| share.saturating_sub(keys(share) + STORE_BUFFERS * run_bytes).max(share / STORE_LEAST)),
        };
        let mut files: Vec<StateFile> = runs.into_iter().flat_map(|runs| runs.files).collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files.dedup_by(|a, b| a.name == b.name);
        let hashes = place.hashes;
        let mut store = ColdStore::open(options, self.types.clone(), rows.key_columns(), files, move |hash| hashes.contains(hash))?;
        if place.durable {
            store.durable();
        }
        self.store = Some(store);
        self.flags = SlotVec::new();
        self.flags.resize(rows.table().capacity(), 0);
        rows.table().slots().into_iter().for_each(|slot| self.flags[slot as usize] = LIVE | DIRTY);
        self.entries = rows.table().len() as u64;
        Ok(())
    }

    // ---- who leaves --------------------------------------------------------------------------

    /// Lets keys go until those fit that `incoming` rows may bring. Before the rows' keys are entered.
    pub fn make_room<R: Resident>(&mut self, incoming: usize, rows: &mut R) -> Result<(), OperatorError> {
        self.since = 0;
        let Some(share) = self.place.as_ref().and_then(|place| place.share.as_ref()).map(|share| share.bytes()) else {
            self.calm = usize::MAX;
            return Ok(());
        };
        let least = self.keys_least();
        let spare = |rows: &R| rows.table().len().saturating_sub(rows.table().capacity() / least);
        let mut room = self.room(share, incoming, rows);
        if rows.table().len() + incoming <= self.calm {
            // Asked because of the rows that came: what is kept of the keys may have grown.
            while room.all > self.settled + self.settled / 8 && room.over.min(spare(rows)) > 0 {
                self.evict(room.over.min(spare(rows)), rows)?;
                let after = self.room(share, incoming, rows);
                if after.over == 0 || spare(rows) == 0 {
                    // What does not help now is not tried again until more has come.
                    self.settled = after.all;
                }
                room = after;
            }
            return Ok(());
        }
        if room.fits < room.wanted {
            let keys = rows.table().len();
            let batch = if rows.scans() { (keys / BATCH_SCAN).max(BATCH_KEYS_MAX.min(keys / 4)) } else { (keys / 8).min(BATCH_KEYS_MAX) };
            let leaving = room.over.max(batch).max(room.wanted).min(spare(rows));
            if leaving > 0 {
                self.evict(leaving, rows)?;
                room = self.room(share, incoming, rows);
            }
        }
        let keys = rows.table().len();
        self.calm = keys + room.fits.min((keys / 8).max(MEASURE_KEYS)).max(incoming);
        self.settled = room.all;
        Ok(())
    }

    /// How memory stands before a block of `incoming` rows.
    fn room<R: Resident>(&self, share: usize, incoming: usize, rows: &R) -> Room {
        // Filters and indexes come out of the share as well, and leave a quarter of it for keys. Where nothing has left yet, there
        // will be buffers.
        let store = self.store.as_ref().map_or(STORE_BUFFERS * run_bytes(share), |store| store.stats().memory_bytes as usize);
        let budget = share.saturating_sub(store + self.withheld).max(share / self.keys_least());
        let memory = rows.memory();
        let (table, flags) = (rows.table(), self.flags.memory());
        let (all, by_slot) = (memory.all + flags + table.growth(), memory.by_slot + flags + table.growth());
        let (keys, slots) = (table.len(), table.capacity());
        // What a key takes beside its slot comes back when it leaves; a slot stays, for the next key.
        let of_key = (all - by_slot) / keys.max(1);
        let of_slot = (by_slot / slots.max(1)).max(KEY_BYTES_MIN);
        let left = budget.saturating_sub(all);
        let vacant = table.vacant().min(left.checked_div(of_key).unwrap_or(usize::MAX));
        // Slots leave what a store needs, which they could not give back.
        let slots_max = share.saturating_sub(STORE_BUFFERS * run_bytes(share) + share / STORE_LEAST);
        let further = (left - vacant * of_key).min(slots_max.saturating_sub(by_slot)) / (of_key + of_slot);
        // A key begins with little. Where keys have much each, not every row is taken to bring one.
        let wanted = if incoming.saturating_mul(of_key + of_slot) <= share / 8 { incoming } else { incoming.min(keys / 8 + 1) };
        let over = all.saturating_sub(budget).checked_div(of_key).unwrap_or(0).min(keys / 4);
        Room { fits: vacant + further, wanted, over, all }
    }

    /// The part of the share and of the slots that keys have in any case, as its divisor.
    fn keys_least(&self) -> usize {
        if self.withheld == 0 { KEYS_LEAST } else { KEYS_LEAST_SHORT }
    }

    fn evict<R: Resident>(&mut self, count: usize, rows: &mut R) -> Result<(), OperatorError> {
        if self.store.is_none() {
            self.open(Vec::new(), rows)?;
        }
        let left = self.sweep(count);
        self.leave(&left, rows)?;
        if left.len() < count && self.writing.is_some() {
            // What is left has changed since the barrier, and may go only behind the checkpoint.
            while self.writing.as_ref().is_some_and(|writing| writing.left > 0) {
                self.write_some(rows)?;
            }
            self.end_snapshot(true, rows)?;
            let rest = self.sweep(count - left.len());
            self.leave(&rest, rows)?;
        }
        Ok(())
    }

    /// Picks keys to leave; they are no longer marked as live.
    fn sweep(&mut self, count: usize) -> Vec<u32> {
        let slots = self.flags.len();
        let writing = self.writing.is_some();
        let mut picked = Vec::with_capacity(count);
        // Twice around: the first time may only take the marks away.
        for _ in 0..2 * slots {
            if picked.len() == count {
                break;
            }
            if self.hand >= slots {
                self.hand = 0;
            }
            let flags = &mut self.flags[self.hand];
            let bound = writing && *flags & (DIRTY | PENDING) == DIRTY;
            if *flags & LIVE != 0 && !bound {
                if *flags & USED != 0 {
                    *flags &= !USED;
                } else {
                    *flags &= !LIVE;
                    picked.push(self.hand as u32);
                }
            }
            self.hand += 1;
        }
        picked
    }

    fn leave<R: Resident>(&mut self, slots: &[u32], rows: &mut R) -> Result<(), OperatorError> {
        let dirty: Vec<u32> = slots.iter().copied().filter(|slot| self.flags[*slot as usize] & DIRTY != 0).collect();
        if let Some(writing) = &mut self.writing {
            writing.left -= dirty.iter().filter(|slot| self.flags[**slot as usize] & PENDING != 0).count();
        }
        self.write(&dirty, rows)?;
        rows.forget(slots)?;
        slots.iter().for_each(|slot| self.flags[*slot as usize] = 0);
        Ok(())
    }

    fn write<R: Resident>(&mut self, slots: &[u32], rows: &mut R) -> Result<(), OperatorError> {
        let Some(store) = self.store.as_mut().filter(|_| !slots.is_empty()) else { return Ok(()) };
        let each = (rows.memory().all / rows.table().len().max(1)).max(KEY_BYTES_MIN);
        for slots in slots.chunks((WRITE_BYTES_MAX / each).max(1)) {
            let mut columns = rows.save(slots)?;
            for (column, declared) in columns.iter_mut().zip(&self.types) {
                // Nested types may differ in the names of their fields.
                if column.data_type() != declared {
                    *column = cast(&*column, declared)?;
                }
            }
            self.hashes.clear();
            self.hashes.extend(slots.iter().map(|slot| rows.table().hash(*slot)));
            store.put(&self.hashes, &columns)?;
            self.stats.writes += slots.len() as u64;
        }
        Ok(())
    }

    // ---- who comes back ----------------------------------------------------------------------

    /// Told of a block whose keys were entered and whose rows have not been worked on: reads the state of
    /// keys that lie on disk. Nothing to do unless [`Spill::is_open`].
    pub fn enter<R: Resident>(&mut self, slots: &Slots, rows: &mut R) -> Result<(), OperatorError> {
        let Some(store) = &mut self.store else { return Ok(()) };
        self.flags.resize(rows.table().capacity(), 0);
        let mut loaded = 0;
        if !slots.fresh.is_empty() {
            self.hashes.clear();
            self.hashes.extend(slots.fresh.iter().map(|row| slots.hashes[*row as usize]));
            self.maybe.clear();
            store.maybe(&self.hashes, &mut self.maybe);
            for row in &slots.fresh {
                self.flags[slots.slots[*row as usize] as usize] = LIVE | NEW;
            }
            if !self.maybe.is_empty() {
                let mut asked: Vec<u64> = self.maybe.iter().map(|at| self.hashes[*at as usize]).collect();
                asked.sort_unstable();
                asked.dedup();
                if let Some((_, columns)) = store.read(&asked)? {
                    loaded = load(&mut self.flags, &mut self.loaded, &columns, rows)?;
                }
            }
        }
        self.touch(&slots.slots, rows)?;
        for row in &slots.fresh {
            // To come once is no reason to stay.
            self.flags[slots.slots[*row as usize] as usize] &= !(NEW | USED);
        }
        let (all, fresh, loaded) = (slots.slots.len() as u64, slots.fresh.len() as u64, loaded as u64);
        self.entries += fresh - loaded;
        self.stats.hits += all - fresh;
        self.stats.misses += loaded;
        self.stats.reads += loaded;
        Ok(())
    }

    /// Marks slots that are about to change; those that a checkpoint waits for are written first.
    fn touch<R: Resident>(&mut self, slots: &[u32], rows: &mut R) -> Result<(), OperatorError> {
        if self.writing.is_none() {
            slots.iter().for_each(|slot| self.flags[*slot as usize] |= USED | DIRTY);
            return Ok(());
        }
        let mut first: Vec<u32> = Vec::new();
        for slot in slots {
            let flags = &mut self.flags[*slot as usize];
            if *flags & PENDING != 0 {
                *flags = (*flags & !PENDING) | COLD;
                first.push(*slot);
            }
            *flags |= USED | DIRTY;
        }
        if let Some(writing) = &mut self.writing {
            writing.left -= first.len();
        }
        self.write(&first, rows)
    }

    /// Forgets keys of which nothing is left ([`Resident::is_empty`]); each slot once.
    pub fn remove<R: Resident>(&mut self, slots: &[u32], rows: &mut R) -> Result<(), OperatorError> {
        let Some(store) = &mut self.store else { return rows.forget(slots) };
        if self.writing.is_some() {
            self.emptied.extend_from_slice(slots);
            return rows.clear(slots);
        }
        let cold: Vec<u32> = slots.iter().copied().filter(|slot| self.flags[*slot as usize] & COLD != 0).collect();
        if !cold.is_empty() {
            let hashes: Vec<u64> = cold.iter().map(|slot| rows.table().hash(*slot)).collect();
            store.delete(&hashes, &rows.table().keys(&cold)?)?;
        }
        rows.forget(slots)?;
        slots.iter().for_each(|slot| self.flags[*slot as usize] = 0);
        self.entries = self.entries.saturating_sub(slots.len() as u64);
        Ok(())
    }

    // ---- checkpoints -------------------------------------------------------------------------

    /// A barrier: what has changed is to be written as it is now.
    pub fn begin_snapshot(&mut self) {
        assert!(self.writing.is_none() && self.written.is_none(), "one checkpoint at a time");
        let mut left = 0;
        for flags in self.flags.iter_mut() {
            let pending = *flags & (LIVE | DIRTY) == LIVE | DIRTY;
            *flags |= if pending { PENDING } else { 0 };
            left += usize::from(pending);
        }
        self.writing = Some(Writing { left, hand: 0 });
    }

    /// Writes some of it, and when all of it is written, gives the files as soon as they are safe.
    pub fn write_snapshot<R: Resident>(&mut self, rows: &mut R) -> Result<SnapshotFiles, OperatorError> {
        if self.writing.as_ref().is_some_and(|writing| writing.left > 0) {
            // Blocks can go on while the disk is behind.
            if let Some(store) = &self.store
                && store.may_wait()?
            {
                return Ok(SnapshotFiles::Waiting);
            }
            self.write_some(rows)?;
        }
        if self.writing.as_ref().is_some_and(|writing| writing.left == 0) {
            self.end_snapshot(false, rows)?;
        }
        Ok(match &self.writing {
            Some(Writing { left: 0, .. }) => SnapshotFiles::Waiting,
            Some(_) => SnapshotFiles::Writing,
            None => SnapshotFiles::Written(self.written.take().unwrap_or_default()),
        })
    }

    /// Takes the files of a checkpoint that is written; unless it is to `wait`, only if they are safe on disk already.
    fn end_snapshot<R: Resident>(&mut self, wait: bool, rows: &mut R) -> Result<(), OperatorError> {
        if let (Some(store), Some(place)) = (&mut self.store, &self.place) {
            let files = if wait { Some(store.files()?) } else { store.try_files()? };
            let Some(files) = files else { return Ok(()) };
            self.written = Some(vec![StateRuns { hashes: place.hashes, files }]);
        }
        self.writing = None;
        let mut emptied = std::mem::take(&mut self.emptied);
        emptied.sort_unstable();
        emptied.dedup();
        emptied.retain(|slot| rows.is_empty(*slot));
        self.remove(&emptied, rows)
    }

    fn write_some<R: Resident>(&mut self, rows: &mut R) -> Result<(), OperatorError> {
        let Some(writing) = &mut self.writing else { return Ok(()) };
        let piece = if rows.scans() { (rows.table().len() / BATCH_SCAN).max(SNAPSHOT_KEYS) } else { SNAPSHOT_KEYS };
        let piece = piece.min(writing.left);
        let mut slots: Vec<u32> = Vec::with_capacity(piece);
        while slots.len() < piece {
            let flags = &mut self.flags[writing.hand];
            if *flags & PENDING != 0 {
                *flags = (*flags & !(PENDING | DIRTY)) | COLD;
                slots.push(writing.hand as u32);
            }
            writing.hand += 1;
        }
        writing.left -= slots.len();
        self.write(&slots, rows)
    }
}

/// Enters keys that were read, with their state where they came with the block; how many did.
fn load<R: Resident>(flags: &mut SlotVec<u8>, scratch: &mut Slots, columns: &[ArrayRef], rows: &mut R) -> Result<usize, OperatorError> {
    let (keys, state) = columns.split_at(rows.key_columns());
    rows.intern(keys, keys[0].len(), scratch)?;
    flags.resize(rows.table().capacity(), 0);
    // Other keys of the same hash come along; what is in memory already is newer than what was read.
    let others = scratch.fresh.len();
    for row in &scratch.fresh {
        flags[scratch.slots[*row as usize] as usize] = LIVE | NEW;
    }
    let mut picks: Vec<u32> = Vec::with_capacity(scratch.slots.len());
    for (row, slot) in scratch.slots.iter().enumerate() {
        let flags = &mut flags[*slot as usize];
        if *flags & NEW != 0 {
            *flags = LIVE | COLD;
            picks.push(row as u32);
        }
    }
    if picks.len() == scratch.slots.len() {
        rows.load(&scratch.slots, state)?;
    } else {
        let slots: Vec<u32> = picks.iter().map(|row| scratch.slots[*row as usize]).collect();
        let picks = UInt32Array::from(picks);
        let state = state.iter().map(|c| take(c, &picks, None)).collect::<Result<Vec<_>, _>>()?;
        rows.load(&slots, &state)?;
        return Ok(slots.len() - others);
    }
    Ok(scratch.slots.len() - others)
}

#[cfg(test)]
mod tests;
