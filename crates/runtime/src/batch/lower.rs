//! Our logical nodes in terms of DataFusion's.

use std::sync::Arc;

use datafusion::datasource::provider_as_source;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, ScalarValue};
use datafusion_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion_expr::{
    Expr, ExprSchemable, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, ScalarUDF, TableScan, WindowFrame, WindowFrameBound,
    WindowFrameUnits, WindowFunctionDefinition, lit, when,
};
use tidemill_connect::filesystem::Pipes;
use tidemill_plan::catalog::RawTable;
use tidemill_plan::node::WINDOW_COLUMNS;
use tidemill_plan::temporal::TemporalJoinNode;
use tidemill_plan::{LookupJoinNode, WatermarkNode, WindowKind, WindowNode};

use super::table::{ConnectorTable, Reading, SourceMetrics};
use super::window_bound::{Bound, WindowBound};
use crate::JobError;

/// A plan without nodes of ours.
pub(super) fn lower(plan: LogicalPlan, metrics: &SourceMetrics, reading: Reading) -> Result<LogicalPlan, JobError> {
    let (mut failure, mut pipes) = (None, Pipes::default());
    let lowered = plan.transform_up_with_subqueries(|node| match step(&node, metrics, reading, &mut pipes) {
        Ok(Some(other)) => Ok(Transformed::yes(other)),
        Ok(None) => Ok(Transformed::no(node)),
        Err(e) => {
            failure.get_or_insert(e);
            Ok(Transformed::no(node))
        }
    })?;
    match failure {
        Some(e) => Err(e),
        None => Ok(lowered.data.recompute_schema()?),
    }
}

fn step(node: &LogicalPlan, metrics: &SourceMetrics, reading: Reading, pipes: &mut Pipes) -> Result<Option<LogicalPlan>, JobError> {
    match node {
        LogicalPlan::TableScan(scan) => {
            let Some(raw) = scan.source.downcast_ref::<RawTable>() else { return Ok(None) };
            let table = ConnectorTable::new(raw.table.clone(), metrics, reading)?;
            pipes.note(table.pipe())?;
            Ok(Some(LogicalPlan::TableScan(TableScan { source: provider_as_source(Arc::new(table)), ..scan.clone() })))
        }
        LogicalPlan::Extension(extension) => {
            if let Some(node) = extension.node.as_any().downcast_ref::<WatermarkNode>() {
                return Ok(Some(node.input.clone()));
            }
            if let Some(node) = extension.node.as_any().downcast_ref::<TemporalJoinNode>() {
                return Ok(Some(temporal(node)?));
            }
            if let Some(node) = extension.node.as_any().downcast_ref::<LookupJoinNode>() {
                return Ok(Some(looked_up(node, metrics, reading, pipes)?));
            }
            let Some(node) = extension.node.as_any().downcast_ref::<WindowNode>() else { return Ok(None) };
            Ok(Some(match node.kind {
                WindowKind::Session { gap } => session(node, gap)?,
                kind => windows(node, kind)?,
            }))
        }
        LogicalPlan::Join(join) => super::set_all::numbered(join),
        _ => Ok(None),
    }
}

fn columns(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().iter().map(|(q, f)| Expr::Column(Column::from((q, f)))).collect()
}

fn windows(node: &WindowNode, kind: WindowKind) -> Result<LogicalPlan, JobError> {
    let many = !matches!(kind, WindowKind::Tumble { .. });
    let mut expressions = columns(&node.input);
    for (name, bound) in WINDOW_COLUMNS.iter().zip([Bound::Start, Bound::End, Bound::Time]) {
        let udf = ScalarUDF::new_from_impl(WindowBound::new(kind, bound, many));
        expressions.push(udf.call(vec![node.time.clone()]).alias(*name));
    }
    let plan = LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(node.input.clone()))?);
    if !many {
        return Ok(plan);
    }
    let lists = WINDOW_COLUMNS.iter().map(|n| Column::from_name(*n)).collect();
    Ok(LogicalPlanBuilder::from(plan).unnest_columns_with_options(lists, Default::default())?.build()?)
}

fn over(
    function: Arc<datafusion_expr::AggregateUDF>,
    args: Vec<Expr>,
    partition_by: Vec<Expr>,
    order_by: Vec<Expr>,
    frame: WindowFrame,
) -> Expr {
    Expr::WindowFunction(Box::new(WindowFunction {
        fun: WindowFunctionDefinition::AggregateUDF(function),
        params: WindowFunctionParams {
            args,
            partition_by,
            order_by: order_by.into_iter().map(|e| e.sort(true, false)).collect(),
            window_frame: frame,
            filter: None,
            null_treatment: None,
            distinct: false,
        },
    }))
}

/// A version is valid from its time until that of the next one of its key.
fn temporal(node: &TemporalJoinNode) -> Result<LogicalPlan, JobError> {
    use datafusion::functions_aggregate::min_max::min_udaf;
    let next = || WindowFrameBound::Following(ScalarValue::UInt64(Some(1)));
    let frame = WindowFrame::new_bounds(WindowFrameUnits::Rows, next(), next());
    let until = over(min_udaf(), vec![node.version.clone()], node.key.clone(), vec![node.version.clone()], frame).alias("__until");
    let versions = LogicalPlanBuilder::from(node.right.clone()).window(vec![until])?.build()?;
    let until = Expr::Column(Column::from_name("__until"));
    let begun = node.version.clone().lt_eq(node.time.clone());
    let valid = begun.and(until.clone().is_null().or(node.time.clone().lt(until)));
    let joined = LogicalPlanBuilder::from(node.left.clone()).join_on(versions, node.join_type, [node.condition.clone().and(valid)])?;
    let schema = datafusion_expr::UserDefinedLogicalNodeCore::schema(node);
    let columns: Vec<Expr> = schema.iter().map(|(q, f)| Expr::Column(Column::from((q, f)))).collect();
    Ok(joined.project(columns)?.build()?)
}

