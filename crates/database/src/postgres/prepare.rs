//! Arrow columns to the numbers and bytes that PostgreSQL wants for a type, each column at once, and
//! checked: a value that the type would not hold, or would quietly round or cut, is an error that names
//! column and value.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use tidemill_block::{Block, value};
use tidemill_format::Encoder;
use tidemill_format::json::{JsonEncoder, JsonOptions};
use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_format::types::{plain_type, type_name};

use super::encode::{Cells, Column};
use super::numeric;
use super::types::{Form, Shape, nested};
use crate::driver::DbError;

/// Days and microseconds from 1970-01-01 to 2000-01-01, where PostgreSQL begins to count.
pub(super) const EPOCH_DAYS: i32 = 10_957;
pub(super) const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// The first and, exclusive, the last date and timestamp that PostgreSQL has, counted from 2000-01-01: 4713
/// BC to 5874897 and 294276.
const DAYS: std::ops::Range<i32> = -2_451_545..2_145_031_949;
const MICROS: std::ops::Range<i64> = -211_813_488_000_000_000..9_223_371_331_200_000_000;

/// Microseconds of a day.
const DAY_MICROS: i64 = 86_400_000_000;

/// How much of a value a message shows, characters.
const SHOWN: usize = 60;

/// The array with a type that [`column`] knows: no dictionaries, views, unsigned numbers.
///
/// # Errors
/// None that the engine's columns can cause.
pub(super) fn plain(array: &ArrayRef) -> Result<ArrayRef, DbError> {
    let to = plain_type(array.data_type());
    let keep = to == *array.data_type() || matches!(array.data_type(), DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(..));
    if keep { Ok(array.clone()) } else { Ok(cast(array, &to)?) }
}

/// A column in the form of `shape`. `name` is for messages, `declared` what the database calls the type.
///
/// # Errors
/// A value that does not fit; types that do not go together, with advice.
pub(super) fn column<'a>(name: &str, array: &'a ArrayRef, shape: Shape, declared: &str) -> Result<Column<'a>, DbError> {
    let data_type = array.data_type();
    let cells = match (data_type, shape.form) {
        (DataType::List(item), form) if shape.element.is_some() && !nested(item.data_type()) && form != Form::Other => {
            array_cells(name, array, shape, declared)?
        }
        _ if shape.element.is_some() && shape.form != Form::Other => return Err(mismatch(name, data_type, declared)),
        (DataType::List(_) | DataType::Struct(_) | DataType::Map(..), Form::Json | Form::Jsonb) => json_cells(name, array, shape)?,
        (DataType::Boolean, Form::Bool) => Cells::Bool(array.as_boolean().values()),
        (DataType::Int8, form) => integers::<Int8Type>(whole(name, array), form, declared)?,
        (DataType::Int16, Form::Int2) => Cells::Two(Cow::Borrowed(array.as_primitive::<Int16Type>().values())),
        (DataType::Int16, form) => integers::<Int16Type>(whole(name, array), form, declared)?,
        (DataType::Int32, Form::Int4) => Cells::Four(Cow::Borrowed(array.as_primitive::<Int32Type>().values())),
        (DataType::Int32, form) => integers::<Int32Type>(whole(name, array), form, declared)?,
        (DataType::Int64, Form::Int8) => Cells::Eight(Cow::Borrowed(array.as_primitive::<Int64Type>().values())),
        (DataType::Int64, form) => integers::<Int64Type>(whole(name, array), form, declared)?,
        (DataType::Float32, Form::Float4) => Cells::Float(Cow::Borrowed(array.as_primitive::<Float32Type>().values())),
        (DataType::Float32, Form::Float8) => {
            Cells::Double(Cow::Owned(array.as_primitive::<Float32Type>().values().iter().map(|v| f64::from(*v)).collect()))
        }
        (DataType::Float64, Form::Float8) => Cells::Double(Cow::Borrowed(array.as_primitive::<Float64Type>().values())),
        (DataType::Decimal128(_, scale), Form::Numeric) => decimals(name, array.as_primitive(), *scale, shape, declared)?,
        (DataType::Date32, Form::Date) => {
            let since = |v: i32| v.checked_sub(EPOCH_DAYS).filter(|d| DAYS.contains(d));
            let days = |v| since(v).ok_or("PostgreSQL's dates go from 4713 BC to 5874897");
            Cells::Four(Cow::Owned(whole::<Date32Type>(name, array).map(days)?))
        }
        (DataType::Time32(_) | DataType::Time64(_), Form::Time) => Cells::Eight(Cow::Owned(times(name, array, shape)?)),
        (DataType::Timestamp(_, None), Form::Timestamp) | (DataType::Timestamp(_, Some(_)), Form::TimestampTz) => {
            Cells::Eight(Cow::Owned(timestamps(name, array, shape)?))
        }
        (DataType::Utf8, Form::Text | Form::Char | Form::Json | Form::Jsonb | Form::Other) => {
            let text = array.as_string::<i32>();
            check_text(name, text, shape)?;
            let first = (shape.form == Form::Jsonb).then_some(1);
            Cells::Slices { offsets: Cow::Borrowed(text.value_offsets()), data: Cow::Borrowed(text.values()), first }
        }
        (DataType::Utf8, Form::Uuid) => parsed(name, array, "is no UUID", write_uuid)?,
        (DataType::Utf8, Form::Bit) => parsed(name, array, "is not made of the digits 0 and 1", write_bits)?,
        (DataType::Binary, Form::Bytea) => {
            let bytes = array.as_binary::<i32>();
            Cells::Slices { offsets: Cow::Borrowed(bytes.value_offsets()), data: Cow::Borrowed(bytes.values()), first: None }
        }
        _ => return Err(mismatch(name, data_type, declared)),
    };
    Ok(Column { nulls: array.logical_nulls(), cells })
}

