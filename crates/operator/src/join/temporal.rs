//! Temporal joins: each left row with the version of its key that was valid at its time.
//!
//! The right input is a versioned table: each of its rows says what its key holds from its time on,
//! a deletion that it holds nothing from then on. A left row waits until the watermark of both inputs
//! has passed its time; then every version in time up to there has come, and the newest that is not
//! newer than the row is the one. So results depend on the input alone. Rows that are late by the
//! watermark of their own split are dropped, on either side. Of versions of one key and one time the one
//! that comes last is valid.
//!
//! Of the versions up to the watermark the newest of each key is kept, and nothing if that is a
//! deletion; so the state is a row a key, the versions ahead of the watermark, and the rows that wait.

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{take, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use tidemill_block::{Block, NO_WATERMARK, RowKind};
use tidemill_state::{KeyTable, Slots, StateTable};

use super::interval::{JoinSide, Residual};
use super::time_pairs::{block as new_block, only_inserts, with_key};
use super::time_rows::{NONE, TimeRows, saved};
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output, Progress};

/// How long rows are taken to wait, ms: sets the width of the buckets of time, nothing else.
const SPAN_MS: i64 = 60_000;

const LEFT: usize = 0;
const RIGHT: usize = 1;

/// What a temporal join computes.
#[derive(Clone)]
pub struct TemporalSpec {
    /// Left rows without a version are emitted with NULLs.
    pub outer: bool,
    /// The rows, and the versions; the time of a version is from when it is valid.
    pub sides: [JoinSide; 2],
    /// Types of the keys.
    pub key_types: Vec<DataType>,
    /// What else must hold.
    pub residual: Option<Residual>,
    /// Left columns, then right columns.
    pub schema: SchemaRef,
}

/// Joins rows with the versions valid at their time.
pub struct TemporalJoin {
    spec: TemporalSpec,
    table: KeyTable,
    /// Left rows, not linked by key.
    waiting: TimeRows,
    /// Waiting rows of each key.
    waits: Vec<u32>,
    /// Right rows; a deletion is marked.
    versions: TimeRows,
    /// Versions taken from the buckets, by id: the newest of its key up to the watermark, if any.
    current: Vec<u32>,
    /// Left rows that the watermark has passed, newest first.
    ready: Vec<u32>,
    /// The version found last for each key while `ready` is worked off.
    cursors: Vec<u32>,
    watermark: i64,
    scratch: Slots,
    ids: Vec<u32>,
    arrival_ns: u64,
    late_rows: u64,
}

impl TemporalJoin {
    /// A join by `spec`.
    ///
    /// # Errors
    /// Types that cannot be keys.
    pub fn new(spec: TemporalSpec) -> Result<Self, OperatorError> {
        Ok(TemporalJoin {
            table: KeyTable::new(spec.key_types.clone())?,
            waiting: TimeRows::new(spec.sides[LEFT].schema.clone(), false, SPAN_MS),
            waits: Vec::new(),
            versions: TimeRows::new(spec.sides[RIGHT].schema.clone(), true, SPAN_MS),
            current: Vec::new(),
            ready: Vec::new(),
            cursors: Vec::new(),
            watermark: NO_WATERMARK,
            scratch: Slots::default(),
            ids: Vec::new(),
            arrival_ns: 0,
            late_rows: 0,
            spec,
        })
    }

    /// The slots of keys; [`NONE`] for a key with a NULL, which no version has.
    fn slots(&mut self, keys: &[ArrayRef], rows: usize) -> Result<Vec<u32>, OperatorError> {
        let mut found = std::mem::take(&mut self.scratch);
        let slots = match with_key(keys) {
            None => {
                self.table.intern(keys, rows, &mut found)?;
                found.slots.clone()
            }
            Some(mask) => {
                let picks: Vec<u32> = (0..rows as u32).filter(|r| mask.value(*r as usize)).collect();
                let indices = UInt32Array::from(picks);
                let keys = keys.iter().map(|k| take(k, &indices, None)).collect::<Result<Vec<_>, _>>()?;
                self.table.intern(&keys, indices.len(), &mut found)?;
                let mut slots = vec![NONE; rows];
                indices.values().iter().zip(&found.slots).for_each(|(row, slot)| slots[*row as usize] = *slot);
                slots
            }
        };
        self.scratch = found;
        let capacity = self.table.capacity();
        self.waits.resize(capacity, 0);
        self.current.resize(capacity, NONE);
        self.cursors.resize(capacity, NONE);
        Ok(slots)
    }

