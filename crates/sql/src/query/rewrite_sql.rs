//! Before planning: what Flink writes in its own way becomes what DataFusion reads. Also the checks
//! that need the tree, because the plan no longer shows them.

use sqlparser::ast::{
    BinaryOperator, CeilFloorKind, DataType, DateTimeField, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, GroupByExpr, Ident, ObjectName, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, Spanned, TableFactor,
    TableWithJoins, TimezoneInfo, Value,
};
use sqlparser::ast::{FunctionArgumentClause, NullTreatment};
use sqlparser::tokenizer::Span as TokenSpan;

use super::cast_names;
use super::file_names::FileNames;
use super::functions::Functions;
use super::grouping;
use super::hints::Hints;
use super::interval;
use super::legacy_window;
use super::temporal;
use crate::diagnostic::{LineIndex, SqlError};
use crate::parse::is_table_argument;
use crate::walk::{self, NodeMut};

/// Rewrites a query whose files are called by `names`.
pub(crate) fn query(
    query: &mut Query,
    lines: &LineIndex<'_>,
    functions: &Functions,
    hints: &Hints,
    names: &FileNames,
) -> Result<(), SqlError> {
    let rewriter = Rewriter { lines, functions, hints, names };
    walk::query_mut(query, &mut |node| rewriter.rewrite(node))
}

/// Rewrites an expression.
pub(crate) fn expr(expr: &mut Expr, lines: &LineIndex<'_>, functions: &Functions, hints: &Hints) -> Result<(), SqlError> {
    let rewriter = Rewriter { lines, functions, hints, names: &FileNames::default() };
    walk::expr_mut(expr, &mut |node| rewriter.rewrite(node))
}

struct Rewriter<'l> {
    lines: &'l LineIndex<'l>,
    functions: &'l Functions,
    hints: &'l Hints,
    names: &'l FileNames,
}