/// Types that do not go together.
pub(super) fn mismatch(name: &str, ours: &DataType, theirs: &str) -> DbError {
    let advice = match (ours, theirs) {
        (DataType::Timestamp(..), t) if t.starts_with("timestamp") => {
            if t.ends_with("with time zone") {
                "declare it TIMESTAMP_LTZ(6)"
            } else {
                "declare it TIMESTAMP(6)"
            }
        }
        (_, t) if t.starts_with("timestamp") && t.ends_with("with time zone") => "declare it TIMESTAMP_LTZ(6)",
        (_, t) if t.starts_with("timestamp") => "declare it TIMESTAMP(6)",
        (_, "smallint") => "declare it SMALLINT",
        (_, "integer") => "declare it INT",
        (_, "bigint") => "declare it BIGINT",
        (_, "real") => "declare it FLOAT",
        (_, "double precision") => "declare it DOUBLE",
        (_, t) if t.starts_with("numeric") => "declare it DECIMAL(p, s)",
        (_, "boolean") => "declare it BOOLEAN",
        (_, "date") => "declare it DATE",
        (_, t) if t.starts_with("time") => "declare it TIME",
        (_, "bytea") => "declare it BYTES",
        (_, t) if t.ends_with("[]") => "declare it an ARRAY of a type that fits",
        _ => "declare it STRING",
    };
    DbError::fatal(format!(
        "column '{name}' is {} here and {theirs} in PostgreSQL, which do not go together: {advice}, and cast in the query",
        type_name(ours)
    ))
}

/// A value that is refused before the server sees it.
fn refused(name: &str, array: &dyn Array, row: usize, why: &str) -> DbError {
    DbError::data(format!("column '{name}': the value {} {why}", show(array, row)))
}

/// A value as text, for messages; a long one is cut.
pub(super) fn show(array: &dyn Array, row: usize) -> String {
    let mut out = Vec::new();
    match array.data_type() {
        DataType::Decimal128(_, scale) => value::write_decimal(&mut out, array.as_primitive::<Decimal128Type>().value(row), *scale),
        DataType::Timestamp(unit, _) => {
            let units = match unit {
                TimeUnit::Second => array.as_primitive::<TimestampSecondType>().value(row),
                TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().value(row),
                TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().value(row),
                TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().value(row),
            };
            value::write_timestamp(&mut out, units, *unit, 0);
        }
        DataType::Date32 => value::write_date(&mut out, array.as_primitive::<Date32Type>().value(row)),
        DataType::Utf8 => return show_text(array.as_string::<i32>().value(row)),
        _ => match arrow::util::display::array_value_to_string(array, row) {
            Ok(text) => out = text.into_bytes(),
            Err(_) => out.push(b'?'),
        },
    }
    String::from_utf8_lossy(&out).chars().take(SHOWN).collect()
}

