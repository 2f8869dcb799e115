//! What the server says of a table that is to be followed, and of its log; and what is missing.

use std::sync::Arc;

use ::mysql::consts::ColumnFlags;
use ::mysql::prelude::Queryable;
use ::mysql::{Column, Conn, Error, Row, Value};
use arrow::datatypes::DataType;
use encoding_rs::Encoding;

use super::super::dialect::{MysqlDialect, bytes_of_text, quoted};
use super::super::error::{code, db_error};
use super::super::table::text;
use super::value::{Form, Meaning};
use crate::cdc::follow::Followed;
use crate::cdc::position::Offset;
use crate::driver::{DbError, Dialect};

/// A statement that the server does not understand.
const SYNTAX: u16 = 1064;

/// Character sets other than UTF-8, by MySQL's names, as encodings by those of the web.
const ENCODINGS: &[(&str, &str)] = &[
    ("latin1", "windows-1252"),
    ("latin2", "iso-8859-2"),
    ("cp1250", "windows-1250"),
    ("cp1251", "windows-1251"),
    ("koi8r", "koi8-r"),
    ("gbk", "gbk"),
    ("gb18030", "gb18030"),
    ("euckr", "euc-kr"),
    ("ucs2", "utf-16be"),
    ("utf16", "utf-16be"),
];

/// What a column that is read is in the table.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Its place among the table's columns.
    pub place: usize,
    /// The name of its type, without length.
    pub kind: String,
    pub meaning: Meaning,
    /// Keys of it have an order that is known here, by this expression.
    pub order: Option<String>,
}

/// A table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub database: String,
    pub name: String,
    /// How many columns it has.
    pub width: usize,
    /// The columns that are read.
    pub wanted: Vec<Wanted>,
    /// The same as the client describes those of a result.
    pub described: Arc<[Column]>,
}

/// A server's log.
#[derive(Clone, Debug)]
pub(super) struct Log {
    /// Names the server.
    pub server: String,
    /// What stands before the number in the names of its files.
    pub base: String,
}

fn rows(conn: &mut Conn, doing: &str, sql: &str) -> Result<Vec<Row>, DbError> {
    conn.query(sql).map_err(|e| db_error(doing, &e))
}

/// Text as a literal.
fn literal(text: &str) -> String {
    MysqlDialect.literal(text, false)
}

impl Log {
    /// Asks for the log, and looks whether changes can be read from it.
    ///
    /// # Errors
    /// What the server lacks.
    pub fn load(conn: &mut Conn) -> Result<Self, DbError> {
        let doing = "looking at the server's log";
        let sql = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'binlog_row_image', \
                   'binlog_transaction_compression', \
                   'log_bin_compress', 'server_uuid', 'server_id')";
        let found = rows(conn, doing, sql)?;
        let variable = |name: &str| {
            let row = found.iter().find(|row| text(row, 0).is_some_and(|n| n.eq_ignore_ascii_case(name)));
            row.and_then(|row| text(row, 1)).unwrap_or_default()
        };
        let wrong = |why: &str| Err(DbError::fatal(format!("the server does not log what is needed: {why}")));
        if !matches!(variable("log_bin").to_ascii_uppercase().as_str(), "ON" | "1") {
            return wrong("its binary log is off; start it with --log-bin --binlog-format=ROW --server-id=1");
        }
        if !variable("binlog_format").eq_ignore_ascii_case("ROW") {
            return wrong("set binlog_format = ROW in its configuration, and start sessions that write anew");
        }
        if !variable("binlog_row_image").eq_ignore_ascii_case("FULL") {
            return wrong("set binlog_row_image = FULL in its configuration, and start sessions that write anew");
        }
        for name in ["binlog_transaction_compression", "log_bin_compress"] {
            if variable(name).eq_ignore_ascii_case("ON") {
                return wrong(&format!("set {name} = OFF; compressed changes are not read"));
            }
        }
        let uuid = variable("server_uuid");
        let server = if uuid.is_empty() { format!("server-id {}", variable("server_id")) } else { uuid };
        let (file, _) = status(conn)?;
        let (base, _) = numbered(&file)?;
        Ok(Log { server, base: base.to_string() })
    }

    /// The name of a file.
    pub fn file(&self, number: u64) -> String {
        format!("{}.{number:06}", self.base)
    }
}

