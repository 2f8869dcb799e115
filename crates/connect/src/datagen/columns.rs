//! From the options `fields.<column>.<attribute>` and a column's type to its generator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::ArrowPrimitiveType;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use tidemill_block::value;
use tidemill_format::option_enum;
use tidemill_format::options::OptionValue;

use super::counter::{Nulls, Stream, below, unit};
use super::random::{Generator, Length, booleans, byte_strings, decimals, hex_texts, integers, ns_per, primitive, texts};
use crate::ConnectError;

/// The longest text or byte string, bytes: far from what makes a block unmanageable.
const LENGTH_MAX: u64 = 16 << 20;
/// The length of texts and byte strings without an option, as in Flink.
const LENGTH_DEFAULT: u64 = 100;
const DAY_NS: i64 = 86_400_000_000_000;

/// What a column's numbers are for; each purpose has a stream of its own.
mod purpose {
    pub const VALUE: u64 = 0;
    pub const NULL: u64 = 1;
    pub const LENGTH: u64 = 2;
}

option_enum! {
    /// How the values of a column come about.
    pub enum Kind {
        /// By chance.
        Random = "random",
        /// One after the other.
        Sequence = "sequence",
    }
}

/// What the time of a row is, for columns that are "now" or shortly before.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The time of row 0, ns since 1970; `None`: the wall clock when the row is made.
    pub start_ns: Option<i64>,
    /// Nanoseconds from row to row, if there is a start.
    pub step_ns: i64,
}

impl Clock {
    #[inline(always)]
    fn at(self, row: u64, now_ns: i64) -> i64 {
        match self.start_ns {
            Some(start) => start.wrapping_add((row as i64).wrapping_mul(self.step_ns)),
            None => now_ns,
        }
    }
}

/// A column that can be generated.
#[derive(Clone)]
pub struct Column {
    pub generator: Generator,
    /// How many rows there are before its sequence ends; `None` for no end.
    pub rows: Option<u64>,
    /// The most bytes that a value takes, if its width is not fixed; else 0.
    pub bytes_max: usize,
    /// Whether it follows the wall clock.
    pub wall_clock: bool,
}

impl Column {
    /// A column without end and of fixed width.
    pub fn endless(generator: Generator) -> Self {
        Column { generator, rows: None, bytes_max: 0, wall_clock: false }
    }
}

/// The options of one column, as written, minus those taken.
pub struct FieldOptions<'a> {
    owner: &'a str,
    column: &'a str,
    left: BTreeMap<String, String>,
    known: Vec<&'static str>,
}

impl<'a> FieldOptions<'a> {
    /// The options of `column` of `owner` (such as "table 't'"), by attribute.
    pub fn new(owner: &'a str, column: &'a str, left: BTreeMap<String, String>) -> Self {
        FieldOptions { owner, column, left, known: Vec::new() }
    }

    fn wrong(&self, attribute: &str, text: &str, why: impl std::fmt::Display) -> ConnectError {
        ConnectError::new(format!("{}: option 'fields.{}.{attribute}' = '{text}': {why}", self.owner, self.column))
    }

