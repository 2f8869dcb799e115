//! What a copy to a disk remembers of itself while it is under way, in a directory beside its target: the finished parts,
//! and the manifest that says which those are (copies into buckets have the same one, see [`super::bucket`]). The target
//! appears when all is done, by one renaming, so that a copy that is killed leaves a target that is absent (or what was
//! there before), or whole.
//!
//! ```text
//! out/                          the target, at the end
//! .out.copying/                 while the copy is under way, and after it was killed
//!   LOCK                        locked by the process that copies
//!   manifest.json               which tasks there are, and what those that are done have written
//!   parts/                      what becomes the target, or holds the file that does
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tidemill_connect::filesystem::rename::{exchange, rename_new, sync_directory};
use tidemill_store::{Object, Pending, SIZE_UNKNOWN};

/// Raised when an older version could not read the manifest any more.
const VERSION: u32 = 1;

/// A file that is copied, as it was when it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The file, or a member of an archive.
    pub path: String,
    /// Its length, or its share of the archive's; 0 if it is not known (some web servers).
    pub bytes: u64,
    /// When it was changed last, ns since 1970; 0 if it is not known.
    pub modified_ns: i64,
    /// The version of an object (its ETag).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl Source {
    /// The file of a path.
    pub fn of(path: &str) -> Self {
        let local = path.strip_prefix("file://").unwrap_or(path);
        let outer = local.split_once("//").map_or(local, |(archive, _)| archive);
        match fs::metadata(local).or_else(|_| fs::metadata(outer)) {
            Ok(meta) => Source {
                path: path.to_string(),
                bytes: meta.len(),
                modified_ns: meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec()),
                version: None,
            },
            Err(_) => Source { path: path.to_string(), ..Source::default() },
        }
    }

    /// An object, or a member of it.
    pub fn of_object(path: &str, object: &Object) -> Self {
        Source {
            path: path.to_string(),
            bytes: if object.size == SIZE_UNKNOWN { 0 } else { object.size },
            modified_ns: object.modified_ms.saturating_mul(1_000_000),
            version: object.etag.clone(),
        }
    }
}

/// What a finished task has read and written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Rows.
    pub rows: u64,
    /// Their checksum, as [`super::checksum::Checksum::text`] gives it.
    pub checksum: String,
    /// Whether the parts were read again and compared.
    pub compared: bool,
    /// The files, relative to the directory of parts, with their lengths.
    pub outputs: Vec<(String, u64)>,
    /// In a bucket: the uploads that become those files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uploads: Vec<Pending>,
}

/// A part of the copy: some files in, some out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Unique within the copy; in the names of its parts.
    pub number: usize,
    /// What it reads.
    pub sources: Vec<Source>,
    /// What it has done, if it is done.
    pub done: Option<Done>,
}

/// The manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    version: u32,
    /// What is copied and how, as text: another command is another copy.
    pub what: String,
    /// Names the copy, and no other: in the names of objects and the marks of uploads.
    #[serde(default)]
    pub token: String,
    /// The tasks, in the order of their files.
    pub tasks: Vec<Task>,
    /// All is done, and this file or directory (device, inode) is put into the target's place; zeros in a bucket.
    pub moving: Option<(u64, u64)>,
}

impl Manifest {
    /// A manifest of tasks that are still to be done.
    pub fn new(what: String, sources: Vec<Vec<Source>>) -> Self {
        let tasks = sources.into_iter().enumerate().map(|(i, sources)| Task { number: i + 1, sources, done: None }).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
        // In the order of their beginnings; processes of one machine differ by their number.
        let token = format!("{now:x}-{:x}", std::process::id());
        Manifest { version: VERSION, what, token, tasks, moving: None }
    }

    /// The manifest that was kept in `place`.
    ///
    /// # Errors
    /// It is none, or that of another version.
    pub fn parse(text: &[u8], place: &str) -> Result<Self, String> {
        match serde_json::from_slice::<Manifest>(text) {
            Ok(manifest) if manifest.version == VERSION => Ok(manifest),
            Ok(_) => Err(format!("'{place}' is of another version of tidemill; --overwrite begins anew")),
            Err(e) => Err(format!("'{place}' is no manifest of a copy: {e}; --overwrite begins anew")),
        }
    }

    /// As [`Manifest::parse`] reads it.
    ///
    /// # Errors
    /// None that is known.
    pub fn text(&self, place: &str) -> Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|e| format!("writing '{place}': {e}"))
    }

    /// Takes over what an earlier run has done of the same tasks: those that read the same files, unchanged since.
    pub fn take_over(&mut self, earlier: &Manifest) {
        self.token.clone_from(&earlier.token);
        let mut next = earlier.tasks.iter().map(|t| t.number).max().unwrap_or(0) + 1;
        for task in &mut self.tasks {
            match earlier.tasks.iter().find(|known| known.sources == task.sources) {
                Some(known) => *task = known.clone(),
                None => {
                    task.number = next;
                    next += 1;
                }
            }
        }
    }

    /// How many tasks are done.
    pub fn done(&self) -> usize {
        self.tasks.iter().filter(|t| t.done.is_some()).count()
    }
}

