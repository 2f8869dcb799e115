//! Columns whose values are put at and taken from given places, row by row.
//!
//! The rows that partial matches refer to lie in such columns, at places that are given again when a
//! row is not needed any more; and the values of an output block are gathered in them. Arrow's arrays
//! can do neither, since they do not change.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, AsArray, BooleanArray, PrimitiveArray, StringArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::*;
use datafusion_common::ScalarValue;

use crate::OperatorError;

/// One value of a column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Null,
    /// Integers, booleans (0 and 1), dates, times and timestamps.
    Int(i64),
    Float(f64),
    /// Decimals, without their scale.
    Wide(i128),
    Text(&'a str),
    /// Everything else.
    Other(&'a ScalarValue),
}

impl Value<'_> {
    pub fn is_null(self) -> bool {
        matches!(self, Value::Null)
    }

    /// The order of two values of one type, floats as Arrow orders them; `None` if a value is NULL or
    /// the type has no order.
    #[inline]
    pub fn order(self, other: Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(&b)),
            (Value::Float(a), Value::Float(b)) => Some(ArrowNativeTypeOp::compare(a, b)),
            (Value::Wide(a), Value::Wide(b)) => Some(a.cmp(&b)),
            (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
            (Value::Other(a), Value::Other(b)) => a.partial_cmp(b),
            _ => None,
        }
    }

    /// An array of this one value.
    pub fn to_array(self, data_type: &DataType) -> Result<ArrayRef, OperatorError> {
        Ok(match self {
            Value::Null => arrow::array::new_null_array(data_type, 1),
            Value::Int(v) => ints(std::iter::once(Some(v)), data_type),
            Value::Float(v) => floats(std::iter::once(Some(v)), data_type),
            Value::Wide(v) => wides(std::iter::once(Some(v)), data_type),
            Value::Text(v) => Arc::new(StringArray::from(vec![v])),
            Value::Other(v) => v.to_array()?,
        })
    }
}

/// How values of a type are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Float,
    Wide,
    Text,
    Other,
}

/// How values of `data_type` are kept.
pub(super) fn kind(data_type: &DataType) -> Kind {
    match data_type {
        DataType::Boolean | DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Kind::Int,
        DataType::Date32 | DataType::Time32(TimeUnit::Second | TimeUnit::Millisecond) | DataType::Timestamp(..) => Kind::Int,
        DataType::Float32 | DataType::Float64 => Kind::Float,
        DataType::Decimal128(..) => Kind::Wide,
        DataType::Utf8 => Kind::Text,
        _ => Kind::Other,
    }
}

/// The values of a block's column, to be copied one by one.
pub(super) struct Cells<'a> {
    values: CellValues<'a>,
    nulls: Option<NullBuffer>,
}