/// Text in quotes, cut if it is long; NUL becomes visible.
pub(super) fn show_text(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("'{}{more}'", cut.escape_debug())
}

/// A column of numbers under conversion.
struct Whole<'a, T: ArrowPrimitiveType> {
    name: &'a str,
    what: &'a PrimitiveArray<T>,
}

fn whole<'a, T: ArrowPrimitiveType>(name: &'a str, array: &'a ArrayRef) -> Whole<'a, T> {
    Whole { name, what: array.as_primitive::<T>() }
}

impl<T: ArrowPrimitiveType> Whole<'_, T> {
    /// Converts each value; what stands in place of a NULL may fail.
    fn map<U: Default>(&self, convert: impl Fn(T::Native) -> Result<U, &'static str>) -> Result<Vec<U>, DbError> {
        let mut out = Vec::with_capacity(self.what.len());
        for (row, v) in self.what.values().iter().enumerate() {
            out.push(match convert(*v) {
                Ok(v) => v,
                Err(_) if self.what.is_null(row) => U::default(),
                Err(why) => return Err(refused(self.name, self.what, row, &format!("does not fit: {why}"))),
            });
        }
        Ok(out)
    }
}

/// Whole numbers as what the database has instead.
fn integers<'a, T>(whole: Whole<'_, T>, form: Form, declared: &str) -> Result<Cells<'a>, DbError>
where
    T: ArrowPrimitiveType,
    T::Native: Into<i64>,
{
    let wide = |v: T::Native| -> i64 { v.into() };
    Ok(match form {
        Form::Int2 => Cells::Two(Cow::Owned(whole.map(|v| i16::try_from(wide(v)).map_err(|_| "a smallint goes from -32768 to 32767"))?)),
        Form::Int4 => {
            Cells::Four(Cow::Owned(whole.map(|v| i32::try_from(wide(v)).map_err(|_| "an integer goes from -2147483648 to 2147483647"))?))
        }
        Form::Int8 => Cells::Eight(Cow::Owned(whole.map(|v| Ok(wide(v)))?)),
        // Whole numbers up to 2^24 and 2^53 are exact in 32 and 64 bits.
        Form::Float4 => Cells::Float(Cow::Owned(whole.map(|v| {
            let v = wide(v);
            if v.unsigned_abs() <= 1 << 24 { Ok(v as f32) } else { Err("a real is exact up to 16777216") }
        })?)),
        Form::Float8 => Cells::Double(Cow::Owned(whole.map(|v| {
            let v = wide(v);
            if v.unsigned_abs() <= 1 << 53 { Ok(v as f64) } else { Err("a double is exact up to 9007199254740992") }
        })?)),
        Form::Numeric => {
            let mut scratch = Scratch::new(whole.what.len(), 16);
            for v in whole.what.values() {
                numeric::write(&mut scratch.data, i128::from(wide(*v)), 0);
                scratch.end(whole.name)?;
            }
            scratch.cells(None)
        }
        _ => return Err(mismatch(whole.name, whole.what.data_type(), declared)),
    })
}

/// Decimals; decimals behind the point that the column would round away are refused.
fn decimals<'a>(name: &str, array: &PrimitiveArray<Decimal128Type>, scale: i8, shape: Shape, declared: &str) -> Result<Cells<'a>, DbError> {
    let Ok(scale) = u32::try_from(scale) else { return Err(mismatch(name, array.data_type(), declared)) };
    // Values must be whole multiples of this.
    let step = match shape.numeric() {
        Some((_, kept)) if kept < scale as i32 => Some(numeric::power((scale as i32 - kept).min(38) as u32) as i128),
        _ => None,
    };
    let mut scratch = Scratch::new(array.len(), 20);
    for (row, v) in array.values().iter().enumerate() {
        if array.is_valid(row) {
            if step.is_some_and(|step| v % step != 0) {
                return Err(refused(name, array, row, &format!("does not fit: {declared} keeps fewer decimals")));
            }
            numeric::write(&mut scratch.data, *v, scale);
        }
        scratch.end(name)?;
    }
    Ok(scratch.cells(None))
}

