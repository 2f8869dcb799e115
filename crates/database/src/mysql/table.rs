//! What the server says of a table: its columns, their types, which indexes are unique.
//!
//! Read once a connection and table, and forgotten after an error, since the table may have been changed. Kinds
//! of columns decide how values are written and which of them would be changed on the way without a word.

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Error, Row, Value};

use super::dialect::MysqlDialect;
use super::error::{NO_SUCH_TABLE, code, db_error};
use crate::driver::{DbError, Dialect};

/// What a column can hold, as far as writing asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Whole numbers, `YEAR` included.
    Integer,
    /// 24 bits of mantissa.
    Float,
    /// 53 bits of mantissa.
    Double,
    /// Exact numbers; what has more digits than fit is refused by the server.
    Decimal,
    /// `BIT(n)`: text for it would be taken as bytes.
    Bit,
    /// `DATETIME` and `TIMESTAMP` with so many digits of the second.
    DateTime(u8),
    /// `TIME` with so many digits of the second.
    Time(u8),
    /// Everything else: text, bytes, dates, JSON, ENUM, SET, geometry.
    Other,
}

impl Kind {
    /// Of the type as `SHOW COLUMNS` writes it, such as `int(11) unsigned` or `datetime(6)`.
    pub fn of(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
        let digits = || {
            let rest = &text[end..];
            let number = rest.strip_prefix('(').and_then(|r| r.split_once(')')).map(|(n, _)| n);
            number.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
        };
        match &text[..end] {
            "tinyint" | "smallint" | "mediumint" | "int" | "integer" | "bigint" | "year" | "boolean" => Kind::Integer,
            "float" => Kind::Float,
            "double" | "real" => Kind::Double,
            "decimal" | "numeric" => Kind::Decimal,
            "bit" => Kind::Bit,
            "datetime" | "timestamp" => Kind::DateTime(digits()),
            "time" => Kind::Time(digits()),
            _ => Kind::Other,
        }
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// Its name as the table has it.
    pub name: String,
    /// Its type as the server writes it.
    pub type_text: String,
    /// The same, read.
    pub kind: Kind,
    /// The collation of text.
    pub collation: Option<String>,
    /// Whether it may be NULL.
    pub nullable: bool,
}

impl Column {
    /// Whether its values are numbers of labels: an `ENUM` or a `SET`.
    pub fn has_labels(&self) -> bool {
        let kind = self.type_text.split('(').next().unwrap_or_default();
        kind.eq_ignore_ascii_case("enum") || kind.eq_ignore_ascii_case("set")
    }
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// Its columns, in order.
    pub columns: Vec<Column>,
    /// The columns of each unique index, lower case, sorted. One over parts of columns or over expressions has
    /// an empty name in it, so that it equals no key.
    pub unique: Vec<Vec<String>>,
}

impl Table {
    /// Asks the server; `None` if there is no such table (or view).
    pub fn load(conn: &mut Conn, table: &str) -> Result<Option<Self>, DbError> {
        let doing = format!("looking at the columns of {table}");
        let name = MysqlDialect.quote(table);
        let columns = match conn.query::<Row, _>(format!("SHOW FULL COLUMNS FROM {name}")) {
            Ok(rows) => rows.iter().map(column).collect::<Option<Vec<_>>>(),
            Err(e) if code(&e) == Some(NO_SUCH_TABLE) => return Ok(None),
            Err(e) => return Err(db_error(&doing, &e)),
        };
        let columns = columns.ok_or_else(|| DbError::fatal(format!("{doing}: the server answered in an unknown form")))?;
        let unique = match conn.query::<Row, _>(format!("SHOW INDEX FROM {name}")) {
            Ok(rows) => unique_indexes(rows.iter().filter_map(index_part)),
            // A view has none, and a user that may only insert is not told.
            Err(Error::MySqlError(_)) => Vec::new(),
            Err(e) => return Err(db_error(&doing, &e)),
        };
        Ok(Some(Table { columns, unique }))
    }

    /// The position of the column of this name; case does not matter, as on the server.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name).or_else(|| {
            let name = name.to_lowercase();
            self.columns.iter().position(|c| c.name.to_lowercase() == name)
        })
    }

    /// Whether a unique index is over exactly these columns.
    pub fn has_key(&self, key: &[&str]) -> bool {
        let key = sorted_key(key.iter().copied());
        self.unique.contains(&key)
    }

    /// Whether there are unique indexes over other columns: `ON DUPLICATE KEY UPDATE` would then change a row of
    /// another key in silence.
    pub fn has_other_unique(&self, key: &[&str]) -> bool {
        let key = sorted_key(key.iter().copied());
        self.unique.iter().any(|columns| *columns != key)
    }
}

/// The statement that asks for the engine of a table, if that has no transactions (MyISAM, Aria, MEMORY). A view has no engine.
pub(crate) fn engine_sql(table: &str) -> String {
    let literal = |text: &str| MysqlDialect.literal(text, false);
    let (schema, name) = match table.rsplit_once('.') {
        Some((schema, name)) => (literal(schema), name),
        None => ("DATABASE()".into(), table),
    };
    format!(
        "SELECT t.engine FROM information_schema.tables t JOIN information_schema.engines e ON e.engine = t.engine \
         WHERE t.table_schema = {schema} AND t.table_name = {} AND e.transactions = 'NO'",
        literal(name)
    )
}

fn sorted_key<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = names.map(str::to_lowercase).collect();
    names.sort();
    names
}

/// A row of `SHOW FULL COLUMNS`: Field, Type, Collation, Null, ….
fn column(row: &Row) -> Option<Column> {
    let type_text = text(row, 1)?;
    Some(Column {
        name: text(row, 0)?,
        kind: Kind::of(&type_text),
        type_text,
        collation: text(row, 2),
        nullable: text(row, 3).is_none_or(|t| t.eq_ignore_ascii_case("yes")),
    })
}

/// A row of `SHOW INDEX`, if the index is unique: its name, and the column, empty for a part of one or for an
/// expression.
fn index_part(row: &Row) -> Option<(String, String)> {
    // Table, Non_unique, Key_name, Seq_in_index, Column_name, Collation, Cardinality, Sub_part, ….
    let unique = matches!(row.as_ref(1)?, Value::Bytes(b) if b == b"0") || matches!(row.as_ref(1)?, Value::Int(0) | Value::UInt(0));
    let whole = matches!(row.as_ref(7)?, Value::NULL);
    unique.then(|| Some((text(row, 2)?, text(row, 4).filter(|_| whole).unwrap_or_default())))?
}

fn unique_indexes(parts: impl Iterator<Item = (String, String)>) -> Vec<Vec<String>> {
    let mut indexes: Vec<(String, Vec<String>)> = Vec::new();
    for (index, column) in parts {
        match indexes.last_mut() {
            Some((last, columns)) if *last == index => columns.push(column),
            _ => indexes.push((index, vec![column])),
        }
    }
    indexes.into_iter().map(|(_, columns)| sorted_key(columns.iter().map(String::as_str))).collect()
}

/// The text at a position of a row, `None` if it is NULL or no text.
pub(super) fn text(row: &Row, at: usize) -> Option<String> {
    match row.as_ref(at)? {
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
