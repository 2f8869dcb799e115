//! Values of row images in the binary log to values as a `SELECT` gives them.
//!
//! The forms are those of MySQL's own documentation of `Rows_event` and `Table_map_event`, and of the fields' packed forms
//! that it names. MariaDB has the same.

use ::mysql::Value;
use ::mysql::consts::ColumnType;
use encoding_rs::Encoding;
use tidemill_block::value;

/// How a column's values lie in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Of so many bytes, the lowest first.
    Integer(usize),
    Float,
    Double,
    /// Digits in all, and behind the point.
    Decimal(usize, usize),
    Year,
    Date,
    /// `DATETIME`, `TIMESTAMP` and `TIME` with digits of the second.
    DateTime(usize),
    Timestamp(usize),
    Time(usize),
    /// `TIMESTAMP`, `DATETIME` and `TIME` of tables from before version 5.6.
    OldTimestamp,
    OldDateTime,
    OldTime,
    /// Of so many bytes, the highest first.
    Bit(usize),
    /// The number of a label, of so many bytes; a bit for each label.
    Enum(usize),
    Set(usize),
    /// Bytes behind their number, which has so many bytes.
    Bytes(usize),
    /// The same, and JSON in a form of its own.
    Json(usize),
}

/// What the catalog says of a column that the log does not.
#[derive(Clone, Debug, Default)]
pub(super) struct Meaning {
    pub unsigned: bool,
    /// The labels of `ENUM` and `SET`.
    pub labels: Vec<String>,
    /// Text that is not UTF-8.
    pub encoding: Option<&'static Encoding>,
    /// `BINARY(n)`: zeros at the end are not in the log.
    pub width: Option<usize>,
}

/// Groups of nine digits take four bytes, fewer take these.
const DIGITS_BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];

fn fraction_bytes(digits: usize) -> usize {
    digits.min(6).div_ceil(2)
}

impl Form {
    /// Of a type of the log with what it says further.
    pub fn of(kind: ColumnType, meta: &[u8]) -> Option<Form> {
        use ColumnType::*;
        let (first, second) = (usize::from(*meta.first().unwrap_or(&0)), usize::from(*meta.get(1).unwrap_or(&0)));
        Some(match kind {
            MYSQL_TYPE_TINY => Form::Integer(1),
            MYSQL_TYPE_SHORT => Form::Integer(2),
            MYSQL_TYPE_INT24 => Form::Integer(3),
            MYSQL_TYPE_LONG => Form::Integer(4),
            MYSQL_TYPE_LONGLONG => Form::Integer(8),
            MYSQL_TYPE_FLOAT => Form::Float,
            MYSQL_TYPE_DOUBLE => Form::Double,
            MYSQL_TYPE_NEWDECIMAL if second <= first => Form::Decimal(first, second),
            MYSQL_TYPE_YEAR => Form::Year,
            MYSQL_TYPE_NEWDATE | MYSQL_TYPE_DATE => Form::Date,
            MYSQL_TYPE_DATETIME2 => Form::DateTime(first),
            MYSQL_TYPE_TIMESTAMP2 => Form::Timestamp(first),
            MYSQL_TYPE_TIME2 => Form::Time(first),
            MYSQL_TYPE_TIMESTAMP => Form::OldTimestamp,
            MYSQL_TYPE_DATETIME => Form::OldDateTime,
            MYSQL_TYPE_TIME => Form::OldTime,
            MYSQL_TYPE_BIT => Form::Bit((second * 8 + first).div_ceil(8)),
            MYSQL_TYPE_ENUM => Form::Enum(second),
            MYSQL_TYPE_SET => Form::Set(second),
            MYSQL_TYPE_VARCHAR | MYSQL_TYPE_VAR_STRING => Form::Bytes(if first | second << 8 < 256 { 1 } else { 2 }),
            // The bits of a length of more than 8 are hidden in the type that stands in front.
            MYSQL_TYPE_STRING => {
                let length = if first & 0x30 == 0x30 { second } else { second | ((first & 0x30) ^ 0x30) << 4 };
                Form::Bytes(if length < 256 { 1 } else { 2 })
            }
            MYSQL_TYPE_TINY_BLOB | MYSQL_TYPE_BLOB | MYSQL_TYPE_MEDIUM_BLOB | MYSQL_TYPE_LONG_BLOB | MYSQL_TYPE_GEOMETRY => {
                Form::Bytes(first)
            }
            MYSQL_TYPE_JSON => Form::Json(first),
            _ => return None,
        })
    }

