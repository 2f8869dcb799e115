//! Where a table that is followed stands: what checkpoints hold of it.

use std::fmt;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};
use tidemill_connect::ConnectError;

use crate::driver::DbError;
use crate::sink::key_rows;
use crate::source::decode_row;

/// A place in a change log: places grow in the order of commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Offset {
    /// The number of the file; 0 where the log is one (PostgreSQL).
    #[serde(default)]
    pub file: u64,
    /// The byte in it.
    pub at: u64,
}

impl Offset {
    /// In a log that is not cut into files.
    pub fn at(at: u64) -> Self {
        Offset { file: 0, at }
    }
}

/// As PostgreSQL writes it, or number of the file and byte.
impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file {
            0 => write!(f, "{:X}/{:X}", self.at >> 32, self.at as u32),
            file => write!(f, "file {file}, byte {}", self.at),
        }
    }
}

/// A piece of the table in the order of its key, read as of one place in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Its last key, as text of one row; none: to the end of the table.
    pub upto: Option<String>,
    /// Transactions from here on are not in it.
    pub at: Offset,
}

/// The reading of the table that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// Transactions from here on are not in it.
    pub at: Offset,
    /// Rows handed over.
    pub rows: u64,
    /// The last key handed over; none where keys have no order that is known here.
    pub after: Option<String>,
}

/// Where a table stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Names the server, or what it shares with those that may take its place: places mean nothing to others.
    pub server: String,
    /// Transactions before this place are done.
    pub from: Offset,
    /// Of the first one from there on so many rows are done.
    #[serde(default)]
    pub skip: u64,
    /// Pieces of the table that are read, if they were read at different times.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// The table is being read; `from` is where the log is gone on with afterwards.
    #[serde(default)]
    pub reading: Option<Reading>,
}

impl Position {
    /// Reads what a checkpoint holds.
    ///
    /// # Errors
    /// It is no such position.
    pub fn of(value: &serde_json::Value, owner: &str) -> Result<Option<Self>, ConnectError> {
        if value.is_null() {
            return Ok(None);
        }
        let position = Position::deserialize(value);
        position.map(Some).map_err(|e| {
            ConnectError::new(format!(
                "{owner}: the checkpoint's position is not one of this connector ({e}); was the declaration changed?"
            ))
        })
    }

    /// Ends a reading that was cut off: what it has given is a piece. False if it cannot be gone on with, since
    /// rows were handed over in no order.
    pub fn cut(&mut self) -> bool {
        let Some(reading) = &mut self.reading else { return true };
        match reading.after.take() {
            Some(after) => self.parts.push(Part { upto: Some(after), at: reading.at }),
            None if reading.rows > 0 => return false,
            None => {}
        }
        reading.rows = 0;
        true
    }
}

/// Pieces of a table as their keys compare.
#[derive(Default)]
pub(crate) struct Pieces(Vec<(Option<Vec<u8>>, Offset)>);

impl Pieces {
    /// Of a position.
    ///
    /// # Errors
    /// A key that is none.
    pub fn of(parts: &[Part]) -> Result<Self, DbError> {
        let piece = |part: &Part| Ok::<_, DbError>((part.upto.as_deref().map(key_bytes).transpose()?, part.at));
        parts.iter().map(piece).collect::<Result<_, DbError>>().map(Pieces)
    }

    /// Whether there is nothing to pass over.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all of them are older than this place.
    pub fn passed(&self, at: Offset) -> bool {
        self.0.iter().all(|(_, piece)| *piece <= at)
    }

    /// Whether the piece that a key lies in has not yet seen the transaction at this place.
    pub fn wants(&self, key: &[u8], at: Offset) -> bool {
        let piece = self.0.iter().find(|(upto, _)| upto.as_deref().is_none_or(|upto| key <= upto));
        piece.is_none_or(|(_, piece)| at >= *piece)
    }
}

/// A key of one row as bytes that compare as keys do.
///
/// # Errors
/// It is none.
pub(super) fn key_bytes(text: &str) -> Result<Vec<u8>, DbError> {
    let row: RecordBatch = decode_row(text)?;
    let columns: Vec<usize> = (0..row.num_columns()).collect();
    Ok(key_rows(&row, &columns)?.row(0).data().to_vec())
}

#[cfg(test)]
mod tests;
