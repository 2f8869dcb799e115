//! Reads a split: a thread asks the database and hands batches over through a bounded channel, so that a
//! slow job holds it back. A connection that breaks is made again, and the scan goes on where it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use tidemill_block::clock;
use tidemill_connect::{ConnectError, Polled, Reader, ReaderContext, Rows, Waker};

use super::scan::{Cursor, Scan};
use crate::driver::DbError;
use crate::session::{Access, Patience, Session, pause};
use crate::sink::bytes;

/// Batches on their way.
const BATCHES_MAX: usize = 4;
/// Rows of a batch, if the user does not say.
const FETCH_ROWS: usize = 8192;

enum Event {
    Rows(RecordBatch, u64),
    End,
    Failed(DbError),
}

/// See the module.
pub(super) struct JdbcReader {
    scan: Arc<Scan>,
    cursor: Cursor,
    events: Receiver<Event>,
    /// A batch of which a part was handed over, from which row on, and when it arrived.
    current: Option<(RecordBatch, usize, u64)>,
    schema: SchemaRef,
    ended: bool,
    /// Ends the pauses of the thread; a full channel ends with its other side.
    stop: Arc<AtomicBool>,
}

impl JdbcReader {
    /// Starts reading; `interval` of a table that is polled.
    pub fn start(
        scan: Scan,
        cursor: Cursor,
        access: Access,
        fetch_size: usize,
        interval: Option<Duration>,
        context: ReaderContext,
    ) -> Result<Self, ConnectError> {
        let (sender, events) = bounded(BATCHES_MAX);
        let scan = Arc::new(scan);
        let stop = Arc::new(AtomicBool::new(false));
        let mut asking = Asking {
            scan: scan.clone(),
            cursor: cursor.clone(),
            session: Session::new(access, stop.clone()),
            rows: if fetch_size == 0 { FETCH_ROWS } else { fetch_size },
            interval,
            outlet: Outlet { sender, waker: context.waker },
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new().name("tidemill-jdbc".into()).spawn(move || asking.run());
        thread.map_err(|e| ConnectError::io("starting the thread that reads the table", &e))?;
        Ok(JdbcReader { scan, cursor, events, current: None, schema: context.request.schema(), ended: false, stop })
    }
}

impl Drop for JdbcReader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Reader for JdbcReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        if self.current.is_none() && !self.ended {
            match self.events.try_recv() {
                Ok(Event::Rows(batch, arrival_ns)) => self.current = Some((batch, 0, arrival_ns)),
                Ok(Event::End) => self.ended = true,
                Ok(Event::Failed(error)) => return Err(error.into()),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    return Err(ConnectError::new("internal error: the thread that reads the table has ended; its message is above"));
                }
            }
        }
        let Some((batch, from, arrival_ns)) = self.current.take() else {
            return Ok(if self.ended { Polled::End } else { Polled::Pending });
        };
        let length = rows_max.max(1).min(batch.num_rows() - from);
        let part = batch.slice(from, length);
        self.scan.advance(&mut self.cursor, &part)?;
        if from + length < batch.num_rows() {
            self.current = Some((batch, from + length, arrival_ns));
        }
        let columns = part.columns()[..self.scan.wanted].to_vec();
        let options = RecordBatchOptions::new().with_row_count(Some(length));
        let rows = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(DbError::from)?;
        let bytes = bytes(&rows) as u64;
        Ok(Polled::Rows(Rows::good(rows, arrival_ns, bytes)))
    }

    fn position(&self) -> serde_json::Value {
        self.cursor.position()
    }
}

/// Where the thread puts what it has.
struct Outlet {
    sender: Sender<Event>,
    waker: Waker,
}

impl Outlet {
    /// False if nobody reads any more.
    fn send(&self, event: Event) -> bool {
        let sent = self.sender.send(event).is_ok();
        self.waker.wake();
        sent
    }
}

/// The thread's side.
struct Asking {
    scan: Arc<Scan>,
    cursor: Cursor,
    session: Session,
    rows: usize,
    interval: Option<Duration>,
    outlet: Outlet,
    stop: Arc<AtomicBool>,
}

impl Asking {
    fn run(&mut self) {
        let mut patience = Patience::new(self.session.access());
        while !self.stop.load(Ordering::Relaxed) {
            let mut found = 0;
            match (self.read(&mut found), self.interval) {
                (Ok(()), None) => {
                    self.outlet.send(Event::End);
                    return;
                }
                (Ok(()), Some(interval)) => {
                    patience = Patience::new(self.session.access());
                    if found == 0 {
                        pause(interval, &self.stop);
                    }
                }
                (Err(error), _) => {
                    if found > 0 {
                        patience = Patience::new(self.session.access());
                    }
                    if let Err(error) = patience.wait(error, &self.stop) {
                        self.outlet.send(Event::Failed(error));
                        return;
                    }
                }
            }
        }
    }

    /// Reads what there is from the cursor on, and counts it.
    fn read(&mut self, found: &mut usize) -> Result<(), DbError> {
        let Asking { scan, cursor, session, rows, outlet, .. } = self;
        session.once(|connection| {
            let (sql, parameters, mut skip) = scan.statement(cursor, connection)?;
            connection.query(&sql, parameters.as_ref(), &scan.schema, *rows, &mut |batch| {
                let passed = (skip as usize).min(batch.num_rows());
                skip -= passed as u64;
                if passed == batch.num_rows() {
                    return Ok(());
                }
                let batch = batch.slice(passed, batch.num_rows() - passed);
                scan.advance(cursor, &batch)?;
                *found += batch.num_rows();
                // Nobody is left to be told.
                if outlet.send(Event::Rows(batch, clock::now_ns())) { Ok(()) } else { Err(DbError::fatal("reading was given up")) }
            })
        })
    }
}
