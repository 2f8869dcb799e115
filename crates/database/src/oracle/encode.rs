//! Columns of the job into the types of a table: checked and converted as a whole, in what the driver takes.
//!
//! Every conversion is exact. What the server would round, cut off or take for NULL is refused here, with column, value
//! and row. How long a text may be is left to the server, which counts in characters or in bytes and says so; but what is
//! longer than any column, or has characters that the database lacks, is refused here, too.

use std::fmt::Write as _;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch, StringArray, StringBuilder};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int64Type, Time32MillisecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use arrow::util::display::array_value_to_string;
use oracledb::{OracleNumber, OracleTimestamp};
use tidemill_block::value::{civil_from_days, units_per_second, write_decimal, write_time_ms};
use tidemill_format::types::{plain_type, type_name};

use super::Empty;
use super::charset::Charset;
use super::error::shortened;
use super::types::{Kind, TableColumn};
use crate::driver::DbError;
use crate::mysql::nested::to_json;

const SECONDS_OF_DAY: i64 = 86_400;
const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Whole numbers up to here are exact as doubles, and as floats.
const EXACT_DOUBLE: u64 = 1 << 53;
const EXACT_FLOAT: u64 = 1 << 24;
/// The range of doubles that a `NUMBER` has; it goes a little farther.
const NUMBERS: std::ops::Range<f64> = 1e-125..1e125;
/// The most bytes of a `VARCHAR2` or `RAW`, in a database that has the long ones.
const VARCHAR_BYTES_MAX: usize = 32_767;

/// A column on its way to a table, or a parameter.
pub(super) struct Sent<'t> {
    pub column: &'t TableColumn,
    pub values: Values,
}

/// Values, in what the driver takes.
#[derive(Debug)]
pub(super) enum Values {
    Number(Vec<Option<OracleNumber>>),
    Float(Vec<Option<f32>>),
    Double(Vec<Option<f64>>),
    Bool(Vec<Option<bool>>),
    Text(StringArray),
    Bytes(BinaryArray),
    Moment(Vec<Option<OracleTimestamp>>),
}

/// What values are for.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'p> {
    /// They are written: one that does not go in unchanged is an error.
    Write { charset: &'p Charset, empty: Empty },
    /// They are compared with a column: one that does not go in is in no row, and becomes NULL, which is nothing's equal.
    Compare,
}

impl Purpose<'_> {
    fn is_strict(self) -> bool {
        matches!(self, Purpose::Write { .. })
    }
}

/// Why a value does not go in, and its row.
type Bad = (usize, &'static str);

/// The kind of parameter that a column without a table is sent as.
pub(super) fn natural(data_type: &DataType) -> Kind {
    match plain_type(data_type) {
        DataType::Float32 => Kind::BinaryFloat,
        DataType::Float64 => Kind::BinaryDouble,
        DataType::Utf8 | DataType::Time32(_) => Kind::Clob,
        DataType::Binary => Kind::Blob,
        DataType::Date32 => Kind::Date,
        DataType::Timestamp(_, None) => Kind::Timestamp(9),
        // The session is in UTC.
        DataType::Timestamp(_, Some(_)) => Kind::Zoned(9),
        DataType::Boolean | DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Decimal128(..) => {
            Kind::Number { digits: 38, scale: None }
        }
        _ => Kind::Other,
    }
}

/// The columns of a batch, each with the column of the table that it goes into.
///
/// # Errors
/// As [`Sent::new`].
pub(super) fn prepare<'t>(batch: &RecordBatch, columns: &[&'t TableColumn], purpose: Purpose<'_>) -> Result<Vec<Sent<'t>>, DbError> {
    let schema = batch.schema();
    let fields = schema.fields().iter().zip(batch.columns()).zip(columns);
    fields.map(|((field, array), &column)| Sent::new(field.name(), array, column, purpose)).collect()
}

