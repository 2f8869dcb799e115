//! STDDEV and VAR over exact sums.
//!
//! The sums of the values, of their squares and of what rounding cuts off the squares (by fused
//! multiply-add: Ogita, Rump, Oishi: Accurate sum and dot product, SIAM J. Sci. Comput. 26, 2005,
//! algorithm TwoProductFMA) are kept in 106 bits each ([`crate::float_sum`]). So a value can be taken
//! back and sums can be added in any order, and n Σx² − (Σx)², in which two large numbers almost cancel,
//! is added up without rounding (Shewchuk: Adaptive precision floating-point arithmetic, 1997, the
//! expansions of section 2). Equal values have no spread at all.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, Int64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int32Type, Int64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, ReversedUDAF, Signature};

use crate::float_sum::FloatSum;

/// What is made of the moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Statistic {
    /// VAR_POP
    VarPop,
    /// VAR_SAMP, VARIANCE
    VarSamp,
    /// STDDEV_POP
    StddevPop,
    /// STDDEV_SAMP, STDDEV
    StddevSamp,
}

impl Statistic {
    /// The statistic that a function of this name gives.
    pub fn named(name: &str) -> Option<Statistic> {
        Some(match name {
            "var_pop" => Statistic::VarPop,
            "var" => Statistic::VarSamp,
            "stddev_pop" => Statistic::StddevPop,
            "stddev" => Statistic::StddevSamp,
            _ => return None,
        })
    }
}

/// The number of values, their sum and the sum of their squares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    count: i64,
    sum: FloatSum,
    squares: FloatSum,
    /// What rounding cut off the squares.
    errors: FloatSum,
}

/// A product and its rounding error.
#[inline]
fn two_product(a: f64, b: f64) -> (f64, f64) {
    let product = a * b;
    (product, a.mul_add(b, -product))
}

/// A sum and its rounding error.
#[inline]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_rounded = sum - a;
    (sum, (a - (sum - b_rounded)) + (b - b_rounded))
}

/// A sum without rounding, as parts that do not overlap, smallest first.
#[derive(Default)]
struct Expansion {
    parts: [f64; 24],
    used: usize,
}

impl Expansion {
    fn add(&mut self, value: f64) {
        let (mut value, mut kept) = (value, 0);
        for i in 0..self.used {
            let (sum, error) = two_sum(value, self.parts[i]);
            if error != 0.0 {
                self.parts[kept] = error;
                kept += 1;
            }
            value = sum;
        }
        self.parts[kept] = value;
        self.used = kept + 1;
    }

    fn add_product(&mut self, a: f64, b: f64) {
        let (product, error) = two_product(a, b);
        self.add(product);
        self.add(error);
    }

    /// The sum as a double and what is left of it.
    fn value(&self) -> (f64, f64) {
        self.parts[..self.used].iter().rev().fold((0.0, 0.0), |(high, low), part| {
            let (sum, error) = two_sum(high, *part);
            (sum, low + error)
        })
    }
}

