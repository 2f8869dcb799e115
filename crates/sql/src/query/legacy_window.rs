//! Group windows of the older form: `GROUP BY TUMBLE(rt, INTERVAL '1' DAY), k` with `TUMBLE_START`,
//! `TUMBLE_END` and `TUMBLE_ROWTIME`. They become a window function over the table in `FROM`.

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, Query, Select, SelectItem, SetExpr, Spanned,
    TableAlias, TableFactor, TableWithJoins, WildcardAdditionalOptions,
};

use super::rewrite_sql::call;
use crate::diagnostic::{LineIndex, SqlError};
use crate::dialect::TABLE_ARGUMENT;
use crate::parse::match_recognize::match_clause;
use crate::walk::outer_first_mut;

/// A group window as it is written.
struct GroupWindow {
    /// `TUMBLE`, `HOP` or `SESSION`.
    name: String,
    time: Expr,
    intervals: Vec<Expr>,
}

/// Rewrites a select that groups by a window; others are left as they are.
///
/// # Errors
/// A group window that cannot be put over `FROM`.
pub(super) fn rewrite(select: &mut Select, lines: &LineIndex<'_>) -> Result<(), SqlError> {
    let GroupByExpr::Expressions(group, _) = &select.group_by else { return Ok(()) };
    let found: Vec<usize> = (0..group.len()).filter(|i| group_window(&group[*i]).is_some()).collect();
    let [index] = found.as_slice() else {
        return match found.get(1) {
            Some(second) => Err(SqlError::new("a query groups by one window only")
                .or_at(lines.span(group[*second].span()))
                .with_help("group by the smaller one in a subquery, and by the larger one over its result")),
            None => Ok(()),
        };
    };
    let index = *index;
    let place = lines.span(group[index].span());
    let Some(function) = group_window(&group[index]) else { return Ok(()) };
    let window = decode(function).map_err(|e| e.or_at(place))?;
    let keys: Vec<Expr> = group.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, e)| e.clone()).collect();

    wrap_from(select, &window, &keys).map_err(|e| e.or_at(place))?;
    let mut replacer = Replacer { window: &window, rowtime: false, lines };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            replacer.run(expr)?;
        }
    }
    for expr in select.having.iter_mut().chain(select.qualify.iter_mut()) {
        replacer.run(expr)?;
    }
    let rowtime = replacer.rowtime;
    if let GroupByExpr::Expressions(group, _) = &mut select.group_by {
        let columns = ["window_start", "window_end", "window_time"];
        let columns = &columns[..if rowtime { 3 } else { 2 }];
        group.splice(index..=index, columns.iter().map(|c| Expr::Identifier(Ident::new(*c))));
    }
    Ok(())
}

fn group_window(expr: &Expr) -> Option<&Function> {
    let Expr::Function(function) = expr else { return None };
    let name = name_of(function)?;
    (["TUMBLE", "HOP", "SESSION"].contains(&name.as_str()) && function.over.is_none()).then_some(function)
}

fn name_of(function: &Function) -> Option<String> {
    match function.name.0.as_slice() {
        [part] => part.as_ident().map(|i| i.value.to_ascii_uppercase()),
        _ => None,
    }
}

fn arguments(function: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let arg = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e.clone()),
        _ => None,
    };
    list.args.iter().map(arg).collect()
}

fn decode(function: &Function) -> Result<GroupWindow, SqlError> {
    let name = name_of(function).unwrap_or_default();
    let count = if name == "HOP" { 3 } else { 2 };
    let usage = match name.as_str() {
        "TUMBLE" => "write TUMBLE(rt, INTERVAL '1' MINUTE)",
        "HOP" => "write HOP(rt, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE): the slide, then the size",
        _ => "write SESSION(rt, INTERVAL '5' MINUTE)",
    };
    match arguments(function) {
        Some(mut args) if args.len() == count && args[1..].iter().all(|a| matches!(a, Expr::Interval(_))) => {
            let intervals = args.split_off(1);
            Ok(GroupWindow { name, time: args.swap_remove(0), intervals })
        }
        _ => Err(SqlError::new(format!(
            "{name} in GROUP BY takes the time column and {} INTERVAL literal{}",
            count - 1,
            if count > 2 { "s" } else { "" }
        ))
        .with_help(usage)),
    }
}

