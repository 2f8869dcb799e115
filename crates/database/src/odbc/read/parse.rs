//! Texts of values as drivers write them.

use arrow::datatypes::TimeUnit;
use tidemill_block::value::{self, days_from_civil, days_in_month, units_per_second};

use super::super::ffi::{Date, Timestamp};

const SECONDS_OF_DAY: i64 = 86_400;

/// UTF-16 in bytes, appended as text; false if it is none.
pub(super) fn utf16(bytes: &[u8], out: &mut String) -> bool {
    let units = || bytes.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]]));
    if units().all(|unit| unit < 0x80) {
        out.extend(units().map(|unit| char::from(unit as u8)));
        return true;
    }
    for character in char::decode_utf16(units()) {
        match character {
            Ok(character) => out.push(character),
            Err(_) => return false,
        }
    }
    true
}

/// Whether all digits behind the point from number `digits` on are zeros.
pub(super) fn fits(text: &[u8], digits: usize) -> bool {
    let Some(point) = text.iter().position(|b| *b == b'.') else { return true };
    text[point + 1..].iter().take_while(|b| b.is_ascii_digit()).skip(digits).all(|b| *b == b'0')
}

/// A decimal, if no digit is lost.
pub(super) fn decimal(text: &[u8], precision: u8, scale: i8) -> Option<i128> {
    let exact = fits(text, usize::try_from(scale).unwrap_or(0)) || text.iter().any(|b| matches!(b, b'e' | b'E'));
    if exact { value::parse_decimal(text, precision, scale) } else { None }
}

/// The day of a date; `None` if there is no such day.
pub(super) fn day(date: Date) -> Option<i64> {
    let Date { year, month, day } = date;
    let (year, month, day) = (i64::from(year), u32::from(month), u32::from(day));
    let real = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month);
    real.then(|| days_from_civil(year, month, day))
}

/// A timestamp in units; `None` if there is no such moment, or it has more digits.
pub(super) fn moment(timestamp: Timestamp, unit: TimeUnit) -> Option<i64> {
    let Timestamp { year, month, day: of_month, hour, minute, second, fraction } = timestamp;
    let days = day(Date { year, month, day: of_month })?;
    let nanos = 1_000_000_000 / units_per_second(unit);
    let fraction = i64::from(fraction);
    if hour > 23 || minute > 59 || second > 59 || fraction % nanos != 0 {
        return None;
    }
    let seconds = days * SECONDS_OF_DAY + i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
    seconds.checked_mul(units_per_second(unit))?.checked_add(fraction / nanos)
}

/// A text like `2024-01-31 08:00:00.5`, with a distance from UTC behind it or without, in units; `None` if it is none, or
/// has more digits.
pub(super) fn timestamp(text: &[u8], unit: TimeUnit) -> Option<i64> {
    if !fits(text, value::fraction_digits(unit)) {
        return None;
    }
    // Behind the day, whose signs are no distance.
    let sign = text.iter().skip(10).position(|b| matches!(b, b'+' | b'-')).map(|at| at + 10);
    let Some(at) = sign else { return value::parse_timestamp(text, unit) };
    let local = value::parse_timestamp(text[..at].trim_ascii_end(), unit)?;
    let minutes = match &text[at + 1..] {
        [h1, h2, rest @ ..] => {
            let rest = rest.strip_prefix(b":").unwrap_or(rest);
            let digit = |b: &u8| b.is_ascii_digit().then(|| i64::from(b - b'0'));
            let hours = digit(h1)? * 10 + digit(h2)?;
            match rest {
                [] => hours * 60,
                [m1, m2] => hours * 60 + digit(m1)? * 10 + digit(m2)?,
                _ => return None,
            }
        }
        _ => return None,
    };
    let distance = minutes * 60 * units_per_second(unit);
    if text[at] == b'+' { local.checked_sub(distance) } else { local.checked_add(distance) }
}

/// A day: a date, or a timestamp at midnight.
pub(super) fn date(text: &[u8]) -> Option<i32> {
    value::parse_date(text).or_else(|| {
        let seconds = timestamp(text, TimeUnit::Second).filter(|s| s.rem_euclid(SECONDS_OF_DAY) == 0)?;
        i32::try_from(seconds.div_euclid(SECONDS_OF_DAY)).ok()
    })
}
