//! Columns of the job into the types of a table: checked and converted as a whole, then written row by row into a
//! bulk load, or given one by one as parameters.
//!
//! Every conversion is exact. What the server would round, cut off or pad is refused here, with column, value and
//! row; so is what there is no such value for, as NaN.

use std::borrow::Cow;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, BooleanArray, Float32Array, Float64Array, RecordBatch, StringArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int64Type, Time32MillisecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use arrow::util::display::array_value_to_string;
use tiberius::numeric::Numeric;
use tiberius::time::{Date, DateTime, DateTime2, DateTimeOffset, SmallDateTime, Time};
use tiberius::{ColumnData, Uuid};
use tidemill_block::value::{days_from_civil, units_per_second, write_decimal};
use tidemill_format::types::{plain_type, type_name};

use super::error::shortened;
use super::types::{Kind, TableColumn};
use crate::driver::DbError;
use crate::mysql::nested::to_json;

/// Days from the first of the year 1, from which the server counts, to 1970.
pub(super) const DAYS_TO_1970: i64 = -days_from_civil(1, 1, 1);
/// Days from 1900, from which `datetime` counts, to 1970.
pub(super) const DAYS_1900_TO_1970: i64 = -days_from_civil(1900, 1, 1);
/// Days since 1970 of the first and the last day that there are.
const FIRST_DAY: i64 = days_from_civil(1, 1, 1);
const LAST_DAY: i64 = days_from_civil(9999, 12, 31);
/// The first day of `datetime`.
const FIRST_DAY_OF_DATETIME: i64 = days_from_civil(1753, 1, 1);
const SECONDS_OF_DAY: i64 = 86_400;
/// Whole numbers up to here are exact as doubles, and as floats.
const EXACT_DOUBLE: u64 = 1 << 53;
const EXACT_FLOAT: u64 = 1 << 24;

/// A length that stands for NULL, or for one that is not said beforehand.
const NULL_LENGTH: [u8; 2] = [0xFF; 2];
const NULL_LONG: [u8; 8] = [0xFF; 8];
const UNKNOWN_LONG: [u8; 8] = (!1u64).to_le_bytes();

/// A column on its way to a table, or a parameter.
pub(super) struct Sent<'t> {
    pub column: &'t TableColumn,
    nulls: Option<NullBuffer>,
    values: Values,
}

/// Values, in what the type needs.
enum Values {
    Bool(BooleanArray),
    /// Whole numbers; units of 1/10,000 of money; days since 1970; units of the type's digits since midnight or
    /// since 1970; milliseconds or minutes since 1970.
    Whole(Vec<i64>),
    Real(Float32Array),
    Float(Float64Array),
    Decimal(Vec<i128>),
    Text(StringArray),
    /// Text in the code page of the column, and as it was.
    Coded(BinaryArray, StringArray),
    Bytes(BinaryArray),
    Guid(Vec<Uuid>),
}

/// Why a value does not go in, and its row.
type Bad = (usize, &'static str);

/// The kind of parameter that a column without a table is sent as.
pub(super) fn natural(data_type: &DataType) -> Kind {
    match plain_type(data_type) {
        DataType::Boolean => Kind::Bit,
        DataType::Int8 | DataType::Int16 => Kind::Int(2),
        DataType::Int32 => Kind::Int(4),
        DataType::Int64 => Kind::Int(8),
        DataType::Float32 => Kind::Real,
        DataType::Float64 => Kind::Float,
        DataType::Decimal128(precision, scale) => Kind::Decimal { precision, scale: scale.max(0) as u8 },
        DataType::Utf8 => Kind::NChar { fixed: false, max: None },
        DataType::Binary => Kind::Binary { fixed: false, max: None },
        DataType::Date32 => Kind::Date,
        DataType::Time32(_) => Kind::Time(3),
        DataType::Timestamp(_, None) => Kind::DateTime2(7),
        DataType::Timestamp(_, Some(_)) => Kind::DateTimeOffset(7),
        _ => Kind::Other,
    }
}

/// The columns of a batch, each with the column of the table that it goes into.
///
/// # Errors
/// As [`Sent::new`].
pub(super) fn prepare<'t>(batch: &RecordBatch, columns: &[&'t TableColumn]) -> Result<Vec<Sent<'t>>, DbError> {
    let schema = batch.schema();
    let fields = schema.fields().iter().zip(batch.columns()).zip(columns);
    fields.map(|((field, array), &column)| Sent::new(field.name(), array, column)).collect()
}

