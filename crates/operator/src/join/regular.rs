//! Joins of changelogs: every row is kept, by key, until it is taken back or expires.
//!
//! A block meets the other side's rows only, so its rows do not see one another; what they change of
//! the other side (which rows have a match) is followed row by row. Where the keys are the whole
//! condition, whether a row has a match is a property of its key: it has one as long as the other
//! side has rows of that key. With a further condition, or when rows expire, each row whose matches
//! matter counts them.
//!
//! The changes are those of Flink's stream join operator: a row that was shown beside NULLs is taken
//! back when its first match comes, and shown again when the last one leaves.

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use tidemill_block::{Block, RowKind};
use tidemill_state::{KeyTable, Slots, StateTable};

use super::residual::Residual;
use super::side::{Side, SideOptions};
use super::store::{NO_ROW, RowStore, column_data};
use super::{Expiry, JoinKind, evaluate, stats};
use crate::map::Expr;
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output, Progress};

/// In place of a slot: the row's key is NULL and matches nothing.
const NO_SLOT: u32 = u32::MAX;
/// Names of the sides in a checkpoint.
const NAMES: [&str; 2] = ["left", "right"];

/// What a regular join does.
#[derive(Clone)]
pub struct JoinSpec {
    /// Which rows come out.
    pub kind: JoinKind,
    /// For each side the expressions of its key; none for a join without equalities, which must then
    /// run in one shard.
    pub keys: [Vec<Expr>; 2],
    /// Types of the keys, the same on both sides.
    pub key_types: Vec<DataType>,
    /// Schemas of the inputs.
    pub inputs: [SchemaRef; 2],
    /// Which inputs take rows back.
    pub updating: [bool; 2],
    /// What pairs must satisfy beyond equal keys, over the left columns, then the right ones.
    pub residual: Option<Expr>,
    /// NULL keys equal one another (`IS NOT DISTINCT FROM`).
    pub null_equal: bool,
    /// Rows that have not changed for so long (ms of processing time) are dropped.
    pub ttl_ms: Option<i64>,
    /// What comes out.
    pub schema: SchemaRef,
}

/// A join of two changelogs.
pub struct Join {
    spec: JoinSpec,
    residual: Option<Residual>,
    /// Rows count their matches themselves.
    by_row: bool,
    /// Which sides keep rows; of the others it matters only how many rows a key has.
    keeps: [bool; 2],
    table: KeyTable,
    sides: [Side; 2],
    scratch: Slots,
    /// The slot of each row of the block.
    slots: Vec<u32>,
    changes: Changes,
    candidates: Candidates,
    expiry: Expiry,
    unknown: u64,
}

/// Pairs that have equal keys, of some rows of a block.
#[derive(Default)]
struct Candidates {
    own: Vec<u32>,
    other: Vec<u32>,
    /// Where each row's candidates end.
    ends: Vec<usize>,
}

/// Output rows gathered.
#[derive(Default)]
struct Changes {
    adds: Vec<bool>,
    /// Row of the block, or [`NO_ROW`].
    own: Vec<u32>,
    /// Row of the other side, or [`NO_ROW`].
    other: Vec<u32>,
    marks: Vec<bool>,
}

impl Changes {
    #[inline]
    fn push(&mut self, adds: bool, own: u32, other: u32, mark: bool) {
        self.adds.push(adds);
        self.own.push(own);
        self.other.push(other);
        self.marks.push(mark);
    }

    fn full(&self) -> bool {
        self.own.len() >= BLOCK_ROWS_MAX
    }

