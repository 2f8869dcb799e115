//! From a pattern to an automaton whose transitions stand in order of preference.
//!
//! The pattern becomes a graph of nodes (Thompson: Regular expression search algorithm, CACM 11(6),
//! 1968), in which every choice lists its branches, preferred ones first. A state is a place behind a
//! row; its transitions are the rows that may come next, found by walking the graph in order of
//! preference up to the place where the match may end: what lies behind that place is never preferred
//! to ending there (Pike's machine; see Cox: Regular expression matching, the virtual machine approach,
//! 2009). Nothing here knows of rows or conditions.
//!
//! An absence parts a place into several states, its *pieces*, in order of preference: each `not X for t` is a piece
//! that waits for time instead of a row, and what stands behind `not X and` is a piece that a row of X ends. With strict
//! contiguity each piece goes its own way; with relaxed contiguity what happens first decides for all of them. An absence
//! that a match would begin with is a [`Lead`]: what must have been before the match's first row.

use std::collections::HashMap;

use tidemill_plan::pattern::{Contiguity, Pattern, SYMBOLS_MAX};

use crate::OperatorError;

/// The most nodes of a pattern's graph: `{n,m}` is written out, and so is `PERMUTE`.
const NODES_MAX: usize = 50_000;
/// The most nodes that are visited to find the transitions of one state.
const WALK_MAX: usize = 200_000;

/// The most absences that matches begin with: which of them an attempt saw fulfilled is saved in a byte.
const LEADS_MAX: usize = 4;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Automaton {
    pub states: Vec<State>,
    /// Where a match begins.
    pub start: u32,
    /// Where a match begins at the first row of a partition; another state than `start` if the pattern
    /// has `^`.
    pub start_first: u32,
    /// Rows that fit nothing are passed over.
    pub relaxed: bool,
    /// The absences that matches begin with.
    pub leads: Vec<Lead>,
    /// Some state waits for time.
    pub timed: bool,
    /// For how long at least, ms; `i64::MAX` if none does.
    pub wait_ms_min: i64,
    /// Of some places the pieces go on together: what happens to one first ends the others.
    pub joint: bool,
    /// In some state the match may end without another row ([`State::ends_unaided`]).
    pub unaided: bool,
}

/// An absence that a match begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lead {
    /// What must not have been there.
    pub symbol: u8,
    /// For so long before the match's first row, ms; `None`: since the last row of `behind`.
    pub for_ms: Option<i64>,
    /// The symbols of the rows that may come behind it, as bits.
    pub behind: u64,
}

/// A place behind a row of a match (or before its first), or a piece of one.
#[derive(Debug, Default)]
pub(super) struct State {
    /// What may come next, preferred first; nothing that ending here is preferred to.
    pub items: Vec<Item>,
    /// The match may end here.
    pub accepts: bool,
    /// The match may end here if no row follows in the partition.
    pub accepts_at_end: bool,
    /// The symbols of `items`, as bits.
    pub wanted: u64,
    /// The symbols that can still come or must not, here or later, as bits.
    pub reach: u64,
    /// A row of one of these symbols (bits) ends a partial match here.
    pub kills: u64,
    /// Here time is waited for and no row.
    pub wait: Option<Wait>,
    /// A match begins here only behind this one of [`Automaton::leads`].
    pub lead: Option<u8>,
    /// The next piece of the same place.
    pub then: Option<u32>,
    /// The first piece of the place.
    pub place: u32,
    /// It goes on together with the other pieces of its place.
    pub shares: bool,
    /// No row was taken yet.
    pub begins: bool,
    /// The match may end without another row, with time or with the partition.
    pub ends_unaided: bool,
}

/// Going on with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// So many ms after the place was reached.
    pub for_ms: i64,
    /// The first state of the place behind.
    pub next: u32,
}

/// A transition: a row mapped to a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub symbol: u8,
    /// Inside of `{- -}`.
    pub excluded: bool,
    pub target: u32,
}

impl State {
    /// Whether a match can go on from here.
    pub fn is_live(&self) -> bool {
        !self.items.is_empty() || self.accepts_at_end || self.wait.is_some()
    }
}

