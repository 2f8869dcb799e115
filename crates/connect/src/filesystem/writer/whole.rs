//! Writers of formats that take batches and complete a file at its end. Parquet, ORC and XLSX take rows as they come; what
//! gathers them before they reach a file of Avro or Arrow is in [`super::avro`] and [`super::ipc`].

use std::io::Write;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_block::Block;
use tidemill_format::FormatError;
use tidemill_format::avro::{AvroFileOptions, AvroFileWriter};
use tidemill_format::ipc::{ArrowFileWriter, ArrowOptions};
use tidemill_format::orc::{OrcFileWriter, OrcOptions};
use tidemill_format::parquet::{ParquetFileWriter, ParquetOptions};
use tidemill_format::xlsx::{XlsxFileWriter, XlsxOptions};

use super::{Part, Parts};
use crate::{Committable, ConnectError, Writer, WriterStats};

/// A file under way.
trait FileWriter: Send {
    /// How many rows it still takes.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// About how many bytes are held back.
    fn held(&self) -> u64 {
        0
    }

    /// Has what is held back be as it will be in the file, as far as it can be.
    ///
    /// # Errors
    /// Writing failed.
    fn settle(&mut self) -> Result<(), FormatError> {
        Ok(())
    }

    /// Appends rows.
    ///
    /// # Errors
    /// A value that the format does not have; writing failed.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), FormatError>;

    /// Completes the file.
    ///
    /// # Errors
    /// Writing failed.
    fn finish(self: Box<Self>) -> Result<(), FormatError>;
}

impl FileWriter for ParquetFileWriter {
    fn held(&self) -> u64 {
        self.sizes().0 as u64
    }

    fn settle(&mut self) -> Result<(), FormatError> {
        ParquetFileWriter::settle(self)
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        ParquetFileWriter::write(self, batch)
    }

    fn finish(self: Box<Self>) -> Result<(), FormatError> {
        ParquetFileWriter::finish(*self).map(drop)
    }
}

impl FileWriter for AvroFileWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        AvroFileWriter::write(self, batch)
    }

    fn finish(self: Box<Self>) -> Result<(), FormatError> {
        AvroFileWriter::finish(*self)
    }
}

impl FileWriter for ArrowFileWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        ArrowFileWriter::write(self, batch)
    }

    fn finish(self: Box<Self>) -> Result<(), FormatError> {
        ArrowFileWriter::finish(*self)
    }
}

impl FileWriter for OrcFileWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        OrcFileWriter::write(self, batch)
    }

    fn finish(self: Box<Self>) -> Result<(), FormatError> {
        OrcFileWriter::finish(*self)
    }
}

impl FileWriter for XlsxFileWriter {
    fn room(&self) -> usize {
        XlsxFileWriter::room(self)
    }

    fn held(&self) -> u64 {
        self.bytes()
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        XlsxFileWriter::write(self, batch)
    }

    fn finish(self: Box<Self>) -> Result<(), FormatError> {
        XlsxFileWriter::finish(*self)
    }
}

/// Begins a file, whose bytes go there.
type Begin = Box<dyn Fn(Box<dyn Write + Send>) -> Result<Box<dyn FileWriter>, FormatError> + Send>;

/// Writes part files.
pub(in crate::filesystem) struct WholeWriter {
    parts: Parts,
    begin: Begin,
    open: Option<(Part, Box<dyn FileWriter>)>,
    /// Bytes in the closed files.
    bytes: u64,
}

/// The error of a file under way.
fn wrong(part: &Part, e: FormatError) -> ConnectError {
    match e {
        FormatError::Io(e) => part.wrong(&e),
        other => ConnectError::from(other).at(format!("writing '{}'", part.path.display())),
    }
}

