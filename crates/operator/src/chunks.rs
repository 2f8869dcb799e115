//! Rows kept in the columns they came in: what joins and deduplication hold of an append-only input.
//!
//! A large block is kept as it is, by reference count; small ones are copied together. A row is known by
//! its [`Place`], which never changes; rows are given up a chunk at a time, and the owner knows which of a
//! chunk's rows it still wants. Rows that come and go one by one are kept elsewhere, by number.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, BooleanArray, UInt32Array, make_array, new_empty_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::{ArrowNativeType, DataType, IntervalUnit};
use arrow::error::ArrowError;

use crate::gather::Strings;

/// Blocks of fewer rows are copied together until there are about so many.
const CHUNK_ROWS_MIN: usize = 1024;
/// Or until a column of them has about so many bytes.
const OPEN_BYTES_MAX: usize = 64 << 20;

/// Where a row lies. A mark that its owner may set travels with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

const MARK: u64 = 1 << 63;

impl Place {
    /// No row.
    pub const NONE: Place = Place(u64::MAX);

    fn new(chunk: u32, row: u32) -> Self {
        debug_assert!(chunk < u32::MAX >> 1);
        Place(u64::from(chunk) << 32 | u64::from(row))
    }

    /// The number of its chunk; numbers of chunks given up are given again.
    #[inline]
    pub fn chunk(self) -> usize {
        ((self.0 & !MARK) >> 32) as usize
    }

    /// Its row in the chunk.
    #[inline]
    pub fn row(self) -> usize {
        self.0 as u32 as usize
    }

    /// The place `rows` rows further in the same chunk.
    #[inline]
    pub fn plus(self, rows: usize) -> Self {
        Place(self.0 + rows as u64)
    }

    /// The same with the mark.
    #[inline]
    pub fn marked(self) -> Self {
        Place(self.0 | MARK)
    }

    /// Whether it has the mark.
    #[inline]
    pub fn is_marked(self) -> bool {
        self.0 & MARK != 0
    }
}

/// Rows of one schema.
pub(crate) struct Chunks {
    columns: Vec<Column>,
    /// Rows of each chunk.
    lengths: Vec<u32>,
    /// Bytes of each chunk that takes no more rows.
    bytes: Vec<usize>,
    bytes_total: usize,
    /// The chunk that small blocks are copied to.
    open: Option<u32>,
    free: Vec<u32>,
    rows: usize,
}

impl Chunks {
    /// No rows yet, of columns of these types.
    pub fn new<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Self {
        let columns = types.into_iter().map(Column::new).collect();
        Chunks { columns, lengths: Vec::new(), bytes: Vec::new(), bytes_total: 0, open: None, free: Vec::new(), rows: 0 }
    }

    /// The number of rows kept.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of chunks there ever were at once: how long what is kept by chunk must be.
    pub fn chunks(&self) -> usize {
        self.lengths.len()
    }

    /// The rows of a chunk; 0 if it was given up.
    pub fn length(&self, chunk: usize) -> usize {
        self.lengths[chunk] as usize
    }

    /// Whether more rows may come to a chunk.
    pub fn is_open(&self, chunk: usize) -> bool {
        self.open == Some(chunk as u32)
    }

    /// Keeps `rows` rows; gives the place of the first, behind which the others lie in order.
    ///
    /// # Errors
    /// Nested values that cannot be put together; more than 2 billion chunks.
    pub fn append(&mut self, columns: &[ArrayRef], rows: usize) -> Result<Place, ArrowError> {
        let large = rows >= CHUNK_ROWS_MIN;
        let full = |open: u32| self.length(open as usize) + rows > CHUNK_ROWS_MIN;
        if self.open.is_some_and(|open| large || full(open) || self.columns.iter().any(|c| c.open_bytes() > OPEN_BYTES_MAX)) {
            self.seal()?;
        }
        let chunk = match self.open {
            Some(open) => open,
            None => self.next_chunk()?,
        };
        let at = chunk as usize;
        let first = self.lengths[at];
        for (column, array) in self.columns.iter_mut().zip(columns) {
            let data = array.to_data();
            if large { column.put(at, &data, array)? } else { column.extend(first as usize, &data, array)? }
        }
        self.lengths[at] += rows as u32;
        self.rows += rows;
        if large {
            self.weigh(at);
        } else {
            self.open = Some(chunk);
        }
        Ok(Place::new(chunk, first))
    }

