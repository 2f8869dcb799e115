//! Rows into a table: `LOAD DATA LOCAL INFILE` from the columns, or lists of `VALUES`.
//!
//! Loading from the client is "as with IGNORE": duplicates are left out, values are fitted, and both are
//! warnings. So warnings are errors here, and the number of rows is compared.

use std::io::Write;
use std::sync::Arc;

use ::mysql::LocalInfileHandler;
use arrow::array::RecordBatch;
use arrow::datatypes::DataType;

use super::connection::{Checked, MysqlConnection};
use super::dialect::{MysqlDialect, quoted, quoted_list};
use super::encode::{Prepared, lines, values};
use super::error::local_infile_is_off;
use super::table::Kind;
use crate::driver::{DbError, Dialect, Target};

/// Fewer rows go in by one INSERT statement: one round trip instead of two.
const LOAD_ROWS_MIN: usize = 200;
/// Rows are encoded in pieces of so many bytes, while the server reads the piece before.
const PIECE_BYTES: usize = 64 << 10;
/// An INSERT statement ends behind so many bytes or rows; more makes it no faster.
const INSERT_BYTES: usize = 256 << 10;
const INSERT_ROWS: usize = 2_000;

impl MysqlConnection {
    /// Inserts rows.
    ///
    /// # Errors
    /// Of the server; [`Data`](crate::driver::DbErrorKind::Data) if it refuses a row.
    pub(super) fn append_rows(&mut self, target: &Target, rows: &RecordBatch) -> Result<(), DbError> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let checked = self.checked(target, rows)?;
        self.put(&MysqlDialect.quote(&target.table), &checked)
    }

    /// Puts rows into a table (its name quoted) by the way that is fastest for so many.
    ///
    /// # Errors
    /// As [`MysqlConnection::append_rows`].
    pub(super) fn put(&mut self, table: &str, checked: &Checked) -> Result<(), DbError> {
        if checked.rows.rows < LOAD_ROWS_MIN || !self.abilities.local_infile() || !self.load(table, checked)? {
            self.insert(table, checked, "")?;
        }
        Ok(())
    }

    /// Loads rows; false, and nothing done, if the server does not allow it.
    fn load(&mut self, table: &str, checked: &Checked) -> Result<bool, DbError> {
        let doing = format!("loading rows into {table}");
        self.usable()?;
        let statement = load_statement(table, checked);
        self.conn.set_local_infile_handler(Some(lines_of(checked.rows.clone())));
        let result = self.run(&statement);
        // A server may ask for a file whenever it likes; it gets none but this.
        self.conn.set_local_infile_handler(None);
        let done = match result {
            Err(e) if local_infile_is_off(&e) => {
                self.abilities.no_local_infile();
                return Ok(false);
            }
            Err(e) => return Err(self.refused(&doing, &e, checked, 0)),
            Ok(done) => done,
        };
        self.complaints(&doing, &done, checked, 0)?;
        let expected = checked.rows.rows as u64;
        if done.affected != expected {
            return Err(DbError::data(format!("{doing}: of {expected} rows the server took {}", done.affected)));
        }
        Ok(true)
    }

    /// Inserts rows by lists of values; `behind` is what the statement says behind each list.
    ///
    /// # Errors
    /// As [`MysqlConnection::append_rows`].
    pub(super) fn insert(&mut self, table: &str, checked: &Checked, behind: &str) -> Result<(), DbError> {
        let doing = format!("inserting rows into {table}");
        let begin = format!("INSERT INTO {table} ({}) VALUES ", quoted_list(checked.names(), ""));
        let rows = checked.rows.clone();
        let mut cells = rows.cells();
        let mut buffer = Vec::with_capacity(INSERT_BYTES.min(rows.rows * 256));
        let mut first = 0;
        while first < rows.rows {
            buffer.clear();
            buffer.extend_from_slice(begin.as_bytes());
            let next = values(&mut cells, first, rows.rows, INSERT_ROWS, INSERT_BYTES, &mut buffer);
            buffer.extend_from_slice(behind.as_bytes());
            let statement = String::from_utf8(buffer).map_err(|_| DbError::fatal(format!("{doing}: a statement is no UTF-8")))?;
            self.usable()?;
            let done = match self.run(&statement) {
                Ok(done) => done,
                Err(e) => return Err(self.refused(&doing, &e, checked, first)),
            };
            self.complaints(&doing, &done, checked, first)?;
            buffer = statement.into_bytes();
            first = next;
        }
        Ok(())
    }
}

/// What answers the server's question for the file: the rows, encoded while they are sent.
fn lines_of(rows: Arc<Prepared>) -> LocalInfileHandler {
    LocalInfileHandler::new(move |_name, out| {
        let mut cells = rows.cells();
        let mut buffer = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 8);
        let mut row = 0;
        while row < rows.rows {
            buffer.clear();
            row = lines(&mut cells, row, rows.rows, PIECE_BYTES, &mut buffer);
            out.write_all(&buffer)?;
        }
        Ok(())
    })
}

/// The statement that loads rows: bytes come in hexadecimal, and numbers for BIT as numbers.
fn load_statement(table: &str, checked: &Checked) -> String {
    let mut fields = Vec::with_capacity(checked.columns.len());
    let mut set = Vec::new();
    for (i, (column, array)) in checked.columns().zip(&checked.rows.arrays).enumerate() {
        let name = quoted(&column.name);
        match array.data_type() {
            DataType::Binary => set.push(format!("{name} = UNHEX(@t{i})")),
            DataType::Utf8 => {
                fields.push(name);
                continue;
            }
            _ if column.kind == Kind::Bit => set.push(format!("{name} = CAST(@t{i} AS UNSIGNED)")),
            _ => {
                fields.push(name);
                continue;
            }
        }
        fields.push(format!("@t{i}"));
    }
    let set = if set.is_empty() { String::new() } else { format!(" SET {}", set.join(", ")) };
    format!(
        "LOAD DATA LOCAL INFILE 'rows' INTO TABLE {table} CHARACTER SET utf8mb4 \
         FIELDS TERMINATED BY '\\t' ENCLOSED BY '' ESCAPED BY '\\\\' LINES STARTING BY '' TERMINATED BY '\\n' ({}){set}",
        fields.join(", ")
    )
}

#[cfg(test)]
mod tests;
