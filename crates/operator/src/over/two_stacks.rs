//! MIN and MAX over frames of time when all rows have one key: they come and go in order.
//!
//! The rows of a frame are cut into pieces. Of the oldest, from which rows leave, the best value from each
//! row on is known; of the newest, to which rows come, the best so far; of those between the best of each,
//! in a monotonic queue. When the oldest is used up the next one takes its place and is read once, from
//! behind. That is the queue of two stacks, with a piece for the unit: a row costs a few comparisons without
//! a branch that random values would mislead, where the monotonic queue of all rows ([`super::ends`]) costs
//! two of those.

use std::collections::VecDeque;

use arrow::array::{ArrayRef, ArrowNativeTypeOp};
use arrow::datatypes::{ArrowPrimitiveType, DataType};

use super::cell::Cell;
use super::column::{Column, Lane};
use super::ends::queues_memory;
use super::op::{Kernel, Moves};
use crate::OperatorError;

/// Rows of a piece at most.
const PIECE: u64 = 1024;

/// MIN, or MAX with `largest`, of a single key's rows.
pub(super) struct TwoStacks<T: ArrowPrimitiveType> {
    largest: bool,
    output: DataType,
    /// Rows that have left and entered since the start, and those in the frame that are not NULL.
    left: u64,
    entered: u64,
    valid: u64,
    /// The oldest piece: the best value from each row on, the first of which is row `oldest_first`.
    oldest: Vec<T::Native>,
    oldest_first: u64,
    /// Where each piece between the oldest and the newest ends.
    ends: VecDeque<u64>,
    /// The pieces between that can still have the answer: where they end, and their best value; best first.
    best: VecDeque<(u64, T::Native)>,
    /// The first row of the newest piece, and the best of its values.
    newest_first: u64,
    newest: T::Native,
    /// Scratch: the values of a piece.
    lane: Lane<T::Native>,
}

impl<T: ArrowPrimitiveType> TwoStacks<T> {
    pub fn new(largest: bool, output: &DataType) -> Self {
        TwoStacks {
            largest,
            output: output.clone(),
            left: 0,
            entered: 0,
            valid: 0,
            oldest: Vec::new(),
            oldest_first: 0,
            ends: VecDeque::new(),
            best: VecDeque::new(),
            newest_first: 0,
            newest: Self::worst(largest),
            lane: Lane::new(Vec::new()),
        }
    }

    /// What no value is worse than: it stands for no value and for NULL.
    fn worst(largest: bool) -> T::Native {
        if largest { T::Native::MIN_TOTAL_ORDER } else { T::Native::MAX_TOTAL_ORDER }
    }

    #[inline(always)]
    fn better<const LARGEST: bool>(a: T::Native, b: T::Native) -> T::Native {
        let keep = if LARGEST { a.is_ge(b) } else { a.is_le(b) };
        if keep { a } else { b }
    }

    /// The best value of the oldest piece that is still in the frame, and of the pieces between.
    #[inline]
    fn older<const LARGEST: bool>(&self) -> T::Native {
        let oldest = self.oldest.get((self.left - self.oldest_first) as usize).copied();
        let between = self.best.front().map(|(_, value)| *value);
        let worst = Self::worst(LARGEST);
        Self::better::<LARGEST>(oldest.unwrap_or(worst), between.unwrap_or(worst))
    }

    /// The newest piece is full.
    #[cold]
    fn seal<const LARGEST: bool>(&mut self) {
        let value = std::mem::replace(&mut self.newest, Self::worst(LARGEST));
        while self.best.back().is_some_and(|(_, last)| if LARGEST { last.is_le(value) } else { last.is_ge(value) }) {
            self.best.pop_back();
        }
        self.best.push_back((self.entered, value));
        self.ends.push_back(self.entered);
        self.newest_first = self.entered;
    }

