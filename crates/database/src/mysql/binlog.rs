//! The binary log: the changes of MySQL and MariaDB, for the connector `mysql-cdc`.
//!
//! We are a replica like any other: the client below asks for the log from a place on and takes its events apart, and we
//! take what they say of one table. Row images are decoded here, column by column and into the same columns as
//! results, since the client's own way makes several allocations a value.
//!
//! *Places* are files and bytes. A transaction's is where it begins, which is where the one before ended; so
//! a restart reads it again from its beginning, and the rows handed over are passed over.
//!
//! *A crash* of the server may leave a file that ends within an event. What was being written there was never committed, and the
//! server goes on in another file; so do we, without the rows of that transaction. If it was so large that some were handed over
//! before its end was looked for, they cannot be taken back, and the reading fails.
//!
//! *The first reading.* The table is locked for reading for as long as it takes to begin a transaction with a snapshot in
//! another session, and to ask how far the log is: nobody is writing to it then, so what the snapshot has of it is what
//! the log has up to there. Other tables go on.
//!
//! - [`catalog`]: table and log as the server describes them; [`value`]: values; [`rows`]: row images; [`statement`]:
//!   statements in the log; [`rotate`]: which file follows

mod catalog;
mod rotate;
mod rows;
mod statement;
mod value;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::binlog::EventType;
use ::mysql::binlog::events::{Event, EventData};
use ::mysql::prelude::Queryable;
use ::mysql::{BinlogRequest, Conn};

use self::catalog::{Log, Table};
use self::rows::TableRows;
use self::statement::Meant;
use super::dialect::MysqlDialect;
use super::error::{db_error, is_cut_log};
use super::open::{self, Opened};
use crate::cdc::feed::Feed;
use crate::cdc::follow::{ChangeLog, Followed};
use crate::cdc::options::Startup;
use crate::cdc::position::{Offset, Position, Reading};
use crate::driver::{Connection, DbError, Dialect};
use crate::session::Access;
use crate::url::Url;

/// How often the server says that it is there while nothing happens.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// A server that has said nothing for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Events of MariaDB with compressed rows or statements.
const COMPRESSED: std::ops::RangeInclusive<u8> = 165..=171;

/// Events that are taken apart; of others only their places count.
const READ: [EventType; 10] = [
    EventType::QUERY_EVENT,
    EventType::ROTATE_EVENT,
    EventType::TABLE_MAP_EVENT,
    EventType::WRITE_ROWS_EVENT_V1,
    EventType::UPDATE_ROWS_EVENT_V1,
    EventType::DELETE_ROWS_EVENT_V1,
    EventType::WRITE_ROWS_EVENT,
    EventType::UPDATE_ROWS_EVENT,
    EventType::DELETE_ROWS_EVENT,
    EventType::PARTIAL_UPDATE_ROWS_EVENT,
];

/// How a table's log is reached. No `Debug`: the settings hold the password.
pub(crate) struct Settings {
    open: Arc<open::Settings>,
    access: Access,
    server_id: u32,
}

impl Settings {
    /// Of a table's options.
    ///
    /// # Errors
    /// Those of TLS.
    pub fn of(url: &Url, access: &Access, server_id: Option<u32>) -> Result<Self, DbError> {
        // One that nobody has chosen: those that people choose are small.
        let chance = (tidemill_block::clock::now_ns() / 1000) as u32 ^ std::process::id().rotate_left(16);
        let server_id = server_id.unwrap_or(chance | 1 << 31);
        Ok(Settings { open: Arc::new(open::Settings::of(url)?), access: access.clone(), server_id })
    }

    /// The log of what is followed.
    pub fn log(&self, followed: &Followed) -> Box<dyn ChangeLog> {
        let (open, access) = (self.open.clone(), self.access.clone());
        Box::new(MysqlLog { open, access, server_id: self.server_id, followed: followed.clone(), found: None })
    }
}

/// See the module.
struct MysqlLog {
    open: Arc<open::Settings>,
    access: Access,
    server_id: u32,
    followed: Followed,
    /// Log and table as they were when they were last looked at.
    found: Option<(Log, Table)>,
}

