//! Interval joins: rows of equal keys whose times lie within bounds of each other.
//!
//! Each input keeps its rows by key and time; a row that comes is joined at once with what the other
//! input has kept, and kept itself until the watermark says that no partner can come any more. Then,
//! in outer joins, it is emitted alone if it has had none, and forgotten. So the result is append-only
//! and each pair leaves when its second row comes.
//!
//! Which rows are joined depends on the input alone: a row that is late by the watermark of its own
//! split is dropped, always; a row in time meets every row in time of the other side, because rows are
//! kept until the watermark of *both* inputs has passed what could still match.

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{filter, not, take, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use tidemill_block::{Block, NO_WATERMARK, WATERMARK_END};
use tidemill_state::{KeyTable, Slots, StateTable};

use super::time_pairs::{block as new_block, nulls, only_inserts, picked, with_key};
use super::time_rows::{NONE, TimeRows, saved};
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output, Progress};

pub use super::time_pairs::{JoinForm, JoinSide, Residual};

/// What an interval join computes.
#[derive(Clone)]
pub struct IntervalSpec {
    /// Which rows are emitted.
    pub form: JoinForm,
    /// Left and right.
    pub sides: [JoinSide; 2],
    /// Types of the keys.
    pub key_types: Vec<DataType>,
    /// NULL is equal to NULL.
    pub null_equals: bool,
    /// The left time less the right time is at least so much, ms.
    pub low_ms: i64,
    /// And at most so much, ms.
    pub high_ms: i64,
    /// What else must hold.
    pub residual: Option<Residual>,
    /// Left columns, then right columns; the left ones alone if the form is a half join.
    pub schema: SchemaRef,
}

/// Joins rows within bounds of time.
pub struct IntervalJoin {
    spec: IntervalSpec,
    table: KeyTable,
    rows: [TimeRows; 2],
    /// Rows that the watermark has passed and that are not yet emitted or forgotten.
    due: [Vec<u32>; 2],
    watermark: i64,
    scratch: Slots,
    ids: Vec<u32>,
    arrival_ns: u64,
    late_rows: u64,
}

impl IntervalJoin {
    /// A join by `spec`.
    ///
    /// # Errors
    /// Types that cannot be keys.
    pub fn new(spec: IntervalSpec) -> Result<Self, OperatorError> {
        let span = spec.high_ms.saturating_sub(spec.low_ms);
        let rows = |side: &JoinSide| TimeRows::new(side.schema.clone(), true, span);
        Ok(IntervalJoin {
            table: KeyTable::new(spec.key_types.clone())?,
            rows: [rows(&spec.sides[0]), rows(&spec.sides[1])],
            due: [Vec::new(), Vec::new()],
            watermark: NO_WATERMARK,
            scratch: Slots::default(),
            ids: Vec::new(),
            arrival_ns: 0,
            late_rows: 0,
            spec,
        })
    }

    /// The times that partners of a row of `side` at `time` have.
    fn partners(&self, side: usize, time: i64) -> (i64, i64) {
        let (low, high) = (self.spec.low_ms, self.spec.high_ms);
        match side {
            0 => (time.saturating_sub(high), time.saturating_sub(low)),
            _ => (time.saturating_add(low), time.saturating_add(high)),
        }
    }

    /// Rows of `side` up to this time can have no partner among the rows that are still to come.
    fn limit(&self, side: usize) -> i64 {
        match (self.watermark, side) {
            (WATERMARK_END, _) => i64::MAX,
            (watermark, 0) => watermark.saturating_add(self.spec.low_ms),
            (watermark, _) => watermark.saturating_sub(self.spec.high_ms),
        }
    }

    /// Emits rows of `side` without a partner beside them.
    fn alone(&self, side: usize, columns: Vec<ArrayRef>, rows: usize, out: &mut Output) -> Result<(), OperatorError> {
        let columns = match side {
            _ if self.spec.form.left_only() => columns,
            0 => columns.into_iter().chain(nulls(&self.spec.sides[1].schema, rows)).collect(),
            _ => nulls(&self.spec.sides[0].schema, rows).chain(columns).collect(),
        };
        out.emit(new_block(&self.spec.schema, columns, rows, self.arrival_ns)?);
        Ok(())
    }

