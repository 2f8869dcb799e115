//! Columns to text: rows for `LOAD DATA` and for lists of `VALUES`, and single values for parameters.
//!
//! `LOAD DATA` gets fields divided by tabs, lines ended by `\n`, backslash escapes, `\N` for NULL. Bytes travel in
//! hexadecimal in both forms, since text around them is UTF-8; doubles have the shortest digits that read back
//! as the same number, floats those of the double that they are, so that rounding twice cannot change them.

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, RecordBatch, StringArray};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use tidemill_block::value::{self, TimestampWriter};
use tidemill_format::types::{plain_type, type_name};

use super::nested;
use crate::driver::DbError;

/// The columns of a batch in the types that [`Cells`] knows: no dictionaries, views or unsigned numbers; lists,
/// rows and maps as JSON text.
pub(super) struct Prepared {
    /// The columns.
    pub arrays: Vec<ArrayRef>,
    /// The number of rows.
    pub rows: usize,
}

impl Prepared {
    /// Of a batch.
    ///
    /// # Errors
    /// A column of a type that the store has nothing for, with its name.
    pub fn new(batch: &RecordBatch) -> Result<Self, DbError> {
        let schema = batch.schema();
        let mut arrays = Vec::with_capacity(batch.num_columns());
        for (field, array) in schema.fields().iter().zip(batch.columns()) {
            let plain = plain_type(array.data_type());
            let array = if plain == *array.data_type() { array.clone() } else { cast(array, &plain)? };
            arrays.push(match &plain {
                DataType::List(_) | DataType::Struct(_) | DataType::Map(..) => nested::to_json(field.name(), &array)?,
                DataType::Null => cast(&array, &DataType::Utf8)?,
                _ => array,
            });
            if Cells::of(arrays[arrays.len() - 1].as_ref()).is_none() {
                return Err(DbError::fatal(format!("column '{}': {} cannot be written to MySQL", field.name(), type_name(&plain))));
            }
        }
        Ok(Prepared { arrays, rows: batch.num_rows() })
    }

    /// The columns, ready to be written row by row.
    pub fn cells(&self) -> Vec<Cells<'_>> {
        self.arrays.iter().filter_map(|array| Cells::of(array.as_ref())).collect()
    }
}

/// A column with its type resolved.
pub(super) struct Cells<'a> {
    nulls: Option<&'a NullBuffer>,
    values: Values<'a>,
}

