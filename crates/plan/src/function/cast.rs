//! Casts where Flink's differ from Arrow's: to and from text, narrowing numbers, time zones.
//!
//! `flink_cast_string(x)` is CAST(x AS STRING). `flink_cast(x, 'TYPE')` fails on a value that is not
//! of the type, `flink_try_cast(x, 'TYPE')` gives NULL instead. The text forms of single values live
//! in the block crate's `value` module.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BooleanArray, Decimal128Array, Int64Array, PrimitiveArray, StringArray,
};
use arrow::compute::{CastOptions, cast_with_options, is_not_null, or_kleene};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType,
    IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType, Time32MillisecondType, TimeUnit,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_common::{Result, ScalarValue, exec_err, plan_err};
use tidemill_block::value::{
    self, fraction_digits, parse_date, parse_decimal, parse_time_ms, units_per_second, write_date, write_decimal, write_f32, write_f64,
    write_i64, write_padded, write_time_ms, write_timestamp,
};

use super::calendar::timestamps;
use super::define::{Call, Def, Param::*, Returns, build, build_binary, build_bool, build_text, def, ltz, type_name};
use super::moment::{Local, Moments, as_int64, parse_plain};
use super::zone::{Zone, ZoneClock};

/// The functions of this theme.
pub(super) const FUNCTIONS: &[Def] = &[
    def("flink_cast_string", "CAST(x AS STRING)", "Any value as text", &[Any], Returns::Text, to_text_call),
    def(
        "flink_cast",
        "CAST(x AS type), as a function (x, 'type')",
        "The value in another type; a text that is not of the type is an error",
        &[Any, Text],
        Returns::With(target),
        |c| cast_call(c, false),
    ),
    def(
        "flink_try_cast",
        "TRY_CAST(x AS type), as a function (x, 'type')",
        "The value in another type; NULL for a text that is not of the type",
        &[Any, Text],
        Returns::With(target),
        |c| cast_call(c, true),
    ),
];

