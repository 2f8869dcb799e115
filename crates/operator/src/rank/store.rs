//! Rows and byte strings by number, kept in columns: what rankings, deduplication and normalising hold in
//! state.

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, BooleanArray, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};
use arrow::row::{RowConverter, SortField};

use tidemill_state::SlotVec;

use crate::OperatorError;
use crate::gather::Strings;

/// Garbage in an arena is collected only when there is more of it than this (bytes).
const GARBAGE_MIN: usize = 1 << 16;

/// Byte strings by number in one arena.
#[derive(Default)]
pub(super) struct Bytes {
    arena: Vec<u8>,
    starts: SlotVec<usize>,
    lengths: SlotVec<u32>,
    /// Bytes of the arena that some number refers to.
    used: usize,
}

impl Bytes {
    /// The string of `id`; empty if it never got one.
    #[inline]
    pub fn get(&self, id: u32) -> &[u8] {
        let start = self.starts[id as usize];
        &self.arena[start..start + self.lengths[id as usize] as usize]
    }

    /// Gives `id` a string. One that is not longer than the former takes its place.
    pub fn put(&mut self, id: u32, bytes: &[u8]) {
        let i = id as usize;
        self.grow(i + 1);
        let former = self.lengths[i] as usize;
        if bytes.len() <= former {
            let start = self.starts[i];
            self.arena[start..start + bytes.len()].copy_from_slice(bytes);
        } else {
            self.starts[i] = self.arena.len();
            self.arena.extend_from_slice(bytes);
        }
        self.lengths[i] = u32::try_from(bytes.len()).expect("a value is smaller than 4 GB");
        self.used = self.used - former + bytes.len();
        if self.arena.len() > 2 * self.used + GARBAGE_MIN {
            self.collect();
        }
    }

    /// Makes room for numbers below `len`.
    fn grow(&mut self, len: usize) {
        self.starts.resize(len, 0);
        self.lengths.resize(len, 0);
    }

    fn collect(&mut self) {
        let mut arena = Vec::with_capacity(self.used + self.used / 2);
        for (start, length) in self.starts.iter_mut().zip(self.lengths.iter()) {
            let from = *start;
            *start = arena.len();
            arena.extend_from_slice(&self.arena[from..from + *length as usize]);
        }
        self.arena = arena;
    }

    pub fn memory(&self) -> usize {
        self.arena.capacity() + self.starts.memory() + self.lengths.memory()
    }
}

/// Rows by number.
pub(crate) struct RowStore {
    columns: Vec<Column>,
}

struct Column {
    data_type: DataType,
    values: Values,
    /// Which numbers hold NULL; empty as long as none ever did.
    nulls: SlotVec<bool>,
}

/// Values by number. Numbers are kept by their width, whatever their type.
enum Values {
    Bits8(SlotVec<i8>),
    Bits16(SlotVec<i16>),
    Bits32(SlotVec<i32>),
    Bits64(SlotVec<i64>),
    Bits128(SlotVec<i128>),
    Boolean(SlotVec<bool>),
    Text(Bytes),
    Binary(Bytes),
    /// Anything else in Arrow's row form, NULL included.
    Encoded(RowConverter, Bytes),
}

impl RowStore {
    /// An empty store for rows of these types.
    ///
    /// # Errors
    /// A type that cannot be kept.
    pub fn new<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Result<Self, OperatorError> {
        Ok(RowStore { columns: types.into_iter().map(Column::new).collect::<Result<_, _>>()? })
    }

    /// Gives each of `ids` the row of `columns` that stands at the same place of `rows`. If a number
    /// appears twice the later row stays.
    ///
    /// # Errors
    /// Columns of other types.
    pub fn put(&mut self, ids: &[u32], rows: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        let Some(last) = ids.iter().max() else { return Ok(()) };
        let len = *last as usize + 1;
        self.columns.iter_mut().zip(columns).try_for_each(|(store, column)| store.put(len, ids, rows, column))
    }

    /// The rows of `ids` as columns.
    ///
    /// # Errors
    /// None that rows entered by [`RowStore::put`] can cause.
    pub fn get(&self, ids: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        self.columns.iter().map(|c| c.get(ids)).collect()
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.columns.iter().map(Column::memory).sum()
    }
}

