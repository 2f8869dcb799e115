//! Where the thread of a connection and the commit of a checkpoint meet: the session, the transaction that
//! may be open in it, and up to which epoch rows are in the table.
//!
//! Committing an epoch is idempotent: its rows and its mark (a row of the table [`MARKS`]) become visible
//! in one transaction, and an epoch that is marked is passed over. The row of the mark is there before the
//! first rows are ([`Slot::introduce`]), so that who commits after a lost connection or a crash waits at it for
//! a transaction that the database may still be committing, and then sees what became of it. If the rows are in the open transaction
//! already, all but the last of them, committing takes as long as the database needs for its log; otherwise
//! they are loaded from their file.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use serde::{Deserialize, Serialize};
use tidemill_connect::ConnectError;

use super::Shared;
use super::arrivals::{Arrivals, Told};
use super::refused::Operation;
use super::spool;
use crate::driver::{Connection, DbError, DbErrorKind, Dialect};
use crate::session::Session;
use crate::types::{MARKS, marks};

/// How long a commit waits for another transaction of the same writer, which its server may not know to be dead;
/// then it is tried again.
const MARK_WAIT: Duration = Duration::from_secs(10);

/// What a checkpoint keeps of a writer's epoch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Epoch {
    /// The writers of one run of one sink.
    pub sink: String,
    /// Which of them.
    pub shard: i32,
    /// Counts its checkpoints.
    pub epoch: u64,
    /// Rows written since the checkpoint before.
    pub rows: u64,
    /// The file that has them, in the directory of the sink; none without rows.
    pub file: Option<String>,
}

/// See the module.
pub(super) struct Slot {
    state: Mutex<State>,
    /// The newest epoch whose rows are in the table.
    committed: AtomicU64,
    /// A commit is under way.
    committing: AtomicBool,
    /// Epochs that are to be committed, with when their rows arrived.
    awaited: Mutex<Vec<(u64, Arrivals)>>,
    told: Told,
}

pub(super) struct State {
    pub session: Session,
    pub open: Option<Open>,
}

/// A transaction that is open.
pub(super) struct Open {
    pub epoch: u64,
    /// Batches of the epoch's file that are in it.
    pub batches: usize,
}

impl State {
    /// Gives the open transaction up.
    pub fn give_up(&mut self) {
        if self.open.take().is_some() {
            self.session.roll_back();
        }
    }
}

