//! Single values as text and back: numbers, decimals, dates, times, timestamps.
//!
//! The text forms are those of a cast to and from STRING in Flink SQL, which its CSV format uses
//! too: `1.0E10`, `2024-01-31 08:00:00.5`, `12.50`. What lives here knows nothing of columns, nulls
//! or formats; everything appends to a buffer or reads a slice of bytes, without allocation.

use arrow::datatypes::TimeUnit;

/// The two-digit numbers `00` to `99`, so that a pair of digits costs one copy.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut i = 0;
    while i < 100 {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
};

/// 10^0 to 10^38, the largest power of ten that an `i128` holds.
const POWERS: [i128; 39] = {
    let mut powers = [1; 39];
    let mut i = 1;
    while i < 39 {
        powers[i] = powers[i - 1] * 10;
        i += 1;
    }
    powers
};

/// Milliseconds of a day.
pub const DAY_MS: i64 = 86_400_000;

/// How many of the unit make a second.
#[inline]
pub const fn units_per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// How many digits of a second's fraction the unit has.
#[inline]
pub const fn fraction_digits(unit: TimeUnit) -> usize {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// Year, month (1 to 12) and day (1 to 31) of the proleptic Gregorian calendar, from the days since
/// 1970-01-01. Eras of 400 years that begin in March, after H. Hinnant, "chrono-compatible
/// low-level date algorithms".
#[inline]
pub const fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = (doy - (153 * mp + 2) / 5 + 1) as u32;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    (yoe + era * 400 + (month <= 2) as i64, month, day)
}

/// The days since 1970-01-01 of a date; the inverse of [`civil_from_days`]. A day beyond the end of
/// the month runs on into the next.
#[inline]
pub const fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = year - (month <= 2) as i64;
    let era = year.div_euclid(400);
    let yoe = year.rem_euclid(400);
    let mp = (month as i64 + 9) % 12;
    let doy = (153 * mp + 2) / 5 + day as i64 - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    era * 146_097 + doe - 719_468
}

/// The number of days in a month (1 to 12).
#[inline]
pub const fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Appends a double as Java's `Double.toString` writes it: `100.0`, `0.001`, `1.0E10`, `NaN`,
/// `-Infinity`. The digits are the shortest that read back as the same number.
#[inline]
pub fn write_f64(out: &mut Vec<u8>, v: f64) {
    let size = v.abs();
    if (1e-3..1e7).contains(&size) || size == 0.0 {
        out.extend_from_slice(zmij::Buffer::new().format_finite(v).as_bytes());
    } else if v.is_finite() {
        write_scientific(out, zmij::Buffer::new().format_finite(v).as_bytes());
    } else {
        write_not_finite(out, v);
    }
}

/// Appends a float as Java's `Float.toString` writes it; see [`write_f64`].
#[inline]
pub fn write_f32(out: &mut Vec<u8>, v: f32) {
    let size = v.abs();
    if (1e-3..1e7).contains(&size) || size == 0.0 {
        out.extend_from_slice(zmij::Buffer::new().format_finite(v).as_bytes());
    } else if v.is_finite() {
        write_scientific(out, zmij::Buffer::new().format_finite(v).as_bytes());
    } else {
        write_not_finite(out, v as f64);
    }
}

#[cold]
fn write_not_finite(out: &mut Vec<u8>, v: f64) {
    out.extend_from_slice(if v.is_nan() {
        b"NaN"
    } else if v > 0.0 {
        b"Infinity"
    } else {
        b"-Infinity"
    });
}

/// Rewrites `-12340000.0`, `0.00012` or `1.2e34` as `d.dddE±n`.
fn write_scientific(out: &mut Vec<u8>, plain: &[u8]) {
    let mut digits = [0u8; 24];
    let (mut count, mut point, mut seen_point, mut exponent) = (0usize, 0i32, false, 0i32);
    for (i, &b) in plain.iter().enumerate() {
        match b {
            b'-' => out.push(b'-'),
            b'.' => seen_point = true,
            b'e' => {
                let (negative, digits) = match plain[i + 1] {
                    b'-' => (true, &plain[i + 2..]),
                    b'+' => (false, &plain[i + 2..]),
                    _ => (false, &plain[i + 1..]),
                };
                let size = digits.iter().fold(0, |n, d| n * 10 + (d - b'0') as i32);
                exponent = if negative { -size } else { size };
                break;
            }
            _ if count == 0 && b == b'0' => point -= seen_point as i32, // a zero in front is no digit
            _ => {
                digits[count] = b;
                count += 1;
                point += !seen_point as i32;
            }
        }
    }
    while count > 1 && digits[count - 1] == b'0' {
        count -= 1;
    }
    out.push(digits[0]);
    out.push(b'.');
    out.extend_from_slice(if count > 1 { &digits[1..count] } else { b"0" });
    out.push(b'E');
    out.extend_from_slice(itoa::Buffer::new().format(exponent + point - 1).as_bytes());
}

