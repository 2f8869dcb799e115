//! A stream: its two sides, and what publishers and subscribers ask it for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use tidemill_connect::{ConnectError, Waker};

use crate::connector::DeliveryMode;
use crate::error::{HubError, Refusal};
use crate::inlet::Inlet;
use crate::log::Log;
use crate::outlet::Outlet;
use crate::publisher::Publisher;
use crate::subscriber::Subscriber;

/// The last column of an updating stream on its way to subscribers: TINYINT, Flink's codes of row
/// kinds (0 `+I`, 1 `-U`, 2 `+U`, 3 `-D`).
pub const ROW_KIND: &str = "row_kind";

/// How far the rows of a publisher have come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// How many of its rows there are: the number of the next one.
    pub offset: u64,
    /// What the publisher said of where row `offset` stands in its own input.
    pub position: Option<serde_json::Value>,
}

/// Where a subscriber begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// With the next row.
    #[default]
    Now,
    /// With the current contents as new rows, then every change.
    Snapshot,
    /// With the oldest row that is kept.
    Earliest,
    /// With the row of this number.
    Offset(u64),
    /// After the rows that the subscriber of this name has acknowledged; with the oldest row kept if
    /// the name is new.
    Acknowledged,
}

/// What happens to a subscriber whose queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Slow {
    /// It is dropped, and told so.
    #[default]
    Drop,
    /// The job waits for it, a minute at most without any progress; then it is dropped.
    Wait,
}

/// What a subscriber asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SubscribeRequest {
    /// Where to begin.
    pub from: From,
    /// The name under which it acknowledges rows. A second subscriber of a name ends the first.
    pub name: Option<String>,
    /// What happens when its queue is full.
    pub slow: Slow,
    /// Bound of its queue, bytes; by default the stream's `stream.queue-bytes`.
    pub queue_bytes: Option<u64>,
}

/// What is written to a stream, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutletInfo {
    /// Rows may be updated or deleted: there is a column `row_kind`.
    pub updating: bool,
    /// When rows reach subscribers.
    pub delivery: DeliveryMode,
    /// Whether subscribers may begin with the current contents.
    pub snapshot: bool,
    /// The columns of the primary key; empty if none is declared.
    pub primary_key: Vec<String>,
}

/// What a stream has done since the process began, and how it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamStats {
    /// Rows taken from publishers.
    pub published_rows: u64,
    /// Bytes of these rows, as the publishers counted them.
    pub published_bytes: u64,
    /// Rows handed to subscribers, each counted for every subscriber.
    pub delivered_rows: u64,
    /// Bytes in memory of these rows.
    pub delivered_bytes: u64,
    /// Publishers connected.
    pub publishers: u64,
    /// Subscribers connected.
    pub subscribers: u64,
    /// Subscribers that were too slow and were dropped.
    pub dropped_subscribers: u64,
    /// Bytes of the log on disk.
    pub log_bytes: u64,
    /// The number of the next row that leaves the stream.
    pub next_offset: u64,
    /// Rows that publishers sent again and that were cut off.
    pub duplicates_rows: u64,
    /// Bytes that wait in the inlet for the job.
    pub queue_bytes: u64,
    /// How often a publisher was refused because its rows have other columns, or are not new where only such are taken.
    pub refused_schema: u64,
    /// … because no rows could be made of its bytes.
    pub refused_malformed: u64,
    /// … because of a NULL where none may be.
    pub refused_null: u64,
    /// … because rows before those that it sent were missing.
    pub refused_gap: u64,
    /// … because it sent more at once than is taken.
    pub refused_too_large: u64,
}

impl StreamStats {
    /// How often publishers were refused for this reason.
    pub fn refused(&self, why: Refusal) -> u64 {
        match why {
            Refusal::Schema => self.refused_schema,
            Refusal::Malformed => self.refused_malformed,
            Refusal::Null => self.refused_null,
            Refusal::Gap => self.refused_gap,
            Refusal::TooLarge => self.refused_too_large,
        }
    }
}