impl<'t> Sent<'t> {
    /// Checks and converts a column.
    ///
    /// # Errors
    /// Types that do not go together; a value that does not go in unchanged.
    pub fn new(name: &str, array: &ArrayRef, column: &'t TableColumn) -> Result<Self, DbError> {
        let plain = plain_type(array.data_type());
        let array = if plain == *array.data_type() { array.clone() } else { cast(array, &plain)? };
        let array = match &plain {
            DataType::List(_) | DataType::Struct(_) | DataType::Map(..) => to_json(name, &array)?,
            DataType::Null => cast(&array, &DataType::Utf8)?,
            _ => array,
        };
        if !column.nullable
            && array.null_count() > 0
            && let Some(row) = (0..array.len()).find(|row| array.is_null(*row))
        {
            return Err(DbError::data(format!("column '{name}': NULL in row {}, where the table says NOT NULL", row + 1)));
        }
        let nulls = array.nulls().filter(|n| n.null_count() > 0).cloned();
        match convert(&array, column) {
            Some(Ok(values)) => Ok(Sent { column, nulls, values }),
            Some(Err((row, why))) => {
                let value = array_value_to_string(array.as_ref(), row).unwrap_or_default();
                Err(DbError::data(format!(
                    "column '{name}': {} in row {} does not go into {} unchanged: {why}",
                    shortened(&value),
                    row + 1,
                    column.type_text
                )))
            }
            None => Err(DbError::fatal(format!(
                "column '{name}': {} does not go into {}; declare or cast it to the type that fits",
                type_name(&plain),
                column.type_text
            ))),
        }
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|n| n.is_null(row))
    }

    /// Whether text, if it is text, is the same in every code page.
    pub fn is_ascii(&self) -> bool {
        match &self.values {
            Values::Text(text) | Values::Coded(_, text) => text.is_ascii(),
            _ => true,
        }
    }

    /// Appends the description of the type ([MS-TDS] 2.2.5.4).
    pub fn describe(&self, out: &mut Vec<u8>) {
        let long = |out: &mut Vec<u8>, kind: u8, max: Option<u16>, unit: u16| {
            out.push(kind);
            out.extend_from_slice(&max.map_or(u16::MAX, |n| n * unit).to_le_bytes());
        };
        let carrier = self.column.kind.carrier();
        match carrier {
            Kind::Bit => out.extend_from_slice(&[0x68, 1]),
            Kind::Int(bytes) => out.extend_from_slice(&[0x26, bytes]),
            Kind::Real => out.extend_from_slice(&[0x6D, 4]),
            Kind::Float => out.extend_from_slice(&[0x6D, 8]),
            Kind::Decimal { precision, scale } => out.extend_from_slice(&[0x6A, decimal_bytes(precision), precision, scale]),
            Kind::Money => out.extend_from_slice(&[0x6E, 8]),
            Kind::SmallMoney => out.extend_from_slice(&[0x6E, 4]),
            Kind::Date => out.push(0x28),
            Kind::Time(digits) => out.extend_from_slice(&[0x29, digits]),
            Kind::DateTime2(digits) => out.extend_from_slice(&[0x2A, digits]),
            Kind::DateTimeOffset(digits) => out.extend_from_slice(&[0x2B, digits]),
            Kind::DateTime => out.extend_from_slice(&[0x6F, 8]),
            Kind::SmallDateTime => out.extend_from_slice(&[0x6F, 4]),
            Kind::Guid => out.extend_from_slice(&[0x24, 16]),
            Kind::Char { fixed, max, .. } => long(out, if fixed { 0xAF } else { 0xA7 }, max, 1),
            Kind::NChar { fixed, max } => long(out, if fixed { 0xEF } else { 0xE7 }, max, 2),
            Kind::Binary { fixed, max } => long(out, if fixed { 0xAD } else { 0xA5 }, max, 1),
            // No values are made of it.
            Kind::Other => out.push(0x1F),
        }
        if matches!(carrier, Kind::Char { .. } | Kind::NChar { .. }) {
            // UTF-16 has the same code units in every collation; one of UTF-8 is none that we know.
            let collation = self.column.collation.filter(|_| carrier == self.column.kind);
            out.extend_from_slice(&collation.map_or(0, |c| c.info()).to_le_bytes());
            out.push(collation.map_or(0, |c| c.sort_id()));
        }
    }

    /// Appends a row's value as a bulk load has it.
    #[inline]
    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        let kind = self.column.kind;
        if self.is_null(row) {
            match kind.carrier() {
                Kind::Char { max: Some(_), .. } | Kind::NChar { max: Some(_), .. } | Kind::Binary { max: Some(_), .. } => {
                    out.extend_from_slice(&NULL_LENGTH);
                }
                Kind::Char { max: None, .. } | Kind::NChar { max: None, .. } | Kind::Binary { max: None, .. } => {
                    out.extend_from_slice(&NULL_LONG);
                }
                _ => out.push(0),
            }
            return;
        }
        match &self.values {
            Values::Bool(values) => out.extend_from_slice(&[1, u8::from(values.value(row))]),
            Values::Whole(values) => write_whole(kind, values[row], out),
            Values::Real(values) => {
                out.push(4);
                out.extend_from_slice(&values.value(row).to_le_bytes());
            }
            Values::Float(values) => {
                out.push(8);
                out.extend_from_slice(&values.value(row).to_le_bytes());
            }
            Values::Decimal(values) => {
                let Kind::Decimal { precision, .. } = kind else { return };
                let bytes = decimal_bytes(precision);
                out.extend_from_slice(&[bytes, u8::from(values[row] >= 0)]);
                out.extend_from_slice(&values[row].unsigned_abs().to_le_bytes()[..usize::from(bytes) - 1]);
            }
            Values::Text(values) => {
                let long = matches!(kind.carrier(), Kind::NChar { max: None, .. });
                with_length(long, out, |out| {
                    utf16(values.value(row), out);
                });
            }
            Values::Coded(values, _) => {
                let long = matches!(kind, Kind::Char { max: None, .. });
                with_length(long, out, |out| out.extend_from_slice(values.value(row)));
            }
            Values::Bytes(values) => {
                let long = matches!(kind, Kind::Binary { max: None, .. });
                with_length(long, out, |out| out.extend_from_slice(values.value(row)));
            }
            Values::Guid(values) => {
                out.push(16);
                out.extend_from_slice(&values[row].to_bytes_le());
            }
        }
    }

    /// A row's value as a parameter.
    pub fn parameter(&self, row: usize) -> ColumnData<'_> {
        if self.is_null(row) {
            // Text is what converts to anything.
            return ColumnData::String(None);
        }
        match &self.values {
            Values::Bool(values) => ColumnData::Bit(Some(values.value(row))),
            Values::Whole(values) => whole_parameter(self.column.kind, values[row]),
            Values::Real(values) => ColumnData::F32(Some(values.value(row))),
            Values::Float(values) => ColumnData::F64(Some(values.value(row))),
            Values::Decimal(values) => {
                let Kind::Decimal { scale, .. } = self.column.kind else { return ColumnData::String(None) };
                decimal_parameter(values[row], scale)
            }
            Values::Text(values) | Values::Coded(_, values) => ColumnData::String(Some(Cow::Borrowed(values.value(row)))),
            Values::Bytes(values) => ColumnData::Binary(Some(Cow::Borrowed(values.value(row)))),
            Values::Guid(values) => ColumnData::Guid(Some(values[row])),
        }
    }
}

