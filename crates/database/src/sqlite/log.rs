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

use rusqlite::OpenFlags;

/// Pages of the log from which on a transaction waits until they are in the database, so that the log begins anew: half a
/// gigabyte of pages of 4 KiB.
const PAGES_MAX: u64 = 128 << 10;
/// After a pass the thread rests for as long as it took, within these bounds: each pass makes two files safe, which
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
    /// Pages of the log, as far as is known.
    pages: u64,
    /// A transaction waits for the next pass.
    awaited: bool,
    closed: bool,
    /// The thread does nothing any more.
    ended: bool,
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

    /// There is more in the log.
    pub fn committed(&self) {
        self.shared.lock().commits += 1;
        self.shared.changed.notify_all();
    }

    /// Before a transaction: waits while the log is too long. False if the thread does nothing any more.
    pub fn make_room(&self) -> bool {
        let mut state = self.shared.lock();
        if state.pages > PAGES_MAX {
            while state.seen < state.commits && !state.ended {
                state.awaited = true;
                self.shared.changed.notify_all();
                state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            // The transaction begins it anew, unless somebody still reads in it: the next pass tells.
            state.pages = 0;
        }
        !state.ended
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // What it could not do is done when the last connection is closed.
            let _ = thread.join();
        }
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

fn serve(connection: &rusqlite::Connection, shared: &Shared) {
    let _ends = Ends(shared);
    let mut rested = Instant::now();
    while let Some(commits) = next(shared, rested) {
        let begun = Instant::now();
        // It waits for nobody: what a reader still needs stays in the log, and where another is at it nothing is done.
        let pages = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(1));
        let Ok(pages) = pages.map(|pages| u64::try_from(pages).unwrap_or(0)) else { return };
        let mut state = shared.lock();
        (state.seen, state.pages, state.awaited) = (commits, pages, false);
        drop(state);
        shared.changed.notify_all();
        rested = Instant::now();
        if pages < PAGES_MAX / 4 {
            rested += begun.elapsed().clamp(REST_MIN, REST_MAX);
        }
    }
}

/// The number of commits when there are some to be seen, not before `rested` unless somebody waits; `None` at the end.
fn next(shared: &Shared, rested: Instant) -> Option<u64> {
    let mut state = shared.lock();
    loop {
        if state.closed {
            return None;
        }
        let left = rested.saturating_duration_since(Instant::now());
        let more = state.seen < state.commits;
        if more && (state.awaited || left.is_zero()) {
            return Some(state.commits);
        }
        let patience = if more { left } else { Duration::from_secs(3600) };
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

    #[test]
    fn the_log_goes_into_the_database() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("t.db");
        let one = open(&path);
        one.execute_batch("CREATE TABLE t (b BLOB); INSERT INTO t VALUES (zeroblob(1000000))").unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < 100_000);
        let checkpointer = Checkpointer::start(path.to_str().unwrap(), Duration::from_secs(5)).unwrap();
        checkpointer.committed();
        checkpointer.shared.lock().pages = PAGES_MAX + 1;
        assert!(checkpointer.make_room());
        assert!(std::fs::metadata(&path).unwrap().len() > 1_000_000);
        // Nothing was committed since: there is nothing to wait for.
        checkpointer.shared.lock().pages = PAGES_MAX + 1;
        assert!(checkpointer.make_room());
        drop(checkpointer);
        drop(one);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no log is left");
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
