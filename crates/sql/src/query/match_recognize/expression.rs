//! The expressions in DEFINE and MEASURES: what looks at other rows becomes navigations, the rest is
//! planned as any expression, over the input's columns and a column for each navigation.
//!
//! Before planning, the tree is rewritten: `LAST(A.price)` becomes the name of its navigation's column.
//! In the condition of a variable, the row that is tried is the current row, so what stands for it is
//! the plain column.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion_common::{Column, DFSchema, DFSchemaRef, DataFusionError, Result, ScalarValue, TableReference};
use datafusion_expr::planner::RelationPlannerContext;
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::{Expr, ExprSchemable};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, DataType as SqlType, Expr as SqlExpr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, Spanned, Value,
};
use sqlparser::tokenizer::Span as TokenSpan;
use tidemill_plan::pattern::{Argument, End, Navigation, NavigationKind, navigation_column};

use super::names::Names;
use crate::diagnostic::{LineIndex, SqlError};
use crate::parse::match_recognize::{FINAL, RUNNING};
use crate::query::error::column_help;
use crate::query::functions::Functions;
use crate::query::rewrite_plan;
use crate::query::rewrite_sql::call;
use crate::query::window::external;
use crate::types::flink_type;
use crate::walk::outer_first_mut;

/// Where an expression stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the condition of a symbol.
    Condition(usize),
    /// In MEASURES.
    Measure {
        /// `ALL ROWS PER MATCH`: as seen from each row.
        all_rows: bool,
        /// `WITH UNMATCHED ROWS`: of rows outside matches everything is NULL.
        unmatched: bool,
    },
}

/// The functions of patterns that are not aggregates.
const NAVIGATIONS: [&str; 4] = ["FIRST", "LAST", "PREV", "NEXT"];

/// Plans the expressions of one clause and collects their navigations.
pub(super) struct Resolver<'a> {
    pub names: &'a Names,
    pub input: DFSchemaRef,
    /// The time column.
    pub time: Expr,
    pub functions: &'a Functions,
    pub lines: &'a LineIndex<'a>,
    /// What was collected.
    pub navigations: Vec<Navigation>,
}

impl Resolver<'_> {
    /// The condition of a symbol; `None` if it always holds.
    pub fn condition(&mut self, symbol: usize, expr: &SqlExpr, context: &mut dyn RelationPlannerContext) -> Result<Option<Expr>> {
        let planned = self.expression(expr, Place::Condition(symbol), context)?;
        let data_type = planned.get_type(self.extended()?.as_ref())?;
        if data_type != DataType::Boolean {
            let name = &self.names.symbols[symbol];
            return Err(self.fail(
                expr.span(),
                format!("the condition of {name} must be BOOLEAN, it is {}", flink_type(&data_type)),
                "compare it with something",
            ));
        }
        Ok(match planned {
            Expr::Literal(ScalarValue::Boolean(Some(true)), _) => None,
            other => Some(other),
        })
    }

    /// An expression over the extended schema, with all casts it needs.
    pub fn expression(&mut self, expr: &SqlExpr, place: Place, context: &mut dyn RelationPlannerContext) -> Result<Expr> {
        let mut rewritten = expr.clone();
        let mut walk = Walk { resolver: &mut *self, context: &mut *context, place, whole: false, done: Vec::new() };
        outer_first_mut(&mut rewritten, &mut |e| walk.step(e))?;
        let schema = self.extended()?;
        let planned = context.sql_to_expr(rewritten, &schema)?;
        self.typed(planned, schema)
    }

    /// Casts and constants as everywhere.
    fn typed(&self, expr: Expr, schema: DFSchemaRef) -> Result<Expr> {
        let expr = rewrite_plan::expr(expr, &schema, self.functions)?;
        let expr = tidemill_plan::optimize::coerce(expr, &schema)?;
        ExprSimplifier::new(SimplifyContext::builder().with_schema(schema).build()).simplify(expr)
    }

    /// The input's columns, then one for each navigation.
    fn extended(&self) -> Result<DFSchemaRef> {
        let mut fields: Vec<(Option<TableReference>, Arc<Field>)> = self.input.iter().map(|(q, f)| (q.cloned(), f.clone())).collect();
        for (index, navigation) in self.navigations.iter().enumerate() {
            fields.push((None, Arc::new(Field::new(navigation_column(index), navigation.data_type.clone(), true))));
        }
        Ok(Arc::new(DFSchema::new_with_metadata(fields, self.input.metadata().clone())?))
    }

    /// The name of a navigation's column.
    fn navigation(&mut self, navigation: Navigation, at: TokenSpan) -> Ident {
        let index = self.navigations.iter().position(|n| *n == navigation).unwrap_or_else(|| {
            self.navigations.push(navigation);
            self.navigations.len() - 1
        });
        Ident { value: navigation_column(index), quote_style: Some('`'), span: at }
    }

    fn fail(&self, at: TokenSpan, message: impl Into<String>, help: &str) -> DataFusionError {
        external(SqlError::new(message).or_at(self.lines.span(at)).with_help(help))
    }

    /// The input's column of a name.
    fn column(&self, name: &Ident) -> Result<(Expr, DataType)> {
        crate::query::window::column(&self.input, name, self.lines)
    }

    /// The error for a name before a period that is no variable.
    fn unknown_variable(&self, name: &Ident, column: &str) -> DataFusionError {
        let error = SqlError::new(format!("there is no pattern variable {}", name.value)).or_at(self.lines.span(name.span));
        let is_table = self.input.iter().any(|(q, _)| q.is_some_and(|q| q.table() == name.value));
        if is_table {
            return external(error.with_help(format!("columns have pattern variables in front here, or nothing: {column}")));
        }
        external(column_help(error, &name.value, self.names.all()))
    }
}

