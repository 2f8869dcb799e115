//! Running `GROUP BY`: a changelog in or out. Groups that do not fit in memory go to the disk and come back
//! ([`crate::spill`]).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{FilterBuilder, filter, take};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use tidemill_block::{Block, RowKind};
use tidemill_state::runs::StateRuns;
use tidemill_state::{KeyTable, SlotVec, Slots, StateTable};

use crate::aggregate::AggregateCall;
use crate::aggregate::calls::Calls;
use crate::aggregate::pairs::interleaved;
use crate::map::Expr;
use crate::spill::{Memory, Resident, Spill, can_leave};
use crate::{DiskStats, Operator, OperatorError, OperatorStats, Output, SnapshotFiles, SpillPlace};

/// Groups of one table of a snapshot: few enough that their keys fit a column of texts.
const SNAPSHOT_GROUPS: usize = 1 << 18;

/// Groups without windows. Emits for each input row the change it makes (`-U`, `+U`), as Flink
/// does, or, folded, for each block the change of each group it touches.
pub struct GroupAggregate {
    keys: Vec<Expr>,
    schema: SchemaRef,
    fold: bool,
    update_before: bool,
    groups: Groups,
    spill: Spill,
    /// Whether groups can go to the disk.
    spills: bool,
    scratch: Slots,
    block: u64,
    /// Rows to be taken back from groups that have none.
    unknown: u64,
}

/// The groups by slot.
struct Groups {
    table: KeyTable,
    key_columns: usize,
    /// Rows in each group; a group without rows is deleted.
    counts: SlotVec<i64>,
    calls: Calls,
    /// For folding: the block in which a slot was last touched.
    touched: Option<SlotVec<u64>>,
}

impl Groups {
    fn resize(&mut self) {
        let slots = self.table.capacity();
        if slots > self.counts.len() {
            self.counts.resize(slots, 0);
            self.calls.resize(slots);
            if let Some(touched) = &mut self.touched {
                touched.resize(slots, 0);
            }
        }
    }
}

impl Resident for Groups {
    fn table(&self) -> &KeyTable {
        &self.table
    }

    fn key_columns(&self) -> usize {
        self.key_columns
    }

    fn intern(&mut self, keys: &[ArrayRef], rows: usize, into: &mut Slots) -> Result<(), OperatorError> {
        self.table.intern(keys, rows, into)?;
        self.resize();
        Ok(())
    }

    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let mut columns = self.table.keys(slots)?;
        columns.push(Arc::new(slots.iter().map(|s| self.counts[*s as usize]).collect::<Int64Array>()));
        columns.extend(self.calls.save(slots)?);
        Ok(columns)
    }

    fn load(&mut self, slots: &[u32], state: &[ArrayRef]) -> Result<(), OperatorError> {
        let counts = state[0].as_primitive::<Int64Type>();
        slots.iter().zip(counts.values()).for_each(|(s, c)| self.counts[*s as usize] += c);
        self.calls.load(slots, &state[1..])
    }

    fn clear(&mut self, slots: &[u32]) -> Result<(), OperatorError> {
        self.calls.clear(slots);
        slots.iter().for_each(|slot| self.counts[*slot as usize] = 0);
        Ok(())
    }

    fn forget(&mut self, slots: &[u32]) -> Result<(), OperatorError> {
        self.clear(slots)?;
        slots.iter().for_each(|slot| self.table.remove(*slot));
        Ok(())
    }

    fn is_empty(&self, slot: u32) -> bool {
        self.counts[slot as usize] == 0
    }

    fn memory(&self) -> Memory {
        let touched = self.touched.as_ref().map_or(0, SlotVec::memory);
        let beside = self.counts.memory() + touched + self.calls.memory();
        Memory { all: self.table.memory() + beside, by_slot: self.table.memory_by_slot() + beside - self.calls.heap() }
    }

    fn scans(&self) -> bool {
        self.calls.scans()
    }
}

/// What became of groups, a row for each.
struct Changes {
    keys: Vec<ArrayRef>,
    /// The results before and after, one behind the other.
    pairs: Vec<ArrayRef>,
    /// Whether a group had rows before.
    had: Vec<bool>,
    /// Whether it has any now.
    has: Vec<bool>,
    /// Whether a result changed.
    changed: Vec<bool>,
}

