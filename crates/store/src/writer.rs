//! Writing an object: parts go up while bytes come, and nothing is visible until it is completed.
//!
//! An upload that nobody completes keeps costing money and no list shows it. So before its first part a *mark* is put into
//! the directory that is written to, `<directory>/_tidemill/uploads/<name>.<…>`, which holds the upload's id and whose it is; it is
//! removed when the upload is completed or aborted. What a killed process leaves behind is found by the marks. A process
//! killed between the two requests leaves an upload without parts, which costs nothing.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::multipart::PartId;
use object_store::{ObjectStoreExt, PutPayload};
use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;

use crate::client::Client;
use crate::error::{Kind, StoreError};
use crate::list;
use crate::pace::{Budget, Ticket};
use crate::runtime::{spawn, wait, wait_briefly};
use crate::{Pending, Scheme, Unfinished};

/// What all writers of the process may have under way; each may have one part even so.
static BUDGET: Budget = Budget::new(128 << 20);
/// Parts after which parts double in size: no store takes more than 10,000. At 8 MiB this allows 500 GB.
const GROWS_AFTER: usize = 1_000;
/// How often they double.
const GROWS_MAX: usize = 3;
/// The largest number of parts that a store takes.
const PARTS_MAX: usize = 10_000;
/// How long a writer that was dropped waits for its upload to be aborted.
const ABORT_WAIT: Duration = Duration::from_secs(10);
/// Longer than all repetitions of a request take.
const PART_WAIT: Duration = Duration::from_secs(900);
/// Objects looked at together.
const LOOKED_AT_ONCE: usize = 16;
/// Below a directory: where marks lie. Names with `_` are passed over by readers.
const MARKS: &str = "_tidemill/uploads/";

/// What a mark holds.
#[derive(Serialize, Deserialize)]
struct Mark {
    key: String,
    upload: String,
    owner: Option<String>,
}

/// Writes one object. Dropped without [`ObjectWriter::upload`], it aborts the upload.
pub struct ObjectWriter {
    client: Arc<Client>,
    pending: Pending,
    /// Whether the upload is this writer's to abort.
    open: bool,
    buffer: Vec<u8>,
    part_bytes: usize,
    /// Ids of parts by number, once they are up.
    parts: Vec<Option<String>>,
    flying: usize,
    /// The requests of those, and maybe of some that are over.
    tasks: Vec<AbortHandle>,
    done: (Sender<Sent>, Receiver<Sent>),
    failed: Option<StoreError>,
}

/// A part's number, and its id.
type Sent = (usize, Result<String, StoreError>);

/// The directory that a key lies in: empty, or with a slash at the end.
pub(crate) fn parent(key: &str) -> &str {
    key.rfind('/').map_or("", |slash| &key[..slash + 1])
}

fn mark_key(directory: &str, key: &str, upload: &str) -> String {
    let name = &key[parent(key).len()..];
    // Ids of uploads may be long and hold anything; FNV-1a tells those of one name apart.
    let hash = key.bytes().chain(upload.bytes()).fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("{directory}{MARKS}{name}.{hash:016x}")
}