    /// Emits what was gathered for `block`, which came from input `input`; `store` holds the other side.
    fn flush(&mut self, spec: &JoinSpec, input: usize, block: &Block, store: &RowStore, out: &mut Output) -> Result<(), OperatorError> {
        let rows = self.own.len();
        if rows == 0 {
            return Ok(());
        }
        let own = || self.own_columns(block);
        let other = || store.take(&self.other);
        let mut columns: Vec<ArrayRef> = match spec.kind.side() {
            None if input == 0 => own()?.into_iter().chain(other()?).collect(),
            None => other()?.into_iter().chain(own()?).collect(),
            Some(side) if side == input => own()?,
            Some(_) => other()?,
        };
        if matches!(spec.kind, JoinKind::Mark(_)) {
            columns.push(Arc::new(BooleanArray::new(BooleanBuffer::from(self.marks.as_slice()), None)));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(spec.schema.clone(), columns, &options)?;
        out.emit(if self.adds.iter().all(|a| *a) {
            Block::inserts(batch, block.arrival_ns)
        } else {
            let kinds: Vec<RowKind> = self.adds.iter().map(|a| if *a { RowKind::Insert } else { RowKind::Delete }).collect();
            Block::changelog(batch, kinds.into(), block.arrival_ns)
        });
        self.adds.clear();
        self.own.clear();
        self.other.clear();
        self.marks.clear();
        Ok(())
    }

    fn own_columns(&self, block: &Block) -> Result<Vec<ArrayRef>, arrow::error::ArrowError> {
        if self.own.len() == block.rows() && self.own.iter().enumerate().all(|(i, row)| *row as usize == i) {
            return Ok(block.batch.columns().to_vec());
        }
        let rows: UInt32Array = if self.own.contains(&NO_ROW) {
            self.own.iter().map(|row| (*row != NO_ROW).then_some(*row)).collect()
        } else {
            UInt32Array::from(self.own.clone())
        };
        block.batch.columns().iter().map(|c| take(c, &rows, None)).collect()
    }
}

/// The side of an input and the other one.
fn split(sides: &mut [Side; 2], input: usize) -> (&mut Side, &mut Side) {
    let [left, right] = sides;
    if input == 0 { (left, right) } else { (right, left) }
}

impl Join {
    /// A join as `spec` says.
    ///
    /// # Errors
    /// A key type that cannot be a key.
    pub fn new(spec: JoinSpec) -> Result<Self, OperatorError> {
        let by_row = spec.residual.is_some() || spec.ttl_ms.is_some();
        let keeps = [0, 1].map(|side| by_row || spec.kind.side().is_none_or(|s| s == side));
        let side = |side: usize| {
            let types = spec.inputs[side].fields().iter().map(|f| f.data_type().clone()).collect();
            let options = SideOptions {
                counted: keeps[side] && spec.updating[side],
                matches: by_row && spec.kind.depends(side),
                expires: spec.ttl_ms.is_some(),
            };
            Side::new(types, options)
        };
        Ok(Join {
            residual: spec.residual.clone().map(|e| Residual::new(e, &spec.inputs)).transpose()?,
            by_row,
            keeps,
            table: KeyTable::new(spec.key_types.clone())?,
            sides: [side(0)?, side(1)?],
            scratch: Slots::default(),
            slots: Vec::new(),
            changes: Changes::default(),
            candidates: Candidates::default(),
            expiry: Expiry::new(spec.ttl_ms),
            unknown: 0,
            spec,
        })
    }

    /// Finds the slot of each row's key.
    fn find_slots(&mut self, keys: &[ArrayRef], rows: usize) -> Result<(), OperatorError> {
        let nulls = match self.spec.null_equal {
            true => None,
            false => keys.iter().fold(None, |all, key| NullBuffer::union(all.as_ref(), key.logical_nulls().as_ref())),
        };
        match nulls.filter(|n| n.null_count() > 0) {
            None => {
                self.table.intern(keys, rows, &mut self.scratch)?;
                std::mem::swap(&mut self.slots, &mut self.scratch.slots);
            }
            Some(nulls) => {
                let there: Vec<u32> = (0..rows as u32).filter(|row| nulls.is_valid(*row as usize)).collect();
                let picks = UInt32Array::from(there);
                let keys = keys.iter().map(|k| take(k, &picks, None)).collect::<Result<Vec<_>, _>>()?;
                self.table.intern(&keys, picks.len(), &mut self.scratch)?;
                self.slots.clear();
                self.slots.resize(rows, NO_SLOT);
                for (row, slot) in picks.values().iter().zip(&self.scratch.slots) {
                    self.slots[*row as usize] = *slot;
                }
            }
        }
        let slots = self.table.capacity();
        self.sides.iter_mut().for_each(|side| side.resize(slots));
        Ok(())
    }

