//! Rows of columns as the parameters of a statement.

use arrow::array::{
    Array, AsArray, BinaryArray, BinaryViewArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array,
    LargeBinaryArray, LargeStringArray, RecordBatch, StringArray, StringViewArray,
};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int64Type, Time32MillisecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use rusqlite::Statement;
use rusqlite::types::{ToSqlOutput, ValueRef};
use tidemill_block::value::{self, TimestampWriter};

use super::{as_number, failed};
use crate::driver::DbError;

/// 0001-01-01 and 9999-12-31, days since 1970-01-01: between them a date is a text of ten characters.
const DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;

/// The columns of a batch, by row.
pub(super) struct Parameters {
    columns: Vec<Column>,
}

struct Column {
    name: String,
    nulls: Option<NullBuffer>,
    values: Values,
}

enum Values {
    Boolean(BooleanArray),
    /// Whole numbers of any width.
    Integer(ScalarBuffer<i64>),
    Float(Float32Array),
    Double(Float64Array),
    /// A decimal of few digits.
    Number {
        values: Decimal128Array,
        scale: i8,
    },
    /// A decimal of many digits.
    Digits {
        values: Decimal128Array,
        scale: i8,
    },
    Text(StringArray),
    LargeText(LargeStringArray),
    TextView(StringViewArray),
    Bytes(BinaryArray),
    LargeBytes(LargeBinaryArray),
    BytesView(BinaryViewArray),
    FixedBytes(FixedSizeBinaryArray),
    Date(ScalarBuffer<i32>),
    Time(ScalarBuffer<i32>),
    Timestamp {
        values: ScalarBuffer<i64>,
        unit: TimeUnit,
        zone: bool,
        text: TimestampWriter,
    },
}

impl Parameters {
    /// The columns of `rows`.
    ///
    /// # Errors
    /// A type that SQLite has nothing for.
    pub fn of(rows: &RecordBatch) -> Result<Self, DbError> {
        let schema = rows.schema();
        let mut columns = Vec::with_capacity(rows.num_columns());
        for (field, array) in schema.fields().iter().zip(rows.columns()) {
            let values = Values::of(array.as_ref()).map_err(|why| DbError::fatal(format!("column '{}': {why}", field.name())))?;
            columns.push(Column { name: field.name().clone(), nulls: array.nulls().filter(|n| n.null_count() > 0).cloned(), values });
        }
        Ok(Parameters { columns })
    }

    /// Binds the values of a row.
    ///
    /// # Errors
    /// A value that SQLite would change, with its column.
    pub fn bind(&mut self, row: usize, statement: &mut Statement<'_>, scratch: &mut Vec<u8>) -> Result<(), DbError> {
        for (index, column) in self.columns.iter_mut().enumerate() {
            let value = if column.nulls.as_ref().is_some_and(|n| n.is_null(row)) {
                ValueRef::Null
            } else {
                scratch.clear();
                column.values.at(row, scratch).map_err(|why| DbError::data(format!("column '{}': {why}", column.name)))?
            };
            statement
                .raw_bind_parameter(index + 1, ToSqlOutput::Borrowed(value))
                .map_err(|e| failed(format_args!("column '{}'", column.name), e))?;
        }
        Ok(())
    }
}

