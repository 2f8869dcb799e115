//! Writes Arrow files: rows are gathered into batches of one size, whatever the blocks were.

use std::sync::atomic::Ordering;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use tidemill_block::Block;
use tidemill_format::FormatError;
use tidemill_format::ipc::{ArrowFileWriter, ArrowOptions};

use super::{Part, Parts};
use crate::{Committable, ConnectError, Writer, WriterStats};

/// Bytes gathered before they become a batch, though it has fewer rows than it may have.
const GATHERED_BYTES_MAX: usize = 64 << 20;

/// Writes Arrow files.
pub(in crate::filesystem) struct IpcWriter {
    parts: Parts,
    options: ArrowOptions,
    schema: SchemaRef,
    open: Option<(Part, ArrowFileWriter)>,
    /// Rows gathered for the next batch of the file, and their bytes.
    waiting: Vec<Block>,
    waiting_rows: usize,
    waiting_bytes: usize,
    /// Bytes in the closed files.
    bytes: u64,
}

/// Bytes that the rows of a batch take, whatever they are slices of.
fn bytes_of(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0)).sum()
}

impl IpcWriter {
    pub fn new(parts: Parts, options: ArrowOptions, schema: SchemaRef) -> Self {
        IpcWriter { parts, options, schema, open: None, waiting: Vec::new(), waiting_rows: 0, waiting_bytes: 0, bytes: 0 }
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
        let out = ArrowFileWriter::new(Box::new(part.counted()), &self.schema, &self.options).map_err(|e| Self::wrong(&part, e))?;
        self.open = Some((part, out));
        Ok(())
    }

    /// Writes what was gathered as batches; unless it is the last, what does not fill one waits on.
    fn drain(&mut self, all: bool) -> Result<(), ConnectError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let (blocks, all) = (std::mem::take(&mut self.waiting), all || self.waiting_bytes >= GATHERED_BYTES_MAX);
        (self.waiting_rows, self.waiting_bytes) = (0, 0);
        let rows = Block::concat_columns(&blocks[0].schema(), &blocks)
            .map_err(|e| ConnectError::new(format!("gathering rows for an Arrow file: {e}")))?;
        drop(blocks);
        if self.open.is_none() {
            self.begin()?;
        }
        let (part, out) = self.open.as_mut().expect("begun above");
        let size = self.options.batch_rows.max(1);
        let mut rest = None;
        for from in (0..rows.num_rows()).step_by(size) {
            let batch = rows.slice(from, size.min(rows.num_rows() - from));
            if batch.num_rows() < size && !all {
                rest = Some(batch);
                break;
            }
            out.write(&batch).map_err(|e| Self::wrong(part, e))?;
        }
        if let Some(rest) = rest {
            self.gather(Block::inserts(rest, 0));
        }
        Ok(())
    }

    fn gather(&mut self, block: Block) {
        self.waiting_rows += block.rows();
        self.waiting_bytes += bytes_of(&block.batch);
        self.waiting.push(block);
    }

    fn close(&mut self) -> Result<(), ConnectError> {
        self.drain(true)?;
        if let Some((part, out)) = self.open.take() {
            out.finish().map_err(|e| Self::wrong(&part, e))?;
            self.bytes += part.written.load(Ordering::Relaxed);
            self.parts.seal(part)?;
        }
        Ok(())
    }

    fn roll(&mut self) -> Result<(), ConnectError> {
        match &self.open {
            // What waits is written uncompressed, or smaller.
            Some((part, _)) if self.parts.due(part, self.waiting_bytes) => self.close(),
            _ => Ok(()),
        }
    }
}

impl Writer for IpcWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        if block.rows() > 0 {
            if self.open.is_none() {
                // The file's age counts from its first row.
                self.begin()?;
            }
            self.gather(block.clone());
        }
        if self.waiting_rows >= self.options.batch_rows || self.waiting_bytes >= GATHERED_BYTES_MAX {
            self.drain(false)?;
        }
        self.roll()
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        self.roll()
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.parts.check_last(last, self.open.is_some() || !self.waiting.is_empty())?;
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
