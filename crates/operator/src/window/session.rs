//! SESSION: windows that end when a key is silent for a while.
//!
//! Sessions of a key never touch, so each key has a short list of them, ordered by start. A row
//! joins the sessions it touches into one; their accumulators are merged, which is rare.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::Int64Type;
use tidemill_block::{Block, NO_WATERMARK, WATERMARK_END};
use tidemill_state::{KeyTable, Slots, StateTable};

use super::{WindowSpec, time_column, times};
use crate::aggregate::{Accumulator, Rows, accumulator};
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output, Progress};

/// Aggregates in sessions.
pub struct SessionAggregate {
    spec: WindowSpec,
    gap: i64,
    table: KeyTable,
    /// By key slot: the key's open sessions, ascending by start.
    sessions: Vec<Vec<Session>>,
    accumulators: Vec<Box<dyn Accumulator>>,
    /// Accumulator slots that can be given again, and how many were ever given.
    free: Vec<u32>,
    given: u32,
    /// (end, key slot), one for each session; an end may be out of date, then the session is
    /// entered again under its new end when the old one comes up.
    timers: BinaryHeap<Reverse<(i64, u32)>>,
    watermark: i64,
    scratch: Slots,
    arrival_ns: u64,
    late_rows: u64,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    start: i64,
    /// Last row + gap.
    end: i64,
    slot: u32,
}

impl SessionAggregate {
    /// Aggregates by `spec` in sessions that end after `gap` ms of silence.
    ///
    /// # Errors
    /// A key type that cannot be a key.
    pub fn new(spec: WindowSpec, gap: i64) -> Result<Self, OperatorError> {
        Ok(SessionAggregate {
            gap,
            table: KeyTable::new(spec.key_types.clone())?,
            sessions: Vec::new(),
            accumulators: spec.calls.iter().map(|c| accumulator(c, false)).collect::<Result<Vec<_>, _>>()?,
            free: Vec::new(),
            given: 0,
            timers: BinaryHeap::new(),
            watermark: NO_WATERMARK,
            scratch: Slots::default(),
            arrival_ns: 0,
            late_rows: 0,
            spec,
        })
    }

    fn slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.given += 1;
            self.accumulators.iter_mut().for_each(|a| a.resize(self.given as usize));
            self.given - 1
        })
    }

    /// Puts `from`'s accumulators into `into` and frees `from`.
    fn merge(&mut self, into: u32, from: u32) -> Result<(), OperatorError> {
        for accumulator in &mut self.accumulators {
            let state = accumulator.save(&[from])?;
            accumulator.load(&[into], &state)?;
            accumulator.clear(&[from]);
        }
        self.free.push(from);
        Ok(())
    }

    /// The accumulator slot for a row of `key` at `t`; `None` if the row is late. `flush` is called
    /// before accumulators are merged: rows assigned so far must be in them.
    fn assign(
        &mut self,
        key: u32,
        t: i64,
        watermark: i64,
        flush: &mut dyn FnMut(&mut Self) -> Result<(), OperatorError>,
    ) -> Result<Option<u32>, OperatorError> {
        let (mut start, mut end) = (t, t + self.gap);
        // A session is over when the watermark has reached its end; from then on nothing joins it,
        // whether or not it was emitted yet.
        let touching: Vec<usize> = self.sessions[key as usize]
            .iter()
            .enumerate()
            .filter(|(_, s)| s.start <= end && s.end >= start && s.end > watermark)
            .map(|(i, _)| i)
            .collect();
        let Some((&first, rest)) = touching.split_first() else {
            if end - 1 <= watermark {
                return Ok(None);
            }
            let slot = self.slot();
            let list = &mut self.sessions[key as usize];
            let at = list.partition_point(|s| s.start < start);
            list.insert(at, Session { start, end, slot });
            self.timers.push(Reverse((end, key)));
            return Ok(Some(slot));
        };
        let slot = self.sessions[key as usize][first].slot;
        for i in &touching {
            let session = self.sessions[key as usize][*i];
            start = start.min(session.start);
            end = end.max(session.end);
        }
        if !rest.is_empty() {
            flush(self)?;
            for i in rest.iter().rev() {
                let gone = self.sessions[key as usize].remove(*i);
                self.merge(slot, gone.slot)?;
            }
        }
        self.sessions[key as usize][first] = Session { start, end, slot };
        Ok(Some(slot))
    }

    fn due(&mut self, watermark: i64) -> Vec<(u32, Session)> {
        let mut due = Vec::new();
        while let Some(Reverse((end, key))) = self.timers.peek().copied() {
            if due.len() >= BLOCK_ROWS_MAX || (watermark != WATERMARK_END && end > watermark) {
                break;
            }
            self.timers.pop();
            let list = &mut self.sessions[key as usize];
            let over = |s: &Session| watermark == WATERMARK_END || s.end <= watermark;
            // The timer's session may have grown or been merged away.
            let ready: Vec<Session> = list.iter().copied().filter(over).collect();
            list.retain(|s| !over(s));
            if ready.is_empty()
                && let Some(session) = list.iter().find(|s| s.end > end && s.start <= end)
            {
                self.timers.push(Reverse((session.end, key)));
            }
            due.extend(ready.into_iter().map(|s| (key, s)));
        }
        due
    }
}

