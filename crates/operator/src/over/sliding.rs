//! Aggregates over sliding frames: add, take back, answer, at O(1) a row.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, AsArray, BooleanArray, Int64Array, PrimitiveArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType, TimeUnit};
use datafusion_common::ScalarValue;
use datafusion_expr::Accumulator;

use super::frame::Plan;
use crate::OperatorError;
use crate::aggregate::AggregateCall;
use tidemill_plan::float_sum::FloatSum;

/// The state of one call over all frames.
pub(super) trait Sliding: Send {
    /// Runs through the steps of a plan; the answers of its rows.
    fn run(&mut self, plan: &Plan, slots: usize, values: &[ArrayRef], mask: Option<&BooleanArray>) -> Result<ArrayRef, OperatorError>;
    /// Takes rows back without answering any.
    fn evict(&mut self, plan: &Plan) -> Result<(), OperatorError>;
    /// A key is gone.
    fn clear(&mut self, slot: u32);
    /// The values of live rows as columns.
    fn save(&mut self, ids: &[u32]) -> Result<Vec<ArrayRef>, OperatorError>;
    /// Enters the rows of a plan with saved values.
    fn load(&mut self, plan: &Plan, slots: usize, columns: &[ArrayRef]) -> Result<(), OperatorError>;
    fn memory(&self) -> usize;
}

/// The sliding form of a call.
///
/// # Errors
/// A function that cannot take values back.
pub(super) fn sliding(call: &AggregateCall) -> Result<Box<dyn Sliding>, OperatorError> {
    use arrow::datatypes::{Decimal128Type, Float32Type, Float64Type, Int64Type};
    let output = call.output.data_type().clone();
    let input = call.argument_types.first().cloned();
    let plain = !call.distinct;
    Ok(match (call.name.as_str(), &input) {
        ("count", _) if plain => Box::new(Count::default()),
        ("sum", Some(DataType::Int64)) if plain => Box::new(Sum::<Int64Type, i128, Int64Type>::new(
            output,
            |s, v| *s += i128::from(v),
            |s, v| *s -= i128::from(v),
            |s, _| i64::try_from(*s).ok(),
        )),
        ("sum", Some(DataType::Decimal128(..))) if plain => Box::new(Sum::<Decimal128Type, i128, Decimal128Type>::new(
            output,
            |s, v| *s = s.wrapping_add(v),
            |s, v| *s = s.wrapping_sub(v),
            |s, _| Some(*s),
        )),
        ("sum", Some(DataType::Float64)) if plain => {
            Box::new(Sum::<Float64Type, FloatSum, Float64Type>::new(output, |s, v| s.add(v), |s, v| s.subtract(v), |s, _| Some(s.value())))
        }
        ("sum", Some(DataType::Float32)) if plain => Box::new(Sum::<Float32Type, FloatSum, Float32Type>::new(
            output,
            |s, v| s.add(v.into()),
            |s, v| s.subtract(v.into()),
            |s, _| Some(s.value() as f32),
        )),
        ("avg", Some(DataType::Float64)) if plain => Box::new(Sum::<Float64Type, FloatSum, Float64Type>::new(
            output,
            |s, v| s.add(v),
            |s, v| s.subtract(v),
            |s, n| Some(s.value() / n as f64),
        )),
        ("avg", Some(DataType::Float32)) if plain => Box::new(Sum::<Float32Type, FloatSum, Float32Type>::new(
            output,
            |s, v| s.add(v.into()),
            |s, v| s.subtract(v.into()),
            |s, n| Some((s.value() / n as f64) as f32),
        )),
        ("min" | "max", Some(t)) if extreme(call.name == "max", t, &output).is_some() => {
            extreme(call.name == "max", t, &output).expect("checked")
        }
        _ => Box::new(Fallback::new(call.clone())?),
    })
}

