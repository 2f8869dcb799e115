//! Plans running `GROUP BY`.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_expr::LogicalPlan;
use tidemill_operator::Operator;
use tidemill_operator::group::GroupAggregate;

use super::{Planner, Rel, Wanted, grouping};
use crate::JobError;
use crate::physical::aggregate::{bind_all, call};
use crate::physical::window::Windowed;
use crate::physical::{Factory, Ship};

impl Planner<'_> {
    pub(super) fn aggregate(
        &mut self,
        plan: &LogicalPlan,
        aggregate: &datafusion_expr::Aggregate,
        wanted: Wanted,
    ) -> Result<Rel, JobError> {
        if never_has_rows(&aggregate.input) {
            return self.values(RecordBatch::new_empty(Arc::new(aggregate.schema.as_arrow().clone())));
        }
        if let Some(plan) = grouping::rewrite(aggregate)? {
            return self.rel(&plan, wanted);
        }
        if let Some(windowed) = Windowed::find(&aggregate.input)? {
            let bound: Vec<Option<usize>> = aggregate.group_expr.iter().map(|e| windowed.window_column(e)).collect();
            if bound.contains(&Some(0))
                && bound.contains(&Some(1))
                && let Some(rel) = self.window_aggregate(plan, aggregate, windowed, wanted)?
            {
                return Ok(rel);
            }
        }
        let input = self.rel(&aggregate.input, Wanted { fold: wanted.fold, update_before: true, paired: false })?;
        if let Some(rel) = self.attached_aggregate(plan, aggregate, &input)? {
            return Ok(rel);
        }
        let schema = aggregate.input.schema();
        let keys = bind_all(&aggregate.group_expr, schema)?;
        let key_types: Vec<DataType> = aggregate.schema.fields()[..keys.len()].iter().map(|f| f.data_type().clone()).collect();
        let calls = aggregate.aggr_expr.iter().map(|e| call(e, schema)).collect::<Result<Vec<_>, _>>()?;
        let out: SchemaRef = Arc::new(aggregate.schema.as_arrow().clone());
        let ship = if keys.is_empty() { Ship::Single } else { Ship::Hash(keys.clone()) };
        let distinct = calls.is_empty();
        let (retracts, declared) = (input.updating, out.clone());
        let factory: Factory = Arc::new(move || {
            let operator = GroupAggregate::new(
                keys.clone(),
                key_types.clone(),
                calls.clone(),
                out.clone(),
                retracts,
                wanted.fold,
                wanted.update_before,
            )?;
            Ok(Box::new(operator) as Box<dyn Operator>)
        });
        let time = vec![false; declared.fields().len()];
        let single = matches!(ship, Ship::Single);
        let node = self.operator("GroupAggregate", String::new(), &input, ship, declared, factory)?;
        // DISTINCT of rows that are never taken back only ever adds.
        Ok(Rel { node, time, updating: !(distinct && !retracts), single, window: None })
    }
}

/// Whether a plan is empty because of a condition that can never hold.
fn never_has_rows(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(empty) => !empty.produce_one_row,
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Extension(_)
        | LogicalPlan::Aggregate(_) => plan.inputs().first().is_some_and(|input| never_has_rows(input)),
        _ => false,
    }
}
