//! The side of a stream that a job reads: a bounded queue between publishers and one reader, and how
//! far the rows of each publisher have come.
//!
//! Rows of a publisher are numbered from 0. Three numbers follow each other: *taken* into the queue,
//! *given* to the job, *acknowledged* when a checkpoint that covers them is committed. The reader's
//! position holds what was given; after a crash a publisher is asked to go on from there.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray, TimestampMillisecondArray, UInt64Array,
    new_null_array,
};
use arrow::compute::{cast, concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Int8Type, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use hashbrown::HashMap;
use serde_json::Value;
use tidemill_block::{RowKind, clock, rows_bytes};
use tidemill_connect::{ConnectError, Polled, ReadRequest, Reader, ReaderContext, Rows, Waker};

use crate::error::HubError;
use crate::stream::{Counters, Mark, ROW_KIND, Stream};

/// The publishers whose marks are kept: each is an entry in every checkpoint.
pub(crate) const PUBLISHERS_MAX: usize = 100_000;
/// How many polls of the reader may wait as rows, beside the bound in bytes: while the reader works through
/// the second half of them, publishers have the time to send more. What waits beyond that only grows old.
/// With blocks of size `auto` a poll asks for a few blocks, each of what is worked off in half a millisecond, so
/// what waits follows the job's speed.
const POLLS_WAITING: usize = 4;
/// Rows that may wait in any case: a publisher that was told to wait needs some 50 µs to go on, in which
/// half of these are not worked off even where a row costs 50 ns.
const ROWS_WAITING_MIN: u64 = 2048;
/// What an entry of the queue counts for beyond its bytes: arrays and their owners.
const ENTRY_BYTES: u64 = 512;
/// The columns wanted of a message are copied out of it if they are less than such a part of its bytes.
const KEEPING_PART: u64 = 4;
/// Checkpoints in flight whose marks are remembered; later ones cover earlier ones.
const SNAPSHOTS_MAX: usize = 64;
/// For so long after a job has begun the names of its checkpoint are not forgotten: publishers that lost their connection when the
/// server ended try again every few seconds, and must be told where to go on.
const RESTORED_KEPT_NS: u64 = 60_000_000_000;
/// So long after names were looked through and none could be forgotten they are not looked through again: that takes milliseconds
/// under the lock, and whoever is refused may ask at once again.
const FORGETTING_PAUSE_NS: u64 = 1_000_000_000;

/// The inlet of a stream.
pub(crate) struct Inlet {
    stream: String,
    state: Mutex<State>,
    /// A publisher waits for an acknowledgement: so that nobody need lock to learn that none does.
    urging: AtomicBool,
    counters: Arc<Counters>,
}

#[derive(Default)]
pub(crate) struct State {
    /// The job that reads, if one does.
    pub run: Option<Run>,
    /// How many jobs have read so far: the number of the newest.
    pub runs: u64,
    pub publishers: HashMap<u64, PublisherState>,
    pub names: HashMap<Arc<str>, u64>,
    pub next_slot: u64,
    /// How many connections began or ended: the number of the newest.
    pub sessions: u64,
    /// From when on names of the checkpoint may be forgotten, by [`clock::now_ns`].
    pub restored_until_ns: u64,
    /// From when on names are looked through again for some to forget.
    pub forgetting_at_ns: u64,
    queue: VecDeque<Entry>,
    pub queue_bytes: u64,
    queue_rows: u64,
    /// What of it was put there ahead of room, by all publishers: rows, and what the queue counts for them.
    ahead: (u64, u64),
    /// Some publisher found the queue full.
    pub room_wanted: bool,
    /// What had been given at checkpoints that are not yet acknowledged.
    snapshots: VecDeque<(u64, Vec<(u64, u64)>)>,
    sequence: u64,
}

/// A job that reads.
pub(crate) struct Run {
    /// The columns of the table; behind them [`ROW_KIND`] if it takes changes, NULL for a new row.
    pub schema: SchemaRef,
    /// Publishers may say what rows do.
    pub changes: bool,
    waker: Waker,
    /// The reader found nothing.
    waiting: bool,
    /// Bytes in the queue from which on publishers wait.
    pub bound: u64,
    /// Rows in the queue from which on they wait, too; follows what the reader asks for at once.
    rows_bound: u64,
    /// The columns that the job reads; `None` if it reads all.
    wanted: Option<Arc<[String]>>,
}

/// How many rows have come so far, and the last place at which the publisher said where it stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub rows: u64,
    position: Option<(u64, Arc<Value>)>,
}

