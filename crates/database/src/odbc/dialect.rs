//! SQL as the databases behind ODBC want it, as far as it is written before one is asked: types of `CREATE TABLE`, locks.
//! Names are in double quotes, parameters numbered; [`rewrite`](super::rewrite) makes the driver's of both.

use std::time::Duration;

use arrow::datatypes::{DataType, Field, TimeUnit};
use tidemill_format::types::{plain_type, type_name};

use super::system::System;
use crate::driver::{DbError, Dialect, behind_one_by_one, decimal_of_mysql};

/// The length of a column of text or bytes in a key.
const KEY_LENGTH: usize = 255;
/// The length of others, of databases whose type for long ones is not known.
const LENGTH: usize = 4000;
/// Digits of a decimal of Db2.
const DB2_DIGITS_MAX: u8 = 31;

/// The dialect of a database.
pub(super) struct OdbcDialect(System);

/// The dialect of a database.
pub(super) fn dialect(system: System) -> &'static OdbcDialect {
    match system {
        System::Postgres => &OdbcDialect(System::Postgres),
        System::MySql => &OdbcDialect(System::MySql),
        System::SqlServer => &OdbcDialect(System::SqlServer),
        System::Oracle => &OdbcDialect(System::Oracle),
        System::Db2 => &OdbcDialect(System::Db2),
        System::Sqlite => &OdbcDialect(System::Sqlite),
        System::Standard => &OdbcDialect(System::Standard),
    }
}

/// One name in double quotes; a dot in it stays a dot.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Dialect for OdbcDialect {
    fn quote(&self, name: &str) -> String {
        name.split('.').map(quoted).collect::<Vec<_>>().join(".")
    }

    fn quote_column(&self, name: &str) -> String {
        quoted(name)
    }

    fn column_type(&self, field: &Field, key: bool) -> Result<String, DbError> {
        let plain = plain_type(field.data_type());
        if plain.is_nested() {
            let kind = type_name(&plain);
            return Err(DbError::fatal(format!(
                "column '{}': by ODBC there is nothing for {kind}; make it a STRING (JSON_STRING, CAST), or its parts columns of their own",
                field.name()
            )));
        }
        if self.0 == System::Sqlite {
            return crate::sqlite::dialect().column_type(field, key);
        }
        if let DataType::Decimal128(precision, _) = plain
            && self.0 == System::Db2
            && precision > DB2_DIGITS_MAX
        {
            return Err(DbError::fatal(format!("column '{}': decimals of Db2 have at most {DB2_DIGITS_MAX} digits", field.name())));
        }
        column_type(self.0, &plain, key).ok_or_else(|| {
            DbError::fatal(format!("column '{}': there is no column type for {}", field.name(), type_name(field.data_type())))
        })
    }

    fn table_suffix(&self) -> &'static str {
        if self.0 == System::MySql { " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4" } else { "" }
    }

    fn behind(&self, columns: &[String], values: &[String]) -> String {
        behind_one_by_one(columns, values)
    }

    fn decimal_cast(&self, data_type: &DataType) -> Option<&'static str> {
        if self.0 == System::MySql { decimal_of_mysql(data_type) } else { None }
    }

    fn limit_lock_waits(&self, limit: Duration) -> Option<String> {
        match self.0 {
            System::Postgres => Some(format!("SET LOCAL lock_timeout = {}", limit.as_millis().max(1))),
            // Of the session; the next transaction sets it back.
            System::SqlServer => Some(format!("SET LOCK_TIMEOUT {}", limit.as_millis().max(1))),
            System::Db2 => Some(format!("SET CURRENT LOCK TIMEOUT = {}", limit.as_secs().max(1))),
            // They have an end, or nothing is known.
            System::MySql | System::Oracle | System::Sqlite | System::Standard => None,
        }
    }

    fn lock_rows(&self) -> &'static str {
        match self.0 {
            // The first has it elsewhere, and the second only one that writes.
            System::SqlServer | System::Sqlite => "",
            System::Db2 => " WITH RS USE AND KEEP UPDATE LOCKS",
            // A transaction that nobody ends would hold it for ever.
            System::Oracle => " FOR UPDATE WAIT 60",
            // Of those that are not known, one that does not have it says so.
            System::Postgres | System::MySql | System::Standard => " FOR UPDATE",
        }
    }

    fn lock_hint(&self) -> &'static str {
        if self.0 == System::SqlServer { " WITH (UPDLOCK, ROWLOCK)" } else { "" }
    }

    fn placeholder(&self, number: usize) -> String {
        format!("?{number}")
    }
}