impl ObjectWriter {
    /// Begins an upload to `key`, its mark below `directory`. With `owner`, somebody will come back for it after a crash.
    ///
    /// # Errors
    /// The store refuses.
    pub(crate) fn new(client: Arc<Client>, directory: &str, key: &str, owner: Option<String>) -> Result<Self, StoreError> {
        let path = client.path(key)?;
        let bucket = client.bucket("writing to")?;
        let (begin, directory, target) = (client.clone(), directory.to_string(), key.to_string());
        let pending = wait(async move {
            let failed = |e: &object_store::Error| begin.failed("beginning to write", &target, e);
            let (there, upload) = tokio::join!(list::head(&begin, &target), bucket.uploads.create_multipart(&path));
            let upload = upload.map_err(|e| failed(&e))?;
            let before = match there {
                Ok(object) => Some(object.etag.unwrap_or_default()),
                Err(e) if e.kind() == Kind::NotFound => None,
                Err(e) => {
                    // As below: it has no part yet.
                    let _ = bucket.uploads.abort_multipart(&path, &upload).await;
                    return Err(e);
                }
            };
            let mark = mark_key(&directory, &target, &upload);
            let content = serde_json::to_vec(&Mark { key: target.clone(), upload: upload.clone(), owner })
                .map_err(|e| StoreError::new(Kind::Other, format!("internal error: the mark of an upload: {e}")))?;
            if let Err(e) = bucket.objects.put(&begin.path(&mark)?, content.into()).await {
                // Without a part the upload costs nothing, whether this succeeds or not.
                let _ = bucket.uploads.abort_multipart(&path, &upload).await;
                return Err(failed(&e));
            }
            Ok(Pending { key: target, size: 0, upload, parts: Vec::new(), before, mark })
        })?;
        let part_bytes = client.part_bytes;
        Ok(ObjectWriter {
            client,
            pending,
            open: true,
            buffer: Vec::new(),
            part_bytes,
            parts: Vec::new(),
            flying: 0,
            tasks: Vec::new(),
            done: channel(),
            failed: None,
        })
    }

    /// The URL that the object will have.
    pub fn url(&self) -> String {
        self.client.url(&self.pending.key)
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.pending.size
    }

    /// Notes a part that came up, waiting for one if there is none yet.
    fn reap(&mut self) -> Result<(), StoreError> {
        match self.done.1.recv_timeout(PART_WAIT) {
            Ok((number, sent)) => self.note(number, sent),
            Err(_) => {
                let why = format!("writing '{}': a part is not up after {} s", self.url(), PART_WAIT.as_secs());
                let e = StoreError::new(Kind::Network, why);
                self.failed = Some(e.clone());
                Err(e)
            }
        }
    }

    fn note(&mut self, number: usize, sent: Result<String, StoreError>) -> Result<(), StoreError> {
        self.flying -= 1;
        match sent {
            Ok(id) => {
                self.parts[number] = Some(id);
                Ok(())
            }
            Err(e) => {
                self.failed.get_or_insert_with(|| e.clone());
                Err(e)
            }
        }
    }

    /// Sends the buffer up as the next part.
    fn send(&mut self) -> Result<(), StoreError> {
        while let Ok((number, sent)) = self.done.1.try_recv() {
            self.note(number, sent)?;
        }
        let number = self.parts.len();
        if number >= PARTS_MAX {
            let why = format!("it would have more than {PARTS_MAX} parts; raise 'store.part-size', or write several files");
            let why = format!("writing '{}': {why}", self.url());
            return Err(StoreError::new(Kind::Other, why));
        }
        let ticket: Ticket = loop {
            let bytes = self.buffer.len() as u64;
            if self.flying < self.client.parallel.max(1)
                && let Some(ticket) = BUDGET.ticket(bytes, self.flying == 0)
            {
                break ticket;
            }
            self.reap()?;
        };
        let body = Bytes::from(std::mem::take(&mut self.buffer));
        let (client, upload, done) = (self.client.clone(), self.pending.upload.clone(), self.done.0.clone());
        let (path, bucket) = (client.path(&self.pending.key)?, client.bucket("writing to")?);
        let key = self.pending.key.clone();
        self.parts.push(None);
        self.flying += 1;
        let task = spawn(async move {
            let sent = bucket.uploads.put_part(&path, &upload, number, PutPayload::from(body)).await;
            drop(ticket);
            let sent = sent.map(|part| part.content_id).map_err(|e| client.failed("writing", &key, &e));
            // A writer that is gone has aborted the upload.
            let _ = done.send((number, sent));
        })?;
        self.tasks.retain(|task| !task.is_finished());
        self.tasks.push(task);
        self.part_bytes = self.client.part_bytes << (self.parts.len() / GROWS_AFTER).min(GROWS_MAX);
        Ok(())
    }

