//! A session: statements, transactions, results, and what is known of tables.
//!
//! A statement that fails spoils the open transaction: nothing but a rollback is taken then, to the savepoint or as a
//! whole. (Some drivers report the commit of a transaction that the database has given up as done.)

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::column::Column;
use super::dialect::dialect;
use super::encode::{Pads, Sent, piece_rows, prepare};
use super::error::{db_error, no_such_table, shortened, table_is_there};
use super::ffi::{Api, Failure, Link, Statement};
use super::read::read;
use super::rewrite::{Quotes, rewrite};
use super::system::{System, Upsert, delete, insert, look_up, update};
use super::table::{Table, Unique, mysql_indexes, mysql_labels, postgres_types, quoted};
use crate::driver::{Connection, DbError, DbErrorKind, Dialect, Target};
use crate::mysql::engine_sql;

/// Prepared statements kept: lookups of some sizes, and one for each thing that a table is written by.
const STATEMENTS_KEPT: usize = 32;
/// Parameters of a look-up: Oracle takes lists of 1,000, SQLite was built for 999.
const PARAMETERS_MAX: usize = 900;
/// Keys of a look-up.
const KEYS_MAX: usize = 256;

/// `SQLGetInfo`: the database's name, its quotes, what becomes of prepared statements at the end of a transaction.
const INFO_DBMS_NAME: u16 = 17;
const INFO_QUOTE: u16 = 29;
const INFO_AFTER_COMMIT: u16 = 23;
const INFO_AFTER_ROLLBACK: u16 = 24;
/// They are gone.
const GONE: u16 = 0;

/// The beginning of a statement that only some have.
const CREATE_IF_MISSING: &str = "CREATE TABLE IF NOT EXISTS ";

/// What is open.
#[derive(Clone, Debug)]
enum Transaction {
    None,
    Open,
    /// After this error nothing but a rollback is taken.
    Failed(DbError),
}

/// A session with a database. What is dropped first stands first.
pub(super) struct OdbcConnection {
    statements: HashMap<String, Statement>,
    tables: HashMap<String, Arc<Table>>,
    /// Unique indexes of tables of MySQL.
    unique: HashMap<String, Unique>,
    pads: Pads,
    transaction: Transaction,
    /// Why nothing more can be done with it, if so.
    broken: Option<DbError>,
    system: System,
    quotes: Quotes,
    /// The driver takes many rows of parameters at once.
    arrays: bool,
    /// Prepared statements outlive transactions.
    keeps_statements: bool,
    link: Arc<Link>,
}

/// A prepared statement, kept for the next time.
fn prepared<'s>(statements: &'s mut HashMap<String, Statement>, link: &Arc<Link>, sql: &str) -> Result<&'s mut Statement, Failure> {
    if statements.len() >= STATEMENTS_KEPT && !statements.contains_key(sql) {
        statements.clear();
    }
    match statements.entry(sql.to_string()) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(entry) => Ok(entry.insert(Statement::prepare(link, sql)?)),
    }
}

impl OdbcConnection {
    /// Connects and sets the session up. `guess` is what the driver's name says of the database.
    ///
    /// # Errors
    /// Nobody answers, or the database says no.
    pub fn open(api: &'static Api, string: &str, guess: Option<System>, timeout: Duration) -> Result<Self, DbError> {
        let unknown = guess.unwrap_or(System::Standard);
        let connecting = |e: Failure| db_error("connecting", &e, unknown);
        let link = Arc::new(Link::open(api, string, timeout).map_err(connecting)?);
        let system = System::guess(&link.info(INFO_DBMS_NAME)).unwrap_or(unknown);
        let quotes = Quotes::of(&link.info(INFO_QUOTE));
        let keeps = |what: u16| link.info_number(what) != Some(GONE);
        let keeps_statements = keeps(INFO_AFTER_COMMIT) && keeps(INFO_AFTER_ROLLBACK);
        let arrays = Statement::new(&link).map_err(connecting)?.takes_arrays();
        let mut connection = OdbcConnection {
            statements: HashMap::new(),
            tables: HashMap::new(),
            unique: HashMap::new(),
            pads: Pads::default(),
            transaction: Transaction::None,
            broken: None,
            system,
            quotes,
            arrays,
            keeps_statements,
            link,
        };
        for sql in system.setup() {
            connection.run("setting the session up", sql)?;
        }
        Ok(connection)
    }