    fn next_chunk(&mut self) -> Result<u32, ArrowError> {
        if let Some(chunk) = self.free.pop() {
            return Ok(chunk);
        }
        let chunk = u32::try_from(self.lengths.len()).ok().filter(|chunk| *chunk < u32::MAX >> 1);
        let many = || ArrowError::ComputeError("more than 2 billion blocks are kept in one shard; raise the parallelism".into());
        let chunk = chunk.ok_or_else(many)?;
        self.lengths.push(0);
        self.bytes.push(0);
        self.columns.iter_mut().for_each(Column::grow);
        Ok(chunk)
    }

    /// Closes the open chunk.
    fn seal(&mut self) -> Result<(), ArrowError> {
        if let Some(open) = self.open.take() {
            self.columns.iter_mut().try_for_each(|c| c.seal(open as usize))?;
            self.weigh(open as usize);
        }
        Ok(())
    }

    fn weigh(&mut self, chunk: usize) {
        let bytes = self.columns.iter().map(|c| c.bytes(chunk)).sum();
        self.bytes[chunk] = bytes;
        self.bytes_total += bytes;
    }

    /// Gives up all rows of a chunk to which no more rows come.
    pub fn release(&mut self, chunk: usize) {
        assert!(!self.is_open(chunk), "an open chunk is in use");
        self.columns.iter_mut().for_each(|c| c.clear(chunk));
        self.rows -= std::mem::take(&mut self.lengths[chunk]) as usize;
        self.bytes_total -= std::mem::take(&mut self.bytes[chunk]);
        self.free.push(chunk as u32);
    }

    /// All columns of a chunk, without a copy unless it is open.
    ///
    /// # Errors
    /// None that rows kept can cause.
    pub fn arrays(&self, chunk: usize) -> Result<Vec<ArrayRef>, ArrowError> {
        let open = self.is_open(chunk);
        self.columns.iter().map(|c| c.array(chunk, open)).collect()
    }

    /// All columns of the rows at `places`, in that order.
    ///
    /// # Errors
    /// More than 2 GB of text in one column.
    pub fn take(&self, places: &[Place]) -> Result<Vec<ArrayRef>, ArrowError> {
        (0..self.columns.len()).map(|c| self.take_column(c, places)).collect()
    }

    /// One column of the rows at `places`.
    ///
    /// # Errors
    /// As [`Chunks::take`].
    pub fn take_column(&self, column: usize, places: &[Place]) -> Result<ArrayRef, ArrowError> {
        self.columns[column].take(self.open.map_or(usize::MAX, |open| open as usize), places)
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.bytes_total + self.columns.iter().map(Column::open_bytes).sum::<usize>() + self.lengths.capacity() * 12
    }
}

struct Column {
    data_type: DataType,
    values: Values,
    valid: Valid,
}

/// Values by how they are kept.
enum Values {
    Bool(Bools),
    W8(Fixed<u8>),
    W16(Fixed<u16>),
    W32(Fixed<u32>),
    W64(Fixed<u64>),
    W128(Fixed<i128>),
    /// Text or bytes.
    Bytes(Texts),
    /// Arrays, maps, rows: slower, and right.
    Nested(Nested),
}

/// Runs `$body` with `$v` bound to the values, whatever they are.
macro_rules! each_kind {
    ($values:expr, $v:ident => $body:expr) => {
        match $values {
            Values::Bool($v) => $body,
            Values::W8($v) => $body,
            Values::W16($v) => $body,
            Values::W32($v) => $body,
            Values::W64($v) => $body,
            Values::W128($v) => $body,
            Values::Bytes($v) => $body,
            Values::Nested($v) => $body,
        }
    };
}

