//! Rows kept in columns: what joins remember of their inputs.
//!
//! A row that is put in gets a number; the number of a removed row is given again, so memory follows
//! the rows that are there and not those that ever came. Values of fixed width lie in plain vectors,
//! text and bytes in an arena that is rewritten when half of it is dead. Which rows belong to which
//! key is not known here: see [`super::side`].

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, BooleanArray, UInt32Array, make_array, new_null_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::{concat, take};
use arrow::datatypes::{ArrowNativeType, DataType, IntervalUnit};
use arrow::error::ArrowError;
use arrow::util::bit_util;

use crate::gather::Strings;

/// In place of a row's number: no row. What is taken for it is NULL.
pub const NO_ROW: u32 = u32::MAX;

/// Dead bytes in an arena before it is worth rewriting.
const DEAD_BYTES_MIN: usize = 64 * 1024;

/// Rows of one schema by number.
pub struct RowStore {
    types: Vec<DataType>,
    columns: Vec<Column>,
    free: Vec<u32>,
    /// One more than the largest number ever given.
    numbers: u32,
}

impl RowStore {
    /// An empty store for columns of these types.
    pub fn new(types: Vec<DataType>) -> Self {
        let columns = types.iter().map(Column::new).collect();
        RowStore { types, columns, free: Vec::new(), numbers: 0 }
    }

    /// The columns' types.
    pub fn types(&self) -> &[DataType] {
        &self.types
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.numbers as usize - self.free.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One more than the largest number ever given: how long vectors indexed by number must be.
    pub fn capacity(&self) -> usize {
        self.numbers as usize
    }

    /// Puts in the rows `rows` of a block with these columns; their numbers are appended to `ids`.
    ///
    /// # Errors
    /// More than four billion rows; a value of a nested type that cannot be copied.
    pub fn insert(&mut self, block: &[ArrayData], rows: &[u32], ids: &mut Vec<u32>) -> Result<(), ArrowError> {
        let first = ids.len();
        for _ in rows {
            let id = match self.free.pop() {
                Some(id) => id,
                None if self.numbers == NO_ROW - 1 => {
                    return Err(ArrowError::ComputeError("more than 4 billion rows in one join; raise the parallelism".into()));
                }
                None => {
                    self.numbers += 1;
                    self.numbers - 1
                }
            };
            ids.push(id);
        }
        let capacity = self.capacity();
        for (column, data) in self.columns.iter_mut().zip(block) {
            column.put(capacity, data, rows, &ids[first..])?;
        }
        Ok(())
    }

    /// Forgets a row; its number will be given to another.
    pub fn remove(&mut self, id: u32) {
        for column in &mut self.columns {
            column.clear(id);
        }
        self.free.push(id);
    }

    /// Whether the row `id` holds the same values as row `row` of a block, NULL being the same as NULL.
    pub fn same(&self, id: u32, block: &[ArrayData], row: usize) -> bool {
        self.columns.iter().zip(block).all(|(column, data)| column.same(id, data, row))
    }

    /// All columns of the rows `ids`, in that order; NULL for [`NO_ROW`].
    ///
    /// # Errors
    /// More than 2 GB of text in one column.
    pub fn take(&self, ids: &[u32]) -> Result<Vec<ArrayRef>, ArrowError> {
        (0..self.columns.len()).map(|c| self.take_column(c, ids)).collect()
    }

    /// One column of the rows `ids`.
    ///
    /// # Errors
    /// As [`RowStore::take`].
    pub fn take_column(&self, column: usize, ids: &[u32]) -> Result<ArrayRef, ArrowError> {
        self.columns[column].take(&self.types[column], ids)
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.columns.iter().map(Column::memory).sum::<usize>() + self.free.capacity() * 4
    }
}

/// The columns of a block in the form in which [`RowStore`] takes them.
pub fn column_data(columns: &[ArrayRef]) -> Vec<ArrayData> {
    columns.iter().map(|c| c.to_data()).collect()
}

/// Which values are there; empty while none is NULL.
#[derive(Default)]
struct Validity(Vec<bool>);

impl Validity {
    fn put(&mut self, capacity: usize, data: &ArrayData, rows: &[u32], ids: &[u32]) {
        match data.nulls().filter(|n| n.null_count() > 0) {
            None if self.0.is_empty() => {}
            None => {
                self.0.resize(capacity, true);
                ids.iter().for_each(|id| self.0[*id as usize] = true);
            }
            Some(nulls) => {
                self.0.resize(capacity, true);
                ids.iter().zip(rows).for_each(|(id, row)| self.0[*id as usize] = nulls.is_valid(*row as usize));
            }
        }
    }

