//! Cells as values of the types that tables have, a column at a time. Numbers, dates and times are all numbers in a
//! sheet: days since 1900, or since 1904 in workbooks that say so; how a cell is shown tells them apart.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, PrimitiveArray, StringBuilder};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowPrimitiveType, ArrowTimestampType, DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, Time32MillisecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use calamine::DataRef;
use tidemill_block::value::{self, DAY_MS};

use crate::FormatError;
use crate::types::type_name;

/// The day 1970-01-01 in a workbook whose days count from 1900. It takes 1900 for a leap year; before the day that
/// never was, numbers are one less.
const DAYS_1900: i64 = 25_569;
/// The number of the day that never was, 1900-02-29.
const NO_DAY: i64 = 60;
/// The last day, 9999-12-31.
const LAST_DAY_1900: i64 = 2_958_465;
/// The same two where days count from 1904.
const DAYS_1904: i64 = 24_107;
const LAST_DAY_1904: i64 = 2_957_003;

/// The first whole number that BIGINT lacks, 2^63.
const TOO_LARGE: f64 = (1u64 << 63) as f64;

/// Why a cell is none of what its column holds.
type Why = String;

/// Milliseconds since 1970 of a number of days.
pub(super) fn moment_ms(serial: f64, is_1904: bool) -> Result<i64, Why> {
    let ms = (serial * DAY_MS as f64).round();
    // Also false for what is no number.
    if !(0.0..=(LAST_DAY_1900 + 1) as f64 * DAY_MS as f64).contains(&ms) {
        return Err(format!("{serial} is not the number of a day between 1900 and 9999"));
    }
    let (day, rest) = (ms as i64 / DAY_MS, ms as i64 % DAY_MS);
    let days = match day {
        _ if is_1904 && day <= LAST_DAY_1904 => day - DAYS_1904,
        0 if !is_1904 => return Err("it is a time without a date".to_string()),
        NO_DAY if !is_1904 => return Err("it is 1900-02-29, which never was".to_string()),
        _ if !is_1904 && day < NO_DAY => day - DAYS_1900 + 1,
        _ if !is_1904 && day <= LAST_DAY_1900 => day - DAYS_1900,
        _ => return Err(format!("{serial} is not the number of a day between 1900 and 9999")),
    };
    Ok(days * DAY_MS + rest)
}

/// The number of days of a moment, the inverse of [`moment_ms`] in a workbook whose days count from 1900; none before and
/// behind the days that it knows.
pub(super) fn serial(ms: i64) -> Option<f64> {
    let (days, rest) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    let day = match days + DAYS_1900 {
        day if day > NO_DAY => day,
        day => day - 1,
    };
    (1..=LAST_DAY_1900).contains(&day).then(|| day as f64 + rest as f64 / DAY_MS as f64)
}

/// Appends a cell as text; nothing of an empty one.
pub(super) fn show(out: &mut String, cell: &DataRef<'_>, is_1904: bool) {
    // Writing to a String does not fail.
    let _ = match cell {
        DataRef::Int(v) => write!(out, "{v}"),
        DataRef::Float(v) => write!(out, "{v}"),
        DataRef::Bool(v) => write!(out, "{v}"),
        DataRef::String(text) | DataRef::DateTimeIso(text) | DataRef::DurationIso(text) => {
            out.push_str(text);
            Ok(())
        }
        DataRef::SharedString(text) => {
            out.push_str(text);
            Ok(())
        }
        DataRef::Error(e) => write!(out, "{e}"),
        DataRef::Empty => Ok(()),
        DataRef::DateTime(at) => {
            let mut text = Vec::new();
            match moment_ms(at.as_f64(), is_1904) {
                Ok(ms) if at.is_datetime() && !is_time(at.as_f64()) => match ms.rem_euclid(DAY_MS) {
                    0 => value::write_date(&mut text, ms.div_euclid(DAY_MS) as i32),
                    _ => value::write_timestamp(&mut text, ms, TimeUnit::Millisecond, 0),
                },
                _ => match time_ms(at.as_f64()) {
                    Ok(ms) => value::write_time_ms(&mut text, ms),
                    Err(_) => text.extend_from_slice(at.as_f64().to_string().as_bytes()),
                },
            }
            out.push_str(&String::from_utf8_lossy(&text));
            Ok(())
        }
    };
}

/// Whether a number of days is a time of day without a date.
pub(super) fn is_time(serial: f64) -> bool {
    (0.0..1.0).contains(&serial)
}

/// Milliseconds since midnight of a part of a day.
fn time_ms(serial: f64) -> Result<i32, Why> {
    match (serial * DAY_MS as f64).round() {
        ms if (0.0..DAY_MS as f64).contains(&ms) => Ok(ms as i32),
        _ => Err(format!("{serial} days are no time of a day")),
    }
}

