//! The entry: a bucket or web server, and what can be asked of it.

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::{ObjectStoreExt, PutMode, PutOptions, UpdateVersion};

use crate::client::{self, Client, Place};
use crate::error::{Kind, StoreError};
use crate::reader::ObjectReader;
use crate::runtime::wait;
use crate::{Lock, Object, ObjectFile, ObjectWriter, Pending, SIZE_UNKNOWN, StoreOptions, Unfinished, list, lock, open, writer};

/// Uploads completed at once.
const COMPLETED_AT_ONCE: usize = 8;
/// Objects removed at once.
const REMOVED_AT_ONCE: usize = 16;

/// A bucket or web server. Clones are the same client. Calls wait; they may be made on any thread.
#[derive(Clone)]
pub struct Store {
    client: Arc<Client>,
}

impl Store {
    /// The store that `url` lies in, and the key, or the pattern of keys, that it names. Clients are shared by the process.
    ///
    /// # Errors
    /// No URL of a store; options or credentials that make no sense. Nothing is asked of the store yet.
    pub fn of(url: &str, options: &StoreOptions) -> Result<(Store, String), StoreError> {
        let place = Place::parse(url)?;
        Ok((Store { client: client::client(&place, options)? }, place.key.to_string()))
    }

    /// The same for clones and for stores of the same URL and options, as long as one of them lives; different for others.
    pub fn client_id(&self) -> usize {
        Arc::as_ptr(&self.client) as usize
    }

    /// The URL of a key.
    pub fn url(&self, key: &str) -> String {
        self.client.url(key)
    }

    /// The objects that `pattern` stands for, in order of their keys: a glob (which may match nothing), an object, or, by its
    /// name or with a slash at the end, a directory. On web servers: one file.
    ///
    /// # Errors
    /// No object and no directory of that name; the request was refused or failed.
    pub fn list(&self, pattern: &str) -> Result<Vec<Object>, StoreError> {
        let (client, pattern) = (self.client.clone(), pattern.to_string());
        wait(async move { list::list(&client, &pattern).await })
    }

    /// What is known of one object.
    ///
    /// # Errors
    /// There is none; the request was refused or failed.
    pub fn head(&self, key: &str) -> Result<Object, StoreError> {
        let (client, key) = (self.client.clone(), key.to_string());
        wait(async move { list::head(&client, &key).await })
    }

    /// Reads bytes `from` to `end` (or to the object's end), in order, several requests ahead in bounded memory. Errors come
    /// out of `read` with their whole text: the object changed, a request was refused, repetitions did not help.
    pub fn reader(&self, object: &Object, from: u64, end: Option<u64>) -> Box<dyn Read + Send> {
        Box::new(ObjectReader::new(self.client.clone(), object.clone(), from, end))
    }

    /// The object for reading anywhere in it.
    pub fn ranges(&self, object: &Object) -> ObjectFile {
        ObjectFile::new(self.client.clone(), object.clone())
    }

    /// The whole of a small object.
    ///
    /// # Errors
    /// As [`Store::head`]; the object changed while it was read.
    pub fn read(&self, key: &str) -> Result<Bytes, StoreError> {
        let (client, key) = (self.client.clone(), key.to_string());
        wait(async move {
            let object = list::head(&client, &key).await?;
            if object.size == SIZE_UNKNOWN {
                let why = format!("reading '{}': the server does not say how large it is", object.url);
                return Err(StoreError::new(Kind::Other, why));
            }
            let size = object.size;
            open::collect(client, object, 0..size).await
        })
    }

    /// Begins an object. Nothing is visible until [`Store::complete`]; an object of that key is replaced then.
    ///
    /// # Errors
    /// The store refuses.
    pub fn writer(&self, key: &str) -> Result<ObjectWriter, StoreError> {
        ObjectWriter::new(self.client.clone(), writer::parent(key), key, None)
    }

    /// As [`Store::writer`], for an object in or below `directory` (empty, or with a slash at the end), which is then the one
    /// to ask for [`Store::unfinished`] uploads. With `owner`, the name of somebody who comes back for the upload after
    /// a crash, so that nobody else clears it away.
    ///
    /// # Errors
    /// The store refuses.
    pub fn writer_in(&self, directory: &str, key: &str, owner: Option<&str>) -> Result<ObjectWriter, StoreError> {
        ObjectWriter::new(self.client.clone(), directory, key, owner.map(str::to_string))
    }

