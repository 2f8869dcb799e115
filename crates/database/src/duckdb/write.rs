//! Rows into tables, out of them, or in the place of others: each by one statement, or none.
//!
//! Appending goes to the table without a statement. The others read their rows from an appender of their own, as a
//! table that nobody else sees: no temporary table is made, filled and dropped. Upserts go by the key's index where
//! there is one; `MERGE`, which joins, serves tables that have none.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};

use super::bind::parameter;
use super::connection::DuckConnection;
use super::error::db_error;
use super::ffi::{Appender, LogicalType};
use super::fill::{Column, push};
use super::replay::Change;
use super::{DuckDialect, quoted, quoted_list};
use crate::driver::{Connection, DbError, Dialect, Target};

/// The rows' name in statements.
const ROWS: &str = "tidemill_rows";
/// Most keys in a list. So few are found by their index; for more the table is read once.
pub const LIST_KEYS: usize = 64;

impl DuckConnection {
    /// Does something with rows.
    ///
    /// # Errors
    /// Of the library; a value or row that is refused.
    pub(super) fn perform(&mut self, change: Change, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        let table = DuckDialect.quote(&target.table);
        let schema = rows.schema();
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        match change {
            Change::Append => {
                let doing = || format!("inserting into '{}'", target.table);
                let columns = self.columns(&table, &names).map_err(|e| e.at(doing()))?;
                let parts: Vec<&str> = target.table.split('.').collect();
                let written = self.names_there(&target.table, &names).map_err(|e| e.at(doing()))?;
                let written: Vec<&str> = written.iter().map(String::as_str).collect();
                let appender = Appender::table(self.session(), &parts, &written).map_err(|e| db_error(&doing(), e))?;
                push(self.session().api(), appender, &columns, rows).map_err(|e| e.at(doing()))
            }
            Change::Upsert => {
                let sql = if self.has_unique_key(&table, target) { upsert(&table, target) } else { merge(&table, target) };
                self.by_statement(&format!("inserting or updating rows of '{}'", target.table), &table, &sql, &names, rows)
            }
            Change::Delete => {
                let doing = format!("deleting from '{}'", target.table);
                match names.as_slice() {
                    [name] if rows.num_rows() <= LIST_KEYS => self.delete_list(&doing, &table, name, rows),
                    names => self.by_statement(&doing, &table, &delete(&table, names), names, rows),
                }
            }
        }
    }

    /// The names of columns as the table has them: case does not matter in statements, but to an appender.
    fn names_there(&mut self, table: &str, names: &[&str]) -> Result<Arc<Vec<String>>, DbError> {
        let key = format!("{table} {}", quoted_list(names.iter().copied(), ""));
        if let Some(known) = self.names.get(&key) {
            return Ok(known.clone());
        }
        let there = self.table_columns(table)?.unwrap_or_default();
        let of = |name: &&str| {
            let same = there.iter().find(|(column, _)| column.eq_ignore_ascii_case(name));
            same.map_or_else(|| name.to_string(), |(column, _)| column.clone())
        };
        let found: Arc<Vec<String>> = Arc::new(names.iter().map(of).collect());
        self.names.insert(key, found.clone());
        Ok(found)
    }

    fn by_statement(&mut self, doing: &str, table: &str, sql: &str, names: &[&str], rows: &RecordBatch) -> Result<(), DbError> {
        let columns = self.columns(table, names).map_err(|e| e.at(doing))?;
        let typed: Vec<(&str, &LogicalType)> = columns.iter().map(|c: &Column| (c.name.as_str(), &c.written)).collect();
        let appender = Appender::statement(self.session(), sql, ROWS, &typed).map_err(|e| db_error(doing, e))?;
        push(self.session().api(), appender, &columns, rows).map_err(|e| e.at(doing))
    }

    fn delete_list(&mut self, doing: &str, table: &str, name: &str, keys: &RecordBatch) -> Result<(), DbError> {
        let keys = keys.column(0);
        let mut parameters = Vec::with_capacity(LIST_KEYS);
        for row in 0..list_length(keys.len()) {
            parameters.push(parameter(name, keys, row.min(keys.len() - 1))?);
        }
        let sql = format!("DELETE FROM {table} WHERE {}", in_list(name, parameters.len()));
        let statement = self.statement(&sql).map_err(|e| e.at(doing))?;
        for (index, value) in parameters.into_iter().enumerate() {
            statement.bind(index + 1, value).map_err(|e| db_error(doing, e))?;
        }
        statement.run(false).map(drop).map_err(|e| db_error(doing, e))
    }

