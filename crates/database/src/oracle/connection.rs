//! A session: statements, queries, the transaction, and what is known of tables.
//!
//! A transaction begins by itself with the first statement that changes something. A statement over an array that fails has
//! changed the rows in front of the refused one; so after an error nothing but a rollback is taken, to the savepoint or as
//! a whole.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, SchemaRef};
use oracledb::{Cursor, Error, ErrorKind, ToDbValue};

use super::bind::{Cells, bytes};
use super::charset::Charset;
use super::dialect::{CALL_LIMIT, OracleDialect};
use super::encode::{Purpose, Sent, natural, prepare};
use super::error::{NO_SUCH_TABLE, db_error, shortened};
use super::read::Columns;
use super::statement::{delete, insert, look_up, merge, update};
use super::types::TableColumn;
use super::{Empty, Settings, reach};
use crate::driver::{Connection, DbError, DbErrorKind, Dialect, Target};

/// Rows and bytes of an array, which is one message.
const ARRAY_ROWS_MAX: usize = 16_384;
const ARRAY_BYTES: usize = 4 << 20;
/// Arrays are so many times smaller where calls may not take long: it is locks that are meant, not a slow server.
const LIMITED: usize = 8;
/// Rows that are fetched at once; fewer where there may be large texts or bytes among them.
const FETCH_ROWS: usize = 1024;
const FETCH_ROWS_LARGE: usize = 128;
/// Keys of one look-up: a list has at most 1,000.
const KEYS_MAX: usize = 512;
/// Up to so many bytes of UTF-8, and of bytes, a value for a `CLOB` or `BLOB` goes through the query of a `MERGE`: the driver
/// declares four bytes for each, and a `VARCHAR2` has 4,000, a `RAW` 2,000.
const TEXT_BYTES_MAX: usize = 1000;
const RAW_BYTES_MAX: usize = 2000;

/// What a session is set to: times in UTC, comparisons and orders by the bytes of text.
const SETUP: &str = "ALTER SESSION SET TIME_ZONE = '+00:00' NLS_SORT = 'BINARY' NLS_COMP = 'BINARY' NLS_NUMERIC_CHARACTERS = '.,'";
/// Asks for the character set of the database.
const CHARACTER_SET: &str = "SELECT value FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET'";

/// What is open.
#[derive(Clone, Debug)]
enum Transaction {
    None,
    Open,
    /// After this error nothing but a rollback is taken.
    Failed(DbError),
}

/// A table as the server describes it.
struct Table {
    /// Its name, quoted.
    name: String,
    columns: Vec<TableColumn>,
}

impl Table {
    /// The column of this name; case does not matter where that leaves one.
    fn column(&self, name: &str) -> Result<&TableColumn, DbError> {
        let same = self.columns.iter().find(|c| c.name == name);
        same.or_else(|| self.columns.iter().find(|c| c.name.to_lowercase() == name.to_lowercase())).ok_or_else(|| {
            let there: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
            DbError::fatal(format!("the table {} has no column '{name}'; it has {}", self.name, there.join(", ")))
        })
    }

    /// The columns that those of a schema are.
    fn columns_of(&self, schema: &SchemaRef) -> Result<Vec<&TableColumn>, DbError> {
        schema.fields().iter().map(|field| self.column(field.name())).collect()
    }
}

/// A session with a server.
pub(super) struct OracleConnection {
    client: oracledb::Connection,
    dialect: &'static OracleDialect,
    empty: Empty,
    charset: Charset,
    /// How long a call may take at all.
    call_timeout: Option<Duration>,
    /// How long one may take in this transaction, lest it wait for a lock for ever.
    limit: Option<Duration>,
    transaction: Transaction,
    /// Why nothing more can be done with it, if so.
    broken: Option<DbError>,
    tables: HashMap<String, Arc<Table>>,
}

impl OracleConnection {
    /// Connects, logs in and sets the session up.
    ///
    /// # Errors
    /// Nobody answers, or the server says no.
    pub fn open(settings: &Settings, timeout: Duration) -> Result<Self, DbError> {
        let client = reach::connect(settings, timeout)?;
        let doing = "setting the session up";
        let failed = |e: Error| db_error(doing, &e);
        // The first answers come in time, too.
        client.set_call_timeout(Some(timeout.max(Duration::from_millis(1)))).map_err(failed)?;
        client.execute(SETUP, &[]).map_err(failed)?;
        let charset: String = client.query_row(CHARACTER_SET, &[]).and_then(|row| row.get(0usize)).map_err(failed)?;
        client.set_call_timeout(settings.call_timeout).map_err(failed)?;
        Ok(OracleConnection {
            client,
            dialect: settings.dialect,
            empty: settings.empty,
            charset: Charset::of(&charset),
            call_timeout: settings.call_timeout,
            limit: None,
            transaction: Transaction::None,
            broken: None,
            tables: HashMap::new(),
        })
    }

