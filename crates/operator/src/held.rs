//! Rows that wait for the watermark, and leave in order of time: what `OVER` and `MATCH_RECOGNIZE` hold.
//!
//! Every block is sorted when it comes, if it is not in order already; what the watermark has passed
//! is then a slice of it. Slices that follow each other in time leave as they are, without a copy;
//! only where blocks overlap are rows merged, equal times in the order of arrival.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{SortColumn, SortOptions, concat_batches, interleave_record_batch, lexsort_to_indices};
use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, NO_WATERMARK, WATERMARK_END};

use crate::over::times::TimeColumn;
use crate::{BLOCK_ROWS_MAX, OperatorError};

/// Blocks of fewer rows are put together before they leave.
const BLOCK_ROWS_MIN: usize = 2048;

/// Blocks of so few rows do not wait one by one, but are put together when so many have come one after the other: many small
/// blocks that wait are spread over the memory, and are out of the caches when they are put together at last.
const SMALL_ROWS: usize = 16;
const SMALL_RUNS: usize = 64;

/// A block in order of time.
struct Run {
    block: Block,
    first: i64,
    last: i64,
}

/// Rows that wait.
pub(crate) struct Held {
    /// Who holds them, with its article, for errors: `an OVER`.
    holder: &'static str,
    schema: SchemaRef,
    time: usize,
    /// Columns that order rows of the same time.
    ties: Vec<(usize, SortOptions)>,
    /// In order of arrival.
    runs: VecDeque<Run>,
    /// How many of the last runs are small and in order of time.
    small: usize,
    rows: usize,
    /// What the watermark has passed, in order; blocks do not part rows of the same time.
    due: VecDeque<Block>,
    watermark: i64,
    late_rows: u64,
}

impl Held {
    /// Rows of `schema` in order of the column `time`, then of `ties`, for `holder`, which errors name.
    pub fn new(holder: &'static str, schema: SchemaRef, time: usize, ties: Vec<(usize, SortOptions)>) -> Self {
        let (runs, due) = (VecDeque::new(), VecDeque::new());
        Held { holder, schema, time, ties, runs, small: 0, rows: 0, due, watermark: NO_WATERMARK, late_rows: 0 }
    }

    /// Takes a block in; late rows are dropped and counted.
    ///
    /// # Errors
    /// A row without a time.
    pub fn take_in(&mut self, block: Block) -> Result<(), OperatorError> {
        if block.kinds.is_some() {
            return Err(OperatorError::new(format!(
                "{} needs an append-only input, but rows of this one are updated; aggregate in windows instead of a running GROUP BY",
                self.holder
            )));
        }
        let times = TimeColumn::of(block.column(self.time))?;
        let Some(times) = times.all_ms() else {
            return Err(OperatorError::new(format!(
                "the column '{}' that orders the rows of {} is NULL in a row; event time must not be NULL: filter such rows out in a view below the watermark",
                self.schema.field(self.time).name(),
                self.holder
            )));
        };
        let watermark = self.watermark;
        if block.row_watermarks.is_none() && times.iter().all(|t| *t > watermark) {
            let sorted = times.is_sorted();
            drop(times);
            return self.hold(block, sorted);
        }
        let keep: Vec<u32> = (0..block.rows()).filter(|r| times[*r] > block.row_watermark(*r).max(watermark)).map(|r| r as u32).collect();
        drop(times);
        self.late_rows += (block.rows() - keep.len()) as u64;
        let kept = Block::inserts(arrow::compute::take_record_batch(&block.batch, &UInt32Array::from(keep))?, block.arrival_ns);
        self.hold(kept, false)
    }

    /// Takes rows of a checkpoint back.
    ///
    /// # Errors
    /// State of another shape.
    pub fn restore(&mut self, columns: &[ArrayRef]) -> Result<(), OperatorError> {
        self.hold(Block::inserts(RecordBatch::try_new(self.schema.clone(), columns.to_vec())?, 0), false)
    }

