//! The expressions that Flink has and sqlparser does not know, read through the dialect's hooks, and
//! the small tools for reading and failing inside a sqlparser parser.
//!
//! An error made here carries its help in the text (sqlparser's errors are only text); [`split`]
//! takes it apart again.

use arrow::datatypes::DataType;
use sqlparser::ast::{
    CastKind, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName, ObjectNamePart,
    UnaryOperator, Value, ValueWithSpan,
};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Span as TokenSpan, Token};

use super::match_recognize::{self, FINAL, RUNNING};
use crate::dialect::TABLE_ARGUMENT;
use crate::types::{arrow_type, parse_type};

/// Between message and help in the text of a parser error. No script can smuggle one in: it would
/// only cut its own message short.
const HELP_MARK: char = '\u{1f}';
/// How sqlparser writes a position behind a message.
const POSITION_MARK: &str = " at Line: ";

/// An error at a place, with help unless it is empty.
pub(crate) fn fail(at: Location, message: impl AsRef<str>, help: &str) -> ParserError {
    let message = message.as_ref();
    ParserError::ParserError(if help.is_empty() { format!("{message}{at}") } else { format!("{message}{HELP_MARK}{help}{at}") })
}

/// A parser error taken apart: message, help, place.
pub(crate) fn split(error: &ParserError) -> (String, Option<String>, Option<Location>) {
    let text = match error {
        ParserError::ParserError(text) | ParserError::TokenizerError(text) => text.as_str(),
        ParserError::RecursionLimitExceeded => return ("the expressions or queries are nested too deeply".into(), None, None),
    };
    let (text, location) = match text.rfind(POSITION_MARK).and_then(|i| Some((i, parse_location(&text[i + POSITION_MARK.len()..])?))) {
        Some((i, location)) => (&text[..i], Some(location)),
        None => (text, None),
    };
    let (message, help) = match text.split_once(HELP_MARK) {
        Some((message, help)) => (message, Some(help.to_string())),
        None => (text, None),
    };
    let message = match message.strip_prefix("Expected: ").and_then(|m| m.rsplit_once(", found: ")) {
        Some((expected, "EOF")) => format!("expected {expected}, found the end of the statement"),
        Some((expected, found)) => format!("expected {expected}, found {found}"),
        None => message.to_string(),
    };
    (message, help, location)
}

/// `7, Column: 12`.
fn parse_location(text: &str) -> Option<Location> {
    let (line, column) = text.split_once(", Column: ")?;
    Some(Location::new(line.parse().ok()?, column.parse().ok()?))
}

/// Where an error points.
pub(crate) fn location_of(error: &ParserError) -> Option<Location> {
    split(error).2
}

/// The message alone, for tests of the layers below the script.
#[cfg(test)]
pub(crate) fn message_of(error: &ParserError) -> String {
    split(error).0
}

/// The unquoted word `n` tokens ahead.
pub(crate) fn peek_word<'p>(p: &'p Parser, n: usize) -> Option<&'p str> {
    match &p.peek_nth_token_ref(n).token {
        Token::Word(w) if w.quote_style.is_none() => Some(&w.value),
        _ => None,
    }
}

/// Reads the word if it is next, in any case.
pub(crate) fn accept(p: &mut Parser, word: &str) -> bool {
    let found = peek_word(p, 0).is_some_and(|w| w.eq_ignore_ascii_case(word));
    if found {
        p.advance_token();
    }
    found
}

/// Reads the word, which must be next.
fn expect(p: &mut Parser, word: &str) -> Result<(), ParserError> {
    if accept(p, word) {
        return Ok(());
    }
    let found = p.peek_token_ref().clone();
    p.expected(word, found)
}

/// Words that begin or join the clauses of a query. sqlparser takes them for names where an expression
/// or a table is missing, and the error then comes late or never; in Flink they are reserved.
pub(crate) fn is_clause_word(keyword: Keyword) -> bool {
    use Keyword as K;
    matches!(
        keyword,
        K::AND
            | K::AS
            | K::BETWEEN
            | K::BY
            | K::CROSS
            | K::ELSE
            | K::END
            | K::EXCEPT
            | K::FETCH
            | K::FROM
            | K::GROUP
            | K::HAVING
            | K::IN
            | K::INNER
            | K::INTERSECT
            | K::INTO
            | K::IS
            | K::JOIN
            | K::LIKE
            | K::LIMIT
            | K::ON
            | K::OR
            | K::ORDER
            | K::QUALIFY
            | K::SELECT
            | K::THEN
            | K::UNION
            | K::USING
            | K::WHEN
            | K::WHERE
            | K::WITH
    )
}

