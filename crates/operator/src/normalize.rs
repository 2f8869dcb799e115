//! Normalising: the newest row of each key, as upserts bring it, becomes a changelog that says all: `+I` for
//! a new key, `-U` with the former row and `+U` for another one, `-D` with the whole row for one that is gone.
//!
//! A deletion of a key that is not known is dropped, and so is a row that changes nothing: both are common
//! where a log is read again from its beginning. Rows that do not fit in memory go to the disk and come back
//! ([`crate::spill`]). What does not live here: the order of rows of a key, which the source must keep.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{FilterBuilder, interleave, take};
use arrow::datatypes::{DataType, SchemaRef};
use tidemill_block::{Block, RowKind};
use tidemill_state::runs::StateRuns;
use tidemill_state::{KeyTable, SlotVec, Slots, StateTable};

use crate::aggregate::pairs::interleaved;
use crate::rank::store::RowStore;
use crate::spill::{Memory, Resident, Spill, can_leave};
use crate::{DiskStats, Operator, OperatorError, OperatorStats, Output, SnapshotFiles, SpillPlace};

/// Rows of one table of a snapshot: few enough that their texts fit a column.
const SNAPSHOT_ROWS: usize = 1 << 18;

/// A slot that no row of this block was of.
const UNTOUCHED: u32 = u32::MAX;
/// A slot whose key has no row now.
const GONE: u32 = u32::MAX - 1;
/// The row was there before this block; the rest of the number says which of those it is.
const OLD: u32 = 1 << 31;

/// Makes a full changelog of upserts.
pub struct Normalize {
    /// The columns that are the key.
    keys: Vec<usize>,
    /// The others.
    rest: Vec<usize>,
    schema: SchemaRef,
    rows: Kept,
    spill: Spill,
    /// Whether rows can go to the disk.
    spills: bool,
    scratch: Slots,
    /// By slot, within a block: the row that the key stands at, [`OLD`] with an index, [`GONE`] or
    /// [`UNTOUCHED`].
    at: Vec<u32>,
}

/// The newest rows by slot.
struct Kept {
    table: KeyTable,
    key_columns: usize,
    /// The columns that are no key.
    store: RowStore,
    /// Whether the key has a row.
    present: SlotVec<bool>,
}

impl Kept {
    fn put(&mut self, slots: &[u32], rows: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        slots.iter().for_each(|slot| self.present[*slot as usize] = true);
        self.store.put(slots, rows, columns)
    }
}

impl Resident for Kept {
    fn table(&self) -> &KeyTable {
        &self.table
    }

    fn key_columns(&self) -> usize {
        self.key_columns
    }

    fn intern(&mut self, keys: &[ArrayRef], rows: usize, into: &mut Slots) -> Result<(), OperatorError> {
        self.table.intern(keys, rows, into)?;
        self.present.resize(self.table.capacity(), false);
        Ok(())
    }

    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let present: Vec<bool> = slots.iter().map(|slot| self.present[*slot as usize]).collect();
        let ids: Vec<u32> = slots.iter().zip(&present).filter(|(_, present)| **present).map(|(slot, _)| *slot).collect();
        let mut rows = self.store.get(&ids)?;
        if ids.len() < slots.len() {
            let mut next = 0..;
            let places: UInt32Array = present.iter().map(|present| present.then(|| next.next().expect("without end"))).collect();
            rows = rows.iter().map(|c| take(c, &places, None)).collect::<Result<_, _>>()?;
        }
        let mut columns = self.table.keys(slots)?;
        columns.push(Arc::new(BooleanArray::from(present)));
        columns.extend(rows);
        Ok(columns)
    }

    fn load(&mut self, slots: &[u32], state: &[ArrayRef]) -> Result<(), OperatorError> {
        let present = state[0].as_boolean();
        let rows: Vec<u32> = (0..slots.len() as u32).filter(|row| present.value(*row as usize)).collect();
        let slots: Vec<u32> = rows.iter().map(|row| slots[*row as usize]).collect();
        self.put(&slots, &rows, &state[1..])
    }

    fn clear(&mut self, slots: &[u32]) -> Result<(), OperatorError> {
        slots.iter().for_each(|slot| self.present[*slot as usize] = false);
        Ok(())
    }

    fn forget(&mut self, slots: &[u32]) -> Result<(), OperatorError> {
        self.clear(slots)?;
        slots.iter().for_each(|slot| self.table.remove(*slot));
        Ok(())
    }

    fn is_empty(&self, slot: u32) -> bool {
        !self.present[slot as usize]
    }

    fn memory(&self) -> Memory {
        let beside = self.store.memory() + self.present.memory();
        Memory { all: self.table.memory() + beside, by_slot: self.table.memory_by_slot() + beside }
    }
}

