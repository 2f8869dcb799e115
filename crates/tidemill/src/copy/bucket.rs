//! A copy into a bucket: its parts are uploads that nobody sees, and become visible together.
//!
//! ```text
//! gs://b/out/                     the target, at the end
//! gs://b/out/_tidemill/
//!   lock                          who copies
//!   copy.json                     the manifest: which tasks there are, and the uploads of those that are done
//!   uploads/                      a mark for each upload under way, so that those of a killed copy are found
//!   commit                        while the uploads are completed: what is added and what is removed
//! ```
//!
//! A single object has a lock and a manifest of its own (`lock.x.csv`, `copy.x.csv.json`) in its directory, and needs no commit:
//! it appears in one step. What locks, marks and commits are is said in the `store` crate.

use std::collections::BTreeSet;

use tidemill_store::{Kind, Lock, Object, Pending, Store, StoreError};

use super::manifest::Manifest;
use super::plan::{Plan, store_options};

/// Below a directory: what is ours to keep there.
const OURS: &str = "_tidemill/";

/// The place of a copy in a bucket, locked.
pub struct BucketStage {
    store: Store,
    /// Empty, or with a slash at the end.
    directory: String,
    /// The target's key, if it is one object.
    single: Option<String>,
    lock: Lock,
}

fn text(e: StoreError) -> String {
    e.to_string()
}

impl BucketStage {
    /// Begins, or goes on with, a copy to a place in a bucket.
    ///
    /// # Errors
    /// Somebody else writes there; options or credentials are wrong; the store refuses.
    pub fn open(url: &str, plan: &Plan) -> Result<Self, String> {
        let (store, key) = Store::of(url, &store_options(url, &plan.target.options)?).map_err(text)?;
        let key = key.trim_start_matches('/');
        let (directory, single) = match (plan.target.single, key.rfind('/')) {
            (true, _) if key.is_empty() => return Err(format!("'{url}' names no object in the bucket; write '{url}/out.csv'")),
            (true, slash) => (key[..slash.map_or(0, |slash| slash + 1)].to_string(), Some(key.to_string())),
            (false, _) if key.is_empty() || key.ends_with('/') => (key.to_string(), None),
            (false, _) => (format!("{key}/"), None),
        };
        let lock = match &single {
            Some(key) => store.lock_file(key),
            None => store.lock(&directory, None),
        };
        Ok(BucketStage { lock: lock.map_err(text)?, store, directory, single })
    }

    /// What keys of the copy's objects begin with.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// Whose the uploads of a copy are. Those of directories and of single objects are told apart: their locks are, too.
    pub fn owner(&self, manifest: &Manifest) -> String {
        format!("{}{}", self.kind(), manifest.token)
    }

    /// Names this run: in the names of objects, so that a run that goes on, and one before it that does not know of it, never
    /// write the same.
    pub fn run(&self) -> String {
        // FNV-1a; of a holding of the lock, which no other has the name of.
        let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        format!("{:016x}", self.lock.holder().bytes().fold(0xcbf2_9ce4_8422_2325, hash))
    }

