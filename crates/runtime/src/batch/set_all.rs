//! `INTERSECT ALL` and `EXCEPT ALL`, which DataFusion plans as if ALL meant every row of the left input.
//!
//! Equal rows are numbered on both sides, so that no two rows of a side are the same; then the n-th row
//! on the left stays, or goes, if there is an n-th one on the right.

use std::sync::Arc;

use datafusion::functions_window::expr_fn::row_number;
use datafusion_common::{Column, JoinType, NullEquality};
use datafusion_expr::{Distinct, Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder};

use crate::JobError;

fn columns(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().columns().into_iter().map(Expr::Column).collect()
}

/// The join that an `ALL` operation is, its rows numbered; nothing for any other join. Only for plans
/// as the SQL planner makes them: there no other join takes NULLs for equal.
pub(super) fn numbered(join: &Join) -> Result<Option<LogicalPlan>, JobError> {
    let all = join.null_equality == NullEquality::NullEqualsNull
        && matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.filter.is_none()
        && join.on.len() == join.left.schema().fields().len()
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(Distinct::All(_)));
    if !all {
        return Ok(None);
    }
    let number = |plan: &LogicalPlan, name: &str| -> Result<LogicalPlan, JobError> {
        let number = row_number().partition_by(columns(plan)).build()?.alias(name);
        Ok(LogicalPlanBuilder::from(plan.clone()).window(vec![number])?.build()?)
    };
    let names = ["__left_number", "__right_number"];
    let (left, right) = (number(&join.left, names[0])?, number(&join.right, names[1])?);
    let mut on = join.on.clone();
    let [l, r] = names.map(|name| Expr::Column(Column::new_unqualified(name)));
    on.push((l, r));
    let numbered = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        None,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    Ok(Some(LogicalPlanBuilder::from(LogicalPlan::Join(numbered)).project(columns(&join.left))?.build()?))
}
