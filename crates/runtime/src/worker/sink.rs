//! A sink node in a worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, BooleanArray};
use tidemill_block::{Block, RowKind, clock};
use tidemill_connect::{Committable, ConnectError, SinkContext, Writer};

use crate::JobError;
use crate::metrics::NodeMetrics;
use crate::physical::SinkSpec;

pub(super) struct SinkTask {
    table: String,
    writer: Box<dyn Writer>,
    update_before: bool,
    not_null: Vec<usize>,
    metrics: Arc<NodeMetrics>,
    dirty: bool,
}

impl SinkTask {
    pub fn open(spec: &SinkSpec, context: SinkContext, metrics: Arc<NodeMetrics>) -> Result<Self, JobError> {
        Ok(SinkTask {
            table: spec.table.clone(),
            writer: spec.sink.writer(context)?,
            update_before: spec.sink.wants_update_before(),
            not_null: spec.not_null.clone(),
            metrics,
            dirty: false,
        })
    }

    fn failed(&self, e: ConnectError) -> JobError {
        JobError::failed(format!("writing to table '{}': {e}", self.table))
    }

    pub fn write(&mut self, mut block: Block) -> Result<(), JobError> {
        if !self.update_before
            && let Some(kinds) = &block.kinds
            && kinds.contains(&RowKind::UpdateBefore)
        {
            let mask: BooleanArray = kinds.iter().map(|k| Some(*k != RowKind::UpdateBefore)).collect();
            block = block.filter(&mask).map_err(JobError::failed)?;
        }
        for column in &self.not_null {
            if block.column(*column).null_count() > 0 {
                return Err(JobError::failed(format!(
                    "writing to table '{}': column '{}' is NOT NULL, but the query gave a NULL; filter such rows out or use COALESCE",
                    self.table,
                    block.schema().field(*column).name()
                )));
            }
        }
        let rows = block.rows() as u64;
        self.writer.write(&block).map_err(|e| self.failed(e))?;
        self.dirty = true;
        self.metrics.rows.fetch_add(rows, Ordering::Relaxed);
        self.metrics.bytes.store(self.writer.stats().bytes, Ordering::Relaxed);
        if block.arrival_ns > 0 {
            self.metrics.record_latency(clock::now_ns().saturating_sub(block.arrival_ns), rows);
        }
        Ok(())
    }

    /// Hands on what the writer buffers, if anything came since the last time.
    pub fn flush(&mut self) -> Result<(), JobError> {
        if std::mem::take(&mut self.dirty) {
            self.writer.flush().map_err(|e| self.failed(e))?;
        }
        Ok(())
    }

    pub fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, JobError> {
        let prepared = self.writer.prepare(last).map_err(|e| self.failed(e))?;
        self.metrics.bytes.store(self.writer.stats().bytes, Ordering::Relaxed);
        Ok(prepared)
    }
}
