//! A column of moments as the time functions see it, whatever its type: TIMESTAMP, TIMESTAMP_LTZ,
//! DATE, TIME or text. Also the calendar arithmetic that several of them share.

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, PrimitiveArray};
use arrow::datatypes::{DataType, Date32Type, Int64Type, Time32MillisecondType, TimeUnit};
use datafusion_common::{Result, exec_err};
use tidemill_block::value::{civil_from_days, days_from_civil, days_in_month, parse_time_ms, parse_timestamp, units_per_second};

use super::define::type_name;
use super::zone::{Zone, ZoneClock};

/// A local time: seconds since 1970-01-01 00:00:00 on the local clock, and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Local {
    pub second: i64,
    pub nano: u32,
}

impl Local {
    /// Days since 1970-01-01.
    #[inline]
    pub(super) fn day(self) -> i64 {
        self.second.div_euclid(86_400)
    }

    /// Seconds since midnight.
    #[inline]
    pub(super) fn second_of_day(self) -> u32 {
        self.second.rem_euclid(86_400) as u32
    }
}

/// A column of moments, or one moment for all rows.
pub(super) struct Moments {
    values: Int64Array,
    mask: usize,
    /// The unit of the values.
    pub unit: TimeUnit,
    /// The session's clock if the values are epoch time (TIMESTAMP_LTZ) rather than local time.
    pub clock: Option<ZoneClock>,
}

impl Moments {
    pub(super) fn new(array: &ArrayRef, mask: usize, zone: Zone) -> Result<Self> {
        let (values, unit, clock) = match array.data_type() {
            DataType::Timestamp(unit, tz) => (as_int64(array), *unit, tz.as_ref().map(|_| zone.clock())),
            DataType::Date32 => (array.as_primitive::<Date32Type>().unary::<_, Int64Type>(|d| d as i64 * 86_400), TimeUnit::Second, None),
            DataType::Time32(TimeUnit::Millisecond) => {
                (array.as_primitive::<Time32MillisecondType>().unary::<_, Int64Type>(|t| t as i64), TimeUnit::Millisecond, None)
            }
            DataType::Utf8 => {
                let texts = array.as_string::<i32>();
                (texts.iter().map(|t| t.and_then(|t| parse_text(t, TimeUnit::Microsecond))).collect(), TimeUnit::Microsecond, None)
            }
            DataType::Null => (Int64Array::new_null(array.len()), TimeUnit::Millisecond, None),
            other => return exec_err!("{} is no point in time", type_name(other)),
        };
        Ok(Moments { values, mask, unit, clock })
    }

    /// The value in its own unit: epoch time if there is a clock, else local time.
    #[inline]
    pub(super) fn raw(&self, row: usize) -> Option<i64> {
        let i = row & self.mask;
        self.values.is_valid(i).then(|| self.values.value(i))
    }

    /// The value on the local clock.
    #[inline]
    pub(super) fn local(&self, row: usize) -> Option<Local> {
        let raw = self.raw(row)?;
        let per_second = units_per_second(self.unit);
        let second = raw.div_euclid(per_second);
        let nano = (raw.rem_euclid(per_second) * (1_000_000_000 / per_second)) as u32;
        Some(Local { second: self.clock.as_ref().map_or(second, |c| c.local(second)), nano })
    }

    /// Spans of so many seconds on the local clock, a divisor of a day or a day; `None` if its offset may
    /// change within.
    pub(super) fn spans(&self, seconds: i64) -> Option<Span> {
        let offset_s = match self.clock.as_ref().map(ZoneClock::zone) {
            None => 0,
            Some(Zone::Fixed(offset)) => i64::from(offset),
            Some(Zone::Named(_)) => return None,
        };
        let per_second = units_per_second(self.unit);
        Some(Span { width: seconds * per_second, offset: offset_s * per_second, from: 0, entered: false })
    }

    /// A local time as a value of this column: the inverse of [`Moments::local`].
    #[inline]
    pub(super) fn raw_of(&self, local: Local) -> Option<i64> {
        let per_second = units_per_second(self.unit);
        let second = self.clock.as_ref().map_or(local.second, |c| c.zone().epoch_of(local.second));
        second.checked_mul(per_second)?.checked_add(local.nano as i64 / (1_000_000_000 / per_second))
    }
}

/// The span of local time that a row was in last: what is made of its moments is the same throughout,
/// and rows that follow each other mostly share it. Values are raw ones.
pub(super) struct Span {
    width: i64,
    offset: i64,
    from: i64,
    entered: bool,
}

