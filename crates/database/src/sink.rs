//! Writing a table.
//!
//! A table with a primary key gets upserts and deletes, folded by key and written at once in transactions of
//! their own: what is replayed after a crash changes nothing, so the table is in the end what an undisturbed
//! run makes of it ([`at_once`]). Rows newer than the last checkpoint are visible before it. A table without
//! one gets rows appended: with a state directory each becomes visible with its checkpoint, once
//! ([`exactly_once`], [`slot`], [`spool`]), without one at least once.
//!
//! [`writer`] and [`mailbox`] bring rows to connections, [`batch`] folds and divides them, [`refused`] finds
//! those that the database does not take, [`turn`] is for databases with one writer at a time, [`arrivals`]
//! tells how old rows are when they are committed.

mod arrivals;
mod at_once;
mod batch;
mod exactly_once;
mod mailbox;
mod refused;
mod slot;
mod spool;
mod turn;
mod writer;

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use tidemill_block::Block;
use tidemill_connect::{Committable, ConnectError, Sink, SinkContext, Writer};

use self::arrivals::Told;
use self::at_once::{AtOnce, Beside};
pub(crate) use self::batch::{bytes, key_rows};
use self::exactly_once::{ExactlyOnce, WriterId};
use self::mailbox::Limits;
use self::refused::Refusals;
use self::slot::{Epoch, Slot};
use self::turn::Turn;
use self::writer::JdbcWriter;
use crate::driver::{DbError, Target};
use crate::options::{Guarantee, OnRefused, SinkOptions};
use crate::session::{Access, Session};
use crate::types::{MARKS, create_table, marks};

/// Bytes of a batch of appended rows: enough that what a transaction costs by itself does not show.
const APPEND_BYTES: usize = 32 << 20;
/// Bytes of a batch of upserts of all connections together: the more rows are sorted together, the fewer pages are
/// touched twice. Of ten million rows, 36 on a page, each of a batch of 350,000 costs 0.54 pages, each of a batch of
/// 1,300,000 costs 0.21.
const UPSERT_BYTES: usize = 256 << 20;
/// Bytes of a connection's batch of upserts that many connections do not make smaller.
const UPSERT_BYTES_MIN: usize = 64 << 20;
/// The same where memory is limited.
const LIMITED_BYTES_MIN: usize = 4 << 20;
/// Batches that are in memory at a time: one gathers, one is put in order, one is what comes of that.
const BATCHES: u64 = 3;
/// The directory within the state directory.
const DIRECTORY: &str = "sinks";

/// A connection's thread does this with what comes.
trait Lane: Send {
    /// Writes rows, one batch.
    fn write(&mut self, blocks: Vec<Block>) -> Result<(), ConnectError>;

    /// Makes what was written safe.
    fn prepare(&mut self) -> Result<Vec<Committable>, ConnectError>;
}

/// What all writers of a table have in common.
struct Shared {
    target: Target,
    refusals: Refusals,
}

/// A table that is written. See the module.
pub struct JdbcSink {
    owner: String,
    access: Access,
    options: SinkOptions,
    shared: Arc<Shared>,
    /// Names this sink among all of the process.
    number: u64,
    /// Where files of rows go; known if the job keeps checkpoints.
    directory: Mutex<Option<PathBuf>>,
    /// Bytes of memory for rows, where it is limited.
    memory: Mutex<Option<u64>>,
    /// The sessions of writers, for the commits of their epochs.
    slots: Mutex<HashMap<(String, i32), Arc<Slot>>>,
    /// Writers of earlier runs, whose marks can go when the next checkpoint is safe.
    stale: Mutex<Vec<String>>,
    /// The job was asked to stop: nobody waits for a database that is away for long any more.
    stopping: Arc<AtomicBool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of a batch of one of `lanes` connections, if the sink may have so much `memory`.
fn batch_bytes(appends: bool, memory: Option<u64>, lanes: usize) -> usize {
    let lanes = lanes.max(1);
    let most = if appends { APPEND_BYTES } else { (UPSERT_BYTES / lanes).max(UPSERT_BYTES_MIN) };
    memory.map_or(most, |bytes| most.min(usize::try_from(bytes / BATCHES).unwrap_or(usize::MAX) / lanes).max(LIMITED_BYTES_MIN))
}

/// A number for a text that is the same in every build (FNV-1a).
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl JdbcSink {
    /// A sink for a table; `owner` is its name in messages.
    ///
    /// # Errors
    /// Options that do not go together.
    pub fn new(owner: String, access: Access, target: Target, options: SinkOptions) -> Result<Self, ConnectError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        if options.connections > 1 && !access.driver.parallel_writers() {
            let name = access.driver.name();
            return Err(ConnectError::new(format!("{owner}: option 'sink.connections': {name} has one writer at a time; leave it out")));
        }
        let refusals = Refusals::new(owner.clone(), options.on_error, options.dead_letter.clone());
        Ok(JdbcSink {
            owner,
            access,
            options,
            shared: Arc::new(Shared { target, refusals }),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            directory: Mutex::new(None),
            memory: Mutex::new(None),
            slots: Mutex::default(),
            stale: Mutex::default(),
            stopping: Arc::default(),
        })
    }

