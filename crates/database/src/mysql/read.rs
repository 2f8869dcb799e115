//! Rows of a result to columns.
//!
//! Rows come in the binary protocol: numbers and times as such, exact; decimals, text, bytes and bits as bytes.
//! A value goes into the type that the job asks for, or it is an error: nothing is rounded, cut or wrapped.

use std::fmt::Write as _;
use std::sync::Arc;

use ::mysql::consts::ColumnType;
use ::mysql::{Column, Value};
use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder, Int8Builder, Int16Builder,
    Int32Builder, Int64Builder, RecordBatch, StringBuilder, Time32MillisecondBuilder, TimestampMicrosecondBuilder,
    TimestampMillisecondBuilder, TimestampNanosecondBuilder, TimestampSecondBuilder,
};
use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use tidemill_block::value;
use tidemill_format::types::type_name;

use super::error::shortened;
use super::nested;
use crate::driver::DbError;

/// The number of the character set `binary`: its columns hold bytes, not text.
const BINARY: u16 = 63;
/// Decimal numbers of so many digits come back from the nearest double.
const DOUBLE_DIGITS: usize = 15;
/// Whole numbers up to here are exact as doubles.
const EXACT_DOUBLE: u64 = 1 << 53;

/// Columns under construction.
pub(super) struct Columns {
    schema: SchemaRef,
    builders: Vec<Builder>,
    rows: usize,
}

