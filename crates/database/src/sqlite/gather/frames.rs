//! The methods of a log: frames that follow each other are gathered, and written out before anybody needs them.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr::null_mut;

use rusqlite::ffi::{self, sqlite3_file, sqlite3_io_methods};

use super::Database;

/// What stands before each page of the log; the file's own header is longer.
pub(super) const FRAME_HEADER_BYTES: usize = 24;
/// Where in it the size of the database after the commit stands; 0 in a frame that does not commit.
pub(super) const COMMITS: Range<usize> = 4..8;
/// As much as the default VFS writes in one call; more than that it does not write at all.
pub(super) const GATHERED_BYTES_MAX: usize = 0x1ffff;

/// The methods of a log, of which SQLite knows the first field only, and what they share.
#[repr(C)]
pub(super) struct Log {
    ours: sqlite3_io_methods,
    real: *const sqlite3_io_methods,
    database: *mut Database,
    /// What is to be written at `at`.
    gathered: Vec<u8>,
    at: i64,
    /// Why something that was gathered is not in the file; the code for success otherwise.
    failed: c_int,
}

impl Log {
    /// With the methods of the file, of a database whose file has ours.
    pub unsafe fn new(real: *const sqlite3_io_methods, database: *mut Database) -> Self {
        let ours = sqlite3_io_methods {
            xClose: Some(close_log),
            xRead: Some(read),
            xWrite: Some(write),
            xTruncate: Some(truncate),
            xSync: Some(sync),
            xFileSize: Some(size),
            // SAFETY: they stay where they are.
            ..unsafe { *real }
        };
        Log { ours, real, database, gathered: Vec::new(), at: 0, failed: ffi::SQLITE_OK }
    }

    /// The database's file is closed.
    pub fn leave(&mut self) {
        self.database = null_mut();
    }

    /// What is behind the methods of a log's file.
    unsafe fn of<'a>(file: *mut sqlite3_file) -> &'a mut Log {
        // SAFETY: these methods are called for files that have them; a connection is used by one thread at a time.
        unsafe { &mut *(*file).pMethods.cast_mut().cast::<Log>() }
    }

    /// Whether what is gathered would be forgotten in time. In the mode in which a connection keeps the database for itself there are no
    /// such locks.
    fn is_held(&self) -> bool {
        // SAFETY: a database's file is known as long as it is open.
        !self.database.is_null() && unsafe { (*self.database).held }
    }

    fn end(&self) -> i64 {
        self.at + self.gathered.len() as i64
    }

    /// Writes what is gathered; `file` is the log's.
    unsafe fn write_out(&mut self, file: *mut sqlite3_file) -> c_int {
        if self.failed == ffi::SQLITE_OK && !self.gathered.is_empty() {
            // SAFETY: the default VFS's method and its file.
            self.failed = unsafe { real!(self, xWrite(file, self.gathered.as_ptr().cast(), self.gathered.len() as c_int, self.at)) };
            self.gathered.clear();
        }
        self.failed
    }

    /// Nothing that was gathered is written any more.
    pub fn forget(&mut self) {
        self.gathered.clear();
        self.failed = ffi::SQLITE_OK;
    }
}

pub(super) unsafe extern "C" fn write(file: *mut sqlite3_file, data: *const c_void, amount: c_int, at: i64) -> c_int {
    // SAFETY: SQLite gives so many bytes, and a file of ours.
    let (log, bytes) = unsafe { (Log::of(file), std::slice::from_raw_parts(data.cast::<u8>(), amount as usize)) };
    let header = bytes.len() == FRAME_HEADER_BYTES;
    let commits = header && bytes[COMMITS] != [0; 4];
    let follows = !log.gathered.is_empty() && at == log.end();
    // The page behind a header that commits follows nothing, and goes out at once.
    let gathers = log.is_held() && !commits && (header || follows);
    if !(gathers && follows && log.gathered.len() + bytes.len() <= GATHERED_BYTES_MAX) {
        // SAFETY: as above.
        let code = unsafe { log.write_out(file) };
        if code != ffi::SQLITE_OK {
            return code;
        }
    }
    if !gathers {
        // SAFETY: as above.
        return unsafe { real!(log, xWrite(file, data, amount, at)) };
    }
    if log.gathered.is_empty() {
        log.at = at;
    }
    log.gathered.extend_from_slice(bytes);
    log.failed
}

pub(super) unsafe extern "C" fn read(file: *mut sqlite3_file, to: *mut c_void, amount: c_int, at: i64) -> c_int {
    // SAFETY: SQLite gives a file of ours, and room for so many bytes.
    unsafe {
        let log = Log::of(file);
        // Also when something behind it was lost: who takes a transaction back reads pages anew.
        let lies_before = at + i64::from(amount) <= log.at;
        let code = if lies_before { ffi::SQLITE_OK } else { log.write_out(file) };
        if code == ffi::SQLITE_OK { real!(log, xRead(file, to, amount, at)) } else { code }
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite gives a file of ours.
    unsafe {
        let log = Log::of(file);
        let code = log.write_out(file);
        if code == ffi::SQLITE_OK { real!(log, xTruncate(file, size)) } else { code }
    }
}

pub(super) unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite gives a file of ours.
    unsafe {
        let log = Log::of(file);
        let code = log.write_out(file);
        if code == ffi::SQLITE_OK { real!(log, xSync(file, flags)) } else { code }
    }
}

unsafe extern "C" fn size(file: *mut sqlite3_file, bytes: *mut i64) -> c_int {
    // SAFETY: SQLite gives a file of ours, and where the answer goes.
    unsafe {
        let log = Log::of(file);
        let code = log.write_out(file);
        if code == ffi::SQLITE_OK { real!(log, xFileSize(file, bytes)) } else { code }
    }
}

pub(super) unsafe extern "C" fn close_log(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite gives a file of ours, which it does not use any more.
    unsafe {
        let log = Box::from_raw((*file).pMethods.cast_mut().cast::<Log>());
        if !log.database.is_null() {
            (*log.database).log = null_mut();
        }
        real!(log, xClose(file))
    }
}
