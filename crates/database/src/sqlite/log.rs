//! What becomes of the write-ahead log while a job writes.
//!
//! SQLite copies the log into the database in the commit that makes it longer than a thousand pages: whoever writes
//! rows waits for it, and the disk waits while rows are made. Here a thread with a connection of its own does it
//! ([`Checkpointer`]), and what a large transaction adds to the log goes to the disk while it is added ([`beside`]), so
//! that its commit has little left to wait for. Commits are as durable as they were: each makes the log safe.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{OpenFlags, ffi};

/// Pages of the log from which on a transaction waits until they are in the database, so that the log begins anew: half a
/// gigabyte of pages of 4 KiB.
const PAGES_MAX: u64 = 128 << 10;
/// Pages from which on it waits for the same if only so few are left to be copied: a longer log has more to be copied, and made safe, at
/// the time when it has to wait.
const PAGES_SHORT: u64 = 16 << 10;
const PAGES_LEFT: u64 = 2 << 10;
/// How long it waits at the most, so that a job that is being stopped is not kept; one transaction more is not much.
const ROOM_WAIT: Duration = Duration::from_secs(5);
/// Pages that are not in the database yet from which on there is a pass, as in SQLite: few small commits are not worth the
/// two files that it makes safe.
const PAGES_PASS: u64 = 1_000;
/// After a pass the thread rests for as long as it took, within these bounds: each pass makes two files safe ([`sync`]), which
/// commits would wait for. Of a log that is longer than a quarter of [`PAGES_MAX`] it does not rest.
const REST_MIN: Duration = Duration::from_millis(20);
const REST_MAX: Duration = Duration::from_millis(500);
/// How often a log is made safe while it is written.
const SYNC_EVERY: Duration = Duration::from_millis(30);

/// Copies the log into the database. Ends with its drop.
pub(super) struct Checkpointer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Commits so far, and those that the newest pass has found.
    commits: u64,
    seen: u64,
    /// Pages of the log after the newest commit, and how many of them were found to be in the database.
    pages: u64,
    copied: u64,
    /// A transaction waits for the next pass.
    awaited: bool,
    closed: bool,
    /// From so many pages on a transaction waits if few are left.
    long_from: u64,
    /// The thread does nothing any more.
    ended: bool,
    /// The database's file could not be made safe.
    failed: bool,
}

/// What a transaction finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There is room.
    There,
    /// The thread does nothing any more.
    Ended,
    /// The database's file could not be made safe.
    Failed,
}

impl State {
    /// Whether a pass is worth it.
    fn is_due(&self) -> bool {
        self.seen < self.commits && (self.awaited || self.left() >= PAGES_PASS)
    }

    /// Pages that are not in the database.
    fn left(&self) -> u64 {
        self.pages.saturating_sub(self.copied)
    }

    /// Whether a transaction had better wait until the log is in the database.
    fn is_long(&self) -> bool {
        self.seen < self.commits && (self.pages > PAGES_MAX || self.pages > self.long_from.max(PAGES_SHORT) && self.left() <= PAGES_LEFT)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checkpointer {
    /// For the database in a file; `None` if it cannot be: then commits do it, as they do in SQLite.
    pub fn start(path: &str, timeout: Duration) -> Option<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = rusqlite::Connection::open_with_flags(path, flags).ok()?;
        connection.busy_timeout(timeout).ok()?;
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name("tidemill-sqlite".into()).spawn(move || serve(&connection, &theirs)).ok()?;
        Some(Checkpointer { shared, thread: Some(thread) })
    }

    /// There is more in the log: after a commit, with what [`extent`] says.
    pub fn committed(&self, log: Option<(u64, u64)>) {
        let mut state = self.shared.lock();
        state.commits += 1;
        // One that began anew has fewer pages, of which none are copied. Where nobody knows, a pass finds out.
        let before = state.pages;
        (state.pages, state.copied) = log.unwrap_or((state.pages.max(state.copied + PAGES_PASS), state.copied));
        if state.pages < before {
            state.long_from = 0;
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Before a transaction: waits while the log is too long.
    pub fn make_room(&self) -> Room {
        let until = Instant::now() + ROOM_WAIT;
        let mut state = self.shared.lock();
        // After a pass the transaction begins it anew, unless somebody still reads in it.
        let long = state.is_long();
        while long && state.seen < state.commits && !state.ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state.awaited = true;
            self.shared.changed.notify_all();
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if long {
            // Where it does not begin anew, since somebody reads in it, not before it has grown by as much again.
            state.long_from = state.pages + PAGES_SHORT;
        }
        match *state {
            State { failed: true, .. } => Room::Failed,
            State { ended: true, .. } => Room::Ended,
            _ => Room::There,
        }
    }
}

impl Checkpointer {
    /// Ends the thread; whether the database's file is safe, as far as it goes.
    pub fn end(mut self) -> bool {
        self.join();
        !self.shared.lock().failed
    }

    fn join(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // With a last pass: another program that has the file open would find all of the log. What it cannot do is done
            // when the last connection is closed.
            let _ = thread.join();
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.join();
    }
}

/// Says that the thread has ended, in whatever way.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

/// Pages of the log of a connection's database, and how many of them are in the database; `None` if that cannot be told.
/// Takes no lock and copies nothing.
pub(super) fn extent(connection: &rusqlite::Connection) -> Option<(u64, u64)> {
    checkpoint(connection, "NOOP").ok().flatten()
}

/// The same after a checkpoint. `None` also where another one is at it.
fn checkpoint(connection: &rusqlite::Connection, mode: &str) -> rusqlite::Result<Option<(u64, u64)>> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        let (pages, copied) = (row.get::<_, i64>(1)?, row.get::<_, i64>(2)?);
        Ok(u64::try_from(pages).ok().zip(u64::try_from(copied).ok()))
    })
}