/// The rows that the columns of an expression are of.
#[derive(Default)]
struct Rows {
    /// The variable and its symbols, or nothing for all rows; `None` as long as no column was seen.
    of: Option<(String, Option<Vec<usize>>)>,
}

/// Rewrites the tree of an expression.
struct Walk<'w, 'a> {
    resolver: &'w mut Resolver<'a>,
    context: &'w mut dyn RelationPlannerContext,
    place: Place,
    /// Below FINAL.
    whole: bool,
    /// Names that stand for columns already though they look like something else.
    done: Vec<TokenSpan>,
}

impl Walk<'_, '_> {
    fn step(&mut self, expr: &mut SqlExpr) -> Result<()> {
        match expr {
            SqlExpr::Function(function) => {
                if let Some(value) = self.function(function)? {
                    *expr = value;
                }
            }
            SqlExpr::Identifier(ident) if !self.is_done(ident) => *ident = self.current(ident)?,
            SqlExpr::CompoundIdentifier(idents) if !self.is_done(&idents[0]) => *expr = self.qualified(idents)?,
            SqlExpr::CompoundFieldAccess { root, access_chain } => {
                if let Some(idents) = leading_names(root, access_chain)
                    && idents.len() > 1
                {
                    access_chain.drain(..idents.len() - 1);
                    **root = self.qualified(&idents)?;
                    match root.as_ref() {
                        SqlExpr::Identifier(ident) => self.done.push(ident.span),
                        SqlExpr::CompoundIdentifier(idents) => self.done.push(idents[0].span),
                        _ => {}
                    }
                }
            }
            other => refuse_subquery(other, self.resolver)?,
        }
        Ok(())
    }

    fn is_done(&self, ident: &Ident) -> bool {
        tidemill_plan::pattern::navigation_index(&Column::new_unqualified(ident.value.as_str())).is_some()
            || self.done.contains(&ident.span)
    }

    /// Whether only rows up to the current one count.
    fn running(&self) -> bool {
        match self.place {
            Place::Condition(_) => true,
            Place::Measure { all_rows, .. } => all_rows && !self.whole,
        }
    }

    /// A column without a variable: of the current row, which is the last one of the match as seen from
    /// there.
    fn current(&mut self, ident: &Ident) -> Result<Ident> {
        let (column, data_type) = self.resolver.column(ident)?;
        Ok(match self.place {
            Place::Measure { unmatched: true, .. } => self.last_of(column, data_type, None, ident.span),
            _ => ident.clone(),
        })
    }

