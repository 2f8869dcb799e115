//! Rows of a stream out of Arrow's messages: what [`tidemill_format::ipc`] reads, with the columns of the
//! stream and within its limits.
//!
//! The same for the messages of Flight and for those of an IPC stream in a request's body
//! ([`StreamBody`]).

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use bytes::{Buf, Bytes, BytesMut};
use tidemill_format::FormatError;
use tidemill_format::ipc::{self, Framed, frame, malformed};
use tidemill_hub::Refusal;

use super::columns::ColumnMap;
use crate::error::ApiError;
use crate::waiting::waiting;

/// A message up to this size is decoded while the other tasks of the thread wait: plain columns take some 0.2 ms, packed ones
/// a few.
const DECODED_HERE_BYTES: usize = 1 << 20;

/// Turns the messages of one publisher into rows of a stream.
#[derive(Debug)]
pub(crate) struct BatchDecoder {
    batches: ipc::BatchDecoder,
    map: ColumnMap,
    bytes_max: usize,
}

impl BatchDecoder {
    /// Reads a schema message; `target` has the stream's columns, a batch may take `bytes_max`.
    ///
    /// # Errors
    /// 400: what is wrong with the message, or which column does not fit.
    pub fn new(header: &[u8], target: SchemaRef, bytes_max: usize) -> Result<Self, ApiError> {
        let batches = ipc::BatchDecoder::new(header).map_err(refused)?.unpacking(bytes_max);
        let map = ColumnMap::new(batches.schema(), target)?;
        Ok(BatchDecoder { batches, map, bytes_max })
    }

    /// The stream's columns.
    pub fn target(&self) -> &SchemaRef {
        self.map.target()
    }

    /// The publisher's columns.
    pub fn sent(&self) -> &SchemaRef {
        self.batches.schema()
    }

    /// Bytes that the rows of the last message take in memory, if that is not what they came in.
    pub fn unpacked(&self) -> u64 {
        self.batches.unpacked()
    }

    /// The rows of one message, as the stream has them; `None` if it holds none.
    ///
    /// # Errors
    /// 400: what is wrong with the message or its rows; 413: too large.
    pub fn decode(&mut self, header: &[u8], body: impl Into<Buffer>) -> Result<Option<RecordBatch>, ApiError> {
        let body: Buffer = body.into();
        match body.len() <= DECODED_HERE_BYTES {
            true => self.decode_here(header, &body),
            false => waiting(|| self.decode_here(header, &body)),
        }
    }

    fn decode_here(&mut self, header: &[u8], body: &Buffer) -> Result<Option<RecordBatch>, ApiError> {
        let Some(batch) = self.batches.decode(header, body).map_err(refused)? else { return Ok(None) };
        let rows = batch.num_rows();
        // Columns that were not sent take memory, too: an offset or a value a row.
        if rows.saturating_mul(8 * self.map.nulls()) > self.bytes_max {
            return Err(ApiError::too_large(format!("a block of {rows} rows, most of whose columns are missing, is too large")));
        }
        Ok(Some(self.map.apply(&batch, 0)?))
    }
}

fn refused(error: FormatError) -> ApiError {
    ApiError::bad_request(error.to_string()).because(Refusal::Malformed)
}

/// The messages of an IPC stream (what `application/vnd.apache.arrow.stream` means) out of bytes that are
/// cut anywhere.
#[derive(Debug, Default)]
pub(crate) struct StreamBody {
    bytes: BytesMut,
    /// Bytes that the next message takes, as far as that is known.
    needs: usize,
    /// The stream's own mark of its end has come.
    ended: bool,
}

/// A message: header and body.
pub(crate) type Message = (Bytes, Bytes);

impl StreamBody {
    /// More bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that have come and were not given.
    pub fn buffered(&self) -> usize {
        self.bytes.len()
    }

    /// The next message, if it is there whole.
    ///
    /// # Errors
    /// 400: lengths that make no sense; 413: a body of more than `bytes_max`.
    pub fn next(&mut self, bytes_max: usize) -> Result<Option<Message>, ApiError> {
        if self.bytes.len() < self.needs {
            return Ok(None);
        }
        if self.ended {
            return if self.bytes.is_empty() { Ok(None) } else { Err(refused(malformed("bytes follow the end of the stream"))) };
        }
        let frame = match frame(&self.bytes).map_err(refused)? {
            Framed::Part(needs) => {
                self.needs = needs;
                return Ok(None);
            }
            Framed::End(length) => {
                self.bytes.advance(length);
                (self.needs, self.ended) = (0, true);
                return self.next(bytes_max);
            }
            Framed::Message(frame) => frame,
        };
        if frame.body > bytes_max {
            return Err(ApiError::too_large(format!(
                "a block of {} bytes, at most {bytes_max} are taken; send smaller record batches",
                frame.body
            )));
        }
        self.needs = frame.bytes();
        if self.bytes.len() < self.needs {
            return Ok(None);
        }
        self.needs = 0;
        self.bytes.advance(frame.before);
        let header = self.bytes.split_to(frame.header).freeze();
        let body = self.bytes.split_to(frame.body).freeze();
        Ok(Some((header, body)))
    }

    /// Whether nothing is left over.
    ///
    /// # Errors
    /// 400: the bytes ended within a message.
    pub fn finish(&self) -> Result<(), ApiError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(refused(malformed("the bytes end within it"))) }
    }
}

#[cfg(test)]
mod tests;
