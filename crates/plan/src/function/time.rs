//! Functions between text, numbers and moments, and the functions that read the clock.
//!
//! Fields of a moment and arithmetic with moments live in `calendar`, patterns in `date_format`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array, Int64Array, Time32MillisecondArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Date32Type, Decimal128Type, Int64Type, TimeUnit, TimestampMillisecondType};
use datafusion_common::{Result, exec_err};
use tidemill_block::clock::wall_ms;
use tidemill_block::value::{parse_date, write_timestamp};

use super::date_format::{Parsed, Pattern};
use super::define::{Call, Def, Param::*, Returns, build, build_text, def, type_name};
use super::moment::{Local, parse_plain};
use super::zone::{UTC, Zone};

/// The functions of this theme.
pub(super) const FUNCTIONS: &[Def] = &[
    def(
        "to_timestamp",
        "TO_TIMESTAMP(text[, pattern])",
        "TIMESTAMP(3) from text, by default yyyy-MM-dd HH:mm:ss[.f]; NULL if it is none",
        &[Text, Text],
        Returns::Timestamp,
        to_timestamp,
    )
    .optional(1),
    def(
        "to_timestamp_ltz",
        "TO_TIMESTAMP_LTZ(number[, 0|3]) or (text[, pattern[, zone]])",
        "TIMESTAMP_LTZ(3) from seconds (0) or milliseconds (3) of the epoch, or from text, by default in UTC",
        &[Any, Any, Text],
        Returns::TimestampLtz,
        to_timestamp_ltz,
    )
    .optional(2),
    def(
        "to_date",
        "TO_DATE(text[, pattern])",
        "DATE from text, by default yyyy-MM-dd; NULL if it is none",
        &[Text, Text],
        Returns::Date,
        to_date,
    )
    .optional(1),
    def(
        "date_format",
        "DATE_FORMAT(moment, pattern)",
        "A timestamp, date or text yyyy-MM-dd HH:mm:ss as text",
        &[Moment, Text],
        Returns::Text,
        date_format,
    ),
    def(
        "from_unixtime",
        "FROM_UNIXTIME(seconds[, pattern])",
        "Seconds of the epoch as text in the session's time zone",
        &[Int, Text],
        Returns::Text,
        from_unixtime,
    )
    .optional(1),
    def(
        "unix_timestamp",
        "UNIX_TIMESTAMP([text[, pattern]])",
        "Seconds of the epoch now, or of a text in the session's time zone",
        &[Text, Text],
        Returns::BigInt,
        unix_timestamp,
    )
    .optional(2)
    .volatile(),
    def(
        "convert_tz",
        "CONVERT_TZ(text, from, to)",
        "A text yyyy-MM-dd HH:mm:ss of one time zone in another",
        &[Text, Text, Text],
        Returns::Text,
        convert_tz,
    ),
    def("current_timestamp", "CURRENT_TIMESTAMP", "The time now, TIMESTAMP_LTZ(3)", &[], Returns::TimestampLtz, now).volatile(),
    def("now", "NOW()", "The time now, TIMESTAMP_LTZ(3)", &[], Returns::TimestampLtz, now).volatile(),
    def(
        "current_row_timestamp",
        "CURRENT_ROW_TIMESTAMP()",
        "The time at which the row is processed, TIMESTAMP_LTZ(3)",
        &[],
        Returns::TimestampLtz,
        now,
    )
    .volatile(),
    def(
        "proctime",
        "PROCTIME()",
        "Processing time: the time at which the row is processed, TIMESTAMP_LTZ(3)",
        &[],
        Returns::TimestampLtz,
        now,
    )
    .volatile(),
    def("localtimestamp", "LOCALTIMESTAMP", "The time now in the session's time zone, TIMESTAMP(3)", &[], Returns::Timestamp, local_now)
        .volatile(),
    def("current_date", "CURRENT_DATE", "Today in the session's time zone", &[], Returns::Date, today).volatile(),
    def("current_time", "CURRENT_TIME", "The time of day in the session's time zone", &[], Returns::Time, time_now).volatile(),
    def("localtime", "LOCALTIME", "The time of day in the session's time zone", &[], Returns::Time, time_now).volatile(),
];

/// The default pattern of FROM_UNIXTIME and UNIX_TIMESTAMP.
const SECONDS: &str = "yyyy-MM-dd HH:mm:ss";

fn millis(local: Local) -> Option<i64> {
    local.second.checked_mul(1000)?.checked_add((local.nano / 1_000_000) as i64)
}

