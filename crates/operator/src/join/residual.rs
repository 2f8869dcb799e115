//! The part of a join's condition that is not an equality of keys.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion_physical_expr::expressions::Column;

use crate::OperatorError;
use crate::map::Expr;

/// A condition over pairs of rows, and the columns it reads.
pub(super) struct Residual {
    expression: Expr,
    /// For each column of `schema` its side and its place there.
    columns: Vec<(usize, usize)>,
    schema: SchemaRef,
}

impl Residual {
    /// A condition over the left input's columns, then the right one's.
    ///
    /// # Errors
    /// None so far.
    pub fn new(expression: Expr, inputs: &[SchemaRef; 2]) -> Result<Self, OperatorError> {
        let width = inputs[0].fields().len();
        let mut columns: Vec<(usize, usize)> = Vec::new();
        let expression = expression
            .transform_up(|e| {
                let Some(column) = e.downcast_ref::<Column>() else { return Ok(Transformed::no(e)) };
                let index = column.index();
                let place = if index < width { (0, index) } else { (1, index - width) };
                let at = columns.iter().position(|c| *c == place).unwrap_or_else(|| {
                    columns.push(place);
                    columns.len() - 1
                });
                Ok(Transformed::yes(Arc::new(Column::new(column.name(), at)) as Expr))
            })
            .data()?;
        let fields: Vec<_> = columns.iter().map(|(side, c)| inputs[*side].field(*c).as_ref().clone().with_nullable(true)).collect();
        Ok(Residual { expression, columns, schema: Arc::new(Schema::new(fields)) })
    }

    /// Which of `pairs` pairs pass; unknown counts as no. `own` gives a column of the input `side` for them,
    /// `other` one of the other input.
    ///
    /// # Errors
    /// A value that the condition cannot compute.
    pub fn evaluate(
        &self,
        side: usize,
        pairs: usize,
        own: impl Fn(usize) -> Result<ArrayRef, ArrowError>,
        other: impl Fn(usize) -> Result<ArrayRef, ArrowError>,
    ) -> Result<BooleanBuffer, OperatorError> {
        let columns = self
            .columns
            .iter()
            .map(|(of, column)| if *of == side { own(*column) } else { other(*column) })
            .collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(pairs));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let mask = self.expression.evaluate(&batch)?.into_array(pairs)?;
        let mask = mask.as_boolean();
        Ok(match mask.nulls() {
            None => mask.values().clone(),
            Some(nulls) => mask.values() & nulls.inner(),
        })
    }
}
