//! `LIMIT` and `OFFSET` without an order: the first rows that come.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use tidemill_block::Block;
use tidemill_state::StateTable;

use crate::{Operator, OperatorError, Output};

/// Passes `fetch` rows on after `skip` were passed over. Runs in one shard.
pub struct Limit {
    skip: u64,
    fetch: u64,
    seen: u64,
}

impl Limit {
    /// A limit of `fetch` rows after the first `skip`.
    pub fn new(skip: u64, fetch: Option<u64>) -> Self {
        Limit { skip, fetch: fetch.unwrap_or(u64::MAX), seen: 0 }
    }
}

impl Operator for Limit {
    fn name(&self) -> &'static str {
        "Limit"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        if block.kinds.is_some() {
            return Err(OperatorError::new(
                "LIMIT over an updating query is not supported in a stream; run the job with SET 'execution.runtime-mode' = 'batch'",
            ));
        }
        let rows = block.rows() as u64;
        let from = self.skip.saturating_sub(self.seen).min(rows);
        let until = self.skip.saturating_add(self.fetch).saturating_sub(self.seen).min(rows);
        self.seen += rows;
        if from < until {
            out.emit(block.slice(from as usize, (until - from) as usize));
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let seen: ArrayRef = Arc::new(Int64Array::from(vec![self.seen as i64]));
        Ok(vec![StateTable { name: "seen".into(), batch: RecordBatch::try_from_iter([("seen", seen)])? }])
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            self.seen += table.batch.column(0).as_primitive::<Int64Type>().values().iter().map(|v| *v as u64).sum::<u64>();
        }
        Ok(())
    }
}
