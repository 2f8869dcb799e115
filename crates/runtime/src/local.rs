//! Where state that does not fit in memory lies while a job runs: a directory that is gone when the job ends.
//!
//! With a state directory it is the folder `local` in it, so that checkpoints can link its files. Otherwise, or
//! where `state.local-dir` says so, it is a folder of its own there; what a killed process left behind is
//! removed by the next one that comes by.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidemill_state::checkpoint::CheckpointStore;

use crate::JobError;
use crate::settings::Settings;

/// With what the folders' names begin.
const PREFIX: &str = "tidemill-state-";
/// A folder whose lock is younger may be one that its owner is about to lock.
const STALE_AGE: Duration = Duration::from_secs(60);

/// The directory of a run.
pub(crate) struct LocalDir {
    path: PathBuf,
    /// Held while the folder is in use.
    _lock: Option<File>,
}

impl LocalDir {
    /// A directory for the run `run_id`, empty.
    ///
    /// # Errors
    /// A directory that cannot be made.
    pub fn new(settings: &Settings, store: Option<&CheckpointStore>, run_id: &str) -> Result<Self, JobError> {
        let base = match (&settings.local_dir, store) {
            (None, Some(store)) => {
                let path = store.local()?;
                make(&path)?;
                return Ok(LocalDir { path, _lock: None });
            }
            (Some(dir), store) => {
                // What a job that was killed left in the state directory, when state was there, goes all the same.
                store.map(CheckpointStore::local).transpose()?;
                PathBuf::from(dir)
            }
            (None, None) => std::env::temp_dir(),
        };
        make(&base)?;
        remove_stale(&base);
        let path = base.join(format!("{PREFIX}{run_id}"));
        make(&path)?;
        let lock = path.join("LOCK");
        let lock = File::create(&lock).and_then(|file| {
            file.try_lock().map_err(|e| std::io::Error::other(e.to_string()))?;
            Ok(file)
        });
        let lock = lock.map_err(|e| JobError::failed(format!("locking the directory '{}' for state on disk: {e}", path.display())))?;
        Ok(LocalDir { path, _lock: Some(lock) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LocalDir {
    fn drop(&mut self) {
        // What cannot be removed costs space until the next run comes by.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn make(path: &Path) -> Result<(), JobError> {
    fs::create_dir_all(path).map_err(|e| JobError::failed(format!("creating the directory '{}' for state on disk: {e}", path.display())))
}

/// Removes the folders of processes that are gone.
fn remove_stale(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for path in entries.filter_map(|e| Some(e.ok()?.path())) {
        let ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        let Some(lock) = ours.then(|| File::open(path.join("LOCK")).ok()).flatten() else { continue };
        let old = lock.metadata().and_then(|meta| meta.modified()).is_ok_and(|t| t.elapsed().is_ok_and(|age| age > STALE_AGE));
        if old && lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Gone with its owner; another run's stays, and one that a killed process left is removed.
    #[test]
    fn folders_come_and_go() {
        let base = std::env::temp_dir().join(format!("tidemill-local-{}", std::process::id()));
        let options = BTreeMap::from([("state.local-dir".to_string(), base.display().to_string())]);
        let settings = Settings::from_map(&options).unwrap_or_else(|e| panic!("{e}"));
        let one = LocalDir::new(&settings, None, "one").unwrap_or_else(|e| panic!("{e}"));
        fs::write(one.path().join("file"), "rows").unwrap();
        let left = base.join(format!("{PREFIX}left"));
        fs::create_dir(&left).unwrap();
        let lock = File::create(left.join("LOCK")).unwrap();
        let hours_ago = std::time::SystemTime::now() - 100 * STALE_AGE;
        lock.set_modified(hours_ago).unwrap();
        File::options().write(true).open(one.path().join("LOCK")).unwrap().set_modified(hours_ago).unwrap();
        drop(lock);
        let two = LocalDir::new(&settings, None, "two").unwrap_or_else(|e| panic!("{e}"));
        assert!(one.path().join("file").exists() && two.path().exists() && !left.exists());
        drop((one, two));
        assert!(fs::read_dir(&base).unwrap().next().is_none());
        fs::remove_dir_all(&base).unwrap();
    }
}