impl Progress {
    /// Where the publisher goes on: where it said it could, else exactly behind the last row. Rows that
    /// come again are cut off.
    pub fn mark(&self) -> Mark {
        match &self.position {
            Some((offset, position)) => Mark { offset: *offset, position: Some(position.as_ref().clone()) },
            None => Mark { offset: self.rows, position: None },
        }
    }

    fn advance(&mut self, rows: u64, position: &Option<Arc<Value>>) {
        self.rows = rows;
        if let Some(position) = position {
            self.position = Some((rows, position.clone()));
        }
    }
}

/// What is known of a publisher.
#[derive(Default)]
pub(crate) struct PublisherState {
    /// `None` for one without a name, of which nothing outlives the connection.
    pub name: Option<Arc<str>>,
    /// The number of its connection; 0 if there is none.
    pub session: u64,
    /// The number of the latest end of a connection of it since the job began; 0 for none.
    pub ended: u64,
    /// It counts its rows without being told where to go on, and may be away between any two of its requests: its name stays.
    pub kept: bool,
    pub waker: Option<Waker>,
    pub taken: Progress,
    pub given: Progress,
    /// Rows given when the newest checkpoint was taken.
    snapshotted: u64,
    pub acknowledged: u64,
    /// The first row count that it asked to be acknowledged and that is not, and the last.
    urged: Option<(u64, u64)>,
    pub room_wanted: bool,
    /// What of its rows lies in the queue ahead of room: rows, and what the queue counts for them.
    ahead: (u64, u64),
}

impl PublisherState {
    /// One that has sent nothing yet.
    pub fn new(name: Option<Arc<str>>) -> Self {
        PublisherState { name, ..PublisherState::default() }
    }
}

/// Rows of one publisher.
struct Entry {
    slot: u64,
    name: Option<Arc<str>>,
    /// The number of the first row that is left.
    first: u64,
    batch: RecordBatch,
    /// Where the publisher stands after these rows.
    position: Option<Arc<Value>>,
    /// Bytes of the rows that are left.
    bytes: u64,
    /// What the queue counts for the entry.
    weight: u64,
    arrival_ns: u64,
}

/// Rows as the reader takes them out.
struct Piece {
    name: Option<Arc<str>>,
    first: u64,
    batch: RecordBatch,
    bytes: u64,
    arrival_ns: u64,
}

impl Inlet {
    pub fn new(stream: &str, counters: Arc<Counters>) -> Self {
        Inlet { stream: stream.to_string(), state: Mutex::default(), urging: AtomicBool::new(false), counters }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        // A job that panics must not take the peers of others with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn schema(&self) -> Option<SchemaRef> {
        self.lock().run.as_ref().map(|r| r.schema.clone())
    }

    /// The columns that the job which reads uses; `None` if it uses all, or none reads.
    pub fn wanted(&self) -> Option<Arc<[String]>> {
        self.lock().run.as_ref().and_then(|r| r.wanted.clone())
    }

    /// Whether a job reads that takes rows which change others.
    pub fn changes(&self) -> bool {
        self.lock().run.as_ref().is_some_and(|r| r.changes)
    }

    /// Publishers connected and bytes waiting.
    pub fn standing(&self) -> (u64, u64) {
        let state = self.lock();
        (state.publishers.values().filter(|p| p.session != 0).count() as u64, state.queue_bytes)
    }

