//! Row patterns: from the tree as written to the pattern of the plan, and what is refused of them.

use datafusion_common::Result;
use sqlparser::ast::Ident;
use sqlparser::tokenizer::Span as TokenSpan;
use tidemill_plan::pattern::{AfterMatchSkip, Pattern};

use super::names::Names;
use crate::diagnostic::{LineIndex, SqlError};
use crate::parse::match_recognize::{MatchClause, PatternTree, SkipTo};
use crate::query::error::column_help;
use crate::query::window::external;

/// The most steps of a pattern when its counts are written out: what is kept for an undecided match
/// grows with it.
const STEPS_MAX: u64 = 10_000;

impl PatternTree {
    /// The variables as they occur.
    pub(super) fn variables(&self) -> Vec<&Ident> {
        match self {
            PatternTree::Variable(name) => vec![name],
            PatternTree::Sequence(parts) | PatternTree::Alternatives(parts) | PatternTree::Permute(parts) => {
                parts.iter().flat_map(PatternTree::variables).collect()
            }
            PatternTree::Exclude(inner, _) => inner.variables(),
            PatternTree::Repeat { of, .. } => of.variables(),
        }
    }

    /// From the first variable or mark to the last.
    pub(super) fn span(&self) -> TokenSpan {
        match self {
            PatternTree::Variable(name) => name.span,
            PatternTree::Sequence(parts) | PatternTree::Alternatives(parts) | PatternTree::Permute(parts) => {
                TokenSpan::union_iter(parts.iter().map(PatternTree::span))
            }
            PatternTree::Exclude(inner, at) => inner.span().union(at),
            PatternTree::Repeat { of, span, .. } => of.span().union(span),
        }
    }

    /// The pattern of the plan.
    fn pattern(&self, names: &Names) -> Pattern {
        let all = |parts: &[PatternTree]| parts.iter().map(|p| p.pattern(names)).collect();
        match self {
            PatternTree::Variable(name) => {
                Pattern::Symbol(names.symbols.iter().position(|s| *s == name.value).expect("the names are those of the pattern"))
            }
            PatternTree::Sequence(parts) => Pattern::Concat(all(parts)),
            PatternTree::Alternatives(parts) => Pattern::Alternate(all(parts)),
            PatternTree::Permute(parts) => Pattern::Permute(all(parts)),
            PatternTree::Exclude(inner, _) => Pattern::Exclude(Box::new(inner.pattern(names))),
            PatternTree::Repeat { of, min, max, greedy, .. } => {
                Pattern::Repeat { inner: Box::new(of.pattern(names)), min: *min, max: *max, greedy: *greedy }
            }
        }
    }

    /// Whether no row at all matches it.
    fn may_be_empty(&self) -> bool {
        match self {
            PatternTree::Variable(_) => false,
            PatternTree::Sequence(parts) | PatternTree::Permute(parts) => parts.iter().all(PatternTree::may_be_empty),
            PatternTree::Alternatives(parts) => parts.iter().any(PatternTree::may_be_empty),
            PatternTree::Exclude(inner, _) => inner.may_be_empty(),
            PatternTree::Repeat { of, min, .. } => *min == 0 || of.may_be_empty(),
        }
    }

    /// Steps when counts and permutations are written out.
    fn steps(&self) -> u64 {
        let sum = |parts: &[PatternTree]| parts.iter().fold(0u64, |sum, p| sum.saturating_add(p.steps()));
        match self {
            PatternTree::Variable(_) => 1,
            PatternTree::Sequence(parts) | PatternTree::Alternatives(parts) => sum(parts),
            // What remains after some members were there is the same in whatever order they came.
            PatternTree::Permute(parts) => sum(parts).saturating_mul(1 << (parts.len() - 1).min(40)),
            PatternTree::Exclude(inner, _) => inner.steps(),
            PatternTree::Repeat { of, min, max, .. } => of.steps().saturating_mul(u64::from(max.unwrap_or((*min).max(1)))),
        }
    }

    /// The variable because of which a greedy quantifier never comes to an end: what it repeats matches
    /// whatever rows come.
    fn unending(&self, always: &dyn Fn(&Ident) -> bool) -> Option<&Ident> {
        match self {
            PatternTree::Variable(_) => None,
            PatternTree::Repeat { of, max: None, greedy: true, .. } => of.matches_all(always).or_else(|| of.unending(always)),
            PatternTree::Repeat { of, .. } | PatternTree::Exclude(of, _) => of.unending(always),
            PatternTree::Sequence(parts) | PatternTree::Alternatives(parts) | PatternTree::Permute(parts) => {
                parts.iter().find_map(|p| p.unending(always))
            }
        }
    }

    /// The variable that makes this match whatever rows come, one run of them after another.
    fn matches_all(&self, always: &dyn Fn(&Ident) -> bool) -> Option<&Ident> {
        match self {
            PatternTree::Variable(name) => always(name).then_some(name),
            PatternTree::Alternatives(parts) => parts.iter().find_map(|p| p.matches_all(always)),
            PatternTree::Sequence(parts) | PatternTree::Permute(parts) => {
                let found: Vec<_> = parts.iter().map(|p| p.matches_all(always)).collect();
                let whole = parts.iter().zip(&found).all(|(part, found)| found.is_some() || part.may_be_empty());
                if whole { found.into_iter().flatten().next() } else { None }
            }
            PatternTree::Exclude(of, _) | PatternTree::Repeat { of, .. } => of.matches_all(always),
        }
    }

