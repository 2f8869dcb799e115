//! A block of events.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, filter_record_batch, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

use crate::{RowKind, rows_bytes};

/// The watermark before any event was seen.
pub const NO_WATERMARK: i64 = i64::MIN;
/// The watermark after the last event: every window closes.
pub const WATERMARK_END: i64 = i64::MAX;
/// Bytes that a column takes beside its rows: the array, its buffers and their owners.
const COLUMN_BYTES: usize = 128;

/// Events in columns, with a kind per row and the time at which they arrived.
#[derive(Clone, Debug)]
pub struct Block {
    /// The columns.
    pub batch: RecordBatch,
    /// One kind a row; `None` means that every row is an insert.
    pub kinds: Option<Arc<[RowKind]>>,
    /// When the bytes of these events reached the process, in [`crate::clock::now_ns`] time. An
    /// operator's output carries the arrival of the input that made it complete.
    pub arrival_ns: u64,
    /// The watermark (ms) of each row's own split just before that row, present only if some row
    /// of the block lies at or behind it. Whether a row is late is decided by this and never by
    /// where a block or a watermark happened to fall, so results don't depend on block size.
    pub row_watermarks: Option<Arc<[i64]>>,
    /// Where these rows were cut out of a larger batch by [`Block::part`]: neighbours are put
    /// together again without a copy.
    origin: Option<Origin>,
    /// Which split of the source all of these rows came from, if that is known.
    partition: Option<u32>,
}

/// The batch that a block's rows are a part of, and the index of the first.
#[derive(Clone, Debug)]
struct Origin {
    batch: Arc<RecordBatch>,
    offset: usize,
}

impl Block {
    /// A block of inserts, none of them behind its split's watermark.
    pub fn inserts(batch: RecordBatch, arrival_ns: u64) -> Self {
        Block { batch, kinds: None, arrival_ns, row_watermarks: None, origin: None, partition: None }
    }

    /// A block with a kind per row.
    ///
    /// # Panics
    /// If there are not as many kinds as rows.
    pub fn changelog(batch: RecordBatch, kinds: Arc<[RowKind]>, arrival_ns: u64) -> Self {
        assert_eq!(batch.num_rows(), kinds.len(), "a changelog block needs a kind for each row");
        Block { batch, kinds: Some(kinds), arrival_ns, row_watermarks: None, origin: None, partition: None }
    }

    /// A block with kinds, and marks of rows behind their watermark, where there are any.
    ///
    /// # Panics
    /// If there are not as many kinds or marks as rows.
    pub fn marked(batch: RecordBatch, kinds: Option<Arc<[RowKind]>>, arrival_ns: u64, row_watermarks: Option<Arc<[i64]>>) -> Self {
        assert!(kinds.as_ref().is_none_or(|k| k.len() == batch.num_rows()), "a changelog block needs a kind for each row");
        assert!(row_watermarks.as_ref().is_none_or(|w| w.len() == batch.num_rows()), "marks are by row");
        Block { batch, kinds, arrival_ns, row_watermarks, origin: None, partition: None }
    }

    /// The same rows, known to have come from this split of the source.
    #[must_use]
    pub fn in_partition(self, partition: u32) -> Self {
        Block { partition: Some(partition), ..self }
    }

    /// The same rows, divided anew: where they came from is of no more use.
    #[must_use]
    pub fn in_no_partition(self) -> Self {
        Block { partition: None, ..self }
    }

    /// Which split of the source these rows came from: known until rows of several splits are put together
    /// or divided anew by a key. Splits of one job have different numbers, as far as a hash can tell.
    pub fn partition(&self) -> Option<u32> {
        self.partition
    }

    /// The number of rows.
    #[inline]
    pub fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// The schema of the columns.
    pub fn schema(&self) -> SchemaRef {
        self.batch.schema()
    }

    /// The column at `index`.
    #[inline]
    pub fn column(&self, index: usize) -> &ArrayRef {
        self.batch.column(index)
    }

    /// The kind of row `row`.
    #[inline]
    pub fn kind(&self, row: usize) -> RowKind {
        self.kinds.as_ref().map_or(RowKind::Insert, |k| k[row])
    }

    /// The watermark of the row's split before that row; [`NO_WATERMARK`] if the row is not behind.
    #[inline]
    pub fn row_watermark(&self, row: usize) -> i64 {
        self.row_watermarks.as_ref().map_or(NO_WATERMARK, |w| w[row])
    }

    /// The same rows and kinds with other columns.
    pub fn with_batch(&self, batch: RecordBatch) -> Self {
        debug_assert_eq!(batch.num_rows(), self.rows());
        Block {
            batch,
            kinds: self.kinds.clone(),
            arrival_ns: self.arrival_ns,
            row_watermarks: self.row_watermarks.clone(),
            origin: None,
            partition: self.partition,
        }
    }