    /// Takes a block where keys alone decide what matches.
    fn match_keys(&mut self, input: usize, block: &Block, data: &[ArrayData], out: &mut Output) -> Result<(), OperatorError> {
        let kind = self.spec.kind;
        let takes_back = self.spec.updating[input];
        let keeps = self.keeps[input];
        let (own, other) = split(&mut self.sides, input);
        for row in 0..block.rows() {
            if self.changes.full() {
                self.changes.flush(&self.spec, input, block, &other.store, out)?;
            }
            let adds = block.kind(row).adds();
            let slot = self.slots[row];
            let row = row as u32;
            if slot == NO_SLOT {
                if unmatched_shows(kind, input) {
                    self.changes.push(adds, row, NO_ROW, false);
                }
                continue;
            }
            if takes_back && keeps {
                let known = match adds {
                    true => own.add(data, row as usize, slot, 0, None).map(|_| true)?,
                    false => own.take_back(data, row as usize, slot, None).is_some(),
                };
                if !known {
                    self.unknown += 1;
                    continue;
                }
            } else if !adds {
                if keeps {
                    return Err(OperatorError::new("internal error: a row is taken back from an append-only input"));
                }
                if own.total(slot) == 0 {
                    self.unknown += 1;
                    continue;
                }
            }
            let before = own.count(slot, adds);
            // For rows of the other side this is the first match to come, the last one to leave.
            let (first, last) = (adds && before == 0, !adds && before == 1);
            let matched = other.total(slot) > 0;
            match kind {
                JoinKind::Pairs { keep } => {
                    if !matched {
                        if keep[input] {
                            self.changes.push(adds, row, NO_ROW, false);
                        }
                        continue;
                    }
                    let alone = keep[1 - input];
                    let mut id = other.first(slot);
                    while id != NO_ROW {
                        for _ in 0..other.copies(id) {
                            if alone && first {
                                self.changes.push(false, NO_ROW, id, false);
                            }
                            self.changes.push(adds, row, id, false);
                            if alone && last {
                                self.changes.push(true, NO_ROW, id, false);
                            }
                        }
                        if self.changes.full() {
                            self.changes.flush(&self.spec, input, block, &other.store, out)?;
                        }
                        id = other.next(id);
                    }
                }
                _ if kind.side() == Some(input) && !kind.shows(matched) => {}
                _ if kind.side() == Some(input) => self.changes.push(adds, row, NO_ROW, matched),
                _ if first || last => {
                    let mut id = other.first(slot);
                    while id != NO_ROW {
                        for _ in 0..other.copies(id) {
                            turn(&mut self.changes, kind, id, first);
                        }
                        if self.changes.full() {
                            self.changes.flush(&self.spec, input, block, &other.store, out)?;
                        }
                        id = other.next(id);
                    }
                }
                _ => {}
            }
        }
        self.changes.flush(&self.spec, input, block, &other.store, out)?;
        if keeps && !takes_back {
            let rows: Vec<u32> = (0..block.rows() as u32).filter(|row| self.slots[*row as usize] != NO_SLOT).collect();
            own.append(data, &rows, &self.slots, &[], 0)?;
        }
        Ok(())
    }

