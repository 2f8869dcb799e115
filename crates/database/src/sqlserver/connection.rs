//! A session: the login, statements, queries, the transaction, and what is known of tables.
//!
//! A statement that fails spoils the open transaction, as far as the sinks are concerned: some errors of the server end
//! it, after which the next statement would be a transaction by itself. So nothing but a rollback is taken then, to
//! the savepoint or as a whole.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use tiberius::error::Error;
use tiberius::{AuthMethod, Client, ColumnData, Config, EncryptionLevel, Query, QueryItem};

use super::Settings;
use super::bulk::{Answer, insert_bulk, load};
use super::dialect::{SqlServerDialect, quoted};
use super::encode::{Sent, natural, prepare};
use super::error::{NO_SUCH_TABLE, db_error, io_error, kind_of, server_error, shortened};
use super::greeting::reach;
use super::read::Columns;
use super::statement::{as_columns, as_key, delete, listed, look_up, make_stage, merge, staged};
use super::stream::{PACKET_BYTES, Pipe, wait};
use super::types::{Kind, TableColumn};
use crate::driver::{Connection, DbError, DbErrorKind, Dialect, Target};

/// The size of packets that is asked for, bytes: what the vendor's drivers ask for.
const PACKET_BYTES_WANTED: u32 = 8000;
/// Other servers that one sends us to.
const REDIRECTIONS_MAX: usize = 3;
/// Parameters of a statement; the server takes 2,100, two of which are the client's.
const PARAMETERS_MAX: usize = 2000;
/// Up to so many rows travel as parameters; for more a temporary table costs less.
const LISTED_ROWS_MAX: usize = 64;
/// Keys of one look-up.
const KEYS_MAX: usize = 512;

/// What a session is set to: errors end statements rather than transactions, values that do not fit are errors,
/// names and text are quoted as the standard says, results come whole.
const SETUP: &str = "SET XACT_ABORT OFF; SET IMPLICIT_TRANSACTIONS OFF; SET NUMERIC_ROUNDABORT OFF; SET ANSI_NULLS ON; \
     SET ANSI_PADDING ON; SET ANSI_WARNINGS ON; SET ARITHABORT ON; SET CONCAT_NULL_YIELDS_NULL ON; SET QUOTED_IDENTIFIER ON; \
     SET TEXTSIZE 2147483647; SET LOCK_TIMEOUT -1; SET TRANSACTION ISOLATION LEVEL READ COMMITTED";

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
    fn column(&self, name: &str) -> Option<&TableColumn> {
        let same = self.columns.iter().find(|c| c.name == name);
        same.or_else(|| self.columns.iter().find(|c| c.name.to_lowercase() == name.to_lowercase()))
    }
}

/// A temporary table of the session.
struct Stage {
    /// The statement that made it, but for its name: same statement, same table.
    key: String,
    name: String,
    /// It was made in the open transaction, and goes with it if that is rolled back.
    made_now: bool,
}

/// A session with a server.
pub(super) struct SqlServerConnection {
    client: Client<Pipe>,
    pipe: Pipe,
    /// Bytes of a packet.
    packet: usize,
    transaction: Transaction,
    /// Why nothing more can be done with it, if so.
    broken: Option<DbError>,
    tables: HashMap<String, Arc<Table>>,
    stages: Vec<Stage>,
    /// How many of them there were at the savepoint.
    stages_at_savepoint: usize,
    /// Temporary tables named so far.
    named: usize,
}

/// Why a result was not read to its end.
enum Stop {
    Server(Error),
    Ours(DbError),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Server(error)
    }
}

impl From<DbError> for Stop {
    fn from(error: DbError) -> Self {
        Stop::Ours(error)
    }
}

