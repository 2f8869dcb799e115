//! Values that the server would change without a word, found before they are sent.
//!
//! In strict mode the server tells of most that does not fit: too long, out of range, too many decimals. It is
//! silent where a number is rounded to a whole one or to a shorter mantissa, where digits of a second are cut
//! off (MySQL rounds, MariaDB cuts), where a NULL becomes the next number or the current time, and it has no
//! name at all for NaN. Whole columns are looked at, in loops that do nothing but compare.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type, Time32MillisecondType, TimeUnit,
};
use arrow::util::display::array_value_to_string;
use tidemill_block::value::{days_from_civil, fraction_digits, units_per_second};

use super::encode::timestamps;
use super::error::shortened;
use super::table::{Column, Kind};
use crate::driver::DbError;

/// Days since 1970 of the first and the last day that DATE and DATETIME hold. The manuals say that years before
/// 1000 "might work"; they do.
const FIRST_DAY: i64 = days_from_civil(1, 1, 1);
const LAST_DAY: i64 = days_from_civil(9999, 12, 31);

/// Whole numbers up to here are exact as doubles, and as floats.
const EXACT_DOUBLE: u64 = 1 << 53;
const EXACT_FLOAT: u64 = 1 << 24;

/// Refuses the first value of `array` that `column` would take and change.
///
/// # Errors
/// [`Data`](crate::driver::DbErrorKind::Data) with the column, the value and the row of the batch.
pub(super) fn check(name: &str, array: &dyn Array, column: &Column) -> Result<(), DbError> {
    if !column.nullable
        && array.null_count() > 0
        && let Some(row) = (0..array.len()).find(|row| array.is_null(*row))
    {
        return Err(DbError::data(format!("column '{name}': NULL in row {}, where the table says NOT NULL", row + 1)));
    }
    let Some((row, why)) = changed(array, column.kind) else { return Ok(()) };
    let value = array_value_to_string(array, row).unwrap_or_default();
    Err(DbError::data(format!(
        "column '{name}': {} in row {} does not go into {} unchanged: {why}",
        shortened(&value),
        row + 1,
        shortened(&column.type_text)
    )))
}

/// The first row whose value would be changed, and how.
fn changed(array: &dyn Array, kind: Kind) -> Option<(usize, &'static str)> {
    match array.data_type() {
        DataType::Int32 if kind == Kind::Float => whole(array, array.as_primitive::<Int32Type>().values(), EXACT_FLOAT),
        DataType::Int64 if kind == Kind::Float => whole(array, array.as_primitive::<Int64Type>().values(), EXACT_FLOAT),
        DataType::Int64 if kind == Kind::Double => whole(array, array.as_primitive::<Int64Type>().values(), EXACT_DOUBLE),
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().values();
            float(array, values, kind, f64::from, |_| true)
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().values();
            float(array, values, kind, |v| v, |v| f64::from(v as f32) == v)
        }
        DataType::Decimal128(_, scale) => decimal(array, array.as_primitive::<Decimal128Type>().values(), *scale, kind),
        DataType::Date32 => {
            let values = array.as_primitive::<Date32Type>().values();
            first(array, values, |days| !(FIRST_DAY..=LAST_DAY).contains(&i64::from(days)), "dates are of the years 1 to 9999")
        }
        DataType::Time32(_) => match kind {
            Kind::Time(digits) | Kind::DateTime(digits) => {
                let values = array.as_primitive::<Time32MillisecondType>().values();
                let unit = 10i32.pow(3u32.saturating_sub(digits.into()));
                first(array, values, |ms| ms % unit != 0, "it keeps fewer digits of the second")
            }
            _ => None,
        },
        DataType::Timestamp(unit, _) => timestamp(array, *unit, kind),
        _ => None,
    }
}

/// The first valid row whose value is `bad`.
fn first<T: Copy>(array: &dyn Array, values: &[T], bad: impl Fn(T) -> bool, why: &'static str) -> Option<(usize, &'static str)> {
    values.iter().enumerate().find(|(row, v)| bad(**v) && array.is_valid(*row)).map(|(row, _)| (row, why))
}

fn whole<T: Copy + Into<i64>>(array: &dyn Array, values: &[T], exact: u64) -> Option<(usize, &'static str)> {
    first(array, values, |v| Into::<i64>::into(v).unsigned_abs() > exact, "it has more digits than the number there")
}

fn float<T: Copy>(
    array: &dyn Array,
    values: &[T],
    kind: Kind,
    double: impl Fn(T) -> f64,
    fits_float: impl Fn(T) -> bool,
) -> Option<(usize, &'static str)> {
    first(array, values, |v| !double(v).is_finite(), "there is no such number in MySQL").or_else(|| match kind {
        Kind::Integer | Kind::Bit => first(array, values, |v| double(v).fract() != 0.0, "it is no whole number"),
        Kind::Float => first(array, values, |v| !fits_float(v), "it has more digits than the number there"),
        _ => None,
    })
}

fn decimal(array: &dyn Array, values: &[i128], scale: i8, kind: Kind) -> Option<(usize, &'static str)> {
    let digits = |digits: u32| {
        let limit = 10u128.pow(digits);
        first(array, values, move |v| v.unsigned_abs() >= limit, "it has more digits than the number there")
    };
    match kind {
        Kind::Integer | Kind::Bit if scale > 0 => {
            let one = 10i128.pow(scale.unsigned_abs().into());
            first(array, values, |v| v % one != 0, "it is no whole number")
        }
        // Decimal numbers of so many digits come back from the nearest binary number.
        Kind::Double => digits(15),
        Kind::Float => digits(6),
        _ => None,
    }
}

fn timestamp(array: &dyn Array, unit: TimeUnit, kind: Kind) -> Option<(usize, &'static str)> {
    let values = timestamps(array, unit);
    let per_day = 86_400 * units_per_second(unit);
    // Nanoseconds do not reach as far as the calendar does.
    let from = FIRST_DAY.checked_mul(per_day).unwrap_or(i64::MIN);
    let to = (LAST_DAY + 1).checked_mul(per_day).map_or(i64::MAX, |end| end - 1);
    first(array, values, |v| v < from || v > to, "times are of the years 1 to 9999").or_else(|| match kind {
        Kind::DateTime(digits) | Kind::Time(digits) => {
            let cut = fraction_digits(unit).saturating_sub(digits.into());
            let kept = 10i64.pow(cut as u32);
            first(array, values, |v| v % kept != 0, "it keeps fewer digits of the second")
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests;
