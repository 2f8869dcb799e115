//! Row patterns: what `MATCH_RECOGNIZE` (and Siddhi's patterns and sequences) ask for, independent of
//! how it is executed.
//!
//! # How expressions see a match
//!
//! `DEFINE` conditions and outputs (`MEASURES` and what is passed through) are ordinary expressions
//! over an *extended schema*: first the columns of the input, then one column for each [`Navigation`],
//! in order, unqualified and named by [`navigation_column`]. [`PatternSpec::extended_schema`] builds it.
//!
//! * An input column stands for the **current row**. In a condition that is the row which is just being
//!   tried as the symbol. In an output it is, with `ALL ROWS PER MATCH`, the row that is put out, and with
//!   `ONE ROW PER MATCH` the last row of the match (of an empty match the row at which it was found; then
//!   use navigations, which are NULL there, for everything but the partition's columns).
//! * A navigation column stands for a value that was looked up in the match: the operator first computes
//!   the navigations of a candidate and then the expression.
//!
//! How SQL is written down (symbols are indices into [`PatternSpec::symbols`], `{A}` is `Some(vec![a])`):
//!
//! | SQL | where | becomes |
//! |---|---|---|
//! | `A.price`, `price` | `DEFINE A` | the input column itself: the current row *is* the last row of `A` |
//! | `B.price` | `DEFINE A` | `Value { price, Last, offset 0, shift 0 }` over `{B}`, running |
//! | `LAST(A.price, 1)` | `DEFINE A` | `Value { price, Last, offset 1, shift 0 }` over `{A}`: counts the current row as offset 0 |
//! | `PREV(A.price, 2)`, `PREV(price, 2)` | `DEFINE A` | `Value { price, Last, offset 0, shift -2 }` over `{A}`, or over `None` |
//! | `NEXT(price)` | anywhere | `Value { price, Last, offset 0, shift 1 }` over `None` |
//! | `PREV(FIRST(B.price, 1), 2)` | anywhere | `Value { price, First, offset 1, shift -2 }` over `{B}` |
//! | `A.price` | `MEASURES` | `Value { price, Last, offset 0, shift 0 }` over `{A}` |
//! | `price` | `MEASURES` | the same over `None` |
//! | `SUM(A.price * 2)` | anywhere | `Aggregate { call: SUM(price * 2) }` over `{A}` |
//! | `COUNT(*)` | anywhere | `Aggregate { call: COUNT(1) }` over `None`; `COUNT(A.*)` over `{A}` |
//! | `CLASSIFIER()` | anywhere | `Value { Classifier, Last, offset 0, shift 0 }` over `None`; `CLASSIFIER(S)` over the symbols of `S` |
//! | `MATCH_NUMBER()` | anywhere | `MatchNumber` |
//! | `MATCH_ROWTIME()` | `MEASURES` | `Value { the time column, Last, offset 0, shift 0 }` over `None`, final |
//! | `FINAL x`, `RUNNING x` | `MEASURES` | `running: false`, `running: true` |
//!
//! A subset is the sorted set of its symbols' indices; the specification has no other trace of `SUBSET`.
//! `running` says whether rows behind the current one count: always true in `DEFINE`, false with
//! `ONE ROW PER MATCH`, and with `ALL ROWS PER MATCH` as written (the default is RUNNING). A navigation
//! that finds no row is NULL, an aggregate over no rows what the function gives for none.
//!
//! A condition without any navigation column is *simple*: it is computed for whole blocks. Conditions are
//! taken apart at their ANDs ([`Symbol::conjuncts`]), so that the simple part of a condition always decides
//! first. A condition whose navigations are all `Last, offset 0, shift ≤ 0` of the symbol being defined (or
//! of `None`) looks only at neighbouring rows and is computed once a row.
//!
//! Do not show the expressions of a specification to DataFusion's optimizer as the expressions of a node:
//! it would look for the navigation columns in the node's input. [`PatternSpec::input_columns`] says which
//! columns of the input are needed.
//!
//! # Semantics
//!
//! Rows of a partition are ordered by event time, then by the secondary order, then by arrival. Matches
//! are those of SQL:2016 (ISO/IEC 19075-5): the first start that matches, of its matches the preferred one
//! (greedy quantifiers prefer more rows, reluctant ones fewer, an alternation its first branch, `PERMUTE`
//! the order as written), found under the condition that all rows lie within `within_ms`. An iteration of
//! a quantifier beyond its minimum takes at least one row. After a match the search goes on where
//! [`AfterMatchSkip`] says; after an empty match, at the next row.
//!
//! # Absence
//!
//! SQL cannot write it; Siddhi's patterns and sequences can. An absence is an element like others and holds no row.
//!
//! * `not X for t` is entered when the element before it is done: at the time of its row, or when it was an absence itself,
//!   at the time at which that was over. If no row of a time less than `t` ms later fits X, the pattern goes on, at that
//!   time; when it does so does not depend on rows, the watermark is enough, and the end of the input, too. Other rows in
//!   between are passed over, with strict contiguity, too. All of it lies within `within_ms`.
//! * `not X and B`: a row that fits X before B is taken ends the partial match, and so does one that fits both.
//! * At the beginning of a pattern there is no row to count from. `not X for t` then asks that a match's first row comes
//!   `t` or more behind the partition's first row, its last row of X, and the last row of the last match; `not X and B`,
//!   that no X came behind the last B, the last match, or since the partition began: an X costs the next B its match.
//!   With `ToNextRow` matches change nothing of this. Siddhi's clock starts with its application instead, which events
//!   that have times of their own know nothing of. A match has at least one row, and one absence before it at most.
//! * An alternative of a row and an absence (Siddhi's `B or not X for t`) with relaxed contiguity: what happens first is
//!   what happens. With strict contiguity both are looked for, and the preferred one of the matches is taken, as with
//!   alternatives of rows. In `PERMUTE` an absence is entered when its turn comes.
//! * A repetition without end must take a row each time.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion_common::{Column, DFSchema, Result, TableReference};
use datafusion_expr::Expr;
use datafusion_expr::utils::split_conjunction;