    /// The oldest piece is used up, and more rows have left: the piece with the oldest row of the frame takes its
    /// place. `place` is that of the oldest row.
    #[cold]
    fn turn<const LARGEST: bool>(&mut self, place: u32, column: &Column<T::Native>) {
        let end = loop {
            let end = self.ends.pop_front().unwrap_or_else(|| {
                self.newest_first = self.entered;
                self.newest = Self::worst(LARGEST);
                self.entered
            });
            if self.best.front().is_some_and(|(of, _)| *of == end) {
                self.best.pop_front();
            }
            if end >= self.left {
                break end;
            }
        };
        column.copy_run(place, (end - self.left) as usize, true, &mut self.lane);
        self.oldest_first = self.left;
        std::mem::swap(&mut self.oldest, &mut self.lane.values);
        let mut best = Self::worst(LARGEST);
        for (row, value) in self.oldest.iter_mut().enumerate().rev() {
            if self.lane.is_valid(row) {
                best = Self::better::<LARGEST>(best, *value);
            }
            *value = best;
        }
    }

    fn steps<const LARGEST: bool>(&mut self, moves: &Moves<'_, T>, mut answers: Option<&mut Lane<T::Native>>)
    where
        T: Cell<Item = T::Native>,
    {
        let plan = moves.plan;
        let (mut left, mut entered) = (0, 0);
        for &(l, e) in &plan.steps {
            let (l, e) = (l as usize, e as usize);
            if l > left {
                self.left += (l - left) as u64;
                self.valid -= count(&moves.gone.valid, left, l);
                if self.left > self.oldest_first + self.oldest.len() as u64 {
                    self.turn::<LARGEST>(plan.gone.at(l), moves.column);
                }
                left = l;
            }
            if e == entered {
                continue;
            }
            for row in entered..e {
                if moves.came.is_valid(row) {
                    self.newest = Self::better::<LARGEST>(self.newest, moves.came.values[row]);
                }
                self.entered += 1;
                if self.entered - self.newest_first == PIECE {
                    self.seal::<LARGEST>();
                }
            }
            self.valid += count(&moves.came.valid, entered, e);
            if let Some(answers) = &mut answers {
                let best = Self::better::<LARGEST>(self.older::<LARGEST>(), self.newest);
                for _ in entered..e {
                    answers.push((self.valid > 0).then_some(best));
                }
            }
            entered = e;
        }
    }
}

/// How many rows of a range are not NULL.
#[inline]
fn count(valid: &[bool], from: usize, until: usize) -> u64 {
    if valid.is_empty() { (until - from) as u64 } else { valid[from..until].iter().filter(|v| **v).count() as u64 }
}

impl<T: ArrowPrimitiveType + Cell<Item = T::Native>> Kernel<T> for TwoStacks<T> {
    /// Only which of them are NULL.
    fn wants_values(&self) -> bool {
        false
    }

    fn run(&mut self, moves: &Moves<'_, T>) -> Result<ArrayRef, OperatorError> {
        let mut answers = Lane::with_capacity(moves.plan.came_slots.len());
        if self.largest {
            self.steps::<true>(moves, Some(&mut answers))
        } else {
            self.steps::<false>(moves, Some(&mut answers))
        }
        T::array(answers, &self.output)
    }

    fn shift(&mut self, moves: &Moves<'_, T>) -> Result<(), OperatorError> {
        if self.largest {
            self.steps::<true>(moves, None)
        } else {
            self.steps::<false>(moves, None)
        }
        Ok(())
    }

    fn resize(&mut self, _slots: usize) {}

    /// The only key is gone: no row is in the frame.
    fn clear(&mut self, _slot: u32) {
        *self = TwoStacks::new(self.largest, &self.output);
    }

    fn memory(&self) -> usize {
        (self.oldest.capacity() + self.lane.values.capacity()) * size_of::<T::Native>()
            + queues_memory(self.best.len(), size_of::<(u64, T::Native)>(), 1)
            + queues_memory(self.ends.len(), 8, 1)
    }
}
