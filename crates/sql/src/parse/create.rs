//! `CREATE TABLE` and `CREATE VIEW`, which sqlparser cannot read in Flink's form. `CREATE FUNCTION` is in `function`.

use std::collections::HashSet;

use sqlparser::ast::Ident;
use sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::function;
use crate::ast::{CreateTable, ItemKind, LikeClause, LikeFeature, LikeOption, LikeStrategy, StatementKind, TableItem, TableOption};
use crate::diagnostic::SqlError;
use crate::types::{arrow_type, parse_nullability, parse_type};

/// Reads from `CREATE` on.
pub(crate) fn create(c: &mut Cursor<'_>) -> Result<StatementKind, SqlError> {
    let start = c.position();
    c.expect("CREATE")?;
    let temporary = c.accept("TEMPORARY");
    if c.accept("TABLE") {
        return create_table(c, temporary).map(StatementKind::CreateTable);
    }
    if c.accept("VIEW") {
        return create_view(c, temporary);
    }
    if c.accept("FUNCTION") {
        return function::create_function(c, temporary, start);
    }
    Err(c.expected("TABLE, VIEW or FUNCTION"))
}

pub(super) fn if_not_exists(c: &mut Cursor<'_>) -> bool {
    c.accept_all(&["IF", "NOT", "EXISTS"])
}

fn create_view(c: &mut Cursor<'_>, temporary: bool) -> Result<StatementKind, SqlError> {
    let if_not_exists = if_not_exists(c);
    let name = c.name("the name of the view")?;
    let mut columns = Vec::new();
    if c.accept_token(&Token::LParen) {
        loop {
            columns.push(c.ident("the name of a column")?);
            comment(c)?;
            if !c.accept_token(&Token::Comma) {
                break;
            }
        }
        c.expect_token(&Token::RParen)?;
    }
    comment(c)?;
    c.expect("AS")?;
    let query = c.query()?;
    Ok(StatementKind::CreateView { temporary, if_not_exists, name, columns, query })
}

fn comment(c: &mut Cursor<'_>) -> Result<Option<String>, SqlError> {
    if c.accept("COMMENT") { c.text("a comment").map(Some) } else { Ok(None) }
}

fn create_table(c: &mut Cursor<'_>, temporary: bool) -> Result<CreateTable, SqlError> {
    let if_not_exists = if_not_exists(c);
    let name = c.name("the name of the table")?;
    let items = if c.accept_token(&Token::LParen) { table_items(c)? } else { Vec::new() };
    let comment = comment(c)?;
    if c.is(0, "DISTRIBUTED") {
        return Err(SqlError::at(
            c.here(),
            "DISTRIBUTED BY is not supported: rows are distributed by the keys of the query that reads them",
        )
        .with_help("leave it out"));
    }
    let partitioned_by = if c.accept("PARTITIONED") {
        c.expect("BY")?;
        c.idents("the name of a column")?
    } else {
        Vec::new()
    };
    let options = if c.accept("WITH") { table_options(c)? } else { Vec::new() };
    let like = if c.is(0, "LIKE") { Some(like(c)?) } else { None };
    let here = c.here();
    let query = if c.accept("AS") {
        if like.is_some() {
            return Err(SqlError::at(here, "a table has either LIKE or AS, not both"));
        }
        Some(c.query()?)
    } else {
        None
    };
    Ok(CreateTable { temporary, if_not_exists, name, items, comment, partitioned_by, options, like, query })
}

fn table_items(c: &mut Cursor<'_>) -> Result<Vec<TableItem>, SqlError> {
    let mut items: Vec<TableItem> = Vec::new();
    let mut names = HashSet::new();
    let mut watermark = false;
    let mut primary_key = false;
    loop {
        let start = c.position();
        let kind = table_item(c)?;
        let item = TableItem { kind, span: c.since(start) };
        if let Some(column) = item.column()
            && !names.insert(column.value.clone())
        {
            return Err(SqlError::at(item.span, format!("column {column} is defined twice")));
        }
        let twice = match &item.kind {
            ItemKind::Watermark { .. } => std::mem::replace(&mut watermark, true).then_some("watermark"),
            ItemKind::PrimaryKey { .. } | ItemKind::Physical { primary_key: true, .. } => {
                std::mem::replace(&mut primary_key, true).then_some("primary key")
            }
            _ => None,
        };
        if let Some(what) = twice {
            return Err(SqlError::at(item.span, format!("a table has at most one {what}")));
        }
        items.push(item);
        if !c.accept_token(&Token::Comma) {
            break;
        }
        if *c.peek() == Token::RParen {
            return Err(c.expected("another column after the comma"));
        }
    }
    if *c.peek() != Token::RParen {
        return Err(c.expected("',' or ')' after the definition of a column"));
    }
    c.expect_token(&Token::RParen)?;
    Ok(items)
}