    fn kind(&self) -> &'static str {
        if self.single.is_some() { "copy of an object " } else { "copy " }
    }

    fn manifest_key(&self) -> String {
        match &self.single {
            Some(key) => format!("{}{OURS}copy.{}.json", self.directory, &key[self.directory.len()..]),
            None => format!("{}{OURS}copy.json", self.directory),
        }
    }

    /// What an earlier run left.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load(&self) -> Result<Option<Manifest>, String> {
        let key = self.manifest_key();
        match self.store.read(&key) {
            Ok(bytes) => Manifest::parse(&bytes, &self.store.url(&key)).map(Some),
            Err(e) if e.kind() == Kind::NotFound => Ok(None),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Whether an earlier run had made everything visible. One that was past the turning point is brought to its end. Of a copy
    /// that writes no object nothing can be said, and finishing it once more costs nothing.
    ///
    /// # Errors
    /// The lock was lost; the store refuses.
    pub fn was_moved(&self, manifest: &Manifest) -> Result<bool, String> {
        let uploads = uploads(manifest);
        if manifest.moving.is_none() || uploads.is_empty() {
            return Ok(false);
        }
        if self.single.is_some() {
            for upload in &uploads {
                if !self.store.is_complete(upload).map_err(text)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        match self.store.committing(&self.directory).map_err(text)? {
            Some((false, _)) => return Ok(false),
            Some((true, added)) => {
                self.store.settle(&self.directory, &self.lock).map_err(text)?;
                if added == keys(&uploads) {
                    return Ok(true);
                }
            }
            None => {}
        }
        let there = self.store.below(&self.directory).map_err(text)?;
        let there: BTreeSet<(&str, u64)> = there.iter().map(|object| (object.key.as_str(), object.size)).collect();
        Ok(uploads.iter().all(|upload| there.contains(&(upload.key.as_str(), upload.size))))
    }

    /// The objects that stand in the copy's way: what is there, without what is ours and what the manifest's copy has put there.
    fn others(&self, manifest: &Manifest) -> Result<Vec<Object>, String> {
        if let Some(key) = &self.single {
            return match self.store.head(key) {
                Ok(object) => Ok(vec![object]),
                Err(e) if e.kind() == Kind::NotFound => Ok(Vec::new()),
                Err(e) => Err(e.to_string()),
            };
        }
        let uploads = uploads(manifest);
        let own: BTreeSet<&str> = uploads.iter().map(|upload| upload.key.as_str()).collect();
        let mut there = self.store.below(&self.directory).map_err(text)?;
        // What marks the directory itself is not below it.
        let below = |key: &str| key.strip_prefix(self.directory.as_str()).is_some_and(|name| !name.starts_with(OURS));
        there.retain(|object| below(&object.key) && !own.contains(object.key.as_str()));
        Ok(there)
    }

    /// Why the target cannot be written: something is there that shall stay.
    ///
    /// # Errors
    /// The store refuses.
    pub fn in_the_way(&self, manifest: &Manifest, overwrite: bool) -> Result<Option<String>, String> {
        let others = self.others(manifest)?;
        let Some(first) = others.first() else { return Ok(None) };
        let place = self.store.url(self.single.as_deref().unwrap_or(&self.directory));
        if self.single.is_none() && self.directory.is_empty() {
            // A slip of the hand would empty the bucket.
            return Ok(Some(format!("'{place}' is a whole bucket, and not empty ('{}' is there); name a directory in it", first.url)));
        }
        let why = || format!("'{place}' is there already ('{}'); --overwrite replaces it, or choose another name", first.url);
        Ok((!overwrite).then(why))
    }

    /// Keeps the manifest.
    ///
    /// # Errors
    /// The lock was lost; the store refuses.
    pub fn save(&self, manifest: &Manifest) -> Result<(), String> {
        self.lock.check().map_err(text)?;
        let key = self.manifest_key();
        let content = manifest.text(&self.store.url(&key))?;
        self.store.put(&key, content.into()).map_err(text)
    }

    /// Aborts the uploads of copies to this target, but for those that are `kept`.
    ///
    /// # Errors
    /// The lock was lost, so that they may be another copy's; the store refuses.
    fn abort_others(&self, kept: &[Pending]) -> Result<(), String> {
        self.lock.renew().map_err(text)?;
        for found in self.store.unfinished(&self.directory).map_err(text)? {
            let ours = found.owner.as_deref().and_then(|owner| owner.strip_prefix(self.kind())).is_some_and(|token| !token.contains(' '))
                && self.single.as_ref().is_none_or(|key| *key == found.pending.key);
            if ours && !kept.iter().any(|upload| upload.is(&found.pending)) {
                self.lock.check().map_err(text)?;
                self.store.abort(&found.pending).map_err(text)?;
            }
        }
        Ok(())
    }

    /// Forgets what an earlier run did.
    ///
    /// # Errors
    /// The store refuses.
    pub fn clear(&self) -> Result<(), String> {
        self.lock.check().map_err(text)?;
        if self.single.is_none() {
            self.store.settle(&self.directory, &self.lock).map_err(text)?;
        }
        self.abort_others(&[])?;
        self.store.delete_held(&self.manifest_key(), &self.lock).map_err(text)
    }

    /// Aborts the uploads of no finished task, and opens tasks again whose uploads are gone. A commit that was begun and cannot go
    /// on, since a file has changed in between, is taken back, and all tasks are open again.
    ///
    /// # Errors
    /// The lock was lost, so that the commit may be another copy's; the store refuses.
    pub fn tidy(&self, manifest: &mut Manifest) -> Result<(), String> {
        self.lock.check().map_err(text)?;
        let gone = self.store.gone(&self.directory, &uploads(manifest)).map_err(text)?;
        for task in &mut manifest.tasks {
            if task.done.as_ref().is_some_and(|done| done.uploads.iter().any(|upload| gone.contains(&upload.key))) {
                task.done = None;
            }
        }
        if self.single.is_none()
            && let Some((turned, added)) = self.store.committing(&self.directory).map_err(text)?
            && (turned || keys(&uploads(manifest)) != added)
        {
            if !turned {
                // Before that is done: killed in between, the manifest would speak of what is no more.
                manifest.tasks.iter_mut().for_each(|task| task.done = None);
                self.save(manifest)?;
            }
            self.store.settle(&self.directory, &self.lock).map_err(text)?;
        }
        self.abort_others(&uploads(manifest))
    }

    /// Makes everything visible together, in place of what is there if so wished.
    ///
    /// # Errors
    /// The target has come to be in the meantime; the lock was lost; an upload is gone; the store refuses. What was written is kept.
    pub fn finish(self, manifest: &mut Manifest, overwrite: bool) -> Result<(), String> {
        let others = self.others(manifest)?;
        // Into a whole bucket nothing is copied but while it is empty, whatever the options say.
        let overwrite = overwrite && (self.single.is_some() || !self.directory.is_empty());
        if let (Some(first), false) = (others.first(), overwrite) {
            let kept = "what was written is kept: move it away and copy again with --resume";
            return Err(format!("'{}' has come to be there in the meantime; {kept}", first.url));
        }
        manifest.moving = Some((0, 0));
        self.save(manifest)?;
        let uploads = uploads(manifest);
        let committed = match &self.single {
            // Whoever takes the lock aborts the upload before anything else, so that it cannot be completed after that; but an object
            // of the same length would look like it.
            Some(_) => {
                let complete = || uploads.iter().try_for_each(|upload| self.store.complete(upload));
                self.lock.renew().and_then(|()| complete().and_then(|()| self.lock.renew()))
            }
            None => {
                let removed = others.into_iter().map(|object| object.key).collect();
                self.store.publish(&self.directory, &uploads, removed, &self.lock)
            }
        };
        committed.map_err(|e| match e.kind() {
            Kind::Exists => e.to_string(),
            _ => format!("{e}. --resume tries again, --overwrite without it begins anew"),
        })?;
        self.remove();
        Ok(())
    }

    /// Takes away what the copy keeps of itself, and lets the lock go. What cannot be removed is found by the next copy to this
    /// target.
    pub fn remove(self) {
        // Without the lock they may be another copy's, and none is removed.
        let _ = self.abort_others(&[]);
        let _ = self.store.delete_held(&self.manifest_key(), &self.lock);
    }

    /// As [`BucketStage::remove`], where what stays would be found again at once.
    ///
    /// # Errors
    /// The lock was lost; the store refuses to remove the manifest.
    pub fn forget(self) -> Result<(), String> {
        self.abort_others(&[])?;
        self.store.delete_held(&self.manifest_key(), &self.lock).map_err(text)
    }
}

/// What uploads become.
fn keys(uploads: &[Pending]) -> BTreeSet<String> {
    uploads.iter().map(|upload| upload.key.clone()).collect()
}

/// The uploads of all tasks that are done.
fn uploads(manifest: &Manifest) -> Vec<Pending> {
    manifest.tasks.iter().filter_map(|task| task.done.as_ref()).flat_map(|done| done.uploads.iter().cloned()).collect()
}
