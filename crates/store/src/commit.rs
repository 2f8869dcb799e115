//! Several objects of a directory that become visible together.
//!
//! A store completes uploads one at a time, so whoever lists a directory meanwhile sees some of them; if the process is
//! killed then, for good. So before the first is completed, `<directory>/_tidemill/commit` is put, which says what the commit
//! adds and what it removes:
//!
//! ```text
//!   put commit {}
//!   renew the lock                  whoever takes it over finds the commit
//!   put commit {added, removed}     readers pass over what is added
//!   complete the uploads
//!   put commit {done: true}         the turning point: readers pass over what is removed
//!   delete what is removed
//!   renew the lock
//!   delete commit
//! ```
//!
//! Killed before the turning point, the commit can be taken back or continued; behind it, it can only be brought to its
//! end.
//!
//! **Two writers.** A holder of the lock that was cut off, or slept, for longer than the lock lasts may come back in the middle
//! of this and not know that there is another. So the commit is put on conditions only: that there is none, or that it is
//! the version that was read. Whoever finds the commit of a former holder changes it before anything else, with its own name in
//! it; from then on the former one cannot turn it, and has the error that its lock is lost. The other way round, a commit that
//! was put after the lock was lost is found out by renewing the lock, before it says anything; what stays of it is empty, and the
//! next one takes its place. Removing an object knows no condition: the commit is removed within 30 seconds after the lock was
//! renewed, those in which the machine sleeps included, or not at all. Uploads of a commit that is taken back are aborted before its
//! objects are removed, so that none comes back (Azure cannot abort: what a former holder completes in just this moment stays, under a name that nobody else has, until
//! the next copy replaces what is there).
//!
//! **Readers** are ours (`list`): those of other programs see objects as they come and go.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use object_store::UpdateVersion;
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::error::{Kind, StoreError};
use crate::writer::parent;
use crate::{Lock, Object, Pending, Store, open};

/// Below a directory: where the commit lies. Names with `_` are passed over by readers.
const COMMIT: &str = "_tidemill/commit";
/// Raised when an older version could not read it any more.
const VERSION: u32 = 1;
/// How often a commit that changes meanwhile is looked at again.
const TRIES: usize = 4;

/// What a commit does, by whole keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Commit {
    version: u32,
    /// The holding of the lock under which it was put last.
    #[serde(default)]
    holder: String,
    added: BTreeSet<String>,
    removed: BTreeSet<String>,
    /// Past the turning point.
    done: bool,
}

impl Commit {
    fn bytes(&self) -> Result<Bytes, StoreError> {
        let text =
            serde_json::to_vec(self).map_err(|e| StoreError::new(Kind::Other, format!("internal error: a commit's content: {e}")))?;
        Ok(text.into())
    }

    fn parse(url: &str, bytes: &[u8]) -> Result<Self, StoreError> {
        let wrong = |why: String| StoreError::new(Kind::Other, format!("'{url}' {why}"));
        let none = |e: serde_json::Error| wrong(format!("is no commit: {e}; remove it if nothing writes there"));
        let commit: Commit = serde_json::from_slice(bytes).map_err(none)?;
        if commit.version != VERSION {
            return Err(wrong("is of another version of tidemill; read or finish it with that one".to_string()));
        }
        Ok(commit)
    }

    /// The keys that readers pass over.
    fn hidden(&self) -> &BTreeSet<String> {
        if self.done { &self.removed } else { &self.added }
    }
}

/// Whether the key is that of a commit.
pub(crate) fn is_commit(key: &str) -> bool {
    key.strip_suffix(COMMIT).is_some_and(|directory| directory.is_empty() || directory.ends_with('/'))
}

/// The key of the commit of a directory.
pub(crate) fn commit_of(directory: &str) -> String {
    format!("{directory}{COMMIT}")
}

/// The directories whose commits may speak of keys beginning with `prefix`, and that a list of the prefix does not hold: the
/// one that it lies in, and those above it as long as directories are values of columns (`year=2024/`).
pub(crate) fn above(prefix: &str) -> Vec<String> {
    let mut directory = parent(prefix);
    let mut above = Vec::new();
    if directory != prefix {
        above.push(directory.to_string());
    }
    while let Some(name) = directory.strip_suffix('/') {
        let up = parent(name);
        if !name[up.len()..].contains('=') {
            break;
        }
        above.push(up.to_string());
        directory = up;
    }
    above
}

/// Takes out of a list what commits hide; `false` if one of them has changed since, so that the list is to be made anew.
///
/// # Errors
/// A commit that cannot be read.
pub(crate) async fn hide(client: &Arc<Client>, found: &mut Vec<Object>, commits: Vec<Object>) -> Result<bool, StoreError> {
    for object in commits {
        let (url, size) = (object.url.clone(), object.size);
        let bytes = match open::collect(client.clone(), object, 0..size).await {
            Ok(bytes) => bytes,
            Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Changed) => return Ok(false),
            Err(e) => return Err(e),
        };
        let commit = Commit::parse(&url, &bytes)?;
        found.retain(|object| !commit.hidden().contains(&object.key));
    }
    Ok(true)
}

