//! `CREATE TABLE` and `CREATE VIEW`: columns typed, expressions planned, `LIKE` and `AS` merged.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion_common::tree_node::TreeNode;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, col};
use sqlparser::ast::{Expr as SqlExpr, Ident, Query, Spanned};
use tidemill_plan::{Column, ColumnKind, Table, WatermarkSpec};

use super::catalog::{Relation, TableText};
use super::error::column_help;
use super::like::Strategies;
use super::types::storable;
use super::{Planner, unqualified};
use crate::ast::{CreateTable, ItemKind, LikeStrategy};
use crate::diagnostic::{Span, SqlError};
use crate::types::flink_type;

/// A table that was declared, and the query that fills it.
pub(crate) struct Created {
    pub table: Arc<Table>,
    pub text: Arc<TableText>,
    /// The plan of `AS query` and the columns that it fills.
    pub query: Option<(LogicalPlan, Vec<String>)>,
}

/// A table on its way.
struct Builder<'p> {
    planner: &'p Planner,
    columns: Vec<Draft>,
    watermark: Option<(Ident, WatermarkDraft)>,
    primary_key: Vec<Ident>,
    options: BTreeMap<String, String>,
    text: TableText,
}

/// A column on its way.
struct Draft {
    name: String,
    kind: DraftKind,
    /// Where errors about it point.
    span: Option<Span>,
}

enum DraftKind {
    /// Complete.
    Column(Column),
    /// Computed by this.
    Computed(SqlExpr),
}

/// A watermark strategy on its way.
enum WatermarkDraft {
    Planned(Expr),
    Sql(SqlExpr),
}

impl Draft {
    /// Whether it is physical, metadata or computed, for messages.
    fn what(&self) -> &'static str {
        match &self.kind {
            DraftKind::Computed(_) => "computed",
            DraftKind::Column(c) => match c.kind {
                ColumnKind::Physical => "physical",
                ColumnKind::Metadata { .. } => "metadata",
                ColumnKind::Computed(_) => "computed",
            },
        }
    }
}

/// Resolves `CREATE TABLE`.
pub(crate) fn create_table(planner: &Planner, create: &CreateTable, name: &str, span: Span) -> Result<Created, SqlError> {
    let lines = planner.lines();
    if let Some(column) = create.partitioned_by.first() {
        let columns: Vec<&str> = create.partitioned_by.iter().map(|column| column.value.as_str()).collect();
        return Err(SqlError::new("PARTITIONED BY is not supported").or_at(lines.span(column.span)).with_help(format!(
            "leave it out; with the connector 'filesystem' the option 'sink.partition-by' = '{}' divides the rows among directories, as Hive does",
            columns.join(",")
        )));
    }
    let mut builder = Builder {
        planner,
        columns: Vec::new(),
        watermark: None,
        primary_key: Vec::new(),
        options: BTreeMap::new(),
        text: TableText { comment: create.comment.clone(), ..TableText::default() },
    };
    let strategies = match &create.like {
        Some(like) => {
            let strategies = Strategies::new(like);
            let (model, relation) = planner.catalog.find(&like.table, &lines)?;
            match relation {
                Relation::Table { table, text } => builder.take_model(table, text, strategies),
                Relation::View(_) => {
                    return Err(SqlError::at(like.span, format!("{model} is a view: LIKE takes a table"))
                        .with_help(format!("CREATE TABLE … AS SELECT * FROM {model} makes a table with its columns")));
                }
            }
            Some(strategies)
        }
        None => None,
    };
    builder.take_items(create, strategies)?;
    let query = match &create.query {
        Some(query) => Some(builder.take_query(query, span)?),
        None => None,
    };
    if !builder.columns.iter().any(|c| c.what() == "physical" || c.what() == "metadata")
        && builder.columns.iter().all(|c| c.what() != "computed")
    {
        return Err(
            SqlError::at(span, format!("table {name} has no columns")).with_help("write CREATE TABLE name (column type, …) WITH (…)")
        );
    }
    let (table, text) = builder.finish(name, span)?;
    Ok(Created { table: Arc::new(table), text: Arc::new(text), query })
}