    /// Sends what is left and waits until all parts are up. Nothing is visible yet: that is [`crate::Store::complete`].
    ///
    /// # Errors
    /// A part that could not be written; the upload is then aborted.
    pub fn upload(mut self) -> Result<Pending, StoreError> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        if !self.buffer.is_empty() {
            self.send()?;
        }
        while self.flying > 0 {
            self.reap()?;
        }
        self.open = false;
        let mut pending = self.pending.clone();
        pending.parts = std::mem::take(&mut self.parts).into_iter().map(|id| id.expect("every part has come up")).collect();
        Ok(pending)
    }
}

impl Write for ObjectWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(e) = &self.failed {
            return Err(e.clone().into());
        }
        if self.buffer.capacity() == 0 {
            // Small objects shall not cost a part's memory.
            self.buffer.reserve(bytes.len().min(self.part_bytes));
        }
        let n = bytes.len().min(self.part_bytes - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..n]);
        self.pending.size += n as u64;
        if self.buffer.len() >= self.part_bytes {
            self.send().inspect_err(|e| {
                self.failed.get_or_insert_with(|| e.clone());
            })?;
        }
        Ok(n)
    }

    /// Nobody sees bytes before the object is completed, so there is nothing to hand on.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for ObjectWriter {
    fn drop(&mut self) {
        if self.open {
            // A part that came up behind the abort would stay.
            self.tasks.iter().for_each(AbortHandle::abort);
            let (client, pending) = (self.client.clone(), self.pending.clone());
            wait_briefly(ABORT_WAIT, async move {
                // What this leaves is found by its mark.
                let _ = abort(&client, &pending).await;
            });
        }
    }
}

/// Makes an upload visible; nothing happens if it is visible already.
///
/// # Errors
/// The upload is gone, and there is no such object either; the store refuses.
pub(crate) async fn complete(client: &Client, pending: &Pending) -> Result<(), StoreError> {
    let bucket = client.bucket("committing in")?;
    let path = client.path(&pending.key)?;
    let parts = pending.parts.iter().map(|id| PartId { content_id: id.clone() }).collect();
    if let Err(e) = bucket.uploads.complete_multipart(&path, &pending.upload, parts).await {
        // A crash, or an answer that was lost, may lie between the deed and this repetition.
        if !is_complete(client, pending).await.map_err(|e| e.at("committing"))? {
            let error = client.failed("committing", &pending.key, &e);
            return Err(match error.kind() {
                Kind::NotFound => {
                    // It leads nowhere any more: who comes back finds the upload gone before committing it.
                    let _ = remove(client, &pending.mark).await;
                    let why = format!(
                        "committing '{}': its upload is gone, and there is no such object, so rows that count as written are lost; was it \
                         aborted by hand or by a rule of the bucket for old uploads? Start without the checkpoint",
                        client.url(&pending.key)
                    );
                    StoreError::new(Kind::NotFound, why)
                }
                _ => error,
            });
        }
    }
    // A mark that stays leads to an upload that is over; whoever finds it removes it.
    let _ = remove(client, &pending.mark).await;
    Ok(())
}

