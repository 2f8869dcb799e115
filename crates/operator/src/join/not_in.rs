//! `x NOT IN (SELECT y …)` where `x` or `y` may be NULL.
//!
//! By the three-valued logic of SQL a row passes if no `y` equals its `x` and none is NULL; a row
//! whose `x` is NULL passes only if there is no `y` at all. A single `y` may so take back every row,
//! which is why all of it runs in one shard. Without NULLs an anti join does the same in many.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use tidemill_block::{Block, RowKind};
use tidemill_state::{KeyTable, Slots, StateTable};

use super::side::{Side, SideOptions};
use super::store::{NO_ROW, column_data};
use super::{evaluate, stats};
use crate::map::Expr;
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output};

/// What a `NOT IN` compares.
#[derive(Clone)]
pub struct NotInSpec {
    /// `x` over the left input and `y` over the right one, of the same type.
    pub keys: [Expr; 2],
    /// The type of `x` and `y`.
    pub key_type: DataType,
    /// Schema of the left input.
    pub input: SchemaRef,
    /// Whether the left input takes rows back.
    pub updating: bool,
    /// What comes out: the left input's columns.
    pub schema: SchemaRef,
}

/// The left rows whose `x` is not among the right input's `y`.
pub struct NotIn {
    spec: NotInSpec,
    table: KeyTable,
    left: Side,
    /// How often the right input has each key, by slot; how many keys it has, NULL or not.
    right: Vec<u64>,
    rights: u64,
    /// The slot of the NULL key.
    null: Option<u32>,
    scratch: Slots,
    unknown: u64,
}

impl NotIn {
    /// A `NOT IN` as `spec` says.
    ///
    /// # Errors
    /// A type that cannot be a key.
    pub fn new(spec: NotInSpec) -> Result<Self, OperatorError> {
        let types = spec.input.fields().iter().map(|f| f.data_type().clone()).collect();
        Ok(NotIn {
            table: KeyTable::new(vec![spec.key_type.clone()])?,
            left: Side::new(types, SideOptions { counted: spec.updating, ..SideOptions::default() })?,
            right: Vec::new(),
            rights: 0,
            null: None,
            scratch: Slots::default(),
            unknown: 0,
            spec,
        })
    }

    fn intern(&mut self, key: &ArrayRef) -> Result<(), OperatorError> {
        self.table.intern(std::slice::from_ref(key), key.len(), &mut self.scratch)?;
        self.right.resize(self.table.capacity(), 0);
        self.left.resize(self.table.capacity());
        if let Some(nulls) = key.logical_nulls().filter(|n| n.null_count() > 0)
            && let Some(row) = (0..key.len()).find(|row| nulls.is_null(*row))
        {
            self.null = Some(self.scratch.slots[row]);
        }
        Ok(())
    }

    /// How many NULLs the right input has.
    fn null_rights(&self) -> u64 {
        self.null.map_or(0, |slot| self.right[slot as usize])
    }

    /// Whether left rows of a key pass.
    fn passes(&self, slot: u32) -> bool {
        if Some(slot) == self.null { self.rights == 0 } else { self.right[slot as usize] == 0 && self.null_rights() == 0 }
    }

    fn on_left(&mut self, block: &Block, out: &mut Output) -> Result<(), OperatorError> {
        let data = column_data(block.batch.columns());
        self.left.begin(block.batch.columns(), block.rows())?;
        let (mut rows, mut kinds): (Vec<u32>, Vec<RowKind>) = (Vec::new(), Vec::new());
        for row in 0..block.rows() {
            let (slot, adds) = (self.scratch.slots[row], block.kind(row).adds());
            if self.spec.updating {
                let known = if adds {
                    self.left.add(&data, row, slot, 0, None)?;
                    true
                } else {
                    self.left.take_back(&data, row, slot, None).is_some()
                };
                if !known {
                    self.unknown += 1;
                    continue;
                }
            }
            self.left.count(slot, adds);
            if self.passes(slot) {
                rows.push(row as u32);
                kinds.push(if adds { RowKind::Insert } else { RowKind::Delete });
            }
        }
        if !self.spec.updating {
            let all: Vec<u32> = (0..block.rows() as u32).collect();
            self.left.append(&data, &all, &self.scratch.slots, &[], 0)?;
        }
        self.left.end();
        let rows = UInt32Array::from(rows);
        let columns = block.batch.columns().iter().map(|c| take(c, &rows, None)).collect::<Result<Vec<_>, _>>()?;
        self.emit(columns, &kinds, block.arrival_ns, out)
    }

