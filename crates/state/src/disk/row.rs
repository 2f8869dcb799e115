//! Rows of columns as bytes and back, a column at a time.
//!
//! A row is the section of its key columns, then that of its state columns. A section:
//!
//! ```text
//! ┌───────────┬────────────────────────────┬──────────────────────────┐
//! │ NULL bits │ a slot a column: value, or │ texts, one behind the    │
//! │           │ length (4 bytes) of a text │ other, then what Arrow's │
//! │           │                            │ row form made            │
//! └───────────┴────────────────────────────┴──────────────────────────┘
//! ```
//!
//! Slots lie at the same place in every row, so both directions are a loop a column. Numbers, times,
//! decimals and booleans are values; `Utf8` and `Binary` are texts; all other types (lists, structs,
//! dictionaries, views) share one text made by Arrow's row form. What is NULL leaves its slot zero: keys are
//! equal if and only if their sections are. The order of the bytes means nothing.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, BinaryArray, BooleanArray, StringArray, make_array};
use arrow::buffer::{Buffer, MutableBuffer, NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, Rows, SortField};

use super::error::ColdError;

/// How a column stands in a row.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// A value of so many bytes.
    Fixed(usize),
    Bool,
    /// Its length in the slot, its bytes behind.
    Text,
    /// In the row form of the section.
    Other,
}

struct Column {
    data_type: DataType,
    form: Form,
    /// Where its slot is in the section.
    at: usize,
}

/// The columns of keys, or those of state.
struct Section {
    columns: Vec<Column>,
    /// Bytes before the texts.
    fixed: usize,
    /// Where the lengths of the texts are, in the order of the texts.
    lengths: Vec<usize>,
    /// Arrow's row form of the other columns, and where its length is.
    other: Option<(RowConverter, usize)>,
}

/// Writes rows as bytes and reads them back.
pub(crate) struct RowCodec {
    keys: Section,
    state: Section,
}

/// Columns made ready to be written as rows.
pub(crate) struct Prepared<'a> {
    rows: usize,
    sections: Vec<(&'a Section, Vec<Values<'a>>, Option<Rows>)>,
}

/// A column's values, and where it has NULLs.
struct Values<'a> {
    data: Data<'a>,
    nulls: Option<&'a NullBuffer>,
}

enum Data<'a> {
    Fixed(Buffer),
    Bool(&'a BooleanArray),
    Text(&'a [i32], &'a [u8]),
    Other,
}

impl RowCodec {
    /// For rows of these types, the first `keys` of which are the key.
    ///
    /// # Errors
    /// A type that has no row form.
    pub fn new(types: &[DataType], keys: usize) -> Result<Self, ColdError> {
        assert!(keys <= types.len(), "more key columns than columns");
        Ok(RowCodec { keys: Section::new(&types[..keys])?, state: Section::new(&types[keys..])? })
    }

    /// Makes columns ready: all of them, or those of the key only.
    ///
    /// # Errors
    /// Columns of other types or lengths than agreed.
    pub fn prepare<'a>(&'a self, columns: &'a [ArrayRef], rows: usize, key_only: bool) -> Result<Prepared<'a>, ColdError> {
        let types = || self.keys.columns.iter().chain(self.state.columns.iter().filter(move |_| !key_only)).map(|c| &c.data_type);
        if !columns.iter().map(|c| c.data_type()).eq(types()) || columns.iter().any(|c| c.len() != rows) {
            let given: Vec<String> = columns.iter().map(|c| format!("{} × {}", c.len(), c.data_type())).collect();
            let wanted: Vec<String> = types().map(ToString::to_string).collect();
            let (given, wanted) = (given.join(", "), wanted.join(", "));
            return Err(ColdError::new(format!("internal error: state of {rows} rows of ({wanted}) came as ({given})")));
        }
        let (keys, state) = columns.split_at(self.keys.columns.len());
        let mut sections = vec![self.keys.prepare(keys)?];
        if !key_only {
            sections.push(self.state.prepare(state)?);
        }
        Ok(Prepared { rows, sections })
    }

