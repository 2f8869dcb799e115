//! Aggregate calls: from logical expressions to what the operators take.

use std::sync::Arc;

use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::expr::{AggregateFunction, NullTreatment, WindowFunction, WindowFunctionParams};
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{Expr as Logical, ExprSchemable, WindowFunctionDefinition};
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use tidemill_operator::aggregate::AggregateCall;
use tidemill_operator::map::Expr;
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
    if !params.order_by.is_empty() {
        return Err(JobError::usage(format!(
            "{expression}: ORDER BY inside an aggregate is not supported in a stream; run the job with SET 'execution.runtime-mode' = 'batch'"
        )));
    }
    build(func, &params.args, params.distinct, params.filter.as_deref(), params.null_treatment, expression, schema)
}

/// The call that a window function over rows is.
pub(super) fn window_call(function: &WindowFunction, expression: &Logical, schema: &DFSchema) -> Result<AggregateCall, JobError> {
    let WindowFunctionDefinition::AggregateUDF(func) = &function.fun else {
        return Err(JobError::usage(format!(
            "{} OVER is not supported in a stream yet; the aggregates COUNT, SUM, AVG, MIN, MAX are, and SET 'execution.runtime-mode' = 'batch' runs the rest on bounded input",
            function.fun.name().to_uppercase()
        )));
    };
    let WindowFunctionParams { args, filter, distinct, null_treatment, .. } = &function.params;
    build(func, args, *distinct, filter.as_deref(), *null_treatment, expression, schema)
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
    let mut builder = AggregateExprBuilder::new(func.clone(), bound.clone())
        .schema(arrow)
        .alias(expression.schema_name().to_string())
        .with_distinct(distinct);
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