/// The values of `array` for a column; `None` if the types do not go together.
fn convert(array: &ArrayRef, column: &TableColumn) -> Option<Result<Values, Bad>> {
    let nulls = array.nulls();
    let kind = column.kind;
    Some(match (array.data_type(), kind) {
        (DataType::Boolean, Kind::Bit) => Ok(Values::Bool(array.as_boolean().clone())),
        (DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64, _) => {
            // Such casts lose nothing.
            let values = cast(array, &DataType::Int64).ok()?;
            return whole(values.as_primitive::<Int64Type>().values(), nulls, kind);
        }
        (DataType::Float32, Kind::Real) => finite(array.as_primitive::<Float32Type>().values(), nulls, |v| v.is_finite())
            .map(|()| Values::Real(array.as_primitive::<Float32Type>().clone())),
        (DataType::Float32 | DataType::Float64, Kind::Float) => {
            let doubles = cast(array, &DataType::Float64).ok()?;
            let doubles = doubles.as_primitive::<Float64Type>();
            finite(doubles.values(), nulls, |v| v.is_finite()).map(|()| Values::Float(doubles.clone()))
        }
        (DataType::Decimal128(_, from), _) => {
            return decimals(array.as_primitive::<Decimal128Type>().values(), nulls, *from, kind);
        }
        (DataType::Utf8, Kind::NChar { .. } | Kind::Char { .. } | Kind::Guid) => text(array.as_string(), column),
        (DataType::Binary, Kind::Binary { fixed, max }) => {
            let bytes: &BinaryArray = array.as_binary();
            let max = max.map_or(usize::MAX, usize::from);
            let bad = |row: &usize| {
                let length = bytes.value_length(*row) as usize;
                bytes.is_valid(*row) && (length > max || (fixed && length < max))
            };
            match (0..bytes.len()).find(bad) {
                Some(row) => Err((row, "it is too long, or too short for a fixed length")),
                None => Ok(Values::Bytes(bytes.clone())),
            }
        }
        (DataType::Date32, Kind::Date) => each(array.as_primitive::<Date32Type>().values(), nulls, |days| {
            Some(i64::from(days)).filter(|days| (FIRST_DAY..=LAST_DAY).contains(days))
        })
        .map(Values::Whole)
        .map_err(|row| (row, "dates are of the years 1 to 9999")),
        (DataType::Time32(TimeUnit::Millisecond), Kind::Time(digits)) => {
            each(array.as_primitive::<Time32MillisecondType>().values(), nulls, |ms| scaled(ms.into(), 1000, 10i64.pow(digits.into())))
                .map(Values::Whole)
                .map_err(|row| (row, "it keeps fewer digits of the second"))
        }
        (DataType::Timestamp(unit, zone), _) => {
            let fits = match kind {
                Kind::DateTime2(_) | Kind::DateTime | Kind::SmallDateTime => zone.is_none(),
                Kind::DateTimeOffset(_) => zone.is_some(),
                _ => false,
            };
            if !fits {
                return None;
            }
            timestamps(timestamp_values(array, *unit)?, nulls, units_per_second(*unit), kind)
        }
        _ => return None,
    })
}

