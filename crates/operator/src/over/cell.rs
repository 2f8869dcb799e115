//! What a value is to a frame: its type, how it is read from an array and written to one.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, AsArray, BooleanArray, PrimitiveArray, StringArray, new_empty_array};
use arrow::buffer::{BooleanBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowPrimitiveType, DataType};
use datafusion_common::ScalarValue;

use super::column::Lane;
use super::fallback::Fallback;
use super::op::{Driver, Kernel};
use super::two_stacks::TwoStacks;
use super::{OverCall, group, sums};
use crate::OperatorError;
use crate::aggregate::AggregateCall;

/// A type of values.
pub(crate) trait Cell: Send + Sync + 'static {
    /// One value.
    type Item: Clone + Default + Send;

    /// The arguments of a call for the `rows` rows of a block.
    fn read(arguments: &[ArrayRef], rows: usize) -> Result<Lane<Self::Item>, OperatorError>;

    /// Values as an array of type `data_type`.
    fn array(lane: Lane<Self::Item>, data_type: &DataType) -> Result<ArrayRef, OperatorError>;

    /// Values as columns of a snapshot, which [`Cell::read`] reads; `types` are the arguments'.
    fn save(lane: Lane<Self::Item>, types: &[DataType]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(vec![Self::array(lane, &types[0])?])
    }

    /// The order of MIN and MAX.
    fn compare(a: &Self::Item, b: &Self::Item) -> Ordering;

    /// Values point to memory.
    const POINTS: bool = false;

    /// Bytes that a value points to.
    fn heap(_item: &Self::Item) -> usize {
        0
    }

    /// The kernel of SUM, AVG and the like over values of this type.
    fn arithmetic(_call: &AggregateCall) -> Option<Box<dyn Kernel<Self>>>
    where
        Self: Sized,
    {
        None
    }

    /// The kernel of MIN, or MAX with `largest`, when all rows have one key and come and go in order, if there is a faster one
    /// for it.
    fn extreme_in_turn(_largest: bool, _output: &DataType) -> Option<Box<dyn Kernel<Self>>>
    where
        Self: Sized,
    {
        None
    }

    /// The kernel of a call.
    ///
    /// # Errors
    /// A function that cannot slide.
    fn kernel(call: &OverCall) -> Result<Box<dyn Kernel<Self>>, OperatorError>
    where
        Self: Sized,
    {
        group::kernel(call)
    }
}

fn marks(array: &dyn Array) -> Vec<bool> {
    array.logical_nulls().filter(|n| n.null_count() > 0).map_or_else(Vec::new, |n| n.iter().collect())
}

/// An array of primitives.
pub(crate) fn primitives<T: ArrowPrimitiveType>(mut lane: Lane<T::Native>, data_type: &DataType) -> ArrayRef {
    let nulls = lane.take_nulls();
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(lane.values), nulls).with_data_type(data_type.clone()))
}

macro_rules! primitive {
    ($($type:ident $(=> $sums:path)?),* $(,)?) => {$(
        impl Cell for arrow::datatypes::$type {
            type Item = <arrow::datatypes::$type as ArrowPrimitiveType>::Native;

            fn read(arguments: &[ArrayRef], _rows: usize) -> Result<Lane<Self::Item>, OperatorError> {
                let array = arguments[0].as_primitive::<Self>();
                Ok(Lane { values: array.values().to_vec(), valid: marks(array) })
            }

            fn array(lane: Lane<Self::Item>, data_type: &DataType) -> Result<ArrayRef, OperatorError> {
                Ok(primitives::<Self>(lane, data_type))
            }

            #[inline]
            fn compare(a: &Self::Item, b: &Self::Item) -> Ordering {
                ArrowNativeTypeOp::compare(*a, *b)
            }

            fn extreme_in_turn(largest: bool, output: &DataType) -> Option<Box<dyn Kernel<Self>>> {
                Some(Box::new(TwoStacks::<Self>::new(largest, output)))
            }

            $(fn arithmetic(call: &AggregateCall) -> Option<Box<dyn Kernel<Self>>> {
                $sums(call)
            })?
        }
    )*};
}

primitive! {
    Int64Type => sums::integers,
    Int32Type,
    Int16Type,
    Int8Type,
    Float64Type => sums::doubles,
    Float32Type => sums::floats,
    Decimal128Type => sums::decimals,
    Date32Type,
    Time32MillisecondType,
    TimestampSecondType,
    TimestampMillisecondType,
    TimestampMicrosecondType,
    TimestampNanosecondType,
}

