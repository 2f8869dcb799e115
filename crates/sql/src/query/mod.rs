//! Planning: from the statements' trees to DataFusion's logical plans, with Flink's meaning.
//!
//! The way of a query: [`rewrite_sql`] turns what Flink writes differently into what DataFusion
//! knows (with [`legacy_window`] for `GROUP BY TUMBLE(…)`, [`interval`] for intervals and [`cast_names`] for
//! casts that DataFusion would name alike); DataFusion plans it against [`context`], which resolves names
//! ([`catalog`], [`functions`], [`types`]) and calls [`window`] for what stands in `FROM` ([`match_recognize`] for
//! patterns); [`rewrite_plan`] gives casts and averages Flink's meaning, [`unnest`] makes plain plans of
//! `CROSS JOIN UNNEST`, [`temporal`] sees to `FOR SYSTEM_TIME AS OF` before and after, with [`lookup`] for processing time.
//! Errors come out through [`error`]. Tables and sinks: [`create`], [`like`], [`insert`], [`show`]; [`union`] puts files together.

mod cast_names;
pub(crate) mod catalog;
pub(crate) mod context;
pub(crate) mod create;
pub(crate) mod error;
mod file_names;
pub(crate) mod functions;
mod grouping;
pub(crate) mod hints;
pub(crate) mod insert;
pub(crate) mod interval;
pub(crate) mod legacy_window;
pub(crate) mod like;
mod lookup;
pub(crate) mod match_recognize;
pub(crate) mod process;
pub(crate) mod rewrite_plan;
pub(crate) mod rewrite_sql;
pub(crate) mod show;
mod sort_columns;
pub(crate) mod temporal;
#[cfg(test)]
mod tests;
pub(crate) mod types;
mod union;
pub(crate) mod unnest;
pub(crate) mod window;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::config::ConfigOptions;
use datafusion_common::{DFSchema, DataFusionError};
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion_optimizer::analyzer::Analyzer;
use datafusion_optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion_sql::planner::{NullOrdering, ParserOptions, PlannerContext, SqlToRel};
use sqlparser::ast::{Expr as SqlExpr, ObjectName, Query, Statement as SqlStatement, TableFactor};
use tidemill_plan::Table;

use crate::diagnostic::{LineIndex, Span, SqlError};
use crate::session::{FileRequest, LookupResolver, Session};
use catalog::{Catalog, Files};
use context::Context;
use file_names::FileNames;
use functions::Functions;
use hints::Hints;

/// The configuration that plans are made with.
pub(crate) fn config() -> ConfigOptions {
    let mut config = ConfigOptions::new();
    let sql = &mut config.sql_parser;
    sql.enable_ident_normalization = false;
    sql.parse_float_as_decimal = false;
    sql.map_string_types_to_utf8view = false;
    sql.collect_spans = true;
    sql.default_null_ordering = "nulls_min".into();
    config
}

/// Names are case-sensitive; `2.5` is a DOUBLE (in Flink a DECIMAL); NULL is the smallest value of a
/// sort.
fn parser_options() -> ParserOptions {
    ParserOptions::new()
        .with_enable_ident_normalization(false)
        .with_parse_float_as_decimal(false)
        .with_map_string_types_to_utf8view(false)
        .with_collect_spans(true)
        .with_default_null_ordering(NullOrdering::NullsMin)
}

/// Plans the parts of one statement.
pub(crate) struct Planner {
    pub catalog: Arc<Catalog>,
    pub functions: Arc<Functions>,
    pub hints: Arc<Hints>,
    script: Arc<str>,
    config: Arc<ConfigOptions>,
    files: Arc<Files>,
    lookups: Option<LookupResolver>,
}

impl Planner {
    /// For one statement of a session.
    pub fn new(session: &Session, hints: Arc<Hints>) -> Self {
        Planner {
            catalog: session.catalog.clone(),
            functions: session.functions.clone(),
            hints,
            script: session.script.clone(),
            config: session.config.clone(),
            files: Arc::new(Files::new(session.files.clone())),
            lookups: session.lookups.clone(),
        }
    }

