//! Arrow's columns into those that are sent, by what they are and where they go.

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Decimal128Array, PrimitiveArray, StringArray};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use tidemill_block::value::{self, civil_from_days, fraction_digits, units_per_second};
use tidemill_format::types::{plain_type, type_name};

use super::super::column::{Column, Kind, LONG_LENGTH, code, is_long};
use super::super::ffi::{Date, SqlType, Timestamp};
use super::super::system::System;
use super::check::{EXACT_DOUBLE, EXACT_FLOAT, FIRST_DAY, LAST_DAY, power, refuse, refuse_nulls};
use super::{Data, Sent, lengths};
use crate::driver::DbError;

const SECONDS_OF_DAY: i64 = 86_400;
const YEARS: &str = "dates are of the years 1 to 9999";
const DIGITS_OF_SECOND: &str = "it keeps fewer digits of the second";

/// A column that is sent to another.
struct Way<'a> {
    name: &'a str,
    array: &'a ArrayRef,
    column: &'a Column,
    system: System,
}

/// One column.
///
/// # Errors
/// See [`prepare`](super::prepare).
pub(super) fn sent(name: &str, array: &ArrayRef, column: &Column, system: System) -> Result<Sent, DbError> {
    let plain = plain_type(array.data_type());
    let array = if array.data_type() == &plain { array.clone() } else { cast(array, &plain)? };
    let way = Way { name, array: &array, column, system };
    refuse_nulls(name, &array, column)?;
    match &plain {
        DataType::Boolean => way.boolean(),
        DataType::Int8 => way.whole(&cast(&array, &DataType::Int16)?),
        DataType::Int16 | DataType::Int32 | DataType::Int64 => way.whole(&array),
        DataType::Float32 => way.float(),
        DataType::Float64 => way.double(array.as_primitive::<Float64Type>()),
        DataType::Decimal128(_, scale) if *scale >= 0 => way.decimal(array.as_primitive::<Decimal128Type>(), *scale as u32),
        DataType::Utf8 => way.text(array.as_string::<i32>()),
        DataType::Binary => way.bytes(array.as_binary::<i32>()),
        DataType::Date32 => way.date(array.as_primitive::<Date32Type>()),
        DataType::Time32(TimeUnit::Millisecond) => way.time(array.as_primitive::<Time32MillisecondType>()),
        DataType::Timestamp(TimeUnit::Millisecond, zone) => way.timestamp(array.as_primitive::<TimestampMillisecondType>(), zone.is_some()),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => way.timestamp(array.as_primitive::<TimestampMicrosecondType>(), zone.is_some()),
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => way.timestamp(array.as_primitive::<TimestampNanosecondType>(), zone.is_some()),
        _ => Err(way.mismatch()),
    }
}