/// Whether the object of an upload is there: of its size, and another than was there before it.
///
/// # Errors
/// The store refuses.
pub(crate) async fn is_complete(client: &Client, pending: &Pending) -> Result<bool, StoreError> {
    match list::head(client, &pending.key).await {
        Ok(object) => Ok(object.size == pending.size && Some(object.etag.unwrap_or_default()) != pending.before),
        Err(e) if e.kind() == Kind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// The keys of uploads into `directory` that are neither under way, as their marks say, nor complete.
///
/// # Errors
/// The store refuses.
pub(crate) async fn gone(client: &Arc<Client>, directory: &str, uploads: Vec<Pending>) -> Result<BTreeSet<String>, StoreError> {
    if uploads.is_empty() {
        return Ok(BTreeSet::new());
    }
    let marks = list::keys(client, &format!("{directory}{MARKS}"), |_| true).await?;
    // The list is sorted.
    let marked = |upload: &Pending| marks.binary_search_by(|mark| mark.key.as_str().cmp(&upload.mark)).is_ok();
    let rest: Vec<Pending> = uploads.into_iter().filter(|upload| !marked(upload)).collect();
    let looked = rest.into_iter().map(|upload| {
        let client = client.clone();
        async move { is_complete(&client, &upload).await.map(|complete| (!complete).then_some(upload.key)) }
    });
    let found: Vec<Option<String>> = stream::iter(looked).buffer_unordered(LOOKED_AT_ONCE).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// Gives an upload up; nothing happens if it is over.
///
/// # Errors
/// The store refuses.
pub(crate) async fn abort(client: &Client, pending: &Pending) -> Result<(), StoreError> {
    let bucket = client.bucket("clearing up in")?;
    let path = client.path(&pending.key)?;
    match bucket.uploads.abort_multipart(&path, &pending.upload).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
        Err(e) => return Err(client.failed("giving up the upload of", &pending.key, &e)),
    }
    remove(client, &pending.mark).await
}

/// Removes an object; nothing happens if there is none.
///
/// # Errors
/// The store refuses.
pub(crate) async fn remove(client: &Client, key: &str) -> Result<(), StoreError> {
    let bucket = client.bucket("removing from")?;
    match bucket.objects.delete(&client.path(key)?).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(e) => Err(match client.failed("removing", key, &e) {
            e if e.kind() == Kind::Denied => {
                // Accounts that may write and not remove are common, and fail only here.
                let right = match client.scheme {
                    Scheme::Google => "storage.objects.delete",
                    Scheme::S3 => "s3:DeleteObject",
                    Scheme::Azure | Scheme::Http => "delete (d)",
                };
                StoreError::new(Kind::Denied, format!("{e}. Removing needs the permission {right}"))
            }
            e => e,
        }),
    }
}

/// The uploads into a directory that were begun and are not over. `directory` is empty or ends with a slash.
///
/// # Errors
/// The bucket cannot be listed or read.
pub(crate) async fn unfinished(client: &Client, directory: &str) -> Result<Vec<Unfinished>, StoreError> {
    let bucket = client.bucket("looking for uploads in")?;
    let marks = list::keys(client, &format!("{directory}{MARKS}"), |_| true).await?;
    let mut found = Vec::with_capacity(marks.len());
    for object in marks {
        let failed = |e: object_store::Error| client.failed("reading", &object.key, &e);
        let body = match bucket.objects.get(&client.path(&object.key)?).await {
            Ok(result) => result.bytes().await.map_err(failed)?,
            // Its upload was over in the meantime.
            Err(object_store::Error::NotFound { .. }) => continue,
            Err(e) => return Err(failed(e)),
        };
        let mark: Mark = serde_json::from_slice(&body).map_err(|e| {
            let why = format!("'{}' is no mark of an upload: {e}; remove it if nothing writes there", object.url);
            StoreError::new(Kind::Other, why)
        })?;
        let pending = Pending { key: mark.key, size: 0, upload: mark.upload, parts: Vec::new(), before: None, mark: object.key.clone() };
        found.push(Unfinished { owner: mark.owner, pending });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_lie_beside_their_object_and_differ_by_upload() {
        let marks = [("a/b/x.csv", "1"), ("a/b/x.csv", "2"), ("a/x.csv", "1")].map(|(key, upload)| mark_key("a/", key, upload));
        assert!(marks.iter().all(|mark| mark.starts_with("a/_tidemill/uploads/x.csv.")));
        assert!(marks[0] != marks[1] && marks[0] != marks[2]);
        assert!(mark_key("", "x.csv", "1").starts_with("_tidemill/uploads/x.csv."));
        assert_eq!((parent("x"), parent("a/b/x")), ("", "a/b/"));
    }
}