impl Column {
    fn new(data_type: &DataType) -> Self {
        use DataType::*;
        let values = match data_type {
            Boolean => Values::Bool(Bools::default()),
            Int8 | UInt8 => Values::W8(Fixed::default()),
            Int16 | UInt16 | Float16 => Values::W16(Fixed::default()),
            Int32 | UInt32 | Float32 | Date32 | Time32(_) | Decimal32(..) | Interval(IntervalUnit::YearMonth) => {
                Values::W32(Fixed::default())
            }
            Int64 | UInt64 | Float64 | Date64 | Time64(_) | Timestamp(..) | Duration(_) | Decimal64(..) => Values::W64(Fixed::default()),
            Decimal128(..) => Values::W128(Fixed::default()),
            Utf8 | Binary => Values::Bytes(Texts::default()),
            _ => Values::Nested(Nested::default()),
        };
        Column { data_type: data_type.clone(), values, valid: Valid::default() }
    }

    fn grow(&mut self) {
        self.valid.sealed.push(None);
        each_kind!(&mut self.values, v => v.sealed.push(Default::default()));
    }

    /// Fills a chunk with a column.
    fn put(&mut self, chunk: usize, data: &ArrayData, array: &ArrayRef) -> Result<(), ArrowError> {
        self.valid.put(chunk, data);
        each_kind!(&mut self.values, v => v.put(chunk, data, array))
    }

    /// Appends to the open chunk, which has `before` rows.
    fn extend(&mut self, before: usize, data: &ArrayData, array: &ArrayRef) -> Result<(), ArrowError> {
        self.valid.extend(before, data);
        each_kind!(&mut self.values, v => v.extend(data, array))
    }

    fn seal(&mut self, chunk: usize) -> Result<(), ArrowError> {
        self.valid.seal(chunk);
        each_kind!(&mut self.values, v => v.seal(chunk))
    }

    fn clear(&mut self, chunk: usize) {
        self.valid.sealed[chunk] = None;
        each_kind!(&mut self.values, v => v.sealed[chunk] = Default::default());
    }

    fn bytes(&self, chunk: usize) -> usize {
        let nulls = self.valid.sealed[chunk].as_ref().map_or(0, |n| n.buffer().capacity());
        nulls + each_kind!(&self.values, v => v.bytes(chunk))
    }

    fn open_bytes(&self) -> usize {
        each_kind!(&self.values, v => v.open_bytes())
    }

    fn array(&self, chunk: usize, open: bool) -> Result<ArrayRef, ArrowError> {
        let nulls = if open { self.valid.of_open() } else { self.valid.sealed[chunk].clone() };
        each_kind!(&self.values, v => v.array(chunk, open, &self.data_type, nulls))
    }

    fn take(&self, open: usize, places: &[Place]) -> Result<ArrayRef, ArrowError> {
        let nulls = self.valid.take(open, places);
        each_kind!(&self.values, v => v.take(open, places, &self.data_type, nulls))
    }
}

/// Which values are there.
#[derive(Default)]
struct Valid {
    sealed: Vec<Option<NullBuffer>>,
    /// Empty while none is NULL.
    open: Vec<bool>,
    /// Some value is or was NULL.
    nulls: bool,
}

impl Valid {
    fn put(&mut self, chunk: usize, data: &ArrayData) {
        self.sealed[chunk] = data.nulls().filter(|n| n.null_count() > 0).cloned();
        self.nulls |= self.sealed[chunk].is_some();
    }

    fn extend(&mut self, before: usize, data: &ArrayData) {
        match data.nulls().filter(|n| n.null_count() > 0) {
            Some(nulls) => {
                self.nulls = true;
                self.open.resize(before, true);
                self.open.extend(nulls.iter());
            }
            None if self.open.is_empty() => {}
            None => self.open.resize(before + data.len(), true),
        }
    }

    fn of_open(&self) -> Option<NullBuffer> {
        (!self.open.is_empty()).then(|| NullBuffer::from(self.open.as_slice()))
    }

    fn seal(&mut self, chunk: usize) {
        self.sealed[chunk] = self.of_open();
        self.open.clear();
    }

