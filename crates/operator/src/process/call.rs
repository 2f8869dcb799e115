//! The operator of a function of values that is a process: each row gets one more column.
//!
//! Rows are sent in blocks, several are under way at once, over one or more processes, and come out in the
//! order in which they came. Before a barrier all that is under way comes out, so there is no state.

use std::collections::VecDeque;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, NO_WATERMARK, WATERMARK_END};

use super::Conversation;
use crate::map::Expr;
use crate::{Operator, OperatorError, OperatorStats, Output, Progress, Wake};

/// Rows that wait to be sent before the operator is full: as many as a source gives at once.
const QUEUE_ROWS_MAX: usize = 8192;

/// What [`ProcessCall`] is made of.
pub struct ProcessCallSpec {
    /// The arguments over the input's columns.
    pub arguments: Vec<Expr>,
    /// The arguments as they are sent.
    pub ask: SchemaRef,
    /// The input's columns and the function's value.
    pub schema: SchemaRef,
    /// The most rows in a message.
    pub rows_max: usize,
}

/// Calls a function for each row.
pub struct ProcessCall {
    spec: ProcessCallSpec,
    conversations: Vec<Box<dyn Conversation>>,
    /// Rows not yet sent, and their arguments.
    queue: VecDeque<(Block, RecordBatch)>,
    queued_rows: usize,
    /// Rows sent, in order.
    flights: VecDeque<Flight>,
    /// The conversation to be tried first.
    next: usize,
    /// Rows that came and rows that went, ever.
    taken: u64,
    emitted: u64,
    /// Watermarks that came behind so many rows.
    marks: VecDeque<(u64, i64)>,
    /// The newest watermark before which all rows have gone.
    done: i64,
    finished: bool,
}

/// A message under way.
struct Flight {
    conversation: usize,
    blocks: Vec<Block>,
    rows: usize,
}

impl ProcessCall {
    /// Calls over `conversations`, at least one.
    pub fn new(spec: ProcessCallSpec, conversations: Vec<Box<dyn Conversation>>) -> Self {
        assert!(!conversations.is_empty() && spec.rows_max > 0, "somebody must be asked, and for something");
        ProcessCall {
            spec,
            conversations,
            queue: VecDeque::new(),
            queued_rows: 0,
            flights: VecDeque::new(),
            next: 0,
            taken: 0,
            emitted: 0,
            marks: VecDeque::new(),
            done: NO_WATERMARK,
            finished: false,
        }
    }

    /// Sends what can be sent and passes on what has come back.
    fn work(&mut self, out: &mut Output) -> Result<(), OperatorError> {
        loop {
            self.send()?;
            if !self.receive(out)? || self.queue.is_empty() {
                return Ok(());
            }
        }
    }

    fn send(&mut self) -> Result<(), OperatorError> {
        while !self.queue.is_empty() {
            let all = self.conversations.len();
            let Some(free) = (0..all).map(|i| (self.next + i) % all).find(|c| !self.conversations[*c].full()) else { return Ok(()) };
            self.next = (free + 1) % all;
            let (mut blocks, mut asked, mut rows) = (Vec::new(), Vec::new(), 0);
            while rows < self.spec.rows_max
                && let Some((block, arguments)) = self.queue.pop_front()
            {
                let room = self.spec.rows_max - rows;
                if block.rows() > room {
                    let rest = block.rows() - room;
                    self.queue.push_front((block.slice(room, rest), arguments.slice(room, rest)));
                    blocks.push(block.slice(0, room));
                    asked.push(arguments.slice(0, room));
                    rows += room;
                } else {
                    rows += block.rows();
                    blocks.push(block);
                    asked.push(arguments);
                }
            }
            self.queued_rows -= rows;
            let message = match asked.as_slice() {
                [one] => one.clone(),
                // Without columns there is nothing to put together but the number of rows.
                _ if self.spec.ask.fields().is_empty() => self.arguments(Vec::new(), rows)?,
                many => arrow::compute::concat_batches(&self.spec.ask, many)?,
            };
            let conversation = &mut self.conversations[free];
            conversation.start()?;
            conversation.ask(message)?;
            self.flights.push_back(Flight { conversation: free, blocks, rows });
        }
        Ok(())
    }

