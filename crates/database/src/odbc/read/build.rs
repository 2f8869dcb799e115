//! Values of a column, one after the other, as one of Arrow's. Each is what the column's type says, or refused.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder, Int64Builder,
    StringBuilder, Time32MillisecondBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use tidemill_block::value;
use tidemill_format::types::{plain_type, type_name};

use super::super::ffi::{Date, Form, Timestamp};
use super::parse::{date, day, decimal, fits, moment, timestamp, utf16};
use crate::driver::DbError;

/// Characters of a value that a message shows.
const SHOWN_CHARS_MAX: usize = 100;
/// Whole numbers up to here are exact as doubles, and as floats.
const EXACT_DOUBLE: u128 = 1 << 53;
const EXACT_FLOAT: u128 = 1 << 24;
const SECONDS_OF_DAY: i64 = 86_400;

/// A column that is being filled.
pub(super) struct Builder {
    values: Filled,
    /// Its type, for messages.
    name: String,
    scratch: String,
}

enum Filled {
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
    Date(Date32Builder),
    Time(Time32MillisecondBuilder),
    Timestamp {
        values: Int64Builder,
        unit: TimeUnit,
    },
}

impl Builder {
    /// An empty one; `None` for types that there is nothing for.
    pub fn new(data_type: &DataType) -> Option<Self> {
        let integer = |min: i64, max: i64| Filled::Integer { values: Int64Builder::new(), min, max };
        let values = match data_type {
            DataType::UInt8 => integer(0, u8::MAX.into()),
            DataType::UInt16 => integer(0, u16::MAX.into()),
            DataType::UInt32 => integer(0, u32::MAX.into()),
            DataType::Timestamp(unit, _) => Filled::Timestamp { values: Int64Builder::new(), unit: *unit },
            other => match plain_type(other) {
                DataType::Boolean => Filled::Boolean(BooleanBuilder::new()),
                DataType::Int8 => integer(i8::MIN.into(), i8::MAX.into()),
                DataType::Int16 => integer(i16::MIN.into(), i16::MAX.into()),
                DataType::Int32 => integer(i32::MIN.into(), i32::MAX.into()),
                DataType::Int64 => integer(i64::MIN, i64::MAX),
                DataType::Float32 => Filled::Float(Float32Builder::new()),
                DataType::Float64 => Filled::Double(Float64Builder::new()),
                DataType::Decimal128(precision, scale) => Filled::Decimal {
                    values: Decimal128Builder::new().with_data_type(DataType::Decimal128(precision, scale)),
                    precision,
                    scale,
                },
                DataType::Utf8 => Filled::Text(StringBuilder::new()),
                DataType::Binary => Filled::Bytes(BinaryBuilder::new()),
                DataType::Date32 => Filled::Date(Date32Builder::new()),
                DataType::Time32(TimeUnit::Millisecond) => Filled::Time(Time32MillisecondBuilder::new()),
                _ => return None,
            },
        };
        Some(Builder { values, name: type_name(data_type), scratch: String::new() })
    }

    fn wrong(&self, value: impl std::fmt::Display) -> String {
        let text = value.to_string();
        let more = if text.chars().nth(SHOWN_CHARS_MAX).is_some() { "…" } else { "" };
        format!("{}{more} is no {}, or not within its range and digits", text.chars().take(SHOWN_CHARS_MAX).collect::<String>(), self.name)
    }

    fn null(&mut self) {
        match &mut self.values {
            Filled::Boolean(values) => values.append_null(),
            Filled::Integer { values, .. } | Filled::Timestamp { values, .. } => values.append_null(),
            Filled::Float(values) => values.append_null(),
            Filled::Double(values) => values.append_null(),
            Filled::Decimal { values, .. } => values.append_null(),
            Filled::Text(values) => values.append_null(),
            Filled::Bytes(values) => values.append_null(),
            Filled::Date(values) => values.append_null(),
            Filled::Time(values) => values.append_null(),
        }
    }