/// Times of day, in microseconds.
fn times(name: &str, array: &ArrayRef, shape: Shape) -> Result<Vec<i64>, DbError> {
    let step = 10i64.pow(6 - shape.digits());
    let check = |v: Option<i64>| match v {
        Some(v) if !(0..DAY_MICROS).contains(&v) => Err("a time is at least 00:00 and before 24:00"),
        Some(v) if v % step == 0 => Ok(v),
        _ => Err("the column keeps fewer digits of a second"),
    };
    let nanos = |v: i64| if v % 1000 == 0 { Some(v / 1000) } else { None };
    match array.data_type() {
        DataType::Time32(TimeUnit::Second) => whole::<Time32SecondType>(name, array).map(|v| check(Some(i64::from(v) * 1_000_000))),
        DataType::Time32(_) => whole::<Time32MillisecondType>(name, array).map(|v| check(Some(i64::from(v) * 1_000))),
        DataType::Time64(TimeUnit::Microsecond) => whole::<Time64MicrosecondType>(name, array).map(|v| check(Some(v))),
        _ => whole::<Time64NanosecondType>(name, array).map(|v| check(nanos(v))),
    }
}

/// Timestamps, in microseconds since 2000-01-01.
fn timestamps(name: &str, array: &ArrayRef, shape: Shape) -> Result<Vec<i64>, DbError> {
    let step = 10i64.pow(6 - shape.digits());
    let since = |micros: Option<i64>| {
        let Some(since) = micros.and_then(|v| v.checked_sub(EPOCH_MICROS)).filter(|v| MICROS.contains(v)) else {
            return Err("PostgreSQL's timestamps go from 4713 BC to 294276");
        };
        // 2000-01-01 is a whole second.
        if since % step == 0 { Ok(since) } else { Err("the column keeps fewer digits of a second") }
    };
    let DataType::Timestamp(unit, _) = array.data_type() else { return Ok(Vec::new()) };
    match unit {
        TimeUnit::Second => whole::<TimestampSecondType>(name, array).map(|v| since(v.checked_mul(1_000_000))),
        TimeUnit::Millisecond => whole::<TimestampMillisecondType>(name, array).map(|v| since(v.checked_mul(1_000))),
        TimeUnit::Microsecond => whole::<TimestampMicrosecondType>(name, array).map(|v| since(Some(v))),
        TimeUnit::Nanosecond => whole::<TimestampNanosecondType>(name, array)
            .map(|v| if v % 1000 != 0 { Err("PostgreSQL keeps microseconds") } else { since(Some(v / 1000)) }),
    }
}

/// Refuses what no text of PostgreSQL holds (NUL), and more characters than the column has.
fn check_text(name: &str, array: &arrow::array::StringArray, shape: Shape) -> Result<(), DbError> {
    let offsets = array.value_offsets();
    let used = &array.values()[offsets[0] as usize..offsets[array.len()] as usize];
    if memchr::memchr(0, used).is_some() {
        let bad = (0..array.len()).find(|row| array.is_valid(*row) && array.value(*row).contains('\0'));
        if let Some(row) = bad {
            return Err(refused(name, array, row, "holds a NUL character, which PostgreSQL's texts cannot"));
        }
    }
    if let Some(most) = shape.characters() {
        for row in 0..array.len() {
            // Most values are short enough in bytes.
            let bytes = (offsets[row + 1] - offsets[row]) as usize;
            if bytes > most && array.is_valid(row) && array.value(row).chars().count() > most {
                return Err(refused(name, array, row, &format!("is longer than the {most} characters of the column")));
            }
        }
    }
    Ok(())
}

/// Whether a column of a form can hold a text at all. A key that it cannot hold is not in the table.
pub(super) fn possible(text: &str, form: Form) -> bool {
    let mut scratch = Vec::new();
    match form {
        Form::Uuid => write_uuid(text, &mut scratch),
        Form::Bit => write_bits(text, &mut scratch),
        _ => !text.contains('\0'),
    }
}

/// Bytes of a column under construction.
struct Scratch {
    offsets: Vec<i32>,
    data: Vec<u8>,
}

impl Scratch {
    fn new(rows: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Scratch { offsets, data: Vec::with_capacity(rows * bytes) }
    }

    /// The value is complete.
    fn end(&mut self, name: &str) -> Result<(), DbError> {
        let end = i32::try_from(self.data.len()).map_err(|_| too_much(name))?;
        self.offsets.push(end);
        Ok(())
    }

    fn cells<'a>(self, first: Option<u8>) -> Cells<'a> {
        Cells::Slices { offsets: Cow::Owned(self.offsets), data: Cow::Owned(self.data), first }
    }
}