impl WholeWriter {
    fn of<W: FileWriter + 'static>(parts: Parts, begin: impl Fn(Box<dyn Write + Send>) -> Result<W, FormatError> + Send + 'static) -> Self {
        let begin = move |out: Box<dyn Write + Send>| -> Result<Box<dyn FileWriter>, FormatError> { Ok(Box::new(begin(out)?)) };
        WholeWriter { parts, begin: Box::new(begin), open: None, bytes: 0 }
    }

    /// Writes Parquet.
    pub fn parquet(parts: Parts, options: ParquetOptions, schema: SchemaRef) -> Self {
        WholeWriter::of(parts, move |out| ParquetFileWriter::new(out, &schema, &options))
    }

    /// Writes ORC.
    pub fn orc(parts: Parts, options: OrcOptions, schema: SchemaRef) -> Self {
        WholeWriter::of(parts, move |out| OrcFileWriter::new(out, &schema, &options))
    }

    /// Writes XLSX.
    pub fn xlsx(parts: Parts, options: XlsxOptions, schema: SchemaRef) -> Self {
        WholeWriter::of(parts, move |out| XlsxFileWriter::new(out, &schema, &options))
    }

    /// Writes Avro, each batch as a block.
    pub(super) fn avro(parts: Parts, options: AvroFileOptions, schema: SchemaRef) -> Self {
        WholeWriter::of(parts, move |out| AvroFileWriter::new(out, &schema, &options))
    }

    /// Writes Arrow files, each batch as one of the file.
    pub(super) fn arrow(parts: Parts, options: ArrowOptions, schema: SchemaRef) -> Self {
        WholeWriter::of(parts, move |out| ArrowFileWriter::new(out, &schema, &options))
    }

    /// Begins a part file, unless one is open.
    pub(super) fn begin(&mut self) -> Result<(), ConnectError> {
        if self.open.is_none() {
            let part = self.parts.create()?;
            let out = (self.begin)(Box::new(part.counted())).map_err(|e| wrong(&part, e))?;
            self.open = Some((part, out));
        }
        Ok(())
    }

    /// Appends rows to the open file, and to others where it is full.
    pub(super) fn append(&mut self, batch: &RecordBatch) -> Result<(), ConnectError> {
        let (mut from, rows) = (0, batch.num_rows());
        while from < rows {
            self.begin()?;
            let (part, out) = self.open.as_mut().expect("begun above");
            let take = out.room().min(rows - from);
            let written = if take == rows { out.write(batch) } else { out.write(&batch.slice(from, take)) };
            written.map_err(|e| wrong(part, e))?;
            from += take;
            if from < rows {
                if self.parts.single {
                    return Err(ConnectError::new(format!(
                        "writing '{}': there are more rows than fit into one file of this format (a sheet of XLSX has 1,048,576); write \
                         a directory of files (without 'sink.single-file', or to a path that does not end in .xlsx, with FORMAT xlsx), \
                         or CSV or Parquet",
                        part.path.display()
                    )));
                }
                self.close()?;
            }
        }
        Ok(())
    }

    /// Closes the open file, if there is one.
    pub(super) fn close(&mut self) -> Result<(), ConnectError> {
        if let Some((part, out)) = self.open.take() {
            out.finish().map_err(|e| wrong(&part, e))?;
            self.bytes += part.written.load(Ordering::Relaxed);
            self.parts.seal(part)?;
        }
        Ok(())
    }

    /// Whether the open file is to be closed, `waiting` bytes being on their way to it.
    pub(super) fn due(&mut self, waiting: usize) -> Result<bool, ConnectError> {
        if !self.seems_due(waiting) {
            return Ok(false);
        }
        // Rows that are not encoded yet will take less.
        if let Some((part, out)) = &mut self.open {
            out.settle().map_err(|e| wrong(part, e))?;
        }
        Ok(self.seems_due(waiting))
    }

    fn seems_due(&self, waiting: usize) -> bool {
        let held = |out: &dyn FileWriter| usize::try_from(out.held()).unwrap_or(usize::MAX).saturating_add(waiting);
        self.open.as_ref().is_some_and(|(part, out)| self.parts.due(part, held(&**out)))
    }

    /// The first half of [`Writer::prepare`]: refuses it where a file cannot be closed, and begins one where there must be one.
    /// Rows may be `waiting` to be appended before the other half.
    pub(super) fn begin_prepare(&mut self, last: bool, waiting: bool) -> Result<(), ConnectError> {
        self.parts.check_last(last, self.open.is_some() || waiting)?;
        if self.parts.lacks_file(last) {
            self.begin()?;
        }
        Ok(())
    }

    /// The second half of [`Writer::prepare`].
    pub(super) fn end_prepare(&mut self) -> Result<Vec<Committable>, ConnectError> {
        self.close()?;
        Ok(self.parts.take())
    }
}

impl Writer for WholeWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        self.append(&block.batch)?;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        // Nobody sees the rows before the commit, so only the size and age of the file matter here.
        if self.due(0)? { self.close() } else { Ok(()) }
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.begin_prepare(last, false)?;
        self.end_prepare()
    }

    fn stats(&self) -> WriterStats {
        let open = self.open.as_ref().map_or(0, |(part, _)| part.written.load(Ordering::Relaxed));
        WriterStats { bytes: self.bytes + open }
    }
}
