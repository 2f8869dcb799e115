//! `OVER`: for each row an aggregate of the rows before it, or another row's value.
//!
//! Rows wait in [`crate::held`] until the watermark passes them, and are then run through in order of time;
//! where they come in that order and no frame has to know the rows of the same time behind its own, at once.
//! [`frame`] keeps the rows of all frames once and decides, for a batch of rows at once, which rows
//! leave each frame before which row enters; [`group`] keeps the values that calls look at; [`op`] is
//! the loop that adds and takes back, with [`sums`] and [`ends`] for what a function does with a row,
//! at O(1) a row; [`two_stacks`] is MIN and MAX of rows that are not parted by keys. Calls that never lose
//! rows are in [`running`]. [`lead`] is an operator of its own, since it waits for rows to come.

pub(crate) mod cell;
pub(crate) mod column;
mod ends;
mod fallback;
mod frame;
mod group;
pub mod lead;
mod op;
mod running;
mod sums;
#[cfg(test)]
mod tests;
pub mod times;
mod two_stacks;

use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{SortOptions, concat_batches};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion_common::ScalarValue;
use tidemill_block::{Block, WATERMARK_END};
use tidemill_state::{KeyTable, Slots, StateTable, hash};

use crate::aggregate::AggregateCall;
use crate::held::Held;
use crate::map::Expr;
use crate::{Operator, OperatorError, OperatorStats, Output, Progress};
use frame::{RangeStore, RowStore};
use running::{Batch, Running};
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

/// A function over a frame.
#[derive(Clone)]
pub enum OverCall {
    /// An aggregate function.
    Aggregate(AggregateCall),
    /// A value of one of the rows.
    Value(ValueCall),
    /// The number of the row; only with an unbounded frame.
    Number {
        /// How rows are numbered.
        function: Numbering,
        /// The type of the numbers.
        data_type: DataType,
    },
}

/// How rows are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// 1, 2, 3, …
    RowNumber,
    /// Rows of the same time have the same number, and numbers are left out behind them.
    Rank,
    /// Rows of the same time have the same number, and none is left out.
    DenseRank,
}

/// A call that gives a value of one of the rows.
#[derive(Clone)]
pub struct ValueCall {
    /// Of which row.
    pub function: ValueFunction,
    /// The value.
    pub argument: Expr,
    /// Its type.
    pub data_type: DataType,
    /// Rows in which it is NULL do not count.
    pub ignore_nulls: bool,
}

/// Of which row a [`ValueCall`] gives the value.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueFunction {
    /// The first of the frame.
    First,
    /// The last of the frame.
    Last,
    /// One of the frame, counted from 0.
    Nth(usize),
    /// The row so many before the current one; only with an unbounded frame.
    Lag {
        /// How many rows before.
        offset: usize,
        /// What to give if there is no such row.
        default: Option<ScalarValue>,
    },
}

/// What an `OVER` computes: the output has the input's columns, then the calls of each frame.
pub struct OverSpec {
    /// Index of the time column that orders the rows.
    pub time: usize,
    /// Columns that order rows of the same time.
    pub ties: Vec<(usize, SortOptions)>,
    /// `PARTITION BY`.
    pub keys: Vec<Expr>,
    /// Their types.
    pub key_types: Vec<DataType>,
    /// Frames and the calls over each. A frame may be there more than once.
    pub frames: Vec<(Frame, Vec<OverCall>)>,
    /// Rows come in order of time unless they are late: those that need not know the rows behind them are
    /// answered when they come.
    pub in_order: bool,
    /// Rows of one time count in the order in which they came: a frame of time ends with the current row.
    pub by_arrival: bool,
    /// The input's columns.
    pub input: SchemaRef,
    /// The input's columns and the calls.
    pub schema: SchemaRef,
}

/// Aggregates over the rows before each row.
pub struct Over {
    spec: OverSpec,
    held: Held,
    table: KeyTable,
    ranges: Option<RangeStore>,
    rows: Option<RowStore>,
    /// The number of the answers, and the call.
    running: Vec<(usize, Box<dyn Running>)>,
    /// A call in `running` wants the last row of each time.
    peers: bool,
    /// No row waits for the watermark.
    at_once: bool,
    answers: usize,
    scratch: Slots,
    emptied: Vec<u32>,
}

