//! Which rows are in which frame: the stores of live rows, and the plans by which rows move.
//!
//! All frames of an operator that are bounded the same way share one store, so a row and its values
//! are kept once, for the longest frame, however many frames see it.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use tidemill_block::Block;

use super::column::{Column, Lane};
use super::ends::queues_memory;
use super::group::AnyGroup;
use crate::OperatorError;

/// The most rows that a store can tell apart.
const ROWS_MAX: usize = u32::MAX as usize - 1;

/// Rows by place.
pub(crate) enum Places {
    /// One after the other from here on, wrapping around.
    Run(u32),
    /// These.
    List(Vec<u32>),
}

impl Places {
    #[inline]
    pub fn at(&self, row: usize) -> u32 {
        match self {
            Places::Run(first) => first.wrapping_add(row as u32),
            Places::List(places) => places[row],
        }
    }
}

/// What to do with a batch of rows, step by step: rows leave, rows enter, and then the rows that
/// entered are answered.
pub(crate) struct Plan<'a> {
    /// The keys of the rows that leave.
    pub gone_slots: Vec<u32>,
    /// Where they lie.
    pub gone: Places,
    /// The keys of the rows that enter.
    pub came_slots: &'a [u32],
    /// Where they lie.
    pub came: &'a Places,
    /// How many rows have left and entered after each step.
    pub steps: Vec<(u32, u32)>,
}

fn too_many() -> OperatorError {
    OperatorError::new("more than 4 billion rows in the frames of one OVER and shard; raise the parallelism or shorten the frame")
}

/// The rows of frames that are bounded by time, in order of time. One queue serves every key, since
/// at time t a row older than t − range is out of every frame, whichever key the current row has.
pub(super) struct RangeStore {
    /// Range in ms, and the place of the oldest row, of each frame.
    frames: Vec<(i64, u32)>,
    longest: usize,
    /// Rows of one time are in each other's frames.
    together: bool,
    times: Column<i64>,
    slots: Column<u32>,
    /// The place of the next row.
    end: u32,
    /// Rows of each key in the longest frame.
    counts: Vec<u32>,
    groups: Vec<Box<dyn AnyGroup>>,
}

impl RangeStore {
    /// A store for frames of these ranges, in ms. With `together` a frame has all rows of the current one's
    /// time, else those that came before it.
    pub fn new(ranges: &[i64], together: bool, groups: Vec<Box<dyn AnyGroup>>) -> Self {
        let longest = (0..ranges.len()).max_by_key(|i| ranges[*i]).expect("a frame");
        RangeStore {
            frames: ranges.iter().map(|r| (*r, 0)).collect(),
            longest,
            together,
            times: Column::new(),
            slots: Column::new(),
            end: 0,
            counts: Vec::new(),
            groups,
        }
    }

    /// Takes a batch of rows in, ascending by time, and answers them; keys left without rows are
    /// added to `emptied`.
    ///
    /// # Errors
    /// A value that cannot be computed or does not fit its type.
    pub fn run(
        &mut self,
        block: &Block,
        times: &[i64],
        slots: &[u32],
        slots_max: usize,
        answers: &mut [Option<ArrayRef>],
        emptied: &mut Vec<u32>,
    ) -> Result<(), OperatorError> {
        self.groups.iter_mut().try_for_each(|g| g.read(block))?;
        self.advance(times, slots, slots_max, Some(answers), emptied)
    }

    fn advance(
        &mut self,
        times: &[i64],
        slots: &[u32],
        slots_max: usize,
        mut answers: Option<&mut [Option<ArrayRef>]>,
        emptied: &mut Vec<u32>,
    ) -> Result<(), OperatorError> {
        if self.rows() + times.len() > ROWS_MAX {
            return Err(too_many());
        }
        let came = Places::Run(self.end);
        self.times.append(times, &[]);
        self.slots.append(slots, &[]);
        self.end = self.end.wrapping_add(times.len() as u32);
        self.counts.resize(slots_max.max(self.counts.len()), 0);
        for group in &mut self.groups {
            group.append();
            group.resize(slots_max);
        }
        for frame in 0..self.frames.len() {
            let plan = self.plan(frame, times, slots, &came);
            for group in &mut self.groups {
                group.run(frame, &plan, answers.as_deref_mut())?;
            }
            if frame == self.longest {
                self.count(&plan, emptied);
            }
        }
        self.forget();
        Ok(())
    }