impl Way<'_> {
    fn mismatch(&self) -> DbError {
        DbError::fatal(format!(
            "column '{}': a {} of the job does not go into {} of the table; cast it in the query, or change the table",
            self.name,
            type_name(self.array.data_type()),
            self.column.type_text
        ))
    }

    fn refuse(&self, why: &str, wrong: impl Fn(usize) -> bool) -> Result<(), DbError> {
        refuse(self.name, self.array, self.column, why, wrong)
    }

    /// Values of one width.
    fn plain(&self, data: Data, width: usize, sql: SqlType) -> Sent {
        Sent { data, lengths: lengths(self.array.len(), |row| self.array.is_null(row), |_| width), sql }
    }

    /// Texts that `write` appends.
    fn digits(&self, sql: SqlType, mut write: impl FnMut(&mut Vec<u8>, usize)) -> Sent {
        let rows = self.array.len();
        let (mut bytes, mut offsets) = (Vec::with_capacity(rows * 16), Vec::with_capacity(rows + 1));
        offsets.push(0i32);
        for row in 0..rows {
            if self.array.is_valid(row) {
                write(&mut bytes, row);
            }
            // A batch has far fewer rows than 2³¹ / 41.
            offsets.push(bytes.len() as i32);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let sql = SqlType { size: sql.size.max(1), ..sql };
        let lengths = lengths(rows, |row| self.array.is_null(row), |row| (offsets[row + 1] - offsets[row]) as usize);
        Sent { data: Data::Narrow { bytes: Buffer::from_vec(bytes), offsets, binary: false }, lengths, sql }
    }

    fn boolean(&self) -> Result<Sent, DbError> {
        let values = self.array.as_boolean().values();
        match self.column.kind {
            Kind::Boolean => {
                let bits = values.iter().map(u8::from).collect();
                Ok(self.plain(Data::Bits(bits), 1, SqlType { code: code::BIT, size: 1, digits: 0 }))
            }
            Kind::Integer(..) | Kind::Unsigned | Kind::Decimal(_) => {
                let numbers: Vec<i16> = values.iter().map(i16::from).collect();
                Ok(self.plain(Data::Shorts(numbers.into()), 2, self.column.sql))
            }
            _ => Err(self.mismatch()),
        }
    }

    /// Whole numbers of 16, 32 or 64 bits.
    fn whole(&self, array: &ArrayRef) -> Result<Sent, DbError> {
        match array.data_type() {
            DataType::Int16 => self.whole_of(array.as_primitive::<Int16Type>(), Data::Shorts),
            DataType::Int32 => self.whole_of(array.as_primitive::<Int32Type>(), Data::Ints),
            _ => self.whole_of(array.as_primitive::<Int64Type>(), Data::Longs),
        }
    }

    fn whole_of<T>(&self, array: &PrimitiveArray<T>, data: impl Fn(ScalarBuffer<T::Native>) -> Data) -> Result<Sent, DbError>
    where
        T: ArrowPrimitiveType,
        T::Native: Into<i64>,
    {
        let values = array.values();
        let bits = size_of::<T::Native>() as u32 * 8;
        let (least, most) = (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits));
        let at = |row: usize| -> i64 { values[row].into() };
        match self.column.kind {
            Kind::Integer(min, max) if min <= least && max >= most => {}
            Kind::Integer(min, max) => self.refuse("it is out of the range", |row| !(min..=max).contains(&at(row)))?,
            Kind::Unsigned => self.refuse("there are no negative numbers", |row| at(row) < 0)?,
            Kind::Boolean => self.refuse("there is 0 and 1", |row| !(0..=1).contains(&at(row)))?,
            Kind::Decimal(None) => {}
            Kind::Decimal(Some((precision, scale))) => {
                let limit = power(u32::from(precision - scale));
                self.refuse("it has more digits", |row| i128::from(at(row)).abs() >= limit)?;
            }
            Kind::Real => self.refuse("it would be rounded", |row| at(row).unsigned_abs() > EXACT_FLOAT)?,
            Kind::Double => self.refuse("it would be rounded", |row| at(row).unsigned_abs() > EXACT_DOUBLE)?,
            _ => return Err(self.mismatch()),
        }
        Ok(self.plain(data(values.clone()), size_of::<T::Native>(), self.column.sql))
    }

    fn float(&self) -> Result<Sent, DbError> {
        let array = self.array.as_primitive::<Float32Type>();
        if self.column.kind != Kind::Real {
            // As a double it keeps its value; as text the driver would make another of it.
            let wide = cast(self.array, &DataType::Float64)?;
            return self.double(wide.as_primitive::<Float64Type>());
        }
        self.finite(|row| array.value(row).is_finite())?;
        Ok(self.plain(Data::Floats(array.values().clone()), size_of::<f32>(), self.column.sql))
    }

    fn double(&self, array: &PrimitiveArray<Float64Type>) -> Result<Sent, DbError> {
        self.finite(|row| array.value(row).is_finite())?;
        match self.column.kind {
            Kind::Double => Ok(self.plain(Data::Doubles(array.values().clone()), size_of::<f64>(), self.column.sql)),
            Kind::Real => {
                let rounded = |v: f64| !v.is_nan() && f64::from(v as f32) != v;
                self.refuse("it would be rounded", |row| rounded(array.value(row)))?;
                let values: Vec<f32> = array.values().iter().map(|v| *v as f32).collect();
                Ok(self.plain(Data::Floats(values.into()), size_of::<f32>(), self.column.sql))
            }
            _ => Err(self.mismatch()),
        }
    }

    /// NaN and the infinities go where they are known to arrive.
    fn finite(&self, is_finite: impl Fn(usize) -> bool) -> Result<(), DbError> {
        if self.system == System::Postgres { Ok(()) } else { self.refuse("there is no NaN and no infinity", |row| !is_finite(row)) }
    }

    fn decimal(&self, array: &Decimal128Array, scale: u32) -> Result<Sent, DbError> {
        let fits = |row: usize, whole: u32, places: u32| {
            let value = array.value(row);
            let exact = places >= scale || value % power(scale - places) == 0;
            exact && value.unsigned_abs() < power(whole.saturating_add(scale)).unsigned_abs()
        };
        let precision = u32::from(array.precision());
        match self.column.kind {
            Kind::Decimal(None) => {}
            Kind::Decimal(Some((p, s))) if u32::from(s) >= scale && u32::from(p - s) >= precision.saturating_sub(scale) => {}
            Kind::Decimal(Some((p, s))) => self.refuse("it has more digits", |row| !fits(row, u32::from(p - s), u32::from(s)))?,
            Kind::Integer(min, max) => {
                let one = power(scale);
                let range = i128::from(min)..=i128::from(max);
                self.refuse("it is no whole number of its range", |row| {
                    array.value(row) % one != 0 || !range.contains(&(array.value(row) / one))
                })?;
            }
            Kind::Unsigned => {
                let one = power(scale);
                self.refuse("it is no whole number of its range", |row| {
                    array.value(row) % one != 0 || !(0..=i128::from(u64::MAX)).contains(&(array.value(row) / one))
                })?;
            }
            _ => return Err(self.mismatch()),
        }
        let whole = matches!(self.column.kind, Kind::Integer(..) | Kind::Unsigned);
        let one = power(scale);
        // Whole numbers of 20 digits are no SQL_BIGINT.
        let sql = if whole { SqlType { code: code::DECIMAL, size: 20, digits: 0 } } else { self.column.sql };
        let sql = SqlType { size: sql.size.max(precision as usize), digits: if whole { 0 } else { sql.digits.max(scale as i16) }, ..sql };
        Ok(self.digits(sql, |out, row| match whole {
            true => value::write_decimal(out, array.value(row) / one, 0),
            false => value::write_decimal(out, array.value(row), scale as i8),
        }))
    }

    fn text(&self, array: &StringArray) -> Result<Sent, DbError> {
        let sql = self.column.sql;
        if !matches!(self.column.kind, Kind::Guid | Kind::Text) {
            return Err(self.mismatch());
        }
        // Of the column's length, or of the longest value's if the driver knows none.
        let typed = |widest: usize| {
            let size = sql.size.max(widest).max(1);
            let code = match self.column.kind {
                Kind::Guid => sql.code,
                _ if is_long(sql.code) || size > LONG_LENGTH => code::WLONGVARCHAR,
                _ => code::WVARCHAR,
            };
            SqlType { code, size, digits: 0 }
        };
        match self.system {
            System::Postgres => self.refuse("PostgreSQL has no character of code 0", |row| array.value(row).contains('\0'))?,
            System::Oracle => self.refuse("Oracle keeps an empty text as NULL", |row| array.value(row).is_empty())?,
            _ => {}
        }
        let offsets = array.offsets();
        let (from, to) = (offsets[0] as usize, offsets[array.len()] as usize);
        let bytes = array.values().as_slice();
        let rows = array.len();
        let is_null = |row: usize| array.is_null(row);
        if bytes[from..to].is_ascii() {
            let length = |row: usize| (offsets[row + 1] - offsets[row]) as usize;
            let widest = (0..rows).map(length).max().unwrap_or(0);
            let data = Data::Narrow { bytes: array.values().clone(), offsets: offsets.clone(), binary: false };
            return Ok(Sent { data, lengths: lengths(rows, is_null, length), sql: typed(widest) });
        }
        let (mut units, mut places) = (Vec::with_capacity(to - from), Vec::with_capacity(rows + 1));
        places.push(0usize);
        let mut widest = 0;
        for row in 0..rows {
            let before = units.len();
            if array.is_valid(row) {
                units.extend(array.value(row).encode_utf16());
            }
            widest = widest.max(units.len() - before);
            places.push(units.len());
        }
        let lengths = lengths(rows, is_null, |row| (places[row + 1] - places[row]) * size_of::<u16>());
        Ok(Sent { data: Data::Wide { units, offsets: places }, lengths, sql: typed(widest) })
    }

    fn bytes(&self, array: &BinaryArray) -> Result<Sent, DbError> {
        let Kind::Bytes { fixed } = self.column.kind else { return Err(self.mismatch()) };
        if let Some(size) = fixed {
            self.refuse("it would be filled up", |row| array.value(row).len() != size)?;
        }
        if self.system == System::Oracle {
            self.refuse("Oracle keeps no bytes as NULL", |row| array.value(row).is_empty())?;
        }
        let offsets = array.offsets();
        let length = |row: usize| (offsets[row + 1] - offsets[row]) as usize;
        let widest = (0..array.len()).map(length).max().unwrap_or(0);
        let sql = self.column.sql;
        let code = if is_long(sql.code) || sql.size.max(widest) > LONG_LENGTH * 2 { code::LONGVARBINARY } else { code::VARBINARY };
        let data = Data::Narrow { bytes: array.values().clone(), offsets: offsets.clone(), binary: true };
        let lengths = lengths(array.len(), |row| array.is_null(row), length);
        Ok(Sent { data, lengths, sql: SqlType { code, size: sql.size.max(widest).max(1), digits: 0 } })
    }

    fn date(&self, array: &PrimitiveArray<Date32Type>) -> Result<Sent, DbError> {
        self.refuse(YEARS, |row| !(FIRST_DAY..=LAST_DAY).contains(&i64::from(array.value(row))))?;
        let day = |days: &i32| {
            let (year, month, day) = civil_from_days(i64::from(*days));
            Date { year: year as i16, month: month as u16, day: day as u16 }
        };
        match self.column.kind {
            Kind::Date => {
                let days = array.values().iter().map(day).collect();
                Ok(self.plain(Data::Dates(days), size_of::<Date>(), self.column.sql))
            }
            // Oracle's DATE is one.
            Kind::Timestamp(_) | Kind::Minutes => {
                let midnight = |days: &i32| {
                    let Date { year, month, day } = day(days);
                    Timestamp { year, month, day, ..Timestamp::default() }
                };
                let days = array.values().iter().map(midnight).collect();
                Ok(self.plain(Data::Timestamps(days), size_of::<Timestamp>(), self.column.sql))
            }
            _ => Err(self.mismatch()),
        }
    }

    fn time(&self, array: &PrimitiveArray<Time32MillisecondType>) -> Result<Sent, DbError> {
        match self.column.kind {
            Kind::Time(digits) => {
                let unit = 10i32.pow(3u32.saturating_sub(digits as u32));
                self.refuse(DIGITS_OF_SECOND, |row| array.value(row) % unit != 0)?;
            }
            Kind::Text => {}
            _ => return Err(self.mismatch()),
        }
        // ODBC's structure has no fraction, and some drivers take none in a SQL_TYPE_TIME either.
        let sql = SqlType { code: code::VARCHAR, size: 12, digits: 0 };
        let full = self.column.kind == Kind::Text;
        Ok(self.digits(sql, |out, row| {
            let (from, ms) = (out.len(), array.value(row));
            value::write_time_ms(out, ms);
            if full {
                // All digits behind HH:MM:SS, so that texts are in the order of time.
                out.truncate(from + 8);
                out.push(b'.');
                value::write_padded(out, u64::from(ms.unsigned_abs() % 1000), 3);
            }
        }))
    }

    fn timestamp<T: ArrowPrimitiveType<Native = i64>>(&self, array: &PrimitiveArray<T>, zone: bool) -> Result<Sent, DbError> {
        let DataType::Timestamp(unit, _) = T::DATA_TYPE else { return Err(self.mismatch()) };
        let per_second = units_per_second(unit);
        let digits = match self.column.kind {
            Kind::Timestamp(digits) => digits,
            Kind::Offset(digits) if zone => digits,
            Kind::Minutes => 0,
            _ => return Err(self.mismatch()),
        };
        let per_day = SECONDS_OF_DAY * per_second;
        self.refuse(YEARS, |row| !(FIRST_DAY..=LAST_DAY).contains(&array.value(row).div_euclid(per_day)))?;
        let lost = (fraction_digits(unit) as u32).saturating_sub(digits as u32);
        let step = if self.column.kind == Kind::Minutes { 60 * per_second } else { 10i64.pow(lost) };
        if step > 1 {
            self.refuse(DIGITS_OF_SECOND, |row| array.value(row) % step != 0)?;
        }
        if matches!(self.column.kind, Kind::Offset(_)) {
            let sql = SqlType { code: code::VARCHAR, size: 36, digits: 0 };
            return Ok(self.digits(sql, |out, row| {
                value::write_timestamp(out, array.value(row), unit, 0);
                out.extend_from_slice(b" +00:00");
            }));
        }
        let nanos = 1_000_000_000 / per_second;
        let moment = |units: &i64| {
            let days = units.div_euclid(per_day);
            // What lies outside is NULL, or was refused.
            if !(FIRST_DAY..=LAST_DAY).contains(&days) {
                return Timestamp::default();
            }
            let (year, month, day) = civil_from_days(days);
            let rest = units.rem_euclid(per_day);
            let (second, part) = (rest / per_second, rest % per_second);
            Timestamp {
                year: year as i16,
                month: month as u16,
                day: day as u16,
                hour: (second / 3600) as u16,
                minute: (second / 60 % 60) as u16,
                second: (second % 60) as u16,
                fraction: (part * nanos) as u32,
            }
        };
        let moments = array.values().iter().map(moment).collect();
        Ok(self.plain(Data::Timestamps(moments), size_of::<Timestamp>(), self.column.sql))
    }
}