    fn take(&self, open: usize, places: &[Place]) -> Option<NullBuffer> {
        if !self.nulls {
            return None;
        }
        let valid = |place: &Place| match place.chunk() {
            chunk if chunk == open => self.open.is_empty() || self.open[place.row()],
            chunk => self.sealed[chunk].as_ref().is_none_or(|n| n.is_valid(place.row())),
        };
        let nulls: NullBuffer = places.iter().map(valid).collect();
        Some(nulls).filter(|n| n.null_count() > 0)
    }
}

/// Whether a buffer of `capacity` bytes is too large to be kept for `used` bytes of it.
fn wasteful(capacity: usize, used: usize) -> bool {
    capacity > used + used / 2 + 256
}

fn array_of(data_type: &DataType, rows: usize, buffer: Buffer, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
    Ok(make_array(ArrayData::builder(data_type.clone()).len(rows).add_buffer(buffer).nulls(nulls).build()?))
}

/// Values of a fixed width by their bits.
#[derive(Default)]
struct Fixed<T: ArrowNativeType> {
    sealed: Vec<ScalarBuffer<T>>,
    open: Vec<T>,
}

impl<T: ArrowNativeType> Fixed<T> {
    fn put(&mut self, chunk: usize, data: &ArrayData, _: &ArrayRef) -> Result<(), ArrowError> {
        let values = ScalarBuffer::<T>::new(data.buffers()[0].clone(), data.offset(), data.len());
        let used = values.len() * size_of::<T>();
        self.sealed[chunk] = if wasteful(values.inner().capacity(), used) { ScalarBuffer::from(values.to_vec()) } else { values };
        Ok(())
    }

    fn extend(&mut self, data: &ArrayData, _: &ArrayRef) -> Result<(), ArrowError> {
        self.open.extend_from_slice(&data.buffer::<T>(0)[..data.len()]);
        Ok(())
    }

    fn seal(&mut self, chunk: usize) -> Result<(), ArrowError> {
        let mut open = std::mem::take(&mut self.open);
        open.shrink_to_fit();
        self.sealed[chunk] = ScalarBuffer::from(open);
        Ok(())
    }

    fn bytes(&self, chunk: usize) -> usize {
        self.sealed[chunk].inner().capacity()
    }

    fn open_bytes(&self) -> usize {
        self.open.capacity() * size_of::<T>()
    }

    fn array(&self, chunk: usize, open: bool, data_type: &DataType, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let values = if open { ScalarBuffer::from(self.open.clone()) } else { self.sealed[chunk].clone() };
        array_of(data_type, values.len(), values.into_inner(), nulls)
    }

    fn take(&self, open: usize, places: &[Place], data_type: &DataType, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let value = |place: &Place| match place.chunk() {
            chunk if chunk == open => self.open[place.row()],
            chunk => self.sealed[chunk][place.row()],
        };
        let values: Vec<T> = places.iter().map(value).collect();
        array_of(data_type, places.len(), Buffer::from_vec(values), nulls)
    }
}

#[derive(Default)]
struct Bools {
    sealed: Vec<Bits>,
    open: Vec<bool>,
}

/// Booleans of a chunk.
struct Bits(BooleanBuffer);

impl Default for Bits {
    fn default() -> Self {
        Bits(BooleanBuffer::new_unset(0))
    }
}

impl Bools {
    fn put(&mut self, chunk: usize, data: &ArrayData, _: &ArrayRef) -> Result<(), ArrowError> {
        let values = BooleanBuffer::new(data.buffers()[0].clone(), data.offset(), data.len());
        let wasted = wasteful(values.inner().capacity(), values.len() / 8);
        self.sealed[chunk] = Bits(if wasted { values.iter().collect() } else { values });
        Ok(())
    }

    fn extend(&mut self, data: &ArrayData, _: &ArrayRef) -> Result<(), ArrowError> {
        self.open.extend(BooleanBuffer::new(data.buffers()[0].clone(), data.offset(), data.len()).iter());
        Ok(())
    }

