//! Window joins: rows of equal keys in the same window.
//!
//! That is an interval join whose rows lie at the end of their window less a millisecond and whose
//! bounds are zero, with the window among the keys where its end alone does not tell windows apart. So
//! a pair leaves as soon as its second row comes, not only when the window is over; rows without a
//! partner leave when the watermark reaches the end of the window less a millisecond, and then the
//! window is forgotten. A row is late if its window was over for its own split.

use arrow::datatypes::{DataType, SchemaRef};
use tidemill_block::Block;
use tidemill_state::StateTable;

use super::interval::{IntervalJoin, IntervalSpec, JoinForm, JoinSide, Residual};
use crate::map::Expr;
use crate::{Operator, OperatorError, OperatorStats, Output, Progress};

/// An input of a window join.
#[derive(Clone)]
pub struct WindowSide {
    /// Its columns.
    pub schema: SchemaRef,
    /// The keys, of the same types on both sides. Where windows that end together may begin apart
    /// (sessions, windows of different functions), the start is one of them.
    pub keys: Vec<Expr>,
    /// Index of the column with the window's end.
    pub end: usize,
}

/// What a window join computes.
#[derive(Clone)]
pub struct WindowJoinSpec {
    /// Which rows are emitted.
    pub form: JoinForm,
    /// Left and right.
    pub sides: [WindowSide; 2],
    /// Types of the keys.
    pub key_types: Vec<DataType>,
    /// NULL is equal to NULL.
    pub null_equals: bool,
    /// What else must hold.
    pub residual: Option<Residual>,
    /// Left columns, then right columns; the left ones alone if the form is a half join.
    pub schema: SchemaRef,
}

/// Joins rows in the same window.
pub struct WindowJoin(IntervalJoin);

impl WindowJoin {
    /// A join by `spec`.
    ///
    /// # Errors
    /// Types that cannot be keys.
    pub fn new(spec: WindowJoinSpec) -> Result<Self, OperatorError> {
        let sides = spec.sides.map(|side| JoinSide { schema: side.schema, keys: side.keys, time: side.end, shift_ms: -1 });
        Ok(WindowJoin(IntervalJoin::new(IntervalSpec {
            form: spec.form,
            sides,
            key_types: spec.key_types,
            null_equals: spec.null_equals,
            low_ms: 0,
            high_ms: 0,
            residual: spec.residual,
            schema: spec.schema,
        })?))
    }
}

impl Operator for WindowJoin {
    fn name(&self) -> &'static str {
        "WindowJoin"
    }

    fn on_block(&mut self, input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        self.0.on_block(input, block, out)
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        self.0.on_watermark(watermark, out)
    }

    fn output_watermark(&self, watermark: i64) -> i64 {
        self.0.output_watermark(watermark)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        self.0.snapshot()
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        self.0.restore(tables)
    }

    fn stats(&self) -> OperatorStats {
        self.0.stats()
    }
}
