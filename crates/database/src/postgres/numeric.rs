//! PostgreSQL's `numeric` in binary: groups of four decimal digits, exact both ways.
//!
//! The form, after `numeric_send` in PostgreSQL's source: four 16-bit numbers (how many groups follow; the
//! weight, which is the power of 10,000 of the first group; the sign; how many decimals are shown), then
//! the groups, most significant first, without zero groups at either end.

use super::wire::Wire;

/// The sign of numbers from zero up.
const POSITIVE: u16 = 0x0000;
/// The sign of numbers below zero.
const NEGATIVE: u16 = 0x4000;
/// Not a number; the two infinities are 0xD000 and 0xF000.
const NAN: u16 = 0xC000;
const INFINITY: u16 = 0xD000;
const NEGATIVE_INFINITY: u16 = 0xF000;

/// Groups that a value can have: 38 digits, and a group cut by the point.
const GROUPS_MAX: usize = 12;

/// Values below this many units stay in 64 bits with three digits more.
const SMALL: u128 = 1_000_000_000_000_000;

/// 10^n, for n up to 38.
pub(super) const fn power(n: u32) -> u128 {
    10u128.pow(n)
}

/// Appends `unscaled` / 10^`scale`; `scale` is 0 to 38.
pub(super) fn write(out: &mut Vec<u8>, unscaled: i128, scale: u32) {
    let size = unscaled.unsigned_abs();
    let mut groups = [0u16; GROUPS_MAX];
    // Behind the point, and in front of it.
    let behind = scale.div_ceil(4) as usize;
    let mut used = 0;
    if size < SMALL {
        // Least significant group first, with the point at the edge of a group.
        let mut rest = size as u64 * 10u64.pow(behind as u32 * 4 - scale);
        let mut low = [0u16; GROUPS_MAX];
        while rest > 0 || used < behind {
            low[used] = (rest % 10_000) as u16;
            rest /= 10_000;
            used += 1;
        }
        for i in 0..used {
            groups[i] = low[used - 1 - i];
        }
    } else {
        let (mut whole, mut part) = (size / power(scale), size % power(scale));
        let mut low = [0u16; GROUPS_MAX];
        while whole > 0 {
            low[used] = (whole % 10_000) as u16;
            whole /= 10_000;
            used += 1;
        }
        for i in 0..used {
            groups[i] = low[used - 1 - i];
        }
        let mut left = scale;
        while left > 0 {
            if left >= 4 {
                left -= 4;
                groups[used] = (part / power(left)) as u16;
                part %= power(left);
            } else {
                groups[used] = (part * power(4 - left)) as u16;
                left = 0;
            }
            used += 1;
        }
    }
    let first = groups[..used].iter().position(|g| *g != 0).unwrap_or(used);
    let end = groups[..used].iter().rposition(|g| *g != 0).map_or(first, |n| n + 1);
    // Zero has no groups and weight 0.
    let weight = if first == end { 0 } else { (used - behind) as i16 - 1 - first as i16 };
    out.extend_from_slice(&((end - first) as i16).to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(&if unscaled < 0 { NEGATIVE } else { POSITIVE }.to_be_bytes());
    out.extend_from_slice(&(scale as u16).to_be_bytes());
    for group in &groups[first..end] {
        out.extend_from_slice(&group.to_be_bytes());
    }
}

/// Reads a value as so many units of 10^-`scale`.
///
/// # Errors
/// Why it cannot be one: not a number, more decimals or digits than there is room for.
pub(super) fn read(bytes: &[u8], precision: u32, scale: u32) -> Result<i128, String> {
    let mut wire = Wire(bytes);
    let (count, weight, sign, _shown) = (wire.i16()?, i32::from(wire.i16()?), wire.i16()? as u16, wire.i16()?);
    match sign {
        POSITIVE | NEGATIVE => {}
        NAN | INFINITY | NEGATIVE_INFINITY => return Err("is not a number that DECIMAL has".into()),
        other => return Err(format!("has an unknown sign {other:#06x}")),
    }
    let (mut value, mut rest) = (0u128, 0);
    let too_large = || format!("has more than {} digits in front of the point", precision - scale.min(precision));
    for i in 0..i32::from(count) {
        let group = wire.i16()? as u16 as u128;
        // How many decimal places lie behind this group, seen from the last unit.
        let places = 4 * (weight - i) + scale as i32;
        let (shift, add) = if places >= 0 {
            (4, group)
        } else if places > -4 {
            let cut = power((-places) as u32);
            if !group.is_multiple_of(cut) {
                return Err(format!("has more than {scale} decimals"));
            }
            ((4 + places) as u32, group / cut)
        } else if group == 0 {
            continue;
        } else {
            return Err(format!("has more than {scale} decimals"));
        };
        value = value.checked_mul(power(shift)).and_then(|v| v.checked_add(add)).ok_or_else(too_large)?;
        rest = places.max(0);
    }
    if value > 0 {
        let unit = if rest <= 38 { power(rest as u32) } else { return Err(too_large()) };
        value = value.checked_mul(unit).filter(|v| *v < power(precision.min(38))).ok_or_else(too_large)?;
    }
    Ok(if sign == NEGATIVE { -(value as i128) } else { value as i128 })
}

/// The value as text, for messages: `-12.50`, `NaN`.
pub(super) fn show(bytes: &[u8]) -> String {
    let mut wire = Wire(bytes);
    let (Ok(count), Ok(weight), Ok(sign), Ok(shown)) = (wire.i16(), wire.i16(), wire.i16(), wire.i16()) else {
        return "?".into();
    };
    let mut text = match sign as u16 {
        NAN => return "NaN".into(),
        INFINITY => return "Infinity".into(),
        NEGATIVE_INFINITY => return "-Infinity".into(),
        NEGATIVE => String::from("-"),
        _ => String::new(),
    };
    let groups: Vec<u16> = (0..count).map_while(|_| wire.i16().ok()).map(|g| g as u16).collect();
    let at = |n: i32| usize::try_from(i32::from(weight) - n).ok().and_then(|i| groups.get(i)).copied().unwrap_or(0);
    // Powers of 10,000 from the first group, or the ones, down to the point.
    let top = i32::from(weight).max(0);
    for n in (0..=top).rev() {
        if n == top { text += &at(n).to_string() } else { text += &format!("{:04}", at(n)) }
    }
    if shown > 0 {
        let behind: String = (1..=i32::from(shown).div_euclid(4) + 1).map(|n| format!("{:04}", at(-n))).collect();
        text.push('.');
        text.push_str(&behind[..(shown as usize).min(behind.len())]);
    }
    text
}