/// Puts the window function over what is in `FROM`.
fn wrap_from(select: &mut Select, window: &GroupWindow, keys: &[Expr]) -> Result<(), SqlError> {
    let name = &window.name;
    let help = "write the join or the expression in a subquery or a view, and group by the window of its result";
    let [TableWithJoins { relation, joins }] = select.from.as_mut_slice() else {
        return Err(SqlError::new(format!("GROUP BY {name} needs one table in FROM")).with_help(help));
    };
    if !joins.is_empty() {
        return Err(SqlError::new(format!("GROUP BY {name} over a join")).with_help(help));
    }
    let Some(time) = column_name(&window.time) else {
        return Err(SqlError::new(format!("{name}: {} is not a column", window.time)).with_help(help));
    };
    // What the rest of the query calls the rows.
    let alias = match &*relation {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => Some(alias.clone()),
        TableFactor::Table { name, alias: None, args: None, .. } => {
            let ident = name.0.last().and_then(|p| p.as_ident()).cloned();
            ident.map(|name| TableAlias { explicit: true, name, columns: Vec::new(), at: None })
        }
        TableFactor::Derived { alias: None, .. } => None,
        TableFactor::TableFunction { alias, .. } if match_clause(relation).is_some() => alias.clone(),
        _ => return Err(SqlError::new(format!("GROUP BY {name} over {relation}")).with_help(help)),
    };
    let session = name == "SESSION";
    let named = match &*relation {
        TableFactor::Table { name, alias, .. } => alias.as_ref().is_none_or(|a| a.columns.is_empty()).then(|| name.clone()),
        _ => None,
    };
    let data = match named {
        Some(table) if !(session && select.selection.is_some()) => {
            let idents: Vec<Ident> = table.0.iter().filter_map(|p| p.as_ident().cloned()).collect();
            if idents.len() == 1 {
                Expr::Identifier(idents.into_iter().next().unwrap_or_else(|| Ident::new("")))
            } else {
                Expr::CompoundIdentifier(idents)
            }
        }
        // Rows that WHERE takes out belong to no session: it goes below the windows.
        _ => Expr::Subquery(Box::new(select_all(relation.clone(), if session { select.selection.take() } else { None }))),
    };
    let mut table = vec![data];
    if session {
        for key in keys {
            match column_name(key) {
                Some(ident) => table.push(Expr::Identifier(ident)),
                None => return Err(SqlError::new(format!("SESSION: the key {key} is not a column")).with_help(help)),
            }
        }
    }
    let mut args = vec![call(TABLE_ARGUMENT, table), call("DESCRIPTOR", vec![Expr::Identifier(time)])];
    args.extend(window.intervals.iter().cloned());
    // The alias of columns went into the subquery.
    let alias = alias.map(|a| TableAlias { columns: Vec::new(), ..a });
    *relation = TableFactor::TableFunction { expr: call(name, args), alias };
    Ok(())
}

/// `SELECT * FROM relation WHERE selection`.
fn select_all(relation: TableFactor, selection: Option<Expr>) -> Query {
    let select = Select {
        select_token: sqlparser::ast::helpers::attached_token::AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection: vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())],
        exclude: None,
        into: None,
        from: vec![TableWithJoins { relation, joins: Vec::new() }],
        lateral_views: Vec::new(),
        prewhere: None,
        selection,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: sqlparser::ast::SelectFlavor::Standard,
    };
    Query {
        with: None,
        body: Box::new(SetExpr::Select(Box::new(select))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

fn column_name(expr: &Expr) -> Option<Ident> {
    match expr {
        Expr::Identifier(ident) => Some(ident.clone()),
        Expr::CompoundIdentifier(idents) if idents.len() == 2 => idents.last().cloned(),
        Expr::Nested(inner) => column_name(inner),
        _ => None,
    }
}

/// Turns `TUMBLE_START(rt, …)` and its like into the columns of the window.
struct Replacer<'a> {
    window: &'a GroupWindow,
    rowtime: bool,
    lines: &'a LineIndex<'a>,
}

impl Replacer<'_> {
    fn run(&mut self, expr: &mut Expr) -> Result<(), SqlError> {
        outer_first_mut(expr, &mut |e| self.replace(e))
    }

    fn replace(&mut self, expr: &mut Expr) -> Result<(), SqlError> {
        let Expr::Function(function) = &*expr else { return Ok(()) };
        let Some(name) = name_of(function) else { return Ok(()) };
        let Some((kind, part)) = name.split_once('_').filter(|(kind, _)| ["TUMBLE", "HOP", "SESSION"].contains(kind)) else {
            return Ok(());
        };
        let place = self.lines.span(function.name.span());
        let fail = |message: String, help: &str| Err(SqlError::new(message).or_at(place).with_help(help));
        let column = match part {
            "START" => "window_start",
            "END" => "window_end",
            "ROWTIME" => {
                self.rowtime = true;
                "window_time"
            }
            "PROCTIME" => return fail(format!("{name} is not supported"), "windows are over event time: use the ROWTIME function"),
            _ => return Ok(()),
        };
        let same = kind == self.window.name
            && arguments(function).is_some_and(|args| {
                args.len() == 1 + self.window.intervals.len()
                    && column_name(&args[0]).map(|i| i.value) == column_name(&self.window.time).map(|i| i.value)
                    && args[1..].iter().zip(&self.window.intervals).all(|(a, b)| a.to_string() == b.to_string())
            });
        if !same {
            return fail(
                format!("{name} does not have the arguments of the {} in GROUP BY", self.window.name),
                "give it the same column and intervals",
            );
        }
        *expr = Expr::Identifier(Ident::new(column));
        Ok(())
    }
}