/// The hook in front of every expression; `None` leaves it to sqlparser.
pub(crate) fn prefix(p: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let first = p.peek_token_ref();
    let at = first.span.start;
    let Token::Word(word) = &first.token else { return None };
    if word.quote_style.is_some() {
        return None;
    }
    let next = &p.peek_nth_token_ref(1).token;
    let call = *next == Token::LParen;
    match word.keyword {
        Keyword::TABLE if call || matches!(next, Token::Word(_) | Token::SingleQuotedString(_)) => Some(table_argument(p)),
        Keyword::CAST if call => Some(cast(p, CastKind::Cast)),
        Keyword::TRY_CAST if call => Some(cast(p, CastKind::TryCast)),
        Keyword::INTERVAL if matches!(next, Token::SingleQuotedString(_) | Token::Number(..) | Token::Plus | Token::Minus) => {
            Some(interval(p))
        }
        Keyword::ARRAY | Keyword::MAP | Keyword::STRUCT if *next == Token::Lt => {
            Some(Err(fail(at, format!("a type cannot stand here: {}<", word.value), "a type follows AS in CAST(x AS type)")))
        }
        Keyword::MAP if *next == Token::LBracket => {
            Some(Err(fail(at, "MAP[…] values are not supported", "use ROW(…), ARRAY[…], or one column per key")))
        }
        keyword if is_clause_word(keyword) => Some(p.expected_ref("an expression", first)),
        _ if match_recognize::is_mark(word) => Some(match_recognize::clause(p)),
        _ if call && word.value.eq_ignore_ascii_case("JSON_VALUE") => Some(json_value(p)),
        _ if call && (word.value.eq_ignore_ascii_case("TIMESTAMPADD") || word.value.eq_ignore_ascii_case("TIMESTAMPDIFF")) => {
            Some(timestamp_arithmetic(p))
        }
        _ if SEMANTICS.iter().any(|(written, _)| word.value.eq_ignore_ascii_case(written)) && function_follows(p) => Some(semantics(p)),
        _ => None,
    }
}

/// What stands before a function in the measures of MATCH_RECOGNIZE, and the call that it is in the tree.
const SEMANTICS: &[(&str, &str)] = &[("FINAL", FINAL), ("RUNNING", RUNNING)];

/// Whether behind the next token there is a call, and not an operator and a parenthesis.
fn function_follows(p: &Parser) -> bool {
    const OPERATORS: &[&str] = &["DIV", "ILIKE", "NOT", "OVERLAPS", "REGEXP", "RLIKE", "XOR"];
    let Token::Word(word) = &p.peek_nth_token_ref(1).token else { return false };
    p.peek_nth_token_ref(2).token == Token::LParen
        && !is_clause_word(word.keyword)
        && !OPERATORS.iter().any(|o| word.value.eq_ignore_ascii_case(o))
}

/// `FINAL f(x)` and `RUNNING f(x)`.
fn semantics(p: &mut Parser) -> Result<Expr, ParserError> {
    let first = p.next_token();
    let written = first.token.to_string();
    let name = SEMANTICS.iter().find(|(w, _)| written.eq_ignore_ascii_case(w)).map_or(RUNNING, |(_, name)| *name);
    let of = p.parse_prefix()?;
    match of {
        Expr::Function(_) => Ok(call(name, first.span, vec![of])),
        _ => Err(fail(first.span.start, format!("{written} stands before a function"), "write FINAL LAST(A.price)")),
    }
}