    fn take_with<T>(&mut self, attribute: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>, ConnectError> {
        self.known.push(attribute);
        let Some(text) = self.left.remove(attribute) else { return Ok(None) };
        parse(&text).map(Some).map_err(|why| self.wrong(attribute, &text, why))
    }

    fn take<T: OptionValue>(&mut self, attribute: &'static str) -> Result<Option<T>, ConnectError> {
        self.take_with(attribute, T::parse)
    }

    /// Whatever is left does not belong to a column of this type and kind.
    fn finish(self, data_type: &DataType, kind: Kind) -> Result<(), ConnectError> {
        let Some((attribute, text)) = self.left.iter().next() else { return Ok(()) };
        let kind = kind.show().unwrap_or_default();
        let why = format!("not an option of a {kind} column of type {data_type}; those are: {}", self.known.join(", "));
        Err(self.wrong(attribute, text, why))
    }

    /// A pair of bounds; the first must not be above the second.
    fn range<T: PartialOrd + Copy + std::fmt::Display>(
        &mut self,
        (low_name, high_name): (&'static str, &'static str),
        (low, high): (T, T),
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<(T, T), ConnectError> {
        let given = self.left.get(high_name).cloned();
        let low = self.take_with(low_name, &parse)?.unwrap_or(low);
        let high = self.take_with(high_name, &parse)?.unwrap_or(high);
        match low <= high {
            true => Ok((low, high)),
            false => Err(self.wrong(
                high_name,
                given.as_deref().unwrap_or("(default)"),
                format!("must not be below '{low_name}', which is {low}"),
            )),
        }
    }
}

/// The generator of the column `field`, the `index`-th of its table.
///
/// # Errors
/// An option that is wrong or does not fit the type; a type that cannot be generated.
pub fn column(mut options: FieldOptions, field: &Field, index: usize, seed: u64, clock: Clock) -> Result<Column, ConnectError> {
    let kind = options.take::<Kind>("kind")?.unwrap_or(Kind::Random);
    let data_type = field.data_type();
    let streams = |purpose| Stream::new(seed, index as u64, purpose);
    let nullable = field.is_nullable();
    let rate = options.take_with("null-rate", |text| match text.trim().parse::<f64>() {
        Ok(rate) if rate > 0.0 && !nullable => Err("the column is NOT NULL".to_string()),
        Ok(rate) if (0.0..=1.0).contains(&rate) => Ok(rate),
        _ => Err("expected a number from 0 to 1".to_string()),
    })?;
    let nulls = Nulls::new(streams(purpose::NULL), rate.unwrap_or(0.0));
    let made = match kind {
        Kind::Random => random(&mut options, data_type, nulls, streams, clock)?,
        Kind::Sequence => sequence(&mut options, data_type, nulls)?,
    };
    let Some(column) = made else {
        return Err(ConnectError::new(format!(
            "{}: datagen cannot make {} values of type {data_type} for column '{}'; leave the column out and compute it from others, or let its type be \
             a number, STRING, BYTES, BOOLEAN, DATE, TIME or TIMESTAMP",
            options.owner,
            kind.show().unwrap_or_default(),
            field.name()
        )));
    };
    options.finish(data_type, kind)?;
    Ok(column)
}

/// Calls a macro with the arrow type of a timestamp's unit.
macro_rules! of_unit {
    ($unit:expr, $make:ident) => {
        match $unit {
            TimeUnit::Second => $make!(TimestampSecondType),
            TimeUnit::Millisecond => $make!(TimestampMillisecondType),
            TimeUnit::Microsecond => $make!(TimestampMicrosecondType),
            TimeUnit::Nanosecond => $make!(TimestampNanosecondType),
        }
    };
}

fn random(
    options: &mut FieldOptions,
    data_type: &DataType,
    nulls: Option<Arc<Nulls>>,
    streams: impl Fn(u64) -> Stream,
    clock: Clock,
) -> Result<Option<Column>, ConnectError> {
    let stream = streams(purpose::VALUE);
    let bounds = ("min", "max");
    macro_rules! integer {
        ($primitive:ty) => {{
            type Native = <$primitive as ArrowPrimitiveType>::Native;
            let (min, max) = options.range(bounds, (Native::MIN, Native::MAX), |text| {
                text.trim().replace('_', "").parse().map_err(|_| format!("expected a whole number from {} to {}", Native::MIN, Native::MAX))
            })?;
            integers!($primitive, data_type, nulls, stream, min, max)
        }};
    }
    let generator = match data_type {
        DataType::Boolean => booleans(stream, nulls),
        DataType::Int8 => integer!(Int8Type),
        DataType::Int16 => integer!(Int16Type),
        DataType::Int32 => integer!(Int32Type),
        DataType::Int64 => integer!(Int64Type),
        DataType::Float32 => {
            let (min, max) = options.range(bounds, (0.0, f32::MAX as f64), |text| float(text, f32::MAX as f64))?;
            let span = max - min;
            primitive::<Float32Type>(data_type, nulls, move |row, _| (min + unit(stream.at(row)) * span) as f32)
        }
        DataType::Float64 => {
            let (min, max) = options.range(bounds, (0.0, f64::MAX), |text| float(text, f64::MAX / 2.0))?;
            let span = max - min;
            primitive::<Float64Type>(data_type, nulls, move |row, _| min + unit(stream.at(row)) * span)
        }
        DataType::Decimal128(precision, scale) => {
            let (precision, scale) = (*precision, *scale);
            let largest = 10i128.pow(precision.min(38) as u32) - 1;
            let (min, max) = options.range(bounds, (0, largest), |text| {
                value::parse_decimal(text.trim().as_bytes(), precision, scale)
                    .ok_or_else(|| format!("expected a number that {data_type} can hold"))
            })?;
            decimals(data_type, nulls, stream, min, max)
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let max = options.take_with("length", |text| match u64::parse(text) {
                Ok(length @ 1..=LENGTH_MAX) => Ok(length),
                _ => Err(format!("expected a whole number from 1 to {LENGTH_MAX}")),
            })?;
            let max = max.unwrap_or(LENGTH_DEFAULT) as usize;
            let length = Length { max, variable: options.take("var-len")?.unwrap_or(false) };
            let make =
                if matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) { hex_texts } else { byte_strings };
            let generator = make(data_type, nulls, stream, streams(purpose::LENGTH), length);
            return Ok(Some(Column { bytes_max: max, ..Column::endless(generator) }));
        }
        DataType::Timestamp(..) | DataType::Date32 | DataType::Time32(_) | DataType::Time64(_) => {
            let past = options.take::<Duration>("max-past")?.unwrap_or(Duration::ZERO);
            let past = i64::try_from(past.as_nanos()).unwrap_or(i64::MAX - 1) as u64 + 1;
            let at = move |row, now| clock.at(row, now).wrapping_sub(below(stream.at(row), past) as i64);
            let generator = times(data_type, nulls, at);
            return Ok(generator.map(|generator| Column { wall_clock: clock.start_ns.is_none(), ..Column::endless(generator) }));
        }
        _ => return Ok(None),
    };
    Ok(Some(Column::endless(generator)))
}

/// A finite number not beyond `limit` on either side.
fn float(text: &str, limit: f64) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if number.abs() <= limit => Ok(number),
        _ => Err(format!("expected a number from {:e} to {limit:e}", -limit)),
    }
}

