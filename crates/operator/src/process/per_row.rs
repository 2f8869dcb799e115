//! A layer over [`ProcessFunction`] for functions that would rather see one row of one key at a time. It
//! costs some hundred nanoseconds a row; a function that matters works on blocks.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef};
use datafusion_common::ScalarValue;

use super::asks::Answer;
use super::function::{Context, ProcessFunction, Rows, Setup, Timers};
use super::states::{MapState, StateValue, ValueState};
use crate::call::Calls;
use crate::{OperatorError, Wake};

/// A function that sees single rows. What is said of [`ProcessFunction`] holds for it.
pub trait RowFunction: Send {
    /// As [`ProcessFunction::open`].
    ///
    /// # Errors
    /// An input that the function cannot work on.
    fn open(&mut self, setup: &mut Setup<'_>) -> Result<(), OperatorError>;

    /// A row.
    ///
    /// # Errors
    /// Ends the job.
    fn on_row(&mut self, row: Row<'_>, context: &mut KeyContext<'_, '_>) -> Result<(), OperatorError>;

    /// A timer has fired; `event_time` says of which kind.
    ///
    /// # Errors
    /// Ends the job.
    fn on_timer(&mut self, _time: i64, _event_time: bool, _context: &mut KeyContext<'_, '_>) -> Result<(), OperatorError> {
        Ok(())
    }

    /// An answer has come.
    ///
    /// # Errors
    /// Ends the job.
    fn on_answer(&mut self, _answer: &Answer, _context: &mut KeyContext<'_, '_>) -> Result<(), OperatorError> {
        Ok(())
    }

    /// As [`ProcessFunction::calls`].
    ///
    /// # Errors
    /// They cannot be made.
    fn calls(&mut self, _wake: Wake) -> Result<Option<Box<dyn Calls>>, OperatorError> {
        Ok(None)
    }
}

/// A row of the input.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    batch: &'a RecordBatch,
    row: usize,
    /// Its event time, ms, with `on_time`.
    pub time: Option<i64>,
}

impl<'a> Row<'a> {
    /// The column's BIGINT; `None` if it is NULL.
    ///
    /// # Panics
    /// If the column is of another type.
    pub fn i64(&self, column: usize) -> Option<i64> {
        let values = self.batch.column(column).as_primitive::<Int64Type>();
        values.is_valid(self.row).then(|| values.value(self.row))
    }

    /// The column's DOUBLE; `None` if it is NULL.
    ///
    /// # Panics
    /// If the column is of another type.
    pub fn f64(&self, column: usize) -> Option<f64> {
        let values = self.batch.column(column).as_primitive::<Float64Type>();
        values.is_valid(self.row).then(|| values.value(self.row))
    }

    /// The column's STRING; `None` if it is NULL.
    ///
    /// # Panics
    /// If the column is of another type.
    pub fn text(&self, column: usize) -> Option<&'a str> {
        let values = self.batch.column(column).as_string::<i32>();
        values.is_valid(self.row).then(|| values.value(self.row))
    }

    /// The column's value, of whatever type.
    ///
    /// # Errors
    /// A type that has no scalar values.
    pub fn value(&self, column: usize) -> Result<ScalarValue, OperatorError> {
        Ok(ScalarValue::try_from_array(self.batch.column(column), self.row)?)
    }

    /// The batch in which the row stands, and where.
    pub fn place(&self) -> (&'a RecordBatch, usize) {
        (self.batch, self.row)
    }
}

/// What the rows of a call have emitted.
#[derive(Default)]
struct Emitted {
    origins: Vec<u32>,
    /// Values by column.
    columns: Vec<Vec<ScalarValue>>,
}

/// What a function works with while it is called for one key.
pub struct KeyContext<'c, 'a> {
    context: &'c mut Context<'a>,
    emitted: &'c mut Emitted,
    types: &'c [DataType],
    origin: usize,
    slot: u32,
}

impl KeyContext<'_, '_> {
    /// The value kept for the key.
    pub fn get<T: StateValue>(&self, state: ValueState<T>) -> Option<&T> {
        self.context.get(state, self.slot)
    }

    /// Keeps a value for the key; `None` forgets it.
    pub fn set<T: StateValue>(&mut self, state: ValueState<T>, value: Option<T>) {
        self.context.set(state, self.slot, value);
    }

    /// The value of an entry in the key's map.
    pub fn map_get(&self, state: MapState, key: &[u8]) -> Option<&[u8]> {
        self.context.map_get(state, self.slot, key)
    }

    /// Sets an entry in the key's map; `None` removes it.
    pub fn map_set(&mut self, state: MapState, key: &[u8], value: Option<&[u8]>) {
        self.context.map_set(state, self.slot, key, value);
    }