    /// The part of a row that is its key.
    #[inline]
    pub fn key<'a>(&self, row: &'a [u8]) -> &'a [u8] {
        let texts: usize = self.keys.lengths.iter().map(|at| length(row, *at)).sum();
        &row[..self.keys.fixed + texts]
    }

    /// The columns of whole rows.
    ///
    /// # Errors
    /// Rows that are none.
    pub fn columns(&self, rows: &[&[u8]]) -> Result<Vec<ArrayRef>, ColdError> {
        let mut base = vec![0; rows.len()];
        let mut columns = self.keys.read(rows, &mut base)?;
        columns.extend(self.state.read(rows, &mut base)?);
        Ok(columns)
    }
}

impl Prepared<'_> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Appends some rows to `arena` and where each ends there to `ends`.
    pub fn append(&self, rows: Range<usize>, arena: &mut Vec<u8>, ends: &mut Vec<u64>) {
        let mut base = vec![0; rows.len()];
        for (section, values, other) in &self.sections {
            section.add_lengths(values, other.as_ref(), rows.clone(), &mut base);
        }
        let mut end = arena.len();
        for base in &mut base {
            let start = end;
            end += *base;
            ends.push(end as u64);
            *base = start;
        }
        arena.resize(end, 0);
        for (section, values, other) in &self.sections {
            section.write(values, other.as_ref(), rows.clone(), &mut base, arena);
        }
    }
}

impl Section {
    fn new(types: &[DataType]) -> Result<Self, ColdError> {
        let mut fixed = types.len().div_ceil(8);
        let mut slot = |bytes: usize| {
            fixed += bytes;
            fixed - bytes
        };
        let mut lengths = Vec::new();
        let mut columns = Vec::new();
        for data_type in types {
            let form = match data_type {
                DataType::Boolean => Form::Bool,
                DataType::Utf8 | DataType::Binary => Form::Text,
                other => other.primitive_width().map_or(Form::Other, Form::Fixed),
            };
            let at = match form {
                Form::Fixed(width) => slot(width),
                Form::Bool => slot(1),
                Form::Text => slot(4),
                Form::Other => 0,
            };
            if form == Form::Text {
                lengths.push(at);
            }
            columns.push(Column { data_type: data_type.clone(), form, at });
        }
        let others: Vec<SortField> =
            columns.iter().filter(|c| c.form == Form::Other).map(|c| SortField::new(c.data_type.clone())).collect();
        let other = if others.is_empty() { None } else { Some((RowConverter::new(others)?, slot(4))) };
        lengths.extend(other.as_ref().map(|(_, at)| *at));
        Ok(Section { columns, fixed, lengths, other })
    }

