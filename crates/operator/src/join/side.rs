//! One input of a join: its rows by key.
//!
//! Rows of a key form a chain. Rows of an input that takes rows back are kept once with a count, and
//! are found again by their content; an append-only input is spared both.

use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type};
use arrow::error::ArrowError;
use tidemill_state::{KeyTable, SlotVec, Slots, hash};

use super::store::{NO_ROW, RowStore, column_data};

/// What a row that is no longer there was last touched at.
const GONE: i64 = i64::MAX;

/// How a side keeps its rows.
#[derive(Clone, Copy, Default)]
pub(super) struct SideOptions {
    /// Rows may be taken back.
    pub counted: bool,
    /// For each row the number of its matches is kept.
    pub matches: bool,
    /// For each row the time of its last change is kept.
    pub expires: bool,
}

/// The rows of one input.
pub(super) struct Side {
    options: SideOptions,
    pub store: RowStore,
    /// By slot of the key: the first row, and how many rows there are, equal ones counted each.
    heads: SlotVec<u32>,
    totals: SlotVec<u64>,
    /// By row: the neighbours in its key's chain; `previous` only where rows can leave.
    next: Vec<u32>,
    previous: Vec<u32>,
    /// By row: how many rows like it there are.
    counts: Vec<u32>,
    /// By row: how many rows of the other side it has met.
    matches: Vec<u32>,
    /// By row: processing time (ms) of its last change, and its key's slot.
    touched: Vec<i64>,
    keys: Vec<u32>,
    contents: Option<Contents>,
}

impl Side {
    /// An empty side for rows of these types.
    ///
    /// # Errors
    /// None so far; content hashes are always a key.
    pub fn new(types: Vec<DataType>, options: SideOptions) -> Result<Self, ArrowError> {
        Ok(Side {
            options,
            store: RowStore::new(types),
            heads: SlotVec::new(),
            totals: SlotVec::new(),
            next: Vec::new(),
            previous: Vec::new(),
            counts: Vec::new(),
            matches: Vec::new(),
            touched: Vec::new(),
            keys: Vec::new(),
            contents: if options.counted { Some(Contents::new()?) } else { None },
        })
    }

    /// Makes room for so many slots of keys.
    pub fn resize(&mut self, slots: usize) {
        self.heads.resize(slots, NO_ROW);
        self.totals.resize(slots, 0);
    }

    /// The first row of a key; [`NO_ROW`] if there is none.
    #[inline]
    pub fn first(&self, slot: u32) -> u32 {
        self.heads[slot as usize]
    }

    /// The row behind `id` in its key's chain; [`NO_ROW`] at the end.
    #[inline]
    pub fn next(&self, id: u32) -> u32 {
        self.next[id as usize]
    }

    /// How many rows like `id` there are.
    #[inline]
    pub fn copies(&self, id: u32) -> u32 {
        if self.options.counted { self.counts[id as usize] } else { 1 }
    }

    /// How many rows a key has.
    #[inline]
    pub fn total(&self, slot: u32) -> u64 {
        self.totals[slot as usize]
    }

    /// Counts a row of a key in or out, without a word about its content; gives how many there were.
    #[inline]
    pub fn count(&mut self, slot: u32, adds: bool) -> u64 {
        let total = &mut self.totals[slot as usize];
        let before = *total;
        *total = if adds { before + 1 } else { before.saturating_sub(1) };
        before
    }

    /// Adds to the number of rows of a key, for a side that keeps no rows.
    pub fn add_total(&mut self, slot: u32, total: u64) {
        self.totals[slot as usize] += total;
    }

    /// The number of matches of a row, to be read and changed.
    #[inline]
    pub fn matches_mut(&mut self, id: u32) -> &mut u32 {
        &mut self.matches[id as usize]
    }

    /// Notes that a row changed at processing time `now`.
    #[inline]
    pub fn touch(&mut self, id: u32, now: i64) {
        if self.options.expires {
            self.touched[id as usize] = now;
        }
    }