impl Changes {
    fn emit(&self, schema: &SchemaRef, update_before: bool, arrival_ns: u64, out: &mut Output) -> Result<(), OperatorError> {
        let rows = self.had.len();
        let mut kinds = Vec::with_capacity(rows * 2);
        let mut origins: Vec<u32> = Vec::with_capacity(rows * 2);
        let mut picked = vec![[false; 2]; rows];
        for (row, picked) in picked.iter_mut().enumerate() {
            match (self.had[row], self.has[row]) {
                (true, true) if self.changed[row] => {
                    if update_before {
                        kinds.push(RowKind::UpdateBefore);
                        origins.push(row as u32);
                    }
                    kinds.push(RowKind::UpdateAfter);
                    *picked = [update_before, true];
                }
                (false, true) => {
                    kinds.push(RowKind::Insert);
                    *picked = [false, true];
                }
                (true, false) => {
                    kinds.push(RowKind::Delete);
                    *picked = [true, false];
                }
                _ => continue,
            }
            origins.push(row as u32);
        }
        if kinds.is_empty() {
            return Ok(());
        }
        let mut columns: Vec<ArrayRef> = if origins.iter().enumerate().all(|(at, row)| at == *row as usize) {
            self.keys.iter().map(|k| k.slice(0, origins.len())).collect()
        } else {
            let origins = UInt32Array::from(origins);
            self.keys.iter().map(|k| take(k, &origins, None)).collect::<Result<_, _>>()?
        };
        if kinds.len() == rows * 2 {
            columns.extend(self.pairs.iter().cloned());
        } else {
            let mut picks = FilterBuilder::new(&BooleanArray::from(picked.as_flattened().to_vec()));
            if self.pairs.len() > 1 {
                picks = picks.optimize();
            }
            let picks = picks.build();
            for pairs in &self.pairs {
                columns.push(picks.filter(pairs)?);
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(kinds.len()));
        let batch = RecordBatch::try_new_with_options(schema.clone(), columns, &options)?;
        if kinds.iter().all(|k| *k == RowKind::Insert) {
            out.emit(Block::inserts(batch, arrival_ns));
        } else {
            out.emit(Block::changelog(batch, kinds.into(), arrival_ns));
        }
        Ok(())
    }
}

impl GroupAggregate {
    /// Groups by `keys`; the output has the keys, then the calls. `retracts`: the input is a
    /// changelog. `fold`: one change a group and block. `update_before`: `-U` rows are wanted.
    ///
    /// # Errors
    /// A call that cannot retract; a key type that cannot be a key.
    pub fn new(
        keys: Vec<Expr>,
        key_types: Vec<DataType>,
        calls: Vec<AggregateCall>,
        schema: SchemaRef,
        retracts: bool,
        fold: bool,
        update_before: bool,
    ) -> Result<Self, OperatorError> {
        let groups = Groups {
            table: KeyTable::new(key_types)?,
            key_columns: keys.len(),
            counts: SlotVec::new(),
            calls: Calls::new(&calls, retracts)?,
            touched: fold.then(SlotVec::new),
        };
        let (spill, scratch) = (Spill::default(), Slots::default());
        let mut this = GroupAggregate { keys, schema, fold, update_before, groups, spill, spills: false, scratch, block: 0, unknown: 0 };
        this.spills = !this.keys.is_empty() && this.groups.calls.spills() && can_leave(&this.groups.save(&[])?);
        Ok(this)
    }

    fn each_row(&mut self, block: &Block, slots: &[u32], keys: Vec<ArrayRef>) -> Result<Changes, OperatorError> {
        let mut changed = vec![false; slots.len()];
        let pairs = self.groups.calls.update_pairs(block, slots, &mut changed)?;
        let (mut had, mut has) = (Vec::with_capacity(slots.len()), Vec::with_capacity(slots.len()));
        for (row, slot) in slots.iter().enumerate() {
            let count = &mut self.groups.counts[*slot as usize];
            had.push(*count > 0);
            *count += block.kind(row).sign();
            has.push(*count > 0);
        }
        Ok(Changes { keys, pairs, had, has, changed })
    }

    /// Which rows of a changelog have a group to go into or to be taken out of; none if all have. A row that is to be
    /// taken back from a group without rows was never seen: it must not leave a group that owes one.
    fn known(&mut self, block: &Block) -> Option<BooleanArray> {
        let kinds = block.kinds.as_deref()?;
        let counts = &mut self.groups.counts;
        let slots = &self.scratch.slots;
        let mut known: Option<Vec<bool>> = None;
        for (row, slot) in slots.iter().enumerate() {
            let count = &mut counts[*slot as usize];
            if *count == 0 && !kinds[row].adds() {
                known.get_or_insert_with(|| vec![true; slots.len()])[row] = false;
            } else {
                *count += kinds[row].sign();
            }
        }
        // The counts as they were: those who compute the changes move them again.
        let passes = |row: usize| known.as_ref().is_none_or(|known| known[row]);
        for (row, slot) in slots.iter().enumerate().filter(|(row, _)| passes(*row)) {
            counts[*slot as usize] -= kinds[row].sign();
        }
        known.map(BooleanArray::from)
    }

    /// What the rows of a block change, in groups `slots`.
    fn changes(&mut self, block: &Block, slots: &[u32], keys: Vec<ArrayRef>) -> Result<Changes, OperatorError> {
        if self.fold { self.folded(block, slots) } else { self.each_row(block, slots, keys) }
    }

