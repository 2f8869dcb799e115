//! When rows arrived that are not committed yet, so that their latency is counted when they are.

use std::sync::{Arc, OnceLock};

use tidemill_block::Block;
use tidemill_connect::{Arrived, Visible};

/// Entries of [`Arrivals`]: of rows of ten seconds, an entry covers five milliseconds at most.
const ENTRIES_MAX: usize = 4096;

/// When rows arrived, in order. Of many blocks neighbours share an entry, with the earlier moment. Those of which it is not known
/// when have one entry, the first: a moment of 0 is earlier than any, and the neighbours' rows would be in no latency.
#[derive(Debug, Default)]
pub(super) struct Arrivals(Vec<Arrived>);

impl Arrivals {
    /// Adds the rows of blocks.
    pub fn add(&mut self, blocks: &[Block]) {
        for block in blocks {
            let (arrival_ns, rows) = (block.arrival_ns, block.rows() as u64);
            match self.0.last_mut() {
                Some(last) if last.arrival_ns == arrival_ns => last.rows += rows,
                _ if arrival_ns == 0 => match self.0.first_mut() {
                    Some(first) if first.arrival_ns == 0 => first.rows += rows,
                    _ => self.0.insert(0, Arrived { arrival_ns, rows }),
                },
                _ => {
                    if self.0.len() >= ENTRIES_MAX {
                        self.halve();
                    }
                    self.0.push(Arrived { arrival_ns, rows });
                }
            }
        }
    }

    fn halve(&mut self) {
        let both = |pair: &[Arrived]| match pair {
            [a, b] => Arrived { arrival_ns: a.arrival_ns.min(b.arrival_ns), rows: a.rows + b.rows },
            _ => pair[0],
        };
        let unknown = self.0.iter().take_while(|arrived| arrived.arrival_ns == 0).count();
        let (unknown, known) = self.0.split_at(unknown);
        self.0 = unknown.iter().copied().chain(known.chunks(2).map(both)).collect();
    }
}

/// Who wants to know when rows of a writer are visible, if anybody does. Clones tell the same one.
#[derive(Clone, Default)]
pub(super) struct Told(Arc<OnceLock<Visible>>);

impl Told {
    /// From now on tells `visible`; the first call counts.
    pub fn ask(&self, visible: Visible) {
        // Whoever came first is told.
        let _ = self.0.set(visible);
    }

    /// The rows are visible now.
    pub fn tell(&self, arrivals: &Arrivals) {
        if let Some(visible) = self.0.get() {
            visible(&arrivals.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};

    use super::*;

    fn block(rows: i64, arrival_ns: u64) -> Block {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        Block::inserts(RecordBatch::try_from_iter([("n", numbers)]).unwrap(), arrival_ns)
    }

    #[test]
    fn rows_that_arrived_together_are_one_entry() {
        let mut arrivals = Arrivals::default();
        arrivals.add(&[block(3, 7), block(4, 7), block(1, 9)]);
        arrivals.add(&[block(2, 9)]);
        assert_eq!(arrivals.0, [Arrived { arrival_ns: 7, rows: 7 }, Arrived { arrival_ns: 9, rows: 3 }]);
    }

    /// Rows that had waited for seconds were counted as those of which nobody knows for how long.
    #[test]
    fn rows_of_unknown_times_take_no_others_with_them() {
        let mut arrivals = Arrivals::default();
        for n in 0..3 * ENTRIES_MAX as u64 {
            arrivals.add(&[block(1, n + 1), block(2, 0)]);
            assert!(arrivals.0.len() <= ENTRIES_MAX);
        }
        let unknown: Vec<&Arrived> = arrivals.0.iter().filter(|a| a.arrival_ns == 0).collect();
        assert_eq!(unknown, [&Arrived { arrival_ns: 0, rows: 6 * ENTRIES_MAX as u64 }]);
        assert_eq!(arrivals.0.iter().map(|a| a.rows).sum::<u64>(), 9 * ENTRIES_MAX as u64);
    }

    #[test]
    fn however_many_there_are_no_row_is_forgotten() {
        let mut arrivals = Arrivals::default();
        for n in 0..3 * ENTRIES_MAX as u64 {
            arrivals.add(&[block(1, n + 1)]);
            assert!(arrivals.0.len() <= ENTRIES_MAX);
        }
        assert_eq!(arrivals.0.iter().map(|a| a.rows).sum::<u64>(), 3 * ENTRIES_MAX as u64);
        assert!(arrivals.0.is_sorted_by_key(|a| a.arrival_ns));
        assert_eq!(arrivals.0[0].arrival_ns, 1);
    }
}
