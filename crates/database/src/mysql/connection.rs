//! A session: statements, queries, transactions, and what the server complains of.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use ::mysql::prelude::Queryable;
use ::mysql::{Column, Conn, Error, Params, Row, Value};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::util::display::array_value_to_string;

use super::Abilities;
use super::check::check;
use super::dialect::bytes_of_text;
use super::encode::Prepared;
use super::error::{STATEMENT_REPLICATION, code, db_error, kind_of, shortened};
use super::open::Opened;
use super::read::Columns;
use super::table::{self, Table, engine_sql};
use crate::driver::{Connection, DbError, DbErrorKind, Target};

/// What is left of a result that nobody wants is read away if it has at most so many rows; else the connection is
/// given up.
const UNWANTED_ROWS_MAX: usize = 1_000;

/// Warnings that say nothing of values: deprecated syntax, statements that are unsafe for statement-based
/// replication, a rollback that tables without transactions do not know.
const HARMLESS_WARNINGS: &[u16] = &[1287, 1681, 1592, 1196];

/// A session with the server.
pub(super) struct MysqlConnection {
    pub(super) conn: Conn,
    socket: TcpStream,
    pub(super) row_alias: bool,
    pub(super) abilities: Arc<Abilities>,
    /// Why nothing more can be done with it, if so.
    broken: Option<DbError>,
    /// What is known of tables.
    tables: HashMap<String, Arc<Table>>,
    /// Whether the temporary table of upserts and deletes has been left behind.
    pub(super) stage_is_there: bool,
}

/// What the server said after a statement.
pub(super) struct Done {
    /// Rows inserted, changed or deleted.
    pub affected: u64,
    /// How many warnings there are to ask for.
    pub warnings: u16,
    /// `Records: 3  Duplicates: 0  Warnings: 0` and the like.
    pub info: String,
}

/// Rows on their way to a table, checked.
pub(super) struct Checked {
    /// The table.
    pub table: Arc<Table>,
    /// For each column of the rows, its position in the table.
    pub columns: Vec<usize>,
    /// The rows, ready to be written.
    pub rows: Arc<Prepared>,
}

impl Checked {
    /// The columns of the table that the rows have, in the rows' order.
    pub fn columns(&self) -> impl Iterator<Item = &table::Column> {
        self.columns.iter().map(|i| &self.table.columns[*i])
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns().map(|c| c.name.as_str())
    }
}

/// Why a result was not read to its end.
enum Stop {
    Server(Error),
    Unwanted { error: DbError, cut: bool },
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Server(error)
    }
}

impl MysqlConnection {
    pub fn new(opened: Opened, abilities: Arc<Abilities>) -> Self {
        MysqlConnection {
            conn: opened.conn,
            socket: opened.socket,
            row_alias: opened.row_alias,
            abilities,
            broken: None,
            tables: HashMap::new(),
            stage_is_there: false,
        }
    }

    /// Runs a statement; an error is the client's own.
    ///
    /// # Errors
    /// Of the server or the network.
    pub(super) fn run(&mut self, sql: &str) -> Result<Done, Error> {
        let mut result = self.conn.query_iter(sql)?;
        let done = Done { affected: result.affected_rows(), warnings: result.warnings(), info: result.info_str().into_owned() };
        while let Some(rows) = result.iter() {
            for row in rows {
                row?;
            }
        }
        Ok(done)
    }

    /// Runs a statement. `doing` is for the message.
    ///
    /// # Errors
    /// Of the server or the network.
    pub(super) fn statement(&mut self, doing: &str, sql: &str) -> Result<Done, DbError> {
        self.usable()?;
        self.run(sql).map_err(|e| self.failed(doing, &e))
    }

    /// An error that nothing more can come after, if there was one.
    pub(super) fn usable(&self) -> Result<(), DbError> {
        self.broken.as_ref().map_or(Ok(()), |e| Err(e.clone()))
    }

    /// Takes an error in: the connection may be of no more use, and what is known of tables may be out of date.
    pub(super) fn failed(&mut self, doing: &str, error: &Error) -> DbError {
        self.tables.clear();
        if code(error) == Some(STATEMENT_REPLICATION) {
            // Holds from the next transaction on.
            let repeatable = self.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
            if let Err(e) = repeatable {
                return self.failed("setting the isolation level back", &e);
            }
        }
        let found = db_error(doing, error);
        // Whatever the server did not say itself may have left half an answer on the way.
        if found.kind == DbErrorKind::Connection || code(error).is_none() {
            self.broken = Some(DbError { kind: DbErrorKind::Connection, ..found.clone() });
        }
        found
    }

