//! `DISTINCT` for any aggregate function: a value counts once however often it is there.
//!
//! Calls of the same argument share the set of its values, whatever their filters: one look-up a row
//! tells for which of them a value is new. The sets themselves are those of [`super::seen`].

use arrow::array::{ArrayRef, BooleanArray};
use arrow::buffer::BooleanBuffer;
use tidemill_block::RowKind;

use super::seen::Seen;
use super::{Accumulator, AggregateCall, Rows, plain};
use crate::OperatorError;

/// Accumulators that are told of each value once: of the first, and where values may go, of the last.
pub(super) struct Distinct {
    seen: Seen,
    /// Each with its filter's number.
    inner: Vec<(usize, Box<dyn Accumulator>)>,
    /// For each row of a block the filters that it passes, then those for which it is the first or the
    /// last of its value.
    bits: Vec<u32>,
}

/// Rows for calls that share a set.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub slots: &'a [u32],
    pub values: &'a [ArrayRef],
    pub kinds: Option<&'a [RowKind]>,
    /// For each filter the rows that it lets through; `None` means all.
    pub masks: &'a [Option<&'a BooleanArray>],
}

impl Distinct {
    /// For one call. State may be taken out again.
    ///
    /// # Errors
    /// A function that cannot do what is needed; values that cannot be told apart.
    pub fn new(call: &AggregateCall, retracts: bool) -> Result<Self, OperatorError> {
        Self::of(&[call], &[0], retracts, true)
    }

    /// For calls of the same arguments, with the number of each one's filter. Their order must not
    /// matter to the functions.
    ///
    /// # Errors
    /// As [`Distinct::new`].
    pub fn shared(calls: &[&AggregateCall], filters: &[usize], retracts: bool) -> Result<Self, OperatorError> {
        Self::of(calls, filters, retracts, retracts)
    }

    fn of(calls: &[&AggregateCall], filters: &[usize], retracts: bool, counted: bool) -> Result<Self, OperatorError> {
        let once = |call: &&AggregateCall| plain(&AggregateCall { distinct: false, ..(*call).clone() }, retracts);
        let inner =
            calls.iter().zip(filters).map(|(call, filter)| Ok((*filter, once(call)?))).collect::<Result<Vec<_>, OperatorError>>()?;
        let count = filters.iter().max().map_or(1, |last| last + 1);
        Ok(Distinct { seen: Seen::new(&calls[0].argument_types, count, counted)?, inner, bits: Vec::new() })
    }

    /// Finds the rows that change what the accumulators see.
    fn pass(&mut self, rows: &Shared<'_>) -> Result<(), OperatorError> {
        self.bits.clear();
        self.bits.resize(rows.slots.len(), 0);
        for (filter, mask) in rows.masks.iter().enumerate() {
            let bit = 1 << filter;
            match mask {
                None => self.bits.iter_mut().for_each(|bits| *bits |= bit),
                Some(mask) => {
                    let passing = super::passing(mask);
                    self.bits.iter_mut().enumerate().for_each(|(row, bits)| *bits |= u32::from(passing.value(row)) << filter);
                }
            }
        }
        match rows.kinds {
            None => self.seen.pass(rows.slots, rows.values, &mut self.bits, |_, _| 1),
            Some(kinds) => self.seen.pass(rows.slots, rows.values, &mut self.bits, |row, _| kinds[row].sign()),
        }
    }