impl Operator for SessionAggregate {
    fn name(&self) -> &'static str {
        "SessionAggregate"
    }

    fn on_block(&mut self, _input: usize, block: Block, _out: &mut Output) -> Result<(), OperatorError> {
        self.arrival_ns = self.arrival_ns.max(block.arrival_ns);
        let rows = block.rows();
        let times = times(&block, self.spec.time)?;
        let keys =
            self.spec.keys.iter().map(|k| Ok(k.evaluate(&block.batch)?.into_array(rows)?)).collect::<Result<Vec<_>, OperatorError>>()?;
        let mut scratch = std::mem::take(&mut self.scratch);
        self.table.intern(&keys, rows, &mut scratch)?;
        self.sessions.resize_with(self.table.capacity(), Vec::new);
        let calls = self.spec.calls.iter().map(|c| c.evaluate(&block)).collect::<Result<Vec<_>, _>>()?;
        // Rows assigned but not yet in the accumulators.
        let mut picked: Vec<u32> = Vec::with_capacity(rows);
        let mut slots: Vec<u32> = Vec::with_capacity(rows);
        let apply = |this: &mut Self, picked: &mut Vec<u32>, slots: &mut Vec<u32>| -> Result<(), OperatorError> {
            let indices = UInt32Array::from(std::mem::take(picked));
            for ((values, mask), accumulator) in calls.iter().zip(&mut this.accumulators) {
                let values = values.iter().map(|v| take(v, &indices, None)).collect::<Result<Vec<_>, _>>()?;
                let mask = mask.as_ref().map(|m| take(m, &indices, None)).transpose()?;
                let mask = mask.as_ref().map(|m| m.as_boolean());
                accumulator.update(&Rows { slots, values: &values, kinds: None, mask })?;
            }
            slots.clear();
            Ok(())
        };
        for (row, t) in times.iter().enumerate() {
            let watermark = block.row_watermark(row).max(self.watermark);
            let slot = self.assign(scratch.slots[row], *t, watermark, &mut |this| apply(this, &mut picked, &mut slots))?;
            match slot {
                Some(slot) => {
                    picked.push(row as u32);
                    slots.push(slot);
                }
                None => self.late_rows += 1,
            }
        }
        apply(self, &mut picked, &mut slots)?;
        // A key all of whose rows were late has no session.
        for row in &scratch.fresh {
            let slot = scratch.slots[*row as usize];
            if self.sessions[slot as usize].is_empty() {
                self.table.remove(slot);
            }
        }
        self.scratch = scratch;
        Ok(())
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        self.watermark = self.watermark.max(watermark);
        let due = self.due(watermark);
        if due.is_empty() {
            return Ok(Progress::Done);
        }
        let keys: Vec<u32> = due.iter().map(|(k, _)| *k).collect();
        let slots: Vec<u32> = due.iter().map(|(_, s)| s.slot).collect();
        let mut columns = self.table.keys(&keys)?;
        for accumulator in &mut self.accumulators {
            columns.push(accumulator.values(&slots)?);
            accumulator.clear(&slots);
        }
        self.free.extend(&slots);
        let width = columns.len();
        let bounds: [Vec<i64>; 3] = [
            due.iter().map(|(_, s)| s.start).collect(),
            due.iter().map(|(_, s)| s.end).collect(),
            due.iter().map(|(_, s)| s.end - 1).collect(),
        ];
        for (i, ms) in bounds.into_iter().enumerate() {
            columns.push(time_column(ms, self.spec.schema.field(width + i).data_type())?);
        }
        out.emit(Block::inserts(RecordBatch::try_new(self.spec.schema.clone(), columns)?, self.arrival_ns));
        let mut idle = keys;
        idle.sort_unstable();
        idle.dedup();
        for key in idle {
            if self.sessions[key as usize].is_empty() {
                self.table.remove(key);
            }
        }
        Ok(Progress::More)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        let open: Vec<(u32, Session)> = self
            .table
            .slots()
            .into_iter()
            .flat_map(|k| self.sessions[k as usize].iter().map(move |s| (k, *s)).collect::<Vec<_>>())
            .collect();
        let keys: Vec<u32> = open.iter().map(|(k, _)| *k).collect();
        let slots: Vec<u32> = open.iter().map(|(_, s)| s.slot).collect();
        let mut columns = self.table.keys(&keys)?;
        columns.push(Arc::new(open.iter().map(|(_, s)| s.start).collect::<Int64Array>()) as ArrayRef);
        columns.push(Arc::new(open.iter().map(|(_, s)| s.end).collect::<Int64Array>()));
        for accumulator in &mut self.accumulators {
            columns.extend(accumulator.save(&slots)?);
        }
        let hashes = keys.iter().map(|k| self.table.hash(*k)).collect();
        Ok(vec![StateTable::keyed("sessions", hashes, columns)?])
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            let rows = table.batch.num_rows();
            let (keys, rest) = table.columns().split_at(self.spec.keys.len());
            let mut found = Slots::default();
            self.table.intern(keys, rows, &mut found)?;
            self.sessions.resize_with(self.table.capacity(), Vec::new);
            let (starts, ends) = (rest[0].as_primitive::<Int64Type>(), rest[1].as_primitive::<Int64Type>());
            let slots: Vec<u32> = (0..rows).map(|_| self.slot()).collect();
            for row in 0..rows {
                let key = found.slots[row];
                self.sessions[key as usize].push(Session { start: starts.value(row), end: ends.value(row), slot: slots[row] });
                self.timers.push(Reverse((ends.value(row), key)));
            }
            let mut rest = &rest[2..];
            for accumulator in &mut self.accumulators {
                let width = accumulator.save(&[])?.len();
                accumulator.load(&slots, &rest[..width])?;
                rest = &rest[width..];
            }
        }
        self.sessions.iter_mut().for_each(|list| list.sort_by_key(|s| s.start));
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let memory =
            self.table.memory() + self.given as usize * size_of::<Session>() + self.accumulators.iter().map(|a| a.memory()).sum::<usize>();
        OperatorStats {
            entries: u64::from(self.given) - self.free.len() as u64,
            memory: memory as u64,
            late_rows: self.late_rows,
            ..OperatorStats::default()
        }
    }
}
