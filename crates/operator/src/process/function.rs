//! What the code of an embedding program implements to be an operator, and what it gets to work with.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, TimestampMillisecondArray, UInt32Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use tidemill_block::{Block, NO_WATERMARK};
use tidemill_state::KeyTable;

use super::asks::{Answer, AskOptions, Asks};
use super::states::{MapState, StateValue, States, ValueState};
use super::timers::TimerSet;
use crate::call::Calls;
use crate::{OperatorError, Output, Wake};

/// A function of tables in Rust: gets blocks, gives blocks, keeps state by key.
///
/// One instance works for one shard, and sees all rows of the keys that belong there. With `on_time` rows
/// come in order of event time, and timers of event time between them where they belong: all rows up to
/// and including the timer's time have come, none of a later time has. So what the function does with them
/// depends neither on blocks nor on parallelism nor on where a checkpoint fell, if it keeps nothing of its
/// own beside what it declares, and does not look at the clock. Without `on_time` rows come as they arrive.
///
/// [`super::PerRow`] turns a function that sees single rows into one of these.
pub trait ProcessFunction: Send {
    /// Called once before all else: declares state, and which timers and calls are used.
    ///
    /// # Errors
    /// An input that the function cannot work on.
    fn open(&mut self, setup: &mut Setup<'_>) -> Result<(), OperatorError>;

    /// Rows. With event-time timers all of them are of one time.
    ///
    /// # Errors
    /// Ends the job.
    fn on_rows(&mut self, rows: &Rows<'_>, context: &mut Context<'_>) -> Result<(), OperatorError>;

    /// Timers of one time have fired.
    ///
    /// # Errors
    /// Ends the job.
    fn on_timers(&mut self, _timers: &Timers<'_>, _context: &mut Context<'_>) -> Result<(), OperatorError> {
        Ok(())
    }

    /// Answers to what was asked by [`Context::ask`].
    ///
    /// # Errors
    /// Ends the job.
    fn on_answers(&mut self, _answers: &[Answer], _context: &mut Context<'_>) -> Result<(), OperatorError> {
        Ok(())
    }

    /// Who makes the calls, if [`Setup::use_calls`] was called. `wake` is to be called, from any thread, when
    /// answers are there.
    ///
    /// # Errors
    /// They cannot be made.
    fn calls(&mut self, _wake: Wake) -> Result<Option<Box<dyn Calls>>, OperatorError> {
        Ok(None)
    }
}

/// Makes the instances of a [`ProcessFunction`], one a shard, and knows its columns before.
pub trait ProcessFactory: Send + Sync {
    /// The columns that the function gives for an input of these columns. The keys of `PARTITION BY` come
    /// before them, the event time (with `on_time`) behind them, without its doing.
    ///
    /// # Errors
    /// One sentence on why it cannot take such an input.
    fn columns(&self, input: &Schema) -> Result<Vec<Field>, String>;

    /// A new instance.
    ///
    /// # Errors
    /// It cannot be made.
    fn create(&self) -> Result<Box<dyn ProcessFunction>, OperatorError>;
}

/// A factory of functions that give the same columns for any input.
pub fn factory<F>(columns: Vec<Field>, create: impl Fn() -> F + Send + Sync + 'static) -> Arc<dyn ProcessFactory>
where
    F: ProcessFunction + 'static,
{
    struct Plain<C> {
        columns: Vec<Field>,
        create: C,
    }
    impl<F: ProcessFunction + 'static, C: Fn() -> F + Send + Sync> ProcessFactory for Plain<C> {
        fn columns(&self, _input: &Schema) -> Result<Vec<Field>, String> {
            Ok(self.columns.clone())
        }
        fn create(&self) -> Result<Box<dyn ProcessFunction>, OperatorError> {
            Ok(Box::new((self.create)()))
        }
    }
    Arc::new(Plain { columns, create })
}

/// What a function says of itself in [`ProcessFunction::open`].
pub struct Setup<'a> {
    pub(super) input: &'a SchemaRef,
    pub(super) output: &'a [Field],
    pub(super) ordered: bool,
    pub(super) states: &'a mut States,
    pub(super) event_timers: bool,
    pub(super) processing_timers: bool,
    pub(super) calls: Option<AskOptions>,
}

