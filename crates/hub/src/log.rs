//! The log of an `exactly-once` stream: its rows on disk until subscribers have acknowledged them.
//!
//! ```text
//! streams/<name>/acks.json                          how many rows each name has acknowledged
//! streams/<name>/log/.seg-<first>-<run>-<n>.arrow   being written, or prepared by a checkpoint
//! streams/<name>/log/seg-<first>-<rows>.arrow       committed: subscribers may have its rows
//! ```
//!
//! A segment is an Arrow IPC stream and holds the rows between two checkpoints; `first` is the number
//! of its first row over the whole life of the stream. The newest committed rows are also in memory, so
//! that subscribers that keep up read no file. Segments are removed from the oldest on, when every name
//! has acknowledged their rows and more bytes are kept than the table wants; the newest stays, since it
//! tells where the numbers go on.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use serde::{Deserialize, Serialize};
use tidemill_block::rows_bytes;

use crate::contents::{FileWriter, create_directory, create_file, damaged, finish_file, open_file, sync};
use crate::delivery::Delivery;
use crate::error::{HubError, io};

/// Rows gathered before they are written: small blocks would each cost half a kilobyte of headers.
const GATHER_ROWS: usize = 8192;
/// And if they are large: beside so many bytes a header is nothing.
const GATHER_BYTES: usize = 4 << 20;
/// The least time between two writes of the acknowledgements. A lost one costs rows sent twice to a
/// subscriber that asks for `acknowledged` rather than for an offset.
const ACKS_INTERVAL: Duration = Duration::from_millis(100);

/// What a checkpoint holds of a stream: what to commit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Prepared {
    /// The hidden name of the segment; none without rows.
    pub segment: Option<String>,
    /// The number of its first row.
    pub first: u64,
    pub rows: u64,
    /// The file of the contents.
    pub contents: Option<String>,
}

impl Prepared {
    /// The number of the next row.
    pub fn end(&self) -> u64 {
        self.first + self.rows
    }
}

/// A committed segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    first: u64,
    rows: u64,
    /// On disk.
    bytes: u64,
}

impl Segment {
    fn end(&self) -> u64 {
        self.first + self.rows
    }

    fn name(&self) -> String {
        format!("seg-{:020}-{}.arrow", self.first, self.rows)
    }

    /// The segment of a file name.
    fn of(name: &str) -> Option<Self> {
        let (first, rows) = name.strip_prefix("seg-")?.strip_suffix(".arrow")?.split_once('-')?;
        Some(Segment { first: first.parse().ok()?, rows: rows.parse().ok()?, bytes: 0 })
    }
}

/// The log of a stream, as long as a job writes it.
pub(crate) struct Log {
    stream: String,
    /// Holds the segments.
    directory: PathBuf,
    acks_path: PathBuf,
    schema: SchemaRef,
    /// Acknowledged bytes that are kept.
    retention: u64,
    /// Bytes of committed rows in memory.
    recent_max: u64,
    /// Held while acknowledgements are written: an older state of them must not take a newer one's place.
    saving: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Without gaps, oldest first.
    segments: VecDeque<Segment>,
    /// The number of the row after the last committed one.
    next: u64,
    acks: BTreeMap<String, u64>,
    /// Acknowledgements that are not on disk.
    unsaved: bool,
    saved: Option<Instant>,
    /// The files belong to a later run, or are gone.
    closed: bool,
    /// The newest committed rows, without gaps.
    recent: VecDeque<Arc<Delivery>>,
    recent_bytes: u64,
    /// Rows of segments that are prepared: by the number of their first row.
    prepared: Vec<(u64, Vec<Arc<Delivery>>)>,
}

/// Where the rows from some number on are.
pub(crate) enum Found {
    /// In memory; they begin with exactly that number.
    Recent(Arc<Delivery>),
    /// In a file.
    Segment(SegmentReader),
    /// Not committed yet.
    End,
}