    /// A job begins to read at `position`.
    ///
    /// # Errors
    /// Another one does; the position is none of ours.
    fn attach(
        &self,
        request: &ReadRequest,
        position: Option<&Value>,
        waker: Waker,
        bound: u64,
        changes: bool,
    ) -> Result<u64, ConnectError> {
        let mut state = self.lock();
        if state.run.is_some() {
            return Err(ConnectError::new(format!(
                "stream '{}' is read by another running job, and only one can; stop that job, or let it write what both need to a second stream",
                self.stream
            )));
        }
        assert!(state.queue.is_empty(), "rows of an earlier run are dropped with it");
        let damaged = |what: &str| {
            ConnectError::new(format!(
                "the checkpoint's position of stream '{}' is damaged ({what}); start the job afresh to begin anew",
                self.stream
            ))
        };
        let publishers = match position {
            None | Some(Value::Null) => Vec::new(),
            Some(position) => restored(position).ok_or_else(|| damaged(&position.to_string()))?,
        };
        state.runs += 1;
        state.publishers.clear();
        state.names.clear();
        state.snapshots.clear();
        state.restored_until_ns = clock::now_ns() + RESTORED_KEPT_NS;
        state.forgetting_at_ns = 0;
        for (name, given, kept) in publishers {
            let name: Arc<str> = name.into();
            let slot = state.next_slot;
            state.next_slot += 1;
            state.names.insert(name.clone(), slot);
            let (rows, taken) = (given.rows, given.clone());
            let publisher =
                PublisherState { name: Some(name), kept, taken, given, snapshotted: rows, acknowledged: rows, ..Default::default() };
            state.publishers.insert(slot, publisher);
        }
        let schema = request.physical.clone();
        let used = |at: &usize| request.projection.contains(at);
        let all = (0..schema.fields().len()).all(|at| used(&at));
        let names = || -> Arc<[String]> { (0..schema.fields().len()).filter(used).map(|at| schema.field(at).name().clone()).collect() };
        let wanted = if all { None } else { Some(names()) };
        let schema = if changes { with_kinds(&schema) } else { schema };
        // Until the reader has said how much it takes at once, bytes alone count.
        state.run = Some(Run { schema, changes, waker, waiting: false, bound, rows_bound: u64::MAX, wanted });
        Ok(state.runs)
    }

    /// The job that reads has ended: what waits is dropped, and publishers are told that they are gone.
    fn detach(&self, run: u64) {
        let mut state = self.lock();
        if state.run.is_none() || state.runs != run {
            return;
        }
        state.run = None;
        state.queue.clear();
        (state.queue_bytes, state.queue_rows, state.ahead) = (0, 0, (0, 0));
        state.room_wanted = false;
        state.snapshots.clear();
        state.names.clear();
        self.urging.store(false, Ordering::Release);
        let publishers = std::mem::take(&mut state.publishers);
        // Each looks at the state at once.
        drop(state);
        publishers.into_values().filter_map(|publisher| publisher.waker).for_each(|waker| waker.wake());
    }

    /// Asks for a checkpoint that covers what publisher `slot` has sent.
    pub fn urge(&self, slot: u64, session: u64) {
        let mut state = self.lock();
        let Some(publisher) = state.publishers.get_mut(&slot).filter(|p| p.session == session) else { return };
        let taken = publisher.taken.rows;
        if publisher.acknowledged >= taken {
            return;
        }
        let first = publisher.urged.map_or(taken, |(first, _)| first);
        publisher.urged = Some((first, taken));
        self.urging.store(true, Ordering::Release);
    }

    /// Forgets a publisher that is not connected; whether there is one of this name.
    ///
    /// # Errors
    /// It is connected.
    pub fn forget(&self, name: &str) -> Result<bool, HubError> {
        let mut state = self.lock();
        let Some(slot) = state.names.get(name).copied() else { return Ok(false) };
        if state.publishers.get(&slot).is_some_and(|publisher| publisher.session != 0) {
            return Err(HubError::Refused(format!("publisher '{name}' of stream '{}' is connected; end it and try again", self.stream)));
        }
        state.names.remove(name);
        state.publishers.remove(&slot);
        Ok(true)
    }

    /// Whether a checkpoint now would acknowledge rows for which a publisher waits.
    pub fn wants_checkpoint(&self, run: u64) -> bool {
        if !self.urging.load(Ordering::Acquire) {
            return false;
        }
        let state = self.lock();
        let due = |p: &PublisherState| p.urged.is_some_and(|(first, _)| p.given.rows >= first && p.snapshotted < first);
        state.runs == run && state.publishers.values().any(due)
    }