/// A column of time whose instant, ns since 1970, `at` tells of the row and the time of the poll.
fn times(data_type: &DataType, nulls: Option<Arc<Nulls>>, at: impl Fn(u64, i64) -> i64 + Send + Sync + 'static) -> Option<Generator> {
    let of_day = move |ns: i64, unit: TimeUnit| ns.rem_euclid(DAY_NS) / ns_per(unit);
    macro_rules! timestamp {
        ($primitive:ty) => {{
            let per = ns_per(<$primitive as arrow::datatypes::ArrowTimestampType>::UNIT);
            primitive::<$primitive>(data_type, nulls, move |row, now| at(row, now).div_euclid(per))
        }};
    }
    Some(match data_type {
        DataType::Timestamp(unit, _) => of_unit!(unit, timestamp),
        DataType::Date32 => primitive::<Date32Type>(data_type, nulls, move |row, now| at(row, now).div_euclid(DAY_NS) as i32),
        DataType::Time32(TimeUnit::Second) => {
            primitive::<Time32SecondType>(data_type, nulls, move |row, now| of_day(at(row, now), TimeUnit::Second) as i32)
        }
        DataType::Time32(TimeUnit::Millisecond) => {
            primitive::<Time32MillisecondType>(data_type, nulls, move |row, now| of_day(at(row, now), TimeUnit::Millisecond) as i32)
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            primitive::<Time64MicrosecondType>(data_type, nulls, move |row, now| of_day(at(row, now), TimeUnit::Microsecond))
        }
        DataType::Time64(TimeUnit::Nanosecond) => {
            primitive::<Time64NanosecondType>(data_type, nulls, move |row, now| of_day(at(row, now), TimeUnit::Nanosecond))
        }
        _ => return None,
    })
}