    fn on_right(&mut self, block: &Block, out: &mut Output) -> Result<(), OperatorError> {
        let (mut ids, mut kinds): (Vec<u32>, Vec<RowKind>) = (Vec::new(), Vec::new());
        for row in 0..block.rows() {
            let (slot, adds) = (self.scratch.slots[row], block.kind(row).adds());
            let is_null = Some(slot) == self.null;
            if !adds && self.right[slot as usize] == 0 {
                self.unknown += 1;
                continue;
            }
            // Whose passing this row may change: its own key's rows; with a NULL those of all keys; with
            // the first row to come or the last to go those with a NULL.
            let mut touched: Vec<u32> = Vec::new();
            let edge = |count: u64| count == u64::from(!adds);
            if is_null && edge(self.right[slot as usize]) {
                touched = self.table.slots();
            } else {
                if !is_null && edge(self.right[slot as usize]) {
                    touched.push(slot);
                }
                if edge(self.rights) {
                    touched.extend(self.null);
                }
            }
            let before: Vec<bool> = touched.iter().map(|s| self.passes(*s)).collect();
            let change = |count: &mut u64| *count = if adds { *count + 1 } else { *count - 1 };
            change(&mut self.right[slot as usize]);
            change(&mut self.rights);
            for (slot, passed) in touched.into_iter().zip(before) {
                let passes = self.passes(slot);
                if passes == passed {
                    continue;
                }
                let kind = if passes { RowKind::Insert } else { RowKind::Delete };
                let mut id = self.left.first(slot);
                while id != NO_ROW {
                    for _ in 0..self.left.copies(id) {
                        ids.push(id);
                        kinds.push(kind);
                    }
                    if ids.len() >= BLOCK_ROWS_MAX {
                        self.emit(self.left.store.take(&ids)?, &kinds, block.arrival_ns, out)?;
                        ids.clear();
                        kinds.clear();
                    }
                    id = self.left.next(id);
                }
            }
        }
        self.emit(self.left.store.take(&ids)?, &kinds, block.arrival_ns, out)
    }

    fn emit(&self, columns: Vec<ArrayRef>, kinds: &[RowKind], arrival_ns: u64, out: &mut Output) -> Result<(), OperatorError> {
        let options = RecordBatchOptions::new().with_row_count(Some(kinds.len()));
        let batch = RecordBatch::try_new_with_options(self.spec.schema.clone(), columns, &options)?;
        out.emit(if kinds.iter().all(|k| *k == RowKind::Insert) {
            Block::inserts(batch, arrival_ns)
        } else {
            Block::changelog(batch, kinds.into(), arrival_ns)
        });
        Ok(())
    }
}

