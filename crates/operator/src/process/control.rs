//! Messages that are no rows: see [`super::conversation::CONTROL`].

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::conversation::CONTROL;
use crate::OperatorError;

/// What is asked about rows of `input`: its columns, in each of which NULL may stand, and the control.
pub(super) fn ask_schema(input: &Schema) -> SchemaRef {
    let mut fields: Vec<Field> = input.fields().iter().map(|f| Field::new(f.name(), f.data_type().clone(), true)).collect();
    fields.push(Field::new(CONTROL, DataType::Binary, true));
    Arc::new(Schema::new(fields))
}

/// A message with rows.
pub(super) fn rows(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch, OperatorError> {
    let mut columns = batch.columns().to_vec();
    columns.push(new_null_array(&DataType::Binary, batch.num_rows()));
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

/// A message of one control.
pub(super) fn word(schema: &SchemaRef, word: &str) -> Result<RecordBatch, OperatorError> {
    keyed(schema, &[], &[], vec![word.as_bytes().to_vec()])
}

/// Controls, each with the key that it belongs to: `places` are the columns of the keys.
pub(super) fn keyed(schema: &SchemaRef, places: &[usize], keys: &[ArrayRef], controls: Vec<Vec<u8>>) -> Result<RecordBatch, OperatorError> {
    let rows = controls.len();
    let last = schema.fields().len() - 1;
    let columns = (0..schema.fields().len()).map(|i| match places.iter().position(|p| *p == i) {
        _ if i == last => Arc::new(BinaryArray::from_iter_values(&controls)) as ArrayRef,
        Some(key) => keys[key].clone(),
        None => new_null_array(schema.field(i).data_type(), rows),
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns.collect(), &options)?)
}
