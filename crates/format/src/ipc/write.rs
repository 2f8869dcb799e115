//! Writes Arrow files and streams: uncompressed an image of the columns in memory, which can be mapped and used as it lies
//! there. Which rows make a batch is up to whoever calls.

use std::io::{self, BufWriter, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow::ipc::{CompressionType, MetadataVersion};

use super::reason;
use crate::{FormatError, option_enum, options};

option_enum! {
    /// How the buffers of an Arrow file are compressed.
    pub enum ArrowCompression {
        /// Not at all: what can be mapped and used without a copy.
        None = "none",
        /// LZ4: fast.
        Lz4 = "lz4",
        /// Zstandard, level 3.
        Zstd = "zstd",
    }
}

option_enum! {
    /// Which form is written.
    pub enum ArrowForm {
        /// A file, with a footer that says where each batch lies.
        File = "file",
        /// A stream, to be read from front to back.
        Stream = "stream",
    }
}

options! {
    /// Options of the `arrow` format.
    pub struct ArrowOptions {
        /// How the columns of each batch are compressed that are written: `none`, `lz4` or `zstd`; what is read says it itself.
        ours "arrow.compression" => compression: ArrowCompression = ArrowCompression::None;
        /// How many rows a batch has that is written. Fewer if they take more than 64 MB; the last one of a file has the rest.
        ours "arrow.batch-rows" => batch_rows: usize = 65_536usize;
        /// What is written: a `file`, with a footer, or a `stream`, which is read from front to back only. Both are read.
        ours "arrow.form" => form: ArrowForm = ArrowForm::File;
        /// Whether local files are mapped into memory, so that their columns are used as they lie in the page cache. Files
        /// must not be cut or written to meanwhile: replace them by renaming. Files that somebody has open for writing,
        /// watched directories and what is given back to the page cache are read instead, as everything is with `false`.
        ours "arrow.memory-map" => memory_map: bool = true;
        /// Takes offsets, indices and texts for valid without looking at them, which is most of the time that reading a mapped
        /// file of text takes. Only for files that a trusted program wrote: wrong ones crash the process, or worse.
        ours "arrow.trusted" => trusted: bool = false;
    }
}

/// Bytes gathered before they are written: headers and short columns.
const BUFFER_BYTES: usize = 256 << 10;
/// Where in the file columns begin: at multiples of this, which suits every type and a line of the processor's cache.
const ALIGNMENT_BYTES: usize = 64;

type Out = BufWriter<Box<dyn Write + Send>>;

/// Writes one file or stream. Each batch becomes one of it.
pub struct ArrowFileWriter(Form);

enum Form {
    File(FileWriter<Out>),
    Stream(StreamWriter<Out>),
}

impl ArrowFileWriter {
    /// Begins one for rows of `schema`.
    ///
    /// # Errors
    /// An option out of range; writing failed.
    pub fn new(out: Box<dyn Write + Send>, schema: &SchemaRef, options: &ArrowOptions) -> Result<Self, FormatError> {
        if options.batch_rows == 0 {
            return Err(FormatError::option("option 'arrow.batch-rows' must be greater than 0"));
        }
        let compression = match options.compression {
            ArrowCompression::None => None,
            ArrowCompression::Lz4 => Some(CompressionType::LZ4_FRAME),
            ArrowCompression::Zstd => Some(CompressionType::ZSTD),
        };
        let form = IpcWriteOptions::try_new(ALIGNMENT_BYTES, false, MetadataVersion::V5).map_err(cannot)?;
        let form = form.try_with_compression(compression).map_err(cannot)?;
        let out = BufWriter::with_capacity(BUFFER_BYTES, out);
        Ok(ArrowFileWriter(match options.form {
            ArrowForm::File => Form::File(FileWriter::try_new_with_options(out, schema, form).map_err(cannot)?),
            ArrowForm::Stream => Form::Stream(StreamWriter::try_new_with_options(out, schema, form).map_err(cannot)?),
        }))
    }

    /// Writes a batch.
    ///
    /// # Errors
    /// Writing failed.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        match &mut self.0 {
            Form::File(writer) => writer.write(batch),
            Form::Stream(writer) => writer.write(batch),
        }
        .map_err(cannot)
    }

    /// Ends it.
    ///
    /// # Errors
    /// Writing failed.
    pub fn finish(self) -> Result<(), FormatError> {
        let out = match self.0 {
            Form::File(writer) => writer.into_inner(),
            Form::Stream(writer) => writer.into_inner(),
        };
        Ok(out.map_err(cannot)?.flush()?)
    }
}

fn cannot(e: ArrowError) -> FormatError {
    match e {
        ArrowError::IoError(_, e) => FormatError::Io(e),
        ArrowError::ExternalError(e) => match e.downcast::<io::Error>() {
            Ok(e) => FormatError::Io(*e),
            Err(e) => FormatError::data(format!("writing Arrow: {e}")),
        },
        other => FormatError::data(format!("writing Arrow: {}", reason(&other.to_string()))),
    }
}