impl Column {
    fn new(data_type: &DataType) -> Result<Self, OperatorError> {
        let values = match data_type {
            DataType::Boolean => Values::Boolean(SlotVec::new()),
            DataType::Utf8 => Values::Text(Bytes::default()),
            DataType::Binary => Values::Binary(Bytes::default()),
            DataType::Decimal128(..) => Values::Bits128(SlotVec::new()),
            // The halves of an interval need not be aligned as one number is.
            DataType::Interval(_) => Self::encoded(data_type)?,
            other => match other.primitive_width() {
                Some(1) => Values::Bits8(SlotVec::new()),
                Some(2) => Values::Bits16(SlotVec::new()),
                Some(4) => Values::Bits32(SlotVec::new()),
                Some(8) => Values::Bits64(SlotVec::new()),
                _ => Self::encoded(other)?,
            },
        };
        Ok(Column { data_type: data_type.clone(), values, nulls: SlotVec::new() })
    }

    fn encoded(data_type: &DataType) -> Result<Values, OperatorError> {
        Ok(Values::Encoded(RowConverter::new(vec![SortField::new(data_type.clone())])?, Bytes::default()))
    }

    fn put(&mut self, len: usize, ids: &[u32], rows: &[u32], column: &ArrayRef) -> Result<(), OperatorError> {
        let data = column.to_data();
        match &mut self.values {
            Values::Bits8(to) => scatter(to, len, ids, rows, data.buffer(0)),
            Values::Bits16(to) => scatter(to, len, ids, rows, data.buffer(0)),
            Values::Bits32(to) => scatter(to, len, ids, rows, data.buffer(0)),
            Values::Bits64(to) => scatter(to, len, ids, rows, data.buffer(0)),
            Values::Bits128(to) => scatter(to, len, ids, rows, data.buffer(0)),
            Values::Boolean(to) => {
                to.resize(len, false);
                let from = column.as_boolean().values();
                ids.iter().zip(rows).for_each(|(id, row)| to[*id as usize] = from.value(*row as usize));
            }
            Values::Text(to) => {
                to.grow(len);
                let from = column.as_string::<i32>();
                ids.iter().zip(rows).for_each(|(id, row)| to.put(*id, from.value(*row as usize).as_bytes()));
            }
            Values::Binary(to) => {
                to.grow(len);
                let from = column.as_binary::<i32>();
                ids.iter().zip(rows).for_each(|(id, row)| to.put(*id, from.value(*row as usize)));
            }
            Values::Encoded(converter, to) => {
                to.grow(len);
                let encoded = converter.convert_columns(std::slice::from_ref(column))?;
                ids.iter().zip(rows).for_each(|(id, row)| to.put(*id, encoded.row(*row as usize).data()));
            }
        }
        let nulls = column.nulls().filter(|n| n.null_count() > 0);
        if nulls.is_some() || !self.nulls.is_empty() {
            self.nulls.resize(len, false);
            ids.iter().zip(rows).for_each(|(id, row)| self.nulls[*id as usize] = nulls.is_some_and(|n| n.is_null(*row as usize)));
        }
        Ok(())
    }

