//! A slow, obviously right matcher: tries everything in order of preference over a whole partition.
//!
//! It shares nothing with the machine: patterns are matched by recursion, conditions look at the list of
//! rows that were taken. Rows between those of a match, and absences, are for [`expand`].

pub(super) mod expand;

use std::cell::Cell;

use tidemill_plan::pattern::{AfterMatchSkip, Pattern};

/// A row of a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub id: i64,
    pub key: i64,
    pub time: i64,
    pub value: Option<i64>,
}

impl Row {
    /// Which input it comes from, where there are two.
    pub fn input(&self) -> usize {
        (self.id % 2) as usize
    }
}

/// A condition of a symbol.
#[derive(Clone, Copy, Debug)]
pub(super) enum Test {
    Always,
    /// `value < n`
    Below(i64),
    /// `value >= n`
    AtLeast(i64),
    /// `value > PREV(value)`
    Rises,
    /// `value < NEXT(value)`
    WillRise,
    /// `value >= LAST(s.value)`
    NotBelowLast(usize),
    /// `value <> FIRST(s.value)`
    NotFirst(usize),
    /// `SUM(s.value) < n`
    SumBelow(usize, i64),
    /// `COUNT(s.value) <= n`, and the value is even.
    EvenAndFew(usize, i64),
    /// `MAX(s.value) > value`
    BelowMax(usize),
}

/// A match: its rows, each with its symbol and whether it is left out.
pub(super) type Match = Vec<(usize, usize, bool)>;

/// What to look for.
pub(super) struct Search<'a> {
    pub rows: &'a [Row],
    pub tests: &'a [Test],
    pub pattern: &'a Pattern,
    pub within: Option<i64>,
    pub skip: &'a AfterMatchSkip,
    pub steps: Cell<u64>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stop {
    /// `AFTER MATCH SKIP` leads nowhere.
    Nowhere,
    /// Backtracking takes too long.
    TooLong,
}

/// The most steps of a search.
const STEPS_MAX: u64 = 100_000;

