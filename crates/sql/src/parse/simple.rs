//! The short statements: INSERT, COPY, SET, RESET, DROP, SHOW, DESCRIBE.

use std::ops::Range;

use sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::function;
use super::script::Script;
use crate::ast::{CopySource, Insert, StatementKind};
use crate::diagnostic::{Span, SqlError};

/// `INSERT INTO|OVERWRITE name [(columns)] query [ON CONFLICT DO DEDUPLICATE]`.
pub(crate) fn insert(c: &mut Cursor<'_>) -> Result<Insert, SqlError> {
    let start = c.position();
    c.expect("INSERT")?;
    let overwrite = c.accept("OVERWRITE");
    if !overwrite && !c.accept("INTO") {
        return Err(c.expected("INTO or OVERWRITE"));
    }
    let table = c.name("the name of a table")?;
    if c.is(0, "PARTITION") {
        return Err(SqlError::at(c.here(), "INSERT … PARTITION (…) is not supported")
            .with_help("write the value of the partition as a column of the query"));
    }
    let query_in_parentheses =
        || ["SELECT", "WITH", "VALUES", "TABLE"].iter().any(|w| c.is(1, w)) || c.parser.peek_nth_token_ref(1).token == Token::LParen;
    let columns = if *c.peek() == Token::LParen && !query_in_parentheses() { c.idents("the name of a column")? } else { Vec::new() };
    let query = c.query()?;
    let deduplicate = if c.is(0, "ON") { Some(on_conflict(c)?) } else { None };
    Ok(Insert { table, columns, overwrite, query, deduplicate, span: c.since(start) })
}

/// `ON CONFLICT DO DEDUPLICATE`, and where it stands. What else it may say is refused.
fn on_conflict(c: &mut Cursor<'_>) -> Result<Span, SqlError> {
    let start = c.position();
    c.expect("ON")?;
    c.expect("CONFLICT")?;
    c.expect("DO")?;
    if c.accept("NOTHING") {
        return Err(SqlError::at(c.since(start), "ON CONFLICT DO NOTHING is not supported: of rows with one key the newest stays")
            .with_help("QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY rt) = 1 at the end of the query keeps the first of each key"));
    }
    if c.accept("ERROR") {
        return Err(SqlError::at(c.since(start), "ON CONFLICT DO ERROR is not supported: of rows with one key the newest stays")
            .with_help("leave it out; SELECT k FROM t GROUP BY k HAVING COUNT(*) > 1 finds keys that are there more than once"));
    }
    if !c.accept("DEDUPLICATE") {
        return Err(c.expected("DEDUPLICATE"));
    }
    Ok(c.since(start))
}

/// `COPY source TO 'path' [[WITH] (options)]`.
pub(crate) fn copy(c: &mut Cursor<'_>) -> Result<StatementKind, SqlError> {
    c.expect("COPY")?;
    let source = match c.peek() {
        Token::LParen => {
            c.expect_token(&Token::LParen)?;
            let query = c.query()?;
            c.expect_token(&Token::RParen)?;
            CopySource::Query(query)
        }
        Token::Word(_) | Token::SingleQuotedString(_) => CopySource::Table(c.run(|p| p.parse_object_name(false))?),
        _ => return Err(c.expected("the name of a table, a file in single quotes, or a query in parentheses")),
    };
    if c.is(0, "FROM") {
        return Err(SqlError::at(c.here(), "COPY … FROM is not supported").with_help("write INSERT INTO t SELECT * FROM 'file.csv'"));
    }
    c.expect("TO")?;
    let to = c.text("the path or URL to write")?;
    let mut options: Vec<(String, String)> = Vec::new();
    c.accept("WITH");
    if c.accept_token(&Token::LParen) && !c.accept_token(&Token::RParen) {
        loop {
            let here = c.here();
            let key = match c.peek().clone() {
                Token::Word(w) => w.value.to_ascii_lowercase(),
                Token::SingleQuotedString(s) => s,
                _ => return Err(c.expected("the name of an option")),
            };
            c.parser.advance_token();
            if options.iter().any(|(k, _)| *k == key) {
                return Err(SqlError::at(here, format!("option {key} is there twice")));
            }
            c.accept_token(&Token::Eq);
            let value = copy_value(c, &key)?;
            options.push((key, value));
            if !c.accept_token(&Token::Comma) {
                break;
            }
        }
        c.expect_token(&Token::RParen)?;
    }
    Ok(StatementKind::Copy { source, to, options })
}

