//! Blocks of changes as what a table is to do: rows of one key are folded to the last, sorted by key, and
//! divided among connections so that a key always goes through the same.

use std::hash::Hasher;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use arrow::row::{RowConverter, SortField};
use tidemill_block::Block;

use crate::driver::DbError;

/// What a batch does to a table with a primary key.
#[derive(Debug)]
pub(super) struct Folded {
    /// Rows of distinct keys, in order of key.
    pub upserts: RecordBatch,
    /// Keys that are to go, distinct, in order; the key columns only.
    pub deletes: RecordBatch,
}

/// Folds rows by key: the last of each wins.
///
/// # Errors
/// Key columns that cannot be compared.
pub(super) fn fold(block: &Block, key: &[usize]) -> Result<Folded, DbError> {
    let batch = &block.batch;
    let last = last_by_key(batch, key)?;
    let (mut upserts, mut deletes) = (Vec::new(), Vec::new());
    match &block.kinds {
        None => upserts = last,
        Some(kinds) => {
            upserts.reserve(last.len());
            for row in last {
                if kinds[row as usize].adds() { upserts.push(row) } else { deletes.push(row) }
            }
        }
    }
    let in_order = upserts.len() == batch.num_rows() && upserts.iter().enumerate().all(|(i, row)| i == *row as usize);
    let upserts = if in_order { batch.clone() } else { take_record_batch(batch, &UInt32Array::from(upserts))? };
    let deletes = take_record_batch(&batch.project(key)?, &UInt32Array::from(deletes))?;
    Ok(Folded { upserts, deletes })
}

/// The last row of each key, in order of key.
fn last_by_key(batch: &RecordBatch, key: &[usize]) -> Result<Vec<u32>, DbError> {
    if let [one] = key
        && let Some(values) = whole_numbers(batch.column(*one))
    {
        let mut rows: Vec<(i64, u32)> = values.into_iter().zip(0..).collect();
        rows.sort_unstable();
        let last = |run: &[(i64, u32)]| run[run.len() - 1].1;
        return Ok(rows.chunk_by(|a, b| a.0 == b.0).map(last).collect());
    }
    let rows = key_rows(batch, key)?;
    let mut order: Vec<u32> = (0..batch.num_rows() as u32).collect();
    order.sort_unstable_by(|a, b| rows.row(*a as usize).cmp(&rows.row(*b as usize)).then(a.cmp(b)));
    let same = |a: &u32, b: &u32| rows.row(*a as usize) == rows.row(*b as usize);
    Ok(order.chunk_by(same).map(|run| run[run.len() - 1]).collect())
}

/// The values of a column of whole numbers without NULLs.
fn whole_numbers(column: &ArrayRef) -> Option<Vec<i64>> {
    if column.null_count() > 0 {
        return None;
    }
    match column.data_type() {
        DataType::Int64 => Some(column.as_primitive::<Int64Type>().values().to_vec()),
        DataType::Int32 => Some(column.as_primitive::<Int32Type>().values().iter().map(|v| i64::from(*v)).collect()),
        _ => None,
    }
}

/// The key columns as rows of bytes that compare as the keys do.
pub(crate) fn key_rows(batch: &RecordBatch, key: &[usize]) -> Result<arrow::row::Rows, DbError> {
    let columns: Vec<ArrayRef> = key.iter().map(|i| batch.column(*i).clone()).collect();
    let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
    Ok(RowConverter::new(fields)?.convert_columns(&columns)?)
}

/// The rows of each of `lanes`, in their order: those of one key are in one lane.
///
/// # Errors
/// As [`fold`].
pub(super) fn divide(block: &Block, key: &[usize], lanes: usize) -> Result<Vec<Block>, DbError> {
    let rows = key_rows(&block.batch, key)?;
    let mut indices: Vec<Vec<u32>> = vec![Vec::new(); lanes];
    for row in 0..block.rows() {
        // The same in every run: the default keys of the hasher are constants.
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write(rows.row(row).data());
        indices[(hasher.finish() % lanes as u64) as usize].push(row as u32);
    }
    indices.into_iter().map(|rows| Ok(block.take(&UInt32Array::from(rows))?)).collect()
}

/// Bytes of the rows of a batch, shared buffers counted by the part that is used.
pub(crate) fn bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0)).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, Schema};
    use tidemill_block::text;

    use super::*;

    /// `key` columns first; upserts and deletes as text.
    #[track_caller]
    fn check(types: &[DataType], key: usize, rows: &str, upserts: &str, deletes: &str) {
        let field = |(i, t): (usize, &DataType)| Field::new(format!("c{i}"), t.clone(), true);
        let schema = Arc::new(Schema::new(types.iter().enumerate().map(field).collect::<Vec<_>>()));
        let key: Vec<usize> = (0..key).collect();
        let folded = fold(&text::parse(&schema, rows), &key).unwrap();
        assert_eq!(text::format(&Block::inserts(folded.upserts, 0)).trim(), upserts);
        assert_eq!(text::format(&Block::inserts(folded.deletes, 0)).trim(), deletes);
    }

    #[test]
    fn rows_are_folded_by_key() {
        let numbers = [DataType::Int64, DataType::Int32];
        check(&numbers, 1, "2 1\n1 1\n2 2", "+I 1 1\n+I 2 2", "");
        check(&numbers, 1, "2 1\n-D 2 1\n1 1\n-D 3 1", "+I 1 1", "+I 2\n+I 3");
        check(&numbers, 1, "-D 2 1\n+U 2 5\n-1 0", "+I -1 0\n+I 2 5", "");
        check(&numbers, 2, "2 1\n2 0\n-D 2 1", "+I 2 0", "+I 2 1");
        check(&[DataType::Utf8, DataType::Int32], 1, "b 1\na 1\nb 3\n-D a 1", "+I b 3", "+I a");
    }

    #[test]
    fn a_key_stays_in_its_lane() {
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false)]));
        let keys = Arc::new(arrow::array::Int64Array::from_iter_values((0..1000).map(|i| i % 100)));
        let block = Block::inserts(RecordBatch::try_new(schema, vec![keys]).unwrap(), 0);
        let lanes = divide(&block, &[0], 3).unwrap();
        assert_eq!(lanes.iter().map(Block::rows).sum::<usize>(), 1000);
        let mut seen = std::collections::HashMap::new();
        for (lane, block) in lanes.iter().enumerate() {
            for key in block.column(0).as_primitive::<Int64Type>().values() {
                assert_eq!(*seen.entry(*key).or_insert(lane), lane);
            }
        }
        assert!(lanes.iter().all(|l| l.rows() > 0));
    }
}