    fn plan<'a>(&mut self, frame: usize, times: &[i64], slots: &'a [u32], came: &'a Places) -> Plan<'a> {
        let (range, head) = self.frames[frame];
        let mut steps = Vec::with_capacity(times.len());
        let mut gone = 0_u32;
        let (mut oldest, mut at): (&[i64], usize) = (self.times.rest(head), 0);
        let mut row = 0;
        while row < times.len() {
            let time = times[row];
            let bound = time.saturating_sub(range);
            // Ends at the current row at the latest: it is in the store already.
            loop {
                if at == oldest.len() {
                    (oldest, at) = (self.times.rest(head.wrapping_add(gone)), 0);
                }
                if oldest[at] >= bound {
                    break;
                }
                at += 1;
                gone += 1;
            }
            row += 1;
            while self.together && row < times.len() && times[row] == time {
                row += 1;
            }
            steps.push((gone, row as u32));
        }
        self.leave(frame, gone, slots, came, steps)
    }

    /// The plan in which `gone` rows leave a frame.
    fn leave<'a>(&mut self, frame: usize, gone: u32, slots: &'a [u32], came: &'a Places, steps: Vec<(u32, u32)>) -> Plan<'a> {
        let head = &mut self.frames[frame].1;
        let first = *head;
        *head = first.wrapping_add(gone);
        let mut gone_slots = Lane::new(Vec::new());
        self.slots.copy_run(first, gone as usize, true, &mut gone_slots);
        Plan { gone_slots: gone_slots.values, gone: Places::Run(first), came_slots: slots, came, steps }
    }

    fn count(&mut self, plan: &Plan<'_>, emptied: &mut Vec<u32>) {
        plan.came_slots.iter().for_each(|slot| self.counts[*slot as usize] += 1);
        for slot in &plan.gone_slots {
            let count = &mut self.counts[*slot as usize];
            *count -= 1;
            if *count == 0 {
                emptied.push(*slot);
            }
        }
    }

    fn forget(&mut self) {
        let head = self.frames[self.longest].1;
        self.times.forget(head);
        self.slots.forget(head);
        self.groups.iter_mut().for_each(|g| g.forget(head));
    }

    /// Takes out the rows that no later row can see, once the watermark has come so far.
    ///
    /// # Errors
    /// A value that cannot be taken back.
    pub fn expire(&mut self, watermark: i64, emptied: &mut Vec<u32>) -> Result<(), OperatorError> {
        let nothing = Places::Run(self.end);
        for frame in 0..self.frames.len() {
            let (range, head) = self.frames[frame];
            let bound = watermark.saturating_add(1).saturating_sub(range);
            let mut gone = 0_u32;
            while head.wrapping_add(gone) != self.end {
                let oldest = self.times.rest(head.wrapping_add(gone));
                let expired = oldest.partition_point(|t| *t < bound);
                gone += expired as u32;
                if expired < oldest.len() {
                    break;
                }
            }
            if gone == 0 {
                continue;
            }
            let plan = self.leave(frame, gone, &[], &nothing, vec![(gone, 0)]);
            for group in &mut self.groups {
                group.run(frame, &plan, None)?;
            }
            if frame == self.longest {
                self.count(&plan, emptied);
            }
        }
        self.forget();
        Ok(())
    }

    /// A key is gone.
    pub fn clear(&mut self, slot: u32) {
        self.groups.iter_mut().for_each(|g| g.clear(slot));
    }

    /// How many rows are live.
    pub fn rows(&self) -> usize {
        self.end.wrapping_sub(self.frames[self.longest].1) as usize
    }

    /// The keys of all live rows, and as columns their times and values.
    ///
    /// # Errors
    /// Values that cannot be put into an array.
    pub fn save(&self) -> Result<(Vec<u32>, Vec<ArrayRef>), OperatorError> {
        let (first, rows) = (self.frames[self.longest].1, self.rows());
        let mut times = Lane::new(Vec::new());
        self.times.copy_run(first, rows, true, &mut times);
        let mut slots = Lane::new(Vec::new());
        self.slots.copy_run(first, rows, true, &mut slots);
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(times.values))];
        for group in &self.groups {
            columns.extend(group.save(&Places::Run(first), rows)?);
        }
        Ok((slots.values, columns))
    }

    /// Takes back what [`RangeStore::save`] gave, in order of time; `columns` are the values. Keys
    /// whose rows another shard's rows push out are added to `emptied`.
    ///
    /// # Errors
    /// State of another shape.
    pub fn load(
        &mut self,
        times: &[i64],
        slots: &[u32],
        slots_max: usize,
        columns: &[ArrayRef],
        emptied: &mut Vec<u32>,
    ) -> Result<(), OperatorError> {
        let mut rest = columns;
        for group in &mut self.groups {
            rest = &rest[group.read_saved(rest)?..];
        }
        self.advance(times, slots, slots_max, None, emptied)
    }

    /// Bytes.
    pub fn memory(&self) -> usize {
        self.times.memory() + self.slots.memory() + self.counts.capacity() * 4 + self.groups.iter().map(|g| g.memory()).sum::<usize>()
    }
}

