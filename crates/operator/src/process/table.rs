//! The operator of a function of tables that is a process: blocks go there and come back, between them
//! watermarks, checkpoints and, at the beginning, what a checkpoint held.
//!
//! With a time column rows are sent in its order, when the watermark has passed them, so that what comes
//! back does not depend on how they arrived. Before a barrier all that is under way comes out; then the
//! process is asked for its state, and the worker waits for it.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, NO_WATERMARK, WATERMARK_END};
use tidemill_state::{StateTable, hash};

use super::control;
use super::{Conversation, Handshake, StateKind};
use crate::held::Held;
use crate::over::times::TimeColumn;
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output, Progress, Wake};

/// Rows that wait to be sent before the operator is full.
const QUEUE_ROWS_MAX: usize = 8192;

/// What [`ProcessTable`] is made of.
#[derive(Clone)]
pub struct ProcessTableSpec {
    /// The input's columns.
    pub input: SchemaRef,
    /// Those that rows are divided by; the first columns of the output.
    pub keys: Vec<usize>,
    /// The one that rows are ordered by.
    pub time: Option<usize>,
    /// The output's columns: the keys, what the function gives, the time if there is one.
    pub schema: SchemaRef,
    /// The most rows in a message.
    pub rows_max: usize,
}

/// Something to be sent.
enum Step {
    Rows(Block),
    Watermark(i64),
    Restore(RecordBatch),
}

/// What the next answer will be an answer to.
enum Expect {
    Rows(u64),
    Watermark(i64),
    Restore,
    /// Not an answer: what is before it are those to rows before this watermark.
    Mark(i64),
}

/// Sends rows to a process and emits what it gives back.
pub struct ProcessTable {
    spec: ProcessTableSpec,
    ask: SchemaRef,
    conversation: Box<dyn Conversation>,
    started: bool,
    /// Something has been asked.
    spoken: bool,
    handshake: Option<Handshake>,
    /// Rows that wait for the watermark.
    held: Option<Held>,
    steps: VecDeque<Step>,
    queued_rows: usize,
    /// Steps that are not watermarks.
    work: usize,
    expects: VecDeque<Expect>,
    /// The newest watermark all answers before which have come.
    done: i64,
    ended: bool,
    finished: bool,
    /// The shard and their number.
    place: (usize, usize),
}

impl ProcessTable {
    /// Talks over `conversation`.
    pub fn new(spec: ProcessTableSpec, conversation: Box<dyn Conversation>) -> Self {
        assert!(spec.rows_max > 0, "messages hold rows");
        ProcessTable {
            ask: ProcessTable::ask_schema(&spec.input),
            held: spec.time.map(|time| Held::new("a function of tables with on_time", spec.input.clone(), time, Vec::new())),
            spec,
            conversation,
            started: false,
            spoken: false,
            handshake: None,
            steps: VecDeque::new(),
            queued_rows: 0,
            work: 0,
            expects: VecDeque::new(),
            done: NO_WATERMARK,
            ended: false,
            finished: false,
            place: (0, 1),
        }
    }

    /// The columns of the messages about rows with the columns of `input`.
    pub fn ask_schema(input: &SchemaRef) -> SchemaRef {
        control::ask_schema(input)
    }

    fn push(&mut self, step: Step) {
        match (&step, self.steps.back_mut()) {
            (Step::Watermark(watermark), Some(Step::Watermark(newest))) => {
                *newest = *watermark;
                return;
            }
            (Step::Rows(block), _) => {
                self.queued_rows += block.rows();
                self.work += 1;
            }
            (Step::Restore(_), _) => self.work += 1,
            _ => {}
        }
        self.steps.push_back(step);
    }

    /// Sends what can be sent and passes on what has come back.
    fn work(&mut self, out: &mut Output) -> Result<(), OperatorError> {
        loop {
            self.send()?;
            if !self.receive(out)? || self.steps.is_empty() {
                return Ok(());
            }
        }
    }

