//! Writers of part files: one shard's rows as text, Parquet or Avro, rolled by size and age. Names become
//! visible elsewhere (`sink`).

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arrow::datatypes::SchemaRef;
use tidemill_block::Block;
use tidemill_format::avro::{AvroFileOptions, AvroFileWriter};
use tidemill_format::compression::{self, CompressWriter, Compression};
use tidemill_format::parquet::{ParquetFileWriter, ParquetOptions};
use tidemill_format::{Encoder, FormatError};

use super::sink::{Finished, IN_PROGRESS, Rolling};
use crate::{Committable, ConnectError, Writer, WriterStats};

/// Encoded bytes gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;
/// Rows encoded at once: a large block would otherwise make the buffer outgrow the cache.
const ROWS_MAX: usize = 4096;

/// The part files of one writer: their names, the open one's age, the finished ones.
pub(super) struct Parts {
    directory: PathBuf,
    /// `prefix-run-shard`.
    stem: String,
    extension: String,
    rolling: Rolling,
    next: u64,
    finished: Vec<Finished>,
}

/// An open part file.
struct Part {
    file: Arc<File>,
    path: PathBuf,
    names: Finished,
    opened: Instant,
    /// Bytes in the file so far.
    written: Arc<AtomicU64>,
}

/// The file as encoders and compressors see it.
struct Counted {
    file: Arc<File>,
    written: Arc<AtomicU64>,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = (&*self.file).write(bytes)?;
        self.written.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Part {
    fn counted(&self) -> Counted {
        Counted { file: self.file.clone(), written: self.written.clone() }
    }

    fn wrong(&self, e: &io::Error) -> ConnectError {
        ConnectError::io(format!("writing '{}'", self.path.display()), e)
    }
}

impl Parts {
    pub fn new(directory: PathBuf, stem: String, extension: String, rolling: Rolling) -> Self {
        assert!(!stem.contains('/'), "names of part files are names, not paths");
        Parts { directory, stem, extension, rolling, next: 0, finished: Vec::new() }
    }

    /// Begins the next part file.
    fn create(&mut self) -> Result<Part, ConnectError> {
        loop {
            let to = format!("{}-{}.{}", self.stem, self.next, self.extension);
            let names = Finished { from: format!(".{to}{IN_PROGRESS}"), to };
            self.next += 1;
            let path = self.directory.join(&names.from);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                // Another sink of the job has the same directory: the number is taken.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(ConnectError::io(format!("creating '{}'", path.display()), &e)),
                Ok(_) if self.directory.join(&names.to).exists() => {
                    std::fs::remove_file(&path).map_err(|e| ConnectError::io(format!("removing '{}'", path.display()), &e))?;
                }
                Ok(file) => {
                    return Ok(Part { file: Arc::new(file), path, names, opened: Instant::now(), written: Arc::default() });
                }
            }
        }
    }

    /// Whether the part is to be closed, `buffered` bytes being on their way to it.
    fn due(&self, part: &Part, buffered: usize) -> bool {
        part.written.load(Ordering::Relaxed) + buffered as u64 >= self.rolling.bytes || part.opened.elapsed() >= self.rolling.interval
    }

    /// Makes a completely written part safe on disk.
    fn seal(&mut self, part: Part) -> Result<(), ConnectError> {
        part.file.sync_all().map_err(|e| ConnectError::io(format!("making '{}' safe (fsync)", part.path.display()), &e))?;
        self.finished.push(part.names);
        Ok(())
    }

    fn take(&mut self) -> Vec<Committable> {
        self.finished.drain(..).map(|f| serde_json::json!({ "from": f.from, "to": f.to })).collect()
    }
}

/// Writes text.
pub(super) struct TextWriter {
    parts: Parts,
    encoder: Box<dyn Encoder>,
    compression: Compression,
    open: Option<(Part, Box<dyn CompressWriter>)>,
    /// Encoded and not yet written; always of the open part.
    buffer: Vec<u8>,
    /// Encoded bytes that were written.
    bytes: u64,
}

impl TextWriter {
    pub fn new(parts: Parts, encoder: Box<dyn Encoder>, compression: Compression) -> Self {
        TextWriter { parts, encoder, compression, open: None, buffer: Vec::with_capacity(2 * BUFFER_BYTES), bytes: 0 }
    }

    fn encode(&mut self, rows: &Block) -> Result<(), ConnectError> {
        let (part, _) = match &mut self.open {
            Some(open) => open,
            None => {
                let part = self.parts.create()?;
                let out = compression::writer(Box::new(part.counted()), self.compression, None).map_err(|e| part.wrong(&e))?;
                self.encoder.begin(&mut self.buffer);
                self.open.insert((part, out))
            }
        };
        self.encoder.encode(rows, &mut self.buffer).map_err(|e| ConnectError::from(e).at(format!("writing '{}'", part.path.display())))?;
        if self.buffer.len() >= BUFFER_BYTES {
            self.drain()?;
        }
        Ok(())
    }

    /// Writes the buffer.
    fn drain(&mut self) -> Result<(), ConnectError> {
        if let Some((part, out)) = &mut self.open {
            out.write_all(&self.buffer).map_err(|e| part.wrong(&e))?;
            self.bytes += self.buffer.len() as u64;
        }
        self.buffer.clear();
        Ok(())
    }

    fn close(&mut self) -> Result<(), ConnectError> {
        self.drain()?;
        if let Some((part, out)) = self.open.take() {
            out.finish().map_err(|e| part.wrong(&e))?;
            self.parts.seal(part)?;
        }
        Ok(())
    }

