//! Which hashes may be there: Bloom filters of one word a hash (Putze, Sanders, Singler: Cache-, hash- and
//! space-efficient Bloom filters, JEA 2009).
//!
//! A hash sets four bits of one 64-bit word, so a look-up is one memory access. A filter of a run finds the
//! word by the place of the hash among those of the run: runs are written in that order, hence the memory is
//! filled from the front. With twelve bits a key some 1.5 % of the hashes that are not there seem to be; where memory
//! is short the words of a half are laid upon the other's, six bits and 9 %, and then the words stay in the file.
//!
//! The filter of the whole store is in parts, by ranges of hashes, and each part grows on its own, by a half: so what
//! is there twice while one grows is little, and rows in between two growths are few. In a part the word is found by
//! the lower half of the hash, since the upper half is what parts, and shards, are told apart by.

use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits a key in the filter of a run.
const RUN_KEY_BITS: usize = 12;
/// And in a part of the store's that has as many keys as it is made for.
const STORE_KEY_BITS: usize = 10;
/// Parts of the filter of a store.
pub(crate) const PARTS: usize = 32;
/// The fewest keys for which a part is made.
const PART_KEYS_MIN: usize = 1 << 10;
/// Parts that grow together have at most this part of all the memory, or that many bytes.
const GROWING_PART: usize = 16;
const GROWING_BYTES: usize = 4 << 20;
/// Odd numbers that spread hashes: one for each kind of filter, so that one does not repeat the other's mistakes.
const RUN_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const STORE_FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

#[inline]
fn bits(hash: u64, factor: u64) -> u64 {
    let h = hash.wrapping_mul(factor);
    1u64 << (h >> 58) | 1u64 << (h >> 52 & 63) | 1u64 << (h >> 46 & 63) | 1u64 << (h >> 40 & 63)
}

fn words(keys: usize, key_bits: usize) -> usize {
    (keys * key_bits).div_ceil(64).max(1)
}

/// Divides hashes between two bounds into places of the same width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    base: u64,
    shift: u32,
    scale: u64,
}

impl Places {
    fn new(places: usize, first: u64, last: u64) -> Self {
        // A span of at least 32 bits keeps the scale within 64.
        let span = (last - first) | 0xffff_ffff;
        let shift = span.leading_zeros();
        let scale = (((places as u128) << 64) / (u128::from(span << shift) + 1)) as u64;
        Places { base: first, shift, scale }
    }

    /// The place of a hash that is within the bounds; it may be one too far at the end.
    #[inline]
    fn of(&self, hash: u64) -> usize {
        let place = hash.wrapping_sub(self.base) << self.shift;
        ((u128::from(place) * u128::from(self.scale)) >> 64) as usize
    }
}

/// The filter of a run. It answers for hashes between the run's first and last.
pub(crate) struct RunFilter {
    words: Vec<u64>,
    places: Places,
    /// How often the number of words was halved.
    fold: u32,
    expected: usize,
}

impl RunFilter {
    /// An empty filter for at most `keys` hashes from `first` to `last`.
    pub fn new(keys: usize, first: u64, last: u64) -> Self {
        let words = words(keys, RUN_KEY_BITS);
        RunFilter { words: vec![0; words], places: Places::new(words, first, last), fold: 0, expected: keys }
    }

    /// A filter from its words and numbers, as [`RunFilter::parts`] gave them.
    pub fn from_parts(words: Vec<u64>, [base, shift, scale]: [u64; 3]) -> Self {
        let (shift, fold) = ((shift & 63) as u32, (shift >> 8 & 63) as u32);
        RunFilter { words, places: Places { base, shift, scale }, fold, expected: 0 }
    }

    /// What must be kept of it.
    pub fn parts(&self) -> (&[u64], [u64; 3]) {
        let Places { base, shift, scale } = self.places;
        (&self.words, [base, u64::from(shift) | u64::from(self.fold) << 8, scale])
    }

    #[inline]
    fn index(&self, hash: u64) -> usize {
        (self.places.of(hash) >> self.fold).min(self.words.len() - 1)
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
            *self = self.halved();
        }
    }

    /// The same with half the words, which errs more often.
    fn halved(&self) -> Self {
        let words = self.words.chunks(2).map(|pair| pair.iter().fold(0, |all, word| all | word)).collect();
        RunFilter { words, places: self.places, fold: self.fold + 1, expected: self.expected / 2 }
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.words.capacity() * 8
    }
}

