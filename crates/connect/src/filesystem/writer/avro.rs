//! Writes Avro files: rows are gathered into blocks of the file, which end with so many rows or so many bytes.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_block::Block;
use tidemill_format::avro::AvroFileOptions;
use tidemill_format::bytes_of;

use super::{Parts, ROWS_MAX, WholeWriter};
use crate::{Committable, ConnectError, Writer, WriterStats};

/// Bytes of rows, as they are in memory, after which a block of the file ends: whoever writes or reads one holds it whole, several
/// times over while it is compressed.
const BLOCK_BYTES_MAX: usize = 4 << 20;

/// Writes Avro.
pub(in crate::filesystem) struct AvroWriter {
    files: WholeWriter,
    waiting: Gathered,
}

/// Rows gathered for the next block of the file.
#[derive(Default)]
struct Gathered {
    blocks: Vec<Block>,
    rows: usize,
    bytes: usize,
}

impl Gathered {
    fn add(&mut self, block: &Block) {
        self.rows += block.rows();
        self.bytes += bytes_of(&block.batch);
        self.blocks.push(block.clone());
    }

    /// Whether they fill a block: it has a head of some twenty bytes and is compressed as a whole.
    fn is_full(&self) -> bool {
        self.rows >= ROWS_MAX || self.bytes >= BLOCK_BYTES_MAX
    }

    /// The rows, as the blocks of the file that they become: several if they came as one that is too large.
    fn take(&mut self) -> Result<Vec<RecordBatch>, ConnectError> {
        let Gathered { blocks, rows, bytes } = std::mem::take(self);
        let Some(first) = blocks.first() else { return Ok(Vec::new()) };
        let all = Block::concat_columns(&first.schema(), &blocks)
            .map_err(|e| ConnectError::new(format!("gathering rows for an Avro file: {e}")))?;
        // As many rows each as have the bytes of a block on average, and at least one.
        let size = rows.div_ceil(bytes.div_ceil(BLOCK_BYTES_MAX).max(1)).max(1);
        Ok((0..rows).step_by(size).map(|from| all.slice(from, size.min(rows - from))).collect())
    }
}

impl AvroWriter {
    pub fn new(parts: Parts, options: AvroFileOptions, schema: SchemaRef) -> Self {
        AvroWriter { files: WholeWriter::avro(parts, options, schema), waiting: Gathered::default() }
    }

    /// Writes what was gathered.
    fn drain(&mut self) -> Result<(), ConnectError> {
        self.waiting.take()?.iter().try_for_each(|batch| self.files.append(batch))
    }
}

impl Writer for AvroWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        if block.rows() > 0 {
            self.waiting.add(block);
        }
        if self.waiting.is_full() {
            self.drain()?;
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        if self.files.due(0)? {
            self.drain()?;
            self.files.close()?;
        }
        Ok(())
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.files.begin_prepare(last, self.waiting.rows > 0)?;
        self.drain()?;
        self.files.end_prepare()
    }

    fn stats(&self) -> WriterStats {
        self.files.stats()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringArray};

    use super::*;

    /// A block of so many rows with texts of so many bytes.
    fn block(rows: usize, bytes: usize) -> Block {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(bytes); rows]));
        Block::inserts(RecordBatch::try_from_iter([("t", texts)]).unwrap(), 0)
    }

    /// Rows of some MB each waited until there were thousands of them.
    #[test]
    fn blocks_end_by_rows_and_by_bytes() {
        #[track_caller]
        fn check(blocks: &[Block], full: bool, expect: &[usize]) {
            let mut gathered = Gathered::default();
            blocks.iter().for_each(|block| gathered.add(block));
            assert_eq!(gathered.is_full(), full);
            assert_eq!(gathered.take().unwrap().iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), expect);
            assert!(gathered.take().unwrap().is_empty() && !gathered.is_full());
        }
        check(&[block(3, 10), block(4, 10)], false, &[7]);
        check(&[block(ROWS_MAX, 1)], true, &[ROWS_MAX]);
        check(&[block(1, BLOCK_BYTES_MAX - 1000), block(1, 1000)], true, &[1, 1]);
        check(&[block(6, 1 << 20)], true, &[3, 3]);
        check(&[block(1, 2 * BLOCK_BYTES_MAX)], true, &[1]);
    }
}
