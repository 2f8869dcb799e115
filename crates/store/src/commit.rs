//! Several objects of a directory that become visible together.
//!
//! A store completes uploads one at a time, so whoever lists a directory meanwhile sees some of them; if the process is
//! killed then, for good. So before the first is completed, `<directory>/_tidemill/commit` is put, on condition that there is
//! none, which says what the commit adds and what it removes:
//!
//! ```text
//!   put commit {added, removed}     readers pass over what is added
//!   complete the uploads
//!   put commit {done: true}         the turning point: readers pass over what is removed
//!   delete what is removed
//!   delete commit                   the turning point if nothing is removed
//! ```
//!
//! Killed before the turning point, the commit can be taken back or continued; behind it, it can only be brought to its
//! end. Readers are ours (`list`): those of other programs see objects as they come and go. A list of a directory is exact as
//! long as it is one page; where a pattern leaves the commit out of the list, it is asked for behind the list, and one that ends
//! between the two requests may be seen in part.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::error::{Kind, StoreError};
use crate::writer::parent;
use crate::{Lock, Object, Pending, Store, open};

/// Below a directory: where the commit lies. Names with `_` are passed over by readers.
const COMMIT: &str = "_tidemill/commit";
/// Raised when an older version could not read it any more.
const VERSION: u32 = 1;

/// What a commit does, by whole keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Commit {
    version: u32,
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

/// The keys of commits that may speak of keys beginning with `prefix` and that a list of the prefix does not hold: that of the
/// directory, and those above it as long as directories are values of columns (`year=2024/`).
pub(crate) fn above(prefix: &str) -> Vec<String> {
    let mut directory = parent(prefix);
    let mut keys = Vec::new();
    if directory != prefix {
        keys.push(format!("{directory}{COMMIT}"));
    }
    while let Some(name) = directory.strip_suffix('/') {
        let up = parent(name);
        if !name[up.len()..].contains('=') {
            break;
        }
        keys.push(format!("{up}{COMMIT}"));
        directory = up;
    }
    keys
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
    fn commit_in(&self, directory: &str) -> Result<Option<Commit>, StoreError> {
        let key = format!("{directory}{COMMIT}");
        match self.read(&key) {
            Ok(bytes) => Commit::parse(&self.url(&key), &bytes).map(Some),
            Err(e) if e.kind() == Kind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Makes uploads into `directory` (empty, or with a slash at the end) visible together, in place of the objects `removed`.
    /// May be repeated, by any process that holds the directory's lock: then what was begun is brought to its end. No key of an
    /// upload may be that of an object that was there before.
    ///
    /// # Errors
    /// The lock was lost; another commit was left unfinished there; an upload is gone or is not what was sent; the store
    /// refuses.
    pub fn publish(&self, directory: &str, uploads: &[Pending], removed: BTreeSet<String>, lock: &Lock) -> Result<(), StoreError> {
        lock.check()?;
        let key = format!("{directory}{COMMIT}");
        let added: BTreeSet<String> = uploads.iter().map(|upload| upload.key.clone()).collect();
        assert!(added.is_disjoint(&removed), "what is added and removed at once would be lost");
        let mut commit = Commit { version: VERSION, added, removed, done: false };
        if !self.put_new(&key, commit.bytes()?)? {
            commit = match self.commit_in(directory)? {
                // Of a process that was killed, or this one's, the answer to which was lost.
                Some(there) if there.added == commit.added => there,
                _ => {
                    let what = "another commit is unfinished there; finish or withdraw it first";
                    let why = format!("writing to '{}': {what}", self.url(directory));
                    return Err(StoreError::new(Kind::Exists, why));
                }
            };
        }
        if !commit.done {
            self.complete_all(uploads.to_vec())?;
            self.check_sizes(directory, uploads)?;
            // The last moment at which it can be given up.
            lock.check()?;
            if !commit.removed.is_empty() {
                commit.done = true;
                self.put(&key, commit.bytes()?)?;
            }
        }
        self.conclude(&key, &commit)
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

    fn conclude(&self, key: &str, commit: &Commit) -> Result<(), StoreError> {
        self.delete_all(commit.removed.iter().cloned().collect())?;
        self.delete(key)
    }

    /// If a commit in `directory` was left unfinished: whether it is past its turning point, and the keys that it adds.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn committing(&self, directory: &str) -> Result<Option<(bool, BTreeSet<String>)>, StoreError> {
        Ok(self.commit_in(directory)?.map(|commit| (commit.done, commit.added)))
    }

    /// Brings a commit that was left unfinished in `directory` to its end, or, before its turning point, takes it back: objects
    /// that it has made are removed, and its uploads are the caller's to abort. Only for the holder of the directory's lock.
    ///
    /// # Errors
    /// The store refuses.
    pub fn settle(&self, directory: &str) -> Result<(), StoreError> {
        let Some(commit) = self.commit_in(directory)? else { return Ok(()) };
        let key = format!("{directory}{COMMIT}");
        if commit.done {
            return self.conclude(&key, &commit);
        }
        // While they go, the commit hides them.
        self.delete_all(commit.added.iter().cloned().collect())?;
        self.delete(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(prefix: &str, expect: &[&str]) {
        let expect: Vec<String> = expect.iter().map(|directory| format!("{directory}{COMMIT}")).collect();
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
        let commit = Commit { version: VERSION, added: set("new"), removed: set("old"), done: false };
        assert_eq!((commit.hidden(), Commit { done: true, ..commit.clone() }.hidden()), (&set("new"), &set("old")));
        assert_eq!(Commit::parse("u", &commit.bytes().unwrap()).unwrap(), commit);
        assert!(Commit::parse("u", b"{}").is_err_and(|e| e.to_string().contains("is no commit")));
        let later = Commit { version: VERSION + 1, ..commit };
        assert!(Commit::parse("u", &later.bytes().unwrap()).is_err_and(|e| e.to_string().contains("another version")));
    }
}
