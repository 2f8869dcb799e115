//! Rows that the watermark has not passed, and their order.

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{SortColumn, SortOptions, concat_batches, lexsort_to_indices};
use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, WATERMARK_END};

use crate::over::times::TimeColumn;
use crate::{BLOCK_ROWS_MAX, OperatorError};

/// Rows on hold.
pub(super) struct Held {
    schema: SchemaRef,
    time: usize,
    order: Vec<(usize, SortOptions)>,
    /// In order of arrival, each with its least time (ms).
    blocks: Vec<(i64, Block)>,
    rows: usize,
}

impl Held {
    /// Holds rows of `schema`, ordered by column `time`, then by `order`, then by arrival.
    pub fn new(schema: SchemaRef, time: usize, order: Vec<(usize, SortOptions)>) -> Self {
        Held { schema, time, order, blocks: Vec::new(), rows: 0 }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn memory(&self) -> usize {
        self.blocks.iter().map(|(_, b)| b.memory()).sum()
    }

    /// Takes rows in, none of which has a time of NULL.
    ///
    /// # Errors
    /// A time column that is not a timestamp.
    pub fn hold(&mut self, block: Block) -> Result<(), OperatorError> {
        let least = {
            let times = TimeColumn::of(block.column(self.time))?.all_ms().expect("checked when the block came");
            times.iter().copied().min()
        };
        if let Some(least) = least {
            self.rows += block.rows();
            self.blocks.push((least, block));
        }
        Ok(())
    }

    /// All rows, in order of arrival; they stay on hold.
    ///
    /// # Errors
    /// Blocks of other columns than the schema's.
    pub fn all(&self) -> Result<RecordBatch, OperatorError> {
        Ok(concat_batches(&self.schema, self.blocks.iter().map(|(_, b)| &b.batch))?)
    }

    /// The rows that `watermark` passes, in order, in blocks of at most [`BLOCK_ROWS_MAX`].
    ///
    /// # Errors
    /// Columns that cannot be ordered.
    pub fn release(&mut self, watermark: i64) -> Result<Vec<Block>, OperatorError> {
        let passed = |t: i64| watermark == WATERMARK_END || t <= watermark;
        let Some(last) = self.blocks.iter().rposition(|(least, _)| passed(*least)) else { return Ok(Vec::new()) };
        let (mut due, mut rest) = (Vec::new(), Vec::new());
        for (_, block) in self.blocks.drain(..=last) {
            let times = TimeColumn::of(block.column(self.time))?.all_ms().expect("checked when the block came");
            if times.is_sorted() {
                // No copy, however often a watermark falls into a block.
                let at = times.partition_point(|t| passed(*t));
                due.push(block.slice(0, at));
                if at < times.len() {
                    rest.push((times[at], block.slice(at, times.len() - at)));
                }
            } else {
                let (now, later): (Vec<u32>, Vec<u32>) = (0..times.len() as u32).partition(|r| passed(times[*r as usize]));
                due.push(block.take(&UInt32Array::from(now))?);
                if let Some(least) = later.iter().map(|r| times[*r as usize]).min() {
                    rest.push((least, block.take(&UInt32Array::from(later))?));
                }
            }
        }
        self.blocks.splice(0..0, rest);
        self.rows -= due.iter().map(Block::rows).sum::<usize>();
        let arrival = due.iter().map(|b| b.arrival_ns).max().unwrap_or(0);
        let all = match due.len() {
            1 => due.pop().expect("one block"),
            _ => Block::inserts(Block::concat_columns(&self.schema, &due)?, arrival),
        };
        let times = TimeColumn::of(all.column(self.time))?.all_ms().expect("checked when the block came");
        // Rows that come in order of time need no sorting.
        let order = (!times.is_sorted()).then(|| {
            let mut order: Vec<u32> = (0..times.len() as u32).collect();
            order.sort_by_key(|r| times[*r as usize]);
            UInt32Array::from(order)
        });
        let ready = match order {
            Some(order) => all.take(&order)?,
            None => all,
        };
        let ready = self.in_secondary_order(ready)?;
        let mut blocks = Vec::with_capacity(ready.rows() / BLOCK_ROWS_MAX + 1);
        let mut at = 0;
        while at < ready.rows() {
            let rows = BLOCK_ROWS_MAX.min(ready.rows() - at);
            blocks.push(ready.slice(at, rows));
            at += rows;
        }
        Ok(blocks)
    }

    /// Rows in order of time, those of one time put into the secondary order.
    fn in_secondary_order(&self, ready: Block) -> Result<Block, OperatorError> {
        if self.order.is_empty() || ready.rows() < 2 {
            return Ok(ready);
        }
        // The sort of several columns is not stable: the place breaks ties.
        let place = SortColumn { values: Arc::new(UInt32Array::from_iter_values(0..ready.rows() as u32)), options: None };
        let mut columns = vec![SortColumn { values: ready.column(self.time).clone(), options: None }];
        columns.extend(self.order.iter().map(|(c, options)| SortColumn { values: ready.column(*c).clone(), options: Some(*options) }));
        columns.push(place);
        Ok(ready.take(&lexsort_to_indices(&columns, None)?)?)
    }
}
