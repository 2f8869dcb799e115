//! Typed columns under construction, and the parsers of single fields.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, BooleanArray, PrimitiveArray, StringArray, StringViewArray};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use tidemill_block::value;

use crate::FormatError;

/// The type of a column, resolved once so that the loop over fields has no look-ups.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Decimal(u8, i8),
    Text,
    /// A text, of which a batch has views.
    View,
    Binary,
    Date,
    Time,
    Timestamp(TimeUnit, Option<Arc<str>>),
}

impl Kind {
    pub fn of(name: &str, data_type: &DataType) -> Result<Self, FormatError> {
        Ok(match data_type {
            DataType::Boolean => Kind::Bool,
            DataType::Int8 => Kind::Int8,
            DataType::Int16 => Kind::Int16,
            DataType::Int32 => Kind::Int32,
            DataType::Int64 => Kind::Int64,
            DataType::Float32 => Kind::Float32,
            DataType::Float64 => Kind::Float64,
            DataType::Decimal128(p, s) => Kind::Decimal(*p, *s),
            DataType::Utf8 => Kind::Text,
            DataType::Utf8View => Kind::View,
            DataType::Binary => Kind::Binary,
            DataType::Date32 => Kind::Date,
            DataType::Time32(TimeUnit::Millisecond) => Kind::Time,
            DataType::Timestamp(unit, zone) => Kind::Timestamp(*unit, zone.clone()),
            other => return Err(FormatError::unsupported(format!("column '{name}': the csv format has no {other}"))),
        })
    }

    pub fn is_text(&self) -> bool {
        matches!(self, Kind::Text | Kind::View)
    }

    /// What a field of this type should look like, for messages.
    pub fn expected(&self) -> &'static str {
        match self {
            Kind::Bool => "BOOLEAN (true or false)",
            Kind::Int8 => "TINYINT",
            Kind::Int16 => "SMALLINT",
            Kind::Int32 => "INT",
            Kind::Int64 => "BIGINT",
            Kind::Float32 => "FLOAT",
            Kind::Float64 => "DOUBLE",
            Kind::Decimal(..) => "DECIMAL of the declared precision",
            Kind::Text | Kind::View => "STRING in UTF-8",
            Kind::Binary => "BYTES in base64",
            Kind::Date => "DATE (yyyy-MM-dd)",
            Kind::Time => "TIME (HH:mm:ss)",
            Kind::Timestamp(..) => "TIMESTAMP (yyyy-MM-dd HH:mm:ss)",
        }
    }
}

/// Bytes of a value shown of a text, at most.
const SHOWN_BYTES: usize = 80;

/// A text for messages: its beginning, on one line.
pub(crate) fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES)]);
    if text.chars().any(char::is_control) { text.escape_debug().to_string() } else { text.into_owned() }
}

/// Why a field that does not parse is bad; `option` says the encoding of its text.
#[cold]
pub(crate) fn unfit(name: &str, kind: &Kind, text: &[u8], option: &str) -> String {
    let hint = match kind {
        _ if kind.is_text() => format!("; if the text is in another encoding, say it by '{option}'"),
        _ if text.contains(&0) => format!("; it has zero bytes: if the text is UTF-16, say so by '{option}'"),
        _ => String::new(),
    };
    format!("column '{name}': '{}' is not a {}{hint}", shown(text), kind.expected())
}

/// A signed whole number that fills the text, blanks at the ends aside.
#[inline]
pub(super) fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 19 {
        return parse_odd_i64(text);
    }
    let mut value: u64 = 0;
    for &b in digits {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return parse_odd_i64(text);
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    // 19 digits fit into u64, so `value` is exact.
    match (negative, value) {
        (false, v) if v <= i64::MAX as u64 => Some(v as i64),
        (true, v) if v <= i64::MAX as u64 + 1 => Some((v as i64).wrapping_neg()),
        _ => None,
    }
}

/// Numbers with blanks around them or with leading zeros beyond 19 digits.
#[cold]
fn parse_odd_i64(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[inline]
pub(super) fn parse_f64(text: &[u8]) -> Option<f64> {
    fast_float2::parse(text).ok().or_else(|| parse_odd_f64(text))
}

#[cold]
fn parse_odd_f64(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" | "+Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => fast_float2::parse(text).ok(),
    }
}

fn parse_bool(text: &[u8]) -> Option<bool> {
    match text.trim_ascii() {
        t if t.eq_ignore_ascii_case(b"true") => Some(true),
        t if t.eq_ignore_ascii_case(b"false") => Some(false),
        b"1" => Some(true),
        b"0" => Some(false),
        _ => None,
    }
}

/// What the decoder says about one field of a column.
pub(crate) enum Field<'a> {
    Null,
    Text(&'a [u8]),
}

