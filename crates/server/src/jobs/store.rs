//! Jobs on disk: `<state_dir>/jobs/<name>/{job.sql, job.json, state/}`, and the lock that keeps a second
//! server out.
//!
//! Files are written whole beside their place, synced and renamed, so that a crash leaves the old one or
//! the new one. `job.json` is written last: a job without it was never acknowledged to anybody.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Spec;
use crate::log;

/// What `job.json` holds.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// The layout of this file.
    version: u32,
    #[serde(flatten)]
    spec: Spec,
}

/// The layout of `job.json`.
const VERSION: u32 = 1;

/// What the directory of a job that is being removed begins with; no job's name does.
const REMOVED: &str = ".removed-";

/// The directory of a server's jobs.
pub(super) struct Store {
    directory: PathBuf,
    /// Locked while we live.
    _lock: File,
}

impl Store {
    /// Takes the state directory, and makes it if it is not there.
    ///
    /// # Errors
    /// It cannot be made or written, or another server has it.
    pub fn open(state_dir: &Path) -> Result<Self, String> {
        let directory = state_dir.join("jobs");
        fs::create_dir_all(&directory).map_err(|e| format!("making the state directory '{}': {e}", state_dir.display()))?;
        let path = state_dir.join("lock");
        let wrong = |e: io::Error| format!("locking the state directory with '{}': {e}", path.display());
        let mut lock = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(wrong)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let _ = (&lock).take(20).read_to_string(&mut owner);
                return Err(format!(
                    "the state directory '{}' belongs to a server that runs (process {}); stop it, or give this one another --state-dir",
                    state_dir.display(),
                    owner.trim()
                ));
            }
            Err(TryLockError::Error(e)) => return Err(wrong(e)),
        }
        // For the message above; that it cannot be written is no reason to stop.
        let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        Ok(Store { directory, _lock: lock })
    }

    /// Where the job's checkpoints are.
    pub fn state_of(&self, name: &str) -> PathBuf {
        self.directory.join(name).join("state")
    }

    /// All jobs, by name. What is no job is left alone, and the log says so.
    ///
    /// # Errors
    /// The directory, or a job in it, cannot be read.
    pub fn load(&self) -> Result<Vec<(String, Spec)>, String> {
        let mut jobs = Vec::new();
        for name in names(&self.directory)? {
            let directory = self.directory.join(&name);
            if name.starts_with(REMOVED) {
                // A job whose removal was cut short.
                let _ = fs::remove_dir_all(&directory);
                continue;
            }
            if !directory.join("job.json").exists() {
                log(format_args!("'{}' has no job.json and is left alone", directory.display()));
                continue;
            }
            jobs.push((name, read(&directory)?));
        }
        Ok(jobs)
    }

    /// Writes the job's text and what is wanted of it.
    pub fn write(&self, name: &str, spec: &Spec) -> Result<(), String> {
        let directory = self.directory.join(name);
        let written = fs::create_dir_all(&directory).and_then(|()| {
            replace(&directory, "job.sql", spec.sql.as_bytes())?;
            self.write_wanted_to(&directory, spec)?;
            File::open(&self.directory)?.sync_all()
        });
        written.map_err(|e| format!("writing job '{name}' to '{}': {e}", directory.display()))
    }

    /// Writes what is wanted of the job, whose text stays.
    pub fn write_wanted(&self, name: &str, spec: &Spec) -> Result<(), String> {
        let directory = self.directory.join(name);
        self.write_wanted_to(&directory, spec).map_err(|e| format!("writing job '{name}' to '{}': {e}", directory.display()))
    }

    fn write_wanted_to(&self, directory: &Path, spec: &Spec) -> io::Result<()> {
        let json = serde_json::to_vec_pretty(&Stored { version: VERSION, spec: spec.clone() })?;
        replace(directory, "job.json", &json)
    }

    /// Removes the job and its checkpoints: at once under another name, then for good.
    pub fn remove(&self, name: &str) -> Result<(), String> {
        let directory = self.directory.join(name);
        let gone = self.directory.join(format!("{REMOVED}{name}"));
        let removed = match fs::remove_dir_all(&gone) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => fs::rename(&directory, &gone)
                .and_then(|()| File::open(&self.directory)?.sync_all())
                .and_then(|()| fs::remove_dir_all(&gone)),
        };
        removed.map_err(|e| format!("removing job '{name}' from '{}': {e}", directory.display()))
    }
}

/// The names of the jobs that a state directory holds; none if there is no such directory.
pub fn stored_names(state_dir: &Path) -> Vec<String> {
    let directory = state_dir.join("jobs");
    let names = names(&directory).unwrap_or_default();
    names.into_iter().filter(|n| !n.starts_with('.') && directory.join(n).join("job.json").exists()).collect()
}

fn names(directory: &Path) -> Result<Vec<String>, String> {
    let wrong = |e: io::Error| format!("reading the jobs in '{}': {e}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        if entry.path().is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn read(directory: &Path) -> Result<Spec, String> {
    let path = directory.join("job.json");
    let wrong = |e: &dyn std::fmt::Display| format!("reading the job in '{}': {e}; mend it, or move it elsewhere", directory.display());
    let json = fs::read(&path).map_err(|e| wrong(&e))?;
    let stored: Stored = serde_json::from_slice(&json).map_err(|e| wrong(&format!("job.json: {e}")))?;
    if stored.version != VERSION {
        return Err(wrong(&format!("job.json has version {}, this program knows {VERSION}", stored.version)));
    }
    let sql = fs::read_to_string(directory.join("job.sql")).map_err(|e| wrong(&format!("job.sql: {e}")))?;
    Ok(Spec { sql, ..stored.spec })
}

/// Puts a file in the place of another: afterwards one of the two is there, whole.
fn replace(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let beside = directory.join(format!(".{name}.new"));
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, directory.join(name))?;
    File::open(directory)?.sync_all()
}