    /// The entries of the key's map, in the order of their bytes.
    pub fn map_entries(&self, state: MapState) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.context.map_entries(state, self.slot)
    }

    /// Forgets everything that is kept for the key; its timers stay.
    pub fn clear(&mut self) {
        self.context.clear(self.slot);
    }

    /// As [`Context::set_event_timer`].
    ///
    /// # Errors
    /// As there.
    pub fn set_event_timer(&mut self, time: i64) -> Result<(), OperatorError> {
        self.context.set_event_timer(self.slot, time)
    }

    /// As [`Context::cancel_event_timer`].
    pub fn cancel_event_timer(&mut self, time: i64) {
        self.context.cancel_event_timer(self.slot, time);
    }

    /// As [`Context::set_processing_timer`].
    ///
    /// # Errors
    /// As there.
    pub fn set_processing_timer(&mut self, time: i64) -> Result<(), OperatorError> {
        self.context.set_processing_timer(self.slot, time)
    }

    /// Asks something outside with a row; see [`Context::ask`].
    ///
    /// # Errors
    /// Calls were not declared.
    pub fn ask(&mut self, rows: &RecordBatch, row: usize) -> Result<(), OperatorError> {
        self.context.ask(self.origin, rows, row)
    }

    /// Emits a row of the function's columns.
    ///
    /// # Errors
    /// Not as many values as columns, or one of another type.
    pub fn emit(&mut self, values: impl IntoIterator<Item = ScalarValue>) -> Result<(), OperatorError> {
        let mut given = 0;
        for value in values {
            let Some(data_type) = self.types.get(given) else { break };
            let value = match value {
                ScalarValue::Null => ScalarValue::try_from(data_type)?,
                value if value.data_type() == *data_type => value,
                value => {
                    return Err(OperatorError::new(format!("the function emits {value:?} for a column of type {data_type}")));
                }
            };
            self.emitted.columns[given].push(value);
            given += 1;
        }
        if given != self.types.len() {
            return Err(OperatorError::new(format!("the function emits {given} values for {} columns", self.types.len())));
        }
        self.emitted.origins.push(self.origin as u32);
        Ok(())
    }

    /// How far event time has come, ms.
    pub fn watermark(&self) -> i64 {
        self.context.watermark()
    }

    /// The input has ended.
    pub fn ended(&self) -> bool {
        self.context.ended()
    }
}

/// Runs a [`RowFunction`] as a [`ProcessFunction`].
pub struct PerRow<F> {
    function: F,
    schema: Option<SchemaRef>,
    types: Vec<DataType>,
}

impl<F: RowFunction> PerRow<F> {
    /// Of this function.
    pub fn new(function: F) -> Self {
        PerRow { function, schema: None, types: Vec::new() }
    }

    /// Calls the function for each of `count` things and emits what it gave.
    fn each(
        &mut self,
        count: usize,
        slots: &[u32],
        context: &mut Context<'_>,
        mut act: impl FnMut(&mut F, usize, &mut KeyContext<'_, '_>) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        let mut emitted = Emitted { origins: Vec::new(), columns: vec![Vec::new(); self.types.len()] };
        for origin in 0..count {
            let mut of_key = KeyContext { context: &mut *context, emitted: &mut emitted, types: &self.types, origin, slot: slots[origin] };
            act(&mut self.function, origin, &mut of_key)?;
        }
        if emitted.origins.is_empty() {
            return Ok(());
        }
        let columns = emitted.columns.into_iter().map(ScalarValue::iter_to_array).collect::<Result<Vec<ArrayRef>, _>>()?;
        let schema = self.schema.clone().expect("opened before it is called");
        let options = RecordBatchOptions::new().with_row_count(Some(emitted.origins.len()));
        context.emit(&RecordBatch::try_new_with_options(schema, columns, &options)?, &emitted.origins)
    }
}

impl<F: RowFunction> ProcessFunction for PerRow<F> {
    fn open(&mut self, setup: &mut Setup<'_>) -> Result<(), OperatorError> {
        let fields: Vec<_> = setup.output().iter().map(|f| f.clone().with_nullable(true)).collect();
        self.types = fields.iter().map(|f| f.data_type().clone()).collect();
        self.schema = Some(std::sync::Arc::new(arrow::datatypes::Schema::new(fields)));
        self.function.open(setup)
    }

    fn on_rows(&mut self, rows: &Rows<'_>, context: &mut Context<'_>) -> Result<(), OperatorError> {
        self.each(rows.len(), rows.slots(), context, |function, i, context| {
            let row = Row { batch: rows.whole(), row: rows.start() + i, time: rows.times().map(|t| t[i]) };
            function.on_row(row, context)
        })
    }

    fn on_timers(&mut self, timers: &Timers<'_>, context: &mut Context<'_>) -> Result<(), OperatorError> {
        self.each(timers.slots.len(), timers.slots, context, |function, _, context| {
            function.on_timer(timers.time, timers.event_time, context)
        })
    }

    fn on_answers(&mut self, answers: &[Answer], context: &mut Context<'_>) -> Result<(), OperatorError> {
        let slots: Vec<u32> = answers.iter().map(|a| a.slot).collect();
        self.each(answers.len(), &slots, context, |function, i, context| function.on_answer(&answers[i], context))
    }

    fn calls(&mut self, wake: Wake) -> Result<Option<Box<dyn Calls>>, OperatorError> {
        self.function.calls(wake)
    }
}
