//! A table written into a bucket: part files that are uploads until they are committed, recovery, and the lock that keeps
//! two jobs out of one directory. Encoding and rolling are in `writer`, uploads, marks and locks in the `store` crate.
//!
//! A part file goes up while it is written and is visible to nobody; a checkpoint keeps the ids of its parts, and the
//! commit completes it, which happens in one step and can be repeated. So every row appears exactly once, as with files that
//! are renamed. Uploads that were begun and that no checkpoint knows are found by the marks that stand for them below
//! `_tidemill/uploads/` and aborted at the next start: those of this job, and those that nobody can come back for (of jobs
//! without a state directory).
//!
//! Who writes holds the lock of the directory, or of the file where the table is one. A job with a state directory has a
//! name, kept in that directory, by which it knows its own lock and uploads again after a crash. All inserts of a job share
//! its lock, by this name or by that of the run.
//!
//! A copy ([`Bucket::of_copy`]) wants only the uploads: it holds the lock, and completes them all at once.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde::{Deserialize, Serialize};
use tidemill_store::{Lock, ObjectWriter, Pending, Store, StoreError, StoreOptions};

use crate::{Committable, ConnectError};

/// In a job's state directory: the file that holds its name.
const NAME_FILE: &str = "bucket-sinks/job";

/// The locks that this process holds, by what they are for: a client and an address.
static HELD: Mutex<Option<HashMap<(usize, String), Weak<Held>>>> = Mutex::new(None);

/// A finished part file, as the checkpoint keeps it.
#[derive(Serialize, Deserialize)]
struct Uploaded {
    upload: Pending,
}

/// A lock, shared by the sinks of a job that write to one place.
struct Held {
    lock: Lock,
    /// The job, or the run.
    who: String,
    /// Sinks that have asked for a number.
    sinks: AtomicUsize,
}

/// A copy, whose uploads are its own to complete.
struct Copying {
    owner: String,
    /// Where each upload is kept as a file, too.
    mirror: Option<PathBuf>,
}

/// A directory of a bucket, or one object in it, that a table is written to. Clones are the same.
#[derive(Clone)]
pub(super) struct Bucket {
    store: Store,
    /// Empty, or with a slash at the end.
    directory: String,
    /// The object's name in it, if the table is one file.
    single: Option<String>,
    state: Arc<State>,
    copy: Option<Arc<Copying>>,
}

