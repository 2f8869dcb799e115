//! Changes of one table to rows of the job: which of them come, of which kind, and in which columns.

use arrow::datatypes::DataType;
use tidemill_block::RowKind;

use super::super::decode::{Reader, Rows};
use super::super::types::Form;
use super::catalog::Table;
use super::message::{Field, Message, Old, Parser, Relation};
use crate::cdc::feed::{BATCH_ROWS, Feed};
use crate::cdc::follow::Followed;
use crate::driver::DbError;

/// The rows of a table's changes.
pub(super) struct TableRows {
    followed: Followed,
    table: Table,
    /// Only new rows are wanted, and keys of those that are gone.
    upsert: bool,
    rows: Rows,
    parser: Parser,
    /// The table as changes now have it: its identifier, and where each column that is read is in its rows.
    current: Option<(u32, Vec<usize>)>,
}

/// Which row of a change is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Old,
    New,
}

impl TableRows {
    /// For a table as the catalog now has it.
    ///
    /// # Errors
    /// Types that do not go together, with advice.
    pub fn new(followed: &Followed, table: Table, upsert: bool) -> Result<Self, DbError> {
        let rows = Rows::new(followed.schema.clone(), readers(followed, &table)?, BATCH_ROWS);
        Ok(TableRows { followed: followed.clone(), table, upsert, rows, parser: Parser::default(), current: None })
    }

    /// Whether the rows should be handed on.
    pub fn full(&self) -> bool {
        self.rows.full()
    }

    /// Hands the rows on.
    ///
    /// # Errors
    /// A value that does not fit its column; nobody reads any more.
    pub fn flush(&mut self, feed: &mut Feed) -> Result<(), DbError> {
        let batch = self.rows.take()?;
        feed.flush(batch)
    }

    /// Takes a message.
    ///
    /// # Errors
    /// It is damaged; the table was changed or emptied; old rows are not there; a value does not fit.
    pub fn take(&mut self, data: &[u8], feed: &mut Feed) -> Result<(), DbError> {
        let message = self.parser.parse(data);
        let message = message.map_err(|why| DbError::connection(format!("the server's change log is damaged: a message {why}")))?;
        match message {
            Message::Relation(relation) => return self.relation(relation),
            Message::Truncate(tables) if self.current.as_ref().is_some_and(|(oid, _)| tables.contains(oid)) => {
                return Err(DbError::fatal(format!(
                    "table {} was emptied by TRUNCATE, which does not say which rows it had; start without the checkpoint",
                    self.followed.table
                )));
            }
            Message::Insert(oid) if self.is_ours(oid) && feed.wants() => {
                self.push(data, Which::New)?;
                feed.row(RowKind::Insert);
            }
            Message::Update(oid, old) if self.is_ours(oid) => self.update(data, old, feed)?,
            Message::Delete(oid, old) if self.is_ours(oid) => {
                if !self.upsert && old != Old::Whole {
                    return Err(self.no_old_rows());
                }
                if feed.wants() {
                    self.push(data, Which::Old)?;
                    feed.row(RowKind::Delete);
                }
            }
            _ => {}
        }
        if self.full() { self.flush(feed) } else { Ok(()) }
    }

    fn is_ours(&self, oid: u32) -> bool {
        self.current.as_ref().is_some_and(|(ours, _)| *ours == oid)
    }

    fn update(&mut self, data: &[u8], old: Old, feed: &mut Feed) -> Result<(), DbError> {
        // A row with another key is another row: who keeps rows by their keys would keep the old one.
        let moved = old != Old::None && self.key_changed(data);
        let mut kind = RowKind::UpdateAfter;
        if self.upsert {
            if moved && feed.wants() {
                self.push(data, Which::Old)?;
                feed.row(RowKind::Delete);
            }
        } else {
            if old != Old::Whole {
                return Err(self.no_old_rows());
            }
            if feed.wants() {
                self.push(data, Which::Old)?;
                feed.row(if moved { RowKind::Delete } else { RowKind::UpdateBefore });
            }
            if moved {
                kind = RowKind::Insert;
            }
        }
        if feed.wants() {
            self.push(data, Which::New)?;
            feed.row(kind);
        }
        Ok(())
    }

