//! MIN, MAX, FIRST_VALUE, LAST_VALUE and NTH_VALUE over sliding frames, at O(1) a row on average.

use std::cmp::Ordering;
use std::collections::VecDeque;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

use super::cell::Cell;
use super::column::{Column, Lane};
use super::op::{Op, grow};
use crate::OperatorError;

/// Keys that have few rows keep no large queue behind.
fn trim<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > 64 && queue.len() * 8 < queue.capacity() {
        queue.shrink_to(queue.len() * 2);
    }
}

/// Bytes of queues that have a third more room than entries, as they do on average. Looking at each
/// would cost more than the figure is worth when there are many keys.
pub(super) fn queues_memory(entries: usize, entry: usize, queues: usize) -> usize {
    entries * entry * 4 / 3 + queues * size_of::<VecDeque<u32>>()
}

/// MIN and MAX: for each key the values that can still become the answer, best first (the
/// monotonic queue of sliding-window minima).
pub(super) struct Extreme<C: Cell> {
    /// What a value must be to one that comes later, to stay in the queue.
    better: Ordering,
    queues: Vec<VecDeque<(u32, C::Item)>>,
    entries: usize,
}

impl<C: Cell> Extreme<C> {
    pub fn new(largest: bool) -> Self {
        Extreme { better: if largest { Ordering::Greater } else { Ordering::Less }, queues: Vec::new(), entries: 0 }
    }
}

impl<C: Cell> Op<C> for Extreme<C> {
    type Answer = C::Item;
    const WANTS_VALUES: bool = false;

    #[inline]
    fn enter(&mut self, slot: u32, place: u32, value: &C::Item, is_valid: bool) -> Result<(), OperatorError> {
        if is_valid {
            let queue = &mut self.queues[slot as usize];
            while queue.back().is_some_and(|(_, last)| C::compare(last, value) != self.better) {
                queue.pop_back();
                self.entries -= 1;
            }
            queue.push_back((place, value.clone()));
            self.entries += 1;
        }
        Ok(())
    }

    #[inline]
    fn leave(&mut self, slot: u32, place: u32, _value: &C::Item, _is_valid: bool) -> Result<(), OperatorError> {
        let queue = &mut self.queues[slot as usize];
        if queue.front().is_some_and(|(front, _)| *front == place) {
            queue.pop_front();
            self.entries -= 1;
            trim(queue);
        }
        Ok(())
    }

    #[inline]
    fn answer(&mut self, slot: u32, _column: &Column<C::Item>) -> Result<Option<C::Item>, OperatorError> {
        Ok(self.queues[slot as usize].front().map(|(_, value)| value.clone()))
    }

    fn array(answers: Lane<C::Item>, data_type: &DataType) -> Result<ArrayRef, OperatorError> {
        C::array(answers, data_type)
    }

    fn resize(&mut self, slots: usize) {
        grow(&mut self.queues, slots);
    }

    fn clear(&mut self, slot: u32) {
        self.entries -= std::mem::take(&mut self.queues[slot as usize]).len();
    }

    fn memory(&self) -> usize {
        queues_memory(self.entries, size_of::<(u32, C::Item)>(), self.queues.capacity())
    }
}

/// FIRST_VALUE and NTH_VALUE: for each key the places of the rows that count, oldest first.
pub(super) struct Nth {
    /// Counted from 0.
    n: usize,
    ignore_nulls: bool,
    queues: Vec<VecDeque<u32>>,
    entries: usize,
}

impl Nth {
    pub fn new(n: usize, ignore_nulls: bool) -> Self {
        Nth { n, ignore_nulls, queues: Vec::new(), entries: 0 }
    }
}

impl<C: Cell> Op<C> for Nth {
    type Answer = C::Item;
    const WANTS_VALUES: bool = false;

    #[inline]
    fn enter(&mut self, slot: u32, place: u32, _value: &C::Item, is_valid: bool) -> Result<(), OperatorError> {
        if is_valid || !self.ignore_nulls {
            self.queues[slot as usize].push_back(place);
            self.entries += 1;
        }
        Ok(())
    }

    #[inline]
    fn leave(&mut self, slot: u32, place: u32, _value: &C::Item, _is_valid: bool) -> Result<(), OperatorError> {
        let queue = &mut self.queues[slot as usize];
        if queue.front() == Some(&place) {
            queue.pop_front();
            self.entries -= 1;
            trim(queue);
        }
        Ok(())
    }

    #[inline]
    fn answer(&mut self, slot: u32, column: &Column<C::Item>) -> Result<Option<C::Item>, OperatorError> {
        Ok(self.queues[slot as usize].get(self.n).and_then(|place| column.at(*place)).cloned())
    }

    fn array(answers: Lane<C::Item>, data_type: &DataType) -> Result<ArrayRef, OperatorError> {
        C::array(answers, data_type)
    }

    fn resize(&mut self, slots: usize) {
        grow(&mut self.queues, slots);
    }

    fn clear(&mut self, slot: u32) {
        self.entries -= std::mem::take(&mut self.queues[slot as usize]).len();
    }

    fn memory(&self) -> usize {
        queues_memory(self.entries, size_of::<u32>(), self.queues.capacity())
    }
}

/// LAST_VALUE: for each key the newest row that counts.
pub(super) struct Last {
    ignore_nulls: bool,
    places: Vec<Option<u32>>,
}

impl Last {
    pub fn new(ignore_nulls: bool) -> Self {
        Last { ignore_nulls, places: Vec::new() }
    }
}

impl<C: Cell> Op<C> for Last {
    type Answer = C::Item;
    const WANTS_VALUES: bool = false;

    #[inline]
    fn enter(&mut self, slot: u32, place: u32, _value: &C::Item, is_valid: bool) -> Result<(), OperatorError> {
        if is_valid || !self.ignore_nulls {
            self.places[slot as usize] = Some(place);
        }
        Ok(())
    }

    #[inline]
    fn leave(&mut self, slot: u32, place: u32, _value: &C::Item, _is_valid: bool) -> Result<(), OperatorError> {
        // What came before the newest row has left before it.
        let newest = &mut self.places[slot as usize];
        if *newest == Some(place) {
            *newest = None;
        }
        Ok(())
    }

    #[inline]
    fn answer(&mut self, slot: u32, column: &Column<C::Item>) -> Result<Option<C::Item>, OperatorError> {
        Ok(self.places[slot as usize].and_then(|place| column.at(place)).cloned())
    }

    fn array(answers: Lane<C::Item>, data_type: &DataType) -> Result<ArrayRef, OperatorError> {
        C::array(answers, data_type)
    }

    fn resize(&mut self, slots: usize) {
        grow(&mut self.places, slots);
    }

    fn clear(&mut self, slot: u32) {
        self.places[slot as usize] = None;
    }

    fn memory(&self) -> usize {
        self.places.capacity() * size_of::<Option<u32>>()
    }
}
