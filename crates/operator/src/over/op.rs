//! The loop that every call over sliding frames runs through, typed for each.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

use super::cell::Cell;
use super::column::{Column, Lane};
use super::frame::Plan;
use crate::OperatorError;

/// What moves in and out of a frame, and the values of these rows.
pub(crate) struct Moves<'a, C: Cell> {
    pub plan: &'a Plan<'a>,
    /// The rows that leave; without values unless the kernel wants them.
    pub gone: &'a Lane<C::Item>,
    /// The rows that enter.
    pub came: &'a Lane<C::Item>,
    /// All rows.
    pub column: &'a Column<C::Item>,
}

/// A call over one frame: its state for every key.
pub(crate) trait Kernel<C: Cell>: Send {
    /// Whether it must see the values of rows that leave.
    fn wants_values(&self) -> bool;

    /// Runs through the steps of a plan; the answers of the rows that entered.
    ///
    /// # Errors
    /// An answer that does not fit its type.
    fn run(&mut self, moves: &Moves<'_, C>) -> Result<ArrayRef, OperatorError>;

    /// The same without answers.
    ///
    /// # Errors
    /// A value that cannot be taken in or back.
    fn shift(&mut self, moves: &Moves<'_, C>) -> Result<(), OperatorError>;

    /// Makes room for keys below `slots`.
    fn resize(&mut self, slots: usize);

    /// A key is gone.
    fn clear(&mut self, slot: u32);

    /// Bytes.
    fn memory(&self) -> usize;
}

/// What a function does with one row; the driver inlines it.
pub(crate) trait Op<C: Cell>: Send {
    /// What an answer is made of.
    type Answer: Default;

    /// [`Op::leave`] looks at the value.
    const WANTS_VALUES: bool;

    fn enter(&mut self, slot: u32, place: u32, value: &C::Item, is_valid: bool) -> Result<(), OperatorError>;

    fn leave(&mut self, slot: u32, place: u32, value: &C::Item, is_valid: bool) -> Result<(), OperatorError>;

    fn answer(&mut self, slot: u32, column: &Column<C::Item>) -> Result<Option<Self::Answer>, OperatorError>;

    fn array(answers: Lane<Self::Answer>, data_type: &DataType) -> Result<ArrayRef, OperatorError>;

    fn resize(&mut self, slots: usize);

    fn clear(&mut self, slot: u32);

    fn memory(&self) -> usize;
}

/// An [`Op`] as a [`Kernel`].
pub(crate) struct Driver<O> {
    op: O,
    output: DataType,
}

impl<O> Driver<O> {
    pub fn new(op: O, output: &DataType) -> Self {
        Driver { op, output: output.clone() }
    }

    fn steps<C: Cell>(&mut self, moves: &Moves<'_, C>, mut answers: Option<&mut Lane<<O as Op<C>>::Answer>>) -> Result<(), OperatorError>
    where
        O: Op<C>,
    {
        let plan = moves.plan;
        // Not looked at; stands in where values were not gathered.
        let nothing = C::Item::default();
        let (mut left, mut entered) = (0, 0);
        for &(l, e) in &plan.steps {
            let (l, e) = (l as usize, e as usize);
            for row in left..l {
                let value = if <O as Op<C>>::WANTS_VALUES { &moves.gone.values[row] } else { &nothing };
                self.op.leave(plan.gone_slots[row], plan.gone.at(row), value, moves.gone.is_valid(row))?;
            }
            for row in entered..e {
                self.op.enter(plan.came_slots[row], plan.came.at(row), &moves.came.values[row], moves.came.is_valid(row))?;
            }
            if let Some(answers) = &mut answers {
                for row in entered..e {
                    answers.push(self.op.answer(plan.came_slots[row], moves.column)?);
                }
            }
            (left, entered) = (l, e);
        }
        Ok(())
    }
}

impl<C: Cell, O: Op<C>> Kernel<C> for Driver<O> {
    fn wants_values(&self) -> bool {
        O::WANTS_VALUES
    }

    fn run(&mut self, moves: &Moves<'_, C>) -> Result<ArrayRef, OperatorError> {
        let mut answers = Lane::with_capacity(moves.plan.came_slots.len());
        self.steps(moves, Some(&mut answers))?;
        O::array(answers, &self.output)
    }

    fn shift(&mut self, moves: &Moves<'_, C>) -> Result<(), OperatorError> {
        self.steps(moves, None)
    }

    fn resize(&mut self, slots: usize) {
        self.op.resize(slots);
    }

    fn clear(&mut self, slot: u32) {
        self.op.clear(slot);
    }

    fn memory(&self) -> usize {
        self.op.memory()
    }
}

/// Grows a column of states by slot.
pub(crate) fn grow<T: Default>(states: &mut Vec<T>, slots: usize) {
    if states.len() < slots {
        states.resize_with(slots, T::default);
    }
}
