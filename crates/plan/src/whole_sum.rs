//! SUM of BIGINT for batch plans, checked as in streams: an error where DataFusion's wraps around.
//! Sums are kept in 128 bits, so that only the result has to fit, and neither order nor parallelism
//! decides whether it does. The function that has these accumulators is in [`crate::exact`].

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array};
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::{Accumulator, EmitTo, GroupsAccumulator};

/// The type of a sum in the state columns; an array of it holds any 128 bits.
const STATE: DataType = DataType::Decimal128(38, 0);

/// The error of a sum that leaves BIGINT.
fn overflow() -> DataFusionError {
    DataFusionError::Execution("a SUM overflows BIGINT; cast its argument to a wider type, such as DECIMAL(38, 0) or DOUBLE".into())
}

/// A sum and how many values are in it: without values the result is NULL.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    sum: i128,
    count: i64,
}

impl Sum {
    #[inline]
    fn add(&mut self, value: i64) {
        self.sum += i128::from(value);
        self.count += 1;
    }

    /// Row `row` of state columns.
    fn merge(&mut self, columns: &[ArrayRef], row: usize) {
        self.sum += columns[0].as_primitive::<Decimal128Type>().value(row);
        self.count += columns[1].as_primitive::<Int64Type>().value(row);
    }

    fn result(&self) -> Result<Option<i64>> {
        if self.count == 0 {
            return Ok(None);
        }
        i64::try_from(self.sum).map(Some).map_err(|_| overflow())
    }
}

fn state_columns(states: &[Sum]) -> Vec<ArrayRef> {
    let sums = states.iter().map(|s| s.sum).collect::<Vec<_>>();
    vec![Arc::new(Decimal128Array::from(sums).with_data_type(STATE)), Arc::new(states.iter().map(|s| s.count).collect::<Int64Array>())]
}

/// The state columns of [`One`] and [`Groups`] of the aggregate called `name`.
pub(crate) fn state_fields(name: &str) -> Vec<FieldRef> {
    [("sum", STATE), ("count", DataType::Int64)]
        .into_iter()
        .map(|(part, kind)| Arc::new(Field::new(format!("{name}[{part}]"), kind, true)))
        .collect()
}

/// The sum of all rows, or of those in a window.
#[derive(Debug, Default)]
pub(crate) struct One(Sum);

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<Int64Type>();
        if values.null_count() == 0 {
            self.0.sum += values.values().iter().map(|v| i128::from(*v)).sum::<i128>();
            self.0.count += values.len() as i64;
        } else {
            values.iter().flatten().for_each(|v| self.0.add(v));
        }
        Ok(())
    }
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<Int64Type>().iter().flatten() {
            self.0.sum -= i128::from(value);
            self.0.count -= 1;
        }
        Ok(())
    }
    fn supports_retract_batch(&self) -> bool {
        true
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(self.0.result()?))
    }
    fn size(&self) -> usize {
        size_of::<Self>()
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        state_columns(&[self.0]).iter().map(|c| ScalarValue::try_from_array(c, 0)).collect()
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        (0..states[0].len()).for_each(|row| self.0.merge(states, row));
        Ok(())
    }
}

/// Whether a row is neither NULL nor filtered out.
fn counts(values: &Int64Array, filter: Option<&BooleanArray>, row: usize) -> bool {
    values.is_valid(row) && filter.is_none_or(|f| f.is_valid(row) && f.value(row))
}

/// The sums of groups.
#[derive(Default)]
pub(crate) struct Groups {
    states: Vec<Sum>,
}

impl GroupsAccumulator for Groups {
    fn update_batch(&mut self, values: &[ArrayRef], groups: &[usize], filter: Option<&BooleanArray>, total: usize) -> Result<()> {
        self.states.resize(total, Sum::default());
        let values = values[0].as_primitive::<Int64Type>();
        if values.null_count() == 0 && filter.is_none() {
            groups.iter().zip(values.values()).for_each(|(g, v)| self.states[*g].add(*v));
            return Ok(());
        }
        for (row, group) in groups.iter().enumerate() {
            if counts(values, filter, row) {
                self.states[*group].add(values.value(row));
            }
        }
        Ok(())
    }
    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<Int64Type>();
        let of = |row| if counts(values, filter, row) { Sum { sum: values.value(row).into(), count: 1 } } else { Sum::default() };
        Ok(state_columns(&(0..values.len()).map(of).collect::<Vec<_>>()))
    }
    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let sums = emit.take_needed(&mut self.states);
        Ok(Arc::new(sums.iter().map(Sum::result).collect::<Result<Int64Array>>()?))
    }
    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(state_columns(&emit.take_needed(&mut self.states)))
    }
    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.states.resize(total, Sum::default());
        groups.iter().enumerate().for_each(|(row, group)| self.states[*group].merge(values, row));
        Ok(())
    }
    fn size(&self) -> usize {
        self.states.capacity() * size_of::<Sum>()
    }
}

/// The sum of different values: DataFusion's accumulator gathers them, only its sum is another.
#[derive(Debug)]
pub(crate) struct Distinct(pub Box<dyn Accumulator>);

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut all = One::default();
        for state in self.0.state()? {
            // One row that holds the list of the values.
            let lists = state.to_array()?;
            for values in lists.as_list::<i32>().iter().flatten() {
                all.update_batch(&[values])?;
            }
        }
        all.evaluate()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }
}

#[cfg(test)]
mod tests;