    fn send(&mut self) -> Result<(), OperatorError> {
        if !self.started {
            if self.work == 0 {
                // Nobody is started to be told the time.
                while let Some(Step::Watermark(watermark)) = self.steps.pop_front() {
                    self.done = watermark;
                }
                return Ok(());
            }
            self.conversation.start()?;
            self.started = true;
        }
        while let Some(step) = self.steps.front() {
            if let Step::Watermark(watermark) = step {
                let watermark = *watermark;
                if self.spoken {
                    // What the process says of itself may come with its first answer only.
                    let Some(handshake) = self.known()? else { return Ok(()) };
                    if handshake.watermarks {
                        if self.conversation.full() {
                            return Ok(());
                        }
                        self.conversation.ask(control::word(&self.ask, &format!("watermark {watermark}"))?)?;
                        self.expects.push_back(Expect::Watermark(watermark));
                        self.steps.pop_front();
                        continue;
                    }
                }
                self.steps.pop_front();
                match self.expects.back_mut() {
                    None => self.done = watermark,
                    Some(Expect::Mark(newest)) => *newest = watermark,
                    Some(_) => self.expects.push_back(Expect::Mark(watermark)),
                }
                continue;
            }
            if self.conversation.full() {
                return Ok(());
            }
            self.spoken = true;
            match self.steps.pop_front() {
                Some(Step::Restore(batch)) => {
                    self.work -= 1;
                    self.conversation.ask(batch)?;
                    self.expects.push_back(Expect::Restore);
                }
                Some(Step::Rows(block)) => self.send_rows(block)?,
                Some(Step::Watermark(_)) | None => {}
            }
        }
        Ok(())
    }

    /// What the process has said of itself, if it has.
    fn known(&mut self) -> Result<Option<Handshake>, OperatorError> {
        if self.handshake.is_none() {
            self.handshake = self.conversation.handshake(false)?;
        }
        Ok(self.handshake)
    }

    /// Sends a block, with those behind it if it is small, and not all of it if it is large.
    fn send_rows(&mut self, first: Block) -> Result<(), OperatorError> {
        let (mut batches, mut rows, mut arrival_ns) = (Vec::new(), 0, 0);
        let mut next = Some(first);
        while let Some(block) = next.take() {
            self.work -= 1;
            let room = self.spec.rows_max - rows;
            arrival_ns = block.arrival_ns.max(arrival_ns);
            if block.rows() > room {
                self.steps.push_front(Step::Rows(block.slice(room, block.rows() - room)));
                self.work += 1;
                batches.push(block.batch.slice(0, room));
                rows += room;
                break;
            }
            rows += block.rows();
            batches.push(block.batch);
            if rows < self.spec.rows_max && matches!(self.steps.front(), Some(Step::Rows(_))) {
                next = match self.steps.pop_front() {
                    Some(Step::Rows(block)) => Some(block),
                    _ => None,
                };
            }
        }
        self.queued_rows -= rows;
        let batch = match batches.as_slice() {
            [one] => one.clone(),
            many => concat_batches(&self.spec.input, many)?,
        };
        self.conversation.ask(control::rows(&self.ask, &batch)?)?;
        self.expects.push_back(Expect::Rows(arrival_ns));
        Ok(())
    }

    /// Whether an answer was there.
    fn receive(&mut self, out: &mut Output) -> Result<bool, OperatorError> {
        let mut any = false;
        loop {
            while let Some(Expect::Mark(watermark)) = self.expects.front() {
                self.done = *watermark;
                self.expects.pop_front();
            }
            if self.expects.is_empty() {
                return Ok(any);
            }
            let Some(answer) = self.conversation.answer(false)? else { return Ok(any) };
            any = true;
            let state = self.known()?.unwrap_or_default().state;
            match self.expects.pop_front().expect("not empty") {
                Expect::Restore if state == StateKind::None => {
                    return Err(OperatorError::new(
                        "a checkpoint holds state of this function, but it says that it keeps none; --fresh begins anew without it",
                    ));
                }
                Expect::Rows(arrival_ns) => self.emit(&answer, arrival_ns, out)?,
                Expect::Watermark(watermark) => {
                    self.emit(&answer, tidemill_block::clock::now_ns(), out)?;
                    self.done = watermark;
                }
                Expect::Restore if answer.num_rows() > 0 => {
                    return Err(OperatorError::new("it answered 'restore' with rows; that answer must be empty"));
                }
                Expect::Restore | Expect::Mark(_) => {}
            }
        }
    }