impl Builder<'_> {
    /// Begins with what `LIKE` takes over.
    fn take_model(&mut self, model: &Table, text: &TableText, strategies: Strategies) {
        for column in &model.columns {
            let strategy = match column.kind {
                ColumnKind::Physical => LikeStrategy::Including,
                ColumnKind::Metadata { .. } => strategies.metadata,
                ColumnKind::Computed(_) => strategies.generated,
            };
            if strategy == LikeStrategy::Excluding {
                continue;
            }
            let mut column = column.clone();
            // What a primary key made NOT NULL stays so only with the key.
            if strategies.constraints == LikeStrategy::Excluding && model.primary_key.contains(&column.name) {
                column.nullable = true;
            }
            if let Some(expression) = text.expressions.get(&column.name) {
                self.text.expressions.insert(column.name.clone(), expression.clone());
            }
            if let Some(comment) = text.comments.get(&column.name) {
                self.text.comments.insert(column.name.clone(), comment.clone());
            }
            self.columns.push(Draft { name: column.name.clone(), kind: DraftKind::Column(column), span: None });
        }
        if strategies.watermarks != LikeStrategy::Excluding
            && let Some(watermark) = &model.watermark
        {
            self.watermark = Some((Ident::new(&watermark.column), WatermarkDraft::Planned(watermark.expression.clone())));
            self.text.watermark = text.watermark.clone();
        }
        if strategies.constraints != LikeStrategy::Excluding {
            self.primary_key = model.primary_key.iter().map(Ident::new).collect();
        }
        if strategies.options != LikeStrategy::Excluding {
            self.options = model.options.clone();
        }
        self.text.comment = self.text.comment.take().or_else(|| text.comment.clone());
    }

    /// Adds what stands in parentheses and in WITH.
    fn take_items(&mut self, create: &CreateTable, strategies: Option<Strategies>) -> Result<(), SqlError> {
        let overwrites = |of: fn(&Strategies) -> LikeStrategy| strategies.as_ref().is_some_and(|s| of(s) == LikeStrategy::Overwriting);
        let lines = self.planner.lines();
        for item in &create.items {
            let (name, kind, comment) = match &item.kind {
                ItemKind::Physical { name, data_type, nullable, comment, .. } => {
                    let column =
                        Column { name: name.value.clone(), data_type: data_type.clone(), nullable: *nullable, kind: ColumnKind::Physical };
                    (name, DraftKind::Column(column), comment)
                }
                ItemKind::Metadata { name, data_type, nullable, key, is_virtual, comment } => {
                    let kind = ColumnKind::Metadata { key: key.clone(), is_virtual: *is_virtual };
                    (
                        name,
                        DraftKind::Column(Column { name: name.value.clone(), data_type: data_type.clone(), nullable: *nullable, kind }),
                        comment,
                    )
                }
                ItemKind::Computed { name, expr, comment } => {
                    self.text.expressions.insert(name.value.clone(), expr.to_string());
                    (name, DraftKind::Computed(expr.as_ref().clone()), comment)
                }
                ItemKind::Watermark { column, expr } => {
                    if self.watermark.is_some() && !overwrites(|s| s.watermarks) {
                        return Err(SqlError::at(item.span, "the table of LIKE has a watermark already")
                            .with_help("write LIKE t (OVERWRITING WATERMARKS)"));
                    }
                    self.text.watermark = Some(expr.to_string());
                    self.watermark = Some((column.clone(), WatermarkDraft::Sql(expr.as_ref().clone())));
                    continue;
                }
                ItemKind::PrimaryKey { .. } => continue,
            };
            if let Some(comment) = comment {
                self.text.comments.insert(name.value.clone(), comment.clone());
            }
            let draft = Draft { name: name.value.clone(), kind, span: Some(item.span) };
            match self.columns.iter_mut().find(|c| c.name == name.value) {
                None => self.columns.push(draft),
                Some(there) => {
                    let overwritten = match there.what() {
                        "computed" => overwrites(|s| s.generated),
                        "metadata" => overwrites(|s| s.metadata),
                        _ => false,
                    };
                    if !overwritten || there.what() != draft.what() {
                        let error =
                            SqlError::at(item.span, format!("the table of LIKE has a {} column {} already", there.what(), name.value));
                        return Err(match there.what() {
                            "computed" => error.with_help("LIKE t (OVERWRITING GENERATED) replaces computed columns by computed ones"),
                            "metadata" => error.with_help("LIKE t (OVERWRITING METADATA) replaces metadata columns by metadata columns"),
                            _ => error.with_help("physical columns are always taken over: leave it out, or give it another name"),
                        });
                    }
                    *there = draft;
                }
            }
        }
        let key = create.primary_key();
        if !key.is_empty() {
            if !self.primary_key.is_empty() {
                return Err(SqlError::new("the table of LIKE has a primary key already")
                    .or_at(lines.span(key[0].span))
                    .with_help("write LIKE t (EXCLUDING CONSTRAINTS)"));
            }
            self.primary_key = key.into_iter().cloned().collect();
        }
        for option in &create.options {
            let there = self.options.insert(option.key.clone(), option.value.clone());
            if there.is_some() && !overwrites(|s| s.options) {
                return Err(SqlError::at(option.span, format!("the table of LIKE has the option '{}' already", option.key))
                    .with_help("write LIKE t (OVERWRITING OPTIONS)"));
            }
        }
        Ok(())
    }

    /// Adds the columns of `AS query`: those that are declared too keep the declared type.
    fn take_query(&mut self, query: &Query, span: Span) -> Result<(LogicalPlan, Vec<String>), SqlError> {
        let plan = self.planner.query(query, span)?;
        let mut names: Vec<String> = Vec::new();
        for field in plan.schema().fields() {
            let name = field.name().clone();
            if names.contains(&name) {
                return Err(SqlError::at(span, format!("two columns of the query are named {name}"))
                    .with_help(format!("give one of them another name: {name} AS …")));
            }
            match self.columns.iter().position(|c| c.name == name) {
                Some(at) if self.columns[at].what() == "physical" => {
                    let declared = self.columns.remove(at);
                    self.columns.push(declared);
                }
                Some(at) => {
                    let column = &self.columns[at];
                    let error = SqlError::new(format!("{name} is a {} column and a column of the query", column.what()));
                    return Err(error.or_at(column.span).or_at(Some(span)).with_help("a query fills physical columns only"));
                }
                None => {
                    let column = Column {
                        name: name.clone(),
                        data_type: storable(field.data_type()),
                        nullable: field.is_nullable(),
                        kind: ColumnKind::Physical,
                    };
                    self.columns.push(Draft { name: name.clone(), kind: DraftKind::Column(column), span: None });
                }
            }
            names.push(name);
        }
        Ok((plan, names))
    }

    /// Plans the expressions and checks the rest.
    fn finish(mut self, name: &str, span: Span) -> Result<(Table, TableText), SqlError> {
        self.check_key(name, span)?;
        let keys: HashSet<&str> = self.primary_key.iter().map(|i| i.value.as_str()).collect();
        for draft in &mut self.columns {
            if let DraftKind::Column(column) = &mut draft.kind
                && keys.contains(column.name.as_str())
            {
                column.nullable = false;
            }
        }
        // Computed columns see those that hold data, not each other.
        let data = |draft: &Draft| match &draft.kind {
            DraftKind::Column(c) if !matches!(c.kind, ColumnKind::Computed(_)) => Some(field(c)),
            _ => None,
        };
        let schema = Arc::new(Schema::new(self.columns.iter().filter_map(data).collect::<Vec<_>>()));
        let schema = unqualified(&schema).map_err(|e| self.planner.error(&e, span))?;
        let computed: HashSet<String> = self.columns.iter().filter(|c| c.what() == "computed").map(|c| c.name.clone()).collect();
        let mut columns = Vec::with_capacity(self.columns.len());
        for draft in &self.columns {
            let place = draft.span.unwrap_or(span);
            let (expr, type_error) = match &draft.kind {
                DraftKind::Column(column) => match &column.kind {
                    ColumnKind::Computed(expr) => (expr.as_ref().clone(), "no longer fits the table"),
                    _ => {
                        columns.push(column.clone());
                        continue;
                    }
                },
                DraftKind::Computed(sql) => {
                    (self.planner.expr(sql, &schema, place).map_err(|e| on_computed(e, &draft.name, &computed))?, "has no type")
                }
            };
            scalar_only(&expr).map_err(|what| SqlError::at(place, format!("computed column {}: {what} cannot stand here", draft.name)))?;
            let data_type = expr.get_type(&schema).map_err(|e| {
                let e = self.planner.error(&e, place);
                SqlError { message: format!("computed column {} {type_error}: {}", draft.name, e.message), ..e }
            })?;
            let data_type = if data_type == DataType::Null { DataType::Utf8 } else { data_type };
            let nullable = expr.nullable(&schema).unwrap_or(true);
            columns.push(Column { name: draft.name.clone(), data_type, nullable, kind: ColumnKind::Computed(Box::new(expr)) });
        }
        let watermark = match self.watermark.take() {
            None => None,
            Some((column, strategy)) => Some(self.watermark(&columns, column, strategy, span)?),
        };
        let primary_key = self.primary_key.into_iter().map(|i| i.value).collect();
        self.text.expressions.retain(|column, _| computed.contains(column));
        Ok((Table { name: name.to_string(), columns, watermark, primary_key, options: self.options }, self.text))
    }

    fn check_key(&self, table: &str, span: Span) -> Result<(), SqlError> {
        let lines = self.planner.lines();
        let mut seen = HashSet::new();
        for key in &self.primary_key {
            let place = lines.span(key.span).unwrap_or(span);
            let Some(draft) = self.columns.iter().find(|c| c.name == key.value) else {
                let error = SqlError::at(place, format!("table {table} has no column {} for its primary key", key.value));
                return Err(column_help(error, &key.value, self.columns.iter().map(|c| c.name.as_str())));
            };
            if draft.what() != "physical" {
                return Err(SqlError::at(
                    place,
                    format!("column {} is a {} column: a primary key is of physical columns", key.value, draft.what()),
                ));
            }
            if !seen.insert(key.value.as_str()) {
                return Err(SqlError::at(place, format!("column {} is in the primary key twice", key.value)));
            }
        }
        Ok(())
    }

    fn watermark(&self, columns: &[Column], name: Ident, strategy: WatermarkDraft, span: Span) -> Result<WatermarkSpec, SqlError> {
        let lines = self.planner.lines();
        let place = lines.span(name.span).unwrap_or(span);
        let Some(column) = columns.iter().find(|c| c.name == name.value) else {
            let error = SqlError::at(place, format!("the watermark is for column {}, which is not there", name.value));
            return Err(column_help(error, &name.value, columns.iter().map(|c| c.name.as_str())));
        };
        if !matches!(column.data_type, DataType::Timestamp(TimeUnit::Millisecond, _)) {
            let shown = flink_type(&column.data_type);
            let help = match (&column.data_type, &column.kind) {
                (DataType::Timestamp(_, zone), ColumnKind::Physical | ColumnKind::Metadata { .. }) => {
                    format!("declare it {}(3)", if zone.is_some() { "TIMESTAMP_LTZ" } else { "TIMESTAMP" })
                }
                (DataType::Timestamp(_, zone), ColumnKind::Computed(_)) => {
                    format!("write {} AS CAST(… AS {}(3))", name.value, if zone.is_some() { "TIMESTAMP_LTZ" } else { "TIMESTAMP" })
                }
                (DataType::Int32 | DataType::Int64, _) => {
                    format!("make a time of it: rt AS TO_TIMESTAMP_LTZ({}, 3), WATERMARK FOR rt AS …", name.value)
                }
                (DataType::Utf8, _) => format!("make a time of it: rt AS TO_TIMESTAMP({}), WATERMARK FOR rt AS …", name.value),
                _ => "declare it TIMESTAMP(3)".into(),
            };
            let message =
                format!("the time column {} of the watermark must be a TIMESTAMP(3) or TIMESTAMP_LTZ(3), it is {shown}", name.value);
            return Err(SqlError::at(place, message).with_help(help));
        }
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
        let schema = unqualified(&schema).map_err(|e| self.planner.error(&e, place))?;
        let (expression, place) = match strategy {
            WatermarkDraft::Planned(expr) => (expr, place),
            WatermarkDraft::Sql(sql) => {
                let place = lines.span(sql.span()).unwrap_or(place);
                (self.planner.expr(&sql, &schema, place)?, place)
            }
        };
        scalar_only(&expression).map_err(|what| SqlError::at(place, format!("the watermark strategy: {what} cannot stand here")))?;
        let data_type = expression.get_type(&schema).map_err(|e| self.planner.error(&e, place))?;
        if !matches!(data_type, DataType::Timestamp(..)) {
            return Err(SqlError::at(place, format!("the watermark strategy must give a timestamp, it gives {}", flink_type(&data_type)))
                .with_help(format!("write WATERMARK FOR {0} AS {0} - INTERVAL '5' SECOND", name.value)));
        }
        Ok(WatermarkSpec { column: name.value, expression })
    }
}