impl<'t> Sent<'t> {
    /// Checks and converts a column.
    ///
    /// # Errors
    /// Types that do not go together; a value to be written that does not go in unchanged.
    pub fn new(name: &str, array: &ArrayRef, column: &'t TableColumn, purpose: Purpose<'_>) -> Result<Self, DbError> {
        let plain = plain_type(array.data_type());
        let array = if plain == *array.data_type() { array.clone() } else { cast(array, &plain)? };
        let array = match &plain {
            DataType::List(_) | DataType::Struct(_) | DataType::Map(..) => to_json(name, &array)?,
            DataType::Null => cast(&array, &DataType::Utf8)?,
            _ => array,
        };
        if purpose.is_strict()
            && !column.nullable
            && array.null_count() > 0
            && let Some(row) = (0..array.len()).find(|row| array.is_null(*row))
        {
            return Err(DbError::data(format!("column '{name}': NULL in row {}, where the table says NOT NULL", row + 1)));
        }
        match convert(&array, column.kind, purpose) {
            Some(Ok(values)) => Ok(Sent { column, values }),
            Some(Err((row, why))) => {
                let value = array_value_to_string(array.as_ref(), row).unwrap_or_default();
                Err(DbError::data(format!(
                    "column '{name}': '{}' in row {} does not go into {} unchanged: {why}",
                    shortened(&value),
                    row + 1,
                    column.type_text
                )))
            }
            None => Err(DbError::fatal(format!(
                "column '{name}': {} does not go into {}; declare or cast it to the type that fits",
                type_name(&plain),
                column.type_text
            ))),
        }
    }

    /// Whether a value is longer than `text` or `bytes` bytes, whichever it is.
    pub fn is_longer(&self, text: usize, bytes: usize) -> bool {
        match &self.values {
            Values::Text(values) => values.iter().flatten().any(|value| value.len() > text),
            Values::Bytes(values) => values.iter().flatten().any(|value| value.len() > bytes),
            _ => false,
        }
    }
}

