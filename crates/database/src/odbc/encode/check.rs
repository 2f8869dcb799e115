//! Values that the database, or its driver, would change without a word.

use arrow::array::Array;
use arrow::util::display::array_value_to_string;
use tidemill_block::value::days_from_civil;

use super::super::column::Column;
use super::super::error::shortened;
use crate::driver::DbError;

/// Days since 1970 of the first and the last day that all databases hold.
pub(super) const FIRST_DAY: i64 = days_from_civil(1, 1, 1);
pub(super) const LAST_DAY: i64 = days_from_civil(9999, 12, 31);

/// Whole numbers up to here are exact as doubles, and as floats.
pub(super) const EXACT_DOUBLE: u64 = 1 << 53;
pub(super) const EXACT_FLOAT: u64 = 1 << 24;

/// Refuses the first value, of those that are not NULL, that `wrong` says is.
///
/// # Errors
/// Column, value and row.
pub(super) fn refuse(name: &str, array: &dyn Array, column: &Column, why: &str, wrong: impl Fn(usize) -> bool) -> Result<(), DbError> {
    let found = match array.null_count() {
        0 => (0..array.len()).find(|row| wrong(*row)),
        _ => (0..array.len()).find(|row| array.is_valid(*row) && wrong(*row)),
    };
    let Some(row) = found else { return Ok(()) };
    let value = array_value_to_string(array, row).unwrap_or_default();
    Err(DbError::data(format!(
        "column '{name}': {} in row {} does not go into {} unchanged: {why}",
        shortened(&value),
        row + 1,
        column.type_text
    )))
}

/// Refuses NULLs where the table has none.
///
/// # Errors
/// Column and row.
pub(super) fn refuse_nulls(name: &str, array: &dyn Array, column: &Column) -> Result<(), DbError> {
    if column.nullable || array.null_count() == 0 {
        return Ok(());
    }
    let row = (0..array.len()).find(|row| array.is_null(*row)).unwrap_or(0);
    Err(DbError::data(format!("column '{name}': NULL in row {}, where the table says NOT NULL", row + 1)))
}

/// 10 to the power of `digits`, or the largest number.
pub(super) fn power(digits: u32) -> i128 {
    10i128.checked_pow(digits).unwrap_or(i128::MAX)
}
