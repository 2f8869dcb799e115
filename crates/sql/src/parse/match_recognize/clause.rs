//! The grammar of the clause: from tokens to the call that stands for it in the tree.

use sqlparser::ast::{Expr, Ident, Value, ValueWithSpan};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Span as TokenSpan, Token};

use super::{MATCH, part, pattern};
use crate::parse::expression::{accept, call, fail, is_clause_word, peek_word};

/// Advice where something stands in the wrong place.
const ORDER: &str =
    "the parts stand in this order: PARTITION BY, ORDER BY, MEASURES, ONE ROW PER MATCH, AFTER MATCH SKIP, PATTERN, WITHIN, SUBSET, DEFINE";

/// Reads what [`super::mark`] marked; the mark is next.
pub(in crate::parse) fn clause(p: &mut Parser) -> Result<Expr, ParserError> {
    let span = p.next_token().span;
    let input = p.parse_query()?;
    expect(p, &["MATCH_RECOGNIZE"])?;
    p.expect_token(&Token::LParen)?;
    let mut parts = vec![Expr::Subquery(input)];
    if let Some(at) = words(p, &["PARTITION", "BY"]) {
        parts.push(call(part::PARTITION, at, p.parse_comma_separated(Parser::parse_expr)?));
    }
    if let Some(at) = words(p, &["ORDER", "BY"]) {
        parts.push(call(part::ORDER, at, p.parse_comma_separated(order)?));
    }
    if let Some(at) = words(p, &["MEASURES"]) {
        parts.push(call(part::MEASURES, at, p.parse_comma_separated(measure)?));
    }
    if words(p, &["ONE", "ROW", "PER", "MATCH"]).is_none()
        && let Some(at) = words(p, &["ALL", "ROWS", "PER", "MATCH"])
    {
        let unmatched = unmatched(p).then(|| text("WITH UNMATCHED ROWS", at));
        parts.push(call(part::ALL_ROWS, at, unmatched.into_iter().collect()));
    }
    if let Some(at) = words(p, &["AFTER", "MATCH"]) {
        parts.push(skip(p, at)?);
    }
    let at = expect(p, &["PATTERN"])?;
    p.expect_token(&Token::LParen)?;
    let tree = pattern::alternatives(p, 0)?;
    let next = p.peek_token_ref();
    if next.token == Token::Comma {
        return Err(fail(next.span.start, "no commas stand in a pattern", "write PATTERN (A B): B directly behind A"));
    }
    p.expect_token(&Token::RParen)?;
    parts.push(call(part::PATTERN, at, vec![tree]));
    loop {
        if let Some(at) = words(p, &["WITHIN"]) {
            parts.push(call(part::WITHIN, at, vec![p.parse_expr()?]));
        } else if let Some(at) = words(p, &["SUBSET"]) {
            loop {
                parts.push(subset(p, at)?);
                if !p.consume_token(&Token::Comma) {
                    break;
                }
            }
        } else {
            break;
        }
    }
    let at = expect(p, &["DEFINE"])?;
    parts.push(call(part::DEFINE, at, p.parse_comma_separated(definition)?));
    let next = p.peek_token_ref();
    if next.token != Token::RParen {
        return Err(fail(next.span.start, format!("expected , or ) behind a condition of DEFINE, found {}", next.token), ORDER));
    }
    p.advance_token();
    Ok(call(MATCH, span, parts))
}

/// Reads the words if they are next; the place of the first.
fn words(p: &mut Parser, words: &[&str]) -> Option<TokenSpan> {
    let found = words.iter().enumerate().all(|(i, word)| peek_word(p, i).is_some_and(|w| w.eq_ignore_ascii_case(word)));
    let span = p.peek_token_ref().span;
    found.then(|| {
        words.iter().for_each(|_| p.advance_token());
        span
    })
}

/// Reads the words, which must be next.
fn expect(p: &mut Parser, expected: &[&str]) -> Result<TokenSpan, ParserError> {
    if let Some(span) = words(p, expected) {
        return Ok(span);
    }
    let next = p.peek_token_ref();
    let found = if next.token == Token::EOF { "the end of the statement".to_string() } else { next.token.to_string() };
    Err(fail(next.span.start, format!("MATCH_RECOGNIZE: expected {}, found {found}", expected.join(" ")), ORDER))
}