/// Appends an integer.
#[inline]
pub fn write_i64(out: &mut Vec<u8>, v: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(v).as_bytes());
}

/// Appends a decimal in plain form with exactly `scale` digits behind the point.
pub fn write_decimal(out: &mut Vec<u8>, v: i128, scale: i8) {
    if v < 0 {
        out.push(b'-');
    }
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(v.unsigned_abs()).as_bytes();
    if scale <= 0 {
        out.extend_from_slice(digits);
        if v != 0 {
            out.extend(std::iter::repeat_n(b'0', -(scale as i32) as usize));
        }
        return;
    }
    let scale = scale as usize;
    if digits.len() > scale {
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        out.extend_from_slice(whole);
        out.push(b'.');
        out.extend_from_slice(fraction);
    } else {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', scale - digits.len()));
        out.extend_from_slice(digits);
    }
}

/// Appends a date, days since 1970-01-01, as `yyyy-MM-dd`.
#[inline]
pub fn write_date(out: &mut Vec<u8>, days: i32) {
    write_day(out, days as i64);
}

#[inline]
fn write_day(out: &mut Vec<u8>, days: i64) {
    let (year, month, day) = civil_from_days(days);
    write_year(out, year);
    let (m, d) = (PAIRS[month as usize], PAIRS[day as usize]);
    out.extend_from_slice(&[b'-', m[0], m[1], b'-', d[0], d[1]]);
}

/// Appends a year with at least four digits.
#[inline]
pub fn write_year(out: &mut Vec<u8>, year: i64) {
    if (0..10_000).contains(&year) {
        let (a, b) = (PAIRS[year as usize / 100], PAIRS[year as usize % 100]);
        out.extend_from_slice(&[a[0], a[1], b[0], b[1]]);
    } else {
        if year < 0 {
            out.push(b'-');
        }
        write_padded(out, year.unsigned_abs(), 4);
    }
}

/// Appends a number with zeros in front up to `width` digits.
#[inline]
pub fn write_padded(out: &mut Vec<u8>, v: u64, width: usize) {
    if width == 2 && v < 100 {
        out.extend_from_slice(&PAIRS[v as usize]);
        return;
    }
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(v).as_bytes();
    out.extend(std::iter::repeat_n(b'0', width.saturating_sub(digits.len())));
    out.extend_from_slice(digits);
}

#[inline]
fn write_clock(out: &mut Vec<u8>, second_of_day: u32) {
    let (h, m, s) =
        (PAIRS[(second_of_day / 3600) as usize], PAIRS[(second_of_day / 60 % 60) as usize], PAIRS[(second_of_day % 60) as usize]);
    out.extend_from_slice(&[h[0], h[1], b':', m[0], m[1], b':', s[0], s[1]]);
}