    /// Takes the bytes of a value from the front of `data`, without the number of bytes.
    pub fn take<'a>(self, data: &mut &'a [u8]) -> Option<&'a [u8]> {
        let size = match self {
            Form::Integer(n) | Form::Bit(n) | Form::Enum(n) | Form::Set(n) => n,
            Form::Float | Form::OldTimestamp => 4,
            Form::Double | Form::OldDateTime => 8,
            Form::Decimal(precision, scale) => decimal_bytes(precision - scale) + decimal_bytes(scale),
            Form::Year => 1,
            Form::Date | Form::OldTime => 3,
            Form::DateTime(digits) => 5 + fraction_bytes(digits),
            Form::Timestamp(digits) => 4 + fraction_bytes(digits),
            Form::Time(digits) => 3 + fraction_bytes(digits),
            Form::Bytes(n) | Form::Json(n) => {
                let (head, rest) = data.split_at_checked(n)?;
                *data = rest;
                usize::try_from(lowest_first(head)).ok()?
            }
        };
        let (value, rest) = data.split_at_checked(size)?;
        *data = rest;
        Some(value)
    }

    /// The value that these bytes are.
    ///
    /// # Errors
    /// Bytes that are none, or a form that is not read.
    pub fn value(self, bytes: &[u8], meaning: &Meaning) -> Result<Value, &'static str> {
        let low = || lowest_first(bytes);
        Ok(match self {
            Form::Integer(_) if meaning.unsigned => Value::UInt(low()),
            Form::Integer(n) => {
                let unused = 64 - 8 * n as u32;
                Value::Int((low() << unused) as i64 >> unused)
            }
            Form::Float => Value::Float(f32::from_bits(low() as u32)),
            Form::Double => Value::Double(f64::from_bits(low())),
            Form::Decimal(precision, scale) => Value::Bytes(decimal(bytes, precision - scale, scale).ok_or("it is no number")?),
            Form::Year => Value::UInt(match low() {
                0 => 0,
                years => 1900 + years,
            }),
            Form::Date => {
                let packed = low();
                Value::Date((packed >> 9) as u16, (packed >> 5 & 15) as u8, (packed & 31) as u8, 0, 0, 0, 0)
            }
            Form::DateTime(digits) => {
                let (whole, part) = bytes.split_at(5);
                let packed = highest_first(whole) & !(1 << 39);
                let (month, time) = (packed >> 22, packed & 0x1FFFF);
                let (day, us) = (packed >> 17 & 31, micros(part, digits));
                Value::Date(
                    (month / 13) as u16,
                    (month % 13) as u8,
                    day as u8,
                    (time >> 12) as u8,
                    (time >> 6 & 63) as u8,
                    (time & 63) as u8,
                    us,
                )
            }
            Form::Timestamp(digits) => {
                let (whole, part) = bytes.split_at(4);
                point_in_time(highest_first(whole), micros(part, digits))
            }
            Form::OldTimestamp => point_in_time(low(), 0),
            Form::OldDateTime => {
                let (date, time) = (low() / 1_000_000, low() % 1_000_000);
                let (year, month, day) = ((date / 10_000) as u16, (date / 100 % 100) as u8, (date % 100) as u8);
                Value::Date(year, month, day, (time / 10_000) as u8, (time / 100 % 100) as u8, (time % 100) as u8, 0)
            }
            Form::OldTime => {
                let signed = (low() << 40) as i64 >> 40;
                let n = signed.unsigned_abs();
                time(signed < 0, n / 10_000, n / 100 % 100, n % 100, 0)
            }
            Form::Time(digits) => {
                // Whole and fraction are one number, of which half of the range is added.
                let bits = 8 * bytes.len() as u32;
                let signed = highest_first(bytes) as i64 - (1i64 << (bits - 1));
                let n = signed.unsigned_abs();
                let part_bits = 8 * fraction_bytes(digits) as u32;
                let (whole, part) = (n >> part_bits, n & ((1 << part_bits) - 1));
                let us = part as u32 * micros_unit(digits);
                time(signed < 0, whole >> 12 & 1023, whole >> 6 & 63, whole & 63, us)
            }
            Form::Bit(_) => Value::Bytes(bytes.to_vec()),
            Form::Enum(_) => match low() {
                // What was no label when it was written.
                0 => Value::Bytes(Vec::new()),
                n => Value::Bytes(meaning.labels.get(n as usize - 1).ok_or("it is no label that the table has")?.clone().into_bytes()),
            },
            Form::Set(_) => {
                let mut text = Vec::new();
                let bits = low();
                for (i, label) in meaning.labels.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1) {
                    if bits & ((1 << i) - 1) != 0 {
                        text.push(b',');
                    }
                    text.extend_from_slice(label.as_bytes());
                }
                if meaning.labels.len() < 64 && bits >> meaning.labels.len() != 0 {
                    return Err("it has labels that the table does not have");
                }
                Value::Bytes(text)
            }
            Form::Bytes(_) => Value::Bytes(match (meaning.encoding, meaning.width) {
                (Some(encoding), _) => {
                    let text = encoding.decode_without_bom_handling_and_without_replacement(bytes);
                    text.ok_or("it is no text in the column's character set")?.into_owned().into_bytes()
                }
                (None, width) => {
                    let mut value = bytes.to_vec();
                    value.resize(width.unwrap_or(0).max(value.len()), 0);
                    value
                }
            }),
            Form::Json(_) => return Err("JSON in its binary form is not read"),
        })
    }
}

