//! Running `GROUP BY`: a changelog in or out.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{interleave, take};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use tidemill_block::{Block, RowKind};
use tidemill_state::{KeyTable, Slots, StateTable};

use crate::aggregate::{Accumulator, AggregateCall, Rows, accumulator};
use crate::map::Expr;
use crate::{Operator, OperatorError, OperatorStats, Output};

/// Groups without windows. Emits for each input row the change it makes (`-U`, `+U`), as Flink
/// does, or, folded, for each block the change of each group it touches.
pub struct GroupAggregate {
    keys: Vec<Expr>,
    calls: Vec<AggregateCall>,
    schema: SchemaRef,
    fold: bool,
    update_before: bool,
    table: KeyTable,
    /// Rows in each group; a group without rows is deleted.
    counts: Vec<i64>,
    accumulators: Vec<Box<dyn Accumulator>>,
    scratch: Slots,
    /// For folding: the block in which a slot was last touched.
    touched: Vec<u64>,
    block: u64,
}

/// How a group changed.
struct Change {
    /// Row of the "before" and "after" columns.
    at: u32,
    had_rows: bool,
    has_rows: bool,
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
        let accumulators = calls.iter().map(|c| accumulator(c, retracts)).collect::<Result<Vec<_>, _>>()?;
        Ok(GroupAggregate {
            keys,
            calls,
            schema,
            fold,
            update_before,
            table: KeyTable::new(key_types)?,
            counts: Vec::new(),
            accumulators,
            scratch: Slots::default(),
            touched: Vec::new(),
            block: 0,
        })
    }

    fn resize(&mut self) {
        let slots = self.table.capacity();
        self.counts.resize(slots, 0);
        self.touched.resize(slots, 0);
        self.accumulators.iter_mut().for_each(|a| a.resize(slots));
    }

    /// Emits changes: `before` and `after` are the results, `keys` the keys, a row for each change's
    /// `at`.
    fn emit(
        &self,
        changes: &[Change],
        keys: &[ArrayRef],
        before: &[ArrayRef],
        after: &[ArrayRef],
        arrival_ns: u64,
        out: &mut Output,
    ) -> Result<(), OperatorError> {
        let same = unchanged(before, after)?;
        let mut kinds = Vec::with_capacity(changes.len() * 2);
        let mut picks: Vec<(usize, usize)> = Vec::with_capacity(changes.len() * 2);
        let mut push = |kind, side, at: u32| {
            kinds.push(kind);
            picks.push((side, at as usize));
        };
        for change in changes {
            match (change.had_rows, change.has_rows) {
                (false, true) => push(RowKind::Insert, 1, change.at),
                (true, false) => push(RowKind::Delete, 0, change.at),
                (true, true) if !same.as_ref().is_none_or(|s| s.value(change.at as usize)) => {
                    if self.update_before {
                        push(RowKind::UpdateBefore, 0, change.at);
                    }
                    push(RowKind::UpdateAfter, 1, change.at);
                }
                _ => {}
            }
        }
        if kinds.is_empty() {
            return Ok(());
        }
        let rows: UInt32Array = picks.iter().map(|(_, at)| *at as u32).collect();
        let mut columns = keys.iter().map(|k| take(k, &rows, None)).collect::<Result<Vec<_>, _>>()?;
        for (before, after) in before.iter().zip(after) {
            columns.push(interleave(&[before.as_ref(), after.as_ref()], &picks)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(kinds.len()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        if kinds.iter().all(|k| *k == RowKind::Insert) {
            out.emit(Block::inserts(batch, arrival_ns));
        } else {
            out.emit(Block::changelog(batch, kinds.into(), arrival_ns));
        }
        Ok(())
    }

    fn each_row(&mut self, block: &Block, keys: &[ArrayRef], out: &mut Output) -> Result<(), OperatorError> {
        let kinds = block.kinds.as_deref();
        let mut before = Vec::with_capacity(self.calls.len());
        let mut after = Vec::with_capacity(self.calls.len());
        for (call, accumulator) in self.calls.iter().zip(&mut self.accumulators) {
            let (values, mask) = call.evaluate(block)?;
            let (old, new) = accumulator.update_each(&Rows { slots: &self.scratch.slots, values: &values, kinds, mask: mask.as_ref() })?;
            before.push(old);
            after.push(new);
        }
        let mut changes = Vec::with_capacity(block.rows());
        for (row, slot) in self.scratch.slots.iter().enumerate() {
            let count = &mut self.counts[*slot as usize];
            let had_rows = *count > 0;
            *count += block.kind(row).sign();
            changes.push(Change { at: row as u32, had_rows, has_rows: *count > 0 });
        }
        self.emit(&changes, keys, &before, &after, block.arrival_ns, out)
    }

    fn folded(&mut self, block: &Block, out: &mut Output) -> Result<(), OperatorError> {
        self.block += 1;
        let mut slots = Vec::new();
        for slot in &self.scratch.slots {
            if self.touched[*slot as usize] != self.block {
                self.touched[*slot as usize] = self.block;
                slots.push(*slot);
            }
        }
        let had: Vec<bool> = slots.iter().map(|s| self.counts[*s as usize] > 0).collect();
        let mut before = Vec::with_capacity(self.calls.len());
        let mut after = Vec::with_capacity(self.calls.len());
        for (call, accumulator) in self.calls.iter().zip(&mut self.accumulators) {
            let (values, mask) = call.evaluate(block)?;
            before.push(accumulator.values(&slots)?);
            accumulator.update(&Rows {
                slots: &self.scratch.slots,
                values: &values,
                kinds: block.kinds.as_deref(),
                mask: mask.as_ref(),
            })?;
            after.push(accumulator.values(&slots)?);
        }
        for (row, slot) in self.scratch.slots.iter().enumerate() {
            self.counts[*slot as usize] += block.kind(row).sign();
        }
        let changes: Vec<Change> = slots
            .iter()
            .zip(had)
            .enumerate()
            .map(|(at, (slot, had_rows))| Change { at: at as u32, had_rows, has_rows: self.counts[*slot as usize] > 0 })
            .collect();
        let keys = self.table.keys(&slots)?;
        self.emit(&changes, &keys, &before, &after, block.arrival_ns, out)
    }
}

/// For each row whether all results are the same before and after; `None` if there is no result
/// column, so that nothing can have changed.
fn unchanged(before: &[ArrayRef], after: &[ArrayRef]) -> Result<Option<BooleanArray>, OperatorError> {
    let mut all: Option<BooleanArray> = None;
    for (old, new) in before.iter().zip(after) {
        let same = match arrow::compute::kernels::cmp::not_distinct(old, new) {
            Ok(same) => same,
            // Types without a comparison kernel (lists, maps) are compared value by value.
            Err(_) => (0..old.len()).map(|i| Some(old.slice(i, 1) == new.slice(i, 1))).collect(),
        };
        all = Some(match all {
            None => same,
            Some(others) => arrow::compute::and(&others, &same)?,
        });
    }
    Ok(all)
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
        if self.fold {
            self.folded(&block, out)?;
        } else {
            self.each_row(&block, &keys, out)?;
        }
        if block.kinds.is_some() {
            let mut gone: Vec<u32> = self.scratch.slots.iter().copied().filter(|s| self.counts[*s as usize] == 0).collect();
            gone.sort_unstable();
            gone.dedup();
            self.accumulators.iter_mut().for_each(|a| a.clear(&gone));
            gone.into_iter().for_each(|s| self.table.remove(s));
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let slots = self.table.slots();
        let mut columns = self.table.keys(&slots)?;
        columns.push(Arc::new(slots.iter().map(|s| self.counts[*s as usize]).collect::<Int64Array>()));
        for accumulator in &mut self.accumulators {
            columns.extend(accumulator.save(&slots)?);
        }
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
            let mut rest = &rest[1..];
            for accumulator in &mut self.accumulators {
                let width = accumulator.save(&[])?.len();
                accumulator.load(&slots.slots, &rest[..width])?;
                rest = &rest[width..];
            }
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let memory = self.table.memory() + self.counts.capacity() * 16 + self.accumulators.iter().map(|a| a.memory()).sum::<usize>();
        OperatorStats { entries: self.table.len() as u64, memory: memory as u64, late_rows: 0 }
    }
}
