//! Fields of a moment, arithmetic with moments, rounding to a unit of time.

use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Int64Array, PrimitiveArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Int32Type, Int64Type, TimeUnit};
use datafusion_common::{Result, ScalarValue, exec_err};
use tidemill_block::value::{civil_from_days, days_from_civil, units_per_second};

use super::define::{Call, Def, Param::*, Returns, build, def, type_name};
use super::moment::{Local, Moments, Unit, months_between};

/// The functions of this theme.
pub(super) const FUNCTIONS: &[Def] = &[
    def("year", "YEAR(moment)", "The year", &[Moment], Returns::BigInt, |c| field(c, year, DAY_S)),
    def("quarter", "QUARTER(moment)", "The quarter, 1 to 4", &[Moment], Returns::BigInt, |c| field(c, quarter, DAY_S)),
    def("month", "MONTH(moment)", "The month, 1 to 12", &[Moment], Returns::BigInt, |c| field(c, month, DAY_S)),
    def("week", "WEEK(moment)", "The ISO week, 1 to 53", &[Moment], Returns::BigInt, |c| field(c, week, DAY_S)),
    def("dayofyear", "DAYOFYEAR(moment)", "The day of the year, 1 to 366", &[Moment], Returns::BigInt, |c| field(c, day_of_year, DAY_S)),
    def("dayofmonth", "DAYOFMONTH(moment)", "The day of the month, 1 to 31", &[Moment], Returns::BigInt, |c| field(c, day_of_month, DAY_S))
        .alias(&["day"]),
    def("dayofweek", "DAYOFWEEK(moment)", "The day of the week, 1 (Sunday) to 7", &[Moment], Returns::BigInt, |c| {
        field(c, day_of_week, DAY_S)
    }),
    def("hour", "HOUR(moment)", "The hour, 0 to 23", &[Moment], Returns::BigInt, |c| field(c, hour, 3_600)),
    def("minute", "MINUTE(moment)", "The minute, 0 to 59", &[Moment], Returns::BigInt, |c| field(c, minute, 60)),
    def("second", "SECOND(moment)", "The second, 0 to 59", &[Moment], Returns::BigInt, |c| field(c, second, 1)),
    def(
        "extract",
        "EXTRACT(unit FROM moment), as a function ('unit', moment)",
        "A field of a moment: YEAR, DOW, EPOCH, …",
        &[Text, Moment],
        Returns::BigInt,
        extract,
    ),
    def(
        "timestampadd",
        "TIMESTAMPADD(unit, count, moment)",
        "The moment so many units later",
        &[Text, Int, Moment],
        Returns::With(added),
        timestampadd,
    ),
    def(
        "timestampdiff",
        "TIMESTAMPDIFF(unit, from, to)",
        "Whole units from one moment to another",
        &[Text, Moment, Moment],
        Returns::Int,
        timestampdiff,
    ),
    def(
        "floor_time",
        "FLOOR(moment TO unit), as a function (moment, 'unit')",
        "The start of the unit in which the moment lies",
        &[Moment, Text],
        Returns::With(rounded),
        |c| round(c, false),
    ),
    def(
        "ceil_time",
        "CEIL(moment TO unit), as a function (moment, 'unit')",
        "The first start of the unit at or after the moment",
        &[Moment, Text],
        Returns::With(rounded),
        |c| round(c, true),
    ),
];

/// Seconds of a day.
const DAY_S: i64 = 86_400;

/// A field that is the same for so many seconds.
fn field(call: &Call, of: fn(Local) -> i64, seconds: i64) -> Result<ArrayRef> {
    let moments = call.moment(0)?;
    let Some(mut span) = moments.spans(seconds) else { return build::<Int64Type>(call.rows, |r| moments.local(r).map(of)) };
    let mut last = 0;
    build::<Int64Type>(call.rows, |r| {
        if !span.stays(moments.raw(r)?) {
            last = of(moments.local(r)?);
        }
        Some(last)
    })
}

fn year(l: Local) -> i64 {
    civil_from_days(l.day()).0
}

fn quarter(l: Local) -> i64 {
    (month(l) - 1) / 3 + 1
}

fn month(l: Local) -> i64 {
    civil_from_days(l.day()).1 as i64
}

fn day_of_month(l: Local) -> i64 {
    civil_from_days(l.day()).2 as i64
}

fn day_of_year(l: Local) -> i64 {
    l.day() - days_from_civil(year(l), 1, 1) + 1
}

/// 1 (Sunday) to 7.
fn day_of_week(l: Local) -> i64 {
    (l.day() + 4).rem_euclid(7) + 1
}

/// 1 (Monday) to 7.
fn iso_day_of_week(l: Local) -> i64 {
    (l.day() + 3).rem_euclid(7) + 1
}

/// The Thursday of the ISO week decides to which year the week belongs.
fn iso_thursday(l: Local) -> Local {
    Local { second: (l.day() - iso_day_of_week(l) + 4) * 86_400, nano: 0 }
}

