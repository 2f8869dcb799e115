//! Which values each slot has seen, and by which filters: the sets behind `DISTINCT`.
//!
//! One open-addressing table of (slot, value) serves all slots. Integers stand in the table
//! themselves; any other value, or several, by the number that a [`KeyTable`] gives it, so that a text
//! is kept once however many groups have it. What is made of the values is the matter of
//! [`super::distinct`].

use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Int64Type};
use tidemill_state::{KeyTable, SlotVec, Slots, hash, ints};

use crate::OperatorError;

/// How many filters can share a set: each has a bit.
pub(super) const FILTERS_MAX: usize = 32;

/// Rows that are looked up together: their places are read first, so that the memory's answers
/// overlap.
const ROWS_TOGETHER: usize = 64;

/// The least number of places that are left when values go.
const PLACES_MIN: usize = 64;

/// Marks the owner of a place without an entry. Slots are below it.
const EMPTY: u32 = u32::MAX;
/// Added to the slot that owns a NULL among integers.
const NULL: u32 = 1 << 31;

#[derive(Clone, Copy)]
struct Entry {
    value: i64,
    owner: u32,
    /// Without counts a bit for each filter that let the value through, with them their number.
    tally: u32,
}

const NOTHING: Entry = Entry { value: 0, owner: EMPTY, tally: 0 };

enum Values {
    Ints(DataType),
    Keys {
        table: KeyTable,
        /// How many entries have a key.
        uses: Vec<u32>,
        scratch: Slots,
    },
}

/// How often each value is there, for each filter. Counts are numbered as values come, so that their
/// order is that of the values as long as none goes.
#[derive(Default)]
struct Counts {
    /// As many for an entry as there are filters.
    of: Vec<i64>,
    free: Vec<u32>,
}

impl Counts {
    fn give(&mut self, filters: usize) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.of.resize(self.of.len() + filters, 0);
            (self.of.len() / filters - 1) as u32
        })
    }
}

/// Sets of values by slot.
pub(super) struct Seen {
    values: Values,
    filters: usize,
    /// `None` if values are never taken out: then it is enough to know that they were there.
    counts: Option<Counts>,
    /// A power of two of places, or none. An entry stands at the place that the highest bits of its
    /// hash say, or behind it: growing keeps the order, and so reads and writes memory in order.
    places: Vec<Entry>,
    len: usize,
    /// How many entries a slot has.
    held: SlotVec<u32>,
}

impl Seen {
    /// Sets for values of these types, seen through so many filters.
    ///
    /// # Errors
    /// A type whose values cannot be told apart.
    pub fn new(types: &[DataType], filters: usize, counted: bool) -> Result<Self, OperatorError> {
        assert!((1..=FILTERS_MAX).contains(&filters), "a bit for each filter");
        let values = match types {
            [one] if ints::is_int(one) => Values::Ints(one.clone()),
            _ => Values::Keys { table: KeyTable::new(types.to_vec())?, uses: Vec::new(), scratch: Slots::default() },
        };
        Ok(Seen { values, filters, counts: counted.then(Counts::default), places: Vec::new(), len: 0, held: SlotVec::new() })
    }

    /// Makes room for slots below `slots`.
    pub fn resize(&mut self, slots: usize) {
        assert!(slots < NULL as usize, "fewer than 2^31 groups");
        self.held.resize(slots, 0);
    }

    /// Lets rows through filters: `bits` has a bit for each filter that a row passes. Afterwards it has
    /// those for which the row brought the first of a value or took the last. `by` says how many of the
    /// value a row brings to a filter (or takes, if negative).
    ///
    /// # Errors
    /// Values of another type.
    pub fn pass(
        &mut self,
        slots: &[u32],
        values: &[ArrayRef],
        bits: &mut [u32],
        by: impl Fn(usize, usize) -> i64,
    ) -> Result<(), OperatorError> {
        let Seen { values: kept, filters, counts, places, len, held } = self;
        let mut sets = Sets { filters: *filters, counts: counts.as_mut(), places, len, held };
        match kept {
            Values::Ints(_) => {
                let column = ints::ints(&values[0])?;
                let numbers = column.values();
                match column.nulls().filter(|n| n.null_count() > 0) {
                    None => sets.pass(slots, bits, by, |row| (slots[row], numbers[row]), |_, _| {}),
                    Some(nulls) => {
                        let key = |row| if nulls.is_valid(row) { (slots[row], numbers[row]) } else { (slots[row] | NULL, 0) };
                        sets.pass(slots, bits, by, key, |_, _| {});
                    }
                }
            }
            Values::Keys { table, uses, scratch } => {
                table.intern(values, slots.len(), scratch)?;
                uses.resize(table.capacity(), 0);
                let keys = &scratch.slots;
                // Keys that no entry has (any more), perhaps.
                let mut idle: Vec<u32> = scratch.fresh.iter().map(|row| keys[*row as usize]).collect();
                let count = |key: i64, comes: bool| {
                    let used = &mut uses[key as usize];
                    *used = if comes { *used + 1 } else { *used - 1 };
                    if *used == 0 {
                        idle.push(key as u32);
                    }
                };
                sets.pass(slots, bits, by, |row| (slots[row], i64::from(keys[row])), count);
                idle.sort_unstable();
                idle.dedup();
                idle.into_iter().filter(|key| uses[*key as usize] == 0).for_each(|key| table.remove(key));
            }
        }
        Ok(())
    }