    fn emit(&self, answer: &RecordBatch, arrival_ns: u64, out: &mut Output) -> Result<(), OperatorError> {
        let rows = answer.num_rows();
        if rows == 0 {
            return Ok(());
        }
        let width = self.spec.schema.fields().len();
        if answer.num_columns() > width && answer.column(width).null_count() < rows {
            return Err(OperatorError::new("it gave state that it was not asked for: $state must be NULL in rows"));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.spec.schema.clone(), answer.columns()[..width].to_vec(), &options)?;
        if self.spec.time.is_some() {
            let times = TimeColumn::of(batch.column(width - 1))?;
            let least = times.all_ms().and_then(|t| t.iter().copied().min());
            match least {
                None => return Err(OperatorError::new("it gave a row whose rowtime is NULL")),
                Some(least) if least <= self.done => {
                    return Err(OperatorError::new(format!(
                        "it gave a row of the time {least} (ms since 1970), but everything up to {} had been answered already; \
                         a row's time is that of the rows it is made of, or later",
                        self.done
                    )));
                }
                Some(_) => {}
            }
        }
        for at in (0..rows).step_by(BLOCK_ROWS_MAX) {
            out.emit(Block::inserts(batch.slice(at, BLOCK_ROWS_MAX.min(rows - at)), arrival_ns));
        }
        Ok(())
    }

    fn key_hashes(&self, columns: &[ArrayRef], rows: usize) -> Result<Vec<u64>, OperatorError> {
        let mut hashes = Vec::new();
        hash::rows(columns, rows, &mut hashes)?;
        Ok(hashes)
    }

    /// Asks the process for its state.
    fn ask_state(&mut self, kind: StateKind) -> Result<Option<StateTable>, OperatorError> {
        if !self.expects.is_empty() || self.work > 0 {
            return Err(OperatorError::new("internal error: a barrier came before all was answered"));
        }
        self.conversation.ask(control::word(&self.ask, "checkpoint")?)?;
        let Some(answer) = self.conversation.answer(true)? else {
            return Err(OperatorError::new("internal error: no answer after waiting for it"));
        };
        let rows = answer.num_rows();
        let states = answer.column(self.spec.schema.fields().len());
        if states.null_count() > 0 {
            return Err(OperatorError::new("it answered 'checkpoint' with a row whose $state is NULL"));
        }
        match kind {
            StateKind::Keyed if rows > 0 => {
                let mut columns = answer.columns()[..self.spec.keys.len()].to_vec();
                let hashes = self.key_hashes(&columns, rows)?;
                columns.push(states.clone());
                Ok(Some(StateTable::keyed("state", hashes, columns)?))
            }
            StateKind::Opaque if rows == 1 => {
                let (shard, shards) = self.place;
                let batch = RecordBatch::try_from_iter([("state", states.clone())])?;
                Ok(Some(StateTable { name: format!("state {shard} of {shards}"), batch }))
            }
            StateKind::Opaque if rows > 1 => {
                Err(OperatorError::new(format!("it answered 'checkpoint' with {rows} rows; opaque state is one row")))
            }
            _ => Ok(None),
        }
    }

    fn restore_state(&mut self, table: &StateTable) -> Result<(), OperatorError> {
        let controls = |states: &ArrayRef| -> Vec<Vec<u8>> {
            states.as_binary::<i32>().iter().map(|s| [&b"restore "[..], s.unwrap_or_default()].concat()).collect()
        };
        if let Some(place) = table.name.strip_prefix("state ") {
            let (shard, shards) = self.place;
            match place.split_once(" of ") {
                Some((_, of)) if of != shards.to_string() => {
                    return Err(OperatorError::new(format!(
                        "its state was kept as a whole by each of {of} processes and cannot be divided among {shards}; go on with --parallelism {of}, \
                         or let the function keep its state by key"
                    )));
                }
                Some((of_shard, _)) if of_shard == shard.to_string() => {
                    self.push(Step::Restore(control::keyed(&self.ask, &[], &[], controls(table.batch.column(0)))?));
                }
                _ => {}
            }
            return Ok(());
        }
        let columns = table.columns();
        let (states, keys) = columns.split_last().ok_or_else(|| OperatorError::new("state of another shape"))?;
        for at in (0..states.len()).step_by(self.spec.rows_max) {
            let rows = self.spec.rows_max.min(states.len() - at);
            let keys: Vec<ArrayRef> = keys.iter().map(|k| k.slice(at, rows)).collect();
            self.push(Step::Restore(control::keyed(&self.ask, &self.spec.keys, &keys, controls(&states.slice(at, rows)))?));
        }
        Ok(())
    }
}

