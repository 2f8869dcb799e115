//! `CREATE FUNCTION` and `DROP FUNCTION`. Only functions of processes are taken; the languages that Flink
//! knows are refused by name, with what works instead.

use sqlparser::ast::Ident;
use sqlparser::tokenizer::Token;

use super::create::{if_not_exists, table_options};
use super::cursor::Cursor;
use crate::ast::{CreateFunction, FunctionReturns, StatementKind};
use crate::diagnostic::SqlError;
use crate::types::{arrow_type, parse_nullability, parse_type};

const USAGE: &str = "write CREATE FUNCTION f (a BIGINT) RETURNS BIGINT LANGUAGE PROCESS AS 'program arguments'";

/// Reads behind `CREATE [TEMPORARY] FUNCTION`; `start` is where the statement begins.
pub(super) fn create_function(c: &mut Cursor<'_>, temporary: bool, start: usize) -> Result<StatementKind, SqlError> {
    let if_not_exists = if_not_exists(c);
    let name = c.name("the name of the function")?;
    let parameters = if *c.peek() == Token::LParen { columns(c, "a parameter")? } else { Vec::new() };
    let (mut returns, mut command, mut options) = (None, None, None);
    let mut language = false;
    while *c.peek() != Token::EOF {
        let here = c.here();
        let twice = |what: &str| SqlError::at(here, format!("{what} is there twice"));
        if c.accept("RETURNS") {
            let given = if c.accept("TABLE") {
                FunctionReturns::Table(columns(c, "a column")?)
            } else {
                FunctionReturns::Value(data_type(c, "the type that the function returns, or TABLE (…)")?)
            };
            if returns.replace(given).is_some() {
                return Err(twice("RETURNS"));
            }
        } else if c.accept("LANGUAGE") {
            if std::mem::replace(&mut language, true) {
                return Err(twice("LANGUAGE"));
            }
            read_language(c)?;
        } else if c.accept("AS") {
            if command.replace(c.text("the command that runs the function")?).is_some() {
                return Err(twice("AS"));
            }
        } else if c.accept("WITH") {
            if options.replace(table_options(c)?).is_some() {
                return Err(twice("WITH"));
            }
        } else if c.is(0, "USING") {
            return Err(SqlError::at(here, "USING is not supported: no files of code are loaded into this process")
                .with_help("LANGUAGE PROCESS AS 'program arguments' runs a program that is there, in any language"));
        } else {
            return Err(c.expected("RETURNS, LANGUAGE, AS or WITH"));
        }
    }
    let whole = c.since(start);
    if !language {
        return Err(SqlError::at(whole, "a function without LANGUAGE would be a class of Java, and no Java runs in this process")
            .with_help("a program in any language can be one: RETURNS type LANGUAGE PROCESS AS 'program arguments'"));
    }
    let Some(returns) = returns else {
        return Err(SqlError::at(whole, "what the function returns is missing").with_help(USAGE));
    };
    let Some(command) = command else {
        return Err(SqlError::at(whole, "the command that runs the function is missing").with_help(USAGE));
    };
    if matches!(returns, FunctionReturns::Table(_)) && !parameters.is_empty() {
        return Err(SqlError::at(whole, "a function that returns a TABLE gets all columns of the table that it is called with")
            .with_help("leave its parameters out; it is called SELECT * FROM f(TABLE t PARTITION BY k)"));
    }
    let options = options.unwrap_or_default();
    Ok(StatementKind::CreateFunction(Box::new(CreateFunction { temporary, if_not_exists, name, parameters, returns, command, options })))
}

/// Reads from `FUNCTION` on.
pub(super) fn drop_function(c: &mut Cursor<'_>) -> Result<StatementKind, SqlError> {
    let if_exists = c.accept_all(&["IF", "EXISTS"]);
    Ok(StatementKind::DropFunction { if_exists, name: c.name("the name of the function")? })
}

fn read_language(c: &mut Cursor<'_>) -> Result<(), SqlError> {
    let here = c.here();
    let language = c.ident("the language: PROCESS")?.value.to_ascii_uppercase();
    let (why, help) = match language.as_str() {
        "PROCESS" => return Ok(()),
        "JAVA" | "SCALA" => (
            "no Java virtual machine runs in this process",
            "a program of its own can be the function, in Java too: LANGUAGE PROCESS AS 'java -jar f.jar' (docs/functions.md says what it reads and writes)",
        ),
        "PYTHON" => (
            "no Python runs in this process",
            "a Python program can be the function: LANGUAGE PROCESS AS 'python3 f.py' (docs/functions.md has one to copy)",
        ),
        "SQL" => {
            ("Flink has no functions in SQL either", "a view, or a column computed in one: CREATE VIEW v AS SELECT *, a + b AS c FROM t")
        }
        _ => ("it is not known", "a program in any language can be the function: LANGUAGE PROCESS AS 'program arguments'"),
    };
    Err(SqlError::at(here, format!("LANGUAGE {language} is not supported: {why}")).with_help(help))
}

/// `(a TYPE, …)`, perhaps none.
fn columns(c: &mut Cursor<'_>, what: &str) -> Result<Vec<(Ident, arrow::datatypes::DataType)>, SqlError> {
    c.expect_token(&Token::LParen)?;
    let mut columns: Vec<(Ident, arrow::datatypes::DataType)> = Vec::new();
    if c.accept_token(&Token::RParen) {
        return Ok(columns);
    }
    loop {
        let here = c.here();
        let name = c.ident(&format!("the name of {what}"))?;
        if columns.iter().any(|(n, _)| n.value == name.value) {
            return Err(SqlError::at(here, format!("{what} named {name} is there already")));
        }
        let data_type = data_type(c, &format!("the type of {name}"))?;
        columns.push((name, data_type));
        if !c.accept_token(&Token::Comma) {
            break;
        }
    }
    if *c.peek() != Token::RParen {
        return Err(c.expected(&format!("',' or ')' after {what}")));
    }
    c.expect_token(&Token::RParen)?;
    Ok(columns)
}

fn data_type(c: &mut Cursor<'_>, what: &str) -> Result<arrow::datatypes::DataType, SqlError> {
    if !matches!(c.peek(), Token::Word(_)) {
        return Err(c.expected(what));
    }
    let here = c.here();
    let sql_type = c.run(parse_type)?;
    let data_type = arrow_type(&sql_type).map_err(|e| e.or_at(Some(here)))?;
    c.run(parse_nullability)?;
    Ok(data_type)
}

#[cfg(test)]
mod tests;
