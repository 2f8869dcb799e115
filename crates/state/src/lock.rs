//! A directory that one process has to itself.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

/// The file that is locked.
const FILE: &str = "LOCK";

/// A directory's lock (`flock`), held until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

/// Why a directory could not be locked; the message is complete.
#[derive(Debug)]
pub struct LockError(String);

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LockError {}

impl DirLock {
    /// Locks a directory, which is made if it is not there, and notes in it who has it.
    ///
    /// # Errors
    /// Another process, which is named if it is known, has the lock; the directory cannot be written to.
    pub fn take(dir: &Path) -> Result<Self, LockError> {
        let failed = |doing: &str, path: &Path, why: &dyn fmt::Display| LockError(format!("{doing} '{}': {why}", path.display()));
        fs::create_dir_all(dir).map_err(|e| failed("creating the state directory", dir, &e))?;
        let path = dir.join(FILE);
        // Not truncated: as long as another holds the lock, it says who.
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(|e| failed("opening the lock of the state directory", &path, &e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Who it is is only said if it is known.
                let _ = file.read_to_string(&mut holder);
                let who = if holder.trim().is_empty() { String::new() } else { format!(" ({})", holder.trim()) };
                let why = format!("another process is using it{who}; stop that job, or give this one a --state-dir of its own");
                return Err(failed("locking the state directory", dir, &why));
            }
            Err(TryLockError::Error(e)) => return Err(failed("locking the state directory", dir, &e)),
        }
        let mut command: String = std::env::args().collect::<Vec<_>>().join(" ").replace(['\n', '\r'], " ");
        if let Some((end, _)) = command.char_indices().nth(200) {
            command.truncate(end);
        }
        let note = format!("process {}: {command}\n", std::process::id());
        let noted = file.set_len(0).and_then(|()| file.write_all(note.as_bytes()));
        noted.map_err(|e| failed("writing to the state directory", &path, &e))?;
        Ok(DirLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_it_and_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        let held = DirLock::take(&inner).unwrap();
        let error = DirLock::take(&inner).unwrap_err().to_string();
        let who = format!("another process is using it (process {}: ", std::process::id());
        assert!(error.contains(&who) && error.contains("a/b") && error.contains("--state-dir"), "{error}");
        drop(held);
        DirLock::take(&inner).unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = DirLock::take(&file).unwrap_err().to_string();
        assert!(error.contains("creating the state directory"), "{error}");
    }
}