    fn seal(&mut self, chunk: usize) -> Result<(), ArrowError> {
        self.sealed[chunk] = Bits(BooleanBuffer::from(self.open.as_slice()));
        self.open.clear();
        Ok(())
    }

    fn bytes(&self, chunk: usize) -> usize {
        self.sealed[chunk].0.inner().capacity()
    }

    fn open_bytes(&self) -> usize {
        self.open.capacity()
    }

    fn array(&self, chunk: usize, open: bool, _: &DataType, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let values = if open { BooleanBuffer::from(self.open.as_slice()) } else { self.sealed[chunk].0.clone() };
        Ok(Arc::new(BooleanArray::new(values, nulls)))
    }

    fn take(&self, open: usize, places: &[Place], _: &DataType, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let value = |i: usize| match places[i].chunk() {
            chunk if chunk == open => self.open[places[i].row()],
            chunk => self.sealed[chunk].0.value(places[i].row()),
        };
        Ok(Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(places.len(), value), nulls)))
    }
}

#[derive(Default)]
struct Texts {
    sealed: Vec<Text>,
    open_offsets: Vec<i32>,
    open: Vec<u8>,
}

/// Texts of a chunk: as in an array, the offsets have one more than there are rows.
struct Text {
    offsets: ScalarBuffer<i32>,
    values: Buffer,
}

impl Default for Text {
    fn default() -> Self {
        Text { offsets: ScalarBuffer::from(vec![0]), values: Buffer::from_vec(Vec::<u8>::new()) }
    }
}

impl Texts {
    fn put(&mut self, chunk: usize, data: &ArrayData, _: &ArrayRef) -> Result<(), ArrowError> {
        let mut offsets = ScalarBuffer::<i32>::new(data.buffers()[0].clone(), data.offset(), data.len() + 1);
        let mut values = data.buffers()[1].clone();
        let (first, last) = (offsets[0], offsets[data.len()]);
        if wasteful(offsets.inner().capacity(), offsets.len() * 4) || wasteful(values.capacity(), (last - first) as usize) {
            values = Buffer::from_vec(values.as_slice()[first as usize..last as usize].to_vec());
            offsets = offsets.iter().map(|offset| offset - first).collect::<Vec<i32>>().into();
        }
        self.sealed[chunk] = Text { offsets, values };
        Ok(())
    }

    fn extend(&mut self, data: &ArrayData, _: &ArrayRef) -> Result<(), ArrowError> {
        let offsets = &data.buffer::<i32>(0)[..data.len() + 1];
        let (first, last) = (offsets[0] as usize, offsets[data.len()] as usize);
        if self.open.len() + last - first > i32::MAX as usize {
            return Err(ArrowError::ComputeError(format!("{} texts are longer than 2 GB together", self.open_offsets.len() + data.len())));
        }
        if self.open_offsets.is_empty() {
            self.open_offsets.push(0);
        }
        let base = self.open.len() as i32 - offsets[0];
        self.open_offsets.extend(offsets[1..].iter().map(|offset| offset + base));
        self.open.extend_from_slice(&data.buffers()[1].as_slice()[first..last]);
        Ok(())
    }

    fn seal(&mut self, chunk: usize) -> Result<(), ArrowError> {
        let (mut offsets, mut values) = (std::mem::take(&mut self.open_offsets), std::mem::take(&mut self.open));
        offsets.shrink_to_fit();
        values.shrink_to_fit();
        self.sealed[chunk] = Text { offsets: offsets.into(), values: Buffer::from_vec(values) };
        Ok(())
    }

    fn bytes(&self, chunk: usize) -> usize {
        self.sealed[chunk].offsets.inner().capacity() + self.sealed[chunk].values.capacity()
    }

    fn open_bytes(&self) -> usize {
        self.open_offsets.capacity() * 4 + self.open.capacity()
    }

