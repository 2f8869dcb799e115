//! FIRST_VALUE and LAST_VALUE of rows in the order in which they come, where nothing is taken back.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::DataType;
use tidemill_state::SlotVec;

use super::{Accumulator, Rows};
use crate::OperatorError;
use crate::over::cell::{Any, Cell, with_cell};
use crate::over::column::Lane;

/// The accumulator for values of this type.
pub(super) fn accumulator(last: bool, ignore_nulls: bool, data_type: &DataType) -> Box<dyn Accumulator> {
    with_cell!(data_type, C => boxed::<C>(last, ignore_nulls, data_type), else boxed::<Any>(last, ignore_nulls, data_type))
}

fn boxed<C: Cell>(last: bool, ignore_nulls: bool, data_type: &DataType) -> Box<dyn Accumulator> {
    Box::new(End::<C> { last, ignore_nulls, values: SlotVec::new(), output: data_type.clone(), heap: 0 })
}

struct End<C: Cell> {
    last: bool,
    ignore_nulls: bool,
    /// By slot; `None` before there was a row that counts.
    values: SlotVec<Option<Option<C::Item>>>,
    output: DataType,
    /// Bytes that a value points to, on average in the newest block.
    heap: usize,
}

impl<C: Cell> End<C> {
    #[inline]
    fn take_in(&mut self, slot: u32, value: Option<&C::Item>) {
        let kept = &mut self.values[slot as usize];
        if (self.last || kept.is_none()) && (value.is_some() || !self.ignore_nulls) {
            *kept = Some(value.cloned());
        }
    }

    fn value(&self, slot: u32) -> Option<C::Item> {
        self.values[slot as usize].clone().flatten()
    }

    fn read(&mut self, rows: &Rows<'_>) -> Result<Lane<C::Item>, OperatorError> {
        let lane = C::read(rows.values, rows.slots.len())?;
        if C::POINTS && !rows.slots.is_empty() {
            self.heap = lane.values.iter().map(C::heap).sum::<usize>() / rows.slots.len();
        }
        Ok(lane)
    }
}

impl<C: Cell> Accumulator for End<C> {
    fn resize(&mut self, slots: usize) {
        self.values.resize(slots, None);
    }

    fn update(&mut self, rows: &Rows<'_>) -> Result<(), OperatorError> {
        let lane = self.read(rows)?;
        for (row, slot) in rows.slots.iter().enumerate() {
            if rows.counts(row) {
                self.take_in(*slot, lane.is_valid(row).then(|| &lane.values[row]));
            }
        }
        Ok(())
    }

    fn update_each(&mut self, rows: &Rows<'_>) -> Result<(ArrayRef, ArrayRef), OperatorError> {
        let lane = self.read(rows)?;
        let (mut before, mut after) = (Lane::with_capacity(rows.slots.len()), Lane::with_capacity(rows.slots.len()));
        for (row, slot) in rows.slots.iter().enumerate() {
            before.push(self.value(*slot));
            if rows.counts(row) {
                self.take_in(*slot, lane.is_valid(row).then(|| &lane.values[row]));
            }
            after.push(self.value(*slot));
        }
        Ok((C::array(before, &self.output)?, C::array(after, &self.output)?))
    }

    fn values(&mut self, slots: &[u32]) -> Result<ArrayRef, OperatorError> {
        let mut lane = Lane::with_capacity(slots.len());
        slots.iter().for_each(|slot| lane.push(self.value(*slot)));
        C::array(lane, &self.output)
    }

    fn clear(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| self.values[*slot as usize] = None);
    }

    /// Whether there was a row, and its value.
    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let known: BooleanArray = slots.iter().map(|slot| Some(self.values[*slot as usize].is_some())).collect();
        Ok(vec![Arc::new(known), self.values(slots)?])
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        let known = columns[0].as_boolean();
        let lane = C::read(&columns[1..], slots.len())?;
        for (row, slot) in slots.iter().enumerate().filter(|(row, _)| known.value(*row)) {
            self.take_in(*slot, lane.is_valid(row).then(|| &lane.values[row]));
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.values.memory() + self.heap()
    }

    fn heap(&self) -> usize {
        self.values.len() * self.heap
    }
}
