//! Lookup joins: each row with what something outside answers for its key, when the row comes by.
//!
//! | file | what it does |
//! |---|---|
//! | [`cache`] | a number for each key that is asked or kept, and the rows found |
//! | [`order`] | rows that wait, and when they may leave: [`in_order`] or [`unordered`] |
//! | [`stretches`] | watermarks behind them |
//! | [`queue`] | keys that are yet to be asked, by partition |
//! | [`limit`] | how many calls are under way |
//! | [`asking`] | calls, their time limits and further attempts |
//!
//! A block is worked on in columns: keys are found once for all of its rows, and rows of a key that is under
//! way or kept ask nothing. What came of it is joined for as many rows at once as may leave. Who is asked is
//! not known here: see [`crate::call`].
//!
//! State is the rows that wait. After a restart they are asked for again; kept answers are not state.

mod asking;
mod cache;
mod in_order;
mod limit;
mod order;
mod queue;
mod stretches;
mod unordered;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, UInt8Array, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Int64Type, SchemaRef, UInt8Type, UInt32Type};
use tidemill_block::{Block, NO_WATERMARK, RowKind, clock};
use tidemill_state::runs::HashRange;
use tidemill_state::{StateTable, hash};

use crate::call::{CallStats, Calls};
use crate::join::interval::Residual;
use crate::join::store::NO_ROW;
use crate::map::Expr;
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output, Progress, Wake};
use asking::Asking;
use cache::{Asks, NO_ASK};
use in_order::InOrder;
use order::{Order, Piece};
use unordered::Unordered;

pub use cache::CacheSpec;

/// Makes the calls of an operator, which are to wake it when they have answers, given which of how many shards
/// it is.
pub type OpenCalls = Arc<dyn Fn(Wake, usize, usize) -> Result<Box<dyn Calls>, OperatorError> + Send + Sync>;

/// What a lookup join computes, and how it asks.
#[derive(Clone)]
pub struct LookupSpec {
    /// What is asked, for messages: `table 'customers'`.
    pub name: String,
    /// The columns of the input.
    pub input: SchemaRef,
    /// The columns of an answer.
    pub columns: SchemaRef,
    /// Input columns, then those of the answer.
    pub schema: SchemaRef,
    /// The key of an input row; a NULL in it matches nothing.
    pub keys: Vec<Expr>,
    /// The columns asked by, in the order of `keys`, of their types.
    pub key_columns: SchemaRef,
    /// What else must hold, over input and answer.
    pub residual: Option<Residual>,
    /// Rows without a match are emitted with NULLs.
    pub left: bool,
    /// Rows leave in the order in which they came. Needed where rows are updated.
    pub ordered: bool,
    /// The input is divided among shards by the key, so state is, too.
    pub by_key: bool,
    /// Which answers are kept.
    pub cache: Option<CacheSpec>,
    /// How it asks.
    pub asking: AskSpec,
}

/// How keys are asked for.
#[derive(Clone, Debug)]
pub struct AskSpec {
    /// The most keys in a call.
    pub keys_max: usize,
    /// Calls that may be under way; `None`: as many as make it faster.
    pub capacity: Option<usize>,
    /// Calls that may be under way for rows of one split of the source, where that is known, else of the
    /// shard.
    pub per_partition: Option<usize>,
    /// How long a call may take, further attempts included.
    pub timeout: Duration,
    /// Further attempts after a failure.
    pub retries: u32,
    /// How long to wait before the first; doubles, up to ten seconds, and half of it is left to chance.
    pub retry_delay: Duration,
    /// Further attempts for keys for which nothing was found, and how long to wait before each.
    pub misses: Option<(u32, Duration)>,
    /// A key that cannot be had for good fails the job; else it counts as one for which there is nothing.
    pub fail: bool,
}

/// The name of the state table of rows that wait, if they are not divided by the key. Rows of a split that is known
/// have its [`split_hash`] as their hash: they belong where the split is read, lest later ones overtake them.
pub const WAITING: &str = "waiting for look-ups";

/// What stands for a split ([`Block::partition`]) in the table [`WAITING`].
pub fn split_hash(partition: u32) -> u64 {
    hash::mix(u64::from(partition).wrapping_add(1))
}

/// The most rows that may wait: enough for a thousand calls a second that take a minute.
const ROWS_MAX: usize = 65_536;
/// The same where partitions have bounds of their own: rows of one of them must not keep the others' out.
const ROWS_MAX_PARTITIONED: usize = 131_072;
/// The most bytes that may wait, in a shard.
const BYTES_MAX: usize = 64 << 20;
/// Keys that wait to be asked: as many as a round of calls takes, so that none is missed between two blocks,
/// within these bounds.
const KEYS_MIN: usize = 64;
const KEYS_MAX: usize = 16_384;