    /// Whether old and new row of the last message have different keys.
    fn key_changed(&self, data: &[u8]) -> bool {
        let Some((_, places)) = &self.current else { return false };
        let bytes = |field: Option<&Field>| match field {
            Some(Field::Binary(from, to) | Field::Text(from, to)) => Some(&data[*from..*to]),
            _ => None,
        };
        self.followed.key.iter().any(|column| {
            let at = places[*column];
            // A key that was too large to be sent again was not changed.
            self.parser.new.get(at) != Some(&Field::Unchanged) && bytes(self.parser.old.get(at)) != bytes(self.parser.new.get(at))
        })
    }

    /// Appends the old or the new row of the last message.
    #[inline]
    fn push(&mut self, data: &[u8], which: Which) -> Result<(), DbError> {
        let Some((_, places)) = &self.current else { return Ok(()) };
        let (old, new) = (&self.parser.old, &self.parser.new);
        let fields = if which == Which::Old { old } else { new };
        let followed = &self.followed;
        self.rows.push(|column| {
            let at = places[column];
            let cut = || DbError::connection("the server's change log is damaged: a row has fewer columns than its table");
            let mut field = fields.get(at).ok_or_else(cut)?;
            if *field == Field::Unchanged
                && let Some(before) = old.get(at).filter(|f| matches!(f, Field::Binary(..) | Field::Text(..)))
            {
                field = before;
            }
            match field {
                Field::Null => Ok(None),
                Field::Binary(from, to) => Ok(Some(&data[*from..*to])),
                Field::Text(from, to) if *followed.schema.field(column).data_type() == DataType::Utf8 => Ok(Some(&data[*from..*to])),
                Field::Text(..) => {
                    Err(DbError::fatal(format!("column '{}': the server has no binary form of its type", followed.name(column))))
                }
                Field::Unchanged => Err(DbError::fatal(format!(
                    "column '{}': a large value that an update left as it was is not sent; run ALTER TABLE {} REPLICA IDENTITY FULL, \
                     then start \
                     without the checkpoint, or leave the column out",
                    followed.name(column),
                    followed.table
                ))),
            }
        })
    }

    fn no_old_rows(&self) -> DbError {
        DbError::fatal(format!(
            "table {}: the log does not hold old rows; run ALTER TABLE {} REPLICA IDENTITY FULL, then start without the checkpoint, or use \
             'changelog-mode' = 'upsert'",
            self.followed.table, self.followed.table
        ))
    }

    /// Takes in how a table looks from here on.
    fn relation(&mut self, relation: Relation) -> Result<(), DbError> {
        let changed = |why: String| {
            DbError::fatal(format!("table {} was changed: {why}; declare it anew and start without the checkpoint", self.followed.table))
        };
        if relation.name != self.table.name || relation.schema != self.table.schema {
            if relation.oid == self.table.oid {
                return Err(changed(format!("its log calls it {}.{}", relation.schema, relation.name)));
            }
            return Ok(());
        }
        let mut places = Vec::with_capacity(self.followed.schema.fields().len());
        for (index, field) in self.followed.schema.fields().iter().enumerate() {
            let place = relation.columns.iter().position(|c| c.name == *field.name());
            let place = place.ok_or_else(|| changed(format!("there is no column '{}' in its log", field.name())))?;
            let column = &relation.columns[place];
            let known = self.table.column(field.name())?;
            if known.oid != column.oid {
                return Err(changed(format!("column '{}' has another type, {}, than its log has", field.name(), known.described.declared)));
            }
            if self.upsert && self.followed.key.contains(&index) && !column.key && relation.identity != b'f' {
                return Err(DbError::fatal(format!(
                    "table {}: column '{}' of the job's PRIMARY KEY is not of the table's replica identity, so deletes do not have it; \
                     make it \
                     part of the table's primary key, or run ALTER TABLE {} REPLICA IDENTITY FULL",
                    self.followed.table,
                    field.name(),
                    self.followed.table
                )));
            }
            places.push(place);
        }
        self.current = Some((relation.oid, places));
        Ok(())
    }
}

/// What makes columns of fields.
///
/// # Errors
/// Types that do not go together, with advice.
pub(super) fn readers(followed: &Followed, table: &Table) -> Result<Vec<Reader>, DbError> {
    let reader = |field: &arrow::datatypes::FieldRef| {
        let column = table.column(field.name())?;
        let shape = column.described.shape;
        if shape.form == Form::Other {
            return Err(DbError::fatal(format!(
                "column '{}': values of type {} have no form in the change log that is read here; leave the column out",
                field.name(),
                column.described.declared
            )));
        }
        Reader::new(field, shape, &column.described.declared)
    };
    followed.schema.fields().iter().map(reader).collect()
}

#[cfg(test)]
mod tests;
