//! Texts as views. A source that has its texts in one piece anyway, as pages of Parquet and text that was read have them, need not
//! copy them into columns where only a few of them, or nothing but their lengths, are wanted: it gives the place of each. And a text
//! of up to 12 bytes stands in its view: where rows are grouped by such texts, two of them are compared like numbers.
//!
//! Below conditions and aggregates, that is. What is taken whole is copied once in any case, and what sorts, joins or keeps rows
//! would keep the pages, or all of the text, with them, so above that everything gets the texts it was planned for.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::{Aggregate, Expr, Filter, LogicalPlan, Projection, SubqueryAlias, TableScanBuilder, cast};
use datafusion_optimizer::analyzer::AnalyzerRule;
use datafusion_optimizer::analyzer::type_coercion::TypeCoercion;

use super::table::ConnectorTable;

/// A lowered plan that has texts as views wherever that pays.
///
/// # Errors
/// The plan does not hold together.
pub(super) fn with_views(plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
    let with = plan.transform_down_with_subqueries(|part| {
        // What cannot be planned with views is left as it is, and so is what cannot be planned at all: that is said later.
        let viewed = if pays(&part) { viewed(&part).ok().flatten() } else { None };
        // Which types it gives is known for sure when those of its parts are made to fit each other.
        let coerced = viewed.and_then(|viewed| TypeCoercion::new().analyze(viewed, config).ok());
        Ok(match coerced.and_then(|coerced| with_texts(coerced, &part).ok()) {
            Some(viewed) => Transformed::new(viewed, true, TreeNodeRecursion::Jump),
            None => Transformed::no(part),
        })
    })?;
    Ok(with.data)
}

/// Whether it is the first aggregate above a table, or a condition below the first.
fn pays(plan: &LogicalPlan) -> bool {
    let (mut conditions, mut aggregates, mut at) = (0, 0, plan);
    loop {
        at = match at {
            LogicalPlan::Filter(Filter { input, .. }) => {
                conditions += 1;
                input
            }
            LogicalPlan::Aggregate(Aggregate { input, .. }) => {
                aggregates += 1;
                input
            }
            LogicalPlan::Projection(Projection { input, .. }) | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => input,
            LogicalPlan::TableScan(_) => break,
            _ => return false,
        };
    }
    match plan {
        // What is above an aggregate has few rows.
        LogicalPlan::Aggregate(_) => aggregates == 1,
        _ => aggregates == 0 && conditions > 0,
    }
}

/// The same with views, if nothing but conditions, projections and aggregates lies between it and a table that gives them.
fn viewed(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    // What a query below or beside it refers to has the type it was planned with.
    if plan.expressions().iter().any(refers_outside) {
        return Ok(None);
    }
    Ok(match plan {
        LogicalPlan::TableScan(scan) => {
            let provider = source_as_provider(&scan.source)?;
            let table = provider.downcast_ref::<ConnectorTable>().and_then(ConnectorTable::with_views);
            let scanned = |table| {
                TableScanBuilder::new(scan.table_name.clone(), provider_as_source(Arc::new(table)))
                    .with_projection(scan.projection.clone())
                    .with_filters(scan.filters.clone())
                    .with_fetch(scan.fetch)
                    .build()
            };
            table.map(scanned).transpose()?.map(LogicalPlan::TableScan)
        }
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) => {
            let named = |input| SubqueryAlias::try_new(Arc::new(input), alias.clone());
            viewed(input)?.map(named).transpose()?.map(LogicalPlan::SubqueryAlias)
        }
        LogicalPlan::Projection(Projection { input, expr, .. }) => {
            let projected = |input| Projection::try_new(expr.clone(), Arc::new(input));
            viewed(input)?.map(projected).transpose()?.map(LogicalPlan::Projection)
        }
        LogicalPlan::Filter(Filter { input, predicate, .. }) => {
            let filtered = |input| Filter::try_new(predicate.clone(), Arc::new(input));
            viewed(input)?.map(filtered).transpose()?.map(LogicalPlan::Filter)
        }
        // Those of several groupings have columns that appear when they are resolved, and what is gathered keeps the pages.
        LogicalPlan::Aggregate(Aggregate { group_expr, aggr_expr, .. })
            if group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_)))
                || aggr_expr.iter().any(|aggregate| gathers(aggregate, !group_expr.is_empty())) =>
        {
            None
        }
        LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, .. }) => {
            let aggregated = |input| Aggregate::try_new(Arc::new(input), group_expr.clone(), aggr_expr.clone());
            viewed(input)?.map(aggregated).transpose()?.map(LogicalPlan::Aggregate)
        }
        _ => None,
    })
}

/// Whether it keeps many values: those of an array, or those that differ, of which each of the groups has some.
fn gathers(aggregate: &Expr, grouped: bool) -> bool {
    let found = aggregate.exists(|part| {
        Ok(matches!(part, Expr::AggregateFunction(one) if one.func.name() == "array_agg" || (grouped && one.params.distinct)))
    });
    found.expect("the condition cannot fail")
}

fn refers_outside(expression: &Expr) -> bool {
    let found = expression.exists(|part| {
        Ok(matches!(
            part,
            Expr::OuterReferenceColumn(..) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)
        ))
    });
    found.expect("the condition cannot fail")
}

/// What a part gives, under the names that it had, with texts for views.
fn with_texts(viewed: LogicalPlan, part: &LogicalPlan) -> Result<LogicalPlan> {
    if !viewed.schema().fields().iter().any(|field| has_views(field.data_type())) {
        return Ok(viewed);
    }
    // A row or a map of views would have to be made anew, value by value.
    if viewed.schema().fields().iter().any(|field| has_views(&texts(field.data_type()))) {
        return plan_err!("views are within rows or maps");
    }
    let columns = part.schema().iter().zip(viewed.schema().fields()).map(|((qualifier, field), now)| {
        let (column, texts) = (Expr::Column(Column::from((qualifier, field))), texts(now.data_type()));
        match texts == *now.data_type() {
            true => column,
            false => cast(column, texts).alias_qualified(qualifier.cloned(), field.name()),
        }
    });
    Ok(LogicalPlan::Projection(Projection::try_new(columns.collect(), Arc::new(viewed))?))
}

fn has_views(of: &DataType) -> bool {
    match of {
        DataType::Utf8View => true,
        DataType::Struct(fields) => fields.iter().any(|field| has_views(field.data_type())),
        DataType::List(inner) | DataType::LargeList(inner) | DataType::FixedSizeList(inner, _) | DataType::Map(inner, _) => {
            has_views(inner.data_type())
        }
        _ => false,
    }
}

/// The type with texts for views; in lists, too, as aggregates make them.
fn texts(of: &DataType) -> DataType {
    match of {
        DataType::Utf8View => DataType::Utf8,
        DataType::List(element) => DataType::List(Arc::new(element.as_ref().clone().with_data_type(texts(element.data_type())))),
        other => other.clone(),
    }
}
