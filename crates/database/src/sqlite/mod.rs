//! SQLite, built in: a file is a database, and there is no server.
//!
//! Statements are prepared once a batch, and values are bound straight from the columns ([`bind`]); results
//! become columns again in [`read`]. A database has one writer at a time, whoever it is: others wait for the
//! time that `connection.timeout` allows, and try again. The journal is a write-ahead log, so that readers
//! and the writer do not wait for each other; commits are as durable as SQLite's own defaults make them. How pages come into
//! the log is in [`gather`], what becomes of it while a job writes in [`log`].
//!
//! SQLite has five kinds of values. What of Arrow's they stand for is in docs/databases.md; a value
//! that would not come back as it was is refused.

mod bind;
mod gather;
mod log;
mod read;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use rusqlite::config::DbConfig;
use rusqlite::{ErrorCode, OpenFlags};

use self::bind::Parameters;
use self::log::{Checkpointer, Room, beside, extent};
use self::read::Columns;
use crate::driver::{Connection, DbError, DbErrorKind, Dialect, Driver, Target};
use crate::types::list;
use crate::url::Url;

/// Memory for pages, KiB: updates by key in a table of millions of rows find its inner pages there.
const CACHE_KIB: u32 = 64 << 10;
/// What is left of a longer log's file when the log begins anew, bytes: about the most that it has while a job writes (see [`log`]). To
/// free its blocks each time, and to find others, took a sixth of the time of a million updates.
const LOG_BYTES: u32 = 640 << 20;
/// Bytes of upserts that are committed together: about 20,000 rows, whose pages go from the log into the database while
/// the next ones are written.
const PART_BYTES: usize = 4 << 20;
/// Pages of the log from which on a commit copies them, where that is not done beside it: SQLite's own default.
const PAGES_BY_COMMITS: u32 = 1_000;
/// What is said when the system could not do what durability hangs on.
const UNSAFE: &str = "the system could not make the database's file safe on its disk (its own log says more); what was committed is in the \
                      file that ends with -wal: make a copy of both files before anything opens them";
/// Rows from which on the log is made safe while they are written.
const BESIDE_ROWS: usize = 4_096;
/// Digits of a decimal that a double keeps.
const DIGITS_OF_DOUBLE: u8 = 15;
/// Digits that any number of 64 bits has room for.
const DIGITS_OF_INTEGER: u8 = 18;

/// The driver for a file.
///
/// # Errors
/// A parameter of the URL that SQLite does not have.
pub fn driver(url: &Url) -> Result<Arc<dyn Driver>, DbError> {
    let mut read_only = false;
    for (index, (name, value)) in url.parameters.iter().enumerate() {
        match (name.as_str(), value.as_str()) {
            ("mode", "ro") => read_only = true,
            ("mode", "rw" | "rwc") => {}
            _ => {
                let shown = url.named(index);
                return Err(DbError::fatal(format!("the parameter {shown} in the URL: SQLite has only mode=ro, mode=rw and mode=rwc")));
            }
        }
    }
    Ok(Arc::new(SqliteDriver { path: url.database.clone(), read_only }))
}

/// How SQLite wants its SQL.
pub fn dialect() -> &'static dyn Dialect {
    &SqliteDialect
}

struct SqliteDriver {
    path: String,
    read_only: bool,
}

