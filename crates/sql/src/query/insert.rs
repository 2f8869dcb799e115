//! `INSERT INTO`: a query's columns made to fit the columns of a table.

use arrow::datatypes::{DataType, Field};
use datafusion_common::{Column, ScalarValue};
use datafusion_expr::{Cast, Expr, LogicalPlan, LogicalPlanBuilder};
use sqlparser::ast::{Ident, Query, SelectItem, SetExpr, Spanned};
use tidemill_plan::{ColumnKind, Table};

use super::catalog::Relation;
use super::error::column_help;
use super::rewrite_plan::implicit_cast;
use super::types::storable;
use super::{Planner, with_options};
use crate::ast::Insert;
use crate::diagnostic::{Span, SqlError};
use crate::session::InsertPlan;
use crate::types::flink_type;

/// Plans an insert.
pub(crate) fn plan_insert(planner: &Planner, insert: &Insert) -> Result<InsertPlan, SqlError> {
    let lines = planner.lines();
    let (name, relation) = planner.catalog.find(&insert.table, &lines).map_err(|e| e.or_at(Some(insert.span)))?;
    let first = insert.table.0.first().and_then(|p| p.as_ident());
    let place = lines.span(insert.table.span());
    let Relation::Table { table, .. } = relation else {
        return Err(SqlError::new(format!("{name} is a view: it cannot be written")).or_at(place).or_at(Some(insert.span)));
    };
    if let Some(place) = insert.deduplicate.filter(|_| table.primary_key.is_empty()) {
        return Err(SqlError::at(place, format!("ON CONFLICT is about rows with one key, and table {name} has no PRIMARY KEY"))
            .with_help("declare PRIMARY KEY (k) NOT ENFORCED in its CREATE TABLE, or leave ON CONFLICT out"));
    }
    let table = with_options(table, first.and_then(|i| planner.hints.options_for(i)));
    let query = planner.query(&insert.query, insert.span)?;
    let columns = if insert.columns.is_empty() { None } else { Some(listed_columns(planner, &table, &insert.columns)?) };
    let plan = fit(planner, query, &table, columns.as_deref(), insert.span, &|i| lines.span(item_span(&insert.query, i)?))?;
    Ok(InsertPlan { table, plan, span: insert.span, overwrite: insert.overwrite })
}

/// The place of the expression that gives a column of a query, if the query lists them.
fn item_span(query: &Query, index: usize) -> Option<sqlparser::tokenizer::Span> {
    match query.body.as_ref() {
        SetExpr::Select(select) => {
            let all = &select.projection;
            let listed = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
            all.get(..=index).filter(|items| items.iter().all(listed)).map(|items| items[index].span())
        }
        SetExpr::Query(inner) => item_span(inner, index),
        SetExpr::Values(values) => values.rows.first().and_then(|row| row.get(index)).map(Spanned::span),
        _ => None,
    }
}

/// The names of a column list, checked.
fn listed_columns(planner: &Planner, table: &Table, columns: &[Ident]) -> Result<Vec<String>, SqlError> {
    let lines = planner.lines();
    let mut names: Vec<String> = Vec::with_capacity(columns.len());
    for ident in columns {
        let place = lines.span(ident.span);
        let fail = |message: String| SqlError::new(message).or_at(place);
        let Some(column) = table.columns.iter().find(|c| c.name == ident.value) else {
            let error = fail(format!("table {} has no column {}", table.name, ident.value));
            return Err(column_help(error, &ident.value, table.columns.iter().map(|c| c.name.as_str())));
        };
        match &column.kind {
            ColumnKind::Computed(_) => return Err(fail(format!("column {} is computed: it cannot be written", ident.value))),
            ColumnKind::Metadata { is_virtual: true, .. } => {
                return Err(fail(format!("metadata column {} is VIRTUAL: it cannot be written", ident.value)));
            }
            _ => {}
        }
        if names.contains(&ident.value) {
            return Err(fail(format!("column {} is listed twice", ident.value)));
        }
        names.push(ident.value.clone());
    }
    Ok(names)
}

