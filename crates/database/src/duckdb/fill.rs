//! Columns of a job into chunks: values are copied as they lie, texts stay where they are.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::filter;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use serde::de::IgnoredAny;
use tidemill_format::types::type_name;

use super::convert::{Refusal, beyond, convert, show};
use super::error::db_error;
use super::ffi::{Api, Appender, Chunk, LogicalType, Plain, VectorMut, Wide};
use super::shape::{Form, Shape};
use crate::driver::DbError;

/// A column that is written to.
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub shape: Shape,
    /// The type of the vectors that it is written from: its own, or VARCHAR.
    pub written: LogicalType,
}

impl Column {
    /// Of a table's column.
    pub fn new(api: &'static Api, name: String, logical: LogicalType) -> Self {
        let shape = Shape::of(&logical);
        let written = if shape.takes_text() || matches!(shape.form, Form::Text { .. }) { LogicalType::text(api) } else { logical };
        Column { name, shape, written }
    }

    /// The column's values as they are written.
    fn values(&self, array: &ArrayRef) -> Result<ArrayRef, DbError> {
        let Column { name, shape, .. } = self;
        if !shape.is_writable() && !shape.takes_text() {
            return Err(DbError::fatal(format!("column '{name}' is {} in DuckDB, which is not written to", shape.name)));
        }
        let made = convert(array, &shape.natural).map_err(|refusal| match refusal {
            Refusal::Types => {
                let what = type_name(array.data_type());
                DbError::fatal(format!("column '{name}' is {} in DuckDB, into which a {what} does not go as it is; cast it", shape.name))
            }
            Refusal::Value(why) => DbError::data(format!("column '{name}', {} in DuckDB: {why}", shape.name)),
        })?;
        check(&made, shape).map_err(|why| DbError::data(format!("column '{name}', {} in DuckDB: {why}", shape.name)))?;
        Ok(made)
    }
}

/// Looks at values, those within others too, for what the library would take and keep as something else.
fn check(array: &ArrayRef, shape: &Shape) -> Result<(), String> {
    if !is_checked(shape) {
        return Ok(());
    }
    match &shape.form {
        Form::List(item) => {
            let lists = present(array)?;
            let lists = lists.as_list::<i32>();
            check(&used(lists.values(), lists.offsets()), item)
        }
        Form::Map(key, value) => {
            let maps = present(array)?;
            let maps = maps.as_map();
            check(&used(maps.keys(), maps.offsets()), key)?;
            check(&used(maps.values(), maps.offsets()), value)
        }
        Form::Struct(fields) => {
            let structs = present(array)?;
            structs.as_struct().columns().iter().zip(fields).try_for_each(|(part, (_, field))| check(part, field))
        }
        Form::Text { .. } => {
            let wrong = |text: &Option<&str>| text.is_some_and(|text| serde_json::from_str::<IgnoredAny>(text).is_err());
            match array.as_string::<i32>().iter().find(wrong) {
                Some(Some(text)) => Err(format!("'{}' is no JSON", text.chars().take(100).collect::<String>())),
                _ => Ok(()),
            }
        }
        _ => match beyond(array) {
            Some(row) => Err(format!("the value {} is out of its range", show(array, row))),
            None => Ok(()),
        },
    }
}

/// Whether there are such values of a type.
fn is_checked(shape: &Shape) -> bool {
    match &shape.form {
        Form::Plain => matches!(shape.natural, DataType::Date32 | DataType::Timestamp(..)),
        Form::Text { json } => *json,
        Form::List(item) => is_checked(item),
        Form::Map(key, value) => is_checked(key) || is_checked(value),
        Form::Struct(fields) => fields.iter().any(|(_, field)| is_checked(field)),
        _ => false,
    }
}

/// The rows that are not NULL: below the others anything may stand.
fn present(array: &ArrayRef) -> Result<ArrayRef, String> {
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => Ok(array.clone()),
        Some(nulls) => filter(array, &BooleanArray::new(nulls.inner().clone(), None)).map_err(|e| e.to_string()),
    }
}

