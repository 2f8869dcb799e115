//! Rows of a result as columns. A value is what its column's type says or an error, never something near it.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, FixedSizeBinaryBuilder, Float32Builder, Float64Builder,
    Int64Builder, RecordBatch, RecordBatchOptions, StringBuilder, Time32MillisecondBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use rusqlite::Row;
use rusqlite::types::ValueRef;
use tidemill_block::value;

use super::failed;
use crate::driver::DbError;

/// Characters of a value that a message shows.
const SHOWN: usize = 100;

/// Columns that are being filled.
pub(super) struct Columns {
    schema: SchemaRef,
    builders: Vec<Builder>,
    rows: usize,
}

enum Builder {
    Boolean(BooleanBuilder),
    /// Whole numbers of any width.
    Integer {
        values: Int64Builder,
        min: i64,
        max: i64,
    },
    Float(Float32Builder),
    Double(Float64Builder),
    Decimal {
        values: Decimal128Builder,
        precision: u8,
        scale: i8,
    },
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    FixedBytes {
        values: FixedSizeBinaryBuilder,
        bytes: i32,
    },
    Date(Date32Builder),
    Time(Time32MillisecondBuilder),
    Timestamp {
        values: Int64Builder,
        unit: TimeUnit,
    },
}

impl Columns {
    /// Empty columns.
    ///
    /// # Errors
    /// A type that SQLite has nothing for.
    pub fn new(schema: &SchemaRef) -> Result<Self, DbError> {
        let builder = |field: &arrow::datatypes::FieldRef| {
            Builder::new(field.data_type()).map_err(|why| DbError::fatal(format!("column '{}': {why}", field.name())))
        };
        Ok(Columns { schema: schema.clone(), builders: schema.fields().iter().map(builder).collect::<Result<_, _>>()?, rows: 0 })
    }

