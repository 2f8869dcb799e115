//! What joins in time have in common: their forms, their inputs, the predicate on pairs of rows.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, RowKind};

use crate::OperatorError;
use crate::map::Expr;
use crate::over::times::TimeColumn;

/// Which rows a join in time emits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinForm {
    /// Pairs.
    Inner,
    /// Pairs, and left rows without a partner.
    Left,
    /// Pairs, and right rows without a partner.
    Right,
    /// Pairs, and rows of either side without a partner.
    Full,
    /// Left rows that have a partner, once.
    Semi,
    /// Left rows that have none.
    Anti,
}

impl JoinForm {
    /// Whether rows of input `side` (0 is left) are emitted when they find no partner.
    pub(super) fn keeps(self, side: usize) -> bool {
        match self {
            JoinForm::Inner | JoinForm::Semi => false,
            JoinForm::Left | JoinForm::Anti => side == 0,
            JoinForm::Right => side == 1,
            JoinForm::Full => true,
        }
    }

    /// Whether the output has the left columns only.
    pub(super) fn left_only(self) -> bool {
        matches!(self, JoinForm::Semi | JoinForm::Anti)
    }
}

/// An input of a join in time.
#[derive(Clone)]
pub struct JoinSide {
    /// Its columns.
    pub schema: SchemaRef,
    /// The keys, of the same types on both sides.
    pub keys: Vec<Expr>,
    /// Index of the event-time column.
    pub time: usize,
    /// Added to the event time, ms: a window's rows lie at its end less a millisecond.
    pub shift_ms: i64,
}

impl JoinSide {
    /// The key columns of a batch.
    pub(super) fn keys(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, OperatorError> {
        self.keys.iter().map(|k| Ok(k.evaluate(batch)?.into_array(batch.num_rows())?)).collect()
    }

    /// The event times of a column, ms.
    pub(super) fn times(&self, column: &ArrayRef) -> Result<Vec<i64>, OperatorError> {
        match TimeColumn::of(column)?.all_ms() {
            Some(all) => Ok(all.iter().map(|t| t.saturating_add(self.shift_ms)).collect()),
            None => Err(OperatorError::new(format!(
                "the column '{}', by which rows are joined in time, is NULL in a row; event time must not be NULL: filter such rows out in a view below the join",
                self.schema.field(self.time).name()
            ))),
        }
    }

    /// The rows of a block that are in time, and their times; the others are counted. A row is late if
    /// it lies at or behind the watermark of its own split, whatever has arrived from elsewhere: that
    /// makes the result a matter of the input alone.
    pub(super) fn in_time(&self, block: Block, watermark: i64, late_rows: &mut u64) -> Result<(Block, Vec<i64>), OperatorError> {
        let times = self.times(block.column(self.time))?;
        if block.row_watermarks.is_none() && times.iter().all(|t| *t > watermark) {
            return Ok((block, times));
        }
        let late = |row: &u32| times[*row as usize] <= block.row_watermark(*row as usize).max(watermark);
        let keep: Vec<u32> = (0..block.rows() as u32).filter(|r| !late(r)).collect();
        if keep.len() == times.len() {
            return Ok((block, times));
        }
        *late_rows += (times.len() - keep.len()) as u64;
        let times = keep.iter().map(|r| times[*r as usize]).collect();
        Ok((block.take(&UInt32Array::from(keep))?, times))
    }
}

/// Fails if rows of an input that must be append-only are updated.
pub(super) fn only_inserts(block: &Block, join: &str) -> Result<(), OperatorError> {
    match &block.kinds {
        Some(kinds) if kinds.iter().any(|k| *k != RowKind::Insert) => {
            Err(OperatorError::new(format!("internal error: {join} got rows that are updated")))
        }
        _ => Ok(()),
    }
}

/// Which rows have a key without NULL; `None` if all have.
pub(super) fn with_key(keys: &[ArrayRef]) -> Option<BooleanArray> {
    let nulls: Option<NullBuffer> = keys.iter().fold(None, |all, key| NullBuffer::union(all.as_ref(), key.logical_nulls().as_ref()));
    nulls.filter(|n| n.null_count() > 0).map(|n| BooleanArray::new(n.into_inner(), None))
}

/// What must hold for a pair of rows beyond equal keys and fitting times.
#[derive(Clone)]
pub struct Residual {
    /// The predicate over `schema`.
    pub predicate: Expr,
    /// Which columns of left and right, in that order, it reads.
    pub columns: Vec<usize>,
    /// Those columns.
    pub schema: SchemaRef,
}

impl Residual {
    /// Which of `rows` pairs pass; `column` gives a column of left and right for them.
    pub(crate) fn passing(
        &self,
        rows: usize,
        column: impl FnMut(usize) -> Result<ArrayRef, OperatorError>,
    ) -> Result<Vec<bool>, OperatorError> {
        let columns = self.columns.iter().copied().map(column).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let mask = self.predicate.evaluate(&batch)?.into_array(rows)?;
        let mask = mask.as_boolean();
        Ok((0..rows).map(|r| mask.is_valid(r) && mask.value(r)).collect())
    }
}

/// The values for whose row `keep` is true.
pub(super) fn picked(values: &[u32], keep: &[bool]) -> Vec<u32> {
    values.iter().zip(keep).filter(|(_, k)| **k).map(|(v, _)| *v).collect()
}

/// NULLs in the place of `rows` rows.
pub(super) fn nulls(schema: &SchemaRef, rows: usize) -> impl Iterator<Item = ArrayRef> {
    schema.fields().iter().map(move |f| new_null_array(f.data_type(), rows)).collect::<Vec<_>>().into_iter()
}

/// A block of `rows` new rows.
pub(super) fn block(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize, arrival_ns: u64) -> Result<Block, OperatorError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(Block::inserts(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?, arrival_ns))
}
