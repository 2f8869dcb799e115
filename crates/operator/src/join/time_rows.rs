//! Rows that are kept until event time has passed them: what joins in time remember.
//!
//! Rows stay in the columns they came in ([`Chunk`]); small ones are merged and thinned ones packed, so
//! a row that lives for long does not hold on to its neighbours. A row is known by a small number, its
//! id. By key, rows are linked in order of time; over all keys they lie in buckets of time, from which
//! those are taken that the watermark has passed. Not here: what a join does with them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array, new_null_array};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::SchemaRef;
use tidemill_state::{HASH_COLUMN, StateTable};

use crate::OperatorError;

/// No row, no key.
pub(super) const NONE: u32 = u32::MAX;

/// Chunks are merged up to so many rows: as many as a block has at most.
const CHUNK_ROWS: usize = 8192;
/// A chunk of at least so many rows is packed when a quarter of it is left.
const PACK_ROWS: usize = 64;
/// A key that has so many rows gets an index over them, and keeps it until it has a quarter of them.
const INDEX_ROWS: u32 = 64;
/// Rows in a table of a snapshot.
const SAVE_ROWS: usize = 65_536;

/// A kept row.
struct Kept {
    /// Its event time, ms.
    time: i64,
    /// Its key.
    slot: u32,
    /// Its neighbours of the same key.
    older: u32,
    newer: u32,
    /// Where its values lie.
    chunk: u32,
    row: u32,
    /// A mark of the join's own.
    marked: bool,
}

struct Chunk {
    columns: Vec<ArrayRef>,
    /// The id of each row; [`NONE`] if it is gone.
    ids: Vec<u32>,
    live: usize,
    bytes: usize,
}

impl Chunk {
    fn new(columns: Vec<ArrayRef>, ids: Vec<u32>) -> Self {
        let bytes = columns.iter().map(|c| c.get_buffer_memory_size()).sum();
        Chunk { live: ids.len(), columns, ids, bytes }
    }
}

/// The oldest and the newest row of a key, and how many it has.
#[derive(Clone, Copy)]
struct Ends {
    oldest: u32,
    newest: u32,
    count: u32,
}

const NO_ROWS: Ends = Ends { oldest: NONE, newest: NONE, count: 0 };

/// The rows of a key and their times, in order.
type Index = VecDeque<(i64, u32)>;

#[derive(Default)]
struct Bucket {
    ids: Vec<u32>,
    /// Descending by time.
    sorted: bool,
}

/// Where the values of some rows lie, worked out once for all columns.
pub(super) struct Places {
    chunks: Vec<u32>,
    /// (position in `chunks`, row); the position behind the last one is that of a NULL.
    places: Vec<(usize, usize)>,
    nulls: bool,
}

/// Kept rows of one input.
pub(super) struct TimeRows {
    schema: SchemaRef,
    /// Rows are linked by key.
    linked: bool,
    kept: Vec<Kept>,
    free: Vec<u32>,
    chunks: Vec<Option<Chunk>>,
    free_chunks: Vec<u32>,
    /// Chunks that may still be merged, each at least twice as large as the next.
    recent: Vec<u32>,
    ends: Vec<Ends>,
    /// By key, of those with many rows.
    indices: HashMap<u32, Index>,
    /// Rows by time / `width_ms`.
    due: BTreeMap<i64, Bucket>,
    width_ms: i64,
    /// For each chunk its position among those of a [`Places`] being made.
    positions: Vec<u32>,
    live: usize,
    bytes: usize,
}

impl TimeRows {
    /// Room for rows of `schema`, linked by key if `linked`; `span_ms` is about how long a row stays.
    pub fn new(schema: SchemaRef, linked: bool, span_ms: i64) -> Self {
        TimeRows {
            schema,
            linked,
            kept: Vec::new(),
            free: Vec::new(),
            chunks: Vec::new(),
            free_chunks: Vec::new(),
            recent: Vec::new(),
            ends: Vec::new(),
            indices: HashMap::new(),
            due: BTreeMap::new(),
            // A thousandth: few enough buckets to find one fast, and few enough rows in the bucket
            // that the watermark is passing to keep them sorted.
            width_ms: (span_ms / 1024).max(1),
            positions: Vec::new(),
            live: 0,
            bytes: 0,
        }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.bytes
            + self.kept.capacity() * size_of::<Kept>()
            + self.ends.capacity() * size_of::<Ends>()
            + self.indices.values().map(|index| index.capacity() * size_of::<(i64, u32)>()).sum::<usize>()
            // An id in its chunk and one in its bucket.
            + self.live * 8
            + self.free.capacity() * 4
    }

