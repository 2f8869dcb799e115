//! The operator that runs a [`ProcessFunction`].

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use tidemill_block::{Block, NO_WATERMARK, WATERMARK_END, clock};
use tidemill_state::{KeyTable, Slots, StateTable};

use super::asks::{Answer, Asks};
use super::function::{Context, Occasion, ProcessFunction, Rows, Setup, Timers};
use super::states::States;
use super::timers::TimerSet;
use crate::held::Held;
use crate::over::times::TimeColumn;
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output, Progress, Wake};

/// How many timers may fire behind the end of the input beside those that were there: timers that set each
/// other for ever must not keep a job from ending.
const END_TIMERS_MAX: u64 = 1_000_000;
/// How many times of the clock are worked on before others have their turn: a timer may set one that is due at once.
const FIRES_MAX: usize = 64;
/// Parts the names of columns in the name of a state table.
const NAMES: char = '\u{1f}';

fn rows_of(out: &Output) -> usize {
    out.blocks.iter().map(Block::rows).sum()
}

/// What [`ProcessNative`] is made of.
#[derive(Clone)]
pub struct NativeSpec {
    /// The input's columns.
    pub input: SchemaRef,
    /// Those that rows are divided by; the first columns of the output.
    pub keys: Vec<usize>,
    /// The one that rows are ordered by.
    pub time: Option<usize>,
    /// The output's columns: the keys, what the function gives, the time if there is one.
    pub schema: SchemaRef,
}

/// A block whose turn has come.
struct Due {
    block: Block,
    slots: Vec<u32>,
    times: Vec<i64>,
    at: usize,
}

/// Runs a function over the keys of a shard.
pub struct ProcessNative {
    spec: NativeSpec,
    function: Box<dyn ProcessFunction>,
    keys: KeyTable,
    states: States,
    event: Option<TimerSet>,
    processing: Option<TimerSet>,
    asks: Option<Asks>,
    held: Option<Held>,
    due: Option<Due>,
    /// Slots that may no longer be needed; looked at when no block is being worked on.
    touched: Vec<u32>,
    watermark: i64,
    /// The newest watermark but that of the end: no output may lie behind it.
    passed: i64,
    /// The newest event time that was worked on.
    newest: i64,
    /// How many more timers may fire once all rows have been given.
    end_timers: Option<u64>,
    /// Kept for their memory.
    slots: Slots,
    answers: Vec<Answer>,
    /// What went wrong in [`Operator::attach`].
    broken: Option<OperatorError>,
}

impl ProcessNative {
    /// Runs `function`.
    ///
    /// # Errors
    /// Keys that cannot be keys; what the function says of its input.
    pub fn new(spec: NativeSpec, mut function: Box<dyn ProcessFunction>) -> Result<Self, OperatorError> {
        let types: Vec<DataType> = spec.keys.iter().map(|k| spec.input.field(*k).data_type().clone()).collect();
        let mut states = States::default();
        let (from, until) = (spec.keys.len(), spec.schema.fields().len() - usize::from(spec.time.is_some()));
        let output: Vec<Field> = spec.schema.fields()[from..until].iter().map(|f| f.as_ref().clone()).collect();
        let mut setup = Setup {
            input: &spec.input,
            output: &output,
            ordered: spec.time.is_some(),
            states: &mut states,
            event_timers: false,
            processing_timers: false,
            calls: None,
        };
        function.open(&mut setup)?;
        let (event_timers, processing_timers, calls) = (setup.event_timers, setup.processing_timers, setup.calls);
        Ok(ProcessNative {
            keys: KeyTable::new(types)?,
            held: spec.time.map(|time| Held::new("a function of tables with on_time", spec.input.clone(), time, Vec::new())),
            spec,
            function,
            states,
            event: event_timers.then(TimerSet::default),
            processing: processing_timers.then(TimerSet::default),
            asks: calls.map(Asks::new),
            due: None,
            touched: Vec::new(),
            watermark: NO_WATERMARK,
            passed: NO_WATERMARK,
            newest: NO_WATERMARK,
            end_timers: None,
            slots: Slots::default(),
            answers: Vec::new(),
            broken: None,
        })
    }