    /// Takes a block where each pair is looked at.
    fn match_rows(&mut self, input: usize, block: &Block, data: &[ArrayData], now: i64, out: &mut Output) -> Result<(), OperatorError> {
        let kind = self.spec.kind;
        let takes_back = self.spec.updating[input];
        let before = self.expiry.before(now);
        let (own_depends, other_depends) = (kind.depends(input), kind.depends(1 - input));
        let (own, other) = split(&mut self.sides, input);
        let rows = block.rows();
        let mut appended: Vec<u32> = Vec::new();
        let mut matches: Vec<u32> = Vec::new();
        let mut from = 0;
        while from < rows {
            let Candidates { own: pair_own, other: pair_other, ends } = &mut self.candidates;
            pair_own.clear();
            pair_other.clear();
            ends.clear();
            let mut to = from;
            while to < rows && pair_own.len() < BLOCK_ROWS_MAX {
                if self.slots[to] != NO_SLOT {
                    let mut id = other.first(self.slots[to]);
                    while id != NO_ROW {
                        if !other.expired(id, before) {
                            pair_own.push(to as u32);
                            pair_other.push(id);
                        }
                        id = other.next(id);
                    }
                }
                ends.push(pair_own.len());
                to += 1;
            }
            if let Some(residual) = &self.residual
                && !pair_own.is_empty()
            {
                let rows = UInt32Array::from(pair_own.clone());
                let column = |column: usize| take(block.column(column), &rows, None);
                let passes = residual.evaluate(input, rows.len(), column, |column| other.store.take_column(column, &pair_other[..]))?;
                let (mut at, mut kept) = (0, 0);
                for end in ends.iter_mut() {
                    while at < *end {
                        if passes.value(at) {
                            pair_other[kept] = pair_other[at];
                            kept += 1;
                        }
                        at += 1;
                    }
                    *end = kept;
                }
            }
            let mut start = 0;
            for (row, end) in (from..to).zip(ends.iter()) {
                let hits = &pair_other[start..*end];
                start = *end;
                if self.changes.full() {
                    self.changes.flush(&self.spec, input, block, &other.store, out)?;
                }
                let adds = block.kind(row).adds();
                let slot = self.slots[row];
                let at = row as u32;
                if slot == NO_SLOT {
                    if unmatched_shows(kind, input) {
                        self.changes.push(adds, at, NO_ROW, false);
                    }
                    continue;
                }
                let met: u32 = if own_depends { hits.iter().map(|id| other.copies(*id)).sum() } else { 0 };
                // Whether the row has, or had while it was there, a match.
                let mut matched = met > 0;
                match (takes_back, adds) {
                    (true, true) => {
                        let (id, fresh) = own.add(data, row, slot, now, before)?;
                        if fresh && own_depends {
                            *own.matches_mut(id) = met;
                        }
                    }
                    (true, false) => match own.take_back(data, row, slot, before) {
                        Some(had) => matched = had > 0,
                        None => {
                            self.unknown += 1;
                            continue;
                        }
                    },
                    (false, true) => {
                        appended.push(at);
                        matches.push(met);
                    }
                    (false, false) => {
                        return Err(OperatorError::new("internal error: a row is taken back from an append-only input"));
                    }
                }
                own.count(slot, adds);
                let pairs = matches!(kind, JoinKind::Pairs { .. });
                if pairs || other_depends {
                    for &id in hits {
                        let (mut first, mut last) = (false, false);
                        if other_depends {
                            let count = other.matches_mut(id);
                            (first, last) = (adds && *count == 0, !adds && *count == 1);
                            *count = if adds { *count + 1 } else { count.saturating_sub(1) };
                            other.touch(id, now);
                        }
                        for _ in 0..other.copies(id) {
                            if !pairs {
                                if first || last {
                                    turn(&mut self.changes, kind, id, first);
                                }
                                continue;
                            }
                            if first {
                                self.changes.push(false, NO_ROW, id, false);
                            }
                            self.changes.push(adds, at, id, false);
                            if last {
                                self.changes.push(true, NO_ROW, id, false);
                            }
                        }
                        if self.changes.full() {
                            self.changes.flush(&self.spec, input, block, &other.store, out)?;
                        }
                    }
                }
                if own_depends {
                    let shows = if pairs { !matched } else { kind.shows(matched) };
                    if shows {
                        self.changes.push(adds, at, NO_ROW, matched);
                    }
                }
            }
            from = to;
        }
        self.changes.flush(&self.spec, input, block, &other.store, out)?;
        if !takes_back {
            own.append(data, &appended, &self.slots, &matches, now)?;
        }
        Ok(())
    }

    /// Forgets keys that no row has any more.
    fn forget(&mut self, mut slots: Vec<u32>) {
        slots.sort_unstable();
        slots.dedup();
        for slot in slots {
            if slot != NO_SLOT && self.sides.iter().all(|side| side.total(slot) == 0) {
                self.table.remove(slot);
            }
        }
    }