    /// Whether a row is older than the time to live, so that nobody may see it any more.
    #[inline]
    pub fn expired(&self, id: u32, before: Option<i64>) -> bool {
        before.is_some_and(|before| self.touched[id as usize] <= before)
    }

    fn link(&mut self, id: u32, slot: u32) {
        let capacity = self.store.capacity();
        if self.next.len() < capacity {
            self.next.resize(capacity, NO_ROW);
        }
        let head = std::mem::replace(&mut self.heads[slot as usize], id);
        self.next[id as usize] = head;
        let SideOptions { counted, matches, expires } = self.options;
        if counted || expires {
            if self.previous.len() < capacity {
                self.previous.resize(capacity, NO_ROW);
            }
            self.previous[id as usize] = NO_ROW;
            if head != NO_ROW {
                self.previous[head as usize] = id;
            }
        }
        if counted && self.counts.len() < capacity {
            self.counts.resize(capacity, 0);
        }
        if matches && self.matches.len() < capacity {
            self.matches.resize(capacity, 0);
        }
        if expires && self.touched.len() < capacity {
            self.touched.resize(capacity, GONE);
            self.keys.resize(capacity, 0);
        }
        if expires {
            self.keys[id as usize] = slot;
        }
    }

    /// Takes a row out of its chain, its content and the store.
    fn unlink(&mut self, id: u32, slot: u32) {
        let (previous, next) = (self.previous[id as usize], self.next[id as usize]);
        match previous {
            NO_ROW => self.heads[slot as usize] = next,
            previous => self.next[previous as usize] = next,
        }
        if next != NO_ROW {
            self.previous[next as usize] = previous;
        }
        if let Some(contents) = &mut self.contents {
            contents.remove(id);
        }
        if self.options.expires {
            self.touched[id as usize] = GONE;
        }
        self.store.remove(id);
    }

    /// Puts in rows of an append-only input; `slots` are by row of the block, `matches` by place in
    /// `rows`. The rows have been counted by [`Side::count`].
    ///
    /// # Errors
    /// As [`RowStore::insert`].
    pub fn append(&mut self, data: &[ArrayData], rows: &[u32], slots: &[u32], matches: &[u32], now: i64) -> Result<(), ArrowError> {
        let mut ids = Vec::with_capacity(rows.len());
        self.store.insert(data, rows, &mut ids)?;
        for (i, (id, row)) in ids.iter().zip(rows).enumerate() {
            self.link(*id, slots[*row as usize]);
            if self.options.matches {
                self.matches[*id as usize] = matches[i];
            }
            self.touch(*id, now);
        }
        Ok(())
    }

    /// Begins a block of an input that takes rows back: looks up the contents of all its rows.
    ///
    /// # Errors
    /// A column type that cannot be hashed.
    pub fn begin(&mut self, columns: &[ArrayRef], rows: usize) -> Result<(), ArrowError> {
        match &mut self.contents {
            Some(contents) => contents.begin(columns, rows),
            None => Ok(()),
        }
    }

    /// Ends the block: contents that no row has any more are forgotten.
    pub fn end(&mut self) {
        if let Some(contents) = &mut self.contents {
            contents.end();
        }
    }

    /// The row like row `row` of the block begun. One that has expired, and that no sweep has met yet,
    /// goes now.
    fn find(&mut self, data: &[ArrayData], row: usize, slot: u32, before: Option<i64>) -> Option<u32> {
        let id = self.contents.as_ref()?.find(&self.store, data, row)?;
        if self.expired(id, before) {
            self.drop_row(id, slot);
            return None;
        }
        Some(id)
    }

    /// Removes a row with all its copies.
    fn drop_row(&mut self, id: u32, slot: u32) {
        let copies = u64::from(self.copies(id));
        let total = &mut self.totals[slot as usize];
        *total = total.saturating_sub(copies);
        self.unlink(id, slot);
    }

