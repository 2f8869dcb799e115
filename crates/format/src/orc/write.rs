//! Writes ORC files. The encoder of `orc-rust` cannot move from thread to thread, and who writes here does; so it has a
//! thread of its own, which takes batches from a queue of one.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use orc_rust::ArrowWriterBuilder;
use orc_rust::compression::CompressionType;
use orc_rust::error::OrcError;

use super::{OrcCompression, OrcOptions};
use crate::FormatError;
use crate::types::type_name;

/// Rows encoded between two looks at the size of the stripe.
const LOOK_ROWS: usize = 4096;
/// Batches that wait for the encoder at most.
const WAITING_MAX: usize = 1;

/// What goes to the encoder.
enum Message {
    Rows(RecordBatch),
    End,
}

/// Writes one file. A stripe is held in memory, encoded, until it is full.
pub struct OrcFileWriter {
    schema: SchemaRef,
    /// None when the encoder has ended.
    encoder: Option<(SyncSender<Message>, JoinHandle<Result<(), FormatError>>)>,
}

impl OrcFileWriter {
    /// Says whether columns can be written, without writing any.
    ///
    /// # Errors
    /// An option out of range, a column type that is not written as ORC.
    pub fn check(schema: &SchemaRef, options: &OrcOptions) -> Result<(), FormatError> {
        if options.stripe_size.0 == 0 {
            return Err(FormatError::option("option 'orc.stripe.size' must be greater than 0"));
        }
        schema.fields().iter().try_for_each(|field| writable(field))
    }

    /// A writer of rows of `schema` to `out`.
    ///
    /// # Errors
    /// As [`OrcFileWriter::check`]; no thread can be started.
    pub fn new(out: Box<dyn Write + Send>, schema: &SchemaRef, options: &OrcOptions) -> Result<Self, FormatError> {
        OrcFileWriter::check(schema, options)?;
        // Without metadata, which would have to be the same in every batch.
        let schema: SchemaRef = Schema::new(schema.fields().clone()).into();
        let (send, receive) = sync_channel(WAITING_MAX);
        let (columns, options) = (schema.clone(), options.clone());
        let encode = move || encode(out, columns, &options, &receive);
        let thread = std::thread::Builder::new().name("orc-encoder".into()).spawn(encode)?;
        Ok(OrcFileWriter { schema, encoder: Some((send, thread)) })
    }

    /// Appends the rows of a batch. What goes wrong with them may show only later.
    ///
    /// # Errors
    /// Writing failed.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), batch.columns().to_vec(), &options)?;
        self.send(Message::Rows(batch))
    }

    /// Writes the last stripe and the footer. Without it the file is unreadable.
    ///
    /// # Errors
    /// Writing failed.
    pub fn finish(mut self) -> Result<(), FormatError> {
        self.send(Message::End)?;
        self.join()
    }

    fn send(&mut self, message: Message) -> Result<(), FormatError> {
        let sent = self.encoder.as_ref().is_some_and(|(send, _)| send.send(message).is_ok());
        if sent {
            return Ok(());
        }
        self.join()?;
        Err(FormatError::data("writing ORC: it has failed before"))
    }

    /// Waits for the encoder, and says what it said.
    fn join(&mut self) -> Result<(), FormatError> {
        let Some((send, thread)) = self.encoder.take() else { return Ok(()) };
        drop(send);
        match thread.join() {
            Ok(done) => done,
            Err(_) => Err(FormatError::data("writing ORC: the encoder has panicked")),
        }
    }
}

/// What the thread does. A queue that ends without a word is one of a writer that was given up: nothing is completed then.
fn encode(out: Box<dyn Write + Send>, schema: SchemaRef, options: &OrcOptions, rows: &Receiver<Message>) -> Result<(), FormatError> {
    let builder = ArrowWriterBuilder::new(out, schema)
        .with_batch_size(LOOK_ROWS)
        .with_stripe_byte_size(usize::try_from(options.stripe_size.0).unwrap_or(usize::MAX));
    let builder = match options.compress {
        OrcCompression::Zstd => builder.with_compression(CompressionType::Zstd),
        OrcCompression::Zlib => builder.with_compression(CompressionType::Zlib),
        OrcCompression::Snappy => builder.with_compression(CompressionType::Snappy),
        OrcCompression::Lz4 => builder.with_compression(CompressionType::Lz4),
        OrcCompression::None => builder,
    };
    let mut writer = builder.try_build().map_err(writing)?;
    while let Ok(message) = rows.recv() {
        match message {
            Message::Rows(batch) => writer.write(&batch).map_err(writing)?,
            Message::End => return writer.close().map_err(writing),
        }
    }
    Ok(())
}

/// Whether a column can be written.
fn writable(field: &Field) -> Result<(), FormatError> {
    use DataType::*;
    let advice = match field.data_type() {
        Boolean | Int8 | Int16 | Int32 | Int64 | Float32 | Float64 | Utf8 | Binary | Date32 | Timestamp(_, None) => return Ok(()),
        Timestamp(_, Some(zone)) if &**zone == "UTC" => return Ok(()),
        Decimal128(..) => "write CAST(… AS DOUBLE) or CAST(… AS STRING) instead, or Parquet, which has it",
        Time32(_) => "ORC has no times; write CAST(… AS STRING) instead, or Parquet, which has them",
        _ => "write its parts as columns of their own, or Parquet, which has it",
    };
    let (name, shown) = (field.name(), type_name(field.data_type()));
    Err(FormatError::unsupported(format!("column '{name}': {shown} is not written as ORC; {advice}")))
}

fn writing(e: OrcError) -> FormatError {
    match e {
        OrcError::IoError { source, .. } => FormatError::Io(source),
        OrcError::EncodeTimestamp { .. } => FormatError::data(
            "writing ORC: a timestamp in the last second of 1969, or one too far away, which ORC cannot hold; write it as STRING, or \
             write Parquet",
        ),
        other => FormatError::data(format!("writing ORC: {other}")),
    }
}