    /// `A.price`, `A.row.field`, `row.field`.
    fn qualified(&mut self, idents: &[Ident]) -> Result<SqlExpr> {
        let first = &idents[0];
        let (value, rest) = match self.resolver.names.find(&first.value) {
            Some(symbols) => {
                let (column, data_type) = self.resolver.column(&idents[1])?;
                let value = match self.place {
                    Place::Condition(symbol) if symbols.contains(&symbol) => idents[1].clone(),
                    _ => self.last_of(column, data_type, Some(symbols), idents[1].span),
                };
                (value, &idents[2..])
            }
            None if self.resolver.input.has_column_with_unqualified_name(&first.value) => (self.current(first)?, &idents[1..]),
            None => return Err(self.resolver.unknown_variable(first, &idents[1].value)),
        };
        Ok(if rest.is_empty() {
            SqlExpr::Identifier(value)
        } else {
            SqlExpr::CompoundIdentifier(std::iter::once(value).chain(rest.iter().cloned()).collect())
        })
    }

    /// A column of the last row of some symbols.
    fn last_of(&mut self, column: Expr, data_type: DataType, symbols: Option<Vec<usize>>, at: TokenSpan) -> Ident {
        let kind = NavigationKind::Value { argument: Argument::Input(column), end: End::Last, offset: 0, shift: 0 };
        let running = self.running();
        self.resolver.navigation(Navigation { kind, symbols, running, data_type }, at)
    }

    /// What a call becomes, if it looks at rows.
    fn function(&mut self, function: &Function) -> Result<Option<SqlExpr>> {
        let Some((name, at)) = name_of(function) else { return Ok(None) };
        if function.over.is_some() {
            return Err(self.resolver.fail(
                at,
                "OVER cannot stand in MATCH_RECOGNIZE",
                "an aggregate here is over the rows of the match, or of a variable: SUM(A.price)",
            ));
        }
        Ok(Some(match name.as_str() {
            FINAL | RUNNING => return self.semantics(name == FINAL, function, at).map(Some),
            name if NAVIGATIONS.contains(&name) => self.navigation(name, function, at)?,
            "CLASSIFIER" => {
                let symbols = self.classified(function, at)?;
                let kind = NavigationKind::Value { argument: Argument::Classifier, end: End::Last, offset: 0, shift: 0 };
                let running = self.running();
                let navigation = Navigation { kind, symbols, running, data_type: DataType::Utf8 };
                SqlExpr::Identifier(self.resolver.navigation(navigation, at))
            }
            "MATCH_NUMBER" => {
                self.no_arguments(&name, function, at)?;
                let navigation = Navigation { kind: NavigationKind::MatchNumber, symbols: None, running: true, data_type: DataType::Int64 };
                SqlExpr::Identifier(self.resolver.navigation(navigation, at))
            }
            "MATCH_ROWTIME" => self.row_time(function, at)?,
            "MATCH_PROCTIME" => {
                self.no_arguments(&name, function, at)?;
                self.measures_only(&name, at, "PROCTIME() is the time of the clock")?;
                call("PROCTIME", Vec::new())
            }
            _ if self.is_aggregate(&name) => self.aggregate(function, at)?,
            _ => return Ok(None),
        }))
    }

    fn is_aggregate(&self, name: &str) -> bool {
        self.resolver.functions.scalar(name).is_none() && self.resolver.functions.aggregate(name).is_some()
    }

    fn measures_only(&self, name: &str, at: TokenSpan, help: &str) -> Result<()> {
        match self.place {
            Place::Measure { .. } => Ok(()),
            Place::Condition(_) => Err(self.resolver.fail(at, format!("{name} stands in MEASURES only"), help)),
        }
    }

    fn no_arguments(&self, name: &str, function: &Function, at: TokenSpan) -> Result<()> {
        match plain_arguments(function).as_deref() {
            Some([]) => Ok(()),
            _ => Err(self.resolver.fail(at, format!("{name} takes no arguments"), &format!("write {name}()"))),
        }
    }

