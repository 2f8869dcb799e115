//! A wrapper that checks what an operator emits: schema, pairing of updates, watermark order.
//!
//! The runtime puts it around every operator when the setting `debug.check-operators` is on, as the
//! tests have it, so that a mistake is caught at the operator that made it.

use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, NO_WATERMARK, RowKind};
use tidemill_state::StateTable;

use crate::{Operator, OperatorError, OperatorStats, Output, Progress};

/// An operator under observation.
pub struct Check {
    inner: Box<dyn Operator>,
    schema: SchemaRef,
    watermark: i64,
}

impl Check {
    /// Observes `inner`, which declares to emit `schema`.
    pub fn new(inner: Box<dyn Operator>, schema: SchemaRef) -> Self {
        Check { inner, schema, watermark: NO_WATERMARK }
    }

    fn check(&self, blocks: &[Block]) -> Result<(), OperatorError> {
        for block in blocks {
            let types = |s: &SchemaRef| s.fields().iter().map(|f| f.data_type().clone()).collect::<Vec<_>>();
            if types(&block.schema()) != types(&self.schema) {
                return Err(OperatorError::new(format!(
                    "internal error: emitted {:?}, declared {:?}",
                    types(&block.schema()),
                    types(&self.schema)
                )));
            }
            let Some(kinds) = &block.kinds else { continue };
            for (row, kind) in kinds.iter().enumerate() {
                if *kind == RowKind::UpdateBefore
                    && kinds.get(row + 1).is_some_and(|next| *next == RowKind::UpdateBefore)
                    && self.inner.name() == "GroupAggregate"
                {
                    return Err(OperatorError::new(format!("internal error: a -U without its +U at row {row}")));
                }
            }
        }
        Ok(())
    }
}

impl Operator for Check {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn on_block(&mut self, input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        let before = out.blocks.len();
        self.inner.on_block(input, block, out)?;
        self.check(&out.blocks[before..])
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        if watermark < self.watermark {
            return Err(OperatorError::new(format!("internal error: the watermark went back from {} to {watermark}", self.watermark)));
        }
        self.watermark = watermark;
        let before = out.blocks.len();
        let progress = self.inner.on_watermark(watermark, out)?;
        self.check(&out.blocks[before..])?;
        Ok(progress)
    }

    fn output_watermark(&self, watermark: i64) -> i64 {
        self.inner.output_watermark(watermark)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        self.inner.snapshot()
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        self.inner.restore(tables)
    }

    fn stats(&self) -> OperatorStats {
        self.inner.stats()
    }
}