/// The whole of a `MATCH_RECOGNIZE` but its input, its partitioning and its order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PatternSpec {
    /// The pattern variables; at most [`SYMBOLS_MAX`].
    pub symbols: Vec<Symbol>,
    /// What is looked for.
    pub pattern: Pattern,
    /// Whether other rows may lie between the rows of a match. SQL: strict.
    pub contiguity: Contiguity,
    /// Whether matching goes on after the first match of a partition. SQL: true. Siddhi: `every`; what
    /// `every` stands before is said by `skip`: `every A -> B` is `ToNextRow`, `every (A -> B)` is
    /// `PastLastRow`.
    pub every: bool,
    /// Where the search goes on after a match.
    pub skip: AfterMatchSkip,
    /// A match's last row lies **less** than so many ms behind its first, as in Flink (a partial match is
    /// over when `time − first ≥ WITHIN`). Siddhi's bound is inclusive: give 1 ms more.
    pub within_ms: Option<i64>,
    /// What is put out for a match.
    pub rows: RowsPerMatch,
    /// What is looked up in a match by conditions and outputs.
    pub navigations: Vec<Navigation>,
    /// The output's columns: expressions over the extended schema, in order, with their names.
    pub output: Vec<(String, Expr)>,
    /// How much a partition may keep.
    pub bounds: Bounds,
}

/// The most pattern variables: a row's conditions are the bits of a word.
pub const SYMBOLS_MAX: usize = 64;

/// A pattern variable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Symbol {
    /// Its name, as `CLASSIFIER()` gives it.
    pub name: String,
    /// Which input its rows come from, where a pattern goes over several streams; 0 in SQL.
    pub input: usize,
    /// Its condition over the extended schema; `None` means that every row will do.
    pub condition: Option<Expr>,
}

