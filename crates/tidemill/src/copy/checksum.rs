//! A checksum of rows that does not depend on their order: the sum of their hashes. Two copies of a table have the
//! same one, however their rows are divided among files.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use tidemill_state::hash;

/// Rows counted and their hashes added up, twice: the second sum is of hashes mixed anew, so that differences that
/// cancel out in one of them do not in the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    /// How many rows.
    pub rows: u64,
    sums: [u64; 2],
}

impl Checksum {
    /// Adds the rows of a batch; `hashes` is a buffer to use again. With `empty_is_null` a text that is NULL and an
    /// empty one count as the same, since CSV writes both as nothing.
    ///
    /// # Errors
    /// A column whose values have no text.
    pub fn add(&mut self, batch: &RecordBatch, empty_is_null: bool, hashes: &mut Vec<u64>) -> Result<(), ArrowError> {
        let columns: Vec<ArrayRef> = match empty_is_null {
            false => batch.columns().to_vec(),
            true => batch.columns().iter().map(without_null_texts).collect(),
        };
        hash::rows(&columns, batch.num_rows(), hashes)?;
        self.rows += batch.num_rows() as u64;
        let [mut first, mut second] = self.sums;
        for hash in hashes.iter() {
            first = first.wrapping_add(*hash);
            second = second.wrapping_add(hash::mix(hash ^ 0x6a09_e667_f3bc_c908));
        }
        self.sums = [first, second];
        Ok(())
    }

    /// Adds the rows that another counted.
    pub fn merge(&mut self, other: Checksum) {
        self.rows += other.rows;
        self.sums = [self.sums[0].wrapping_add(other.sums[0]), self.sums[1].wrapping_add(other.sums[1])];
    }

    /// The sums as 32 hexadecimal digits.
    pub fn text(&self) -> String {
        format!("{:016x}{:016x}", self.sums[0], self.sums[1])
    }

    /// The checksum of so many rows that [`Checksum::text`] gave.
    pub fn parse(rows: u64, text: &str) -> Option<Self> {
        let (first, second) = text.split_at_checked(16)?;
        Some(Checksum { rows, sums: [u64::from_str_radix(first, 16).ok()?, u64::from_str_radix(second, 16).ok()?] })
    }
}

/// A column of texts with an empty one for each NULL; any other column as it is.
fn without_null_texts(column: &ArrayRef) -> ArrayRef {
    if *column.data_type() != DataType::Utf8 || column.null_count() == 0 {
        return column.clone();
    }
    let texts = column.as_string::<i32>();
    Arc::new(StringArray::from_iter_values(texts.iter().map(Option::unwrap_or_default)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int64Array;

    fn batch(rows: &[(i64, Option<&str>)]) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0)));
        let texts: ArrayRef = Arc::new(StringArray::from(rows.iter().map(|r| r.1).collect::<Vec<_>>()));
        RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("t", texts, true)]).unwrap()
    }

    fn sum(batches: &[&[(i64, Option<&str>)]], empty_is_null: bool) -> Checksum {
        let mut sum = Checksum::default();
        batches.iter().for_each(|rows| sum.add(&batch(rows), empty_is_null, &mut Vec::new()).unwrap());
        sum
    }

    #[test]
    fn order_and_batches_do_not_matter() {
        let all = sum(&[&[(1, Some("a")), (2, None), (2, Some("b"))]], false);
        assert_eq!(all, sum(&[&[(2, Some("b"))], &[(2, None), (1, Some("a"))]], false));
        let mut merged = sum(&[&[(2, None)]], false);
        merged.merge(sum(&[&[(1, Some("a")), (2, Some("b"))]], false));
        assert_eq!((merged, Checksum::parse(3, &all.text())), (all, Some(all)));
    }

    #[test]
    fn values_matter() {
        let one = sum(&[&[(1, Some("a")), (2, Some("b"))]], false);
        assert_ne!(one, sum(&[&[(1, Some("b")), (2, Some("a"))]], false));
        assert_ne!(one, sum(&[&[(1, Some("a")), (1, Some("a")), (2, Some("b"))]], false));
        assert_ne!(sum(&[&[(1, None)]], false), sum(&[&[(1, Some(""))]], false));
        assert_eq!(sum(&[&[(1, None)]], true), sum(&[&[(1, Some(""))]], true));
        assert_eq!(Checksum::parse(1, "xyz"), None);
    }
}
