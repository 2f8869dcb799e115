//! From a script to its statements.
//!
//! The script is read into tokens once (`script`); a semicolon ends a statement, except that a
//! statement set goes on to its END. A statement is read by our own grammar (`create`, `simple`,
//! this file) over sqlparser's parser (`cursor`), which reads queries and expressions; `expression`
//! holds what Flink adds to those, `match_recognize` reads the clause of that name, `window` decodes
//! the window functions in the tree, `file_call` files with options, `refuse` says no to what is not run.

mod create;
mod cursor;
pub(crate) mod expression;
mod file_call;
mod find;
mod function;
pub(crate) mod match_recognize;
mod refuse;
mod script;
mod simple;
mod table_call;
#[cfg(test)]
mod tests;
mod window;

use std::ops::Range;

use sqlparser::tokenizer::Token;

pub(crate) use file_call::file_call;
pub use find::Finder;
pub(crate) use table_call::table_call;
pub(crate) use window::is_table_argument;
pub use window::window_call;

use crate::ast::{Insert, Statement, StatementKind};
use crate::diagnostic::SqlError;
use crate::dialect::FlinkDialect;
use cursor::Cursor;
use script::Script;

/// Reads a script.
///
/// # Errors
/// The first error, with its place. Never panics, whatever the text.
pub fn parse_script(script: &str) -> Result<Vec<Statement>, SqlError> {
    let script = Script::new(script)?;
    let mut reader = Reader { pieces: script.pieces(), script: &script, next: 0 };
    let mut statements = Vec::new();
    while reader.next < reader.pieces.len() {
        let start = reader.pieces[reader.next].start;
        statements.push(reader.statement(start, 0)?);
    }
    Ok(statements)
}

/// Walks over the pieces between semicolons.
struct Reader<'s> {
    script: &'s Script<'s>,
    pieces: Vec<Range<usize>>,
    /// The piece to read next.
    next: usize,
}

/// The details that EXPLAIN may be asked for.
const EXPLAIN_DETAILS: &[&str] = &["ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE"];

/// The words that statements begin with, for suggestions.
const BEGINNINGS: &[&str] = &[
    "BEGIN", "COPY", "CREATE", "DESC", "DESCRIBE", "DROP", "EXECUTE", "EXPLAIN", "INSERT", "RESET", "SELECT", "SET", "SHOW", "VALUES",
    "WITH",
];

impl Reader<'_> {
    /// The statement that begins at a token of the next piece. `depth` counts the EXPLAINs and
    /// EXECUTEs in front of it.
    fn statement(&mut self, start: usize, depth: usize) -> Result<Statement, SqlError> {
        let script = self.script;
        let piece = start..self.pieces[self.next].end;
        if script.words(start, &["BEGIN", "STATEMENT", "SET"]) && depth == 0 {
            return self.statement_set(start, start + 3);
        }
        if script.words(start, &["EXECUTE", "STATEMENT", "SET"]) || (depth > 0 && script.words(start, &["STATEMENT", "SET"])) {
            let begin = start + if script.words(start, &["EXECUTE"]) { 3 } else { 2 };
            if !script.words(begin, &["BEGIN"]) || begin >= piece.end {
                return Err(expected_at(script, begin, &piece, "BEGIN"));
            }
            return self.statement_set(start, begin + 1);
        }
        if let Some(error) = refuse::statement(script, start) {
            return Err(error);
        }
        if script.words(start, &["EXPLAIN"]) && depth == 0 {
            return self.explain(start);
        }
        script.check(piece.clone())?;
        self.next += 1;
        if script.words(start, &["EXECUTE"]) && depth < 2 {
            self.next -= 1;
            if !["INSERT", "SELECT", "WITH", "VALUES"].iter().any(|w| script.words(start + 1, &[w])) {
                return Err(expected_at(script, start + 1, &piece, "STATEMENT SET, INSERT or a query"));
            }
            let inner = self.statement(start + 1, 2)?;
            return Ok(Statement { span: script.range_span(piece), ..inner });
        }
        let kind = simple_statement(script, &piece)?;
        Ok(Statement { kind, span: script.range_span(piece.clone()), hints: script.hints(&piece) })
    }

    /// `EXPLAIN [PLAN FOR | details] statement`.
    fn explain(&mut self, start: usize) -> Result<Statement, SqlError> {
        let script = self.script;
        let end = self.pieces[self.next].end;
        let mut at = start + 1;
        let mut details = Vec::new();
        if script.words(at, &["PLAN", "FOR"]) {
            at += 2;
        } else {
            while let Some(word) = script.word(at).filter(|w| EXPLAIN_DETAILS.contains(&w.as_str())) {
                details.push(word);
                at += 1;
                if script.tokens.get(at).is_some_and(|t| t.token == Token::Comma) {
                    at += 1;
                }
            }
        }
        if at >= end {
            return Err(expected_at(script, at, &(start..end), "a query, an INSERT or a statement set"));
        }
        let inner = self.statement(at, 1)?;
        match inner.kind {
            StatementKind::Query(_) | StatementKind::Insert(_) | StatementKind::StatementSet(_) => {}
            StatementKind::CreateTable(ref table) if table.query.is_some() => {}
            _ => return Err(SqlError::at(inner.span, "only a query, an INSERT, a CREATE TABLE … AS or a statement set can be explained")),
        }
        let span = script.span(start).to(inner.span);
        Ok(Statement { span, hints: inner.hints.clone(), kind: StatementKind::Explain { details, statement: Box::new(inner) } })
    }

    /// The inserts of a set up to its END. The first begins at `body`, in the next piece.
    fn statement_set(&mut self, start: usize, body: usize) -> Result<Statement, SqlError> {
        let script = self.script;
        let head = script.range_span(start..body);
        let mut inserts: Vec<Insert> = Vec::new();
        let mut piece = body..self.pieces[self.next].end;
        loop {
            self.next += 1;
            if script.words(piece.start, &["END"]) && !piece.is_empty() {
                if piece.len() > 1 {
                    return Err(SqlError::at(script.span(piece.start + 1), "expected ';' after END"));
                }
                break;
            }
            if !piece.is_empty() {
                if !script.words(piece.start, &["INSERT"]) {
                    return Err(SqlError::at(
                        script.span(piece.start),
                        format!("expected INSERT or END, found {}", script.tokens[piece.start].token),
                    )
                    .with_help("only INSERT statements can be in a statement set"));
                }
                script.check(piece.clone())?;
                let dialect = FlinkDialect::default();
                let mut cursor = Cursor::new(script, &dialect, piece.clone());
                let insert = simple::insert(&mut cursor)?;
                cursor.expect_end()?;
                inserts.push(insert);
            }
            match self.pieces.get(self.next) {
                Some(next) => piece = next.clone(),
                None => return Err(SqlError::at(head, "this statement set is never closed").with_help("write END; behind its last INSERT")),
            }
        }
        if inserts.is_empty() {
            return Err(SqlError::at(head, "this statement set is empty"));
        }
        let tokens = start..piece.end;
        Ok(Statement { span: script.range_span(tokens.clone()), hints: script.hints(&tokens), kind: StatementKind::StatementSet(inserts) })
    }
}

