//! A source node in a worker: polls the readers of its splits and stamps watermarks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, SchemaRef};
use serde::{Deserialize, Serialize};
use tidemill_block::{Block, NO_WATERMARK, WATERMARK_END, clock};
use tidemill_connect::{Polled, ReaderContext, Rows, Sockets, Source, Split, Waker};
use tidemill_operator::map::Expr;
use tidemill_operator::over::times::TimeColumn;
use tidemill_plan::message;
use tidemill_state::hash;

use crate::JobError;
use crate::connector::OnError;
use crate::metrics::{Laggard, NodeMetrics};
use crate::parallel::opening::Opened;
use crate::parallel::readers::Readers;
use crate::physical::{SourceSpec, SourceWatermark, Strategy};
use crate::row_bytes::RowBytes;
use crate::settings::{BlockSize, Settings};
use crate::worker::drift::Drift;
use crate::worker::goal::LatencyGoal;

/// A split as it stands in a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SplitState {
    pub split: Split,
    /// The split's watermark so far, ms.
    pub watermark: i64,
    pub finished: bool,
}

impl SplitState {
    pub fn new(split: Split) -> Self {
        SplitState { split, watermark: NO_WATERMARK, finished: false }
    }

    /// What the blocks of the split say that they came from.
    pub fn partition(&self) -> u32 {
        hash::bytes(self.split.id.as_bytes()) as u32
    }
}

struct Active {
    state: SplitState,
    reader: Option<Opened>,
    /// Gave nothing when last polled, and was not woken since.
    waiting: bool,
    /// When it last gave rows, ns.
    last_rows_ns: u64,
    /// What its blocks say that they came from.
    partition: u32,
}

/// What a reader gave at once, being handed on in smaller blocks: reading, computed columns and
/// watermarks are paid for a chunk, whatever the block size.
struct Chunk {
    rows: Block,
    batch: Arc<RecordBatch>,
    /// Rows handed on.
    at: usize,
    split: usize,
    /// The split's watermark before these rows: what is behind them must not be known before they
    /// are handed on.
    watermark: i64,
}

/// The rows a chunk is read for; a multiple of no fixed block size in particular.
const CHUNK_ROWS: usize = 2048;
/// The same where the size of blocks follows the load: rows wait for those that are read with them, and fewer cost hardly more.
const CHUNK_ROWS_AUTO: usize = 1024;

/// Splits that are being opened at once where all will be open.
const COMING_MAX: usize = 8;

/// What a poll of the source came to.
pub(super) enum Outcome {
    Block(Block),
    /// Bad records for the dead-letter table, and rows if there were any.
    BadRecords {
        bad: Block,
        good: Option<Block>,
    },
    Pending,
    /// Every split is at its end.
    End,
}

pub(super) struct SourceTask {
    table: String,
    source: Arc<dyn Source>,
    context: ReaderContext,
    splits: Vec<Active>,
    next: usize,
    schema: SchemaRef,
    project: Option<Vec<Expr>>,
    watermark: Option<SourceWatermark>,
    block_size: BlockSize,
    goal: Option<LatencyGoal>,
    row_bytes: RowBytes,
    linger_ns: u64,
    held: VecDeque<Block>,
    held_rows: usize,
    chunk: Option<Chunk>,
    chunked: bool,
    /// The split that lags is waited for, since it will go on: others that ran ahead would only fill
    /// the memory.
    waits: bool,
    /// How far this worker is ahead of others that read the table, where those that lag are waited for.
    drift: Option<Drift>,
    /// Splits that never end.
    endless: bool,
    idle_ns: u64,
    on_error: OnError,
    dead_letter_schema: Option<SchemaRef>,
    metrics: Arc<NodeMetrics>,
    /// What all workers share that read files.
    readers: Option<Arc<Readers>>,
    /// All splits are open, or were.
    ahead_done: bool,
    /// More splits may come.
    pub discovers: bool,
    pub ended: bool,
    pub emitted_watermark: i64,
    pub emitted_idle: bool,
}