/// The log's last file and how long it is.
fn status(conn: &mut Conn) -> Result<(String, u64), DbError> {
    let doing = "asking how far the log is";
    // As newer servers of MySQL call it; others do not know it.
    let found: Result<Vec<Row>, Error> = conn.query("SHOW BINARY LOG STATUS");
    let found = match found {
        Err(e) if code(&e) == Some(SYNTAX) => rows(conn, doing, "SHOW MASTER STATUS")?,
        result => result.map_err(|e| db_error(doing, &e))?,
    };
    let row = found.first().ok_or_else(|| DbError::fatal("the server has no binary log"))?;
    let at = match row.as_ref(1) {
        Some(Value::Bytes(bytes)) => std::str::from_utf8(bytes).ok().and_then(|n| n.parse().ok()),
        Some(Value::UInt(n)) => Some(*n),
        Some(Value::Int(n)) => u64::try_from(*n).ok(),
        _ => None,
    };
    text(row, 0).zip(at).ok_or_else(|| DbError::fatal("the server says in an unknown form how far its log is"))
}

/// The name of a file of the log as what stands before its number, and that.
///
/// # Errors
/// It has none.
pub(super) fn numbered(file: &str) -> Result<(&str, u64), DbError> {
    let parts = file.rsplit_once('.').and_then(|(base, number)| Some((base, number.parse().ok()?)));
    parts.ok_or_else(|| DbError::fatal(format!("'{file}' is no name of a file of a binary log")))
}

/// How far the log is.
///
/// # Errors
/// Of the server.
pub(super) fn now(conn: &mut Conn) -> Result<Offset, DbError> {
    let (file, at) = status(conn)?;
    Ok(Offset { file: numbered(&file)?.1, at })
}

/// The first place that the server still has.
///
/// # Errors
/// Of the server.
pub(super) fn oldest(conn: &mut Conn) -> Result<Offset, DbError> {
    let found = rows(conn, "asking for the files of the log", "SHOW BINARY LOGS")?;
    let first = found.first().and_then(|row| text(row, 0)).ok_or_else(|| DbError::fatal("the server has no binary log"))?;
    // Every file begins with four bytes that say what it is.
    Ok(Offset { file: numbered(&first)?.1, at: 4 })
}

/// Says which rows of a table the server changes without a word in the log: those that go or change with the rows that a foreign
/// key of theirs refers to, which its storage engine sees to behind the log's back.
///
/// # Errors
/// Of the server.
pub(super) fn tell_of_cascades(conn: &mut Conn, followed: &Followed) -> Result<(), DbError> {
    let doing = format!("looking at the foreign keys of {}", followed.table);
    // Servers that have this variable log such changes as any others, unless it is on.
    let native = rows(conn, &doing, "SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")?;
    if native.first().and_then(|row| text(row, 1)).is_some_and(|value| value.eq_ignore_ascii_case("OFF")) {
        return Ok(());
    }
    let (database, name) = followed.table.split_once('.').unwrap_or(("", &followed.table));
    let sql = format!(
        "SELECT constraint_name, referenced_table_name, delete_rule, update_rule FROM information_schema.referential_constraints \
         WHERE constraint_schema = {} AND table_name = {}",
        literal(database),
        literal(name)
    );
    for row in rows(conn, &doing, &sql)? {
        let column = |at: usize| text(&row, at).unwrap_or_default();
        let rules: Vec<String> = [("ON DELETE", column(2)), ("ON UPDATE", column(3))]
            .into_iter()
            .filter(|(_, rule)| !matches!(rule.to_ascii_uppercase().as_str(), "" | "RESTRICT" | "NO ACTION"))
            .map(|(when, rule)| format!("{when} {rule}"))
            .collect();
        if !rules.is_empty() {
            tidemill_connect::notice(&format!(
                "table {}: what the server changes in it by its foreign key '{}' ({}) when rows of '{}' change is not in the log, and \
                 not in what this job makes of the table; delete or change its rows first",
                followed.table,
                column(0),
                rules.join(", "),
                column(1)
            ));
        }
    }
    Ok(())
}