impl MysqlLog {
    fn open(&self) -> Result<Opened, DbError> {
        open::open(&self.open, self.access.connect_timeout)
    }

    fn found(&self) -> Result<(Log, Table), DbError> {
        self.found.clone().ok_or_else(|| DbError::fatal("internal error: a table that was not looked at"))
    }

    /// Feeds the changes from a place on: up to another, or until nobody wants them any more.
    fn read(&self, feed: &mut Feed, mut from: Offset, upto: Option<Offset>) -> Result<(), DbError> {
        while let Some(next) = self.read_until_cut(feed, from, upto)? {
            from = next;
            if upto.is_some_and(|upto| from >= upto) {
                break;
            }
        }
        Ok(())
    }

    /// The same, but at a file that a crash of the server cut off only up to there: where the log goes on then.
    fn read_until_cut(&self, feed: &mut Feed, mut from: Offset, upto: Option<Offset>) -> Result<Option<Offset>, DbError> {
        let (log, table) = self.found()?;
        let doing = "beginning to read changes";
        let Opened { mut conn, socket, .. } = self.open()?;
        let ns = HEARTBEAT.as_nanos();
        // MariaDB puts comments in the place of events that a replica may not know, unless it says that it can do without.
        let session = format!("SET @master_heartbeat_period = {ns}, @source_heartbeat_period = {ns}, @mariadb_slave_capability = 2");
        conn.query_drop(session).map_err(|e| db_error(doing, &e))?;
        let limited = socket.set_read_timeout(Some(SILENCE_MAX));
        limited.map_err(|e| DbError::connection(format!("{doing}: {e}")))?;
        if u32::try_from(from.at).is_err() {
            // A request has 32 bits for the byte. A file that is so long ends with the transaction that made it so.
            from = Offset { file: from.file + 1, at: 4 };
        }
        let request = BinlogRequest::new(self.server_id).with_filename(log.file(from.file).into_bytes()).with_pos(from.at);
        let stream = conn.get_binlog_stream(request).map_err(|e| db_error(doing, &e))?;
        let rows = TableRows::new(&self.followed, table)?;
        let mut streaming = Streaming { log: self, rows, feed, safe: from, at: from };
        for event in stream {
            if streaming.feed.stopped() {
                return Ok(None);
            }
            let event = match event {
                Ok(event) => event,
                // Of the file that the server writes to it would be a full disk.
                Err(error) if is_cut_log(&error) && streaming.at.file < catalog::now(&mut self.open()?.conn)?.file => {
                    return streaming.leave_cut_file().map(Some);
                }
                Err(error) => return Err(db_error("reading changes", &error)),
            };
            streaming.feed.alive(Instant::now());
            let last = streaming.take(&event)?;
            if upto.is_some_and(|upto| streaming.passed(upto, &event)) {
                streaming.flush()?;
                return Ok(None);
            }
            if last && streaming.feed.rows() > 0 && !more(&socket) {
                streaming.flush()?;
            }
        }
        Err(DbError::connection("the server has ended the stream of changes (does another replica have the same 'server-id'?)"))
    }
}

impl ChangeLog for MysqlLog {
    fn prepare(&mut self, position: Option<&Position>, startup: Startup) -> Result<Option<Position>, DbError> {
        let mut conn = self.open()?.conn;
        let log = Log::load(&mut conn)?;
        let table = Table::load(&mut conn, &self.followed)?;
        TableRows::new(&self.followed, table.clone())?;
        if self.found.is_none() {
            catalog::tell_of_cascades(&mut conn, &self.followed)?;
        }
        let server = log.server.clone();
        self.found = Some((log, table));
        if let Some(position) = position {
            if position.server != server {
                return Err(DbError::fatal(
                    "this is another server than that of the checkpoint, whose places in the log mean nothing here; start without the \
                     checkpoint",
                ));
            }
            let oldest = catalog::oldest(&mut conn)?;
            if position.from < oldest {
                return Err(DbError::fatal(format!(
                    "the log begins at {oldest} by now, behind the checkpoint's place {}: changes are lost; start without the \
                     checkpoint, and \
                     have the server keep its log for longer (binlog_expire_logs_seconds)",
                    position.from
                )));
            }
            return Ok(None);
        }
        let from = match startup {
            Startup::Earliest => catalog::oldest(&mut conn)?,
            Startup::Initial | Startup::Latest | Startup::Committed => catalog::now(&mut conn)?,
        };
        let reading = (startup == Startup::Initial).then(Reading::default);
        Ok(Some(Position { server, from, reading, ..Position::default() }))
    }

