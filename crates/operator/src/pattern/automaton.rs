//! From a pattern to an automaton whose transitions stand in order of preference.
//!
//! The pattern becomes a graph of nodes (Thompson: Regular expression search algorithm, CACM 11(6),
//! 1968), in which every choice lists its branches, preferred ones first. A state is a place behind a
//! row; its transitions are the rows that may come next, found by walking the graph in order of
//! preference up to the place where the match may end: what lies behind that place is never preferred
//! to ending there (Pike's machine; see Cox: Regular expression matching, the virtual machine approach,
//! 2009). Nothing here knows of rows or conditions.

use std::collections::HashMap;

use tidemill_plan::pattern::{Contiguity, Pattern, SYMBOLS_MAX};

use crate::OperatorError;

/// The most nodes of a pattern's graph: `{n,m}` is written out, and so is `PERMUTE`.
const NODES_MAX: usize = 50_000;
/// The most nodes that are visited to find the transitions of one state.
const WALK_MAX: usize = 200_000;

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
}

/// A place behind a row of a match (or before its first).
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
    /// The symbols that can still come, here or later, as bits.
    pub reach: u64,
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
        !self.items.is_empty() || self.accepts_at_end
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
    /// An iteration of a quantifier beyond its minimum begins; it must take a row before it ends.
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
            Pattern::Absent { .. } => Err(OperatorError::new(
                "'not … for' is not supported in patterns; use a symbol that excludes the rows, such as (X)* with DEFINE X AS NOT (…), and WITHIN",
            )),
        }
    }

    /// Where a row that leads to `node` really leads: an iteration that took a row may always end.
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

/// Finds the transitions of one state.
struct Walk<'a> {
    nodes: &'a [Node],
    /// The place lies before the first row of the partition.
    first: bool,
    /// The place lies before a row: no match can end at `$` here.
    before_row: bool,
    /// Iterations that have begun since the last row.
    open: Vec<u32>,
    /// Transitions, their targets still nodes.
    items: Vec<Item>,
    accepts: bool,
    accepts_at_end: bool,
    visited: usize,
}

impl Walk<'_> {
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
                if !ended && !self.items.contains(&item) {
                    self.items.push(item);
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
            Node::Accept => {
                if ended {
                    self.accepts_at_end = true;
                } else {
                    self.accepts = true;
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
        let mut at = 0;
        while at < places.len() {
            let mut walk = Walk {
                nodes: &graph.nodes,
                first: anchored && at == 1,
                before_row: at < starts,
                open: Vec::new(),
                items: Vec::new(),
                accepts: false,
                accepts_at_end: false,
                visited: 0,
            };
            walk.go(places[at], false)?;
            let mut state = State { items: walk.items, accepts: walk.accepts, accepts_at_end: walk.accepts_at_end, ..State::default() };
            for item in &mut state.items {
                let place = graph.settled(item.target);
                item.target = *known.entry(place).or_insert_with(|| {
                    places.push(place);
                    places.len() as u32 - 1
                });
            }
            states.push(state);
            at += 1;
        }
        // What can never end is not worth going on with.
        let mut ends: Vec<bool> = states.iter().map(|s| s.accepts || s.accepts_at_end).collect();
        loop {
            let before = ends.iter().filter(|e| **e).count();
            for (i, state) in states.iter().enumerate() {
                let reaches = state.items.iter().any(|item| ends[item.target as usize]);
                ends[i] |= reaches;
            }
            if ends.iter().filter(|e| **e).count() == before {
                break;
            }
        }
        for state in &mut states {
            state.items.retain(|item| ends[item.target as usize]);
            state.wanted = state.items.iter().fold(0, |bits, item| bits | 1 << item.symbol);
        }
        loop {
            let mut changed = false;
            for i in 0..states.len() {
                let reach = states[i].items.iter().fold(states[i].wanted, |bits, item| bits | states[item.target as usize].reach);
                changed |= reach != states[i].reach;
                states[i].reach = reach;
            }
            if !changed {
                break;
            }
        }
        Ok(Automaton { states, start: 0, start_first: u32::from(anchored), relaxed: contiguity == Contiguity::Relaxed })
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
            if number == self.start as usize {
                return !state.accepts && state.wanted & always == 0;
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
        a == b || (one.items == other.items && one.accepts == other.accepts && one.accepts_at_end == other.accepts_at_end)
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
                format!("{items}{}{}", if s.accepts { "!" } else { "" }, if s.accepts_at_end { "$" } else { "" })
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
