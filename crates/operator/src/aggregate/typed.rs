//! COUNT, SUM, AVG, STDDEV and VAR over numbers.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, PrimitiveArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Decimal128Type, Float32Type, Float64Type, Int64Type};

use super::{Accumulator, Rows, pairs};
use crate::OperatorError;
use tidemill_plan::aggregate::variance::{Moments, Statistic};
use tidemill_plan::float_sum::FloatSum;
use tidemill_state::SlotVec;

/// The accumulator for a function of this name and these types, if there is one here.
pub(super) fn accumulator(name: &str, input: Option<&DataType>, output: &DataType) -> Option<Box<dyn Accumulator>> {
    Some(match (name, input, output) {
        ("count", _, DataType::Int64) => Box::new(Count { counts: SlotVec::new() }),
        ("sum", Some(DataType::Int64), DataType::Int64) => Box::new(Typed::<SumInt>::new(output)),
        ("sum", Some(DataType::Decimal128(..)), DataType::Decimal128(..)) => Box::new(Typed::<SumDecimal>::new(output)),
        ("sum", Some(DataType::Float64), DataType::Float64) => Box::new(Typed::<SumFloat<Float64Type>>::new(output)),
        ("sum", Some(DataType::Float32), DataType::Float32) => Box::new(Typed::<SumFloat<Float32Type>>::new(output)),
        ("avg", Some(DataType::Float64), DataType::Float64) => Box::new(Typed::<AvgFloat<Float64Type>>::new(output)),
        ("avg", Some(DataType::Float32), DataType::Float32) => Box::new(Typed::<AvgFloat<Float32Type>>::new(output)),
        (name, Some(DataType::Float64), DataType::Float64) => match Statistic::named(name)? {
            Statistic::VarPop => Box::new(Typed::<Spread<0>>::new(output)),
            Statistic::VarSamp => Box::new(Typed::<Spread<1>>::new(output)),
            Statistic::StddevPop => Box::new(Typed::<Spread<2>>::new(output)),
            Statistic::StddevSamp => Box::new(Typed::<Spread<3>>::new(output)),
        },
        _ => return None,
    })
}

/// What a kernel does with one value of one slot.
pub(super) trait Kernel: Send + 'static {
    type In: ArrowPrimitiveType;
    type Out: ArrowPrimitiveType;
    type State: Clone + Default + Send;
    /// `false` on overflow.
    fn add(state: &mut Self::State, value: <Self::In as ArrowPrimitiveType>::Native) -> bool;
    /// `false` on overflow.
    fn subtract(state: &mut Self::State, value: <Self::In as ArrowPrimitiveType>::Native) -> bool;
    fn result(state: &Self::State) -> Option<<Self::Out as ArrowPrimitiveType>::Native>;
    fn save(states: &mut dyn Iterator<Item = &Self::State>) -> Vec<ArrayRef>;
    /// Merges row `row` of saved columns into `state`; `false` on overflow.
    fn load(state: &mut Self::State, columns: &[ArrayRef], row: usize) -> bool;
    /// Takes row `row` of saved columns, which was merged before, out of `state`; `false` on overflow.
    fn unload(state: &mut Self::State, columns: &[ArrayRef], row: usize) -> bool;
}

/// States of a kernel by slot.
pub(super) struct Typed<K: Kernel> {
    states: SlotVec<K::State>,
    output: DataType,
}

impl<K: Kernel> Typed<K> {
    fn new(output: &DataType) -> Self {
        Typed { states: SlotVec::new(), output: output.clone() }
    }

    fn array(&self, values: PrimitiveArray<K::Out>) -> ArrayRef {
        Arc::new(values.with_data_type(self.output.clone()))
    }
}

/// The error of a sum that leaves its type.
pub(crate) fn overflow(output: &DataType) -> OperatorError {
    let name = if *output == DataType::Int64 { "BIGINT".to_string() } else { output.to_string() };
    OperatorError::new(format!("a SUM overflows {name}; cast its argument to a wider type, such as DECIMAL(38, 0) or DOUBLE"))
}