/// A name, of a variable or a measure.
fn name(p: &mut Parser, what: &str) -> Result<Ident, ParserError> {
    match &p.peek_token_ref().token {
        Token::Word(w) if !is_clause_word(w.keyword) => p.parse_identifier(),
        _ => p.expected_ref(what, p.peek_token_ref()),
    }
}

fn order(p: &mut Parser) -> Result<Expr, ParserError> {
    let at = p.peek_token_ref().span;
    let by = p.parse_order_by_expr()?;
    if by.options.nulls_first.is_some() {
        return Err(fail(
            at.start,
            "MATCH_RECOGNIZE: NULLS FIRST and NULLS LAST are not supported",
            "leave it out: NULL is the smallest value",
        ));
    }
    Ok(if by.options.asc == Some(false) { call(part::DESCENDING, at, vec![by.expr]) } else { by.expr })
}

fn measure(p: &mut Parser) -> Result<Expr, ParserError> {
    let at = p.peek_token_ref().span;
    let value = p.parse_expr()?;
    if !accept(p, "AS") {
        return Err(fail(at.start, "this measure has no name", "write AS and a name behind it: LAST(A.price) AS price"));
    }
    let name = name(p, "the name of the measure")?;
    Ok(call(part::NAMED, at, vec![Expr::Identifier(name), value]))
}

/// Reads what may follow ALL ROWS PER MATCH; whether it is WITH UNMATCHED ROWS. A match is never empty
/// here, so there are none to show or omit.
fn unmatched(p: &mut Parser) -> bool {
    let empty = words(p, &["SHOW", "EMPTY", "MATCHES"]).is_some() || words(p, &["OMIT", "EMPTY", "MATCHES"]).is_some();
    !empty && words(p, &["WITH", "UNMATCHED", "ROWS"]).is_some()
}

fn text(text: &str, at: TokenSpan) -> Expr {
    Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text.to_string()), span: at })
}

fn skip(p: &mut Parser, at: TokenSpan) -> Result<Expr, ParserError> {
    const FORMS: &str = "AFTER MATCH SKIP is followed by PAST LAST ROW, TO NEXT ROW, TO FIRST variable or TO LAST variable";
    expect(p, &["SKIP"])?;
    if words(p, &["PAST", "LAST", "ROW"]).is_some() {
        return Ok(call(part::SKIP, at, vec![text("PAST LAST ROW", at)]));
    }
    if words(p, &["TO", "NEXT", "ROW"]).is_some() {
        return Ok(call(part::SKIP, at, vec![text("TO NEXT ROW", at)]));
    }
    if words(p, &["TO"]).is_none() {
        let next = p.peek_token_ref();
        return Err(fail(next.span.start, format!("MATCH_RECOGNIZE: nothing is skipped by {}", next.token), FORMS));
    }
    // A variable may be called FIRST: only a name behind it tells.
    let named = matches!(&p.peek_nth_token_ref(1).token, Token::Word(w) if !w.value.eq_ignore_ascii_case("PATTERN"));
    let kind = if named && words(p, &["FIRST"]).is_some() {
        "TO FIRST"
    } else {
        if named {
            let _ = words(p, &["LAST"]);
        }
        "TO LAST"
    };
    let variable = name(p, "a pattern variable")?;
    Ok(call(part::SKIP, at, vec![text(kind, at), Expr::Identifier(variable)]))
}

/// `S = (A, B)`.
fn subset(p: &mut Parser, at: TokenSpan) -> Result<Expr, ParserError> {
    let mut names = vec![name(p, "the name of the subset")?];
    p.expect_token(&Token::Eq)?;
    p.expect_token(&Token::LParen)?;
    names.extend(p.parse_comma_separated(|p| name(p, "a pattern variable"))?);
    p.expect_token(&Token::RParen)?;
    Ok(call(part::SUBSET, at, names.into_iter().map(Expr::Identifier).collect()))
}

/// `A AS condition`.
fn definition(p: &mut Parser) -> Result<Expr, ParserError> {
    let at = p.peek_token_ref().span;
    let variable = name(p, "a pattern variable")?;
    if !accept(p, "AS") {
        let next = p.peek_token_ref();
        return Err(fail(
            next.span.start,
            format!("expected AS behind {variable}, found {}", next.token),
            "write DEFINE A AS condition, B AS …",
        ));
    }
    let condition = p.parse_expr()?;
    Ok(call(part::NAMED, at, vec![Expr::Identifier(variable), condition]))
}
