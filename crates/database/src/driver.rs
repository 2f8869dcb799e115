//! What a database must be able to do: the traits behind which each store hides.
//!
//! A [`Driver`] is made of a URL and opens [`Connection`]s; the [`Dialect`] writes what differs in SQL.
//! Everything is blocking: whoever calls has a thread for it. What does not live here: batches,
//! transactions' marks, retries and threads (`sink`, `source`, `lookup`), and the stores themselves
//! (`sqlite`, `postgres`, `mysql`, `duckdb`, `sqlserver`, `oracle`, `odbc`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Field, Int64Type, SchemaRef, TimeUnit};

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

    /// Bytes of upserts that are committed together: a batch that has more is committed in parts, in order of key. They
    /// share hardly a page, so no part costs the table more than it would among the others; what a store holds for a
    /// transaction (locks, undo, rows in a temporary table) stays within bounds.
    fn part_bytes(&self) -> usize {
        64 << 20
    }

    /// How many connections write parts of batches of upserts at a time: more than one where a statement waits for one page
    /// after the other.
    fn parts_at_once(&self) -> usize {
        1
    }

    /// As [`Driver::part_bytes`], of parts that so many connections write beside each other.
    fn part_bytes_beside(&self) -> usize {
        self.part_bytes()
    }

    /// Rows that the store keeps as one piece, if it does: appended together with no others they need not be written again.
    fn row_group(&self) -> Option<usize> {
        None
    }

    /// Whether it is a library in this process: its statements end by themselves, and whoever ends waits for that. A server rolls
    /// back what a session leaves.
    fn in_process(&self) -> bool {
        false
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

    /// What `CREATE TABLE` says at its very end for a table with a key, whose rows will be updated.
    fn for_updates(&self) -> &'static str {
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
        let cast = self.decimal_cast(value.data_type());
        Ok((value, cast))
    }

    /// The type that a parameter of a decimal type is cast to, where it would be compared as a double otherwise.
    fn decimal_cast(&self, _data_type: &DataType) -> Option<&'static str> {
        None
    }

    /// Two values of a column, one row each, between which a part of its table lies, both included: the parameters that the column is
    /// compared with, by `>=` and by the operator between them. Moments that are finer than the job has them must lie in a part, too.
    ///
    /// # Errors
    /// Values that cannot be such parameters.
    fn range(&self, lower: ArrayRef, upper: ArrayRef) -> Result<(ArrayRef, &'static str, ArrayRef), DbError> {
        up_to_the_next(lower, upper)
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

/// Microseconds from 1970 to the end of the year 9999, with which time ends in most stores.
const END_OF_TIME: i64 = 253_402_300_800_000_000;

/// The type for [`Dialect::decimal_cast`] of MySQL, which takes a parameter for a text and compares that with numbers as a double. It has
/// the digits of all decimals of such a scale, both in front of the point and behind it.
pub(crate) fn decimal_of_mysql(data_type: &DataType) -> Option<&'static str> {
    match data_type {
        DataType::Decimal128(_, ..=27) => Some("DECIMAL(65,27)"),
        DataType::Decimal128(_, ..=30) => Some("DECIMAL(65,30)"),
        // MariaDB has up to 38 decimals. MySQL ends at 30, so there a column that is declared with more has zeros behind those. What
        // stands in each of these comments only one of the two reads.
        DataType::Decimal128(..) => Some("DECIMAL(65,/*!50700 30*//*M!38*/)"),
        _ => None,
    }
}

/// The range of [`Dialect::range`] between two values. Of timestamps the upper one stands for all its unit, whose finer moments
/// the database may have, and of decimal numbers for all fractions behind it: so a part ends where the next one begins.
pub(crate) fn up_to_the_next(lower: ArrayRef, upper: ArrayRef) -> Result<(ArrayRef, &'static str, ArrayRef), DbError> {
    if let (DataType::Decimal128(precision, scale), false) = (upper.data_type(), upper.is_null(0)) {
        let next = upper.as_primitive::<Decimal128Type>().value(0) + 1;
        if next >= 10i128.pow((*precision).into()) {
            return Ok((lower, "<=", upper));
        }
        let next = Decimal128Array::from(vec![next]).with_precision_and_scale(*precision, *scale)?;
        return Ok((lower, "<", Arc::new(next)));
    }
    let (DataType::Timestamp(unit, zone), false) = (upper.data_type(), upper.is_null(0)) else { return Ok((lower, "<=", upper)) };
    let micros = match unit {
        TimeUnit::Second => 1_000_000,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1,
        // None is finer.
        TimeUnit::Nanosecond => return Ok((lower, "<=", upper)),
    };
    let last = cast(&upper, &DataType::Int64)?.as_primitive::<Int64Type>().value(0);
    let next = last.saturating_add(1);
    let moment = |units: i64, unit: TimeUnit| cast(&Int64Array::from(vec![units]), &DataType::Timestamp(unit, zone.clone()));
    if next < END_OF_TIME / micros {
        return Ok((lower, "<", moment(next, *unit)?));
    }
    // The next one may be a moment that the store does not have.
    let last = last.saturating_mul(micros).saturating_add(micros - 1);
    Ok((lower, "<=", moment(last, TimeUnit::Microsecond)?))
}

