//! A sink node in a worker.
//!
//! Small blocks are gathered, so that a writer is not called for a few rows while more are at hand;
//! what is gathered is handed on when the worker has nothing else to do, or nothing more comes while it
//! has. A writer that encodes and writes files has a thread of its own: operators and encoding then share
//! the cores however unevenly the rows are spread over shards, and nobody but the coordinator waits for a
//! disk to make a checkpoint's files safe.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow::array::{Array, BooleanArray};
use tidemill_block::{Block, RowKind};
use tidemill_connect::{Arrived, Committable, ConnectError, SinkContext, Writer};

use crate::JobError;
use crate::metrics::NodeMetrics;
use crate::parallel::meter::wrote;
use crate::physical::SinkSpec;
use crate::row_bytes::Gathered;
use crate::settings::BlockSize;
use crate::worker::mailbox::Mailbox;

/// Rows gathered before a writer is called, unless they are large.
const GATHER_ROWS: usize = 1024;
/// Blocks of so few rows are put together when so many have come that arrived together: gathered one by one they would be
/// spread over the memory, out of the caches when the writer puts them together, and freed by another thread than made them.
const SMALL_ROWS: usize = 16;
const SMALL_BLOCKS: usize = 64;
/// Blocks gathered, whose latencies are noted together, when the writer takes single ones.
const LATENCY_BLOCKS: usize = 64;
/// Rows that may wait for a writer's thread with blocks of a fixed size: whoever fixes it wants no row to
/// be worked on sooner than it pays.
const ROWS_WAITING: usize = 8192;
/// The same with blocks of size `auto`, which come in hand-overs of about [`GATHER_ROWS`]: enough that a
/// writer whose thread has to wait for a core does not make the worker wait at once; more would only be
/// older when they are written.
const ROWS_WAITING_AUTO: usize = 6144;
/// Among rows that wait a larger one counts for as many of this size as it would make.
const ROW_WAITING_BYTES: usize = 1 << 10;
/// How often who waits for a writer's thread looks around.
const WAIT_STEP: Duration = Duration::from_millis(100);

/// A sink node.
pub(super) struct SinkTask {
    gathers: bool,
    /// Rows gathered before the writer is called.
    gather_rows: usize,
    gathered: Vec<Block>,
    count: Gathered,
    /// How many of the last blocks gathered are small and arrived together.
    small: usize,
    dirty: bool,
    /// Rows have come since it was last asked whether it is quiet.
    came: bool,
    /// How long the last write waited for the writer's thread.
    waited: Duration,
    writer: Place,
}

/// Where the writer runs.
enum Place {
    Here(SinkWriter),
    Thread(WriterThread),
}

struct WriterThread {
    mailbox: Arc<Mailbox<Message>>,
    thread: Option<JoinHandle<()>>,
    failure: Arc<Mutex<Option<JobError>>>,
}

enum Message {
    Rows(Vec<Block>),
    Flush,
    Prepare { last: bool, done: Sender<Vec<Committable>> },
}

/// What a sink has prepared for a checkpoint.
pub(crate) enum Prepared {
    Now(Vec<Committable>),
    /// Its thread is still at it.
    Later(Receiver<Vec<Committable>>, Arc<Mutex<Option<JobError>>>),
}

impl Prepared {
    /// Why its thread has ended, if that has failed.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Prepared::Now(_) => None,
            Prepared::Later(_, failure) => Some(Failure(failure.clone())),
        }
    }

    /// Waits until it is done; calls `meanwhile` now and then, whose error ends the waiting.
    pub fn wait(self, mut meanwhile: impl FnMut() -> Result<(), JobError>) -> Result<Vec<Committable>, JobError> {
        let (done, failure) = match self {
            Prepared::Now(committables) => return Ok(committables),
            Prepared::Later(done, failure) => (done, failure),
        };
        loop {
            match done.recv_timeout(WAIT_STEP) {
                Ok(committables) => return Ok(committables),
                Err(RecvTimeoutError::Timeout) => meanwhile()?,
                Err(RecvTimeoutError::Disconnected) => return Err(taken(&failure)),
            }
        }
    }
}

/// Where a thread of a sink leaves why it has ended.
pub(crate) struct Failure(Arc<Mutex<Option<JobError>>>);

impl Failure {
    /// Looks whether there is something.
    ///
    /// # Errors
    /// That.
    pub fn check(&self) -> Result<(), JobError> {
        let failed = self.0.lock().expect("no panic while held").is_some();
        if failed { Err(taken(&self.0)) } else { Ok(()) }
    }
}

/// For how many rows those of a hand-over count while they wait.
fn weight(rows: usize, bytes: usize) -> usize {
    rows.max(bytes / ROW_WAITING_BYTES)
}

/// Why the thread of a writer has ended. Several may ask: who waits for a checkpoint, and who hands rows over.
fn taken(failure: &Mutex<Option<JobError>>) -> JobError {
    let failure = failure.lock().expect("no panic while held");
    failure
        .as_ref()
        .map(JobError::failed)
        .unwrap_or_else(|| JobError::failed("internal error: the thread of a sink has ended; its message is above"))
}