enum CellValues<'a> {
    Bool(&'a BooleanArray),
    Int8(&'a [i8]),
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    Float32(&'a [f32]),
    Float64(&'a [f64]),
    Wide(&'a [i128]),
    Text(&'a StringArray),
    Other(&'a ArrayRef),
}

impl<'a> Cells<'a> {
    /// Of an array.
    pub fn new(array: &'a ArrayRef) -> Self {
        use CellValues as C;
        let values = match array.data_type() {
            DataType::Boolean => C::Bool(array.as_boolean()),
            DataType::Int8 => C::Int8(array.as_primitive::<Int8Type>().values()),
            DataType::Int16 => C::Int16(array.as_primitive::<Int16Type>().values()),
            DataType::Int32 => C::Int32(array.as_primitive::<Int32Type>().values()),
            DataType::Int64 => C::Int64(array.as_primitive::<Int64Type>().values()),
            DataType::Date32 => C::Int32(array.as_primitive::<Date32Type>().values()),
            DataType::Time32(TimeUnit::Second) => C::Int32(array.as_primitive::<Time32SecondType>().values()),
            DataType::Time32(TimeUnit::Millisecond) => C::Int32(array.as_primitive::<Time32MillisecondType>().values()),
            DataType::Timestamp(TimeUnit::Second, _) => C::Int64(array.as_primitive::<TimestampSecondType>().values()),
            DataType::Timestamp(TimeUnit::Millisecond, _) => C::Int64(array.as_primitive::<TimestampMillisecondType>().values()),
            DataType::Timestamp(TimeUnit::Microsecond, _) => C::Int64(array.as_primitive::<TimestampMicrosecondType>().values()),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => C::Int64(array.as_primitive::<TimestampNanosecondType>().values()),
            DataType::Float32 => C::Float32(array.as_primitive::<Float32Type>().values()),
            DataType::Float64 => C::Float64(array.as_primitive::<Float64Type>().values()),
            DataType::Decimal128(..) => C::Wide(array.as_primitive::<Decimal128Type>().values()),
            DataType::Utf8 => C::Text(array.as_string::<i32>()),
            _ => C::Other(array),
        };
        Cells { values, nulls: array.logical_nulls().filter(|n| n.null_count() > 0) }
    }
}

enum Data {
    Int(Vec<i64>),
    Float(Vec<f64>),
    Wide(Vec<i128>),
    Text(Texts),
    Other(Vec<ScalarValue>),
}

/// Strings in one buffer, which is rewritten when more than half of it is not needed any more.
#[derive(Default)]
struct Texts {
    bytes: String,
    spans: Vec<(usize, u32)>,
    dead: usize,
}

impl Texts {
    /// Below this, dead bytes are left alone.
    const DEAD_BYTES_MIN: usize = 64 * 1024;

    fn set(&mut self, place: usize, text: &str) {
        self.clear(place);
        self.spans[place] = (self.bytes.len(), text.len() as u32);
        self.bytes.push_str(text);
    }

    fn get(&self, place: usize) -> &str {
        let (start, len) = self.spans[place];
        &self.bytes[start..start + len as usize]
    }

    fn clear(&mut self, place: usize) {
        self.dead += self.spans[place].1 as usize;
        self.spans[place] = (0, 0);
        if self.dead > Self::DEAD_BYTES_MIN && self.dead > self.bytes.len() / 2 {
            let mut bytes = String::with_capacity(self.bytes.len() - self.dead);
            for span in self.spans.iter_mut().filter(|s| s.1 > 0) {
                let start = bytes.len();
                bytes.push_str(&self.bytes[span.0..span.0 + span.1 as usize]);
                span.0 = start;
            }
            self.bytes = bytes;
            self.dead = 0;
        }
    }
}

/// Values by place.
pub(super) struct Column {
    data: Data,
    valid: Vec<bool>,
    data_type: DataType,
}

/// Visits the primitive type that an integer-like [`DataType`] is kept in.
macro_rules! int_type {
    ($data_type:expr, $use:ident) => {
        match $data_type {
            DataType::Int8 => $use!(Int8Type),
            DataType::Int16 => $use!(Int16Type),
            DataType::Int32 => $use!(Int32Type),
            DataType::Int64 => $use!(Int64Type),
            DataType::Date32 => $use!(Date32Type),
            DataType::Time32(TimeUnit::Second) => $use!(Time32SecondType),
            DataType::Time32(TimeUnit::Millisecond) => $use!(Time32MillisecondType),
            DataType::Timestamp(TimeUnit::Second, _) => $use!(TimestampSecondType),
            DataType::Timestamp(TimeUnit::Millisecond, _) => $use!(TimestampMillisecondType),
            DataType::Timestamp(TimeUnit::Microsecond, _) => $use!(TimestampMicrosecondType),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => $use!(TimestampNanosecondType),
            other => unreachable!("{other} is not kept as an integer"),
        }
    };
}

fn ints(values: impl Iterator<Item = Option<i64>>, data_type: &DataType) -> ArrayRef {
    macro_rules! array {
        ($type:ident) => {
            Arc::new(
                values
                    .map(|v| v.map(|v| v as <$type as ArrowPrimitiveType>::Native))
                    .collect::<PrimitiveArray<$type>>()
                    .with_data_type(data_type.clone()),
            )
        };
    }
    if *data_type == DataType::Boolean {
        return Arc::new(values.map(|v| v.map(|v| v != 0)).collect::<BooleanArray>());
    }
    int_type!(data_type, array)
}

fn floats(values: impl Iterator<Item = Option<f64>>, data_type: &DataType) -> ArrayRef {
    if *data_type == DataType::Float32 {
        return Arc::new(values.map(|v| v.map(|v| v as f32)).collect::<PrimitiveArray<Float32Type>>());
    }
    Arc::new(values.collect::<PrimitiveArray<Float64Type>>())
}

fn wides(values: impl Iterator<Item = Option<i128>>, data_type: &DataType) -> ArrayRef {
    Arc::new(values.collect::<PrimitiveArray<Decimal128Type>>().with_data_type(data_type.clone()))
}

impl Column {
    /// An empty column.
    pub fn new(data_type: &DataType) -> Self {
        let data = match kind(data_type) {
            Kind::Int => Data::Int(Vec::new()),
            Kind::Float => Data::Float(Vec::new()),
            Kind::Wide => Data::Wide(Vec::new()),
            Kind::Text => Data::Text(Texts::default()),
            Kind::Other => Data::Other(Vec::new()),
        };
        Column { data, valid: Vec::new(), data_type: data_type.clone() }
    }

    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Makes room for places below `places`.
    pub fn resize(&mut self, places: usize) {
        if places <= self.valid.len() {
            return;
        }
        self.valid.resize(places, false);
        match &mut self.data {
            Data::Int(v) => v.resize(places, 0),
            Data::Float(v) => v.resize(places, 0.0),
            Data::Wide(v) => v.resize(places, 0),
            Data::Text(v) => v.spans.resize(places, (0, 0)),
            Data::Other(v) => v.resize(places, ScalarValue::Null),
        }
    }

    /// Puts the values of `cells`, which have the column's type, at `places`.
    pub fn set(&mut self, places: &[u32], cells: &Cells<'_>) -> Result<(), OperatorError> {
        fn put<T: Copy, U>(into: &mut [U], places: &[u32], values: &[T], of: impl Fn(T) -> U) {
            places.iter().zip(values).for_each(|(place, value)| into[*place as usize] = of(*value));
        }
        use CellValues as C;
        for (row, place) in places.iter().enumerate() {
            self.valid[*place as usize] = cells.nulls.as_ref().is_none_or(|n| n.is_valid(row));
        }
        match (&mut self.data, &cells.values) {
            (Data::Int(v), C::Int8(values)) => put(v, places, values, i64::from),
            (Data::Int(v), C::Int16(values)) => put(v, places, values, i64::from),
            (Data::Int(v), C::Int32(values)) => put(v, places, values, i64::from),
            (Data::Int(v), C::Int64(values)) => put(v, places, values, |value| value),
            (Data::Float(v), C::Float32(values)) => put(v, places, values, f64::from),
            (Data::Float(v), C::Float64(values)) => put(v, places, values, |value| value),
            (Data::Wide(v), C::Wide(values)) => put(v, places, values, |value| value),
            _ => {
                for (row, place) in places.iter().enumerate() {
                    self.set_one(*place, cells, row)?;
                }
            }
        }
        Ok(())
    }

    /// Puts the value of a row of `cells`, which have the column's type, at `place`.
    #[inline]
    pub fn set_one(&mut self, place: u32, cells: &Cells<'_>, row: usize) -> Result<(), OperatorError> {
        use CellValues as C;
        let place = place as usize;
        let valid = cells.nulls.as_ref().is_none_or(|n| n.is_valid(row));
        self.valid[place] = valid;
        match (&mut self.data, &cells.values) {
            (Data::Int(v), C::Bool(values)) => v[place] = i64::from(values.value(row)),
            (Data::Int(v), C::Int8(values)) => v[place] = i64::from(values[row]),
            (Data::Int(v), C::Int16(values)) => v[place] = i64::from(values[row]),
            (Data::Int(v), C::Int32(values)) => v[place] = i64::from(values[row]),
            (Data::Int(v), C::Int64(values)) => v[place] = values[row],
            (Data::Float(v), C::Float32(values)) => v[place] = f64::from(values[row]),
            (Data::Float(v), C::Float64(values)) => v[place] = values[row],
            (Data::Wide(v), C::Wide(values)) => v[place] = values[row],
            (Data::Text(v), C::Text(values)) => v.set(place, if valid { values.value(row) } else { "" }),
            (Data::Other(v), C::Other(values)) => v[place] = ScalarValue::try_from_array(values, row)?,
            _ => unreachable!("a column is set to values of its own type, {}", self.data_type),
        }
        Ok(())
    }

    /// The value at `place`.
    #[inline]
    pub fn value(&self, place: u32) -> Value<'_> {
        let place = place as usize;
        if !self.valid[place] {
            return Value::Null;
        }
        match &self.data {
            Data::Int(v) => Value::Int(v[place]),
            Data::Float(v) => Value::Float(v[place]),
            Data::Wide(v) => Value::Wide(v[place]),
            Data::Text(v) => Value::Text(v.get(place)),
            Data::Other(v) => Value::Other(&v[place]),
        }
    }

    /// Appends a value of the column's kind.
    pub fn push(&mut self, value: Value<'_>) {
        self.valid.push(!value.is_null());
        match (&mut self.data, value) {
            (Data::Int(v), Value::Int(x)) => v.push(x),
            (Data::Int(v), _) => v.push(0),
            (Data::Float(v), Value::Float(x)) => v.push(x),
            (Data::Float(v), _) => v.push(0.0),
            (Data::Wide(v), Value::Wide(x)) => v.push(x),
            (Data::Wide(v), _) => v.push(0),
            (Data::Text(v), value) => {
                v.spans.push((0, 0));
                if let Value::Text(text) = value {
                    v.set(v.spans.len() - 1, text);
                }
            }
            (Data::Other(v), Value::Other(x)) => v.push(x.clone()),
            (Data::Other(v), _) => v.push(ScalarValue::Null),
        }
    }

    /// Gives the memory of a value back that lies outside of the column's own vector.
    #[inline]
    pub fn forget(&mut self, place: u32) {
        match &mut self.data {
            Data::Text(v) => v.clear(place as usize),
            Data::Other(v) => v[place as usize] = ScalarValue::Null,
            _ => {}
        }
    }

    /// The values at `places` as an array.
    pub fn gather(&self, places: &[u32]) -> Result<ArrayRef, OperatorError> {
        self.array(places.iter().map(|p| *p as usize))
    }

    /// All values as an array; the column is empty then.
    pub fn drain(&mut self) -> Result<ArrayRef, OperatorError> {
        let array = self.array(0..self.valid.len())?;
        self.valid.clear();
        match &mut self.data {
            Data::Int(v) => v.clear(),
            Data::Float(v) => v.clear(),
            Data::Wide(v) => v.clear(),
            Data::Text(v) => {
                v.bytes.clear();
                v.spans.clear();
                v.dead = 0;
            }
            Data::Other(v) => v.clear(),
        }
        Ok(array)
    }

    fn array(&self, places: impl ExactSizeIterator<Item = usize>) -> Result<ArrayRef, OperatorError> {
        let valid = &self.valid;
        Ok(match &self.data {
            Data::Int(v) => ints(places.map(|p| valid[p].then(|| v[p])), &self.data_type),
            Data::Float(v) => floats(places.map(|p| valid[p].then(|| v[p])), &self.data_type),
            Data::Wide(v) => wides(places.map(|p| valid[p].then(|| v[p])), &self.data_type),
            Data::Text(v) => Arc::new(places.map(|p| valid[p].then(|| v.get(p))).collect::<StringArray>()),
            Data::Other(_) if places.len() == 0 => arrow::array::new_empty_array(&self.data_type),
            Data::Other(v) => {
                let null = ScalarValue::try_from(&self.data_type)?;
                ScalarValue::iter_to_array(places.map(|p| if valid[p] { v[p].clone() } else { null.clone() }))?
            }
        })
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.valid.capacity()
            + match &self.data {
                Data::Int(v) => v.capacity() * 8,
                Data::Float(v) => v.capacity() * 8,
                Data::Wide(v) => v.capacity() * 16,
                Data::Text(v) => v.bytes.capacity() + v.spans.capacity() * size_of::<(usize, u32)>(),
                Data::Other(v) => v.iter().map(ScalarValue::size).sum(),
            }
    }
}

/// The rows that keys hold on to: their columns, times and conditions by place.
pub(super) struct RowStore {
    pub columns: Vec<Column>,
    /// Event time, ms.
    pub times: Vec<i64>,
    /// For each symbol whether the row may be mapped to it, as far as is known without looking back.
    pub masks: Vec<u64>,
    /// The symbols whose conditions on neighbouring rows have been computed into `masks`.
    pub known: Vec<u64>,
    free: Vec<u32>,
}

impl RowStore {
    pub fn new(types: &[DataType]) -> Self {
        RowStore {
            columns: types.iter().map(Column::new).collect(),
            times: Vec::new(),
            masks: Vec::new(),
            known: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Adds rows; their places go into `places` (cleared first).
    pub fn add(&mut self, times: &[i64], masks: &[u64], columns: &[Cells<'_>], places: &mut Vec<u32>) -> Result<(), OperatorError> {
        places.clear();
        let reused = self.free.len().min(times.len());
        places.extend(self.free.drain(self.free.len() - reused..).rev());
        let fresh = self.times.len() as u32..(self.times.len() + times.len() - reused) as u32;
        places.extend(fresh.clone());
        self.resize(fresh.end as usize);
        for (row, place) in places.iter().enumerate() {
            self.times[*place as usize] = times[row];
            self.masks[*place as usize] = masks[row];
            self.known[*place as usize] = 0;
        }
        for (column, cells) in self.columns.iter_mut().zip(columns) {
            column.set(places, cells)?;
        }
        Ok(())
    }

    /// Adds a row of `columns` and gives its place.
    #[inline]
    pub fn add_one(&mut self, time: i64, mask: u64, columns: &[Cells<'_>], row: usize) -> Result<u32, OperatorError> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                let place = self.times.len();
                self.resize(place + 1);
                place as u32
            }
        };
        self.times[place as usize] = time;
        self.masks[place as usize] = mask;
        self.known[place as usize] = 0;
        for (column, cells) in self.columns.iter_mut().zip(columns) {
            column.set_one(place, cells, row)?;
        }
        Ok(place)
    }

    fn resize(&mut self, places: usize) {
        self.times.resize(places, 0);
        self.masks.resize(places, 0);
        self.known.resize(places, 0);
        self.columns.iter_mut().for_each(|c| c.resize(places));
    }

    /// Gives a row's place back.
    #[inline]
    pub fn release(&mut self, place: u32) {
        self.columns.iter_mut().for_each(|c| c.forget(place));
        self.free.push(place);
    }

    /// How many rows are held.
    pub fn len(&self) -> usize {
        self.times.len() - self.free.len()
    }

    pub fn memory(&self) -> usize {
        self.columns.iter().map(Column::memory).sum::<usize>() + self.times.capacity() * 24 + self.free.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array};

    #[track_caller]
    fn check(array: ArrayRef) {
        let mut column = Column::new(array.data_type());
        let rows = array.len() as u32;
        column.resize(2 * rows as usize);
        let places: Vec<u32> = (0..rows).map(|r| 2 * r + 1).collect();
        column.set(&places, &Cells::new(&array)).unwrap();
        assert_eq!(&column.gather(&places).unwrap(), &array);
        let mut other = Column::new(array.data_type());
        places.iter().for_each(|p| other.push(column.value(*p)));
        assert_eq!(&other.drain().unwrap(), &array);
        assert_eq!(other.drain().unwrap().len(), 0);
        for (row, place) in places.iter().enumerate() {
            assert_eq!(&column.value(*place).to_array(array.data_type()).unwrap(), &array.slice(row, 1));
        }
    }

    #[test]
    fn values_come_back() {
        check(Arc::new(Int64Array::from(vec![Some(5), None, Some(-7)])));
        check(Arc::new(Int64Array::from(vec![Some(5), None, Some(-7)]).reinterpret_cast::<TimestampMillisecondType>()));
        check(Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])));
        check(Arc::new(Float64Array::from(vec![Some(0.5), None, Some(-0.0)])));
        check(Arc::new(PrimitiveArray::<Decimal128Type>::from(vec![Some(5), None]).with_data_type(DataType::Decimal128(10, 2))));
        check(Arc::new(StringArray::from(vec![Some("a"), None, Some(""), Some("longer")])));
        check(Arc::new(PrimitiveArray::<UInt64Type>::from(vec![Some(u64::MAX), None])));
    }

    #[test]
    fn strings_do_not_pile_up() {
        let mut store = RowStore::new(&[DataType::Utf8]);
        let text = "x".repeat(100);
        let (mut keep, mut places) = (Vec::new(), Vec::new());
        for round in 0..10_000i64 {
            let array: ArrayRef = Arc::new(StringArray::from(vec![format!("{round}"), text.clone()]));
            store.add(&[round, round], &[1, 2], &[Cells::new(&array)], &mut places).unwrap();
            store.release(places[1]);
            keep.push(places[0]);
            if keep.len() > 10 {
                store.release(keep.remove(0));
            }
        }
        assert_eq!(store.len(), 10);
        assert!(store.memory() < 300_000, "{}", store.memory());
        assert!(matches!(store.columns[0].value(keep[9]), Value::Text("9999")));
        assert_eq!(store.times[keep[0] as usize], 9_990);
    }
}
