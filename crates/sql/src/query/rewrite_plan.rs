//! After planning: casts and averages get Flink's meaning, by way of the plan crate's functions.
//!
//! `CAST` to and from text, between numbers where values may not fit, and between TIMESTAMP and
//! TIMESTAMP_LTZ become calls of `flink_cast` and its like. The average of whole numbers is a whole
//! number: SUM divided by COUNT.

use std::sync::Arc;

use arrow::compute::can_cast_types;
use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchema, DataFusionError, Result, ScalarValue, plan_err};
use datafusion_expr::expr::{AggregateFunction, BinaryExpr, WindowFunction};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::logical_plan::{Aggregate, Projection, Window};
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{Cast, Expr, ExprSchemable, Like, LogicalPlan, Operator, WindowFunctionDefinition, lit};

use super::cast_names::NAMED_CAST;
use super::functions::Functions;
use super::unnest;
use crate::diagnostic::SqlError;
use crate::types::flink_type;

/// Rewrites a plan and the subqueries in it.
pub(crate) fn plan(plan: LogicalPlan, functions: &Functions) -> Result<LogicalPlan> {
    // Once a type has changed, the schemas of all nodes above may have.
    let mut changed = false;
    let rewritten = plan.transform_up_with_subqueries(|node| {
        check_on(&node)?;
        let schema = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        let node = node.map_expressions(|e| named(e, &names, &schema, functions))?;
        changed |= node.transformed;
        let node = if changed { node.data.recompute_schema()? } else { node.data };
        let node = averages(node, functions)?;
        changed |= node.transformed;
        let node = unnest::lateral(node.data)?;
        changed |= node.transformed;
        Ok(Transformed::new(node.data, changed, datafusion_common::tree_node::TreeNodeRecursion::Continue))
    })?;
    Ok(rewritten.data)
}

/// Rewrites an expression of a node and keeps its name. In grouping sets every key keeps its own (DataFusion
/// takes a set under an alias for a plain key), and so do the arguments of GROUPING, which are keys again.
fn named(expr: Expr, names: &NamePreserver, schema: &DFSchema, functions: &Functions) -> Result<Transformed<Expr>> {
    if let Expr::GroupingSet(_) = expr {
        return expr.map_children(|key| named(key, names, schema, functions));
    }
    let name = names.save(&expr);
    let is_grouping = matches!(&expr, Expr::AggregateFunction(f) if f.func.name() == "grouping");
    let rewritten =
        if is_grouping { expr.map_children(|key| named(key, names, schema, functions))? } else { casts(expr, schema, functions)? };
    Ok(if rewritten.transformed { rewritten.update_data(|e| name.restore(e)) } else { rewritten })
}

/// Refuses a subquery in `ON` that refers to the joined tables. The optimiser moves conditions of joins
/// to the side whose columns they name; it overlooks those that a subquery refers to, and would ask the
/// wrong side.
fn check_on(node: &LogicalPlan) -> Result<()> {
    let LogicalPlan::Join(join) = node else { return Ok(()) };
    let refers = |e: &Expr| match e {
        Expr::Exists(exists) => !exists.subquery.outer_ref_columns.is_empty(),
        Expr::InSubquery(within) => !within.subquery.outer_ref_columns.is_empty(),
        Expr::ScalarSubquery(value) => !value.outer_ref_columns.is_empty(),
        _ => false,
    };
    match &join.filter {
        Some(filter) if filter.exists(|e| Ok(refers(e)))? => {
            plan_err!("a subquery in ON cannot refer to columns of the joined tables: put it in WHERE, of this query or of one in FROM")
        }
        _ => Ok(()),
    }
}

/// Rewrites an expression over columns.
pub(crate) fn expr(expr: Expr, schema: &DFSchema, functions: &Functions) -> Result<Expr> {
    Ok(casts(expr, schema, functions)?.data)
}

