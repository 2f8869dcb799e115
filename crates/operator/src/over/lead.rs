//! `LEAD`: for each row the value of a row that comes after it. A row leaves when enough rows of its
//! key have followed, or at the end of the input.
//!
//! Rows that wait lie in the blocks in which they came; a key has the places of its last rows. The
//! value that a row waits for is noted as the place of its row, which waits itself at that time, so
//! nothing is copied until a row leaves.

use std::collections::VecDeque;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{SortOptions, concat, concat_batches, interleave, interleave_record_batch, take, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::ScalarValue;
use tidemill_block::{Block, WATERMARK_END};
use tidemill_state::{KeyTable, Slots, StateTable, hash};

use super::ends::queues_memory;
use super::times::TimeColumn;
use super::{save_held, unknown};
use crate::held::Held;
use crate::map::Expr;
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output, Progress};

/// A `LEAD`.
#[derive(Clone)]
pub struct LeadCall {
    /// How many rows after.
    pub offset: usize,
    /// The value.
    pub argument: Expr,
    /// Its type.
    pub data_type: DataType,
    /// What to give if there is no such row.
    pub default: Option<ScalarValue>,
}

/// What a [`Lead`] computes: the output has the input's columns, then the calls.
pub struct LeadSpec {
    /// Index of the time column that orders the rows.
    pub time: usize,
    /// Columns that order rows of the same time.
    pub ties: Vec<(usize, SortOptions)>,
    /// `PARTITION BY`.
    pub keys: Vec<Expr>,
    /// Their types.
    pub key_types: Vec<DataType>,
    /// The calls.
    pub calls: Vec<LeadCall>,
    /// The input's columns.
    pub input: SchemaRef,
    /// The input's columns and the calls.
    pub schema: SchemaRef,
}

/// A row: the number of its block, and its number in the block. Places are in order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    block: u64,
    row: u32,
}

/// A block of which rows wait.
struct Stored {
    batch: RecordBatch,
    /// The argument of each call.
    arguments: Vec<ArrayRef>,
    /// For each call and row where its answer is.
    answers: Vec<Vec<Option<Place>>>,
    /// Rows that have not left.
    open: usize,
    arrival_ns: u64,
    /// The time of the first row.
    first: i64,
}

/// Gives rows the values of later ones.
pub struct Lead {
    spec: LeadSpec,
    held: Held,
    table: KeyTable,
    scratch: Slots,
    /// The last rows of each key, oldest first; as many as the largest offset.
    waiting: Vec<VecDeque<Place>>,
    blocks: VecDeque<Stored>,
    /// The number of the first block.
    first: u64,
    /// Rows in `blocks`, and how many of them wait.
    stored: usize,
    open: usize,
    offset_max: usize,
    defaults: Vec<ArrayRef>,
    /// At the end of the input: rows that leave without having been followed.
    last: VecDeque<Place>,
}

impl Lead {
    /// An operator for `spec`.
    ///
    /// # Errors
    /// A key type that cannot be a key; a default of another type.
    pub fn new(spec: LeadSpec) -> Result<Self, OperatorError> {
        let default = |call: &LeadCall| -> Result<ArrayRef, OperatorError> {
            let value = match &call.default {
                Some(value) => value.cast_to(&call.data_type)?,
                None => ScalarValue::try_from(&call.data_type)?,
            };
            Ok(value.to_array()?)
        };
        Ok(Lead {
            held: Held::new("an OVER", spec.input.clone(), spec.time, spec.ties.clone()),
            table: KeyTable::new(spec.key_types.clone())?,
            scratch: Slots::default(),
            waiting: Vec::new(),
            blocks: VecDeque::new(),
            first: 0,
            stored: 0,
            open: 0,
            offset_max: spec.calls.iter().map(|c| c.offset).max().unwrap_or(0),
            defaults: spec.calls.iter().map(default).collect::<Result<_, _>>()?,
            last: VecDeque::new(),
            spec,
        })
    }

    fn at(&mut self, place: Place) -> &mut Stored {
        &mut self.blocks[(place.block - self.first) as usize]
    }