impl<K: Kernel> Accumulator for Typed<K> {
    fn resize(&mut self, slots: usize) {
        self.states.resize(slots, K::State::default());
    }

    fn update(&mut self, rows: &Rows<'_>) -> Result<(), OperatorError> {
        let column = rows.values[0].as_primitive::<K::In>();
        let values = column.values();
        let mut fits = true;
        if rows.kinds.is_none() && rows.mask.is_none() && column.null_count() == 0 {
            for (slot, value) in rows.slots.iter().zip(values.iter()) {
                fits &= K::add(&mut self.states[*slot as usize], *value);
            }
        } else {
            for (row, slot) in rows.slots.iter().enumerate() {
                if column.is_valid(row) && rows.counts(row) {
                    let state = &mut self.states[*slot as usize];
                    fits &= if rows.adds(row) { K::add(state, values[row]) } else { K::subtract(state, values[row]) };
                }
            }
        }
        if fits { Ok(()) } else { Err(overflow(&self.output)) }
    }

    fn update_each(&mut self, rows: &Rows<'_>) -> Result<(ArrayRef, ArrayRef), OperatorError> {
        let column = rows.values[0].as_primitive::<K::In>();
        let values = column.values();
        let mut fits = true;
        let mut before = Vec::with_capacity(rows.slots.len());
        let mut after = Vec::with_capacity(rows.slots.len());
        for (row, slot) in rows.slots.iter().enumerate() {
            let state = &mut self.states[*slot as usize];
            before.push(K::result(state));
            if column.is_valid(row) && rows.counts(row) {
                fits &= if rows.adds(row) { K::add(state, values[row]) } else { K::subtract(state, values[row]) };
            }
            after.push(K::result(state));
        }
        if !fits {
            return Err(overflow(&self.output));
        }
        Ok((self.array(before.into_iter().collect()), self.array(after.into_iter().collect())))
    }

    fn update_pairs(&mut self, rows: &Rows<'_>, changed: &mut [bool]) -> Result<ArrayRef, OperatorError> {
        let values = rows.values[0].as_primitive::<K::In>().values();
        let whole = rows.whole();
        let mut fits = true;
        let mut pairs = pairs::Numbers::with_rows(rows.slots.len());
        for (row, slot) in rows.slots.iter().enumerate() {
            let state = &mut self.states[*slot as usize];
            let before = K::result(state);
            if whole.as_ref().is_some_and(|w| !w.value(row)) {
                pairs.push(before, before);
                continue;
            }
            fits &= if rows.adds(row) { K::add(state, values[row]) } else { K::subtract(state, values[row]) };
            changed[row] |= pairs.push(before, K::result(state));
        }
        if fits { Ok(pairs.finish::<K::Out>(&self.output)) } else { Err(overflow(&self.output)) }
    }

    fn values(&mut self, slots: &[u32]) -> Result<ArrayRef, OperatorError> {
        Ok(self.array(slots.iter().map(|s| K::result(&self.states[*s as usize])).collect()))
    }

    fn clear(&mut self, slots: &[u32]) {
        slots.iter().for_each(|s| self.states[*s as usize] = K::State::default());
    }

    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(K::save(&mut slots.iter().map(|s| &self.states[*s as usize])))
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        for (row, slot) in slots.iter().enumerate() {
            if !K::load(&mut self.states[*slot as usize], columns, row) {
                return Err(overflow(&self.output));
            }
        }
        Ok(())
    }

    fn unmerges(&self) -> bool {
        true
    }

    fn unload(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        for (row, slot) in slots.iter().enumerate() {
            if !K::unload(&mut self.states[*slot as usize], columns, row) {
                return Err(overflow(&self.output));
            }
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.states.memory()
    }
}

/// A sum and how many values are in it: without values the result is NULL.
#[derive(Clone, Default)]
pub(super) struct Counted<T> {
    sum: T,
    count: i64,
}

pub(super) struct SumInt;

