//! Deduplication: of each key the first or the last row by event time.
//!
//! The first row leaves when the watermark passes it, so no earlier one can come and the output is
//! append-only; Flink emits it at once and updates it if an earlier one comes. A late row can no
//! longer be the first and is dropped. The last row leaves at once and is updated by each one that is
//! not older, as in Flink.
//!
//! Of rows of the same time the first that came is the first and the last that came the last, or, if
//! the order of arrival is left to chance ([`Ties::Contents`]), the one with the smaller columns is
//! either.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::interleave;
use arrow::row::{RowConverter, Rows, SortField};
use tidemill_block::{Block, NO_WATERMARK, RowKind, WATERMARK_END};
use tidemill_state::{KeyTable, Slots, StateTable};

use super::store::RowStore;
use super::{RankSpec, Ties};
use crate::over::times::TimeColumn;
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output, Progress};

/// No row of this block.
const NO_ROW: u32 = u32::MAX;

/// What both kinds share.
struct Common {
    /// The order, the function and the ranks of it are not looked at: it is by `time`, the first row.
    spec: RankSpec,
    time: usize,
    table: KeyTable,
    /// The rows kept.
    store: RowStore,
    scratch: Slots,
    /// By slot: the row of this block that the key stands at.
    newest: Vec<u32>,
    contest: Option<RowConverter>,
}

impl Common {
    fn new(spec: RankSpec, time: usize) -> Result<Self, OperatorError> {
        let types = || spec.input.fields().iter().map(|f| f.data_type());
        let contest = (spec.ties == Ties::Contents).then(|| RowConverter::new(types().map(|t| SortField::new(t.clone())).collect()));
        Ok(Common {
            table: KeyTable::new(spec.key_types.clone())?,
            store: RowStore::new(types())?,
            scratch: Slots::default(),
            newest: Vec::new(),
            contest: contest.transpose()?,
            time,
            spec,
        })
    }

    fn intern(&mut self, block: &Block) -> Result<(), OperatorError> {
        let keys = self.spec.evaluate(block, self.spec.keys.iter())?;
        self.table.intern(&keys, block.rows(), &mut self.scratch)?;
        self.newest.resize(self.table.capacity(), NO_ROW);
        Ok(())
    }

    fn null_time(&self) -> OperatorError {
        OperatorError::new(format!(
            "the column '{}' that orders the rows of a ROW_NUMBER is NULL in a row; event time must not be NULL: filter such rows out in a view below the watermark",
            self.spec.input.field(self.time).name()
        ))
    }

    /// Whether row `row` of a block goes before the row of the same time that the slot stands at: the
    /// latter is in the block, or in the store as number `id`.
    fn wins(&self, block: &Block, encoded: &mut Option<Rows>, row: usize, slot: u32, id: u32) -> Result<bool, OperatorError> {
        let Some(converter) = &self.contest else { return Ok(false) };
        if encoded.is_none() {
            *encoded = Some(converter.convert_columns(block.batch.columns())?);
        }
        let rows = encoded.as_ref().expect("set above");
        let mine = rows.row(row);
        let order = match self.newest[slot as usize] {
            NO_ROW => mine.data().cmp(converter.convert_columns(&self.store.get(&[id])?)?.row(0).data()),
            other => mine.data().cmp(rows.row(other as usize).data()),
        };
        Ok(order == Ordering::Less)
    }

    /// Keyed state: rows of the store under the hashes of their slots.
    fn save(&self, name: &str, slots: &[u32], ids: &[u32]) -> Result<StateTable, OperatorError> {
        let hashes = slots.iter().map(|s| self.table.hash(*s)).collect();
        Ok(StateTable::keyed(name, hashes, self.store.get(ids)?)?)
    }

    fn memory(&self) -> usize {
        self.table.memory() + self.store.memory() + self.newest.capacity() * 4
    }
}

