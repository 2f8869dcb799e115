//! The directories that a sink makes on the way to its files. Where its job fails, those in which nothing lies are taken away
//! again: an empty directory would look like a table without rows.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Directories made so far; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Made(Arc<Mutex<Vec<PathBuf>>>);

impl Made {
    /// Makes a directory and those above it that are missing, and keeps in mind which were.
    ///
    /// # Errors
    /// As [`fs::create_dir_all`].
    pub fn create(&self, directory: &Path) -> io::Result<()> {
        let missing = directory
            .ancestors()
            .take_while(|at| !at.as_os_str().is_empty() && fs::symlink_metadata(at).is_err_and(|e| e.kind() == ErrorKind::NotFound));
        let missing: Vec<PathBuf> = missing.map(Path::to_path_buf).collect();
        // Of what cannot be made some may have been.
        let made = fs::create_dir_all(directory);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(missing);
        made
    }

    /// Removes those of them that are empty. What cannot be removed stays.
    pub fn remove_empty(&self) {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.sort_unstable();
        made.dedup();
        // What lies in a directory goes before it.
        made.reverse();
        made.retain(|directory| fs::remove_dir(directory).is_err_and(|e| e.kind() != ErrorKind::NotFound));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_or_has_something_in_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let made = Made::default();
        fs::create_dir(at("old")).unwrap();
        for name in ["old", "old/a/b", "new/a", "new/c", "new/a"] {
            made.create(&at(name)).unwrap();
        }
        fs::write(at("new/c/file"), "").unwrap();
        made.remove_empty();
        assert!(at("old").is_dir() && !at("old/a").exists() && !at("new/a").exists() && at("new/c").is_dir());
        fs::remove_file(at("new/c/file")).unwrap();
        made.remove_empty();
        assert!(!at("new").exists());
        fs::write(at("file"), "").unwrap();
        assert!(made.create(&at("file/below")).is_err());
        made.remove_empty();
        assert!(at("file").exists());
    }
}
