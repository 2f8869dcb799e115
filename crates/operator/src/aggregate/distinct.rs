//! `DISTINCT` for any aggregate function: a value counts once however often it is there.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray};
use arrow::datatypes::{DataType, Int64Type};
use tidemill_block::RowKind;
use tidemill_state::{KeyTable, Slots};

use super::{Accumulator, AggregateCall, Rows, plain};
use crate::OperatorError;

/// Counts how often each value is in each slot and passes on only the first and the last.
pub(super) struct Distinct {
    inner: Box<dyn Accumulator>,
    /// Keys: (slot, value).
    seen: KeyTable,
    counts: Vec<i64>,
    scratch: Slots,
}

impl Distinct {
    pub fn new(call: &AggregateCall, retracts: bool) -> Result<Self, OperatorError> {
        let mut types = vec![DataType::Int64];
        types.extend(call.argument_types.iter().cloned());
        let once = AggregateCall { distinct: false, ..call.clone() };
        Ok(Distinct { inner: plain(&once, retracts)?, seen: KeyTable::new(types)?, counts: Vec::new(), scratch: Slots::default() })
    }

    /// The rows that change what the inner accumulator sees: those that bring the first of a value or
    /// take the last. `change` says how many a row brings or takes.
    fn first_and_last(&mut self, slots: &[u32], values: &[ArrayRef], change: impl Fn(usize) -> i64) -> Result<BooleanArray, OperatorError> {
        let mut keys: Vec<ArrayRef> = vec![Arc::new(slots.iter().map(|s| i64::from(*s)).collect::<Int64Array>())];
        keys.extend(values.iter().cloned());
        self.seen.intern(&keys, slots.len(), &mut self.scratch)?;
        self.counts.resize(self.seen.capacity(), 0);
        let mut gone = Vec::new();
        let mask = self
            .scratch
            .slots
            .iter()
            .enumerate()
            .map(|(row, entry)| {
                let count = &mut self.counts[*entry as usize];
                let before = *count;
                *count += change(row);
                if *count == 0 {
                    gone.push(*entry);
                }
                Some((before > 0) != (*count > 0))
            })
            .collect();
        gone.sort_unstable();
        gone.dedup();
        for entry in gone {
            if self.counts[entry as usize] == 0 {
                self.seen.remove(entry);
            }
        }
        Ok(mask)
    }

    fn of_rows(&mut self, rows: &Rows<'_>) -> Result<BooleanArray, OperatorError> {
        let change = |row| match (rows.counts(row), rows.adds(row)) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => -1,
        };
        self.first_and_last(rows.slots, rows.values, change)
    }

    /// Merges saved state in (`sign` 1) or takes it out (-1).
    fn merge(&mut self, slots: &[u32], columns: &[ArrayRef], sign: i64) -> Result<(), OperatorError> {
        let lists: Vec<_> = columns.iter().map(|c| c.as_list::<i32>()).collect();
        let mut owners = Vec::new();
        for (row, slot) in slots.iter().enumerate() {
            owners.resize(owners.len() + lists[0].value_length(row) as usize, *slot);
        }
        // The lists of the slots, one behind the other.
        let flat = |list: &ListArray| -> ArrayRef {
            let (from, until) = (list.value_offsets()[0] as usize, list.value_offsets()[slots.len()] as usize);
            list.values().slice(from, until - from)
        };
        let mut values: Vec<ArrayRef> = lists.iter().map(|l| flat(l)).collect();
        let counts = values.pop().expect("the counts");
        let counts = counts.as_primitive::<Int64Type>();
        let mask = self.first_and_last(&owners, &values, |row| sign * counts.value(row))?;
        let kinds = (sign < 0).then(|| vec![RowKind::Delete; owners.len()]);
        self.inner.update(&Rows { slots: &owners, values: &values, kinds: kinds.as_deref(), mask: Some(&mask) })
    }

    /// Entries of `slots`, and for each the position of its slot in `slots`.
    fn entries(&self, slots: &[u32]) -> Result<(Vec<u32>, Vec<usize>), OperatorError> {
        let mut position = std::collections::HashMap::with_capacity(slots.len());
        position.extend(slots.iter().enumerate().map(|(i, s)| (i64::from(*s), i)));
        let all = self.seen.slots();
        let keys = self.seen.keys(&all)?;
        let owners = keys[0].as_primitive::<Int64Type>();
        let mut picked: Vec<(usize, u32)> =
            all.iter().zip(owners.values()).filter_map(|(entry, owner)| position.get(owner).map(|p| (*p, *entry))).collect();
        picked.sort_unstable();
        Ok(picked.into_iter().map(|(p, e)| (e, p)).unzip())
    }
}

impl Accumulator for Distinct {
    fn resize(&mut self, slots: usize) {
        self.inner.resize(slots);
    }

    fn update(&mut self, rows: &Rows<'_>) -> Result<(), OperatorError> {
        let mask = self.of_rows(rows)?;
        self.inner.update(&Rows { mask: Some(&mask), ..*rows })
    }

    fn update_each(&mut self, rows: &Rows<'_>) -> Result<(ArrayRef, ArrayRef), OperatorError> {
        let mask = self.of_rows(rows)?;
        self.inner.update_each(&Rows { mask: Some(&mask), ..*rows })
    }

    fn values(&mut self, slots: &[u32]) -> Result<ArrayRef, OperatorError> {
        self.inner.values(slots)
    }

    fn clear(&mut self, slots: &[u32]) {
        self.inner.clear(slots);
        // Only slots whose group is gone are cleared, and then every value was retracted; what is
        // left belongs to functions whose group ended otherwise.
        if let Ok((entries, _)) = self.entries(slots) {
            for entry in entries {
                self.counts[entry as usize] = 0;
                self.seen.remove(entry);
            }
        }
    }

    /// A list a slot for every argument and for the counts. The inner accumulator is rebuilt from
    /// them.
    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let (entries, positions) = self.entries(slots)?;
        let mut lengths = vec![0usize; slots.len()];
        positions.iter().for_each(|p| lengths[*p] += 1);
        let mut columns = self.seen.keys(&entries)?;
        columns.remove(0);
        columns.push(Arc::new(entries.iter().map(|e| self.counts[*e as usize]).collect::<Int64Array>()));
        Ok(columns
            .into_iter()
            .map(|array| {
                let field = Arc::new(arrow::datatypes::Field::new("item", array.data_type().clone(), true));
                let offsets = arrow::buffer::OffsetBuffer::from_lengths(lengths.iter().copied());
                Arc::new(ListArray::new(field, offsets, array, None)) as ArrayRef
            })
            .collect())
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        self.merge(slots, columns, 1)
    }

    fn unmerges(&self) -> bool {
        self.inner.unmerges()
    }

    fn unload(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        self.merge(slots, columns, -1)
    }

    fn memory(&self) -> usize {
        self.inner.memory() + self.seen.memory() + self.counts.capacity() * 8
    }
}
