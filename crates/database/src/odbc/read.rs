//! Results as columns. A value is what its column's type says or an error, never something near it.

mod build;
mod parse;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, SchemaRef, TimeUnit};
use tidemill_format::types::{plain_type, type_name};

use self::build::Builder;
use super::column::{Column, Kind};
use super::error::db_error;
use super::ffi::{Cursor, Failure, Fetched, Form, NO_TOTAL, NULL_DATA, Place, Statement};
use super::system::System;
use crate::driver::{DbError, DbErrorKind};

/// Bytes of a block of rows.
const BLOCK_BYTES: usize = 4 << 20;
/// Rows of a block.
const BLOCK_ROWS: usize = 4096;
/// Bytes for digits, dates and times as text: a decimal has 38 digits, a sign and a point.
const DIGITS_BYTES: usize = 64;
/// Characters of texts, and bytes, that are bound, if the driver's sizes can be trusted; longer ones are long.
const BOUND_LENGTH: usize = 4000;
/// The same for PostgreSQL's driver, whose sizes cannot: longer ones are asked for again.
const FIRST_BYTES: usize = 512;

/// How a column of a result becomes one of a batch.
struct Target {
    field: FieldRef,
    builder: Builder,
    place: Place,
    /// What is longer than its place is asked for again, as this driver allows.
    asks_again: bool,
    kind: Kind,
}

/// Reads the result of a statement that was executed; `piece` gets batches of at most `rows` rows.
///
/// # Errors
/// Of the driver, of conversion (column and value), of `piece`.
pub(super) fn read(
    statement: &mut Statement,
    system: System,
    schema: &SchemaRef,
    rows: usize,
    piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
) -> Result<(), DbError> {
    let failed = |e: Failure| db_error("reading the result", &e, system);
    let found = statement.columns().map_err(failed)?;
    if found.len() != schema.fields().len() {
        let (found, wanted) = (found.len(), schema.fields().len());
        return Err(DbError::fatal(format!("the result has {found} columns, and {wanted} are expected")));
    }
    let mut targets = Vec::with_capacity(found.len());
    for (described, field) in found.into_iter().zip(schema.fields()) {
        targets.push(Target::new(field, &Column::of(described, system), system)?);
    }
    let places: Vec<Place> = targets.iter().map(|t| t.place).collect();
    let width: usize = places.iter().map(|p| p.width + size_of::<isize>()).sum();
    let block_rows = (BLOCK_BYTES / width.max(1)).clamp(1, BLOCK_ROWS).min(rows.max(1));
    let mut cursor = Cursor::open(statement, &places, block_rows).map_err(failed)?;
    let most = rows.max(1).saturating_sub(cursor.block_rows());
    let mut count = 0;
    loop {
        let fetched = cursor.fetch().map_err(failed)?;
        if fetched == 0 {
            break;
        }
        for (index, target) in targets.iter_mut().enumerate() {
            target.take(&mut cursor, index, fetched, system)?;
        }
        count += fetched;
        if count > most {
            piece(batch(schema, &mut targets, count)?)?;
            count = 0;
        }
    }
    if count > 0 { piece(batch(schema, &mut targets, count)?) } else { Ok(()) }
}

fn batch(schema: &SchemaRef, targets: &mut [Target], rows: usize) -> Result<RecordBatch, DbError> {
    let arrays = targets.iter_mut().map(|target| target.builder.finish(target.field.data_type())).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?)
}

impl Target {
    fn new(field: &FieldRef, column: &Column, system: System) -> Result<Self, DbError> {
        let builder = Builder::new(field.data_type());
        let (Some(builder), Some(place)) = (builder, place(field, column, system)) else {
            return Err(DbError::fatal(format!(
                "column '{}': {} of the database is not read as {}; cast it in a view",
                field.name(),
                column.type_text,
                type_name(field.data_type())
            )));
        };
        Ok(Target { field: field.clone(), builder, place, asks_again: system == System::Postgres, kind: column.kind })
    }