    fn order(&self) -> Option<Vec<String>> {
        self.found.as_ref()?.1.order(&self.followed)
    }

    fn dialect(&self) -> &'static dyn Dialect {
        &MysqlDialect
    }

    fn snapshot(&mut self, _feed: &Feed) -> Result<(Offset, Box<dyn Connection>), DbError> {
        let mut lock = self.open()?.conn;
        let mut connection = self.access.driver.connect(self.access.connect_timeout)?;
        connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")?;
        let name = MysqlDialect.quote(&self.followed.table);
        let doing = format!("locking {} for a moment, so that nobody writes to it", self.followed.table);
        let wait = self.access.connect_timeout.as_secs().max(1);
        lock.query_drop(format!("SET SESSION lock_wait_timeout = {wait}")).map_err(|e| db_error(&doing, &e))?;
        lock.query_drop(format!("LOCK TABLES {name} READ")).map_err(|e| db_error(&doing, &e))?;
        connection.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
        let at = catalog::now(&mut lock)?;
        lock.query_drop("UNLOCK TABLES").map_err(|e| db_error(&doing, &e))?;
        Ok((at, connection))
    }

    fn replay(&mut self, feed: &mut Feed, from: Offset, upto: Offset) -> Result<(), DbError> {
        if from < upto { self.read(feed, from, Some(upto)) } else { Ok(()) }
    }

    fn stream(&mut self, feed: &mut Feed) -> Result<(), DbError> {
        let from = feed.position().from;
        self.read(feed, from, None)
    }
}

/// Whether more of the stream has arrived: if it has, rows wait for it.
fn more(socket: &std::net::TcpStream) -> bool {
    let mut byte = [0];
    let there = socket.set_nonblocking(true).is_ok() && socket.peek(&mut byte).is_ok_and(|n| n > 0);
    // A socket that cannot be set back fails at the next read.
    let _ = socket.set_nonblocking(false);
    there
}

/// An error of reading an event.
fn damaged(error: &io::Error) -> DbError {
    DbError::fatal(format!("reading changes: an event of a form that is not known here: {error}"))
}

/// A stream that is being read.
struct Streaming<'a> {
    log: &'a MysqlLog,
    rows: TableRows,
    feed: &'a mut Feed,
    /// Where the last transaction ended.
    safe: Offset,
    /// Where the last event ended.
    at: Offset,
}

