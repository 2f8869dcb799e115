//! `OVER`: for each row an aggregate of the rows before it.
//!
//! Rows are held until the watermark passes them, sorted by event time, and then run through in
//! order. [`frame`] decides, for a batch of rows at once, which rows leave the frame before which
//! row enters; [`sliding`] applies that to each aggregate in one typed loop, adding and taking back
//! at O(1) a row. Frames that never lose rows use the ordinary accumulators.

mod frame;
mod sliding;
pub mod times;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use tidemill_block::{Block, WATERMARK_END};
use tidemill_state::{KeyTable, Slots, StateTable, hash};

use crate::aggregate::{Accumulator, AggregateCall, Rows, accumulator};
use crate::map::Expr;
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output, Progress};
use frame::{Frames, Plan};
use sliding::Sliding;
use times::TimeColumn;

/// Which rows before the current one are aggregated; the current row always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Rows whose time is at most so many ms before the current row's, and rows of the same time.
    RangeMs(i64),
    /// So many rows before the current one.
    Rows(u64),
    /// All rows before, and with `peers` also those of the same time.
    Unbounded {
        /// RANGE rather than ROWS.
        peers: bool,
    },
}

/// What an `OVER` computes: the output has the input's columns, then the calls.
pub struct OverSpec {
    /// Index of the time column that orders the rows.
    pub time: usize,
    /// `PARTITION BY`.
    pub keys: Vec<Expr>,
    /// Their types.
    pub key_types: Vec<DataType>,
    /// The frame that all calls share.
    pub frame: Frame,
    /// The aggregate calls.
    pub calls: Vec<AggregateCall>,
    /// The input's columns.
    pub input: SchemaRef,
    /// The input's columns and the calls.
    pub schema: SchemaRef,
}

/// Aggregates over the rows before each row.
pub struct Over {
    spec: OverSpec,
    held: Vec<Block>,
    held_rows: usize,
    /// Sorted rows that the watermark has passed, next to be emitted last.
    due: Vec<Block>,
    table: KeyTable,
    state: State,
    scratch: Slots,
    watermark: i64,
    late_rows: u64,
}

enum State {
    Bounded { frames: Frames, calls: Vec<Box<dyn Sliding>> },
    Unbounded { peers: bool, calls: Vec<Box<dyn Accumulator>> },
}

impl Over {
    /// An operator for `spec`.
    ///
    /// # Errors
    /// A function that cannot be used with a sliding frame.
    pub fn new(spec: OverSpec) -> Result<Self, OperatorError> {
        let state = match spec.frame {
            Frame::Unbounded { peers } => {
                State::Unbounded { peers, calls: spec.calls.iter().map(|c| accumulator(c, false)).collect::<Result<_, _>>()? }
            }
            bounded => {
                State::Bounded { frames: Frames::new(bounded), calls: spec.calls.iter().map(sliding::sliding).collect::<Result<_, _>>()? }
            }
        };
        Ok(Over {
            table: KeyTable::new(spec.key_types.clone())?,
            state,
            held: Vec::new(),
            held_rows: 0,
            due: Vec::new(),
            scratch: Slots::default(),
            watermark: tidemill_block::NO_WATERMARK,
            late_rows: 0,
            spec,
        })
    }

    fn hold(&mut self, block: Block) {
        if block.rows() > 0 {
            self.held_rows += block.rows();
            self.held.push(block);
        }
    }

    /// Moves the held rows that the watermark has passed to `due`, in order of time.
    fn release(&mut self, watermark: i64) -> Result<(), OperatorError> {
        if self.held_rows == 0 {
            return Ok(());
        }
        let all = if let [_] = self.held.as_slice() {
            self.held.pop().expect("one block")
        } else {
            let batch = concat_batches(&self.spec.input, self.held.iter().map(|b| &b.batch))?;
            let arrival = self.held.iter().map(|b| b.arrival_ns).max().unwrap_or(0);
            self.held.clear();
            Block::inserts(batch, arrival)
        };
        self.held_rows = 0;
        let times = TimeColumn::of(all.column(self.spec.time))?.all_ms().expect("checked when the block came");
        let passed = |t: i64| watermark == WATERMARK_END || t <= watermark;
        let sorted = times.is_sorted();
        let (ready, rest) = if sorted {
            let split = times.partition_point(|t| passed(*t));
            (all.slice(0, split), all.slice(split, all.rows() - split))
        } else {
            let mut order: Vec<u32> = (0..times.len() as u32).filter(|r| passed(times[*r as usize])).collect();
            let rest: Vec<u32> = (0..times.len() as u32).filter(|r| !passed(times[*r as usize])).collect();
            order.sort_by_key(|r| times[*r as usize]);
            (all.take(&UInt32Array::from(order))?, all.take(&UInt32Array::from(rest))?)
        };
        // A slice would keep the memory of the whole; what stays is usually little.
        let rest = if sorted && rest.rows() > 0 && rest.rows() < all.rows() {
            rest.take(&UInt32Array::from_iter_values(0..rest.rows() as u32))?
        } else {
            rest
        };
        self.hold(rest);
        let mut at = 0;
        while at < ready.rows() {
            let mut rows = BLOCK_ROWS_MAX.min(ready.rows() - at);
            // Rows of one time are peers and must stay together.
            let times = TimeColumn::of(ready.column(self.spec.time))?;
            while at + rows < ready.rows() && times.ms(at + rows) == times.ms(at + rows - 1) {
                rows += 1;
            }
            self.due.push(ready.slice(at, rows));
            at += rows;
        }
        self.due.reverse();
        Ok(())
    }