fn casts(expr: Expr, schema: &DFSchema, functions: &Functions) -> Result<Transformed<Expr>> {
    expr.transform_up(|e| {
        let rewritten = match &e {
            Expr::Cast(cast) => flink_cast(&cast.expr, cast.field.data_type(), false, schema, functions)?,
            Expr::ScalarFunction(call) if call.func.name() == NAMED_CAST => call.args.first().cloned(),
            // The executor knows the backslash only.
            Expr::Like(like) => match (like.escape_char.filter(|c| *c != '\\'), like.pattern.as_ref()) {
                (Some(escape), Expr::Literal(ScalarValue::Utf8(Some(pattern)), _)) => {
                    let pattern = Box::new(lit(backslashes(pattern, escape)));
                    Some(Expr::Like(Like { pattern, escape_char: None, ..like.clone() }))
                }
                _ => None,
            },
            Expr::TryCast(cast) => flink_cast(&cast.expr, cast.field.data_type(), true, schema, functions)?,
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
                let sides = [left, right].map(|side| match side.get_type(schema) {
                    Ok(from) => to_text(side, &from, functions),
                    Err(_) => None,
                });
                match sides {
                    [None, None] => None,
                    [l, r] => {
                        let (l, r) = (l.unwrap_or_else(|| left.as_ref().clone()), r.unwrap_or_else(|| right.as_ref().clone()));
                        Some(Expr::BinaryExpr(BinaryExpr::new(Box::new(l), Operator::StringConcat, Box::new(r))))
                    }
                }
            }
            _ => None,
        };
        Ok(match rewritten {
            Some(rewritten) => Transformed::yes(rewritten),
            None => Transformed::no(e),
        })
    })
}

/// A LIKE pattern with the backslash for its escape character.
fn backslashes(pattern: &str, escape: char) -> String {
    let mut out = String::with_capacity(pattern.len() + 4);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c == escape => {
                out.push('\\');
                out.extend(chars.next());
            }
            '\\' => out.push_str("\\\\"),
            c => out.push(c),
        }
    }
    out
}

fn is_text(t: &DataType) -> bool {
    matches!(t, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// A value as text; `None` if it is text or NULL.
fn to_text(expr: &Expr, from: &DataType, functions: &Functions) -> Option<Expr> {
    (!is_text(from) && *from != DataType::Null).then(|| functions.call("flink_cast_string", vec![expr.clone()]))
}

/// The call that a cast becomes; `None` where Arrow's cast does the same.
///
/// # Errors
/// There is no cast between the two types.
fn flink_cast(expr: &Expr, to: &DataType, lenient: bool, schema: &DFSchema, functions: &Functions) -> Result<Option<Expr>> {
    let Ok(from) = expr.get_type(schema) else { return Ok(None) };
    if *to == DataType::Utf8 {
        return Ok(to_text(expr, &from, functions));
    }
    if differs(expr, &from, to) {
        let call = functions.call(if lenient { "flink_try_cast" } else { "flink_cast" }, vec![expr.clone(), lit(flink_type(to))]);
        // The function knows the type by its name only.
        if call.get_type(schema).ok().as_ref() == Some(to) {
            return Ok(Some(call));
        }
    }
    if !can_cast_types(&from, to) {
        return Err(DataFusionError::External(Box::new(SqlError::new(format!(
            "{} cannot be cast to {}",
            flink_type(&from),
            flink_type(to)
        )))));
    }
    Ok(None)
}

/// Whether Flink's cast between two types is another than Arrow's.
fn differs(expr: &Expr, from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let scalar = |t: &DataType| t.is_numeric() || matches!(t, Boolean | Date32 | Time32(_) | Timestamp(..));
    match (from, to) {
        (a, b) if a == b => false,
        (a, b) if is_text(a) => scalar(b),
        (Boolean, b) => b.is_numeric(),
        (a, Boolean) => a.is_numeric(),
        (a, b) if a.is_integer() && b.is_integer() => b.primitive_width() < a.primitive_width() && !matches!(expr, Expr::Literal(..)),
        (a, b) if a.is_numeric() && b.is_numeric() => b.is_integer() || matches!(b, Decimal128(..)),
        (Timestamp(_, a), Timestamp(_, b)) => a.is_some() != b.is_some(),
        (Timestamp(..), Date32 | Time32(_)) | (Date32, Timestamp(_, Some(_))) => true,
        _ => false,
    }
}

/// A cast as an insert makes it without being told: the value must fit.
pub(crate) fn implicit_cast(expr: Expr, from: &DataType, to: &DataType, functions: &Functions) -> Expr {
    use DataType::*;
    match (from, to) {
        (a, b) if a == b => expr,
        (Timestamp(_, a), Timestamp(_, b)) if a.is_some() != b.is_some() => functions.call("flink_cast", vec![expr, lit(flink_type(to))]),
        (Timestamp(..), Date32 | Time32(_)) | (Date32, Timestamp(_, Some(_))) => {
            functions.call("flink_cast", vec![expr, lit(flink_type(to))])
        }
        _ => Expr::Cast(Cast::new(Box::new(expr), to.clone())),
    }
}

/// AVG of whole numbers, in aggregates and windows.
fn averages(node: LogicalPlan, functions: &Functions) -> Result<Transformed<LogicalPlan>> {
    let (exprs, input) = match &node {
        LogicalPlan::Aggregate(a) => (&a.aggr_expr, &a.input),
        LogicalPlan::Window(w) => (&w.window_expr, &w.input),
        _ => return Ok(Transformed::no(node)),
    };
    let types: Vec<Option<DataType>> = exprs.iter().map(|e| whole_average(e, input.schema())).collect();
    if types.iter().all(Option::is_none) {
        return Ok(Transformed::no(node));
    }
    let schema = node.schema().clone();
    let kept = schema.fields().len() - exprs.len();
    // The number of the set is for GROUPING only, and goes when DataFusion works GROUPING out below.
    let numbered = has_set_number(&node);
    let is_number = |column: &Column| numbered && column.relation.is_none() && column.name == Aggregate::INTERNAL_GROUPING_ID;
    let columns = (0..kept).map(|i| Column::from(schema.qualified_field(i)));
    let mut outputs: Vec<Expr> = columns.filter(|column| !is_number(column)).map(Expr::Column).collect();
    let mut inner: Vec<Expr> = Vec::with_capacity(exprs.len() + 1);
    // What is computed is compared, not its name: the COUNT of `AVG(a)` and `COUNT(TRY_CAST(a AS INT))` have the same.
    let mut keep = |expr: Expr| {
        if let Some(known) = inner.iter().find(|known| unaliased(known) == unaliased(&expr)) {
            let (qualifier, name) = known.qualified_name();
            return Expr::Column(Column::new(qualifier, name));
        }
        let (qualifier, plain) = expr.qualified_name();
        let mut name = plain.clone();
        let mut count = 0;
        while inner.iter().any(|known| known.qualified_name() == (qualifier.clone(), name.clone())) {
            count += 1;
            name = format!("{plain}:{count}");
        }
        inner.push(if count == 0 { expr } else { unaliased(&expr).clone().alias_qualified(qualifier.clone(), name.clone()) });
        Expr::Column(Column::new(qualifier, name))
    };
    for ((expr, whole), i) in exprs.iter().zip(types).zip(kept..) {
        let (qualifier, field) = schema.qualified_field(i);
        let Some(whole) = whole else {
            let column = keep(expr.clone());
            let same = column.qualified_name() == expr.qualified_name();
            outputs.push(if same { column } else { column.alias_qualified(qualifier.cloned(), field.name()) });
            continue;
        };
        let sum = keep(with_function(expr, "sum", functions));
        let count = keep(with_function(expr, "count", functions));
        let quotient = Expr::BinaryExpr(BinaryExpr::new(Box::new(sum), Operator::Divide, Box::new(count)));
        outputs.push(Expr::Cast(Cast::new(Box::new(quotient), whole)).alias_qualified(qualifier.cloned(), field.name()));
    }
    let below = match node {
        LogicalPlan::Aggregate(a) => LogicalPlan::Aggregate(Aggregate::try_new(a.input, a.group_expr, inner)?),
        LogicalPlan::Window(w) => LogicalPlan::Window(Window::try_new(inner, w.input)?),
        other => other,
    };
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(below))?)))
}

