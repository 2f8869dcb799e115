//! Columns of a result that are being filled, for clients that give one value after the other (those of SQL Server and Oracle). Which
//! values go into which column is theirs to know.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryBuilder, BooleanBuilder, Decimal128Builder, Float32Builder, Float64Builder, Int8Builder, Int16Builder,
    Int32Builder, Int64Builder, StringBuilder, make_array,
};
use arrow::datatypes::{DataType, Field, TimeUnit};
use tidemill_format::types::type_name;

use crate::driver::DbError;
use crate::mysql::nested::from_json;

/// Bytes of values after which a batch is handed on, however few rows it has.
pub(crate) const BATCH_BYTES_MAX: usize = 64 << 20;

/// The values of a column.
pub(crate) enum Values {
    Bool(BooleanBuilder),
    I8(Int8Builder),
    I16(Int16Builder),
    /// Dates and times of day, too.
    I32(Int32Builder),
    /// Timestamps, too.
    I64(Int64Builder),
    F32(Float32Builder),
    F64(Float64Builder),
    Decimal(Decimal128Builder),
    /// Lists, rows and maps, too, which are JSON there.
    Text(StringBuilder),
    Bytes(BinaryBuilder),
}

impl Values {
    /// None so far; `store` is the database's name.
    ///
    /// # Errors
    /// A type that nothing is read into.
    pub fn new(field: &Field, store: &str) -> Result<Self, DbError> {
        Ok(match field.data_type() {
            DataType::Boolean => Values::Bool(BooleanBuilder::new()),
            DataType::Int8 => Values::I8(Int8Builder::new()),
            DataType::Int16 => Values::I16(Int16Builder::new()),
            DataType::Int32 | DataType::Date32 | DataType::Time32(TimeUnit::Millisecond) => Values::I32(Int32Builder::new()),
            DataType::Int64 | DataType::Timestamp(..) => Values::I64(Int64Builder::new()),
            DataType::Float32 => Values::F32(Float32Builder::new()),
            DataType::Float64 => Values::F64(Float64Builder::new()),
            DataType::Decimal128(..) => Values::Decimal(Decimal128Builder::new().with_data_type(field.data_type().clone())),
            DataType::Utf8 | DataType::List(_) | DataType::Struct(_) | DataType::Map(..) => Values::Text(StringBuilder::new()),
            DataType::Binary => Values::Bytes(BinaryBuilder::new()),
            other => {
                let kind = type_name(other);
                return Err(DbError::fatal(format!("column '{}': {kind} cannot be read from {store}", field.name())));
            }
        })
    }

    /// Appends a NULL.
    pub fn push_null(&mut self) {
        match self {
            Values::Bool(values) => values.append_null(),
            Values::I8(values) => values.append_null(),
            Values::I16(values) => values.append_null(),
            Values::I32(values) => values.append_null(),
            Values::I64(values) => values.append_null(),
            Values::F32(values) => values.append_null(),
            Values::F64(values) => values.append_null(),
            Values::Decimal(values) => values.append_null(),
            Values::Text(values) => values.append_null(),
            Values::Bytes(values) => values.append_null(),
        }
    }

    /// The column of this name and type; begins anew.
    ///
    /// # Errors
    /// A text that is no JSON of the type.
    pub fn finish(&mut self, name: &str, data_type: &DataType) -> Result<ArrayRef, DbError> {
        let array: ArrayRef = match self {
            Values::Bool(values) => Arc::new(values.finish()),
            Values::I8(values) => Arc::new(values.finish()),
            Values::I16(values) => Arc::new(values.finish()),
            Values::I32(values) => Arc::new(values.finish()),
            Values::I64(values) => Arc::new(values.finish()),
            Values::F32(values) => Arc::new(values.finish()),
            Values::F64(values) => Arc::new(values.finish()),
            Values::Decimal(values) => Arc::new(values.finish()),
            Values::Text(values) => {
                let texts = values.finish();
                match data_type {
                    DataType::Utf8 => Arc::new(texts),
                    nested => return from_json(name, &texts, nested),
                }
            }
            Values::Bytes(values) => Arc::new(values.finish()),
        };
        if array.data_type() == data_type {
            return Ok(array);
        }
        // Numbers that are dates or times.
        Ok(make_array(array.to_data().into_builder().data_type(data_type.clone()).build()?))
    }
}
