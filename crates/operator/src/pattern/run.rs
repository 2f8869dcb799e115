//! Matching: rows of one partition against the automaton.
//!
//! An *attempt* is the search for a match that begins at one row. Its *threads* are its partial matches,
//! in order of preference: a thread that ends a match cuts off the ones behind it, those before it go on
//! and may still end a preferred match. When no thread is left the attempt is decided.
//!
//! Where a match decides where the next one may begin, there is one attempt at a time, and the rows
//! behind its first are held to be searched again. Where it does not (`SKIP TO NEXT ROW`), attempts run
//! side by side and none waits for another; when there are many, those that have come to the same are moved
//! as a [`super::group`].
//!
//! Waiting for an absence is in [`super::wait`], what matches begin behind in [`super::lead`].

use std::collections::VecDeque;
use std::sync::Arc;

use tidemill_plan::pattern::{AfterMatchSkip, AtBound, Bounds};

use super::automaton::{Automaton, Item, State};
use super::chain::{Chains, NONE, Taken};
use super::column::RowStore;
use super::group::{Grouping, Groups};
use super::navigate::{Candidate, KeyRows, Registers, SymbolCondition};
use super::output::Emitter;
use super::wait::Kin;
use crate::OperatorError;

/// A partial match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    pub state: u32,
    pub link: u32,
    /// When it goes on without a row, ms; [`NEVER`] if it waits for one.
    pub due: i64,
}

/// The time of what does not happen by itself, ms.
pub(super) const NEVER: i64 = i64::MAX;

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
    /// The absences it began behind, as bits.
    pub leads: u8,
    /// The next row to be looked at.
    pub at: u32,
    pub threads: Vec<Thread>,
    pub found: Option<Found>,
}

/// The state of one partition.
pub(super) struct Key {
    pub rows: KeyRows,
    /// Undecided, in order of their first rows: those that are moved alone.
    pub attempts: VecDeque<Attempt>,
    /// Those that are moved together, if there are any.
    pub groups: Option<Box<Groups>>,
    /// The next row at which a match may begin.
    pub next: u32,
    /// Matches so far.
    pub matches: i64,
    /// The row behind the last one that a match held.
    pub matched_to: u32,
    /// Whether the first row of the partition has been tried.
    pub begun: bool,
    /// What is known of the absences that matches begin with, by their numbers; empty before the first row.
    pub leads: Box<[i64]>,
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
    /// What is held for it, as the operator has counted it.
    pub holding: Holding,
}

/// What is held for a partition, or for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holding {
    pub partial_matches: usize,
    /// Bytes, without the [`Key`] itself.
    pub memory: usize,
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
    /// The symbols, as bits, of which a row's mask says all, and there are no registers to be set.
    pub by_mask: u64,
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
    /// A match may end behind rows that it did not take: its last row is that of its last link.
    pub ends_behind: bool,
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
    pub grouping: Grouping,
    /// At hand for a step.
    pub kin: Kin,
}

/// How far row number `a` lies behind `b`; numbers wrap.
pub(super) fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

impl Key {
    /// A partition without rows.
    pub fn new() -> Self {
        Key {
            rows: KeyRows::default(),
            attempts: VecDeque::new(),
            groups: None,
            next: 0,
            matches: 0,
            matched_to: 0,
            begun: false,
            leads: Box::default(),
            done: false,
            timer: i64::MAX,
            hold: i64::MAX,
            listed: false,
            counted: false,
            holding: Holding::default(),
        }
    }

    /// What is held for it now.
    pub fn holding(&self) -> Holding {
        let (mut partial_matches, mut memory) = self.groups.as_ref().map_or((0, 0), |g| (g.partial_matches(), g.memory()));
        for attempt in &self.attempts {
            partial_matches += attempt.threads.len();
            memory += attempt.threads.capacity() * size_of::<Thread>();
        }
        memory += self.leads.len() * 8 + self.rows.places.capacity() * 4 + self.attempts.capacity() * size_of::<Attempt>();
        Holding { partial_matches, memory }
    }