    /// Whether rows become visible with their checkpoints.
    fn by_checkpoint(&self) -> Result<bool, ConnectError> {
        let keeps = lock(&self.directory).is_some();
        match self.options.guarantee {
            _ if !self.shared.target.key.is_empty() => Ok(false),
            Some(Guarantee::ExactlyOnce) if !keeps => Err(ConnectError::new(
                "'sink.delivery-guarantee' = 'exactly-once' needs a place for checkpoints; run the job with --state-dir",
            )),
            Some(Guarantee::AtLeastOnce) => Ok(false),
            Some(Guarantee::ExactlyOnce) | None => Ok(keeps),
        }
    }

    /// The directory for files of rows, and what the names of this table's begin with.
    fn files(&self) -> Result<(PathBuf, String), ConnectError> {
        let directory = lock(&self.directory).clone();
        let directory = directory.ok_or_else(|| {
            ConnectError::new("the checkpoint has rows for this table in files of its state directory; run the job with that --state-dir")
        })?;
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let name: String = self.owner.chars().map(plain).take(40).collect();
        Ok((directory, format!("{name}-{:016x}-", fingerprint(&self.owner))))
    }

    /// Bytes of a batch of one of so many connections.
    fn batch_bytes(&self, lanes: usize) -> usize {
        let ours = || batch_bytes(self.shared.target.key.is_empty(), *lock(&self.memory), lanes);
        self.options.max_bytes.map_or_else(ours, |bytes| bytes.0 as usize)
    }

    /// A turn at writing, where there is one writer at a time.
    fn turn(&self) -> Option<Turn> {
        let driver = &self.access.driver;
        (!driver.parallel_writers()).then(|| Turn::of(&driver.identity()))
    }

    fn session(&self, cancelled: Arc<AtomicBool>) -> Session {
        Session::new(self.access.clone(), cancelled).until(self.stopping.clone())
    }

    /// Whether rows must come to the table with their marks or not at all: also those that the checkpoint has in files, which are loaded
    /// once, unless the user asks for no more than at least once.
    fn needs_transactions(&self, by_checkpoint: bool, epochs: &[Epoch]) -> bool {
        let loads = self.options.guarantee != Some(Guarantee::AtLeastOnce) && epochs.iter().any(|epoch| epoch.file.is_some());
        by_checkpoint || loads
    }

    /// Sees to it that the tables are there and have the columns: `with_marks` also that of the checkpoints, and where rows must come
    /// `once`, that they can be taken back.
    fn prepare_tables(&self, session: &mut Session, with_marks: bool, once: bool) -> Result<(), DbError> {
        let dialect = self.access.driver.dialect();
        let target = &self.shared.target;
        let create = create_table(dialect, target)?;
        let engine = session.patiently(|connection| {
            if self.options.create_table {
                connection.execute(&create)?;
            }
            let Some(columns) = connection.table_columns(&target.table)? else {
                return Err(DbError::fatal(format!(
                    "there is no table '{}'; set 'sink.create-table' = 'true', or create it: {create}",
                    target.table
                )));
            };
            for field in target.schema.fields() {
                if !columns.iter().any(|(name, _)| name.eq_ignore_ascii_case(field.name())) {
                    let there: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
                    return Err(DbError::fatal(format!(
                        "the table '{}' has no column '{}'; it has {}",
                        target.table,
                        field.name(),
                        there.join(", ")
                    )));
                }
            }
            let engine = connection.without_transactions(&target.table)?;
            if let Some(engine) = &engine {
                self.check_engine(engine, once)?;
            }
            if with_marks {
                let (marks, sql) = (marks(), create_table(dialect, &marks())?);
                if connection.table_columns(&marks.table)?.is_none() {
                    connection.execute(&sql).map_err(|e| {
                        e.at(format_args!(
                            "creating the table in which checkpoints are noted (somebody with the right to can do so: {sql})"
                        ))
                    })?;
                }
            }
            Ok(engine)
        })?;
        if let Some(engine) = engine {
            tidemill_connect::notice(&format!(
                "{}: the table '{}' has the engine {engine}, which has no transactions: what a statement has written before it fails stays",
                self.owner, target.table
            ));
        }
        Ok(())
    }