/// Joins rows with answers.
pub struct LookupJoin {
    spec: LookupSpec,
    open: OpenCalls,
    clock: fn() -> u64,
    asks: Asks,
    order: Box<dyn Order>,
    asking: Asking,
    /// Made with the first rows.
    calls: Option<Box<dyn Calls>>,
    wake: Option<Wake>,
    shard: usize,
    shards: usize,
    /// Answers have come.
    woken: Arc<AtomicBool>,
    /// There are rows that may leave, or keys to ask, though nothing has come.
    stirred: bool,
    settled: Vec<u32>,
}

impl LookupJoin {
    /// A join by `spec`, which asks by what `open` gives.
    ///
    /// # Errors
    /// Types that cannot be keys.
    pub fn new(spec: LookupSpec, open: OpenCalls) -> Result<Self, OperatorError> {
        let types = |schema: &SchemaRef| schema.fields().iter().map(|f| f.data_type().clone()).collect::<Vec<_>>();
        Ok(LookupJoin {
            asks: Asks::new(types(&spec.key_columns), types(&spec.columns), spec.cache.clone())?,
            order: if spec.ordered { Box::new(InOrder::new()) } else { Box::new(Unordered::new()) },
            asking: Asking::new(&spec),
            open,
            clock: clock::now_ns,
            calls: None,
            wake: None,
            shard: 0,
            shards: 1,
            woken: Arc::new(AtomicBool::new(false)),
            stirred: false,
            settled: Vec::new(),
            spec,
        })
    }

    /// Another clock, for tests.
    #[cfg(test)]
    fn with_clock(mut self, clock: fn() -> u64) -> Self {
        self.clock = clock;
        self
    }

    /// The calls of this operator, which wake it.
    fn opened(&self) -> Result<Box<dyn Calls>, OperatorError> {
        let (woken, wake) = (self.woken.clone(), self.wake.clone());
        let wake: Wake = Arc::new(move || {
            woken.store(true, Ordering::Release);
            if let Some(wake) = &wake {
                wake();
            }
        });
        (self.open)(wake, self.shard, self.shards)
    }

    /// The keys of rows, and which rows have one without a NULL; `None` if all have.
    fn keys(&self, batch: &RecordBatch) -> Result<(Vec<ArrayRef>, Option<Vec<u32>>), OperatorError> {
        let rows = batch.num_rows();
        let keys = self.spec.keys.iter().map(|k| Ok(k.evaluate(batch)?.into_array(rows)?)).collect::<Result<Vec<_>, OperatorError>>()?;
        if keys.iter().all(|k| k.null_count() == 0) {
            return Ok((keys, None));
        }
        let whole = (0..rows as u32).filter(|r| keys.iter().all(|k| k.is_valid(*r as usize))).collect();
        Ok((keys, Some(whole)))
    }

    /// Takes rows in: asks for keys that are not known, which is done later.
    fn take_in(&mut self, block: Block) -> Result<(), OperatorError> {
        let rows = block.rows();
        let now = (self.clock)();
        let (keys, whole) = self.keys(&block.batch)?;
        let mut fresh = Vec::new();
        let asks = match whole {
            None => {
                let mut asks = Vec::with_capacity(rows);
                self.asks.intern(&keys, rows, now, &mut asks, &mut fresh)?;
                asks
            }
            Some(picks) => {
                let picks = UInt32Array::from(picks);
                let keys = keys.iter().map(|k| take(k, &picks, None)).collect::<Result<Vec<_>, _>>()?;
                let mut found = Vec::with_capacity(picks.len());
                self.asks.intern(&keys, picks.len(), now, &mut found, &mut fresh)?;
                let mut asks = vec![NO_ASK; rows];
                picks.values().iter().zip(found).for_each(|(row, ask)| asks[*row as usize] = ask);
                asks
            }
        };
        self.asking.push(block.partition(), &fresh);
        self.order.push(block, asks, &self.asks);
        Ok(())
    }

    /// Takes answers, asks on, and emits what may leave.
    fn work(&mut self, out: &mut Output) -> Result<(), OperatorError> {
        self.stirred = false;
        if self.calls.is_none() {
            self.calls = Some(self.opened()?);
        }
        let calls = self.calls.as_mut().expect("made above");
        loop {
            let now = (self.clock)();
            self.settled.clear();
            // Those that nobody has been told of yet shall not be taken for late.
            let due = self.asking.due().is_some_and(|due| due <= now);
            // Asked before answers are taken: what becomes ready in between shall not find its calls given up.
            let preparing = due && calls.prepares();
            if self.woken.swap(false, Ordering::AcqRel) || due {
                self.asking.collect(calls.as_mut(), &mut self.asks, now, &mut self.settled)?;
            }
            self.asking.expire(calls.as_mut(), preparing, &mut self.asks, now, &mut self.settled)?;
            if self.asking.start(calls.as_mut(), &mut self.asks, now, &mut self.settled)? {
                // What comes of answers may hold the worker up, and the calls shall not wait for that.
                calls.flush();
            }
            self.settled.iter().for_each(|ask| self.order.answered(*ask));
            // Some are answered at once.
            if !self.woken.load(Ordering::Acquire) {
                break;
            }
        }
        loop {
            let pieces = self.order.next(&self.asks, BLOCK_ROWS_MAX)?;
            if pieces.is_empty() {
                break;
            }
            self.join(pieces, out)?;
        }
        self.asks.trim((self.clock)());
        Ok(())
    }