    /// `FINAL f(x)`, `RUNNING f(x)`.
    fn semantics(&mut self, whole: bool, function: &Function, at: TokenSpan) -> Result<SqlExpr> {
        let written = if whole { "FINAL" } else { "RUNNING" };
        self.measures_only(written, at, "a condition sees the rows up to the current one")?;
        let before = std::mem::replace(&mut self.whole, whole);
        let value = match plain_arguments(function).as_deref() {
            Some([SqlExpr::Function(inner)]) => self.function(inner)?,
            _ => None,
        };
        self.whole = before;
        value.ok_or_else(|| {
            self.resolver.fail(at, format!("{written} stands before FIRST, LAST or an aggregate"), "write FINAL LAST(A.price)")
        })
    }

    /// `MATCH_ROWTIME()`: the time of the match's last row.
    fn row_time(&mut self, function: &Function, at: TokenSpan) -> Result<SqlExpr> {
        let Expr::Column(time) = self.resolver.time.clone() else {
            return Err(self.resolver.fail(at, "MATCH_ROWTIME needs a time column", "order by one"));
        };
        self.measures_only("MATCH_ROWTIME", at, &format!("the time of the current row is {}", time.name))?;
        let right = match plain_arguments(function).as_deref() {
            Some([]) => true,
            Some([SqlExpr::Identifier(ident)]) => ident.value == time.name,
            _ => false,
        };
        if !right {
            return Err(self.resolver.fail(
                at,
                format!("MATCH_ROWTIME gives the time that orders the rows, {}", time.name),
                "write MATCH_ROWTIME(); LAST(column) gives another column",
            ));
        }
        let data_type = self.resolver.time.get_type(self.resolver.input.as_ref())?;
        let kind = NavigationKind::Value { argument: Argument::Input(Expr::Column(time)), end: End::Last, offset: 0, shift: 0 };
        let navigation = Navigation { kind, symbols: None, running: false, data_type };
        Ok(SqlExpr::Identifier(self.resolver.navigation(navigation, at)))
    }

    /// The symbols that `CLASSIFIER([variable])` asks for.
    fn classified(&self, function: &Function, at: TokenSpan) -> Result<Option<Vec<usize>>> {
        match plain_arguments(function).as_deref() {
            Some([]) => Ok(None),
            Some([SqlExpr::Identifier(name)]) => match self.resolver.names.find(&name.value) {
                Some(symbols) => Ok(Some(symbols)),
                None => Err(self.resolver.unknown_variable(name, "CLASSIFIER()")),
            },
            _ => Err(self.resolver.fail(at, "CLASSIFIER takes a pattern variable or nothing", "write CLASSIFIER()")),
        }
    }

