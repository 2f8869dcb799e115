//! Keys and their slots.

use std::sync::Arc;

use crate::arena::{Arena, Span};
use crate::hash;
use crate::ints::{from_ints, ints, is_int};
use crate::packed::{self, Packed};
use crate::slot_index::{Ahead, SlotIndex, prefetch};
use crate::slot_vec::SlotVec;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray, StringBuilder};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};

/// For each row of a block the slot of its key, and the rows that brought a new key.
#[derive(Default)]
pub struct Slots {
    /// A slot for each row.
    pub slots: Vec<u32>,
    /// The rows whose key was not known before, ascending; a key appears once.
    pub fresh: Vec<u32>,
    /// The hash of each row's key.
    pub hashes: Vec<u64>,
}

/// Maps keys to slots: small numbers, given again when a key is removed.
///
/// Keys of one or two integer-like columns are kept as integers, one text column as its bytes, several columns
/// of these kinds one behind the other, anything else in Arrow's row form.
pub struct KeyTable {
    types: Vec<DataType>,
    store: Store,
    index: SlotIndex,
    hashes: SlotVec<u64>,
    free: Vec<u32>,
}

enum Store {
    /// No key columns: a single slot.
    Unit,
    Ints {
        values: SlotVec<i64>,
        valid: SlotVec<bool>,
    },
    Pairs {
        values: SlotVec<[i64; 2]>,
        /// Which of the two are NULL, as bits; slots beyond its end have none, and where there never was one it is empty.
        absent: SlotVec<u8>,
    },
    Bytes {
        arena: Arena,
        places: SlotVec<Span>,
        valid: SlotVec<bool>,
        form: Form,
    },
}

/// How keys are bytes.
enum Form {
    /// The text of one column.
    Text,
    Packed,
    Rows(RowConverter),
}

