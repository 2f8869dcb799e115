//! Sorting by columns that are not selected, the same way each time.
//!
//! DataFusion adds such columns behind those that are selected, in an order that differs from run to run where one
//! expression of `ORDER BY` names several of them (they come out of a hash set). State is found again by what a part
//! of the plan computes, so that a job went on without it.

use std::sync::Arc;

use datafusion_common::DataFusionError;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::{Expr, LogicalPlan, Projection};

/// Puts the columns that were added for sorting into the order of their names.
///
/// # Errors
/// A plan whose schema cannot be made; not for plans of DataFusion's.
pub(super) fn in_order(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    plan.transform_up_with_subqueries(|plan| {
        // Columns for sorting stand below a sort, and are taken away right above it.
        let LogicalPlan::Projection(above) = &plan else { return Ok(Transformed::no(plan)) };
        let LogicalPlan::Sort(sort) = above.input.as_ref() else { return Ok(Transformed::no(plan)) };
        let Some(below) = ordered(&sort.input, above.expr.len())? else { return Ok(Transformed::no(plan)) };
        let mut sort = sort.clone();
        sort.input = Arc::new(below);
        let projection = Projection::try_new(above.expr.clone(), Arc::new(LogicalPlan::Sort(sort)))?;
        Ok(Transformed::yes(LogicalPlan::Projection(projection)))
    })
    .map(|transformed| transformed.data)
}

/// The plan with the columns behind the first `selected` of its next projection in order; `None` if they are.
fn ordered(plan: &LogicalPlan, selected: usize) -> Result<Option<LogicalPlan>, DataFusionError> {
    let LogicalPlan::Projection(projection) = plan else {
        return match plan.inputs().as_slice() {
            [input] => match ordered(input, selected)? {
                Some(input) => plan.with_new_exprs(plan.expressions(), vec![input]).map(Some),
                None => Ok(None),
            },
            _ => Ok(None),
        };
    };
    let Some((selected, added)) = projection.expr.split_at_checked(selected) else { return Ok(None) };
    if !added.iter().all(|expr| matches!(expr, Expr::Column(_))) || added.is_sorted_by_key(name) {
        return Ok(None);
    }
    let mut added = added.to_vec();
    added.sort_by_key(name);
    let expressions = selected.iter().cloned().chain(added).collect();
    Projection::try_new(expressions, projection.input.clone()).map(|p| Some(LogicalPlan::Projection(p)))
}

fn name(expr: &Expr) -> String {
    expr.schema_name().to_string()
}
