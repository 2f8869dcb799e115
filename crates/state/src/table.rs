//! A piece of an operator's state, as it stands in a checkpoint.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, UInt64Array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use arrow::error::ArrowError;

use crate::hash;

/// The first column of a keyed state table: the hash of the row's key.
pub const HASH_COLUMN: &str = "__hash";

/// A named batch of state. If its first column is [`HASH_COLUMN`] its rows are divided among shards
/// by that hash at a restart; otherwise every shard gets all of it.
#[derive(Clone, Debug)]
pub struct StateTable {
    /// What it holds; unique within the operator.
    pub name: String,
    /// The rows.
    pub batch: RecordBatch,
}

impl StateTable {
    /// A table of keyed rows; `columns` are unnamed and get their position as a name.
    ///
    /// # Errors
    /// Columns of different lengths.
    pub fn keyed(name: impl Into<String>, hashes: Vec<u64>, columns: Vec<arrow::array::ArrayRef>) -> Result<Self, ArrowError> {
        let mut fields = vec![Field::new(HASH_COLUMN, DataType::UInt64, false)];
        fields.extend(columns.iter().enumerate().map(|(i, c)| Field::new(format!("c{i}"), c.data_type().clone(), true)));
        let mut arrays: Vec<arrow::array::ArrayRef> = vec![Arc::new(UInt64Array::from(hashes))];
        arrays.extend(columns);
        Ok(StateTable { name: name.into(), batch: RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)? })
    }

    /// The hashes of a keyed table.
    ///
    /// # Panics
    /// If the table is not keyed.
    pub fn hashes(&self) -> &[u64] {
        self.batch.column(0).as_primitive::<UInt64Type>().values()
    }

    /// The columns behind the hashes.
    pub fn columns(&self) -> &[arrow::array::ArrayRef] {
        &self.batch.columns()[1..]
    }

    /// The rows that belong to `shard` of `shards`; all of them if the table is not keyed.
    ///
    /// # Errors
    /// None that a table written by [`StateTable::keyed`] can cause.
    pub fn of_shard(&self, shard: usize, shards: usize) -> Result<StateTable, ArrowError> {
        if shards == 1 || self.batch.schema().fields().first().is_none_or(|f| f.name() != HASH_COLUMN) {
            return Ok(self.clone());
        }
        let mask: BooleanArray = self.hashes().iter().map(|h| Some(hash::shard(*h, shards) == shard)).collect();
        Ok(StateTable { name: self.name.clone(), batch: filter_record_batch(&self.batch, &mask)? })
    }
}
