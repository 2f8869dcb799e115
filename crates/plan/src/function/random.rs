//! Random numbers: RAND and RAND_INTEGER, and the source of UUIDs.
//!
//! Without a seed, numbers come from a generator per thread that the system seeds. With a seed they
//! are those of Java's `java.util.Random`, as in Flink; calls with the same seed share a sequence,
//! so that it does not begin anew with each block.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, Float64Array};
use arrow::datatypes::Int32Type;
use datafusion_common::Result;

use super::define::{Call, Def, Param::*, Returns, build, def};

/// The functions of this theme.
pub(super) const FUNCTIONS: &[Def] = &[
    def("rand", "RAND([seed])", "A random DOUBLE from 0 up to 1", &[Int], Returns::Double, rand).optional(1).per_row(),
    def("rand_integer", "RAND_INTEGER([seed, ]bound)", "A random INT from 0 up to the bound", &[Int, Int], Returns::Int, rand_integer)
        .optional(1)
        .per_row(),
];

thread_local! {
    // `RandomState` takes its keys from the system.
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(std::thread::current().id()));
}

/// 64 random bits (SplitMix64).
pub(super) fn random_u64() -> u64 {
    STATE.with(|state| {
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        let z = (next ^ next >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}

/// The generator of `java.util.Random`: a linear congruence modulo 2^48.
struct JavaRandom(u64);

impl JavaRandom {
    fn new(seed: i64) -> Self {
        JavaRandom((seed as u64 ^ 0x5_DEEC_E66D) & ((1 << 48) - 1))
    }

    fn bits(&mut self, bits: u32) -> i32 {
        self.0 = self.0.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & ((1 << 48) - 1);
        (self.0 >> (48 - bits)) as i32
    }

    fn double(&mut self) -> f64 {
        let high = (self.bits(26) as i64) << 27;
        (high + self.bits(27) as i64) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, bound: i32) -> i32 {
        if bound & (bound - 1) == 0 {
            return ((bound as i64 * self.bits(31) as i64) >> 31) as i32;
        }
        loop {
            let bits = self.bits(31);
            let value = bits % bound;
            // Refused where the last, incomplete run of `bound` values would favour some.
            if bits.wrapping_sub(value).wrapping_add(bound - 1) >= 0 {
                return value;
            }
        }
    }
}

/// Sequences a process remembers; seeds are literals, so there are few.
const SEEDS_MAX: usize = 1024;

static SEEDED: Mutex<Option<HashMap<i64, JavaRandom>>> = Mutex::new(None);

fn seeded<R>(seed: i64, take: impl FnOnce(&mut JavaRandom) -> R) -> R {
    let mut guard = SEEDED.lock().unwrap_or_else(PoisonError::into_inner);
    let all = guard.get_or_insert_default();
    if all.len() >= SEEDS_MAX && !all.contains_key(&seed) {
        all.clear();
    }
    take(all.entry(seed).or_insert_with(|| JavaRandom::new(seed)))
}

fn rand(call: &Call) -> Result<ArrayRef> {
    if call.len() == 0 {
        let values = (0..call.rows).map(|_| (random_u64() >> 11) as f64 / (1u64 << 53) as f64);
        return Ok(Arc::new(Float64Array::from_iter_values(values)));
    }
    let seeds = call.int(0)?;
    if let (true, Some(seed)) = (seeds.is_constant(), seeds.get(0)) {
        let values = seeded(seed, |random| (0..call.rows).map(|_| random.double()).collect::<Vec<f64>>());
        return Ok(Arc::new(Float64Array::from(values)));
    }
    Ok(Arc::new((0..call.rows).map(|r| Some(seeded(seeds.get(r)?, JavaRandom::double))).collect::<Float64Array>()))
}

fn rand_integer(call: &Call) -> Result<ArrayRef> {
    let bounds = call.int(call.len() - 1)?;
    let bound = |r| bounds.get(r).and_then(|b| i32::try_from(b).ok()).filter(|b| *b > 0);
    if call.len() == 1 {
        return build::<Int32Type>(call.rows, |r| Some((((random_u64() >> 32) * bound(r)? as u64) >> 32) as i32));
    }
    let seeds = call.int(0)?;
    build::<Int32Type>(call.rows, |r| {
        let (seed, bound) = (seeds.get(r)?, bound(r)?);
        Some(seeded(seed, |random| random.below(bound)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn javas_sequence() {
        let mut random = JavaRandom::new(42);
        assert_eq!([random.below(10), random.below(10), random.below(10)], [0, 3, 8]);
        assert_eq!(JavaRandom::new(42).double(), 0.727_563_680_032_868_1);
    }

    #[test]
    fn unseeded_numbers_lie_in_range_and_differ() {
        let values = super::super::testing::column("rand", 50);
        assert!(values.iter().all(|v| (0.0..1.0).contains(&v.parse::<f64>().unwrap())));
        assert!(values.iter().collect::<std::collections::HashSet<_>>().len() > 40);
    }
}
