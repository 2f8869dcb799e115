//! A reading position in a statement: sqlparser's parser over the statement's tokens, with errors
//! that have byte spans, and with the search for the true place of an error in a subquery.

use std::ops::Range;

use sqlparser::ast::{Expr, Ident, ObjectName, Query};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use super::expression::{accept, is_clause_word, peek_word, split};
use super::script::Script;
use super::{match_recognize, refuse};
use crate::diagnostic::{Span, SqlError};
use crate::dialect::FlinkDialect;

/// Statements of more tokens than this are not searched again for the true place of an error.
const SEARCH_TOKENS_MAX: usize = 50_000;

/// A reading position.
pub(crate) struct Cursor<'a> {
    /// The parser, over the tokens of `range` only.
    pub parser: Parser<'a>,
    /// The script.
    pub script: &'a Script<'a>,
    dialect: &'a FlinkDialect,
    range: Range<usize>,
    /// Places of the parser's tokens that are not in the script, ascending.
    added: Vec<usize>,
}

impl<'a> Cursor<'a> {
    /// At the first token of a range.
    pub fn new(script: &'a Script<'a>, dialect: &'a FlinkDialect, range: Range<usize>) -> Self {
        let (tokens, added) = match_recognize::mark(&script.tokens[range.clone()]);
        let parser = Parser::new(dialect).with_tokens_with_locations(tokens);
        Cursor { parser, script, dialect, range, added }
    }

    /// The index in the script of the next token.
    pub fn position(&self) -> usize {
        let read = self.parser.index();
        let added = self.added.partition_point(|at| *at < read);
        (self.range.start + read - added).min(self.range.end)
    }

    /// The bytes of the next token.
    pub fn here(&self) -> Span {
        let at = self.position();
        if at < self.range.end { self.script.span(at) } else { self.script.range_span(self.range.end..self.range.end) }
    }

    /// The bytes from the token at `start` to the last one read.
    pub fn since(&self, start: usize) -> Span {
        self.script.range_span(start..self.position().max(start + 1).min(self.script.tokens.len()))
    }

    /// The next token.
    pub fn peek(&self) -> &Token {
        &self.parser.peek_token_ref().token
    }

    /// Whether this unquoted word is `n` tokens ahead.
    pub fn is(&self, n: usize, word: &str) -> bool {
        peek_word(&self.parser, n).is_some_and(|w| w.eq_ignore_ascii_case(word))
    }

    /// Reads the word if it is next.
    pub fn accept(&mut self, word: &str) -> bool {
        accept(&mut self.parser, word)
    }

