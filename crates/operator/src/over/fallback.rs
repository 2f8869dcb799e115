//! DataFusion's retractable accumulators over sliding frames, one a key, for functions without a
//! kernel of their own.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;
use datafusion_expr::Accumulator;

use super::cell::{Any, Arguments, Cell};
use super::column::{Column, Lane};
use super::op::{Op, grow};
use crate::OperatorError;
use crate::aggregate::AggregateCall;

/// An accumulator a key. Slow: a value at a time goes through arrays of one row.
pub(super) struct Fallback {
    call: AggregateCall,
    states: Vec<Option<Box<dyn Accumulator>>>,
}

impl Fallback {
    /// # Errors
    /// A function that cannot take values back.
    pub fn new(call: AggregateCall) -> Result<Self, OperatorError> {
        // What is wrong with the arguments is said first.
        call.function.create_accumulator()?;
        if call.distinct || !call.function.create_sliding_accumulator().is_ok_and(|a| a.supports_retract_batch()) {
            return Err(OperatorError::new(format!(
                "{}{} is not supported in an OVER with a sliding frame, because it cannot take values back; COUNT, SUM, AVG, MIN, MAX, FIRST_VALUE, LAST_VALUE, STDDEV, VAR and PERCENTILE are, and every aggregate over UNBOUNDED PRECEDING",
                call.name.to_uppercase(),
                if call.distinct { "(DISTINCT …)" } else { "" }
            )));
        }
        Ok(Fallback { call, states: Vec::new() })
    }

    fn state(&mut self, slot: u32) -> Result<&mut Box<dyn Accumulator>, OperatorError> {
        let state = &mut self.states[slot as usize];
        if state.is_none() {
            *state = Some(self.call.function.create_sliding_accumulator()?);
        }
        Ok(state.as_mut().expect("made above"))
    }
}

fn arrays(values: &[ScalarValue]) -> Result<Vec<ArrayRef>, OperatorError> {
    Ok(values.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>, _>>()?)
}

impl Op<Arguments> for Fallback {
    type Answer = Option<ScalarValue>;
    const WANTS_VALUES: bool = true;

    fn enter(&mut self, slot: u32, _place: u32, value: &Vec<ScalarValue>, is_valid: bool) -> Result<(), OperatorError> {
        if is_valid {
            self.state(slot)?.update_batch(&arrays(value)?)?;
        }
        Ok(())
    }

    fn leave(&mut self, slot: u32, _place: u32, value: &Vec<ScalarValue>, is_valid: bool) -> Result<(), OperatorError> {
        if is_valid {
            self.state(slot)?.retract_batch(&arrays(value)?)?;
        }
        Ok(())
    }

    fn answer(&mut self, slot: u32, _column: &Column<Vec<ScalarValue>>) -> Result<Option<Option<ScalarValue>>, OperatorError> {
        Ok(Some(Some(self.state(slot)?.evaluate()?)))
    }

    fn array(answers: Lane<Option<ScalarValue>>, data_type: &DataType) -> Result<ArrayRef, OperatorError> {
        Any::array(answers, data_type)
    }

    fn resize(&mut self, slots: usize) {
        grow(&mut self.states, slots);
    }

    fn clear(&mut self, slot: u32) {
        self.states[slot as usize] = None;
    }

    fn memory(&self) -> usize {
        self.states.iter().flatten().map(|s| s.size()).sum::<usize>() + self.states.capacity() * 16
    }
}
