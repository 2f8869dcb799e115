//! Savepoints, which DuckDB has none of: an error ends its transaction. So what a transaction has done since its first
//! savepoint is noted, and going back means to begin again and to do that anew.
//!
//! It is needed only when rows were refused and are being searched for; each that is found costs some ten times of
//! what the transaction has done so far. What was noted stays in memory until the transaction ends.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;

use crate::driver::{DbError, Target};

/// Sets a savepoint; that of refused rows, as others are not set.
pub const SAVEPOINT: &str = "SAVEPOINT tidemill";
/// Goes back to it.
pub const ROLLBACK_TO: &str = "ROLLBACK TO SAVEPOINT tidemill";
/// Forgets it.
pub const RELEASE: &str = "RELEASE SAVEPOINT tidemill";

/// Rows of steps that are made one.
const STEP_ROWS: usize = 1 << 17;

/// What is done with rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Append,
    Upsert,
    Delete,
}

/// A thing that a transaction has done.
#[derive(Debug)]
pub struct Step {
    /// What.
    pub change: Change,
    /// To which table.
    pub target: Target,
    /// With which rows.
    pub rows: RecordBatch,
}

/// What a transaction has done since its first savepoint.
#[derive(Debug, Default)]
pub struct Replay {
    steps: Vec<Step>,
    /// How many of them were done before the last savepoint.
    safe: usize,
}

impl Replay {
    /// Notes a step.
    pub fn add(&mut self, change: Change, target: &Target, rows: &RecordBatch) {
        self.steps.push(Step { change, target: target.clone(), rows: rows.clone() });
    }

    /// Sets a savepoint.
    pub fn mark(&mut self) {
        self.safe = self.steps.len();
    }

    /// Goes back to the savepoint: the steps before it, which are to be done again.
    ///
    /// # Errors
    /// Rows that cannot be put together, which would be a mistake here.
    pub fn back(&mut self) -> Result<&[Step], DbError> {
        self.steps.truncate(self.safe);
        let mut merged: Vec<Step> = Vec::with_capacity(self.steps.len());
        for step in self.steps.drain(..) {
            match merged.last_mut() {
                Some(last)
                    if last.change == step.change
                        && last.target.table == step.target.table
                        && last.rows.schema_ref() == step.rows.schema_ref()
                        && last.rows.num_rows() + step.rows.num_rows() <= STEP_ROWS =>
                {
                    last.rows = concat_batches(step.rows.schema_ref(), [&last.rows, &step.rows])?;
                }
                _ => merged.push(step),
            }
        }
        self.steps = merged;
        self.mark();
        Ok(&self.steps)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;

    use super::*;

    #[test]
    fn steps_before_the_savepoint_are_done_again() {
        let rows = |n: Vec<i64>| RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(n)) as _)]).unwrap();
        let target = |table: &str| Target { table: table.into(), schema: rows(vec![]).schema(), key: vec![] };
        let mut replay = Replay::default();
        replay.add(Change::Append, &target("a"), &rows(vec![1]));
        replay.add(Change::Append, &target("a"), &rows(vec![2, 3]));
        replay.add(Change::Append, &target("b"), &rows(vec![4]));
        replay.mark();
        replay.add(Change::Append, &target("b"), &rows(vec![5]));
        for _ in 0..2 {
            let steps: Vec<_> = replay.back().unwrap().iter().map(|s| (s.target.table.clone(), s.rows.clone())).collect();
            assert_eq!(steps, [("a".to_string(), rows(vec![1, 2, 3])), ("b".to_string(), rows(vec![4]))]);
        }
    }
}