impl Streaming<'_> {
    fn flush(&mut self) -> Result<(), DbError> {
        self.rows.flush(self.feed)
    }

    /// Hands on what was committed in a file that ends within an event; where the log goes on.
    fn leave_cut_file(&mut self) -> Result<Offset, DbError> {
        self.rows.flush_committed(self.feed)?;
        let next = Offset { file: self.at.file + 1, at: 4 };
        self.feed.reached(next)?;
        Ok(next)
    }

    /// Whether everything before a place was read when this event was.
    fn passed(&self, upto: Offset, event: &Event) -> bool {
        // The server says that it is there when it has sent all it has.
        self.at >= upto && !self.feed.in_transaction() || event.header().event_type_raw() == EventType::HEARTBEAT_EVENT as u8
    }

    /// Takes an event; whether nothing is known to follow at once.
    fn take(&mut self, event: &Event) -> Result<bool, DbError> {
        let header = event.header();
        let kind = header.event_type_raw();
        // Places of events that the server makes up are none.
        if kind != EventType::ROTATE_EVENT as u8
            && kind != EventType::FORMAT_DESCRIPTION_EVENT as u8
            && kind != EventType::HEARTBEAT_EVENT as u8
        {
            self.advance(header.log_pos());
        }
        if kind == EventType::XID_EVENT as u8 {
            self.end()?;
            return Ok(true);
        }
        if kind == EventType::HEARTBEAT_EVENT as u8 {
            self.feed.idle()?;
            return Ok(true);
        }
        if kind == EventType::XA_PREPARE_LOG_EVENT as u8 {
            if self.rows.in_transaction() {
                return Err(self.unread("it was changed in a transaction of two phases (XA)"));
            }
            self.end()?;
            return Ok(true);
        }
        if kind == EventType::INCIDENT_EVENT as u8 {
            return Err(self.unread("the server could not log all changes of it (an incident in the log)"));
        }
        if kind == EventType::TRANSACTION_PAYLOAD_EVENT as u8 || COMPRESSED.contains(&kind) {
            return Err(DbError::fatal(
                "the log has compressed transactions; set binlog_transaction_compression (of MariaDB log_bin_compress) = OFF, for \
                 sessions too, \
                 and start without the checkpoint",
            ));
        }
        if !READ.iter().any(|read| *read as u8 == kind) {
            return Ok(false);
        }
        match event.read_data().map_err(|e| damaged(&e))? {
            Some(EventData::RotateEvent(_)) => {
                self.at = rotate::next(event)?;
                if self.feed.in_transaction() {
                    // None goes on in another file: this one was cut off between two events.
                    self.rows.flush_committed(self.feed)?;
                }
                self.safe = self.at;
                self.feed.reached(self.safe)?;
            }
            Some(EventData::TableMapEvent(map)) => self.rows.map(&map)?,
            Some(EventData::RowsEvent(rows)) if self.rows.is_ours(rows.table_id()) => {
                if !self.feed.in_transaction() {
                    self.feed.begin(self.safe);
                }
                self.rows.take(&rows, self.feed)?;
            }
            Some(EventData::QueryEvent(query)) => {
                self.statement(&query.query(), &query.schema())?;
                return Ok(!self.feed.in_transaction());
            }
            _ => {}
        }
        Ok(false)
    }

    /// Notes where an event ends. The log has 32 bits for it, and files may be longer.
    fn advance(&mut self, log_pos: u32) {
        if log_pos == 0 {
            return;
        }
        let mut at = self.at.at & !u64::from(u32::MAX) | u64::from(log_pos);
        if at < self.at.at {
            at += 1 << 32;
        }
        self.at.at = at;
    }

    /// The transaction ends here.
    fn end(&mut self) -> Result<(), DbError> {
        self.safe = self.at;
        self.rows.end();
        self.feed.commit(self.safe)
    }

    /// Takes a statement.
    fn statement(&mut self, sql: &str, schema: &str) -> Result<(), DbError> {
        match statement::meaning(sql, schema, self.rows.table()) {
            Meant::Begin => {
                if !self.feed.in_transaction() {
                    self.feed.begin(self.safe);
                }
                Ok(())
            }
            Meant::Commit | Meant::Other => self.end(),
            Meant::Within => Ok(()),
            Meant::Rollback if self.rows.in_transaction() => Err(self.unread("changes of it were taken back within the log")),
            Meant::Rollback => Ok(()),
            Meant::Altered => {
                self.flush()?;
                self.end()?;
                // Rows behind this are those of another table.
                let mut conn: Conn = self.log.open()?.conn;
                let table = Table::load(&mut conn, &self.log.followed)?;
                self.rows = TableRows::new(&self.log.followed, table)?;
                Ok(())
            }
            Meant::Emptied => Err(self.unread("it was emptied, replaced or dropped, which does not say which rows it had")),
            Meant::Unlogged => {
                Err(self.unread("it was changed by a statement that was logged as such (a session's binlog_format is not ROW)"))
            }
        }
    }

    fn unread(&self, why: &str) -> DbError {
        let table = &self.log.followed.table;
        DbError::fatal(format!("table {table} at {}: {why}; start without the checkpoint", self.at))
    }
}
