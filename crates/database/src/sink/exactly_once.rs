//! Rows that are appended and become visible with their checkpoint, once.
//!
//! Between two checkpoints, an *epoch*, rows go two ways: into a file ([`super::spool`]), and, if there are
//! many, straight into the table in a transaction that stays open. A checkpoint makes the file safe; its
//! commit adds the mark of the epoch to the transaction and commits it. After a crash the mark says whether
//! that happened, and if it did not the rows are loaded from the file. So the database loads at full speed
//! all the time, a row is written to it once, and nothing depends on what becomes of a transaction.
//!
//! Why not a table beside the target, from which a commit moves the rows: the database would write each row
//! twice. On paper, per row of 180 bytes with PostgreSQL: COPY 1.5 µs of the server and about 400 bytes of log
//! and table; the move costs about the same again, so bulk loading would run at half its speed. The file costs
//! 0.1 µs for the copy and 180 bytes of sequential writing. Why not PREPARE TRANSACTION: it is switched off as
//! PostgreSQL comes, and SQLite has none.
//!
//! The transaction is only the shorter way. When anything is wrong with it (a deadlock, a lost
//! connection, another writer that wants its turn) it is rolled back, and the commit loads the file.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use tidemill_block::Block;
use tidemill_connect::{Committable, ConnectError};

use super::arrivals::Arrivals;
use super::refused::Operation;
use super::slot::{Epoch, Open, Slot, State};
use super::spool::Spool;
use super::turn::Turn;
use super::{Lane, Shared, batch};
use crate::driver::{DbError, DbErrorKind};
use crate::session::pause;

/// Bytes of an epoch from which on a transaction is opened: fewer are loaded faster than a lock is noticed.
const OPEN_BYTES: usize = 8 << 20;
/// Bytes of rows kept in memory until the transaction can take them; more are read back from the file.
const WAITING_BYTES: usize = 32 << 20;
/// Bytes of an epoch that may gather in its file while the one before is being committed.
const AHEAD_BYTES: usize = 1 << 30;
/// Bytes of an epoch that gather in its file at any rate when there is no open transaction.
const UNPACED_BYTES: usize = 256 << 20;
/// The rate beyond that, bytes a second: about what databases load, so that the file does not outgrow its
/// commit.
const PACE: f64 = 64e6;
/// How long an open transaction waits for a lock: whoever has it may wait for the same checkpoint.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// How often who waits for a commit looks.
const LOOK: Duration = Duration::from_millis(5);

/// Names a writer in marks and files.
#[derive(Clone)]
pub(super) struct WriterId {
    /// Of all writers of one run of a sink.
    pub sink: String,
    /// Which of them.
    pub shard: i32,
}

/// The connection of a writer whose rows become visible with checkpoints.
pub(super) struct ExactlyOnce {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    id: WriterId,
    /// Where files go, and what their names begin with.
    directory: PathBuf,
    prefix: String,
    turn: Option<Turn>,
    cancelled: Arc<AtomicBool>,
    /// The writer's mark is in its table.
    introduced: bool,
    /// The number of this epoch.
    epoch: u64,
    /// The epoch before, while it may not be committed yet: until then the session is its.
    before: Option<u64>,
    spool: Option<Spool>,
    /// Bytes of rows of this epoch.
    bytes: usize,
    /// When they arrived.
    arrivals: Arrivals,
    /// Batches that the open transaction has.
    loaded: usize,
    /// Those that it does not have yet; not all of them if `from_file`.
    waiting: VecDeque<RecordBatch>,
    waiting_bytes: usize,
    from_file: bool,
    /// No transaction is opened for this epoch any more.
    by_file: bool,
}

impl ExactlyOnce {
    pub fn new(
        shared: Arc<Shared>,
        slot: Arc<Slot>,
        id: WriterId,
        (directory, prefix): (PathBuf, String),
        turn: Option<Turn>,
        cancelled: Arc<AtomicBool>,
    ) -> Self {
        ExactlyOnce {
            shared,
            slot,
            id,
            directory,
            prefix,
            turn,
            cancelled,
            introduced: false,
            epoch: 1,
            before: None,
            spool: None,
            bytes: 0,
            arrivals: Arrivals::default(),
            loaded: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            from_file: false,
            by_file: false,
        }
    }

    /// The name of this epoch's file.
    fn file(&self) -> String {
        format!("{}{}-{}-{}.arrow", self.prefix, self.id.sink, self.id.shard, self.epoch)
    }

    /// Whether the session still belongs to the epoch before.
    fn is_early(&mut self) -> bool {
        if self.before.is_some_and(|epoch| self.slot.has(epoch)) {
            self.before = None;
        }
        self.before.is_some()
    }

