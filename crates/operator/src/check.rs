//! A wrapper that checks what an operator emits: schema, pairing of updates, watermark order.
//!
//! The runtime puts it around every operator when the setting `debug.check-operators` is on, as the
//! tests have it, so that a mistake is caught at the operator that made it.

use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, NO_WATERMARK, RowKind};
use tidemill_state::StateTable;
use tidemill_state::runs::StateRuns;

use crate::{DiskStats, Operator, OperatorError, OperatorStats, Output, Progress, SnapshotFiles, SpillPlace, Wake};

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
        if progress == Progress::Waiting && !self.inner.waits() {
            return Err(OperatorError::new("internal error: it waits, but did not say that it would"));
        }
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

    fn spills(&self) -> bool {
        self.inner.spills()
    }

    fn spill_to(&mut self, place: SpillPlace) {
        self.inner.spill_to(place);
    }

    fn snapshot_files(&mut self) -> Result<SnapshotFiles, OperatorError> {
        self.inner.snapshot_files()
    }

    fn restore_files(&mut self, runs: Vec<StateRuns>) -> Result<(), OperatorError> {
        self.inner.restore_files(runs)
    }

    fn disk_stats(&self) -> Option<DiskStats> {
        self.inner.disk_stats()
    }

    fn attach(&mut self, wake: Wake) {
        self.inner.attach(wake);
    }

    fn waits(&self) -> bool {
        self.inner.waits()
    }

    fn poll(&mut self, out: &mut Output) -> Result<(), OperatorError> {
        let before = out.blocks.len();
        self.inner.poll(out)?;
        self.check(&out.blocks[before..])
    }

    fn full(&self) -> bool {
        self.inner.full()
    }

    fn holds(&self) -> bool {
        self.inner.holds()
    }

    fn due(&self) -> Option<u64> {
        self.inner.due()
    }

    fn drains(&self) -> bool {
        self.inner.drains()
    }

    fn place(&mut self, shard: usize, shards: usize) {
        self.inner.place(shard, shards);
    }
}
