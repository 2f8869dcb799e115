//! MIN and MAX, over anything that has an order.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::array::{Array, ArrayRef, Int64Array, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Int64Type};
use arrow::row::{OwnedRow, Row, RowConverter, SortField};
use tidemill_state::SlotVec;

use super::{Accumulator, Rows, pairs};
use crate::OperatorError;

/// The accumulator for a column of this type; `None` if it has no order.
pub(super) fn accumulator(largest: bool, data_type: &DataType, retracts: bool) -> Option<Box<dyn Accumulator>> {
    macro_rules! primitive {
        ($($pattern:pat => $type:ident),* $(,)?) => {
            match data_type {
                $($pattern if !retracts => return Some(Box::new(PrimitiveExtreme::<arrow::datatypes::$type> {
                    largest, best: SlotVec::new(), output: data_type.clone(),
                })),)*
                _ => {}
            }
        };
    }
    use arrow::datatypes::TimeUnit;
    primitive! {
        DataType::Int64 => Int64Type,
        DataType::Int32 => Int32Type,
        DataType::Int16 => Int16Type,
        DataType::Int8 => Int8Type,
        DataType::Float64 => Float64Type,
        DataType::Float32 => Float32Type,
        DataType::Decimal128(..) => Decimal128Type,
        DataType::Date32 => Date32Type,
        DataType::Timestamp(TimeUnit::Second, _) => TimestampSecondType,
        DataType::Timestamp(TimeUnit::Millisecond, _) => TimestampMillisecondType,
        DataType::Timestamp(TimeUnit::Microsecond, _) => TimestampMicrosecondType,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => TimestampNanosecondType,
    }
    if *data_type == DataType::Utf8 && !retracts {
        return Some(Box::new(TextExtreme { largest, best: SlotVec::new(), bytes: 0 }));
    }
    let field = SortField::new(data_type.clone());
    if !RowConverter::supports_fields(std::slice::from_ref(&field)) {
        return None;
    }
    let converter = RowConverter::new(vec![field]).ok()?;
    Some(Box::new(RowExtreme { largest, retracts, states: SlotVec::new(), converter, output: data_type.clone(), bytes: 0 }))
}

/// MIN or MAX of fixed-width values that are never retracted.
struct PrimitiveExtreme<T: arrow::datatypes::ArrowPrimitiveType> {
    largest: bool,
    best: SlotVec<Option<T::Native>>,
    output: DataType,
}

impl<T: arrow::datatypes::ArrowPrimitiveType> PrimitiveExtreme<T> {
    #[inline]
    fn take_in(best: &mut Option<T::Native>, value: T::Native, wanted: Ordering) {
        use arrow::array::ArrowNativeTypeOp;
        match best {
            Some(b) if value.compare(*b) != wanted => {}
            _ => *best = Some(value),
        }
    }

    fn wanted(&self) -> Ordering {
        if self.largest { Ordering::Greater } else { Ordering::Less }
    }

    fn array(&self, values: impl Iterator<Item = Option<T::Native>>) -> ArrayRef {
        Arc::new(values.collect::<arrow::array::PrimitiveArray<T>>().with_data_type(self.output.clone()))
    }
}

impl<T: arrow::datatypes::ArrowPrimitiveType> Accumulator for PrimitiveExtreme<T> {
    fn resize(&mut self, slots: usize) {
        self.best.resize(slots, None);
    }

    fn update(&mut self, rows: &Rows<'_>) -> Result<(), OperatorError> {
        let column = rows.values[0].as_primitive::<T>();
        let wanted = self.wanted();
        for (row, slot) in rows.slots.iter().enumerate() {
            if column.is_valid(row) && rows.counts(row) {
                Self::take_in(&mut self.best[*slot as usize], column.value(row), wanted);
            }
        }
        Ok(())
    }

    fn update_each(&mut self, rows: &Rows<'_>) -> Result<(ArrayRef, ArrayRef), OperatorError> {
        let column = rows.values[0].as_primitive::<T>();
        let wanted = self.wanted();
        let mut before = Vec::with_capacity(rows.slots.len());
        let mut after = Vec::with_capacity(rows.slots.len());
        for (row, slot) in rows.slots.iter().enumerate() {
            let best = &mut self.best[*slot as usize];
            before.push(*best);
            if column.is_valid(row) && rows.counts(row) {
                Self::take_in(best, column.value(row), wanted);
            }
            after.push(*best);
        }
        Ok((self.array(before.into_iter()), self.array(after.into_iter())))
    }

    fn update_pairs(&mut self, rows: &Rows<'_>, changed: &mut [bool]) -> Result<ArrayRef, OperatorError> {
        let values = rows.values[0].as_primitive::<T>().values();
        let (whole, wanted) = (rows.whole(), self.wanted());
        let mut pairs = pairs::Numbers::with_rows(rows.slots.len());
        for (row, slot) in rows.slots.iter().enumerate() {
            let best = &mut self.best[*slot as usize];
            let before = *best;
            if whole.as_ref().is_none_or(|w| w.value(row)) {
                Self::take_in(best, values[row], wanted);
            }
            changed[row] |= pairs.push(before, *best);
        }
        Ok(pairs.finish::<T>(&self.output))
    }