    /// Rows since the last [`Columns::take`].
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Appends a row.
    ///
    /// # Errors
    /// A value that does not fit, with its column.
    pub fn push(&mut self, row: &Row<'_>) -> Result<(), DbError> {
        for (index, (builder, field)) in self.builders.iter_mut().zip(self.schema.fields()).enumerate() {
            let value = row.get_ref(index).map_err(|e| failed(format_args!("reading column '{}'", field.name()), e))?;
            if matches!(value, ValueRef::Null) {
                if !field.is_nullable() {
                    return Err(DbError::data(format!("column '{}' is NOT NULL, and the database has a NULL there", field.name())));
                }
                builder.push_null();
            } else if let Err(why) = builder.push(value) {
                let data_type = field.data_type();
                return Err(DbError::data(format!("column '{}': {} is no {data_type}{why}", field.name(), show(value))));
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// The rows, and begins anew.
    ///
    /// # Errors
    /// Columns that do not go together, which would be a mistake here.
    pub fn take(&mut self) -> Result<RecordBatch, DbError> {
        let rows = std::mem::take(&mut self.rows);
        let mut arrays = Vec::with_capacity(self.builders.len());
        for (builder, field) in self.builders.iter_mut().zip(self.schema.fields()) {
            let array = builder.finish();
            arrays.push(if array.data_type() == field.data_type() { array } else { cast(&array, field.data_type())? });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }
}

impl Builder {
    fn new(data_type: &DataType) -> Result<Self, String> {
        let integer = |min: i64, max: i64| Builder::Integer { values: Int64Builder::new(), min, max };
        Ok(match data_type {
            DataType::Boolean => Builder::Boolean(BooleanBuilder::new()),
            DataType::Int8 => integer(i8::MIN.into(), i8::MAX.into()),
            DataType::Int16 => integer(i16::MIN.into(), i16::MAX.into()),
            DataType::Int32 => integer(i32::MIN.into(), i32::MAX.into()),
            DataType::Int64 => integer(i64::MIN, i64::MAX),
            DataType::UInt8 => integer(0, u8::MAX.into()),
            DataType::UInt16 => integer(0, u16::MAX.into()),
            DataType::UInt32 => integer(0, u32::MAX.into()),
            DataType::Float32 => Builder::Float(Float32Builder::new()),
            DataType::Float64 => Builder::Double(Float64Builder::new()),
            DataType::Decimal128(precision, scale) => Builder::Decimal {
                values: Decimal128Builder::new().with_data_type(DataType::Decimal128(*precision, *scale)),
                precision: *precision,
                scale: *scale,
            },
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Builder::Text(StringBuilder::new()),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Builder::Bytes(BinaryBuilder::new()),
            DataType::FixedSizeBinary(bytes) => Builder::FixedBytes { values: FixedSizeBinaryBuilder::new(*bytes), bytes: *bytes },
            DataType::Date32 => Builder::Date(Date32Builder::new()),
            DataType::Time32(TimeUnit::Millisecond) => Builder::Time(Time32MillisecondBuilder::new()),
            DataType::Timestamp(unit, _) => Builder::Timestamp { values: Int64Builder::new(), unit: *unit },
            other => return Err(format!("SQLite has nothing for {other}")),
        })
    }

    fn push_null(&mut self) {
        match self {
            Builder::Boolean(values) => values.append_null(),
            Builder::Integer { values, .. } | Builder::Timestamp { values, .. } => values.append_null(),
            Builder::Float(values) => values.append_null(),
            Builder::Double(values) => values.append_null(),
            Builder::Decimal { values, .. } => values.append_null(),
            Builder::Text(values) => values.append_null(),
            Builder::Bytes(values) => values.append_null(),
            Builder::FixedBytes { values, .. } => values.append_null(),
            Builder::Date(values) => values.append_null(),
            Builder::Time(values) => values.append_null(),
        }
    }

    /// Appends a value that is not NULL; the error is what follows behind "… is no BIGINT".
    fn push(&mut self, value: ValueRef<'_>) -> Result<(), &'static str> {
        match self {
            Builder::Boolean(values) => values.append_value(match value {
                ValueRef::Integer(0) => false,
                ValueRef::Integer(1) => true,
                ValueRef::Text(text) if text.eq_ignore_ascii_case(b"true") || text == b"1" => true,
                ValueRef::Text(text) if text.eq_ignore_ascii_case(b"false") || text == b"0" => false,
                _ => return Err(" (expected 0 or 1)"),
            }),
            Builder::Integer { values, min, max } => {
                let n = integer(value).ok_or("")?;
                if !(*min..=*max).contains(&n) {
                    return Err(" (out of its range)");
                }
                values.append_value(n);
            }
            Builder::Float(values) => {
                let v = double(value).ok_or("")?;
                if v.is_finite() && (v as f32).is_infinite() {
                    return Err(" (out of its range)");
                }
                values.append_value(v as f32);
            }
            Builder::Double(values) => values.append_value(double(value).ok_or("")?),
            Builder::Decimal { values, precision, scale } => {
                values.append_value(decimal(value, *precision, *scale).ok_or(" (it does not fit)")?);
            }
            Builder::Text(values) => match value {
                ValueRef::Text(text) => values.append_value(std::str::from_utf8(text).map_err(|_| " (it is no UTF-8)")?),
                ValueRef::Integer(n) => values.append_value(n.to_string()),
                ValueRef::Real(v) => values.append_value(v.to_string()),
                ValueRef::Blob(_) | ValueRef::Null => return Err(""),
            },
            Builder::Bytes(values) => values.append_value(bytes(value).ok_or("")?),
            Builder::FixedBytes { values, bytes: length } => {
                let value = bytes(value).filter(|b| b.len() == *length as usize).ok_or(" (another length)")?;
                values.append_value(value).map_err(|_| " (another length)")?;
            }
            Builder::Date(values) => {
                let day = text(value).and_then(|text| match value::parse_date(text) {
                    Some(day) => Some(day),
                    // A timestamp at midnight is a date.
                    None => value::parse_timestamp(text, TimeUnit::Second)
                        .filter(|s| s.rem_euclid(86_400) == 0 && fits(text, 0))
                        .and_then(|s| i32::try_from(s.div_euclid(86_400)).ok()),
                });
                values.append_value(day.ok_or(" (expected a text like 2024-01-31)")?);
            }
            Builder::Time(values) => {
                let ms = text(value).filter(|text| fits(text, 3)).and_then(value::parse_time_ms);
                values.append_value(ms.ok_or(" (expected a text like 08:00:00.000)")?);
            }
            Builder::Timestamp { values, unit } => {
                let text = text(value).filter(|text| fits(text, value::fraction_digits(*unit)));
                let units = text.and_then(|text| timestamp(text, *unit));
                values.append_value(units.ok_or(" (expected a text like 2024-01-31 08:00:00.000 with no more digits than the column's)")?);
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Builder::Boolean(values) => Arc::new(values.finish()),
            Builder::Integer { values, .. } | Builder::Timestamp { values, .. } => Arc::new(values.finish()),
            Builder::Float(values) => Arc::new(values.finish()),
            Builder::Double(values) => Arc::new(values.finish()),
            Builder::Decimal { values, .. } => Arc::new(values.finish()),
            Builder::Text(values) => Arc::new(values.finish()),
            Builder::Bytes(values) => Arc::new(values.finish()),
            Builder::FixedBytes { values, .. } => Arc::new(values.finish()),
            Builder::Date(values) => Arc::new(values.finish()),
            Builder::Time(values) => Arc::new(values.finish()),
        }
    }
}

fn text(value: ValueRef<'_>) -> Option<&[u8]> {
    match value {
        ValueRef::Text(text) => Some(text),
        _ => None,
    }
}

fn bytes(value: ValueRef<'_>) -> Option<&[u8]> {
    match value {
        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => Some(bytes),
        _ => None,
    }
}

fn parsed<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

fn integer(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Integer(n) => Some(n),
        // Doubles beyond 2^53 leave out numbers.
        ValueRef::Real(v) if v.fract() == 0.0 && v.abs() <= 9_007_199_254_740_992.0 => Some(v as i64),
        ValueRef::Text(text) => parsed(text),
        _ => None,
    }
}

fn double(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Real(v) => Some(v),
        ValueRef::Integer(n) if n.unsigned_abs() <= 1 << 53 => Some(n as f64),
        ValueRef::Text(text) => parsed(text),
        _ => None,
    }
}

fn decimal(value: ValueRef<'_>, precision: u8, scale: i8) -> Option<i128> {
    match value {
        ValueRef::Integer(n) => value::parse_decimal(n.to_string().as_bytes(), precision, scale),
        // The decimal next to it: a double is near what was meant, and this one is what it was made of.
        ValueRef::Real(v) if v.is_finite() => value::parse_decimal(format!("{v:e}").as_bytes(), precision, scale),
        ValueRef::Text(text) => {
            let text = text.trim_ascii();
            let exact = fits(text, usize::try_from(scale).unwrap_or(0)) || text.iter().any(|b| matches!(b, b'e' | b'E'));
            if exact { value::parse_decimal(text, precision, scale) } else { None }
        }
        _ => None,
    }
}

/// A timestamp in units, the very first ones of 64 bits too: they lie before the second that they are counted
/// from.
fn timestamp(text: &[u8], unit: TimeUnit) -> Option<i64> {
    value::parse_timestamp(text, unit).or_else(|| {
        let seconds = value::parse_timestamp(text, TimeUnit::Second)?;
        let point = text.iter().position(|b| *b == b'.')?;
        let digits = value::fraction_digits(unit);
        let fraction = text[point + 1..].iter().take_while(|b| b.is_ascii_digit()).chain(std::iter::repeat(&b'0')).take(digits);
        let fraction = fraction.fold(0i128, |n, b| n * 10 + i128::from(b - b'0'));
        i64::try_from(i128::from(seconds) * i128::from(value::units_per_second(unit)) + fraction).ok()
    })
}

/// Whether all digits behind the point from number `digits` on are zeros.
fn fits(text: &[u8], digits: usize) -> bool {
    let Some(point) = text.iter().position(|b| *b == b'.') else { return true };
    text[point + 1..].iter().take_while(|b| b.is_ascii_digit()).skip(digits).all(|b| *b == b'0')
}

/// A value for a message.
fn show(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".into(),
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Real(v) => v.to_string(),
        ValueRef::Text(text) => {
            let text = String::from_utf8_lossy(text);
            let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
            format!("'{}{more}'", text.chars().take(SHOWN).collect::<String>())
        }
        ValueRef::Blob(bytes) => format!("a BLOB of {} bytes", bytes.len()),
    }
}