/// The values of `array` for a column; `None` if the types do not go together.
fn convert(array: &ArrayRef, kind: Kind, purpose: Purpose<'_>) -> Option<Result<Values, Bad>> {
    const DIGITS: &str = "it has more digits, or more decimals";
    const MORE_THAN: &str = "it has more digits than the number there";
    let nulls = array.nulls();
    let strict = purpose.is_strict();
    // Shared by all numbers, whose digits go over text.
    let mut scratch = String::new();
    Some(match (array.data_type(), kind) {
        (DataType::Boolean, Kind::Boolean) => Ok(Values::Bool(array.as_boolean().iter().collect())),
        (DataType::Boolean, Kind::Number { .. }) => {
            let number = |v: Option<bool>| v.map(|v| OracleNumber::from(u8::from(v)));
            Ok(Values::Number(array.as_boolean().iter().map(number).collect()))
        }
        (DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64, _) => {
            // Such casts lose nothing.
            let values = cast(array, &DataType::Int64).ok()?;
            let values = values.as_primitive::<Int64Type>().values();
            match kind {
                Kind::Number { .. } => each(values, nulls, strict, |v| decimal(v.into(), 0, kind, &mut scratch))
                    .map(Values::Number)
                    .map_err(|row| (row, DIGITS)),
                Kind::BinaryDouble => each(values, nulls, strict, |v| Some(v as f64).filter(|_| v.unsigned_abs() <= EXACT_DOUBLE))
                    .map(Values::Double)
                    .map_err(|row| (row, MORE_THAN)),
                Kind::BinaryFloat => each(values, nulls, strict, |v| Some(v as f32).filter(|_| v.unsigned_abs() <= EXACT_FLOAT))
                    .map(Values::Float)
                    .map_err(|row| (row, MORE_THAN)),
                _ => return None,
            }
        }
        (DataType::Decimal128(_, scale), Kind::Number { .. }) => {
            let values = array.as_primitive::<Decimal128Type>().values();
            each(values, nulls, strict, |v| decimal(v, *scale, kind, &mut scratch)).map(Values::Number).map_err(|row| (row, DIGITS))
        }
        (DataType::Float32, Kind::BinaryFloat) => {
            let values = array.as_primitive::<Float32Type>();
            Ok(Values::Float(values.iter().map(|v| v.map(|v| if v.is_nan() { f32::NAN } else { v })).collect()))
        }
        (DataType::Float32, Kind::Number { .. }) => {
            let values = array.as_primitive::<Float32Type>().values();
            let number = |v: f32| shortest(v.into(), |text| write!(text, "{v}"), kind, &mut scratch);
            each(values, nulls, strict, number).map(Values::Number).map_err(|row| (row, "there is no such number there"))
        }
        (DataType::Float32 | DataType::Float64, Kind::BinaryDouble) => {
            let values = cast(array, &DataType::Float64).ok()?;
            let values = values.as_primitive::<Float64Type>();
            Ok(Values::Double(values.iter().map(|v| v.map(|v| if v.is_nan() { f64::NAN } else { v })).collect()))
        }
        (DataType::Float64, Kind::BinaryFloat) => {
            let values = array.as_primitive::<Float64Type>().values();
            let float = |v: f64| if v.is_nan() { Some(f32::NAN) } else { Some(v as f32).filter(|f| f64::from(*f) == v) };
            each(values, nulls, strict, float).map(Values::Float).map_err(|row| (row, MORE_THAN))
        }
        (DataType::Float64, Kind::Number { .. }) => {
            let values = array.as_primitive::<Float64Type>().values();
            let number = |v: f64| shortest(v, |text| write!(text, "{v}"), kind, &mut scratch);
            each(values, nulls, strict, number).map(Values::Number).map_err(|row| (row, "there is no such number there"))
        }
        (DataType::Utf8, Kind::VarChar | Kind::Char | Kind::NChar | Kind::Clob) => text(array.as_string(), kind, purpose),
        (DataType::Time32(TimeUnit::Millisecond), Kind::VarChar | Kind::Char | Kind::Clob) => {
            let mut texts = StringBuilder::new();
            let mut written = Vec::new();
            for ms in array.as_primitive::<Time32MillisecondType>() {
                let Some(ms) = ms else {
                    texts.append_null();
                    continue;
                };
                written.clear();
                write_time_ms(&mut written, ms);
                texts.append_value(String::from_utf8_lossy(&written));
            }
            Ok(Values::Text(texts.finish()))
        }
        (DataType::Binary, Kind::Raw | Kind::Blob) => bytes(array.as_binary(), kind, purpose),
        (DataType::Date32, Kind::Date | Kind::Timestamp(_)) => {
            let values = array.as_primitive::<Date32Type>().values();
            each(values, nulls, strict, |days| moment(days.into(), 0))
                .map(Values::Moment)
                .map_err(|row| (row, "dates are of the years 1 to 9999"))
        }
        (DataType::Timestamp(unit, zone), Kind::Date | Kind::Timestamp(_) | Kind::Zoned(_)) => {
            if zone.is_some() != matches!(kind, Kind::Zoned(_)) {
                return None;
            }
            let digits = match kind {
                Kind::Timestamp(digits) | Kind::Zoned(digits) => digits,
                _ => 0,
            };
            let coarsest = 10i64.pow(9 - u32::from(digits.min(9)));
            let per_second = units_per_second(*unit);
            let convert = |v: i64| {
                let (seconds, nanos) = (v.div_euclid(per_second), v.rem_euclid(per_second) * (NANOS_PER_SECOND / per_second));
                let of_day = seconds.rem_euclid(SECONDS_OF_DAY) * NANOS_PER_SECOND + nanos;
                if nanos % coarsest == 0 { moment(seconds.div_euclid(SECONDS_OF_DAY), of_day) } else { None }
            };
            let values = timestamp_values(array, *unit)?;
            each(values, nulls, strict, convert)
                .map(Values::Moment)
                .map_err(|row| (row, "it keeps fewer digits of the second, and years 1 to 9999"))
        }
        _ => return None,
    })
}

/// Applies `f` to all values that are there; the first row for which it has nothing, or NULL for it if not `strict`.
fn each<T: Copy, U>(
    values: &[T],
    nulls: Option<&NullBuffer>,
    strict: bool,
    mut f: impl FnMut(T) -> Option<U>,
) -> Result<Vec<Option<U>>, usize> {
    let one = |(row, value): (usize, &T)| {
        if nulls.is_some_and(|n| n.is_null(row)) {
            return Ok(None);
        }
        match f(*value) {
            None if strict => Err(row),
            found => Ok(found),
        }
    };
    values.iter().enumerate().map(one).collect()
}

/// A decimal as a number of a kind; `None` if that has not all of its digits.
fn decimal(v: i128, scale: i8, kind: Kind, scratch: &mut String) -> Option<OracleNumber> {
    let mut digits = std::mem::take(scratch).into_bytes();
    digits.clear();
    write_decimal(&mut digits, v, scale);
    *scratch = String::from_utf8(digits).ok()?;
    number(scratch, kind)
}

/// A floating-point number as the shortest decimal one that reads back as the same; `None` if there is none of the kind.
fn shortest(v: f64, write: impl FnOnce(&mut String) -> std::fmt::Result, kind: Kind, scratch: &mut String) -> Option<OracleNumber> {
    if v != 0.0 && !NUMBERS.contains(&v.abs()) {
        return None;
    }
    scratch.clear();
    write(scratch).ok()?;
    number(scratch, kind)
}

