//! Random numbers by position: the number of a row is a hash of the row's number, so that any range
//! of rows can be made without those before it. And [`Span`], the rows of one poll.
//!
//! The hash is that of wyrand (Wang Yi: "Modern non-cryptographic hash function and pseudorandom
//! number generator", 2020): a Weyl sequence of the row number, multiplied by itself with some bits
//! flipped, the halves of the 128-bit product folded. One multiplication a number is half of what
//! SplitMix64 needs, which is used where speed does not matter, to spread the seeds.

use std::sync::Arc;

use arrow::buffer::{BooleanBuffer, NullBuffer};

/// 2^64 divided by the golden ratio, odd.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// The increment of the Weyl sequence, and the bits flipped: odd, half of their bits set.
const WEYL: u64 = 0xA076_1D64_78BD_642F;
const FLIP: u64 = 0xE703_7ED1_A0B4_28DB;

/// Mixes all bits of `z` into all bits of the result: the output function of SplitMix64 (Steele,
/// Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A sequence of random numbers, each reachable by its index.
#[derive(Clone, Copy, Debug)]
pub struct Stream(u64);

impl Stream {
    /// The stream of a column for one purpose (its values, its nulls, …).
    pub fn new(seed: u64, column: u64, purpose: u64) -> Self {
        Stream(mix(mix(mix(seed.wrapping_add(GOLDEN)).wrapping_add(column)).wrapping_add(purpose.wrapping_mul(GOLDEN))))
    }

    /// The number at `index`, uniform over all 64 bits.
    #[inline(always)]
    pub fn at(self, index: u64) -> u64 {
        let state = self.0.wrapping_add(index.wrapping_mul(WEYL));
        let product = state as u128 * (state ^ FLIP) as u128;
        (product >> 64) as u64 ^ product as u64
    }
}

/// A number below `span` from a uniform `x`, by multiplication (Lemire: "Fast random integer
/// generation in an interval", 2019, without the rejection: the bias is below `span` / 2^64).
#[inline(always)]
pub fn below(x: u64, span: u64) -> u64 {
    ((x as u128 * span as u128) >> 64) as u64
}

/// A number in [0, 1) from a uniform `x`: its upper 53 bits.
#[inline(always)]
pub fn unit(x: u64) -> f64 {
    // By way of i64: the conversion of unsigned numbers costs a branch where there is no AVX-512.
    (x >> 11) as i64 as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Which rows a split owns: of all chunks of `chunk` rows every `of`-th, beginning with `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    pub index: u64,
    pub of: u64,
    pub chunk: u64,
}

impl Stripe {
    /// How many rows below `row` the stripe owns.
    pub fn owned_below(&self, row: u64) -> u64 {
        if self.of == 1 {
            return row;
        }
        let period = self.chunk as u128 * self.of as u128;
        let (full, rest) = (row as u128 / period, row as u128 % period);
        let begin = self.index as u128 * self.chunk as u128;
        (full * self.chunk as u128 + rest.saturating_sub(begin).min(self.chunk as u128)) as u64
    }

    /// The row that comes after `rank` other rows of the stripe.
    pub fn row(&self, rank: u64) -> u64 {
        if self.of == 1 {
            return rank;
        }
        (rank / self.chunk).wrapping_mul(self.of).wrapping_add(self.index).wrapping_mul(self.chunk).wrapping_add(rank % self.chunk)
    }
}

/// `rows` rows of a stripe, from the one at `rank` on.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub stripe: Stripe,
    pub rank: u64,
    pub rows: usize,
}

impl Span {
    /// The rows as ranges without gaps: first row and count.
    #[inline]
    pub fn ranges(self) -> impl Iterator<Item = (u64, usize)> {
        let (mut rank, mut left) = (self.rank, self.rows);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let count = match self.stripe.of {
                1 => left,
                _ => left.min((self.stripe.chunk - rank % self.stripe.chunk) as usize),
            };
            let first = self.stripe.row(rank);
            rank += count as u64;
            left -= count;
            Some((first, count))
        })
    }

    /// Row numbers, one by one. Slower than a loop over [`Span::ranges`].
    pub fn each(self) -> impl Iterator<Item = u64> {
        self.ranges().flat_map(|(first, count)| (0..count as u64).map(move |k| first.wrapping_add(k)))
    }

    /// A value for each row. The loop over a range has no branch but its own.
    #[inline]
    pub fn collect<T>(self, of_row: impl Fn(u64) -> T) -> Vec<T> {
        let mut values = Vec::with_capacity(self.rows);
        for (first, count) in self.ranges() {
            values.extend((0..count).map(|k| of_row(first.wrapping_add(k as u64))));
        }
        debug_assert_eq!(values.len(), self.rows, "the ranges of a span hold its rows");
        values
    }

    /// A bit for each row.
    pub fn bits(self, of_row: impl Fn(u64) -> bool) -> BooleanBuffer {
        let mut rows = self.each();
        BooleanBuffer::collect_bool(self.rows, |_| rows.next().is_some_and(&of_row))
    }
}

/// Which rows of a column are null: a share of them, by chance.
#[derive(Clone, Debug)]
pub struct Nulls {
    stream: Stream,
    /// A row is null if its number is below this.
    threshold: u64,
}

impl Nulls {
    /// Nulls with a probability of `rate` in [0, 1]; `None` if there are none at all.
    pub fn new(stream: Stream, rate: f64) -> Option<Arc<Self>> {
        // The cast saturates, so that a rate of 1 lacks only one number in 2^64.
        (rate > 0.0).then(|| Arc::new(Nulls { stream, threshold: (rate * 18_446_744_073_709_551_616.0) as u64 }))
    }

    /// The null buffer of the rows.
    pub fn of(&self, span: Span) -> NullBuffer {
        NullBuffer::new(span.bits(|row| self.stream.at(row) >= self.threshold))
    }
}

#[cfg(test)]
mod tests;