fn sequence(options: &mut FieldOptions, data_type: &DataType, nulls: Option<Arc<Nulls>>) -> Result<Option<Column>, ConnectError> {
    if let DataType::Timestamp(unit, _) = data_type {
        return timestamps_in_sequence(options, data_type, *unit, nulls).map(Some);
    }
    // The largest whole number that the type holds.
    let largest = match data_type {
        DataType::Int8 => i8::MAX as i64,
        DataType::Int16 => i16::MAX as i64,
        DataType::Int32 => i32::MAX as i64,
        DataType::Float32 => 1 << 24,
        DataType::Float64 => 1 << 53,
        DataType::Decimal128(precision, scale) => match (*precision as i32 - *scale as i32, *scale) {
            (_, ..0) => return Ok(None),
            (digits @ 0..=18, _) => 10i64.pow(digits as u32) - 1,
            _ => i64::MAX,
        },
        DataType::Int64 | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => i64::MAX,
        _ => return Ok(None),
    };
    let endless = largest == i64::MAX && !options.left.contains_key("end");
    let (start, end) = options.range(("start", "end"), (0i64, largest), |text| match i64::parse(text) {
        Ok(number) if number <= largest && number >= -largest - 1 => Ok(number),
        _ => Err(format!("expected a whole number from {} to {largest}", -largest - 1)),
    })?;
    let at = move |row: u64| start.wrapping_add(row as i64);
    let generator = match data_type {
        DataType::Int8 => primitive::<Int8Type>(data_type, nulls, move |row, _| at(row) as i8),
        DataType::Int16 => primitive::<Int16Type>(data_type, nulls, move |row, _| at(row) as i16),
        DataType::Int32 => primitive::<Int32Type>(data_type, nulls, move |row, _| at(row) as i32),
        DataType::Int64 => primitive::<Int64Type>(data_type, nulls, move |row, _| at(row)),
        DataType::Float32 => primitive::<Float32Type>(data_type, nulls, move |row, _| at(row) as f32),
        DataType::Float64 => primitive::<Float64Type>(data_type, nulls, move |row, _| at(row) as f64),
        DataType::Decimal128(_, scale) => {
            let one = 10i128.pow(*scale as u32);
            primitive::<Decimal128Type>(data_type, nulls, move |row, _| (at(row) as i128).wrapping_mul(one))
        }
        _ => texts(data_type, nulls, 20, move |row, out| value::write_i64(out, at(row))),
    };
    let rows = (!endless).then(|| (end as i128 - start as i128 + 1).min(u64::MAX as i128) as u64);
    let bytes_max = if matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) { 20 } else { 0 };
    Ok(Some(Column { generator, rows, bytes_max, wall_clock: false }))
}

/// Timestamps from `.start` on, `.step` apart: our own addition, Flink has only those near now.
fn timestamps_in_sequence(
    options: &mut FieldOptions,
    data_type: &DataType,
    unit: TimeUnit,
    nulls: Option<Arc<Nulls>>,
) -> Result<Column, ConnectError> {
    let endless = !options.left.contains_key("end");
    let (start, end) = options.range(("start", "end"), (0, i64::MAX), |text| {
        value::parse_timestamp(text.trim().as_bytes(), unit).ok_or_else(|| "expected a timestamp such as '2024-01-31 09:30:00'".to_string())
    })?;
    let per = ns_per(unit);
    let step = options.take_with("step", |text| {
        let step = Duration::parse(text)?.as_nanos();
        match i64::try_from(step) {
            Ok(step) if step > 0 && step % per == 0 => Ok(step / per),
            _ => Err(format!("expected a duration of a whole number of {unit:?}s, the unit of {data_type}")),
        }
    })?;
    let step = step.unwrap_or((1_000_000 / per).max(1));
    let at = move |row: u64| start.wrapping_add((row as i64).wrapping_mul(step));
    macro_rules! timestamp {
        ($primitive:ty) => {
            primitive::<$primitive>(data_type, nulls, move |row, _| at(row))
        };
    }
    let generator = of_unit!(unit, timestamp);
    let rows = (!endless).then(|| ((end as i128 - start as i128) / step as i128 + 1) as u64);
    Ok(Column { rows, ..Column::endless(generator) })
}
