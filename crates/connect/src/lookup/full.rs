//! A lookup table that is read whole and kept in memory: any bounded source can serve.
//!
//! A thread reads the table when the first key is asked for, and again at each reload interval; keys are
//! answered from what was read last, a block of them at once. Rows that a source cannot decode are errors:
//! a table with gaps would answer wrongly without a word. [`index`] finds the rows of keys. What does
//! not live here: a bound on the size of the table, which must fit into memory.

mod index;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::SchemaRef;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use self::index::Index;
use crate::lookup::{Answer, CacheKind, Failure, Found, Lookup, LookupContext, LookupOptions, LookupTable};
use crate::{ConnectError, Polled, ReadRequest, ReaderContext, Source, Waker};

/// Keys of a call: a block of rows is one call.
const KEYS_MAX: usize = 8192;
/// Rows asked of a reader at once.
const READ_ROWS: usize = 8192;
/// How long to wait for a reader that has nothing and does not wake.
const PATIENCE: Duration = Duration::from_millis(100);
/// The longest wait before a reload that failed is tried again.
const RELOAD_RETRY_MAX: Duration = Duration::from_secs(10);

/// A table that is read whole.
pub struct FullTable {
    options: LookupOptions,
    shared: Arc<Shared>,
    /// The loader ends when this and those of all lookups are dropped.
    alive: Sender<()>,
}

impl FullTable {
    /// The table that `source` gives; `owner` is its name in messages (`table 'rates'`).
    ///
    /// # Errors
    /// The source does not end, or a PARTIAL cache is asked for, of which a whole table has no use.
    pub fn new(source: Arc<dyn Source>, options: LookupOptions, owner: &str) -> Result<Self, ConnectError> {
        if !source.bounded() {
            return Err(ConnectError::new(format!("{owner}: a table that is looked up is read to its end, and this one has none")));
        }
        if options.cache == CacheKind::Partial {
            return Err(ConnectError::new(format!(
                "{owner}: option 'lookup.cache': this table is read whole and kept; write 'FULL', or leave it out"
            )));
        }
        let (alive, ended) = bounded(0);
        let shared = Arc::new(Shared {
            source,
            reload: options.reload_interval,
            retries: options.retries,
            owner: owner.to_string(),
            begun: AtomicBool::new(false),
            ended,
            state: Mutex::default(),
        });
        Ok(FullTable { options, shared, alive })
    }
}

impl LookupTable for FullTable {
    fn keys_max(&self) -> usize {
        KEYS_MAX
    }

    fn open(&self, context: LookupContext) -> Result<Box<dyn Lookup>, ConnectError> {
        let mut places = Vec::with_capacity(context.keys.fields().len());
        for key in context.keys.fields() {
            let found = context.columns.fields().iter().position(|c| c.name() == key.name() && c.data_type() == key.data_type());
            let place = found.ok_or_else(|| {
                ConnectError::new(format!("internal error: {} has no column {} {}", self.shared.owner, key.name(), key.data_type()))
            })?;
            places.push(place);
        }
        Index::check(&context.columns, &places).map_err(|e| e.at(&self.shared.owner))?;
        let (shared, alive) = (self.shared.clone(), self.alive.clone());
        Ok(Box::new(FullLookup { shared, context, places, waiting: Vec::new(), _alive: alive }))
    }

    fn options(&self) -> &LookupOptions {
        &self.options
    }

    fn pipe(&self) -> Option<(String, (u64, u64))> {
        self.shared.source.pipe()
    }
}

/// What the lookups of all shards and the loader have in common.
struct Shared {
    source: Arc<dyn Source>,
    reload: Option<Duration>,
    retries: u32,
    owner: String,
    /// Whether there is a loader.
    begun: AtomicBool,
    /// Disconnected when the table and its lookups are dropped.
    ended: Receiver<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What was read last.
    table: Option<Arc<Loaded>>,
    /// Why there is nothing, or nothing new any more.
    failed: Option<String>,
    /// Those who wait for the first reading.
    wakers: Vec<Waker>,
}