    /// Reads the words if they are next, all of them or none.
    pub fn accept_all(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(i, w)| self.is(i, w));
        if found {
            words.iter().for_each(|_| self.parser.advance_token());
        }
        found
    }

    /// Reads the word, which must be next.
    pub fn expect(&mut self, word: &str) -> Result<(), SqlError> {
        if self.accept(word) { Ok(()) } else { Err(self.expected(word)) }
    }

    /// Reads the token if it is next.
    pub fn accept_token(&mut self, token: &Token) -> bool {
        self.parser.consume_token(token)
    }

    /// Reads the token, which must be next.
    pub fn expect_token(&mut self, token: &Token) -> Result<(), SqlError> {
        if self.accept_token(token) { Ok(()) } else { Err(self.expected(&format!("'{token}'"))) }
    }

    /// The statement must end here.
    pub fn expect_end(&mut self) -> Result<(), SqlError> {
        if *self.peek() == Token::EOF {
            return Ok(());
        }
        // A hook may have seen why sqlparser went back and stopped reading here.
        if let Some((at, hook)) = self.dialect.take_furthest()
            && at >= self.parser.peek_token_ref().span.start
        {
            return Err(self.error(&hook));
        }
        let found = self.peek().to_string();
        let error = SqlError::at(self.here(), format!("expected the end of the statement, found {found}"));
        Err(match peek_word(&self.parser, 0).map(str::to_ascii_uppercase).as_deref() {
            Some("INSERT" | "SELECT" | "CREATE" | "DROP" | "SET" | "EXPLAIN" | "WITH" | "EXECUTE" | "END" | "BEGIN") => {
                error.with_help(format!("is a ';' missing before {found}?"))
            }
            Some(word) => match refuse::reserved_help(word) {
                Some(help) => error.with_help(help),
                None => error,
            },
            None => error,
        })
    }

    /// An error: something else was expected here.
    pub fn expected(&self, what: &str) -> SqlError {
        let found = match self.peek() {
            Token::EOF => "the end of the statement".to_string(),
            token => token.to_string(),
        };
        let error = SqlError::at(self.here(), format!("expected {what}, found {found}"));
        match peek_word(&self.parser, 0).and_then(refuse::reserved_help) {
            Some(help) => error.with_help(help),
            None => error,
        }
    }

    /// A name.
    pub fn ident(&mut self, what: &str) -> Result<Ident, SqlError> {
        match self.peek() {
            Token::Word(w) if !is_clause_word(w.keyword) => self.run(Parser::parse_identifier),
            _ => Err(self.expected(what)),
        }
    }

    /// A name with or without catalog and database.
    pub fn name(&mut self, what: &str) -> Result<ObjectName, SqlError> {
        match self.peek() {
            Token::Word(w) if !is_clause_word(w.keyword) => self.run(|p| p.parse_object_name(false)),
            _ => Err(self.expected(what)),
        }
    }

    /// A text in single quotes.
    pub fn text(&mut self, what: &str) -> Result<String, SqlError> {
        match self.peek() {
            Token::SingleQuotedString(s) => {
                let s = s.clone();
                self.parser.advance_token();
                Ok(s)
            }
            _ => Err(self.expected(&format!("{what} in single quotes"))),
        }
    }

    /// `(a, b, …)`, at least one.
    pub fn idents(&mut self, what: &str) -> Result<Vec<Ident>, SqlError> {
        self.expect_token(&Token::LParen)?;
        let mut idents = Vec::new();
        loop {
            idents.push(self.ident(what)?);
            if !self.accept_token(&Token::Comma) {
                break;
            }
        }
        self.expect_token(&Token::RParen)?;
        Ok(idents)
    }

    /// An expression.
    pub fn expr(&mut self) -> Result<Expr, SqlError> {
        let expr = self.run(Parser::parse_expr)?;
        refuse::check_expr(&expr, &self.script.lines)?;
        Ok(expr)
    }

    /// A query.
    pub fn query(&mut self) -> Result<Box<Query>, SqlError> {
        let start = self.position();
        let query = self.run(Parser::parse_query).map_err(|error| self.search(start, error))?;
        refuse::check_query(&query, &self.script.lines)?;
        Ok(query)
    }

    /// Runs one of sqlparser's methods.
    pub fn run<T>(&mut self, parse: impl FnOnce(&mut Parser<'a>) -> Result<T, ParserError>) -> Result<T, SqlError> {
        self.dialect.take_furthest();
        parse(&mut self.parser).map_err(|error| self.error(&error))
    }

    /// sqlparser's error, or the hook's if that lies further on: sqlparser goes back from an error to
    /// try something else, and then reports where the other way failed.
    fn error(&self, error: &ParserError) -> SqlError {
        let statement = || self.script.range_span(self.range.clone());
        let (message, help, location) = match (split(error), self.dialect.take_furthest()) {
            ((_, _, Some(at)), Some((further, hook))) if further > at => split(&hook),
            (parts, _) => parts,
        };
        let span = match location {
            Some(at) => self.script.span_at(at),
            None if matches!(error, ParserError::RecursionLimitExceeded) => Some(statement()),
            None => Some(self.script.range_span(self.range.end..self.range.end)),
        };
        let help = help.or_else(|| {
            // The word found, or the one before it: `SELECT floor FROM t` fails behind the name.
            let location = location?;
            let at = self.script.tokens.binary_search_by(|t| t.span.start.cmp(&location)).ok()?;
            [Some(at), at.checked_sub(1)].into_iter().flatten().filter_map(|i| self.script.word(i)).find_map(|w| refuse::reserved_help(&w))
        });
        SqlError { message, span, help }
    }

    /// Looks for the true place of an error. sqlparser reads what stands in parentheses in more than
    /// one way and reports the failure of the last: `FROM (SELECT a, b FROM t WHERE)` is told as a
    /// table named SELECT. So the subqueries are read on their own, inner ones first: the first that
    /// fails has the error.
    fn search(&self, start: usize, error: SqlError) -> SqlError {
        let range = start..self.range.end;
        if range.len() > SEARCH_TOKENS_MAX {
            return error;
        }
        let mut opened = Vec::new();
        for i in range {
            match self.script.tokens[i].token {
                Token::LParen => opened.push(i),
                Token::RParen => {
                    let Some(open) = opened.pop() else { continue };
                    if !["SELECT", "WITH", "VALUES"].iter().any(|w| self.script.words(open + 1, &[w])) {
                        continue;
                    }
                    let dialect = FlinkDialect::default();
                    let mut inner = Cursor::new(self.script, &dialect, open + 1..i);
                    if let Err(mut found) = inner.run(Parser::parse_query).map(drop).and_then(|()| inner.expect_end()) {
                        if let Some(message) = found.message.strip_suffix("the end of the statement") {
                            found = SqlError { message: format!("{message})"), span: Some(self.script.span(i)), ..found };
                        }
                        found.message = found.message.replace("expected the end of the statement, found", "expected ), found");
                        return found;
                    }
                }
                _ => {}
            }
        }
        error
    }
}