/// The filter of a run that is open: its words in memory, half of them, or none.
pub(crate) struct OpenFilter {
    held: Held,
    /// Where the words lie in the file, how many, and how often their number was halved.
    offset: u64,
    words: usize,
    fold: u32,
}

enum Held {
    Memory(RunFilter),
    File(Places),
}

impl OpenFilter {
    /// One whose words lie at `offset` of the run's file, too.
    pub fn new(filter: RunFilter, offset: u64) -> Self {
        let (words, fold) = (filter.words.len(), filter.fold);
        OpenFilter { held: Held::Memory(filter), offset, words, fold }
    }

    /// Whether a hash may be in the run; if its word cannot be read, it may: then the page tells what is wrong.
    #[inline]
    pub fn has(&self, hash: u64, file: &File) -> bool {
        match &self.held {
            Held::Memory(filter) => filter.has(hash),
            Held::File(places) => {
                let index = (places.of(hash) >> self.fold).min(self.words - 1);
                let (bits, mut word) = (bits(hash, RUN_FACTOR), [0; 8]);
                file.read_exact_at(&mut word, self.offset + index as u64 * 8).is_err() || u64::from_le_bytes(word) & bits == bits
            }
        }
    }

    /// The same with less memory; `None` if it has none.
    pub fn lighter(&self) -> Option<Self> {
        let Held::Memory(filter) = &self.held else { return None };
        let whole = filter.fold == self.fold && filter.words.len() > 1;
        let held = if whole { Held::Memory(filter.halved()) } else { Held::File(filter.places) };
        Some(OpenFilter { held, ..*self })
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        match &self.held {
            Held::Memory(filter) => filter.memory(),
            Held::File(_) => 0,
        }
    }
}

/// The filter of all that is in the store, filled by one thread while another fills it, too; or some parts of one.
pub(crate) struct StoreFilter {
    places: Places,
    /// The greatest hash of the store.
    last: u64,
    parts: Vec<Option<Arc<Part>>>,
}

struct Part {
    words: Vec<AtomicU64>,
    /// How many keys it is made for.
    capacity: usize,
    /// Hashes that were not there when they came.
    distinct: AtomicU64,
    /// How many rows were deletions, of those that came and those that were there when it was made.
    deletions: AtomicU64,
}

impl Part {
    fn new(capacity: usize) -> Self {
        let mut all = Vec::new();
        all.resize_with(words(capacity, STORE_KEY_BITS), AtomicU64::default);
        Part { words: all, capacity, distinct: AtomicU64::new(0), deletions: AtomicU64::new(0) }
    }

    #[inline]
    fn word(&self, hash: u64) -> &AtomicU64 {
        &self.words[((u128::from(hash.rotate_left(32)) * self.words.len() as u128) >> 64) as usize]
    }

    fn memory(&self) -> usize {
        self.words.len() * 8
    }

    fn distinct(&self) -> usize {
        self.distinct.load(Ordering::Relaxed) as usize
    }

    /// Whether it is time for a larger one: hashes that come until that is ready make this one err more often.
    fn is_full(&self) -> bool {
        self.distinct() > self.capacity - self.capacity / 8
    }
}

impl StoreFilter {
    /// An empty filter for `keys` hashes from `first` to `last`.
    pub fn new(keys: usize, first: u64, last: u64) -> Self {
        // Parts of different sizes do not grow at the same time.
        let capacity = |part: usize| keys.div_ceil(PARTS) * (2 * PARTS + part * 19 % PARTS) / (2 * PARTS);
        let parts = (0..PARTS).map(|part| Some(Arc::new(Part::new(capacity(part))))).collect();
        StoreFilter { places: Places::new(PARTS, first, last), last, parts }
    }

    /// Bytes that one for so many keys takes.
    pub fn bytes(keys: usize) -> usize {
        words(keys, STORE_KEY_BITS) * 10
    }

    /// The part that a hash belongs to: it grows with the hash. Hashes of other stores, which runs may have too, belong to
    /// the first or the last one.
    #[inline]
    pub fn part_of(&self, hash: u64) -> usize {
        self.places.of(hash.clamp(self.places.base, self.last)).min(PARTS - 1)
    }

    #[inline]
    fn part(&self, hash: u64) -> Option<&Part> {
        self.parts[self.part_of(hash)].as_deref()
    }