    fn grow(&mut self) {
        let slots = self.keys.capacity();
        self.states.grow(slots);
        [&mut self.event, &mut self.processing].into_iter().flatten().for_each(|t| t.grow(slots));
    }

    /// The slots of the keys of a batch, new ones entered.
    fn intern(&mut self, columns: &[ArrayRef], rows: usize) -> Result<Vec<u32>, OperatorError> {
        self.keys.intern(columns, rows, &mut self.slots)?;
        self.grow();
        Ok(self.slots.slots.clone())
    }

    fn take_up(&mut self, block: Block) -> Result<Due, OperatorError> {
        let columns: Vec<ArrayRef> = self.spec.keys.iter().map(|k| block.column(*k).clone()).collect();
        let slots = self.intern(&columns, block.rows())?;
        let times = match self.spec.time {
            None => Vec::new(),
            Some(time) => {
                let times = TimeColumn::of(block.column(time))?.all_ms();
                times.ok_or_else(|| OperatorError::new("internal error: a row without a time was held"))?.into_owned()
            }
        };
        Ok(Due { block, slots, times, at: 0 })
    }

    /// Calls the function with a context.
    fn call(
        &mut self,
        occasion: Occasion,
        (slots, times): (&[u32], &[i64]),
        arrival_ns: u64,
        out: &mut Output,
        act: impl FnOnce(&mut dyn ProcessFunction, &mut Context<'_>) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        let mut context = Context {
            states: &mut self.states,
            event: self.event.as_mut(),
            processing: self.processing.as_mut(),
            asks: self.asks.as_mut(),
            keys: &self.keys,
            touched: &mut self.touched,
            out,
            schema: &self.spec.schema,
            keyed: self.spec.keys.len(),
            ordered: self.spec.time.is_some(),
            occasion,
            slots,
            times,
            watermark: self.watermark,
            passed: self.passed,
            ended: self.watermark == WATERMARK_END && self.due.is_none() && occasion != Occasion::Rows,
            arrival_ns,
        };
        act(self.function.as_mut(), &mut context)?;
        self.touched.extend_from_slice(slots);
        Ok(())
    }

    /// Gives rows of a block to the function.
    fn rows(&mut self, due: &Due, until: usize, out: &mut Output) -> Result<(), OperatorError> {
        let range = due.at..until;
        let slots = &due.slots[range.clone()];
        let times = if due.times.is_empty() { &[][..] } else { &due.times[range.clone()] };
        self.newest = times.last().copied().map_or(self.newest, |t| t.max(self.newest));
        let rows = Rows { batch: &due.block.batch, range, slots, times: (!times.is_empty()).then_some(times) };
        self.call(Occasion::Rows, (slots, times), due.block.arrival_ns, out, |function, context| function.on_rows(&rows, context))
    }

    /// Fires the timers of the first time.
    fn fire(&mut self, event_time: bool, out: &mut Output) -> Result<(), OperatorError> {
        let timers = if event_time { &mut self.event } else { &mut self.processing };
        let Some((time, slots)) = timers.as_mut().and_then(|t| t.take_first(BLOCK_ROWS_MAX)) else { return Ok(()) };
        // Event time does not run by the clock: what is emitted then is of the newest time there is.
        let of = if event_time { time } else { self.newest.max(self.passed.saturating_add(1)) };
        self.newest = self.newest.max(of);
        let times = vec![of; slots.len()];
        let occasion = if event_time { Occasion::EventTimers } else { Occasion::ProcessingTimers };
        let timers = Timers { time, event_time, slots: &slots };
        self.call(occasion, (&slots, &times), clock::now_ns(), out, |function, context| function.on_timers(&timers, context))
    }

