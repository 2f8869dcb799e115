//! Reads an Avro file. Decoding is the format's; here are positions and block sizes.

use std::fs;
use std::path::Path;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};
use tidemill_block::clock;
use tidemill_format::avro::AvroFileReader;

use super::metadata::Constants;
use crate::{ConnectError, Polled, ReadRequest, Reader, Rows, Split};

/// Rows decoded at once; blocks asked for smaller are slices of such a batch.
const BATCH_ROWS: usize = 8192;

/// Where an Avro split stands.
#[derive(Serialize, Deserialize)]
struct Position {
    /// The number of the next row in the file, from 0.
    row: u64,
}

/// Opens a split, which is a whole file.
///
/// # Errors
/// The file cannot be read, or lacks a NOT NULL column.
pub(super) fn open(path: &str, split: &Split, request: &ReadRequest) -> Result<Box<dyn Reader>, ConnectError> {
    let next = match &split.position {
        None => 0,
        Some(position) => {
            let wrong = |e| {
                ConnectError::new(format!(
                    "the position {position} of split '{}' is not one of an Avro file: {e}; was the table's format changed?",
                    split.id
                ))
            };
            Position::deserialize(position).map_err(wrong)?.row
        }
    };
    let meta = fs::metadata(path).map_err(|e| ConnectError::io(format!("looking at '{path}'"), &e))?;
    let file = AvroFileReader::open(Path::new(path), &request.physical, &request.projection, next, BATCH_ROWS)?;
    let constants = Constants::new(request, path, &meta)?;
    Ok(Box::new(AvroReader { file, next, bytes: meta.len(), decoded: None, constants }))
}

/// Reads one Avro split. Decoding happens where it is polled: it is compute, and blocks come from the
/// system's read-ahead.
struct AvroReader {
    file: AvroFileReader,
    /// The number of the next row.
    next: u64,
    /// Bytes of the file that were not told yet. How many rows it has is not known before its end, so all
    /// of them count as read with the first.
    bytes: u64,
    /// Rows decoded and not yet handed out, with the time at which they were read.
    decoded: Option<(RecordBatch, u64)>,
    constants: Constants,
}

impl Reader for AvroReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let (batch, arrival_ns) = match self.decoded.take() {
            Some(decoded) => decoded,
            None => match self.file.read()? {
                Some(batch) => (batch, clock::now_ns()),
                None => return Ok(Polled::End),
            },
        };
        let take = batch.num_rows().min(rows_max.max(1));
        if take < batch.num_rows() {
            self.decoded = Some((batch.slice(take, batch.num_rows() - take), arrival_ns));
        }
        self.next += take as u64;
        let bytes = std::mem::take(&mut self.bytes);
        Ok(Polled::Rows(Rows::good(self.constants.append(batch.slice(0, take))?, arrival_ns, bytes)))
    }

    fn position(&self) -> serde_json::Value {
        serde_json::json!(Position { row: self.next })
    }
}
