//! From matches to rows: the navigations of outputs, gathered for many matches and then computed as
//! columns.
//!
//! The values that a match's output needs are copied out of the rows while these are held; expressions
//! and aggregates run once a block of output.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidemill_block::Block;
use tidemill_plan::pattern::{End, RowsPerMatch};

use super::chain::Taken;
use super::column::{Column, RowStore, Value};
use super::navigate::KeyRows;
use super::run::Found;
use crate::aggregate::{AggregateCall, Rows, accumulator};
use crate::map::Expr;
use crate::{BLOCK_ROWS_MAX, OperatorError};

/// A navigation of an output, and its values so far.
pub(super) struct Gathered {
    /// Only rows of these symbols count.
    pub symbols: u64,
    /// Only rows up to the one that is put out count.
    pub running: bool,
    pub kind: GatheredKind,
    /// With a row put out for each row of a match: the rows of the match that count, by their place in it.
    hits: Vec<u32>,
}

pub(super) enum GatheredKind {
    /// A kept column of a row.
    Value {
        column: usize,
        end: End,
        offset: usize,
        shift: i64,
        values: Column,
    },
    /// The name of a row's symbol.
    Classifier {
        end: End,
        offset: usize,
        shift: i64,
        values: Column,
    },
    MatchNumber {
        values: Column,
    },
    Aggregate(Box<GatheredAggregate>),
}

/// An aggregate: the rows that go in, and where each output row finds its result.
pub(super) struct GatheredAggregate {
    call: AggregateCall,
    arguments: Vec<usize>,
    filter: Option<usize>,
    /// Values of the rows that go in, and the match of each.
    values: Vec<Column>,
    matches: Vec<u32>,
    /// Running: whether the row counts.
    counts: Vec<bool>,
    /// For each output row: running, the row whose result it takes; else the match.
    places: Vec<Option<u32>>,
}

impl GatheredAggregate {
    /// `arguments` and `filter` are kept columns, `types` those of the arguments.
    pub fn new(call: AggregateCall, arguments: Vec<usize>, filter: Option<usize>, types: &[DataType]) -> Self {
        let values = types.iter().map(Column::new).collect();
        GatheredAggregate { call, arguments, filter, values, matches: Vec::new(), counts: Vec::new(), places: Vec::new() }
    }

    /// Takes the rows of match number `group` in, or of an empty one.
    fn matched(&mut self, group: u32, symbols: u64, running: bool, taken: &[Taken], key: &KeyRows, rows: &RowStore) {
        for t in taken {
            let place = key.place(t.row).expect("a row of a match is held");
            let filtered = self.filter.is_none_or(|f| matches!(rows.columns[f].value(place), Value::Int(1)));
            let counts = symbols & (1 << t.symbol) != 0 && filtered;
            if counts || running {
                self.values.iter_mut().zip(&self.arguments).for_each(|(v, c)| v.push(rows.columns[*c].value(place)));
                self.matches.push(group);
                self.counts.push(counts);
            }
        }
        if running && taken.is_empty() {
            self.values.iter_mut().for_each(|v| v.push(Value::Null));
            self.matches.push(group);
            self.counts.push(false);
        }
    }

    fn drain(&mut self, groups: u32, running: bool) -> Result<ArrayRef, OperatorError> {
        let mut state = accumulator(&self.call, false)?;
        state.resize(groups as usize);
        let values = self.values.iter_mut().map(Column::drain).collect::<Result<Vec<_>, _>>()?;
        let places = UInt32Array::from(std::mem::take(&mut self.places));
        let matches = std::mem::take(&mut self.matches);
        let counts = BooleanArray::from(std::mem::take(&mut self.counts));
        let results = if running {
            state.update_each(&Rows { slots: &matches, values: &values, kinds: None, mask: Some(&counts) })?.1
        } else {
            state.update(&Rows { slots: &matches, values: &values, kinds: None, mask: None })?;
            state.values(&(0..groups).collect::<Vec<_>>())?
        };
        Ok(take(&results, &places, None)?)
    }
}

impl Gathered {
    pub fn new(symbols: u64, running: bool, kind: GatheredKind) -> Self {
        Gathered { symbols, running, kind, hits: Vec::new() }
    }

    fn data_type(&self) -> DataType {
        match &self.kind {
            GatheredKind::Value { values, .. } | GatheredKind::Classifier { values, .. } | GatheredKind::MatchNumber { values } => {
                values.data_type().clone()
            }
            GatheredKind::Aggregate(aggregate) => aggregate.call.output.data_type().clone(),
        }
    }
}

/// What is needed to put out a match.
struct Match<'a> {
    key: &'a KeyRows,
    rows: &'a RowStore,
    taken: &'a [Taken],
    start: u32,
    found: Found,
    number: i64,
}

