//! Lookup joins: `JOIN t FOR SYSTEM_TIME AS OF o.pt AS d ON …` with a processing time `o.pt`.
//!
//! [`plan`] makes a [`LookupJoinNode`] of such a join: equalities between a column of the table and
//! something of the left side become keys; what else the condition says filters the left side before it
//! costs a lookup, if it is about that side alone, and what was found otherwise. The clause itself is read
//! in [`super::temporal`].

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::tree_node::TreeNode;
use datafusion_common::{Column, DFSchema, DataFusionError, Result, ScalarValue, TableReference};
use datafusion_expr::utils::{conjunction, split_conjunction_owned};
use datafusion_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, Extension, Filter, Join, JoinType, LogicalPlan, Operator, Projection, TryCast, when,
};
use tidemill_plan::lookup::{Referred, referred, replace_columns};
use tidemill_plan::node::as_column;
use tidemill_plan::{ColumnKind, LookupHint, LookupJoinNode};

use super::functions::Functions;
use super::hints::Hints;
use super::rewrite_plan;
use crate::diagnostic::{Span, SqlError};
use crate::session::LookupResolver;
use crate::types::flink_type;

const WRITE: &str = "write JOIN (or LEFT JOIN) t FOR SYSTEM_TIME AS OF o.pt AS d ON d.key = o.key, with pt AS PROCTIME() in the table of o";

/// What planning a lookup join needs to know of its statement.
pub(super) struct Context<'a> {
    pub functions: &'a Functions,
    pub hints: &'a Hints,
    pub resolver: Option<&'a LookupResolver>,
}

/// What the clause says.
pub(super) struct Asked {
    /// What the query calls the table.
    pub name: String,
    /// Where the clause is written.
    pub place: Option<Span>,
    /// The condition, without the clause.
    pub conditions: Vec<Expr>,
    pub hint: LookupHint,
}