    /// The time of a row, ms.
    pub fn time(&self, id: u32) -> i64 {
        self.kept[id as usize].time
    }

    /// The key of a row.
    pub fn slot(&self, id: u32) -> u32 {
        self.kept[id as usize].slot
    }

    /// Whether a row is marked.
    pub fn marked(&self, id: u32) -> bool {
        self.kept[id as usize].marked
    }

    /// Marks a row or takes the mark away.
    pub fn mark(&mut self, id: u32, marked: bool) {
        self.kept[id as usize].marked = marked;
    }

    /// The newest row of a key, or [`NONE`].
    pub fn newest(&self, slot: u32) -> u32 {
        self.ends.get(slot as usize).map_or(NONE, |e| e.newest)
    }

    /// The row of the same key before this one in time, or [`NONE`].
    pub fn older(&self, id: u32) -> u32 {
        self.kept[id as usize].older
    }

    /// The row of the same key after this one in time, or [`NONE`].
    pub fn newer(&self, id: u32) -> u32 {
        self.kept[id as usize].newer
    }

    /// The ids of the rows of a key whose time lies in `low..=high`, into `out`.
    pub fn range(&self, slot: u32, low: i64, high: i64, mut out: impl FnMut(u32)) {
        let Ends { oldest, newest, count } = self.ends.get(slot as usize).copied().unwrap_or(NO_ROWS);
        if newest == NONE || low > high {
            return;
        }
        // From the end that lies nearer, so that a range in the past does not cost all that came since.
        let above = self.time(newest).saturating_sub(high);
        let below = low.saturating_sub(self.time(oldest));
        if let Some(index) = self.index(slot, count) {
            let (from, until) = (index.partition_point(|(t, _)| *t < low), index.partition_point(|(t, _)| *t <= high));
            let found = index.range(from..until).map(|(_, id)| *id);
            return if above <= below { found.rev().for_each(out) } else { found.for_each(out) };
        }
        if above <= below {
            let mut id = newest;
            while id != NONE {
                let row = &self.kept[id as usize];
                if row.time < low {
                    return;
                }
                if row.time <= high {
                    out(id);
                }
                id = row.older;
            }
        } else {
            let mut id = oldest;
            while id != NONE {
                let row = &self.kept[id as usize];
                if row.time > high {
                    return;
                }
                if row.time >= low {
                    out(id);
                }
                id = row.newer;
            }
        }
    }

    /// The index over the rows of a key that has `count`, if it is one of many.
    fn index(&self, slot: u32, count: u32) -> Option<&Index> {
        if count < INDEX_ROWS / 4 { None } else { self.indices.get(&slot) }
    }

    /// The last row of a key whose time is at most `time`, or [`NONE`]; the later arrival among rows
    /// of one time.
    pub fn at(&self, slot: u32, time: i64) -> u32 {
        let Ends { oldest, newest, count } = self.ends.get(slot as usize).copied().unwrap_or(NO_ROWS);
        if newest == NONE || self.time(oldest) > time {
            return NONE;
        }
        if let Some(index) = self.index(slot, count) {
            // The oldest is no later, so there is one before.
            return index[index.partition_point(|(t, _)| *t <= time) - 1].1;
        }
        if self.time(newest).saturating_sub(time) <= time.saturating_sub(self.time(oldest)) {
            let mut id = newest;
            while id != NONE && self.time(id) > time {
                id = self.older(id);
            }
            id
        } else {
            self.forward(oldest, time)
        }
    }

    /// The last row of `id`'s key from `id` on whose time is at most `time`.
    pub fn forward(&self, mut id: u32, time: i64) -> u32 {
        loop {
            let next = self.newer(id);
            if next == NONE || self.time(next) > time {
                return id;
            }
            id = next;
        }
    }