/// For each row what the pattern in argument `position` makes of the text in argument 0.
fn parse_rows<R>(
    call: &Call,
    position: usize,
    lenient: bool,
    mut row_of: impl FnMut(Option<Parsed>) -> Option<R>,
) -> Result<Vec<Option<R>>> {
    let (texts, patterns) = (call.text(0)?, call.text(position)?);
    if patterns.is_constant() {
        let Some(pattern) = patterns.get(0) else { return Ok((0..call.rows).map(|_| None).collect()) };
        let pattern = Pattern::get(pattern)?;
        return Ok((0..call.rows).map(|r| row_of(pattern.parse(texts.get(r)?, lenient))).collect());
    }
    // Data may hold anything: a pattern that is none gives what a text that does not fit it gives.
    Ok((0..call.rows)
        .map(|r| {
            let (text, pattern) = (texts.get(r)?, patterns.get(r)?);
            row_of(Pattern::get(pattern).ok().and_then(|p| p.parse(text, lenient)))
        })
        .collect())
}

fn to_timestamp(call: &Call) -> Result<ArrayRef> {
    if call.len() == 1 {
        let texts = call.text(0)?;
        return build::<TimestampMillisecondType>(call.rows, |r| parse_plain(texts.get(r)?, TimeUnit::Millisecond));
    }
    let values = parse_rows(call, 1, false, |p| millis(p?.local))?;
    Ok(Arc::new(TimestampMillisecondArray::from(values)))
}

fn to_timestamp_ltz(call: &Call) -> Result<ArrayRef> {
    let kind = call.type_of(0);
    let values = if matches!(kind, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8) {
        let zone = match call.word(2)? {
            Some(name) => Zone::parse(&name).or_else(|m| exec_err!("{m}"))?,
            None => UTC,
        };
        let epoch = |local: Local| millis(Local { second: zone.epoch_of(local.second), nano: local.nano });
        if call.len() == 1 {
            let texts = call.text(0)?;
            let ms = |r| {
                let ms = parse_plain(texts.get(r)?, TimeUnit::Millisecond)?;
                epoch(Local { second: ms.div_euclid(1000), nano: ms.rem_euclid(1000) as u32 * 1_000_000 })
            };
            (0..call.rows).map(ms).collect::<Int64Array>()
        } else {
            let of = |p: Option<Parsed>| {
                let p = p?;
                match p.offset {
                    Some(offset) => millis(Local { second: p.local.second - offset as i64, nano: p.local.nano }),
                    None => epoch(p.local),
                }
            };
            Int64Array::from(parse_rows(call, 1, false, of)?)
        }
    } else {
        epoch_numbers(call, &kind)?
    };
    Ok(Arc::new(values.reinterpret_cast::<TimestampMillisecondType>().with_timezone("UTC")))
}

fn epoch_numbers(call: &Call, kind: &DataType) -> Result<Int64Array> {
    let precision = match call.len() {
        1 => 3,
        _ => {
            let precisions = call.int(1)?;
            match (precisions.is_constant(), precisions.get(0)) {
                (true, Some(precision)) => precision,
                _ => return exec_err!("the precision of TO_TIMESTAMP_LTZ has to be a literal, 0 or 3"),
            }
        }
    };
    let scale = match precision {
        0 => 1000,
        3 => 1,
        other => return exec_err!("TO_TIMESTAMP_LTZ takes the precision 0 (seconds) or 3 (milliseconds), not {other}"),
    };
    Ok(match kind {
        DataType::Float32 | DataType::Float64 => {
            let numbers = call.double(0)?;
            (0..call.rows).map(|r| Some((numbers.get(r)? * scale as f64) as i64)).collect()
        }
        DataType::Decimal128(_, digits) => {
            let (numbers, one) = (call.arg(0)?, 10i128.pow((*digits).max(0) as u32));
            let values = numbers.array.as_primitive::<Decimal128Type>();
            let value = |r: usize| {
                let i = numbers.index(r);
                values.is_valid(i).then(|| i64::try_from(values.value(i).checked_mul(scale as i128)? / one).ok()).flatten()
            };
            (0..call.rows).map(value).collect()
        }
        t if t.is_integer() || *t == DataType::Null => {
            let numbers = call.int(0)?;
            match scale {
                // Already milliseconds: the column is taken as it is.
                1 => numbers.array,
                _ => numbers.array.unary_opt::<_, Int64Type>(|n| n.checked_mul(scale)),
            }
        }
        other => return exec_err!("TO_TIMESTAMP_LTZ takes a number or text, not {}", type_name(other)),
    })
}