    fn process(&mut self, block: &Block, out: &mut Output) -> Result<(), OperatorError> {
        let rows = block.rows();
        let keys =
            self.spec.keys.iter().map(|k| Ok(k.evaluate(&block.batch)?.into_array(rows)?)).collect::<Result<Vec<_>, OperatorError>>()?;
        self.table.intern(&keys, rows, &mut self.scratch)?;
        let slots = self.table.capacity();
        let times = TimeColumn::of(block.column(self.spec.time))?.all_ms().expect("checked when the block came");
        let inputs = self.spec.calls.iter().map(|c| c.evaluate(block)).collect::<Result<Vec<_>, _>>()?;
        let mut columns = block.batch.columns().to_vec();
        match &mut self.state {
            State::Bounded { frames, calls } => {
                let plan = frames.plan(&times, &self.scratch.slots, slots);
                for (call, (values, mask)) in calls.iter_mut().zip(&inputs) {
                    columns.push(call.run(&plan, slots, values, mask.as_ref())?);
                }
                let emptied = frames.emptied(&plan);
                remove(&mut self.table, calls, &emptied);
            }
            State::Unbounded { peers, calls } => {
                let last = peers.then(|| last_peers(&times, &self.scratch.slots));
                for (call, (values, mask)) in calls.iter_mut().zip(&inputs) {
                    call.resize(slots);
                    let (_, after) = call.update_each(&Rows { slots: &self.scratch.slots, values, kinds: None, mask: mask.as_ref() })?;
                    columns.push(match &last {
                        Some(last) => take(&after, last, None)?,
                        None => after,
                    });
                }
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        out.emit(Block::inserts(RecordBatch::try_new_with_options(self.spec.schema.clone(), columns, &options)?, block.arrival_ns));
        Ok(())
    }
}

fn remove(table: &mut KeyTable, calls: &mut [Box<dyn Sliding>], slots: &[u32]) {
    for slot in slots {
        calls.iter_mut().for_each(|c| c.clear(*slot));
        table.remove(*slot);
    }
}

/// For each row the last row of the same time and key.
fn last_peers(times: &[i64], slots: &[u32]) -> UInt32Array {
    let mut last: Vec<u32> = (0..times.len() as u32).collect();
    let mut from = 0;
    while from < times.len() {
        let until = from + times[from..].iter().take_while(|t| **t == times[from]).count();
        if until - from > 1 {
            let mut newest = std::collections::HashMap::with_capacity(until - from);
            for row in (from..until).rev() {
                last[row] = *newest.entry(slots[row]).or_insert(row as u32);
            }
        }
        from = until;
    }
    UInt32Array::from(last)
}

impl Operator for Over {
    fn name(&self) -> &'static str {
        "Over"
    }

    fn on_block(&mut self, _input: usize, block: Block, _out: &mut Output) -> Result<(), OperatorError> {
        if block.kinds.is_some() {
            return Err(OperatorError::new(
                "OVER needs an append-only input, but rows of this one are updated; aggregate in windows instead of a running GROUP BY",
            ));
        }
        let times = TimeColumn::of(block.column(self.spec.time))?;
        let Some(times) = times.all_ms() else {
            return Err(OperatorError::new(format!(
                "the column '{}' that orders the rows of an OVER is NULL in a row; event time must not be NULL: filter such rows out in a view below the watermark",
                self.spec.input.field(self.spec.time).name()
            )));
        };
        let watermark = self.watermark;
        if block.row_watermarks.is_none() && times.iter().all(|t| *t > watermark) {
            self.hold(block);
            return Ok(());
        }
        let keep: Vec<u32> = (0..block.rows()).filter(|r| times[*r] > block.row_watermark(*r).max(watermark)).map(|r| r as u32).collect();
        self.late_rows += (block.rows() - keep.len()) as u64;
        let kept = block.take(&UInt32Array::from(keep))?;
        self.hold(kept);
        Ok(())
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        if self.due.is_empty() {
            self.watermark = self.watermark.max(watermark);
            self.release(watermark)?;
        }
        if let Some(block) = self.due.pop() {
            self.process(&block, out)?;
        }
        if !self.due.is_empty() {
            return Ok(Progress::More);
        }
        if let State::Bounded { frames, calls } = &mut self.state
            && watermark != WATERMARK_END
        {
            // Keys that fell silent give their rows back.
            let plan = frames.expire(watermark);
            if !plan.is_empty() {
                for call in calls.iter_mut() {
                    call.evict(&plan)?;
                }
                let emptied = frames.emptied(&plan);
                remove(&mut self.table, calls, &emptied);
            }
        }
        Ok(Progress::Done)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        assert!(self.due.is_empty(), "a barrier follows a watermark only when its output has left");
        let mut tables = Vec::new();
        if self.held_rows > 0 {
            let batch = concat_batches(&self.spec.input, self.held.iter().map(|b| &b.batch))?;
            let rows = batch.num_rows();
            let keys =
                self.spec.keys.iter().map(|k| Ok(k.evaluate(&batch)?.into_array(rows)?)).collect::<Result<Vec<_>, OperatorError>>()?;
            let mut hashes = Vec::new();
            hash::rows(&keys, rows, &mut hashes)?;
            tables.push(StateTable::keyed("held", hashes, batch.columns().to_vec())?);
        }
        match &mut self.state {
            State::Bounded { frames, calls } => {
                let live = frames.live();
                let slots: Vec<u32> = live.iter().map(|l| l.slot).collect();
                let mut columns = self.table.keys(&slots)?;
                columns.push(Arc::new(live.iter().map(|l| l.time).collect::<Int64Array>()) as ArrayRef);
                let ids: Vec<u32> = live.iter().map(|l| l.id).collect();
                for call in calls {
                    columns.extend(call.save(&ids)?);
                }
                tables.push(StateTable::keyed("rows", slots.iter().map(|s| self.table.hash(*s)).collect(), columns)?);
            }
            State::Unbounded { calls, .. } => {
                let slots = self.table.slots();
                let mut columns = self.table.keys(&slots)?;
                for call in calls {
                    columns.extend(call.save(&slots)?);
                }
                tables.push(StateTable::keyed("groups", slots.iter().map(|s| self.table.hash(*s)).collect(), columns)?);
            }
        }
        Ok(tables)
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        let width = self.spec.keys.len();
        let mut rows: Vec<RecordBatch> = Vec::new();
        for table in tables {
            match table.name.as_str() {
                "held" => self.hold(Block::inserts(RecordBatch::try_new(self.spec.input.clone(), table.columns().to_vec())?, 0)),
                "rows" => rows.push(table.batch),
                "groups" => {
                    let State::Unbounded { calls, .. } = &mut self.state else { continue };
                    let (keys, mut rest) = table.columns().split_at(width);
                    let mut found = Slots::default();
                    self.table.intern(keys, table.batch.num_rows(), &mut found)?;
                    for call in calls {
                        call.resize(self.table.capacity());
                        let columns = call.save(&[])?.len();
                        call.load(&found.slots, &rest[..columns])?;
                        rest = &rest[columns..];
                    }
                }
                other => {
                    return Err(OperatorError::new(format!("the checkpoint has a state table '{other}' that this version does not know")));
                }
            }
        }
        if let (State::Bounded { frames, calls }, Some(first)) = (&mut self.state, rows.first()) {
            // Rows of several former shards are put back in order of time.
            let all = concat_batches(&first.schema(), &rows)?;
            let order = {
                let times = all.column(1 + width).as_primitive::<Int64Type>().values().clone();
                let mut order: Vec<u32> = (0..times.len() as u32).collect();
                order.sort_by_key(|r| times[*r as usize]);
                UInt32Array::from(order)
            };
            let all = arrow::compute::take_record_batch(&all, &order)?;
            let columns = &all.columns()[1..];
            let mut found = Slots::default();
            self.table.intern(&columns[..width], all.num_rows(), &mut found)?;
            let times: &[i64] = columns[width].as_primitive::<Int64Type>().values();
            let plan: Plan = frames.plan(times, &found.slots, self.table.capacity());
            assert!(plan.evicted.is_empty(), "rows that were live together stay so");
            let mut rest = &columns[width + 1..];
            for call in calls {
                let columns = call.save(&[])?.len();
                call.load(&plan, self.table.capacity(), &rest[..columns])?;
                rest = &rest[columns..];
            }
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let held: usize = self.held.iter().map(Block::memory).sum();
        let (entries, state) = match &self.state {
            State::Bounded { frames, calls } => (frames.rows(), frames.memory() + calls.iter().map(|c| c.memory()).sum::<usize>()),
            State::Unbounded { calls, .. } => (self.table.len(), calls.iter().map(|c| c.memory()).sum()),
        };
        OperatorStats {
            entries: (entries + self.held_rows) as u64,
            memory: (held + state + self.table.memory()) as u64,
            late_rows: self.late_rows,
        }
    }
}
