//! What a column's format makes of its numbers: dates, times, points in time; and from those numbers to
//! Arrow's and back.
//!
//! SAS has no types but numbers and texts. A number is a date because its column has the format `DATE9.`:
//! then it counts days since 1960-01-01, and seconds since then, or since midnight, under other formats.

use arrow::datatypes::{DataType, TimeUnit};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text: STRING.
    Text,
    /// A number without a meaning that is known here: DOUBLE.
    Number,
    /// Days since 1960-01-01: DATE.
    Date,
    /// Seconds since 1960-01-01 00:00:00: TIMESTAMP(6).
    DateTime,
    /// Seconds since midnight: TIME.
    Time,
    /// Seconds since midnight or since 1960, of which the format shows the time of day: TIME.
    TimeOfDay,
}

/// Formats of days. Some show a part of the date only, but all take days.
const DATES: &str = "\
    B8601DA DATE DAY DDMMYY DDMMYYB DDMMYYC DDMMYYD DDMMYYN DDMMYYP DDMMYYS DOWNAME E8601DA EURDFDD EURDFDE EURDFDN EURDFDWN \
    EURDFMN EURDFMY EURDFWDX EURDFWKX HDATE HEBDATE IS8601DA JULDAY JULIAN MINGUO MMDDYY MMDDYYB MMDDYYC MMDDYYD MMDDYYN \
    MMDDYYP MMDDYYS MMYY MMYYC MMYYD MMYYN MMYYP MMYYS MONNAME MONTH MONYY ND8601DA NENGO NLDATE NLDATEL NLDATEM NLDATEMD \
    NLDATEMDL NLDATEMDM NLDATEMDS NLDATEMN NLDATES NLDATEW NLDATEWN NLDATEYM NLDATEYML NLDATEYMM NLDATEYMS NLDATEYQ \
    NLDATEYQL NLDATEYQM NLDATEYQS NLDATEYR NLDATEYW QTR QTRR WEEKDATE WEEKDATX WEEKDAY WEEKU WEEKV WEEKW WORDDATE WORDDATX \
    YEAR YYMM YYMMC YYMMD YYMMDD YYMMDDB YYMMDDC YYMMDDD YYMMDDN YYMMDDP YYMMDDS YYMMN YYMMP YYMMS YYMON YYQ YYQC YYQD YYQN \
    YYQP YYQR YYQRC YYQRD YYQRN YYQRP YYQRS YYQS YYQZ YYWEEKU YYWEEKV YYWEEKW";

/// Formats of seconds since 1960.
const DATETIMES: &str = "\
    B8601DN B8601DT B8601DX B8601DZ B8601LX DATEAMPM DATETIME DTDATE DTMONYY DTWKDATX DTYEAR DTYYQC E8601DN E8601DT E8601DX \
    E8601DZ E8601LX EURDFDT IS8601DN IS8601DT IS8601DZ MDYAMPM NLDATM NLDATMAP NLDATMDT NLDATML NLDATMM NLDATMMD NLDATMMDL \
    NLDATMMDM NLDATMMDS NLDATMMN NLDATMS NLDATMTM NLDATMTZ NLDATMW NLDATMWN NLDATMWZ NLDATMYM NLDATMYML NLDATMYMM NLDATMYMS \
    NLDATMYQ NLDATMYQL NLDATMYQM NLDATMYQS NLDATMYR NLDATMYW NLDATMZ";

/// Formats of a time of day. `HOUR` and `MMSS` show durations as often, so those stay numbers.
const TIMES: &str = "\
    B8601LZ B8601TM B8601TX B8601TZ E8601LZ E8601TM E8601TX E8601TZ HHMM IS8601LZ IS8601TM IS8601TZ NLTIMAP NLTIME TIME \
    TIMEAMPM";