fn lowest_first(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn highest_first(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// How many microseconds one of the fraction's number is: it has an even number of digits.
fn micros_unit(digits: usize) -> u32 {
    10u32.pow(6 - 2 * fraction_bytes(digits) as u32)
}

fn micros(bytes: &[u8], digits: usize) -> u32 {
    highest_first(bytes) as u32 * micros_unit(digits)
}

fn time(negative: bool, hours: u64, minutes: u64, seconds: u64, us: u32) -> Value {
    Value::Time(negative, (hours / 24) as u32, (hours % 24) as u8, minutes as u8, seconds as u8, us)
}

/// Seconds since 1970 in UTC as sessions that are set to UTC show them.
fn point_in_time(seconds: u64, us: u32) -> Value {
    if seconds == 0 && us == 0 {
        return Value::Date(0, 0, 0, 0, 0, 0, 0);
    }
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, date) = value::civil_from_days(days as i64);
    Value::Date(year as u16, month as u8, date as u8, (rest / 3600) as u8, (rest / 60 % 60) as u8, (rest % 60) as u8, us)
}

fn decimal_bytes(digits: usize) -> usize {
    digits / 9 * 4 + DIGITS_BYTES[digits % 9]
}

/// The text of a decimal number: its highest bit is turned, and all others too if it is negative.
fn decimal(bytes: &[u8], whole: usize, scale: usize) -> Option<Vec<u8>> {
    let negative = bytes.first()? & 0x80 == 0;
    let turned = if negative { 0xFF } else { 0 };
    let mut at = 0;
    let mut number = |size: usize| {
        let group = bytes.get(at..at + size)?;
        let value = group.iter().enumerate().fold(0u64, |number, (i, byte)| {
            let byte = if at + i == 0 { byte ^ 0x80 } else { *byte };
            number << 8 | u64::from(byte ^ turned)
        });
        at += size;
        Some(value)
    };
    let mut text = Vec::with_capacity(whole + scale + 2);
    let mut digits = |text: &mut Vec<u8>, count: usize| -> Option<()> {
        let value = number(DIGITS_BYTES[count])?;
        (0..count).rev().for_each(|i| text.push(b'0' + (value / 10u64.pow(i as u32) % 10) as u8));
        Some(())
    };
    if !whole.is_multiple_of(9) {
        digits(&mut text, whole % 9)?;
    }
    for _ in 0..whole / 9 {
        digits(&mut text, 9)?;
    }
    let zeros = text.iter().take_while(|b| **b == b'0').count();
    text.drain(..zeros);
    if text.is_empty() {
        text.push(b'0');
    }
    if scale > 0 {
        text.push(b'.');
        for _ in 0..scale / 9 {
            digits(&mut text, 9)?;
        }
        if !scale.is_multiple_of(9) {
            digits(&mut text, scale % 9)?;
        }
    }
    if negative {
        text.insert(0, b'-');
    }
    Some(text)
}

#[cfg(test)]
mod tests;
