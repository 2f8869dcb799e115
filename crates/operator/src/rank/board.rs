//! The rows of each key in order of rank: all of them if rows may be taken back, else those that can
//! still have a rank that is wanted.

use std::cmp::Ordering;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, Rows, SortField};
use tidemill_block::Block;
use tidemill_state::{KeyTable, Slots, StateTable};

use super::list::{Item, Place, SortedList};
use super::store::{Bytes, RowStore};
use super::{RankFunction, RankSpec, Ties, head};
use crate::OperatorError;

/// Rows by key and rank.
pub(super) struct Board {
    pub table: KeyTable,
    lists: Vec<SortedList>,
    /// By slot: no row that sorts behind the last can get a rank that is wanted.
    full: Vec<bool>,
    /// By slot: the head of the last row if the slot is full, else the largest number. Turns most rows
    /// away without a look at their list.
    worst: Vec<u64>,
    entries: Entries,
    scratch: Slots,
    key: Vec<u8>,
}

/// Rows by number: sort keys, and columns.
struct Entries {
    order: RowConverter,
    /// For [`Ties::Contents`]: all columns. The row stands behind its sort key, is part of it, and
    /// nothing else is kept of it.
    contents: Option<RowConverter>,
    keys: Bytes,
    /// Length of the sort key proper, without the contents.
    order_lengths: Vec<u32>,
    rows: RowStore,
    free: Vec<u32>,
    next: u32,
    /// Rows that have left but may be yet to be emitted.
    dead: Vec<u32>,
    /// Rows that came and whose columns are yet to be stored: numbers, and rows of the block.
    fresh_ids: Vec<u32>,
    fresh_rows: Vec<u32>,
}

/// A block that is to be entered.
pub(super) struct Offer {
    order: Rows,
    contents: Option<Rows>,
    /// The rows that may be worth entering.
    pub candidates: Vec<u32>,
    columns: Vec<ArrayRef>,
}

impl Board {
    /// An empty board.
    ///
    /// # Errors
    /// A type that cannot be a key, sorted by, or kept.
    pub fn new(spec: &RankSpec) -> Result<Self, OperatorError> {
        let sorted = spec.order.iter().zip(&spec.order_types);
        let order = sorted.map(|((_, options), t)| SortField::new_with_options(t.clone(), *options)).collect();
        let types: Vec<&DataType> = spec.input.fields().iter().map(|f| f.data_type()).collect();
        let by_contents = spec.ties == Ties::Contents;
        let contents = by_contents.then(|| RowConverter::new(types.iter().map(|t| SortField::new((*t).clone())).collect()));
        let entries = Entries {
            order: RowConverter::new(order)?,
            contents: contents.transpose()?,
            keys: Bytes::default(),
            order_lengths: Vec::new(),
            rows: RowStore::new(types.into_iter().filter(|_| !by_contents))?,
            free: Vec::new(),
            next: 0,
            dead: Vec::new(),
            fresh_ids: Vec::new(),
            fresh_rows: Vec::new(),
        };
        Ok(Board {
            table: KeyTable::new(spec.key_types.clone())?,
            lists: Vec::new(),
            full: Vec::new(),
            worst: Vec::new(),
            entries,
            scratch: Slots::default(),
            key: Vec::new(),
        })
    }

    /// Finds the slots of a block's rows and which of them may be worth entering.
    ///
    /// # Errors
    /// A value that a key cannot compute.
    pub fn offer(&mut self, spec: &RankSpec, block: &Block) -> Result<Offer, OperatorError> {
        self.intern(spec, block)?;
        let order = self.entries.order.convert_columns(&spec.evaluate(block, spec.order.iter().map(|(e, _)| e))?)?;
        let rows = block.rows() as u32;
        let candidates: Vec<u32> = if spec.retracts {
            (0..rows).collect()
        } else {
            let worth = |row: &u32| head(order.row(*row as usize).data()) <= self.worst[self.scratch.slots[*row as usize] as usize];
            (0..rows).filter(worth).collect()
        };
        let contents = match &self.entries.contents {
            None => None,
            Some(converter) if candidates.len() == block.rows() => Some(converter.convert_columns(block.batch.columns())?),
            Some(converter) => {
                let batch = take_record_batch(&block.batch, &UInt32Array::from(candidates.clone()))?;
                Some(converter.convert_columns(batch.columns())?)
            }
        };
        Ok(Offer { order, contents, candidates, columns: block.batch.columns().to_vec() })
    }

