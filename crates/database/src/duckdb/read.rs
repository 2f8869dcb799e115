//! Chunks of results as columns: values are copied as they lie, column by column, and converted where the job's type
//! is another one, if that changes none.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, ListArray, MapArray, NullArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray, StructArray, UInt32Array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{
    ArrowNativeType, ArrowPrimitiveType, DataType, Date32Type, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    SchemaRef, Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use tidemill_format::types::type_name;

use super::convert::{Refusal, beyond, convert};
use super::ffi::{Chunk, Plain, Vector, Wide};
use super::shape::{Form, Shape};
use super::text;
use crate::driver::DbError;

/// The columns of a result.
pub struct Columns {
    schema: SchemaRef,
    shapes: Vec<Shape>,
}

impl Columns {
    /// Of a result whose columns are to be those of `schema`.
    ///
    /// # Errors
    /// There are more or fewer, or of types that go into no column.
    pub fn new(schema: &SchemaRef, shapes: Vec<Shape>) -> Result<Self, DbError> {
        let (found, wanted) = (shapes.len(), schema.fields().len());
        if found != wanted {
            return Err(DbError::fatal(format!("it gives {found} columns, and {wanted} are expected")));
        }
        for (field, shape) in schema.fields().iter().zip(&shapes) {
            if !shape.is_readable() {
                return Err(mismatch(field, shape));
            }
        }
        Ok(Columns { schema: schema.clone(), shapes })
    }