impl Operator for ProcessTable {
    fn name(&self) -> &'static str {
        "ProcessTable"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        match &mut self.held {
            Some(held) => return held.take_in(block),
            None if block.kinds.is_some() => {
                return Err(OperatorError::new("a function of tables needs an append-only input, but rows of this one are updated"));
            }
            None if block.rows() > 0 => self.push(Step::Rows(block)),
            None => {}
        }
        self.work(out)
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        if !self.ended {
            if let Some(held) = &mut self.held {
                held.release(watermark)?;
                let mut due = Vec::new();
                due.extend(std::iter::from_fn(|| held.next()));
                due.into_iter().for_each(|block| self.push(Step::Rows(block)));
            }
            self.push(Step::Watermark(watermark));
            self.ended = watermark == WATERMARK_END;
        }
        self.work(out)?;
        if watermark != WATERMARK_END || self.finished {
            return Ok(Progress::Done);
        }
        if self.done != WATERMARK_END || (self.started && !self.conversation.finish()?) {
            return Ok(Progress::Waiting);
        }
        self.finished = true;
        Ok(Progress::Done)
    }

    fn output_watermark(&self, watermark: i64) -> i64 {
        self.done.min(watermark)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let mut tables = Vec::new();
        if let Some(rows) = self.held.as_ref().map(Held::all).transpose()?.flatten() {
            let keys: Vec<ArrayRef> = self.spec.keys.iter().map(|k| rows.column(*k).clone()).collect();
            // Rows that are not divided by keys may go anywhere, but not all to one shard.
            let hashes = self.key_hashes(if keys.is_empty() { rows.columns() } else { &keys }, rows.num_rows())?;
            tables.push(StateTable::keyed("held", hashes, rows.columns().to_vec())?);
        }
        // One that is at its end has put all out that its state was for.
        if let Some(Handshake { state: kind @ (StateKind::Keyed | StateKind::Opaque), .. }) = self.handshake
            && !self.ended
        {
            tables.extend(self.ask_state(kind)?);
        }
        Ok(tables)
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            if table.name != "held" {
                self.restore_state(&table)?;
                continue;
            }
            match &mut self.held {
                Some(held) => held.restore(table.columns())?,
                None => return Err(OperatorError::new("state of another shape: rows that wait for a time")),
            }
        }
        Ok(())
    }

    fn place(&mut self, shard: usize, shards: usize) {
        self.place = (shard, shards);
    }

    fn attach(&mut self, wake: Wake) {
        self.conversation.attach(wake);
    }

    fn waits(&self) -> bool {
        true
    }

    fn poll(&mut self, out: &mut Output) -> Result<(), OperatorError> {
        if self.steps.is_empty() && self.expects.is_empty() { Ok(()) } else { self.work(out) }
    }

    fn full(&self) -> bool {
        self.queued_rows >= QUEUE_ROWS_MAX
    }

    fn holds(&self) -> bool {
        self.work > 0 || !self.expects.is_empty()
    }

    fn drains(&self) -> bool {
        true
    }

    fn stats(&self) -> OperatorStats {
        let held = self.held.as_ref();
        let queued: usize = self.steps.iter().map(|s| if let Step::Rows(block) = s { block.memory() } else { 0 }).sum();
        OperatorStats {
            entries: (held.map_or(0, Held::rows) + self.queued_rows) as u64,
            memory: (held.map_or(0, Held::memory) + queued + self.conversation.memory()) as u64,
            late_rows: held.map_or(0, Held::late_rows),
            ..OperatorStats::default()
        }
    }
}

/// The columns that a process answers with: those of the output, in each of which NULL may stand.
pub fn answer_schema(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
    Arc::new(arrow::datatypes::Schema::new(fields.collect::<Vec<_>>()))
}