    /// Which database it is.
    pub fn system(&self) -> System {
        self.system
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
    fn noted(&mut self, mut error: DbError) -> DbError {
        if self.link.is_dead() {
            error.kind = DbErrorKind::Connection;
        }
        if error.kind == DbErrorKind::Connection {
            self.broken = Some(error.clone());
        }
        if matches!(self.transaction, Transaction::Open) {
            self.transaction = Transaction::Failed(error.clone());
        }
        self.forget();
        error
    }

    /// Forgets what was prepared and what is known of tables.
    fn forget(&mut self) {
        self.statements.clear();
        self.tables.clear();
        self.unique.clear();
    }

    fn failed(&mut self, doing: &str, failure: &Failure) -> DbError {
        self.noted(db_error(doing, failure, self.system))
    }

    /// Runs a statement of the database's own words.
    fn run(&mut self, doing: &str, sql: &str) -> Result<u64, DbError> {
        self.usable()?;
        let done = Statement::new(&self.link).and_then(|mut statement| statement.run(sql));
        done.map_err(|e| self.failed(doing, &e))
    }

    /// Executes a statement for every row of `sent`.
    fn send(&mut self, doing: &str, sql: &str, sent: &[Sent], rows: usize) -> Result<(), DbError> {
        self.usable()?;
        self.try_send(sql, sent, rows).map_err(|e| self.failed(doing, &e))
    }

    fn try_send(&mut self, sql: &str, sent: &[Sent], rows: usize) -> Result<(), Failure> {
        let statement = prepared(&mut self.statements, &self.link, sql)?;
        let mut first = 0;
        while first < rows {
            let count = if self.arrays { piece_rows(sent, first, rows) } else { 1 };
            if count > 1 {
                statement.execute(&self.pads.parameters(sent, first, count), count)?;
            } else {
                let row: Vec<_> = sent.iter().map(|column| column.parameter(first)).collect();
                statement.execute(&row, 1)?;
            }
            statement.close();
            first += count;
        }
        Ok(())
    }

    /// Updates rows one by one, and inserts those that are not there.
    fn update_then_insert(&mut self, doing: &str, table: &Table, key: &[usize], rows: &RecordBatch) -> Result<(), DbError> {
        self.usable()?;
        let columns = table.columns_of(rows)?;
        let names = quoted(columns.iter().copied(), self.quotes)?;
        let sent = prepare(rows, &columns, self.system)?;
        let order: Vec<usize> = (0..sent.len()).filter(|i| !key.contains(i)).chain(key.iter().copied()).collect();
        let sql = update(&table.name, &names, key);
        let missing = self.try_update(&sql, &sent, &order, rows.num_rows()).map_err(|e| self.failed(doing, &e))?;
        if missing.is_empty() {
            return Ok(());
        }
        let missing = take_record_batch(rows, &UInt32Array::from(missing))?;
        let sent = prepare(&missing, &columns, self.system)?;
        self.send(doing, &insert(&table.name, &names), &sent, missing.num_rows())
    }

    /// Updates rows one by one; answers with those that were not found.
    fn try_update(&mut self, sql: &str, sent: &[Sent], order: &[usize], rows: usize) -> Result<Vec<u32>, Failure> {
        let statement = prepared(&mut self.statements, &self.link, sql)?;
        let mut missing = Vec::new();
        for row in 0..rows {
            let parameters: Vec<_> = order.iter().map(|i| sent[*i].parameter(row)).collect();
            statement.execute(&parameters, 1)?;
            if statement.rows_changed() == 0 {
                missing.push(row as u32);
            }
            statement.close();
        }
        Ok(missing)
    }

    /// Runs a query of the database's own words and hands its rows on.
    fn ask(
        &mut self,
        sql: &str,
        parameters: &[(&Sent, usize)],
        schema: &SchemaRef,
        rows: usize,
        piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        self.usable()?;
        let doing = format!("running '{}'", shortened(sql));
        let system = self.system;
        let asked = prepared(&mut self.statements, &self.link, sql).and_then(|statement| {
            let parameters: Vec<_> = parameters.iter().map(|(sent, row)| sent.parameter(*row)).collect();
            statement.execute(&parameters, 1)?;
            Ok(statement)
        });
        let done = match asked {
            Ok(statement) => {
                let done = read(statement, system, schema, rows, piece);
                statement.close();
                done
            }
            Err(e) => Err(db_error(&doing, &e, system)),
        };
        done.map_err(|e| self.noted(if e.message.starts_with(&doing) { e } else { e.at(&doing) }))
    }

    /// The rows of a query as texts, empty where they are NULL.
    fn texts(&mut self, sql: &str, columns: usize) -> Result<Vec<Vec<String>>, DbError> {
        let field = |i: usize| Field::new(format!("c{i}"), DataType::Utf8, true);
        let schema: SchemaRef = Arc::new(Schema::new((0..columns).map(field).collect::<Vec<_>>()));
        let mut found = Vec::new();
        self.ask(sql, &[], &schema, usize::MAX, &mut |rows| {
            let columns: Vec<_> = rows.columns().iter().map(|column| column.as_string::<i32>()).collect();
            let row = |row: usize| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<String>>();
            found.extend((0..rows.num_rows()).map(row));
            Ok(())
        })?;
        Ok(found)
    }

    /// Asks about a table; `None` if there is none.
    fn describe(&mut self, table: &str) -> Result<Option<Arc<Table>>, DbError> {
        self.usable()?;
        if let Some(table) = self.tables.get(table) {
            return Ok(Some(table.clone()));
        }
        let standard = dialect(self.system).quote(table);
        let name = rewrite(&standard, self.quotes)?.sql;
        let sql = format!("SELECT * FROM {name} WHERE 1 = 0");
        let asked = Statement::prepare(&self.link, &sql).and_then(|mut statement| {
            statement.execute(&[], 1)?;
            statement.columns()
        });
        let described = match asked {
            Ok(described) => described,
            Err(failure) => {
                let error = self.failed(&format!("looking at the columns of {table}"), &failure);
                return if error.kind != DbErrorKind::Connection && no_such_table(&failure) { Ok(None) } else { Err(error) };
            }
        };
        let mut columns: Vec<Column> = described.into_iter().map(|column| Column::of(column, self.system)).collect();
        if self.system == System::Postgres {
            for pair in self.texts(&postgres_types(&standard), 2)? {
                columns.iter_mut().filter(|column| column.name == pair[0]).for_each(|column| column.named(&pair[1]));
            }
        }
        let found = Arc::new(Table { name, columns });
        self.tables.insert(table.to_string(), found.clone());
        Ok(Some(found))
    }

    /// A table that has to be there.
    fn table(&mut self, target: &Target) -> Result<Arc<Table>, DbError> {
        let why = "there is no such table; create it, or let the job do it with 'sink.create-table' = 'true'";
        self.describe(&target.table)?.ok_or_else(|| DbError::fatal(format!("table {}: {why}", target.table)))
    }

    /// Whether a table of MySQL has unique indexes beside the key's, which it must have.
    fn other_keys(&mut self, target: &Target) -> Result<bool, DbError> {
        if self.system != System::MySql {
            return Ok(false);
        }
        let unique = match self.unique.get(&target.table) {
            Some(unique) => *unique,
            None => {
                let pairs = self.texts(&mysql_indexes(&target.table), 2)?;
                let unique = Unique::of(&pairs, &target.key_names());
                self.unique.insert(target.table.clone(), unique);
                unique
            }
        };
        if unique.key {
            return Ok(unique.others);
        }
        let names = target.key_names().join(", ");
        Err(DbError::fatal(format!(
            "the table {0} has no primary key or unique index over exactly ({names}), the key that the job declares; without one rows \
             cannot be found by it: ALTER TABLE {0} ADD UNIQUE ({names})",
            target.table
        )))
    }
}

impl Connection for OdbcConnection {
    fn execute(&mut self, sql: &str) -> Result<u64, DbError> {
        self.usable()?;
        let plain = sql.strip_prefix(CREATE_IF_MISSING).filter(|_| !self.system.creates_if_missing());
        let text = plain.map_or_else(|| sql.to_string(), |rest| format!("CREATE TABLE {rest}"));
        let text = rewrite(&text, self.quotes)?.sql;
        // It may make a table anew.
        self.tables.clear();
        self.unique.clear();
        match Statement::new(&self.link).and_then(|mut statement| statement.run(&text)) {
            Err(failure) if plain.is_some() && table_is_there(&failure) => Ok(0),
            other => other.map_err(|e| self.failed(&format!("running '{}'", shortened(&text)), &e)),
        }
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: Option<&RecordBatch>,
        schema: &SchemaRef,
        rows: usize,
        piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        let rewritten = rewrite(sql, self.quotes)?;
        let mut sent = Vec::new();
        if let Some(row) = parameters {
            let natural = |field: &Arc<Field>| Column::natural(field.name(), field.data_type());
            let columns: Vec<Column> = row.schema_ref().fields().iter().map(natural).collect();
            sent = prepare(row, &columns.iter().collect::<Vec<_>>(), self.system)?;
        }
        let pick = |i: &usize| sent.get(*i).map(|column| (column, 0));
        let Some(picked) = rewritten.parameters.iter().map(pick).collect::<Option<Vec<_>>>() else {
            return Err(DbError::fatal("internal error: a statement has more placeholders than parameters"));
        };
        self.ask(&rewritten.sql, &picked, schema, rows, piece)
    }

