//! Columns as Avro's reader gives them become columns of a table: wider and narrower numbers, other
//! units of time, enums and UUIDs as text, fields found by name.
//!
//! Avro's own resolution looks at names of records and not at the meaning of a `timestamp-micros` that
//! is read as `timestamp-millis`; this goes by what the writer's schema says the values are.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, StringBuilder, StructArray, make_array, new_null_array};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::DataType;
use arrow::util::display::FormatOptions;

use crate::FormatError;
use crate::types::type_name;

/// The values of `array` as type `to`. A value that does not fit becomes NULL: the caller compares.
///
/// # Errors
/// Types of which one is never the other; values inside others that do not fit.
pub(crate) fn adapt(path: &str, array: &ArrayRef, to: &DataType) -> Result<ArrayRef, FormatError> {
    convert(path, array, to, true)
}

fn convert(path: &str, array: &ArrayRef, to: &DataType, safe: bool) -> Result<ArrayRef, FormatError> {
    let from = array.data_type();
    if from == to {
        return Ok(array.clone());
    }
    let wrong = || {
        FormatError::unsupported(format!(
            "column '{path}': the Avro schema of the data has {}, which cannot be read as {}",
            type_name(from),
            type_name(to)
        ))
    };
    match (from, to) {
        (DataType::Null, _) => Ok(new_null_array(to, array.len())),
        (DataType::Timestamp(..), DataType::Timestamp(unit, _)) => {
            // A zone says how a time is shown and not what it is.
            let plain = cast(array, &without_zone(from), safe).and_then(|a| cast(&a, &DataType::Timestamp(*unit, None), safe))?;
            Ok(make_array(plain.to_data().into_builder().data_type(to.clone()).build()?))
        }
        (DataType::FixedSizeBinary(16), DataType::Utf8) => Ok(uuids(array)),
        (DataType::List(_), DataType::List(item)) => {
            let list = array.as_list::<i32>();
            let values = convert(&format!("{path}[]"), list.values(), item.data_type(), false)?;
            Ok(Arc::new(ListArray::try_new(item.clone(), list.offsets().clone(), values, list.nulls().cloned())?))
        }
        (DataType::Map(..), DataType::Map(entries, sorted)) => {
            let DataType::Struct(kv) = entries.data_type() else { return Err(wrong()) };
            let map = array.as_map();
            let keys = convert(&format!("{path}[]"), map.keys(), kv[0].data_type(), false)?;
            let values = convert(&format!("{path}[]"), map.values(), kv[1].data_type(), false)?;
            let pairs = StructArray::try_new(kv.clone(), vec![keys, values], None)?;
            Ok(Arc::new(MapArray::try_new(entries.clone(), map.offsets().clone(), pairs, map.nulls().cloned(), *sorted)?))
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let row = array.as_struct();
            let columns = fields
                .iter()
                .map(|field| match row.column_by_name(field.name()) {
                    Some(column) => convert(&format!("{path}.{}", field.name()), column, field.data_type(), false),
                    None => Ok(new_null_array(field.data_type(), row.len())),
                })
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, row.nulls().cloned(), row.len())?))
        }
        (DataType::List(_) | DataType::Map(..) | DataType::Struct(_) | DataType::Union(..), _) => Err(wrong()),
        _ if can_cast_types(from, to) => cast(array, to, safe),
        _ => Err(wrong()),
    }
}

fn cast(array: &ArrayRef, to: &DataType, safe: bool) -> Result<ArrayRef, FormatError> {
    Ok(cast_with_options(array, to, &CastOptions { safe, format_options: FormatOptions::default() })?)
}

fn without_zone(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Timestamp(unit, _) => DataType::Timestamp(*unit, None),
        other => other.clone(),
    }
}

/// `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
fn uuids(array: &ArrayRef) -> ArrayRef {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let values = array.as_fixed_size_binary();
    let mut out = StringBuilder::with_capacity(values.len(), values.len() * 36);
    for row in 0..values.len() {
        if values.is_null(row) {
            out.append_null();
            continue;
        }
        let mut text = String::with_capacity(36);
        for (i, byte) in values.value(row).iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push(HEX[(byte >> 4) as usize] as char);
            text.push(HEX[(byte & 15) as usize] as char);
        }
        out.append_value(text);
    }
    Arc::new(out.finish())
}