/// Applies `f` to all values; the first row for which it has nothing, unless that is NULL.
fn each<T: Copy, U: Default>(values: &[T], nulls: Option<&NullBuffer>, f: impl Fn(T) -> Option<U>) -> Result<Vec<U>, usize> {
    let one = |(row, value): (usize, &T)| match f(*value) {
        Some(value) => Ok(value),
        None if nulls.is_some_and(|n| n.is_null(row)) => Ok(U::default()),
        None => Err(row),
    };
    values.iter().enumerate().map(one).collect()
}

fn finite<T: Copy>(values: &[T], nulls: Option<&NullBuffer>, is_finite: impl Fn(T) -> bool) -> Result<(), Bad> {
    let bad = |row: &usize| !is_finite(values[*row]) && nulls.is_none_or(|n| n.is_valid(*row));
    match (0..values.len()).find(bad) {
        Some(row) => Err((row, "there is no such number in SQL Server")),
        None => Ok(()),
    }
}

/// Whole numbers into a kind that takes such.
fn whole(values: &[i64], nulls: Option<&NullBuffer>, kind: Kind) -> Option<Result<Values, Bad>> {
    let within = |from: i64, to: i64| each(values, nulls, move |v| Some(v).filter(|v| (from..=to).contains(v))).map(Values::Whole);
    let exact = |most: u64| move |v: i64| v.unsigned_abs() <= most;
    let range = |row| (row, "it is out of range");
    Some(match kind {
        Kind::Int(1) => within(0, u8::MAX.into()).map_err(range),
        Kind::Int(2) => within(i16::MIN.into(), i16::MAX.into()).map_err(range),
        Kind::Int(4) => within(i32::MIN.into(), i32::MAX.into()).map_err(range),
        Kind::Int(_) => Ok(Values::Whole(values.to_vec())),
        Kind::Real => finite(values, nulls, exact(EXACT_FLOAT))
            .map(|()| Values::Real(Float32Array::from_iter_values(values.iter().map(|v| *v as f32))))
            .map_err(|(row, _)| (row, "it has more digits than the number there")),
        Kind::Float => finite(values, nulls, exact(EXACT_DOUBLE))
            .map(|()| Values::Float(Float64Array::from_iter_values(values.iter().map(|v| *v as f64))))
            .map_err(|(row, _)| (row, "it has more digits than the number there")),
        Kind::Decimal { .. } | Kind::Money | Kind::SmallMoney => {
            let wide: Vec<i128> = values.iter().map(|v| i128::from(*v)).collect();
            return decimals(&wide, nulls, 0, kind);
        }
        _ => return None,
    })
}