    /// Appends a whole number; `None` is NULL, as below.
    ///
    /// # Errors
    /// What is wrong with it, as below.
    pub fn integer(&mut self, number: Option<i128>) -> Result<(), String> {
        let Some(v) = number else {
            self.null();
            return Ok(());
        };
        match &mut self.values {
            Filled::Boolean(values) if v == 0 || v == 1 => values.append_value(v == 1),
            Filled::Integer { values, min, max } if (i128::from(*min)..=i128::from(*max)).contains(&v) => values.append_value(v as i64),
            Filled::Float(values) if v.unsigned_abs() <= EXACT_FLOAT => values.append_value(v as f32),
            Filled::Double(values) if v.unsigned_abs() <= EXACT_DOUBLE => values.append_value(v as f64),
            Filled::Decimal { values, precision, scale } => match value::parse_decimal(v.to_string().as_bytes(), *precision, *scale) {
                Some(scaled) => values.append_value(scaled),
                None => return Err(self.wrong(v)),
            },
            // Only what is a BOOLEAN there comes here.
            Filled::Text(values) => values.append_value(if v == 0 { "false" } else { "true" }),
            _ => return Err(self.wrong(v)),
        }
        Ok(())
    }

    /// Appends a double.
    ///
    /// # Errors
    /// See [`Builder::integer`].
    pub fn double(&mut self, number: Option<f64>) -> Result<(), String> {
        let Some(v) = number else {
            self.null();
            return Ok(());
        };
        match &mut self.values {
            Filled::Float(values) if !(v.is_finite() && (v as f32).is_infinite()) => values.append_value(v as f32),
            Filled::Double(values) => values.append_value(v),
            // The decimal next to it: a double is near what was meant, and this one is what it was made of.
            Filled::Decimal { values, precision, scale } if v.is_finite() => {
                match value::parse_decimal(format!("{v:e}").as_bytes(), *precision, *scale) {
                    Some(scaled) => values.append_value(scaled),
                    None => return Err(self.wrong(v)),
                }
            }
            // Doubles beyond 2^53 leave out numbers.
            Filled::Boolean(_) | Filled::Integer { .. } if v.fract() == 0.0 && v.abs() <= EXACT_DOUBLE as f64 => {
                return self.integer(Some(v as i128));
            }
            _ => return Err(self.wrong(v)),
        }
        Ok(())
    }

    /// Appends a date.
    ///
    /// # Errors
    /// See [`Builder::integer`].
    pub fn date(&mut self, date: Option<Date>) -> Result<(), String> {
        let Some(v) = date else {
            self.null();
            return Ok(());
        };
        let Date { year, month, day: of_month } = v;
        let taken = day(v).and_then(|days| match &mut self.values {
            Filled::Date(values) => i32::try_from(days).ok().map(|days| values.append_value(days)),
            Filled::Timestamp { values, unit } => {
                days.checked_mul(SECONDS_OF_DAY * value::units_per_second(*unit)).map(|units| values.append_value(units))
            }
            _ => None,
        });
        taken.ok_or_else(|| self.wrong(format_args!("{year:04}-{month:02}-{of_month:02}")))
    }

    /// Appends a timestamp.
    ///
    /// # Errors
    /// See [`Builder::integer`].
    pub fn timestamp(&mut self, timestamp: Option<Timestamp>) -> Result<(), String> {
        let Some(v) = timestamp else {
            self.null();
            return Ok(());
        };
        let taken = match &mut self.values {
            Filled::Timestamp { values, unit } => moment(v, *unit).map(|units| values.append_value(units)),
            Filled::Date(values) => {
                let day = moment(v, TimeUnit::Second).filter(|s| s.rem_euclid(SECONDS_OF_DAY) == 0).map(|s| s.div_euclid(SECONDS_OF_DAY));
                day.and_then(|day| i32::try_from(day).ok()).map(|day| values.append_value(day))
            }
            _ => None,
        };
        taken.ok_or_else(|| {
            let Timestamp { year, month, day, hour, minute, second, fraction } = v;
            self.wrong(format_args!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:09}"))
        })
    }