/// A column under construction.
enum Builder {
    Bool(BooleanBuilder),
    Int8(Int8Builder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    Decimal(Decimal128Builder, u8, i8),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Date(Date32Builder),
    Time(Time32MillisecondBuilder),
    Second(TimestampSecondBuilder),
    Millisecond(TimestampMillisecondBuilder),
    Microsecond(TimestampMicrosecondBuilder),
    Nanosecond(TimestampNanosecondBuilder),
    /// JSON text, parsed when the batch is complete.
    Nested(StringBuilder, DataType),
}

impl Builder {
    fn new(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Boolean => Builder::Bool(BooleanBuilder::new()),
            DataType::Int8 => Builder::Int8(Int8Builder::new()),
            DataType::Int16 => Builder::Int16(Int16Builder::new()),
            DataType::Int32 => Builder::Int32(Int32Builder::new()),
            DataType::Int64 => Builder::Int64(Int64Builder::new()),
            DataType::Float32 => Builder::Float32(Float32Builder::new()),
            DataType::Float64 => Builder::Float64(Float64Builder::new()),
            DataType::Decimal128(precision, scale) => {
                Builder::Decimal(Decimal128Builder::new().with_data_type(data_type.clone()), *precision, *scale)
            }
            DataType::Utf8 => Builder::Text(StringBuilder::new()),
            DataType::Binary => Builder::Bytes(BinaryBuilder::new()),
            DataType::Date32 => Builder::Date(Date32Builder::new()),
            DataType::Time32(TimeUnit::Millisecond) => Builder::Time(Time32MillisecondBuilder::new()),
            DataType::Timestamp(unit, _) => {
                let data_type = data_type.clone();
                match unit {
                    TimeUnit::Second => Builder::Second(TimestampSecondBuilder::new().with_data_type(data_type)),
                    TimeUnit::Millisecond => Builder::Millisecond(TimestampMillisecondBuilder::new().with_data_type(data_type)),
                    TimeUnit::Microsecond => Builder::Microsecond(TimestampMicrosecondBuilder::new().with_data_type(data_type)),
                    TimeUnit::Nanosecond => Builder::Nanosecond(TimestampNanosecondBuilder::new().with_data_type(data_type)),
                }
            }
            DataType::List(_) | DataType::Struct(_) | DataType::Map(..) => Builder::Nested(StringBuilder::new(), data_type.clone()),
            _ => return None,
        })
    }

    fn null(&mut self) {
        match self {
            Builder::Bool(b) => b.append_null(),
            Builder::Int8(b) => b.append_null(),
            Builder::Int16(b) => b.append_null(),
            Builder::Int32(b) => b.append_null(),
            Builder::Int64(b) => b.append_null(),
            Builder::Float32(b) => b.append_null(),
            Builder::Float64(b) => b.append_null(),
            Builder::Decimal(b, ..) => b.append_null(),
            Builder::Text(b) | Builder::Nested(b, _) => b.append_null(),
            Builder::Bytes(b) => b.append_null(),
            Builder::Date(b) => b.append_null(),
            Builder::Time(b) => b.append_null(),
            Builder::Second(b) => b.append_null(),
            Builder::Millisecond(b) => b.append_null(),
            Builder::Microsecond(b) => b.append_null(),
            Builder::Nanosecond(b) => b.append_null(),
        }
    }

    /// Appends a value that is not NULL; why it does not fit.
    fn push(&mut self, value: &Value, column: &Column) -> Result<(), &'static str> {
        const WHOLE: &str = "it is not a whole number of this range";
        match self {
            Builder::Bool(b) => match integer(value, column) {
                Some(number @ (0 | 1)) => b.append_value(number == 1),
                _ => return Err("it is neither 0 nor 1"),
            },
            Builder::Int8(b) => b.append_value(integer(value, column).and_then(|v| v.try_into().ok()).ok_or(WHOLE)?),
            Builder::Int16(b) => b.append_value(integer(value, column).and_then(|v| v.try_into().ok()).ok_or(WHOLE)?),
            Builder::Int32(b) => b.append_value(integer(value, column).and_then(|v| v.try_into().ok()).ok_or(WHOLE)?),
            Builder::Int64(b) => b.append_value(integer(value, column).and_then(|v| v.try_into().ok()).ok_or(WHOLE)?),
            Builder::Float32(b) => match value {
                Value::Float(v) => b.append_value(*v),
                _ => {
                    let wide = double(value, column)?;
                    let narrow = wide as f32;
                    if f64::from(narrow) != wide {
                        return Err("it has more digits than a FLOAT; declare DOUBLE");
                    }
                    b.append_value(narrow);
                }
            },
            Builder::Float64(b) => b.append_value(double(value, column)?),
            Builder::Decimal(b, precision, scale) => b.append_value(decimal(value, column, *precision, *scale)?),
            Builder::Text(b) => match value {
                Value::Bytes(bytes) if column.column_type() != ColumnType::MYSQL_TYPE_BIT => {
                    b.append_value(std::str::from_utf8(bytes).map_err(|_| "these bytes are no text in UTF-8; declare BYTES")?);
                }
                other => b.append_value(shown(other, column)),
            },
            Builder::Bytes(b) => match value {
                Value::Bytes(bytes) => b.append_value(bytes),
                _ => return Err("it is not bytes"),
            },
            Builder::Date(b) => match *value {
                Value::Date(year, month, day, 0, 0, 0, 0) => {
                    let days = days(year, month, day)?;
                    b.append_value(i32::try_from(days).map_err(|_| "it is no date")?);
                }
                Value::Date(..) => return Err("it has a time of day; declare TIMESTAMP"),
                _ => return Err("it is no date"),
            },
            Builder::Time(b) => match *value {
                Value::Time(false, 0, hours, minutes, seconds, us) => {
                    if us % 1000 != 0 {
                        return Err("TIME holds milliseconds");
                    }
                    let seconds = (i32::from(hours) * 60 + i32::from(minutes)) * 60 + i32::from(seconds);
                    b.append_value(seconds * 1000 + (us / 1000) as i32);
                }
                Value::Time(..) => return Err("a TIME is from 00:00:00 to 23:59:59.999"),
                _ => return Err("it is no time of day"),
            },
            Builder::Second(b) => b.append_value(timestamp(value, TimeUnit::Second)?),
            Builder::Millisecond(b) => b.append_value(timestamp(value, TimeUnit::Millisecond)?),
            Builder::Microsecond(b) => b.append_value(timestamp(value, TimeUnit::Microsecond)?),
            Builder::Nanosecond(b) => b.append_value(timestamp(value, TimeUnit::Nanosecond)?),
            Builder::Nested(b, _) => match value {
                Value::Bytes(bytes) => b.append_value(std::str::from_utf8(bytes).map_err(|_| "it is no JSON")?),
                _ => return Err("it is no JSON"),
            },
        }
        Ok(())
    }

    fn finish(&mut self, name: &str) -> Result<ArrayRef, DbError> {
        Ok(match self {
            Builder::Bool(b) => Arc::new(b.finish()),
            Builder::Int8(b) => Arc::new(b.finish()),
            Builder::Int16(b) => Arc::new(b.finish()),
            Builder::Int32(b) => Arc::new(b.finish()),
            Builder::Int64(b) => Arc::new(b.finish()),
            Builder::Float32(b) => Arc::new(b.finish()),
            Builder::Float64(b) => Arc::new(b.finish()),
            Builder::Decimal(b, ..) => Arc::new(b.finish()),
            Builder::Text(b) => Arc::new(b.finish()),
            Builder::Bytes(b) => Arc::new(b.finish()),
            Builder::Date(b) => Arc::new(b.finish()),
            Builder::Time(b) => Arc::new(b.finish()),
            Builder::Second(b) => Arc::new(b.finish()),
            Builder::Millisecond(b) => Arc::new(b.finish()),
            Builder::Microsecond(b) => Arc::new(b.finish()),
            Builder::Nanosecond(b) => Arc::new(b.finish()),
            Builder::Nested(b, data_type) => nested::from_json(name, &b.finish(), data_type)?,
        })
    }
}