    /// Everything given up to the checkpoint of that sequence number is safe.
    pub fn committed(&self, run: u64, sequence: u64) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.runs != run {
            return;
        }
        let mut urging = false;
        // To be woken behind the lock, for which they would only wait.
        let mut waiting: Vec<Waker> = Vec::new();
        while state.snapshots.front().is_some_and(|(number, _)| *number <= sequence) {
            let (_, given) = state.snapshots.pop_front().expect("looked at above");
            for (slot, rows) in given {
                let Some(publisher) = state.publishers.get_mut(&slot) else { continue };
                if rows > publisher.acknowledged {
                    publisher.acknowledged = rows;
                    waiting.extend(publisher.waker.clone());
                }
            }
        }
        for publisher in state.publishers.values_mut() {
            if let Some((first, last)) = publisher.urged
                && publisher.acknowledged >= first
            {
                publisher.urged = (publisher.acknowledged < last).then_some((last, last));
            }
            urging |= publisher.urged.is_some();
        }
        self.urging.store(urging, Ordering::Release);
        drop(guard);
        waiting.iter().for_each(Waker::wake);
    }
}

impl State {
    /// Puts rows into the queue. Rows `ahead` of room do not count when it is asked whether their publisher may go on. Gives
    /// the reader if it is to be woken: behind the lock, for which it would only wait.
    #[must_use]
    pub fn push(
        &mut self,
        slot: u64,
        ahead: bool,
        batch: RecordBatch,
        first: u64,
        position: Option<Value>,
        bytes: u64,
        arrival_ns: u64,
    ) -> Option<Waker> {
        let position = position.map(Arc::new);
        let weight = bytes + ENTRY_BYTES;
        let publisher = self.publishers.get_mut(&slot).expect("looked up by the caller");
        debug_assert_eq!(publisher.taken.rows, first, "duplicates are cut and gaps refused");
        publisher.taken.advance(first + batch.num_rows() as u64, &position);
        self.queue_bytes += weight;
        let rows = batch.num_rows() as u64;
        self.queue_rows += rows;
        self.queue.push_back(Entry { slot, name: publisher.name.clone(), first, batch, position, bytes, weight, arrival_ns });
        self.set_ahead(slot, if ahead { (rows, weight) } else { (0, 0) });
        let run = self.run.as_mut().expect("looked at by the caller");
        std::mem::take(&mut run.waiting).then(|| run.waker.clone())
    }

    /// Takes up to `rows_max` rows out. Small batches that wait together come together; a large one is
    /// not cut only to fill up what is half full, since putting rows together copies them, and is cut in two
    /// where else a sliver of it would be left, which the rows behind it would fill up.
    fn take(&mut self, rows_max: usize, pieces: &mut Vec<Piece>) {
        let mut total = 0;
        while total < rows_max
            && let Some(entry) = self.queue.front_mut()
        {
            let left = entry.batch.num_rows();
            let half = rows_max.div_ceil(2);
            let mut rows = left.min(rows_max - total);
            if rows < left {
                if total >= half {
                    break;
                }
                if total == 0 && left - rows < half {
                    // The rest would be too little to come alone.
                    rows = left.div_ceil(2);
                }
            }
            total += rows;
            self.queue_rows -= rows as u64;
            let whole = rows == left;
            let end = entry.first + rows as u64;
            let position = if whole { entry.position.take() } else { None };
            if let Some(publisher) = self.publishers.get_mut(&entry.slot) {
                publisher.given.advance(end, &position);
            }
            let bytes = if whole { entry.bytes } else { (entry.bytes as u128 * rows as u128 / left as u128) as u64 };
            let (first, arrival_ns) = (entry.first, entry.arrival_ns);
            if whole {
                let entry = self.queue.pop_front().expect("looked at above");
                self.queue_bytes -= entry.weight;
                if self.publishers.get(&entry.slot).is_some_and(|publisher| publisher.given.rows == publisher.taken.rows) {
                    self.set_ahead(entry.slot, (0, 0));
                }
                if rows > 0 {
                    pieces.push(Piece { name: entry.name, first, batch: entry.batch, bytes, arrival_ns });
                }
            } else {
                pieces.push(Piece { name: entry.name.clone(), first, batch: entry.batch.slice(0, rows), bytes, arrival_ns });
                entry.batch = entry.batch.slice(rows, left - rows);
                entry.first = end;
                entry.bytes -= bytes;
            }
        }
    }