impl Setup<'_> {
    /// The columns of the rows that will come.
    pub fn input(&self) -> &SchemaRef {
        self.input
    }

    /// The columns that the function gives.
    pub fn output(&self) -> &[Field] {
        self.output
    }

    /// Keeps a value for each key, under a name that stays the same from version to version.
    ///
    /// # Panics
    /// If there is one of the name already.
    pub fn value<T: StateValue>(&mut self, name: &str) -> ValueState<T> {
        self.states.declare(name)
    }

    /// Keeps a map for each key.
    ///
    /// # Panics
    /// If there is one of the name already.
    pub fn map(&mut self, name: &str) -> MapState {
        self.states.declare_map(name)
    }

    /// Timers of event time will be set.
    ///
    /// # Errors
    /// The function was called without `on_time`.
    pub fn use_event_timers(&mut self) -> Result<(), OperatorError> {
        if !self.ordered {
            return Err(OperatorError::new(
                "the function sets timers of event time: call it with on_time => DESCRIPTOR(rt), a column with a WATERMARK",
            ));
        }
        self.event_timers = true;
        Ok(())
    }

    /// Timers of processing time will be set. What the function does then depends on the clock.
    pub fn use_processing_timers(&mut self) {
        self.processing_timers = true;
    }

    /// Something outside will be asked.
    pub fn use_calls(&mut self, options: AskOptions) {
        self.calls = Some(options);
    }
}

/// Rows that a function gets.
pub struct Rows<'a> {
    pub(super) batch: &'a RecordBatch,
    pub(super) range: Range<usize>,
    pub(super) slots: &'a [u32],
    pub(super) times: Option<&'a [i64]>,
}

impl<'a> Rows<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Their columns, those of the input.
    pub fn batch(&self) -> RecordBatch {
        self.batch.slice(self.range.start, self.range.len())
    }

    /// The batch in which they stand without being cut out of it: row `i` is its row `start() + i`.
    pub fn whole(&self) -> &'a RecordBatch {
        self.batch
    }

    /// Where they begin in [`Rows::whole`].
    pub fn start(&self) -> usize {
        self.range.start
    }

    /// The slot of each row's key: a small number that stands for the key as long as anything is kept for
    /// it.
    pub fn slots(&self) -> &'a [u32] {
        self.slots
    }

    /// Event times, ms, with `on_time`.
    pub fn times(&self) -> Option<&'a [i64]> {
        self.times
    }
}

/// Timers that have fired.
pub struct Timers<'a> {
    /// Their time, ms.
    pub time: i64,
    /// Of event time; else of processing time.
    pub event_time: bool,
    /// The slots of their keys, ascending.
    pub slots: &'a [u32],
}

/// In what a function is called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    Rows,
    EventTimers,
    ProcessingTimers,
    Answers,
}

/// What a function works with while it is called.
pub struct Context<'a> {
    pub(super) states: &'a mut States,
    pub(super) event: Option<&'a mut TimerSet>,
    pub(super) processing: Option<&'a mut TimerSet>,
    pub(super) asks: Option<&'a mut Asks>,
    pub(super) keys: &'a KeyTable,
    pub(super) touched: &'a mut Vec<u32>,
    pub(super) out: &'a mut Output,
    /// The output: keys, the function's columns, the time.
    pub(super) schema: &'a SchemaRef,
    pub(super) keyed: usize,
    pub(super) ordered: bool,
    pub(super) occasion: Occasion,
    /// Of what the function was given: a slot and a time each.
    pub(super) slots: &'a [u32],
    pub(super) times: &'a [i64],
    pub(super) watermark: i64,
    /// The newest watermark but that of the end.
    pub(super) passed: i64,
    pub(super) ended: bool,
    pub(super) arrival_ns: u64,
}