    fn prepare<'a>(&'a self, arrays: &'a [ArrayRef]) -> Result<(&'a Section, Vec<Values<'a>>, Option<Rows>), ColdError> {
        let values = |(column, array): (&Column, &'a ArrayRef)| {
            let data = match (column.form, &column.data_type) {
                (Form::Fixed(width), _) => {
                    let data = array.to_data();
                    Data::Fixed(data.buffers()[0].slice_with_length(data.offset() * width, array.len() * width))
                }
                (Form::Bool, _) => Data::Bool(array.as_boolean()),
                (Form::Text, DataType::Utf8) => {
                    let texts = array.as_string::<i32>();
                    Data::Text(texts.value_offsets(), texts.value_data())
                }
                (Form::Text, _) => {
                    let texts = array.as_binary::<i32>();
                    Data::Text(texts.value_offsets(), texts.value_data())
                }
                (Form::Other, _) => Data::Other,
            };
            Values { data, nulls: array.nulls().filter(|n| n.null_count() > 0) }
        };
        let values = self.columns.iter().zip(arrays).map(values).collect();
        let others = || self.columns.iter().zip(arrays).filter(|(c, _)| c.form == Form::Other).map(|(_, a)| a.clone());
        let rows = self.other.as_ref().map(|(converter, _)| converter.convert_columns(&others().collect::<Vec<_>>())).transpose()?;
        Ok((self, values, rows))
    }

    fn add_lengths(&self, values: &[Values], other: Option<&Rows>, rows: Range<usize>, lengths: &mut [usize]) {
        lengths.iter_mut().for_each(|l| *l += self.fixed);
        for values in values {
            let Data::Text(offsets, _) = values.data else { continue };
            for (length, row) in lengths.iter_mut().zip(rows.clone()) {
                if values.nulls.is_none_or(|n| n.is_valid(row)) {
                    *length += (offsets[row + 1] - offsets[row]) as usize;
                }
            }
        }
        if let Some(other) = other {
            lengths.iter_mut().zip(rows).for_each(|(length, row)| *length += other.row_len(row));
        }
    }

    /// Writes the section of some rows, which begin at `base`; then `base` is where they end. `out` is zero there.
    fn write(&self, values: &[Values], other: Option<&Rows>, rows: Range<usize>, base: &mut [usize], out: &mut [u8]) {
        let mut text: Vec<usize> = base.iter().map(|b| b + self.fixed).collect();
        for (number, (column, values)) in self.columns.iter().zip(values).enumerate() {
            if let Some(nulls) = values.nulls {
                for (base, row) in base.iter().zip(rows.clone()) {
                    out[base + number / 8] |= u8::from(nulls.is_null(row)) << (number % 8);
                }
            }
            let valid = |row: usize| values.nulls.is_none_or(|n| n.is_valid(row));
            match (&values.data, column.form) {
                (Data::Fixed(bytes), Form::Fixed(width)) => {
                    let write = match width {
                        1 => scatter::<1>,
                        2 => scatter::<2>,
                        4 => scatter::<4>,
                        8 => scatter::<8>,
                        16 => scatter::<16>,
                        _ => scatter::<32>,
                    };
                    write(&bytes[rows.start * width..rows.end * width], values.nulls, rows.start, base, column.at, out);
                }
                (Data::Bool(array), _) => {
                    for (base, row) in base.iter().zip(rows.clone()) {
                        out[base + column.at] = u8::from(valid(row) && array.value(row));
                    }
                }
                (Data::Text(offsets, bytes), _) => {
                    for ((base, text), row) in base.iter().zip(&mut text).zip(rows.clone()) {
                        if valid(row) {
                            let bytes = &bytes[offsets[row] as usize..offsets[row + 1] as usize];
                            put_text(bytes, base + column.at, text, out);
                        }
                    }
                }
                _ => {}
            }
        }
        if let (Some(rows_of_other), Some((_, at))) = (other, &self.other) {
            for ((base, text), row) in base.iter().zip(&mut text).zip(rows) {
                put_text(rows_of_other.row(row).data(), base + at, text, out);
            }
        }
        base.copy_from_slice(&text);
    }

    /// Reads the section of rows, which begin at `base`; then `base` is where it ends.
    fn read(&self, rows: &[&[u8]], base: &mut [usize]) -> Result<Vec<ArrayRef>, ColdError> {
        let mut text: Vec<usize> = base.iter().map(|b| b + self.fixed).collect();
        let mut columns = Vec::with_capacity(self.columns.len());
        for (number, column) in self.columns.iter().enumerate() {
            let is_null = |(row, base): (&&[u8], &usize)| row[base + number / 8] >> (number % 8) & 1 == 1;
            let nulls = || {
                let any = rows.iter().zip(base.iter()).any(is_null);
                any.then(|| rows.iter().zip(base.iter()).map(|row| !is_null(row)).collect::<NullBuffer>())
            };
            columns.push(match column.form {
                Form::Fixed(width) => {
                    let mut values = MutableBuffer::from_len_zeroed(rows.len() * width);
                    let read = match width {
                        1 => gather::<1>,
                        2 => gather::<2>,
                        4 => gather::<4>,
                        8 => gather::<8>,
                        16 => gather::<16>,
                        _ => gather::<32>,
                    };
                    read(rows, base, column.at, values.as_slice_mut());
                    let data = ArrayData::builder(column.data_type.clone()).len(rows.len()).add_buffer(values.into()).nulls(nulls());
                    Some(make_array(data.build()?))
                }
                Form::Bool => {
                    let values = rows.iter().zip(base.iter()).map(|(row, base)| row[base + column.at] == 1).collect();
                    Some(Arc::new(BooleanArray::new(values, nulls())) as ArrayRef)
                }
                Form::Text => {
                    let (offsets, values) = take_texts(rows, base, column.at, &mut text)?;
                    Some(match column.data_type {
                        DataType::Utf8 => Arc::new(StringArray::try_new(offsets, values, nulls())?) as ArrayRef,
                        _ => Arc::new(BinaryArray::try_new(offsets, values, nulls())?),
                    })
                }
                Form::Other => None,
            });
        }
        let mut others = match &self.other {
            Some((converter, at)) => {
                let parser = converter.parser();
                let each = rows.iter().zip(base.iter()).zip(&mut text).map(|((row, base), text)| {
                    let start = *text;
                    *text += length(row, base + at);
                    parser.parse(&row[start..*text])
                });
                converter.convert_rows(each)?
            }
            None => Vec::new(),
        }
        .into_iter();
        base.copy_from_slice(&text);
        columns
            .into_iter()
            .zip(&self.columns)
            .map(|(array, column)| {
                let array = array.or_else(|| others.next()).expect("a row form for each other column");
                // The row form knows no dictionaries.
                Ok(if *array.data_type() == column.data_type { array } else { cast(&array, &column.data_type)? })
            })
            .collect()
    }
}

