//! Temporal joins: `JOIN t FOR SYSTEM_TIME AS OF a.rt AS v ON …`.
//!
//! DataFusion's planner would pass over the clause. So it becomes part of the condition before planning
//! ([`rewrite`]: `ON (…) AND __as_of(a.rt, …)`), which resolves its column among those of the left side,
//! and the join becomes a [`TemporalJoinNode`] after it ([`plan`]), or, if the time is processing time, a
//! lookup join ([`lookup`]).

use std::sync::Arc;

use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, DFSchema, DataFusionError, Result, ScalarValue};
use datafusion_expr::utils::{conjunction, find_valid_equijoin_key_pair, split_conjunction};
use datafusion_expr::{BinaryExpr, Expr, Extension, Join, LogicalPlan, Operator, lit};
use sqlparser::ast::{
    BinaryOperator, Expr as SqlExpr, JoinConstraint, JoinOperator, Select, Spanned, TableFactor, TableVersion, TableWithJoins, Value,
};
use tidemill_plan::lookup::is_processing_time;
use tidemill_plan::node::as_column;
use tidemill_plan::temporal::{AS_OF, TemporalJoinNode, versioned};

use super::catalog::last_part;
use super::hints::Hints;
use super::lookup::{self, Asked};
use super::rewrite_sql::call;
use crate::diagnostic::{LineIndex, Span, SqlError};
use crate::types::flink_type;

const WRITE: &str = "write a JOIN (or LEFT JOIN) t FOR SYSTEM_TIME AS OF a.rt AS v ON a.k = v.k, with the PRIMARY KEY of t";

/// Moves the clauses of a select into the conditions of their joins.
///
/// # Errors
/// A clause that does not belong to a join, or to one that has no ON.
pub(super) fn rewrite(select: &mut Select, lines: &LineIndex<'_>, hints: &Hints) -> std::result::Result<(), SqlError> {
    let at = select.select_token.0.span.start;
    select.from.iter_mut().try_for_each(|table| tables(table, lines, &|alias| hints.lookup_for(at, alias)))
}

/// `hint` gives the number of the `LOOKUP` hint for a table.
fn tables(table: &mut TableWithJoins, lines: &LineIndex<'_>, hint: &dyn Fn(&str) -> Option<usize>) -> std::result::Result<(), SqlError> {
    if let Some(Version { name, span, .. }) = version(&mut table.relation, lines) {
        return Err(SqlError::new(format!("{name} FOR SYSTEM_TIME AS OF: only the right side of a join can be read as of a time"))
            .or_at(span)
            .with_help(WRITE));
    }
    nested(&mut table.relation, lines, hint)?;
    for join in &mut table.joins {
        nested(&mut join.relation, lines, hint)?;
        let Some(Version { name, alias, span, time }) = version(&mut join.relation, lines) else { continue };
        let fail = |message: &str| Err(SqlError::new(format!("JOIN {name} FOR SYSTEM_TIME AS OF: {message}")).or_at(span).with_help(WRITE));
        let constraint = match &mut join.join_operator {
            JoinOperator::Join(c) | JoinOperator::Inner(c) | JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => c,
            _ => return fail("this is an INNER or a LEFT join"),
        };
        let JoinConstraint::On(on) = constraint else { return fail("this needs an ON") };
        let (start, end) = span.map_or((0, 0), |s| (s.start, s.end));
        let number = |n: usize| SqlExpr::Value(Value::Number(n.to_string(), false).with_empty_span());
        // Hints are counted from 1 here; 0 is none.
        let hint = hint(&alias).map_or(0, |n| n + 1);
        let given = std::mem::replace(on, SqlExpr::Value(Value::Null.with_empty_span()));
        *on = SqlExpr::BinaryOp {
            left: Box::new(SqlExpr::Nested(Box::new(given))),
            op: BinaryOperator::And,
            right: Box::new(call(AS_OF, vec![time, number(start), number(end), number(hint)])),
        };
    }
    Ok(())
}

fn nested(factor: &mut TableFactor, lines: &LineIndex<'_>, hint: &dyn Fn(&str) -> Option<usize>) -> std::result::Result<(), SqlError> {
    match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => tables(table_with_joins, lines, hint),
        _ => Ok(()),
    }
}

/// A clause.
struct Version {
    /// The table's name.
    name: String,
    /// What the query calls it.
    alias: String,
    /// The place of the clause.
    span: Option<Span>,
    time: SqlExpr,
}