    /// Forgets what `slots` have seen.
    pub fn clear(&mut self, slots: &[u32]) {
        if slots.iter().all(|s| self.held[*s as usize] == 0) {
            return;
        }
        let mut gone = vec![false; self.held.len()];
        let mut left = self.len;
        for slot in slots {
            gone[*slot as usize] = true;
            left -= std::mem::take(&mut self.held[*slot as usize]) as usize;
        }
        // Half full at most, so that it need not grow at once when as many come again.
        let enough = (left * 2).next_power_of_two().max(PLACES_MIN);
        let kept = vec![NOTHING; self.places.len().min(enough)];
        for entry in std::mem::replace(&mut self.places, kept) {
            if entry.owner == EMPTY {
                continue;
            }
            if !gone[(entry.owner & !NULL) as usize] {
                put(&mut self.places, entry);
                continue;
            }
            self.len -= 1;
            if let Some(counts) = &mut self.counts {
                let from = entry.tally as usize * self.filters;
                counts.of[from..from + self.filters].fill(0);
                counts.free.push(entry.tally);
            }
            if let Values::Keys { table, uses, .. } = &mut self.values {
                uses[entry.value as usize] -= 1;
                if uses[entry.value as usize] == 0 {
                    table.remove(entry.value as u32);
                }
            }
        }
    }

    /// A list a slot for every column of the values, and for the filters: with counts a list of counts
    /// for each, without one of bits.
    ///
    /// # Errors
    /// None that values that were passed can cause.
    pub fn save(&self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let mut position = vec![u32::MAX; if slots.is_empty() { 0 } else { self.held.len() }];
        slots.iter().enumerate().for_each(|(i, slot)| position[*slot as usize] = i as u32);
        let mut picked: Vec<(u32, Entry)> = Vec::new();
        if !slots.is_empty() {
            for entry in self.places.iter().filter(|e| e.owner != EMPTY) {
                let at = position[(entry.owner & !NULL) as usize];
                if at != u32::MAX {
                    picked.push((at, *entry));
                }
            }
        }
        // In the order in which they came, if it is known.
        match self.counts {
            Some(_) => picked.sort_unstable_by_key(|(at, entry)| (*at, entry.tally)),
            None => picked.sort_unstable_by_key(|(at, entry)| (*at, entry.owner, entry.value)),
        }
        let mut lengths = vec![0usize; slots.len()];
        picked.iter().for_each(|(at, _)| lengths[*at as usize] += 1);
        let mut columns = match &self.values {
            Values::Ints(data_type) => {
                let numbers = picked.iter().map(|(_, entry)| (entry.owner & NULL == 0).then_some(entry.value));
                let numbers: ArrayRef = Arc::new(numbers.collect::<Int64Array>());
                vec![ints::from_ints(&numbers, data_type)?]
            }
            Values::Keys { table, .. } => table.keys(&picked.iter().map(|(_, entry)| entry.value as u32).collect::<Vec<_>>())?,
        };
        match &self.counts {
            None => columns.push(Arc::new(picked.iter().map(|(_, entry)| i64::from(entry.tally)).collect::<Int64Array>())),
            Some(counts) => columns.extend((0..self.filters).map(|filter| {
                let of = |entry: &Entry| counts.of[entry.tally as usize * self.filters + filter];
                Arc::new(picked.iter().map(|(_, entry)| of(entry)).collect::<Int64Array>()) as ArrayRef
            })),
        }
        Ok(columns
            .into_iter()
            .map(|array| {
                let field = Arc::new(Field::new("item", array.data_type().clone(), true));
                let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
                Arc::new(ListArray::new(field, offsets, array, None)) as ArrayRef
            })
            .collect())
    }

