//! Aggregate calls: from logical expressions to what the operators take.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::expr::{AggregateFunction, NullTreatment, WindowFunction, WindowFunctionParams};
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{Expr as Logical, ExprSchemable, WindowFunctionDefinition};
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use tidemill_operator::aggregate::AggregateCall;
use tidemill_operator::map::Expr;
use tidemill_operator::over::lead::LeadCall;
use tidemill_operator::over::{Numbering, OverCall, ValueCall, ValueFunction};
use tidemill_plan::narrow::narrow_comparisons;

use crate::JobError;

/// Binds an expression to the columns of `schema`.
pub(super) fn bind(expression: &Logical, schema: &DFSchema) -> Result<Expr, JobError> {
    let expression = narrow_comparisons(expression.clone(), schema)?;
    Ok(datafusion_physical_expr::create_physical_expr(&expression, schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())?)
}

pub(super) fn bind_all(expressions: &[Logical], schema: &DFSchema) -> Result<Vec<Expr>, JobError> {
    expressions.iter().map(|e| bind(e, schema)).collect()
}

fn strip(expression: &Logical) -> &Logical {
    match expression {
        Logical::Alias(alias) => strip(&alias.expr),
        other => other,
    }
}

/// The call that an expression of an `Aggregate` node is.
pub(super) fn call(expression: &Logical, schema: &DFSchema) -> Result<AggregateCall, JobError> {
    let Logical::AggregateFunction(AggregateFunction { func, params }) = strip(expression) else {
        return Err(JobError::failed(format!("internal error: {expression} is not an aggregate function")));
    };
    if func.name().starts_with("approx_percentile") || func.name() == "approx_median" {
        let name = func.name().to_uppercase();
        let message = format!(
            "{name} is not supported in a stream, because its result depends on how rows were divided into blocks; PERCENTILE(x, p) is exact"
        );
        return Err(JobError::refused([name], message));
    }
    // WITHIN GROUP (ORDER BY x) names the argument of this one, its order changes nothing.
    let of_set = func.name() == "percentile_cont" && params.order_by.iter().all(|by| by.asc);
    if !params.order_by.is_empty() && !of_set {
        let message = format!(
            "{expression}: ORDER BY inside an aggregate is not supported in a stream; run the job with SET 'execution.runtime-mode' = 'batch'"
        );
        return Err(JobError::refused(["WITHIN GROUP", func.name(), "ORDER BY"], message));
    }
    build(func, &params.args, params.distinct, params.filter.as_deref(), params.null_treatment, expression, schema)
}

/// A window function over rows.
pub(super) enum WindowCall {
    /// Of rows before.
    Over(OverCall),
    /// Of rows after.
    Lead(LeadCall),
}

