//! Rows that wait for their answers, and when each may leave: those of a partition in the order in which they came
//! ([`super::in_order`]), or as answers come, but never across a watermark ([`super::unordered`]).
//!
//! Both keep the blocks as they came. Watermarks wait behind the rows that came before them.

use tidemill_block::Block;

use super::cache::Asks;
use crate::OperatorError;

/// Rows that may leave, and the ask of each.
pub(super) struct Piece {
    pub block: Block,
    pub asks: Vec<u32>,
}

/// Rows that wait.
pub(super) trait Order: Send {
    /// Takes rows in, with the ask of each.
    fn push(&mut self, block: Block, asks: Vec<u32>, known: &Asks);

    /// An ask that rows wait for has been answered.
    fn answered(&mut self, ask: u32);

    /// A watermark has come, ms.
    fn watermark(&mut self, watermark: i64);

    /// Up to `rows_max` rows that may leave, in the order in which they shall; none if nothing may.
    ///
    /// # Errors
    /// None that rows taken in can cause.
    fn next(&mut self, known: &Asks, rows_max: usize) -> Result<Vec<Piece>, OperatorError>;

    /// The newest watermark before which no row waits, ms.
    fn reached(&self) -> i64;

    /// How many rows wait.
    fn rows(&self) -> usize;

    /// Bytes of the rows that wait, about.
    fn bytes(&self) -> usize;

    /// Bytes of all that is kept.
    fn memory(&self) -> usize;

    /// All rows that wait. Those of a partition, also within blocks of none, are in the order in which they came: they are taken in
    /// again like that after a restart.
    ///
    /// # Errors
    /// None that rows taken in can cause.
    fn all(&self) -> Result<Vec<Block>, OperatorError>;
}

/// Bytes of a block's rows: what it shares with other blocks counts in part.
pub(super) fn bytes(block: &Block) -> usize {
    let columns = block.batch.columns().iter().map(|c| c.to_data().get_slice_memory_size().unwrap_or(0));
    columns.sum::<usize>() + block.rows() * size_of::<u32>() + size_of::<Block>()
}