    /// Whether an answer was there.
    fn receive(&mut self, out: &mut Output) -> Result<bool, OperatorError> {
        let mut any = false;
        while let Some(flight) = self.flights.front() {
            let Some(answer) = self.conversations[flight.conversation].answer(false)? else { break };
            any = true;
            let flight = self.flights.pop_front().expect("looked at above");
            if answer.num_rows() != flight.rows {
                return Err(OperatorError::new(format!(
                    "it was asked for {} rows and answered with {}; a function of values gives one value a row, in their order",
                    flight.rows,
                    answer.num_rows()
                )));
            }
            let values = answer.column(0);
            let mut at = 0;
            for block in flight.blocks {
                let mut columns = block.batch.columns().to_vec();
                columns.push(values.slice(at, block.rows()));
                at += block.rows();
                out.emit(block.with_batch(RecordBatch::try_new(self.spec.schema.clone(), columns)?));
            }
            self.emitted += flight.rows as u64;
        }
        while let Some((_, watermark)) = self.marks.front().filter(|(at, _)| *at <= self.emitted) {
            self.done = *watermark;
            self.marks.pop_front();
        }
        Ok(any)
    }

    fn arguments(&self, columns: Vec<arrow::array::ArrayRef>, rows: usize) -> Result<RecordBatch, OperatorError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.spec.ask.clone(), columns, &options)?)
    }
}

impl Operator for ProcessCall {
    fn name(&self) -> &'static str {
        "ProcessCall"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        let rows = block.rows();
        if rows == 0 {
            return Ok(());
        }
        let columns = self
            .spec
            .arguments
            .iter()
            .map(|e| Ok(e.evaluate(&block.batch)?.into_array(rows)?))
            .collect::<Result<Vec<_>, OperatorError>>()?;
        let arguments = self.arguments(columns, rows)?;
        self.taken += rows as u64;
        self.queued_rows += rows;
        self.queue.push_back((block, arguments));
        self.work(out)
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        match self.marks.back_mut() {
            Some((at, newest)) if *at == self.taken => *newest = watermark,
            _ => self.marks.push_back((self.taken, watermark)),
        }
        self.work(out)?;
        if watermark != WATERMARK_END {
            return Ok(Progress::Done);
        }
        if self.holds() {
            return Ok(Progress::Waiting);
        }
        if !self.finished {
            for conversation in &mut self.conversations {
                if !conversation.finish()? {
                    return Ok(Progress::Waiting);
                }
            }
            self.finished = true;
        }
        Ok(Progress::Done)
    }

    fn output_watermark(&self, watermark: i64) -> i64 {
        self.done.min(watermark)
    }

    fn attach(&mut self, wake: Wake) {
        self.conversations.iter_mut().for_each(|c| c.attach(wake.clone()));
    }

    fn waits(&self) -> bool {
        true
    }

    fn poll(&mut self, out: &mut Output) -> Result<(), OperatorError> {
        if self.holds() { self.work(out) } else { Ok(()) }
    }

    fn full(&self) -> bool {
        self.queued_rows >= QUEUE_ROWS_MAX
    }

    fn holds(&self) -> bool {
        !self.flights.is_empty() || !self.queue.is_empty()
    }

    fn drains(&self) -> bool {
        true
    }

    fn stats(&self) -> OperatorStats {
        let queued = self.queue.iter().map(|(block, _)| block.memory()).sum::<usize>();
        let sent: usize = self.flights.iter().flat_map(|f| &f.blocks).map(Block::memory).sum();
        let under_way: usize = self.conversations.iter().map(|c| c.memory()).sum();
        let entries = self.taken - self.emitted;
        OperatorStats { entries, memory: (queued + sent + under_way) as u64, ..OperatorStats::default() }
    }
}