    /// Gives rows and timers to the function, in order of time; whether there is more to do.
    fn advance(&mut self, out: &mut Output) -> Result<Progress, OperatorError> {
        loop {
            if self.due.is_none()
                && let Some(block) = self.held.as_mut().and_then(Held::next)
            {
                self.due = Some(self.take_up(block)?);
            }
            let first = self.event.as_ref().and_then(TimerSet::first);
            if let Some(mut due) = self.due.take() {
                let now = due.times[due.at];
                if first.is_some_and(|timer| timer < now) {
                    self.due = Some(due);
                    self.fire(true, out)?;
                } else {
                    // Timers may be set for times between those of rows: then a call is for one time.
                    let rows = due.block.rows();
                    let until = if self.event.is_some() { due.at + due.times[due.at..].partition_point(|t| *t == now) } else { rows };
                    self.rows(&due, until, out)?;
                    due.at = until;
                    self.due = (until < rows).then_some(due);
                }
            } else if first.is_some_and(|timer| timer <= self.watermark) {
                self.count_end()?;
                self.fire(true, out)?;
            } else {
                self.forget();
                return Ok(Progress::Done);
            }
            if rows_of(out) >= BLOCK_ROWS_MAX {
                return Ok(Progress::More);
            }
        }
    }

    fn count_end(&mut self) -> Result<(), OperatorError> {
        if self.watermark != WATERMARK_END {
            return Ok(());
        }
        let there = self.event.as_ref().map_or(0, TimerSet::len) as u64;
        let left = self.end_timers.get_or_insert(there + END_TIMERS_MAX);
        *left = left.saturating_sub(1);
        if *left == 0 {
            return Err(OperatorError::new(
                "the function goes on setting timers after the end of its input, which would never end; it must not set one when Context::ended()",
            ));
        }
        Ok(())
    }

    /// Makes calls and gives their answers to the function.
    fn serve_asks(&mut self, out: &mut Output) -> Result<(), OperatorError> {
        loop {
            let Some(asks) = &mut self.asks else { return Ok(()) };
            let mut answers = std::mem::take(&mut self.answers);
            asks.work(&mut answers)?;
            if answers.is_empty() {
                self.answers = answers;
                return Ok(());
            }
            let slots: Vec<u32> = answers.iter().map(|a| a.slot).collect();
            let times: Vec<i64> = answers.iter().map(|a| a.time).collect();
            self.call(Occasion::Answers, (&slots, &times), clock::now_ns(), out, |function, context| {
                function.on_answers(&answers, context)
            })?;
            answers.clear();
            self.answers = answers;
            if self.due.is_none() {
                self.forget();
            }
        }
    }

    /// Lets keys go for which nothing is kept any more.
    fn forget(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for slot in touched.drain(..) {
            let timers = [&self.event, &self.processing].into_iter().flatten().any(|t| t.has(slot));
            if !timers && !self.states.is_set(slot) && self.asks.as_ref().is_none_or(|a| !a.has(slot)) {
                self.keys.remove(slot);
            }
        }
        self.touched = touched;
    }

    fn table(&self, name: String, slots: &[u32], more: Vec<ArrayRef>) -> Result<StateTable, OperatorError> {
        let mut columns = self.keys.keys(slots)?;
        columns.extend(more);
        Ok(StateTable::keyed(name, slots.iter().map(|s| self.keys.hash(*s)).collect(), columns)?)
    }

    /// `names` are those of the columns of the rows, in the name of the table behind a number.
    fn restore_asks(&mut self, names: &str, slots: &[u32], columns: &[ArrayRef]) -> Result<(), OperatorError> {
        let Some(asks) = &mut self.asks else { return Ok(()) };
        let times = columns[0].as_primitive::<Int64Type>();
        let names: Vec<&str> = names.split(NAMES).skip(1).collect();
        let name = |i: usize| names.get(i).copied().filter(|_| names.len() == columns.len() - 1).unwrap_or_default();
        let fields: Vec<Field> = columns[1..].iter().enumerate().map(|(i, c)| Field::new(name(i), c.data_type().clone(), true)).collect();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(slots.len()));
        let rows = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns[1..].to_vec(), &options)?;
        for (row, slot) in slots.iter().enumerate() {
            asks.ask(*slot, times.value(row), rows.slice(row, 1));
        }
        Ok(())
    }
}