impl Over {
    /// An operator for `spec`.
    ///
    /// # Errors
    /// A function that cannot be used with a sliding frame.
    pub fn new(spec: OverSpec) -> Result<Self, OperatorError> {
        let (mut ranges, mut rows): (Vec<i64>, Vec<u64>) = (Vec::new(), Vec::new());
        let (mut range_calls, mut row_calls) = (Vec::new(), Vec::new());
        let mut running = Vec::new();
        let (mut answers, mut peers_wanted) = (0, false);
        for (frame, calls) in &spec.frames {
            let number = match frame {
                Frame::RangeMs(range) => number_of(&mut ranges, *range),
                Frame::Rows(before) => number_of(&mut rows, *before),
                Frame::Unbounded { .. } => 0,
            };
            for call in calls {
                match frame {
                    Frame::RangeMs(_) => range_calls.push((number, answers, call)),
                    Frame::Rows(_) => row_calls.push((number, answers, call)),
                    Frame::Unbounded { peers } => {
                        let peers = *peers && !spec.by_arrival;
                        peers_wanted |= peers;
                        running.push((answers, running::running(call, peers)?));
                    }
                }
                answers += 1;
            }
        }
        // Rows of one time that answer for each other must be known all.
        let together = !spec.by_arrival;
        let at_once = spec.in_order && spec.ties.is_empty() && !(together && (!ranges.is_empty() || peers_wanted));
        let ranges = if ranges.is_empty() {
            None
        } else {
            Some(RangeStore::new(&ranges, together, group::groups(&range_calls, spec.keys.is_empty())?))
        };
        let rows = if rows.is_empty() { None } else { Some(RowStore::new(&rows, group::groups(&row_calls, false)?)) };
        Ok(Over {
            held: Held::new("an OVER", spec.input.clone(), spec.time, spec.ties.clone()),
            table: KeyTable::new(spec.key_types.clone())?,
            ranges,
            rows,
            running,
            peers: peers_wanted,
            at_once,
            answers,
            scratch: Slots::default(),
            emptied: Vec::new(),
            spec,
        })
    }

    fn process(&mut self, block: &Block, out: &mut Output) -> Result<(), OperatorError> {
        let rows = block.rows();
        let keys =
            self.spec.keys.iter().map(|k| Ok(k.evaluate(&block.batch)?.into_array(rows)?)).collect::<Result<Vec<_>, OperatorError>>()?;
        self.table.intern(&keys, rows, &mut self.scratch)?;
        let slots_max = self.table.capacity();
        let slots = &self.scratch.slots;
        let times = TimeColumn::of(block.column(self.spec.time))?.all_ms().expect("checked when the block came");
        let mut answers: Vec<Option<ArrayRef>> = vec![None; self.answers];
        if let Some(ranges) = &mut self.ranges {
            ranges.run(block, &times, slots, slots_max, &mut answers, &mut self.emptied)?;
        }
        if let Some(rows) = &mut self.rows {
            rows.run(block, slots, slots_max, &mut answers)?;
        }
        if !self.running.is_empty() {
            let last_peers = self.peers.then(|| last_peers(&times, slots));
            let batch = Batch { block, times: &times, slots, last_peers };
            for (answer, call) in &mut self.running {
                call.resize(slots_max);
                answers[*answer] = Some(call.run(&batch)?);
            }
        }
        let mut columns = block.batch.columns().to_vec();
        columns.extend(answers.into_iter().map(|a| a.expect("every call has answered")));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.spec.schema.clone(), columns, &options)?;
        out.emit(Block::inserts(batch, block.arrival_ns));
        self.remove_emptied();
        Ok(())
    }

    /// Forgets keys without rows, unless something is remembered of them for ever.
    fn remove_emptied(&mut self) {
        let removable = self.rows.is_none() && self.running.is_empty();
        for slot in self.emptied.drain(..) {
            if let Some(ranges) = &mut self.ranges
                && removable
            {
                ranges.clear(slot);
                self.table.remove(slot);
            }
        }
    }

    fn save_keyed(&self, name: &str, slots: &[u32], values: Vec<ArrayRef>) -> Result<StateTable, OperatorError> {
        let mut columns = self.table.keys(slots)?;
        columns.extend(values);
        Ok(StateTable::keyed(name, slots.iter().map(|s| self.table.hash(*s)).collect(), columns)?)
    }

    /// All tables of a name as one, without the hash, and the slots of its keys.
    fn load_keyed(&mut self, tables: &[RecordBatch]) -> Result<Option<(Vec<u32>, Vec<ArrayRef>)>, OperatorError> {
        let Some(first) = tables.first() else { return Ok(None) };
        let all = concat_batches(&first.schema(), tables)?;
        let width = self.spec.keys.len();
        let columns = &all.columns()[1..];
        let mut found = Slots::default();
        self.table.intern(&columns[..width], all.num_rows(), &mut found)?;
        Ok(Some((found.slots, columns[width..].to_vec())))
    }
}