    fn roll(&mut self) -> Result<(), ConnectError> {
        match &self.open {
            Some((part, _)) if self.parts.due(part, self.buffer.len()) => self.close(),
            _ => Ok(()),
        }
    }
}

impl Writer for TextWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        let rows = block.rows();
        if rows <= ROWS_MAX {
            if rows > 0 {
                self.encode(block)?;
            }
        } else {
            for from in (0..rows).step_by(ROWS_MAX) {
                self.encode(&block.slice(from, ROWS_MAX.min(rows - from)))?;
            }
        }
        self.roll()
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        // Nobody sees the rows before the commit, so only the age of the file matters here.
        self.roll()
    }

    fn prepare(&mut self, _last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.close()?;
        Ok(self.parts.take())
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.bytes + self.buffer.len() as u64 }
    }
}

/// Writes Parquet.
pub(super) struct ParquetWriter {
    parts: Parts,
    options: ParquetOptions,
    schema: SchemaRef,
    open: Option<(Part, ParquetFileWriter)>,
    /// Bytes in the closed files.
    bytes: u64,
}

impl ParquetWriter {
    pub fn new(parts: Parts, options: ParquetOptions, schema: SchemaRef) -> Self {
        ParquetWriter { parts, options, schema, open: None, bytes: 0 }
    }

    fn wrong(part: &Part, e: FormatError) -> ConnectError {
        match e {
            FormatError::Io(e) => part.wrong(&e),
            other => ConnectError::from(other).at(format!("writing '{}'", part.path.display())),
        }
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
            Some((part, out)) if self.parts.due(part, out.sizes().0) => self.close(),
            _ => Ok(()),
        }
    }
}

impl Writer for ParquetWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        if block.rows() == 0 {
            return Ok(());
        }
        let (part, out) = match &mut self.open {
            Some(open) => open,
            None => {
                let part = self.parts.create()?;
                let out =
                    ParquetFileWriter::new(Box::new(part.counted()), &self.schema, &self.options).map_err(|e| Self::wrong(&part, e))?;
                self.open.insert((part, out))
            }
        };
        out.write(&block.batch).map_err(|e| Self::wrong(part, e))?;
        self.roll()
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        self.roll()
    }

    fn prepare(&mut self, _last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.close()?;
        Ok(self.parts.take())
    }

    fn stats(&self) -> WriterStats {
        let open = self.open.as_ref().map_or(0, |(part, _)| part.written.load(Ordering::Relaxed));
        WriterStats { bytes: self.bytes + open }
    }
}

/// Writes Avro.
pub(super) struct AvroWriter {
    parts: Parts,
    options: AvroFileOptions,
    schema: SchemaRef,
    open: Option<(Part, AvroFileWriter)>,
    /// Rows gathered for the next block of the file.
    waiting: Vec<Block>,
    waiting_rows: usize,
    /// Bytes in the closed files.
    bytes: u64,
}

impl AvroWriter {
    pub fn new(parts: Parts, options: AvroFileOptions, schema: SchemaRef) -> Self {
        AvroWriter { parts, options, schema, open: None, waiting: Vec::new(), waiting_rows: 0, bytes: 0 }
    }

    fn wrong(part: &Part, e: FormatError) -> ConnectError {
        match e {
            FormatError::Io(e) => part.wrong(&e),
            other => ConnectError::from(other).at(format!("writing '{}'", part.path.display())),
        }
    }

    /// Writes what was gathered as a block of the file.
    fn drain(&mut self) -> Result<(), ConnectError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.waiting_rows = 0;
        let blocks = std::mem::take(&mut self.waiting);
        let batch = Block::concat_columns(&blocks[0].schema(), &blocks)
            .map_err(|e| ConnectError::new(format!("gathering rows for an Avro file: {e}")))?;
        let (part, out) = match &mut self.open {
            Some(open) => open,
            None => {
                let part = self.parts.create()?;
                let out = AvroFileWriter::new(Box::new(part.counted()), &self.schema, &self.options).map_err(|e| Self::wrong(&part, e))?;
                self.open.insert((part, out))
            }
        };
        out.write(&batch).map_err(|e| Self::wrong(part, e))
    }

    fn close(&mut self) -> Result<(), ConnectError> {
        self.drain()?;
        if let Some((part, out)) = self.open.take() {
            out.finish().map_err(|e| Self::wrong(&part, e))?;
            self.bytes += part.written.load(Ordering::Relaxed);
            self.parts.seal(part)?;
        }
        Ok(())
    }

    fn roll(&mut self) -> Result<(), ConnectError> {
        match &self.open {
            Some((part, _)) if self.parts.due(part, 0) => self.close(),
            _ => Ok(()),
        }
    }
}

impl Writer for AvroWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        if block.rows() > 0 {
            self.waiting_rows += block.rows();
            self.waiting.push(block.clone());
        }
        // A block has a head of some twenty bytes and is compressed as a whole.
        if self.waiting_rows >= ROWS_MAX {
            self.drain()?;
        }
        self.roll()
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        self.roll()
    }

    fn prepare(&mut self, _last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.close()?;
        Ok(self.parts.take())
    }

    fn stats(&self) -> WriterStats {
        let open = self.open.as_ref().map_or(0, |(part, _)| part.written.load(Ordering::Relaxed));
        WriterStats { bytes: self.bytes + open }
    }
}