impl Operator for ProcessNative {
    fn name(&self) -> &'static str {
        "ProcessTable"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        if let Some(held) = &mut self.held {
            return held.take_in(block);
        }
        if block.kinds.is_some() {
            return Err(OperatorError::new("a function of tables needs an append-only input, but rows of this one are updated"));
        }
        if block.rows() > 0 {
            let rows = block.rows();
            let due = self.take_up(block)?;
            self.rows(&due, rows, out)?;
            self.serve_asks(out)?;
            self.forget();
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        self.watermark = self.watermark.max(watermark);
        if watermark != WATERMARK_END {
            self.passed = self.passed.max(watermark);
        }
        if let Some(held) = &mut self.held {
            held.release(watermark)?;
        }
        if self.advance(out)? == Progress::More {
            return Ok(Progress::More);
        }
        self.serve_asks(out)?;
        if watermark != WATERMARK_END {
            return Ok(Progress::Done);
        }
        // Nothing is lost at the end: what waits for the clock comes now.
        while self.processing.as_ref().is_some_and(|t| t.first().is_some()) {
            self.fire(false, out)?;
            if rows_of(out) >= BLOCK_ROWS_MAX {
                return Ok(Progress::More);
            }
        }
        self.serve_asks(out)?;
        if self.asks.as_ref().is_some_and(|a| a.len() > 0) {
            return Ok(Progress::Waiting);
        }
        // An answer or a timer of the clock may have set one of event time.
        Ok(if self.event.as_ref().is_some_and(|t| t.first().is_some()) { Progress::More } else { Progress::Done })
    }