/// A number of a kind from its digits.
fn number(text: &str, kind: Kind) -> Option<OracleNumber> {
    let Kind::Number { digits, scale } = kind else { return None };
    if fits(text, digits, scale) { text.parse().ok() } else { None }
}

/// Whether a number, written without an exponent, goes into `NUMBER(digits, scale)` as it is.
fn fits(text: &str, digits: u8, scale: Option<i8>) -> bool {
    let (whole, fraction) = text.trim_start_matches('-').split_once('.').unwrap_or((text.trim_start_matches('-'), ""));
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let digits = isize::from(digits);
    if whole.is_empty() && fraction.is_empty() {
        return true;
    }
    // Places of the first and the last digit that is no zero; the one in front of the point is 0, the one behind it -1.
    let first = match whole.len() {
        0 => -1 - (fraction.len() - fraction.trim_start_matches('0').len()) as isize,
        length => length as isize - 1,
    };
    let last = match fraction.len() {
        0 => (whole.len() - whole.trim_end_matches('0').len()) as isize,
        length => -(length as isize),
    };
    match scale {
        None => first - last < digits,
        Some(scale) => last >= -isize::from(scale) && first < digits - isize::from(scale),
    }
}

/// A day since 1970 and nanoseconds of it; `None` beyond the years 1 to 9999.
fn moment(days: i64, nanos: i64) -> Option<OracleTimestamp> {
    let (year, month, day) = civil_from_days(days);
    if !(1..=9999).contains(&year) {
        return None;
    }
    let (seconds, nanos) = (nanos / NANOS_PER_SECOND, nanos % NANOS_PER_SECOND);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let small = |v: i64| v as u8;
    Some(OracleTimestamp::new_timestamp(year as i16, month as u8, day as u8, small(hour), small(minute), small(second), nanos as u32))
}

/// Text into a kind that takes such.
fn text(texts: &StringArray, kind: Kind, purpose: Purpose<'_>) -> Result<Values, Bad> {
    let Purpose::Write { charset, empty } = purpose else { return Ok(Values::Text(texts.clone())) };
    let max = if kind.is_lob() { usize::MAX } else { VARCHAR_BYTES_MAX };
    for (row, text) in texts.iter().enumerate() {
        let Some(text) = text else { continue };
        if text.is_empty() && empty == Empty::Refused {
            return Err((row, "Oracle keeps an empty text as NULL; empty-text=null in 'url' lets it"));
        }
        if text.len() > max {
            return Err((row, "it is longer than 32,767 bytes"));
        }
        if !charset.holds(text) {
            return Err((row, "the character set of the database lacks a character of it"));
        }
    }
    Ok(Values::Text(texts.clone()))
}

/// Bytes into a kind that takes such.
fn bytes(values: &BinaryArray, kind: Kind, purpose: Purpose<'_>) -> Result<Values, Bad> {
    let Purpose::Write { empty, .. } = purpose else { return Ok(Values::Bytes(values.clone())) };
    let max = if kind.is_lob() { usize::MAX } else { VARCHAR_BYTES_MAX };
    for (row, value) in values.iter().enumerate() {
        let Some(value) = value else { continue };
        if value.is_empty() && empty == Empty::Refused {
            return Err((row, "Oracle keeps no bytes as NULL; empty-text=null in 'url' lets it"));
        }
        if value.len() > max {
            return Err((row, "it is longer than 32,767 bytes"));
        }
    }
    Ok(Values::Bytes(values.clone()))
}

/// The numbers of a column of timestamps.
fn timestamp_values(array: &ArrayRef, unit: TimeUnit) -> Option<&[i64]> {
    fn numbers<T: ArrowPrimitiveType<Native = i64>>(array: &ArrayRef) -> &[i64] {
        array.as_primitive::<T>().values()
    }
    match unit {
        TimeUnit::Second => None,
        TimeUnit::Millisecond => Some(numbers::<TimestampMillisecondType>(array)),
        TimeUnit::Microsecond => Some(numbers::<TimestampMicrosecondType>(array)),
        TimeUnit::Nanosecond => Some(numbers::<TimestampNanosecondType>(array)),
    }
}

#[cfg(test)]
mod tests;