/// Decimals of scale `from` into a kind that takes such.
fn decimals(values: &[i128], nulls: Option<&NullBuffer>, from: i8, kind: Kind) -> Option<Result<Values, Bad>> {
    let (scale, least, most) = match kind {
        Kind::Decimal { precision, scale } => {
            let limit = 10i128.pow(precision.min(38).into());
            (scale, 1 - limit, limit - 1)
        }
        Kind::Money => (4, i64::MIN.into(), i64::MAX.into()),
        Kind::SmallMoney => (4, i32::MIN.into(), i32::MAX.into()),
        Kind::Int(1) => (0, 0, u8::MAX.into()),
        Kind::Int(2) => (0, i16::MIN.into(), i16::MAX.into()),
        Kind::Int(4) => (0, i32::MIN.into(), i32::MAX.into()),
        Kind::Int(_) => (0, i64::MIN.into(), i64::MAX.into()),
        _ => return None,
    };
    let shift = i32::from(scale) - i32::from(from);
    let unit = 10i128.checked_pow(shift.unsigned_abs())?;
    let rescaled = |v: i128| {
        let v = match shift >= 0 {
            true => v.checked_mul(unit),
            false => (v % unit == 0).then(|| v / unit),
        };
        v.filter(|v| (least..=most).contains(v))
    };
    let found = each(values, nulls, rescaled).map_err(|row| (row, "it has more digits, or more decimals"));
    Some(match kind {
        Kind::Decimal { .. } => found.map(Values::Decimal),
        // The limits are within 64 bits.
        _ => found.map(|values| Values::Whole(values.into_iter().map(|v| v as i64).collect())),
    })
}