/// STRING. Shared, so that a copy is a count.
pub(crate) struct Text;

impl Cell for Text {
    type Item = Arc<str>;
    const POINTS: bool = true;

    fn read(arguments: &[ArrayRef], rows: usize) -> Result<Lane<Arc<str>>, OperatorError> {
        let array = arguments[0].as_string::<i32>();
        let nothing: Arc<str> = Arc::from("");
        let values = (0..rows).map(|r| if array.is_valid(r) { Arc::from(array.value(r)) } else { nothing.clone() }).collect();
        Ok(Lane { values, valid: marks(array) })
    }

    fn array(lane: Lane<Arc<str>>, _data_type: &DataType) -> Result<ArrayRef, OperatorError> {
        let texts = lane.values.iter().enumerate().map(|(i, v)| lane.is_valid(i).then_some(v.as_ref()));
        Ok(Arc::new(texts.collect::<StringArray>()))
    }

    fn compare(a: &Arc<str>, b: &Arc<str>) -> Ordering {
        a.as_bytes().cmp(b.as_bytes())
    }

    fn heap(item: &Arc<str>) -> usize {
        item.len() + 16
    }
}

/// BOOLEAN.
pub(crate) struct Truth;

impl Cell for Truth {
    type Item = bool;

    fn read(arguments: &[ArrayRef], _rows: usize) -> Result<Lane<bool>, OperatorError> {
        let array = arguments[0].as_boolean();
        Ok(Lane { values: array.values().iter().collect(), valid: marks(array) })
    }

    fn array(mut lane: Lane<bool>, _data_type: &DataType) -> Result<ArrayRef, OperatorError> {
        let nulls = lane.take_nulls();
        Ok(Arc::new(BooleanArray::new(BooleanBuffer::from(lane.values), nulls)))
    }

    fn compare(a: &bool, b: &bool) -> Ordering {
        a.cmp(b)
    }
}

/// Only whether a row counts: no argument is NULL.
pub(crate) struct Presence;

impl Cell for Presence {
    type Item = ();

    fn read(arguments: &[ArrayRef], rows: usize) -> Result<Lane<()>, OperatorError> {
        let mut valid: Vec<bool> = Vec::new();
        for argument in arguments {
            let marks = marks(argument.as_ref());
            if valid.is_empty() {
                valid = marks;
            } else {
                valid.iter_mut().zip(marks).for_each(|(v, m)| *v &= m);
            }
        }
        Ok(Lane { values: vec![(); rows], valid })
    }

    fn array(lane: Lane<()>, _data_type: &DataType) -> Result<ArrayRef, OperatorError> {
        Ok(Arc::new((0..lane.values.len()).map(|i| lane.is_valid(i).then_some(true)).collect::<BooleanArray>()))
    }

    /// NULL where the row does not count, whatever the arguments are.
    fn save(lane: Lane<()>, _types: &[DataType]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(vec![Self::array(lane, &DataType::Boolean)?])
    }

    fn compare(_a: &(), _b: &()) -> Ordering {
        Ordering::Equal
    }

    fn kernel(_call: &OverCall) -> Result<Box<dyn Kernel<Self>>, OperatorError> {
        Ok(Box::new(Driver::new(sums::Count::default(), &DataType::Int64)))
    }
}

/// A value of a type that has no cell of its own: lists, rows, maps, bytes.
pub(crate) struct Any;

impl Cell for Any {
    type Item = Option<ScalarValue>;
    const POINTS: bool = true;

    fn read(arguments: &[ArrayRef], rows: usize) -> Result<Lane<Option<ScalarValue>>, OperatorError> {
        let values = (0..rows).map(|r| ScalarValue::try_from_array(&arguments[0], r).map(Some)).collect::<Result<_, _>>()?;
        Ok(Lane { values, valid: marks(arguments[0].as_ref()) })
    }

    fn array(lane: Lane<Option<ScalarValue>>, data_type: &DataType) -> Result<ArrayRef, OperatorError> {
        if lane.values.is_empty() {
            return Ok(new_empty_array(data_type));
        }
        let null = ScalarValue::try_from(data_type)?;
        Ok(ScalarValue::iter_to_array(lane.values.into_iter().map(|v| v.unwrap_or_else(|| null.clone())))?)
    }

