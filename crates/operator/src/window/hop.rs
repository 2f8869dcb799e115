//! The groups of a HOP window, kept from one window to the next.
//!
//! A slice is merged when it comes into the window. When it leaves, functions that can take merged
//! state out again do so. For the others there are two stacks of slices (the queue with two stacks of
//! functional programming; for windows: Tangwongsan, Hirzel, Schneider, Wu: General incremental
//! sliding-window aggregation, VLDB 2015): the back holds the newer slices, merged; the front holds for
//! each key the state of the older ones, and for each slice and key in it the state of those behind it,
//! which takes the place of the former when the slice leaves. When the front is used up, the back
//! becomes the front, so each slice is merged a fixed number of times, however many make a window.

use std::collections::{BTreeMap, VecDeque};

use arrow::array::{Array, ArrayRef};
use tidemill_state::Slots;

use super::WindowSpec;
use super::groups::Groups;
use crate::OperatorError;
use crate::aggregate::{Accumulator, accumulator};

/// A slice in the window.
struct Included {
    end: i64,
    /// For each of its keys the slot here.
    slots: Vec<u32>,
    /// It is in the front.
    front: bool,
}

/// The older slices, for a function that takes nothing out.
struct Front {
    /// Their state, by key.
    state: Box<dyn Accumulator>,
    /// By slice: the state of each of its keys over the slices behind it.
    behind: BTreeMap<i64, Vec<ArrayRef>>,
}

/// All slices of a window, merged.
pub(super) struct HopWindow {
    /// For functions that can take state out all slices, for the others the back.
    groups: Groups,
    fronts: Vec<Option<Front>>,
    included: VecDeque<Included>,
    /// By slot: how many slices have the key.
    slices: Vec<u32>,
}

impl HopWindow {
    pub fn new(spec: &WindowSpec) -> Result<Self, OperatorError> {
        let groups = Groups::new(spec)?;
        let mut fronts = Vec::with_capacity(spec.calls.len());
        for (call, back) in spec.calls.iter().zip(&groups.accumulators) {
            let front = || -> Result<Front, OperatorError> { Ok(Front { state: accumulator(call, false)?, behind: BTreeMap::new() }) };
            fronts.push(if back.unmerges() { None } else { Some(front()?) });
        }
        Ok(HopWindow { groups, fronts, included: VecDeque::new(), slices: Vec::new() })
    }

    /// The end of the newest slice in the window.
    pub fn newest(&self) -> Option<i64> {
        self.included.back().map(|i| i.end)
    }

    /// Takes in a slice that ends after all others; it must not change any more.
    pub fn include(&mut self, end: i64, slice: &mut Groups) -> Result<(), OperatorError> {
        let theirs = slice.table.slots();
        let mut mine = Slots::default();
        self.groups.table.intern(&slice.table.keys(&theirs)?, theirs.len(), &mut mine)?;
        let capacity = self.groups.table.capacity();
        self.slices.resize(capacity, 0);
        self.fronts.iter_mut().flatten().for_each(|f| f.state.resize(capacity));
        for (ours, other) in self.groups.accumulators.iter_mut().zip(&mut slice.accumulators) {
            ours.resize(capacity);
            ours.load(&mine.slots, &other.save(&theirs)?)?;
        }
        mine.slots.iter().for_each(|slot| self.slices[*slot as usize] += 1);
        self.included.push_back(Included { end, slots: mine.slots, front: false });
        Ok(())
    }

    /// Takes the oldest slice out, if it is the one that ends at `end`; `slices` are all of the
    /// window.
    pub fn leave(&mut self, end: i64, slices: &mut BTreeMap<i64, Groups>, spec: &WindowSpec) -> Result<(), OperatorError> {
        if self.included.front().is_none_or(|i| i.end != end) {
            return Ok(());
        }
        if self.included.front().is_some_and(|i| !i.front) {
            self.turn(slices, spec)?;
        }
        let (Some(oldest), Some(slice)) = (self.included.pop_front(), slices.get_mut(&end)) else { return Ok(()) };
        let theirs = slice.table.slots();
        for (i, ours) in self.groups.accumulators.iter_mut().enumerate() {
            match &mut self.fronts[i] {
                None => ours.unload(&oldest.slots, &slice.accumulators[i].save(&theirs)?)?,
                Some(front) => {
                    front.state.clear(&oldest.slots);
                    if let Some(behind) = front.behind.remove(&end) {
                        front.state.load(&oldest.slots, &behind)?;
                    }
                }
            }
        }
        let mut gone = oldest.slots;
        gone.retain(|slot| {
            let slices = &mut self.slices[*slot as usize];
            *slices -= 1;
            *slices == 0
        });
        self.groups.accumulators.iter_mut().for_each(|a| a.clear(&gone));
        self.fronts.iter_mut().flatten().for_each(|f| f.state.clear(&gone));
        gone.into_iter().for_each(|slot| self.groups.table.remove(slot));
        Ok(())
    }