    /// Keeps rows; `times` and `slots` are those of the rows of `columns`. A slot [`NONE`] is that of
    /// a row without a key. The ids come into `ids`.
    ///
    /// # Errors
    /// None but from columns that cannot be put together.
    pub fn add(&mut self, columns: &[ArrayRef], times: &[i64], slots: &[u32], ids: &mut Vec<u32>) -> Result<(), OperatorError> {
        ids.clear();
        if times.is_empty() {
            return Ok(());
        }
        let chunk = self.free_chunks.pop().unwrap_or_else(|| {
            self.chunks.push(None);
            self.positions.push(NONE);
            (self.chunks.len() - 1) as u32
        });
        for (row, (&time, &slot)) in times.iter().zip(slots).enumerate() {
            let kept = Kept { time, slot, older: NONE, newer: NONE, chunk, row: row as u32, marked: false };
            let id = match self.free.pop() {
                Some(id) => {
                    self.kept[id as usize] = kept;
                    id
                }
                None => {
                    if self.kept.len() >= NONE as usize {
                        return Err(OperatorError::new("more than 4 billion rows are kept in one shard; raise the parallelism"));
                    }
                    self.kept.push(kept);
                    (self.kept.len() - 1) as u32
                }
            };
            ids.push(id);
            if self.linked && slot != NONE {
                self.link(id);
            }
        }
        // Neighbours are mostly of one bucket.
        let mut from = 0;
        while from < times.len() {
            let base = times[from].div_euclid(self.width_ms);
            let run = times[from..].iter().take_while(|t| t.div_euclid(self.width_ms) == base).count();
            let bucket = self.due.entry(base).or_default();
            bucket.ids.extend_from_slice(&ids[from..from + run]);
            bucket.sorted = false;
            from += run;
        }
        self.live += times.len();
        let new = Chunk::new(columns.to_vec(), ids.clone());
        self.bytes += new.bytes;
        self.chunks[chunk as usize] = Some(new);
        self.recent.push(chunk);
        self.merge()
    }

    fn link(&mut self, id: u32) {
        let Kept { time, slot, .. } = self.kept[id as usize];
        if self.ends.len() <= slot as usize {
            self.ends.resize(slot as usize + 1, NO_ROWS);
        }
        let Ends { newest, count, .. } = self.ends[slot as usize];
        let mut older = newest;
        let mut newer = NONE;
        let index = if count < INDEX_ROWS / 4 { None } else { self.indices.get_mut(&slot) };
        let indexed = index.is_some();
        if let Some(index) = index {
            let at = if self.kept[newest as usize].time <= time { index.len() } else { index.partition_point(|(t, _)| *t <= time) };
            older = if at == 0 { NONE } else { index[at - 1].1 };
            newer = index.get(at).map_or(NONE, |(_, id)| *id);
            index.insert(at, (time, id));
        }
        while older != NONE && self.kept[older as usize].time > time {
            newer = older;
            older = self.kept[older as usize].older;
        }
        self.ends[slot as usize].count = count + 1;
        self.kept[id as usize].older = older;
        self.kept[id as usize].newer = newer;
        match older {
            NONE => self.ends[slot as usize].oldest = id,
            older => self.kept[older as usize].newer = id,
        }
        match newer {
            NONE => self.ends[slot as usize].newest = id,
            newer => self.kept[newer as usize].older = id,
        }
        if !indexed && count + 1 >= INDEX_ROWS {
            let mut index = Index::with_capacity(2 * INDEX_ROWS as usize);
            let mut id = self.ends[slot as usize].oldest;
            while id != NONE {
                index.push_back((self.kept[id as usize].time, id));
                id = self.kept[id as usize].newer;
            }
            self.indices.insert(slot, index);
        }
    }

    /// Takes a row out of the index of its key, if there is one.
    fn unindex(&mut self, slot: u32, time: i64, id: u32) {
        let count = &mut self.ends[slot as usize].count;
        *count -= 1;
        if *count + 1 < INDEX_ROWS / 4 {
            return;
        }
        if *count < INDEX_ROWS / 4 {
            self.indices.remove(&slot);
        } else if let Some(index) = self.indices.get_mut(&slot) {
            let mut at = index.partition_point(|(t, _)| *t < time);
            while index[at].1 != id {
                at += 1;
            }
            index.remove(at);
        }
    }

