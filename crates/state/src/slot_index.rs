//! Slots by the hash of their keys.
//!
//! A hash table that is full is filled anew into one of twice the size: with a million keys that stops the flow for tens of
//! milliseconds. So a large one is [`PARTS`] tables. They are full at about the same number of keys, but not at the same key:
//! by chance alone their fillings differ by some percent.
//!
//! Looking up a key of a large index waits for memory three times, one after the other: for the table's tags, for the slot, for
//! the key at the slot. So the rows of a block are looked up in two steps: [`Ahead`] takes for some rows at once the first slot
//! whose tag is right, which the processor does for several of them at a time, and asks for the keys there; then each is compared.

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

/// From so many keys on look-ups are guessed ahead; those of fewer wait for nothing, as all is near the processor.
pub(crate) const AHEAD_KEYS: usize = 1 << 13;
/// Rows that are guessed at once: what is asked for must stay in the first cache until it is used.
const AHEAD_ROWS: usize = 64;
/// No slot has this number.
const NO_SLOT: u32 = u32::MAX;

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

    /// As [`SlotIndex::find`], where `guess` is probably the slot.
    #[inline]
    pub fn find_guessed(&self, guess: u32, hash: u64, mut same: impl FnMut(u32) -> bool) -> Option<u32> {
        if guess != NO_SLOT && same(guess) { Some(guess) } else { self.find(hash, same) }
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

/// Slots that rows of a block probably have, taken for [`AHEAD_ROWS`] rows at once.
pub(crate) struct Ahead {
    guesses: [u32; AHEAD_ROWS],
    /// The first row that there are guesses for, and the one behind the last.
    from: usize,
    to: usize,
}

impl Ahead {
    /// Before the first row of a block.
    pub fn new() -> Self {
        Ahead { guesses: [NO_SLOT; AHEAD_ROWS], from: 0, to: 0 }
    }

    /// A guess for row `row`, which is behind the one asked for before; `hashes` are those of all rows. `near` asks for what will
    /// be compared at a slot, `then` for what only that leads to. The key there may be another one of the same tag, and keys
    /// entered since have no guess.
    #[inline]
    pub fn guess(&mut self, row: usize, hashes: &[u64], index: &SlotIndex, near: impl Fn(u32), then: impl Fn(u32)) -> u32 {
        if row >= self.to {
            (self.from, self.to) = (row, hashes.len().min(row + AHEAD_ROWS));
            if index.len >= AHEAD_KEYS {
                self.fill(&hashes[self.from..self.to], index, near, then);
            } else {
                self.guesses = [NO_SLOT; AHEAD_ROWS];
            }
        }
        self.guesses[row - self.from]
    }

    #[inline]
    fn fill(&mut self, hashes: &[u64], index: &SlotIndex, near: impl Fn(u32), then: impl Fn(u32)) {
        // Runs of one key are common.
        let mut last = (!hashes[0], NO_SLOT);
        for (guess, hash) in self.guesses.iter_mut().zip(hashes) {
            if *hash != last.0 {
                let slot = index.find(*hash, |_| true);
                slot.into_iter().for_each(&near);
                last = (*hash, slot.unwrap_or(NO_SLOT));
            }
            *guess = last.1;
        }
        self.guesses[..hashes.len()].iter().filter(|guess| **guess != NO_SLOT).for_each(|guess| then(*guess));
    }
}

/// Asks for `element` to be brought near.
#[inline]
pub(crate) fn prefetch<T>(element: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: nothing is read.
        unsafe { _mm_prefetch(std::ptr::from_ref(element).cast(), _MM_HINT_T0) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = element;
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

    /// A guess changes nothing but the way: with few keys and many, wrong guesses and none.
    #[test]
    fn guesses_find_what_is_found_without_them() {
        let hashes: Vec<u64> = (0..2 * DIVIDED_KEYS as u64).map(mix).collect();
        let mut index = SlotIndex::new();
        let mut wrong = 0;
        for known in [0, 10, AHEAD_KEYS, DIVIDED_KEYS + 10] {
            for slot in index.len()..known {
                index.insert(hashes[slot], slot as u32, &hashes);
            }
            let mut ahead = Ahead::new();
            // Some rows are not asked for.
            for (row, hash) in hashes.iter().enumerate().filter(|(row, _)| row % 100 < 90) {
                let guess = ahead.guess(row, &hashes, &index, |_| (), |_| ());
                assert!(known >= AHEAD_KEYS || guess == NO_SLOT);
                wrong += usize::from(guess != NO_SLOT && guess != row as u32);
                let found = index.find_guessed(guess, *hash, |slot| slot == row as u32);
                assert_eq!(found, (row < known).then_some(row as u32));
            }
        }
        assert!(wrong > 0, "tags are short");
    }
}
