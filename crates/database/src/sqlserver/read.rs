//! Values of results into columns of the job.
//!
//! The client gives rows of values; each goes into the column under construction if nothing of it is lost, or is an
//! error that names column and value. `money` comes from the client as a double, which is exact up to
//! [`MONEY_UNITS_MAX`]; larger amounts are refused. Of `char` and `nchar` the blanks behind the text are no part of the value: they
//! say how long the column is, and a key that was looked up without them would not be the one that was found.

use std::fmt::Write as _;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use tiberius::time::{DateTime2, Time};
use tiberius::{Column, ColumnData, ColumnType, Row};
use tidemill_block::value::{units_per_second, write_date, write_decimal, write_f32, write_f64, write_timestamp};
use tidemill_format::types::type_name;

use super::encode::{DAYS_1900_TO_1970, DAYS_TO_1970, millis_of};
use super::error::shortened;
use crate::driver::DbError;
use crate::filled::{BATCH_BYTES_MAX, Values};

/// Units of 1/10,000 up to which a double that stands for money says exactly which (112 billion).
const MONEY_UNITS_MAX: f64 = (1u64 << 50) as f64;
/// Whole numbers up to here are exact as doubles.
const EXACT_DOUBLE: u64 = 1 << 53;
const SECONDS_OF_DAY: i64 = 86_400;

/// The columns of a result under construction.
pub(super) struct Columns {
    schema: SchemaRef,
    builders: Vec<Builder>,
    rows: usize,
    bytes: usize,
}

struct Builder {
    name: String,
    data_type: DataType,
    values: Values,
    /// Doubles are money.
    money: bool,
    /// Texts have blanks behind them, up to the length of the column.
    padded: bool,
}

impl Columns {
    /// For rows of `schema`.
    ///
    /// # Errors
    /// A type that nothing is read into.
    pub fn new(schema: &SchemaRef) -> Result<Self, DbError> {
        let builders = schema.fields().iter().map(|field| Builder::new(field)).collect::<Result<_, _>>()?;
        Ok(Columns { schema: schema.clone(), builders, rows: 0, bytes: 0 })
    }

    /// Takes in what the server says of the columns that follow.
    ///
    /// # Errors
    /// They are not as many as expected.
    pub fn describe(&mut self, columns: &[Column]) -> Result<(), DbError> {
        if columns.len() != self.builders.len() {
            let (found, expected) = (columns.len(), self.builders.len());
            return Err(DbError::fatal(format!("the server answered with {found} columns instead of {expected}")));
        }
        for (builder, column) in self.builders.iter_mut().zip(columns) {
            builder.money = matches!(column.column_type(), ColumnType::Money | ColumnType::Money4);
            builder.padded = matches!(column.column_type(), ColumnType::BigChar | ColumnType::NChar);
        }
        Ok(())
    }