fn extreme(largest: bool, input: &DataType, output: &DataType) -> Option<Box<dyn Sliding>> {
    macro_rules! kinds {
        ($($pattern:pat => $type:ident),* $(,)?) => {
            match input {
                $($pattern => Some(Box::new(Extreme::<arrow::datatypes::$type>::new(largest, output.clone()))),)*
                _ => None,
            }
        };
    }
    kinds! {
        DataType::Int64 => Int64Type,
        DataType::Int32 => Int32Type,
        DataType::Int16 => Int16Type,
        DataType::Int8 => Int8Type,
        DataType::Float64 => Float64Type,
        DataType::Float32 => Float32Type,
        DataType::Decimal128(..) => Decimal128Type,
        DataType::Date32 => Date32Type,
        DataType::Timestamp(TimeUnit::Second, _) => TimestampSecondType,
        DataType::Timestamp(TimeUnit::Millisecond, _) => TimestampMillisecondType,
        DataType::Timestamp(TimeUnit::Microsecond, _) => TimestampMicrosecondType,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => TimestampNanosecondType,
    }
}

#[inline]
fn counts(mask: Option<&BooleanArray>, row: usize) -> bool {
    mask.is_none_or(|m| m.is_valid(row) && m.value(row))
}

/// Grows a column so that it can be indexed by everything in a plan.
fn grow<T: Clone + Default>(column: &mut Vec<T>, plan: &Plan) {
    let needed = plan.entered.iter().map(|(id, _)| *id as usize + 1).max().unwrap_or(0);
    if column.len() < needed {
        column.resize(needed, T::default());
    }
}

/// `COUNT`.
#[derive(Default)]
struct Count {
    counted: Vec<bool>,
    counts: Vec<i64>,
}

impl Count {
    fn enter(&mut self, plan: &Plan, slots: usize, counted: impl Fn(usize) -> bool) -> Vec<i64> {
        grow(&mut self.counted, plan);
        self.counts.resize(slots.max(self.counts.len()), 0);
        let mut answers = Vec::with_capacity(plan.entered.len());
        let (mut evicted, mut entered) = (0, 0);
        for &(e, r) in &plan.steps {
            for &(id, slot) in &plan.evicted[evicted..e as usize] {
                self.counts[slot as usize] -= i64::from(self.counted[id as usize]);
            }
            for row in entered..r as usize {
                let (id, slot) = plan.entered[row];
                let yes = counted(row);
                self.counted[id as usize] = yes;
                self.counts[slot as usize] += i64::from(yes);
            }
            answers.extend(plan.entered[entered..r as usize].iter().map(|(_, slot)| self.counts[*slot as usize]));
            (evicted, entered) = (e as usize, r as usize);
        }
        answers
    }
}

impl Sliding for Count {
    fn run(&mut self, plan: &Plan, slots: usize, values: &[ArrayRef], mask: Option<&BooleanArray>) -> Result<ArrayRef, OperatorError> {
        let nulls: Vec<_> = values.iter().filter_map(|v| v.logical_nulls()).filter(|n| n.null_count() > 0).collect();
        Ok(Arc::new(Int64Array::from(self.enter(plan, slots, |row| nulls.iter().all(|n| n.is_valid(row)) && counts(mask, row)))))
    }

    fn evict(&mut self, plan: &Plan) -> Result<(), OperatorError> {
        for &(id, slot) in &plan.evicted {
            self.counts[slot as usize] -= i64::from(self.counted[id as usize]);
        }
        Ok(())
    }

    fn clear(&mut self, slot: u32) {
        self.counts[slot as usize] = 0;
    }

    fn save(&mut self, ids: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(vec![Arc::new(ids.iter().map(|id| Some(self.counted[*id as usize])).collect::<BooleanArray>())])
    }

    fn load(&mut self, plan: &Plan, slots: usize, columns: &[ArrayRef]) -> Result<(), OperatorError> {
        let counted = columns[0].as_boolean();
        self.enter(plan, slots, |row| counted.value(row));
        Ok(())
    }

    fn memory(&self) -> usize {
        self.counted.capacity() + self.counts.capacity() * 8
    }
}

