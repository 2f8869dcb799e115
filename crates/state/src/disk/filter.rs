//! Which hashes may be there: Bloom filters of one word a hash (Putze, Sanders, Singler: Cache-, hash- and
//! space-efficient Bloom filters, JEA 2009).
//!
//! A hash sets four bits of one 64-bit word, so a look-up is one memory access. With twelve bits a key some
//! 1.5 % of the hashes that are not there seem to be. A filter of a run finds the word by the place of
//! the hash among those of the run: runs are written in that order, hence the memory is filled from the
//! front. The filter of the whole store finds it by the lower half of the hash, since the upper half is what
//! shards are told apart by.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits a key.
const KEY_BITS: usize = 12;
/// Odd numbers that spread hashes: one for each kind of filter, so that one does not repeat the other's mistakes.
const RUN_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const STORE_FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

#[inline]
fn bits(hash: u64, factor: u64) -> u64 {
    let h = hash.wrapping_mul(factor);
    1u64 << (h >> 58) | 1u64 << (h >> 52 & 63) | 1u64 << (h >> 46 & 63) | 1u64 << (h >> 40 & 63)
}

fn words(keys: usize) -> usize {
    (keys * KEY_BITS).div_ceil(64).max(1)
}

/// The filter of a run. It answers for hashes between the run's first and last.
pub(crate) struct RunFilter {
    words: Vec<u64>,
    base: u64,
    shift: u32,
    /// How often the number of words was halved.
    fold: u32,
    scale: u64,
    expected: usize,
}

impl RunFilter {
    /// An empty filter for at most `keys` hashes from `first` to `last`.
    pub fn new(keys: usize, first: u64, last: u64) -> Self {
        let words = words(keys);
        // A span of at least 32 bits keeps the scale within 64.
        let span = (last - first) | 0xffff_ffff;
        let shift = span.leading_zeros();
        let scale = (((words as u128) << 64) / (u128::from(span << shift) + 1)) as u64;
        RunFilter { words: vec![0; words], base: first, shift, fold: 0, scale, expected: keys }
    }

    /// A filter from its words and numbers, as [`RunFilter::parts`] gave them.
    pub fn from_parts(words: Vec<u64>, [base, shift, scale]: [u64; 3]) -> Self {
        let (shift, fold) = ((shift & 63) as u32, (shift >> 8 & 63) as u32);
        RunFilter { words, base, shift, fold, scale, expected: 0 }
    }

    /// What must be kept of it.
    pub fn parts(&self) -> (&[u64], [u64; 3]) {
        (&self.words, [self.base, u64::from(self.shift) | u64::from(self.fold) << 8, self.scale])
    }

    #[inline]
    fn index(&self, hash: u64) -> usize {
        let place = hash.wrapping_sub(self.base) << self.shift;
        let index = (u128::from(place) * u128::from(self.scale)) >> 64;
        (index as usize >> self.fold).min(self.words.len() - 1)
    }

    /// Enters a hash.
    #[inline]
    pub fn insert(&mut self, hash: u64) {
        let index = self.index(hash);
        self.words[index] |= bits(hash, RUN_FACTOR);
    }

    /// Whether a hash may have been entered.
    #[inline]
    pub fn has(&self, hash: u64) -> bool {
        let bits = bits(hash, RUN_FACTOR);
        self.words[self.index(hash)] & bits == bits
    }

    /// Gives back memory if fewer hashes came than were expected.
    pub fn fit(&mut self, keys: usize) {
        while self.words.len() > 1 && self.expected >= keys * 2 {
            self.words = self.words.chunks(2).map(|pair| pair.iter().fold(0, |all, word| all | word)).collect();
            self.fold += 1;
            self.expected /= 2;
        }
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.words.capacity() * 8
    }
}

/// The filter of all that is in the store, filled by one thread while another fills it, too.
pub(crate) struct StoreFilter {
    words: Vec<AtomicU64>,
    /// How many keys it is made for.
    capacity: usize,
    /// Hashes that were not there when they came.
    distinct: AtomicU64,
}

impl StoreFilter {
    /// An empty filter.
    pub fn new(capacity: usize) -> Self {
        let mut all = Vec::new();
        all.resize_with(words(capacity), AtomicU64::default);
        StoreFilter { words: all, capacity, distinct: AtomicU64::new(0) }
    }

    #[inline]
    fn word(&self, hash: u64) -> &AtomicU64 {
        &self.words[((u128::from(hash.rotate_left(32)) * self.words.len() as u128) >> 64) as usize]
    }

    /// Enters hashes.
    pub fn insert(&self, hashes: &[u64]) {
        let mut fresh = 0;
        for hash in hashes {
            let (word, bits) = (self.word(*hash), bits(*hash, STORE_FACTOR));
            if word.load(Ordering::Relaxed) & bits != bits {
                word.fetch_or(bits, Ordering::Relaxed);
                fresh += 1;
            }
        }
        self.distinct.fetch_add(fresh, Ordering::Relaxed);
    }

    /// Appends the indices of hashes that may have been entered.
    pub fn probe(&self, hashes: &[u64], into: &mut Vec<u32>) {
        for (row, hash) in hashes.iter().enumerate() {
            let bits = bits(*hash, STORE_FACTOR);
            if self.word(*hash).load(Ordering::Relaxed) & bits == bits {
                into.push(row as u32);
            }
        }
    }

    /// About how many different hashes were entered.
    pub fn distinct(&self) -> u64 {
        self.distinct.load(Ordering::Relaxed)
    }

    /// Whether it is time for a larger one: the thread that makes it may have to end a long merge first, and hashes that
    /// come meanwhile make this one err more often.
    pub fn is_full(&self) -> bool {
        self.distinct() > self.capacity as u64 / 4 * 3
    }

    /// How many keys the larger one should be for: twice as many as this.
    pub fn next_capacity(&self) -> usize {
        (self.distinct() as usize / 3 * 8).max(self.capacity * 2)
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.words.len() * 8
    }
}

#[cfg(test)]
mod tests;
