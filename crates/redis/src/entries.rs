//! Rows to entries: their fields as parts of a command, names and values in turn.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use tidemill_block::{Block, clock};
use tidemill_connect::ConnectError;
use tidemill_format::message::{MessageBuffer, MessageEncoder, MessageFormat};
use tidemill_format::options::RawOptions;

use crate::id::EntryId;
use crate::resp;
use crate::rows::Layout;

/// How much of a stream is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// All of it.
    Never,
    /// About so many entries.
    Length(u64),
    /// Entries of about so long.
    Age(Duration),
}

impl Trim {
    /// What `XADD` is told of it now.
    pub fn parts(self) -> Vec<String> {
        let told = |strategy: &str, bound: String| vec![strategy.to_string(), "~".to_string(), bound];
        match self {
            Trim::Never => Vec::new(),
            Trim::Length(length) => told("MAXLEN", length.to_string()),
            Trim::Age(age) => {
                let now = u64::try_from(clock::wall_ms()).unwrap_or(0);
                let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
                told("MINID", EntryId { ms: now.saturating_sub(age), number: 0 }.to_string())
            }
        }
    }
}

/// An entry among those of [`Entries`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Where its last part ends.
    pub end: usize,
    /// How many parts it has.
    pub parts: usize,
}

/// Entries, one behind the other.
#[derive(Debug, Default)]
pub struct Entries {
    bytes: Vec<u8>,
    made: Vec<Made>,
}

impl Entries {
    /// The parts of each, and how many there are.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], usize)> {
        self.made.iter().scan(0, move |from, made| Some((&self.bytes[std::mem::replace(from, made.end)..made.end], made.parts)))
    }
}

/// A column that becomes a field.
struct Column {
    name: Vec<u8>,
    schema: SchemaRef,
    encoder: Box<dyn MessageEncoder>,
    texts: MessageBuffer,
}

/// What entries are made of.
enum Form {
    Fields(Vec<Column>),
    Message { field: Vec<u8>, encoder: Box<dyn MessageEncoder>, messages: MessageBuffer },
}

/// Makes entries of rows.
pub struct EntryEncoder {
    form: Form,
    entries: Entries,
}

/// The format of the values of fields: each a CSV record of its own, in which no character is special.
fn values() -> Result<MessageFormat, ConnectError> {
    let options = [("format", "csv"), ("csv.disable-quote-character", "true")];
    let mut raw = RawOptions::new("internal error", options.map(|(name, value)| (name.to_string(), value.to_string())));
    MessageFormat::take(&mut raw, "")?.ok_or_else(|| ConnectError::new("internal error: the options name a format"))
}

impl EntryEncoder {
    /// For rows of `schema`.
    ///
    /// # Errors
    /// A column that cannot be written.
    pub fn new(layout: &Layout, schema: &SchemaRef) -> Result<Self, ConnectError> {
        let form = match layout {
            Layout::Message { field, format } => {
                Form::Message { field: field.clone().into_bytes(), encoder: format.encoder(schema)?, messages: MessageBuffer::default() }
            }
            Layout::Fields => {
                let format = values()?;
                let column = |field: &FieldRef| -> Result<Column, ConnectError> {
                    let schema: SchemaRef = Arc::new(Schema::new(vec![field.clone()]));
                    let encoder = format.encoder(&schema)?;
                    Ok(Column { name: field.name().clone().into_bytes(), schema, encoder, texts: MessageBuffer::default() })
                };
                Form::Fields(schema.fields().iter().map(column).collect::<Result<_, ConnectError>>()?)
            }
        };
        Ok(EntryEncoder { form, entries: Entries::default() })
    }

    /// An entry for each row of a block.
    ///
    /// # Errors
    /// A value that cannot be expressed; a row of NULLs only, which would be an entry without fields.
    pub fn encode(&mut self, block: &Block) -> Result<&Entries, ConnectError> {
        self.entries.bytes.clear();
        self.entries.made.clear();
        match &mut self.form {
            Form::Fields(columns) => encode_fields(columns, block, &mut self.entries)?,
            Form::Message { field, encoder, messages } => {
                messages.clear();
                encoder.encode(block, messages)?;
                for message in messages.iter() {
                    resp::bulk(&mut self.entries.bytes, field);
                    resp::bulk(&mut self.entries.bytes, message);
                    self.entries.made.push(Made { end: self.entries.bytes.len(), parts: 2 });
                }
            }
        }
        Ok(&self.entries)
    }
}

fn encode_fields(columns: &mut [Column], block: &Block, entries: &mut Entries) -> Result<(), ConnectError> {
    for (index, column) in columns.iter_mut().enumerate() {
        column.texts.clear();
        let batch = RecordBatch::try_new(column.schema.clone(), vec![block.column(index).clone()]);
        let batch = batch.map_err(|e| ConnectError::new(format!("making entries of rows: {e}")))?;
        column.encoder.encode(&block.with_batch(batch), &mut column.texts)?;
    }
    for row in 0..block.rows() {
        let mut parts = 0;
        for (index, column) in columns.iter().enumerate() {
            if block.column(index).is_null(row) {
                continue;
            }
            let MessageBuffer { bytes, ends } = &column.texts;
            let from = if row == 0 { 0 } else { ends[row - 1] };
            resp::bulk(&mut entries.bytes, &column.name);
            resp::bulk(&mut entries.bytes, &bytes[from..ends[row]]);
            parts += 2;
        }
        if parts == 0 {
            return Err(ConnectError::new(
                "a row has NULL in every column, and an entry needs a field: leave such rows out (WHERE), or write a message with 'value.format'",
            ));
        }
        entries.made.push(Made { end: entries.bytes.len(), parts });
    }
    Ok(())
}