impl Rewriter<'_> {
    fn rewrite(&self, node: NodeMut<'_>) -> Result<(), SqlError> {
        match node {
            NodeMut::Select(select) => self.select(select)?,
            NodeMut::AfterQuery(query) => {
                cast_names::tell_apart(query, self.functions);
                order_distinct(query);
            }
            NodeMut::AfterTableFactor(factor) => number_elements(factor),
            NodeMut::AfterExpr(expr) => self.expr(expr)?,
            NodeMut::Expr(_) => {}
        }
        Ok(())
    }

    fn select(&self, select: &mut Select) -> Result<(), SqlError> {
        temporal::rewrite(select, self.lines, self.hints)?;
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            grouping::rewrite(keys);
        }
        match &select.group_by {
            GroupByExpr::All(_) => {
                return Err(SqlError::new("GROUP BY ALL is not part of Flink SQL")
                    .or_at(self.lines.span(select.group_by.span()))
                    .or_at(self.lines.span(select.select_token.0.span))
                    .with_help("name the columns"));
            }
            GroupByExpr::Expressions(exprs, _) => {
                for expr in exprs {
                    if let Expr::Value(value) = expr
                        && let Value::Number(number, _) = &value.value
                    {
                        return Err(SqlError::new(format!("GROUP BY {number}: a column cannot be given by its position"))
                            .or_at(self.lines.span(value.span))
                            .with_help("write the column or the expression itself"));
                    }
                }
            }
        }
        name_columns(select, self.names);
        legacy_window::rewrite(select, self.lines)
    }

    fn expr(&self, expr: &mut Expr) -> Result<(), SqlError> {
        let at = |span: TokenSpan| self.lines.span(span);
        match expr {
            Expr::Floor { expr: inner, field: CeilFloorKind::DateTimeField(unit) } if *unit != DateTimeField::NoDateTime => {
                *expr = call("floor_time", vec![take(inner), text(&unit.to_string())]);
            }
            Expr::Ceil { expr: inner, field: CeilFloorKind::DateTimeField(unit) } if *unit != DateTimeField::NoDateTime => {
                *expr = call("ceil_time", vec![take(inner), text(&unit.to_string())]);
            }
            Expr::Substring { expr: inner, substring_from, substring_for, .. } => {
                let from = substring_from.take().map_or_else(|| number("1"), |e| *e);
                let args = std::iter::once(take(inner)).chain([from]).chain(substring_for.take().map(|e| *e)).collect();
                *expr = call("substr", args);
            }
            Expr::Interval(interval) => match interval::plain(interval) {
                Ok(plain) => *interval = plain,
                Err(message) => {
                    let span = at(interval.value.span());
                    return Err(SqlError::new(message).or_at(span));
                }
            },
            // A literal has the digits that it shows, not the six of the type's name.
            Expr::TypedString(typed) => {
                if let (
                    DataType::Timestamp(precision @ None, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone),
                    Value::SingleQuotedString(value),
                ) = (&mut typed.data_type, &typed.value.value)
                {
                    let digits = value.split_once('.').map_or(0, |(_, fraction)| fraction.trim_end().len() as u64);
                    *precision = Some(digits.clamp(3, 9));
                }
            }
            Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) if connects(right) => rebind(expr),
            // DataFusion plans the elements of ARRAY[…] without the columns of the outer query, which is the
            // left side of a join with UNNEST; the arguments of a call it plans with them.
            Expr::Array(array) => *expr = call("make_array", std::mem::take(&mut array.elem)),
            Expr::Function(function) => self.function(function)?,
            _ => {}
        }
        Ok(())
    }

    fn function(&self, function: &mut Function) -> Result<(), SqlError> {
        let [part] = function.name.0.as_slice() else { return Ok(()) };
        let Some(ident) = part.as_ident() else { return Ok(()) };
        let (name, span) = (ident.value.to_ascii_uppercase(), ident.span);
        // DataFusion would pass over the OVER.
        if function.over.is_some() && self.functions.scalar(&name).is_some() {
            return Err(SqlError::new(format!("{name} is a function of one row: it has no OVER"))
                .or_at(self.lines.span(span))
                .with_help("leave OVER out"));
        }
        let FunctionArguments::List(list) = &mut function.args else { return Ok(()) };
        match name.as_str() {
            // NULL is no value of a group, unless it is said to be.
            "FIRST_VALUE" | "LAST_VALUE"
                if function.null_treatment.is_none()
                    && !list.clauses.iter().any(|c| matches!(c, FunctionArgumentClause::IgnoreOrRespectNulls(_))) =>
            {
                function.null_treatment = Some(NullTreatment::IgnoreNulls);
            }
            // LISTAGG's separator is a comma unless given.
            "LISTAGG" if list.args.len() == 1 => list.args.push(plain_arg(text(","))),
            // ROW(a, b): Flink calls its fields EXPR$0 and so on; a cast or a ROW type names them f0.
            "ROW" => {
                let args = std::mem::take(&mut list.args);
                for (i, arg) in args.into_iter().enumerate() {
                    list.args.push(plain_arg(text(&format!("f{i}"))));
                    list.args.push(arg);
                }
                function.name = ObjectName::from(vec![Ident { value: "named_struct".into(), quote_style: None, span }]);
            }
            "COLLECT" => {
                return Err(SqlError::new("COLLECT is not supported: there is no MULTISET")
                    .or_at(self.lines.span(span))
                    .with_help("ARRAY_AGG gives an ARRAY"));
            }
            // Two names of one function.
            "GROUPING_ID" => function.name = ObjectName::from(vec![Ident { value: "grouping".into(), quote_style: None, span }]),
            "GROUP_ID" => {
                return Err(SqlError::new(format!("{name} is not supported"))
                    .or_at(self.lines.span(span))
                    .with_help("GROUPING(column) tells the sets apart"));
            }
            "CURRENT_WATERMARK" => {
                return Err(SqlError::new("CURRENT_WATERMARK is not supported")
                    .or_at(self.lines.span(span))
                    .with_help("late rows are counted and dropped by the windows"));
            }
            _ => {}
        }
        Ok(())
    }
}

/// `UNNEST(a) WITH ORDINALITY` unnests the numbers of the elements beside the elements.
fn number_elements(factor: &mut TableFactor) {
    if let TableFactor::UNNEST { array_exprs, with_ordinality, .. } = factor
        && *with_ordinality
        && let [array] = array_exprs.as_slice()
    {
        let numbers = call("generate_series", vec![number("1"), call("array_length", vec![array.clone()])]);
        array_exprs.push(numbers);
        *with_ordinality = false;
    }
}

fn connects(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or | BinaryOperator::Xor, .. })
}

/// `a IS DISTINCT FROM b AND c` is read by the parser as `a IS DISTINCT FROM (b AND c)`, without the
/// parentheses; it means `(a IS DISTINCT FROM b) AND c`.
fn rebind(expr: &mut Expr) {
    let (distinct, left, mut right) = match take(expr) {
        Expr::IsDistinctFrom(left, right) => (true, left, right),
        Expr::IsNotDistinctFrom(left, right) => (false, left, right),
        other => {
            *expr = other;
            return;
        }
    };
    let mut operand = right.as_mut();
    while connects(operand) {
        let Expr::BinaryOp { left, .. } = operand else { break };
        operand = left;
    }
    let second = Box::new(take(operand));
    *operand = if distinct { Expr::IsDistinctFrom(left, second) } else { Expr::IsNotDistinctFrom(left, second) };
    *expr = *right;
}