    /// Merges the newest chunks as long as they are of like size and small.
    fn merge(&mut self) -> Result<(), OperatorError> {
        while let [.., a, b] = *self.recent.as_slice() {
            let rows = |c: u32| self.chunks[c as usize].as_ref().map_or(0, |c| c.ids.len());
            if rows(a) + rows(b) > CHUNK_ROWS {
                self.recent.remove(self.recent.len() - 2);
                continue;
            }
            if rows(b) * 2 < rows(a) {
                return Ok(());
            }
            self.recent.pop();
            let (first, second) = (self.take_chunk(a), self.take_chunk(b));
            let columns =
                first.columns.iter().zip(&second.columns).map(|(x, y)| concat(&[x.as_ref(), y.as_ref()])).collect::<Result<Vec<_>, _>>()?;
            let ids = first.ids.iter().chain(&second.ids).copied().collect();
            self.free_chunks.push(b);
            self.put_chunk(a, columns, ids, first.live + second.live);
        }
        Ok(())
    }

    fn take_chunk(&mut self, chunk: u32) -> Chunk {
        let taken = self.chunks[chunk as usize].take().expect("a chunk in use");
        self.bytes -= taken.bytes;
        taken
    }

    /// Puts merged or packed rows in the place `chunk`.
    fn put_chunk(&mut self, chunk: u32, columns: Vec<ArrayRef>, ids: Vec<u32>, live: usize) {
        for (row, id) in ids.iter().enumerate().filter(|(_, id)| **id != NONE) {
            let kept = &mut self.kept[*id as usize];
            (kept.chunk, kept.row) = (chunk, row as u32);
        }
        let new = Chunk { live, ..Chunk::new(columns, ids) };
        self.bytes += new.bytes;
        self.chunks[chunk as usize] = Some(new);
    }

    /// Takes the rows whose time is at most `limit` out of the buckets, into `out`; they stay kept
    /// until they are removed.
    pub fn pass(&mut self, limit: i64, out: &mut Vec<u32>) {
        while let Some(mut entry) = self.due.first_entry() {
            let from = entry.key().saturating_mul(self.width_ms);
            if from > limit {
                return;
            }
            if from.saturating_add(self.width_ms - 1) <= limit {
                out.extend(entry.remove().ids);
                continue;
            }
            let bucket = entry.get_mut();
            let kept = &self.kept;
            if !bucket.sorted {
                bucket.ids.sort_by_key(|id| Reverse(kept[*id as usize].time));
                bucket.sorted = true;
            }
            while let Some(id) = bucket.ids.pop_if(|id| kept[*id as usize].time <= limit) {
                out.push(id);
            }
            if bucket.ids.is_empty() {
                entry.remove();
            }
            return;
        }
    }

    /// Forgets a row, which must have been taken by [`TimeRows::pass`]. Answers whether it was the
    /// last of its key; always, if rows are not linked.
    ///
    /// # Errors
    /// None but from columns that cannot be copied.
    pub fn remove(&mut self, id: u32) -> Result<bool, OperatorError> {
        let Kept { time, slot, older, newer, chunk, row, .. } = self.kept[id as usize];
        if self.linked && slot != NONE {
            self.unindex(slot, time, id);
            match older {
                NONE => self.ends[slot as usize].oldest = newer,
                older => self.kept[older as usize].newer = newer,
            }
            match newer {
                NONE => self.ends[slot as usize].newest = older,
                newer => self.kept[newer as usize].older = older,
            }
        }
        self.free.push(id);
        self.live -= 1;
        let held = self.chunks[chunk as usize].as_mut().expect("a chunk in use");
        held.ids[row as usize] = NONE;
        held.live -= 1;
        let (live, rows) = (held.live, held.ids.len());
        if live == 0 {
            self.take_chunk(chunk);
            self.free_chunks.push(chunk);
            self.recent.retain(|c| *c != chunk);
        } else if rows >= PACK_ROWS && live * 4 <= rows {
            self.pack(chunk)?;
        }
        if self.live == 0 {
            self.kept.clear();
            self.free.clear();
            if self.kept.capacity() > SAVE_ROWS {
                // A burst leaves its room behind; it is given back when it is over.
                (self.kept, self.free) = (Vec::new(), Vec::new());
            }
        }
        Ok(older == NONE && newer == NONE)
    }

    /// Copies the rows that are left of a chunk.
    fn pack(&mut self, chunk: u32) -> Result<(), OperatorError> {
        let old = self.take_chunk(chunk);
        let rows: UInt32Array = (0..old.ids.len() as u32).filter(|r| old.ids[*r as usize] != NONE).collect();
        let columns = old.columns.iter().map(|c| take(c, &rows, None)).collect::<Result<Vec<_>, _>>()?;
        let ids = old.ids.into_iter().filter(|id| *id != NONE).collect();
        self.put_chunk(chunk, columns, ids, old.live);
        Ok(())
    }

