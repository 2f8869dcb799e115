//! `CROSS JOIN UNNEST(array) AS t(x)`: DataFusion plans a join with a subquery that refers to the left
//! side; nothing here can run that. The same rows come of unnesting over the left side itself.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{JoinType, NullHandling, Result, ScalarValue, plan_err};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::logical_plan::builder::unnest_with_options;
use datafusion_expr::logical_plan::{Filter, Projection};
use datafusion_expr::{Expr, LogicalPlan};

/// A join with UNNEST of the left side's columns as a plan without join; others as they are.
pub(super) fn lateral(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = &node else { return Ok(Transformed::no(node)) };
    let always = matches!(&join.filter, None | Some(Expr::Literal(ScalarValue::Boolean(Some(true)), _)));
    let handling = match join.join_type {
        JoinType::Inner => NullHandling::Drop,
        // A row without elements stays, with NULL.
        JoinType::Left => NullHandling::PreserveAndExpandEmpty,
        _ => return Ok(Transformed::no(node)),
    };
    let (alias, subquery) = match join.right.as_ref() {
        LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
            LogicalPlan::Subquery(subquery) => (Some(alias.alias.clone()), &subquery.subquery),
            _ => return Ok(Transformed::no(node)),
        },
        LogicalPlan::Subquery(subquery) => (None, &subquery.subquery),
        _ => return Ok(Transformed::no(node)),
    };
    if !join.on.is_empty() {
        return Ok(Transformed::no(node));
    }
    let kept: Vec<Expr> = join.left.schema().columns().into_iter().map(Expr::Column).collect();
    let Some(plan) = over(subquery, &join.left, &kept, &handling)? else { return Ok(Transformed::no(node)) };
    if join.join_type == JoinType::Left && !always {
        if !subquery.exists(|step| Ok(matches!(step, LogicalPlan::Unnest(_))))? {
            return Ok(Transformed::no(node));
        }
        return plan_err!("LEFT JOIN UNNEST takes ON TRUE alone; write the condition in WHERE, or CROSS JOIN UNNEST with it there");
    }
    let mut outputs = kept;
    for column in plan.schema().columns().into_iter().skip(outputs.len()) {
        let (qualifier, name) = (alias.clone().or_else(|| column.relation.clone()), column.name.clone());
        outputs.push(Expr::Column(column).alias_qualified(qualifier, name));
    }
    let mut plan = LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(plan))?);
    if let (Some(filter), false) = (&join.filter, always) {
        plan = LogicalPlan::Filter(Filter::try_new(filter.clone(), Arc::new(plan))?);
    }
    Ok(Transformed::yes(plan))
}

/// The subquery's steps over the left side, whose columns are kept in front; `None` if there is a step
/// that is not of UNNEST.
fn over(plan: &LogicalPlan, left: &Arc<LogicalPlan>, kept: &[Expr], handling: &NullHandling) -> Result<Option<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::EmptyRelation(empty) if empty.produce_one_row => Some(left.as_ref().clone()),
        LogicalPlan::Projection(projection) => match over(&projection.input, left, kept, handling)? {
            None => None,
            Some(input) => {
                let mut exprs = kept.to_vec();
                for expr in &projection.expr {
                    exprs.push(inner(expr)?);
                }
                Some(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?))
            }
        },
        LogicalPlan::Unnest(unnest) => match over(&unnest.input, left, kept, handling)? {
            None => None,
            Some(input) => {
                let mut options = unnest.options.clone();
                options.null_handling = *handling;
                Some(unnest_with_options(input, unnest.exec_columns.clone(), options)?)
            }
        },
        _ => None,
    })
}

/// An expression with the outer query's columns as its own.
fn inner(expr: &Expr) -> Result<Expr> {
    let name = NamePreserver::new_for_projection().save(expr);
    let resolved = expr.clone().transform_up(|e| {
        Ok(match e {
            Expr::OuterReferenceColumn(_, column) => Transformed::yes(Expr::Column(column)),
            other => Transformed::no(other),
        })
    })?;
    Ok(name.restore(resolved.data))
}