    fn intern(&mut self, spec: &RankSpec, block: &Block) -> Result<(), OperatorError> {
        let keys = spec.evaluate(block, spec.keys.iter())?;
        self.table.intern(&keys, block.rows(), &mut self.scratch)?;
        let slots = self.table.capacity();
        if self.lists.len() < slots {
            self.lists.resize_with(slots, SortedList::default);
            self.full.resize(slots, false);
            self.worst.resize(slots, u64::MAX);
        }
        Ok(())
    }

    /// The slot of a row of the block that was offered last.
    #[inline]
    pub fn slot(&self, row: u32) -> u32 {
        self.scratch.slots[row as usize]
    }

    /// The rows of a slot.
    #[inline]
    pub fn list(&self, slot: u32) -> &SortedList {
        &self.lists[slot as usize]
    }

    /// Writes the key of the `n`th candidate to `self.key`; gives the length of its sort key proper.
    fn read_key(&mut self, offer: &Offer, n: usize) -> usize {
        let order = offer.order.row(offer.candidates[n] as usize).data();
        self.key.clear();
        self.key.extend_from_slice(order);
        if let Some(contents) = &offer.contents {
            self.key.extend_from_slice(contents.row(n).data());
        }
        order.len()
    }

    /// Enters the `n`th candidate into its slot; `None` if no rank that is wanted can come of it. Does
    /// not cut the list.
    pub fn enter(&mut self, spec: &RankSpec, offer: &Offer, n: usize) -> Option<Place> {
        let row = offer.candidates[n];
        let slot = self.slot(row) as usize;
        let length = self.read_key(offer, n);
        let (head, key) = (head(&self.key[..length]), self.key.as_slice());
        let list = &self.lists[slot];
        if self.full[slot] {
            let last = list.last().expect("a full list has rows");
            let beyond = match spec.function {
                RankFunction::RowNumber => match self.entries.compare(head, key, last) {
                    Ordering::Less => false,
                    Ordering::Equal => spec.ties != Ties::Last,
                    Ordering::Greater => true,
                },
                // Rows that sort like the last share its rank.
                _ => head > last.head || (head == last.head && key[..length] > *self.entries.order_key(last.id)),
            };
            if beyond {
                return None;
            }
        }
        let place = list.find(|item| match self.entries.compare(head, key, item) {
            Ordering::Less => false,
            Ordering::Equal => spec.ties != Ties::Last,
            Ordering::Greater => true,
        });
        let id = self.entries.add(&self.key, length);
        if self.entries.contents.is_none() {
            self.entries.fresh_ids.push(id);
            self.entries.fresh_rows.push(row);
        }
        self.lists[slot].insert(place, Item { head, id });
        Some(place)
    }

    /// Where a row stands whose columns are those of the `n`th candidate; `None` if there is none.
    pub fn find(&mut self, offer: &Offer, n: usize) -> Option<Place> {
        let length = self.read_key(offer, n);
        let (head, key) = (head(&self.key[..length]), self.key.as_slice());
        let list = &self.lists[self.slot(offer.candidates[n]) as usize];
        let place = list.find(|item| self.entries.compare(head, key, item) == Ordering::Greater);
        let found = list.at(place)?;
        (self.entries.compare(head, key, found) == Ordering::Equal).then_some(place)
    }