impl SqlServerConnection {
    /// Connects, logs in and sets the session up.
    ///
    /// # Errors
    /// Nobody answers, or the server says no.
    pub fn open(settings: &Settings, timeout: Duration) -> Result<Self, DbError> {
        let deadline = Instant::now() + timeout.max(Duration::from_millis(1));
        let (mut host, mut port) = (settings.host.clone(), settings.port);
        for _ in 0..=REDIRECTIONS_MAX {
            let (tls, name) = (settings.tls.clone(), settings.certificate_name.as_str());
            // A server that sends us on has certificates of its own name.
            let name = if host == settings.host { name } else { host.as_str() };
            let pipe = reach(&host, port, name, settings.encryption, tls, deadline)?;
            let client = match wait(Client::connect(config(settings, &host, port), pipe.clone())) {
                Ok(client) => client,
                Err(Error::Routing { host: other, port: its }) => {
                    (host, port) = (other, its);
                    continue;
                }
                Err(e) => return Err(db_error("logging in", &e)),
            };
            let answer = pipe.wire().logged_in().map_err(|e| io_error("logging in", &e))?;
            let packet = Answer::of(&answer).map_or(PACKET_BYTES, |a| a.packet_bytes());
            let mut connection = SqlServerConnection {
                client,
                pipe,
                packet,
                transaction: Transaction::None,
                broken: None,
                tables: HashMap::new(),
                stages: Vec::new(),
                stages_at_savepoint: 0,
                named: 0,
            };
            connection.statement("setting the session up", SETUP)?;
            return Ok(connection);
        }
        Err(DbError::fatal("connecting: the servers send us from one to the other; give the address of the one that has the database"))
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
    fn failed(&mut self, found: DbError, broken: bool) -> DbError {
        if broken || found.kind == DbErrorKind::Connection {
            self.broken = Some(DbError { kind: DbErrorKind::Connection, ..found.clone() });
        }
        if matches!(self.transaction, Transaction::Open) {
            self.transaction = Transaction::Failed(found.clone());
        }
        self.tables.clear();
        if found.kind == DbErrorKind::Fatal {
            // The columns may be others now.
            self.stages.clear();
            self.stages_at_savepoint = 0;
        }
        found
    }

    /// The same for an error of the client.
    fn fault(&mut self, doing: &str, error: &Error) -> DbError {
        // Whatever the server did not say itself may have left half an answer on the way.
        let broken = !matches!(error, Error::Server(_) | Error::BulkInput(_));
        self.failed(db_error(doing, error), broken)
    }

    /// Runs statements without parameters.
    fn statement(&mut self, doing: &str, sql: &str) -> Result<(), DbError> {
        self.usable()?;
        let done = wait(async {
            let mut answer = self.client.simple_query(sql).await?;
            while answer.try_next().await?.is_some() {}
            Ok::<_, Error>(())
        });
        done.map_err(|e| self.fault(doing, &e))
    }

    /// Runs a statement with parameters; the rows it changed.
    fn statement_with(&mut self, doing: &str, sql: &str, parameters: Vec<ColumnData<'_>>) -> Result<u64, DbError> {
        self.usable()?;
        let mut query = Query::new(sql);
        parameters.into_iter().for_each(|p| query.bind(p));
        let done = wait(query.execute(&mut self.client));
        done.map(|changed| changed.total()).map_err(|e| self.fault(doing, &e))
    }

    /// Asks the server about a table; `None` if there is none.
    fn describe(&mut self, table: &str) -> Result<Option<Arc<Table>>, DbError> {
        self.usable()?;
        if let Some(table) = self.tables.get(table) {
            return Ok(Some(table.clone()));
        }
        let name = SqlServerDialect.quote(table);
        let columns = match wait(self.client.column_metadata(&name, &["*"])) {
            Ok(columns) => columns.iter().map(TableColumn::of).collect::<Vec<_>>(),
            Err(e) if e.code() == Some(NO_SUCH_TABLE) => return Ok(None),
            Err(e) => return Err(self.fault(&format!("looking at the columns of {table}"), &e)),
        };
        let mut found = Table { name, columns };
        self.name_collations(table, &mut found)?;
        let found = Arc::new(found);
        self.tables.insert(table.to_string(), found.clone());
        Ok(Some(found))
    }

    /// Asks for the names of the collations of text, which results do not say. Not of tables in other databases, whose
    /// catalog is another one; whoever does without them has the database's own, and so has a server without such a catalog.
    fn name_collations(&mut self, table: &str, found: &mut Table) -> Result<(), DbError> {
        if table.split('.').count() > 2 || !found.columns.iter().any(TableColumn::is_text) {
            return Ok(());
        }
        let object = SqlServerDialect.literal(&found.name, false);
        let sql = format!("SELECT name, collation_name FROM sys.columns WHERE object_id = OBJECT_ID({object})");
        let rows = match wait(async { self.client.simple_query(sql).await?.into_first_result().await }) {
            Ok(rows) => rows,
            Err(Error::Server(e)) if matches!(kind_of(e.code()), DbErrorKind::Fatal | DbErrorKind::Data) => return Ok(()),
            // With a deadlock the transaction is gone, too.
            Err(e) => return Err(self.fault(&format!("looking at the collations of {table}"), &e)),
        };
        for row in rows {
            let text = |at: usize| row.try_get::<&str, _>(at).ok().flatten();
            let (Some(name), Some(collation)) = (text(0), text(1)) else { continue };
            let plain = collation.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if let Some(column) = found.columns.iter_mut().find(|c| c.name == name && plain) {
                column.collation_name = Some(collation.to_string());
            }
        }
        Ok(())
    }

    /// A table that has to be there.
    fn table(&mut self, target: &Target) -> Result<Arc<Table>, DbError> {
        let why = "there is no such table; create it, or let the job do it with 'sink.create-table' = 'true'";
        self.describe(&target.table)?.ok_or_else(|| DbError::fatal(format!("table {}: {why}", target.table)))
    }

    /// Sends rows into a table by a bulk load.
    fn bulk(&mut self, doing: &str, table: &str, columns: &[Sent<'_>], rows: usize, checked: bool) -> Result<(), DbError> {
        self.statement(doing, &insert_bulk(table, columns, checked))?;
        let loaded = load(&mut self.pipe.wire(), columns, rows, self.packet);
        let answer = match loaded {
            Ok(answer) => answer,
            Err(e) => return Err(self.failed(io_error(doing, &e), true)),
        };
        match answer.refusal {
            // The client has not seen that the transaction is over, and would go on with it.
            Some(r) => Err(self.failed(server_error(doing, r.number, r.severity, &r.message), answer.transaction_ended)),
            None => Ok(()),
        }
    }

    /// A temporary table with the columns, empty.
    fn stage(&mut self, doing: &str, table: &Table, columns: &[Sent<'_>]) -> Result<String, DbError> {
        let names = || columns.iter().map(|c| c.column.name.as_str());
        let key = make_stage("", &table.name, names());
        if let Some(stage) = self.stages.iter().find(|s| s.key == key) {
            let name = stage.name.clone();
            self.statement(doing, &format!("TRUNCATE TABLE {name}"))?;
            return Ok(name);
        }
        let name = format!("#tidemill_stage_{}", self.named);
        self.named += 1;
        self.statement(doing, &make_stage(&name, &table.name, names()))?;
        let made_now = matches!(self.transaction, Transaction::Open);
        self.stages.push(Stage { key, name: name.clone(), made_now });
        Ok(name)
    }

    /// Brings rows to the server and runs the statement that `sql` makes of where they are.
    fn with_rows(
        &mut self,
        doing: &str,
        table: &Table,
        columns: &[Sent<'_>],
        rows: usize,
        sql: impl Fn(&str) -> String,
    ) -> Result<(), DbError> {
        // Casts go through the code page of the database, bulk loads do not.
        let coded = columns.iter().any(|c| matches!(c.column.kind, Kind::Char { .. }) && !c.is_ascii());
        if coded || rows > LISTED_ROWS_MAX || rows * columns.len() > PARAMETERS_MAX {
            let stage = self.stage(doing, table, columns)?;
            self.bulk(doing, &stage, columns, rows, false)?;
            return self.statement(doing, &sql(&staged(&stage)));
        }
        let parameters = (0..rows).flat_map(|row| columns.iter().map(move |c| c.parameter(row))).collect();
        self.statement_with(doing, &sql(&listed(columns, rows, &as_columns(columns))), parameters).map(drop)
    }

    /// Runs a query and hands its rows on.
    fn read(
        &mut self,
        sql: &str,
        parameters: Vec<ColumnData<'_>>,
        schema: &SchemaRef,
        rows: usize,
        piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        self.usable()?;
        let mut columns = Columns::new(schema)?;
        match wait(read_rows(&mut self.client, sql, parameters, &mut columns, rows.max(1), piece)) {
            Ok(()) => Ok(()),
            Err(Stop::Server(e)) => Err(self.fault(&format!("running '{}'", shortened(sql)), &e)),
            // The rest of the result is on its way, and nobody wants it.
            Err(Stop::Ours(e)) => Err(self.failed(e, true)),
        }
    }
}

/// What the client needs to log in. Encryption is under way already, and the stream knows when time is up.
fn config(settings: &Settings, host: &str, port: u16) -> Config {
    let mut config = Config::new();
    config.host(host);
    config.port(port);
    if !settings.database.is_empty() {
        config.database(&settings.database);
    }
    config.application_name(&settings.application);
    config.readonly(settings.read_only);
    config.packet_size(PACKET_BYTES_WANTED);
    config.encryption(EncryptionLevel::NotSupported);
    config.handshake_timeout(None);
    config.authentication(AuthMethod::sql_server(&settings.user, settings.password.reveal()));
    config
}

/// Reads the rows of a query to their end.
async fn read_rows(
    client: &mut Client<Pipe>,
    sql: &str,
    parameters: Vec<ColumnData<'_>>,
    columns: &mut Columns,
    rows: usize,
    piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
) -> Result<(), Stop> {
    let mut result = if parameters.is_empty() {
        client.simple_query(sql).await?
    } else {
        let mut query = Query::new(sql);
        parameters.into_iter().for_each(|p| query.bind(p));
        query.query(client).await?
    };
    while let Some(item) = result.try_next().await? {
        match item {
            QueryItem::Metadata(found) => columns.describe(found.columns())?,
            QueryItem::Row(row) => columns.push(row)?,
        }
        if columns.is_full(rows) {
            piece(columns.take()?)?;
        }
    }
    if columns.rows() > 0 {
        piece(columns.take()?)?;
    }
    Ok(())
}

/// The columns of `table` that those of `batch` are.
fn columns_of<'t>(table: &'t Table, batch: &RecordBatch) -> Result<Vec<&'t TableColumn>, DbError> {
    let schema = batch.schema();
    let find = |name: &str| {
        table.column(name).ok_or_else(|| {
            let there: Vec<&str> = table.columns.iter().map(|c| c.name.as_str()).collect();
            DbError::fatal(format!("the table {} has no column '{name}'; it has {}", table.name, there.join(", ")))
        })
    };
    schema.fields().iter().map(|field| find(field.name())).collect()
}

/// The same, if values can be given to them.
fn written_columns<'t>(table: &'t Table, batch: &RecordBatch) -> Result<Vec<&'t TableColumn>, DbError> {
    let columns = columns_of(table, batch)?;
    match columns.iter().find(|c| !c.writable) {
        None => Ok(columns),
        Some(column) => {
            let why = "the database makes its values itself; leave it out of the job's table";
            Err(DbError::fatal(format!("column '{}' of {}: {why}", column.name, table.name)))
        }
    }
}