    /// Whether every match begins with one of these symbols.
    fn begins_with(&self, among: &dyn Fn(&Ident) -> bool) -> bool {
        match self {
            PatternTree::Variable(name) => among(name),
            PatternTree::Alternatives(parts) | PatternTree::Permute(parts) => parts.iter().all(|p| p.begins_with(among)),
            PatternTree::Sequence(parts) => {
                let first = parts.iter().take_while(|p| p.may_be_empty()).count();
                parts.iter().take(first + 1).all(|p| p.begins_with(among))
            }
            PatternTree::Exclude(of, _) | PatternTree::Repeat { of, .. } => of.begins_with(among),
        }
    }

    /// How many rows of these symbols a match has at most; without bound if `None`.
    fn count_max(&self, among: &dyn Fn(&Ident) -> bool) -> Option<u64> {
        match self {
            PatternTree::Variable(name) => Some(u64::from(among(name))),
            PatternTree::Sequence(parts) | PatternTree::Permute(parts) => {
                parts.iter().try_fold(0u64, |sum, p| Some(sum.saturating_add(p.count_max(among)?)))
            }
            PatternTree::Alternatives(parts) => parts.iter().try_fold(0u64, |most, p| Some(most.max(p.count_max(among)?))),
            PatternTree::Exclude(of, _) => of.count_max(among),
            PatternTree::Repeat { of, max, .. } => match (of.count_max(among), max) {
                (Some(0), _) => Some(0),
                (Some(count), Some(max)) => Some(count.saturating_mul(u64::from(*max))),
                _ => None,
            },
        }
    }
}

/// The pattern of a clause. `always` says which variables match every row.
///
/// # Errors
/// A pattern that matches without rows, grows without end, or is too large.
pub(super) fn pattern(
    clause: &MatchClause,
    names: &Names,
    always: &dyn Fn(&Ident) -> bool,
    within: bool,
    lines: &LineIndex<'_>,
) -> Result<Pattern> {
    let tree = &clause.pattern;
    let fail = |at: TokenSpan, message: String, help: String| Err(external(SqlError::new(message).or_at(lines.span(at)).with_help(help)));
    if tree.may_be_empty() {
        return fail(
            tree.span(),
            "this pattern matches without any row".into(),
            "at least one variable must be there: A+ in place of A*, A in place of A?".into(),
        );
    }
    let steps = tree.steps();
    if steps > STEPS_MAX {
        return fail(
            tree.span(),
            format!("this pattern has {steps} steps when its counts and PERMUTEs are written out, at most {STEPS_MAX} can be"),
            "repeat fewer times, or without bound under WITHIN; COUNT(A.x) in a condition counts rows too".into(),
        );
    }
    if !within && let Some(name) = tree.unending(always) {
        return fail(
            name.span,
            format!("{name} matches every row and is repeated without end: a match with it is never decided"),
            format!(
                "give {name} a condition in DEFINE, bound it by time (PATTERN (…) WITHIN INTERVAL '1' HOUR) or by number ({name}{{0,100}}), or write {name}*?: as few as possible"
            ),
        );
    }
    Ok(tree.pattern(names))
}

/// Where the search goes on. Without AFTER MATCH at the next row, as in Flink.
///
/// # Errors
/// An unknown variable; a row to which the search would come back for ever.
pub(super) fn skip(clause: &MatchClause, names: &Names, lines: &LineIndex<'_>) -> Result<AfterMatchSkip> {
    let (target, first) = match &clause.skip {
        None | Some(SkipTo::NextRow) => return Ok(AfterMatchSkip::ToNextRow),
        Some(SkipTo::PastLastRow) => return Ok(AfterMatchSkip::PastLastRow),
        Some(SkipTo::First(target)) => (target, true),
        Some(SkipTo::Last(target)) => (target, false),
    };
    let at = lines.span(target.span);
    let Some(symbols) = names.find(&target.value) else {
        let error = SqlError::new(format!("AFTER MATCH SKIP TO: there is no pattern variable {}", target.value)).or_at(at);
        return Err(external(column_help(error, &target.value, names.all())));
    };
    let among = |name: &Ident| symbols.iter().any(|s| names.symbols[*s] == name.value);
    let only_first = first || clause.pattern.count_max(&among) == Some(1);
    if only_first && clause.pattern.begins_with(&among) {
        return Err(external(
            SqlError::new(format!("every match begins with {}: the search would come back to the same row for ever", target.value))
                .or_at(at)
                .with_help("write AFTER MATCH SKIP TO NEXT ROW, or PAST LAST ROW"),
        ));
    }
    Ok(if first { AfterMatchSkip::ToFirst(symbols) } else { AfterMatchSkip::ToLast(symbols) })
}