/// The plan of a lookup join, with the columns of `join`.
///
/// # Errors
/// A right side that cannot be looked up, a condition without an equality, a subquery in it.
pub(super) fn plan(join: Join, asked: Asked, context: &Context<'_>) -> Result<LogicalPlan> {
    let Asked { name, place, conditions, hint } = asked;
    let fail = |message: String| {
        let error = SqlError::new(format!("JOIN {name} FOR SYSTEM_TIME AS OF: {message}")).or_at(place).with_help(WRITE);
        DataFusionError::External(Box::new(error))
    };
    let left = match join.join_type {
        JoinType::Inner => false,
        JoinType::Left => true,
        _ => return Err(fail("this is an INNER or a LEFT join".into())),
    };
    let referred = referred(&join.right).map_err(|why| fail(format!("{name} {why}")))?;
    let table = &referred.table;
    if let Some(column) = table.columns.iter().find(|c| matches!(c.kind, ColumnKind::Metadata { .. })) {
        return Err(fail(format!("{} has the metadata column {}, which only reading a table gives", table.name, column.name)));
    }
    if let Some(resolver) = context.resolver {
        resolver(table.as_ref()).map_err(&fail)?;
    }
    let (left_schema, right_schema) = (join.left.schema().clone(), join.right.schema().clone());
    let compared = join.on.iter().map(|(l, r)| l.clone().eq(r.clone()));
    let sides = Sides { left: &left_schema, right: &right_schema, referred: &referred };

    let (mut keys, mut rest): (Vec<(Expr, String)>, Vec<Expr>) = (Vec::new(), Vec::new());
    let mut unfit: Option<String> = None;
    for part in compared.chain(conditions.into_iter().flat_map(split_conjunction_owned)) {
        match sides.key(&part)? {
            Key::Fits(key, column) if keys.iter().all(|(_, there)| *there != column) => keys.push((key, column)),
            Key::Unfit(why) => {
                unfit.get_or_insert(why);
                rest.push(part);
            }
            // TRUE says nothing.
            _ if matches!(&part, Expr::Literal(ScalarValue::Boolean(Some(true)), _)) => {}
            _ => rest.push(part),
        }
    }
    if keys.is_empty() {
        return Err(fail(match unfit {
            Some(why) => why,
            None => format!("the condition must say what a column of {name} is equal to"),
        }));
    }
    let mut residual = Vec::new();
    if left {
        let (of_left, others): (Vec<Expr>, Vec<Expr>) = rest.drain(..).partition(|part| sides.is_of_left(part));
        // A row for which the condition cannot hold has no match: it asks for NULL, which costs no lookup.
        if let Some(condition) = conjunction(of_left) {
            let (key, column) = keys.remove(0);
            keys.insert(0, (when(condition, key).end()?, column));
        }
        residual = others;
    }
    let alias = right_schema.iter().find_map(|(q, _)| q.cloned()).unwrap_or_else(|| TableReference::bare(table.name.as_str()));
    let input = Arc::unwrap_or_clone(join.left);
    let width = left_schema.fields().len();
    let node =
        LookupJoinNode::try_new(input, table.clone(), alias, keys, left, hint).map_err(|e| fail(super::error::message(&e).into_owned()))?;
    let schema = datafusion_expr::UserDefinedLogicalNodeCore::schema(&node).clone();
    let physical = table.physical_schema();
    // From the table's physical columns, which have no qualifier, to those of the node.
    let of_node = |index: usize| Expr::Column(Column::from(schema.qualified_field(width + index)));
    let place_physical = |c: &Column| physical.column_with_name(&c.name).map(|(index, _)| of_node(index));
    let over_node = |e: &Expr| replace_columns(e, &place_physical).map_err(|why| fail(format!("{name} {why}")));

    let filters = referred.filters.iter().map(over_node).collect::<Result<Vec<_>>>()?;
    let columns = referred.columns.iter().map(over_node).collect::<Result<Vec<_>>>()?;
    let (above, residual) = if left {
        let place = |c: &Column| right_schema.maybe_index_of_column(c).map(|index| columns[index].clone());
        let others = residual.iter().map(|e| replace_columns(e, &place).map_err(|why| fail(format!("the join {why}"))));
        let parts = others.collect::<Result<Vec<_>>>()?.into_iter().chain(filters);
        let condition = conjunction(parts).map(|condition| complete(condition, &schema, context.functions)).transpose()?;
        (None, condition)
    } else {
        (conjunction(filters), None)
    };
    let found = as_column_of(&node, width).map(Expr::is_not_null);
    let mut planned = LogicalPlan::Extension(Extension { node: Arc::new(node.with_residual(residual)) });
    if let Some(condition) = above {
        planned = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(planned))?);
    }
    let outputs = join.schema.iter().enumerate().map(|(index, (qualifier, field))| -> Result<Expr> {
        let value = match index.checked_sub(width) {
            None => Expr::Column(Column::from(left_schema.qualified_field(index))),
            Some(of_table) => match (&columns[of_table], &found) {
                // What is computed of the columns of a row that is not there is NULL.
                (computed, Some(found)) if left && as_column(computed).is_none() => when(found.clone(), computed.clone()).end()?,
                (value, _) => value.clone(),
            },
        };
        let same = matches!(&value, Expr::Column(column) if column.relation.as_ref() == qualifier && column.name == *field.name());
        Ok(if same { value } else { value.alias_qualified(qualifier.cloned(), field.name()) })
    });
    let outputs = outputs.collect::<Result<Vec<_>>>()?;
    planned = LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(planned))?);
    // Filters of the left side alone go below the lookup when the plan is optimised.
    match conjunction(rest) {
        Some(condition) => Ok(LogicalPlan::Filter(Filter::try_new(condition, Arc::new(planned))?)),
        None => Ok(planned),
    }
}

