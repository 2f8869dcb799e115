//! The operators of the stream runtime, one a file.
//!
//! An operator takes blocks and watermarks and emits blocks. It knows nothing of threads, queues,
//! files or SQL; the runtime calls it, combines the watermarks of its inputs, and asks it for its
//! state at a checkpoint. Loops over rows stand only in kernels ([`aggregate`], [`over`]); elsewhere
//! work is done on columns.

pub mod aggregate;
pub mod call;
pub mod changes;
pub mod check;
mod chunks;
mod error;
pub mod expand;
mod gather;
pub mod group;
mod held;
pub mod join;
pub mod limit;
pub mod lookup;
pub mod map;
pub mod materialize;
mod memory_share;
pub mod normalize;
pub mod over;
pub mod pattern;
pub mod process;
pub mod rank;
pub mod sort;
pub mod spill;
pub mod unnest;
pub mod window;

use tidemill_block::Block;
use tidemill_state::StateTable;
use tidemill_state::runs::StateRuns;

pub use error::OperatorError;
pub use memory_share::MemoryShare;
pub use spill::{DiskStats, SpillPlace};

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
    /// Rows before this watermark have not all come out yet, because they wait for something outside.
    /// Asked again, with the same watermark or a newer one, after [`Operator::poll`]; until then the
    /// watermark is not passed on. Meant for [`tidemill_block::WATERMARK_END`], for operators that
    /// [wait](Operator::waits): before the end they rather answer `Done` and say by
    /// [`Operator::output_watermark`] how far their output has come.
    Waiting,
}

/// Asks the runtime to call [`Operator::poll`] soon; from any thread.
pub type Wake = std::sync::Arc<dyn Fn() + Send + Sync>;

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
    /// Rows to be taken back that are not there: never seen, or no longer kept. They change nothing.
    pub unknown_rows: u64,
    /// Partial matches of patterns that are held.
    pub partial_matches: u64,
    /// Partial matches of patterns that were given up at the bound.
    pub dropped_matches: u64,
    /// What was asked outside, for operators that do.
    pub calls: call::CallStats,
}

/// How far an operator is with the files of a checkpoint.
#[derive(Debug)]
pub enum SnapshotFiles {
    /// There is more to write.
    Writing,
    /// Nothing can be done until the disk has caught up, be it with what is still to be written or with making it safe.
    Waiting,
    /// These are they.
    Written(Vec<StateRuns>),
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

    // Operators whose state may be larger than memory.

    /// Whether the operator can keep state on disk. Constant.
    fn spills(&self) -> bool {
        false
    }

    /// Told once, before [`Operator::restore_files`] and the first block, if the operator
    /// [can](Operator::spills): where state may go that does not fit in memory.
    fn spill_to(&mut self, _place: SpillPlace) {}

    /// The files of state that left memory, for a checkpoint. Asked after [`Operator::snapshot`], and between
    /// blocks again until they are written. What they hold is the state at the snapshot, whatever blocks came since.
    ///
    /// # Errors
    /// A disk that cannot be written.
    fn snapshot_files(&mut self) -> Result<SnapshotFiles, OperatorError> {
        Ok(SnapshotFiles::Written(Vec::new()))
    }

    /// Takes back what [`Operator::snapshot_files`] gave, of any number of former shards. Called before
    /// [`Operator::restore`].
    ///
    /// # Errors
    /// Files that are damaged or cannot be linked.
    fn restore_files(&mut self, runs: Vec<StateRuns>) -> Result<(), OperatorError> {
        if runs.is_empty() {
            return Ok(());
        }
        Err(OperatorError::new("the checkpoint has state on disk, and this operator keeps all of its state in memory"))
    }

    /// Counts of the state on disk, if any is there.
    fn disk_stats(&self) -> Option<DiskStats> {
        None
    }

    // Operators that wait for something outside: answers to calls, a process, the clock.

    /// Told once, before [`Operator::restore`] and the first block: how to ask the runtime to call
    /// [`Operator::poll`]. An error is kept for the first block or poll.
    fn attach(&mut self, _wake: Wake) {}

    /// Whether the operator may emit of its own accord, since it waits for something outside. Constant.
    fn waits(&self) -> bool {
        false
    }

    /// Called in each round of the worker's loop if the operator [waits](Operator::waits), before
    /// inboxes and sources, unless there is no room behind it. Must cost next to nothing when there is
    /// nothing to do.
    ///
    /// # Errors
    /// As [`Operator::on_block`]; what was waited for has failed.
    fn poll(&mut self, _out: &mut Output) -> Result<(), OperatorError> {
        Ok(())
    }

    /// Takes no more for now: the worker reads no source and no inbox that leads to the operator until
    /// [`Operator::poll`] has made room. What is in flight towards it must still be taken, above all
    /// what lies before a barrier.
    fn full(&self) -> bool {
        false
    }

    /// Whether rows wait in the operator for something outside. While they do, it is not idle even if
    /// its input is, so that no watermark overtakes them; and where no state is kept between runs, a
    /// barrier waits for them.
    fn holds(&self) -> bool {
        false
    }

    /// Whether a barrier waits in any case until the operator [holds](Operator::holds) no rows, since they
    /// cannot stand in a checkpoint. Constant.
    fn drains(&self) -> bool {
        false
    }

    /// Told once, before [`Operator::restore`]: which of how many shards this is.
    fn place(&mut self, _shard: usize, _shards: usize) {}

    /// When, in [`tidemill_block::clock::now_ns`] time, [`Operator::poll`] has something to do of which
    /// nobody will wake it: a time limit, another attempt.
    fn due(&self) -> Option<u64> {
        None
    }
}