    fn array(&self, chunk: usize, open: bool, data_type: &DataType, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let (offsets, values) = match open {
            true => (ScalarBuffer::from(self.open_offsets.clone()), Buffer::from_slice_ref(&self.open)),
            false => (self.sealed[chunk].offsets.clone(), self.sealed[chunk].values.clone()),
        };
        let rows = offsets.len() - 1;
        let data = ArrayData::builder(data_type.clone()).len(rows).add_buffer(offsets.into_inner()).add_buffer(values).nulls(nulls);
        // SAFETY: offsets and values are those of arrays of this type, put end to end or as they were.
        Ok(make_array(unsafe { data.build_unchecked() }))
    }

    /// The bytes among which a row's value lies, where it begins and how long it is.
    #[inline]
    fn find(&self, open: usize, place: &Place) -> (&[u8], usize, usize) {
        let (offsets, values): (&[i32], &[u8]) = match place.chunk() {
            chunk if chunk == open => (self.open_offsets.as_slice(), self.open.as_slice()),
            chunk => (&self.sealed[chunk].offsets[..], self.sealed[chunk].values.as_slice()),
        };
        let (start, end) = (offsets[place.row()], offsets[place.row() + 1]);
        (values, start as usize, (end - start) as usize)
    }

    fn take(&self, open: usize, places: &[Place], data_type: &DataType, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let bytes = places.iter().map(|place| self.find(open, place).2).sum();
        let mut out = Strings::new(places.len(), bytes)?;
        for place in places {
            let (values, start, length) = self.find(open, place);
            out.push(values, start, length);
        }
        // SAFETY: every piece is a value of an array of this type.
        Ok(unsafe { out.finish(data_type, nulls) })
    }
}

#[derive(Default)]
struct Nested {
    sealed: Vec<Option<ArrayRef>>,
    /// The open chunk's rows in pieces, each longer than the next, so that few rows are copied often.
    open: Vec<ArrayRef>,
}

impl Nested {
    fn put(&mut self, chunk: usize, data: &ArrayData, array: &ArrayRef) -> Result<(), ArrowError> {
        self.sealed[chunk] = Some(if wasteful(data.get_buffer_memory_size(), data.get_slice_memory_size()?) {
            take(array, &UInt32Array::from_iter_values(0..array.len() as u32), None)?
        } else {
            array.clone()
        });
        Ok(())
    }

    fn extend(&mut self, _: &ArrayData, array: &ArrayRef) -> Result<(), ArrowError> {
        self.open.push(take(array, &UInt32Array::from_iter_values(0..array.len() as u32), None)?);
        while let [.., a, b] = self.open.as_slice()
            && a.len() <= b.len()
        {
            let both = concat(&[a.as_ref(), b.as_ref()])?;
            self.open.truncate(self.open.len() - 2);
            self.open.push(both);
        }
        Ok(())
    }

    fn of_open(&self, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
        match self.open.as_slice() {
            [] => Ok(new_empty_array(data_type)),
            pieces => concat(&pieces.iter().map(|p| p.as_ref()).collect::<Vec<_>>()),
        }
    }

    fn seal(&mut self, chunk: usize) -> Result<(), ArrowError> {
        let first = self.open.first().map(|p| p.data_type().clone());
        self.sealed[chunk] = first.map(|data_type| self.of_open(&data_type)).transpose()?;
        self.open.clear();
        Ok(())
    }

    fn bytes(&self, chunk: usize) -> usize {
        self.sealed[chunk].as_ref().map_or(0, |a| a.get_buffer_memory_size())
    }

    fn open_bytes(&self) -> usize {
        self.open.iter().map(|p| p.get_buffer_memory_size()).sum()
    }

    fn array(&self, chunk: usize, open: bool, data_type: &DataType, _: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        match (open, &self.sealed[chunk]) {
            (true, _) => self.of_open(data_type),
            (false, Some(array)) => Ok(array.clone()),
            (false, None) => Ok(new_empty_array(data_type)),
        }
    }