/// Of distinct rows, only what is selected can be sorted by: an expression of ORDER BY that is selected
/// becomes the name of its column.
fn order_distinct(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    if select.distinct.is_none() {
        return;
    }
    if let Some(OrderBy { kind: OrderByKind::Expressions(exprs), .. }) = &mut query.order_by {
        for order in exprs {
            let selected = select.projection.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias } if *expr == order.expr => Some(alias.clone()),
                _ => None,
            });
            if let Some(alias) = selected {
                order.expr = Expr::Identifier(alias);
            }
        }
    }
}

/// Gives the columns of a select the names that Flink gives them: `EXPR$0`, `EXPR$1` by position for
/// expressions, the field's for a field of a ROW, `a0` for a second `a`.
fn name_columns(select: &mut Select, names: &FileNames) {
    // What is called by a file's short name is no column of it for certain: the file may have a column of ROWs that is called so.
    let files: Vec<&str> = select.from.iter().flat_map(all_of).filter_map(|factor| names.short(factor)).collect();
    let relations: Vec<String> = select.from.iter().flat_map(all_of).filter_map(relation_name).collect();
    // A `*` brings the columns that are named beside it.
    let all = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
    let mut taken: Vec<String> = Vec::with_capacity(select.projection.len());
    for (i, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::UnnamedExpr(expr) = item else {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                taken.push(alias.value.clone());
            }
            continue;
        };
        let (name, own, by_file) = match &*expr {
            Expr::Identifier(ident) => (ident.value.clone(), true, false),
            Expr::CompoundIdentifier(idents) => {
                let (own, by_file) = match idents.as_slice() {
                    [first, _] => (relations.contains(&first.value), files.contains(&first.value.as_str())),
                    _ => (false, false),
                };
                (idents.last().map(|i| i.value.clone()).unwrap_or_default(), own, by_file)
            }
            _ => (format!("EXPR${i}"), false, false),
        };
        let mut unique = name.clone();
        let mut suffix = 0;
        while taken.contains(&unique) || (all && (own || by_file) && unique == name) {
            unique = format!("{name}{suffix}");
            suffix += 1;
        }
        if !own || unique != name {
            let alias = Ident { value: unique.clone(), quote_style: Some('`'), span: expr.span() };
            *item = SelectItem::ExprWithAlias { expr: take(expr), alias };
        }
        taken.push(unique);
    }
}

/// The relations of one item of FROM.
fn all_of(item: &TableWithJoins) -> impl Iterator<Item = &TableFactor> {
    std::iter::once(&item.relation).chain(item.joins.iter().map(|join| &join.relation))
}

/// What columns of a relation may be qualified with.
fn relation_name(factor: &TableFactor) -> Option<String> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::TableFunction { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. }
        | TableFactor::NestedJoin { alias: Some(alias), .. } => Some(alias.name.value.clone()),
        TableFactor::Table { name, args: None, .. } => Some(super::catalog::last_part(name)),
        // The rows of a window function without alias keep the name of its table.
        TableFactor::Table { args: Some(args), .. } => args.args.iter().find_map(table_argument),
        TableFactor::TableFunction { expr: Expr::Function(f), .. } => match &f.args {
            FunctionArguments::List(list) => list.args.iter().find_map(table_argument),
            _ => None,
        },
        _ => None,
    }
}

/// The name of a table given to a function.
fn table_argument(arg: &FunctionArg) -> Option<String> {
    let (FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) | FunctionArg::Named { arg: FunctionArgExpr::Expr(expr), .. }) = arg else {
        return None;
    };
    let Expr::Function(f) = expr else { return None };
    if !is_table_argument(expr) {
        return None;
    }
    match &f.args {
        FunctionArguments::List(list) => match list.args.first()? {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(ident))) => Some(ident.value.clone()),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(idents))) => idents.last().map(|i| i.value.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// The expression; NULL stays in its place.
pub(super) fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()))
}

fn text(value: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(value.to_string()).with_empty_span())
}

fn number(value: &str) -> Expr {
    Expr::Value(Value::Number(value.to_string(), false).with_empty_span())
}

fn plain_arg(expr: Expr) -> FunctionArg {
    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
}

/// A function call in the tree.
pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.into_iter().map(plain_arg).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
