//! Values of results into columns of the job.
//!
//! The driver gives rows of values; each goes into the column under construction if nothing of it is lost, or is an
//! error that names column and value. Numbers go over their decimal digits, which a `NUMBER` is made of. An empty `CLOB`
//! or `BLOB` comes as NULL, which is how the driver fetches them.

use std::fmt::Write as _;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use oracledb::{Error, Metadata, OracleNumber, OracleTimestamp, Row};
use tidemill_block::value::{days_from_civil, parse_time_ms, units_per_second};
use tidemill_format::types::type_name;

use super::error::{db_error, shortened};
use crate::driver::DbError;
use crate::filled::{BATCH_BYTES_MAX, Values};

const SECONDS_OF_DAY: i64 = 86_400;
const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// The longest text that is a time of day, `HH:mm:ss.SSS`: digits beyond would be cut off.
const TIME_BYTES_MAX: usize = 12;
const RANGE: &str = "it is out of range; declare a wider type";

/// A value of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'r> {
    Null,
    /// Its digits, without an exponent.
    Number(&'r str),
    Float(f32),
    Double(f64),
    Bool(bool),
    Text(&'r str),
    Bytes(&'r [u8]),
    Moment {
        at: OracleTimestamp,
        /// It has a time zone, and is in UTC.
        zoned: bool,
    },
}

/// How a column of the result is taken from a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Number,
    Float,
    Double,
    Bool,
    Text,
    /// Text that the driver makes for it: the address of a row.
    Made,
    Bytes,
    Moment {
        zoned: bool,
    },
}

impl Taken {
    /// By the type's name in the driver; `None` if it is not read.
    fn of(name: &str) -> Option<Taken> {
        Some(match name {
            "DB_TYPE_NUMBER" => Taken::Number,
            "DB_TYPE_BINARY_FLOAT" => Taken::Float,
            "DB_TYPE_BINARY_DOUBLE" => Taken::Double,
            "DB_TYPE_BOOLEAN" => Taken::Bool,
            // CLOB and NCLOB come as the long ones.
            "DB_TYPE_VARCHAR"
            | "DB_TYPE_NVARCHAR"
            | "DB_TYPE_CHAR"
            | "DB_TYPE_NCHAR"
            | "DB_TYPE_LONG"
            | "DB_TYPE_LONG_NVARCHAR"
            | "DB_TYPE_UROWID" => Taken::Text,
            "DB_TYPE_ROWID" => Taken::Made,
            "DB_TYPE_RAW" | "DB_TYPE_LONG_RAW" => Taken::Bytes,
            "DB_TYPE_DATE" | "DB_TYPE_TIMESTAMP" => Taken::Moment { zoned: false },
            "DB_TYPE_TIMESTAMP_TZ" | "DB_TYPE_TIMESTAMP_LTZ" => Taken::Moment { zoned: true },
            _ => return None,
        })
    }

    /// A value of a row; `scratch` holds text that is made for it.
    fn value<'r>(self, row: &'r Row, column: usize, scratch: &'r mut String) -> Result<Value<'r>, Error> {
        scratch.clear();
        Ok(match self {
            Taken::Number => {
                let found: Option<OracleNumber> = row.get(column)?;
                match found {
                    // A String takes everything.
                    Some(number) if write!(scratch, "{number}").is_ok() => Value::Number(scratch),
                    _ => Value::Null,
                }
            }
            Taken::Float => row.get::<Option<f32>>(column)?.map_or(Value::Null, Value::Float),
            Taken::Double => row.get::<Option<f64>>(column)?.map_or(Value::Null, Value::Double),
            Taken::Bool => row.get::<Option<bool>>(column)?.map_or(Value::Null, Value::Bool),
            Taken::Text => row.get::<Option<&str>>(column)?.map_or(Value::Null, Value::Text),
            Taken::Made => match row.get::<Option<String>>(column)? {
                Some(text) => {
                    *scratch = text;
                    Value::Text(scratch)
                }
                None => Value::Null,
            },
            Taken::Bytes => row.get::<Option<&[u8]>>(column)?.map_or(Value::Null, Value::Bytes),
            Taken::Moment { zoned } => row.get::<Option<OracleTimestamp>>(column)?.map_or(Value::Null, |at| Value::Moment { at, zoned }),
        })
    }
}

/// The columns of a result under construction.
pub(super) struct Columns {
    schema: SchemaRef,
    builders: Vec<Builder>,
    taken: Vec<Taken>,
    scratch: String,
    rows: usize,
    bytes: usize,
}

struct Builder {
    name: String,
    data_type: DataType,
    values: Values,
}

impl Columns {
    /// For rows of `schema`.
    ///
    /// # Errors
    /// A type that nothing is read into.
    pub fn new(schema: &SchemaRef) -> Result<Self, DbError> {
        let builders = schema.fields().iter().map(|field| Builder::new(field)).collect::<Result<_, _>>()?;
        Ok(Columns { schema: schema.clone(), builders, taken: Vec::new(), scratch: String::new(), rows: 0, bytes: 0 })
    }

    /// Takes in what the server says of the columns that follow.
    ///
    /// # Errors
    /// They are not as many as expected, or of a type that is not read.
    pub fn describe(&mut self, columns: &[Metadata]) -> Result<(), DbError> {
        if columns.len() != self.builders.len() {
            let (found, expected) = (columns.len(), self.builders.len());
            return Err(DbError::fatal(format!("the server answered with {found} columns instead of {expected}")));
        }
        let one = |(column, builder): (&Metadata, &Builder)| {
            Taken::of(column.db_type().name()).ok_or_else(|| {
                let (name, found) = (&builder.name, column.data_type());
                DbError::fatal(format!("column '{name}': {found} is not read; make it another type in a view (JSON_SERIALIZE, TO_CHAR)"))
            })
        };
        self.taken = columns.iter().zip(&self.builders).map(one).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Appends a row.
    ///
    /// # Errors
    /// A value that does not fit, with its column.
    pub fn push(&mut self, row: &Row) -> Result<(), DbError> {
        for (i, (builder, taken)) in self.builders.iter_mut().zip(&self.taken).enumerate() {
            let value = taken.value(row, i, &mut self.scratch);
            let value = value.map_err(|e| db_error(&format!("reading column '{}'", builder.name), &e))?;
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
        let values = Values::new(field, "Oracle")?;
        Ok(Builder { name: field.name().clone(), data_type: field.data_type().clone(), values })
    }

    /// Appends a value; how many bytes it takes, about.
    fn push(&mut self, value: Value<'_>) -> Result<usize, DbError> {
        if matches!(value, Value::Null) {
            self.values.push_null();
            return Ok(1);
        }
        push(&mut self.values, value, &self.data_type).map_err(|why| {
            let (name, shown) = (&self.name, shortened(&shown(value)));
            DbError::data(format!("column '{name}': the value {shown} cannot be {}: {why}", type_name(&self.data_type)))
        })
    }

    fn finish(&mut self) -> Result<ArrayRef, DbError> {
        self.values.finish(&self.name, &self.data_type)
    }
}

/// Appends a value that is not NULL; how many bytes it takes.
fn push(filled: &mut Values, value: Value<'_>, to: &DataType) -> Result<usize, &'static str> {
    Ok(match filled {
        Values::Bool(values) => {
            values.append_value(boolean(value)?);
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
                DataType::Time32(_) => time_of_day(value)?,
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
            values.append_value(float(value)?);
            4
        }
        Values::F64(values) => {
            values.append_value(double(value)?);
            8
        }
        Values::Decimal(values) => {
            let DataType::Decimal128(precision, scale) = to else { return Err("it is no number") };
            values.append_value(decimal(value, *precision, *scale)?);
            16
        }
        Values::Text(values) => match value {
            Value::Text(text) => {
                values.append_value(text);
                text.len()
            }
            _ if *to != DataType::Utf8 => return Err("it is no text, which would hold JSON"),
            Value::Bytes(_) => return Err("it is bytes; declare BYTES"),
            other => {
                let text = shown(other);
                values.append_value(&text);
                text.len()
            }
        },
        Values::Bytes(values) => match value {
            Value::Bytes(bytes) => {
                values.append_value(bytes);
                bytes.len()
            }
            _ => return Err("it is no bytes"),
        },
    })
}

fn boolean(value: Value<'_>) -> Result<bool, &'static str> {
    match value {
        Value::Bool(v) => Ok(v),
        Value::Number("0") => Ok(false),
        Value::Number("1") => Ok(true),
        _ => Err("it is neither 0 nor 1"),
    }
}

/// A whole number.
fn integer(value: Value<'_>) -> Result<i128, &'static str> {
    let Value::Number(text) = value else { return Err("it is no whole number") };
    if text.contains('.') { Err("it is no whole number") } else { text.parse().map_err(|_| RANGE) }
}

fn float(value: Value<'_>) -> Result<f32, &'static str> {
    match value {
        Value::Float(v) => Ok(v),
        Value::Double(_) => Err("it is a double; declare DOUBLE"),
        Value::Number(text) => {
            let found: f32 = text.parse().map_err(|_| RANGE)?;
            if found.to_string() == text { Ok(found) } else { Err("it has more digits than a FLOAT; declare DECIMAL, or DOUBLE") }
        }
        _ => Err("it is no number"),
    }
}

fn double(value: Value<'_>) -> Result<f64, &'static str> {
    match value {
        Value::Double(v) => Ok(v),
        Value::Float(v) => Ok(v.into()),
        Value::Number(text) => {
            let found: f64 = text.parse().map_err(|_| RANGE)?;
            if found.to_string() == text { Ok(found) } else { Err("it has more digits than a DOUBLE; declare DECIMAL") }
        }
        _ => Err("it is no number"),
    }
}

/// A number in units of the scale.
fn decimal(value: Value<'_>, precision: u8, scale: i8) -> Result<i128, &'static str> {
    const DIGITS: &str = "it has more digits";
    let text = match value {
        Value::Number(text) => text,
        Value::Float(_) | Value::Double(_) => return Err("it is a floating-point number; declare DOUBLE"),
        _ => return Err("it is no number"),
    };
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let scale = usize::try_from(scale).map_err(|_| DIGITS)?;
    if fraction.len() > scale {
        return Err("it has more decimals");
    }
    let padding = std::iter::repeat_n(b'0', scale - fraction.len());
    let mut found = 0i128;
    for digit in whole.bytes().chain(fraction.bytes()).chain(padding) {
        found = found.checked_mul(10).and_then(|v| v.checked_add(i128::from(digit.wrapping_sub(b'0')))).ok_or(DIGITS)?;
    }
    if found >= 10i128.pow(precision.min(38).into()) {
        return Err(DIGITS);
    }
    Ok(if negative { -found } else { found })
}

/// Days since 1970, and nanoseconds of the day.
fn day_and_time(at: OracleTimestamp) -> Result<(i64, i64), &'static str> {
    if at.year() < 1 {
        return Err("it is before the year 1");
    }
    let days = days_from_civil(at.year().into(), at.month().into(), at.day().into());
    let seconds = i64::from(at.hour()) * 3600 + i64::from(at.minute()) * 60 + i64::from(at.second());
    Ok((days, seconds * NANOS_PER_SECOND + i64::from(at.nanoseconds())))
}

fn date(value: Value<'_>) -> Result<i32, &'static str> {
    match value {
        Value::Moment { at, zoned: false } => match day_and_time(at)? {
            (days, 0) => Ok(days as i32),
            _ => Err("it has a time of day, as DATE there may; declare TIMESTAMP(0)"),
        },
        _ => Err("it is no date"),
    }
}

fn time_of_day(value: Value<'_>) -> Result<i32, &'static str> {
    let Value::Text(text) = value else { return Err("it is no text like 08:00:00.5") };
    let found = parse_time_ms(text.as_bytes()).filter(|_| text.len() <= TIME_BYTES_MAX);
    found.ok_or("it is no text like 08:00:00.5")
}

/// Units since 1970.
fn timestamp(value: Value<'_>, unit: TimeUnit, with_zone: bool) -> Result<i64, &'static str> {
    match value {
        Value::Moment { at, zoned } if zoned == with_zone => {
            let (days, nanos) = day_and_time(at)?;
            let per_second = units_per_second(unit);
            let part = nanos % NANOS_PER_SECOND;
            let coarser = NANOS_PER_SECOND / per_second;
            if part % coarser != 0 {
                return Err("it has more digits of the second; declare more");
            }
            let seconds = days * SECONDS_OF_DAY + nanos / NANOS_PER_SECOND;
            seconds
                .checked_mul(per_second)
                .and_then(|v| v.checked_add(part / coarser))
                .ok_or("the type does not reach so far; declare fewer digits")
        }
        Value::Moment { zoned: true, .. } => Err("it has a time zone; declare TIMESTAMP_LTZ"),
        Value::Moment { .. } => Err("it has no time zone; declare TIMESTAMP"),
        _ => Err("it is no timestamp"),
    }
}

/// A value as text.
fn shown(value: Value<'_>) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Number(text) | Value::Text(text) => text.into(),
        Value::Float(v) => v.to_string(),
        Value::Double(v) => v.to_string(),
        Value::Bool(v) => v.to_string(),
        Value::Bytes(bytes) => format!("of {} bytes", bytes.len()),
        Value::Moment { at, zoned } => {
            let (h, m, s) = (at.hour(), at.minute(), at.second());
            let mut text = format!("{:04}-{:02}-{:02} {h:02}:{m:02}:{s:02}", at.year(), at.month(), at.day());
            if at.nanoseconds() != 0 {
                text.push_str(format!(".{:09}", at.nanoseconds()).trim_end_matches('0'));
            }
            if zoned {
                text.push('Z');
            }
            text
        }
    }
}

#[cfg(test)]
mod tests;
