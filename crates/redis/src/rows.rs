//! Entries to rows: a field holds a message in some format, or each column is the field of its name.
//!
//! In the second case an entry becomes a CSV record of the fields wanted, whose decoder knows the text forms of all types
//! and parses column by column. Fields that are missing are empty there, and made NULL afterwards where that is not the same.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, StringArray, TimestampMillisecondArray};
use arrow::compute::{cast, nullif};
use arrow::datatypes::{DataType, FieldRef, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use tidemill_connect::{ConnectError, ReadRequest, Rows};
use tidemill_format::BadRecord;
use tidemill_format::message::{MessageDecoder, MessageFormat};
use tidemill_format::options::RawOptions;

use crate::feed::{Entry, Piece};

/// What stands between fields of the records that entries become: a character that texts hardly have.
const DELIMITER: u8 = 0x1f;

/// Where the columns of a table stand in an entry.
#[derive(Clone)]
pub enum Layout {
    /// Each is a field of its own.
    Fields,
    /// All are in the message that one field holds.
    Message {
        /// The name of the field.
        field: String,
        /// The format of the message.
        format: MessageFormat,
    },
}

/// The format of the records that entries become.
fn records() -> Result<MessageFormat, ConnectError> {
    let delimiter = char::from(DELIMITER).to_string();
    let options = [("format", "csv"), ("csv.field-delimiter", delimiter.as_str())];
    let mut raw = RawOptions::new("internal error", options.map(|(name, value)| (name.to_string(), value.to_string())));
    MessageFormat::take(&mut raw, "")?.ok_or_else(|| ConnectError::new("internal error: the options name a format"))
}

/// The keys and types of the metadata columns.
pub fn metadata_columns() -> Vec<(&'static str, DataType)> {
    vec![("key", DataType::Utf8), ("id", DataType::Utf8), ("timestamp", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())))]
}

/// A field that is a column.
struct Wanted {
    name: Vec<u8>,
    /// A text, of which an empty one is not NULL.
    is_text: bool,
    nullable: bool,
    /// Which field of an entry it was in the last one: entries of a stream are mostly alike.
    guess: usize,
    /// Of each record: the field was missing.
    missing: Vec<bool>,
}

/// What an entry is decoded as.
enum Form {
    Fields { wanted: Vec<Wanted>, record: Vec<u8> },
    Message { field: Vec<u8>, guess: usize },
}

/// Makes rows of entries.
pub struct RowMaker {
    stream: String,
    schema: SchemaRef,
    form: Form,
    decoder: Box<dyn MessageDecoder>,
    metadata: Vec<(String, FieldRef)>,
}

impl RowMaker {
    /// For a request to a stream.
    ///
    /// # Errors
    /// A column that cannot be read, or metadata that entries do not have.
    pub fn new(stream: &str, layout: &Layout, request: &ReadRequest) -> Result<Self, ConnectError> {
        let known = metadata_columns();
        for (key, _) in &request.metadata {
            if !known.iter().any(|(name, _)| name == key) {
                return Err(ConnectError::new(format!("entries of Redis have no metadata column '{key}'; there are: key, id, timestamp")));
            }
        }
        let (form, decoder) = match layout {
            Layout::Message { field, format } => {
                let decoder = format.decoder(&request.physical, &request.projection)?;
                (Form::Message { field: field.clone().into_bytes(), guess: 0 }, decoder)
            }
            Layout::Fields => {
                let schema = Arc::new(request.physical.project(&request.projection).map_err(failed)?);
                let wanted = schema.fields().iter().map(|field| Wanted {
                    name: field.name().clone().into_bytes(),
                    is_text: *field.data_type() == DataType::Utf8,
                    nullable: field.is_nullable(),
                    guess: 0,
                    missing: Vec::new(),
                });
                let form = Form::Fields { wanted: wanted.collect(), record: Vec::new() };
                let all: Vec<usize> = (0..schema.fields().len()).collect();
                // Without columns nothing is decoded, and a record would have no field.
                let decoded = if all.is_empty() { &request.physical } else { &schema };
                (form, records()?.decoder(decoded, &all)?)
            }
        };
        Ok(RowMaker { stream: stream.to_string(), schema: request.schema(), form, decoder, metadata: request.metadata.clone() })
    }

