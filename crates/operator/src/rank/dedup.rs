//! Deduplication: of each key the first row by event time, and what it has in common with the last
//! ([`super::keep_last`]).
//!
//! The first row leaves when the watermark passes it, so no earlier one can come and the output is
//! append-only; Flink emits it at once and updates it if an earlier one comes. A late row can no
//! longer be the first and is dropped.
//!
//! Of rows of the same time the first that came is the first and the last that came the last, or, if
//! the order of arrival is left to chance ([`Ties::Contents`]), the one with the smaller columns is
//! either.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::row::{RowConverter, Rows, SortField};
use tidemill_block::{Block, NO_WATERMARK, WATERMARK_END};
use tidemill_state::{KeyTable, SlotVec, Slots, StateTable};

use super::store::RowStore;
use super::{RankSpec, Ties};
use crate::over::times::TimeColumn;
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output, Progress};

/// No row of this block.
const NO_ROW: u32 = u32::MAX;

/// What both kinds share.
pub(super) struct Common {
    /// The order, the function and the ranks of it are not looked at: it is by `time`, the first row.
    pub spec: RankSpec,
    pub time: usize,
    pub table: KeyTable,
    /// The slots of the block interned last.
    pub scratch: Slots,
    /// Compares rows of the same time by their columns, if that decides.
    pub contest: Option<RowConverter>,
}

impl Common {
    pub fn new(spec: RankSpec, time: usize) -> Result<Self, OperatorError> {
        let fields = spec.input.fields().iter().map(|f| SortField::new(f.data_type().clone())).collect();
        let contest = (spec.ties == Ties::Contents).then(|| RowConverter::new(fields)).transpose()?;
        Ok(Common { table: KeyTable::new(spec.key_types.clone())?, scratch: Slots::default(), contest, time, spec })
    }

    /// The keys of a block's rows.
    pub fn keys(&self, block: &Block) -> Result<Vec<ArrayRef>, OperatorError> {
        self.spec.evaluate(block, self.spec.keys.iter())
    }

    pub fn intern(&mut self, block: &Block) -> Result<(), OperatorError> {
        let keys = self.keys(block)?;
        Ok(self.table.intern(&keys, block.rows(), &mut self.scratch)?)
    }

    pub fn null_time(&self) -> OperatorError {
        OperatorError::new(format!(
            "the column '{}' that orders the rows of a ROW_NUMBER is NULL in a row; event time must not be NULL: filter such rows out in a view below the watermark",
            self.spec.input.field(self.time).name()
        ))
    }

    /// Whether row `row` of a block goes before the row of the same time that its key stands at: row
    /// `other` of the block, or the one that `kept` gives.
    pub fn wins(
        &self,
        block: &Block,
        encoded: &mut Option<Rows>,
        row: usize,
        other: Option<usize>,
        kept: impl FnOnce() -> Result<Vec<ArrayRef>, OperatorError>,
    ) -> Result<bool, OperatorError> {
        let Some(converter) = &self.contest else { return Ok(false) };
        if encoded.is_none() {
            *encoded = Some(converter.convert_columns(block.batch.columns())?);
        }
        let rows = encoded.as_ref().expect("set above");
        let mine = rows.row(row);
        let order = match other {
            None => mine.data().cmp(converter.convert_columns(&kept()?)?.row(0).data()),
            Some(other) => mine.data().cmp(rows.row(other).data()),
        };
        Ok(order == Ordering::Less)
    }
}

/// A key without a row that could still be beaten.
const OPEN: i64 = i64::MAX;
/// A key whose first row has left.
const DONE: i64 = i64::MIN;

/// Of each key the first row by event time, when the watermark passes it.
pub struct KeepFirst {
    common: Common,
    /// The rows kept.
    store: RowStore,
    /// By slot: the row of this block that the key stands at.
    newest: SlotVec<u32>,
    /// By slot: the time of the first row so far, [`OPEN`] or [`DONE`].
    times: SlotVec<i64>,
    /// By slot: the number of that row in the store.
    ids: SlotVec<u32>,
    free: Vec<u32>,
    next: u32,
    /// Times at which keys may be due. A key has one that is its row's, and may have later ones that
    /// are out of date.
    due: BinaryHeap<Reverse<(i64, u32)>>,
    watermark: i64,
    arrival_ns: u64,
    late_rows: u64,
}

impl KeepFirst {
    /// Keeps the first row of each key of `spec` by the column `time`.
    ///
    /// # Errors
    /// A type that cannot be a key or kept.
    pub fn new(spec: RankSpec, time: usize) -> Result<Self, OperatorError> {
        Ok(KeepFirst {
            store: RowStore::new(spec.input.fields().iter().map(|f| f.data_type()))?,
            common: Common::new(spec, time)?,
            newest: SlotVec::new(),
            times: SlotVec::new(),
            ids: SlotVec::new(),
            free: Vec::new(),
            next: 0,
            due: BinaryHeap::new(),
            watermark: NO_WATERMARK,
            arrival_ns: 0,
            late_rows: 0,
        })
    }