impl Search<'_> {
    fn holds(&self, symbol: usize, row: usize, taken: &Match) -> bool {
        let rows = self.rows;
        let value = rows[row].value;
        let of = |s: usize| taken.iter().filter(move |t| t.1 == s).map(move |t| rows[t.0].value).chain((s == symbol).then_some(value));
        let known = |a: Option<i64>, b: Option<i64>, test: fn(i64, i64) -> bool| a.zip(b).is_some_and(|(a, b)| test(a, b));
        match self.tests[symbol] {
            Test::Always => true,
            Test::Below(n) => known(value, Some(n), |a, b| a < b),
            Test::AtLeast(n) => known(value, Some(n), |a, b| a >= b),
            Test::Rises => row > 0 && known(value, self.rows[row - 1].value, |a, b| a > b),
            Test::WillRise => row + 1 < self.rows.len() && known(value, self.rows[row + 1].value, |a, b| a < b),
            Test::NotBelowLast(s) => known(value, of(s).last().flatten(), |a, b| a >= b),
            Test::NotFirst(s) => known(value, of(s).next().flatten(), |a, b| a != b),
            Test::SumBelow(s, n) => {
                let sum = of(s).flatten().fold(None, |sum: Option<i64>, v| Some(sum.unwrap_or(0) + v));
                known(sum, Some(n), |a, b| a < b)
            }
            Test::EvenAndFew(s, n) => value.is_some_and(|v| v % 2 == 0) && of(s).flatten().count() as i64 <= n,
            Test::BelowMax(s) => known(of(s).flatten().max(), value, |a, b| a > b),
        }
    }

    /// Matches `pattern` from row `at` on; `then` goes on behind it.
    fn go(&self, pattern: &Pattern, at: usize, out: bool, taken: &mut Match, then: &mut dyn FnMut(usize, &mut Match) -> bool) -> bool {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > STEPS_MAX {
            // True ends the search; the answer is not looked at.
            return true;
        }
        match pattern {
            Pattern::Empty => then(at, taken),
            Pattern::Symbol(symbol) => {
                let Some(row) = self.rows.get(at) else { return false };
                let first = taken.first().map_or(at, |t| t.0);
                let in_time = self.within.is_none_or(|w| row.time - self.rows[first].time < w);
                if !in_time || !self.holds(*symbol, at, taken) {
                    return false;
                }
                taken.push((at, *symbol, out));
                if then(at + 1, taken) {
                    return true;
                }
                taken.pop();
                false
            }
            Pattern::Concat(parts) => self.all(parts, at, out, taken, then),
            Pattern::Alternate(parts) => parts.iter().any(|p| self.go(p, at, out, taken, then)),
            Pattern::Permute(parts) => {
                if parts.is_empty() {
                    return then(at, taken);
                }
                (0..parts.len()).any(|i| {
                    let mut rest = parts.clone();
                    let first = rest.remove(i);
                    self.go(&first, at, out, taken, &mut |at, taken| self.go(&Pattern::Permute(rest.clone()), at, out, taken, then))
                })
            }
            Pattern::Repeat { inner, min, max, greedy } => self.again(inner, *min, *max, *greedy, at, out, taken, then),
            Pattern::Exclude(inner) => self.go(inner, at, true, taken, then),
            Pattern::Start => at == 0 && then(at, taken),
            // A match that begins before a row does not end at the end.
            Pattern::End => at == self.rows.len() && then(at, taken),
            Pattern::Absent { .. } => unreachable!("for the other matcher"),
        }
    }

    fn all(&self, parts: &[Pattern], at: usize, out: bool, taken: &mut Match, then: &mut dyn FnMut(usize, &mut Match) -> bool) -> bool {
        let Some((first, rest)) = parts.split_first() else { return then(at, taken) };
        self.go(first, at, out, taken, &mut |at, taken| self.all(rest, at, out, taken, then))
    }

    fn again(
        &self,
        inner: &Pattern,
        min: u32,
        max: Option<u32>,
        greedy: bool,
        at: usize,
        out: bool,
        taken: &mut Match,
        then: &mut dyn FnMut(usize, &mut Match) -> bool,
    ) -> bool {
        if min > 0 {
            return self
                .go(inner, at, out, taken, &mut |at, taken| self.again(inner, min - 1, max.map(|m| m - 1), greedy, at, out, taken, then));
        }
        if !greedy && then(at, taken) {
            return true;
        }
        if max != Some(0)
            && self.go(inner, at, out, taken, &mut |next, taken| {
                next > at && self.again(inner, 0, max.map(|m| m - 1), greedy, next, out, taken, then)
            })
        {
            return true;
        }
        greedy && then(at, taken)
    }

    /// The matches in order, each with its first row.
    pub fn matches(&self) -> Result<Vec<(usize, Match)>, Stop> {
        let mut found = Vec::new();
        let mut start = 0;
        while start < self.rows.len() {
            let mut taken = Match::new();
            let matched = self.go(self.pattern, start, false, &mut taken, &mut |_, _| true);
            if self.steps.get() > STEPS_MAX {
                return Err(Stop::TooLong);
            }
            if !matched {
                start += 1;
                continue;
            }
            let next = match (taken.last(), self.skip) {
                (None, _) | (_, AfterMatchSkip::ToNextRow) => start + 1,
                (Some(last), AfterMatchSkip::PastLastRow) => last.0 + 1,
                (_, AfterMatchSkip::ToFirst(symbols)) => taken.iter().find(|t| symbols.contains(&t.1)).ok_or(Stop::Nowhere)?.0,
                (_, AfterMatchSkip::ToLast(symbols)) => taken.iter().rfind(|t| symbols.contains(&t.1)).ok_or(Stop::Nowhere)?.0,
            };
            if next == start {
                return Err(Stop::Nowhere);
            }
            found.push((start, taken));
            start = next;
        }
        Ok(found)
    }
}
