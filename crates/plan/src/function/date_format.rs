//! Patterns such as `yyyy-MM-dd HH:mm:ss.SSS`: compiled once, then written and read by hand.
//!
//! Letters and widths are those of Java's date formatters, which Flink uses. The functions that
//! take a pattern live in `time`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use datafusion_common::{Result, exec_err};
use tidemill_block::value::{civil_from_days, days_from_civil, days_in_month, write_padded, write_year};

use super::moment::Local;

const MONTHS: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Patterns a thread remembers. Patterns are literals: there are few.
const PATTERNS_MAX: usize = 256;

thread_local! {
    static PATTERNS: RefCell<HashMap<String, Rc<Pattern>>> = RefCell::new(HashMap::new());
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    Year,
    Month,
    MonthName,
    Day,
    DayOfYear,
    Quarter,
    /// 0 to 23.
    Hour,
    /// 1 to 24.
    Hour24,
    /// 1 to 12.
    Hour12,
    /// 0 to 11.
    Hour11,
    AmPm,
    Minute,
    Second,
    Fraction,
    DayName,
    /// 1 (Monday) to 7.
    DayNumber,
    /// `+0100`.
    Offset,
    /// `+01:00`, or `Z`.
    OffsetIso,
}

impl Field {
    fn numeric(self) -> bool {
        !matches!(self, Field::AmPm | Field::MonthName | Field::DayName | Field::Offset | Field::OffsetIso)
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Field(Field, usize),
}

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    pieces: Vec<Piece>,
}

impl Pattern {
    /// The compiled form of `text`, remembered by the thread.
    ///
    /// # Errors
    /// A letter that means nothing, a quote that is not closed.
    pub(super) fn get(text: &str) -> Result<Rc<Pattern>> {
        PATTERNS.with_borrow_mut(|patterns| {
            if let Some(found) = patterns.get(text) {
                return Ok(found.clone());
            }
            let pattern = Rc::new(Pattern::compile(text)?);
            if patterns.len() >= PATTERNS_MAX {
                patterns.clear();
            }
            patterns.insert(text.to_string(), pattern.clone());
            Ok(pattern)
        })
    }