/// A node of the graph.
enum Node {
    Consume {
        symbol: u8,
        excluded: bool,
        next: u32,
    },
    Split(Vec<u32>),
    /// An iteration of a quantifier beyond its minimum begins; it must take a row, or an absence, before it ends.
    Enter {
        iteration: u32,
        next: u32,
    },
    Leave {
        iteration: u32,
        next: u32,
    },
    Start(u32),
    End(u32),
    Absent {
        symbol: u8,
        for_ms: Option<i64>,
        next: u32,
    },
    Accept,
}

struct Graph {
    nodes: Vec<Node>,
}

impl Graph {
    fn add(&mut self, node: Node) -> Result<u32, OperatorError> {
        if self.nodes.len() >= NODES_MAX {
            return Err(OperatorError::new(format!(
                "the PATTERN is too large: written out, its quantifiers and PERMUTEs have more than {NODES_MAX} places; lower the bounds of its {{n,m}} quantifiers, or count with an aggregate in DEFINE"
            )));
        }
        self.nodes.push(node);
        Ok(self.nodes.len() as u32 - 1)
    }

    /// The node at which `pattern` begins, if `next` follows it.
    fn build(&mut self, pattern: &Pattern, next: u32, excluded: bool) -> Result<u32, OperatorError> {
        match pattern {
            Pattern::Empty => Ok(next),
            Pattern::Symbol(symbol) => self.add(Node::Consume { symbol: *symbol as u8, excluded, next }),
            Pattern::Concat(parts) => parts.iter().rev().try_fold(next, |next, part| self.build(part, next, excluded)),
            Pattern::Alternate(parts) => {
                let branches = parts.iter().map(|p| self.build(p, next, excluded)).collect::<Result<Vec<_>, _>>()?;
                self.add(Node::Split(branches))
            }
            Pattern::Permute(parts) => {
                if parts.len() > 16 {
                    return Err(OperatorError::new(format!(
                        "PERMUTE takes at most 16 elements, this one has {}; nest alternations of the orders that can occur",
                        parts.len()
                    )));
                }
                let all = (1u32 << parts.len()) - 1;
                self.permute(parts, all, next, excluded, &mut HashMap::new())
            }
            Pattern::Repeat { inner, min, max, greedy } => self.repeat(inner, *min, *max, *greedy, next, excluded),
            Pattern::Exclude(inner) => self.build(inner, next, true),
            Pattern::Start => self.add(Node::Start(next)),
            Pattern::End => self.add(Node::End(next)),
            Pattern::Absent { for_ms: Some(ms), .. } if *ms <= 0 => {
                Err(OperatorError::new(format!("an absence in a pattern lasts at least 1 ms, not {ms} ms; give 'not … for' a longer time")))
            }
            Pattern::Absent { symbol, for_ms } => self.add(Node::Absent { symbol: *symbol as u8, for_ms: *for_ms, next }),
        }
    }

    /// Where a row or an absence that leads to `node` really leads: an iteration that took one may always end.
    fn settled(&self, mut node: u32) -> u32 {
        while let Node::Leave { next, .. } = &self.nodes[node as usize] {
            node = *next;
        }
        node
    }

    /// `remaining` elements in any order; what follows a set of elements is built once.
    fn permute(
        &mut self,
        parts: &[Pattern],
        remaining: u32,
        next: u32,
        excluded: bool,
        built: &mut HashMap<u32, u32>,
    ) -> Result<u32, OperatorError> {
        if remaining == 0 {
            return Ok(next);
        }
        if let Some(node) = built.get(&remaining) {
            return Ok(*node);
        }
        let mut branches = Vec::new();
        for (i, part) in parts.iter().enumerate().filter(|(i, _)| remaining & (1u32 << *i) != 0) {
            let after = self.permute(parts, remaining & !(1 << i), next, excluded, built)?;
            branches.push(self.build(part, after, excluded)?);
        }
        let node = self.add(Node::Split(branches))?;
        built.insert(remaining, node);
        Ok(node)
    }