/// Appends `.` and the fraction, `digits_all` digits wide, without the zeros at its end but with at
/// least `digits_min` digits; nothing if no digit is left.
#[inline]
fn write_fraction(out: &mut Vec<u8>, fraction: u32, digits_all: usize, digits_min: usize) {
    if fraction == 0 && digits_min == 0 {
        return;
    }
    let mut text = *b".000000000";
    let mut rest = fraction;
    for b in text[1..=digits_all].iter_mut().rev() {
        *b = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut digits = digits_all;
    while digits > digits_min && text[digits] == b'0' {
        digits -= 1;
    }
    // More digits may be asked for than the unit has: the rest of `text` is zeros.
    let digits = digits.max(digits_min.min(9));
    if digits > 0 {
        out.extend_from_slice(&text[..=digits]);
    }
}

/// Appends a timestamp, `epoch_units` of `unit` since 1970-01-01 00:00:00, as
/// `yyyy-MM-dd HH:mm:ss`, then the fraction without zeros at its end but with at least
/// `min_fraction_digits` (0 to 9) digits.
#[inline]
pub fn write_timestamp(out: &mut Vec<u8>, epoch_units: i64, unit: TimeUnit, min_fraction_digits: usize) {
    let per_second = units_per_second(unit);
    let seconds = epoch_units.div_euclid(per_second);
    let fraction = epoch_units.rem_euclid(per_second) as u32;
    write_day(out, seconds.div_euclid(86_400));
    out.push(b' ');
    write_clock(out, seconds.rem_euclid(86_400) as u32);
    write_fraction(out, fraction, fraction_digits(unit), min_fraction_digits);
}

/// Appends timestamps as [`write_timestamp`] does, for columns of them: rows that follow each other
/// are mostly of the same minute, whose text is kept.
pub struct TimestampWriter {
    /// The minute since 1970-01-01 00:00 that `text` is of.
    minute: i64,
    /// `yyyy-MM-dd HH:mm:`.
    text: [u8; 17],
}

impl Default for TimestampWriter {
    fn default() -> Self {
        TimestampWriter { minute: i64::MIN, text: [0; 17] }
    }
}

impl TimestampWriter {
    /// Appends `epoch_units` of `unit` without zeros at the end of the fraction.
    #[inline(always)]
    pub fn write(&mut self, out: &mut Vec<u8>, epoch_units: i64, unit: TimeUnit) {
        self.write_digits(out, epoch_units, unit, 0);
    }

    /// Appends `epoch_units` of `unit` with at least `min_digits` digits of the fraction.
    #[inline(always)]
    pub fn write_digits(&mut self, out: &mut Vec<u8>, epoch_units: i64, unit: TimeUnit, min_digits: usize) {
        let per_second = units_per_second(unit);
        let minute = epoch_units.div_euclid(60 * per_second);
        if minute != self.minute && !self.remember(minute) {
            return write_timestamp(out, epoch_units, unit, min_digits);
        }
        // The first minute of nanoseconds begins before there are any; the difference is right all the same.
        let rest = epoch_units.wrapping_sub(minute.wrapping_mul(60 * per_second));
        let (second, fraction) = (rest / per_second, (rest % per_second) as u32);
        let mut text = [0u8; 19];
        text[..17].copy_from_slice(&self.text);
        text[17..].copy_from_slice(&PAIRS[second as usize]);
        out.extend_from_slice(&text);
        write_fraction(out, fraction, fraction_digits(unit), min_digits);
    }

    /// Keeps the text of a minute; false if its year has not four digits.
    fn remember(&mut self, minute: i64) -> bool {
        let mut text = Vec::with_capacity(24);
        write_timestamp(&mut text, minute.saturating_mul(60), TimeUnit::Second, 0);
        if text.len() != 19 {
            return false;
        }
        self.minute = minute;
        self.text.copy_from_slice(&text[..17]);
        true
    }
}

/// Appends a time of day, milliseconds since midnight, as `HH:mm:ss` and, if it has one, the
/// fraction.
pub fn write_time_ms(out: &mut Vec<u8>, ms: i32) {
    let ms = (ms as i64).rem_euclid(DAY_MS) as u32;
    write_clock(out, ms / 1000);
    write_fraction(out, ms % 1000, 3, 0);
}

/// A number of one to `max` digits in front of `text`, and what follows it.
#[inline]
fn number(text: &[u8], max: usize) -> Option<(u32, &[u8])> {
    let mut n = 0u32;
    let mut used = 0;
    while used < max && used < text.len() && text[used].is_ascii_digit() {
        n = n * 10 + (text[used] - b'0') as u32;
        used += 1;
    }
    (used > 0).then(|| (n, &text[used..]))
}

#[inline]
fn after(text: &[u8], expected: u8) -> Option<&[u8]> {
    match text {
        [first, rest @ ..] if *first == expected => Some(rest),
        _ => None,
    }
}

/// Two digits at `i`; a value of 100 or more says that they are none.
#[inline]
fn pair(text: &[u8], i: usize) -> u32 {
    let (a, b) = (text[i].wrapping_sub(b'0'), text[i + 1].wrapping_sub(b'0'));
    if a > 9 || b > 9 { 1000 } else { a as u32 * 10 + b as u32 }
}

/// The days of a `yyyy-M-d` in front of `text`, and what follows it.
#[inline]
fn day(text: &[u8]) -> Option<(i64, &[u8])> {
    let (year, month, day, rest) = if text.len() >= 10
        && text[4] == b'-'
        && text[7] == b'-'
        && let (a, b, month, day) = (pair(text, 0), pair(text, 2), pair(text, 5), pair(text, 8))
        && a < 100
        && b < 100
        && month < 100
        && day < 100
    {
        (a * 100 + b, month, day, &text[10..])
    } else {
        let (year, rest) = number(text, 4)?;
        let (month, rest) = number(after(rest, b'-')?, 2)?;
        let (day, rest) = number(after(rest, b'-')?, 2)?;
        (year, month, day, rest)
    };
    let year = year as i64;
    let real = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month);
    real.then(|| (days_from_civil(year, month, day), rest))
}