/// The hook in front of every operator behind an expression; `None` leaves it to sqlparser.
pub(crate) fn infix(p: &mut Parser, left: &Expr) -> Option<Result<Expr, ParserError>> {
    let first = p.peek_token_ref();
    let at = first.span.start;
    if first.token == Token::DoubleColon {
        return Some(Err(fail(at, "Flink has no :: operator", "write CAST(value AS type)")));
    }
    if !peek_word(p, 0)?.eq_ignore_ascii_case("IS") {
        return None;
    }
    let negated = peek_word(p, 1)?.eq_ignore_ascii_case("NOT");
    if !peek_word(p, 1 + usize::from(negated))?.eq_ignore_ascii_case("JSON") {
        return None;
    }
    let span = first.span;
    (0..2 + usize::from(negated)).for_each(|_| p.advance_token());
    accept(p, "VALUE");
    let here = p.peek_token_ref().span.start;
    if let Some(kind) = peek_word(p, 0).filter(|w| ["OBJECT", "ARRAY", "SCALAR"].iter().any(|k| w.eq_ignore_ascii_case(k))) {
        return Some(Err(fail(
            here,
            format!("IS JSON {} is not supported", kind.to_ascii_uppercase()),
            "IS JSON works, for any kind of value",
        )));
    }
    let test = call("is_json", span, vec![left.clone()]);
    Some(Ok(if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(test) } } else { test }))
}

/// A function call in the tree.
pub(super) fn call(name: &str, span: TokenSpan, args: Vec<Expr>) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident { value: name.to_string(), quote_style: None, span }]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.into_iter().map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e))).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// `TABLE name [PARTITION BY …]` or `TABLE (query) [PARTITION BY …]` as an argument.
fn table_argument(p: &mut Parser) -> Result<Expr, ParserError> {
    let span = p.next_token().span;
    let table = if p.consume_token(&Token::LParen) {
        let query = p.parse_query()?;
        p.expect_token(&Token::RParen)?;
        Expr::Subquery(query)
    } else {
        let name_span = p.peek_token_ref().span;
        let mut idents = Vec::new();
        for part in p.parse_object_name(true)?.0 {
            match part {
                ObjectNamePart::Identifier(mut ident) => {
                    if ident.span == TokenSpan::empty() {
                        ident.span = name_span;
                    }
                    idents.push(ident);
                }
                ObjectNamePart::Function(_) => return Err(fail(name_span.start, "expected the name of a table", "")),
            }
        }
        match <[Ident; 1]>::try_from(idents) {
            Ok([ident]) => Expr::Identifier(ident),
            Err(idents) => Expr::CompoundIdentifier(idents),
        }
    };
    let mut args = vec![table];
    if accept(p, "PARTITION") {
        expect(p, "BY")?;
        if p.consume_token(&Token::LParen) {
            args.extend(p.parse_comma_separated(Parser::parse_identifier)?.into_iter().map(Expr::Identifier));
            p.expect_token(&Token::RParen)?;
        } else {
            args.push(Expr::Identifier(p.parse_identifier()?));
            // Without parentheses a key list runs into the next arguments: a key is a lone name, and
            // no argument of a window function is.
            while p.peek_token_ref().token == Token::Comma
                && matches!(p.peek_nth_token_ref(1).token, Token::Word(_))
                && matches!(p.peek_nth_token_ref(2).token, Token::Comma | Token::RParen)
            {
                p.advance_token();
                args.push(Expr::Identifier(p.parse_identifier()?));
            }
        }
    }
    let at = p.peek_token_ref().span.start;
    if accept(p, "ORDER") {
        return Err(fail(at, "ORDER BY behind a table argument is not supported", "windows are cut by the time column alone"));
    }
    Ok(call(TABLE_ARGUMENT, span, args))
}

/// `CAST(x AS type)`, with Flink's types.
fn cast(p: &mut Parser, kind: CastKind) -> Result<Expr, ParserError> {
    p.advance_token();
    p.expect_token(&Token::LParen)?;
    let expr = Box::new(p.parse_expr()?);
    expect(p, "AS")?;
    let data_type = parse_type(p)?;
    p.expect_token(&Token::RParen)?;
    Ok(Expr::Cast { kind, expr, data_type, array: false, format: None })
}

/// `INTERVAL '5' MINUTES`, with the unit that sqlparser would do without.
fn interval(p: &mut Parser) -> Result<Expr, ParserError> {
    p.advance_token();
    let parsed = p.parse_interval()?;
    if let Expr::Interval(interval) = &parsed
        && interval.leading_field.is_none()
    {
        let next = p.peek_token_ref();
        let (found, at) = (next.token.to_string(), next.span.start);
        let found = if next.token == Token::EOF { "the end of the statement" } else { &found };
        return Err(fail(
            at,
            format!("expected the unit of the interval, found {found}"),
            "write INTERVAL '5' SECOND: the number quoted, the unit not",
        ));
    }
    Ok(parsed)
}