enum Values<'a> {
    Bool(&'a BooleanArray),
    Int8(&'a [i8]),
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    Float32(&'a [f32]),
    Float64(&'a [f64]),
    Decimal(&'a [i128], i8),
    Text(&'a StringArray),
    Bytes(&'a BinaryArray),
    Date(&'a [i32]),
    Time(&'a [i32]),
    Timestamp(&'a [i64], TimeUnit, TimestampWriter),
}

impl<'a> Cells<'a> {
    /// Of a column; `None` if its type is not one of those that [`Prepared`] makes.
    pub fn of(array: &'a dyn Array) -> Option<Self> {
        let values = match array.data_type() {
            DataType::Boolean => Values::Bool(array.as_boolean()),
            DataType::Int8 => Values::Int8(array.as_primitive::<Int8Type>().values()),
            DataType::Int16 => Values::Int16(array.as_primitive::<Int16Type>().values()),
            DataType::Int32 => Values::Int32(array.as_primitive::<Int32Type>().values()),
            DataType::Int64 => Values::Int64(array.as_primitive::<Int64Type>().values()),
            DataType::Float32 => Values::Float32(array.as_primitive::<Float32Type>().values()),
            DataType::Float64 => Values::Float64(array.as_primitive::<Float64Type>().values()),
            DataType::Decimal128(_, scale) => Values::Decimal(array.as_primitive::<Decimal128Type>().values(), *scale),
            DataType::Utf8 => Values::Text(array.as_string()),
            DataType::Binary => Values::Bytes(array.as_binary()),
            DataType::Date32 => Values::Date(array.as_primitive::<Date32Type>().values()),
            DataType::Time32(TimeUnit::Millisecond) => Values::Time(array.as_primitive::<Time32MillisecondType>().values()),
            DataType::Timestamp(unit, _) => Values::Timestamp(timestamps(array, *unit), *unit, TimestampWriter::default()),
            _ => return None,
        };
        Some(Cells { nulls: array.nulls().filter(|n| n.null_count() > 0), values })
    }

    /// Appends the value of a row as a field of `LOAD DATA`.
    #[inline]
    pub fn field(&mut self, row: usize, out: &mut Vec<u8>) {
        self.write::<false>(row, out);
    }

    /// Appends the value of a row as a literal of SQL.
    #[inline]
    pub fn literal(&mut self, row: usize, out: &mut Vec<u8>) {
        self.write::<true>(row, out);
    }

    #[inline]
    fn write<const SQL: bool>(&mut self, row: usize, out: &mut Vec<u8>) {
        if self.nulls.is_some_and(|n| n.is_null(row)) {
            out.extend_from_slice(if SQL { b"NULL" } else { b"\\N" });
            return;
        }
        match &mut self.values {
            Values::Bool(values) => out.push(b'0' + u8::from(values.value(row))),
            Values::Int8(values) => value::write_i64(out, values[row].into()),
            Values::Int16(values) => value::write_i64(out, values[row].into()),
            Values::Int32(values) => value::write_i64(out, values[row].into()),
            Values::Int64(values) => value::write_i64(out, values[row]),
            Values::Float32(values) => write_double::<SQL>(out, values[row].into()),
            Values::Float64(values) => write_double::<SQL>(out, values[row]),
            Values::Decimal(values, scale) => value::write_decimal(out, values[row], *scale),
            Values::Text(values) => {
                let text = values.value(row).as_bytes();
                if SQL { quote_literal(text, out) } else { escape_field(text, out) }
            }
            Values::Bytes(values) => {
                if SQL {
                    out.extend_from_slice(b"X'");
                }
                write_hex(values.value(row), out);
                if SQL {
                    out.push(b'\'');
                }
            }
            Values::Date(values) => in_quotes::<SQL>(out, |out| value::write_date(out, values[row])),
            Values::Time(values) => in_quotes::<SQL>(out, |out| value::write_time_ms(out, values[row])),
            Values::Timestamp(values, unit, text) => in_quotes::<SQL>(out, |out| text.write(out, values[row], *unit)),
        }
    }

    /// The value of a row as a parameter.
    pub fn parameter(&self, row: usize) -> ::mysql::Value {
        use ::mysql::Value;
        if self.nulls.is_some_and(|n| n.is_null(row)) {
            return Value::NULL;
        }
        match &self.values {
            Values::Bool(values) => Value::Int(values.value(row).into()),
            Values::Int8(values) => Value::Int(values[row].into()),
            Values::Int16(values) => Value::Int(values[row].into()),
            Values::Int32(values) => Value::Int(values[row].into()),
            Values::Int64(values) => Value::Int(values[row]),
            Values::Float32(values) => Value::Float(values[row]),
            Values::Float64(values) => Value::Double(values[row]),
            Values::Decimal(values, scale) => {
                let mut text = Vec::with_capacity(40);
                value::write_decimal(&mut text, values[row], *scale);
                Value::Bytes(text)
            }
            Values::Text(values) => Value::Bytes(values.value(row).as_bytes().to_vec()),
            Values::Bytes(values) => Value::Bytes(values.value(row).to_vec()),
            Values::Date(values) => {
                let (year, month, day) = value::civil_from_days(values[row].into());
                Value::Date(year as u16, month as u8, day as u8, 0, 0, 0, 0)
            }
            Values::Time(values) => {
                let ms = values[row] as u32;
                let seconds = ms / 1000;
                Value::Time(false, 0, (seconds / 3600) as u8, (seconds / 60 % 60) as u8, (seconds % 60) as u8, ms % 1000 * 1000)
            }
            Values::Timestamp(values, unit, _) => {
                let per_second = value::units_per_second(*unit);
                let (seconds, part) = (values[row].div_euclid(per_second), values[row].rem_euclid(per_second));
                let (year, month, day) = value::civil_from_days(seconds.div_euclid(86_400));
                let clock = seconds.rem_euclid(86_400) as u32;
                let us = part * 1_000_000 / per_second;
                let (hour, minute, second) = ((clock / 3600) as u8, (clock / 60 % 60) as u8, (clock % 60) as u8);
                Value::Date(year as u16, month as u8, day as u8, hour, minute, second, us as u32)
            }
        }
    }

    /// The placeholder that a parameter of this column wants: text that stands for a decimal number says so, or the
    /// server would compare doubles.
    pub fn placeholder(&self) -> String {
        match &self.values {
            Values::Decimal(_, scale) => format!("CAST(? AS DECIMAL(38,{}))", (*scale).max(0)),
            _ => "?".into(),
        }
    }
}

/// The numbers of a column of timestamps.
pub(super) fn timestamps(array: &dyn Array, unit: TimeUnit) -> &[i64] {
    match unit {
        TimeUnit::Second => array.as_primitive::<TimestampSecondType>().values(),
        TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().values(),
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().values(),
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().values(),
    }
}

#[inline]
fn in_quotes<const SQL: bool>(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    if SQL {
        out.push(b'\'');
    }
    write(out);
    if SQL {
        out.push(b'\'');
    }
}

/// A double; as a literal with an exponent always, since a literal without is a DECIMAL.
#[inline]
fn write_double<const SQL: bool>(out: &mut Vec<u8>, number: f64) {
    let start = out.len();
    value::write_f64(out, number);
    if SQL && !out[start..].contains(&b'E') {
        out.extend_from_slice(b"E0");
    }
}

#[inline]
fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.reserve(2 * bytes.len());
    for byte in bytes {
        out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Appends `text` with a backslash escape for each byte that `escape` knows. Nearly all text has none: it is
/// copied piece by piece.
#[inline]
fn escaped(text: &[u8], out: &mut Vec<u8>, escape: impl Fn(u8) -> Option<[u8; 2]>) {
    let mut from = 0;
    for (i, byte) in text.iter().enumerate() {
        if let Some(instead) = escape(*byte) {
            out.extend_from_slice(&text[from..i]);
            out.extend_from_slice(&instead);
            from = i + 1;
        }
    }
    out.extend_from_slice(&text[from..]);
}

#[inline]
fn escape_field(text: &[u8], out: &mut Vec<u8>) {
    escaped(text, out, |byte| match byte {
        b'\\' => Some(*b"\\\\"),
        b'\t' => Some(*b"\\t"),
        b'\n' => Some(*b"\\n"),
        b'\r' => Some(*b"\\r"),
        0 => Some(*b"\\0"),
        _ => None,
    });
}

#[inline]
fn quote_literal(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'\'');
    escaped(text, out, |byte| match byte {
        b'\\' => Some(*b"\\\\"),
        b'\'' => Some(*b"''"),
        0 => Some(*b"\\0"),
        _ => None,
    });
    out.push(b'\'');
}

/// Appends rows from `from` on as lines of `LOAD DATA`, until `bytes` have come together; the next row.
pub(super) fn lines(cells: &mut [Cells<'_>], from: usize, rows: usize, bytes: usize, out: &mut Vec<u8>) -> usize {
    let mut row = from;
    while row < rows && out.len() < bytes {
        for (i, cell) in cells.iter_mut().enumerate() {
            if i > 0 {
                out.push(b'\t');
            }
            cell.field(row, out);
        }
        out.push(b'\n');
        row += 1;
    }
    row
}

/// Appends rows from `from` on as `(…),(…)`, until `bytes` have come together or `rows_max` rows; the next row.
pub(super) fn values(cells: &mut [Cells<'_>], from: usize, rows: usize, rows_max: usize, bytes: usize, out: &mut Vec<u8>) -> usize {
    let mut row = from;
    let end = rows.min(from.saturating_add(rows_max));
    let start = out.len();
    while row < end && out.len() - start < bytes {
        out.extend_from_slice(if row == from { b"(" } else { b",(" });
        for (i, cell) in cells.iter_mut().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            cell.literal(row, out);
        }
        out.push(b')');
        row += 1;
    }
    row
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        Date32Array, Decimal128Array, Float32Array, Float64Array, Int64Array, Time32MillisecondArray, TimestampMicrosecondArray,
    };

    use super::*;

    #[track_caller]
    fn check(array: ArrayRef, field: &str, literal: &str) {
        let mut cells = Cells::of(array.as_ref()).unwrap();
        let written = |write: &mut dyn FnMut(usize, &mut Vec<u8>)| {
            let mut out = Vec::new();
            for row in 0..array.len() {
                out.extend_from_slice(if row > 0 { b" | " } else { b"" });
                write(row, &mut out);
            }
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(&mut |row, out| cells.field(row, out)), field);
        assert_eq!(written(&mut |row, out| cells.literal(row, out)), literal);
    }

    #[test]
    fn values_have_both_forms() {
        check(Arc::new(Int64Array::from(vec![Some(i64::MIN), None])), "-9223372036854775808 | \\N", "-9223372036854775808 | NULL");
        check(Arc::new(BooleanArray::from(vec![true, false])), "1 | 0", "1 | 0");
        check(Arc::new(Float64Array::from(vec![0.1, 1e300])), "0.1 | 1.0E300", "0.1E0 | 1.0E300");
        check(Arc::new(Float32Array::from(vec![1.1f32])), "1.100000023841858", "1.100000023841858E0");
        let decimal = Decimal128Array::from(vec![-5]).with_precision_and_scale(38, 3).unwrap();
        check(Arc::new(decimal), "-0.005", "-0.005");
        check(
            Arc::new(StringArray::from(vec!["it's", "a\tb\nc\\d\0", "", "\\N", "😀"])),
            "it's | a\\tb\\nc\\\\d\\0 |  | \\\\N | 😀",
            "'it''s' | 'a\tb\nc\\\\d\\0' | '' | '\\\\N' | '😀'",
        );
        check(Arc::new(BinaryArray::from(vec![&b"\x00\xff\n"[..], b""])), "00FF0A | ", "X'00FF0A' | X''");
        check(Arc::new(Date32Array::from(vec![19_782])), "2024-02-29", "'2024-02-29'");
        check(Arc::new(Time32MillisecondArray::from(vec![3_723_040])), "01:02:03.04", "'01:02:03.04'");
        check(
            Arc::new(TimestampMicrosecondArray::from(vec![-1, 1_500_000])),
            "1969-12-31 23:59:59.999999 | 1970-01-01 00:00:01.5",
            "'1969-12-31 23:59:59.999999' | '1970-01-01 00:00:01.5'",
        );
    }

    #[test]
    fn rows_are_cut_into_pieces() {
        let (a, b) = (Int64Array::from(vec![1, 2, 3]), StringArray::from(vec!["x", "y", "z"]));
        let mut cells = vec![Cells::of(&a).unwrap(), Cells::of(&b).unwrap()];
        let mut out = Vec::new();
        assert_eq!(lines(&mut cells, 1, 3, 1 << 10, &mut out), 3);
        assert_eq!(out, b"2\ty\n3\tz\n");
        out.clear();
        assert_eq!(lines(&mut cells, 0, 3, 1, &mut out), 1);
        out.clear();
        assert_eq!(values(&mut cells, 0, 3, 2, 1 << 10, &mut out), 2);
        assert_eq!(out, b"(1,'x'),(2,'y')");
    }

    #[test]
    fn parameters_are_exact() {
        use ::mysql::Value;
        let at = TimestampMicrosecondArray::from(vec![-1]);
        assert_eq!(Cells::of(&at).unwrap().parameter(0), Value::Date(1969, 12, 31, 23, 59, 59, 999_999));
        let time = Time32MillisecondArray::from(vec![3_723_040]);
        assert_eq!(Cells::of(&time).unwrap().parameter(0), Value::Time(false, 0, 1, 2, 3, 40_000));
        let decimal = Decimal128Array::from(vec![1250]).with_precision_and_scale(10, 2).unwrap();
        let cells = Cells::of(&decimal).unwrap();
        assert_eq!(cells.parameter(0), Value::Bytes(b"12.50".to_vec()));
        assert_eq!(cells.placeholder(), "CAST(? AS DECIMAL(38,2))");
    }
}