impl Driver for SqliteDriver {
    fn name(&self) -> &'static str {
        "SQLite"
    }

    fn dialect(&self) -> &'static dyn Dialect {
        dialect()
    }

    fn in_process(&self) -> bool {
        true
    }

    fn connect(&self, timeout: Duration) -> Result<Box<dyn Connection>, DbError> {
        let access = if self.read_only {
            OpenFlags::SQLITE_OPEN_READ_ONLY
        } else {
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
        };
        let opening = || format!("opening '{}'", self.path);
        if let Some(directory) = Path::new(&self.path).parent().filter(|d| !d.as_os_str().is_empty() && !d.exists()) {
            return Err(DbError::fatal(format!("{}: there is no directory '{}'", opening(), directory.display())));
        }
        let open = || -> rusqlite::Result<rusqlite::Connection> {
            let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = match gather::vfs() {
                Some(vfs) if !self.read_only => rusqlite::Connection::open_with_flags_and_vfs(&self.path, flags, vfs)?,
                _ => rusqlite::Connection::open_with_flags(&self.path, flags)?,
            };
            connection.busy_timeout(timeout)?;
            connection.execute_batch(&format!("PRAGMA cache_size = -{CACHE_KIB}; PRAGMA journal_size_limit = {LOG_BYTES}"))?;
            Ok(connection)
        };
        let connection = open().map_err(|e| failed(opening(), e))?;
        let mut log = None;
        if !self.read_only {
            match connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)) {
                // A file that this user may only read, or a disk that cannot have a log: it works without.
                Err(e) if matches!(e.sqlite_error_code(), Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen)) => {}
                Err(e) => return Err(failed(opening(), e)),
                Ok(mode) if mode == "wal" => log = Some(Log::of(&connection, &self.path, timeout)),
                // In memory there is none.
                Ok(_) => {}
            }
        }
        Ok(Box::new(SqliteConnection { checkpointer: None, connection, log, checked: HashSet::new(), scratch: Vec::new() }))
    }

    fn part_bytes(&self) -> usize {
        PART_BYTES
    }

    fn parallel_writers(&self) -> bool {
        false
    }

    fn identity(&self) -> String {
        // One that is not there yet has no links in its name.
        let path = std::fs::canonicalize(&self.path).or_else(|_| std::path::absolute(&self.path));
        path.map_or_else(|_| self.path.clone(), |path| path.display().to_string())
    }
}

struct SqliteDialect;

impl Dialect for SqliteDialect {
    fn quote(&self, name: &str) -> String {
        name.split('.').map(|part| self.quote_column(part)).collect::<Vec<_>>().join(".")
    }

    fn quote_column(&self, name: &str) -> String {
        format!("\"{}\"", name.replace('"', "\"\""))
    }

    fn lock_rows(&self) -> &'static str {
        // There is no such clause, and a transaction begins as the only one that writes.
        ""
    }

    fn column_type(&self, field: &Field, key: bool) -> Result<String, DbError> {
        Ok(match field.data_type() {
            DataType::Boolean => "BOOLEAN".into(),
            // An INTEGER that is the primary key is the table's own order: no index beside it.
            DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
                if key =>
            {
                "INTEGER".into()
            }
            DataType::Int8 => "TINYINT".into(),
            DataType::Int16 | DataType::UInt8 => "SMALLINT".into(),
            DataType::Int32 | DataType::UInt16 => "INTEGER".into(),
            DataType::Int64 | DataType::UInt32 => "BIGINT".into(),
            DataType::Float32 => "FLOAT".into(),
            DataType::Float64 => "DOUBLE".into(),
            DataType::Decimal128(precision, scale) if as_number(*precision, *scale) => format!("DECIMAL({precision}, {scale})"),
            // As a number it would be a double and lose digits.
            DataType::Decimal128(..) | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "TEXT".into(),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => "BLOB".into(),
            DataType::Date32 => "DATE".into(),
            DataType::Time32(TimeUnit::Millisecond) => "TIME".into(),
            DataType::Timestamp(_, None) => "TIMESTAMP".into(),
            DataType::Timestamp(_, Some(_)) => "TIMESTAMPTZ".into(),
            other => {
                return Err(DbError::fatal(format!(
                    "column '{}': SQLite has nothing for {other}; make it a STRING (JSON_STRING, CAST), or its parts columns of their own",
                    field.name()
                )));
            }
        })
    }
}

/// Whether a decimal is kept as a number; otherwise it is a text.
fn as_number(precision: u8, scale: i8) -> bool {
    precision <= DIGITS_OF_DOUBLE || (scale == 0 && precision <= DIGITS_OF_INTEGER)
}

/// The write-ahead log of a connection.
struct Log {
    /// The path of the database's file, without links.
    path: String,
    /// How long is waited for others.
    timeout: Duration,
}