    /// Appends a row.
    ///
    /// # Errors
    /// A value that does not fit, with its column.
    pub fn push(&mut self, row: Row) -> Result<(), DbError> {
        for (builder, value) in self.builders.iter_mut().zip(row) {
            self.bytes += builder.push(value)?;
        }
        self.rows += 1;
        Ok(())
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether a batch of at most `rows` rows is complete.
    pub fn is_full(&self, rows: usize) -> bool {
        self.rows >= rows || self.bytes >= BATCH_BYTES_MAX
    }

    /// The rows so far; begins anew.
    ///
    /// # Errors
    /// A text that is no JSON of the type.
    pub fn take(&mut self) -> Result<RecordBatch, DbError> {
        let columns = self.builders.iter_mut().map(Builder::finish).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

impl Builder {
    fn new(field: &Field) -> Result<Self, DbError> {
        let values = Values::new(field, "SQL Server")?;
        Ok(Builder { name: field.name().clone(), data_type: field.data_type().clone(), values, money: false, padded: false })
    }

    /// Appends a value; how many bytes it takes, about.
    fn push(&mut self, value: ColumnData<'static>) -> Result<usize, DbError> {
        if is_null(&value) {
            self.values.push_null();
            return Ok(1);
        }
        let value = match value {
            ColumnData::String(Some(text)) if self.padded => {
                let mut text = text.into_owned();
                text.truncate(text.trim_end_matches(' ').len());
                ColumnData::String(Some(text.into()))
            }
            value => value,
        };
        match push(&mut self.values, &value, &self.data_type, self.money) {
            Ok(bytes) => Ok(bytes),
            Err(why) => {
                let (name, shown) = (&self.name, shortened(&shown(&value)));
                Err(DbError::data(format!("column '{name}': the value {shown} cannot be {}: {why}", type_name(&self.data_type))))
            }
        }
    }

    fn finish(&mut self) -> Result<ArrayRef, DbError> {
        self.values.finish(&self.name, &self.data_type)
    }
}

/// Appends a value that is not NULL; how many bytes it takes.
fn push(filled: &mut Values, value: &ColumnData<'static>, to: &DataType, money: bool) -> Result<usize, &'static str> {
    const RANGE: &str = "it is out of range; declare a wider type";
    let width = match filled {
        Values::Bool(values) => {
            let ColumnData::Bit(Some(bit)) = value else { return Err("it is no bit") };
            values.append_value(*bit);
            1
        }
        Values::I8(values) => {
            values.append_value(i8::try_from(integer(value)?).map_err(|_| RANGE)?);
            1
        }
        Values::I16(values) => {
            values.append_value(i16::try_from(integer(value)?).map_err(|_| RANGE)?);
            2
        }
        Values::I32(values) => {
            values.append_value(match to {
                DataType::Date32 => date(value)?,
                DataType::Time32(unit) => time_of_day(value, *unit)?,
                _ => i32::try_from(integer(value)?).map_err(|_| RANGE)?,
            });
            4
        }
        Values::I64(values) => {
            values.append_value(match to {
                DataType::Timestamp(unit, zone) => timestamp(value, *unit, zone.is_some())?,
                _ => i64::try_from(integer(value)?).map_err(|_| RANGE)?,
            });
            8
        }
        Values::F32(values) => {
            let ColumnData::F32(Some(number)) = value else { return Err("it is no REAL; declare the type that it is") };
            values.append_value(*number);
            4
        }
        Values::F64(values) => {
            values.append_value(double(value, money)?);
            8
        }
        Values::Decimal(values) => {
            let DataType::Decimal128(precision, scale) = to else { return Err("it is no number") };
            values.append_value(decimal(value, money, *precision, *scale)?);
            16
        }
        Values::Text(values) => match value {
            ColumnData::String(Some(text)) => {
                values.append_value(text);
                text.len()
            }
            _ if *to != DataType::Utf8 => return Err("it is no text, which would hold JSON"),
            ColumnData::Binary(_) => return Err("it is bytes; declare BYTES"),
            ColumnData::F64(Some(amount)) if money => {
                let mut text = Vec::new();
                write_decimal(&mut text, money_units(*amount)?, 4);
                values.append_value(String::from_utf8_lossy(&text));
                text.len()
            }
            other => {
                let text = shown(other);
                values.append_value(&text);
                text.len()
            }
        },
        Values::Bytes(values) => {
            let ColumnData::Binary(Some(bytes)) = value else { return Err("it is no bytes") };
            values.append_value(bytes);
            bytes.len()
        }
    };
    Ok(width)
}

fn is_null(value: &ColumnData<'_>) -> bool {
    matches!(
        value,
        ColumnData::U8(None)
            | ColumnData::I16(None)
            | ColumnData::I32(None)
            | ColumnData::I64(None)
            | ColumnData::F32(None)
            | ColumnData::F64(None)
            | ColumnData::Bit(None)
            | ColumnData::String(None)
            | ColumnData::Guid(None)
            | ColumnData::Binary(None)
            | ColumnData::Numeric(None)
            | ColumnData::Xml(None)
            | ColumnData::DateTime(None)
            | ColumnData::SmallDateTime(None)
            | ColumnData::Time(None)
            | ColumnData::Date(None)
            | ColumnData::DateTime2(None)
            | ColumnData::DateTimeOffset(None)
    )
}

/// A whole number.
fn integer(value: &ColumnData<'_>) -> Result<i128, &'static str> {
    match value {
        ColumnData::U8(Some(v)) => Ok((*v).into()),
        ColumnData::I16(Some(v)) => Ok((*v).into()),
        ColumnData::I32(Some(v)) => Ok((*v).into()),
        ColumnData::I64(Some(v)) => Ok((*v).into()),
        ColumnData::Numeric(Some(v)) => rescaled(v.value(), v.scale().into(), 0).ok_or("it is no whole number"),
        _ => Err("it is no whole number"),
    }
}

fn double(value: &ColumnData<'_>, money: bool) -> Result<f64, &'static str> {
    match value {
        ColumnData::F64(Some(_)) if money => Err("it is money; declare DECIMAL(19, 4)"),
        ColumnData::F64(Some(v)) => Ok(*v),
        ColumnData::F32(Some(v)) => Ok((*v).into()),
        ColumnData::U8(_) | ColumnData::I16(_) | ColumnData::I32(_) | ColumnData::I64(_) => {
            let number = integer(value)?;
            if number.unsigned_abs() <= EXACT_DOUBLE.into() {
                Ok(number as f64)
            } else {
                Err("it has more digits than a DOUBLE; declare BIGINT")
            }
        }
        ColumnData::Numeric(_) => Err("it is a decimal number; declare DECIMAL"),
        _ => Err("it is no number"),
    }
}

fn decimal(value: &ColumnData<'_>, money: bool, precision: u8, scale: i8) -> Result<i128, &'static str> {
    let (unscaled, from) = match value {
        ColumnData::Numeric(Some(v)) => (v.value(), i32::from(v.scale())),
        ColumnData::F64(Some(v)) if money => (money_units(*v)?, 4),
        ColumnData::F32(_) | ColumnData::F64(_) => return Err("it is a floating-point number; declare DOUBLE"),
        _ => (integer(value)?, 0),
    };
    let found = rescaled(unscaled, from, scale.into()).ok_or("it has more decimals, or more digits")?;
    let limit = 10u128.pow(precision.min(38).into());
    if found.unsigned_abs() < limit { Ok(found) } else { Err("it has more digits") }
}

/// Units of 1/10,000 of an amount.
fn money_units(amount: f64) -> Result<i128, &'static str> {
    let units = (amount * 10_000.0).round();
    if units.abs() <= MONEY_UNITS_MAX {
        Ok(units as i128)
    } else {
        Err("so large an amount of money loses digits on its way; select it as CAST(… AS decimal(19,4)) in a view")
    }
}

/// A decimal of scale `from` in units of scale `to`; `None` if it is between two, or too large.
fn rescaled(v: i128, from: i32, to: i32) -> Option<i128> {
    let unit = 10i128.checked_pow((to - from).unsigned_abs())?;
    if to >= from { v.checked_mul(unit) } else { (v % unit == 0).then(|| v / unit) }
}

fn date(value: &ColumnData<'_>) -> Result<i32, &'static str> {
    match value {
        ColumnData::Date(Some(v)) => Ok((i64::from(v.days()) - DAYS_TO_1970) as i32),
        _ => Err("it is no date"),
    }
}

/// Units of a time since midnight in units of `per_second`.
fn since_midnight(time: Time, per_second: i64) -> Result<i64, &'static str> {
    let from = 10i128.checked_pow(time.scale().into()).unwrap_or(1);
    let units = i128::from(time.increments()) * i128::from(per_second);
    // At most a day of nanoseconds.
    if units % from == 0 { Ok((units / from) as i64) } else { Err("it has more digits of the second; declare more") }
}

fn time_of_day(value: &ColumnData<'_>, unit: TimeUnit) -> Result<i32, &'static str> {
    match value {
        ColumnData::Time(Some(v)) => Ok(since_midnight(*v, units_per_second(unit))? as i32),
        _ => Err("it is no time of day"),
    }
}

/// A moment since 1970.
fn moment(v: DateTime2, unit: TimeUnit) -> Result<i64, &'static str> {
    let per_second = units_per_second(unit);
    let days = i64::from(v.date().days()) - DAYS_TO_1970;
    let midnight = (days * SECONDS_OF_DAY).checked_mul(per_second);
    let part = since_midnight(v.time(), per_second)?;
    midnight.and_then(|m| m.checked_add(part)).ok_or("TIMESTAMP(9) reaches from 1677 to 2262")
}

fn timestamp(value: &ColumnData<'_>, unit: TimeUnit, zoned: bool) -> Result<i64, &'static str> {
    let per_second = units_per_second(unit);
    // Units since 1970 of days since 1900 and milliseconds.
    let since_1900 = |days: i64, ms: i64| {
        let ms = (days - DAYS_1900_TO_1970) * SECONDS_OF_DAY * 1000 + ms;
        match per_second >= 1000 {
            true => ms.checked_mul(per_second / 1000).ok_or("TIMESTAMP(9) reaches from 1677 to 2262"),
            false => (ms % 1000 == 0).then_some(ms / 1000).ok_or("it has more digits of the second; declare more"),
        }
    };
    match value {
        // What travels is the time in UTC.
        ColumnData::DateTimeOffset(Some(v)) if zoned => moment(v.datetime2(), unit),
        ColumnData::DateTimeOffset(_) => Err("it has a time zone; declare TIMESTAMP_LTZ"),
        ColumnData::DateTime2(_) | ColumnData::DateTime(_) | ColumnData::SmallDateTime(_) if zoned => {
            Err("it has no time zone; declare TIMESTAMP")
        }
        ColumnData::DateTime2(Some(v)) => moment(*v, unit),
        ColumnData::DateTime(Some(v)) => since_1900(v.days().into(), millis_of(v.seconds_fragments().into())),
        ColumnData::SmallDateTime(Some(v)) => since_1900(v.days().into(), i64::from(v.seconds_fragments()) * 60_000),
        _ => Err("it is no date with time"),
    }
}

/// A value as text: numbers as Flink casts them, times in ISO's form, bytes in hexadecimal.
fn shown(value: &ColumnData<'_>) -> String {
    let mut out = Vec::new();
    match value {
        ColumnData::U8(Some(v)) => return v.to_string(),
        ColumnData::I16(Some(v)) => return v.to_string(),
        ColumnData::I32(Some(v)) => return v.to_string(),
        ColumnData::I64(Some(v)) => return v.to_string(),
        ColumnData::Bit(Some(v)) => return u8::from(*v).to_string(),
        ColumnData::F32(Some(v)) => write_f32(&mut out, *v),
        ColumnData::F64(Some(v)) => write_f64(&mut out, *v),
        ColumnData::Numeric(Some(v)) => write_decimal(&mut out, v.value(), v.scale() as i8),
        ColumnData::String(Some(v)) => return v.to_string(),
        ColumnData::Xml(Some(v)) => return v.to_string(),
        ColumnData::Guid(Some(v)) => return v.to_string(),
        ColumnData::Binary(Some(v)) => {
            let mut text = String::from("0x");
            // Writing to a String does not fail.
            v.iter().take(64).for_each(|b| write!(text, "{b:02X}").unwrap_or_default());
            return text;
        }
        ColumnData::Date(_) => write_date(&mut out, date(value).unwrap_or_default()),
        ColumnData::Time(Some(v)) => {
            // The time of the first day, without the day.
            write_timestamp(&mut out, since_midnight(*v, 1_000_000_000).unwrap_or_default(), TimeUnit::Nanosecond, 0);
            out.drain(..out.len().min(11));
        }
        ColumnData::DateTime2(Some(v)) => show_moment(*v, &mut out),
        ColumnData::DateTimeOffset(Some(v)) => {
            show_moment(v.datetime2(), &mut out);
            out.push(b'Z');
        }
        ColumnData::DateTime(_) | ColumnData::SmallDateTime(_) => {
            let ms = timestamp(value, TimeUnit::Millisecond, false).unwrap_or_default();
            write_timestamp(&mut out, ms, TimeUnit::Millisecond, 0);
        }
        _ => out.extend_from_slice(b"NULL"),
    }
    String::from_utf8(out).unwrap_or_default()
}

/// Appends a moment with all digits of the second that it has.
fn show_moment(v: DateTime2, out: &mut Vec<u8>) {
    let seconds = i64::from(v.date().days()).saturating_sub(DAYS_TO_1970) * SECONDS_OF_DAY;
    let nanos = since_midnight(v.time(), 1_000_000_000).unwrap_or_default();
    write_timestamp(out, seconds + nanos / 1_000_000_000, TimeUnit::Second, 0);
    if nanos % 1_000_000_000 != 0 {
        let digits = format!(".{:09}", nanos % 1_000_000_000);
        out.extend_from_slice(digits.trim_end_matches('0').as_bytes());
    }
}

#[cfg(test)]
mod tests;