impl Operator for NotIn {
    fn name(&self) -> &'static str {
        "NotIn"
    }

    fn on_block(&mut self, input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        let key = evaluate(&self.spec.keys[input..=input], &block)?.remove(0);
        self.intern(&key)?;
        if input == 0 {
            self.on_left(&block, out)?
        } else {
            self.on_right(&block, out)?
        }
        if block.kinds.is_some() {
            let mut gone = std::mem::take(&mut self.scratch.slots);
            gone.sort_unstable();
            gone.dedup();
            for slot in gone {
                if self.left.total(slot) == 0 && self.right[slot as usize] == 0 {
                    if self.null == Some(slot) {
                        self.null = None;
                    }
                    self.table.remove(slot);
                }
            }
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let slots = self.table.slots();
        let (places, columns) = self.left.save(&slots)?;
        let left = StateTable::keyed("left", places.iter().map(|p| self.table.hash(slots[*p])).collect(), columns)?;
        let used: Vec<u32> = slots.into_iter().filter(|s| self.right[*s as usize] > 0).collect();
        let mut columns = self.table.keys(&used)?;
        columns.push(Arc::new(used.iter().map(|s| self.right[*s as usize] as i64).collect::<Int64Array>()));
        let right = StateTable::keyed("right", used.iter().map(|s| self.table.hash(*s)).collect(), columns)?;
        Ok(vec![left, right])
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            let columns = table.columns();
            if table.name == "right" {
                self.intern(&columns[0])?;
                for (slot, count) in self.scratch.slots.iter().zip(columns[1].as_primitive::<Int64Type>().values()) {
                    self.right[*slot as usize] += *count as u64;
                    self.rights += *count as u64;
                }
            } else {
                let width = self.spec.input.fields().len();
                let batch = RecordBatch::try_new(self.spec.input.clone(), columns[..width].to_vec())?;
                let key = evaluate(&self.spec.keys[..1], &Block::inserts(batch, 0))?.remove(0);
                self.intern(&key)?;
                self.left.load(columns, &self.scratch.slots, 0)?;
            }
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let entries = self.left.store.len() + self.table.len();
        stats(entries, self.table.memory() + self.left.memory() + self.right.capacity() * 8, self.unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::testing::{Random, Row, block, counted, feed, schema, shown};
    use datafusion_physical_expr::expressions::Column;
    use std::collections::BTreeMap;

    /// `x NOT IN (y, …)` by its definition: NOT (x = y OR …), and x = y is unknown beside a NULL.
    fn passes(x: Option<i64>, ys: &[Row]) -> bool {
        let equal = ys.iter().any(|(y, _)| y.is_some() && *y == x);
        let unknown = ys.iter().any(|(y, _)| y.is_none() || x.is_none());
        !equal && !unknown
    }

    #[test]
    fn as_defined() {
        for updating in [false, true] {
            for seed in 0..60 {
                let key = || Arc::new(Column::new("k", 0)) as Expr;
                let spec = NotInSpec { keys: [key(), key()], key_type: DataType::Int64, input: schema(), updating, schema: schema() };
                let make = || NotIn::new(spec.clone()).unwrap();
                let (mut random, mut operator) = (Random(seed), make());
                let mut tables: [Vec<Row>; 2] = [Vec::new(), Vec::new()];
                let mut result = BTreeMap::new();
                for step in 0..30 {
                    // The right side takes back more than it is given: it is to be empty now and then.
                    let input = random.below(2) as usize;
                    let takes_back = input == 1 || updating;
                    let mut changes = random.changes(&mut tables[input], takes_back, true);
                    if input == 1 && random.below(3) == 0 {
                        changes.extend(tables[1].drain(..).map(|row| (false, row)));
                    }
                    feed(&mut operator, input, block(&changes, takes_back), &mut result);
                    let expect = tables[0].iter().filter(|row| passes(row.0, &tables[1])).map(|row| shown(*row));
                    assert_eq!(result, counted(expect), "seed {seed}, step {step}");
                    if step == 14 {
                        let mut again = make();
                        again.restore(operator.snapshot().unwrap()).unwrap();
                        operator = again;
                    }
                }
                if updating {
                    for input in 0..2 {
                        let all: Vec<(bool, Row)> = tables[input].drain(..).map(|row| (false, row)).collect();
                        feed(&mut operator, input, block(&all, true), &mut result);
                    }
                    assert_eq!(operator.stats().entries, 0, "seed {seed}");
                }
            }
        }
    }
}
