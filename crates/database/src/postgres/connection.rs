//! A session with PostgreSQL.
//!
//! The client is asynchronous; a runtime of this session's own, on the thread that calls, drives it while a
//! call waits, and nothing runs between calls. A statement that fails spoils the open transaction, as
//! PostgreSQL has it: then only a rollback helps, to a savepoint or as a whole, and a commit is refused rather
//! than quietly rolled back.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, SchemaRef};
use bytes::{Bytes, BytesMut};
use futures::{SinkExt, StreamExt};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{Format, FromSql, IsNull, Kind, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, CopyInSink, Error, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::decode::{CopyStream, Reader, Rows, as_text};
use super::encode::CopyRows;
use super::error::classify;
use super::prepare::{column, plain, possible};
use super::table::{Described, Table, describe_sql};
use super::types::{Form, Shape, quote_part, sql_name};
use crate::driver::{Connection, DbError, DbErrorKind, Target};

/// Bytes encoded before they are handed to the socket: the server works on one piece while the next is made.
const PIECE_BYTES: usize = 256 << 10;
/// The largest message sent; the server takes a little less than 1 GiB.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Keys in one statement.
const KEYS_MAX: usize = 32_768;
/// Prepared statements kept; a session needs a handful.
const STATEMENTS_MAX: usize = 64;
/// How long a server may take to say that it is there.
const ALIVE_MAX: Duration = Duration::from_secs(5);
/// How long a session waits for its last words to be sent.
const CLOSE_MAX: Duration = Duration::from_millis(500);

/// How a statement begins that undoes a part of a transaction.
const BACK_TO: &str = "ROLLBACK TO";

/// What is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transaction {
    None,
    Open,
    /// A statement has failed: the server takes nothing but a rollback.
    Failed,
}

/// The temporary table of a target.
#[derive(Clone, Copy, Default)]
struct Stage {
    /// It is there since an earlier transaction.
    made: bool,
    /// It was made in the open transaction, and goes with it if that is rolled back.
    made_now: bool,
    /// The open transaction has put rows into it, or may have.
    filled: bool,
}

/// A session with a server.
pub(super) struct PostgresConnection {
    /// None when the connection is given up.
    client: Option<Client>,
    /// What moves bytes; ends with the error that ended the connection.
    driving: Option<JoinHandle<Option<Error>>>,
    runtime: Runtime,
    place: String,
    transaction: Transaction,
    statements: HashMap<String, Statement>,
    tables: Vec<(Arc<Table>, Stage)>,
    /// Temporary tables named so far.
    stages: usize,
}

/// Settings of the session that a server may lack.
///
/// - The system writes pages that the session puts out of the server's buffers, a megabyte at a time: otherwise all of them wait for
///   the server's next checkpoint, and commits with them.
/// - Rows of a table come in the order in which they lie, always: a scan without a key counts them to go on where it was. Else the
///   server begins a scan where another one is, or lets several workers take parts of it.
const WISHES: &str = "SELECT set_config(name, CASE name WHEN 'backend_flush_after' THEN '128' WHEN 'synchronize_seqscans' THEN 'off' \
    ELSE '0' END, false) FROM pg_settings WHERE name IN ('synchronize_seqscans', 'max_parallel_workers_per_gather') \
    OR CASE WHEN name = 'backend_flush_after' THEN max_val::int >= 128 ELSE false END";