    fn compare(a: &Option<ScalarValue>, b: &Option<ScalarValue>) -> Ordering {
        a.partial_cmp(b).unwrap_or(Ordering::Equal)
    }

    fn heap(item: &Option<ScalarValue>) -> usize {
        item.as_ref().map_or(0, |v| v.size() - size_of::<ScalarValue>())
    }
}

/// All arguments of a call, for DataFusion's accumulators, which see to NULLs themselves.
pub(crate) struct Arguments;

impl Cell for Arguments {
    type Item = Vec<ScalarValue>;
    const POINTS: bool = true;

    fn read(arguments: &[ArrayRef], rows: usize) -> Result<Lane<Vec<ScalarValue>>, OperatorError> {
        let row = |r: usize| arguments.iter().map(|a| ScalarValue::try_from_array(a, r)).collect::<Result<Vec<_>, _>>();
        Ok(Lane::new((0..rows).map(row).collect::<Result<_, _>>()?))
    }

    fn array(_lane: Lane<Vec<ScalarValue>>, _data_type: &DataType) -> Result<ArrayRef, OperatorError> {
        Err(OperatorError::new("internal error: the arguments of a call are not one value"))
    }

    fn save(lane: Lane<Vec<ScalarValue>>, types: &[DataType]) -> Result<Vec<ArrayRef>, OperatorError> {
        let column = |(i, t): (usize, &DataType)| -> Result<ArrayRef, OperatorError> {
            if lane.values.is_empty() {
                return Ok(new_empty_array(t));
            }
            Ok(ScalarValue::iter_to_array(lane.values.iter().map(|row| row[i].clone()))?)
        };
        types.iter().enumerate().map(column).collect()
    }

    fn compare(_a: &Vec<ScalarValue>, _b: &Vec<ScalarValue>) -> Ordering {
        Ordering::Equal
    }

    fn kernel(call: &OverCall) -> Result<Box<dyn Kernel<Self>>, OperatorError> {
        let OverCall::Aggregate(call) = call else {
            return Err(OperatorError::new("internal error: only an aggregate function takes several arguments"));
        };
        Ok(Box::new(Driver::new(Fallback::new(call.clone())?, call.output.data_type())))
    }

    fn heap(item: &Vec<ScalarValue>) -> usize {
        item.iter().map(ScalarValue::size).sum()
    }
}

/// Evaluates an expression with the cell of a type at hand: `with_cell!(&data_type, C => …, else …)`.
macro_rules! with_cell {
    ($type:expr, $cell:ident => $body:expr, else $other:expr) => {{
        use arrow::datatypes::{DataType, TimeUnit};
        match $type {
            DataType::Int64 => {
                type $cell = arrow::datatypes::Int64Type;
                $body
            }
            DataType::Int32 => {
                type $cell = arrow::datatypes::Int32Type;
                $body
            }
            DataType::Int16 => {
                type $cell = arrow::datatypes::Int16Type;
                $body
            }
            DataType::Int8 => {
                type $cell = arrow::datatypes::Int8Type;
                $body
            }
            DataType::Float64 => {
                type $cell = arrow::datatypes::Float64Type;
                $body
            }
            DataType::Float32 => {
                type $cell = arrow::datatypes::Float32Type;
                $body
            }
            DataType::Decimal128(..) => {
                type $cell = arrow::datatypes::Decimal128Type;
                $body
            }
            DataType::Date32 => {
                type $cell = arrow::datatypes::Date32Type;
                $body
            }
            DataType::Time32(TimeUnit::Millisecond) => {
                type $cell = arrow::datatypes::Time32MillisecondType;
                $body
            }
            DataType::Timestamp(TimeUnit::Second, _) => {
                type $cell = arrow::datatypes::TimestampSecondType;
                $body
            }
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                type $cell = arrow::datatypes::TimestampMillisecondType;
                $body
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                type $cell = arrow::datatypes::TimestampMicrosecondType;
                $body
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                type $cell = arrow::datatypes::TimestampNanosecondType;
                $body
            }
            DataType::Utf8 => {
                type $cell = crate::over::cell::Text;
                $body
            }
            DataType::Boolean => {
                type $cell = crate::over::cell::Truth;
                $body
            }
            _ => $other,
        }
    }};
}
pub(crate) use with_cell;