/// A pattern. Symbols are indices into [`PatternSpec::symbols`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// `()`: no row.
    Empty,
    /// One row.
    Symbol(usize),
    /// One after the other.
    Concat(Vec<Pattern>),
    /// `a | b`, and Siddhi's `or`: the first that matches is preferred.
    Alternate(Vec<Pattern>),
    /// `PERMUTE(a, b, …)`, and Siddhi's `and`: all of them in any order, the order as written preferred.
    Permute(Vec<Pattern>),
    /// `a*`, `a+?`, `a{2,5}`.
    Repeat {
        /// What is repeated.
        inner: Box<Pattern>,
        /// At least so often.
        min: u32,
        /// At most so often; `None` is without bound. Not below `min`.
        max: Option<u32>,
        /// Prefers more over fewer.
        greedy: bool,
    },
    /// `{- a -}`: matched, but not put out by `ALL ROWS PER MATCH`.
    Exclude(Box<Pattern>),
    /// `^`: before the first row of the partition.
    Start,
    /// `$`: behind the last row of the partition; known at the end of the input.
    End,
    /// Siddhi's `not S for t`, and the first half of `not S and B`; see *Absence* in [the module](self).
    Absent {
        /// The symbol that must not occur. It takes no row.
        symbol: usize,
        /// For so long, ms, at least 1; `None` is until the next element is there: `not A and B` is a [`Pattern::Concat`]
        /// of this and `B`.
        for_ms: Option<i64>,
    },
}

/// Whether rows that fit nothing end a partial match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Contiguity {
    /// Each row of the partition must fit: SQL, and Siddhi's sequences.
    #[default]
    Strict,
    /// Rows that fit no next element are passed over; the first that fits is taken: Siddhi's patterns.
    Relaxed,
}

/// Where the search goes on after a match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AfterMatchSkip {
    /// Behind the match's last row.
    PastLastRow,
    /// At the row behind the match's first row.
    ToNextRow,
    /// At the first row of one of these symbols. A match without such a row, or in which it is the match's
    /// own first row, fails the job: the search would begin where it just was, for ever.
    ToFirst(Vec<usize>),
    /// At the last row of one of these symbols; fails as [`AfterMatchSkip::ToFirst`] does.
    ToLast(Vec<usize>),
}

/// What is put out for a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowsPerMatch {
    /// `ONE ROW PER MATCH`; an empty match has its row too.
    One,
    /// `ALL ROWS PER MATCH`: each row of the match but those of `{- -}`.
    All {
        /// `SHOW EMPTY MATCHES` (the default) or `OMIT EMPTY MATCHES`: a row for an empty match.
        empty: bool,
        /// `WITH UNMATCHED ROWS`: rows at which no match begins and which no match holds, too; their
        /// navigations are NULL.
        unmatched: bool,
    },
}

/// From which end rows are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// `FIRST`.
    First,
    /// `LAST`.
    Last,
}

/// What a navigation looks at in the row that it finds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Argument {
    /// An expression over the input's columns (never over navigation columns).
    Input(Expr),
    /// The name of the symbol that the row is mapped to; NULL for a row outside the match.
    Classifier,
}

/// A value that is looked up in a match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Navigation {
    /// How.
    pub kind: NavigationKind,
    /// Only rows mapped to one of these symbols count, ascending; `None`: all rows of the match.
    pub symbols: Option<Vec<usize>>,
    /// Only rows up to the current one count.
    pub running: bool,
    /// The type of the value.
    pub data_type: DataType,
}

/// How a value is looked up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NavigationKind {
    /// The row `offset` from `end` among the rows that count, then `shift` rows on in the partition
    /// (behind it if negative), whether these belong to the match or not.
    Value {
        /// What of that row.
        argument: Argument,
        /// Counted from here.
        end: End,
        /// So many rows inwards.
        offset: usize,
        /// `PREV` negative, `NEXT` positive.
        shift: i64,
    },
    /// An aggregate function over the rows that count.
    Aggregate {
        /// An `Expr::AggregateFunction` over the input's columns; DISTINCT and FILTER are allowed.
        call: Expr,
    },
    /// The number of the match in its partition, from 1; BIGINT.
    MatchNumber,
}