    /// `FIRST(x [, n])`, `LAST(x [, n])`, `PREV(x [, n])`, `NEXT(x [, n])`, and one of the former in one of
    /// the latter.
    fn navigation(&mut self, name: &str, function: &Function, at: TokenSpan) -> Result<SqlExpr> {
        let (mut argument, count) = self.counted(name, function, at)?;
        let (mut end, mut offset, mut shift, mut whole) = (End::Last, 0, 0, self.whole);
        match name {
            "FIRST" => (end, offset) = (End::First, count.unwrap_or(0)),
            "LAST" => offset = count.unwrap_or(0),
            _ => {
                let rows = i64::from(count.unwrap_or(1));
                shift = if name == "PREV" { -rows } else { rows };
                // PREV(FINAL LAST(x), 2)
                if let Some((semantics, inner)) = below_semantics(&argument) {
                    let written = if semantics { "FINAL" } else { "RUNNING" };
                    self.measures_only(written, at, "a condition sees the rows up to the current one")?;
                    whole = semantics;
                    argument = inner;
                }
                if let SqlExpr::Function(inner) = &argument
                    && let Some((inner_name, inner_at)) = name_of(inner)
                    && ["FIRST", "LAST"].contains(&inner_name.as_str())
                {
                    let (value, count) = self.counted(&inner_name, inner, inner_at)?;
                    end = if inner_name == "FIRST" { End::First } else { End::Last };
                    offset = count.unwrap_or(0);
                    argument = value;
                }
            }
        }
        if let SqlExpr::Function(inner) = &argument
            && let Some((inner_name, inner_at)) = name_of(inner)
            && NAVIGATIONS.contains(&inner_name.as_str())
        {
            return Err(self.resolver.fail(
                inner_at,
                format!("{inner_name} cannot stand in {name}"),
                "PREV and NEXT stand outside: PREV(LAST(A.price, 1), 2)",
            ));
        }
        let (looked_at, mut symbols, data_type, stripped) = match &argument {
            SqlExpr::Function(inner) if name_of(inner).is_some_and(|(n, _)| n == "CLASSIFIER") => {
                (Argument::Classifier, self.classified(inner, at)?, DataType::Utf8, None)
            }
            _ => {
                let (stripped, symbols) = self.rows_of(name, argument.clone())?;
                let planned = self.context.sql_to_expr(stripped.clone(), &self.resolver.input)?;
                let planned = self.resolver.typed(planned, self.resolver.input.clone())?;
                let data_type = planned.get_type(self.resolver.input.as_ref())?;
                (Argument::Input(planned), symbols, data_type, Some(stripped))
            }
        };
        if let Place::Condition(symbol) = self.place
            && (end, offset) == (End::Last, 0)
            && symbols.as_ref().is_none_or(|s| s.contains(&symbol))
        {
            // The row that is tried is the last one of the match.
            symbols = None;
            if let (0, Some(current)) = (shift, stripped) {
                return Ok(SqlExpr::Nested(Box::new(current)));
            }
        }
        let running = match self.place {
            Place::Condition(_) => true,
            Place::Measure { all_rows, .. } => all_rows && !whole,
        };
        let kind = NavigationKind::Value { argument: looked_at, end, offset: offset as usize, shift };
        Ok(SqlExpr::Identifier(self.resolver.navigation(Navigation { kind, symbols, running, data_type }, at)))
    }

    /// The value and the count of a navigation's arguments.
    fn counted(&self, name: &str, function: &Function, at: TokenSpan) -> Result<(SqlExpr, Option<u32>)> {
        let usage = format!("write {name}(A.price) or {name}(A.price, 1)");
        match plain_arguments(function).as_deref() {
            Some([value]) => Ok(((*value).clone(), None)),
            Some([value, count]) => {
                let number = match count {
                    SqlExpr::Value(v) => match &v.value {
                        Value::Number(text, _) => text.parse().ok(),
                        _ => None,
                    },
                    _ => None,
                };
                match number {
                    Some(number) => Ok(((*value).clone(), Some(number))),
                    None => Err(self.resolver.fail(count.span(), format!("{name}: how many rows is a whole number, not {count}"), &usage)),
                }
            }
            _ => Err(self.resolver.fail(at, format!("{name} takes a value, and perhaps a number of rows"), &usage)),
        }
    }

    /// An expression without the variables before its columns, and the rows that they are of.
    fn rows_of(&self, name: &str, mut expr: SqlExpr) -> Result<(SqlExpr, Option<Vec<usize>>)> {
        let mut strip = Strip { resolver: &*self.resolver, function: name, rows: Rows::default(), done: Vec::new(), outermost: None };
        outer_first_mut(&mut expr, &mut |e| strip.step(e))?;
        let symbols = strip.rows.of.and_then(|(_, symbols)| symbols);
        Ok((expr, symbols))
    }

