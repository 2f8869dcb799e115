//! SUM and AVG of floating-point numbers for batch plans, with the same sums as the stream's
//! operators ([`crate::float_sum`]): the result does not depend on order or parallelism. And SUM of
//! BIGINT, which says when it overflows (`whole_sum`).

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int32Type, Int64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature};

use crate::float_sum::FloatSum;
use crate::whole_sum;

/// `sum` and `avg`: DataFusion's but for FLOAT, DOUBLE and sums of BIGINT.
pub fn aggregate_functions() -> Vec<Arc<AggregateUDF>> {
    use datafusion_functions_aggregate::{average::avg_udaf, sum::sum_udaf};
    [(sum_udaf(), false), (avg_udaf(), true)]
        .into_iter()
        .map(|(inner, average)| Arc::new(AggregateUDF::new_from_impl(Exact { inner, average })))
        .collect()
}

#[derive(Debug)]
struct Exact {
    inner: Arc<AggregateUDF>,
    average: bool,
}

/// Which of the two it is says all. Plans are compared and hashed often while they are made, and with the signatures that
/// `inner` holds that was a sixth of the time that planning of a hundred sums took.
impl PartialEq for Exact {
    fn eq(&self, other: &Self) -> bool {
        self.average == other.average
    }
}

impl Eq for Exact {}

impl Hash for Exact {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.average.hash(state);
    }
}

fn floats(args: &AccumulatorArgs) -> bool {
    !args.is_distinct && args.expr_fields.first().is_some_and(|f| matches!(f.data_type(), DataType::Float32 | DataType::Float64))
}

impl Exact {
    /// Whether this is a sum of BIGINT.
    fn whole(&self, argument: Option<&FieldRef>) -> bool {
        !self.average && argument.is_some_and(|f| *f.data_type() == DataType::Int64)
    }
}

impl AggregateUDFImpl for Exact {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }
    fn signature(&self) -> &Signature {
        self.inner.signature()
    }
    /// FLOAT stays FLOAT, as in Flink.
    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        match args {
            [DataType::Float32] => Ok(DataType::Float32),
            _ => self.inner.return_type(args),
        }
    }
    fn coerce_types(&self, args: &[DataType]) -> Result<Vec<DataType>> {
        match args {
            [DataType::Float32] => Ok(args.to_vec()),
            _ => self.inner.coerce_types(args),
        }
    }
    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if self.whole(args.expr_fields.first()) {
            let distinct = args.is_distinct;
            return Ok(if distinct {
                Box::new(whole_sum::Distinct(self.inner.accumulator(args)?))
            } else {
                Box::new(whole_sum::One::default())
            });
        }
        if !floats(&args) {
            return self.inner.accumulator(args);
        }
        Ok(Box::new(One { state: Counted::default(), average: self.average, narrow: args.return_field.data_type() == &DataType::Float32 }))
    }
    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let own = floats(&args) || (!args.is_distinct && self.whole(args.expr_fields.first()));
        if own { self.accumulator(args) } else { self.inner.create_sliding_accumulator(args) }
    }
    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let float = args.input_fields.first().is_some_and(|f| matches!(f.data_type(), DataType::Float32 | DataType::Float64));
        if !args.is_distinct && self.whole(args.input_fields.first()) {
            return Ok(whole_sum::state_fields(args.name));
        }
        if args.is_distinct || !float {
            return self.inner.state_fields(args);
        }
        let kinds = [
            ("high", DataType::Float64),
            ("low", DataType::Float64),
            ("infinities", DataType::Int32),
            ("negative_infinities", DataType::Int32),
            ("nans", DataType::Int32),
            ("count", DataType::Int64),
        ];
        Ok(kinds.into_iter().map(|(name, kind)| Arc::new(Field::new(format!("{}[{name}]", args.name), kind, true))).collect())
    }
    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        floats(&args) || self.inner.groups_accumulator_supported(args)
    }
    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if self.whole(args.expr_fields.first()) {
            return Ok(Box::new(whole_sum::Groups::default()));
        }
        if !floats(&args) {
            return self.inner.create_groups_accumulator(args);
        }
        Ok(Box::new(Groups { states: Vec::new(), average: self.average, narrow: args.return_field.data_type() == &DataType::Float32 }))
    }
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    sum: FloatSum,
    count: i64,
}

impl Counted {
    #[inline]
    fn add(&mut self, value: f64) {
        self.sum.add(value);
        self.count += 1;
    }

    fn result(&self, average: bool) -> Option<f64> {
        (self.count != 0).then(|| if average { self.sum.value() / self.count as f64 } else { self.sum.value() })
    }