impl Log {
    /// The log below `directory`: what the checkpoint had prepared is committed, hidden leftovers are
    /// removed, and what remains is looked at.
    ///
    /// # Errors
    /// What cannot be read or written; a log that does not end where the checkpoint says, or has gaps or
    /// other columns.
    pub fn recover(
        stream: &str,
        directory: &Path,
        schema: SchemaRef,
        (retention, recent_max): (u64, u64),
        prepared: &[Prepared],
    ) -> Result<Self, HubError> {
        let segments = directory.join("log");
        create_directory(&segments)?;
        let acks_path = directory.join("acks.json");
        let log = Log {
            stream: stream.to_string(),
            directory: segments,
            acks_path,
            schema,
            retention,
            recent_max,
            saving: Mutex::default(),
            state: Mutex::default(),
        };
        for one in prepared {
            log.show(one)?;
        }
        let mut found = log.scan()?;
        found.sort_unstable_by_key(|s| s.first);
        if let Some(pair) = found.windows(2).find(|p| p[0].end() != p[1].first) {
            return Err(log.broken(format!("rows {} to {} are missing", pair[0].end(), pair[1].first)));
        }
        let mut acks = log.load_acks()?;
        let expected = prepared.iter().map(Prepared::end).max();
        let next = match (found.last(), expected) {
            (Some(last), Some(expected)) if last.end() != expected => {
                return Err(log.broken(format!("it ends at row {}, the checkpoint at row {expected}", last.end())));
            }
            (Some(last), _) => last.end(),
            (None, Some(expected)) => expected,
            (None, None) => acks.values().copied().max().unwrap_or(0),
        };
        acks.values_mut().for_each(|ack| *ack = (*ack).min(next));
        if let Some(last) = found.last() {
            let reader = open_file(&log.directory.join(last.name()))?;
            if reader.schema().fields() != log.schema.fields() {
                return Err(log.broken("its rows have other columns than the table has now".into()));
            }
        }
        *log.lock() = State { segments: found.into(), next, acks, ..State::default() };
        Ok(log)
    }

    fn broken(&self, why: String) -> HubError {
        HubError::Data(format!(
            "the log of stream '{}' in '{}': {why}; give the table another 'stream.name', or remove the directory and lose its rows",
            self.stream,
            self.directory.display()
        ))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a prepared segment visible. Can be repeated.
    fn show(&self, prepared: &Prepared) -> Result<Option<Segment>, HubError> {
        let Some(hidden) = &prepared.segment else { return Ok(None) };
        let mut segment = Segment { first: prepared.first, rows: prepared.rows, bytes: 0 };
        let to = self.directory.join(segment.name());
        let doing = || format!("committing rows {} to {} of stream '{}' as '{}'", segment.first, segment.end(), self.stream, to.display());
        match fs::rename(self.directory.join(hidden), &to) {
            Ok(()) => sync(&self.directory)?,
            // Committed before the crash.
            Err(e) if e.kind() == ErrorKind::NotFound && to.exists() => {}
            Err(e) => return Err(io(doing(), &e)),
        }
        segment.bytes = fs::metadata(&to).map_err(|e| io(doing(), &e))?.len();
        Ok(Some(segment))
    }

    /// The committed segments; hidden files go.
    fn scan(&self) -> Result<Vec<Segment>, HubError> {
        let doing = || format!("looking through the log of stream '{}' in '{}'", self.stream, self.directory.display());
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(|e| io(doing(), &e))? {
            let entry = entry.map_err(|e| io(doing(), &e))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.starts_with(".seg-") {
                fs::remove_file(entry.path()).map_err(|e| io(format!("removing '{}'", entry.path().display()), &e))?;
            } else if let Some(segment) = Segment::of(name) {
                let bytes = entry.metadata().map_err(|e| io(doing(), &e))?.len();
                found.push(Segment { bytes, ..segment });
            }
        }
        Ok(found)
    }

    fn load_acks(&self) -> Result<BTreeMap<String, u64>, HubError> {
        match fs::read(&self.acks_path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| {
                HubError::Data(format!(
                    "reading '{}': {e}; remove it, and subscribers begin with the oldest row that is kept",
                    self.acks_path.display()
                ))
            }),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(e) => Err(io(format!("reading '{}'", self.acks_path.display()), &e)),
        }
    }