    /// Notes what of a publisher's rows lies ahead of room.
    pub fn set_ahead(&mut self, slot: u64, ahead: (u64, u64)) {
        let Some(publisher) = self.publishers.get_mut(&slot) else { return };
        let before = std::mem::replace(&mut publisher.ahead, ahead);
        self.ahead = (self.ahead.0 - before.0 + ahead.0, self.ahead.1 - before.1 + ahead.1);
    }

    /// Rows and bytes in the queue beside what was put there ahead of room, by whomever: if each publisher left out its own alone,
    /// one of large messages would fill the queue again before one of small ones found room.
    fn beside(&self) -> (u64, u64) {
        (self.queue_rows.saturating_sub(self.ahead.0), self.queue_bytes.saturating_sub(self.ahead.1))
    }

    /// Whether publishers wait.
    pub fn is_full(&self) -> bool {
        let (rows, bytes) = self.beside();
        self.run.as_ref().is_some_and(|r| bytes >= r.bound || rows >= r.rows_bound)
    }

    /// The publishers to be told that there is room again, once half of the queue is free: behind the lock, as the reader.
    #[must_use]
    fn give_room(&mut self) -> Vec<Waker> {
        let (rows, bytes) = self.beside();
        let enough = self.run.as_ref().is_some_and(|r| bytes <= r.bound / 2 && rows <= r.rows_bound / 2);
        if !self.room_wanted || !enough {
            return Vec::new();
        }
        self.room_wanted = false;
        let wanting = |publisher: &mut PublisherState| {
            let wanted = std::mem::take(&mut publisher.room_wanted);
            publisher.waker.as_ref().filter(|_| wanted).cloned()
        };
        self.publishers.values_mut().filter_map(wanting).collect()
    }

    /// Forgets names of publishers that are not likely to come back, those that ended longest ago first: all that they sent is safe,
    /// and they told no position from which they would go on, so each run of theirs has a name of its own. Does nothing for a while
    /// after there was none.
    pub fn forget_finished(&mut self, most: usize) {
        let now_ns = clock::now_ns();
        if now_ns < self.forgetting_at_ns {
            return;
        }
        let restored = now_ns >= self.restored_until_ns;
        let away = |p: &PublisherState| p.session == 0 && !p.kept && (p.ended > 0 || restored);
        let finished = |p: &PublisherState| away(p) && p.acknowledged >= p.taken.rows && p.taken.position.is_none();
        let named = self.publishers.iter().filter(|(_, p)| p.name.is_some() && finished(p));
        let mut slots: Vec<(u64, u64)> = named.map(|(slot, p)| (p.ended, *slot)).collect();
        if slots.is_empty() {
            self.forgetting_at_ns = now_ns + FORGETTING_PAUSE_NS;
        }
        slots.sort_unstable();
        for (_, slot) in slots.into_iter().take(most) {
            if let Some(name) = self.publishers.remove(&slot).and_then(|publisher| publisher.name) {
                self.names.remove(&name);
            }
        }
    }

    /// The marks of all publishers as a checkpoint keeps them, and a number by which [`Inlet::committed`]
    /// finds them again.
    fn snapshot(&mut self) -> Value {
        self.sequence += 1;
        let mut given = Vec::with_capacity(self.publishers.len());
        let mut named = serde_json::Map::new();
        for (slot, publisher) in &mut self.publishers {
            let progress = &publisher.given;
            publisher.snapshotted = progress.rows;
            given.push((*slot, progress.rows));
            let Some(name) = &publisher.name else { continue };
            let mut entry = serde_json::json!({ "offset": progress.rows });
            if let Some((offset, position)) = &progress.position {
                entry["position"] = position.as_ref().clone();
                if *offset != progress.rows {
                    entry["position_offset"] = (*offset).into();
                }
            }
            if publisher.kept {
                entry["kept"] = true.into();
            }
            named.insert(name.to_string(), entry);
        }
        if self.snapshots.len() >= SNAPSHOTS_MAX {
            self.snapshots.pop_front();
        }
        self.snapshots.push_back((self.sequence, given));
        serde_json::json!({ "publishers": named, "sequence": self.sequence })
    }
}

