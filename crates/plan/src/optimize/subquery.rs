//! Subqueries in expressions, around the rules of DataFusion that turn them into joins: what those
//! rules take and get wrong is refused, what they leave is said in our words.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{ExprSchema, JoinType, NullEquality, Result};
use datafusion_expr::utils::{can_hash, conjunction, find_valid_equijoin_key_pair, split_conjunction, split_conjunction_owned};
use datafusion_expr::{BinaryExpr, Expr, ExprSchemable, Join, LogicalPlan, Operator};
use datafusion_optimizer::OptimizerConfig;
use datafusion_optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion_optimizer::optimizer::{ApplyOrder, OptimizerRule};

use crate::Refusal;

/// The error for what is likely written with these words.
fn refuse<T>(words: &[&str], message: &str) -> Result<T> {
    Err(Refusal::new(message, words.iter().copied()).into())
}

/// How a subquery that stands for a value is likely written: one that begins a relation has a word in front.
const VALUE: &[&str] = &[
    "= ( SELECT",
    "<> ( SELECT",
    "!= ( SELECT",
    "< ( SELECT",
    "<= ( SELECT",
    "> ( SELECT",
    ">= ( SELECT",
    "+ ( SELECT",
    "- ( SELECT",
    "* ( SELECT",
    "/ ( SELECT",
    "SELECT ( SELECT",
    ", ( SELECT",
    "( SELECT",
];
/// How a subquery of a condition is likely written.
const CONDITION: &[&str] = &["IN ( SELECT", "EXISTS ( SELECT"];