    /// Whether acknowledgements are to be written down.
    pub fn has_unsaved_acks(&self) -> bool {
        let state = self.lock();
        state.unsaved && !state.closed
    }

    /// Writes down acknowledgements that are not on disk yet; nobody else waits for the disk meanwhile.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn save_acks(&self) -> Result<(), HubError> {
        let turn = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        self.save_acks_in(&turn)
    }

    /// The same in the turn to write that the caller has.
    fn save_acks_in(&self, _turn: &MutexGuard<'_, ()>) -> Result<(), HubError> {
        let text = {
            let mut state = self.lock();
            if !state.unsaved || state.closed {
                return Ok(());
            }
            (state.unsaved, state.saved) = (false, Some(Instant::now()));
            serde_json::to_vec(&state.acks).expect("plain data")
        };
        let next = self.acks_path.with_extension("json.next");
        let write = || {
            let mut file = File::create(&next)?;
            file.write_all(&text)?;
            // Else a machine that fails may leave an empty file under the name.
            file.sync_data()?;
            fs::rename(&next, &self.acks_path)
        };
        write().map_err(|e| {
            self.lock().unsaved = true;
            io(format!("writing '{}'", self.acks_path.display()), &e)
        })
    }

    /// A later run is about to read the files, or they are about to be removed: what is acknowledged here
    /// from now on is not written down. Until then it is, although the job has ended.
    pub fn close(&self) {
        let turn = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        // What is not written down costs rows sent twice, no more.
        let _ = self.save_acks_in(&turn);
        self.lock().closed = true;
    }

    /// The number of the oldest row kept and that of the next one.
    pub fn range(&self) -> (u64, u64) {
        let state = self.lock();
        (state.segments.front().map_or(state.next, |s| s.first), state.next)
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.lock().segments.iter().map(|s| s.bytes).sum()
    }

    /// How many rows each name has acknowledged.
    pub fn acknowledged(&self) -> BTreeMap<String, u64> {
        self.lock().acks.clone()
    }

    /// How many rows a name has acknowledged.
    pub fn acknowledged_by(&self, name: &str) -> u64 {
        self.lock().acks.get(name).copied().unwrap_or(0)
    }

    /// A name from now on needs the rows from `offset` on, unless it is known already; gives the number of
    /// the first row that is there for it. A new name is on disk before it is told anything: else a server
    /// that is killed now would remove, when it is back, rows that the name has not had.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn register(&self, name: &str, offset: u64) -> Result<u64, HubError> {
        let mut state = self.lock();
        let oldest = state.segments.front().map_or(state.next, |s| s.first);
        let offset = offset.max(oldest);
        if !state.acks.contains_key(name) {
            state.acks.insert(name.to_string(), offset);
            state.unsaved = true;
            drop(state);
            self.save_acks()?;
        }
        Ok(offset)
    }

    /// See [`crate::Stream::forget`].
    pub fn forget(&self, name: &str) -> Result<bool, HubError> {
        let mut state = self.lock();
        let known = state.acks.remove(name).is_some();
        state.unsaved |= known;
        drop(state);
        self.save_acks()?;
        Ok(known)
    }

    /// A name needs no rows before `offset` any more. Whether that is to be written down now ([`Log::save_acks`]).
    ///
    /// # Errors
    /// There are not so many rows.
    pub fn acknowledge(&self, name: &str, offset: u64) -> Result<bool, HubError> {
        let mut state = self.lock();
        if offset > state.next {
            return Err(HubError::Data(format!(
                "'{name}' acknowledges row {offset} of stream '{}', which has sent only {}; acknowledge the offset that came with the rows",
                self.stream, state.next
            )));
        }
        let ack = state.acks.entry(name.to_string()).or_insert(0);
        if offset <= *ack {
            return Ok(false);
        }
        *ack = offset;
        state.unsaved = true;
        Ok(state.saved.is_none_or(|at| at.elapsed() >= ACKS_INTERVAL))
    }

    /// Makes what a checkpoint has prepared visible to subscribers, and removes what nobody needs.
    ///
    /// # Errors
    /// A file cannot be renamed or removed.
    pub fn commit(&self, prepared: &Prepared) -> Result<(), HubError> {
        let shown = self.show(prepared)?;
        let mut state = self.lock();
        let rows = match state.prepared.iter().position(|(first, _)| *first == prepared.first) {
            Some(at) => state.prepared.swap_remove(at).1,
            None => Vec::new(),
        };
        if let Some(segment) = shown
            && segment.first == state.next
        {
            state.segments.push_back(segment);
            state.next = segment.end();
            state.remember(rows, self.recent_max);
        }
        let removed = self.expire(&mut state);
        drop(state);
        // Before anything goes: what is removed must be known to be acknowledged.
        self.save_acks()?;
        for segment in removed {
            let path = self.directory.join(segment.name());
            fs::remove_file(&path).map_err(|e| io(format!("removing '{}'", path.display()), &e))?;
        }
        Ok(())
    }

    /// Takes out the segments that need not be kept.
    fn expire(&self, state: &mut State) -> Vec<Segment> {
        let needed = state.acks.values().copied().min().unwrap_or(u64::MAX);
        let mut bytes: u64 = state.segments.iter().map(|s| s.bytes).sum();
        let mut removed = Vec::new();
        while state.segments.len() > 1 && bytes > self.retention && state.segments[0].end() <= needed {
            let segment = state.segments.pop_front().expect("more than one");
            bytes -= segment.bytes;
            removed.push(segment);
        }
        removed
    }

    /// Whether the rows from number `offset` on are in memory, or not there yet.
    pub fn is_at_hand(&self, offset: u64) -> bool {
        let state = self.lock();
        offset >= state.next || state.recent.front().is_some_and(|d| d.first() <= offset)
    }

    /// The rows from number `offset` on.
    ///
    /// # Errors
    /// They are no longer kept; their file cannot be read.
    pub fn find(&self, offset: u64) -> Result<Found, HubError> {
        let segment = {
            let state = self.lock();
            if offset >= state.next {
                return Ok(Found::End);
            }
            if state.recent.front().is_some_and(|d| d.first() <= offset) {
                let delivery = &state.recent[state.recent.partition_point(|d| d.next_offset <= offset)];
                return Ok(Found::Recent(if delivery.first() == offset { delivery.clone() } else { Arc::new(delivery.tail(offset)) }));
            }
            match state.segments.get(state.segments.partition_point(|s| s.end() <= offset)) {
                Some(segment) if segment.first <= offset => *segment,
                _ => return Err(self.expired(offset)),
            }
        };
        let path = self.directory.join(segment.name());
        match open_file(&path) {
            Ok(reader) => Ok(Found::Segment(SegmentReader { reader, path, at: segment.first })),
            // Removed since it was looked up.
            Err(_) if !path.exists() => Err(self.expired(offset)),
            Err(e) => Err(e),
        }
    }

    /// The error about rows that were removed.
    pub fn expired(&self, offset: u64) -> HubError {
        HubError::Refused(format!(
            "row {offset} of stream '{}' is no longer kept, the oldest is {}; begin with \"earliest\", acknowledge under a name, or raise 'stream.retention-bytes'",
            self.stream,
            self.range().0
        ))
    }
}