    /// An error that nothing more can come after, if there was one.
    fn usable(&self) -> Result<(), DbError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        match &self.transaction {
            Transaction::Failed(error) => Err(DbError::retry(format!("the transaction has failed before: {error}"))),
            _ => Ok(()),
        }
    }

    /// Takes an error in: it spoils the transaction, maybe the connection, and what is known of tables may be out of
    /// date.
    fn failed(&mut self, found: DbError) -> DbError {
        if found.kind == DbErrorKind::Connection {
            self.broken = Some(found.clone());
        }
        if matches!(self.transaction, Transaction::Open) {
            self.transaction = Transaction::Failed(found.clone());
        }
        self.tables.clear();
        found
    }

    /// The same for an error of the driver.
    fn fault(&mut self, doing: &str, error: &Error) -> DbError {
        let found = match (error.kind(), self.limit) {
            (ErrorKind::CallTimeoutExceeded, Some(limit)) => {
                DbError::retry(format!("{doing}: no answer for {limit:.0?}; another transaction holds a lock, or the server is slow"))
            }
            _ => db_error(doing, error),
        };
        self.failed(found)
    }

    /// Lets calls take so long at most.
    fn limit_calls(&mut self, limit: Option<Duration>) -> Result<(), DbError> {
        self.limit = limit;
        let done = self.client.set_call_timeout(limit.or(self.call_timeout));
        done.map_err(|e| self.fault("limiting how long calls take", &e))
    }

    /// Runs a statement without parameters; the rows it changed.
    fn statement(&mut self, doing: &str, sql: &str) -> Result<u64, DbError> {
        self.usable()?;
        let done = self.client.execute(sql, &[]);
        done.map(|result| result.rows_affected()).map_err(|e| self.fault(doing, &e))
    }

    /// Runs a statement for each row of the columns, by arrays.
    fn array(&mut self, doing: &str, sql: &str, columns: &[&Sent<'_>], rows: usize) -> Result<(), DbError> {
        self.usable()?;
        let cells: Vec<Cells<'_>> = columns.iter().map(|column| Cells::of(column)).collect();
        let row_bytes = columns.iter().map(|column| bytes(column)).sum::<usize>() / rows.max(1);
        let smaller = if self.limit.is_some() { LIMITED } else { 1 };
        let at_once = (ARRAY_BYTES / smaller / row_bytes.max(1)).clamp(1, ARRAY_ROWS_MAX / smaller);
        let mut first = 0;
        while first < rows {
            let last = rows.min(first + at_once);
            let values: Vec<&dyn ToDbValue> = (first..last).flat_map(|row| cells.iter().map(move |c| c.get(row))).collect();
            let array: Vec<&[&dyn ToDbValue]> = values.chunks(cells.len().max(1)).collect();
            if let Err(e) = self.client.execute_batch(sql, array.as_slice()) {
                return Err(self.fault(doing, &e));
            }
            first = last;
        }
        Ok(())
    }

    /// Asks the server about a table; `None` if there is none.
    fn describe(&mut self, table: &str) -> Result<Option<Arc<Table>>, DbError> {
        self.usable()?;
        if let Some(table) = self.tables.get(table) {
            return Ok(Some(table.clone()));
        }
        let name = self.dialect.quote(table);
        let sql = format!("SELECT * FROM {name} WHERE 1 = 0");
        let asked = self.client.statement(&sql).and_then(|s| s.exclude_from_cache().fetch_lobs().build()).and_then(|s| s.query(&[]));
        let columns = match asked {
            Ok(cursor) => cursor.columns().iter().map(TableColumn::of).collect(),
            Err(e) if matches!(e.kind(), ErrorKind::DbError(e) if e.code() == NO_SUCH_TABLE) => return Ok(None),
            Err(e) => return Err(self.fault(&format!("looking at the columns of {table}"), &e)),
        };
        let found = Arc::new(Table { name, columns });
        self.tables.insert(table.to_string(), found.clone());
        Ok(Some(found))
    }

    /// A table that has to be there.
    fn table(&mut self, target: &Target) -> Result<Arc<Table>, DbError> {
        let why = "there is no such table; create it, or let the job do it with 'sink.create-table' = 'true'";
        self.describe(&target.table)?.ok_or_else(|| DbError::fatal(format!("table {}: {why}", target.table)))
    }

    /// The columns of a batch as they are written to a table.
    fn written<'t>(&self, table: &'t Table, rows: &RecordBatch) -> Result<Vec<Sent<'t>>, DbError> {
        let purpose = Purpose::Write { charset: &self.charset, empty: self.empty };
        prepare(rows, &table.columns_of(&rows.schema())?, purpose)
    }

    /// Hands the rows of a query on.
    fn read(
        &mut self,
        sql: &str,
        asked: Result<Cursor, Error>,
        schema: &SchemaRef,
        rows: usize,
        piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        let doing = format!("running '{}'", shortened(sql));
        let cursor = asked.map_err(|e| self.fault(&doing, &e))?;
        let mut columns = Columns::new(schema)?;
        columns.describe(cursor.columns()).map_err(|e| self.failed(e))?;
        for row in cursor {
            let row = row.map_err(|e| self.fault(&doing, &e))?;
            columns.push(&row).map_err(|e| self.failed(e))?;
            if columns.is_full(rows) {
                columns.take().and_then(&mut *piece).map_err(|e| self.failed(e))?;
            }
        }
        if columns.rows() > 0 {
            columns.take().and_then(piece).map_err(|e| self.failed(e))?;
        }
        Ok(())
    }

    /// A query, ready to be asked.
    fn asking(&self, sql: &str, schema: &SchemaRef, rows: usize) -> Result<oracledb::Statement, Error> {
        let large = schema
            .fields()
            .iter()
            .any(|field| matches!(field.data_type(), DataType::Utf8 | DataType::Binary) || field.data_type().is_nested());
        let at_once = rows.clamp(1, if large { FETCH_ROWS_LARGE } else { FETCH_ROWS }) as u32;
        self.client.statement(sql)?.prefetch_rows(at_once).fetch_array_size(at_once).build()
    }
}

