//! Patterns over keys: what a path with or without wildcards stands for in a bucket.
//!
//! The rules are those of local files: `*` and `?` stay within a path segment, `**` does not, `[…]` is one of some
//! characters; a "directory" (a prefix that ends at a slash) stands for everything below it; names that begin with `.` or
//! `_` are passed over unless the pattern asks for them. What a commit hides ([`commit`]) is passed over in any case.

use std::sync::Arc;

use futures::future;
use glob::{MatchOptions, Pattern};
use object_store::list::PaginatedListOptions;

use crate::client::{Backend, Client};
use crate::error::{Kind, StoreError};
use crate::{Object, commit, lock};

/// Objects in one list, at most: some 200 bytes of memory each.
const OBJECTS_MAX: usize = 5_000_000;
/// How often a list is made anew because commits came or went meanwhile.
const TRIES: usize = 8;

const OPTIONS: MatchOptions = MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

/// Whether a path segment names something hidden, or another writer's work.
fn hidden(name: &str) -> bool {
    name.starts_with(['.', '_'])
}

fn is_glob(key: &str) -> bool {
    key.contains(['*', '?', '['])
}

/// A glob, ready to be compared with keys.
struct Glob {
    pattern: Pattern,
    /// Bytes before the first segment with a wildcard.
    fixed: usize,
    /// The pattern names hidden things itself.
    asked: bool,
}

impl Glob {
    fn new(text: &str) -> Result<Self, StoreError> {
        let pattern = Pattern::new(text)
            .map_err(|e| StoreError::new(Kind::Other, format!("the pattern '{text}' is wrong at character {}: {}", e.pos, e.msg)))?;
        let wild = text.find(['*', '?', '[']).unwrap_or(text.len());
        let fixed = text[..wild].rfind('/').map_or(0, |slash| slash + 1);
        Ok(Glob { pattern, fixed, asked: text[fixed..].split('/').any(hidden) })
    }

    /// Whether the key, or a directory that it lies in, matches.
    fn matches(&self, key: &str) -> bool {
        let Some(below) = key.get(self.fixed..) else { return false };
        if !self.asked && below.split('/').any(hidden) {
            return false;
        }
        let mut ends = below.match_indices('/').map(|(at, _)| self.fixed + at).chain([key.len()]);
        ends.any(|end| self.pattern.matches_with(&key[..end], OPTIONS))
    }
}