    fn compile(text: &str) -> Result<Pattern> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if c == '\'' {
                // Two quotes are one quote, inside quotes as well as outside.
                if rest[1..].starts_with('\'') {
                    literal.push('\'');
                    rest = &rest[2..];
                    continue;
                }
                rest = &rest[1..];
                loop {
                    let Some(end) = rest.find('\'') else {
                        return exec_err!("the date pattern '{text}' has a quote that is not closed");
                    };
                    literal.push_str(&rest[..end]);
                    rest = &rest[end + 1..];
                    if !rest.starts_with('\'') {
                        break;
                    }
                    literal.push('\'');
                    rest = &rest[1..];
                }
                continue;
            }
            if !c.is_ascii_alphabetic() {
                literal.push(c);
                rest = &rest[c.len_utf8()..];
                continue;
            }
            let width = rest.bytes().take_while(|b| *b == c as u8).count();
            let field = match c {
                'y' | 'u' => Field::Year,
                'M' | 'L' if width >= 3 => Field::MonthName,
                'M' | 'L' => Field::Month,
                'd' => Field::Day,
                'D' => Field::DayOfYear,
                'Q' | 'q' if width < 3 => Field::Quarter,
                'H' => Field::Hour,
                'k' => Field::Hour24,
                'h' => Field::Hour12,
                'K' => Field::Hour11,
                'a' => Field::AmPm,
                'm' => Field::Minute,
                's' => Field::Second,
                'S' if width <= 9 => Field::Fraction,
                'E' => Field::DayName,
                'e' => Field::DayNumber,
                'Z' | 'x' if width <= 3 => Field::Offset,
                'X' if width <= 3 => Field::OffsetIso,
                _ => {
                    return exec_err!(
                        "the date pattern '{text}' has '{}', which stands for nothing known here; quote text: ''T''",
                        &rest[..width]
                    );
                }
            };
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Field(field, width));
            rest = &rest[width..];
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Pattern { pieces })
    }

    /// For how many seconds of local time, from a multiple of them on, the pattern writes the same: a
    /// day, an hour, a minute or a second; `None` if less.
    pub(super) fn step_s(&self) -> Option<i64> {
        let step = |piece: &Piece| match piece {
            Piece::Field(Field::Fraction, _) => None,
            Piece::Field(Field::Second, _) => Some(1),
            Piece::Field(Field::Minute, _) => Some(60),
            Piece::Field(Field::Hour | Field::Hour24 | Field::Hour12 | Field::Hour11 | Field::AmPm, _) => Some(3_600),
            _ => Some(86_400),
        };
        self.pieces.iter().try_fold(86_400, |least, piece| Some(least.min(step(piece)?)))
    }

    /// A writer, which remembers the date it wrote last.
    pub(super) fn writer(&self) -> Writer<'_> {
        Writer { pattern: self, day: i64::MIN, date: (0, 1, 1) }
    }

    /// Reads a text. Fields that the pattern lacks are those of 1970-01-01 00:00:00. `lenient`
    /// takes fewer digits than the pattern has letters, where something else follows them.
    pub(super) fn parse(&self, text: &str, lenient: bool) -> Option<Parsed> {
        let mut rest = text.as_bytes();
        let (mut year, mut month, mut day) = (1970i64, 1u32, 1u32);
        let (mut day_of_year, mut hour, mut minute, mut second, mut nano) = (None, 0u32, 0u32, 0u32, 0u32);
        let (mut half, mut twelve, mut offset) = (None, None, None);
        for (i, piece) in self.pieces.iter().enumerate() {
            let (field, width) = match piece {
                Piece::Text(literal) => {
                    rest = rest.strip_prefix(literal.as_bytes())?;
                    continue;
                }
                Piece::Field(field, width) => (*field, *width),
            };
            if !field.numeric() {
                match field {
                    Field::MonthName => {
                        let (index, tail) = name(rest, &MONTHS, width)?;
                        month = index as u32 + 1;
                        rest = tail;
                    }
                    Field::DayName => rest = name(rest, &DAYS, width)?.1,
                    Field::AmPm => {
                        half = Some(match rest.get(..2)?.to_ascii_uppercase().as_slice() {
                            b"AM" => 0,
                            b"PM" => 12,
                            _ => return None,
                        });
                        rest = &rest[2..];
                    }
                    _ => {
                        let (seconds, tail) = read_offset(rest)?;
                        offset = Some(seconds);
                        rest = tail;
                    }
                }
                continue;
            }
            let touches = matches!(self.pieces.get(i + 1), Some(Piece::Field(f, _)) if f.numeric());
            let least = if lenient && !touches && field != Field::Fraction { 1 } else { width };
            let most = match (width, touches) {
                (1, false) if field == Field::Year => 9,
                (1, false) if field == Field::DayOfYear => 3,
                (1, false) if field != Field::Fraction => 2,
                _ => width,
            };
            let used = rest.iter().take(most).take_while(|b| b.is_ascii_digit()).count();
            if used < least {
                return None;
            }
            let n = rest[..used].iter().fold(0u32, |n, b| n * 10 + (b - b'0') as u32);
            rest = &rest[used..];
            match field {
                Field::Year if width == 2 => year = 2000 + n as i64,
                Field::Year => year = n as i64,
                Field::Month => month = n,
                Field::Day => day = n,
                Field::DayOfYear => day_of_year = Some(n),
                Field::Hour => hour = n,
                Field::Hour24 if (1..=24).contains(&n) => hour = n % 24,
                Field::Hour12 if (1..=12).contains(&n) => twelve = Some(n % 12),
                Field::Hour11 if n < 12 => twelve = Some(n),
                Field::Minute => minute = n,
                Field::Second => second = n,
                Field::Fraction => nano = n * 10u32.pow(9 - used as u32),
                Field::Quarter | Field::DayNumber => {}
                _ => return None,
            }
        }
        if let Some(twelve) = twelve {
            hour = twelve + half.unwrap_or(0);
        }
        let real = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month) && hour < 24 && minute < 60 && second < 60;
        if !rest.is_empty() || !real {
            return None;
        }
        let days = match day_of_year {
            Some(n) if (1..=366).contains(&n) => days_from_civil(year, 1, 1) + n as i64 - 1,
            Some(_) => return None,
            None => days_from_civil(year, month, day),
        };
        let second = days * 86_400 + (hour * 3600 + minute * 60 + second) as i64;
        Some(Parsed { local: Local { second, nano }, offset })
    }
}