    fn values(&mut self, slots: &[u32]) -> Result<ArrayRef, OperatorError> {
        Ok(self.array(slots.iter().map(|s| self.best[*s as usize])))
    }

    fn clear(&mut self, slots: &[u32]) {
        slots.iter().for_each(|s| self.best[*s as usize] = None);
    }

    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(vec![self.values(slots)?])
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        self.update(&Rows { slots, values: columns, kinds: None, mask: None })
    }

    fn memory(&self) -> usize {
        self.best.memory()
    }
}

/// MIN or MAX of texts that are never retracted.
struct TextExtreme {
    largest: bool,
    /// A text that is replaced leaves its memory to the next.
    best: SlotVec<Option<String>>,
    bytes: usize,
}

impl TextExtreme {
    /// Whether there is a better one now.
    #[inline]
    fn take_in(&mut self, slot: u32, text: &str) -> bool {
        let wanted = if self.largest { Ordering::Greater } else { Ordering::Less };
        match &mut self.best[slot as usize] {
            Some(best) if text.cmp(best.as_str()) != wanted => false,
            Some(best) => {
                self.bytes -= best.capacity();
                best.clear();
                best.push_str(text);
                self.bytes += best.capacity();
                true
            }
            none => {
                self.bytes += none.insert(text.to_string()).capacity();
                true
            }
        }
    }

    fn text(&self, slot: u32) -> Option<&str> {
        self.best[slot as usize].as_deref()
    }
}

impl Accumulator for TextExtreme {
    fn resize(&mut self, slots: usize) {
        self.best.resize(slots, None);
    }

    fn update(&mut self, rows: &Rows<'_>) -> Result<(), OperatorError> {
        let (texts, whole) = (rows.values[0].as_string::<i32>(), rows.whole());
        for (row, slot) in rows.slots.iter().enumerate() {
            if whole.as_ref().is_none_or(|w| w.value(row)) {
                self.take_in(*slot, texts.value(row));
            }
        }
        Ok(())
    }

    fn update_each(&mut self, rows: &Rows<'_>) -> Result<(ArrayRef, ArrayRef), OperatorError> {
        let (texts, whole) = (rows.values[0].as_string::<i32>(), rows.whole());
        let count = rows.slots.len();
        let (mut before, mut after) = (pairs::Texts::with_capacity(count), pairs::Texts::with_capacity(count));
        for (row, slot) in rows.slots.iter().enumerate() {
            before.push(self.text(*slot));
            if whole.as_ref().is_none_or(|w| w.value(row)) {
                self.take_in(*slot, texts.value(row));
            }
            after.push(self.text(*slot));
        }
        Ok((before.finish()?, after.finish()?))
    }

    fn update_pairs(&mut self, rows: &Rows<'_>, changed: &mut [bool]) -> Result<ArrayRef, OperatorError> {
        let (texts, whole) = (rows.values[0].as_string::<i32>(), rows.whole());
        let mut pairs = pairs::Texts::with_capacity(rows.slots.len() * 2);
        for (row, slot) in rows.slots.iter().enumerate() {
            pairs.push(self.text(*slot));
            if whole.as_ref().is_none_or(|w| w.value(row)) {
                changed[row] |= self.take_in(*slot, texts.value(row));
            }
            pairs.push(self.text(*slot));
        }
        pairs.finish()
    }

    fn values(&mut self, slots: &[u32]) -> Result<ArrayRef, OperatorError> {
        let mut texts = pairs::Texts::with_capacity(slots.len());
        slots.iter().for_each(|slot| texts.push(self.text(*slot)));
        texts.finish()
    }

    fn clear(&mut self, slots: &[u32]) {
        for slot in slots {
            self.bytes -= self.best[*slot as usize].take().map_or(0, |text| text.capacity());
        }
    }

    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(vec![self.values(slots)?])
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        self.update(&Rows { slots, values: columns, kinds: None, mask: None })
    }

    fn memory(&self) -> usize {
        self.best.memory() + self.bytes
    }

    fn heap(&self) -> usize {
        self.bytes
    }
}

/// MIN or MAX of values in row form: anything that may be retracted, and types that are rare.
struct RowExtreme {
    largest: bool,
    retracts: bool,
    states: SlotVec<State>,
    converter: RowConverter,
    output: DataType,
    bytes: usize,
}

#[derive(Clone, Default)]
struct State {
    best: Option<OwnedRow>,
    /// With retractions: every value in the group and how often it is there. A count is negative
    /// when a retraction overtook its insert.
    values: BTreeMap<OwnedRow, i64>,
}

