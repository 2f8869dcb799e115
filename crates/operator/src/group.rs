//! Running `GROUP BY`: a changelog in or out.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{FilterBuilder, take};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use tidemill_block::{Block, RowKind};
use tidemill_state::{KeyTable, Slots, StateTable};

use crate::aggregate::AggregateCall;
use crate::aggregate::calls::Calls;
use crate::aggregate::pairs::interleaved;
use crate::map::Expr;
use crate::{Operator, OperatorError, OperatorStats, Output};

/// Groups without windows. Emits for each input row the change it makes (`-U`, `+U`), as Flink
/// does, or, folded, for each block the change of each group it touches.
pub struct GroupAggregate {
    keys: Vec<Expr>,
    schema: SchemaRef,
    fold: bool,
    update_before: bool,
    table: KeyTable,
    /// Rows in each group; a group without rows is deleted.
    counts: Vec<i64>,
    calls: Calls,
    scratch: Slots,
    /// For folding: the block in which a slot was last touched.
    touched: Vec<u64>,
    block: u64,
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
        Ok(GroupAggregate {
            keys,
            schema,
            fold,
            update_before,
            table: KeyTable::new(key_types)?,
            counts: Vec::new(),
            calls: Calls::new(&calls, retracts)?,
            scratch: Slots::default(),
            touched: Vec::new(),
            block: 0,
        })
    }

    fn resize(&mut self) {
        let slots = self.table.capacity();
        if slots > self.counts.len() {
            self.counts.resize(slots, 0);
            self.calls.resize(slots);
            if self.fold {
                self.touched.resize(slots, 0);
            }
        }
    }

    fn each_row(&mut self, block: &Block, keys: Vec<ArrayRef>) -> Result<Changes, OperatorError> {
        let slots = &self.scratch.slots;
        let mut changed = vec![false; slots.len()];
        let pairs = self.calls.update_pairs(block, slots, &mut changed)?;
        let (mut had, mut has) = (Vec::with_capacity(slots.len()), Vec::with_capacity(slots.len()));
        for (row, slot) in slots.iter().enumerate() {
            let count = &mut self.counts[*slot as usize];
            had.push(*count > 0);
            *count += block.kind(row).sign();
            has.push(*count > 0);
        }
        Ok(Changes { keys, pairs, had, has, changed })
    }

    fn folded(&mut self, block: &Block) -> Result<Changes, OperatorError> {
        self.block += 1;
        let mut slots = Vec::new();
        for slot in &self.scratch.slots {
            if self.touched[*slot as usize] != self.block {
                self.touched[*slot as usize] = self.block;
                slots.push(*slot);
            }
        }
        let rows = |counts: &[i64]| -> Vec<bool> { slots.iter().map(|s| counts[*s as usize] > 0).collect() };
        let had = rows(self.counts.as_slice());
        let before = self.calls.values(&slots)?;
        self.calls.update(block, &self.scratch.slots)?;
        let after = self.calls.values(&slots)?;
        for (row, slot) in self.scratch.slots.iter().enumerate() {
            self.counts[*slot as usize] += block.kind(row).sign();
        }
        let mut changed = vec![false; slots.len()];
        let pairs =
            before.iter().zip(&after).map(|(before, after)| interleaved(before, after, &mut changed)).collect::<Result<Vec<_>, _>>()?;
        Ok(Changes { keys: self.table.keys(&slots)?, pairs, had, has: rows(self.counts.as_slice()), changed })
    }
}

impl Operator for GroupAggregate {
    fn name(&self) -> &'static str {
        "GroupAggregate"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        let rows = block.rows();
        let keys = self.keys.iter().map(|k| Ok(k.evaluate(&block.batch)?.into_array(rows)?)).collect::<Result<Vec<_>, OperatorError>>()?;
        self.table.intern(&keys, rows, &mut self.scratch)?;
        self.resize();
        let changes = if self.fold { self.folded(&block)? } else { self.each_row(&block, keys)? };
        changes.emit(&self.schema, self.update_before, block.arrival_ns, out)?;
        if block.kinds.is_some() {
            let mut gone: Vec<u32> = self.scratch.slots.iter().copied().filter(|s| self.counts[*s as usize] == 0).collect();
            gone.sort_unstable();
            gone.dedup();
            self.calls.clear(&gone);
            gone.into_iter().for_each(|s| self.table.remove(s));
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let slots = self.table.slots();
        let mut columns = self.table.keys(&slots)?;
        columns.push(Arc::new(slots.iter().map(|s| self.counts[*s as usize]).collect::<Int64Array>()));
        columns.extend(self.calls.save(&slots)?);
        let hashes = slots.iter().map(|s| self.table.hash(*s)).collect();
        Ok(vec![StateTable::keyed("groups", hashes, columns)?])
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            let rows = table.batch.num_rows();
            let (keys, rest) = table.columns().split_at(self.keys.len());
            let mut slots = Slots::default();
            self.table.intern(keys, rows, &mut slots)?;
            self.resize();
            let counts = rest[0].as_primitive::<Int64Type>();
            slots.slots.iter().zip(counts.values()).for_each(|(s, c)| self.counts[*s as usize] += c);
            self.calls.load(&slots.slots, &rest[1..])?;
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let memory = self.table.memory() + self.counts.capacity() * 8 + self.touched.capacity() * 8 + self.calls.memory();
        OperatorStats { entries: self.table.len() as u64, memory: memory as u64, late_rows: 0 }
    }
}
