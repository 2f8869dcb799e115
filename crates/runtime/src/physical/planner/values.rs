//! Plans `VALUES`, empty inputs and `UNION ALL`.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::LogicalPlan;
use datafusion_physical_expr::expressions::Column as BoundColumn;
use tidemill_operator::map::Expr;

use super::{Planner, Rel, Wanted};
use crate::JobError;
use crate::physical::aggregate::bind;
use crate::physical::{Edge, Node, NodeKind, Ship};

impl Planner<'_> {
    pub(super) fn literal_rows(&mut self, values: &datafusion_expr::Values) -> Result<Rel, JobError> {
        let mut columns: Vec<Vec<ScalarValue>> = vec![Vec::new(); values.schema.fields().len()];
        let empty = DFSchema::empty();
        for row in &values.values {
            for (column, expression) in columns.iter_mut().zip(row) {
                let one = one_row();
                let value = bind(expression, &empty)?.evaluate(&one).map_err(JobError::from)?;
                column.push(ScalarValue::try_from_array(&value.into_array(1)?, 0)?);
            }
        }
        let schema: SchemaRef = Arc::new(values.schema.as_arrow().clone());
        let arrays = columns
            .into_iter()
            .zip(schema.fields())
            .map(|(c, f)| arrow::compute::cast(&ScalarValue::iter_to_array(c)?, f.data_type()).map_err(JobError::failed))
            .collect::<Result<Vec<_>, JobError>>()?;
        self.values(RecordBatch::try_new(schema, arrays).map_err(JobError::failed)?)
    }

    pub(super) fn values(&mut self, batch: RecordBatch) -> Result<Rel, JobError> {
        let schema = batch.schema();
        // No rows (a condition that can never hold): any time column is event time as good as any.
        let nothing = batch.num_rows() == 0;
        let time = schema.fields().iter().map(|f| nothing && matches!(f.data_type(), DataType::Timestamp(..))).collect();
        let node = self.add(Node {
            id: String::new(),
            name: "Values".into(),
            kind: NodeKind::Values(batch),
            inputs: Vec::new(),
            schema,
            single: true,
        });
        Ok(Rel { node, time, updating: false, single: true, window: None })
    }

    pub(super) fn union(&mut self, inputs: &[Arc<LogicalPlan>], plan: &LogicalPlan, wanted: Wanted) -> Result<Rel, JobError> {
        let schema: SchemaRef = Arc::new(plan.schema().as_arrow().clone());
        let parts = inputs.iter().map(|i| self.rel(i, wanted)).collect::<Result<Vec<_>, _>>()?;
        let single = parts.iter().any(|p| p.single);
        let time = (0..schema.fields().len()).map(|c| parts.iter().all(|p| p.time[c])).collect();
        let updating = parts.iter().any(|p| p.updating);
        let mut edges = Vec::new();
        for part in &parts {
            // The same rows under the union's names.
            let from = self.schema(part.node);
            let expressions = from.fields().iter().enumerate().map(|(i, f)| Arc::new(BoundColumn::new(f.name(), i)) as Expr).collect();
            let renamed = self.map(part, None, expressions, schema.clone())?;
            self.graph.nodes[renamed].id = format!("rename:{renamed}");
            edges.push(Edge { from: renamed, ship: if single && !part.single { Ship::Single } else { Ship::Forward } });
        }
        let node = self.add(Node { id: String::new(), name: "Union".into(), kind: NodeKind::Union, inputs: edges, schema, single });
        Ok(Rel { node, time, updating, single, window: None })
    }
}

/// One row without columns.
pub(super) fn one_row() -> RecordBatch {
    RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &RecordBatchOptions::new().with_row_count(Some(1)))
        .expect("no columns")
}
