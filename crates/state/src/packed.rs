//! Keys of several columns of integers and texts as bytes, one column behind the other.
//!
//! An integer takes nine bytes, a text its length (four bytes) and itself; NULL is told by the first byte
//! of the one and the length of the other. Keys are the same if and only if their bytes are. Their order
//! is not that of the values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray, StringBuilder};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use crate::ints::{from_ints, ints, is_int};

/// The length of a NULL.
const NULL: u32 = u32::MAX;

/// Whether columns of these types can be packed.
pub(crate) fn fits(types: &[DataType]) -> bool {
    types.iter().all(|t| is_int(t) || *t == DataType::Utf8)
}

/// The keys of some rows.
pub(crate) struct Packed {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

enum Column<'a> {
    Ints(Int64Array),
    Texts(&'a StringArray),
}

impl Packed {
    /// Packs columns for which [`fits`] holds.
    ///
    /// # Errors
    /// A column of another type.
    pub fn new(columns: &[ArrayRef], rows: usize) -> Result<Self, ArrowError> {
        let columns = columns
            .iter()
            .map(|c| Ok(if *c.data_type() == DataType::Utf8 { Column::Texts(c.as_string::<i32>()) } else { Column::Ints(ints(c)?) }))
            .collect::<Result<Vec<_>, ArrowError>>()?;
        let width = |column: &Column| match column {
            Column::Ints(_) => rows * 9,
            Column::Texts(texts) => rows * 4 + (texts.value_offsets()[texts.len()] - texts.value_offsets()[0]) as usize,
        };
        let mut bytes = Vec::with_capacity(columns.iter().map(width).sum());
        let mut ends = Vec::with_capacity(rows);
        for row in 0..rows {
            for column in &columns {
                match column {
                    Column::Ints(values) => {
                        let mut key = [0; 9];
                        if values.is_valid(row) {
                            key[0] = 1;
                            key[1..].copy_from_slice(&values.value(row).to_le_bytes());
                        }
                        bytes.extend_from_slice(&key);
                    }
                    Column::Texts(texts) if texts.is_null(row) => bytes.extend_from_slice(&NULL.to_le_bytes()),
                    Column::Texts(texts) => {
                        let text = texts.value(row).as_bytes();
                        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
                        bytes.extend_from_slice(text);
                    }
                }
            }
            ends.push(bytes.len());
        }
        Ok(Packed { bytes, ends })
    }

    /// The key of a row.
    #[inline]
    pub fn get(&self, row: usize) -> &[u8] {
        let from = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[from..self.ends[row]]
    }
}

/// The columns that so many keys were made of.
///
/// # Errors
/// None that keys made by [`Packed::new`] of columns of these types can cause.
pub(crate) fn unpack<'a>(types: &[DataType], keys: usize, key: impl Fn(usize) -> &'a [u8]) -> Result<Vec<ArrayRef>, ArrowError> {
    let mut rests: Vec<&[u8]> = (0..keys).map(key).collect();
    let cut = || ArrowError::ComputeError("internal error: a key is cut off".into());
    types
        .iter()
        .map(|data_type| {
            if *data_type != DataType::Utf8 {
                let mut values: Vec<Option<i64>> = Vec::with_capacity(keys);
                for rest in &mut rests {
                    let (head, tail) = rest.split_first_chunk::<9>().ok_or_else(cut)?;
                    let value = head[1..].try_into().expect("eight bytes");
                    values.push((head[0] == 1).then(|| i64::from_le_bytes(value)));
                    *rest = tail;
                }
                let values: ArrayRef = Arc::new(Int64Array::from(values));
                return from_ints(&values, data_type);
            }
            let mut texts = StringBuilder::with_capacity(keys, keys * 8);
            for rest in &mut rests {
                let (head, tail) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
                let length = u32::from_le_bytes(*head);
                if length == NULL {
                    texts.append_null();
                    *rest = tail;
                    continue;
                }
                let (text, tail) = tail.split_at_checked(length as usize).ok_or_else(cut)?;
                // SAFETY: the bytes were taken from a string array.
                texts.append_value(unsafe { std::str::from_utf8_unchecked(text) });
                *rest = tail;
            }
            Ok(Arc::new(texts.finish()) as ArrayRef)
        })
        .collect()
}