/// What an expression computes, whatever it is called.
fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// Whether the columns of a node are those of an aggregate by grouping sets, with the number of the set.
fn has_set_number(node: &LogicalPlan) -> bool {
    match node {
        LogicalPlan::Aggregate(a) => matches!(a.group_expr.as_slice(), [Expr::GroupingSet(_)]),
        LogicalPlan::Filter(f) => has_set_number(&f.input),
        LogicalPlan::Window(w) => has_set_number(&w.input),
        _ => false,
    }
}

/// The type of the argument, if the expression is an average of whole numbers.
pub(super) fn whole_average(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    let args = match expr {
        Expr::Alias(alias) => return whole_average(&alias.expr, schema),
        Expr::AggregateFunction(f) if f.func.name() == "avg" => &f.params.args,
        Expr::WindowFunction(f) => match &f.fun {
            WindowFunctionDefinition::AggregateUDF(udaf) if udaf.name() == "avg" => &f.params.args,
            _ => return None,
        },
        _ => return None,
    };
    let t = args.first()?.get_type(schema).ok()?;
    t.is_signed_integer().then_some(t)
}

/// The same call of another aggregate.
pub(super) fn with_function(expr: &Expr, name: &str, functions: &Functions) -> Expr {
    let function = || functions.aggregate(name).unwrap_or_else(|| panic!("aggregate {name} is built in"));
    match expr {
        Expr::Alias(alias) => with_function(&alias.expr, name, functions),
        Expr::AggregateFunction(f) => Expr::AggregateFunction(AggregateFunction { func: function(), params: f.params.clone() }),
        Expr::WindowFunction(f) => Expr::WindowFunction(Box::new(WindowFunction {
            fun: WindowFunctionDefinition::AggregateUDF(function()),
            params: f.params.clone(),
        })),
        other => other.clone(),
    }
}