/// How much state a partition may keep, and what happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// The most partial matches of a partition, and the most rows that undecided matches of a partition
    /// may hold.
    pub partial_matches_max: usize,
    /// What happens at the bound.
    pub at_bound: AtBound,
}

/// What happens when a partition is at its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtBound {
    /// The job fails with a message that names the pattern variable.
    Fail,
    /// The oldest undecided match is given up as if it did not match, and counted.
    DropOldest,
}

impl Default for Bounds {
    /// Ten thousand a partition, then the job fails.
    fn default() -> Self {
        Bounds { partial_matches_max: 10_000, at_bound: AtBound::Fail }
    }
}

/// The name of the column of the extended schema that holds navigation `index`.
pub fn navigation_column(index: usize) -> String {
    format!("$navigation{index}")
}

/// An expression for navigation `index`.
pub fn navigation_expr(index: usize) -> Expr {
    Expr::Column(Column::new_unqualified(navigation_column(index)))
}

/// The index of the navigation that a column name stands for.
pub fn navigation_index(column: &Column) -> Option<usize> {
    if column.relation.is_some() {
        return None;
    }
    column.name.strip_prefix("$navigation")?.parse().ok()
}

/// The navigations that an expression uses, ascending.
pub fn navigations_of(expression: &Expr) -> Vec<usize> {
    let mut found: Vec<usize> = expression.column_refs().into_iter().filter_map(navigation_index).collect();
    found.sort_unstable();
    found.dedup();
    found
}

impl Symbol {
    /// The condition taken apart at its ANDs: the simple conjuncts, and those that look something up.
    pub fn conjuncts(&self) -> (Vec<Expr>, Vec<Expr>) {
        self.condition
            .iter()
            .flat_map(split_conjunction)
            .cloned()
            .partition(|conjunct| conjunct.column_refs().into_iter().all(|column| navigation_index(column).is_none()))
    }
}

impl PatternSpec {
    /// The schema that conditions and outputs are written over: the input's columns, then one nullable
    /// column for each navigation.
    ///
    /// # Errors
    /// An input column that has the name of a navigation.
    pub fn extended_schema(&self, input: &DFSchema) -> Result<DFSchema> {
        let mut fields: Vec<(Option<TableReference>, Arc<Field>)> = input.iter().map(|(q, f)| (q.cloned(), f.clone())).collect();
        for (index, navigation) in self.navigations.iter().enumerate() {
            fields.push((None, Arc::new(Field::new(navigation_column(index), navigation.data_type.clone(), true))));
        }
        DFSchema::new_with_metadata(fields, input.metadata().clone())
    }

    /// The input's columns that conditions, navigations and outputs use, each once, in order of name.
    pub fn input_columns(&self) -> Vec<Column> {
        let mut found: Vec<Column> = Vec::new();
        let arguments = self.navigations.iter().filter_map(|n| match &n.kind {
            NavigationKind::Value { argument: Argument::Input(expression), .. } | NavigationKind::Aggregate { call: expression } => {
                Some(expression)
            }
            _ => None,
        });
        let conditions = self.symbols.iter().filter_map(|s| s.condition.as_ref());
        for expression in conditions.chain(arguments).chain(self.output.iter().map(|(_, e)| e)) {
            for column in expression.column_refs() {
                if navigation_index(column).is_none() && !found.contains(column) {
                    found.push(column.clone());
                }
            }
        }
        found.sort();
        found
    }
}