/// The condition of [`Dialect::behind`] where `(a, b) > (1, 2)` is not known: a > 1 OR (a = 1 AND (b > 2)). What all rows behind have in
/// common stands in front, so that an index over the columns is begun in its middle.
pub(crate) fn behind_one_by_one(columns: &[String], values: &[String]) -> String {
    let mut condition = String::new();
    for (column, value) in columns.iter().zip(values).rev() {
        condition = match condition.is_empty() {
            true => format!("{column} > {value}"),
            false => format!("{column} > {value} OR ({column} = {value} AND ({condition}))"),
        };
    }
    match (columns, values) {
        ([first, _, ..], [value, ..]) => format!("{first} >= {value} AND ({condition})"),
        _ => condition,
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

    /// Whether parts of a batch of upserts may be written by other connections meanwhile
    /// ([`Driver::parts_at_once`]).
    ///
    /// # Errors
    /// Of the store.
    fn takes_parts_beside(&mut self, _target: &Target) -> Result<bool, DbError> {
        Ok(true)
    }

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

    /// What rows of a table are put in the order of a column by, and compared with others' values of it: `quoted`, which is the column
    /// itself, or where the store would order it by one thing and compare it with a parameter by another, what it is as the job has it.
    ///
    /// # Errors
    /// Of the store.
    fn ordered_by(&mut self, _table: &str, _column: &Field, quoted: String) -> Result<String, DbError> {
        Ok(quoted)
    }

    /// The columns of a table with the text of their types, in order; `None` if there is no such table.
    ///
    /// # Errors
    /// Of the store.
    fn table_columns(&mut self, table: &str) -> Result<Option<Vec<(String, String)>>, DbError>;

    /// The engine of a table if that has no transactions, so that nothing of what was written can be taken back; `None` for all others,
    /// and for views.
    ///
    /// # Errors
    /// Of the store.
    fn without_transactions(&mut self, _table: &str) -> Result<Option<String>, DbError> {
        Ok(None)
    }

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

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;

    use super::*;

    /// A row of 3.5 ms in a column declared with milliseconds was in no part of a table that was divided behind 3 ms: without
    /// parts it is an error, and with them it was missing.
    #[test]
    fn parts_end_where_the_next_begin() {
        #[track_caller]
        fn check(unit: TimeUnit, upper: i64, between: &str, (end, of): (i64, TimeUnit)) {
            let zoned = |unit: TimeUnit| DataType::Timestamp(unit, Some("UTC".into()));
            let array = |units: i64, unit: TimeUnit| cast(&Int64Array::from(vec![units]), &zoned(unit)).unwrap();
            let (lower, found, until) = up_to_the_next(array(0, unit), array(upper, unit)).unwrap();
            assert_eq!((lower.as_ref(), found, until.as_ref()), (array(0, unit).as_ref(), between, array(end, of).as_ref()));
        }
        use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
        check(Second, 5, "<", (6, Second));
        check(Millisecond, 3, "<", (4, Millisecond));
        check(Millisecond, -1, "<", (0, Millisecond));
        check(Microsecond, 3, "<", (4, Microsecond));
        check(Nanosecond, 3, "<=", (3, Nanosecond));
        check(Second, 253_402_300_799, "<=", (253_402_300_799_999_999, Microsecond));
        check(Microsecond, i64::MAX, "<=", (i64::MAX, Microsecond));
        let decimal = |n: i128| -> ArrayRef { Arc::new(Decimal128Array::from(vec![n]).with_precision_and_scale(2, 0).unwrap()) };
        assert_eq!(up_to_the_next(decimal(0), decimal(7)).unwrap(), (decimal(0), "<", decimal(8)));
        assert_eq!(up_to_the_next(decimal(0), decimal(99)).unwrap(), (decimal(0), "<=", decimal(99)));
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![7]));
        assert_eq!(up_to_the_next(numbers.clone(), numbers.clone()).unwrap(), (numbers.clone(), "<=", numbers));
    }

    /// A key of 38 decimals was rounded to 30: the scan that went on behind it passed rows over, or read them again.
    #[test]
    fn decimals_keep_their_digits() {
        let cast = |precision, scale| decimal_of_mysql(&DataType::Decimal128(precision, scale));
        assert_eq!((cast(38, 0), cast(38, 27)), (Some("DECIMAL(65,27)"), Some("DECIMAL(65,27)")));
        assert_eq!((cast(38, 28), cast(38, 30)), (Some("DECIMAL(65,30)"), Some("DECIMAL(65,30)")));
        let more = Some("DECIMAL(65,/*!50700 30*//*M!38*/)");
        assert_eq!((cast(38, 31), cast(38, 38)), (more, more));
        assert_eq!(decimal_of_mysql(&DataType::Int64), None);
    }

    #[test]
    fn rows_come_behind_others() {
        #[track_caller]
        fn check(columns: &[&str], values: &[&str], expect: &str) {
            let owned = |texts: &[&str]| texts.iter().map(|t| t.to_string()).collect::<Vec<_>>();
            assert_eq!(behind_one_by_one(&owned(columns), &owned(values)), expect);
        }
        check(&["a"], &["@P1"], "a > @P1");
        check(&["a", "b"], &["1", "2"], "a >= 1 AND (a > 1 OR (a = 1 AND (b > 2)))");
        check(&["a", "b", "c"], &["1", "2", "3"], "a >= 1 AND (a > 1 OR (a = 1 AND (b > 2 OR (b = 2 AND (c > 3)))))");
    }
}