    fn wait(&mut self, columns: &[ArrayRef], times: &[i64], slots: &[u32]) -> Result<(), OperatorError> {
        for slot in slots.iter().filter(|s| **s != NONE) {
            self.waits[*slot as usize] += 1;
        }
        self.waiting.add(columns, times, slots, &mut self.ids)
    }

    /// Keeps versions; `deleted` says which are deletions.
    fn keep(&mut self, columns: &[ArrayRef], times: &[i64], slots: &[u32], deleted: impl Fn(usize) -> bool) -> Result<(), OperatorError> {
        self.versions.add(columns, times, slots, &mut self.ids)?;
        for (row, id) in self.ids.iter().enumerate() {
            if deleted(row) {
                self.versions.mark(*id, true);
            }
        }
        Ok(())
    }

    /// Forgets a key of which nothing is left.
    fn release(&mut self, slot: u32) {
        if self.waits[slot as usize] == 0 && self.versions.newest(slot) == NONE {
            self.table.remove(slot);
        }
    }

    /// The version valid for a left row. Rows are asked for in order of time.
    fn version(&mut self, id: u32) -> u32 {
        let slot = self.waiting.slot(id);
        if slot == NONE {
            return NONE;
        }
        let time = self.waiting.time(id);
        let found = match self.cursors[slot as usize] {
            NONE => self.versions.at(slot, time),
            cursor => self.versions.forward(cursor, time),
        };
        self.cursors[slot as usize] = found;
        if found != NONE && self.versions.marked(found) { NONE } else { found }
    }

    /// Joins left rows, given in order of time, and forgets them.
    fn join(&mut self, rows: &[u32], out: &mut Output) -> Result<(), OperatorError> {
        let mut versions: Vec<u32> = rows.iter().map(|id| self.version(*id)).collect();
        if let Some(residual) = &self.spec.residual {
            let pairs: Vec<usize> = (0..rows.len()).filter(|i| versions[*i] != NONE).collect();
            let left = self.waiting.places(&pairs.iter().map(|i| rows[*i]).collect::<Vec<_>>());
            let right = self.versions.places(&pairs.iter().map(|i| versions[*i]).collect::<Vec<_>>());
            let (waiting, kept) = (&self.waiting, &self.versions);
            let width = self.spec.sides[LEFT].schema.fields().len();
            let passing = residual.passing(pairs.len(), |column| {
                if column < width { waiting.column(&left, column) } else { kept.column(&right, column - width) }
            })?;
            for (pair, passes) in pairs.into_iter().zip(passing) {
                if !passes {
                    versions[pair] = NONE;
                }
            }
        }
        let (left, right): (Vec<u32>, Vec<u32>) =
            rows.iter().zip(&versions).filter(|(_, v)| self.spec.outer || **v != NONE).map(|(row, version)| (*row, *version)).unzip();
        if !left.is_empty() {
            let places = self.waiting.places(&left);
            let mut columns = self.waiting.columns(&places)?;
            let places = self.versions.places(&right);
            columns.extend(self.versions.columns(&places)?);
            out.emit(new_block(&self.spec.schema, columns, left.len(), self.arrival_ns)?);
        }
        Ok(())
    }

    /// Forgets left rows that were joined.
    fn forget(&mut self, rows: &[u32]) -> Result<(), OperatorError> {
        for id in rows {
            let slot = self.waiting.slot(*id);
            self.waiting.remove(*id)?;
            if slot != NONE {
                self.cursors[slot as usize] = NONE;
                self.waits[slot as usize] -= 1;
                self.release(slot);
            }
        }
        Ok(())
    }

    /// Forgets the versions that no row to come can ask for: of each key those before the newest that
    /// the watermark has passed.
    fn expire(&mut self) -> Result<(), OperatorError> {
        let mut passed = Vec::new();
        self.versions.pass(self.watermark, &mut passed);
        let mut gone = Vec::new();
        for id in passed {
            let next = self.versions.newer(id);
            if next != NONE && self.versions.time(next) <= self.watermark {
                gone.push(id);
                continue;
            }
            let slot = self.versions.slot(id);
            let before = std::mem::replace(&mut self.current[slot as usize], NONE);
            if before != NONE {
                gone.push(before);
            }
            if self.versions.marked(id) {
                gone.push(id);
            } else {
                self.current[slot as usize] = id;
            }
        }
        for id in gone {
            let slot = self.versions.slot(id);
            if self.versions.remove(id)? {
                self.release(slot);
            }
        }
        Ok(())
    }
}