fn to_date(call: &Call) -> Result<ArrayRef> {
    if call.len() == 1 {
        let texts = call.text(0)?;
        return build::<Date32Type>(call.rows, |r| parse_date(texts.get(r)?.as_bytes()));
    }
    let values = parse_rows(call, 1, true, |p| i32::try_from(p?.local.day()).ok())?;
    Ok(Arc::new(Date32Array::from(values)))
}

fn date_format(call: &Call) -> Result<ArrayRef> {
    let (moments, patterns) = (call.moment(0)?, call.text(1)?);
    let per_second = tidemill_block::value::units_per_second(moments.unit);
    let offset = |r: usize, local: Local| match (&moments.clock, moments.raw(r)) {
        (Some(_), Some(raw)) => (local.second - raw.div_euclid(per_second)) as i32,
        _ => 0,
    };
    if patterns.is_constant() {
        let Some(pattern) = patterns.get(0) else { return build_text(call.rows, |_, _| None) };
        let pattern = Pattern::get(pattern)?;
        let mut writer = pattern.writer();
        let Some(mut span) = pattern.step_s().and_then(|seconds| moments.spans(seconds)) else {
            return build_text(call.rows, |r, out| {
                let local = moments.local(r)?;
                writer.write(out, local, offset(r, local));
                Some(())
            });
        };
        // Where the text of the last row that is not NULL stands.
        let mut last = 0..0;
        return build_text(call.rows, |r, out| {
            if span.stays(moments.raw(r)?) {
                out.extend_from_within(last.clone());
            } else {
                last.start = out.len();
                let local = moments.local(r)?;
                writer.write(out, local, offset(r, local));
                last.end = out.len();
            }
            Some(())
        });
    }
    build_text(call.rows, |r, out| {
        let (local, pattern) = (moments.local(r)?, Pattern::get(patterns.get(r)?).ok()?);
        pattern.writer().write(out, local, offset(r, local));
        Some(())
    })
}

fn from_unixtime(call: &Call) -> Result<ArrayRef> {
    let (seconds, clock) = (call.int(0)?, call.zone()?.clock());
    let local = |r| {
        let second = seconds.get(r)?;
        // Beyond this the year has more digits than a text of a timestamp can hold.
        (second.abs() < 1 << 40).then(|| (Local { second: clock.local(second), nano: 0 }, (clock.local(second) - second) as i32))
    };
    let patterns = if call.len() == 2 { Some(call.text(1)?) } else { None };
    match patterns {
        Some(patterns) if !patterns.is_constant() => build_text(call.rows, |r, out| {
            let ((local, offset), pattern) = (local(r)?, Pattern::get(patterns.get(r)?).ok()?);
            pattern.writer().write(out, local, offset);
            Some(())
        }),
        patterns => {
            let Some(pattern) = patterns.as_ref().map_or(Some(SECONDS), |p| p.get(0)) else { return build_text(call.rows, |_, _| None) };
            let pattern = Pattern::get(pattern)?;
            let mut writer = pattern.writer();
            build_text(call.rows, |r, out| {
                let (local, offset) = local(r)?;
                writer.write(out, local, offset);
                Some(())
            })
        }
    }
}

fn unix_timestamp(call: &Call) -> Result<ArrayRef> {
    if call.len() == 0 {
        return build::<Int64Type>(call.rows, |_| Some(wall_ms().div_euclid(1000)));
    }
    let zone = call.zone()?;
    // A text that does not fit gives the smallest BIGINT, not NULL: Flink's choice.
    let seconds = |p: Option<Parsed>| match p {
        Some(Parsed { local, offset: Some(offset) }) => local.second - offset as i64,
        Some(Parsed { local, offset: None }) => zone.epoch_of(local.second),
        None => i64::MIN,
    };
    if call.len() == 1 {
        let (texts, pattern) = (call.text(0)?, Pattern::get(SECONDS)?);
        return build::<Int64Type>(call.rows, |r| Some(seconds(pattern.parse(texts.get(r)?, true))));
    }
    let values = parse_rows(call, 1, true, |p| Some(seconds(p)))?;
    Ok(Arc::new(Int64Array::from(values)))
}

