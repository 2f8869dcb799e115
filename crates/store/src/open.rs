//! Bodies: opened at a byte, continued where they broke, counted.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::GetOptions;
use tokio::time::{sleep, timeout};

use crate::client::{Backend, Client};
use crate::error::{Kind, StoreError};
use crate::explain::shown;
use crate::runtime::backoff;
use crate::{Object, SIZE_UNKNOWN};

/// Bytes of bodies that this process has received.
static RECEIVED: AtomicU64 = AtomicU64::new(0);

/// Bytes received by this process from stores and web servers: bodies, without headers and lists.
pub fn network_bytes() -> u64 {
    RECEIVED.load(Ordering::Relaxed)
}

/// Time that readers of this process have waited for bytes, ns, those that wait at once added up.
static WAITED_NS: AtomicU64 = AtomicU64::new(0);

/// How long readers of this process have waited for stores and web servers, those that wait at once added up.
pub fn network_waited() -> Duration {
    Duration::from_nanos(WAITED_NS.load(Ordering::Relaxed))
}

/// A reader has waited since then.
pub(crate) fn waited(since: Instant) {
    WAITED_NS.fetch_add(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// A body that has not been read yet.
pub(crate) struct Answer {
    /// Where in the object it begins: at or before the byte asked for.
    pub start: u64,
    pub body: BoxStream<'static, Result<Bytes, StoreError>>,
}

/// Begins to read at `from`. The answer is an error if the object is not the version that `object` is.
async fn open(client: &Client, object: &Object, from: u64, end: Option<u64>) -> Result<Answer, StoreError> {
    match &client.backend {
        Backend::Web(site) => site.open(&object.url, object, from, end).await,
        Backend::Bucket { objects, .. } => {
            let mut options = GetOptions::new().with_if_match(object.etag.clone());
            if from > 0 || end.is_some_and(|end| end < object.size) {
                options = options.with_range(Some(from..end.unwrap_or(object.size)));
            }
            let doing = format!("reading '{}'", object.url);
            let failed = |e: object_store::Error| StoreError::of(&doing, client.scheme, &e);
            let result = objects.get_opts(&client.path(&object.key)?, options).await.map_err(failed)?;
            if result.meta.size != object.size {
                return Err(StoreError::explain(&doing, client.scheme, Kind::Changed, None, "its size is another one"));
            }
            let (start, scheme) = (result.range.start, client.scheme);
            let body = result.into_stream().map(move |frame| frame.map_err(|e| StoreError::of(&doing, scheme, &e)));
            Ok(Answer { start, body: body.boxed() })
        }
    }
}

/// Whether asking again may help.
fn passing(kind: Kind) -> bool {
    matches!(kind, Kind::Busy | Kind::Server | Kind::Network | Kind::Other)
}

/// What takes a body as it comes.
pub(crate) trait Take: Send {
    /// Takes bytes; whether more are wanted.
    fn take(&mut self, bytes: Bytes) -> impl Future<Output = bool> + Send;
}

/// Reads `[from, end)` of an object, or to its end, into `sink`, in order. A body that breaks is continued at the byte where it
/// broke, again and again while that gives bytes, `retries` times where it does not.
///
/// # Errors
/// The object has changed; the request was refused; repetitions did not help.
pub(crate) async fn pull(client: &Client, object: &Object, from: u64, end: Option<u64>, sink: &mut impl Take) -> Result<(), StoreError> {
    // Without a size the body ends where the server says so.
    let end = end.or((object.size != SIZE_UNKNOWN).then_some(object.size));
    let mut at = from;
    let mut fruitless = 0;
    while end.is_none_or(|end| at < end) {
        let before = at;
        let Answer { start, mut body } = open(client, object, at, end).await?;
        let mut skip = at - start;
        let error = loop {
            if end.is_some_and(|end| at >= end) {
                return Ok(());
            }
            match timeout(client.silence, body.next()).await {
                Ok(Some(Ok(mut bytes))) => {
                    RECEIVED.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    if skip > 0 {
                        // The server has begun before the byte that was asked for: it knows no ranges.
                        let over = skip.min(bytes.len() as u64);
                        bytes = bytes.slice(over as usize..);
                        skip -= over;
                    }
                    if let Some(end) = end {
                        bytes.truncate(usize::try_from(end - at).unwrap_or(usize::MAX));
                    }
                    at += bytes.len() as u64;
                    if !bytes.is_empty() && !sink.take(bytes).await {
                        return Ok(());
                    }
                }
                Ok(Some(Err(e))) => break e,
                Ok(None) if end.is_none() => return Ok(()),
                Ok(None) => break broken(client, object, at, "the body is shorter than was announced"),
                Err(_) => break broken(client, object, at, &format!("nothing came for {}", shown(client.silence))),
            }
        };
        fruitless = if at > before { 0 } else { fruitless + 1 };
        if !passing(error.kind()) || fruitless > client.retries {
            return Err(error);
        }
        sleep(backoff(fruitless)).await;
    }
    Ok(())
}

fn broken(client: &Client, object: &Object, at: u64, why: &str) -> StoreError {
    StoreError::explain(format!("reading '{}' at byte {at}", object.url), client.scheme, Kind::Network, None, why)
}

/// Gathers a body in one piece.
struct Gather(Vec<u8>);

impl Take for Gather {
    async fn take(&mut self, bytes: Bytes) -> bool {
        self.0.extend_from_slice(&bytes);
        true
    }
}

/// Reads a range as one piece.
///
/// # Errors
/// As [`pull`].
pub(crate) async fn collect(client: Arc<Client>, object: Object, range: Range<u64>) -> Result<Bytes, StoreError> {
    let mut gather = Gather(Vec::with_capacity((range.end - range.start) as usize));
    pull(&client, &object, range.start, Some(range.end), &mut gather).await?;
    Ok(gather.0.into())
}
