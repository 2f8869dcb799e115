//! Two writers of one file, and which calls become of the frames that are written.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use super::frames::{COMMITS, FRAME_HEADER_BYTES, GATHERED_BYTES_MAX, close_log, read, sync, write};
use super::*;

fn plain(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0").unwrap();
    connection
}

/// With so few pages in memory that transactions write to the log before they commit.
fn gathering(path: &Path) -> Connection {
    let connection = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs().unwrap()).unwrap();
    connection
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = 12; PRAGMA cache_spill = 1")
        .unwrap();
    connection.execute_batch("SELECT count(*) FROM sqlite_schema").unwrap();
    // SAFETY: the connection is open, and so is its log since something was read.
    unsafe {
        let mut log: *mut sqlite3_file = null_mut();
        ffi::sqlite3_file_control(connection.handle(), c"main".as_ptr(), ffi::SQLITE_FCNTL_JOURNAL_POINTER, (&raw mut log).cast());
        let ours: unsafe extern "C" fn(_, _, _, _) -> _ = write;
        assert!((*(*log).pMethods).xWrite.is_some_and(|method| std::ptr::fn_addr_eq(method, ours)), "the log's methods are ours");
    }
    connection
}

fn rows(connection: &Connection) -> Vec<(i64, i64)> {
    let mut statement = connection.prepare("SELECT id, n FROM t ORDER BY id").unwrap();
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
}

/// What a generator gives; the same in each run.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Some updates of rows that lie all over the table, noted in `expect`.
fn change(connection: &Connection, expect: &mut [(i64, i64)], state: &mut u64) {
    let mut statement = connection.prepare("UPDATE t SET n = ?2, s = hex(randomblob(100)) WHERE id = ?1").unwrap();
    for _ in 0..1 + random(state) % 200 {
        let (at, n) = (random(state) as usize % expect.len(), random(state) as i64);
        statement.execute([at as i64, n]).unwrap();
        expect[at].1 = n;
    }
}

/// Two writers in turn, one of which gathers, with transactions that are rolled back in part or whole after they have written to
/// the log: what each finds is what was committed, and so is what a third finds that recovers the log.
#[test]
fn transactions_of_two_writers() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("t.db");
    let writers = [gathering(&path), plain(&path)];
    writers[0].execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, n BIGINT, s TEXT)").unwrap();
    writers[0]
        .execute_batch(
            "INSERT INTO t WITH RECURSIVE c(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM c WHERE id < 1999) \
             SELECT id, 0, hex(randomblob(100)) FROM c",
        )
        .unwrap();
    let mut expect: Vec<(i64, i64)> = (0..2000).map(|id| (id, 0)).collect();
    let mut state = 8;
    for round in 0..300 {
        let writer = &writers[usize::from(random(&mut state).is_multiple_of(3))];
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut after = expect.clone();
        change(writer, &mut after, &mut state);
        if random(&mut state).is_multiple_of(3) {
            writer.execute_batch("SAVEPOINT s").unwrap();
            change(writer, &mut after.clone(), &mut state);
            writer.execute_batch("ROLLBACK TO s; RELEASE s").unwrap();
            change(writer, &mut after, &mut state);
        }
        // To read is to write what was gathered.
        if random(&mut state).is_multiple_of(2) {
            assert_eq!(rows(writer), after, "round {round}: a writer sees what it wrote");
        }
        if random(&mut state).is_multiple_of(3) {
            writer.execute_batch("ROLLBACK").unwrap();
        } else {
            writer.execute_batch("COMMIT").unwrap();
            expect = after;
        }
        assert!(writers.iter().all(|w| rows(w) == expect), "round {round}");
        if round % 50 == 49 {
            // As a crash leaves them: the shared index is made anew from the log.
            let copy = directory.path().join(format!("copy-{round}.db"));
            std::fs::copy(&path, &copy).unwrap();
            std::fs::copy(directory.path().join("t.db-wal"), directory.path().join(format!("copy-{round}.db-wal"))).unwrap();
            let copy = plain(&copy);
            assert_eq!(rows(&copy), expect, "round {round}");
            let whole: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(whole, "ok");
            writers[round / 50 % 2].execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        }
    }
}

