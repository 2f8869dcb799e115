//! Sums of floating-point numbers that do not depend on the order of addition.
//!
//! The sum is kept as the unevaluated sum of two doubles and every addition is error-free (two-sum:
//! Knuth, The Art of Computer Programming, vol. 2, §4.2.2, theorem B; double-double: Dekker 1971).
//! 106 bits hold the sums of measurements exactly, so a value that is added and later retracted
//! leaves nothing behind, and stream, batch, one shard or three give the same last digit.

/// A sum under construction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FloatSum {
    high: f64,
    low: f64,
    /// Sums of what is not finite, kept apart: infinities and NaN cannot be retracted otherwise.
    infinities: i32,
    negative_infinities: i32,
    nans: i32,
}

#[inline]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_rounded = sum - a;
    let error = (a - (sum - b_rounded)) + (b - b_rounded);
    (sum, error)
}

impl FloatSum {
    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: f64) {
        if value.is_finite() {
            let (high, error) = two_sum(self.high, value);
            let low = self.low + error;
            let (high, low) = two_sum(high, low);
            self.high = high;
            self.low = low;
        } else {
            self.odd(value, 1);
        }
    }

    /// Takes away a value that was added before.
    #[inline]
    pub fn subtract(&mut self, value: f64) {
        if value.is_finite() { self.add(-value) } else { self.odd(value, -1) }
    }

    /// Adds another sum.
    #[inline]
    pub fn merge(&mut self, other: &FloatSum) {
        self.add(other.high);
        self.add(other.low);
        self.infinities += other.infinities;
        self.negative_infinities += other.negative_infinities;
        self.nans += other.nans;
    }

    /// Takes away a sum that was added before.
    #[inline]
    pub fn unmerge(&mut self, other: &FloatSum) {
        self.add(-other.high);
        self.add(-other.low);
        self.infinities -= other.infinities;
        self.negative_infinities -= other.negative_infinities;
        self.nans -= other.nans;
    }

    #[cold]
    fn odd(&mut self, value: f64, count: i32) {
        if value.is_nan() {
            self.nans += count;
        } else if value > 0.0 {
            self.infinities += count;
        } else {
            self.negative_infinities += count;
        }
    }

    /// The sum, rounded to a double.
    #[inline]
    pub fn value(&self) -> f64 {
        if (self.nans | self.infinities | self.negative_infinities) != 0 {
            return self.odd_value();
        }
        self.high
    }

    #[cold]
    fn odd_value(&self) -> f64 {
        match (self.nans, self.infinities, self.negative_infinities) {
            (0, _, 0) => f64::INFINITY,
            (0, 0, _) => f64::NEG_INFINITY,
            _ => f64::NAN,
        }
    }

    /// The parts, for a snapshot: high, low, and the counts of ∞, −∞ and NaN.
    pub fn parts(&self) -> (f64, f64, [i32; 3]) {
        (self.high, self.low, [self.infinities, self.negative_infinities, self.nans])
    }

    /// The sum with these parts.
    pub fn from_parts(high: f64, low: f64, odd: [i32; 3]) -> Self {
        FloatSum { high, low, infinities: odd[0], negative_infinities: odd[1], nans: odd[2] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_retracted_leaves_nothing_behind() {
        let values: Vec<f64> = (0..10_000).map(|i| f64::from(i * 7919 % 10_007) * 0.0001 + 1e6 * f64::from(i % 3)).collect();
        let mut sliding = FloatSum::default();
        for (i, v) in values.iter().enumerate() {
            sliding.add(*v);
            if i >= 100 {
                sliding.subtract(values[i - 100]);
            }
        }
        let mut fresh = FloatSum::default();
        values[9_900..].iter().rev().for_each(|v| fresh.add(*v));
        assert_eq!(sliding.value(), fresh.value());
    }

    #[test]
    fn order_and_grouping_do_not_matter() {
        let values = [0.1, 1e16, -1e16, 0.2, 3.0, 1e-9];
        let mut forward = FloatSum::default();
        values.iter().for_each(|v| forward.add(*v));
        let (mut left, mut right) = (FloatSum::default(), FloatSum::default());
        values[..3].iter().for_each(|v| left.add(*v));
        values[3..].iter().rev().for_each(|v| right.add(*v));
        right.merge(&left);
        assert_eq!(forward.value(), right.value());
    }

    #[test]
    fn infinities_and_nan_come_and_go() {
        let mut sum = FloatSum::default();
        sum.add(1.0);
        sum.add(f64::INFINITY);
        assert_eq!(sum.value(), f64::INFINITY);
        sum.add(f64::NEG_INFINITY);
        assert!(sum.value().is_nan());
        sum.subtract(f64::INFINITY);
        sum.subtract(f64::NEG_INFINITY);
        assert_eq!(sum.value(), 1.0);
    }
}
