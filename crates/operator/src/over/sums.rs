//! COUNT, SUM, AVG, STDDEV and VAR over sliding frames: a value that leaves is taken back.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Decimal128Type, Float32Type, Float64Type, Int64Type};
use tidemill_plan::aggregate::variance::{Moments, Statistic};
use tidemill_plan::float_sum::FloatSum;

use super::cell::{Cell, primitives};
use super::column::{Column, Lane};
use super::op::{Driver, Kernel, Op, grow};
use crate::OperatorError;
use crate::aggregate::{AggregateCall, overflow};

/// A kind of sum.
trait Adder: Send {
    type In: Copy;
    type Out: ArrowPrimitiveType;
    type State: Clone + Default + Send;
    fn add(state: &mut Self::State, value: Self::In);
    fn take(state: &mut Self::State, value: Self::In);
    /// The answer for `count` values, which are not 0.
    ///
    /// # Errors
    /// Overflow, with nothing to say about it.
    fn answer(&self, state: &Self::State, count: i64) -> Result<Option<<Self::Out as ArrowPrimitiveType>::Native>, ()>;
}

/// The sum and the count of each key's values in the frame.
struct Sum<A: Adder> {
    adder: A,
    states: Vec<(A::State, i64)>,
    output: DataType,
}

impl<C: Cell<Item = A::In>, A: Adder> Op<C> for Sum<A> {
    type Answer = <A::Out as ArrowPrimitiveType>::Native;
    const WANTS_VALUES: bool = true;

    #[inline]
    fn enter(&mut self, slot: u32, _place: u32, value: &C::Item, is_valid: bool) -> Result<(), OperatorError> {
        if is_valid {
            let (state, count) = &mut self.states[slot as usize];
            A::add(state, *value);
            *count += 1;
        }
        Ok(())
    }

    #[inline]
    fn leave(&mut self, slot: u32, _place: u32, value: &C::Item, is_valid: bool) -> Result<(), OperatorError> {
        if is_valid {
            let (state, count) = &mut self.states[slot as usize];
            A::take(state, *value);
            *count -= 1;
            if *count == 0 {
                // An empty frame is empty to the last bit.
                *state = A::State::default();
            }
        }
        Ok(())
    }

    #[inline]
    fn answer(&mut self, slot: u32, _column: &Column<C::Item>) -> Result<Option<Self::Answer>, OperatorError> {
        let (state, count) = &self.states[slot as usize];
        if *count == 0 {
            return Ok(None);
        }
        self.adder.answer(state, *count).map_err(|()| overflow(&self.output))
    }

    fn array(answers: Lane<Self::Answer>, data_type: &DataType) -> Result<ArrayRef, OperatorError> {
        Ok(primitives::<A::Out>(answers, data_type))
    }

    fn resize(&mut self, slots: usize) {
        grow(&mut self.states, slots);
    }

    fn clear(&mut self, slot: u32) {
        self.states[slot as usize] = Default::default();
    }

    fn memory(&self) -> usize {
        self.states.capacity() * size_of::<(A::State, i64)>()
    }
}

fn sum<C: Cell<Item = A::In>, A: Adder + 'static>(adder: A, call: &AggregateCall) -> Box<dyn Kernel<C>> {
    let output = call.output.data_type();
    Box::new(Driver::new(Sum { adder, states: Vec::new(), output: output.clone() }, output))
}

struct Integers;

impl Adder for Integers {
    type In = i64;
    type Out = Int64Type;
    /// Wider than the answer: the order in which values come and go must not decide on overflow.
    type State = i128;
    #[inline]
    fn add(state: &mut i128, value: i64) {
        *state += i128::from(value);
    }
    #[inline]
    fn take(state: &mut i128, value: i64) {
        *state -= i128::from(value);
    }
    #[inline]
    fn answer(&self, state: &i128, _count: i64) -> Result<Option<i64>, ()> {
        i64::try_from(*state).map(Some).map_err(|_| ())
    }
}

struct Decimals;

impl Adder for Decimals {
    type In = i128;
    type Out = Decimal128Type;
    type State = i128;
    #[inline]
    fn add(state: &mut i128, value: i128) {
        *state = state.wrapping_add(value);
    }
    #[inline]
    fn take(state: &mut i128, value: i128) {
        *state = state.wrapping_sub(value);
    }
    #[inline]
    fn answer(&self, state: &i128, _count: i64) -> Result<Option<i128>, ()> {
        Ok(Some(*state))
    }
}