/// What a text said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Parsed {
    pub local: Local,
    /// Seconds east of UTC, if the text named a zone.
    pub offset: Option<i32>,
}

/// The index of the name in front of `text`, and what follows it.
fn name<'a>(text: &'a [u8], names: &[&str], width: usize) -> Option<(usize, &'a [u8])> {
    names.iter().enumerate().find_map(|(i, name)| {
        let name = if width >= 4 { name } else { &name[..3] };
        let head = text.get(..name.len())?;
        head.eq_ignore_ascii_case(name.as_bytes()).then(|| (i, &text[name.len()..]))
    })
}

/// Reads `Z`, `+0100`, `+01:00`, `+01`.
fn read_offset(text: &[u8]) -> Option<(i32, &[u8])> {
    let (sign, rest) = match text {
        [b'Z', rest @ ..] => return Some((0, rest)),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let two = |t: &[u8]| match t {
        [a, b, ..] if a.is_ascii_digit() && b.is_ascii_digit() => Some(((a - b'0') * 10 + (b - b'0')) as i32),
        _ => None,
    };
    let hours = two(rest)?;
    let rest = &rest[2..];
    let tail = rest.strip_prefix(b":").unwrap_or(rest);
    Some(match two(tail) {
        Some(minutes) => (sign * (hours * 3600 + minutes * 60), &tail[2..]),
        None => (sign * hours * 3600, rest),
    })
}

/// Writes moments by a pattern.
pub(super) struct Writer<'a> {
    pattern: &'a Pattern,
    day: i64,
    date: (i64, u32, u32),
}

impl Writer<'_> {
    /// Appends a local time; `offset_s` is the offset of its zone, for the patterns that show it.
    #[inline]
    pub(super) fn write(&mut self, out: &mut Vec<u8>, local: Local, offset_s: i32) {
        let day = local.day();
        if day != self.day {
            self.day = day;
            self.date = civil_from_days(day);
        }
        let (year, month, date) = self.date;
        let clock = local.second_of_day();
        let hour = clock / 3600;
        for piece in &self.pattern.pieces {
            let (field, width) = match piece {
                Piece::Text(text) => {
                    out.extend_from_slice(text.as_bytes());
                    continue;
                }
                Piece::Field(field, width) => (*field, *width),
            };
            let number = match field {
                Field::Year if width == 4 => {
                    write_year(out, year);
                    continue;
                }
                Field::Year if width == 2 => year.rem_euclid(100) as u32,
                Field::Year => year.unsigned_abs() as u32,
                Field::Month => month,
                Field::Day => date,
                Field::DayOfYear => (day - days_from_civil(year, 1, 1) + 1) as u32,
                Field::Quarter => (month - 1) / 3 + 1,
                Field::Hour => hour,
                Field::Hour24 => (hour + 23) % 24 + 1,
                Field::Hour12 => (hour + 11) % 12 + 1,
                Field::Hour11 => hour % 12,
                Field::Minute => clock / 60 % 60,
                Field::Second => clock % 60,
                Field::Fraction => local.nano / 10u32.pow(9 - width as u32),
                Field::DayNumber => day_of_week(day) as u32 + 1,
                Field::MonthName => {
                    let name = MONTHS[month as usize - 1];
                    out.extend_from_slice(if width >= 4 { name } else { &name[..3] }.as_bytes());
                    continue;
                }
                Field::DayName => {
                    let name = DAYS[day_of_week(day)];
                    out.extend_from_slice(if width >= 4 { name } else { &name[..3] }.as_bytes());
                    continue;
                }
                Field::AmPm => {
                    out.extend_from_slice(if hour < 12 { b"AM" } else { b"PM" });
                    continue;
                }
                Field::Offset | Field::OffsetIso => {
                    write_offset(out, offset_s, field == Field::OffsetIso, width);
                    continue;
                }
            };
            write_padded(out, number as u64, width);
        }
    }
}