impl Slot {
    /// `told` is told when rows are committed.
    pub fn new(session: Session, told: Told) -> Self {
        Slot {
            state: Mutex::new(State { session, open: None }),
            committed: AtomicU64::new(0),
            committing: AtomicBool::new(false),
            awaited: Mutex::default(),
            told,
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the rows of an epoch are in the table.
    pub fn has(&self, epoch: u64) -> bool {
        self.committed.load(Ordering::Acquire) >= epoch
    }

    /// An epoch whose commit will come, with when its rows arrived.
    pub fn await_commit(&self, epoch: u64, arrivals: Arrivals) {
        super::lock(&self.awaited).push((epoch, arrivals));
    }

    /// Whether a commit is under way, which will end of its own.
    pub fn is_committing(&self) -> bool {
        self.committing.load(Ordering::Acquire)
    }

    /// Puts the mark of a writer that has committed nothing into its table, if it is not there.
    ///
    /// # Errors
    /// Of the database.
    pub fn introduce(&self, sink: &str, shard: i32) -> Result<(), DbError> {
        let nothing = Epoch { sink: sink.into(), shard, epoch: 0, rows: 0, file: None };
        let mut state = self.lock();
        let dialect = state.session.access().driver.dialect();
        state.session.transaction(|connection| match marked(connection, dialect, &nothing)? {
            Some(_) => Ok(()),
            None => mark(connection, &nothing),
        })
    }

    /// Rolls an open transaction back, because somebody else wants to write.
    pub fn give_way(&self) {
        self.lock().give_up();
    }

    /// Makes the rows of an epoch visible, once.
    ///
    /// # Errors
    /// They could not be; the next start tries again.
    pub fn commit(&self, shared: &Shared, directory: &Path, epoch: &Epoch) -> Result<(), ConnectError> {
        self.committing.store(true, Ordering::Release);
        let result = self.try_commit(shared, directory, epoch);
        self.committing.store(false, Ordering::Release);
        if result.is_ok() {
            let done = |awaited: &mut (u64, Arrivals)| awaited.0 <= epoch.epoch;
            super::lock(&self.awaited).extract_if(.., done).for_each(|(_, arrivals)| self.told.tell(&arrivals));
        }
        result.map_err(ConnectError::from)
    }

    fn try_commit(&self, shared: &Shared, directory: &Path, epoch: &Epoch) -> Result<(), DbError> {
        let Some(file) = &epoch.file else { return Ok(()) };
        let path = directory.join(file);
        let mut state = self.lock();
        if !self.has(epoch.epoch) {
            let state = &mut *state;
            if !finish_open(state, shared, &path, epoch) {
                load(&mut state.session, shared, &path, epoch)?;
            }
            self.committed.store(epoch.epoch, Ordering::Release);
        }
        drop(state);
        // One that cannot be removed costs space, until the next start removes it.
        let _ = std::fs::remove_file(&path);
        Ok(())
    }
}

/// Commits the open transaction if it is of this epoch; false if that did not work, for which `load` has
/// remedies.
fn finish_open(state: &mut State, shared: &Shared, path: &Path, epoch: &Epoch) -> bool {
    let Some(open) = state.open.take() else { return false };
    if open.epoch != epoch.epoch {
        state.session.roll_back();
        return false;
    }
    let committed = state.session.once(|connection| {
        for batch in spool::read(path)?.skip(open.batches) {
            Operation::Append.run(connection, &shared.target, &batch?)?;
        }
        mark(connection, epoch)?;
        connection.commit()
    });
    committed.is_ok()
}

/// Loads the rows of an epoch from their file, with their mark.
fn load(session: &mut Session, shared: &Shared, path: &Path, epoch: &Epoch) -> Result<(), DbError> {
    let dialect = session.access().driver.dialect();
    let mut careful = false;
    loop {
        let loaded = session.transaction(|connection| {
            if let Some(sql) = dialect.limit_lock_waits(MARK_WAIT) {
                connection.execute(&sql)?;
            }
            if marked(connection, dialect, epoch)?.is_some_and(|newest| newest >= epoch.epoch) {
                return Ok(0);
            }
            let mut refused = 0;
            for batch in spool::read(path)? {
                let batch = batch?;
                if careful {
                    refused += Operation::Append.carefully(connection, &shared.target, &batch, &shared.refusals)?;
                } else {
                    Operation::Append.run(connection, &shared.target, &batch)?;
                }
            }
            mark(connection, epoch)?;
            Ok(refused)
        });
        match loaded {
            Err(e) if e.kind == DbErrorKind::Data && !careful => careful = true,
            other => return other.map(|refused| shared.refusals.passed_over(refused)),
        }
    }
}

/// The newest epoch of this writer that is in the table; `None` if its mark is missing. Waits for a transaction
/// that is changing the mark, and keeps it until this one ends.
fn marked(connection: &mut dyn Connection, dialect: &dyn Dialect, epoch: &Epoch) -> Result<Option<u64>, DbError> {
    let quoted = |name| dialect.quote_column(name);
    let sql = format!(
        "SELECT {} FROM {}{} WHERE {} = {} AND {} = {}{}",
        quoted("epoch"),
        dialect.quote(MARKS),
        dialect.lock_hint(),
        quoted("sink"),
        dialect.placeholder(1),
        quoted("shard"),
        dialect.placeholder(2),
        dialect.lock_rows()
    );
    let asked: [(&str, ArrayRef); 2] =
        [("sink", Arc::new(StringArray::from(vec![epoch.sink.as_str()]))), ("shard", Arc::new(Int32Array::from(vec![epoch.shard])))];
    let schema = Arc::new(Schema::new(vec![Field::new("epoch", DataType::Int64, false)]));
    let mut newest = None;
    connection.query(&sql, Some(&RecordBatch::try_from_iter(asked)?), &schema, 1, &mut |rows| {
        let epochs = rows.column(0).as_primitive::<Int64Type>();
        newest = epochs.values().iter().map(|epoch| *epoch as u64).chain(newest).max();
        Ok(())
    })?;
    Ok(newest)
}

/// Notes in the open transaction that the rows of an epoch are in it.
fn mark(connection: &mut dyn Connection, epoch: &Epoch) -> Result<(), DbError> {
    let target = marks();
    let number = i64::try_from(epoch.epoch).map_err(|_| DbError::fatal("there were more checkpoints than can be counted"))?;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![epoch.sink.as_str()])),
        Arc::new(Int32Array::from(vec![epoch.shard])),
        Arc::new(Int64Array::from(vec![number])),
    ];
    let row = RecordBatch::try_new(target.schema.clone(), columns)?;
    connection.upsert(&target, &row).map_err(|e| e.at(format_args!("noting the checkpoint in the table {MARKS}")))
}

/// Removes the marks of runs that nobody will ask for again.
pub(super) fn forget(session: &mut Session, sinks: &[String]) -> Result<(), DbError> {
    let mut target = marks();
    target.key = vec![0];
    let schema = Arc::new(Schema::new(vec![Field::new("sink", DataType::Utf8, false)]));
    let mut sinks = sinks.to_vec();
    sinks.sort();
    let keys = RecordBatch::try_new(schema, vec![Arc::new(StringArray::from(sinks))])?;
    session.transaction(|connection| connection.delete(&target, &keys))
}