/// SUM, or with `average` AVG, of floating-point numbers.
struct Floats<T> {
    average: bool,
    of: PhantomData<T>,
}

macro_rules! floats {
    ($type:ident, $native:ident) => {
        impl Adder for Floats<$type> {
            type In = $native;
            type Out = $type;
            type State = FloatSum;
            #[inline]
            fn add(state: &mut FloatSum, value: $native) {
                state.add(value.into());
            }
            #[inline]
            fn take(state: &mut FloatSum, value: $native) {
                state.subtract(value.into());
            }
            #[inline]
            fn answer(&self, state: &FloatSum, count: i64) -> Result<Option<$native>, ()> {
                let sum = state.value();
                Ok(Some((if self.average { sum / count as f64 } else { sum }) as $native))
            }
        }
    };
}
floats!(Float64Type, f64);
floats!(Float32Type, f32);

impl Adder for Statistic {
    type In = f64;
    type Out = Float64Type;
    type State = Moments;
    #[inline]
    fn add(state: &mut Moments, value: f64) {
        state.add(value);
    }
    #[inline]
    fn take(state: &mut Moments, value: f64) {
        state.subtract(value);
    }
    #[inline]
    fn answer(&self, state: &Moments, _count: i64) -> Result<Option<f64>, ()> {
        Ok(state.value(*self))
    }
}

/// The kernel of a call over BIGINT.
pub(super) fn integers(call: &AggregateCall) -> Option<Box<dyn Kernel<Int64Type>>> {
    (call.name == "sum" && *call.output.data_type() == DataType::Int64).then(|| sum(Integers, call))
}

/// The kernel of a call over DECIMAL.
pub(super) fn decimals(call: &AggregateCall) -> Option<Box<dyn Kernel<Decimal128Type>>> {
    (call.name == "sum" && matches!(call.output.data_type(), DataType::Decimal128(..))).then(|| sum(Decimals, call))
}

/// The kernel of a call over DOUBLE.
pub(super) fn doubles(call: &AggregateCall) -> Option<Box<dyn Kernel<Float64Type>>> {
    if *call.output.data_type() != DataType::Float64 {
        return None;
    }
    if let Some(statistic) = Statistic::named(&call.name) {
        return Some(sum(statistic, call));
    }
    let average = call.name == "avg";
    (average || call.name == "sum").then(|| sum(Floats::<Float64Type> { average, of: PhantomData }, call))
}

/// The kernel of a call over FLOAT.
pub(super) fn floats(call: &AggregateCall) -> Option<Box<dyn Kernel<Float32Type>>> {
    let average = call.name == "avg";
    let fits = (average || call.name == "sum") && *call.output.data_type() == DataType::Float32;
    fits.then(|| sum(Floats::<Float32Type> { average, of: PhantomData }, call))
}

/// `COUNT`: rows whose arguments are not NULL.
#[derive(Default)]
pub(super) struct Count {
    counts: Vec<i64>,
}

impl<C: Cell> Op<C> for Count {
    type Answer = i64;
    const WANTS_VALUES: bool = false;

    #[inline]
    fn enter(&mut self, slot: u32, _place: u32, _value: &C::Item, is_valid: bool) -> Result<(), OperatorError> {
        self.counts[slot as usize] += i64::from(is_valid);
        Ok(())
    }

    #[inline]
    fn leave(&mut self, slot: u32, _place: u32, _value: &C::Item, is_valid: bool) -> Result<(), OperatorError> {
        self.counts[slot as usize] -= i64::from(is_valid);
        Ok(())
    }

    #[inline]
    fn answer(&mut self, slot: u32, _column: &Column<C::Item>) -> Result<Option<i64>, OperatorError> {
        Ok(Some(self.counts[slot as usize]))
    }

    fn array(answers: Lane<i64>, _data_type: &DataType) -> Result<ArrayRef, OperatorError> {
        Ok(Arc::new(Int64Array::from(answers.values)))
    }

    fn resize(&mut self, slots: usize) {
        grow(&mut self.counts, slots);
    }

    fn clear(&mut self, slot: u32) {
        self.counts[slot as usize] = 0;
    }

    fn memory(&self) -> usize {
        self.counts.capacity() * 8
    }
}