    /// Appends text or bytes. `lower`: hexadecimal digits that are to be in lower case.
    ///
    /// # Errors
    /// See [`Builder::integer`].
    pub fn bytes(&mut self, form: Form, value: Option<&[u8]>, lower: bool) -> Result<(), String> {
        let Some(bytes) = value else {
            self.null();
            return Ok(());
        };
        if let Filled::Bytes(values) = &mut self.values {
            values.append_value(bytes);
            return Ok(());
        }
        if form == Form::Wide {
            self.scratch.clear();
            if !utf16(bytes, &mut self.scratch) {
                return Err(self.wrong("a text that is no UTF-16"));
            }
        } else {
            let Ok(text) = std::str::from_utf8(bytes) else { return Err(self.wrong("a text that is no UTF-8")) };
            self.scratch.clear();
            self.scratch.push_str(text);
        }
        if let Filled::Text(values) = &mut self.values {
            if lower {
                self.scratch.make_ascii_lowercase();
            }
            values.append_value(&self.scratch);
            return Ok(());
        }
        if self.parsed() { Ok(()) } else { Err(self.wrong(format_args!("'{}'", self.scratch))) }
    }

    /// Appends the value that `scratch` is the text of; false if it is none.
    fn parsed(&mut self) -> bool {
        let text = self.scratch.trim();
        let bytes = text.as_bytes();
        let taken = match &mut self.values {
            Filled::Boolean(values) => {
                let truth = match text.to_ascii_lowercase().as_str() {
                    "1" | "t" | "true" => Some(true),
                    "0" | "f" | "false" => Some(false),
                    _ => None,
                };
                truth.map(|truth| values.append_value(truth))
            }
            // With digits behind the point, if they are zeros.
            Filled::Integer { values, min, max } => decimal(bytes, 38, 0)
                .and_then(|n| i64::try_from(n).ok())
                .filter(|n| (*min..=*max).contains(n))
                .map(|n| values.append_value(n)),
            Filled::Float(values) => {
                let number = text.parse::<f64>().ok().filter(|v| !(v.is_finite() && (*v as f32).is_infinite()));
                number.map(|v| values.append_value(v as f32))
            }
            Filled::Double(values) => text.parse::<f64>().ok().map(|v| values.append_value(v)),
            Filled::Decimal { values, precision, scale } => decimal(bytes, *precision, *scale).map(|v| values.append_value(v)),
            Filled::Date(values) => date(bytes).map(|day| values.append_value(day)),
            Filled::Time(values) => Some(bytes).filter(|t| fits(t, 3)).and_then(value::parse_time_ms).map(|ms| values.append_value(ms)),
            Filled::Timestamp { values, unit } => timestamp(bytes, *unit).map(|units| values.append_value(units)),
            Filled::Text(_) | Filled::Bytes(_) => None,
        };
        taken.is_some()
    }

    /// The column, and begins anew.
    ///
    /// # Errors
    /// Values that its own type does not hold.
    pub fn finish(&mut self, data_type: &DataType) -> Result<ArrayRef, DbError> {
        let array: ArrayRef = match &mut self.values {
            Filled::Boolean(values) => Arc::new(values.finish()),
            Filled::Integer { values, .. } | Filled::Timestamp { values, .. } => Arc::new(values.finish()),
            Filled::Float(values) => Arc::new(values.finish()),
            Filled::Double(values) => Arc::new(values.finish()),
            Filled::Decimal { values, .. } => Arc::new(values.finish()),
            Filled::Text(values) => Arc::new(values.finish()),
            Filled::Bytes(values) => Arc::new(values.finish()),
            Filled::Date(values) => Arc::new(values.finish()),
            Filled::Time(values) => Arc::new(values.finish()),
        };
        if array.data_type() == data_type {
            return Ok(array);
        }
        let made = cast(&array, data_type)?;
        // A cast makes NULLs of what it cannot hold.
        match made.null_count() == array.null_count() {
            true => Ok(made),
            false => Err(DbError::data(format!("a value of the database is no {}", self.name))),
        }
    }
}