/// Counters of a stream, over all its runs.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub published_rows: AtomicU64,
    pub published_bytes: AtomicU64,
    pub delivered_rows: AtomicU64,
    pub delivered_bytes: AtomicU64,
    pub dropped_subscribers: AtomicU64,
    pub duplicates_rows: AtomicU64,
    /// In the order of [`Refusal::ALL`].
    pub refused: [AtomicU64; Refusal::ALL.len()],
    /// The number of the next row of a `live` stream, as the last run of its job left it: counted on, a
    /// subscriber that comes again learns by its number whether it has missed rows.
    pub live_offset: AtomicU64,
}

/// A named stream. See the crate.
pub struct Stream {
    name: String,
    pub(crate) inlet: Inlet,
    outlet: Mutex<Option<Arc<Outlet>>>,
    /// The log of the outlet that ended last, as long as its subscribers are there and acknowledge rows.
    left: Mutex<Weak<Log>>,
    pub(crate) counters: Arc<Counters>,
}

impl Stream {
    pub(crate) fn new(name: &str) -> Self {
        let counters = Arc::new(Counters::default());
        let inlet = Inlet::new(name, counters.clone());
        Stream { name: name.to_string(), inlet, outlet: Mutex::new(None), left: Mutex::default(), counters }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The columns that publishers send; `None` if no running job reads the stream.
    pub fn inlet_schema(&self) -> Option<SchemaRef> {
        self.inlet.schema()
    }

    /// Whether publishers may say what rows do, in the last of these columns; where it is NULL or left out, rows are new
    /// ones.
    pub fn inlet_changes(&self) -> bool {
        self.inlet.changes()
    }

    /// The columns of these that the job uses which reads the stream; `None` if it uses all. The others may
    /// be NULL, nobody sees them.
    pub fn inlet_wanted(&self) -> Option<Arc<[String]>> {
        self.inlet.wanted()
    }

    /// The columns that subscribers get, with `row_kind` if rows are updated; `None` if no running job
    /// writes the stream.
    pub fn outlet_schema(&self) -> Option<SchemaRef> {
        self.outlet().map(|o| o.wire.clone())
    }

    /// How the stream is written; `None` if no running job does.
    pub fn outlet_info(&self) -> Option<OutletInfo> {
        self.outlet().map(|o| o.info.clone())
    }

    /// What it has done and how it stands.
    pub fn stats(&self) -> StreamStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let refused = |why: Refusal| read(&self.counters.refused[why as usize]);
        let (publishers, queue_bytes) = self.inlet.standing();
        let mut stats = StreamStats {
            published_rows: read(&self.counters.published_rows),
            published_bytes: read(&self.counters.published_bytes),
            delivered_rows: read(&self.counters.delivered_rows),
            delivered_bytes: read(&self.counters.delivered_bytes),
            dropped_subscribers: read(&self.counters.dropped_subscribers),
            duplicates_rows: read(&self.counters.duplicates_rows),
            refused_schema: refused(Refusal::Schema),
            refused_malformed: refused(Refusal::Malformed),
            refused_null: refused(Refusal::Null),
            refused_gap: refused(Refusal::Gap),
            refused_too_large: refused(Refusal::TooLarge),
            publishers,
            queue_bytes,
            ..StreamStats::default()
        };
        if let Some(outlet) = self.outlet() {
            (stats.subscribers, stats.next_offset, stats.log_bytes) = outlet.standing();
        }
        stats
    }

