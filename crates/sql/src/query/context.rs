//! What DataFusion's planner asks: which plan a name stands for, which functions there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::config::ConfigOptions;
use datafusion_common::{DataFusionError, Result, TableReference};
use datafusion_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, TableSource, WindowUDF};
use tidemill_plan::Table;
use tidemill_plan::catalog::CatalogTable;
use tidemill_plan::temporal;

use super::catalog::{Catalog, Files, Relation, looks_like_file, strip_defaults};
use super::file_names::FileNames;
use super::functions::Functions;
use super::hints::Hints;
use super::types::FlinkTypes;
use super::union;
use super::window::FromPlanner;
use super::with_options;
use crate::diagnostic::SqlError;
use crate::session::FileRequest;

/// Names in `FROM`.
#[derive(Clone)]
pub(crate) struct Relations {
    pub catalog: Arc<Catalog>,
    files: Arc<Files>,
}

impl Relations {
    /// What a name stands for: a table, a view, or, if it looks like one, a file.
    pub fn source(&self, name: &str) -> Result<Arc<dyn TableSource>, SqlError> {
        match self.catalog.get(name) {
            Some(Relation::Table { table, .. }) => table_source(table),
            Some(Relation::View(view)) => Ok(Arc::new(CatalogTable::new(view.plan.clone()))),
            None if looks_like_file(name) => self.files(&FileRequest::path(name), None),
            None => Err(self.catalog.unknown(name)),
        }
    }

    /// Files, with the options of a hint.
    pub fn files(&self, request: &FileRequest, options: Option<BTreeMap<String, String>>) -> Result<Arc<dyn TableSource>, SqlError> {
        let tables = self.files.tables(request)?;
        let tables: Vec<Arc<Table>> = tables.iter().map(|table| with_options(table, options.clone())).collect();
        match tables.as_slice() {
            [table] => table_source(table),
            many => match union::by_name(many) {
                Ok(plan) => Ok(Arc::new(CatalogTable::new(plan))),
                Err(e) => Err(SqlError::new(format!(
                    "putting together the columns of {}: {}",
                    request.paths.join(", "),
                    super::error::message(&e)
                ))),
            },
        }
    }
}

/// A table as a query refers to it.
pub(crate) fn table_source(table: &Arc<Table>) -> Result<Arc<dyn TableSource>, SqlError> {
    match table.scan() {
        Ok(plan) => Ok(Arc::new(CatalogTable::new(plan))),
        Err(e) => Err(SqlError::new(format!("table {}: {}", table.name, super::error::message(&e)))),
    }
}

/// The context of one query.
pub(crate) struct Context {
    pub relations: Relations,
    functions: Arc<Functions>,
    config: Arc<ConfigOptions>,
    expr_planners: Vec<Arc<dyn ExprPlanner>>,
    relation_planners: Vec<Arc<dyn RelationPlanner>>,
}

impl Context {
    pub fn new(
        catalog: Arc<Catalog>,
        functions: Arc<Functions>,
        config: Arc<ConfigOptions>,
        files: Arc<Files>,
        hints: Arc<Hints>,
        script: Arc<str>,
        names: FileNames,
    ) -> Self {
        let relations = Relations { catalog, files };
        Context {
            expr_planners: functions.planners(),
            relation_planners: vec![Arc::new(FromPlanner {
                relations: relations.clone(),
                hints,
                functions: functions.clone(),
                script,
                names,
            })],
            relations,
            functions,
            config,
        }
    }
}

impl ContextProvider for Context {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        let parts: Vec<&str> = [name.catalog(), name.schema(), Some(name.table())].into_iter().flatten().collect();
        let found = match strip_defaults(&parts) {
            Some(name) => self.relations.source(name),
            None => Err(SqlError::new(format!("there is no catalog or database {}", parts[..parts.len() - 1].join(".")))
                .with_help("there is one catalog: name the table alone; a name with a period in it is written `a.b`")),
        };
        found.map_err(|e| DataFusionError::External(Box::new(e)))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.expr_planners
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relation_planners
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::new(FlinkTypes))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        if name == temporal::AS_OF { Some(temporal::as_of()) } else { self.functions.scalar(name) }
    }

    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.functions.aggregate(name)
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.functions.window(name)
    }

    fn get_variable_type(&self, _variable_names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.config
    }

    fn udf_names(&self) -> Vec<String> {
        self.functions.names().map(str::to_string).collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}