impl Values {
    fn of(array: &dyn Array) -> Result<Self, String> {
        let timestamp = |unit: &TimeUnit| match unit {
            TimeUnit::Second => array.as_primitive::<TimestampSecondType>().values().clone(),
            TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().values().clone(),
            TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().values().clone(),
            TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().values().clone(),
        };
        Ok(match array.data_type() {
            DataType::Boolean => Values::Boolean(array.as_boolean().clone()),
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => {
                let wide = cast(array, &DataType::Int64).map_err(|e| e.to_string())?;
                Values::Integer(wide.as_primitive::<Int64Type>().values().clone())
            }
            DataType::Int64 => Values::Integer(array.as_primitive::<Int64Type>().values().clone()),
            DataType::Float32 => Values::Float(array.as_primitive::<Float32Type>().clone()),
            DataType::Float64 => Values::Double(array.as_primitive::<Float64Type>().clone()),
            DataType::Decimal128(precision, scale) => {
                let values = array.as_primitive::<arrow::datatypes::Decimal128Type>().clone();
                let number = as_number(*precision, *scale) && *scale >= 0;
                if number { Values::Number { values, scale: *scale } } else { Values::Digits { values, scale: *scale } }
            }
            DataType::Utf8 => Values::Text(array.as_string::<i32>().clone()),
            DataType::LargeUtf8 => Values::LargeText(array.as_string::<i64>().clone()),
            DataType::Utf8View => Values::TextView(array.as_string_view().clone()),
            DataType::Binary => Values::Bytes(array.as_binary::<i32>().clone()),
            DataType::LargeBinary => Values::LargeBytes(array.as_binary::<i64>().clone()),
            DataType::BinaryView => Values::BytesView(array.as_binary_view().clone()),
            DataType::FixedSizeBinary(_) => Values::FixedBytes(array.as_fixed_size_binary().clone()),
            DataType::Date32 => Values::Date(array.as_primitive::<Date32Type>().values().clone()),
            DataType::Time32(TimeUnit::Millisecond) => Values::Time(array.as_primitive::<Time32MillisecondType>().values().clone()),
            DataType::Timestamp(unit, zone) => {
                Values::Timestamp { values: timestamp(unit), unit: *unit, zone: zone.is_some(), text: TimestampWriter::default() }
            }
            other => return Err(format!("SQLite has nothing for {other}")),
        })
    }

    /// The value of a row that is not NULL; texts that are made here stand in `scratch`.
    fn at<'a>(&'a mut self, row: usize, scratch: &'a mut Vec<u8>) -> Result<ValueRef<'a>, String> {
        Ok(match self {
            Values::Boolean(values) => ValueRef::Integer(i64::from(values.value(row))),
            Values::Integer(values) => ValueRef::Integer(values[row]),
            Values::Float(values) => real(f64::from(values.value(row)))?,
            Values::Double(values) => real(values.value(row))?,
            Values::Number { values, scale: 0 } => ValueRef::Integer(values.value(row) as i64),
            // Both are exact, so the quotient is the double next to the decimal: it reads back as the same one.
            Values::Number { values, scale } => ValueRef::Real(values.value(row) as f64 / 10f64.powi(i32::from(*scale))),
            Values::Digits { values, scale } => {
                value::write_decimal(scratch, values.value(row), *scale);
                ValueRef::Text(scratch)
            }
            Values::Text(values) => ValueRef::Text(values.value(row).as_bytes()),
            Values::LargeText(values) => ValueRef::Text(values.value(row).as_bytes()),
            Values::TextView(values) => ValueRef::Text(values.value(row).as_bytes()),
            Values::Bytes(values) => ValueRef::Blob(values.value(row)),
            Values::LargeBytes(values) => ValueRef::Blob(values.value(row)),
            Values::BytesView(values) => ValueRef::Blob(values.value(row)),
            Values::FixedBytes(values) => ValueRef::Blob(values.value(row)),
            Values::Date(values) => {
                let days = values[row];
                if !DAYS.contains(&i64::from(days)) {
                    return Err(format!("the day {days} from 1970-01-01 lies outside of the years 1 to 9999"));
                }
                value::write_date(scratch, days);
                ValueRef::Text(scratch)
            }
            Values::Time(values) => {
                value::write_time_ms(scratch, values[row]);
                ValueRef::Text(scratch)
            }
            Values::Timestamp { values, unit, zone, text } => {
                let units = values[row];
                if !DAYS.contains(&units.div_euclid(86_400 * value::units_per_second(*unit))) {
                    return Err(format!("the timestamp {units} ({unit:?}) lies outside of the years 1 to 9999"));
                }
                // All digits, so that texts are in the order of time.
                text.write_digits(scratch, units, *unit, value::fraction_digits(*unit));
                if *zone {
                    scratch.push(b'Z');
                }
                ValueRef::Text(scratch)
            }
        })
    }
}

/// SQLite keeps NaN as NULL.
fn real(v: f64) -> Result<ValueRef<'static>, String> {
    if v.is_nan() { Err("SQLite has no NaN (it would become NULL)".into()) } else { Ok(ValueRef::Real(v)) }
}