fn week(l: Local) -> i64 {
    (day_of_year(iso_thursday(l)) - 1) / 7 + 1
}

fn hour(l: Local) -> i64 {
    l.second_of_day() as i64 / 3600
}

fn minute(l: Local) -> i64 {
    l.second_of_day() as i64 / 60 % 60
}

fn second(l: Local) -> i64 {
    l.second_of_day() as i64 % 60
}

fn extract(call: &Call) -> Result<ArrayRef> {
    let Some(unit) = call.word(0)? else { return build::<Int64Type>(call.rows, |_| None) };
    let moments = call.moment(1)?;
    let of: fn(Local) -> i64 = match unit.to_ascii_uppercase().as_str() {
        "MILLENNIUM" => |l| (year(l) + 999).div_euclid(1000),
        "CENTURY" => |l| (year(l) + 99).div_euclid(100),
        "DECADE" => |l| year(l).div_euclid(10),
        "YEAR" => year,
        "ISOYEAR" => |l| year(iso_thursday(l)),
        "QUARTER" => quarter,
        "MONTH" => month,
        "WEEK" => week,
        "DAY" | "DAYOFMONTH" => day_of_month,
        "DOW" | "DAYOFWEEK" => day_of_week,
        "ISODOW" => iso_day_of_week,
        "DOY" | "DAYOFYEAR" => day_of_year,
        "HOUR" => hour,
        "MINUTE" => minute,
        "SECOND" => second,
        "MILLISECOND" => |l| second(l) * 1_000 + l.nano as i64 / 1_000_000,
        "MICROSECOND" => |l| second(l) * 1_000_000 + l.nano as i64 / 1_000,
        "NANOSECOND" => |l| second(l) * 1_000_000_000 + l.nano as i64,
        "EPOCH" => {
            let per_second = units_per_second(moments.unit);
            return build::<Int64Type>(call.rows, |r| moments.raw(r).map(|v| v.div_euclid(per_second)));
        }
        _ => {
            return exec_err!(
                "EXTRACT knows no field '{unit}'; there are YEAR, QUARTER, MONTH, WEEK, DAY, DOW, DOY, HOUR, MINUTE, SECOND, EPOCH"
            );
        }
    };
    build::<Int64Type>(call.rows, |r| moments.local(r).map(of))
}

/// The type of a moment once it has been moved or rounded: text becomes TIMESTAMP(3).
fn moment_type(t: &DataType) -> DataType {
    match t {
        DataType::Utf8 | DataType::Time32(_) => DataType::Timestamp(TimeUnit::Millisecond, None),
        other => other.clone(),
    }
}

fn added(types: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    let by_days = match constants.first() {
        Some(Some(ScalarValue::Utf8(Some(unit)))) => Unit::parse(unit)?.of_days(),
        _ => true,
    };
    Ok(match &types[2] {
        DataType::Date32 if !by_days => DataType::Timestamp(TimeUnit::Millisecond, None),
        other => moment_type(other),
    })
}

fn rounded(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(moment_type(&types[0]))
}

/// A column of local times as the type the call returns.
fn moments_of(call: &Call, moments: &Moments, of: impl Fn(usize) -> Option<Local>) -> Result<ArrayRef> {
    let DataType::Timestamp(unit, tz) = call.returns else {
        if *call.returns != DataType::Date32 {
            return exec_err!("{} gives no {}", call.name(), type_name(call.returns));
        }
        let days: Date32Array = (0..call.rows).map(|r| i32::try_from(of(r)?.day()).ok()).collect();
        return Ok(Arc::new(days));
    };
    let values: Int64Array = if *unit == moments.unit {
        (0..call.rows).map(|r| moments.raw_of(of(r)?)).collect()
    } else {
        let per_second = units_per_second(*unit);
        let value = |r| {
            let l: Local = of(r)?;
            l.second.checked_mul(per_second)?.checked_add(l.nano as i64 / (1_000_000_000 / per_second))
        };
        (0..call.rows).map(value).collect()
    };
    Ok(timestamps(values, *unit, tz.as_ref()))
}

/// Epoch values as a timestamp column.
pub(super) fn timestamps(values: Int64Array, unit: TimeUnit, tz: Option<&Arc<str>>) -> ArrayRef {
    use arrow::datatypes::{TimestampMicrosecondType, TimestampNanosecondType, TimestampSecondType};
    match unit {
        TimeUnit::Second => Arc::new(values.reinterpret_cast::<TimestampSecondType>().with_timezone_opt(tz.cloned())),
        TimeUnit::Millisecond => {
            let values: TimestampMillisecondArray = values.reinterpret_cast();
            Arc::new(values.with_timezone_opt(tz.cloned()))
        }
        TimeUnit::Microsecond => Arc::new(values.reinterpret_cast::<TimestampMicrosecondType>().with_timezone_opt(tz.cloned())),
        TimeUnit::Nanosecond => Arc::new(values.reinterpret_cast::<TimestampNanosecondType>().with_timezone_opt(tz.cloned())),
    }
}