    /// Positions in the script.
    pub fn lines(&self) -> LineIndex<'_> {
        LineIndex::new(&self.script)
    }

    fn context(&self, names: FileNames) -> Context {
        Context::new(
            self.catalog.clone(),
            self.functions.clone(),
            self.config.clone(),
            self.files.clone(),
            self.hints.clone(),
            self.script.clone(),
            names,
        )
    }

    /// The plan of a query. `span` is where errors point that know no better place.
    pub fn query(&self, query: &Query, span: Span) -> Result<LogicalPlan, SqlError> {
        let lines = self.lines();
        let mut rewritten = Box::new(query.clone());
        let names = FileNames::of(query);
        rewrite_sql::query(&mut rewritten, &lines, &self.functions, &self.hints, &names).map_err(|e| e.or_at(Some(span)))?;
        let context = self.context(names);
        let lookups = lookup::Context { functions: &self.functions, hints: &self.hints, resolver: self.lookups.as_ref() };
        let planned = SqlToRel::new_with_options(&context, parser_options())
            .sql_statement_to_plan(SqlStatement::Query(rewritten))
            .and_then(sort_columns::in_order)
            .and_then(|plan| temporal::plan(plan, &lookups))
            .and_then(|plan| rewrite_plan::plan(plan, &self.functions))
            .and_then(|plan| self.check_types(plan))
            .and_then(tidemill_plan::process::extract::extract);
        planned.map_err(|e| error::sql_error(&e, &lines, &self.functions, &error::Words::of_query(query)).or_at(Some(span)))
    }

    /// Coerces the types of a plan to see whether that can be done: then errors point at the text. The
    /// plan itself stays as it is.
    fn check_types(&self, plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
        Analyzer::with_rules(vec![Arc::new(TypeCoercion::new())]).execute_and_check(plan.clone(), &self.config, |_, _| {})?;
        Ok(plan)
    }

    /// The plan of `SELECT * FROM name`.
    pub fn whole_table(&self, name: &ObjectName, span: Span) -> Result<LogicalPlan, SqlError> {
        let lines = self.lines();
        let context = self.context(FileNames::default());
        let place = window::name_place(name, &lines);
        let quoted = matches!(name.0.as_slice(), [part] if part.as_ident().is_some_and(|i| i.quote_style == Some('\'')));
        let source = if quoted {
            context.relations.files(&FileRequest::path(catalog::last_part(name)), None)
        } else {
            catalog::plain_name(name, &lines).and_then(|name| context.relations.source(&name))
        };
        let source = source.map_err(|e| e.or_at(place).or_at(Some(span)))?;
        LogicalPlanBuilder::scan(datafusion_common::TableReference::bare(catalog::last_part(name)), source, None)
            .and_then(LogicalPlanBuilder::build)
            .map_err(|e| self.error(&e, place.unwrap_or(span)))
    }

    /// An expression over columns that have no qualifier, with Flink's meaning of casts.
    pub fn expr(&self, expr: &SqlExpr, schema: &DFSchema, span: Span) -> Result<Expr, SqlError> {
        let lines = self.lines();
        let mut rewritten = expr.clone();
        rewrite_sql::expr(&mut rewritten, &lines, &self.functions, &self.hints).map_err(|e| e.or_at(Some(span)))?;
        let context = self.context(FileNames::default());
        SqlToRel::new_with_options(&context, parser_options())
            .sql_to_expr(rewritten, schema, &mut PlannerContext::new())
            .and_then(|e| rewrite_plan::expr(e, schema, &self.functions))
            .and_then(process::no_call)
            .map_err(|e| error::sql_error(&e, &lines, &self.functions, &error::Words::of_expr(expr)).or_at(Some(span)))
    }

    /// An error of DataFusion at a place.
    pub fn error(&self, error: &DataFusionError, span: Span) -> SqlError {
        error::sql_error(error, &self.lines(), &self.functions, &error::Words::default()).or_at(Some(span))
    }
}

/// The columns of a schema, without qualifier.
pub(crate) fn unqualified(schema: &SchemaRef) -> Result<DFSchema, DataFusionError> {
    DFSchema::try_from(schema.clone())
}

/// The factor `FROM name`.
pub(crate) fn table_factor(name: ObjectName) -> TableFactor {
    TableFactor::Table {
        name,
        alias: None,
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// The table with these options in place of its own of the same keys.
pub(crate) fn with_options(table: &Arc<Table>, options: Option<std::collections::BTreeMap<String, String>>) -> Arc<Table> {
    match options {
        None => table.clone(),
        Some(options) => {
            let mut table = table.as_ref().clone();
            table.options.extend(options);
            Arc::new(table)
        }
    }
}
