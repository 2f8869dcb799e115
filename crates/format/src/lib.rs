//! Bytes to record batches and back: formats, compression, and the options of both.
//!
//! A text format is a [`Decoder`] fed with bytes and an [`Encoder`] that appends to a buffer, of UTF-8; [`encoding`] is what
//! stands between them and text in other encodings. Where
//! records come one by one, as Kafka's do, [`message`] has the decoders and encoders.
//! Parquet cannot be decoded from a passing stream, so it has readers and writers of its own in
//! [`parquet`], and so have Avro's files in [`avro`], [`orc`] and [`xlsx`]; Arrow's own files, and its messages from peers that need not be
//! trusted, are read by [`ipc`]. What does not live here: where the bytes come from (connectors) and what
//! the rows mean (plans).

pub mod avro;
mod buffer;
pub mod compression;
pub mod csv;
pub mod encoding;
mod error;
pub mod fixed;
pub mod infer;
pub mod ipc;
pub mod json;
pub mod message;
pub mod options;
pub mod orc;
pub mod parquet;
mod processor;
pub mod text;
pub mod types;
pub mod xlsx;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, RowKind};

pub use error::FormatError;

/// Bytes that the rows of a batch take in memory, whatever they are slices of.
pub fn bytes_of(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0)).sum()
}

/// A record that could not be decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct BadRecord {
    /// The record's number, counted from the decoder's first record (0).
    pub record: u64,
    /// The offset of its first byte, counted from the first byte pushed into the decoder.
    pub offset: u64,
    /// What was wrong: column, value, expected type.
    pub reason: String,
    /// The bytes of the record, without the line end.
    pub raw: Vec<u8>,
}

/// Rows that a decoder has made.
#[derive(Debug)]
pub struct Decoded {
    /// The good rows, in order. May be empty when all records were bad.
    pub batch: RecordBatch,
    /// What each row does to the table, of formats of changes; otherwise all are inserts.
    pub kinds: Option<Vec<RowKind>>,
    /// Bytes consumed, from the first byte of the text to the end of the last record in `batch` or `bad`.
    pub offset: u64,
    /// Records consumed since the decoder began, good and bad, the header line not counted.
    pub records: u64,
    /// The records that could not be decoded, in order.
    pub bad: Vec<BadRecord>,
}

/// Turns a stream of bytes into record batches of a fixed schema.
///
/// A bad record becomes a [`BadRecord`] and never harms its neighbours.
pub trait Decoder: Send {
    /// Room for so many bytes, to be read into and counted by [`Decoder::filled`]. It may be left unused.
    fn room(&mut self, bytes: usize) -> &mut [u8];

    /// Says that so many bytes at the beginning of the room given last are the next of the text. Records may be cut anywhere.
    fn filled(&mut self, bytes: usize);

    /// Appends bytes that lie elsewhere.
    fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// Says that no more bytes follow, so that a last record without line end is complete.
    fn finish(&mut self);

    /// Decodes up to `rows_max` of the complete records at hand; `None` when there is none.
    ///
    /// # Errors
    /// Only what makes going on pointless, such as a record larger than the limit.
    fn next(&mut self, rows_max: usize) -> Result<Option<Decoded>, FormatError>;

    /// Bytes appended and not yet consumed.
    fn buffered(&self) -> usize;

    /// The schema of the batches.
    fn schema(&self) -> SchemaRef;
}

/// Turns blocks into bytes.
pub trait Encoder: Send {
    /// What stands once before the first row (a header line), if anything.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// Appends the rows of the block. Their kinds are written by formats of changes only.
    ///
    /// # Errors
    /// A value that the format cannot express.
    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), FormatError>;

    /// What stands once behind the last row of a file, if anything.
    fn end(&mut self, _out: &mut Vec<u8>) {}
}

/// The largest record that a text decoder accepts, bytes. A longer one is an error rather than
/// memory without end (a quote that is never closed looks like one).
pub const RECORD_BYTES_MAX: usize = 64 << 20;
