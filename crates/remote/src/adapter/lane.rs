//! One split on its way: read, put into messages, published.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill_connect::{ConnectError, Polled, Reader, ReaderContext, Rows, Split};

use super::options::split_name;
use super::{Common, OnError, Progress};
use crate::flight::blocks::Gather;
use crate::flight::publisher::{Handshake, Publisher, PublisherOptions, Ready, Sent};
use crate::flight::{coded, with_kinds};

/// What a step came to.
pub(super) enum Step {
    /// Something was done; there may be more to do.
    Moved,
    /// Nothing to do until the loop is woken.
    Waits,
    /// The split is at its end and everything is acknowledged.
    Done,
}

/// A position as the server keeps it: the reader's, and the number of the row at which it stands, so
/// that the server may cut messages as it likes.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Mark {
    row: u64,
    at: Value,
}

impl Mark {
    fn json(row: u64, at: Value) -> Value {
        serde_json::to_value(Mark { row, at }).expect("a number and JSON")
    }
}

/// A split that is being published.
pub(super) struct Lane {
    id: String,
    /// Where it begins, if the source says.
    begin: Option<Value>,
    publisher: Publisher,
    /// What earlier publishers of this lane have sent.
    sent: Sent,
    /// The columns that are read and published.
    schema: SchemaRef,
    context: ReaderContext,
    /// The source can be read again from a position.
    replays: bool,
    reader: Box<dyn Reader>,
    /// The reader is open, and nothing was read from it since it was opened at the beginning.
    untouched: bool,
    gather: Gather,
    /// What is gathered goes out, however little it is.
    flush: bool,
    /// Since when what is gathered has waited for a block to be full.
    lingers: Option<Instant>,
    /// Nothing more is read: the reader is at its end, or was stopped.
    ended: bool,
    stopped: bool,
    finishing: bool,
    /// Rows that the server has and the reader gives again.
    skip: u64,
    /// The last place from which rows can be read again, as the server shall know it.
    mark: Option<Value>,
    /// The server does not know it yet.
    announce: bool,
    /// A place of the reader, and the number of the row there: what comes before is safe when it is acknowledged.
    owed: Option<(u64, Value)>,
    /// The place that the source was told last.
    safe: Value,
    /// The number of the next row that is sent.
    row: u64,
    /// The number of the first row that was not published before this run.
    first: Option<u64>,
    bytes_in: u64,
    bad_rows: u64,
}

impl Lane {
    /// Opens a split and begins to connect; publishes the columns `wanted`, or all.
    pub fn new(common: &Common, split: Split, wanted: Option<&[String]>) -> Result<Self, ConnectError> {
        let mut context = common.context.clone();
        let mut schema = common.schema.clone();
        let said = common.source.replays();
        // One that is known to replay is opened where the server stands: at its beginning it might do what it did before.
        let mut reader: Box<dyn Reader> =
            if said == Some(true) { Box::new(Closed) } else { common.source.open(&split, context.clone())? };
        let replays = said.unwrap_or_else(|| !reader.position().is_null());
        // Rows that are kept must stay what they are. Where records are passed over, what is not read of one
        // may decide whether it counts; and an endless source may be one that is not opened twice.
        let projects = replays && common.on_error == OnError::Fail && common.source.bounded() && !common.changes;
        let columns = if projects { columns(&schema, wanted) } else { None };
        let projected = columns.is_some();
        if let Some(columns) = columns {
            context.request.projection = columns;
            schema = context.request.schema();
            // What it holds may be had by one reader only.
            drop(reader);
            reader = common.source.open(&split, context.clone())?;
        }
        if common.changes {
            schema = with_kinds(&schema);
        }
        let name = match &common.given {
            Some(name) => name.clone(),
            None if replays => common.made.clone(),
            // Another run has other rows: it must not be taken for this one.
            None => format!("{}-{}", common.made, run_id()),
        };
        let options = PublisherOptions {
            id: split_name(&name, &split.id),
            keep: !replays,
            projected,
            window: common.to.window.0 as usize,
            reconnect: common.to.reconnect(),
        };
        let publisher = Publisher::start(common.client.clone(), schema.clone(), options, context.waker.clone())?;
        Ok(Lane {
            id: split.id,
            begin: split.position,
            publisher,
            sent: Sent::default(),
            schema,
            context,
            replays,
            reader,
            untouched: said != Some(true),
            gather: Gather::new(common.block_rows),
            flush: false,
            lingers: None,
            ended: false,
            stopped: false,
            finishing: false,
            skip: 0,
            mark: None,
            announce: false,
            owed: None,
            safe: Value::Null,
            row: 0,
            first: None,
            bytes_in: 0,
            bad_rows: 0,
        })
    }