    /// Adds row `row` of the block begun at processing time `now`; gives its number, and whether no row
    /// like it was there. Rows last touched at `before` or earlier have expired.
    ///
    /// # Errors
    /// As [`RowStore::insert`].
    pub fn add(&mut self, data: &[ArrayData], row: usize, slot: u32, now: i64, before: Option<i64>) -> Result<(u32, bool), ArrowError> {
        if let Some(id) = self.find(data, row, slot, before) {
            self.counts[id as usize] += 1;
            self.touch(id, now);
            return Ok((id, false));
        }
        let mut ids = Vec::new();
        self.store.insert(data, &[row as u32], &mut ids)?;
        let id = ids[0];
        self.link(id, slot);
        self.counts[id as usize] = 1;
        if self.options.matches {
            self.matches[id as usize] = 0;
        }
        self.touch(id, now);
        if let Some(contents) = &mut self.contents {
            contents.put(id, row);
        }
        Ok((id, true))
    }

    /// Takes back row `row` of the block begun; gives how many matches it had (0 if they are not kept),
    /// nothing if no such row is there.
    pub fn take_back(&mut self, data: &[ArrayData], row: usize, slot: u32, before: Option<i64>) -> Option<u32> {
        let id = self.find(data, row, slot, before)?;
        let matches = if self.options.matches { self.matches[id as usize] } else { 0 };
        let count = &mut self.counts[id as usize];
        *count -= 1;
        if *count == 0 {
            self.unlink(id, slot);
        }
        Some(matches)
    }

    /// Removes the rows last touched at `before` or earlier; appends the slots of their keys.
    pub fn expire(&mut self, before: i64, slots: &mut Vec<u32>) {
        for id in 0..self.touched.len() as u32 {
            // What is gone is newer than everything.
            if self.touched[id as usize] <= before {
                let slot = self.keys[id as usize];
                self.drop_row(id, slot);
                slots.push(slot);
            }
        }
        self.end();
    }

    /// The rows of the keys at `slots` as columns (the input's, then count, matches, time of the last
    /// change), and for each row the place of its key in `slots`.
    ///
    /// # Errors
    /// As [`RowStore::take`].
    pub fn save(&self, slots: &[u32]) -> Result<(Vec<usize>, Vec<ArrayRef>), ArrowError> {
        let (mut ids, mut places) = (Vec::with_capacity(self.store.len()), Vec::with_capacity(self.store.len()));
        for (place, slot) in slots.iter().enumerate() {
            let mut id = self.first(*slot);
            while id != NO_ROW {
                ids.push(id);
                places.push(place);
                id = self.next(id);
            }
        }
        let mut columns = self.store.take(&ids)?;
        let number = |of: &dyn Fn(u32) -> i64| Arc::new(ids.iter().map(|id| of(*id)).collect::<Int64Array>()) as ArrayRef;
        columns.push(number(&|id| i64::from(self.copies(id))));
        columns.push(number(&|id| if self.options.matches { i64::from(self.matches[id as usize]) } else { 0 }));
        columns.push(number(&|id| if self.options.expires { self.touched[id as usize] } else { 0 }));
        Ok((places, columns))
    }