    /// Joins rows that are answered, and lets go of their asks.
    fn join(&mut self, pieces: Vec<Piece>, out: &mut Output) -> Result<(), OperatorError> {
        let (blocks, asks): (Vec<Block>, Vec<Vec<u32>>) = pieces.into_iter().map(|p| (p.block, p.asks)).unzip();
        let block = Block::concat(&self.spec.input, &blocks)?;
        let asks = if asks.len() == 1 { asks.into_iter().next().expect("one") } else { asks.concat() };
        let (mut left, mut right) = (Vec::with_capacity(asks.len()), Vec::with_capacity(asks.len()));
        for (row, ask) in asks.iter().enumerate() {
            let before = right.len();
            right.extend(self.asks.rows(*ask));
            if right.len() == before {
                right.push(NO_ROW);
            }
            left.resize(right.len(), row as u32);
        }
        if let Some(residual) = &self.spec.residual {
            (left, right) = self.filtered(residual, &block, left, right)?;
        }
        if !self.spec.left {
            (left, right) = left.into_iter().zip(right).filter(|(_, found)| *found != NO_ROW).unzip();
        }
        if !left.is_empty() {
            let same = left.len() == block.rows() && left.iter().enumerate().all(|(i, row)| i == *row as usize);
            let rows = if same { block } else { block.take(&UInt32Array::from(left))? };
            let columns = rows.batch.columns().iter().cloned().chain(self.asks.found().take(&right)?).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(right.len()));
            let joined = rows.with_batch(RecordBatch::try_new_with_options(self.spec.schema.clone(), columns, &options)?);
            let mut at = 0;
            while at < right.len() {
                let length = BLOCK_ROWS_MAX.min(right.len() - at);
                out.emit(if length == right.len() { joined.clone() } else { joined.slice(at, length) });
                at += length;
            }
        }
        asks.iter().for_each(|ask| self.asks.unpin(*ask));
        Ok(())
    }

    /// The pairs that pass the residual condition. A row of which none does remains with [`NO_ROW`].
    fn filtered(&self, residual: &Residual, block: &Block, left: Vec<u32>, right: Vec<u32>) -> Result<(Vec<u32>, Vec<u32>), OperatorError> {
        let (rows, found): (Vec<u32>, Vec<u32>) = left.iter().zip(&right).filter(|(_, f)| **f != NO_ROW).unzip();
        let pairs = found.len();
        let width = self.spec.input.fields().len();
        let rows = UInt32Array::from(rows);
        let passing = residual.passing(pairs, |column| {
            if column < width {
                return Ok(take(block.column(column), &rows, None)?);
            }
            Ok(self.asks.found().take_column(column - width, &found)?)
        })?;
        let mut passing = passing.into_iter();
        let (mut kept, mut with) = (Vec::with_capacity(left.len()), Vec::with_capacity(right.len()));
        for (row, found) in left.into_iter().zip(right) {
            if found != NO_ROW && passing.next().expect("one for each pair") {
                if with.last() == Some(&NO_ROW) && kept.last() == Some(&row) {
                    // Another pair of the row had not passed.
                    with.pop();
                    kept.pop();
                }
                kept.push(row);
                with.push(found);
            } else if kept.last() != Some(&row) {
                kept.push(row);
                with.push(NO_ROW);
            }
        }
        Ok((kept, with))
    }
}