    /// Begins anew with other columns; where, the server says.
    fn change(&mut self, common: &Common, wanted: Option<&[String]>) -> Result<(), ConnectError> {
        let split = Split { id: self.id.clone(), position: self.begin.clone() };
        self.reader = Box::new(Closed);
        let fresh = Lane::new(common, split, wanted)?;
        let mut sent = self.sent.and(self.publisher.sent());
        sent.reconnects += 1;
        let (stopped, row, first, bytes_in, bad_rows) = (self.stopped, self.row, self.first, self.bytes_in, self.bad_rows);
        *self = Lane { sent, stopped, row, first, bytes_in, bad_rows, ..fresh };
        Ok(())
    }

    /// Nothing more is read; what was read still goes out.
    pub fn stop(&mut self) {
        if !self.stopped {
            (self.stopped, self.ended, self.flush) = (true, true, true);
        }
    }

    /// Rows that survive a crash of the server.
    pub fn acknowledged(&self) -> u64 {
        self.publisher.acknowledged()
    }

    /// The server is away: nothing can be acknowledged.
    pub fn away(&self) -> bool {
        !self.publisher.connected()
    }

    /// Notes where the reader stands, if everything that it gave was sent and no earlier place is waited for: one at a
    /// time is enough for the source to hear of all rows in the end.
    fn note(&mut self) {
        if self.owed.is_none() && self.gather.rows() == 0 {
            let place = self.reader.position();
            // What is read again begins where the server stands: a source must not forget what lies behind that, so it hears only
            // of the place that the server has with these rows.
            let known = !self.replays || self.mark == Some(Mark::json(self.row, place.clone()));
            if known && !place.is_null() && place != self.safe {
                self.owed = Some((self.row, place));
            }
        }
    }

    /// The place of the reader before which all rows survive a crash of the server, if that has moved: the source may
    /// be told.
    pub fn settled(&mut self) -> Option<Value> {
        self.owed.as_ref()?;
        let acknowledged = self.publisher.acknowledged();
        let (_, place) = self.owed.take_if(|(row, _)| *row <= acknowledged)?;
        self.safe = place.clone();
        Some(place)
    }

    /// Somebody behind the source waits until what was read is safe.
    pub fn hurry(&mut self) {
        self.publisher.hurry(self.row + self.gather.rows() as u64);
        // As before a barrier of a job: rows do not wait for company when somebody waits for them.
        self.flush |= self.gather.rows() > 0;
        // Where the reader stands may have changed without a row. It stands at the next row only if none wait, and none are
        // passed over; before the first handshake that row has no number.
        if self.replays && self.gather.rows() == 0 && self.skip == 0 && self.first.is_some() {
            let mark = Some(Mark::json(self.row, self.reader.position()));
            self.announce |= mark != self.mark;
            self.mark = mark;
        }
    }

    /// Ends without the server's acknowledgement.
    ///
    /// # Errors
    /// That loses rows: they were read, and the source does not give them again.
    pub fn give_up(&self, common: &Common) -> Result<(), ConnectError> {
        let open = self.publisher.next_row().saturating_sub(self.publisher.acknowledged()) + self.gather.rows() as u64;
        if self.replays || open == 0 {
            return Ok(());
        }
        Err(ConnectError::new(format!(
            "{}: stopped while the server was away: {open} rows of '{}' are not acknowledged, and cannot be read again",
            common.client.place(),
            self.id
        )))
    }

