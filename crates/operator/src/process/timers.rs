//! Timers by key: a time at which a key is worked on again. The same time of a key is there once.

use std::collections::BTreeSet;

/// Timers of one kind of time, ms.
#[derive(Default)]
pub(super) struct TimerSet {
    /// By time, then slot.
    due: BTreeSet<(i64, u32)>,
    /// How many each slot has.
    counts: Vec<u32>,
}

impl TimerSet {
    /// Makes room for so many slots.
    pub fn grow(&mut self, slots: usize) {
        if self.counts.len() < slots {
            self.counts.resize(slots, 0);
        }
    }

    pub fn set(&mut self, slot: u32, time: i64) {
        if self.due.insert((time, slot)) {
            self.counts[slot as usize] += 1;
        }
    }

    pub fn cancel(&mut self, slot: u32, time: i64) {
        if self.due.remove(&(time, slot)) {
            self.counts[slot as usize] -= 1;
        }
    }

    /// The time of the first.
    pub fn first(&self) -> Option<i64> {
        self.due.first().map(|(time, _)| *time)
    }

    /// Takes the slots, ascending, of at most `max` timers of the first time.
    pub fn take_first(&mut self, max: usize) -> Option<(i64, Vec<u32>)> {
        let time = self.first()?;
        let mut slots = Vec::new();
        while slots.len() < max
            && let Some((_, slot)) = self.due.first().copied().filter(|(t, _)| *t == time)
        {
            self.due.pop_first();
            self.counts[slot as usize] -= 1;
            slots.push(slot);
        }
        Some((time, slots))
    }

    pub fn has(&self, slot: u32) -> bool {
        self.counts[slot as usize] > 0
    }

    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// Slots and times of all.
    pub fn all(&self) -> (Vec<u32>, Vec<i64>) {
        (self.due.iter().map(|(_, slot)| *slot).collect(), self.due.iter().map(|(time, _)| *time).collect())
    }

    pub fn memory(&self) -> usize {
        // Entries of 16 bytes in nodes that are two thirds full.
        self.due.len() * 24 + self.counts.capacity() * 4
    }
}