/// The seconds of an `H:m:s` in front of `text`, and what follows it.
#[inline]
fn clock(text: &[u8]) -> Option<(u32, &[u8])> {
    let (h, m, s, rest) = if text.len() >= 8
        && text[2] == b':'
        && text[5] == b':'
        && let (h, m, s) = (pair(text, 0), pair(text, 3), pair(text, 6))
        && h < 100
        && m < 100
        && s < 100
    {
        (h, m, s, &text[8..])
    } else {
        let (h, rest) = number(text, 2)?;
        let (m, rest) = number(after(rest, b':')?, 2)?;
        let (s, rest) = number(after(rest, b':')?, 2)?;
        (h, m, s, rest)
    };
    (h < 24 && m < 60 && s < 60).then_some((h * 3600 + m * 60 + s, rest))
}

/// The fraction of a second in front of `text` (`.` and one to nine digits), cut to `unit`; zero if
/// there is none.
#[inline]
fn fraction(text: &[u8], unit: TimeUnit) -> Option<(i64, &[u8])> {
    let Some(digits) = after(text, b'.') else { return Some((0, text)) };
    let (n, rest) = number(digits, 9)?;
    let (given, wanted) = (digits.len() - rest.len(), fraction_digits(unit));
    let n = n as i64;
    Some((if given <= wanted { n * POWERS[wanted - given] as i64 } else { n / POWERS[given - wanted] as i64 }, rest))
}

/// Reads `yyyy-MM-dd`; month and day may have one digit. `None` if it is no date.
#[inline]
pub fn parse_date(text: &[u8]) -> Option<i32> {
    match day(text)? {
        (days, []) => i32::try_from(days).ok(),
        _ => None,
    }
}

/// Reads `HH:mm:ss[.f]` into milliseconds since midnight; further digits are cut off.
pub fn parse_time_ms(text: &[u8]) -> Option<i32> {
    let (seconds, rest) = clock(text)?;
    match fraction(rest, TimeUnit::Millisecond)? {
        (ms, []) => Some(seconds as i32 * 1000 + ms as i32),
        _ => None,
    }
}

/// Reads `yyyy-MM-dd[ HH:mm:ss[.f]]` into units since 1970-01-01 00:00:00. A `T` may stand for the
/// blank, a `Z` at the end; digits beyond the unit are cut off. `None` if it is no timestamp or too
/// far away for the unit.
#[inline]
pub fn parse_timestamp(text: &[u8], unit: TimeUnit) -> Option<i64> {
    let (days, rest) = day(text)?;
    let (seconds, part) = match rest {
        [] => (0, 0),
        [b' ' | b'T', rest @ ..] => {
            let (seconds, rest) = clock(rest)?;
            match fraction(rest, unit)? {
                (part, [] | [b'Z']) => (seconds, part),
                _ => return None,
            }
        }
        _ => return None,
    };
    (days * 86_400 + seconds as i64).checked_mul(units_per_second(unit))?.checked_add(part)
}

