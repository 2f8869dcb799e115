//! Avro's object container files: a header with the schema, then blocks of records, each compressed as a
//! whole. Avro records that come one by one are [`crate::message`]'s.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{Schema, SchemaRef};
use arrow_avro::compression::CompressionCodec;
use arrow_avro::errors::AvroError;
use arrow_avro::reader::{Reader, ReaderBuilder};
use arrow_avro::schema::SCHEMA_METADATA_KEY;
use arrow_avro::writer::format::AvroOcfFormat;
use arrow_avro::writer::{Writer, WriterBuilder};

use crate::message::{Written, adapt, names};
use crate::types::{plain_field, type_name};
use crate::{FormatError, option_enum, options};

option_enum! {
    /// How the blocks of an Avro file are compressed.
    pub enum AvroCodec {
        /// Not at all.
        Null = "null",
        /// Deflate, as in zip files.
        Deflate = "deflate",
        /// Snappy: fast.
        Snappy = "snappy",
        /// Zstandard: small.
        Zstandard = "zstandard",
    }
}

options! {
    /// Options of the `avro` format in files.
    pub struct AvroFileOptions {
        /// How blocks are compressed that are written; what is read says it itself. A TIMESTAMP is written
        /// as Avro's `local-timestamp-…`, a TIMESTAMP_LTZ as `timestamp-…`; both are read as either.
        flink "avro.codec" => codec: AvroCodec = AvroCodec::Snappy;
    }
}

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

/// The schema of a file in the types that tables have (see [`crate::types::plain_type`]); `shown` is its name in
/// messages.
///
/// # Errors
/// The file cannot be read or is no Avro file.
pub fn schema_in(shown: &str, input: Box<dyn Read + Send>) -> Result<SchemaRef, FormatError> {
    let reader = ReaderBuilder::new()
        .with_batch_size(1)
        .build(BufReader::with_capacity(READ_BYTES, input))
        .map_err(|e| FormatError::data(format!("reading '{shown}': {e}")))?;
    Ok(Arc::new(Schema::new(reader.schema().fields().iter().map(plain_field).collect::<Vec<_>>())))
}

/// Reads the rows of one file.
pub struct AvroFileReader {
    reader: Reader<BufReader<Box<dyn Read + Send>>>,
    schema: SchemaRef,
    /// For each column which column of the reader it is; `None` if the file has none of that name.
    columns: Vec<Option<usize>>,
    path: String,
    /// Rows to pass over.
    skip: u64,
}

impl AvroFileReader {
    /// Opens a file for the columns `projection` of `physical`, found by name, from row `start` on, in
    /// batches of `batch_rows` rows. A column that the file lacks is NULL.
    ///
    /// # Errors
    /// The file cannot be read or is no Avro file; a NOT NULL column is not there.
    pub fn open(path: &Path, physical: &SchemaRef, projection: &[usize], start: u64, batch_rows: usize) -> Result<Self, FormatError> {
        let file = || File::open(path).map(|file| Box::new(file) as Box<dyn Read + Send>);
        AvroFileReader::of(&path.display().to_string(), file, physical, projection, start, batch_rows)
    }