impl Log {
    /// Of a database that was opened by a path. If that is a link, the log lies beside what it leads to.
    fn of(connection: &rusqlite::Connection, path: &str, timeout: Duration) -> Self {
        let file = connection.path().filter(|file| !file.is_empty());
        Log { path: file.unwrap_or(path).to_string(), timeout }
    }

    fn file(&self) -> PathBuf {
        PathBuf::from(format!("{}-wal", self.path))
    }
}

struct SqliteConnection {
    /// There since the first rows were written. Ends before the connection, which puts the log away as the last one.
    checkpointer: Option<Checkpointer>,
    connection: rusqlite::Connection,
    /// `None`: there is no log, or it is left alone.
    log: Option<Log>,
    /// Tables whose columns are known to keep what is written.
    checked: HashSet<String>,
    /// For texts of values on their way.
    scratch: Vec<u8>,
}

impl Drop for SqliteConnection {
    fn drop(&mut self) {
        if self.checkpointer.take().is_some_and(|checkpointer| !checkpointer.end()) {
            // The last connection would take the log for copied, and remove it.
            let _ = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            tidemill_connect::notice(&format!("SQLite: {UNSAFE}"));
        }
    }
}

impl SqliteConnection {
    /// Runs a statement for each row.
    fn run(&mut self, sql: &str, rows: &RecordBatch, doing: &str) -> Result<(), DbError> {
        self.care_for_log(doing)?;
        let mut parameters = Parameters::of(rows)?;
        let mut statement = self.connection.prepare(sql).map_err(|e| failed(doing, e))?;
        let scratch = &mut self.scratch;
        let mut work = || {
            for row in 0..rows.num_rows() {
                parameters.bind(row, &mut statement, scratch).map_err(|e| e.at(doing))?;
                statement.raw_execute().map_err(|e| failed(doing, e))?;
            }
            Ok::<_, DbError>(())
        };
        match &self.log {
            Some(log) if rows.num_rows() >= BESIDE_ROWS => beside(&log.file(), work),
            _ => work(),
        }
    }

    /// From the first rows on the log is not copied by commits.
    fn care_for_log(&mut self, doing: &str) -> Result<(), DbError> {
        if let (None, Some(log)) = (&self.checkpointer, &self.log) {
            match Checkpointer::start(&log.path, log.timeout) {
                Some(checkpointer) => {
                    self.leave_log_to_commits(false).map_err(|e| failed(doing, e))?;
                    self.checkpointer = Some(checkpointer);
                }
                None => self.log = None,
            }
        }
        Ok(())
    }

    fn leave_log_to_commits(&self, commits: bool) -> rusqlite::Result<()> {
        let pages = if commits { PAGES_BY_COMMITS } else { 0 };
        self.connection.execute_batch(&format!("PRAGMA wal_autocheckpoint = {pages}"))
    }

    /// Sees to it that no column changes what is written to it.
    fn check(&mut self, target: &Target) -> Result<(), DbError> {
        if self.checked.contains(&target.table) {
            return Ok(());
        }
        let columns = self.table_columns(&target.table)?.unwrap_or_default();
        for field in target.schema.fields() {
            let declared = columns.iter().find(|(name, _)| name.eq_ignore_ascii_case(field.name())).map(|(_, declared)| declared);
            let Some(declared) = declared else { continue };
            if let Some(why) = changes(field.data_type(), Affinity::of(declared)) {
                return Err(DbError::fatal(format!("table '{}': column '{}' is declared {declared}: {why}", target.table, field.name())));
            }
        }
        self.checked.insert(target.table.clone());
        Ok(())
    }
}

/// What a column makes of values ("affinity", as SQLite's documentation "Datatypes In SQLite" determines it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Affinity {
    /// Texts that look like numbers become numbers; nothing else changes.
    Numeric,
    /// The same, and whole numbers become doubles.
    Real,
    /// Numbers become texts, doubles with fifteen digits.
    Text,
    /// Nothing changes.
    None,
}