    /// The rows of these entries of a piece.
    ///
    /// # Errors
    /// What is no fault of an entry.
    pub fn make(&mut self, piece: &Piece, entries: &[Entry]) -> Result<Rows, ConnectError> {
        let bytes = entries.iter().map(|entry| size(piece, entry)).sum();
        if matches!(&self.form, Form::Fields { wanted, .. } if wanted.is_empty()) {
            let all: Vec<u32> = (0..entries.len() as u32).collect();
            return Ok(Rows::good(self.batch(Vec::new(), entries, &all)?, piece.arrival_ns, bytes));
        }
        let (pushed, mut bad) = self.push(piece, entries);
        let mut messages = self.decoder.take()?;
        bad.extend(messages.bad.drain(..).map(|(message, why)| (pushed[message as usize], why)));
        bad.sort_by_key(|(entry, _)| *entry);
        let rows = messages.batch.num_rows() as u32;
        let origins = messages.origins.unwrap_or_else(|| (0..rows).collect());
        let columns = self.with_nulls(messages.batch.columns(), &origins)?;
        let of_entry: Vec<u32> = origins.iter().map(|message| pushed[*message as usize]).collect();
        let mut made = Rows::good(self.batch(columns, entries, &of_entry)?, piece.arrival_ns, bytes);
        made.kinds = messages.kinds;
        for (number, reason) in bad {
            let entry = &entries[number as usize];
            made.bad.push(BadRecord { record: u64::from(number), offset: 0, reason, raw: self.raw(piece, entry) });
            made.places.push(format!("{}@{}", self.stream, entry.id));
        }
        Ok(made)
    }

    /// Gives entries to the decoder: those that it has got, by number, and those that are bad without it.
    fn push(&mut self, piece: &Piece, entries: &[Entry]) -> (Vec<u32>, Vec<(u32, String)>) {
        let (mut pushed, mut bad) = (Vec::with_capacity(entries.len()), Vec::new());
        if let Form::Fields { wanted, .. } = &mut self.form {
            wanted.iter_mut().for_each(|column| column.missing.clear());
        }
        for (number, entry) in entries.iter().enumerate() {
            let message = match &mut self.form {
                Form::Message { field, guess } => find(piece, entry, field, guess).ok_or(field.as_slice()),
                Form::Fields { wanted, record } => match write_record(piece, entry, wanted, record) {
                    Ok(()) => Ok(record.as_slice()),
                    Err(column) => Err(wanted[column].name.as_slice()),
                },
            };
            match message {
                Ok(message) => {
                    self.decoder.push(Some(message));
                    pushed.push(number as u32);
                }
                Err(field) => bad.push((number as u32, format!("the entry has no field '{}'", String::from_utf8_lossy(field)))),
            }
        }
        (pushed, bad)
    }

    /// The decoder's columns, with NULL where a text was missing. `origins`: the record of each row.
    fn with_nulls(&self, columns: &[ArrayRef], origins: &[u32]) -> Result<Vec<ArrayRef>, ConnectError> {
        let Form::Fields { wanted, .. } = &self.form else { return Ok(columns.to_vec()) };
        let column = |(column, wanted): (&ArrayRef, &Wanted)| -> Result<ArrayRef, ConnectError> {
            if !wanted.is_text || !wanted.missing.contains(&true) {
                return Ok(column.clone());
            }
            let missing: BooleanArray = origins.iter().map(|record| Some(wanted.missing[*record as usize])).collect();
            nullif(column.as_ref(), &missing).map_err(failed)
        };
        columns.iter().zip(wanted).map(column).collect()
    }

