//! State by key: columns by slot for values, ordered maps by slot for maps. A function declares what it
//! keeps ([`super::Setup`]) and gets handles; the operator saves and loads all of it.

use std::any::Any;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{Float64Type, Int64Type};

use crate::OperatorError;

/// A type of which a value can be kept for a key.
pub trait StateValue: Clone + Send + 'static {
    /// As a column.
    fn save(values: Vec<Option<&Self>>) -> ArrayRef;
    /// Out of a column; `None` if it is of another type.
    fn load(column: &ArrayRef) -> Option<Vec<Option<Self>>>;
    /// Bytes of memory besides the value itself.
    fn heap(&self) -> usize {
        0
    }
}

macro_rules! state_value {
    ($type:ty, $array:ty, $read:ident $(::<$of:ty>)?) => {
        impl StateValue for $type {
            fn save(values: Vec<Option<&Self>>) -> ArrayRef {
                Arc::new(values.into_iter().map(|v| v.copied()).collect::<$array>())
            }
            fn load(column: &ArrayRef) -> Option<Vec<Option<Self>>> {
                Some(column.$read$(::<$of>)?()?.iter().collect())
            }
        }
    };
}

state_value!(i64, Int64Array, as_primitive_opt::<Int64Type>);
state_value!(f64, Float64Array, as_primitive_opt::<Float64Type>);
state_value!(bool, BooleanArray, as_boolean_opt);

impl StateValue for String {
    fn save(values: Vec<Option<&Self>>) -> ArrayRef {
        Arc::new(values.into_iter().collect::<StringArray>())
    }
    fn load(column: &ArrayRef) -> Option<Vec<Option<Self>>> {
        Some(column.as_string_opt::<i32>()?.iter().map(|v| v.map(str::to_string)).collect())
    }
    fn heap(&self) -> usize {
        self.capacity()
    }
}

impl StateValue for Vec<u8> {
    fn save(values: Vec<Option<&Self>>) -> ArrayRef {
        Arc::new(values.into_iter().map(|v| v.map(Vec::as_slice)).collect::<BinaryArray>())
    }
    fn load(column: &ArrayRef) -> Option<Vec<Option<Self>>> {
        Some(column.as_binary_opt::<i32>()?.iter().map(|v| v.map(<[u8]>::to_vec)).collect())
    }
    fn heap(&self) -> usize {
        self.capacity()
    }
}

/// A value kept for each key.
pub struct ValueState<T> {
    index: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for ValueState<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ValueState<T> {}

/// A map kept for each key, from bytes to bytes, in the order of its keys.
#[derive(Clone, Copy)]
pub struct MapState {
    index: usize,
}

/// A column of values.
trait Column: Any + Send {
    fn grow(&mut self, slots: usize);
    fn clear(&mut self, slot: u32);
    fn is_set(&self, slot: u32) -> bool;
    fn save(&self, slots: &[u32]) -> ArrayRef;
    fn load(&mut self, slots: &[u32], column: &ArrayRef) -> bool;
    fn memory(&self) -> usize;
}

struct Values<T> {
    values: Vec<Option<T>>,
    heap: usize,
}

impl<T: StateValue> Column for Values<T> {
    fn grow(&mut self, slots: usize) {
        if self.values.len() < slots {
            self.values.resize(slots, None);
        }
    }
    fn clear(&mut self, slot: u32) {
        if let Some(value) = self.values[slot as usize].take() {
            self.heap -= value.heap();
        }
    }
    fn is_set(&self, slot: u32) -> bool {
        self.values[slot as usize].is_some()
    }
    fn save(&self, slots: &[u32]) -> ArrayRef {
        T::save(slots.iter().map(|s| self.values[*s as usize].as_ref()).collect())
    }
    fn load(&mut self, slots: &[u32], column: &ArrayRef) -> bool {
        let Some(values) = T::load(column) else { return false };
        for (slot, value) in slots.iter().zip(values) {
            self.heap += value.as_ref().map_or(0, T::heap);
            self.values[*slot as usize] = value;
        }
        true
    }
    fn memory(&self) -> usize {
        self.values.capacity() * size_of::<Option<T>>() + self.heap
    }
}

/// The entries of one map state, of all keys.
#[derive(Default)]
struct Map {
    entries: BTreeMap<(u32, Vec<u8>), Vec<u8>>,
    /// How many each slot has.
    counts: Vec<u32>,
    bytes: usize,
}

/// Bytes that an entry of a map takes besides its key and value: two vectors, a slot, its share of a node.
const ENTRY_BYTES: usize = 72;

/// All that a function keeps.
#[derive(Default)]
pub(super) struct States {
    names: Vec<String>,
    values: Vec<Box<dyn Column>>,
    map_names: Vec<String>,
    maps: Vec<Map>,
}

impl States {
    pub fn declare<T: StateValue>(&mut self, name: &str) -> ValueState<T> {
        assert!(!self.names.iter().any(|n| n == name), "two states are named {name}");
        self.names.push(name.to_string());
        self.values.push(Box::new(Values::<T> { values: Vec::new(), heap: 0 }));
        ValueState { index: self.values.len() - 1, of: PhantomData }
    }

    pub fn declare_map(&mut self, name: &str) -> MapState {
        assert!(!self.map_names.iter().any(|n| n == name), "two maps are named {name}");
        self.map_names.push(name.to_string());
        self.maps.push(Map::default());
        MapState { index: self.maps.len() - 1 }
    }