/// Text into a kind that takes such.
fn text(texts: &StringArray, column: &TableColumn) -> Result<Values, Bad> {
    let valid = |row: &usize| texts.is_valid(*row);
    match column.kind {
        Kind::Guid => {
            let parsed = (0..texts.len()).map(|row| match texts.is_valid(row) {
                true => Uuid::parse_str(texts.value(row)).map_err(|_| (row, "it is no identifier of 32 hexadecimal digits")),
                false => Ok(Uuid::nil()),
            });
            parsed.collect::<Result<_, _>>().map(Values::Guid)
        }
        Kind::Char { max, utf8: false, .. } => {
            let max = max.map_or(usize::MAX, usize::from);
            let coded = in_code_page(texts, column)?;
            match (0..texts.len()).filter(valid).find(|row| coded.value_length(*row) as usize > max) {
                Some(row) => Err((row, "it is too long")),
                None => Ok(Values::Coded(coded, texts.clone())),
            }
        }
        Kind::Char { max, .. } => {
            let max = max.map_or(usize::MAX, usize::from);
            match (0..texts.len()).filter(valid).find(|row| texts.value_length(*row) as usize > max) {
                Some(row) => Err((row, "it is too long")),
                None => Ok(Values::Text(texts.clone())),
            }
        }
        Kind::NChar { max, .. } => {
            let max = max.map_or(usize::MAX, usize::from);
            // A text has no more code units than bytes.
            let long = |row: &usize| texts.value_length(*row) as usize > max && texts.value(*row).encode_utf16().count() > max;
            match (0..texts.len()).filter(valid).find(long) {
                Some(row) => Err((row, "it is too long")),
                None => Ok(Values::Text(texts.clone())),
            }
        }
        _ => Err((0, "it is text")),
    }
}

/// Texts in the code page of a column's collation.
fn in_code_page(texts: &StringArray, column: &TableColumn) -> Result<BinaryArray, Bad> {
    // What all code pages have in common is the same in UTF-8.
    if texts.is_ascii() {
        return Ok(BinaryArray::from(texts.clone()));
    }
    let encoding = column.collation.and_then(|c| c.encoding().ok());
    let mut coded = BinaryBuilder::with_capacity(texts.len(), texts.values().len());
    for row in 0..texts.len() {
        let text = if texts.is_valid(row) { texts.value(row) } else { "" };
        if text.is_ascii() {
            coded.append_value(text);
            continue;
        }
        let encoding = encoding.ok_or((row, "the code page of the column is not known here"))?;
        match encoding.encode(text) {
            // Languages without a code page have UTF-16 for one, which nothing is encoded in.
            (bytes, used, false) if used == encoding => coded.append_value(bytes),
            _ => return Err((row, "the code page of the column lacks a character of it; make it nvarchar")),
        }
    }
    Ok(coded.finish())
}

/// The numbers of a column of timestamps.
fn timestamp_values(array: &ArrayRef, unit: TimeUnit) -> Option<&[i64]> {
    fn numbers<T: ArrowPrimitiveType<Native = i64>>(array: &ArrayRef) -> &[i64] {
        array.as_primitive::<T>().values()
    }
    match unit {
        TimeUnit::Second => None,
        TimeUnit::Millisecond => Some(numbers::<TimestampMillisecondType>(array)),
        TimeUnit::Microsecond => Some(numbers::<TimestampMicrosecondType>(array)),
        TimeUnit::Nanosecond => Some(numbers::<TimestampNanosecondType>(array)),
    }
}

