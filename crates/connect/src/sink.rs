//! The sink side: writers, and the two-phase commit that makes them exactly-once.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use tidemill_block::Block;

use crate::ConnectError;

/// Something a writer has prepared and that becomes visible when the sink commits it, as the sink
/// itself encodes it. Kept in the checkpoint.
pub type Committable = serde_json::Value;

/// Rows that arrived together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// When, as [`Block::arrival_ns`] has it.
    pub arrival_ns: u64,
    /// How many.
    pub rows: u64,
}

/// Is told of rows in the moment in which others can see them.
pub type Visible = Arc<dyn Fn(&[Arrived]) + Send + Sync>;

/// What a writer gets from whoever runs it.
#[derive(Clone, Debug)]
pub struct SinkContext {
    /// Which of the parallel writers this is, from 0.
    pub shard: usize,
    /// How many there are.
    pub shards: usize,
    /// The columns that will be written.
    pub schema: SchemaRef,
    /// Names this run of the job, so that what several runs leave behind can be told apart.
    pub run_id: String,
    /// Set when the job is being stopped: a writer that waits for a peer must give up then.
    pub cancelled: Arc<std::sync::atomic::AtomicBool>,
}

/// A table written.
///
/// The life of what is written: a [`Writer`] takes blocks; at a checkpoint it *prepares* (what was
/// written so far is safe, but not visible); when the checkpoint is safe everywhere the sink
/// *commits*. After a crash the job begins from the last checkpoint with [`Sink::recover`]. Sinks
/// that cannot do this (a socket) write at once and are at-least-once.
pub trait Sink: Send + Sync {
    /// Whether updates and deletes can be written; otherwise only inserts reach the writer.
    fn accepts_updates(&self) -> bool {
        false
    }

    /// Whether the sink wants the rows before an update (`-U`).
    fn wants_update_before(&self) -> bool {
        true
    }

    /// Told once, before anything below is asked, whether rows may be updated or deleted. Not told
    /// where all rows are inserts (in batch mode, and for records that cannot be read).
    fn expect_updates(&self, _updating: bool) {}

    /// Told before any writer is opened that the memory of the process is limited, and how many bytes of it the sink may
    /// hold of rows that wait to be written together, with so many writers or fewer. Gives how many it may come to use: state
    /// gets less for it. 0 if it holds no rows.
    fn limit_memory(&self, _bytes: u64, _writers: usize) -> u64 {
        0
    }

    /// Told once, before anything is recovered or written, where the job keeps what must survive a crash: a
    /// directory that lives as long as its checkpoints. Not told where nothing is kept, and in batch mode.
    fn keep_in(&self, _directory: &std::path::Path) {}

    /// How many writers may run in parallel; `None` for any number.
    fn parallelism(&self) -> Option<usize> {
        None
    }

    /// Whether all rows of a primary key must pass through the same writer, so that its newest row is the
    /// last one written.
    fn by_key(&self) -> bool {
        false
    }

    /// Whether its writers work enough (encoding, compressing, disks) to have a thread of their own,
    /// beside the operators'.
    fn own_thread(&self) -> bool {
        false
    }

    /// Whether writers are better served with many rows at once than with each small block.
    fn gathers(&self) -> bool {
        true
    }

    /// Opens a writer.
    ///
    /// # Errors
    /// What was opened or created and why it failed.
    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError>;

    /// Makes prepared things visible. Must be idempotent: after a crash it is called again.
    ///
    /// # Errors
    /// What could not be committed; the job stops, and the next start commits it.
    fn commit(&self, _committables: &[Committable]) -> Result<(), ConnectError> {
        Ok(())
    }

    /// Whether [`Sink::replace`] works.
    fn replaces(&self) -> bool {
        false
    }

    /// Makes prepared things visible in place of everything that the table holds (`INSERT
    /// OVERWRITE`). Readers see either the old or the new rows.
    ///
    /// # Errors
    /// The sink cannot do this; what could not be replaced: then the old rows are still there.
    fn replace(&self, _committables: &[Committable]) -> Result<(), ConnectError> {
        Err(ConnectError::new("this connector cannot replace what a table holds"))
    }

    /// Called once when the job was asked to stop, maybe from another thread while a writer writes. What
    /// was read before still comes, and the last checkpoint behind it: a writer that waits for a slow
    /// peer must not do so for much longer.
    fn stopping(&self) {}

    /// Called after the last commit of a job that has read all of its input: nothing will ever follow.
    /// Not called when a job is stopped or fails, since its next run goes on.
    fn finished(&self) {}

    /// Called where a job failed or was stopped that nothing will go on with (in batch mode, and where nothing is kept), when the
    /// writers of this run are gone: removes what they have made and nobody has committed, and nothing of others. What cannot be
    /// removed stays; the job has failed already.
    fn abandon(&self, _run_id: &str) {}

    /// Called once at the start before any writer is opened: commits what the restored checkpoint
    /// had prepared (nothing on a fresh start), and removes what later, lost work left behind.
    ///
    /// # Errors
    /// What could not be recovered.
    fn recover(&self, committables: &[Committable], _run_id: &str) -> Result<(), ConnectError> {
        self.commit(committables)
    }
}

/// What a writer has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Bytes written, after encoding and before compression.
    pub bytes: u64,
}

/// Writes the rows of one shard.
pub trait Writer: Send {
    /// Writes a block. May wait for a slow peer: that is back-pressure.
    ///
    /// # Errors
    /// What was being written, where, and why it failed.
    fn write(&mut self, block: &Block) -> Result<(), ConnectError>;

    /// Hands on what is buffered; called when no input is waiting, so that nobody waits for a
    /// buffer to fill.
    ///
    /// # Errors
    /// As [`Writer::write`].
    fn flush(&mut self) -> Result<(), ConnectError> {
        Ok(())
    }

    /// Asks the writer to tell when rows are visible to others, those of a checkpoint when its sink has
    /// committed it; called at most once, before anything is written. False if it does not tell: its rows count
    /// as written when [`Writer::write`] returns.
    fn tell_visible(&mut self, _visible: Visible) -> bool {
        false
    }

    /// Makes everything written so far safe and returns what is to be committed for it. With
    /// `last`, no more blocks follow.
    ///
    /// # Errors
    /// As [`Writer::write`].
    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError>;

    /// What was written so far.
    fn stats(&self) -> WriterStats;
}
