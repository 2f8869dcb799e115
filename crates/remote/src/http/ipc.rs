//! From a body that is an Arrow IPC stream to rows of the table.
//!
//! Bodies come from anybody: [`tidemill_format::ipc`] checks whatever lengths they claim.

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::buffer::Buffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::util::display::FormatOptions;
use tidemill_connect::ReadRequest;
use tidemill_format::FormatError;
use tidemill_format::ipc::{BatchDecoder, Framed, frame, malformed};
use tidemill_format::types::{plain_type, type_name};

/// Overflow is an error and not a NULL.
const STRICT: CastOptions<'static> = CastOptions { safe: false, format_options: FormatOptions::new() };

/// The rows of a body, with the columns that are asked for, and the bytes that they take. Columns are found by name; what the table
/// does not have is passed over, nullable columns that are not there are NULL.
///
/// # Errors
/// What is wrong with the body, or which column does not fit; rows that came packed take more than `bytes_max`, all together.
pub fn rows(body: Vec<u8>, request: &ReadRequest, bytes_max: u64) -> Result<(Vec<RecordBatch>, usize), String> {
    let wrong = |e: FormatError| e.to_string();
    let bytes = body.len();
    let body = Buffer::from(body);
    let (mut open, mut batches): (Option<(BatchDecoder, Columns)>, Vec<RecordBatch>) = (None, Vec::new());
    let (mut at, mut unpacked) = (0, 0u64);
    while at < bytes {
        let frame = match frame(&body[at..]).map_err(wrong)? {
            Framed::Message(frame) if frame.bytes() <= bytes - at => frame,
            Framed::Message(_) | Framed::Part(_) => return Err("it ends in the middle of an Arrow IPC stream".to_string()),
            Framed::End(length) if length == bytes - at => break,
            Framed::End(_) => return Err(wrong(malformed("bytes follow the end of the stream"))),
        };
        let header = &body[at + frame.before..][..frame.header];
        at += frame.bytes();
        let Some((decoder, columns)) = &mut open else {
            let decoder = BatchDecoder::new(header).map_err(wrong)?.unpacking(usize::try_from(bytes_max).unwrap_or(usize::MAX));
            let columns = Columns::new(decoder.schema(), request)?;
            open = Some((decoder, columns));
            continue;
        };
        let values = body.slice_with_length(at - frame.body, frame.body);
        let Some(batch) = decoder.decode(header, &values).map_err(wrong)? else { continue };
        // A small body may hold many batches, each of which becomes large.
        unpacked += decoder.unpacked();
        if unpacked > bytes_max {
            return Err(format!("its rows take more than {bytes_max} bytes unpacked; send smaller bodies"));
        }
        // What came packed counts as what it has become.
        let bytes = bytes.max(decoder.unpacked() as usize);
        // A batch says how many rows it has; if they are all NULL, no bytes stand behind them.
        if batch.num_rows() > bytes.saturating_mul(8) || batch.num_rows().saturating_mul(columns.missing) > bytes.max(NULLS_MAX) {
            return Err(format!(
                "a batch of {} rows in a body of {bytes} bytes, too many of them NULL; send smaller batches",
                batch.num_rows()
            ));
        }
        if batch.num_rows() > 0 {
            batches.push(columns.apply(&batch)?);
        }
    }
    match open {
        Some(_) => Ok((batches, bytes.max(unpacked as usize))),
        None => Err("it is empty; an Arrow IPC stream begins with its schema".to_string()),
    }
}

/// So many values may be made up for columns that are not there, however small the body.
const NULLS_MAX: usize = 1 << 20;

/// From the columns that were sent to those that are asked for.
struct Columns {
    schema: SchemaRef,
    made: Vec<Made>,
    /// How many are made up.
    missing: usize,
}

enum Made {
    Same(usize),
    Cast(usize),
    Null,
}

impl Columns {
    fn new(sent: &Schema, request: &ReadRequest) -> Result<Self, String> {
        let sent_names = || sent.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>().join(", ");
        if !request.physical.fields().iter().any(|f| sent.index_of(f.name()).is_ok()) {
            return Err(format!("none of the table's columns is there; it has: {}", sent_names()));
        }
        let mut made = Vec::with_capacity(request.projection.len());
        for index in &request.projection {
            let field = request.physical.field(*index);
            made.push(match sent.index_of(field.name()) {
                Err(_) if field.is_nullable() => Made::Null,
                Err(_) => return Err(format!("column '{}' is missing and cannot be NULL; it has: {}", field.name(), sent_names())),
                Ok(at) => match (sent.field(at).data_type(), field.data_type()) {
                    (DataType::Null, _) => Made::Null,
                    (given, wanted) if given == wanted => Made::Same(at),
                    (DataType::Timestamp(_, a), DataType::Timestamp(_, b)) if a.is_some() == b.is_some() => Made::Cast(at),
                    // Names of types leave out what does not matter here: whether parts may be NULL.
                    (given, wanted) if type_name(&plain_type(given)) == type_name(wanted) => Made::Cast(at),
                    (given, wanted) => {
                        let (given, wanted) = (type_name(given), type_name(wanted));
                        return Err(format!("column '{}' is {given}, and {wanted} in the table", field.name()));
                    }
                },
            });
        }
        let missing = made.iter().filter(|m| matches!(m, Made::Null)).count();
        Ok(Columns { schema: request.schema(), made, missing })
    }

    fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch, String> {
        let rows = batch.num_rows();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.made.len());
        for (made, field) in self.made.iter().zip(self.schema.fields()) {
            columns.push(match made {
                Made::Same(at) => batch.column(*at).clone(),
                Made::Cast(at) => cast_with_options(batch.column(*at), field.data_type(), &STRICT)
                    .map_err(|e| format!("column '{}': {e}", field.name()))?,
                Made::Null => new_null_array(field.data_type(), rows),
            });
        }
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &RecordBatchOptions::new().with_row_count(Some(rows)))
            .map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests;