    /// An aggregate over the rows of a variable, or of the match.
    fn aggregate(&mut self, function: &Function, at: TokenSpan) -> Result<SqlExpr> {
        let name = name_of(function).map(|(n, _)| n).unwrap_or_default();
        let mut stripped = function.clone();
        let mut strip = Strip { resolver: &*self.resolver, function: &name, rows: Rows::default(), done: Vec::new(), outermost: Some(at) };
        if let FunctionArguments::List(list) = &mut stripped.args {
            for arg in &mut list.args {
                // COUNT(A.*)
                if let FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(of)) = arg {
                    let Some(ident) = of.0.first().and_then(|p| p.as_ident()) else { continue };
                    strip.variable(ident, "COUNT(*)")?;
                    *arg = FunctionArg::Unnamed(FunctionArgExpr::Wildcard);
                }
            }
        }
        let mut expr = SqlExpr::Function(stripped);
        outer_first_mut(&mut expr, &mut |e| strip.step(e))?;
        let symbols = strip.rows.of.and_then(|(_, symbols)| symbols);
        let input = self.resolver.input.clone();
        let planned = self.context.sql_to_expr(expr, &input)?;
        let planned = rewrite_plan::expr(planned, &input, self.resolver.functions)?.unalias();
        if !matches!(planned, Expr::AggregateFunction(_)) {
            return Err(self.resolver.fail(at, format!("{name} cannot stand here"), "use SUM, COUNT, AVG, MIN or MAX"));
        }
        // The average of whole numbers is a whole number.
        let Some(whole) = rewrite_plan::whole_average(&planned, &input) else { return self.looked_up(planned, symbols, at) };
        let functions = self.resolver.functions;
        let sum = self.looked_up(rewrite_plan::with_function(&planned, "sum", functions), symbols.clone(), at)?;
        let count = self.looked_up(rewrite_plan::with_function(&planned, "count", functions), symbols, at)?;
        let quotient = SqlExpr::BinaryOp { left: Box::new(sum), op: BinaryOperator::Divide, right: Box::new(count) };
        let data_type = match whole {
            DataType::Int8 => SqlType::TinyInt(None),
            DataType::Int16 => SqlType::SmallInt(None),
            DataType::Int32 => SqlType::Int(None),
            _ => SqlType::BigInt(None),
        };
        Ok(SqlExpr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(SqlExpr::Nested(Box::new(quotient))),
            data_type,
            array: false,
            format: None,
        })
    }

    /// The column of an aggregate.
    fn looked_up(&mut self, call: Expr, symbols: Option<Vec<usize>>, at: TokenSpan) -> Result<SqlExpr> {
        let call = tidemill_plan::optimize::coerce(call, &self.resolver.input)?;
        let data_type = call.get_type(self.resolver.input.as_ref())?;
        let running = self.running();
        let navigation = Navigation { kind: NavigationKind::Aggregate { call }, symbols, running, data_type };
        Ok(SqlExpr::Identifier(self.resolver.navigation(navigation, at)))
    }
}

/// The call below FINAL or RUNNING, and whether it is FINAL.
fn below_semantics(expr: &SqlExpr) -> Option<(bool, SqlExpr)> {
    let SqlExpr::Function(outer) = expr else { return None };
    let (name, _) = name_of(outer)?;
    match plain_arguments(outer)?.as_slice() {
        [inner @ SqlExpr::Function(_)] if name == FINAL || name == RUNNING => Some((name == FINAL, (*inner).clone())),
        _ => None,
    }
}

/// Takes the variables away from the columns of an expression that is over rows of one kind.
struct Strip<'s, 'a> {
    resolver: &'s Resolver<'a>,
    /// The function whose argument it is.
    function: &'s str,
    rows: Rows,
    done: Vec<TokenSpan>,
    /// The place of the function itself, where it is part of the expression.
    outermost: Option<TokenSpan>,
}

impl Strip<'_, '_> {
    fn step(&mut self, expr: &mut SqlExpr) -> Result<()> {
        match expr {
            SqlExpr::Function(function) => self.check_call(function)?,
            SqlExpr::Identifier(ident) if !self.done.contains(&ident.span) => {
                self.resolver.column(ident)?;
                self.note("", None, ident.span)?;
            }
            SqlExpr::CompoundIdentifier(idents) if !self.done.contains(&idents[0].span) => *expr = self.qualified(idents)?,
            SqlExpr::CompoundFieldAccess { root, access_chain } => {
                if let Some(idents) = leading_names(root, access_chain)
                    && idents.len() > 1
                {
                    access_chain.drain(..idents.len() - 1);
                    **root = self.qualified(&idents)?;
                    match root.as_ref() {
                        SqlExpr::Identifier(ident) => self.done.push(ident.span),
                        SqlExpr::CompoundIdentifier(idents) => self.done.push(idents[0].span),
                        _ => {}
                    }
                }
            }
            other => refuse_subquery(other, self.resolver)?,
        }
        Ok(())
    }