fn field(column: &Column) -> Field {
    Field::new(&column.name, column.data_type.clone(), column.nullable)
}

/// An error about a computed column that refers to another one.
fn on_computed(error: SqlError, name: &str, computed: &HashSet<String>) -> SqlError {
    match error.message.strip_prefix("there is no column ") {
        Some(other) if computed.contains(other) => SqlError {
            message: format!("computed column {name} refers to {other}, which is computed too"),
            help: Some(format!("a computed column is made of the others only: write the expression of {other} in its place")),
            ..error
        },
        _ => error,
    }
}

/// Fails with the name of what is no expression over one row.
fn scalar_only(expr: &Expr) -> Result<(), &'static str> {
    let mut found = None;
    let _ = expr.apply(|e| {
        found = found.or(match e {
            Expr::AggregateFunction(_) => Some("an aggregate function"),
            Expr::WindowFunction(_) => Some("a window function"),
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) => Some("a subquery"),
            Expr::Unnest(_) => Some("UNNEST"),
            _ => None,
        });
        Ok(datafusion_common::tree_node::TreeNodeRecursion::Continue)
    });
    found.map_or(Ok(()), Err)
}

/// Plans the query of a view and names its columns.
pub(crate) fn create_view(planner: &Planner, name: &str, columns: &[Ident], query: &Query, span: Span) -> Result<LogicalPlan, SqlError> {
    let plan = planner.query(query, span)?;
    let schema = plan.schema().clone();
    if columns.is_empty() {
        let mut seen = HashSet::new();
        for field in schema.fields() {
            if !seen.insert(field.name()) {
                return Err(SqlError::at(span, format!("two columns of view {name} are named {}", field.name()))
                    .with_help(format!("name the columns: CREATE VIEW {name} (a, b, …) AS …")));
            }
        }
        return Ok(plan);
    }
    if columns.len() != schema.fields().len() {
        return Err(SqlError::at(span, format!("view {name} names {} columns, its query gives {}", columns.len(), schema.fields().len())));
    }
    let lines = planner.lines();
    for (i, column) in columns.iter().enumerate() {
        if columns[..i].iter().any(|c| c.value == column.value) {
            return Err(SqlError::new(format!("column {} is named twice", column.value)).or_at(lines.span(column.span)));
        }
    }
    let exprs = schema.columns().into_iter().zip(columns).map(|(c, name)| col(c).alias(&name.value));
    LogicalPlanBuilder::from(plan).project(exprs).and_then(LogicalPlanBuilder::build).map_err(|e| planner.error(&e, span))
}
