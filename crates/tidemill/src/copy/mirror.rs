//! A directory for files that are there for a while: what is uploaded, as long as it is still to be compared. Nobody can
//! read an upload before it is completed, and nobody shall see it before it is compared.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the names of such directories begin with.
const PREFIX: &str = "tidemill-copy-";

/// A directory of a copy's own below that for temporary files (`TMPDIR`), removed when dropped. Those that killed copies have left
/// are removed by the next one.
pub struct Mirror {
    directory: PathBuf,
    /// Locked as long as the process lives.
    _lock: File,
}

impl Mirror {
    /// A new one.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> Result<Self, String> {
        Self::below(&std::env::temp_dir())
    }

    fn below(temporary: &Path) -> Result<Self, String> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        remove_abandoned(temporary);
        loop {
            let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let directory = temporary.join(name);
            let failed = |e: std::io::Error| format!("creating the directory '{}': {e}; TMPDIR names another place", directory.display());
            // What is copied is nobody else's to read.
            match fs::DirBuilder::new().mode(0o700).create(&directory) {
                // Of a killed process of the same number, in another name space of processes.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
                other => other.map_err(failed)?,
            }
            let path = directory.join("LOCK");
            let lock = File::create(&path).map_err(failed)?;
            let locked = lock.try_lock().is_ok();
            if locked && is_at(&lock, &path) {
                return Ok(Mirror { directory, _lock: lock });
            }
            // Before it was locked, somebody took it for abandoned.
        }
    }

    /// Where the files lie.
    pub fn files(&self) -> PathBuf {
        self.directory.join("files")
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Whether an open file is the one that has this name.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// Removes the directories whose processes are gone: nobody holds their locks. Those of other users stay.
fn remove_abandoned(temporary: &Path) {
    let Ok(entries) = fs::read_dir(temporary) else { return };
    for entry in entries.flatten() {
        let named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let lock = named.then(|| File::open(entry.path().join("LOCK")));
        if let Some(Ok(lock)) = lock
            && lock.try_lock().is_ok()
        {
            // The lock goes last: what remains of a removal that was cut off is found again.
            let _ = fs::remove_dir_all(entry.path().join("files"));
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_killed_copies_are_removed() {
        let temporary = std::env::temp_dir().join(format!("tidemill-mirror-{}", std::process::id()));
        fs::create_dir_all(&temporary).unwrap();
        let one = Mirror::below(&temporary).unwrap();
        let left = temporary.join(format!("{PREFIX}0-0"));
        fs::create_dir_all(left.join("files")).unwrap();
        fs::write(left.join("LOCK"), "").unwrap();
        fs::write(left.join("files/x"), "x").unwrap();
        fs::create_dir_all(one.files()).unwrap();
        let two = Mirror::below(&temporary).unwrap();
        assert!(!left.exists(), "nobody holds its lock");
        assert!(one.files().exists(), "its copy is under way");
        drop((one, two));
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
        fs::remove_dir_all(&temporary).unwrap();
    }
}