impl SourceTask {
    #[allow(clippy::too_many_arguments)] // One call, and each is a thing of its own.
    pub fn new(
        spec: &SourceSpec,
        schema: SchemaRef,
        settings: &Settings,
        waker: Waker,
        shard: usize,
        shards: usize,
        dead_letter_schema: Option<SchemaRef>,
        metrics: Arc<NodeMetrics>,
    ) -> Self {
        let block_size = spec.options.block_size.unwrap_or(settings.block_size);
        let target = spec.options.latency_target.or(settings.latency_target);
        let idle_timeout = spec.options.idle_timeout.unwrap_or(settings.idle_timeout);
        let cut = match block_size {
            // To wait in a chunk would be against a target. Without one it is all the same to rows that have
            // arrived whether they wait in a chunk or in the source, and a chunk of an endless source holds no
            // more than what had arrived when it was read.
            BlockSize::Auto => target.is_none(),
            BlockSize::Rows(rows) => rows < CHUNK_ROWS,
        };
        // Tests that want a checkpoint every few blocks want what was read to be in these blocks.
        let readers = spec.readers(settings, shards);
        if let Some(readers) = &readers {
            metrics.read_by(readers.clone());
        }
        let linger = spec.options.block_linger.unwrap_or(settings.block_linger);
        let chunked = cut && linger.is_zero() && settings.checkpoint_blocks.is_none();
        let waits = spec.source.bounded() && idle_timeout.is_zero();
        let drift = (waits && spec.watermark.is_some() && shards > 1).then(|| Drift::new(spec.reached(shards), shard));
        SourceTask {
            table: spec.table.clone(),
            source: spec.source.clone(),
            context: ReaderContext { waker, request: spec.request.clone(), shard, shards },
            splits: Vec::new(),
            next: 0,
            schema,
            project: spec.project.clone(),
            watermark: spec.watermark.clone(),
            goal: (block_size == BlockSize::Auto).then(|| LatencyGoal::new(target)),
            block_size,
            row_bytes: RowBytes::default(),
            linger_ns: linger.as_nanos() as u64,
            held: VecDeque::new(),
            held_rows: 0,
            chunk: None,
            chunked,
            waits,
            drift,
            endless: !spec.source.bounded(),
            idle_ns: idle_timeout.as_nanos() as u64,
            on_error: spec.options.on_error,
            dead_letter_schema,
            metrics,
            readers,
            ahead_done: false,
            discovers: spec.source.discovery_interval().is_some(),
            ended: false,
            emitted_watermark: NO_WATERMARK,
            emitted_idle: false,
        }
    }

    pub fn add(&mut self, state: SplitState) {
        self.ahead_done = false;
        let partition = state.partition();
        self.splits.push(Active { state, reader: None, waiting: false, last_rows_ns: clock::now_ns(), partition });
    }

    /// The splits as they stand, for a checkpoint. Rows held back for a fuller block must have been
    /// taken with [`SourceTask::release`] before.
    pub fn states(&mut self) -> Vec<SplitState> {
        assert!(self.held.is_empty() && self.chunk.is_none(), "held rows are released before a barrier");
        for active in &mut self.splits {
            if let Some(reader) = &active.reader {
                // What is not open yet stands where it stood.
                active.state.split.position = reader.position().or_else(|| active.state.split.position.take());
            }
        }
        self.splits.iter().map(|a| a.state.clone()).collect()
    }

    /// Something may have arrived.
    pub fn wake(&mut self) {
        self.splits.iter_mut().for_each(|a| a.waiting = false);
    }

    /// Whether somebody waits for what was read to be committed.
    pub fn wants_checkpoint(&self) -> bool {
        !self.ended && self.source.wants_checkpoint()
    }

    /// The worker is about to sleep: what it shall wait for beside its signal.
    pub fn wait_on(&mut self, sockets: &mut Sockets) {
        self.splits.iter_mut().filter_map(|a| a.reader.as_mut()).for_each(|reader| reader.wait_on(sockets));
    }

    /// The watermark of this source in this worker, and whether all of its splits are idle.
    pub fn watermark(&self, now_ns: u64) -> (i64, bool) {
        if self.ended {
            return (WATERMARK_END, false);
        }
        if self.watermark.is_none() {
            return (NO_WATERMARK, false);
        }
        let (mut lowest, mut open, mut idle) = (i64::MAX, 0, 0);
        for active in self.splits.iter().filter(|a| !a.state.finished) {
            open += 1;
            if self.is_idle(active, now_ns) {
                idle += 1;
            } else {
                lowest = lowest.min(active.state.watermark);
            }
        }
        if let Some(chunk) = &self.chunk {
            lowest = lowest.min(chunk.watermark);
            if open == idle {
                return (lowest, false);
            }
        }
        match (open, idle) {
            // Only finished splits: files that may still come have not been seen, so time stands.
            (0, _) => {
                (self.splits.iter().map(|a| a.state.watermark).max().unwrap_or(NO_WATERMARK), self.splits.is_empty() && self.idle_ns > 0)
            }
            (o, i) if o == i => (self.emitted_watermark, true),
            _ => (lowest, false),
        }
    }