    fn repeat(
        &mut self,
        inner: &Pattern,
        min: u32,
        max: Option<u32>,
        greedy: bool,
        next: u32,
        excluded: bool,
    ) -> Result<u32, OperatorError> {
        let choice = |on: u32| if greedy { vec![on, next] } else { vec![next, on] };
        let mut head = match max {
            None => {
                let again = self.add(Node::Split(Vec::new()))?;
                let leave = self.add(Node::Leave { iteration: again, next: again })?;
                let body = self.build(inner, leave, excluded)?;
                let enter = self.add(Node::Enter { iteration: again, next: body })?;
                self.nodes[again as usize] = Node::Split(choice(enter));
                again
            }
            Some(max) => {
                let mut head = next;
                for _ in min..max {
                    let iteration = self.nodes.len() as u32;
                    let leave = self.add(Node::Leave { iteration, next: head })?;
                    let body = self.build(inner, leave, excluded)?;
                    let enter = self.add(Node::Enter { iteration, next: body })?;
                    head = self.add(Node::Split(choice(enter)))?;
                }
                head
            }
        };
        for _ in 0..min {
            head = self.build(inner, head, excluded)?;
        }
        Ok(head)
    }
}

/// A state in the making: transitions and what is waited for lead to nodes.
#[derive(Default)]
struct Piece {
    items: Vec<Item>,
    accepts: bool,
    accepts_at_end: bool,
    kills: u64,
    wait: Option<(i64, u32)>,
    lead: Option<u8>,
}

/// Finds the transitions of one place.
struct Walk<'a> {
    nodes: &'a [Node],
    leads: &'a mut Vec<Lead>,
    /// The place lies before the first row of the partition.
    first: bool,
    /// The place lies before a row: no match can end at `$` here, and none has begun.
    before_row: bool,
    /// Iterations that have begun since the last row.
    open: Vec<u32>,
    /// What must not come before what is found now, as bits.
    guards: u64,
    /// What must have been before what is found now.
    lead: Option<u8>,
    pieces: Vec<Piece>,
    visited: usize,
}