    /// Takes back rows that [`Side::save`] gave; `slots` are those of their keys. Rows saved without a
    /// time count as changed at `now`.
    ///
    /// # Errors
    /// As [`RowStore::insert`].
    pub fn load(&mut self, columns: &[ArrayRef], slots: &[u32], now: i64) -> Result<(), ArrowError> {
        let (rows, numbers) = columns.split_at(columns.len() - 3);
        let [counts, matches, touched] = [0, 1, 2].map(|i| numbers[i].as_primitive::<Int64Type>().values());
        self.begin(rows, slots.len())?;
        let mut ids = Vec::new();
        self.store.insert(&column_data(rows), &(0..slots.len() as u32).collect::<Vec<_>>(), &mut ids)?;
        for (row, (id, slot)) in ids.into_iter().zip(slots).enumerate() {
            self.link(id, *slot);
            self.totals[*slot as usize] += counts[row] as u64;
            if self.options.matches {
                self.matches[id as usize] = matches[row] as u32;
            }
            self.touch(id, if touched[row] == 0 { now } else { touched[row] });
            if let Some(contents) = &mut self.contents {
                self.counts[id as usize] = counts[row] as u32;
                contents.put(id, row);
            }
        }
        self.end();
        Ok(())
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let by_row = [&self.next, &self.previous, &self.counts, &self.matches, &self.keys];
        self.store.memory()
            + self.heads.memory()
            + self.totals.memory()
            + self.touched.capacity() * 8
            + by_row.iter().map(|v| v.capacity() * 4).sum::<usize>()
            + self.contents.as_ref().map_or(0, Contents::memory)
    }
}

/// Rows by their content: a slot for each hash of all columns, and a chain of the rows that have it.
struct Contents {
    table: KeyTable,
    /// By slot.
    heads: Vec<u32>,
    /// By row.
    alike: Vec<u32>,
    slots: Vec<u32>,
    /// Of the block begun.
    block: Slots,
    hashes: Vec<u64>,
    /// Slots that lost their last row since the last end of a block.
    left: Vec<u32>,
}

impl Contents {
    fn new() -> Result<Self, ArrowError> {
        Ok(Contents {
            table: KeyTable::new(vec![DataType::Int64])?,
            heads: Vec::new(),
            alike: Vec::new(),
            slots: Vec::new(),
            block: Slots::default(),
            hashes: Vec::new(),
            left: Vec::new(),
        })
    }

    fn begin(&mut self, columns: &[ArrayRef], rows: usize) -> Result<(), ArrowError> {
        hash::rows(columns, rows, &mut self.hashes)?;
        let hashes: ArrayRef = Arc::new(Int64Array::from_iter_values(self.hashes.iter().map(|h| *h as i64)));
        self.table.intern(&[hashes], rows, &mut self.block)?;
        self.heads.resize(self.table.capacity(), NO_ROW);
        Ok(())
    }

    fn find(&self, store: &RowStore, data: &[ArrayData], row: usize) -> Option<u32> {
        let mut id = self.heads[self.block.slots[row] as usize];
        while id != NO_ROW {
            if store.same(id, data, row) {
                return Some(id);
            }
            id = self.alike[id as usize];
        }
        None
    }

    fn put(&mut self, id: u32, row: usize) {
        if self.alike.len() <= id as usize {
            self.alike.resize(id as usize + 1, NO_ROW);
            self.slots.resize(id as usize + 1, 0);
        }
        let slot = self.block.slots[row];
        self.slots[id as usize] = slot;
        self.alike[id as usize] = std::mem::replace(&mut self.heads[slot as usize], id);
    }

    fn remove(&mut self, id: u32) {
        let behind = self.alike[id as usize];
        let slot = self.slots[id as usize];
        let head = &mut self.heads[slot as usize];
        if *head == id {
            *head = behind;
            if behind == NO_ROW {
                self.left.push(slot);
            }
            return;
        }
        let mut at = *head;
        while self.alike[at as usize] != id {
            at = self.alike[at as usize];
        }
        self.alike[at as usize] = behind;
    }

    fn end(&mut self) {
        // Those of rows that were looked up and not found are among the block's.
        let touched = self.block.slots.drain(..).chain(self.left.drain(..));
        let mut unused: Vec<u32> = touched.filter(|s| self.heads[*s as usize] == NO_ROW).collect();
        unused.sort_unstable();
        unused.dedup();
        unused.into_iter().for_each(|s| self.table.remove(s));
    }

    fn memory(&self) -> usize {
        self.table.memory() + (self.heads.capacity() + self.alike.capacity() + self.slots.capacity()) * 4
    }
}
