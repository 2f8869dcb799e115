//! Values as parameters of a statement.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};

use super::convert::show;
use super::ffi::Parameter;
use crate::driver::DbError;

/// The value of a row.
///
/// # Errors
/// There is no parameter of its type, or of its size.
pub fn parameter<'a>(name: &str, array: &'a dyn Array, row: usize) -> Result<Parameter<'a>, DbError> {
    if array.is_null(row) {
        return Ok(Parameter::Null);
    }
    let micros = |units: i64, per: i64, zone: bool| {
        let micros = units.checked_mul(per).ok_or_else(|| {
            DbError::data(format!("column '{name}': the value {} is out of the range of DuckDB's timestamps", show(array, row)))
        })?;
        Ok::<_, DbError>(if zone { Parameter::TimestampTz(micros) } else { Parameter::Timestamp(micros) })
    };
    Ok(match array.data_type() {
        DataType::Boolean => Parameter::Boolean(array.as_boolean().value(row)),
        DataType::Int8 => Parameter::I8(array.as_primitive::<Int8Type>().value(row)),
        DataType::Int16 => Parameter::I16(array.as_primitive::<Int16Type>().value(row)),
        DataType::Int32 => Parameter::I32(array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => Parameter::I64(array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt8 => Parameter::I16(array.as_primitive::<UInt8Type>().value(row).into()),
        DataType::UInt16 => Parameter::I32(array.as_primitive::<UInt16Type>().value(row).into()),
        DataType::UInt32 => Parameter::I64(array.as_primitive::<UInt32Type>().value(row).into()),
        DataType::UInt64 => Parameter::U64(array.as_primitive::<UInt64Type>().value(row)),
        DataType::Float32 => Parameter::Float(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => Parameter::Double(array.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal128(precision, scale) if *scale >= 0 => {
            Parameter::Decimal(array.as_primitive::<Decimal128Type>().value(row), *precision, *scale as u8)
        }
        DataType::Utf8 => Parameter::Text(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => Parameter::Text(array.as_string::<i64>().value(row)),
        DataType::Utf8View => Parameter::Text(array.as_string_view().value(row)),
        DataType::Binary => Parameter::Bytes(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => Parameter::Bytes(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => Parameter::Bytes(array.as_binary_view().value(row)),
        DataType::Date32 => Parameter::Date(array.as_primitive::<Date32Type>().value(row)),
        DataType::Time32(TimeUnit::Millisecond) => {
            Parameter::Time(i64::from(array.as_primitive::<Time32MillisecondType>().value(row)) * 1000)
        }
        DataType::Timestamp(unit, zone) => {
            let zone = zone.is_some();
            match unit {
                TimeUnit::Second => micros(array.as_primitive::<TimestampSecondType>().value(row), 1_000_000, zone)?,
                TimeUnit::Millisecond => micros(array.as_primitive::<TimestampMillisecondType>().value(row), 1000, zone)?,
                TimeUnit::Microsecond => micros(array.as_primitive::<TimestampMicrosecondType>().value(row), 1, zone)?,
                TimeUnit::Nanosecond => {
                    let nanos = array.as_primitive::<TimestampNanosecondType>().value(row);
                    match (zone, nanos % 1000) {
                        (false, _) => Parameter::TimestampNs(nanos),
                        (true, 0) => Parameter::TimestampTz(nanos / 1000),
                        // No instant of DuckDB's has it.
                        (true, _) => {
                            let value = show(array, row);
                            return Err(DbError::data(format!(
                                "column '{name}': the value {value} has more digits than DuckDB's instants"
                            )));
                        }
                    }
                }
            }
        }
        other => return Err(DbError::fatal(format!("column '{name}': there is no parameter of type {other} in DuckDB"))),
    })
}
