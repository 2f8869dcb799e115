//! A directory for files that are there for a while: what is uploaded, as long as it is still to be compared. Nobody can
//! read an upload before it is completed, and nobody shall see it before it is compared.
//!
//! `/tmp` is everybody's: what lies there under a name of ours may be a link of somebody else to files that are not his to remove.
//! So what killed copies have left is cleaned only where it is a directory of this user, and through that directory, not through
//! its name.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
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
                remove_abandoned(temporary, lock.metadata().map_err(failed)?.uid());
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

/// Opens what has this name, and not what a link leads to; `None` if it is not this user's.
fn open_own(path: &Path, user: u32, flags: i32) -> Option<File> {
    // A pipe would be waited for.
    let flags = flags | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().is_ok_and(|meta| meta.uid() == user).then_some(file)
}

/// The name by which an open directory is reached, whatever happens to the one that it was opened by.
fn name_of(directory: &File, path: &Path) -> PathBuf {
    let name = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    // Where there is no such thing, names in a directory of this user's are changed by this user only.
    if name.exists() { name } else { path.to_path_buf() }
}

/// Removes the directories whose processes are gone: nobody holds their locks. Those of other users stay.
fn remove_abandoned(temporary: &Path, user: u32) {
    let Ok(entries) = fs::read_dir(temporary) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            continue;
        }
        let path = entry.path();
        let Some(directory) = open_own(&path, user, libc::O_DIRECTORY) else { continue };
        let inside = name_of(&directory, &path);
        if let Some(lock) = open_own(&inside.join("LOCK"), user, 0)
            && lock.try_lock().is_ok()
        {
            // The lock goes last: what remains of a removal that was cut off is found again. Of a link only the link is removed.
            let _ = fs::remove_dir_all(inside.join("files"));
            let _ = fs::remove_file(inside.join("LOCK"));
            let _ = fs::remove_dir(&path);
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

    /// A directory as a killed copy leaves it.
    fn left_behind(directory: &Path) -> PathBuf {
        fs::create_dir_all(directory.join("files")).unwrap();
        fs::write(directory.join("LOCK"), "").unwrap();
        fs::write(directory.join("files/x"), "x").unwrap();
        directory.to_path_buf()
    }

    /// Somebody put a link with such a name into `/tmp`, and the next copy of another user emptied the directory behind it.
    #[test]
    fn links_and_what_others_own_stay() {
        let temporary = std::env::temp_dir().join(format!("tidemill-mirror-links-{}", std::process::id()));
        fs::create_dir_all(&temporary).unwrap();
        let at = |name: &str| temporary.join(format!("{PREFIX}{name}"));
        let victim = left_behind(&temporary.join("victim"));
        std::os::unix::fs::symlink(&victim, at("link")).unwrap();
        // Within a directory of this user's: the link is removed, and not what it leads to.
        let (inner, locked) = (at("inner"), at("locked"));
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("LOCK"), "").unwrap();
        std::os::unix::fs::symlink(victim.join("files"), inner.join("files")).unwrap();
        // The lock is a link.
        fs::create_dir_all(locked.join("files")).unwrap();
        std::os::unix::fs::symlink(victim.join("LOCK"), locked.join("LOCK")).unwrap();
        let others = left_behind(&at("others"));
        let user = fs::metadata(&others).unwrap().uid();
        // Only root can give something away.
        let given = std::os::unix::fs::chown(&others, Some(user + 1), None).is_ok();
        drop(Mirror::below(&temporary).unwrap());
        assert!(victim.join("files/x").exists() && fs::symlink_metadata(at("link")).is_ok());
        assert!(!inner.exists() && locked.join("files").exists());
        assert_eq!(others.join("files/x").exists(), given);
        remove_abandoned(&temporary, user + 1);
        assert!(victim.join("files/x").exists() && locked.exists());
        fs::remove_dir_all(&temporary).unwrap();
    }
}