    /// Takes the row at a place out; it can still be emitted until [`Board::settle`].
    pub fn remove(&mut self, slot: u32, place: Place) {
        let item = self.lists[slot as usize].remove(place);
        self.entries.dead.push(item.id);
    }

    /// Cuts off the rows of a slot that can no longer get a rank that is wanted. Only where rows are
    /// never taken back.
    pub fn cut(&mut self, spec: &RankSpec, slot: u32) {
        let at = slot as usize;
        let list = &self.lists[at];
        let (kept, full) = match spec.function {
            RankFunction::RowNumber => (list.len().min(spec.to as usize), list.len() as u64 >= spec.to),
            _ => {
                let (mut kept, mut last) = (0, 0);
                self.each_rank(spec, slot, |_, rank| {
                    kept += 1;
                    last = rank;
                });
                (kept, if spec.function == RankFunction::Rank { kept as u64 >= spec.to } else { last == spec.to })
            }
        };
        let list = &mut self.lists[at];
        while list.len() > kept {
            let item = list.pop().expect("longer than what is kept");
            self.entries.dead.push(item.id);
        }
        self.full[at] = full;
        if full {
            self.worst[at] = list.last().expect("a full list has rows").head;
        }
    }

    /// The rows of a slot and their ranks, in order, up to the last rank that is wanted.
    pub fn each_rank(&self, spec: &RankSpec, slot: u32, mut each: impl FnMut(u32, u64)) {
        let (mut rank, mut before): (u64, Option<Item>) = (0, None);
        for (position, item) in (1..).zip(self.lists[slot as usize].iter()) {
            let alike = spec.function != RankFunction::RowNumber && before.is_some_and(|b| self.entries.alike(b, item));
            match spec.function {
                RankFunction::DenseRank => rank += u64::from(!alike),
                _ if !alike => rank = position,
                _ => {}
            }
            if rank > spec.to {
                return;
            }
            each(item.id, rank);
            before = Some(item);
        }
    }

    /// Adds the rows of a slot whose rank is wanted, with their ranks.
    pub fn wanted(&self, spec: &RankSpec, slot: u32, out: &mut Vec<(u32, u64)>) {
        if spec.function == RankFunction::RowNumber {
            let first = (spec.from - 1) as usize;
            let count = (spec.to - spec.from + 1) as usize;
            out.extend((spec.from..).zip(self.lists[slot as usize].rows_from(first).take(count)).map(|(rank, item)| (item.id, rank)));
        } else {
            self.each_rank(spec, slot, |id, rank| {
                if rank >= spec.from {
                    out.push((id, rank));
                }
            });
        }
    }

    /// Whether two rows are known to have the same columns.
    pub fn same(&self, a: u32, b: u32) -> bool {
        a == b || (self.entries.contents.is_some() && self.entries.keys.get(a) == self.entries.keys.get(b))
    }

    /// Stores the columns of the rows that were entered since the last call. Must be called before
    /// they are read.
    ///
    /// # Errors
    /// Columns of other types.
    pub fn store(&mut self, offer: &Offer) -> Result<(), OperatorError> {
        let Entries { rows, fresh_ids, fresh_rows, .. } = &mut self.entries;
        rows.put(fresh_ids, fresh_rows, &offer.columns)?;
        fresh_ids.clear();
        fresh_rows.clear();
        Ok(())
    }

    /// The input's columns of rows by number.
    ///
    /// # Errors
    /// None that rows entered can cause.
    pub fn columns(&self, ids: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        let entries = &self.entries;
        let Some(converter) = &entries.contents else { return entries.rows.get(ids) };
        let parser = converter.parser();
        let contents = |id: u32| &entries.keys.get(id)[entries.order_lengths[id as usize] as usize..];
        Ok(converter.convert_rows(ids.iter().map(|id| parser.parse(contents(*id))))?)
    }