    /// Joins pairs of rows of a block (`own`, of input `side`) and kept rows (`theirs`). `hit` notes
    /// which rows of the block have a partner, if that is asked for.
    fn join(
        &mut self,
        side: usize,
        block: &Block,
        own: &[u32],
        theirs: &[u32],
        hit: &mut [bool],
        out: &mut Output,
    ) -> Result<(), OperatorError> {
        if own.is_empty() {
            return Ok(());
        }
        let (form, other) = (self.spec.form, 1 - side);
        let width = self.spec.sides[0].schema.fields().len();
        let (mut own, mut theirs) = (own.to_vec(), theirs.to_vec());
        if let Some(residual) = &self.spec.residual {
            let indices = UInt32Array::from(own);
            let places = self.rows[other].places(&theirs);
            let kept = &self.rows[other];
            let passing = residual.passing(theirs.len(), |column| {
                let (of, index) = if column < width { (0, column) } else { (1, column - width) };
                if of == side { Ok(take(block.column(index), &indices, None)?) } else { kept.column(&places, index) }
            })?;
            own = picked(indices.values(), &passing);
            theirs = picked(&theirs, &passing);
        }
        if own.is_empty() {
            return Ok(());
        }
        if !hit.is_empty() {
            own.iter().for_each(|row| hit[*row as usize] = true);
        }
        if form.left_only() {
            if other == 0 {
                let mut fresh = Vec::new();
                for id in theirs {
                    if !self.rows[0].marked(id) {
                        self.rows[0].mark(id, true);
                        fresh.push(id);
                    }
                }
                if form == JoinForm::Semi && !fresh.is_empty() {
                    let places = self.rows[0].places(&fresh);
                    self.alone(0, self.rows[0].columns(&places)?, fresh.len(), out)?;
                }
            }
            return Ok(());
        }
        if form.keeps(other) {
            theirs.iter().for_each(|id| self.rows[other].mark(*id, true));
        }
        let rows = own.len();
        let mine = take_record_batch(&block.batch, &UInt32Array::from(own))?.columns().to_vec();
        let places = self.rows[other].places(&theirs);
        let kept = self.rows[other].columns(&places)?;
        let columns = if side == 0 { mine.into_iter().chain(kept).collect() } else { kept.into_iter().chain(mine).collect() };
        out.emit(new_block(&self.spec.schema, columns, rows, self.arrival_ns)?);
        Ok(())
    }

    /// Keeps rows; `marks` are theirs.
    fn keep(&mut self, side: usize, columns: &[ArrayRef], times: &[i64], slots: &[u32], marks: &[bool]) -> Result<(), OperatorError> {
        let mut ids = std::mem::take(&mut self.ids);
        self.rows[side].add(columns, times, slots, &mut ids)?;
        for (id, marked) in ids.iter().zip(marks) {
            if *marked {
                self.rows[side].mark(*id, true);
            }
        }
        self.ids = ids;
        Ok(())
    }

    /// Forgets a row, and its key with the last row of it.
    fn forget(&mut self, side: usize, id: u32) -> Result<(), OperatorError> {
        let slot = self.rows[side].slot(id);
        if self.rows[side].remove(id)? && self.rows[1 - side].newest(slot) == NONE {
            self.table.remove(slot);
        }
        Ok(())
    }

    /// Joins the rows of a block with what is kept, and keeps them.
    fn process(&mut self, side: usize, block: &Block, keys: &[ArrayRef], times: &[i64], out: &mut Output) -> Result<(), OperatorError> {
        let form = self.spec.form;
        let rows = block.rows();
        let mut found = std::mem::take(&mut self.scratch);
        self.table.intern(keys, rows, &mut found)?;
        let mut hit = vec![false; if form.keeps(side) || (form.left_only() && side == 0) { rows } else { 0 }];
        let (mut own, mut theirs) = (Vec::new(), Vec::new());
        for (row, (time, slot)) in times.iter().zip(&found.slots).enumerate() {
            let (low, high) = self.partners(side, *time);
            self.rows[1 - side].range(*slot, low, high, |id| {
                own.push(row as u32);
                theirs.push(id);
            });
            while own.len() >= BLOCK_ROWS_MAX {
                let (later, later_theirs) = (own.split_off(BLOCK_ROWS_MAX), theirs.split_off(BLOCK_ROWS_MAX));
                self.join(side, block, &own, &theirs, &mut hit, out)?;
                (own, theirs) = (later, later_theirs);
            }
        }
        self.join(side, block, &own, &theirs, &mut hit, out)?;
        if form == JoinForm::Semi && side == 0 && hit.contains(&true) {
            let chosen = block.filter(&BooleanArray::from(hit.clone()))?;
            self.alone(0, chosen.batch.columns().to_vec(), chosen.rows(), out)?;
        }
        // What can still find a partner is kept; in half joins a row that has one is done with.
        let limit = self.limit(side);
        let done = |row: usize| times[row] <= limit || (form.left_only() && side == 0 && hit[row]);
        if (0..rows).any(done) {
            let keep: Vec<u32> = (0..rows as u32).filter(|r| !done(*r as usize)).collect();
            if form.keeps(side) {
                let alone: Vec<u32> = (0..rows as u32).filter(|r| done(*r as usize) && !hit[*r as usize]).collect();
                let alone = take_record_batch(&block.batch, &UInt32Array::from(alone))?;
                self.alone(side, alone.columns().to_vec(), alone.num_rows(), out)?;
            }
            let kept_times: Vec<i64> = keep.iter().map(|r| times[*r as usize]).collect();
            let slots: Vec<u32> = keep.iter().map(|r| found.slots[*r as usize]).collect();
            let marks: Vec<bool> = if hit.is_empty() { Vec::new() } else { keep.iter().map(|r| hit[*r as usize]).collect() };
            let kept = take_record_batch(&block.batch, &UInt32Array::from(keep))?;
            self.keep(side, kept.columns(), &kept_times, &slots, &marks)?;
        } else {
            self.keep(side, block.batch.columns(), times, &found.slots, &hit)?;
        }
        for row in &found.fresh {
            let slot = found.slots[*row as usize];
            if self.rows[0].newest(slot) == NONE && self.rows[1].newest(slot) == NONE {
                self.table.remove(slot);
            }
        }
        self.scratch = found;
        Ok(())
    }
}

