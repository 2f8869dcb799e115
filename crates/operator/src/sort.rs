//! `ORDER BY` with an event-time column first: rows leave in order when the watermark passes them.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{SortColumn, SortOptions, concat_batches, lexsort_to_indices};
use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, WATERMARK_END};
use tidemill_state::StateTable;

use crate::over::times::TimeColumn;
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output, Progress};

/// Sorts by columns of which the first is the event time, ascending.
pub struct Sort {
    schema: SchemaRef,
    time: usize,
    keys: Vec<(usize, SortOptions)>,
    held: Vec<Block>,
    rows: usize,
    ready: Vec<Block>,
    late_rows: u64,
}

impl Sort {
    /// Sorts rows of `schema` by `keys` (column, options); the first key is the event time.
    pub fn new(schema: SchemaRef, keys: Vec<(usize, SortOptions)>) -> Self {
        Sort { schema, time: keys[0].0, keys, held: Vec::new(), rows: 0, ready: Vec::new(), late_rows: 0 }
    }

    fn all(&mut self) -> Result<Block, OperatorError> {
        let batch = concat_batches(&self.schema, self.held.iter().map(|b| &b.batch))?;
        let arrival = self.held.iter().map(|b| b.arrival_ns).max().unwrap_or(0);
        self.held.clear();
        self.rows = 0;
        Ok(Block::inserts(batch, arrival))
    }

    fn hold(&mut self, block: Block) {
        self.rows += block.rows();
        self.held.push(block);
    }
}

impl Operator for Sort {
    fn name(&self) -> &'static str {
        "Sort"
    }

    fn on_block(&mut self, _input: usize, block: Block, _out: &mut Output) -> Result<(), OperatorError> {
        if block.kinds.is_some() {
            return Err(OperatorError::new(
                "ORDER BY over an updating query is not supported in a stream; run the job with SET 'execution.runtime-mode' = 'batch'",
            ));
        }
        let times = TimeColumn::of(block.column(self.time))?;
        let Some(marks) = block.row_watermarks.clone() else {
            self.hold(block);
            return Ok(());
        };
        let keep: Vec<u32> = (0..block.rows() as u32).filter(|r| times.ms(*r as usize).is_none_or(|t| t > marks[*r as usize])).collect();
        self.late_rows += (block.rows() - keep.len()) as u64;
        let kept = block.take(&UInt32Array::from(keep))?;
        self.hold(kept);
        Ok(())
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        if self.ready.is_empty() && self.rows > 0 {
            let block = self.all()?;
            let columns: Vec<SortColumn> =
                self.keys.iter().map(|(i, o)| SortColumn { values: block.column(*i).clone(), options: Some(*o) }).collect();
            let sorted = block.take(&lexsort_to_indices(&columns, None)?)?;
            let times = TimeColumn::of(sorted.column(self.time))?;
            let due = if watermark == WATERMARK_END {
                sorted.rows()
            } else {
                (0..sorted.rows()).position(|r| times.ms(r).is_some_and(|t| t > watermark)).unwrap_or(sorted.rows())
            };
            if due < sorted.rows() {
                self.hold(sorted.slice(due, sorted.rows() - due));
            }
            let mut at = 0;
            while at < due {
                let rows = BLOCK_ROWS_MAX.min(due - at);
                self.ready.push(sorted.slice(at, rows));
                at += rows;
            }
            self.ready.reverse();
        }
        if let Some(block) = self.ready.pop() {
            out.emit(block);
        }
        Ok(if self.ready.is_empty() { Progress::Done } else { Progress::More })
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let block = self.all()?;
        let batch = block.batch.clone();
        self.hold(block);
        Ok(vec![StateTable { name: "rows".into(), batch }])
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            let columns: Vec<ArrayRef> = table.batch.columns().to_vec();
            self.hold(Block::inserts(RecordBatch::try_new(Arc::clone(&self.schema), columns)?, 0));
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        OperatorStats {
            entries: self.rows as u64,
            memory: self.held.iter().map(Block::memory).sum::<usize>() as u64,
            late_rows: self.late_rows,
            ..OperatorStats::default()
        }
    }
}
