//! Waiting: partial matches that go on with time (`not X for t`), and rows that must not come.
//!
//! A thread that waits for time has the time at which it is due. When no row of an earlier time can come, because
//! one of that time is there or the watermark says so, it goes on, and what it then waits for begins at the time at
//! which it was due, not at the one at which that was noticed: results do not depend on watermarks.

use super::chain::{NONE, Taken};
use super::run::{Found, Key, Machine, Thread};
use crate::OperatorError;

/// Threads in the pieces of one place that go on together: they stand side by side, and have taken the same.
#[derive(Default)]
pub(super) struct Kin {
    /// The place and the link that they share.
    place: Option<(u32, u32)>,
    /// A row was taken by one of them.
    pub moved: bool,
    /// Those that could wait on.
    pub waiting: Vec<Thread>,
}

impl Machine {
    /// What threads share that go on together.
    fn place_of(&self, thread: &Thread) -> (u32, u32) {
        (self.automaton.states[thread.state as usize].place, thread.link)
    }

    /// Goes on to `thread`: if it is none of `kin`, these are done with.
    pub(super) fn meet(&mut self, kin: &mut Kin, thread: &Thread, after: &mut Vec<Thread>) {
        let place = Some(self.place_of(thread));
        if kin.place != place {
            self.part(kin, after);
            kin.place = place;
        }
    }

    /// Lets `kin` wait on, unless one of them has moved; there are none then.
    #[inline]
    pub(super) fn part(&mut self, kin: &mut Kin, after: &mut Vec<Thread>) {
        if !kin.moved {
            kin.waiting.iter().for_each(|thread| self.chains.hold(thread.link));
            after.extend_from_slice(&kin.waiting);
        }
        kin.waiting.clear();
        (kin.place, kin.moved) = (None, false);
    }

    /// Lets threads go on that are due at `upto` (ms) or before: no row that comes is of an earlier time.
    pub(super) fn pass_time(&mut self, mut threads: Vec<Thread>, found: &mut Option<Found>, upto: i64) -> Vec<Thread> {
        while threads.iter().any(|t| t.due <= upto) {
            let mut after = self.spare.pop().unwrap_or_default();
            self.steps += 1;
            let mut at = 0;
            while at < threads.len() {
                let end = self.kin_end(&threads, at);
                let kin = &threads[at..end];
                let due = kin.iter().map(|t| t.due).min().unwrap_or(i64::MAX);
                at = end;
                let mut ended = false;
                for thread in kin {
                    if ended || (due <= upto && thread.due != due) {
                        // Less preferred than the match that was found, or another of its kin goes on.
                        self.chains.release(thread.link);
                    } else if due <= upto {
                        ended = self.wake(*thread, &mut after, found);
                    } else if self.came_before(*thread) {
                        self.chains.release(thread.link);
                    } else {
                        after.push(*thread);
                    }
                }
                if ended {
                    threads.drain(at..).for_each(|t| self.chains.release(t.link));
                }
            }
            threads.clear();
            self.spare.push(std::mem::replace(&mut threads, after));
        }
        threads
    }

    /// Where those end that go on together with thread `at`.
    fn kin_end(&self, threads: &[Thread], at: usize) -> usize {
        if !self.automaton.joint {
            return at + 1;
        }
        let place = self.place_of(&threads[at]);
        threads[at..].iter().position(|t| self.place_of(t) != place).map_or(threads.len(), |others| at + others)
    }

    /// Lets a thread go on that is due, whose hold of its link is given away; true if a match may end there.
    fn wake(&mut self, thread: Thread, after: &mut Vec<Thread>, found: &mut Option<Found>) -> bool {
        let wait = self.automaton.states[thread.state as usize].wait.expect("what is due waits");
        let came = Found { link: thread.link, last: self.chains.row(thread.link), empty: false };
        self.enter(wait.next, came, thread.due, after, found)
    }

    /// The last row of a match that ends before row `at` with `link`.
    pub(super) fn last_row(&self, link: u32, at: u32) -> u32 {
        if self.ends_behind && link != NONE { self.chains.row(link) } else { at.wrapping_sub(1) }
    }

    /// Whether row `number` is one that must not come while `thread` is where it is.
    pub(super) fn is_ended(&mut self, key: &Key, thread: Thread, number: u32, place: u32) -> Result<bool, OperatorError> {
        let mut symbols = self.automaton.states[thread.state as usize].kills & self.rows.masks[place as usize];
        while symbols != 0 {
            let symbol = symbols.trailing_zeros() as u8;
            symbols &= symbols - 1;
            if self.holds(key, Taken { row: number, symbol, excluded: false }, place, thread)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