impl Moments {
    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum.add(value);
        let (square, error) = two_product(value, value);
        self.squares.add(square);
        if square.is_finite() {
            self.errors.add(error);
        }
    }

    /// Takes away a value that was added before.
    #[inline]
    pub fn subtract(&mut self, value: f64) {
        self.count -= 1;
        if self.count == 0 {
            *self = Moments::default();
            return;
        }
        self.sum.subtract(value);
        let (square, error) = two_product(value, value);
        self.squares.subtract(square);
        if square.is_finite() {
            self.errors.subtract(error);
        }
    }

    /// Adds other values.
    pub fn merge(&mut self, other: &Moments) {
        self.count += other.count;
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
        self.errors.merge(&other.errors);
    }

    /// Takes away values that were added before.
    pub fn unmerge(&mut self, other: &Moments) {
        self.count -= other.count;
        if self.count == 0 {
            *self = Moments::default();
            return;
        }
        self.sum.unmerge(&other.sum);
        self.squares.unmerge(&other.squares);
        self.errors.unmerge(&other.errors);
    }

    /// The statistic; `None` for too few values.
    pub fn value(&self, statistic: Statistic) -> Option<f64> {
        let sample = matches!(statistic, Statistic::VarSamp | Statistic::StddevSamp);
        let degrees = self.count - i64::from(sample);
        if self.count <= 0 || degrees <= 0 {
            return None;
        }
        if !self.sum.value().is_finite() || !self.squares.value().is_finite() {
            return Some(f64::NAN);
        }
        // n Σx² − (Σx)²
        let count = self.count as f64;
        let mut spread = Expansion::default();
        for sum in [self.squares, self.errors] {
            let (high, low, _) = sum.parts();
            spread.add_product(count, high);
            spread.add_product(count, low);
        }
        let (high, low, _) = self.sum.parts();
        spread.add_product(-high, high);
        spread.add_product(-2.0 * high, low);
        spread.add_product(-low, low);
        let (spread, rest) = spread.value();
        if spread <= 0.0 {
            return Some(0.0);
        }
        let by = count * degrees as f64;
        let quotient = spread / by;
        let (product, error) = two_product(quotient, by);
        let variance = quotient + ((spread - product) + (rest - error)) / by;
        Some(match statistic {
            Statistic::VarPop | Statistic::VarSamp => variance,
            Statistic::StddevPop | Statistic::StddevSamp => variance.sqrt(),
        })
    }

    /// The types of [`Moments::scalars`].
    pub fn types() -> Vec<DataType> {
        let sum = [DataType::Float64, DataType::Float64, DataType::Int32, DataType::Int32, DataType::Int32];
        std::iter::once(DataType::Int64).chain([sum.clone(), sum.clone(), sum].into_iter().flatten()).collect()
    }

    /// All parts as values of state columns.
    pub fn scalars(&self) -> Vec<ScalarValue> {
        let mut all = vec![ScalarValue::Int64(Some(self.count))];
        for sum in [self.sum, self.squares, self.errors] {
            let (high, low, odd) = sum.parts();
            all.extend([ScalarValue::Float64(Some(high)), ScalarValue::Float64(Some(low))]);
            all.extend(odd.map(|o| ScalarValue::Int32(Some(o))));
        }
        all
    }

    /// State columns with a row for each of `states`.
    pub fn columns<'a>(states: impl Iterator<Item = &'a Moments> + Clone) -> Vec<ArrayRef> {
        let mut all: Vec<ArrayRef> = vec![Arc::new(states.clone().map(|m| Some(m.count)).collect::<Int64Array>())];
        for which in 0..3 {
            let parts = || states.clone().map(move |m| [m.sum, m.squares, m.errors][which].parts());
            all.push(Arc::new(parts().map(|p| Some(p.0)).collect::<Float64Array>()));
            all.push(Arc::new(parts().map(|p| Some(p.1)).collect::<Float64Array>()));
            for odd in 0..3 {
                all.push(Arc::new(parts().map(|p| Some(p.2[odd])).collect::<Int32Array>()));
            }
        }
        all
    }

    /// The moments in row `row` of state columns.
    pub fn from_columns(columns: &[ArrayRef], row: usize) -> Self {
        let float = |i: usize| columns[i].as_primitive::<Float64Type>().value(row);
        let int = |i: usize| columns[i].as_primitive::<Int32Type>().value(row);
        let sum = |i: usize| FloatSum::from_parts(float(i), float(i + 1), [int(i + 2), int(i + 3), int(i + 4)]);
        Moments { count: columns[0].as_primitive::<Int64Type>().value(row), sum: sum(1), squares: sum(6), errors: sum(11) }
    }
}

/// The four functions; DISTINCT is left to DataFusion.
pub(super) fn functions() -> Vec<Arc<AggregateUDF>> {
    use datafusion_functions_aggregate::stddev::{stddev_pop_udaf, stddev_udaf};
    use datafusion_functions_aggregate::variance::{var_pop_udaf, var_samp_udaf};
    [
        (var_pop_udaf(), Statistic::VarPop),
        (var_samp_udaf(), Statistic::VarSamp),
        (stddev_pop_udaf(), Statistic::StddevPop),
        (stddev_udaf(), Statistic::StddevSamp),
    ]
    .into_iter()
    .map(|(inner, statistic)| Arc::new(AggregateUDF::new_from_impl(Spread { inner, statistic })))
    .collect()
}

#[derive(Debug)]
struct Spread {
    inner: Arc<AggregateUDF>,
    statistic: Statistic,
}