    /// Whether a split has given nothing for so long that nobody waits for it.
    #[inline]
    fn is_idle(&self, active: &Active, now_ns: u64) -> bool {
        // Of what is being opened nobody can say that nothing comes.
        let coming = active.reader.as_ref().is_some_and(Opened::coming);
        self.idle_ns > 0 && active.waiting && !coming && now_ns.saturating_sub(active.last_rows_ns) > self.idle_ns
    }

    /// The split that holds back the watermark, for people: they would look for it among hundreds of partitions.
    pub fn laggard(&self, now_ns: u64) -> Option<Laggard> {
        if self.ended || self.watermark.is_none() {
            return None;
        }
        let counting = self.splits.iter().filter(|a| !a.state.finished && !self.is_idle(a, now_ns));
        let active = counting.min_by_key(|a| a.state.watermark)?;
        Some(Laggard {
            split: active.state.split.id.clone(),
            watermark: Some(active.state.watermark).filter(|ms| *ms != NO_WATERMARK),
            // One that was not asked is not silent.
            silent_s: if active.waiting { now_ns.saturating_sub(active.last_rows_ns) as f64 / 1e9 } else { 0.0 },
        })
    }

    /// The event time reached, for choosing among sources.
    pub fn progress(&self) -> i64 {
        self.splits.iter().filter(|a| !a.state.finished && !a.waiting).map(|a| a.state.watermark).min().unwrap_or(i64::MAX)
    }

    /// The split to poll: the one that lags most in event time, so that files are merged by time
    /// and no more is buffered than their disorder asks for; without event time, in order.
    fn choose(&mut self) -> Option<usize> {
        let ready = |a: &Active| !a.state.finished && !a.waiting;
        if self.splits.len() == 1 {
            return ready(&self.splits[0]).then_some(0);
        }
        let share = self.readers.as_ref().filter(|readers| readers.ahead()).map(|readers| readers.share(self.context.shard));
        if self.watermark.is_none()
            && let Some(share) = share
        {
            return self.choose_within(share);
        }
        if self.watermark.is_some() && self.waits {
            let lagging =
                (0..self.splits.len()).filter(|i| !self.splits[*i].state.finished).min_by_key(|i| self.splits[*i].state.watermark);
            return lagging.filter(|i| ready(&self.splits[*i]));
        }
        if self.watermark.is_some() {
            // What is opened ahead is left to that: to choose it now would open all at once, each by a thread.
            let open = |a: &Active| share.is_none() || a.reader.is_some();
            let ready = (0..self.splits.len()).filter(|i| ready(&self.splits[*i]) && open(&self.splits[*i]));
            return ready.min_by_key(|i| self.splits[*i].state.watermark);
        }
        let found = (0..self.splits.len()).map(|k| (self.next + k) % self.splits.len()).find(|i| ready(&self.splits[*i]))?;
        // Splits that never end take turns: one with a backlog must not keep the others waiting.
        self.next = if self.endless { found + 1 } else { found };
        Some(found)
    }

    /// As [`SourceTask::choose`] without event time, where no more than so many splits shall be open, the first of those
    /// that are not at their ends. The only shard goes through them in their order.
    fn choose_within(&mut self, share: usize) -> Option<usize> {
        while self.splits.get(self.next).is_some_and(|a| a.state.finished) {
            self.next += 1;
        }
        let asked = if self.context.shards == 1 { 1 } else { share };
        let mut open = self.splits.iter().enumerate().skip(self.next).filter(|(_, a)| !a.state.finished).take(asked);
        open.find(|(_, a)| !a.waiting).map(|(at, _)| at)
    }