/// Takes the clause from a table.
fn version(factor: &mut TableFactor, lines: &LineIndex<'_>) -> Option<Version> {
    let TableFactor::Table { name, alias, version, .. } = factor else { return None };
    if !matches!(version, Some(TableVersion::ForSystemTimeAsOf(_))) {
        return None;
    }
    let Some(TableVersion::ForSystemTimeAsOf(time)) = version.take() else { return None };
    let span = lines.span(name.span().union(&time.span()));
    let name = last_part(name);
    let alias = alias.as_ref().map_or_else(|| name.clone(), |a| a.name.value.clone());
    Some(Version { name, alias, span, time })
}

/// Makes temporal joins and lookup joins of the joins that carry a clause.
///
/// # Errors
/// A right side that is no versioned table or cannot be looked up, a condition without its key.
pub(super) fn plan(plan: LogicalPlan, context: &lookup::Context<'_>) -> Result<LogicalPlan> {
    let planned = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) if join.filter.as_ref().is_some_and(|f| split_conjunction(f).into_iter().any(|e| as_of(e).is_some())) => {
            Ok(Transformed::yes(temporal(join, context)?))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(planned.data)
}

/// The arguments of a clause in a condition.
fn as_of(part: &Expr) -> Option<&[Expr]> {
    match part {
        Expr::ScalarFunction(function) if function.func.name() == AS_OF => Some(&function.args),
        _ => None,
    }
}

fn temporal(join: Join, context: &lookup::Context<'_>) -> Result<LogicalPlan> {
    let parts: Vec<Expr> = join.filter.iter().flat_map(split_conjunction).cloned().collect();
    let (clauses, rest): (Vec<Expr>, Vec<Expr>) = parts.into_iter().partition(|e| as_of(e).is_some());
    let arguments = as_of(&clauses[0]).unwrap_or_default();
    let offset = |n: usize| match arguments.get(n) {
        Some(Expr::Literal(ScalarValue::Int64(Some(at)), _)) => *at as usize,
        _ => 0,
    };
    let place = (offset(2) > 0).then(|| Span::new(offset(1), offset(2)));
    let name = match join.right.as_ref() {
        LogicalPlan::SubqueryAlias(alias) => alias.alias.table().to_string(),
        _ => "the right side".into(),
    };
    let fail = |message: String| {
        let error = SqlError::new(format!("JOIN {name} FOR SYSTEM_TIME AS OF: {message}")).or_at(place).with_help(WRITE);
        DataFusionError::External(Box::new(error))
    };
    let time = arguments.first().cloned().unwrap_or_else(|| lit(ScalarValue::Null));
    if is_processing_time(&time, &join.left) {
        let hint = offset(3).checked_sub(1).map(|number| context.hints.lookup(number)).unwrap_or_default();
        return lookup::plan(join, Asked { name: name.clone(), place, conditions: rest, hint }, context);
    }
    let Some(left_time) = as_column(&time).and_then(|c| join.left.schema().maybe_index_of_column(c)) else {
        return Err(fail(format!("{time} is neither an event-time nor a processing-time column of the left side")));
    };
    let versions = versioned(&join.right).map_err(|why| fail(format!("{name} {why}")))?;
    let schema = versions.plan.schema().clone();
    let column = |index: usize| Expr::Column(Column::from(schema.qualified_field(index)));
    let mut compared: Vec<usize> = Vec::new();
    for part in &rest {
        if let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = part
            && let Some((_, right)) = find_valid_equijoin_key_pair(left, right, join.left.schema(), &schema)?
        {
            compared.extend(as_column(&right).and_then(|c| schema.maybe_index_of_column(c)));
        }
    }
    if let Some(missing) = versions.key.iter().find(|k| !compared.contains(k)) {
        return Err(fail(format!("the condition must say what the key column {} is equal to", column(*missing))));
    }
    let shown = |schema: &DFSchema, index: usize| flink_type(schema.field(index).data_type());
    let types = (shown(join.left.schema(), left_time), shown(&schema, versions.time));
    if types.0 != types.1 {
        let version = column(versions.time);
        let message = format!("the times of both sides must be of one type, but {time} is {} and {version} is {}", types.0, types.1);
        return Err(fail(message));
    }
    let key = versions.key.iter().map(|k| column(*k)).collect();
    let (left, version) = (Arc::unwrap_or_clone(join.left), column(versions.time));
    let condition = conjunction(rest).unwrap_or_else(|| lit(true));
    let node = TemporalJoinNode::try_new(left, versions.plan, join.join_type, time, version, key, condition)
        .map_err(|e| fail(super::error::message(&e).into_owned()))?;
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}
