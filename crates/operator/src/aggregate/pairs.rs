//! Results before and after each row, one behind the other: the form in which a running aggregate
//! emits them, so that a column is written once.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, BooleanArray, PrimitiveArray, StringArray};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::interleave;
use arrow::compute::kernels::cmp::not_distinct;
use arrow::datatypes::DataType;

use crate::OperatorError;

/// Results of a fixed width.
pub(super) struct Numbers<N> {
    values: Vec<N>,
    valid: Vec<bool>,
    nulls: bool,
}

impl<N: ArrowNativeTypeOp> Numbers<N> {
    pub fn with_rows(rows: usize) -> Self {
        Numbers { values: Vec::with_capacity(rows * 2), valid: Vec::with_capacity(rows * 2), nulls: false }
    }

    /// Appends what a row changed; whether it did.
    #[inline]
    pub fn push(&mut self, before: Option<N>, after: Option<N>) -> bool {
        self.values.extend_from_slice(&[before.unwrap_or_default(), after.unwrap_or_default()]);
        self.valid.extend_from_slice(&[before.is_some(), after.is_some()]);
        self.nulls |= before.is_none() || after.is_none();
        match (before, after) {
            (Some(before), Some(after)) => !before.is_eq(after),
            (before, after) => before.is_some() != after.is_some(),
        }
    }

    pub fn finish<T: ArrowPrimitiveType<Native = N>>(self, output: &DataType) -> ArrayRef {
        let nulls = self.nulls.then(|| NullBuffer::from(self.valid));
        Arc::new(PrimitiveArray::<T>::new(self.values.into(), nulls).with_data_type(output.clone()))
    }
}

/// Texts.
pub(super) struct Texts {
    bytes: Vec<u8>,
    offsets: Vec<i32>,
    valid: Vec<bool>,
}

impl Texts {
    pub fn with_capacity(texts: usize) -> Self {
        let mut offsets = Vec::with_capacity(texts + 1);
        offsets.push(0);
        Texts { bytes: Vec::with_capacity(texts * 8), offsets, valid: Vec::with_capacity(texts) }
    }

    #[inline]
    pub fn push(&mut self, text: Option<&str>) {
        if let Some(text) = text {
            self.bytes.extend_from_slice(text.as_bytes());
        }
        self.valid.push(text.is_some());
        // Offsets ascend, so that all fit if the last does.
        self.offsets.push(self.bytes.len() as i32);
    }

    /// # Errors
    /// More than 2 GiB.
    pub fn finish(self) -> Result<ArrayRef, OperatorError> {
        if i32::try_from(self.bytes.len()).is_err() {
            return Err(OperatorError::new("the results of a block are more than 2 GiB of text; use smaller blocks ('block.size')"));
        }
        let nulls = self.valid.contains(&false).then(|| NullBuffer::from(self.valid));
        Ok(Arc::new(StringArray::try_new(OffsetBuffer::new(ScalarBuffer::from(self.offsets)), Buffer::from_vec(self.bytes), nulls)?))
    }
}

/// The results `before` and `after` rows as one column of pairs; `changed` is set where they differ.
///
/// # Errors
/// Columns of different types.
pub(crate) fn interleaved(before: &ArrayRef, after: &ArrayRef, changed: &mut [bool]) -> Result<ArrayRef, OperatorError> {
    let same = match not_distinct(before, after) {
        Ok(same) => same,
        // Types without a comparison kernel (lists, maps) are compared value by value.
        Err(_) => (0..before.len()).map(|i| Some(before.slice(i, 1) == after.slice(i, 1))).collect::<BooleanArray>(),
    };
    changed.iter_mut().enumerate().for_each(|(row, changed)| *changed |= !same.value(row));
    let picks: Vec<(usize, usize)> = (0..before.len()).flat_map(|row| [(0, row), (1, row)]).collect();
    Ok(interleave(&[before.as_ref(), after.as_ref()], &picks)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    #[test]
    fn both_ways_give_the_same() {
        let before = [None, Some(1), Some(2), Some(3), None];
        let after = [Some(1), Some(1), None, Some(4), None];
        let mut numbers = Numbers::with_rows(5);
        let changed: Vec<bool> = before.iter().zip(&after).map(|(b, a)| numbers.push(*b, *a)).collect();
        assert_eq!(changed, [true, false, true, true, false]);
        let written = numbers.finish::<Int64Type>(&DataType::Int64);
        let mut compared = vec![false; 5];
        let arrays = [before, after].map(|values| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef);
        let joined = interleaved(&arrays[0], &arrays[1], &mut compared).unwrap();
        assert_eq!((&written, changed), (&joined, compared));
        let mut texts = Texts::with_capacity(3);
        [Some("a"), None, Some("bc")].into_iter().for_each(|t| texts.push(t));
        let texts = texts.finish().unwrap();
        assert_eq!(texts.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("a"), None, Some("bc")]);
    }
}