/// The type of a column for `CREATE TABLE`.
fn column_type(system: System, plain: &DataType, key: bool) -> Option<String> {
    use System::*;
    let digits = |unit: TimeUnit, most: usize| tidemill_block::value::fraction_digits(unit).min(most);
    Some(match (plain, system) {
        (DataType::Boolean, SqlServer) => "BIT".to_string(),
        (DataType::Boolean, Oracle) => "NUMBER(1)".into(),
        (DataType::Boolean, Db2) => "SMALLINT".into(),
        (DataType::Boolean, _) => "BOOLEAN".into(),
        (DataType::Int8, MySql) => "TINYINT".into(),
        (DataType::Int8, Oracle) => "NUMBER(3)".into(),
        (DataType::Int16, Oracle) => "NUMBER(5)".into(),
        (DataType::Int8 | DataType::Int16, _) => "SMALLINT".into(),
        (DataType::Int32, Oracle) => "NUMBER(10)".into(),
        (DataType::Int32, _) => "INTEGER".into(),
        (DataType::Int64, Oracle) => "NUMBER(19)".into(),
        (DataType::Int64, _) => "BIGINT".into(),
        (DataType::Float32, MySql) => "FLOAT".into(),
        (DataType::Float32, Oracle) => "BINARY_FLOAT".into(),
        (DataType::Float32, _) => "REAL".into(),
        (DataType::Float64, MySql | Db2) => "DOUBLE".into(),
        (DataType::Float64, SqlServer) => "FLOAT".into(),
        (DataType::Float64, Oracle) => "BINARY_DOUBLE".into(),
        (DataType::Float64, _) => "DOUBLE PRECISION".into(),
        (DataType::Decimal128(precision, scale), Oracle) => format!("NUMBER({precision}, {})", (*scale).max(0)),
        (DataType::Decimal128(precision, scale), _) => format!("DECIMAL({precision}, {})", (*scale).max(0)),
        (DataType::Utf8, Postgres) => "TEXT".into(),
        // Keys are equal where their code units are: not those that differ in case.
        (DataType::Utf8, MySql) if key => format!("VARCHAR({KEY_LENGTH}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
        (DataType::Utf8, MySql) => "LONGTEXT".into(),
        (DataType::Utf8, SqlServer) if key => format!("NVARCHAR({KEY_LENGTH}) COLLATE Latin1_General_100_BIN2"),
        (DataType::Utf8, SqlServer) => "NVARCHAR(MAX)".into(),
        (DataType::Utf8, Oracle) if key => format!("VARCHAR2({KEY_LENGTH} CHAR)"),
        (DataType::Utf8, Oracle) => "CLOB".into(),
        (DataType::Utf8, Db2) if !key => "CLOB(1G)".into(),
        (DataType::Utf8, _) => format!("VARCHAR({})", if key { KEY_LENGTH } else { LENGTH }),
        (DataType::Binary, Postgres) => "BYTEA".into(),
        (DataType::Binary, MySql) if !key => "LONGBLOB".into(),
        (DataType::Binary, SqlServer) if !key => "VARBINARY(MAX)".into(),
        (DataType::Binary, Oracle) if key => format!("RAW({KEY_LENGTH})"),
        (DataType::Binary, Oracle) => "BLOB".into(),
        (DataType::Binary, Db2) if !key => "BLOB(1G)".into(),
        (DataType::Binary, _) => format!("VARBINARY({})", if key { KEY_LENGTH } else { LENGTH }),
        (DataType::Date32, _) => "DATE".into(),
        // They have no time of day with a fraction: a text like 08:00:00.500.
        (DataType::Time32(_), Oracle) => "VARCHAR2(12)".into(),
        (DataType::Time32(_), Db2) => "VARCHAR(12)".into(),
        (DataType::Time32(_), _) => "TIME(3)".into(),
        (DataType::Timestamp(unit, _), MySql) => format!("DATETIME({})", digits(*unit, 6)),
        (DataType::Timestamp(unit, Some(_)), Postgres) => format!("TIMESTAMP({}) WITH TIME ZONE", digits(*unit, 6)),
        (DataType::Timestamp(unit, None), Postgres) => format!("TIMESTAMP({})", digits(*unit, 6)),
        (DataType::Timestamp(unit, Some(_)), SqlServer) => format!("DATETIMEOFFSET({})", digits(*unit, 7)),
        (DataType::Timestamp(unit, None), SqlServer) => format!("DATETIME2({})", digits(*unit, 7)),
        // In UTC.
        (DataType::Timestamp(unit, _), _) => format!("TIMESTAMP({})", digits(*unit, 9)),
        _ => return None,
    })
}