/// A table that is asked for keys is read whole, and joined.
fn looked_up(node: &LookupJoinNode, metrics: &SourceMetrics, reading: Reading, pipes: &mut Pipes) -> Result<LogicalPlan, JobError> {
    let table = ConnectorTable::new(node.table.clone(), metrics, reading).map_err(|e| {
        JobError::usage(format!(
            "in batch mode a table that is looked up is read whole, and {} cannot be read ({e}); leave 'execution.runtime-mode' = 'batch' out",
            node.table.name
        ))
    })?;
    // No mode reads it twice.
    pipes.note(table.pipe())?;
    let schema = datafusion_expr::UserDefinedLogicalNodeCore::schema(node);
    let physical = node.table.physical_schema();
    let of_node = |index: usize| Expr::Column(Column::from(schema.qualified_field(node.width() + index)));
    let renamed = physical.fields().iter().enumerate().map(|(index, field)| {
        let (qualifier, shown) = schema.qualified_field(node.width() + index);
        Expr::Column(Column::new(Some(node.alias.clone()), field.name())).alias_qualified(qualifier.cloned(), shown.name())
    });
    let right = LogicalPlanBuilder::scan(node.alias.clone(), provider_as_source(Arc::new(table)), None)?.project(renamed)?.build()?;
    let equal = node.keys.iter().filter_map(|(key, column)| Some(key.clone().eq(of_node(physical.index_of(column).ok()?))));
    let kind = if node.left { JoinType::Left } else { JoinType::Inner };
    let joined = LogicalPlanBuilder::from(node.input.clone()).join_on(right, kind, equal.chain(node.residual.clone()))?;
    let columns: Vec<Expr> = schema.iter().map(|(q, f)| Expr::Column(Column::from((q, f)))).collect();
    Ok(joined.project(columns)?.build()?)
}

/// A session begins with a row before which there was silence for more than the gap; a session's
/// number is how many have begun; its bounds are those of its rows.
fn session(node: &WindowNode, gap: i64) -> Result<LogicalPlan, JobError> {
    use datafusion::functions_aggregate::{count::count_udaf, min_max::max_udaf, min_max::min_udaf};
    let input = node.input.clone();
    let original = columns(&input);
    let keys = node.partition_by.clone();
    let before = WindowFrame::new_bounds(
        WindowFrameUnits::Rows,
        WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
        WindowFrameBound::Preceding(ScalarValue::UInt64(Some(1))),
    );
    let so_far = WindowFrame::new_bounds(
        WindowFrameUnits::Rows,
        WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
        WindowFrameBound::CurrentRow,
    );
    let whole = WindowFrame::new_bounds(
        WindowFrameUnits::Rows,
        WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
        WindowFrameBound::Following(ScalarValue::UInt64(None)),
    );
    let interval = |ms: i64| lit(ScalarValue::new_interval_mdn(0, 0, ms * 1_000_000));
    let previous = over(max_udaf(), vec![node.time.clone()], keys.clone(), vec![node.time.clone()], before).alias("__previous");
    let plan = LogicalPlanBuilder::from(input).window(vec![previous])?.build()?;
    let previous = Expr::Column(Column::from_name("__previous"));
    let begins = when(node.time.clone().gt(previous.clone() + interval(gap)).or(previous.is_null()), lit(1i64)).end()?.alias("__begins");
    let plan = LogicalPlanBuilder::from(plan).project(original.iter().cloned().chain([begins]))?.build()?;
    let number = over(count_udaf(), vec![Expr::Column(Column::from_name("__begins"))], keys.clone(), vec![node.time.clone()], so_far)
        .alias("__session");
    let plan = LogicalPlanBuilder::from(plan).window(vec![number])?.build()?;
    let mut within = keys;
    within.push(Expr::Column(Column::from_name("__session")));
    let first = over(min_udaf(), vec![node.time.clone()], within.clone(), vec![], whole.clone()).alias("__first");
    let last = over(max_udaf(), vec![node.time.clone()], within, vec![], whole).alias("__last");
    let plan = LogicalPlanBuilder::from(plan).window(vec![first, last])?.build()?;
    let width = node.input.schema().fields().len();
    let schema = datafusion_expr::UserDefinedLogicalNodeCore::schema(node).clone();
    let (first, last) = (Expr::Column(Column::from_name("__first")), Expr::Column(Column::from_name("__last")));
    let bounds = [first, last.clone() + interval(gap), last + interval(gap - 1)];
    let mut expressions = original;
    for (i, bound) in bounds.into_iter().enumerate() {
        let to = schema.field(width + i).data_type();
        expressions.push(bound.cast_to(to, plan.schema().as_ref())?.alias(WINDOW_COLUMNS[i]));
    }
    Ok(LogicalPlanBuilder::from(plan).project(expressions)?.build()?)
}