impl PostgresConnection {
    /// Connects and runs `setup`.
    ///
    /// # Errors
    /// Nobody answers, or the server says no.
    pub fn open(config: &Config, tls: MakeRustlsConnect, setup: &str, timeout: Duration, place: &str) -> Result<Self, DbError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| DbError::connection(format!("making a connection: {e}")).at(place))?;
        let mut config = config.clone();
        config.connect_timeout(timeout);
        let connected = runtime.block_on(async {
            tokio::time::timeout(timeout, async {
                let (client, connection) = config.connect(tls).await?;
                let driving = tokio::runtime::Handle::current().spawn(async move { connection.await.err() });
                client.batch_execute(setup).await?;
                // Servers that do not have a setting, or not on their system, do without; a connection that is gone is noticed.
                let _ = client.batch_execute(WISHES).await;
                Ok::<_, Error>((client, driving))
            })
            .await
        });
        let (client, driving) = match connected {
            Ok(Ok(connected)) => connected,
            Ok(Err(e)) => return Err(classify(&e, place)),
            Err(_) => return Err(DbError::connection(format!("no answer within {timeout:?}")).at(place)),
        };
        Ok(PostgresConnection {
            client: Some(client),
            driving: Some(driving),
            runtime,
            place: place.to_string(),
            transaction: Transaction::None,
            statements: HashMap::new(),
            tables: Vec::new(),
            stages: 0,
        })
    }

    fn client(&self) -> Result<&Client, DbError> {
        self.client.as_ref().ok_or_else(|| DbError::connection("the connection was closed").at(&self.place))
    }

    /// An error of the client in our words; notes what it spoils.
    fn fault(&mut self, error: &Error) -> DbError {
        let mut found = classify(error, &self.place);
        if self.transaction == Transaction::Open {
            self.transaction = Transaction::Failed;
        }
        let stale = [SqlState::FEATURE_NOT_SUPPORTED, SqlState::INVALID_BINARY_REPRESENTATION];
        if found.kind == DbErrorKind::Fatal || error.code().is_some_and(|code| stale.contains(code)) {
            // The schema may have changed under us: a plan that was kept is then refused as a feature, the form of a value as another
            // than the column's.
            self.statements.clear();
            self.tables.clear();
        }
        if found.kind == DbErrorKind::Connection {
            // The server's last words, if it had any, say more than that the connection is closed.
            if let Some(driving) = self.driving.take_if(|d| d.is_finished())
                && let Ok(Some(reason)) = self.runtime.block_on(driving)
            {
                found = DbError { kind: DbErrorKind::Connection, ..classify(&reason, &self.place) };
            }
            self.give_up();
        }
        found
    }

    /// Closes the connection; the server rolls back what is open.
    fn give_up(&mut self) {
        self.client = None;
        self.transaction = Transaction::None;
        self.statements.clear();
        self.tables.clear();
    }

    /// Runs a statement without parameters; the rows it changed.
    fn run(&mut self, sql: &str) -> Result<u64, DbError> {
        let done = self.runtime.block_on(self.client()?.simple_query(sql));
        let messages = done.map_err(|e| self.fault(&e))?;
        let changed = messages.iter().rev().find_map(|m| match m {
            SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
            _ => None,
        });
        Ok(changed.unwrap_or(0))
    }

    /// Asks the catalog about a table.
    fn describe(&mut self, table: &str) -> Result<Option<Described>, DbError> {
        let done = self.runtime.block_on(self.client()?.simple_query(&describe_sql(table)));
        let messages = done.map_err(|e| self.fault(&e))?;
        let mut rows = Vec::new();
        for message in &messages {
            if let SimpleQueryMessage::Row(row) = message {
                rows.push((0..row.len()).map(|i| row.try_get(i).ok().flatten().map(str::to_string)).collect());
            }
        }
        Ok(Described::of(&rows))
    }

    /// The statements for a target, and where its entry is.
    fn table(&mut self, target: &Target) -> Result<(Arc<Table>, usize), DbError> {
        if let Some(at) = self.tables.iter().position(|(table, _)| table.is_of(target)) {
            return Ok((self.tables[at].0.clone(), at));
        }
        let Some(described) = self.describe(&target.table)? else {
            let why = "there is no such table; create it, or let the job do it with 'sink.create-table' = 'true'";
            return Err(DbError::fatal(format!("table {}: {why}", target.table)).at(&self.place));
        };
        let table = Arc::new(Table::new(target, &described, self.stages).map_err(|e| e.at(&self.place))?);
        self.stages += 1;
        self.tables.push((table.clone(), Stage::default()));
        Ok((table, self.tables.len() - 1))
    }

    /// A prepared statement, made now or before.
    fn prepared(&mut self, sql: &str) -> Result<Statement, DbError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let prepared = self.runtime.block_on(self.client()?.prepare(sql));
        let statement = prepared.map_err(|e| self.fault(&e))?;
        if self.statements.len() >= STATEMENTS_MAX {
            self.statements.clear();
        }
        self.statements.insert(sql.to_string(), statement.clone());
        Ok(statement)
    }

    /// Writes rows by a `COPY … FROM STDIN`.
    fn copy(&mut self, sql: &str, mut rows: CopyRows<'_>) -> Result<(), DbError> {
        let statement = self.prepared(sql)?;
        let client = self.client()?;
        let done = self.runtime.block_on(async {
            let sink: CopyInSink<Bytes> = client.copy_in(&statement).await?;
            let mut sink = pin!(sink);
            while let Some(piece) = rows.piece(PIECE_BYTES) {
                let mut piece = Bytes::from(piece);
                while !piece.is_empty() {
                    let part = piece.split_to(piece.len().min(MESSAGE_BYTES_MAX));
                    sink.send(part).await?;
                }
            }
            sink.as_mut().finish().await
        });
        done.map(|_| ()).map_err(|e| self.fault(&e))
    }

    /// The temporary table of entry `at`, there and empty.
    fn stage(&mut self, table: &Table, at: usize) -> Result<(), DbError> {
        let stage = self.tables[at].1;
        if !(stage.made || stage.made_now) {
            self.run(&table.create_stage)?;
            self.tables[at].1.made_now = true;
        }
        if stage.filled {
            self.run(&table.empty_stage)?;
        }
        self.tables[at].1.filled = true;
        Ok(())
    }

    fn write(&mut self, target: &Target, rows: &RecordBatch, merge: bool) -> Result<(), DbError> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let (table, at) = self.table(target)?;
        table.writable().map_err(|e| e.at(&self.place))?;
        let arrays = rows.columns().iter().map(plain).collect::<Result<Vec<ArrayRef>, _>>()?;
        let pairs = arrays.iter().zip(table.columns.iter().zip(&table.sent));
        let columns = pairs.map(|(array, (c, sent))| column(&c.name, array, sent.shape, &c.declared)).collect::<Result<Vec<_>, _>>();
        let columns = columns.map_err(|e| e.at(format_args!("table {}", target.table)))?;
        let copy = CopyRows::new(columns, rows.num_rows());
        if table.direct && !merge {
            return self.copy(&table.copy, copy);
        }
        self.stage(&table, at)?;
        self.copy(&table.copy_stage, copy)?;
        self.run(if merge { &table.merge } else { &table.insert })?;
        Ok(())
    }

    /// Arrays of keys, a parameter a column, for the key columns `indices` of the table.
    fn key_arrays(&self, table: &Table, indices: &[usize], keys: &RecordBatch, statement: &Statement) -> Result<Vec<Encoded>, DbError> {
        let mut arrays = Vec::with_capacity(indices.len());
        for ((index, array), parameter) in indices.iter().zip(keys.columns()).zip(statement.params()) {
            let described = &table.columns[*index];
            let array = plain(array)?;
            let values = column(&described.name, &array, table.key_type(*index).0, &described.declared)?;
            let Kind::Array(element) = parameter.kind() else {
                return Err(DbError::fatal(format!("internal error: parameter {} is no array", parameter.name())).at(&self.place));
            };
            let mut bytes = Vec::new();
            values.append_array(0, array.len(), element.oid(), &mut bytes);
            arrays.push(Encoded { bytes: Some(bytes), text: false });
        }
        Ok(arrays)
    }

    /// Numbers of the columns that `keys` has in the target, and the keys that can be in a table at all.
    fn key_columns(&self, table: &Table, keys: &RecordBatch) -> Result<(Vec<usize>, RecordBatch), DbError> {
        let mut indices = Vec::with_capacity(keys.num_columns());
        for field in keys.schema().fields() {
            let index = table.schema.index_of(field.name());
            indices.push(index.map_err(|_| DbError::fatal(format!("table {} has no column '{}'", table.table, field.name())))?);
        }
        let mut kept = keys.clone();
        for (at, index) in indices.iter().enumerate() {
            let form = table.columns[*index].shape.form;
            if kept.column(at).data_type() != &DataType::Utf8 {
                continue;
            }
            let text = kept.column(at).as_string::<i32>();
            let mask: BooleanArray = (0..text.len()).map(|row| Some(text.is_valid(row) && possible(text.value(row), form))).collect();
            if mask.true_count() < mask.len() {
                kept = filter_record_batch(&kept, &mask)?;
            }
        }
        Ok((indices, kept))
    }

    /// Readers for the columns of a result, and those columns that the server must cast to text.
    fn readers(&self, statement: &Statement, schema: &SchemaRef) -> Result<(Vec<Reader>, Vec<bool>), DbError> {
        let columns = statement.columns();
        if columns.len() != schema.fields().len() {
            let (has, wanted) = (columns.len(), schema.fields().len());
            return Err(DbError::fatal(format!("the query gives {has} columns instead of {wanted}")).at(&self.place));
        }
        let (mut readers, mut casts) = (Vec::new(), Vec::new());
        for (column, field) in columns.iter().zip(schema.fields()) {
            let mut shape = Shape::of(column.type_(), column.type_modifier());
            let cast = as_text(field.data_type(), shape);
            if cast {
                shape = Shape { form: Form::Text, element: None, modifier: -1 };
            }
            readers.push(Reader::new(field, shape, &sql_name(column.type_())).map_err(|e| e.at(&self.place))?);
            casts.push(cast);
        }
        Ok((readers, casts))
    }

    /// Reads a result by `COPY`.
    fn copy_out(&mut self, sql: &str, rows: &mut Rows, piece: Piece<'_>) -> Result<(), DbError> {
        let statement = self.prepared(&format!("COPY ({sql}) TO STDOUT (FORMAT binary)"))?;
        let client = self.client()?;
        let read = self.runtime.block_on(async {
            let stream = client.copy_out(&statement).await.map_err(Stop::Client)?;
            let mut stream = pin!(stream);
            let mut parser = CopyStream::default();
            while let Some(bytes) = stream.next().await {
                parser.feed(&bytes.map_err(Stop::Client)?, rows, piece).map_err(Stop::Ours)?;
            }
            Ok(())
        });
        self.stopped(read)
    }

    /// Reads the result of a prepared statement with parameters.
    fn rows_out(&mut self, statement: &Statement, parameters: Vec<Encoded>, rows: &mut Rows, piece: Piece<'_>) -> Result<(), DbError> {
        let client = self.client()?;
        let read = self.runtime.block_on(async {
            let stream = client.query_raw(statement, parameters).await.map_err(Stop::Client)?;
            let mut stream = pin!(stream);
            while let Some(row) = stream.next().await {
                let row = row.map_err(Stop::Client)?;
                let field = |i: usize| {
                    let value = row.try_get::<_, Option<Raw<'_>>>(i);
                    value.map(|v| v.map(|raw| raw.0)).map_err(|e| DbError::fatal(e.to_string()))
                };
                rows.push(field).map_err(Stop::Ours)?;
                if rows.full() {
                    rows.take().and_then(&mut *piece).map_err(Stop::Ours)?;
                }
            }
            Ok(())
        });
        self.stopped(read)
    }

    /// The end of a read. If we stopped it, the connection is closed: the rest would have to be read first.
    fn stopped(&mut self, read: Result<(), Stop>) -> Result<(), DbError> {
        match read {
            Ok(()) => Ok(()),
            Err(Stop::Client(e)) => Err(self.fault(&e)),
            Err(Stop::Ours(e)) => {
                self.give_up();
                Err(e)
            }
        }
    }

    /// The one row of parameters for a statement.
    fn parameters(&self, statement: &Statement, row: &RecordBatch) -> Result<Vec<Encoded>, DbError> {
        let types = statement.params();
        if types.len() != row.num_columns() || row.num_rows() != 1 {
            let (wanted, given) = (types.len(), row.num_columns());
            return Err(DbError::fatal(format!("internal error: {given} parameters for {wanted} placeholders")).at(&self.place));
        }
        let mut encoded = Vec::with_capacity(types.len());
        for ((array, field), r#type) in row.columns().iter().zip(row.schema().fields()).zip(types) {
            let array = plain(array)?;
            let shape = Shape::of(r#type, -1);
            let values = column(field.name(), &array, shape, &sql_name(r#type))?;
            let mut bytes = Vec::new();
            let there = values.append(0, &mut bytes);
            // A type without a binary form here takes text.
            encoded.push(Encoded { bytes: there.then_some(bytes), text: shape.form == Form::Other });
        }
        Ok(encoded)
    }
}

/// What takes batches of a result.
type Piece<'a> = &'a mut dyn FnMut(RecordBatch) -> Result<(), DbError>;

/// Why a read ended early.
enum Stop {
    Client(Error),
    Ours(DbError),
}

/// `SELECT` with some of its columns cast to text.
fn with_casts(sql: &str, casts: &[bool]) -> String {
    let sql = sql.trim_end().trim_end_matches(';');
    if !casts.contains(&true) {
        return sql.to_string();
    }
    let names: Vec<_> = (0..casts.len()).map(|i| format!("c{i}")).collect();
    let values: Vec<_> = casts.iter().enumerate().map(|(i, cast)| format!("q.c{i}{}", if *cast { "::text" } else { "" })).collect();
    format!("SELECT {} FROM ({sql}) AS q({})", values.join(", "), names.join(", "))
}

impl Connection for PostgresConnection {
    fn execute(&mut self, sql: &str) -> Result<u64, DbError> {
        let changed = self.run(sql)?;
        let back = sql.get(..BACK_TO.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(BACK_TO));
        if back && self.transaction != Transaction::None {
            // The transaction goes on, without temporary tables that were made behind the savepoint.
            self.transaction = Transaction::Open;
            for (_, stage) in &mut self.tables {
                stage.made_now = false;
            }
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
        let statement = self.prepared(sql)?;
        let (readers, casts) = self.readers(&statement, schema)?;
        let sql = with_casts(sql, &casts);
        let mut read = Rows::new(schema.clone(), readers, rows);
        match parameters.filter(|p| p.num_columns() > 0) {
            None => self.copy_out(&sql, &mut read, piece)?,
            Some(parameters) => {
                let statement = self.prepared(&sql)?;
                let parameters = self.parameters(&statement, parameters)?;
                self.rows_out(&statement, parameters, &mut read, piece)?;
            }
        }
        if read.is_empty() { Ok(()) } else { piece(read.take()?) }
    }

    fn begin(&mut self) -> Result<(), DbError> {
        self.rollback()?;
        self.run("BEGIN")?;
        self.transaction = Transaction::Open;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), DbError> {
        match self.transaction {
            Transaction::None if self.client.is_none() => Err(DbError::connection("the connection was closed").at(&self.place)),
            Transaction::None => Ok(()),
            // The server would answer COMMIT with a rollback, and no error.
            Transaction::Failed => {
                self.rollback()?;
                Err(DbError::retry("a statement of the transaction has failed, so it cannot be committed").at(&self.place))
            }
            Transaction::Open => {
                let done = self.run("COMMIT");
                self.transaction = Transaction::None;
                for (_, stage) in &mut self.tables {
                    *stage = Stage { made: stage.made || (stage.made_now && done.is_ok()), ..Stage::default() };
                }
                done.map(|_| ())
            }
        }
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        if self.transaction == Transaction::None {
            return Ok(());
        }
        let done = self.run("ROLLBACK");
        self.transaction = Transaction::None;
        for (_, stage) in &mut self.tables {
            *stage = Stage { made: stage.made, ..Stage::default() };
        }
        done.map(|_| ())
    }

    fn append(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        self.write(target, rows, false)
    }

    fn upsert(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        self.write(target, rows, true)
    }

    fn delete(&mut self, target: &Target, keys: &RecordBatch) -> Result<(), DbError> {
        let (table, _) = self.table(target)?;
        let (indices, keys) = self.key_columns(&table, keys)?;
        let statement = self.prepared(&table.delete(&indices))?;
        for from in (0..keys.num_rows()).step_by(KEYS_MAX) {
            let some = keys.slice(from, KEYS_MAX.min(keys.num_rows() - from));
            let parameters = self.key_arrays(&table, &indices, &some, &statement)?;
            let done = self.runtime.block_on(self.client()?.execute_raw(&statement, parameters));
            done.map_err(|e| self.fault(&e))?;
        }
        Ok(())
    }

    fn look_up(&mut self, target: &Target, keys: &RecordBatch, columns: &SchemaRef) -> Result<RecordBatch, DbError> {
        let (table, _) = self.table(target)?;
        let (indices, keys) = self.key_columns(&table, keys)?;
        let (mut readers, mut list) = (Vec::new(), Vec::new());
        for field in columns.fields() {
            let Some(described) = table.columns.iter().find(|c| c.name == *field.name()) else {
                return Err(DbError::fatal(format!("table {} has no column '{}'", table.table, field.name())).at(&self.place));
            };
            let name = format!("t.{}", quote_part(&described.name));
            let cast = as_text(field.data_type(), described.shape);
            let shape = if cast { Shape { form: Form::Text, element: None, modifier: -1 } } else { described.shape };
            readers.push(Reader::new(field, shape, &described.declared).map_err(|e| e.at(&self.place))?);
            list.push(if cast { format!("{name}::text") } else { name });
        }
        let mut found = Rows::new(columns.clone(), readers, usize::MAX);
        let statement = self.prepared(&table.look_up(&indices, &list.join(", ")))?;
        let mut parts = Vec::new();
        for from in (0..keys.num_rows()).step_by(KEYS_MAX) {
            let some = keys.slice(from, KEYS_MAX.min(keys.num_rows() - from));
            let parameters = self.key_arrays(&table, &indices, &some, &statement)?;
            self.rows_out(&statement, parameters, &mut found, &mut |part| {
                parts.push(part);
                Ok(())
            })?;
        }
        let last = found.take()?;
        if parts.is_empty() {
            return Ok(last);
        }
        parts.push(last);
        Ok(arrow::compute::concat_batches(columns, &parts)?)
    }

    fn table_columns(&mut self, table: &str) -> Result<Option<Vec<(String, String)>>, DbError> {
        let described = self.describe(table)?;
        Ok(described.map(|d| d.columns.into_iter().map(|c| (c.name, c.declared)).collect()))
    }

    fn alive(&mut self) -> bool {
        let Ok(client) = self.client() else { return false };
        let asked = self.runtime.block_on(async { tokio::time::timeout(ALIVE_MAX, client.check_connection()).await });
        let alive = matches!(asked, Ok(Ok(())));
        if !alive {
            self.give_up();
        }
        alive
    }
}

impl Drop for PostgresConnection {
    /// Says good-bye, so that the server's log has nothing to wonder about.
    fn drop(&mut self) {
        self.statements.clear();
        self.client = None;
        let inside = tokio::runtime::Handle::try_current().is_ok();
        if let Some(driving) = self.driving.take().filter(|_| !inside) {
            // Whether it got through does not matter any more.
            let _ = self.runtime.block_on(async { tokio::time::timeout(CLOSE_MAX, driving).await });
        }
    }
}

/// A parameter that is already in the form of its type.
struct Encoded {
    /// None for NULL.
    bytes: Option<Vec<u8>>,
    /// It is text, for the server to read.
    text: bool,
}

impl std::fmt::Debug for Encoded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes.as_ref().map_or(0, Vec::len))
    }
}

impl ToSql for Encoded {
    fn to_sql(&self, _type: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let Some(bytes) = &self.bytes else { return Ok(IsNull::Yes) };
        out.extend_from_slice(bytes);
        Ok(IsNull::No)
    }

    fn accepts(_type: &Type) -> bool {
        true
    }

    fn encode_format(&self, _type: &Type) -> Format {
        if self.text { Format::Text } else { Format::Binary }
    }

    to_sql_checked!();
}

/// A field as it came.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_type: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(raw))
    }

    fn accepts(_type: &Type) -> bool {
        true
    }
}
