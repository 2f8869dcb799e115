//! DuckDB: a file is a database, and its library is loaded if it is installed; nothing of it is built in.
//!
//! Rows are appended by the library's appender, whole columns at a time ([`fill`]); upserts and deletes are one
//! statement that reads the rows from an appender of its own ([`write`](mod@write)). Results come as columns ([`read`]). A file
//! is open once in a process, with as many connections as are wanted ([`instance`]), and to one process.
//!
//! Connections write side by side: DuckDB finds out when two change the same row, and gives one of them up, which is
//! then tried again. It has no savepoints: [`replay`] does without.
//!
//! - [`ffi`]: the library; [`shape`]: its types; [`convert`], [`text`]: their values
//! - [`connection`], [`lookup`], [`bind`], [`error`]: what the crate asks of a store

mod bind;
mod connection;
mod convert;
mod error;
mod ffi;
mod fill;
mod instance;
mod lookup;
mod read;
mod replay;
mod shape;
mod text;
mod write;

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, TimeUnit};
use tidemill_format::types::{plain_type, type_name};

use self::connection::DuckConnection;
use crate::driver::{Connection, DbError, Dialect, Driver};
use crate::url::Url;

/// The driver for a file. Parameters of the URL are settings of DuckDB (`access_mode`, `memory_limit`, `threads`).
///
/// # Errors
/// None: the library is loaded with the first connection.
pub fn driver(url: &Url) -> Result<Arc<dyn Driver>, DbError> {
    Ok(Arc::new(DuckDriver { path: url.database.clone(), parameters: url.parameters.clone() }))
}

/// Rows of a row group of DuckDB's files, unless a file is attached with another size.
const ROW_GROUP: usize = 122_880;

struct DuckDriver {
    path: String,
    parameters: Vec<(String, String)>,
}

impl Driver for DuckDriver {
    fn name(&self) -> &'static str {
        "DuckDB"
    }

    fn dialect(&self) -> &'static dyn Dialect {
        &DuckDialect
    }

    fn row_group(&self) -> Option<usize> {
        Some(ROW_GROUP)
    }

    fn in_process(&self) -> bool {
        true
    }

    fn connect(&self, _timeout: Duration) -> Result<Box<dyn Connection>, DbError> {
        let (session, user) = instance::connect(&self.path, &self.parameters)?;
        Ok(Box::new(DuckConnection::new(session, user)))
    }
}

/// How DuckDB wants its SQL.
struct DuckDialect;

impl Dialect for DuckDialect {
    fn quote(&self, name: &str) -> String {
        name.split('.').map(quoted).collect::<Vec<_>>().join(".")
    }

    fn quote_column(&self, name: &str) -> String {
        quoted(name)
    }

    fn lock_rows(&self) -> &'static str {
        // There is no such clause. A transaction that another is ahead of is given up, and in a process that was
        // killed none is left over.
        ""
    }

    fn column_type(&self, field: &Field, key: bool) -> Result<String, DbError> {
        let unknown = |why: &str| {
            let kind = type_name(field.data_type());
            DbError::fatal(format!("column '{}': {why} {kind}; cast it to a type that it has", field.name()))
        };
        if key && matches!(field.data_type(), DataType::List(_) | DataType::Struct(_) | DataType::Map(..)) {
            return Err(unknown("in DuckDB a primary key cannot be of"));
        }
        column_type(field.data_type()).ok_or_else(|| unknown("DuckDB has no type for"))
    }
}

/// One name in quotes; a dot in it stays a dot.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Names in quotes with commas between them, each behind `prefix` (`r.`).
fn quoted_list<'a>(names: impl IntoIterator<Item = &'a str>, prefix: &str) -> String {
    names.into_iter().map(|name| format!("{prefix}{}", quoted(name))).collect::<Vec<_>>().join(", ")
}

/// The type that `CREATE TABLE` gives a column.
fn column_type(data_type: &DataType) -> Option<String> {
    // Unsigned numbers have types of their own; of the others each stands for several of Arrow's.
    let name = match data_type {
        DataType::UInt8 => "UTINYINT",
        DataType::UInt16 => "USMALLINT",
        DataType::UInt32 => "UINTEGER",
        DataType::UInt64 => "UBIGINT",
        other => match plain_type(other) {
            DataType::Boolean => "BOOLEAN",
            DataType::Int8 => "TINYINT",
            DataType::Int16 => "SMALLINT",
            DataType::Int32 => "INTEGER",
            DataType::Int64 => "BIGINT",
            DataType::Float32 => "FLOAT",
            DataType::Float64 => "DOUBLE",
            DataType::Decimal128(precision, scale) if scale >= 0 => return Some(format!("DECIMAL({precision}, {scale})")),
            DataType::Utf8 => "VARCHAR",
            DataType::Binary => "BLOB",
            DataType::Date32 => "DATE",
            DataType::Time32(_) => "TIME",
            DataType::Timestamp(TimeUnit::Nanosecond, None) => "TIMESTAMP_NS",
            DataType::Timestamp(_, None) => "TIMESTAMP",
            DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE",
            DataType::List(item) => return Some(format!("{}[]", column_type(item.data_type())?)),
            DataType::Struct(fields) if !fields.is_empty() => {
                let part = |field: &Arc<Field>| Some(format!("{} {}", quoted(field.name()), column_type(field.data_type())?));
                return Some(format!("STRUCT({})", fields.iter().map(part).collect::<Option<Vec<_>>>()?.join(", ")));
            }
            DataType::Map(entries, _) => {
                let DataType::Struct(pair) = entries.data_type() else { return None };
                let [key, value] = &pair[..] else { return None };
                return Some(format!("MAP({}, {})", column_type(key.data_type())?, column_type(value.data_type())?));
            }
            _ => return None,
        },
    };
    Some(name.into())
}

#[cfg(test)]
mod tests;