/// A key without a row that could still be beaten.
const OPEN: i64 = i64::MAX;
/// A key whose first row has left.
const DONE: i64 = i64::MIN;

/// Of each key the first row by event time, when the watermark passes it.
pub struct KeepFirst {
    common: Common,
    /// By slot: the time of the first row so far, [`OPEN`] or [`DONE`].
    times: Vec<i64>,
    /// By slot: the number of that row in the store.
    ids: Vec<u32>,
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
            common: Common::new(spec, time)?,
            times: Vec::new(),
            ids: Vec::new(),
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
        let mut encoded = None;
        let (mut ids, mut rows): (Vec<u32>, Vec<u32>) = Default::default();
        for (row, t) in times.iter().enumerate() {
            let slot = self.common.scratch.slots[row];
            let at = slot as usize;
            if *t > self.times[at] {
                continue;
            }
            if *t == self.times[at] {
                if self.common.contest.is_none() || !self.common.wins(block, &mut encoded, row, slot, self.ids[at])? {
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
            self.common.newest[at] = row as u32;
            ids.push(self.ids[at]);
            rows.push(row as u32);
        }
        for row in &rows {
            self.common.newest[self.common.scratch.slots[*row as usize] as usize] = NO_ROW;
        }
        self.common.store.put(&ids, &rows, block.batch.columns())
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
        let batch = self.common.spec.batch(self.common.store.get(&ids)?, &ranks)?;
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
        Ok(vec![done, self.common.save("open", &open, &ids)?])
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
        let memory = self.common.memory() + self.times.capacity() * 8 + (self.ids.capacity() + self.free.capacity()) * 4;
        OperatorStats {
            entries: self.common.table.len() as u64,
            memory: (memory + self.due.capacity() * 16) as u64,
            late_rows: self.late_rows,
        }
    }
}

/// Of each key the last row by event time so far.
pub struct KeepLast {
    common: Common,
    fold: bool,
    update_before: bool,
    /// By slot: the time of the last row.
    times: Vec<i64>,
}

/// Where an emitted row is: the rows kept before the block, or the block.
const KEPT: usize = 0;
const BLOCK: usize = 1;

/// What a block changes: kinds, and where the rows are.
#[derive(Default)]
struct Changes {
    kinds: Vec<RowKind>,
    picks: Vec<(usize, usize)>,
}

impl Changes {
    fn push(&mut self, kind: RowKind, side: usize, row: usize) {
        self.kinds.push(kind);
        self.picks.push((side, row));
    }

    /// The former row (`None` for a new key), then the new one.
    fn replace(&mut self, former: Option<(usize, usize)>, row: usize, update_before: bool) {
        match former {
            None => self.push(RowKind::Insert, BLOCK, row),
            Some((side, at)) => {
                if update_before {
                    self.push(RowKind::UpdateBefore, side, at);
                }
                self.push(RowKind::UpdateAfter, BLOCK, row);
            }
        }
    }
}

impl KeepLast {
    /// Keeps the last row of each key of `spec` by the column `time`. `fold`: one change a key and
    /// block. `update_before`: `-U` rows are wanted.
    ///
    /// # Errors
    /// A type that cannot be a key or kept.
    pub fn new(spec: RankSpec, time: usize, fold: bool, update_before: bool) -> Result<Self, OperatorError> {
        Ok(KeepLast { common: Common::new(spec, time)?, fold, update_before, times: Vec::new() })
    }