    fn hold(&mut self, block: Block, sorted: bool) -> Result<(), OperatorError> {
        if block.rows() == 0 {
            return Ok(());
        }
        let order = {
            let times = TimeColumn::of(block.column(self.time))?.all_ms().expect("checked when the block came");
            (!sorted && !times.is_sorted()).then(|| {
                let mut order: Vec<u32> = (0..times.len() as u32).collect();
                order.sort_by_key(|r| times[*r as usize]);
                UInt32Array::from(order)
            })
        };
        let block = match order {
            Some(order) => block.take(&order)?,
            None => block,
        };
        self.push_back(block)
    }

    fn time(&self, block: &Block, row: usize) -> Result<i64, OperatorError> {
        Ok(TimeColumn::of(block.column(self.time))?.ms(row).expect("checked when the block came"))
    }

    fn run(&self, block: Block) -> Result<Run, OperatorError> {
        let (first, last) = {
            let times = TimeColumn::of(block.column(self.time))?;
            let time = |row| times.ms(row).expect("checked when the block came");
            (time(0), time(block.rows() - 1))
        };
        Ok(Run { block, first, last })
    }

    fn push_back(&mut self, block: Block) -> Result<(), OperatorError> {
        self.rows += block.rows();
        let run = self.run(block)?;
        let follows = self.small > 0 && self.runs.back().is_some_and(|last| last.last <= run.first);
        self.small = match run.block.rows() {
            0..=SMALL_ROWS if follows => self.small + 1,
            0..=SMALL_ROWS => 1,
            _ => 0,
        };
        self.runs.push_back(run);
        if self.small == SMALL_RUNS {
            let blocks: Vec<Block> = self.runs.drain(self.runs.len() - SMALL_RUNS..).map(|run| run.block).collect();
            let together = self.run(self.concat(&blocks)?)?;
            self.runs.push_back(together);
            self.small = 0;
        }
        Ok(())
    }

