//! Writers of formats that take batches and complete a file at its end: ORC, XLSX.

use std::io::Write;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_block::Block;
use tidemill_format::FormatError;
use tidemill_format::orc::{OrcFileWriter, OrcOptions};
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

impl WholeWriter {
    /// Writes ORC.
    pub fn orc(parts: Parts, options: OrcOptions, schema: SchemaRef) -> Self {
        let begin = move |out: Box<dyn Write + Send>| -> Result<Box<dyn FileWriter>, FormatError> {
            Ok(Box::new(OrcFileWriter::new(out, &schema, &options)?))
        };
        WholeWriter { parts, begin: Box::new(begin), open: None, bytes: 0 }
    }

    /// Writes XLSX.
    pub fn xlsx(parts: Parts, options: XlsxOptions, schema: SchemaRef) -> Self {
        let begin = move |out: Box<dyn Write + Send>| -> Result<Box<dyn FileWriter>, FormatError> {
            Ok(Box::new(XlsxFileWriter::new(out, &schema, &options)?))
        };
        WholeWriter { parts, begin: Box::new(begin), open: None, bytes: 0 }
    }

    fn wrong(part: &Part, e: FormatError) -> ConnectError {
        match e {
            FormatError::Io(e) => part.wrong(&e),
            other => ConnectError::from(other).at(format!("writing '{}'", part.path.display())),
        }
    }

    /// Begins a part file.
    fn begin(&mut self) -> Result<(), ConnectError> {
        let part = self.parts.create()?;
        let out = (self.begin)(Box::new(part.counted())).map_err(|e| Self::wrong(&part, e))?;
        self.open = Some((part, out));
        Ok(())
    }

    fn close(&mut self) -> Result<(), ConnectError> {
        if let Some((part, out)) = self.open.take() {
            out.finish().map_err(|e| Self::wrong(&part, e))?;
            self.bytes += part.written.load(Ordering::Relaxed);
            self.parts.seal(part)?;
        }
        Ok(())
    }

    fn roll(&mut self) -> Result<(), ConnectError> {
        match &self.open {
            Some((part, out)) if self.parts.due(part, usize::try_from(out.held()).unwrap_or(usize::MAX)) => self.close(),
            _ => Ok(()),
        }
    }
}

impl Writer for WholeWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        let mut rows = block.batch.clone();
        while rows.num_rows() > 0 {
            if self.open.is_none() {
                self.begin()?;
            }
            let (part, out) = self.open.as_mut().expect("begun above");
            let take = out.room().min(rows.num_rows());
            out.write(&rows.slice(0, take)).map_err(|e| Self::wrong(part, e))?;
            rows = rows.slice(take, rows.num_rows() - take);
            if rows.num_rows() > 0 {
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
        self.roll()
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        self.roll()
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.parts.check_last(last, self.open.is_some())?;
        if self.parts.lacks_file(last) {
            self.begin()?;
        }
        self.close()?;
        Ok(self.parts.take())
    }

    fn stats(&self) -> WriterStats {
        let open = self.open.as_ref().map_or(0, |(part, _)| part.written.load(Ordering::Relaxed));
        WriterStats { bytes: self.bytes + open }
    }
}