impl Connection for SqlServerConnection {
    fn execute(&mut self, sql: &str) -> Result<u64, DbError> {
        self.statement(&format!("running '{}'", shortened(sql)), sql)?;
        // It may have made or changed a table. The client does not say how many rows it changed.
        self.tables.clear();
        Ok(0)
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: Option<&RecordBatch>,
        schema: &SchemaRef,
        rows: usize,
        piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        let Some(row) = parameters else { return self.read(sql, Vec::new(), schema, rows, piece) };
        let asked = row.schema();
        let kinds: Vec<TableColumn> = asked.fields().iter().map(|f| TableColumn::parameter(f.name(), natural(f.data_type()))).collect();
        let sent = prepare(row, &kinds.iter().collect::<Vec<_>>())?;
        self.read(sql, sent.iter().map(|s| s.parameter(0)).collect(), schema, rows, piece)
    }

    fn begin(&mut self) -> Result<(), DbError> {
        self.transaction = Transaction::None;
        // The transaction before may have limited the session's waits.
        self.statement("beginning a transaction", "SET LOCK_TIMEOUT -1; BEGIN TRANSACTION")?;
        self.transaction = Transaction::Open;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), DbError> {
        self.statement("committing", "COMMIT TRANSACTION")?;
        self.transaction = Transaction::None;
        self.stages.iter_mut().for_each(|stage| stage.made_now = false);
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        let before = std::mem::replace(&mut self.transaction, Transaction::None);
        // The server rolls back what a lost connection left open.
        if self.broken.is_some() || matches!(before, Transaction::None) {
            return Ok(());
        }
        self.stages.retain(|stage| !stage.made_now);
        self.statement("rolling back", "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION")
    }