impl State {
    /// Keeps the newest rows in memory.
    fn remember(&mut self, rows: Vec<Arc<Delivery>>, bytes_max: u64) {
        let follows = match (self.recent.back(), rows.first()) {
            (Some(last), Some(first)) => last.next_offset == first.first(),
            _ => true,
        };
        if !follows || rows.is_empty() {
            self.recent.clear();
            self.recent_bytes = 0;
        }
        self.recent_bytes += rows.iter().map(|d| d.bytes).sum::<u64>();
        self.recent.extend(rows);
        while self.recent_bytes > bytes_max
            && let Some(oldest) = self.recent.pop_front()
        {
            self.recent_bytes -= oldest.bytes;
        }
    }
}

/// Reads a segment.
pub(crate) struct SegmentReader {
    reader: StreamReader<std::io::BufReader<fs::File>>,
    path: PathBuf,
    /// The number of the next row in it.
    at: u64,
}

impl SegmentReader {
    /// The next rows from number `offset` on; `None` at the end.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn next(&mut self, offset: u64) -> Result<Option<Delivery>, HubError> {
        while let Some(batch) = self.reader.next().transpose().map_err(|e| damaged(&self.path, &e))? {
            self.at += batch.num_rows() as u64;
            if self.at > offset {
                let delivery = Delivery::new(batch, self.at, false, 0);
                return Ok(Some(if delivery.first() < offset { delivery.tail(offset) } else { delivery }));
            }
        }
        Ok(None)
    }
}