    fn folded(&mut self, block: &Block, of: &[u32]) -> Result<Changes, OperatorError> {
        self.block += 1;
        let Groups { table, counts, calls, touched, .. } = &mut self.groups;
        let touched = touched.as_mut().expect("kept for folding");
        let mut slots = Vec::new();
        for slot in of {
            if std::mem::replace(&mut touched[*slot as usize], self.block) != self.block {
                slots.push(*slot);
            }
        }
        let rows = |counts: &[i64]| -> Vec<bool> { slots.iter().map(|s| counts[*s as usize] > 0).collect() };
        let had = rows(counts);
        let before = calls.values(&slots)?;
        calls.update(block, of)?;
        let after = calls.values(&slots)?;
        for (row, slot) in of.iter().enumerate() {
            counts[*slot as usize] += block.kind(row).sign();
        }
        let mut changed = vec![false; slots.len()];
        let pairs =
            before.iter().zip(&after).map(|(before, after)| interleaved(before, after, &mut changed)).collect::<Result<Vec<_>, _>>()?;
        Ok(Changes { keys: table.keys(&slots)?, pairs, had, has: rows(counts), changed })
    }

    /// What keys take beside their slots.
    #[cfg(test)]
    pub(crate) fn bytes_of_keys(&self) -> usize {
        let memory = self.groups.memory();
        memory.all - memory.by_slot
    }
}

impl Operator for GroupAggregate {
    fn name(&self) -> &'static str {
        "GroupAggregate"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        let rows = block.rows();
        let keys = self.keys.iter().map(|k| Ok(k.evaluate(&block.batch)?.into_array(rows)?)).collect::<Result<Vec<_>, OperatorError>>()?;
        if self.spill.is_crowded(self.groups.table.len(), rows) {
            self.spill.make_room(rows, &mut self.groups)?;
        }
        self.groups.intern(&keys, rows, &mut self.scratch)?;
        if self.spill.is_open() {
            self.spill.enter(&self.scratch, &mut self.groups)?;
        }
        let known = self.known(&block);
        let slots = std::mem::take(&mut self.scratch.slots);
        let changes = match &known {
            None => self.changes(&block, &slots, keys),
            Some(known) => {
                self.unknown += known.false_count() as u64;
                let keys = keys.iter().map(|k| filter(k, known)).collect::<Result<Vec<_>, _>>()?;
                let slots: Vec<u32> = slots.iter().zip(known.values()).filter(|(_, known)| *known).map(|(slot, _)| *slot).collect();
                self.changes(&block.filter(known)?, &slots, keys)
            }
        };
        self.scratch.slots = slots;
        changes?.emit(&self.schema, self.update_before, block.arrival_ns, out)?;
        if block.kinds.is_some() {
            let mut gone: Vec<u32> = self.scratch.slots.iter().copied().filter(|s| self.groups.counts[*s as usize] == 0).collect();
            gone.sort_unstable();
            gone.dedup();
            self.spill.remove(&gone, &mut self.groups)?;
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        if self.spill.is_open() {
            // All of it goes into files.
            self.spill.begin_snapshot();
            return Ok(Vec::new());
        }
        let slots = self.groups.table.slots();
        let table = |(number, slots): (usize, &[u32])| -> Result<StateTable, OperatorError> {
            let hashes = slots.iter().map(|s| self.groups.table.hash(*s)).collect();
            let name = if number == 0 { "groups".to_string() } else { format!("groups {number}") };
            Ok(StateTable::keyed(name, hashes, self.groups.save(slots)?)?)
        };
        // A table without groups says that there were none, and not that the operator is new.
        let pieces = if slots.is_empty() { vec![slots.as_slice()] } else { slots.chunks(SNAPSHOT_GROUPS).collect() };
        pieces.into_iter().enumerate().map(table).collect()
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        self.spill.restore(tables, &mut self.groups, &mut self.scratch)
    }

    fn spills(&self) -> bool {
        self.spills
    }

    fn spill_to(&mut self, place: SpillPlace) {
        self.spill.place(place);
    }

    fn snapshot_files(&mut self) -> Result<SnapshotFiles, OperatorError> {
        self.spill.write_snapshot(&mut self.groups)
    }

    fn restore_files(&mut self, runs: Vec<StateRuns>) -> Result<(), OperatorError> {
        self.spill.restore_files(runs, &mut self.groups)
    }

    fn disk_stats(&self) -> Option<DiskStats> {
        self.spill.stats()
    }

    fn stats(&self) -> OperatorStats {
        let entries = self.spill.entries().unwrap_or(self.groups.table.len() as u64);
        let memory = self.groups.memory().all + self.spill.memory();
        OperatorStats { entries, memory: memory as u64, unknown_rows: self.unknown, ..OperatorStats::default() }
    }
}
