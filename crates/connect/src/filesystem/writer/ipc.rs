//! Writes Arrow files: rows are gathered into batches of one size, whatever the blocks were.

use arrow::datatypes::SchemaRef;
use tidemill_block::Block;
use tidemill_format::bytes_of;
use tidemill_format::ipc::ArrowOptions;

use super::{Parts, WholeWriter};
use crate::{Committable, ConnectError, Writer, WriterStats};

/// Bytes gathered before they become a batch, though it has fewer rows than it may have.
const GATHERED_BYTES_MAX: usize = 64 << 20;

/// Writes Arrow files.
pub(in crate::filesystem) struct IpcWriter {
    files: WholeWriter,
    /// The rows of a batch of the file.
    batch_rows: usize,
    /// Rows gathered for the next batch of the file, and their bytes.
    waiting: Vec<Block>,
    waiting_rows: usize,
    waiting_bytes: usize,
}

impl IpcWriter {
    pub fn new(parts: Parts, options: ArrowOptions, schema: SchemaRef) -> Self {
        let batch_rows = options.batch_rows;
        let files = WholeWriter::arrow(parts, options, schema);
        IpcWriter { files, batch_rows, waiting: Vec::new(), waiting_rows: 0, waiting_bytes: 0 }
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
        let size = self.batch_rows.max(1);
        for from in (0..rows.num_rows()).step_by(size) {
            let batch = rows.slice(from, size.min(rows.num_rows() - from));
            if batch.num_rows() < size && !all {
                self.gather(Block::inserts(batch, 0));
            } else {
                self.files.append(&batch)?;
            }
        }
        Ok(())
    }

    fn gather(&mut self, block: Block) {
        self.waiting_rows += block.rows();
        self.waiting_bytes += bytes_of(&block.batch);
        self.waiting.push(block);
    }
}

impl Writer for IpcWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        if block.rows() > 0 {
            // The file's age counts from its first row.
            self.files.begin()?;
            self.gather(block.clone());
        }
        if self.waiting_rows >= self.batch_rows || self.waiting_bytes >= GATHERED_BYTES_MAX {
            self.drain(false)?;
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        // What waits is written uncompressed, or smaller.
        if self.files.due(self.waiting_bytes)? {
            self.drain(true)?;
            self.files.close()?;
        }
        Ok(())
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.files.begin_prepare(last, !self.waiting.is_empty())?;
        self.drain(true)?;
        self.files.end_prepare()
    }

    fn stats(&self) -> WriterStats {
        self.files.stats()
    }
}