    /// Makes the back the front, which is used up.
    fn turn(&mut self, slices: &mut BTreeMap<i64, Groups>, spec: &WindowSpec) -> Result<(), OperatorError> {
        let all = self.groups.table.slots();
        for (i, front) in self.fronts.iter_mut().enumerate() {
            let Some(front) = front else { continue };
            let mut state = accumulator(&spec.calls[i], false)?;
            state.resize(self.groups.table.capacity());
            front.behind.clear();
            for included in self.included.iter().rev() {
                let Some(slice) = slices.get_mut(&included.end) else { continue };
                let own = slice.accumulators[i].save(&slice.table.slots())?;
                let behind = state.save(&included.slots)?;
                // The older first: the order of values matters to some functions.
                state.clear(&included.slots);
                state.load(&included.slots, &own)?;
                state.load(&included.slots, &behind)?;
                front.behind.insert(included.end, behind);
            }
            front.state = state;
            self.groups.accumulators[i].clear(&all);
        }
        self.included.iter_mut().for_each(|i| i.front = true);
        Ok(())
    }

    /// The slots of all keys.
    pub fn slots(&self) -> Vec<u32> {
        self.groups.table.slots()
    }

    /// The state of call `i` at `slots`, in an accumulator of its own, a slot a row.
    fn whole(&mut self, i: usize, slots: &[u32], spec: &WindowSpec) -> Result<Box<dyn Accumulator>, OperatorError> {
        let mut whole = accumulator(&spec.calls[i], false)?;
        let rows: Vec<u32> = (0..slots.len() as u32).collect();
        whole.resize(slots.len());
        if let Some(front) = &mut self.fronts[i] {
            whole.load(&rows, &front.state.save(slots)?)?;
        }
        whole.load(&rows, &self.groups.accumulators[i].save(slots)?)?;
        Ok(whole)
    }

    /// Keys, then results, of `slots`.
    pub fn results(&mut self, slots: &[u32], spec: &WindowSpec) -> Result<Vec<ArrayRef>, OperatorError> {
        let mut columns = self.groups.table.keys(slots)?;
        for i in 0..self.fronts.len() {
            if self.fronts[i].is_none() {
                columns.push(self.groups.accumulators[i].values(slots)?);
            } else {
                let rows: Vec<u32> = (0..slots.len() as u32).collect();
                columns.push(self.whole(i, slots, spec)?.values(&rows)?);
            }
        }
        Ok(columns)
    }

    /// A copy of the whole window.
    pub fn copy(&mut self, spec: &WindowSpec) -> Result<Groups, OperatorError> {
        let slots = self.groups.table.slots();
        let mut copy = Groups::new(spec)?;
        let mut theirs = Slots::default();
        copy.table.intern(&self.groups.table.keys(&slots)?, slots.len(), &mut theirs)?;
        let rows: Vec<u32> = (0..slots.len() as u32).collect();
        for i in 0..self.fronts.len() {
            let state = self.whole(i, &slots, spec)?.save(&rows)?;
            copy.accumulators[i].resize(copy.table.capacity());
            copy.accumulators[i].load(&theirs.slots, &state)?;
        }
        Ok(copy)
    }

    /// Bytes.
    pub fn memory(&self) -> usize {
        let front = |f: &Front| {
            let behind = f.behind.values().flatten().map(|c| c.get_buffer_memory_size()).sum::<usize>();
            f.state.memory() + behind
        };
        self.groups.memory()
            + self.fronts.iter().flatten().map(front).sum::<usize>()
            + self.included.iter().map(|i| i.slots.capacity() * 4).sum::<usize>()
            + self.slices.capacity() * 4
    }
}