    #[inline]
    fn get(&self, id: u32) -> bool {
        self.0.get(id as usize).is_none_or(|v| *v)
    }

    fn take(&self, ids: &[u32]) -> Option<NullBuffer> {
        if self.0.is_empty() && !ids.contains(&NO_ROW) {
            return None;
        }
        let nulls: NullBuffer = ids.iter().map(|id| *id != NO_ROW && self.get(*id)).collect();
        Some(nulls).filter(|n| n.null_count() > 0)
    }
}

/// Values of a fixed width by their bits.
#[derive(Default)]
struct Fixed<T> {
    values: Vec<T>,
    valid: Validity,
}

impl<T: ArrowNativeType> Fixed<T> {
    fn put(&mut self, capacity: usize, data: &ArrayData, rows: &[u32], ids: &[u32]) {
        let from = data.buffer::<T>(0);
        self.values.resize(capacity, T::default());
        for (id, row) in ids.iter().zip(rows) {
            self.values[*id as usize] = from[*row as usize];
        }
        self.valid.put(capacity, data, rows, ids);
    }

    fn same(&self, id: u32, data: &ArrayData, row: usize) -> bool {
        let valid = data.is_valid(row);
        valid == self.valid.get(id) && (!valid || data.buffer::<T>(0)[row] == self.values[id as usize])
    }

    fn take(&self, data_type: &DataType, ids: &[u32]) -> Result<ArrayRef, ArrowError> {
        // `get` also serves `NO_ROW`, which lies beyond every vector.
        let values: Vec<T> = ids.iter().map(|id| self.values.get(*id as usize).copied().unwrap_or_default()).collect();
        let data = ArrayData::builder(data_type.clone())
            .len(ids.len())
            .add_buffer(Buffer::from_vec(values))
            .nulls(self.valid.take(ids))
            .build()?;
        Ok(make_array(data))
    }

    fn memory(&self) -> usize {
        self.values.capacity() * size_of::<T>() + self.valid.0.capacity()
    }
}

/// Text or bytes in one arena.
#[derive(Default)]
struct Bytes {
    arena: Vec<u8>,
    starts: Vec<u64>,
    lengths: Vec<u32>,
    valid: Validity,
    dead: usize,
}

impl Bytes {
    fn put(&mut self, capacity: usize, data: &ArrayData, rows: &[u32], ids: &[u32]) {
        let offsets = data.buffer::<i32>(0);
        let bytes = data.buffers()[1].as_slice();
        self.starts.resize(capacity, 0);
        self.lengths.resize(capacity, 0);
        for (id, row) in ids.iter().zip(rows) {
            let value = &bytes[offsets[*row as usize] as usize..offsets[*row as usize + 1] as usize];
            self.starts[*id as usize] = self.arena.len() as u64;
            self.lengths[*id as usize] = value.len() as u32;
            self.arena.extend_from_slice(value);
        }
        self.valid.put(capacity, data, rows, ids);
    }

    #[inline]
    fn get(&self, id: u32) -> &[u8] {
        let start = self.starts[id as usize] as usize;
        &self.arena[start..start + self.lengths[id as usize] as usize]
    }

    fn same(&self, id: u32, data: &ArrayData, row: usize) -> bool {
        let valid = data.is_valid(row);
        if valid != self.valid.get(id) || !valid {
            return valid == self.valid.get(id);
        }
        let offsets = data.buffer::<i32>(0);
        &data.buffers()[1].as_slice()[offsets[row] as usize..offsets[row + 1] as usize] == self.get(id)
    }

    fn clear(&mut self, id: u32) {
        self.dead += std::mem::take(&mut self.lengths[id as usize]) as usize;
        if self.dead >= DEAD_BYTES_MIN && self.dead * 2 > self.arena.len() {
            let mut arena = Vec::with_capacity(self.arena.len() - self.dead);
            for id in 0..self.starts.len() as u32 {
                let start = arena.len() as u64;
                arena.extend_from_slice(self.get(id));
                self.starts[id as usize] = start;
            }
            self.arena = arena;
            self.dead = 0;
        }
    }