    /// What the server says of a table.
    ///
    /// # Errors
    /// There is no such table.
    pub(super) fn table(&mut self, name: &str) -> Result<Arc<Table>, DbError> {
        self.usable()?;
        if let Some(table) = self.tables.get(name) {
            return Ok(table.clone());
        }
        let table = Table::load(&mut self.conn, name)?;
        let table =
            table.ok_or_else(|| DbError::fatal(format!("there is no table {name}; create it, or set 'sink.create-table' = 'true'")))?;
        let table = Arc::new(table);
        self.tables.insert(name.to_string(), table.clone());
        Ok(table)
    }

    /// Finds the columns of `rows` in a table and refuses values that it would change.
    ///
    /// # Errors
    /// No such table or column; a value, with its column.
    pub(super) fn checked(&mut self, target: &Target, rows: &RecordBatch) -> Result<Checked, DbError> {
        let table = self.table(&target.table)?;
        let prepared = Prepared::new(rows)?;
        let mut columns = Vec::with_capacity(rows.num_columns());
        for (field, array) in rows.schema().fields().iter().zip(&prepared.arrays) {
            let Some(position) = table.position(field.name()) else {
                self.tables.clear();
                let names: Vec<&str> = table.columns.iter().map(|c| c.name.as_str()).collect();
                return Err(DbError::fatal(format!(
                    "the table {} has no column '{}'; it has {}",
                    target.table,
                    field.name(),
                    names.join(", ")
                )));
            };
            check(field.name(), array.as_ref(), &table.columns[position])?;
            columns.push(position);
        }
        Ok(Checked { table, columns, rows: Arc::new(prepared) })
    }

    /// Makes an error of warnings that a statement with rows `first..` of `checked` has left.
    ///
    /// # Errors
    /// [`Data`](DbErrorKind::Data) with column, value and what the server said.
    pub(super) fn complaints(&mut self, doing: &str, done: &Done, checked: &Checked, first: usize) -> Result<(), DbError> {
        if done.warnings == 0 {
            return Ok(());
        }
        let rows: Vec<Row> = self.conn.query("SHOW WARNINGS").map_err(|e| self.failed(doing, &e))?;
        // Level, Code, Message; the code is text here.
        let warning = |row: &Row| Some((table::text(row, 1)?.parse::<u16>().ok()?, table::text(row, 2)?));
        match rows.iter().filter_map(warning).find(|(code, _)| !HARMLESS_WARNINGS.contains(code)) {
            Some((code, message)) => Err(refused(doing, code, &message, checked, first)),
            None if rows.is_empty() => {
                Err(DbError::data(format!("{doing}: the server has changed values and does not say which ({} warnings)", done.warnings)))
            }
            None => Ok(()),
        }
    }

    /// As [`MysqlConnection::failed`]; an error about a value of rows `first..` is named with it.
    pub(super) fn refused(&mut self, doing: &str, error: &Error, checked: &Checked, first: usize) -> DbError {
        let found = self.failed(doing, error);
        match error {
            Error::MySqlError(e) if found.kind == DbErrorKind::Data => refused(doing, e.code, &e.message, checked, first),
            _ => found,
        }
    }

    /// Runs a query and hands its rows on.
    fn read(
        &mut self,
        sql: &str,
        parameters: Params,
        columns: &mut Columns,
        rows: usize,
        piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        self.usable()?;
        let stop = match read_rows(&mut self.conn, &self.socket, sql, parameters, columns, rows, piece) {
            Ok(()) => return Ok(()),
            Err(stop) => stop,
        };
        match stop {
            Stop::Server(error) => Err(self.failed(&format!("running '{}'", shortened(sql)), &error)),
            Stop::Unwanted { error, cut } => {
                if cut {
                    self.broken = Some(DbError::connection("the connection was given up with the rest of a result"));
                }
                Err(error)
            }
        }
    }

