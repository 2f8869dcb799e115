//! Names that tell casts apart: `GROUP BY CAST(a AS INT), CAST(a AS STRING)`, `SUM(a), SUM(CAST(a AS DOUBLE))`.
//!
//! DataFusion calls a cast by what is cast, without the type, and the columns of an aggregate by their expressions: the
//! keys above are both `a`. It refuses two such columns. One beside a column of the table (`CAST(a AS STRING), a`) it takes, and
//! then moves a condition of `HAVING` on either below the aggregate as a condition on the last.
//!
//! Before planning, [`tell_apart`] puts a call of `named_cast` around the casts of a `SELECT` that has such keys or aggregates: a
//! function of one value that does nothing, and has the type in its name. [`super::rewrite_plan`] takes it off
//! again and keeps the names. A `SELECT` with a subquery in its expressions, or with `WINDOW`, is left as it is.

use std::collections::HashMap;
use std::convert::Infallible;

use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_common::utils::take_function_args;
use datafusion_expr::{ColumnarValue, Expr as Logical, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use sqlparser::ast::{Expr, Function, GroupByExpr, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr};

use super::functions::Functions;
use super::rewrite_sql::{call, take};
use crate::walk::{self, Node, NodeMut};

/// The function around a cast.
pub(super) const NAMED_CAST: &str = "named_cast";

/// Marks the casts of the selects that a query consists of, if DataFusion would give two of their columns one name.
pub(super) fn tell_apart(query: &mut Query, functions: &Functions) {
    let order: &mut [OrderByExpr] = match &mut query.order_by {
        Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) => order.as_mut_slice(),
        _ => &mut [],
    };
    match query.body.as_mut() {
        SetExpr::Select(select) => in_select(select, order, functions),
        // The order of a union is by its columns.
        body => in_operands(body, functions),
    }
}

fn in_operands(body: &mut SetExpr, functions: &Functions) {
    match body {
        SetExpr::Select(select) => in_select(select, &mut [], functions),
        SetExpr::SetOperation { left, right, .. } => {
            in_operands(left, functions);
            in_operands(right, functions);
        }
        _ => {}
    }
}

fn in_select(select: &mut Select, order: &mut [OrderByExpr], functions: &Functions) {
    if !select.named_window.is_empty() {
        return;
    }
    let mut columns = Vec::new();
    if let GroupByExpr::Expressions(keys, _) = &select.group_by {
        for key in keys {
            match key {
                Expr::GroupingSets(sets) | Expr::Cube(sets) | Expr::Rollup(sets) => columns.extend(sets.iter().flatten().map(texts)),
                plain => columns.push(texts(plain)),
            }
        }
    }
    let parts = parts(select, order);
    // An expression is found again by its equality, so that either all casts are marked or none is.
    let looked = parts.iter().try_for_each(|part| {
        walk::expr::<()>(part, &mut |node| match node {
            Node::Query(_) => Err(()),
            Node::Expr(expr) => {
                if let Expr::Function(function) = expr
                    && is_aggregate(function, functions)
                {
                    columns.push(texts(expr));
                }
                Ok(())
            }
            _ => Ok(()),
        })
    });
    if looked.is_err() || !any_alike(columns) {
        return;
    }
    for part in parts {
        let Ok(()) = walk::expr_mut::<Infallible>(part, &mut |node| {
            if let NodeMut::AfterExpr(expr) = node
                && matches!(expr, Expr::Cast { .. })
            {
                *expr = call(NAMED_CAST, vec![take(expr)]);
            }
            Ok(())
        });
    }
}

/// The expressions that are planned above the aggregate or are its keys.
fn parts<'s>(select: &'s mut Select, order: &'s mut [OrderByExpr]) -> Vec<&'s mut Expr> {
    let Select { projection, group_by, having, qualify, .. } = select;
    let mut parts: Vec<&'s mut Expr> = Vec::new();
    if let GroupByExpr::Expressions(keys, _) = group_by {
        parts.extend(keys);
    }
    for item in projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            parts.push(expr);
        }
    }
    parts.extend(having);
    parts.extend(qualify);
    parts.extend(order.iter_mut().map(|by| &mut by.expr));
    parts
}

fn is_aggregate(function: &Function, functions: &Functions) -> bool {
    let [part] = function.name.0.as_slice() else { return false };
    function.over.is_none() && part.as_ident().is_some_and(|name| functions.aggregate(&name.value).is_some())
}

/// An expression with its casts, and as DataFusion names it, without them. What else may be written in several ways is made
/// alike: to mark casts that need not be marked does no harm.
fn texts(expr: &Expr) -> (String, String) {
    let text = |casts: bool| {
        let mut expr = expr.clone();
        let Ok(()) = walk::expr_mut::<Infallible>(&mut expr, &mut |node| {
            if let NodeMut::AfterExpr(expr) = node {
                simplify(expr, casts);
            }
            Ok(())
        });
        expr.to_string().to_lowercase()
    };
    (text(true), text(false))
}

/// Leaves parentheses, tables in front of columns and, unless `casts`, casts out.
fn simplify(expr: &mut Expr, casts: bool) {
    let inner = match expr {
        Expr::Nested(inner) => take(inner),
        Expr::Cast { expr: inner, .. } if !casts => take(inner),
        Expr::CompoundIdentifier(names) => match names.pop() {
            Some(name) => Expr::Identifier(name),
            None => return,
        },
        _ => return,
    };
    *expr = inner;
}

/// Whether there are expressions that only their casts tell apart.
fn any_alike(columns: Vec<(String, String)>) -> bool {
    let mut seen: HashMap<String, String> = HashMap::new();
    columns.into_iter().any(|(with, without)| *seen.entry(without).or_insert_with(|| with.clone()) != with)
}

/// `named_cast(CAST(x AS type))`: the value itself, under a name that says the type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct NamedCast(Signature);

impl NamedCast {
    pub(super) fn new() -> Self {
        NamedCast(Signature::any(1, Volatility::Immutable))
    }
}

impl ScalarUDFImpl for NamedCast {
    fn name(&self) -> &str {
        NAMED_CAST
    }

    fn schema_name(&self, args: &[Logical]) -> Result<String> {
        Ok(match args {
            [Logical::Cast(cast)] => format!("CAST({} AS {})", cast.expr.schema_name(), cast.field.data_type()),
            [Logical::TryCast(cast)] => format!("TRY_CAST({} AS {})", cast.expr.schema_name(), cast.field.data_type()),
            _ => format!("{NAMED_CAST}({})", args.iter().map(|arg| arg.schema_name().to_string()).collect::<Vec<_>>().join(",")),
        })
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [data_type] = take_function_args(NAMED_CAST, types)?;
        Ok(data_type.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = take_function_args(NAMED_CAST, args.args)?;
        Ok(value)
    }
}
