//! How rows are put into messages: so many as are at hand, neither so few that the cost of a message
//! counts nor so many that a message is a burden.

use arrow::array::{Array, RecordBatch};
use arrow::compute::concat_batches;
use tidemill_connect::ConnectError;

/// The most rows of a message whose size is left to us: as many as a block of the engine has.
pub const ROWS_AUTO: usize = 8192;
/// The most rows that may be asked for.
pub const ROWS_LIMIT: usize = 1 << 20;
/// Rows of this many bytes need no more company: what a message costs (some 10 µs at both ends) no
/// longer shows.
pub const BYTES_ENOUGH: usize = 64 << 10;
/// The most bytes of a message, about: servers bound what they accept.
pub const BYTES_MAX: usize = 4 << 20;

/// Bytes of the rows of a batch, about, as they travel.
pub fn bytes(batch: &RecordBatch) -> usize {
    // An array that cannot say how long its slice is (a view) says how long its memory is.
    batch.columns().iter().map(|c| c.to_data().get_slice_memory_size().unwrap_or_else(|_| c.get_array_memory_size())).sum()
}

/// The parts of a batch that are messages, as ranges of rows: none is larger than `bytes_max`, about,
/// unless a row is.
pub fn parts(rows: usize, bytes: usize, bytes_max: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = bytes.div_ceil(bytes_max.max(1)).clamp(1, rows.max(1));
    let each = rows.div_ceil(count).max(1);
    (0..rows).step_by(each).map(move |at| (at, each.min(rows - at)))
}

/// Rows that wait for company.
pub struct Gather {
    /// Rows in each message; as many as are at hand if `None`.
    fixed: Option<usize>,
    held: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

impl Gather {
    /// Messages of so many rows, or of what is at hand.
    pub fn new(fixed: Option<usize>) -> Self {
        Gather { fixed, held: Vec::new(), rows: 0, bytes: 0 }
    }

    /// How many more rows the next message can take: at least one.
    pub fn wanted(&self) -> usize {
        self.fixed.unwrap_or(ROWS_AUTO).saturating_sub(self.rows).max(1)
    }

    /// Rows that wait.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Takes rows.
    pub fn push(&mut self, batch: RecordBatch) {
        if batch.num_rows() > 0 {
            self.rows += batch.num_rows();
            self.bytes += bytes(&batch);
            self.held.push(batch);
        }
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        self.held.clear();
        (self.rows, self.bytes) = (0, 0);
    }

    /// The rows of the next message; `None` if it shall wait for more. With `all` nothing waits.
    ///
    /// # Errors
    /// Batches of different columns.
    pub fn next(&mut self, all: bool) -> Result<Option<RecordBatch>, ConnectError> {
        let full = match self.fixed {
            Some(rows) => self.rows >= rows,
            None => self.rows >= ROWS_AUTO || self.bytes >= BYTES_ENOUGH,
        };
        if self.rows == 0 || !(full || all) {
            return Ok(None);
        }
        let held = match self.held.len() {
            1 => self.held.pop().expect("one is held"),
            _ => concat_batches(&self.held[0].schema(), &self.held)
                .map_err(|e| ConnectError::new(format!("joining rows to publish them together: {e}")))?,
        };
        self.clear();
        match self.fixed {
            Some(rows) if held.num_rows() > rows => {
                // What is left is most often larger than a message, too: it waits without a copy.
                self.push(held.slice(rows, held.num_rows() - rows));
                Ok(Some(held.slice(0, rows)))
            }
            _ => Ok(Some(held)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray};
    use std::sync::Arc;

    fn batch(values: std::ops::Range<i64>) -> RecordBatch {
        RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from_iter_values(values)) as _)]).unwrap()
    }

    /// Messages of what was pushed in these lengths, and the rows that still wait.
    fn messages(fixed: Option<usize>, lengths: &[i64], all: bool) -> (Vec<usize>, usize) {
        let (mut gather, mut at, mut out, mut next) = (Gather::new(fixed), 0, Vec::new(), 0);
        for length in lengths {
            gather.push(batch(at..at + length));
            at += length;
            while let Some(message) = gather.next(all).unwrap() {
                let column = message.column(0).as_any().downcast_ref::<Int64Array>().unwrap().clone();
                column.values().iter().for_each(|n| {
                    assert_eq!(*n, next, "rows stay in order");
                    next += 1;
                });
                out.push(message.num_rows());
            }
        }
        (out, gather.rows())
    }

    #[test]
    fn messages_of_a_fixed_size() {
        assert_eq!(messages(Some(4), &[3, 3, 0, 9, 1], false), (vec![4, 4, 4, 4], 0));
        assert_eq!(messages(Some(4), &[3, 3], false), (vec![4], 2));
        assert_eq!(messages(Some(4), &[3, 6], true), (vec![3, 4, 2], 0));
        assert_eq!(messages(Some(1), &[2, 1], false), (vec![1, 1, 1], 0));
    }

    #[test]
    fn messages_of_what_is_at_hand() {
        assert_eq!(messages(None, &[100, 200], false), (vec![], 300));
        assert_eq!(messages(None, &[100, 200], true), (vec![100, 200], 0));
        // 64 KiB of eight bytes each.
        assert_eq!(messages(None, &[8000, 300, 10], false), (vec![8300], 10));
    }

    #[test]
    fn a_message_takes_what_is_wanted() {
        let mut gather = Gather::new(Some(10));
        gather.push(batch(0..7));
        assert_eq!(gather.wanted(), 3);
        gather.clear();
        assert_eq!((gather.wanted(), gather.rows()), (10, 0));
        assert_eq!(Gather::new(None).wanted(), ROWS_AUTO);
    }

    #[test]
    fn large_batches_are_divided() {
        assert_eq!(parts(10, 100, 100).collect::<Vec<_>>(), [(0, 10)]);
        assert_eq!(parts(10, 101, 100).collect::<Vec<_>>(), [(0, 5), (5, 5)]);
        assert_eq!(parts(10, 1000, 100).collect::<Vec<_>>().len(), 10);
        assert_eq!(parts(2, 1 << 30, 100).collect::<Vec<_>>(), [(0, 1), (1, 1)]);
        assert_eq!(parts(0, 0, 100).count(), 0);
    }

    #[test]
    fn a_slice_counts_what_it_shows() {
        let whole = batch(0..1000);
        assert_eq!(bytes(&whole.slice(0, 10)), 80);
        let texts = RecordBatch::try_from_iter([("t", Arc::new(StringArray::from(vec!["abc"; 100])) as _)]).unwrap();
        assert!((300..1000).contains(&bytes(&texts)));
    }
}
