//! From DataFusion's errors to ours: without their wrapping, in the words of this dialect, at a place.

use std::borrow::Cow;
use std::convert::Infallible;

use datafusion_common::{DataFusionError, Diagnostic, SchemaError};
use sqlparser::ast::{Expr, ObjectName, Query, SelectItem};
use sqlparser::tokenizer::{Location, Span as TokenSpan};
use tidemill_plan::message::{flink_types, plain};

use super::catalog::{listed, nearest};
use super::functions::Functions;
use crate::diagnostic::{LineIndex, Span, SqlError};
use crate::walk::{self, Node};

/// The names in a tree with their places: DataFusion often names what is wrong and not where.
#[derive(Default)]
pub(crate) struct Words {
    words: Vec<(String, TokenSpan)>,
}

impl Words {
    pub fn of_query(query: &Query) -> Self {
        let mut words = Words::default();
        let Ok(()) = walk::query::<Infallible>(query, &mut |node| {
            words.note(node);
            Ok(())
        });
        words
    }

    pub fn of_expr(expr: &Expr) -> Self {
        let mut words = Words::default();
        let Ok(()) = walk::expr::<Infallible>(expr, &mut |node| {
            words.note(node);
            Ok(())
        });
        words
    }

    fn note(&mut self, node: Node<'_>) {
        match node {
            Node::Expr(Expr::Identifier(ident)) => self.words.push((ident.value.clone(), ident.span)),
            Node::Expr(Expr::CompoundIdentifier(idents)) => {
                let whole = TokenSpan::union_iter(idents.iter().map(|i| i.span));
                if let Some(last) = idents.last() {
                    self.words.push((last.value.clone(), whole));
                }
                self.words.extend(idents.iter().map(|i| (i.value.clone(), i.span)));
            }
            Node::Expr(Expr::Function(function)) => self.push(&function.name),
            Node::Relation(relation) => self.push(relation),
            Node::Select(select) => {
                for item in &select.projection {
                    if let SelectItem::ExprWithAlias { alias, .. } = item {
                        self.words.push((alias.value.clone(), alias.span));
                    }
                }
            }
            _ => {}
        }
    }

    fn push(&mut self, name: &ObjectName) {
        for ident in name.0.iter().filter_map(|p| p.as_ident()) {
            self.words.push((ident.value.clone(), ident.span));
        }
    }

    /// The first place of a name.
    fn find(&self, word: &str) -> Option<TokenSpan> {
        let exact = self.words.iter().find(|(w, _)| w == word);
        exact.or_else(|| self.words.iter().find(|(w, _)| w.eq_ignore_ascii_case(word))).map(|(_, span)| *span)
    }
}

/// The error as we tell it.
pub(crate) fn sql_error(error: &DataFusionError, lines: &LineIndex<'_>, functions: &Functions, words: &Words) -> SqlError {
    let (leaf, diagnostic) = unwrap(error, None);
    let diagnosed = diagnostic.and_then(|d| d.span).and_then(|span| place(span, lines));
    let at = |name: &str| diagnosed.or_else(|| words.find(name).and_then(|span| lines.span(span)));
    if let DataFusionError::External(inner) = leaf
        && let Some(own) = inner.downcast_ref::<SqlError>()
    {
        return own.clone().or_at(diagnosed);
    }
    if let DataFusionError::SchemaError(schema, _) = leaf {
        return schema_error(schema, &at);
    }
    let text = message(leaf);
    if let Some(name) = text.strip_prefix("Invalid function '").and_then(|rest| rest.split('\'').next()) {
        return unknown_function(name, functions).or_at(at(name));
    }
    if let Some(name) = text.strip_prefix("There is no window function named ") {
        return unknown_function(name, functions).or_at(at(name));
    }
    if let Some(rest) = text.strip_prefix("Column in SELECT must be in GROUP BY or an aggregate function") {
        // "…: While expanding wildcard, column "t.a" must appear in …": the column is what matters.
        let name = quoted(rest, '"').map(|q| q.rsplit('.').next().unwrap_or(q)).unwrap_or_default();
        return SqlError::new(format!("column {name} is neither in GROUP BY nor in an aggregate function"))
            .or_at(at(name))
            .with_help(format!("add {name} to GROUP BY, or take one of its values: MAX({name})"));
    }
    // Whatever is quoted first is likely what is wrong.
    let named = quoted(&text, '\'').or_else(|| quoted(&text, '`')).or_else(|| quoted(&text, '"'));
    let named = named.and_then(|name| words.find(name).or_else(|| words.find(name.rsplit('.').next().unwrap_or(name))));
    let span = diagnosed.or_else(|| named.and_then(|span| lines.span(span)));
    SqlError { message: in_our_words(&text), span, help: advice(&text).map(String::from) }
}