/// The columns that publishers send to a table that takes changes.
fn with_kinds(columns: &SchemaRef) -> SchemaRef {
    let mut fields = columns.fields().to_vec();
    fields.push(Arc::new(Field::new(ROW_KIND, DataType::Int8, true)));
    Arc::new(Schema::new(fields))
}

/// What the rows of a batch do, which stands in its last column; all are new ones where that is NULL.
///
/// # Errors
/// The first value that is no kind, and its row, from 0.
pub(crate) fn kinds_of(batch: &RecordBatch) -> Result<Option<Vec<RowKind>>, (i8, usize)> {
    let column = batch.column(batch.num_columns() - 1).as_primitive::<Int8Type>();
    let values = column.values();
    if column.null_count() == column.len() || (column.null_count() == 0 && values.iter().all(|kind| *kind == 0)) {
        return Ok(None);
    }
    let kind = |row: usize| match values[row] {
        _ if column.is_null(row) => Ok(RowKind::Insert),
        code => u8::try_from(code).ok().and_then(RowKind::from_byte).ok_or((code, row)),
    };
    (0..column.len()).map(kind).collect::<Result<Vec<_>, _>>().map(Some)
}

/// The publishers of a position that [`State::snapshot`] wrote, and whether their names stay.
fn restored(position: &Value) -> Option<Vec<(String, Progress, bool)>> {
    let publishers = position.get("publishers")?.as_object()?;
    let one = |(name, mark): (&String, &Value)| {
        let rows = mark.get("offset")?.as_u64()?;
        let at = mark.get("position_offset").map_or(Some(rows), Value::as_u64)?;
        let position = mark.get("position").map(|p| (at, Arc::new(p.clone())));
        // Versions before wrote nothing of it.
        let kept = mark.get("kept").map_or(Some(false), Value::as_bool)?;
        Some((name.clone(), Progress { rows, position }, kept))
    };
    publishers.iter().map(one).collect()
}

/// The metadata columns that an inlet offers.
pub(crate) fn metadata_columns() -> Vec<(&'static str, DataType)> {
    vec![
        ("publisher", DataType::Utf8),
        ("offset", DataType::Int64),
        ("arrival", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))),
    ]
}

/// Reads the one split of a stream.
pub(crate) struct InletReader {
    stream: Arc<Stream>,
    run: u64,
    request: ReadRequest,
    schema: SchemaRef,
    /// The rows come out as they went in.
    plain: bool,
    /// The last column of what comes in says what rows do.
    changes: bool,
    pieces: Vec<Piece>,
}

impl InletReader {
    /// Attaches to the stream.
    ///
    /// # Errors
    /// As [`Inlet::attach`].
    pub fn open(
        stream: Arc<Stream>,
        position: Option<&Value>,
        context: ReaderContext,
        bound: u64,
        changes: bool,
    ) -> Result<Self, ConnectError> {
        let request = context.request;
        let run = stream.inlet.attach(&request, position, context.waker, bound, changes)?;
        let all = request.projection.iter().copied().eq(0..request.physical.fields().len());
        let plain = request.metadata.is_empty() && all && !changes;
        let schema = if plain { request.physical.clone() } else { request.schema() };
        Ok(InletReader { stream, run, request, schema, plain, changes, pieces: Vec::new() })
    }

    pub fn run(&self) -> u64 {
        self.run
    }