    /// Rows `offset .. offset + length`, sharing the columns' memory.
    pub fn slice(&self, offset: usize, length: usize) -> Self {
        Block {
            batch: self.batch.slice(offset, length),
            kinds: self.kinds.as_ref().map(|k| k[offset..offset + length].into()),
            arrival_ns: self.arrival_ns,
            row_watermarks: self.row_watermarks.as_ref().map(|w| w[offset..offset + length].into()),
            origin: None,
            partition: self.partition,
        }
    }

    /// As [`Block::slice`], for cutting one block into many: `whole` is this block's batch, and a
    /// run of parts that follow each other becomes one batch again in [`Block::concat`] without a
    /// copy.
    pub fn part(&self, whole: &Arc<RecordBatch>, offset: usize, length: usize) -> Self {
        let mut part = self.slice(offset, length);
        part.origin = Some(Origin { batch: whole.clone(), offset });
        part
    }

    /// The batch that this block was cut out of, if it was, and the index of its first row there.
    pub fn origin(&self) -> Option<(&Arc<RecordBatch>, usize)> {
        self.origin.as_ref().map(|o| (&o.batch, o.offset))
    }

    /// The same rows with other columns, which stand in `whole` from the same row on as this
    /// block's in the batch that it was cut out of.
    pub fn with_part(&self, batch: RecordBatch, whole: Arc<RecordBatch>) -> Self {
        let origin = self.origin.as_ref().map(|o| Origin { batch: whole, offset: o.offset });
        Block { origin, ..self.with_batch(batch) }
    }

    /// The rows for which `mask` is true; a null counts as false.
    pub fn filter(&self, mask: &BooleanArray) -> Result<Self, ArrowError> {
        fn pick<T: Copy>(values: &Option<Arc<[T]>>, mask: &BooleanArray) -> Option<Arc<[T]>> {
            values.as_ref().map(|v| v.iter().enumerate().filter(|(i, _)| mask.is_valid(*i) && mask.value(*i)).map(|(_, v)| *v).collect())
        }
        Ok(Block {
            batch: filter_record_batch(&self.batch, mask)?,
            kinds: pick(&self.kinds, mask),
            arrival_ns: self.arrival_ns,
            row_watermarks: pick(&self.row_watermarks, mask),
            origin: None,
            partition: self.partition,
        })
    }

    /// The rows at `indices`, in that order.
    pub fn take(&self, indices: &UInt32Array) -> Result<Self, ArrowError> {
        fn pick<T: Copy>(values: &Option<Arc<[T]>>, indices: &UInt32Array) -> Option<Arc<[T]>> {
            values.as_ref().map(|v| indices.values().iter().map(|i| v[*i as usize]).collect())
        }
        Ok(Block {
            batch: take_record_batch(&self.batch, indices)?,
            kinds: pick(&self.kinds, indices),
            arrival_ns: self.arrival_ns,
            row_watermarks: pick(&self.row_watermarks, indices),
            origin: None,
            partition: self.partition,
        })
    }

    /// Whether `next` is the part behind this one of the same batch.
    fn precedes(&self, next: &Block) -> bool {
        match (&self.origin, &next.origin) {
            (Some(x), Some(y)) => Arc::ptr_eq(&x.batch, &y.batch) && x.offset + self.rows() == y.offset,
            _ => false,
        }
    }

    /// One block with the rows of all of `blocks`, in order. The arrival is the earliest. Parts that follow each other
    /// become a larger part.
    pub fn concat(schema: &SchemaRef, blocks: &[Block]) -> Result<Self, ArrowError> {
        if let [one] = blocks {
            return Ok(one.clone());
        }
        let batch = Self::concat_columns(schema, blocks)?;
        let kinds = blocks
            .iter()
            .any(|b| b.kinds.is_some())
            .then(|| blocks.iter().flat_map(|b| (0..b.rows()).map(|r| b.kind(r))).collect::<Vec<_>>().into());
        let row_watermarks = blocks
            .iter()
            .any(|b| b.row_watermarks.is_some())
            .then(|| blocks.iter().flat_map(|b| (0..b.rows()).map(|r| b.row_watermark(r))).collect::<Vec<_>>().into());
        let arrival_ns = blocks.iter().map(|b| b.arrival_ns).min().unwrap_or(0);
        let partition = blocks.first().and_then(|b| b.partition).filter(|p| blocks.iter().all(|b| b.partition == Some(*p)));
        let origin = blocks.first().and_then(|b| b.origin.clone()).filter(|_| blocks.windows(2).all(|pair| pair[0].precedes(&pair[1])));
        Ok(Block { batch, kinds, arrival_ns, row_watermarks, origin, partition })
    }

    /// The columns of all of `blocks`, in order. Parts of one batch that follow each other are not
    /// copied.
    ///
    /// # Errors
    /// Columns of different types.
    pub fn concat_columns(schema: &SchemaRef, blocks: &[Block]) -> Result<RecordBatch, ArrowError> {
        let mut runs: Vec<RecordBatch> = Vec::new();
        for run in blocks.chunk_by(Block::precedes) {
            runs.push(match (run, &run[0].origin) {
                ([one], _) => one.batch.clone(),
                (_, Some(origin)) => origin.batch.slice(origin.offset, run.iter().map(Block::rows).sum()),
                (_, None) => unreachable!("only parts follow each other"),
            });
        }
        if let [one] = runs.as_slice() {
            return Ok(one.clone());
        }
        concat_batches(schema, &runs)
    }