/// SUM and AVG: a state that values can be taken out of again.
struct Sum<I: ArrowPrimitiveType, S, O: ArrowPrimitiveType> {
    values: Vec<Option<I::Native>>,
    states: Vec<(S, i64)>,
    add: fn(&mut S, I::Native),
    take: fn(&mut S, I::Native),
    /// `None` on overflow.
    result: fn(&S, i64) -> Option<O::Native>,
    output: DataType,
}

impl<I: ArrowPrimitiveType, S: Clone + Default, O: ArrowPrimitiveType> Sum<I, S, O> {
    fn new(output: DataType, add: fn(&mut S, I::Native), take: fn(&mut S, I::Native), result: fn(&S, i64) -> Option<O::Native>) -> Self {
        Sum { values: Vec::new(), states: Vec::new(), add, take, result, output }
    }

    #[inline]
    fn leave(&mut self, id: u32, slot: u32) {
        if let Some(value) = self.values[id as usize] {
            let state = &mut self.states[slot as usize];
            (self.take)(&mut state.0, value);
            state.1 -= 1;
        }
    }

    fn enter(
        &mut self,
        plan: &Plan,
        slots: usize,
        column: &PrimitiveArray<I>,
        mask: Option<&BooleanArray>,
    ) -> Result<PrimitiveArray<O>, OperatorError> {
        grow(&mut self.values, plan);
        self.states.resize(slots.max(self.states.len()), Default::default());
        let mut answers = Vec::with_capacity(plan.entered.len());
        let (mut evicted, mut entered) = (0, 0);
        for &(e, r) in &plan.steps {
            for &(id, slot) in &plan.evicted[evicted..e as usize] {
                self.leave(id, slot);
            }
            for row in entered..r as usize {
                let (id, slot) = plan.entered[row];
                let value = (column.is_valid(row) && counts(mask, row)).then(|| column.value(row));
                self.values[id as usize] = value;
                if let Some(value) = value {
                    let state = &mut self.states[slot as usize];
                    (self.add)(&mut state.0, value);
                    state.1 += 1;
                }
            }
            for (_, slot) in &plan.entered[entered..r as usize] {
                let (state, count) = &self.states[*slot as usize];
                let answer = (*count != 0).then(|| (self.result)(state, *count));
                if answer == Some(None) {
                    return Err(crate::aggregate::overflow(&self.output));
                }
                answers.push(answer.flatten());
            }
            (evicted, entered) = (e as usize, r as usize);
        }
        Ok(answers.into_iter().collect::<PrimitiveArray<O>>().with_data_type(self.output.clone()))
    }
}

impl<I: ArrowPrimitiveType, S: Clone + Default + Send, O: ArrowPrimitiveType> Sliding for Sum<I, S, O> {
    fn run(&mut self, plan: &Plan, slots: usize, values: &[ArrayRef], mask: Option<&BooleanArray>) -> Result<ArrayRef, OperatorError> {
        Ok(Arc::new(self.enter(plan, slots, values[0].as_primitive::<I>(), mask)?))
    }

    fn evict(&mut self, plan: &Plan) -> Result<(), OperatorError> {
        plan.evicted.iter().for_each(|(id, slot)| self.leave(*id, *slot));
        Ok(())
    }

    fn clear(&mut self, slot: u32) {
        self.states[slot as usize] = Default::default();
    }

    fn save(&mut self, ids: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let values: PrimitiveArray<I> = ids.iter().map(|id| self.values[*id as usize]).collect();
        Ok(vec![Arc::new(values)])
    }

    fn load(&mut self, plan: &Plan, slots: usize, columns: &[ArrayRef]) -> Result<(), OperatorError> {
        self.enter(plan, slots, columns[0].as_primitive::<I>(), None).map(drop)
    }

    fn memory(&self) -> usize {
        self.values.capacity() * size_of::<Option<I::Native>>() + self.states.capacity() * size_of::<(S, i64)>()
    }
}

