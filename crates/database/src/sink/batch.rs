//! Blocks of changes as what a table is to do: rows of one key are folded to the last, sorted by key, and
//! divided among connections so that a key always goes through the same.

use std::hash::Hasher;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::interleave;
use arrow::datatypes::{DataType, Int32Type, Int64Type, SchemaRef};
use arrow::row::{RowConverter, SortField};
use tidemill_block::Block;

use crate::driver::DbError;

/// What a batch does to a table with a primary key.
#[derive(Clone, Debug)]
pub(super) struct Folded {
    /// Rows of distinct keys, in order of key.
    pub upserts: RecordBatch,
    /// Keys that are to go, distinct, in order; the key columns only.
    pub deletes: RecordBatch,
}

/// The most rows of a transaction: for each a store may hold a lock, and an image of the row before.
const PART_ROWS: usize = 1 << 18;

impl Folded {
    /// The same in parts of at most so many bytes (or one row), in order of key; upserts in at least `ways` of them if there
    /// are as many rows. What is to go is in the first ones, to be written before the others.
    pub fn parts(&self, bytes_max: usize, ways: usize) -> Vec<Folded> {
        let Folded { upserts, deletes } = self;
        let fits = |batch: &RecordBatch| batch.num_rows() <= PART_ROWS && bytes(batch) <= bytes_max;
        if ways <= 1 && fits(upserts) && fits(deletes) {
            return vec![self.clone()];
        }
        let go = cut(deletes, bytes_max, 1).into_iter().map(|part| Folded { upserts: upserts.slice(0, 0), deletes: part });
        let come = cut(upserts, bytes_max, ways).into_iter().map(|part| Folded { upserts: part, deletes: deletes.slice(0, 0) });
        go.chain(come).collect()
    }
}

/// A batch in at least `ways` parts of at most so many bytes, or one row.
fn cut(batch: &RecordBatch, bytes_max: usize, ways: usize) -> Vec<RecordBatch> {
    let (rows, size) = (batch.num_rows(), bytes(batch));
    let fitting = if size > bytes_max { (rows as u128 * bytes_max as u128 / size as u128) as usize } else { rows };
    let each = fitting.min(rows / ways.max(1)).clamp(1, PART_ROWS);
    // The next one last.
    let mut left: Vec<RecordBatch> = (0..rows).step_by(each).map(|from| batch.slice(from, each.min(rows - from))).rev().collect();
    let mut parts = Vec::with_capacity(left.len());
    while let Some(part) = left.pop() {
        let rows = part.num_rows();
        // Rows are not all alike.
        if rows > 1 && bytes(&part) > bytes_max {
            let half = rows / 2;
            left.push(part.slice(half, rows - half));
            left.push(part.slice(0, half));
        } else {
            parts.push(part);
        }
    }
    parts
}

/// Where a row is: the number of its block, and its own there.
type At = (usize, usize);

/// Folds the rows of blocks by key: the last of each wins. The blocks are not put together before: a large batch is
/// copied once.
///
/// # Errors
/// Key columns that cannot be compared.
pub(super) fn fold(schema: &SchemaRef, blocks: &[Block], key: &[usize]) -> Result<Folded, DbError> {
    let last = last_by_key(blocks, key)?;
    let (mut upserts, mut deletes): (Vec<At>, Vec<At>) = (last, Vec::new());
    if blocks.iter().any(|block| block.kinds.is_some()) {
        (upserts, deletes) = upserts.into_iter().partition(|(block, row)| blocks[*block].kind(*row).adds());
    }
    // All rows, as they came: in distinct places, so none is missing where as many stand in order.
    let in_order = upserts.len() == blocks.iter().map(Block::rows).sum::<usize>() && upserts.is_sorted();
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let upserts = if in_order { Block::concat_columns(schema, blocks)? } else { pick(schema, blocks, &all, &upserts)? };
    Ok(Folded { upserts, deletes: pick(schema, blocks, key, &deletes)? })
}

/// Some columns of some rows.
fn pick(schema: &SchemaRef, blocks: &[Block], columns: &[usize], rows: &[At]) -> Result<RecordBatch, DbError> {
    let one = |column: &usize| {
        let arrays: Vec<&dyn Array> = blocks.iter().map(|block| block.batch.column(*column).as_ref()).collect();
        interleave(&arrays, rows)
    };
    let picked = columns.iter().map(one).collect::<Result<Vec<ArrayRef>, _>>()?;
    Ok(RecordBatch::try_new(Arc::new(schema.project(columns)?), picked)?)
}

/// The last row of each key, in order of key.
fn last_by_key(blocks: &[Block], key: &[usize]) -> Result<Vec<At>, DbError> {
    let count: usize = blocks.iter().map(Block::rows).sum();
    if let [one] = key
        && let Some(columns) = blocks.iter().map(|block| whole_numbers(block.batch.column(*one))).collect::<Option<Vec<_>>>()
    {
        let mut rows: Vec<(i64, u32, u32)> = Vec::with_capacity(count);
        for (block, values) in (0u32..).zip(columns) {
            rows.extend(values.into_iter().zip(0u32..).map(|(value, row)| (value, block, row)));
        }
        rows.sort_unstable();
        let last = |run: &[(i64, u32, u32)]| (run[run.len() - 1].1 as usize, run[run.len() - 1].2 as usize);
        return Ok(rows.chunk_by(|a, b| a.0 == b.0).map(last).collect());
    }
    let Some(first) = blocks.first() else { return Ok(Vec::new()) };
    let converter = key_converter(&first.batch, key)?;
    let mut rows = converter.empty_rows(count, 0);
    let mut places: Vec<At> = Vec::with_capacity(count);
    for (number, block) in blocks.iter().enumerate() {
        converter.append(&mut rows, &key_columns(&block.batch, key))?;
        places.extend((0..block.rows()).map(|row| (number, row)));
    }
    let mut order: Vec<u32> = (0..count as u32).collect();
    order.sort_unstable_by(|a, b| rows.row(*a as usize).cmp(&rows.row(*b as usize)).then(a.cmp(b)));
    let same = |a: &u32, b: &u32| rows.row(*a as usize) == rows.row(*b as usize);
    Ok(order.chunk_by(same).map(|run| places[run[run.len() - 1] as usize]).collect())
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
    Ok(key_converter(batch, key)?.convert_columns(&key_columns(batch, key))?)
}

