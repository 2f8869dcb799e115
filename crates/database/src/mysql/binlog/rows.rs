//! Row images of one table to rows of the job.

use ::mysql::Value;
use ::mysql::binlog::events::{RowsEventData, TableMapEvent};
use tidemill_block::RowKind;

use super::super::read::Columns;
use super::catalog::Table;
use super::value::Form;
use crate::cdc::feed::{BATCH_ROWS, Feed};
use crate::cdc::follow::Followed;
use crate::driver::DbError;

/// Bytes of row images after which a batch is handed on, however few rows it has.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// The rows of a table's changes.
pub(super) struct TableRows {
    followed: Followed,
    table: Table,
    columns: Columns,
    /// The bytes that the columns were made of.
    bytes: usize,
    /// The number that the log now has for the table, and the forms of all its columns.
    current: Option<(u64, Vec<Form>)>,
    /// For each column of the table, which of those that are read it is.
    read: Vec<Option<usize>>,
    /// Whether each column of the table is of the key.
    of_key: Vec<bool>,
    /// The key's bytes in the old and the new image of an update.
    keys: [Vec<u8>; 2],
    /// A row under construction.
    values: Vec<Option<Value>>,
    /// The open transaction has changed the table.
    changed: bool,
}

/// Which columns a row image has.
type Used = Vec<bool>;

impl TableRows {
    /// For a table as the catalog now has it.
    ///
    /// # Errors
    /// A type that no value of MySQL goes into.
    pub fn new(followed: &Followed, table: Table) -> Result<Self, DbError> {
        let mut read = vec![None; table.width];
        for (column, wanted) in table.wanted.iter().enumerate() {
            read[wanted.place] = Some(column);
        }
        let mut of_key = vec![false; table.width];
        for column in &followed.key {
            of_key[table.wanted[*column].place] = true;
        }
        Ok(TableRows {
            columns: Columns::new(&followed.schema)?,
            followed: followed.clone(),
            values: vec![None; table.wanted.len()],
            table,
            bytes: 0,
            current: None,
            read,
            of_key,
            keys: [Vec::new(), Vec::new()],
            changed: false,
        })
    }

    /// The table as it was when it was looked at.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Whether rows of this number are the table's.
    pub fn is_ours(&self, table_id: u64) -> bool {
        self.current.as_ref().is_some_and(|(ours, _)| *ours == table_id)
    }

    /// Whether the open transaction has changed the table.
    pub fn in_transaction(&self) -> bool {
        self.changed
    }

    /// The transaction ends.
    pub fn end(&mut self) {
        self.changed = false;
    }

    /// Hands the rows on.
    ///
    /// # Errors
    /// Text that is no JSON of the column's type; nobody reads any more.
    pub fn flush(&mut self, feed: &mut Feed) -> Result<(), DbError> {
        self.bytes = 0;
        let batch = self.columns.take()?;
        feed.flush(batch)
    }

    /// Hands on the rows of transactions that have ended, and drops those of the open one, which will not.
    ///
    /// # Errors
    /// Those of [`TableRows::flush`]; rows of the open transaction were handed on before.
    pub fn flush_committed(&mut self, feed: &mut Feed) -> Result<(), DbError> {
        let committed = feed.abandon()?;
        (self.bytes, self.changed) = (0, false);
        let batch = self.columns.take()?.slice(0, committed);
        feed.flush(batch)
    }

    /// Takes in how a table looks in the events that follow.
    ///
    /// # Errors
    /// It is ours, and another than the catalog has.
    pub fn map(&mut self, map: &TableMapEvent<'_>) -> Result<(), DbError> {
        let named = |raw: &str, name: &str| raw == name || raw.to_lowercase() == name.to_lowercase();
        if !named(&map.table_name(), &self.table.name) || !named(&map.database_name(), &self.table.database) {
            if self.is_ours(map.table_id()) {
                self.current = None;
            }
            return Ok(());
        }
        if self.is_ours(map.table_id()) {
            return Ok(());
        }
        let width = map.columns_count() as usize;
        if width != self.table.width {
            return Err(self.altered(&format!("it has {} columns, its log {width}", self.table.width)));
        }
        let mut forms = Vec::with_capacity(width);
        for index in 0..width {
            let kind = map.get_column_type(index).ok().flatten();
            let form = kind.and_then(|kind| Form::of(kind, map.get_column_metadata(index).unwrap_or_default()));
            forms.push(form.ok_or_else(|| self.altered(&format!("column {} is of a type that is not known here", index + 1)))?);
        }
        for (wanted, field) in self.table.wanted.iter().zip(self.followed.schema.fields()) {
            if !wanted.fits(forms[wanted.place]) {
                return Err(self.altered(&format!("column '{}' is of another type, {}, than in its log", field.name(), wanted.kind)));
            }
        }
        self.current = Some((map.table_id(), forms));
        Ok(())
    }