/// Timestamps of `per_second` units into a kind that takes such.
fn timestamps(values: &[i64], nulls: Option<&NullBuffer>, per_second: i64, kind: Kind) -> Result<Values, Bad> {
    let (first, last) = match kind {
        Kind::DateTime => (FIRST_DAY_OF_DATETIME, LAST_DAY),
        Kind::SmallDateTime => (-DAYS_1900_TO_1970, i64::from(u16::MAX) - DAYS_1900_TO_1970),
        _ => (FIRST_DAY, LAST_DAY),
    };
    let per_day = SECONDS_OF_DAY * per_second;
    let within = |v: i64| Some(v).filter(|v| (first..=last).contains(&v.div_euclid(per_day)));
    let checked = each(values, nulls, within).map_err(|row| (row, "the type does not reach so far"))?;
    let found = each(&checked, nulls, |v| match kind {
        Kind::DateTime2(digits) | Kind::DateTimeOffset(digits) => scaled(v, per_second, 10i64.pow(digits.into())),
        Kind::DateTime => scaled(v, per_second, 1000).filter(|ms| is_datetime(ms.rem_euclid(SECONDS_OF_DAY * 1000))),
        _ => (v % (60 * per_second) == 0).then(|| v / (60 * per_second)),
    });
    found.map(Values::Whole).map_err(|row| (row, "it keeps fewer digits of the second"))
}

/// `v` of `from` units a second in `to` units a second, exactly.
fn scaled(v: i64, from: i64, to: i64) -> Option<i64> {
    if to >= from { v.checked_mul(to / from) } else { (v % (from / to) == 0).then(|| v / (from / to)) }
}

/// Milliseconds in the 300ths of a second that `datetime` counts.
fn fragments_of(ms: i64) -> i64 {
    (ms * 3 + 5) / 10
}

/// 300ths of a second as the milliseconds that the server shows.
pub(super) fn millis_of(fragments: i64) -> i64 {
    (fragments * 10 + 1) / 3
}

/// Whether `datetime` has a time of day of so many milliseconds.
fn is_datetime(ms: i64) -> bool {
    millis_of(fragments_of(ms)) == ms
}

/// Bytes of a decimal, with its sign.
fn decimal_bytes(precision: u8) -> u8 {
    match precision {
        0..=9 => 5,
        10..=19 => 9,
        20..=28 => 13,
        _ => 17,
    }
}

/// Bytes of a time of day with so many digits of the second.
fn time_bytes(digits: u8) -> usize {
    match digits {
        0..=2 => 3,
        3..=4 => 4,
        _ => 5,
    }
}

/// Days since 1970 and units since midnight.
fn day_and_time(units: i64, digits: u8) -> (i64, i64) {
    let per_day = SECONDS_OF_DAY * 10i64.pow(digits.into());
    (units.div_euclid(per_day), units.rem_euclid(per_day))
}

/// Appends what [`Values::Whole`] stands for.
#[inline]
fn write_whole(kind: Kind, v: i64, out: &mut Vec<u8>) {
    let date = |out: &mut Vec<u8>, days: i64| out.extend_from_slice(&(days + DAYS_TO_1970).to_le_bytes()[..3]);
    match kind {
        Kind::Int(bytes) => {
            out.push(bytes);
            out.extend_from_slice(&v.to_le_bytes()[..usize::from(bytes)]);
        }
        Kind::Money => {
            // The upper half comes first.
            let bytes = v.to_le_bytes();
            out.push(8);
            out.extend_from_slice(&bytes[4..]);
            out.extend_from_slice(&bytes[..4]);
        }
        Kind::SmallMoney => {
            out.push(4);
            out.extend_from_slice(&v.to_le_bytes()[..4]);
        }
        Kind::Date => {
            out.push(3);
            date(out, v);
        }
        Kind::Time(digits) => {
            let bytes = time_bytes(digits);
            out.push(bytes as u8);
            out.extend_from_slice(&v.to_le_bytes()[..bytes]);
        }
        Kind::DateTime2(digits) | Kind::DateTimeOffset(digits) => {
            let (days, time) = day_and_time(v, digits);
            let (bytes, zoned) = (time_bytes(digits), matches!(kind, Kind::DateTimeOffset(_)));
            out.push(bytes as u8 + if zoned { 5 } else { 3 });
            out.extend_from_slice(&time.to_le_bytes()[..bytes]);
            date(out, days);
            if zoned {
                // In UTC.
                out.extend_from_slice(&[0; 2]);
            }
        }
        Kind::DateTime => {
            let (days, ms) = day_and_time(v, 3);
            out.push(8);
            out.extend_from_slice(&((days + DAYS_1900_TO_1970) as i32).to_le_bytes());
            out.extend_from_slice(&(fragments_of(ms) as u32).to_le_bytes());
        }
        Kind::SmallDateTime => {
            let (days, minutes) = (v.div_euclid(1440), v.rem_euclid(1440));
            out.push(4);
            out.extend_from_slice(&((days + DAYS_1900_TO_1970) as u16).to_le_bytes());
            out.extend_from_slice(&(minutes as u16).to_le_bytes());
        }
        // No whole numbers are made for the others.
        _ => out.push(0),
    }
}

