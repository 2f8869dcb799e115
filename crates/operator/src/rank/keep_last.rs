//! Deduplication: of each key the last row by event time. It leaves at once and is updated by each row
//! that is not older, as in Flink.
//!
//! Blocks are kept as they came ([`crate::chunks`]), so that a new row costs no copy; a key knows the place
//! of its row, and what is left of a chunk is copied when most of it is out of date. Keys that do not fit in
//! memory go to the disk with their row and come back ([`crate::spill`]).

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{filter, take};
use tidemill_block::{Block, NO_WATERMARK, RowKind};
use tidemill_state::runs::StateRuns;
use tidemill_state::{KeyTable, SlotVec, Slots, StateTable};

use super::RankSpec;
use super::dedup::Common;
use crate::chunks::{Chunks, Place};
use crate::over::times::TimeColumn;
use crate::spill::{Memory, Resident, Spill, can_leave};
use crate::{DiskStats, Operator, OperatorError, OperatorStats, Output, SnapshotFiles, SpillPlace};

/// A chunk of which less than one row in so many is still the last of its key is copied.
const PACK: usize = 3;

/// Of each key the last row by event time so far.
pub struct KeepLast {
    common: Common,
    fold: bool,
    update_before: bool,
    /// By slot.
    latest: SlotVec<Latest>,
    rows: Chunks,
    /// By chunk and row: the slot of the key.
    owners: Vec<Vec<u32>>,
    /// By chunk: how many rows are the last of their key.
    live: Vec<usize>,
    /// Scratch: keys that get another row, with the place of the former one.
    replaced: Vec<(u32, Place)>,
    spill: Spill,
    /// Whether rows can go to the disk.
    spills: bool,
}

/// The last row of a key.
#[derive(Clone, Copy)]
struct Latest {
    time: i64,
    place: Place,
}

const NOTHING: Latest = Latest { time: NO_WATERMARK, place: Place::NONE };

/// What a block changes.
#[derive(Default)]
struct Changes {
    kinds: Vec<RowKind>,
    places: Vec<Place>,
}

impl Changes {
    /// The former row (none for a new key), then the new one.
    fn replace(&mut self, former: Place, place: Place, update_before: bool) {
        if former == Place::NONE {
            self.kinds.push(RowKind::Insert);
        } else {
            if update_before {
                self.kinds.push(RowKind::UpdateBefore);
                self.places.push(former);
            }
            self.kinds.push(RowKind::UpdateAfter);
        }
        self.places.push(place);
    }
}

/// The rows of a block as they are kept.
#[derive(Clone, Copy)]
struct Span {
    first: Place,
    rows: usize,
}

impl Span {
    /// Which of them lies at a place, if one does.
    #[inline]
    fn row(self, place: Place) -> Option<usize> {
        let row = place.row().wrapping_sub(self.first.row());
        (place.chunk() == self.first.chunk() && row < self.rows).then_some(row)
    }
}

impl KeepLast {
    /// Keeps the last row of each key of `spec` by the column `time`. `fold`: one change a key and
    /// block. `update_before`: `-U` rows are wanted.
    ///
    /// # Errors
    /// A type that cannot be a key.
    pub fn new(spec: RankSpec, time: usize, fold: bool, update_before: bool) -> Result<Self, OperatorError> {
        let mut this = KeepLast {
            rows: Chunks::new(spec.input.fields().iter().map(|f| f.data_type())),
            common: Common::new(spec, time)?,
            fold,
            update_before,
            latest: SlotVec::new(),
            owners: Vec::new(),
            live: Vec::new(),
            replaced: Vec::new(),
            spill: Spill::default(),
            spills: false,
        };
        this.spills = !this.common.spec.keys.is_empty() && can_leave(&this.save(&[])?);
        Ok(this)
    }

    /// Keeps the rows of a block, whose slots were found last; none of them is any key's yet.
    fn keep(&mut self, columns: &[ArrayRef], slots: &[u32]) -> Result<Span, OperatorError> {
        let first = self.rows.append(columns, slots.len())?;
        self.owners.resize_with(self.rows.chunks(), Vec::new);
        self.live.resize(self.rows.chunks(), 0);
        self.owners[first.chunk()].extend_from_slice(slots);
        Ok(Span { first, rows: slots.len() })
    }