/// The rows of frames that are bounded by a number of rows.
pub(super) struct RowStore {
    /// Rows before the current one, of each frame.
    frames: Vec<u64>,
    longest: u64,
    /// The places of each key's rows, oldest first.
    queues: Vec<VecDeque<u32>>,
    free: Vec<u32>,
    given: u32,
    groups: Vec<Box<dyn AnyGroup>>,
}

impl RowStore {
    /// A store for frames of so many rows before the current one.
    pub fn new(frames: &[u64], groups: Vec<Box<dyn AnyGroup>>) -> Self {
        let longest = frames.iter().copied().max().expect("a frame");
        RowStore { frames: frames.to_vec(), longest, queues: Vec::new(), free: Vec::new(), given: 0, groups }
    }

    /// Takes a batch of rows in, ascending by time, and answers them.
    ///
    /// # Errors
    /// A value that cannot be computed or does not fit its type.
    pub fn run(&mut self, block: &Block, slots: &[u32], slots_max: usize, answers: &mut [Option<ArrayRef>]) -> Result<(), OperatorError> {
        self.groups.iter_mut().try_for_each(|g| g.read(block))?;
        self.advance(slots, slots_max, Some(answers))
    }

    fn advance(&mut self, slots: &[u32], slots_max: usize, mut answers: Option<&mut [Option<ArrayRef>]>) -> Result<(), OperatorError> {
        if self.rows() + slots.len() > ROWS_MAX {
            return Err(too_many());
        }
        if self.queues.len() < slots_max {
            self.queues.resize_with(slots_max, VecDeque::new);
        }
        let mut moves: Vec<(Vec<u32>, Vec<u32>, Vec<(u32, u32)>)> =
            self.frames.iter().map(|_| (Vec::new(), Vec::new(), Vec::with_capacity(slots.len()))).collect();
        let mut came = Vec::with_capacity(slots.len());
        // Places are given again only when the batch is done: until then their values are needed.
        let mut left = Vec::new();
        for (row, slot) in slots.iter().enumerate() {
            let queue = &mut self.queues[*slot as usize];
            for ((gone_slots, gone, steps), before) in moves.iter_mut().zip(&self.frames) {
                if queue.len() as u64 > *before {
                    gone_slots.push(*slot);
                    gone.push(queue[queue.len() - 1 - *before as usize]);
                }
                steps.push((gone.len() as u32, row as u32 + 1));
            }
            let place = self.free.pop().unwrap_or_else(|| {
                self.given += 1;
                self.given - 1
            });
            came.push(place);
            queue.push_back(place);
            if queue.len() as u64 > self.longest.saturating_add(1) {
                left.extend(queue.pop_front());
            }
        }
        for group in &mut self.groups {
            group.put(&came);
            group.resize(slots_max);
        }
        let came = Places::List(came);
        for (frame, (gone_slots, gone, steps)) in moves.into_iter().enumerate() {
            let plan = Plan { gone_slots, gone: Places::List(gone), came_slots: slots, came: &came, steps };
            for group in &mut self.groups {
                group.run(frame, &plan, answers.as_deref_mut())?;
            }
        }
        self.free.extend(left);
        Ok(())
    }

    /// How many rows are live.
    pub fn rows(&self) -> usize {
        self.given as usize - self.free.len()
    }

    /// The keys of all live rows, those of a key in order, and as columns their values.
    ///
    /// # Errors
    /// Values that cannot be put into an array.
    pub fn save(&self) -> Result<(Vec<u32>, Vec<ArrayRef>), OperatorError> {
        let (mut slots, mut places) = (Vec::with_capacity(self.rows()), Vec::with_capacity(self.rows()));
        for (slot, queue) in self.queues.iter().enumerate() {
            slots.resize(slots.len() + queue.len(), slot as u32);
            places.extend(queue);
        }
        let rows = places.len();
        let places = Places::List(places);
        let mut columns = Vec::new();
        for group in &self.groups {
            columns.extend(group.save(&places, rows)?);
        }
        Ok((slots, columns))
    }

    /// Takes back what [`RowStore::save`] gave.
    ///
    /// # Errors
    /// State of another shape.
    pub fn load(&mut self, slots: &[u32], slots_max: usize, columns: &[ArrayRef]) -> Result<(), OperatorError> {
        let mut rest = columns;
        for group in &mut self.groups {
            rest = &rest[group.read_saved(rest)?..];
        }
        self.advance(slots, slots_max, None)
    }

    /// Bytes.
    pub fn memory(&self) -> usize {
        queues_memory(self.rows(), size_of::<u32>(), self.queues.capacity())
            + self.free.capacity() * 4
            + self.groups.iter().map(|g| g.memory()).sum::<usize>()
    }
}