thread_local! {
    /// What a file's method was called for, and with which offset and length.
    static CALLS: RefCell<Vec<(&'static str, i64, usize)>> = const { RefCell::new(Vec::new()) };
    /// Writing fails.
    static FULL: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" fn noted_write(_: *mut sqlite3_file, _: *const c_void, amount: c_int, at: i64) -> c_int {
    if FULL.get() {
        return ffi::SQLITE_FULL;
    }
    CALLS.with_borrow_mut(|calls| calls.push(("write", at, amount as usize)));
    ffi::SQLITE_OK
}

unsafe extern "C" fn noted_read(_: *mut sqlite3_file, _: *mut c_void, amount: c_int, at: i64) -> c_int {
    CALLS.with_borrow_mut(|calls| calls.push(("read", at, amount as usize)));
    ffi::SQLITE_OK
}

unsafe extern "C" fn noted_sync(_: *mut sqlite3_file, _: c_int) -> c_int {
    CALLS.with_borrow_mut(|calls| calls.push(("sync", 0, 0)));
    ffi::SQLITE_OK
}

unsafe extern "C" fn locked(_: *mut sqlite3_file, _: c_int, _: c_int, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn safe_overwrite(_: *mut sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn closed(_: *mut sqlite3_file) -> c_int {
    ffi::SQLITE_OK
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: METHODS_VERSION,
    xClose: Some(closed),
    xRead: Some(noted_read),
    xWrite: Some(noted_write),
    xTruncate: None,
    xSync: Some(noted_sync),
    xFileSize: None,
    xLock: None,
    xUnlock: None,
    xCheckReservedLock: None,
    xFileControl: None,
    xSectorSize: None,
    xDeviceCharacteristics: Some(safe_overwrite),
    xShmMap: None,
    xShmLock: Some(locked),
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

const PAGE: usize = 4096;
const FRAME: i64 = (FRAME_HEADER_BYTES + PAGE) as i64;

/// A database's file and its log, of methods that note what they are called for.
struct Files {
    database: Box<sqlite3_file>,
    log: Box<sqlite3_file>,
}

impl Files {
    fn new() -> Self {
        let file = || Box::new(sqlite3_file { pMethods: &raw const METHODS });
        let mut files = Files { database: file(), log: file() };
        // SAFETY: both have methods, and lie in their boxes until `drop`.
        unsafe {
            watch(&raw mut *files.database);
            gather(&raw mut *files.log, &raw mut *files.database);
        }
        files.lock(WRITERS_LOCK, ffi::SQLITE_SHM_LOCK);
        files
    }

    fn write(&mut self, bytes: &[u8], at: i64) -> c_int {
        // SAFETY: `bytes` is as long as it says.
        unsafe { write(&raw mut *self.log, bytes.as_ptr().cast(), bytes.len() as c_int, at) }
    }

    /// A frame in two calls, as SQLite writes it.
    fn frame(&mut self, number: i64, commits: bool) -> c_int {
        let (mut header, at) = ([7; FRAME_HEADER_BYTES], 32 + number * FRAME);
        header[COMMITS].copy_from_slice(&(u32::from(commits) << 16).to_be_bytes());
        let code = self.write(&header, at);
        if code == ffi::SQLITE_OK { self.write(&[1; PAGE], at + FRAME_HEADER_BYTES as i64) } else { code }
    }

    fn read(&mut self, at: i64) -> c_int {
        // SAFETY: the method that is called does not write there.
        unsafe { read(&raw mut *self.log, null_mut(), PAGE as c_int, at) }
    }

    fn sync(&mut self) -> c_int {
        // SAFETY: the file is open.
        unsafe { sync(&raw mut *self.log, 0) }
    }

    /// Takes or gives a lock.
    fn lock(&mut self, number: c_int, what: c_int) {
        // SAFETY: the file is open.
        unsafe { lock(&raw mut *self.database, number, 1, what | ffi::SQLITE_SHM_EXCLUSIVE) };
    }

    fn let_go(&mut self) {
        self.lock(WRITERS_LOCK, ffi::SQLITE_SHM_UNLOCK);
    }

    fn calls(&self) -> Vec<(&'static str, i64, usize)> {
        CALLS.take()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // SAFETY: both are open, and not used after this.
        unsafe {
            close_log(&raw mut *self.log);
            close_database(&raw mut *self.database);
        }
    }
}

#[test]
fn frames_go_out_together_and_before_who_needs_them() {
    let mut files = Files::new();
    for number in 0..40 {
        assert_eq!(files.frame(number, false), ffi::SQLITE_OK);
    }
    let whole = GATHERED_BYTES_MAX / FRAME as usize * FRAME as usize;
    let (header, page) = (FRAME_HEADER_BYTES, FRAME as usize - FRAME_HEADER_BYTES);
    let first = files.calls();
    assert!(matches!(first[..], [("write", 32, length)] if (whole..=GATHERED_BYTES_MAX).contains(&length)), "{first:?}");
    // What lies before is read without more ado, what was gathered only once it is written.
    files.read(32);
    files.read(32 + 39 * FRAME + header as i64);
    let end = 32 + first[0].2 as i64;
    let rest = (40 * FRAME + 32 - end) as usize;
    assert_eq!(files.calls(), [("read", 32, PAGE), ("write", end, rest), ("read", 32 + 39 * FRAME + header as i64, PAGE)]);
    // A commit is written when SQLite is told that it is.
    files.frame(40, false);
    files.frame(41, true);
    let at = 32 + 40 * FRAME;
    let commit = [("write", at, FRAME as usize), ("write", at + FRAME, header), ("write", at + FRAME + header as i64, page)];
    assert_eq!(files.calls(), commit);
    files.frame(42, false);
    files.sync();
    assert_eq!(files.calls(), [("write", 32 + 42 * FRAME, FRAME as usize), ("sync", 0, 0)]);
    // A page that is written once more goes behind its frame.
    files.frame(43, false);
    files.write(&[2; PAGE], 32 + 42 * FRAME + header as i64);
    assert_eq!(files.calls(), [("write", 32 + 43 * FRAME, FRAME as usize), ("write", 32 + 42 * FRAME + header as i64, PAGE)]);
}

#[test]
fn what_was_rolled_back_is_not_written() {
    let mut files = Files::new();
    files.frame(0, false);
    files.let_go();
    assert_eq!((files.sync(), files.read(32)), (ffi::SQLITE_OK, ffi::SQLITE_OK));
    assert_eq!(files.calls(), [("sync", 0, 0), ("read", 32, PAGE)]);
    // Locks of readers say nothing of the transaction.
    files.lock(WRITERS_LOCK, ffi::SQLITE_SHM_LOCK);
    files.frame(0, false);
    files.lock(WRITERS_LOCK + 3, ffi::SQLITE_SHM_LOCK);
    files.lock(WRITERS_LOCK + 3, ffi::SQLITE_SHM_UNLOCK);
    files.sync();
    assert_eq!(files.calls(), [("write", 32, FRAME as usize), ("sync", 0, 0)]);
}

/// There is no lock to be let go where a connection keeps the database for itself.
#[test]
fn nothing_is_gathered_without_the_lock() {
    let mut files = Files::new();
    files.let_go();
    files.frame(0, false);
    let (header, at) = (FRAME_HEADER_BYTES, 32 + FRAME_HEADER_BYTES as i64);
    assert_eq!(files.calls(), [("write", 32, header), ("write", at, PAGE)]);
}

#[test]
fn a_frame_that_was_lost_fails_all_that_follows() {
    let mut files = Files::new();
    assert_eq!(files.frame(0, false), ffi::SQLITE_OK);
    FULL.set(true);
    assert_eq!(files.sync(), ffi::SQLITE_FULL);
    FULL.set(false);
    assert_eq!((files.frame(1, false), files.frame(1, true)), (ffi::SQLITE_FULL, ffi::SQLITE_FULL));
    assert_eq!((files.read(32), files.sync()), (ffi::SQLITE_FULL, ffi::SQLITE_FULL));
    assert!(files.calls().is_empty());
    // What lies before it can be read.
    assert_eq!(files.read(32 - PAGE as i64), ffi::SQLITE_OK);
    // Until the transaction is over.
    files.let_go();
    assert_eq!((files.frame(0, true), files.sync()), (ffi::SQLITE_OK, ffi::SQLITE_OK));
}