fn too_much(name: &str) -> DbError {
    DbError::fatal(format!("column '{name}': a batch holds more than 2 GiB of it; make 'sink.buffer-flush.max-bytes' smaller"))
}

/// A column of texts in a form of its own; `write` says false if the text is not of it.
fn parsed<'a>(name: &str, array: &ArrayRef, why: &str, write: impl Fn(&str, &mut Vec<u8>) -> bool) -> Result<Cells<'a>, DbError> {
    let text = array.as_string::<i32>();
    let mut scratch = Scratch::new(text.len(), 16);
    for row in 0..text.len() {
        if text.is_valid(row) && !write(text.value(row), &mut scratch.data) {
            return Err(refused(name, text, row, why));
        }
        scratch.end(name)?;
    }
    Ok(scratch.cells(None))
}

/// The 16 bytes of a UUID: 32 hexadecimal digits, with hyphens behind any pair, in braces or not.
fn write_uuid(text: &str, out: &mut Vec<u8>) -> bool {
    let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
    let (mut id, mut digits) = (0u128, 0);
    for c in text.bytes() {
        match (c as char).to_digit(16) {
            Some(digit) if digits < 32 => {
                id = (id << 4) | u128::from(digit);
                digits += 1;
            }
            None if c == b'-' && digits % 2 == 0 => {}
            _ => return false,
        }
    }
    out.extend_from_slice(&id.to_be_bytes());
    digits == 32
}

/// A text of 0 and 1 as bits: how many there are, then eight a byte, the first the most significant.
fn write_bits(text: &str, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(&(text.len() as i32).to_be_bytes());
    for eight in text.as_bytes().chunks(8) {
        let mut byte = 0;
        for (i, c) in eight.iter().enumerate() {
            match c {
                b'0' => {}
                b'1' => byte |= 0x80 >> i,
                _ => return false,
            }
        }
        out.push(byte);
    }
    true
}

/// Arrays of one dimension.
fn array_cells<'a>(name: &str, array: &ArrayRef, shape: Shape, declared: &str) -> Result<Cells<'a>, DbError> {
    let list = array.as_list::<i32>();
    let offsets = list.value_offsets();
    let first = offsets[0];
    let items = plain(&list.values().slice(first as usize, (offsets[list.len()] - first) as usize))?;
    let items = column(name, &items, shape.item(), declared.trim_end_matches("[]"))?;
    let mut scratch = Scratch::new(list.len(), 32);
    for row in 0..list.len() {
        if list.is_valid(row) {
            let (from, to) = ((offsets[row] - first) as usize, (offsets[row + 1] - first) as usize);
            items.append_array(from, to, shape.element.unwrap_or_default(), &mut scratch.data);
        }
        scratch.end(name)?;
    }
    Ok(scratch.cells(None))
}

/// Values with parts, as JSON.
fn json_cells<'a>(name: &str, array: &ArrayRef, shape: Shape) -> Result<Cells<'a>, DbError> {
    let failed = |e: &dyn std::fmt::Display| DbError::fatal(format!("column '{name}' as JSON: {e}"));
    let schema = Arc::new(Schema::new(vec![Field::new("v", array.data_type().clone(), true)]));
    let options = JsonOptions::take(&mut RawOptions::new("rows as JSON", Vec::new())).map_err(|e| failed(&e))?;
    let mut encoder = JsonEncoder::new(&options, &schema).map_err(|e| failed(&e))?;
    let rows = RecordBatch::try_new(schema, vec![array.clone()])?;
    let mut lines = Vec::new();
    encoder.encode(&Block::inserts(rows, 0), &mut lines).map_err(|e| failed(&e))?;
    // Each line is {"v":…}; a line end within a value would be escaped.
    const BEFORE: usize = br#"{"v":"#.len();
    let mut scratch = Scratch::new(array.len(), lines.len() / array.len().max(1));
    let mut from = 0;
    for row in 0..array.len() {
        let Some(length) = memchr::memchr(b'\n', &lines[from..]) else { break };
        if array.is_valid(row) {
            scratch.data.extend_from_slice(&lines[from + BEFORE..from + length - 1]);
        }
        scratch.end(name)?;
        from += length + 1;
    }
    Ok(scratch.cells((shape.form == Form::Jsonb).then_some(1)))
}