impl Affinity {
    /// Of the type that a column is declared with.
    fn of(declared: &str) -> Self {
        let declared = declared.to_ascii_uppercase();
        let has = |parts: &[&str]| parts.iter().any(|part| declared.contains(part));
        if has(&["INT"]) {
            Affinity::Numeric
        } else if has(&["CHAR", "CLOB", "TEXT"]) {
            Affinity::Text
        } else if has(&["BLOB"]) || declared.is_empty() {
            Affinity::None
        } else if has(&["REAL", "FLOA", "DOUB"]) {
            Affinity::Real
        } else {
            Affinity::Numeric
        }
    }
}

/// Why values of a type would not be in a column as they were written.
fn changes(data_type: &DataType, affinity: Affinity) -> Option<&'static str> {
    let text = match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Decimal128(precision, scale) => !as_number(*precision, *scale),
        _ => false,
    };
    let double = match data_type {
        DataType::Float32 | DataType::Float64 => true,
        DataType::Decimal128(precision, scale) => as_number(*precision, *scale) && *scale > 0,
        _ => false,
    };
    let long = match data_type {
        DataType::Int64 => true,
        DataType::Decimal128(precision, scale) => as_number(*precision, *scale) && *scale <= 0 && *precision > DIGITS_OF_DOUBLE,
        _ => false,
    };
    match affinity {
        Affinity::Numeric | Affinity::Real if text => Some("SQLite would turn texts that look like numbers into numbers; declare it TEXT"),
        Affinity::Text if double => Some("SQLite would turn numbers into texts of fifteen digits; declare it DOUBLE"),
        Affinity::Real if long => Some("SQLite would turn whole numbers into doubles, which leave out large ones; declare it BIGINT"),
        _ => None,
    }
}

impl Connection for SqliteConnection {
    fn execute(&mut self, sql: &str) -> Result<u64, DbError> {
        self.connection.execute_batch(sql).map_err(|e| failed(format_args!("running {sql}"), e))?;
        Ok(self.connection.changes())
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: Option<&RecordBatch>,
        schema: &SchemaRef,
        rows: usize,
        piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        let doing = || format!("running {sql}");
        let mut statement = self.connection.prepare(sql).map_err(|e| failed(doing(), e))?;
        if statement.column_count() != schema.fields().len() {
            let (found, wanted) = (statement.column_count(), schema.fields().len());
            return Err(DbError::fatal(format!("{}: it gives {found} columns, and {wanted} are expected", doing())));
        }
        if let Some(parameters) = parameters {
            Parameters::of(parameters)?.bind(0, &mut statement, &mut self.scratch)?;
        }
        let mut columns = Columns::new(schema)?;
        let mut found = statement.raw_query();
        while let Some(row) = found.next().map_err(|e| failed(doing(), e))? {
            columns.push(row)?;
            if columns.rows() >= rows.max(1) {
                piece(columns.take()?)?;
            }
        }
        if columns.rows() > 0 { piece(columns.take()?) } else { Ok(()) }
    }

    fn begin(&mut self) -> Result<(), DbError> {
        match self.checkpointer.as_ref().map(Checkpointer::make_room) {
            None | Some(Room::There) => {}
            Some(Room::Ended) => {
                (self.checkpointer, self.log) = (None, None);
                self.leave_log_to_commits(true).map_err(|e| failed("beginning a transaction", e))?;
            }
            Some(Room::Failed) => return Err(DbError::fatal(UNSAFE)),
        }
        // At once as a writer: one that reads first and then finds another writing could only give up.
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(|e| failed("beginning a transaction", e))
    }

    fn commit(&mut self) -> Result<(), DbError> {
        self.connection.execute_batch("COMMIT").map_err(|e| failed("committing", e))?;
        if let Some(checkpointer) = &self.checkpointer {
            checkpointer.committed(extent(&self.connection));
        }
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        // Some errors have ended the transaction already.
        if self.connection.is_autocommit() {
            return Ok(());
        }
        self.connection.execute_batch("ROLLBACK").map_err(|e| failed("rolling back", e))
    }

    fn append(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        self.check(target)?;
        let sql = insert(target);
        self.run(&sql, rows, &format!("inserting into '{}'", target.table))
    }