    fn expire(&mut self, now: i64) {
        if let Some(before) = self.expiry.due(now) {
            let mut slots = Vec::new();
            self.sides.iter_mut().for_each(|side| side.expire(before, &mut slots));
            self.forget(slots);
        }
    }
}

/// Whether a row that can have no match is shown.
fn unmatched_shows(kind: JoinKind, side: usize) -> bool {
    match kind {
        JoinKind::Pairs { keep } => keep[side],
        other => other.side() == Some(side) && other.shows(false),
    }
}

/// A row of the other side got its first match, or lost its last one.
fn turn(changes: &mut Changes, kind: JoinKind, id: u32, first: bool) {
    if kind.shows(!first) {
        changes.push(false, NO_ROW, id, !first);
    }
    if kind.shows(first) {
        changes.push(true, NO_ROW, id, first);
    }
}

impl Operator for Join {
    fn name(&self) -> &'static str {
        "Join"
    }

    fn on_block(&mut self, input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        let rows = block.rows();
        let now = self.expiry.now();
        self.expire(now);
        let keys = evaluate(&self.spec.keys[input], &block)?;
        self.find_slots(&keys, rows)?;
        let data = if self.keeps[input] { column_data(block.batch.columns()) } else { Vec::new() };
        self.sides[input].begin(block.batch.columns(), rows)?;
        if self.by_row {
            self.match_rows(input, &block, &data, now, out)?;
        } else {
            self.match_keys(input, &block, &data, out)?;
        }
        self.sides[input].end();
        if block.kinds.is_some() {
            let slots = std::mem::take(&mut self.slots);
            self.forget(slots);
        }
        Ok(())
    }

    fn on_watermark(&mut self, _watermark: i64, _out: &mut Output) -> Result<Progress, OperatorError> {
        self.expire(self.expiry.now());
        Ok(Progress::Done)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let slots = self.table.slots();
        let mut tables = Vec::new();
        for (side, name) in self.sides.iter().zip(NAMES) {
            if self.keeps[tables.len()] {
                let (places, columns) = side.save(&slots)?;
                let hashes = places.iter().map(|p| self.table.hash(slots[*p])).collect();
                tables.push(StateTable::keyed(name, hashes, columns)?);
            } else {
                let used: Vec<u32> = slots.iter().copied().filter(|s| side.total(*s) > 0).collect();
                let mut columns = self.table.keys(&used)?;
                columns.push(Arc::new(used.iter().map(|s| side.total(*s) as i64).collect::<Int64Array>()));
                tables.push(StateTable::keyed(name, used.iter().map(|s| self.table.hash(*s)).collect(), columns)?);
            }
        }
        Ok(tables)
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        let now = self.expiry.now();
        for table in tables {
            let Some(input) = NAMES.iter().position(|name| *name == table.name) else {
                return Err(OperatorError::new(format!("the state of a join has no part '{}'", table.name)));
            };
            let columns = table.columns();
            let rows = table.batch.num_rows();
            if self.keeps[input] {
                let schema = self.spec.inputs[input].clone();
                let width = schema.fields().len();
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let batch = RecordBatch::try_new_with_options(schema, columns[..width].to_vec(), &options)?;
                let keys = evaluate(&self.spec.keys[input], &Block::inserts(batch, 0))?;
                // Rows with a NULL key were not kept unless NULLs match.
                self.find_slots(&keys, rows)?;
                self.sides[input].load(columns, &self.slots, now)?;
            } else {
                let (keys, counts) = columns.split_at(self.spec.key_types.len());
                self.find_slots(keys, rows)?;
                for (slot, count) in self.slots.iter().zip(counts[0].as_primitive::<Int64Type>().values()) {
                    self.sides[input].add_total(*slot, *count as u64);
                }
            }
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let kept: usize = self.sides.iter().map(|side| side.store.len()).sum();
        let counted = if self.keeps.contains(&false) { self.table.len() } else { 0 };
        stats(kept + counted, self.table.memory() + self.sides.iter().map(Side::memory).sum::<usize>(), self.unknown)
    }
}

#[cfg(test)]
mod tests;