    /// The columns wanted of one piece.
    fn columns(&self, piece: &Piece, clocks: (u64, i64)) -> Result<RecordBatch, ArrowError> {
        if self.plain {
            return Ok(piece.batch.clone());
        }
        let rows = piece.batch.num_rows();
        let mut columns: Vec<ArrayRef> = self.request.projection.iter().map(|i| piece.batch.column(*i).clone()).collect();
        for (key, field) in &self.request.metadata {
            let values: ArrayRef = match (key.as_str(), &piece.name) {
                ("publisher", Some(name)) => Arc::new(StringArray::from_iter_values(std::iter::repeat_n(&**name, rows))),
                ("offset", Some(_)) => Arc::new(Int64Array::from_iter_values((piece.first as i64..).take(rows))),
                ("arrival", _) => {
                    let (now_ns, now_ms) = clocks;
                    let ms = now_ms - (now_ns.saturating_sub(piece.arrival_ns) / 1_000_000) as i64;
                    Arc::new(TimestampMillisecondArray::from_value(ms, rows).with_timezone("UTC"))
                }
                // Rows of a publisher without a name have no number.
                ("publisher" | "offset", None) => new_null_array(field.data_type(), rows),
                (other, _) => return Err(ArrowError::InvalidArgumentError(format!("streams have no metadata column '{other}'"))),
            };
            columns.push(if values.data_type() == field.data_type() { values } else { cast(&values, field.data_type())? });
        }
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &RecordBatchOptions::new().with_row_count(Some(rows)))
    }

    fn build(&self, pieces: &[Piece]) -> Result<RecordBatch, ArrowError> {
        let clocks = if self.plain { (0, 0) } else { (clock::now_ns(), clock::wall_ms()) };
        if let [one] = pieces {
            let batch = self.columns(one, clocks)?;
            // All columns of a message share its bytes: few of them would keep all of it, and are counted for themselves alone.
            if !self.plain && batch.num_columns() > 0 && (rows_bytes(&batch) as u64) < one.bytes / KEEPING_PART {
                return take_record_batch(&batch, &UInt64Array::from_iter_values(0..batch.num_rows() as u64));
            }
            return Ok(batch);
        }
        let parts = pieces.iter().map(|p| self.columns(p, clocks)).collect::<Result<Vec<_>, _>>()?;
        if self.schema.fields().is_empty() {
            // Only the number of rows is wanted.
            let rows = parts.iter().map(RecordBatch::num_rows).sum();
            return RecordBatch::try_new_with_options(
                self.schema.clone(),
                Vec::new(),
                &RecordBatchOptions::new().with_row_count(Some(rows)),
            );
        }
        concat_batches(&self.schema, &parts)
    }
}

/// What the rows of all pieces do; `None` if all are new ones.
fn kinds(pieces: &[Piece]) -> Option<Vec<RowKind>> {
    // Looked at before they came into the queue.
    let each: Vec<_> = pieces.iter().map(|piece| kinds_of(&piece.batch).expect("kinds were checked")).collect();
    if each.iter().all(Option::is_none) {
        return None;
    }
    let all = each.into_iter().zip(pieces);
    Some(all.flat_map(|(kinds, piece)| kinds.unwrap_or_else(|| vec![RowKind::Insert; piece.batch.num_rows()])).collect())
}

impl Reader for InletReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let mut pieces = std::mem::take(&mut self.pieces);
        let wanting = {
            let mut state = self.stream.inlet.lock();
            assert!(state.run.is_some() && state.runs == self.run, "a stream has one reader");
            state.take(rows_max.max(1), &mut pieces);
            let run = state.run.as_mut().expect("asserted above");
            run.rows_bound = (POLLS_WAITING.saturating_mul(rows_max) as u64).max(ROWS_WAITING_MIN);
            run.waiting = pieces.is_empty();
            state.give_room()
        };
        wanting.iter().for_each(Waker::wake);
        if pieces.is_empty() {
            self.pieces = pieces;
            return Ok(Polled::Pending);
        }
        let arrival_ns = pieces.iter().map(|p| p.arrival_ns).min().unwrap_or(0);
        let bytes = pieces.iter().map(|p| p.bytes).sum();
        let batch = self.build(&pieces);
        let kinds = if self.changes { kinds(&pieces) } else { None };
        pieces.clear();
        self.pieces = pieces;
        let batch = batch.map_err(|e| ConnectError::new(format!("reading stream '{}': {e}", self.stream.name())))?;
        Ok(Polled::Rows(Rows { kinds, ..Rows::good(batch, arrival_ns, bytes) }))
    }

    fn position(&self) -> Value {
        self.stream.inlet.lock().snapshot()
    }
}

impl Drop for InletReader {
    fn drop(&mut self) {
        self.stream.inlet.detach(self.run);
    }
}

impl Inlet {
    /// Counts rows that were taken.
    pub fn count(&self, rows: u64, bytes: u64) {
        self.counters.published_rows.fetch_add(rows, Ordering::Relaxed);
        self.counters.published_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts rows that had come before.
    pub fn count_duplicates(&self, rows: u64) {
        self.counters.duplicates_rows.fetch_add(rows, Ordering::Relaxed);
    }
}
