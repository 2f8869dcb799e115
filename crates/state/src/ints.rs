//! Integer-like columns as 64-bit integers and back.

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use arrow::error::ArrowError;

/// Whether [`ints`] takes a column of this type.
pub fn is_int(t: &DataType) -> bool {
    matches!(
        t,
        DataType::Int64
            | DataType::Int32
            | DataType::Int16
            | DataType::Int8
            | DataType::Date32
            | DataType::Timestamp(..)
            | DataType::Time32(TimeUnit::Millisecond)
    )
}

/// An integer-like column as 64-bit integers, its memory shared where the width allows.
///
/// # Errors
/// A column of another type.
pub fn ints(column: &ArrayRef) -> Result<Int64Array, ArrowError> {
    Ok(match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().clone(),
        DataType::Timestamp(..) => arrow::array::make_array(column.to_data().into_builder().data_type(DataType::Int64).build()?)
            .as_primitive::<Int64Type>()
            .clone(),
        DataType::Date32 | DataType::Time32(_) => {
            cast(&cast(column, &DataType::Int32)?, &DataType::Int64)?.as_primitive::<Int64Type>().clone()
        }
        _ => cast(column, &DataType::Int64)?.as_primitive::<Int64Type>().clone(),
    })
}

/// What [`ints`] made of a column, in the column's type again.
///
/// # Errors
/// A value that the type does not have.
pub fn from_ints(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    match to {
        DataType::Date32 | DataType::Time32(_) => cast(&cast(array, &DataType::Int32)?, to),
        _ => cast(array, to),
    }
}
