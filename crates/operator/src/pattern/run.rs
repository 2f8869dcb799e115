//! Matching: rows of one partition against the automaton.
//!
//! An *attempt* is the search for a match that begins at one row. Its *threads* are its partial matches,
//! in order of preference: a thread that ends a match cuts off the ones behind it, those before it go on
//! and may still end a preferred match. When no thread is left the attempt is decided.
//!
//! Where a match decides where the next one may begin, there is one attempt at a time, and the rows
//! behind its first are held to be searched again. Where it does not (`SKIP TO NEXT ROW`), attempts run
//! side by side and none waits for another.

use std::collections::VecDeque;
use std::sync::Arc;

use tidemill_plan::pattern::{AfterMatchSkip, AtBound, Bounds};

use super::automaton::{Automaton, Item};
use super::chain::{Chains, NONE, Taken};
use super::column::RowStore;
use super::navigate::{Candidate, KeyRows, Registers, SymbolCondition};
use super::output::Emitter;
use crate::OperatorError;

/// A partial match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    state: u32,
    link: u32,
}

/// A match that stands unless a preferred one is found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub link: u32,
    /// The last row; the first if the match is empty.
    pub last: u32,
    pub empty: bool,
}

/// The search for a match that begins at one row.
#[derive(Debug)]
pub(super) struct Attempt {
    pub start: u32,
    pub start_ms: i64,
    /// It begins at the first row of the partition.
    pub first: bool,
    /// The next row to be looked at.
    at: u32,
    threads: Vec<Thread>,
    pub found: Option<Found>,
}

/// The state of one partition.
pub(super) struct Key {
    pub rows: KeyRows,
    pub attempts: VecDeque<Attempt>,
    /// The next row at which a match may begin.
    pub next: u32,
    /// Matches so far.
    pub matches: i64,
    /// The row behind the last one that a match held.
    pub matched_to: u32,
    /// Whether the first row of the partition has been tried.
    pub begun: bool,
    /// Only one match was wanted, and it was found.
    pub done: bool,
    /// When the partition is next looked at without a row, as the operator has noted it.
    pub timer: i64,
    /// The time up to which it holds the watermark back, as the operator has noted it.
    pub hold: i64,
    /// In the operator's list of partitions that the current block touched.
    pub listed: bool,
    /// Counted among the live ones.
    pub counted: bool,
}

/// What is known of rows that have not come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Horizon {
    /// None will have a time before this, ms.
    pub not_before: i64,
    /// None will come.
    pub ended: bool,
}

impl Horizon {
    /// Rows of any time may come.
    pub const OPEN: Horizon = Horizon { not_before: i64::MIN, ended: false };
}

/// How matches of all partitions are found.
pub(super) struct Machine {
    pub automaton: Automaton,
    pub conditions: Vec<SymbolCondition>,
    pub names: Vec<Arc<str>>,
    pub registers: Registers,
    pub rows: RowStore,
    pub chains: Chains,
    /// The states from which on no condition depends on what was matched: of two threads in such a state
    /// the preferred one always wins.
    pub pure: Vec<bool>,
    /// Conditions depend on a match only through its registers: of two threads in the same state with the
    /// same registers the preferred one always wins.
    pub registers_decide: bool,
    /// The symbols, as bits, whose rows nobody looks at: they are taken without a link.
    pub transparent: u64,
    pub skip: AfterMatchSkip,
    pub every: bool,
    pub within_ms: Option<i64>,
    pub bounds: Bounds,
    /// Attempts run side by side; only with `every`.
    pub independent: bool,
    /// Rows before a row that are looked at.
    pub history: u32,
    /// Rows behind a row that are looked at.
    pub lookahead: u32,
    /// The pattern as written, for messages.
    pub text: String,
    /// Attempts that were given up at the bound.
    pub dropped: u64,
    /// Per state the step in which a thread last came to it.
    pub seen: Vec<u64>,
    pub steps: u64,
    pub words: Vec<u64>,
    pub spare: Vec<Vec<Thread>>,
}

/// How far row number `a` lies behind `b`; numbers wrap.
fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

impl Key {
    /// A partition without rows.
    pub fn new() -> Self {
        Key {
            rows: KeyRows::default(),
            attempts: VecDeque::new(),
            next: 0,
            matches: 0,
            matched_to: 0,
            begun: false,
            done: false,
            timer: i64::MAX,
            hold: i64::MAX,
            listed: false,
            counted: false,
        }
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let threads: usize = self.attempts.iter().map(|a| a.threads.capacity() * size_of::<Thread>()).sum();
        size_of::<Key>() + self.rows.places.capacity() * 4 + self.attempts.capacity() * size_of::<Attempt>() + threads
    }