/// The statistic says all; `inner` would take long.
impl PartialEq for Spread {
    fn eq(&self, other: &Self) -> bool {
        self.statistic == other.statistic
    }
}

impl Eq for Spread {}

impl Hash for Spread {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.statistic.hash(state);
    }
}

impl AggregateUDFImpl for Spread {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }
    fn signature(&self) -> &Signature {
        self.inner.signature()
    }
    fn return_type(&self, _args: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }
    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return self.inner.accumulator(args);
        }
        Ok(Box::new(One { moments: Moments::default(), statistic: self.statistic }))
    }
    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if args.is_distinct {
            return self.inner.state_fields(args);
        }
        let field = |(i, t): (usize, DataType)| Arc::new(Field::new(format!("{}[{i}]", args.name), t, true));
        Ok(Moments::types().into_iter().enumerate().map(field).collect())
    }
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

#[derive(Debug)]
struct One {
    moments: Moments,
    statistic: Statistic,
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values[0].as_primitive::<Float64Type>().iter().flatten().for_each(|v| self.moments.add(v));
        Ok(())
    }
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values[0].as_primitive::<Float64Type>().iter().flatten().for_each(|v| self.moments.subtract(v));
        Ok(())
    }
    fn supports_retract_batch(&self) -> bool {
        true
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.moments.value(self.statistic)))
    }
    fn size(&self) -> usize {
        size_of::<Self>()
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(self.moments.scalars())
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        (0..states[0].len()).for_each(|row| self.moments.merge(&Moments::from_columns(states, row)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(values: &[f64]) -> Moments {
        let mut moments = Moments::default();
        values.iter().for_each(|v| moments.add(*v));
        moments
    }

    #[track_caller]
    fn check(values: &[f64], statistic: Statistic, expect: Option<f64>) {
        assert_eq!(moments(values).value(statistic), expect);
    }

    #[test]
    fn statistics() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        check(&values, Statistic::VarPop, Some(4.0));
        check(&values, Statistic::StddevPop, Some(2.0));
        check(&values, Statistic::VarSamp, Some(32.0 / 7.0));
        check(&values, Statistic::StddevSamp, Some((32.0_f64 / 7.0).sqrt()));
        check(&[3.5], Statistic::VarPop, Some(0.0));
        check(&[3.5], Statistic::VarSamp, None);
        check(&[], Statistic::VarPop, None);
        check(&[0.1; 1000], Statistic::StddevPop, Some(0.0));
        // The textbook formula in doubles gives 0 here, or less.
        check(&[1e9 + 1.0, 1e9 + 2.0, 1e9 + 3.0], Statistic::VarSamp, Some(1.0));
        check(&[1e15, 1e15 + 1.0], Statistic::VarPop, Some(0.25));
        check(&[-1e100, 1e100], Statistic::StddevPop, Some(1e100));
        assert!(moments(&[1.0, f64::INFINITY]).value(Statistic::VarPop).unwrap().is_nan());
    }

    #[test]
    fn what_is_taken_back_leaves_nothing_behind() {
        let values: Vec<f64> = (0..5000).map(|i| f64::from(i * 7919 % 10_007) * 0.01 + 1e5).collect();
        let mut sliding = Moments::default();
        for (i, v) in values.iter().enumerate() {
            sliding.add(*v);
            if i >= 100 {
                sliding.subtract(values[i - 100]);
            }
        }
        let mut apart = moments(&values[4900..4950]);
        apart.merge(&moments(&values[4950..]));
        let fresh = moments(&values[4900..]);
        for statistic in [Statistic::VarPop, Statistic::StddevSamp] {
            assert_eq!(sliding.value(statistic), fresh.value(statistic));
            assert_eq!(apart.value(statistic), fresh.value(statistic));
        }
        apart.unmerge(&moments(&values[4900..4950]));
        assert_eq!(apart.value(Statistic::VarPop), moments(&values[4950..]).value(Statistic::VarPop));
        let all: Vec<ArrayRef> = fresh.scalars().iter().map(|s| s.to_array().unwrap()).collect();
        assert_eq!(Moments::from_columns(&all, 0), fresh);
        assert_eq!(Moments::from_columns(&Moments::columns([&apart, &fresh].into_iter()), 1), fresh);
        assert_eq!(all.iter().map(|c| c.data_type().clone()).collect::<Vec<_>>(), Moments::types());
    }
}