    /// What looks at other rows cannot be part of what is looked up.
    fn check_call(&mut self, function: &Function) -> Result<()> {
        let Some((name, at)) = name_of(function) else { return Ok(()) };
        if self.outermost == Some(at) {
            return Ok(());
        }
        let functions = self.resolver.functions;
        let aggregate = functions.scalar(&name).is_none() && functions.aggregate(&name).is_some();
        if aggregate
            || NAVIGATIONS.contains(&name.as_str())
            || ["CLASSIFIER", "MATCH_NUMBER", "MATCH_ROWTIME", "MATCH_PROCTIME", FINAL, RUNNING].contains(&name.as_str())
        {
            let name = name.trim_start_matches('_');
            return Err(self.resolver.fail(
                at,
                format!("{name} cannot stand in {}", self.function),
                "what is looked up in a row is an expression over its columns",
            ));
        }
        Ok(())
    }

    fn qualified(&mut self, idents: &[Ident]) -> Result<SqlExpr> {
        let first = &idents[0];
        let rest = if self.resolver.names.find(&first.value).is_some() {
            self.variable(first, &idents[1].value)?;
            self.resolver.column(&idents[1])?;
            &idents[1..]
        } else if self.resolver.input.has_column_with_unqualified_name(&first.value) {
            self.note("", None, first.span)?;
            idents
        } else {
            return Err(self.resolver.unknown_variable(first, &idents[1].value));
        };
        Ok(match rest {
            [column] => SqlExpr::Identifier(column.clone()),
            more => SqlExpr::CompoundIdentifier(more.to_vec()),
        })
    }

    /// Notes that a column of a variable occurs.
    fn variable(&mut self, name: &Ident, column: &str) -> Result<()> {
        match self.resolver.names.find(&name.value) {
            Some(symbols) => self.note(&name.value, Some(symbols), name.span),
            None => Err(self.resolver.unknown_variable(name, column)),
        }
    }

    fn note(&mut self, name: &str, symbols: Option<Vec<usize>>, at: TokenSpan) -> Result<()> {
        let Some((before, _)) = &self.rows.of else {
            self.rows.of = Some((name.to_string(), symbols));
            return Ok(());
        };
        if before == name {
            return Ok(());
        }
        let shown = |name: &str| if name.is_empty() { "all rows".to_string() } else { name.to_string() };
        let message = format!("{} is over the rows of one variable, here are {} and {}", self.function, shown(before), shown(name));
        Err(self.resolver.fail(at, message, "write the same variable before every column; a SUBSET puts variables together"))
    }
}

/// The names that a field access begins with.
fn leading_names(root: &SqlExpr, chain: &[AccessExpr]) -> Option<Vec<Ident>> {
    let SqlExpr::Identifier(first) = root else { return None };
    let more = chain.iter().map_while(|access| match access {
        AccessExpr::Dot(SqlExpr::Identifier(ident)) => Some(ident.clone()),
        _ => None,
    });
    Some(std::iter::once(first.clone()).chain(more).collect())
}

fn refuse_subquery(expr: &SqlExpr, resolver: &Resolver<'_>) -> Result<()> {
    if !matches!(expr, SqlExpr::Subquery(_) | SqlExpr::Exists { .. } | SqlExpr::InSubquery { .. }) {
        return Ok(());
    }
    Err(resolver.fail(expr.span(), "a subquery cannot stand in MATCH_RECOGNIZE", "join before, in the table that is matched"))
}

/// The name of a call, in upper case, and its place.
fn name_of(function: &Function) -> Option<(String, TokenSpan)> {
    match function.name.0.as_slice() {
        [part] => part.as_ident().map(|i| (i.value.to_ascii_uppercase(), i.span)),
        _ => None,
    }
}

/// The arguments of a call that has expressions only.
fn plain_arguments(function: &Function) -> Option<Vec<&SqlExpr>> {
    match &function.args {
        FunctionArguments::List(list) if list.clauses.is_empty() && list.duplicate_treatment.is_none() => list
            .args
            .iter()
            .map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}
