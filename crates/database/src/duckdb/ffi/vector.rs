//! Chunks of rows and their columns, read and filled in place.
//!
//! Vectors of results are plain: the library has resolved constants and dictionaries before it hands them out. Texts
//! have entries of 16 bytes (`duckdb_string_t`): length and the bytes themselves, or the first four and where all are.

use std::marker::PhantomData;
use std::mem::size_of;
use std::ptr;

use arrow::buffer::NullBuffer;

use super::api::{Api, Ptr, Wide};
use super::{Failure, LogicalType};
use crate::duckdb::shape;

/// Numbers whose every pattern of bits is one.
///
/// # Safety
/// The type must be plain old data without padding.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($t:ty),*) => {
        $(
            // SAFETY: it is.
            unsafe impl Plain for $t {}
        )*
    };
}

plain!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, Wide);

/// Rows, column by column. Texts that were put into it are borrowed for `'a`.
pub struct Chunk<'a> {
    pub(super) api: &'static Api,
    pub(super) raw: Ptr,
    pub(super) borrowed: PhantomData<&'a [u8]>,
}

impl<'a> Chunk<'a> {
    /// One for rows of these types.
    pub fn new(api: &'static Api, types: &[&LogicalType]) -> Self {
        let mut raw: Vec<Ptr> = types.iter().map(|t| t.raw).collect();
        // SAFETY: the types are alive and copied.
        Chunk { api, raw: unsafe { (api.duckdb_create_data_chunk)(raw.as_mut_ptr(), raw.len() as u64) }, borrowed: PhantomData }
    }

    /// Empties it.
    pub fn reset(&mut self) {
        // SAFETY: the chunk is alive, and no vector of it is borrowed.
        unsafe { (self.api.duckdb_data_chunk_reset)(self.raw) };
    }

    /// How many rows it has.
    pub fn rows(&self) -> usize {
        // SAFETY: the chunk is alive.
        unsafe { (self.api.duckdb_data_chunk_get_size)(self.raw) as usize }
    }

    /// Says how many rows it has. Their values must have been written: others are whatever was there.
    pub fn set_rows(&mut self, rows: usize) {
        assert!(rows <= self.api.chunk_rows(), "a chunk of {rows} rows");
        // SAFETY: the vectors have room for so many.
        unsafe { (self.api.duckdb_data_chunk_set_size)(self.raw, rows as u64) };
    }

    fn raw_column(&self, index: usize) -> Ptr {
        // SAFETY: the chunk is alive and has such a column.
        unsafe {
            assert!((index as u64) < (self.api.duckdb_data_chunk_get_column_count)(self.raw), "column {index} of a chunk");
            (self.api.duckdb_data_chunk_get_vector)(self.raw, index as u64)
        }
    }

    /// A column to be read.
    pub fn column(&self, index: usize) -> Vector<'_> {
        Vector::new(self.api, self.raw_column(index), self.rows())
    }

    /// A column to be filled.
    pub fn column_mut(&mut self, index: usize) -> VectorMut<'_, 'a> {
        VectorMut { vector: Vector::new(self.api, self.raw_column(index), self.api.chunk_rows()), borrowed: PhantomData }
    }
}

impl Drop for Chunk<'_> {
    fn drop(&mut self) {
        // SAFETY: it was given by the library and is destroyed once; texts outside of it are not touched.
        unsafe { (self.api.duckdb_destroy_data_chunk)(&mut self.raw) };
    }
}

/// Values of a column, or of a part of one. As the library hands results out they are plain: one after another.
pub struct Vector<'c> {
    api: &'static Api,
    raw: Ptr,
    /// How many values there are, or room for how many.
    rows: usize,
    logical: LogicalType,
    chunk: PhantomData<&'c ()>,
}

impl<'c> Vector<'c> {
    fn new(api: &'static Api, raw: Ptr, rows: usize) -> Self {
        // SAFETY: the vector belongs to a chunk that is alive.
        let logical = LogicalType { api, raw: unsafe { (api.duckdb_vector_get_column_type)(raw) } };
        Vector { api, raw, rows, logical, chunk: PhantomData }
    }

