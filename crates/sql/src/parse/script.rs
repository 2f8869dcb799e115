//! A script as tokens with positions: comments gone, hints taken out, and the checks that need no
//! grammar (quotes, parentheses, depth, constructs that are refused wherever they stand).

use std::collections::BTreeMap;
use std::ops::Range;

use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace};

use crate::ast::{Hint, HintKind};
use crate::diagnostic::{LineIndex, Span, SqlError};
use crate::dialect::FlinkDialect;

/// How deep parentheses and brackets may nest. sqlparser stops at 50 queries or expressions of its
/// own; this guards the loops that it does not count.
const DEPTH_MAX: usize = 256;
/// How many tokens may follow each other without a comma on one level. A chain of operators becomes a
/// tree as deep as the chain is long, and the stack must hold it.
const CHAIN_MAX: usize = 8_000;
/// How many set operations (UNION and so on) may stand on one level, for the same reason.
const SET_OPERATIONS_MAX: usize = 1_000;

/// The tokens of a script.
pub(crate) struct Script<'a> {
    /// Positions to bytes.
    pub lines: LineIndex<'a>,
    /// Neither white space nor comments; in order of their positions.
    pub tokens: Vec<TokenWithSpan>,
    /// The hints, each with the index of the token behind it.
    hints: Vec<(usize, Hint)>,
}

impl<'a> Script<'a> {
    /// Reads the tokens.
    pub fn new(text: &'a str) -> Result<Self, SqlError> {
        let lines = LineIndex::new(text);
        let dialect = FlinkDialect::default();
        let raw = Tokenizer::new(&dialect, text).tokenize_with_location().map_err(|e| tokenizer_error(&lines, &e.message, e.location))?;
        let mut script = Script { lines, tokens: Vec::with_capacity(raw.len() / 2), hints: Vec::new() };
        for token in raw {
            match token.token {
                Token::Whitespace(Whitespace::MultiLineComment(ref comment)) if comment.starts_with('+') => {
                    let span = script.lines.span(token.span).unwrap_or_default();
                    script.push_hints(comment, span)?;
                }
                Token::Whitespace(_) => {}
                // Flink shifts no bits: `>>` closes two types.
                Token::ShiftRight => {
                    let middle = Location::new(token.span.start.line, token.span.start.column + 1);
                    script.tokens.push(TokenWithSpan::at(Token::Gt, token.span.start, middle));
                    script.tokens.push(TokenWithSpan::at(Token::Gt, middle, token.span.end));
                }
                Token::DoubleQuotedString(ref s) => {
                    return Err(SqlError::at(script.lines.span(token.span).unwrap_or_default(), "double quotes are not used in Flink SQL")
                        .with_help(format!("a name is written `{s}`, a text '{s}'")));
                }
                _ => script.tokens.push(token),
            }
        }
        Ok(script)
    }

    /// The bytes of a token.
    pub fn span(&self, index: usize) -> Span {
        self.tokens.get(index).and_then(|t| self.lines.span(t.span)).unwrap_or_else(|| self.end())
    }

    /// The bytes from the first to the last token of a range; of an empty range, the place where it is.
    pub fn range_span(&self, range: Range<usize>) -> Span {
        if range.is_empty() {
            let at = if range.start == 0 { 0 } else { self.span(range.start - 1).end };
            return Span::new(at, at);
        }
        self.span(range.start).to(self.span(range.end - 1))
    }

    fn end(&self) -> Span {
        let end = self.lines.text().len();
        Span::new(end, end)
    }

    /// The bytes of the token that begins at a position, or the position alone.
    pub fn span_at(&self, location: Location) -> Option<Span> {
        match self.tokens.binary_search_by(|t| t.span.start.cmp(&location)) {
            Ok(index) => Some(self.span(index)),
            Err(_) => self.lines.offset(location).map(|at| Span::new(at, at)),
        }
    }

    /// The unquoted word at an index, in upper case.
    pub fn word(&self, index: usize) -> Option<String> {
        match self.tokens.get(index)?.token {
            Token::Word(ref w) if w.quote_style.is_none() => Some(w.value.to_ascii_uppercase()),
            _ => None,
        }
    }