/// The call that a window function over rows is; `output` is its type.
pub(super) fn window_call(
    function: &WindowFunction,
    expression: &Logical,
    schema: &DFSchema,
    output: &DataType,
) -> Result<WindowCall, JobError> {
    let WindowFunctionParams { args, filter, distinct, null_treatment, .. } = &function.params;
    let ignore_nulls = *null_treatment == Some(NullTreatment::IgnoreNulls);
    if let WindowFunctionDefinition::AggregateUDF(func) = &function.fun {
        let call = build(func, args, *distinct, filter.as_deref(), *null_treatment, expression, schema)?;
        return Ok(WindowCall::Over(OverCall::Aggregate(call)));
    }
    let name = function.fun.name().to_lowercase();
    let upper = name.to_uppercase();
    let refused = |message: String| JobError::refused([upper.as_str()], message);
    let numbering = match name.as_str() {
        "row_number" => Some(Numbering::RowNumber),
        "rank" => Some(Numbering::Rank),
        "dense_rank" => Some(Numbering::DenseRank),
        _ => None,
    };
    if let Some(function) = numbering {
        return Ok(WindowCall::Over(OverCall::Number { function, data_type: output.clone() }));
    }
    if !matches!(name.as_str(), "lag" | "lead" | "first_value" | "last_value" | "nth_value") {
        return Err(refused(format!(
            "{upper} OVER is not supported in a stream, because it depends on rows that are yet to come; ROW_NUMBER, RANK, DENSE_RANK, LAG, LEAD, FIRST_VALUE, LAST_VALUE, NTH_VALUE and the aggregates are, and SET 'execution.runtime-mode' = 'batch' runs it on bounded input"
        )));
    }
    let Some(first) = args.first() else { return Err(refused(format!("{upper} takes a value"))) };
    let argument = bind(first, schema)?;
    let value = |function: ValueFunction| {
        Ok(WindowCall::Over(OverCall::Value(ValueCall { function, argument: argument.clone(), data_type: output.clone(), ignore_nulls })))
    };
    match name.as_str() {
        "first_value" => value(ValueFunction::First),
        "last_value" => value(ValueFunction::Last),
        "nth_value" => match args.get(1).map(whole_number) {
            Some(Some(n)) if n > 0 => value(ValueFunction::Nth(n as usize - 1)),
            _ => Err(refused("the second argument of NTH_VALUE must be a whole number from 1 on".into())),
        },
        _ => {
            let offset = match args.get(1) {
                None => 1,
                Some(offset) => {
                    whole_number(offset).ok_or_else(|| refused(format!("the second argument of {upper} must be a whole number")))?
                }
            };
            let default = match args.get(2) {
                None => None,
                Some(Logical::Literal(value, _)) if value.is_null() => None,
                Some(Logical::Literal(value, _)) => {
                    let wrong = || refused(format!("the third argument of {upper}, '{value}', is not of the type of the first"));
                    Some(value.cast_to(output).map_err(|_| wrong())?)
                }
                Some(other) => {
                    return Err(refused(format!(
                        "{other}: the third argument of {upper} must be a constant; COALESCE({upper}(…) OVER …, {other}) gives another value"
                    )));
                }
            };
            // LAG by a negative number looks ahead.
            let back = if name == "lag" { offset } else { -offset };
            if back >= 0 {
                return value(ValueFunction::Lag { offset: back as usize, default });
            }
            if ignore_nulls {
                return Err(refused(format!("{upper}: IGNORE NULLS is not supported with LEAD in a stream; LAG … IGNORE NULLS is")));
            }
            let offset = usize::try_from(back.unsigned_abs()).unwrap_or(usize::MAX);
            Ok(WindowCall::Lead(LeadCall { offset, argument, data_type: output.clone(), default }))
        }
    }
}

/// A constant whole number.
fn whole_number(expression: &Logical) -> Option<i64> {
    match strip(expression) {
        Logical::Literal(value, _) if value.data_type().is_integer() => match value.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(number)) => number.filter(|n| *n != i64::MIN),
            _ => None,
        },
        Logical::Negative(inner) => whole_number(inner).map(|n| -n),
        Logical::Cast(cast) => whole_number(&cast.expr),
        _ => None,
    }
}

fn build(
    func: &Arc<datafusion_expr::AggregateUDF>,
    args: &[Logical],
    distinct: bool,
    filter: Option<&Logical>,
    null_treatment: Option<NullTreatment>,
    expression: &Logical,
    schema: &DFSchema,
) -> Result<AggregateCall, JobError> {
    let bound = bind_all(args, schema)?;
    let argument_types = args.iter().map(|a| a.get_type(schema)).collect::<Result<Vec<_>, _>>()?;
    let arrow = Arc::new(schema.as_arrow().clone());
    // DISTINCT is the operators' own matter: they tell the function of a value once.
    let mut builder = AggregateExprBuilder::new(func.clone(), bound.clone()).schema(arrow).alias(expression.schema_name().to_string());
    if null_treatment == Some(NullTreatment::IgnoreNulls) {
        builder = builder.ignore_nulls();
    }
    let function = Arc::new(builder.build()?);
    let name = func.name().to_lowercase();
    // COUNT(*) arrives as COUNT(1).
    let counts_rows =
        name == "count" && !distinct && matches!(args, [Logical::Literal(value, _)] if *value != ScalarValue::Null && !value.is_null());
    let output = function.field();
    Ok(AggregateCall {
        function,
        name,
        arguments: if counts_rows { Vec::new() } else { bound },
        argument_types: if counts_rows { Vec::new() } else { argument_types },
        filter: filter.map(|f| bind(f, schema)).transpose()?,
        distinct,
        output,
    })
}