impl Pattern {
    /// The symbols that occur in the pattern, ascending.
    pub fn symbols(&self) -> Vec<usize> {
        fn walk(pattern: &Pattern, found: &mut Vec<usize>) {
            match pattern {
                Pattern::Empty | Pattern::Start | Pattern::End => {}
                Pattern::Symbol(symbol) | Pattern::Absent { symbol, .. } => found.push(*symbol),
                Pattern::Concat(parts) | Pattern::Alternate(parts) | Pattern::Permute(parts) => parts.iter().for_each(|p| walk(p, found)),
                Pattern::Repeat { inner, .. } | Pattern::Exclude(inner) => walk(inner, found),
            }
        }
        let mut found = Vec::new();
        walk(self, &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The pattern as SQL writes it, with these names of symbols.
    pub fn to_sql(&self, name: &dyn Fn(usize) -> String) -> String {
        let list = |parts: &[Pattern], between: &str| parts.iter().map(|p| p.to_sql(name)).collect::<Vec<_>>().join(between);
        match self {
            Pattern::Empty => "()".into(),
            Pattern::Symbol(symbol) => name(*symbol),
            Pattern::Concat(parts) => list(parts, " "),
            Pattern::Alternate(parts) => format!("({})", list(parts, " | ")),
            Pattern::Permute(parts) => format!("PERMUTE({})", list(parts, ", ")),
            Pattern::Repeat { inner, min, max, greedy } => {
                let text = match **inner {
                    Pattern::Symbol(_) | Pattern::Alternate(_) | Pattern::Permute(_) | Pattern::Empty => inner.to_sql(name),
                    _ => format!("({})", inner.to_sql(name)),
                };
                let times = match (min, max) {
                    (0, None) => "*".to_string(),
                    (1, None) => "+".to_string(),
                    (0, Some(1)) => "?".to_string(),
                    (n, None) => format!("{{{n},}}"),
                    (n, Some(m)) if n == m => format!("{{{n}}}"),
                    (n, Some(m)) => format!("{{{n},{m}}}"),
                };
                format!("{text}{times}{}", if *greedy { "" } else { "?" })
            }
            Pattern::Exclude(inner) => format!("{{- {} -}}", inner.to_sql(name)),
            Pattern::Start => "^".into(),
            Pattern::End => "$".into(),
            Pattern::Absent { symbol, for_ms: Some(ms) } => format!("not {} for {ms} ms", name(*symbol)),
            Pattern::Absent { symbol, for_ms: None } => format!("not {}", name(*symbol)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_expr::{col, lit};

    fn repeat(inner: Pattern, min: u32, max: Option<u32>, greedy: bool) -> Pattern {
        Pattern::Repeat { inner: Box::new(inner), min, max, greedy }
    }

    #[test]
    fn patterns_as_sql() {
        let a = || Pattern::Symbol(0);
        let b = || Pattern::Symbol(1);
        let name = |s: usize| ["A", "B"][s].to_string();
        let check = |pattern: Pattern, expect: &str| assert_eq!(pattern.to_sql(&name), expect);
        check(Pattern::Concat(vec![a(), repeat(b(), 0, None, false), a()]), "A B*? A");
        check(repeat(Pattern::Concat(vec![a(), b()]), 2, Some(5), true), "(A B){2,5}");
        check(repeat(Pattern::Alternate(vec![a(), b()]), 1, None, true), "(A | B)+");
        let anchored = vec![Pattern::Start, Pattern::Permute(vec![a(), b()]), Pattern::Exclude(Box::new(a())), Pattern::End];
        check(Pattern::Concat(anchored), "^ PERMUTE(A, B) {- A -} $");
        let absent = |for_ms| Pattern::Absent { symbol: 1, for_ms };
        check(Pattern::Concat(vec![a(), absent(Some(5)), absent(None), a()]), "A not B for 5 ms not B A");
        assert_eq!(Pattern::Concat(vec![b(), a(), b()]).symbols(), [0, 1]);
    }

    #[test]
    fn conditions_are_taken_apart() {
        let condition = col("price").gt(lit(1)).and(navigation_expr(3).lt(col("price"))).and(col("qty").eq(lit(2)));
        let symbol = Symbol { name: "A".into(), input: 0, condition: Some(condition) };
        let (simple, looking) = symbol.conjuncts();
        assert_eq!(simple, [col("price").gt(lit(1)), col("qty").eq(lit(2))]);
        assert_eq!(looking.iter().map(navigations_of).collect::<Vec<_>>(), [[3]]);
    }
}