    /// Keeps rows for the open transaction, or leaves them to the file.
    fn keep(&mut self, rows: RecordBatch, bytes: usize) {
        if self.by_file || self.from_file {
            return;
        }
        if self.waiting_bytes + bytes > WAITING_BYTES {
            self.from_file = true;
            self.drop_waiting();
        } else {
            self.waiting_bytes += bytes;
            self.waiting.push_back(rows);
        }
    }

    fn drop_waiting(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Holds back a writer that runs ahead of the database. Only where what it waits for does not wait for it:
    /// a commit that is under way, or a moment.
    fn hold_back(&mut self, bytes: usize) {
        if self.by_file && self.bytes > UNPACED_BYTES {
            pause(Duration::from_secs_f64(bytes as f64 / PACE), &self.cancelled);
        }
        while self.bytes > AHEAD_BYTES && self.is_early() && self.slot.is_committing() && !self.cancelled.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
    }

    /// Gives the transaction up; the commit will load the file.
    fn give_up(&mut self, state: &mut State) {
        state.give_up();
        self.by_file = true;
        self.drop_waiting();
    }

    /// Brings the open transaction up to date.
    fn load(&mut self) -> Result<(), DbError> {
        let slot = self.slot.clone();
        let mut state = slot.lock();
        let state = &mut *state;
        let rolled_back = self.loaded > 0 && state.open.is_none();
        if rolled_back || self.turn.as_ref().is_some_and(|turn| !turn.alone()) {
            self.give_up(state);
            return Ok(());
        }
        let Err(error) = self.try_load(state) else { return Ok(()) };
        self.give_up(state);
        // Also one that was begun and came no further.
        state.session.roll_back();
        if error.kind == DbErrorKind::Connection {
            state.session.forget();
        }
        match error.kind {
            // The commit has the remedies.
            DbErrorKind::Connection | DbErrorKind::Retry | DbErrorKind::Data => Ok(()),
            DbErrorKind::Fatal => Err(state.session.named(error)),
        }
    }

    fn try_load(&mut self, state: &mut State) -> Result<(), DbError> {
        let State { session, open } = state;
        let limit = session.access().driver.dialect().limit_lock_waits(LOCK_WAIT);
        let connection = session.connection()?;
        if open.is_none() {
            connection.begin()?;
            if let Some(sql) = limit {
                connection.execute(&sql)?;
            }
        }
        let open = open.get_or_insert(Open { epoch: self.epoch, batches: 0 });
        if self.from_file {
            let Some(spool) = &mut self.spool else { return Ok(()) };
            for rows in spool.read_back(self.loaded)? {
                Operation::Append.run(connection, &self.shared.target, &rows?)?;
                self.loaded += 1;
            }
            self.from_file = false;
        }
        while let Some(rows) = self.waiting.pop_front() {
            Operation::Append.run(connection, &self.shared.target, &rows)?;
            self.loaded += 1;
        }
        self.waiting_bytes = 0;
        open.batches = self.loaded;
        Ok(())
    }
}

impl Lane for ExactlyOnce {
    fn write(&mut self, blocks: Vec<Block>) -> Result<(), ConnectError> {
        let rows = Block::concat_columns(&self.shared.target.schema, &blocks).map_err(DbError::from)?;
        let bytes = batch::bytes(&rows);
        if !self.introduced {
            self.slot.introduce(&self.id.sink, self.id.shard)?;
            self.introduced = true;
        }
        let spool = match &mut self.spool {
            Some(spool) => spool,
            None => {
                let path = self.directory.join(self.file());
                self.spool.insert(Spool::create(path, &self.shared.target.schema)?)
            }
        };
        spool.write(&rows)?;
        self.bytes += bytes;
        self.arrivals.add(&blocks);
        self.keep(rows, bytes);
        if !self.by_file && self.bytes >= OPEN_BYTES && !self.is_early() {
            self.load()?;
        }
        self.hold_back(bytes);
        Ok(())
    }

    fn prepare(&mut self) -> Result<Vec<Committable>, ConnectError> {
        let mut epoch = Epoch { sink: self.id.sink.clone(), shard: self.id.shard, epoch: self.epoch, rows: 0, file: None };
        if self.loaded > 0 && !self.by_file {
            // What is in the transaction now need not be loaded by the commit, which others wait for.
            self.load()?;
        }
        if let Some(spool) = self.spool.take() {
            epoch.rows = spool.rows;
            epoch.file = Some(self.file());
            spool.finish()?;
            self.slot.await_commit(self.epoch, std::mem::take(&mut self.arrivals));
            self.before = Some(self.epoch);
        }
        self.epoch += 1;
        self.bytes = 0;
        self.loaded = 0;
        self.drop_waiting();
        self.from_file = false;
        self.by_file = false;
        Ok(vec![serde_json::to_value(epoch).map_err(|e| ConnectError::new(format!("internal error: a checkpoint's epoch: {e}")))?])
    }
}