/// Builds the column of `rows` fields. `field(row)` gives the text; `bad(row)` is told of a field
/// that does not parse (the row will be dropped, so any value may stand there). `ascii` says that
/// all text is ASCII, so that UTF-8 need not be checked again.
pub(crate) fn build<'a>(kind: &Kind, rows: usize, ascii: bool, field: impl Fn(usize) -> Field<'a>, mut bad: impl FnMut(usize)) -> ArrayRef {
    fn array<T: ArrowPrimitiveType>((values, nulls): (Vec<T::Native>, Option<NullBuffer>)) -> PrimitiveArray<T> {
        PrimitiveArray::new(values.into(), nulls)
    }
    fn narrow<T: TryFrom<i64>>(text: &[u8]) -> Option<T> {
        parse_i64(text)?.try_into().ok()
    }
    match kind {
        Kind::Int64 => Arc::new(array::<Int64Type>(values(rows, field, bad, parse_i64))),
        Kind::Int32 => Arc::new(array::<Int32Type>(values(rows, field, bad, narrow))),
        Kind::Int16 => Arc::new(array::<Int16Type>(values(rows, field, bad, narrow))),
        Kind::Int8 => Arc::new(array::<Int8Type>(values(rows, field, bad, narrow))),
        Kind::Float64 => Arc::new(array::<Float64Type>(values(rows, field, bad, parse_f64))),
        Kind::Float32 => Arc::new(array::<Float32Type>(values(rows, field, bad, |t| parse_f64(t).map(|v| v as f32)))),
        Kind::Decimal(p, s) => {
            let decimals = array::<Decimal128Type>(values(rows, field, bad, |t| value::parse_decimal(t.trim_ascii(), *p, *s)));
            Arc::new(decimals.with_precision_and_scale(*p, *s).expect("the declared type is valid"))
        }
        Kind::Date => Arc::new(array::<Date32Type>(values(rows, field, bad, |t| value::parse_date(t.trim_ascii())))),
        Kind::Time => Arc::new(array::<Time32MillisecondType>(values(rows, field, bad, |t| value::parse_time_ms(t.trim_ascii())))),
        Kind::Timestamp(unit, zone) => {
            let parse = |t: &[u8]| value::parse_timestamp(t, *unit).or_else(|| value::parse_timestamp(t.trim_ascii(), *unit));
            let parts = values(rows, field, bad, parse);
            match unit {
                TimeUnit::Second => Arc::new(array::<TimestampSecondType>(parts).with_timezone_opt(zone.clone())),
                TimeUnit::Millisecond => Arc::new(array::<TimestampMillisecondType>(parts).with_timezone_opt(zone.clone())),
                TimeUnit::Microsecond => Arc::new(array::<TimestampMicrosecondType>(parts).with_timezone_opt(zone.clone())),
                TimeUnit::Nanosecond => Arc::new(array::<TimestampNanosecondType>(parts).with_timezone_opt(zone.clone())),
            }
        }
        Kind::Bool => {
            let (values, nulls) = values(rows, field, bad, parse_bool);
            Arc::new(BooleanArray::new(values.into(), nulls))
        }
        Kind::Text => Arc::new(text(rows, ascii, field, &mut bad)),
        Kind::View => Arc::new(StringViewArray::from(&text(rows, ascii, field, &mut bad))),
        Kind::Binary => {
            let (values, nulls) = values(rows, field, bad, |t| base64(t).map(Some));
            let _ = nulls;
            Arc::new(values.iter().map(Option::as_deref).collect::<BinaryArray>())
        }
    }
}

#[inline]
fn values<'a, T: Clone + Default>(
    rows: usize,
    field: impl Fn(usize) -> Field<'a>,
    mut bad: impl FnMut(usize),
    parse: impl Fn(&[u8]) -> Option<T>,
) -> (Vec<T>, Option<NullBuffer>) {
    let mut values = Vec::with_capacity(rows);
    let mut valid: Option<Vec<bool>> = None;
    for row in 0..rows {
        values.push(match field(row) {
            Field::Text(text) => parse(text).unwrap_or_else(|| {
                bad(row);
                T::default()
            }),
            Field::Null => {
                valid.get_or_insert_with(|| vec![true; rows])[row] = false;
                T::default()
            }
        });
    }
    (values, valid.map(NullBuffer::from))
}

fn text<'a>(rows: usize, ascii: bool, field: impl Fn(usize) -> Field<'a>, bad: &mut impl FnMut(usize)) -> StringArray {
    let mut offsets: Vec<i32> = Vec::with_capacity(rows + 1);
    let mut data: Vec<u8> = Vec::with_capacity(rows * 8);
    let mut valid: Option<Vec<bool>> = None;
    offsets.push(0);
    for row in 0..rows {
        match field(row) {
            Field::Text(text) if ascii || std::str::from_utf8(text).is_ok() => data.extend_from_slice(text),
            Field::Text(_) => bad(row),
            Field::Null => valid.get_or_insert_with(|| vec![true; rows])[row] = false,
        }
        offsets.push(data.len() as i32);
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    // SAFETY: every piece that was appended is valid UTF-8 (ASCII, or checked above), so each value
    // between two offsets is.
    unsafe { StringArray::new_unchecked(offsets, Buffer::from_vec(data), valid.map(NullBuffer::from)) }
}

/// Decodes base64 with or without padding.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii();
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut held) = (0u32, 0u32);
    for &b in text {
        let six = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    (text.len() % 4 != 1).then_some(out)
}
