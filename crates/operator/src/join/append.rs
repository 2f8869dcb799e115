//! Inner joins of two append-only inputs: every row is kept for good, so a row is put in once, in the
//! columns it came in, and never looked for again.
//!
//! A block finds its pairs, of the newest row of a key first, as [`super::regular`] does; conditions are
//! evaluated over all of them at once, and only the pairs that are left are put together.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::NullBuffer;
use arrow::compute::{SortOptions, filter};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::error::ArrowError;
use tidemill_block::{Block, RowKind};
use tidemill_state::{KeyTable, Slots, StateTable, hash};

use super::regular::JoinSpec;
use super::residual::Residual;
use super::{JoinKind, evaluate, stats};
use crate::chunks::{Chunks, Place};
use crate::gather;
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output};

/// Names of the sides in a checkpoint; a number follows.
const NAMES: [&str; 2] = ["left", "right"];

/// Says that whoever reads the pairs looks, of the pairs of a key, for the first by a column of them, and
/// for none that comes behind: pairs behind one that was emitted before are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Best {
    /// Index among the columns of the pairs.
    pub column: usize,
    /// How it is sorted.
    pub options: SortOptions,
}

impl Best {
    /// Whether values of a type can be compared in so simple a way.
    pub fn serves(data_type: &DataType) -> bool {
        use DataType::*;
        matches!(
            data_type,
            Int64 | Int32 | Int16 | Int8 | UInt64 | UInt32 | UInt16 | UInt8 | Float64 | Float32 | Date32 | Time32(_) | Timestamp(..)
        )
    }
}

/// An inner join of append-only inputs.
pub struct AppendJoin {
    spec: JoinSpec,
    residual: Option<Residual>,
    best: Option<Best>,
    /// By slot: the rank of the best pair emitted; the largest number if there was none.
    ranks: Vec<u64>,
    table: KeyTable,
    sides: [Kept; 2],
    scratch: Slots,
    pairs: Pairs,
}

/// The rows of an input, linked by key.
struct Kept {
    rows: Chunks,
    /// By slot: the newest row of the key. A place has the mark if there is no row of the key behind.
    heads: Vec<Place>,
    /// By chunk and row: the row of the same key that came before.
    next: Vec<Vec<Place>>,
}

/// Rows of a block and of the other side that belong together.
#[derive(Default)]
struct Pairs {
    own: Vec<u32>,
    other: Vec<Place>,
}

impl Pairs {
    /// Keeps those for which `keep`, given their number and their row of the block, holds.
    fn retain(&mut self, mut keep: impl FnMut(usize, u32) -> bool) {
        let mut kept = 0;
        for i in 0..self.own.len() {
            if keep(i, self.own[i]) {
                (self.own[kept], self.other[kept]) = (self.own[i], self.other[i]);
                kept += 1;
            }
        }
        self.own.truncate(kept);
        self.other.truncate(kept);
    }

    /// A column of the block, by pair.
    fn own_column(&self, block: &Block, column: usize) -> Result<ArrayRef, ArrowError> {
        let column = block.column(column);
        let all = self.own.len() == column.len() && self.own.iter().enumerate().all(|(i, row)| i == *row as usize);
        if all { Ok(column.clone()) } else { gather::take(column, &self.own) }
    }
}

impl Kept {
    fn new(types: Vec<DataType>) -> Self {
        Kept { rows: Chunks::new(&types), heads: Vec::new(), next: Vec::new() }
    }

    /// Keeps the rows of a block, whose keys have these slots.
    fn append(&mut self, columns: &[ArrayRef], slots: &[u32]) -> Result<(), ArrowError> {
        let first = self.rows.append(columns, slots.len())?;
        self.next.resize_with(self.rows.chunks(), Vec::new);
        let next = &mut self.next[first.chunk()];
        next.reserve(slots.len());
        for (i, slot) in slots.iter().enumerate() {
            let place = first.plus(i);
            let head = &mut self.heads[*slot as usize];
            next.push(*head);
            *head = if *head == Place::NONE { place.marked() } else { place };
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.rows.memory() + self.heads.capacity() * 8 + self.next.iter().map(|n| n.capacity() * 8 + 24).sum::<usize>()
    }
}

impl AppendJoin {
    /// Whether it can do what `spec` says.
    pub fn serves(spec: &JoinSpec) -> bool {
        spec.kind == JoinKind::Pairs { keep: [false, false] } && spec.updating == [false, false] && spec.ttl_ms.is_none()
    }