/// The directory beside a target in which a copy to it takes place, locked.
#[derive(Debug)]
pub struct Staging {
    target: PathBuf,
    directory: PathBuf,
    _lock: File,
}

fn failed(doing: &str, path: &Path) -> impl FnOnce(std::io::Error) -> String {
    let doing = format!("{doing} '{}'", path.display());
    move |e| format!("{doing}: {e}")
}

impl Staging {
    /// Begins, or goes on with, a copy to a target.
    ///
    /// # Errors
    /// Another process is copying to it; the directory cannot be made.
    pub fn open(target: &Path) -> Result<Self, String> {
        let name = target.file_name().ok_or_else(|| format!("'{}' is no name of a file or directory", target.display()))?;
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let directory = parent.join(format!(".{}.copying", name.to_string_lossy()));
        let path = directory.join("LOCK");
        loop {
            fs::create_dir_all(&directory).map_err(failed("creating the directory", &directory))?;
            let lock = match OpenOptions::new().write(true).create(true).truncate(false).open(&path) {
                // Whoever had it finished in this moment, and took the directory away.
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                other => other.map_err(failed("opening", &path))?,
            };
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(format!("another process is copying to '{}'; wait for it, or copy elsewhere", target.display()));
                }
                Err(TryLockError::Error(e)) => return Err(failed("locking", &path)(e)),
            }
            let locked = lock.metadata().map_err(failed("looking at", &path))?;
            // The same, if the file was taken away between opening and locking it.
            if fs::metadata(&path).is_ok_and(|now| (now.dev(), now.ino()) == (locked.dev(), locked.ino())) {
                return Ok(Staging { target: target.to_path_buf(), directory, _lock: lock });
            }
        }
    }

    /// Where what becomes the target is written.
    pub fn parts(&self) -> PathBuf {
        self.directory.join("parts")
    }

    /// What an earlier run left, if it was killed.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load(&self) -> Result<Option<Manifest>, String> {
        let path = self.directory.join("manifest.json");
        let text = match fs::read(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed("reading", &path))?,
        };
        Manifest::parse(&text, &path.to_string_lossy()).map(Some)
    }

    /// Whether an earlier run had put everything into the target's place, and only did not come to tidy up.
    pub fn was_moved(&self, manifest: &Manifest) -> bool {
        let there = fs::metadata(&self.target).ok().map(|m| (m.dev(), m.ino()));
        manifest.moving.is_some() && manifest.moving == there
    }

    /// Writes the manifest: the old one is there until the new one is whole.
    ///
    /// # Errors
    /// The disk.
    pub fn save(&self, manifest: &Manifest) -> Result<(), String> {
        let (path, fresh) = (self.directory.join("manifest.json"), self.directory.join("manifest.json.new"));
        let text = manifest.text(&path.to_string_lossy())?;
        let write = || {
            let mut file = File::create(&fresh)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&fresh, &path)?;
            sync_directory(&self.directory)
        };
        write().map_err(failed("writing", &path))
    }

    /// Forgets what an earlier run did.
    ///
    /// # Errors
    /// The disk.
    pub fn clear(&self) -> Result<(), String> {
        let path = self.directory.join("manifest.json");
        for result in [fs::remove_file(&path), fs::remove_dir_all(self.parts())] {
            match result {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed("emptying", &self.directory)(e)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes what no finished task has written, and forgets tasks whose files are not whole any more.
    ///
    /// # Errors
    /// The disk.
    pub fn tidy(&self, manifest: &mut Manifest) -> Result<(), String> {
        let parts = self.parts();
        for task in &mut manifest.tasks {
            let whole = |(name, bytes): &(String, u64)| fs::metadata(parts.join(name)).is_ok_and(|m| m.len() == *bytes);
            if task.done.as_ref().is_some_and(|done| !done.outputs.iter().all(whole)) {
                task.done = None;
            }
        }
        let kept: BTreeSet<PathBuf> = manifest
            .tasks
            .iter()
            .filter_map(|t| t.done.as_ref())
            .flat_map(|done| &done.outputs)
            .map(|(name, _)| parts.join(name))
            .collect();
        remove_others(&parts, &kept)
    }

    /// Puts what was written into the target's place: a file of `parts`, or all of it. What is there is replaced
    /// only if so wished. Then nothing of the copy but the target is left.
    ///
    /// # Errors
    /// The target has come to be in the meantime; the disk. What was written is kept.
    pub fn finish(self, manifest: &mut Manifest, file: Option<&str>, overwrite: bool) -> Result<(), String> {
        let from = file.map_or_else(|| self.parts(), |name| self.parts().join(name));
        fs::create_dir_all(self.parts()).map_err(failed("creating", &from))?;
        let meta = fs::metadata(&from).map_err(failed("looking at", &from))?;
        manifest.moving = Some((meta.dev(), meta.ino()));
        self.save(manifest)?;
        let target = &self.target;
        let moved = match rename_new(&from, target) {
            // A file takes the place of another in one step on every file system.
            Err(e) if e.kind() == ErrorKind::AlreadyExists && overwrite && meta.is_file() => fs::rename(&from, target),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                let empty = meta.is_dir() && fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_none());
                if !overwrite && !empty {
                    let kept = "what was written is kept: move it away and copy again with --resume";
                    return Err(format!("'{}' has come to be there in the meantime; {kept}", target.display()));
                }
                // One directory takes the place of the other; the old one goes with this directory.
                exchange(&from, target)
            }
            other => other,
        };
        moved.map_err(failed("putting what was copied into the place of", target))?;
        sync_directory(self.directory.parent().unwrap_or(Path::new("."))).map_err(failed("making safe", target))?;
        self.remove();
        Ok(())
    }

    /// As [`Staging::remove`], where a manifest that stays would be found again at once.
    ///
    /// # Errors
    /// It stays.
    pub fn forget(self) -> Result<(), String> {
        let path = self.directory.join("manifest.json");
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(failed("removing", &path)(e)),
            _ => {
                self.remove();
                Ok(())
            }
        }
    }

    /// Takes the directory away. What cannot be removed costs space, nothing else.
    pub fn remove(self) {
        let _ = fs::remove_dir_all(self.parts());
        for name in ["manifest.json.new", "manifest.json", "LOCK"] {
            let _ = fs::remove_file(self.directory.join(name));
        }
        // Without the lock's name another process may have begun here, and then the directory is its own.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Removes all files below a directory but these.
fn remove_others(directory: &Path, kept: &BTreeSet<PathBuf>) -> Result<(), String> {
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        other => other.map_err(failed("listing", directory))?,
    };
    for entry in entries {
        let path = entry.map_err(failed("listing", directory))?.path();
        if path.is_dir() {
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) {
            fs::remove_file(&path).map_err(failed("removing", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is removed at the end of the test.
    struct Temp(PathBuf);

    impl Temp {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tidemill-manifest-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Temp(path)
        }
    }

    impl Drop for Temp {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn source(path: &str) -> Source {
        Source { path: path.into(), bytes: 1, modified_ns: 2, version: None }
    }

    fn done(name: &str) -> Done {
        Done { rows: 1, checksum: "0".repeat(32), compared: true, outputs: vec![(name.into(), 4)], uploads: Vec::new() }
    }

    #[test]
    fn one_process_copies_to_a_target() {
        let temp = Temp::new("lock");
        let target = temp.0.join("out");
        let first = Staging::open(&target).unwrap();
        assert!(Staging::open(&target).unwrap_err().contains("another process is copying"));
        first.remove();
        Staging::open(&target).unwrap();
    }

    #[test]
    fn what_is_done_is_taken_over() {
        let mut earlier = Manifest::new("x".into(), vec![vec![source("a")], vec![source("b")]]);
        earlier.tasks[1].done = Some(done("b"));
        let changed = Source { bytes: 9, ..source("b") };
        let mut now = Manifest::new("x".into(), vec![vec![source("0")], vec![source("b")], vec![changed]]);
        now.take_over(&earlier);
        let numbers: Vec<_> = now.tasks.iter().map(|t| (t.number, t.done.is_some())).collect();
        assert_eq!(numbers, [(3, false), (2, true), (4, false)]);
    }

    #[test]
    fn only_whole_parts_are_kept() {
        let temp = Temp::new("tidy");
        let staging = Staging::open(&temp.0.join("out")).unwrap();
        fs::create_dir_all(staging.parts().join("k=1")).unwrap();
        for name in ["k=1/a", "b", "lost"] {
            fs::write(staging.parts().join(name), "1234").unwrap();
        }
        fs::write(staging.parts().join("b"), "12").unwrap();
        let mut manifest = Manifest::new("x".into(), vec![vec![source("a")], vec![source("b")]]);
        manifest.tasks[0].done = Some(done("k=1/a"));
        manifest.tasks[1].done = Some(done("b"));
        staging.tidy(&mut manifest).unwrap();
        assert_eq!(manifest.done(), 1);
        let there = |name: &str| staging.parts().join(name).exists();
        assert_eq!((there("k=1/a"), there("b"), there("lost")), (true, false, false));
        staging.save(&manifest).unwrap();
        assert_eq!(staging.load().unwrap().unwrap(), manifest);
    }

    #[test]
    fn the_target_appears_at_once_and_replaces_only_if_told() {
        let temp = Temp::new("finish");
        let target = temp.0.join("out.csv");
        for (text, overwrite, fine) in [("one", false, true), ("two", false, false), ("two", true, true)] {
            let staging = Staging::open(&target).unwrap();
            fs::create_dir_all(staging.parts()).unwrap();
            fs::write(staging.parts().join("out.csv"), text).unwrap();
            let mut manifest = Manifest::new("x".into(), Vec::new());
            assert_eq!(staging.finish(&mut manifest, Some("out.csv"), overwrite).is_ok(), fine, "{text}");
            if fine {
                assert_eq!(fs::read_to_string(&target).unwrap(), text);
                assert_eq!(fs::read_dir(&temp.0).unwrap().count(), 1, "nothing is left beside it");
            }
        }
    }
}