    /// Makes an upload visible. May be repeated, by any process.
    ///
    /// # Errors
    /// The upload is gone, and there is no such object either; the store refuses.
    pub fn complete(&self, pending: &Pending) -> Result<(), StoreError> {
        self.complete_all(vec![pending.clone()])
    }

    /// Whether the object that an upload becomes is there: of its size, and another than was there before it.
    ///
    /// # Errors
    /// The request was refused or failed.
    pub fn is_complete(&self, pending: &Pending) -> Result<bool, StoreError> {
        let (client, pending) = (self.client.clone(), pending.clone());
        wait(async move { writer::is_complete(&client, &pending).await })
    }

    /// The keys of those uploads into a directory that are neither under way, as their marks say, nor complete: they were given up,
    /// or what they had become was removed.
    ///
    /// # Errors
    /// The bucket cannot be listed; a request was refused or failed.
    pub fn gone(&self, directory: &str, uploads: &[Pending]) -> Result<BTreeSet<String>, StoreError> {
        let (client, directory, uploads) = (self.client.clone(), directory.to_string(), uploads.to_vec());
        wait(async move { writer::gone(&client, &directory, uploads).await })
    }

    /// Makes uploads visible, a few at once.
    ///
    /// # Errors
    /// The first that could not be completed; others may be visible or not.
    pub fn complete_all(&self, pending: Vec<Pending>) -> Result<(), StoreError> {
        self.complete_while(pending, || Ok(()))
    }

    /// As [`Store::complete_all`], as long as `holds` finds nothing wrong: it is asked before each.
    pub(crate) fn complete_while(
        &self,
        pending: Vec<Pending>,
        holds: impl Fn() -> Result<(), StoreError> + Send + Sync + 'static,
    ) -> Result<(), StoreError> {
        let (client, holds) = (self.client.clone(), Arc::new(holds));
        wait(async move {
            let all = pending.into_iter().map(|one| {
                let (client, holds) = (client.clone(), holds.clone());
                async move {
                    holds()?;
                    writer::complete(&client, &one).await
                }
            });
            stream::iter(all).buffer_unordered(COMPLETED_AT_ONCE).try_collect::<Vec<()>>().await.map(drop)
        })
    }

    /// Gives an upload up. May be repeated.
    ///
    /// # Errors
    /// The store refuses.
    pub fn abort(&self, pending: &Pending) -> Result<(), StoreError> {
        let (client, pending) = (self.client.clone(), pending.clone());
        wait(async move { writer::abort(&client, &pending).await })
    }

    /// The uploads into a directory (empty, or with a slash at the end) that were begun and are not over, those that
    /// are being written included: ask only while holding the directory's [`Lock`].
    ///
    /// # Errors
    /// The bucket cannot be listed or read.
    pub fn unfinished(&self, directory: &str) -> Result<Vec<Unfinished>, StoreError> {
        let (client, directory) = (self.client.clone(), directory.to_string());
        wait(async move { writer::unfinished(&client, &directory).await })
    }

    /// All objects below a directory (empty, or with a slash at the end) in order of their keys, also those that [`Store::list`]
    /// passes over.
    ///
    /// # Errors
    /// The bucket cannot be listed.
    pub fn below(&self, directory: &str) -> Result<Vec<Object>, StoreError> {
        let (client, directory) = (self.client.clone(), directory.to_string());
        wait(async move { list::keys(&client, &directory, |_| true).await })
    }

    /// Removes objects, a few at once; those that are not there are no error.
    ///
    /// # Errors
    /// The first that could not be removed; others may be there or not.
    pub fn delete_all(&self, keys: Vec<String>) -> Result<(), StoreError> {
        let client = self.client.clone();
        wait(async move {
            let all = keys.into_iter().map(|key| {
                let client = client.clone();
                async move { writer::remove(&client, &key).await }
            });
            stream::iter(all).buffer_unordered(REMOVED_AT_ONCE).try_collect::<Vec<()>>().await.map(drop)
        })
    }

    /// Removes an object, if there is one.
    ///
    /// # Errors
    /// The store refuses.
    pub fn delete(&self, key: &str) -> Result<(), StoreError> {
        let (client, key) = (self.client.clone(), key.to_string());
        wait(async move { writer::remove(&client, &key).await })
    }

    /// Puts an object, replacing what is there.
    ///
    /// # Errors
    /// The store refuses.
    pub fn put(&self, key: &str, bytes: Bytes) -> Result<(), StoreError> {
        let (client, key) = (self.client.clone(), key.to_string());
        wait(async move {
            let (bucket, path) = (client.bucket("writing to")?, client.path(&key)?);
            bucket.objects.put(&path, bytes.into()).await.map_err(|e| client.failed("writing", &key, &e))?;
            Ok(())
        })
    }

