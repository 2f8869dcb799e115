//! Calls that never lose rows: aggregates over UNBOUNDED PRECEDING, ROW_NUMBER, RANK, DENSE_RANK,
//! LAG, and FIRST_VALUE and its like over UNBOUNDED PRECEDING. Each holds a little for every key.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, UInt32Array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Int64Type};
use tidemill_block::Block;

use super::cell::{Any, Cell, with_cell};
use super::column::Lane;
use super::group;
use super::op::grow;
use super::{Numbering, OverCall, ValueCall, ValueFunction};
use crate::OperatorError;
use crate::aggregate::{Accumulator, AggregateCall, Rows, accumulator};

/// A batch of rows, ascending by time.
pub(super) struct Batch<'a> {
    pub block: &'a Block,
    pub times: &'a [i64],
    pub slots: &'a [u32],
    /// For each row the last row of the same time and key, if anyone asks.
    pub last_peers: Option<UInt32Array>,
}

/// The state of a call for every key.
pub(super) trait Running: Send {
    /// Takes rows in; the answers of each.
    ///
    /// # Errors
    /// A value that cannot be computed or does not fit its type.
    fn run(&mut self, batch: &Batch<'_>) -> Result<ArrayRef, OperatorError>;

    /// Makes room for keys below `slots`.
    fn resize(&mut self, slots: usize);

    /// The state at `slots` as columns.
    ///
    /// # Errors
    /// State that cannot be put into columns.
    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError>;

    /// Takes back what [`Running::save`] gave.
    ///
    /// # Errors
    /// State of another shape.
    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError>;

    /// Bytes.
    fn memory(&self) -> usize;
}

/// The running form of a call; with `peers` a row's answer is that of the last row of its time.
///
/// # Errors
/// A function that there is no accumulator for.
pub(super) fn running(call: &OverCall, peers: bool) -> Result<Box<dyn Running>, OperatorError> {
    Ok(match call {
        OverCall::Aggregate(call) => Box::new(Aggregate { call: call.clone(), accumulator: accumulator(call, false)?, peers }),
        OverCall::Number { function, data_type } => {
            Box::new(Numbers { function: *function, output: data_type.clone(), states: Vec::new() })
        }
        OverCall::Value(call) => {
            with_cell!(&call.data_type, C => boxed::<C>(call, peers)?, else boxed::<Any>(call, peers)?)
        }
    })
}

fn boxed<C: Cell>(call: &ValueCall, peers: bool) -> Result<Box<dyn Running>, OperatorError> {
    let default = match &call.function {
        ValueFunction::Lag { default: Some(value), .. } => group::item::<C>(value)?,
        _ => None,
    };
    let peers = peers && !matches!(call.function, ValueFunction::Lag { .. });
    Ok(Box::new(Values::<C> { call: call.clone(), peers, default, states: Vec::new(), entries: 0, heap: 0 }))
}

fn of_last_peers(answers: ArrayRef, peers: bool, batch: &Batch<'_>) -> Result<ArrayRef, OperatorError> {
    match &batch.last_peers {
        Some(last) if peers => Ok(take(&answers, last, None)?),
        _ => Ok(answers),
    }
}

struct Aggregate {
    call: AggregateCall,
    accumulator: Box<dyn Accumulator>,
    peers: bool,
}

impl Running for Aggregate {
    fn run(&mut self, batch: &Batch<'_>) -> Result<ArrayRef, OperatorError> {
        let (values, mask) = self.call.evaluate(batch.block)?;
        let (_, after) = self.accumulator.update_each(&Rows { slots: batch.slots, values: &values, kinds: None, mask: mask.as_ref() })?;
        of_last_peers(after, self.peers, batch)
    }

    fn resize(&mut self, slots: usize) {
        self.accumulator.resize(slots);
    }

    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        self.accumulator.save(slots)
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        self.accumulator.load(slots, columns)
    }

    fn memory(&self) -> usize {
        self.accumulator.memory()
    }
}

/// ROW_NUMBER, RANK and DENSE_RANK.
struct Numbers {
    function: Numbering,
    output: DataType,
    states: Vec<Number>,
}

#[derive(Clone, Copy, Default)]
struct Number {
    rows: i64,
    rank: i64,
    dense: i64,
    /// The time of the last row, if there was one.
    time: i64,
}

impl Running for Numbers {
    fn run(&mut self, batch: &Batch<'_>) -> Result<ArrayRef, OperatorError> {
        let mut answers = Vec::with_capacity(batch.slots.len());
        for (slot, time) in batch.slots.iter().zip(batch.times) {
            let state = &mut self.states[*slot as usize];
            if state.rows == 0 || state.time != *time {
                state.rank = state.rows + 1;
                state.dense += 1;
                state.time = *time;
            }
            state.rows += 1;
            answers.push(match self.function {
                Numbering::RowNumber => state.rows,
                Numbering::Rank => state.rank,
                Numbering::DenseRank => state.dense,
            });
        }
        Ok(cast(&Int64Array::from(answers), &self.output)?)
    }