/// 0 (Monday) to 6.
fn day_of_week(day: i64) -> usize {
    (day + 3).rem_euclid(7) as usize
}

fn write_offset(out: &mut Vec<u8>, offset_s: i32, iso: bool, width: usize) {
    if iso && offset_s == 0 {
        out.push(b'Z');
        return;
    }
    let minutes = offset_s.unsigned_abs() as u64 / 60;
    out.push(if offset_s < 0 { b'-' } else { b'+' });
    write_padded(out, minutes / 60, 2);
    if iso && width == 1 {
        return;
    }
    if iso && width == 3 {
        out.push(b':');
    }
    write_padded(out, minutes % 60, 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-02-05 15:04:09.123456789, a Monday.
    const MOMENT: Local = Local { second: 1_707_145_449, nano: 123_456_789 };

    #[test]
    fn patterns_write() {
        #[track_caller]
        fn check(pattern: &str, expect: &str) {
            let mut out = Vec::new();
            Pattern::compile(pattern).unwrap().writer().write(&mut out, MOMENT, 19_800);
            assert_eq!(String::from_utf8(out).unwrap(), expect);
        }
        check("yyyy-MM-dd HH:mm:ss", "2024-02-05 15:04:09");
        check("yyyyMMdd", "20240205");
        check("d/M/yy h:mm a", "5/2/24 3:04 PM");
        check("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2024-02-05T15:04:09.123+05:30");
        check("HH 'o''clock'", "15 o'clock");
        check("EEE, dd MMM yyyy", "Mon, 05 Feb 2024");
        check("EEEE d MMMM", "Monday 5 February");
        check("SSSSSS S DDD Q kk KK Z", "123456 1 036 1 15 03 +0530");
        check("", "");
    }

    #[test]
    fn patterns_read() {
        #[track_caller]
        fn check(pattern: &str, text: &str, lenient: bool, expect: Option<(i64, u32)>) {
            let parsed = Pattern::compile(pattern).unwrap().parse(text, lenient);
            assert_eq!(parsed.map(|p| (p.local.second - p.offset.unwrap_or(0) as i64, p.local.nano)), expect);
        }
        check("yyyy-MM-dd HH:mm:ss", "2024-02-05 15:04:09", false, Some((1_707_145_449, 0)));
        check("yyyyMMddHHmmssSSS", "20240205150409123", false, Some((1_707_145_449, 123_000_000)));
        check("dd/MMM/yyyy:HH:mm:ss Z", "05/Feb/2024:16:04:09 +0100", false, Some((1_707_145_449, 0)));
        check("h:mm a d.M.yyyy", "3:04 pm 5.2.2024", false, Some((1_707_145_440, 0)));
        check("yyyy-MM-dd", "2024-2-5", false, None);
        check("yyyy-MM-dd", "2024-2-5", true, Some((1_707_091_200, 0)));
        check("yyyy-MM-dd", "2024-02-30", true, None);
        check("yyyy-MM-dd", "2024-02-05 ", false, None);
        check("HH:mm", "01:01", false, Some((3_660, 0)));
    }

    #[test]
    fn steps() {
        let step = |pattern| Pattern::compile(pattern).unwrap().step_s();
        assert_eq!(
            ["yyyy-MM-dd", "d h a", "HH:mm", "mm:ss Z", "ss.S", "'s'"].map(step),
            [Some(86_400), Some(3_600), Some(60), Some(1), None, Some(86_400)]
        );
    }

    #[test]
    fn patterns_that_mean_nothing() {
        assert!(Pattern::get("yyyy-bb").is_err());
        assert!(Pattern::get("'T").is_err());
        assert!(Pattern::get("yyyy").is_ok());
    }
}