    /// Puts an object if there is none: `false` if somebody was first. If an answer was lost on the way, that somebody may
    /// have been this call; who must know puts something into `bytes` that nobody else does.
    ///
    /// # Errors
    /// The store refuses, or knows no such condition.
    pub fn put_new(&self, key: &str, bytes: Bytes) -> Result<bool, StoreError> {
        let (client, key) = (self.client.clone(), key.to_string());
        wait(async move {
            let (bucket, path) = (client.bucket("writing to")?, client.path(&key)?);
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match bucket.objects.put_opts(&path, bytes.into(), options).await {
                Ok(_) => Ok(true),
                Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
                Err(e) => Err(client.failed("writing", &key, &e)),
            }
        })
    }

    /// The whole of a small object with its version; `None` if there is none.
    ///
    /// # Errors
    /// The request was refused or failed.
    pub(crate) fn read_version(&self, key: &str) -> Result<Option<(Bytes, UpdateVersion)>, StoreError> {
        let (client, key) = (self.client.clone(), key.to_string());
        wait(async move {
            let (bucket, path) = (client.bucket("reading")?, client.path(&key)?);
            let result = match bucket.objects.get(&path).await {
                Ok(result) => result,
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                Err(e) => return Err(client.failed("reading", &key, &e)),
            };
            let version = UpdateVersion { e_tag: result.meta.e_tag.clone(), version: result.meta.version.clone() };
            let bytes = result.bytes().await.map_err(|e| client.failed("reading", &key, &e))?;
            Ok(Some((bytes, version)))
        })
    }

    /// Puts an object in the place of this version of it, or, without one, where there is none; its version, or `None` if something
    /// else is there. As with [`Store::put_new`], that may be what this call has put, if the answer was lost.
    ///
    /// # Errors
    /// The store refuses, or knows no such condition.
    pub(crate) fn put_over(&self, key: &str, bytes: Bytes, over: Option<UpdateVersion>) -> Result<Option<UpdateVersion>, StoreError> {
        let (client, key) = (self.client.clone(), key.to_string());
        wait(async move {
            use object_store::Error as E;
            let (bucket, path) = (client.bucket("writing to")?, client.path(&key)?);
            let mode = over.map_or(PutMode::Create, PutMode::Update);
            let options = PutOptions { mode, ..PutOptions::default() };
            match bucket.objects.put_opts(&path, bytes.into(), options).await {
                Ok(result) => Ok(Some(UpdateVersion::from(result))),
                Err(E::AlreadyExists { .. } | E::Precondition { .. } | E::NotFound { .. }) => Ok(None),
                Err(e) => Err(client.failed("writing", &key, &e)),
            }
        })
    }

    /// Removes an object, if there is one, that whoever holds `lock` may remove. Removing knows no condition, so it is done soon after
    /// the lock was renewed, or not at all: not by a repetition, nor after the machine slept.
    ///
    /// # Errors
    /// The lock was lost; the store refuses, or does not answer in time.
    pub fn delete_held(&self, key: &str, lock: &Lock) -> Result<(), StoreError> {
        lock.renew()?;
        let (client, key, renewed) = (self.client.clone(), key.to_string(), lock.renewed());
        wait(async move {
            let late = || {
                let why = format!("removing '{}': no answer within {} s; try again", client.url(&key), lock::REMOVED_WITHIN.as_secs());
                StoreError::new(Kind::Network, why)
            };
            renewed.within(lock::REMOVED_WITHIN, writer::remove(&client, &key)).await.ok_or_else(late)?
        })
    }

    /// Makes `directory` (empty, or with a slash at the end) this process's to write to, until the lock is dropped. With
    /// `job`, the name of a job that cannot run twice at once, what an earlier run left is taken over without waiting.
    ///
    /// # Errors
    /// Somebody else writes there: who; the store refuses.
    pub fn lock(&self, directory: &str, job: Option<&str>) -> Result<Lock, StoreError> {
        lock::acquire(self.client.clone(), directory, format!("{directory}{}", lock::LOCK), job)
    }

    /// As [`Store::lock`] for a single object, whose neighbours others may write.
    ///
    /// # Errors
    /// As [`Store::lock`].
    pub fn lock_file(&self, key: &str) -> Result<Lock, StoreError> {
        let directory = writer::parent(key);
        lock::acquire(self.client.clone(), key, format!("{directory}{}.{}", lock::LOCK, &key[directory.len()..]), None)
    }
}
