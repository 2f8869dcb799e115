//! What the job polls: batches of the thread that follows the table, and the position behind what was handed over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use crossbeam_channel::{Receiver, TryRecvError, bounded};
use tidemill_block::RowKind;
use tidemill_connect::{ConnectError, Polled, Reader, ReaderContext, Rows, Waker};

use super::feed::{Changes, Event, Feed};
use super::follow::{ChangeLog, Followed, Follower};
use super::gate::Gate;
use super::options::Startup;
use super::position::Position;
use crate::driver::DbError;
use crate::session::Access;
use crate::sink::bytes;
use crate::source::encode_row;

/// Batches on their way.
const BATCHES_MAX: usize = 4;

/// See the module.
pub(super) struct CdcReader {
    events: Receiver<Event>,
    /// What was handed over in part, and how many rows of it.
    current: Option<(Current, usize)>,
    /// Where what was handed over ends, but for the last key, which is in `after` until somebody asks.
    position: Option<Position>,
    /// The last row handed over of the table, if its rows come in the order of their keys.
    after: Option<RecordBatch>,
    followed: Followed,
    /// The columns that are handed over, and how many those are.
    schema: SchemaRef,
    wanted: usize,
    stop: Arc<AtomicBool>,
    gate: Arc<Gate>,
    waker: Waker,
}

/// How the table is read.
pub(super) struct Settings {
    pub access: Access,
    pub startup: Startup,
    /// Rows of the table that are handed over at once.
    pub fetch_size: usize,
}

enum Current {
    /// Rows, whether they come in the order of their keys, when they arrived.
    Table(RecordBatch, bool, u64),
    Changes(Changes),
    /// Rows that come and go: which of both, when they arrived.
    Undone(RecordBatch, RowKind, u64),
}

impl Current {
    fn batch(&self) -> &RecordBatch {
        match self {
            Current::Table(batch, ..) | Current::Undone(batch, ..) => batch,
            Current::Changes(changes) => &changes.batch,
        }
    }
}

impl CdcReader {
    /// Starts to follow a table from a position; rows pass when the gate is open.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        log: Box<dyn ChangeLog>,
        followed: Followed,
        settings: Settings,
        position: Option<Position>,
        gate: Arc<Gate>,
        context: ReaderContext,
    ) -> Result<Self, ConnectError> {
        let Settings { access, startup, fetch_size } = settings;
        let (sender, events) = bounded(BATCHES_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let waker = context.waker;
        let feed = Feed::new(sender, waker.clone(), stop.clone(), followed.key.clone());
        let follower = Follower { log, followed: followed.clone(), access, startup, fetch_size, feed };
        let begin = position.clone();
        let thread = std::thread::Builder::new().name("tidemill-cdc".into()).spawn(move || follower.run(begin));
        thread.map_err(|e| ConnectError::io("starting the thread that follows the table", &e))?;
        let (schema, wanted) = (context.request.schema(), context.request.projection.len());
        Ok(CdcReader { events, current: None, position, after: None, followed, schema, wanted, stop, gate, waker })
    }

    /// Takes what the thread has sent; whether there may be more.
    fn receive(&mut self) -> Result<bool, ConnectError> {
        match self.events.try_recv() {
            Ok(Event::Table { batch, ordered, arrival_ns }) => self.current = Some((Current::Table(batch, ordered, arrival_ns), 0)),
            Ok(Event::Changes(changes)) => self.current = Some((Current::Changes(changes), 0)),
            Ok(Event::Undone { batch, kind, arrival_ns }) => self.current = Some((Current::Undone(batch, kind, arrival_ns), 0)),
            Ok(Event::Position(position)) => {
                self.position = Some(position);
                self.after = None;
                self.gate.ask(&self.waker);
            }
            Ok(Event::Failed(error)) => return Err(error.into()),
            Err(TryRecvError::Empty) => return Ok(false),
            Err(TryRecvError::Disconnected) => {
                return Err(ConnectError::new("internal error: the thread that follows the table has ended; its message is above"));
            }
        }
        Ok(true)
    }
}

impl Drop for CdcReader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// How many rows from `from` on are handed over, at most `most`: the two halves of an update stay together if they can.
fn length(kinds: Option<&[RowKind]>, from: usize, rows: usize, most: usize) -> usize {
    let length = most.max(1).min(rows - from);
    let Some(kinds) = kinds.filter(|_| from + length < rows) else { return length };
    match kinds[from + length - 1] {
        RowKind::UpdateBefore if length > 1 => length - 1,
        RowKind::UpdateBefore => length + 1,
        _ => length,
    }
}

impl Reader for CdcReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        while self.current.is_none() {
            if !self.receive()? {
                return Ok(Polled::Pending);
            }
        }
        if !self.gate.is_open() {
            return Ok(Polled::Pending);
        }
        let Some((current, from)) = self.current.take() else { return Ok(Polled::Pending) };
        let rows = current.batch().num_rows();
        let all_kinds = match &current {
            Current::Table(..) | Current::Undone(..) => None,
            Current::Changes(changes) => changes.kinds.as_deref(),
        };
        let length = length(all_kinds, from, rows, rows_max);
        let part = current.batch().slice(from, length);
        let kinds = match &current {
            Current::Undone(_, kind, _) => Some(vec![*kind; length]),
            _ => all_kinds.map(|kinds| kinds[from..from + length].to_vec()),
        };
        let arrival_ns = match &current {
            Current::Table(_, ordered, arrival_ns) => {
                if let Some(reading) = self.position.as_mut().and_then(|p| p.reading.as_mut()) {
                    reading.rows += length as u64;
                }
                self.after = ordered.then(|| part.slice(length - 1, 1));
                *arrival_ns
            }
            Current::Changes(changes) => {
                let position = self.position.get_or_insert_default();
                (position.from, position.skip) = changes.place(from + length);
                if changes.forget && from + length == rows {
                    position.parts.clear();
                }
                changes.arrival_ns
            }
            Current::Undone(.., arrival_ns) => *arrival_ns,
        };
        let columns = part.columns()[..self.wanted].to_vec();
        let options = RecordBatchOptions::new().with_row_count(Some(length));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(DbError::from)?;
        if from + length < rows {
            self.current = Some((current, from + length));
        }
        let bytes = bytes(&batch) as u64;
        Ok(Polled::Rows(Rows { kinds, ..Rows::good(batch, arrival_ns, bytes) }))
    }

    fn position(&self) -> serde_json::Value {
        let Some(mut position) = self.position.clone() else { return serde_json::Value::Null };
        if let (Some(reading), Some(row)) = (&mut position.reading, &self.after) {
            let key = row.project(&self.followed.key).map_err(DbError::from).and_then(|key| encode_row(&key));
            reading.after = key.ok();
        }
        serde_json::to_value(position).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_stay_whole() {
        use RowKind::*;
        let kinds = [Insert, UpdateBefore, UpdateAfter, UpdateBefore, UpdateAfter, Delete];
        for (from, most, expect) in [(0, 1, 1), (0, 2, 1), (1, 1, 2), (1, 2, 2), (0, 4, 3), (0, 9, 6), (5, 1, 1)] {
            assert_eq!(length(Some(&kinds), from, 6, most), expect, "{from} {most}");
        }
        assert_eq!(length(None, 2, 6, 3), 3);
    }
}