impl KeyTable {
    /// An empty table for keys of these types.
    ///
    /// # Errors
    /// A type that cannot be a key.
    pub fn new(types: Vec<DataType>) -> Result<Self, ArrowError> {
        let bytes = |form| Store::Bytes { arena: Arena::new(), places: SlotVec::new(), valid: SlotVec::new(), form };
        let store = match types.as_slice() {
            [] => Store::Unit,
            [one] if is_int(one) => Store::Ints { values: SlotVec::new(), valid: SlotVec::new() },
            [one, other] if is_int(one) && is_int(other) => Store::Pairs { values: SlotVec::new(), absent: SlotVec::new() },
            [DataType::Utf8] => bytes(Form::Text),
            many if packed::fits(many) => bytes(Form::Packed),
            many => bytes(Form::Rows(RowConverter::new(many.iter().map(|t| SortField::new(t.clone())).collect())?)),
        };
        Ok(KeyTable { types, store, index: SlotIndex::new(), hashes: SlotVec::new(), free: Vec::new() })
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        if matches!(self.store, Store::Unit) { self.hashes.len() - self.free.len() } else { self.index.len() }
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One more than the largest slot ever given: how long columns indexed by slot must be.
    pub fn capacity(&self) -> usize {
        self.hashes.len()
    }

    /// The hash of the key at `slot`.
    #[inline]
    pub fn hash(&self, slot: u32) -> u64 {
        self.hashes[slot as usize]
    }

    /// The slots of the keys of `rows` rows, new keys entered.
    ///
    /// # Errors
    /// A key column whose type is not the table's.
    pub fn intern(&mut self, columns: &[ArrayRef], rows: usize, out: &mut Slots) -> Result<(), ArrowError> {
        hash::rows(columns, rows, &mut out.hashes)?;
        self.intern_at(columns, rows, |i| i, out)
    }

    /// The slots of the keys of some rows of `columns`, whose hashes are in `out`: a slot and a hash for each of `picks`.
    ///
    /// # Errors
    /// As [`KeyTable::intern`].
    pub fn intern_picked(&mut self, columns: &[ArrayRef], picks: &[u32], out: &mut Slots) -> Result<(), ArrowError> {
        debug_assert_eq!(out.hashes.len(), picks.len());
        self.intern_at(columns, picks.len(), |i| picks[i] as usize, out)
    }

    fn intern_at(&mut self, columns: &[ArrayRef], rows: usize, at: impl Fn(usize) -> usize, out: &mut Slots) -> Result<(), ArrowError> {
        out.slots.clear();
        out.fresh.clear();
        let Slots { slots, fresh, hashes } = out;
        slots.reserve(rows);
        let KeyTable { store, index, hashes: known, free, .. } = self;
        let mut ahead = Ahead::new();
        match store {
            Store::Unit => {
                if rows > 0 && known.len() == free.len() {
                    fresh.push(0);
                    if free.pop().is_none() {
                        known.push(0);
                    }
                }
                slots.resize(rows, 0);
            }
            Store::Ints { values, valid } => {
                let column = ints(&columns[0])?;
                let keys = column.values();
                let nulls = column.nulls().filter(|n| n.null_count() > 0);
                // Runs of one key are common; they skip the look-up.
                let mut last: Option<(i64, u32)> = None;
                for i in 0..rows {
                    let row = at(i);
                    let is_valid = nulls.is_none_or(|n| n.is_valid(row));
                    let key = if is_valid { keys[row] } else { 0 };
                    if is_valid
                        && let Some((k, slot)) = last
                        && k == key
                    {
                        slots.push(slot);
                        continue;
                    }
                    let hash = hashes[i];
                    let near = |s: u32| {
                        prefetch(&values[s as usize]);
                        prefetch(&valid[s as usize]);
                    };
                    let guess = ahead.guess(i, hashes, index, near, |_| ());
                    let same = |s: u32| values[s as usize] == key && valid[s as usize] == is_valid;
                    let slot = match index.find_guessed(guess, hash, same) {
                        Some(slot) => slot,
                        None => {
                            let slot = give(free, known, hash);
                            values.put(slot, key);
                            valid.put(slot, is_valid);
                            index.insert(hash, slot, known);
                            fresh.push(i as u32);
                            slot
                        }
                    };
                    if is_valid {
                        last = Some((key, slot));
                    }
                    slots.push(slot);
                }
            }
            Store::Pairs { values, absent } => {
                let (left, right) = (ints(&columns[0])?, ints(&columns[1])?);
                let nulls = [&left, &right].map(|column| column.nulls().filter(|n| n.null_count() > 0));
                let (left, right) = (left.values(), right.values());
                for i in 0..rows {
                    let row = at(i);
                    let hash = hashes[i];
                    let mut key = [left[row], right[row]];
                    let mut missing = 0;
                    for (side, nulls) in nulls.iter().enumerate() {
                        if nulls.is_some_and(|n| n.is_null(row)) {
                            missing |= 1 << side;
                            key[side] = 0;
                        }
                    }
                    let guess = ahead.guess(i, hashes, index, |s| prefetch(&values[s as usize]), |_| ());
                    let same = |s: u32| values[s as usize] == key && absent.get(s as usize).copied().unwrap_or(0) == missing;
                    let slot = match index.find_guessed(guess, hash, same) {
                        Some(slot) => slot,
                        None => {
                            let slot = give(free, known, hash);
                            values.put(slot, key);
                            if missing != 0 || (slot as usize) < absent.len() {
                                absent.put(slot, missing);
                            }
                            index.insert(hash, slot, known);
                            fresh.push(i as u32);
                            slot
                        }
                    };
                    slots.push(slot);
                }
            }
            Store::Bytes { arena, places, valid, form } => {
                let encoded = match form {
                    Form::Text => Encoded::Text(columns[0].as_string::<i32>()),
                    Form::Packed => Encoded::Packed(Packed::new(columns, columns[0].len())?),
                    Form::Rows(converter) => Encoded::Rows(converter.convert_columns(columns)?),
                };
                for i in 0..rows {
                    let row = at(i);
                    let (key, is_valid): (&[u8], bool) = match &encoded {
                        Encoded::Text(text) if text.is_valid(row) => (text.value(row).as_bytes(), true),
                        Encoded::Text(_) => (&[], false),
                        Encoded::Packed(keys) => (keys.get(row), true),
                        Encoded::Rows(rows) => (rows.row(row).data(), true),
                    };
                    let hash = hashes[i];
                    let near = |s: u32| {
                        prefetch(&places[s as usize]);
                        prefetch(&valid[s as usize]);
                    };
                    let bytes = |s: u32| {
                        if let Some(first) = arena.get(places[s as usize]).first() {
                            prefetch(first);
                        }
                    };
                    let guess = ahead.guess(i, hashes, index, near, bytes);
                    let same = |s: u32| arena.get(places[s as usize]) == key && valid[s as usize] == is_valid;
                    let slot = match index.find_guessed(guess, hash, same) {
                        Some(slot) => slot,
                        None => {
                            let place = arena.push(key).ok_or_else(|| {
                                ArrowError::ComputeError("more than 1 TB of key bytes in one operator; raise the parallelism".into())
                            })?;
                            let slot = give(free, known, hash);
                            places.put(slot, place);
                            valid.put(slot, is_valid);
                            index.insert(hash, slot, known);
                            fresh.push(i as u32);
                            slot
                        }
                    };
                    slots.push(slot);
                }
            }
        }
        Ok(())
    }

    /// Forgets the key at `slot`; the slot will be given to another.
    pub fn remove(&mut self, slot: u32) {
        if !matches!(self.store, Store::Unit) {
            let hash = self.hashes[slot as usize];
            assert!(self.index.remove(hash, slot), "slot {slot} holds no key");
        }
        self.free.push(slot);
        if let Store::Bytes { arena, places, .. } = &mut self.store {
            // Afterwards the slot has the place of an empty key, which no packing moves.
            arena.remove(std::mem::take(&mut places[slot as usize]));
            if arena.is_sparse() {
                arena.pack(places.iter_mut());
            }
        }
    }

    /// How many slots below [`KeyTable::capacity`] have no key.
    pub fn vacant(&self) -> usize {
        self.free.len()
    }

    /// Bytes of memory that the table will have in addition soon, when its index grows.
    pub fn growth(&self) -> usize {
        self.index.growth()
    }

    /// All slots in use, ascending.
    pub fn slots(&self) -> Vec<u32> {
        let mut used = vec![true; self.hashes.len()];
        self.free.iter().for_each(|s| used[*s as usize] = false);
        (0..self.hashes.len() as u32).filter(|s| used[*s as usize]).collect()
    }

    /// The keys at `slots` as columns of the table's types.
    ///
    /// # Errors
    /// None that keys entered by [`KeyTable::intern`] can cause.
    pub fn keys(&self, slots: &[u32]) -> Result<Vec<ArrayRef>, ArrowError> {
        match &self.store {
            Store::Unit => Ok(Vec::new()),
            Store::Ints { values, valid } => {
                let nulls =
                    slots.iter().any(|s| !valid[*s as usize]).then(|| slots.iter().map(|s| valid[*s as usize]).collect::<NullBuffer>());
                let array: ArrayRef = Arc::new(Int64Array::new(slots.iter().map(|s| values[*s as usize]).collect(), nulls));
                Ok(vec![from_ints(&array, &self.types[0])?])
            }
            Store::Pairs { values, absent } => {
                let column = |side: usize| {
                    let is_null = |s: &u32| absent.get(*s as usize).is_some_and(|missing| missing >> side & 1 == 1);
                    let nulls = slots.iter().any(is_null).then(|| slots.iter().map(|s| !is_null(s)).collect::<NullBuffer>());
                    let array: ArrayRef = Arc::new(Int64Array::new(slots.iter().map(|s| values[*s as usize][side]).collect(), nulls));
                    from_ints(&array, &self.types[side])
                };
                Ok(vec![column(0)?, column(1)?])
            }
            Store::Bytes { arena, places, valid, form } => {
                let key = |s: u32| arena.get(places[s as usize]);
                match form {
                    Form::Text => {
                        let mut texts = StringBuilder::with_capacity(slots.len(), slots.iter().map(|s| key(*s).len()).sum());
                        for slot in slots {
                            if valid[*slot as usize] {
                                // SAFETY: the bytes were taken from a string array.
                                texts.append_value(unsafe { std::str::from_utf8_unchecked(key(*slot)) });
                            } else {
                                texts.append_null();
                            }
                        }
                        Ok(vec![Arc::new(texts.finish())])
                    }
                    Form::Packed => packed::unpack(&self.types, slots.len(), |i| key(slots[i])),
                    Form::Rows(converter) => {
                        let parser = converter.parser();
                        converter.convert_rows(slots.iter().map(|s| parser.parse(key(*s))))
                    }
                }
            }
        }
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let keys = if let Store::Bytes { arena, .. } = &self.store { arena.memory() } else { 0 };
        self.memory_by_slot() + keys
    }

    /// The bytes of memory of what is kept by slot, and so stays when keys are removed: all but the bytes of keys.
    pub fn memory_by_slot(&self) -> usize {
        let store = match &self.store {
            Store::Unit => 0,
            Store::Ints { values, valid } => values.memory() + valid.memory(),
            Store::Pairs { values, absent } => values.memory() + absent.memory(),
            Store::Bytes { places, valid, .. } => places.memory() + valid.memory(),
        };
        store + self.index.memory() + self.hashes.memory() + self.free.capacity() * 4
    }
}

/// The keys of a block as bytes.
enum Encoded<'a> {
    Text(&'a StringArray),
    Packed(Packed),
    Rows(arrow::row::Rows),
}

fn give(free: &mut Vec<u32>, hashes: &mut SlotVec<u64>, hash: u64) -> u32 {
    match free.pop() {
        Some(slot) => {
            hashes[slot as usize] = hash;
            slot
        }
        None => {
            hashes.push(hash);
            (hashes.len() - 1) as u32
        }
    }
}

#[cfg(test)]
mod tests;