    /// Opens splits behind a network before they are asked for, so that a round trip is waited for once and not for each:
    /// with event time as many as may be on their way, since all will be open to be merged; without it those behind the one
    /// that the only shard reads. Whether some were opened.
    fn open_ahead(&mut self) -> Result<bool, JobError> {
        let Some(readers) = self.readers.as_ref().filter(|readers| readers.ahead()) else { return Ok(false) };
        let closed = |a: &Active| a.reader.is_none() && !a.state.finished;
        let closed: Vec<usize> = if self.watermark.is_none() {
            let share = if self.context.shards == 1 { readers.share(self.context.shard) } else { 0 };
            let open = self.splits.iter().enumerate().skip(self.next).filter(|(_, a)| !a.state.finished).take(share);
            open.filter(|(_, a)| closed(a)).map(|(at, _)| at).collect()
        } else if self.ahead_done {
            return Ok(false);
        } else {
            let coming = self.splits.iter().filter(|a| a.reader.as_ref().is_some_and(Opened::coming)).count();
            let all = self.splits.iter().enumerate().filter(|(_, a)| closed(a)).map(|(at, _)| at);
            let next: Vec<usize> = all.take(COMING_MAX.saturating_sub(coming)).collect();
            self.ahead_done = next.is_empty() && coming < COMING_MAX;
            next
        };
        for at in &closed {
            self.open(*at)?;
        }
        Ok(!closed.is_empty())
    }

    fn open(&mut self, at: usize) -> Result<(), JobError> {
        let active = &mut self.splits[at];
        let opened = Opened::new(&self.source, &active.state.split, self.context.clone(), self.readers.as_ref());
        active.reader = Some(opened.map_err(|e| JobError::failed(format!("table '{}': {e}", self.table)))?);
        Ok(())
    }

    /// Up to a block of rows of what has arrived.
    pub fn poll(&mut self) -> Result<Outcome, JobError> {
        if let Some(part) = self.next_part() {
            return Ok(Outcome::Block(part));
        }
        let mut wanted = match &self.goal {
            Some(goal) if self.chunked => goal.chunk(CHUNK_ROWS_AUTO),
            None if self.chunked => CHUNK_ROWS,
            _ => self.part_rows(),
        };
        // Rows that are large are not read by thousands; a size that somebody has fixed is kept even so.
        let least = if self.goal.is_some() { 1 } else { self.part_rows() };
        wanted = wanted.min(self.row_bytes.rows_max().max(least));
        if self.linger_ns > 0 {
            wanted -= self.held_rows.min(wanted - 1);
        }
        self.open_ahead()?;
        let may_read = self.drift.as_mut().is_none_or(|drift| drift.may_read(clock::now_ns));
        loop {
            let Some(at) = may_read.then(|| self.choose()).flatten() else {
                // Some that were on their way have come, or are at their ends already: others may follow, and nobody
                // else would open them.
                if self.open_ahead()? {
                    continue;
                }
                break;
            };
            if self.splits[at].reader.is_none() {
                self.open(at)?;
            }
            let active = &mut self.splits[at];
            let reader = active.reader.as_mut().expect("opened above");
            if reader.coming() {
                // It is idle when nothing has come for so long since it was there.
                active.last_rows_ns = clock::now_ns();
            }
            let polled = reader.poll(wanted).map_err(|e| JobError::failed(format!("table '{}': {e}", self.table)))?;
            match polled {
                Polled::Rows(rows) => {
                    let before = active.state.watermark;
                    let outcome = self.rows(at, rows)?;
                    if self.chunked {
                        return Ok(match outcome {
                            Outcome::Block(block) if block.rows() == 0 => continue,
                            Outcome::Block(block) => Outcome::Block(self.begin_chunk(at, block, before)),
                            Outcome::BadRecords { bad, good } => {
                                Outcome::BadRecords { bad, good: good.map(|block| self.begin_chunk(at, block, before)) }
                            }
                            other => other,
                        });
                    }
                    let Outcome::Block(block) = outcome else { return Ok(outcome) };
                    if self.linger_ns == 0 || matches!(self.block_size, BlockSize::Auto) {
                        return if block.rows() > 0 { Ok(Outcome::Block(block)) } else { continue };
                    }
                    self.held_rows += block.rows();
                    self.held.push_back(block);
                    if self.held_rows >= self.block_size.rows_max() {
                        return Ok(self.release()?.map_or(Outcome::Pending, Outcome::Block));
                    }
                    wanted = self.block_size.rows_max() - self.held_rows;
                }
                Polled::Pending => active.waiting = true,
                Polled::End => {
                    let reader = active.reader.take().expect("polled above");
                    active.state.split.position = reader.position();
                    active.state.finished = true;
                }
            }
        }
        let over = !self.discovers && self.splits.iter().all(|a| a.state.finished);
        let lingered = self.held.front().is_some_and(|b| clock::now_ns().saturating_sub(b.arrival_ns) >= self.linger_ns);
        if (over || lingered)
            && let Some(block) = self.release()?
        {
            return Ok(Outcome::Block(block));
        }
        if over && let Some(drift) = &mut self.drift {
            drift.end();
        }
        Ok(if over { Outcome::End } else { Outcome::Pending })
    }