    fn output_watermark(&self, watermark: i64) -> i64 {
        // An answer is of the time at which was asked.
        self.asks.as_ref().and_then(Asks::earliest).map_or(watermark, |time| watermark.min(time.saturating_sub(1)))
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let mut tables = Vec::new();
        if let Some(rows) = self.held.as_ref().map(Held::all).transpose()?.flatten() {
            let keys: Vec<ArrayRef> = self.spec.keys.iter().map(|k| rows.column(*k).clone()).collect();
            let mut hashes = Vec::new();
            tidemill_state::hash::rows(&keys, rows.num_rows(), &mut hashes)?;
            tables.push(StateTable::keyed("held", hashes, rows.columns().to_vec())?);
        }
        let used = self.keys.slots();
        if !used.is_empty() {
            for (name, column) in self.states.save(&used) {
                tables.push(self.table(format!("value {name}"), &used, vec![column])?);
            }
        }
        for (name, slots, keys, values) in self.states.save_maps() {
            if !slots.is_empty() {
                tables.push(self.table(format!("map {name}"), &slots, vec![keys, values])?);
            }
        }
        for (name, timers) in [("event", &self.event), ("processing", &self.processing)] {
            if let Some(timers) = timers.as_ref().filter(|t| t.len() > 0) {
                let (slots, times) = timers.all();
                tables.push(self.table(format!("timers {name}"), &slots, vec![Arc::new(Int64Array::from(times))])?);
            }
        }
        if let Some(asks) = self.asks.as_ref().filter(|a| a.len() > 0) {
            // Rows of a function may be of different columns; those of the same are put together.
            let mut groups: Vec<(SchemaRef, Vec<u32>, Vec<i64>, Vec<&RecordBatch>)> = Vec::new();
            for (slot, time, row) in asks.all() {
                let same = |s: &Schema| {
                    let mut pairs = s.fields().iter().zip(row.schema_ref().fields());
                    s.fields().len() == row.num_columns() && pairs.all(|(a, b)| a.name() == b.name() && a.data_type() == b.data_type())
                };
                let at = groups.iter().position(|(schema, ..)| same(schema)).unwrap_or_else(|| {
                    groups.push((row.schema(), Vec::new(), Vec::new(), Vec::new()));
                    groups.len() - 1
                });
                groups[at].1.push(slot);
                groups[at].2.push(time);
                groups[at].3.push(row);
            }
            for (i, (schema, slots, times, rows)) in groups.into_iter().enumerate() {
                let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(times))];
                columns.extend(concat_batches(&schema, rows)?.columns().iter().cloned());
                // The function may know its columns by name.
                let names: String = schema.fields().iter().flat_map(|f| [NAMES.to_string(), f.name().clone()]).collect();
                tables.push(self.table(format!("asks {i}{names}"), &slots, columns)?);
            }
        }
        Ok(tables)
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            if table.name == "held" {
                match &mut self.held {
                    Some(held) => held.restore(table.columns())?,
                    None => return Err(OperatorError::new("state of another shape: rows that wait for a time")),
                }
                continue;
            }
            let (keys, more) = table
                .columns()
                .split_at_checked(self.spec.keys.len())
                .ok_or_else(|| OperatorError::new("state of another shape: too few columns"))?;
            let slots = self.intern(keys, table.batch.num_rows())?;
            let (kind, name) = table.name.split_once(' ').unwrap_or((&table.name, ""));
            match (kind, more) {
                ("value", [column]) => self.states.load(name, &slots, column)?,
                ("map", [keys, values]) => self.states.load_map(name, &slots, keys, values),
                ("timers", [times]) => {
                    let timers = if name == "event" { &mut self.event } else { &mut self.processing };
                    if let Some(timers) = timers {
                        let times = times.as_primitive::<Int64Type>();
                        slots.iter().enumerate().for_each(|(row, slot)| timers.set(*slot, times.value(row)));
                    }
                }
                ("asks", [_, ..]) => self.restore_asks(name, &slots, more)?,
                _ => return Err(OperatorError::new(format!("state of another shape: '{}'", table.name))),
            }
            self.touched.extend(slots);
        }
        self.forget();
        Ok(())
    }

    fn attach(&mut self, wake: Wake) {
        let Some(asks) = &mut self.asks else { return };
        match self.function.calls(wake) {
            Ok(Some(calls)) => asks.attach(calls),
            Ok(None) => {}
            Err(e) => self.broken = Some(e),
        }
    }

    fn waits(&self) -> bool {
        self.asks.is_some() || self.processing.is_some()
    }

    fn poll(&mut self, out: &mut Output) -> Result<(), OperatorError> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        self.serve_asks(out)?;
        if self.processing.as_ref().is_some_and(|t| t.len() > 0) {
            let now = clock::wall_ms();
            for _ in 0..FIRES_MAX {
                let due = self.processing.as_ref().and_then(TimerSet::first).is_some_and(|time| time <= now);
                if !due || rows_of(out) >= BLOCK_ROWS_MAX {
                    break;
                }
                self.fire(false, out)?;
            }
            self.forget();
        }
        Ok(())
    }

    fn full(&self) -> bool {
        self.asks.as_ref().is_some_and(Asks::full)
    }

    fn holds(&self) -> bool {
        self.asks.as_ref().is_some_and(|a| a.len() > 0)
    }

    fn due(&self) -> Option<u64> {
        let timer = self.processing.as_ref().and_then(TimerSet::first);
        // A time may be as far away as its type has room for.
        let left = |time: i64| (time.saturating_sub(clock::wall_ms()).max(0) as u64).saturating_mul(1_000_000);
        let timer = timer.map(|time| clock::now_ns().saturating_add(left(time)));
        [timer, self.asks.as_ref().and_then(Asks::due)].into_iter().flatten().min()
    }

    fn stats(&self) -> OperatorStats {
        let held = self.held.as_ref();
        let timers: usize = [&self.event, &self.processing].into_iter().flatten().map(TimerSet::memory).sum();
        let asks = self.asks.as_ref();
        OperatorStats {
            entries: (self.keys.len() + held.map_or(0, Held::rows)) as u64,
            memory: (self.keys.memory() + self.states.memory() + timers + asks.map_or(0, Asks::memory) + held.map_or(0, Held::memory))
                as u64,
            late_rows: held.map_or(0, Held::late_rows),
            calls: asks.map(Asks::stats).unwrap_or_default(),
            ..OperatorStats::default()
        }
    }
}
