//! Columns from one type to another where no value changes: between a job's types and those that DuckDB has.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, StructArray, new_null_array};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Date32Type, Fields, Int64Type, Time32MillisecondType};
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// Milliseconds of a day.
const DAY_MS: i32 = 86_400_000;

/// Why a column cannot be had.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The types do not go together, whatever the values are.
    Types,
    /// A value would change, which is said.
    Value(String),
}

impl From<arrow::error::ArrowError> for Refusal {
    fn from(e: arrow::error::ArrowError) -> Self {
        Refusal::Value(match e {
            arrow::error::ArrowError::CastError(why) | arrow::error::ArrowError::InvalidArgumentError(why) => why,
            other => other.to_string(),
        })
    }
}

/// The same values as `wanted`.
///
/// # Errors
/// See [`Refusal`].
pub fn convert(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, Refusal> {
    use DataType::*;
    let from = array.data_type();
    if from == wanted {
        return Ok(array.clone());
    }
    match (from, wanted) {
        (Null, _) => Ok(new_null_array(wanted, array.len())),
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View)
        | (Binary | LargeBinary | BinaryView | FixedSizeBinary(_), Binary | LargeBinary | BinaryView | FixedSizeBinary(_))
        | (Float32, Float64)
        | (Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32, Float64)
        | (Int8 | Int16 | UInt8 | UInt16, Float32)
        | (Boolean | Date32, Utf8) => cast(array, wanted),
        // Arrow says by itself which number is out of range.
        (from, to) if from.is_integer() && to.is_integer() => cast(array, to),
        (from, Utf8) if from.is_integer() || matches!(from, Decimal128(..)) => cast(array, &Utf8),
        (from, Decimal128(_, scale)) if from.is_integer() && *scale >= 0 => cast(array, wanted),
        (Decimal128(..), Decimal128(..)) | (Float64, Float32) | (Int64 | UInt64, Float64) => exactly(array, wanted),
        (Decimal128(..), to) if to.is_integer() => exactly(array, to),
        (Timestamp(_, a), Timestamp(_, b)) if a.is_some() == b.is_some() => exactly(array, wanted),
        (Time32(_) | Time64(_), Time32(_) | Time64(_)) => {
            let times = exactly(array, wanted)?;
            if *wanted == Time32(arrow::datatypes::TimeUnit::Millisecond) {
                let values = times.as_primitive::<Time32MillisecondType>();
                if values.iter().flatten().any(|ms| !(0..DAY_MS).contains(&ms)) {
                    return Err(Refusal::Value("the time 24:00:00 is no TIME of a day".into()));
                }
            }
            Ok(times)
        }
        (List(_), List(item)) => {
            let lists: &ListArray = array.as_list();
            let items = convert(lists.values(), item.data_type())?;
            Ok(Arc::new(ListArray::try_new(item.clone(), lists.offsets().clone(), items, lists.nulls().cloned())?))
        }
        (Struct(_), Struct(fields)) => Ok(Arc::new(structs(array.as_struct(), fields)?)),
        (Map(..), Map(entries, sorted)) => {
            let (maps, Struct(fields)) = (array.as_map(), entries.data_type()) else { return Err(Refusal::Types) };
            let [key, value] = &fields[..] else { return Err(Refusal::Types) };
            let parts = vec![convert(maps.keys(), key.data_type())?, convert(maps.values(), value.data_type())?];
            let pairs = StructArray::try_new(fields.clone(), parts, maps.entries().nulls().cloned())?;
            Ok(Arc::new(MapArray::try_new(entries.clone(), maps.offsets().clone(), pairs, maps.nulls().cloned(), *sorted)?))
        }
        _ => Err(Refusal::Types),
    }
}

/// Fields by their names; without regard to case, as SQL has it.
fn structs(array: &StructArray, wanted: &Fields) -> Result<StructArray, Refusal> {
    if array.num_columns() != wanted.len() {
        return Err(Refusal::Types);
    }
    let mut parts = Vec::with_capacity(wanted.len());
    for field in wanted {
        let place = array.column_names().iter().position(|name| name.eq_ignore_ascii_case(field.name())).ok_or(Refusal::Types)?;
        parts.push(convert(array.column(place), field.data_type())?);
    }
    Ok(StructArray::try_new_with_length(wanted.clone(), parts, array.nulls().cloned(), array.len())?)
}

fn cast(array: &dyn Array, to: &DataType) -> Result<ArrayRef, Refusal> {
    let strict = CastOptions { safe: false, format_options: FormatOptions::default() };
    Ok(cast_with_options(array, to, &strict)?)
}

/// There and back: what is not the same then would have changed.
fn exactly(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, Refusal> {
    let there = cast(array, to)?;
    let changed = match cast(&there, array.data_type()) {
        Ok(back) => distinct(&back, array)?.values().set_indices().next(),
        // A double next to the largest number lies beyond it.
        Err(Refusal::Value(_)) if array.len() > 1 => {
            return (0..array.len()).map(|row| exactly(&array.slice(row, 1), to)).find_map(Result::err).map_or(Ok(there), Err);
        }
        Err(_) => Some(0),
    };
    match changed {
        None => Ok(there),
        Some(row) => Err(Refusal::Value(format!("the value {} does not fit", show(array, row)))),
    }
}

/// A value for a message.
pub fn show(array: &dyn Array, row: usize) -> String {
    let options = FormatOptions::default().with_null("NULL");
    ArrayFormatter::try_new(array, &options).map_or_else(|e| e.to_string(), |f| f.value(row).to_string())
}

/// The first date or timestamp that DuckDB takes for an infinity, or has none for: the outermost numbers.
pub fn beyond(array: &dyn Array) -> Option<usize> {
    let outermost = |row: &usize| array.is_valid(*row);
    match array.data_type() {
        DataType::Date32 => {
            let days = array.as_primitive::<Date32Type>().values();
            days.iter().enumerate().filter(|(_, v)| **v == i32::MAX || **v <= -i32::MAX).map(|(row, _)| row).find(outermost)
        }
        DataType::Timestamp(..) => {
            let plain = array.to_data().into_builder().data_type(DataType::Int64).build().ok()?;
            let plain = arrow::array::make_array(plain);
            let units = plain.as_primitive::<Int64Type>().values();
            units.iter().enumerate().filter(|(_, v)| **v == i64::MAX || **v <= -i64::MAX).map(|(row, _)| row).find(outermost)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