    /// How many values it has.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Where the values are, which must be of the width of `T`.
    fn data<T: Plain>(&self) -> *mut T {
        // SAFETY: the vector is alive.
        let data = unsafe { (self.api.duckdb_vector_get_data)(self.raw) }.cast::<T>();
        let (id, width) = (self.logical.id(), self.logical.width());
        assert!(width == size_of::<T>() && !data.is_null() && data.is_aligned(), "type {id} of DuckDB has values of {width} bytes");
        data
    }

    /// The values; those of rows that are NULL are anything.
    pub fn values<T: Plain>(&self) -> &'c [T] {
        if self.rows == 0 {
            return &[];
        }
        // SAFETY: there are so many values, of this width, and they stay as they are as long as the chunk is borrowed.
        unsafe { std::slice::from_raw_parts(self.data::<T>(), self.rows) }
    }

    /// A bit for each row that is not NULL, in words of 64; `None`: none is NULL.
    pub fn validity(&self) -> Option<&'c [u64]> {
        // SAFETY: the vector is alive; there is a bit for each row.
        unsafe {
            let words = (self.api.duckdb_vector_get_validity)(self.raw);
            if words.is_null() { None } else { Some(std::slice::from_raw_parts(words, self.rows.div_ceil(64))) }
        }
    }

    /// The bytes of a VARCHAR, BLOB or BIT, one behind the other, and where each ends; NULLs are empty.
    ///
    /// # Errors
    /// There are more than an array of Arrow's holds.
    pub fn bytes(&self, nulls: Option<&NullBuffer>) -> Result<(Vec<i32>, Vec<u8>), Failure> {
        assert!(shape::is_bytes(self.logical.id()), "type {} of DuckDB has no bytes", self.logical.id());
        let entries = self.values::<Wide>();
        let length = |entry: &Wide| entry[0] as u32 as usize;
        let valid = |row: usize| nulls.is_none_or(|n| n.is_valid(row));
        let total: usize = entries.iter().enumerate().filter(|(row, _)| valid(*row)).map(|(_, entry)| length(entry)).sum();
        if i32::try_from(total).is_err() {
            let rows = self.rows;
            return Err(Failure::ours(format!(
                "{total} bytes of texts or blobs in {rows} rows, which are read at once; the most is 2 GiB"
            )));
        }
        let (mut offsets, mut data) = (Vec::with_capacity(entries.len() + 1), Vec::with_capacity(total));
        offsets.push(0);
        for (row, entry) in entries.iter().enumerate() {
            if valid(row) {
                let length = length(entry);
                let begin: *const u8 = if length <= INLINE {
                    ptr::from_ref(entry).cast::<u8>().wrapping_add(4)
                } else {
                    ptr::with_exposed_provenance(entry[1] as usize)
                };
                // SAFETY: a value of up to 12 bytes stands behind its length, a longer one where its second word points
                // (`duckdb_string_t`), and both live as long as the chunk.
                data.extend_from_slice(unsafe { std::slice::from_raw_parts(begin, length) });
            }
            offsets.push(data.len() as i32);
        }
        Ok((offsets, data))
    }

    /// The items of a LIST, or the entries of a MAP, which are STRUCTs.
    pub fn items(&self) -> Vector<'c> {
        assert!(matches!(self.logical.id(), shape::LIST | shape::MAP), "a list");
        // SAFETY: the vector is alive and a list.
        let (items, count) =
            unsafe { ((self.api.duckdb_list_vector_get_child)(self.raw), (self.api.duckdb_list_vector_get_size)(self.raw)) };
        Vector::new(self.api, items, count as usize)
    }

    /// The items of an ARRAY.
    pub fn elements(&self) -> Vector<'c> {
        let length = self.logical.length();
        assert!(length > 0, "an array");
        // SAFETY: the vector is alive and an array.
        Vector::new(self.api, unsafe { (self.api.duckdb_array_vector_get_child)(self.raw) }, self.rows * length)
    }

    /// A field of a STRUCT.
    pub fn field(&self, index: usize) -> Vector<'c> {
        assert!(self.logical.id() == shape::STRUCT, "a struct");
        // SAFETY: the vector is alive and a struct that has such a field.
        unsafe {
            assert!((index as u64) < (self.api.duckdb_struct_type_child_count)(self.logical.raw), "field {index}");
            Vector::new(self.api, (self.api.duckdb_struct_vector_get_child)(self.raw, index as u64), self.rows)
        }
    }
}