/// Writes the values of an array as CAST to STRING does.
pub(super) enum TextWriter<'a> {
    Null,
    Boolean(&'a BooleanArray),
    Text(&'a StringArray),
    Bytes(&'a BinaryArray),
    Integer(Int64Array),
    Float(&'a PrimitiveArray<Float32Type>),
    Double(&'a PrimitiveArray<Float64Type>),
    Decimal(&'a Decimal128Array, i8),
    Date(&'a PrimitiveArray<Date32Type>),
    Time(&'a PrimitiveArray<Time32MillisecondType>),
    Timestamp(Int64Array, TimeUnit, Option<ZoneClock>),
    Months(&'a PrimitiveArray<IntervalYearMonthType>),
    DayTime(&'a PrimitiveArray<IntervalDayTimeType>),
    MonthDayNano(&'a PrimitiveArray<IntervalMonthDayNanoType>),
    List(&'a ArrayRef, Zone),
    Struct(Vec<(&'a ArrayRef, TextWriter<'a>)>),
    Map(&'a ArrayRef, Zone),
    Other(ArrayFormatter<'a>),
}

const NO_OPTIONS: FormatOptions<'static> = FormatOptions::new();

impl<'a> TextWriter<'a> {
    pub(super) fn new(array: &'a ArrayRef, zone: Zone) -> Result<Self> {
        Ok(match array.data_type() {
            DataType::Null => TextWriter::Null,
            DataType::Boolean => TextWriter::Boolean(array.as_boolean()),
            DataType::Utf8 => TextWriter::Text(array.as_string()),
            DataType::Binary => TextWriter::Bytes(array.as_binary()),
            DataType::Float32 => TextWriter::Float(array.as_primitive()),
            DataType::Float64 => TextWriter::Double(array.as_primitive()),
            DataType::Decimal128(_, scale) => TextWriter::Decimal(array.as_primitive(), *scale),
            DataType::Date32 => TextWriter::Date(array.as_primitive()),
            DataType::Time32(TimeUnit::Millisecond) => TextWriter::Time(array.as_primitive()),
            DataType::Timestamp(unit, tz) => TextWriter::Timestamp(as_int64(array), *unit, tz.as_ref().map(|_| zone.clock())),
            DataType::Interval(IntervalUnit::YearMonth) => TextWriter::Months(array.as_primitive()),
            DataType::Interval(IntervalUnit::DayTime) => TextWriter::DayTime(array.as_primitive()),
            DataType::Interval(IntervalUnit::MonthDayNano) => TextWriter::MonthDayNano(array.as_primitive()),
            DataType::List(_) => TextWriter::List(array, zone),
            DataType::Map(..) => TextWriter::Map(array, zone),
            DataType::Struct(_) => {
                let columns = array.as_struct().columns().iter();
                TextWriter::Struct(columns.map(|c| Ok((c, TextWriter::new(c, zone)?))).collect::<Result<_>>()?)
            }
            t if t.is_signed_integer() => {
                TextWriter::Integer(arrow::compute::cast(array, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
            }
            _ => TextWriter::Other(ArrayFormatter::try_new(array.as_ref(), &NO_OPTIONS)?),
        })
    }

    /// Appends the value of a row that is not NULL.
    #[inline]
    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) {
        match self {
            TextWriter::Null => out.extend_from_slice(b"NULL"),
            TextWriter::Boolean(a) => out.extend_from_slice(if a.value(row) { b"TRUE" } else { b"FALSE" }),
            TextWriter::Text(a) => out.extend_from_slice(a.value(row).as_bytes()),
            TextWriter::Bytes(a) => out.extend_from_slice(String::from_utf8_lossy(a.value(row)).as_bytes()),
            TextWriter::Integer(a) => write_i64(out, a.value(row)),
            TextWriter::Float(a) => write_f32(out, a.value(row)),
            TextWriter::Double(a) => write_f64(out, a.value(row)),
            TextWriter::Decimal(a, scale) => write_decimal(out, a.value(row), *scale),
            TextWriter::Date(a) => write_date(out, a.value(row)),
            TextWriter::Time(a) => write_time_ms(out, a.value(row)),
            TextWriter::Timestamp(a, unit, clock) => {
                let v = a.value(row);
                let v = clock.as_ref().map_or(v, |c| {
                    let second = v.div_euclid(units_per_second(*unit));
                    v + (c.local(second) - second) * units_per_second(*unit)
                });
                write_timestamp(out, v, *unit, fraction_digits(*unit));
            }
            TextWriter::Months(a) => write_months(out, a.value(row)),
            TextWriter::DayTime(a) => {
                let v = a.value(row);
                write_duration(out, v.days as i64 * value::DAY_MS + v.milliseconds as i64);
            }
            TextWriter::MonthDayNano(a) => {
                let v = a.value(row);
                if v.months != 0 {
                    write_months(out, v.months);
                } else {
                    write_duration(out, v.days as i64 * value::DAY_MS + v.nanoseconds / 1_000_000);
                }
            }
            TextWriter::List(a, zone) => {
                let items = a.as_list::<i32>().value(row);
                out.push(b'[');
                write_items(&items, *zone, out);
                out.push(b']');
            }
            TextWriter::Struct(columns) => {
                out.push(b'(');
                for (i, (column, writer)) in columns.iter().enumerate() {
                    if i > 0 {
                        out.extend_from_slice(b", ");
                    }
                    if column.is_null(row) { out.extend_from_slice(b"NULL") } else { writer.write(row, out) }
                }
                out.push(b')');
            }
            TextWriter::Map(a, zone) => {
                let entries = a.as_map().value(row);
                let columns = entries.columns();
                let writers: Vec<_> = columns.iter().filter_map(|c| TextWriter::new(c, *zone).ok()).collect();
                out.push(b'{');
                for i in 0..entries.len() {
                    if i > 0 {
                        out.extend_from_slice(b", ");
                    }
                    for (j, (column, writer)) in columns.iter().zip(&writers).enumerate() {
                        if j > 0 {
                            out.push(b'=');
                        }
                        if column.is_null(i) { out.extend_from_slice(b"NULL") } else { writer.write(i, out) }
                    }
                }
                out.push(b'}');
            }
            TextWriter::Other(formatter) => out.extend_from_slice(formatter.value(row).to_string().as_bytes()),
        }
    }
}

fn write_items(items: &ArrayRef, zone: Zone, out: &mut Vec<u8>) {
    let Ok(writer) = TextWriter::new(items, zone) else { return };
    for i in 0..items.len() {
        if i > 0 {
            out.extend_from_slice(b", ");
        }
        if items.is_null(i) { out.extend_from_slice(b"NULL") } else { writer.write(i, out) }
    }
}

/// `+1-02`: years and months.
fn write_months(out: &mut Vec<u8>, months: i32) {
    out.push(if months < 0 { b'-' } else { b'+' });
    write_i64(out, (months.unsigned_abs() / 12) as i64);
    out.push(b'-');
    write_padded(out, (months.unsigned_abs() % 12) as u64, 2);
}

/// `+1 02:03:04.005`: days, hours, minutes, seconds.
fn write_duration(out: &mut Vec<u8>, ms: i64) {
    let size = ms.unsigned_abs();
    out.push(if ms < 0 { b'-' } else { b'+' });
    write_i64(out, (size / value::DAY_MS as u64) as i64);
    for (separator, part) in [(b' ', size / 3_600_000 % 24), (b':', size / 60_000 % 60), (b':', size / 1000 % 60)] {
        out.push(separator);
        write_padded(out, part, 2);
    }
    out.push(b'.');
    write_padded(out, size % 1000, 3);
}

/// A column as text.
pub(super) fn to_text(array: &ArrayRef, zone: Zone) -> Result<ArrayRef> {
    if *array.data_type() == DataType::Utf8 {
        return Ok(array.clone());
    }
    if *array.data_type() == DataType::Null {
        return Ok(arrow::array::new_null_array(&DataType::Utf8, array.len()));
    }
    let writer = TextWriter::new(array, zone)?;
    build_text(array.len(), |r, out| {
        if array.is_null(r) {
            return None;
        }
        writer.write(r, out);
        Some(())
    })
}

fn to_text_call(call: &Call) -> Result<ArrayRef> {
    let arg = call.arg(0)?;
    match arg.array.data_type() {
        DataType::Utf8View | DataType::LargeUtf8 => Ok(arrow::compute::cast(&arg.array, &DataType::Utf8)?),
        _ => to_text(&arg.array, call.zone()?),
    }
}

/// What a type name says beyond the Arrow type.
#[derive(Clone, Debug, PartialEq)]
struct Target {
    data_type: DataType,
    /// Characters (or bytes) that the value may have.
    length: Option<usize>,
    /// Whether shorter texts are filled up with blanks.
    fixed: bool,
}

/// Reads `INT`, `DECIMAL(10, 2)`, `VARCHAR(20)`, `TIMESTAMP_LTZ(3)`, `TIMESTAMP(3) WITH LOCAL TIME ZONE`, …
fn parse_type(text: &str) -> Result<Target> {
    let upper = text.trim().to_ascii_uppercase();
    let (name, numbers, suffix) = match upper.split_once('(') {
        Some((name, rest)) => match rest.split_once(')') {
            Some((numbers, suffix)) => (name.trim(), numbers, suffix.trim()),
            None => return plan_err!("the type '{text}' has a bracket that is not closed"),
        },
        None => (upper.as_str(), "", ""),
    };
    let numbers: Vec<u32> = numbers.split(',').filter_map(|n| n.trim().parse().ok()).collect();
    let at = |i: usize, default: u32| numbers.get(i).copied().unwrap_or(default);
    let unit = |digits: u32| match digits {
        0..=3 => TimeUnit::Millisecond,
        4..=6 => TimeUnit::Microsecond,
        _ => TimeUnit::Nanosecond,
    };
    let whole = format!("{name} {suffix}");
    let mut target = Target { data_type: DataType::Null, length: None, fixed: false };
    target.data_type = match whole.trim() {
        "BOOLEAN" => DataType::Boolean,
        "TINYINT" => DataType::Int8,
        "SMALLINT" => DataType::Int16,
        "INT" | "INTEGER" => DataType::Int32,
        "BIGINT" => DataType::Int64,
        "FLOAT" | "REAL" => DataType::Float32,
        "DOUBLE" | "DOUBLE PRECISION" => DataType::Float64,
        "DECIMAL" | "DEC" | "NUMERIC" if at(0, 10) <= 38 && at(1, 0) <= at(0, 10) => DataType::Decimal128(at(0, 10) as u8, at(1, 0) as i8),
        "STRING" => DataType::Utf8,
        "VARCHAR" | "CHAR" | "CHARACTER" => {
            target.fixed = name != "VARCHAR";
            target.length = numbers.first().map(|n| *n as usize).or(Some(1));
            DataType::Utf8
        }
        "BYTES" => DataType::Binary,
        "VARBINARY" | "BINARY" => {
            target.length = numbers.first().map(|n| *n as usize).or(Some(1));
            DataType::Binary
        }
        "DATE" => DataType::Date32,
        "TIME" | "TIME WITHOUT TIME ZONE" => DataType::Time32(TimeUnit::Millisecond),
        "TIMESTAMP" | "TIMESTAMP WITHOUT TIME ZONE" => DataType::Timestamp(unit(at(0, 6)), None),
        "TIMESTAMP_LTZ" | "TIMESTAMP WITH LOCAL TIME ZONE" => ltz(unit(at(0, 6))),
        _ => return plan_err!("cannot cast to the type '{text}'"),
    };
    Ok(target)
}

fn target(_: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    match constants.get(1) {
        Some(Some(ScalarValue::Utf8(Some(name)) | ScalarValue::Utf8View(Some(name)))) => Ok(parse_type(name)?.data_type),
        _ => plan_err!("the type of a cast has to be a literal"),
    }
}

fn cast_call(call: &Call, lenient: bool) -> Result<ArrayRef> {
    let Some(name) = call.word(1)? else { return plan_err!("the type of a cast is NULL") };
    let target = parse_type(&name)?;
    let arg = call.arg(0)?;
    // The conversion sees a constant once; there are as many values as rows in either case.
    let from = match arg.array.data_type() {
        DataType::Utf8View | DataType::LargeUtf8 => arrow::compute::cast(&arg.array, &DataType::Utf8)?,
        _ => arg.array.clone(),
    };
    let result = convert(&from, &target, call.zone()?)?;
    let lost = matches!(from.data_type(), DataType::Utf8) && !lenient && result.null_count() > from.null_count();
    if lost {
        refuse(from.as_string(), &result, &target, &name)?;
    }
    if arg.is_constant() && call.rows != result.len() {
        let one = ScalarValue::try_from_array(&result, 0)?;
        return one.to_array_of_size(call.rows);
    }
    Ok(result)
}

/// Fails for the first text that gave NULL, save for decimals that merely have too many digits:
/// those are NULL in Flink too.
fn refuse(texts: &StringArray, result: &ArrayRef, target: &Target, name: &str) -> Result<()> {
    let fine = or_kleene(&is_not_null(result)?, &arrow::compute::is_null(texts)?)?;
    let decimal = matches!(target.data_type, DataType::Decimal128(..));
    for (i, text) in texts.iter().enumerate().filter(|(i, _)| !fine.value(*i)) {
        let text = text.unwrap_or_default();
        if decimal && parse_double(text).is_some() {
            continue;
        }
        return exec_err!(
            "cannot cast '{text}' to {} (value {} of the block); TRY_CAST gives NULL instead",
            name.trim().to_ascii_uppercase(),
            i + 1
        );
    }
    Ok(())
}

fn convert(from: &ArrayRef, target: &Target, zone: Zone) -> Result<ArrayRef> {
    use DataType::*;
    let to = &target.data_type;
    Ok(match (from.data_type(), to) {
        (Null, _) => arrow::array::new_null_array(to, from.len()),
        (_, Utf8) => sized_text(to_text(from, zone)?, target)?,
        (_, Binary) => {
            let bytes = arrow::compute::cast(from, &Binary)?;
            sized_bytes(bytes, target)?
        }
        (a, b) if a == b => from.clone(),
        (Utf8, _) => from_text(from.as_string(), to, zone)?,
        (Timestamp(unit, Some(_)), Timestamp(_, None) | Date32 | Time32(_)) => {
            let moments = Moments::new(from, usize::MAX, zone)?;
            let per_second = units_per_second(*unit);
            let local = |r| {
                let l: Local = moments.local(r)?;
                l.second.checked_mul(per_second)?.checked_add(l.nano as i64 / (1_000_000_000 / per_second))
            };
            let local = timestamps((0..from.len()).map(local).collect(), *unit, None);
            convert(&local, target, zone)?
        }
        (Timestamp(_, None) | Date32, Timestamp(unit, Some(_))) => {
            let moments = Moments::new(from, usize::MAX, zone)?;
            let per_second = units_per_second(*unit);
            let epoch = |r| {
                let l: Local = moments.local(r)?;
                zone.epoch_of(l.second).checked_mul(per_second)?.checked_add(l.nano as i64 / (1_000_000_000 / per_second))
            };
            timestamps((0..from.len()).map(epoch).collect(), *unit, Some(&Arc::from("UTC")))
        }
        (Timestamp(unit, None), Time32(_)) => {
            let per_ms = units_per_second(*unit) / 1000;
            let values = as_int64(from);
            build::<Time32MillisecondType>(from.len(), |r| {
                values.is_valid(r).then(|| (values.value(r).div_euclid(per_ms.max(1)).rem_euclid(value::DAY_MS)) as i32)
            })?
        }
        (Boolean, t) if t.is_numeric() => arrow::compute::cast(from, to)?,
        (a, Boolean) if a.is_numeric() => {
            let doubles = arrow::compute::cast(from, &Float64)?;
            let doubles = doubles.as_primitive::<Float64Type>();
            build_bool(from.len(), |r| doubles.is_valid(r).then(|| doubles.value(r) != 0.0))?
        }
        (a, t) if a.is_numeric() && t.is_integer() => narrowed(from, to)?,
        // What does not fit into a decimal is NULL.
        _ => match cast_with_options(from, to, &CastOptions { safe: true, ..Default::default() }) {
            Ok(array) => array,
            Err(_) => return plan_err!("cannot cast {} to {}", type_name(from.data_type()), type_name(to)),
        },
    })
}

/// Numbers as integers, as Java has it: a fraction is cut off, a DOUBLE beyond the range becomes the
/// nearest end of it, an integer beyond the range wraps around.
fn narrowed(from: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    fn numbers<T: ArrowPrimitiveType>(
        from: &ArrayRef,
        wrap: impl Fn(i64) -> T::Native,
        clamp: impl Fn(f64) -> T::Native,
    ) -> Result<ArrayRef> {
        Ok(match from.data_type() {
            DataType::Float32 => Arc::new(from.as_primitive::<Float32Type>().unary::<_, T>(|v| clamp(v as f64))),
            DataType::Float64 => Arc::new(from.as_primitive::<Float64Type>().unary::<_, T>(clamp)),
            DataType::Decimal128(_, scale) => {
                let one = 10i128.pow((*scale).max(0) as u32);
                Arc::new(from.as_primitive::<Decimal128Type>().unary::<_, T>(|v| wrap((v / one) as i64)))
            }
            _ => {
                let wide = arrow::compute::cast(from, &DataType::Int64)?;
                Arc::new(wide.as_primitive::<Int64Type>().unary::<_, T>(wrap))
            }
        })
    }
    match to {
        // Java has no direct way from a DOUBLE to the small types: it goes through INT.
        DataType::Int8 => numbers::<Int8Type>(from, |v| v as i8, |v| v as i32 as i8),
        DataType::Int16 => numbers::<Int16Type>(from, |v| v as i16, |v| v as i32 as i16),
        DataType::Int32 => numbers::<Int32Type>(from, |v| v as i32, |v| v as i32),
        DataType::Int64 => numbers::<Int64Type>(from, |v| v, |v| v as i64),
        other => plan_err!("cannot cast {} to {}", type_name(from.data_type()), type_name(other)),
    }
}

fn sized_text(texts: ArrayRef, target: &Target) -> Result<ArrayRef> {
    let Some(length) = target.length else { return Ok(texts) };
    let texts = texts.as_string::<i32>();
    build_text(texts.len(), |r, out| {
        if texts.is_null(r) {
            return None;
        }
        let text = texts.value(r);
        let end = text.char_indices().nth(length).map_or(text.len(), |(i, _)| i);
        out.extend_from_slice(&text.as_bytes()[..end]);
        if target.fixed {
            let missing = length.saturating_sub(text.chars().count());
            out.extend(std::iter::repeat_n(b' ', missing));
        }
        Some(())
    })
}

fn sized_bytes(bytes: ArrayRef, target: &Target) -> Result<ArrayRef> {
    let Some(length) = target.length else { return Ok(bytes) };
    let bytes = bytes.as_binary::<i32>();
    build_binary(bytes.len(), |r, out| {
        let value = bytes.is_valid(r).then(|| bytes.value(r))?;
        out.extend_from_slice(&value[..value.len().min(length)]);
        Some(())
    })
}

fn from_text(texts: &StringArray, to: &DataType, zone: Zone) -> Result<ArrayRef> {
    let rows = texts.len();
    let text = |r: usize| texts.is_valid(r).then(|| texts.value(r).trim_ascii());
    Ok(match to {
        DataType::Boolean => build_bool(rows, |r| parse_bool(text(r)?))?,
        DataType::Int8 => build::<Int8Type>(rows, |r| parse_int(text(r)?)?.try_into().ok())?,
        DataType::Int16 => build::<Int16Type>(rows, |r| parse_int(text(r)?)?.try_into().ok())?,
        DataType::Int32 => build::<Int32Type>(rows, |r| parse_int(text(r)?)?.try_into().ok())?,
        DataType::Int64 => build::<Int64Type>(rows, |r| parse_int(text(r)?))?,
        DataType::Float32 => build::<Float32Type>(rows, |r| {
            let text = text(r)?;
            // Not by way of a double, which would round twice.
            parse_double(text).map(|wide| text.parse().unwrap_or(wide as f32))
        })?,
        DataType::Float64 => build::<Float64Type>(rows, |r| parse_double(text(r)?))?,
        DataType::Decimal128(p, s) => {
            let values: Decimal128Array = (0..rows).map(|r| parse_decimal(text(r)?.as_bytes(), *p, *s)).collect();
            Arc::new(values.with_precision_and_scale(*p, *s)?)
        }
        DataType::Date32 => build::<Date32Type>(rows, |r| {
            let text = text(r)?;
            // A timestamp is a date with something behind it.
            parse_date(text.as_bytes()).or_else(|| Some(parse_plain(text, TimeUnit::Second)?.div_euclid(86_400) as i32))
        })?,
        DataType::Time32(_) => build::<Time32MillisecondType>(rows, |r| {
            let text = text(r)?;
            parse_time_ms(text.as_bytes()).or_else(|| Some(parse_plain(text, TimeUnit::Millisecond)?.rem_euclid(value::DAY_MS) as i32))
        })?,
        DataType::Timestamp(unit, tz) => {
            let per_second = units_per_second(*unit);
            let values: Int64Array = (0..rows)
                .map(|r| {
                    let local = parse_plain(text(r)?, *unit)?;
                    if tz.is_none() {
                        return Some(local);
                    }
                    zone.epoch_of(local.div_euclid(per_second)).checked_mul(per_second)?.checked_add(local.rem_euclid(per_second))
                })
                .collect();
            timestamps(values, *unit, tz.as_ref())
        }
        other => return plan_err!("cannot cast STRING to {}", type_name(other)),
    })
}

/// Reads an integer; a fraction behind it is checked and dropped.
fn parse_int(text: &str) -> Option<i64> {
    if let Ok(v) = text.parse() {
        return Some(v);
    }
    let (whole, fraction) = text.split_once('.')?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) || matches!(whole, "" | "-" | "+") && fraction.is_empty() {
        return None;
    }
    match whole {
        "" | "-" | "+" => Some(0),
        _ => whole.parse().ok(),
    }
}

/// Reads a number as Java does: `1.5e3`, `-.5`, `NaN`, `Infinity`, blanks around it.
pub(super) fn parse_double(text: &str) -> Option<f64> {
    let text = text.trim_ascii();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    match digits.as_bytes().first()? {
        b'0'..=b'9' | b'.' => text.parse().ok().or_else(|| text.strip_suffix(['d', 'D', 'f', 'F'])?.parse().ok()),
        _ if matches!(digits, "NaN" | "Infinity") => text.parse().ok(),
        _ => None,
    }
}

/// Reads a truth value: `true`, `t`, `yes`, `y`, `1` and their opposites, in any case.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    let is = |words: &[&str]| words.iter().any(|w| text.eq_ignore_ascii_case(w));
    if is(&["true", "t", "yes", "y", "1"]) { Some(true) } else { is(&["false", "f", "no", "n", "0"]).then_some(false) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_in, failure};

    #[test]
    fn text_forms() {
        check("flink_cast_string", &["TRUE"], "TRUE");
        check("flink_cast_string", &["1e10"], "1.0E10");
        check("flink_cast_string", &["-12"], "-12");
        check("flink_cast_string", &["12.50"], "12.50");
        check("flink_cast_string", &["TIMESTAMP '2024-01-02 03:04:05'"], "2024-01-02 03:04:05.000");
        check("flink_cast_string", &["DATE '2024-01-02'"], "2024-01-02");
        check("flink_cast_string", &["NULL"], "NULL");
        check_in("America/New_York", "flink_cast_string", &["LTZ '2024-07-01 00:00:00'"], "2024-06-30 20:00:00.000");
    }

    #[test]
    fn from_text() {
        #[track_caller]
        fn cast(text: &str, to: &str, expect: &str) {
            check("flink_try_cast", &[&format!("'{text}'"), &format!("'{to}'")], expect);
        }
        cast(" 12 ", "INT", "12");
        cast("12.7", "BIGINT", "12");
        cast("-.7", "INT", "0");
        cast("3000000000", "INT", "NULL");
        cast("x", "INT", "NULL");
        cast("yes", "BOOLEAN", "TRUE");
        cast("maybe", "BOOLEAN", "NULL");
        cast(" 1e3", "DOUBLE", "1000.0");
        cast("inf", "DOUBLE", "NULL");
        cast("1.005", "DECIMAL(10, 2)", "1.01");
        cast("2024-01-02", "TIMESTAMP(3)", "2024-01-02 00:00:00.000");
        cast("2024-01-02 03:04:05.123456", "TIMESTAMP", "2024-01-02 03:04:05.123456");
        cast("2024-01-02T00:00:00Z", "TIMESTAMP_LTZ(3)", "NULL");
        cast("2024-01-02 10:00:00", "DATE", "2024-01-02");
        cast("10:20:30", "TIME", "10:20:30");
        cast("abcdef", "VARCHAR(3)", "abc");
        cast("ab", "CHAR(4)", "ab  ");
        assert!(failure("flink_cast", &["'x'", "'INT'"]).contains("cannot cast 'x' to INT"));
        assert!(failure("flink_cast", &["'1'", "'THING'"]).contains("THING"));
        check("flink_cast", &["'123.4'", "'DECIMAL(2, 0)'"], "NULL");
    }

    #[test]
    fn between_types() {
        check("flink_cast", &["2.9e0", "'INT'"], "2");
        check("flink_cast", &["1e10", "'INT'"], "2147483647");
        check("flink_cast", &["300", "'TINYINT'"], "44");
        check("flink_cast", &["2.5", "'INT'"], "2");
        check("flink_cast", &["123.456", "'DECIMAL(4, 1)'"], "123.5");
        check("flink_cast", &["TRUE", "'INT'"], "1");
        check("flink_cast", &["0", "'BOOLEAN'"], "FALSE");
        check("flink_cast", &["TIMESTAMP '2024-01-02 03:04:05'", "'DATE'"], "2024-01-02");
        check("flink_cast", &["TIMESTAMP '2024-01-02 03:04:05'", "'TIME'"], "03:04:05");
        check_in("Asia/Tokyo", "flink_cast", &["LTZ '2024-01-02 20:00:00'", "'DATE'"], "2024-01-03");
        check_in("Asia/Tokyo", "flink_cast", &["LTZ '2024-01-02 20:00:00'", "'TIMESTAMP(3)'"], "2024-01-03 05:00:00.000");
        check_in("Asia/Tokyo", "flink_cast", &["TIMESTAMP '2024-01-02 20:00:00'", "'TIMESTAMP_LTZ(3)'"], "2024-01-02 20:00:00.000");
    }
}