    fn savepoint(&mut self) -> Result<(), DbError> {
        self.stages_at_savepoint = self.stages.len();
        self.statement("marking a savepoint", "SAVE TRANSACTION tidemill")
    }

    fn roll_back_to_savepoint(&mut self) -> Result<(), DbError> {
        let before = std::mem::replace(&mut self.transaction, Transaction::Open);
        // Those that were made before it stay, and would otherwise pile up in the session.
        self.stages.truncate(self.stages_at_savepoint);
        let done = self.statement("rolling back to a savepoint", "ROLLBACK TRANSACTION tidemill");
        match (done, before) {
            // Without the savepoint the rows beside the refused one cannot be written: trying again would end here again.
            (Err(e), Transaction::Failed(refused)) if refused.kind == DbErrorKind::Data && e.kind != DbErrorKind::Connection => {
                let why = "the server gave the whole transaction up when it refused a row, so that it cannot be passed over";
                Err(DbError::fatal(format!("{why}: {refused}")))
            }
            (done, _) => done,
        }
    }

    fn release_savepoint(&mut self) -> Result<(), DbError> {
        // There is nothing to release; the next of that name takes its place.
        self.usable()
    }

    fn append(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        let table = self.table(target)?;
        let sent = prepare(rows, &written_columns(&table, rows)?)?;
        let doing = format!("loading rows into {}", table.name);
        self.bulk(&doing, &table.name, &sent, rows.num_rows(), true)
    }