impl Connection for OracleConnection {
    fn execute(&mut self, sql: &str) -> Result<u64, DbError> {
        if let Some(ms) = sql.strip_prefix(CALL_LIMIT).and_then(|ms| ms.parse().ok()) {
            self.usable()?;
            self.limit_calls(Some(Duration::from_millis(ms)))?;
            return Ok(0);
        }
        let doing = format!("running '{}'", shortened(sql));
        let changed = self.statement(&doing, sql)?;
        // It may have made or changed a table.
        self.tables.clear();
        if matches!(self.transaction, Transaction::None) {
            // Nobody else ends what it began.
            let done = self.client.commit();
            done.map_err(|e| self.fault(&doing, &e))?;
        }
        Ok(changed)
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: Option<&RecordBatch>,
        schema: &SchemaRef,
        rows: usize,
        piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        self.usable()?;
        let rows = rows.max(1);
        let statement = self.asking(sql, schema, rows);
        let Some(row) = parameters else {
            return self.read(sql, statement.and_then(|s| s.query(&[])), schema, rows, piece);
        };
        let asked = row.schema();
        let kinds: Vec<TableColumn> = asked.fields().iter().map(|f| TableColumn::parameter(f.name(), natural(f.data_type()))).collect();
        let sent = prepare(row, &kinds.iter().collect::<Vec<_>>(), Purpose::Compare)?;
        let cells: Vec<Cells<'_>> = sent.iter().map(Cells::of).collect();
        // By name, since one may stand in several places.
        let names: Vec<String> = (1..=cells.len()).map(|number| number.to_string()).collect();
        let named: Vec<(&str, &dyn ToDbValue)> = names.iter().zip(&cells).map(|(name, cell)| (name.as_str(), cell.get(0))).collect();
        self.read(sql, statement.and_then(|s| s.query_named(&named)), schema, rows, piece)
    }

    fn begin(&mut self) -> Result<(), DbError> {
        self.transaction = Transaction::None;
        self.usable()?;
        self.limit_calls(None)?;
        self.transaction = Transaction::Open;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), DbError> {
        self.usable()?;
        // One that is interrupted may have happened.
        self.limit_calls(None)?;
        let done = self.client.commit();
        done.map_err(|e| self.fault("committing", &e))?;
        self.transaction = Transaction::None;
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        let before = std::mem::replace(&mut self.transaction, Transaction::None);
        // The server rolls back what a lost connection left open.
        if self.broken.is_some() || matches!(before, Transaction::None) {
            return Ok(());
        }
        self.limit_calls(None)?;
        let done = self.client.rollback();
        done.map_err(|e| self.fault("rolling back", &e))
    }