impl SinkTask {
    pub fn open(spec: &SinkSpec, context: SinkContext, block_size: BlockSize, metrics: Arc<NodeMetrics>) -> Result<Self, JobError> {
        let mut writer = spec.sink.writer(context).map_err(|e| JobError::failed(format!("table '{}': {e}", spec.table)))?;
        let noted = metrics.clone();
        let tells = writer.tell_visible(Arc::new(move |arrived: &[Arrived]| noted.record_latencies(arrived.iter().copied())));
        let writer = SinkWriter {
            table: spec.table.clone(),
            writer,
            tells,
            update_before: spec.sink.wants_update_before(),
            not_null: spec.not_null.clone(),
            rows_at_once: spec.rows_at_once.unwrap_or(usize::MAX),
            metrics,
        };
        let rows_max = if block_size == BlockSize::Auto { ROWS_WAITING_AUTO } else { ROWS_WAITING };
        let writer = if spec.sink.own_thread() { Place::Thread(WriterThread::start(writer, rows_max)?) } else { Place::Here(writer) };
        Ok(SinkTask {
            gathers: spec.sink.gathers() || spec.rows_at_once.is_some(),
            gather_rows: spec.rows_at_once.unwrap_or(GATHER_ROWS),
            gathered: Vec::new(),
            count: Gathered::default(),
            small: 0,
            dirty: false,
            came: false,
            waited: Duration::ZERO,
            writer,
        })
    }

    pub fn write(&mut self, block: Block) -> Result<(), JobError> {
        (self.dirty, self.came, self.waited) = (true, true, Duration::ZERO);
        if !self.gathers {
            return self.write_single(block);
        }
        let enough = self.count.add(&block.batch, self.gather_rows);
        self.gather(block)?;
        if enough { self.hand_on() } else { Ok(()) }
    }

    /// How long the last write waited because the writer's thread is behind.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    fn gather(&mut self, block: Block) -> Result<(), JobError> {
        let together = self.gathered.last().is_some_and(|last| last.arrival_ns == block.arrival_ns);
        self.small = match block.rows() {
            0..=SMALL_ROWS if together => self.small + 1,
            0..=SMALL_ROWS => 1,
            _ => 0,
        };
        self.gathered.push(block);
        if self.small == SMALL_BLOCKS {
            let small = self.gathered.len() - SMALL_BLOCKS;
            let blocks = &self.gathered[small..];
            let mut all = Block::concat(&blocks[0].schema(), blocks).map_err(JobError::failed)?;
            all.arrival_ns = blocks[0].arrival_ns;
            self.gathered.truncate(small);
            self.gathered.push(all);
            self.small = 0;
        }
        Ok(())
    }

    /// For writers that want no more than to see the blocks: only the clock is read for many.
    fn write_single(&mut self, block: Block) -> Result<(), JobError> {
        let Place::Here(writer) = &mut self.writer else { unreachable!("writers with threads gather") };
        let same = self.gathered.last().is_none_or(|b| b.arrival_ns == block.arrival_ns);
        if !same || self.gathered.len() >= LATENCY_BLOCKS {
            writer.record_latencies(&self.gathered);
            self.gathered.clear();
        }
        writer.write(&block)?;
        self.gathered.push(block);
        Ok(())
    }

    /// Gives the writer what is gathered.
    fn hand_on(&mut self) -> Result<(), JobError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let (rows, bytes) = self.count.take();
        self.small = 0;
        match &mut self.writer {
            Place::Here(writer) if !self.gathers => writer.record_latencies(&self.gathered),
            Place::Here(writer) => writer.write_all(&self.gathered)?,
            Place::Thread(thread) => self.waited += thread.send(Message::Rows(std::mem::take(&mut self.gathered)), weight(rows, bytes))?,
        }
        self.gathered.clear();
        Ok(())
    }

    /// Hands on what is buffered, if anything came since the last time.
    pub fn flush(&mut self) -> Result<(), JobError> {
        if std::mem::take(&mut self.dirty) {
            self.hand_on()?;
            match &mut self.writer {
                Place::Here(writer) => writer.flush()?,
                Place::Thread(thread) => {
                    thread.send(Message::Flush, 0)?;
                }
            }
        }
        Ok(())
    }

    /// Called now and then while the worker has other things to do: as [`SinkTask::flush`] if nothing has come since the
    /// last time. A buffer that is being filled is left alone.
    pub fn flush_if_quiet(&mut self) -> Result<(), JobError> {
        if std::mem::take(&mut self.came) { Ok(()) } else { self.flush() }
    }

    pub fn prepare(&mut self, last: bool) -> Result<Prepared, JobError> {
        self.hand_on()?;
        match &mut self.writer {
            Place::Here(writer) => Ok(Prepared::Now(writer.prepare(last)?)),
            Place::Thread(thread) => {
                let (done, receiver) = channel();
                thread.send(Message::Prepare { last, done }, 0)?;
                Ok(Prepared::Later(receiver, thread.failure.clone()))
            }
        }
    }
}