impl Table {
    /// Asks for a table.
    ///
    /// # Errors
    /// There is none, or none that can be followed; columns whose changes are not read.
    pub fn load(conn: &mut Conn, followed: &Followed) -> Result<Self, DbError> {
        let doing = format!("looking at the columns of {}", followed.table);
        let (database, name) = followed.table.split_once('.').unwrap_or(("", &followed.table));
        let of_table = format!("table_schema = {} AND table_name = {}", literal(database), literal(name));
        let sql = format!("SELECT table_name, engine FROM information_schema.tables WHERE {of_table}");
        let found = rows(conn, &doing, &sql)?;
        let Some(row) = found.first() else { return Err(DbError::fatal(format!("there is no table {}", followed.table))) };
        // Servers on some systems write names in another case than users.
        let own_name = text(row, 0).unwrap_or_else(|| name.to_string());
        match text(row, 1) {
            Some(engine) if engine.eq_ignore_ascii_case("InnoDB") => {}
            engine => {
                return Err(DbError::fatal(format!(
                    "table {} is one of the engine {}, which has no transactions; tables of InnoDB can be followed",
                    followed.table,
                    engine.as_deref().unwrap_or("of views")
                )));
            }
        }
        let sql = format!(
            "SELECT column_name, data_type, column_type, character_set_name FROM information_schema.columns WHERE {of_table} ORDER BY \
             ordinal_position"
        );
        let columns = rows(conn, &doing, &sql)?;
        let names: Vec<String> = columns.iter().filter_map(|row| text(row, 0)).collect();
        let read: Vec<String> = followed.schema.fields().iter().map(|f| quoted(f.name())).collect();
        let select = format!("SELECT {} FROM {}", read.join(", "), MysqlDialect.quote(&followed.table));
        let described = conn.prep(select).map_err(|e| db_error(&doing, &e))?.columns();
        let mut wanted = Vec::with_capacity(read.len());
        for (field, result) in followed.schema.fields().iter().zip(described.iter()) {
            let place = names.iter().position(|n| n == field.name() || n.to_lowercase() == field.name().to_lowercase());
            let place = place.ok_or_else(|| {
                DbError::fatal(format!("table {} has no column '{}'; it has {}", followed.table, field.name(), names.join(", ")))
            })?;
            let column = |at: usize| text(&columns[place], at).unwrap_or_default();
            let mut one = Wanted::of(field.name(), place, result, &column(1), &column(2), &column(3))?;
            one.order = one.order.filter(|_| keeps_order(&one.kind, field.data_type()));
            wanted.push(one);
        }
        Ok(Table { database: database.to_string(), name: own_name, width: names.len(), wanted, described })
    }

    /// How rows are read in the order that their keys have here.
    pub fn order(&self, followed: &Followed) -> Option<Vec<String>> {
        if followed.key.is_empty() { None } else { followed.key.iter().map(|column| self.wanted[*column].order.clone()).collect() }
    }
}

/// Whether values of a type of the database sort as what they are in the job: '100' lies before '9', 100 does not.
fn keeps_order(kind: &str, declared: &DataType) -> bool {
    match kind {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" => {
            declared.is_integer() || declared.is_decimal() || *declared == DataType::Boolean
        }
        "date" | "datetime" | "timestamp" => matches!(declared, DataType::Date32 | DataType::Timestamp(..)),
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => declared.is_binary(),
        _ => declared.is_string(),
    }
}

