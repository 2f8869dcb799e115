//! Ranking: the best rows of each key by `ROW_NUMBER`, `RANK` or `DENSE_RANK` and a bound on it.
//!
//! [`topn`] keeps the best rows and emits how they change, [`window_topn`] emits those of a window
//! once, at its end, [`dedup`] and [`keep_last`] are the case of one row by event time, without sorting.
//! [`board`] is what the first two share: the rows of each key in order ([`list`]), their sort keys in
//! Arrow's row form, so that rows are compared as bytes, and their columns ([`store`]). Numbering all rows
//! is `OVER`'s affair.

mod board;
pub mod dedup;
pub mod keep_last;
mod list;
pub(crate) mod store;
#[cfg(test)]
mod tests;
pub mod topn;
pub mod window_topn;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, SchemaRef};
use tidemill_block::Block;

use crate::OperatorError;
use crate::map::Expr;

/// How rows are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankFunction {
    /// Each row its own number.
    RowNumber,
    /// Rows that sort alike share the number of the first of them.
    Rank,
    /// Rows that sort alike share a number, and none is left out.
    DenseRank,
}

/// Which of two rows that sort alike comes first under `ROW_NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// The one that came first. The order of arrival is that of the source; between its splits there
    /// is none.
    First,
    /// The one that came last.
    Last,
    /// The one with the smaller columns, compared from the left. Needed where rows come by way of
    /// several shards, and where they are taken back: then the order of arrival is left to chance.
    Contents,
}

/// What is ranked and which ranks are wanted.
#[derive(Clone)]
pub struct RankSpec {
    /// `PARTITION BY`.
    pub keys: Vec<Expr>,
    /// Their types.
    pub key_types: Vec<DataType>,
    /// `ORDER BY`; at least one.
    pub order: Vec<(Expr, SortOptions)>,
    /// Their types.
    pub order_types: Vec<DataType>,
    /// The ranking function.
    pub function: RankFunction,
    /// The first rank wanted, from 1.
    pub from: u64,
    /// The last rank wanted, at least `from`.
    pub to: u64,
    /// The order of rows that sort alike.
    pub ties: Ties,
    /// The input is a changelog: every row is kept, in case a better one is taken back. Goes with
    /// [`Ties::Contents`].
    pub retracts: bool,
    /// The rank is emitted, behind the input's columns.
    pub rank_column: bool,
    /// The input's columns; at least one.
    pub input: SchemaRef,
    /// The input's columns and the rank, if it is emitted.
    pub schema: SchemaRef,
}

impl RankSpec {
    fn evaluate<'a>(&self, block: &Block, expressions: impl Iterator<Item = &'a Expr>) -> Result<Vec<ArrayRef>, OperatorError> {
        expressions.map(|e| Ok(e.evaluate(&block.batch)?.into_array(block.rows())?)).collect()
    }

    /// Rows of the output.
    fn batch(&self, mut columns: Vec<ArrayRef>, ranks: &[u64]) -> Result<RecordBatch, OperatorError> {
        if self.rank_column {
            columns.push(rank_column(ranks, self.schema.field(columns.len()).data_type())?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(ranks.len()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }

    /// State as rows of the input.
    fn block(&self, columns: &[ArrayRef]) -> Result<Block, OperatorError> {
        Ok(Block::inserts(RecordBatch::try_new(self.input.clone(), columns.to_vec())?, 0))
    }
}

/// Ranks as a column of type `to`.
fn rank_column(ranks: &[u64], to: &DataType) -> Result<ArrayRef, OperatorError> {
    let ranks: ArrayRef = Arc::new(UInt64Array::from(ranks.to_vec()));
    Ok(if ranks.data_type() == to { ranks } else { cast(&ranks, to)? })
}

/// The beginning of a key in row form as a number: where two of these differ, they order as the keys
/// do. The first byte says little but whether the value is NULL, so it gets three bits, and the rest
/// of the number holds all but the last three bits of a column of eight bytes.
#[inline]
fn head(key: &[u8]) -> u64 {
    let Some((first, rest)) = key.split_first() else { return 0 };
    let (class, bytes) = match first {
        0 => (0, rest),
        1 => (1, rest),
        2 => (2, rest),
        0xfd => (4, rest),
        0xfe => (5, rest),
        0xff => (6, rest),
        _ => (3, key),
    };
    let mut eight = [0; 8];
    let n = bytes.len().min(8);
    eight[..n].copy_from_slice(&bytes[..n]);
    (class << 61) | (u64::from_be_bytes(eight) >> 3)
}