    /// The first row of a block whose time is not before `time`.
    fn split(&self, block: &Block, time: i64) -> Result<usize, OperatorError> {
        let times = TimeColumn::of(block.column(self.time))?;
        let (mut low, mut high) = (0, block.rows());
        while low < high {
            let middle = low + (high - low) / 2;
            if times.ms(middle).is_some_and(|t| t < time) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Moves the rows that the watermark has passed to where [`Held::next`] finds them.
    ///
    /// # Errors
    /// None that rows taken in can cause.
    pub fn release(&mut self, watermark: i64) -> Result<(), OperatorError> {
        self.watermark = self.watermark.max(watermark);
        if self.rows == 0 {
            return Ok(());
        }
        self.small = 0;
        // In order of arrival, and mostly in order of time as well.
        let over = |last: i64| watermark == WATERMARK_END || last <= watermark;
        // With small blocks there is mostly one, and what the general way costs would be much of what it costs.
        if self.runs.len() == 1 && self.ties.is_empty() && over(self.runs[0].last) {
            let run = self.runs.pop_front().expect("there is one");
            self.rows -= run.block.rows();
            return self.queue(run.block);
        }
        let mut passed: Vec<Run> = Vec::new();
        while self.runs.front().is_some_and(|r| over(r.last)) {
            passed.extend(self.runs.pop_front());
        }
        if self.runs.iter().any(|r| r.first <= watermark) {
            for run in std::mem::take(&mut self.runs) {
                if over(run.last) {
                    passed.push(run);
                } else if run.first > watermark {
                    self.runs.push_back(run);
                } else {
                    let (at, rows) = (self.split(&run.block, watermark + 1)?, run.block.rows());
                    passed.push(self.run(run.block.slice(0, at))?);
                    let rest = self.run(run.block.slice(at, rows - at))?;
                    self.runs.push_back(rest);
                }
            }
        }
        self.rows -= passed.iter().map(|r| r.block.rows()).sum::<usize>();
        let ordered = passed.windows(2).all(|pair| pair[0].last <= pair[1].first);
        let blocks = if !self.ties.is_empty() && !passed.is_empty() {
            vec![self.sorted(&passed)?]
        } else if ordered {
            self.gather(passed)?
        } else {
            vec![self.merged(&passed)?]
        };
        for block in blocks {
            self.queue(block)?;
        }
        Ok(())
    }

    /// Moves all rows there, whatever the watermark: for input in order of time, where whatever comes
    /// belongs behind them or is late.
    ///
    /// # Errors
    /// As [`Held::release`].
    pub fn release_all(&mut self) -> Result<(), OperatorError> {
        let watermark = self.watermark;
        let released = self.release(WATERMARK_END);
        self.watermark = watermark;
        released
    }

    /// Sorts by time and the columns of ties, then by arrival.
    fn sorted(&self, runs: &[Run]) -> Result<Block, OperatorError> {
        let blocks: Vec<Block> = runs.iter().map(|r| r.block.clone()).collect();
        let all = self.concat(&blocks)?;
        let mut columns = vec![SortColumn { values: all.column(self.time).clone(), options: None }];
        columns.extend(self.ties.iter().map(|(i, options)| SortColumn { values: all.column(*i).clone(), options: Some(*options) }));
        let arrival = UInt32Array::from_iter_values(0..all.rows() as u32);
        columns.push(SortColumn { values: Arc::new(arrival), options: None });
        Ok(all.take(&lexsort_to_indices(&columns, None)?)?)
    }

    /// Merges runs that overlap, in one copy; between equal times arrival decides.
    fn merged(&self, runs: &[Run]) -> Result<Block, OperatorError> {
        let rows = runs.iter().map(|r| r.block.rows()).sum();
        let times = runs.iter().map(|r| TimeColumn::of(r.block.column(self.time))).collect::<Result<Vec<_>, _>>()?;
        let times: Vec<_> = times.iter().map(|t| t.all_ms().expect("checked when the block came")).collect();
        let picks = match Self::lanes(runs) {
            Some(lanes) => Self::compared(&times, &lanes, rows),
            None => Self::by_sort(&times, rows),
        };
        let batches: Vec<&RecordBatch> = runs.iter().map(|r| &r.block.batch).collect();
        Ok(Block::inserts(interleave_record_batch(&batches, &picks)?, runs.iter().map(|r| r.block.arrival_ns).max().unwrap_or(0)))
    }

    /// Up to so many rows are compared to find the next one.
    const LANES_MAX: usize = 4;

    /// The runs in a few sequences that are each in order of time, as they come from each input; `None` if more are needed.
    fn lanes(runs: &[Run]) -> Option<Vec<Vec<usize>>> {
        let mut lanes: Vec<Vec<usize>> = Vec::new();
        for (i, run) in runs.iter().enumerate() {
            let follows = |lane: &Vec<usize>| lane.last().is_some_and(|last| runs[*last].last <= run.first);
            match lanes.iter().position(follows) {
                Some(lane) => lanes[lane].push(i),
                None if lanes.len() == Self::LANES_MAX => return None,
                None => lanes.push(vec![i]),
            }
        }
        Some(lanes)
    }

    fn compared(times: &[Cow<'_, [i64]>], lanes: &[Vec<usize>], rows: usize) -> Vec<(usize, usize)> {
        struct Head<'a> {
            time: i64,
            run: usize,
            row: usize,
            behind: &'a [usize],
        }
        let mut picks = Vec::with_capacity(rows);
        let mut heads: Vec<Head> =
            lanes.iter().map(|lane| Head { time: times[lane[0]][0], run: lane[0], row: 0, behind: &lane[1..] }).collect();
        while let Some(next) = (0..heads.len()).min_by_key(|i| (heads[*i].time, heads[*i].run)) {
            let head = &mut heads[next];
            picks.push((head.run, head.row));
            head.row += 1;
            if head.row == times[head.run].len() {
                let [run, behind @ ..] = head.behind else {
                    heads.remove(next);
                    continue;
                };
                (head.run, head.row, head.behind) = (*run, 0, behind);
            }
            head.time = times[head.run][head.row];
        }
        picks
    }

    fn by_sort(times: &[Cow<'_, [i64]>], rows: usize) -> Vec<(usize, usize)> {
        let mut order: Vec<(i64, usize, usize)> = Vec::with_capacity(rows);
        for (run, times) in times.iter().enumerate() {
            order.extend(times.iter().enumerate().map(|(row, time)| (*time, run, row)));
        }
        // The sort finds the runs and merges them, and it is stable.
        order.sort_by_key(|(time, ..)| *time);
        order.into_iter().map(|(_, run, row)| (run, row)).collect()
    }

    fn concat(&self, blocks: &[Block]) -> Result<Block, OperatorError> {
        let arrival_ns = blocks.iter().map(|b| b.arrival_ns).max().unwrap_or(0);
        let mut all = Block::concat(&self.schema, blocks)?;
        all.arrival_ns = arrival_ns;
        Ok(all)
    }

    /// Puts small blocks together and keeps rows of the same time in one block.
    fn gather(&self, runs: Vec<Run>) -> Result<Vec<Block>, OperatorError> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut small: Vec<Block> = Vec::new();
        let mut small_rows = 0;
        for run in runs {
            if run.block.rows() >= BLOCK_ROWS_MIN {
                if !small.is_empty() {
                    blocks.push(self.concat(&small)?);
                    (small, small_rows) = (Vec::new(), 0);
                }
                blocks.push(run.block);
                continue;
            }
            small_rows += run.block.rows();
            small.push(run.block);
            if small_rows >= BLOCK_ROWS_MIN {
                blocks.push(self.concat(&small)?);
                (small, small_rows) = (Vec::new(), 0);
            }
        }
        if !small.is_empty() {
            blocks.push(self.concat(&small)?);
        }
        let mut parted: Vec<Block> = Vec::with_capacity(blocks.len());
        for block in blocks {
            let first = self.time(&block, 0)?;
            let before = match parted.pop() {
                Some(last) if self.time(&last, last.rows() - 1)? == first => last,
                Some(last) => {
                    parted.push(last);
                    parted.push(block);
                    continue;
                }
                None => {
                    parted.push(block);
                    continue;
                }
            };
            // The rows at the border become a block of their own.
            let (from, until) = (self.split(&before, first)?, self.split(&block, first.saturating_add(1))?);
            if from > 0 {
                parted.push(before.slice(0, from));
            }
            parted.push(self.concat(&[before.slice(from, before.rows() - from), block.slice(0, until)])?);
            if until < block.rows() {
                parted.push(block.slice(until, block.rows() - until));
            }
        }
        Ok(parted)
    }

    /// Queues a block for [`Held::next`], cut where it is large.
    fn queue(&mut self, block: Block) -> Result<(), OperatorError> {
        if block.rows() <= BLOCK_ROWS_MAX {
            self.due.push_back(block);
            return Ok(());
        }
        let mut at = 0;
        while at < block.rows() {
            let mut until = (at + BLOCK_ROWS_MAX).min(block.rows());
            if until < block.rows() {
                let time = self.time(&block, until - 1)?;
                until = self.split(&block, time.saturating_add(1))?;
            }
            self.due.push_back(if at == 0 && until == block.rows() { block.clone() } else { block.slice(at, until - at) });
            at = until;
        }
        Ok(())
    }

    /// The next block that the watermark has passed.
    pub fn next(&mut self) -> Option<Block> {
        self.due.pop_front()
    }

    /// Whether [`Held::next`] would give nothing.
    pub fn is_idle(&self) -> bool {
        self.due.is_empty()
    }

    /// How many rows wait.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Rows that came too late.
    pub fn late_rows(&self) -> u64 {
        self.late_rows
    }

    /// All rows that wait, for a snapshot; `None` if there are none.
    ///
    /// # Errors
    /// None that rows taken in can cause.
    pub fn all(&self) -> Result<Option<RecordBatch>, OperatorError> {
        if self.rows == 0 {
            return Ok(None);
        }
        Ok(Some(concat_batches(&self.schema, self.runs.iter().map(|r| &r.block.batch))?))
    }

    /// Bytes.
    pub fn memory(&self) -> usize {
        self.runs.iter().map(|r| r.block.memory()).sum::<usize>() + self.due.iter().map(Block::memory).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, TimestampMillisecondArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit, TimestampMillisecondType};

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), false),
            Field::new("n", DataType::Int64, false),
        ]))
    }

    fn block(rows: &[(i64, i64)]) -> Block {
        let times = TimestampMillisecondArray::from_iter_values(rows.iter().map(|r| r.0));
        let numbers = Int64Array::from_iter_values(rows.iter().map(|r| r.1));
        Block::inserts(RecordBatch::try_new(schema(), vec![Arc::new(times), Arc::new(numbers)]).unwrap(), 0)
    }

    fn drain(held: &mut Held, rows: &mut Vec<(i64, i64)>) {
        while let Some(block) = held.next() {
            let times = block.column(0).as_primitive::<TimestampMillisecondType>().values().clone();
            let numbers = block.column(1).as_primitive::<Int64Type>().values().clone();
            if let (Some(last), Some(first)) = (rows.last(), times.first()) {
                assert!(last.0 < *first, "rows of the same time leave together");
            }
            assert!(block.rows() < BLOCK_ROWS_MAX + 200);
            rows.extend(times.iter().copied().zip(numbers.iter().copied()));
        }
    }

    /// However rows are divided into blocks and wherever watermarks fall, rows leave by time, and
    /// those of one time in the order in which they came.
    #[test]
    fn rows_leave_in_order() {
        for seed in 1..40_u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut random = |n: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % n
            };
            let disorder = [0, 3, 50][seed as usize % 3];
            // Once many small blocks wait, so that they are put together.
            let (sizes, pause) = if seed % 4 == 0 { ([1, 1, 1, 2], 300) } else { ([1, 7, 300, 9000], 3) };
            let (total, step) = (20_000_i64, 1 + random(4) as i64);
            let rows: Vec<(i64, i64)> = (0..total).map(|i| (i / step + random(disorder + 1) as i64, i)).collect();
            let mut held = Held::new("a test", schema(), 0, Vec::new());
            let mut got = Vec::new();
            let mut at = 0;
            while at < rows.len() {
                let size = sizes[random(4) as usize].min(rows.len() - at);
                held.take_in(block(&rows[at..at + size])).unwrap();
                at += size;
                if random(pause) == 0 {
                    let newest = rows[..at].iter().map(|r| r.0).max().unwrap();
                    held.release(newest - disorder as i64 - 1).unwrap();
                    drain(&mut held, &mut got);
                }
            }
            held.release(WATERMARK_END).unwrap();
            drain(&mut held, &mut got);
            let mut expect = rows;
            expect.sort_by_key(|r| r.0);
            assert!(got == expect, "seed {seed}");
            assert_eq!((held.rows(), held.late_rows()), (0, 0));
        }
    }

    #[test]
    fn late_rows_are_counted() {
        let mut held = Held::new("a test", schema(), 0, Vec::new());
        held.take_in(block(&[(5, 0), (9, 1)])).unwrap();
        held.release(6).unwrap();
        held.take_in(block(&[(6, 2), (7, 3)])).unwrap();
        held.release(WATERMARK_END).unwrap();
        let mut got = Vec::new();
        drain(&mut held, &mut got);
        assert_eq!((got, held.late_rows()), (vec![(5, 0), (7, 3), (9, 1)], 1));
    }
}