/// What [`Values::Whole`] stands for as a parameter.
fn whole_parameter(kind: Kind, v: i64) -> ColumnData<'static> {
    let date = |days: i64| Date::new((days + DAYS_TO_1970) as u32);
    let moment = |digits: u8| {
        let (days, time) = day_and_time(v, digits);
        DateTime2::new(date(days), Time::new(time as u64, digits))
    };
    match kind {
        Kind::Int(1) => ColumnData::U8(Some(v as u8)),
        Kind::Int(2) => ColumnData::I16(Some(v as i16)),
        Kind::Int(4) => ColumnData::I32(Some(v as i32)),
        Kind::Money | Kind::SmallMoney => decimal_parameter(v.into(), 4),
        Kind::Date => ColumnData::Date(Some(date(v))),
        Kind::Time(digits) => ColumnData::Time(Some(Time::new(v as u64, digits))),
        Kind::DateTime2(digits) => ColumnData::DateTime2(Some(moment(digits))),
        Kind::DateTimeOffset(digits) => ColumnData::DateTimeOffset(Some(DateTimeOffset::new(moment(digits), 0))),
        Kind::DateTime => {
            let (days, ms) = day_and_time(v, 3);
            ColumnData::DateTime(Some(DateTime::new((days + DAYS_1900_TO_1970) as i32, fragments_of(ms) as u32)))
        }
        Kind::SmallDateTime => {
            let (days, minutes) = (v.div_euclid(1440), v.rem_euclid(1440));
            ColumnData::SmallDateTime(Some(SmallDateTime::new((days + DAYS_1900_TO_1970) as u16, minutes as u16)))
        }
        _ => ColumnData::I64(Some(v)),
    }
}

/// A decimal as a parameter. The client says how many digits it has, one in front of the point at least: where all 38
/// stand behind it, text says the same.
fn decimal_parameter(v: i128, scale: u8) -> ColumnData<'static> {
    if scale < 38 {
        return ColumnData::Numeric(Some(Numeric::new_with_scale(v, scale)));
    }
    let mut digits = Vec::with_capacity(44);
    write_decimal(&mut digits, v, scale as i8);
    ColumnData::String(Some(Cow::Owned(String::from_utf8(digits).unwrap_or_default())))
}

/// Appends text in UTF-16; how many bytes.
#[inline]
pub(super) fn utf16(text: &str, out: &mut Vec<u8>) -> usize {
    let from = out.len();
    out.reserve(2 * text.len());
    if text.is_ascii() {
        out.extend(text.bytes().flat_map(|b| [b, 0]));
    } else {
        out.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    }
    out.len() - from
}

/// Appends bytes with their length in front; `long` ones in one piece whose length is not said beforehand.
#[inline]
fn with_length(long: bool, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    if !long {
        let at = out.len();
        out.extend_from_slice(&[0; 2]);
        write(out);
        let length = (out.len() - at - 2) as u16;
        out[at..at + 2].copy_from_slice(&length.to_le_bytes());
        return;
    }
    out.extend_from_slice(&UNKNOWN_LONG);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    if length > 0 {
        // The end of the pieces; an empty one is an end by itself.
        out.extend_from_slice(&[0; 4]);
    }
}

#[cfg(test)]
mod tests;