impl Walk<'_> {
    /// The piece to which what is found now belongs.
    fn piece(&mut self) -> &mut Piece {
        let (kills, lead) = (self.guards, self.lead);
        if !self.pieces.last().is_some_and(|p| p.wait.is_none() && p.kills == kills && p.lead == lead) {
            self.pieces.push(Piece { kills, lead, ..Piece::default() });
        }
        self.pieces.last_mut().expect("there is one by now")
    }

    /// Walks on from `next` behind an absence.
    fn absent(&mut self, symbol: u8, for_ms: Option<i64>, next: u32) -> Result<bool, OperatorError> {
        if self.before_row {
            return self.begin_behind(symbol, for_ms, next);
        }
        let kills = self.guards | 1 << symbol;
        if let Some(for_ms) = for_ms {
            self.pieces.push(Piece { kills, wait: Some((for_ms, next)), ..Piece::default() });
            return Ok(false);
        }
        let before = std::mem::replace(&mut self.guards, kills);
        let cut = self.go(next, false)?;
        self.guards = before;
        Ok(cut)
    }

    /// Walks on from `next`, where matches begin behind an absence.
    fn begin_behind(&mut self, symbol: u8, for_ms: Option<i64>, next: u32) -> Result<bool, OperatorError> {
        if self.lead.is_some() {
            return Err(OperatorError::new(
                "a pattern begins with one absence at most, and behind it comes a row; merge the conditions of both absences into one, or begin the pattern with a row",
            ));
        }
        let lead = Lead { symbol, for_ms, behind: 0 };
        let index = self.leads.iter().position(|l| *l == lead).unwrap_or(self.leads.len());
        if index == LEADS_MAX {
            return Err(OperatorError::new(format!("the alternatives of a pattern begin with at most {LEADS_MAX} different absences")));
        }
        if index == self.leads.len() {
            self.leads.push(lead);
        }
        self.lead = Some(index as u8);
        let cut = self.go(next, false)?;
        self.lead = None;
        Ok(cut)
    }

    /// Walks on from `node`, past `$` if `ended`. True: the match may end here, which is preferred to
    /// all that was not found yet.
    fn go(&mut self, node: u32, ended: bool) -> Result<bool, OperatorError> {
        self.visited += 1;
        if self.visited > WALK_MAX {
            return Err(OperatorError::new(
                "the PATTERN is too ambiguous: quantifiers of what may itself be empty are nested too deep; write it with fewer optional parts",
            ));
        }
        match &self.nodes[node as usize] {
            Node::Consume { symbol, excluded, next } => {
                let item = Item { symbol: *symbol, excluded: *excluded, target: *next };
                if !ended {
                    let piece = self.piece();
                    if !piece.items.contains(&item) {
                        piece.items.push(item);
                    }
                }
                Ok(false)
            }
            Node::Split(branches) => {
                for branch in branches {
                    if self.go(*branch, ended)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Node::Enter { iteration, next } => {
                self.open.push(*iteration);
                let cut = self.go(*next, ended)?;
                self.open.pop();
                Ok(cut)
            }
            Node::Leave { iteration, next } => {
                if self.open.contains(iteration) {
                    return Ok(false);
                }
                self.go(*next, ended)
            }
            Node::Start(next) => {
                if self.first {
                    return self.go(*next, ended);
                }
                Ok(false)
            }
            Node::End(next) => {
                if self.before_row {
                    return Ok(false);
                }
                self.go(*next, true)
            }
            // No row follows, so none that must not.
            Node::Absent { next, .. } if ended => self.go(*next, true),
            Node::Absent { symbol, for_ms, next } => self.absent(*symbol, *for_ms, *next),
            Node::Accept if self.lead.is_some() => Err(OperatorError::new(
                "a match has at least one row: a pattern does not consist of an absence alone; for 'no X for t behind another row' begin it with that row",
            )),
            Node::Accept => {
                let piece = self.piece();
                if ended {
                    piece.accepts_at_end = true;
                } else {
                    piece.accepts = true;
                }
                Ok(!ended)
            }
        }
    }
}

impl Automaton {
    /// Compiles `pattern`.
    ///
    /// # Errors
    /// A pattern that is too large.
    pub fn new(pattern: &Pattern, contiguity: Contiguity) -> Result<Self, OperatorError> {
        assert!(pattern.symbols().iter().all(|s| *s < SYMBOLS_MAX), "checked by the planner");
        let mut graph = Graph { nodes: vec![Node::Accept] };
        let root = graph.build(pattern, 0, false)?;
        let anchored = graph.nodes.iter().any(|n| matches!(n, Node::Start(_)));
        let mut states: Vec<State> = Vec::new();
        let mut known: HashMap<u32, u32> = HashMap::new();
        // Places to be walked: the first is the start, then the start of a partition, then targets.
        let mut places: Vec<u32> = vec![root];
        if anchored {
            places.push(root);
        }
        let starts = places.len();
        // The first state of each place.
        let mut first: Vec<u32> = Vec::new();
        let mut leads = Vec::new();
        let mut at = 0;
        while at < places.len() {
            let mut walk = Walk {
                nodes: &graph.nodes,
                leads: &mut leads,
                first: anchored && at == 1,
                before_row: at < starts,
                open: Vec::new(),
                guards: 0,
                lead: None,
                pieces: Vec::new(),
                visited: 0,
            };
            walk.go(places[at], false)?;
            let mut pieces = walk.pieces;
            if pieces.is_empty() {
                pieces.push(Piece::default());
            }
            first.push(states.len() as u32);
            let last = states.len() + pieces.len() - 1;
            let mut place_of = |node: u32| {
                let place = graph.settled(node);
                *known.entry(place).or_insert_with(|| {
                    places.push(place);
                    places.len() as u32 - 1
                })
            };
            for Piece { mut items, accepts, accepts_at_end, kills, wait, lead } in pieces {
                items.iter_mut().for_each(|item| item.target = place_of(item.target));
                let wait = wait.map(|(for_ms, next)| Wait { for_ms, next: place_of(next) });
                let then = (states.len() < last).then_some(states.len() as u32 + 1);
                let (begins, place) = (at < starts, first[at]);
                states.push(State { items, accepts, accepts_at_end, kills, wait, lead, then, place, begins, ..State::default() });
            }
            at += 1;
        }
        for state in &mut states {
            state.items.iter_mut().for_each(|item| item.target = first[item.target as usize]);
            state.wait.iter_mut().for_each(|wait| wait.next = first[wait.next as usize]);
        }
        let (start, start_first) = (first[0], first[usize::from(anchored)]);
        let relaxed = contiguity == Contiguity::Relaxed;
        let mut automaton =
            Automaton { states, start, start_first, relaxed, leads, timed: false, wait_ms_min: i64::MAX, joint: false, unaided: false };
        automaton.prune();
        automaton.summarize();
        if automaton.waits_for_ever() {
            return Err(OperatorError::new(
                "a part of the PATTERN that may consist of absences alone is repeated without end; bound its quantifier, or let each repetition take a row",
            ));
        }
        Ok(automaton)
    }

    /// Marks states, until nothing changes; `is` says whether a state is to be marked, given those that are.
    fn marked(&self, is: impl Fn(&State, &[bool]) -> bool) -> Vec<bool> {
        let mut marks = vec![false; self.states.len()];
        loop {
            let mut changed = false;
            for (number, state) in self.states.iter().enumerate() {
                if !marks[number] && is(state, &marks) {
                    marks[number] = true;
                    changed = true;
                }
            }
            if !changed {
                return marks;
            }
        }
    }

    /// What can never end is not worth going on with.
    fn prune(&mut self) {
        let ends = self.marked(|state, ends| {
            let waits = state.wait.is_some_and(|w| ends[w.next as usize]);
            let goes_on = waits || state.items.iter().any(|item| ends[item.target as usize]);
            state.accepts || state.accepts_at_end || goes_on || state.then.is_some_and(|t| ends[t as usize])
        });
        for state in &mut self.states {
            state.items.retain(|item| ends[item.target as usize]);
            state.wait = state.wait.filter(|w| ends[w.next as usize]);
        }
    }

    /// Computes what is said of states in sum.
    fn summarize(&mut self) {
        for state in &mut self.states {
            state.wanted = state.items.iter().fold(0, |bits, item| bits | 1 << item.symbol);
        }
        for (number, lead) in self.leads.iter_mut().enumerate() {
            let behind = self.states.iter().filter(|s| s.lead == Some(number as u8));
            lead.behind = behind.fold(0, |bits, state| bits | state.wanted);
        }
        self.timed = self.states.iter().any(|s| s.wait.is_some());
        self.wait_ms_min = self.states.iter().filter_map(|s| s.wait).map(|w| w.for_ms).min().unwrap_or(i64::MAX);
        for (number, state) in self.states.iter_mut().enumerate() {
            state.shares = self.relaxed && !state.begins && (state.place != number as u32 || state.then.is_some());
            self.joint |= state.shares;
        }
        let led = self.leads.iter().fold(0, |bits, lead| bits | 1u64 << lead.symbol);
        loop {
            let mut changed = false;
            for i in 0..self.states.len() {
                let state = &self.states[i];
                let own = state.wanted | state.kills | if state.begins { led } else { 0 };
                let next = state.items.iter().map(|item| item.target).chain(state.wait.map(|w| w.next)).chain(state.then);
                let reach = next.fold(own, |bits, target| bits | self.states[target as usize].reach);
                changed |= reach != state.reach;
                self.states[i].reach = reach;
            }
            if !changed {
                break;
            }
        }
        let unaided = self.marked(|state, unaided| {
            let mut next = state.wait.map(|w| w.next).into_iter().chain(state.then);
            state.accepts || state.accepts_at_end || next.any(|s| unaided[s as usize])
        });
        for state in &mut self.states {
            state.ends_unaided = state.accepts_at_end || state.wait.is_some_and(|w| unaided[w.next as usize]);
            self.unaided |= state.ends_unaided;
        }
    }

    /// Whether time alone can lead from a state back to it.
    fn waits_for_ever(&self) -> bool {
        // From a place that is marked, time alone leads only to marked ones.
        let settled = self.marked(|state, settled| {
            let mut next = state.wait.map(|w| w.next).into_iter().chain(state.then);
            next.all(|s| settled[s as usize])
        });
        self.timed && settled.contains(&false)
    }

    /// The states of the place that begins with `state`, preferred first.
    #[inline]
    pub fn pieces(&self, state: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(state), |s| self.states[*s as usize].then)
    }

    /// Whether no row was taken yet in `state`.
    #[inline]
    pub fn is_start(&self, state: u32) -> bool {
        self.states[state as usize].begins
    }

    /// Whether a partial match in `state` passes over a row that it does not take, and that does not end it.
    #[inline]
    pub fn passes(&self, state: &State) -> bool {
        !state.begins && (self.relaxed || state.wait.is_some())
    }

    /// Whether `^` or `$` stands in the pattern.
    pub fn is_anchored(&self) -> bool {
        self.start != self.start_first || self.states.iter().any(|s| s.accepts_at_end)
    }

    /// Whether a row on which only the symbols `always` are true changes nothing for any partial match
    /// and begins none. `transparent` are the symbols whose rows nobody looks at.
    pub fn passes_over(&self, always: u64, transparent: u64) -> bool {
        if self.is_anchored() {
            return false;
        }
        self.states.iter().enumerate().all(|(number, state)| {
            if state.begins {
                return !state.accepts && state.wanted & always == 0;
            }
            if state.kills & always != 0 {
                return false;
            }
            if state.items.is_empty() {
                return true;
            }
            if state.accepts {
                return false;
            }
            let mut fitting = state.items.iter().filter(|item| always & (1 << item.symbol) != 0);
            match (fitting.next(), fitting.next()) {
                (None, _) => self.relaxed,
                (Some(item), None) => self.same(item.target as usize, number) && transparent & (1 << item.symbol) != 0,
                _ => false,
            }
        })
    }

    /// Whether two states have the same future.
    fn same(&self, a: usize, b: usize) -> bool {
        let (one, other) = (&self.states[a], &self.states[b]);
        let ends = |s: &State| (s.accepts, s.accepts_at_end);
        let waits = |s: &State| (s.kills, s.wait, s.then);
        a == b || (one.items == other.items && ends(one) == ends(other) && waits(one) == waits(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(s: usize) -> Pattern {
        Pattern::Symbol(s)
    }

    fn repeat(inner: Pattern, min: u32, max: Option<u32>, greedy: bool) -> Pattern {
        Pattern::Repeat { inner: Box::new(inner), min, max, greedy }
    }

    /// The transitions of the states, in order: symbols by letter with their targets, `!` where the
    /// match may end, `$` where it may end with the partition.
    #[track_caller]
    fn check(pattern: Pattern, expect: &str) {
        let automaton = Automaton::new(&pattern, Contiguity::Strict).unwrap();
        let text: Vec<String> = automaton
            .states
            .iter()
            .map(|s| {
                let items: String = s.items.iter().map(|i| format!("{}{}", (b'A' + i.symbol) as char, i.target)).collect();
                let kills: String = (0..8u8).filter(|k| s.kills & (1 << *k) != 0).map(|k| format!("-{}", (b'A' + k) as char)).collect();
                let wait = s.wait.map_or(String::new(), |w| format!("@{}>{}", w.for_ms, w.next));
                let then = if s.then.is_some() { "+" } else { "" };
                format!("{items}{kills}{wait}{}{}{then}", if s.accepts { "!" } else { "" }, if s.accepts_at_end { "$" } else { "" })
            })
            .collect();
        assert_eq!(text.join(" "), expect);
    }

    #[test]
    fn states() {
        check(Pattern::Concat(vec![symbol(0), symbol(1)]), "A1 B2 !");
        check(Pattern::Alternate(vec![symbol(0), symbol(1)]), "A1B1 !");
        check(repeat(symbol(0), 1, None, true), "A1 A1!");
        // A reluctant tail never goes on.
        check(repeat(symbol(0), 1, None, false), "A1 !");
        check(Pattern::Concat(vec![symbol(0), repeat(symbol(1), 0, None, false), symbol(2)]), "A1 C2B1 !");
        check(Pattern::Permute(vec![symbol(0), symbol(1)]), "A1B2 B3 A3 !");
        check(repeat(symbol(0), 1, Some(3), true), "A1 A2! A3! !");
        check(Pattern::Concat(vec![Pattern::Start, symbol(0), Pattern::End]), " A2 $");
        check(Pattern::Concat(vec![symbol(0), Pattern::Start, symbol(1)]), "  ");
        check(repeat(repeat(symbol(0), 0, None, true), 0, None, true), "A1! A1!");
    }

    fn absent(symbol: usize, for_ms: Option<i64>) -> Pattern {
        Pattern::Absent { symbol, for_ms }
    }

    #[test]
    fn absences() {
        // A -> not B for 5 ms; the same before C; not B and C.
        check(Pattern::Concat(vec![symbol(0), absent(1, Some(5))]), "A1 -B@5>2 !");
        check(Pattern::Concat(vec![symbol(0), absent(1, Some(5)), symbol(2)]), "A1 -B@5>2 C3 !");
        check(Pattern::Concat(vec![symbol(0), absent(1, None), symbol(2)]), "A1 C2-B !");
        // Both hold: no B until 5 ms without a C.
        check(Pattern::Concat(vec![symbol(0), absent(1, None), absent(2, Some(5))]), "A1 -B-C@5>2 !");
        // C, or no B for 5 ms: two pieces, the states 1 and 2.
        let either = Pattern::Alternate(vec![symbol(2), absent(1, Some(5))]);
        check(Pattern::Concat(vec![symbol(0), either, symbol(0)]), "A1 C3+ -B@5>3 A4 !");
        // What a match begins with is no state.
        let led = Pattern::Concat(vec![absent(1, Some(5)), symbol(0)]);
        check(led.clone(), "A1 !");
        let automaton = Automaton::new(&led, Contiguity::Relaxed).unwrap();
        assert_eq!(automaton.leads, [Lead { symbol: 1, for_ms: Some(5), behind: 1 }]);
        assert!(!automaton.timed);
    }

    #[test]
    fn absences_that_cannot_be() {
        let check = |pattern: Pattern, expect: &str| {
            let error = Automaton::new(&pattern, Contiguity::Relaxed).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(absent(0, Some(5)), "at least one row");
        check(absent(0, None), "at least one row");
        check(Pattern::Concat(vec![absent(0, Some(5)), absent(1, Some(5)), symbol(2)]), "one absence at most");
        check(Pattern::Concat(vec![symbol(0), repeat(absent(1, Some(5)), 0, None, true)]), "repeated without end");
        check(Pattern::Concat(vec![symbol(0), absent(1, Some(0))]), "at least 1 ms");
    }

    #[test]
    fn an_iteration_takes_a_row() {
        // (() | A){0,2}: the empty branch may not be an iteration, so A comes first.
        let body = || Pattern::Alternate(vec![Pattern::Empty, symbol(0)]);
        check(repeat(body(), 0, Some(2), true), "A1! A2! !");
        check(repeat(body(), 0, None, true), "A1! A1!");
    }

    #[test]
    fn rows_that_matter_to_nobody() {
        let between = |greedy| Pattern::Concat(vec![symbol(0), repeat(symbol(2), 0, None, greedy), symbol(1)]);
        let passes = |pattern: &Pattern, transparent| Automaton::new(pattern, Contiguity::Strict).unwrap().passes_over(0b100, transparent);
        assert!(passes(&between(false), 0b100));
        assert!(passes(&between(true), 0b100));
        assert!(!passes(&between(false), 0));
        assert!(!passes(&Pattern::Concat(vec![symbol(0), symbol(1)]), 0b100));
        assert!(!passes(&Pattern::Concat(vec![symbol(0), repeat(symbol(2), 0, None, true)]), 0b100));
        assert!(Automaton::new(&Pattern::Concat(vec![symbol(0), symbol(1)]), Contiguity::Relaxed).unwrap().passes_over(0, 0));
    }

    #[test]
    fn too_large() {
        let large = repeat(repeat(symbol(0), 1000, Some(1000), true), 100, Some(100), true);
        let error = Automaton::new(&large, Contiguity::Strict).unwrap_err();
        assert!(error.to_string().contains("too large"), "{error}");
    }
}