    /// Counts that a publisher was refused. For those who look at rows before a [`Publisher`] gets them, which counts
    /// what it refuses itself.
    pub fn count_refused(&self, why: Refusal) {
        self.counters.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A publisher called `id`; with an empty `id` nothing is kept of it beyond the connection. `waker`
    /// is called when there is room again, when rows were acknowledged, and when the publisher is gone.
    /// A second publisher of the same name ends the first.
    ///
    /// # Errors
    /// [`HubError::NotPublished`], [`HubError::TooMany`].
    pub fn publisher(self: &Arc<Self>, id: &str, waker: Waker) -> Result<Publisher, HubError> {
        Publisher::open(self, id, waker)
    }

    /// A subscriber. `waker` is called when there may be more after [`crate::Received::Pending`].
    ///
    /// # Errors
    /// [`HubError::NotSubscribable`]; [`HubError::Refused`]; [`HubError::Gone`] if the job ends at this
    /// moment; [`HubError::Io`] for what is kept on disk.
    pub fn subscribe(self: &Arc<Self>, request: SubscribeRequest, waker: Waker) -> Result<Subscriber, HubError> {
        Subscriber::open(self, self.running()?, request, waker)
    }

    /// Up to `limit` rows of the current contents, without `row_kind`; `None` if the stream keeps none
    /// or no running job writes it. Those of an `exactly-once` stream are of its last checkpoint.
    pub fn contents(&self, limit: usize) -> Option<RecordBatch> {
        self.outlet()?.contents(limit)
    }

    /// The names under which subscribers acknowledge rows, and how many rows each has acknowledged.
    pub fn subscriptions(&self) -> BTreeMap<String, u64> {
        self.outlet().and_then(|o| o.log.as_ref().map(|l| l.acknowledged())).unwrap_or_default()
    }

    /// Forgets a name, so that its rows need no longer be kept. False if it is not known.
    ///
    /// # Errors
    /// No running job writes the stream, or it cannot be written down.
    pub fn forget(&self, name: &str) -> Result<bool, HubError> {
        self.running()?.log.as_ref().map_or(Ok(false), |log| log.forget(name))
    }

    /// Forgets a publisher's name, which then begins at its first row. False if it is not known.
    ///
    /// # Errors
    /// [`HubError::Refused`] while it is connected.
    pub fn forget_publisher(&self, name: &str) -> Result<bool, HubError> {
        self.inlet.forget(name)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Outlet>>> {
        // A job that panics must not take the peers of others with it.
        self.outlet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn outlet(&self) -> Option<Arc<Outlet>> {
        self.lock().clone()
    }

    fn running(&self) -> Result<Arc<Outlet>, HubError> {
        self.outlet()
            .ok_or_else(|| HubError::NotSubscribable(format!("no running job writes stream '{}'; start its job and try again", self.name)))
    }

    /// Makes `outlet` the one that subscribers find. A writer of the same run may join in, if the order
    /// of rows among writers does not matter.
    ///
    /// # Errors
    /// Another job or another table writes the stream.
    pub(crate) fn attach(&self, outlet: Outlet) -> Result<Arc<Outlet>, ConnectError> {
        let mut place = self.lock();
        match &*place {
            Some(there) if there.joins(&outlet) => Ok(there.clone()),
            Some(there) if there.run == outlet.run => Err(ConnectError::new(format!(
                "stream '{}' is written twice by this job, which an 'exactly-once' stream or one with 'stream.snapshot' cannot take, nor one with other columns; write one INSERT with UNION ALL",
                self.name
            ))),
            Some(_) => Err(self.written()),
            None => {
                let outlet = Arc::new(outlet);
                *place = Some(outlet.clone());
                Ok(outlet)
            }
        }
    }

    /// Does something quick with the stream's files, while nobody writes it or can begin to. What
    /// subscribers of the last run have acknowledged is written down before, and nothing of it after.
    ///
    /// # Errors
    /// Somebody writes it; what `work` fails with.
    pub(crate) fn unwritten<T>(&self, work: impl FnOnce() -> Result<T, ConnectError>) -> Result<T, ConnectError> {
        let place = self.lock();
        if place.is_some() {
            return Err(self.written());
        }
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(log) = left {
            log.close();
        }
        work()
    }

    fn written(&self) -> ConnectError {
        ConnectError::new(format!(
            "stream '{}' is written by another running job; stop that job, or give this table another 'stream.name'",
            self.name
        ))
    }

    /// A writer is done; with the last one the outlet ends.
    pub(crate) fn detach(&self, outlet: &Arc<Outlet>) {
        let mut place = self.lock();
        if outlet.leave() && place.as_ref().is_some_and(|there| Arc::ptr_eq(there, outlet)) {
            if let Some(log) = &outlet.log {
                *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(log);
            }
            *place = None;
        }
    }
}