    /// Makes room for so many slots.
    pub fn grow(&mut self, slots: usize) {
        self.values.iter_mut().for_each(|v| v.grow(slots));
        for map in &mut self.maps {
            if map.counts.len() < slots {
                map.counts.resize(slots, 0);
            }
        }
    }

    fn column<T: StateValue>(&self, state: ValueState<T>) -> &Values<T> {
        let column: &dyn Any = self.values[state.index].as_ref();
        column.downcast_ref().expect("a handle is of the function that it was made for")
    }

    fn column_mut<T: StateValue>(&mut self, state: ValueState<T>) -> &mut Values<T> {
        let column: &mut dyn Any = self.values[state.index].as_mut();
        column.downcast_mut().expect("a handle is of the function that it was made for")
    }

    pub fn all<T: StateValue>(&self, state: ValueState<T>) -> &[Option<T>] {
        &self.column(state).values
    }

    pub fn set<T: StateValue>(&mut self, state: ValueState<T>, slot: u32, value: Option<T>) {
        let column = self.column_mut(state);
        column.heap += value.as_ref().map_or(0, T::heap);
        if let Some(old) = std::mem::replace(&mut column.values[slot as usize], value) {
            column.heap -= old.heap();
        }
    }

    pub fn map_get(&self, state: MapState, slot: u32, key: &[u8]) -> Option<&[u8]> {
        // The map's key owns its bytes, so a look-up needs a copy of them.
        self.maps[state.index].entries.get(&(slot, key.to_vec())).map(Vec::as_slice)
    }

    pub fn map_set(&mut self, state: MapState, slot: u32, key: &[u8], value: Option<&[u8]>) {
        let map = &mut self.maps[state.index];
        let old = match value {
            Some(value) => {
                map.bytes += ENTRY_BYTES + key.len() + value.len();
                map.counts[slot as usize] += 1;
                map.entries.insert((slot, key.to_vec()), value.to_vec())
            }
            None => map.entries.remove(&(slot, key.to_vec())),
        };
        if let Some(old) = old {
            map.bytes -= ENTRY_BYTES + key.len() + old.len();
            map.counts[slot as usize] -= 1;
        }
    }

    pub fn map_entries(&self, state: MapState, slot: u32) -> impl Iterator<Item = (&[u8], &[u8])> {
        let from = Bound::Included((slot, Vec::new()));
        let entries = self.maps[state.index].entries.range((from, Bound::Unbounded));
        entries.take_while(move |((s, _), _)| *s == slot).map(|((_, key), value)| (key.as_slice(), value.as_slice()))
    }

    fn map_clear(map: &mut Map, slot: u32) {
        while map.counts[slot as usize] > 0 {
            let first = map.entries.range((Bound::Included((slot, Vec::new())), Bound::Unbounded)).next();
            let Some(key) = first.map(|(key, _)| key.clone()) else { return };
            if let Some(value) = map.entries.remove(&key) {
                map.bytes -= ENTRY_BYTES + key.1.len() + value.len();
            }
            map.counts[slot as usize] -= 1;
        }
    }

    /// Forgets all of a key.
    pub fn clear(&mut self, slot: u32) {
        self.values.iter_mut().for_each(|v| v.clear(slot));
        self.maps.iter_mut().for_each(|m| States::map_clear(m, slot));
    }

    /// Whether anything is kept for a key.
    pub fn is_set(&self, slot: u32) -> bool {
        self.values.iter().any(|v| v.is_set(slot)) || self.maps.iter().any(|m| m.counts[slot as usize] > 0)
    }

    /// The values at `slots`, a column a state, with their names.
    pub fn save(&self, slots: &[u32]) -> Vec<(&str, ArrayRef)> {
        self.names.iter().map(String::as_str).zip(self.values.iter().map(|v| v.save(slots))).collect()
    }

    /// The entries of each map: its name, and slot, key and value of each entry.
    pub fn save_maps(&self) -> impl Iterator<Item = (&str, Vec<u32>, ArrayRef, ArrayRef)> {
        self.map_names.iter().zip(&self.maps).map(|(name, map)| {
            let slots = map.entries.keys().map(|(slot, _)| *slot).collect();
            let keys = BinaryArray::from_iter_values(map.entries.keys().map(|(_, key)| key));
            let values = BinaryArray::from_iter_values(map.entries.values());
            (name.as_str(), slots, Arc::new(keys) as ArrayRef, Arc::new(values) as ArrayRef)
        })
    }

    /// Takes back what one column of [`States::save`] held; a state that is no longer declared is let go.
    pub fn load(&mut self, name: &str, slots: &[u32], column: &ArrayRef) -> Result<(), OperatorError> {
        let Some(at) = self.names.iter().position(|n| n == name) else { return Ok(()) };
        if self.values[at].load(slots, column) {
            return Ok(());
        }
        Err(OperatorError::new(format!(
            "the state '{name}' was of type {} when it was saved and is of another now; give it another name",
            column.data_type()
        )))
    }

    pub fn load_map(&mut self, name: &str, slots: &[u32], keys: &ArrayRef, values: &ArrayRef) {
        let Some(at) = self.map_names.iter().position(|n| n == name) else { return };
        let (keys, values) = (keys.as_binary::<i32>(), values.as_binary::<i32>());
        for (row, slot) in slots.iter().enumerate() {
            self.map_set(MapState { index: at }, *slot, keys.value(row), Some(values.value(row)));
        }
    }

    pub fn memory(&self) -> usize {
        let maps: usize = self.maps.iter().map(|m| m.bytes + m.counts.capacity() * 4).sum();
        self.values.iter().map(|v| v.memory()).sum::<usize>() + maps
    }
}