    /// Enters hashes; those of parts that are not there are passed over.
    pub fn insert(&self, hashes: &[u64]) {
        let mut fresh = [0; PARTS];
        for hash in hashes {
            let at = self.part_of(*hash);
            let Some(part) = &self.parts[at] else { continue };
            let (word, bits) = (part.word(*hash), bits(*hash, STORE_FACTOR));
            if word.load(Ordering::Relaxed) & bits != bits {
                word.fetch_or(bits, Ordering::Relaxed);
                fresh[at] += 1;
            }
        }
        for (part, fresh) in self.parts.iter().zip(fresh) {
            if let Some(part) = part {
                part.distinct.fetch_add(fresh, Ordering::Relaxed);
            }
        }
    }

    /// Counts rows of these hashes that are deletions.
    pub fn deleted(&self, hashes: impl Iterator<Item = u64>) {
        for part in hashes.filter_map(|hash| self.part(hash)) {
            part.deletions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Appends the indices of hashes that may have been entered.
    pub fn probe(&self, hashes: &[u64], into: &mut Vec<u32>) {
        for (row, hash) in hashes.iter().enumerate() {
            let bits = bits(*hash, STORE_FACTOR);
            if self.part(*hash).is_none_or(|part| part.word(*hash).load(Ordering::Relaxed) & bits == bits) {
                into.push(row as u32);
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Part>> {
        self.parts.iter().flatten()
    }

    /// About how many different hashes were entered.
    pub fn distinct(&self) -> u64 {
        self.all().map(|part| part.distinct() as u64).sum()
    }

    /// About how many of them were not deleted.
    pub fn live(&self) -> u64 {
        let live = |part: &Arc<Part>| part.distinct.load(Ordering::Relaxed).saturating_sub(part.deletions.load(Ordering::Relaxed));
        self.all().map(live).sum()
    }

    /// Whether it has so many more hashes than it is made for that it no longer counts them well.
    pub fn is_crowded(&self) -> bool {
        self.distinct() as usize > self.all().map(|part| part.capacity).sum::<usize>() / 2 * 3
    }

    /// Whether some part is full.
    pub fn is_full(&self) -> bool {
        self.all().any(|part| part.is_full())
    }

    /// Empty parts for those that are full: of half as many keys again as there are now, of which a part may have `rows` at
    /// the most. All together may have `limit` bytes. `None` if nothing can be done, or little would come of it.
    pub fn growth(&self, rows: impl Fn(usize) -> usize, limit: usize) -> Option<Self> {
        let all = self.memory();
        let mut full: Vec<usize> = (0..self.parts.len()).filter(|at| self.parts[*at].as_ref().is_some_and(|part| part.is_full())).collect();
        let fill = |at: &usize| self.parts[*at].as_ref().map_or(0, |part| part.distinct() * 256 / part.capacity.max(1));
        // The store goes on entering keys: each number is read once, or the order would contradict itself.
        full.sort_by_cached_key(|at| std::cmp::Reverse(fill(at)));
        let mut parts = vec![None; self.parts.len()];
        let (mut growing, mut after) = (0, all);
        for at in full {
            let Some(part) = &self.parts[at] else { continue };
            let there = rows(at).min(part.distinct());
            let fits = (limit.saturating_sub(after) + part.memory()) / STORE_KEY_BITS * 8;
            let capacity = (there + there / 2).min(fits).max(PART_KEYS_MIN);
            // With as much memory it pays only if much of what was entered is gone.
            if capacity < part.capacity + part.capacity / 8 && (there * 4 > part.distinct() * 3 || there > capacity - capacity / 8) {
                continue;
            }
            let bytes = words(capacity, STORE_KEY_BITS) * 8;
            if growing > 0 && growing + bytes > GROWING_BYTES.max(all / GROWING_PART) {
                break;
            }
            growing += bytes;
            after = after + bytes - part.memory();
            parts[at] = Some(Arc::new(Part::new(capacity)));
        }
        (growing > 0).then_some(StoreFilter { parts, ..*self })
    }

    /// Which parts are there: neighbours together, from the first to the last of them.
    pub fn which(&self) -> Vec<RangeInclusive<usize>> {
        let there: Vec<usize> = (0..self.parts.len()).filter(|at| self.parts[*at].is_some()).collect();
        there.chunk_by(|a, b| a + 1 == *b).map(|some| some[0]..=some[some.len() - 1]).collect()
    }

    /// This with the parts that are there in another one.
    pub fn with(&self, other: &Self) -> Self {
        let parts = self.parts.iter().zip(&other.parts).map(|(old, new)| new.as_ref().or(old.as_ref()).cloned()).collect();
        StoreFilter { parts, ..*self }
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.all().map(|part| part.memory()).sum()
    }
}

#[cfg(test)]
mod tests;