    /// Runs a query with parameters whose rows are few enough to be kept.
    ///
    /// # Errors
    /// As [`Connection::query`].
    pub(super) fn fetch(
        &mut self,
        sql: &str,
        parameters: Vec<Value>,
        schema: &SchemaRef,
        into: &mut Vec<RecordBatch>,
    ) -> Result<(), DbError> {
        let mut columns = Columns::new(schema)?;
        self.read(sql, Params::Positional(parameters), &mut columns, usize::MAX, &mut |batch| {
            into.push(batch);
            Ok(())
        })
    }
}

/// Reads the rows of a query to their end.
fn read_rows(
    conn: &mut Conn,
    socket: &TcpStream,
    sql: &str,
    parameters: Params,
    columns: &mut Columns,
    rows: usize,
    piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
) -> Result<(), Stop> {
    let mut result = conn.exec_iter(sql, parameters)?;
    let mut described: Option<Arc<[Column]>> = None;
    while let Some(row) = result.next() {
        let row = row?;
        let described = described.get_or_insert_with(|| row.columns());
        let taken = columns.push(&row.unwrap_raw(), described).and_then(|()| {
            if columns.rows() < rows {
                return Ok(());
            }
            columns.take().and_then(&mut *piece)
        });
        if let Err(error) = taken {
            // The client reads a result to its end before it lets go of it.
            let cut = result.by_ref().take(UNWANTED_ROWS_MAX).count() == UNWANTED_ROWS_MAX;
            if cut {
                // If the socket is closed already, so much the better.
                let _ = socket.shutdown(Shutdown::Both);
            }
            return Err(Stop::Unwanted { error, cut });
        }
    }
    drop(result);
    if columns.rows() > 0 {
        columns.take().and_then(piece).map_err(|error| Stop::Unwanted { error, cut: false })?;
    }
    Ok(())
}

/// A refused value, named: what the server says holds the column's name and the number of the row in the statement.
fn refused(doing: &str, code: u16, message: &str, checked: &Checked, first: usize) -> DbError {
    let said = format!("{} (error {code})", message.trim_end_matches('.'));
    let row = number_behind(message, " at row ").and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0).map(|n| first + n - 1);
    let named = |name: &str| message.contains(&format!("'{name}'")) || message.contains(&format!("`{name}`"));
    let column = checked.names().position(named);
    let text = match (column, row.filter(|row| *row < checked.rows.rows)) {
        (Some(column), Some(row)) => {
            let value = array_value_to_string(checked.rows.arrays[column].as_ref(), row).unwrap_or_default();
            let name = checked.names().nth(column).unwrap_or_default();
            format!("{doing}: column '{name}': {} in row {}: {said}", shortened(&value), row + 1)
        }
        (None, Some(row)) => format!("{doing}: row {}: {said}", row + 1),
        _ => format!("{doing}: {said}"),
    };
    // What the server warns of may have a code that is no error's.
    let kind = if kind_of(code) == DbErrorKind::Fatal { DbErrorKind::Data } else { kind_of(code) };
    DbError::new(kind, text)
}