/// MIN and MAX: for each key the values that can still become the answer, best first (the
/// monotonic queue of sliding-window minima).
struct Extreme<T: ArrowPrimitiveType> {
    largest: bool,
    values: Vec<Option<T::Native>>,
    queues: Vec<VecDeque<(u32, T::Native)>>,
    output: DataType,
}

impl<T: ArrowPrimitiveType> Extreme<T> {
    fn new(largest: bool, output: DataType) -> Self {
        Extreme { largest, values: Vec::new(), queues: Vec::new(), output }
    }

    #[inline]
    fn leave(&mut self, id: u32, slot: u32) {
        let queue = &mut self.queues[slot as usize];
        if queue.front().is_some_and(|(front, _)| *front == id) {
            queue.pop_front();
        }
    }

    fn enter(&mut self, plan: &Plan, slots: usize, column: &PrimitiveArray<T>, mask: Option<&BooleanArray>) -> PrimitiveArray<T> {
        grow(&mut self.values, plan);
        self.queues.resize_with(slots.max(self.queues.len()), VecDeque::new);
        let mut answers = Vec::with_capacity(plan.entered.len());
        let (mut evicted, mut entered) = (0, 0);
        for &(e, r) in &plan.steps {
            for &(id, slot) in &plan.evicted[evicted..e as usize] {
                self.leave(id, slot);
            }
            for row in entered..r as usize {
                let (id, slot) = plan.entered[row];
                let value = (column.is_valid(row) && counts(mask, row)).then(|| column.value(row));
                self.values[id as usize] = value;
                let Some(value) = value else { continue };
                let queue = &mut self.queues[slot as usize];
                while queue.back().is_some_and(|(_, last)| if self.largest { last.is_le(value) } else { last.is_ge(value) }) {
                    queue.pop_back();
                }
                queue.push_back((id, value));
            }
            answers.extend(plan.entered[entered..r as usize].iter().map(|(_, slot)| self.queues[*slot as usize].front().map(|(_, v)| *v)));
            (evicted, entered) = (e as usize, r as usize);
        }
        answers.into_iter().collect::<PrimitiveArray<T>>().with_data_type(self.output.clone())
    }
}

impl<T: ArrowPrimitiveType> Sliding for Extreme<T> {
    fn run(&mut self, plan: &Plan, slots: usize, values: &[ArrayRef], mask: Option<&BooleanArray>) -> Result<ArrayRef, OperatorError> {
        Ok(Arc::new(self.enter(plan, slots, values[0].as_primitive::<T>(), mask)))
    }

    fn evict(&mut self, plan: &Plan) -> Result<(), OperatorError> {
        plan.evicted.iter().for_each(|(id, slot)| self.leave(*id, *slot));
        Ok(())
    }

    fn clear(&mut self, slot: u32) {
        self.queues[slot as usize] = VecDeque::new();
    }

    fn save(&mut self, ids: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let values: PrimitiveArray<T> = ids.iter().map(|id| self.values[*id as usize]).collect();
        Ok(vec![Arc::new(values.with_data_type(self.output.clone()))])
    }

    fn load(&mut self, plan: &Plan, slots: usize, columns: &[ArrayRef]) -> Result<(), OperatorError> {
        self.enter(plan, slots, columns[0].as_primitive::<T>(), None);
        Ok(())
    }

    fn memory(&self) -> usize {
        self.values.capacity() * size_of::<Option<T::Native>>()
            + self.queues.iter().map(|q| q.capacity() * size_of::<(u32, T::Native)>() + 32).sum::<usize>()
    }
}

/// DataFusion's retractable accumulators, one a key.
struct Fallback {
    call: AggregateCall,
    rows: Vec<Option<Vec<ScalarValue>>>,
    states: Vec<Option<Box<dyn Accumulator>>>,
}

