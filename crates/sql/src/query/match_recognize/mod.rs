//! `MATCH_RECOGNIZE`: from the clause, as `parse::match_recognize` reads it, to a [`PatternNode`].
//!
//! Here are the parts that are columns (partitioning, order, output) and the time; [`names`] has the
//! pattern variables, [`pattern`] the pattern and its faults, [`expression`] conditions and measures.

mod expression;
mod names;
mod pattern;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::{Column, DFSchema, Result};
use datafusion_expr::planner::RelationPlannerContext;
use datafusion_expr::{Expr, Extension, LogicalPlan};
use sqlparser::ast::{Expr as SqlExpr, Ident, Spanned};
use tidemill_plan::PatternNode;
use tidemill_plan::pattern::{Bounds, Contiguity, PatternSpec, RowsPerMatch, Symbol};

use super::functions::Functions;
use super::interval::interval_ms;
use super::window::external;
use crate::diagnostic::{LineIndex, SqlError};
use crate::parse::match_recognize::{MatchClause, RowsOfMatch};
use crate::types::flink_type;
use expression::{Place, Resolver};
use names::Names;

/// The plan of a clause.
///
/// # Errors
/// Whatever is wrong with it, at its place.
pub(super) fn plan(
    clause: &MatchClause,
    context: &mut dyn RelationPlannerContext,
    functions: &Functions,
    lines: &LineIndex<'_>,
) -> Result<LogicalPlan> {
    let fail = |error: SqlError, at| external(error.or_at(lines.span(at)));
    let names = Names::new(clause, lines)?;
    let input = context.plan(clause.input.clone())?;
    let schema = input.schema().clone();
    let partition_by =
        clause.partition_by.iter().map(|by| column(by, "PARTITION BY", &schema, context, lines)).collect::<Result<Vec<_>>>()?;
    let (time, order_by) = order(clause, &schema, context, lines)?;
    let within_ms = clause.within.as_ref().map(|within| within_ms(within, lines)).transpose()?;

    let mut resolver = Resolver { names: &names, input: schema.clone(), time: time.clone(), functions, lines, navigations: Vec::new() };
    let mut symbols = Vec::with_capacity(names.symbols.len());
    for (index, name) in names.symbols.iter().enumerate() {
        let condition = match clause.define.iter().find(|(variable, _)| variable.value == *name) {
            Some((_, condition)) => resolver.condition(index, condition, context)?,
            None => None,
        };
        symbols.push(Symbol { name: name.clone(), input: 0, condition });
    }
    let always = |name: &Ident| symbols.iter().any(|s| s.name == name.value && s.condition.is_none());
    let pattern = pattern::pattern(clause, &names, &always, within_ms.is_some(), lines)?;
    let skip = pattern::skip(clause, &names, lines)?;

    let rows = match clause.rows {
        RowsOfMatch::One => RowsPerMatch::One,
        RowsOfMatch::All { unmatched } => RowsPerMatch::All { empty: true, unmatched },
    };
    let place = match clause.rows {
        RowsOfMatch::One => Place::Measure { all_rows: false, unmatched: false },
        RowsOfMatch::All { unmatched } => Place::Measure { all_rows: true, unmatched },
    };
    // One row has the partition's columns, all rows have those of the input.
    let mut output: Vec<(String, Expr)> = match rows {
        RowsPerMatch::One => partition_by.iter().filter_map(|e| Some((e.try_as_col()?.name.clone(), e.clone()))).collect(),
        RowsPerMatch::All { .. } => {
            schema.iter().map(|(q, f)| (f.name().clone(), Expr::Column(Column::new(q.cloned(), f.name())))).collect()
        }
    };
    for (name, measure) in &clause.measures {
        let value = resolver.expression(measure, place, context)?;
        if output.iter().any(|(other, _)| *other == name.value) {
            let error = SqlError::new(format!("MATCH_RECOGNIZE would have two columns named {}", name.value));
            return Err(fail(error.with_help("give the measure another name"), name.span));
        }
        output.push((name.value.clone(), value));
    }
    if let Some(name) = twice(&output) {
        let error = SqlError::new(format!("MATCH_RECOGNIZE would have two columns named {name}"));
        return Err(fail(
            error.with_help("choose and name the columns in a subquery: FROM (SELECT … FROM …) MATCH_RECOGNIZE (…)"),
            clause.span,
        ));
    }
    if output.is_empty() {
        let error = SqlError::new("MATCH_RECOGNIZE would have no columns");
        return Err(fail(error.with_help("write MEASURES LAST(A.price) AS price, behind ORDER BY"), clause.span));
    }
    let spec = PatternSpec {
        symbols,
        pattern,
        contiguity: Contiguity::Strict,
        every: true,
        skip,
        within_ms,
        rows,
        navigations: resolver.navigations,
        output,
        bounds: Bounds::default(),
    };
    let node = PatternNode::try_new(input, partition_by, time, order_by, spec)?;
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

/// A name that two columns have.
fn twice(output: &[(String, Expr)]) -> Option<&str> {
    let mut seen = HashSet::new();
    output.iter().map(|(name, _)| name.as_str()).find(|name| !seen.insert(*name))
}

/// A column that `part` names.
fn column(expr: &SqlExpr, part: &str, schema: &DFSchema, context: &mut dyn RelationPlannerContext, lines: &LineIndex<'_>) -> Result<Expr> {
    let planned = match expr {
        SqlExpr::Identifier(name) => super::window::column(schema, name, lines)?.0,
        other => context.sql_to_expr(other.clone(), schema)?,
    };
    match planned {
        Expr::Column(_) => Ok(planned),
        _ => Err(external(
            SqlError::new(format!("MATCH_RECOGNIZE: {part} takes columns, not {expr}"))
                .or_at(lines.span(expr.span()))
                .with_help("compute it before: FROM (SELECT …, … AS k FROM t) MATCH_RECOGNIZE (…)"),
        )),
    }
}

/// The time column, and what orders rows of the same time.
fn order(
    clause: &MatchClause,
    schema: &DFSchema,
    context: &mut dyn RelationPlannerContext,
    lines: &LineIndex<'_>,
) -> Result<(Expr, Vec<(Expr, bool)>)> {
    let mut columns = Vec::with_capacity(clause.order_by.len());
    for (expr, ascending) in &clause.order_by {
        columns.push((column(expr, "ORDER BY", schema, context, lines)?, *ascending));
    }
    let help = "write ORDER BY rt, where rt is the column of WATERMARK FOR";
    let Some((first, _)) = clause.order_by.first() else {
        let error = SqlError::new("MATCH_RECOGNIZE needs ORDER BY a time column").or_at(lines.span(clause.span));
        return Err(external(error.with_help(help)));
    };
    let (time, ascending) = columns.remove(0);
    let data_type = match &time {
        Expr::Column(column) => schema.field(schema.index_of_column(column)?).data_type().clone(),
        _ => DataType::Null,
    };
    let at = lines.span(first.span());
    if !matches!(data_type, DataType::Timestamp(TimeUnit::Millisecond, _)) {
        let error = SqlError::new(format!(
            "MATCH_RECOGNIZE: ORDER BY begins with a TIMESTAMP(3) or TIMESTAMP_LTZ(3) column, {first} is {}",
            flink_type(&data_type)
        ));
        return Err(external(error.or_at(at).with_help(help)));
    }
    if !ascending {
        let error = SqlError::new(format!("MATCH_RECOGNIZE: ORDER BY {first} must be ascending: rows come in order of time"));
        return Err(external(error.or_at(at).with_help("leave DESC out")));
    }
    Ok((time, columns))
}

/// The length of WITHIN.
fn within_ms(within: &SqlExpr, lines: &LineIndex<'_>) -> Result<i64> {
    let fail = |why: String| {
        external(SqlError::new(format!("WITHIN: {why}")).or_at(lines.span(within.span())).with_help("write WITHIN INTERVAL '10' SECOND"))
    };
    match interval_ms(within) {
        Ok(ms) if ms > 0 => Ok(ms),
        Ok(_) => Err(fail("must be at least a millisecond".into())),
        Err(why) => Err(fail(why)),
    }
}