    /// The time, if a block of so many rows is to be worked off in time from now on.
    pub fn taken(&self, rows: usize) -> Option<u64> {
        self.goal.as_ref().filter(|g| g.concerns(rows)).map(|_| clock::now_ns())
    }

    /// A block of so many rows that arrived then and was taken at `taken_ns` has been worked off; `beside_ns` went into rows of
    /// blocks before it, which had waited for a watermark. For `waited_ns` of it a sink was behind: a block of another size would
    /// have waited for the same rows.
    pub fn served(&mut self, rows: usize, arrival_ns: u64, taken_ns: u64, beside_ns: u64, waited_ns: u64) {
        if let Some(goal) = &mut self.goal {
            let wait = if arrival_ns == 0 { 0 } else { taken_ns.saturating_sub(arrival_ns) };
            goal.observe(rows, wait, clock::now_ns().saturating_sub(taken_ns + waited_ns) + beside_ns);
        }
    }

    /// The most rows of a block.
    fn part_rows(&self) -> usize {
        self.goal.as_ref().map_or_else(|| self.block_size.rows_max(), LatencyGoal::cap)
    }

    fn begin_chunk(&mut self, split: usize, rows: Block, watermark: i64) -> Block {
        if rows.rows() <= self.part_rows() {
            return rows;
        }
        self.chunk = Some(Chunk { batch: Arc::new(rows.batch.clone()), rows, at: 0, split, watermark });
        self.next_part().expect("more rows than a block holds")
    }

    /// The next block of what was read before, if any of it is left.
    pub fn next_part(&mut self) -> Option<Block> {
        let most = self.part_rows();
        let chunk = self.chunk.as_mut()?;
        let left = chunk.rows.rows() - chunk.at;
        // A size that is ours is not met to the row: the last part shall not be a sliver.
        let rows = if self.goal.is_some() { left.div_ceil(left.div_ceil(most)) } else { left.min(most) };
        let part = chunk.rows.part(&chunk.batch, chunk.at, rows);
        chunk.at += rows;
        if chunk.at == chunk.rows.rows() {
            self.splits[chunk.split].last_rows_ns = clock::now_ns();
            self.chunk = None;
        }
        Some(part)
    }

    /// Rows held back for a fuller block, or not yet handed on.
    pub fn release(&mut self) -> Result<Option<Block>, JobError> {
        if let Some(chunk) = self.chunk.take() {
            return Ok(Some(chunk.rows.slice(chunk.at, chunk.rows.rows() - chunk.at)));
        }
        self.held_rows = 0;
        let held: Vec<Block> = self.held.drain(..).collect();
        if held.is_empty() {
            return Ok(None);
        }
        Ok(Some(Block::concat(&self.schema, &held).map_err(JobError::failed)?))
    }

    fn rows(&mut self, at: usize, rows: Rows) -> Result<Outcome, JobError> {
        let Rows { batch, kinds, arrival_ns, bytes, bad, places } = rows;
        self.metrics.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(readers) = &self.readers {
            readers.read(bytes);
        }
        self.metrics.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        self.splits[at].last_rows_ns = clock::now_ns();
        let mut dead = None;
        if !bad.is_empty() {
            self.metrics.bad_rows.fetch_add(bad.len() as u64, Ordering::Relaxed);
            match self.on_error {
                OnError::Fail => {
                    let raw = String::from_utf8_lossy(&bad[0].raw[..bad[0].raw.len().min(120)]).into_owned();
                    return Err(JobError::failed(format!(
                        "table '{}': {}: {}: {raw:?}\nset 'on-error' = 'skip' to count and pass over such records, or 'dead-letter' to keep them in a table",
                        self.table, places[0], bad[0].reason
                    )));
                }
                OnError::Skip => {}
                OnError::DeadLetter => dead = Some(self.dead_letters(&bad, &places, arrival_ns)?),
            }
        }
        let rows = batch.num_rows();
        let batch = match &self.project {
            None => batch,
            Some(expressions) => {
                let columns = expressions
                    .iter()
                    .map(|e| e.evaluate(&batch)?.into_array(rows))
                    .collect::<Result<Vec<ArrayRef>, _>>()
                    .map_err(|e| JobError::failed(format!("table '{}': computing a column: {}", self.table, message::of(&e))))?;
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(JobError::failed)?
            }
        };
        // Expressions make a row of a row, so kinds stay with theirs.
        let mut block = match kinds {
            Some(kinds) => Block::changelog(batch, kinds.into(), arrival_ns),
            None => Block::inserts(batch, arrival_ns),
        };
        if rows > 0 {
            self.row_bytes.of(&block.batch);
            self.stamp(at, &mut block)?;
            if let Some(drift) = &mut self.drift {
                let open = self.splits.iter().filter(|a| !a.state.finished);
                drift.read(open.map(|a| a.state.watermark).min().unwrap_or(NO_WATERMARK), block.memory());
            }
        }
        let block = block.in_partition(self.splits[at].partition);
        Ok(match dead {
            Some(bad) => Outcome::BadRecords { bad, good: (rows > 0).then_some(block) },
            None => Outcome::Block(block),
        })
    }

