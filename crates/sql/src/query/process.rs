//! User functions: what `CREATE FUNCTION` declares, and calls of functions of tables in `FROM`. Calls of
//! functions of values are planned as DataFusion plans any, and made nodes of afterwards
//! (`tidemill_plan::process::extract`).

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion_common::{DataFusionError, Result, plan_err};
use datafusion_expr::planner::RelationPlannerContext;
use datafusion_expr::{Expr, Extension, LogicalPlan};
use sqlparser::ast::{Spanned, TableFactor};
use tidemill_plan::ProcessTableNode;
use tidemill_plan::process::{Body, Columns, Kind, first_call, misplaced};

use super::catalog::{listed, nearest, plain_name};
use super::functions::Functions;
use super::window::{column, external};
use super::{Planner, table_factor};
use crate::ast::{CreateFunction, FunctionReturns, TableArg, TableCall};
use crate::diagnostic::{LineIndex, SqlError};
use crate::types::flink_type;

/// Declares a function among `functions`.
///
/// # Errors
/// There is one of its name.
pub(crate) fn create(functions: &mut Arc<Functions>, planner: &Planner, create: &CreateFunction) -> std::result::Result<(), SqlError> {
    let lines = planner.lines();
    let name = plain_name(&create.name, &lines)?;
    if create.if_not_exists && functions.user(&name).is_some() {
        return Ok(());
    }
    let kind = match &create.returns {
        FunctionReturns::Value(returns) => Kind::Value {
            parameters: create.parameters.iter().map(|(n, t)| (n.value.clone(), t.clone())).collect(),
            returns: returns.clone(),
        },
        FunctionReturns::Table(columns) => {
            Kind::Table { columns: Columns::Fixed(columns.iter().map(|(n, t)| Field::new(&n.value, t.clone(), true)).collect()) }
        }
    };
    let options = create.options.iter().map(|o| (o.key.clone(), o.value.clone())).collect();
    let body = Body::Command { command: create.command.clone(), options };
    let place = lines.span(create.name.span());
    Arc::make_mut(functions).declare(&name, kind, body).map_err(|e| e.or_at(place))
}

/// Refuses a call of a function of a process in an expression of a table's declaration.
pub(super) fn no_call(expression: Expr) -> Result<Expr> {
    match first_call(&expression) {
        Some(function) => plan_err!("{}", misplaced(&function.name, "in the declaration of a table")),
        None => Ok(expression),
    }
}

/// Plans a call in `FROM`.
pub(super) fn table(
    call: TableCall,
    context: &mut dyn RelationPlannerContext,
    functions: &Functions,
    lines: &LineIndex<'_>,
) -> Result<LogicalPlan> {
    let place = lines.span(call.name.span());
    let name = plain_name(&call.name, lines).map_err(external)?;
    let function = match functions.user(&name) {
        Some(function) if matches!(function.kind, Kind::Table { .. }) => function.clone(),
        Some(_) => {
            let error = SqlError::new(format!("function {name} gives a value, not a table")).or_at(place);
            return Err(external(error.with_help(format!("call it in SELECT: {name}(column)"))));
        }
        None => return Err(external(unknown(&name, functions).or_at(place))),
    };
    let input = context.plan(match call.input {
        TableArg::Name(name) => table_factor(name),
        TableArg::Query(subquery) => TableFactor::Derived { lateral: false, subquery, alias: None, sample: None },
    })?;
    let schema = input.schema().clone();
    let keys = call.partition_by.iter().map(|key| column(&schema, key, lines).map(|(e, _)| e)).collect::<Result<Vec<_>>>()?;
    let time = match &call.on_time {
        None => None,
        Some(ident) => {
            let (time, data_type) = column(&schema, ident, lines)?;
            if !matches!(data_type, DataType::Timestamp(TimeUnit::Millisecond, _)) {
                return Err(external(
                    SqlError::new(format!(
                        "{name}: on_time takes a TIMESTAMP(3) or TIMESTAMP_LTZ(3), {} is a {}",
                        ident.value,
                        flink_type(&data_type)
                    ))
                    .or_at(lines.span(ident.span))
                    .with_help("declare it so and give it a WATERMARK"),
                ));
            }
            Some(time)
        }
    };
    let failed = |e: DataFusionError| external(SqlError::new(super::error::message(&e)).or_at(call.span));
    let node = ProcessTableNode::try_new(input, function, keys, time, call.uid).map_err(failed)?;
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

/// The error for a function of tables that is not there.
fn unknown(name: &str, functions: &Functions) -> SqlError {
    let error = SqlError::new(format!("there is no function of tables {name}"));
    let known: Vec<&str> = functions.user_tables().collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => error.with_help(format!("did you mean {near}?")),
        None if known.is_empty() => error.with_help(
            "there are TUMBLE, HOP, CUMULATE and SESSION, and those that CREATE FUNCTION … RETURNS TABLE (…) LANGUAGE PROCESS AS '…' makes",
        ),
        None => error.with_help(listed(known.into_iter())),
    }
}
