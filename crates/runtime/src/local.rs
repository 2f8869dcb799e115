//! Where state that does not fit in memory lies while a job runs: a directory that is gone when the job ends.
//!
//! With a state directory it is the folder `local` in it, so that checkpoints can link its files. Otherwise, or
//! where `state.local-dir` says so, it is a folder of its own there; what a killed process left behind is
//! removed by the next one that comes by.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidemill_connect::{Sink, Source};
use tidemill_state::checkpoint::CheckpointStore;

use crate::JobError;
use crate::settings::{Settings, StateBackend};

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

/// What a process holds beside state: the program's pages, queues, buffers of files. Measured, bytes.
const PROCESS_BYTES: f64 = (128 << 20) as f64;

/// The part of the limit that sources may fill with what they fetch ahead, all together.
const AHEAD: u64 = 16;

/// Tells sources how much they may fetch ahead, if memory is limited; how many bytes of it they may come to use.
pub(crate) fn limit_sources(settings: &Settings, sources: &[Arc<dyn Source>]) -> u64 {
    let Some(limit) = settings.memory else { return 0 };
    sources.iter().map(|source| source.limit_memory((limit.0 / AHEAD / sources.len() as u64).max(1))).sum()
}

/// The part of the limit that rows may take which sinks hold to write them together, all of them.
const HELD: u64 = 4;

/// Tells sinks how much they may hold, if memory is limited; how many bytes of it they may come to use with so many writers each.
pub(crate) fn limit_sinks(settings: &Settings, sinks: &[Arc<dyn Sink>], writers: usize) -> u64 {
    let Some(limit) = settings.memory else { return 0 };
    sinks.iter().map(|sink| sink.limit_memory((limit.0 / HELD / sinks.len() as u64).max(1), writers)).sum()
}

/// What each operator and shard that can keep state on disk may hold in memory, bytes: `operators` is how many
/// of these there are, `rows` what sources and sinks may hold. `None`: state stays in memory. Of a small limit
/// less than the share is left, since the process holds more than state.
pub(crate) fn memory_share(settings: &Settings, operators: usize, rows: u64) -> Option<usize> {
    let limit = settings.memory.filter(|_| settings.state_backend == StateBackend::Auto && operators > 0)?.0 as f64;
    let left = (limit * 0.8 - PROCESS_BYTES - rows as f64).max(limit / 16.0);
    Some((limit * settings.memory_share).min(left) as usize / operators)
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

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let map: BTreeMap<String, String> = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Settings::from_map(&map).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn shares_of_memory() {
        let share = |pairs: &[(&str, &str)], operators| memory_share(&settings(pairs), operators, 0);
        assert_eq!(share(&[], 2), None);
        assert_eq!(share(&[("memory.limit", "1gb")], 0), None);
        assert_eq!(share(&[("memory.limit", "1gb")], 2), Some(256 << 20));
        assert_eq!(share(&[("memory.limit", "1gb"), ("state.memory-share", "0.25")], 1), Some(256 << 20));
        assert_eq!(share(&[("memory.limit", "1gb"), ("state.backend", "memory")], 1), None);
        assert_eq!(share(&[("memory.limit", "320mb")], 1), Some(128 << 20));
        assert_eq!(share(&[("memory.limit", "160mb")], 1), Some(10 << 20));
        let beside = |bytes| memory_share(&settings(&[("memory.limit", "320mb")]), 1, bytes);
        assert_eq!((beside(20 << 20), beside(1 << 30)), (Some(108 << 20), Some(20 << 20)));
    }

    /// Gone with its owner; another run's stays, and one that a killed process left is removed.
    #[test]
    fn folders_come_and_go() {
        let base = std::env::temp_dir().join(format!("tidemill-local-{}", std::process::id()));
        let settings = settings(&[("state.local-dir", &base.display().to_string())]);
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