/// What the rows of a block change, one after the other.
#[derive(Default)]
struct Changes {
    /// The rows that change something, or may.
    rows: Vec<u32>,
    /// The row before: of those that were there (0) or of the block (1); the row itself if there was none.
    before: Vec<(usize, usize)>,
    /// Whether there was a row before, and whether there is one now.
    kinds: Vec<(bool, bool)>,
    /// The slots of the keys in the block, each once.
    touched: Vec<u32>,
    /// Of these the ones that had a row.
    old: Vec<u32>,
}

impl Normalize {
    /// For rows of `input`, whose key is in the columns `keys`. What is emitted has the schema `schema`: the
    /// same columns, where those that are no key may be NOT NULL although a deletion lacks them.
    ///
    /// # Errors
    /// A type that cannot be a key or kept.
    pub fn new(keys: Vec<usize>, input: &SchemaRef, schema: SchemaRef) -> Result<Self, OperatorError> {
        let type_of = |column: &usize| input.field(*column).data_type().clone();
        let rest: Vec<usize> = (0..input.fields().len()).filter(|column| !keys.contains(column)).collect();
        let types: Vec<DataType> = rest.iter().map(type_of).collect();
        let rows = Kept {
            table: KeyTable::new(keys.iter().map(type_of).collect())?,
            key_columns: keys.len(),
            store: RowStore::new(&types)?,
            present: SlotVec::new(),
        };
        let (spill, scratch) = (Spill::default(), Slots::default());
        let mut this = Normalize { keys, rest, schema, rows, spill, spills: false, scratch, at: Vec::new() };
        this.spills = !this.keys.is_empty() && can_leave(&this.rows.save(&[])?);
        Ok(this)
    }

    /// Follows the rows of a block, whose keys were entered last.
    fn follow(&mut self, block: &Block) -> Changes {
        self.at.resize(self.rows.table.capacity(), UNTOUCHED);
        let mut changes = Changes::default();
        for (row, slot) in self.scratch.slots.iter().enumerate() {
            let at = &mut self.at[*slot as usize];
            if *at == UNTOUCHED {
                changes.touched.push(*slot);
                *at = GONE;
                if self.rows.present[*slot as usize] {
                    *at = OLD | changes.old.len() as u32;
                    changes.old.push(*slot);
                }
            }
            let kind = block.kind(row);
            let had = *at != GONE;
            // Without a former row there is nothing to delete. What an update replaces is known here.
            if kind == RowKind::UpdateBefore || (kind == RowKind::Delete && !had) {
                continue;
            }
            changes.rows.push(row as u32);
            changes.kinds.push((had, kind.adds()));
            changes.before.push(match *at {
                GONE => (1, row),
                at if at & OLD != 0 => (0, (at & !OLD) as usize),
                at => (1, at as usize),
            });
            *at = if kind.adds() { row as u32 } else { GONE };
        }
        changes
    }

    fn emit(&self, block: &Block, rest: &[ArrayRef], changes: &Changes, out: &mut Output) -> Result<(), OperatorError> {
        if changes.rows.is_empty() {
            return Ok(());
        }
        if changes.kinds.iter().all(|(had, _)| !had) {
            let rows = UInt32Array::from(changes.rows.clone());
            let columns = block.batch.columns().iter().map(|c| take(c, &rows, None)).collect::<Result<_, _>>()?;
            return self.put_out(block, columns, None, &changes.rows, out);
        }
        let old = self.rows.store.get(&changes.old)?;
        let after = UInt32Array::from(changes.rows.clone());
        let mut changed = vec![false; changes.rows.len()];
        let mut pairs = Vec::with_capacity(rest.len());
        for (old, new) in old.iter().zip(rest) {
            let before = interleave(&[old.as_ref(), new.as_ref()], &changes.before)?;
            pairs.push(interleaved(&before, &take(new, &after, None)?, &mut changed)?);
        }
        let mut kinds = Vec::with_capacity(changes.rows.len() * 2);
        let mut origins: Vec<u32> = Vec::with_capacity(changes.rows.len() * 2);
        let mut picked = vec![[false; 2]; changes.rows.len()];
        for (i, row) in changes.rows.iter().enumerate() {
            let (first, second) = match changes.kinds[i] {
                (true, true) if !changed[i] => continue,
                (true, true) => (Some(RowKind::UpdateBefore), Some(RowKind::UpdateAfter)),
                (true, false) => (Some(RowKind::Delete), None),
                (false, _) => (None, Some(RowKind::Insert)),
            };
            picked[i] = [first.is_some(), second.is_some()];
            for kind in [first, second].into_iter().flatten() {
                kinds.push(kind);
                origins.push(*row);
            }
        }
        if kinds.is_empty() {
            return Ok(());
        }
        let picks = FilterBuilder::new(&BooleanArray::from(picked.as_flattened().to_vec())).optimize().build();
        let from = UInt32Array::from(origins.clone());
        let mut columns: Vec<ArrayRef> = block.batch.columns().to_vec();
        for key in &self.keys {
            columns[*key] = take(block.column(*key), &from, None)?;
        }
        for (column, pairs) in self.rest.iter().zip(&pairs) {
            columns[*column] = picks.filter(pairs)?;
        }
        self.put_out(block, columns, Some(kinds), &origins, out)
    }