    /// Refuses what cannot be had of a table whose engine has no transactions: its rows cannot be taken back.
    fn check_engine(&self, engine: &str, once: bool) -> Result<(), DbError> {
        let (wanted, instead) = match self.options.on_error {
            _ if once => (
                "exactly-once, as it is with a state directory,",
                "'sink.delivery-guarantee' = 'at-least-once' (also for rows that a checkpoint still has for the table)",
            ),
            OnRefused::Skip => ("'sink.on-error' = 'skip'", "'fail'"),
            OnRefused::DeadLetter => ("'sink.on-error' = 'dead-letter'", "'fail'"),
            OnRefused::Fail => return Ok(()),
        };
        let table = &self.shared.target.table;
        Err(DbError::fatal(format!(
            "the table '{table}' has the engine {engine}, which has no transactions, and {wanted} needs them: \
             ALTER TABLE {} ENGINE=InnoDB, or set {instead}",
            self.access.driver.dialect().quote(table)
        )))
    }

    fn epochs(&self, committables: &[Committable]) -> Result<Vec<Epoch>, ConnectError> {
        let epoch = |c: &Committable| {
            Epoch::deserialize(c)
                .map_err(|e| ConnectError::new(format!("the checkpoint has {c} for this table, which is no epoch of it: {e}")))
        };
        committables.iter().map(epoch).collect()
    }

    /// Commits epochs: those of one writer in turn, different writers' in parallel where the database can.
    fn commit_all(&self, epochs: &[Epoch]) -> Result<(), ConnectError> {
        let epochs: Vec<&Epoch> = epochs.iter().filter(|e| e.file.is_some()).collect();
        if epochs.is_empty() {
            return Ok(());
        }
        let (directory, _) = self.files()?;
        let commit = |epoch: &Epoch| {
            let known = lock(&self.slots).get(&(epoch.sink.clone(), epoch.shard)).cloned();
            let slot = known.unwrap_or_else(|| Arc::new(Slot::new(self.session(Arc::default()), Told::default())));
            slot.commit(&self.shared, &directory, epoch)
        };
        if let ([epoch], _) | ([epoch, ..], false) = (epochs.as_slice(), self.access.driver.parallel_writers()) {
            commit(epoch)?;
            return epochs[1..].iter().try_for_each(|epoch| commit(epoch));
        }
        let mut by_writer: HashMap<(&str, i32), Vec<&Epoch>> = HashMap::new();
        for epoch in epochs {
            by_writer.entry((epoch.sink.as_str(), epoch.shard)).or_default().push(epoch);
        }
        let commit = &commit;
        std::thread::scope(|scope| {
            let in_turn = |epochs: Vec<&Epoch>| epochs.into_iter().try_for_each(commit);
            let threads: Vec<_> = by_writer.into_values().map(|epochs| scope.spawn(move || in_turn(epochs))).collect();
            let mut result = Ok(());
            for thread in threads {
                let one =
                    thread.join().unwrap_or_else(|_| Err(ConnectError::new("internal error: a commit panicked; its message is above")));
                result = result.and(one);
            }
            result
        })
    }