impl Operator for TemporalJoin {
    fn name(&self) -> &'static str {
        "TemporalJoin"
    }

    fn on_block(&mut self, input: usize, block: Block, _out: &mut Output) -> Result<(), OperatorError> {
        if input == LEFT {
            only_inserts(&block, "the left side of a temporal join")?;
        }
        self.arrival_ns = self.arrival_ns.max(block.arrival_ns);
        let (mut block, mut times) = self.spec.sides[input].in_time(block, self.watermark, &mut self.late_rows)?;
        if let Some(kinds) = &block.kinds
            && kinds.contains(&RowKind::UpdateBefore)
        {
            // What a key held until now is known.
            let keep: Vec<u32> = (0..times.len() as u32).filter(|r| kinds[*r as usize] != RowKind::UpdateBefore).collect();
            times = keep.iter().map(|r| times[*r as usize]).collect();
            block = block.take(&UInt32Array::from(keep))?;
        }
        let keys = self.spec.sides[input].keys(&block.batch)?;
        let mut slots = self.slots(&keys, times.len())?;
        if (input == RIGHT || !self.spec.outer) && slots.contains(&NONE) {
            // A key with a NULL in it equals nothing.
            let keep: Vec<u32> = (0..times.len() as u32).filter(|r| slots[*r as usize] != NONE).collect();
            times = keep.iter().map(|r| times[*r as usize]).collect();
            slots.retain(|s| *s != NONE);
            block = block.take(&UInt32Array::from(keep))?;
        }
        match input {
            LEFT => self.wait(block.batch.columns(), &times, &slots),
            _ => self.keep(block.batch.columns(), &times, &slots, |row| block.kind(row) == RowKind::Delete),
        }
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        if self.ready.is_empty() {
            self.watermark = self.watermark.max(watermark);
            self.waiting.pass(self.watermark, &mut self.ready);
            let waiting = &self.waiting;
            self.ready.sort_by_key(|id| std::cmp::Reverse(waiting.time(*id)));
        }
        if !self.ready.is_empty() {
            let mut rows = self.ready.split_off(self.ready.len().saturating_sub(BLOCK_ROWS_MAX));
            rows.reverse();
            self.join(&rows, out)?;
            self.forget(&rows)?;
        }
        if !self.ready.is_empty() {
            return Ok(Progress::More);
        }
        self.expire()?;
        Ok(Progress::Done)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        assert!(self.ready.is_empty(), "a barrier follows a watermark only when its output has left");
        let mut tables = self.waiting.save("left", |slot| self.table.hash(slot))?;
        tables.extend(self.versions.save("right", |slot| self.table.hash(slot))?);
        Ok(tables)
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            let side = match table.name.split(' ').next() {
                Some("left") => LEFT,
                Some("right") => RIGHT,
                _ => {
                    return Err(OperatorError::new(format!(
                        "the checkpoint has a state table '{}' that this version does not know",
                        table.name
                    )));
                }
            };
            let input = self.spec.sides[side].clone();
            let (columns, marks) = saved(&table, &input.schema)?;
            let times = input.times(&columns[input.time])?;
            // In order of time, those of one time in the order in which they came.
            let mut order: Vec<u32> = (0..times.len() as u32).collect();
            order.sort_by_key(|r| times[*r as usize]);
            let sorted: Vec<i64> = order.iter().map(|r| times[*r as usize]).collect();
            let deleted: Vec<bool> = order.iter().map(|r| marks[*r as usize]).collect();
            let batch = take_record_batch(&RecordBatch::try_new(input.schema.clone(), columns)?, &UInt32Array::from(order))?;
            let keys = input.keys(&batch)?;
            let slots = self.slots(&keys, batch.num_rows())?;
            match side {
                LEFT => self.wait(batch.columns(), &sorted, &slots)?,
                _ => self.keep(batch.columns(), &sorted, &slots, |row| deleted[row])?,
            }
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let memory = self.table.memory()
            + self.waiting.memory()
            + self.versions.memory()
            + (self.waits.capacity() + self.current.capacity() + self.cursors.capacity()) * 4;
        OperatorStats {
            entries: (self.waiting.len() + self.versions.len()) as u64,
            memory: memory as u64,
            late_rows: self.late_rows,
            ..OperatorStats::default()
        }
    }
}