/// A table as it was read.
struct Loaded {
    rows: RecordBatch,
    /// By the columns asked by. Mostly there is one.
    indexes: Mutex<Vec<(Vec<usize>, Arc<Index>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Starts the loader unless it was started.
    fn begin(self: &Arc<Self>, columns: &SchemaRef) -> Result<(), ConnectError> {
        if self.begun.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let (shared, ended, columns) = (Arc::downgrade(self), self.ended.clone(), columns.clone());
        let started = thread::Builder::new().name("tidemill-full-lookup".into()).spawn(move || load(&shared, &ended, &columns));
        started.map(drop).map_err(|e| ConnectError::io(format!("{}: starting the thread that reads it", self.owner), &e))
    }

    fn ended(&self) -> bool {
        matches!(self.ended.try_recv(), Err(crossbeam_channel::TryRecvError::Disconnected))
    }

    /// The whole table.
    fn read(&self, columns: &SchemaRef) -> Result<RecordBatch, ConnectError> {
        let mut parts = Vec::new();
        let mut rows = 0usize;
        for split in self.source.splits(1)? {
            let (wake, woken) = bounded(1);
            let waker = Waker::new(move || {
                // Full: it will look anyhow.
                let _ = wake.try_send(());
            });
            let context = ReaderContext { waker, request: ReadRequest::all(columns.clone()), shard: 0, shards: 1 };
            let mut reader = self.source.open(&split, context)?;
            loop {
                match reader.poll(READ_ROWS)? {
                    Polled::Rows(read) => {
                        if let Some(bad) = read.bad.first() {
                            let place = read.places.first().map_or(split.id.as_str(), String::as_str);
                            return Err(ConnectError::new(format!("{place}: {}", bad.reason)));
                        }
                        rows += read.batch.num_rows();
                        if rows > u32::MAX as usize {
                            return Err(ConnectError::new(format!("it has more than {} rows", u32::MAX)));
                        }
                        parts.push(read.batch);
                    }
                    Polled::Pending if self.ended() => return Err(ConnectError::new("the job has ended")),
                    Polled::Pending => {
                        // Woken or not, the reader is asked again.
                        let _ = woken.recv_timeout(PATIENCE);
                    }
                    Polled::End => break,
                }
            }
        }
        concat_batches(columns, &parts).map_err(|e| ConnectError::new(format!("putting its rows together: {e}")))
    }
}

/// Reads the table, and again at each interval, until the table is dropped.
fn load(shared: &Weak<Shared>, ended: &Receiver<()>, columns: &SchemaRef) {
    let mut failures = 0;
    loop {
        let Some(table) = shared.upgrade() else { return };
        let read = table.read(columns);
        let mut state = lock(&table.state);
        let (reload, wait) = match read {
            Ok(rows) => {
                failures = 0;
                state.table = Some(Arc::new(Loaded { rows, indexes: Mutex::default() }));
                (table.reload, table.reload.unwrap_or_default())
            }
            // What was read before stays good for a while: somebody may be writing the table just now.
            Err(_) if state.table.is_some() && failures < table.retries => {
                failures += 1;
                (table.reload, table.reload.unwrap_or_default().min(RELOAD_RETRY_MAX))
            }
            Err(e) => {
                let again = if state.table.is_some() { " anew, as 'lookup.full-cache.reload-interval' says" } else { "" };
                state.failed = Some(format!("{}: reading the table whole{again}: {e}", table.owner));
                (None, Duration::ZERO)
            }
        };
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.iter().for_each(Waker::wake);
        if reload.is_none() {
            return;
        }
        drop(table);
        if !matches!(ended.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
            return;
        }
    }
}

impl Loaded {
    /// The index by these columns; made by whoever needs it first.
    fn index(&self, places: &[usize]) -> Result<Arc<Index>, ConnectError> {
        let mut indexes = lock(&self.indexes);
        if let Some((_, index)) = indexes.iter().find(|(by, _)| by == places) {
            return Ok(index.clone());
        }
        let index = Arc::new(Index::new(&self.rows, places)?);
        indexes.push((places.to_vec(), index.clone()));
        Ok(index)
    }

    fn find(&self, places: &[usize], keys: &RecordBatch) -> Result<Found, ConnectError> {
        let (rows, origins) = self.index(places)?.find(keys)?;
        let rows = take_record_batch(&self.rows, &UInt32Array::from(rows))
            .map_err(|e| ConnectError::new(format!("taking {} rows of it: {e}", origins.len())))?;
        Ok(Found { rows, origins })
    }
}

/// The lookup of a shard.
struct FullLookup {
    shared: Arc<Shared>,
    context: LookupContext,
    /// The key columns among those of the table.
    places: Vec<usize>,
    /// Calls not yet answered: those of one round, or of the time until the table is read.
    waiting: Vec<(u64, RecordBatch)>,
    _alive: Sender<()>,
}

impl Lookup for FullLookup {
    fn start(&mut self, call: u64, keys: &RecordBatch) -> Result<(), ConnectError> {
        self.shared.begin(&self.context.columns)?;
        self.waiting.push((call, keys.clone()));
        let mut state = lock(&self.shared.state);
        if state.table.is_some() || state.failed.is_some() {
            drop(state);
            self.context.wake.wake();
        } else if self.waiting.len() == 1 {
            // With the first call that waits; the loader wakes each waker once.
            state.wakers.push(self.context.wake.clone());
        }
        Ok(())
    }

    fn cancel(&mut self, call: u64) {
        self.waiting.retain(|(waiting, _)| *waiting != call);
    }

    fn prepares(&self) -> bool {
        let state = lock(&self.shared.state);
        state.table.is_none() && state.failed.is_none()
    }

    fn finished(&mut self, into: &mut Vec<Answer>) {
        if self.waiting.is_empty() {
            return;
        }
        let state = lock(&self.shared.state);
        let (table, failed) = (state.table.clone(), state.failed.clone());
        drop(state);
        if table.is_none() && failed.is_none() {
            return;
        }
        for (call, keys) in self.waiting.drain(..) {
            let result = match (&failed, &table) {
                (Some(reason), _) => Err(Failure::lasting(reason.clone())),
                (None, Some(table)) => table.find(&self.places, &keys).map_err(|e| Failure::lasting(format!("{}: {e}", self.shared.owner))),
                (None, None) => continue,
            };
            into.push(Answer { call, result });
        }
    }
}

#[cfg(test)]
mod tests;
