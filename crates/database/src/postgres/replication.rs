//! Logical replication: the change log of PostgreSQL, for the connector `postgres-cdc`.
//!
//! A connection of its own carries the log as the plugin `pgoutput` writes it. Values come in binary, as those of
//! `COPY` do, and are read by the same code. Transactions come whole and in the order of their commits; the server sends
//! one when it is committed, and keeps it on its disk until then.
//!
//! *Places* are those of the log (LSN): a transaction's is that of its commit. A slot sends transactions from a place on.
//!
//! *The first reading.* A temporary slot tells a place and lends a snapshot that sees exactly the transactions before it.
//! The slot that stays was made earlier, so it has all that comes after.
//!
//! - [`client`]: the connection; [`message`]: messages; [`rows`]: rows of them; [`catalog`]: table, publication, slot
//! - [`partitions`]: what happens to partitions and is not in the log

mod catalog;
mod client;
mod message;
mod partitions;
mod rows;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use self::catalog::{Slot, Table};
use self::client::{Event, Link, Target};
use self::partitions::{Known, Watch};
use self::rows::TableRows;
use super::types::{PostgresDialect, literal, quote_part};
use super::{PORT, tls};
use crate::cdc::feed::Feed;
use crate::cdc::follow::{ChangeLog, Followed};
use crate::cdc::options::{Mode, PostgresOptions, Startup};
use crate::cdc::position::{Offset, Position, Reading};
use crate::driver::{Connection, DbError, DbErrorKind, Dialect};
use crate::session::Access;
use crate::url::{SslMode, Url};

/// What arrived at once, on its way from the connection's thread to ours.
const PIECES_MAX: usize = 4;
/// Messages that are read at once where the log is read by a statement.
const PEEKED: usize = 1024;
/// How often who waits for a message looks for other things.
const TICK: Duration = Duration::from_millis(200);

/// How a table's log is reached. No `Debug`: it holds the password.
#[derive(Clone)]
pub(crate) struct Settings {
    target: Target,
    access: Access,
    slot: String,
    publication: String,
    upsert: bool,
}

impl Settings {
    /// Of a table's options.
    ///
    /// # Errors
    /// No certificates to trust.
    pub fn of(url: &Url, access: &Access, options: &PostgresOptions) -> Result<Self, DbError> {
        let mode = url.ssl_mode().map_err(DbError::fatal)?;
        let tls = match mode {
            SslMode::Disable => None,
            mode => {
                let config = tls::client_config(mode == SslMode::VerifyFull, url.ssl_ca().as_deref())?;
                Some((Arc::new(config), mode != SslMode::Prefer))
            }
        };
        let target = Target {
            host: url.host.clone(),
            port: url.port.unwrap_or(PORT),
            user: options.username.clone(),
            password: url.password.clone(),
            database: url.database.clone(),
            tls,
        };
        Ok(Settings {
            target,
            access: access.clone(),
            slot: options.slot.clone(),
            publication: options.publication_name(),
            upsert: options.mode == Mode::Upsert,
        })
    }

    /// The log of what is followed; `committed` says before which place checkpoints hold everything.
    pub fn log(&self, followed: &Followed, committed: Arc<AtomicU64>) -> Box<dyn ChangeLog> {
        Box::new(PostgresLog { settings: self.clone(), followed: followed.clone(), committed, table: None, known: Known::default() })
    }

    /// The command that begins the stream. The name of a publication stands in a list of such, folded to small letters unless
    /// it is quoted.
    fn start(&self, from: Offset) -> String {
        format!(
            "START_REPLICATION SLOT {} LOGICAL {from} (proto_version '1', binary 'true', publication_names {})",
            quote_part(&self.slot),
            literal(&quote_part(&self.publication))
        )
    }

    /// The statement that reads the log up to a place and lets the slot be.
    fn peek(&self, upto: Offset) -> String {
        format!(
            "SELECT data FROM pg_catalog.pg_logical_slot_peek_binary_changes({}, '{upto}', NULL, 'proto_version', '1', 'binary', 'true', \
             'publication_names', {})",
            literal(&self.slot),
            literal(&quote_part(&self.publication))
        )
    }
}

/// See the module.
struct PostgresLog {
    settings: Settings,
    followed: Followed,
    committed: Arc<AtomicU64>,
    /// As it was when it was last looked at.
    table: Option<Table>,
    /// Its partitions, if it has some.
    known: Known,
}

/// A replication connection with what drives it. The server has to hear from us also while we wait for the job: so it
/// has a thread.
struct Session {
    link: Link,
    runtime: Runtime,
    /// Names the server, and those that may take its place.
    server: String,
}