/// What `pattern` stands for, in order of keys.
///
/// # Errors
/// A path without wildcards that there is not; the bucket cannot be listed.
pub(crate) async fn list(client: &Arc<Client>, pattern: &str) -> Result<Vec<Object>, StoreError> {
    if matches!(client.backend, Backend::Web(_)) {
        return Ok(vec![head(client, pattern).await?]);
    }
    if is_glob(pattern) {
        let glob = Glob::new(pattern)?;
        let wild = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
        return visible(client, &pattern[..wild], |key| glob.matches(key)).await;
    }
    let directory = pattern.is_empty() || pattern.ends_with('/');
    let missing = if directory {
        None
    } else {
        match head(client, pattern).await {
            Ok(object) => return Ok(vec![object]),
            Err(e) if e.kind() == Kind::NotFound => Some(e),
            Err(e) => return Err(e),
        }
    };
    let prefix = if directory { pattern.to_string() } else { format!("{pattern}/") };
    let found = visible(client, &prefix, |key| key.get(prefix.len()..).is_some_and(|below| !below.split('/').any(hidden))).await?;
    match missing {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// What is known of one object.
///
/// # Errors
/// There is none; the request was refused or failed.
pub(crate) async fn head(client: &Client, key: &str) -> Result<Object, StoreError> {
    match &client.backend {
        Backend::Web(site) => site.head(&client.url(key)).await,
        Backend::Bucket { objects, .. } => {
            use object_store::ObjectStoreExt;
            let meta = objects.head(&client.path(key)?).await.map_err(|e| client.failed("looking at", key, &e))?;
            Ok(client.object(&meta))
        }
    }
}

/// What stands beside a list and says which of its objects are hidden: the commit of a directory, and the holder of its lock with
/// the number of commits that he has begun.
type Beside = (Option<Object>, Option<(String, u64)>);

/// What stands beside a list of a directory that does not hold it itself.
async fn beside(client: &Client, directory: &str) -> Result<Beside, StoreError> {
    let (commit, lock) = (commit::commit_of(directory), format!("{directory}{}", lock::LOCK));
    let (commit, lock) = tokio::join!(head(client, &commit), lock::trace(client, &lock));
    let commit = match commit {
        Ok(object) => Some(object),
        // Who may list but not read finds nothing to read either.
        Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Denied) => None,
        Err(e) => return Err(e),
    };
    Ok((commit, lock?))
}

async fn all_beside(client: &Client, directories: &[String]) -> Result<Vec<Beside>, StoreError> {
    future::try_join_all(directories.iter().map(|directory| beside(client, directory))).await
}

/// As [`keys`], without what a commit has not made visible yet, or has replaced.
///
/// One page of a directory is of one moment, and holds the commit. Where the prefix leaves it out (`out/part-*`), or there are
/// several pages, it is asked for before the list and behind it: one that came in between would hide what is replaced, of a list
/// in which what replaces it is not yet. One that came *and* went in between has left its trace in the lock; unless this has come
/// and gone, too, so that a whole copy took place while objects were listed.
async fn visible(client: &Arc<Client>, prefix: &str, wanted: impl Fn(&str) -> bool) -> Result<Vec<Object>, StoreError> {
    let mut around = commit::above(prefix);
    let mut most = if prefix.is_empty() || prefix.ends_with('/') { 1 } else { usize::MAX };
    for _ in 0..TRIES {
        let before = all_beside(client, &around).await?;
        let (mut found, whole) = pages(client, prefix, most, |key| wanted(key) || commit::is_commit(key)).await?;
        if !whole {
            around.push(prefix.to_string());
            most = usize::MAX;
            continue;
        }
        if all_beside(client, &around).await? != before {
            continue;
        }
        let mut commits: Vec<Object> = found.extract_if(.., |object| commit::is_commit(&object.key)).collect();
        for commit in before.into_iter().filter_map(|(commit, _)| commit) {
            if !commits.contains(&commit) {
                commits.push(commit);
            }
        }
        if commit::hide(client, &mut found, commits).await? {
            return Ok(found);
        }
    }
    let why = format!("listing '{}': objects are committed there again and again; try again later", client.url(prefix));
    Err(StoreError::new(Kind::Changed, why))
}

/// The objects whose keys begin with `prefix` and are `wanted`.
pub(crate) async fn keys(client: &Client, prefix: &str, wanted: impl Fn(&str) -> bool) -> Result<Vec<Object>, StoreError> {
    Ok(pages(client, prefix, usize::MAX, wanted).await?.0)
}

/// As [`keys`], of so many pages of the list at most; whether these are all.
async fn pages(client: &Client, prefix: &str, most: usize, wanted: impl Fn(&str) -> bool) -> Result<(Vec<Object>, bool), StoreError> {
    let bucket = client.bucket("listing")?;
    let doing = format!("listing '{}'", client.url(prefix));
    let mut found: Vec<Object> = Vec::new();
    let (mut token, mut whole) = (None, false);
    for _ in 0..most {
        let options = PaginatedListOptions { page_token: token.take(), ..PaginatedListOptions::default() };
        let page = bucket.lists.list_paginated((!prefix.is_empty()).then_some(prefix), options).await;
        let page = page.map_err(|e| StoreError::of(&doing, client.scheme, &e))?;
        found.extend(page.result.objects.iter().filter(|meta| wanted(meta.location.as_ref())).map(|meta| client.object(meta)));
        if found.len() > OBJECTS_MAX {
            return Err(StoreError::new(Kind::Other, format!("{doing}: there are more than {OBJECTS_MAX} objects; name fewer of them")));
        }
        match page.page_token {
            Some(next) if !next.is_empty() => token = Some(next),
            _ => {
                whole = true;
                break;
            }
        }
    }
    found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    // Consoles and file systems over buckets mark directories with an empty object of that name.
    let keys: Vec<bool> = found.iter().map(|object| object.size == 0 && has_below(&found, &object.key)).collect();
    let mut marks = keys.into_iter();
    found.retain(|_| !marks.next().unwrap_or(false));
    Ok((found, whole))
}

/// Whether there is something below the directory `key` in a sorted list.
fn has_below(found: &[Object], key: &str) -> bool {
    let directory = format!("{key}/");
    let at = found.partition_point(|o| o.key.as_str() < directory.as_str());
    found.get(at).is_some_and(|o| o.key.starts_with(&directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, expect: &str) {
        let keys = ["a.csv", "d/_tmp/x.csv", "d/b.csv", "d/e/c.csv", "d/e/f/g.csv", "d/é.json", "d/.h.csv"];
        let glob = Glob::new(pattern).unwrap();
        let found: Vec<&str> = keys.into_iter().filter(|key| glob.matches(key)).collect();
        assert_eq!(found.join(" "), expect, "{pattern}");
    }

    #[test]
    fn globs_over_keys() {
        check("*.csv", "a.csv");
        check("d/*.csv", "d/b.csv");
        check("d/?.json", "d/é.json");
        check("**/*.csv", "a.csv d/b.csv d/e/c.csv d/e/f/g.csv");
        check("d/e*", "d/e/c.csv d/e/f/g.csv");
        check("d/[ab].csv", "d/b.csv");
        check("d/.*", "d/.h.csv");
        check("d/_*/*", "d/_tmp/x.csv");
        check("x/*", "");
        assert!(Glob::new("d/[").is_err_and(|e| e.to_string().contains("wrong at character")));
    }

    #[test]
    fn marks_of_directories() {
        let object = |key: &str| Object { url: String::new(), key: key.to_string(), size: 0, etag: None, modified_ms: 0, seekable: true };
        let found = ["d", "d-x", "d/a", "e"].map(object);
        let below: Vec<bool> = found.iter().map(|o| has_below(&found, &o.key)).collect();
        assert_eq!(below, [true, false, false, false]);
    }
}