fn table_item(c: &mut Cursor<'_>) -> Result<ItemKind, SqlError> {
    if c.accept_all(&["WATERMARK", "FOR"]) {
        let column = c.ident("the name of the time column")?;
        if *c.peek() == Token::Period {
            return Err(SqlError::at(c.here(), "the time column of a watermark stands on its own, not inside a ROW")
                .with_help(format!("define a column for it: ts AS {column}.…, WATERMARK FOR ts AS …")));
        }
        c.expect("AS")?;
        return Ok(ItemKind::Watermark { column, expr: Box::new(c.expr()?) });
    }
    let constraint = c.is(0, "CONSTRAINT") && (c.is(2, "PRIMARY") || c.is(2, "UNIQUE") || c.is(2, "CHECK") || c.is(2, "FOREIGN"));
    if constraint {
        c.accept("CONSTRAINT");
        c.ident("the name of the constraint")?;
    }
    if c.is(0, "PRIMARY") && c.is(1, "KEY") {
        let start = c.position();
        c.accept_all(&["PRIMARY", "KEY"]);
        let columns = c.idents("the name of a column")?;
        not_enforced(c, start)?;
        return Ok(ItemKind::PrimaryKey { columns });
    }
    let table_constraint = matches!(c.parser.peek_nth_token_ref(1).token, Token::LParen) && (c.is(0, "UNIQUE") || c.is(0, "CHECK"));
    if constraint || table_constraint || (c.is(0, "FOREIGN") && c.is(1, "KEY")) {
        return Err(
            SqlError::at(c.here(), "the only constraint of a table is its primary key").with_help("write PRIMARY KEY (a, b) NOT ENFORCED")
        );
    }
    let name = c.ident("a column, WATERMARK or PRIMARY KEY")?;
    column(c, name)
}

fn column(c: &mut Cursor<'_>, name: Ident) -> Result<ItemKind, SqlError> {
    if c.accept("AS") {
        let expr = Box::new(c.expr()?);
        return Ok(ItemKind::Computed { name, expr, comment: comment(c)? });
    }
    if !matches!(c.peek(), Token::Word(_)) {
        return Err(c.expected(&format!("the type of column {name}, or AS and an expression")));
    }
    let here = c.here();
    let sql_type = c.run(parse_type)?;
    let data_type = arrow_type(&sql_type).map_err(|e| e.or_at(Some(here)))?;
    let mut nullable = c.run(parse_nullability)?;
    if c.accept("METADATA") {
        let key = if c.accept("FROM") { c.text("the connector's name of the metadata")? } else { name.value.clone() };
        let is_virtual = c.accept("VIRTUAL");
        return Ok(ItemKind::Metadata { name, data_type, nullable, key, is_virtual, comment: comment(c)? });
    }
    if c.is(0, "CONSTRAINT") && c.is(2, "PRIMARY") {
        c.accept("CONSTRAINT");
        c.ident("the name of the constraint")?;
    }
    let start = c.position();
    let primary_key = c.accept_all(&["PRIMARY", "KEY"]);
    if primary_key {
        not_enforced(c, start)?;
        nullable = false;
    }
    for (word, help) in [
        ("DEFAULT", "write COALESCE(column, value) where the table is read"),
        ("GENERATED", "write name AS expression, without a type"),
        ("UNIQUE", "a primary key is the only constraint: PRIMARY KEY NOT ENFORCED"),
        ("CHECK", "filter with WHERE where the table is read"),
        ("REFERENCES", "leave it out"),
    ] {
        if c.is(0, word) {
            return Err(SqlError::at(c.here(), format!("{word} is not part of a column in Flink SQL")).with_help(help));
        }
    }
    Ok(ItemKind::Physical { name, data_type, nullable, primary_key, comment: comment(c)? })
}

