//! A second slow matcher, which knows relaxed contiguity, absence and several inputs, too: from what is left of a
//! pattern it derives what may come next, in order of preference, and tries it on every row in turn.
//!
//! It shares nothing with the machine: there are no states, what is left is a list of patterns. Anchors it does not know.

use tidemill_plan::pattern::{AfterMatchSkip, Pattern};

use super::{Match, STEPS_MAX, Search, Stop};

/// What to look for, and how.
pub(in crate::pattern) struct Expansion<'a> {
    pub search: Search<'a>,
    pub relaxed: bool,
    pub every: bool,
    /// The inputs that the rows of the symbols come from.
    pub inputs: Option<&'a [usize]>,
}

/// A part of what is left of a pattern.
#[derive(Clone)]
enum Left<'a> {
    Pattern(&'a Pattern, bool),
    AnyOrder(Vec<&'a Pattern>, bool),
    Again {
        inner: &'a Pattern,
        min: u32,
        max: Option<u32>,
        greedy: bool,
        out: bool,
    },
    /// More must have been passed by now.
    Passed(usize),
}

/// What may come next; `left` is what is left then, last part first.
enum Next<'a> {
    /// A row, none of the symbols `not` (bits) before.
    Row { symbol: usize, out: bool, not: u64, left: Vec<Left<'a>> },
    /// So long a time (ms) without a row of the symbols `not` (bits).
    Time { not: u64, for_ms: i64, left: Vec<Left<'a>> },
    /// Nothing: the match may end.
    End,
}

/// How far a match has come.
#[derive(Clone, Copy)]
struct Place {
    /// The next row to be looked at.
    at: usize,
    /// When it came here, ms.
    since: i64,
    /// Rows and absences so far.
    passed: usize,
}

/// Where the search went on behind the last match.
#[derive(Clone, Copy)]
struct Behind {
    row: usize,
    /// The time of that match's last row, ms.
    time: i64,
}

/// Finds what may come next, into `next`; true if nothing behind is preferred to what was found.
fn expand<'a>(mut left: Vec<Left<'a>>, not: u64, passed: usize, next: &mut Vec<Next<'a>>) -> bool {
    let Some(first) = left.pop() else {
        next.push(Next::End);
        return true;
    };
    let with = |parts: Vec<Left<'a>>| [left.clone(), parts].concat();
    match first {
        Left::Passed(before) => passed > before && expand(left, not, passed, next),
        Left::AnyOrder(parts, _) if parts.is_empty() => expand(left, not, passed, next),
        Left::AnyOrder(parts, out) => (0..parts.len()).any(|i| {
            let mut rest = parts.clone();
            let one = rest.remove(i);
            expand(with(vec![Left::AnyOrder(rest, out), Left::Pattern(one, out)]), not, passed, next)
        }),
        Left::Again { inner, min, max, greedy, out } => {
            let again = Left::Again { inner, min: min.saturating_sub(1), max: max.map(|m| m.saturating_sub(1)), greedy, out };
            if min > 0 {
                return expand(with(vec![again, Left::Pattern(inner, out)]), not, passed, next);
            }
            if !greedy && expand(left.clone(), not, passed, next) {
                return true;
            }
            let once_more = vec![again, Left::Passed(passed), Left::Pattern(inner, out)];
            (max != Some(0) && expand(with(once_more), not, passed, next)) || (greedy && expand(left.clone(), not, passed, next))
        }
        Left::Pattern(pattern, out) => match pattern {
            Pattern::Empty => expand(left, not, passed, next),
            Pattern::Symbol(symbol) => {
                next.push(Next::Row { symbol: *symbol, out, not, left });
                false
            }
            Pattern::Concat(parts) => expand(with(parts.iter().rev().map(|p| Left::Pattern(p, out)).collect()), not, passed, next),
            Pattern::Alternate(parts) => parts.iter().any(|p| expand(with(vec![Left::Pattern(p, out)]), not, passed, next)),
            Pattern::Permute(parts) => expand(with(vec![Left::AnyOrder(parts.iter().collect(), out)]), not, passed, next),
            Pattern::Repeat { inner, min, max, greedy } => {
                expand(with(vec![Left::Again { inner, min: *min, max: *max, greedy: *greedy, out }]), not, passed, next)
            }
            Pattern::Exclude(inner) => expand(with(vec![Left::Pattern(inner, true)]), not, passed, next),
            Pattern::Absent { symbol, for_ms: Some(for_ms) } => {
                next.push(Next::Time { not: not | (1u64 << *symbol), for_ms: *for_ms, left });
                false
            }
            Pattern::Absent { symbol, for_ms: None } => expand(left, not | (1u64 << *symbol), passed, next),
            Pattern::Start | Pattern::End => unreachable!("not generated"),
        },
    }
}

impl<'a> Expansion<'a> {
    fn fits(&self, symbol: usize, row: usize, taken: &Match) -> bool {
        let comes_from = self.search.rows[row].input();
        self.inputs.is_none_or(|inputs| inputs[symbol] == comes_from) && self.search.holds(symbol, row, taken)
    }

    fn fits_any(&self, symbols: u64, row: usize, taken: &Match) -> bool {
        (0..self.search.tests.len()).any(|symbol| symbols & (1 << symbol) != 0 && self.fits(symbol, row, taken))
    }

    fn in_time(&self, time: i64, taken: &Match) -> bool {
        let first = taken.first().map_or(time, |t| self.search.rows[t.0].time);
        self.search.within.is_none_or(|w| time - first < w)
    }

    /// Takes a row and goes on behind it.
    fn take(&self, row: usize, symbol: usize, out: bool, left: &[Left<'a>], passed: usize, taken: &mut Match) -> bool {
        taken.push((row, symbol, out));
        let place = Place { at: row + 1, since: self.search.rows[row].time, passed: passed + 1 };
        let found = self.follow(left.to_vec(), place, taken);
        if !found {
            taken.pop();
        }
        found
    }

    /// Looks for the rest of a match that has begun.
    fn follow(&self, left: Vec<Left<'a>>, place: Place, taken: &mut Match) -> bool {
        let steps = &self.search.steps;
        steps.set(steps.get() + 1);
        if steps.get() > STEPS_MAX {
            // True ends the search; the answer is not looked at.
            return true;
        }
        let mut next = Vec::new();
        expand(left, 0, place.passed, &mut next);
        if self.relaxed { self.first_of(&next, place, taken) } else { self.any_of(&next, place, taken) }
    }

    /// Strict: each goes its own way; rows in the time of an absence need not fit.
    fn any_of(&self, next: &[Next<'a>], place: Place, taken: &mut Match) -> bool {
        let rows = self.search.rows;
        next.iter().any(|one| match one {
            Next::End => true,
            Next::Time { not, for_ms, left } => {
                let due = place.since + for_ms;
                let behind = (place.at..rows.len()).find(|row| rows[*row].time >= due).unwrap_or(rows.len());
                let absent = (place.at..behind).all(|row| !self.fits_any(*not, row, taken));
                absent && self.in_time(due, taken) && self.wait(behind, due, left, place.passed, taken)
            }
            Next::Row { symbol, out, not, left } => {
                let row = place.at;
                let may = row < rows.len() && self.in_time(rows[row].time, taken) && !self.fits_any(*not, row, taken);
                may && self.fits(*symbol, row, taken) && self.take(row, *symbol, *out, left, place.passed, taken)
            }
        })
    }

    /// Relaxed: what happens first is what happens; if several do, they are tried in order.
    fn first_of(&self, next: &[Next<'a>], place: Place, taken: &mut Match) -> bool {
        let rows = self.search.rows;
        let ends = next.iter().any(|one| matches!(one, Next::End));
        let mut possible: Vec<&Next<'a>> = next.iter().filter(|one| !matches!(one, Next::End)).collect();
        for row in place.at..=rows.len() {
            let time = rows.get(row).map_or(i64::MAX, |r| r.time);
            let due_of = |one: &Next<'a>| match one {
                Next::Time { for_ms, .. } => Some(place.since + for_ms),
                _ => None,
            };
            if let Some(due) = possible.iter().filter_map(|one| due_of(one)).min().filter(|due| *due <= time) {
                let waits = possible.iter().filter(|one| due_of(one) == Some(due));
                let mut lefts = waits.filter_map(|one| if let Next::Time { left, .. } = one { Some(left) } else { None });
                let goes_on = self.in_time(due, taken) && lefts.any(|left| self.wait(row, due, left, place.passed, taken));
                return goes_on || ends;
            }
            if row == rows.len() || !self.in_time(time, taken) {
                break;
            }
            possible.retain(|one| match one {
                Next::Row { not, .. } | Next::Time { not, .. } => !self.fits_any(*not, row, taken),
                Next::End => false,
            });
            let mut fits = false;
            for one in &possible {
                let Next::Row { symbol, out, left, .. } = one else { continue };
                if self.fits(*symbol, row, taken) {
                    fits = true;
                    if self.take(row, *symbol, *out, left, place.passed, taken) {
                        return true;
                    }
                }
            }
            if fits {
                break;
            }
        }
        ends
    }

    /// Goes on behind an absence that is over at `due`, before row `at`.
    fn wait(&self, at: usize, due: i64, left: &[Left<'a>], passed: usize, taken: &mut Match) -> bool {
        self.follow(left.to_vec(), Place { at, since: due, passed: passed + 1 }, taken)
    }

    /// Whether row `start` comes so long after the last row of `symbols`, the partition's first and the last match.
    fn is_quiet(&self, symbols: u64, for_ms: i64, start: usize, behind: Behind) -> bool {
        let rows = self.search.rows;
        let last = (0..start).filter(|row| self.fits_any(symbols, *row, &Match::new())).map(|row| rows[row].time);
        let clock = last.chain([rows[0].time, behind.time]).max().unwrap_or(0);
        rows[start].time - clock >= for_ms
    }

    /// Whether no row of `symbols` came behind the last of `these`, or the last match, up to row `start`.
    fn is_free(&self, symbols: u64, these: u64, start: usize, behind: Behind) -> bool {
        let none = Match::new();
        let over = |row: usize| (row + 1..start).any(|other| self.fits_any(these, other, &none));
        let bars = |row: usize| self.fits_any(symbols, row, &none) && (row == start || !over(row));
        !(behind.row..=start).any(bars)
    }

    /// Looks for a match whose first row is `start`.
    fn begin(&self, start: usize, behind: Behind, taken: &mut Match) -> bool {
        let mut next = Vec::new();
        expand(vec![Left::Pattern(self.search.pattern, false)], 0, 0, &mut next);
        let begun_by = |bits: u64| {
            let symbols = next.iter().map(|n| match n {
                Next::Row { symbol, not, .. } if *not == bits => 1u64 << *symbol,
                _ => 0,
            });
            symbols.fold(0, |all, one| all | one)
        };
        for first in &next {
            match first {
                Next::End => return true,
                Next::Row { symbol, out, not, left } => {
                    let may = *not == 0 || self.is_free(*not, begun_by(*not), start, behind);
                    if may && self.fits(*symbol, start, taken) && self.take(start, *symbol, *out, left, 0, taken) {
                        return true;
                    }
                }
                Next::Time { not, for_ms, left } => {
                    if !self.is_quiet(*not, *for_ms, start, behind) {
                        continue;
                    }
                    let mut items = Vec::new();
                    expand(left.clone(), 0, 1, &mut items);
                    for item in &items {
                        // Anything else is refused.
                        let Next::Row { symbol, out, left, .. } = item else { continue };
                        if self.fits(*symbol, start, taken) && self.take(start, *symbol, *out, left, 1, taken) {
                            return true;
                        }
                    }
                }
            }
        }
        false
    }

    /// The matches in order, each with its first row.
    pub fn matches(&self) -> Result<Vec<(usize, Match)>, Stop> {
        let Search { rows, skip, steps, .. } = &self.search;
        let mut found = Vec::new();
        let (mut start, mut behind) = (0, Behind { row: 0, time: i64::MIN });
        while start < rows.len() {
            let mut taken = Match::new();
            let matched = self.begin(start, behind, &mut taken);
            if steps.get() > STEPS_MAX {
                return Err(Stop::TooLong);
            }
            if !matched {
                start += 1;
                continue;
            }
            let next = match (taken.last(), skip) {
                (None, _) | (_, AfterMatchSkip::ToNextRow) => start + 1,
                (Some(last), AfterMatchSkip::PastLastRow) => last.0 + 1,
                (_, AfterMatchSkip::ToFirst(symbols)) => taken.iter().find(|t| symbols.contains(&t.1)).ok_or(Stop::Nowhere)?.0,
                (_, AfterMatchSkip::ToLast(symbols)) => taken.iter().rfind(|t| symbols.contains(&t.1)).ok_or(Stop::Nowhere)?.0,
            };
            if next == start {
                return Err(Stop::Nowhere);
            }
            if let Some(last) = taken.last().filter(|_| **skip != AfterMatchSkip::ToNextRow) {
                behind = Behind { row: next, time: rows[last.0].time };
            }
            found.push((start, taken));
            start = next;
            if !self.every {
                break;
            }
        }
        Ok(found)
    }
}
