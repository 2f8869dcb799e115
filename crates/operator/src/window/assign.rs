//! A window table function without an aggregate: each row once for each of its windows.

use arrow::array::{RecordBatch, UInt32Array};
use arrow::datatypes::SchemaRef;
use tidemill_block::Block;
use tidemill_plan::WindowKind;

use super::{time_column, times};
use crate::{Operator, OperatorError, Output};

/// Adds `window_start`, `window_end` and `window_time`.
pub struct WindowAssign {
    kind: WindowKind,
    time: usize,
    schema: SchemaRef,
}

impl WindowAssign {
    /// Windows of `kind` (not SESSION) by the column `time`; `schema` is the input's with the three
    /// window columns added.
    pub fn new(kind: WindowKind, time: usize, schema: SchemaRef) -> Self {
        WindowAssign { kind, time, schema }
    }
}

impl Operator for WindowAssign {
    fn name(&self) -> &'static str {
        "WindowAssign"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        let times = times(&block, self.time)?;
        let mut rows: Vec<u32> = Vec::with_capacity(times.len());
        let (mut starts, mut ends) = (Vec::with_capacity(times.len()), Vec::with_capacity(times.len()));
        for (row, t) in times.iter().enumerate() {
            self.kind.windows_of(*t, |start, end| {
                rows.push(row as u32);
                starts.push(start);
                ends.push(end);
            });
        }
        let block = if rows.len() == times.len() { block } else { block.take(&UInt32Array::from(rows))? };
        let mut columns = block.batch.columns().to_vec();
        let width = columns.len();
        let window_times = ends.iter().map(|e| e - 1).collect();
        for (i, ms) in [starts, ends, window_times].into_iter().enumerate() {
            columns.push(time_column(ms, self.schema.field(width + i).data_type())?);
        }
        out.emit(block.with_batch(RecordBatch::try_new(self.schema.clone(), columns)?));
        Ok(())
    }
}