    /// Whether these words stand at an index.
    pub fn words(&self, index: usize, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(i, word)| match self.tokens.get(index + i).map(|t| &t.token) {
            Some(Token::Word(w)) => w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word),
            _ => false,
        })
    }

    /// The hints among the tokens of a range.
    pub fn hints(&self, range: &Range<usize>) -> Vec<Hint> {
        self.hints.iter().filter(|(at, _)| range.start < *at && *at <= range.end).map(|(_, hint)| hint.clone()).collect()
    }

    /// The token ranges between semicolons that have tokens.
    pub fn pieces(&self) -> Vec<Range<usize>> {
        let mut pieces = Vec::new();
        let mut start = 0;
        for (i, token) in self.tokens.iter().enumerate() {
            if token.token == Token::SemiColon {
                pieces.push(start..i);
                start = i + 1;
            }
        }
        pieces.push(start..self.tokens.len());
        pieces.retain(|p| !p.is_empty());
        pieces
    }

    /// Checks the tokens of a statement for what needs no grammar.
    pub fn check(&self, range: Range<usize>) -> Result<(), SqlError> {
        struct Level {
            open: usize,
            close: Token,
            chain: usize,
            set_operations: usize,
        }
        let base = Level { open: range.start, close: Token::EOF, chain: 0, set_operations: 0 };
        let mut levels = vec![base];
        let mut angles = 0usize;
        for i in range {
            let token = &self.tokens[i].token;
            let top = levels.last_mut().expect("the base level is never popped");
            top.chain += 1;
            match token {
                Token::LParen | Token::LBracket => {
                    let close = if *token == Token::LParen { Token::RParen } else { Token::RBracket };
                    if levels.len() > DEPTH_MAX {
                        return Err(SqlError::at(self.span(i), format!("parentheses nest at most {DEPTH_MAX} deep")));
                    }
                    levels.push(Level { open: i, close, chain: 0, set_operations: 0 });
                }
                Token::RParen | Token::RBracket => {
                    if top.close != *token {
                        let help = if levels.len() > 1 {
                            format!("'{}' must be closed first", self.tokens[levels[levels.len() - 1].open].token)
                        } else {
                            String::new()
                        };
                        let error = SqlError::at(self.span(i), format!("this '{token}' closes nothing"));
                        return Err(if help.is_empty() { error } else { error.with_help(help) });
                    }
                    levels.pop();
                }
                Token::Comma => top.chain = 0,
                Token::Lt if i > 0 && ["ARRAY", "MAP", "ROW", "STRUCT", "MULTISET"].iter().any(|w| self.words(i - 1, &[w])) => {
                    angles += 1;
                    if angles > DEPTH_MAX {
                        return Err(SqlError::at(self.span(i), "types are nested too deeply"));
                    }
                }
                Token::Gt => angles = angles.saturating_sub(1),
                Token::Word(w) if w.quote_style.is_none() => {
                    if ["UNION", "EXCEPT", "INTERSECT", "MINUS"].iter().any(|s| w.value.eq_ignore_ascii_case(s)) {
                        top.set_operations += 1;
                        top.chain = 0;
                        if top.set_operations > SET_OPERATIONS_MAX {
                            return Err(SqlError::at(self.span(i), format!("more than {SET_OPERATIONS_MAX} set operations in a row"))
                                .with_help("put them together in groups, in parentheses"));
                        }
                    } else {
                        super::refuse::check_word(self, i)?;
                    }
                }
                _ => {}
            }
            if levels.last().is_some_and(|l| l.chain > CHAIN_MAX) {
                return Err(SqlError::at(
                    self.span(i),
                    format!("an expression of more than {CHAIN_MAX} words without a comma or parentheses"),
                )
                .with_help("many comparisons with one column are better written as column IN (…)"));
            }
        }
        match levels.last() {
            Some(level) if levels.len() > 1 => {
                Err(SqlError::at(self.span(level.open), format!("this '{}' is never closed", self.tokens[level.open].token)))
            }
            _ => Ok(()),
        }
    }

    /// Reads a comment that begins with `+`.
    fn push_hints(&mut self, comment: &str, span: Span) -> Result<(), SqlError> {
        let Some(last) = self.tokens.len().checked_sub(1).filter(|i| self.tokens[*i].token != Token::SemiColon) else {
            return Err(SqlError::at(span, "a hint stands behind SELECT or behind the name of a table, not before a statement"));
        };
        let select = self.words(last, &["SELECT"]);
        // The name in front: words with periods between them.
        let mut first = last;
        while !select && first >= 2 && self.tokens[first - 1].token == Token::Period {
            first -= 2;
        }
        let mut parts = Vec::new();
        for token in self.tokens[first..=last].iter().step_by(2) {
            match &token.token {
                Token::Word(w) => parts.push(w.value.clone()),
                Token::SingleQuotedString(path) => parts.push(path.clone()),
                _ => return Err(SqlError::at(span, "a hint stands behind SELECT or directly behind the name of a table")),
            }
        }
        if first > 0 && !select && self.words(first - 1, &["AS"]) {
            return Err(SqlError::at(span, "a hint stands directly behind the name of a table, before its alias"));
        }
        let table = if select { String::new() } else { parts.join(".") };
        let at = self.tokens[first].span.start;
        for kind in parse_hints(&comment[1..]).map_err(|e| e.or_at(Some(span)))? {
            self.hints.push((self.tokens.len(), Hint { table: table.clone(), at, kind, span }));
        }
        Ok(())
    }
}