/// `JSON_VALUE(json, path [RETURNING type] [NULL ON EMPTY] [NULL ON ERROR])`.
fn json_value(p: &mut Parser) -> Result<Expr, ParserError> {
    let span = p.next_token().span;
    p.expect_token(&Token::LParen)?;
    let json = p.parse_expr()?;
    p.expect_token(&Token::Comma)?;
    let path = p.parse_expr()?;
    let at = p.peek_nth_token_ref(1).span.start;
    let returning = if accept(p, "RETURNING") { Some(parse_type(p)?) } else { None };
    loop {
        let at = p.peek_token_ref().span.start;
        if accept(p, "NULL") {
            on_clause(p)?;
        } else if accept(p, "ERROR") {
            on_clause(p)?;
            return Err(fail(
                at,
                "JSON_VALUE: ERROR ON … is not supported",
                "leave it out: a missing or bad value is NULL, which WHERE … IS NULL finds",
            ));
        } else if accept(p, "DEFAULT") {
            return Err(fail(at, "JSON_VALUE: DEFAULT … ON … is not supported", "write COALESCE(JSON_VALUE(…), default)"));
        } else {
            break;
        }
    }
    p.expect_token(&Token::RParen)?;
    let args = vec![json, path];
    let Some(returning) = returning else { return Ok(call("json_value", span, args)) };
    // Numbers that have no function of their own go through the wider one; TRY_CAST, because a value
    // that does not fit is NULL like any other bad value.
    let target = arrow_type(&returning).map_err(|e| fail(at, e.message, ""))?;
    let (name, narrow) = match target {
        DataType::Utf8 => ("json_value_as_string", false),
        DataType::Boolean => ("json_value_as_boolean", false),
        DataType::Int64 => ("json_value_as_bigint", false),
        DataType::Float64 => ("json_value_as_double", false),
        DataType::Int8 | DataType::Int16 | DataType::Int32 => ("json_value_as_bigint", true),
        DataType::Float32 => ("json_value_as_double", true),
        DataType::Decimal128(..) => ("json_value_as_string", true),
        _ => {
            return Err(fail(
                at,
                format!("JSON_VALUE cannot return {}", crate::types::flink_type(&target)),
                "RETURNING takes STRING, BOOLEAN, the integers, FLOAT, DOUBLE and DECIMAL; CAST the text to anything else",
            ));
        }
    };
    let value = call(name, span, args);
    Ok(if narrow {
        Expr::Cast { kind: CastKind::TryCast, expr: Box::new(value), data_type: returning, array: false, format: None }
    } else {
        value
    })
}

/// `ON EMPTY` or `ON ERROR`.
fn on_clause(p: &mut Parser) -> Result<(), ParserError> {
    expect(p, "ON")?;
    if accept(p, "EMPTY") { Ok(()) } else { expect(p, "ERROR") }
}

/// The units of TIMESTAMPADD and TIMESTAMPDIFF.
const UNITS: &[&str] = &["SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "MILLISECOND", "MICROSECOND", "NANOSECOND"];

/// `TIMESTAMPADD(unit, n, t)` and `TIMESTAMPDIFF(unit, t, u)`.
fn timestamp_arithmetic(p: &mut Parser) -> Result<Expr, ParserError> {
    let name = p.next_token();
    p.expect_token(&Token::LParen)?;
    let token = p.next_token();
    let Token::Word(word) = &token.token else { return p.expected("a unit of time such as HOUR", token) };
    let upper = word.value.to_ascii_uppercase();
    let upper = upper.strip_prefix("SQL_TSI_").unwrap_or(&upper);
    let unit = match UNITS.iter().find(|u| **u == upper || upper.strip_suffix('S') == Some(**u)) {
        Some(unit) if word.quote_style.is_none() => *unit,
        _ => return Err(fail(token.span.start, format!("{word} is not a unit of time"), &format!("the units are {}", UNITS.join(", ")))),
    };
    let mut args = vec![Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(unit.to_string()), span: token.span })];
    for _ in 0..2 {
        p.expect_token(&Token::Comma)?;
        args.push(p.parse_expr()?);
    }
    p.expect_token(&Token::RParen)?;
    Ok(call(&name.token.to_string().to_ascii_lowercase(), name.span, args))
}
