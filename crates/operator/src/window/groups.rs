//! Keys and accumulators of one slice of time.

use arrow::array::{ArrayRef, BooleanArray};
use tidemill_state::{KeyTable, Slots, StateTable};

use super::WindowSpec;
use crate::OperatorError;
use crate::aggregate::{Accumulator, Rows, accumulator};

/// Groups of one slice or window.
pub(super) struct Groups {
    pub table: KeyTable,
    pub accumulators: Vec<Box<dyn Accumulator>>,
}

/// The columns of a block that a window aggregate needs, evaluated once.
pub(super) struct Inputs {
    pub keys: Vec<ArrayRef>,
    pub calls: Vec<(Vec<ArrayRef>, Option<BooleanArray>)>,
}

impl Inputs {
    /// Rows `offset .. offset + length`.
    pub fn slice(&self, offset: usize, length: usize) -> Inputs {
        Inputs {
            keys: self.keys.iter().map(|k| k.slice(offset, length)).collect(),
            calls: self
                .calls
                .iter()
                .map(|(values, mask)| {
                    (values.iter().map(|v| v.slice(offset, length)).collect(), mask.as_ref().map(|m| m.slice(offset, length)))
                })
                .collect(),
        }
    }
}

impl Groups {
    pub fn new(spec: &WindowSpec) -> Result<Self, OperatorError> {
        Ok(Groups {
            table: KeyTable::new(spec.key_types.clone())?,
            accumulators: spec.calls.iter().map(|c| accumulator(c, false)).collect::<Result<Vec<_>, _>>()?,
        })
    }

    fn resize(&mut self) {
        let slots = self.table.capacity();
        self.accumulators.iter_mut().for_each(|a| a.resize(slots));
    }

    /// Takes rows in.
    pub fn update(&mut self, rows: usize, inputs: &Inputs, scratch: &mut Slots) -> Result<(), OperatorError> {
        self.table.intern(&inputs.keys, rows, scratch)?;
        if !scratch.fresh.is_empty() {
            self.resize();
        }
        for ((values, mask), accumulator) in inputs.calls.iter().zip(&mut self.accumulators) {
            accumulator.update(&Rows { slots: &scratch.slots, values, kinds: None, mask: mask.as_ref() })?;
        }
        Ok(())
    }

    /// Adds everything in `other`, which stays as it is.
    pub fn merge(&mut self, other: &mut Groups) -> Result<(), OperatorError> {
        let slots = other.table.slots();
        let keys = other.table.keys(&slots)?;
        let mut mine = Slots::default();
        self.table.intern(&keys, slots.len(), &mut mine)?;
        self.resize();
        for (ours, theirs) in self.accumulators.iter_mut().zip(&mut other.accumulators) {
            ours.load(&mine.slots, &theirs.save(&slots)?)?;
        }
        Ok(())
    }

    /// Keys, then results, of `slots`.
    pub fn results(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let mut columns = self.table.keys(slots)?;
        for accumulator in &mut self.accumulators {
            columns.push(accumulator.values(slots)?);
        }
        Ok(columns)
    }

    pub fn save(&mut self, name: String) -> Result<StateTable, OperatorError> {
        let slots = self.table.slots();
        let mut columns = self.table.keys(&slots)?;
        for accumulator in &mut self.accumulators {
            columns.extend(accumulator.save(&slots)?);
        }
        let hashes = slots.iter().map(|s| self.table.hash(*s)).collect();
        Ok(StateTable::keyed(name, hashes, columns)?)
    }

    pub fn load(&mut self, spec: &WindowSpec, table: &StateTable) -> Result<(), OperatorError> {
        let (keys, mut rest) = table.columns().split_at(spec.keys.len());
        let mut slots = Slots::default();
        self.table.intern(keys, table.batch.num_rows(), &mut slots)?;
        self.resize();
        for accumulator in &mut self.accumulators {
            let width = accumulator.save(&[])?.len();
            accumulator.load(&slots.slots, &rest[..width])?;
            rest = &rest[width..];
        }
        Ok(())
    }

    pub fn memory(&self) -> usize {
        self.table.memory() + self.accumulators.iter().map(|a| a.memory()).sum::<usize>()
    }
}
