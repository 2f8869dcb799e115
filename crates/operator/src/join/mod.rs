//! Joins of streams.
//!
//! | file | what it joins |
//! |---|---|
//! | [`regular`] | changelogs, by keys or without: inner, outer, semi, anti, mark; every row is kept |
//! | [`append`] | the same where it is simple and common: inner joins of inputs that only grow |
//! | [`not_in`] | `NOT IN (SELECT …)` where either side may be NULL |
//! | [`set`] | `INTERSECT` and `EXCEPT`, with and without `ALL` |
//! | [`interval`] | rows whose event times lie near one another |
//! | [`window`] | rows of the same window |
//! | [`temporal`] | rows with the version of a table that was valid at their time |
//!
//! `append` keeps rows in [`crate::chunks`]. [`store`] keeps them in columns by number, `side` adds keys,
//! counts and expiry for joins whose inputs may take rows back. Joins in time keep theirs in `time_rows`,
//! in the order in which time drops them.
//!
//! A regular join emits `+I` and `-D` only, never `-U` and `+U`: the old and the new version of a row
//! may have different keys and meet different rows, or none.

pub mod append;
pub mod interval;
pub mod not_in;
pub mod regular;
mod residual;
pub mod set;
mod side;
pub mod store;
pub mod temporal;
#[cfg(test)]
mod testing;
mod time_pairs;
mod time_rows;
#[cfg(test)]
mod time_tests;
pub mod window;

use arrow::array::ArrayRef;
use tidemill_block::{Block, clock};

use crate::map::Expr;
use crate::{Operator, OperatorError, OperatorStats};
use append::{AppendJoin, Best};
use regular::{Join, JoinSpec};

/// Which rows a join gives. A side is 0 (left) or 1 (right).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs of rows that match, left columns first.
    Pairs {
        /// For each side whether its rows without a match come too, beside NULLs: `LEFT` is `[true,
        /// false]`, `INNER` is `[false, false]`.
        keep: [bool; 2],
    },
    /// The rows of a side that have a match.
    Semi(usize),
    /// The rows of a side that have none.
    Anti(usize),
    /// All rows of a side, with a BOOLEAN behind that says whether they have a match.
    Mark(usize),
}

impl JoinKind {
    /// The side whose rows alone come out, if it is not pairs.
    pub fn side(self) -> Option<usize> {
        match self {
            JoinKind::Pairs { .. } => None,
            JoinKind::Semi(side) | JoinKind::Anti(side) | JoinKind::Mark(side) => Some(side),
        }
    }

    /// Whether it matters for rows of `side` how many matches they have.
    pub fn depends(self, side: usize) -> bool {
        match self {
            JoinKind::Pairs { keep } => keep[side],
            other => other.side() == Some(side),
        }
    }

    /// Whether a row alone is shown.
    fn shows(self, matched: bool) -> bool {
        match self {
            JoinKind::Pairs { .. } => false,
            JoinKind::Semi(_) => matched,
            JoinKind::Anti(_) => !matched,
            JoinKind::Mark(_) => true,
        }
    }

    /// Whether the output only ever grows if the inputs do.
    pub fn appends(self) -> bool {
        matches!(self, JoinKind::Pairs { keep: [false, false] } | JoinKind::Semi(_))
    }
}

/// The operator for a join of changelogs; of the pairs only the best are wanted if `best` is given, which is
/// a hint.
///
/// # Errors
/// A key type that cannot be a key.
pub fn regular_join(spec: JoinSpec, best: Option<Best>) -> Result<Box<dyn Operator>, OperatorError> {
    Ok(if AppendJoin::serves(&spec) { Box::new(AppendJoin::new(spec, best)?) } else { Box::new(Join::new(spec)?) })
}

/// When state that nothing has changed for a time is dropped: `table.exec.state.ttl`.
struct Expiry {
    ttl_ms: Option<i64>,
    swept: i64,
    clock: fn() -> i64,
}

impl Expiry {
    fn new(ttl_ms: Option<i64>) -> Self {
        Expiry { ttl_ms, swept: 0, clock: clock::wall_ms }
    }

    /// Processing time, ms; 0 where nothing expires.
    fn now(&self) -> i64 {
        self.ttl_ms.map_or(0, |_| (self.clock)())
    }

    /// What was last changed then or earlier has expired.
    fn before(&self, now: i64) -> Option<i64> {
        self.ttl_ms.map(|ttl| now - ttl)
    }

    /// Whether it is time to look through the whole state, which is done four times in a time to live:
    /// some nanoseconds a row each.
    fn due(&mut self, now: i64) -> Option<i64> {
        let ttl = self.ttl_ms?;
        if now - self.swept < (ttl / 4).max(1) {
            return None;
        }
        self.swept = now;
        Some(now - ttl)
    }
}

/// Computes expressions over a block.
fn evaluate(expressions: &[Expr], block: &Block) -> Result<Vec<ArrayRef>, OperatorError> {
    expressions.iter().map(|e| Ok(e.evaluate(&block.batch)?.into_array(block.rows())?)).collect()
}

/// The counts of a join for metrics.
fn stats(entries: usize, memory: usize, unknown: u64) -> OperatorStats {
    OperatorStats { entries: entries as u64, memory: memory as u64, unknown_rows: unknown, ..OperatorStats::default() }
}