/// The text of a cell, if it is one.
fn text<'a>(cell: &'a DataRef<'_>) -> Option<&'a str> {
    match cell {
        DataRef::String(text) | DataRef::DateTimeIso(text) | DataRef::DurationIso(text) => Some(text),
        DataRef::SharedString(text) => Some(text),
        _ => None,
    }
}

/// The number of a cell, if it is one; dates are numbers, too.
fn number(cell: &DataRef<'_>) -> Option<f64> {
    match cell {
        DataRef::Int(v) => Some(*v as f64),
        DataRef::Float(v) => Some(*v),
        DataRef::DateTime(at) => Some(at.as_f64()),
        _ => None,
    }
}

fn none(cell: &DataRef<'_>, is_1904: bool, to: &DataType) -> Why {
    let mut shown = String::new();
    show(&mut shown, cell, is_1904);
    format!("'{shown}' is no {}", type_name(to))
}

fn whole<T: TryFrom<i64>>(cell: &DataRef<'_>) -> Option<T> {
    let v = match cell {
        DataRef::Int(v) => *v,
        DataRef::Float(v) if v.fract() == 0.0 && (-TOO_LARGE..TOO_LARGE).contains(v) => *v as i64,
        other => text(other)?.trim().parse().ok()?,
    };
    v.try_into().ok()
}

fn real(cell: &DataRef<'_>) -> Option<f64> {
    match cell {
        DataRef::Int(_) | DataRef::Float(_) => number(cell),
        other => fast_float2::parse(text(other)?.trim()).ok(),
    }
}

fn boolean(cell: &DataRef<'_>) -> Option<bool> {
    match cell {
        DataRef::Bool(v) => Some(*v),
        other => match text(other)?.trim() {
            t if t.eq_ignore_ascii_case("true") => Some(true),
            t if t.eq_ignore_ascii_case("false") => Some(false),
            _ => None,
        },
    }
}

fn decimal(cell: &DataRef<'_>, precision: u8, scale: i8) -> Option<i128> {
    match cell {
        // The shortest text that means the number is what was typed in.
        DataRef::Float(v) => value::parse_decimal(format!("{v}").as_bytes(), precision, scale),
        DataRef::Int(v) => value::parse_decimal(itoa::Buffer::new().format(*v).as_bytes(), precision, scale),
        other => value::parse_decimal(text(other)?.trim().as_bytes(), precision, scale),
    }
}

/// The rows of a column, and what is wrong with some.
pub(super) struct Cells<'a, F> {
    /// How many rows there are.
    pub rows: usize,
    /// The cell of a row, if it has one.
    pub cell: F,
    pub is_1904: bool,
    pub field: &'a Field,
}

impl<'a, 'w: 'a, F: Fn(usize) -> Option<&'a DataRef<'w>>> Cells<'a, F> {
    /// The column as an array. `bad` is told of rows that have no value of its type; any value stands there then.
    ///
    /// # Errors
    /// The type is none that cells can have.
    pub fn build(&self, bad: &mut dyn FnMut(usize, Why)) -> Result<ArrayRef, FormatError> {
        let (to, is_1904) = (self.field.data_type(), self.is_1904);
        let no = |cell: &DataRef<'_>| none(cell, is_1904, to);
        Ok(match to {
            DataType::Boolean => {
                let (values, nulls) = self.values(bad, |cell| boolean(cell).ok_or_else(|| no(cell)));
                Arc::new(BooleanArray::new(values.into(), nulls))
            }
            DataType::Int8 => self.primitive::<Int8Type>(bad, |cell| whole(cell).ok_or_else(|| no(cell))),
            DataType::Int16 => self.primitive::<Int16Type>(bad, |cell| whole(cell).ok_or_else(|| no(cell))),
            DataType::Int32 => self.primitive::<Int32Type>(bad, |cell| whole(cell).ok_or_else(|| no(cell))),
            DataType::Int64 => self.primitive::<Int64Type>(bad, |cell| whole(cell).ok_or_else(|| no(cell))),
            DataType::Float32 => self.primitive::<Float32Type>(bad, |cell| real(cell).map(|v| v as f32).ok_or_else(|| no(cell))),
            DataType::Float64 => self.primitive::<Float64Type>(bad, |cell| real(cell).ok_or_else(|| no(cell))),
            DataType::Decimal128(precision, scale) => {
                let (values, nulls) = self.values(bad, |cell| decimal(cell, *precision, *scale).ok_or_else(|| no(cell)));
                let array = PrimitiveArray::<Decimal128Type>::new(values.into(), nulls);
                Arc::new(array.with_precision_and_scale(*precision, *scale)?)
            }
            DataType::Utf8 => self.texts(bad),
            DataType::Date32 => self.primitive::<Date32Type>(bad, |cell| match (text(cell), number(cell)) {
                (Some(text), _) => value::parse_date(text.trim().as_bytes()).ok_or_else(|| no(cell)),
                (_, Some(serial)) => match moment_ms(serial, is_1904).map_err(|why| format!("{}: {why}", no(cell)))? {
                    ms if ms % DAY_MS == 0 => Ok((ms / DAY_MS) as i32),
                    _ => Err(format!("{}: it has a time; declare TIMESTAMP(3)", no(cell))),
                },
                _ => Err(no(cell)),
            }),
            DataType::Time32(TimeUnit::Millisecond) => {
                self.primitive::<Time32MillisecondType>(bad, |cell| match (text(cell), number(cell)) {
                    (Some(text), _) => value::parse_time_ms(text.trim().as_bytes()).ok_or_else(|| no(cell)),
                    (_, Some(serial)) => time_ms(serial).map_err(|_| no(cell)),
                    _ => Err(no(cell)),
                })
            }
            DataType::Timestamp(unit, zone) => match unit {
                TimeUnit::Second => self.moments::<TimestampSecondType>(bad, zone.clone()),
                TimeUnit::Millisecond => self.moments::<TimestampMillisecondType>(bad, zone.clone()),
                TimeUnit::Microsecond => self.moments::<TimestampMicrosecondType>(bad, zone.clone()),
                TimeUnit::Nanosecond => self.moments::<TimestampNanosecondType>(bad, zone.clone()),
            },
            other => return Err(FormatError::unsupported(format!("column '{}': XLSX has no {}", self.field.name(), type_name(other)))),
        })
    }