    fn take(&self, data_type: &DataType, ids: &[u32]) -> Result<ArrayRef, ArrowError> {
        let length = |id: &u32| self.lengths.get(*id as usize).map_or(0, |l| *l as usize);
        let total: usize = ids.iter().map(length).sum();
        let mut out = Strings::new(ids.len(), total)?;
        for id in ids {
            match *id {
                NO_ROW => out.push(&[], 0, 0),
                id => out.push(&self.arena, self.starts[id as usize] as usize, self.lengths[id as usize] as usize),
            }
        }
        // SAFETY: what is kept of a text column are its values.
        Ok(unsafe { out.finish(data_type, self.valid.take(ids)) })
    }

    fn memory(&self) -> usize {
        self.arena.capacity() + self.starts.capacity() * 8 + self.lengths.capacity() * 4 + self.valid.0.capacity()
    }
}

/// A column by how its values are kept.
enum Column {
    Bool(Fixed<u8>),
    W8(Fixed<u8>),
    W16(Fixed<u16>),
    W32(Fixed<u32>),
    W64(Fixed<u64>),
    W128(Fixed<i128>),
    Bytes(Bytes),
    /// Arrays, maps, rows: an array of one value each, slow and right.
    Nested(Vec<Option<ArrayRef>>),
}

/// Runs `$body` with `$c` bound to the column's values, for those of fixed width and bytes.
macro_rules! each_kind {
    ($column:expr, $c:ident => $body:expr, $bool:pat => $on_bool:expr, $nested:pat => $on_nested:expr) => {
        match $column {
            $bool => $on_bool,
            Column::W8($c) => $body,
            Column::W16($c) => $body,
            Column::W32($c) => $body,
            Column::W64($c) => $body,
            Column::W128($c) => $body,
            Column::Bytes($c) => $body,
            $nested => $on_nested,
        }
    };
}

impl Column {
    fn new(data_type: &DataType) -> Self {
        use DataType::*;
        match data_type {
            Boolean => Column::Bool(Fixed::default()),
            Int8 | UInt8 => Column::W8(Fixed::default()),
            Int16 | UInt16 | Float16 => Column::W16(Fixed::default()),
            Int32 | UInt32 | Float32 | Date32 | Time32(_) | Decimal32(..) | Interval(IntervalUnit::YearMonth) => {
                Column::W32(Fixed::default())
            }
            Int64 | UInt64 | Float64 | Date64 | Time64(_) | Timestamp(..) | Duration(_) | Decimal64(..) => Column::W64(Fixed::default()),
            Decimal128(..) => Column::W128(Fixed::default()),
            Utf8 | Binary => Column::Bytes(Bytes::default()),
            _ => Column::Nested(Vec::new()),
        }
    }

    fn put(&mut self, capacity: usize, data: &ArrayData, rows: &[u32], ids: &[u32]) -> Result<(), ArrowError> {
        each_kind!(self, c => c.put(capacity, data, rows, ids),
            Column::Bool(c) => {
                c.values.resize(capacity, 0);
                for (id, row) in ids.iter().zip(rows) {
                    c.values[*id as usize] = bit(data, *row as usize);
                }
                c.valid.put(capacity, data, rows, ids);
            },
            Column::Nested(values) => {
                values.resize(capacity, None);
                let array = make_array(data.clone());
                for (id, row) in ids.iter().zip(rows) {
                    // A slice would keep the whole block alive.
                    values[*id as usize] = Some(take(&array, &UInt32Array::from(vec![*row]), None)?);
                }
            }
        );
        Ok(())
    }

    fn clear(&mut self, id: u32) {
        match self {
            Column::Bytes(bytes) => bytes.clear(id),
            Column::Nested(values) => values[id as usize] = None,
            _ => {}
        }
    }

    fn same(&self, id: u32, data: &ArrayData, row: usize) -> bool {
        each_kind!(self, c => c.same(id, data, row),
            Column::Bool(c) => {
                let valid = data.is_valid(row);
                valid == c.valid.get(id) && (!valid || bit(data, row) == c.values[id as usize])
            },
            Column::Nested(values) => values[id as usize].as_ref().is_some_and(|v| v.to_data() == data.slice(row, 1))
        )
    }