/// A primary key is a promise about the data, not a check of it: Flink wants that said.
fn not_enforced(c: &mut Cursor<'_>, start: usize) -> Result<(), SqlError> {
    if c.accept_all(&["NOT", "ENFORCED"]) {
        return Ok(());
    }
    let message = "a primary key must be declared NOT ENFORCED: it is a promise about the data that nobody checks";
    let span = if c.is(0, "ENFORCED") { c.here() } else { c.since(start) };
    Err(SqlError::at(span, message).with_help("write PRIMARY KEY … NOT ENFORCED"))
}

pub(super) fn table_options(c: &mut Cursor<'_>) -> Result<Vec<TableOption>, SqlError> {
    c.expect_token(&Token::LParen)?;
    let mut options: Vec<TableOption> = Vec::new();
    if c.accept_token(&Token::RParen) {
        return Ok(options);
    }
    loop {
        let start = c.position();
        let key = c.text("the key of an option")?;
        c.expect_token(&Token::Eq)?;
        let value = c.text(&format!("the value of '{key}'"))?;
        let span = c.since(start);
        if options.iter().any(|o| o.key == key) {
            return Err(SqlError::at(span, format!("option '{key}' is there twice")));
        }
        options.push(TableOption { key, value, span });
        if !c.accept_token(&Token::Comma) {
            break;
        }
    }
    if *c.peek() != Token::RParen {
        return Err(c.expected("',' or ')' after an option"));
    }
    c.expect_token(&Token::RParen)?;
    Ok(options)
}

fn like(c: &mut Cursor<'_>) -> Result<LikeClause, SqlError> {
    let start = c.position();
    c.expect("LIKE")?;
    let table = c.name("the name of a table")?;
    let mut options: Vec<LikeOption> = Vec::new();
    if c.accept_token(&Token::LParen) {
        while !c.accept_token(&Token::RParen) {
            let here = c.here();
            let strategy = if c.accept("INCLUDING") {
                LikeStrategy::Including
            } else if c.accept("EXCLUDING") {
                LikeStrategy::Excluding
            } else if c.accept("OVERWRITING") {
                LikeStrategy::Overwriting
            } else {
                return Err(c.expected("INCLUDING, EXCLUDING, OVERWRITING or ')'"));
            };
            let feature = like_feature(c)?;
            use LikeFeature::{All, Constraints, Distribution, Partitions};
            if strategy == LikeStrategy::Overwriting && matches!(feature, All | Constraints | Distribution | Partitions) {
                return Err(SqlError::at(here, "only GENERATED, METADATA, OPTIONS and WATERMARKS can be overwritten")
                    .with_help("the others are taken over or left out: INCLUDING, EXCLUDING"));
            }
            if options.iter().any(|o| o.feature == feature) {
                return Err(SqlError::at(here, "the same choice is made twice"));
            }
            options.push(LikeOption { strategy, feature });
        }
    }
    Ok(LikeClause { table, options, span: c.since(start) })
}

fn like_feature(c: &mut Cursor<'_>) -> Result<LikeFeature, SqlError> {
    let features = [
        ("ALL", LikeFeature::All),
        ("CONSTRAINTS", LikeFeature::Constraints),
        ("DISTRIBUTION", LikeFeature::Distribution),
        ("GENERATED", LikeFeature::Generated),
        ("METADATA", LikeFeature::Metadata),
        ("OPTIONS", LikeFeature::Options),
        ("PARTITIONS", LikeFeature::Partitions),
        ("WATERMARKS", LikeFeature::Watermarks),
    ];
    for (word, feature) in features {
        if c.accept(word) {
            return Ok(feature);
        }
    }
    Err(c.expected("one of ALL, CONSTRAINTS, DISTRIBUTION, GENERATED, METADATA, OPTIONS, PARTITIONS, WATERMARKS"))
}
