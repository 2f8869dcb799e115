//! From the body of a request to what the reader takes: text for its decoder, or rows.
//!
//! Only what concerns the body as a whole is decided here, so that its sender can be told; records are
//! decoded by the reader, and a bad one is the job's to deal with.

use std::io::{Cursor, Read};

use arrow::array::RecordBatch;
use tidemill_connect::ReadRequest;
use tidemill_format::compression::{Compression, reader};
use tidemill_format::csv::Header;
use tidemill_format::text::TextFormat;

use super::answer::Refusal;
use super::{Format, ipc};
use crate::lines::split_values;

/// So much of a body is looked at to check its header line.
const HEADER_BYTES: usize = 64 << 10;

/// How the rows of a body are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An array of objects, or objects one after the other.
    Json,
    /// An object a line.
    JsonLines,
    /// As the table's options say.
    Csv,
    /// An Arrow IPC stream.
    Arrow,
}

impl Kind {
    /// What a `Content-Type` means.
    pub fn of(content_type: &str) -> Option<Self> {
        let bare = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        Some(match bare.as_str() {
            "application/json" => Kind::Json,
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/x-jsonlines" => Kind::JsonLines,
            "text/csv" | "application/csv" => Kind::Csv,
            "application/vnd.apache.arrow.stream" => Kind::Arrow,
            _ => return None,
        })
    }

    /// Whether a table of this format takes it.
    pub fn fits(self, format: &Format) -> bool {
        match self {
            Kind::Arrow => true,
            Kind::Csv => matches!(format, Format::Text(TextFormat::Csv(_))),
            Kind::Json | Kind::JsonLines => matches!(format, Format::Text(TextFormat::Json(_))),
        }
    }
}

/// The types that a table of this format takes, for messages.
pub fn accepted(format: &Format) -> &'static str {
    match format {
        Format::Text(TextFormat::Csv(_)) => "text/csv or application/vnd.apache.arrow.stream",
        Format::Text(TextFormat::Json(_) | TextFormat::Changes(_)) => {
            "application/json, application/x-ndjson or application/vnd.apache.arrow.stream"
        }
        // Fixed-width text is refused where the table is made.
        Format::Text(TextFormat::Fixed(_)) | Format::Arrow => "application/vnd.apache.arrow.stream",
    }
}

/// What a `Content-Encoding` means.
pub fn packing(encoding: &str) -> Option<Compression> {
    match encoding.trim().to_ascii_lowercase().as_str() {
        "" | "identity" => Some(Compression::None),
        "gzip" | "x-gzip" => Some(Compression::Gzip),
        "zstd" => Some(Compression::Zstd),
        _ => None,
    }
}

/// What a reader takes.
#[derive(Debug)]
pub enum Payload {
    /// Records for the table's decoder.
    Text(Vec<u8>),
    /// Rows.
    Rows(Vec<RecordBatch>),
}

/// Unpacks a body and makes it what the reader takes; with its size, unpacked.
///
/// # Errors
/// The body cannot be read as a whole, or is larger than `bytes_max`.
pub fn open(
    kind: Kind,
    packing: Compression,
    body: Vec<u8>,
    bytes_max: u64,
    format: &Format,
    request: &ReadRequest,
) -> Result<(Payload, usize), Refusal> {
    let mut body = match packing {
        Compression::None => body,
        packing => unpack(body, packing, bytes_max)?,
    };
    let mut bytes = body.len();
    let payload = match kind {
        Kind::Arrow => {
            let (rows, taken) = ipc::rows(body, request, bytes_max).map_err(Refusal::unreadable)?;
            bytes = taken;
            Payload::Rows(rows)
        }
        Kind::Json => {
            split_values(&mut body).map_err(|why| Refusal::unreadable(format_args!("as JSON: {why}")))?;
            Payload::Text(body)
        }
        Kind::JsonLines => Payload::Text(body),
        Kind::Csv => {
            check_header(&body, format, request)?;
            Payload::Text(body)
        }
    };
    Ok((payload, bytes))
}

fn unpack(body: Vec<u8>, packing: Compression, bytes_max: u64) -> Result<Vec<u8>, Refusal> {
    let mut unpacked = Vec::new();
    let read = reader(Box::new(Cursor::new(body)), packing).and_then(|packed| packed.take(bytes_max + 1).read_to_end(&mut unpacked));
    read.map_err(Refusal::unreadable)?;
    if unpacked.len() as u64 > bytes_max { Err(Refusal::too_large(bytes_max)) } else { Ok(unpacked) }
}

/// A header line that is not the table's makes every record one of other columns.
fn check_header(text: &[u8], format: &Format, request: &ReadRequest) -> Result<(), Refusal> {
    let Format::Text(format @ TextFormat::Csv(options)) = format else { return Ok(()) };
    if options.header != Header::Checked {
        return Ok(());
    }
    let mut decoder = format.decoder(&request.physical, &[]).map_err(Refusal::unreadable)?;
    decoder.push(&text[..text.len().min(HEADER_BYTES)]);
    if text.len() <= HEADER_BYTES {
        decoder.finish();
    }
    decoder.next(1).map(drop).map_err(Refusal::unreadable)
}

#[cfg(test)]
mod tests;