    /// Where the values of the rows `ids` lie; [`NONE`] stands for a row of NULLs.
    pub fn places(&mut self, ids: &[u32]) -> Places {
        let mut chunks: Vec<u32> = Vec::new();
        let mut places = Vec::with_capacity(ids.len());
        let mut nulls = false;
        for id in ids {
            if *id == NONE {
                nulls = true;
                places.push((usize::MAX, 0));
                continue;
            }
            let Kept { chunk, row, .. } = self.kept[*id as usize];
            let position = &mut self.positions[chunk as usize];
            if *position == NONE {
                *position = chunks.len() as u32;
                chunks.push(chunk);
            }
            places.push((*position as usize, row as usize));
        }
        if nulls {
            places.iter_mut().filter(|(p, _)| *p == usize::MAX).for_each(|(p, _)| *p = chunks.len());
        }
        chunks.iter().for_each(|c| self.positions[*c as usize] = NONE);
        Places { chunks, places, nulls }
    }

    /// Column `index` of the rows at `places`.
    ///
    /// # Errors
    /// More text than a column can hold.
    pub fn column(&self, places: &Places, index: usize) -> Result<ArrayRef, OperatorError> {
        let null;
        let mut sources: Vec<&dyn Array> =
            places.chunks.iter().map(|c| self.chunks[*c as usize].as_ref().expect("a chunk in use").columns[index].as_ref()).collect();
        if places.nulls || sources.is_empty() {
            null = new_null_array(self.schema.field(index).data_type(), 1);
            sources.push(null.as_ref());
        }
        Ok(interleave(&sources, &places.places)?)
    }

    /// All columns of the rows at `places`.
    ///
    /// # Errors
    /// As [`TimeRows::column`].
    pub fn columns(&self, places: &Places) -> Result<Vec<ArrayRef>, OperatorError> {
        (0..self.schema.fields().len()).map(|i| self.column(places, i)).collect()
    }

    /// Ids of all rows; those of a key in order.
    fn ids(&self) -> Vec<u32> {
        if !self.linked {
            return self.chunks.iter().flatten().flat_map(|c| &c.ids).copied().filter(|id| *id != NONE).collect();
        }
        let mut ids = Vec::with_capacity(self.live);
        for ends in &self.ends {
            let mut id = ends.oldest;
            while id != NONE {
                ids.push(id);
                id = self.newer(id);
            }
        }
        ids
    }

    /// The rows as tables of a snapshot: the columns, then the mark. `hash` is that of a key.
    ///
    /// # Errors
    /// As [`TimeRows::column`].
    pub fn save(&mut self, name: &str, hash: impl Fn(u32) -> u64) -> Result<Vec<StateTable>, OperatorError> {
        let mut tables = Vec::new();
        for (number, ids) in self.ids().chunks(SAVE_ROWS).enumerate() {
            let places = self.places(ids);
            let mut columns = self.columns(&places)?;
            columns.push(Arc::new(ids.iter().map(|id| Some(self.marked(*id))).collect::<BooleanArray>()));
            let hashes = ids.iter().map(|id| if self.slot(*id) == NONE { 0 } else { hash(self.slot(*id)) }).collect();
            tables.push(StateTable::keyed(format!("{name} {number}"), hashes, columns)?);
        }
        Ok(tables)
    }
}

/// The columns of a saved table and the marks of its rows.
///
/// # Errors
/// A table that [`TimeRows::save`] did not write.
pub(super) fn saved(table: &StateTable, schema: &SchemaRef) -> Result<(Vec<ArrayRef>, Vec<bool>), OperatorError> {
    let fits = table.batch.schema().fields().first().is_some_and(|f| f.name() == HASH_COLUMN)
        && table.columns().len() == schema.fields().len() + 1
        && table.columns().iter().zip(schema.fields()).all(|(c, f)| c.data_type() == f.data_type());
    if !fits {
        return Err(OperatorError::new(format!("the checkpoint's state table '{}' does not have the columns of this join", table.name)));
    }
    let (marks, columns) = table.columns().split_last().expect("at least the marks");
    let marks = marks.as_boolean();
    Ok((columns.to_vec(), (0..marks.len()).map(|r| marks.value(r)).collect()))
}

#[cfg(test)]
mod tests;
