//! Reads an Avro file. Decoding is the format's; here are positions and block sizes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use tidemill_format::avro::{self, AvroFileReader};

use super::batches::{Answer, BATCH_ROWS, Batches, Decode};
use super::cache::{Care, Tracked};
use super::directory::Place;
use super::metadata::{Constants, FileInfo};
use super::sample::{first_file, options_of};
use crate::{ConnectError, Polled, ReadRequest, Reader, Rows, Split, Waker};

/// Where an Avro split stands.
#[derive(Serialize, Deserialize)]
struct Position {
    /// The number of the next row in the file, from 0.
    row: u64,
}

/// The columns of the first file that `path` means, which is what a table's `path` may be. `options` are those of such a
/// table, of which `store.…` matter.
///
/// # Errors
/// There is no such file, or it is no Avro file.
pub fn schema_of(path: &str, options: &BTreeMap<String, String>) -> Result<SchemaRef, ConnectError> {
    let (name, place) = first_file(path, options_of(path, options, |_| false), "Avro")?;
    let input: Box<dyn Read + Send> = match place {
        Place::Local => Box::new(File::open(&name).map_err(|e| ConnectError::io(format!("opening '{name}'"), &e))?),
        Place::Remote(store, object) => store.reader(&object, 0, None),
    };
    Ok(avro::schema_in(&name, input)?)
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
    let batches = Batches::of(place, path, decode, waker)?;
    Ok(Box::new(AvroReader { batches, next, bytes: info.size, constants }))
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
    constants: Constants,
}

impl Reader for AvroReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let (batch, arrival_ns) = match self.batches.next_rows(rows_max)? {
            Answer::Rows(batch, arrival_ns) => (batch, arrival_ns),
            Answer::Nothing => return Ok(Polled::Pending),
            Answer::End => return Ok(Polled::End),
        };
        self.next += batch.num_rows() as u64;
        let bytes = std::mem::take(&mut self.bytes);
        Ok(Polled::Rows(Rows::good(self.constants.append(batch)?, arrival_ns, bytes)))
    }

    fn position(&self) -> serde_json::Value {
        serde_json::json!(Position { row: self.next })
    }
}
