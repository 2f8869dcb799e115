//! Rows that are not in a run yet, found by hash and key.

use std::ops::Range;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::place::Place;
use super::row::Prepared;

/// Fewer values are sorted by comparing.
const RADIX_MIN: usize = 256;

/// Rows in the order in which they came.
#[derive(Default)]
pub(crate) struct Buffer {
    hashes: Vec<u64>,
    arena: Vec<u8>,
    /// Where each row ends in the arena.
    ends: Vec<u64>,
    deleted: Vec<bool>,
    /// The newest row of each key.
    index: HashTable<u32>,
}

impl Buffer {
    /// Forgets all rows; keeps the memory, since new memory has to be cleared by the system first.
    pub fn clear(&mut self) {
        self.hashes.clear();
        self.arena.clear();
        self.ends.clear();
        self.deleted.clear();
        self.index.clear();
    }

    /// An empty one with room for as much as is here, at most some `bytes`, so that it need not grow from nothing.
    pub fn like(&self, bytes: usize) -> Self {
        let room = |len: usize| len + len / 8;
        Buffer {
            hashes: Vec::with_capacity(room(self.hashes.len())),
            arena: Vec::with_capacity(room(self.arena.len().min(bytes))),
            ends: Vec::with_capacity(room(self.ends.len())),
            deleted: Vec::with_capacity(room(self.deleted.len())),
            index: HashTable::with_capacity(self.index.len()),
        }
    }

    /// Appends some of the rows that were made ready, or deletions of keys.
    pub fn append(&mut self, place: &Place, hashes: &[u64], rows: &Prepared, some: Range<usize>, deleted: bool) {
        let from = self.hashes.len();
        self.hashes.extend_from_slice(&hashes[some.clone()]);
        self.deleted.resize(self.hashes.len(), deleted);
        rows.append(some, &mut self.arena, &mut self.ends);
        let Buffer { hashes, arena, ends, index, .. } = self;
        let (hashes, arena, ends): (&[u64], &[u8], &[u64]) = (hashes, arena, ends);
        let key = |row: u32| place.codec.key(slice(arena, ends, row));
        for row in from as u32..hashes.len() as u32 {
            let hash = hashes[row as usize];
            let same = |other: &u32| hashes[*other as usize] == hash && key(*other) == key(row);
            match index.entry(hash, same, |other| hashes[*other as usize]) {
                Entry::Occupied(mut entry) => *entry.get_mut() = row,
                Entry::Vacant(entry) => {
                    entry.insert(row);
                }
            }
        }
    }

    /// Rows, hidden versions included.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Bytes of rows and what is kept of each beside.
    pub fn bytes(&self) -> usize {
        self.arena.len() + self.hashes.len() * 24
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let rows = self.hashes.capacity() * 8 + self.ends.capacity() * 8 + self.deleted.capacity();
        self.arena.capacity() + rows + self.index.allocation_size()
    }

    /// The hashes of all rows.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// The hashes of rows that are deletions.
    pub fn deletions(&self) -> impl Iterator<Item = u64> {
        self.hashes.iter().zip(&self.deleted).filter(|(_, deleted)| **deleted).map(|(hash, _)| *hash)
    }

    /// A row, and whether it is a deletion.
    #[inline]
    pub fn row(&self, row: u32) -> (&[u8], bool) {
        (slice(&self.arena, &self.ends, row), self.deleted[row as usize])
    }

    /// The newest rows of the keys of a hash.
    pub fn find(&self, hash: u64) -> impl Iterator<Item = (&[u8], bool)> {
        self.index.iter_hash(hash).filter(move |row| self.hashes[**row as usize] == hash).map(|row| self.row(*row))
    }

    /// Whether there are rows of a hash.
    pub fn has(&self, hash: u64) -> bool {
        self.index.find(hash, |row| self.hashes[*row as usize] == hash).is_some()
    }

    /// The newest rows of all keys in the order of their hashes.
    pub fn sorted(&self) -> Vec<u32> {
        let all = self.index.len() == self.len();
        let mut rows: Vec<u64> =
            if all { (0..self.len() as u64).collect() } else { self.index.iter().map(|row| u64::from(*row)).collect() };
        let hash = |row: u64| self.hashes[row as u32 as usize];
        let (least, most) = rows.iter().fold((u64::MAX, 0), |(least, most), row| (least.min(hash(*row)), most.max(hash(*row))));
        if rows.len() < RADIX_MIN {
            rows.sort_unstable_by_key(|row| (hash(*row), *row));
        } else {
            // The upper 32 bits that differ and the row in one number; rows in which these are alike are few.
            let shift = (most - least).leading_zeros() & 63;
            rows.iter_mut().for_each(|row| *row |= ((hash(*row) - least) << shift) & (u64::MAX << 32));
            radix_sort(&mut rows);
            for alike in rows.chunk_by_mut(|a, b| a >> 32 == b >> 32).filter(|alike| alike.len() > 1) {
                alike.sort_unstable_by_key(|row| (hash(*row), *row));
            }
        }
        rows.into_iter().map(|row| row as u32).collect()
    }
}

#[inline]
fn slice<'a>(arena: &'a [u8], ends: &[u64], row: u32) -> &'a [u8] {
    let start = if row == 0 { 0 } else { ends[row as usize - 1] };
    &arena[start as usize..ends[row as usize] as usize]
}

/// Sorts by the upper 32 bits: three passes over eleven of them, the lowest first.
fn radix_sort(values: &mut Vec<u64>) {
    let mut other = vec![0; values.len()];
    for shift in [32, 43, 54] {
        let digit = |value: u64| (value >> shift) as usize & 0x7ff;
        let mut places = [0u32; 0x800];
        values.iter().for_each(|v| places[digit(*v)] += 1);
        let mut sum = 0;
        for place in &mut places {
            let count = *place;
            *place = sum;
            sum += count;
        }
        for value in values.iter() {
            let place = &mut places[digit(*value)];
            other[*place as usize] = *value;
            *place += 1;
        }
        std::mem::swap(values, &mut other);
    }
}

#[cfg(test)]
mod tests;