    fn upsert(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        let table = self.table(target)?;
        let sent = prepare(rows, &written_columns(&table, rows)?)?;
        let doing = format!("upserting rows into {}", table.name);
        let names: Vec<&str> = sent.iter().map(|c| c.column.name.as_str()).collect();
        self.with_rows(&doing, &table, &sent, rows.num_rows(), |source| merge(&table.name, source, &names, &target.key))
    }

    fn delete(&mut self, target: &Target, keys: &RecordBatch) -> Result<(), DbError> {
        let table = self.table(target)?;
        let sent = prepare(keys, &columns_of(&table, keys)?)?;
        let doing = format!("deleting rows of {}", table.name);
        let names: Vec<&str> = sent.iter().map(|c| c.column.name.as_str()).collect();
        self.with_rows(&doing, &table, &sent, keys.num_rows(), |source| delete(&table.name, source, names.iter().copied()))
    }

    fn look_up(&mut self, target: &Target, keys: &RecordBatch, columns: &SchemaRef) -> Result<RecordBatch, DbError> {
        let table = self.table(target)?;
        let keyed = keys.schema();
        let mut found = Vec::new();
        // Parameters have the types of the job; how they are compared is up to the types of the table.
        let mut asked = Vec::with_capacity(keyed.fields().len());
        let there = columns_of(&table, keys)?;
        for (field, column) in keyed.fields().iter().zip(&there) {
            asked.push(TableColumn::parameter(&column.name, natural(field.data_type())));
        }
        let sent = prepare(keys, &asked.iter().collect::<Vec<_>>())?;
        let around: Vec<_> = sent.iter().zip(&there).map(|(sent, column)| as_key(sent, column)).collect();
        let wanted: Vec<String> = columns.fields().iter().map(|f| format!("t.{}", quoted(f.name()))).collect();
        let rows_max = (PARAMETERS_MAX / sent.len().max(1)).clamp(1, KEYS_MAX);
        let mut first = 0;
        while first < keys.num_rows() {
            let taken = rows_max.min(keys.num_rows() - first);
            // Lists of few lengths, filled up with the last key, have few plans to make.
            let listed_rows = taken.next_power_of_two().min(rows_max);
            let names = || sent.iter().map(|c| c.column.name.as_str());
            let source = listed(&sent, listed_rows, &around);
            let sql = look_up(&table.name, &source, names(), &wanted.join(", "));
            let row = |i: usize| first + i.min(taken - 1);
            let parameters = (0..listed_rows).flat_map(|i| sent.iter().map(move |c| c.parameter(row(i)))).collect();
            self.read(&sql, parameters, columns, usize::MAX, &mut |batch| {
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
        self.statement("asking whether the server is there", "SELECT 1").is_ok()
    }
}