fn key_converter(batch: &RecordBatch, key: &[usize]) -> Result<RowConverter, DbError> {
    let fields = key.iter().map(|i| SortField::new(batch.column(*i).data_type().clone())).collect();
    Ok(RowConverter::new(fields)?)
}

fn key_columns(batch: &RecordBatch, key: &[usize]) -> Vec<ArrayRef> {
    key.iter().map(|i| batch.column(*i).clone()).collect()
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
    use arrow::datatypes::{Field, Schema};
    use tidemill_block::text;

    use super::*;

    /// `key` columns first; upserts and deletes as text, whatever blocks the rows come in.
    #[track_caller]
    fn check(types: &[DataType], key: usize, rows: &str, upserts: &str, deletes: &str) {
        let field = |(i, t): (usize, &DataType)| Field::new(format!("c{i}"), t.clone(), true);
        let schema = Arc::new(Schema::new(types.iter().enumerate().map(field).collect::<Vec<_>>()));
        let key: Vec<usize> = (0..key).collect();
        let block = text::parse(&schema, rows);
        for first in 1..=block.rows() {
            let blocks = [block.slice(0, first), block.slice(first, block.rows() - first)];
            let blocks = if first == block.rows() { &blocks[..1] } else { &blocks[..] };
            let folded = fold(&schema, blocks, &key).unwrap();
            assert_eq!(text::format(&Block::inserts(folded.upserts, 0)).trim(), upserts);
            assert_eq!(text::format(&Block::inserts(folded.deletes, 0)).trim(), deletes);
        }
    }

    #[test]
    fn rows_are_folded_by_key() {
        let numbers = [DataType::Int64, DataType::Int32];
        check(&numbers, 1, "2 1\n1 1\n2 2", "+I 1 1\n+I 2 2", "");
        check(&numbers, 1, "2 1\n-D 2 1\n1 1\n-D 3 1", "+I 1 1", "+I 2\n+I 3");
        check(&numbers, 1, "-D 2 1\n+U 2 5\n-1 0", "+I -1 0\n+I 2 5", "");
        check(&numbers, 2, "2 1\n2 0\n-D 2 1", "+I 2 0", "+I 2 1");
        check(&[DataType::Utf8, DataType::Int32], 1, "b 1\na 1\nb 3\n-D a 1", "+I b 3", "+I a");
        check(&numbers, 1, "1 1\n2 2\n3 3", "+I 1 1\n+I 2 2\n+I 3 3", "");
    }

    #[test]
    fn parts_are_all_of_a_batch_in_order() {
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false)]));
        let folded = || fold(&schema, &[text::parse(&schema, "-D 9\n5\n4\n3\n2\n1")], &[0]).unwrap();
        assert_eq!(folded().parts(40, 1).len(), 1);
        let parts = folded().parts(16, 1);
        let keys = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(parts.iter().map(|part| keys(&part.upserts)).collect::<Vec<_>>(), [vec![], vec![1, 2], vec![3, 4], vec![5]]);
        assert_eq!(parts.iter().map(|part| keys(&part.deletes)).collect::<Vec<_>>(), [vec![9], vec![], vec![], vec![]]);
        // For several connections, however small they are.
        let upserts = |ways: usize| folded().parts(1 << 20, ways).iter().map(|part| keys(&part.upserts)).collect::<Vec<_>>();
        assert_eq!(upserts(2), [vec![], vec![1, 2], vec![3, 4], vec![5]]);
        assert_eq!(upserts(9), [vec![], vec![1], vec![2], vec![3], vec![4], vec![5]]);
    }

    /// Parts had as many rows each: one of large rows among small ones was far larger than it was to be.
    #[test]
    fn parts_of_unlike_rows_are_no_larger() {
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, false)]));
        let large = |c: char| c.to_string().repeat(100);
        let rows = format!("a\nb\nc\nd\n{}\n{}\n-D {}\n-D {}", large('e'), large('f'), large('g'), large('h'));
        let folded = fold(&schema, &[text::parse(&schema, &rows)], &[0]).unwrap();
        let parts = folded.parts(120, 1);
        let texts = |batch: &RecordBatch| batch.column(0).as_string::<i32>().iter().flatten().map(str::to_string).collect::<Vec<_>>();
        let upserts: Vec<_> = parts.iter().flat_map(|part| texts(&part.upserts)).collect();
        assert_eq!(upserts.join(" "), format!("a b c d {} {}", large('e'), large('f')));
        let deletes: Vec<_> = parts.iter().flat_map(|part| texts(&part.deletes)).collect();
        assert_eq!(deletes, [large('g'), large('h')]);
        assert!(parts.iter().all(|part| bytes(&part.upserts) <= 120 && bytes(&part.deletes) <= 120));
        // A row is not divided.
        assert_eq!(folded.parts(1, 1).len(), 8);
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