/// The number that stands behind `words` in a text.
pub(super) fn number_behind(text: &str, words: &str) -> Option<u64> {
    let rest = &text[text.find(words)? + words.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

impl Connection for MysqlConnection {
    fn execute(&mut self, sql: &str) -> Result<u64, DbError> {
        let doing = format!("running '{}'", shortened(sql));
        let done = self.statement(&doing, sql)?;
        // It may have made or changed a table.
        self.tables.clear();
        Ok(done.affected)
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: Option<&RecordBatch>,
        schema: &SchemaRef,
        rows: usize,
        piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        let parameters = match parameters {
            None => Params::Empty,
            Some(row) => Params::Positional(Prepared::new(row)?.cells().iter().map(|cells| cells.parameter(0)).collect()),
        };
        self.read(sql, parameters, &mut Columns::new(schema)?, rows.max(1), piece)
    }

    fn begin(&mut self) -> Result<(), DbError> {
        self.statement("beginning a transaction", "START TRANSACTION").map(drop)
    }

    fn commit(&mut self) -> Result<(), DbError> {
        self.statement("committing", "COMMIT").map(drop)
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        // The server rolls back what a lost connection left open.
        if self.broken.is_some() {
            return Ok(());
        }
        self.statement("rolling back", "ROLLBACK").map(drop)
    }

    fn append(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        self.append_rows(target, rows)
    }

    fn upsert(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        self.upsert_rows(target, rows)
    }

    fn takes_parts_beside(&mut self, target: &Target) -> Result<bool, DbError> {
        let (table, key) = (self.table(&target.table)?, target.key_names());
        // In other unique indexes those of one part would wait for places that another holds, and it for theirs. And of keys that
        // only the server takes for the same the last one is to win.
        let exact = |name: &&str| match table.position(name).and_then(|at| table.columns[at].collation.as_deref()) {
            Some(collation) => collation == "binary" || collation.ends_with("_bin"),
            None => true,
        };
        Ok(!table.has_other_unique(&key) && key.iter().all(exact))
    }

    fn delete(&mut self, target: &Target, keys: &RecordBatch) -> Result<(), DbError> {
        self.delete_keys(target, keys)
    }

    fn look_up(&mut self, target: &Target, keys: &RecordBatch, columns: &SchemaRef) -> Result<RecordBatch, DbError> {
        self.look_up_keys(target, keys, columns)
    }

    fn table_columns(&mut self, table: &str) -> Result<Option<Vec<(String, String)>>, DbError> {
        self.usable()?;
        let found = Table::load(&mut self.conn, table)?;
        Ok(found.map(|t| t.columns.into_iter().map(|c| (c.name, c.type_text)).collect()))
    }

    fn ordered_by(&mut self, table: &str, column: &Field, quoted: String) -> Result<String, DbError> {
        if *column.data_type() != DataType::Utf8 {
            return Ok(quoted);
        }
        // These are ordered by the numbers of their labels, and compared with a text as texts: a scan that went on behind a label passed
        // rows over. Of other text an index has the order.
        let table = self.table(table)?;
        let labels = table.position(column.name()).is_some_and(|position| table.columns[position].has_labels());
        Ok(if labels { bytes_of_text(&quoted) } else { quoted })
    }

    fn without_transactions(&mut self, table: &str) -> Result<Option<String>, DbError> {
        self.usable()?;
        match self.conn.query_first::<String, _>(engine_sql(table)) {
            Ok(engine) => Ok(engine),
            // One that does not say is taken as it is.
            Err(e @ Error::MySqlError(_)) if db_error("", &e).kind == DbErrorKind::Fatal => Ok(None),
            Err(e) => Err(self.failed(&format!("looking at the engine of {table}"), &e)),
        }
    }

    fn alive(&mut self) -> bool {
        self.broken.is_none() && self.conn.ping().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array, StringArray};

    use super::*;
    use crate::mysql::table::Kind;

    fn checked() -> Checked {
        let column =
            |name: &str| table::Column { name: name.into(), type_text: "text".into(), kind: Kind::Other, collation: None, nullable: true };
        let arrays: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(vec![1, 2])), Arc::new(StringArray::from(vec!["x", "much too long"]))];
        let table = Table { columns: vec![column("s"), column("id")], unique: Vec::new() };
        Checked { table: Arc::new(table), columns: vec![1, 0], rows: Arc::new(Prepared { arrays, rows: 2 }) }
    }

    #[test]
    fn what_the_server_refuses_is_named() {
        #[track_caller]
        fn check(code: u16, message: &str, first: usize, expect: &str) {
            let error = refused("loading", code, message, &checked(), first);
            assert_eq!(error, DbError::data(expect));
        }
        check(
            1265,
            "Data truncated for column 's' at row 2",
            0,
            "loading: column 's': much too long in row 2: Data truncated for column 's' at row 2 (error 1265)",
        );
        check(
            1366,
            "Incorrect string value: '\\xF0' for column `d`.`t`.`s` at row 1",
            1,
            "loading: column 's': much too long in row 2: Incorrect string value: '\\xF0' for column `d`.`t`.`s` at row 1 (error 1366)",
        );
        check(1062, "Duplicate entry '2' for key 'PRIMARY'", 0, "loading: Duplicate entry '2' for key 'PRIMARY' (error 1062)");
        check(9999, "Something at row 1.", 1, "loading: row 2: Something at row 1 (error 9999)");
    }

    #[test]
    fn numbers_are_found() {
        assert_eq!(number_behind("Rows matched: 12  Changed: 3", "Rows matched: "), Some(12));
        assert_eq!(number_behind("Records: 3", "Duplicates: "), None);
    }
}