    fn take(&self, data_type: &DataType, ids: &[u32]) -> Result<ArrayRef, ArrowError> {
        each_kind!(self, c => c.take(data_type, ids),
            Column::Bool(c) => {
                let values = ids.iter().map(|id| c.values.get(*id as usize).is_some_and(|v| *v != 0)).collect();
                Ok(Arc::new(BooleanArray::new(values, c.valid.take(ids))))
            },
            Column::Nested(values) => {
                let null = new_null_array(data_type, 1);
                let parts: Vec<&dyn Array> =
                    ids.iter().map(|id| values.get(*id as usize).and_then(Option::as_ref).unwrap_or(&null).as_ref()).collect();
                if parts.is_empty() { Ok(new_null_array(data_type, 0)) } else { concat(&parts) }
            }
        )
    }

    fn memory(&self) -> usize {
        each_kind!(self, c => c.memory(),
            Column::Bool(c) => c.memory(),
            Column::Nested(values) => {
                values.capacity() * size_of::<Option<ArrayRef>>()
                    + values.iter().flatten().map(|v| v.get_array_memory_size()).sum::<usize>()
            }
        )
    }
}

/// A value of a Boolean column.
fn bit(data: &ArrayData, row: usize) -> u8 {
    u8::from(bit_util::get_bit(data.buffers()[0].as_slice(), data.offset() + row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        BinaryArray, Date32Array, Decimal128Array, Float64Array, Int8Array, Int64Array, ListArray, StringArray, TimestampMillisecondArray,
    };
    use arrow::datatypes::Int32Type;

    /// Everything comes back as it went in, from a slice too, with NULLs for `NO_ROW`; numbers of removed rows are given again.
    #[track_caller]
    fn check(array: ArrayRef) {
        let rows = array.len() as u32;
        let mut store = RowStore::new(vec![array.data_type().clone()]);
        let mut ids = Vec::new();
        store.insert(&column_data(std::slice::from_ref(&array)), &(0..rows).collect::<Vec<_>>(), &mut ids).unwrap();
        assert_eq!(ids, (0..rows).collect::<Vec<_>>());
        assert_eq!(store.take(&ids).unwrap(), std::slice::from_ref(&array));
        let sliced = column_data(&[array.slice(1, array.len() - 1)]);
        for (row, id) in ids[1..].iter().enumerate() {
            assert!(store.same(*id, &sliced, row), "{} row {row}", array.data_type());
        }
        assert!(!store.same(0, &sliced, 0), "{}", array.data_type());
        store.remove(1);
        assert_eq!(store.len(), array.len() - 1);
        let mut again = Vec::new();
        store.insert(&sliced, &[1], &mut again).unwrap();
        assert_eq!(again, [1]);
        let found = store.take(&[NO_ROW, 1, 0]).unwrap();
        let expect = take(&array, &UInt32Array::from(vec![None, Some(2), Some(0)]), None).unwrap();
        assert_eq!(found, [expect]);
        assert_eq!(store.take(&[]).unwrap()[0].len(), 0);
    }

    #[test]
    fn every_kind_of_column() {
        check(Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])));
        check(Arc::new(Int64Array::from(vec![1, 2, 3])));
        check(Arc::new(Int8Array::from(vec![Some(-1), None, Some(3)])));
        check(Arc::new(Float64Array::from(vec![Some(0.5), None, Some(f64::MAX)])));
        check(Arc::new(Date32Array::from(vec![1, 2, 3])));
        check(Arc::new(TimestampMillisecondArray::from(vec![1, 2, 3]).with_timezone("UTC")));
        check(Arc::new(Decimal128Array::from(vec![Some(1), None, Some(3)]).with_precision_and_scale(10, 2).unwrap()));
        check(Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])));
        check(Arc::new(StringArray::from(vec![Some("one"), None, Some("")])));
        check(Arc::new(BinaryArray::from(vec![b"one".as_slice(), b"", b"three"])));
        check(Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1)]), None, Some(vec![None, Some(2)])])));
    }

    #[test]
    fn the_arena_shrinks() {
        let mut store = RowStore::new(vec![DataType::Utf8]);
        let text = "x".repeat(1000);
        let array: ArrayRef = Arc::new(StringArray::from(vec![text.as_str(); 200]));
        let mut ids = Vec::new();
        store.insert(&column_data(&[array]), &(0..200).collect::<Vec<_>>(), &mut ids).unwrap();
        let full = store.memory();
        ids[..190].iter().for_each(|id| store.remove(*id));
        assert!(store.memory() < full / 2, "{} of {full} bytes are left", store.memory());
        let left = store.take(&ids[190..]).unwrap();
        assert_eq!(left[0].as_ref(), &StringArray::from(vec![text.as_str(); 10]) as &dyn Array);
    }
}