/// A word, a text, a number, a list of names in parentheses, or nothing: a flag that is on.
fn copy_value(c: &mut Cursor<'_>, key: &str) -> Result<String, SqlError> {
    let value = match c.peek().clone() {
        Token::Comma | Token::RParen => return Ok("true".into()),
        Token::LParen => {
            let names = c.idents("a name")?;
            return Ok(names.into_iter().map(|n| n.value).collect::<Vec<_>>().join(","));
        }
        Token::Word(w) => w.value,
        Token::SingleQuotedString(s) | Token::Number(s, _) => s,
        _ => return Err(c.expected(&format!("the value of option {key}"))),
    };
    c.parser.advance_token();
    Ok(value)
}

/// `SET 'key' = 'value'` or `SET key = value`. Unquoted, both sides are the text as it stands.
pub(crate) fn set(script: &Script<'_>, range: &Range<usize>) -> Result<StatementKind, SqlError> {
    let body = range.start + 1..range.end;
    let usage = "write SET 'key' = 'value'";
    let Some(equals) = body.clone().find(|i| script.tokens[*i].token == Token::Eq) else {
        return Err(SqlError::at(script.range_span(range.clone()), "SET needs a key, '=' and a value").with_help(usage));
    };
    let side = |part: Range<usize>, what: &str| {
        if part.is_empty() {
            return Err(SqlError::at(script.range_span(range.clone()), format!("SET: the {what} is missing")).with_help(usage));
        }
        match &script.tokens[part.start].token {
            Token::SingleQuotedString(s) if part.len() == 1 => Ok(s.clone()),
            _ if script.tokens[part.clone()].iter().any(|t| matches!(t.token, Token::SingleQuotedString(_))) => {
                Err(SqlError::at(script.range_span(part), format!("SET: the {what} is either one text in quotes or has none"))
                    .with_help(usage))
            }
            _ => Ok(script.range_span(part).text(script.lines.text()).to_string()),
        }
    };
    Ok(StatementKind::Set { key: side(body.start..equals, "key")?, value: side(equals + 1..body.end, "value")? })
}

/// `RESET ['key']`.
pub(crate) fn reset(script: &Script<'_>, range: &Range<usize>) -> Result<StatementKind, SqlError> {
    let body = range.start + 1..range.end;
    let key = match script.tokens[body.clone()].first().map(|t| &t.token) {
        None => None,
        Some(Token::SingleQuotedString(s)) if body.len() == 1 => Some(s.clone()),
        Some(Token::SingleQuotedString(_)) => {
            return Err(SqlError::at(script.range_span(body.start + 1..body.end), "RESET takes one key").with_help("write RESET 'key'"));
        }
        Some(_) => Some(script.range_span(body).text(script.lines.text()).to_string()),
    };
    Ok(StatementKind::Reset { key })
}

/// `DROP [TEMPORARY] TABLE|VIEW|FUNCTION [IF EXISTS] name`.
pub(crate) fn drop(c: &mut Cursor<'_>) -> Result<StatementKind, SqlError> {
    c.expect("DROP")?;
    c.accept("TEMPORARY");
    if c.accept("FUNCTION") {
        return function::drop_function(c);
    }
    let table = c.accept("TABLE");
    if !table && !c.accept("VIEW") {
        return Err(c.expected("TABLE, VIEW or FUNCTION"));
    }
    let if_exists = c.accept_all(&["IF", "EXISTS"]);
    let name = c.name("a name")?;
    Ok(if table { StatementKind::DropTable { if_exists, name } } else { StatementKind::DropView { if_exists, name } })
}

/// `SHOW TABLES`, `SHOW CREATE TABLE name`.
pub(crate) fn show(c: &mut Cursor<'_>) -> Result<StatementKind, SqlError> {
    c.expect("SHOW")?;
    if c.accept("TABLES") {
        return Ok(StatementKind::ShowTables);
    }
    if c.accept_all(&["CREATE", "TABLE"]) {
        return Ok(StatementKind::ShowCreateTable { name: c.name("the name of a table")? });
    }
    Err(c.expected("TABLES or CREATE TABLE"))
}

/// `DESCRIBE|DESC [EXTENDED] [TABLE] name`.
pub(crate) fn describe(c: &mut Cursor<'_>) -> Result<StatementKind, SqlError> {
    if !c.accept("DESC") {
        c.expect("DESCRIBE")?;
    }
    if matches!(c.parser.peek_nth_token_ref(1).token, Token::Word(_)) && !c.accept("EXTENDED") {
        c.accept("TABLE");
    }
    Ok(StatementKind::Describe { name: c.name("the name of a table or view")? })
}