/// The items that lists with these offsets have.
fn used(items: &ArrayRef, offsets: &OffsetBuffer<i32>) -> ArrayRef {
    let (begin, end) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
    items.slice(begin, end - begin)
}

/// Puts rows into an appender, whose columns are these.
///
/// # Errors
/// Of the library, or a value that does not fit, with its column.
pub fn push(api: &'static Api, mut appender: Appender<'_>, columns: &[Column], rows: &RecordBatch) -> Result<(), DbError> {
    let mut arrays = Vec::with_capacity(columns.len());
    for (column, array) in columns.iter().zip(rows.columns()) {
        arrays.push(column.values(array)?);
    }
    let types: Vec<&LogicalType> = columns.iter().map(|c| &c.written).collect();
    let mut chunk = Chunk::new(api, &types);
    let most = api.chunk_rows();
    for first in (0..rows.num_rows()).step_by(most) {
        let count = most.min(rows.num_rows() - first);
        chunk.reset();
        for (index, (column, array)) in columns.iter().zip(&arrays).enumerate() {
            let part = Part { array, first, count };
            part.fill(&mut chunk.column_mut(index), &column.shape, None)
                .map_err(|why| DbError::data(format!("column '{}': {why}", column.name)))?;
        }
        chunk.set_rows(count);
        appender.push(&mut chunk).map_err(|failure| {
            // The library says of texts that do not become what the column is only that types differ.
            let texts: Vec<&str> = columns.iter().filter(|c| c.shape.takes_text()).map(|c| c.name.as_str()).collect();
            if !texts.is_empty() && failure.message.contains("type mismatch") {
                DbError::data(format!("a value of column {} is not of its type: {}", texts.join(" or "), failure.message))
            } else {
                db_error("", failure)
            }
        })?;
    }
    appender.finish().map_err(|failure| db_error("", failure))
}

/// Some rows of an array.
#[derive(Clone, Copy)]
struct Part<'a> {
    array: &'a dyn Array,
    first: usize,
    count: usize,
}

impl<'a> Part<'a> {
    fn nulls(&self) -> Option<NullBuffer> {
        self.array.nulls().map(|nulls| nulls.slice(self.first, self.count)).filter(|nulls| nulls.null_count() > 0)
    }

    /// Writes the rows into the first of a vector. `outer`: what is NULL around them, and so they are.
    fn fill(self, vector: &mut VectorMut<'_, 'a>, shape: &Shape, outer: Option<&NullBuffer>) -> Result<(), String> {
        let (array, first, count) = (self.array, self.first, self.count);
        let nulls = NullBuffer::union(self.nulls().as_ref(), outer);
        if let Some(nulls) = &nulls {
            vector.nulls(nulls);
        }
        match &shape.form {
            Form::Boolean => {
                let values = array.as_boolean();
                vector.each(count, |i| u8::from(values.value(first + i)));
            }
            Form::Plain => self.plain(vector, &shape.natural)?,
            Form::Decimal(width) => {
                let values = &array.as_primitive::<Decimal128Type>().values()[first..first + count];
                // They have no more digits than the column's type, so that they fit.
                match width {
                    2 => vector.each(count, |i| values[i] as i16),
                    4 => vector.each(count, |i| values[i] as i32),
                    8 => vector.each(count, |i| values[i] as i64),
                    _ => vector.each(count, |i| words(values[i])),
                }
            }
            Form::Huge { unsigned } => {
                let values = &array.as_primitive::<Decimal128Type>().values()[first..first + count];
                let valid = |i: usize| nulls.as_ref().is_none_or(|n| n.is_valid(i));
                if *unsigned && let Some(negative) = (0..count).find(|i| values[*i] < 0 && valid(*i)) {
                    return Err(format!("the value {} is below zero", values[negative]));
                }
                vector.each(count, |i| words(values[i]));
            }
            Form::Blob => {
                let values = array.as_binary::<i32>();
                vector.bytes(count, |i| values.value(first + i));
            }
            Form::Text { .. } | Form::Bit | Form::Uuid | Form::Interval | Form::TimeTz | Form::Enum(..) => {
                let values = array.as_string::<i32>();
                vector.bytes(count, |i| values.value(first + i).as_bytes());
            }
            Form::List(item) => {
                let lists = array.as_list::<i32>();
                let items = Part::of_lists(lists.values(), &lists.offsets()[first..=first + count]);
                lists_of(vector, &lists.offsets()[first..=first + count]);
                items.fill(&mut vector.items(items.count).map_err(|e| e.message)?, item, None)?;
            }
            Form::Map(key, value) => {
                let maps = array.as_map();
                let offsets = &maps.offsets()[first..=first + count];
                lists_of(vector, offsets);
                let (keys, values) = (Part::of_lists(maps.keys(), offsets), Part::of_lists(maps.values(), offsets));
                let mut entries = vector.items(keys.count).map_err(|e| e.message)?;
                keys.fill(&mut entries.field(0), key, None)?;
                values.fill(&mut entries.field(1), value, None)?;
            }
            Form::Struct(fields) => {
                let structs = array.as_struct();
                for (index, (_, field)) in fields.iter().enumerate() {
                    let part = Part { array: structs.column(index), first, count };
                    part.fill(&mut vector.field(index), field, nulls.as_ref())?;
                }
            }
            Form::Array(..) | Form::Null | Form::Other => return Err(format!("{} is not written to", shape.name)),
        }
        Ok(())
    }