impl Columns {
    /// For rows of `schema`.
    ///
    /// # Errors
    /// A type that no value of MySQL goes into, with the column's name.
    pub fn new(schema: &SchemaRef) -> Result<Self, DbError> {
        let builder = |field: &arrow::datatypes::FieldRef| {
            Builder::new(field.data_type()).ok_or_else(|| {
                DbError::fatal(format!("column '{}': {} cannot be read from MySQL", field.name(), type_name(field.data_type())))
            })
        };
        Ok(Columns { schema: schema.clone(), builders: schema.fields().iter().map(builder).collect::<Result<_, _>>()?, rows: 0 })
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Appends a row of the columns that `columns` describes.
    ///
    /// # Errors
    /// [`Data`](crate::driver::DbErrorKind::Data) with column and value; a result of another width.
    pub fn push(&mut self, values: &[Option<Value>], columns: &[Column]) -> Result<(), DbError> {
        if values.len() != self.builders.len() || columns.len() != values.len() {
            return Err(DbError::fatal(format!("the result has {} columns where {} were asked for", values.len(), self.builders.len())));
        }
        for (i, (builder, (value, column))) in self.builders.iter_mut().zip(values.iter().zip(columns)).enumerate() {
            match value {
                None | Some(Value::NULL) => {
                    let field = self.schema.field(i);
                    if !field.is_nullable() {
                        return Err(DbError::data(format!("column '{}' is NULL and declared NOT NULL", field.name())));
                    }
                    builder.null();
                }
                Some(value) => {
                    if let Err(why) = builder.push(value, column) {
                        return Err(refused(self.schema.field(i), value, column, why));
                    }
                }
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// The rows so far, and begins anew.
    ///
    /// # Errors
    /// Text that is no JSON of the column's type.
    pub fn take(&mut self) -> Result<RecordBatch, DbError> {
        let mut arrays = Vec::with_capacity(self.builders.len());
        for (builder, field) in self.builders.iter_mut().zip(self.schema.fields()) {
            arrays.push(builder.finish(field.name())?);
        }
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }
}

#[cold]
fn refused(field: &arrow::datatypes::Field, value: &Value, column: &Column, why: &str) -> DbError {
    let value = shortened(&shown(value, column));
    DbError::data(format!("column '{}': {value} does not fit {}: {why}", field.name(), type_name(field.data_type())))
}

/// A whole number, also of a BIT, a DECIMAL or text.
fn integer(value: &Value, column: &Column) -> Option<i128> {
    match value {
        Value::Int(v) => Some((*v).into()),
        Value::UInt(v) => Some((*v).into()),
        Value::Bytes(bytes) if column.column_type() == ColumnType::MYSQL_TYPE_BIT => bits(bytes).map(i128::from),
        Value::Bytes(bytes) => exact_decimal(bytes, 38, 0).ok(),
        _ => None,
    }
}

/// A BIT, most significant byte first.
fn bits(bytes: &[u8]) -> Option<u64> {
    (bytes.len() <= 8).then(|| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn double(value: &Value, column: &Column) -> Result<f64, &'static str> {
    const DIGITS: &str = "it has more digits than a DOUBLE; declare DECIMAL";
    match value {
        Value::Float(v) => Ok(f64::from(*v)),
        Value::Double(v) => Ok(*v),
        Value::Int(v) if v.unsigned_abs() <= EXACT_DOUBLE => Ok(*v as f64),
        Value::UInt(v) if *v <= EXACT_DOUBLE => Ok(*v as f64),
        Value::Int(_) | Value::UInt(_) => Err("it has more digits than a DOUBLE; declare BIGINT"),
        Value::Bytes(bytes) if column.column_type() != ColumnType::MYSQL_TYPE_BIT => {
            let number = std::str::from_utf8(bytes).ok().and_then(|text| text.trim().parse::<f64>().ok());
            match number {
                Some(number) if number.is_finite() && significant_digits(bytes) <= DOUBLE_DIGITS => Ok(number),
                Some(_) => Err(DIGITS),
                None => Err("it is no number"),
            }
        }
        _ => Err("it is no number"),
    }
}

/// The digits of a number's text from the first that is no zero to the last.
fn significant_digits(text: &[u8]) -> usize {
    let digits = || text.iter().filter(|b| b.is_ascii_digit());
    let zeros = digits().take_while(|b| **b == b'0').count() + digits().rev().take_while(|b| **b == b'0').count();
    digits().count().saturating_sub(zeros)
}

fn decimal(value: &Value, column: &Column, precision: u8, scale: i8) -> Result<i128, &'static str> {
    const LARGE: &str = "it has more digits";
    match value {
        Value::Bytes(bytes) if column.column_type() != ColumnType::MYSQL_TYPE_BIT => exact_decimal(bytes, precision, scale),
        Value::Float(_) | Value::Double(_) => Err("it is a floating-point number; declare DOUBLE"),
        _ => {
            let number = integer(value, column).ok_or("it is no number")?;
            let unit = u32::try_from(scale).ok().and_then(|s| 10i128.checked_pow(s)).ok_or(LARGE)?;
            let scaled = number.checked_mul(unit).ok_or(LARGE)?;
            let limit = 10u128.checked_pow(precision.into()).ok_or(LARGE)?;
            if scaled.unsigned_abs() < limit { Ok(scaled) } else { Err(LARGE) }
        }
    }
}

/// A decimal number from its text, in units of 10^-`scale`; more decimals than that must be zeros.
fn exact_decimal(text: &[u8], precision: u8, scale: i8) -> Result<i128, &'static str> {
    let text = text.trim_ascii();
    let kept = match text.iter().position(|b| *b == b'.') {
        Some(point) if text[point + 1..].iter().all(u8::is_ascii_digit) => {
            let decimals = &text[point + 1..];
            let used = decimals.iter().rposition(|b| *b != b'0').map_or(0, |last| last + 1);
            if used > usize::try_from(scale).unwrap_or(0) {
                return Err("it has more decimals");
            }
            &text[..point + 1 + used]
        }
        None if text.iter().all(|b| b.is_ascii_digit() || *b == b'-' || *b == b'+') => text,
        // Exponents would have to be rounded.
        _ => return Err("it is no decimal number"),
    };
    value::parse_decimal(kept, precision, scale).ok_or("it has more digits")
}

fn days(year: u16, month: u8, day: u8) -> Result<i64, &'static str> {
    let (year, month, day) = (i64::from(year), u32::from(month), u32::from(day));
    if !(1..=12).contains(&month) || day < 1 || day > value::days_in_month(year, month) {
        return Err("it is no date");
    }
    Ok(value::days_from_civil(year, month, day))
}

fn timestamp(value: &Value, unit: TimeUnit) -> Result<i64, &'static str> {
    let Value::Date(year, month, day, hour, minute, second, us) = *value else { return Err("it is no date with time") };
    let seconds = days(year, month, day)? * 86_400 + (i64::from(hour) * 60 + i64::from(minute)) * 60 + i64::from(second);
    let per_second = value::units_per_second(unit);
    let part = i64::from(us) * per_second;
    if part % 1_000_000 != 0 {
        return Err("it has more digits of the second; declare TIMESTAMP(6)");
    }
    let whole = seconds.checked_mul(per_second).and_then(|s| s.checked_add(part / 1_000_000));
    whole.ok_or("TIMESTAMP(9) reaches from 1677 to 2262")
}

/// A value as text: numbers as Flink casts them, times as MySQL writes them.
fn shown(value: &Value, column: &Column) -> String {
    let mut text = String::new();
    match value {
        Value::NULL => text.push_str("NULL"),
        Value::Bytes(bytes) if column.column_type() == ColumnType::MYSQL_TYPE_BIT => {
            text = bits(bytes).map(|b| b.to_string()).unwrap_or_default();
        }
        Value::Bytes(bytes) if column.character_set() == BINARY && std::str::from_utf8(bytes).is_err() => {
            text.push_str("0x");
            bytes.iter().take(32).for_each(|b| write!(text, "{b:02X}").unwrap_or_default());
        }
        Value::Bytes(bytes) => text = String::from_utf8_lossy(bytes).into_owned(),
        Value::Int(v) => text = v.to_string(),
        Value::UInt(v) => text = v.to_string(),
        Value::Float(v) => text = written(|out| value::write_f32(out, *v)),
        Value::Double(v) => text = written(|out| value::write_f64(out, *v)),
        Value::Date(year, month, day, hour, minute, second, us) => {
            // Writing to a String does not fail.
            let _ = write!(text, "{year:04}-{month:02}-{day:02}");
            if column.column_type() != ColumnType::MYSQL_TYPE_DATE {
                let _ = write!(text, " {hour:02}:{minute:02}:{second:02}");
                fraction(&mut text, *us, column);
            }
        }
        Value::Time(negative, days, hours, minutes, seconds, us) => {
            let sign = if *negative { "-" } else { "" };
            let _ = write!(text, "{sign}{:02}:{minutes:02}:{seconds:02}", days * 24 + u32::from(*hours));
            fraction(&mut text, *us, column);
        }
    }
    text
}

/// The fraction of a second with the digits that the column has.
fn fraction(text: &mut String, us: u32, column: &Column) {
    let digits = usize::from(column.decimals()).min(6);
    let digits = if us == 0 { digits } else { digits.max(1) };
    if digits > 0 {
        let all = format!("{us:06}");
        let digits = if all[digits..].bytes().any(|b| b != b'0') { 6 } else { digits };
        text.push('.');
        text.push_str(&all[..digits]);
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests;
