//! The state in a checkpoint: the rows that wait, the rows that keys hold, and where attempts began.
//!
//! Partial matches themselves are not saved. The rows from an attempt's beginning on lead to the same
//! partial matches when they are looked at again, so the checkpoint does not depend on how a pattern is
//! compiled. So are the times at which partial matches go on without a row. Only the absences that matches begin with
//! look further back than an attempt: what is known of them is saved with the keys.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int8Array, Int64Array};
use arrow::datatypes::{Int8Type, Int64Type};
use tidemill_state::{Slots, StateTable, hash};

use super::PatternMatch;
use super::column::Cells;
use super::run::Key;
use crate::OperatorError;

/// What a saved row is to its key.
const NOTHING: i8 = 0;
/// An attempt began at it.
const BEGIN: i8 = 1;
/// An attempt began at it, and it is the first of its partition.
const BEGIN_FIRST: i8 = 2;
/// Bits of a role; above stand those of the absences that the attempt began behind.
const ROLE_BITS: u32 = 2;
/// Nothing is known of an absence: no row of the key was tried.
const UNKNOWN: i64 = i64::MIN;

impl PatternMatch {
    pub(super) fn save(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let mut tables = Vec::new();
        if let Some(batch) = self.held.all()? {
            let keys = self.key_columns(&batch)?;
            let mut hashes = Vec::new();
            hash::rows(&keys, batch.num_rows(), &mut hashes)?;
            tables.push(StateTable::keyed("held", hashes, batch.columns().to_vec())?);
        }
        let slots = self.table.slots();
        if slots.is_empty() {
            return Ok(tables);
        }
        let ints =
            |of: &dyn Fn(&Key) -> i64| -> ArrayRef { Arc::new(slots.iter().map(|s| of(&self.keys[*s as usize])).collect::<Int64Array>()) };
        let flags = |of: &dyn Fn(&Key) -> bool| -> ArrayRef {
            Arc::new(slots.iter().map(|s| Some(of(&self.keys[*s as usize]))).collect::<BooleanArray>())
        };
        let mut columns = self.table.keys(&slots)?;
        columns.push(ints(&|k| k.matches));
        columns.push(ints(&|k| i64::from(k.next.wrapping_sub(k.rows.base))));
        columns.push(ints(&|k| i64::from(k.matched_to.wrapping_sub(k.rows.base))));
        columns.push(flags(&|k| k.begun));
        columns.push(flags(&|k| k.done));
        for lead in 0..self.built.machine.automaton.leads.len() {
            columns.push(ints(&|k| k.leads.get(lead).copied().unwrap_or(UNKNOWN)));
        }
        tables.push(StateTable::keyed("keys", slots.iter().map(|s| self.table.hash(*s)).collect(), columns)?);

        let rows = &self.built.machine.rows;
        let (mut of, mut places, mut roles) = (Vec::new(), Vec::new(), Vec::new());
        for slot in &slots {
            let key = &self.keys[*slot as usize];
            let first = roles.len();
            of.resize(first + key.rows.places.len(), *slot);
            places.extend(key.rows.places.iter().copied());
            roles.resize(places.len(), NOTHING);
            for attempt in key.undecided() {
                let at = first + attempt.start.wrapping_sub(key.rows.base) as usize;
                let begin = if attempt.first { BEGIN_FIRST } else { BEGIN };
                roles[at] = begin | (attempt.leads << ROLE_BITS) as i8;
            }
        }
        if places.is_empty() {
            return Ok(tables);
        }
        let mut columns = self.table.keys(&of)?;
        columns.push(Arc::new(places.iter().map(|p| rows.times[*p as usize]).collect::<Int64Array>()));
        columns.push(Arc::new(places.iter().map(|p| rows.masks[*p as usize] as i64).collect::<Int64Array>()));
        columns.push(Arc::new(Int8Array::from(roles)));
        for column in &rows.columns {
            columns.push(column.gather(&places)?);
        }
        tables.push(StateTable::keyed("rows", of.iter().map(|s| self.table.hash(*s)).collect(), columns)?);
        Ok(tables)
    }

    pub(super) fn load(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        let mut rows = Vec::new();
        for table in tables {
            match table.name.as_str() {
                "held" => self.held.restore(table.columns())?,
                "keys" => self.load_keys(table.columns(), table.batch.num_rows())?,
                "rows" => rows.push(table),
                other => {
                    return Err(OperatorError::new(format!("the checkpoint has a state table '{other}' that this version does not know")));
                }
            }
        }
        // A key's rows lie in one table, since it belonged to one shard.
        for table in rows {
            self.load_rows(table.columns(), table.batch.num_rows())?;
        }
        self.settle();
        Ok(())
    }

    fn intern(&mut self, keys: &[ArrayRef], rows: usize) -> Result<Vec<u32>, OperatorError> {
        let mut found = Slots::default();
        self.table.intern(keys, rows, &mut found)?;
        if self.keys.len() < self.table.capacity() {
            self.keys.resize_with(self.table.capacity(), Key::new);
        }
        for slot in &found.slots {
            let key = &mut self.keys[*slot as usize];
            if !key.listed {
                key.listed = true;
                self.touched.push(*slot);
            }
        }
        Ok(found.slots)
    }

    fn load_keys(&mut self, columns: &[ArrayRef], rows: usize) -> Result<(), OperatorError> {
        let (keys, rest) = columns.split_at(self.spec.keys.len());
        let slots = self.intern(keys, rows)?;
        let form = || OperatorError::new("the checkpoint's state table 'keys' of a pattern has another form than this version writes");
        let [matches, next, matched_to, begun, done, leads @ ..] = rest else { return Err(form()) };
        if leads.len() != self.built.machine.automaton.leads.len() {
            return Err(form());
        }
        let int = |column: &ArrayRef, row: usize| column.as_primitive::<Int64Type>().value(row);
        for (row, slot) in slots.iter().enumerate() {
            let key = &mut self.keys[*slot as usize];
            key.matches = int(matches, row);
            // Rows are numbered from 0 again.
            key.next = int(next, row) as u32;
            key.matched_to = int(matched_to, row) as u32;
            key.begun = begun.as_boolean().value(row);
            key.done = done.as_boolean().value(row);
            if leads.iter().all(|lead| int(lead, row) != UNKNOWN) {
                key.leads = leads.iter().map(|lead| int(lead, row)).collect();
            }
        }
        Ok(())
    }

    fn load_rows(&mut self, columns: &[ArrayRef], count: usize) -> Result<(), OperatorError> {
        let (keys, rest) = columns.split_at(self.spec.keys.len());
        let slots = self.intern(keys, count)?;
        let [times, masks, roles, kept @ ..] = rest else {
            return Err(OperatorError::new("the checkpoint's state table 'rows' of a pattern has another form than this version writes"));
        };
        let masks: Vec<u64> = masks.as_primitive::<Int64Type>().values().iter().map(|m| *m as u64).collect();
        let mut places = Vec::new();
        let cells: Vec<Cells> = kept.iter().map(Cells::new).collect();
        self.built.machine.rows.add(times.as_primitive::<Int64Type>().values(), &masks, &cells, &mut places)?;
        let roles = roles.as_primitive::<Int8Type>();
        for (row, slot) in slots.iter().enumerate() {
            let key = &mut self.keys[*slot as usize];
            key.rows.places.push_back(places[row]);
            let role = roles.value(row);
            let first = role & ((1 << ROLE_BITS) - 1) == BEGIN_FIRST;
            self.built.machine.resume(key, (role != NOTHING).then_some((first, (role >> ROLE_BITS) as u8)))?;
        }
        Ok(())
    }
}