impl Store {
    /// The commit in a directory, with the version of its object: only on top of that one it is changed.
    fn commit_in(&self, directory: &str) -> Result<Option<(Commit, UpdateVersion)>, StoreError> {
        let key = commit_of(directory);
        match self.read_version(&key)? {
            Some((bytes, version)) => Ok(Some((Commit::parse(&self.url(&key), &bytes)?, version))),
            None => Ok(None),
        }
    }

    /// Puts a commit over this version of it, or where there is none; its version, or `None` if something else is there.
    fn put_commit(&self, directory: &str, commit: &Commit, over: Option<UpdateVersion>) -> Result<Option<UpdateVersion>, StoreError> {
        if let Some(version) = self.put_over(&commit_of(directory), commit.bytes()?, over)? {
            return Ok(Some(version));
        }
        // The answer to a first try may have been lost. No other holder puts the same.
        Ok(self.commit_in(directory)?.and_then(|(there, version)| (there == *commit).then_some(version)))
    }

    /// Makes uploads into `directory` (empty, or with a slash at the end) visible together, in place of the objects `removed`.
    /// May be repeated, by any process that holds the directory's lock: then what was begun is brought to its end, and what is
    /// removed is what the last one says. No key of an upload may be that of an object that was there before, or that another
    /// holder of the lock may write.
    ///
    /// # Errors
    /// The lock was lost, and nothing has changed for readers; another commit of this holder is unfinished there; an upload is
    /// gone or is not what was sent; the store refuses.
    pub fn publish(&self, directory: &str, uploads: &[Pending], removed: BTreeSet<String>, lock: &Lock) -> Result<(), StoreError> {
        self.turn(directory, uploads, removed, lock).map_err(|e| {
            // Why it failed: whoever has the lock has aborted its uploads.
            let lost = if e.kind() == Kind::Exists { None } else { lock.renew().err() };
            lost.filter(|lost| lost.kind() == Kind::Exists).unwrap_or(e)
        })
    }

    fn turn(&self, directory: &str, uploads: &[Pending], removed: BTreeSet<String>, lock: &Lock) -> Result<(), StoreError> {
        lock.check()?;
        let added: BTreeSet<String> = uploads.iter().map(|upload| upload.key.clone()).collect();
        assert!(added.is_disjoint(&removed), "what is added and removed at once would be lost");
        let commit = Commit { version: VERSION, holder: lock.holder().to_string(), added, removed, done: false };
        let Some(version) = self.begin_commit(directory, &commit, lock)? else { return Ok(()) };
        self.complete_while(uploads.to_vec(), lock.checker())?;
        self.check_sizes(directory, uploads)?;
        // The last moment at which it can be given up.
        lock.check()?;
        let turned = Commit { done: true, ..commit };
        if self.put_commit(directory, &turned, Some(version))?.is_none() {
            return Err(lock.was_taken());
        }
        self.conclude_turned(directory, &turned, lock)
    }

    /// Puts a commit in the place of none, or of what other holders of the lock have left; its version, or `None` if an
    /// earlier run had turned it: then it is brought to its end.
    fn begin_commit(&self, directory: &str, commit: &Commit, lock: &Lock) -> Result<Option<UpdateVersion>, StoreError> {
        lock.begins_commit();
        // Where there is none, an empty one comes first: put by one that has lost the lock, the whole one would hide what another
        // has completed of it.
        let (added, removed) = (BTreeSet::new(), BTreeSet::new());
        let empty = Commit { version: VERSION, holder: commit.holder.clone(), added, removed, done: true };
        for _ in 0..TRIES {
            if let Some(version) = self.put_commit(directory, &empty, None)? {
                lock.renew()?;
                if let Some(version) = self.put_commit(directory, commit, Some(version))? {
                    return Ok(Some(version));
                }
                continue;
            }
            let Some((there, version)) = self.commit_in(directory)? else { continue };
            // It may be that of whoever has the lock now.
            lock.renew()?;
            if there.added == commit.added {
                if there.done && !there.added.is_empty() {
                    self.conclude_turned(directory, &there, lock)?;
                    return Ok(None);
                }
                // Of a run that was killed: what it removes is said anew, since objects may have come or gone.
            } else if there.done {
                self.delete_all(there.removed.iter().cloned().collect())?;
            } else if there.holder == commit.holder {
                let what = "another commit is unfinished there; finish or withdraw it first";
                let why = format!("writing to '{}': {what}", self.url(directory));
                return Err(StoreError::new(Kind::Exists, why));
            } else {
                // What it had gone on with, and this one goes on with, is kept.
                self.withdraw(directory, &there.added.difference(&commit.added).cloned().collect())?;
            }
            if let Some(version) = self.put_commit(directory, commit, Some(version))? {
                lock.renew()?;
                return Ok(Some(version));
            }
        }
        Err(lock.was_taken())
    }