impl Span {
    /// Whether a value lies in the same span as the one before. If not, its own span is the next to be
    /// compared with.
    #[inline]
    pub(super) fn stays(&mut self, raw: i64) -> bool {
        if self.entered && raw >= self.from && (raw.wrapping_sub(self.from) as u64) < self.width as u64 {
            return true;
        }
        // A span that sticks out of the range of the values is never taken for known.
        let from = raw.checked_add(self.offset).and_then(|local| raw.checked_sub(local.rem_euclid(self.width)));
        self.entered = from.is_some();
        self.from = from.unwrap_or(0);
        false
    }
}

/// The 64-bit values under a timestamp column.
pub(super) fn as_int64(array: &ArrayRef) -> Int64Array {
    let data = array.to_data();
    PrimitiveArray::from(data.into_builder().data_type(DataType::Int64).build().expect("a timestamp is a 64-bit integer"))
}

/// Text as Flink reads it where it expects a timestamp: `yyyy-MM-dd[ HH:mm:ss[.f]]`, without `T` and
/// `Z`; a time alone (`HH:mm:ss`) lies on 1970-01-01.
pub(super) fn parse_text(text: &str, unit: TimeUnit) -> Option<i64> {
    parse_plain(text, unit).or_else(|| Some(parse_time_ms(text.as_bytes())? as i64 * (units_per_second(unit) / 1000)))
}

/// Reads `yyyy-MM-dd[ HH:mm:ss[.f]]`.
#[inline]
pub(super) fn parse_plain(text: &str, unit: TimeUnit) -> Option<i64> {
    let bytes = text.as_bytes();
    let value = parse_timestamp(bytes, unit)?;
    // The reader also takes ISO-8601, which Flink refuses here.
    let iso = bytes.last() == Some(&b'Z') || bytes.iter().take(11).any(|b| *b == b'T');
    (!iso).then_some(value)
}

/// The day `months` months later; its day of the month is cut to the length of the month.
pub(super) fn add_months(day: i64, months: i64) -> i64 {
    let (year, month, date) = civil_from_days(day);
    let total = year * 12 + month as i64 - 1 + months;
    let (year, month) = (total.div_euclid(12), total.rem_euclid(12) as u32 + 1);
    days_from_civil(year, month, date.min(days_in_month(year, month)))
}