    /// Gives the numbers of rows that have left to others, and forgets the keys of `slots` that have
    /// no rows.
    pub fn settle(&mut self, slots: &mut Vec<u32>) {
        self.entries.free.append(&mut self.entries.dead);
        slots.sort_unstable();
        slots.dedup();
        for slot in slots.drain(..) {
            if self.lists[slot as usize].is_empty() {
                self.lists[slot as usize] = SortedList::default();
                self.full[slot as usize] = false;
                self.worst[slot as usize] = u64::MAX;
                self.table.remove(slot);
            }
        }
    }

    /// All rows, those of a key together and in order.
    ///
    /// # Errors
    /// State that cannot be expressed as columns.
    pub fn save(&self, name: impl Into<String>) -> Result<StateTable, OperatorError> {
        let (mut hashes, mut ids) = (Vec::new(), Vec::new());
        for slot in self.table.slots() {
            ids.extend(self.lists[slot as usize].iter().map(|item| item.id));
            hashes.resize(ids.len(), self.table.hash(slot));
        }
        Ok(StateTable::keyed(name, hashes, self.columns(&ids)?)?)
    }

    /// Takes back what [`Board::save`] gave.
    ///
    /// # Errors
    /// State of another shape.
    pub fn load(&mut self, spec: &RankSpec, table: &StateTable) -> Result<(), OperatorError> {
        let block = spec.block(table.columns())?;
        self.intern(spec, &block)?;
        let offer = Offer {
            order: self.entries.order.convert_columns(&spec.evaluate(&block, spec.order.iter().map(|(e, _)| e))?)?,
            contents: self.entries.contents.as_ref().map(|c| c.convert_columns(block.batch.columns())).transpose()?,
            candidates: (0..block.rows() as u32).collect(),
            columns: block.batch.columns().to_vec(),
        };
        for n in 0..block.rows() {
            let length = self.read_key(&offer, n);
            let id = self.entries.add(&self.key, length);
            if self.entries.contents.is_none() {
                self.entries.fresh_ids.push(id);
                self.entries.fresh_rows.push(n as u32);
            }
            // They come in order.
            self.lists[self.scratch.slots[n] as usize].push(Item { head: head(&self.key[..length]), id });
        }
        self.store(&offer)?;
        if !spec.retracts {
            for slot in self.table.slots() {
                self.cut(spec, slot);
            }
        }
        Ok(())
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.entries.next as usize - self.entries.free.len() - self.entries.dead.len()
    }

    /// One more than the largest number of a row.
    pub fn capacity(&self) -> usize {
        self.entries.next as usize
    }

    /// Bytes of memory, of the lists an estimate.
    pub fn memory(&self) -> usize {
        let entries = &self.entries;
        let lists = self.lists.capacity() * size_of::<SortedList>() + self.rows() * size_of::<Item>() * 3 / 2;
        let rows = entries.keys.memory() + entries.rows.memory() + entries.order_lengths.capacity() * 4 + entries.free.capacity() * 4;
        self.table.memory() + lists + rows + self.full.capacity() + self.worst.capacity() * 8
    }
}

impl Entries {
    fn add(&mut self, key: &[u8], order_length: usize) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.keys.put(id, key);
        if self.order_lengths.len() <= id as usize {
            self.order_lengths.resize(id as usize + 1, 0);
        }
        self.order_lengths[id as usize] = order_length as u32;
        id
    }

    /// How a key stands to that of a row.
    #[inline]
    fn compare(&self, head: u64, key: &[u8], item: Item) -> Ordering {
        head.cmp(&item.head).then_with(|| key.cmp(self.keys.get(item.id)))
    }

    fn order_key(&self, id: u32) -> &[u8] {
        &self.keys.get(id)[..self.order_lengths[id as usize] as usize]
    }

    /// Whether two rows sort alike.
    fn alike(&self, a: Item, b: Item) -> bool {
        a.head == b.head && self.order_key(a.id) == self.order_key(b.id)
    }
}
