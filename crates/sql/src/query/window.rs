//! What stands in `FROM` and DataFusion does not plan: the window functions, `MATCH_RECOGNIZE`, files in
//! quotes, tables with `OPTIONS` hints.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::{Column, DFSchema, DataFusionError, Result, TableReference};
use datafusion_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion_expr::{Expr, Extension, LogicalPlan, LogicalPlanBuilder};
use sqlparser::ast::{Expr as SqlExpr, Ident, ObjectName, Spanned, TableFactor};
use tidemill_plan::lookup::is_processing_time;
use tidemill_plan::node::WINDOW_COLUMNS;
use tidemill_plan::{WindowKind, WindowNode};

use super::catalog::{Relation, last_part, plain_name};
use super::context::{Relations, table_source};
use super::error::column_help;
use super::file_names::FileNames;
use super::functions::Functions;
use super::hints::Hints;
use super::interval::interval_ms;
use super::{match_recognize, process, table_factor, with_options};
use crate::ast::{self, TableArg, WindowCall};
use crate::diagnostic::{LineIndex, Span, SqlError};
use crate::parse::match_recognize::match_clause;
use crate::parse::{file_call, table_call, window_call};
use crate::session::FileRequest;
use crate::types::flink_type;

/// Plans relations in the place of DataFusion.
pub(crate) struct FromPlanner {
    pub relations: Relations,
    pub hints: Arc<Hints>,
    pub functions: Arc<Functions>,
    pub script: Arc<str>,
    pub names: FileNames,
}

impl fmt::Debug for FromPlanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromPlanner")
    }
}

pub(super) fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl RelationPlanner for FromPlanner {
    fn plan_relation(&self, relation: TableFactor, context: &mut dyn RelationPlannerContext) -> Result<RelationPlanning> {
        let lines = LineIndex::new(&self.script);
        if let Some(call) = window_call(&relation, &lines) {
            let alias = match relation {
                TableFactor::Table { alias, .. } | TableFactor::TableFunction { alias, .. } => alias,
                _ => None,
            };
            let plan = self.window(call.map_err(external)?, &lines, context)?;
            return Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))));
        }
        if let Some(clause) = match_clause(&relation) {
            let alias = if let TableFactor::TableFunction { alias, .. } = relation { alias } else { None };
            let plan = match_recognize::plan(&clause, context, &self.functions, &lines)?;
            return Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))));
        }
        if let Some(call) = table_call(&relation, &lines) {
            let alias = match relation {
                TableFactor::Table { alias, .. } | TableFactor::TableFunction { alias, .. } => alias,
                _ => None,
            };
            let plan = process::table(call.map_err(external)?, context, &self.functions, &lines)?;
            return Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))));
        }
        let TableFactor::Table { name, alias, version, .. } = &relation else { return Ok(RelationPlanning::Original(Box::new(relation))) };
        let place = name_place(name, &lines);
        if let Some(request) = file_call(&relation, &lines) {
            let source = request.and_then(|request| self.relations.files(&request, None)).map_err(|e| external(e.or_at(place)))?;
            let plan = LogicalPlanBuilder::scan(TableReference::bare(last_part(name)), source, None)?.build()?;
            return Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))));
        }
        if version.is_some() {
            return Err(external(
                SqlError::new("a table can be read as of a time only by JOIN t FOR SYSTEM_TIME AS OF a.rt")
                    .or_at(lines.span(relation.span()))
                    .with_help("join with a range of time: a.key = b.key AND a.rt BETWEEN b.rt AND b.rt + INTERVAL '1' HOUR"),
            ));
        }
        let first = name.0.first().and_then(|p| p.as_ident());
        let source = if let ([_], Some(Ident { value, quote_style: Some('\''), .. })) = (name.0.as_slice(), first) {
            self.relations.files(&FileRequest::path(value), first.and_then(|i| self.hints.options_for(i)))
        } else if let Some(options) = first.and_then(|i| self.hints.options_for(i)) {
            let found = plain_name(name, &lines).map_err(external)?;
            match self.relations.catalog.get(&found) {
                Some(Relation::Table { table, .. }) => table_source(&with_options(table, Some(options))),
                Some(Relation::View(_)) => Err(SqlError::new(format!("{found} is a view: it has no options"))
                    .with_help("put the hint behind the table in the view's query")),
                None => Err(self.relations.catalog.unknown(&found)),
            }
        } else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let source = source.map_err(|e| external(e.or_at(place)))?;
        // Of a column that is called as the file, `t.x` is a field of it.
        let called = Some(self.names.called(name)).filter(|called| source.schema().index_of(called).is_err());
        let called = TableReference::bare(called.unwrap_or_else(|| last_part(name)));
        let plan = LogicalPlanBuilder::scan(called, source, None)?.build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
    }
}

/// The place of a name. A name in single quotes has none in the tree: it is looked for in the text.
pub(super) fn name_place(name: &ObjectName, lines: &LineIndex<'_>) -> Option<Span> {
    lines.span(name.span()).or_else(|| {
        let text = format!("'{}'", last_part(name).replace('\'', "''"));
        lines.text().find(&text).map(|at| Span::new(at, at + text.len()))
    })
}