    /// Whether nothing is held but what must be kept for good.
    pub fn is_quiet(&self) -> bool {
        self.rows.places.is_empty() && self.attempts.is_empty()
    }
}

impl Machine {
    /// So many threads are compared with a new one.
    const COMPARED: usize = 64;

    /// Looks at the rows of `key` as far as they allow, and puts out what is decided.
    ///
    /// # Errors
    /// A condition that cannot be computed, a skip that leads nowhere, a partition at its bound.
    pub fn advance(&mut self, key: &mut Key, horizon: Horizon, out: &mut Emitter) -> Result<(), OperatorError> {
        if self.independent {
            self.advance_side_by_side(key, horizon, out)?;
        } else {
            self.advance_in_turn(key, horizon, out)?;
        }
        self.trim(key);
        Ok(())
    }

    /// The row up to which rows can be looked at: those behind need rows that have not come.
    fn limit(&self, key: &Key, horizon: Horizon) -> u32 {
        let end = key.rows.end();
        if horizon.ended { end } else { end.wrapping_sub(self.lookahead) }
    }

    fn advance_in_turn(&mut self, key: &mut Key, horizon: Horizon, out: &mut Emitter) -> Result<(), OperatorError> {
        loop {
            if let Some(mut attempt) = key.attempts.pop_front() {
                if self.run(key, &mut attempt, horizon)? {
                    self.conclude(key, attempt, out)?;
                    continue;
                }
                let held = key.rows.end().wrapping_sub(attempt.start) as usize;
                if held > self.bounds.partial_matches_max {
                    self.give_up(&mut attempt)?;
                    self.conclude(key, attempt, out)?;
                    continue;
                }
                key.attempts.push_front(attempt);
                return Ok(());
            }
            if key.done {
                key.next = key.rows.end();
                return Ok(());
            }
            let limit = self.limit(key, horizon);
            loop {
                if ahead(limit, key.next) <= 0 {
                    return Ok(());
                }
                if let Some(attempt) = self.begin(key) {
                    key.attempts.push_front(attempt);
                    break;
                }
                self.unmatched(key, key.next, out);
                key.begun = true;
                key.next = key.next.wrapping_add(1);
            }
        }
    }

    fn advance_side_by_side(&mut self, key: &mut Key, horizon: Horizon, out: &mut Emitter) -> Result<(), OperatorError> {
        for _ in 0..key.attempts.len() {
            let mut attempt = key.attempts.pop_front().expect("as many as were counted");
            if self.run(key, &mut attempt, horizon)? {
                self.conclude(key, attempt, out)?;
            } else {
                key.attempts.push_back(attempt);
            }
        }
        let limit = self.limit(key, horizon);
        while ahead(limit, key.next) > 0 {
            if let Some(mut attempt) = self.begin(key) {
                if self.run(key, &mut attempt, horizon)? {
                    self.conclude(key, attempt, out)?;
                } else {
                    key.attempts.push_back(attempt);
                }
            }
            key.begun = true;
            key.next = key.next.wrapping_add(1);
        }
        while key.attempts.len() > self.bounds.partial_matches_max {
            let mut attempt = key.attempts.pop_front().expect("more than the bound");
            self.give_up(&mut attempt)?;
            self.conclude(key, attempt, out)?;
        }
        Ok(())
    }

    /// An attempt at row `key.next`, unless none can succeed there.
    fn begin(&mut self, key: &Key) -> Option<Attempt> {
        self.attempt(key, key.next, !key.begun)
    }

    /// An attempt at row `number`, which is the partition's first if `first`, unless none can succeed there.
    fn attempt(&mut self, key: &Key, number: u32, first: bool) -> Option<Attempt> {
        let place = key.rows.place(number).expect("a row to be tried is held") as usize;
        let start = if first { self.automaton.start_first } else { self.automaton.start };
        let state = &self.automaton.states[start as usize];
        if self.rows.masks[place] & state.wanted == 0 && !state.accepts {
            return None;
        }
        let mut threads = self.spare.pop().unwrap_or_default();
        if state.is_live() {
            threads.push(Thread { state: start, link: NONE });
        }
        let found = state.accepts.then_some(Found { link: NONE, last: number, empty: true });
        Some(Attempt { start: number, start_ms: self.rows.times[place], first, at: number, threads, found })
    }

