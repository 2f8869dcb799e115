//! Reads a Parquet file, or some of its rows. Decoding is the format's; here are splits, positions
//! and block sizes.

use std::fs;
use std::path::Path;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};
use tidemill_block::clock;
use tidemill_format::parquet::{self, ParquetFileReader};

use super::metadata::Constants;
use super::ranges::Piece;
use crate::{ConnectError, Polled, ReadRequest, Reader, Rows, Split};

/// Rows decoded at once; blocks asked for smaller are slices of such a batch.
const BATCH_ROWS: usize = 8192;

/// Where a Parquet split stands.
#[derive(Serialize, Deserialize)]
struct Position {
    /// The number of the next row in the file, from 0.
    row: u64,
}

/// Divides a file at its row groups into pieces of about `bytes` compressed bytes.
///
/// # Errors
/// The file cannot be read or is no Parquet file.
pub(super) fn pieces(path: &str, bytes: u64) -> Result<Vec<Piece>, ConnectError> {
    let (mut from, mut to, mut size) = (0, 0, 0);
    let mut pieces = Vec::new();
    for (rows, group) in parquet::row_groups(Path::new(path))? {
        to += rows;
        size += group;
        if size >= bytes && to > from {
            pieces.push(Piece::Rows(from, to));
            (from, size) = (to, 0);
        }
    }
    if to > from {
        pieces.push(Piece::Rows(from, to));
    }
    Ok(pieces)
}

/// How many rows a file has, if its footer can be read.
pub(super) fn rows(path: &str) -> Option<usize> {
    let groups = parquet::row_groups(Path::new(path)).ok()?;
    usize::try_from(groups.iter().map(|(rows, _)| rows).sum::<u64>()).ok()
}

/// Opens a split.
///
/// # Errors
/// The file cannot be read, or lacks a column.
pub(super) fn open(path: &str, piece: &Piece, split: &Split, request: &ReadRequest) -> Result<Box<dyn Reader>, ConnectError> {
    let (from, to) = match piece {
        Piece::Rows(from, to) => (*from, Some(*to)),
        Piece::Whole => (0, None),
        Piece::Bytes(..) => {
            return Err(ConnectError::new(format!(
                "the split '{}' is not one of a Parquet file; was the table's format changed?",
                split.id
            )));
        }
    };
    let start = match &split.position {
        None => from,
        Some(position) => {
            Position::deserialize(position)
                .map_err(|e| {
                    ConnectError::new(format!(
                        "the position {position} of split '{}' is not one of a Parquet file: {e}; was the table's format changed?",
                        split.id
                    ))
                })?
                .row
        }
    };
    let meta = fs::metadata(path).map_err(|e| ConnectError::io(format!("looking at '{path}'"), &e))?;
    let file = ParquetFileReader::open(Path::new(path), &request.physical, &request.projection, start, BATCH_ROWS)?;
    let end = to.unwrap_or(file.rows());
    if file.rows() < start.max(end) {
        return Err(ConnectError::new(format!(
            "'{path}' has {} rows, but had at least {} before: it was replaced; put the file back, or start the job without its checkpoint",
            file.rows(),
            start.max(end)
        )));
    }
    let constants = Constants::new(request, path, &meta)?;
    Ok(Box::new(ParquetReader { file, next: start, end, bytes: meta.len(), decoded: None, constants }))
}

/// Reads one Parquet split. Decoding happens where it is polled: it is compute, and pages come from
/// the system's read-ahead.
struct ParquetReader {
    file: ParquetFileReader,
    /// The number of the next row.
    next: u64,
    /// The row to stop before.
    end: u64,
    /// Length of the file.
    bytes: u64,
    /// Rows decoded and not yet handed out, with the time at which they were read.
    decoded: Option<(RecordBatch, u64)>,
    constants: Constants,
}

impl ParquetReader {
    /// The file's bytes up to a row, as if all rows were of one length.
    fn bytes_before(&self, row: u64) -> u64 {
        (u128::from(self.bytes) * u128::from(row) / u128::from(self.file.rows().max(1))) as u64
    }
}

impl Reader for ParquetReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        if self.next >= self.end {
            self.decoded = None;
            return Ok(Polled::End);
        }
        let (batch, arrival_ns) = match self.decoded.take() {
            Some(decoded) => decoded,
            None => match self.file.next()? {
                Some(batch) => (batch, clock::now_ns()),
                None => return Ok(Polled::End),
            },
        };
        let left = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
        let take = batch.num_rows().min(rows_max.max(1)).min(left);
        if take < batch.num_rows() {
            self.decoded = Some((batch.slice(take, batch.num_rows() - take), arrival_ns));
        }
        let bytes = self.bytes_before(self.next + take as u64) - self.bytes_before(self.next);
        self.next += take as u64;
        let batch = if take < batch.num_rows() { batch.slice(0, take) } else { batch };
        Ok(Polled::Rows(Rows::good(self.constants.append(batch)?, arrival_ns, bytes)))
    }

    fn position(&self) -> serde_json::Value {
        serde_json::json!(Position { row: self.next })
    }
}