    fn altered(&self, why: &str) -> DbError {
        DbError::fatal(format!("table {} was changed: {why}; start without the checkpoint", self.followed.table))
    }

    /// Takes the rows of an event.
    ///
    /// # Errors
    /// It is damaged; row images are not whole; a value does not fit; nobody reads any more.
    pub fn take(&mut self, event: &RowsEventData<'_>, feed: &mut Feed) -> Result<(), DbError> {
        if let RowsEventData::PartialUpdateRowsEvent(_) = event {
            return Err(DbError::fatal(format!(
                "table {}: updates log parts of JSON; set binlog_row_value_options = '' on the server, and start without the checkpoint",
                self.followed.table
            )));
        }
        self.changed = true;
        let before: Option<Used> = event.columns_before_image().map(|bits| bits.iter().by_vals().collect());
        let after: Option<Used> = event.columns_after_image().map(|bits| bits.iter().by_vals().collect());
        self.rows(event.rows_data(), before.as_deref(), after.as_deref(), feed)
    }

    /// Takes rows of images: old ones have the columns of `before`, new ones those of `after`.
    fn rows(&mut self, mut data: &[u8], before: Option<&[bool]>, after: Option<&[bool]>, feed: &mut Feed) -> Result<(), DbError> {
        let update = before.is_some() && after.is_some();
        while !data.is_empty() {
            let length = data.len();
            self.keys.iter_mut().for_each(Vec::clear);
            let old = match before {
                Some(used) => self.image(&mut data, used, update.then_some(0), feed)?,
                None => false,
            };
            let new = match after {
                Some(used) => self.image(&mut data, used, update.then_some(1), feed)?,
                None => false,
            };
            // A row with another key is another row: who keeps rows by their keys would keep the old one.
            let stays = update && self.keys[0] == self.keys[1];
            if old {
                feed.row(if stays { RowKind::UpdateBefore } else { RowKind::Delete });
            }
            if new {
                feed.row(if stays { RowKind::UpdateAfter } else { RowKind::Insert });
            }
            if data.len() == length {
                return Err(self.damaged());
            }
            self.bytes += length - data.len();
            if self.columns.rows() >= BATCH_ROWS || self.bytes >= BATCH_BYTES_MAX {
                self.flush(feed)?;
            }
        }
        Ok(())
    }

    /// Takes one row image from the front of `data`, and its key's bytes into that one of `keys`; whether it was put into the
    /// columns.
    fn image(&mut self, data: &mut &[u8], used: &[bool], key: Option<usize>, feed: &mut Feed) -> Result<bool, DbError> {
        let Some((_, forms)) = &self.current else { return Err(self.damaged()) };
        if used.len() != forms.len() {
            return Err(self.damaged());
        }
        // A bit for each column that is there: whether it is NULL.
        let there = used.iter().filter(|used| **used).count();
        let Some((nulls, rest)) = data.split_at_checked(there.div_ceil(8)) else { return Err(self.damaged()) };
        *data = rest;
        let wanted = feed.wants();
        let mut bit = 0;
        for (index, form) in forms.iter().enumerate() {
            let read = self.read[index];
            if !used[index] {
                if read.is_some() {
                    return Err(DbError::fatal(format!(
                        "table {}: rows are not logged as a whole; set binlog_row_image = FULL on the server, for sessions too, and \
                         start without \
                         the checkpoint",
                        self.followed.table
                    )));
                }
                continue;
            }
            let null = nulls[bit / 8] >> (bit % 8) & 1 == 1;
            bit += 1;
            let bytes = if null {
                None
            } else {
                match form.take(data) {
                    Some(bytes) => Some(bytes),
                    None => return Err(self.damaged()),
                }
            };
            if let (Some(key), true) = (key, self.of_key[index]) {
                // Lengths say where values end, and tell NULL from what is empty.
                let (length, bytes) = bytes.map_or((usize::MAX, &[][..]), |bytes| (bytes.len(), bytes));
                self.keys[key].extend_from_slice(&length.to_le_bytes());
                self.keys[key].extend_from_slice(bytes);
            }
            let Some(column) = read.filter(|_| wanted) else { continue };
            self.values[column] = Some(match bytes {
                None => Value::NULL,
                Some(bytes) => form
                    .value(bytes, &self.table.wanted[column].meaning)
                    .map_err(|why| DbError::data(format!("column '{}': a value in the log: {why}", self.followed.name(column))))?,
            });
        }
        if wanted {
            self.columns.push(&self.values, &self.table.described)?;
        }
        Ok(wanted)
    }

    fn damaged(&self) -> DbError {
        DbError::connection(format!("the log of table {} is damaged: a row of another form than its table", self.followed.table))
    }
}

#[cfg(test)]
mod tests;