    /// Removes what a run has left behind that came to nothing.
    fn remove_files(&self) -> Result<(), ConnectError> {
        let (directory, prefix) = self.files()?;
        let doing = || format!("removing files of rows that belong to no checkpoint from '{}'", directory.display());
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(ConnectError::io(doing(), &e)),
        };
        for entry in entries {
            let entry = entry.map_err(|e| ConnectError::io(doing(), &e))?;
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
                match fs::remove_file(entry.path()) {
                    Err(e) if e.kind() != ErrorKind::NotFound => return Err(ConnectError::io(doing(), &e)),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl Sink for JdbcSink {
    fn accepts_updates(&self) -> bool {
        !self.shared.target.key.is_empty()
    }

    fn wants_update_before(&self) -> bool {
        false
    }

    fn parallelism(&self) -> Option<usize> {
        if self.access.driver.parallel_writers() { None } else { Some(1) }
    }

    fn by_key(&self) -> bool {
        !self.shared.target.key.is_empty()
    }

    fn own_thread(&self) -> bool {
        true
    }

    fn limit_memory(&self, bytes: u64, writers: usize) -> u64 {
        *lock(&self.memory) = Some(bytes);
        let lanes = self.parallelism().unwrap_or(writers) * self.options.connections;
        (self.batch_bytes(lanes) as u64).saturating_mul(BATCHES * lanes as u64)
    }

    fn keep_in(&self, directory: &Path) {
        *lock(&self.directory) = Some(directory.join(DIRECTORY));
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        let by_checkpoint = self.by_checkpoint()?;
        let target = &self.shared.target;
        let appends = target.key.is_empty();
        let lanes_all = context.shards * self.options.connections;
        let limits = Limits {
            rows: self.options.max_rows,
            bytes: self.batch_bytes(lanes_all),
            interval: self.options.interval,
            gather: !appends,
            awaited: !appends && self.options.max_bytes.is_none() && lock(&self.directory).is_some(),
            row_group: self.access.driver.row_group().filter(|_| appends),
        };
        let mut lanes: Vec<Box<dyn Lane>> = Vec::new();
        let told = Told::default();
        for lane in 0..self.options.connections {
            let session = self.session(context.cancelled.clone());
            let turn = self.turn();
            if !by_checkpoint {
                let beside = if appends { 0 } else { (self.access.driver.parts_at_once() / lanes_all).saturating_sub(1) };
                let beside = Beside::new((0..beside).map(|_| self.session(context.cancelled.clone())).collect());
                lanes.push(Box::new(AtOnce::new(self.shared.clone(), session, beside, told.clone(), turn)));
                continue;
            }
            let (directory, prefix) = self.files()?;
            fs::create_dir_all(&directory).map_err(|e| ConnectError::io(format!("creating '{}'", directory.display()), &e))?;
            let shard = i32::try_from(context.shard * self.options.connections + lane)
                .map_err(|_| ConnectError::new("there are more writers than can be counted"))?;
            // A name for this sink and run, whatever other sinks of the job write to the same table.
            let sink = format!("{:016x}-{}-{}", fingerprint(&self.owner), context.run_id, self.number);
            let slot = Arc::new(Slot::new(session, told.clone()));
            if let Some(turn) = &turn {
                turn.add(&slot);
            }
            lock(&self.slots).insert((sink.clone(), shard), slot.clone());
            let id = WriterId { sink, shard };
            let cancelled = context.cancelled.clone();
            lanes.push(Box::new(ExactlyOnce::new(self.shared.clone(), slot, id, (directory, prefix), turn, cancelled)));
        }
        let place = (self.owner.as_str(), self.access.driver.in_process());
        Ok(Box::new(JdbcWriter::new(place, lanes, target.key.clone(), limits, told, context.cancelled)?))
    }

    fn commit(&self, committables: &[Committable]) -> Result<(), ConnectError> {
        self.commit_all(&self.epochs(committables)?)?;
        // The checkpoint that named those of earlier runs is no longer the newest.
        let stale = std::mem::take(&mut *lock(&self.stale));
        if stale.is_empty() {
            return Ok(());
        }
        // A transaction that is open for the next checkpoint would keep this one waiting, and that checkpoint with it.
        let _turn = self.turn();
        if let Err(e) = slot::forget(&mut self.session(Arc::default()), &stale) {
            // They take a little space and nothing more, so the next commit is early enough.
            tidemill_connect::notice(&format!("{}: removing marks of earlier runs from {MARKS}: {e}", self.owner));
            *lock(&self.stale) = stale;
        }
        Ok(())
    }

    fn stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn recover(&self, committables: &[Committable], _run_id: &str) -> Result<(), ConnectError> {
        let epochs = self.epochs(committables)?;
        let by_checkpoint = self.by_checkpoint()?;
        let _turn = self.turn();
        let once = self.needs_transactions(by_checkpoint, &epochs);
        // One connection at a time: it ends with this. Marks of epochs tell which of them are in the table, whatever is promised now.
        self.prepare_tables(&mut self.session(Arc::default()), by_checkpoint || !epochs.is_empty(), once)?;
        self.commit_all(&epochs)?;
        if lock(&self.directory).is_some() {
            self.remove_files()?;
        }
        let mut stale: Vec<String> = epochs.into_iter().map(|e| e.sink).collect();
        stale.sort();
        stale.dedup();
        *lock(&self.stale) = stale;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_what_memory_allows() {
        let mb = |appends, memory: Option<u64>, lanes| batch_bytes(appends, memory.map(|mb| mb << 20), lanes) >> 20;
        assert_eq!((mb(true, None, 1), mb(true, Some(48), 1), mb(true, Some(48), 4)), (32, 16, 4));
        assert_eq!((mb(false, None, 1), mb(false, None, 2), mb(false, None, 8)), (256, 128, 64));
        assert_eq!(
            (mb(false, Some(3 << 10), 1), mb(false, Some(240), 1), mb(false, Some(240), 4), mb(false, Some(3), 1)),
            (256, 80, 20, 4)
        );
    }
}