    /// Whether nothing is held but what must be kept for good.
    pub fn is_quiet(&self) -> bool {
        self.rows.places.is_empty() && self.attempts.is_empty() && self.groups.is_none()
    }

    /// Counts a match.
    pub fn matched(&mut self, found: Found) {
        self.matches += 1;
        let behind = found.last.wrapping_add(1);
        if !found.empty && ahead(behind, self.matched_to) > 0 {
            self.matched_to = behind;
        }
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
    pub(super) fn limit(&self, key: &Key, horizon: Horizon) -> u32 {
        let end = key.rows.end();
        if horizon.ended { end } else { end.wrapping_sub(self.lookahead) }
    }

    fn advance_in_turn(&mut self, key: &mut Key, horizon: Horizon, out: &mut Emitter) -> Result<(), OperatorError> {
        loop {
            let waiting = match key.attempts.pop_front() {
                None => self.next_in_turn(key, horizon, out)?,
                waiting => waiting,
            };
            let Some(mut attempt) = waiting else { return Ok(()) };
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
    }

    /// The attempt at the next row at which one can succeed, if there is such a row.
    fn next_in_turn(&mut self, key: &mut Key, horizon: Horizon, out: &mut Emitter) -> Result<Option<Attempt>, OperatorError> {
        if key.done {
            key.next = key.rows.end();
            return Ok(None);
        }
        let limit = self.limit(key, horizon);
        while ahead(limit, key.next) > 0 {
            if let Some(attempt) = self.begin(key)? {
                return Ok(Some(attempt));
            }
            let number = key.next;
            self.unmatched(key, number, out);
            self.leave(key, number)?;
            key.begun = true;
            key.next = key.next.wrapping_add(1);
        }
        Ok(None)
    }

    fn advance_side_by_side(&mut self, key: &mut Key, horizon: Horizon, out: &mut Emitter) -> Result<(), OperatorError> {
        if key.groups.is_some() {
            self.advance_groups(key, horizon, out)?;
        } else {
            for _ in 0..key.attempts.len() {
                let mut attempt = key.attempts.pop_front().expect("as many as were counted");
                if self.run(key, &mut attempt, horizon)? {
                    self.conclude(key, attempt, out)?;
                } else {
                    key.attempts.push_back(attempt);
                }
            }
        }
        let limit = self.limit(key, horizon);
        while ahead(limit, key.next) > 0 {
            if let Some(mut attempt) = self.begin(key)? {
                if self.run(key, &mut attempt, horizon)? {
                    self.conclude(key, attempt, out)?;
                } else {
                    key.attempts.push_back(attempt);
                }
            }
            let number = key.next;
            self.leave(key, number)?;
            key.begun = true;
            key.next = key.next.wrapping_add(1);
        }
        while key.waiting() > self.bounds.partial_matches_max {
            self.shed(key, out)?;
        }
        self.gather_if_many(key);
        Ok(())
    }

    /// An attempt at row `key.next`, unless none can succeed there.
    fn begin(&mut self, key: &mut Key) -> Result<Option<Attempt>, OperatorError> {
        let leads = if self.automaton.leads.is_empty() { 0 } else { self.fulfilled(key)? };
        Ok(self.attempt(key, key.next, !key.begun, leads))
    }

    /// An attempt at row `number`, which is the partition's first if `first`, behind the absences `leads` (bits), unless none
    /// can succeed there.
    fn attempt(&mut self, key: &Key, number: u32, first: bool, leads: u8) -> Option<Attempt> {
        let place = key.rows.place(number).expect("a row to be tried is held") as usize;
        let start = if first { self.automaton.start_first } else { self.automaton.start };
        let mask = self.rows.masks[place];
        let open = |state: &State| state.lead.is_none_or(|lead| leads & (1 << lead) != 0);
        let states = &self.automaton.states;
        let begins = |state: &State| open(state) && (mask & state.wanted != 0 || state.accepts);
        if !self.automaton.pieces(start).any(|piece| begins(&states[piece as usize])) {
            return None;
        }
        let mut threads = self.spare.pop().unwrap_or_default();
        let mut accepts = false;
        for piece in self.automaton.pieces(start) {
            let state = &states[piece as usize];
            if open(state) {
                accepts |= state.accepts;
                if state.is_live() {
                    threads.push(Thread { state: piece, link: NONE, due: NEVER });
                }
            }
        }
        let found = accepts.then_some(Found { link: NONE, last: number, empty: true });
        Some(Attempt { start: number, start_ms: self.rows.times[place], first, leads, at: number, threads, found })
    }

    /// Looks at the last row of `key` again, which was there when a snapshot was taken: the same rows lead to the same
    /// partial matches. If an attempt began at it that was undecided, `begins` says whether the row was the partition's first,
    /// and which absences the attempt began behind.
    ///
    /// # Errors
    /// As [`Machine::advance`].
    pub fn resume(&mut self, key: &mut Key, begins: Option<(bool, u8)>) -> Result<(), OperatorError> {
        if key.groups.is_some() {
            self.resume_groups(key)?;
        }
        // If an attempt is decided after all, the next row or the next watermark will put it out.
        for _ in 0..key.attempts.len() {
            let mut attempt = key.attempts.pop_front().expect("as many as were counted");
            let _: bool = self.run(key, &mut attempt, Horizon::OPEN)?;
            key.attempts.push_back(attempt);
        }
        if let Some((first, leads)) = begins
            && let Some(mut attempt) = self.attempt(key, key.rows.end().wrapping_sub(1), first, leads)
        {
            let _: bool = self.run(key, &mut attempt, Horizon::OPEN)?;
            key.attempts.push_back(attempt);
        }
        self.gather_if_many(key);
        Ok(())
    }

    /// Lets an attempt look at rows; true when it is decided, or was given up at the bound.
    pub(super) fn run(&mut self, key: &Key, attempt: &mut Attempt, horizon: Horizon) -> Result<bool, OperatorError> {
        let limit = self.limit(key, horizon);
        let (within, start_ms) = (self.within_ms, attempt.start_ms);
        let too_late = |time: i64| within.is_some_and(|w| time.saturating_sub(start_ms) >= w);
        // What is due later comes too late.
        let due_max = within.map_or(NEVER, |w| start_ms.saturating_add(w)) - 1;
        let mut at = attempt.at;
        let mut threads = std::mem::take(&mut attempt.threads);
        let mut found = attempt.found;
        let mut decided = true;
        while !threads.is_empty() {
            let place = key.rows.place(at);
            if self.automaton.timed {
                let now = match place {
                    Some(place) => self.rows.times[place as usize],
                    None if horizon.ended => NEVER,
                    None => horizon.not_before,
                };
                threads = self.pass_time(threads, &mut found, now.min(due_max));
                if threads.is_empty() {
                    break;
                }
            }
            let Some(place) = place else {
                if horizon.ended {
                    let best = threads.iter().find(|t| self.automaton.states[t.state as usize].accepts_at_end).copied();
                    if let Some(Thread { link, .. }) = best {
                        self.chains.hold(link);
                        let last = self.last_row(link, at);
                        self.replace(&mut found, Found { link, last, empty: false });
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
    pub(super) fn step(
        &mut self,
        key: &Key,
        mut threads: Vec<Thread>,
        found: &mut Option<Found>,
        number: u32,
        place: u32,
    ) -> Result<Vec<Thread>, OperatorError> {
        if let Some(stay) = self.unconcerned(&threads, place) {
            if !stay {
                self.clear(&mut threads);
            }
            return Ok(threads);
        }
        let mut after = self.spare.pop().unwrap_or_default();
        self.steps += 1;
        // Where no threads go on together there are no kin to be kept.
        let joint = self.automaton.joint;
        let mut kin = if joint { std::mem::take(&mut self.kin) } else { Kin::default() };
        'threads: for thread in &threads {
            let mut fits = false;
            if joint {
                self.meet(&mut kin, thread, &mut after);
            }
            if self.automaton.states[thread.state as usize].kills & self.rows.masks[place as usize] != 0
                && self.is_ended(key, *thread, number, place)?
            {
                continue;
            }
            for index in 0..self.automaton.states[thread.state as usize].items.len() {
                let item = self.automaton.states[thread.state as usize].items[index];
                if self.rows.masks[place as usize] & (1 << item.symbol) == 0 {
                    continue;
                }
                let Some(link) = self.fit(key, item, number, place, *thread)? else { continue };
                fits = true;
                kin.moved = true;
                let time = self.rows.times[place as usize];
                if self.enter(item.target, Found { link, last: number, empty: false }, time, &mut after, found) {
                    // All that follows is less preferred than ending here.
                    break 'threads;
                }
            }
            let state = &self.automaton.states[thread.state as usize];
            let passes = !fits && self.automaton.passes(state);
            if passes && state.shares {
                kin.waiting.push(*thread);
            } else if passes && !self.came_before(*thread) {
                self.chains.hold(thread.link);
                after.push(*thread);
            }
        }
        if joint {
            self.part(&mut kin, &mut after);
            self.kin = kin;
        }
        self.clear(&mut threads);
        self.spare.push(threads);
        Ok(after)
    }

    /// What becomes of threads when a row is nothing that one of them takes, or that ends it: true if all of them pass it over
    /// and stay as they are, false if none does. No two that stay have the same future: the step that led to them has seen to it.
    #[inline]
    fn unconcerned(&self, threads: &[Thread], place: u32) -> Option<bool> {
        let mask = self.rows.masks[place as usize];
        let (mut all, mut some) = (true, false);
        for thread in threads {
            let state = &self.automaton.states[thread.state as usize];
            if mask & (state.wanted | state.kills) != 0 {
                return None;
            }
            let passes = self.automaton.passes(state);
            all &= passes;
            some |= passes;
        }
        (all == some).then_some(all)
    }

    /// Whether a thread that waits for a row is in a state in which a preferred thread of this step has the same future.
    #[inline]
    pub(super) fn came_before(&mut self, thread: Thread) -> bool {
        let state = thread.state as usize;
        let decided = thread.due == NEVER && self.pure[state] && !self.automaton.states[state].shares;
        decided && std::mem::replace(&mut self.seen[state], self.steps) == self.steps
    }

    /// Lets the thread that has taken what `came` says, and whose hold of the link is given away, go on from the place that
    /// begins with state `target`, where it is at `time`, ms. True: the match may end there.
    #[inline]
    pub(super) fn enter(&mut self, target: u32, came: Found, time: i64, after: &mut Vec<Thread>, found: &mut Option<Found>) -> bool {
        let link = came.link;
        let mut number = target;
        loop {
            let state = &self.automaton.states[number as usize];
            let (accepts, live, then, shares) = (state.accepts, state.is_live(), state.then, state.shares);
            let due = state.wait.map_or(NEVER, |w| time.saturating_add(w.for_ms));
            let thread = Thread { state: number, link, due };
            // A preferred thread may have the same future, but not if it depends on that of others.
            let repeats = if shares {
                false
            } else if due == NEVER && self.pure[number as usize] {
                self.came_before(thread)
            } else {
                let pure = self.pure[number as usize];
                let alike = |t: &Thread| t.state == number && t.due == due && (pure || self.chains.alike(t.link, link));
                (pure || self.registers_decide) && after.iter().take(Self::COMPARED).any(alike)
            };
            if !repeats && accepts {
                self.chains.hold(link);
                self.replace(found, came);
            }
            let goes_on = !repeats && live;
            if goes_on {
                after.push(thread);
            }
            match then {
                Some(next) => {
                    if goes_on {
                        self.chains.hold(link);
                    }
                    number = next;
                }
                None => {
                    // The hold that was given away is that of the last piece's thread.
                    if !goes_on {
                        self.chains.release(link);
                    }
                    return accepts && !repeats;
                }
            }
        }
    }

    /// The link with row `number` taken by `item` behind that of `thread`, if its condition holds.
    fn fit(&mut self, key: &Key, item: Item, number: u32, place: u32, thread: Thread) -> Result<Option<u32>, OperatorError> {
        let link = thread.link;
        let taken = Taken { row: number, symbol: item.symbol, excluded: item.excluded };
        if !self.holds(key, taken, place, thread)? {
            return Ok(None);
        }
        if self.transparent & (1u64 << item.symbol) != 0 {
            self.chains.hold(link);
            return Ok(Some(link));
        }
        Ok(Some(self.chains.add(link, taken, &self.words)))
    }

    /// Whether the condition of a row's symbol holds behind what `thread` took, where its mask says that it may; leaves the
    /// registers behind it in `words`.
    pub(super) fn holds(&mut self, key: &Key, taken: Taken, place: u32, thread: Thread) -> Result<bool, OperatorError> {
        let link = thread.link;
        let bit = 1u64 << taken.symbol;
        if self.by_mask & bit != 0 {
            return Ok(true);
        }
        let condition = &self.conditions[taken.symbol as usize];
        if condition.near && !condition.conjuncts.is_empty() && self.rows.known[place as usize] & bit == 0 {
            let holds = condition.holds(&self.candidate(key, taken, link, &[]))?;
            self.rows.known[place as usize] |= bit;
            if !holds {
                self.rows.masks[place as usize] &= !bit;
                return Ok(false);
            }
        }
        if self.registers.stride > 0 {
            if link == NONE {
                self.registers.initial(&mut self.words);
            } else {
                self.words.clear();
                self.words.extend_from_slice(self.chains.registers(link));
            }
            // Where nothing looks back any more, the registers are not looked at either; groups have none.
            if !self.pure[thread.state as usize] {
                self.registers.take(&mut self.words, taken, &key.rows, &self.rows)?;
            }
        }
        let condition = &self.conditions[taken.symbol as usize];
        if condition.near {
            return Ok(true);
        }
        condition.holds(&self.candidate(key, taken, link, &self.words))
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

    pub(super) fn replace(&mut self, found: &mut Option<Found>, better: Found) {
        if let Some(old) = found.replace(better) {
            self.chains.release(old.link);
        }
    }

    pub(super) fn clear(&mut self, threads: &mut Vec<Thread>) {
        threads.drain(..).for_each(|t| self.chains.release(t.link));
    }

    /// Ends an attempt at the bound.
    pub(super) fn give_up(&mut self, attempt: &mut Attempt) -> Result<(), OperatorError> {
        self.at_bound(&attempt.threads, 1)?;
        let mut threads = std::mem::take(&mut attempt.threads);
        self.clear(&mut threads);
        attempt.threads = threads;
        Ok(())
    }

    /// Counts `attempts` attempts with these threads that are given up at the bound, if they may be.
    pub(super) fn at_bound(&mut self, threads: &[Thread], attempts: u64) -> Result<(), OperatorError> {
        if self.bounds.at_bound == AtBound::Fail {
            let state = threads.first().map(|t| &self.automaton.states[t.state as usize]);
            // A symbol that leads back to where it was is the one that repeats.
            let repeats = |item: &&Item| self.automaton.states[item.target as usize].wanted & (1 << item.symbol) != 0;
            let item = state.and_then(|s| s.items.iter().find(repeats).or(s.items.first())).map(|i| usize::from(i.symbol));
            // What only waits for time is named by what must not come.
            let absent = || state.filter(|s| s.kills != 0).map(|s| s.kills.trailing_zeros() as usize);
            let symbol = item.or_else(absent).map_or("?", |s| &*self.names[s]);
            return Err(OperatorError::new(format!(
                "a partition of PATTERN ({}) has more than {} partial matches, or rows held for them: '{symbol}' can go on without end; add WITHIN, bound its quantifier, make its DEFINE stricter, or raise 'pattern.partial-matches.max'",
                self.text, self.bounds.partial_matches_max
            )));
        }
        self.dropped += attempts;
        Ok(())
    }

    /// Puts out what a decided attempt found, and says where the next may begin.
    pub(super) fn conclude(&mut self, key: &mut Key, attempt: Attempt, out: &mut Emitter) -> Result<(), OperatorError> {
        let Attempt { start, threads, found, .. } = attempt;
        self.spare.push(threads);
        key.begun = true;
        let behind = start.wrapping_add(1);
        let Some(found) = found else {
            if !self.independent {
                self.unmatched(key, start, out);
                self.leave(key, start)?;
                key.next = behind;
            }
            return Ok(());
        };
        key.matched(found);
        out.matched(&key.rows, &self.rows, self.chains.backwards(found.link), start, found, key.matches)?;
        let next = if found.empty { behind } else { self.next_start(start, found)? };
        self.chains.release(found.link);
        if !self.independent {
            if found.empty || self.skip == AfterMatchSkip::ToNextRow {
                self.leave(key, start)?;
            } else {
                self.restart(key, found.last);
            }
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
        let first = key.oldest().map_or(key.next, |(start, _)| start);
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

    /// When something happens in `key` if no row comes, later than at `after` (ms): the oldest attempt is over, or a partial
    /// match goes on. [`NEVER`] if nothing does.
    pub fn deadline(&self, key: &Key, after: i64) -> i64 {
        let over = match (self.within_ms, key.oldest()) {
            (Some(within), Some((_, start_ms))) => start_ms.saturating_add(within),
            _ => NEVER,
        };
        let mut least = if over > after { over } else { NEVER };
        if !self.automaton.timed {
            return least;
        }
        for attempt in &key.attempts {
            // They are in order of time, and nothing is due sooner behind an attempt's first row than the shortest wait says.
            if least <= attempt.start_ms.saturating_add(self.automaton.wait_ms_min) {
                break;
            }
            least = attempt.threads.iter().map(|t| t.due).filter(|due| *due > after).fold(least, i64::min);
        }
        least
    }

    /// The least event time of a row that `key` may still put out because of rows that are there;
    /// `i64::MAX` if there is none.
    pub fn holds_back(&self, key: &Key, all_rows: bool) -> i64 {
        let time = |number: u32| key.rows.place(number).map_or(i64::MAX, |p| self.rows.times[p as usize]);
        // Rows that wait for the ones behind them.
        let mut least = if self.independent || key.attempts.is_empty() { time(key.next) } else { i64::MAX };
        for attempt in &key.attempts {
            // They are in order of time, and none holds back what is before its first row.
            if least <= attempt.start_ms {
                break;
            }
            // A row that waits for the next ones may be the match's last, and so may the row before if
            // the match stands when the input ends there, or when no row comes that must not.
            least = least.min(time(attempt.at));
            if self.automaton.unaided {
                for thread in attempt.threads.iter().filter(|t| self.automaton.states[t.state as usize].ends_unaided) {
                    least = least.min(time(self.last_row(thread.link, attempt.at)));
                }
            }
            let at = match attempt.found {
                _ if all_rows => attempt.start_ms,
                Some(found) => time(found.last).min(if self.independent { i64::MAX } else { time(attempt.start.wrapping_add(1)) }),
                None if self.independent => i64::MAX,
                None => time(attempt.start.wrapping_add(1)),
            };
            least = least.min(at);
        }
        key.groups.as_ref().map_or(least, |groups| least.min(self.groups_hold_back(groups, &time, all_rows)))
    }
}
