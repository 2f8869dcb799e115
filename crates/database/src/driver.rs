//! What a database must be able to do: the traits behind which each store hides.
//!
//! A [`Driver`] is made of a URL and opens [`Connection`]s; the [`Dialect`] writes what differs in SQL.
//! Everything is blocking: whoever calls has a thread for it. What does not live here: batches,
//! transactions' marks, retries and threads (`sink`, `source`, `lookup`), and the stores themselves
//! (`sqlite`, `postgres`, `mysql`, `duckdb`, `sqlserver`).

use std::fmt;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, SchemaRef};

/// A kind of database, with what is needed to reach one.
pub trait Driver: Send + Sync {
    /// The name for people, such as `PostgreSQL`.
    fn name(&self) -> &'static str;

    /// How this store wants its SQL.
    fn dialect(&self) -> &'static dyn Dialect;

    /// One connection; waits at most `timeout`.
    ///
    /// # Errors
    /// Who was to be reached and what came of it; the password is never part of the message.
    fn connect(&self, timeout: Duration) -> Result<Box<dyn Connection>, DbError>;

    /// Whether several connections write in parallel (SQLite: no).
    fn parallel_writers(&self) -> bool {
        true
    }

    /// Names the database among those that have one writer at a time, the same however its place is written.
    fn identity(&self) -> String {
        String::new()
    }
}

/// What differs between stores in the text of a statement.
pub trait Dialect: Send + Sync {
    /// A name as it stands in a statement, quoted part by part: `a.b` becomes `"a"."b"`.
    fn quote(&self, name: &str) -> String;

    /// The name of a column, quoted as one: dots in it are part of the name.
    fn quote_column(&self, name: &str) -> String {
        let mark = self.quote("x").chars().next().unwrap_or('"');
        let twice: String = [mark, mark].iter().collect();
        format!("{mark}{}{mark}", name.replace(mark, &twice))
    }

    /// The type of a column for `CREATE TABLE`. `key`: the column is part of the primary key (MySQL wants a
    /// length there).
    ///
    /// # Errors
    /// A type that the store has nothing for, with the column's name.
    fn column_type(&self, field: &Field, key: bool) -> Result<String, DbError>;

    /// A value as a literal, where a statement cannot have parameters (bounds of a partitioned scan): text of
    /// the value in the form that Arrow's display gives, quoted unless it is a number.
    fn literal(&self, text: &str, number: bool) -> String {
        if number { text.to_string() } else { format!("'{}'", text.replace('\'', "''")) }
    }

    /// The end of a `CREATE TABLE` behind the closing bracket (MySQL's engine and character set); empty where
    /// there is nothing to say.
    fn table_suffix(&self) -> &'static str {
        ""
    }

    /// `CREATE TABLE` for a table that may be there already; `name` is quoted, `columns` what stands in brackets.
    fn create_table(&self, name: &str, columns: &str) -> String {
        format!("CREATE TABLE IF NOT EXISTS {name} ({columns}){}", self.table_suffix())
    }

    /// The condition that a row comes behind another in the order of `columns`, quoted; `values` are the other's.
    fn behind(&self, columns: &[String], values: &[String]) -> String {
        match (columns, values) {
            ([column], [value]) => format!("{column} > {value}"),
            _ => format!("({}) > ({})", columns.join(", "), values.join(", ")),
        }
    }

    /// A value of a column, one row, as the parameter that this column of other rows is compared with, and the type that the
    /// parameter is cast to, if any: so that the comparison is one by the column's own type, as `ORDER BY` is.
    ///
    /// # Errors
    /// A value that cannot be such a parameter.
    fn position(&self, value: ArrayRef) -> Result<(ArrayRef, Option<&'static str>), DbError> {
        Ok((value, None))
    }

    /// Two values of a column, one row each, between which a part of its table lies, both included: the parameters that the column is
    /// compared with, by `>=` and by the operator between them.
    ///
    /// # Errors
    /// Values that cannot be such parameters.
    fn range(&self, lower: ArrayRef, upper: ArrayRef) -> Result<(ArrayRef, &'static str, ArrayRef), DbError> {
        Ok((lower, "<=", upper))
    }

    /// A statement that lets the open transaction wait for locks no longer than `limit`; `None` where waiting has
    /// an end by itself. A transaction that stays open between checkpoints must not wait for another such one.
    fn limit_lock_waits(&self, _limit: Duration) -> Option<String> {
        None
    }

    /// The end of a `SELECT` that waits for whoever is changing its rows and keeps others from it until the
    /// transaction ends; empty where a transaction is alone anyway.
    fn lock_rows(&self) -> &'static str {
        " FOR UPDATE"
    }

    /// The same where it is said behind the table's name.
    fn lock_hint(&self) -> &'static str {
        ""
    }

    /// The placeholder of parameter `number`, from 1: `?` or `$1`.
    fn placeholder(&self, _number: usize) -> String {
        "?".into()
    }
}

/// A table that is written to or looked up.
#[derive(Clone, Debug)]
pub struct Target {
    /// The table's name as given in 'table-name', not quoted.
    pub table: String,
    /// Its columns as the job sees them.
    pub schema: SchemaRef,
    /// Indices of the columns of the primary key; empty: rows are appended.
    pub key: Vec<usize>,
}

impl Target {
    /// The names of the columns of the key.
    pub fn key_names(&self) -> Vec<&str> {
        self.key.iter().map(|i| self.schema.field(*i).name().as_str()).collect()
    }

    /// Indices of the columns that are not of the key.
    pub fn value_columns(&self) -> Vec<usize> {
        (0..self.schema.fields().len()).filter(|i| !self.key.contains(i)).collect()
    }
}