/// Makes the database's file safe. A checkpoint does so only if it has come to the end of the log, which it hardly does while rows are
/// written: the one that a transaction waits for would have all to do. By the file that SQLite has, since one of our own would end its
/// locks when it is closed. False if that failed.
fn sync(connection: &rusqlite::Connection) -> bool {
    let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
    let to: *mut *mut ffi::sqlite3_file = &raw mut file;
    // SAFETY: the connection is open, and asked for the file of its database, which it has until it is closed; a file without methods
    // is closed.
    unsafe {
        let found = ffi::sqlite3_file_control(connection.handle(), c"main".as_ptr(), ffi::SQLITE_FCNTL_FILE_POINTER, to.cast());
        if found != ffi::SQLITE_OK || file.is_null() {
            return false;
        }
        let methods = (*file).pMethods.as_ref();
        methods.and_then(|methods| methods.xSync).is_some_and(|sync| sync(file, ffi::SQLITE_SYNC_NORMAL) == ffi::SQLITE_OK)
    }
}

fn serve(connection: &rusqlite::Connection, shared: &Shared) {
    let _ends = Ends(shared);
    let mut rested = Instant::now();
    while let Some(commits) = next(shared, rested) {
        let begun = Instant::now();
        // It waits for nobody: what a reader still needs stays in the log, and where another is at it nothing is done.
        let Ok(log) = checkpoint(connection, "PASSIVE") else { return };
        if !sync(connection) {
            // The log must not begin anew, nor go with the last connection: what is in it may be nowhere else.
            let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            shared.lock().failed = true;
            return;
        }
        let mut state = shared.lock();
        (state.seen, state.awaited) = (commits, false);
        if let Some((_, copied)) = log {
            // How long it is by now is for the commits to say.
            state.copied = copied;
        }
        let pages = state.pages;
        drop(state);
        shared.changed.notify_all();
        rested = Instant::now();
        if pages < PAGES_MAX / 4 {
            rested += begun.elapsed().clamp(REST_MIN, REST_MAX);
        }
    }
}