    /// Tells the accumulators of the rows that were found.
    fn tell<R>(
        &mut self,
        (slots, values, kinds): (&[u32], &[ArrayRef], Option<&[RowKind]>),
        mut tell: impl FnMut(&mut dyn Accumulator, &Rows<'_>) -> Result<R, OperatorError>,
    ) -> Result<Vec<R>, OperatorError> {
        let mut masks: Vec<Option<BooleanArray>> = Vec::new();
        let mut results = Vec::with_capacity(self.inner.len());
        for (filter, accumulator) in &mut self.inner {
            masks.resize(masks.len().max(*filter + 1), None);
            let mask: &BooleanArray = masks[*filter].get_or_insert_with(|| {
                let bits = &self.bits;
                BooleanArray::new(BooleanBuffer::collect_bool(bits.len(), |row| (bits[row] >> *filter) & 1 == 1), None)
            });
            results.push(tell(&mut **accumulator, &Rows { slots, values, kinds, mask: Some(mask) })?);
        }
        Ok(results)
    }

    /// As [`Accumulator::update_pairs`], a column for each call.
    ///
    /// # Errors
    /// As there.
    pub fn update_shared_pairs(&mut self, rows: &Shared<'_>, changed: &mut [bool]) -> Result<Vec<ArrayRef>, OperatorError> {
        self.pass(rows)?;
        self.tell((rows.slots, rows.values, rows.kinds), |accumulator, rows| accumulator.update_pairs(rows, changed))
    }

    /// As [`Accumulator::update`].
    ///
    /// # Errors
    /// As there.
    pub fn update_shared(&mut self, rows: &Shared<'_>) -> Result<(), OperatorError> {
        self.pass(rows)?;
        self.tell((rows.slots, rows.values, rows.kinds), |accumulator, rows| accumulator.update(rows))?;
        Ok(())
    }

    /// The results of each call at `slots`.
    ///
    /// # Errors
    /// As [`Accumulator::values`].
    pub fn shared_values(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        self.inner.iter_mut().map(|(_, accumulator)| accumulator.values(slots)).collect()
    }

    /// Merges saved state in (`sign` 1) or takes it out (-1).
    fn merge(&mut self, slots: &[u32], columns: &[ArrayRef], sign: i64) -> Result<(), OperatorError> {
        let merged = self.seen.merge(slots, columns, sign)?;
        self.bits = merged.bits;
        let kinds = (sign < 0).then(|| vec![RowKind::Delete; merged.slots.len()]);
        self.tell((merged.slots.as_slice(), merged.values.as_slice(), kinds.as_deref()), |accumulator, rows| accumulator.update(rows))?;
        Ok(())
    }
}

/// One call's rows as those of a set with one filter.
macro_rules! alone {
    ($rows:expr) => {
        Shared { slots: $rows.slots, values: $rows.values, kinds: $rows.kinds, masks: &[$rows.mask] }
    };
}

impl Accumulator for Distinct {
    fn resize(&mut self, slots: usize) {
        self.seen.resize(slots);
        self.inner.iter_mut().for_each(|(_, accumulator)| accumulator.resize(slots));
    }

    fn update(&mut self, rows: &Rows<'_>) -> Result<(), OperatorError> {
        self.update_shared(&alone!(rows))
    }

    fn update_each(&mut self, rows: &Rows<'_>) -> Result<(ArrayRef, ArrayRef), OperatorError> {
        self.pass(&alone!(rows))?;
        let results = self.tell((rows.slots, rows.values, rows.kinds), |accumulator, rows| accumulator.update_each(rows))?;
        Ok(results.into_iter().next().expect("one call"))
    }

    fn update_pairs(&mut self, rows: &Rows<'_>, changed: &mut [bool]) -> Result<ArrayRef, OperatorError> {
        Ok(self.update_shared_pairs(&alone!(rows), changed)?.remove(0))
    }

    fn values(&mut self, slots: &[u32]) -> Result<ArrayRef, OperatorError> {
        self.inner[0].1.values(slots)
    }

    fn clear(&mut self, slots: &[u32]) {
        self.inner.iter_mut().for_each(|(_, accumulator)| accumulator.clear(slots));
        // Mostly slots whose group is gone are cleared, and then every value was taken back.
        self.seen.clear(slots);
    }

    /// The accumulators are rebuilt from the values.
    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        self.seen.save(slots)
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        self.merge(slots, columns, 1)
    }

    fn unmerges(&self) -> bool {
        self.inner.iter().all(|(_, accumulator)| accumulator.unmerges())
    }

    fn unload(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        self.merge(slots, columns, -1)
    }

    fn spills(&self) -> bool {
        self.inner.iter().all(|(_, accumulator)| accumulator.spills())
    }

    fn scans(&self) -> bool {
        true
    }

    fn memory(&self) -> usize {
        self.seen.memory() + self.bits.capacity() * 4 + self.inner.iter().map(|(_, accumulator)| accumulator.memory()).sum::<usize>()
    }

    fn heap(&self) -> usize {
        self.seen.memory() + self.inner.iter().map(|(_, accumulator)| accumulator.heap()).sum::<usize>()
    }
}