    /// About how many bytes of memory the block takes. Of what its rows share with other blocks, or the columns of a message with
    /// each other, each has its part: blocks that wait together take what they say together. Of a row or two the columns take more
    /// than the rows.
    pub fn memory(&self) -> usize {
        let marks = self.kinds.as_ref().map_or(0, |k| k.len()) + self.row_watermarks.as_ref().map_or(0, |w| w.len() * 8);
        rows_bytes(&self.batch) + marks + self.batch.num_columns() * COLUMN_BYTES + 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Int64Array};
    use arrow::buffer::{Buffer, ScalarBuffer};
    use arrow::datatypes::Int64Type;

    fn whole() -> Block {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
        Block::inserts(RecordBatch::try_from_iter([("n", numbers)]).unwrap(), 7)
    }

    #[track_caller]
    fn check(parts: &[(usize, usize)], expect: &[i64], shared: bool) {
        let block = whole();
        let batch = Arc::new(block.batch.clone());
        let parts: Vec<Block> = parts.iter().map(|(offset, length)| block.part(&batch, *offset, *length)).collect();
        let joined = Block::concat(&block.schema(), &parts).unwrap();
        let numbers = joined.column(0).as_primitive::<Int64Type>();
        assert_eq!(numbers.values().as_ref(), expect);
        let at = block.column(0).as_primitive::<Int64Type>().values().as_ptr_range();
        assert_eq!(at.contains(&numbers.values().as_ptr()), shared, "whether memory is shared");
    }

    /// Each column of a message, and each part of a block, counted all of what it shares: a queue was full with a seventh of what it
    /// may hold.
    #[test]
    fn what_is_shared_is_counted_once() {
        let body = Buffer::from_vec((0..2000i64).collect::<Vec<_>>());
        let column = |from: usize| -> ArrayRef { Arc::new(Int64Array::new(ScalarBuffer::new(body.clone(), from, 1000), None)) };
        let block = Block::inserts(RecordBatch::try_from_iter([("a", column(0)), ("b", column(1000))]).unwrap(), 0);
        let own = 2 * COLUMN_BYTES + 64;
        assert_eq!(block.memory(), 16_000 + own);
        let batch = Arc::new(block.batch.clone());
        let parts = (0..4).map(|part| block.part(&batch, part * 250, 250).memory());
        assert_eq!(parts.sum::<usize>(), 16_000 + 4 * own);
    }

    /// Of blocks of a row a queue held a hundred thousand, with the arrays of all their columns.
    #[test]
    fn a_column_counts_however_few_rows_it_has() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let names = ["a", "b", "c", "d"];
        let block = Block::inserts(RecordBatch::try_from_iter(names.map(|name| (name, column.clone()))).unwrap(), 0);
        assert_eq!(block.memory(), 4 * (8 + COLUMN_BYTES) + 64);
        assert_eq!(block.slice(0, 0).memory(), 4 * COLUMN_BYTES + 64);
    }

    #[test]
    fn the_partition_is_known_while_it_is_one() {
        let (a, b) = (whole().in_partition(3), whole().in_partition(4));
        assert_eq!(a.slice(1, 2).take(&UInt32Array::from(vec![1])).unwrap().partition(), Some(3));
        let concat = |blocks: &[Block]| Block::concat(&whole().schema(), blocks).unwrap().partition();
        assert_eq!((concat(&[a.clone(), a.clone()]), concat(&[a.clone(), b]), concat(&[a, whole()])), (Some(3), None, None));
    }

    #[test]
    fn neighbours_are_put_together_without_a_copy() {
        check(&[(2, 1), (3, 1), (4, 2)], &[2, 3, 4, 5], true);
        check(&[(2, 3)], &[2, 3, 4], true);
        check(&[(2, 1), (4, 1)], &[2, 4], false);
        check(&[(4, 1), (3, 1)], &[4, 3], false);
        check(&[(0, 2), (2, 2), (8, 1), (9, 1)], &[0, 1, 2, 3, 8, 9], false);
    }

    #[test]
    fn what_was_put_together_is_a_part() {
        let block = whole();
        let batch = Arc::new(block.batch.clone());
        let concat = |blocks: &[Block]| Block::concat(&block.schema(), blocks).unwrap();
        let first = concat(&[block.part(&batch, 2, 1), block.part(&batch, 3, 2)]);
        assert_eq!(first.origin().map(|(_, offset)| offset), Some(2));
        let all = concat(&[first, block.part(&batch, 5, 1)]);
        assert_eq!(all.origin().map(|(whole, offset)| (Arc::ptr_eq(whole, &batch), offset)), Some((true, 2)));
        assert_eq!(all.column(0).as_primitive::<Int64Type>().values().as_ref(), [2, 3, 4, 5]);
        assert!(concat(&[all, block.part(&batch, 7, 1)]).origin().is_none(), "a row is missing between");
    }
}
