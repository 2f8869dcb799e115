//! The thread that follows a table: first what is in it, then its changes, over connections that are made again when
//! they break.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::feed::{Event, Feed};
use super::options::Startup;
use super::position::{Offset, Part, Position, Reading};
use crate::driver::{Connection, DbError, Dialect};
use crate::session::{Access, Patience};
use crate::source::{decode_row, encode_row};

/// What is followed.
#[derive(Clone)]
pub(crate) struct Followed {
    /// The table with its schema or database in front, not quoted.
    pub table: String,
    /// The columns that are read: those wanted, and those of the key behind them.
    pub schema: SchemaRef,
    /// Where those of the primary key are among them; empty: none was declared.
    pub key: Vec<usize>,
}

impl Followed {
    /// The name of a column that is read.
    pub fn name(&self, column: usize) -> &str {
        self.schema.field(column).name()
    }
}

/// The change log of a table's database. Used by one thread.
pub(crate) trait ChangeLog: Send {
    /// Looks whether the table can be followed from `position` on (none: from where `startup` says), and sees to it
    /// that the log is kept from there on. Gives the position to begin with if there was none.
    ///
    /// # Errors
    /// What is missing, and what to do about it.
    fn prepare(&mut self, position: Option<&Position>, startup: Startup) -> Result<Option<Position>, DbError>;

    /// How the table is ordered so that its keys compare as their columns' bytes do here: an expression for each
    /// column of the key. None if there is no such order. Asked after [`ChangeLog::prepare`].
    fn order(&self) -> Option<Vec<String>>;

    /// The SQL of the database.
    fn dialect(&self) -> &'static dyn Dialect;

    /// A connection with an open transaction that sees the table as it is at a place of the log: without transactions from
    /// there on, and with all before.
    ///
    /// # Errors
    /// Of the database.
    fn snapshot(&mut self, feed: &Feed) -> Result<(Offset, Box<dyn Connection>), DbError>;

    /// Whether changes have the whole of old rows.
    fn old_rows(&self) -> bool {
        true
    }

    /// Feeds the changes from a place on up to another; some from before or from behind do no harm.
    ///
    /// # Errors
    /// As [`ChangeLog::stream`].
    fn replay(&mut self, feed: &mut Feed, from: Offset, upto: Offset) -> Result<(), DbError>;

    /// Feeds the changes from [`Feed::position`] on, until nobody wants them any more, and says meanwhile that the connection is
    /// alive ([`Feed::alive`]).
    ///
    /// # Errors
    /// The connection broke; the log or the table is not what it was.
    fn stream(&mut self, feed: &mut Feed) -> Result<(), DbError>;
}

/// See the module.
pub(super) struct Follower {
    pub log: Box<dyn ChangeLog>,
    pub followed: Followed,
    pub access: Access,
    pub startup: Startup,
    /// Rows of the table that are handed over at once.
    pub fetch_size: usize,
    pub feed: Feed,
}

impl Follower {
    /// Follows the table until nobody reads any more or nothing helps.
    pub fn run(mut self, mut position: Option<Position>) {
        let resumed = position.is_some();
        let mut patience = Patience::new(&self.access);
        loop {
            let before = self.feed.position().clone();
            let Err(error) = self.attempt(&mut position, resumed) else { return };
            if self.feed.stopped() {
                return;
            }
            // A table at which nothing happens keeps its place. If only that counted, breaks that lie days apart would be one outage.
            let lived = self.feed.has_lived();
            if lived || *self.feed.position() != before {
                patience = Patience::new(&self.access);
            }
            let error = if error.message.contains(&self.access.place) { error } else { error.at(&self.access.place) };
            if let Err(error) = patience.wait(error, &self.feed.stop()) {
                // A reader that is gone needs no answer.
                let _ = self.feed.send(Event::Failed(error));
                return;
            }
        }
    }

    /// One attempt; `position` is where the job said to go on, until the feed has one of its own. `resumed`: another run was
    /// there before this one.
    fn attempt(&mut self, position: &mut Option<Position>, resumed: bool) -> Result<(), DbError> {
        let begun = !self.feed.position().server.is_empty();
        let mut now = if begun { Some(self.feed.position().clone()) } else { position.clone() };
        if let Some(first) = self.log.prepare(now.as_ref(), self.startup)? {
            now = Some(first);
        }
        let Some(mut now) = now else { return Err(DbError::fatal("internal error: a log without a place to begin at")) };
        if let Some(reading) = &now.reading {
            // A feed that goes on on another connection knows what it has sent; a job that was killed does not. Nobody knows how far
            // that one was, so its rows may be anywhere in what is left, and what goes from there is undone on each connection anew.
            let undo = resumed.then_some(reading.at);
            if !now.cut() || (!now.parts.is_empty() && self.log.order().is_none()) {
                return Err(DbError::fatal(format!(
                    "the first reading of table {} was cut off and cannot be gone on with, since {}; start without the checkpoint, or \
                     with 'scan.startup.mode' = 'latest-offset'",
                    self.followed.table,
                    if self.followed.key.is_empty() { "no PRIMARY KEY is declared" } else { "its key has no order that is known here" }
                )));
            }
            self.read_table(now, undo)?;
        } else {
            self.feed.go_to(now)?;
        }
        *position = None;
        self.log.stream(&mut self.feed)
    }