    /// The rows of a chunk.
    ///
    /// # Errors
    /// A value that the column of the job does not hold, with its column.
    pub fn batch(&self, chunk: &Chunk<'_>) -> Result<RecordBatch, DbError> {
        let mut arrays = Vec::with_capacity(self.shapes.len());
        for (index, (field, shape)) in self.schema.fields().iter().zip(&self.shapes).enumerate() {
            let failed = |why: String| DbError::data(format!("column '{}', a {} of DuckDB: {why}", field.name(), shape.name));
            let array = values(&chunk.column(index), shape).map_err(failed)?;
            let array = convert(&array, field.data_type()).map_err(|refusal| match refusal {
                Refusal::Types => mismatch(field, shape),
                Refusal::Value(why) => failed(format!("{why} (wanted is {})", type_name(field.data_type()))),
            })?;
            if !field.is_nullable() && array.null_count() > 0 {
                return Err(DbError::data(format!("column '{}' is NOT NULL, and the database has a NULL there", field.name())));
            }
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(chunk.rows()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }
}

/// Types that do not go together.
pub fn mismatch(field: &Field, shape: &Shape) -> DbError {
    DbError::fatal(format!(
        "column '{}' is declared {}, and in DuckDB it is {}, which does not go into it as it is; declare it otherwise, or make a view \
         that casts it (to VARCHAR for STRING)",
        field.name(),
        type_name(field.data_type()),
        shape.name
    ))
}

fn nulls(vector: &Vector<'_>) -> Option<NullBuffer> {
    let bits = BooleanBuffer::new(Buffer::from_slice_ref(vector.validity()?), 0, vector.rows());
    Some(NullBuffer::new(bits)).filter(|nulls| nulls.null_count() > 0)
}

/// An array of the shape's natural type.
fn values(vector: &Vector<'_>, shape: &Shape) -> Result<ArrayRef, String> {
    let (nulls, rows) = (nulls(vector), vector.rows());
    let valid = |row: usize| nulls.as_ref().is_none_or(|n| n.is_valid(row));
    Ok(match &shape.form {
        Form::Boolean => {
            let bytes = vector.values::<u8>();
            Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(rows, |row| bytes[row] != 0), nulls))
        }
        Form::Plain => {
            let array = plain(vector, &shape.natural, nulls)?;
            if let Some(row) = beyond(&array) {
                let value = if row_is_negative(&array, row) { "-infinity" } else { "infinity" };
                return Err(format!("there is nothing for the value {value}"));
            }
            array
        }
        Form::Decimal(width) => {
            let numbers = match width {
                2 => widened::<i16>(vector),
                4 => widened::<i32>(vector),
                8 => widened::<i64>(vector),
                _ => vector.values::<Wide>().iter().map(signed).collect(),
            };
            Arc::new(Decimal128Array::new(ScalarBuffer::from(numbers), nulls).with_data_type(shape.natural.clone()))
        }
        Form::Huge { unsigned } => {
            let numbers: Vec<i128> = vector.values::<Wide>().iter().map(signed).collect();
            // 38 digits are what a DECIMAL has.
            let most = 10i128.pow(38);
            for (row, number) in numbers.iter().enumerate() {
                let fits = -most < *number && *number < most && (*number >= 0 || !unsigned);
                if !fits && valid(row) {
                    let shown = if *unsigned { (*number as u128).to_string() } else { number.to_string() };
                    return Err(format!("the value {shown} has more than 38 digits"));
                }
            }
            Arc::new(Decimal128Array::new(ScalarBuffer::from(numbers), nulls).with_data_type(shape.natural.clone()))
        }
        Form::Text { .. } => {
            let (offsets, data) = vector.bytes(nulls.as_ref()).map_err(|e| e.message)?;
            let texts = StringArray::try_new(OffsetBuffer::new(offsets.into()), Buffer::from_vec(data), nulls);
            Arc::new(texts.map_err(|e| format!("a text is no UTF-8: {e}"))?)
        }
        Form::Blob => {
            let (offsets, data) = vector.bytes(nulls.as_ref()).map_err(|e| e.message)?;
            Arc::new(BinaryArray::try_new(OffsetBuffer::new(offsets.into()), Buffer::from_vec(data), nulls).map_err(|e| e.to_string())?)
        }
        Form::Bit => {
            let (offsets, data) = vector.bytes(nulls.as_ref()).map_err(|e| e.message)?;
            let of = |row: usize, out: &mut String| text::write_bits(out, &data[offsets[row] as usize..offsets[row + 1] as usize]);
            Arc::new(text::texts(rows, nulls.as_ref(), of))
        }
        Form::Uuid => {
            let numbers = vector.values::<Wide>();
            Arc::new(text::texts(rows, nulls.as_ref(), |row, out| text::write_uuid(out, numbers[row])))
        }
        Form::Interval => {
            let parts = vector.values::<Wide>();
            Arc::new(text::texts(rows, nulls.as_ref(), |row, out| text::write_interval(out, parts[row])))
        }
        Form::TimeTz => {
            let times = vector.values::<u64>();
            Arc::new(text::texts(rows, nulls.as_ref(), |row, out| text::write_time_tz(out, times[row])))
        }
        Form::Enum(width, labels) => {
            // The number of a NULL is anything.
            let of = |row: usize, number: u32| if valid(row) { number } else { 0 };
            let numbers: Vec<u32> = match width {
                1 => vector.values::<u8>().iter().enumerate().map(|(row, n)| of(row, u32::from(*n))).collect(),
                2 => vector.values::<u16>().iter().enumerate().map(|(row, n)| of(row, u32::from(*n))).collect(),
                _ => vector.values::<u32>().iter().enumerate().map(|(row, n)| of(row, *n)).collect(),
            };
            take(labels, &UInt32Array::new(numbers.into(), nulls), None).map_err(|e| e.to_string())?
        }
        Form::List(_) | Form::Map(..) => lists(vector, shape, nulls)?,
        Form::Array(item, length) => {
            let DataType::List(field) = &shape.natural else { return Err("internal error: a list that is none".into()) };
            let items = values(&vector.elements(), item)?;
            let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(*length, rows));
            Arc::new(ListArray::try_new(field.clone(), offsets, items, nulls).map_err(|e| e.to_string())?)
        }
        Form::Struct(fields) => {
            let DataType::Struct(natural) = &shape.natural else { return Err("internal error: a struct that is none".into()) };
            let mut parts = Vec::with_capacity(fields.len());
            for (index, (_, part)) in fields.iter().enumerate() {
                parts.push(values(&vector.field(index), part)?);
            }
            Arc::new(StructArray::try_new_with_length(natural.clone(), parts, nulls, rows).map_err(|e| e.to_string())?)
        }
        Form::Null => Arc::new(NullArray::new(rows)),
        Form::Other => return Err("nothing is known of such values".into()),
    })
}