#[derive(Default)]
struct State {
    /// The name of the job, if it outlives the run.
    job: Mutex<Option<String>>,
    held: Mutex<Option<(Arc<Held>, usize)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(e: StoreError) -> ConnectError {
    ConnectError::new(e.to_string())
}

/// The name of the job whose state lies in `directory`, made if it has none.
fn name_of_job(directory: &Path) -> io::Result<String> {
    let path = directory.join(NAME_FILE);
    match fs::read_to_string(&path) {
        Ok(name) if !name.trim().is_empty() => return Ok(name.trim().to_string()),
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let name = format!("{now:x}-{:x}", std::process::id());
    let fresh = path.with_extension("new");
    fs::write(&fresh, &name)?;
    fs::File::open(&fresh)?.sync_all()?;
    fs::rename(&fresh, &path)?;
    Ok(name)
}

impl Bucket {
    /// The place that `path` means: a directory, or, as a single file, an object.
    ///
    /// # Errors
    /// No path of a store that can be written to; options that make no sense.
    pub fn new(path: &str, single: bool, options: &StoreOptions) -> Result<Self, ConnectError> {
        let (store, key) = Store::of(path, options).map_err(failed)?;
        if path.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http")) {
            return Err(ConnectError::new(format!("'{path}' is a web page, which can only be read; write to 'gs://', 's3://' or 'az://'")));
        }
        let key = key.trim_start_matches('/').to_string();
        let (directory, single) = match (single, key.rfind('/')) {
            (false, _) if key.is_empty() || key.ends_with('/') => (key, None),
            (false, _) => (format!("{key}/"), None),
            (true, _) if key.is_empty() || key.ends_with('/') => {
                return Err(ConnectError::new(format!("'{path}' is no name of a file, which 'sink.single-file' needs")));
            }
            (true, slash) => {
                let (directory, name) = key.split_at(slash.map_or(0, |slash| slash + 1));
                (directory.to_string(), Some(name.to_string()))
            }
        };
        Ok(Bucket { store, directory, single, state: Arc::default(), copy: None })
    }

    /// The same place for a copy: uploads have this owner, no lock is taken and nothing is cleared up here. With `mirror`, a
    /// directory, what is uploaded is also written to files there, by the same names.
    pub fn of_copy(self, owner: &str, mirror: Option<PathBuf>) -> Self {
        Bucket { copy: Some(Arc::new(Copying { owner: owner.to_string(), mirror })), ..self }
    }

    /// What the table is, for messages.
    pub fn url(&self) -> String {
        self.store.url(&format!("{}{}", self.directory, self.single.as_deref().unwrap_or("")))
    }

    /// Notes the job's name. Where it cannot be had, the job is one without a name: its uploads may be aborted by others.
    pub fn keep_in(&self, directory: &Path) {
        *lock(&self.state.job) = name_of_job(directory).ok();
    }

    /// Takes the lock for `who`, or shares it; whether it was taken now.
    fn hold(&self, who: &str) -> Result<bool, ConnectError> {
        let mut own = lock(&self.state.held);
        if own.is_some() {
            return Ok(false);
        }
        let place = (self.store.client_id(), self.url());
        let mut all = lock(&HELD);
        let all = all.get_or_insert_default();
        all.retain(|_, held| held.strong_count() > 0);
        if let Some(held) = all.get(&place).and_then(Weak::upgrade) {
            if held.who != who {
                let why = "another job of this process is writing there; wait for it, or choose another path";
                return Err(ConnectError::new(format!("writing to '{}': {why}", place.1)));
            }
            let number = held.sinks.fetch_add(1, Ordering::Relaxed);
            *own = Some((held, number));
            return Ok(false);
        }
        let job = lock(&self.state.job).clone();
        let lock = match &self.single {
            Some(name) => self.store.lock_file(&format!("{}{name}", self.directory)),
            None => self.store.lock(&self.directory, job.as_deref()),
        };
        let held = Arc::new(Held { lock: lock.map_err(failed)?, who: who.to_string(), sinks: AtomicUsize::new(1) });
        all.insert(place, Arc::downgrade(&held));
        *own = Some((held, 0));
        Ok(true)
    }

    /// Prepares for writers of a run; what the names of their part files begin with.
    ///
    /// # Errors
    /// Somebody else writes there; the store refuses.
    pub fn stem(&self, prefix: &str, run_id: &str, shard: usize) -> Result<String, ConnectError> {
        if self.copy.is_some() {
            return Ok(format!("{prefix}-{run_id}-{shard}"));
        }
        let job = lock(&self.state.job).clone();
        let who = job.unwrap_or_else(|| run(run_id));
        if self.hold(&who)? {
            self.clear(&format!("{prefix}-"))?;
        }
        // The inserts of a job into one table number their files alike.
        Ok(match lock(&self.state.held).as_ref().map_or(0, |(_, number)| *number) {
            0 => format!("{prefix}-{run_id}-{shard}"),
            number => format!("{prefix}-{run_id}-{shard}.{number}"),
        })
    }

    /// Begins the part file `name`, relative to the directory; gives its address, too, for messages.
    ///
    /// # Errors
    /// The store refuses; the file of a copy's mirror cannot be made.
    pub fn create(&self, name: &str) -> Result<(Upload, PathBuf), ConnectError> {
        let owner = match &self.copy {
            Some(copy) => Some(copy.owner.clone()),
            None => lock(&self.state.job).clone(),
        };
        let mirror = self.copy.as_ref().and_then(|copy| copy.mirror.as_ref());
        let mirror = mirror.map(|directory| Mirror::create(directory, name)).transpose()?;
        let writer = self.store.writer_in(&self.directory, &format!("{}{name}", self.directory), owner.as_deref()).map_err(failed)?;
        let url = PathBuf::from(writer.url());
        Ok((Upload(Arc::new(Mutex::new(Some(Going { writer, mirror })))), url))
    }

    fn parse(&self, committables: &[Committable]) -> Result<Vec<Pending>, ConnectError> {
        let one = |c: &Committable| {
            Uploaded::deserialize(c).map(|uploaded| uploaded.upload).map_err(|e| {
                let why = format!("which is no upload: {e}; was the table's path another one?");
                ConnectError::new(format!("the checkpoint has {c} for '{}', {why}", self.url()))
            })
        };
        committables.iter().map(one).collect()
    }

    fn complete(&self, committables: &[Committable]) -> Result<(), ConnectError> {
        if committables.is_empty() {
            return Ok(());
        }
        let pending = self.parse(committables)?;
        if let Some((held, _)) = &*lock(&self.state.held) {
            held.lock.check().map_err(failed)?;
        }
        self.store.complete_all(pending).map_err(failed)
    }

    /// Makes part files visible.
    ///
    /// # Errors
    /// The lock was lost; the store refuses; a single file is there already.
    pub fn commit(&self, committables: &[Committable]) -> Result<(), ConnectError> {
        if let (Some(name), false) = (&self.single, committables.is_empty()) {
            match self.store.head(&format!("{}{name}", self.directory)) {
                Err(e) if e.kind() == tidemill_store::Kind::NotFound => {}
                Err(e) => return Err(failed(e)),
                Ok(_) => {
                    self.parse(committables)?.iter().try_for_each(|pending| self.store.abort(pending)).map_err(failed)?;
                    let why = "there is an object of that name already; write elsewhere, remove it, or use INSERT OVERWRITE";
                    return Err(ConnectError::new(format!("committing '{}': {why}", self.url())));
                }
            }
        }
        self.complete(committables)
    }

    /// Whether what is there can be replaced in one step: an object can, a directory cannot.
    pub fn replaces(&self) -> bool {
        self.single.is_some()
    }

    /// Puts the file in the place of the one that is there.
    ///
    /// # Errors
    /// As [`Bucket::commit`].
    pub fn replace(&self, committables: &[Committable]) -> Result<(), ConnectError> {
        assert!(self.replaces(), "asked before");
        self.complete(committables)
    }

    /// Commits what the checkpoint had prepared and aborts the job's other uploads. A job without a state directory has
    /// neither, and takes the lock when it begins to write.
    ///
    /// # Errors
    /// Somebody else writes there; an upload is gone; the store refuses.
    pub fn recover(&self, committables: &[Committable], prefix: &str) -> Result<(), ConnectError> {
        let job = lock(&self.state.job).clone();
        match job {
            Some(job) => {
                self.hold(&job)?;
                self.complete(committables)?;
                self.clear(&format!("{prefix}-"))
            }
            None => self.complete(committables),
        }
    }

    /// Aborts what a run has uploaded and not committed, where nothing goes on with it. What cannot be aborted is found by the next
    /// job that writes there.
    pub fn abandon(&self, prefix: &str, run_id: &str) {
        let held = lock(&self.state.held).clone();
        // Whoever has taken the lock may be uploading a single file of the same name.
        if held.is_some_and(|(held, _)| held.lock.renew().is_ok()) {
            // Why the job failed is more important than what is left.
            let _ = self.clear(&format!("{prefix}-{run_id}-"));
        }
    }

    /// Aborts uploads of this job, and those nobody will come back for, of part files whose names begin so.
    fn clear(&self, begin: &str) -> Result<(), ConnectError> {
        let job = lock(&self.state.job).clone();
        for found in self.store.unfinished(&self.directory).map_err(failed)? {
            let name = found.pending.key.rsplit('/').next().unwrap_or_default();
            let ours = match &self.single {
                Some(single) => found.pending.key == format!("{}{single}", self.directory),
                None => name.starts_with(begin),
            };
            if ours && (found.owner.is_none() || found.owner == job) {
                self.store.abort(&found.pending).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Gives the lock back, once all sinks of the job have.
    pub fn release(&self) {
        lock(&self.state.held).take();
    }
}

/// What the ids of a run's inserts have in common: when it began, and its process.
fn run(run_id: &str) -> String {
    run_id.split('-').take(2).collect::<Vec<_>>().join("-")
}

/// The upload that a prepared part file of a bucket is.
pub(super) fn upload_of(committable: &Committable) -> Option<Pending> {
    Uploaded::deserialize(committable).ok().map(|uploaded| uploaded.upload)
}

/// A file with the bytes of an upload.
struct Mirror {
    file: fs::File,
    path: PathBuf,
}

impl Mirror {
    fn create(directory: &Path, name: &str) -> Result<Self, ConnectError> {
        let path = directory.join(name);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::File::create(&path));
        let file = made.map_err(|e| ConnectError::io(format!("creating '{}'", path.display()), &e))?;
        Ok(Mirror { file, path })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes).map_err(|e| {
            let why = "what is uploaded is kept there until it has been compared; set TMPDIR to a place with more room, or do not compare";
            io::Error::new(e.kind(), format!("writing '{}': {e}; {why}", self.path.display()))
        })
    }
}

/// An upload under way.
struct Going {
    writer: ObjectWriter,
    mirror: Option<Mirror>,
}

/// A part file under way, shared by the encoder that writes it and the writer that closes it.
#[derive(Clone)]
pub(super) struct Upload(Arc<Mutex<Option<Going>>>);

impl Upload {
    /// Waits until all of it is up.
    ///
    /// # Errors
    /// A part could not be written.
    pub fn finish(&self) -> Result<Committable, ConnectError> {
        let going = lock(&self.0).take().expect("closed once");
        let upload = going.writer.upload().map_err(failed)?;
        serde_json::to_value(Uploaded { upload }).map_err(|e| ConnectError::new(format!("internal error: a finished upload: {e}")))
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *lock(&self.0) {
            Some(Going { writer, mirror }) => {
                let n = writer.write(bytes)?;
                mirror.as_mut().map_or(Ok(()), |mirror| mirror.write(&bytes[..n]))?;
                Ok(n)
            }
            None => Err(io::Error::other("internal error: a finished upload is written to")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