impl PostgresLog {
    /// Opens a replication connection that does not yet stream.
    fn session(&self) -> Result<Session, DbError> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("tidemill-cdc-io").enable_all().build();
        let runtime = runtime.map_err(|e| DbError::connection(format!("making a replication connection: {e}")))?;
        let timeout = self.settings.access.connect_timeout;
        let connected = runtime.block_on(async {
            tokio::time::timeout(timeout, async {
                let mut link = Link::connect(&self.settings.target).await?;
                let system = link.query("IDENTIFY_SYSTEM").await?;
                let server = system.into_iter().next().and_then(|row| row.into_iter().next().flatten());
                Ok::<_, DbError>((link, server.unwrap_or_default()))
            })
            .await
        });
        let connected = connected.unwrap_or_else(|_| Err(DbError::connection(format!("no answer within {timeout:?}"))));
        let (link, server) = connected.map_err(|e| e.at("a replication connection"))?;
        Ok(Session { link, runtime, server })
    }

    fn connect(&self) -> Result<Box<dyn Connection>, DbError> {
        self.settings.access.driver.connect(self.settings.access.connect_timeout)
    }
}

/// Takes what comes until nobody wants it any more.
async fn drive(events: &mut mpsc::Receiver<Result<Vec<Event>, DbError>>, rows: &mut TableRows, feed: &mut Feed) -> Result<(), DbError> {
    while !feed.stopped() {
        // Whoever moves the bytes says when the connection has broken; a server without changes says nothing for long.
        feed.alive(Instant::now());
        let mut next = at_once(events.recv()).await;
        if next.is_none() {
            // Whoever moves the bytes may have some on the way.
            tokio::task::yield_now().await;
            next = at_once(events.recv()).await;
        }
        if next.is_none() {
            if feed.rows() > 0 {
                rows.flush(feed)?;
            }
            feed.idle()?;
            next = tokio::time::timeout(TICK, events.recv()).await.ok();
        }
        match next {
            Some(Some(events)) => {
                for event in events? {
                    take(event, rows, feed)?;
                }
            }
            Some(None) => return Err(DbError::connection("the stream of changes was broken off")),
            None => {}
        }
    }
    Ok(())
}

/// What a future gives without waiting.
async fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match futures::poll!(pin!(future)) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Takes a message.
fn take(event: Event, rows: &mut TableRows, feed: &mut Feed) -> Result<(), DbError> {
    match event {
        Event::Data(data) => rows.take(&data, feed),
        Event::Begin { at } => {
            feed.begin(Offset::at(at));
            Ok(())
        }
        Event::Commit { end } => feed.commit(Offset::at(end)),
        Event::Reached(at) => feed.reached(Offset::at(at)),
    }
}

impl ChangeLog for PostgresLog {
    fn prepare(&mut self, position: Option<&Position>, startup: Startup) -> Result<Option<Position>, DbError> {
        let name = self.settings.slot.clone();
        let mut connection = self.connect()?;
        let table = Table::load(connection.as_mut(), &self.followed, self.settings.upsert)?;
        // Types that do not go together are found now rather than with the first change.
        rows::readers(&self.followed, &table)?;
        catalog::publication(connection.as_mut(), &self.settings.publication, &table)?;
        if table.partitioned {
            partitions::tell(&self.followed.table, &self.known.look(connection.as_mut(), &table)?);
        }
        self.table = Some(table);
        let slot = Slot::load(connection.as_mut(), &name)?;
        let server = self.session()?.server;
        if let Some(position) = position {
            if server != position.server {
                return Err(DbError::fatal(
                    "this is another server than that of the checkpoint, whose places in the log mean nothing here; start without the \
                     checkpoint",
                ));
            }
            let Some(slot) = slot else {
                return Err(DbError::fatal(format!(
                    "the replication slot {name} is not there any more, and with it the changes since the checkpoint; start without the \
                     checkpoint"
                )));
            };
            if slot.confirmed > position.from {
                return Err(DbError::fatal(format!(
                    "the replication slot {name} goes on at {}, behind the checkpoint's place {}: somebody else has read from it; start \
                     without \
                     the checkpoint, with a slot that nobody shares",
                    slot.confirmed, position.from
                )));
            }
            return Ok(None);
        }
        let slot = match slot {
            Some(slot) => slot,
            None => Slot::create(connection.as_mut(), &name)?,
        };
        let from = match startup {
            Startup::Initial | Startup::Committed | Startup::Earliest => slot.confirmed,
            Startup::Latest => catalog::now(connection.as_mut())?.max(slot.confirmed),
        };
        let reading = (startup == Startup::Initial).then(Reading::default);
        Ok(Some(Position { server, from, reading, ..Position::default() }))
    }

    fn order(&self) -> Option<Vec<String>> {
        self.table.as_ref()?.order(&self.followed)
    }