    fn begin(&mut self) -> Result<(), DbError> {
        self.usable()?;
        if let Some(sql) = self.system.begin() {
            self.run("beginning a transaction", sql)?;
        }
        self.link.set_autocommit(false).map_err(|e| self.failed("beginning a transaction", &e))?;
        self.transaction = Transaction::Open;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), DbError> {
        self.usable()?;
        if self.link.is_dead() {
            return Err(self.noted(DbError::connection("committing: the connection is lost")));
        }
        self.link.end(true).map_err(|e| self.failed("committing", &e))?;
        self.transaction = Transaction::None;
        if !self.keeps_statements {
            self.statements.clear();
        }
        if let Err(e) = self.link.set_autocommit(true) {
            // What was committed is so; whoever comes next gets another connection.
            self.broken = Some(DbError::connection(db_error("ending a transaction", &e, self.system).message));
        }
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        if matches!(std::mem::replace(&mut self.transaction, Transaction::None), Transaction::None) {
            return Ok(());
        }
        // The database rolls back what a lost connection left open.
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if !self.keeps_statements {
            self.statements.clear();
        }
        let done = self.link.end(false).and_then(|()| self.link.set_autocommit(true));
        done.map_err(|e| {
            let error = self.failed("rolling back", &e);
            self.broken = Some(DbError { kind: DbErrorKind::Connection, ..error.clone() });
            error
        })
    }