    /// Merges what [`Seen::save`] gave in (`sign` 1) or takes it out (-1, with counts only). Gives the
    /// values as rows, and which filters saw the first or last of each.
    ///
    /// # Errors
    /// State of another shape.
    pub fn merge(&mut self, slots: &[u32], columns: &[ArrayRef], sign: i64) -> Result<Merged, OperatorError> {
        let lists: Vec<&ListArray> = columns.iter().map(|c| c.as_list::<i32>()).collect();
        let mut owners = Vec::new();
        for (row, slot) in slots.iter().enumerate() {
            owners.resize(owners.len() + lists[0].value_length(row) as usize, *slot);
        }
        // The lists of the slots, one behind the other.
        let flat = |list: &&ListArray| -> ArrayRef {
            let (from, until) = (list.value_offsets()[0] as usize, list.value_offsets()[slots.len()] as usize);
            list.values().slice(from, until - from)
        };
        let mut values: Vec<ArrayRef> = lists.iter().map(flat).collect();
        let tallies = values.split_off(columns.len() - if self.counts.is_some() { self.filters } else { 1 });
        let tallies: Vec<&Int64Array> = tallies.iter().map(|t| t.as_primitive::<Int64Type>()).collect();
        let mut bits: Vec<u32> = (0..owners.len())
            .map(|row| match self.counts {
                None => tallies[0].value(row) as u32,
                Some(_) => tallies.iter().enumerate().fold(0, |bits, (f, t)| bits | (u32::from(t.value(row) != 0) << f)),
            })
            .collect();
        self.pass(&owners, &values, &mut bits, |row, filter| sign * tallies[filter].value(row))?;
        Ok(Merged { slots: owners, values, bits })
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let values = match &self.values {
            Values::Ints(_) => 0,
            Values::Keys { table, uses, .. } => table.memory() + uses.capacity() * 4,
        };
        let counts = self.counts.as_ref().map_or(0, |c| c.of.capacity() * 8 + c.free.capacity() * 4);
        values + counts + self.places.capacity() * size_of::<Entry>() + self.held.memory()
    }
}

/// Saved values as rows.
pub(super) struct Merged {
    pub slots: Vec<u32>,
    pub values: Vec<ArrayRef>,
    pub bits: Vec<u32>,
}

/// The parts of [`Seen`] that don't depend on how values are kept.
struct Sets<'a> {
    filters: usize,
    counts: Option<&'a mut Counts>,
    places: &'a mut Vec<Entry>,
    len: &'a mut usize,
    held: &'a mut [u32],
}

impl Sets<'_> {
    /// `key` gives the owner and the value of a row, `count` is told of entries that come and go.
    fn pass(
        &mut self,
        slots: &[u32],
        bits: &mut [u32],
        by: impl Fn(usize, usize) -> i64,
        key: impl Fn(usize) -> (u32, i64),
        mut count: impl FnMut(i64, bool),
    ) {
        let mut homes = [0usize; ROWS_TOGETHER];
        for from in (0..slots.len()).step_by(ROWS_TOGETHER) {
            let rows = ROWS_TOGETHER.min(slots.len() - from);
            self.reserve(rows);
            let mut touched = 0u32;
            for (i, home) in homes[..rows].iter_mut().enumerate() {
                let (owner, value) = key(from + i);
                *home = place(owner, value, self.places.len());
                touched ^= self.places[*home].owner;
            }
            // Nothing is done with it: reading it has brought it near.
            black_box(touched);
            for (i, home) in homes[..rows].iter().enumerate() {
                let row = from + i;
                if bits[row] == 0 {
                    continue;
                }
                let (owner, value) = key(row);
                let mask = self.places.len() - 1;
                let mut at = *home;
                while self.places[at].owner != EMPTY && (self.places[at].owner != owner || self.places[at].value != value) {
                    at = (at + 1) & mask;
                }
                let fresh = self.places[at].owner == EMPTY;
                if fresh {
                    let tally = self.counts.as_mut().map_or(0, |c| c.give(self.filters));
                    self.places[at] = Entry { value, owner, tally };
                    *self.len += 1;
                    self.held[slots[row] as usize] += 1;
                    count(value, true);
                }
                match &mut self.counts {
                    None => {
                        let entry = &mut self.places[at];
                        let new = bits[row] & !entry.tally;
                        entry.tally |= new;
                        bits[row] = new;
                    }
                    Some(counts) => {
                        let tally = self.places[at].tally;
                        let of = &mut counts.of[tally as usize * self.filters..][..self.filters];
                        let mut turned = 0;
                        for (filter, n) in of.iter_mut().enumerate() {
                            if bits[row] & (1 << filter) != 0 {
                                let was = *n > 0;
                                *n += by(row, filter);
                                turned |= u32::from(was != (*n > 0)) << filter;
                            }
                        }
                        bits[row] = turned;
                        if of.iter().all(|n| *n == 0) {
                            counts.free.push(tally);
                            remove(self.places, at);
                            *self.len -= 1;
                            self.held[slots[row] as usize] -= 1;
                            count(value, false);
                        }
                    }
                }
            }
        }
    }

    /// Makes room for `more` entries: at most three quarters of the places are taken.
    fn reserve(&mut self, more: usize) {
        let wanted = ((*self.len + more) * 4).div_ceil(3).next_power_of_two();
        if wanted > self.places.len() {
            let old = std::mem::replace(self.places, vec![NOTHING; wanted]);
            old.into_iter().filter(|e| e.owner != EMPTY).for_each(|e| put(self.places, e));
        }
    }
}

