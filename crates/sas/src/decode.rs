//! Rows of one fixed length to columns, one column at a time.
//!
//! A number is loaded, brought into this machine's order of bytes and stored; what it means (a date, a
//! missing value) is looked at once a batch, over a dense array. Text is copied without the blanks behind
//! it, and its character set looked at once a batch: ASCII is the rule and needs no more than that look.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array, Float64Array, RecordBatch, RecordBatchOptions, StringArray, StringBuilder};
use arrow::array::{Time32MillisecondArray, TimestampMicrosecondArray};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{ArrowNativeType, DataType, Schema, SchemaRef};

use crate::column::{As, Column, Wanted};
use crate::kind::{self, Kind};
use crate::xport::ibm;
use crate::{Charset, SasError};

/// Rows of a column that are decoded before the next column's turn, bytes of rows: so that they stay in the cache.
const TILE_BYTES: usize = 128 << 10;
/// The most that the rows of a batch take up in the file's form, bytes.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// How numbers lie in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// IEEE 754, the lowest byte first.
    Little,
    /// IEEE 754, the highest byte first.
    Big,
    /// IBM's base 16, the highest byte first.
    Ibm,
}

/// Rows somewhere in a buffer.
pub(crate) struct Rows<'a> {
    pub bytes: &'a [u8],
    /// Where each begins.
    pub starts: &'a [usize],
}

/// Makes batches of rows.
pub(crate) struct Batches {
    schema: SchemaRef,
    columns: Vec<Building>,
    numbers: Numbers,
    charset: Charset,
    row_bytes: usize,
    rows_max: usize,
    rows: usize,
}

/// A column under construction.
struct Building {
    column: Column,
    form: As,
    values: Values,
}

enum Values {
    /// As they are in the file; a NaN is a missing value.
    Numbers(Vec<f64>),
    /// Texts one behind the other; text n ends at `ends[n]`.
    Texts { bytes: Vec<u8>, ends: Vec<i32> },
}

impl Batches {
    /// Batches of the columns `wanted` of `columns`, of up to `rows_max` rows.
    pub fn new(
        columns: &[Column],
        wanted: &[Wanted],
        numbers: Numbers,
        charset: Charset,
        row_bytes: usize,
        rows_max: usize,
    ) -> Result<Self, SasError> {
        let fields = wanted.iter().map(|w| w.field(columns)).collect::<Result<Vec<_>, _>>()?;
        let building = |w: &Wanted| {
            let column = columns[w.column].clone();
            let values =
                if column.kind == Kind::Text { Values::Texts { bytes: Vec::new(), ends: Vec::new() } } else { Values::Numbers(Vec::new()) };
            Building { column, form: w.form, values }
        };
        Ok(Batches {
            schema: Arc::new(Schema::new(fields)),
            columns: wanted.iter().map(building).collect(),
            numbers,
            charset,
            row_bytes,
            rows_max: rows_max.clamp(1, (BATCH_BYTES_MAX / row_bytes.max(1)).max(1)),
            rows: 0,
        })
    }

    /// Batches of other columns of the same rows.
    pub fn of_others(&self, columns: &[Column], wanted: &[Wanted]) -> Result<Self, SasError> {
        Batches::new(columns, wanted, self.numbers, self.charset, self.row_bytes, self.rows_max)
    }

    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// How many rows the batch still takes.
    pub fn room(&self) -> usize {
        self.rows_max - self.rows
    }

    /// How many rows were pushed since the last batch.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether no row was pushed since the last batch.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Appends rows, at most as many as there is room for.
    pub fn push(&mut self, rows: &Rows) {
        assert!(rows.starts.len() <= self.room(), "the caller asks how many rows there is room for");
        let tile = (TILE_BYTES / self.row_bytes.max(1)).max(16);
        for starts in rows.starts.chunks(tile) {
            let part = Rows { bytes: rows.bytes, starts };
            for building in &mut self.columns {
                let Column { offset, length, .. } = building.column;
                match &mut building.values {
                    Values::Numbers(values) => numbers(self.numbers, length, &part, offset, values),
                    Values::Texts { bytes, ends } => texts(&part, offset, length, bytes, ends),
                }
            }
        }
        self.rows += rows.starts.len();
    }