    /// Takes up an attempt again that was undecided when a snapshot was taken: the same rows lead to the
    /// same partial matches.
    ///
    /// # Errors
    /// As [`Machine::advance`].
    pub fn resume(&mut self, key: &mut Key, number: u32, first: bool) -> Result<(), OperatorError> {
        if let Some(mut attempt) = self.attempt(key, number, first) {
            // If it is decided after all, the next row or the next watermark will put it out.
            let _: bool = self.run(key, &mut attempt, Horizon::OPEN)?;
            key.attempts.push_back(attempt);
        }
        Ok(())
    }

    /// Lets an attempt look at rows; true when it is decided, or was given up at the bound.
    fn run(&mut self, key: &Key, attempt: &mut Attempt, horizon: Horizon) -> Result<bool, OperatorError> {
        let limit = self.limit(key, horizon);
        let (within, start_ms) = (self.within_ms, attempt.start_ms);
        let too_late = |time: i64| within.is_some_and(|w| time.saturating_sub(start_ms) >= w);
        let mut at = attempt.at;
        let mut threads = std::mem::take(&mut attempt.threads);
        let mut found = attempt.found;
        let mut decided = true;
        while !threads.is_empty() {
            let Some(place) = key.rows.place(at) else {
                if horizon.ended {
                    let best = threads.iter().find(|t| self.automaton.states[t.state as usize].accepts_at_end);
                    if let Some(best) = best {
                        let link = best.link;
                        self.chains.hold(link);
                        self.replace(&mut found, Found { link, last: at.wrapping_sub(1), empty: false });
                    }
                    self.clear(&mut threads);
                    break;
                }
                // A match that may end with the partition can wait for that without end.
                let waits = || threads.iter().any(|t| self.automaton.states[t.state as usize].accepts_at_end);
                if too_late(horizon.not_before) && !waits() {
                    self.clear(&mut threads);
                    break;
                }
                decided = false;
                break;
            };
            if too_late(self.rows.times[place as usize]) {
                self.clear(&mut threads);
                break;
            }
            if ahead(limit, at) <= 0 {
                decided = false;
                break;
            }
            threads = self.step(key, threads, &mut found, at, place)?;
            at = at.wrapping_add(1);
            if threads.len() > self.bounds.partial_matches_max {
                attempt.threads = threads;
                attempt.found = found;
                self.give_up(attempt)?;
                return Ok(true);
            }
        }
        attempt.at = at;
        attempt.threads = threads;
        attempt.found = found;
        Ok(decided)
    }