/// Lists and maps. Where their items do not lie in order, one list behind the other, they are put so.
fn lists(vector: &Vector<'_>, shape: &Shape, nulls: Option<NullBuffer>) -> Result<ArrayRef, String> {
    let valid = |row: usize| nulls.as_ref().is_none_or(|n| n.is_valid(row));
    let entries = vector.values::<Wide>();
    let mut offsets = Vec::with_capacity(entries.len() + 1);
    let (mut end, mut in_order) = (0u64, true);
    offsets.push(0);
    for (row, [offset, length]) in entries.iter().enumerate() {
        if valid(row) {
            in_order &= *offset == end;
            end += length;
        }
        offsets.push(i32::try_from(end).map_err(|_| "more than 2,147,483,647 items of lists in one chunk".to_string())?);
    }
    let items = vector.items();
    let order = || -> UInt32Array {
        let of = |(row, [offset, length]): (usize, &Wide)| if valid(row) { *offset as u32..(*offset + *length) as u32 } else { 0..0 };
        entries.iter().enumerate().flat_map(of).collect::<Vec<_>>().into()
    };
    let arranged = |array: ArrayRef| -> Result<ArrayRef, String> {
        if in_order { Ok(array.slice(0, end as usize)) } else { take(&array, &order(), None).map_err(|e| e.to_string()) }
    };
    let offsets = OffsetBuffer::new(offsets.into());
    match (&shape.form, &shape.natural) {
        (Form::List(item), DataType::List(field)) => {
            let items = arranged(values(&items, item)?)?;
            Ok(Arc::new(ListArray::try_new(field.clone(), offsets, items, nulls).map_err(|e| e.to_string())?))
        }
        (Form::Map(key, value), DataType::Map(pairs, sorted)) => {
            let DataType::Struct(fields) = pairs.data_type() else { return Err("internal error: a map that is none".into()) };
            let parts = vec![arranged(values(&items.field(0), key)?)?, arranged(values(&items.field(1), value)?)?];
            let entries = StructArray::try_new(fields.clone(), parts, None).map_err(|e| e.to_string())?;
            Ok(Arc::new(MapArray::try_new(pairs.clone(), offsets, entries, nulls, *sorted).map_err(|e| e.to_string())?))
        }
        _ => Err("internal error: a list that is none".into()),
    }
}

fn copied<T>(vector: &Vector<'_>, nulls: Option<NullBuffer>) -> ArrayRef
where
    T: ArrowPrimitiveType<Native: Plain + ArrowNativeType>,
{
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(vector.values::<T::Native>().to_vec()), nulls))
}

/// Values that lie as Arrow's do.
fn plain(vector: &Vector<'_>, natural: &DataType, nulls: Option<NullBuffer>) -> Result<ArrayRef, String> {
    Ok(match natural {
        DataType::Int8 => copied::<Int8Type>(vector, nulls),
        DataType::Int16 => copied::<Int16Type>(vector, nulls),
        DataType::Int32 => copied::<Int32Type>(vector, nulls),
        DataType::Int64 => copied::<Int64Type>(vector, nulls),
        DataType::UInt8 => copied::<UInt8Type>(vector, nulls),
        DataType::UInt16 => copied::<UInt16Type>(vector, nulls),
        DataType::UInt32 => copied::<UInt32Type>(vector, nulls),
        DataType::UInt64 => copied::<UInt64Type>(vector, nulls),
        DataType::Float32 => copied::<Float32Type>(vector, nulls),
        DataType::Float64 => copied::<Float64Type>(vector, nulls),
        DataType::Date32 => copied::<Date32Type>(vector, nulls),
        DataType::Time64(TimeUnit::Microsecond) => copied::<Time64MicrosecondType>(vector, nulls),
        DataType::Time64(TimeUnit::Nanosecond) => copied::<Time64NanosecondType>(vector, nulls),
        DataType::Timestamp(TimeUnit::Second, None) => copied::<TimestampSecondType>(vector, nulls),
        DataType::Timestamp(TimeUnit::Millisecond, None) => copied::<TimestampMillisecondType>(vector, nulls),
        DataType::Timestamp(TimeUnit::Nanosecond, None) => copied::<TimestampNanosecondType>(vector, nulls),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let values = ScalarBuffer::from(vector.values::<i64>().to_vec());
            Arc::new(PrimitiveArray::<TimestampMicrosecondType>::new(values, nulls).with_timezone_opt(zone.clone()))
        }
        other => return Err(format!("internal error: {other} does not lie as values of DuckDB do")),
    })
}

/// Whether the number of a date or timestamp is below zero.
fn row_is_negative(array: &ArrayRef, row: usize) -> bool {
    use arrow::array::AsArray;
    match array.data_type() {
        DataType::Date32 => array.as_primitive::<Date32Type>().value(row) < 0,
        _ => array.to_data().buffer::<i64>(0).get(row).is_some_and(|v| *v < 0),
    }
}

fn widened<T: Plain + Into<i128>>(vector: &Vector<'_>) -> Vec<i128> {
    vector.values::<T>().iter().map(|v| (*v).into()).collect()
}

/// A number of 128 bits of its words.
fn signed([low, high]: &Wide) -> i128 {
    ((i128::from(*high as i64)) << 64) | i128::from(*low)
}