    /// The items of lists with these offsets.
    fn of_lists(items: &'a ArrayRef, offsets: &[i32]) -> Self {
        let (begin, end) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
        Part { array: items, first: begin, count: end - begin }
    }

    fn copy<T: ArrowPrimitiveType<Native: Plain>>(self, vector: &mut VectorMut<'_, 'a>) {
        vector.copy(&self.array.as_primitive::<T>().values()[self.first..self.first + self.count]);
    }

    /// Values that lie as Arrow's do.
    fn plain(self, vector: &mut VectorMut<'_, 'a>, natural: &DataType) -> Result<(), String> {
        match natural {
            DataType::Int8 => self.copy::<Int8Type>(vector),
            DataType::Int16 => self.copy::<Int16Type>(vector),
            DataType::Int32 => self.copy::<Int32Type>(vector),
            DataType::Int64 => self.copy::<Int64Type>(vector),
            DataType::UInt8 => self.copy::<UInt8Type>(vector),
            DataType::UInt16 => self.copy::<UInt16Type>(vector),
            DataType::UInt32 => self.copy::<UInt32Type>(vector),
            DataType::UInt64 => self.copy::<UInt64Type>(vector),
            DataType::Float32 => self.copy::<Float32Type>(vector),
            DataType::Float64 => self.copy::<Float64Type>(vector),
            DataType::Date32 => self.copy::<Date32Type>(vector),
            DataType::Time64(TimeUnit::Microsecond) => self.copy::<Time64MicrosecondType>(vector),
            DataType::Time64(TimeUnit::Nanosecond) => self.copy::<Time64NanosecondType>(vector),
            DataType::Timestamp(TimeUnit::Second, _) => self.copy::<TimestampSecondType>(vector),
            DataType::Timestamp(TimeUnit::Millisecond, _) => self.copy::<TimestampMillisecondType>(vector),
            DataType::Timestamp(TimeUnit::Microsecond, _) => self.copy::<TimestampMicrosecondType>(vector),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => self.copy::<TimestampNanosecondType>(vector),
            other => return Err(format!("internal error: {other} does not lie as values of DuckDB do")),
        }
        Ok(())
    }
}

/// Where each list begins among the items, and how long it is.
fn lists_of(vector: &mut VectorMut<'_, '_>, offsets: &[i32]) {
    let begin = offsets[0];
    vector.each::<Wide>(offsets.len() - 1, |i| [(offsets[i] - begin) as u64, (offsets[i + 1] - offsets[i]) as u64]);
}

/// The words of a number of 128 bits.
fn words(number: i128) -> Wide {
    [number as u64, (number >> 64) as u64]
}