/// The first key column of the table: NULL in a row without a match and in no other.
fn as_column_of(node: &LookupJoinNode, width: usize) -> Option<Expr> {
    let (_, name) = node.keys.first()?;
    let index = node.table.physical_schema().column_with_name(name).map(|(index, _)| index)?;
    let schema = datafusion_expr::UserDefinedLogicalNodeCore::schema(node);
    Some(Expr::Column(Column::from(schema.qualified_field(width + index))))
}

/// A condition in its final form: nothing looks at it later.
fn complete(condition: Expr, schema: &DFSchema, functions: &Functions) -> Result<Expr> {
    let condition = rewrite_plan::expr(condition, schema, functions)?;
    tidemill_plan::optimize::coerce(condition, schema)
}

/// The two sides of a join.
struct Sides<'a> {
    left: &'a DFSchema,
    right: &'a DFSchema,
    referred: &'a Referred,
}

/// What an equality is good for.
enum Key {
    /// The column of the table is asked for by the expression.
    Fits(Expr, String),
    /// An equality, but the types of its sides are too different; the message says so.
    Unfit(String),
    /// No equality between the sides.
    No,
}

impl Sides<'_> {
    /// Whether an expression can be computed before the table is asked, from a row of the left side alone.
    fn is_of_left(&self, part: &Expr) -> bool {
        let subquery = part.exists(|e| Ok(matches!(e, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_))));
        !subquery.unwrap_or(true) && !part.is_volatile() && part.column_refs().iter().all(|c| self.left.maybe_index_of_column(c).is_some())
    }

    /// The name of the physical column that an expression of the right side is.
    fn physical(&self, expression: &Expr) -> Option<String> {
        let index = self.right.maybe_index_of_column(as_column(expression)?)?;
        let column = as_column(&self.referred.columns[index])?;
        let declared = self.referred.table.columns.iter().any(|c| c.kind == ColumnKind::Physical && c.name == column.name);
        declared.then(|| column.name.clone())
    }

    fn key(&self, part: &Expr) -> Result<Key> {
        let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = part else { return Ok(Key::No) };
        for (of_left, of_right) in [(left, right), (right, left)] {
            let Some(name) = self.physical(of_right) else { continue };
            if !self.is_of_left(of_left) {
                continue;
            }
            let column = self.referred.table.columns.iter().find(|c| c.name == name);
            let to = column.map_or(DataType::Null, |c| c.data_type.clone());
            let from = of_left.get_type(self.left)?;
            return Ok(match fit(of_left.as_ref().clone(), &from, &to) {
                Some(key) => Key::Fits(key, name),
                None => Key::Unfit(format!(
                    "{of_right} is {}, what it is compared with, {of_left}, is {}: CAST that to the type of the column",
                    flink_type(&to),
                    flink_type(&from)
                )),
            });
        }
        Ok(Key::No)
    }
}

/// A key as a value of the column's type; NULL where it has none that is equal. `None` if not every value
/// that is equal can be found so.
fn fit(key: Expr, from: &DataType, to: &DataType) -> Option<Expr> {
    use DataType::*;
    let text = |t: &DataType| matches!(t, Utf8 | LargeUtf8 | Utf8View);
    let wide = |key: Expr| Expr::Cast(Cast::new(Box::new(key), to.clone()));
    match (from, to) {
        (a, b) if a == b => Some(key),
        (Null, _) => Some(wide(key)),
        (a, b) if text(a) && text(b) => Some(wide(key)),
        (a, b) if a.is_signed_integer() && b.is_signed_integer() => Some(match a.primitive_width() <= b.primitive_width() {
            true => wide(key),
            // A number that does not fit equals nothing in the column.
            false => Expr::TryCast(TryCast::new(Box::new(key), to.clone())),
        }),
        (Int8 | Int16 | Int32 | Float32, Float64) => Some(wide(key)),
        (Timestamp(a, zone), Timestamp(b, other)) if zone.is_some() == other.is_some() && digits(*a) <= digits(*b) => Some(wide(key)),
        _ => None,
    }
}

fn digits(unit: TimeUnit) -> u32 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}
