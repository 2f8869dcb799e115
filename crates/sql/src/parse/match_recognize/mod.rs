//! `MATCH_RECOGNIZE`: where it stands among the tokens, and what it is in the tree.
//!
//! sqlparser reads less of the clause than Flink and the standard write (no `WITHIN`, no `SUBSET`, no
//! reluctant quantifier, only names in the input's place), so it is read by a grammar of our own:
//! `clause`, with `pattern` for what stands in `PATTERN`. It is reached through the tokens:
//! [`mark`] makes a table function of a factor with the clause behind it, whose argument begins with
//! a word that no script can hold; the dialect's hook for expressions finds it there.
//!
//! In the tree the clause is a call of [`MATCH`] with a call for each of its parts, so that whatever
//! walks over expressions sees those in the clause as well. [`match_clause`] decodes it. What the
//! clause means is none of this module's business: that is `query::match_recognize`.

mod clause;
mod pattern;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, SetExpr, TableFactor, Value};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span as TokenSpan, Token, TokenWithSpan, Word};

pub(super) use clause::clause;

use super::expression::is_clause_word;

/// The name of the call that stands for the clause in the tree.
pub(crate) const MATCH: &str = "__MATCH";
/// The word put in front of a marked factor. The tokenizer makes no such word: it has a character that
/// no name has.
const MARK: &str = "\u{1f}MATCH";

/// The names of the calls that stand for the parts.
mod part {
    pub(super) const PARTITION: &str = "__PARTITION";
    pub(super) const ORDER: &str = "__ORDER";
    pub(super) const DESCENDING: &str = "__DESCENDING";
    pub(super) const MEASURES: &str = "__MEASURES";
    /// `value AS name` in MEASURES, and `name AS condition` in DEFINE.
    pub(super) const NAMED: &str = "__NAMED";
    pub(super) const ALL_ROWS: &str = "__ALL_ROWS";
    pub(super) const SKIP: &str = "__SKIP";
    pub(super) const PATTERN: &str = "__PATTERN";
    pub(super) const WITHIN: &str = "__WITHIN";
    pub(super) const SUBSET: &str = "__SUBSET";
    pub(super) const DEFINE: &str = "__DEFINE";
    pub(super) const SEQUENCE: &str = "__SEQUENCE";
    pub(super) const ALTERNATIVES: &str = "__ALTERNATIVES";
    pub(super) const PERMUTE: &str = "__PERMUTE";
    pub(super) const EXCLUDE: &str = "__EXCLUDE";
    pub(super) const REPEAT: &str = "__REPEAT";
}

/// The names of the calls that `FINAL f(x)` and `RUNNING f(x)` are in the tree.
pub(crate) const FINAL: &str = "__FINAL";
/// See [`FINAL`].
pub(crate) const RUNNING: &str = "__RUNNING";

/// A clause, decoded. Expressions are as written, positions are those of the text.
#[derive(Clone, Debug)]
pub(crate) struct MatchClause {
    /// The word MATCH_RECOGNIZE.
    pub span: TokenSpan,
    /// The rows.
    pub input: TableFactor,
    /// `PARTITION BY`.
    pub partition_by: Vec<Expr>,
    /// `ORDER BY`, and whether ascending.
    pub order_by: Vec<(Expr, bool)>,
    /// `MEASURES`.
    pub measures: Vec<(Ident, Expr)>,
    /// `ONE ROW PER MATCH` or `ALL ROWS PER MATCH`.
    pub rows: RowsOfMatch,
    /// `AFTER MATCH SKIP`.
    pub skip: Option<SkipTo>,
    /// `PATTERN`.
    pub pattern: PatternTree,
    /// `WITHIN`, an INTERVAL literal.
    pub within: Option<Expr>,
    /// `SUBSET`.
    pub subsets: Vec<(Ident, Vec<Ident>)>,
    /// `DEFINE`.
    pub define: Vec<(Ident, Expr)>,
}

/// Which rows a match gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowsOfMatch {
    /// `ONE ROW PER MATCH`, the default.
    One,
    /// `ALL ROWS PER MATCH`.
    All {
        /// `WITH UNMATCHED ROWS`.
        unmatched: bool,
    },
}

/// Where `AFTER MATCH SKIP` goes.
#[derive(Clone, Debug)]
pub(crate) enum SkipTo {
    /// `PAST LAST ROW`.
    PastLastRow,
    /// `TO NEXT ROW`.
    NextRow,
    /// `TO FIRST variable`.
    First(Ident),
    /// `TO LAST variable`, or `TO variable`.
    Last(Ident),
}