/// Refuses subqueries that stand for a value and may have several rows.
///
/// # Errors
/// The first of them.
pub(super) fn check_values(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|e| {
                if let Expr::ScalarSubquery(subquery) = e
                    && subquery.outer_ref_columns.is_empty()
                    && subquery.subquery.max_rows().is_none_or(|rows| rows > 1)
                {
                    return refuse(
                        VALUE,
                        "a subquery that stands for a value must have one row: make it one with an aggregate (MAX, COUNT, …) without GROUP BY, or with LIMIT 1",
                    );
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// Refuses `NOT IN (SELECT …)` beneath another operator, where it matters whether it is unknown or false: its join would give
/// other rows than it stands for, in streams and in batch mode.
///
/// # Errors
/// The first of them.
pub fn check_not_in(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Filter(filter) = node {
            for condition in split_conjunction(&filter.predicate) {
                let alone = match condition {
                    Expr::Not(inner) => matches!(inner.as_ref(), Expr::InSubquery(_) | Expr::Exists(_)),
                    other => matches!(other, Expr::InSubquery(_) | Expr::Exists(_)),
                };
                if !alone && unknown_matters(condition, filter.input.schema().as_ref(), false)? {
                    return refuse(
                        &["NOT IN ( SELECT", "IN ( SELECT"],
                        "NOT IN (SELECT …) beneath OR, and IN (SELECT …) beneath NOT, CASE or the like, cannot be planned where values may be NULL: put it alone between ANDs, or write [NOT] EXISTS (SELECT … WHERE …)",
                    );
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether an expression holds an `IN (SELECT …)` that may be unknown where that is not the same as
/// false: anywhere but beneath AND and OR.
fn unknown_matters(expression: &Expr, schema: &dyn ExprSchema, inside: bool) -> Result<bool> {
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            Ok(unknown_matters(left, schema, inside)? || unknown_matters(right, schema, inside)?)
        }
        Expr::InSubquery(subquery) => {
            let nullable = subquery.expr.nullable(schema)? || subquery.subquery.subquery.schema().fields().iter().any(|f| f.is_nullable());
            Ok((inside || subquery.negated) && nullable)
        }
        other => {
            let mut found = false;
            other.apply_children(|child| {
                found |= unknown_matters(child, schema, true)?;
                Ok(TreeNodeRecursion::Continue)
            })?;
            Ok(found)
        }
    }
}

/// Refuses subqueries that no rule has turned into a join.
///
/// # Errors
/// The first of them.
pub(super) fn check_gone(plan: &LogicalPlan) -> Result<()> {
    plan.apply(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|e| match e {
                Expr::InSubquery(_) | Expr::Exists(_) if matches!(node, LogicalPlan::Filter(_)) => refuse(
                    CONDITION,
                    "this IN or EXISTS subquery cannot be planned in a stream: what it compares with columns of the outer query must stand in its own WHERE, not beneath UNION, LIMIT or a window; or write it as a join",
                ),
                Expr::InSubquery(_) | Expr::Exists(_) => {
                    refuse(CONDITION, "in a stream IN (SELECT …) and EXISTS stand in WHERE and HAVING only: elsewhere write a LEFT JOIN with SELECT DISTINCT …")
                }
                Expr::ScalarSubquery(_) => {
                    refuse(VALUE, "this subquery cannot be planned in a stream: in SELECT, WHERE and HAVING it can stand for a value if what it compares with columns of the outer query are equalities in its own WHERE; or write it as a join")
                }
                Expr::SetComparison(_) => refuse(
                    &["ANY ( SELECT", "SOME ( SELECT", "ALL ( SELECT"],
                    "ANY, SOME and ALL of a subquery are not supported in a stream: use IN, EXISTS, or compare with its MIN or MAX",
                ),
                Expr::OuterReferenceColumn(_, column) => {
                    let whole = column.relation.as_ref().map(|relation| format!("{} . {}", relation.table(), column.name));
                    let words: Vec<&str> = whole.as_deref().into_iter().chain(["LATERAL", "( SELECT"]).collect();
                    refuse(
                        &words,
                        &format!(
                            "a subquery refers to column '{}' of the outer query in a way that cannot be planned in a stream; write it as a join",
                            column.name
                        ),
                    )
                }
                _ => Ok(TreeNodeRecursion::Continue),
            })
        })
    })?;
    Ok(())
}

/// `x NOT IN (SELECT y …)` where either may be NULL: an anti join that knows of NULLs is left only
/// where `x = y` is its whole condition. Otherwise the condition says it: a row is kept from passing by a
/// partner for which `x = y` is not false. It must come right behind the rule that makes such joins.
#[derive(Debug)]
pub struct NotIn;

impl OptimizerRule for NotIn {
    fn name(&self) -> &str {
        "not_in"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = plan else { return Ok(Transformed::no(plan)) };
        if !join.null_aware || !join.on.is_empty() || join.filter.is_none() {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        let Join { filter, .. } = &join;
        let mut conditions = filter.clone().map(split_conjunction_owned).unwrap_or_default();
        // The rule that made the join puts `x = y` in front.
        let equality = conditions.remove(0);
        if conditions.is_empty()
            && let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = &equality
            && let Some((x, y)) = find_valid_equijoin_key_pair(left, right, join.left.schema(), join.right.schema())?
            && can_hash(&x.get_type(join.left.schema().as_ref())?)
        {
            return Ok(Transformed::yes(LogicalPlan::Join(Join { on: vec![(x, y)], filter: None, ..join })));
        }
        conditions.insert(0, Expr::IsNotFalse(Box::new(equality)));
        Ok(Transformed::yes(LogicalPlan::Join(Join { filter: conjunction(conditions), null_aware: false, ..join })))
    }
}

/// DataFusion's rule that finds conditions for `FROM a, b, c`. It changes the order of joins and takes
/// all of a chain to treat NULLs alike, so it runs only where there is a cross join, and where that is so.
#[derive(Debug, Default)]
pub(super) struct CrossJoins(EliminateCrossJoin);

impl OptimizerRule for CrossJoins {
    fn name(&self) -> &str {
        "cross_joins"
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let (mut crosses, mut plain) = (false, true);
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::Join(join) = node {
                crosses |= join.join_type == JoinType::Inner && join.on.is_empty() && join.filter.is_none();
                plain &= join.null_equality == NullEquality::NullEqualsNothing || join.join_type != JoinType::Inner;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if crosses && plain { self.0.rewrite(plan, config) } else { Ok(Transformed::no(plan)) }
    }
}