    /// Gives up chunks that are out of date, or copies what is left of them.
    fn pack(&mut self, mut chunks: Vec<usize>) -> Result<(), OperatorError> {
        chunks.sort_unstable();
        chunks.dedup();
        for chunk in chunks {
            if self.rows.is_open(chunk) || self.live[chunk] * PACK >= self.rows.length(chunk) {
                continue;
            }
            let mine: Vec<u32> = self.current(chunk).enumerate().filter(|(_, current)| *current).map(|(row, _)| row as u32).collect();
            let owners = std::mem::take(&mut self.owners[chunk]);
            if !mine.is_empty() {
                let picks = UInt32Array::from(mine);
                let columns = self.rows.arrays(chunk)?.iter().map(|c| take(c, &picks, None)).collect::<Result<Vec<_>, _>>()?;
                let slots: Vec<u32> = picks.values().iter().map(|row| owners[*row as usize]).collect();
                let span = self.keep(&columns, &slots)?;
                for (row, slot) in slots.iter().enumerate() {
                    self.latest[*slot as usize].place = span.first.plus(row);
                }
                self.live[span.first.chunk()] += slots.len();
            }
            self.live[chunk] = 0;
            self.rows.release(chunk);
        }
        Ok(())
    }

    /// Of each row of a chunk whether it is the last of its key.
    fn current(&self, chunk: usize) -> impl Iterator<Item = bool> + '_ {
        let lies = move |place: Place, row: usize| place != Place::NONE && place.chunk() == chunk && place.row() == row;
        self.owners[chunk].iter().enumerate().map(move |(row, slot)| lies(self.latest[*slot as usize].place, row))
    }

    fn emit(&self, block: &Block, span: Span, changes: Changes, out: &mut Output) -> Result<(), OperatorError> {
        let Changes { kinds, places } = changes;
        if kinds.is_empty() {
            return Ok(());
        }
        let whole = places.len() == block.rows() && places.iter().enumerate().all(|(row, place)| span.row(*place) == Some(row));
        let columns = if whole { block.batch.columns().to_vec() } else { self.rows.take(&places)? };
        let batch: RecordBatch = self.common.spec.batch(columns, &vec![1; kinds.len()])?;
        // A row that was kept was in time then; the mark of an update is that of its new row.
        let row_watermarks = block.row_watermarks.as_ref().map(|marks| {
            let mark = |place: &Place| span.row(*place).map_or(NO_WATERMARK, |row| marks[row]);
            places.iter().map(mark).collect::<Arc<[i64]>>()
        });
        let all_new = kinds.iter().all(|k| *k == RowKind::Insert);
        let kinds = (!all_new).then(|| kinds.into());
        out.emit(Block::marked(batch, kinds, block.arrival_ns, row_watermarks));
        Ok(())
    }

    /// Finds the slots of a block's rows and keeps them. `restored`: they come from a checkpoint.
    fn take_in(&mut self, block: &Block, restored: bool) -> Result<Span, OperatorError> {
        // What decides who stays in memory is asked with the operator in hand.
        let mut spill = std::mem::take(&mut self.spill);
        let mut scratch = std::mem::take(&mut self.common.scratch);
        let span = self.take_in_with(block, restored, &mut spill, &mut scratch);
        (self.spill, self.common.scratch) = (spill, scratch);
        span
    }

    fn take_in_with(&mut self, block: &Block, restored: bool, spill: &mut Spill, slots: &mut Slots) -> Result<Span, OperatorError> {
        if spill.is_crowded(self.common.table.len(), block.rows()) {
            spill.make_room(block.rows(), self)?;
        }
        let keys = self.common.keys(block)?;
        self.intern(&keys, block.rows(), slots)?;
        if restored {
            spill.restored(slots, &*self);
        } else if spill.is_open() {
            spill.enter(slots, self)?;
        }
        self.keep(block.batch.columns(), &slots.slots)
    }

    fn with_spill<T>(&mut self, act: impl FnOnce(&mut Spill, &mut Self) -> Result<T, OperatorError>) -> Result<T, OperatorError> {
        let mut spill = std::mem::take(&mut self.spill);
        let result = act(&mut spill, self);
        self.spill = spill;
        result
    }
}

impl Resident for KeepLast {
    fn table(&self) -> &KeyTable {
        &self.common.table
    }

    fn key_columns(&self) -> usize {
        self.common.spec.keys.len()
    }