/// Whole months from one local time to another.
pub(super) fn months_between(from: Local, to: Local) -> i64 {
    let index = |l: Local| {
        let (year, month, date) = civil_from_days(l.day());
        (year * 12 + month as i64, (date, l.second_of_day(), l.nano))
    };
    let ((a, a_rest), (b, b_rest)) = (index(from), index(to));
    match b - a {
        months if months > 0 && b_rest < a_rest => months - 1,
        months if months < 0 && b_rest > a_rest => months + 1,
        months => months,
    }
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unit {
    /// So many nanoseconds.
    Nanos(i64),
    Day,
    Week,
    /// So many months: 1, 3, 12, 120, …
    Months(i64),
}

impl Unit {
    /// Reads `SECOND`, `DAYS`, `SQL_TSI_HOUR`, …
    pub(super) fn parse(name: &str) -> Result<Unit> {
        let upper = name.trim().to_ascii_uppercase();
        let word = upper.strip_prefix("SQL_TSI_").unwrap_or(&upper);
        let word = match word {
            "CENTURY" | "MILLENNIUM" => word,
            _ => word.strip_suffix('S').unwrap_or(word),
        };
        Ok(match word {
            "NANOSECOND" => Unit::Nanos(1),
            "MICROSECOND" | "FRAC_SECOND" => Unit::Nanos(1_000),
            "MILLISECOND" => Unit::Nanos(1_000_000),
            "SECOND" => Unit::Nanos(1_000_000_000),
            "MINUTE" => Unit::Nanos(60_000_000_000),
            "HOUR" => Unit::Nanos(3_600_000_000_000),
            "DAY" => Unit::Day,
            "WEEK" => Unit::Week,
            "MONTH" => Unit::Months(1),
            "QUARTER" => Unit::Months(3),
            "YEAR" => Unit::Months(12),
            "DECADE" => Unit::Months(120),
            "CENTURY" => Unit::Months(1_200),
            "MILLENNIUM" => Unit::Months(12_000),
            _ => {
                return exec_err!(
                    "'{name}' is no unit of time; there are MILLISECOND, SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER, YEAR"
                );
            }
        })
    }

    /// Whether a date alone can be counted in it.
    pub(super) fn of_days(self) -> bool {
        !matches!(self, Unit::Nanos(_))
    }

    /// The start of the unit in which a local time lies. Weeks begin on Sunday, as Flink has it.
    pub(super) fn floor(self, local: Local) -> Local {
        match self {
            Unit::Nanos(nanos) if nanos < 1_000_000_000 => Local { second: local.second, nano: local.nano - local.nano % nanos as u32 },
            Unit::Nanos(nanos) => Local { second: local.second - local.second.rem_euclid(nanos / 1_000_000_000), nano: 0 },
            Unit::Day => Local { second: local.day() * 86_400, nano: 0 },
            Unit::Week => Local { second: (local.day() - (local.day() + 4).rem_euclid(7)) * 86_400, nano: 0 },
            Unit::Months(months) => {
                let (year, month, _) = civil_from_days(local.day());
                // Centuries and millennia begin with a year 1.
                let shift = if months > 120 { 12 } else { 0 };
                let index = year * 12 + month as i64 - 1 - shift;
                let start = index - index.rem_euclid(months) + shift;
                Local { second: days_from_civil(start.div_euclid(12), start.rem_euclid(12) as u32 + 1, 1) * 86_400, nano: 0 }
            }
        }
    }

    /// The local time `count` units later; `None` beyond what can be expressed.
    pub(super) fn add(self, local: Local, count: i64) -> Option<Local> {
        let days = |days: Option<i64>| Some(Local { second: local.second.checked_add(days?.checked_mul(86_400)?)?, nano: local.nano });
        match self {
            Unit::Nanos(nanos) => {
                let total = local.nano as i128 + nanos as i128 * count as i128;
                let seconds = i64::try_from(total.div_euclid(1_000_000_000)).ok()?;
                Some(Local { second: local.second.checked_add(seconds)?, nano: total.rem_euclid(1_000_000_000) as u32 })
            }
            Unit::Day => days(Some(count)),
            Unit::Week => days(count.checked_mul(7)),
            Unit::Months(months) => {
                let months = months.checked_mul(count).filter(|m| m.abs() < 12 * 1_000_000_000)?;
                days(Some(add_months(local.day(), months) - local.day()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(text: &str) -> Local {
        let micros = parse_plain(text, TimeUnit::Microsecond).expect("a timestamp");
        Local { second: micros.div_euclid(1_000_000), nano: micros.rem_euclid(1_000_000) as u32 * 1000 }
    }

    #[test]
    fn units_start_where_they_should() {
        #[track_caller]
        fn check(unit: &str, expect: &str) {
            assert_eq!(Unit::parse(unit).unwrap().floor(local("2024-08-15 13:47:33.123456")), local(expect));
        }
        check("MILLISECOND", "2024-08-15 13:47:33.123");
        check("second", "2024-08-15 13:47:33");
        check("MINUTE", "2024-08-15 13:47:00");
        check("HOURS", "2024-08-15 13:00:00");
        check("DAY", "2024-08-15");
        check("WEEK", "2024-08-11");
        check("MONTH", "2024-08-01");
        check("QUARTER", "2024-07-01");
        check("YEAR", "2024-01-01");
        check("DECADE", "2020-01-01");
        check("CENTURY", "2001-01-01");
        check("MILLENNIUM", "2001-01-01");
        assert!(Unit::parse("FORTNIGHT").is_err());
    }

    #[test]
    fn months_are_cut_and_counted_whole() {
        let day = |t: &str| local(t).day();
        assert_eq!(add_months(day("2024-01-31"), 1), day("2024-02-29"));
        assert_eq!(add_months(day("2024-03-31"), -13), day("2023-02-28"));
        assert_eq!(months_between(local("2024-01-31"), local("2024-03-30")), 1);
        assert_eq!(months_between(local("2024-03-30"), local("2024-01-31")), -1);
        assert_eq!(months_between(local("2024-01-15 10:00:00"), local("2024-02-15 09:59:59")), 0);
        assert_eq!(months_between(local("2024-01-15"), local("2025-01-15")), 12);
    }

    #[test]
    fn spans_begin_on_the_local_clock() {
        let column: ArrayRef = std::sync::Arc::new(arrow::array::TimestampSecondArray::from(vec![0]).with_timezone("UTC"));
        let mut hours = Moments::new(&column, usize::MAX, Zone::Fixed(1_800)).unwrap().spans(3_600).unwrap();
        let moments = [0, 1_799, 1_800, 5_399, 1_799, -1_801, i64::MIN, i64::MAX, i64::MAX - 1];
        assert_eq!(moments.map(|m| hours.stays(m)), [false, true, false, true, false, false, false, false, false]);
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        assert!(Moments::new(&column, usize::MAX, berlin).unwrap().spans(60).is_none());
    }

    #[test]
    fn iso_text_is_refused() {
        assert_eq!(parse_plain("2024-01-01T00:00:00", TimeUnit::Millisecond), None);
        assert_eq!(parse_plain("2024-01-01 00:00:00Z", TimeUnit::Millisecond), None);
        assert_eq!(parse_plain("1970-01-01 00:00:01", TimeUnit::Millisecond), Some(1000));
    }
}
