//! The grammar of `PATTERN ( … )`: variables, quantifiers, groups, alternatives, `PERMUTE`, exclusion.

use sqlparser::ast::{Expr, Value, ValueWithSpan};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Span as TokenSpan, Token};

use super::part;
use crate::parse::expression::{call, fail, is_clause_word};

/// How deep groups may nest. Reading and planning a pattern recurse as deep.
const DEPTH_MAX: usize = 64;

/// `a b | c`, up to what closes it.
pub(super) fn alternatives(p: &mut Parser, depth: usize) -> Result<Expr, ParserError> {
    let at = p.peek_token_ref().span;
    if depth > DEPTH_MAX {
        return Err(fail(at.start, format!("the groups of a pattern nest at most {DEPTH_MAX} deep"), ""));
    }
    let mut found = vec![sequence(p, depth)?];
    loop {
        match p.peek_token_ref().token {
            Token::Pipe => {
                p.advance_token();
                found.push(sequence(p, depth)?);
            }
            Token::StringConcat => return Err(empty(p)),
            _ => break,
        }
    }
    Ok(one_or(part::ALTERNATIVES, at, found))
}

/// The only one of these, or a call of all.
fn one_or(name: &str, at: TokenSpan, mut found: Vec<Expr>) -> Expr {
    match found.len() {
        1 => found.remove(0),
        _ => call(name, at, found),
    }
}

fn empty(p: &Parser) -> ParserError {
    let next = p.peek_token_ref();
    let found = if next.token == Token::EOF { "the end of the statement".to_string() } else { next.token.to_string() };
    fail(next.span.start, format!("expected a pattern variable, found {found}"), "what may be missing is written A?, or (A | B)?")
}

fn sequence(p: &mut Parser, depth: usize) -> Result<Expr, ParserError> {
    let at = p.peek_token_ref().span;
    let mut found = vec![quantified(p, depth)?];
    while !matches!(p.peek_token_ref().token, Token::RParen | Token::Pipe | Token::StringConcat | Token::Minus | Token::Comma) {
        found.push(quantified(p, depth)?);
    }
    Ok(one_or(part::SEQUENCE, at, found))
}

fn quantified(p: &mut Parser, depth: usize) -> Result<Expr, ParserError> {
    let of = primary(p, depth)?;
    let at = p.peek_token_ref().span;
    let Some((min, max)) = quantifier(p)? else { return Ok(of) };
    let greedy = p.peek_token_ref().token != question();
    if !greedy {
        p.advance_token();
    }
    let at = at.union(&p.get_current_token().span);
    let next = p.peek_token_ref();
    if matches!(next.token, Token::Mul | Token::Plus) || next.token == question() {
        return Err(fail(next.span.start, "a quantifier cannot be quantified", "put parentheses around what it repeats: (A{2})+"));
    }
    let text = |text: String| Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), span: at });
    let max = max.map(|m| m.to_string()).unwrap_or_default();
    let how = if greedy { "greedy" } else { "reluctant" };
    Ok(call(part::REPEAT, at, vec![of, text(min.to_string()), text(max), text(how.to_string())]))
}

fn question() -> Token {
    Token::Placeholder("?".to_string())
}

/// The bounds of the quantifier that is next, if one is.
fn quantifier(p: &mut Parser) -> Result<Option<(u32, Option<u32>)>, ParserError> {
    let next = p.peek_token_ref();
    let at = next.span.start;
    let bounds = match &next.token {
        Token::Mul => (0, None),
        Token::Plus => (1, None),
        token if *token == question() => (0, Some(1)),
        // `{-` begins an exclusion.
        Token::LBrace if p.peek_nth_token_ref(1).token != Token::Minus => {
            p.advance_token();
            let min = count(p)?;
            let max = if p.consume_token(&Token::Comma) { count(p)? } else { min };
            if min.is_none() && max.is_none() {
                return Err(fail(at, "this quantifier has no bound", "write {n}, {n,}, {n,m} or {,m}"));
            }
            if !p.consume_token(&Token::RBrace) {
                let next = p.peek_token_ref();
                return Err(fail(
                    next.span.start,
                    format!("expected }} behind a quantifier, found {}", next.token),
                    "write {n}, {n,}, {n,m} or {,m}",
                ));
            }
            let min = min.unwrap_or(0);
            if max.is_some_and(|max| max < min || max == 0) {
                return Err(fail(at, "this quantifier allows nothing", "its second number must be at least the first, and at least 1"));
            }
            return Ok(Some((min, max)));
        }
        _ => return Ok(None),
    };
    p.advance_token();
    Ok(Some(bounds))
}

/// A number, if one is next.
fn count(p: &mut Parser) -> Result<Option<u32>, ParserError> {
    let next = p.peek_token_ref();
    let Token::Number(text, _) = &next.token else { return Ok(None) };
    let Ok(number) = text.parse() else {
        return Err(fail(next.span.start, format!("{text} is no number of rows"), "write {n}, {n,}, {n,m} or {,m}"));
    };
    p.advance_token();
    Ok(Some(number))
}

fn primary(p: &mut Parser, depth: usize) -> Result<Expr, ParserError> {
    let next = p.peek_token_ref();
    let at = next.span;
    match &next.token {
        Token::LParen => {
            p.advance_token();
            let inner = alternatives(p, depth + 1)?;
            p.expect_token(&Token::RParen)?;
            Ok(inner)
        }
        Token::LBrace => {
            p.advance_token();
            p.expect_token(&Token::Minus)?;
            let inner = alternatives(p, depth + 1)?;
            p.expect_token(&Token::Minus)?;
            p.expect_token(&Token::RBrace)?;
            Ok(call(part::EXCLUDE, at, vec![inner]))
        }
        Token::Word(w)
            if w.quote_style.is_none() && w.value.eq_ignore_ascii_case("PERMUTE") && p.peek_nth_token_ref(1).token == Token::LParen =>
        {
            p.advance_token();
            p.advance_token();
            let inner = p.parse_comma_separated(|p| alternatives(p, depth + 1))?;
            p.expect_token(&Token::RParen)?;
            Ok(call(part::PERMUTE, at, inner))
        }
        Token::Word(w) if !is_clause_word(w.keyword) => p.parse_identifier().map(Expr::Identifier),
        Token::Caret => Err(fail(at.start, "the anchor ^ is not supported: a stream has no first row to speak of", "leave it out")),
        Token::Placeholder(text) if text.starts_with('$') => {
            Err(fail(at.start, "the anchor $ is not supported: a stream has no last row", "leave it out"))
        }
        _ => Err(empty(p)),
    }
}
