//! Reads an Avro file. Decoding is the format's; here are positions and block sizes.

use std::fs::File;
use std::io::Read;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};
use tidemill_format::avro::AvroFileReader;

use super::batches::{Answer, BATCH_ROWS, Batches, Decode};
use super::cache::{Care, Tracked};
use super::directory::Place;
use super::metadata::{Constants, FileInfo};
use crate::{ConnectError, Polled, ReadRequest, Reader, Rows, Split, Waker};

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
pub(super) fn open(
    place: &Place,
    info: &FileInfo,
    care: Care,
    split: &Split,
    (request, waker): (&ReadRequest, Waker),
    path: &str,
) -> Result<Box<dyn Reader>, ConnectError> {
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
    let input = || -> std::io::Result<Box<dyn Read + Send>> {
        Ok(match place {
            Place::Local => Box::new(Tracked::new(File::open(path)?, info.size, 0, None, care)),
            Place::Remote(store, object) => store.reader(object, 0, None),
        })
    };
    let file = AvroFileReader::of(path, input, &request.physical, &request.projection, next, BATCH_ROWS)?;
    let constants = Constants::of(request, info)?;
    let decode = Box::new(Whole(file));
    let batches = match place {
        Place::Local => Batches::Here(decode),
        Place::Remote(..) => Batches::thread(path, decode, waker)?,
    };
    Ok(Box::new(AvroReader { batches, next, bytes: info.size, decoded: None, constants }))
}

struct Whole(AvroFileReader);

impl Decode for Whole {
    fn decode(&mut self) -> Result<Option<RecordBatch>, ConnectError> {
        Ok(self.0.read()?)
    }
}

/// Reads one Avro split.
struct AvroReader {
    batches: Batches,
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
            None => match self.batches.next()? {
                Answer::Batch(batch, arrival_ns) => (batch, arrival_ns),
                Answer::Nothing => return Ok(Polled::Pending),
                Answer::End => return Ok(Polled::End),
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
