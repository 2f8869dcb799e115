//! Writes Avro files: rows are gathered into blocks of the file.

use arrow::datatypes::SchemaRef;
use tidemill_block::Block;
use tidemill_format::avro::AvroFileOptions;

use super::{Parts, ROWS_MAX, WholeWriter};
use crate::{Committable, ConnectError, Writer, WriterStats};

/// Writes Avro.
pub(in crate::filesystem) struct AvroWriter {
    files: WholeWriter,
    /// Rows gathered for the next block of the file.
    waiting: Vec<Block>,
    waiting_rows: usize,
}

impl AvroWriter {
    pub fn new(parts: Parts, options: AvroFileOptions, schema: SchemaRef) -> Self {
        AvroWriter { files: WholeWriter::avro(parts, options, schema), waiting: Vec::new(), waiting_rows: 0 }
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
        self.files.append(&batch)
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
        self.flush()
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        if self.files.due(0) {
            self.drain()?;
            self.files.close()?;
        }
        Ok(())
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.files.begin_prepare(last, !self.waiting.is_empty())?;
        self.drain()?;
        self.files.end_prepare()
    }

    fn stats(&self) -> WriterStats {
        self.files.stats()
    }
}