    fn emit(&self, block: &Block, kept: &[u32], changes: Changes, out: &mut Output) -> Result<(), OperatorError> {
        let Changes { kinds, picks } = changes;
        if kinds.is_empty() {
            return Ok(());
        }
        let all_new = kinds.iter().all(|k| *k == RowKind::Insert);
        let columns = if all_new && kinds.len() == block.rows() {
            block.batch.columns().to_vec()
        } else {
            let kept = self.common.store.get(kept)?;
            let both = kept.iter().zip(block.batch.columns());
            both.map(|(k, b)| interleave(&[k.as_ref(), b.as_ref()], &picks)).collect::<Result<Vec<ArrayRef>, _>>()?
        };
        let batch: RecordBatch = self.common.spec.batch(columns, &vec![1; kinds.len()])?;
        // A row that was kept was in time then; the mark of an update is that of its new row.
        let row_watermarks = block.row_watermarks.as_ref().map(|marks| {
            let mark = |(side, row): &(usize, usize)| if *side == BLOCK { marks[*row] } else { NO_WATERMARK };
            picks.iter().map(mark).collect::<Arc<[i64]>>()
        });
        let kinds = (!all_new).then(|| kinds.into());
        out.emit(Block::marked(batch, kinds, block.arrival_ns, row_watermarks));
        Ok(())
    }
}

impl Operator for KeepLast {
    fn name(&self) -> &'static str {
        "KeepLast"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        if block.kinds.is_some() {
            return Err(OperatorError::new("internal error: a deduplication of new rows got an update"));
        }
        let Some(times) = TimeColumn::of(block.column(self.common.time))?.all_ms() else { return Err(self.common.null_time()) };
        self.common.intern(&block)?;
        self.times.resize(self.common.table.capacity(), NO_WATERMARK);
        let mut encoded = None;
        let mut changes = Changes::default();
        // Slots that get another row, with the place of their former one among the rows kept.
        let mut replaced: Vec<(u32, Option<usize>)> = Vec::new();
        let mut kept: Vec<u32> = Vec::new();
        for (row, t) in times.iter().enumerate() {
            let slot = self.common.scratch.slots[row];
            let at = slot as usize;
            if *t < self.times[at] {
                continue;
            }
            if *t == self.times[at] && self.common.contest.is_some() && !self.common.wins(&block, &mut encoded, row, slot, slot)? {
                continue;
            }
            let former = match self.common.newest[at] {
                NO_ROW => {
                    let known = self.times[at] != NO_WATERMARK;
                    if known {
                        kept.push(slot);
                    }
                    let place = known.then(|| kept.len() - 1);
                    replaced.push((slot, place));
                    place.map(|place| (KEPT, place))
                }
                other => Some((BLOCK, other as usize)),
            };
            if !self.fold {
                changes.replace(former, row, self.update_before);
            }
            self.times[at] = *t;
            self.common.newest[at] = row as u32;
        }
        if self.fold {
            for (slot, place) in &replaced {
                let row = self.common.newest[*slot as usize] as usize;
                changes.replace(place.map(|place| (KEPT, place)), row, self.update_before);
            }
        }
        self.emit(&block, &kept, changes, out)?;
        let (ids, rows): (Vec<u32>, Vec<u32>) =
            replaced.iter().map(|(slot, _)| (*slot, std::mem::replace(&mut self.common.newest[*slot as usize], NO_ROW))).unzip();
        self.common.store.put(&ids, &rows, block.batch.columns())
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let slots = self.common.table.slots();
        Ok(vec![self.common.save("rows", &slots, &slots)?])
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            let block = self.common.spec.block(table.columns())?;
            let rows: Vec<u32> = (0..block.rows() as u32).collect();
            let Some(times) = TimeColumn::of(block.column(self.common.time))?.all_ms() else { return Err(self.common.null_time()) };
            self.common.intern(&block)?;
            self.times.resize(self.common.table.capacity(), NO_WATERMARK);
            let slots = &self.common.scratch.slots;
            slots.iter().zip(times.iter()).for_each(|(slot, t)| self.times[*slot as usize] = *t);
            self.common.store.put(slots, &rows, block.batch.columns())?;
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        OperatorStats {
            entries: self.common.table.len() as u64,
            memory: (self.common.memory() + self.times.capacity() * 8) as u64,
            late_rows: 0,
        }
    }
}
