//! `INTERSECT` and `EXCEPT` of changelogs, with and without `ALL`.
//!
//! A row is its own key, NULLs being equal; of each distinct row it is kept how often either input
//! has it. From these two numbers follows how often the result has it, so every input row changes
//! the result by one row or none.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use tidemill_block::{Block, RowKind};
use tidemill_plan::optimize::set_operation::SetKind;
use tidemill_state::{KeyTable, SlotVec, Slots, StateTable};

use super::{Expiry, stats};
use crate::{Operator, OperatorError, OperatorStats, Output, Progress};

/// A set operation on two inputs with columns of the same types.
pub struct SetOperation {
    kind: SetKind,
    schema: SchemaRef,
    table: KeyTable,
    counts: SlotVec<[i64; 2]>,
    /// Processing time (ms) of the last change; empty if nothing expires.
    touched: SlotVec<i64>,
    scratch: Slots,
    expiry: Expiry,
    unknown: u64,
}

impl SetOperation {
    /// `schema` is that of the result; rows that have not changed for `ttl_ms` (processing time) are
    /// forgotten.
    ///
    /// # Errors
    /// A column type that cannot be a key.
    pub fn new(kind: SetKind, schema: SchemaRef, ttl_ms: Option<i64>) -> Result<Self, OperatorError> {
        let types: Vec<DataType> = schema.fields().iter().map(|f| f.data_type().clone()).collect();
        Ok(SetOperation {
            kind,
            schema,
            table: KeyTable::new(types)?,
            counts: SlotVec::new(),
            touched: SlotVec::new(),
            scratch: Slots::default(),
            expiry: Expiry::new(ttl_ms),
            unknown: 0,
        })
    }

    fn resize(&mut self) {
        let slots = self.table.capacity();
        self.counts.resize(slots, [0; 2]);
        if self.expiry.ttl_ms.is_some() {
            self.touched.resize(slots, 0);
        }
    }

    fn expire(&mut self, now: i64) {
        if let Some(before) = self.expiry.due(now) {
            for slot in self.table.slots() {
                if self.touched[slot as usize] <= before {
                    self.counts[slot as usize] = [0; 2];
                    self.table.remove(slot);
                }
            }
        }
    }
}

impl Operator for SetOperation {
    fn name(&self) -> &'static str {
        "SetOperation"
    }

    fn on_block(&mut self, input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        let now = self.expiry.now();
        self.expire(now);
        self.table.intern(block.batch.columns(), block.rows(), &mut self.scratch)?;
        self.resize();
        let mut rows: Vec<u32> = Vec::new();
        let mut kinds: Vec<RowKind> = Vec::new();
        for (row, slot) in self.scratch.slots.iter().enumerate() {
            let counts = &mut self.counts[*slot as usize];
            let sign = block.kind(row).sign();
            if counts[input] + sign < 0 {
                self.unknown += 1;
                continue;
            }
            let before = self.kind.copies(*counts);
            counts[input] += sign;
            let after = self.kind.copies(*counts);
            if before != after {
                rows.push(row as u32);
                kinds.push(if after > before { RowKind::Insert } else { RowKind::Delete });
            }
        }
        if self.expiry.ttl_ms.is_some() {
            self.scratch.slots.iter().for_each(|slot| self.touched[*slot as usize] = now);
        }
        if !rows.is_empty() {
            let count = rows.len();
            let columns = if count == block.rows() {
                block.batch.columns().to_vec()
            } else {
                take_record_batch(&block.batch, &UInt32Array::from(rows))?.columns().to_vec()
            };
            // The names are the left input's, whichever input the row came from.
            let options = RecordBatchOptions::new().with_row_count(Some(count));
            let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
            out.emit(if kinds.iter().all(|k| *k == RowKind::Insert) {
                Block::inserts(batch, block.arrival_ns)
            } else {
                Block::changelog(batch, kinds.into(), block.arrival_ns)
            });
        }
        if block.kinds.is_some() {
            let mut gone: Vec<u32> = self.scratch.slots.iter().copied().filter(|s| self.counts[*s as usize] == [0; 2]).collect();
            gone.sort_unstable();
            gone.dedup();
            gone.into_iter().for_each(|slot| self.table.remove(slot));
        }
        Ok(())
    }

    fn on_watermark(&mut self, _watermark: i64, _out: &mut Output) -> Result<Progress, OperatorError> {
        self.expire(self.expiry.now());
        Ok(Progress::Done)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let slots = self.table.slots();
        let mut columns = self.table.keys(&slots)?;
        for side in 0..2 {
            columns.push(Arc::new(slots.iter().map(|s| self.counts[*s as usize][side]).collect::<Int64Array>()) as ArrayRef);
        }
        columns.push(Arc::new(slots.iter().map(|s| self.touched.get(*s as usize).copied().unwrap_or(0)).collect::<Int64Array>()));
        let hashes = slots.iter().map(|s| self.table.hash(*s)).collect();
        Ok(vec![StateTable::keyed("rows", hashes, columns)?])
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        let now = self.expiry.now();
        for table in tables {
            let (keys, numbers) = table.columns().split_at(self.schema.fields().len());
            let [left, right, touched] = [0, 1, 2].map(|i| numbers[i].as_primitive::<Int64Type>().values());
            self.table.intern(keys, table.batch.num_rows(), &mut self.scratch)?;
            self.resize();
            for (row, slot) in self.scratch.slots.iter().enumerate() {
                self.counts[*slot as usize] = [left[row], right[row]];
                if self.expiry.ttl_ms.is_some() {
                    self.touched[*slot as usize] = if touched[row] == 0 { now } else { touched[row] };
                }
            }
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        stats(self.table.len(), self.table.memory() + self.counts.memory() + self.touched.memory(), self.unknown)
    }
}

#[cfg(test)]
mod tests;
