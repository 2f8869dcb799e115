//! How large rows are, so that bounds in rows are bounds in bytes, too.
//!
//! Work and waiting are measured in rows, and so are blocks and what is gathered. Of rows of 100 KB the same bounds would be
//! gigabytes. To look at each block of one row would be a part of the cost of working it off: of small rows only some are
//! looked at, and those between are taken for as large.

use arrow::array::RecordBatch;
use tidemill_block::rows_bytes;

/// What is read or gathered at once has about so many bytes at most: beyond that a block's own cost is nothing, and it is
/// in no cache any more. Rows up to 512 bytes come in blocks of any size.
pub(crate) const BLOCK_BYTES_MAX: usize = 4 << 20;
/// Rows from one look to the next, and those that are asked for before the first.
const LOOK_ROWS: usize = 64;
/// Rows of this size are looked at whenever they come: beside what is done with them it costs nothing.
const LARGE_BYTES: usize = 16 << 10;

/// How large the rows of a stream are at the moment.
#[derive(Debug, Default)]
pub(crate) struct RowBytes {
    /// About the bytes of a row; 0 before one was seen.
    row: usize,
    /// Rows since the last look.
    unseen: usize,
}

impl RowBytes {
    /// About how many bytes rows have that have come.
    pub fn of(&mut self, batch: &RecordBatch) -> usize {
        let rows = batch.num_rows();
        if rows == 0 {
            return 0;
        }
        self.unseen += rows;
        if self.unseen < LOOK_ROWS && (1..LARGE_BYTES).contains(&self.row) {
            return rows * self.row;
        }
        self.unseen = 0;
        let bytes = rows_bytes(batch);
        let row = (bytes / rows).max(1);
        // That rows have become larger is believed at once, and that they have become smaller by and by.
        self.row = row.max(self.row.midpoint(row));
        bytes
    }

    /// So many rows have about [`BLOCK_BYTES_MAX`] bytes; at least one. Few before their size is known.
    pub fn rows_max(&self) -> usize {
        if self.row == 0 { LOOK_ROWS } else { (BLOCK_BYTES_MAX / self.row).max(1) }
    }
}

/// Counts rows that are gathered.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    rows: usize,
    bytes: usize,
    each: RowBytes,
}

impl Gathered {
    /// Counts further rows. Whether they are enough now: `rows_max`, or [`BLOCK_BYTES_MAX`].
    pub fn add(&mut self, batch: &RecordBatch, rows_max: usize) -> bool {
        self.rows += batch.num_rows();
        self.bytes += self.each.of(batch);
        self.rows >= rows_max || self.bytes >= BLOCK_BYTES_MAX
    }

    /// Begins anew: how many rows there were, and about how many bytes.
    pub fn take(&mut self) -> (usize, usize) {
        (std::mem::take(&mut self.rows), std::mem::take(&mut self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringArray};

    /// So many rows, each of so many bytes and an offset.
    fn rows(count: usize, bytes: usize) -> RecordBatch {
        let column: ArrayRef = Arc::new(StringArray::from_iter_values(std::iter::repeat_n("x".repeat(bytes), count)));
        RecordBatch::try_from_iter([("c", column)]).unwrap()
    }

    #[test]
    fn few_rows_are_asked_for_until_their_size_is_known() {
        let mut each = RowBytes::default();
        assert_eq!((each.of(&rows(0, 9)), each.rows_max()), (0, LOOK_ROWS), "no row says nothing");
        each.of(&rows(10, 96));
        assert_eq!(each.rows_max(), BLOCK_BYTES_MAX / 100);
        each.of(&rows(100, 100_000));
        assert_eq!(each.rows_max(), 41);
        each.of(&rows(1, 2 * BLOCK_BYTES_MAX));
        assert_eq!(each.rows_max(), 1, "one comes, however large it is");
    }

    #[test]
    fn rows_that_have_become_smaller_are_believed_by_and_by() {
        let mut each = RowBytes::default();
        each.of(&rows(64, 100_000));
        each.of(&rows(64, 96));
        assert!((80..90).contains(&each.rows_max()), "{each:?}");
        for _ in 0..20 {
            each.of(&rows(64, 96));
        }
        assert_eq!(each.rows_max(), BLOCK_BYTES_MAX / 100);
    }

    #[test]
    fn of_small_rows_some_are_looked_at_and_of_large_ones_all() {
        let mut each = RowBytes::default();
        let small = each.of(&rows(1, 100));
        // The first was looked at, the next are not, though they are larger.
        (1..LOOK_ROWS).for_each(|_| assert_eq!(each.of(&rows(1, 20_000)), small));
        assert!(each.of(&rows(1, 20_000)) > 20_000);
        assert!(each.of(&rows(1, 100_000)) > 100_000, "rows are large now");
    }

    #[test]
    fn what_is_gathered_is_bounded_in_rows_and_in_bytes() {
        for (bytes, at_once, enough) in [(10, 1, 1024), (10, 100, 1100), (10_000, 1, 420), (1_000_000, 1, 5), (1_000_000, 3, 6)] {
            let (mut gathered, mut count, block) = (Gathered::default(), at_once, rows(at_once, bytes));
            while !gathered.add(&block, 1024) {
                count += at_once;
            }
            assert_eq!(count, enough, "rows of {bytes} bytes, {at_once} at once");
            let (rows, taken) = gathered.take();
            assert!(rows == count && taken >= count * bytes, "{rows} rows of {taken} bytes");
            assert_eq!(gathered.take(), (0, 0));
        }
    }
}
