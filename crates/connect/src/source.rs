//! The source side: splits and their readers.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use tidemill_block::RowKind;
use tidemill_format::BadRecord;

use crate::{ConnectError, FileSelection, Selection, Sockets};

/// An independently readable part of a source, with its own position: a file, a range of a file, a
/// socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// Unique within the source and stable across restarts; also what errors name.
    pub id: String,
    /// Where to begin, as [`Reader::position`] gave it; `None` at the beginning.
    pub position: Option<serde_json::Value>,
}

impl Split {
    /// A split read from its beginning.
    pub fn new(id: impl Into<String>) -> Self {
        Split { id: id.into(), position: None }
    }
}

/// Wakes the worker that polls a reader; cheap to clone and to call.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// A waker that calls `wake`.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Waker(Arc::new(wake))
    }

    /// A waker for callers that poll in a loop.
    pub fn noop() -> Self {
        Waker::new(|| {})
    }

    /// Wakes the worker.
    pub fn wake(&self) {
        (self.0)()
    }
}

/// Which columns a reader shall produce.
#[derive(Clone, Debug)]
pub struct ReadRequest {
    /// All physical columns in declared order: what a line of the file holds.
    pub physical: SchemaRef,
    /// Indices into `physical` of the columns wanted, in the order wanted.
    pub projection: Vec<usize>,
    /// Metadata columns wanted behind them: the connector's key, and the column as it shall appear.
    pub metadata: Vec<(String, FieldRef)>,
}

impl ReadRequest {
    /// A request for all physical columns and nothing else.
    pub fn all(physical: SchemaRef) -> Self {
        let projection = (0..physical.fields().len()).collect();
        ReadRequest { physical, projection, metadata: Vec::new() }
    }

    /// The schema of the batches that answer this request.
    pub fn schema(&self) -> SchemaRef {
        let physical = self.projection.iter().map(|i| self.physical.fields()[*i].clone());
        let metadata = self.metadata.iter().map(|(_, field)| field.clone());
        Arc::new(Schema::new(physical.chain(metadata).collect::<Vec<_>>()))
    }
}

/// Rows from a reader.
#[derive(Debug)]
pub struct Rows {
    /// The good rows, of the request's schema. May be empty if all records were bad.
    pub batch: RecordBatch,
    /// What each row does to the table ([`Source::changelog`]); `None` means that all are inserts.
    pub kinds: Option<Vec<RowKind>>,
    /// When their bytes reached the process ([`tidemill_block::clock::now_ns`]).
    pub arrival_ns: u64,
    /// Bytes read for them, as they lie in the source (compressed bytes are not counted apart:
    /// this is what the decoder consumed).
    pub bytes: u64,
    /// Records that could not be decoded; the place is in [`Rows::places`].
    pub bad: Vec<BadRecord>,
    /// For each bad record where it stands: `file:line`, `host:port record n`.
    pub places: Vec<String>,
}

impl Rows {
    /// Good rows only.
    pub fn good(batch: RecordBatch, arrival_ns: u64, bytes: u64) -> Self {
        Rows { batch, kinds: None, arrival_ns, bytes, bad: Vec::new(), places: Vec::new() }
    }

    /// The rows of all parts, which have one schema, in one batch; none without parts.
    ///
    /// # Errors
    /// More than 2 GB of text in one column.
    pub fn merge(mut parts: Vec<Rows>) -> Result<Option<Rows>, ConnectError> {
        if parts.len() < 2 {
            return Ok(parts.pop());
        }
        let schema = parts[0].batch.schema();
        let batch = concat_batches(&schema, parts.iter().map(|p| &p.batch))
            .map_err(|e| ConnectError::new(format!("putting together rows that came apart: {e}")))?;
        let arrival_ns = parts.iter().map(|p| p.arrival_ns).min().unwrap_or(0);
        let mut all = Rows::good(batch, arrival_ns, 0);
        if parts.iter().any(|p| p.kinds.is_some()) {
            let kinds = |part: &mut Rows| part.kinds.take().unwrap_or_else(|| vec![RowKind::Insert; part.batch.num_rows()]);
            all.kinds = Some(parts.iter_mut().flat_map(kinds).collect());
        }
        for part in parts {
            all.bytes += part.bytes;
            all.bad.extend(part.bad);
            all.places.extend(part.places);
        }
        Ok(Some(all))
    }
}

/// The answer of a reader.
#[derive(Debug)]
pub enum Polled {
    /// Some rows.
    Rows(Rows),
    /// Nothing at the moment; the waker will be called when that may have changed.
    Pending,
    /// The split is at its end.
    End,
}

/// What a reader gets from whoever runs it.
#[derive(Clone)]
pub struct ReaderContext {
    /// To be called whenever a poll might succeed after one that gave [`Polled::Pending`].
    pub waker: Waker,
    /// The columns wanted.
    pub request: ReadRequest,
    /// Which of `shards` parallel readers of the same source this is, for sources whose splits
    /// divide a common rate among them.
    pub shard: usize,
    /// How many parallel readers there are.
    pub shards: usize,
}

/// What the rows of a source say about the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changelog {
    /// Every row is a new one.
    Append,
    /// Rows are inserted, updated and deleted, and every change is there: `+I`, `-U` and `+U`, `-D`.
    All,
    /// A `+I` or `+U` is the newest row of its key; a `-D` has the columns of the key and maybe no others.
    /// The key is the table's primary key.
    Upsert,
}

/// How the bytes of a source come, as far as that says how many of its splits are best open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetching {
    /// In any other way: there is nothing to find out.
    Other,
    /// Splits are parts of local files, read where they are polled.
    Local,
    /// Splits are read to their ends over a network, by threads that fetch whether they are polled or not. More of them
    /// open than there are processors may bring more.
    Network,
}

