//! Floating point of IBM's System/360: a sign, seven bits of exponent to the base 16 with 64 added, 56 bits of
//! fraction. XPORT files have their numbers so, the highest byte first.
//!
//! An IEEE double has 53 bits of fraction and IBM's at least 53, so a double that is written and read again is
//! the same, as long as its exponent fits: from about 5.4e-79 to 7.2e75. A missing value is a fraction of zero
//! under an exponent byte that is `.`, `_` or a letter.

use crate::kind::missing;

/// The largest magnitude, about 7.2e75, for messages.
pub(crate) const MAX: f64 = 7.237_005_577_332_261_4e75;
/// The smallest magnitude of a normalised number, about 5.4e-79, for messages.
pub(crate) const MIN: f64 = 5.397_605_346_934_028e-79;

/// 2 to the power 4 × (exponent − 64) − 56, by exponent: what a fraction taken as a whole number is worth.
const SCALES: [f64; 128] = {
    let mut scales = [0.0; 128];
    let mut exponent = 0;
    while exponent < 128 {
        // From 2^-312 to 2^196: all of them normal doubles.
        let power = 4 * (exponent as i64 - 64) - 56;
        scales[exponent] = f64::from_bits(((power + 1023) as u64) << 52);
        exponent += 1;
    }
    scales
};

/// The value of a number; a missing one becomes the NaN of [`missing`]. A fraction of more than 53 bits, which no
/// IEEE double makes, is rounded to the nearest.
#[inline]
pub(crate) fn to_f64(bits: u64) -> f64 {
    let fraction = bits & 0x00FF_FFFF_FFFF_FFFF;
    if fraction == 0 {
        return zero((bits >> 56) as u8);
    }
    let value = fraction as i64 as f64 * SCALES[((bits >> 56) & 0x7F) as usize];
    f64::from_bits(value.to_bits() | (bits & (1 << 63)))
}

/// What a fraction of zero means under that first byte.
#[inline]
fn zero(first: u8) -> f64 {
    match first {
        b'_' => missing(0),
        b'.' => missing(1),
        b'A'..=b'Z' => missing(first - b'A' + 2),
        _ => 0.0,
    }
}

/// The ordinary missing value, `.`.
pub(crate) const MISSING: u64 = (b'.' as u64) << 56;

/// The number as IBM has it, exactly; `None` if it is too large or too small, infinite or no number.
#[inline]
pub(crate) fn from_f64(value: f64) -> Option<u64> {
    if value == 0.0 {
        return Some(0);
    }
    let bits = value.to_bits();
    let exponent = ((bits >> 52) & 0x7FF) as i64;
    if exponent == 0x7FF || exponent == 0 {
        return None;
    }
    // value = m × 2^power with m in [1/2, 1), and m × 2^53 is `fraction`.
    let fraction = (bits & ((1 << 52) - 1)) | (1 << 52);
    let power = exponent - 1022;
    // The same as m × 2^-shift × 16^hex, shift being 0 to 3.
    let hex = (power + 3).div_euclid(4);
    let shift = 4 * hex - power;
    let biased = hex + 64;
    if !(0..128).contains(&biased) {
        return None;
    }
    Some((bits & (1 << 63)) | ((biased as u64) << 56) | (fraction << (3 - shift)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::missing_text;

    #[test]
    fn known_numbers() {
        #[track_caller]
        fn check(bits: u64, value: f64) {
            assert_eq!(to_f64(bits).to_bits(), value.to_bits(), "{value} from {bits:016x}");
            assert_eq!(from_f64(value), Some(bits), "{value} to {bits:016x}");
        }
        check(0, 0.0);
        check(0x4110_0000_0000_0000, 1.0);
        check(0xC110_0000_0000_0000, -1.0);
        check(0x4080_0000_0000_0000, 0.5);
        check(0x4276_A000_0000_0000, 118.625);
        check(0xC276_A000_0000_0000, -118.625);
        check(0x4120_0000_0000_0000, 2.0);
        check(0x401A_36E2_EB1C_432D, 0.1024);
        check(0x0010_0000_0000_0000, MIN);
        check(0x7FFF_FFFF_FFFF_FFF8, MAX);
    }

    #[test]
    fn doubles_come_back_exactly() {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        for round in 0..100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Random fraction and sign, exponents over the whole range.
            let exponent = (1023 - 255) + (state >> 20) % 500;
            let value = f64::from_bits((state & !(0x7FF << 52)) | (exponent << 52));
            let bits = from_f64(value).unwrap_or_else(|| panic!("round {round}: {value:e} fits"));
            assert_eq!(to_f64(bits).to_bits(), value.to_bits(), "round {round}: {value:e}");
        }
    }

    #[test]
    fn what_does_not_fit() {
        for value in [1e76, -1e300, f64::INFINITY, f64::NAN, 1e-80, -f64::MIN_POSITIVE, f64::from_bits(1)] {
            assert_eq!(from_f64(value), None, "{value:e}");
        }
        assert_eq!(from_f64(-0.0), Some(0));
    }

    #[test]
    fn zeros_and_missing_values() {
        assert_eq!(to_f64(0x8000_0000_0000_0000), 0.0);
        for (first, text) in [(b'.', "."), (b'_', "._"), (b'A', ".A"), (b'Z', ".Z")] {
            let value = to_f64(u64::from(first) << 56);
            assert!(value.is_nan());
            assert_eq!(missing_text(value), text);
        }
        assert!(to_f64(MISSING).is_nan());
    }

    #[test]
    fn fractions_of_56_bits_are_rounded() {
        // 16^14 - 1 over 16^14: nearer to 1 than to any other double.
        assert_eq!(to_f64(0x40FF_FFFF_FFFF_FFFF), 1.0);
    }
}