/// The nearest thing that works, for messages of the planner that do not say it.
fn advice(text: &str) -> Option<&'static str> {
    if text.contains("does not support named arguments") {
        return Some("write the arguments without names, in their order");
    }
    if text.contains("WITHIN GROUP is only supported for ordered-set aggregate functions") {
        return Some("leave WITHIN GROUP out, or sort the rows by ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) below");
    }
    None
}

/// A message of the planner with Flink's types and without what it says around it.
fn in_our_words(text: &str) -> String {
    // The functions' own complaint about their arguments, and DataFusion's around it.
    if let Some((_, rest)) = text.split_once("user-defined coercion failed with: ") {
        let inner = rest.split(" No function matches the given name").next().unwrap_or(rest);
        return in_our_words(inner.trim_end_matches('.'));
    }
    if let Some((name, rest)) = text.split_once("Function '").and_then(|(_, rest)| rest.split_once("' failed to match any signature")) {
        let given = rest
            .split("(DataType: ")
            .nth(1)
            .and_then(|t| t.split(").").next())
            .or_else(|| rest.split("types '").nth(1).and_then(|t| t.split('\'').next()));
        let name = name.to_ascii_uppercase();
        return match given {
            Some(given) => format!("{name} does not take {}", flink_types(given)),
            None => format!("{name} does not take these arguments"),
        };
    }
    let mut text = text.trim();
    for prefix in ["Error during planning: ", "Internal error: ", "Execution error: ", "This feature is not implemented: "] {
        text = text.strip_prefix(prefix).unwrap_or(text);
    }
    if let Some((left, rest)) = text.strip_prefix("Cannot coerce arithmetic expression ").and_then(|rest| rest.split_once(' ')) {
        return format!("{} cannot be computed", flink_types(&format!("{left} {}", rest.trim_end_matches(" to valid types"))));
    }
    if let Some(rest) = text.strip_prefix("Cannot create filter with non-boolean predicate ") {
        let given = rest.rsplit(' ').next().unwrap_or(rest);
        return format!("WHERE needs a BOOLEAN, this is {}", flink_types(given));
    }
    if text.contains("unique expression names") {
        let name = text
            .split(" have the same name")
            .next()
            .and_then(|t| t.rsplit_once(" AS "))
            .map_or("", |(_, name)| name.split('"').next().unwrap_or(name));
        return if name.is_empty() {
            "two columns have the same name: give one another with AS".into()
        } else {
            format!("two columns are named {name}")
        };
    }
    if text.starts_with("Fail to find the coerced type") {
        return "the arguments have no common type: CAST some of them".into();
    }
    plain(text.trim_end_matches('.'))
}

/// The error at the bottom, and the diagnostic nearest to it.
fn unwrap<'e>(error: &'e DataFusionError, diagnostic: Option<&'e Diagnostic>) -> (&'e DataFusionError, Option<&'e Diagnostic>) {
    match error {
        DataFusionError::Diagnostic(found, inner) => unwrap(inner, Some(found).filter(|d| d.span.is_some()).map(|d| &**d).or(diagnostic)),
        DataFusionError::Context(_, inner) => unwrap(inner, diagnostic),
        DataFusionError::Shared(inner) => unwrap(inner, diagnostic),
        DataFusionError::Collection(errors) if !errors.is_empty() => unwrap(&errors[0], diagnostic),
        DataFusionError::External(inner) => match inner.downcast_ref::<DataFusionError>() {
            Some(inner) => unwrap(inner, diagnostic),
            None => (error, diagnostic),
        },
        _ => (error, diagnostic),
    }
}

/// What an error says, without the kind of error in front and the backtrace behind.
pub(crate) fn message(error: &DataFusionError) -> Cow<'_, str> {
    let (leaf, _) = unwrap(error, None);
    let text = leaf.message();
    let text = match text.find(DataFusionError::BACK_TRACE_SEP) {
        Some(end) => Cow::Owned(text[..end].to_string()),
        None => text,
    };
    // Further lines list candidates at length.
    match text.find('\n') {
        Some(end) => Cow::Owned(text[..end].trim_end().to_string()),
        None => text,
    }
}

