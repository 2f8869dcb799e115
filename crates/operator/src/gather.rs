//! Gathering: values that lie here and there become a column. Arrow's `take` is used where it is fast;
//! short texts are copied here, in strides instead of by a call each. What keeps the values is not known
//! here: see [`crate::chunks`], and the stores of joins and rankings.

use std::ptr;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, StringArray, UInt32Array};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::compute;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

/// Bytes copied at once; a copy may write so many beyond a text's end, where the next one then goes.
const STRIDE: usize = 32;
/// Longer texts are worth a call.
const SHORT_MAX: usize = 128;

/// A column of texts or bytes in the making.
pub(crate) struct Strings {
    offsets: Vec<i32>,
    values: Vec<u8>,
}

impl Strings {
    /// Room for `rows` texts of `bytes` bytes together.
    ///
    /// # Errors
    /// More than 2 GB, which no column can hold.
    pub fn new(rows: usize, bytes: usize) -> Result<Self, ArrowError> {
        if bytes > i32::MAX as usize {
            return Err(ArrowError::ComputeError("more than 2 GB of text in one block of an operator's output".into()));
        }
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Ok(Strings { offsets, values: Vec::with_capacity(bytes + STRIDE) })
    }

    /// Appends the `length` bytes of `from` that begin at `start`.
    #[inline]
    pub fn push(&mut self, from: &[u8], start: usize, length: usize) {
        let at = self.values.len();
        let padded = length.next_multiple_of(STRIDE);
        if length <= SHORT_MAX && from.len() >= padded && start <= from.len() - padded && at + padded <= self.values.capacity() {
            // SAFETY: `padded` bytes from `start` on lie in `from`, and as many from `at` on in the capacity
            // of `values`, both checked above; the two do not overlap, since `values` is borrowed mutably. The
            // first `length` of them are initialised by the loop.
            unsafe {
                let (source, target) = (from.as_ptr().add(start), self.values.as_mut_ptr().add(at));
                let mut done = 0;
                while done < length {
                    ptr::copy_nonoverlapping(source.add(done), target.add(done), STRIDE);
                    done += STRIDE;
                }
                self.values.set_len(at + length);
            }
        } else {
            self.values.extend_from_slice(&from[start..start + length]);
        }
        self.offsets.push(self.values.len() as i32);
    }

    /// The column, of type `data_type`: `Utf8`, else `Binary`.
    ///
    /// # Safety
    /// If it is `Utf8`, every piece that was pushed is valid UTF-8.
    pub unsafe fn finish(self, data_type: &DataType, nulls: Option<NullBuffer>) -> ArrayRef {
        let (offsets, values) = (OffsetBuffer::new(self.offsets.into()), Buffer::from_vec(self.values));
        match data_type {
            // SAFETY: the offsets ascend within `values`; that the pieces are UTF-8 the caller promises.
            DataType::Utf8 => Arc::new(unsafe { StringArray::new_unchecked(offsets, values, nulls) }),
            _ => Arc::new(BinaryArray::new(offsets, values, nulls)),
        }
    }
}

/// The rows `rows` of a column, in that order.
///
/// # Errors
/// More than 2 GB of text.
pub(crate) fn take(column: &ArrayRef, rows: &[u32]) -> Result<ArrayRef, ArrowError> {
    if *column.data_type() != DataType::Utf8 {
        return compute::take(column, &UInt32Array::from(rows.to_vec()), None);
    }
    let texts = column.as_string::<i32>();
    let (offsets, values) = (texts.value_offsets(), texts.value_data());
    let length = |row: u32| (offsets[row as usize + 1] - offsets[row as usize]) as usize;
    let mut out = Strings::new(rows.len(), rows.iter().map(|row| length(*row)).sum())?;
    for row in rows {
        out.push(values, offsets[*row as usize] as usize, length(*row));
    }
    let nulls = texts.nulls().filter(|n| n.null_count() > 0);
    let nulls = nulls.map(|n| rows.iter().map(|row| n.is_valid(*row as usize)).collect::<NullBuffer>());
    // SAFETY: every piece is a value of a text column.
    Ok(unsafe { out.finish(&DataType::Utf8, nulls) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_every_length_near_every_end() {
        let texts: Vec<String> = (0..300).map(|n| "ä".repeat(n % 97) + &"x".repeat(n % 5)).collect();
        let column: ArrayRef = Arc::new(texts.iter().enumerate().map(|(n, t)| (n % 7 > 0).then_some(t)).collect::<StringArray>());
        for (offset, length) in [(0, 300), (17, 200), (299, 1), (5, 0)] {
            let slice = column.slice(offset, length);
            let rows: Vec<u32> = (0..length as u32).rev().chain(0..length as u32).collect();
            let expect = compute::take(&slice, &UInt32Array::from(rows.clone()), None).unwrap();
            assert_eq!(&take(&slice, &rows).unwrap(), &expect, "{length} rows from {offset} on");
        }
    }

    #[test]
    fn more_room_is_found_where_the_estimate_was_low() {
        let mut strings = Strings::new(1, 0).unwrap();
        let from = b"one two three four five six seven eight nine ten eleven twelve";
        (0..50).for_each(|_| strings.push(from, 4, 3));
        // SAFETY: the piece is ASCII.
        let column = unsafe { strings.finish(&DataType::Utf8, None) };
        assert!(column.as_string::<i32>().iter().all(|t| t == Some("two")));
    }
}