/// A row pattern.
#[derive(Clone, Debug)]
pub(crate) enum PatternTree {
    /// A variable.
    Variable(Ident),
    /// One after the other.
    Sequence(Vec<PatternTree>),
    /// `a | b`, the earlier preferred.
    Alternatives(Vec<PatternTree>),
    /// All of them in any order.
    Permute(Vec<PatternTree>),
    /// `{- a -}`: matched, and not among the rows of ALL ROWS PER MATCH.
    Exclude(Box<PatternTree>, TokenSpan),
    /// A quantifier.
    Repeat {
        /// What is repeated.
        of: Box<PatternTree>,
        /// At least so often.
        min: u32,
        /// At most so often; without end if `None`.
        max: Option<u32>,
        /// As often as possible rather than as seldom.
        greedy: bool,
        /// The quantifier.
        span: TokenSpan,
    },
}

/// The tokens of a statement as sqlparser gets them, and the places of those put in, ascending: a
/// factor with the clause behind it, `t MATCH_RECOGNIZE (…)`, becomes
/// `TABLE ( mark SELECT * FROM t MATCH_RECOGNIZE (…) )`.
pub(super) fn mark(tokens: &[TokenWithSpan]) -> (Vec<TokenWithSpan>, Vec<usize>) {
    // By the token before which, or behind which, something is put in.
    let mut opened: BTreeMap<usize, Vec<TokenSpan>> = BTreeMap::new();
    let mut closed: BTreeMap<usize, Vec<TokenSpan>> = BTreeMap::new();
    for (i, token) in tokens.iter().enumerate() {
        let Token::Word(word) = &token.token else { continue };
        if word.keyword == Keyword::MATCH_RECOGNIZE
            && tokens.get(i + 1).is_some_and(|t| t.token == Token::LParen)
            && let Some(start) = factor_start(tokens, i)
            && let Some(end) = closing(tokens, i + 1)
        {
            opened.entry(start).or_default().push(token.span);
            closed.entry(end).or_default().push(token.span);
        }
    }
    if opened.is_empty() {
        return (tokens.to_vec(), Vec::new());
    }
    let mut out = Vec::with_capacity(tokens.len() + 7 * opened.len());
    let mut added = Vec::with_capacity(7 * opened.len());
    for (i, token) in tokens.iter().enumerate() {
        // Of several clauses behind one factor the last is the outermost.
        for span in opened.get(&i).into_iter().flatten().rev() {
            let mark = Token::Word(Word { value: MARK.to_string(), quote_style: None, keyword: Keyword::NoKeyword });
            let words =
                [Token::make_keyword("TABLE"), Token::LParen, mark, Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
            for word in words {
                added.push(out.len());
                out.push(TokenWithSpan::new(word, *span));
            }
        }
        out.push(token.clone());
        for span in closed.get(&i).into_iter().flatten() {
            added.push(out.len());
            out.push(TokenWithSpan::new(Token::RParen, *span));
        }
    }
    (out, added)
}

/// Whether a word is the mark.
pub(super) fn is_mark(word: &Word) -> bool {
    word.quote_style.is_none() && word.value == MARK
}

/// The first token of the factor in front of the clause at `clause`; `None` if there is none.
fn factor_start(tokens: &[TokenWithSpan], clause: usize) -> Option<usize> {
    let mut depth = 0usize;
    for i in (0..clause).rev() {
        match &tokens[i].token {
            Token::RParen | Token::RBracket => depth += 1,
            Token::LParen | Token::LBracket if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            Token::Comma | Token::LParen => return (i + 1 < clause).then_some(i + 1),
            Token::Word(w) if matches!(w.keyword, Keyword::FROM | Keyword::JOIN) => return (i + 1 < clause).then_some(i + 1),
            Token::Word(w) if is_clause_word(w.keyword) && w.keyword != Keyword::AS => return None,
            _ => {}
        }
    }
    None
}

/// The token that closes the parenthesis at `open`.
fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => {
                depth -= 1;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// The clause that a table factor is; `None` if it is something else.
pub(crate) fn match_clause(factor: &TableFactor) -> Option<MatchClause> {
    let TableFactor::TableFunction { expr, .. } = factor else { return None };
    let (span, parts) = named_call(expr, MATCH)?;
    let (first, parts) = parts.split_first()?;
    let Expr::Subquery(query) = first else { return None };
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let mut clause = MatchClause {
        span,
        input: select.from.first()?.relation.clone(),
        partition_by: Vec::new(),
        order_by: Vec::new(),
        measures: Vec::new(),
        rows: RowsOfMatch::One,
        skip: None,
        pattern: PatternTree::Sequence(Vec::new()),
        within: None,
        subsets: Vec::new(),
        define: Vec::new(),
    };
    for part in parts {
        let Expr::Function(function) = part else { return None };
        let values = arguments(function)?;
        let pairs = || {
            let pair = |e: &&Expr| match named_call(e, part::NAMED)?.1.as_slice() {
                [Expr::Identifier(name), value] => Some((name.clone(), (*value).clone())),
                _ => None,
            };
            values.iter().map(pair).collect::<Option<Vec<_>>>()
        };
        match name_of(function)? {
            part::PARTITION => clause.partition_by = values.into_iter().cloned().collect(),
            part::ORDER => {
                for value in values {
                    clause.order_by.push(match named_call(value, part::DESCENDING) {
                        Some((_, inner)) => ((*inner.first()?).clone(), false),
                        None => (value.clone(), true),
                    });
                }
            }
            part::MEASURES => clause.measures = pairs()?,
            part::ALL_ROWS => clause.rows = RowsOfMatch::All { unmatched: !values.is_empty() },
            part::SKIP => {
                clause.skip = Some(match values.as_slice() {
                    [kind] if text_of(kind)? == "PAST LAST ROW" => SkipTo::PastLastRow,
                    [kind] if text_of(kind)? == "TO NEXT ROW" => SkipTo::NextRow,
                    [kind, Expr::Identifier(name)] if text_of(kind)? == "TO FIRST" => SkipTo::First(name.clone()),
                    [kind, Expr::Identifier(name)] if text_of(kind)? == "TO LAST" => SkipTo::Last(name.clone()),
                    _ => return None,
                });
            }
            part::PATTERN => clause.pattern = tree(values.first()?)?,
            part::WITHIN => clause.within = Some((*values.first()?).clone()),
            part::SUBSET => {
                let mut names = Vec::new();
                for value in values {
                    let Expr::Identifier(name) = value else { return None };
                    names.push(name.clone());
                }
                if names.is_empty() {
                    return None;
                }
                let variable = names.remove(0);
                clause.subsets.push((variable, names));
            }
            part::DEFINE => clause.define = pairs()?,
            _ => return None,
        }
    }
    Some(clause)
}

/// Decodes a pattern.
fn tree(expr: &Expr) -> Option<PatternTree> {
    let function = match expr {
        Expr::Identifier(name) => return Some(PatternTree::Variable(name.clone())),
        Expr::Function(function) => function,
        _ => return None,
    };
    let (span, values) = (span_of(function)?, arguments(function)?);
    let all = || values.iter().map(|v| tree(v)).collect::<Option<Vec<_>>>();
    Some(match name_of(function)? {
        part::SEQUENCE => PatternTree::Sequence(all()?),
        part::ALTERNATIVES => PatternTree::Alternatives(all()?),
        part::PERMUTE => PatternTree::Permute(all()?),
        part::EXCLUDE => PatternTree::Exclude(Box::new(tree(values.first()?)?), span),
        part::REPEAT => match values.as_slice() {
            [of, min, max, greedy] => PatternTree::Repeat {
                of: Box::new(tree(of)?),
                min: text_of(min)?.parse().ok()?,
                max: match text_of(max)? {
                    "" => None,
                    max => Some(max.parse().ok()?),
                },
                greedy: text_of(greedy)? == "greedy",
                span,
            },
            _ => return None,
        },
        _ => return None,
    })
}

/// The place and arguments of a call, if an expression is one of this name.
pub(crate) fn named_call<'e>(expr: &'e Expr, name: &str) -> Option<(TokenSpan, Vec<&'e Expr>)> {
    let Expr::Function(function) = expr else { return None };
    if name_of(function)? != name {
        return None;
    }
    Some((span_of(function)?, arguments(function)?))
}

fn name_of(function: &Function) -> Option<&str> {
    match function.name.0.as_slice() {
        [part] => part.as_ident().map(|i| i.value.as_str()),
        _ => None,
    }
}

fn span_of(function: &Function) -> Option<TokenSpan> {
    function.name.0.first()?.as_ident().map(|i| i.span)
}

fn arguments(function: &Function) -> Option<Vec<&Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    list.args
        .iter()
        .map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e),
            _ => None,
        })
        .collect()
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}