    /// Reads the table, or what is left of it; first undoes what was perhaps read as of `undo`.
    fn read_table(&mut self, mut now: Position, undo: Option<Offset>) -> Result<(), DbError> {
        let (at, mut connection) = self.log.snapshot(&self.feed)?;
        if now.parts.is_empty() {
            now.from = at;
        }
        now.reading = Some(Reading { at, ..Reading::default() });
        let after = now.parts.last().and_then(|p| p.upto.as_deref()).map(decode_row).transpose()?;
        let order = self.log.order();
        if let Some(from) = undo {
            if self.log.old_rows() {
                self.feed.undo(from, now.parts.last().and_then(|part| part.upto.as_deref()))?;
                self.log.replay(&mut self.feed, from, at)?;
            } else {
                tidemill_connect::notice(&format!(
                    "table {}: its first reading was cut off and is gone on with; rows that were read behind the last checkpoint \
                     and deleted since may stay in the tables that are written, for the log does not hold old rows \
                     ('changelog-mode' = 'upsert')",
                    self.followed.table
                ));
            }
        }
        self.feed.go_to(now)?;
        let (sql, parameters) = self.statement(order.as_deref(), after.as_ref())?;
        let Follower { feed, followed, fetch_size, .. } = self;
        connection.query(&sql, parameters.as_ref(), &followed.schema, *fetch_size, &mut |batch| {
            if feed.stopped() {
                return Err(DbError::fatal("reading was given up"));
            }
            if batch.num_rows() == 0 {
                return Ok(());
            }
            let last = batch.slice(batch.num_rows() - 1, 1);
            let after = if order.is_some() { Some(encode_row(&last.project(&followed.key)?)?) } else { None };
            feed.table(batch, after)
        })?;
        connection.commit()?;
        let mut now = self.feed.position().clone();
        now.reading = None;
        if !now.parts.is_empty() {
            now.parts.push(Part { upto: None, at });
        }
        self.feed.go_to(now)
    }

    /// The statement that reads the table behind a key.
    fn statement(&self, order: Option<&[String]>, after: Option<&RecordBatch>) -> Result<(String, Option<RecordBatch>), DbError> {
        let dialect = self.log.dialect();
        let columns: Vec<String> = self.followed.schema.fields().iter().map(|f| dialect.quote_column(f.name())).collect();
        let mut sql = format!("SELECT {} FROM {}", columns.join(", "), dialect.quote(&self.followed.table));
        let Some(order) = order else { return Ok((sql, None)) };
        let mut parameters: Vec<(String, ArrayRef)> = Vec::new();
        if let Some(after) = after {
            let mut values = Vec::with_capacity(order.len());
            for value in after.columns() {
                let (value, cast) = dialect.position(value.clone())?;
                parameters.push((format!("p{}", parameters.len()), value));
                let placeholder = dialect.placeholder(parameters.len());
                values.push(match cast {
                    Some(to) => format!("CAST({placeholder} AS {to})"),
                    None => placeholder,
                });
            }
            sql = format!("{sql} WHERE {}", dialect.behind(order, &values));
        }
        sql = format!("{sql} ORDER BY {}", order.join(", "));
        let parameters = if parameters.is_empty() { None } else { Some(RecordBatch::try_from_iter(parameters)?) };
        Ok((sql, parameters))
    }
}

/// Rows of a statement as text, for what is asked of catalogs.
///
/// # Errors
/// Of the database.
pub(crate) fn text_rows(connection: &mut dyn Connection, sql: &str, columns: usize) -> Result<Vec<Vec<Option<String>>>, DbError> {
    let fields: Vec<Field> = (0..columns).map(|i| Field::new(format!("c{i}"), DataType::Utf8, true)).collect();
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let mut rows = Vec::new();
    connection.query(sql, None, &schema, 1024, &mut |batch| {
        let arrays: Vec<_> = batch.columns().iter().map(|c| c.as_string::<i32>()).collect();
        for row in 0..batch.num_rows() {
            rows.push(arrays.iter().map(|a| a.is_valid(row).then(|| a.value(row).to_string())).collect());
        }
        Ok(())
    })?;
    Ok(rows)
}

#[cfg(test)]
mod tests;