    /// The columns decoded, and the metadata of the entry of each row behind them.
    fn batch(&self, mut columns: Vec<ArrayRef>, entries: &[Entry], of_entry: &[u32]) -> Result<RecordBatch, ConnectError> {
        let ids = move || of_entry.iter().map(move |number| entries[*number as usize].id);
        for (key, field) in &self.metadata {
            let array: ArrayRef = match key.as_str() {
                "key" => Arc::new(StringArray::from_iter_values(of_entry.iter().map(|_| &self.stream))),
                "id" => Arc::new(StringArray::from_iter_values(ids().map(|id| id.to_string()))),
                _ => {
                    let ms = ids().map(|id| i64::try_from(id.ms).unwrap_or(i64::MAX));
                    Arc::new(TimestampMillisecondArray::from_iter_values(ms).with_timezone("UTC"))
                }
            };
            columns.push(if array.data_type() == field.data_type() { array } else { cast(&array, field.data_type()).map_err(failed)? });
        }
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &RecordBatchOptions::new().with_row_count(Some(of_entry.len())))
            .map_err(failed)
    }

    /// What is shown of a bad entry: its message, or its fields.
    fn raw(&self, piece: &Piece, entry: &Entry) -> Vec<u8> {
        if let Form::Message { field, .. } = &self.form
            && let Some(message) = find(piece, entry, field, &mut 0)
        {
            return message.to_vec();
        }
        let mut raw = Vec::new();
        for at in (entry.from..entry.to).step_by(2) {
            if !raw.is_empty() {
                raw.extend_from_slice(b", ");
            }
            raw.extend_from_slice(piece.text(at));
            raw.push(b'=');
            raw.extend_from_slice(piece.text(at + 1));
        }
        raw
    }
}

fn failed(e: ArrowError) -> ConnectError {
    ConnectError::new(format!("making rows of entries: {e}"))
}

/// Bytes of the names and values of an entry.
fn size(piece: &Piece, entry: &Entry) -> u64 {
    piece.texts[entry.from..entry.to].iter().map(|place| place.length.max(0) as u64).sum()
}

/// The value of a field; `guess` is which it may be, and then which it was.
fn find<'p>(piece: &'p Piece, entry: &Entry, name: &[u8], guess: &mut usize) -> Option<&'p [u8]> {
    let fields = (entry.to - entry.from) / 2;
    let is = |field: &usize| piece.text(entry.from + 2 * field) == name;
    let found = Some(*guess).filter(|field| *field < fields && is(field)).or_else(|| (0..fields).find(is))?;
    *guess = found;
    Some(piece.text(entry.from + 2 * found + 1))
}

/// Makes `record` of the fields wanted of an entry.
///
/// # Errors
/// A column that may not be NULL, and whose field is missing.
fn write_record(piece: &Piece, entry: &Entry, wanted: &mut [Wanted], record: &mut Vec<u8>) -> Result<(), usize> {
    record.clear();
    for number in 0..wanted.len() {
        if number > 0 {
            record.push(DELIMITER);
        }
        let column = &mut wanted[number];
        let value = find(piece, entry, &column.name, &mut column.guess);
        if value.is_none() && !column.nullable {
            for before in &mut wanted[..number] {
                before.missing.pop();
            }
            return Err(number);
        }
        column.missing.push(value.is_none());
        quote(value.unwrap_or_default(), record);
    }
    Ok(())
}

/// Appends a value, in quotes where it must be: an empty one, too, so that no record is empty.
fn quote(value: &[u8], record: &mut Vec<u8>) {
    if !value.is_empty() && !value.iter().any(|b| matches!(*b, b'"' | b'\n' | b'\r' | DELIMITER)) {
        return record.extend_from_slice(value);
    }
    record.push(b'"');
    for byte in value {
        if *byte == b'"' {
            record.push(b'"');
        }
        record.push(*byte);
    }
    record.push(b'"');
}