/// Bytes of a text that stand in its entry.
const INLINE: usize = 12;

/// Values of a column that is being filled.
pub struct VectorMut<'c, 'a> {
    vector: Vector<'c>,
    borrowed: PhantomData<(&'c mut (), &'a [u8])>,
}

impl<'a> VectorMut<'_, 'a> {
    /// Copies values into the first rows.
    pub fn copy<T: Plain>(&mut self, values: &[T]) {
        assert!(values.len() <= self.vector.rows, "{} values for {} rows", values.len(), self.vector.rows);
        if !values.is_empty() {
            // SAFETY: there is room for so many values of this width.
            unsafe { ptr::copy_nonoverlapping(values.as_ptr(), self.vector.data::<T>(), values.len()) };
        }
    }

    /// Writes the first `rows` values.
    pub fn each<T: Plain>(&mut self, rows: usize, value: impl Fn(usize) -> T) {
        assert!(rows <= self.vector.rows, "{rows} values for {} rows", self.vector.rows);
        if rows == 0 {
            return;
        }
        let data = self.vector.data::<T>();
        for row in 0..rows {
            // SAFETY: there is room for so many values of this width.
            unsafe { data.add(row).write(value(row)) };
        }
    }

    /// Writes the first `rows` texts or bytes. Long ones stay where they are.
    pub fn bytes(&mut self, rows: usize, value: impl Fn(usize) -> &'a [u8]) {
        assert!(shape::is_bytes(self.vector.logical.id()), "type {} of DuckDB has no bytes", self.vector.logical.id());
        self.each::<Wide>(rows, |row| {
            let bytes = value(row);
            // Arrow's offsets of 32 bits keep a value below 2 GiB.
            let length = bytes.len() as u32;
            let mut entry = [0; 16];
            entry[..4].copy_from_slice(&length.to_ne_bytes());
            if bytes.len() <= INLINE {
                entry[4..4 + bytes.len()].copy_from_slice(bytes);
            } else {
                entry[4..8].copy_from_slice(&bytes[..4]);
                entry[8..].copy_from_slice(&(bytes.as_ptr().expose_provenance() as u64).to_ne_bytes());
            }
            let [low, high] = [0, 8].map(|at| u64::from_ne_bytes(std::array::from_fn(|i| entry[at + i])));
            [low, high]
        });
    }

    /// Says which of the first rows are NULL.
    pub fn nulls(&mut self, nulls: &NullBuffer) {
        let rows = nulls.len();
        assert!(rows <= self.vector.rows, "{rows} values for {} rows", self.vector.rows);
        if nulls.null_count() == 0 {
            return;
        }
        // SAFETY: the vector is alive, and has a bit for each row that it has room for.
        unsafe {
            (self.vector.api.duckdb_vector_ensure_validity_writable)(self.vector.raw);
            let words = (self.vector.api.duckdb_vector_get_validity)(self.vector.raw);
            for (index, word) in nulls.inner().bit_chunks().iter_padded().take(rows.div_ceil(64)).enumerate() {
                words.add(index).write(word);
            }
        }
    }

    /// Makes room for `count` items of a LIST or entries of a MAP, says that there are so many, and gives them to be
    /// filled.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn items(&mut self, count: usize) -> Result<VectorMut<'_, 'a>, Failure> {
        let (api, raw, id) = (self.vector.api, self.vector.raw, self.vector.logical.id());
        assert!(matches!(id, shape::LIST | shape::MAP), "a list");
        // SAFETY: the vector is alive and a list.
        let state = unsafe { (api.duckdb_list_vector_reserve)(raw, count as u64) | (api.duckdb_list_vector_set_size)(raw, count as u64) };
        if state != 0 {
            return Err(Failure::ours(format!("no memory for a list of {count} items")));
        }
        Ok(VectorMut { vector: self.vector.items(), borrowed: PhantomData })
    }

    /// A field of a STRUCT, to be filled.
    pub fn field(&mut self, index: usize) -> VectorMut<'_, 'a> {
        VectorMut { vector: self.vector.field(index), borrowed: PhantomData }
    }
}