    /// The batch of what was pushed, and begins the next.
    pub fn finish(&mut self) -> Result<RecordBatch, SasError> {
        let rows = std::mem::take(&mut self.rows);
        let mut arrays = Vec::with_capacity(self.columns.len());
        for building in &mut self.columns {
            let Building { column, form, values } = building;
            let array: ArrayRef = match values {
                Values::Numbers(values) => array(column, *form, next(values))?,
                Values::Texts { bytes, ends } => {
                    let made = text(next(bytes), next(ends), self.charset);
                    Arc::new(made.map_err(|e| SasError::data(format!("column '{}': {e}", column.name)))?)
                }
            };
            assert_eq!(array.len(), rows, "every column has every row");
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }
}

/// Takes what was gathered and leaves an empty vector that will likely need as much.
fn next<T>(values: &mut Vec<T>) -> Vec<T> {
    let empty = Vec::with_capacity(values.len());
    std::mem::replace(values, empty)
}

/// Appends a column of numbers.
fn numbers(numbers: Numbers, length: usize, rows: &Rows, offset: usize, out: &mut Vec<f64>) {
    match (numbers, length) {
        (Numbers::Little, 8) => gather::<8>(rows, offset, out, little::<8>),
        (Numbers::Little, 7) => gather::<7>(rows, offset, out, little::<7>),
        (Numbers::Little, 6) => gather::<6>(rows, offset, out, little::<6>),
        (Numbers::Little, 5) => gather::<5>(rows, offset, out, little::<5>),
        (Numbers::Little, 4) => gather::<4>(rows, offset, out, little::<4>),
        (Numbers::Little, 3) => gather::<3>(rows, offset, out, little::<3>),
        (Numbers::Little, 2) => gather::<2>(rows, offset, out, little::<2>),
        (Numbers::Little, _) => gather::<1>(rows, offset, out, little::<1>),
        (Numbers::Big, 8) => gather::<8>(rows, offset, out, big::<8>),
        (Numbers::Big, 7) => gather::<7>(rows, offset, out, big::<7>),
        (Numbers::Big, 6) => gather::<6>(rows, offset, out, big::<6>),
        (Numbers::Big, 5) => gather::<5>(rows, offset, out, big::<5>),
        (Numbers::Big, 4) => gather::<4>(rows, offset, out, big::<4>),
        (Numbers::Big, 3) => gather::<3>(rows, offset, out, big::<3>),
        (Numbers::Big, 2) => gather::<2>(rows, offset, out, big::<2>),
        (Numbers::Big, _) => gather::<1>(rows, offset, out, big::<1>),
        (Numbers::Ibm, 8) => gather::<8>(rows, offset, out, |cell| ibm::to_f64(high(cell))),
        (Numbers::Ibm, 7) => gather::<7>(rows, offset, out, |cell| ibm::to_f64(high(cell))),
        (Numbers::Ibm, 6) => gather::<6>(rows, offset, out, |cell| ibm::to_f64(high(cell))),
        (Numbers::Ibm, 5) => gather::<5>(rows, offset, out, |cell| ibm::to_f64(high(cell))),
        (Numbers::Ibm, 4) => gather::<4>(rows, offset, out, |cell| ibm::to_f64(high(cell))),
        (Numbers::Ibm, 3) => gather::<3>(rows, offset, out, |cell| ibm::to_f64(high(cell))),
        (Numbers::Ibm, 2) => gather::<2>(rows, offset, out, |cell| ibm::to_f64(high(cell))),
        (Numbers::Ibm, _) => gather::<1>(rows, offset, out, |cell| ibm::to_f64(high(cell))),
    }
}

/// The bytes that a number was cut down to are its highest; those that were cut off are zero.
#[inline(always)]
fn high<const LENGTH: usize>(cell: [u8; LENGTH]) -> u64 {
    let mut whole = [0; 8];
    whole[..LENGTH].copy_from_slice(&cell);
    u64::from_be_bytes(whole)
}

#[inline(always)]
fn big<const LENGTH: usize>(cell: [u8; LENGTH]) -> f64 {
    f64::from_bits(high(cell))
}

#[inline(always)]
fn little<const LENGTH: usize>(cell: [u8; LENGTH]) -> f64 {
    let mut whole = [0; 8];
    whole[8 - LENGTH..].copy_from_slice(&cell);
    f64::from_bits(u64::from_le_bytes(whole))
}

#[inline(always)]
fn gather<const LENGTH: usize>(rows: &Rows, offset: usize, out: &mut Vec<f64>, value: impl Fn([u8; LENGTH]) -> f64) {
    out.extend(rows.starts.iter().map(|start| {
        let at = start + offset;
        value(rows.bytes[at..at + LENGTH].try_into().expect("a slice of that length"))
    }));
}

/// Texts up to this length are moved in one step.
const SHORT: usize = 16;

/// Appends a column of texts, without the blanks and zero bytes behind them.
fn texts(rows: &Rows, offset: usize, length: usize, bytes: &mut Vec<u8>, ends: &mut Vec<i32>) {
    ends.reserve(rows.starts.len());
    let long = if (1..=SHORT).contains(&length) { short_texts(rows, offset, length, bytes, ends) } else { 0 };
    for start in &rows.starts[long..] {
        let cell = &rows.bytes[start + offset..start + offset + length];
        bytes.extend_from_slice(&cell[..trimmed(cell)]);
        // A batch has at most 64 MiB of text, so the sum fits.
        ends.push(bytes.len() as i32);
    }
}

/// As [`texts`], of texts of up to [`SHORT`] bytes, until one comes behind which the rows have no [`SHORT`] bytes; says how many it
/// has appended. Most texts in such files are short, and a call to copy each would cost more than all else.
fn short_texts(rows: &Rows, offset: usize, length: usize, bytes: &mut Vec<u8>, ends: &mut Vec<i32>) -> usize {
    let (begin, count) = (bytes.len(), rows.starts.len());
    // Each text is written with what stands behind it, over which the next one goes.
    bytes.resize(begin + count * length + SHORT, 0);
    let own = u128::MAX >> (8 * (SHORT - length));
    let (mut at, mut done) = (begin, 0);
    for start in rows.starts {
        let Some(cell) = rows.bytes.get(start + offset..start + offset + SHORT) else { break };
        let cell: [u8; SHORT] = cell.try_into().expect("a slice of that length");
        // A blank has this one bit, a zero byte none.
        let filled = u128::from_le_bytes(cell) & own & !u128::from_le_bytes([b' '; SHORT]);
        bytes[at..at + SHORT].copy_from_slice(&cell);
        at += SHORT - filled.leading_zeros() as usize / 8;
        ends.push(at as i32);
        done += 1;
    }
    bytes.truncate(at);
    done
}

/// The length of a text without the blanks and zero bytes behind it.
#[inline]
fn trimmed(cell: &[u8]) -> usize {
    const BLANKS: [u8; 32] = [b' '; 32];
    let mut end = cell.len();
    while end >= BLANKS.len() && cell[end - BLANKS.len()..end] == BLANKS {
        end -= BLANKS.len();
    }
    while end > 0 && matches!(cell[end - 1], b' ' | 0) {
        end -= 1;
    }
    end
}

/// Which of the numbers are not missing; `None` if all are there.
fn present(values: &[f64]) -> Option<NullBuffer> {
    let nulls = NullBuffer::new(BooleanBuffer::collect_bool(values.len(), |i| !values[i].is_nan()));
    (nulls.null_count() > 0).then_some(nulls)
}

/// Numbers as an array of what the column is wanted as.
fn array(column: &Column, form: As, mut values: Vec<f64>) -> Result<ArrayRef, SasError> {
    let nulls = present(&values);
    // In the slots of missing values stands the NaN that says which it was.
    let codes = if form == As::Text && nulls.is_some() { Some(values.clone()) } else { None };
    if nulls.is_some() {
        values.iter_mut().filter(|v| v.is_nan()).for_each(|v| *v = 0.0);
    }
    let kind = if form == As::Number { Kind::Number } else { column.kind };
    let made: ArrayRef = match kind {
        Kind::Text => unreachable!("texts are no numbers"),
        Kind::Number => Arc::new(Float64Array::new(values.into(), nulls)),
        Kind::Date => Arc::new(Date32Array::new(mapped(column, &values, kind::date)?, nulls)),
        Kind::DateTime => Arc::new(TimestampMicrosecondArray::new(mapped(column, &values, kind::datetime)?, nulls)),
        Kind::Time => Arc::new(Time32MillisecondArray::new(mapped(column, &values, kind::time)?, nulls)),
        Kind::TimeOfDay => Arc::new(Time32MillisecondArray::new(mapped(column, &values, kind::time_of_day)?, nulls)),
    };
    if form != As::Text {
        return Ok(made);
    }
    let text = cast(&made, &DataType::Utf8)?;
    let Some(codes) = codes else { return Ok(text) };
    let text = text.as_string::<i32>();
    let mut out = StringBuilder::with_capacity(text.len(), text.value_data().len());
    for (row, code) in codes.iter().enumerate() {
        out.append_value(if text.is_null(row) { kind::missing_text(*code) } else { text.value(row) });
    }
    Ok(Arc::new(out.finish()))
}

/// Every value through `to`.
fn mapped<T: ArrowNativeType>(column: &Column, values: &[f64], to: impl Fn(f64) -> Option<T>) -> Result<ScalarBuffer<T>, SasError> {
    let mut out = Vec::with_capacity(values.len());
    for value in values {
        match to(*value) {
            Some(made) => out.push(made),
            None => return Err(out_of_range(column, *value)),
        }
    }
    Ok(out.into())
}

#[cold]
fn out_of_range(column: &Column, value: f64) -> SasError {
    let (what, unit) = match column.kind {
        Kind::Date => ("a date of the years 1582 to 20000", "days since 1960"),
        Kind::DateTime => ("a time of the years 1582 to 20000", "seconds since 1960"),
        _ => ("a time of day", "seconds"),
    };
    SasError::data(format!(
        "column '{}' has the format {}, but its value {value} is not {what}; declare it as DOUBLE to read {unit}",
        column.name, column.format
    ))
}

/// Texts as an array; an empty one is missing, as a blank one is in SAS.
fn text(bytes: Vec<u8>, ends: Vec<i32>, charset: Charset) -> Result<StringArray, SasError> {
    let (bytes, ends) = if charset.holds_ascii() && bytes.is_ascii() { (bytes, ends) } else { decoded(&bytes, &ends, charset)? };
    let rows = ends.len();
    let begin = |row: usize| if row == 0 { 0 } else { ends[row - 1] };
    let nulls = NullBuffer::new(BooleanBuffer::collect_bool(rows, |row| ends[row] > begin(row)));
    let nulls = (nulls.null_count() > 0).then_some(nulls);
    let mut offsets = Vec::with_capacity(rows + 1);
    offsets.push(0);
    offsets.extend_from_slice(&ends);
    Ok(StringArray::try_new(OffsetBuffer::new(ScalarBuffer::from(offsets)), Buffer::from_vec(bytes), nulls)?)
}

/// The same texts in UTF-8.
#[cold]
fn decoded(bytes: &[u8], ends: &[i32], charset: Charset) -> Result<(Vec<u8>, Vec<i32>), SasError> {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 2);
    let mut out_ends = Vec::with_capacity(ends.len());
    let mut from = 0;
    for end in ends {
        let cell = &bytes[from..*end as usize];
        if cell.is_ascii() && charset.holds_ascii() {
            out.extend_from_slice(cell);
        } else {
            out.extend_from_slice(charset.decode_value(cell)?.as_bytes());
        }
        // A byte becomes at most three, and a batch has at most 64 MiB.
        out_ends.push(out.len() as i32);
        from = *end as usize;
    }
    Ok((out, out_ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_behind_a_text() {
        for length in [0, 1, 31, 32, 33, 64, 100] {
            for text in ["", "a", " a b"] {
                let cell = format!("{text}{}", " ".repeat(length));
                assert_eq!(trimmed(cell.as_bytes()), text.len(), "'{text}' and {length} blanks");
            }
        }
        assert_eq!(trimmed(b"a \0 \0"), 1);
    }

    #[test]
    fn short_texts_are_those_of_the_plain_way() {
        let bytes: Vec<u8> =
            (0u32..4_000).map(|n| [b'a', b' ', b' ', 0, 0xC3][(n.wrapping_mul(2_654_435_761) >> 29) as usize % 5]).collect();
        for length in 1..=SHORT + 1 {
            for last in [bytes.len() - length, bytes.len() - SHORT - 3] {
                let starts: Vec<usize> = (0..200).map(|n| n * 17).chain([last]).collect();
                let (mut out, mut ends) = (b"before".to_vec(), vec![6]);
                texts(&Rows { bytes: &bytes, starts: &starts }, 0, length, &mut out, &mut ends);
                let mut expect = b"before".to_vec();
                for (start, end) in starts.iter().zip(&ends[1..]) {
                    let cell = &bytes[*start..start + length];
                    expect.extend_from_slice(&cell[..trimmed(cell)]);
                    assert_eq!(*end as usize, expect.len(), "{length} bytes at {start}");
                }
                assert_eq!((out, ends.len()), (expect, starts.len() + 1), "{length} bytes");
            }
        }
    }

    #[test]
    fn numbers_cut_short() {
        let number = -1.5f64;
        for length in 3..=8 {
            let (big, little) = (number.to_be_bytes(), number.to_le_bytes());
            let bytes = [&[9; 5][..], &big[..length], &little[8 - length..]].concat();
            let rows = Rows { bytes: &bytes, starts: &[5] };
            let mut out = Vec::new();
            numbers(Numbers::Big, length, &rows, 0, &mut out);
            numbers(Numbers::Little, length, &rows, length, &mut out);
            assert_eq!(out, [number, number], "{length} bytes");
        }
    }

    #[test]
    fn texts_of_a_character_set() {
        let texts = |bytes: &[u8], ends: &[i32], byte: u8| text(bytes.to_vec(), ends.to_vec(), Charset::of_byte(byte)).unwrap();
        assert_eq!(texts(b"abc", &[2, 2, 3], 20), StringArray::from(vec![Some("ab"), None, Some("c")]));
        assert_eq!(texts(b"caf\xE9x", &[4, 5], 62), StringArray::from(vec!["café", "x"]));
        assert_eq!(texts("高é".as_bytes(), &[3, 5], 20), StringArray::from(vec!["高", "é"]));
        // A character that was cut off is seen to be; other bytes that are none of the set are refused.
        assert_eq!(texts(b"a\xE9\xAB", &[3], 20), StringArray::from(vec!["a\u{FFFD}"]));
        let error = text("高".as_bytes().to_vec(), vec![1, 3], Charset::of_byte(20)).unwrap_err().to_string();
        assert!(error.contains("the bytes ab 98 are no text in UTF-8"), "{error}");
    }

    fn column(kind: Kind) -> Column {
        let format = if kind == Kind::Number { "" } else { "DATE" };
        Column { name: "x".into(), label: String::new(), format: format.into(), width: 9, decimals: 0, kind, offset: 0, length: 8 }
    }

    #[test]
    fn missing_numbers_as_null_or_text() {
        let values = vec![1.5, kind::missing(1), kind::missing(2)];
        let as_null = array(&column(Kind::Number), As::Natural, values.clone()).unwrap();
        assert_eq!(as_null.as_ref(), &Float64Array::from(vec![Some(1.5), None, None]) as &dyn Array);
        let as_text = array(&column(Kind::Number), As::Text, values).unwrap();
        assert_eq!(as_text.as_ref(), &StringArray::from(vec!["1.5", ".", ".A"]) as &dyn Array);
        let dates = array(&column(Kind::Date), As::Text, vec![20_892.0, kind::missing(0)]).unwrap();
        assert_eq!(dates.as_ref(), &StringArray::from(vec!["2017-03-14", "._"]) as &dyn Array);
        let raw = array(&column(Kind::Date), As::Number, vec![1e12]).unwrap();
        assert_eq!(raw.as_ref(), &Float64Array::from(vec![1e12]) as &dyn Array);
        let error = array(&column(Kind::Date), As::Natural, vec![1e12]).unwrap_err().to_string();
        assert_eq!(
            error,
            "column 'x' has the format DATE, but its value 1000000000000 is not a date of the years 1582 to 20000; \
             declare it as DOUBLE to read days since 1960"
        );
    }
}