impl Operator for IntervalJoin {
    fn name(&self) -> &'static str {
        "IntervalJoin"
    }

    fn on_block(&mut self, input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        only_inserts(&block, "an interval or window join")?;
        self.arrival_ns = self.arrival_ns.max(block.arrival_ns);
        let (mut block, mut times) = self.spec.sides[input].in_time(block, self.watermark, &mut self.late_rows)?;
        let mut keys = self.spec.sides[input].keys(&block.batch)?;
        if !self.spec.null_equals
            && let Some(mask) = with_key(&keys)
        {
            // A key with a NULL in it equals nothing.
            if self.spec.form.keeps(input) {
                let alone = block.filter(&not(&mask)?)?;
                self.alone(input, alone.batch.columns().to_vec(), alone.rows(), out)?;
            }
            block = block.filter(&mask)?;
            keys = keys.iter().map(|k| filter(k, &mask)).collect::<Result<_, _>>()?;
            times = times.iter().enumerate().filter(|(r, _)| mask.value(*r)).map(|(_, t)| *t).collect();
        }
        if times.is_empty() {
            return Ok(());
        }
        self.process(input, &block, &keys, &times, out)
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        if self.due.iter().all(Vec::is_empty) {
            self.watermark = self.watermark.max(watermark);
            for side in 0..2 {
                let limit = self.limit(side);
                self.rows[side].pass(limit, &mut self.due[side]);
            }
        }
        for side in 0..2 {
            let mut due = std::mem::take(&mut self.due[side]);
            let from = if self.spec.form.keeps(side) { due.len().saturating_sub(BLOCK_ROWS_MAX) } else { 0 };
            if self.spec.form.keeps(side) {
                let alone: Vec<u32> = due[from..].iter().copied().filter(|id| !self.rows[side].marked(*id)).collect();
                if !alone.is_empty() {
                    let places = self.rows[side].places(&alone);
                    let columns = self.rows[side].columns(&places)?;
                    self.alone(side, columns, alone.len(), out)?;
                }
            }
            for id in due.drain(from..) {
                self.forget(side, id)?;
            }
            self.due[side] = due;
        }
        Ok(if self.due.iter().all(Vec::is_empty) { Progress::Done } else { Progress::More })
    }

    /// A pair's earlier row may have waited for as long as the bounds let it.
    fn output_watermark(&self, watermark: i64) -> i64 {
        watermark.saturating_sub(self.spec.high_ms.max(self.spec.low_ms.saturating_neg()).max(0))
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        assert!(self.due.iter().all(Vec::is_empty), "a barrier follows a watermark only when its output has left");
        let mut tables = self.rows[0].save("left", |slot| self.table.hash(slot))?;
        tables.extend(self.rows[1].save("right", |slot| self.table.hash(slot))?);
        Ok(tables)
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            let side = match table.name.split(' ').next() {
                Some("left") => 0,
                Some("right") => 1,
                _ => {
                    return Err(OperatorError::new(format!(
                        "the checkpoint has a state table '{}' that this version does not know",
                        table.name
                    )));
                }
            };
            let input = self.spec.sides[side].clone();
            let (columns, marks) = saved(&table, &input.schema)?;
            let times = input.times(&columns[input.time])?;
            // In order of time each row is put at the end of its key's list.
            let mut order: Vec<u32> = (0..times.len() as u32).collect();
            order.sort_by_key(|r| times[*r as usize]);
            let sorted_times: Vec<i64> = order.iter().map(|r| times[*r as usize]).collect();
            let sorted_marks: Vec<bool> = order.iter().map(|r| marks[*r as usize]).collect();
            let batch = take_record_batch(&RecordBatch::try_new(input.schema.clone(), columns)?, &UInt32Array::from(order))?;
            let keys = input.keys(&batch)?;
            let mut found = Slots::default();
            self.table.intern(&keys, batch.num_rows(), &mut found)?;
            self.keep(side, batch.columns(), &sorted_times, &found.slots, &sorted_marks)?;
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let memory = self.table.memory() + self.rows.iter().map(TimeRows::memory).sum::<usize>();
        let entries = self.rows.iter().map(TimeRows::len).sum::<usize>();
        OperatorStats { entries: entries as u64, memory: memory as u64, late_rows: self.late_rows, ..OperatorStats::default() }
    }
}