    /// A join as `spec` says, of which only the best pairs are wanted if `best` is given.
    ///
    /// # Errors
    /// A key type that cannot be a key.
    pub fn new(spec: JoinSpec, best: Option<Best>) -> Result<Self, OperatorError> {
        assert!(AppendJoin::serves(&spec), "not an inner join of append-only inputs");
        let kept = |side: usize| Kept::new(spec.inputs[side].fields().iter().map(|f| f.data_type().clone()).collect());
        Ok(AppendJoin {
            residual: spec.residual.clone().map(|e| Residual::new(e, &spec.inputs)).transpose()?,
            best,
            ranks: Vec::new(),
            table: KeyTable::new(spec.key_types.clone())?,
            sides: [kept(0), kept(1)],
            scratch: Slots::default(),
            pairs: Pairs::default(),
            spec,
        })
    }

    /// Finds the slots of the keys of rows.
    fn find_slots(&mut self, keys: &[ArrayRef], rows: usize) -> Result<(), OperatorError> {
        self.table.intern(keys, rows, &mut self.scratch)?;
        let slots = self.table.capacity();
        self.sides.iter_mut().for_each(|side| side.heads.resize(slots, Place::NONE));
        if self.best.is_some() {
            self.ranks.resize(slots, u64::MAX);
        }
        Ok(())
    }

    /// Emits those of the pairs found for `block` of input `input` that are wanted.
    fn emit(&mut self, input: usize, block: &Block, out: &mut Output) -> Result<(), OperatorError> {
        let AppendJoin { spec, residual, best, ranks, sides, scratch, pairs, .. } = self;
        let kept = &sides[1 - input].rows;
        if let Some(residual) = residual
            && !pairs.own.is_empty()
        {
            let own = |column: usize| pairs.own_column(block, column);
            let passes = residual.evaluate(input, pairs.own.len(), own, |column| kept.take_column(column, &pairs.other))?;
            pairs.retain(|pair, _| passes.value(pair));
        }
        if let Some(Best { column, options }) = *best
            && !pairs.own.is_empty()
        {
            let width = spec.inputs[0].fields().len();
            let (side, column) = if column < width { (0, column) } else { (1, column - width) };
            let values = if side == input { pairs.own_column(block, column)? } else { kept.take_column(column, &pairs.other)? };
            let places = ranked(&values, options);
            pairs.retain(|pair, row| {
                let best = &mut ranks[scratch.slots[row as usize] as usize];
                let wanted = places[pair] <= *best;
                *best = places[pair].min(*best);
                wanted
            });
        }
        let rows = pairs.own.len();
        if rows > 0 {
            let own = (0..block.batch.num_columns()).map(|column| pairs.own_column(block, column)).collect::<Result<Vec<_>, _>>()?;
            let other = kept.take(&pairs.other)?;
            let (left, right) = if input == 0 { (own, other) } else { (other, own) };
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(spec.schema.clone(), left.into_iter().chain(right).collect(), &options)?;
            out.emit(Block::inserts(batch, block.arrival_ns));
        }
        pairs.own.clear();
        pairs.other.clear();
        Ok(())
    }

    /// Keeps rows of an input, whose slots were found last.
    fn keep(&mut self, input: usize, columns: &[ArrayRef]) -> Result<(), OperatorError> {
        Ok(self.sides[input].append(columns, &self.scratch.slots)?)
    }
}

/// Where the values of a column stand when they are sorted: numbers that never order two of them otherwise.
fn ranked(values: &ArrayRef, options: SortOptions) -> Vec<u64> {
    const SIGN: u64 = 1 << 63;
    let data = values.to_data();
    let rows = data.len();
    macro_rules! whole {
        ($t:ty) => {
            data.buffer::<$t>(0)[..rows].iter().map(|v| (i64::from(*v) as u64) ^ SIGN).collect()
        };
    }
    // As in Arrow's row form, by IEEE's total order.
    let float = |bits: u64| if bits & SIGN == 0 { bits | SIGN } else { !bits };
    let mut ranks: Vec<u64> = match values.data_type() {
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => whole!(i32),
        DataType::Int16 => whole!(i16),
        DataType::Int8 => whole!(i8),
        DataType::UInt64 => data.buffer::<u64>(0)[..rows].to_vec(),
        DataType::UInt32 => whole!(u32),
        DataType::UInt16 => whole!(u16),
        DataType::UInt8 => whole!(u8),
        DataType::Float64 => values.as_primitive::<Float64Type>().values().iter().map(|v| float(v.to_bits())).collect(),
        DataType::Float32 => values.as_primitive::<Float32Type>().values().iter().map(|v| float(f64::from(*v).to_bits())).collect(),
        _ => whole!(i64),
    };
    if options.descending {
        ranks.iter_mut().for_each(|rank| *rank = !*rank);
    }
    if let Some(nulls) = values.nulls().filter(|n| n.null_count() > 0) {
        let null = if options.nulls_first { 0 } else { u64::MAX };
        (0..rows).filter(|row| nulls.is_null(*row)).for_each(|row| ranks[row] = null);
    }
    ranks
}

impl Operator for AppendJoin {
    fn name(&self) -> &'static str {
        "Join"
    }