    fn upsert(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        self.check(target)?;
        let dialect = dialect();
        let values: Vec<String> = target
            .value_columns()
            .into_iter()
            .map(|i| dialect.quote_column(target.schema.field(i).name()))
            .map(|column| format!("{column} = excluded.{column}"))
            .collect();
        let then = if values.is_empty() { "NOTHING".into() } else { format!("UPDATE SET {}", values.join(", ")) };
        let sql = format!("{} ON CONFLICT ({}) DO {then}", insert(target), list(dialect, target.key_names()));
        self.run(&sql, rows, &format!("inserting or updating rows of '{}'", target.table))
    }

    fn delete(&mut self, target: &Target, keys: &RecordBatch) -> Result<(), DbError> {
        let sql = format!("DELETE FROM {} WHERE {}", dialect().quote(&target.table), equal(keys));
        self.run(&sql, keys, &format!("deleting from '{}'", target.table))
    }

    fn look_up(&mut self, target: &Target, keys: &RecordBatch, columns: &SchemaRef) -> Result<RecordBatch, DbError> {
        let doing = || format!("looking up rows of '{}'", target.table);
        let dialect = dialect();
        let names = list(dialect, columns.fields().iter().map(|f| f.name().as_str()));
        let sql = format!("SELECT {names} FROM {} WHERE {}", dialect.quote(&target.table), equal(keys));
        let mut parameters = Parameters::of(keys)?;
        let mut statement = self.connection.prepare(&sql).map_err(|e| failed(doing(), e))?;
        let mut result = Columns::new(columns)?;
        // No server is asked, so a statement a key costs no more than one for all.
        for key in 0..keys.num_rows() {
            parameters.bind(key, &mut statement, &mut self.scratch)?;
            let mut found = statement.raw_query();
            while let Some(row) = found.next().map_err(|e| failed(doing(), e))? {
                result.push(row)?;
            }
        }
        result.take()
    }

    fn table_columns(&mut self, table: &str) -> Result<Option<Vec<(String, String)>>, DbError> {
        let doing = || format!("asking for the columns of '{table}'");
        let (schema, name) = table.split_once('.').unwrap_or(("main", table));
        let sql = "SELECT name, type FROM pragma_table_info(?1, ?2)";
        let mut statement = self.connection.prepare(sql).map_err(|e| failed(doing(), e))?;
        let mut found = statement.query([name, schema]).map_err(|e| failed(doing(), e))?;
        let mut columns = Vec::new();
        while let Some(row) = found.next().map_err(|e| failed(doing(), e))? {
            let text = |i: usize| row.get::<_, String>(i).map_err(|e| failed(doing(), e));
            columns.push((text(0)?, text(1)?));
        }
        Ok(Some(columns).filter(|c| !c.is_empty()))
    }

    fn alive(&mut self) -> bool {
        true
    }
}

/// `INSERT INTO t (…) VALUES (?, …)`.
fn insert(target: &Target) -> String {
    let names = list(dialect(), target.schema.fields().iter().map(|f| f.name().as_str()));
    let marks = vec!["?"; target.schema.fields().len()].join(", ");
    format!("INSERT INTO {} ({names}) VALUES ({marks})", dialect().quote(&target.table))
}

/// `a = ? AND b = ?` for the columns of `keys`.
fn equal(keys: &RecordBatch) -> String {
    let schema = keys.schema();
    schema.fields().iter().map(|f| format!("{} = ?", dialect().quote_column(f.name()))).collect::<Vec<_>>().join(" AND ")
}