    fn intern(&mut self, keys: &[ArrayRef], rows: usize, into: &mut Slots) -> Result<(), OperatorError> {
        self.common.table.intern(keys, rows, into)?;
        self.latest.resize(self.common.table.capacity(), NOTHING);
        Ok(())
    }

    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let places: Vec<Place> = slots.iter().map(|slot| self.latest[*slot as usize].place).collect();
        let mut columns = self.common.table.keys(slots)?;
        columns.extend(self.rows.take(&places)?);
        Ok(columns)
    }

    fn load(&mut self, slots: &[u32], state: &[ArrayRef]) -> Result<(), OperatorError> {
        let Some(times) = TimeColumn::of(&state[self.common.time])?.all_ms() else { return Err(self.common.null_time()) };
        let span = self.keep(state, slots)?;
        for (row, (slot, time)) in slots.iter().zip(times.iter()).enumerate() {
            self.latest[*slot as usize] = Latest { time: *time, place: span.first.plus(row) };
        }
        self.live[span.first.chunk()] += span.rows;
        Ok(())
    }

    fn clear(&mut self, slots: &[u32]) -> Result<(), OperatorError> {
        let mut thin = Vec::new();
        for slot in slots {
            let place = std::mem::replace(&mut self.latest[*slot as usize], NOTHING).place;
            if place != Place::NONE {
                self.live[place.chunk()] -= 1;
                thin.push(place.chunk());
            }
        }
        self.pack(thin)
    }

    fn forget(&mut self, slots: &[u32]) -> Result<(), OperatorError> {
        self.clear(slots)?;
        slots.iter().for_each(|slot| self.common.table.remove(*slot));
        Ok(())
    }

    fn is_empty(&self, slot: u32) -> bool {
        self.latest[slot as usize].place == Place::NONE
    }

    fn memory(&self) -> Memory {
        let by_row: usize = self.owners.iter().map(|o| o.capacity() * 4 + 32).sum();
        let (table, by_slot) = (&self.common.table, self.latest.memory());
        Memory { all: table.memory() + self.rows.memory() + by_row + by_slot, by_slot: table.memory_by_slot() + by_slot }
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
        let span = self.take_in(&block, false)?;
        let mut encoded = None;
        let mut changes = Changes::default();
        self.replaced.clear();
        for (row, t) in times.iter().enumerate() {
            let slot = self.common.scratch.slots[row];
            let Latest { time, place: former } = self.latest[slot as usize];
            let known = former != Place::NONE;
            if known && *t < time {
                continue;
            }
            let here = span.row(former);
            if known && *t == time && self.common.contest.is_some() {
                let kept = || Ok(self.rows.take(&[former])?);
                if !self.common.wins(&block, &mut encoded, row, here, kept)? {
                    continue;
                }
            }
            let place = span.first.plus(row);
            self.latest[slot as usize] = Latest { time: *t, place };
            if here.is_none() {
                self.replaced.push((slot, former));
            }
            if !self.fold {
                changes.replace(former, place, self.update_before);
            }
        }
        if self.fold {
            for (slot, former) in &self.replaced {
                changes.replace(*former, self.latest[*slot as usize].place, self.update_before);
            }
        }
        self.emit(&block, span, changes, out)?;
        self.live[span.first.chunk()] += self.replaced.len();
        let mut thin: Vec<usize> = vec![span.first.chunk()];
        for (_, former) in self.replaced.iter().filter(|(_, former)| *former != Place::NONE) {
            let chunk = former.chunk();
            self.live[chunk] -= 1;
            if self.live[chunk] * PACK < self.rows.length(chunk) && thin.last() != Some(&chunk) {
                thin.push(chunk);
            }
        }
        self.pack(thin)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        if self.spill.is_open() {
            // All of it goes into files.
            self.spill.begin_snapshot();
            return Ok(Vec::new());
        }
        let mut tables = Vec::new();
        for chunk in (0..self.rows.chunks()).filter(|chunk| self.live[*chunk] > 0) {
            let mask: BooleanArray = self.current(chunk).map(Some).collect();
            let mine = self.owners[chunk].iter().zip(self.current(chunk)).filter(|(_, current)| *current);
            let hashes: Vec<u64> = mine.map(|(slot, _)| self.common.table.hash(*slot)).collect();
            let mut columns = self.rows.arrays(chunk)?;
            if hashes.len() < mask.len() {
                columns = columns.iter().map(|c| filter(c, &mask)).collect::<Result<_, _>>()?;
            }
            tables.push(StateTable::keyed(format!("rows {chunk}"), hashes, columns)?);
        }
        Ok(tables)
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            let block = self.common.spec.block(table.columns())?;
            let Some(times) = TimeColumn::of(block.column(self.common.time))?.all_ms() else { return Err(self.common.null_time()) };
            let span = self.take_in(&block, true)?;
            for (row, (slot, time)) in self.common.scratch.slots.iter().zip(times.iter()).enumerate() {
                self.latest[*slot as usize] = Latest { time: *time, place: span.first.plus(row) };
            }
            self.live[span.first.chunk()] += span.rows;
        }
        Ok(())
    }

    fn spills(&self) -> bool {
        self.spills
    }

    fn spill_to(&mut self, place: SpillPlace) {
        self.spill.place(place);
    }

    fn snapshot_files(&mut self) -> Result<SnapshotFiles, OperatorError> {
        self.with_spill(|spill, this| spill.write_snapshot(this))
    }

    fn restore_files(&mut self, runs: Vec<StateRuns>) -> Result<(), OperatorError> {
        self.with_spill(|spill, this| spill.restore_files(runs, this))
    }

    fn disk_stats(&self) -> Option<DiskStats> {
        self.spill.stats()
    }

    fn stats(&self) -> OperatorStats {
        let entries = self.spill.entries().unwrap_or(self.common.table.len() as u64);
        let memory = self.memory().all + self.spill.memory();
        OperatorStats { entries, memory: memory as u64, late_rows: 0, ..OperatorStats::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::{RankFunction, Ties};
    use arrow::array::{AsArray, Int64Array, TimestampMillisecondArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit, TimestampMillisecondType};
    use datafusion_physical_expr::expressions::Column;

    fn operator() -> KeepLast {
        let input = Arc::new(Schema::new(vec![
            Field::new("k", DataType::Int64, false),
            Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), false),
        ]));
        let spec = RankSpec {
            keys: vec![Arc::new(Column::new("k", 0))],
            key_types: vec![DataType::Int64],
            order: Vec::new(),
            order_types: Vec::new(),
            function: RankFunction::RowNumber,
            from: 1,
            to: 1,
            ties: Ties::Last,
            retracts: false,
            rank_column: false,
            input: input.clone(),
            schema: input,
        };
        KeepLast::new(spec, 1, true, false).unwrap()
    }

    fn block(operator: &KeepLast, rows: impl Iterator<Item = (i64, i64)>) -> Block {
        let (keys, times): (Vec<i64>, Vec<i64>) = rows.unzip();
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(keys)), Arc::new(TimestampMillisecondArray::from(times))];
        Block::inserts(RecordBatch::try_new(operator.common.spec.input.clone(), columns).unwrap(), 0)
    }

    /// A few keys stand still in blocks whose other keys are updated again and again: the memory follows the
    /// keys and not the rows that came.
    #[test]
    fn chunks_out_of_date_are_given_up() {
        for size in [1, 100, 5000] {
            let mut operator = operator();
            let mut out = Output::default();
            for round in 0..200_000 / size {
                let rows = (0..size).map(|i| (if i == 0 && round % 10 == 0 { -round } else { i % 50 }, round));
                let block = block(&operator, rows);
                operator.on_block(0, block, &mut out).unwrap();
                out.blocks.clear();
            }
            let keys = operator.stats().entries as usize;
            assert!(operator.rows.rows() <= PACK * keys + 2 * 1024, "{} rows for {keys} keys, blocks of {size}", operator.rows.rows());
            assert_eq!(operator.live.iter().sum::<usize>(), keys);
            let saved: usize = operator.snapshot().unwrap().iter().map(|t| t.batch.num_rows()).sum();
            assert_eq!(saved, keys);
            // The rows that stood still are there.
            let places: Vec<Place> = operator.latest.iter().map(|l| l.place).collect();
            let columns = operator.rows.take(&places).unwrap();
            let (kept, times) = (columns[0].as_primitive::<Int64Type>(), columns[1].as_primitive::<TimestampMillisecondType>());
            assert!(kept.values().iter().zip(times.values()).all(|(key, time)| *key >= 0 || -*key == *time));
        }
    }
}
