//! Slots by the hash of their keys.
//!
//! A hash table that is full is filled anew into one of twice the size: with a million keys that stops the flow for tens of
//! milliseconds. So a large one is [`PARTS`] tables. They are full at about the same number of keys, but not at the same key:
//! by chance alone their fillings differ by some percent.

use hashbrown::HashTable;

/// Tables of a large index.
const PARTS: usize = 64;
/// From so many keys on there are several tables; dividing one takes about a millisecond.
const DIVIDED_KEYS: usize = 1 << 15;
/// Which bits of a hash say in which part a key is: neither those at the upper end, which a table compares first and by which
/// keys go to shards, nor those at the lower end, which say where in the table it is.
const PART_SHIFT: u32 = 40;
/// A table is nearly full when less than this part of it is free.
const NEARLY_FULL: usize = 8;

/// Which slots keys of a hash have.
pub(crate) struct SlotIndex {
    /// One, or [`PARTS`].
    parts: Vec<HashTable<u32>>,
    len: usize,
}

impl SlotIndex {
    /// No slots.
    pub fn new() -> Self {
        SlotIndex { parts: vec![HashTable::new()], len: 0 }
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn part(&self, hash: u64) -> usize {
        // The number of parts is a power of two.
        (hash >> PART_SHIFT) as usize & (self.parts.len() - 1)
    }

    /// The slot of a key of this hash that is `same`.
    #[inline]
    pub fn find(&self, hash: u64, mut same: impl FnMut(u32) -> bool) -> Option<u32> {
        self.parts[self.part(hash)].find(hash, |slot| same(*slot)).copied()
    }

    /// Enters a slot that is not there; `hashes` are those of all slots.
    pub fn insert(&mut self, hash: u64, slot: u32, hashes: &[u64]) {
        if self.len == DIVIDED_KEYS && self.parts.len() == 1 {
            self.divide(hashes);
        }
        let part = self.part(hash);
        self.parts[part].insert_unique(hash, slot, |slot| hashes[*slot as usize]);
        self.len += 1;
    }

    fn divide(&mut self, hashes: &[u64]) {
        let all = std::mem::take(&mut self.parts);
        self.parts.resize_with(PARTS, || HashTable::with_capacity(DIVIDED_KEYS / PARTS));
        for slot in all.into_iter().flatten() {
            let hash = hashes[slot as usize];
            let part = self.part(hash);
            self.parts[part].insert_unique(hash, slot, |slot| hashes[*slot as usize]);
        }
    }

    /// Forgets a slot; whether it was there.
    pub fn remove(&mut self, hash: u64, slot: u32) -> bool {
        let part = self.part(hash);
        let found = self.parts[part].find_entry(hash, |other| *other == slot);
        let there = found.is_ok();
        if let Ok(entry) = found {
            entry.remove();
            self.len -= 1;
        }
        there
    }

    /// Bytes of memory that it will have in addition soon: tables that are nearly full will double.
    pub fn growth(&self) -> usize {
        let full = |part: &&HashTable<u32>| (part.capacity() - part.len()) * NEARLY_FULL < part.capacity();
        self.parts.iter().filter(full).map(|part| part.allocation_size()).sum()
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.parts.iter().map(|part| part.allocation_size()).sum::<usize>() + self.parts.capacity() * size_of::<HashTable<u32>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    /// Slots are found before and after the index is divided, and those that are removed are not.
    #[test]
    fn slots_are_found_until_they_are_removed() {
        let hashes: Vec<u64> = (0..3 * DIVIDED_KEYS as u64).map(|key| mix(key / 2)).collect();
        let mut index = SlotIndex::new();
        for (slot, hash) in hashes.iter().enumerate() {
            let slot = slot as u32;
            assert_eq!(index.find(*hash, |other| other == slot), None);
            index.insert(*hash, slot, &hashes);
            if slot % 5 == 4 {
                assert!(index.remove(hashes[slot as usize - 2], slot - 2));
            }
        }
        assert_eq!(index.parts.len(), PARTS);
        let mut there = 0;
        for (slot, hash) in hashes.iter().enumerate() {
            let slot = slot as u32;
            let removed = slot % 5 == 2 && slot + 2 < hashes.len() as u32;
            assert_eq!(index.find(*hash, |other| other == slot), (!removed).then_some(slot), "{slot}");
            assert_eq!(index.remove(*hash, slot), !removed);
            there += usize::from(!removed);
        }
        assert_eq!((there, index.len()), (hashes.len() - hashes.len() / 5, 0));
    }
}