    fn merge(&mut self, columns: &States<'_>, row: usize) {
        let odd = [columns.odd[0].value(row), columns.odd[1].value(row), columns.odd[2].value(row)];
        self.sum.merge(&FloatSum::from_parts(columns.high.value(row), columns.low.value(row), odd));
        self.count += columns.count.value(row);
    }
}

/// State columns, typed.
struct States<'a> {
    high: &'a Float64Array,
    low: &'a Float64Array,
    odd: [&'a Int32Array; 3],
    count: &'a Int64Array,
}

impl<'a> States<'a> {
    fn of(columns: &'a [ArrayRef]) -> Self {
        States {
            high: columns[0].as_primitive::<Float64Type>(),
            low: columns[1].as_primitive::<Float64Type>(),
            odd: [columns[2].as_primitive::<Int32Type>(), columns[3].as_primitive::<Int32Type>(), columns[4].as_primitive::<Int32Type>()],
            count: columns[5].as_primitive::<Int64Type>(),
        }
    }
}

fn state_columns(states: &[Counted]) -> Vec<ArrayRef> {
    let parts: Vec<_> = states.iter().map(|s| s.sum.parts()).collect();
    let odd = |i: usize| Arc::new(parts.iter().map(|p| p.2[i]).collect::<Int32Array>()) as ArrayRef;
    vec![
        Arc::new(parts.iter().map(|p| p.0).collect::<Float64Array>()),
        Arc::new(parts.iter().map(|p| p.1).collect::<Float64Array>()),
        odd(0),
        odd(1),
        odd(2),
        Arc::new(states.iter().map(|s| s.count).collect::<Int64Array>()),
    ]
}

/// Values as DOUBLE; exact for FLOAT.
fn doubles(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(if values.data_type() == &DataType::Float64 { values.clone() } else { cast(values, &DataType::Float64)? })
}

#[derive(Debug)]
struct One {
    state: Counted,
    average: bool,
    narrow: bool,
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = doubles(&values[0])?;
        values.as_primitive::<Float64Type>().iter().flatten().for_each(|v| self.state.add(v));
        Ok(())
    }
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = doubles(&values[0])?;
        for value in values.as_primitive::<Float64Type>().iter().flatten() {
            self.state.sum.subtract(value);
            self.state.count -= 1;
        }
        Ok(())
    }
    fn supports_retract_batch(&self) -> bool {
        true
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let result = self.state.result(self.average);
        Ok(if self.narrow { ScalarValue::Float32(result.map(|v| v as f32)) } else { ScalarValue::Float64(result) })
    }
    fn size(&self) -> usize {
        size_of::<Self>()
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        state_columns(&[self.state]).iter().map(|c| ScalarValue::try_from_array(c, 0)).collect()
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let columns = States::of(states);
        (0..columns.count.len()).for_each(|row| self.state.merge(&columns, row));
        Ok(())
    }
}

struct Groups {
    states: Vec<Counted>,
    average: bool,
    narrow: bool,
}

impl Groups {
    fn take(&mut self, emit: EmitTo) -> Vec<Counted> {
        emit.take_needed(&mut self.states)
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(&mut self, values: &[ArrayRef], groups: &[usize], filter: Option<&BooleanArray>, total: usize) -> Result<()> {
        self.states.resize(total, Counted::default());
        let values = doubles(&values[0])?;
        let values = values.as_primitive::<Float64Type>();
        if values.null_count() == 0 && filter.is_none() {
            groups.iter().zip(values.values()).for_each(|(g, v)| self.states[*g].add(*v));
            return Ok(());
        }
        for (row, group) in groups.iter().enumerate() {
            if values.is_valid(row) && filter.is_none_or(|f| f.is_valid(row) && f.value(row)) {
                self.states[*group].add(values.value(row));
            }
        }
        Ok(())
    }
    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let (average, narrow) = (self.average, self.narrow);
        let results = self.take(emit).into_iter().map(|s| s.result(average));
        Ok(if narrow {
            Arc::new(results.map(|r| r.map(|v| v as f32)).collect::<Float32Array>())
        } else {
            Arc::new(results.collect::<Float64Array>())
        })
    }
    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(state_columns(&self.take(emit)))
    }
    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.states.resize(total, Counted::default());
        let columns = States::of(values);
        groups.iter().enumerate().for_each(|(row, group)| self.states[*group].merge(&columns, row));
        Ok(())
    }
    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = doubles(&values[0])?;
        let values = values.as_primitive::<Float64Type>();
        let states: Vec<Counted> = (0..values.len())
            .map(|row| {
                let mut state = Counted::default();
                if values.is_valid(row) && filter.is_none_or(|f| f.is_valid(row) && f.value(row)) {
                    state.add(values.value(row));
                }
                state
            })
            .collect();
        Ok(state_columns(&states))
    }
    fn size(&self) -> usize {
        self.states.capacity() * size_of::<Counted>()
    }
}