    fn get(&self, ids: &[u32]) -> Result<ArrayRef, OperatorError> {
        let null = |id: &u32| self.nulls.get(*id as usize).copied().unwrap_or(false);
        let nulls = ids.iter().any(null).then(|| ids.iter().map(|id| !null(id)).collect::<NullBuffer>());
        Ok(match &self.values {
            Values::Bits8(from) => self.gather(from, ids, nulls)?,
            Values::Bits16(from) => self.gather(from, ids, nulls)?,
            Values::Bits32(from) => self.gather(from, ids, nulls)?,
            Values::Bits64(from) => self.gather(from, ids, nulls)?,
            Values::Bits128(from) => self.gather(from, ids, nulls)?,
            Values::Boolean(from) => Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(ids.len(), |i| from[ids[i] as usize]), nulls)),
            Values::Text(from) | Values::Binary(from) => {
                let mut out = Strings::new(ids.len(), ids.iter().map(|id| from.lengths[*id as usize] as usize).sum())?;
                for id in ids {
                    out.push(&from.arena, from.starts[*id as usize], from.lengths[*id as usize] as usize);
                }
                // SAFETY: what is kept of a text column are its values.
                unsafe { out.finish(&self.data_type, nulls) }
            }
            Values::Encoded(converter, from) => {
                let parser = converter.parser();
                let mut columns = converter.convert_rows(ids.iter().map(|id| parser.parse(from.get(*id))))?;
                columns.pop().expect("one column")
            }
        })
    }

    fn gather<T: ArrowNativeType>(&self, from: &[T], ids: &[u32], nulls: Option<NullBuffer>) -> Result<ArrayRef, OperatorError> {
        let values: Vec<T> = ids.iter().map(|id| from[*id as usize]).collect();
        let data = ArrayData::builder(self.data_type.clone()).len(ids.len()).add_buffer(Buffer::from_vec(values)).nulls(nulls);
        Ok(make_array(data.build()?))
    }

    fn memory(&self) -> usize {
        let values = match &self.values {
            Values::Bits8(v) => v.memory(),
            Values::Bits16(v) => v.memory(),
            Values::Bits32(v) => v.memory(),
            Values::Bits64(v) => v.memory(),
            Values::Bits128(v) => v.memory(),
            Values::Boolean(v) => v.memory(),
            Values::Text(v) | Values::Binary(v) | Values::Encoded(_, v) => v.memory(),
        };
        values + self.nulls.memory()
    }
}

fn scatter<T: ArrowNativeType>(to: &mut SlotVec<T>, len: usize, ids: &[u32], rows: &[u32], from: &[T]) {
    to.resize(len, T::default());
    for (id, row) in ids.iter().zip(rows) {
        to[*id as usize] = from[*row as usize];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        BinaryArray, Decimal128Array, Float64Array, Int8Array, Int64Array, ListArray, StringArray, TimestampMillisecondArray,
    };
    use arrow::datatypes::Int32Type;

    #[test]
    fn rows_of_every_kind_come_back() {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])),
            Arc::new(Int8Array::from(vec![-1, 2, 3])),
            Arc::new(Float64Array::from(vec![Some(0.5), Some(-0.0), None])),
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
            Arc::new(StringArray::from(vec![Some("a"), Some(""), None])),
            Arc::new(BinaryArray::from_opt_vec(vec![Some(&b"xyz"[..]), None, Some(&b""[..])])),
            Arc::new(TimestampMillisecondArray::from(vec![1, 2, 3]).with_timezone("UTC")),
            Arc::new(Decimal128Array::from(vec![Some(5), None, Some(-7)]).with_precision_and_scale(10, 2).unwrap()),
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), None]), None, Some(vec![])])),
        ];
        let mut store = RowStore::new(columns.iter().map(|c| c.data_type())).unwrap();
        store.put(&[7, 3, 5], &[0, 1, 2], &columns).unwrap();
        assert_eq!(store.get(&[7, 3, 5]).unwrap(), columns);
        // Numbers are given again, the later row of a call wins, and slices start where they start.
        store.put(&[3, 3], &[0, 1], &columns.iter().map(|c| c.slice(1, 2)).collect::<Vec<_>>()).unwrap();
        let expect: Vec<ArrayRef> = columns.iter().map(|c| c.slice(2, 1)).collect();
        assert_eq!(store.get(&[3]).unwrap(), expect);
        assert_eq!(store.get(&[]).unwrap().len(), columns.len());
    }

    #[test]
    fn garbage_is_collected() {
        let mut bytes = Bytes::default();
        for round in 0..2000u32 {
            // Strings that grow never fit their former place.
            bytes.put(round % 7, &vec![round as u8; 100 + round as usize]);
        }
        assert!(bytes.memory() < 8 * GARBAGE_MIN, "{} bytes for seven strings", bytes.memory());
        for id in 0..7u32 {
            let round = (1993..2000).find(|r| r % 7 == id).unwrap();
            assert_eq!(bytes.get(id), vec![round as u8; 100 + round as usize]);
        }
    }
}