impl Context<'_> {
    /// The value kept for a key.
    pub fn get<T: StateValue>(&self, state: ValueState<T>, slot: u32) -> Option<&T> {
        self.states.all(state)[slot as usize].as_ref()
    }

    /// The values of all keys, by slot: for loops over blocks.
    pub fn column<T: StateValue>(&self, state: ValueState<T>) -> &[Option<T>] {
        self.states.all(state)
    }

    /// Keeps a value for a key; `None` forgets it.
    pub fn set<T: StateValue>(&mut self, state: ValueState<T>, slot: u32, value: Option<T>) {
        self.states.set(state, slot, value);
    }

    /// The value of an entry in the map of a key.
    pub fn map_get(&self, state: MapState, slot: u32, key: &[u8]) -> Option<&[u8]> {
        self.states.map_get(state, slot, key)
    }

    /// Sets an entry in the map of a key; `None` removes it.
    pub fn map_set(&mut self, state: MapState, slot: u32, key: &[u8], value: Option<&[u8]>) {
        self.states.map_set(state, slot, key, value);
    }

    /// The entries of the map of a key, in the order of their bytes.
    pub fn map_entries(&self, state: MapState, slot: u32) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.states.map_entries(state, slot)
    }

    /// Forgets everything that is kept for a key; its timers stay.
    pub fn clear(&mut self, slot: u32) {
        self.states.clear(slot);
    }

    /// The columns of the keys at `slots`.
    ///
    /// # Errors
    /// None that slots of this call can cause.
    pub fn keys(&self, slots: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(self.keys.keys(slots)?)
    }

    /// Wants to be called again for a key when event time has come to `time` (ms): all rows up to and
    /// including that time have then been given.
    ///
    /// # Errors
    /// Such timers were not declared; the time lies before that of the rows, or is not behind that of the
    /// timers, which the function was called for.
    pub fn set_event_timer(&mut self, slot: u32, time: i64) -> Result<(), OperatorError> {
        let now = self.times.first().copied().unwrap_or(NO_WATERMARK);
        let wrong = match self.occasion {
            Occasion::Rows => time < now,
            Occasion::EventTimers => time <= now,
            Occasion::ProcessingTimers | Occasion::Answers => false,
        };
        if wrong {
            return Err(OperatorError::new(format!(
                "the function sets a timer for {time}, which is not after the time it works on, {now}"
            )));
        }
        let time = match self.occasion {
            Occasion::ProcessingTimers | Occasion::Answers => time.max(self.passed.saturating_add(1)),
            _ => time,
        };
        let Some(timers) = &mut self.event else {
            return Err(OperatorError::new("the function sets a timer of event time without Setup::use_event_timers"));
        };
        timers.set(slot, time);
        self.touched.push(slot);
        Ok(())
    }

    /// Takes a timer of event time back, if it is there.
    pub fn cancel_event_timer(&mut self, slot: u32, time: i64) {
        if let Some(timers) = &mut self.event {
            timers.cancel(slot, time);
        }
    }

    /// Wants to be called again for a key when the clock ([`tidemill_block::clock::wall_ms`]) has come to
    /// `time`, ms since 1970. Timers that have not fired when the input ends fire then.
    ///
    /// # Errors
    /// Such timers were not declared, or the input has ended.
    pub fn set_processing_timer(&mut self, slot: u32, time: i64) -> Result<(), OperatorError> {
        if self.ended {
            return Err(OperatorError::new(
                "the function sets a timer of processing time after the end of its input; look at Context::ended",
            ));
        }
        let Some(timers) = &mut self.processing else {
            return Err(OperatorError::new("the function sets a timer of processing time without Setup::use_processing_timers"));
        };
        timers.set(slot, time);
        self.touched.push(slot);
        Ok(())
    }

    /// Takes a timer of processing time back, if it is there.
    pub fn cancel_processing_timer(&mut self, slot: u32, time: i64) {
        if let Some(timers) = &mut self.processing {
            timers.cancel(slot, time);
        }
    }

    /// Asks something outside with row `row` of `rows`, on behalf of what has number `origin` among what the
    /// function was called with. The answer comes to [`ProcessFunction::on_answers`] with the row, which may
    /// hold whatever is needed then.
    ///
    /// # Errors
    /// Calls were not declared.
    pub fn ask(&mut self, origin: usize, rows: &RecordBatch, row: usize) -> Result<(), OperatorError> {
        let (slot, time) = (self.slots[origin], self.times.get(origin).copied().unwrap_or(NO_WATERMARK));
        let Some(asks) = &mut self.asks else {
            return Err(OperatorError::new("the function asks without Setup::use_calls"));
        };
        // A copy: a slice would keep the whole block for one of its rows.
        asks.ask(slot, time, take_record_batch(rows, &UInt32Array::from(vec![row as u32]))?);
        Ok(())
    }

    /// Emits rows of the function's columns. `origins` says for each which of the rows, timers or answers
    /// that the function was called with it belongs to: that gives it the key and the event time.
    ///
    /// # Errors
    /// Other columns than were declared.
    pub fn emit(&mut self, rows: &RecordBatch, origins: &[u32]) -> Result<(), OperatorError> {
        if rows.num_rows() != origins.len() {
            return Err(OperatorError::new(format!("the function emits {} rows with {} origins", rows.num_rows(), origins.len())));
        }
        if origins.is_empty() {
            return Ok(());
        }
        let mut columns = if self.keyed > 0 {
            let slots: Vec<u32> = origins.iter().map(|o| self.slots[*o as usize]).collect();
            self.keys.keys(&slots)?
        } else {
            Vec::new()
        };
        columns.extend(rows.columns().iter().cloned());
        if self.ordered {
            let times: ArrayRef = Arc::new(TimestampMillisecondArray::from_iter_values(origins.iter().map(|o| self.times[*o as usize])));
            let data_type = self.schema.field(self.schema.fields().len() - 1).data_type();
            columns.push(if times.data_type() == data_type { times } else { cast(&times, data_type)? });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(origins.len()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|e| OperatorError::new(format!("the function emits other columns than it declared: {e}")))?;
        self.out.emit(Block::inserts(batch, self.arrival_ns));
        Ok(())
    }

    /// How far event time has come, ms.
    pub fn watermark(&self) -> i64 {
        self.watermark
    }

    /// The input has ended: what comes now are timers and answers that were still to come. Which these are
    /// depends on when the last watermark came, so it should only keep a function from going on for ever.
    pub fn ended(&self) -> bool {
        self.ended
    }
}
