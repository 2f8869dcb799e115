//! The operators of the stream runtime, one a file.
//!
//! An operator takes blocks and watermarks and emits blocks. It knows nothing of threads, queues,
//! files or SQL; the runtime calls it, combines the watermarks of its inputs, and asks it for its
//! state at a checkpoint. Loops over rows stand only in kernels ([`aggregate`], [`over`]); elsewhere
//! work is done on columns.

pub mod aggregate;
pub mod check;
mod chunks;
mod error;
pub mod expand;
mod gather;
pub mod group;
mod held;
pub mod join;
pub mod limit;
pub mod map;
pub mod over;
pub mod pattern;
pub mod rank;
pub mod sort;
pub mod unnest;
pub mod window;

use tidemill_block::Block;
use tidemill_state::StateTable;

pub use error::OperatorError;

/// Where an operator puts its output.
#[derive(Default)]
pub struct Output {
    /// Blocks in order.
    pub blocks: Vec<Block>,
}

impl Output {
    /// Emits a block; empty ones are dropped.
    pub fn emit(&mut self, block: Block) {
        if block.rows() > 0 {
            self.blocks.push(block);
        }
    }
}

/// Whether an operator has more to emit for the same event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// That was all.
    Done,
    /// Call again when the output has been passed on. Keeps the output of a large window from
    /// being in memory twice.
    More,
}

/// The most rows that an operator emits in one block when it emits of its own accord.
pub const BLOCK_ROWS_MAX: usize = 8192;

/// Counts that an operator keeps for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperatorStats {
    /// Keys (or rows, for operators that keep rows) in state.
    pub entries: u64,
    /// Bytes of state.
    pub memory: u64,
    /// Rows dropped because they came too late.
    pub late_rows: u64,
}

/// An operator with one or more inputs.
pub trait Operator: Send {
    /// A short name for metrics and errors, such as `WindowAggregate`.
    fn name(&self) -> &'static str;

    /// Takes a block from input `input`.
    ///
    /// # Errors
    /// A value that an expression cannot compute (overflow, division by zero, a failed cast).
    fn on_block(&mut self, input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError>;

    /// Time has passed: no row with a time at or before `watermark` (ms) will come, late ones
    /// aside. [`tidemill_block::WATERMARK_END`] says that the input is at its end. The runtime
    /// passes the watermark on when the answer is [`Progress::Done`].
    ///
    /// # Errors
    /// As [`Operator::on_block`].
    fn on_watermark(&mut self, _watermark: i64, _out: &mut Output) -> Result<Progress, OperatorError> {
        Ok(Progress::Done)
    }

    /// What the operator's output has come to when its input has come to `watermark` (both ms). Less
    /// than the input's where rows are emitted whose time lies behind it, as interval joins do;
    /// must never fall. Asked after [`Operator::on_watermark`] is done.
    fn output_watermark(&self, watermark: i64) -> i64 {
        watermark
    }

    /// The state, for a checkpoint.
    ///
    /// # Errors
    /// State that cannot be expressed as columns.
    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        Ok(Vec::new())
    }

    /// Takes back what [`Operator::snapshot`] gave, from any number of former shards, only this
    /// shard's rows. Called before the first block.
    ///
    /// # Errors
    /// State of another shape.
    fn restore(&mut self, _tables: Vec<StateTable>) -> Result<(), OperatorError> {
        Ok(())
    }

    /// Counts for metrics.
    fn stats(&self) -> OperatorStats {
        OperatorStats::default()
    }
}