    /// Emits rows, each of which comes of the row `origins` of the block.
    fn put_out(
        &self,
        block: &Block,
        columns: Vec<ArrayRef>,
        kinds: Option<Vec<RowKind>>,
        origins: &[u32],
        out: &mut Output,
    ) -> Result<(), OperatorError> {
        let options = RecordBatchOptions::new().with_row_count(Some(origins.len()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let kinds = kinds.filter(|kinds| kinds.iter().any(|k| *k != RowKind::Insert)).map(Into::into);
        let marks = block.row_watermarks.as_ref().map(|marks| origins.iter().map(|row| marks[*row as usize]).collect::<Arc<[i64]>>());
        out.emit(Block::marked(batch, kinds, block.arrival_ns, marks));
        Ok(())
    }

    /// Keeps what the keys of a block stand at behind it.
    fn settle(&mut self, rest: &[ArrayRef], changes: &Changes) -> Result<(), OperatorError> {
        let (mut slots, mut rows, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for slot in &changes.touched {
            match std::mem::replace(&mut self.at[*slot as usize], UNTOUCHED) {
                GONE => gone.push(*slot),
                at if at & OLD != 0 => {}
                row => {
                    slots.push(*slot);
                    rows.push(row);
                }
            }
        }
        self.rows.put(&slots, &rows, rest)?;
        self.spill.remove(&gone, &mut self.rows)
    }
}

impl Operator for Normalize {
    fn name(&self) -> &'static str {
        "Normalize"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        let rows = block.rows();
        if self.spill.is_crowded(self.rows.table.len(), rows) {
            self.spill.make_room(rows, &mut self.rows)?;
        }
        let keys: Vec<ArrayRef> = self.keys.iter().map(|c| block.column(*c).clone()).collect();
        self.rows.intern(&keys, rows, &mut self.scratch)?;
        if self.spill.is_open() {
            self.spill.enter(&self.scratch, &mut self.rows)?;
        }
        let rest: Vec<ArrayRef> = self.rest.iter().map(|c| block.column(*c).clone()).collect();
        let changes = self.follow(&block);
        self.emit(&block, &rest, &changes, out)?;
        self.settle(&rest, &changes)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        if self.spill.is_open() {
            // All of it goes into files.
            self.spill.begin_snapshot();
            return Ok(Vec::new());
        }
        let slots = self.rows.table.slots();
        let mut tables = Vec::new();
        for (number, slots) in slots.chunks(SNAPSHOT_ROWS).enumerate() {
            let hashes = slots.iter().map(|slot| self.rows.table.hash(*slot)).collect();
            tables.push(StateTable::keyed(format!("rows {number}"), hashes, self.rows.save(slots)?)?);
        }
        Ok(tables)
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        self.spill.restore(tables, &mut self.rows, &mut self.scratch)
    }

    fn spills(&self) -> bool {
        self.spills
    }

    fn spill_to(&mut self, place: SpillPlace) {
        self.spill.place(place);
    }

    fn snapshot_files(&mut self) -> Result<SnapshotFiles, OperatorError> {
        self.spill.write_snapshot(&mut self.rows)
    }

    fn restore_files(&mut self, runs: Vec<StateRuns>) -> Result<(), OperatorError> {
        self.spill.restore_files(runs, &mut self.rows)
    }

    fn disk_stats(&self) -> Option<DiskStats> {
        self.spill.stats()
    }

    fn stats(&self) -> OperatorStats {
        let entries = self.spill.entries().unwrap_or(self.rows.table.len() as u64);
        let memory = self.rows.memory().all + self.spill.memory() + self.at.capacity() * 4;
        OperatorStats { entries, memory: memory as u64, ..OperatorStats::default() }
    }
}

#[cfg(test)]
mod tests;
