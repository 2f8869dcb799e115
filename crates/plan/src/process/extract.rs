//! Takes the calls of functions of processes out of expressions: each becomes a [`ProcessCallNode`] below
//! the projection or filter in which it stood, which then refers to its column.
//!
//! It is done before plans are optimised, so that filters fall through the nodes and the same call is made
//! once. A filter is parted: what can be told without the call comes first.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, Result, plan_err};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Cast, Expr, ExprSchemable, Extension, Filter, LogicalPlan, Projection};

use super::{Kind, ProcessCallNode, called, first_call, misplaced};
use crate::PatternNode;
use crate::optimize::coerce;
use crate::pattern::{Argument, NavigationKind, PatternSpec};

/// How the columns of calls begin.
const COLUMN: &str = "__call_";

/// Makes nodes of all calls in a plan and its subqueries.
///
/// # Errors
/// A call that stands where no node can be put below it, with what works instead.
pub fn extract(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut any = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|e| {
            any |= first_call(e).is_some();
            Ok(if any { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if let LogicalPlan::Extension(extension) = node
            && let Some(pattern) = extension.node.as_any().downcast_ref::<PatternNode>()
        {
            check_pattern(&pattern.spec)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !any {
        return Ok(plan);
    }
    Ok(plan.transform_up_with_subqueries(step)?.data)
}

fn step(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut call = None;
    plan.apply_expressions(|e| {
        call = first_call(e);
        Ok(if call.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    let Some(function) = call else { return Ok(Transformed::no(plan)) };
    match plan {
        LogicalPlan::Projection(projection) => {
            let names = NamePreserver::new_for_projection();
            let saved: Vec<_> = projection.expr.iter().map(|e| names.save(e)).collect();
            let (expressions, input) = pull(projection.expr, Arc::unwrap_or_clone(projection.input))?;
            let expressions = saved.into_iter().zip(expressions).map(|(name, e)| name.restore(e)).collect();
            Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(input))?)))
        }
        LogicalPlan::Filter(filter) => {
            let columns: Vec<Expr> = filter.input.schema().iter().map(|(q, f)| Expr::Column(Column::from((q, f)))).collect();
            let (calling, plain): (Vec<Expr>, Vec<Expr>) =
                split_conjunction(&filter.predicate).into_iter().cloned().partition(|e| first_call(e).is_some());
            let mut input = Arc::unwrap_or_clone(filter.input);
            if let Some(plain) = conjunction(plain) {
                input = LogicalPlan::Filter(Filter::try_new(plain, Arc::new(input))?);
            }
            let (calling, input) = pull(calling, input)?;
            let predicate = conjunction(calling).expect("a call was found");
            let kept = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?);
            Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(kept))?)))
        }
        other => plan_err!("{}", misplaced(&function.name, place(&other))),
    }
}

/// Where a call cannot stand, for messages.
fn place(plan: &LogicalPlan) -> &'static str {
    match plan {
        LogicalPlan::Aggregate(_) => "in an aggregate function or in GROUP BY",
        LogicalPlan::Join(_) => "in the condition of a join",
        LogicalPlan::Window(_) => "in a function OVER a window",
        LogicalPlan::Sort(_) => "in ORDER BY",
        LogicalPlan::Values(_) => "in VALUES",
        LogicalPlan::Limit(_) => "in LIMIT",
        _ => "here",
    }
}

/// Puts a node for each call in `expressions` upon `input`, inner calls first; the expressions then refer
/// to the nodes' columns.
fn pull(mut expressions: Vec<Expr>, mut input: LogicalPlan) -> Result<(Vec<Expr>, LogicalPlan)> {
    loop {
        let mut calls: Vec<Expr> = Vec::new();
        for expression in &expressions {
            expression.apply(|e| {
                if let Some((_, arguments)) = called(e)
                    && arguments.iter().all(|a| first_call(a).is_none())
                    && !calls.contains(e)
                {
                    calls.push(e.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        if calls.is_empty() {
            return Ok((expressions, input));
        }
        for call in calls {
            let column = free_name(input.schema());
            let (function, arguments) = called(&call).expect("found above");
            let arguments = fit(&function.kind, &function.name, arguments, input.schema())?;
            let node = ProcessCallNode::try_new(input, function.clone(), arguments, column.clone())?;
            input = LogicalPlan::Extension(Extension { node: Arc::new(node) });
            let value = Expr::Column(Column::new_unqualified(column));
            let replace = |e: Expr| {
                e.transform_down(|e| Ok(if e == call { Transformed::yes(value.clone()) } else { Transformed::no(e) })).map(|t| t.data)
            };
            expressions = expressions.into_iter().map(replace).collect::<Result<_>>()?;
        }
    }
}

/// A name that no column has.
fn free_name(schema: &DFSchema) -> String {
    let taken = schema.fields().iter().filter_map(|f| f.name().strip_prefix(COLUMN)?.parse::<usize>().ok());
    format!("{COLUMN}{}", taken.max().map_or(0, |n| n + 1))
}

/// The arguments with the types of the parameters.
fn fit(kind: &Kind, name: &str, arguments: &[Expr], schema: &DFSchema) -> Result<Vec<Expr>> {
    let Kind::Value { parameters, .. } = kind else { return plan_err!("function {name} gives a table, not a value") };
    let fit = |(argument, (_, to)): (&Expr, &(String, arrow::datatypes::DataType))| {
        let refers_out = argument.exists(|e| {
            Ok(matches!(e, Expr::OuterReferenceColumn(..) | Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_)))
        })?;
        if refers_out {
            return plan_err!("{}", misplaced(name, "over columns of an outer query or over a subquery"));
        }
        let argument = coerce(argument.clone(), schema)?;
        Ok(if argument.get_type(schema)? == *to { argument } else { Expr::Cast(Cast::new(Box::new(argument), to.clone())) })
    };
    arguments.iter().zip(parameters).map(fit).collect()
}

/// The expressions of a pattern are not among those of its node.
fn check_pattern(spec: &PatternSpec) -> Result<()> {
    let conditions = spec.symbols.iter().filter_map(|s| s.condition.as_ref());
    let navigations = spec.navigations.iter().filter_map(|n| match &n.kind {
        NavigationKind::Value { argument: Argument::Input(argument), .. } => Some(argument),
        NavigationKind::Aggregate { call } => Some(call),
        _ => None,
    });
    let outputs = spec.output.iter().map(|(_, e)| e);
    match conditions.chain(navigations).chain(outputs).find_map(first_call) {
        Some(function) => plan_err!("{}", misplaced(&function.name, "in MATCH_RECOGNIZE")),
        None => Ok(()),
    }
}