impl Match<'_> {
    /// The row `offset` from `end` among those of `symbols`, of the first `upto` rows of the match; with
    /// its place among the rows that were taken with a link. `hits` are the places of the rows of
    /// `symbols`, if they have been looked for.
    fn find(&self, symbols: u64, hits: Option<&[u32]>, end: End, offset: usize, upto: usize) -> Option<(u32, Option<usize>)> {
        if self.found.empty {
            return None;
        }
        // The ends of a match are known even where its rows were taken without a link.
        if symbols == u64::MAX && offset == 0 && upto == self.taken.len() {
            return Some(match end {
                End::First => (self.start, (upto > 0).then_some(0)),
                End::Last => (self.found.last, upto.checked_sub(1)),
            });
        }
        let fits = |i: &usize| symbols & (1 << self.taken[*i].symbol) != 0;
        let index = match (hits, end) {
            (Some(hits), _) => {
                let known = &hits[..hits.partition_point(|h| (*h as usize) < upto)];
                let hit = if end == End::First { known.get(offset) } else { known.iter().rev().nth(offset) };
                hit.map(|h| *h as usize)
            }
            (None, End::First) => (0..upto).filter(fits).nth(offset),
            (None, End::Last) => (0..upto).rev().filter(fits).nth(offset),
        };
        index.map(|i| (self.taken[i].row, Some(i)))
    }
}

/// Gathers output.
pub(super) struct Emitter {
    schema: SchemaRef,
    output: Vec<Expr>,
    /// The columns that `output` is computed from.
    gathered_schema: SchemaRef,
    mode: RowsPerMatch,
    /// Rows that no match holds are put out.
    pub unmatched: bool,
    names: Vec<Arc<str>>,
    /// Kept columns of the current row.
    current: Vec<(usize, Column)>,
    navigations: Vec<Gathered>,
    rows: usize,
    /// Matches among the gathered rows.
    groups: u32,
    /// Values gathered for aggregates.
    entries: usize,
    /// Blocks that are full.
    blocks: Vec<Block>,
    /// Arrival of the input that completes matches now.
    pub arrival_ns: u64,
    scratch: Vec<Taken>,
}

impl Emitter {
    /// Puts out `output`, expressions over `current` (kept columns of the current row, with their types)
    /// followed by `navigations`.
    pub fn new(
        schema: SchemaRef,
        output: Vec<Expr>,
        mode: RowsPerMatch,
        names: Vec<Arc<str>>,
        current: &[(usize, DataType)],
        navigations: Vec<Gathered>,
    ) -> Self {
        let types = current.iter().map(|(_, t)| t.clone()).chain(navigations.iter().map(Gathered::data_type));
        let fields: Vec<Field> = types.enumerate().map(|(i, t)| Field::new(format!("c{i}"), t, true)).collect();
        Emitter {
            schema,
            output,
            gathered_schema: Arc::new(Schema::new(fields)),
            mode,
            unmatched: matches!(mode, RowsPerMatch::All { unmatched: true, .. }),
            names,
            current: current.iter().map(|(c, t)| (*c, Column::new(t))).collect(),
            navigations,
            rows: 0,
            groups: 0,
            entries: 0,
            blocks: Vec::new(),
            arrival_ns: 0,
            scratch: Vec::new(),
        }
    }

    /// Puts out a match, of which `backwards` are the rows that were taken with a link, last first.
    ///
    /// # Errors
    /// A value that an expression cannot compute.
    pub fn matched(
        &mut self,
        key: &KeyRows,
        rows: &RowStore,
        backwards: impl Iterator<Item = Taken>,
        start: u32,
        found: Found,
        number: i64,
    ) -> Result<(), OperatorError> {
        let empty_too = !matches!(self.mode, RowsPerMatch::All { empty: false, .. });
        if found.empty && !empty_too {
            return Ok(());
        }
        let mut taken = std::mem::take(&mut self.scratch);
        taken.clear();
        taken.extend(backwards);
        taken.reverse();
        let this = Match { key, rows, taken: &taken, start, found, number };
        for Gathered { symbols, running, kind, hits } in &mut self.navigations {
            if let GatheredKind::Aggregate(aggregate) = kind {
                let before = aggregate.matches.len();
                aggregate.matched(self.groups, *symbols, *running, &taken, key, rows);
                self.entries += aggregate.matches.len() - before;
            } else if self.mode != RowsPerMatch::One {
                hits.clear();
                hits.extend((0..taken.len() as u32).filter(|i| *symbols & (1 << taken[*i as usize].symbol) != 0));
            }
        }
        if self.mode == RowsPerMatch::One || found.empty {
            self.row(&this, taken.len(), found.last);
        } else {
            for (i, t) in taken.iter().enumerate().filter(|(_, t)| !t.excluded) {
                self.row(&this, i + 1, t.row);
            }
        }
        self.groups += 1;
        self.scratch = taken;
        self.flush_if_full()
    }