fn convert_tz(call: &Call) -> Result<ArrayRef> {
    let (texts, from, to) = (call.text(0)?, call.text(1)?, call.text(2)?);
    let constant = match (from.is_constant() && to.is_constant(), from.get(0), to.get(0)) {
        (true, Some(from), Some(to)) => {
            Some((Zone::parse(from).or_else(|m| exec_err!("{m}"))?, Zone::parse(to).or_else(|m| exec_err!("{m}"))?))
        }
        _ => None,
    };
    build_text(call.rows, |r, out| {
        let (from, to) = match constant {
            Some(zones) => zones,
            None => (Zone::parse(from.get(r)?).ok()?, Zone::parse(to.get(r)?).ok()?),
        };
        let epoch = from.epoch_of(parse_plain(texts.get(r)?, TimeUnit::Second)?);
        write_timestamp(out, epoch + to.offset_at(epoch) as i64, TimeUnit::Second, 0);
        Some(())
    })
}

fn local_ms(call: &Call) -> Result<i64> {
    let ms = wall_ms();
    Ok(ms + call.zone()?.offset_at(ms.div_euclid(1000)) as i64 * 1000)
}

fn now(call: &Call) -> Result<ArrayRef> {
    Ok(Arc::new(TimestampMillisecondArray::from_value(wall_ms(), call.rows).with_timezone("UTC")))
}

fn local_now(call: &Call) -> Result<ArrayRef> {
    Ok(Arc::new(TimestampMillisecondArray::from_value(local_ms(call)?, call.rows)))
}

fn today(call: &Call) -> Result<ArrayRef> {
    Ok(Arc::new(Date32Array::from_value(local_ms(call)?.div_euclid(86_400_000) as i32, call.rows)))
}

fn time_now(call: &Call) -> Result<ArrayRef> {
    // TIME is TIME(0) in Flink: whole seconds.
    let ms = local_ms(call)?.rem_euclid(86_400_000) as i32;
    Ok(Arc::new(Time32MillisecondArray::from_value(ms - ms % 1000, call.rows)))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_in, constants};

    #[test]
    fn text_to_moments() {
        check("to_timestamp", &["'2024-01-02 03:04:05.6789'"], "2024-01-02 03:04:05.678");
        check("to_timestamp", &["'2024-01-02'"], "2024-01-02 00:00:00.000");
        check("to_timestamp", &["'2024-01-02T03:04:05'"], "NULL");
        check("to_timestamp", &["'02.01.2024 03:04'", "'dd.MM.yyyy HH:mm'"], "2024-01-02 03:04:00.000");
        check("to_date", &["'2024-02-29'"], "2024-02-29");
        check("to_date", &["'20240229'", "'yyyyMMdd'"], "2024-02-29");
        check("to_date", &["'x'"], "NULL");
    }

    #[test]
    fn numbers_to_moments() {
        check("to_timestamp_ltz", &["1000", "0"], "1970-01-01 00:16:40.000");
        check("to_timestamp_ltz", &["1000", "3"], "1970-01-01 00:00:01.000");
        check("to_timestamp_ltz", &["1.5e0", "0"], "1970-01-01 00:00:01.500");
        check_in("Asia/Tokyo", "to_timestamp_ltz", &["0", "3"], "1970-01-01 09:00:00.000");
        check("to_timestamp_ltz", &["'1970-01-01 09:00:00'", "'yyyy-MM-dd HH:mm:ss'", "'Asia/Tokyo'"], "1970-01-01 00:00:00.000");
    }

    #[test]
    fn moments_to_text() {
        check("date_format", &["TIMESTAMP '2024-01-02 13:04:05.678'", "'yyyy/MM/dd hh:mm:ss.SSS a'"], "2024/01/02 01:04:05.678 PM");
        check("date_format", &["'2024-01-02 13:04:05'", "'HH'"], "13");
        check("date_format", &["'no date'", "'HH'"], "NULL");
        check_in("+05:30", "date_format", &["LTZ '2024-01-02 18:40:00'", "'yyyy-MM-dd HH'"], "2024-01-03 00");
        check_in("Europe/Berlin", "from_unixtime", &["0"], "1970-01-01 01:00:00");
        check("from_unixtime", &["86400", "'yyyyMMdd'"], "19700102");
        check_in("Europe/Berlin", "unix_timestamp", &["'1970-01-01 01:00:00'"], "0");
        check("unix_timestamp", &["'junk'"], "-9223372036854775808");
        check("convert_tz", &["'1970-01-01 00:00:00'", "'UTC'", "'America/Los_Angeles'"], "1969-12-31 16:00:00");
    }

    #[test]
    fn the_clock_is_read_once_a_call() {
        for name in ["now", "proctime", "localtimestamp", "current_date", "localtime", "unix_timestamp"] {
            assert!(constants(name, 3), "{name}");
        }
    }
}