/// A table read.
pub trait Source: Send + Sync {
    /// Whether the source ends by itself.
    fn bounded(&self) -> bool;

    /// Told before anything else that the memory of the process is limited, and how many bytes of what it fetches ahead of
    /// its readers the source may hold. Gives how many of these it may come to use: state gets less for it. None, if it
    /// fetches nothing ahead.
    fn limit_memory(&self, _bytes: u64) -> u64 {
        0
    }

    /// The splits that exist now, in the order in which they are best read. `parallelism` is how
    /// many readers will run at once. Called at the start and, if [`Source::discovery_interval`]
    /// says so, again and again; splits already known are recognised by their id.
    ///
    /// # Errors
    /// What was looked for and not found or not readable.
    fn splits(&self, parallelism: usize) -> Result<Vec<Split>, ConnectError>;

    /// What its rows say about the table. Asked once, before any is read.
    fn changelog(&self) -> Changelog {
        Changelog::Append
    }

    /// The splits there are while the job runs, asked for as often as [`Source::discovery_interval`]
    /// says; also first of all after a restart from a checkpoint. Differs from [`Source::splits`]
    /// where what is found later begins elsewhere than what was there at the start.
    ///
    /// # Errors
    /// As [`Source::splits`].
    fn discover(&self, parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        self.splits(parallelism)
    }

    /// How often to look for new splits; `None` for never.
    fn discovery_interval(&self) -> Option<std::time::Duration> {
        None
    }

    /// Splits that could be read in parallel where the order of rows does not matter (ranges of a
    /// file). By default the same as [`Source::splits`].
    ///
    /// # Errors
    /// As [`Source::splits`].
    fn unordered_splits(&self, parallelism: usize) -> Result<Vec<Split>, ConnectError> {
        self.splits(parallelism)
    }

    /// Whether the metadata column of this key has one value in all rows of a split, which is known before the split is opened.
    fn splits_by(&self, _key: &str) -> bool {
        false
    }

    /// As [`Source::unordered_splits`], less files that by columns with [`Source::splits_by`] have no row that is wanted; and how
    /// many files were left out.
    ///
    /// # Errors
    /// As [`Source::splits`].
    fn splits_selecting(&self, parallelism: usize, _files: &FileSelection) -> Result<(Vec<Split>, u64), ConnectError> {
        Ok((self.unordered_splits(parallelism)?, 0))
    }

    /// The pipe that it reads, if it reads one: its path, and its device and inode. No other of a query may read the same.
    fn pipe(&self) -> Option<(String, (u64, u64))> {
        None
    }

    /// How its bytes come. Asked once, before any is read.
    fn fetching(&self) -> Fetching {
        Fetching::Other
    }

    /// Whether it waits for peers that nobody has chosen: whoever reaches its port can send it rubbish, which
    /// must not end a job unless its author wants that.
    fn listens(&self) -> bool {
        false
    }

    /// Opens a split at its position.
    ///
    /// # Errors
    /// What was opened and why it failed.
    fn open(&self, split: &Split, context: ReaderContext) -> Result<Box<dyn Reader>, ConnectError>;

    /// Whether a reader that is opened at a position gives the rows behind it. By default that is so for readers that
    /// have a position before they are read. Where it is said not to be so, nothing can be asked for again, and a position
    /// only tells up to where rows are safe ([`Source::committed`]).
    fn replays(&self) -> Option<bool> {
        None
    }

    /// Whether its readers give views where a request has text columns as such. What else they are asked for they give as it is
    /// asked for, too.
    fn gives_views(&self) -> bool {
        false
    }

    /// Whether [`Source::open_selecting`] leaves out rows.
    fn selects(&self) -> bool {
        false
    }

    /// Opens a split to read it once to its end: what is not selected may be left out, and where the reader stands is not asked.
    ///
    /// # Errors
    /// As [`Source::open`].
    fn open_selecting(&self, split: &Split, context: ReaderContext, _selection: &Selection) -> Result<Box<dyn Reader>, ConnectError> {
        self.open(split, context)
    }

    /// The metadata columns that the connector offers: key and type.
    fn metadata_columns(&self) -> Vec<(&'static str, DataType)> {
        Vec::new()
    }

    /// Whether there is one split and never another, so that all rows come one after the other.
    fn one_split(&self) -> bool {
        false
    }

    /// Called when a checkpoint is safe and what it covers is committed everywhere: what was read up to
    /// these positions, those of this source's splits, need not be asked for again.
    fn committed(&self, _positions: &[serde_json::Value]) {}

    /// Whether somebody waits for what was read so far to be committed. Asked many times a second; a
    /// job may take its time over it.
    fn wants_checkpoint(&self) -> bool {
        false
    }

    /// How many rows the source has, if it knows without reading them.
    fn rows_hint(&self) -> Option<usize> {
        None
    }
}

/// Reads one split.
pub trait Reader: Send {
    /// Begins to fetch, before anybody asks, if that is done by another thread than the caller's.
    ///
    /// # Errors
    /// That thread cannot be started.
    fn fetch(&mut self) -> Result<(), ConnectError> {
        Ok(())
    }

    /// Up to `rows_max` rows of what has arrived; never waits.
    ///
    /// # Errors
    /// What was being read, where, and why it failed. The reader is not polled again.
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError>;

    /// Called when a poll has given [`Polled::Pending`] and the worker is about to sleep: adds the sockets that the
    /// worker shall wait for itself. The reader is polled again when there is something to read in one. A reader
    /// must not rely on it: not everybody who polls does this, and nobody does while it would not be polled.
    fn wait_on(&mut self, _sockets: &mut Sockets) {}

    /// Where the next row begins: given to [`Source::open`] it continues exactly there.
    fn position(&self) -> serde_json::Value;
}