    /// Whether objects of the size that was sent are there.
    fn check_sizes(&self, directory: &str, uploads: &[Pending]) -> Result<(), StoreError> {
        let there = self.below(directory)?;
        for upload in uploads {
            let found = there.binary_search_by(|object| object.key.as_str().cmp(&upload.key)).ok().map(|at| there[at].size);
            if found != Some(upload.size) {
                let found = found.map_or("none".to_string(), |size| size.to_string());
                let why = format!("committing '{}': {} bytes were sent, and {found} are there", self.url(&upload.key), upload.size);
                return Err(StoreError::new(Kind::Changed, why));
            }
        }
        Ok(())
    }

    /// Removes what a turned commit replaces, and the commit.
    fn conclude(&self, directory: &str, commit: &Commit, lock: &Lock) -> Result<(), StoreError> {
        lock.check()?;
        self.delete_all(commit.removed.iter().cloned().collect())?;
        self.forget(directory, lock)
    }

    /// As [`Store::conclude`], where it does not matter if somebody else does it: everything is visible.
    fn conclude_turned(&self, directory: &str, commit: &Commit, lock: &Lock) -> Result<(), StoreError> {
        match self.conclude(directory, commit, lock) {
            // Whoever has the lock now brings it to its end.
            Err(e) if e.kind() == Kind::Exists => Ok(()),
            concluded => concluded,
        }
    }

    /// Removes a commit, which hides nothing any more.
    fn forget(&self, directory: &str, lock: &Lock) -> Result<(), StoreError> {
        self.delete_held(&commit_of(directory), lock)
    }

    /// Removes what a commit adds, its uploads first, so that nothing comes back. While it goes, the commit hides it.
    fn withdraw(&self, directory: &str, added: &BTreeSet<String>) -> Result<(), StoreError> {
        for found in self.unfinished(directory)? {
            if added.contains(&found.pending.key) {
                self.abort(&found.pending)?;
            }
        }
        self.delete_all(added.iter().cloned().collect())
    }

    /// If a commit in `directory` was left unfinished: whether it is past its turning point, and the keys that it adds.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn committing(&self, directory: &str) -> Result<Option<(bool, BTreeSet<String>)>, StoreError> {
        Ok(self.commit_in(directory)?.map(|(commit, _)| (commit.done, commit.added)))
    }

    /// Brings a commit that was left unfinished in `directory` to its end, or, before its turning point, takes it back: its
    /// uploads are aborted, and objects that it has made are removed.
    ///
    /// # Errors
    /// The lock was lost; the store refuses.
    pub fn settle(&self, directory: &str, lock: &Lock) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let Some((commit, version)) = self.commit_in(directory)? else { return Ok(()) };
            // It may be that of whoever has the lock now.
            lock.renew()?;
            if commit.done {
                return self.conclude(directory, &commit, lock);
            }
            // From here on whoever began it cannot turn it any more.
            let ours = Commit { holder: lock.holder().to_string(), removed: BTreeSet::new(), ..commit };
            if self.put_commit(directory, &ours, Some(version))?.is_some() {
                self.withdraw(directory, &ours.added)?;
                return self.forget(directory, lock);
            }
        }
        Err(lock.was_taken())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(prefix: &str, expect: &[&str]) {
        assert_eq!(above(prefix), expect);
    }

    #[test]
    fn where_commits_lie() {
        check("", &[]);
        check("out/", &[]);
        check("out/part-", &["out/"]);
        check("lo", &[""]);
        check("a/out/k=1/", &["a/out/"]);
        check("out/k=1/l=2/x", &["out/k=1/l=2/", "out/k=1/", "out/"]);
        check("k=1/", &[""]);
        assert!(is_commit("_tidemill/commit") && is_commit("a/b/_tidemill/commit"));
        assert!(!is_commit("a_tidemill/commit") && !is_commit("_tidemill/commit.csv"));
    }

    #[test]
    fn what_is_hidden() {
        let set = |key: &str| BTreeSet::from([key.to_string()]);
        let commit = Commit { version: VERSION, holder: "h".into(), added: set("new"), removed: set("old"), done: false };
        assert_eq!((commit.hidden(), Commit { done: true, ..commit.clone() }.hidden()), (&set("new"), &set("old")));
        assert_eq!(Commit::parse("u", &commit.bytes().unwrap()).unwrap(), commit);
        assert!(Commit::parse("u", b"{}").is_err_and(|e| e.to_string().contains("is no commit")));
        let later = Commit { version: VERSION + 1, ..commit };
        assert!(Commit::parse("u", &later.bytes().unwrap()).is_err_and(|e| e.to_string().contains("another version")));
    }
}