/// The place of a frame in a list, where it is put if it is not there.
fn number_of<T: PartialEq>(frames: &mut Vec<T>, frame: T) -> usize {
    match frames.iter().position(|f| *f == frame) {
        Some(number) => number,
        None => {
            frames.push(frame);
            frames.len() - 1
        }
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

/// The rows that wait as a table of a snapshot.
fn save_held(held: &Held, keys: &[Expr]) -> Result<Option<StateTable>, OperatorError> {
    let Some(batch) = held.all()? else { return Ok(None) };
    let rows = batch.num_rows();
    let keys = keys.iter().map(|k| Ok(k.evaluate(&batch)?.into_array(rows)?)).collect::<Result<Vec<_>, OperatorError>>()?;
    let mut hashes = Vec::new();
    hash::rows(&keys, rows, &mut hashes)?;
    Ok(Some(StateTable::keyed("held", hashes, batch.columns().to_vec())?))
}

fn unknown(name: &str) -> OperatorError {
    OperatorError::new(format!("the checkpoint has a state table '{name}' that this version does not know"))
}

impl Operator for Over {
    fn name(&self) -> &'static str {
        "Over"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        self.held.take_in(block)?;
        if self.at_once {
            self.held.release_all()?;
            while let Some(block) = self.held.next() {
                self.process(&block, out)?;
            }
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        if self.held.is_idle() {
            self.held.release(watermark)?;
        }
        if let Some(block) = self.held.next() {
            self.process(&block, out)?;
        }
        if !self.held.is_idle() {
            return Ok(Progress::More);
        }
        if let Some(ranges) = &mut self.ranges
            && watermark != WATERMARK_END
        {
            // Keys that fell silent give their rows back.
            ranges.expire(watermark, &mut self.emptied)?;
            self.remove_emptied();
        }
        Ok(Progress::Done)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        assert!(self.held.is_idle(), "a barrier follows a watermark only when its output has left");
        let mut tables: Vec<StateTable> = save_held(&self.held, &self.spec.keys)?.into_iter().collect();
        if let Some(ranges) = &self.ranges {
            let (slots, columns) = ranges.save()?;
            tables.push(self.save_keyed("ranges", &slots, columns)?);
        }
        if let Some(rows) = &self.rows {
            let (slots, columns) = rows.save()?;
            tables.push(self.save_keyed("rows", &slots, columns)?);
        }
        if !self.running.is_empty() {
            let slots = self.table.slots();
            let mut columns = Vec::new();
            for (_, call) in &mut self.running {
                call.resize(self.table.capacity());
                columns.extend(call.save(&slots)?);
            }
            tables.push(self.save_keyed("keys", &slots, columns)?);
        }
        Ok(tables)
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        let (mut ranges, mut rows, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for table in tables {
            match table.name.as_str() {
                "held" => self.held.restore(table.columns())?,
                "ranges" => ranges.push(table.batch),
                "rows" => rows.push(table.batch),
                "keys" => keys.push(table.batch),
                other => return Err(unknown(other)),
            }
        }
        if self.ranges.is_some() && !ranges.is_empty() {
            // Rows of several former shards are put back in order of time.
            let width = self.spec.keys.len();
            let all = concat_batches(&ranges[0].schema(), &ranges)?;
            let mut order: Vec<u32> = (0..all.num_rows() as u32).collect();
            {
                let times = all.column(1 + width).as_primitive::<Int64Type>().values();
                order.sort_by_key(|r| times[*r as usize]);
            }
            let all = arrow::compute::take_record_batch(&all, &UInt32Array::from(order))?;
            if let (Some((slots, columns)), Some(store)) = (self.load_keyed(&[all])?, &mut self.ranges) {
                let times: &[i64] = columns[0].as_primitive::<Int64Type>().values();
                store.load(times, &slots, self.table.capacity(), &columns[1..], &mut self.emptied)?;
            }
        }
        if let (Some((slots, columns)), Some(store)) = (self.load_keyed(&rows)?, &mut self.rows) {
            store.load(&slots, self.table.capacity(), &columns)?;
        }
        if let Some((slots, columns)) = self.load_keyed(&keys)? {
            let mut rest = columns.as_slice();
            for (_, call) in &mut self.running {
                call.resize(self.table.capacity());
                let width = call.save(&[])?.len();
                call.load(&slots, &rest[..width])?;
                rest = &rest[width..];
            }
        }
        self.remove_emptied();
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let ranges = self.ranges.as_ref().map_or((0, 0), |r| (r.rows(), r.memory()));
        let rows = self.rows.as_ref().map_or((0, 0), |r| (r.rows(), r.memory()));
        let keys = if self.running.is_empty() { 0 } else { self.table.len() };
        let running: usize = self.running.iter().map(|(_, call)| call.memory()).sum();
        OperatorStats {
            entries: (ranges.0 + rows.0 + keys + self.held.rows()) as u64,
            memory: (ranges.1 + rows.1 + running + self.held.memory() + self.table.memory()) as u64,
            late_rows: self.held.late_rows(),
            ..OperatorStats::default()
        }
    }
}