impl Kind {
    /// What numbers of the format of that name are. Width and decimals behind the name do not matter.
    pub fn of_format(name: &str) -> Kind {
        let name = name.trim().trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').to_ascii_uppercase();
        let among = |names: &str| names.split(' ').any(|known| known == name);
        match name.as_str() {
            "TOD" => Kind::TimeOfDay,
            _ if among(DATES) => Kind::Date,
            _ if among(DATETIMES) => Kind::DateTime,
            _ if among(TIMES) => Kind::Time,
            _ => Kind::Number,
        }
    }

    /// The type of its values.
    pub fn data_type(self) -> DataType {
        match self {
            Kind::Text => DataType::Utf8,
            Kind::Number => DataType::Float64,
            Kind::Date => DataType::Date32,
            Kind::DateTime => DataType::Timestamp(TimeUnit::Microsecond, None),
            Kind::Time | Kind::TimeOfDay => DataType::Time32(TimeUnit::Millisecond),
        }
    }
}

/// Days from 1960-01-01, where SAS begins to count, to 1970-01-01.
pub(crate) const EPOCH_DAYS: i32 = 3_653;
/// Seconds of that.
pub(crate) const EPOCH_SECONDS: i64 = EPOCH_DAYS as i64 * 86_400;
/// The days that SAS takes for dates: from the year 1582 to the year 20000.
const DAYS: std::ops::RangeInclusive<f64> = -138_061.0..=6_589_335.0;
const DAY_SECONDS: f64 = 86_400.0;
const DAY_MS: i32 = 86_400_000;

/// Days since 1970 of a SAS date; a fraction of a day is not looked at, as SAS's formats do not. `None` if it
/// is no date.
#[inline]
pub(crate) fn date(value: f64) -> Option<i32> {
    let days = value.floor();
    DAYS.contains(&days).then(|| days as i32 - EPOCH_DAYS)
}

/// Microseconds since 1970 of a SAS datetime, rounded. `None` if it is none.
#[inline]
pub(crate) fn datetime(value: f64) -> Option<i64> {
    let days = (value / DAY_SECONDS).floor();
    if !DAYS.contains(&days) {
        return None;
    }
    // Seconds and their fraction apart: together they would be rounded twice.
    let seconds = value.floor();
    let micros = ((value - seconds) * 1e6).round() as i64;
    Some((seconds as i64 - EPOCH_SECONDS) * 1_000_000 + micros)
}

/// Milliseconds since midnight of a SAS time, rounded. `None` if it is not within a day, as durations may be.
#[inline]
pub(crate) fn time(value: f64) -> Option<i32> {
    (0.0..DAY_SECONDS).contains(&value).then(|| ((value * 1e3).round() as i32).min(DAY_MS - 1))
}

/// The same of the time of day in a SAS time or datetime.
#[inline]
pub(crate) fn time_of_day(value: f64) -> Option<i32> {
    if value.is_finite() { time(value.rem_euclid(DAY_SECONDS)) } else { None }
}

/// The number that stands for a missing value of code `code`: 0 is `._`, 1 is `.`, 2 to 27 are `.A` to `.Z`. It is
/// a NaN as SAS7BDAT files have it.
pub(crate) const fn missing(code: u8) -> f64 {
    f64::from_bits((0xFFFF << 48) | ((!code as u64) << 40))
}

/// How SAS writes the missing value that a NaN stands for.
pub(crate) fn missing_text(value: f64) -> &'static str {
    const TEXTS: [&str; 28] = [
        "._", ".", ".A", ".B", ".C", ".D", ".E", ".F", ".G", ".H", ".I", ".J", ".K", ".L", ".M", ".N", ".O", ".P", ".Q", ".R", ".S", ".T",
        ".U", ".V", ".W", ".X", ".Y", ".Z",
    ];
    let code = !((value.to_bits() >> 40) as u8);
    let code = match code {
        // Some writers put the letter itself there.
        b'_' => 0,
        b'A'..=b'Z' => code - b'A' + 2,
        other => other,
    };
    // What is no number and no missing value either (a NaN of another program) is the ordinary one.
    TEXTS.get(code as usize).copied().unwrap_or(".")
}

#[cfg(test)]
mod tests;