    /// One row of a match: the current row is number `current`, behind `upto` of the match's rows.
    fn row(&mut self, this: &Match<'_>, upto: usize, current: u32) {
        let Match { key, rows, taken, .. } = this;
        let place = key.place(current).expect("a row of a match is held");
        self.current.iter_mut().for_each(|(c, values)| values.push(rows.columns[*c].value(place)));
        let all_taken = taken.len();
        let each_row = self.mode != RowsPerMatch::One;
        for Gathered { symbols, running, kind, hits } in &mut self.navigations {
            let until = if *running { upto } else { all_taken };
            let hits = each_row.then_some(hits.as_slice());
            match kind {
                GatheredKind::Value { column, end, offset, shift, values } => {
                    let row = this.find(*symbols, hits, *end, *offset, until);
                    let place = row.and_then(|(number, _)| key.near(number, *shift));
                    values.push(place.map_or(Value::Null, |p| rows.columns[*column].value(p)));
                }
                GatheredKind::Classifier { end, offset, shift, values } => {
                    let found = this.find(*symbols, hits, *end, *offset, until).and_then(|(number, index)| {
                        if *shift == 0 {
                            return index;
                        }
                        let target = u32::try_from(i64::from(number) + *shift).ok()?;
                        taken[..until].iter().position(|t| t.row == target)
                    });
                    values.push(found.map_or(Value::Null, |i| Value::Text(&self.names[taken[i].symbol as usize])));
                }
                GatheredKind::MatchNumber { values } => values.push(Value::Int(this.number)),
                GatheredKind::Aggregate(aggregate) => {
                    let place = if *running {
                        // The entries of this match are the last ones, one for each of its rows.
                        let first = aggregate.matches.len() - all_taken.max(1);
                        first + upto.max(1) - 1
                    } else {
                        self.groups as usize
                    };
                    aggregate.places.push(Some(place as u32));
                }
            }
        }
        self.rows += 1;
    }

    /// Puts out a row that no match holds.
    pub fn unmatched_row(&mut self, rows: &RowStore, place: u32) {
        self.current.iter_mut().for_each(|(c, values)| values.push(rows.columns[*c].value(place)));
        for navigation in &mut self.navigations {
            match &mut navigation.kind {
                GatheredKind::Value { values, .. } | GatheredKind::Classifier { values, .. } | GatheredKind::MatchNumber { values } => {
                    values.push(Value::Null);
                }
                GatheredKind::Aggregate(aggregate) => aggregate.places.push(None),
            }
        }
        self.rows += 1;
    }

    fn flush_if_full(&mut self) -> Result<(), OperatorError> {
        if self.rows >= BLOCK_ROWS_MAX || self.entries >= 64 * BLOCK_ROWS_MAX {
            return self.flush();
        }
        Ok(())
    }

    /// Computes what was gathered.
    fn flush(&mut self) -> Result<(), OperatorError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut columns = Vec::with_capacity(self.gathered_schema.fields().len());
        for (_, values) in &mut self.current {
            columns.push(values.drain()?);
        }
        for navigation in &mut self.navigations {
            columns.push(match &mut navigation.kind {
                GatheredKind::Value { values, .. } | GatheredKind::Classifier { values, .. } | GatheredKind::MatchNumber { values } => {
                    values.drain()?
                }
                GatheredKind::Aggregate(aggregate) => aggregate.drain(self.groups, navigation.running)?,
            });
        }
        let rows = self.rows;
        (self.rows, self.groups, self.entries) = (0, 0, 0);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let gathered = RecordBatch::try_new_with_options(self.gathered_schema.clone(), columns, &options)?;
        let output =
            self.output.iter().map(|e| Ok(e.evaluate(&gathered)?.into_array(rows)?)).collect::<Result<Vec<ArrayRef>, OperatorError>>()?;
        self.blocks.push(Block::inserts(RecordBatch::try_new_with_options(self.schema.clone(), output, &options)?, self.arrival_ns));
        Ok(())
    }

    /// Whether at least a full block is ready.
    pub fn is_full(&self) -> bool {
        !self.blocks.is_empty() || self.rows >= BLOCK_ROWS_MAX
    }

    /// All that was put out since, in order.
    ///
    /// # Errors
    /// A value that an expression cannot compute.
    pub fn finish(&mut self) -> Result<Vec<Block>, OperatorError> {
        self.flush()?;
        Ok(std::mem::take(&mut self.blocks))
    }

    pub fn memory(&self) -> usize {
        self.current.iter().map(|(_, c)| c.memory()).sum::<usize>() + self.entries * 16
    }
}