/// One session with a database. Used by one thread at a time.
pub trait Connection: Send {
    /// Runs a statement without a result (or whose result is of no interest); answers with the number of rows
    /// it changed, 0 where the store does not say.
    ///
    /// # Errors
    /// What the store refused, and its kind.
    fn execute(&mut self, sql: &str) -> Result<u64, DbError>;

    /// Runs a query. The columns of the result are converted to `schema`, by position; a value that does not
    /// fit is an error that names column and value. `parameters` is one row, whose columns are bound to the
    /// placeholders in order. `piece` is called with batches of at most `rows` rows, as they arrive.
    ///
    /// # Errors
    /// Of the store, of conversion, of `piece`: then the rest of the result is dropped.
    fn query(
        &mut self,
        sql: &str,
        parameters: Option<&RecordBatch>,
        schema: &SchemaRef,
        rows: usize,
        piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
    ) -> Result<(), DbError>;

    /// Begins a transaction.
    ///
    /// # Errors
    /// Of the store.
    fn begin(&mut self) -> Result<(), DbError>;

    /// Commits the open transaction.
    ///
    /// # Errors
    /// Of the store; after [`DbErrorKind::Connection`] nobody knows whether it was committed.
    fn commit(&mut self) -> Result<(), DbError>;

    /// Rolls the open transaction back; nothing if there is none.
    ///
    /// # Errors
    /// Of the store.
    fn rollback(&mut self) -> Result<(), DbError>;

    /// Marks the place in the open transaction that [`Connection::roll_back_to_savepoint`] goes back to; there is
    /// one at a time.
    ///
    /// # Errors
    /// Of the store.
    fn savepoint(&mut self) -> Result<(), DbError> {
        self.execute("SAVEPOINT tidemill").map(drop)
    }

    /// Undoes what the open transaction has done since the savepoint.
    ///
    /// # Errors
    /// Of the store.
    fn roll_back_to_savepoint(&mut self) -> Result<(), DbError> {
        self.execute("ROLLBACK TO SAVEPOINT tidemill").map(drop)
    }

    /// Forgets the savepoint.
    ///
    /// # Errors
    /// Of the store.
    fn release_savepoint(&mut self) -> Result<(), DbError> {
        self.execute("RELEASE SAVEPOINT tidemill").map(drop)
    }

    /// Inserts all rows by the store's fastest way, inside the open transaction. The batch has the columns of
    /// the target in their order.
    ///
    /// # Errors
    /// Of the store; [`DbErrorKind::Data`] if a row is refused.
    fn append(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError>;

    /// Inserts or replaces rows of distinct keys, sorted by key, inside the open transaction.
    ///
    /// # Errors
    /// As [`Connection::append`].
    fn upsert(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError>;

    /// Deletes by key. `keys` has the key columns only, distinct and sorted. Keys that are not there are fine.
    ///
    /// # Errors
    /// As [`Connection::append`].
    fn delete(&mut self, target: &Target, keys: &RecordBatch) -> Result<(), DbError>;

    /// Rows of `target` whose columns equal a row of `keys` (a set of the target's columns by name, not always
    /// its primary key; distinct rows), as `columns`, in any order.
    ///
    /// # Errors
    /// As [`Connection::query`].
    fn look_up(&mut self, target: &Target, keys: &RecordBatch, columns: &SchemaRef) -> Result<RecordBatch, DbError>;

    /// The columns of a table with the text of their types, in order; `None` if there is no such table.
    ///
    /// # Errors
    /// Of the store.
    fn table_columns(&mut self, table: &str) -> Result<Option<Vec<(String, String)>>, DbError>;

    /// Whether the connection still answers. May ask the server.
    fn alive(&mut self) -> bool;
}

/// An error of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbError {
    /// What can be done about it.
    pub kind: DbErrorKind,
    /// What was being done and what the store said. Holds no secrets.
    pub message: String,
}

/// What can be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DbErrorKind {
    /// Try again on a new connection.
    Connection,
    /// Try the transaction again: deadlock, lock timeout, serialization failure.
    Retry,
    /// This data is refused: a unique violation, too long, out of range, NULL.
    Data,
    /// The set-up is wrong: no such table, no rights, wrong password, read-only, disk full.
    Fatal,
}

impl DbError {
    /// An error of a kind.
    pub fn new(kind: DbErrorKind, message: impl Into<String>) -> Self {
        DbError { kind, message: message.into() }
    }

    /// The connection is gone or was not made.
    pub fn connection(message: impl Into<String>) -> Self {
        DbError::new(DbErrorKind::Connection, message)
    }

    /// The transaction may go better the next time.
    pub fn retry(message: impl Into<String>) -> Self {
        DbError::new(DbErrorKind::Retry, message)
    }

    /// The data is refused.
    pub fn data(message: impl Into<String>) -> Self {
        DbError::new(DbErrorKind::Data, message)
    }

    /// Nothing helps but a change of the set-up.
    pub fn fatal(message: impl Into<String>) -> Self {
        DbError::new(DbErrorKind::Fatal, message)
    }

    /// The same error with the place where it happened in front.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        DbError { kind: self.kind, message: format!("{place}: {}", self.message) }
    }

    /// Whether another attempt may go better, on a new connection if need be.
    pub fn passes(&self) -> bool {
        matches!(self.kind, DbErrorKind::Connection | DbErrorKind::Retry)
    }
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DbError {}

impl From<arrow::error::ArrowError> for DbError {
    /// Columns that do not go together: of our own making, nothing that another attempt could mend.
    fn from(e: arrow::error::ArrowError) -> Self {
        DbError::fatal(e.to_string())
    }
}

impl From<DbError> for tidemill_connect::ConnectError {
    fn from(e: DbError) -> Self {
        tidemill_connect::ConnectError::new(e.message)
    }
}