impl Wanted {
    /// A column of this name, whose type and character set these are.
    fn of(name: &str, place: usize, result: &Column, kind: &str, type_text: &str, charset: &str) -> Result<Self, DbError> {
        let kind = kind.to_ascii_lowercase();
        let mut meaning = Meaning { unsigned: result.flags().contains(ColumnFlags::UNSIGNED_FLAG), ..Meaning::default() };
        let unread = |why: String| Err(DbError::fatal(format!("column '{name}': {why}; leave the column out")));
        match kind.as_str() {
            "json" => return unread("changes have JSON in a binary form that is not read here".into()),
            "enum" | "set" => meaning.labels = labels(type_text),
            "binary" => meaning.width = type_text.split_once('(').and_then(|(_, n)| n.trim_end_matches(')').parse().ok()),
            _ if matches!(charset, "" | "binary" | "ascii" | "utf8" | "utf8mb3" | "utf8mb4") => {}
            _ => match ENCODINGS.iter().find(|(ours, _)| *ours == charset).and_then(|(_, label)| Encoding::for_label(label.as_bytes())) {
                Some(encoding) => meaning.encoding = Some(encoding),
                None => return unread(format!("changes have text in the character set {charset}, which is not read here")),
            },
        }
        let column = quoted(name);
        let order = match kind.as_str() {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" | "date" | "datetime" | "timestamp" => Some(column),
            "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" | "set" => Some(bytes_of_text(&column)),
            "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Some(column),
            _ => None,
        };
        Ok(Wanted { place, kind, meaning, order })
    }

    /// Whether a value of this form is one of the column as the catalog has it.
    pub fn fits(&self, form: Form) -> bool {
        match self.kind.as_str() {
            "tinyint" => form == Form::Integer(1),
            "smallint" => form == Form::Integer(2),
            "mediumint" => form == Form::Integer(3),
            "int" => form == Form::Integer(4),
            "bigint" => form == Form::Integer(8),
            "float" => form == Form::Float,
            "double" => form == Form::Double,
            "decimal" => matches!(form, Form::Decimal(..)),
            "year" => form == Form::Year,
            "date" => form == Form::Date,
            "datetime" => matches!(form, Form::DateTime(_) | Form::OldDateTime),
            "timestamp" => matches!(form, Form::Timestamp(_) | Form::OldTimestamp),
            "time" => matches!(form, Form::Time(_) | Form::OldTime),
            "bit" => matches!(form, Form::Bit(_)),
            "enum" => matches!(form, Form::Enum(_)),
            "set" => matches!(form, Form::Set(_)),
            _ => matches!(form, Form::Bytes(_)),
        }
    }
}

/// The labels of a type such as `enum('a','it''s')`.
fn labels(type_text: &str) -> Vec<String> {
    let mut labels = Vec::new();
    let mut letters = type_text.chars().peekable();
    let mut label: Option<String> = None;
    while let Some(letter) = letters.next() {
        match (&mut label, letter) {
            (None, '\'') => label = Some(String::new()),
            (None, _) => {}
            (Some(text), '\'') if letters.peek() == Some(&'\'') => {
                letters.next();
                text.push('\'');
            }
            (Some(_), '\'') => labels.extend(label.take()),
            (Some(text), letter) => text.push(letter),
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read() {
        assert_eq!(labels("enum('a','it''s','','x,y')"), ["a", "it's", "", "x,y"]);
        assert!(labels("set()").is_empty());
    }

    #[test]
    fn keys_have_an_order() {
        let column = Column::new(::mysql::consts::ColumnType::MYSQL_TYPE_STRING);
        let order = |kind: &str, type_text: &str| Wanted::of("k", 0, &column, kind, type_text, "").unwrap().order;
        let labels = Some("CAST(CONVERT(`k` USING utf8mb4) AS BINARY)".to_string());
        assert_eq!(
            (order("varchar", "varchar(9)"), order("enum", "enum('b','a')"), order("set", "set('b','a')")),
            (labels.clone(), labels.clone(), labels)
        );
        assert_eq!((order("bigint", "bigint(20)"), order("double", "double")), (Some("`k`".into()), None));
        assert!(keeps_order("enum", &DataType::Utf8) && !keeps_order("enum", &DataType::Int32));
    }

    #[test]
    fn files_have_numbers() {
        assert_eq!(numbered("my.binlog.000042").unwrap(), ("my.binlog", 42));
        assert!(numbered("binlog").is_err() && numbered("binlog.index").is_err());
        let log = Log { server: "s".into(), base: "binlog".into() };
        assert_eq!((log.file(7), log.file(1_234_567)), ("binlog.000007".into(), "binlog.1234567".into()));
    }
}
