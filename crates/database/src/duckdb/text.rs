//! Values of types that Arrow has nothing for, as the texts that DuckDB itself writes.

use std::fmt::Write as _;

use arrow::array::{StringArray, StringBuilder};
use arrow::buffer::NullBuffer;

use super::ffi::Wide;

/// Microseconds of a second.
const SECOND: u64 = 1_000_000;
/// The largest offset of a TIME WITH TIME ZONE, seconds (15:59:59); offsets are counted down from it.
const OFFSET_MAX: i64 = 57_599;

/// A column of texts that `write` makes, NULL where `nulls` says so.
pub fn texts(rows: usize, nulls: Option<&NullBuffer>, write: impl Fn(usize, &mut String)) -> StringArray {
    let mut column = StringBuilder::with_capacity(rows, rows * 24);
    let mut text = String::new();
    for row in 0..rows {
        if nulls.is_some_and(|n| n.is_null(row)) {
            column.append_null();
        } else {
            text.clear();
            write(row, &mut text);
            column.append_value(&text);
        }
    }
    column.finish()
}

/// A BIT: how many bits of the first byte do not count, and the bytes.
pub fn write_bits(out: &mut String, bytes: &[u8]) {
    let Some((skip, bytes)) = bytes.split_first() else { return };
    let bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |i| (byte >> i) & 1));
    out.extend(bits.skip(usize::from(*skip)).map(|bit| if bit == 1 { '1' } else { '0' }));
}

/// A UUID: a number whose first bit is turned, so that signed numbers are in its order.
pub fn write_uuid(out: &mut String, [low, high]: Wide) {
    let high = high ^ (1 << 63);
    let (a, b, c, d, e) = (high >> 32, (high >> 16) & 0xffff, high & 0xffff, low >> 48, low & 0xffff_ffff_ffff);
    // Writing to a String does not fail.
    let _ = write!(out, "{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}");
}

/// `08:00:00`, with a fraction if there is one.
fn write_clock(out: &mut String, micros: u64) {
    let (seconds, fraction) = (micros / SECOND, micros % SECOND);
    let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if fraction > 0 {
        let digits = format!("{fraction:06}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
}

/// An INTERVAL: months and days, microseconds.
pub fn write_interval(out: &mut String, [calendar, micros]: Wide) {
    let (months, days, micros) = (calendar as u32 as i32, (calendar >> 32) as u32 as i32, micros as i64);
    for (number, unit) in [(months / 12, "year"), (months % 12, "month"), (days, "day")] {
        if number != 0 {
            let s = if number.abs() == 1 { "" } else { "s" };
            let space = if out.is_empty() { "" } else { " " };
            let _ = write!(out, "{space}{number} {unit}{s}");
        }
    }
    if micros != 0 || out.is_empty() {
        if !out.is_empty() {
            out.push(' ');
        }
        if micros < 0 {
            out.push('-');
        }
        write_clock(out, micros.unsigned_abs());
    }
}

/// A TIME WITH TIME ZONE: 40 bits of microseconds, 24 of the offset.
pub fn write_time_tz(out: &mut String, bits: u64) {
    write_clock(out, bits >> 24);
    let offset = OFFSET_MAX - (bits & 0xff_ffff) as i64;
    let (sign, offset) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs());
    let (hours, minutes, seconds) = (offset / 3600, offset / 60 % 60, offset % 60);
    let _ = write!(out, "{sign}{hours:02}");
    if minutes > 0 || seconds > 0 {
        let _ = write!(out, ":{minutes:02}");
    }
    if seconds > 0 {
        let _ = write!(out, ":{seconds:02}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(write: impl Fn(&mut String), expect: &str) {
        let mut out = String::new();
        write(&mut out);
        assert_eq!(out, expect);
    }

    /// The words are those that the library gives for these values.
    #[test]
    fn values_are_what_duckdb_writes() {
        check(|out| write_bits(out, &[5, 0xfd]), "101");
        check(|out| write_bits(out, &[5, 0xfd, 0x55]), "10101010101");
        check(|out| write_uuid(out, [1, 1 << 63]), "00000000-0000-0000-0000-000000000001");
        check(|out| write_uuid(out, [1, 0x7fff_ffff_0000_0000]), "ffffffff-0000-0000-0000-000000000001");
        check(|out| write_interval(out, [1 | (2 << 32), 3_000_000]), "1 month 2 days 00:00:03");
        check(|out| write_interval(out, [0, 0]), "00:00:00");
        check(|out| write_interval(out, [26, (-1_500_000i64) as u64]), "2 years 2 months -00:00:01.5");
        check(|out| write_time_tz(out, 0x0a0e_ebb0_0000_bdd7), "12:00:00+02:30");
    }
}