impl Kernel for SumInt {
    type In = Int64Type;
    type Out = Int64Type;
    type State = Counted<i64>;
    #[inline]
    fn add(state: &mut Self::State, value: i64) -> bool {
        let (sum, over) = state.sum.overflowing_add(value);
        state.sum = sum;
        state.count += 1;
        !over
    }
    #[inline]
    fn subtract(state: &mut Self::State, value: i64) -> bool {
        let (sum, over) = state.sum.overflowing_sub(value);
        state.sum = sum;
        state.count -= 1;
        !over
    }
    #[inline]
    fn result(state: &Self::State) -> Option<i64> {
        (state.count != 0).then_some(state.sum)
    }
    fn save(states: &mut dyn Iterator<Item = &Self::State>) -> Vec<ArrayRef> {
        let (sums, counts): (Vec<i64>, Vec<i64>) = states.map(|s| (s.sum, s.count)).unzip();
        vec![Arc::new(Int64Array::from(sums)), Arc::new(Int64Array::from(counts))]
    }
    fn load(state: &mut Self::State, columns: &[ArrayRef], row: usize) -> bool {
        let (sum, over) = state.sum.overflowing_add(columns[0].as_primitive::<Int64Type>().value(row));
        state.sum = sum;
        state.count += columns[1].as_primitive::<Int64Type>().value(row);
        !over
    }
    fn unload(state: &mut Self::State, columns: &[ArrayRef], row: usize) -> bool {
        let (sum, over) = state.sum.overflowing_sub(columns[0].as_primitive::<Int64Type>().value(row));
        state.sum = sum;
        state.count -= columns[1].as_primitive::<Int64Type>().value(row);
        !over
    }
}

pub(super) struct SumDecimal;

impl Kernel for SumDecimal {
    type In = Decimal128Type;
    type Out = Decimal128Type;
    type State = Counted<i128>;
    #[inline]
    fn add(state: &mut Self::State, value: i128) -> bool {
        let (sum, over) = state.sum.overflowing_add(value);
        state.sum = sum;
        state.count += 1;
        !over
    }
    #[inline]
    fn subtract(state: &mut Self::State, value: i128) -> bool {
        let (sum, over) = state.sum.overflowing_sub(value);
        state.sum = sum;
        state.count -= 1;
        !over
    }
    #[inline]
    fn result(state: &Self::State) -> Option<i128> {
        (state.count != 0).then_some(state.sum)
    }
    fn save(states: &mut dyn Iterator<Item = &Self::State>) -> Vec<ArrayRef> {
        let (sums, counts): (Vec<i128>, Vec<i64>) = states.map(|s| (s.sum, s.count)).unzip();
        let sums = PrimitiveArray::<Decimal128Type>::from(sums).with_data_type(DataType::Decimal128(38, 0));
        vec![Arc::new(sums), Arc::new(Int64Array::from(counts))]
    }
    fn load(state: &mut Self::State, columns: &[ArrayRef], row: usize) -> bool {
        let (sum, over) = state.sum.overflowing_add(columns[0].as_primitive::<Decimal128Type>().value(row));
        state.sum = sum;
        state.count += columns[1].as_primitive::<Int64Type>().value(row);
        !over
    }
    fn unload(state: &mut Self::State, columns: &[ArrayRef], row: usize) -> bool {
        let (sum, over) = state.sum.overflowing_sub(columns[0].as_primitive::<Decimal128Type>().value(row));
        state.sum = sum;
        state.count -= columns[1].as_primitive::<Int64Type>().value(row);
        !over
    }
}

/// A floating-point type that converts from and to `f64`.
pub(super) trait Float: ArrowPrimitiveType<Native: Into<f64>> {
    fn narrow(value: f64) -> Self::Native;
}

impl Float for Float64Type {
    fn narrow(value: f64) -> f64 {
        value
    }
}

impl Float for Float32Type {
    fn narrow(value: f64) -> f32 {
        value as f32
    }
}

