//! Pages on their way into the write-ahead log, many of them in one call to the system.
//!
//! SQLite hands a page of the log over in two calls, one of 24 bytes that say what follows and one of the page: of a large
//! transaction they took a third of the writer's time. Files that are opened through the VFS of this module ([`vfs`]) gather such
//! frames as long as each follows the one before. All else stays the default VFS's: only some methods of the two files are ours.
//!
//! Why nothing is lost or seen too early:
//! - The frame that commits, and with it all before it, goes to the system before SQLite hears that it was written. So what
//!   SQLite then makes safe, and what it lets other connections read, is in the file.
//! - Only who holds the writers' lock gathers, and what is gathered then is forgotten when the lock is let go ([`lock`]): it
//!   belongs to a transaction that has not committed, and would overwrite what another writer puts there.
//! - Who reads, makes safe, measures or cuts the log finds in it what was gathered.
//! - A frame that could not be written fails the call that finds out, and all others until the lock is let go: SQLite has been told
//!   that it was written, and must not commit.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use rusqlite::ffi::{self, sqlite3_file, sqlite3_io_methods, sqlite3_vfs};

/// Calls a method of the default VFS; it has all that it had when the file was opened.
macro_rules! real {
    ($methods:expr, $name:ident($($argument:expr),*)) => {
        match (*(*$methods).real).$name {
            Some(method) => method($($argument),*),
            None => ffi::SQLITE_IOERR,
        }
    };
}

mod frames;

use frames::Log;

/// The version of [`sqlite3_io_methods`] as it is here; an older one is shorter.
const METHODS_VERSION: c_int = 3;
/// The lock of who writes to the log.
const WRITERS_LOCK: c_int = 0;

const NAME: &CStr = c"tidemill-gather";

/// The default VFS, for ever in its place.
struct System(*mut sqlite3_vfs);

// SAFETY: SQLite uses it from all threads, too.
unsafe impl Send for System {}
// SAFETY: as above.
unsafe impl Sync for System {}

static SYSTEM: OnceLock<Option<System>> = OnceLock::new();

/// The name of the VFS; `None` if SQLite could not take it.
pub(super) fn vfs() -> Option<&'static CStr> {
    let default = SYSTEM.get_or_init(|| {
        // SAFETY: the default VFS is never taken away. What is registered stays, too.
        unsafe {
            let default = ffi::sqlite3_vfs_find(null());
            if default.is_null() || (*default).xOpen.is_none() {
                return None;
            }
            let ours = Box::leak(Box::new(sqlite3_vfs { zName: NAME.as_ptr(), pNext: null_mut(), xOpen: Some(open), ..*default }));
            (ffi::sqlite3_vfs_register(ours, 0) == ffi::SQLITE_OK).then_some(System(default))
        }
    });
    default.is_some().then_some(NAME)
}

/// The methods of a database's file, of which SQLite knows the first field only.
#[repr(C)]
struct Database {
    ours: sqlite3_io_methods,
    real: *const sqlite3_io_methods,
    /// We hold the writers' lock.
    held: bool,
    /// Its log, while that is open.
    log: *mut Log,
}

/// Opens as the default VFS does, and puts our methods in place of some.
unsafe extern "C" fn open(_: *mut sqlite3_vfs, name: *const c_char, file: *mut sqlite3_file, flags: c_int, out: *mut c_int) -> c_int {
    let Some(Some(System(default))) = SYSTEM.get() else { return ffi::SQLITE_CANTOPEN };
    // SAFETY: the arguments are SQLite's, made for a VFS whose files are those of the default one.
    unsafe {
        let Some(real) = (**default).xOpen else { return ffi::SQLITE_CANTOPEN };
        let code = real(*default, name, file, flags, out);
        if code == ffi::SQLITE_OK && !(*file).pMethods.is_null() {
            if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
                watch(file);
            } else if flags & ffi::SQLITE_OPEN_WAL != 0 && !name.is_null() {
                gather(file, ffi::sqlite3_database_file_object(name));
            }
        }
        code
    }
}

/// Whether a file has all methods that we know of.
unsafe fn is_whole(file: *mut sqlite3_file) -> bool {
    // SAFETY: an open file has methods.
    unsafe { !file.is_null() && !(*file).pMethods.is_null() && (*(*file).pMethods).iVersion >= METHODS_VERSION }
}

/// Whether a database's file has the methods that a log needs; if so some of them are ours.
unsafe fn is_watched(file: *mut sqlite3_file) -> bool {
    // SAFETY: as above.
    unsafe { is_whole(file) && (*(*file).pMethods).xShmLock.is_some() }
}

/// Gives a database's file our methods.
unsafe fn watch(file: *mut sqlite3_file) {
    // SAFETY: the file was just opened; its methods are the default VFS's, which stay where they are.
    unsafe {
        if is_watched(file) {
            let real = (*file).pMethods;
            let ours = sqlite3_io_methods { xClose: Some(close_database), xShmLock: Some(lock), ..*real };
            (*file).pMethods = Box::into_raw(Box::new(Database { ours, real, held: false, log: null_mut() })).cast();
        }
    }
}

/// Gives the log of a `database` our methods.
unsafe fn gather(file: *mut sqlite3_file, database: *mut sqlite3_file) {
    // SAFETY: as in `watch`; a log is opened after its database's file, and closed before it.
    unsafe {
        if !is_watched(database) || !is_whole(file) {
            return;
        }
        // Else frames are followed by others that fill a sector, which commit, too.
        let of_disk = (*(*database).pMethods).xDeviceCharacteristics.map_or(0, |of| of(database));
        if of_disk & ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE == 0 {
            return;
        }
        let database = (*database).pMethods.cast_mut().cast::<Database>();
        let real = (*file).pMethods;
        (*database).log = Box::into_raw(Box::new(Log::new(real, database)));
        (*file).pMethods = (*database).log.cast();
    }
}

unsafe extern "C" fn close_database(file: *mut sqlite3_file) -> c_int {
    // SAFETY: as above.
    unsafe {
        let database = Box::from_raw((*file).pMethods.cast_mut().cast::<Database>());
        if !database.log.is_null() {
            (*database.log).leave();
        }
        real!(database, xClose(file))
    }
}

/// Takes and gives locks; when that of writers is given, the transaction is over.
unsafe extern "C" fn lock(file: *mut sqlite3_file, first: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: SQLite gives a file of ours; its log is open as long as it is known.
    unsafe {
        let database = (*file).pMethods.cast_mut().cast::<Database>();
        let (writers, goes) = (first == WRITERS_LOCK, flags & ffi::SQLITE_SHM_UNLOCK != 0);
        if writers && goes {
            (*database).held = false;
            if !(*database).log.is_null() {
                (*(*database).log).forget();
            }
        }
        let code = real!(database, xShmLock(file, first, count, flags));
        if writers && !goes && code == ffi::SQLITE_OK {
            (*database).held = true;
        }
        code
    }
}

#[cfg(test)]
mod tests;