/// Writes the log.
pub(crate) struct LogWriter {
    log: Arc<Log>,
    run: String,
    /// Segments begun in this run.
    count: u64,
    /// The number of the first row that is not prepared.
    first: u64,
    /// Rows written since.
    rows: u64,
    open: Option<(PathBuf, String, FileWriter)>,
    gathered: Vec<RecordBatch>,
    gathered_rows: usize,
    gathered_bytes: usize,
    arrival_ns: u64,
    /// The newest of the rows written, for subscribers that keep up.
    kept: VecDeque<Arc<Delivery>>,
    kept_bytes: u64,
    bytes: u64,
}

impl LogWriter {
    pub fn new(log: Arc<Log>, run: &str) -> Self {
        let first = log.range().1;
        LogWriter {
            log,
            run: run.to_string(),
            count: 0,
            first,
            rows: 0,
            open: None,
            gathered: Vec::new(),
            gathered_rows: 0,
            gathered_bytes: 0,
            arrival_ns: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            bytes: 0,
        }
    }

    /// Bytes in memory of the rows written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes rows.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn write(&mut self, batch: RecordBatch, arrival_ns: u64) -> Result<(), HubError> {
        self.arrival_ns = if self.gathered.is_empty() { arrival_ns } else { self.arrival_ns.min(arrival_ns) };
        self.gathered_rows += batch.num_rows();
        self.gathered_bytes += rows_bytes(&batch);
        self.gathered.push(batch);
        if self.gathered_rows >= GATHER_ROWS || self.gathered_bytes >= GATHER_BYTES { self.write_gathered() } else { Ok(()) }
    }

    fn write_gathered(&mut self) -> Result<(), HubError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let doing = || format!("writing to the log of stream '{}'", self.log.stream);
        let batch = match self.gathered.as_slice() {
            [one] => one.clone(),
            many => concat_batches(&self.log.schema, many).map_err(|e| HubError::Io(format!("{}: {e}", doing())))?,
        };
        self.gathered.clear();
        (self.gathered_rows, self.gathered_bytes) = (0, 0);
        if self.open.is_none() {
            let name = format!(".seg-{:020}-{}-{}.arrow", self.first, self.run, self.count);
            let path = self.log.directory.join(&name);
            let writer = create_file(&path, &self.log.schema)?;
            self.count += 1;
            self.open = Some((path, name, writer));
        }
        let (path, _, writer) = self.open.as_mut().expect("opened above");
        writer.write(&batch).map_err(|e| HubError::Io(format!("writing '{}': {e}", path.display())))?;
        self.rows += batch.num_rows() as u64;
        let delivery = Arc::new(Delivery::new(batch, self.first + self.rows, false, self.arrival_ns));
        self.bytes += delivery.bytes;
        self.kept_bytes += delivery.bytes;
        self.kept.push_back(delivery);
        while self.kept_bytes > self.log.recent_max
            && let Some(oldest) = self.kept.pop_front()
        {
            self.kept_bytes -= oldest.bytes;
        }
        Ok(())
    }

    /// Makes what was written safe on disk; what to commit for it.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn prepare(&mut self) -> Result<Prepared, HubError> {
        self.write_gathered()?;
        let mut prepared = Prepared { segment: None, first: self.first, rows: self.rows, contents: None };
        let Some((path, name, writer)) = self.open.take() else {
            assert_eq!(self.rows, 0, "rows are in a segment");
            return Ok(prepared);
        };
        finish_file(&path, writer)?;
        prepared.segment = Some(name);
        self.log.lock().prepared.push((self.first, std::mem::take(&mut self.kept).into()));
        self.kept_bytes = 0;
        self.first += self.rows;
        self.rows = 0;
        Ok(prepared)
    }
}