fn save_floats(states: &mut dyn Iterator<Item = &Counted<FloatSum>>) -> Vec<ArrayRef> {
    let mut columns: (Vec<f64>, Vec<f64>, [Vec<i32>; 3], Vec<i64>) = Default::default();
    for state in states {
        let (high, low, odd) = state.sum.parts();
        columns.0.push(high);
        columns.1.push(low);
        columns.2.iter_mut().zip(odd).for_each(|(c, o)| c.push(o));
        columns.3.push(state.count);
    }
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(Float64Array::from(columns.0)), Arc::new(Float64Array::from(columns.1))];
    arrays.extend(columns.2.map(|c| Arc::new(Int32Array::from(c)) as ArrayRef));
    arrays.push(Arc::new(Int64Array::from(columns.3)));
    arrays
}

fn read_floats(columns: &[ArrayRef], row: usize) -> Counted<FloatSum> {
    let float = |i: usize| columns[i].as_primitive::<Float64Type>().value(row);
    let int = |i: usize| columns[i].as_primitive::<arrow::datatypes::Int32Type>().value(row);
    let sum = FloatSum::from_parts(float(0), float(1), [int(2), int(3), int(4)]);
    Counted { sum, count: columns[5].as_primitive::<Int64Type>().value(row) }
}

macro_rules! float_kernel {
    ($(#[$doc:meta])* $name:ident, $result:expr) => {
        $(#[$doc])*
        pub(super) struct $name<T>(PhantomData<T>);

        impl<T: Float + Send> Kernel for $name<T> {
            type In = T;
            type Out = T;
            type State = Counted<FloatSum>;
            #[inline]
            fn add(state: &mut Self::State, value: T::Native) -> bool {
                state.sum.add(value.into());
                state.count += 1;
                true
            }
            #[inline]
            fn subtract(state: &mut Self::State, value: T::Native) -> bool {
                state.sum.subtract(value.into());
                state.count -= 1;
                true
            }
            #[inline]
            fn result(state: &Self::State) -> Option<T::Native> {
                let result: fn(&Counted<FloatSum>) -> f64 = $result;
                (state.count != 0).then(|| T::narrow(result(state)))
            }
            fn save(states: &mut dyn Iterator<Item = &Self::State>) -> Vec<ArrayRef> {
                save_floats(states)
            }
            fn load(state: &mut Self::State, columns: &[ArrayRef], row: usize) -> bool {
                let saved = read_floats(columns, row);
                state.sum.merge(&saved.sum);
                state.count += saved.count;
                true
            }
            fn unload(state: &mut Self::State, columns: &[ArrayRef], row: usize) -> bool {
                let saved = read_floats(columns, row);
                state.sum.unmerge(&saved.sum);
                state.count -= saved.count;
                if state.count == 0 {
                    *state = Self::State::default();
                }
                true
            }
        }
    };
}
float_kernel!(
    /// SUM of floating-point numbers.
    SumFloat,
    |s| s.sum.value()
);
float_kernel!(
    /// AVG of floating-point numbers.
    AvgFloat,
    |s| s.sum.value() / s.count as f64
);

/// STDDEV and VAR; `WHICH` is a [`Statistic`] by its place.
pub(super) struct Spread<const WHICH: u8>;

impl<const WHICH: u8> Kernel for Spread<WHICH> {
    type In = Float64Type;
    type Out = Float64Type;
    type State = Moments;
    #[inline]
    fn add(state: &mut Moments, value: f64) -> bool {
        state.add(value);
        true
    }
    #[inline]
    fn subtract(state: &mut Moments, value: f64) -> bool {
        state.subtract(value);
        true
    }
    fn result(state: &Moments) -> Option<f64> {
        let all = [Statistic::VarPop, Statistic::VarSamp, Statistic::StddevPop, Statistic::StddevSamp];
        state.value(all[WHICH as usize])
    }
    fn save(states: &mut dyn Iterator<Item = &Moments>) -> Vec<ArrayRef> {
        let states: Vec<&Moments> = states.collect();
        Moments::columns(states.iter().copied())
    }
    fn load(state: &mut Moments, columns: &[ArrayRef], row: usize) -> bool {
        state.merge(&Moments::from_columns(columns, row));
        true
    }
    fn unload(state: &mut Moments, columns: &[ArrayRef], row: usize) -> bool {
        state.unmerge(&Moments::from_columns(columns, row));
        true
    }
}

/// `COUNT(*)`, or `COUNT(x, …)`: rows in which no argument is NULL.
struct Count {
    counts: SlotVec<i64>,
}

impl Accumulator for Count {
    fn resize(&mut self, slots: usize) {
        self.counts.resize(slots, 0);
    }

    fn update(&mut self, rows: &Rows<'_>) -> Result<(), OperatorError> {
        let whole = rows.whole();
        if rows.kinds.is_none() && whole.is_none() {
            rows.slots.iter().for_each(|s| self.counts[*s as usize] += 1);
            return Ok(());
        }
        for (row, slot) in rows.slots.iter().enumerate() {
            if whole.as_ref().is_none_or(|w| w.value(row)) {
                self.counts[*slot as usize] += if rows.adds(row) { 1 } else { -1 };
            }
        }
        Ok(())
    }

    fn update_each(&mut self, rows: &Rows<'_>) -> Result<(ArrayRef, ArrayRef), OperatorError> {
        let whole = rows.whole();
        let mut before = Vec::with_capacity(rows.slots.len());
        let mut after = Vec::with_capacity(rows.slots.len());
        for (row, slot) in rows.slots.iter().enumerate() {
            let count = &mut self.counts[*slot as usize];
            before.push(*count);
            if whole.as_ref().is_none_or(|w| w.value(row)) {
                *count += if rows.adds(row) { 1 } else { -1 };
            }
            after.push(*count);
        }
        Ok((Arc::new(Int64Array::from(before)), Arc::new(Int64Array::from(after))))
    }

    fn update_pairs(&mut self, rows: &Rows<'_>, changed: &mut [bool]) -> Result<ArrayRef, OperatorError> {
        let mut values = vec![0; rows.slots.len() * 2];
        let (pairs, _) = values.as_chunks_mut::<2>();
        let lines = rows.slots.iter().zip(pairs).zip(changed);
        match (rows.whole(), rows.kinds) {
            (None, None) => {
                for ((slot, pair), changed) in lines {
                    let count = &mut self.counts[*slot as usize];
                    *pair = [*count, *count + 1];
                    *count += 1;
                    *changed = true;
                }
            }
            (Some(whole), None) => {
                for (row, ((slot, pair), changed)) in lines.enumerate() {
                    let count = &mut self.counts[*slot as usize];
                    let counts = whole.value(row);
                    *pair = [*count, *count + i64::from(counts)];
                    *count = pair[1];
                    *changed |= counts;
                }
            }
            (whole, Some(kinds)) => {
                for (row, ((slot, pair), changed)) in lines.enumerate() {
                    let count = &mut self.counts[*slot as usize];
                    let counts = whole.as_ref().is_none_or(|w| w.value(row));
                    *pair = [*count, *count + if counts { kinds[row].sign() } else { 0 }];
                    *count = pair[1];
                    *changed |= counts;
                }
            }
        }
        Ok(Arc::new(Int64Array::from(values)))
    }

    fn values(&mut self, slots: &[u32]) -> Result<ArrayRef, OperatorError> {
        Ok(Arc::new(slots.iter().map(|s| self.counts[*s as usize]).collect::<Int64Array>()))
    }

    fn clear(&mut self, slots: &[u32]) {
        slots.iter().for_each(|s| self.counts[*s as usize] = 0);
    }

    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(vec![self.values(slots)?])
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        let counts = columns[0].as_primitive::<Int64Type>().values();
        slots.iter().zip(counts.iter()).for_each(|(s, c)| self.counts[*s as usize] += c);
        Ok(())
    }

    fn unmerges(&self) -> bool {
        true
    }

    fn unload(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        let counts = columns[0].as_primitive::<Int64Type>().values();
        slots.iter().zip(counts.iter()).for_each(|(s, c)| self.counts[*s as usize] -= c);
        Ok(())
    }

    fn memory(&self) -> usize {
        self.counts.memory()
    }
}