    /// Takes rows in, ascending by time; the places of rows that have what they waited for.
    fn follow(&mut self, block: &Block) -> Result<Vec<Place>, OperatorError> {
        let rows = block.rows();
        let evaluate = |e: &Expr| -> Result<ArrayRef, OperatorError> { Ok(e.evaluate(&block.batch)?.into_array(rows)?) };
        let keys = self.spec.keys.iter().map(&evaluate).collect::<Result<Vec<_>, _>>()?;
        let arguments = self.spec.calls.iter().map(|c| evaluate(&c.argument)).collect::<Result<Vec<_>, _>>()?;
        self.table.intern(&keys, rows, &mut self.scratch)?;
        self.waiting.resize_with(self.table.capacity(), VecDeque::new);
        let number = self.first + self.blocks.len() as u64;
        let first = TimeColumn::of(block.column(self.spec.time))?.ms(0).expect("checked when the block came");
        self.blocks.push_back(Stored {
            batch: block.batch.clone(),
            answers: vec![vec![None; rows]; arguments.len()],
            arguments,
            open: rows,
            arrival_ns: block.arrival_ns,
            first,
        });
        self.stored += rows;
        self.open += rows;
        let offsets: Vec<usize> = self.spec.calls.iter().map(|c| c.offset).collect();
        let slots = std::mem::take(&mut self.scratch.slots);
        let mut ready = Vec::new();
        for (row, slot) in slots.iter().enumerate() {
            let place = Place { block: number, row: row as u32 };
            for (call, offset) in offsets.iter().enumerate() {
                let queue = &self.waiting[*slot as usize];
                let answered = match queue.len().checked_sub(*offset) {
                    _ if *offset == 0 => place,
                    Some(i) => queue[i],
                    None => continue,
                };
                self.at(answered).answers[call][answered.row as usize] = Some(place);
            }
            let queue = &mut self.waiting[*slot as usize];
            queue.push_back(place);
            if queue.len() > self.offset_max {
                ready.extend(queue.pop_front());
            }
        }
        self.scratch.slots = slots;
        Ok(ready)
    }

    /// Emits rows, which then wait no longer.
    fn emit(&mut self, places: &[Place], out: &mut Output) -> Result<(), OperatorError> {
        if places.is_empty() {
            return Ok(());
        }
        let first = self.first;
        let index = |block: u64| (block - first) as usize;
        let mut used: Vec<usize> = places.iter().map(|p| index(p.block)).collect();
        for place in places {
            let stored = &self.blocks[index(place.block)];
            used.extend(stored.answers.iter().filter_map(|a| a[place.row as usize]).map(|p| index(p.block)));
        }
        used.sort_unstable();
        used.dedup();
        let position = |block: u64| used.binary_search(&index(block)).expect("listed above");
        let batches: Vec<&RecordBatch> = used.iter().map(|i| &self.blocks[*i].batch).collect();
        let picks: Vec<(usize, usize)> = places.iter().map(|p| (position(p.block), p.row as usize)).collect();
        let mut columns = interleave_record_batch(&batches, &picks)?.columns().to_vec();
        for (call, default) in self.defaults.iter().enumerate() {
            let mut arrays: Vec<&dyn Array> = used.iter().map(|i| self.blocks[*i].arguments[call].as_ref()).collect();
            arrays.push(default.as_ref());
            let missing = (arrays.len() - 1, 0);
            let picks: Vec<(usize, usize)> = places
                .iter()
                .map(|p| self.blocks[index(p.block)].answers[call][p.row as usize].map_or(missing, |a| (position(a.block), a.row as usize)))
                .collect();
            columns.push(interleave(&arrays, &picks)?);
        }
        let arrival_ns = used.iter().map(|i| self.blocks[*i].arrival_ns).max().unwrap_or(0);
        out.emit(Block::inserts(RecordBatch::try_new(self.spec.schema.clone(), columns)?, arrival_ns));
        for place in places {
            self.at(*place).open -= 1;
        }
        self.open -= places.len();
        while self.blocks.front().is_some_and(|b| b.open == 0) {
            let gone = self.blocks.pop_front().expect("looked at above");
            self.stored -= gone.batch.num_rows();
            self.first += 1;
        }
        Ok(())
    }

    /// Puts the rows that wait together, if blocks are mostly of rows that have left.
    fn compact(&mut self) -> Result<(), OperatorError> {
        if self.stored < 4 * self.open + 8 * BLOCK_ROWS_MAX && self.blocks.len() < 64 + self.open / 64 {
            return Ok(());
        }
        let mut places: Vec<Place> = self.waiting.iter().flatten().copied().collect();
        places.sort_unstable();
        if places.is_empty() {
            return Ok(());
        }
        let first = self.first;
        let mut batches: Vec<RecordBatch> = Vec::new();
        let mut arguments: Vec<Vec<ArrayRef>> = vec![Vec::new(); self.defaults.len()];
        let mut at = 0;
        while at < places.len() {
            let block = places[at].block;
            let rows = places[at..].iter().take_while(|p| p.block == block).count();
            let picks = UInt32Array::from_iter_values(places[at..at + rows].iter().map(|p| p.row));
            let stored = &self.blocks[(block - first) as usize];
            batches.push(take_record_batch(&stored.batch, &picks)?);
            for (column, argument) in arguments.iter_mut().zip(&stored.arguments) {
                column.push(take(argument, &picks, None)?);
            }
            at += rows;
        }
        // A place's number among those that wait is its new row.
        let moved = |place: Place| {
            let row = places.binary_search(&place).expect("a row that another waits for waits itself");
            Place { block: first, row: row as u32 }
        };
        let answers = (0..self.defaults.len())
            .map(|call| {
                let answer = |p: &Place| self.blocks[(p.block - first) as usize].answers[call][p.row as usize].map(moved);
                places.iter().map(answer).collect()
            })
            .collect();
        let arrays = |parts: &Vec<ArrayRef>| concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>());
        let batch = concat_batches(&self.spec.input, &batches)?;
        let oldest = TimeColumn::of(batch.column(self.spec.time))?.ms(0).expect("checked when the block came");
        let stored = Stored {
            batch,
            arguments: arguments.iter().map(arrays).collect::<Result<_, _>>()?,
            answers,
            open: places.len(),
            arrival_ns: self.blocks.iter().map(|b| b.arrival_ns).max().unwrap_or(0),
            first: oldest,
        };
        for queue in &mut self.waiting {
            queue.iter_mut().for_each(|place| *place = moved(*place));
        }
        self.stored = stored.open;
        self.blocks = VecDeque::from([stored]);
        Ok(())
    }
}