/// The number of commits when there is a pass to be made, not before `rested` unless somebody waits; at the end for a last
/// one if there were commits since, then `None`.
fn next(shared: &Shared, rested: Instant) -> Option<u64> {
    let mut state = shared.lock();
    loop {
        if state.closed {
            return (state.seen < state.commits).then_some(state.commits);
        }
        let left = rested.saturating_duration_since(Instant::now());
        let due = state.is_due();
        if due && (state.awaited || left.is_zero()) {
            return Some(state.commits);
        }
        let patience = if due { left } else { Duration::from_secs(3600) };
        state = shared.changed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Does `work`, which writes to the file `log`, and makes what is there safe meanwhile.
pub(super) fn beside<T>(log: &Path, work: impl FnOnce() -> T) -> T {
    // Unlike the database's own file this one has no locks that would end when it is closed.
    let Ok(file) = File::open(log) else { return work() };
    std::thread::scope(|scope| {
        let (working, done) = channel::<()>();
        let sync = move || {
            while let Err(RecvTimeoutError::Timeout) = done.recv_timeout(SYNC_EVERY) {
                // The commit finds out what is wrong.
                if file.sync_data().is_err() {
                    return;
                }
            }
        };
        // Without a thread the commit has more to do.
        let _ = std::thread::Builder::new().name("tidemill-sqlite".into()).spawn_scoped(scope, sync);
        let result = work();
        drop(working);
        result
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn open(path: &Path) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(path).unwrap();
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0").unwrap();
        connection
    }

    fn size(path: &Path) -> u64 {
        std::fs::metadata(path).unwrap().len()
    }

    #[test]
    fn the_log_goes_into_the_database() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("t.db");
        let one = open(&path);
        one.execute_batch("CREATE TABLE t (b BLOB); INSERT INTO t VALUES (zeroblob(1000000))").unwrap();
        assert!(size(&path) < 100_000);
        let checkpointer = Checkpointer::start(path.to_str().unwrap(), Duration::from_secs(5)).unwrap();
        let (pages, copied) = extent(&one).unwrap();
        assert!((200..PAGES_PASS).contains(&pages) && copied == 0);
        // As if it were too long.
        checkpointer.committed(Some((PAGES_MAX + 1, 0)));
        assert_eq!(checkpointer.make_room(), Room::There);
        assert!(size(&path) > 1_000_000);
        assert_eq!(extent(&one), Some((pages, pages)));
        // Nothing was committed since: there is nothing to wait for.
        assert_eq!(checkpointer.make_room(), Room::There);
        // The next transaction has begun it anew.
        one.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        let log = extent(&one).unwrap();
        assert!(log.0 < 10 && log.1 == 0, "{log:?}");
        checkpointer.committed(Some(log));
        assert_eq!(checkpointer.shared.lock().pages, log.0);
        drop(checkpointer);
        drop(one);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no log is left");
    }

    /// Each commit had a pass of its own, which made two files safe; and what was left at the end was left to others.
    #[test]
    fn few_small_commits_wait_for_the_last_pass() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("t.db");
        let one = open(&path);
        one.execute_batch("CREATE TABLE t (b BLOB)").unwrap();
        let checkpointer = Checkpointer::start(path.to_str().unwrap(), Duration::from_secs(5)).unwrap();
        for _ in 0..3 {
            one.execute_batch("INSERT INTO t VALUES (zeroblob(100000))").unwrap();
            checkpointer.committed(extent(&one));
            assert!(checkpointer.make_room() == Room::There && !checkpointer.shared.lock().is_due());
        }
        std::thread::sleep(2 * REST_MIN);
        assert_eq!(checkpointer.shared.lock().seen, 0);
        drop(checkpointer);
        // This one still has the file open.
        let (pages, copied) = extent(&one).unwrap();
        assert!(copied == pages && size(&path) > 300_000);
    }

    #[test]
    fn a_pass_is_worth_a_thousand_pages() {
        let log = |pages, copied| State { commits: 1, pages, copied, ..State::default() };
        assert!(!log(999, 0).is_due() && log(1000, 0).is_due());
        assert!(!log(5000, 4500).is_due() && log(5500, 4500).is_due());
        // It began anew; a transaction waits; no commit since.
        assert!(!log(10, 4500).is_due() && State { awaited: true, ..log(10, 0) }.is_due() && !State { seen: 1, ..log(5000, 0) }.is_due());
    }

    #[test]
    fn a_log_is_long_when_little_is_left_of_it() {
        let log = |pages, copied| State { commits: 1, pages, copied, ..State::default() };
        assert!(!log(PAGES_SHORT, PAGES_SHORT).is_long() && log(PAGES_SHORT + 1, PAGES_SHORT).is_long());
        assert!(!log(PAGES_MAX, PAGES_SHORT).is_long() && log(PAGES_MAX + 1, 0).is_long());
        assert!(!State { seen: 1, ..log(PAGES_MAX + 1, 0) }.is_long());
        // It was waited for in vain.
        assert!(!State { long_from: PAGES_SHORT + 2, ..log(PAGES_SHORT + 1, PAGES_SHORT) }.is_long());
    }

    #[test]
    fn a_file_is_made_safe_beside_the_work() {
        let directory = TempDir::new().unwrap();
        let log = directory.path().join("log");
        assert_eq!(beside(&log, || 1), 1);
        std::fs::write(&log, "x").unwrap();
        assert!(beside(&log, || std::fs::write(&log, "xy").is_ok()));
    }
}