impl RowExtreme {
    fn change(&mut self, slot: u32, row: Row<'_>, adds: bool) {
        let state = &mut self.states[slot as usize];
        if !self.retracts {
            let better = match &state.best {
                None => true,
                Some(best) => (row.cmp(&best.row()) == Ordering::Greater) == self.largest && row != best.row(),
            };
            if better {
                state.best = Some(row.owned());
            }
            return;
        }
        let key = row.owned();
        let count = state.values.entry(key.clone()).or_insert_with(|| {
            self.bytes += 64 + key.as_ref().len();
            0
        });
        *count += if adds { 1 } else { -1 };
        if *count == 0 {
            self.bytes -= 64 + key.as_ref().len();
            state.values.remove(&key);
        }
        let mut present = state.values.iter().filter(|(_, c)| **c > 0).map(|(k, _)| k);
        state.best = if self.largest { present.next_back().cloned() } else { present.next().cloned() };
    }

    fn array(&self, rows: &[Option<OwnedRow>]) -> Result<ArrayRef, OperatorError> {
        let present: Vec<Row<'_>> = rows.iter().flatten().map(OwnedRow::row).collect();
        let dense =
            if present.is_empty() { arrow::array::new_empty_array(&self.output) } else { self.converter.convert_rows(present)?.remove(0) };
        let mut next = 0;
        let indices: UInt32Array = rows
            .iter()
            .map(|r| {
                r.as_ref().map(|_| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        Ok(take(&dense, &indices, None)?)
    }
}

impl Accumulator for RowExtreme {
    fn resize(&mut self, slots: usize) {
        self.states.resize(slots, State::default());
    }

    fn update(&mut self, rows: &Rows<'_>) -> Result<(), OperatorError> {
        let encoded = self.converter.convert_columns(&rows.values[..1])?;
        for (row, slot) in rows.slots.iter().enumerate() {
            if rows.values[0].is_valid(row) && rows.counts(row) {
                self.change(*slot, encoded.row(row), rows.adds(row));
            }
        }
        Ok(())
    }

    fn update_each(&mut self, rows: &Rows<'_>) -> Result<(ArrayRef, ArrayRef), OperatorError> {
        let encoded = self.converter.convert_columns(&rows.values[..1])?;
        let mut before = Vec::with_capacity(rows.slots.len());
        let mut after = Vec::with_capacity(rows.slots.len());
        for (row, slot) in rows.slots.iter().enumerate() {
            before.push(self.states[*slot as usize].best.clone());
            if rows.values[0].is_valid(row) && rows.counts(row) {
                self.change(*slot, encoded.row(row), rows.adds(row));
            }
            after.push(self.states[*slot as usize].best.clone());
        }
        Ok((self.array(&before)?, self.array(&after)?))
    }

    fn values(&mut self, slots: &[u32]) -> Result<ArrayRef, OperatorError> {
        let rows: Vec<Option<OwnedRow>> = slots.iter().map(|s| self.states[*s as usize].best.clone()).collect();
        self.array(&rows)
    }

    fn clear(&mut self, slots: &[u32]) {
        for slot in slots {
            let state = std::mem::take(&mut self.states[*slot as usize]);
            self.bytes -= state.values.keys().map(|k| 64 + k.as_ref().len()).sum::<usize>();
        }
    }

    /// Columns: the index of the slot (into `slots`), a value of its group, how often it is there.
    /// There may be several rows a slot, so they are packed as one list a slot.
    fn save(&mut self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let mut values: Vec<Option<OwnedRow>> = Vec::new();
        let mut counts: Vec<i64> = Vec::new();
        let mut lengths = Vec::with_capacity(slots.len());
        for slot in slots {
            let state = &self.states[*slot as usize];
            if self.retracts {
                values.extend(state.values.keys().cloned().map(Some));
                counts.extend(state.values.values());
                lengths.push(state.values.len());
            } else {
                values.extend(state.best.clone().map(Some));
                counts.extend(state.best.iter().map(|_| 1));
                lengths.push(usize::from(state.best.is_some()));
            }
        }
        let lists = |array: ArrayRef| -> ArrayRef {
            let field = Arc::new(arrow::datatypes::Field::new("item", array.data_type().clone(), true));
            let offsets = arrow::buffer::OffsetBuffer::from_lengths(lengths.iter().copied());
            Arc::new(arrow::array::ListArray::new(field, offsets, array, None))
        };
        Ok(vec![lists(self.array(&values)?), lists(Arc::new(Int64Array::from(counts)))])
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        let (values, counts) = (columns[0].as_list::<i32>(), columns[1].as_list::<i32>());
        for (row, slot) in slots.iter().enumerate() {
            let (values, counts) = (values.value(row), counts.value(row));
            let encoded = self.converter.convert_columns(&[values])?;
            for (i, count) in counts.as_primitive::<Int64Type>().values().iter().enumerate() {
                for _ in 0..count.abs() {
                    self.change(*slot, encoded.row(i), *count > 0);
                }
            }
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.states.memory() + self.bytes
    }

    fn heap(&self) -> usize {
        self.bytes
    }
}