/// Reads a decimal number, `[+-]ddd[.ddd][E[+-]n]`, as an integer scaled by 10^`scale`. Digits
/// beyond the scale are rounded, half away from zero. `None` if it is no number or has more than
/// `precision` digits (at most 38).
pub fn parse_decimal(text: &[u8], precision: u8, scale: i8) -> Option<i128> {
    let (negative, mut rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let whole = rest;
    let mut point = None; // digits in front of the point
    let mut seen = 0usize;
    while let [b, tail @ ..] = rest {
        match b {
            b'0'..=b'9' => seen += 1,
            b'.' if point.is_none() => point = Some(seen),
            _ => break,
        }
        rest = tail;
    }
    if seen == 0 {
        return None;
    }
    let digits = &whole[..whole.len() - rest.len()];
    let exponent = match rest {
        [] => 0,
        [b'e' | b'E', tail @ ..] => {
            let (down, tail) = match tail {
                [b'-', t @ ..] => (true, t),
                [b'+', t @ ..] => (false, t),
                _ => (false, tail),
            };
            match number(tail, 6)? {
                (n, []) if down => -(n as i64),
                (n, []) => n as i64,
                _ => return None,
            }
        }
        _ => return None,
    };
    // The digits to keep: those in front of the point, once it has moved by exponent and scale.
    let keep = point.unwrap_or(seen) as i64 + exponent + scale as i64;
    let mut value = 0i128;
    let mut round = false;
    for (i, b) in digits.iter().filter(|b| **b != b'.').enumerate() {
        if (i as i64) < keep {
            value = value.checked_mul(10)?.checked_add((b - b'0') as i128)?;
        } else {
            round = i as i64 == keep && *b >= b'5';
            break;
        }
    }
    if keep > seen as i64 && value != 0 {
        value = value.checked_mul(*POWERS.get((keep - seen as i64) as usize)?)?;
    }
    let value = value + round as i128;
    (value < POWERS[precision.min(38) as usize]).then_some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn doubles_look_like_java() {
        #[track_caller]
        fn check(v: f64, expect: &str) {
            assert_eq!(written(|o| write_f64(o, v)), expect);
        }
        check(0.0, "0.0");
        check(-0.0, "-0.0");
        check(100.0, "100.0");
        check(0.001, "0.001");
        check(0.00099, "9.9E-4");
        check(9999999.0, "9999999.0");
        check(1e7, "1.0E7");
        check(12345678.9, "1.23456789E7");
        check(-1e10, "-1.0E10");
        check(1.5e300, "1.5E300");
        check(123456789012345680.0, "1.2345678901234568E17");
        check(5e-324, "5.0E-324");
        check(f64::MAX, "1.7976931348623157E308");
        check(0.1 + 0.2, "0.30000000000000004");
        check(f64::NAN, "NaN");
        check(f64::NEG_INFINITY, "-Infinity");
        assert_eq!(written(|o| write_f32(o, 1.1)), "1.1");
        assert_eq!(written(|o| write_f32(o, 3.4e38)), "3.4E38");
        assert_eq!(written(|o| write_f32(o, 1.0e-5)), "1.0E-5");
    }

    #[test]
    fn timestamps_round_trip() {
        #[track_caller]
        fn check(text: &str, unit: TimeUnit, min: usize, expect: &str) {
            let v = parse_timestamp(text.as_bytes(), unit).expect("a timestamp");
            assert_eq!(written(|o| write_timestamp(o, v, unit, min)), expect);
            let mut writer = TimestampWriter::default();
            for _ in 0..2 {
                assert_eq!(written(|o| writer.write_digits(o, v, unit, min)), expect);
            }
        }
        use TimeUnit::*;
        check("2024-02-29 23:59:59.999", Millisecond, 0, "2024-02-29 23:59:59.999");
        check("2024-02-29T23:59:59.5Z", Millisecond, 0, "2024-02-29 23:59:59.5");
        check("2024-02-29 23:59:59.5", Millisecond, 3, "2024-02-29 23:59:59.500");
        check("2024-1-2 3:4:5", Millisecond, 0, "2024-01-02 03:04:05");
        check("2024-01-02", Second, 3, "2024-01-02 00:00:00.000");
        check("1969-12-31 23:59:59.123456789", Nanosecond, 0, "1969-12-31 23:59:59.123456789");
        check("1969-12-31 23:59:59.123456789", Microsecond, 0, "1969-12-31 23:59:59.123456");
        check("0001-01-01 00:00:00", Millisecond, 0, "0001-01-01 00:00:00");
        check("9999-12-31 00:00:00", Millisecond, 1, "9999-12-31 00:00:00.0");
    }

    /// A build that looks for overflows stopped at the first of all nanoseconds: the minute that it is in begins before.
    #[test]
    fn the_first_and_last_timestamps() {
        for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
            for value in [i64::MIN, i64::MIN + 1, i64::MAX] {
                let mut writer = TimestampWriter::default();
                assert_eq!(written(|o| writer.write(o, value, unit)), written(|o| write_timestamp(o, value, unit, 0)), "{value} {unit:?}");
            }
        }
        assert_eq!(written(|o| TimestampWriter::default().write(o, i64::MIN, TimeUnit::Nanosecond)), "1677-09-21 00:12:43.145224192");
    }

    #[test]
    fn what_is_no_timestamp() {
        for text in [
            "",
            "x",
            "2024-02-30",
            "2023-02-29",
            "2024-13-01",
            "2024-00-01",
            "2024-01-01 ",
            "2024-01-01 24:00:00",
            "2024-01-01 10:60:00",
            "2024-01-01 10:00",
            "2024-01-01 10:00:00.",
            "2024-01-01 10:00:00.1234567890",
            "2024-01-01 10:00:00x",
            "20240101",
        ] {
            assert_eq!(parse_timestamp(text.as_bytes(), TimeUnit::Millisecond), None, "{text:?}");
        }
        assert_eq!(parse_timestamp(b"9999-01-01 00:00:00", TimeUnit::Nanosecond), None);
    }

    #[test]
    fn the_calendar_is_its_own_inverse() {
        for days in (-1_000_000..1_000_000).step_by(97) {
            let (y, m, d) = civil_from_days(days);
            assert!((1..=12).contains(&m) && d >= 1 && d <= days_in_month(y, m), "{days}");
            assert_eq!(days_from_civil(y, m, d), days);
        }
        assert_eq!(civil_from_days(0), (1970, 1, 1));
        assert_eq!(civil_from_days(19_782), (2024, 2, 29));
    }

    #[test]
    fn dates_and_times() {
        assert_eq!(written(|o| write_date(o, 19_782)), "2024-02-29");
        assert_eq!(parse_date(b"2024-02-29"), Some(19_782));
        assert_eq!(parse_date(b"2024-02-29 "), None);
        assert_eq!(written(|o| write_time_ms(o, 3_723_040)), "01:02:03.04");
        assert_eq!(parse_time_ms(b"01:02:03.04"), Some(3_723_040));
        assert_eq!(written(|o| write_time_ms(o, 0)), "00:00:00");
        assert_eq!(parse_time_ms(b"1:2"), None);
    }

    #[test]
    fn decimals() {
        #[track_caller]
        fn check(text: &str, precision: u8, scale: i8, expect: Option<&str>) {
            let v = parse_decimal(text.as_bytes(), precision, scale);
            assert_eq!(v.map(|v| written(|o| write_decimal(o, v, scale))).as_deref(), expect, "{text:?}");
        }
        check("12.5", 10, 2, Some("12.50"));
        check("-0.005", 10, 2, Some("-0.01"));
        check("0.0049", 10, 2, Some("0.00"));
        check(".5", 10, 1, Some("0.5"));
        check("7.", 10, 1, Some("7.0"));
        check("+1.5e3", 10, 0, Some("1500"));
        check("15e-1", 10, 0, Some("2"));
        check("1e-9", 10, 2, Some("0.00"));
        check("9.99", 2, 1, None);
        check("9.94", 2, 1, Some("9.9"));
        check("100", 2, 0, None);
        check("99999999999999999999999999999999999999", 38, 0, Some("99999999999999999999999999999999999999"));
        check("999999999999999999999999999999999999999", 38, 0, None);
        check("1e99", 38, 0, None);
        check("0e99", 38, 0, Some("0"));
        check("", 10, 0, None);
        check("-", 10, 0, None);
        check(".", 10, 0, None);
        check("1x", 10, 0, None);
        assert_eq!(written(|o| write_decimal(o, 12, -2)), "1200");
        assert_eq!(written(|o| write_decimal(o, -5, 3)), "-0.005");
    }
}
