//! Tables as `CREATE TABLE` declares them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion_common::{Result, TableReference};
use datafusion_expr::{Expr, Extension, LogicalPlan, LogicalPlanBuilder, TableSource, ident};

use crate::node::WatermarkNode;

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub data_type: DataType,
    /// Whether NULL may stand in it.
    pub nullable: bool,
    /// Where its values come from.
    pub kind: ColumnKind,
}

/// Where the values of a column come from.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnKind {
    /// The data themselves.
    Physical,
    /// What the connector knows about a row, under this key.
    Metadata {
        /// The connector's name for it, such as `file.name`.
        key: String,
        /// Read only: left out when the table is written to.
        is_virtual: bool,
    },
    /// An expression over the other columns.
    Computed(Box<Expr>),
}

impl Column {
    /// Whether the column is processing time: `pt AS PROCTIME()`.
    pub fn is_processing_time(&self) -> bool {
        matches!(&self.kind, ColumnKind::Computed(expression) if crate::lookup::is_proctime_call(expression))
    }
}

/// `WATERMARK FOR column AS expression`.
#[derive(Clone, Debug, PartialEq)]
pub struct WatermarkSpec {
    /// The event-time column.
    pub column: String,
    /// The watermark strategy, over the table's columns.
    pub expression: Expr,
}

/// A declared table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// All columns, in declared order.
    pub columns: Vec<Column>,
    /// The event-time column and its watermark.
    pub watermark: Option<WatermarkSpec>,
    /// Names of the primary key's columns; empty if there is none.
    pub primary_key: Vec<String>,
    /// The `WITH` clause.
    pub options: BTreeMap<String, String>,
}

impl Table {
    /// What a connector reads: physical columns, then metadata columns.
    pub fn raw_schema(&self) -> SchemaRef {
        let physical = self.columns.iter().filter(|c| c.kind == ColumnKind::Physical);
        let metadata = self.columns.iter().filter(|c| matches!(c.kind, ColumnKind::Metadata { .. }));
        Arc::new(Schema::new(physical.chain(metadata).map(field).collect::<Vec<_>>()))
    }

    /// The physical columns.
    pub fn physical_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.columns.iter().filter(|c| c.kind == ColumnKind::Physical).map(field).collect::<Vec<_>>()))
    }

    /// What a query that reads the table sees.
    pub fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }

    /// What a query that writes the table must deliver: no computed and no virtual columns.
    pub fn sink_columns(&self) -> Vec<&Column> {
        self.columns.iter().filter(|c| matches!(c.kind, ColumnKind::Physical | ColumnKind::Metadata { is_virtual: false, .. })).collect()
    }

    /// The schema of [`Table::sink_columns`].
    pub fn sink_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.sink_columns().into_iter().map(field).collect::<Vec<_>>()))
    }

    /// The metadata columns: key and field.
    pub fn metadata(&self) -> Vec<(String, FieldRef)> {
        self.columns
            .iter()
            .filter_map(|c| match &c.kind {
                ColumnKind::Metadata { key, .. } => Some((key.clone(), field(c))),
                _ => None,
            })
            .collect()
    }

    /// The plan of a query that reads the table: a scan of what the connector gives, the computed
    /// columns on top, and the watermark on top of them.
    ///
    /// # Errors
    /// An expression that refers to what is not there.
    pub fn scan(self: &Arc<Self>) -> Result<LogicalPlan> {
        let source = Arc::new(RawTable { table: self.clone(), schema: self.raw_schema() });
        let mut plan = LogicalPlanBuilder::scan(TableReference::bare(self.name.as_str()), source, None)?;
        if self.columns.iter().any(|c| matches!(c.kind, ColumnKind::Computed(_))) || self.raw_schema() != self.schema() {
            plan = plan.project(self.columns.iter().map(|c| match &c.kind {
                ColumnKind::Computed(expression) => expression.as_ref().clone().alias(&c.name),
                _ => ident(&c.name),
            }))?;
        }
        let mut plan = plan.build()?;
        if let Some(watermark) = &self.watermark {
            let node = WatermarkNode::new(plan, ident(&watermark.column), watermark.expression.clone());
            plan = LogicalPlan::Extension(Extension { node: Arc::new(node) });
        }
        Ok(plan)
    }
}

fn field(column: &Column) -> FieldRef {
    Arc::new(Field::new(&column.name, column.data_type.clone(), column.nullable))
}

/// A table as a query refers to it: expands to [`Table::scan`].
#[derive(Debug)]
pub struct CatalogTable {
    schema: SchemaRef,
    plan: LogicalPlan,
}

impl CatalogTable {
    /// A table source that stands for a plan: a declared table's scan, or a view's query.
    pub fn new(plan: LogicalPlan) -> Self {
        CatalogTable { schema: Arc::new(plan.schema().as_arrow().clone()), plan }
    }
}

impl TableSource for CatalogTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn get_logical_plan(&self) -> Option<std::borrow::Cow<'_, LogicalPlan>> {
        Some(std::borrow::Cow::Borrowed(&self.plan))
    }
}

/// The leaf of a plan: what the connector of a table gives.
#[derive(Debug)]
pub struct RawTable {
    /// The declared table.
    pub table: Arc<Table>,
    schema: SchemaRef,
}

impl RawTable {
    /// The leaf for `table`.
    pub fn new(table: Arc<Table>) -> Self {
        RawTable { schema: table.raw_schema(), table }
    }
}

impl TableSource for RawTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