fn place(span: datafusion_common::Span, lines: &LineIndex<'_>) -> Option<Span> {
    let location = |l: datafusion_common::Location| Location::new(l.line, l.column);
    lines.span(TokenSpan::new(location(span.start), location(span.end)))
}

/// The first text between two of these quotes.
fn quoted(text: &str, quote: char) -> Option<&str> {
    let start = text.find(quote)? + quote.len_utf8();
    let length = text[start..].find(quote)?;
    Some(&text[start..start + length])
}

fn schema_error(error: &SchemaError, at: &dyn Fn(&str) -> Option<Span>) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let relation = field.relation.as_ref().map(|r| r.table());
            let known_relation = relation.is_none_or(|r| valid_fields.iter().any(|f| f.relation.as_ref().is_some_and(|q| q.table() == r)));
            let error = match relation {
                Some(relation) if !known_relation => SqlError::new(format!("there is no {relation} in FROM")),
                Some(relation) => SqlError::new(format!("there is no column {} in {relation}", field.name)),
                None => SqlError::new(format!("there is no column {}", field.name)),
            };
            let error = error.or_at(at(&field.name));
            if let (Some(relation), false) = (relation, known_relation) {
                let mut relations: Vec<&str> = valid_fields.iter().filter_map(|f| f.relation.as_ref().map(|q| q.table())).collect();
                relations.dedup();
                return match nearest(relation, relations.iter().copied()) {
                    Some(near) => error.with_help(format!("did you mean {near}.{}?", field.name)),
                    None if relations.is_empty() => error.with_help(format!("write {} alone", field.name)),
                    None => error.with_help(format!("in FROM {}", listed(relations.into_iter()))),
                };
            }
            column_help(error, &field.name, valid_fields.iter().map(|f| f.name.as_str()))
        }
        SchemaError::AmbiguousReference { field } => SqlError::new(format!("column {} is in more than one table of FROM", field.name))
            .or_at(at(&field.name))
            .with_help(format!("write the table in front of it: t.{}", field.name)),
        SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => {
            SqlError::new(format!("two columns are named {name}"))
                .or_at(at(name))
                .with_help(format!("give one of them another name: {name} AS …"))
        }
    }
}

/// The error with the nearest of the columns as advice, or with all of them.
pub(crate) fn column_help<'a>(error: SqlError, name: &str, columns: impl Iterator<Item = &'a str>) -> SqlError {
    let columns: Vec<&str> = columns.collect();
    match nearest(name, columns.iter().copied()) {
        Some(near) if near.eq_ignore_ascii_case(name) => error.with_help(format!("names are case-sensitive: there is {near}")),
        Some(near) => error.with_help(format!("did you mean {near}?")),
        None if columns.is_empty() => error.with_help("there are no columns here"),
        None => error.with_help(listed(columns.into_iter())),
    }
}

fn unknown_function(name: &str, functions: &Functions) -> SqlError {
    let upper = name.to_ascii_uppercase();
    if ["TUMBLE", "HOP", "CUMULATE", "SESSION"]
        .iter()
        .any(|w| upper.strip_prefix(w).is_some_and(|rest| rest.is_empty() || rest.starts_with('_')))
    {
        return SqlError::new(format!("{upper} cannot stand here")).with_help(
            "group windows are written FROM TUMBLE(TABLE t, DESCRIPTOR(rt), INTERVAL '1' MINUTE) … GROUP BY window_start, window_end",
        );
    }
    if functions.window(name).is_some() {
        return SqlError::new(format!("{upper} needs a window")).with_help(format!("write {upper}(…) OVER (PARTITION BY k ORDER BY rt)"));
    }
    if functions.user(name).is_some() {
        return SqlError::new(format!("function {name} gives a table: it cannot stand here"))
            .with_help(format!("write SELECT * FROM {name}(TABLE t PARTITION BY k)"));
    }
    let error = SqlError::new(format!("there is no function {upper}"));
    match nearest(name, functions.names()) {
        Some(near) => error.with_help(format!("did you mean {}? `tidemill reference` lists all", near.to_ascii_uppercase())),
        None => error.with_help("`tidemill reference` lists all there are"),
    }
}
