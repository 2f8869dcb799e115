//! What the changes of a source add up to: the final rows, which is what a batch job reads of a table whose
//! rows are updated and deleted.

use std::collections::VecDeque;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, RowKind};
use tidemill_operator::normalize::Normalize;
use tidemill_operator::{Operator, OperatorError, Output};
use tidemill_state::{KeyTable, Slots};

/// Counts how often each row is there.
pub(super) struct Fold {
    /// For upserts: what finds out which row each of them replaces.
    normalize: Option<Normalize>,
    /// The columns counted, by their place in the rows read.
    wanted: Vec<usize>,
    /// Their schema.
    schema: SchemaRef,
    rows: KeyTable,
    /// By slot.
    counts: Vec<i64>,
    scratch: Slots,
}

impl Fold {
    /// Adds up the columns `wanted` of the rows read, which have the schema `schema`. `normalize` is for
    /// upserts.
    ///
    /// # Errors
    /// A type whose values cannot be compared.
    pub fn new(normalize: Option<Normalize>, wanted: Vec<usize>, schema: SchemaRef) -> Result<Self, OperatorError> {
        let rows = KeyTable::new(schema.fields().iter().map(|f| f.data_type().clone()).collect())?;
        Ok(Fold { normalize, wanted, schema, rows, counts: Vec::new(), scratch: Slots::default() })
    }

    /// Takes rows and what they do to the table; `None` inserts all of them.
    ///
    /// # Errors
    /// More rows than fit in memory.
    pub fn push(&mut self, batch: RecordBatch, kinds: Option<Vec<RowKind>>) -> Result<(), OperatorError> {
        let block = match kinds {
            Some(kinds) => Block::changelog(batch, kinds.into(), 0),
            None => Block::inserts(batch, 0),
        };
        let Some(normalize) = &mut self.normalize else { return self.count(&block) };
        let mut out = Output::default();
        normalize.on_block(0, block, &mut out)?;
        out.blocks.iter().try_for_each(|block| self.count(block))
    }

    fn count(&mut self, block: &Block) -> Result<(), OperatorError> {
        let columns: Vec<ArrayRef> = self.wanted.iter().map(|column| block.column(*column).clone()).collect();
        self.rows.intern(&columns, block.rows(), &mut self.scratch)?;
        self.counts.resize(self.rows.capacity(), 0);
        for (row, slot) in self.scratch.slots.iter().enumerate() {
            self.counts[*slot as usize] += block.kind(row).sign();
        }
        if block.kinds.is_some() && !self.wanted.is_empty() {
            let mut gone: Vec<u32> = self.scratch.slots.iter().copied().filter(|slot| self.counts[*slot as usize] == 0).collect();
            gone.sort_unstable();
            gone.dedup();
            gone.into_iter().for_each(|slot| self.rows.remove(slot));
        }
        Ok(())
    }

    /// The rows that are there, in batches of up to `batch_rows`. A row that was deleted more often than
    /// inserted, because the log begins behind its insertion, is not there.
    ///
    /// # Errors
    /// More than 2 GB of text in a column of one batch.
    pub fn finish(self, batch_rows: usize) -> Result<VecDeque<RecordBatch>, OperatorError> {
        let mut slots: Vec<u32> = Vec::new();
        for slot in self.rows.slots() {
            let count = self.counts[slot as usize].max(0) as usize;
            slots.extend(std::iter::repeat_n(slot, count));
        }
        let batch = |slots: &[u32]| -> Result<RecordBatch, OperatorError> {
            let options = RecordBatchOptions::new().with_row_count(Some(slots.len()));
            Ok(RecordBatch::try_new_with_options(self.schema.clone(), self.rows.keys(slots)?, &options)?)
        };
        slots.chunks(batch_rows).map(batch).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use tidemill_block::text;

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("n", DataType::Int64, true)]))
    }

    #[track_caller]
    fn check(upserts: bool, wanted: &[usize], input: &str, expect: &[&str]) {
        let normalize = upserts.then(|| Normalize::new(vec![0], &schema(), schema()).unwrap());
        let mut fold = Fold::new(normalize, wanted.to_vec(), Arc::new(schema().project(wanted).unwrap())).unwrap();
        for line in input.lines() {
            let block = text::parse(&schema(), line);
            fold.push(block.batch.clone(), block.kinds.as_ref().map(|k| k.to_vec())).unwrap();
        }
        let batches = fold.finish(2).unwrap();
        assert!(batches.iter().all(|b| b.num_rows() <= 2));
        let mut lines: Vec<String> = Vec::new();
        for batch in batches {
            lines.extend(text::format(&Block::inserts(batch, 0)).lines().map(|l| l.trim().to_string()));
        }
        lines.sort();
        assert_eq!(lines, expect);
    }

    #[test]
    fn changes_add_up() {
        let input = "a 1\nb 2\n-U a 1\n+U a 3\n-D b 2\nc 3\nc 3";
        check(false, &[0, 1], input, &["+I a 3", "+I c 3", "+I c 3"]);
        check(false, &[1], input, &["+I 3", "+I 3", "+I 3"]);
        check(false, &[], input, &["+I", "+I", "+I"]);
        check(false, &[0, 1], "-D a 1\nb 2", &["+I b 2"]);
        check(false, &[0, 1], "a 1\n-D a 1", &[]);
    }

    #[test]
    fn upserts_replace_each_other() {
        let input = "a 1\nb 2\na 3\n-D b NULL\n-D c NULL\nd 4\nd 4";
        check(true, &[0, 1], input, &["+I a 3", "+I d 4"]);
        check(true, &[1], input, &["+I 3", "+I 4"]);
        check(true, &[], input, &["+I", "+I"]);
    }
}