    fn dialect(&self) -> &'static dyn Dialect {
        &PostgresDialect
    }

    fn snapshot(&mut self, feed: &Feed) -> Result<(Offset, Box<dyn Connection>), DbError> {
        let Session { mut link, runtime, .. } = self.session()?;
        let mut connection = self.connect()?;
        let name = format!("tidemill_{}_{:x}", std::process::id(), tidemill_block::clock::now_ns());
        let sql = format!("CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT", quote_part(&name));
        let stop = feed.stop();
        let rows = runtime.block_on(while_wanted(link.query(&sql), &stop));
        let rows =
            rows.unwrap_or_else(|| Err(DbError::fatal("reading was given up"))).map_err(|e| e.at("making a snapshot of the table"))?;
        // The slot's name, the place, the snapshot's name.
        let text = |at: usize| rows.first().and_then(|row| row.get(at)?.as_deref()).unwrap_or_default();
        let at = catalog::lsn(text(1))?;
        connection.begin()?;
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")?;
        connection.execute(&format!("SET TRANSACTION SNAPSHOT {}", literal(text(2))))?;
        // The temporary slot goes with its connection; the snapshot is ours by now.
        Ok((at, connection))
    }

    fn old_rows(&self) -> bool {
        !self.settings.upsert
    }

    fn replay(&mut self, feed: &mut Feed, _from: Offset, upto: Offset) -> Result<(), DbError> {
        let Some(table) = self.table.clone() else { return Err(DbError::fatal("internal error: a table that was not looked at")) };
        let mut rows = TableRows::new(&self.followed, table, self.settings.upsert)?;
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("data", DataType::Binary, true)]));
        let read = self.connect()?.query(&self.settings.peek(upto), None, &schema, PEEKED, &mut |batch| {
            if feed.stopped() {
                return Err(DbError::fatal("reading was given up"));
            }
            for message in batch.column(0).as_binary::<i32>().iter().flatten() {
                let event = client::message(Bytes::copy_from_slice(message));
                let damaged = |why: String| DbError::connection(format!("the server's change log is damaged: a message {why}"));
                take(event.map_err(damaged)?, &mut rows, feed)?;
            }
            Ok(())
        });
        // A slot that is still in use, by a connection that has just broken, is waited for as long as a server is, not so many times.
        read.map_err(|e| if e.kind == DbErrorKind::Retry { DbError { kind: DbErrorKind::Connection, ..e } } else { e })?;
        rows.flush(feed)
    }

    fn stream(&mut self, feed: &mut Feed) -> Result<(), DbError> {
        let Some(table) = self.table.clone() else { return Err(DbError::fatal("internal error: a table that was not looked at")) };
        let watch = || Watch::begin(&self.settings.access, &table, &self.followed.table, &self.known);
        let _watch = table.partitioned.then(watch).transpose()?;
        let mut rows = TableRows::new(&self.followed, table, self.settings.upsert)?;
        let Session { mut link, runtime, .. } = self.session()?;
        let sql = self.settings.start(feed.position().from);
        let stop = feed.stop();
        let started = runtime.block_on(while_wanted(link.start(&sql), &stop));
        match started {
            Some(started) => started.map_err(|e| e.at("beginning to read changes"))?,
            None => return Ok(()),
        }
        let (sender, mut events) = mpsc::channel(PIECES_MAX);
        runtime.spawn(link.pump(sender, self.committed.clone()));
        runtime.block_on(drive(&mut events, &mut rows, feed))
    }
}

/// Waits for something unless nobody wants it any more.
async fn while_wanted<T>(work: impl Future<Output = T>, stop: &AtomicBool) -> Option<T> {
    let mut work = pin!(work);
    loop {
        match tokio::time::timeout(TICK, work.as_mut()).await {
            Ok(done) => return Some(done),
            Err(_) if stop.load(Ordering::Relaxed) => return None,
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Driver;
    use crate::url::Scheme;

    #[test]
    fn names_are_quoted() {
        let text = "postgresql://db/events?ssl-mode=disable";
        let url = Url::parse(text).unwrap();
        assert_eq!(url.scheme, Scheme::Postgres);
        let driver: Arc<dyn Driver> = crate::postgres::driver(&url).unwrap();
        let seconds = Duration::from_secs(1);
        let access = Access { driver, place: text.into(), connect_timeout: seconds, retry_timeout: seconds, max_retries: 0 };
        let target = Target { host: "db".into(), port: 1, user: "u".into(), password: None, database: "d".into(), tls: None };
        let settings = Settings { target, access, slot: "s".into(), publication: "It's \"mine\"".into(), upsert: false };
        assert_eq!(
            settings.start(Offset::at(0x1_0000_00AB)),
            "START_REPLICATION SLOT \"s\" LOGICAL 1/AB (proto_version '1', binary 'true', publication_names '\"It''s \"\"mine\"\"\"')"
        );
        assert_eq!(
            settings.peek(Offset::at(0x1_0000_00AB)),
            "SELECT data FROM pg_catalog.pg_logical_slot_peek_binary_changes('s', '1/AB', NULL, 'proto_version', '1', 'binary', 'true', \
             'publication_names', '\"It''s \"\"mine\"\"\"')"
        );
    }
}