    /// Moves threads over one row.
    fn step(
        &mut self,
        key: &Key,
        mut threads: Vec<Thread>,
        found: &mut Option<Found>,
        number: u32,
        place: u32,
    ) -> Result<Vec<Thread>, OperatorError> {
        let mut after = self.spare.pop().unwrap_or_default();
        self.steps += 1;
        let step = self.steps;
        'threads: for thread in &threads {
            let mut fits = false;
            for index in 0..self.automaton.states[thread.state as usize].items.len() {
                let item = self.automaton.states[thread.state as usize].items[index];
                if self.rows.masks[place as usize] & (1 << item.symbol) == 0 {
                    continue;
                }
                let Some(link) = self.fit(key, item, number, place, thread.link)? else { continue };
                fits = true;
                let target = item.target as usize;
                let repeats = if self.pure[target] {
                    std::mem::replace(&mut self.seen[target], step) == step
                } else {
                    let alike = |t: &Thread| t.state == item.target && self.chains.alike(t.link, link);
                    self.registers_decide && after.iter().take(Self::COMPARED).any(alike)
                };
                if repeats {
                    // A preferred thread has the same future.
                    self.chains.release(link);
                    continue;
                }
                let accepts = self.automaton.states[target].accepts;
                if accepts {
                    self.chains.hold(link);
                    self.replace(found, Found { link, last: number, empty: false });
                }
                if self.automaton.states[target].is_live() {
                    after.push(Thread { state: item.target, link });
                } else {
                    self.chains.release(link);
                }
                if accepts {
                    // All that follows is less preferred than ending here.
                    break 'threads;
                }
            }
            let state = thread.state as usize;
            let begun = thread.state != self.automaton.start && thread.state != self.automaton.start_first;
            let passes = self.automaton.relaxed && begun && !fits;
            if passes && !(self.pure[state] && std::mem::replace(&mut self.seen[state], step) == step) {
                self.chains.hold(thread.link);
                after.push(*thread);
            }
        }
        self.clear(&mut threads);
        self.spare.push(threads);
        Ok(after)
    }

    /// The link with row `number` taken by `item` behind `link`, if its condition holds.
    fn fit(&mut self, key: &Key, item: Item, number: u32, place: u32, link: u32) -> Result<Option<u32>, OperatorError> {
        let bit = 1u64 << item.symbol;
        let taken = Taken { row: number, symbol: item.symbol, excluded: item.excluded };
        let condition = &self.conditions[item.symbol as usize];
        if condition.near && !condition.conjuncts.is_empty() && self.rows.known[place as usize] & bit == 0 {
            let holds = condition.holds(&self.candidate(key, taken, link, &[]))?;
            self.rows.known[place as usize] |= bit;
            if !holds {
                self.rows.masks[place as usize] &= !bit;
                return Ok(None);
            }
        }
        if self.registers.stride > 0 {
            if link == NONE {
                self.registers.initial(&mut self.words);
            } else {
                self.words.clear();
                self.words.extend_from_slice(self.chains.registers(link));
            }
            self.registers.take(&mut self.words, taken, &key.rows, &self.rows)?;
        }
        let condition = &self.conditions[item.symbol as usize];
        if !condition.near && !condition.holds(&self.candidate(key, taken, link, &self.words))? {
            return Ok(None);
        }
        if self.transparent & bit != 0 {
            self.chains.hold(link);
            return Ok(Some(link));
        }
        Ok(Some(self.chains.add(link, taken, &self.words)))
    }

    fn candidate<'a>(&'a self, key: &'a Key, taken: Taken, link: u32, words: &'a [u64]) -> Candidate<'a> {
        Candidate {
            key: &key.rows,
            rows: &self.rows,
            chains: &self.chains,
            registers: &self.registers,
            names: &self.names,
            taken,
            link,
            words,
            match_number: key.matches + 1,
        }
    }

    fn replace(&mut self, found: &mut Option<Found>, better: Found) {
        if let Some(old) = found.replace(better) {
            self.chains.release(old.link);
        }
    }

    fn clear(&mut self, threads: &mut Vec<Thread>) {
        threads.drain(..).for_each(|t| self.chains.release(t.link));
    }

    /// Ends an attempt at the bound.
    fn give_up(&mut self, attempt: &mut Attempt) -> Result<(), OperatorError> {
        if self.bounds.at_bound == AtBound::Fail {
            let state = attempt.threads.first().map(|t| &self.automaton.states[t.state as usize]);
            // A symbol that leads back to where it was is the one that repeats.
            let repeats = |item: &&Item| self.automaton.states[item.target as usize].wanted & (1 << item.symbol) != 0;
            let item = state.and_then(|s| s.items.iter().find(repeats).or(s.items.first()));
            let symbol = item.map_or("?", |i| &*self.names[i.symbol as usize]);
            return Err(OperatorError::new(format!(
                "a partition of PATTERN ({}) has more than {} partial matches, or rows held for them: '{symbol}' can go on without end; add WITHIN, bound its quantifier, make its DEFINE stricter, or raise 'pattern.partial-matches.max'",
                self.text, self.bounds.partial_matches_max
            )));
        }
        self.dropped += 1;
        let mut threads = std::mem::take(&mut attempt.threads);
        self.clear(&mut threads);
        attempt.threads = threads;
        Ok(())
    }

    /// Puts out what a decided attempt found, and says where the next may begin.
    fn conclude(&mut self, key: &mut Key, attempt: Attempt, out: &mut Emitter) -> Result<(), OperatorError> {
        let Attempt { start, threads, found, .. } = attempt;
        self.spare.push(threads);
        key.begun = true;
        let behind = start.wrapping_add(1);
        let Some(found) = found else {
            if !self.independent {
                self.unmatched(key, start, out);
                key.next = behind;
            }
            return Ok(());
        };
        key.matches += 1;
        out.matched(&key.rows, &self.rows, &self.chains, start, found, key.matches)?;
        let next = if found.empty { behind } else { self.next_start(start, found)? };
        self.chains.release(found.link);
        if !found.empty && ahead(found.last.wrapping_add(1), key.matched_to) > 0 {
            key.matched_to = found.last.wrapping_add(1);
        }
        if !self.independent {
            key.next = next;
        }
        key.done = !self.every;
        Ok(())
    }

    /// Where `AFTER MATCH SKIP` leads.
    fn next_start(&self, start: u32, found: Found) -> Result<u32, OperatorError> {
        let (symbols, row, end) = match &self.skip {
            AfterMatchSkip::PastLastRow => return Ok(found.last.wrapping_add(1)),
            AfterMatchSkip::ToNextRow => return Ok(start.wrapping_add(1)),
            AfterMatchSkip::ToFirst(symbols) => (symbols, self.rows_of(symbols, found.link).last(), "FIRST"),
            AfterMatchSkip::ToLast(symbols) => (symbols, self.rows_of(symbols, found.link).next(), "LAST"),
        };
        let name = || symbols.iter().map(|s| &*self.names[*s]).collect::<Vec<_>>().join(", ");
        match row {
            Some(row) if row != start => Ok(row),
            Some(_) => Err(OperatorError::new(format!(
                "AFTER MATCH SKIP TO {end} {}: that is the first row of the match, so the same match would be found for ever; use SKIP TO NEXT ROW or PAST LAST ROW, or skip to a variable that cannot begin PATTERN ({})",
                name(),
                self.text
            ))),
            None => Err(OperatorError::new(format!(
                "AFTER MATCH SKIP TO {end} {}: a match of PATTERN ({}) has no row of it; skip to a variable that every match has, or use SKIP TO NEXT ROW or PAST LAST ROW",
                name(),
                self.text
            ))),
        }
    }

    /// The rows of some symbols in a match, last first.
    fn rows_of<'a>(&'a self, symbols: &'a [usize], link: u32) -> impl Iterator<Item = u32> + 'a {
        self.chains.backwards(link).filter(|t| symbols.contains(&usize::from(t.symbol))).map(|t| t.row)
    }

    fn unmatched(&self, key: &Key, row: u32, out: &mut Emitter) {
        if out.unmatched && ahead(row, key.matched_to) >= 0 {
            out.unmatched_row(&self.rows, key.rows.place(row).expect("a row to be tried is held"));
        }
    }

    /// Lets go of rows that nothing will look at again.
    fn trim(&mut self, key: &mut Key) {
        let first = key.attempts.front().map_or(key.next, |a| a.start);
        // Where the search goes on may lie behind all rows that are there.
        let first = if ahead(first, key.rows.end()) > 0 { key.rows.end() } else { first };
        let keep = first.wrapping_sub(self.history);
        while ahead(keep, key.rows.base) > 0
            && let Some(place) = key.rows.places.pop_front()
        {
            self.rows.release(place);
            key.rows.base = key.rows.base.wrapping_add(1);
        }
        if ahead(key.rows.base, key.matched_to) > 0 {
            key.matched_to = key.rows.base;
        }
    }

    /// When the oldest attempt of `key` is over if no row comes.
    pub fn deadline(&self, key: &Key) -> i64 {
        match (self.within_ms, key.attempts.front()) {
            (Some(within), Some(oldest)) => oldest.start_ms.saturating_add(within),
            _ => i64::MAX,
        }
    }

    /// The least event time of a row that `key` may still put out because of rows that are there;
    /// `i64::MAX` if there is none.
    pub fn holds_back(&self, key: &Key, all_rows: bool) -> i64 {
        let time = |number: u32| key.rows.place(number).map_or(i64::MAX, |p| self.rows.times[p as usize]);
        // Rows that wait for the ones behind them.
        let mut least = if self.independent || key.attempts.is_empty() { time(key.next) } else { i64::MAX };
        for attempt in &key.attempts {
            // A row that waits for the next ones may be the match's last, and so may the row before if
            // the match stands when the input ends there.
            least = least.min(time(attempt.at));
            if attempt.threads.iter().any(|t| self.automaton.states[t.state as usize].accepts_at_end) {
                least = least.min(time(attempt.at.wrapping_sub(1)));
            }
            let at = match attempt.found {
                _ if all_rows => attempt.start_ms,
                Some(found) => time(found.last).min(if self.independent { i64::MAX } else { time(attempt.start.wrapping_add(1)) }),
                None if self.independent => i64::MAX,
                None => time(attempt.start.wrapping_add(1)),
            };
            least = least.min(at);
        }
        least
    }

    /// Partial matches of `key`.
    pub fn partial_matches(key: &Key) -> usize {
        key.attempts.iter().map(|a| a.threads.len()).sum()
    }
}