/// A query's plan with exactly the columns that a table takes. `columns` says which they are, in
/// order; without it, all. `place` tells where a column of the query is written.
pub(crate) fn fit(
    planner: &Planner,
    plan: LogicalPlan,
    table: &Table,
    columns: Option<&[String]>,
    span: Span,
    place: &dyn Fn(usize) -> Option<Span>,
) -> Result<LogicalPlan, SqlError> {
    let sink = table.sink_columns();
    let given: Vec<(Column, Field)> = plan.schema().iter().map(|(q, f)| (Column::from((q, f)), f.as_ref().clone())).collect();
    let expected = columns.map_or(sink.len(), <[String]>::len);
    if given.len() != expected {
        let count = |n: usize| if n == 1 { "1 column".to_string() } else { format!("{n} columns") };
        let takes = match columns {
            Some(_) => format!("{expected} are listed"),
            None => format!("table {} takes {expected}", table.name),
        };
        let query = given.iter().map(|(_, f)| format!("{} {}", f.name(), flink_type(f.data_type()))).collect::<Vec<_>>().join(", ");
        let wanted: Vec<String> = match columns {
            Some(names) => names.to_vec(),
            None => sink.iter().map(|c| format!("{} {}", c.name, flink_type(&c.data_type))).collect(),
        };
        return Err(SqlError::at(span, format!("the query gives {}, {takes}", count(given.len()))).with_help(format!(
            "the query: {query}; {}: {}",
            table.name,
            wanted.join(", ")
        )));
    }
    let mut exprs = Vec::with_capacity(sink.len());
    for (position, column) in sink.iter().enumerate() {
        let position = match columns {
            None => Some(position),
            Some(names) => names.iter().position(|n| *n == column.name),
        };
        let value = match position {
            Some(position) => {
                let (source, field) = &given[position];
                let from = field.data_type();
                if !fits(from, &column.data_type) {
                    let (from, to) = (flink_type(from), flink_type(&column.data_type));
                    let place = place(position).unwrap_or(span);
                    return Err(SqlError::at(
                        place,
                        format!("column {} of table {} is {to}, the query gives {from} ({})", column.name, table.name, field.name()),
                    )
                    .with_help(format!("write CAST({} AS {to}) in the query", simple_name(field.name()))));
                }
                implicit_cast(Expr::Column(source.clone()), from, &column.data_type, &planner.functions)
            }
            None if !column.nullable => {
                return Err(SqlError::at(span, format!("column {} of table {} is NOT NULL and gets no value", column.name, table.name))
                    .with_help("list it and give it a value in the query"));
            }
            None => Expr::Cast(Cast::new(Box::new(Expr::Literal(ScalarValue::Null, None)), column.data_type.clone())),
        };
        exprs.push(value.alias(&column.name));
    }
    LogicalPlanBuilder::from(plan).project(exprs).and_then(LogicalPlanBuilder::build).map_err(|e| planner.error(&e, span))
}

/// A query's plan with types that columns of tables can have.
pub(crate) fn stored(planner: &Planner, plan: LogicalPlan) -> Result<LogicalPlan, SqlError> {
    let columns: Vec<(Column, Field)> = plan.schema().iter().map(|(q, f)| (Column::from((q, f)), f.as_ref().clone())).collect();
    let exprs: Vec<Expr> = columns
        .into_iter()
        .map(|(column, field)| {
            let to = storable(field.data_type());
            implicit_cast(Expr::Column(column), field.data_type(), &to, &planner.functions).alias(field.name())
        })
        .collect();
    LogicalPlanBuilder::from(plan).project(exprs).and_then(LogicalPlanBuilder::build).map_err(|e| planner.error(&e, Span::default()))
}

/// The name if it is one, else three dots: a computed column has an expression for a name.
fn simple_name(name: &str) -> &str {
    if name.chars().all(|c| c.is_alphanumeric() || c == '_') { name } else { "…" }
}

/// Whether values are written without a cast in the query: within a family of types.
fn fits(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let text = |t: &DataType| matches!(t, Utf8 | LargeUtf8 | Utf8View);
    let bytes = |t: &DataType| matches!(t, Binary | LargeBinary | BinaryView | FixedSizeBinary(_));
    match (from, to) {
        (a, b) if a == b => true,
        (Null, _) => true,
        (a, b) if a.is_numeric() && b.is_numeric() => true,
        (a, b) if (text(a) && text(b)) || (bytes(a) && bytes(b)) => true,
        (Timestamp(..), Timestamp(..) | Date32 | Time32(_)) | (Date32, Timestamp(..)) => true,
        (Time32(_) | Time64(_), Time32(_) | Time64(_)) => true,
        (List(a) | LargeList(a) | FixedSizeList(a, _), List(b)) => fits(a.data_type(), b.data_type()),
        (Struct(a), Struct(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| fits(a.data_type(), b.data_type())),
        (Map(a, _), Map(b, _)) => fits(a.data_type(), b.data_type()),
        (Dictionary(_, a), b) => fits(a, b),
        _ => false,
    }
}