impl FromPlanner {
    fn window(&self, call: WindowCall, lines: &LineIndex<'_>, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
        let function = call.kind.name();
        let kind = window_kind(&call, lines).map_err(|e| external(e.or_at(call.span)))?;
        let input = context.plan(match call.input {
            TableArg::Name(name) => table_factor(name),
            TableArg::Query(subquery) => TableFactor::Derived { lateral: false, subquery, alias: None, sample: None },
        })?;
        let schema = input.schema().clone();
        for name in WINDOW_COLUMNS {
            if !schema.qualified_fields_with_unqualified_name(name).is_empty() {
                return Err(external(
                    SqlError::new(format!("{function}: its input has a column {name} already"))
                        .or_at(call.span)
                        .with_help(format!("rename it in a subquery: {function}(TABLE (SELECT {name} AS … FROM …), …)")),
                ));
            }
        }
        let (time, data_type) = column(&schema, &call.time_column, lines)?;
        if is_processing_time(&time, &input) {
            return Err(external(
                SqlError::new(format!("{function}: {} is processing time, and windows are over event time", call.time_column.value))
                    .or_at(lines.span(call.time_column.span))
                    .with_help("the time at which a row arrives can be its event time: rt AS CURRENT_TIMESTAMP, WATERMARK FOR rt AS rt"),
            ));
        }
        if !matches!(data_type, DataType::Timestamp(TimeUnit::Millisecond, _)) {
            let shown = flink_type(&data_type);
            let error = SqlError::new(format!(
                "{function}: the time column {} must be a TIMESTAMP(3) or TIMESTAMP_LTZ(3), it is {shown}",
                call.time_column.value
            ))
            .or_at(lines.span(call.time_column.span));
            let error = match data_type {
                DataType::Timestamp(_, None) => error.with_help("declare it TIMESTAMP(3), or CAST it in a subquery"),
                DataType::Timestamp(..) => error.with_help("declare it TIMESTAMP_LTZ(3), or CAST it in a subquery"),
                DataType::Int64 | DataType::Int32 => error.with_help("make a time of it in the table: rt AS TO_TIMESTAMP_LTZ(column, 3)"),
                DataType::Utf8 => error.with_help("make a time of it in the table: rt AS TO_TIMESTAMP(column)"),
                _ => error,
            };
            return Err(external(error));
        }
        let keys = call.partition_by.iter().map(|key| column(&schema, key, lines).map(|(expr, _)| expr)).collect::<Result<Vec<_>>>()?;
        let node = WindowNode::try_new(input, kind, time, keys)?;
        Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
    }
}

/// The column of a name, and its type.
pub(super) fn column(schema: &DFSchema, name: &Ident, lines: &LineIndex<'_>) -> Result<(Expr, DataType)> {
    match schema.qualified_fields_with_unqualified_name(&name.value).as_slice() {
        [(qualifier, field)] => Ok((Expr::Column(Column::new(qualifier.cloned(), field.name())), field.data_type().clone())),
        [] => {
            let error = SqlError::new(format!("there is no column {}", name.value)).or_at(lines.span(name.span));
            Err(external(column_help(error, &name.value, schema.fields().iter().map(|f| f.name().as_str()))))
        }
        _ => Err(external(SqlError::new(format!("there are several columns {}", name.value)).or_at(lines.span(name.span)))),
    }
}

/// The windows of a call, in milliseconds.
fn window_kind(call: &WindowCall, lines: &LineIndex<'_>) -> Result<WindowKind, SqlError> {
    let function = call.kind.name();
    let at = |expr: &SqlExpr| lines.span(expr.span());
    let signed = |what: &str, expr: &Option<SqlExpr>| match expr {
        None => Ok(0),
        Some(expr) => interval_ms(expr).map_err(|e| SqlError::new(format!("{function}: the {what}: {e}")).or_at(at(expr))),
    };
    let length = |what: &str, expr: &Option<SqlExpr>| match signed(what, expr)? {
        ms if ms > 0 => Ok(ms),
        _ => Err(SqlError::new(format!("{function}: the {what} must be at least a millisecond")).or_at(expr.as_ref().and_then(at))),
    };
    let multiple = |size: i64, part: i64, what: &str| {
        if size % part == 0 {
            return Ok(());
        }
        let error = SqlError::new(format!(
            "{function}: the size of the windows ({}) must be a multiple of the {what} ({})",
            shown(size),
            shown(part)
        ));
        let error = error.or_at(call.intervals.size.as_ref().and_then(at));
        Err(if part % size == 0 { error.with_help(format!("the {what} stands before the size")) } else { error })
    };
    let i = &call.intervals;
    let offset = signed("offset", &i.offset)?;
    Ok(match call.kind {
        ast::WindowKind::Tumble => WindowKind::Tumble { size: length("size", &i.size)?, offset },
        ast::WindowKind::Hop => {
            let (slide, size) = (length("slide", &i.slide)?, length("size", &i.size)?);
            multiple(size, slide, "slide")?;
            WindowKind::Hop { slide, size, offset }
        }
        ast::WindowKind::Cumulate => {
            let (step, size) = (length("step", &i.step)?, length("size", &i.size)?);
            multiple(size, step, "step")?;
            WindowKind::Cumulate { step, size, offset }
        }
        ast::WindowKind::Session => WindowKind::Session { gap: length("gap", &i.gap)? },
    })
}

/// A length for a message.
fn shown(ms: i64) -> String {
    for (unit, length) in [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)] {
        if ms % length == 0 {
            return format!("{} {unit}", ms / length);
        }
    }
    format!("{ms} ms")
}
