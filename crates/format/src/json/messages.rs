//! JSON messages to batches and back: plain rows and changes. A message is parsed where it lies, into
//! the columns; no copy of it is made.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use tidemill_block::{Block, RowKind};

use super::change::{ChangeEncoder, ChangeFormat, Envelope};
use super::column::{Context, Record};
use super::scan::{Fault, Scan};
use super::{JsonEncoder, JsonOptions};
use crate::FormatError;
use crate::message::{BYTES_MAX, MessageBuffer, MessageDecoder, MessageEncoder, Messages, Origins, too_many_bytes};

/// Decodes messages that are each a JSON object, an array of objects, or a change.
///
/// As in Flink, a null value makes no row, and so does an empty one where the format is of changes.
pub(crate) struct JsonMessages {
    schema: SchemaRef,
    record: Record,
    context: Context,
    envelope: Option<Envelope>,
    kinds: Vec<RowKind>,
    origins: Origins,
    rows: usize,
    /// Bytes pushed since the last take.
    bytes: usize,
    /// Rows of the last take, to reserve for as many.
    expected: usize,
    bad: Vec<(u32, String)>,
}

impl JsonMessages {
    /// A decoder of rows.
    ///
    /// # Errors
    /// A column type that JSON cannot hold.
    pub fn new(options: &JsonOptions, physical: &SchemaRef, projection: &[usize]) -> Result<Self, FormatError> {
        let fields: Vec<_> = projection.iter().map(|i| physical.fields()[*i].clone()).collect();
        Ok(JsonMessages {
            record: Record::new("", fields.iter())?,
            schema: Arc::new(Schema::new(fields)),
            context: Context { scratch: Vec::new(), fail_on_missing: options.fail_on_missing_field },
            envelope: None,
            kinds: Vec::new(),
            origins: Origins::default(),
            rows: 0,
            bytes: 0,
            expected: 0,
            bad: Vec::new(),
        })
    }

    /// A decoder of changes.
    ///
    /// # Errors
    /// As [`JsonMessages::new`].
    pub fn of_changes(format: &ChangeFormat, physical: &SchemaRef, projection: &[usize]) -> Result<Self, FormatError> {
        Ok(JsonMessages { envelope: Some(format.envelope), ..JsonMessages::new(&format.rows, physical, projection)? })
    }

    /// Appends the rows of a message; gives how many they are.
    #[inline]
    fn read(&mut self, message: &[u8]) -> Result<usize, Fault> {
        self.bytes += message.len();
        if self.bytes > BYTES_MAX {
            return Err(too_many_bytes().into());
        }
        // Most messages are ASCII, and that is found out faster: wherever a message begins, sixteen bytes at a time and more.
        if !message.is_ascii() && std::str::from_utf8(message).is_err() {
            return Err("the message is not valid UTF-8".into());
        }
        let mut scan = Scan::new(message);
        scan.blanks();
        let rows = match self.envelope {
            Some(_) if scan.at == message.len() => return Ok(0),
            Some(envelope) => envelope.read(&mut self.record, &mut scan, &mut self.context, &mut self.kinds)?,
            None if scan.peek() == b'[' => self.read_array(&mut scan)?,
            None => self.record.read(&mut scan, &mut self.context).map(|()| 1)?,
        };
        scan.blanks();
        if scan.at < message.len() {
            return Err(scan.expected("nothing more"));
        }
        Ok(rows)
    }

    #[cold]
    fn read_array(&mut self, scan: &mut Scan<'_>) -> Result<usize, Fault> {
        scan.at += 1;
        scan.blanks();
        if scan.peek() == b']' {
            scan.at += 1;
            return Ok(0);
        }
        let mut rows = 0;
        loop {
            self.record.read(scan, &mut self.context)?;
            rows += 1;
            if !scan.more(b']')? {
                return Ok(rows);
            }
        }
    }
}

impl MessageDecoder for JsonMessages {
    fn push(&mut self, message: Option<&[u8]>) {
        if self.origins.messages() == 0 {
            self.record.reserve(self.expected);
        }
        let rows = match message.map_or(Ok(0), |message| self.read(message)) {
            Ok(rows) => rows,
            Err(reason) => {
                self.record.truncate(self.rows);
                self.kinds.truncate(self.rows);
                self.bad.push((self.origins.messages(), reason.into_string()));
                0
            }
        };
        self.rows += rows;
        self.origins.push(rows);
    }

    fn pending(&self) -> usize {
        self.origins.messages() as usize
    }

    fn take(&mut self) -> Result<Messages, FormatError> {
        let rows = std::mem::take(&mut self.rows);
        (self.bytes, self.expected) = (0, rows);
        let origins = self.origins.take();
        let (bad, kinds) = (std::mem::take(&mut self.bad), std::mem::take(&mut self.kinds));
        let kinds = kinds.iter().any(|k| *k != RowKind::Insert).then_some(kinds);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), self.record.build()?, &options)?;
        Ok(Messages { batch, kinds, origins, bad })
    }
}

/// Writes each row as a message.
pub(crate) struct JsonMessageEncoder(pub JsonEncoder);

impl MessageEncoder for JsonMessageEncoder {
    fn encode(&mut self, block: &Block, out: &mut MessageBuffer) -> Result<(), FormatError> {
        self.0.with_rows(&block.batch, |rows| {
            for row in 0..block.rows() {
                rows.write(row, &mut out.bytes);
                out.ends.push(out.bytes.len());
            }
        })
    }
}

/// Writes the change of each row as a message.
pub(crate) struct ChangeMessageEncoder(pub ChangeEncoder);

impl MessageEncoder for ChangeMessageEncoder {
    fn encode(&mut self, block: &Block, out: &mut MessageBuffer) -> Result<(), FormatError> {
        let MessageBuffer { bytes, ends } = out;
        self.0.changes(block, bytes, |bytes| ends.push(bytes.len()))
    }
}