    /// Enters rows none of which is late.
    fn enter(&mut self, block: &Block) -> Result<(), OperatorError> {
        let times = TimeColumn::of(block.column(self.common.time))?.all_ms().expect("checked when the block came");
        self.common.intern(block)?;
        let slots = self.common.table.capacity();
        self.times.resize(slots, OPEN);
        self.ids.resize(slots, 0);
        self.newest.resize(slots, NO_ROW);
        let mut encoded = None;
        let (mut ids, mut rows): (Vec<u32>, Vec<u32>) = Default::default();
        for (row, t) in times.iter().enumerate() {
            let slot = self.common.scratch.slots[row];
            let at = slot as usize;
            if *t > self.times[at] {
                continue;
            }
            if *t == self.times[at] {
                if self.common.contest.is_none() {
                    continue;
                }
                let other = Some(self.newest[at] as usize).filter(|other| *other != NO_ROW as usize);
                if !self.common.wins(block, &mut encoded, row, other, || self.store.get(&[self.ids[at]]))? {
                    continue;
                }
            } else {
                if self.times[at] == OPEN {
                    self.ids[at] = self.free.pop().unwrap_or_else(|| {
                        self.next += 1;
                        self.next - 1
                    });
                }
                self.times[at] = *t;
                self.due.push(Reverse((*t, slot)));
            }
            self.newest[at] = row as u32;
            ids.push(self.ids[at]);
            rows.push(row as u32);
        }
        for row in &rows {
            self.newest[self.common.scratch.slots[*row as usize] as usize] = NO_ROW;
        }
        self.store.put(&ids, &rows, block.batch.columns())
    }
}

impl Operator for KeepFirst {
    fn name(&self) -> &'static str {
        "KeepFirst"
    }

    fn on_block(&mut self, _input: usize, block: Block, _out: &mut Output) -> Result<(), OperatorError> {
        if block.kinds.is_some() {
            return Err(OperatorError::new("internal error: a deduplication of new rows got an update"));
        }
        self.arrival_ns = self.arrival_ns.max(block.arrival_ns);
        let Some(times) = TimeColumn::of(block.column(self.common.time))?.all_ms() else { return Err(self.common.null_time()) };
        let watermark = self.watermark;
        if block.row_watermarks.is_none() && times.iter().all(|t| *t > watermark) {
            return self.enter(&block);
        }
        let in_time = |row: &u32| times[*row as usize] > block.row_watermark(*row as usize).max(watermark);
        let keep: Vec<u32> = (0..block.rows() as u32).filter(in_time).collect();
        self.late_rows += (block.rows() - keep.len()) as u64;
        let kept = block.take(&UInt32Array::from(keep))?;
        self.enter(&kept)
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        self.watermark = self.watermark.max(watermark);
        let mut ids = Vec::new();
        while ids.len() < BLOCK_ROWS_MAX
            && let Some(Reverse((time, slot))) = self.due.peek().copied()
            && (watermark == WATERMARK_END || time <= watermark)
        {
            self.due.pop();
            if self.times[slot as usize] == time {
                self.times[slot as usize] = DONE;
                ids.push(self.ids[slot as usize]);
            }
        }
        if ids.is_empty() {
            return Ok(Progress::Done);
        }
        let ranks = vec![1; ids.len()];
        let batch = self.common.spec.batch(self.store.get(&ids)?, &ranks)?;
        out.emit(Block::inserts(batch, self.arrival_ns));
        self.free.append(&mut ids);
        Ok(Progress::More)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let slots = self.common.table.slots();
        let (done, open): (Vec<u32>, Vec<u32>) = slots.into_iter().partition(|s| self.times[*s as usize] == DONE);
        let ids: Vec<u32> = open.iter().map(|s| self.ids[*s as usize]).collect();
        let hashes = done.iter().map(|s| self.common.table.hash(*s)).collect();
        let done = StateTable::keyed("done", hashes, self.common.table.keys(&done)?)?;
        let hashes = open.iter().map(|s| self.common.table.hash(*s)).collect();
        Ok(vec![done, StateTable::keyed("open", hashes, self.store.get(&ids)?)?])
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            match table.name.as_str() {
                "open" => {
                    let block = self.common.spec.block(table.columns())?;
                    self.enter(&block)?;
                }
                "done" => {
                    let mut slots = Slots::default();
                    self.common.table.intern(table.columns(), table.batch.num_rows(), &mut slots)?;
                    self.times.resize(self.common.table.capacity(), OPEN);
                    self.ids.resize(self.common.table.capacity(), 0);
                    slots.slots.iter().for_each(|s| self.times[*s as usize] = DONE);
                }
                other => {
                    return Err(OperatorError::new(format!("the checkpoint has a state table '{other}' that this version does not know")));
                }
            }
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let by_slot = self.times.memory() + self.ids.memory() + self.newest.memory() + self.free.capacity() * 4;
        let memory = self.common.table.memory() + self.store.memory() + by_slot;
        OperatorStats {
            entries: self.common.table.len() as u64,
            memory: (memory + self.due.capacity() * 16) as u64,
            late_rows: self.late_rows,
            ..OperatorStats::default()
        }
    }
}
