//! Rows by key. A few keys go in a list, by which the key's index is asked; more into a table of the session, with which
//! the table is joined: it is read once, whole columns at a time, which for a million rows takes some milliseconds.

use arrow::array::{Array, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, SchemaRef};

use super::bind::parameter;
use super::connection::{DuckConnection, fetch};
use super::error::db_error;
use super::ffi::Appender;
use super::fill::push;
use super::write::{LIST_KEYS, in_list, list_length};
use super::{DuckDialect, quoted, quoted_list};
use crate::driver::{Connection, DbError, Dialect, Target};

/// Kinds of keys that a session has tables for.
const KEY_TABLES: usize = 16;

impl DuckConnection {
    /// The rows of `target` whose columns equal a row of `keys`.
    ///
    /// # Errors
    /// Of the library; a value that does not fit.
    pub(super) fn look_up_keys(&mut self, target: &Target, keys: &RecordBatch, columns: &SchemaRef) -> Result<RecordBatch, DbError> {
        let table = DuckDialect.quote(&target.table);
        let wanted = quoted_list(columns.fields().iter().map(|f| f.name().as_str()), "t.");
        let schema = keys.schema();
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        match names.as_slice() {
            _ if keys.num_rows() == 0 => Ok(RecordBatch::new_empty(columns.clone())),
            [name] if keys.num_rows() <= LIST_KEYS => {
                let keys = keys.column(0);
                let length = list_length(keys.len());
                let sql = format!("SELECT {wanted} FROM {table} AS t WHERE t.{}", in_list(name, length));
                let mut parameters = Vec::with_capacity(length);
                for row in 0..length {
                    parameters.push(parameter(name, keys, row.min(keys.len() - 1))?);
                }
                let statement = self.statement(&sql)?;
                for (index, value) in parameters.into_iter().enumerate() {
                    statement.bind(index + 1, value).map_err(|e| db_error("", e))?;
                }
                collect(statement, columns)
            }
            names => {
                let key_table = self.key_table(keys)?;
                let on: Vec<String> = names.iter().enumerate().map(|(i, name)| format!("t.{} = k.k{i}", quoted(name))).collect();
                let sql = format!("SELECT {wanted} FROM {table} AS t JOIN temp.main.{key_table} AS k ON {}", on.join(" AND "));
                // The keys are gone when the transaction is rolled back.
                let own = !self.is_open();
                if own {
                    self.begin()?;
                }
                let found = self.join(&key_table, keys, &sql, columns);
                if own {
                    self.rollback()?;
                } else if found.is_ok() {
                    self.run("removing keys", &format!("DELETE FROM temp.main.{key_table}"))?;
                }
                found
            }
        }
    }

    fn join(&mut self, key_table: &str, keys: &RecordBatch, sql: &str, columns: &SchemaRef) -> Result<RecordBatch, DbError> {
        let names: Vec<String> = (0..keys.num_columns()).map(|i| format!("k{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let written = self.columns(&format!("temp.main.{key_table}"), &names)?;
        let appender = Appender::table(self.session(), &["temp", "main", key_table], &names).map_err(|e| db_error("keeping keys", e))?;
        push(self.session().api(), appender, &written, keys)?;
        collect(self.statement(sql)?, columns)
    }

    /// A table of this session for keys of these types.
    fn key_table(&mut self, keys: &RecordBatch) -> Result<String, DbError> {
        let types: Vec<DataType> = keys.columns().iter().map(|c| c.data_type().clone()).collect();
        if let Some((_, name)) = self.key_tables.iter().find(|(known, _)| *known == types) {
            return Ok(name.clone());
        }
        if self.key_tables.len() >= KEY_TABLES {
            return Err(DbError::fatal(format!("internal error: one connection looks up by more than {KEY_TABLES} kinds of keys")));
        }
        let name = format!("tidemill_keys_{}", self.key_tables.len());
        let mut columns = Vec::with_capacity(types.len());
        for (index, field) in keys.schema().fields().iter().enumerate() {
            columns.push(format!("k{index} {}", DuckDialect.column_type(field, false)?));
        }
        self.run("making a table for keys", &format!("CREATE TEMP TABLE {name} ({})", columns.join(", ")))?;
        self.key_tables.push((types, name.clone()));
        Ok(name)
    }
}

/// All rows of a statement.
fn collect(statement: &mut super::ffi::Statement, columns: &SchemaRef) -> Result<RecordBatch, DbError> {
    let mut answer = statement.run(false).map_err(|e| db_error("", e))?;
    let mut found = Vec::new();
    fetch(&mut answer, columns, usize::MAX, &mut |batch| {
        found.push(batch);
        Ok(())
    })?;
    Ok(concat_batches(columns, &found)?)
}