    /// Adds what this lane has done.
    pub fn count(&self, sum: &mut Progress) {
        let sent = self.sent.and(self.publisher.sent());
        sum.rows += self.row.saturating_sub(self.first.unwrap_or(self.row));
        sum.bytes_in += self.bytes_in;
        sum.bytes_out += sent.bytes;
        sum.blocks += sent.blocks;
        sum.reconnects += sent.reconnects;
        sum.bad_rows += self.bad_rows;
    }

    /// Does one thing that can be done now; sends rows only if it is this lane's `turn`.
    pub fn step(&mut self, common: &Common, turn: bool) -> Result<Step, ConnectError> {
        match self.publisher.ready()? {
            Ready::Handshake(handshake) => {
                self.go_to(common, &handshake).map_err(|e| e.at(common.client.place()))?;
                Ok(Step::Moved)
            }
            Ready::Columns(wanted) => {
                self.change(common, wanted.as_deref())?;
                Ok(Step::Moved)
            }
            Ready::Finished => {
                // Only the place where the reader stands now counts any more. The source may have been told of it just before
                // and had no time to say so.
                (self.owed, self.safe) = (None, Value::Null);
                self.note();
                Ok(Step::Done)
            }
            Ready::Wait => Ok(Step::Waits),
            Ready::Rows if !turn => Ok(Step::Waits),
            Ready::Rows if self.announce => {
                // The server may make its first rows safe in the middle of a message: then it must know
                // from where that can be read again.
                self.announce = false;
                self.publisher.try_send(&RecordBatch::new_empty(self.schema.clone()), None, self.mark.as_ref())?;
                Ok(Step::Moved)
            }
            Ready::Rows => {
                let Some(batch) = self.next_batch(common)? else {
                    self.publisher.flush();
                    self.note();
                    if self.ended && !self.finishing {
                        self.finishing = true;
                        self.publisher.finish();
                        return Ok(Step::Moved);
                    }
                    return Ok(Step::Waits);
                };
                self.row += batch.num_rows() as u64;
                // The reader stands behind these rows only if none wait.
                let behind = (self.replays && self.gather.rows() == 0).then(|| Mark::json(self.row, self.reader.position()));
                let sent = self.publisher.try_put(&batch, self.mark.as_ref(), behind.as_ref())?;
                // If not, the connection broke just now, and the next handshake says where to go back to.
                assert!(sent || self.replays, "rows that are kept have room when the publisher is ready for them");
                self.mark = behind.or(self.mark.take());
                self.note();
                Ok(Step::Moved)
            }
        }
    }

    /// Goes where the server stands.
    fn go_to(&mut self, common: &Common, handshake: &Handshake) -> Result<(), ConnectError> {
        self.first.get_or_insert(handshake.offset);
        self.row = handshake.offset;
        if !self.replays {
            self.publisher.resume(handshake.offset);
            return Ok(());
        }
        let mark = self.known(handshake)?;
        let position = (!mark.at.is_null()).then_some(mark.at);
        if mark.row > 0 || position != self.begin || !self.untouched {
            let split = Split { id: self.id.clone(), position };
            // What it holds (a connection, a partition, a replication slot) may be had by one reader only.
            self.reader = Box::new(Closed);
            self.reader = common.source.open(&split, self.context.clone())?;
            self.untouched = mark.row == 0 && split.position == self.begin;
        }
        self.skip = handshake.offset - mark.row;
        self.announce = handshake.position.is_none();
        self.owed = None;
        self.mark = Some(Mark::json(mark.row, self.reader.position()));
        self.gather.clear();
        self.lingers = None;
        (self.ended, self.flush, self.finishing) = (self.stopped, false, false);
        self.publisher.resume(handshake.offset);
        Ok(())
    }

    /// The position that the server has.
    fn known(&self, handshake: &Handshake) -> Result<Mark, ConnectError> {
        let other = |why: String| {
            ConnectError::new(format!(
                "the server has {} rows of split '{}' under this name, {why}; choose another name with --id",
                handshake.offset, self.id
            ))
        };
        match &handshake.position {
            None if handshake.offset == 0 => Ok(Mark { row: 0, at: self.begin.clone().unwrap_or_default() }),
            None => Err(other("but not where they come from".to_string())),
            Some(position) => {
                let mark = Mark::deserialize(position).map_err(|e| other(format!("and a position that is not an adapter's ({e})")))?;
                if mark.row > handshake.offset {
                    return Err(other(format!("but stands at row {}", mark.row)));
                }
                Ok(mark)
            }
        }
    }