    /// Appends the rows of a block.
    fn take(&mut self, cursor: &mut Cursor<'_>, index: usize, rows: usize, system: System) -> Result<(), DbError> {
        let room = cursor.room(index);
        let cut = |length: isize| length == NO_TOTAL || usize::try_from(length).is_ok_and(|length| length > room);
        let mut whole: Vec<(usize, Option<Vec<u8>>)> = Vec::new();
        if self.place.form.width().is_none() {
            let too_long: Vec<usize> = (0..rows).filter(|row| cut(cursor.lengths(index)[*row])).collect();
            if !too_long.is_empty() && !self.asks_again {
                return Err(self.wrong(format_args!(
                    "a value is longer than the {} bytes that the driver announced; cast the column in a view",
                    room
                )));
            }
            for row in too_long {
                let value = cursor.whole(index, row).map_err(|e| db_error("reading a long value", &e, system))?;
                whole.push((row, value.map(<[u8]>::to_vec)));
            }
        }
        let lengths = &cursor.lengths(index)[..rows];
        if !self.field.is_nullable() && lengths.contains(&NULL_DATA) {
            return Err(self.wrong("it is NOT NULL, and the database has a NULL there"));
        }
        let guid = self.kind == Kind::Guid;
        let builder = &mut self.builder;
        let taken = match cursor.values(index) {
            Fetched::I64(values) => each(values, lengths, |v| builder.integer(v.map(|v| i128::from(*v)))),
            Fetched::U64(values) => each(values, lengths, |v| builder.integer(v.map(|v| i128::from(*v)))),
            Fetched::F64(values) => each(values, lengths, |v| builder.double(v.copied())),
            Fetched::Date(values) => each(values, lengths, |v| builder.date(v.copied())),
            Fetched::Timestamp(values) => each(values, lengths, |v| builder.timestamp(v.copied())),
            Fetched::Long(value) => builder.bytes(self.place.form, (lengths[0] != NULL_DATA).then_some(value), guid),
            Fetched::Bytes(bytes, width) => {
                let (form, mut others) = (self.place.form, whole.iter().peekable());
                lengths.iter().enumerate().try_for_each(|(row, length)| {
                    let value = match others.next_if(|other| other.0 == row) {
                        Some((_, value)) => value.as_deref(),
                        None if *length == NULL_DATA => None,
                        None => Some(&bytes[row * width..row * width + usize::try_from(*length).unwrap_or(0)]),
                    };
                    builder.bytes(form, value, guid)
                })
            }
        };
        taken.map_err(|why| self.wrong(why))
    }

    fn wrong(&self, why: impl std::fmt::Display) -> DbError {
        DbError::new(DbErrorKind::Data, format!("column '{}': {why}", self.field.name()))
    }
}

/// Hands values on, NULLs as such.
fn each<T>(values: &[T], lengths: &[isize], mut to: impl FnMut(Option<&T>) -> Result<(), String>) -> Result<(), String> {
    values.iter().zip(lengths).try_for_each(|(value, length)| to((*length != NULL_DATA).then_some(value)))
}

/// How values of a column are fetched for one of the job; `None` if they have nothing in common.
fn place(field: &Field, column: &Column, system: System) -> Option<Place> {
    let digits = Some(Place::up_to(Form::Char, DIGITS_BYTES));
    let plain = |form: Form| Some(Place::plain(form));
    // PostgreSQL's driver makes other days of those that it cannot hold; of its texts such are no dates.
    let time = |form: Form| if system == System::Postgres { digits } else { plain(form) };
    match (plain_type(field.data_type()), column.kind) {
        (DataType::Boolean | DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64, kind) => match kind {
            Kind::Boolean | Kind::Integer(..) => plain(Form::I64),
            Kind::Unsigned => plain(Form::U64),
            Kind::Real | Kind::Double => plain(Form::F64),
            Kind::Decimal(_) | Kind::Text => digits,
            _ => None,
        },
        (DataType::Float32 | DataType::Float64 | DataType::Decimal128(..), kind) => match kind {
            Kind::Real | Kind::Double => plain(Form::F64),
            Kind::Integer(..) => plain(Form::I64),
            Kind::Unsigned => plain(Form::U64),
            Kind::Decimal(_) | Kind::Text => digits,
            _ => None,
        },
        (DataType::Utf8, kind) => match kind {
            Kind::Boolean => plain(Form::I64),
            Kind::Text => Some(text(column, Form::Wide, system)),
            Kind::Bytes { .. } => None,
            // As the driver writes it.
            _ => digits,
        },
        (DataType::Binary, Kind::Bytes { .. }) => Some(text(column, Form::Binary, system)),
        (DataType::Date32, Kind::Date) => time(Form::Date),
        (DataType::Date32 | DataType::Timestamp(..), Kind::Timestamp(_) | Kind::Minutes) => time(Form::Timestamp),
        (DataType::Timestamp(..), Kind::Date) => time(Form::Date),
        (DataType::Timestamp(..), Kind::Offset(_)) => digits,
        (DataType::Date32 | DataType::Timestamp(..), Kind::Text) => digits,
        (DataType::Time32(TimeUnit::Millisecond), Kind::Time(_) | Kind::Text) => digits,
        _ => None,
    }
}

/// Room for texts or bytes of a column.
fn text(column: &Column, form: Form, system: System) -> Place {
    if system == System::Postgres {
        Place::up_to(form, FIRST_BYTES)
    } else if column.bounded && column.sql.size <= BOUND_LENGTH {
        // A character may be two units of UTF-16.
        Place::up_to(form, column.sql.size * if form == Form::Wide { 4 } else { 1 })
    } else {
        Place::long(form)
    }
}

#[cfg(test)]
mod tests;