impl Fallback {
    fn new(call: AggregateCall) -> Result<Self, OperatorError> {
        if call.distinct || !call.function.create_sliding_accumulator()?.supports_retract_batch() {
            return Err(OperatorError::new(format!(
                "{}{} is not supported in an OVER with a sliding frame, because it cannot take values back; COUNT, SUM, AVG, MIN, MAX, STDDEV and VAR are",
                call.name.to_uppercase(),
                if call.distinct { "(DISTINCT …)" } else { "" }
            )));
        }
        Ok(Fallback { call, rows: Vec::new(), states: Vec::new() })
    }

    fn state(&mut self, slot: u32) -> Result<&mut Box<dyn Accumulator>, OperatorError> {
        if self.states[slot as usize].is_none() {
            self.states[slot as usize] = Some(self.call.function.create_sliding_accumulator()?);
        }
        Ok(self.states[slot as usize].as_mut().expect("made above"))
    }

    fn leave(&mut self, id: u32, slot: u32) -> Result<(), OperatorError> {
        if let Some(row) = self.rows[id as usize].take() {
            let arrays = row.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>, _>>()?;
            self.state(slot)?.retract_batch(&arrays)?;
        }
        Ok(())
    }
}

impl Sliding for Fallback {
    fn run(&mut self, plan: &Plan, slots: usize, values: &[ArrayRef], mask: Option<&BooleanArray>) -> Result<ArrayRef, OperatorError> {
        let needed = plan.entered.iter().map(|(id, _)| *id as usize + 1).max().unwrap_or(0);
        self.rows.resize(needed.max(self.rows.len()), None);
        self.states.resize_with(slots.max(self.states.len()), || None);
        let mut answers = Vec::with_capacity(plan.entered.len());
        let (mut evicted, mut entered) = (0, 0);
        for &(e, r) in &plan.steps {
            for &(id, slot) in &plan.evicted[evicted..e as usize] {
                self.leave(id, slot)?;
            }
            for row in entered..r as usize {
                let (id, slot) = plan.entered[row];
                if counts(mask, row) {
                    let arrays: Vec<ArrayRef> = values.iter().map(|v| v.slice(row, 1)).collect();
                    self.state(slot)?.update_batch(&arrays)?;
                    self.rows[id as usize] = Some(values.iter().map(|v| ScalarValue::try_from_array(v, row)).collect::<Result<_, _>>()?);
                } else {
                    self.rows[id as usize] = None;
                }
            }
            for (_, slot) in &plan.entered[entered..r as usize] {
                answers.push(self.state(*slot)?.evaluate()?);
            }
            (evicted, entered) = (e as usize, r as usize);
        }
        if answers.is_empty() {
            return Ok(arrow::array::new_empty_array(self.call.output.data_type()));
        }
        Ok(ScalarValue::iter_to_array(answers)?)
    }

    fn evict(&mut self, plan: &Plan) -> Result<(), OperatorError> {
        plan.evicted.iter().try_for_each(|(id, slot)| self.leave(*id, *slot))
    }

    fn clear(&mut self, slot: u32) {
        self.states[slot as usize] = None;
    }

    fn save(&mut self, ids: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let present: BooleanArray = ids.iter().map(|id| Some(self.rows[*id as usize].is_some())).collect();
        let mut out: Vec<ArrayRef> = vec![Arc::new(present)];
        for (i, t) in self.call.argument_types.iter().enumerate() {
            let null = ScalarValue::try_from(t)?;
            let values: Vec<ScalarValue> =
                ids.iter().map(|id| self.rows[*id as usize].as_ref().map_or(null.clone(), |r| r[i].clone())).collect();
            out.push(if values.is_empty() { arrow::array::new_empty_array(t) } else { ScalarValue::iter_to_array(values)? });
        }
        Ok(out)
    }

    fn load(&mut self, plan: &Plan, slots: usize, columns: &[ArrayRef]) -> Result<(), OperatorError> {
        self.run(plan, slots, &columns[1..], Some(columns[0].as_boolean())).map(drop)
    }

    fn memory(&self) -> usize {
        self.rows.iter().flatten().map(|r| r.len() * size_of::<ScalarValue>()).sum::<usize>()
            + self.states.iter().flatten().map(|s| s.size()).sum::<usize>()
    }
}