    /// The rows of the next message; `None` if there are none at the moment.
    fn next_batch(&mut self, common: &Common) -> Result<Option<RecordBatch>, ConnectError> {
        loop {
            if let Some(batch) = self.gather.next(self.flush)? {
                self.lingers = None;
                return Ok(Some(batch));
            }
            if self.ended {
                return Ok(None);
            }
            self.flush = false;
            let polled = self.reader.poll(self.gather.wanted())?;
            self.untouched = false;
            match polled {
                Polled::Rows(rows) => {
                    let batch = self.good(rows, common)?;
                    let skipped = self.skip.min(batch.num_rows() as u64) as usize;
                    self.skip -= skipped as u64;
                    self.gather.push(batch.slice(skipped, batch.num_rows() - skipped));
                }
                // Nothing more is at hand: what there is does not wait for it, or only so long.
                Polled::Pending if self.gather.rows() > 0 && !self.waits_for_more(common) => self.flush = true,
                Polled::Pending => return Ok(None),
                Polled::End => {
                    if self.skip > 0 {
                        return Err(ConnectError::new(format!(
                            "split '{}' has {} rows fewer than were published of it before: it was changed; \
                             publish it anew under another name (--id)",
                            self.id, self.skip
                        )));
                    }
                    (self.ended, self.flush) = (true, self.gather.rows() > 0);
                }
            }
        }
    }

    /// Rows wait for a block to be full.
    pub fn lingers(&self) -> bool {
        self.lingers.is_some()
    }

    /// Whether what is gathered waits for a block to be full.
    fn waits_for_more(&mut self, common: &Common) -> bool {
        let full = common.block_rows.is_none_or(|block| self.gather.rows() >= block);
        !full && self.lingers.get_or_insert_with(Instant::now).elapsed() < common.linger
    }

    /// Counts, and says what is wrong with, records that cannot be read.
    fn good(&mut self, rows: Rows, common: &Common) -> Result<RecordBatch, ConnectError> {
        self.bytes_in += rows.bytes;
        if let Some(bad) = rows.bad.first() {
            if common.on_error == OnError::Fail {
                let raw = String::from_utf8_lossy(&bad.raw[..bad.raw.len().min(120)]).into_owned();
                let place = rows.places.first().map_or(self.id.as_str(), String::as_str);
                return Err(ConnectError::new(format!(
                    "{place}: {}: {raw:?}\nadd on-error=skip to --from to count and pass over such records",
                    bad.reason
                )));
            }
            self.bad_rows += rows.bad.len() as u64;
        }
        if common.changes { coded(&rows.batch, rows.kinds.as_deref(), &self.schema) } else { Ok(rows.batch) }
    }
}

/// The columns to publish: those that the job reads, and those that may not be NULL, without which no row
/// is taken. `None` for all.
pub(super) fn columns(schema: &Schema, wanted: Option<&[String]>) -> Option<Vec<usize>> {
    let wanted = wanted?;
    let needed = |at: &usize| !schema.field(*at).is_nullable() || wanted.contains(schema.field(*at).name());
    let mut columns: Vec<usize> = (0..schema.fields().len()).filter(needed).collect();
    if columns.is_empty() {
        // Rows are counted all the same.
        columns.push(0);
    }
    (columns.len() < schema.fields().len()).then_some(columns)
}

/// Stands for a reader while another one is opened.
struct Closed;

impl Reader for Closed {
    fn poll(&mut self, _rows_max: usize) -> Result<Polled, ConnectError> {
        Ok(Polled::Pending)
    }

    fn position(&self) -> Value {
        Value::Null
    }
}

/// Names this run of the process.
fn run_id() -> String {
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    format!("{:x}-{now_ns:x}", std::process::id())
}