    /// Whether the table has an index over the key that conflicts are found by.
    fn has_unique_key(&mut self, table: &str, target: &Target) -> bool {
        let key = quoted_list(target.key_names(), "");
        let probe = format!("INSERT INTO {table} ({key}) SELECT {key} FROM {table} LIMIT 0 ON CONFLICT ({key}) DO NOTHING");
        if let Some(known) = self.unique_keys.get(&probe) {
            return *known;
        }
        let found = self.session().prepare(&probe).is_ok();
        self.unique_keys.insert(probe, found);
        found
    }
}

/// How many values a list for so many keys has: a power of two, so that a few statements serve all.
pub fn list_length(keys: usize) -> usize {
    keys.next_power_of_two()
}

/// `"k" IN (?, ?)`.
pub fn in_list(name: &str, length: usize) -> String {
    format!("{} IN ({})", quoted(name), vec!["?"; length].join(", "))
}

/// `t."a" = r."a" AND …`.
fn equal<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("t.{0} = r.{0}", quoted(name))).collect::<Vec<_>>().join(" AND ")
}

/// All columns of a target.
fn all(target: &Target) -> Vec<&str> {
    target.schema.fields().iter().map(|f| f.name().as_str()).collect()
}

/// `a = prefix.a, …` for the columns that are not of the key.
fn assignments(target: &Target, prefix: &str) -> String {
    let values = target.value_columns();
    let names = values.iter().map(|i| quoted(target.schema.field(*i).name()));
    names.map(|name| format!("{name} = {prefix}.{name}")).collect::<Vec<_>>().join(", ")
}

fn upsert(table: &str, target: &Target) -> String {
    let names = quoted_list(all(target), "");
    let set = assignments(target, "excluded");
    let then = if set.is_empty() { "NOTHING".to_string() } else { format!("UPDATE SET {set}") };
    let key = quoted_list(target.key_names(), "");
    format!("INSERT INTO {table} ({names}) SELECT {names} FROM {ROWS} ON CONFLICT ({key}) DO {then}")
}

fn merge(table: &str, target: &Target) -> String {
    let set = assignments(target, "r");
    let matched = if set.is_empty() { String::new() } else { format!(" WHEN MATCHED THEN UPDATE SET {set}") };
    let (names, values) = (quoted_list(all(target), ""), quoted_list(all(target), "r."));
    let on = equal(target.key_names());
    format!("MERGE INTO {table} AS t USING {ROWS} AS r ON {on}{matched} WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})")
}

fn delete(table: &str, names: &[&str]) -> String {
    format!("DELETE FROM {table} AS t USING {ROWS} AS r WHERE {}", equal(names.iter().copied()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn target(names: &[&str], key: Vec<usize>) -> Target {
        let fields: Vec<Field> = names.iter().map(|name| Field::new(*name, DataType::Int64, true)).collect();
        Target { table: "s.t".into(), schema: Arc::new(Schema::new(fields)), key }
    }

    #[test]
    fn statements_read_their_rows() {
        let table = DuckDialect.quote("s.t");
        let target_of_three = target(&["a", "b", "c\"d"], vec![0, 1]);
        assert_eq!(
            upsert(&table, &target_of_three),
            "INSERT INTO \"s\".\"t\" (\"a\", \"b\", \"c\"\"d\") SELECT \"a\", \"b\", \"c\"\"d\" FROM tidemill_rows \
             ON CONFLICT (\"a\", \"b\") DO UPDATE SET \"c\"\"d\" = excluded.\"c\"\"d\""
        );
        assert_eq!(
            merge(&table, &target(&["a", "b"], vec![0])),
            "MERGE INTO \"s\".\"t\" AS t USING tidemill_rows AS r ON t.\"a\" = r.\"a\" WHEN MATCHED THEN UPDATE SET \"b\" = r.\"b\" \
             WHEN NOT MATCHED THEN INSERT (\"a\", \"b\") VALUES (r.\"a\", r.\"b\")"
        );
        assert!(upsert(&table, &target(&["a"], vec![0])).ends_with("ON CONFLICT (\"a\") DO NOTHING"));
        assert_eq!(
            delete(&table, &["a", "b"]),
            "DELETE FROM \"s\".\"t\" AS t USING tidemill_rows AS r WHERE t.\"a\" = r.\"a\" AND t.\"b\" = r.\"b\""
        );
        assert_eq!((in_list("a", 2), list_length(5)), ("\"a\" IN (?, ?)".into(), 8));
    }
}