impl Operator for Lead {
    fn name(&self) -> &'static str {
        "Lead"
    }

    fn on_block(&mut self, _input: usize, block: Block, _out: &mut Output) -> Result<(), OperatorError> {
        self.held.take_in(block)
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        if self.held.is_idle() {
            self.held.release(watermark)?;
        }
        if let Some(block) = self.held.next() {
            let ready = self.follow(&block)?;
            self.emit(&ready, out)?;
            self.compact()?;
        }
        if !self.held.is_idle() {
            return Ok(Progress::More);
        }
        if watermark == WATERMARK_END && self.open > 0 {
            if self.last.is_empty() {
                let mut places: Vec<Place> = self.waiting.iter_mut().flat_map(std::mem::take).collect();
                places.sort_unstable();
                self.last = places.into();
            }
            let rows = self.last.len().min(BLOCK_ROWS_MAX);
            let places: Vec<Place> = self.last.drain(..rows).collect();
            self.emit(&places, out)?;
            if !self.last.is_empty() {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    /// Rows that wait will leave with the time they have.
    fn output_watermark(&self, watermark: i64) -> i64 {
        self.blocks.front().map_or(watermark, |b| watermark.min(b.first.saturating_sub(1)))
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        assert!(self.held.is_idle(), "a barrier follows a watermark only when its output has left");
        let mut tables: Vec<StateTable> = save_held(&self.held, &self.spec.keys)?.into_iter().collect();
        let mut places: Vec<Place> = self.waiting.iter().flatten().copied().collect();
        if !places.is_empty() {
            places.sort_unstable();
            let first = self.first;
            let batches: Vec<&RecordBatch> = self.blocks.iter().map(|b| &b.batch).collect();
            let picks: Vec<(usize, usize)> = places.iter().map(|p| ((p.block - first) as usize, p.row as usize)).collect();
            let batch = interleave_record_batch(&batches, &picks)?;
            let rows = batch.num_rows();
            let keys =
                self.spec.keys.iter().map(|k| Ok(k.evaluate(&batch)?.into_array(rows)?)).collect::<Result<Vec<_>, OperatorError>>()?;
            let mut hashes = Vec::new();
            hash::rows(&keys, rows, &mut hashes)?;
            tables.push(StateTable::keyed("waiting", hashes, batch.columns().to_vec())?);
        }
        Ok(tables)
    }

    /// A key's rows that wait answer each other again, as they did before, and none of them leaves.
    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        let mut waiting = Vec::new();
        for table in tables {
            match table.name.as_str() {
                "held" => self.held.restore(table.columns())?,
                "waiting" => waiting.push(RecordBatch::try_new(self.spec.input.clone(), table.columns().to_vec())?),
                other => return Err(unknown(other)),
            }
        }
        let all = concat_batches(&self.spec.input, &waiting)?;
        if all.num_rows() == 0 {
            return Ok(());
        }
        let mut order: Vec<u32> = (0..all.num_rows() as u32).collect();
        {
            let times = TimeColumn::of(all.column(self.spec.time))?.all_ms().expect("checked when the rows came");
            order.sort_by_key(|r| times[*r as usize]);
        }
        let block = Block::inserts(take_record_batch(&all, &UInt32Array::from(order))?, 0);
        let ready = self.follow(&block)?;
        assert!(ready.is_empty(), "rows that waited still wait");
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let answers: usize = self.spec.calls.len() * self.stored * size_of::<Option<Place>>();
        let blocks: usize = self.blocks.iter().map(|b| b.batch.get_array_memory_size()).sum();
        let queues = queues_memory(self.open, size_of::<Place>(), self.waiting.capacity());
        OperatorStats {
            entries: (self.open + self.held.rows()) as u64,
            memory: (answers + blocks + queues + self.held.memory() + self.table.memory()) as u64,
            late_rows: self.held.late_rows(),
            ..OperatorStats::default()
        }
    }
}