/// The place where a value of an owner is looked for first, of a power of two above one.
#[inline]
fn place(owner: u32, value: i64, places: usize) -> usize {
    let hash = hash::mix((value as u64).wrapping_add(u64::from(owner).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    (hash >> (u64::BITS - places.trailing_zeros())) as usize
}

/// Puts an entry that is not there into its place.
fn put(places: &mut [Entry], entry: Entry) {
    let mut at = place(entry.owner, entry.value, places.len());
    while places[at].owner != EMPTY {
        at = (at + 1) & (places.len() - 1);
    }
    places[at] = entry;
}

/// Takes the entry at `hole` out, and moves up those behind it that would not be found past the gap.
fn remove(places: &mut [Entry], mut hole: usize) {
    let mask = places.len() - 1;
    let mut at = (hole + 1) & mask;
    while places[at].owner != EMPTY {
        let home = place(places[at].owner, places[at].value, places.len());
        // How far an entry is from its home; it may move up to there.
        if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
            places[hole] = places[at];
            hole = at;
        }
        at = (at + 1) & mask;
    }
    places[hole] = NOTHING;
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::StringArray;
    use std::collections::HashMap;

    /// Random comings and goings against a map, for numbers and for texts.
    #[test]
    fn as_a_map_has_it() {
        for (texts, counted) in [(false, false), (false, true), (true, false), (true, true)] {
            let types = [if texts { DataType::Utf8 } else { DataType::Int64 }];
            let mut seen = Seen::new(&types, 2, counted).unwrap();
            seen.resize(3);
            let mut model: HashMap<(u32, Option<i64>), [i64; 2]> = HashMap::new();
            let mut state = 1u64;
            let mut random = |below: u64| {
                state = hash::mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
                state % below
            };
            for _ in 0..40 {
                let rows = random(200) as usize;
                let slots: Vec<u32> = (0..rows).map(|_| random(3) as u32).collect();
                let values: Vec<Option<i64>> = (0..rows).map(|_| Some(random(60) as i64).filter(|v| *v > 0)).collect();
                let mut bits: Vec<u32> = (0..rows).map(|_| random(4) as u32).collect();
                let signs: Vec<i64> = (0..rows).map(|_| if counted && random(2) == 0 { -1 } else { 1 }).collect();
                let mut expect = Vec::new();
                for row in 0..rows {
                    let counts = model.entry((slots[row], values[row])).or_default();
                    let mut turned = 0;
                    for (f, n) in counts.iter_mut().enumerate().filter(|(f, _)| bits[row] & (1 << f) != 0) {
                        let was = *n > 0;
                        *n += signs[row];
                        turned |= u32::from(was != (*n > 0)) << f;
                    }
                    expect.push(turned);
                }
                model.retain(|_, counts| *counts != [0, 0]);
                let column: ArrayRef = if texts {
                    Arc::new(values.iter().map(|v| v.map(|v| v.to_string())).collect::<StringArray>())
                } else {
                    Arc::new(Int64Array::from(values))
                };
                seen.pass(&slots, &[column], &mut bits, |row, _| signs[row]).unwrap();
                assert_eq!(bits, expect, "texts {texts}, counted {counted}");
                assert_eq!(seen.len, model.len());
                if let Values::Keys { table, .. } = &seen.values {
                    let distinct: std::collections::HashSet<_> = model.keys().map(|(_, v)| v).collect();
                    assert_eq!(table.len(), distinct.len());
                }
            }
            // What is saved and merged is the same again, and a slot that is cleared has nothing.
            let saved = seen.save(&[2, 0, 1]).unwrap();
            let mut again = Seen::new(&types, 2, counted).unwrap();
            again.resize(3);
            let merged = again.merge(&[2, 0, 1], &saved, 1).unwrap();
            assert_eq!((merged.slots.len(), again.len), (model.len(), model.len()));
            // Without counts keys have the order of their numbers, which are new.
            if counted || !texts {
                assert_eq!(again.save(&[2, 0, 1]).unwrap(), saved);
            }
            again.clear(&[0, 2]);
            assert_eq!(again.len, model.keys().filter(|(slot, _)| *slot == 1).count());
            if counted || !texts {
                assert_eq!(again.save(&[1]).unwrap(), seen.save(&[1]).unwrap());
            }
            if counted {
                seen.merge(&[2, 0, 1], &saved, -1).unwrap();
                assert_eq!((seen.len, seen.held.iter().sum::<u32>()), (0, 0));
            }
        }
    }
}
