//! PERCENTILE: exact, by linear interpolation between the two nearest values, with as many values of
//! each row as it says. A value can be taken back.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion_common::{DataFusionError, Result, ScalarValue, plan_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{Accumulator, AggregateUDFImpl, ReversedUDAF, Signature, Volatility};

use super::listagg::constant;

/// `PERCENTILE(value, p [, frequency])`: p is a constant from 0 to 1, or an ARRAY of such; then the
/// result is an ARRAY. A row counts `frequency` times.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Percentile {
    signature: Signature,
}

impl Default for Percentile {
    fn default() -> Self {
        Percentile { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

fn is_list(t: &DataType) -> bool {
    matches!(t, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

impl AggregateUDFImpl for Percentile {
    fn name(&self) -> &str {
        "percentile"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, args: &[DataType]) -> Result<Vec<DataType>> {
        let number = |t: &DataType| t.is_numeric() || *t == DataType::Null;
        let (Some(value), Some(share)) = (args.first(), args.get(1)) else {
            return plan_err!("PERCENTILE takes a value, a percentage from 0 to 1, and if wanted a frequency");
        };
        if args.len() > 3 || !number(value) || !(number(share) || is_list(share)) || !args.get(2).is_none_or(DataType::is_integer) {
            return plan_err!(
                "PERCENTILE takes a number, a percentage from 0 to 1 (or an ARRAY of percentages), and if wanted a whole number of times"
            );
        }
        let share = if is_list(share) { list_of(DataType::Float64) } else { DataType::Float64 };
        Ok([DataType::Float64, share].into_iter().chain(args.get(2).map(|_| DataType::Int64)).collect())
    }
    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        Ok(if args.get(1).is_some_and(is_list) { list_of(DataType::Float64) } else { DataType::Float64 })
    }
    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let wrong = |e: &dyn std::fmt::Display| DataFusionError::Plan(format!("the percentage of PERCENTILE must be from 0 to 1, not {e}"));
        let share = constant(&args, 1)?.unwrap_or(ScalarValue::Null);
        let many = is_list(&share.data_type());
        let values = share.to_array()?;
        let values =
            if many { cast(&values, &list_of(DataType::Float64))?.as_list::<i32>().value(0) } else { cast(&values, &DataType::Float64)? };
        let values = values.as_primitive::<Float64Type>();
        let mut shares = Vec::with_capacity(values.len());
        for value in values {
            match value {
                Some(share) if (0.0..=1.0).contains(&share) => shares.push(share),
                Some(share) => return Err(wrong(&share)),
                None => return Err(wrong(&"NULL")),
            }
        }
        Ok(Box::new(Values { shares, many, distinct: args.is_distinct, counts: BTreeMap::new() }))
    }
    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let field = |part: &str, t| Arc::new(Field::new(format!("{}[{part}]", args.name), list_of(t), true));
        Ok(vec![field("values", DataType::Float64), field("counts", DataType::Int64)])
    }
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

/// A double in the order of `f64::total_cmp`.
#[derive(Clone, Copy, Debug)]
struct Ordered(f64);

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Ordered {}
impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// How often each value is there. A count is negative where a retraction overtook its insert.
#[derive(Debug)]
struct Values {
    shares: Vec<f64>,
    many: bool,
    distinct: bool,
    counts: BTreeMap<Ordered, i64>,
}

impl Values {
    fn change(&mut self, columns: &[ArrayRef], sign: i64) {
        let values = columns[0].as_primitive::<Float64Type>();
        let times = columns.get(2).map(|c| c.as_primitive::<Int64Type>());
        for (row, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let times = match times {
                None => 1,
                Some(times) if times.is_valid(row) => times.value(row).max(0),
                Some(_) => 0,
            };
            self.add(value, sign * times);
        }
    }

    fn add(&mut self, value: f64, times: i64) {
        if times != 0 {
            let count = self.counts.entry(Ordered(value)).or_insert(0);
            *count += times;
            if *count == 0 {
                self.counts.remove(&Ordered(value));
            }
        }
    }

    fn present(&self) -> impl Iterator<Item = (f64, i64)> {
        let distinct = self.distinct;
        self.counts.iter().filter(|(_, c)| **c > 0).map(move |(v, c)| (v.0, if distinct { 1 } else { *c }))
    }

    /// The value at `share` of the way from the first to the last of `total` values.
    fn at(&self, share: f64, total: i64) -> Option<f64> {
        let place = share * (total - 1) as f64;
        let (low, high) = (place.floor() as i64, place.ceil() as i64);
        let (mut passed, mut lower) = (0, None);
        for (value, count) in self.present() {
            passed += count;
            if lower.is_none() && low < passed {
                lower = Some(value);
            }
            if high < passed {
                let lower = lower?;
                let part = place - low as f64;
                return Some(if part == 0.0 || lower == value { lower } else { lower + (value - lower) * part });
            }
        }
        None
    }
}

fn lists(array: ArrayRef) -> ArrayRef {
    let field = Arc::new(Field::new_list_field(array.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths([array.len()]);
    Arc::new(ListArray::new(field, offsets, array, None))
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.change(values, 1);
        Ok(())
    }
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.change(values, -1);
        Ok(())
    }
    fn supports_retract_batch(&self) -> bool {
        true
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let total: i64 = self.present().map(|(_, c)| c).sum();
        let results: Vec<Option<f64>> = self.shares.iter().map(|share| self.at(*share, total)).collect();
        if !self.many {
            return Ok(ScalarValue::Float64(results.first().copied().flatten()));
        }
        if total == 0 {
            return ScalarValue::try_from(&list_of(DataType::Float64));
        }
        ScalarValue::try_from_array(&lists(Arc::new(Float64Array::from(results))), 0)
    }
    fn size(&self) -> usize {
        size_of::<Self>() + self.shares.capacity() * 8 + self.counts.len() * 24
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = Float64Array::from_iter_values(self.counts.keys().map(|v| v.0));
        let counts = Int64Array::from_iter_values(self.counts.values().copied());
        Ok(vec![ScalarValue::try_from_array(&lists(Arc::new(values)), 0)?, ScalarValue::try_from_array(&lists(Arc::new(counts)), 0)?])
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (values, counts) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            let (values, counts) = (values.value(row), counts.value(row));
            let counts = counts.as_primitive::<Int64Type>();
            for (i, value) in values.as_primitive::<Float64Type>().values().iter().enumerate() {
                self.add(*value, counts.value(i));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(shares: &[f64], many: bool) -> Values {
        Values { shares: shares.to_vec(), many, distinct: false, counts: BTreeMap::new() }
    }

    fn column(values: &[f64]) -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(values.iter().copied()))
    }

    #[track_caller]
    fn check(values: &[f64], share: f64, expect: Option<f64>) {
        let mut accumulator = of(&[share], false);
        accumulator.update_batch(&[column(values), column(&vec![share; values.len()])]).unwrap();
        assert_eq!(accumulator.evaluate().unwrap(), ScalarValue::Float64(expect));
    }

    #[test]
    fn percentiles() {
        check(&[], 0.5, None);
        check(&[7.0], 0.3, Some(7.0));
        check(&[40.0, 10.0, 30.0, 20.0], 0.0, Some(10.0));
        check(&[40.0, 10.0, 30.0, 20.0], 0.5, Some(25.0));
        check(&[40.0, 10.0, 30.0, 20.0], 1.0, Some(40.0));
        check(&[1.0, 1.0, 1.0, 5.0], 0.75, Some(2.0));
    }

    #[test]
    fn values_come_and_go() {
        let mut accumulator = of(&[0.5], false);
        let times = |n: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![n])) };
        let half = column(&[0.5]);
        accumulator.update_batch(&[column(&[1.0]), half.clone(), times(3)]).unwrap();
        accumulator.update_batch(&[column(&[9.0]), half.clone(), times(3)]).unwrap();
        assert_eq!(accumulator.evaluate().unwrap(), ScalarValue::Float64(Some(5.0)));
        accumulator.retract_batch(&[column(&[1.0]), half.clone(), times(1)]).unwrap();
        assert_eq!(accumulator.evaluate().unwrap(), ScalarValue::Float64(Some(9.0)));
        let state: Vec<ArrayRef> = accumulator.state().unwrap().iter().map(|s| s.to_array().unwrap()).collect();
        let mut many = of(&[0.0, 0.25], true);
        many.merge_batch(&state).unwrap();
        let expect = lists(column(&[1.0, 1.0]));
        assert_eq!(many.evaluate().unwrap(), ScalarValue::try_from_array(&expect, 0).unwrap());
    }
}