/// What SQLite says, with what can be done about it.
fn failed(doing: impl std::fmt::Display, e: rusqlite::Error) -> DbError {
    let (kind, hint) = match e.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            (DbErrorKind::Retry, "; another program is writing to it")
        }
        Some(ErrorCode::SchemaChanged | ErrorCode::OperationInterrupted | ErrorCode::OperationAborted) => (DbErrorKind::Retry, ""),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => (DbErrorKind::Data, ""),
        Some(ErrorCode::DiskFull) => (DbErrorKind::Fatal, "; free some space on that disk and run the job again"),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            (DbErrorKind::Fatal, "; check the permissions of the file and of its directory")
        }
        Some(ErrorCode::NotADatabase) => (DbErrorKind::Fatal, "; it is no database of SQLite, or an encrypted one"),
        _ => (DbErrorKind::Fatal, ""),
    };
    DbError::new(kind, format!("{doing}: {e}{hint}"))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn connect(file: &Path, read_only: bool) -> Result<Box<dyn Connection>, DbError> {
        SqliteDriver { path: file.display().to_string(), read_only }.connect(Duration::from_millis(20))
    }

    #[track_caller]
    fn refused<T>(result: Result<T, DbError>, kind: DbErrorKind, says: &str) {
        let error = result.err().unwrap();
        assert!(error.kind == kind && error.message.contains(says), "{error}");
    }

    #[test]
    fn what_is_refused_is_told_apart() {
        use DbErrorKind::{Fatal, Retry};
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("t.db");
        let mut one = connect(&file, false).unwrap();
        one.execute("CREATE TABLE t (id BIGINT, s TEXT); INSERT INTO t VALUES (1, 'a')").unwrap();
        // No more pages are what a full disk is.
        one.execute("PRAGMA max_page_count = 3").unwrap();
        refused(one.execute("INSERT INTO t SELECT 2, hex(randomblob(100000))"), Fatal, "free some space");
        let mut reader = connect(&file, true).unwrap();
        refused(reader.execute("INSERT INTO t VALUES (2, 'b')"), Fatal, "check the permissions");
        let mut other = connect(&file, false).unwrap();
        other.begin().unwrap();
        refused(one.begin(), Retry, "another program is writing");
        let text = directory.path().join("text.db");
        std::fs::write(&text, "no database\n".repeat(1000)).unwrap();
        refused(connect(&text, false), Fatal, "no database of SQLite");
        refused(connect(&directory.path().join("nowhere/t.db"), false), Fatal, "there is no directory");
    }

    /// The log was looked for beside the link, and not made safe while it was written.
    #[cfg(unix)]
    #[test]
    fn a_log_lies_beside_the_file() {
        let directory = TempDir::new().unwrap();
        let (file, link) = (directory.path().join("t.db"), directory.path().join("link.db"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let one = rusqlite::Connection::open(&link).unwrap();
        one.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (id BIGINT)").unwrap();
        let log = Log::of(&one, link.to_str().unwrap(), Duration::ZERO);
        assert!(log.file().exists() && log.file().ends_with("t.db-wal"));
    }

    /// It was cut to 64 MB each time.
    #[test]
    fn a_log_that_begins_anew_keeps_its_file() {
        let directory = TempDir::new().unwrap();
        let mut one = connect(&directory.path().join("t.db"), false).unwrap();
        one.execute("PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (b BLOB); INSERT INTO t VALUES (zeroblob(70000000))").unwrap();
        let bytes = || std::fs::metadata(directory.path().join("t.db-wal")).unwrap().len();
        let before = bytes();
        assert!(before > 70_000_000);
        one.execute("PRAGMA wal_checkpoint; INSERT INTO t VALUES (1)").unwrap();
        assert_eq!(bytes(), before);
    }

    #[test]
    fn columns_that_would_change_values_are_known() {
        let changed = |data_type: DataType, declared: &str| changes(&data_type, Affinity::of(declared)).is_some();
        for declared in ["INTEGER", "BIGINT", "NUMERIC", "DECIMAL(10, 2)", "DOUBLE", "DATE"] {
            assert!(changed(DataType::Utf8, declared) && changed(DataType::Decimal128(38, 2), declared), "{declared}");
        }
        for declared in ["TEXT", "VARCHAR(9)", "BLOB", ""] {
            assert!(!changed(DataType::Utf8, declared) && !changed(DataType::Int64, declared), "{declared}");
        }
        assert!(changed(DataType::Float64, "TEXT") && changed(DataType::Decimal128(10, 2), "TEXT"));
        assert!(changed(DataType::Int64, "REAL") && !changed(DataType::Int32, "REAL") && changed(DataType::Decimal128(18, 0), "FLOAT"));
        assert!(!changed(DataType::Float64, "DOUBLE") && !changed(DataType::Decimal128(15, 2), "DECIMAL(15, 2)"));
    }
}