    fn on_block(&mut self, input: usize, mut block: Block, out: &mut Output) -> Result<(), OperatorError> {
        if block.kinds.as_ref().is_some_and(|kinds| kinds.iter().any(|kind| *kind != RowKind::Insert)) {
            return Err(OperatorError::new("internal error: a row of an append-only input is updated or taken back"));
        }
        let mut keys = evaluate(&self.spec.keys[input], &block)?;
        if !self.spec.null_equal {
            // What equals nothing meets nothing, now or later.
            let nulls: Option<NullBuffer> =
                keys.iter().fold(None, |all, key| NullBuffer::union(all.as_ref(), key.logical_nulls().as_ref()));
            if let Some(nulls) = nulls.filter(|n| n.null_count() > 0) {
                let there = BooleanArray::new(nulls.into_inner(), None);
                block = block.filter(&there)?;
                keys = keys.iter().map(|key| filter(key, &there)).collect::<Result<_, _>>()?;
            }
        }
        let rows = block.rows();
        if rows == 0 {
            return Ok(());
        }
        self.find_slots(&keys, rows)?;
        for row in 0..rows {
            let other = &self.sides[1 - input];
            let mut place = other.heads[self.scratch.slots[row] as usize];
            if place == Place::NONE {
                continue;
            }
            loop {
                let other = &self.sides[1 - input];
                self.pairs.own.push(row as u32);
                self.pairs.other.push(place);
                let behind = if place.is_marked() { None } else { Some(other.next[place.chunk()][place.row()]) };
                if self.pairs.own.len() >= BLOCK_ROWS_MAX {
                    self.emit(input, &block, out)?;
                }
                match behind {
                    Some(behind) => place = behind,
                    None => break,
                }
            }
        }
        self.emit(input, &block, out)?;
        self.keep(input, block.batch.columns())
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let mut tables = Vec::new();
        for (side, name) in NAMES.iter().enumerate() {
            let kept = &self.sides[side].rows;
            for chunk in 0..kept.chunks() {
                let (rows, columns) = (kept.length(chunk), kept.arrays(chunk)?);
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let batch = RecordBatch::try_new_with_options(self.spec.inputs[side].clone(), columns, &options)?;
                let block = Block::inserts(batch, 0);
                let mut hashes = Vec::new();
                hash::rows(&evaluate(&self.spec.keys[side], &block)?, rows, &mut hashes)?;
                tables.push(StateTable::keyed(format!("{name} {chunk}"), hashes, block.batch.columns().to_vec())?);
            }
        }
        Ok(tables)
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            let Some(input) = NAMES.iter().position(|name| table.name.split(' ').next() == Some(*name)) else {
                return Err(OperatorError::new(format!("the state of a join has no part '{}'", table.name)));
            };
            let rows = table.batch.num_rows();
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(self.spec.inputs[input].clone(), table.columns().to_vec(), &options)?;
            let block = Block::inserts(batch, 0);
            let keys = evaluate(&self.spec.keys[input], &block)?;
            self.find_slots(&keys, rows)?;
            self.keep(input, block.batch.columns())?;
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let entries = self.sides.iter().map(|side| side.rows.rows()).sum();
        let memory = self.table.memory() + self.sides.iter().map(Kept::memory).sum::<usize>() + self.ranks.capacity() * 8;
        stats(entries, memory, 0)
    }
}

#[cfg(test)]
mod tests;
