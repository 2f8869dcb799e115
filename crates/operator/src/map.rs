//! Filter and project, on whole columns.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use datafusion_physical_expr::PhysicalExpr;
use tidemill_block::Block;

use crate::{Operator, OperatorError, Output};

/// An expression bound to its input's columns.
pub type Expr = Arc<dyn PhysicalExpr>;

/// Keeps the rows for which a predicate holds and computes new columns for them.
pub struct Map {
    predicate: Option<Expr>,
    /// The batch that the last block was a part of, and where the predicate holds in it; `None` if
    /// it cannot be told for all rows at once.
    mask: Option<(Arc<RecordBatch>, Option<BooleanArray>)>,
    project: Project,
}

enum Project {
    /// The input's columns as they are.
    All,
    /// Columns picked by index: no computation. With the batch that the last block was a part of,
    /// and its picked columns.
    Pick(Vec<usize>, SchemaRef, Option<(Arc<RecordBatch>, Arc<RecordBatch>)>),
    Compute(Vec<Expr>, SchemaRef),
}

impl Map {
    /// Only a filter.
    pub fn filter(predicate: Expr) -> Self {
        Map { predicate: Some(predicate), mask: None, project: Project::All }
    }

    /// A filter, if any, then a projection.
    pub fn new(predicate: Option<Expr>, expressions: Vec<Expr>, schema: SchemaRef) -> Self {
        let picks: Option<Vec<usize>> =
            expressions.iter().map(|e| e.downcast_ref::<datafusion_physical_expr::expressions::Column>().map(|c| c.index())).collect();
        let project = match picks {
            Some(picks) => Project::Pick(picks, schema, None),
            None => Project::Compute(expressions, schema),
        };
        Map { predicate, mask: None, project }
    }

    /// Applies to one block; `None` if no row is left.
    ///
    /// # Errors
    /// A value that an expression cannot compute.
    pub fn apply(&mut self, mut block: Block) -> Result<Option<Block>, OperatorError> {
        if let Some(predicate) = &self.predicate {
            // Parts of one batch share the evaluation. If it fails for some row of the batch, the
            // parts before that row are still to be let through.
            let part = match block.origin() {
                None => None,
                Some((whole, offset)) => {
                    if !self.mask.as_ref().is_some_and(|(of, _)| Arc::ptr_eq(of, whole)) {
                        let mask = predicate.evaluate(whole).and_then(|m| m.into_array(whole.num_rows()));
                        self.mask = Some((whole.clone(), mask.ok().map(|m| m.as_boolean().clone())));
                    }
                    let (_, mask) = self.mask.as_ref().expect("set above");
                    mask.as_ref().map(|m| (m, offset))
                }
            };
            match part {
                Some((mask, at)) if block.rows() == 1 => {
                    if mask.is_null(at) || !mask.value(at) {
                        return Ok(None);
                    }
                }
                _ => {
                    let mask = match part {
                        Some((mask, at)) => mask.slice(at, block.rows()),
                        None => predicate.evaluate(&block.batch)?.into_array(block.rows())?.as_boolean().clone(),
                    };
                    let Some(kept) = keep(block, &mask)? else { return Ok(None) };
                    block = kept;
                }
            }
        }
        let rows = block.rows();
        let (columns, schema) = match &mut self.project {
            Project::All => return Ok(Some(block)),
            Project::Pick(picks, schema, last) => {
                let picked = pick(&block.batch, picks, schema)?;
                let Some((whole, _)) = block.origin() else { return Ok(Some(block.with_batch(picked))) };
                // Parts of a batch stay parts of one.
                if !last.as_ref().is_some_and(|(of, _)| Arc::ptr_eq(of, whole)) {
                    *last = Some((whole.clone(), Arc::new(pick(whole, picks, schema)?)));
                }
                let (_, whole) = last.as_ref().expect("set above");
                return Ok(Some(block.with_part(picked, whole.clone())));
            }
            Project::Compute(expressions, schema) => {
                let columns = expressions
                    .iter()
                    .map(|e| Ok(e.evaluate(&block.batch)?.into_array(rows)?))
                    .collect::<Result<Vec<_>, OperatorError>>()?;
                (columns, schema)
            }
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(Some(block.with_batch(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)))
    }
}

fn pick(batch: &RecordBatch, picks: &[usize], schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = picks.iter().map(|i| batch.column(*i).clone()).collect();
    RecordBatch::try_new_with_options(schema.clone(), columns, &RecordBatchOptions::new().with_row_count(Some(batch.num_rows())))
}

/// The rows that a mask lets through, if any.
fn keep(block: Block, mask: &BooleanArray) -> Result<Option<Block>, ArrowError> {
    match passing(mask) {
        0 => Ok(None),
        n if n == block.rows() => Ok(Some(block)),
        _ => block.filter(mask).map(Some),
    }
}

/// How many rows a mask lets through.
fn passing(mask: &BooleanArray) -> usize {
    match mask.nulls() {
        None => mask.values().count_set_bits(),
        Some(nulls) => (mask.values() & nulls.inner()).count_set_bits(),
    }
}

impl Operator for Map {
    fn name(&self) -> &'static str {
        "Map"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        if let Some(block) = self.apply(block)? {
            out.emit(block);
        }
        Ok(())
    }
}