/// The statements that end with their semicolon.
fn simple_statement(script: &Script<'_>, piece: &Range<usize>) -> Result<StatementKind, SqlError> {
    let first = script.word(piece.start);
    match first.as_deref() {
        Some("SET") => return simple::set(script, piece),
        Some("RESET") => return simple::reset(script, piece),
        _ => {}
    }
    let dialect = FlinkDialect::default();
    let mut c = Cursor::new(script, &dialect, piece.clone());
    let kind = match first.as_deref() {
        Some("SELECT" | "WITH" | "VALUES" | "TABLE") => StatementKind::Query(c.query()?),
        None if *c.peek() == Token::LParen => StatementKind::Query(c.query()?),
        Some("INSERT") => StatementKind::Insert(simple::insert(&mut c)?),
        Some("CREATE") => create::create(&mut c)?,
        Some("DROP") => simple::drop(&mut c)?,
        Some("SHOW") => simple::show(&mut c)?,
        Some("DESCRIBE" | "DESC") => simple::describe(&mut c)?,
        Some("COPY") => simple::copy(&mut c)?,
        word => {
            let error = SqlError::at(c.here(), format!("a statement cannot begin with {}", script.tokens[piece.start].token));
            return Err(match word.and_then(|w| nearest(w, BEGINNINGS)) {
                Some(near) => error.with_help(format!("did you mean {near}?")),
                None => error.with_help(format!("statements begin with {}", BEGINNINGS.join(", "))),
            });
        }
    };
    c.expect_end()?;
    Ok(kind)
}

fn expected_at(script: &Script<'_>, at: usize, piece: &Range<usize>, what: &str) -> SqlError {
    if at < piece.end {
        return SqlError::at(script.span(at), format!("expected {what}, found {}", script.tokens[at].token));
    }
    SqlError::at(script.range_span(piece.end..piece.end), format!("expected {what}, found the end of the statement"))
}

/// The name nearest to a word, if one is near enough to be meant.
pub(crate) fn nearest(word: &str, names: &[&'static str]) -> Option<&'static str> {
    // A word far longer than any name is no typing error, and comparing costs its length squared.
    if word.len() > 64 {
        return None;
    }
    let upper = word.to_ascii_uppercase();
    let (distance, name) = names.iter().map(|n| (strsim::damerau_levenshtein(&upper, n), *n)).min()?;
    (distance <= 1 + name.len() / 5).then_some(name)
}
