//! Time zones: a fixed offset or a zone of the IANA database, and the offset at a moment.
//!
//! Calendar arithmetic lives in the block crate's `value` module; here is only what lies between
//! epoch and local time.

use std::cell::Cell;

use chrono::{DateTime, Offset, TimeZone};

/// A time zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Zone {
    /// Seconds east of UTC, all year round.
    Fixed(i32),
    /// A zone whose offset changes.
    Named(chrono_tz::Tz),
}

/// UTC.
pub(super) const UTC: Zone = Zone::Fixed(0);

impl Zone {
    /// Reads `UTC`, `Z`, `+08:00`, `GMT+8`, `Europe/Berlin`.
    pub(super) fn parse(name: &str) -> Result<Zone, String> {
        let name = name.trim();
        let offset = ["UTC", "GMT", "UT"].iter().find_map(|p| name.strip_prefix(p)).unwrap_or(name);
        if offset.is_empty() && !name.is_empty() || name == "Z" {
            return Ok(UTC);
        }
        if let Some(seconds) = parse_offset(offset.as_bytes()) {
            return Ok(Zone::Fixed(seconds));
        }
        match name.parse::<chrono_tz::Tz>() {
            Ok(chrono_tz::UTC) => Ok(UTC),
            Ok(tz) => Ok(Zone::Named(tz)),
            Err(_) => Err(format!("there is no time zone '{name}'; give a name such as 'Europe/Berlin' or an offset such as '+02:00'")),
        }
    }

    /// Seconds east of UTC at a moment, seconds since the epoch.
    pub(super) fn offset_at(self, epoch_s: i64) -> i32 {
        match self {
            Zone::Fixed(offset) => offset,
            Zone::Named(tz) => {
                DateTime::from_timestamp(epoch_s, 0).map_or(0, |t| tz.offset_from_utc_datetime(&t.naive_utc()).fix().local_minus_utc())
            }
        }
    }

    /// The moment at which the clocks of the zone show a local time, both in seconds. Of two such
    /// moments the earlier; where the clocks skip the local time, it is moved on by the gap.
    pub(super) fn epoch_of(self, local_s: i64) -> i64 {
        match self {
            Zone::Fixed(offset) => local_s - offset as i64,
            Zone::Named(tz) => match DateTime::from_timestamp(local_s, 0).map(|t| tz.offset_from_local_datetime(&t.naive_utc()).earliest())
            {
                Some(Some(offset)) => local_s - offset.fix().local_minus_utc() as i64,
                _ => local_s - self.offset_at(local_s - 86_400) as i64,
            },
        }
    }

    /// A reader of local times that remembers the last offset.
    pub(super) fn clock(self) -> ZoneClock {
        ZoneClock { zone: self, quarter: Cell::new(i64::MIN), offset: Cell::new(0) }
    }
}

/// Reads `+8`, `+08`, `+0800`, `+08:00`, `-03:30`.
fn parse_offset(text: &[u8]) -> Option<i32> {
    let (sign, digits) = match text {
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let (hours, minutes): (&[u8], &[u8]) = match digits {
        [_] | [_, _] => (digits, b"0"),
        [_, b':', _, _] => (&digits[..1], &digits[2..]),
        [_, _, b':', _, _] => (&digits[..2], &digits[3..]),
        [_, _, _, _] => digits.split_at(2),
        _ => return None,
    };
    let number = |d: &[u8]| d.iter().try_fold(0i32, |n, b| b.is_ascii_digit().then(|| n * 10 + (b - b'0') as i32));
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 18 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// The local time of moments that mostly lie close together.
#[derive(Debug)]
pub(super) struct ZoneClock {
    zone: Zone,
    /// The quarter of an hour (of the epoch) in which `offset` holds throughout.
    quarter: Cell<i64>,
    offset: Cell<i32>,
}

impl ZoneClock {
    /// Local seconds at a moment.
    #[inline]
    pub(super) fn local(&self, epoch_s: i64) -> i64 {
        match self.zone {
            Zone::Fixed(offset) => epoch_s + offset as i64,
            Zone::Named(_) => epoch_s + self.cached(epoch_s) as i64,
        }
    }

    /// The zone.
    pub(super) fn zone(&self) -> Zone {
        self.zone
    }

    fn cached(&self, epoch_s: i64) -> i32 {
        let quarter = epoch_s.div_euclid(900);
        if quarter != self.quarter.get() {
            let offset = self.zone.offset_at(quarter * 900);
            // Old zones changed at odd seconds: such a quarter is not remembered.
            if offset != self.zone.offset_at(quarter * 900 + 899) {
                return self.zone.offset_at(epoch_s);
            }
            self.quarter.set(quarter);
            self.offset.set(offset);
        }
        self.offset.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_offsets() {
        #[track_caller]
        fn check(name: &str, expect: Option<i32>) {
            assert_eq!(Zone::parse(name).ok().map(|z| z.offset_at(1_700_000_000)), expect, "{name}");
        }
        check("UTC", Some(0));
        check("Z", Some(0));
        check("+08:00", Some(28_800));
        check("GMT+8", Some(28_800));
        check("UTC-03:30", Some(-12_600));
        check("+0530", Some(19_800));
        check("Europe/Berlin", Some(3_600));
        check("Atlantis", None);
        check("", None);
        check("+8:0", None);
    }

    #[test]
    fn clocks_that_jump() {
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        let clock = berlin.clock();
        // 2024-03-31 01:00 UTC: 02:00 becomes 03:00.
        assert_eq!(clock.local(1_711_846_799) - 1_711_846_799, 3_600);
        assert_eq!(clock.local(1_711_846_800) - 1_711_846_800, 7_200);
        assert_eq!(berlin.epoch_of(1_711_846_800 + 3_600 + 1_800), 1_711_846_800 + 1_800, "02:30 does not exist and is 03:30");
        // 2024-10-27 02:30 exists twice: the earlier is meant.
        assert_eq!(berlin.epoch_of(1_729_996_200), 1_729_996_200 - 7_200);
    }
}