fn unit_at(call: &Call, position: usize) -> Result<Unit> {
    match call.word(position)? {
        Some(unit) => Unit::parse(&unit),
        None => exec_err!("{} needs a unit of time, not NULL", call.name()),
    }
}

fn timestampadd(call: &Call) -> Result<ArrayRef> {
    let (unit, counts, moments) = (unit_at(call, 0)?, call.int(1)?, call.moment(2)?);
    moments_of(call, &moments, |r| unit.add(moments.local(r)?, counts.get(r)?))
}

fn timestampdiff(call: &Call) -> Result<ArrayRef> {
    let (unit, from, to) = (unit_at(call, 0)?, call.moment(1)?, call.moment(2)?);
    let nanos = match unit {
        Unit::Nanos(nanos) => nanos as i128,
        Unit::Day => 86_400_000_000_000,
        Unit::Week => 7 * 86_400_000_000_000,
        Unit::Months(months) => {
            let of = |r| Some((months_between(from.local(r)?, to.local(r)?) / months) as i32);
            return Ok(Arc::new((0..call.rows).map(of).collect::<PrimitiveArray<Int32Type>>()));
        }
    };
    // Two moments of the epoch differ by what lies between them, whatever the clocks did. If one of
    // the two is local time, both are compared on the local clock.
    let on_epoch = from.clock.is_some() && to.clock.is_some();
    let total = |m: &Moments, r: usize| -> Option<i128> {
        if on_epoch {
            return Some(m.raw(r)? as i128 * (1_000_000_000 / units_per_second(m.unit)) as i128);
        }
        m.local(r).map(|l| l.second as i128 * 1_000_000_000 + l.nano as i128)
    };
    build::<Int32Type>(call.rows, |r| Some(((total(&to, r)? - total(&from, r)?) / nanos) as i32))
}

fn round(call: &Call, up: bool) -> Result<ArrayRef> {
    let (moments, unit) = (call.moment(0)?, unit_at(call, 1)?);
    moments_of(call, &moments, |r| {
        let local = moments.local(r)?;
        let floor = unit.floor(local);
        if up && floor != local { unit.add(floor, 1) } else { Some(floor) }
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_in};

    const MOMENT: &str = "TIMESTAMP '2024-12-30 23:59:58.123'";

    #[test]
    fn fields() {
        for (name, expect) in [
            ("year", "2024"),
            ("quarter", "4"),
            ("month", "12"),
            ("week", "1"),
            ("dayofyear", "365"),
            ("dayofmonth", "30"),
            ("dayofweek", "2"),
            ("hour", "23"),
            ("minute", "59"),
            ("second", "58"),
        ] {
            check(name, &[MOMENT], expect);
        }
        check("extract", &["'ISOYEAR'", MOMENT], "2025");
        check("extract", &["'MILLISECOND'", MOMENT], "58123");
        check("extract", &["'EPOCH'", MOMENT], "1735603198");
        check("year", &["DATE '2024-12-30'"], "2024");
        check_in("Asia/Tokyo", "hour", &["LTZ '2024-12-30 23:59:58'"], "8");
    }

    #[test]
    fn arithmetic() {
        check("timestampadd", &["'MONTH'", "2", MOMENT], "2025-02-28 23:59:58.123");
        check("timestampadd", &["'HOUR'", "-24", MOMENT], "2024-12-29 23:59:58.123");
        check("timestampadd", &["'DAY'", "2", "DATE '2024-12-30'"], "2025-01-01");
        check("timestampadd", &["'HOUR'", "1", "DATE '2024-12-30'"], "2024-12-30 01:00:00.000");
        check("timestampdiff", &["'SECOND'", "TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP '2024-01-01 00:01:00.9'"], "60");
        check("timestampdiff", &["'DAY'", "DATE '2024-03-01'", "DATE '2024-02-28'"], "-2");
        check("timestampdiff", &["'YEAR'", "TIMESTAMP '2020-02-29 00:00:00'", MOMENT], "4");
    }

    #[test]
    fn rounding() {
        check("floor_time", &[MOMENT, "'HOUR'"], "2024-12-30 23:00:00.000");
        check("ceil_time", &[MOMENT, "'MONTH'"], "2025-01-01 00:00:00.000");
        check("ceil_time", &["TIMESTAMP '2024-01-01 00:00:00'", "'YEAR'"], "2024-01-01 00:00:00.000");
        check("floor_time", &["DATE '2024-12-30'", "'YEAR'"], "2024-01-01");
        check_in("Asia/Tokyo", "floor_time", &["LTZ '2024-12-30 23:59:58'", "'DAY'"], "2024-12-31 00:00:00.000");
    }
}