    fn savepoint(&mut self) -> Result<(), DbError> {
        self.statement("marking a savepoint", "SAVEPOINT tidemill").map(drop)
    }

    fn roll_back_to_savepoint(&mut self) -> Result<(), DbError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.transaction = Transaction::Open;
        self.statement("rolling back to a savepoint", "ROLLBACK TO SAVEPOINT tidemill").map(drop)
    }

    fn release_savepoint(&mut self) -> Result<(), DbError> {
        // There is nothing to release; the next of that name takes its place.
        self.usable()
    }

    fn append(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        let table = self.table(target)?;
        let sent = self.written(&table, rows)?;
        let columns: Vec<&TableColumn> = sent.iter().map(|s| s.column).collect();
        let doing = format!("inserting rows into {}", table.name);
        self.array(&doing, &insert(&table.name, &columns), &sent.iter().collect::<Vec<_>>(), rows.num_rows())
    }

    fn upsert(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        let table = self.table(target)?;
        let sent = self.written(&table, rows)?;
        let columns: Vec<&TableColumn> = sent.iter().map(|s| s.column).collect();
        let doing = format!("upserting rows into {}", table.name);
        let is_late = |i: &usize| columns[*i].kind.is_lob() && !target.key.contains(i) && sent[*i].is_longer(TEXT_BYTES_MAX, RAW_BYTES_MAX);
        let late: Vec<usize> = (0..sent.len()).filter(is_late).collect();
        let now: Vec<&Sent<'_>> = (0..sent.len()).filter(|i| !late.contains(i)).map(|i| &sent[i]).collect();
        self.array(&doing, &merge(&table.name, &columns, &target.key, &late), &now, rows.num_rows())?;
        if late.is_empty() {
            return Ok(());
        }
        let of = |places: &[usize]| places.iter().map(|i| columns[*i]).collect::<Vec<_>>();
        let filled: Vec<&Sent<'_>> = late.iter().chain(&target.key).map(|i| &sent[*i]).collect();
        self.array(&doing, &update(&table.name, &of(&late), &of(&target.key)), &filled, rows.num_rows())
    }

    fn delete(&mut self, target: &Target, keys: &RecordBatch) -> Result<(), DbError> {
        let table = self.table(target)?;
        let sent = prepare(keys, &table.columns_of(&keys.schema())?, Purpose::Compare)?;
        let columns: Vec<&TableColumn> = sent.iter().map(|s| s.column).collect();
        let doing = format!("deleting rows of {}", table.name);
        self.array(&doing, &delete(&table.name, &columns), &sent.iter().collect::<Vec<_>>(), keys.num_rows())
    }

    fn look_up(&mut self, target: &Target, keys: &RecordBatch, columns: &SchemaRef) -> Result<RecordBatch, DbError> {
        let table = self.table(target)?;
        let sent = prepare(keys, &table.columns_of(&keys.schema())?, Purpose::Compare)?;
        let key: Vec<&TableColumn> = sent.iter().map(|s| s.column).collect();
        let wanted = table.columns_of(columns)?;
        let cells: Vec<Cells<'_>> = sent.iter().map(Cells::of).collect();
        let mut found = Vec::new();
        let mut first = 0;
        while first < keys.num_rows() {
            let taken = KEYS_MAX.min(keys.num_rows() - first);
            // Lists of few lengths, filled up with the last key, have few plans to make.
            let listed_rows = taken.next_power_of_two().min(KEYS_MAX);
            let sql = look_up(&table.name, &key, listed_rows, &wanted);
            let row = |i: usize| first + i.min(taken - 1);
            let values: Vec<&dyn ToDbValue> = (0..listed_rows).flat_map(|i| cells.iter().map(move |c| c.get(row(i)))).collect();
            self.usable()?;
            let asked = self.asking(&sql, columns, FETCH_ROWS).and_then(|s| s.query(&values));
            self.read(&sql, asked, columns, usize::MAX, &mut |batch| {
                found.push(batch);
                Ok(())
            })?;
            first += taken;
        }
        Ok(concat_batches(columns, &found)?)
    }

    fn table_columns(&mut self, table: &str) -> Result<Option<Vec<(String, String)>>, DbError> {
        self.tables.remove(table);
        let found = self.describe(table)?;
        Ok(found.map(|t| t.columns.iter().map(|c| (c.name.clone(), c.type_text.clone())).collect()))
    }

    fn alive(&mut self) -> bool {
        self.usable().is_ok() && self.client.ping().is_ok()
    }
}