    fn savepoint(&mut self) -> Result<(), DbError> {
        self.run("marking a savepoint", self.system.savepoint().0).map(drop)
    }

    fn roll_back_to_savepoint(&mut self) -> Result<(), DbError> {
        let before = std::mem::replace(&mut self.transaction, Transaction::Open);
        let done = self.run("rolling back to a savepoint", self.system.savepoint().1).map(drop);
        match (done, before) {
            // Without the savepoint the rows beside the refused one cannot be written: trying again would end here again.
            (Err(e), Transaction::Failed(refused)) if refused.kind == DbErrorKind::Data && e.kind != DbErrorKind::Connection => {
                Err(DbError::fatal(format!(
                    "the database gave the whole transaction up when it refused a row, so that it cannot be passed over: {refused}"
                )))
            }
            (done, _) => done,
        }
    }

    fn release_savepoint(&mut self) -> Result<(), DbError> {
        match self.system.savepoint().2 {
            // There is nothing to release; the next of that name takes its place.
            "" => self.usable(),
            sql => self.run("forgetting a savepoint", sql).map(drop),
        }
    }

    fn ordered_by(&mut self, table: &str, column: &Field, quoted: String) -> Result<String, DbError> {
        // As over MySQL's own protocol: labels are ordered by their numbers, and compared with a text as texts.
        if self.system != System::MySql || *column.data_type() != DataType::Utf8 {
            return Ok(quoted);
        }
        let labels = !self.texts(&mysql_labels(table, column.name()), 1)?.is_empty();
        Ok(if labels { format!("CAST(CONVERT({quoted} USING utf8mb4) AS BINARY)") } else { quoted })
    }

