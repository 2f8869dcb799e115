//! Random numbers that are the same for the same seed, on every machine.

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `from` to `to`, both included.
    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        from + (self.bits() % (to - from + 1) as u64) as i64
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.bits() % 100 < percent
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.bits() as usize % from.len()]
    }

    /// `count` different ones, in random order; all of them if there are no more.
    pub fn some<'a, T: ?Sized>(&mut self, from: &[&'a T], count: usize) -> Vec<&'a T> {
        let mut left = from.to_vec();
        let count = count.min(left.len());
        (0..count).map(|_| left.swap_remove(self.bits() as usize % left.len())).collect()
    }
}