    /// As [`AvroFileReader::open`], of a file that `input` opens, each time at its beginning; `shown` is its name in
    /// messages.
    ///
    /// # Errors
    /// As [`AvroFileReader::open`].
    pub fn of(
        shown: &str,
        input: impl Fn() -> io::Result<Box<dyn Read + Send>>,
        physical: &SchemaRef,
        projection: &[usize],
        start: u64,
        batch_rows: usize,
    ) -> Result<Self, FormatError> {
        let wrong = |e: &dyn std::fmt::Display| FormatError::data(format!("reading '{shown}': {e}"));
        let open = || -> Result<BufReader<Box<dyn Read + Send>>, FormatError> {
            let file = input().map_err(|e| FormatError::Io(io::Error::new(e.kind(), format!("opening '{shown}': {e}"))))?;
            Ok(BufReader::with_capacity(READ_BYTES, file))
        };
        let whole = ReaderBuilder::new().with_batch_size(batch_rows).build(open()?).map_err(|e| wrong(&e))?;
        let json = whole.avro_header().get(SCHEMA_METADATA_KEY).map(|json| String::from_utf8_lossy(json).into_owned());
        let fields = names(&json.unwrap_or_default()).map_err(|e| wrong(&e))?;
        let schema: SchemaRef = Arc::new(Schema::new(projection.iter().map(|i| physical.fields()[*i].clone()).collect::<Vec<_>>()));
        let wanted: Vec<Option<usize>> = schema.fields().iter().map(|f| fields.iter().position(|n| n == f.name())).collect();
        if let Some(lost) = schema.fields().iter().zip(&wanted).find(|(field, at)| at.is_none() && !field.is_nullable()) {
            return Err(wrong(&format!("it has no column '{}', which is NOT NULL; it has: {}", lost.0.name(), fields.join(", "))));
        }
        let present: Vec<usize> = wanted.iter().flatten().copied().collect();
        let narrow = ReaderBuilder::new().with_batch_size(batch_rows).with_projection(present).build(open()?);
        // A field left out may have held the type that another refers to; then all are decoded.
        let (reader, columns) = match narrow {
            Ok(reader) => {
                let mut next = 0..;
                (reader, wanted.iter().map(|field| field.and_then(|_| next.next())).collect())
            }
            Err(_) => (whole, wanted),
        };
        Ok(AvroFileReader { reader, schema, columns, path: shown.to_string(), skip: start })
    }

    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// The file is damaged, or a value does not fit its column.
    pub fn read(&mut self) -> Result<Option<RecordBatch>, FormatError> {
        loop {
            let Some(batch) = self.reader.next() else { break };
            let mut batch = batch.map_err(|e| FormatError::data(format!("reading '{}': {e}", self.path)))?;
            let rows = batch.num_rows() as u64;
            if self.skip >= rows {
                self.skip -= rows;
                continue;
            }
            let skip = std::mem::take(&mut self.skip) as usize;
            batch = batch.slice(skip, batch.num_rows() - skip);
            return self.adapted(&batch).map(Some);
        }
        if self.skip > 0 {
            return Err(FormatError::data(format!(
                "'{}' has fewer rows than before: it was replaced; put the file back, or start the job without its checkpoint",
                self.path
            )));
        }
        Ok(None)
    }

    fn adapted(&self, batch: &RecordBatch) -> Result<RecordBatch, FormatError> {
        let wrong = |e: &dyn std::fmt::Display| FormatError::data(format!("reading '{}': {e}", self.path));
        let rows = batch.num_rows();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for (field, column) in self.schema.fields().iter().zip(&self.columns) {
            let Some(column) = column else {
                columns.push(new_null_array(field.data_type(), rows));
                continue;
            };
            let from = batch.column(*column);
            let to = adapt(field.name(), from, field.data_type()).map_err(|e| wrong(&e))?;
            if to.null_count() > from.null_count() {
                return Err(wrong(&format!("column '{}': a value is not a {}", field.name(), type_name(field.data_type()))));
            }
            columns.push(to);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(|e| wrong(&e))
    }
}

/// Writes one file. Each batch becomes a block of the file.
pub struct AvroFileWriter {
    writer: Writer<Box<dyn Write + Send>, AvroOcfFormat>,
    written: Written,
}

impl AvroFileWriter {
    /// Begins a file for rows of `schema`.
    ///
    /// # Errors
    /// A column whose type or name Avro lacks; writing failed.
    pub fn new(out: Box<dyn Write + Send>, schema: &SchemaRef, options: &AvroFileOptions) -> Result<Self, FormatError> {
        let written = Written::new(schema, false)?;
        let codec = match options.codec {
            AvroCodec::Null => None,
            AvroCodec::Deflate => Some(CompressionCodec::Deflate),
            AvroCodec::Snappy => Some(CompressionCodec::Snappy),
            AvroCodec::Zstandard => Some(CompressionCodec::ZStandard),
        };
        // The header's schema is made from the columns; so that rows are written by the same, no other is named.
        let builder = WriterBuilder::new(Schema::new(written.schema.fields().clone())).with_compression(codec);
        let writer = builder.build::<Box<dyn Write + Send>, AvroOcfFormat>(out).map_err(cannot)?;
        Ok(AvroFileWriter { writer, written })
    }

    /// Writes a block.
    ///
    /// # Errors
    /// Writing failed.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        let batch = self.written.batch(batch)?;
        self.writer.write(&batch).map_err(cannot)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Writing failed.
    pub fn finish(mut self) -> Result<(), FormatError> {
        self.writer.finish().map_err(cannot)
    }
}

fn cannot(e: AvroError) -> FormatError {
    match e {
        AvroError::IoError(_, e) => FormatError::Io(e),
        other => FormatError::data(format!("writing Avro: {other}")),
    }
}