#[inline]
fn length(row: &[u8], at: usize) -> usize {
    u32::from_le_bytes(row[at..at + 4].try_into().expect("four bytes")) as usize
}

#[inline]
fn put_text(bytes: &[u8], slot: usize, text: &mut usize, out: &mut [u8]) {
    out[slot..slot + 4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    out[*text..*text + bytes.len()].copy_from_slice(bytes);
    *text += bytes.len();
}

/// Writes values of `W` bytes; `values` and `base` begin at row `from` of the column.
fn scatter<const W: usize>(values: &[u8], nulls: Option<&NullBuffer>, from: usize, base: &[usize], at: usize, out: &mut [u8]) {
    for (i, (value, base)) in values.chunks_exact(W).zip(base).enumerate() {
        if nulls.is_none_or(|n| n.is_valid(from + i)) {
            out[base + at..base + at + W].copy_from_slice(value);
        }
    }
}

fn gather<const W: usize>(rows: &[&[u8]], base: &[usize], at: usize, out: &mut [u8]) {
    for ((row, base), value) in rows.iter().zip(base).zip(out.chunks_exact_mut(W)) {
        value.copy_from_slice(&row[base + at..base + at + W]);
    }
}

/// The texts whose lengths are at `at` and whose bytes are at `text`, which moves on.
fn take_texts(rows: &[&[u8]], base: &[usize], at: usize, text: &mut [usize]) -> Result<(OffsetBuffer<i32>, Buffer), ColdError> {
    let total: usize = rows.iter().zip(base).map(|(row, base)| length(row, base + at)).sum();
    if total > i32::MAX as usize {
        return Err(ColdError::new("more than 2 GB of text in rows of state read at once; read fewer"));
    }
    let mut offsets = Vec::with_capacity(rows.len() + 1);
    offsets.push(0i32);
    let mut values = Vec::with_capacity(total);
    for ((row, base), text) in rows.iter().zip(base).zip(text) {
        let end = *text + length(row, base + at);
        values.extend_from_slice(&row[*text..end]);
        offsets.push(values.len() as i32);
        *text = end;
    }
    Ok((OffsetBuffer::new(offsets.into()), Buffer::from_vec(values)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        Date32Array, Decimal128Array, DictionaryArray, Float64Array, Int8Array, Int64Array, LargeStringArray, ListArray, NullArray,
        StringViewArray, StructArray, TimestampMillisecondArray,
    };
    use arrow::datatypes::{Field, Int32Type, Int64Type};

    fn columns() -> Vec<ArrayRef> {
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), None, Some(3)]),
            None,
            Some(vec![]),
            Some(vec![Some(i64::MIN)]),
        ]);
        let dictionary: DictionaryArray<Int32Type> = [Some("a"), None, Some("b"), Some("a")].into_iter().collect();
        let nested = StructArray::from(vec![(
            Arc::new(Field::new("x", DataType::Utf8, true)),
            Arc::new(StringArray::from(vec![Some("p"), None, Some(""), Some("q")])) as ArrayRef,
        )]);
        vec![
            Arc::new(Int64Array::from(vec![Some(1), None, Some(i64::MAX), Some(0)])),
            Arc::new(StringArray::from(vec![Some("one"), Some(""), None, Some("größer als ein Wort von acht Bytes")])),
            Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true)])),
            Arc::new(Float64Array::from(vec![Some(-0.0), Some(f64::NAN), Some(0.0), None])),
            Arc::new(Decimal128Array::from(vec![Some(-1), None, Some(i128::MAX / 7), Some(5)]).with_precision_and_scale(38, 9).unwrap()),
            Arc::new(TimestampMillisecondArray::from(vec![Some(-5), None, Some(7), Some(1 << 40)]).with_timezone("+02:00")),
            Arc::new(Int8Array::from(vec![1, -1, 2, -2])),
            Arc::new(Date32Array::from(vec![Some(1), None, None, Some(4)])),
            Arc::new(BinaryArray::from_opt_vec(vec![Some(&b"\x00\xff"[..]), None, Some(&b""[..]), Some(&b"\x07"[..])])),
            Arc::new(list),
            Arc::new(dictionary),
            Arc::new(nested),
            Arc::new(LargeStringArray::from(vec![Some("l"), None, Some(""), Some("m")])),
            Arc::new(StringViewArray::from(vec![Some("short"), None, Some("longer than twelve bytes"), Some("")])),
            Arc::new(NullArray::new(4)),
        ]
    }

    fn encode(codec: &RowCodec, columns: &[ArrayRef], key_only: bool) -> Vec<Vec<u8>> {
        let rows = columns[0].len();
        let prepared = codec.prepare(columns, rows, key_only).unwrap();
        let (mut arena, mut ends) = (vec![9; 3], Vec::new());
        (0..rows).for_each(|row| prepared.append(row..row + 1, &mut arena, &mut ends));
        let mut whole = (vec![9; 3], Vec::new());
        prepared.append(0..rows, &mut whole.0, &mut whole.1);
        assert_eq!((&arena, &ends), (&whole.0, &whole.1), "pieces do not show");
        let starts = std::iter::once(3).chain(ends.iter().copied());
        starts.zip(&ends).map(|(start, end)| arena[start as usize..*end as usize].to_vec()).collect()
    }

    fn check(columns: &[ArrayRef], keys: usize) {
        let types: Vec<DataType> = columns.iter().map(|c| c.data_type().clone()).collect();
        let codec = RowCodec::new(&types, keys).unwrap();
        let rows = encode(&codec, columns, false);
        let slices: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        let back = codec.columns(&slices).unwrap();
        for (array, column) in back.iter().zip(columns) {
            assert_eq!(array.data_type(), column.data_type());
            // As text: NaN is not equal to itself, and dictionaries may be numbered anew.
            for row in 0..array.len() {
                let value = |a: &ArrayRef| arrow::util::display::array_value_to_string(a, row).unwrap();
                assert_eq!((array.is_null(row), value(array)), (column.is_null(row), value(column)), "{} row {row}", array.data_type());
            }
        }
        if keys > 0 {
            let only = encode(&codec, &columns[..keys], true);
            slices.iter().zip(&only).for_each(|(row, key)| assert_eq!(codec.key(row), key));
        }
    }

    #[test]
    fn every_type_comes_back() {
        let all = columns();
        for keys in 0..all.len() {
            check(&all, keys);
            check(&all.iter().map(|c| c.slice(1, 2)).collect::<Vec<_>>(), keys);
        }
        all.chunks(1).for_each(|one| check(one, 1));
    }

    #[test]
    fn null_is_not_the_default_value() {
        let codec = RowCodec::new(&[DataType::Int64, DataType::Utf8], 2).unwrap();
        let ints = || Arc::new(Int64Array::from(vec![Some(0), None, Some(0), None])) as ArrayRef;
        let texts = Arc::new(StringArray::from(vec![Some(""), Some(""), None, None])) as ArrayRef;
        let mut rows = encode(&codec, &[ints(), texts], true);
        rows.sort();
        rows.dedup();
        assert_eq!(rows.len(), 4);
        let wrong = codec.prepare(&[ints()], 4, true).err().unwrap().to_string();
        assert!(wrong.contains("Int64, Utf8"), "{wrong}");
    }
}