    /// Advances the split's watermark row by row and marks the rows that lie behind it.
    fn stamp(&mut self, at: usize, block: &mut Block) -> Result<(), JobError> {
        let Some(watermark) = &self.watermark else { return Ok(()) };
        let mut reached = self.splits[at].state.watermark;
        let times = TimeColumn::of(block.column(watermark.column)).map_err(JobError::failed)?;
        let candidates: Option<ArrayRef> = match &watermark.strategy {
            Strategy::Delay(_) => None,
            Strategy::Expression(e) => Some(e.evaluate(&block.batch)?.into_array(block.rows())?),
        };
        let proposed = candidates.as_ref().map(TimeColumn::of).transpose().map_err(JobError::failed)?;
        let delay = if let Strategy::Delay(ms) = watermark.strategy { ms } else { 0 };
        // One less than the strategy says, so that a row of the same time as the newest is never
        // late (as Flink's bounded-out-of-orderness watermarks do).
        let proposal = |row: usize| match &proposed {
            Some(p) => p.ms(row).map(|t| t.saturating_sub(1)),
            None => times.ms(row).map(|t| t.saturating_sub(delay + 1)),
        };
        let start = reached;
        let mut behind = false;
        match (times.all_ms(), &proposed) {
            (Some(all), None) => {
                for t in all.iter() {
                    behind |= *t <= reached;
                    reached = reached.max(t.saturating_sub(delay + 1));
                }
            }
            _ => {
                for row in 0..block.rows() {
                    behind |= times.ms(row).is_some_and(|t| t <= reached);
                    reached = reached.max(proposal(row).unwrap_or(NO_WATERMARK));
                }
            }
        }
        if behind {
            let mut running = start;
            let marks = (0..block.rows())
                .map(|row| {
                    let before = running;
                    running = running.max(proposal(row).unwrap_or(NO_WATERMARK));
                    before
                })
                .collect::<Vec<_>>();
            block.row_watermarks = Some(marks.into());
        }
        self.splits[at].state.watermark = reached;
        Ok(())
    }

    fn dead_letters(&self, bad: &[tidemill_format::BadRecord], places: &[String], arrival_ns: u64) -> Result<Block, JobError> {
        let schema = self.dead_letter_schema.clone().expect("planned with its dead-letter table");
        let columns = schema
            .fields()
            .iter()
            .map(|field| -> ArrayRef {
                match (field.name().as_str(), field.data_type()) {
                    ("source", _) => Arc::new(StringArray::from(vec![self.table.as_str(); bad.len()])),
                    ("place", _) => Arc::new(StringArray::from_iter_values(places)),
                    ("reason", _) => Arc::new(StringArray::from_iter_values(bad.iter().map(|b| &b.reason))),
                    (_, DataType::Utf8) => Arc::new(StringArray::from_iter_values(bad.iter().map(|b| String::from_utf8_lossy(&b.raw)))),
                    _ => Arc::new(BinaryArray::from_iter_values(bad.iter().map(|b| &b.raw))),
                }
            })
            .collect();
        Ok(Block::inserts(RecordBatch::try_new(schema, columns).map_err(JobError::failed)?, arrival_ns))
    }
}

#[cfg(test)]
mod tests;