impl Operator for LookupJoin {
    fn name(&self) -> &'static str {
        "LookupJoin"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        if block.rows() == 0 {
            return Ok(());
        }
        self.take_in(block)?;
        self.work(out)
    }

    fn on_watermark(&mut self, watermark: i64, _out: &mut Output) -> Result<Progress, OperatorError> {
        self.order.watermark(watermark);
        Ok(if watermark == tidemill_block::WATERMARK_END && self.order.rows() > 0 { Progress::Waiting } else { Progress::Done })
    }

    fn output_watermark(&self, watermark: i64) -> i64 {
        self.order.reached().min(watermark)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let blocks = self.order.all()?;
        if blocks.is_empty() {
            return Ok(Vec::new());
        }
        let mut hashes = Vec::new();
        let of_shard = HashRange::of_shard(self.shard, self.shards).from;
        let mut partitions: Vec<Option<u32>> = Vec::new();
        for block in &blocks {
            let rows = block.rows();
            partitions.extend(std::iter::repeat_n(block.partition(), rows));
            if self.spec.by_key {
                let mut of_block = Vec::new();
                hash::rows(&self.keys(&block.batch)?.0, rows, &mut of_block)?;
                hashes.append(&mut of_block);
            } else {
                // Rows stay together, in their order: with their split, else in their shard, to which they came by
                // something that is not known here.
                hashes.extend(std::iter::repeat_n(block.partition().map_or(of_shard, split_hash), rows));
            }
        }
        let all = Block::concat(&self.spec.input, &blocks)?;
        let rows = 0..all.rows();
        let mut columns = all.batch.columns().to_vec();
        columns.push(Arc::new(UInt8Array::from_iter_values(rows.clone().map(|r| all.kind(r) as u8))));
        columns.push(Arc::new(Int64Array::from_iter_values(rows.map(|r| all.row_watermark(r)))));
        columns.push(Arc::new(UInt32Array::from(partitions)));
        let name = if self.spec.by_key { "waiting for look-ups by key" } else { WAITING };
        Ok(vec![StateTable::keyed(name, hashes, columns)?])
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        self.stirred = true;
        let arrival_ns = clock::now_ns();
        for table in tables {
            let width = self.spec.input.fields().len();
            let [kinds, marks, partitions] = &table.columns()[width.min(table.columns().len())..] else {
                return Err(OperatorError::new("the checkpoint's rows have other columns than the job's"));
            };
            let kinds = kinds.as_primitive::<UInt8Type>().values();
            let marks = marks.as_primitive::<Int64Type>().values();
            let partitions = partitions.as_primitive::<UInt32Type>();
            let options = RecordBatchOptions::new().with_row_count(Some(table.batch.num_rows()));
            let batch = RecordBatch::try_new_with_options(self.spec.input.clone(), table.columns()[..width].to_vec(), &options)?;
            let of = |row: usize| partitions.is_valid(row).then(|| partitions.value(row));
            let mut from = 0;
            while from < batch.num_rows() {
                let partition = of(from);
                let until = (from + 1..batch.num_rows()).find(|r| of(*r) != partition).unwrap_or(batch.num_rows());
                let kinds = kinds[from..until].iter().map(|k| RowKind::from_byte(*k));
                let kinds = kinds.collect::<Option<Vec<_>>>().ok_or_else(|| OperatorError::new("an unknown kind of row"))?;
                let kinds = kinds.iter().any(|k| *k != RowKind::Insert).then(|| kinds.into());
                let marks = &marks[from..until];
                let marks = marks.iter().any(|m| *m != NO_WATERMARK).then(|| marks.into());
                let block = Block::marked(batch.slice(from, until - from), kinds, arrival_ns, marks);
                self.take_in(match partition {
                    Some(partition) => block.in_partition(partition),
                    None => block,
                })?;
                from = until;
            }
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let calls = CallStats { asked: self.asks.asked, hits: self.asks.hits, ..self.asking.stats() };
        OperatorStats {
            entries: (self.order.rows() + self.asks.len()) as u64,
            memory: (self.order.memory() + self.asks.memory()) as u64,
            calls,
            ..OperatorStats::default()
        }
    }

    fn attach(&mut self, wake: Wake) {
        self.wake = Some(wake);
    }

    fn place(&mut self, shard: usize, shards: usize) {
        (self.shard, self.shards) = (shard, shards);
    }

    fn waits(&self) -> bool {
        true
    }

    fn poll(&mut self, out: &mut Output) -> Result<(), OperatorError> {
        let due = || self.asking.due().is_some_and(|due| (self.clock)() >= due);
        if self.stirred || self.woken.load(Ordering::Acquire) || due() { self.work(out) } else { Ok(()) }
    }

    fn full(&self) -> bool {
        let rows_max = if self.spec.asking.per_partition.is_some() { ROWS_MAX_PARTITIONED } else { ROWS_MAX };
        let keys = self.spec.asking.per_partition.is_none().then(|| {
            let round = self.asking.allowed().saturating_mul(self.spec.asking.keys_max);
            self.asking.waiting() >= round.clamp(KEYS_MIN, KEYS_MAX)
        });
        self.order.rows() >= rows_max || self.order.bytes() >= BYTES_MAX || keys.unwrap_or(false)
    }

    fn holds(&self) -> bool {
        self.order.rows() > 0
    }

    fn due(&self) -> Option<u64> {
        self.asking.due()
    }
}

#[cfg(test)]
mod tests;
