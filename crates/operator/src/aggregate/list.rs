//! FIRST_VALUE, LAST_VALUE and ARRAY_AGG where rows may be taken back: all values of a group, in the
//! order in which they came.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt32Array, new_empty_array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field};
use arrow::row::{OwnedRow, Row, RowConverter, SortField};
use tidemill_state::SlotVec;

use super::{Accumulator, AggregateCall, Rows};
use crate::OperatorError;

/// What is made of the values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    First,
    Last,
    All,
}

/// The accumulator for a call, if it is one of these functions over values that have a row form.
pub(super) fn accumulator(call: &AggregateCall) -> Option<Box<dyn Accumulator>> {
    let wanted = match call.name.as_str() {
        "first_value" => Wanted::First,
        "last_value" => Wanted::Last,
        "array_agg" => Wanted::All,
        _ => return None,
    };
    let [data_type] = call.argument_types.as_slice() else { return None };
    let converter = RowConverter::new(vec![SortField::new(data_type.clone())]).ok()?;
    Some(Box::new(List {
        wanted,
        ignore_nulls: call.function.ignore_nulls(),
        lists: SlotVec::new(),
        converter,
        item: data_type.clone(),
        output: call.output.data_type().clone(),
        bytes: 0,
    }))
}

struct List {
    wanted: Wanted,
    ignore_nulls: bool,
    lists: SlotVec<VecDeque<OwnedRow>>,
    converter: RowConverter,
    item: DataType,
    output: DataType,
    bytes: usize,
}

fn weight(row: &OwnedRow) -> usize {
    row.as_ref().len() + 32
}

impl List {
    fn change(&mut self, slot: u32, row: Row<'_>, adds: bool) {
        let list = &mut self.lists[slot as usize];
        if adds {
            let row = row.owned();
            self.bytes += weight(&row);
            list.push_back(row);
        } else if let Some(at) = list.iter().position(|r| r.row() == row) {
            // The oldest of several that are the same: which of them went makes no difference.
            let gone = list.remove(at).expect("found above");
            self.bytes -= weight(&gone);
        }
    }

    fn array(&self, rows: &[&OwnedRow]) -> Result<ArrayRef, OperatorError> {
        if rows.is_empty() {
            return Ok(new_empty_array(&self.item));
        }
        Ok(self.converter.convert_rows(rows.iter().map(|r| r.row()))?.remove(0))
    }

    /// All values of slots, a list each.
    fn lists(&self, slots: &[u32], empty_is_null: bool, field: Arc<Field>) -> Result<ArrayRef, OperatorError> {
        let rows: Vec<&OwnedRow> = slots.iter().flat_map(|s| &self.lists[*s as usize]).collect();
        let offsets = OffsetBuffer::from_lengths(slots.iter().map(|s| self.lists[*s as usize].len()));
        let nulls: Option<NullBuffer> = empty_is_null.then(|| slots.iter().map(|s| !self.lists[*s as usize].is_empty()).collect());
        Ok(Arc::new(ListArray::new(field, offsets, self.array(&rows)?, nulls)))
    }

    fn result(&self, slots: &[u32]) -> Result<ArrayRef, OperatorError> {
        let end = |slot: &u32| match self.wanted {
            Wanted::First => self.lists[*slot as usize].front(),
            _ => self.lists[*slot as usize].back(),
        };
        if let (Wanted::All, DataType::List(field)) = (self.wanted, &self.output) {
            return self.lists(slots, true, field.clone());
        }
        let rows: Vec<&OwnedRow> = slots.iter().filter_map(end).collect();
        let mut next = 0;
        let picks: UInt32Array = slots
            .iter()
            .map(|slot| {
                end(slot).map(|_| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        Ok(take(&self.array(&rows)?, &picks, None)?)
    }

    fn counts(&self, rows: &Rows<'_>, row: usize) -> bool {
        rows.counts(row) && !(self.ignore_nulls && rows.values[0].is_null(row))
    }
}

impl Accumulator for List {
    fn resize(&mut self, slots: usize) {
        self.lists.resize(slots, VecDeque::new());
    }

    fn update(&mut self, rows: &Rows<'_>) -> Result<(), OperatorError> {
        let encoded = self.converter.convert_columns(&rows.values[..1])?;
        for (row, slot) in rows.slots.iter().enumerate() {
            if self.counts(rows, row) {
                self.change(*slot, encoded.row(row), rows.adds(row));
            }
        }
        Ok(())
    }

    fn update_each(&mut self, rows: &Rows<'_>) -> Result<(ArrayRef, ArrayRef), OperatorError> {
        let encoded = self.converter.convert_columns(&rows.values[..1])?;
        let (mut before, mut after) = (Vec::with_capacity(rows.slots.len()), Vec::with_capacity(rows.slots.len()));
        for (row, slot) in rows.slots.iter().enumerate() {
            before.push(self.result(&[*slot])?);
            if self.counts(rows, row) {
                self.change(*slot, encoded.row(row), rows.adds(row));
            }
            after.push(self.result(&[*slot])?);
        }
        let all = |parts: &[ArrayRef]| -> Result<ArrayRef, OperatorError> {
            if parts.is_empty() {
                return Ok(new_empty_array(&self.output));
            }
            Ok(arrow::compute::concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>())?)
        };
        Ok((all(&before)?, all(&after)?))
    }

    fn values(&mut self, slots: &[u32]) -> Result<ArrayRef, OperatorError> {
        self.result(slots)
    }

    fn clear(&mut self, slots: &[u32]) {
        for slot in slots {
            let list = std::mem::take(&mut self.lists[*slot as usize]);
            self.bytes -= list.iter().map(weight).sum::<usize>();
        }
    }

    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(vec![self.lists(slots, false, Arc::new(Field::new_list_field(self.item.clone(), true)))?])
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        let lists = columns[0].as_list::<i32>();
        for (row, slot) in slots.iter().enumerate() {
            let encoded = self.converter.convert_columns(&[lists.value(row)])?;
            encoded.iter().for_each(|value| self.change(*slot, value, true));
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.bytes + self.lists.memory()
    }

    fn heap(&self) -> usize {
        self.bytes
    }
}