impl WriterThread {
    fn start(mut writer: SinkWriter, rows_max: usize) -> Result<Self, JobError> {
        let mailbox = Arc::new(Mailbox::new(rows_max));
        let failure = Arc::new(Mutex::new(None));
        let (theirs, told) = (mailbox.clone(), failure.clone());
        let name = format!("sink-{}", writer.table);
        let thread = std::thread::Builder::new().name(name).spawn(move || writer.serve(&theirs, &told));
        let thread = thread.map_err(|e| JobError::failed(format!("starting the thread of a sink: {e}")))?;
        Ok(WriterThread { mailbox, thread: Some(thread), failure })
    }

    /// How long it waited for room.
    fn send(&self, message: Message, rows: usize) -> Result<Duration, JobError> {
        self.mailbox.send(message, rows).ok_or_else(|| taken(&self.failure))
    }
}

impl Drop for WriterThread {
    /// A job that has ended writes no more.
    fn drop(&mut self) {
        self.mailbox.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A writer and what is checked and noted of what it writes.
struct SinkWriter {
    table: String,
    writer: Box<dyn Writer>,
    /// It tells itself when rows are visible.
    tells: bool,
    update_before: bool,
    not_null: Vec<usize>,
    /// The most rows that the writer is given.
    rows_at_once: usize,
    metrics: Arc<NodeMetrics>,
}

impl SinkWriter {
    /// Does what comes until nothing more will, or something fails.
    fn serve(&mut self, mailbox: &Mailbox<Message>, failure: &Mutex<Option<JobError>>) {
        let taking = mailbox.taking();
        while let Some(message) = taking.next() {
            let (result, answered) = match message {
                Message::Rows(blocks) => (self.write_all(&blocks), None),
                Message::Flush => (self.flush(), None),
                Message::Prepare { last, done } => {
                    // Nobody waits for it if the job has failed meanwhile.
                    let result = self.prepare(last).map(|committables| drop(done.send(committables)));
                    (result, Some(done))
                }
            };
            if let Err(e) = result {
                // Noted before the channels close, so that who finds them closed finds it.
                *failure.lock().expect("no panic while held") = Some(e);
                return;
            }
            drop(answered);
        }
    }

    fn failed(&self, e: ConnectError) -> JobError {
        JobError::failed(format!("writing to table '{}': {e}", self.table))
    }

    fn write_all(&mut self, blocks: &[Block]) -> Result<(), JobError> {
        let begun = Instant::now();
        match blocks {
            [one] => self.write_parts(one)?,
            _ => self.write_parts(&Block::concat(&blocks[0].schema(), blocks).map_err(JobError::failed)?)?,
        }
        wrote(begun.elapsed());
        self.record_latencies(blocks);
        Ok(())
    }

    /// Writes a block, no more rows at once than the table says.
    fn write_parts(&mut self, block: &Block) -> Result<(), JobError> {
        if block.rows() <= self.rows_at_once {
            return self.write(block);
        }
        for at in (0..block.rows()).step_by(self.rows_at_once) {
            self.write(&block.slice(at, self.rows_at_once.min(block.rows() - at)))?;
        }
        Ok(())
    }

    fn write(&mut self, block: &Block) -> Result<(), JobError> {
        let filtered = match &block.kinds {
            Some(kinds) if !self.update_before && kinds.contains(&RowKind::UpdateBefore) => {
                let mask: BooleanArray = kinds.iter().map(|k| Some(*k != RowKind::UpdateBefore)).collect();
                Some(block.filter(&mask).map_err(JobError::failed)?)
            }
            _ => None,
        };
        let block = filtered.as_ref().unwrap_or(block);
        for column in &self.not_null {
            if block.column(*column).null_count() > 0 {
                return Err(JobError::failed(format!(
                    "writing to table '{}': column '{}' is NOT NULL, but the query gave a NULL; filter such rows out or use COALESCE",
                    self.table,
                    block.schema().field(*column).name()
                )));
            }
        }
        self.writer.write(block).map_err(|e| self.failed(e))?;
        self.metrics.rows.fetch_add(block.rows() as u64, Ordering::Relaxed);
        self.metrics.bytes.store(self.writer.stats().bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Notes how long ago the rows of blocks that are written now arrived.
    fn record_latencies(&self, blocks: &[Block]) {
        if self.tells {
            return;
        }
        let same = blocks.chunk_by(|a, b| a.arrival_ns == b.arrival_ns);
        let rows = |blocks: &[Block]| blocks.iter().map(|b| b.rows() as u64).sum::<u64>();
        self.metrics.record_latencies(same.map(|same| Arrived { arrival_ns: same[0].arrival_ns, rows: rows(same) }));
    }

    fn flush(&mut self) -> Result<(), JobError> {
        self.writer.flush().map_err(|e| self.failed(e))
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, JobError> {
        let prepared = self.writer.prepare(last).map_err(|e| self.failed(e))?;
        self.metrics.bytes.store(self.writer.stats().bytes, Ordering::Relaxed);
        Ok(prepared)
    }
}

#[cfg(test)]
mod tests;