    fn resize(&mut self, slots: usize) {
        grow(&mut self.states, slots);
    }

    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let column = |of: fn(&Number) -> i64| -> ArrayRef {
            Arc::new(slots.iter().map(|s| Some(of(&self.states[*s as usize]))).collect::<Int64Array>())
        };
        Ok(vec![column(|n| n.rows), column(|n| n.rank), column(|n| n.dense), column(|n| n.time)])
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        let value = |column: usize, row: usize| columns[column].as_primitive::<Int64Type>().value(row);
        for (row, slot) in slots.iter().enumerate() {
            self.states[*slot as usize] = Number { rows: value(0, row), rank: value(1, row), dense: value(2, row), time: value(3, row) };
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.states.capacity() * size_of::<Number>()
    }
}

/// FIRST_VALUE, LAST_VALUE, NTH_VALUE and LAG.
struct Values<C: Cell> {
    call: ValueCall,
    peers: bool,
    default: Option<C::Item>,
    states: Vec<Seen<C::Item>>,
    /// Values kept, and the bytes that they point to.
    entries: usize,
    heap: usize,
}

struct Seen<T> {
    /// Rows that counted.
    rows: u64,
    /// What of them is still needed, oldest first.
    kept: VecDeque<Option<T>>,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Seen { rows: 0, kept: VecDeque::new() }
    }
}

impl<C: Cell> Values<C> {
    fn keep(&mut self, slot: u32, value: Option<&C::Item>) {
        self.states[slot as usize].kept.push_back(value.cloned());
        self.entries += 1;
        self.heap += value.map_or(0, C::heap);
    }

    fn drop_oldest(&mut self, slot: u32) {
        if let Some(value) = self.states[slot as usize].kept.pop_front() {
            self.entries -= 1;
            self.heap -= value.as_ref().map_or(0, C::heap);
        }
    }

    fn oldest(&self, slot: u32) -> Option<C::Item> {
        self.states[slot as usize].kept.front().cloned().flatten()
    }

    fn step(&mut self, slot: u32, value: Option<&C::Item>) -> Option<C::Item> {
        let state = &mut self.states[slot as usize];
        let counts = value.is_some() || !self.call.ignore_nulls;
        state.rows += u64::from(counts);
        let (rows, kept) = (state.rows, state.kept.len());
        match self.call.function {
            ValueFunction::First | ValueFunction::Nth(_) => {
                let n = if let ValueFunction::Nth(n) = self.call.function { n } else { 0 };
                if counts && rows == n as u64 + 1 {
                    self.keep(slot, value);
                }
                self.oldest(slot)
            }
            ValueFunction::Last => {
                if counts {
                    self.drop_oldest(slot);
                    self.keep(slot, value);
                }
                self.oldest(slot)
            }
            ValueFunction::Lag { offset: 0, .. } => value.cloned(),
            ValueFunction::Lag { offset, .. } => {
                let answer = if kept == offset { self.oldest(slot) } else { self.default.clone() };
                if counts {
                    if kept == offset {
                        self.drop_oldest(slot);
                    }
                    self.keep(slot, value);
                }
                answer
            }
        }
    }
}

impl<C: Cell> Running for Values<C> {
    fn run(&mut self, batch: &Batch<'_>) -> Result<ArrayRef, OperatorError> {
        let rows = batch.block.rows();
        let values = self.call.argument.evaluate(&batch.block.batch)?.into_array(rows)?;
        let lane = C::read(&[values], rows)?;
        let mut answers = Lane::with_capacity(rows);
        for (row, slot) in batch.slots.iter().enumerate() {
            let value = lane.is_valid(row).then(|| &lane.values[row]);
            answers.push(self.step(*slot, value));
        }
        of_last_peers(C::array(answers, &self.call.data_type)?, self.peers, batch)
    }

    fn resize(&mut self, slots: usize) {
        grow(&mut self.states, slots);
    }

    /// How many rows counted, and a list of those kept.
    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let mut lane = Lane::new(Vec::new());
        for slot in slots {
            self.states[*slot as usize].kept.iter().for_each(|value| lane.push(value.clone()));
        }
        let values = C::array(lane, &self.call.data_type)?;
        let rows: Int64Array = slots.iter().map(|s| Some(self.states[*s as usize].rows as i64)).collect();
        let offsets = OffsetBuffer::from_lengths(slots.iter().map(|s| self.states[*s as usize].kept.len()));
        let field = Arc::new(Field::new("item", values.data_type().clone(), true));
        Ok(vec![Arc::new(rows), Arc::new(ListArray::new(field, offsets, values, None))])
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        let (rows, lists) = (columns[0].as_primitive::<Int64Type>(), columns[1].as_list::<i32>());
        let lane = C::read(&[lists.values().clone()], lists.values().len())?;
        let offsets = lists.value_offsets();
        for (row, slot) in slots.iter().enumerate() {
            let places = offsets[row] as usize..offsets[row + 1] as usize;
            self.states[*slot as usize].rows = rows.value(row) as u64;
            for i in places {
                self.keep(*slot, lane.is_valid(i).then(|| &lane.values[i]));
            }
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.states.capacity() * size_of::<Seen<C::Item>>() + self.entries * size_of::<Option<C::Item>>() * 4 / 3 + self.heap
    }
}