    fn take(&self, open: usize, places: &[Place], data_type: &DataType, _: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let mut sources: Vec<&dyn Array> = self.open.iter().map(|p| p.as_ref()).collect();
        let mut known: HashMap<usize, usize> = HashMap::new();
        let mut picks: Vec<(usize, usize)> = Vec::with_capacity(places.len());
        for place in places {
            let (chunk, mut row) = (place.chunk(), place.row());
            if chunk == open {
                let mut piece = 0;
                while row >= self.open[piece].len() {
                    row -= self.open[piece].len();
                    piece += 1;
                }
                picks.push((piece, row));
                continue;
            }
            let source = *known.entry(chunk).or_insert_with(|| {
                sources.push(self.sealed[chunk].as_ref().expect("a chunk in use").as_ref());
                sources.len() - 1
            });
            picks.push((source, row));
        }
        if sources.is_empty() { Ok(new_empty_array(data_type)) } else { interleave(&sources, &picks) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        BinaryArray, Date32Array, Decimal128Array, Float64Array, Int8Array, Int64Array, ListArray, StringArray, TimestampMillisecondArray,
    };
    use arrow::datatypes::Int32Type;

    /// Rows in blocks of several sizes come back as they went in, whatever the order.
    #[track_caller]
    fn check(array: ArrayRef) {
        let many = take(&array, &(0..2500).map(|i| i * 7 % array.len() as u32).collect::<UInt32Array>(), None).unwrap();
        let mut chunks = Chunks::new([array.data_type()]);
        let mut places: Vec<Place> = Vec::new();
        let mut at = 0;
        for size in [1, 700, 2, 400, 0, 1200, 3, 194] {
            let first = chunks.append(&[many.slice(at, size)], size).unwrap();
            places.extend((0..size).map(|i| first.plus(i)));
            at += size;
        }
        assert_eq!((at, chunks.rows()), (2500, 2500));
        assert_eq!(chunks.take(&places).unwrap(), std::slice::from_ref(&many), "{}", array.data_type());
        let back: Vec<Place> = places.iter().rev().copied().collect();
        let reversed = take(&many, &(0..2500u32).rev().collect::<UInt32Array>(), None).unwrap();
        assert_eq!(chunks.take(&back).unwrap(), [reversed]);
        assert_eq!(chunks.take(&[]).unwrap()[0].len(), 0);
        let parts: Vec<ArrayRef> = (0..chunks.chunks()).map(|c| chunks.arrays(c).unwrap().remove(0)).collect();
        let whole = concat(&parts.iter().map(|p| p.as_ref()).collect::<Vec<_>>()).unwrap();
        assert_eq!(whole.as_ref(), many.as_ref(), "chunks stand in the order in which rows came");
        // A chunk given up leaves the others alone, and its number is given again.
        let large = places[1200];
        chunks.release(large.chunk());
        assert_eq!(chunks.rows(), 1300);
        assert_eq!(chunks.take(&places[..1100]).unwrap()[0].as_ref(), many.slice(0, 1100).as_ref());
        let again = chunks.append(&[many.slice(5, 1500)], 1500).unwrap();
        assert_eq!(again.chunk(), large.chunk());
        let expect = take(&many, &UInt32Array::from(vec![5, 0, 1504]), None).unwrap();
        assert_eq!(chunks.take(&[again, places[0], again.plus(1499)]).unwrap(), [expect]);
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

    /// A part of a large block does not keep the whole block alive.
    #[test]
    fn parts_are_copied() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(100); 20_000]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7; 20_000]));
        let mut chunks = Chunks::new([texts.data_type(), numbers.data_type()]);
        chunks.append(&[texts.slice(3000, 1500), numbers.slice(3000, 1500)], 1500).unwrap();
        assert!(chunks.memory() < 2 * 1500 * 112, "{} bytes for 1500 rows", chunks.memory());
        chunks.release(0);
        assert!(chunks.memory() < 1000);
    }

    #[test]
    fn places_carry_marks() {
        let place = Place::new(5, 9).plus(1);
        assert_eq!((place.chunk(), place.row(), place.is_marked()), (5, 10, false));
        assert_eq!((place.marked().chunk(), place.marked().row(), place.marked().is_marked()), (5, 10, true));
        assert_ne!(Place::NONE, place.marked());
    }
}
