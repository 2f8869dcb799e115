//! A first look at a row's key: may there be a partial match of it?
//!
//! Rows that begin no match concern only keys that have one. A table of counters by hash says no for
//! most of the others, at one memory access a row and without finding their slot.

/// Counts of live keys by hash.
pub(super) struct Live {
    counts: Vec<u32>,
    shift: u32,
    keys: usize,
}

impl Live {
    /// Counters at the beginning; always a power of two.
    const COUNTERS_MIN: usize = 4096;

    pub fn new() -> Self {
        Live { counts: vec![0; Self::COUNTERS_MIN], shift: 64 - Self::COUNTERS_MIN.trailing_zeros(), keys: 0 }
    }

    #[inline]
    fn place(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    /// Whether a key of this hash may be live.
    #[inline]
    pub fn may_be(&self, hash: u64) -> bool {
        self.counts[self.place(hash)] != 0
    }

    #[inline]
    pub fn add(&mut self, hash: u64) {
        let place = self.place(hash);
        self.counts[place] += 1;
        self.keys += 1;
    }

    #[inline]
    pub fn remove(&mut self, hash: u64) {
        let place = self.place(hash);
        self.counts[place] -= 1;
        self.keys -= 1;
    }

    /// Whether there are too many keys for the counters to tell them apart.
    pub fn is_crowded(&self) -> bool {
        self.keys * 4 > self.counts.len()
    }

    /// More counters, for the live keys with these hashes.
    pub fn grow(&mut self, hashes: impl Iterator<Item = u64>) {
        let size = self.counts.len() * 8;
        *self = Live { counts: vec![0; size], shift: 64 - size.trailing_zeros(), keys: 0 };
        hashes.for_each(|h| self.add(h));
    }

    pub fn memory(&self) -> usize {
        self.counts.len() * 4
    }
}
