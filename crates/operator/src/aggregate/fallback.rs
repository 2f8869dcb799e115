//! DataFusion's accumulators, one a slot, for functions without a kernel of their own.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array};
use arrow::compute::take;
use datafusion_common::ScalarValue;
use datafusion_expr::Accumulator as Native;

use super::{Accumulator, AggregateCall, Rows};
use crate::OperatorError;

/// A boxed accumulator a slot. Slower than a kernel; serves STDDEV, APPROX_*, LISTAGG and the like.
pub(super) struct Fallback {
    call: AggregateCall,
    retracts: bool,
    slots: Vec<Option<Box<dyn Native>>>,
}

impl Fallback {
    pub fn new(call: AggregateCall, retracts: bool) -> Result<Self, OperatorError> {
        // What is wrong with the arguments is said first.
        call.function.create_accumulator()?;
        if retracts {
            // These take back the oldest value, whichever is meant.
            let oldest = matches!(call.name.as_str(), "array_agg" | "min" | "max" | "first_value" | "last_value");
            if oldest || !call.function.create_sliding_accumulator().is_ok_and(|a| a.supports_retract_batch()) {
                return Err(OperatorError::new(format!(
                    "{} over an updating query is not supported, because it cannot take a value back; COUNT, SUM, AVG, MIN, MAX, FIRST_VALUE, LAST_VALUE, LISTAGG, ARRAY_AGG, PERCENTILE, STDDEV and VAR can, or aggregate in windows instead of a running GROUP BY below",
                    call.name.to_uppercase()
                )));
            }
        }
        Ok(Fallback { call, retracts, slots: Vec::new() })
    }

    fn make(&self) -> Result<Box<dyn Native>, OperatorError> {
        Ok(if self.retracts { self.call.function.create_sliding_accumulator()? } else { self.call.function.create_accumulator()? })
    }

    fn at(&mut self, slot: u32) -> Result<&mut Box<dyn Native>, OperatorError> {
        if self.slots[slot as usize].is_none() {
            self.slots[slot as usize] = Some(self.make()?);
        }
        Ok(self.slots[slot as usize].as_mut().expect("made above"))
    }

    fn apply(&mut self, slot: u32, values: &[ArrayRef], adds: bool) -> Result<(), OperatorError> {
        let accumulator = self.at(slot)?;
        let _: () = if adds { accumulator.update_batch(values)? } else { accumulator.retract_batch(values)? };
        Ok(())
    }

    fn result(&mut self, slot: u32) -> Result<ScalarValue, OperatorError> {
        Ok(self.at(slot)?.evaluate()?)
    }

    fn array(&self, scalars: Vec<ScalarValue>) -> Result<ArrayRef, OperatorError> {
        if scalars.is_empty() {
            return Ok(arrow::array::new_empty_array(self.call.output.data_type()));
        }
        Ok(ScalarValue::iter_to_array(scalars)?)
    }
}

impl Accumulator for Fallback {
    fn resize(&mut self, slots: usize) {
        if self.slots.len() < slots {
            self.slots.resize_with(slots, || None);
        }
    }

    fn update(&mut self, rows: &Rows<'_>) -> Result<(), OperatorError> {
        // Rows of one slot and sign go in together.
        let mut order: Vec<u32> = (0..rows.slots.len() as u32).filter(|r| rows.counts(*r as usize)).collect();
        order.sort_by_key(|r| (rows.slots[*r as usize], !rows.adds(*r as usize), *r));
        let mut from = 0;
        while from < order.len() {
            let key = |i: usize| (rows.slots[order[i] as usize], rows.adds(order[i] as usize));
            let mut until = from + 1;
            while until < order.len() && key(until) == key(from) {
                until += 1;
            }
            let indices = UInt32Array::from(order[from..until].to_vec());
            let values = rows.values.iter().map(|v| take(v, &indices, None)).collect::<Result<Vec<_>, _>>()?;
            let (slot, adds) = key(from);
            self.apply(slot, &values, adds)?;
            from = until;
        }
        Ok(())
    }

    fn update_each(&mut self, rows: &Rows<'_>) -> Result<(ArrayRef, ArrayRef), OperatorError> {
        let mut before = Vec::with_capacity(rows.slots.len());
        let mut after = Vec::with_capacity(rows.slots.len());
        for (row, slot) in rows.slots.iter().enumerate() {
            before.push(self.result(*slot)?);
            if rows.counts(row) {
                let values: Vec<ArrayRef> = rows.values.iter().map(|v| v.slice(row, 1)).collect();
                self.apply(*slot, &values, rows.adds(row))?;
            }
            after.push(self.result(*slot)?);
        }
        Ok((self.array(before)?, self.array(after)?))
    }

    fn values(&mut self, slots: &[u32]) -> Result<ArrayRef, OperatorError> {
        let scalars = slots.iter().map(|s| self.result(*s)).collect::<Result<Vec<_>, _>>()?;
        self.array(scalars)
    }

    fn clear(&mut self, slots: &[u32]) {
        slots.iter().for_each(|s| self.slots[*s as usize] = None);
    }

    /// The state columns that the function itself defines, behind a column that says whether the
    /// slot has any. Evaluating the state may consume it, so it is merged back.
    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let present: Vec<bool> = slots.iter().map(|s| self.slots[*s as usize].is_some()).collect();
        let mut columns: Vec<Vec<ScalarValue>> = Vec::new();
        for slot in slots {
            let state = self.at(*slot)?.state()?;
            let mut again = self.make()?;
            let arrays = state.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>, _>>()?;
            again.merge_batch(&arrays)?;
            self.slots[*slot as usize] = Some(again);
            columns.resize_with(state.len(), Vec::new);
            columns.iter_mut().zip(state).for_each(|(c, s)| c.push(s));
        }
        let mut out: Vec<ArrayRef> = vec![Arc::new(BooleanArray::from(present))];
        if slots.is_empty() {
            let fields = self.call.function.state_fields()?;
            out.extend(fields.iter().map(|f| arrow::array::new_empty_array(f.data_type())));
        }
        for column in columns {
            out.push(ScalarValue::iter_to_array(column)?);
        }
        Ok(out)
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        let present = arrow::array::AsArray::as_boolean(columns[0].as_ref()).clone();
        for (row, slot) in slots.iter().enumerate() {
            if present.value(row) {
                let state: Vec<ArrayRef> = columns[1..].iter().map(|c| c.slice(row, 1)).collect();
                self.at(*slot)?.merge_batch(&state)?;
            }
        }
        Ok(())
    }

    /// Digests are put together anew when they are merged, which shows in their estimates.
    fn spills(&self) -> bool {
        !matches!(self.call.name.as_str(), "approx_median" | "approx_percentile_cont" | "approx_percentile_cont_with_weight")
    }

    fn memory(&self) -> usize {
        self.slots.iter().flatten().map(|a| a.size()).sum::<usize>() + self.slots.capacity() * 16
    }

    fn heap(&self) -> usize {
        self.memory()
    }
}