    /// The loop over the rows.
    fn values<T: Default>(
        &self,
        bad: &mut dyn FnMut(usize, Why),
        of: impl Fn(&DataRef<'_>) -> Result<T, Why>,
    ) -> (Vec<T>, Option<NullBuffer>) {
        let mut values = Vec::with_capacity(self.rows);
        let mut valid: Option<Vec<bool>> = None;
        for row in 0..self.rows {
            values.push(match (self.cell)(row) {
                Some(DataRef::Error(e)) => {
                    bad(row, format!("the cell holds the error {e}"));
                    T::default()
                }
                Some(cell) => of(cell).unwrap_or_else(|why| {
                    bad(row, why);
                    T::default()
                }),
                None => {
                    if self.field.is_nullable() {
                        valid.get_or_insert_with(|| vec![true; self.rows])[row] = false;
                    } else {
                        bad(row, "the cell is empty, and the column is NOT NULL".to_string());
                    }
                    T::default()
                }
            });
        }
        (values, valid.map(NullBuffer::from))
    }

    fn primitive<T: ArrowPrimitiveType>(
        &self,
        bad: &mut dyn FnMut(usize, Why),
        of: impl Fn(&DataRef<'_>) -> Result<T::Native, Why>,
    ) -> ArrayRef {
        let (values, nulls) = self.values(bad, of);
        Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))
    }

    fn moments<T: ArrowTimestampType>(&self, bad: &mut dyn FnMut(usize, Why), zone: Option<Arc<str>>) -> ArrayRef {
        let (to, is_1904) = (self.field.data_type(), self.is_1904);
        let no = |cell: &DataRef<'_>| none(cell, is_1904, to);
        let per_second = value::units_per_second(T::UNIT);
        let (values, nulls) = self.values(bad, |cell| match (text(cell), number(cell)) {
            (Some(text), _) => value::parse_timestamp(text.trim().as_bytes(), T::UNIT).ok_or_else(|| no(cell)),
            (_, Some(serial)) => {
                let ms = moment_ms(serial, is_1904).map_err(|why| format!("{}: {why}", no(cell)))?;
                let (seconds, rest) = (ms.div_euclid(1000), ms.rem_euclid(1000));
                let whole = seconds.checked_mul(per_second).and_then(|v| v.checked_add(rest * per_second / 1000));
                whole.ok_or_else(|| format!("{}: it lies too far away for it", no(cell)))
            }
            _ => Err(no(cell)),
        });
        Arc::new(PrimitiveArray::<T>::new(values.into(), nulls).with_timezone_opt(zone))
    }

    fn texts(&self, bad: &mut dyn FnMut(usize, Why)) -> ArrayRef {
        let mut out = StringBuilder::with_capacity(self.rows, self.rows * 8);
        let mut shown = String::new();
        for row in 0..self.rows {
            match (self.cell)(row) {
                Some(DataRef::Error(e)) => {
                    bad(row, format!("the cell holds the error {e}"));
                    out.append_value("");
                }
                Some(cell) => match text(cell) {
                    Some(text) => out.append_value(text),
                    None => {
                        shown.clear();
                        show(&mut shown, cell, self.is_1904);
                        out.append_value(&shown);
                    }
                },
                None if self.field.is_nullable() => out.append_null(),
                None => {
                    bad(row, "the cell is empty, and the column is NOT NULL".to_string());
                    out.append_value("");
                }
            }
        }
        Arc::new(out.finish())
    }
}