    fn append(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        let table = self.table(target)?;
        let columns = table.columns_of(rows)?;
        let names = quoted(columns.iter().copied(), self.quotes)?;
        let sent = prepare(rows, &columns, self.system)?;
        self.send(&format!("inserting rows into {}", target.table), &insert(&table.name, &names), &sent, rows.num_rows())
    }

    fn upsert(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        let table = self.table(target)?;
        let others = self.other_keys(target)?;
        let columns = table.columns_of(rows)?;
        let names = quoted(columns.iter().copied(), self.quotes)?;
        let doing = format!("inserting or updating rows of {}", target.table);
        match self.system.upsert(&table.name, &names, &target.key, &columns, others) {
            Upsert::Statement(sql) => {
                let sent = prepare(rows, &columns, self.system)?;
                self.send(&doing, &sql, &sent, rows.num_rows())
            }
            Upsert::UpdateThenInsert => self.update_then_insert(&doing, &table, &target.key, rows),
        }
    }

    fn delete(&mut self, target: &Target, keys: &RecordBatch) -> Result<(), DbError> {
        let table = self.table(target)?;
        let columns = table.columns_of(keys)?;
        let names = quoted(columns.iter().copied(), self.quotes)?;
        let sent = prepare(keys, &columns, self.system)?;
        self.send(&format!("deleting rows of {}", target.table), &delete(&table.name, &names), &sent, keys.num_rows())
    }

    fn look_up(&mut self, target: &Target, keys: &RecordBatch, columns: &SchemaRef) -> Result<RecordBatch, DbError> {
        let table = self.table(target)?;
        let there = table.columns_of(keys)?;
        let fields = keys.schema_ref().fields();
        let asked: Vec<Column> = fields.iter().zip(&there).map(|(field, column)| column.asked(field.data_type())).collect();
        let sent = prepare(keys, &asked.iter().collect::<Vec<_>>(), self.system)?;
        let names = quoted(there.iter().copied(), self.quotes)?;
        let wanted = columns.fields().iter().map(|field| table.column(field.name())).collect::<Result<Vec<_>, _>>()?;
        let wanted = quoted(wanted, self.quotes)?;
        let keys_max = (PARAMETERS_MAX / sent.len().max(1)).clamp(1, KEYS_MAX);
        let mut found = Vec::new();
        let mut first = 0;
        while first < keys.num_rows() {
            let taken = keys_max.min(keys.num_rows() - first);
            // Lists of few lengths, filled up with the last key, are few statements to prepare.
            let listed = taken.next_power_of_two().min(keys_max);
            let sql = look_up(&table.name, &wanted, &names, listed);
            let row = |i: usize| first + i.min(taken - 1);
            let parameters: Vec<_> = (0..listed).flat_map(|i| sent.iter().map(move |column| (column, row(i)))).collect();
            self.ask(&sql, &parameters, columns, usize::MAX, &mut |batch| {
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

    fn without_transactions(&mut self, table: &str) -> Result<Option<String>, DbError> {
        if self.system != System::MySql {
            return Ok(None);
        }
        Ok(self.texts(&engine_sql(table), 1)?.into_iter().flatten().next())
    }

    fn alive(&mut self) -> bool {
        match self.system.ping() {
            _ if self.broken.is_some() || self.link.is_dead() => false,
            Some(sql) => self.run("asking whether the database is there", sql).is_ok(),
            None => true,
        }
    }
}