fn tokenizer_error(lines: &LineIndex<'_>, message: &str, location: Location) -> SqlError {
    let at = lines.offset(location).unwrap_or(lines.text().len());
    let first = lines.text()[at..].chars().next();
    let span = Span::new(at, at + first.map_or(0, char::len_utf8));
    match first {
        Some('\'') => SqlError::at(span, "this ' is never closed").with_help("a ' inside a text is written twice: 'it''s'"),
        Some('`') => SqlError::at(span, "this ` is never closed"),
        Some('"') => SqlError::at(span, "double quotes are not used in Flink SQL").with_help("a name is written `so`, a text 'so'"),
        _ if message.contains("multi-line comment") => SqlError::at(span, "the comment /* is never closed with */"),
        _ => SqlError::at(span, format!("cannot read this: {message}")),
    }
}

/// `NAME [( 'k' [= 'v'], … )] {[,] NAME …}`.
fn parse_hints(text: &str) -> Result<Vec<HintKind>, SqlError> {
    let dialect = FlinkDialect::default();
    let bad = |what: &str| SqlError::new(format!("cannot read the hint: {what}")).with_help("write /*+ OPTIONS('key' = 'value', …) */");
    let tokens = Tokenizer::new(&dialect, text).tokenize().map_err(|e| bad(&e.message))?;
    let mut tokens = tokens.into_iter().filter(|t| !matches!(t, Token::Whitespace(_))).peekable();
    let mut hints = Vec::new();
    while let Some(token) = tokens.next() {
        let name = match token {
            Token::Word(w) => w.value.to_ascii_uppercase(),
            Token::Comma if !hints.is_empty() => continue,
            other => return Err(bad(&format!("expected the name of a hint, found {other}"))),
        };
        let mut pairs = BTreeMap::new();
        if tokens.next_if_eq(&Token::LParen).is_some() {
            let text_of = |what: &str, tokens: &mut dyn Iterator<Item = Token>| match tokens.next() {
                Some(Token::SingleQuotedString(s) | Token::Number(s, _)) => Ok(s),
                Some(Token::Word(w)) => Ok(w.value),
                Some(other) => Err(bad(&format!("expected {what}, found {other}"))),
                None => Err(bad(&format!("expected {what}, found the end"))),
            };
            loop {
                if tokens.next_if_eq(&Token::RParen).is_some() {
                    break;
                }
                let key = text_of("a key", &mut tokens)?;
                let has_value = tokens.next_if_eq(&Token::Eq).is_some();
                let value = if has_value { text_of("a value", &mut tokens)? } else { String::new() };
                if !has_value && matches!(name.as_str(), "OPTIONS" | "STATE_TTL" | "LOOKUP") {
                    return Err(bad(&format!("'{key}' has no value")));
                }
                if pairs.insert(key.clone(), value).is_some() && matches!(name.as_str(), "OPTIONS" | "LOOKUP") {
                    return Err(bad(&format!("'{key}' is there twice")));
                }
                match tokens.next() {
                    Some(Token::Comma) => {}
                    Some(Token::RParen) => break,
                    Some(other) => return Err(bad(&format!("expected , or ), found {other}"))),
                    None => return Err(bad("a ) is missing")),
                }
            }
        }
        hints.push(match name.as_str() {
            "OPTIONS" => HintKind::Options(pairs),
            "STATE_TTL" => HintKind::StateTtl(pairs),
            "LOOKUP" => HintKind::Lookup(pairs),
            _ => HintKind::Other(name),
        });
    }
    if hints.is_empty() { Err(bad("it is empty")) } else { Ok(hints) }
}
